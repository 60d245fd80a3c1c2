"""Where everything is in the engines' arrays: offsets in records of words, and the words that say how an engine is set.

All arrays are of int64, so a snapshot is their bytes. Number 0 is no node, no cell, no group: counting begins at 1.
"""

from __future__ import annotations

# A row, as kernels take it: its partition, the set of elements that it fits by itself, its event and its time.
ROW_PARTITION, ROW_LETTER, ROW_EVENT, ROW_TIME, ROW = 0, 1, 2, 3, 4

# The head of a partition; lists follow.
ROWS = 0  # rows it has had
STARTED = 1  # 1 where it begins once and has begun
DUE = 2  # no absence of it is to be asserted before this
FIRED = 3  # absences of runs that began before this are asserted
TRAIL = 4  # runs that wait for absence
LIVE = 5  # 1 while it has a key; what is let go is 0
LISTS = 6

# Control words.
NODES, NODE_ROOM, NODE_NEED = 0, 1, 2  # nodes made, nodes there is room for, nodes that one row may need
FINALS, FINAL_ROOM, FINAL_NEED = 3, 4, 5
WINDOW_KIND, WINDOW = 6, 7
BEGIN_ONCE = 8
STATES, STRIDE = 9, 10  # states, words of a partition
ABSENT = 11  # the set of elements that may not follow, 0: none
FIRST = 12  # the set of elements that begin
LATEST = 13  # the time of the last row
ENUMERATED, STACK_TOP, OUT_TOP, MATCH_TOP = 14, 15, 16, 17
STACK_ROOM, PATH_ROOM, OUT_ROOM, MATCH_ROOM = 18, 19, 20, 21
TABLE_SIZE, PARTITIONS, PARTITION_ROOM, KEY_WORDS, FREE = 22, 23, 24, 25, 26
CELLS, CELL_ROOM, GROUPS, GROUP_ROOM = 27, 28, 29, 30
RULE, REUSE, POINTS, TAPES, REGISTERS = 31, 32, 33, 34, 35
RUNS_LIMIT, GIVEN_UP, UNSKIPPED = 36, 37, 38
FREE_CELL, FREE_GROUP, USED_CELLS, CELL_NEED = 40, 41, 42, 43
EVERY, TELL_APART, RULE_ELEMENTS, ROW_NODE, WRITTEN, COLUMNS = 44, 45, 46, 47, 48, 49
ALIKE = 50  # 1 where runs that did the same may come twice
LOG_FIRST, LOG_END, LOG_ROOM = 53, 54, 55  # numbers of the rows in a log, and how many there is room for
UNLINKED = 56  # the set of elements that have nothing to do with the values that hold runs together
UNPLACED = 57  # whether it was room for a partition that ran out
SOONEST = 52  # nothing at all is due before
ALL_RUNS = 51  # runs that there may be in all partitions
MADE = 39  # whether the partition that was asked for last is new
CONTROL = 64

NO_WINDOW, BY_TIME, BY_ROWS = 0, 1, 2
LEAST, MOST = -(1 << 63), (1 << 63) - 1

# `soonest` has a word for each block of partitions: nothing in it is due before. A block is 1 << BLOCK partitions.
BLOCK = 8

# What came of one row: whether its event is held now, and whether there is something to be looked at; below 0 where it
# did not fit, and room has to be made first.
HELD, LOOK, NO_FIT = 1, 2, -1

# Why a kernel stopped before its end.
DONE, ROOM_NODES, ROOM_FINALS, ROOM_OUT, ROOM_STACK, ROOM_PATH = 0, 1, 2, 3, 4, 5
