"""Expressions of a Python function, from Python's own syntax tree to ours.

Names are looked up in this order: the event and the output, parameters, locals, state, what the service knows (`meta`),
enumerations of the event type, constants around the function. What has another meaning in Python than here is a
problem at its place, never a guess.
"""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass, field
from typing import Any

from headwater.ir.build import Builder, inside
from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.nodes import BinaryOp, CompareOp, Const, Expr, Load, Missing, Span
from headwater.ir.notes import is_bad
from headwater.lang.pyconst import NotConstant, captured, dotted, is_scalar, moment, plain
from headwater.lang.pysource import Source
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, Array, Enum, List, Record, Type, walk

_BINARY: dict[type, BinaryOp] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "fdiv", ast.Mod: "fmod",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
}  # fmt: skip
_COMPARE: dict[type, CompareOp] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"
}  # fmt: skip
_AS_PARAMETER = "make it a parameter: def f(e, *, x=…)"
_CASTS = {"int": I64, "float": F64, "bool": BOOL, "trunc": I64}
_RENAMED = {"isnan": "is_nan", "fabs": "abs"}
_CALLABLE = {*FUNCTIONS, *REDUCTIONS, *_CASTS, *_RENAMED, "dist"}
_METHODS = {"startswith": "starts_with", "endswith": "ends_with", "lower": "lower", "upper": "upper"}
_HINTS = {
    "round": "use floor(x + 0.5)",
    "str": "there are no casts to text",
    "print": "an interest has no side effects",
    "any": "use a for loop",
    "all": "use a for loop",
    "enumerate": "use for i in range(len(e.values))",
    "sorted": "use min or max of the array",
    **dict.fromkeys(("now", "utcnow", "today"), "meta.time is the time of the event"),
    **dict.fromkeys(
        ("match", "search", "fullmatch", "findall"),
        "there are no regular expressions; use like, startswith, endswith or contains",
    ),
    **dict.fromkeys(
        ("isinstance", "hasattr", "getattr"),
        "fields have one type; test for a missing value with `is None`",
    ),
}
UNSUPPORTED: dict[type, tuple[str, str]] = {
    ast.ListComp: ("a comprehension", "use a for loop, or sum, mean, min, max of an array"),
    ast.SetComp: ("a comprehension", "use a for loop"),
    ast.DictComp: ("a comprehension", "use a for loop"),
    ast.GeneratorExp: ("a comprehension", "use a for loop, or sum, mean, min, max of an array"),
    ast.Lambda: ("a lambda inside", "write its expression in place"),
    ast.NamedExpr: ("an assignment inside an expression", "assign on a line of its own"),
    ast.JoinedStr: ("an f-string", "text cannot be put together; compare its parts"),
    ast.Await: ("await", "an interest sees one event at a time"),
    ast.Yield: ("yield", "use return"),
    ast.YieldFrom: ("yield from", "use return"),
    ast.Starred: ("a starred value", "write the values out"),
    ast.Slice: ("a slice", "use a for loop with range(…)"),
    ast.Dict: ("a dict inside", "make it a parameter: def f(e, *, owner={…})"),
    ast.List: ("a list", "a list of values may only follow in"),
    ast.Tuple: ("a tuple", "a tuple of values may only follow in"),
    ast.Set: ("a set", "a set of values may only follow in"),
}


@dataclass
class Names:
    """What the names of a function stand for while it is walked."""

    event: str = ""
    out: str | None = None
    states: dict[str, dict[str, int]] = field(default_factory=dict)
    locals: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, Expr] = field(default_factory=dict)  # for whole arrays and records, and for bad values
    assigned: dict[str, int] = field(default_factory=dict)  # how often each name is assigned anywhere
    enums: dict[str, Enum] = field(default_factory=dict)

    def bound(self, name: str, builder: Builder) -> bool:
        """Whether a name belongs to the function rather than to its surroundings."""
        own = (self.event, self.out)
        return name in own or name in self.states or name in self.assigned or name in builder.params


