"""Runs that are kept apart, in lists: the kernels that step a group of them.

group    all runs of a partition that began with one row; groups are a list, the oldest first
run      the point where it stands, what it waits for, the ways that are still open
node     an event taken with a label, after another node; two runs that took the same have the same node
block    the registers of a node: what conditions between elements read (`registers.py`)
"""

from __future__ import annotations

from headwater.native.subset import i64, kernel
from headwater.patterns.engine.arrays import EngineArrays
from headwater.patterns.engine.layout import (
    ABSENT,
    ALIKE,
    CELLS,
    DUE,
    EVERY,
    FREE_CELL,
    FREE_GROUP,
    GROUPS,
    MOST,
    NODES,
    ROW_NODE,
    ROWS,
    STRIDE,
    TELL_APART,
    USED_CELLS,
)
from headwater.patterns.engine.partitions import lower_due
from headwater.patterns.engine.registers import fits, take_registers

# In a partition, after its head: the first and last group, how many runs, the first row where another may begin.
HEAD, TAIL, RUNS, FLOOR, PARTITION = 6, 7, 8, 9, 10
# A group: the row and time of its beginning, its first run, the group after it.
GROUP_ROW, GROUP_TIME, GROUP_RUNS, GROUP_NEXT, GROUP = 0, 1, 2, 3, 4
# A run.
POINT, WAITS, WAYS, NODE_OF, NEXT, DEADLINE, RUN = 0, 1, 2, 3, 4, 5, 6
BEFORE_END, AFTER_END, ABSENCE, WHOLE = 0, 1, 2, 3
# A node.
EVENT, LABEL, PREV, NODE_ROW, HAVE, NODE = 0, 1, 2, 3, 4, 5
# A point: its ways, whether it may end, the elements of its ways, the sets of ways before and after its end.
WAYS_AT, WAY_COUNT, ENDS, FITTING, BEFORE, AFTER, POINT_SIZE = 0, 1, 2, 3, 4, 5, 6
# A way.
WAY_ELEMENT, SELECTION, FORBIDDEN, TARGET, WAY = 0, 1, 2, 3, 4
ANY, NEXT_FITTING, STRICT = 0, 1, 2


# ── lists ──


@kernel
def new_run(it: EngineArrays, point: i64, waits: i64, ways: i64, node: i64) -> i64:
    """A run in a free cell. That there is one was seen to before the row (`run_rows`): nothing fails half way."""
    run = it.control[FREE_CELL]
    if run != 0:
        it.control[FREE_CELL] = it.cells[run * RUN + NEXT]
    else:
        run = it.control[CELLS]
        it.control[CELLS] = run + 1
    it.control[USED_CELLS] += 1
    at = run * RUN
    it.cells[at + POINT] = point
    it.cells[at + WAITS] = waits
    it.cells[at + WAYS] = ways
    it.cells[at + NODE_OF] = node
    it.cells[at + NEXT] = 0
    it.cells[at + DEADLINE] = 0
    return run


@kernel
def free_run(it: EngineArrays, run: i64) -> i64:
    """What came after it."""
    after = it.cells[run * RUN + NEXT]
    it.cells[run * RUN + NEXT] = it.control[FREE_CELL]
    it.cells[run * RUN + NODE_OF] = 0
    it.control[FREE_CELL] = run
    it.control[USED_CELLS] -= 1
    return after


@kernel
def free_runs(it: EngineArrays, run: i64) -> i64:
    """A run and all after it; how many."""
    count = 0
    while run != 0:
        run = free_run(it, run)
        count += 1
    return count


@kernel
def drop_first(it: EngineArrays, base: i64) -> i64:
    """The oldest group."""
    group = it.parts[base + HEAD]
    it.parts[base + RUNS] -= free_runs(it, it.groups[group * GROUP + GROUP_RUNS])
    it.groups[group * GROUP + GROUP_RUNS] = 0
    it.parts[base + HEAD] = it.groups[group * GROUP + GROUP_NEXT]
    if it.parts[base + HEAD] == 0:
        it.parts[base + TAIL] = 0
        it.parts[base + DUE] = MOST
    else:
        it.parts[base + DUE] = it.groups[it.parts[base + HEAD] * GROUP + GROUP_TIME]
    it.groups[group * GROUP + GROUP_NEXT] = it.control[FREE_GROUP]
    it.control[FREE_GROUP] = group
    return 0


@kernel
def new_group(it: EngineArrays, partition: i64, row: i64, time: i64) -> i64:
    """A group at the end of its partition's list; the first one says when the partition is due."""
    base = partition * it.control[STRIDE]
    group = it.control[FREE_GROUP]
    if group != 0:
        it.control[FREE_GROUP] = it.groups[group * GROUP + GROUP_NEXT]
    else:
        group = it.control[GROUPS]
        it.control[GROUPS] = group + 1
    it.groups[group * GROUP + GROUP_ROW] = row
    it.groups[group * GROUP + GROUP_TIME] = time
    it.groups[group * GROUP + GROUP_RUNS] = 0
    it.groups[group * GROUP + GROUP_NEXT] = 0
    if it.parts[base + TAIL] == 0:
        it.parts[base + HEAD] = group
        lower_due(it, partition, time)
    else:
        it.groups[it.parts[base + TAIL] * GROUP + GROUP_NEXT] = group
    it.parts[base + TAIL] = group
    return group


