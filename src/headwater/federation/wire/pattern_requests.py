"""What nodes ask each other about patterns: run one, change it, how it is, end it, hand its state over. Nothing here is
trusted yet.

    RunPattern      have the other node run a pattern, whose events are all there: only its matches cross
    ChangePattern   other values of its parameters
    PatternReport   how it is: also who has a pattern of that name, and since when
    StopPattern     end it; with `hand_over` its state is kept for a moment, for the node that goes on with it
    PatternState    a page of that state
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.federation.wire.control import Name, Number
from headwater.federation.wire.requests import Accepted, Lease, Request, _unpack, pack

MAX_PATTERN = 1 << 20  # bytes of a pattern that another node may send; the owner's budget is less
MAX_PARAMS = 1 << 20
MAX_STATE = 64 << 20  # bytes of a state that travels; a larger one begins anew where the pattern goes
PAGE_BYTES = 256 << 10  # of it in one answer
MAX_REPORT = 64 << 10

_Program = Annotated[bytes, Meta(max_length=MAX_PATTERN)]
_Params = Annotated[bytes, Meta(max_length=MAX_PARAMS)]
_Points = Annotated[dict[str, Number], Meta(max_length=100_000)]


# ── answers ──


class PatternRuns(msgspec.Struct, frozen=True, tag=True):
    """It runs there. `since`: when its name was claimed, in microseconds; `resumed`: it goes on from what was kept."""

    since: Number
    resumed: bool = False
    warnings: Annotated[list[str], Meta(max_length=100)] = []


class PatternChanged(msgspec.Struct, frozen=True, tag=True):
    """The last event of each source before the new values."""

    points: _Points = {}


class PatternIs(msgspec.Struct, frozen=True, tag=True):
    """Whether there is one of that name, for whom (a node's id, nothing: itself), which one, since when, and plain
    values about it."""

    here: bool
    owner: str = ""
    fingerprint: Annotated[bytes, Meta(max_length=64)] = b""
    since: Number = 0
    values: Annotated[bytes, Meta(max_length=MAX_REPORT)] = b""


class PatternStopped(msgspec.Struct, frozen=True, tag=True):
    """It has ended. `size`: of its state, which can be had page by page; 0: none is handed over, and `why`."""

    size: Number = 0
    why: Annotated[str, Meta(max_length=1000)] = ""


class PatternPage(msgspec.Struct, frozen=True, tag=True):
    """A part of a state."""

    data: Annotated[bytes, Meta(max_length=PAGE_BYTES)]


# ── requests ──


class RunPattern(Request, frozen=True, tag=True):
    """Run a pattern and publish its matches on channel `to`, at a source with its name. Asked again by the same node
    with the same pattern, it goes on as it is."""

    answer: ClassVar[Any] = PatternRuns
    name: Name
    to: Name
    kind: Annotated[str, Meta(max_length=100)]
    pattern: _Program
    params: _Params
    lease: Lease = 30.0  # wanted; the owner's is the most
    fresh: bool = False  # what an earlier one of that name has left is not gone on with


class ChangePattern(Request, frozen=True, tag=True):
    """Other values of parameters, at a point of every source."""

    answer: ClassVar[Any] = PatternChanged
    name: Name
    params: _Params


class PatternReport(Request, frozen=True, tag=True):
    """How a pattern is."""

    answer: ClassVar[Any] = PatternIs
    name: Name


class StopPattern(Request, frozen=True, tag=True):
    """End a pattern that this node has asked for."""

    answer: ClassVar[Any] = PatternStopped
    name: Name
    hand_over: bool = False


class PatternState(Request, frozen=True, tag=True):
    """A page of the state of a pattern that was stopped to be handed over."""

    answer: ClassVar[Any] = PatternPage
    name: Name
    after: Number


_VALUES = msgpack_decoder(dict[str, Any])


def pack_values(values: dict[str, Any]) -> bytes:
    """Plain values of a report; of more than fits, nothing."""
    data = pack(values)
    return data if len(data) <= MAX_REPORT else b""


def unpack_values(data: bytes) -> dict[str, Any]:
    """The values of a report; FrameError if they are none."""
    found: dict[str, Any] = _unpack(_VALUES, data, "the values of a report") if data else {}
    return found


__all__ = [
    "Accepted",
    "ChangePattern",
    "PatternChanged",
    "PatternIs",
    "PatternPage",
    "PatternReport",
    "PatternRuns",
    "PatternState",
    "PatternStopped",
    "RunPattern",
    "StopPattern",
    "pack_values",
    "unpack_values",
]
