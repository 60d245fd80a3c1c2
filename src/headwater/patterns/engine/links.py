"""The kernels of runs that a value holds together: `a; b; c{who = a.who}`, where `b` has nothing to do with the value.

Runs of one value are a partition (`dag.py`). A row that may be taken by an element that has the value goes to the
partition of its own. Any other matters to all of them: it is put in a log, and a partition has the rows that it missed
when a row of its value comes, so that what nobody asks for again costs nothing.

    links   how many groups of elements there are, and of each: the set of its elements, where its values are in a row
    log     rows that matter to all: the elements they fit, the event, the time, the partition that has had it already
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, kernel
from headwater.patterns.engine.arrays import EngineArrays
from headwater.patterns.engine.dag import is_full, take
from headwater.patterns.engine.layout import (
    COLUMNS,
    FIRED,
    KEY_WORDS,
    LATEST,
    LISTS,
    LOG_END,
    LOG_FIRST,
    LOG_ROOM,
    MADE,
    NO_FIT,
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
from headwater.patterns.engine.partitions import NO_ROOM, came_of, partition_of, put_row

SEEN = FIRED  # the rows of the log that a partition has had; nothing is absent here
LOG_LETTER, LOG_EVENT, LOG_TIME, LOG_OWN, LOG = 0, 1, 2, 3, 4


@kernel
def catch_up(it: EngineArrays, partition: i64) -> i64:
    """Give a partition the rows of the log that it has missed; 0 where room ran out before the last. One in which
    nothing is open misses nothing: no such row begins anything."""
    base = partition * it.control[STRIDE]
    at = it.parts[base + SEEN]
    if at < it.control[LOG_FIRST]:
        at = it.control[LOG_FIRST]
    open = 0
    for s in range(1, it.control[STATES]):
        if it.parts[base + LISTS + s] != 0:
            open = 1
    if open == 0:
        at = it.control[LOG_END]
    while at < it.control[LOG_END]:
        if is_full(it) == 1:
            it.parts[base + SEEN] = at
            return 0
        row = (at - it.control[LOG_FIRST]) * LOG
        if it.log[row + LOG_OWN] != partition:
            take(it, partition, it.log[row + LOG_LETTER], it.log[row + LOG_EVENT], it.log[row + LOG_TIME], 0)
        at += 1
    it.parts[base + SEEN] = at
    return 1


@kernel
def group_of(it: EngineArrays, row: i64, letter: i64) -> i64:
    """The elements of the group that a row may be taken by, with its values put to `wanted`; 0 where it has not all of
    them, or fits none of such elements. Groups are of different channels."""
    words = it.control[KEY_WORDS]
    at = 1
    for _ in range(it.links[0]):
        mine = letter & it.links[at]
        if mine != 0:
            for k in range(words):
                value = row * it.control[COLUMNS] + it.links[at + 1 + k]
                if it.values[value + 1] == 0:
                    return 0
                it.wanted[row * words + k] = it.values[value]
            return mine
        at += 1 + words
    return 0


@entry
def step_linked(it: EngineArrays, first: i64, count: i64) -> i64:
    """Rows from `first` on; the number of the row before which room ran out, or `count`. UNPLACED is set where that was
    room for a partition."""
    it.control[UNPLACED] = 0
    for i in range(first, count):
        if is_full(it) == 1 or it.control[LOG_END] - it.control[LOG_FIRST] >= it.control[LOG_ROOM]:
            return i
        letter = it.rows[i * ROW + ROW_LETTER]
        event = it.rows[i * ROW + ROW_EVENT]
        time = it.rows[i * ROW + ROW_TIME]
        mine = group_of(it, i, letter)
        others = letter & it.control[UNLINKED]
        partition = -1
        if mine != 0:
            partition = partition_of(it, i, mine)
            if partition == NO_ROOM:
                it.control[UNPLACED] = 1
                return i
            if it.control[MADE] == 1:
                it.parts[partition * it.control[STRIDE] + SEEN] = it.control[LOG_END]
        if partition >= 0:
            if catch_up(it, partition) == 0:
                return i
            if is_full(it) == 1:
                return i
            take(it, partition, mine | others, event, time, 0)
        if others != 0:
            row = (it.control[LOG_END] - it.control[LOG_FIRST]) * LOG
            it.log[row + LOG_LETTER] = others
            it.log[row + LOG_EVENT] = event
            it.log[row + LOG_TIME] = time
            it.log[row + LOG_OWN] = partition
            it.control[LOG_END] += 1
        it.control[LATEST] = time
    return count


@kernel
def one_linked(it: EngineArrays, letter: i64, event: i64, time: i64) -> i64:
    """One row, whose values are the first: what came of it."""
    put_row(it, letter, event, time)
    before = it.control[NODES] + it.control[LOG_END]
    if step_linked(it, 0, 1) == 0:
        return NO_FIT
    return came_of(it, it.control[NODES] + it.control[LOG_END] - before)
