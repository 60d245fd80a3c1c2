"""What nodes say to each other about groups. Nothing here is trusted yet.

    JoinGroup, GroupJoined        asked of the node of a source, and answered: a member, by the number of its lane
    Deal, Probe, Over             posted to the node of a member: events; how many there were; it is none any more
    Handled, Standing, Again,     posted to the node of a source: these are done; so far it is; what came after that is
    Leave                         missing; it goes

A lane numbers what goes along it, from 1 on, for one member at one node of sources. Posts may be lost with a link:
`Probe` and `Standing` find that out, and what is missing goes again.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import FrameError
from headwater.federation.wire.control import MAX_POST, Name, Number
from headwater.federation.wire.requests import Request, Wish

KIND = "groups"
MOST_EVENTS = 512  # in one post
MOST_NUMBERS = 8192
PIECE = 128 << 10  # bytes of an event that go in one post; what is larger goes in several
MOST_BYTES = 64 << 20  # of one event in pieces
MOST_SOURCES = 65_536  # of a lane, whose names are known at its other end: the last that were said
MAX_TYPE = 256 << 10

Lane = Annotated[int, Meta(ge=1, le=2**53)]
_Numbers = Annotated[list[Number], Meta(max_length=MOST_NUMBERS)]
_Why = Annotated[str, Meta(max_length=2000)]
# Events of one source and time: the source by its number in the lane, the time, the events' numbers at the source and
# their bytes, whether somebody may have had them; and, of a single one, whether the next one has more of its bytes.
DealtRun = tuple[
    Number,
    int,
    Annotated[list[Number], Meta(max_length=MOST_EVENTS)],
    Annotated[list[bytes], Meta(max_length=MOST_EVENTS)],
    bool,
    bool,
]


class GroupJoined(msgspec.Struct, frozen=True, tag=True):
    """It is a member from here on; `events`: the type of those that come, None for bytes."""

    events: Annotated[bytes, Meta(max_length=MAX_TYPE)] | None = None


class JoinGroup(Request, frozen=True, tag=True):
    """A sink of the node that asks wants to be a member of a group of a channel. `wish`: what its members want."""

    answer: ClassVar[Any] = GroupJoined
    channel: Name
    group: Name
    lane: Lane
    wish: Wish
    credit: Annotated[int, Meta(ge=1, le=2**31)]
    key: Annotated[str, Meta(max_length=1000)] = ""
    durable: bool = False
    member: Name = ""  # what the sink is called there, for people


class Deal(msgspec.Struct, frozen=True, array_like=True, tag="deal"):
    """Events for a member, numbered from `first` on, in runs; `sources`: names of those that were not named before."""

    lane: Lane
    first: Annotated[int, Meta(ge=1, le=2**62)]
    runs: Annotated[list[DealtRun], Meta(max_length=MOST_EVENTS)]
    sources: Annotated[dict[Number, Name], Meta(max_length=MOST_EVENTS)] = {}

    @property
    def events(self) -> int:
        """How many there are."""
        return sum([len(run[3]) for run in self.runs])

    def check(self) -> None:
        """FrameError where it is not what a node that keeps to the rules would send."""
        for _, _, seqs, records, _, more in self.runs:
            if len(seqs) != len(records) or not records or (more and len(records) != 1):
                raise FrameError(
                    f"groups: expected runs with a number and a record for each event, found {len(seqs)} and "
                    f"{len(records)}{' with more to come' if more else ''}"
                )
        if self.events > MOST_EVENTS:
            raise FrameError(f"groups: expected at most {MOST_EVENTS} events in a post, found {self.events}")


class Probe(msgspec.Struct, frozen=True, array_like=True, tag="probe"):
    """So many went along the lane: how far is it?"""

    lane: Lane
    last: Number


class Over(msgspec.Struct, frozen=True, array_like=True, tag="over"):
    """There is no such member here, or not any more; with a reason, it may not be one."""

    lane: Lane
    why: _Why = ""


class Handled(msgspec.Struct, frozen=True, array_like=True, tag="handled"):
    """These are done."""

    lane: Lane
    numbers: _Numbers


class Standing(msgspec.Struct, frozen=True, array_like=True, tag="standing"):
    """All up to `received` have come, and all of them are done but these."""

    lane: Lane
    received: Number
    open: _Numbers = []


class Again(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    """What went after this has not come."""

    lane: Lane
    after: Number


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """The member is none any more, but for what it is finishing: that it will say to be handled."""

    lane: Lane
    finishing: _Numbers = []


GroupPost = Deal | Probe | Over | Handled | Standing | Again | Leave
TO_SOURCE = (Handled, Standing, Again, Leave)
_encode = msgspec.msgpack.Encoder().encode
_DECODER = msgpack_decoder(GroupPost)


def encode(post: GroupPost) -> bytes:
    """A post as bytes; FrameError if it is too long."""
    data = _encode(post)
    if len(data) > MAX_POST:
        raise FrameError(f"groups: expected at most {MAX_POST:,} bytes to post, found {len(data):,}")
    return data


def decode(data: bytes) -> GroupPost:
    """From bytes that may be anything; FrameError if they are no post."""
    try:
        found: GroupPost = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"groups: expected a post, found: {error}") from None
    if isinstance(found, Deal):
        found.check()
    return found


__all__ = [
    "KIND",
    "MOST_EVENTS",
    "MOST_NUMBERS",
    "PIECE",
    "TO_SOURCE",
    "Again",
    "Deal",
    "DealtRun",
    "GroupJoined",
    "GroupPost",
    "Handled",
    "JoinGroup",
    "Lane",
    "Leave",
    "Over",
    "Probe",
    "Standing",
    "decode",
    "encode",
]
