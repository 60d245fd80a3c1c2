"""Rewrites that keep the meaning: verdict, output, state and every fault. The order of the passes is below.

`normalise` gives the normal form: interests that say the same in other words or another layout have the same one,
as far as these passes see. A filter without loops and state becomes a single return. Code that is shared by
fingerprint must be made from the normal form, because variables are numbered and parameters ordered by it.

`share` is for executions, not for the normal form: it computes repeated costly parts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headwater.errors import InterestRefused
from headwater.ir import walk
from headwater.ir.analyse import analyse
from headwater.ir.functional import as_expression, keeps_faults
from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Block,
    Break,
    Call,
    Const,
    Continue,
    Elem,
    Expr,
    If,
    InSet,
    Load,
    Logic,
    Lookup,
    Loop,
    Missing,
    Program,
    Reduce,
    Return,
    Stmt,
    Unary,
    Var,
    Variable,
)
from headwater.ir.simplify import FALSE, Simplifier, is_plain
from headwater.types.model import Array, List, Record, promote

MAX_ROUNDS = 4


def simplify_expressions(program: Program) -> Program:
    """Constants folded, logic and comparisons in one form; see `simplify.py`."""
    simplifier = Simplifier(program)
    return _with_body(program, walk.map_block(program.body, simplifier.expr))


def drop_dead_code(program: Program) -> Program:
    """Branches never taken, loops never begun, statements after a return, a last `return false`."""
    simplifier = Simplifier(program)
    body = _live(program.body, simplifier)
    while body and isinstance(body[-1], Return) and body[-1].value == FALSE:
        body = body[:-1]
    return _with_body(program, body or (Return(FALSE),))


def drop_unused(program: Program) -> Program:
    """Variables that are never read, where what is assigned to them cannot fault."""
    simplifier = Simplifier(program)

    def useless(stmt: Stmt, read: set[int]) -> bool:
        match stmt:
            case Assign(slot=slot, value=value):
                return slot not in read and not simplifier.faults(value)
            case AssignElem(slot=slot, indices=indices, value=value):
                if slot in read or simplifier.faults(value):
                    return False
                return not simplifier.faults(Elem(slot, indices, promote(program.variables[slot].type)))
            case _:
                return False

    while True:
        read = {e.slot for e in walk.all_expressions(program.body) if isinstance(e, Var | Elem)}
        body = _without(program.body, lambda stmt: useless(stmt, read))  # noqa: B023
        if body is program.body:
            return program
        program = _with_body(program, body)


def to_return(program: Program) -> Program:
    """A filter without loops and state as a single return, where no fault gets lost by it."""
    body = program.body
    if (len(body) == 1 and isinstance(body[0], Return)) or (verdict := as_expression(program)) is None:
        return program
    try:
        analysis = analyse(program)
    except InterestRefused:
        return program
    notes = {id(e) for e in walk.all_expressions(body) if analysis.reached(e) and analysis.fact(e).fault}
    if not keeps_faults(program, lambda expr: any(id(e) in notes for e in walk.expressions(expr))):
        return program
    return _with_body(program, (Return(verdict),))


def renumber(program: Program) -> Program:
    """Variables in the order of their first use, parameters by name, nothing that is not used."""
    order: dict[int, int] = {}
    for stmt in walk.statements(program.body):
        for expr in walk.operands(stmt):
            for e in walk.expressions(expr):
                if isinstance(e, Var | Elem):
                    order.setdefault(e.slot, len(order))
        if isinstance(stmt, Assign | AssignElem):
            order.setdefault(stmt.slot, len(order))
    params = tuple(sorted(program.params, key=lambda p: p.name))
    if list(order) == list(range(len(program.variables))) and params == program.params:
        return program
    variables = tuple(program.variables[slot] for slot in order)

    def rename(e: Expr) -> Expr:
        match e:
            case Var(slot=slot):
                return replace(e, slot=order[slot])
            case Elem(slot=slot):
                return replace(e, slot=order[slot])
            case _:
                return e

    def statement(stmt: Stmt) -> Stmt:
        new = walk.map_stmt(stmt, lambda e: walk.rebuild(e, rename), lambda inner: tuple(map(statement, inner)))
        return replace(new, slot=order[new.slot]) if isinstance(new, Assign | AssignElem) else new

    return replace(program, params=params, variables=variables, body=tuple(map(statement, program.body)))


PASSES: tuple[Callable[[Program], Program], ...] = (
    simplify_expressions,
    drop_dead_code,
    drop_unused,
    renumber,
    to_return,
)


def normalise(program: Program) -> Program:
    """The normal form."""
    body = program.body
    if len(body) == 1 and isinstance(body[0], Return) and not program.variables:
        return _normal_return(program, body[0])
    for _ in range(MAX_ROUNDS):
        before = program
        for rewrite in PASSES:
            program = rewrite(program)
        if program is before:
            break
    return renumber(program)


def _normal_return(program: Program, only: Return) -> Program:
    """The same for what most interests are: one condition."""
    value = only.value
    for _ in range(MAX_ROUNDS):
        before, value = value, Simplifier(program).expr(value)
        parts = value.args if isinstance(value, Logic) else (value,)
        if value is before or all(map(is_plain, parts)) or value == before:
            break
    if len(program.params) > 1:
        program = replace(program, params=tuple(sorted(program.params, key=lambda p: p.name)))
    return program if value is only.value else replace(program, body=(Return(value, only.span),))


def _with_body(program: Program, body: Block) -> Program:
    return program if body is program.body or body == program.body else replace(program, body=body)


def _live(block: Block, simplifier: Simplifier) -> Block:
    made: list[Stmt] = []
    for stmt in block:
        for kept in _live_stmt(stmt, simplifier):
            made.append(kept)
            if isinstance(kept, Return | Break | Continue):
                return tuple(made)
    return tuple(made)


def _live_stmt(stmt: Stmt, simplifier: Simplifier) -> Block:
    match stmt:
        case If(test=Const(value=truth), then=then, other=other):
            return _live(then if truth else other, simplifier)
        case If(test=Missing()) | Loop(test=Missing() | Const(value=False)):
            return ()
        case If(test=test, then=then, other=other, span=span):
            then, other = _live(then, simplifier), _live(other, simplifier)
            if not then and not other:
                return () if not simplifier.faults(test) else (If(test, (), (), span),)
            if other and (not then or isinstance(test, Unary)):
                return (If(simplifier.negate(test), other, then, span),)
            return (If(test, then, other, span),)
        case Loop(test=test, body=body, step=step, bound=bound, span=span):
            return (Loop(test, _live(body, simplifier), _live(step, simplifier), bound, span),)
        case _:
            return (stmt,)


def _without(block: Block, useless: Callable[[Stmt], bool]) -> Block:
    """The block, and those inside it, without some statements."""
    made = []
    for stmt in block:
        if not useless(stmt):
            made.append(walk.map_stmt(stmt, lambda expr: expr, lambda inner: _without(inner, useless)))
    same = len(made) == len(block) and all(a is b for a, b in zip(made, block, strict=True))
    return block if same else tuple(made)


# ── for executions ──


def share(program: Program) -> Program:
    """Costly parts of a single return that are computed twice, and cannot fault, are computed once, first."""
    body = program.body
    if len(body) != 1 or not isinstance(body[0], Return):
        return program
    simplifier = Simplifier(program)
    counts: dict[Expr, int] = {}
    for e in walk.expressions(body[0].value):
        if _costly(e) and not simplifier.faults(e):
            counts[e] = counts.get(e, 0) + 1
    repeated = [e for e, count in counts.items() if count > 1 and not isinstance(e.type, Array | List | Record)]
    if not repeated:
        return program
    first = len(program.variables)
    slots = {e: first + at for at, e in enumerate(sorted(repeated, key=_size))}
    variables = tuple(Variable(f"shared{slot - first + 1}", e.type) for e, slot in slots.items())

    def use(e: Expr, but: Expr | None = None) -> Expr:
        if e != but and e in slots:
            return Var(slots[e], e.type, e.span)
        return walk.map_children(e, use)

    hoisted = [Assign(slot, use(e, e)) for e, slot in slots.items()]
    return replace(
        program, variables=program.variables + variables, body=(*hoisted, Return(use(body[0].value), body[0].span))
    )


def _costly(expr: Expr) -> bool:
    match expr:
        case Reduce() | Lookup() | Call():
            return True
        case InSet():
            return len(expr.values) > 8 or expr.param is not None
        case Load():
            return any(not isinstance(step, str) for step in expr.path.steps)
        case _:
            return False


def _size(expr: Expr) -> int:
    return sum(1 for _ in walk.expressions(expr))
