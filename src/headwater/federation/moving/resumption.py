"""A sink goes on at this node where it was at another: it is subscribed, held, until it is its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.names import Pattern, is_pattern
from headwater.channel.options.delivery import Reliable, check_delivery
from headwater.channel.options.subscribe import Asked, make_options
from headwater.channel.queues.positions import Carried
from headwater.channel.subscription import Subscription
from headwater.errors import SubscriptionError
from headwater.federation.wire.requests import unpack_interest, unpack_params, unpack_type
from headwater.interest import as_event_type

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.options.delivery import Delivery
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.letter import Chunk, Letter
    from headwater.channel.routing.route import Ready
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

    def is_first(self, subscription: Subscription[Any]) -> bool:
        """The same of all channels that a subscription wants, as far as it is known which these will be."""
        wanted = subscription._asked
        channels = [channel for channel in subscription.node.channels() if any(each.wants(channel) for each in wanted)]
        lineage = {each for channel in channels for each in _lineage(channel)}
        return all(map(self.is_new, lineage)) and not any(isinstance(each.target, Pattern) for each in wanted)

    def begin(self, attachment: Attachment, move: SinkMove, *, new: bool) -> None:
        """The state of an interest that runs at sources counts from where it did; it is nobody else's."""
        entry, channel = attachment.entry, attachment.channel
        if entry.interest is None or not entry.interest.stateful:
            return
        tag = self._demands.tag(channel.name, entry)
        for key, start in move.since.items():
            reached = self._positions.of(key, channel.name)
            reached.since[tag] = start
            if new and key in move.positions:
                reached.at[tag] = move.positions[key]


def _lineage(channel: Any) -> Iterator[Any]:
    """A channel, and those that it is derived from: under the first of these other nodes are asked."""
    at = channel
    while at is not None:
        yield at
        at = at.parent


class Resumed(Subscription[Any]):
    """A subscription that goes on where it was, at another node; or a durable one, earlier at this one, while others
    here have had events of the same sources since. It is held until it is in force everywhere; then logs are asked for
    what it has missed."""

    def __init__(self, *given: Any) -> None:
        *usual, move, whereabouts = given
        self._move: SinkMove | None = move  # None: it was at this node
        self._whereabouts: Whereabouts = whereabouts
        # By key, from where on the state of its first interest counts with logged sources: earlier than it is here.
        self.since: dict[str, int] = {} if move is None else dict(move.since)
        if move is not None:
            self._carried = Carried(move.positions, move.handed, move.unsure, self.since)
        super().__init__(*usual)
        self._floors: set[tuple[Attachment, str]] = set()
        self.begins_by_itself = False
        # Nothing is lost until it is its own, and nobody waits: it may be in the way of what says that it is in force.
        self._arriving = move is not None
        self._pause(ARRIVING, lenient=move is not None)

    def _entering(self) -> None:
        super()._entering()
        self.begins_by_itself = self._first  # what it has missed comes with its first events, and is not asked for

    def _began(self, attachment: Attachment) -> None:
        super()._began(attachment)
        if self._move is not None:
            self._whereabouts.begin(attachment, self._move, new=self.begins_by_itself)

    def hold_back(self) -> None:
        """It takes long: there is no more room than it says, and what finds none is dropped."""
        with self._holding:
            if self.paused == ARRIVING:
                self._mailbox.hold()

    def begins_after(self, ends: Mapping[tuple[str, str], int]) -> None:
        """By channel and key, up to where it has had all of sources of other nodes: what of that still comes is not for
        it. It is held."""
        for (channel, _), attachment in self._attachments.items():
            for (name, key), end in ends.items():
                if name == channel.name:
                    attachment.floors[key], attachment.quick = end, None
                    self._floors.add((attachment, key))
        self._mailbox.trouble(bool(self._floors))  # it hears of each event

    def _arrive(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        super()._arrive(attachment, letter, ready)
        if self._floors:
            self._has_passed(attachment, letter.source.position_key or "", letter.seq)

    def _arrive_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        super()._arrive_chunk(attachment, chunk, ready)
        if self._floors:
            self._has_passed(attachment, chunk.source.position_key or "", int(chunk.seqs[-1]))

    def _has_passed(self, attachment: Attachment, key: str, seq: int) -> None:
        if (attachment, key) in self._floors and seq > attachment.floors.get(key, 0):
            self._floors.discard((attachment, key))
            attachment.floors.pop(key, None)
            if not attachment.floors:
                attachment.quick = attachment._quick
            if not self._floors:
                self._mailbox.trouble(False)

    def takes_over(self) -> None:
        """What waited at its old node is fetched: publishers of this one wait for it as for any that is slow."""
        with self._holding:
            if self.paused == ARRIVING:
                self._mailbox.hold(slowed=True)

    def arrived(self) -> None:
        """It goes on; what it has missed is asked for."""
        self._arriving = False
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
        if move.target in {channel.name for channel in node.channels()}:
            target = node.channel(move.target)
        else:
            its = unpack_type(move.type)
            target = node.channel(move.target, bytes if its is None else its)
        params = None
        if move.where:
            where = node._interest_of(move.where)
            where = where.given(unpack_params(move.params)) if move.params is not None else where
        else:
            where = unpack_interest(move.program, move.params)
    delivery: Delivery
    match move.delivery:
        case "durable":
            delivery = Reliable(durable=True, acknowledge="manual" if move.manual else "return")
        case "reliable" | "best_effort":
            delivery = check_delivery(move.delivery, handler)
        case _:
            raise SubscriptionError(f"resume: expected a delivery that this version knows, found {move.delivery!r}")
    made = make_options(node.config, handler, delivery=delivery, zones=move.zones, order=move.order, **options)  # type: ignore[arg-type]
    return Asked(target, where, params, None if type is None else as_event_type(type)), made


__all__ = ["ARRIVING", "Resumed", "Whereabouts", "wanted"]