def enumerations(*records: Record | None) -> dict[str, Enum]:
    """By name, and by the last part of a qualified name."""
    found = [t for record in records if record is not None for t in walk(record) if isinstance(t, Enum)]
    return {name: t for t in reversed(found) for name in (t.name.rsplit(".", 1)[-1], t.name)}


class Expressions:
    """Walks expressions. Statements are `pyfunc`'s."""

    def __init__(self, source: Source, builder: Builder, names: Names) -> None:
        self.source, self.b, self.names = source, builder, names

    def problem(self, node: Any, message: str, **more: str | None) -> Expr:
        return self.b.problem(self.source.span(node), message, **more)

    def expr(self, node: Any) -> Expr:
        """An expression of Python."""
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp(op=op, values=values):
                args = [self.expr(value) for value in values]
                return self.b.logic("and" if isinstance(op, ast.And) else "or", args, self.source.span(node))
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.IfExp():
                return self._conditional(node)
            case ast.Call():
                return self._call(node)
        what, hint = UNSUPPORTED.get(type(node), (type(node).__name__, None))
        return self.problem(node, f"{what} is not possible here", hint=hint)

    # ── leaves ──

    def _constant(self, node: ast.Constant) -> Expr:
        if node.value is None:
            return self.problem(node, "None is not a value", hint="test for a missing value with `is None`")
        value: Any = node.value
        if not is_scalar(value):
            return self.problem(node, "this cannot be a constant", found=type(value).__name__)
        return self.b.const(value, self.source.span(node))

    def _name(self, node: Any, name: str) -> Expr:
        names, span = self.names, self.source.span(node)
        if name in names.aliases:
            return names.aliases[name]
        if name in names.locals:
            return self.b.var(names.locals[name], span)
        if name in self.b.params:
            return self.b.param(name, span)
        if name == names.event:
            return self.problem(node, f"{name} is the whole event", expected=f"one of its fields, e.g. {name}.level")
        if name == names.out:
            return self.problem(node, f"{name} is the output event", hint=f"set its fields: {name}.x = …")
        if name in names.states:
            return self.problem(node, f"{name} is the whole state", expected=f"one of its values, e.g. {name}.n")
        if name in names.assigned:
            return self.problem(node, f"{name!r} is used before it has a value", hint="assign it further up")
        return self._free(node, [name])

    def _free(self, node: Any, names: list[str]) -> Expr:
        """A name from outside the function: `meta`, a member of an enumeration, or a constant captured by value."""
        span = self.source.span(node)
        written = ".".join(names)
        if len(names) > 1 and names[-2] == "meta" and self._is_ours(names[0]):
            return self.b.meta(names[-1], span)
        found, value = captured(names, self.source)
        if not found and len(names) > 1 and names[-2] in self.names.enums:
            return self.b.coerce(self.b.const(names[-1], span), self.names.enums[names[-2]], span)
        if not found:
            known = [*self.b.input.by_name]
            hint = f"write {self.names.event}.{written}" if written in known else _AS_PARAMETER
            return self.problem(node, f"{written!r} is not known here", hint=hint)
        return self._captured(node, written, value)

    def _captured(self, node: Any, written: str, value: Any) -> Expr:
        span = self.source.span(node)
        if isinstance(value, enum.Enum):
            kind = self.names.enums.get(type(value).__name__)
            if kind is not None:
                return self.b.coerce(self.b.const(value.name, span), kind, span)
            if not isinstance(value, int):
                return self.problem(node, f"the event type has no enumeration {type(value).__name__}")
            value = int(value)
        if is_scalar(value):
            return self.b.const(plain(value), span)
        found = type(value).__name__
        expected = "a number, text, bytes, boolean or aware datetime"
        return self.problem(node, f"{written!r} is no constant", expected=expected, found=found, hint=_AS_PARAMETER)

    def _is_ours(self, name: str) -> bool:
        """Whether a free name may stand for something of the library: unknown here, or really from there."""
        found, value = self.source.resolve(name)
        return not found or _home(value) in ("headwater", "math", "builtins", "numpy")

    def _attribute(self, node: ast.Attribute) -> Expr:
        span = self.source.span(node)
        names = dotted(node)
        if names and not self.names.bound(names[0], self.b):
            return self._free(node, names)
        if isinstance(node.value, ast.Name):
            name = node.value.id
            if name == self.names.event:
                return self.b.field(node.attr, span)
            if name in self.names.states:
                slot = self._state(node, name)
                return Missing(self._bad(node).type, span) if slot is None else self.b.var(slot, span)
        return self.b.attribute(self.expr(node.value), node.attr, span)

    def _state(self, node: ast.Attribute, name: str) -> int | None:
        """The slot of `state.n`, or None after noting a problem."""
        slots = self.names.states[name]
        if node.attr not in slots:
            hint = self.b.suggest(node.attr, slots, "it has")
            self.problem(node, f"{name} has no value {node.attr!r}", hint=hint)
            return None
        return slots[node.attr]

    def _bad(self, node: Any) -> Expr:
        """A bad operand for something that a problem has been noted for already."""
        noted = len(self.b.problems)
        bad = self.problem(node, "")
        del self.b.problems[noted:]
        return bad

    def _subscript(self, node: ast.Subscript) -> Expr:
        span = self.source.span(node)
        if isinstance(node.slice, ast.Tuple):
            return self.problem(node.slice, "one index at a time", hint="write x[i][j]")
        if isinstance(node.value, ast.Name) and node.value.id in self.b.params:
            return self.b.lookup(node.value.id, self.expr(node.slice), span)
        if isinstance(node.value, ast.Name) and node.value.id == self.names.event:
            return self._event_item(node)
        place = self.element(node)
        if place is not None:
            slot, indices = place
            return self.b.elem(slot, indices, span)
        return self.b.index(self.expr(node.value), self.index(node.slice), span)

    def _event_item(self, node: ast.Subscript) -> Expr:
        """`e["level"]`: the event is no dict."""
        event = self.names.event
        field = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(field, str) and field not in self.b.input.by_name:
            return self.b.field(field, self.source.span(node.slice))
        example = field if isinstance(field, str) else next(iter(self.b.input.by_name), "level")
        hint = f"write {event}.{example}"
        return self.problem(node, f"{event} is the event, not a dict or list", expected="a dot and a field",
                            found="an index", hint=hint)  # fmt: skip

    def element(self, node: ast.Subscript) -> tuple[int, list[Expr]] | None:
        """`state.window[i]` as a slot and its indices; None for anything else."""
        indices: list[Any] = []
        inner: Any = node
        while isinstance(inner, ast.Subscript):
            indices.append(inner.slice)
            inner = inner.value
        if not (isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name)):
            return None
        slots = self.names.states.get(inner.value.id, {})
        if inner.attr not in slots:
            return None
        return slots[inner.attr], [self.index(index) for index in reversed(indices)]

    def index(self, node: Any) -> Expr:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
                hint = "count from the start: x[len(x) - 1] is the last"
                return self.problem(node, "a negative index does not count from the end", hint=hint)
        return self.expr(node)

    # ── operators ──

    def _binary(self, node: ast.BinOp) -> Expr:
        a, b = self.expr(node.left), self.expr(node.right)
        return self.operate(node, node.op, a, b)

    def operate(self, node: Any, op: ast.operator, a: Expr, b: Expr) -> Expr:
        span = self.source.span(node)
        if isinstance(op, ast.Pow):
            return self.b.call("pow", [a, b], span)
        if type(op) not in _BINARY:
            return self.problem(node, "@ is not possible here")
        return self.b.binary(_BINARY[type(op)], a, b, span)

    def _unary(self, node: ast.UnaryOp) -> Expr:
        a, span = self.expr(node.operand), self.source.span(node)
        match node.op:
            case ast.Not():
                return self.b.unary("not", a, span)
            case ast.Invert():
                return self.b.unary("bitnot", a, span)
            case ast.USub():
                return self.b.unary("neg", a, span)
        negated = self.b.unary("neg", a, span)  # + takes what - takes
        return negated if is_bad(negated) else a

    def _conditional(self, node: ast.IfExp) -> Expr:
        test = self.expr(node.test)
        then = None if is_none(node.body) else self.expr(node.body)
        other = None if is_none(node.orelse) else self.expr(node.orelse)
        known = then or other
        if known is None:
            return self.problem(node, "both results are None")
        span = self.source.span(node)
        return self.b.cond(test, then or Missing(known.type, span), other or Missing(known.type, span), span)

    def _compare(self, node: ast.Compare) -> Expr:
        """Chains are conjunctions; what stands in the middle has no side effects, so it may stand twice."""
        operands = [node.left, *node.comparators]
        built: dict[int, Expr] = {}

        def operand(at: int) -> Expr:
            if at not in built:
                built[at] = self.expr(operands[at])
            return built[at]

        parts = []
        for at, op in enumerate(node.ops):
            span = Span(self.source.span(operands[at]).start, self.source.span(operands[at + 1]).end)
            if isinstance(op, ast.Is | ast.IsNot):
                if not is_none(operands[at + 1]):
                    parts.append(self.problem(operands[at + 1], "is compares with None only", hint="use =="))
                    continue
                part = self.b.is_missing(operand(at), span)
                parts.append(self.b.unary("not", part, span) if isinstance(op, ast.IsNot) else part)
            elif isinstance(op, ast.In | ast.NotIn):
                part = self._membership(operand(at), operands[at + 1], span)
                parts.append(self.b.unary("not", part, span) if isinstance(op, ast.NotIn) else part)
            elif (is_none(operands[at]) or is_none(operands[at + 1])) and isinstance(op, ast.Eq | ast.NotEq):
                parts.append(self._compared_with_none(operands[at], operands[at + 1], op))
            else:
                parts.append(self.b.compare(_COMPARE[type(op)], operand(at), operand(at + 1), span))
        return parts[0] if len(parts) == 1 else self.b.logic("and", parts, self.source.span(node))

    def _compared_with_none(self, a: Any, b: Any, op: ast.cmpop) -> Expr:
        sign = "is None" if isinstance(op, ast.Eq) else "is not None"
        none, other = (b, self.expr(a)) if is_none(b) else (a, self.expr(b))
        if is_bad(other):
            return other
        hint = f"test for a missing value with {self.b.text[other.span.start : other.span.end][:40]} {sign}"
        return self.problem(none, "None is not a value that is compared", expected=sign, found="None", hint=hint)

    def _membership(self, a: Expr, node: Any, span: Span) -> Expr:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return self.b.in_set(a, [self.expr(item) for item in node.elts], span)
        decl = self.b.params.get(node.id) if isinstance(node, ast.Name) else None
        if decl is not None and decl.kind != "scalar":
            return self.b.in_param(a, decl.name, span)
        names = dotted(node)
        if names and not self.names.bound(names[0], self.b):
            found, values = captured(names, self.source)
            if found and isinstance(values, tuple | list | set | frozenset | dict):
                written = ".".join(names)
                return self.b.in_set(a, [self._captured(node, written, value) for value in _ordered(values)], span)
        whole = self.expr(node)
        if is_bad(whole):
            return whole
        if whole.type == TEXT:
            return self.b.call("contains", [whole, a], span)
        hint = "use a for loop" if isinstance(whole.type, Array | List) else None
        expected = "constants, a set or map parameter, or text"
        return self.problem(node, "in takes a collection", expected=expected, found=str(whole.type), hint=hint)

    # ── calls ──

    def _call(self, node: ast.Call) -> Expr:
        names = dotted(node.func)
        if names == ["datetime"] or names[-2:] == ["datetime", "datetime"]:
            return self._moment(node)
        if names and not self.names.bound(names[0], self.b):
            return self._function(node, names)
        if isinstance(node.func, ast.Attribute):
            return self._arguments(node) or self._method(node, node.func)
        return self.problem(node.func, "this cannot be called", expected="a function of the library")

    def _arguments(self, node: ast.Call) -> Expr | None:
        """A problem if any argument is given by name or with a star."""
        for extra in (*node.keywords, *(arg for arg in node.args if isinstance(arg, ast.Starred))):
            return self.problem(extra, "arguments are given by position here")
        return None

    def _moment(self, node: ast.Call) -> Expr:
        try:
            return self.b.const(moment(node, self.source), self.source.span(node))
        except NotConstant as error:
            return self.problem(error.node, str(error), hint=error.hint)

    def _method(self, node: ast.Call, func: ast.Attribute) -> Expr:
        span = self.source.span(node)
        if func.attr == "get" and isinstance(func.value, ast.Name) and func.value.id in self.b.params:
            args = [self.expr(arg) for arg in node.args]
            if len(args) not in (1, 2):
                return self.problem(node, "arguments of get()", expected="1 or 2", found=str(len(args)))
            value = self.b.lookup(func.value.id, args[0], span)
            return self.b.call("coalesce", [value, args[1]], span) if len(args) == 2 else value
        if func.attr not in _METHODS:
            hint = self.b.suggest(func.attr, _METHODS, "there are")
            return self.problem(func, f"no method {func.attr!r}", hint=hint)
        base = self.expr(func.value)
        if isinstance(base.type, Array | List | Record):
            return self.problem(func.value, f"{func.attr}() is of text", found=str(base.type))
        return self.b.call(_METHODS[func.attr], [base, *(self.expr(arg) for arg in node.args)], span)

    def _function(self, node: ast.Call, names: list[str]) -> Expr:
        """A call of a function of the library, by whatever name it was imported."""
        span, name = self.source.span(node), names[-1]
        if not self._is_ours(names[0]):
            hint = "write its expression in place, or use a function of the library"
            return self.problem(node.func, f"{'.'.join(names)} is a function of your own", hint=hint)
        if name not in _CALLABLE and name not in self.b.functions:
            known = [*FUNCTIONS, *REDUCTIONS, *_CASTS, *([self.b.output.name.split(".")[-1]] if self.b.output else [])]
            hint = _HINTS.get(name) or self.b.suggest(name, known, "there are") or ""
            for arg in node.args:
                self.expr(arg)
            return self.problem(node.func, f"no function {name!r}", hint=hint)
        wrong = self._arguments(node)
        if wrong is not None:
            return wrong
        if name == "dist" and len(node.args) == 2:
            return self._distance(node)
        args = [self.expr(arg) for arg in node.args]
        if name in _CASTS and len(args) == 1:
            return self.b.cast(args[0], _CASTS[name], span)
        if name == "len" and len(args) == 1 and args[0].type in (TEXT, BYTES):
            name = "length"
        return self.b.call(_RENAMED.get(name, name), args, span)

    def _distance(self, node: ast.Call) -> Expr:
        a, b = node.args
        if not (isinstance(a, ast.Tuple) and isinstance(b, ast.Tuple) and len(a.elts) == len(b.elts) in (2, 3)):
            return self.problem(node, "dist takes two points", expected="dist((x1, y1), (x2, y2))")
        return self.b.call("distance", [self.expr(x) for x in (*a.elts, *b.elts)], self.source.span(node))


def is_none(node: Any) -> bool:
    """Whether a node is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


def _home(value: Any) -> str:
    """The top package that a function, class, module or object comes from."""
    name = value.__name__ if type(value).__name__ == "module" else getattr(value, "__module__", None)
    return str(name if isinstance(name, str) else type(value).__module__).split(".")[0]


def _ordered(values: Any) -> list[Any]:
    """Sets have no order of their own; equal ones should give equal programs."""
    if isinstance(values, set | frozenset):
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))
    return list(values)


def has_variable_index(expr: Expr) -> bool:
    """Whether a load goes through an index that is not a constant."""
    return isinstance(expr, Load) and any(not isinstance(step, str | Const) for step in expr.path.steps)


def element_type(whole: Load) -> Type:
    """What a loop over an array or list yields."""
    assert isinstance(whole.stored, Array | List)
    return inside(whole.stored)
