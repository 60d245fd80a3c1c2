"""The whole grammar of an interest, on a screen. Nodes are immutable, typed, and know where they were written.

    Program = name, input Record, output Record?, params, variables, body
    Stmt    = Assign | AssignElem | SetOut | CopyOut | If | Loop | Break | Continue | Return
    Expr    = Const | Missing | Load | Var | Elem | Param | Meta | Unary | Binary | Compare | Logic
            | Cond | IsMissing | Cast | Call | InSet | Lookup | Reduce
    Path    = field names and index expressions, from the input or to the output

An expression's type is one of bool, i64, u64, f64, text, bytes, timestamp or an enumeration: what is stored
narrower is promoted when it is read (`types.model.promote`). Only `IsMissing` and `CopyOut` may look at a whole
array, list or record. Spans never take part in equality, so equal meaning compares equal.

This file knows nothing of notations, checking, or how anything is executed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headwater.types.model import BOOL, I64, TEXT, TIMESTAMP, Record, Type


class Span(NamedTuple):
    """Where something was written: character offsets into the interest's text."""

    start: int
    end: int


NOWHERE = Span(0, 0)
_span = field(default=NOWHERE, compare=False, repr=False)


# ── expressions ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: bool, int, float, str, bytes; timestamps are microseconds, enumerations are codes.

    Two constants are equal only if they are the same bits: 0.0 is not -0.0, and NaN is NaN.
    """

    value: bool | int | float | str | bytes
    type: Type
    span: Span = _span

    def _key(self) -> tuple[object, ...]:
        value = self.value.hex() if isinstance(self.value, float) else self.value
        return (value.__class__, value, self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Missing:
    """The value that is not there, with the type it would have had."""

    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from the event: a `str` names a field, an expression (i64 or u64) indexes one dimension."""

    steps: tuple[str | Expr, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Read from the input event. `stored` is the declared type there; `type` is that promoted."""

    path: Path
    stored: Type
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Var:
    """Read a scalar variable; `slot` indexes `Program.variables`."""

    slot: int
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Elem:
    """Read an element of an array variable, one index per dimension."""

    slot: int
    indices: tuple[Expr, ...]
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Param:
    """Read a scalar parameter."""

    name: str
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Meta:
    """What the service knows of the event."""

    name: Literal["source", "node", "seq", "time"]
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Unary:
    """`neg` (i64, f64), `bitnot` (i64, u64), `not` (bool)."""

    op: Literal["neg", "bitnot", "not"]
    a: Expr
    type: Type
    span: Span = _span


BinaryOp = Literal["add", "sub", "mul", "div", "tdiv", "tmod", "fdiv", "fmod", "and", "or", "xor", "shl", "shr"]


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic on two operands of one type: `div` f64 only (true division); `tdiv`/`tmod` truncate (C) and
    `fdiv`/`fmod` floor (Python) on i64 and u64; bit operators on i64 and u64.
    Timestamps: timestamp ± i64 -> timestamp, timestamp - timestamp -> i64, in microseconds.
    """

    op: BinaryOp
    a: Expr
    b: Expr
    type: Type
    span: Span = _span


CompareOp = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True, slots=True)
class Compare:
    """Both operands of one type, except that i64 and u64 compare by value."""

    op: CompareOp
    a: Expr
    b: Expr
    span: Span = _span

    @property
    def type(self) -> Type:
        return BOOL


@dataclass(frozen=True, slots=True)
class Logic:
    """Three-valued `and`/`or` over two or more operands, left to right, stopping when decided."""

    op: Literal["and", "or"]
    args: tuple[Expr, ...]
    span: Span = _span

    @property
    def type(self) -> Type:
        return BOOL


@dataclass(frozen=True, slots=True)
class Cond:
    """`then` if test is true, `other` if false, `neither` if missing. Only the chosen one is evaluated."""

    test: Expr
    then: Expr
    other: Expr
    neither: Expr
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class IsMissing:
    """Never missing itself. The operand may be a whole array, list or record."""

    a: Expr
    span: Span = _span

    @property
    def type(self) -> Type:
        return BOOL


