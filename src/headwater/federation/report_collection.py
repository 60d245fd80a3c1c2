"""Reports on a federation, made from what a node has of the others."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.names import is_pattern
from headwater.channel.routing.attachment import Attachment
from headwater.errors import FederationError, SecurityError, Unreachable
from headwater.federation.demand.wishes import sinks_behind
from headwater.federation.report import (
    AskedReport,
    ContactReport,
    FallbackReport,
    FederationReport,
    InstalledReport,
    LaneReport,
    PeerReport,
    RemoteCounts,
    StandInReport,
)
from headwater.federation.wire.requests import Ask, Told
from headwater.threads import PROCESS

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry
    from headwater.channel.subscription import Subscription
    from headwater.federation.engine import Engine
    from headwater.federation.peers.peer import Peer
    from headwater.federation.transport.contacts import Contact


def federation(node: Node, engine: Engine | None) -> FederationReport:
    """A node's view of its federation, if it has a network."""
    if engine is None:
        return FederationReport(node=node.name, id=node.name, federation="")
    with node._wiring.lock:
        peers = tuple(_peer(engine, each) for each in sorted(engine.everyone(), key=lambda each: each.id))
    budget = engine.network.budget
    return FederationReport(
        node=node.name,
        id=engine.id,
        federation=engine.network.federation,
        endpoints=tuple(engine.fabric.endpoints),
        streams=tuple(engine.listener.endpoints) if engine.listener is not None else (),
        peers=peers,
        budget=(budget.total, budget.each),
        offences=dict(engine.offences.most_common()),
        refusals=dict(engine.offences.last),
        strangers=_strangers(engine),
        fallback=engine.network.fallback,
        untold=tuple(sorted(engine.membership.description.untold)),
        messages=engine.fabric.counters,
        failing=engine.failures.present(),
        expelled=dict(engine.presence.expelled),
        security=engine.keyring.credentials.problem,
        contacts=tuple(map(_contact, engine.contacts.all())),
        crashes={**PROCESS.counts, **node._crashes.counts, **_failed_messages(engine)},
    )


def _contact(contact: Contact) -> ContactReport:
    return ContactReport(
        endpoint=str(contact.endpoint),
        written=contact.written,
        reached=contact.reached,
        seconds=max(0.0, monotonic() - contact.since),
        ever=contact.ever,
        losses=contact.losses,
        reason=contact.reason,
    )


def _failed_messages(engine: Engine) -> dict[str, int]:
    """By kind, the messages of Zenoh that could not be dealt with."""
    return {f"messages of kind {kind}": count for kind, count in engine.fabric.failures.items() if count}


def _peer(engine: Engine, peer: Peer) -> PeerReport:
    """The report of one other node: its link, its lanes, what came and what it was asked for."""
    link, gone = peer.link, peer.gone
    lanes, stand_ins = list(peer.lanes()), list(peer.remote_sources.values())
    return PeerReport(
        name=peer.name,
        id=peer.id,
        proven=None if peer.principal is None else str(peer.principal),
        away=None if gone is None else max(0.0, monotonic() - gone),
        link=None if link is None else link.kind,
        trouble=peer.trouble or None,
        bytes_in=peer.bytes_in,
        bytes_out=peer.bytes_out,
        frames_in=sum(each.frame for each in stand_ins),
        frames_out=sum(each.number for each in lanes),
        router=peer.state is not None and peer.state.router,
        answers=getattr(link, "frames_in", 0),
        lanes=tuple(
            LaneReport(
                channel=each.crossing.channel.name,
                source=each.source.name,
                sent=each.passed,
                waiting=each.waiting,
                kept=len(each.kept),
                dropped=each.dropped,
                frames=each.number,
                shed=each.shed,
            )
            for each in lanes
        ),
        stand_ins=tuple(
            StandInReport(
                channel=each.channel.name,
                source=each.name,
                received=each.events,
                last=each.received,
                lost=each.lost,
                repeated=each.repeated,
            )
            for each in stand_ins
        ),
        installed=tuple(
            InstalledReport(
                channel=crossing.channel.name,
                interest=_text(entry),
                cost=crossing.costs.get(tag, 0),
                tagged=member is not crossing.merged,
            )
            for crossing in list(peer.crossings.values())
            for tag, (entry, member) in crossing.wishes.items()
        ),
        asked=(*_asked(engine, peer), *_unlisted(engine, peer)),
        refused=dict(peer.refused_here),
        fallback=_fallback(peer),
    )


def _fallback(peer: Peer) -> FallbackReport | None:
    since = peer.fallback.since
    if not peer.fallback.why:
        return None
    seconds = None if since is None else max(0.0, monotonic() - since)
    return FallbackReport(seconds=seconds, times=peer.fallback.times, why=peer.fallback.why)


