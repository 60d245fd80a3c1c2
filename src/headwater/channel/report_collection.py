"""Reports made from what is there; each while the sources concerned stand still, so that its numbers agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

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
from headwater.channel.routing.route import Entry, Flow, Lineup
from headwater.threads import PROCESS

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.node import Node
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription


class _Look:
    """One look at a node, for all that is reported of it together."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._whys: dict[tuple[Lineup, Entry], tuple[str, str]] = {}

    @cached_property
    def queued(self) -> Counter[Channel | Source]:
        """How many events of each wait in queues."""
        found: Counter[Channel | Source] = Counter()
        for subscription in (*self._node.subscriptions.values(), *self._node._parting, *self._node._pulling):
            if subscription._calm:
                for attachment, letter, n, _, _ in subscription._mailbox.contents():
                    found[attachment.channel] += n
                    found[letter.source] += n
                for attachment, letter, n in subscription._too_early_ones():
                    found[attachment.channel] += n
                    found[letter.source] += n
        return found

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


def node(it: Node) -> NodeReport:
    """Everything at a node."""
    with it._wiring.lock, it._wiring.still(it.channels()):
        channels = it.channels()
        sources = [each for channel in channels for each in channel.sources.values()]
        look = _Look(it)
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
    wiring = it.node._wiring
    with wiring.lock, wiring.still([it]):
        return _channel(it, _Look(it.node))


def source(it: Source) -> SourceReport:
    """One source."""
    wiring = it.channel.node._wiring
    with wiring.lock, wiring.still([it.channel]):
        return _source(it, _Look(it.channel.node))


def subscription(it: Subscription) -> SubscriptionReport:
    """One subscription."""
    wiring = it.node._wiring
    with wiring.lock, wiring.still({key[0] for key in it._attachments}):
        return _subscription(it, _Look(it.node))


def _attachments(it: Channel) -> list[Attachment]:
    members = [member for entry in it.entries.values() for member in entry.members]
    return [member for member in members if isinstance(member, Attachment)]


def _channel(it: Channel, look: _Look) -> ChannelReport:
    attached = _attachments(it)
    tally = _sum([it.past, *(lineup.past for lineup in it.lineups), *(flow.tally() for flow in it.flows())])
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
    tally = _sum([it.past, *(flow.tally() for flow in it.flows.values())])
    return SourceReport(
        name=it.name,
        type=it.type.name if it.type is not None else None,
        state=state,
        counts=tally.counts(look.queued[it]),
        latency=tally.fates.latency,
        channel=it.channel.name,
        published=it.seq - it._flow.base,
        facts=it.stated,
        zones=tuple(sorted(it.zones)),
        placements=tuple(placements),
    )


def _subscription(it: Subscription, look: _Look) -> SubscriptionReport:
    queue = it._options.queue
    slow = None
    if it._mailbox.is_full:
        slow = "its queue is full: publishers wait" if queue.policy == "block" else "its queue is full: publishers fail"
    if it.paused is not None:
        slow = f"paused: {it.paused}"
    attached = list(it._attachments.values())
    types = {each.form.type.name if each.form.type is not None else None for each in attached}
    texts = dict.fromkeys(each.entry.interest.text for each in attached if each.entry.interest is not None)
    return SubscriptionReport(
        name=it.name,
        type=types.pop() if len(types) == 1 else None,
        state=it.state,  # type: ignore[arg-type]
        epoch=it.epoch,
        counts=it._counted(),
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
