"""What this node asks of other nodes' sources: kept in step with what its sinks want, and with who is there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from msgspec.structs import replace

from headwater.channel.dispatch.thread_call import in_thread, nothing
from headwater.channel.queues.forms import fitting
from headwater.channel.routing.hearing import Hearing
from headwater.errors import FederationError, HeadwaterError, SecurityError, Unreachable
from headwater.federation.demand.demand import NOTHING, Demand, InterestRequest
from headwater.federation.demand.wishes import Changed
from headwater.federation.wire.library_requests import Named, pack_named, unpack_named
from headwater.federation.wire.requests import Install, Installed, Judged, Wish, pack_wishes, unpack_type

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry
    from headwater.channel.subscription import Subscription
    from headwater.federation.arrive.log_positions import LogPositions
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.demand.demand import Demands
    from headwater.federation.multicast.groups import Groups
    from headwater.federation.peers.connections import Connections
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
CHANGE_SECONDS = 10.0  # for which a change waits for nodes that do not answer
RECONSIDER_SECONDS = 30.0  # after which a source that has refused an interest is asked again, if it may run here
RETRY_SECONDS = 0.25  # after which a question is asked again that was not answered
PAGE_WISHES = 2_000  # that go in one message; of names of durable sinks as many
PAGE_BYTES = 512 << 10  # of wishes in one message, before they are packed
REPEATED_REFUSALS = 64  # refused wishes that are asked for again with each question


class NamedInterests(Protocol):
    """What this node has asked for by name, as it is told to others: its library."""

    def in_full(self, named: Named) -> Named | None:
        """With its code and the document that its publisher has signed; None if they are not here any more."""
        ...

    def is_new(self, named: Named) -> bool:
        """Whether it has only just come to this node, so that others can hardly have it."""
        ...


class Requester:
    """One task at a time for each peer and channel; what changes meanwhile goes into the next question."""

    named: NamedInterests | None = None  # of a node that has a library

    def __init__(
        self,
        context: Context,
        peers: Peers,
        demands: Demands,
        positions: LogPositions,
        dialogue: Dialogue,
        links: Connections,
        control: ControlEvents,
        groups: Groups | None,
    ) -> None:
        self._context, self._node, self._peers, self._demands = context, context.node, peers, demands
        self._reached, self._dialogue, self._links = positions, dialogue, links
        self._control, self._groups = control, groups
        # By channel and peer: the interests that are refused there, with the sinks that say so.
        self._refusals: dict[str, dict[Entry, list[Subscription]]] = {}
        self._untold: WeakSet[Subscription] = WeakSet()  # whose last change not all nodes had taken up in time
        self._versions = count(1)  # of questions: a later one has a higher one, also to a peer that was forgotten since

    # ── keeping in step ──

    def sync(self, channel: Channel, peers: list[Peer] | None = None) -> None:
        """See that every peer with sources of a channel knows what is wanted of it; soon, not now. Never raises: what
        fails for one peer is tried again after a pause, and reported, and the others are asked all the same."""
        for peer in self._peers.everyone() if peers is None else peers:
            try:
                asked = self._due(channel, peer)
            except Exception as error:
                self._failed(channel, peer, error)
            else:
                if asked is not None:
                    self._context.scheduler.work(self._ask, peer, channel, asked, on=peer.id)

    def _due(self, channel: Channel, peer: Peer) -> InterestRequest | None:
        """What is to be asked of a peer now, if anything is; nobody else asks it meanwhile."""
        asked: InterestRequest | None = peer.asked.get(channel.name)
        if peer.gone is not None or not (peer.has(channel.name) or (asked is not None and asked.demand.wishes)):
            return None
        with self._context.wiring.lock:  # before the peer's: under that one nothing of the wiring is looked at
            demand = self._demand(channel, peer)
            begin, turn = self._begin(peer, channel), self._context.wiring.version
        with peer.lock:
            asked = peer.asked.get(channel.name)
            if asked is None:
                if not demand.wishes:
                    return None
                asked = peer.asked[channel.name] = InterestRequest()
            if asked.busy:
                asked.again = True
                return None
            if demand.same(asked.demand) and asked.agreed == asked.version and not _doubtful(peer, channel.name, asked):
                if begin and asked.marked >= asked.due:  # nothing was asked for them, and so nothing will come
                    asked.begins.append((asked.version, begin))
                    self._context.scheduler.later(0.0, partial(self.begun, peer, channel.name, asked, asked.version))
                self._context.failures.succeeded(_place(channel, peer))
                asked.speaks_for(turn)
                if asked.marked >= asked.due:  # nothing is asked, but a sink may have come that has missed something
                    self._context.scheduler.later(0.0, partial(self._read_missed, peer, channel.name))
                return None
            asked.busy = True
            return asked

    def _demand(self, channel: Channel, peer: Peer) -> Demand:
        """What is wanted of a peer's sources of a channel; with the wiring's lock."""
        if channel.closed or not peer.consented(peer.id, channel.name):
            return NOTHING
        return self._demands.of(channel, peer)

    def confirm(self, peer: Peer) -> None:
        """A peer has said which memory it has: what it was asked for in an earlier one, it is asked for again. It may
        have taken this node for gone."""
        with peer.lock:
            names = {name for name, asked in peer.asked.items() if _doubtful(peer, name, asked)}
        for channel in self._node.channels() if names else ():
            if channel.name in names:
                self.sync(channel, [peer])

    def _failed(self, channel: Channel, peer: Peer, error: Exception) -> None:
        if not self._context.closed:
            pause = self._context.failures.failed(_place(channel, peer), error)
            self._context.scheduler.later(pause, lambda: self.sync(channel, [peer]))

    def _ask(self, peer: Peer, channel: Channel, asked: InterestRequest) -> None:
        """Ask one peer about one channel, in a worker's thread, and see to it that it is asked again if something
        changed meanwhile or it did not answer."""
        answered = False
        failure: Exception | None = None
        try:
            answered = self._ask_once(peer, channel, asked)
        except Exception as error:
            failure = error
        finally:
            with peer.lock:
                asked.busy = False
                again, asked.again = asked.again, False
            self._context.scheduler.changed()
        if failure is not None:
            with peer.lock:
                asked.base = 0  # there is no telling what it knows
            self._failed(channel, peer, failure)
            return
        self._context.failures.succeeded(_place(channel, peer))
        if again or not answered:
            current = peer.asked.get(channel.name) is asked
            if current and peer.present and peer.gone is None and not self._context.closed:
                self._context.scheduler.later(0.0 if answered else RETRY_SECONDS, lambda: self.sync(channel, [peer]))

    def _ask_once(self, peer: Peer, channel: Channel, asked: InterestRequest) -> bool:
        """Whether the peer has answered."""
        with self._context.wiring.lock:
            demand = self._demand(channel, peer)
            changed = self._changed(asked, demand)
            base = 0 if changed is None else asked.base
            if changed is None:
                changed = self._demands.everything(demand)
            positions = self._positions(channel, peer)
            reached, since, known = self._reached.said(channel, peer, demand)
            begin, turn, version = self._begin(peer, channel), self._context.wiring.version, next(self._versions)
            hearing = None if self._groups is None else self._groups.hearing
            group = None if hearing is None else hearing.eligible(channel, peer, demand)
        if hearing is not None and group is not None:
            hearing.told(peer, channel.name, str(group))  # before anything can come
        elif hearing is not None and demand.wishes and hearing.hears(peer, channel.name):
            hearing.freeze(peer, channel.name, True)
        if demand.wishes and peer.link is None:
            self._links.call(peer)  # before anything can come
        with peer.lock:
            asked.version = version
            asked.speaks_for(turn)
            asked.number = 0 if (ad := peer.channel(channel.name)) is None else ad.number
            before, asked.demand = asked.demand, demand
            judged = asked.judged
            if begin:
                asked.begins.append((version, begin))
        question = Install(
            channel.name,
            version,
            reliable=demand.reliable,
            promises=demand.promises,
            multicast=group is not None,
            positions=positions,
            routes=[list(route) for route in demand.routes],
            reached=reached,
            since=since,
            known=known,
            moved=[] if base else self._reached.departed(channel.name),
            base=base,
            gone=changed.gone,
            gone_sinks=changed.gone_names,
        )
        misfit = self._misfit(peer, channel) if demand.wishes else ""
        try:
            answer = Installed({}, error=misfit) if misfit else self._put(peer, question, changed)
        except (Unreachable, SecurityError) as error:
            log.info("node %s: %s has not answered: %s", self._context.name, peer.name, error)
            asked.demand = before
            return False
        except FederationError as error:
            answer = Installed({}, error=str(error))
        if not isinstance(answer, Installed):
            self._context.offences.note(peer.id, f"expected an answer to a wish, found {type(answer).__name__}")
            asked.demand = before
            return False
        if answer.all:  # it does not know what this builds on
            with peer.lock:
                asked.demand, asked.base, asked.again = before, 0, True
            return bool(base)  # if this was all, that cannot be: not at once again
        if hearing is not None:
            if answer.group or answer.error:
                hearing.freeze(peer, channel.name, False)
            if not answer.error:
                hearing.told(peer, channel.name, answer.group)
        self._answered(peer, channel, asked, version, demand, answer, changed if base else None)
        with peer.lock:
            if asked.judged != judged:  # policies have changed meanwhile: there is no telling which was said first
                asked.base, asked.agreed, asked.again = 0, 0, True
        if demand.wishes and peer.link is None:
            self._links.connect(peer)
        return True

    def _changed(self, asked: InterestRequest, demand: Demand) -> Changed | None:
        """What has changed since the peer was last asked, with some of what it refused then; None if it is to be told
        everything. The wiring's lock is held."""
        if not asked.base or not demand.wishes:
            return None
        changed = self._demands.changed(demand, asked.demand)
        if changed is not None and asked.refused and demand.wanted is not None:
            said = {wish.tag for wish in changed.wishes}
            again = [tag for tag in asked.refused if tag not in said and tag in demand.wanted.wishes]
            changed.wishes += [demand.wanted.wishes[tag] for tag in again[:REPEATED_REFUSALS]]
        return changed

    def _put(self, peer: Peer, question: Install, changed: Changed) -> Any:
        """Ask; what a peer has not, of what it is asked for by name, it is sent when it says so."""
        if not any(wish.named for wish in changed.wishes):
            return self._put_pages(peer, question, changed.wishes, changed.names)
        wishes = [self._by_name(peer, wish) for wish in changed.wishes]
        answer = self._put_pages(peer, question, wishes, changed.names)
        if isinstance(answer, Installed) and answer.missing:
            lacking = set(answer.missing)
            both = zip(changed.wishes, wishes, strict=True)
            full = [self._in_full(each) if each.tag in lacking else told for each, told in both]
            answer = self._put_pages(peer, question, full, changed.names)
        if isinstance(answer, Installed) and answer.missing:  # it did not want it so: without any name
            plain = [replace(each, named=b"") for each in changed.wishes]
            answer = self._put_pages(peer, question, plain, changed.names)
        return answer

    def _by_name(self, peer: Peer, wish: Wish) -> Wish:
        """As a peer is asked first: by name, if it takes that, with the code if it can hardly have that yet."""
        if not wish.named:
            return wish
        if not peer.names or self.named is None:
            return replace(wish, named=b"")
        if self.named.is_new(unpack_named(wish.named)):
            return self._in_full(wish)
        return replace(wish, program=b"")

    def _in_full(self, wish: Wish) -> Wish:
        """With the code that it names, and the signature; where this node has them no more, without a name."""
        found = None if self.named is None else self.named.in_full(unpack_named(wish.named))
        return replace(wish, named=b"") if found is None else replace(wish, program=b"", named=pack_named(found))

    def _put_pages(self, peer: Peer, question: Install, wanted: list[Wish], names: list[str]) -> Any:
        """Ask, in as many messages as it takes; the answer to the last one."""
        parts = list(_pages(wanted))
        pages = max(1, len(parts), -(-len(names) // PAGE_WISHES))
        answer: Any = None
        for page in range(pages):
            wishes, packed = pack_wishes(parts[page] if page < len(parts) else [])
            start = page * PAGE_WISHES
            part = {"wishes": wishes, "packed": packed, "sinks": names[start : start + PAGE_WISHES]}
            answer = self._dialogue.ask(peer, replace(question, **part, page=page, more=page + 1 < pages))
            if not isinstance(answer, Installed) or answer.error or answer.all or answer.missing:
                break
        return answer

    def _misfit(self, peer: Peer, channel: Channel) -> str:
        """Why events of the peer's channel can be none of this node's; nothing if they can."""
        ad = peer.channel(channel.name)
        if ad is None:
            return ""
        try:
            type = unpack_type(ad.type)
            if (type is None) != (channel.type is None):
                here, there = ("bytes", "events of a type") if channel.type is None else ("events of a type", "bytes")
                return f"channel {channel.name} carries {here} here, and {there} there"
            if type is not None and channel.type is not None:
                fitting(type, channel.type)
        except HeadwaterError as error:
            return f"the types of channel {channel.name} do not fit: {error}"
        return ""

    def _positions(self, channel: Channel, peer: Peer) -> dict[int, int]:
        """How far durable sinks have come with the peer's sources, in an earlier process of this node."""
        start = f"{peer.id}/{peer.incarnation}/"
        found: dict[int, int] = {}
        for sink in self._demands.durable(channel):
            for key, seq in {} if sink._progress is None else sink._progress.positions().items():
                if key.startswith(start):
                    sid = int(key.removeprefix(start).partition(" ")[0])
                    found[sid] = min(found.get(sid, seq), seq)
        return found

    # ── answers ──

    def _answered(
        self,
        peer: Peer,
        channel: Channel,
        asked: InterestRequest,
        version: int,
        demand: Demand,
        answer: Installed,
        changed: Changed | None,
    ) -> None:
        """A peer has answered a question: one about what has `changed`, or (None) about everything."""
        refused = dict(answer.refused)
        with self._context.wiring.lock:
            if answer.error:
                refused = {wish.tag: answer.error for wish in self._demands.everything(demand).wishes}
            still = self._still_refused(asked, demand, changed)
        with peer.lock:
            asked.agreed, asked.due = version, answer.barrier
            # Of what nothing was taken, nothing is kept there to build on.
            asked.base = 0 if answer.error or len(still) + len(refused) >= demand.wishes else version
            asked.points, asked.refused = dict(answer.points), {**still, **refused}
            said = None if changed is None else {wish.tag for wish in changed.wishes}
            kept = {} if said is None else {tag: why for tag, why in asked.hidden.items() if tag not in said}
            asked.hidden = {**kept, **answer.hidden}
            asked.incarnation, asked.memory = peer.incarnation, answer.memory
        self._reached.installed(peer, channel.name, demand, answer.points)
        if asked.marked >= answer.barrier:  # no barrier will follow for it
            self.begun(peer, channel.name, asked, version)
            self._read_missed(peer, channel.name)
        retry = False
        with self._context.wiring.lock:
            known = {**asked.refused, **asked.hidden}
            entries = {tag: entry for tag in known if (entry := self._demands.entry(channel.name, tag))}
            self._not_refused(_place(channel, peer), set(entries.values()))
            for tag, why in answer.hidden.items():
                if tag in entries:
                    self._refuse(channel, entries[tag], _place(channel, peer), why)
            for tag, why in refused.items():
                if tag in entries:
                    retry |= self._demands.refused(peer, channel, entries[tag])
                    self._refuse(channel, entries[tag], _place(channel, peer), why)
        for tag, why in refused.items():
            self._control.interest(peer, channel.name, entries.get(tag), "refused", why)
        if retry:
            self._context.scheduler.later(0.0, lambda: self.sync(channel, [peer]))
            self._context.scheduler.later(RECONSIDER_SECONDS, lambda: self._reconsider(peer, channel))

    def judged(self, peer: Peer, told: Judged) -> None:
        """A peer's policies have changed, or where somebody is: what they say now of wishes of this node. Nothing has
        to be asked for again."""
        asked = peer.asked.get(told.channel)
        if asked is None:
            return
        with peer.lock:
            hidden = {tag: why for tag, why in asked.hidden.items() if tag not in told.shown}
            fresh = {tag: why for tag, why in told.hidden.items() if hidden.get(tag) != why}
            asked.hidden = {**hidden, **told.hidden}
            asked.judged += 1
        place = f"{told.channel}@{peer.name}"
        with self._context.wiring.lock:
            channel = next((each for each in self._node.channels() if each.name == told.channel), None)
            if channel is None:
                return
            known = {**asked.refused, **asked.hidden}
            entries = {tag: entry for tag in known if (entry := self._demands.entry(channel.name, tag))}
            self._not_refused(place, set(entries.values()))
            for tag, why in fresh.items():
                if tag in entries:
                    self._refuse(channel, entries[tag], place, why)
        for tag, why in fresh.items():
            self._control.interest(peer, told.channel, entries.get(tag), "hidden", why)
        self._context.scheduler.changed()

    def _still_refused(self, asked: InterestRequest, demand: Demand, changed: Changed | None) -> dict[int, str]:
        """Of what was refused before, that of which nothing was said this time."""
        if changed is None or demand.wanted is None:
            return {}
        said = {wish.tag for wish in changed.wishes}
        return {tag: why for tag, why in asked.refused.items() if tag not in said and tag in demand.wanted.wishes}

    def _not_refused(self, place: str, refused: set[Entry]) -> None:
        """Sinks of all other interests are not refused there any more; the wiring's lock is held."""
        known = self._refusals.get(place, {})
        for entry in [entry for entry in known if entry not in refused]:
            for sink in known.pop(entry):
                sink.refused.pop(place, None)
        if not known:
            self._refusals.pop(place, None)

    def _reconsider(self, peer: Peer, channel: Channel) -> None:
        """A source that had too much to do may have less by now."""
        with self._context.wiring.lock:
            forgotten = self._demands.forget_refusals(peer, channel)
        if forgotten and not channel.closed:
            self.sync(channel, [peer])

    def _refuse(self, channel: Channel, entry: Entry, place: str, why: str) -> None:
        log.warning("node %s: an interest in %s is refused: %s", self._context.name, place, why)
        found = [member.subscription for member in entry.members]
        sinks = self._refusals.setdefault(place, {})[entry] = [sink for sink in found if sink is not None]
        for sink in sinks:
            sink.refused[place] = why

    def refuse_channel(self, peer: Peer, name: str, why: str) -> None:
        """A peer's sources of a channel do not fit here."""
        with self._context.wiring.lock:
            for channel in self._node.channels():
                if channel.name == name:
                    for entry in channel.entries.values():
                        self._refuse(channel, entry, f"{name}@{peer.name}", why)

    def barrier_came(self, peer: Peer, channel: str, version: int, since: int, first: bool, gap: int) -> None:
        """Everything from before the peer took up our wishes of this version is here."""
        asked = peer.asked.get(channel)
        if asked is not None:
            if version and version >= asked.marked:
                asked.marked, asked.since, asked.first, asked.gap = version, since, first, gap
            elif asked.marked and gap > asked.gap:  # that is so whatever is in force, over a link that has just come up
                asked.since, asked.first, asked.gap = since, first, gap
            self.begun(peer, channel, asked, version)
            if asked.marked >= asked.due:
                self._read_missed(peer, channel)
            self._context.scheduler.changed()
            if self._node._ordered:
                self._node._release()

    def _read_missed(self, peer: Peer, channel: str) -> None:
        """All that is wanted is in force at a peer: what durable sinks have missed of its logged sources can be had."""
        for source in list(peer.remote_sources.values()):
            if source.channel.name == channel:
                source.ask_again()

    def begun(self, peer: Peer, channel: str, asked: InterestRequest, version: int) -> None:
        """Sinks that have asked a peer for the past, in a question of this version or before, have it now."""
        with peer.lock:
            done = [sink for asked_in, sinks in asked.begins if asked_in <= version for sink in sinks]
            asked.begins = [each for each in asked.begins if each[0] > version]
        for sink in done:
            sink._has_begun(peer.place(channel))

    def _begin(self, peer: Peer, channel: Channel) -> list[Subscription]:
        """Sinks that are still to begin with the past of a peer."""
        place = peer.place(channel.name)
        return [sink for sink in self._demands.late(channel) if sink._late and sink._begins(place)]

    # ── changing what is wanted ──

    @contextmanager
    def changing(self, subscription: Subscription, part: int, *, agreed: bool = False, **what: Any) -> Iterator[None]:
        """Other nodes learn the new interest first, beside the old one, and all from before that has come; meanwhile
        the caller puts it in the place of the old one. So at each source there is a point before which events are
        judged by the old interest, at both ends, and after which by the new. `agreed`: if a node that runs the old one
        refuses the new, FederationError, and all is as it was."""
        ahead = self._announce(subscription, part, **what)
        try:
            everywhere = self._context.scheduler.until(self._in_force(ahead), CHANGE_SECONDS)
            if agreed:
                self._must_agree(subscription, ahead)
            self._taken_up(subscription, everywhere)
            yield
        finally:
            self._put_back(ahead)

    @asynccontextmanager
    async def achanging(self, subscription: Subscription, part: int, **what: Any) -> AsyncIterator[None]:
        """The same for a coroutine, if all agree; cancelled while it waits, all is as it was."""
        ahead: list[tuple[Channel, Entry]] = []
        try:
            await in_thread(lambda: ahead.extend(self._announce(subscription, part, **what)), stop=nothing)
            everywhere = await self._context.scheduler.auntil(self._in_force(ahead), CHANGE_SECONDS)
            self._must_agree(subscription, ahead)
            self._taken_up(subscription, everywhere)
            yield
        finally:
            self._put_back(ahead)

    def _announce(self, subscription: Subscription, part: int, **what: Any) -> list[tuple[Channel, Entry]]:
        """Have other nodes learn what is to come, beside what there is."""
        node, demands = self._node, self._demands
        with node._wiring.lock:
            ahead = node._foresee(subscription, part, **what)
            for channel, entry in ahead:
                demands.ahead.setdefault(channel, []).append(entry)
                demands.touch(channel, [entry])
                if entry.interest is not None and entry.interest.stateful:
                    node._wiring.reserved.append(entry)
            node._wiring.changed([channel for channel, _ in ahead])
        return ahead

    def _in_force(self, ahead: list[tuple[Channel, Entry]]) -> Callable[[], bool]:
        channels = [channel for channel, _ in ahead]
        return lambda: self.settled(channels, barriers=True)

    def taken_up(self, subscription: Subscription) -> bool:
        """Whether all nodes had taken up its last change when that took effect here: so that its points are exact."""
        return subscription not in self._untold

    def _must_agree(self, subscription: Subscription, ahead: list[tuple[Channel, Entry]]) -> None:
        """Raise if what is to come is refused where what there is is not: nothing would be heard from there."""
        before = [(channel, attachment.entry) for (channel, _), attachment in list(subscription._attachments.items())]
        old = self._refused(before)
        refused = {place: why for place, why in self._refused(ahead).items() if place not in old}
        if refused:
            told = "; ".join(f"{place}: {why}" for place, why in refused.items())
            raise FederationError(
                f"change: subscription {subscription.name!r}: refused, and so nothing was changed: {told} (the old "
                "interest and the new both count while it changes: if there is no room for both, subscribe anew)"
            )

    def _refused(self, entries: list[tuple[Channel, Entry]]) -> dict[str, str]:
        """By channel and node: where interests are refused and do not run here instead, and why."""
        found: dict[str, str] = {}
        for channel, entry in entries:
            for peer in self._peers.everyone():
                asked = peer.asked.get(channel.name)
                why = None if asked is None else asked.refused.get(self._demands.number(entry) or -1)
                if why is not None and self._demands.runs_at(peer, channel.name, entry):
                    found[_place(channel, peer)] = why
        return found

    def _taken_up(self, subscription: Subscription, everywhere: bool) -> None:
        if everywhere:
            self._untold.discard(subscription)
        else:
            self._untold.add(subscription)
            log.warning("node %s: not all nodes have taken up the change of %s", self._node.name, subscription.name)

    def _put_back(self, ahead: list[tuple[Channel, Entry]]) -> None:
        """What was to come is there by now, or does not come."""
        node, demands = self._node, self._demands
        with node._wiring.lock:
            for channel, entry in ahead:
                demands.ahead[channel].remove(entry)
                demands.touch(channel, [entry])
                if entry in node._wiring.reserved:
                    node._wiring.reserved.remove(entry)
                if not demands.ahead[channel]:
                    del demands.ahead[channel]
            node._wiring.changed([channel for channel, _ in ahead])

    # ── waiting for it ──

    def settled(self, channels: Iterable[Channel], *, barriers: bool = False) -> bool:
        """Whether all peers that are there have answered what is wanted of these channels (and it is in force)."""
        return all(
            self._is_settled(channel, peer, barriers)
            for channel in channels
            for peer in self._peers.everyone()
            if peer.gone is None and peer.has(channel.name)
        )

    def _is_settled(self, channel: Channel, peer: Peer, barriers: bool) -> bool:
        with self._context.wiring.lock:
            demand = self._demand(channel, peer)
        asked = peer.asked.get(channel.name)
        if asked is None:
            return not demand.wishes
        if asked.busy or asked.agreed != asked.version or not asked.demand.same(demand):
            return False
        if _doubtful(peer, channel.name, asked):
            return False
        return not barriers or not demand.wishes or asked.marked >= asked.due or asked.all_refused

    def hearings(self, channel: Channel, entry: Entry) -> list[Hearing]:
        """Of each node that has sources of a channel: since when what an interest wants comes from there."""
        peers = [peer for peer in self._peers.everyone() if peer.has(channel.name) and not peer.is_given_up]
        return [self.hearing(channel, entry, peer) for peer in peers]

    def hearing(self, channel: Channel, entry: Entry, peer: Peer) -> Hearing:
        """The same of one of them."""
        name, asked = channel.name, peer.asked.get(channel.name)
        life, since, first, refused, judged = (peer.incarnation, 0, 0, 0), 0, False, False, 0
        if asked is not None:
            memory = peer.memory_there if _doubtful(peer, name, asked) else asked.memory
            life, since, first = (peer.incarnation, memory, asked.number, asked.gap), asked.since, asked.first
            judged = asked.judged
            refused = bool(asked.refused) and (self._demands.number(entry) in asked.refused or asked.all_refused)
        in_force = partial(self._is_settled, channel, peer, True)
        return Hearing(peer.place(name), f"{name}@{peer.name}", peer, life, since, first, refused, in_force, judged)


def _place(channel: Channel, peer: Peer) -> str:
    return f"{channel.name}@{peer.name}"


def _doubtful(peer: Peer, channel: str, asked: InterestRequest) -> bool:
    """Whether a peer may have given up what it was asked for, without being asked to; or its channel is another one."""
    if not asked.demand.wishes:
        return False
    forgotten = bool(asked.memory) and peer.memory_there not in (0, asked.memory)
    return forgotten or ((ad := peer.channel(channel)) is not None and ad.number != asked.number)


def _pages(wishes: list[Wish]) -> Iterator[list[Wish]]:
    """Wishes in parts, each of which fits into a message."""
    page: list[Wish] = []
    size = 0
    for wish in wishes:
        each = 64 + len(wish.program or b"") + len(wish.params or b"") + len(wish.named)
        if page and (len(page) == PAGE_WISHES or size + each > PAGE_BYTES):
            yield page
            page, size = [], 0
        page.append(wish)
        size += each
    if page:
        yield page
