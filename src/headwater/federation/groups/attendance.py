"""A member of this node in the group of another one: what comes along its lane, and what of it is handled.

Each number is taken once, in order; of what is missing the other end is told. Records are looked at before anybody
relies on them. More than the member takes at once is not taken: whoever sends that is told that it is none any more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.groups.member import DealtRun, GroupMember
from headwater.channel.queues.forms import fitting
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.reports.tally import Fates
from headwater.errors import FrameError
from headwater.federation.arrive.record_check import Check, check_of
from headwater.federation.wire import group_messages as wire

if TYPE_CHECKING:
    from headwater.channel.routing.route import Ready
    from headwater.types import EventType
    from headwater.types.evolution import Plan

SAY = 64  # events after which it is said that they are handled, though others wait

Post = Callable[[wire.GroupPost], bool]


class StandIn:
    """A source of another node, as its events say that they are of it."""

    local = False
    rereads = False
    position_key: str | None = None
    priority = 0
    log = None

    def __init__(self, name: str, node: str, channel: str) -> None:
        self.name, self.node = name, node
        self.key = f"{name}@{node}"
        self.id = f"{channel}/{self.key}"
        self._fates = Fates()

    def fates(self, channel: Any) -> Fates:
        """Where it is counted what becomes of its events."""
        return self._fates


class Attendance:
    """Of one member at one node, by a lane."""

    def __init__(self, member: GroupMember, peer: str, incarnation: int, lane: int, node: str, post: Post) -> None:
        self.member, self.peer, self.incarnation, self.lane = member, peer, incarnation, lane
        self.node, self._post = node, post
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of who hands what has come to the member
        self._waiting: deque[DealtRun] = deque()  # what has come, for whoever has the turn
        self.accepted = False  # the other end has said that it is a member
        self.over = self.left = False
        self._early: list[wire.Deal] = []
        self._check: Check | None = None
        self._plan: Plan | None = None
        self._received = 0
        self._asked_again = 0  # after which number, last
        self._open: set[int] = set()  # what has come and is not handled
        self._unsaid: list[int] = []
        self._sources: dict[int, StandIn] = {}
        self._piece: list[bytes] = []
        self.links = 0  # how many there have been to that node when it was last said how far this is
        self.came = 0

    def accept(self, type: EventType | None) -> None:
        """It is a member there, and events of this type come; EvolutionError if they do not fit."""
        want = self.member.channel.type
        interest = self.member.terms.interest
        if interest is not None and interest.output is not None:
            want = interest.output
        if type is not None and want is not None:
            self._plan = fitting(type, want)
            self._check = check_of(type)
        with self._lock:
            self.accepted = True
            early, self._early = self._early, []
        for deal in early:
            self.take(deal)

    def take(self, deal: wire.Deal) -> None:
        """Events of the lane; FrameError if they cannot be right. What is too much before it is a member is not kept:
        it is missed then, and comes again."""
        with self._lock:
            if self.over or self.left:
                return
            if not self.accepted:
                if deal.runs and sum(each.events for each in self._early) <= self.member.credit:
                    self._early.append(deal)
                return
            self._meet(deal.sources)
            if deal.first > self._received + 1:
                if self._asked_again != self._received + 1:
                    self._asked_again = self._received + 1
                    self._post(wire.Again(self.lane, self._received))
                return
            self._come(deal)
            if len(self._open) > self.member.credit:
                raise FrameError(
                    f"group {self.member.group}: expected at most {self.member.credit} events that are not handled, "
                    f"found {len(self._open)}"
                )
            if not self._waiting or not self._turn.acquire(blocking=False):
                return  # another thread is at what came before, and sees to this after it
        problem: BaseException | None = None
        while run := self._next():
            try:
                self._hand_on(run)
            except BaseException as error:  # of a handler: what comes after its event is handled nevertheless
                problem = error
        if problem is not None:
            raise problem

    def _next(self) -> DealtRun | None:
        """The next events for the member; if there are none, the turn is over."""
        with self._lock:
            if self.over:
                self._waiting.clear()
            if not self._waiting:
                self._turn.release()
                return None
            run = self._waiting.popleft()
            if len(run) > SAY:
                self._waiting.appendleft(run.part(SAY, len(run)))
                run = run.part(0, SAY)
            return run

    def _hand_on(self, run: DealtRun) -> None:
        """Handle events here and now, as far as that can be; the rest goes into the member's queue, in order. What it
        takes no more, since it has just ended, is for others."""
        ready: Ready = []
        try:
            handled = self.member.run_now(run)
        except BaseException:
            with self._lock:  # what is not handled is the next, if anything was: else it would go on for ever
                left = sum(number in self._open for number in run.numbers)
                if 0 < left < len(run):
                    self._waiting.appendleft(run.part(len(run) - left, len(run)))
            raise
        if handled < len(run):
            untaken = self.member.take([run.letter(at) for at in range(handled, len(run))], ready)
            with self._lock:
                before = len(self._open)
                self._open.difference_update(untaken)
                if self.left and len(self._open) < before:
                    self._say()
                    self._post(wire.Leave(self.lane, sorted(self._open)[: wire.MOST_NUMBERS]))
        if ready:
            dispatch_all(list(dict.fromkeys(ready)))

    def _meet(self, sources: dict[int, str]) -> None:
        """The last that were said are remembered: the other end says those anew that it names again."""
        known = self._sources
        for number, name in sources.items():
            if number in known:
                known[number] = known.pop(number)
            else:
                known[number] = StandIn(name, self.node, self.member.channel.name)
            if len(known) > wire.MOST_SOURCES:
                del known[next(iter(known))]

    def _come(self, deal: wire.Deal) -> None:
        """The next events of the lane, without those that have come before; under the lock. What is none of the type is
        an offence."""
        before = self._received + 1 - deal.first  # so many have come already
        now = perf_counter_ns()
        behind = now - self.member.node._stamp()
        for number, stamp, seqs, records, again, more in deal.runs:
            if before >= len(records):
                before -= len(records)
                continue
            if before:
                seqs, records, before = seqs[before:], records[before:], 0
            source = self._sources.get(number)
            if source is None:
                raise FrameError(f"group {self.member.group}: expected a source that was named before, found {number}")
            if more or self._piece:
                self._received += 1
                whole = self._put_together(records[0], more)
                if whole is None:
                    continue
                self._wait((self._received, source, stamp, seqs[:1], [whole]), now, behind, again)
                seqs, records = seqs[1:], records[1:]
            if records:
                first, self._received = self._received + 1, self._received + len(records)
                self._wait((first, source, stamp, seqs, records), now, behind, again)

    def _put_together(self, piece: bytes, more: bool) -> bytes | None:
        """An event that comes in pieces, if it is whole now."""
        group = self.member.group
        self._piece.append(piece)
        if more and len(piece) != wire.PIECE:
            raise FrameError(f"group {group}: expected pieces of {wire.PIECE:,} bytes, found {len(piece):,}")
        if len(self._piece) * wire.PIECE > wire.MOST_BYTES:
            raise FrameError(f"group {group}: expected an event of at most {wire.MOST_BYTES:,} bytes")
        if more:
            return None
        pieces, self._piece = self._piece, []
        return b"".join(pieces)

    def _wait(self, run: tuple[int, StandIn, int, list[int], list[bytes]], now: int, behind: int, again: bool) -> None:
        """Events that are checked, for whoever has the turn."""
        first, source, stamp, seqs, records = run
        if self._check is not None and self._check(records):
            raise FrameError(f"group {self.member.group}: a record that is not of its type")
        if self._plan is not None:
            records = [self._plan.convert(record) for record in records]
        made = DealtRun(first, source, stamp, min(now, stamp + behind), seqs, records, self.done, redelivered=again)
        self._open.update(made.numbers)
        self.came += len(made)
        self._waiting.append(made)

    def done(self, numbers: Sequence[int]) -> None:
        """The member has handled these."""
        with self._lock:
            if self.over:
                return
            self._open.difference_update(numbers)
            self._unsaid += numbers
            if not self._open or len(self._unsaid) >= SAY:
                self._say()

    def say(self) -> None:
        """What is handled, though there is little of it: the next event may take long."""
        with self._lock:
            if self.accepted and not self.over:
                self._say()

    def _say(self) -> None:
        while self._unsaid:
            some, self._unsaid = self._unsaid[: wire.MOST_NUMBERS], self._unsaid[wire.MOST_NUMBERS :]
            self._post(wire.Handled(self.lane, some))

    def stand(self) -> None:
        """Say how far it is; of one that has left, that once more: what it does not finish is not done."""
        with self._lock:
            if self.left:
                self._say()
                self._post(wire.Leave(self.lane, sorted(self._open)[: wire.MOST_NUMBERS]))
            elif self.accepted and not self.over:
                self._unsaid.clear()
                self._asked_again = 0
                self._post(wire.Standing(self.lane, self._received, sorted(self._open)[: wire.MOST_NUMBERS]))

    def leave(self) -> None:
        """The member ends here: what it does not finish is for others."""
        with self._lock:
            self._say()
            drains = self.member.drains
            if not drains:
                self._waiting.clear()
            keeps = sorted(self._open) if drains else self.member.finishing(self.done)
            self._open.intersection_update(keeps)
            self.left = True
            self._post(wire.Leave(self.lane, keeps[: wire.MOST_NUMBERS]))

    @property
    def finished(self) -> bool:
        """Of one that has left: whether it has said all that it had to say."""
        return self.over or not self._open


__all__ = ["Attendance"]
