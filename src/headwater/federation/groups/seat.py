"""A member at another node, as the group of this node sees it: what goes there, and what of it is done.

What the group hands over waits in `_outbox` until it is time to send: an idle link takes one event at once, and under
load many go together. Numbers of the lane tell the other end what is missing; what was not said to be handled is kept,
and goes again over the next link.

Locks: `_lock` is a leaf; frames are made under `Peer.building` and then this one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.groups.distribution import MOST_CREDIT, Handed
from headwater.channel.routing.letter import Letter
from headwater.federation.peers.post_registry import frame_of
from headwater.federation.wire import group_messages as wire

if TYPE_CHECKING:
    from headwater.channel.groups.group import Group
    from headwater.channel.routing.route import Ready
    from headwater.federation.interests.admission import Asked

ENOUGH = 64  # events that go, though the other end has something to do
LOW = 16  # events there with which it is about to have nothing to do
BATCH_BYTES = wire.PIECE
MOST_SOURCES = 65_536  # by number, of a lane

Post = Callable[[wire.GroupPost], bool]
Carry = Callable[["RemoteSeat"], None]


class RemoteSeat:
    """Of one lane. `post` says something to the node of the member; `carry` has `frames` called when it is time to send
    something there."""

    destination: Any = ("", -2)

    def __init__(
        self, id: str, lane: int, credit: int, post: Post, carry: Carry, *, asked: Asked | None = None
    ) -> None:
        self.id, self.lane, self.credit = id, lane, min(credit, MOST_CREDIT)
        self._post, self._carry = post, carry
        self.dirty = False
        self._missing: int | None = None  # after which number it is to go again
        self.asked = asked  # what was granted, to be judged anew
        self.group: Group | None = None
        self._lock = threading.Lock()
        self._outbox: deque[tuple[int, Letter, bool]] = deque()
        self._number = 0  # of the last that went
        # By number in the lane: that at the group (0: a piece of the next one), and the event as it went.
        self._sent: dict[int, tuple[int, wire.Dealt]] = {}
        self._sources: dict[Any, int] = {}
        self.over = False
        self.unheard = monotonic()  # since when nothing was heard of what went
        self.links = 0  # how many there have been to the other node when it was last asked how far this is
        self.linkless: float | None = None  # since when there is no link

    # ── what goes there ──

    def hand(self, handed: list[Handed[Letter]], ready: Ready) -> None:
        """Under the lock of the group: it goes with `dispatch`, when that is free."""
        self._outbox.extend([each[1:] for each in handed])
        ready.append(self)  # type: ignore[arg-type]

    def hand_one(self, number: int, letter: Letter, ready: Ready) -> None:
        """The same for a single one; while the other end is at something, it waits for more."""
        outbox = self._outbox
        outbox.append((number, letter, False))
        if not self._sent or len(outbox) >= ENOUGH:
            ready.append(self)  # type: ignore[arg-type]

    def dispatch(self) -> None:
        """Have what waits sent, if the other end has nothing to do, or there is enough of it."""
        if self._outbox and (not self._sent or len(self._outbox) >= ENOUGH):
            self._carry(self)

    def frames(self) -> list[bytes]:
        """All that waits, as frames; what is to go again first."""
        self.dirty = False
        made: list[bytes] = []
        with self._lock:
            if self.over:  # what it had is others', and it may have no right to it any more
                self._outbox.clear()
                return made
            if self._missing is not None:
                after, self._missing = self._missing, None
                self._resend(after, made)
            while self._outbox:
                self._deal(made)
        return made

    def _deal(self, made: list[bytes]) -> None:
        """One post of what waits; under the lock. If it is lost with the link, it goes again over the next."""
        events: list[wire.Dealt] = []
        news: dict[int, str] = {}
        outbox, sent, number, size = self._outbox, self._sent, self._number, 0
        first = number + 1
        while outbox and len(events) < wire.MOST_EVENTS:
            at, letter, again = outbox[0]
            record = letter.record
            size += len(record) + 32
            if events and size > BATCH_BYTES:
                break
            outbox.popleft()
            source = self._sources.get(letter.source)
            if source is None:
                source = self._meet(letter.source, news)
            if len(record) > wire.PIECE:  # it is the first
                self._deal_pieces(at, letter, source, again, made)
                return
            dealt = source, letter.seq, letter.stamp, record, again, False
            events.append(dealt)
            number += 1
            sent[number] = at, dealt
        self._number = number
        self._add(first, events, news, made)

    def _deal_pieces(self, at: int, letter: Letter, source: int, again: bool, made: list[bytes]) -> None:
        """An event that is too large for one post."""
        record = letter.record
        for start in range(0, len(record), wire.PIECE):
            more = start + wire.PIECE < len(record)
            dealt = source, letter.seq, letter.stamp, record[start : start + wire.PIECE], again, more
            self._number += 1
            self._sent[self._number] = 0 if more else at, dealt
            self._add(self._number, [dealt], {source: letter.source.name}, made)

    def _meet(self, source: Any, news: dict[int, str]) -> int:
        """A source that the other end has not heard of."""
        if len(self._sources) >= MOST_SOURCES:
            self._sources.clear()
        found: int = source.number
        self._sources[source] = found
        news[found] = source.name
        return found

    def _add(self, first: int, events: list[wire.Dealt], news: dict[int, str], made: list[bytes]) -> None:
        if events:
            made.append(frame_of(wire.KIND, wire.encode(wire.Deal(self.lane, first, events, news))))

    # ── what is said of it ──

    def handled(self, numbers: Iterable[int]) -> None:
        """The other end is done with these; what never went there is counted as forged."""
        with self._lock:
            found = [self._done(number) for number in numbers]
            self.unheard = monotonic()
        done = [number for number in found if number]
        group = self.group
        if group is None:
            return
        group.forged += len(found) - len(done)
        if done:
            group.acknowledge(self.id, done)
        if self._outbox and (len(self._sent) <= LOW or len(self._outbox) >= ENOUGH):
            self._carry(self)

    def _done(self, number: int) -> int:
        """That of an event at the group; 0 if there is none of that number. Its pieces are done with it."""
        sent = self._sent.get(number)
        if sent is None or not sent[0]:
            return 0
        del self._sent[number]
        while (before := self._sent.get(number := number - 1)) is not None and not before[0]:
            del self._sent[number]
        return sent[0]

    def stands(self, received: int, open: Iterable[int]) -> None:
        """How far the other end is: all that it has is done but this, and what it does not have goes again."""
        still = set(open)
        with self._lock:
            done = [
                number for number, (at, _) in self._sent.items() if number <= received and number not in still and at
            ]
        if done:
            self.handled(done)
        else:
            self.unheard = monotonic()
        self.again(received)

    def again(self, after: int) -> None:
        """What went after this has not come there."""
        with self._lock:
            self._missing = after
        self._carry(self)

    def _resend(self, after: int, made: list[bytes]) -> None:
        """What went after that, and is not said to be handled; under the lock."""
        missing = [(number, dealt) for number, (_, dealt) in self._sent.items() if number > after]
        names = {number: source.name for source, number in self._sources.items()}
        at = 0
        while at < len(missing):
            first, size = missing[at][0], 0
            some: list[wire.Dealt] = []
            while at < len(missing) and len(some) < wire.MOST_EVENTS and missing[at][0] == first + len(some):
                size += len(missing[at][1][3]) + 32
                if some and size > BATCH_BYTES:
                    break
                some.append(missing[at][1])
                at += 1
            self._add(first, some, {each[0]: names[each[0]] for each in some if each[0] in names}, made)

    def of_group(self, numbers: Iterable[int]) -> list[int]:
        """Numbers of the lane as those of the group."""
        with self._lock:
            return [self._sent[number][0] for number in numbers if number in self._sent and self._sent[number][0]]

    # ── time ──

    def probe(self) -> None:
        """Ask how far the other end is."""
        with self._lock:
            last = self._number
        self._post(wire.Probe(self.lane, last))

    @property
    def waits(self) -> bool:
        """Whether something is to go, or went and is not said to be handled."""
        return bool(self._sent or self._outbox)


__all__ = ["RemoteSeat"]
