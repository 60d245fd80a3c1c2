"""Control events: what happens in the federation, as events on channels of this node that anyone may subscribe to.

headwater.nodes       a node has joined or left
headwater.sources     a source of another node was advertised or withdrawn
headwater.interests   an interest was installed, refused or withdrawn: another node's here, or this node's there
headwater.policy.decisions    what policies have decided of somebody, and why: once, and again when that changes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.services import Service
from headwater.errors import HeadwaterError
from headwater.federation.security.offences import UNKNOWN
from headwater.federation.wire.control import SourceAd
from headwater.federation.wire.library_requests import unpack_named
from headwater.federation.wire.requests import Wish, unpack_wish
from headwater.types import Event

if TYPE_CHECKING:
    from headwater.channel.routing.route import Entry
    from headwater.channel.source import Source
    from headwater.federation.context import Context
    from headwater.services.policy.identity import Identity


READ_BYTES = 16_384  # of an interest that was refused: a larger one is not read only to say what it was


class NodeEvent(Event):
    """A node has joined or left the federation."""

    change: str  # joined, left
    node: str
    id: str


class SourceEvent(Event):
    """A source of another node was advertised or withdrawn."""

    change: str  # advertised, withdrawn
    node: str
    channel: str
    source: str


class InterestEvent(Event):
    """An interest was installed, refused or withdrawn, or a policy has judged it."""

    change: str  # installed, refused, withdrawn, hidden, judged anew
    node: str  # the other node
    channel: str
    interest: str
    here: bool  # it is another node's interest in this node's sources
    reason: str


class DecisionEvent(Event):
    """What policies have decided of a user on a device at a node."""

    user: str
    device: str
    node: str
    action: str  # subscribe, install, transact, advertise
    channel: str
    outcome: str  # allowed, restricted, denied
    reason: str


DECISIONS = "headwater.policy.decisions"
CHANNELS: dict[str, type[Event]] = {
    "headwater.nodes": NodeEvent,
    "headwater.sources": SourceEvent,
    "headwater.interests": InterestEvent,
    DECISIONS: DecisionEvent,
}


def owns(name: str) -> bool:
    """Whether a channel is one of these: each node has its own, and nobody else's events are there."""
    return name in CHANNELS


class Known(Protocol):
    """Another node, as it is spoken of."""

    id: str
    name: str
    incarnation: int


class ControlEvents(Service):
    """A service of a node: publishes them there. They are this node's own view, and stay in it."""

    name = "control events"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sources: dict[str, Source] = {}
        self._known: dict[str, int] = {}  # peers that were said to have joined, and in which incarnation
        self._texts: dict[tuple[str, str, int], str] = {}  # of interests that are installed here
        self._advertised: set[tuple[str, int, int]] = set()

    def start(self) -> None:
        for name, type in CHANNELS.items():
            self._sources[name] = self._context.node.channel(name, type).source("federation")

    def report(self) -> Mapping[str, Any]:
        return {name: source.seq for name, source in self._sources.items()}

    def _publish(self, name: str, event: Event) -> None:
        source = self._sources.get(name)
        if source is not None and not source.closed:
            self._context.scheduler.later(0.0, lambda: self._say(source, event))

    def _say(self, source: Source, event: Event) -> None:
        if not source.closed:
            try:
                source.publish(event)
            except HeadwaterError as error:
                self._context.offences.note(UNKNOWN, f"a control event could not be published: {error}")

    def node(self, peer: Known, change: str) -> None:
        if change == "joined":
            if self._known.get(peer.id) == peer.incarnation:
                return
            self._known[peer.id] = peer.incarnation
        elif self._known.pop(peer.id, None) is None:
            return
        else:
            self._advertised = {each for each in self._advertised if each[0] != peer.id}
        self._publish("headwater.nodes", NodeEvent(change=change, node=peer.name, id=peer.id))

    def source(self, peer: Known, ad: SourceAd, change: str) -> None:
        key = peer.id, peer.incarnation, ad.sid
        if (change == "advertised") == (key in self._advertised):
            return
        (self._advertised.add if change == "advertised" else self._advertised.discard)(key)
        self._publish(
            "headwater.sources", SourceEvent(change=change, node=peer.name, channel=ad.channel, source=ad.name)
        )

    def wish(self, peer: Known, channel: str, wish: Wish | int, change: str, reason: str, text: str = "") -> None:
        """Of another node's interest in sources here; its text, if that is known."""
        key = peer.id, channel, wish if isinstance(wish, int) else wish.tag
        if isinstance(wish, int):
            text = self._texts.pop(key, "")
        else:
            text = text or _text(wish)
            if change == "installed":
                self._texts[key] = text
        self._interest(peer, channel, text, change, reason, here=True)

    def decided(self, identity: Identity, action: str, channel: str, outcome: str, reason: str) -> None:
        """What policies have decided."""
        event: Any = DecisionEvent(
            user=identity.user,
            device=identity.device,
            node=identity.node,
            action=action,
            channel=channel,
            outcome=outcome,
            reason=reason,
        )
        self._publish(DECISIONS, event)

    def denied(self, peer: Known, name: str, reason: str) -> None:
        """Another node may not subscribe to what it has asked for by name, or by a pattern of names."""
        self._interest(peer, name, "", "refused", reason, here=True)

    def interest(self, peer: Known, channel: str, entry: Entry | None, change: str, reason: str) -> None:
        """Of this node's interest in sources there."""
        interest = None if entry is None else entry.interest
        self._interest(peer, channel, "" if interest is None else interest.text, change, reason, here=False)

    def _interest(self, peer: Known, channel: str, text: str, change: str, reason: str, *, here: bool) -> None:
        event: Any = InterestEvent(
            change=change, node=peer.name, channel=channel, interest=text, here=here, reason=reason
        )
        self._publish("headwater.interests", event)


def _label(data: bytes) -> str:
    try:
        named = unpack_named(data)
    except HeadwaterError:
        return "(unreadable)"
    return f"@{named.name}/{named.version}"


def _text(wish: Wish) -> str:
    if wish.named:
        return _label(wish.named)
    if len(wish.program or b"") + len(wish.params or b"") > READ_BYTES:
        return "(large)"
    try:
        interest = unpack_wish(wish)
    except HeadwaterError:
        return "(unreadable)"
    return "" if interest is None else getattr(interest, "text", "") or str(interest)
