"""Function analysis: what is proven about every expression of a program before it runs.

An abstract interpretation over intervals, missingness and faults (`intervals.py`, `flow.py`). It follows the order of
evaluation, learns from tests on the way (`i < 37`, `x is not null`), takes loops to a fixed point, and takes state to
be whatever earlier events may have left. What it promises holds wherever the node is *evaluated*: code that evaluates
more than the semantics does, for instance both sides of a conditional, must not lean on it there.

It refuses loops that can never end, and programs too deeply nested to look through.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import NamedTuple

from headwater.errors import InterestRefused, Problem
from headwater.ir import intervals as iv
from headwater.ir import walk
from headwater.ir.flow import Env, Evaluator, TooComplex, join
from headwater.ir.interp import FUEL
from headwater.ir.intervals import NOTHING, Value
from headwater.ir.loops import Counter, counters, is_stuck
from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Block,
    Break,
    Continue,
    CopyOut,
    Expr,
    If,
    Loop,
    Path,
    Program,
    Return,
    SetOut,
    Span,
    Stmt,
    Variable,
)
from headwater.ir.notes import locate

MAX_NESTING = 64  # blocks in blocks
MAX_LOOPS = 16  # loops in loops
PRECISE_LOOPS = (6, 3, 0)  # loops in loops that are looked through exactly; fewer where that takes too long


class Fact(NamedTuple):
    """What holds at every evaluation of one node.

    `miss` False: never missing. `fault` False: the operation itself (not its operands) never faults. `lo`, `hi`: the
    bounds of an integer, timestamp, boolean (0 and 1) or enumeration (its codes) that is not missing.
    """

    miss: bool
    fault: bool
    lo: int | None = None
    hi: int | None = None


UNKNOWN = Fact(True, True)


class Analysis:
    """The program with the bounds of its loops filled in where they are proven, and the facts about its nodes."""

    def __init__(self, program: Program, notes: dict[int, tuple[Value, bool]] | None) -> None:
        self.program = program
        self._notes = notes

    def fact(self, expr: Expr) -> Fact:
        """About a node of `program`, by identity. Of a node never reached nothing is said."""
        noted = self._all().get(id(expr))
        if noted is None:
            return UNKNOWN
        (miss, lo, hi), fault = noted
        if isinstance(lo, int) and isinstance(hi, int) and lo <= hi:
            return Fact(miss, fault, lo, hi)
        return Fact(miss, fault)

    def value(self, expr: Expr) -> Value | None:
        """All that a node may be, an empty interval if it is always missing; None if it is never evaluated."""
        noted = self._all().get(id(expr))
        return None if noted is None else noted[0]

    @property
    def known(self) -> bool:
        """Whether anything is: of a program that is too complex to look through nothing is."""
        return bool(self._all())

    def stmt_fault(self, stmt: Stmt) -> bool:
        """Whether an index that `stmt` assigns at may be out of range (of a copy: read or assigned at)."""
        noted = self._all().get(id(stmt))
        return noted is None or noted[1]

    def reached(self, node: Expr | Stmt) -> bool:
        """Whether any event may get here; only expressions and assignments know."""
        return id(node) in self._all()

    @property
    def faultless(self) -> bool:
        """Whether no event can fault, whatever it holds; loops without a proven bound may run out of fuel."""
        unbounded = any(isinstance(s, Loop) and s.bound is None for s in walk.statements(self.program.body))
        return not unbounded and not any(fault for _, fault in self._all().values())

    def _all(self) -> dict[int, tuple[Value, bool]]:
        if self._notes is None:  # one condition: nothing to refuse, nothing to fill in, so it can wait until asked
            it = _Flow(self.program, FUEL)
            try:
                it.round({})
            except TooComplex:  # nothing is known
                it.notes = {}
            self._notes = it.notes
        return self._notes


def analyse(program: Program, *, fuel: int = FUEL, refuse: bool = True) -> Analysis:
    """Prove what can be proven. A loop bound above `fuel` is not filled in: that loop draws on fuel like others.

    Raises InterestRefused with every loop that can never end, unless `refuse` is false: then these too draw on fuel.
    """
    body = program.body
    if not program.variables and len(body) == 1 and isinstance(body[0], Return):
        return Analysis(program, None)
    deepest = _check_nesting(program)
    for precise in PRECISE_LOOPS if deepest <= PRECISE_LOOPS[0] else PRECISE_LOOPS[1:]:
        try:
            return _analysed(program, fuel, precise, refuse=refuse)
        except TooComplex as error:
            problem = error.problem
    raise InterestRefused([problem], "this interest is refused")


def _analysed(program: Program, fuel: int, precise: int, *, refuse: bool) -> Analysis:
    body = program.body
    flow = _Flow(program, fuel, precise)
    state = {slot: _initial(variable) for slot, variable in enumerate(program.variables) if variable.state}
    for attempt in count():
        left = flow.round(state)
        wider = {slot: iv.join(value, left.get(slot, value)) for slot, value in state.items()}
        if wider == state:
            break
        if attempt > 1:
            types = {slot: program.variables[slot].type for slot in state}
            wider = {slot: iv.widen(state[slot], value, types[slot]) for slot, value in wider.items()}
        state = wider
    if flow.problems and refuse:
        raise InterestRefused(list(flow.problems.values()), "this interest is refused")
    bounded = _fill(body, flow.bounds)
    if bounded is not body:
        program = replace(program, body=bounded)
    return Analysis(program, flow.notes)


def _initial(variable: Variable) -> Value:
    value = iv.constant(variable.init[0].value)
    for const in variable.init[1:]:
        value = iv.join(value, iv.constant(const.value))
    return value


def _check_nesting(program: Program) -> int:
    """How deep its loops nest, if that is not too deep."""
    deepest = 0
    pending = [(stmt, 1, 0) for stmt in program.body]
    while pending:
        stmt, depth, loops = pending.pop()
        loops += isinstance(stmt, Loop)
        deepest = max(deepest, loops)
        if depth > MAX_NESTING or loops > MAX_LOOPS:
            what = (
                f"statements nest deeper than {MAX_NESTING}"
                if depth > MAX_NESTING
                else f"loops nest deeper than {MAX_LOOPS}"
            )
            problem = locate(program.text, stmt.span, what, hint="nest less")
            raise InterestRefused([problem], "this interest is refused")
        pending.extend((inner, depth + 1, loops) for block in walk.blocks(stmt) for inner in block)
    return deepest


def _fill(block: Block, bounds: dict[int, int | None]) -> Block:
    """The same nodes, but for loops whose bound is proven and the statements around them."""

    def change(stmt: Stmt) -> Stmt:
        new = walk.map_stmt(stmt, lambda expr: expr, lambda inner: _fill(inner, bounds))
        if isinstance(new, Loop) and new.bound != bounds.get(id(stmt)):
            return replace(new, bound=bounds.get(id(stmt)))
        return new

    changed = tuple(map(change, block))
    return block if all(a is b for a, b in zip(changed, block, strict=True)) else changed


class _Flow(Evaluator):
    """Takes environments through statements."""

    def __init__(self, program: Program, fuel: int, precise: int = MAX_LOOPS) -> None:
        super().__init__(program)
        self.fuel, self.precise = fuel, precise
        self._heights: dict[int, int] = {}
        self.bounds: dict[int, int | None] = {}
        self.problems: dict[int, Problem] = {}
        self.left: dict[int, Value] = {}  # what was assigned to state
        self.loops: list[tuple[list[Env], list[Env]]] = []  # environments at break and at continue
        self.returns = 0
        self.heads: dict[int, tuple[Env, Env]] = {}  # of loops: where they began, and where that settled

    def round(self, state: dict[int, Value]) -> dict[int, Value]:
        """One event, beginning with this state; returns what it may leave in it."""
        self.notes, self.bounds, self.problems, self.left = {}, {}, {}, {}
        self.heads = {}
        vars = {slot: state.get(slot, NOTHING) for slot in range(len(self.program.variables))}
        self.block(self.program.body, Env(vars, {}))
        return self.left

    def block(self, block: Block, env: Env | None) -> Env | None:
        """The environment after the block, or None if its end is never reached."""
        for stmt in block:
            if env is None:
                return None
            env = self.stmt(stmt, env)
        return env

    def stmt(self, stmt: Stmt, env: Env) -> Env | None:
        """What holds after a statement, if it held before; None if it does not end. Faults that it may have are noted
        on the way."""
        match stmt:
            case Assign(slot=slot, value=value):
                return self.assign(slot, self.eval(value, env), env)
            case AssignElem(slot=slot, indices=indices, value=value):
                new = iv.join(env.vars[slot], self.eval(value, env))
                _, fault = self.offset(slot, indices, env)
                self.note(stmt, NOTHING, fault)
                return self.assign(slot, new, env)
            case SetOut(path=path, value=value):
                self.eval(value, env)
                self.note(stmt, NOTHING, self.target(path, env))
            case CopyOut(path=path, source=source):
                _, fault = self.path(source, self.program.input, env)
                self.note(stmt, NOTHING, self.target(path, env) or fault)
            case If(test=test, then=then, other=other):
                yes, no, neither = self.branch(test, self.eval(test, env), env)
                return join(join(self.block(then, yes), self.block(other, no)), neither)
            case Loop():
                return self.loop(stmt, env)
            case Break():
                self.loops[-1][0].append(env)
                return None
            case Continue():
                self.loops[-1][1].append(env)
                return None
            case Return(value=value):
                self.eval(value, env)
                self.returns += 1
                return None
        return env

    def target(self, path: Path, env: Env) -> bool:
        assert self.program.output is not None
        return self.path(path, self.program.output, Env(env.vars, {}))[1]

    def assign(self, slot: int, value: Value, env: Env) -> Env:
        if self.program.variables[slot].state and self.recording:
            self.left[slot] = iv.join(self.left.get(slot, value), value)
        new = Env(env.vars.copy(), env.known)
        new.vars[slot] = value
        return new

    # ── loops ──

    def loop(self, loop: Loop, entry: Env) -> Env | None:
        head = self.settle(loop, entry)
        returns = self.returns
        _, ends, breaks = self.once(loop, head)
        after = ends
        for env in breaks:
            after = join(after, env)
        if self.recording:
            begins = self.branch(loop.test, self.silently(loop.test, head), head)[0] is not None
            if begins and (is_stuck(loop) or (after is None and self.returns == returns)):
                self.problems[id(loop)] = self.endless(loop.span)
            bound = self.bound(loop, entry, head) if begins else 0
            seen = self.bounds.get(id(loop), 0)
            self.bounds[id(loop)] = None if bound is None or seen is None else max(bound, seen)
        return after

    def settle(self, loop: Loop, entry: Env) -> Env:
        """An environment that holds whenever the test is evaluated."""
        cached = self.heads.get(id(loop))
        if cached is not None and cached[0] == entry:
            return cached[1]
        if self.height(loop) > self.precise:
            return self.whatever(loop, entry)
        recording, self.recording = self.recording, False
        head, rounds = entry, 0
        while True:
            back = self.once(loop, head)[0]
            new = join(head, back)
            assert new is not None
            if new == head:
                break
            if rounds >= 2:
                for slot, value in new.vars.items():
                    new.vars[slot] = iv.widen(head.vars[slot], value, self.program.variables[slot].type)
            head, rounds = new, rounds + 1
        for _ in range(2):  # widening overshoots; what one more round cannot reach is not there
            new = join(entry, self.once(loop, head)[0])
            assert new is not None
            if new == head or join(new, head) != head:
                break
            head = new
        self.recording = recording
        self.heads[id(loop)] = (entry, head)
        return head

    def height(self, loop: Loop) -> int:
        """How many loops nest in it, itself included."""
        known = self._heights.get(id(loop))
        if known is None:
            inner = (stmt for block in (loop.body, loop.step) for stmt in walk.statements(block))
            known = 1 + max((self.height(stmt) for stmt in inner if isinstance(stmt, Loop)), default=0)
            self._heights[id(loop)] = known
        return known

    def whatever(self, loop: Loop, entry: Env) -> Env:
        """The same without looking into it: what the loop changes may be anything. Each level that is settled by going
        round multiplies the work of all levels within."""
        changed = walk.assigned(loop.body) | walk.assigned(loop.step)
        vars = {
            slot: iv.top(self.program.variables[slot].type, True) if slot in changed else value
            for slot, value in entry.vars.items()
        }
        return Env(vars, entry.known)

    def once(self, loop: Loop, head: Env) -> tuple[Env | None, Env | None, list[Env]]:
        """One round: the environment back at the test, the one where the test fails, and those at each break."""
        yes, no, neither = self.branch(loop.test, self.eval(loop.test, head), head)
        self.loops.append(([], []))
        end = self.block(loop.body, yes)
        breaks, continues = self.loops.pop()
        for env in continues:
            end = join(end, env)
        return self.block(loop.step, end), join(no, neither), breaks

    def bound(self, loop: Loop, entry: Env, head: Env) -> int | None:
        """A proven limit on its rounds, if that is not above fuel."""
        found = [limit for c in counters(loop) if (limit := self.rounds(c, entry, head)) is not None]
        least = min(found, default=None)
        return least if least is not None and least <= self.fuel else None

    def rounds(self, c: Counter, entry: Env, head: Env) -> int | None:
        """The most rounds that a counting loop can make, from what is known when it begins and at its head; None:
        nobody can tell."""
        start, limit, by = entry.vars[c.slot], self.silently(c.limit, head), self.silently(c.by, head)
        if start.empty or limit.empty or by.empty:
            return 0 if start.empty or limit.empty else None
        first, last, least, most = start, limit, by.lo, by.hi
        assert first.lo is not None and first.hi is not None and last.lo is not None and last.hi is not None
        assert least is not None and most is not None
        down = c.down
        if most < 0:  # adding less than nothing counts the other way
            down, least, most = not down, -most, -least
        if least < 1:
            return None
        distance = int(first.hi - last.lo if down else last.hi - first.lo)
        if c.op == "ne":
            one = least == most == 1 and last.lo == last.hi
            ahead = first.lo >= last.lo if down else first.hi <= last.lo
            return max(0, distance) if one and ahead else None
        if c.op not in (("gt", "ge") if down else ("lt", "le")):
            return None
        if c.op in ("lt", "gt"):
            distance -= 1
        return 0 if distance < 0 else distance // int(least) + 1

    def endless(self, span: Span) -> Problem:
        hint = "change in the loop what its test reads, or leave it with break or return"
        return locate(self.program.text, span, "this loop can never end", hint=hint)
