"""A durable group: its events are those that its node logs, and they wait there while no member has handled them.

How far it is with each source is kept in the node's state; so nothing is lost when members are gone, all of them, or
when the node is started again. What may have been handed over before is marked. A group begins where the sources are
when its first member comes; sources that come later it has from their first event on.

How far it is with a source goes along when that moves to another node, where a group of its name goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.concurrency.bounded_queue import BoundedQueue
from headwater.channel.groups import following
from headwater.channel.groups.following import Following, PastSource
from headwater.channel.groups.group import Group
from headwater.channel.groups.group_positions import BEGUN, GroupPosition, GroupPositions, where
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Bystander, Ready
from headwater.channel.routing.wiring import Move
from headwater.errors import ClosedError, HeadwaterError, StoreError, SubscriptionError
from headwater.late import pa

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.groups.terms import Terms
    from headwater.channel.routing.contract import RoutedSource
    from headwater.channel.source import Source
    from headwater.store import NodeState

log = logging.getLogger("headwater")
BATCH = 64  # events that are handed over at once, so that it is not written of each by itself
RETRY_SECONDS = 1.0  # after which a log that could not be read is looked at again


def why_not(node: NodeContract, channel: Channel, terms: Terms) -> str:
    """Why a durable group cannot be kept at a node; nothing if it can."""
    if node._logs is None or not node._logs.wants(channel.name) or channel.parent is not None:
        return f"node {node.name!r} keeps no log of {channel.name}, in which events could wait: Node(log=...)"
    if node.state is None:
        return f"node {node.name!r} has no state, in which it could keep how far the group is: Node(state=...)"
    if terms.zones is not None:
        return "zones: a durable group has all zones; leave them out"
    interest = terms.interest
    if interest is not None and (interest.stateful or interest.contextual):
        return "its interest has state or reads the context of its source, which a log has not; use one that does not"
    return ""


class DurableGroup(Group):
    """Of a channel that is logged. `later` has something done by a thread that may read files."""

    def __init__(
        self, node: NodeContract, channel: Channel, name: str, terms: Terms, later: Callable[[Callable[[], None]], None]
    ) -> None:
        if why := why_not(node, channel, terms):
            raise SubscriptionError(f"group {name!r} of channel {channel.name!r}: {why}")
        super().__init__(node, channel, name, terms)
        assert node.state is not None and node._logs is not None
        self._state: NodeState = node.state
        self._later = later
        self._followings: dict[str, Following] = {}
        self._pumping = threading.Lock()
        self._more = self._reading = self._stalled = False
        self._moved: dict[str, int] = {}  # floors that are not written yet
        self._unwritten = ""

    # ── beginning and end ──

    def start(self) -> None:
        """Go on where it was, or begin where the sources are; StoreError if that cannot be written: it has not begun
        then."""
        wiring, logs = self.node._wiring, self.node._logs
        assert logs is not None
        logs.of(self.channel)  # it is there from here on, with an id
        kept = GroupPositions.at(self.node, self.channel.name)
        assert kept is not None
        self._kept, self._label = kept, kept.label(self.name)
        self._positions, self._handed = kept.of(self.name)
        begins = BEGUN not in self._positions
        came, left = self.node._moved_sources(self.channel.name)
        ends = ends_of(self.node, self.channel)

        def begin() -> None:
            """All sources stand still."""
            here = {source.name: source for source in self.channel.sources.values() if source.log is not None}
            for name, last in {**ends, **{name: source.seq for name, source in here.items()}}.items():
                if name not in left:
                    began = here[name].begins_after if name in here else came.get(name, 0)
                    done, handed = (last, last) if begins else self._where(name, began)
                    self._followings[name] = Following(name, kept.key(name), done, handed)

        with wiring.lock:
            self._entry = wiring.entry(self.channel, self.terms.interest)
            self._intake = FollowingIntake(self)  # type: ignore[assignment]
            wiring.move([Move(self.channel, self._entry, self._intake, joins=True)], at_point=begin)
        if begins:
            try:
                floors = {each.key: each.floor for each in self._followings.values()}
                self._state.commit_all(self._label, {BEGUN: 1, **floors, **kept.away(left)})
            except BaseException:
                self.over = True
                self._end()
                raise
        self._read_soon()

    def _where(self, source: str, began: int) -> tuple[int, int]:
        return where(self._positions, self._handed, self._kept.key(source), began)

    def _now_empty(self, why: str) -> bool:
        """Nobody is left: what is not done stays in the log."""
        if self._seats or self.over:
            return False
        self.over = True
        self.distribution.clear()
        return True

    # ── what is published ──

    def follow(self, source: RoutedSource) -> Following:
        """A source that is open: from where its state has it, or, if it has come since the group began, from its first
        event here on. The source's lock is held."""
        found = self._followings.get(source.name)
        if found is None:
            with self._lock:
                place = self._where(source.name, getattr(source, "begins_after", 0))
                made = Following(source.name, self._kept.key(source.name), *place)
                found = self._followings.setdefault(source.name, made)
        found.rests = False
        return found

    # ── sources that move ──

    def rest(self, source: str, rests: bool = True) -> bool:
        """Hand nothing more over of a source that is about to leave, or go on with it; whether nobody has anything of
        it."""
        with self._lock:
            found = self._followings.get(source)
            if found is None:
                return True
            found.held, idle = rests, found.idle
        if not rests:
            self._pump()
        return idle

    def part(self, source: str) -> None:
        """A source has left, and what is not done of it is for the group where it goes on. Who has something of it may
        finish that; nobody here gets it again."""
        with self._lock:
            found = self._followings.pop(source, None)
            if found is None:
                return
            found.held = found.rests = True
            found.queue.clear()
            self.distribution.withdraw(lambda letter: letter.source.name == source)
            floor, self._positions[found.key] = self._moved.pop(found.key, None), found.floor
            self._handed[found.key] = max(found.noted, self._handed.get(found.key, 0))
        if floor is not None:
            self._write({found.key: floor})

    def told(self, source: str, position: GroupPosition) -> None:
        """A source comes from another node, where a group of this name was so far with it; the state has that."""
        with self._lock:
            key = self._kept.key(source)
            self._positions[key] = max(position.done, self._positions.get(key, 0))
            self._handed[key] = max(position.handed, self._handed.get(key, 0))

    def meet(self, source: Source) -> None:
        """It is here: what is not done of it is handed over, though it publishes nothing."""
        with source.lock:
            if source.moved_to is not None:
                return  # it has left already
            self.follow(source)
        self._pump()

    def dispatch(self) -> None:
        """Something was published: hand it on, or have it read."""
        self._pump()

    def _pump(self) -> None:
        """Hand over as much as there is room for, and have read what is behind."""
        self._hand_over()
        if any(not (each.live or each.rests) and len(each.queue) < following.MOST // 2 for each in self._each()):
            self._read_soon()

    def _each(self) -> list[Following]:
        return list(self._followings.values())

    def _hand_over(self) -> None:
        """As much as there is room for; one thread at a time, which sees what comes meanwhile. It is written which
        events may have been handed over before they are; while that cannot be, they wait."""
        self._more = True
        while self._more and not self._stalled and self._pumping.acquire(blocking=False):
            try:
                self._more = False
                with self._lock:
                    batch = [] if self.over or self.distribution.is_full else self._batch()
                if not batch:
                    continue
                self._more = True
                if not self._note(batch):
                    continue
                ready: Ready = []
                with self._lock:
                    for each, letter in batch:
                        if self._followings.get(each.name) is not each:
                            continue  # its source has left just now
                        put = self.distribution.put_again if letter.seq <= each.again else self.distribution.put
                        self._give(put(letter, self._key(letter)), ready)
                dispatch_all(ready)
            finally:
                self._pumping.release()

    def _batch(self) -> list[tuple[Following, Letter]]:
        """The next events, of each source in turn; under the lock."""
        found: list[tuple[Following, Letter]] = []
        most = max(1, min(BATCH, self.distribution.free))
        waiting = [each for each in self._followings.values() if each.queue and not each.held]
        while waiting and len(found) < most:
            found += [(each, each.take()) for each in waiting]
            waiting = [each for each in waiting if each.queue]
        return found

    def _note(self, batch: list[tuple[Following, Letter]]) -> bool:
        """Write that somebody may have had these events. If that cannot be they go back, and are tried again later: who
        has one that is not written would have it again, after a kill, and not be told so."""
        points: dict[str, int] = {}
        for each, letter in batch:
            points[each.key] = max(each.noted, letter.seq)
        new = [each for each, _ in batch if each.key not in self._positions and each.key not in self._handed]
        began = {each.key: each.floor for each in new if each.floor}
        try:
            if began:  # else it would have begun with the first event of its source, for all that is known then
                self._state.commit_all(self._label, began)
            self._state.hand_all(self._label, points)
        except StoreError as error:
            with self._lock:
                for each, letter in reversed(batch):
                    each.put_back(letter)
            self._stalled = True
            self._unwritable(error)
            self._again_later()
            return False
        with self._lock:
            for each, _ in batch:
                each.noted = max(each.noted, points[each.key])
            for each in new:
                if self._followings.get(each.name) is each:
                    self._positions[each.key], self._handed[each.key] = each.floor, each.noted
        return True

    def _go_on(self, ready: Ready) -> None:
        if not self.distribution.is_full:
            ready.append(self)  # type: ignore[arg-type]

    def _settled(self, done: list[Letter]) -> None:
        """Under the lock."""
        for letter in done:
            its = self._followings.get(letter.source.name)
            if its is None or letter.seq <= its.floor:
                continue  # its source has left since, and may have come back
            before = its.floor
            its.done(letter.seq)
            if its.floor != before:
                self._moved[its.key] = its.floor

    def _written(self) -> None:
        """How far it is, by what was acknowledged just now."""
        with self._lock:
            moved, self._moved = self._moved, {}
        self._write(moved)

    def _write(self, points: dict[str, int]) -> None:
        if points:
            try:
                self._state.commit_all(self._label, points)
                self._unwritten = ""
            except StoreError as error:
                self._unwritable(error)

    def _unwritable(self, error: StoreError) -> None:
        """What is done and not written goes again after a restart, marked; nothing is lost."""
        if str(error) != self._unwritten:
            self._unwritten = str(error)
            log.error("group %r of channel %s: how far it is cannot be kept: %s", self.name, self.channel.name, error)

    # ── what was published ──

    def _read_soon(self) -> None:
        with self._lock:
            if self._reading or self.over:
                return
            self._reading = True
        self._later(self._read)

    def _read(self) -> None:
        """Read on, of each source that is behind; the thread of this service is here."""
        with self._lock:
            self._reading = False
        for each in self._each():
            while not (self.over or each.live or each.rests) and len(each.queue) < following.MOST // 2:
                try:
                    if not self._read_some(each):
                        break
                except (HeadwaterError, OSError, pa.ArrowException) as error:
                    log.error("%s: the log of %s cannot be read: %s", self._label, each.name, error)
                    each.rests = True
                    self._again_later()
                    break
            self._hand_over()

    def _again_later(self) -> None:
        def again() -> None:
            for each in self._each():
                each.rests = False
            self._stalled = False
            self._pump()

        with suppress(ClosedError):
            self.node._timers.call_after(RETRY_SECONDS, again)

    def _read_some(self, each: Following) -> bool:
        """Some more of a source; whether there may be still more."""
        source, backlog = self._open_source(each.name), self.channel.backlog
        before, last = each.cursor, backlog.last(each.name)
        if before < last:
            reading = backlog.read(each.name, before, self._far(each.name, before, last), self.terms.interest)
            if (gap := reading.gap) is not None:
                with self._lock:
                    self.lost += gap[1] - gap[0] + 1
                log.error("%s: events %d to %d of %s are in the log no longer", self._label, *gap, each.name)
            seen: Any = source
            if seen is None:
                seen = each.past = each.past or PastSource(each.name, self.node.name, self.channel.name)
            for part in reading:
                now = perf_counter_ns()
                for seq, stamp, record in part.events():
                    each.queue.append(Letter(None, record, seen, seq, stamp, now, 0))
                each.cursor = max(each.cursor, part.upto)
            each.cursor = max(each.cursor, reading.reached)
            self._skip(each)
            return True
        if source is None:
            each.rests = True
            if self._open_source(each.name) is None:
                return False
            each.rests = False  # it has opened meanwhile, and may have published
            return True
        with source.lock:
            each.live = each.cursor >= source.flows[self.channel].seen
        return not each.live

    def _far(self, name: str, before: int, last: int) -> int:
        """Up to where a source is read at once: not beyond what came with it from another node, since of each log by
        itself it is known what retention has removed."""
        assert self.node._logs is not None
        came = self.node._logs.handed.get((self.channel.name, name))
        end = last if came is None or came.upto <= before else min(last, came.upto)
        return min(end, before + following.MOST)

    def _open_source(self, name: str) -> Any:
        """The one of that name that is open here and logged, or None."""
        found: Any = self.channel.sources.get(name)
        return found if found is not None and found.log is not None else None

    def _skip(self, each: Following) -> None:
        """Nothing of what was read is wanted, and nothing is open: it need not be read again."""
        with self._lock:
            if self._followings.get(each.name) is not each:
                return  # its source has left meanwhile, and what was read with it
            before = each.floor
            each.settle()
            floor = each.floor
        if floor != before:
            self._write({each.key: floor})

    def owes(self, id: str) -> bool:
        """The same; what waits may have yet to be read, or is on its way from what was read to the members."""
        behind = self._reading or any(each.queue or not (each.live or each.rests) for each in self._each())
        return behind or self._pumping.locked() or super().owes(id)

    def report(self) -> dict[str, int]:
        """As of any group; `waiting` is what is in memory."""
        found = super().report()
        found["waiting"] += sum(len(each.queue) for each in self._each())
        return found


class FollowingIntake(Bystander):
    """A durable group in the routes of its channel."""

    width = 0
    local = False
    quick = None
    bypass = None

    def __init__(self, group: DurableGroup) -> None:
        self._group: Any = group

    def accept(self, letter: Letter, ready: Ready) -> None:
        source = letter.source
        if source.local and source.log is not None:
            its = self._group.follow(source)
            if its.live:
                its.put(letter)
            ready.append(self._group)

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        source = chunk.source
        if source.local and source.log is not None:
            its = self._group.follow(source)
            if its.live:
                type = self._group.type
                records = (
                    chunk.taken().column("data").to_pylist() if type is None else type.arrow_to_records(chunk.taken())
                )
                for letter in chunk.letters(records):
                    if not its.put(letter):
                        break
            ready.append(self._group)

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[BoundedQueue]:
        return ()  # nobody waits: what there is no room for is in the log


def ends_of(node: NodeContract, channel: Channel) -> dict[str, int]:
    """By the names of sources that are at a node, be they open or not, their last events: in its log, or where they
    came from."""
    came, left = node._moved_sources(channel.name)
    reader = None if node._logs is None else node._logs.reader(channel.name)
    found = dict(came)
    for span in () if reader is None else reader.sources():
        found[span.source] = max(span.last, found.get(span.source, 0))
    return {name: last for name, last in found.items() if name not in left}


__all__ = ["DurableGroup", "ends_of", "why_not"]
