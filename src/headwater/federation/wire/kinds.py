"""What every frame shares: its kinds, its bounds and its prefix.

On a stream a frame is `u32 length | u8 kind | body`, all numbers little endian; the length counts kind and body.

    CONTROL  1   a control message, msgpack                                        control.py
    EVENTS   2   a run of events of one source                                     events.py
    BATCH    3   rows of one source, an Arrow record batch                         batch.py
    ACK      4   (source u32, number u64)...                                       frames.py
             5   (was used once)
    PROMISE  6   (source u32, time i64)...
    PING     7   u64
    PONG     8   u64
    EVENT    9   one event of one source, in the fewest bytes                      events.py
    RETOLD  10   the same, of an event that may have arrived before
    BODY    11   as EVENT, the record without its header                           headerless.py
    REBODY  12   as RETOLD, the record without its header
    TIMES   13   (source u32, time i64, time i64)...                               frames.py

    kind | 0x80  the body is compressed: codec u8, u32 length of the body, compressed body
"""

from __future__ import annotations

import struct
from functools import cache

from headwater.errors import FrameError
from headwater.extras import how_to_install, installed

CONTROL, EVENTS, BATCH, ACK, _, PROMISE, PING, PONG, EVENT, RETOLD, BODY, REBODY, TIMES = range(1, 14)
COMPRESSED = 0x80

RESENT = 1  # these events may have arrived before
TAGGED = 2  # each record says which interests it is for
UNIFORM = 4  # all records have the same length
CONTIGUOUS = 8  # the sequence numbers follow one another
TOGETHER = 16  # all have the same stamp
BARE = 32  # the records are without their headers

MAX_FRAME = 16 << 20  # kind and body, as sent and after decompression
MAX_RUN = 1 << 16  # events in a frame: what a decoded frame takes in memory is bounded with it
MAX_TAGS = 1 << 18  # tags in a frame
MAX_ROWS = 1 << 20  # rows of a batch in a frame
MAX_PAIRS = 1 << 16  # pairs in an ACK or a PROMISE
MAX_SEQ = 1 << 62
AWAY = 0  # in the place of a promised time: the origin is not there, and promises nothing more for now
U32 = (1 << 32) - 1
GROUP = 1 << 31  # in the number of a source: its frames that go to a multicast group, which are numbered by themselves
# In a tag: this is of the past, for the interest of that tag. Two more say how many are still to come, and up to which
# sink they are for.
PAST = 1 << 31
# In a tag: this is the event itself, for the interest of that tag, which else makes marks of events.
WHOLE = 1 << 30
MAX_BASE = (1 << 63) - 1 - U32  # a first stamp that a difference cannot carry beyond 64 bits

PREFIX = struct.Struct("<I")

Data = bytes | bytearray | memoryview


def too_large(what: str, size: int, limit: int) -> FrameError:
    """The error for a frame that is more than one frame may be, on either side."""
    return FrameError(f"{what}: expected at most {limit:,} bytes in a frame, found {size:,}; split it")


@cache
def takes_columns() -> bool:
    """Whether this node can read columns, and compressed frames."""
    return installed("arrow")


def check_columns(what: str) -> None:
    """FrameError unless this node can read what needs Arrow; its card says so, and other nodes keep to it."""
    if not takes_columns():
        raise FrameError(f"{what}: expected plain records, for Arrow is not installed here: {how_to_install('arrow')}")


def truncated(what: str, need: int, found: int) -> FrameError:
    """The error for a frame that ends before what it announces."""
    return FrameError(f"{what}: expected at least {need:,} bytes, found {found:,}")
