"""What nodes ask each other about policies."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name, Number
from headwater.federation.wire.requests import Request
from headwater.services.documents import DOCUMENT_BYTES

MOST_POLICIES = 4096  # that a node holds
PAGE_BYTES = 512 << 10  # of documents in an answer, about; one at least
MAX_WHY = 16 << 10  # characters of an explanation

_Document = Annotated[bytes, Meta(max_length=DOCUMENT_BYTES)]
_Prints = Annotated[dict[str, Annotated[str, Meta(max_length=64)]], Meta(max_length=MOST_POLICIES)]
_Versions = Annotated[dict[str, Number], Meta(max_length=MOST_POLICIES)]


class PolicyInForce(msgspec.Struct, frozen=True, tag=True):
    """A policy holds from these events on, by channel and source; or why it does not."""

    points: dict[str, dict[str, int]] = {}
    refused: str = ""


class PoliciesAre(msgspec.Struct, frozen=True, tag=True):
    """Documents that who asks does not have in these versions, and whether there are more. `complete`: it keeps them,
    and vouches that there are no others; who has no state may have forgotten some."""

    documents: Annotated[list[_Document], Meta(max_length=MOST_POLICIES)]
    more: bool = False
    complete: bool = False


class PolicyWhy(msgspec.Struct, frozen=True, tag=True):
    """What is decided of somebody, and why: allowed, denied or restricted, and to what."""

    outcome: str
    why: Annotated[str, Meta(max_length=MAX_WHY)]
    shown: Annotated[str, Meta(max_length=MAX_WHY)] = ""


class SetPolicy(Request, frozen=True, tag=True):
    """A signed policy, to be put in force."""

    answer: ClassVar[Any] = PolicyInForce
    document: _Document


class TellPolicies(Request, frozen=True, tag=True):
    """For all policies that a node holds, and that are not known in these versions. It is asked again and again: the
    answer shows that nothing newer was missed."""

    answer: ClassVar[Any] = PoliciesAre
    known: _Versions = msgspec.field(default_factory=dict)
    prints: _Prints = msgspec.field(default_factory=dict)  # of what is known, so that another one of a version is told


class WhyPolicy(Request, frozen=True, tag=True):
    """What policies say of a user on a channel, and why. Of others than oneself only those are told who may set
    policies."""

    answer: ClassVar[Any] = PolicyWhy
    channel: Name
    user: Annotated[str, Meta(max_length=255)] = ""
    action: Annotated[str, Meta(max_length=32)] = "subscribe"
    groups: Annotated[list[str], Meta(max_length=64)] = msgspec.field(default_factory=list)
    device_kind: Annotated[str, Meta(max_length=255)] = ""


__all__ = [
    "MAX_WHY",
    "MOST_POLICIES",
    "PAGE_BYTES",
    "PoliciesAre",
    "PolicyInForce",
    "PolicyWhy",
    "SetPolicy",
    "TellPolicies",
    "WhyPolicy",
]
