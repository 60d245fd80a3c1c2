"""The shared engine's kernels: runs that have taken other events but stand in the same state are one tree of nodes.

A node is an event taken with a label. Its `PREV` is the tree of all nodes it may come after, as it was when the event
was taken, 0 where it begins. Trees are never changed but by making new nodes that lead to old ones, so that prefixes
are shared: a row makes at most a node for each way to go on, however many runs are open.

A tree is a heap by `LATEST_START`, the latest time (or row) at which a run that ends in the node began: a node is not
below one that began earlier. So enumeration cuts off what is too old at once, and each node that it visits and does
not cut off is part of a match: at most two cuts for each. Trees are put together as leftist heaps, along their right
edges, which have a logarithmic length; usually what is new began latest, and is simply put on top.

`EARLIEST` is the earliest beginning in the node's tree: absence is asserted of what began before some time.
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, i64s, kernel, logical_shift
from headwater.patterns.engine.layout import (
    ABSENT,
    BEGIN_ONCE,
    BY_ROWS,
    BY_TIME,
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
    LEAST,
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
    WINDOW,
    WINDOW_KIND,
)
from headwater.patterns.engine.partitions import lower_due, place_rows

EDGES = 128  # words of `work` for two right edges; each has a length below 64

# A node.
EVENT, LABEL, PREV, LEFT, RIGHT, RANK, LATEST_START, EARLIEST, OWN_START, VALUE, NODE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
# A state in the automaton's table: where its entries, killers and skips are, and by which value its tree is ordered
# (below 0: by none).
ENTRIES, ENTRY_COUNT, KILLERS, KILLER_COUNT, SKIPS, INDEX, STATE = 0, 1, 2, 3, 4, 5, 6
# An entry: the element as a set, as a number, the state after it (below 0: none), whether it may end there, and how the
# value in the tree must compare with which one of the row (0: not at all).
ENTRY_MASK, ENTRY_LABEL, ENTRY_TARGET, ENTRY_ENDS, ENTRY_COMPARES, ENTRY_VALUE, ENTRY = 0, 1, 2, 3, 4, 5, 6
LESS, AT_MOST, EQUAL, AT_LEAST, GREATER = 1, 2, 3, 4, 5
# What is to be enumerated: a node by itself or a whole tree, of runs that began from `SINCE` on and before `UNTIL`.
FINAL_NODE, FINAL_TREE, SINCE, UNTIL, FINAL_PARTITION, FINAL_TIME, FINAL = 0, 1, 2, 3, 4, 5, 6
# A match: where its events are in the output, how many, which of the finals it is of, and when it began.
MATCH_AT, MATCH_LENGTH, MATCH_FINAL, MATCH_START, MATCH = 0, 1, 2, 3, 4


@kernel
def back(time: i64, by: i64) -> i64:
    """So much before a time; not before the first time there is."""
    return time - by if time >= LEAST + by else LEAST


@kernel
def oldest(control: i64s, row: i64, time: i64) -> i64:
    """The earliest beginning of a run that may take this row."""
    if control[WINDOW_KIND] == BY_TIME:
        return back(time, control[WINDOW])
    if control[WINDOW_KIND] == BY_ROWS:
        return row - control[WINDOW] + 1
    return LEAST


@kernel
def node(nodes: i64s, control: i64s, event: i64, label: i64, prev: i64, start: i64) -> i64:
    """A new node, in no tree yet; `start` counts where it begins."""
    new = control[NODES]
    control[NODES] = new + 1
    at = new * NODE
    nodes[at + EVENT] = event
    nodes[at + LABEL] = label
    nodes[at + PREV] = prev
    nodes[at + LEFT] = 0
    nodes[at + RIGHT] = 0
    nodes[at + RANK] = 1
    nodes[at + LATEST_START] = start if prev == 0 else nodes[prev * NODE + LATEST_START]
    nodes[at + OWN_START] = nodes[at + LATEST_START]
    nodes[at + VALUE] = 0
    nodes[at + EARLIEST] = start if prev == 0 else nodes[prev * NODE + EARLIEST]
    return new


@kernel
def own_earliest(nodes: i64s, x: i64) -> i64:
    """The earliest beginning of runs that end in a node, whatever else is in its tree."""
    prev = nodes[x * NODE + PREV]
    return nodes[x * NODE + OWN_START] if prev == 0 else nodes[prev * NODE + EARLIEST]


@kernel
def joined(nodes: i64s, control: i64s, x: i64, left: i64, right: i64) -> i64:
    """A copy of a node with these trees below it, the one with the longer right edge on the left."""
    one = nodes[left * NODE + RANK] if left != 0 else 0
    other = nodes[right * NODE + RANK] if right != 0 else 0
    new = control[NODES]
    control[NODES] = new + 1
    at = new * NODE
    nodes[at + EVENT] = nodes[x * NODE + EVENT]
    nodes[at + LABEL] = nodes[x * NODE + LABEL]
    nodes[at + PREV] = nodes[x * NODE + PREV]
    nodes[at + LEFT] = left if one >= other else right
    nodes[at + RIGHT] = right if one >= other else left
    nodes[at + RANK] = (other if one >= other else one) + 1
    nodes[at + LATEST_START] = nodes[x * NODE + OWN_START]
    nodes[at + OWN_START] = nodes[x * NODE + OWN_START]
    nodes[at + VALUE] = nodes[x * NODE + VALUE]
    least = own_earliest(nodes, x)
    if left != 0 and nodes[left * NODE + EARLIEST] < least:
        least = nodes[left * NODE + EARLIEST]
    if right != 0 and nodes[right * NODE + EARLIEST] < least:
        least = nodes[right * NODE + EARLIEST]
    nodes[at + EARLIEST] = least
    return new


@kernel
def merged(nodes: i64s, control: i64s, work: i64s, a: i64, b: i64, since: i64) -> i64:
    """One tree of two; what began before `since` is left out where that shows at once."""
    if a != 0 and nodes[a * NODE + LATEST_START] < since:
        a = 0
    if b != 0 and nodes[b * NODE + LATEST_START] < since:
        b = 0
    top = 0
    while a != 0 and b != 0:
        if nodes[a * NODE + LATEST_START] < nodes[b * NODE + LATEST_START]:
            swapped = a
            a = b
            b = swapped
        work[top] = a
        top += 1
        a = nodes[a * NODE + RIGHT]
    rest = a if a != 0 else b
    while top > 0:
        top -= 1
        x = work[top]
        rest = joined(nodes, control, x, nodes[x * NODE + LEFT], rest)
    return rest


@kernel
def added(nodes: i64s, control: i64s, work: i64s, tree: i64, x: i64, since: i64) -> i64:
    """A tree with a node that is in none yet: on top, where nothing in the tree began later."""
    if tree == 0 or nodes[tree * NODE + LATEST_START] < since:
        return x
    if nodes[x * NODE + LATEST_START] >= nodes[tree * NODE + LATEST_START]:
        nodes[x * NODE + LEFT] = tree
        if nodes[tree * NODE + EARLIEST] < nodes[x * NODE + EARLIEST]:
            nodes[x * NODE + EARLIEST] = nodes[tree * NODE + EARLIEST]
        return x
    return merged(nodes, control, work, tree, x, since)


# ── trees by value ──
#
# Where a row goes on from runs whose last event compares with it in one value, the tree of the state is a search tree
# by that value (a treap: priorities are those of the events, mixed), and what fits is one side of a cut. `LATEST_START`
# is that of the whole tree, `OWN_START` the node's own.


@kernel
def priority(nodes: i64s, x: i64) -> i64:
    """The rank of a node in a tree by value: random, so that trees stay shallow, but made of the event's number, so
    that the same rows give the same tree after a restart."""
    h = (nodes[x * NODE + EVENT] + 1) * -7046029254386353131
    h = (h ^ logical_shift(h, 32)) * -4417276706812531889
    return logical_shift(h, 1)


@kernel
def above(nodes: i64s, control: i64s, x: i64, left: i64, right: i64, since: i64) -> i64:
    """A node over two trees: itself where they are its own, else a copy; one of the trees where it is too old."""
    if left == nodes[x * NODE + LEFT] and right == nodes[x * NODE + RIGHT]:
        return x
    if nodes[x * NODE + OWN_START] < since and (left == 0 or right == 0):
        return right if left == 0 else left
    new = control[NODES]
    control[NODES] = new + 1
    for k in range(NODE):
        nodes[new * NODE + k] = nodes[x * NODE + k]
    nodes[new * NODE + LEFT] = left
    nodes[new * NODE + RIGHT] = right
    latest = nodes[x * NODE + OWN_START]
    least = own_earliest(nodes, x)
    if left != 0:
        if nodes[left * NODE + LATEST_START] > latest:
            latest = nodes[left * NODE + LATEST_START]
        if nodes[left * NODE + EARLIEST] < least:
            least = nodes[left * NODE + EARLIEST]
    if right != 0:
        if nodes[right * NODE + LATEST_START] > latest:
            latest = nodes[right * NODE + LATEST_START]
        if nodes[right * NODE + EARLIEST] < least:
            least = nodes[right * NODE + EARLIEST]
    nodes[new * NODE + LATEST_START] = latest
    nodes[new * NODE + EARLIEST] = least
    return new


@kernel
def part(nodes: i64s, control: i64s, work: i64s, tree: i64, value: i64, since: i64, upper: i64) -> i64:
    """Of a tree by value, what is at least `value` (`upper` is 1) or below it (0)."""
    top = 0
    x = tree
    while x != 0:
        if nodes[x * NODE + LATEST_START] < since:
            x = 0
        elif top >= EDGES:
            control[GIVEN_UP] += 1  # deeper than trees by chance become
            x = 0
        else:
            wanted = 1 if nodes[x * NODE + VALUE] >= value else 0
            if wanted == upper:
                work[top] = x
                top += 1
            x = nodes[x * NODE + LEFT] if wanted == 1 else nodes[x * NODE + RIGHT]
    rest = 0
    while top > 0:
        top -= 1
        x = work[top]
        if upper == 1:
            rest = above(nodes, control, x, rest, nodes[x * NODE + RIGHT], since)
        else:
            rest = above(nodes, control, x, nodes[x * NODE + LEFT], rest, since)
    if rest != 0 and nodes[rest * NODE + LATEST_START] < since:
        return 0
    return rest


@kernel
def beside(nodes: i64s, control: i64s, work: i64s, a: i64, b: i64, since: i64) -> i64:
    """One tree of two, of which the second has no smaller values."""
    top = 0
    while a != 0 and b != 0:
        if top >= EDGES:
            control[GIVEN_UP] += 1
            b = 0
        elif priority(nodes, a) > priority(nodes, b):
            work[top] = 2 * a
            top += 1
            a = nodes[a * NODE + RIGHT]
        else:
            work[top] = 2 * b + 1
            top += 1
            b = nodes[b * NODE + LEFT]
    rest = a if a != 0 else b
    while top > 0:
        top -= 1
        x = work[top] >> 1
        if work[top] & 1 == 0:
            rest = above(nodes, control, x, nodes[x * NODE + LEFT], rest, since)
        else:
            rest = above(nodes, control, x, rest, nodes[x * NODE + RIGHT], since)
    return rest


@kernel
def sorted_in(nodes: i64s, control: i64s, work: i64s, tree: i64, x: i64, since: i64) -> i64:
    """A tree by value with a node that is in none yet."""
    value = nodes[x * NODE + VALUE]
    lower = part(nodes, control, work, tree, value, since, 0)
    upper = part(nodes, control, work, tree, value, since, 1)
    return beside(nodes, control, work, beside(nodes, control, work, lower, x, since), upper, since)


@kernel
def fitting(nodes: i64s, control: i64s, work: i64s, tree: i64, compares: i64, value: i64, since: i64) -> i64:
    """Of a tree by value, what compares so with a value."""
    if compares == LESS:
        return part(nodes, control, work, tree, value, since, 0)
    if compares == AT_LEAST:
        return part(nodes, control, work, tree, value, since, 1)
    if compares == GREATER:
        return 0 if value == MOST else part(nodes, control, work, tree, value + 1, since, 1)
    found = part(nodes, control, work, tree, value, since, 1) if compares == EQUAL else tree
    return found if value == MOST else part(nodes, control, work, found, value + 1, since, 0)


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
