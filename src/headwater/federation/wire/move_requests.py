"""What nodes ask each other about sinks that move, and what a token says of one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name, Number
from headwater.federation.wire.requests import MAX_LIST, Request

ID_BYTES, CLAIMANT_BYTES = 32, 16
MAX_INTEREST = 128 << 10  # bytes of a moved interest, and of its parameters

_Key = Annotated[str, Meta(max_length=2048)]
_Points = Annotated[dict[_Key, Number], Meta(max_length=MAX_LIST)]
_Bytes = Annotated[bytes, Meta(max_length=MAX_INTEREST)]


class SinkMove(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body of a token: a sink as it was when it left, complete but for its handler. `positions`: after which event
    of each logged source it goes on; `since`: from where on the state of its interest counts."""

    id: Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    node: Name  # the id of the node that it leaves
    target: Name  # a channel's name, or a pattern
    type: _Bytes | None  # of the channel; None: it is a pattern, or carries bytes
    where: Annotated[str, Meta(max_length=MAX_INTEREST)] = ""  # the interest as text, of a pattern or by name
    program: _Bytes | None = None  # or as a program
    params: _Bytes | None = None
    zones: Annotated[list[Name], Meta(max_length=4096)] | None = None
    manual: bool = False
    order: Annotated[str, Meta(max_length=16)] = "receive"
    positions: _Points = {}
    handed: _Points = {}
    since: _Points = {}


class MoveClaimed(msgspec.Struct, frozen=True, tag=True):
    """The sink is the claimant's, for good: it goes on nowhere else."""

    sink: Name


class ClaimMove(Request, frozen=True, tag=True):
    """To go on with a sink; asked again by the same one, it is answered again. `claimant` tells one state of a node
    from another, which may have forgotten everything."""

    answer: ClassVar[Any] = MoveClaimed
    id: Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    claimant: Annotated[bytes, Meta(min_length=CLAIMANT_BYTES, max_length=CLAIMANT_BYTES)]


__all__ = ["CLAIMANT_BYTES", "ID_BYTES", "MAX_INTEREST", "ClaimMove", "MoveClaimed", "SinkMove"]
