"""Programs without loops and state as expressions, by symbolic execution.

`as_expression` gives the verdict of a filter, `as_outputs` the verdict and every output field of a transformation. An
`if` becomes a conditional, its missing test included; a return inside a branch leaves the rest to the other ways.
Values and missingness are kept exactly. Faults are not: what a variable was assigned is evaluated where it is used,
or not at all. Who needs the faults too asks `keeps_faults` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.ir import walk
from headwater.ir.nodes import (
    Assign,
    Block,
    Call,
    Cond,
    Const,
    CopyOut,
    Expr,
    If,
    IsMissing,
    Load,
    Logic,
    Loop,
    Missing,
    Path,
    Program,
    Return,
    SetOut,
    Stmt,
    Unary,
    Var,
)
from headwater.types.model import BOOL, Array, Record, Scalar, Type, promote

MAX_SIZE = 5_000
MAX_DEEP = 100
MAX_STEPS = 20_000  # statements executed, over all ways

Leaf = tuple[str, ...]
TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)


class _GivenUp(Exception):
    """The program cannot be said as expressions, or only as too large ones."""


def as_expression(program: Program) -> Expr | None:
    """The verdict of a filter as one expression; None where that cannot be said, or not within 5,000 nodes."""
    if program.output is not None or not _simple(program):
        return None
    body = program.body
    if len(body) == 1 and isinstance(body[0], Return) and not program.variables:
        return body[0].value
    try:
        return _Symbolic(program).run().verdict
    except _GivenUp:
        return None


def as_outputs(program: Program) -> tuple[Expr, dict[Leaf, Expr]] | None:
    """The verdict of a transformation and its output, field by field; None where that cannot be said.

    A field is named by its path. A nested record is given by its fields, or as a whole where it is copied (then the
    expression is a Load of a record, as it is for arrays and lists; these may also stand in a Cond). The verdict is
    missing, too, where it would be true and a required field has no value.
    """
    if program.output is None or not _simple(program):
        return None
    try:
        end = _Symbolic(program).run()
        return _complete(program.output, end)
    except _GivenUp:
        return None


def keeps_faults(program: Program, may_fault: Callable[[Expr], bool]) -> bool:
    """Whether `as_expression` evaluates whatever may fault exactly when the program does.

    That is so if nothing that is assigned may fault, nor the test of an `if` that assigns or does not return: of such
    an `if` nothing may be left.
    """
    for stmt in walk.statements(program.body):
        match stmt:
            case Assign(value=value) if may_fault(value):
                return False
            case If(test=test, then=then, other=other) if may_fault(test):
                if not _returns(stmt) or walk.assigned(then) | walk.assigned(other):
                    return False
            case _:
                pass
    return True


def _simple(program: Program) -> bool:
    return not any(v.state or v.shape for v in program.variables) and not any(
        isinstance(stmt, Loop) for stmt in walk.statements(program.body)
    )


@dataclass(slots=True)
class _State:
    """Variables and outputs at one point; `verdict` once the program has returned on this way."""

    vars: dict[int, Expr]
    outs: dict[Leaf, Expr]
    verdict: Expr = field(default=FALSE)


class _Symbolic:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.sizes: dict[int, tuple[Expr, int, int]] = {}
        self.steps = self.forks = 0

    def run(self) -> _State:
        variables: dict[int, Expr] = {slot: Missing(promote(v.type)) for slot, v in enumerate(self.program.variables)}
        return self.block(self.program.body, _State(variables, {}))

    def block(self, block: Block, state: _State) -> _State:
        """To the end of the program, of which this block is all that is left."""
        for at, stmt in enumerate(block):
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise _GivenUp
            match stmt:
                case Return(value=value):
                    state.verdict = self.value(value, state)
                    return state
                case If() if _returns(stmt):
                    rest = block[at + 1 :]
                    return self.fork(stmt, rest, state)
                case If(test=test, then=then, other=other):
                    given = self.value(test, state)
                    yes = self.block(then, _State(state.vars.copy(), state.outs.copy()))
                    no = self.block(other, _State(state.vars.copy(), state.outs.copy()))
                    state = self.merge(given, yes, no, state)
                case Assign(slot=slot, value=value):
                    state.vars[slot] = self.value(value, state)
                case SetOut(path=path, value=value):
                    state.outs[self.leaf(path)] = self.value(value, state)
                case CopyOut(path=path, source=source, stored=stored):
                    where = walk.map_path(source, lambda index: self.value(index, state))  # noqa: B023
                    state.outs[self.leaf(path)] = self.sized(Load(where, stored, stored))
                case _:
                    raise _GivenUp
        return state

    def fork(self, stmt: If, rest: Block, state: _State) -> _State:
        """Every way goes to the end by itself; ways that are the same go once."""
        self.forks += 1
        if self.forks > MAX_DEEP:
            raise _GivenUp
        test = self.value(stmt.test, state)
        yes = self.block((*stmt.then, *rest), _State(state.vars.copy(), state.outs.copy()))
        no = self.block((*stmt.other, *rest), _State(state.vars.copy(), state.outs.copy()))
        neither = no if not stmt.other else yes if not stmt.then else None
        if neither is None:
            neither = self.block(rest, _State(state.vars.copy(), state.outs.copy()))
        end = self.merge(test, yes, no, neither)
        end.verdict = self.conditional(test, yes.verdict, no.verdict, neither.verdict)
        self.forks -= 1
        return end

    def merge(self, test: Expr, yes: _State, no: _State, neither: _State) -> _State:
        vars = {slot: self.choose(test, yes.vars[slot], no.vars[slot], old) for slot, old in neither.vars.items()}
        outs = {}
        for leaf in {**yes.outs, **no.outs, **neither.outs}:
            ways = [way.outs.get(leaf) or self.unset(leaf) for way in (yes, no, neither)]
            outs[leaf] = self.choose(test, *ways)
        return _State(vars, outs)

    def choose(self, test: Expr, yes: Expr, no: Expr, neither: Expr) -> Expr:
        """What a variable or output is after an `if`."""
        return yes if yes is no is neither else self.conditional(test, yes, no, neither)

    def conditional(self, test: Expr, yes: Expr, no: Expr, neither: Expr) -> Expr:
        """Without saying anything twice: `coalesce` sends a missing test where it belongs.

        It stays even where all ways are the same, because the test may fault.
        """
        if neither is no:
            test, neither = self.sized(Call("coalesce", (test, FALSE), BOOL)), Missing(no.type)
        elif neither is yes:
            test, neither = self.sized(Call("coalesce", (test, TRUE), BOOL)), Missing(yes.type)
        return self.sized(Cond(test, yes, no, neither, yes.type))

    def value(self, expr: Expr, state: _State) -> Expr:
        """With variables replaced by what they were assigned."""
        return self.sized(walk.rebuild(expr, lambda e: state.vars[e.slot] if isinstance(e, Var) else e))

    def sized(self, expr: Expr) -> Expr:
        size, deep = self.measure(expr)
        if size > MAX_SIZE or deep > MAX_DEEP:
            raise _GivenUp
        return expr

    def measure(self, expr: Expr) -> tuple[int, int]:
        found = self.sizes.get(id(expr))
        if found is None:
            inner = [self.measure(child) for child in walk.children(expr)]
            size, deep = 1 + sum(size for size, _ in inner), 1 + max((deep for _, deep in inner), default=0)
            found = self.sizes[id(expr)] = (expr, size, deep)
        return found[1], found[2]

    # ── outputs ──

    def leaf(self, path: Path) -> Leaf:
        """The output field that is set."""
        names = tuple(step for step in path.steps if isinstance(step, str))
        here: Type = self.program.output or Record("", ())
        for at, name in enumerate(names):
            assert isinstance(here, Record)
            inner = here.by_name[name]
            if inner.optional and at + 1 < len(names):
                raise _GivenUp  # whether the record around is there would depend on the way taken
            here = inner.type
        if len(names) != len(path.steps):
            raise _GivenUp  # an element
        return names

    def unset(self, leaf: Leaf) -> Expr:
        here: Type = self.program.output or Record("", ())
        optional = False
        for name in leaf:
            assert isinstance(here, Record)
            inner = here.by_name[name]
            here, optional = inner.type, inner.optional
        return _blank(here, optional)


def _returns(stmt: Stmt) -> bool:
    return any(isinstance(inner, Return) for block in walk.blocks(stmt) for inner in walk.statements(block))


def _blank(type: Type, optional: bool) -> Expr:
    """What a field starts as. Required arrays of numbers start at zero and required records in parts."""
    numbers = (
        isinstance(type, Array) and isinstance(type.element, Scalar) and type.element.name not in ("text", "bytes")
    )
    if not optional and (numbers or isinstance(type, Record)):
        raise _GivenUp
    return Missing(promote(type))


def _complete(output: Record, end: _State) -> tuple[Expr, dict[Leaf, Expr]]:
    """Every field of the output, and a verdict that minds required ones."""
    leaves: dict[Leaf, Expr] = {}
    required: list[Expr] = []

    def visit(record: Record, above: Leaf) -> None:
        for f in record.fields:
            leaf = (*above, f.name)
            parts = [known for known in end.outs if known[: len(leaf)] == leaf]
            if isinstance(f.type, Record) and leaf not in end.outs and (parts or not f.optional):
                visit(f.type, leaf)
                continue
            leaves[leaf] = end.outs[leaf] if leaf in end.outs else _blank(f.type, f.optional)
            if not f.optional:
                required.append(leaves[leaf])

    if any(a != b and a == b[: len(a)] for a in end.outs for b in end.outs):
        raise _GivenUp  # both as a whole and in parts
    visit(output, ())
    if not required:
        return end.verdict, leaves
    present: list[Expr] = [Unary("not", IsMissing(expr), BOOL) for expr in required]
    whole = present[0] if len(present) == 1 else Logic("and", tuple(present))
    return Logic("and", (end.verdict, Cond(whole, TRUE, Missing(BOOL), Missing(BOOL), BOOL))), leaves
