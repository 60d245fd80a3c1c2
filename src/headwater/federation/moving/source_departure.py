"""A source leaves its node: between two of its events it is fenced, and it is written who goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.channel.groups.service import Groups
from headwater.channel.options.delivery import Reliable
from headwater.channel.queues.position_keys import key_of
from headwater.channel.routing.attachment import Attachment, attachments_of
from headwater.channel.source import Source
from headwater.errors import StoreError, SubscriptionError
from headwater.federation.control_events import owns
from headwater.services.moving.register import CLAIMED
from headwater.services.moving.source_register import Cut

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.federation.arrive.log_positions import LogPositions
    from headwater.federation.context import Context
    from headwater.federation.demand.demand import Demands
    from headwater.federation.moving.followers import Members
    from headwater.federation.peers.table import Peers
    from headwater.services.moving.source_register import SourceRegister

DRAIN_SECONDS = 5.0  # for which it is waited that others have what a source without a log has published
FINISH_SECONDS = 0.5  # and that members of durable groups have done what they have at hand: else it comes again, marked


def check_movable(source: Source, multicast: bool) -> None:
    """Raise, with what to do instead, if a source is of a kind that cannot go on elsewhere."""

    def refuse(expected: str, found: str, hint: str) -> SubscriptionError:
        return SubscriptionError(f"move: {source}: expected {expected}, found {found}; {hint}")

    channel = source.channel
    if type(source) is not Source or source.relays or owns(channel.name):
        raise refuse("a source that this program has made", "another", "move the program that publishes there")
    if channel.parent is not None:
        hint = f"move the sources of {channel.parent.name!r}: it goes along"
        raise refuse("a source of a channel", "one of a derived channel", hint)
    if source.name.startswith("headwater.") or source.at_end is not None or source.come_to is not None:
        raise refuse("a source that this program publishes at", "one that a pattern or an object has", "move that")
    if multicast:
        raise refuse("direct streams", "multicast", "have that channel not multicast")


def home_of(source: Source) -> str:
    """Under which key sinks everywhere keep how far they are with a source; nothing if it is not logged."""
    if source.log is None:
        return ""
    return source.home or key_of(source.node, source.log.id, source.name)


class SourceDeparture:
    """Of one node: fences sources that are claimed, and has its own sinks go on with what comes from elsewhere."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        demands: Demands,
        positions: LogPositions,
        multicast: bool,
        members: Members,
    ) -> None:
        """`members`: those of groups of a channel, the node of each, its group, and whether that is durable."""
        self._context, self._peers, self._demands, self._positions = context, peers, demands, positions
        self.multicast, self.members = multicast, members

    def cut(self, register: SourceRegister, id: bytes, source: Source, who: str, claimant: bytes) -> Cut | None:
        """Have somebody go on with it; None if it is closed by now. Publishers wait meanwhile; if it cannot be written
        it goes on here as before."""
        if source.log is None:
            return self._cut_drained(register, id, source, who, claimant)
        cut, groups, channel, name = None, self._groups, source.channel, source.name
        try:
            if groups is not None:
                groups.rest(channel, name)
                self._context.scheduler.until(lambda: groups.rest(channel, name), FINISH_SECONDS)
            cut = self._cut_logged(register, id, source, who, claimant)
        finally:
            if groups is not None and cut is None:
                groups.rest(channel, name, False)
        return cut

    @property
    def _groups(self) -> Groups | None:
        found = self._context.node.services.get(Groups.name)
        return found if isinstance(found, Groups) else None

    def _cut_logged(self, register: SourceRegister, id: bytes, source: Source, who: str, claimant: bytes) -> Cut | None:
        log = source.log
        assert log is not None
        with source.writing:  # nobody publishes
            if source.closed:
                return None
            upto = max(source.seq, log.last(source.name))
            stamp = log.last_time(source.name) or source._stamp()
            cut = Cut(home_of(source), source.term + 1, upto, stamp)
            try:
                register.claim(id, who, claimant, cut)
            except BaseException:
                if _may_be_claimed(register, id):
                    _shut(source, who)
                raise
            _shut(source, who)
        self._settle(source, cut)
        return cut

    def _cut_drained(
        self, register: SourceRegister, id: bytes, source: Source, who: str, claimant: bytes
    ) -> Cut | None:
        """Without a log what others have not got yet is nowhere else: they have it before somebody goes on."""
        with source.between():
            if source.closed:
                return None
            source.moved_to = who
            source.shut()
            cut = Cut("", source.term + 1, source.seq, source._stamp())
        try:
            if not self._context.scheduler.until(lambda: not self._behind(source), DRAIN_SECONDS):
                behind = ", ".join(sorted(self._behind(source)))
                raise SubscriptionError(
                    f"{source.name!r} has no log, and sinks at {behind} have not done with its events; try again later"
                )
            register.claim(id, who, claimant, cut)
        except BaseException:
            if _may_be_claimed(register, id):
                raise
            with source.between():
                source.moved_to = None
                source.reopen()
            raise
        self._settle(source, cut)
        return cut

    def goes(self, source: Source, cut: Cut) -> None:
        """What was left to do when it was claimed, and could not be, of one that is shut."""
        self._settle(source, cut)

    def _behind(self, source: Source) -> list[str]:
        """Nodes that have not acknowledged all of its events."""
        found = []
        for peer in self._peers.everyone():
            crossing = peer.crossings.get(source.channel.name)
            lane = None if crossing is None else crossing.lanes.get(source)
            if lane is not None and lane.waiting:
                found.append(peer.name)
        return found

    def subscribers(self, channel: str) -> list[str]:
        """The ids of nodes that want events of a channel, this one with them."""
        found = [peer.id for peer in self._peers.everyone() if peer.gone is None and channel in peer.crossings]
        known = next((each for each in self._context.node.channels() if each.name == channel), None)
        if known is not None and any(entry.local for entry in known.entries.values()):
            found.append(self._context.id)
        return found

    def _settle(self, source: Source, cut: Cut) -> None:
        """Its sinks at this node have had all of it up to here, and get the rest from where it goes on."""
        node, channel = self._context.node, source.channel
        if cut.home:
            with self._context.wiring.lock:
                self._have_had(source, channel, cut)
            if source.kept_key is None and node.state is not None:
                for sink, key in {(each.subscription, _key(each, source, cut)) for each in attachments_of(source)}:
                    delivery = sink._options.delivery
                    if sink._progress is not None and isinstance(delivery, Reliable) and delivery.within is None:
                        node.state.commit_all(sink.name, {key: cut.upto})
            if self._groups is not None:
                self._groups.part(channel, source.name)
        node._close_source(source)

    def _have_had(self, source: Source, channel: Channel[Any], cut: Cut) -> None:
        reached = self._positions.of(cut.home, channel.name)
        reached.term = cut.term
        reached.at[0] = max(cut.upto, reached.at.get(0, 0))
        for entry in list(channel.entries.values()):
            if not entry.local:
                continue
            tag = self._demands.tag(channel.name, entry)
            reached.at[tag] = max(cut.upto, reached.at.get(tag, 0))
            if entry.interest is not None and entry.interest.stateful:
                began = [
                    member.points.get(source.number, ("", 0))[1]
                    for member in entry.members
                    if isinstance(member, Attachment)
                ]
                reached.since.setdefault(tag, min(began, default=cut.upto))
        for attachment in attachments_of(source):
            attachment.heard.add(cut.home)


def _shut(source: Source, who: str) -> None:
    with source.lock:
        source.moved_to = who
        source.shut()


def _may_be_claimed(register: SourceRegister, id: bytes) -> bool:
    """Whether a claim that has failed is written all the same, and perhaps not on the disk: then nobody publishes until
    that is known."""
    try:
        terms = register.terms(id)
    except StoreError:
        return True
    return terms is not None and terms.status == CLAIMED


def _key(attachment: Attachment, source: Source, cut: Cut) -> str:
    return cut.home if attachment.channel is source.channel else f"{cut.home} {attachment.channel.name}"


__all__ = ["SourceDeparture", "check_movable", "home_of"]
