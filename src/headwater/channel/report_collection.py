"""Reports made from what is there, while sources go on.

Each source is asked for its counts once, between two of its events, so that the numbers of a report agree source by
source: none stands still for more than the moment of a copy, and never two at once.

What became of events that passed is looked at before sources are asked how many those were, and what waits in queues
after that, as far as it was published before: so every event that passed is in one place, or counted as waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.channel.reports.counters import Counts
from headwater.channel.reports.report import (
    ChannelReport,
    NodeReport,
    Placement,
    SourceReport,
    State,
    SubscriptionReport,
)
from headwater.channel.reports.tally import Tally
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.counts import Readings
from headwater.channel.routing.letter import Chunk, Letter, Rows
from headwater.channel.routing.route import Entry, Flow, Lineup
from headwater.interest import Interest
from headwater.threads import PROCESS

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription


class _Look:
    """One look at a node, for all that is reported of it together. The wiring's lock is held."""

    def __init__(self, node: NodeContract, subscriptions: Iterable[Subscription], channels: Iterable[Channel]) -> None:
        self._node = node
        self._outcomes = {each: each._outcomes() for each in subscriptions}
        self.readings = Readings()
        for channel in channels:
            for flow in channel.flows():
                self.readings.flow(flow)
        self._whys: dict[tuple[Lineup, Entry], tuple[str, str]] = {}

    @cached_property
    def queued(self) -> Counter[RoutedChannel | RoutedSource]:
        """How many events of each wait in queues."""
        found: Counter[RoutedChannel | RoutedSource] = Counter()
        for subscription in {*self._node.subscriptions.values(), *self._node._parting, *self._node._pulling}:
            if subscription._calm:
                waiting = [(item[0], item[1], item[2]) for item in subscription._mailbox.contents()]
                for attachment, letter, n in (*waiting, *subscription._too_early_ones()):
                    if self._is_counted(letter):
                        found[attachment.channel] += n
                        found[letter.source] += n
        return found

    def _is_counted(self, letter: Letter | Chunk) -> bool:
        """Whether an event was published before its source was asked for its counts."""
        point = self.readings.points.get(letter.source)
        return point is None or _number(letter) <= point

    def tally(self, flow: Flow) -> Tally:
        """What became of the events of a source in a channel."""
        found = self.readings.flow(flow).tally
        assert found is not None
        return found

    def counts(self, subscription: Subscription) -> Counts:
        """Everything counted of a subscription."""
        found = subscription._counts_with(self._outcomes[subscription], self.readings)
        return subscription._counted() if found is None else found

    def placed(self, attachment: Attachment, lineup: Lineup, flows: list[Flow]) -> list[Placement]:
        """Where an interest runs, and why there and so."""
        key = lineup, attachment.entry
        found = self._whys.get(key)
        if found is None:
            found = self._whys[key] = lineup.why(attachment.entry)
        channel, name = attachment.channel.name, attachment.subscription.name
        return [
            Placement(
                flow.source.key, channel, *(flow.source.placed(attachment.channel, attachment.entry) or found), name
            )
            for flow in flows
        ]

    def placed_everywhere(self, attachments: Iterable[Attachment]) -> tuple[Placement, ...]:
        """The same at all sources."""
        pairs = [(each, lineup) for each in attachments for lineup in each.channel.lineups]
        return tuple(place for each, lineup in pairs for place in self.placed(each, lineup, lineup.flows))


def node(it: NodeContract) -> NodeReport:
    """Everything at a node."""
    with it._wiring.lock:
        channels = it.channels()
        sources = [each for channel in channels for each in channel.sources.values()]
        look = _Look(it, it.subscriptions.values(), channels)
        return NodeReport(
            name=it.name,
            state="closed" if it.closed else "open",
            channels=tuple(_channel(each, look) for each in channels),
            sources=tuple(_source(each, look) for each in sources),
            subscriptions=tuple(_subscription(each, look) for each in it.subscriptions.values()),
            dispatch=tuple(str(each) for each in it._dispatching()),
            notes=(
                *(
                    f"subscription {each.name!r} is not attached to {channel}: {why}"
                    for each in it.subscriptions.values()
                    for channel, why in each.refused.items()
                ),
                *it._crashes.lines(),
                *PROCESS.lines(),
            ),
        )


def channel(it: Channel) -> ChannelReport:
    """One channel."""
    with it.node._wiring.lock:
        return _channel(it, _Look(it.node, (), [it]))