@kernel
def node_of(it: EngineArrays, at: i64, event: i64, label: i64, prev: i64) -> i64:
    """The node of an event taken after another one; `at` is the row's number among those at hand. One that was made
    for this row is used again."""
    for made in range(it.control[ROW_NODE], it.control[NODES]):
        if it.nodes[made * NODE + PREV] == prev and it.nodes[made * NODE + LABEL] == label:
            return made
    new = it.control[NODES]
    it.control[NODES] = new + 1
    it.nodes[new * NODE + EVENT] = event
    it.nodes[new * NODE + LABEL] = label
    it.nodes[new * NODE + PREV] = prev
    it.nodes[new * NODE + HAVE] = it.nodes[prev * NODE + HAVE] | (1 << label)
    take_registers(it, label, prev, new, at)
    return new


# ── groups ──


@kernel
def kept(it: EngineArrays, group: i64, last: i64, run: i64) -> i64:
    """Put a run at the end of a group's list, unless one there does the same; the end."""
    at = run * RUN
    other = it.groups[group * GROUP + GROUP_RUNS] if it.control[ALIKE] == 1 else 0
    while other != 0:
        o = other * RUN
        same = 0
        if it.cells[o + WAITS] == it.cells[at + WAITS]:
            same = 1 if it.cells[at + WAITS] >= ABSENCE else 0
            if it.cells[o + POINT] == it.cells[at + POINT] and it.cells[o + WAYS] == it.cells[at + WAYS]:
                same = 1
        if same == 1 and (it.control[TELL_APART] == 0 or it.cells[o + NODE_OF] == it.cells[at + NODE_OF]):
            free_run(it, run)
            return last
        other = it.cells[o + NEXT]
    it.cells[at + NEXT] = 0
    if last != 0:
        it.cells[last * RUN + NEXT] = run
    else:
        it.groups[group * GROUP + GROUP_RUNS] = run
    return run


@kernel
def arrive(it: EngineArrays, group: i64, last: i64, point: i64, node: i64) -> i64:
    """Go on from a point: what waits before its end, the end, what waits after it. The end of the list, below 0 where
    nothing that is preferred less counts any more."""
    head = point * POINT_SIZE
    if it.automaton[head + BEFORE] != 0:
        run = new_run(it, point, BEFORE_END, it.automaton[head + BEFORE], node)
        last = kept(it, group, last, run)
    if it.automaton[head + ENDS] != 0:
        waits = ABSENCE if it.control[ABSENT] != 0 else WHOLE
        run = new_run(it, point, waits, 0, node)
        last = kept(it, group, last, run)
        if waits == WHOLE and it.control[EVERY] == 0:
            return -last
    if it.automaton[head + AFTER] != 0:
        run = new_run(it, point, AFTER_END, it.automaton[head + AFTER], node)
        last = kept(it, group, last, run)
    return last


@kernel
def any_fits(it: EngineArrays, elements: i64, letter: i64, node: i64, at: i64) -> i64:
    """Whether a row fits one of some elements, after what was taken."""
    wanted = elements & letter
    have = it.nodes[node * NODE + HAVE]
    element = 0
    while wanted != 0:
        if wanted & 1 != 0 and fits(it, element, node, have, at) == 1:
            return 1
        wanted = (wanted >> 1) & MOST
        element += 1
    return 0


@kernel
def stepped(it: EngineArrays, base: i64, group: i64, letter: i64, event: i64, at: i64) -> i64:
    """A group after a row: its list is made anew."""
    g = group * GROUP
    it.control[ROW_NODE] = it.control[NODES]
    run = it.groups[g + GROUP_RUNS]
    it.groups[g + GROUP_RUNS] = 0
    last = 0
    before = it.control[USED_CELLS]
    while run != 0:
        c = run * RUN
        after = it.cells[c + NEXT]
        node = it.cells[c + NODE_OF]
        cut = 0
        if it.cells[c + WAITS] == WHOLE:
            last = kept(it, group, last, run)
        elif it.cells[c + WAITS] == ABSENCE:
            if any_fits(it, it.control[ABSENT], letter, node, at) == 1:
                free_run(it, run)
            else:
                last = kept(it, group, last, run)
        else:
            head = it.cells[c + POINT] * POINT_SIZE
            ways = it.cells[c + WAYS]
            way = it.automaton[head + WAYS_AT]
            k = 0
            while k < it.automaton[head + WAY_COUNT] and cut == 0:
                element = it.automaton[way + WAY_ELEMENT]
                if (ways >> k) & 1 != 0 and (letter >> element) & 1 != 0:
                    have = it.nodes[node * NODE + HAVE]
                    if fits(it, element, node, have, at) == 1:
                        new = node_of(it, at, event, element, node)
                        it.nodes[new * NODE + NODE_ROW] = it.parts[base + ROWS]
                        last = arrive(it, group, last, it.automaton[way + TARGET], new)
                        if last < 0:
                            last = -last
                            cut = 1
                k += 1
                way += WAY
            if cut == 1:
                free_run(it, run)
                free_runs(it, after)
                after = 0
            else:
                taking = any_fits(it, it.automaton[head + FITTING], letter, node, at)
                way = it.automaton[head + WAYS_AT]
                for k2 in range(it.automaton[head + WAY_COUNT]):
                    if (ways >> k2) & 1 != 0:
                        selection = it.automaton[way + SELECTION]
                        gone = 0
                        if selection == STRICT or (selection == NEXT_FITTING and taking == 1):
                            gone = 1
                        elif it.automaton[way + FORBIDDEN] != 0:
                            gone = any_fits(it, it.automaton[way + FORBIDDEN], letter, node, at)
                        if gone == 1:
                            ways = ways & ~(1 << k2)
                    way += WAY
                if ways == 0:
                    free_run(it, run)
                else:
                    it.cells[c + WAYS] = ways
                    last = kept(it, group, last, run)
        run = after
    it.parts[base + RUNS] += it.control[USED_CELLS] - before
    return 0
