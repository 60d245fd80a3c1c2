"""The arrays of engines, which kernels have in common: none has all of them, each takes those it uses.

What the words of each are is where kernels first work on it.
"""

from __future__ import annotations

from headwater.native.subset import Arrays, i64s


class EngineArrays(Arrays):
    """By the names that an engine's memory has for them."""

    # Keys of partitions: `partitions.py`.
    table: i64s
    keys: i64s
    free: i64s
    # What a pattern became.
    automaton: i64s
    program: i64s  # of registers and conditions between elements: `registers.py`
    links: i64s  # which values hold runs together: `links.py`
    # What is open: `partitions.py`, `trees.py` (nodes), `run_lists.py` (groups, cells, nodes), `registers.py`.
    parts: i64s
    soonest: i64s
    groups: i64s
    cells: i64s
    nodes: i64s
    regs: i64s
    log: i64s
    # What one row needs for a while, and one sweep.
    work: i64s
    live: i64s
    marks: i64s
    # Rows as they come, with their keys and the values that runs remember.
    wanted: i64s
    rows: i64s
    values: i64s
    # What was found, and its writing out.
    finals: i64s
    found: i64s
    stack: i64s
    path: i64s
    out: i64s
    matches: i64s
    # How an engine is set, and how far it is: `layout.py`.
    control: i64s
