"""The kernels of runs that a value holds together: `a; b; c{who = a.who}`, where `b` has nothing to do with the value.

Runs of one value are a partition (`dag.py`). A row that may be taken by an element that has the value goes to the
partition of its own. Any other matters to all of them: it is put in a log, and a partition has the rows that it missed
when a row of its value comes, so that what nobody asks for again costs nothing.

    links   how many groups of elements there are, and of each: the set of its elements, where its values are in a row
    log     rows that matter to all: the elements they fit, the event, the time, the partition that has had it already
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, i64s, kernel
from headwater.patterns.engine.dag import take
from headwater.patterns.engine.layout import (
    COLUMNS,
    FINAL_NEED,
    FINAL_ROOM,
    FINALS,
    FIRED,
    FIRST,
    GIVEN_UP,
    HELD,
    KEY_WORDS,
    LATEST,
    LISTS,
    LOG_END,
    LOG_FIRST,
    LOG_ROOM,
    LOOK,
    MADE,
    NO_FIT,
    NODE_NEED,
    NODE_ROOM,
    NODES,
    ROW,
    ROW_EVENT,
    ROW_LETTER,
    ROW_TIME,
    STATES,
    STRIDE,
    UNLINKED,
    UNPLACED,
)
from headwater.patterns.engine.partitions import NO_ROOM, begin_partition, locate

SEEN = FIRED  # the rows of the log that a partition has had; nothing is absent here
LOG_LETTER, LOG_EVENT, LOG_TIME, LOG_OWN, LOG = 0, 1, 2, 3, 4


@kernel
def is_full(control: i64s) -> i64:
    """Whether there is not room for what one row may make."""
    if control[NODES] + control[NODE_NEED] > control[NODE_ROOM]:
        return 1
    return 1 if control[FINALS] + control[FINAL_NEED] > control[FINAL_ROOM] else 0


@kernel
def catch_up(
    automaton: i64s,
    parts: i64s,
    soonest: i64s,
    nodes: i64s,
    work: i64s,
    finals: i64s,
    values: i64s,
    log: i64s,
    control: i64s,
    partition: i64,
) -> i64:
    """Give a partition the rows of the log that it has missed; 0 where room ran out before the last. One in which
    nothing is open misses nothing: no such row begins anything."""
    base = partition * control[STRIDE]
    at = parts[base + SEEN]
    if at < control[LOG_FIRST]:
        at = control[LOG_FIRST]
    open = 0
    for s in range(1, control[STATES]):
        if parts[base + LISTS + s] != 0:
            open = 1
    if open == 0:
        at = control[LOG_END]
    while at < control[LOG_END]:
        if is_full(control) == 1:
            parts[base + SEEN] = at
            return 0
        row = (at - control[LOG_FIRST]) * LOG
        if log[row + LOG_OWN] != partition:
            take(
                automaton,
                parts,
                soonest,
                nodes,
                work,
                finals,
                values,
                control,
                partition,
                log[row + LOG_LETTER],
                log[row + LOG_EVENT],
                log[row + LOG_TIME],
                0,
            )
        at += 1
    parts[base + SEEN] = at
    return 1


@kernel
def group_of(links: i64s, values: i64s, control: i64s, wanted: i64s, row: i64, letter: i64) -> i64:
    """The elements of the group that a row may be taken by, with its values put to `wanted`; 0 where it has not all of
    them, or fits none of such elements. Groups are of different channels."""
    words = control[KEY_WORDS]
    at = 1
    for _ in range(links[0]):
        mine = letter & links[at]
        if mine != 0:
            for k in range(words):
                value = row * control[COLUMNS] + links[at + 1 + k]
                if values[value + 1] == 0:
                    return 0
                wanted[row * words + k] = values[value]
            return mine
        at += 1 + words
    return 0


@entry
def step_linked(
    table: i64s,
    keys: i64s,
    free: i64s,
    automaton: i64s,
    links: i64s,
    parts: i64s,
    soonest: i64s,
    nodes: i64s,
    work: i64s,
    finals: i64s,
    values: i64s,
    log: i64s,
    control: i64s,
    wanted: i64s,
    rows: i64s,
    first: i64,
    count: i64,
) -> i64:
    """Rows from `first` on; the number of the row before which room ran out, or `count`. UNPLACED is set where that was
    room for a partition."""
    control[UNPLACED] = 0
    for i in range(first, count):
        if is_full(control) == 1 or control[LOG_END] - control[LOG_FIRST] >= control[LOG_ROOM]:
            return i
        letter = rows[i * ROW + ROW_LETTER]
        event = rows[i * ROW + ROW_EVENT]
        time = rows[i * ROW + ROW_TIME]
        mine = group_of(links, values, control, wanted, i, letter)
        others = letter & control[UNLINKED]
        partition = -1
        if mine != 0:
            control[MADE] = 0
            partition = locate(table, keys, free, control, wanted, i, 1 if mine & control[FIRST] != 0 else 0)
            if partition == NO_ROOM:
                control[UNPLACED] = 1
                return i
            if control[MADE] == 1:
                begin_partition(parts, control, partition)
                parts[partition * control[STRIDE] + SEEN] = control[LOG_END]
        if partition >= 0:
            if catch_up(automaton, parts, soonest, nodes, work, finals, values, log, control, partition) == 0:
                return i
            if is_full(control) == 1:
                return i
            take(
                automaton,
                parts,
                soonest,
                nodes,
                work,
                finals,
                values,
                control,
                partition,
                mine | others,
                event,
                time,
                0,
            )
        if others != 0:
            row = (control[LOG_END] - control[LOG_FIRST]) * LOG
            log[row + LOG_LETTER] = others
            log[row + LOG_EVENT] = event
            log[row + LOG_TIME] = time
            log[row + LOG_OWN] = partition
            control[LOG_END] += 1
        control[LATEST] = time
    return count


@kernel
def one_linked(
    table: i64s,
    keys: i64s,
    free: i64s,
    automaton: i64s,
    links: i64s,
    parts: i64s,
    soonest: i64s,
    nodes: i64s,
    work: i64s,
    finals: i64s,
    values: i64s,
    log: i64s,
    control: i64s,
    wanted: i64s,
    rows: i64s,
    letter: i64,
    event: i64,
    time: i64,
) -> i64:
    """One row, whose values are the first: what came of it."""
    rows[ROW_LETTER] = letter
    rows[ROW_EVENT] = event
    rows[ROW_TIME] = time
    before = control[NODES] + control[LOG_END]
    done = step_linked(
        table,
        keys,
        free,
        automaton,
        links,
        parts,
        soonest,
        nodes,
        work,
        finals,
        values,
        log,
        control,
        wanted,
        rows,
        0,
        1,
    )
    if done == 0:
        return NO_FIT
    held = HELD if control[NODES] + control[LOG_END] != before else 0
    return held | LOOK if control[FINALS] != 0 or control[GIVEN_UP] != 0 else held
