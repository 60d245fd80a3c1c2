"""Runs that have taken other events but stand in the same state, as one tree of nodes.

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

from headwater.native.subset import i64, kernel, logical_shift
from headwater.patterns.engine.arrays import EngineArrays
from headwater.patterns.engine.layout import BY_ROWS, BY_TIME, GIVEN_UP, LEAST, MOST, NODES, WINDOW, WINDOW_KIND

EDGES = 128  # words of `work` for two right edges; each has a length below 64
# A node.
EVENT, LABEL, PREV, LEFT, RIGHT, RANK, LATEST_START, EARLIEST, OWN_START, VALUE, NODE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
LESS, AT_MOST, EQUAL, AT_LEAST, GREATER = 1, 2, 3, 4, 5


@kernel
def back(time: i64, by: i64) -> i64:
    """So much before a time; not before the first time there is."""
    return time - by if time >= LEAST + by else LEAST


@kernel
def oldest(it: EngineArrays, row: i64, time: i64) -> i64:
    """The earliest beginning of a run that may take this row."""
    if it.control[WINDOW_KIND] == BY_TIME:
        return back(time, it.control[WINDOW])
    if it.control[WINDOW_KIND] == BY_ROWS:
        return row - it.control[WINDOW] + 1
    return LEAST


@kernel
def node(it: EngineArrays, event: i64, label: i64, prev: i64, start: i64) -> i64:
    """A new node, in no tree yet; `start` counts where it begins."""
    new = it.control[NODES]
    it.control[NODES] = new + 1
    at = new * NODE
    it.nodes[at + EVENT] = event
    it.nodes[at + LABEL] = label
    it.nodes[at + PREV] = prev
    it.nodes[at + LEFT] = 0
    it.nodes[at + RIGHT] = 0
    it.nodes[at + RANK] = 1
    it.nodes[at + LATEST_START] = start if prev == 0 else it.nodes[prev * NODE + LATEST_START]
    it.nodes[at + OWN_START] = it.nodes[at + LATEST_START]
    it.nodes[at + VALUE] = 0
    it.nodes[at + EARLIEST] = start if prev == 0 else it.nodes[prev * NODE + EARLIEST]
    return new


@kernel
def own_earliest(it: EngineArrays, x: i64) -> i64:
    """The earliest beginning of runs that end in a node, whatever else is in its tree."""
    prev = it.nodes[x * NODE + PREV]
    return it.nodes[x * NODE + OWN_START] if prev == 0 else it.nodes[prev * NODE + EARLIEST]


@kernel
def joined(it: EngineArrays, x: i64, left: i64, right: i64) -> i64:
    """A copy of a node with these trees below it, the one with the longer right edge on the left."""
    one = it.nodes[left * NODE + RANK] if left != 0 else 0
    other = it.nodes[right * NODE + RANK] if right != 0 else 0
    new = it.control[NODES]
    it.control[NODES] = new + 1
    at = new * NODE
    it.nodes[at + EVENT] = it.nodes[x * NODE + EVENT]
    it.nodes[at + LABEL] = it.nodes[x * NODE + LABEL]
    it.nodes[at + PREV] = it.nodes[x * NODE + PREV]
    it.nodes[at + LEFT] = left if one >= other else right
    it.nodes[at + RIGHT] = right if one >= other else left
    it.nodes[at + RANK] = (other if one >= other else one) + 1
    it.nodes[at + LATEST_START] = it.nodes[x * NODE + OWN_START]
    it.nodes[at + OWN_START] = it.nodes[x * NODE + OWN_START]
    it.nodes[at + VALUE] = it.nodes[x * NODE + VALUE]
    least = own_earliest(it, x)
    if left != 0 and it.nodes[left * NODE + EARLIEST] < least:
        least = it.nodes[left * NODE + EARLIEST]
    if right != 0 and it.nodes[right * NODE + EARLIEST] < least:
        least = it.nodes[right * NODE + EARLIEST]
    it.nodes[at + EARLIEST] = least
    return new


@kernel
def merged(it: EngineArrays, a: i64, b: i64, since: i64) -> i64:
    """One tree of two; what began before `since` is left out where that shows at once."""
    if a != 0 and it.nodes[a * NODE + LATEST_START] < since:
        a = 0
    if b != 0 and it.nodes[b * NODE + LATEST_START] < since:
        b = 0
    top = 0
    while a != 0 and b != 0:
        if it.nodes[a * NODE + LATEST_START] < it.nodes[b * NODE + LATEST_START]:
            swapped = a
            a = b
            b = swapped
        it.work[top] = a
        top += 1
        a = it.nodes[a * NODE + RIGHT]
    rest = a if a != 0 else b
    while top > 0:
        top -= 1
        x = it.work[top]
        rest = joined(it, x, it.nodes[x * NODE + LEFT], rest)
    return rest


@kernel
def added(it: EngineArrays, tree: i64, x: i64, since: i64) -> i64:
    """A tree with a node that is in none yet: on top, where nothing in the tree began later."""
    if tree == 0 or it.nodes[tree * NODE + LATEST_START] < since:
        return x
    if it.nodes[x * NODE + LATEST_START] >= it.nodes[tree * NODE + LATEST_START]:
        it.nodes[x * NODE + LEFT] = tree
        if it.nodes[tree * NODE + EARLIEST] < it.nodes[x * NODE + EARLIEST]:
            it.nodes[x * NODE + EARLIEST] = it.nodes[tree * NODE + EARLIEST]
        return x
    return merged(it, tree, x, since)


# ── trees by value ──
#
# Where a row goes on from runs whose last event compares with it in one value, the tree of the state is a search tree
# by that value (a treap: priorities are those of the events, mixed), and what fits is one side of a cut. `LATEST_START`
# is that of the whole tree, `OWN_START` the node's own.


@kernel
def priority(it: EngineArrays, x: i64) -> i64:
    """The rank of a node in a tree by value: random, so that trees stay shallow, but made of the event's number, so
    that the same rows give the same tree after a restart."""
    h = (it.nodes[x * NODE + EVENT] + 1) * -7046029254386353131
    h = (h ^ logical_shift(h, 32)) * -4417276706812531889
    return logical_shift(h, 1)


@kernel
def above(it: EngineArrays, x: i64, left: i64, right: i64, since: i64) -> i64:
    """A node over two trees: itself where they are its own, else a copy; one of the trees where it is too old."""
    if left == it.nodes[x * NODE + LEFT] and right == it.nodes[x * NODE + RIGHT]:
        return x
    if it.nodes[x * NODE + OWN_START] < since and (left == 0 or right == 0):
        return right if left == 0 else left
    new = it.control[NODES]
    it.control[NODES] = new + 1
    for k in range(NODE):
        it.nodes[new * NODE + k] = it.nodes[x * NODE + k]
    it.nodes[new * NODE + LEFT] = left
    it.nodes[new * NODE + RIGHT] = right
    latest = it.nodes[x * NODE + OWN_START]
    least = own_earliest(it, x)
    if left != 0:
        if it.nodes[left * NODE + LATEST_START] > latest:
            latest = it.nodes[left * NODE + LATEST_START]
        if it.nodes[left * NODE + EARLIEST] < least:
            least = it.nodes[left * NODE + EARLIEST]
    if right != 0:
        if it.nodes[right * NODE + LATEST_START] > latest:
            latest = it.nodes[right * NODE + LATEST_START]
        if it.nodes[right * NODE + EARLIEST] < least:
            least = it.nodes[right * NODE + EARLIEST]
    it.nodes[new * NODE + LATEST_START] = latest
    it.nodes[new * NODE + EARLIEST] = least
    return new


@kernel
def part(it: EngineArrays, tree: i64, value: i64, since: i64, upper: i64) -> i64:
    """Of a tree by value, what is at least `value` (`upper` is 1) or below it (0)."""
    top = 0
    x = tree
    while x != 0:
        if it.nodes[x * NODE + LATEST_START] < since:
            x = 0
        elif top >= EDGES:
            it.control[GIVEN_UP] += 1  # deeper than trees by chance become
            x = 0
        else:
            wanted = 1 if it.nodes[x * NODE + VALUE] >= value else 0
            if wanted == upper:
                it.work[top] = x
                top += 1
            x = it.nodes[x * NODE + LEFT] if wanted == 1 else it.nodes[x * NODE + RIGHT]
    rest = 0
    while top > 0:
        top -= 1
        x = it.work[top]
        if upper == 1:
            rest = above(it, x, rest, it.nodes[x * NODE + RIGHT], since)
        else:
            rest = above(it, x, it.nodes[x * NODE + LEFT], rest, since)
    if rest != 0 and it.nodes[rest * NODE + LATEST_START] < since:
        return 0
    return rest


@kernel
def beside(it: EngineArrays, a: i64, b: i64, since: i64) -> i64:
    """One tree of two, of which the second has no smaller values."""
    top = 0
    while a != 0 and b != 0:
        if top >= EDGES:
            it.control[GIVEN_UP] += 1
            b = 0
        elif priority(it, a) > priority(it, b):
            it.work[top] = 2 * a
            top += 1
            a = it.nodes[a * NODE + RIGHT]
        else:
            it.work[top] = 2 * b + 1
            top += 1
            b = it.nodes[b * NODE + LEFT]
    rest = a if a != 0 else b
    while top > 0:
        top -= 1
        x = it.work[top] >> 1
        if it.work[top] & 1 == 0:
            rest = above(it, x, it.nodes[x * NODE + LEFT], rest, since)
        else:
            rest = above(it, x, rest, it.nodes[x * NODE + RIGHT], since)
    return rest


@kernel
def sorted_in(it: EngineArrays, tree: i64, x: i64, since: i64) -> i64:
    """A tree by value with a node that is in none yet."""
    value = it.nodes[x * NODE + VALUE]
    lower = part(it, tree, value, since, 0)
    upper = part(it, tree, value, since, 1)
    return beside(it, beside(it, lower, x, since), upper, since)


@kernel
def fitting(it: EngineArrays, tree: i64, compares: i64, value: i64, since: i64) -> i64:
    """Of a tree by value, what compares so with a value."""
    if compares == LESS:
        return part(it, tree, value, since, 0)
    if compares == AT_LEAST:
        return part(it, tree, value, since, 1)
    if compares == GREATER:
        return 0 if value == MOST else part(it, tree, value + 1, since, 1)
    found = part(it, tree, value, since, 1) if compares == EQUAL else tree
    return found if value == MOST else part(it, found, value + 1, since, 0)
