"""A member at another node, as the group of this node sees it: what goes there, and what of it is done.

What the group hands over waits in `_outbox` until it is time to send: an idle link takes one event at once, and under
load many go together. Numbers of the lane tell the other end what is missing; what was not said to be handled is kept,
and goes again over the next link.

Locks: `_lock` is a leaf; frames are made under `Peer.building` and then this one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

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

log = logging.getLogger("headwater.federation")
Post = Callable[[wire.GroupPost], bool]


class Carry(Protocol):
    """Has `frames` of a seat called when it is time to send: at once, if what waits there has `gathered` already."""

    def __call__(self, seat: RemoteSeat, /, *, gathered: bool = False) -> None: ...


class RemoteSeat:
    """Of one lane. `post` says something to the node of the member; `carry` has `frames` called when it is time to send
    something there."""

    destination: Any = ("", -2)
    gathers = True

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
        self._urgent = False  # what is in it has waited already, and goes as soon as it can
        self._number = 0  # of the last that went
        # By number in the lane: that at the group (0: a piece, of which the next one is another), the event as it went,
        # and whether somebody may have had it.
        self._sent: dict[int, tuple[int, Letter, bool]] = {}
        self._pieces = False  # there have been some
        self._uncrossable: list[int] = []  # what is too large to go there, by number at the group
        self._sources: set[int] = set()  # those that the other end knows by their numbers
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

    def hand_run(self, first: int, letters: list[Letter], ready: Ready) -> None:
        """The same for some that were gathered: they go at once."""
        self._outbox.extend(zip(range(first, first + len(letters)), letters, repeat(False), strict=False))
        if not self._urgent:
            self._urgent = True
            ready.append(self)  # type: ignore[arg-type]

    def dispatch(self) -> None:
        """Have what waits sent, if the other end has nothing to do, or there is enough of it, or it has waited."""
        urgent, self._urgent = self._urgent, False
        if self._outbox and (urgent or not self._sent or len(self._outbox) >= ENOUGH):
            self._carry(self, gathered=urgent)

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
        outbox, some, size = self._outbox, list[tuple[int, Letter, bool]](), 0
        while outbox and len(some) < wire.MOST_EVENTS:
            length = len(outbox[0][1].record)
            size += length + 32
            if some and size > BATCH_BYTES:
                break
            if length > wire.PIECE:  # it is the first
                if length > wire.MOST_BYTES:
                    self._refuse(*outbox.popleft()[:2])
                else:
                    self._deal_pieces(*outbox.popleft(), made)
                return
            some.append(outbox.popleft())
        first, self._number = self._number + 1, self._number + len(some)
        self._sent.update(zip(range(first, self._number + 1), some, strict=True))
        self._add(first, some, made)

    def _refuse(self, at: int, letter: Letter) -> None:
        """An event that is too large for any lane."""
        self._uncrossable.append(at)
        log.error(
            "%s: event %d, of %s bytes, cannot go to group member %s, and is lost: expected at most %s bytes; make it "
            "smaller",
            letter.source.id,
            letter.seq,
            f"{len(letter.record):,}",
            self.id,
            f"{wire.MOST_BYTES:,}",
        )

    def give_up(self) -> None:
        """What is too large to go there is given up: no other lane would take it. No lock is held."""
        with self._lock:
            gone, self._uncrossable = self._uncrossable, []
        if gone and self.group is not None:
            self.group.give_up(self.id, gone)

    def _deal_pieces(self, at: int, letter: Letter, again: bool, made: list[bytes]) -> None:
        """An event that is too large for one post."""
        self._pieces, record = True, letter.record
        for start in range(0, len(record), wire.PIECE):
            more = start + wire.PIECE < len(record)
            piece = Letter(None, record[start : start + wire.PIECE], letter.source, letter.seq, letter.stamp, 0, 0)
            self._number += 1
            self._sent[self._number] = sent = 0 if more else at, piece, again
            self._add(self._number, [sent], made)

    def _add(self, first: int, some: list[tuple[int, Letter, bool]], made: list[bytes], *, anew: bool = False) -> None:
        """A post of these, which are numbered from `first` on. To who may have lost what was said before, `anew`, the
        sources are named again."""
        runs: list[wire.DealtRun] = []
        news: dict[int, str] = {}
        source = stamp = last = None
        seqs: list[int] = []
        records: list[bytes] = []
        for at, letter, again in some:
            if letter.stamp != stamp or letter.source is not source or again != last or not at:
                source, stamp, last = letter.source, letter.stamp, again
                number: int = source.number
                if anew or number not in self._sources:
                    self._meet(number, source.name, news)
                seqs, records = [], []
                runs.append((number, stamp, seqs, records, again, not at))
                if not at:
                    source = None  # a piece is by itself
            seqs.append(letter.seq)
            records.append(letter.record)
        made.append(frame_of(wire.KIND, wire.encode(wire.Deal(self.lane, first, runs, news))))

    def _meet(self, number: int, name: str, news: dict[int, str]) -> None:
        """A source that the other end has not heard of, or may have forgotten."""
        if len(self._sources) >= wire.MOST_SOURCES:
            self._sources.clear()
        self._sources.add(number)
        news[number] = name

    # ── what is said of it ──

    def handled(self, numbers: Iterable[int]) -> None:
        """The other end is done with these; what never went there is counted as forged. It may say so again, over a
        link that was read when the next one had told how far it is."""
        numbers = list(numbers)
        with self._lock:
            sent, last = self._sent, self._number
            if self._pieces:
                found = [self._done(number) for number in numbers]
            else:
                found = [0 if (it := sent.pop(number, None)) is None else it[0] for number in numbers]
            self.unheard = monotonic()
        done = [number for number in found if number] if 0 in found else found
        group = self.group
        if group is None:
            return
        if len(done) < len(found):
            group.forged += sum(not 0 < number <= last for number in numbers)
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
            done = [number for number, it in self._sent.items() if number <= received and number not in still and it[0]]
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
        missing = [(number, it) for number, it in self._sent.items() if number > after]
        at = 0
        while at < len(missing):
            first, size = missing[at][0], 0
            some: list[tuple[int, Letter, bool]] = []
            while at < len(missing) and len(some) < wire.MOST_EVENTS and missing[at][0] == first + len(some):
                size += len(missing[at][1][1].record) + 32
                if some and size > BATCH_BYTES:
                    break
                some.append(missing[at][1])
                at += 1
            self._add(first, some, made, anew=True)

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
