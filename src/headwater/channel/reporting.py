"""Reports made from what is there; each while the sources concerned stand still, so that its numbers agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.channel.attachment import Attachment
from headwater.channel.report import ChannelReport, NodeReport, Placement, SourceReport, State, SubscriptionReport
from headwater.channel.route import Flow
from headwater.channel.tally import Tally

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.node import Node
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription


def node(it: Node) -> NodeReport:
    """Everything at a node."""
    with it.wiring.lock, it.wiring.still(it.channels()):
        channels = it.channels()
        sources = [each for channel in channels for each in channel.sources.values()]
        return NodeReport(
            name=it.name,
            state="closed" if it.closed else "open",
            channels=tuple(_channel(each) for each in channels),
            sources=tuple(_source(each) for each in sources),
            subscriptions=tuple(_subscription(each) for each in it.subscriptions.values()),
            dispatch=tuple(str(each) for each in it.dispatching()),
            notes=tuple(
                f"subscription {each.name!r} is not attached to {channel}: {why}"
                for each in it.subscriptions.values()
                for channel, why in each.refused.items()
            ),
        )


def channel(it: Channel) -> ChannelReport:
    """One channel."""
    wiring = it.node.wiring
    with wiring.lock, wiring.still([it]):
        return _channel(it)


def source(it: Source) -> SourceReport:
    """One source."""
    wiring = it.channel.node.wiring
    with wiring.lock, wiring.still([it.channel]):
        return _source(it)


def subscription(it: Subscription) -> SubscriptionReport:
    """One subscription."""
    wiring = it.node.wiring
    with wiring.lock, wiring.still({key[0] for key in it.attachments}):
        return _subscription(it)


def _attachments(it: Channel) -> list[Attachment]:
    members = [member for entry in it.entries.values() for member in entry.members]
    return [member for member in members if isinstance(member, Attachment)]


def _channel(it: Channel) -> ChannelReport:
    attached = _attachments(it)
    tally = _sum([it.past, *(lineup.past for lineup in it.lineups), *(flow.tally() for flow in it.flows())])
    queued = _queued(it.node, lambda attachment, source: attachment.channel is it)
    parent = it.parent
    return ChannelReport(
        name=it.name,
        type=it.type.name if it.type is not None else None,
        state="closed" if it.closed or it.node.closed else "open",
        counts=tally.counts(queued),
        latency=tally.latency,
        derived=f"{parent.name} where {it.interest.text}" if parent is not None and it.interest is not None else None,
        sources=tuple(dict.fromkeys(flow.source.name for flow in it.flows())),
        subscriptions=tuple(dict.fromkeys(each.subscription.name for each in attached)),
        published=tally.published,
        placements=tuple(place for each in attached for place in _placed(each)),
    )


def _sum(tallies: list[Tally]) -> Tally:
    total = Tally()
    for each in tallies:
        total.absorb(each)
    return total


def _queued(node: Node, wanted: Callable[[Attachment, Source], bool]) -> int:
    """Events that wait in queues, of some channel or source."""
    found = 0
    for subscription in node.subscriptions.values():
        if subscription.calm:
            for attachment, letter, n, _, _ in subscription.mailbox.contents():
                found += n if wanted(attachment, letter.source) else 0
    return found


def _placed(attachment: Attachment, flow: Flow | None = None) -> list[Placement]:
    """Where an interest runs, and why there and so."""
    name = attachment.subscription.name
    found = []
    for lineup in attachment.channel.lineups:
        how, why = lineup.why(attachment.entry)
        flows = lineup.flows if flow is None else [flow] if flow in lineup.flows else []
        found += [Placement(each.source.name, attachment.channel.name, how, why, name) for each in flows]
    return found


def _source(it: Source) -> SourceReport:
    state: State = "closed" if it.closed else "open"
    placements = []
    for channel, flow in it.flows.items():
        for attachment in _attachments(channel):
            placements += _placed(attachment, flow)
    tally = _sum([flow.tally() for flow in it.flows.values()])
    return SourceReport(
        name=it.name,
        type=it.type.name if it.type is not None else None,
        state=state,
        counts=tally.counts(_queued(it.channel.node, lambda attachment, source: source is it)),
        latency=tally.latency,
        channel=it.channel.name,
        published=it.seq,
        facts=it.stated,
        placements=tuple(placements),
    )


def _subscription(it: Subscription) -> SubscriptionReport:
    queue = it.options.queue
    slow = None
    if it.mailbox.is_full:
        slow = "its queue is full: publishers wait" if queue.policy == "block" else "its queue is full: publishers fail"
    if it.paused is not None:
        slow = f"paused: {it.paused}"
    attached = list(it.attachments.values())
    placements = [place for each in attached for place in _placed(each)]
    types = {each.form.type.name if each.form.type is not None else None for each in attached}
    texts = dict.fromkeys(each.entry.interest.text for each in attached if each.entry.interest is not None)
    return SubscriptionReport(
        name=it.name,
        type=types.pop() if len(types) == 1 else None,
        state=it.state,  # type: ignore[arg-type]
        epoch=it.epoch,
        counts=it.totals(),
        latency=it.latency.copy(),
        channel=it.target,
        interest="; ".join(texts) or None,
        dispatch="pull" if it.dispatcher is None else it.options.dispatch.name,
        queue=f"{queue.limit:,} events, {queue.policy.replace('_', ' ')}",
        slow=slow,
        trouble=it.trouble,
        placements=tuple(placements),
    )
