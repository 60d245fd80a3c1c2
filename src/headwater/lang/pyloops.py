"""Questions about Python statements that a loop's translation depends on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any

from headwater.ir.build import inside
from headwater.ir.nodes import Load, Var
from headwater.types.model import Array, List, Record, Type


def stores(body: Sequence[ast.stmt]) -> dict[str, int]:
    """How often each name is assigned in a block."""
    found: Counter[str] = Counter()
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                found[node.id] += 1
    return dict(found)


def escapes(name: str, body: Sequence[ast.stmt]) -> bool:
    """Whether a loop variable is read or assigned anywhere but in its own loops, or assigned inside one of them."""
    return any(isinstance(node, ast.Name) and node.id == name for stmt in body for node in _outside(name, stmt))


def _outside(name: str, node: Any) -> Iterator[Any]:
    yield node
    if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
        if name in stores(node.body):
            yield node.target
        for inner in (node.iter, *node.orelse):
            yield from _outside(name, inner)
        return
    for child in ast.iter_child_nodes(node):
        yield from _outside(name, child)


def fixed_length(whole: Load, record: Record, counters: Container[int]) -> int | None:
    """The length of a fixed array that is always there; None where it must be asked of the event.

    `counters` are variables that run over a dimension of the path, and so never leave it.
    """
    here: Type = record
    for step in whole.path.steps:
        if isinstance(step, str) and isinstance(here, Record) and not here.by_name[step].optional:
            here = here.by_name[step].type
        elif isinstance(step, Var) and step.slot in counters and isinstance(here, Array | List):
            here = inside(here)
        else:
            return None
    return here.shape[0] if isinstance(here, Array) else None
