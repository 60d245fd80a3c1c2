"""Which partition a key is: a hash table with open addressing, kept at most half full.

table   a word for each place: the partition + 1, 0 where there is none, -1 where there was one
keys    `KEY_WORDS` words for each partition: numbers by their bits, texts by the number they were given
free    partitions that were let go, to be used again
"""

from __future__ import annotations

from headwater.native.subset import i64, i64s, kernel, logical_shift
from headwater.patterns.engine.layout import FREE, KEY_WORDS, MADE, PARTITION_ROOM, PARTITIONS, TABLE_SIZE

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
