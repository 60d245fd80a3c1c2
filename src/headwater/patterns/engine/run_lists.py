"""Runs that are kept apart, in lists: the kernels that step a group of them.

group    all runs of a partition that began with one row; groups are a list, the oldest first
run      the point where it stands, what it waits for, the ways that are still open
node     an event taken with a label, after another node; two runs that took the same have the same node
block    the registers of a node: what conditions between elements read (`registers.py`)
"""

from __future__ import annotations

from headwater.native.subset import i64, i64s, kernel
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
def new_run(cells: i64s, control: i64s, point: i64, waits: i64, ways: i64, node: i64) -> i64:
    """A run in a free cell. That there is one was seen to before the row (`run_rows`): nothing fails half way."""
    run = control[FREE_CELL]
    if run != 0:
        control[FREE_CELL] = cells[run * RUN + NEXT]
    else:
        run = control[CELLS]
        control[CELLS] = run + 1
    control[USED_CELLS] += 1
    at = run * RUN
    cells[at + POINT] = point
    cells[at + WAITS] = waits
    cells[at + WAYS] = ways
    cells[at + NODE_OF] = node
    cells[at + NEXT] = 0
    cells[at + DEADLINE] = 0
    return run


@kernel
def free_run(cells: i64s, control: i64s, run: i64) -> i64:
    """What came after it."""
    after = cells[run * RUN + NEXT]
    cells[run * RUN + NEXT] = control[FREE_CELL]
    cells[run * RUN + NODE_OF] = 0
    control[FREE_CELL] = run
    control[USED_CELLS] -= 1
    return after


@kernel
def free_runs(cells: i64s, control: i64s, run: i64) -> i64:
    """A run and all after it; how many."""
    count = 0
    while run != 0:
        run = free_run(cells, control, run)
        count += 1
    return count


@kernel
def drop_first(parts: i64s, groups: i64s, cells: i64s, control: i64s, base: i64) -> i64:
    """The oldest group."""
    group = parts[base + HEAD]
    parts[base + RUNS] -= free_runs(cells, control, groups[group * GROUP + GROUP_RUNS])
    groups[group * GROUP + GROUP_RUNS] = 0
    parts[base + HEAD] = groups[group * GROUP + GROUP_NEXT]
    if parts[base + HEAD] == 0:
        parts[base + TAIL] = 0
        parts[base + DUE] = MOST
    else:
        parts[base + DUE] = groups[parts[base + HEAD] * GROUP + GROUP_TIME]
    groups[group * GROUP + GROUP_NEXT] = control[FREE_GROUP]
    control[FREE_GROUP] = group
    return 0


@kernel
def new_group(parts: i64s, soonest: i64s, groups: i64s, control: i64s, partition: i64, row: i64, time: i64) -> i64:
    """A group at the end of its partition's list; the first one says when the partition is due."""
    base = partition * control[STRIDE]
    group = control[FREE_GROUP]
    if group != 0:
        control[FREE_GROUP] = groups[group * GROUP + GROUP_NEXT]
    else:
        group = control[GROUPS]
        control[GROUPS] = group + 1
    groups[group * GROUP + GROUP_ROW] = row
    groups[group * GROUP + GROUP_TIME] = time
    groups[group * GROUP + GROUP_RUNS] = 0
    groups[group * GROUP + GROUP_NEXT] = 0
    if parts[base + TAIL] == 0:
        parts[base + HEAD] = group
        lower_due(parts, soonest, control, partition, time)
    else:
        groups[parts[base + TAIL] * GROUP + GROUP_NEXT] = group
    parts[base + TAIL] = group
    return group


@kernel
def node_of(
    nodes: i64s, program: i64s, regs: i64s, values: i64s, control: i64s, at: i64, event: i64, label: i64, prev: i64
) -> i64:
    """The node of an event taken after another one; `at` is the row's number among those at hand. One that was made
    for this row is used again."""
    for made in range(control[ROW_NODE], control[NODES]):
        if nodes[made * NODE + PREV] == prev and nodes[made * NODE + LABEL] == label:
            return made
    new = control[NODES]
    control[NODES] = new + 1
    nodes[new * NODE + EVENT] = event
    nodes[new * NODE + LABEL] = label
    nodes[new * NODE + PREV] = prev
    nodes[new * NODE + HAVE] = nodes[prev * NODE + HAVE] | (1 << label)
    take_registers(program, regs, values, control, label, prev, new, at)
    return new


# ── groups ──


@kernel
def kept(cells: i64s, control: i64s, first: i64, last: i64, run: i64) -> i64:
    """Put a run at the end of a list, unless one there does the same; the end."""
    at = run * RUN
    other = first if control[ALIKE] == 1 else 0
    while other != 0:
        o = other * RUN
        same = 0
        if cells[o + WAITS] == cells[at + WAITS]:
            same = 1 if cells[at + WAITS] >= ABSENCE else 0
            if cells[o + POINT] == cells[at + POINT] and cells[o + WAYS] == cells[at + WAYS]:
                same = 1
        if same == 1 and (control[TELL_APART] == 0 or cells[o + NODE_OF] == cells[at + NODE_OF]):
            free_run(cells, control, run)
            return last
        other = cells[o + NEXT]
    cells[at + NEXT] = 0
    if last != 0:
        cells[last * RUN + NEXT] = run
    return run


