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

A pattern that goes on from a state (`resume`) asks for what that holds open from the start. Values that were bound just
before may not have been asked for then: nodes *owe* what they had published of them, also those that are away and come
back in time. After each round it is known how far the pattern is with every source, heard or not: there it goes on if
its process ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from headwater.channel.patterns.stage import Errand, letters_of
from headwater.channel.routing.letter import Chunk, Letter
from headwater.errors import ClosedError
from headwater.federation.patterns.asking import Asking, Debt, OtherPattern
from headwater.federation.patterns.crossed import Crossed
from headwater.federation.patterns.missed import Missed, MissedEvent
from headwater.federation.patterns.narrow_nodes import NarrowNodes
from headwater.federation.patterns.sources import Points
from headwater.ir.interp import EventContext
from headwater.patterns.crossing.bindings import Bindings, Opener, bindings
from headwater.patterns.crossing.marks import Mark
from headwater.patterns.crossing.open_values import (
    MOST_OPEN,
    OPEN_BYTES,
    Values,
    asked,
    earliest,
    together,
    too_many,
)
from headwater.threads import Worker

if TYPE_CHECKING:
    from headwater.channel.patterns.resumption import Resumption
    from headwater.channel.patterns.subscription import Matching
    from headwater.channel.routing.attachment import Attachment
    from headwater.federation.context import Context
    from headwater.federation.interests.requester import Requester
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.table import Peers
    from headwater.patterns.pattern import Pattern

