"""A member of this node in the group of another one: what comes along its lane, and what of it is handled.

Each number is taken once, in order; of what is missing the other end is told. Records are looked at before anybody
relies on them. More than the member takes at once is not taken: whoever sends that is told that it is none any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.groups.member import Dealt, GroupMember
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
MOST_BYTES = 64 << 20  # of one event in pieces
MOST_SOURCES = 65_536

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
        self._waiting: list[Dealt] = []  # what has come, for whoever has the turn
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
                if deal.events and sum(len(each.events) for each in self._early) <= self.member.credit:
                    self._early.append(deal)
                return
            self._meet(deal.sources)
            if deal.first > self._received + 1:
                if self._asked_again != self._received + 1:
                    self._asked_again = self._received + 1
                    self._post(wire.Again(self.lane, self._received))
                return
            letters = self._letters(deal.events[self._received + 1 - deal.first :])
            if len(self._open) > self.member.credit:
                raise FrameError(
                    f"group {self.member.group}: expected at most {self.member.credit} events that are not handled, "
                    f"found {len(self._open)}"
                )
            self.came += len(letters)
            self._waiting += letters
            if not self._waiting or not self._turn.acquire(blocking=False):
                return  # another thread is at what came before, and sees to this after it
        while batch := self._next():
            try:
                self._hand_on(batch)
            except BaseException:
                self._turn.release()
                raise

    def _next(self) -> list[Dealt]:
        """The next events for the member; if there are none, the turn is over."""
        with self._lock:
            if self.over:
                self._waiting.clear()
            batch, self._waiting = self._waiting[:SAY], self._waiting[SAY:]
            if not batch:
                self._turn.release()
            return batch

    def _hand_on(self, batch: list[Dealt]) -> None:
        """Handle events here and now, as far as that can be; the rest goes into the member's queue, in order. What it
        takes no more, since it has just ended, is for others."""
        ready: Ready = []
        handled = self.member.run_now(batch)
        if handled:
            self.done([each.number for each in batch[:handled]])
        if handled < len(batch):
            untaken = self.member.take(batch[handled:], ready)
            with self._lock:
                before = len(self._open)
                self._open.difference_update(untaken)
                if self.left and len(self._open) < before:
                    self._say()
                    self._post(wire.Leave(self.lane, sorted(self._open)[: wire.MOST_NUMBERS]))
        dispatch_all(list(dict.fromkeys(ready)))

    def _meet(self, sources: dict[int, str]) -> None:
        for number, name in sources.items():
            if number not in self._sources:
                if len(self._sources) >= MOST_SOURCES:
                    raise FrameError(f"group {self.member.group}: expected at most {MOST_SOURCES:,} sources")
                self._sources[number] = StandIn(name, self.node, self.member.channel.name)

    def _letters(self, events: list[wire.Dealt]) -> list[Dealt]:
        """The next events, those that are complete. What is none of the type is an offence."""
        group, sources = self.member.group, self._sources
        complete: list[tuple[int, wire.Dealt]] = []
        for each in events:
            self._received += 1
            if self._piece or each[5]:
                self._piece.append(each[3])
                if each[5] and len(each[3]) != wire.PIECE:
                    raise FrameError(f"group {group}: expected pieces of {wire.PIECE:,} bytes, found {len(each[3]):,}")
                if len(self._piece) * wire.PIECE > MOST_BYTES:
                    raise FrameError(f"group {group}: expected an event of at most {MOST_BYTES:,} bytes")
                if each[5]:
                    continue
                each, self._piece = (*each[:3], b"".join(self._piece), *each[4:]), []
            if each[0] not in sources:
                raise FrameError(f"group {group}: expected a source that was named before, found {each[0]}")
            complete.append((self._received, each))
        if self._check is not None and self._check([each[3] for _, each in complete]):
            raise FrameError(f"group {group}: a record that is not of its type")
        self._open.update([number for number, _ in complete])
        now, done, plan = perf_counter_ns(), self.done, self._plan
        behind = now - self.member.node._stamp()
        made = []
        for number, (source, seq, stamp, record, again, _) in complete:
            if plan is not None:
                record = plan.convert(record)
            sent = min(now, stamp + behind)
            made.append(Dealt(record, sources[source], seq, stamp, sent, number, done, redelivered=again))
        return made

    def done(self, numbers: list[int]) -> None:
        """The member has handled these."""
        with self._lock:
            if self.over:
                return
            self._open.difference_update(numbers)
            self._unsaid += numbers
            if not self._open or len(self._unsaid) >= SAY:
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