@dataclass(frozen=True, slots=True)
class Cast:
    """To a stored type: bool -> number, number -> number (checked; floats truncate), number -> bool (not zero),
    i64 <-> timestamp in microseconds. `type` is `to` promoted; a cast to i8 is still an i64, in range or missing.
    """

    a: Expr
    to: Type
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the library (`ir/functions.py`)."""

    fn: str
    args: tuple[Expr, ...]
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class InSet:
    """Membership in constants (`values`) or in a set parameter, or map parameter's keys (`param`)."""

    a: Expr
    values: tuple[Const, ...] = ()
    param: str | None = None
    span: Span = _span

    @property
    def type(self) -> Type:
        return BOOL


@dataclass(frozen=True, slots=True)
class Lookup:
    """The value of a map parameter at a key; missing where there is none."""

    param: str
    key: Expr
    type: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Reduce:
    """Over an array or list of the input, all dimensions, in index order. `len` is the first dimension's."""

    op: Literal["len", "sum", "mean", "min", "max"]
    path: Path
    stored: Type
    type: Type
    span: Span = _span


Expr = (
    Const
    | Missing
    | Load
    | Var
    | Elem
    | Param
    | Meta
    | Unary
    | Binary
    | Compare
    | Logic
    | Cond
    | IsMissing
    | Cast
    | Call
    | InSet
    | Lookup
    | Reduce
)


# ── statements ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Assign:
    """To a scalar variable. The builder has already put a `Cast` where the variable is narrower."""

    slot: int
    value: Expr
    span: Span = _span


@dataclass(frozen=True, slots=True)
class AssignElem:
    """`variable[index]... = value`; a fault, and no change, if an index is out of range."""

    slot: int
    indices: tuple[Expr, ...]
    value: Expr
    span: Span = _span


@dataclass(frozen=True, slots=True)
class SetOut:
    """Set a scalar of the output event; `stored` is its declared type, the value is already cast to it."""

    path: Path
    value: Expr
    stored: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class CopyOut:
    """Copy a whole array, list or record of the input, of the same type, into the output."""

    path: Path
    source: Path
    stored: Type
    span: Span = _span


@dataclass(frozen=True, slots=True)
class If:
    """Neither branch is taken when the test is missing."""

    test: Expr
    then: Block
    other: Block
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Loop:
    """`for`/`while`: body then step, as long as the test is true; `continue` goes to the step.

    `bound` is a proven limit on iterations. Where it is None the loop draws on the program's fuel.
    """

    test: Expr
    body: Block
    step: Block
    bound: int | None = None
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the innermost loop."""

    span: Span = _span


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on with the step of the innermost loop."""

    span: Span = _span


@dataclass(frozen=True, slots=True)
class Return:
    """End with this verdict (bool): true passes, false rejects, missing leaves the event undecided."""

    value: Expr
    span: Span = _span


Stmt = Assign | AssignElem | SetOut | CopyOut | If | Loop | Break | Continue | Return
Block = tuple[Stmt, ...]


# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Variable:
    """A local or, with `state`, a value that lives on with the interest at one source.

    Locals start missing and have no `init`; state starts at `init`, which has one constant, or one per element in
    row order where there is a shape. State is never text or bytes.
    """

    name: str
    type: Type
    shape: tuple[int, ...] = ()
    state: bool = False
    init: tuple[Const, ...] = ()


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """`scalar` of `type`; `set` of `type`; `map` from `type` to `value`. Types are promoted ones."""

    name: str
    kind: Literal["scalar", "set", "map"]
    type: Type
    value: Type | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A checked interest. A filter has no output; a transformation has one."""

    input: Record
    output: Record | None
    params: tuple[ParamDecl, ...]
    variables: tuple[Variable, ...]
    body: Block
    notation: str = field(default="", compare=False)
    text: str = field(default="", compare=False, repr=False)

    @property
    def stateful(self) -> bool:
        return any(variable.state for variable in self.variables)


META_TYPES: dict[str, Type] = {"source": TEXT, "node": TEXT, "seq": I64, "time": TIMESTAMP}