log = logging.getLogger("headwater.federation")
PAUSE_SECONDS = 0.25  # before a round that failed is tried again
SEEN = 4_096  # events, from which on those that were released are forgotten


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
        self._asking = Asking(subscription, narrowings)
        self._nodes = NarrowNodes(self._peers, narrowings.dialogue, self._context.name, self._asking)
        self._lock = threading.Lock()
        self._begun = not subscription._resumes  # else it waits for `start`
        self._working = self._wanted = False
        self._keys = count(1)
        self._holds: set[Any] = set()  # rounds, and debts, that hold the watermark
        self._patience = 0.0  # seconds for which nodes that are away are waited for
        self._set(found)
        self._seen: dict[
            tuple[str, int], int
        ] = {}  # events of other nodes that may not have been released: their times
        self._sweep = SEEN
        self.counts = Crossed()

    def _set(self, found: Bindings) -> None:
        """Nothing is open, and nobody was asked for that."""
        self.bindings = self._asking.bindings = found
        self._opener = Opener(found)
        self._open: Values = {slot.name: {} for slot in found.slots}
        self._since: Values = {slot.name: {} for slot in found.slots}  # of open ones: what is older has not come
        self._pending: Values = {slot.name: {} for slot in found.slots}  # when each was bound first
        self._latest: Values = {slot.name: {} for slot in found.slots}  # of those, when last
        self._narrow: frozenset[str] = frozenset()
        self._owed: list[Debt] = []
        self._unplaced = False  # there are sources of which it is not known how far the pattern is with them
        self._nodes.forget()

    def resume(self, what: Resumption, patience: float) -> None:
        """The pattern goes on from a state, or begins; before anything is offered to it. Nodes that owe something, and
        are away, are waited for so many seconds."""
        held, nodes = what.held, what.nodes
        if nodes is None:
            nodes = frozenset(peer.name for peer in self._nodes.there().values()) - {self._context.name}
        with self._lock:
            none: Values = {slot.name: {} for slot in self.bindings.slots}
            self._open, self._since = together(none, held.all), together(none, held.waiting)
            self._seen.update(held.seen)
            self._narrow, self._asking.floor, self._patience = what.narrow, what.floor, patience
            if held.waiting:
                self._owe(nodes, held.waiting, resent=what.nodes is not None)

    def start(self) -> None:
        """The pattern is attached to its channels: from here on it can be said how far it is with their sources."""
        self._begun = True
        self.look()
        self._look_again()

    def _owe(self, nodes: Iterable[str], values: Values, *, resent: bool) -> None:
        """What nodes have published of these values is read back as soon as they are there; the lock is held."""
        since, until = earliest([values]), self._context.node.clock.now() + self._patience
        for node in nodes:
            debt = Debt(node, values, resent, until, (self, next(self._keys)))
            self._owed.append(debt)
            self._hold(debt.key, since or 0)
            self._context.scheduler.later(self._patience, self._look_again)

    def _hold(self, key: Any, time: int) -> None:
        self.subscription._stage.watermark.hold(key, time)
        self._holds.add(key)

    def began(self, attachment: Attachment) -> None:
        """What is asked of a channel is another from here on; its sources stand still."""
        self._asking.points.began(attachment.channel.name)

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
                times, pending, latest = self._open[name], self._pending[name], self._latest[name]
                if value in times and time >= self._since[name].get(value, time):
                    times[value] = max(times[value], time)
                elif not self._narrow and not self._working:
                    times[value] = time  # all of them come
                else:  # also if it was bound later before: what is between has not come
                    pending[value] = min(pending.get(value, time), time)
                    latest[value] = max(latest.get(value, time), time)
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
        if self._wanted and self._begun and not self._working and not self.ended:
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

    def offer_missed(self, keys: list[Any], found: Missed, positions: Mapping[str, int]) -> None:
        """What was missed is offered, in its place among the events; then the watermark may go on."""
        with self._lock:
            if not self._holds.issuperset(keys):
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
        self.subscription._reach(positions)
        self._let_go(*keys)

    def _let_go(self, *keys: Any) -> None:
        with self._lock:
            self._holds.difference_update(keys)
        for key in keys:
            self.subscription._stage.watermark.let_go(key)

    @property
    def idle(self) -> bool:
        """Whether nothing is being asked for, and nothing is held for that."""
        with self._lock:
            waiting = self._working or self._holds or self._owed or any(self._pending.values())
            return self._begun and not waiting

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

    def look(self) -> None:
        """Whether others are there than before: then there is something to be done."""
        if self.ended or not self._begun or not self._nodes.have_changed():
            return
        with self._lock:
            self._unplaced = self.subscription._resumes
            self._wanted = True
            self._begin()

    def _look_again(self) -> None:
        """Something is to be asked for, or somebody may have been waited for long enough."""
        with self._lock:
            self._wanted = True
            self._begin()

    def _names(self) -> frozenset[str]:
        """Of nodes that can be asked for open values only."""
        names = self._nodes.names(self._narrow)
        with self._lock:
            self.counts.too_many = too_many(self._open, self._pending)
        return frozenset() if self.counts.too_many else names

    # ── rounds: by the thread of the narrowings ──

    def run(self) -> None:
        """Rounds, until nothing is left to be asked for."""
        while not self.ended and not self._context.closed:
            with self._lock:
                self._wanted = False
            try:
                if not self._round(self._names()):
                    return
            except OtherPattern:
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
        key, there = (self, next(self._keys)), {peer.name for peer in self._nodes.there().values()}
        self._give_up(there)
        with self._lock:
            if self.bindings.pattern is not self.subscription.pattern.model:
                self._working = False  # `changed` comes next
                return False
            new = {name: values for name, values in self._pending.items() if values}
            before, owed = self._narrow, [debt for debt in self._owed if debt.node in there]
            if not new and names == before and not owed and not self._unplaced:
                self._working = self._wanted  # something came while it was looked who is there
                return self._working
            since = earliest([new])
            if since is not None:
                self._hold(key, since)
                self._owe(before - there if self._patience else (), new, resent=False)
            self._unplaced = False
            self._owed = [debt for debt in self._owed if debt not in owed]
            self._pending = {slot.name: {} for slot in self.bindings.slots}
            self._hold_pending()
            self._forget_expired()
            for name, values in new.items():
                self._since[name].update(values)
                for value in values:
                    latest = self._latest[name].pop(value)
                    self._open[name][value] = max(latest, self._open[name].get(value, latest))
            open = asked(self._open)
        try:
            points = self._ask(open, names) if new or names != before else self._asking.settle()
            found = Missed()
            if since is not None:
                self._missed(found, new, before & there, points, open)
            unread = [debt for debt in owed if not self._read_debt(found, debt, points, open)]
            positions = self._asking.positions(points)
        except OtherPattern:
            raise
        except BaseException:
            with self._lock:  # they are still to be asked for, and somebody may have been asked already
                self._narrow |= names
                self._unplaced = self.subscription._resumes
                self._owed += owed
                for name, values in new.items():
                    for value, time in values.items():
                        self._pending[name][value] = min(time, self._pending[name].get(value, time))
                        latest = self._open[name].pop(value, time)
                        self._latest[name][value] = max(latest, self._latest[name].get(value, latest))
                self._hold_pending()
            self._let_go(key)
            raise
        with self._lock:
            self._owed += unread
        self._note(found, earliest([new, *(debt.values for debt in owed)]))
        keys = [*([key] if new else []), *(debt.key for debt in owed if debt not in unread)]
        self.subscription._stage.do(Errand(partial(self.offer_missed, keys, found, positions)))
        return True

    def _give_up(self, there: set[str]) -> None:
        """What nodes owe that are away, and were waited for long enough, is lost: it is not known from then on."""
        now = self._context.node.clock.now()
        with self._lock:
            over = [debt for debt in self._owed if debt.node not in there and now >= debt.until]
            self._owed = [debt for debt in self._owed if debt not in over]
        for debt in over:
            self.counts.lost += 1
            self.counts.problems[debt.node] = "it did not come back in time to say what it had of open values"
            self._is_blind(earliest([debt.values]) or 0)
            self._let_go(debt.key)
        if over:
            self.subscription._stage.nudge()

    def _note(self, found: Missed, since: int | None) -> None:
        """What was found since a time, and what nobody could tell: that is not known from then on."""
        self.counts.rounds += 1
        self.counts.lost += found.lost
        if found.lost and since is not None:
            self._is_blind(since)
        self.counts.problems.update(found.problems)
        for who, what in found.offences:
            self._context.offences.note(who, what)

    def _is_blind(self, since: int) -> None:
        """Events since then may have been wanted, and did not come."""
        blind = self.subscription._stage.watermark.blind
        if blind is not None:
            self.subscription._stage.do(Errand(partial(blind.note, since, self._context.node._stamp() // 1000)))

    def _forget_expired(self) -> None:
        """Values of which no match can come any more; the lock is held."""
        window = self.bindings.pattern.window
        if window is None or window.microseconds is None:
            return
        last = self._sure() - window.microseconds
        self._open = {name: {v: t for v, t in values.items() if t >= last} for name, values in self._open.items()}
        self._since = {
            name: {v: t for v, t in values.items() if v in self._open[name]} for name, values in self._since.items()
        }

    def _ask(self, open: Mapping[str, Iterable[Any]], names: frozenset[str]) -> Points:
        """Have all sources asked for these values, and wait until they are."""

        def asked() -> None:
            with self._lock:
                self._narrow = names

        points = self._asking.ask(open, names, asked)
        self.subscription._keep_narrow(names)
        return points

    def _missed(
        self, found: Missed, new: Values, nodes: Iterable[str], points: Points, open: Mapping[str, Iterable[Any]]
    ) -> None:
        """What these nodes have published of the values before they were asked for them. One that has gone meanwhile
        owes it, if it is waited for; else it is lost."""
        for name in sorted(nodes):
            if self._asking.read_again(found, name, new, points, open):
                continue
            if self._patience:
                with self._lock:
                    self._owe([name], new, resent=False)
            else:
                found.lost += 1
                found.problems[name] = "it was gone before it had said what it had of open values"

    def _read_debt(self, found: Missed, debt: Debt, points: Points, open: Mapping[str, Iterable[Any]]) -> bool:
        return self._asking.read_again(found, debt.node, debt.values, points, open, resent=debt.resent)

    # ── for people ──

    def report(self) -> dict[str, Any]:
        """Plain values: what is asked of whom, and what has crossed."""
        with self._lock:
            open = {slot.what: len(self._open[slot.name]) for slot in self.bindings.slots}
            waiting = sum(map(len, self._pending.values()))
            narrow = sorted(self._narrow)
        wide = self._nodes.wide()
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
