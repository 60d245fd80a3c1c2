"""What of other nodes' events crosses to a pattern that runs here: of later elements only those whose values earlier
events have bound (`patterns/crossing/bindings.py`).

    an event comes that binds a value         the watermark is held at its time: nothing later is released
    a round                                   all values that were bound meanwhile, together:
        the sources are asked for them too    as by any change of an interest: at a point of each
        the gap is closed                     each node is asked for what it has published of them since (`Past`)
        the watermark is let go               behind the events that so came

A node is asked for open values only (it is *narrow*) once it has said that it keeps a past of the channel, and that
this node may ask for it. Others are asked for all that the elements' own conditions let through, and so is everyone, if
there are too many values. Values are forgotten when the window has passed, with the next round.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.channel.patterns.stage import Errand, letters_of
from headwater.channel.routing.letter import Chunk, Letter
from headwater.errors import ClosedError, HeadwaterError, Unreachable
from headwater.federation.patterns.crossed import Crossed
from headwater.federation.patterns.missed import Missed, MissedEvent, Points, read_missed
from headwater.federation.wire.past_requests import Past
from headwater.federation.wire.requests import pack_params
from headwater.ir.interp import EventContext
from headwater.patterns.crossing.bindings import Bindings, Opener, bindings
from headwater.patterns.crossing.marks import Mark
from headwater.threads import Worker

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Asked
    from headwater.channel.patterns.subscription import Matching
    from headwater.channel.routing.attachment import Attachment
    from headwater.federation.context import Context
    from headwater.federation.interests.requester import Requester
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.patterns.pattern import Pattern

log = logging.getLogger("headwater.federation")
MOST_OPEN = 10_000  # values; from here on all of them are asked for
OPEN_BYTES = 128 << 10  # of them; a node's budget for an interest is twice that, unless its owner has another
SETTLE_SECONDS = 10.0  # after which it is looked again whether all nodes have taken up a change
PAUSE_SECONDS = 0.25  # before a round that failed is tried again
SEEN = 4_096  # events, from which on those that were released are forgotten

Values = dict[str, dict[Any, int]]  # by slot: values, and when each was bound, in microseconds


class _OtherPattern(Exception):
    """The pattern was changed meanwhile."""


class Life(NamedTuple):
    """One run of another node, with a channel of it."""

    node: str
    incarnation: int
    channel: str


class Narrowings:
    """Of all patterns that run at a node."""

    def __init__(self, context: Context, peers: Peers, requester: Requester, dialogue: Dialogue) -> None:
        self.context, self.peers, self.requester, self.dialogue = context, peers, requester, dialogue
        self._all: list[Narrowing] = []
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def make(self, subscription: Matching[Any]) -> Narrowing | None:
        """For a pattern that is about to run; None where none of its events can be asked for by what is bound."""
        found = bindings(subscription.pattern.model)
        if found is None:
            return None
        made = Narrowing(self, subscription, found)
        with self._lock:
            self._all = [each for each in self._all if not each.ended] + [made]
        return made

    def look(self) -> None:
        """Nodes, or their sources, may have come or gone. Quick: what takes time is left to a thread."""
        for narrowing in self._all:
            narrowing.look()

    def work(self, narrowing: Narrowing) -> None:
        with self._lock:
            if self._worker is None:
                name = f"headwater-{self.context.name}-narrowing"
                self._worker = Worker(name, crashes=self.context.node._crashes)
                self._worker.start()
        self._worker.put(narrowing.run, always=True)

    def close(self) -> None:
        """The node leaves the federation."""
        if self._worker is not None:
            self._worker.stop()


class Narrowing:
    """Of one pattern. Events are shown to it by the thread that offers them to the pattern; rounds are another's."""

    def __init__(self, narrowings: Narrowings, subscription: Matching[Any], found: Bindings) -> None:
        self._all, self.subscription = narrowings, subscription
        self._context, self._peers = narrowings.context, narrowings.peers
        self._lock = threading.Lock()
        self._working = self._wanted = False
        self._keys = count(1)
        self._holds: set[Any] = set()  # rounds that hold the watermark
        self._set(found)
        self._seen: dict[
            tuple[str, int], int
        ] = {}  # events of other nodes that may not have been released: their times
        self._sweep = SEEN
        self.counts = Crossed()

    def _set(self, found: Bindings) -> None:
        """Nothing is open, and nobody was asked for that."""
        self.bindings, self._opener = found, Opener(found)
        self._open: Values = {slot.name: {} for slot in found.slots}
        self._pending: Values = {slot.name: {} for slot in found.slots}
        self._narrow: frozenset[str] = frozenset()
        self._known: dict[Life, str] = {}  # why a node is not narrow; "" if it may be
        self._lives: frozenset[Life] = frozenset()  # as they were looked at last

    # ── events: by the thread that offers them ──

    def arrived(self, attachment: Attachment, letter: Letter | Chunk | list[Letter]) -> None:
        """Before it is offered to the pattern."""
        channel = attachment.channel.name
        binds = channel in self.bindings.binding
        for each in letters_of(attachment, letter):
            time, source, mark = each.stamp // 1000, each.source, each.event.__class__ is Mark
            if not source.local:
                self.counts.came(each.event if mark else each.record)
                self._seen[source.id, each.seq] = time
            if binds and not mark:
                meta = EventContext(source.name, source.node, each.seq, time)
                opened = self._opener(channel, bytes(each.record or b""), meta)
                if opened:
                    self._bound(opened, time)
        if len(self._seen) > self._sweep:
            self._forget_seen()

    def changed(self, pattern: Pattern) -> None:
        """The pattern is another from here on: nothing of it is open."""
        found = bindings(pattern.model)
        with self._lock:
            if found is not None:
                self._set(found)
            self._hold_pending()
            for key in self._holds:
                self.subscription._stage.watermark.let_go(key)
            self._holds.clear()
        self.look()

    def _bound(self, opened: Mapping[str, Any], time: int) -> None:
        """An event has bound values: those that are not open yet are asked for, and nothing later goes before."""
        with self._lock:
            for name, value in opened.items():
                times = self._open[name]
                if value in times:
                    times[value] = max(times[value], time)
                elif not self._narrow and not self._working:
                    times[value] = time  # all of them come
                else:
                    pending = self._pending[name]
                    pending[value] = min(pending.get(value, time), time)
                    self._wanted = True
            self._hold_pending()
            self._begin()

    def _hold_pending(self) -> None:
        """The watermark stays at the first value that no round has taken up; the lock is held."""
        watermark = self.subscription._stage.watermark
        times = [time for values in self._pending.values() for time in values.values()]
        if times:
            watermark.hold((self, 0), min(times))
        else:
            watermark.let_go((self, 0))

    def _begin(self) -> None:
        """Have a round begun, if one is wanted and none is under way; the lock is held."""
        if self._wanted and not self._working and not self.ended:
            self._working = True
            self._all.work(self)

    def _forget_seen(self) -> None:
        sure = self._sure()
        self._seen = {key: time for key, time in self._seen.items() if time >= sure}
        self._sweep = max(SEEN, 2 * len(self._seen))

    def _sure(self) -> int:
        """Up to when everything was released."""
        look = self.subscription._stage.seen
        return -1 if look is None else look.sure[0]

    def offer_missed(self, key: Any, found: Missed) -> None:
        """What was missed is offered, in its place among the events; then the watermark may go on."""
        with self._lock:
            if key not in self._holds:
                return  # it is another pattern by now
        runner = self.subscription._stage.operator.runner
        for missed in found.events:
            self.counts.read_back += 1
            self.counts.weigh(missed.record)
            at = f"{missed.channel}/{missed.source}@{missed.node}", missed.seq
            if at in self._seen:
                self.counts.repeated += 1
            else:
                self._seen[at] = missed.stamp // 1000
                self._offer(runner, missed)
        self._let_go(key)

    def _let_go(self, key: Any) -> None:
        with self._lock:
            self._holds.discard(key)
        self.subscription._stage.watermark.let_go(key)

    @property
    def idle(self) -> bool:
        """Whether nothing is being asked for, and nothing is held for that."""
        with self._lock:
            return not self._working and not self._holds and not any(self._pending.values())

    def _offer(self, runner: Any, missed: MissedEvent) -> None:
        meta = EventContext(missed.source, missed.node, missed.seq, missed.stamp // 1000)
        if isinstance(missed.record, Mark):
            runner.mark(missed.channel, missed.record, meta)
            return
        opened = self._opener(missed.channel, missed.record, meta)
        if opened:
            self._bound(opened, missed.stamp // 1000)
        runner.offer(missed.channel, missed.record, meta)

    # ── who is there ──

    @property
    def ended(self) -> bool:
        return self.subscription.cancelled

    def _there(self) -> dict[Life, Peer]:
        """The runs of nodes that have sources of the channels of which less may cross."""
        return {
            Life(peer.id, peer.incarnation, channel): peer
            for peer in self._peers.everyone()
            if peer.gone is None and peer.state is not None
            for channel in self.bindings.channels
            if peer.has(channel)
        }

    def look(self) -> None:
        """Whether others are there than before: then there is something to be done."""
        if self.ended:
            return
        lives = frozenset(self._there())
        with self._lock:
            if lives != self._lives:
                self._lives, self._wanted = lives, True
                self._begin()

    def _names(self) -> frozenset[str]:
        """Of nodes that can be asked for open values only: all that have such a name keep a past, and let it be
        read."""
        there = self._there()
        for life, peer in there.items():
            if life not in self._known:
                self._known[life] = self._why_not(life, peer)
        self._known = {life: why for life, why in self._known.items() if life in there}
        if self._too_many() or self.subscription.narrow is not None:  # it runs for another node, by that one's rights
            return frozenset()
        wide = {there[life].name for life, why in self._known.items() if why}
        return frozenset(peer.name for peer in there.values()) - wide - {self._context.name}

    def _too_many(self) -> bool:
        with self._lock:
            values = [value for slot in (self._open, self._pending) for times in slot.values() for value in times]
        size = sum(len(value) if isinstance(value, str | bytes) else 8 for value in values)
        self.counts.too_many = len(values) > MOST_OPEN or size > OPEN_BYTES
        return self.counts.too_many

    def _why_not(self, life: Life, peer: Peer) -> str:
        """Why a node cannot be asked for open values only; nothing if it can."""
        if any(ad.origin for ad in peer.sources if ad.channel == life.channel):
            return "it passes on events of another federation"
        interest = self.bindings.past(life.channel, {}, self._asked(life.channel).marking)
        if interest is None:
            return "nothing is bound there"
        try:
            question = Past(life.channel, program=interest.dumps(), params=pack_params(interest.params))
            answer = self._all.dialogue.ask(peer, question)
        except HeadwaterError as error:
            return str(error)
        return "" if answer.remembers else "it keeps no past: Config(history=…), or a log"

    # ── rounds: by the thread of the narrowings ──

    def run(self) -> None:
        """Rounds, until nothing is left to be asked for."""
        while not self.ended and not self._context.closed:
            with self._lock:
                self._wanted = False
            try:
                if not self._round(self._names()):
                    return
            except _OtherPattern:
                break  # it begins anew with that
            except ClosedError:
                break
            except Exception as error:  # whatever it is, the watermark must not be held for ever
                self.counts.failures += 1
                self._context.failures.failed(f"narrowing of {self.subscription.name}", error)
                log.warning("node %s: %s: %s", self._context.name, self.subscription.name, error, exc_info=error)
                with self._lock:
                    self._wanted = True
                threading.Event().wait(PAUSE_SECONDS)
        with self._lock:
            self._working = False

    def _round(self, names: frozenset[str]) -> bool:
        """Ask for all values that were bound meanwhile, and for what was missed of them; False if there is nothing."""
        watermark, key = self.subscription._stage.watermark, (self, next(self._keys))
        with self._lock:
            if self.bindings.pattern is not self.subscription.pattern.model:
                self._working = False  # `changed` comes next
                return False
            new = {name: values for name, values in self._pending.items() if values}
            before = self._narrow
            if not new and names == before:
                self._working = self._wanted  # something came while it was looked who is there
                return self._working
            if new:
                since = min(time for values in new.values() for time in values.values())
                watermark.hold(key, since)
                self._holds.add(key)
            self._pending = {slot.name: {} for slot in self.bindings.slots}
            self._hold_pending()
            self._forget_expired()
            for name, values in new.items():
                self._open[name].update(values)
            open = {name: frozenset(values) for name, values in self._open.items()}
        try:
            points = self._ask(open, names)
            found = self._missed(new, before, since, points) if new else Missed()
        except _OtherPattern:
            raise
        except BaseException:
            with self._lock:  # they are still to be asked for, and somebody may have been asked already
                self._narrow |= names
                for name, values in new.items():
                    for value, time in values.items():
                        self._pending[name][value] = min(time, self._pending[name].get(value, time))
                        self._open[name].pop(value, None)
                self._hold_pending()
            self._let_go(key)
            raise
        self.counts.rounds += 1
        self.counts.lost += found.lost
        blind = self.subscription._stage.watermark.blind
        if found.lost and blind is not None:
            self.subscription._stage.do(Errand(partial(blind.note, since, self._context.node._stamp() // 1000)))
        self.counts.problems.update(found.problems)
        for who, what in found.offences:
            self._context.offences.note(who, what)
        self.subscription._stage.do(Errand(partial(self.offer_missed, key, found)))
        return True

    def _forget_expired(self) -> None:
        """Values of which no match can come any more; the lock is held."""
        window = self.bindings.pattern.window
        if window is None or window.microseconds is None:
            return
        last = self._sure() - window.microseconds
        self._open = {name: {v: t for v, t in values.items() if t >= last} for name, values in self._open.items()}

    def _ask(self, open: Mapping[str, Iterable[Any]], names: frozenset[str]) -> Points:
        """Have all sources asked for these values, and wait until they are: the last event of each source before that,
        by channel and by the source's number at its node."""
        subscription, node = self.subscription, self._context.node
        channels: list[Any] = []
        points: Points = {}
        with subscription._asking:
            if subscription.pattern.model is not self.bindings.pattern:
                raise _OtherPattern
            for part, asked in enumerate(list(subscription._asked)):
                if asked.name in self.bindings.channels:
                    interest = self.bindings.interest(asked.name, open, names, asked.marking)
                    ids = node._change(subscription, part, where=interest, params=None, zones=...)
                    points.update(self._points(asked.name, ids))
                    if not self._all.requester.taken_up(subscription):
                        channels.append(asked.target)
            with self._lock:
                self._narrow = names
        if not channels:
            return points
        settled = partial(self._all.requester.settled, channels, barriers=True)
        while not self._context.scheduler.until(settled, SETTLE_SECONDS):
            if self.ended or self._context.closed:
                raise ClosedError("it has ended")
            log.warning("node %s: %s waits for nodes that do not answer", self._context.name, subscription.name)
        for channel in channels:  # what came since may be read back as well: it is told apart by its number
            points.update(self._points(channel.name, {}))
        return points

    def _points(self, channel: str, ids: Mapping[str, int]) -> Points:
        """Of the sources of a channel at other nodes. `ids` has them by id, for those that were heard; else it is as
        far as they have come by now."""
        points: Points = {}
        for peer in self._peers.everyone():
            asked = peer.asked.get(channel)
            for ad in [ad for ad in peer.sources if ad.channel == channel and not ad.origin]:
                source = peer.remote_sources.get(ad.sid)
                there = 0 if asked is None else asked.points.get(ad.sid, 0)
                here = None if source is None else ids.get(source.id)
                if here is None:
                    here = max(there, 0 if source is None else source.seq)
                points[peer.id, channel, ad.sid] = here
        return points

    def _missed(self, new: Values, nodes: frozenset[str], since: int, points: Points) -> Missed:
        """What these nodes have published of the values before they were asked for them."""
        found = Missed()
        values = {name: frozenset(times) for name, times in new.items()}
        for peer in self._peers.everyone():
            if peer.name in nodes and peer.gone is None:
                for channel in self.bindings.channels:
                    asked = self._asked(channel)
                    interest = self.bindings.past(channel, values, asked.marking)
                    if interest is not None:
                        about = asked.target, interest, since * 1000, points, self._question, asked.marking
                        read_missed(found, peer, *about)
        return found

    def _asked(self, name: str) -> Asked:
        return next(asked for asked in self.subscription._asked if asked.name == name)

    def _question(self, peer: Peer, request: Past) -> Any:
        """Put to a node, again and again while it does not answer but may be there: nothing is released meanwhile."""
        while True:
            try:
                return self._all.dialogue.ask(peer, request)
            except Unreachable:
                if self.ended or self._context.closed:
                    raise ClosedError("it has ended") from None
                if peer.gone is not None:
                    raise
                self._context.scheduler.until(lambda: peer.gone is not None, PAUSE_SECONDS)

    # ── for people ──

    def report(self) -> dict[str, Any]:
        """Plain values: what is asked of whom, and what has crossed."""
        with self._lock:
            open = {slot.what: len(self._open[slot.name]) for slot in self.bindings.slots}
            waiting = sum(map(len, self._pending.values()))
            narrow = sorted(self._narrow)
            known = dict(self._known)
        names = {peer.id: peer.name for peer in self._peers.everyone()}
        wide = {names.get(life.node, life.node): why for life, why in known.items() if why}
        if self.counts.too_many:
            wide["all nodes"] = f"more than {MOST_OPEN:,} values, or {OPEN_BYTES:,} bytes of them, are open"
        counts = self.counts
        return {
            "open": open,
            "waiting": waiting,
            "asked for open values": narrow,
            "asked for all": wide,
            "rounds": counts.rounds,
            "crossed": counts.events,
            "marks": counts.marks,
            "read back": counts.read_back,
            "repeated": counts.repeated,
            "bytes": counts.bytes,
            "lost": counts.lost,
            "problems": dict(counts.problems),
        }


__all__ = ["Narrowing", "Narrowings"]
