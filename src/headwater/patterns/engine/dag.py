"""The shared engine's kernels: rows step from state to state, where runs are trees of nodes (`trees.py`)."""

from __future__ import annotations

from headwater.native.subset import entry, i64, kernel
from headwater.patterns.engine.arrays import EngineArrays
from headwater.patterns.engine.layout import (
    ABSENT,
    BEGIN_ONCE,
    BY_ROWS,
    COLUMNS,
    DONE,
    DUE,
    ENUMERATED,
    FINAL_NEED,
    FINAL_ROOM,
    FINALS,
    FIRED,
    FIRST,
    LATEST,
    LISTS,
    LIVE,
    MATCH_ROOM,
    MATCH_TOP,
    MOST,
    NO_FIT,
    NODE_NEED,
    NODE_ROOM,
    NODES,
    OUT_ROOM,
    OUT_TOP,
    PATH_ROOM,
    ROOM_OUT,
    ROOM_PATH,
    ROOM_STACK,
    ROW,
    ROW_EVENT,
    ROW_LETTER,
    ROW_PARTITION,
    ROW_TIME,
    ROWS,
    STACK_ROOM,
    STACK_TOP,
    STARTED,
    STATES,
    STRIDE,
    TRAIL,
    WINDOW_KIND,
)
from headwater.patterns.engine.partitions import came_of, lower_due, place_rows, put_row
from headwater.patterns.engine.trees import (
    EARLIEST,
    EDGES,
    EVENT,
    LABEL,
    LATEST_START,
    LEFT,
    NODE,
    OWN_START,
    PREV,
    RIGHT,
    VALUE,
    added,
    fitting,
    joined,
    merged,
    node,
    oldest,
    own_earliest,
    sorted_in,
)

# A state in the automaton's table: where its entries, killers and skips are, and by which value its tree is ordered
# (below 0: by none).
ENTRIES, ENTRY_COUNT, KILLERS, KILLER_COUNT, SKIPS, INDEX, STATE = 0, 1, 2, 3, 4, 5, 6
# An entry: the element as a set, as a number, the state after it (below 0: none), whether it may end there, and how the
# value in the tree must compare with which one of the row (0: not at all).
ENTRY_MASK, ENTRY_LABEL, ENTRY_TARGET, ENTRY_ENDS, ENTRY_COMPARES, ENTRY_VALUE, ENTRY = 0, 1, 2, 3, 4, 5, 6
# What is to be enumerated: a node by itself or a whole tree, of runs that began from `SINCE` on and before `UNTIL`.
FINAL_NODE, FINAL_TREE, SINCE, UNTIL, FINAL_PARTITION, FINAL_TIME, FINAL = 0, 1, 2, 3, 4, 5, 6
# A match: where its events are in the output, how many, which of the finals it is of, and when it began.
MATCH_AT, MATCH_LENGTH, MATCH_FINAL, MATCH_START, MATCH = 0, 1, 2, 3, 4


@kernel
def is_full(it: EngineArrays) -> i64:
    """Whether there is not room for what one row may make."""
    if it.control[NODES] + it.control[NODE_NEED] > it.control[NODE_ROOM]:
        return 1
    return 1 if it.control[FINALS] + it.control[FINAL_NEED] > it.control[FINAL_ROOM] else 0


@kernel
def note_final(it: EngineArrays, x: i64, tree: i64, since: i64, until: i64, partition: i64, time: i64) -> i64:
    """Runs that are whole, to be written out later (`enumerate_matches`)."""
    at = it.control[FINALS] * FINAL
    it.control[FINALS] += 1
    it.finals[at + FINAL_NODE] = x
    it.finals[at + FINAL_TREE] = tree
    it.finals[at + SINCE] = since
    it.finals[at + UNTIL] = until
    it.finals[at + FINAL_PARTITION] = partition
    it.finals[at + FINAL_TIME] = time
    return 0


# ── absence ──


@kernel
def next_due(it: EngineArrays, tree: i64, since: i64) -> i64:
    """The earliest beginning in a tree that is not before `since`; MOST if there is none. A bound from below."""
    best = MOST
    top = 0
    if tree != 0:
        it.work[0] = tree
        top = 1
    while top > 0:
        top -= 1
        x = it.work[top]
        if it.nodes[x * NODE + LATEST_START] >= since and it.nodes[x * NODE + EARLIEST] < best:
            if it.nodes[x * NODE + EARLIEST] >= since:
                best = it.nodes[x * NODE + EARLIEST]
            else:
                own = own_earliest(it, x)
                if own < since:  # some began earlier, and the latest at LATEST_START
                    own = since
                if own < best:
                    best = own
                if top + 2 > EDGES:
                    return since  # too deep to look at in full: it is looked at again soon
                if it.nodes[x * NODE + LEFT] != 0:
                    it.work[top] = it.nodes[x * NODE + LEFT]
                    top += 1
                if it.nodes[x * NODE + RIGHT] != 0:
                    it.work[top] = it.nodes[x * NODE + RIGHT]
                    top += 1
    return best


