"""Control messages of a direct stream: a tagged union in msgpack, checked and bounded.

A new message is one more Struct with a tag and its place in `Control`. Unknown fields are skipped, so that a newer
node may say more; a field that a message cannot do without is a new `VERSION`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import FrameError
from headwater.federation.wire.kinds import CONTROL, MAX_SEQ, PREFIX, U32, Data
from headwater.formats import FRAMES

VERSION = FRAMES
MAX_CONTROL = 1 << 20  # bytes of a message
MAX_POSITIONS = 1 << 16
MAX_POST = 256 << 10  # bytes of what a service of a node says to that of another

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=4096)]
Blob = Annotated[bytes, Meta(max_length=8192)]
Number = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
Source = Annotated[int, Meta(ge=0, le=U32)]
Positions = Annotated[dict[Source, Number], Meta(max_length=MAX_POSITIONS)]
MAX_DEEDS = 32  # nodes that a source was at, as far as they have to be named
Deed = Annotated[bytes, Meta(max_length=20 << 10)]  # a signed document


class Resume(msgspec.Struct, tag_field="is", tag="resume", frozen=True):
    """The number of the last frame received of each source; `memory`: what the other one has asked for in an earlier
    one may be given up by now."""

    positions: Positions
    memory: Number = 0


class Repair(msgspec.Struct, tag_field="is", tag="repair", frozen=True):
    """Send again what this source sent after `after`, up to and with `upto`."""

    source: Source
    after: Number
    upto: Number


class Again(msgspec.Struct, tag_field="is", tag="again", frozen=True):
    """Of a source that is logged, begin again after these events, by tag (0 for all filters): a durable sink was
    paused, and could not keep what came. `since` is by tag from where on the state of an interest counts."""

    source: Source
    number: Number
    after: Positions
    since: Positions = {}


class Challenge(msgspec.Struct, tag_field="is", tag="challenge", frozen=True):
    """The first that is said on a stream, by the node that was called: a number to be signed."""

    nonce: Blob


class Greeting(msgspec.Struct, tag_field="is", tag="greeting", frozen=True):
    """Who speaks, proven: a sealed envelope."""

    envelope: Annotated[bytes, Meta(max_length=1 << 16)]


class SourceAd(msgspec.Struct, frozen=True, array_like=True):
    """A source that a node advertises."""

    sid: Source
    name: Name
    channel: Name
    zones: Annotated[list[Name], Meta(max_length=4096)] = []
    priority: int = 0
    origin: Text = ""  # of a source that a gateway passes on: its key in the federation it comes from
    path: Annotated[list[Name], Meta(max_length=256)] = []  # the federations its events have come through
    log: Annotated[str, Meta(max_length=64)] = ""  # of a source that is logged: which log that is, in whatever process
    filters: Annotated[list[Name], Meta(max_length=256)] = []  # what gateways have let through: a fingerprint of each
    home: Text = ""  # of a logged source that has moved: the key under which sinks keep how far they are with it
    term: Number = 0  # how often it has moved


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """Where the frames of a logged source begin, or begin again: all that the wishes of a version pass comes after
    these events, by tag (0 for all filters), and after `rest` for tags that are not named. Later ones of a process have
    higher numbers. Who has had less than that has missed something, and asks for it (`Again`)."""

    number: Number
    version: Number
    rest: Number
    after: Positions = {}

    def of(self, tag: int) -> int:
        """The event after which all comes for a tag."""
        return self.after.get(tag, self.rest)


class Announce(msgspec.Struct, tag_field="is", tag="announce", frozen=True):
    """Events of this source follow: `next` is the number of the first frame, `dropped` the events that were lost."""

    ad: SourceAd
    type: Annotated[bytes, Meta(max_length=1 << 20)] | None
    next: Number
    dropped: Number = 0
    window: Number = 1 << 16  # events that may wait at the source for an acknowledgement
    group: bool = False  # of its frames that go to a multicast group
    live: Number = 0  # up to this event comes what durable sinks have missed: it is not for those that came later
    again: Number = 0  # the number of the `Again` that this answers
    point: Number | None = None  # of a logged source that was not announced before: the last event before wishes held
    deeds: Annotated[list[Deed], Meta(max_length=MAX_DEEDS)] = []  # of one that has moved: what proves that it may
    begins: Beginning | None = None  # of a logged source, unless this node is still to be told how far the other is


class Sent(msgspec.Struct, tag_field="is", tag="sent", frozen=True):
    """Of multicast: the last frame of each source that was sent, and how many events there were for this peer."""

    numbers: Positions
    totals: Positions = {}


class Ends(msgspec.Struct, tag_field="is", tag="ends", frozen=True):
    """No more events of this source will come."""

    source: Source
    over: bool = False  # for good; else it may come anew, from its first frame on, if it is wanted again


class Barrier(msgspec.Struct, tag_field="is", tag="mark", frozen=True):
    """The wishes of this version are in force after these events of each source; all from before them was sent.

    `since` is a time of the sender's clock, in nanoseconds, by which all of them were in force, and `first` whether
    nothing was published there before: who has to know what was not published looks back no further. What gateways
    there pass on is in force by then too, or `since` is NEVER; `gap` is when some of that was last not heard, and
    grows with another barrier of the same version, or of version 0 while that is still to come over a link."""

    channel: Name
    version: Number
    points: Positions
    since: Number = 0
    first: bool = False
    gap: Number = 0


class Bye(msgspec.Struct, tag_field="is", tag="bye", frozen=True):
    """The stream ends here, and why."""

    reason: Text = ""


class Post(msgspec.Struct, tag_field="is", tag="post", frozen=True):
    """What a service of this node says to that of another one, which is named by `kind`. It may be lost with the link,
    and is never sent again: whoever posts can do without an answer."""

    kind: Name
    body: Annotated[bytes, Meta(max_length=MAX_POST)]


Control = Again | Challenge | Greeting | Announce | Sent | Ends | Barrier | Resume | Repair | Bye | Post

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(Control)


def encode_control(message: Control) -> bytes:
    """The frame of a control message. One that the peer would refuse is a FrameError here."""
    try:
        body = _ENCODER.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise FrameError(f"control: {type(message).__name__} cannot be sent: {error}") from None
    decode_control(body, 0)
    return b"".join((PREFIX.pack(len(body) + 1), _KIND, body))


def decode_control(data: Data, at: int) -> Control:
    """The message of a CONTROL whose body begins at `at`."""
    size = len(data) - at
    if size > MAX_CONTROL:
        raise FrameError(f"control: expected at most {MAX_CONTROL:,} bytes, found {size:,}")
    try:
        message: Control = _DECODER.decode(memoryview(data)[at:])
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"control: expected a message of version {VERSION}, found: {error}") from None
    return message


_KIND = bytes((CONTROL,))