def source(it: Source) -> SourceReport:
    """One source."""
    with it.channel.node._wiring.lock:
        return _source(it, _Look(it.channel.node, (), ()))


def subscription(it: Subscription) -> SubscriptionReport:
    """One subscription."""
    with it.node._wiring.lock:
        return _subscription(it, _Look(it.node, [it], ()))


def _attachments(it: RoutedChannel) -> list[Attachment]:
    members = [member for entry in it.entries.values() for member in entry.members]
    return [member for member in members if isinstance(member, Attachment)]


def _channel(it: Channel, look: _Look) -> ChannelReport:
    attached = _attachments(it)
    tally = _sum([it.past, *(lineup.past for lineup in it.lineups), *(look.tally(flow) for flow in it.flows())])
    parent = it.parent
    return ChannelReport(
        name=it.name,
        type=it.type.name if it.type is not None else None,
        state="closed" if it.closed or it.node.closed else "open",
        counts=tally.counts(look.queued[it]),
        latency=tally.fates.latency,
        derived=f"{parent.name} where {it.interest.text}" if parent is not None and it.interest is not None else None,
        sources=tuple(dict.fromkeys(flow.source.name for flow in it.flows())),
        subscriptions=tuple(dict.fromkeys(each.subscription.name for each in attached)),
        published=tally.published,
        placements=look.placed_everywhere(attached),
    )


def _number(letter: Letter | Chunk) -> int:
    """The sequence number of an event, or of the first of those that were taken in together."""
    if isinstance(letter, Rows):
        letter = letter.origin
    if isinstance(letter, Chunk):
        return letter.first if letter.consecutive else int(letter.seqs[0])
    return letter.seq


def _sum(tallies: list[Tally]) -> Tally:
    total = Tally()
    for each in tallies:
        total.absorb(each)
    return total


def _source(it: Source, look: _Look) -> SourceReport:
    state: State = "closed" if it.closed else "open"
    placements = []
    for channel, flow in it.flows.items() if not it.withdrawn else ():
        for attachment in _attachments(channel):
            placements += look.placed(attachment, flow.lineup, [flow])
    tally = _sum([it.past, *(look.tally(flow) for flow in it.flows.values())])
    return SourceReport(
        name=it.name,
        type=it.type.name if it.type is not None else None,
        state=state,
        counts=tally.counts(look.queued[it]),
        latency=tally.fates.latency,
        channel=it.channel.name,
        published=look.readings.flow(it._flow).seen,
        shed=0 if it.rate is None else it.rate.shed,
        facts=it.stated,
        zones=tuple(sorted(it.zones)),
        placements=tuple(placements),
    )


def _subscription(it: Subscription, look: _Look) -> SubscriptionReport:
    """The report of one subscription, from counts that were copied before."""
    queue = it._options.queue
    slow = None
    if it._mailbox.is_full:
        slow = "its queue is full: publishers wait" if queue.policy == "block" else "its queue is full: publishers fail"
    if it.paused is not None:
        slow = f"paused: {it.paused}"
    attached = list(it._attachments.values())
    types = {each.form.type.name if each.form.type is not None else None for each in attached}
    texts = dict.fromkeys(_text(it, each) for each in attached if each.entry.interest is not None)
    return SubscriptionReport(
        name=it.name,
        type=types.pop() if len(types) == 1 else None,
        state=it.state,  # type: ignore[arg-type]
        epoch=it.epoch,
        counts=look.counts(it),
        latency=it._latency.copy(),
        channel=it.target,
        interest="; ".join(texts) or None,
        zones=tuple(sorted(it._options.zones or ())),
        order=it._options.order,
        dispatch="pull" if it._dispatcher is None else it._options.dispatch.name,
        queue=f"{queue.limit:,} events, {queue.policy.replace('_', ' ')}",
        slow=slow,
        trouble=it._trouble,
        refused=dict(it.refused),
        warnings=tuple(it.warnings),
        placements=look.placed_everywhere(attached),
    )


def _text(it: Subscription, attachment: Attachment) -> str:
    """An interest as it was written, behind the name that it was asked for by."""
    interest, where = attachment.entry.interest, it._asked[attachment.part].where
    text = "" if interest is None else interest.text
    return f"{where.origin}: {text}" if isinstance(where, Interest) and where.origin is not None else text
