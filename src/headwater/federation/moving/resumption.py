"""A sink goes on at this node where it was at another: it is subscribed, held, until it is its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.names import Pattern, is_pattern
from headwater.channel.options.delivery import Reliable
from headwater.channel.options.subscribe import Asked, make_options
from headwater.channel.subscription import Subscription
from headwater.errors import SubscriptionError
from headwater.federation.wire.requests import unpack_interest, unpack_params, unpack_type
from headwater.interest import as_event_type

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.routing.attachment import Attachment
    from headwater.federation.arrive.log_positions import LogPositions
    from headwater.federation.demand.demand import Demands
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.move_requests import SinkMove

ARRIVING = "it is on its way here"
_FIXED = ("delivery", "zones", "order", "history", "where", "params")


class Whereabouts:
    """What is known at this node of logged sources of others."""

    def __init__(self, peers: Peers, demands: Demands, positions: LogPositions) -> None:
        self._peers, self._demands, self._positions = peers, demands, positions

    def is_new(self, channel: Channel) -> bool:
        """Whether nobody here wants events of a channel, and no node is, or was, asked for any that may still come:
        then who is asked first is told where to begin. The wiring's lock is held."""
        if any(entry.local for entry in channel.entries.values()) or self._positions.has_come(channel.name):
            return False
        if any(not flow.source.local for flow in channel.flows()):
            return False
        asked = [peer.asked.get(channel.name) for peer in self._peers.everyone()]
        return all(each is None or not (each.busy or each.demand.wishes) for each in asked)

    def has_left(self, key: str) -> bool:
        """Whether a sink's position is with a source that was at this node, in this life, and has moved."""
        return self._positions.has_left(key.partition(" ")[0])

    def begin(self, attachment: Attachment, move: SinkMove, *, new: bool) -> None:
        """The state of an interest that runs at sources counts from where it did, unless others here have it too."""
        entry, channel = attachment.entry, attachment.channel
        if entry.interest is None or not entry.interest.stateful or len(list(entry.members)) > 1:
            return
        tag = self._demands.tag(channel.name, entry)
        for key, start in move.since.items():
            reached = self._positions.of(key, channel.name)
            reached.since[tag] = start
            if new and key in move.positions:
                reached.at[tag] = move.positions[key]


class Resumed(Subscription[Any]):
    """A durable subscription that goes on where it was, at another node or earlier at this one, while others here have
    had events of the same sources since. It is held until it is in force everywhere; then logs are asked for what it
    has missed."""

    def __init__(self, *given: Any) -> None:
        *usual, move, positions, handed, whereabouts = given
        self._move: SinkMove | None = move  # None: it was at this node
        self._whereabouts: Whereabouts = whereabouts
        super().__init__(*usual)
        assert self._progress is not None
        channels = [channel for channel in self.node.channels() if any(each.wants(channel) for each in self._asked)]
        new = all(map(whereabouts.is_new, channels)) and not isinstance(self._asked[0].target, Pattern)
        self.begins_by_itself = new  # what it has missed comes with its first events, and is not asked for
        self._progress.goes_on(positions, handed, exact=move is not None, rereads=not new)
        self._pause(ARRIVING)

    def _began(self, attachment: Attachment) -> None:
        super()._began(attachment)
        if self._move is not None:
            self._whereabouts.begin(attachment, self._move, new=self.begins_by_itself)

    def arrived(self) -> None:
        """It goes on; what it has missed is asked for."""
        self._let_go(ARRIVING)


def wanted(node: Any, move: SinkMove, handler: Any, given: Mapping[str, Any]) -> tuple[Asked, Any]:
    """What a token asks for, with how it is to be handed over here."""
    options = dict(given)
    wrong = [name for name in _FIXED if name in options]
    if wrong:
        raise SubscriptionError(
            f"resume: {wrong[0]}: a subscription that moves has the one that it had; leave it out, and change() it then"
        )
    type = options.pop("type", None)
    target: Any
    if is_pattern(move.target):
        target = Pattern(move.target)
        where: Any = move.where or None
        params: Any = unpack_params(move.params) if move.params is not None else None
    else:
        known = move.target in {channel.name for channel in node.channels()}
        its = unpack_type(move.type)
        target = node.channel(move.target) if known else node.channel(move.target, bytes if its is None else its)
        params = None
        if move.where:
            where = node._interest_of(move.where)
            where = where.given(unpack_params(move.params)) if move.params is not None else where
        else:
            where = unpack_interest(move.program, move.params)
    delivery = Reliable(durable=True, acknowledge="manual" if move.manual else "return")
    made = make_options(node.config, handler, delivery=delivery, zones=move.zones, order=move.order, **options)  # type: ignore[arg-type]
    return Asked(target, where, params, None if type is None else as_event_type(type)), made


__all__ = ["ARRIVING", "Resumed", "Whereabouts", "wanted"]