@kernel
def arrive(
    automaton: i64s, cells: i64s, groups: i64s, control: i64s, group: i64, last: i64, point: i64, node: i64
) -> i64:
    """Go on from a point: what waits before its end, the end, what waits after it. The end of the list, below 0 where
    nothing that is preferred less counts any more."""
    head = point * POINT_SIZE
    g = group * GROUP
    if automaton[head + BEFORE] != 0:
        run = new_run(cells, control, point, BEFORE_END, automaton[head + BEFORE], node)
        last = kept(cells, control, groups[g + GROUP_RUNS], last, run)
        if groups[g + GROUP_RUNS] == 0:
            groups[g + GROUP_RUNS] = last
    if automaton[head + ENDS] != 0:
        waits = ABSENCE if control[ABSENT] != 0 else WHOLE
        run = new_run(cells, control, point, waits, 0, node)
        last = kept(cells, control, groups[g + GROUP_RUNS], last, run)
        if groups[g + GROUP_RUNS] == 0:
            groups[g + GROUP_RUNS] = last
        if waits == WHOLE and control[EVERY] == 0:
            return -last
    if automaton[head + AFTER] != 0:
        run = new_run(cells, control, point, AFTER_END, automaton[head + AFTER], node)
        last = kept(cells, control, groups[g + GROUP_RUNS], last, run)
        if groups[g + GROUP_RUNS] == 0:
            groups[g + GROUP_RUNS] = last
    return last


@kernel
def any_fits(
    program: i64s,
    nodes: i64s,
    regs: i64s,
    work: i64s,
    values: i64s,
    control: i64s,
    elements: i64,
    letter: i64,
    node: i64,
    at: i64,
) -> i64:
    """Whether a row fits one of some elements, after what was taken."""
    wanted = elements & letter
    have = nodes[node * NODE + HAVE]
    element = 0
    while wanted != 0:
        if wanted & 1 != 0 and fits(program, regs, work, values, control, element, node, have, at) == 1:
            return 1
        wanted = (wanted >> 1) & MOST
        element += 1
    return 0


@kernel
def stepped(
    automaton: i64s,
    program: i64s,
    parts: i64s,
    groups: i64s,
    cells: i64s,
    nodes: i64s,
    regs: i64s,
    work: i64s,
    values: i64s,
    control: i64s,
    base: i64,
    group: i64,
    letter: i64,
    event: i64,
    at: i64,
) -> i64:
    """A group after a row: its list is made anew."""
    g = group * GROUP
    control[ROW_NODE] = control[NODES]
    run = groups[g + GROUP_RUNS]
    groups[g + GROUP_RUNS] = 0
    last = 0
    before = control[USED_CELLS]
    while run != 0:
        c = run * RUN
        after = cells[c + NEXT]
        node = cells[c + NODE_OF]
        cut = 0
        if cells[c + WAITS] == WHOLE:
            last = kept(cells, control, groups[g + GROUP_RUNS], last, run)
        elif cells[c + WAITS] == ABSENCE:
            if any_fits(program, nodes, regs, work, values, control, control[ABSENT], letter, node, at) == 1:
                free_run(cells, control, run)
            else:
                last = kept(cells, control, groups[g + GROUP_RUNS], last, run)
        else:
            head = cells[c + POINT] * POINT_SIZE
            ways = cells[c + WAYS]
            way = automaton[head + WAYS_AT]
            k = 0
            while k < automaton[head + WAY_COUNT] and cut == 0:
                element = automaton[way + WAY_ELEMENT]
                if (ways >> k) & 1 != 0 and (letter >> element) & 1 != 0:
                    have = nodes[node * NODE + HAVE]
                    if fits(program, regs, work, values, control, element, node, have, at) == 1:
                        new = node_of(nodes, program, regs, values, control, at, event, element, node)
                        nodes[new * NODE + NODE_ROW] = parts[base + ROWS]
                        last = arrive(automaton, cells, groups, control, group, last, automaton[way + TARGET], new)
                        if last < 0:
                            last = -last
                            cut = 1
                k += 1
                way += WAY
            if cut == 1:
                free_run(cells, control, run)
                free_runs(cells, control, after)
                after = 0
            else:
                taking = any_fits(
                    program, nodes, regs, work, values, control, automaton[head + FITTING], letter, node, at
                )
                way = automaton[head + WAYS_AT]
                for k2 in range(automaton[head + WAY_COUNT]):
                    if (ways >> k2) & 1 != 0:
                        selection = automaton[way + SELECTION]
                        gone = 0
                        if selection == STRICT or (selection == NEXT_FITTING and taking == 1):
                            gone = 1
                        elif automaton[way + FORBIDDEN] != 0:
                            gone = any_fits(
                                program,
                                nodes,
                                regs,
                                work,
                                values,
                                control,
                                automaton[way + FORBIDDEN],
                                letter,
                                node,
                                at,
                            )
                        if gone == 1:
                            ways = ways & ~(1 << k2)
                    way += WAY
                if ways == 0:
                    free_run(cells, control, run)
                else:
                    cells[c + WAYS] = ways
                    last = kept(cells, control, groups[g + GROUP_RUNS], last, run)
        if groups[g + GROUP_RUNS] == 0:
            groups[g + GROUP_RUNS] = last
        run = after
    parts[base + RUNS] += control[USED_CELLS] - before
    return 0
