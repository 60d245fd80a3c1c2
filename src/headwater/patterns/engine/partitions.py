"""Which partition a key is: a hash table with open addressing, kept at most half full.

table   a word for each place: the partition + 1, 0 where there is none; nothing is taken out of it, it is filled anew
keys    `KEY_WORDS` words for each partition: numbers by their bits, texts by the number they were given
free    partitions that were let go, to be used again
"""

from __future__ import annotations

from headwater.native.subset import entry, i64, i64s, kernel, logical_shift
from headwater.patterns.engine.arrays import EngineArrays
from headwater.patterns.engine.layout import (
    BLOCK,
    DUE,
    FINALS,
    FIRED,
    FIRST,
    FREE,
    GIVEN_UP,
    HELD,
    KEY_WORDS,
    LEAST,
    LIVE,
    LOOK,
    MADE,
    MOST,
    PARTITION_ROOM,
    PARTITIONS,
    ROW,
    ROW_EVENT,
    ROW_LETTER,
    ROW_PARTITION,
    ROW_TIME,
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
def same_key(it: EngineArrays, partition: i64, at: i64, words: i64) -> i64:
    """Whether a partition has the key that is wanted, word for word; floats have one form each, so this is
    equality."""
    for k in range(words):
        if it.keys[partition * words + k] != it.wanted[at + k]:
            return 0
    return 1


@kernel
def locate(it: EngineArrays, row: i64, make: i64) -> i64:
    """The partition of the key in row `row` of `wanted`. One that is not there is made if `make` is 1: NO_ROOM where
    there is no room for it; else ABSENT_KEY."""
    words = it.control[KEY_WORDS]
    mask = it.control[TABLE_SIZE] - 1
    at = row * words
    place = key_hash(it.wanted, at, words) & mask
    while it.table[place] != 0:
        found = it.table[place] - 1
        if same_key(it, found, at, words) == 1:
            return found
        place = (place + 1) & mask
    if make == 0:
        return ABSENT_KEY
    partition = it.control[PARTITIONS]
    if it.control[FREE] > 0:
        it.control[FREE] -= 1
        partition = it.free[it.control[FREE]]
    elif partition >= it.control[PARTITION_ROOM]:
        return NO_ROOM
    else:
        it.control[PARTITIONS] = partition + 1
    it.control[MADE] = 1
    it.table[place] = partition + 1
    for k in range(words):
        it.keys[partition * words + k] = it.wanted[at + k]
    return partition


@kernel
def rehash(it: EngineArrays, partitions: i64) -> i64:
    """Empty the table, and fill it with the partitions that are live."""
    words = it.control[KEY_WORDS]
    mask = it.control[TABLE_SIZE] - 1
    for place in range(mask + 1):
        it.table[place] = 0
    for partition in range(partitions):
        if it.live[partition] != 0:
            at = key_hash(it.keys, partition * words, words) & mask
            while it.table[at] != 0:
                at = (at + 1) & mask
            it.table[at] = partition + 1
    return 0


# ── rows ──


@kernel
def begin_partition(it: EngineArrays, partition: i64) -> i64:
    """Clear the words of a partition that has just got its place, which another may have had before."""
    base = partition * it.control[STRIDE]
    for k in range(it.control[STRIDE]):
        it.parts[base + k] = 0
    it.parts[base + DUE] = MOST
    it.parts[base + FIRED] = LEAST
    it.parts[base + LIVE] = 1
    return 0


@kernel
def partition_of(it: EngineArrays, row: i64, letter: i64) -> i64:
    """The partition of the key of a row, which is made where the row can begin something; MADE says whether."""
    it.control[MADE] = 0
    found = locate(it, row, 1 if letter & it.control[FIRST] != 0 else 0)
    if it.control[MADE] == 1:
        begin_partition(it, found)
    return found


@entry
def place_rows(it: EngineArrays, first: i64, count: i64) -> i64:
    """Give rows their partitions, -1 where there is none that they could matter to; the number of the row before which
    room ran out, or `count`."""
    for i in range(first, count):
        found = partition_of(it, i, it.rows[i * ROW + ROW_LETTER])
        if found == NO_ROOM:
            return i
        it.rows[i * ROW + ROW_PARTITION] = found
    return count


@kernel
def put_row(it: EngineArrays, letter: i64, event: i64, time: i64) -> i64:
    """One row that comes by itself."""
    it.rows[ROW_LETTER] = letter
    it.rows[ROW_EVENT] = event
    it.rows[ROW_TIME] = time
    return 0


@kernel
def came_of(it: EngineArrays, made: i64) -> i64:
    """What came of one row that has `made` something that holds its event, or nothing (0)."""
    held = HELD if made != 0 else 0
    return held | LOOK if it.control[FINALS] != 0 or it.control[GIVEN_UP] != 0 else held


# ── what is due ──


@kernel
def lower_due(it: EngineArrays, partition: i64, due: i64) -> i64:
    """Something of a partition is due sooner than anything before."""
    it.parts[partition * it.control[STRIDE] + DUE] = due
    if due < it.soonest[partition >> BLOCK]:
        it.soonest[partition >> BLOCK] = due
    if due < it.control[SOONEST]:
        it.control[SOONEST] = due
    return 0


@entry
def next_due_partition(it: EngineArrays, partition: i64, until: i64) -> i64:
    """The first partition from this one on that has something due before `until`, -1 if there is none. Blocks in which
    nothing can be are passed over; of one that is gone through from its first partition, what is soonest is known
    afterwards, as it is of all where nothing was due."""
    count = it.control[PARTITIONS]
    stride = it.control[STRIDE]
    p = partition
    while p < count:
        block = p >> BLOCK
        end = (block + 1) << BLOCK
        if end > count:
            end = count
        if it.soonest[block] >= until:
            p = end
        else:
            if p == block << BLOCK:
                least = MOST
                for k in range(p, end):
                    if it.parts[k * stride + LIVE] != 0 and it.parts[k * stride + DUE] < least:
                        least = it.parts[k * stride + DUE]
                it.soonest[block] = least
            while p < end:
                if it.parts[p * stride + LIVE] != 0 and it.parts[p * stride + DUE] < until:
                    return p
                p += 1
    if partition == 0:
        least = MOST
        for b in range((count + (1 << BLOCK) - 1) >> BLOCK):
            if it.soonest[b] < least:
                least = it.soonest[b]
        it.control[SOONEST] = least
    return -1
