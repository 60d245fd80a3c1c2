"""A program as readable text: one canonical form, whatever notation it came from.

    filter of Reading
    param limit: f64
    state n: i32 = 0
    {
      n = (n + 1) as i32
      return input.level > limit and n rem 10 = 0
    }

It is for people: nothing parses it back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Binary,
    Block,
    Break,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Continue,
    CopyOut,
    Elem,
    Expr,
    If,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Loop,
    Meta,
    Missing,
    Param,
    ParamDecl,
    Path,
    Program,
    Reduce,
    Return,
    SetOut,
    Stmt,
    Unary,
    Var,
    Variable,
)
from headwater.ir.operators import EPOCH
from headwater.types.model import TEXT, TIMESTAMP, U64, Enum

_COMPARE = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "tdiv": "div", "tmod": "rem", "fdiv": "//", "fmod": "mod",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip
_UNARY = {"neg": "-", "bitnot": "~", "not": "not "}


def show(program: Program) -> str:
    """The whole program, with the types of everything it declares and reads."""
    head = f"filter of {program.input}"
    if program.output is not None:
        head = f"transformation of {program.input} to {program.output}"
    lines = [head, *map(_param, program.params), *map(_variable, program.variables)]
    lines += ["{", *_block(program.body, program.variables, "  "), "}"]
    return "\n".join(lines)


def show_expr(expr: Expr, variables: tuple[Variable, ...] = ()) -> str:
    """One expression; `variables` gives slots their names."""
    return _expr(expr, variables)


def _param(param: ParamDecl) -> str:
    match param.kind:
        case "scalar":
            return f"param {param.name}: {param.type}"
        case "set":
            return f"param {param.name}: set of {param.type}"
        case _:
            return f"param {param.name}: map from {param.type} to {param.value}"


def _variable(variable: Variable) -> str:
    shape = "".join(f"[{n}]" for n in variable.shape)
    init = ""
    if variable.state:
        values = [_const(const) for const in variable.init]
        if len(set(values)) == 1:
            init = f" = {values[0]}"
        else:
            init = f" = {{{', '.join(values[:8])}{', …' if len(values) > 8 else ''}}}"
    return f"{'state' if variable.state else 'local'} {variable.name}: {variable.type}{shape}{init}"


def _block(block: Block, variables: tuple[Variable, ...], indent: str) -> list[str]:
    lines: list[str] = []
    for stmt in block:
        lines += [indent + line for line in _stmt(stmt, variables)]
    return lines


def _stmt(stmt: Stmt, v: tuple[Variable, ...]) -> list[str]:
    """The lines of a statement."""
    match stmt:
        case Assign(slot=slot, value=value):
            return [f"{_name(slot, v)} = {_expr(value, v)}"]
        case AssignElem(slot=slot, indices=indices, value=value):
            return [f"{_name(slot, v)}{_indices(indices, v)} = {_expr(value, v)}"]
        case SetOut(path=path, value=value):
            return [f"{_path('output', path, v)} = {_expr(value, v)}"]
        case CopyOut(path=path, source=source):
            return [f"{_path('output', path, v)} = {_path('input', source, v)}"]
        case If(test=test, then=then, other=other):
            lines = [f"if {_expr(test, v)} {{", *_block(then, v, "  ")]
            return [*lines, "} else {", *_block(other, v, "  "), "}"] if other else [*lines, "}"]
        case Loop(test=test, body=body, step=step, bound=bound):
            limit = "by fuel" if bound is None else f"at most {bound}"
            lines = [f"while {_expr(test, v)} ({limit}) {{", *_block(body, v, "  ")]
            return [*lines, "} step {", *_block(step, v, "  "), "}"] if step else [*lines, "}"]
        case Break():
            return ["break"]
        case Continue():
            return ["continue"]
        case Return(value=value):
            return [f"return {_expr(value, v)}"]


def _name(slot: int, v: tuple[Variable, ...]) -> str:
    """Two variables in different scopes may have one name; then the later has its number behind it."""
    if slot >= len(v):
        return f"v{slot}"
    name = v[slot].name
    return name if all(other.name != name for other in v[:slot]) else f"{name}.{slot}"


def _indices(indices: tuple[Expr, ...], v: tuple[Variable, ...]) -> str:
    return "".join(f"[{_expr(index, v)}]" for index in indices)


def _path(root: str, path: Path, v: tuple[Variable, ...]) -> str:
    return root + "".join(f".{step}" if isinstance(step, str) else f"[{_expr(step, v)}]" for step in path.steps)


def _inner(expr: Expr, v: tuple[Variable, ...]) -> str:
    """In brackets unless it is plain."""
    text = _expr(expr, v)
    bare = isinstance(expr, Missing | Load | Var | Elem | Param | Meta | Call | Lookup | Reduce)
    return text if bare or (isinstance(expr, Const) and not text.startswith("-")) else f"({text})"


def _expr(expr: Expr, v: tuple[Variable, ...]) -> str:
    """An expression as text, in a form close to the grammar's."""
    match expr:
        case Const():
            return _const(expr)
        case Missing(type=type):
            return f"missing:{type}"
        case Load(path=path):
            return _path("input", path, v)
        case Var(slot=slot):
            return _name(slot, v)
        case Elem(slot=slot, indices=indices):
            return _name(slot, v) + _indices(indices, v)
        case Param(name=name):
            return f":{name}"
        case Meta(name=name):
            return f"meta.{name}"
        case Unary(op=op, a=a):
            return _UNARY[op] + _inner(a, v)
        case Binary(op=op, a=a, b=b):
            return f"{_inner(a, v)} {_BINARY[op]} {_inner(b, v)}"
        case Compare(op=op, a=a, b=b):
            return f"{_inner(a, v)} {_COMPARE[op]} {_inner(b, v)}"
        case Logic(op=op, args=args):
            parts = [_expr(arg, v) if isinstance(arg, Compare | InSet | IsMissing) else _inner(arg, v) for arg in args]
            return f" {op} ".join(parts)
        case Cond(test=test, then=then, other=other, neither=neither):
            last = "" if isinstance(neither, Missing) else f" neither {_inner(neither, v)}"
            return f"if {_inner(test, v)} then {_inner(then, v)} else {_inner(other, v)}{last}"
        case IsMissing(a=a):
            return f"{_inner(a, v)} is null"
        case Cast(a=a, to=to):
            return f"{_inner(a, v)} as {to}"
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(_expr(arg, v) for arg in args)})"
        case InSet(a=a, values=values, param=param):
            among = f":{param}" if param is not None else f"({', '.join(map(_const, values))})"
            return f"{_inner(a, v)} in {among}"
        case Lookup(param=param, key=key):
            return f":{param}[{_expr(key, v)}]"
        case Reduce(op=op, path=path):
            return f"{op}({_path('input', path, v)})"


def _const(const: Const) -> str:
    value, type = const.value, const.type
    if isinstance(type, Enum):
        return f"{type.name}.{type.name_of(cast(int, value))}"
    if type == TIMESTAMP:
        moment = EPOCH + timedelta(microseconds=cast(int, value))
        return f"timestamp '{moment.isoformat().replace('+00:00', 'Z')}'"
    if type == TEXT:
        plain = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in cast(str, value))
        return "'" + "".join(plain).replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value!r}u" if type == U64 else repr(value)
