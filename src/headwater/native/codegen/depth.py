"""Room for deep programs: the generator calls itself for each level of an expression and of blocks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.ir.nodes import Block, Program
from headwater.ir.walk import blocks, children, operands

_FRAMES = 10  # of Python for each level, with some to spare
_lock = threading.RLock()


def depth_of(program: Program) -> int:
    """Levels of the deepest expression together with the blocks around it."""
    deepest = 0
    pending: list[tuple[Block, int]] = [(program.body, 0)]
    while pending:
        block, level = pending.pop()
        for stmt in block:
            exprs = [(expr, level + 1) for expr in operands(stmt)]
            while exprs:
                expr, at = exprs.pop()
                deepest = max(deepest, at)
                exprs += [(child, at + 1) for child in children(expr)]
            pending += [(inner, level + 1) for inner in blocks(stmt)]
    return deepest


@contextmanager
def room_for(program: Program) -> Iterator[None]:
    """Raise Python's recursion limit while a deep program is written; for most programs nothing happens."""
    needed = depth_of(program) * _FRAMES + 300
    if needed < sys.getrecursionlimit() // 2:
        yield
        return
    with _lock:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, needed + before))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)
