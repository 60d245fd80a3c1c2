"""A group at one node: takes what the node's own sources publish, and hands each event to one of the members.

    channel's routes ─▶ Intake ─▶ gathered, or in the mailbox ─▶ Distribution: who? ─▶ seat of that member
                                           acknowledgements, members that come and go ─┘

Events are gathered (`gathering.py`) where they have no key and all members are at other nodes, and handed out in runs;
else each is handed over by itself. What is in the mailbox comes after what is gathered; publishers wait for both.

Sources of other nodes are no business of this one: their nodes decide. A seat is a member as its group sees it: a
subscription of this node (`member.py`), or one elsewhere, behind whatever carries events there.

`_lock` is held while it is decided who gets something, and while that is put into the queue of that one; never while a
handler runs or something is sent. The lock of a source may be held before it, and after it come those of mailboxes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from math import nan
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.concurrency.bounded_queue import BoundedQueue
from headwater.channel.groups.distribution import Distribution, Handed
from headwater.channel.groups.gathering import Gathering, GatheringMailbox
from headwater.channel.options.config import Inline
from headwater.channel.queues.mailbox import Item, dispatch_all
from headwater.channel.routing.fast_path import SAMPLE_MASK
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Bystander, Ready
from headwater.channel.routing.wiring import Move
from headwater.errors import SubscriptionError
from headwater.native.python.codec import fast_decoder

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.groups.terms import Terms
    from headwater.channel.routing.contract import RoutedSource

log = logging.getLogger("headwater")
KEYED_ROOM = 1024  # events that wait for the members of their keys, while others go on
ROOM = 1


class Seat(Protocol):
    """A member of a group, where its events are given to it."""

    gathers: bool  # events for it may be gathered, and come in runs

    @property
    def id(self) -> str:
        """That no other member has, of any node."""
        ...

    @property
    def credit(self) -> int:
        """How many events it takes at once."""
        ...

    def hand(self, handed: list[Handed[Letter]], ready: Ready) -> None:
        """Events for it, under the lock of its group: what is to be dispatched then goes to `ready`."""
        ...

    def hand_one(self, number: int, letter: Letter, ready: Ready) -> None:
        """The same for a single one, which nobody has had."""
        ...

    def hand_run(self, first: int, letters: list[Letter], ready: Ready) -> None:
        """The same for some that nobody has had, numbered from `first` on. Only where it `gathers`."""
        ...


class Group:
    """Of one channel and name. When its last member is gone it is `over`."""

    def __init__(self, node: NodeContract, channel: Channel, name: str, terms: Terms) -> None:
        self.node, self.channel, self.name, self.terms = node, channel, name, terms
        self._lock = threading.Lock()
        self.distribution: Distribution[Letter] = Distribution(KEYED_ROOM if terms.key else ROOM)
        self._seats: dict[str, Seat] = {}
        self.over = False  # it has no members, and another one of its name may be there
        self.mailbox = GatheringMailbox(
            f"group {name}", node.config.queue, order="arrival", full=node._full, pull=False, deliver=self._offer
        )
        self.mailbox.dispatched_by(node._dispatcher(Inline()))
        self._gatherable = not terms.key and not terms.durable and self.mailbox.queue.policy in ("block", "fail")
        self._gathering = Gathering(node, self.mailbox, self._lock, self._look)
        self._intake = Intake(self)
        interest = terms.interest
        made = channel.type if interest is None or interest.output is None else interest.output
        self.type = made
        self._key: Callable[[Letter], Any] = _no_key if not terms.key or made is None else _reader(made, terms.key)
        self.keyed = bool(terms.key)
        self.handed = self.redelivered = self.acknowledged = self.lost = self.forged = 0

    # ── members ──

    def start(self) -> None:
        """Take what is published from here on; the wiring's lock is held, or not."""
        wiring = self.node._wiring
        with wiring.lock:
            self._entry = wiring.entry(self.channel, self.terms.interest, zones=self.terms.zones)
            wiring.move([Move(self.channel, self._entry, self._intake, joins=True)])

    def join(self, seat: Seat, ready: Ready) -> bool:
        """A member comes; SubscriptionError if there are too many. What is to be dispatched then, under no lock, goes
        to `ready`. False if it is over: its last member has gone meanwhile."""
        with self._lock:
            if self.over:
                return False
            try:
                self._seats[seat.id] = seat
                handed = self.distribution.join(seat.id, seat.credit)
            except ValueError as error:
                del self._seats[seat.id]
                raise SubscriptionError(f"{error}; group {self.name!r} of channel {self.channel.name!r}") from None
            self._give(handed, ready)
            self._regather()
            self._go_on(ready)
        return True

    def leave(self, id: str, *, finishing: Iterable[int] = (), why: str = "") -> None:
        """A member goes: what it had not acknowledged is for others. But for what it is `finishing`: it acknowledges
        these, and then is gone."""
        ready: Ready = []
        with self._lock:
            if id not in self._seats:
                return
            handed = self.distribution.give_back(id, finishing)
            if not self.distribution.knows(id):
                del self._seats[id]
            self._give(handed, ready)
            self._regather()
            self._go_on(ready)
            empty = self._now_empty(why)
        if empty:
            self._end()
        dispatch_all(ready)

    def retire(self, id: str, untaken: list[int]) -> None:
        """A member gets no more, and goes when it has acknowledged what it has. But for what was handed to it when it
        had just ended, which it has not taken: that is for others. `untaken` is as it is under the lock."""
        ready: Ready = []
        with self._lock:
            self._give(self.distribution.retire(id, untaken), ready)
            if not self.distribution.knows(id):
                self._seats.pop(id, None)
            self._regather()
            self._go_on(ready)
            empty = self._now_empty("")
        if empty:
            self._end()
        dispatch_all(ready)

    def acknowledge(self, id: str, numbers: Iterable[int]) -> int:
        """A member has handled events: how many of these it had."""
        ready: Ready = []
        with self._lock:
            done, handed = self.distribution.acknowledge(id, numbers)
            self.acknowledged += len(done)
            self._settled(done)
            self._give(handed, ready)
            self._go_on(ready)
            empty = False
            if not self.distribution.knows(id) and self._seats.pop(id, None) is not None:
                self._regather()
                empty = self._now_empty("")
        self._written()
        if empty:
            self._end()
        if ready:
            dispatch_all(ready)
        return len(done)

    def give_up(self, id: str, numbers: Iterable[int]) -> None:
        """A member cannot have events, and nobody like it can: they are lost."""
        gone = self.acknowledge(id, numbers)
        with self._lock:
            self.acknowledged -= gone
            self.lost += gone

    def owes(self, id: str) -> bool:
        """Whether a member has something that it has not acknowledged, or something waits that may be for it."""
        with self._lock:  # under which what waits goes to members
            return bool(self.mailbox.waiting or self.distribution.outstanding(id))

    def _settled(self, done: list[Letter]) -> None:
        """Events are done; under the lock."""

    def _written(self) -> None:
        """That is to be kept; under no lock."""

    @property
    def members(self) -> list[str]:
        with self._lock:
            return list(self._seats)

    def _now_empty(self, why: str) -> bool:
        """Whether nobody is left, so that what waits is lost; under the lock."""
        if self._seats or self.over:
            return False
        self.over = True
        given_up = self.distribution.clear()
        self.lost += given_up
        gone = given_up + self.mailbox.waiting  # what waits there is dropped now, or at its end, and counted
        self.mailbox.gather(False)
        self.mailbox.drop_gathered(self._intake._place)
        if gone:
            log.warning(
                "group %r of channel %s: its last member is gone%s, and %s events that none has acknowledged are lost; "
                "with delivery=Reliable(durable=True) they would wait for another one",
                self.name,
                self.channel.name,
                f" ({why})" if why else "",
                f"{gone:,}",
            )
        return True

    def _end(self) -> None:
        """It takes no more."""
        wiring = self.node._wiring
        with wiring.lock:
            if self._intake in self._entry.members:
                wiring.move([Move(self.channel, self._entry, self._intake, joins=False)])
        self.mailbox.close(drop=True)
        with self._lock:
            late = self.distribution.clear()  # what has come since it was over
            self.lost += 0 if self.terms.durable else late

    # ── events ──

    def _offer(self, item: Item) -> None:
        """What waited in the mailbox, by who runs that."""
        letter = item[1]
        if isinstance(letter, Chunk):
            records = [None] * len(letter) if self.type is None else self.type.arrow_to_records(letter.taken())
            self.mailbox.back([(item[0], each, 1, item[3], item[4]) for each in letter.letters(records)])
            return
        key = self._key(letter)
        ready: Ready = []
        with self._lock:
            if self.distribution.is_full or self.mailbox.gathered_events:
                self.mailbox.hold(slowed=self.distribution.takes)
                self.mailbox.back([item])
                return
            self._give(self.distribution.put(letter, key), ready)
        dispatch_all(ready)

    def try_now(self, letter: Letter, ready: Ready) -> bool:
        """Hand an event over at once, past the mailbox, if nothing is before it; whether that was so. It may be called
        under the lock of the event's source."""
        mailbox = self.mailbox
        if mailbox.items or mailbox.held or not mailbox.token or self.keyed:
            return False
        with self._lock:
            placed = self.distribution.place(letter)
            if placed is None:
                return False
            self.handed += 1
            self._seats[placed[0]].hand_one(placed[1], letter, ready)
        return True

    def _give(self, handed: list[Handed[Letter]], ready: Ready) -> None:
        """To the seats of those who get something; under the lock."""
        if len(handed) == 1:
            self.handed += 1
            self.redelivered += handed[0].redelivered
            self._seats[handed[0].member].hand(handed, ready)
            return
        by_member: dict[str, list[Handed[Letter]]] = {}
        for each in handed:
            by_member.setdefault(each.member, []).append(each)
            self.redelivered += each.redelivered
        self.handed += len(handed)
        for member, some in by_member.items():
            self._seats[member].hand(some, ready)

    def _regather(self) -> None:
        """Members have come or gone: whether events are gathered from here on, or go one by one; under the lock. While
        there are only some that finish what they have, and get no more, no publisher waits for them: what there is room
        for waits for others."""
        takes, mailbox = self.distribution.takes, self.mailbox
        mailbox.gather(self._gatherable and takes and all(seat.gathers for seat in self._seats.values()))
        if mailbox.held:
            mailbox.hold(slowed=takes)

    def gather(self, letter: Letter, ready: Ready) -> bool:
        """Put an event to those of its source that are gathered, if that is how they go; whether that was so. The
        source's lock is held."""
        mailbox = self.mailbox
        if not mailbox.gathers and not mailbox.gathered:
            return False
        with self._lock:
            gathered = self._gathering.of(letter.source, letter.seq - 1)
            if not mailbox.may_gather:
                gathered.passed(letter.seq)
                return False
            pending = gathered.pending
            if not pending or not letter.seq & SAMPLE_MASK or mailbox.waiting >= mailbox.limit:
                ready.append(self._gathering)  # type: ignore[arg-type]
            pending.append(letter)
            return True

    def passes(self, source: RoutedSource, seq: int) -> None:
        """Events of a source up to this one go past those that are gathered; its lock is held."""
        with self._lock:
            gathered = self.mailbox.gathered.get(source)
            if gathered is not None:
                gathered.passed(seq)

    def _look(self) -> None:
        """Something was gathered, and may be for somebody; no lock is held."""
        ready: Ready = []
        with self._lock:
            self._go_on(ready)
        if ready:
            dispatch_all(ready)

    def _hand_out(self, ready: Ready) -> int:
        """What is gathered, to those who are free, and all of it where events are not gathered any more; under the
        lock. How many are left."""
        mailbox, distribution = self.mailbox, self.distribution
        while waiting := mailbox.gathered_events:
            if not mailbox.gathers:
                for letter in mailbox.take(waiting):
                    self._give(distribution.put(letter, None), ready)
                continue
            found = distribution.next_run(waiting)
            if found is None:
                break
            letters = mailbox.take(found[1])
            if letters:
                self.handed += len(letters)
                self._seats[found[0]].hand_run(distribution.place_run(found[0], letters), letters, ready)
        mailbox.measure(waiting)
        if waiting:
            self._gathering.keep_time()
        return waiting

    def _go_on(self, ready: Ready) -> None:
        """There may be room again; under the lock."""
        if self.mailbox.gathered and self._hand_out(ready):
            return
        if self.mailbox.held and not self.distribution.is_full and self.mailbox.resume():
            ready.append(self.mailbox)

    def report(self) -> dict[str, int]:
        """Members, what waits for one, what they have and have not acknowledged, and what became of events so far."""
        with self._lock:
            return {
                "members": len(self._seats),
                "waiting": self.distribution.waiting + self.mailbox.waiting,
                "outstanding": self.distribution.out,
                "handed": self.handed,
                "acknowledged": self.acknowledged,
                "redelivered": self.redelivered,
                "lost": self.lost + self.mailbox.dropped,
                "forged": self.forged,
            }


