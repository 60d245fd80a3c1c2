"""Where the kernels find things: the words of their tables, the codes of ranks, the flags of predicates.

An event's value of an attribute becomes a *rank* among the segment's constants of it, sorted: `2i + 1` if it equals
constant `i`, `2i` if it lies just below. A predicate is then an interval of ranks, `lo` and `span`, which may wrap
around so that one constant, or NaN and all that is small, can be left out or let in.
"""

from __future__ import annotations

# ── ranks ──

TOP = 0x7FFF_FFFF  # above every rank of a value that can be ordered
NAN = 0x8000_0000
BROKEN = 0xFFFF_FFFC  # as good as missing: a text that lies outside the record
UNKNOWN = 0xFFFF_FFFD  # native code has not been asked yet
NEVER = 0xFFFF_FFFE  # no event has it
MISSING = 0xFFFF_FFFF
FULL = 0xFFFF_FFFE  # a span that leaves out one rank only: the one before `lo`

# ── flags of a predicate's attribute ──

PLAIN = 0x2000_0000  # below: an interval of ranks, which never holds MISSING
WRAPS = 0x2000_0000  # an interval that wraps around
OPAQUE = 0x4000_0000  # the attribute's value comes from native code
SET = 0x8000_0000  # lo and span are the start and length of a list of ranks
NOT = 0x2000_0000  # with SET: none of them
INDEX = 0x1FFF_FFFF

# ── kinds of attributes, ways to load and convert numbers ──

NUMBER, TEXT_EQUAL, TEXT_ORDER, PRESENCE, OPAQUE_KIND = range(5)
SIGNED, UNSIGNED, FLOAT, SIGNED_AS_FLOAT, UNSIGNED_AS_FLOAT = range(5)
LOADS = {"i8": 0, "i16": 1, "i32": 2, "i64": 3, "u8": 4, "u16": 5, "u32": 6, "u64": 3, "f32": 7, "f64": 3, "bool": 8}

# ── words ──

# the whole matching
C_FIXED, C_MAGIC, C_FINGERPRINT, C_SEGMENTS, C_SEGREFS, C_OPAQUES, C_OPAQUE_COUNT, C_COUNTERS = range(8)
C_ATTRS, C_COUNTING, C_EMPTY, C_EXACT, C_UNSPLIT, C_TOTALS, C_WEIGHTS, C_WORDS = range(8, 16)

# a segment as one matching uses it
R_SEGMENT, R_DEAD, R_SCAN, R_WORDS = range(4)

# a segment
S_COUNT, S_ATTRS, S_DESCRIPTORS, S_STARTS, S_PREDICATES, S_PAYLOADS, S_SLOTS, S_POOL = range(8)
S_ALWAYS, S_KEYED, S_KEYS, S_SWEPT, S_WIDTH, S_FIRSTS, S_ROWED, S_ROWS = range(8, 16)
S_VALID, S_STATS, S_WORDS = range(16, 19)

# an attribute of a segment
A_KIND, A_LOAD, A_CONVERT, A_CHECK, A_OFFSET, A_KEYS, A_COUNT, A_BLOB = 0, 1, 2, 3, 7, 8, 9, 10
A_TABLE, A_MASK, A_OPAQUE, A_WORDS = 11, 12, 13, 14

# an attribute's equalities: the attribute, and where each constant's entries start
K_ATTR, K_STARTS, K_SIZE, K_WORDS = range(4)

# an attribute's rows of bits: one for each span of ranks, then for missing, then for NaN
B_ATTR, B_ROWS, B_SHIFT, B_COUNT, B_WORDS = range(5)

# a column of a batch
D_DATA, D_OFFSETS, D_VALID, D_VALID_OFFSET, D_WITHIN, D_WITHIN_OFFSET, D_CODES, D_MEMBERS, D_WORDS = range(9)

# what is counted: of a segment, and of an entry
T_EVENTS, T_CANDIDATES, T_HITS, T_WORDS = range(4)
N_UNDECIDED, N_MALFORMED, N_BASE, N_WEIGHT, N_FAULTS = range(5)

CHUNK = 16  # words of bits that are worked on at a time: 1024 entries
SLOT_BITS = 12  # counters of 2^12 words lie together
