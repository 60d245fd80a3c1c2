"""Going through programs: children of a node, every node below it, and rebuilding with changed parts.

This file knows the shape of the grammar and nothing of what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Binary,
    Block,
    Call,
    Cast,
    Compare,
    Cond,
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
    Path,
    Reduce,
    Return,
    SetOut,
    Stmt,
    Unary,
    Var,
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression, in the order they are evaluated."""
    match expr:
        case Unary(a=a) | IsMissing(a=a) | Cast(a=a) | InSet(a=a):
            return (a,)
        case Binary(a=a, b=b) | Compare(a=a, b=b):
            return (a, b)
        case Logic(args=args) | Call(args=args):
            return args
        case Cond(test=test, then=then, other=other, neither=neither):
            return (test, then, other, neither)
        case Load(path=path) | Reduce(path=path):
            return indices(path)
        case Elem(indices=at):
            return at
        case Lookup(key=key):
            return (key,)
        case _:
            return ()


def indices(path: Path) -> tuple[Expr, ...]:
    """The index expressions of a path."""
    return tuple(step for step in path.steps if not isinstance(step, str))


def operands(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement itself evaluates, in order; not those of the blocks inside it."""
    match stmt:
        case Assign(value=value) | Return(value=value):
            return (value,)
        case AssignElem(indices=at, value=value):
            return (value, *at)
        case SetOut(path=path, value=value):
            return (value, *indices(path))
        case CopyOut(path=path, source=source):
            return (*indices(source), *indices(path))
        case If(test=test) | Loop(test=test):
            return (test,)
        case _:
            return ()


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks inside a statement."""
    match stmt:
        case If(then=then, other=other):
            return (then, other)
        case Loop(body=body, step=step):
            return (body, step)
        case _:
            return ()


def expressions(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, outermost first."""
    pending = [expr]
    while pending:
        here = pending.pop()
        yield here
        pending.extend(reversed(children(here)))


def statements(block: Block) -> Iterator[Stmt]:
    """Every statement of a block, those of inner blocks included, in order."""
    pending = list(reversed(block))
    while pending:
        here = pending.pop()
        yield here
        for inner in reversed(blocks(here)):
            pending.extend(reversed(inner))


def all_expressions(block: Block) -> Iterator[Expr]:
    """Every expression anywhere in a block."""
    for stmt in statements(block):
        for expr in operands(stmt):
            yield from expressions(expr)


def assigned(block: Block) -> set[int]:
    """The variables a block may change."""
    return {stmt.slot for stmt in statements(block) if isinstance(stmt, Assign | AssignElem)}


def read(expr: Expr) -> set[int]:
    """The variables an expression reads."""
    return {e.slot for e in expressions(expr) if isinstance(e, Var | Elem)}


def map_path(path: Path, change: Callable[[Expr], Expr]) -> Path:
    """The path with every index changed."""
    steps = tuple(step if isinstance(step, str) else change(step) for step in path.steps)
    return path if _same(steps, path.steps) else Path(steps)


def map_children(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every operand changed; itself where nothing is."""
    match expr:
        case Compare(op=op, a=a, b=b, span=span):
            x, y = change(a), change(b)
            return expr if x is a and y is b else Compare(op, x, y, span)
        case Logic(op=op, args=args, span=span):
            new = tuple(map(change, args))
            return expr if _same(new, args) else Logic(op, new, span)
        case Binary(op=op, a=a, b=b, type=type, span=span):
            x, y = change(a), change(b)
            return expr if x is a and y is b else Binary(op, x, y, type, span)
        case Unary(op=op, a=a, type=type, span=span):
            x = change(a)
            return expr if x is a else Unary(op, x, type, span)
        case Cast(a=a, to=to, type=type, span=span):
            x = change(a)
            return expr if x is a else Cast(x, to, type, span)
        case Call(fn=fn, args=args, type=type, span=span):
            new = tuple(map(change, args))
            return expr if _same(new, args) else Call(fn, new, type, span)
        case Cond(test=test, then=then, other=other, neither=neither, type=type, span=span):
            a, b, c, d = change(test), change(then), change(other), change(neither)
            same = a is test and b is then and c is other and d is neither
            return expr if same else Cond(a, b, c, d, type, span)
        case IsMissing(a=a, span=span):
            x = change(a)
            return expr if x is a else IsMissing(x, span)
        case InSet(a=a, values=values, param=param, span=span):
            x = change(a)
            return expr if x is a else InSet(x, values, param, span)
        case Lookup(param=name, key=key, type=type, span=span):
            x = change(key)
            return expr if x is key else Lookup(name, x, type, span)
        case Load(path=path, stored=stored, type=type, span=span):
            where = map_path(path, change)
            return expr if where is path else Load(where, stored, type, span)
        case Reduce(op=reduction, path=path, stored=stored, type=type, span=span):
            where = map_path(path, change)
            return expr if where is path else Reduce(reduction, where, stored, type, span)
        case Elem(slot=slot, indices=at, type=type, span=span):
            new = tuple(map(change, at))
            return expr if _same(new, at) else Elem(slot, new, type, span)
        case _:
            return expr


def map_stmt(stmt: Stmt, change: Callable[[Expr], Expr], change_block: Callable[[Block], Block]) -> Stmt:
    """The statement with its expressions and inner blocks changed; itself where nothing is."""
    new: Stmt
    match stmt:
        case Return(value=value, span=span):
            new = Return(change(value), span)
        case Assign(slot=slot, value=value, span=span):
            new = Assign(slot, change(value), span)
        case AssignElem(slot=slot, indices=at, value=value, span=span):
            new = AssignElem(slot, tuple(map(change, at)), change(value), span)
        case SetOut(path=path, value=value, stored=stored, span=span):
            new = SetOut(map_path(path, change), change(value), stored, span)
        case CopyOut(path=path, source=source, stored=stored, span=span):
            new = CopyOut(map_path(path, change), map_path(source, change), stored, span)
        case If(test=test, then=then, other=other, span=span):
            new = If(change(test), change_block(then), change_block(other), span)
        case Loop(test=test, body=body, step=step, bound=bound, span=span):
            new = Loop(change(test), change_block(body), change_block(step), bound, span)
        case _:
            return stmt
    return stmt if _unchanged(stmt, new) else new


def map_block(block: Block, change: Callable[[Expr], Expr]) -> Block:
    """The block with every expression, also of inner blocks, changed (each by one call at its root)."""
    new = tuple(map_stmt(stmt, change, lambda inner: map_block(inner, change)) for stmt in block)
    return block if _same(new, block) else new


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Bottom up: operands first, then the expression made of them."""
    return change(map_children(expr, lambda child: rebuild(child, change)))


def _same(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return all(x is y for x, y in zip(new, old, strict=True))


def _unchanged(old: Stmt, new: Stmt) -> bool:
    return all(
        getattr(old, name) is getattr(new, name)
        or (name == "indices" and _same(getattr(new, name), getattr(old, name)))
        for name in old.__dataclass_fields__
    )
