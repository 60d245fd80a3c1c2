"""The shared engine's kernels: rows step from state to state, where runs are trees of nodes (`trees.py`)."""

from __future__ import annotations

from headwater.native.subset import entry, i64, i64s, kernel
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
    GIVEN_UP,
    HELD,
    LATEST,
    LISTS,
    LIVE,
    LOOK,
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
from headwater.patterns.engine.partitions import lower_due, place_rows
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


# ── absence ──


@kernel
def next_due(nodes: i64s, work: i64s, tree: i64, since: i64) -> i64:
    """The earliest beginning in a tree that is not before `since`; MOST if there is none. A bound from below."""
    best = MOST
    top = 0
    if tree != 0:
        work[0] = tree
        top = 1
    while top > 0:
        top -= 1
        x = work[top]
        if nodes[x * NODE + LATEST_START] >= since and nodes[x * NODE + EARLIEST] < best:
            if nodes[x * NODE + EARLIEST] >= since:
                best = nodes[x * NODE + EARLIEST]
            else:
                own = own_earliest(nodes, x)
                if own < since:  # some began earlier, and the latest at LATEST_START
                    own = since
                if own < best:
                    best = own
                if top + 2 > EDGES:
                    return since  # too deep to look at in full: it is looked at again soon
                if nodes[x * NODE + LEFT] != 0:
                    work[top] = nodes[x * NODE + LEFT]
                    top += 1
                if nodes[x * NODE + RIGHT] != 0:
                    work[top] = nodes[x * NODE + RIGHT]
                    top += 1
    return best


@entry
def fire(
    parts: i64s, nodes: i64s, work: i64s, finals: i64s, control: i64s, partition: i64, until: i64, time: i64
) -> i64:
    """Assert the absence of what would have ended runs that began before `until`. `time` is that of the match where it
    is not the deadline."""
    base = partition * control[STRIDE]
    tree = parts[base + TRAIL]
    since = parts[base + FIRED]
    if until <= since:
        return 0
    parts[base + FIRED] = until
    if tree == 0:
        return 0
    if nodes[tree * NODE + EARLIEST] < until and nodes[tree * NODE + LATEST_START] >= since:
        at = control[FINALS] * FINAL
        control[FINALS] += 1
        finals[at + FINAL_NODE] = tree
        finals[at + FINAL_TREE] = 1
        finals[at + SINCE] = since
        finals[at + UNTIL] = until
        finals[at + FINAL_PARTITION] = partition
        finals[at + FINAL_TIME] = time
    if nodes[tree * NODE + LATEST_START] < until:
        parts[base + TRAIL] = 0
        parts[base + DUE] = MOST
    else:
        parts[base + DUE] = next_due(nodes, work, tree, until)
    return 0


# ── rows ──


@kernel
def wait_for_absence(
    parts: i64s, soonest: i64s, nodes: i64s, work: i64s, control: i64s, partition: i64, x: i64, since: i64
) -> i64:
    """A run is whole, if nothing of the absent comes."""
    base = partition * control[STRIDE]
    twin = joined(nodes, control, x, 0, 0)  # a node is in one tree
    least = nodes[twin * NODE + EARLIEST]
    if least < since:
        least = since
    if least < parts[base + DUE]:
        lower_due(parts, soonest, control, partition, least)
    parts[base + TRAIL] = added(nodes, control, work, parts[base + TRAIL], twin, parts[base + FIRED])
    return 0