@entry
def fire(it: EngineArrays, partition: i64, until: i64, time: i64) -> i64:
    """Assert the absence of what would have ended runs that began before `until`. `time` is that of the match where it
    is not the deadline."""
    base = partition * it.control[STRIDE]
    tree = it.parts[base + TRAIL]
    since = it.parts[base + FIRED]
    if until <= since:
        return 0
    it.parts[base + FIRED] = until
    if tree == 0:
        return 0
    if it.nodes[tree * NODE + EARLIEST] < until and it.nodes[tree * NODE + LATEST_START] >= since:
        note_final(it, tree, 1, since, until, partition, time)
    if it.nodes[tree * NODE + LATEST_START] < until:
        it.parts[base + TRAIL] = 0
        it.parts[base + DUE] = MOST
    else:
        it.parts[base + DUE] = next_due(it, tree, until)
    return 0


# ── rows ──


@kernel
def wait_for_absence(it: EngineArrays, partition: i64, x: i64, since: i64) -> i64:
    """A run is whole, if nothing of the absent comes."""
    base = partition * it.control[STRIDE]
    twin = joined(it, x, 0, 0)  # a node is in one tree
    least = it.nodes[twin * NODE + EARLIEST]
    if least < since:
        least = since
    if least < it.parts[base + DUE]:
        lower_due(it, partition, least)
    it.parts[base + TRAIL] = added(it, it.parts[base + TRAIL], twin, it.parts[base + FIRED])
    return 0


@kernel
def note_pair(it: EngineArrays, changes: i64, at: i64, x: i64) -> i64:
    """A node or tree, with the entry that took it or, below 0, the state it is in now. Pairs are in `work`, after the
    room for right edges; how many there are."""
    it.work[EDGES + 2 * changes] = at
    it.work[EDGES + 2 * changes + 1] = x
    return changes + 1


@kernel
def go_on(it: EngineArrays, base: i64, letter: i64, event: i64, since: i64, here: i64) -> i64:
    """Runs that take a row, and those that are in another state after it; how many pairs that makes."""
    changes = 0
    for s in range(1, it.control[STATES]):
        tree = it.parts[base + LISTS + s]
        if tree != 0:
            if it.nodes[tree * NODE + LATEST_START] < since:
                it.parts[base + LISTS + s] = 0
            else:
                head = s * STATE
                at = it.automaton[head + ENTRIES]
                for _ in range(it.automaton[head + ENTRY_COUNT]):
                    if letter & it.automaton[at + ENTRY_MASK] != 0:
                        prev = tree
                        if it.automaton[at + ENTRY_COMPARES] != 0:
                            other = here + it.automaton[at + ENTRY_VALUE]
                            prev = 0
                            if it.values[other + 1] == 1:
                                how = it.automaton[at + ENTRY_COMPARES]
                                prev = fitting(it, tree, how, it.values[other], since)
                        if prev != 0:
                            x = node(it, event, it.automaton[at + ENTRY_LABEL], prev, 0)
                            changes = note_pair(it, changes, at, x)
                    at += ENTRY
                bits = 0
                killer = it.automaton[head + KILLERS]
                for k in range(it.automaton[head + KILLER_COUNT]):
                    if letter & it.automaton[killer + k] != 0:
                        bits |= 1 << k
                left = it.automaton[it.automaton[head + SKIPS] + bits]
                if left != s:
                    it.parts[base + LISTS + s] = 0
                    if left >= 0:
                        changes = note_pair(it, changes, -left, tree)
    return changes


@kernel
def begin(it: EngineArrays, letter: i64, event: i64, start: i64, changes: i64) -> i64:
    """New runs, after the pairs of those that go on; how many pairs there are."""
    at = it.automaton[ENTRIES]
    for _ in range(it.automaton[ENTRY_COUNT]):
        if letter & it.automaton[at + ENTRY_MASK] != 0:
            changes = note_pair(it, changes, at, node(it, event, it.automaton[at + ENTRY_LABEL], 0, start))
        at += ENTRY
    return changes