def _strangers(engine: Engine) -> dict[str, int]:
    found = {
        "signs of life ignored": engine.fabric.ignored_tokens,
        "nodes not asked, for too many were waiting": engine.membership.inquiries.given_up,
    }
    if engine.listener is not None:
        strangers = engine.listener.strangers
        found |= {
            "connections refused": strangers.refused,
            "connections that said nothing in time": strangers.late,
            "connections that had to go for others": strangers.evicted,
            "connections of which too many came": strangers.too_many,
        }
    return found


def _asked(engine: Engine, peer: Peer) -> Iterator[AskedReport]:
    names = {ad.sid: ad.name for ad in peer.sources}
    for channel, asked in list(peer.asked.items()):
        points = {names[sid]: point for sid, point in asked.points.items() if sid in names}
        for entry in list(asked.demand.placed):
            where, why = engine.demands.placed(peer, channel, entry) or ("", "")
            yield AskedReport(channel=channel, interest=_text(entry), where=where, why=why, points=points)


def _unlisted(engine: Engine, peer: Peer) -> Iterator[AskedReport]:
    """What sinks here still want that a peer has refused without saying whether it has it."""
    refused = engine.permissions.refused(peer)
    if not refused:
        return
    with engine.node._wiring.lock:
        wanted = [
            (channel.name, _text(entry))
            for channel in engine.node.channels()
            if channel.name in refused and channel.name not in peer.asked
            for entry in channel.entries.values()
            if any(sinks_behind([entry]))
        ]
        wanted += [
            (asked.text, "everything" if asked.where is None else getattr(asked.where, "text", str(asked.where)))
            for sink in engine.node.subscriptions.values()
            for asked in sink._asked
            if asked.text in refused and is_pattern(asked.text)
        ]
    for name, interest in wanted:
        yield AskedReport(channel=name, interest=interest, where="refused", why=f"node {peer.name}: {refused[name]}")


def _text(entry: Entry) -> str:
    text = "everything" if entry.interest is None else " ".join((entry.interest.text or str(entry.interest)).split())
    return text if entry.zones is None else f"{text} in {', '.join(sorted(entry.zones))}"


# ── counts at the sources ──


def remote_counts(engine: Engine | None, subscription: Subscription) -> list[RemoteCounts]:
    """What a subscription's interest has done at other nodes: each is asked; who does not answer is left out."""
    if engine is None:
        return []
    with engine.node._wiring.lock:
        attached, peers = list(subscription._attachments.values()), engine.everyone()
        wanted = [
            (peer, *way) for each in attached for peer in peers if peer.gone is None for way in _asked_as(each, peer)
        ]
    told: dict[tuple[Peer, str], Told] = {}
    for peer, channel, _ in wanted:
        if (peer, channel.name) not in told:
            try:
                answer = engine.dialogue.ask(peer, Ask(channel.name))
            except (Unreachable, SecurityError, FederationError):
                continue
            if isinstance(answer, Told):
                told[peer, channel.name] = answer
    return [
        _counted(engine, peer, channel.name, entry, found)
        for peer, channel, entry in wanted
        if (found := told.get((peer, channel.name))) is not None
    ]


def _asked_as(attachment: Attachment, peer: Peer) -> Iterator[tuple[Channel, Entry]]:
    """What a peer was asked for, if it was: of a derived channel, that is an interest in the one it comes from."""
    channel: Channel | None = attachment.channel
    entry: Entry | None = attachment.entry
    while channel is not None and entry is not None:
        if channel.name in peer.asked:
            yield channel, entry
            return
        entry = channel.stage_entry
        channel = channel.parent


def _counted(engine: Engine, peer: Peer, channel: str, entry: Entry, told: Told) -> RemoteCounts:
    """What an interest of this node has counted at a peer."""
    where, why = engine.demands.placed(peer, channel, entry) or ("", "")
    found = told.counts.get(engine.demands.number(entry) or 0)
    shown: dict[str, Any] = {
        "node": peer.name,
        "channel": channel,
        "interest": _text(entry),
        "where": where,
        "why": why,
    }
    if found is None or (where == "destination" and 0 in told.counts):
        # Covered by another one, which was evaluated in its place; or everything comes here to be evaluated.
        most = 0 if 0 in told.counts else max((counts[0] for counts in told.counts.values()), default=0)
        return RemoteCounts(**shown, evaluated=most, crossed=told.crossed, withheld=told.withheld)
    evaluated, passed, undecided, how, reason = found
    return RemoteCounts(
        **shown,
        how=f"{how} ({reason})" if reason else how,
        evaluated=evaluated,
        passed=None if passed < 0 else passed,
        undecided=undecided,
        crossed=told.crossed,
        shed=told.shed.get(engine.demands.number(entry) or 0, 0),
        withheld=told.withheld,
    )


__all__ = ["federation", "remote_counts"]