@kernel
def take(
    automaton: i64s,
    parts: i64s,
    soonest: i64s,
    nodes: i64s,
    work: i64s,
    finals: i64s,
    values: i64s,
    control: i64s,
    partition: i64,
    letter: i64,
    event: i64,
    time: i64,
    here: i64,
) -> i64:
    """One row; `here` is where its values are."""
    base = partition * control[STRIDE]
    row = parts[base + ROWS] + 1
    parts[base + ROWS] = row
    since = oldest(control, row, time)
    absent = control[ABSENT]
    if absent != 0 and parts[base + TRAIL] != 0:
        fire(parts, nodes, work, finals, control, partition, since, time)
        if letter & absent != 0:
            parts[base + TRAIL] = 0
            parts[base + DUE] = MOST
    if absent != 0 and parts[base + FIRED] < since:
        parts[base + FIRED] = since  # what began earlier can take this row no more, though its tree has it
    start = row if control[WINDOW_KIND] == BY_ROWS else time
    states = control[STATES]
    changes = 0
    pairs = EDGES + 0  # in `work`, after the room for right edges: what is added, and to which state
    for s in range(1, states):
        tree = parts[base + LISTS + s]
        if tree != 0:
            if nodes[tree * NODE + LATEST_START] < since:
                parts[base + LISTS + s] = 0
            else:
                head = s * STATE
                at = automaton[head + ENTRIES]
                for _ in range(automaton[head + ENTRY_COUNT]):
                    if letter & automaton[at + ENTRY_MASK] != 0:
                        prev = tree
                        if automaton[at + ENTRY_COMPARES] != 0:
                            other = here + automaton[at + ENTRY_VALUE]
                            prev = 0
                            if values[other + 1] == 1:
                                how = automaton[at + ENTRY_COMPARES]
                                prev = fitting(nodes, control, work, tree, how, values[other], since)
                        if prev != 0:
                            work[pairs + changes] = at
                            work[pairs + changes + 1] = node(
                                nodes, control, event, automaton[at + ENTRY_LABEL], prev, 0
                            )
                            changes += 2
                    at += ENTRY
                bits = 0
                killer = automaton[head + KILLERS]
                for k in range(automaton[head + KILLER_COUNT]):
                    if letter & automaton[killer + k] != 0:
                        bits |= 1 << k
                left = automaton[automaton[head + SKIPS] + bits]
                if left != s:
                    parts[base + LISTS + s] = 0
                    if left >= 0:
                        work[pairs + changes] = -left
                        work[pairs + changes + 1] = tree
                        changes += 2
    if letter & control[FIRST] != 0 and (control[BEGIN_ONCE] == 0 or parts[base + STARTED] == 0):
        parts[base + STARTED] = 1
        at = automaton[ENTRIES]
        for _ in range(automaton[ENTRY_COUNT]):
            if letter & automaton[at + ENTRY_MASK] != 0:
                work[pairs + changes] = at
                work[pairs + changes + 1] = node(nodes, control, event, automaton[at + ENTRY_LABEL], 0, start)
                changes += 2
            at += ENTRY
    for c in range(changes >> 1):
        at = work[pairs + 2 * c]
        x = work[pairs + 2 * c + 1]
        if at < 0:  # a whole tree, in another state now
            slot = base + LISTS - at
            parts[slot] = merged(nodes, control, work, parts[slot], x, since)
        else:
            if automaton[at + ENTRY_ENDS] != 0:
                if absent != 0:
                    wait_for_absence(parts, soonest, nodes, work, control, partition, x, since)
                else:
                    final = control[FINALS] * FINAL
                    control[FINALS] += 1
                    finals[final + FINAL_NODE] = x
                    finals[final + FINAL_TREE] = 0
                    finals[final + SINCE] = since
                    finals[final + UNTIL] = MOST
                    finals[final + FINAL_PARTITION] = partition
                    finals[final + FINAL_TIME] = time
            target = automaton[at + ENTRY_TARGET]
            if target >= 0:
                slot = base + LISTS + target
                index = automaton[target * STATE + INDEX]
                if index < 0:
                    parts[slot] = added(nodes, control, work, parts[slot], x, since)
                elif values[here + index + 1] == 1:
                    nodes[x * NODE + VALUE] = values[here + index]
                    parts[slot] = sorted_in(nodes, control, work, parts[slot], x, since)
    if absent != 0 and control[WINDOW_KIND] == BY_ROWS and parts[base + TRAIL] != 0:
        fire(parts, nodes, work, finals, control, partition, since + 1, time)  # this was the last row of those
    return 0