@kernel
def settle(it: EngineArrays, partition: i64, changes: i64, since: i64, time: i64, here: i64) -> i64:
    """Put the pairs that a row made to the states they lead to."""
    base = partition * it.control[STRIDE]
    for c in range(changes):
        at = it.work[EDGES + 2 * c]
        x = it.work[EDGES + 2 * c + 1]
        if at < 0:  # a whole tree, in another state now
            slot = base + LISTS - at
            it.parts[slot] = merged(it, it.parts[slot], x, since)
        else:
            if it.automaton[at + ENTRY_ENDS] != 0:
                if it.control[ABSENT] != 0:
                    wait_for_absence(it, partition, x, since)
                else:
                    note_final(it, x, 0, since, MOST, partition, time)
            target = it.automaton[at + ENTRY_TARGET]
            if target >= 0:
                slot = base + LISTS + target
                index = it.automaton[target * STATE + INDEX]
                if index < 0:
                    it.parts[slot] = added(it, it.parts[slot], x, since)
                elif it.values[here + index + 1] == 1:
                    it.nodes[x * NODE + VALUE] = it.values[here + index]
                    it.parts[slot] = sorted_in(it, it.parts[slot], x, since)
    return 0


@kernel
def take(it: EngineArrays, partition: i64, letter: i64, event: i64, time: i64, here: i64) -> i64:
    """One row of a partition; `here` is where its values are. What it leads to is noted first, and put to the states
    when all have been gone through: no run takes a row twice."""
    base = partition * it.control[STRIDE]
    row = it.parts[base + ROWS] + 1
    it.parts[base + ROWS] = row
    since = oldest(it, row, time)
    absent = it.control[ABSENT]
    if absent != 0 and it.parts[base + TRAIL] != 0:
        fire(it, partition, since, time)
        if letter & absent != 0:
            it.parts[base + TRAIL] = 0
            it.parts[base + DUE] = MOST
    if absent != 0 and it.parts[base + FIRED] < since:
        it.parts[base + FIRED] = since  # what began earlier can take this row no more, though its tree has it
    changes = go_on(it, base, letter, event, since, here)
    if letter & it.control[FIRST] != 0 and (it.control[BEGIN_ONCE] == 0 or it.parts[base + STARTED] == 0):
        it.parts[base + STARTED] = 1
        changes = begin(it, letter, event, row if it.control[WINDOW_KIND] == BY_ROWS else time, changes)
    settle(it, partition, changes, since, time, here)
    if absent != 0 and it.control[WINDOW_KIND] == BY_ROWS and it.parts[base + TRAIL] != 0:
        fire(it, partition, since + 1, time)  # this was the last row of those
    return 0


@entry
def step(it: EngineArrays, first: i64, count: i64) -> i64:
    """Rows from `first` on; the number of the row before which room ran out, or `count`."""
    for i in range(first, count):
        if is_full(it) == 1:
            return i
        at = i * ROW
        it.control[LATEST] = it.rows[at + ROW_TIME]
        if it.rows[at + ROW_PARTITION] >= 0:
            take(
                it,
                it.rows[at + ROW_PARTITION],
                it.rows[at + ROW_LETTER],
                it.rows[at + ROW_EVENT],
                it.rows[at + ROW_TIME],
                i * it.control[COLUMNS],
            )
    return count


@kernel
def one(it: EngineArrays, letter: i64, event: i64, time: i64) -> i64:
    """One row, whose key and values are the first: what came of it."""
    put_row(it, letter, event, time)
    if place_rows(it, 0, 1) == 0:
        return NO_FIT
    before = it.control[NODES]
    if step(it, 0, 1) == 0:
        return NO_FIT
    return came_of(it, it.control[NODES] - before)


# ── matches ──


@kernel
def enumerate_matches(it: EngineArrays) -> i64:
    """Write out matches, as events and labels from the first to the last; goes on where it stopped. The stack has pairs
    of a tree and its depth."""
    while True:
        if it.control[STACK_TOP] == 0:
            if it.control[ENUMERATED] >= it.control[FINALS]:
                return DONE
            f = it.control[ENUMERATED] * FINAL
            it.stack[0] = it.finals[f + FINAL_NODE]
            it.stack[1] = 0 if it.finals[f + FINAL_TREE] == 1 else -1  # -1: this node, and not its tree
            it.control[STACK_TOP] = 2
            it.control[ENUMERATED] += 1
        f = (it.control[ENUMERATED] - 1) * FINAL
        since = it.finals[f + SINCE]
        until = it.finals[f + UNTIL]
        while it.control[STACK_TOP] > 0:
            top = it.control[STACK_TOP] - 2
            x = it.stack[top]
            depth = it.stack[top + 1]
            alone = 0
            if depth < 0:
                depth = 0
                alone = 1
            if top + 8 > it.control[STACK_ROOM]:
                return ROOM_STACK
            if depth + 1 > it.control[PATH_ROOM]:
                return ROOM_PATH
            prev = it.nodes[x * NODE + PREV]
            latest = it.nodes[x * NODE + OWN_START]
            if it.nodes[x * NODE + LATEST_START] < since or it.nodes[x * NODE + EARLIEST] >= until:
                it.control[STACK_TOP] = top
            else:
                whole = 1 if prev == 0 and latest >= since and latest < until else 0
                if whole == 1:
                    if it.control[OUT_TOP] + 2 * (depth + 1) > it.control[OUT_ROOM]:
                        return ROOM_OUT
                    if it.control[MATCH_TOP] >= it.control[MATCH_ROOM]:
                        return ROOM_OUT
                it.path[depth] = x
                if alone == 0:
                    if it.nodes[x * NODE + RIGHT] != 0:
                        it.stack[top] = it.nodes[x * NODE + RIGHT]
                        it.stack[top + 1] = depth
                        top += 2
                    if it.nodes[x * NODE + LEFT] != 0:
                        it.stack[top] = it.nodes[x * NODE + LEFT]
                        it.stack[top + 1] = depth
                        top += 2
                if prev == 0:
                    if whole == 1:
                        m = it.control[MATCH_TOP] * MATCH
                        at = it.control[OUT_TOP]
                        it.matches[m + MATCH_AT] = at >> 1
                        it.matches[m + MATCH_LENGTH] = depth + 1
                        it.matches[m + MATCH_FINAL] = it.control[ENUMERATED] - 1
                        it.matches[m + MATCH_START] = latest
                        for d in range(depth, -1, -1):
                            it.out[at] = it.nodes[it.path[d] * NODE + EVENT]
                            it.out[at + 1] = it.nodes[it.path[d] * NODE + LABEL]
                            at += 2
                        it.control[OUT_TOP] = at
                        it.control[MATCH_TOP] += 1
                elif latest >= since:
                    it.stack[top] = prev
                    it.stack[top + 1] = depth + 1
                    top += 2
                it.control[STACK_TOP] = top