class _Sink:
    _calm = True  # what is lost in the mailbox is counted where it came from


class Intake(Bystander):
    """A group in the routes of its channel: it takes what the sources of this node publish."""

    width = 0
    local = False  # other nodes are not asked for anything: they decide themselves
    quick = None

    def __init__(self, group: Group) -> None:
        self._mailbox, self.channel, self._try_now = group.mailbox, group.channel, group.try_now
        self._gather, self._passes = group.gather, group.passes
        self.bypass: Any = group._gathering if group._gatherable else None
        self._place: Any = _Place(group.channel)

    def accept(self, letter: Letter, ready: Ready) -> None:
        if letter.source.local and not self._gather(letter, ready) and not self._try_now(letter, ready):
            mailbox = self._mailbox
            if not mailbox.put_quick(self._place, letter, 1, ready) and mailbox.put(
                (self._place, letter, 1, 0, float("inf"))
            ):
                ready.append(mailbox)

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        if chunk.source.local:
            self._passes(chunk.source, int(chunk.seqs[-1]))
            if self._mailbox.put((self._place, chunk, n, 0, float("inf"))):
                ready.append(self._mailbox)

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[BoundedQueue]:
        return (self._mailbox,) if source.local else ()


class _Place:
    """In the place of an attachment, where a mailbox counts what it loses."""

    subscription = _Sink()

    def __init__(self, channel: Channel) -> None:
        self.channel = channel


_NO_VALUE = ("",)


def _no_key(letter: Letter) -> None:
    return None


def _reader(type: Any, field: str) -> Callable[[Letter], Any]:
    """What reads the key of an event."""
    attribute = dict(zip(type.record.by_name, type.binding.attrs, strict=True))[field]
    decode = fast_decoder(type)

    def key(letter: Letter) -> Any:
        value = getattr(decode(letter.record), attribute)  # as all nodes see it, whatever was published
        if value is None:
            return _NO_VALUE  # an event without one has a key like any other
        if isinstance(value, float):
            return value + 0.0 if value == value else nan  # one zero, and one that is no number
        return value

    return key


__all__ = ["Group", "Seat"]