@entry
def step(
    automaton: i64s,
    parts: i64s,
    soonest: i64s,
    nodes: i64s,
    work: i64s,
    finals: i64s,
    values: i64s,
    control: i64s,
    rows: i64s,
    first: i64,
    count: i64,
) -> i64:
    """Rows from `first` on; the number of the row before which room ran out, or `count`."""
    for i in range(first, count):
        if control[NODES] + control[NODE_NEED] > control[NODE_ROOM]:
            return i
        if control[FINALS] + control[FINAL_NEED] > control[FINAL_ROOM]:
            return i
        at = i * ROW
        control[LATEST] = rows[at + ROW_TIME]
        if rows[at + ROW_PARTITION] >= 0:
            take(
                automaton,
                parts,
                soonest,
                nodes,
                work,
                finals,
                values,
                control,
                rows[at + ROW_PARTITION],
                rows[at + ROW_LETTER],
                rows[at + ROW_EVENT],
                rows[at + ROW_TIME],
                i * control[COLUMNS],
            )
    return count


@kernel
def one(
    table: i64s,
    keys: i64s,
    free: i64s,
    automaton: i64s,
    parts: i64s,
    soonest: i64s,
    nodes: i64s,
    work: i64s,
    finals: i64s,
    values: i64s,
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
    if step(automaton, parts, soonest, nodes, work, finals, values, control, rows, 0, 1) == 0:
        return NO_FIT
    held = HELD if control[NODES] != before else 0
    return held | LOOK if control[FINALS] != 0 or control[GIVEN_UP] != 0 else held


# ── matches ──


@kernel
def enumerate_matches(
    nodes: i64s, finals: i64s, stack: i64s, path: i64s, out: i64s, matches: i64s, control: i64s
) -> i64:
    """Write out matches, as events and labels from the first to the last; goes on where it stopped. The stack has pairs
    of a tree and its depth."""
    while True:
        if control[STACK_TOP] == 0:
            if control[ENUMERATED] >= control[FINALS]:
                return DONE
            f = control[ENUMERATED] * FINAL
            stack[0] = finals[f + FINAL_NODE]
            stack[1] = 0 if finals[f + FINAL_TREE] == 1 else -1  # -1: this node, and not its tree
            control[STACK_TOP] = 2
            control[ENUMERATED] += 1
        f = (control[ENUMERATED] - 1) * FINAL
        since = finals[f + SINCE]
        until = finals[f + UNTIL]
        while control[STACK_TOP] > 0:
            top = control[STACK_TOP] - 2
            x = stack[top]
            depth = stack[top + 1]
            alone = 0
            if depth < 0:
                depth = 0
                alone = 1
            if top + 8 > control[STACK_ROOM]:
                return ROOM_STACK
            if depth + 1 > control[PATH_ROOM]:
                return ROOM_PATH
            prev = nodes[x * NODE + PREV]
            latest = nodes[x * NODE + OWN_START]
            if nodes[x * NODE + LATEST_START] < since or nodes[x * NODE + EARLIEST] >= until:
                control[STACK_TOP] = top
            else:
                whole = 1 if prev == 0 and latest >= since and latest < until else 0
                if whole == 1:
                    if control[OUT_TOP] + 2 * (depth + 1) > control[OUT_ROOM]:
                        return ROOM_OUT
                    if control[MATCH_TOP] >= control[MATCH_ROOM]:
                        return ROOM_OUT
                path[depth] = x
                if alone == 0:
                    if nodes[x * NODE + RIGHT] != 0:
                        stack[top] = nodes[x * NODE + RIGHT]
                        stack[top + 1] = depth
                        top += 2
                    if nodes[x * NODE + LEFT] != 0:
                        stack[top] = nodes[x * NODE + LEFT]
                        stack[top + 1] = depth
                        top += 2
                if prev == 0:
                    if whole == 1:
                        m = control[MATCH_TOP] * MATCH
                        at = control[OUT_TOP]
                        matches[m + MATCH_AT] = at >> 1
                        matches[m + MATCH_LENGTH] = depth + 1
                        matches[m + MATCH_FINAL] = control[ENUMERATED] - 1
                        matches[m + MATCH_START] = latest
                        for d in range(depth, -1, -1):
                            out[at] = nodes[path[d] * NODE + EVENT]
                            out[at + 1] = nodes[path[d] * NODE + LABEL]
                            at += 2
                        control[OUT_TOP] = at
                        control[MATCH_TOP] += 1
                elif latest >= since:
                    stack[top] = prev
                    stack[top + 1] = depth + 1
                    top += 2
                control[STACK_TOP] = top


# ── room ──


@kernel
def compact(parts: i64s, nodes: i64s, marks: i64s, control: i64s, partitions: i64) -> i64:
    """Let go of nodes that no run can use any more; the number of those left. Links lead to older nodes only, so one
    sweep from the newest finds all, and one from the oldest puts them together. A mark is the partition + 1."""
    count = control[NODES]
    stride = control[STRIDE]
    states = control[STATES]
    for i in range(count):
        marks[i] = 0
    for p in range(partitions):
        base = p * stride
        if parts[base + LIVE] != 0:
            since = oldest(control, parts[base + ROWS] + 1, control[LATEST])
            for s in range(1, states):
                tree = parts[base + LISTS + s]
                if tree != 0:
                    if nodes[tree * NODE + LATEST_START] < since:
                        parts[base + LISTS + s] = 0
                    else:
                        marks[tree] = p + 1
            if parts[base + TRAIL] != 0:
                marks[parts[base + TRAIL]] = p + 1
    for i in range(count - 1, 0, -1):
        if marks[i] != 0:
            base = (marks[i] - 1) * stride
            since = oldest(control, parts[base + ROWS] + 1, control[LATEST])
            for k in range(3):
                link = nodes[i * NODE + PREV + k]
                if link != 0:
                    if nodes[link * NODE + LATEST_START] < since:
                        if k > 0:  # what it comes after stays as old as it is itself
                            nodes[i * NODE + PREV + k] = 0
                        else:
                            marks[link] = marks[i]
                    else:
                        marks[link] = marks[i]
    new = 1
    for i in range(1, count):
        if marks[i] != 0:
            marks[i] = new
            for k in range(NODE):
                nodes[new * NODE + k] = nodes[i * NODE + k]
            for k in range(3):
                link = nodes[new * NODE + PREV + k]
                if link != 0:
                    nodes[new * NODE + PREV + k] = marks[link]
            new += 1
    for p in range(partitions):
        base = p * stride
        if parts[base + LIVE] != 0:
            for s in range(1, states):
                if parts[base + LISTS + s] != 0:
                    parts[base + LISTS + s] = marks[parts[base + LISTS + s]]
            if parts[base + TRAIL] != 0:
                parts[base + TRAIL] = marks[parts[base + TRAIL]]
    control[NODES] = new
    return new


@kernel
def idle(parts: i64s, nodes: i64s, live: i64s, control: i64s, partitions: i64) -> i64:
    """Which partitions can match no more without beginning anew: `live` is 0 there; how many. One that begins once and
    has begun is kept."""
    found = 0
    for p in range(partitions):
        base = p * control[STRIDE]
        live[p] = parts[base + LIVE]
        if parts[base + LIVE] != 0 and control[BEGIN_ONCE] == 0 and parts[base + TRAIL] == 0:
            since = oldest(control, parts[base + ROWS] + 1, control[LATEST])
            busy = 0
            for s in range(1, control[STATES]):
                tree = parts[base + LISTS + s]
                if tree != 0 and nodes[tree * NODE + LATEST_START] >= since:
                    busy = 1
            if busy == 0:
                live[p] = 0
                found += 1
    return found
