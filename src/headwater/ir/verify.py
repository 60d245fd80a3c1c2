"""The typing rules, checked strictly: whatever a program came from, afterwards it is one the builder could have made.

`verify` is for programs from the wire and for testing rewrites. It raises SerialError at the first thing wrong. An
execution may rely on everything here: types of operands, slots, paths, indices per dimension, what may stand in a
step, and that a value fits the narrower place it is stored in (`fits`).
"""

from __future__ import annotations

import math
from typing import Any

from headwater.errors import SerialError, TypeDeclarationError
from headwater.ir import walk
from headwater.ir.build import MAX_ELEMENTS, MAX_VARIABLES, inside
from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.library import round_f32
from headwater.ir.nodes import (
    META_TYPES,
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
from headwater.ir.notes import MAX_LEVELS, MAX_NODES
from headwater.types.layout import Layout
from headwater.types.model import (
    BOOL,
    BYTES,
    F64,
    I64,
    TEXT,
    TIMESTAMP,
    U64,
    Array,
    Enum,
    List,
    Record,
    Scalar,
    Type,
    promote,
)

MAX_NESTING = 64
MAX_NAME = 200
_NUMBERS = (I64, U64, F64)
_FLOAT_OPS = ("add", "sub", "mul", "div")
_INTEGER_OPS = ("add", "sub", "mul", "tdiv", "tmod", "fdiv", "fmod", "and", "or", "xor", "shl", "shr")
_COMPARE_OPS = ("eq", "ne", "lt", "le", "gt", "ge")


def verify(program: Program) -> None:
    """Raise SerialError unless the builder could have made this program."""
    _Verifier(program).program_()


def fits(expr: Expr, stored: Type, variables: tuple[Variable, ...]) -> bool:
    """Whether a value is certain to fit a stored type by its looks: it was cast, read or written as one."""
    if promote(stored) == stored or isinstance(expr, Missing):
        return True
    match expr:
        case Const(value=value):
            return constant_fits(value, stored)
        case Cast(to=to):
            return _narrower(to, stored)
        case Load(stored=source):
            return _narrower(source, stored)
        case Var(slot=slot) | Elem(slot=slot):
            return _narrower(variables[slot].type, stored)
        case Cond(then=then, other=other, neither=neither):
            return all(fits(part, stored, variables) for part in (then, other, neither))
        case Call(fn="coalesce" | "min" | "max", args=args):
            return all(fits(arg, stored, variables) for arg in args)
        case _:
            return False


def _narrower(type: Type, stored: Type) -> bool:
    if type == stored:
        return True
    if isinstance(type, Scalar) and isinstance(stored, Scalar) and type.is_integer and stored.is_integer:
        (lo, hi), (least, greatest) = type.range, stored.range
        return least <= lo and hi <= greatest
    return False


def constant_fits(value: Any, stored: Type) -> bool:
    """Whether a raw constant is of a stored type, exactly."""
    match stored:
        case Enum(members=members):
            return value.__class__ is int and any(code == value for _, code in members)
        case Scalar(name="bool"):
            return value.__class__ is bool
        case Scalar(name="text"):
            return value.__class__ is str and not any("\ud800" <= c <= "\udfff" for c in value)
        case Scalar(name="bytes"):
            return value.__class__ is bytes
        case Scalar(name="f32" | "f64"):
            return value.__class__ is float and (stored == F64 or value != value or round_f32(value) == value)
        case Scalar():
            return value.__class__ is int and stored.range[0] <= value <= stored.range[1]
        case _:
            return False


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise SerialError(f"not a program: {message}")


def _is_scalar(type: Type) -> bool:
    return isinstance(type, Scalar | Enum)


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.p = program
        self.params = {param.name: param for param in program.params}
        self.nodes = 0

    def program_(self) -> None:
        p = self.p
        for record in (p.input, p.output):
            try:
                if record is not None:
                    Layout.of(record)
            except TypeDeclarationError as wrong:
                raise SerialError(f"not a program: {wrong}") from None
        _check(len(self.params) == len(p.params), "a parameter is declared twice")
        for param in p.params:
            self.param(param)
        _check(len(p.variables) <= MAX_VARIABLES, f"more than {MAX_VARIABLES} variables")
        total = sum(math.prod(variable.shape) for variable in p.variables)
        _check(total <= MAX_ELEMENTS, f"more than {MAX_ELEMENTS} elements in variables")
        for variable in p.variables:
            self.variable(variable)
        self.block(p.body, 0, loop=False, step=False)

    def name(self, name: object) -> None:
        _check(isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable(), f"the name {name!r:.80}")

    def param(self, param: ParamDecl) -> None:
        self.name(param.name)
        _check(param.kind in ("scalar", "set", "map"), f"a parameter of kind {param.kind!r:.40}")
        _check((param.value is not None) == (param.kind == "map"), "only maps have a value type")
        for type in (param.type, param.value):
            _check(type is None or (_is_scalar(type) and promote(type) == type), f"a parameter of type {type}")

    def variable(self, v: Variable) -> None:
        self.name(v.name)
        _check(_is_scalar(v.type), f"a variable of type {v.type}")
        _check(all(n.__class__ is int and n > 0 for n in v.shape), "a variable's shape")
        if v.state:
            _check(v.type not in (TEXT, BYTES), "state of text or bytes")
            _check(len(v.init) == math.prod(v.shape), "initial values for state")
            promoted = promote(v.type)
            for const in v.init:
                if (const.type is not promoted and const.type != promoted) or not constant_fits(const.value, v.type):
                    _check(False, "an initial value's type")
        else:
            _check(not v.init, "initial values for a local variable")

    # ── statements ──

    def block(self, block: Block, nesting: int, *, loop: bool, step: bool) -> None:
        _check(nesting <= MAX_NESTING, f"statements nest deeper than {MAX_NESTING}")
        for stmt in block:
            self.count()
            self.stmt(stmt, nesting + 1, loop=loop, step=step)

    def stmt(self, stmt: Stmt, nesting: int, *, loop: bool, step: bool) -> None:
        """Check a statement: its parts, its types, and that it may stand there."""
        match stmt:
            case Assign(slot=slot, value=value):
                self.store(self.slot(slot, array=False).type, value)
            case AssignElem(slot=slot, indices=indices, value=value):
                self.store(self.slot(slot, array=True).type, value)
                self.offset(slot, indices, 0)
            case SetOut(path=path, value=value, stored=stored):
                _check(self.target(path) == stored, "the type of an output field")
                if isinstance(stored, Array | List | Record):
                    _check(value == Missing(stored), "a whole array, list or record is copied")
                else:
                    self.store(stored, value)
            case CopyOut(path=path, source=source, stored=stored):
                _check(self.target(path) == stored == self.path(source, 0), "both sides of a copy are of one type")
                _check(isinstance(stored, Array | List | Record), "only arrays, lists and records are copied")
            case If(test=test, then=then, other=other):
                _check(self.expr(test, 0) == BOOL, "a test is bool")
                self.block(then, nesting, loop=loop, step=step)
                self.block(other, nesting, loop=loop, step=step)
            case Loop(test=test, body=body, step=steps, bound=bound):
                _check(not step, "a loop in the step of a loop")
                _check(bound is None or (bound.__class__ is int and bound >= 0), "a loop's bound")
                _check(self.expr(test, 0) == BOOL, "a test is bool")
                self.block(body, nesting, loop=True, step=False)
                self.block(steps, nesting, loop=False, step=True)
            case Break() | Continue():
                _check(loop, "break or continue outside a loop")
            case Return(value=value):
                _check(not step, "a return in the step of a loop")
                _check(self.expr(value, 0) == BOOL, "a verdict is bool")
            case _:
                _check(False, f"a statement {stmt!r:.80}")

    def slot(self, slot: int, *, array: bool) -> Variable:
        _check(slot.__class__ is int and 0 <= slot < len(self.p.variables), f"there is no variable {slot!r:.20}")
        variable = self.p.variables[slot]
        _check(bool(variable.shape) == array, "an index for each dimension")
        return variable

    def store(self, stored: Type, value: Expr) -> None:
        _check(self.expr(value, 0) == promote(stored), f"a value of type {promote(stored)}")
        _check(fits(value, stored, self.p.variables), f"a value cast to {stored}")

    def target(self, path: Path) -> Type:
        _check(self.p.output is not None, "a filter has no output")
        assert self.p.output is not None
        here: Type = self.p.output
        _check(bool(path.steps), "an empty path")
        for step in path.steps:
            if isinstance(step, str):
                _check(isinstance(here, Record) and step in here.by_name, f"the output has no field {step!r:.80}")
                assert isinstance(here, Record)
                here = here.by_name[step].type
            else:
                _check(isinstance(here, Array) and isinstance(here.element, Scalar), "this output cannot be indexed")
                assert isinstance(here, Array)
                _check(here.element not in (TEXT, BYTES), "this output cannot be indexed")
                _check(self.expr(step, 0) in (I64, U64), "an index is an integer")
                here = inside(here)
        return here

    # ── expressions: each returns the type it found ──

    def count(self) -> None:
        self.nodes += 1
        _check(self.nodes <= MAX_NODES, f"more than {MAX_NODES} parts")

    def path(self, path: Path, depth: int) -> Type:
        here: Type = self.p.input
        _check(bool(path.steps), "an empty path")
        for step in path.steps:
            if isinstance(step, str):
                _check(isinstance(here, Record) and step in here.by_name, f"the input has no field {step!r:.80}")
                assert isinstance(here, Record)
                here = here.by_name[step].type
            else:
                _check(isinstance(here, Array | List), "this input cannot be indexed")
                assert isinstance(here, Array | List)
                _check(self.expr(step, depth) in (I64, U64), "an index is an integer")
                here = inside(here)
        return here

    def offset(self, slot: int, indices: tuple[Expr, ...], depth: int) -> None:
        _check(len(indices) == len(self.p.variables[slot].shape), "an index for each dimension")
        for index in indices:
            _check(self.expr(index, depth) in (I64, U64), "an index is an integer")

    def declared(self, name: str | None, *kinds: str) -> ParamDecl:
        param = self.params.get(name) if isinstance(name, str) else None
        _check(param is not None and param.kind in kinds, f"there is no {' or '.join(kinds)} parameter {name!r:.80}")
        assert param is not None
        return param

    def expr(self, expr: Expr, depth: int) -> Type:
        """Its type, after checking it and everything below."""
        self.count()
        depth += 1
        _check(depth <= MAX_LEVELS, f"expressions nest deeper than {MAX_LEVELS}")
        found = self.typed(expr, depth)
        _check(expr.type == found, f"{expr.__class__.__name__} should have type {found}")
        _check(_is_scalar(found) and promote(found) == found, f"an expression of type {found}")
        return found

    def typed(self, expr: Expr, depth: int) -> Type:
        """The type of an expression, of which every part is checked. Builders make nothing else; a program that came
        from elsewhere may say anything."""
        match expr:
            case Const(value=value, type=type):
                _check(_is_scalar(type) and constant_fits(value, type), f"a constant of type {type}")
                return type
            case Missing(type=type):
                return type
            case Load(path=path, stored=stored):
                _check(self.path(path, depth) == stored, "the stored type of a field")
                return promote(stored)
            case Var(slot=slot):
                return promote(self.slot(slot, array=False).type)
            case Elem(slot=slot, indices=indices):
                variable = self.slot(slot, array=True)
                self.offset(slot, indices, depth)
                return promote(variable.type)
            case Param(name=name):
                return self.declared(name, "scalar").type
            case Meta(name=name):
                _check(name in META_TYPES, f"there is no meta.{name!r:.80}")
                return META_TYPES[name]
            case Unary(op=op, a=a):
                type = self.expr(a, depth)
                takes = {"neg": (I64, F64), "bitnot": (I64, U64), "not": (BOOL,)}.get(op, ())
                _check(type in takes, f"{op} of {type}")
                return type
            case Binary():
                return self.binary(expr, self.expr(expr.a, depth), self.expr(expr.b, depth))
            case Compare(op=op, a=a, b=b):
                x, y = self.expr(a, depth), self.expr(b, depth)
                _check(op in _COMPARE_OPS and (x == y or (x in (I64, U64) and y in (I64, U64))), f"{op} of {x} and {y}")
                _check(op in ("eq", "ne") or x in (*_NUMBERS, TEXT, BYTES, TIMESTAMP), f"{op} of {x}")
                return BOOL
            case Logic(op=op, args=args):
                _check(op in ("and", "or") and len(args) > 1, "and/or of two or more")
                _check(all(self.expr(arg, depth) == BOOL for arg in args), f"{op} of bool")
                return BOOL
            case Cond(test=test, then=then, other=other, neither=neither):
                _check(self.expr(test, depth) == BOOL, "a test is bool")
                types = {self.expr(part, depth) for part in (then, other, neither)}
                _check(len(types) == 1, "all results of a conditional are of one type")
                return types.pop()
            case IsMissing(a=a):
                if isinstance(a, Load) and isinstance(a.stored, Array | List | Record):
                    self.count()
                    _check(self.path(a.path, depth) == a.stored == a.type, "the stored type of a field")
                else:
                    self.expr(a, depth)
                return BOOL
            case Cast():
                return self.cast(expr, self.expr(expr.a, depth))
            case Call():
                return self.call(expr, [self.expr(arg, depth) for arg in expr.args])
            case InSet(a=a, values=values, param=name):
                type = self.expr(a, depth)
                if name is not None:
                    _check(not values and self.declared(name, "set", "map").type == type, "a member's type")
                else:
                    _check(bool(values) and all(self.expr(v, depth) == type for v in values), "a member's type")
                    _check(all(isinstance(v, Const) for v in values), "members are constants")
                return BOOL
            case Lookup(param=name, key=key):
                param = self.declared(name, "map")
                _check(self.expr(key, depth) == param.type, "a key's type")
                assert param.value is not None
                return param.value
            case Reduce():
                return self.reduce(expr, depth)
        raise SerialError(f"not a program: an expression {expr!r:.80}")

    def binary(self, expr: Binary, a: Type, b: Type) -> Type:
        if a == TIMESTAMP:
            _check(
                (expr.op in ("add", "sub") and b == I64) or (expr.op == "sub" and b == TIMESTAMP), "arithmetic of time"
            )
            return I64 if b == TIMESTAMP else TIMESTAMP
        _check(a == b and a in _NUMBERS, f"{expr.op} of {a} and {b}")
        _check(expr.op in (_FLOAT_OPS if a == F64 else _INTEGER_OPS), f"{expr.op!r:.40} of {a}")
        return a

    def cast(self, expr: Cast, a: Type) -> Type:
        to = expr.to
        _check(isinstance(to, Scalar) and to not in (TEXT, BYTES) and a != to, f"a cast from {a} to {to}")
        number = a in _NUMBERS or a == BOOL
        allowed = a == I64 if to == TIMESTAMP else number or (to == I64 and a == TIMESTAMP)
        _check(allowed, f"a cast from {a} to {to}")
        return promote(to)

    def call(self, expr: Call, types: list[Type]) -> Type:
        function = FUNCTIONS.get(expr.fn) if isinstance(expr.fn, str) else None
        _check(function is not None and function.accepts(len(types)), f"a call of {expr.fn!r:.40}")
        assert function is not None
        letters = function.params.rstrip("*")
        letters += letters[-1] * (len(types) - len(letters))
        for letter, type in zip(letters, types, strict=True):
            allowed = {
                "n": type in _NUMBERS and type == types[0],
                "f": type == F64,
                "t": type == TEXT,
                "b": type in (TEXT, BYTES),
                "T": type == TIMESTAMP,
                "e": isinstance(type, Enum),
                "a": type == types[0],
            }
            _check(allowed[letter], f"an argument of {expr.fn}()")
        _check(expr.fn != "like" or isinstance(expr.args[1], Const), "the pattern of like is a constant")
        return types[0] if function.result == "same" else Scalar(function.result)

    def reduce(self, expr: Reduce, depth: int) -> Type:
        stored = self.path(expr.path, depth)
        _check(stored == expr.stored and isinstance(stored, Array | List), "a reduction takes an array or list")
        assert isinstance(stored, Array | List)
        element = promote(stored.element)
        _check(expr.op in REDUCTIONS and (expr.op == "len" or element in _NUMBERS), f"{expr.op!r:.40} of {stored}")
        return I64 if expr.op == "len" else F64 if expr.op == "mean" else element


def size(program: Program) -> int:
    """Number of nodes."""
    return sum(1 for _ in walk.statements(program.body)) + sum(1 for _ in walk.all_expressions(program.body))