# ── room ──


@kernel
def compact(it: EngineArrays, partitions: i64) -> i64:
    """Let go of nodes that no run can use any more; the number of those left. Links lead to older nodes only, so one
    sweep from the newest finds all, and one from the oldest puts them together. A mark is the partition + 1."""
    count = it.control[NODES]
    stride = it.control[STRIDE]
    states = it.control[STATES]
    for i in range(count):
        it.marks[i] = 0
    for p in range(partitions):
        base = p * stride
        if it.parts[base + LIVE] != 0:
            since = oldest(it, it.parts[base + ROWS] + 1, it.control[LATEST])
            for s in range(1, states):
                tree = it.parts[base + LISTS + s]
                if tree != 0:
                    if it.nodes[tree * NODE + LATEST_START] < since:
                        it.parts[base + LISTS + s] = 0
                    else:
                        it.marks[tree] = p + 1
            if it.parts[base + TRAIL] != 0:
                it.marks[it.parts[base + TRAIL]] = p + 1
    for i in range(count - 1, 0, -1):
        if it.marks[i] != 0:
            base = (it.marks[i] - 1) * stride
            since = oldest(it, it.parts[base + ROWS] + 1, it.control[LATEST])
            for k in range(3):
                link = it.nodes[i * NODE + PREV + k]
                if link != 0:
                    if it.nodes[link * NODE + LATEST_START] < since:
                        if k > 0:  # what it comes after stays as old as it is itself
                            it.nodes[i * NODE + PREV + k] = 0
                        else:
                            it.marks[link] = it.marks[i]
                    else:
                        it.marks[link] = it.marks[i]
    new = 1
    for i in range(1, count):
        if it.marks[i] != 0:
            it.marks[i] = new
            for k in range(NODE):
                it.nodes[new * NODE + k] = it.nodes[i * NODE + k]
            for k in range(3):
                link = it.nodes[new * NODE + PREV + k]
                if link != 0:
                    it.nodes[new * NODE + PREV + k] = it.marks[link]
            new += 1
    for p in range(partitions):
        base = p * stride
        if it.parts[base + LIVE] != 0:
            for s in range(1, states):
                if it.parts[base + LISTS + s] != 0:
                    it.parts[base + LISTS + s] = it.marks[it.parts[base + LISTS + s]]
            if it.parts[base + TRAIL] != 0:
                it.parts[base + TRAIL] = it.marks[it.parts[base + TRAIL]]
    it.control[NODES] = new
    return new


@kernel
def idle(it: EngineArrays, partitions: i64) -> i64:
    """Which partitions can match no more without beginning anew: `live` is 0 there; how many. One that begins once and
    has begun is kept."""
    found = 0
    for p in range(partitions):
        base = p * it.control[STRIDE]
        it.live[p] = it.parts[base + LIVE]
        if it.parts[base + LIVE] != 0 and it.control[BEGIN_ONCE] == 0 and it.parts[base + TRAIL] == 0:
            since = oldest(it, it.parts[base + ROWS] + 1, it.control[LATEST])
            busy = 0
            for s in range(1, it.control[STATES]):
                tree = it.parts[base + LISTS + s]
                if tree != 0 and it.nodes[tree * NODE + LATEST_START] >= since:
                    busy = 1
            if busy == 0:
                it.live[p] = 0
                found += 1
    return found
