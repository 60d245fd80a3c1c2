"""What the generator knows of a program before it writes code: what may fault, what is cheap, what is never missing."""

from __future__ import annotations

from typing import Any

from headwater.ir.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Elem,
    Expr,
    InSet,
    Load,
    Lookup,
    Meta,
    Missing,
    Reduce,
    Unary,
)
from headwater.ir.walk import all_expressions, children, indices
from headwater.native.emit import is_text
from headwater.types.model import BOOL, F32, F64, I64, TIMESTAMP, Array, Enum, List, Type

CHEAP = 24  # operations that cost less than a branch that may be mispredicted

_FAULTING_CALLS = frozenset(("abs", "fmod", "seconds", "minutes", "hours", "days"))
_CALL_COSTS = {"pow": 60, "exp": 60, "log": 60, "sin": 60, "cos": 60, "fmod": 60, "year": 30, "month": 30, "day": 30}
_TEXT_COST = 60


def _is_short(expr: Expr) -> bool:
    return isinstance(expr, Const) and isinstance(expr.value, str | bytes) and len(expr.value) <= 16


class Facts:
    """Answers about expressions; `analysis` may be None, then nothing is promised that the tree does not show.

    `wild`: references of the input may point outside it (a record), so text and lists may fault when read.
    """

    def __init__(self, analysis: Any, *, wild: bool) -> None:
        self.analysis, self.wild = analysis, wild
        self._faults: dict[int, bool] = {}
        self._costs: dict[int, int] = {}
        self._wild: dict[int, bool] = {}
        self._firm: bool | None = None

    @property
    def firm(self) -> bool:
        """Whether what the analysis proved holds for any bytes.

        It takes the input to be well-formed. Where a program reads what may not be, no proof saves a check that keeps
        code inside its memory or its loops from running on.
        """
        if self._firm is None:
            program = None if self.analysis is None else self.analysis.program
            self._firm = program is not None and not any(map(self._unsure, all_expressions(program.body)))
        return self._firm

    def _unsure(self, expr: Expr) -> bool:
        """Whether it may read what no well-formed input has: a timestamp out of range; in a record also the code of no
        member, and a reference that points outside."""
        match expr:
            case Load(stored=stored) | Reduce(stored=stored):
                element: Type = stored.element if isinstance(stored, Array | List) else stored
                if element == TIMESTAMP:
                    return True
                return self.wild and (isinstance(element, Enum) or self._reads_reference(expr))
            case Meta(type=type):
                return type == TIMESTAMP
            case _:
                return False

    def miss(self, expr: Expr) -> bool:
        """Whether the value may be missing."""
        if self.analysis is None or (self.wild and self._follows(expr)):
            return True
        return bool(self.analysis.fact(expr).miss)

    def _follows(self, expr: Expr) -> bool:
        """Whether a reference is followed below: it may turn out malformed, of which the analysis knows nothing."""
        known = self._wild.get(id(expr))
        if known is None:
            known = self._wild[id(expr)] = self._reads_reference(expr) or any(map(self._follows, children(expr)))
        return known

    def fault(self, expr: Expr) -> bool:
        """Whether this operation itself may overflow, divide by zero or index out of range."""
        if not self._can_fault(expr):
            return False
        return True if self.analysis is None else bool(self.analysis.fact(expr).fault)

    def _can_fault(self, expr: Expr) -> bool:
        """Whether an expression of this form can fault at all, whatever its parts are."""
        match expr:
            case Load(path=path):
                return bool(indices(path))
            case Elem():
                return True
            case Unary(op=op, type=type):
                return op == "neg" and type != F64
            case Binary(op=op, b=b, type=type):
                if op in ("div", "tdiv", "tmod", "fdiv", "fmod"):
                    return not (isinstance(b, Const) and b.value not in (0, -1)) and not (
                        type == F64 and isinstance(b, Const) and b.value != 0
                    )
                return type != F64 and op in ("add", "sub", "mul", "shl", "shr")
            case Cast(a=a, to=to):
                return to not in (BOOL, F64, F32) and not (to == I64 and a.type in (BOOL, I64))
            case Reduce(op=op, path=path, type=type):
                return bool(indices(path)) or (op == "sum" and type != F64)
            case Call(fn=fn, type=type):
                return fn in _FAULTING_CALLS and not (fn == "abs" and type == F64)
            case _:
                return False

    def may_fault(self, expr: Expr) -> bool:
        """Whether evaluating the expression, parts included, may raise any fault."""
        key = id(expr)
        known = self._faults.get(key)
        if known is None:
            known = self.fault(expr) or (self.wild and self._reads_reference(expr))
            known = known or any(map(self.may_fault, children(expr)))
            self._faults[key] = known
        return known

    @staticmethod
    def _reads_reference(expr: Expr) -> bool:
        match expr:
            case Load(path=path, stored=stored):
                return is_text(stored) or bool(indices(path))
            case Reduce(path=path, stored=stored):
                return isinstance(stored, List) or bool(indices(path))
            case _:
                return False

    def cost(self, expr: Expr) -> int:
        """A rough number of instructions."""
        key = id(expr)
        known = self._costs.get(key)
        if known is None:
            known = self._own_cost(expr) + sum(map(self.cost, children(expr)))
            self._costs[key] = known
        return known

    @staticmethod
    def _own_cost(expr: Expr) -> int:
        """About how many instructions an expression takes beside its parts: the cheaper side of a conjunction goes
        first."""
        match expr:
            case Const() | Missing():
                return 0
            case Reduce(op=op):
                return 1 if op == "len" else 1000
            case Compare(op="eq" | "ne", a=a, b=b) if is_text(a.type) and (_is_short(a) or _is_short(b)):
                return 8
            case Call(fn="starts_with", args=(_, b)) if _is_short(b):
                return 8
            case Compare(a=a) if is_text(a.type):
                return _TEXT_COST
            case Call(fn=fn, args=args):
                return _TEXT_COST if args and is_text(args[0].type) else _CALL_COSTS.get(fn, 4)
            case InSet() | Lookup():
                return _TEXT_COST
            case Binary(op=op) if op in ("tdiv", "tmod", "fdiv", "fmod"):
                return 20
            case Elem() | Load():
                return 2
            case _:
                return 1

    def speculable(self, expr: Expr) -> bool:
        """Whether evaluating it where the meaning does not ask for it shows nowhere and costs little."""
        return not self.may_fault(expr) and self.cost(expr) <= CHEAP
