"""The kernels of runs that are kept apart: each run with the node of what it took last, the preferred first.

Where only the preferred match of a beginning counts (`EVERY` is 0), a run that is whole ends those that are preferred
less, and of runs that can go on in the same ways the preferred one is enough, unless conditions tell them apart. What
is done row by row and in which order is as in `apart.py`, which says the same in plain Python. Lists of runs and how
they step are in `run_lists.py`.
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, kernel
from headwater.patterns.engine.arrays import EngineArrays
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
from headwater.patterns.engine.partitions import came_of, place_rows, put_row
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
def mature(it: EngineArrays, base: i64, group: i64, deadline: i64, over: i64) -> i64:
    """A group that can take nothing more: what waits for a row is gone. `over`: its window is, too, and what was absent
    was so until then."""
    g = group * GROUP
    run = it.groups[g + GROUP_RUNS]
    it.groups[g + GROUP_RUNS] = 0
    last = 0
    before = it.control[USED_CELLS]
    while run != 0:
        c = run * RUN
        after = it.cells[c + NEXT]
        if it.cells[c + WAITS] >= ABSENCE:
            if it.cells[c + WAITS] == ABSENCE and over == 1:
                it.cells[c + WAITS] = WHOLE
                it.cells[c + DEADLINE] = deadline
            it.cells[c + NEXT] = 0
            if last != 0:
                it.cells[last * RUN + NEXT] = run
            else:
                it.groups[g + GROUP_RUNS] = run
            last = run
        else:
            free_run(it, run)
        run = after
    it.parts[base + RUNS] += it.control[USED_CELLS] - before
    return 0


@kernel
def hand_over(it: EngineArrays, base: i64, run: i64) -> i64:
    """Note a match that is certain; its events are written out later, together (`write_found`)."""
    f = it.control[FINALS] * FOUND
    it.control[FINALS] += 1
    it.found[f + FOUND_NODE] = it.cells[run * RUN + NODE_OF]
    it.found[f + FOUND_ABSENT] = 1 if it.control[ABSENT] != 0 else 0
    it.found[f + FOUND_DEADLINE] = it.cells[run * RUN + DEADLINE]
    it.found[f + FOUND_PARTITION] = base
    return 0


@kernel
def floor_after(it: EngineArrays, node: i64) -> i64:
    """The first row at which another match may begin."""
    rule = it.control[RULE]
    last = it.nodes[node * NODE + NODE_ROW]
    first = last
    earliest = 0
    latest = 0
    x = node
    while x != 0:
        first = it.nodes[x * NODE + NODE_ROW]
        if it.control[RULE_ELEMENTS] & (1 << it.nodes[x * NODE + LABEL]) != 0:
            earliest = first
            if latest == 0:
                latest = first
        x = it.nodes[x * NODE + PREV]
    if rule == TO_NEXT:
        return first + 1
    if rule == PAST_LAST:
        return last + 1
    row = earliest if rule == TO_FIRST else latest
    if row <= first:
        it.control[UNSKIPPED] += 1
        return first + 1
    return row


@kernel
def decide(it: EngineArrays, base: i64) -> i64:
    """Take the matches that are certain."""
    if it.control[EVERY] == 1:
        group = it.parts[base + HEAD]
        earlier = 0
        while group != 0:
            g = group * GROUP
            run = it.groups[g + GROUP_RUNS]
            before = 0
            while run != 0:
                after = it.cells[run * RUN + NEXT]
                if it.cells[run * RUN + WAITS] == WHOLE:
                    hand_over(it, base, run)
                    free_run(it, run)
                    it.parts[base + RUNS] -= 1
                    if before == 0:
                        it.groups[g + GROUP_RUNS] = after
                    else:
                        it.cells[before * RUN + NEXT] = after
                else:
                    before = run
                run = after
            later = it.groups[g + GROUP_NEXT]
            if it.groups[g + GROUP_RUNS] != 0:
                earlier = group
            elif earlier == 0:
                drop_first(it, base)
            else:
                it.groups[earlier * GROUP + GROUP_NEXT] = later
                if later == 0:
                    it.parts[base + TAIL] = earlier
                it.groups[g + GROUP_NEXT] = it.control[FREE_GROUP]
                it.control[FREE_GROUP] = group
            group = later
        return 0
    while it.parts[base + HEAD] != 0:
        group = it.parts[base + HEAD]
        run = it.groups[group * GROUP + GROUP_RUNS]
        if it.groups[group * GROUP + GROUP_ROW] < it.parts[base + FLOOR] or run == 0:
            drop_first(it, base)
        elif it.cells[run * RUN + WAITS] != WHOLE:
            return 0
        else:
            hand_over(it, base, run)
            floor = floor_after(it, it.cells[run * RUN + NODE_OF])
            if floor > it.parts[base + FLOOR]:
                it.parts[base + FLOOR] = floor
            drop_first(it, base)
    return 0


@kernel
def expire(it: EngineArrays, base: i64, row: i64, time: i64) -> i64:
    """Groups that are too old for this row and time."""
    window = it.control[WINDOW]
    group = it.parts[base + HEAD]
    some = 0
    while group != 0:
        g = group * GROUP
        if it.control[WINDOW_KIND] == BY_TIME:
            if it.groups[g + GROUP_TIME] >= back(time, window):
                break
        elif row - it.groups[g + GROUP_ROW] + 1 <= window:
            break
        mature(it, base, group, it.groups[g + GROUP_TIME] + window, 1)
        some = 1
        group = it.groups[g + GROUP_NEXT]
    if some == 1:
        decide(it, base)
    return 0


# ── rows ──


@kernel
def take_row(it: EngineArrays, partition: i64, letter: i64, event: i64, time: i64, at: i64) -> i64:
    """One row of a partition, in the same order as `ApartEngine._row`: groups whose window is over end, the others go
    on, a new one begins, what is certain is taken; beyond the partition's limit of runs the oldest groups are given
    up."""
    base = partition * it.control[STRIDE]
    row = it.parts[base + ROWS] + 1
    it.parts[base + ROWS] = row
    if it.control[WINDOW_KIND] != NO_WINDOW:
        expire(it, base, row, time)
    group = it.parts[base + HEAD]
    while group != 0:
        if it.groups[group * GROUP + GROUP_RUNS] != 0:
            stepped(it, base, group, letter, event, at)
        group = it.groups[group * GROUP + GROUP_NEXT]
    if letter & it.control[FIRST] != 0 and (it.control[BEGIN_ONCE] == 0 or it.parts[base + STARTED] == 0):
        it.control[ROW_NODE] = it.control[NODES]
        begun = 0
        last = 0
        before = it.control[USED_CELLS]
        way = it.automaton[WAYS_AT]
        for _ in range(it.automaton[WAY_COUNT]):
            element = it.automaton[way + WAY_ELEMENT]
            fitting = 1 if last >= 0 and (letter >> element) & 1 != 0 else 0
            if fitting == 1 and fits(it, element, 0, 0, at) == 1:
                if begun == 0:
                    begun = new_group(it, partition, row, time)
                node = node_of(it, at, event, element, 0)
                it.nodes[node * NODE + NODE_ROW] = row
                last = arrive(it, begun, last, it.automaton[way + TARGET], node)
            way += WAY
        if begun != 0:
            it.parts[base + STARTED] = 1
        it.parts[base + RUNS] += it.control[USED_CELLS] - before
    if it.control[WINDOW_KIND] == BY_ROWS:
        group = it.parts[base + HEAD]
        while group != 0 and row - it.groups[group * GROUP + GROUP_ROW] + 1 >= it.control[WINDOW]:
            mature(it, base, group, time, 1)
            group = it.groups[group * GROUP + GROUP_NEXT]
    decide(it, base)
    while it.parts[base + RUNS] > it.control[RUNS_LIMIT] and it.parts[base + HEAD] != 0:
        drop_first(it, base)
        it.control[GIVEN_UP] += 1
    return 0


@entry
def run_rows(it: EngineArrays, first: i64, count: i64) -> i64:
    """Rows from `first` on; the number of the row before which room ran out, or `count`."""
    for i in range(first, count):
        p = it.rows[i * ROW + ROW_PARTITION]
        if p >= 0:
            open_runs = it.parts[p * it.control[STRIDE] + RUNS] + 1
            if it.control[NODES] + open_runs * it.control[NODE_NEED] > it.control[NODE_ROOM]:
                return i
            if it.control[USED_CELLS] + open_runs * it.control[CELL_NEED] >= it.control[CELL_ROOM]:
                return i
            if it.control[FREE_GROUP] == 0 and it.control[GROUPS] >= it.control[GROUP_ROOM]:
                return i
            if it.control[FINALS] + open_runs * it.control[CELL_NEED] > it.control[FINAL_ROOM]:
                return i
            it.control[LATEST] = it.rows[i * ROW + ROW_TIME]
            take_row(it, p, it.rows[i * ROW + ROW_LETTER], it.rows[i * ROW + ROW_EVENT], it.rows[i * ROW + ROW_TIME], i)
    return count


@kernel
def one(it: EngineArrays, letter: i64, event: i64, time: i64) -> i64:
    """One row, whose key and values are the first: what came of it."""
    put_row(it, letter, event, time)
    if place_rows(it, 0, 1) == 0:
        return NO_FIT
    before = it.control[NODES]
    if run_rows(it, 0, 1) == 0:
        return NO_FIT
    came = came_of(it, it.control[NODES] - before)
    return came | LOOK if it.control[USED_CELLS] > it.control[ALL_RUNS] else came


@kernel
def pass_time(it: EngineArrays, partition: i64, time: i64) -> i64:
    """No row before this time will come."""
    base = partition * it.control[STRIDE]
    return expire(it, base, 0, time)


@kernel
def end_rows(it: EngineArrays, partition: i64) -> i64:
    """No row will come at all."""
    base = partition * it.control[STRIDE]
    group = it.parts[base + HEAD]
    while group != 0:
        mature(it, base, group, 0, 0)
        group = it.groups[group * GROUP + GROUP_NEXT]
    return decide(it, base)


# ── matches, and room ──


@kernel
def write_found(it: EngineArrays) -> i64:
    """Matches as events and labels from the first to the last; goes on where it stopped."""
    while it.control[WRITTEN] < it.control[FINALS]:
        node = it.found[it.control[WRITTEN] * FOUND + FOUND_NODE]
        length = 0
        x = node
        while x != 0:
            length += 1
            x = it.nodes[x * NODE + PREV]
        top = it.control[OUT_TOP]
        if top + 2 * length > it.control[OUT_ROOM] or it.control[MATCH_TOP] >= it.control[MATCH_ROOM]:
            return ROOM_OUT
        at = top + 2 * length
        x = node
        while x != 0:
            at -= 2
            it.out[at] = it.nodes[x * NODE + EVENT]
            it.out[at + 1] = it.nodes[x * NODE + LABEL]
            x = it.nodes[x * NODE + PREV]
        m = it.control[MATCH_TOP] * OUT_MATCH
        it.matches[m + OUT_MATCH_AT] = top >> 1
        it.matches[m + OUT_MATCH_LENGTH] = length
        it.matches[m + OUT_MATCH_FOUND] = it.control[WRITTEN]
        it.control[OUT_TOP] = top + 2 * length
        it.control[MATCH_TOP] += 1
        it.control[WRITTEN] += 1
    return DONE


@kernel
def compact_runs(it: EngineArrays) -> i64:
    """Let go of nodes that no run has taken; the number of those left."""
    count = it.control[NODES]
    registers = it.control[REGISTERS]
    for i in range(count):
        it.marks[i] = 0
    for c in range(1, it.control[CELLS]):
        it.marks[it.cells[c * RUN + NODE_OF]] = 1
    for i in range(count - 1, 0, -1):
        if it.marks[i] != 0:
            it.marks[it.nodes[i * NODE + PREV]] = 1
    new = 1
    for i in range(1, count):
        if it.marks[i] != 0:
            it.marks[i] = new
            for k in range(NODE):
                it.nodes[new * NODE + k] = it.nodes[i * NODE + k]
            it.nodes[new * NODE + PREV] = (
                it.marks[it.nodes[new * NODE + PREV]] if it.nodes[new * NODE + PREV] != 0 else 0
            )
            for k in range(registers):
                it.regs[new * registers + k] = it.regs[i * registers + k]
            new += 1
    for c in range(1, it.control[CELLS]):
        if it.cells[c * RUN + NODE_OF] != 0:
            it.cells[c * RUN + NODE_OF] = it.marks[it.cells[c * RUN + NODE_OF]]
    it.control[NODES] = new
    return new


@kernel
def idle_partitions(it: EngineArrays, partitions: i64) -> i64:
    """Which partitions have no runs: `live` is 0 there; how many. One that begins once and has begun is kept."""
    count = 0
    for p in range(partitions):
        base = p * it.control[STRIDE]
        it.live[p] = it.parts[base + LIVE]
        if it.parts[base + LIVE] != 0 and it.control[BEGIN_ONCE] == 0 and it.parts[base + HEAD] == 0:
            it.live[p] = 0
            count += 1
    return count


@kernel
def give_up_first(it: EngineArrays, partition: i64) -> i64:
    """The oldest group of a partition."""
    base = partition * it.control[STRIDE]
    if it.parts[base + HEAD] == 0:
        return 0
    return drop_first(it, base)
