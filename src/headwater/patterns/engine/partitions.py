"""Which partition a key is: a hash table with open addressing, kept at most half full.

table   a word for each place: the partition + 1, 0 where there is none, -1 where there was one
keys    `KEY_WORDS` words for each partition: numbers by their bits, texts by the number they were given
free    partitions that were let go, to be used again
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, i64s, kernel, logical_shift
from headwater.patterns.engine.layout import (
    BLOCK,
    DUE,
    FIRED,
    FIRST,
    FREE,
    KEY_WORDS,
    LEAST,
    LIVE,
    MADE,
    MOST,
    PARTITION_ROOM,
    PARTITIONS,
    ROW,
    ROW_LETTER,
    ROW_PARTITION,
    SOONEST,
    STRIDE,
    TABLE_SIZE,
)

_MIX = -7046029254386353131  # 2**64 divided by the golden ratio: bits of all places come to all others
_MIX_AGAIN = -4417276706812531889
NO_ROOM = -2
ABSENT_KEY = -1


@kernel
def key_hash(keys: i64s, at: i64, words: i64) -> i64:
    """Mix the words of a key: every bit counts, as keys are often small numbers in a row."""
    h = 0
    for k in range(words):
        h = (h ^ keys[at + k]) * _MIX
        h = (h ^ logical_shift(h, 32)) * _MIX_AGAIN
        h = h ^ logical_shift(h, 29)
    return h


@kernel
def same_key(keys: i64s, wanted: i64s, partition: i64, at: i64, words: i64) -> i64:
    """Whether a partition has the key that is wanted, word for word; floats have one form each, so this is
    equality."""
    for k in range(words):
        if keys[partition * words + k] != wanted[at + k]:
            return 0
    return 1


@kernel
def locate(table: i64s, keys: i64s, free: i64s, control: i64s, wanted: i64s, row: i64, make: i64) -> i64:
    """The partition of the key in row `row` of `wanted`. One that is not there is made if `make` is 1: NO_ROOM where
    there is no room for it; else ABSENT_KEY."""
    words = control[KEY_WORDS]
    mask = control[TABLE_SIZE] - 1
    at = row * words
    place = key_hash(wanted, at, words) & mask
    gap = -1
    while True:
        found = table[place]
        if found == 0:
            break
        if found == -1:
            if gap < 0:
                gap = place
        elif same_key(keys, wanted, found - 1, at, words) == 1:
            return found - 1
        place = (place + 1) & mask
    if make == 0:
        return ABSENT_KEY
    partition = control[PARTITIONS]
    if control[FREE] > 0:
        control[FREE] -= 1
        partition = free[control[FREE]]
    elif partition >= control[PARTITION_ROOM]:
        return NO_ROOM
    else:
        control[PARTITIONS] = partition + 1
    control[MADE] = 1
    table[place if gap < 0 else gap] = partition + 1
    for k in range(words):
        keys[partition * words + k] = wanted[at + k]
    return partition


@kernel
def forget(table: i64s, keys: i64s, free: i64s, control: i64s, partition: i64) -> i64:
    """Let a partition go; its number is given to another one."""
    words = control[KEY_WORDS]
    mask = control[TABLE_SIZE] - 1
    place = key_hash(keys, partition * words, words) & mask
    while table[place] != partition + 1:
        if table[place] == 0:
            return 0
        place = (place + 1) & mask
    table[place] = -1
    free[control[FREE]] = partition
    control[FREE] += 1
    return 1


@kernel
def rehash(table: i64s, keys: i64s, live: i64s, control: i64s, partitions: i64) -> i64:
    """Fill an empty table with the partitions that are live."""
    words = control[KEY_WORDS]
    mask = control[TABLE_SIZE] - 1
    for partition in range(partitions):
        if live[partition] != 0:
            place = key_hash(keys, partition * words, words) & mask
            while table[place] != 0:
                place = (place + 1) & mask
            table[place] = partition + 1
    return 0


# ── rows ──


@kernel
def begin_partition(parts: i64s, control: i64s, partition: i64) -> i64:
    """Clear the words of a partition that has just got its place, which another may have had before."""
    base = partition * control[STRIDE]
    for k in range(control[STRIDE]):
        parts[base + k] = 0
    parts[base + DUE] = MOST
    parts[base + FIRED] = LEAST
    parts[base + LIVE] = 1
    return 0


@entry
def place_rows(
    table: i64s,
    keys: i64s,
    free: i64s,
    parts: i64s,
    control: i64s,
    wanted: i64s,
    rows: i64s,
    first: i64,
    count: i64,
) -> i64:
    """Give rows their partitions, -1 where there is none that they could matter to; the number of the row before which
    room ran out, or `count`."""
    for i in range(first, count):
        control[MADE] = 0
        begins = 1 if rows[i * ROW + ROW_LETTER] & control[FIRST] != 0 else 0
        found = locate(table, keys, free, control, wanted, i, begins)
        if found == NO_ROOM:
            return i
        if control[MADE] == 1:
            begin_partition(parts, control, found)
        rows[i * ROW + ROW_PARTITION] = found
    return count


# ── what is due ──


@kernel
def lower_due(parts: i64s, soonest: i64s, control: i64s, partition: i64, due: i64) -> i64:
    """Something of a partition is due sooner than anything before."""
    parts[partition * control[STRIDE] + DUE] = due
    if due < soonest[partition >> BLOCK]:
        soonest[partition >> BLOCK] = due
    if due < control[SOONEST]:
        control[SOONEST] = due
    return 0


@entry
def next_due_partition(parts: i64s, soonest: i64s, control: i64s, partition: i64, until: i64) -> i64:
    """The first partition from this one on that has something due before `until`, -1 if there is none. Blocks in which
    nothing can be are passed over; of one that is gone through from its first partition, what is soonest is known
    afterwards, as it is of all where nothing was due."""
    count = control[PARTITIONS]
    stride = control[STRIDE]
    p = partition
    while p < count:
        block = p >> BLOCK
        end = (block + 1) << BLOCK
        if end > count:
            end = count
        if soonest[block] >= until:
            p = end
        else:
            if p == block << BLOCK:
                least = MOST
                for k in range(p, end):
                    if parts[k * stride + LIVE] != 0 and parts[k * stride + DUE] < least:
                        least = parts[k * stride + DUE]
                soonest[block] = least
            while p < end:
                if parts[p * stride + LIVE] != 0 and parts[p * stride + DUE] < until:
                    return p
                p += 1
    if partition == 0:
        least = MOST
        for b in range((count + (1 << BLOCK) - 1) >> BLOCK):
            if soonest[b] < least:
                least = soonest[b]
        control[SOONEST] = least
    return -1
