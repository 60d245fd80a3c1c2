"""The kernels of runs that are kept apart: each run with the node of what it took last, the preferred first.

Where only the preferred match of a beginning counts (`EVERY` is 0), a run that is whole ends those that are preferred
less, and of runs that can go on in the same ways the preferred one is enough, unless conditions tell them apart. What
is done row by row and in which order is as in `apart.py`, which says the same in plain Python. Lists of runs and how
they step are in `run_lists.py`.
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, i64s, kernel
from headwater.patterns.engine.layout import (
    ABSENT,
    ALL_RUNS,
    BEGIN_ONCE,
    BY_ROWS,
    BY_TIME,
    CELL_NEED,
    CELL_ROOM,
    CELLS,
    DONE,
    EVERY,
    FINAL_ROOM,
    FINALS,
    FIRST,
    FREE_GROUP,
    GIVEN_UP,
    GROUP_ROOM,
    GROUPS,
    HELD,
    LATEST,
    LIVE,
    LOOK,
    MATCH_ROOM,
    MATCH_TOP,
    NO_FIT,
    NO_WINDOW,
    NODE_NEED,
    NODE_ROOM,
    NODES,
    OUT_ROOM,
    OUT_TOP,
    REGISTERS,
    ROOM_OUT,
    ROW,
    ROW_EVENT,
    ROW_LETTER,
    ROW_NODE,
    ROW_PARTITION,
    ROW_TIME,
    ROWS,
    RULE,
    RULE_ELEMENTS,
    RUNS_LIMIT,
    STARTED,
    STRIDE,
    UNSKIPPED,
    USED_CELLS,
    WINDOW,
    WINDOW_KIND,
    WRITTEN,
)
from headwater.patterns.engine.partitions import place_rows
from headwater.patterns.engine.registers import fits
from headwater.patterns.engine.run_lists import (
    ABSENCE,
    DEADLINE,
    EVENT,
    FLOOR,
    GROUP,
    GROUP_NEXT,
    GROUP_ROW,
    GROUP_RUNS,
    GROUP_TIME,
    HEAD,
    LABEL,
    NEXT,
    NODE,
    NODE_OF,
    NODE_ROW,
    PREV,
    RUN,
    RUNS,
    TAIL,
    TARGET,
    WAITS,
    WAY,
    WAY_COUNT,
    WAY_ELEMENT,
    WAYS_AT,
    WHOLE,
    arrive,
    drop_first,
    free_run,
    new_group,
    node_of,
    stepped,
)
from headwater.patterns.engine.trees import back

# Where the next match may begin.
NO_SKIP, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST = 0, 1, 2, 3, 4
# What was found.
FOUND_NODE, FOUND_ABSENT, FOUND_DEADLINE, FOUND_PARTITION, FOUND = 0, 1, 2, 3, 4
OUT_MATCH_AT, OUT_MATCH_LENGTH, OUT_MATCH_FOUND, OUT_MATCH = 0, 1, 2, 3


# ── what becomes of groups ──


@kernel
def mature(
    parts: i64s, groups: i64s, cells: i64s, control: i64s, base: i64, group: i64, deadline: i64, over: i64
) -> i64:
    """A group that can take nothing more: what waits for a row is gone. `over`: its window is, too, and what was absent
    was so until then."""
    g = group * GROUP
    run = groups[g + GROUP_RUNS]
    groups[g + GROUP_RUNS] = 0
    last = 0
    before = control[USED_CELLS]
    while run != 0:
        c = run * RUN
        after = cells[c + NEXT]
        if cells[c + WAITS] >= ABSENCE:
            if cells[c + WAITS] == ABSENCE and over == 1:
                cells[c + WAITS] = WHOLE
                cells[c + DEADLINE] = deadline
            cells[c + NEXT] = 0
            if last != 0:
                cells[last * RUN + NEXT] = run
            else:
                groups[g + GROUP_RUNS] = run
            last = run
        else:
            free_run(cells, control, run)
        run = after
    parts[base + RUNS] += control[USED_CELLS] - before
    return 0


@kernel
def hand_over(parts: i64s, cells: i64s, found: i64s, control: i64s, base: i64, run: i64) -> i64:
    """Note a match that is certain; its events are written out later, together (`write_found`)."""
    f = control[FINALS] * FOUND
    control[FINALS] += 1
    found[f + FOUND_NODE] = cells[run * RUN + NODE_OF]
    found[f + FOUND_ABSENT] = 1 if control[ABSENT] != 0 else 0
    found[f + FOUND_DEADLINE] = cells[run * RUN + DEADLINE]
    found[f + FOUND_PARTITION] = base
    return 0


@kernel
def floor_after(nodes: i64s, control: i64s, node: i64) -> i64:
    """The first row at which another match may begin."""
    rule = control[RULE]
    last = nodes[node * NODE + NODE_ROW]
    first = last
    earliest = 0
    latest = 0
    x = node
    while x != 0:
        first = nodes[x * NODE + NODE_ROW]
        if control[RULE_ELEMENTS] & (1 << nodes[x * NODE + LABEL]) != 0:
            earliest = first
            if latest == 0:
                latest = first
        x = nodes[x * NODE + PREV]
    if rule == TO_NEXT:
        return first + 1
    if rule == PAST_LAST:
        return last + 1
    row = earliest if rule == TO_FIRST else latest
    if row <= first:
        control[UNSKIPPED] += 1
        return first + 1
    return row


@kernel
def decide(parts: i64s, groups: i64s, cells: i64s, nodes: i64s, found: i64s, control: i64s, base: i64) -> i64:
    """Take the matches that are certain."""
    if control[EVERY] == 1:
        group = parts[base + HEAD]
        earlier = 0
        while group != 0:
            g = group * GROUP
            run = groups[g + GROUP_RUNS]
            before = 0
            while run != 0:
                after = cells[run * RUN + NEXT]
                if cells[run * RUN + WAITS] == WHOLE:
                    hand_over(parts, cells, found, control, base, run)
                    free_run(cells, control, run)
                    parts[base + RUNS] -= 1
                    if before == 0:
                        groups[g + GROUP_RUNS] = after
                    else:
                        cells[before * RUN + NEXT] = after
                else:
                    before = run
                run = after
            later = groups[g + GROUP_NEXT]
            if groups[g + GROUP_RUNS] != 0:
                earlier = group
            elif earlier == 0:
                drop_first(parts, groups, cells, control, base)
            else:
                groups[earlier * GROUP + GROUP_NEXT] = later
                if later == 0:
                    parts[base + TAIL] = earlier
                groups[g + GROUP_NEXT] = control[FREE_GROUP]
                control[FREE_GROUP] = group
            group = later
        return 0
    while parts[base + HEAD] != 0:
        group = parts[base + HEAD]
        run = groups[group * GROUP + GROUP_RUNS]
        if groups[group * GROUP + GROUP_ROW] < parts[base + FLOOR] or run == 0:
            drop_first(parts, groups, cells, control, base)
        elif cells[run * RUN + WAITS] != WHOLE:
            return 0
        else:
            hand_over(parts, cells, found, control, base, run)
            floor = floor_after(nodes, control, cells[run * RUN + NODE_OF])
            if floor > parts[base + FLOOR]:
                parts[base + FLOOR] = floor
            drop_first(parts, groups, cells, control, base)
    return 0


@kernel
def expire(
    parts: i64s,
    groups: i64s,
    cells: i64s,
    nodes: i64s,
    found: i64s,
    control: i64s,
    base: i64,
    row: i64,
    time: i64,
) -> i64:
    """Groups that are too old for this row and time."""
    window = control[WINDOW]
    group = parts[base + HEAD]
    some = 0
    while group != 0:
        g = group * GROUP
        if control[WINDOW_KIND] == BY_TIME:
            if groups[g + GROUP_TIME] >= back(time, window):
                break
        elif row - groups[g + GROUP_ROW] + 1 <= window:
            break
        mature(parts, groups, cells, control, base, group, groups[g + GROUP_TIME] + window, 1)
        some = 1
        group = groups[g + GROUP_NEXT]
    if some == 1:
        decide(parts, groups, cells, nodes, found, control, base)
    return 0


# ── rows ──


@kernel
def take_row(
    automaton: i64s,
    program: i64s,
    parts: i64s,
    soonest: i64s,
    groups: i64s,
    cells: i64s,
    nodes: i64s,
    regs: i64s,
    work: i64s,
    values: i64s,
    found: i64s,
    control: i64s,
    partition: i64,
    letter: i64,
    event: i64,
    time: i64,
    at: i64,
) -> i64:
    """One row of a partition, in the same order as `ApartEngine._row`: groups whose window is over end, the others go
    on, a new one begins, what is certain is taken; beyond the partition's limit of runs the oldest groups are given
    up."""
    base = partition * control[STRIDE]
    row = parts[base + ROWS] + 1
    parts[base + ROWS] = row
    if control[WINDOW_KIND] != NO_WINDOW:
        expire(parts, groups, cells, nodes, found, control, base, row, time)
    group = parts[base + HEAD]
    while group != 0:
        if groups[group * GROUP + GROUP_RUNS] != 0:
            stepped(
                automaton,
                program,
                parts,
                groups,
                cells,
                nodes,
                regs,
                work,
                values,
                control,
                base,
                group,
                letter,
                event,
                at,
            )
        group = groups[group * GROUP + GROUP_NEXT]
    if letter & control[FIRST] != 0 and (control[BEGIN_ONCE] == 0 or parts[base + STARTED] == 0):
        control[ROW_NODE] = control[NODES]
        begun = 0
        last = 0
        before = control[USED_CELLS]
        way = automaton[WAYS_AT]
        for _ in range(automaton[WAY_COUNT]):
            element = automaton[way + WAY_ELEMENT]
            fitting = 1 if last >= 0 and (letter >> element) & 1 != 0 else 0
            if fitting == 1 and fits(program, regs, work, values, control, element, 0, 0, at) == 1:
                if begun == 0:
                    begun = new_group(parts, soonest, groups, control, partition, row, time)
                node = node_of(nodes, program, regs, values, control, at, event, element, 0)
                nodes[node * NODE + NODE_ROW] = row
                last = arrive(automaton, cells, groups, control, begun, last, automaton[way + TARGET], node)
            way += WAY
        if begun != 0:
            parts[base + STARTED] = 1
        parts[base + RUNS] += control[USED_CELLS] - before
    if control[WINDOW_KIND] == BY_ROWS:
        group = parts[base + HEAD]
        while group != 0 and row - groups[group * GROUP + GROUP_ROW] + 1 >= control[WINDOW]:
            mature(parts, groups, cells, control, base, group, time, 1)
            group = groups[group * GROUP + GROUP_NEXT]
    decide(parts, groups, cells, nodes, found, control, base)
    while parts[base + RUNS] > control[RUNS_LIMIT] and parts[base + HEAD] != 0:
        drop_first(parts, groups, cells, control, base)
        control[GIVEN_UP] += 1
    return 0


@entry
def run_rows(
    automaton: i64s,
    program: i64s,
    parts: i64s,
    soonest: i64s,
    groups: i64s,
    cells: i64s,
    nodes: i64s,
    regs: i64s,
    work: i64s,
    values: i64s,
    found: i64s,
    control: i64s,
    rows: i64s,
    first: i64,
    count: i64,
) -> i64:
    """Rows from `first` on; the number of the row before which room ran out, or `count`."""
    for i in range(first, count):
        p = rows[i * ROW + ROW_PARTITION]
        if p >= 0:
            open_runs = parts[p * control[STRIDE] + RUNS] + 1
            if control[NODES] + open_runs * control[NODE_NEED] > control[NODE_ROOM]:
                return i
            if control[USED_CELLS] + open_runs * control[CELL_NEED] >= control[CELL_ROOM]:
                return i
            if control[FREE_GROUP] == 0 and control[GROUPS] >= control[GROUP_ROOM]:
                return i
            if control[FINALS] + open_runs * control[CELL_NEED] > control[FINAL_ROOM]:
                return i
            control[LATEST] = rows[i * ROW + ROW_TIME]
            take_row(
                automaton,
                program,
                parts,
                soonest,
                groups,
                cells,
                nodes,
                regs,
                work,
                values,
                found,
                control,
                p,
                rows[i * ROW + ROW_LETTER],
                rows[i * ROW + ROW_EVENT],
                rows[i * ROW + ROW_TIME],
                i,
            )
    return count


@kernel
def one(
    table: i64s,
    keys: i64s,
    free: i64s,
    automaton: i64s,
    program: i64s,
    parts: i64s,
    soonest: i64s,
    groups: i64s,
    cells: i64s,
    nodes: i64s,
    regs: i64s,
    work: i64s,
    values: i64s,
    found: i64s,
    control: i64s,
    wanted: i64s,
    rows: i64s,
    letter: i64,
    event: i64,
    time: i64,
) -> i64:
    """One row, whose key and values are the first: what came of it."""
    rows[ROW_LETTER] = letter
    rows[ROW_EVENT] = event
    rows[ROW_TIME] = time
    if place_rows(table, keys, free, parts, control, wanted, rows, 0, 1) == 0:
        return NO_FIT
    before = control[NODES]
    if (
        run_rows(
            automaton,
            program,
            parts,
            soonest,
            groups,
            cells,
            nodes,
            regs,
            work,
            values,
            found,
            control,
            rows,
            0,
            1,
        )
        == 0
    ):
        return NO_FIT
    held = HELD if control[NODES] != before else 0
    if control[FINALS] != 0 or control[GIVEN_UP] != 0 or control[USED_CELLS] > control[ALL_RUNS]:
        return held | LOOK
    return held


@kernel
def pass_time(
    parts: i64s, groups: i64s, cells: i64s, nodes: i64s, found: i64s, control: i64s, partition: i64, time: i64
) -> i64:
    """No row before this time will come."""
    base = partition * control[STRIDE]
    return expire(parts, groups, cells, nodes, found, control, base, 0, time)


@kernel
def end_rows(parts: i64s, groups: i64s, cells: i64s, nodes: i64s, found: i64s, control: i64s, partition: i64) -> i64:
    """No row will come at all."""
    base = partition * control[STRIDE]
    group = parts[base + HEAD]
    while group != 0:
        mature(parts, groups, cells, control, base, group, 0, 0)
        group = groups[group * GROUP + GROUP_NEXT]
    return decide(parts, groups, cells, nodes, found, control, base)


# ── matches, and room ──


@kernel
def write_found(nodes: i64s, found: i64s, out: i64s, matches: i64s, control: i64s) -> i64:
    """Matches as events and labels from the first to the last; goes on where it stopped."""
    while control[WRITTEN] < control[FINALS]:
        node = found[control[WRITTEN] * FOUND + FOUND_NODE]
        length = 0
        x = node
        while x != 0:
            length += 1
            x = nodes[x * NODE + PREV]
        top = control[OUT_TOP]
        if top + 2 * length > control[OUT_ROOM] or control[MATCH_TOP] >= control[MATCH_ROOM]:
            return ROOM_OUT
        at = top + 2 * length
        x = node
        while x != 0:
            at -= 2
            out[at] = nodes[x * NODE + EVENT]
            out[at + 1] = nodes[x * NODE + LABEL]
            x = nodes[x * NODE + PREV]
        m = control[MATCH_TOP] * OUT_MATCH
        matches[m + OUT_MATCH_AT] = top >> 1
        matches[m + OUT_MATCH_LENGTH] = length
        matches[m + OUT_MATCH_FOUND] = control[WRITTEN]
        control[OUT_TOP] = top + 2 * length
        control[MATCH_TOP] += 1
        control[WRITTEN] += 1
    return DONE


@kernel
def compact_runs(cells: i64s, nodes: i64s, regs: i64s, marks: i64s, control: i64s) -> i64:
    """Let go of nodes that no run has taken; the number of those left."""
    count = control[NODES]
    registers = control[REGISTERS]
    for i in range(count):
        marks[i] = 0
    for c in range(1, control[CELLS]):
        marks[cells[c * RUN + NODE_OF]] = 1
    for i in range(count - 1, 0, -1):
        if marks[i] != 0:
            marks[nodes[i * NODE + PREV]] = 1
    new = 1
    for i in range(1, count):
        if marks[i] != 0:
            marks[i] = new
            for k in range(NODE):
                nodes[new * NODE + k] = nodes[i * NODE + k]
            nodes[new * NODE + PREV] = marks[nodes[new * NODE + PREV]] if nodes[new * NODE + PREV] != 0 else 0
            for k in range(registers):
                regs[new * registers + k] = regs[i * registers + k]
            new += 1
    for c in range(1, control[CELLS]):
        if cells[c * RUN + NODE_OF] != 0:
            cells[c * RUN + NODE_OF] = marks[cells[c * RUN + NODE_OF]]
    control[NODES] = new
    return new


@kernel
def idle_partitions(parts: i64s, live: i64s, control: i64s, partitions: i64) -> i64:
    """Which partitions have no runs: `live` is 0 there; how many. One that begins once and has begun is kept."""
    count = 0
    for p in range(partitions):
        base = p * control[STRIDE]
        live[p] = parts[base + LIVE]
        if parts[base + LIVE] != 0 and control[BEGIN_ONCE] == 0 and parts[base + HEAD] == 0:
            live[p] = 0
            count += 1
    return count


@kernel
def give_up_first(parts: i64s, groups: i64s, cells: i64s, control: i64s, partition: i64) -> i64:
    """The oldest group of a partition."""
    base = partition * control[STRIDE]
    if parts[base + HEAD] == 0:
        return 0
    return drop_first(parts, groups, cells, control, base)
