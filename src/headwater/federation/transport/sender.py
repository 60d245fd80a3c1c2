"""Smart batching towards one other node: an idle link sends at once, a busy one packs, and no knob chooses.

Publishers put what they have where `collect` finds it and call `send_soon`. Who sends?

    nothing sent for a moment    this publisher, at once: the way of a single event has no other thread in it
    an answer came in since      the same: this may be the next question
    it has gathered elsewhere    the same: `send_gathered`
    sent just now                nobody yet: the *flusher* thread is woken once, and publishers go on
    ... and a lot waits by now   the publisher whose event made it a lot, or too old
    ... and publishers stop      the flusher sends the tail
    the link takes no more       the flusher waits for it; what comes meanwhile waits where it is

The one promise everything rests on: while `_armed`, the flusher will clear it and collect after that, so whoever put
something before seeing it set need do nothing. Whoever sees it clear sends, or sets it and rings.

In a flood the flusher must not ask for the interpreter's lock at every turn (each time costs the publisher a switch of
threads, and it waits for up to 5 ms to get it). So when it sees that publishers send as they go it lingers, and only
looks every millisecond whether they still do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from headwater.errors import ClosedError, LinkDown
from headwater.federation.transport.link import Link
from headwater.threads import PROCESS, Supervised

log = logging.getLogger("headwater.federation")

BUSY_SECONDS = 12e-6  # after a send for which the link counts as in use
OLDEST_SECONDS = 100e-6  # after which a publisher does not leave it to others
MUCH_BYTES = 64 << 10  # bytes, the same
WRITE_BYTES = 256 << 10  # bytes in one write: more than MUCH_BYTES, so that what has gathered shrinks
LEAST_BYTES = WRITE_BYTES // 4  # bytes: who collects no more has collected all
ESTIMATE_EVENTS, ESTIMATE_BYTES = 64, 4 << 20  # events and bytes from which the size of an event is estimated
FLOOD_SECONDS = 1e-3  # between two looks of the flusher in a flood
CROWD_LINKS = 20  # links, from which on no more is left to others
SLICE_SECONDS = 0.25  # for which the flusher waits for a full link at a time
MANY = (1 << 30) - 1  # events: never
NEVER = float("inf")


# What came of one collect and one write.
NOTHING = 0  # there was nothing to send, and nothing waits in the link
SENT = 1  # all there was
MORE = 2  # and there may be more
FULL = 3  # the link takes no more for now
NO_LINK = 4


class Pulse:
    """What the senders of one node know of each other. A publisher whose events go to many links spends its time with
    the others between two sends to one of them: that is no idle time, and each may pack more when there are many."""

    __slots__ = ("busy", "links")

    def __init__(self) -> None:
        self.busy = 0.0  # seconds spent sending, in all, making frames included
        self.links = 0


class Sender:
    """Moves what `collect(budget)` returns to the attached link, in order.

    `collect` returns whole frames made from what waits, about `budget` bytes of them: if less than a quarter of that,
    then all that waits. One thread at a time calls it: a publisher in `send_soon`, the flusher, whoever calls `attach`
    or `flush`. None of these may hold a lock that `collect` takes.

    When a link ends, frames collected for it are gone with it (the other node says what it has when it is back), and
    what was not collected waits for the next `attach`. The end itself is told by the link's `on_end`, not here."""

    __slots__ = (
        "_armed",
        "_bell",
        "_bytes",
        "_closed",
        "_collect",
        "_count",
        "_due",
        "_events",
        "_flusher",
        "_heard",
        "_limit",
        "_link",
        "_others",
        "_pulse",
        "_quiet",
        "_start",
        "_turn",
        "_writes_armed",
        "name",
        "writes",
    )

    def __init__(self, collect: Callable[[int], list[bytes]], name: str, pulse: Pulse | None = None) -> None:
        self.name = name
        self._pulse = pulse or Pulse()
        self._others = 0.0  # seconds spent sending, in all, when this one last did
        self.writes = 0  # calls of the link's `write`
        self._collect = collect
        self._link: Link | None = None
        self._closed = False
        self._turn = threading.Lock()  # held for one collect and one write, which never wait
        self._bell = threading.Lock()  # rung by releasing it
        self._bell.acquire()
        self._start = threading.Lock()
        self._flusher: threading.Thread | None = None
        # Without a link nobody has anything to do: armed, and never enough or old enough.
        self._armed = True
        self._writes_armed = 0  # `writes` when it was armed
        self._count = 0  # events told of since the last write: an estimate, threads may lose some
        self._events = self._bytes = 0  # counted, and sent
        self._limit = MANY  # so many events are about MUCH_BYTES
        self._due = NEVER  # when a publisher sends itself
        self._quiet = 0.0  # when the link counts as idle,
        self._heard = 0  # or if more has come in than this

    @property
    def attached(self) -> bool:
        return self._link is not None

    def send_soon(self, n: int = 1) -> None:
        """Something new waits for `collect`, about `n` events of it."""
        if self._armed:
            self._count = count = self._count + n
            # The clock is asked for every fourth event only.
            if (count < self._limit and (count & 3 or monotonic() < self._due)) or self._turn.locked():
                return
            with self._turn:
                step = self._step()
            # The flusher may have become idle while this thread waited for its turn.
            if step == MORE and not self._armed:
                self._arm()
            return
        link = self._link
        if link is None:
            return  # it was lost just now
        if link.bytes_in == self._heard and monotonic() - self._pulse.busy + self._others < self._quiet:
            self._arm(patient=self._pulse.links > 1)
            return
        if self._turn.locked():
            self._arm()
            return
        # Who puts something after this look finds the sender not armed, or its turn taken.
        with self._turn:
            step = self._step()
        if step == MORE:
            self._arm()

    def send_gathered(self) -> None:
        """Something new waits for `collect`, and has waited for others to join it already: it goes without more."""
        if self._link is None:
            return
        if not self._turn.acquire(False):
            self._arm()  # who has it may have collected before
            return
        try:
            step = self._step()
        finally:
            self._turn.release()
        if step == MORE and not self._armed:
            self._arm()

    def send_now(self, build: Callable[[], bytes | None]) -> bool:
        """At an idle link: write what `build` makes, in this thread, without all that `send_soon` sees to. False if the
        link is not idle, or nothing was made: then call `send_soon`."""
        link = self._link
        if self._armed or link is None or link.busy:
            return False
        started = monotonic()
        if link.bytes_in == self._heard and started - self._pulse.busy + self._others < self._quiet:
            return False
        if not self._turn.acquire(False):
            return False
        try:
            frame = build() if link is self._link else None
            if frame is None:
                return False
            self._heard = link.bytes_in
            whole = link.write(frame)
            self.writes += 1
            self._sent(started)
            if not whole:
                self._due = NEVER
                self._arm()
            return True
        except LinkDown:
            self._lost()
            return True
        except BaseException:
            self._lost()
            link.close("interrupted while sending")
            raise
        finally:
            self._turn.release()

    def attach(self, link: Link) -> None:
        """Send over `link` from now on, beginning with what waits."""
        with self._turn:
            if self._closed:
                raise ClosedError(f"sender {self.name} is closed: a link cannot be attached")
            if self._link is None:
                self._pulse.links += 1
            self._link = link
            self._limit, self._due, self._quiet = MUCH_BYTES // 128, 0.0, 0.0
            self._events = self._bytes = 0
            self._armed = False
            step = self._step()
        if step == MORE:
            self._arm()

    def detach(self, link: Link | None = None) -> None:
        """Stop sending over the link (given one: only if it is that one). When this returns, nobody collects for it."""
        with self._turn:
            if self._link is not None and (link is None or link is self._link):
                self._lost()

    def flush(self, timeout: float) -> bool:
        """Send all that waits; False if that took longer, or if there is no link."""
        deadline = monotonic() + timeout
        while True:
            with self._turn:
                link, step = self._link, self._step()
            if step in (NOTHING, SENT):
                return True
            if step == NO_LINK:
                return False
            assert link is not None
            try:
                if step == FULL and not link.drain(max(0.0, deadline - monotonic())):
                    return False
            except LinkDown:
                self.detach(link)
                return False
            if monotonic() > deadline:
                self._arm()
                return False

    def close(self) -> None:
        """Detach, and end the flusher. What waits stays where it is; `flush` first to have it sent."""
        self._closed = True
        self.detach()
        with self._start:
            flusher = self._flusher
        if flusher is not None:
            self._ring()
            if flusher is not threading.current_thread():
                flusher.join()

    def _step(self) -> int:
        """One collect and one write, by whoever has the turn. After FULL the sender is armed."""
        link = self._link
        if link is None:
            self._armed, self._count = True, 0
            return NO_LINK
        count, self._count = self._count, 0
        try:
            if link.busy and not link.drain(0):
                self._events += count
                if not self._armed:
                    self._arm()
                return FULL
            started = monotonic()
            frames = self._collect(WRITE_BYTES)
            if not frames:
                self._due = monotonic() + OLDEST_SECONDS
                return NOTHING
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            self._heard = link.bytes_in
            whole = link.write(data)
            self.writes += 1
            if count:
                self._learn(count, len(data))
            if whole:
                self._sent(started)
                return MORE if len(data) > LEAST_BYTES else SENT
            # As long as it is full a publisher looks again when a lot more has come, and the flusher waits for it.
            self._due = NEVER
            self._arm()
            return FULL
        except LinkDown:
            self._lost()
            return NO_LINK
        except Exception as error:
            log.exception("%s: what waits for the link cannot be sent; the link is closed", self.name)
            self._lost()
            link.close(f"what waits for it cannot be sent: {error}")
            return NO_LINK
        except BaseException:
            # Ctrl-C: whether a frame is out, or a part of it, is not known. The next link starts clean.
            self._lost()
            link.close("interrupted while sending")
            raise

    def _sent(self, started: float) -> None:
        """A write that was begun then is done."""
        now, pulse = monotonic(), self._pulse
        pulse.busy = self._others = pulse.busy + now - started
        crowd = max(1, min(pulse.links, CROWD_LINKS))
        self._quiet, self._due = now + BUSY_SECONDS * crowd, now + OLDEST_SECONDS * crowd

    def _learn(self, events: int, size: int) -> None:
        """How many events are MUCH_BYTES, from the last few megabytes: one write may hold others than were counted."""
        self._events += events
        self._bytes += size
        if self._events >= ESTIMATE_EVENTS:
            self._limit = max(1, min(self._events * MUCH_BYTES // max(1, self._bytes), MANY))
            if self._bytes > ESTIMATE_BYTES:
                self._events >>= 1
                self._bytes >>= 1

    def _lost(self) -> None:
        if self._link is not None:
            self._pulse.links -= 1
        self._link = None
        self._armed, self._limit, self._due = True, MANY, NEVER

    def _arm(self, patient: bool = False) -> None:
        """From here on the flusher sees to what waits: at once, or (`patient`) when some more has come."""
        if self._flusher is None:
            self._begin()
        self._writes_armed = -1 if patient else self.writes
        self._armed = True
        self._ring()

    def _ring(self) -> None:
        try:  # noqa: SIM105  a `with` would cost more than the call
            self._bell.release()
        except RuntimeError:
            pass  # it rings already

    def _begin(self) -> None:
        with self._start:
            if self._flusher is None and not self._closed:
                thread = Supervised(self._run, f"headwater-{self.name}-flusher", again=lambda: not self._closed)
                thread.start()
                self._flusher = thread

    def _run(self) -> None:
        while not self._closed:
            self._bell.acquire()
            try:
                self._tend()
            except Exception as error:  # not even a faulty link ends the flusher
                PROCESS.note(f"the link of {self.name}", error)
                self.detach()

    def _tend(self) -> None:
        """Until nothing waits, or there is no link."""
        mark = self._writes_armed
        while not self._closed:
            link = self._link
            if link is None:
                return
            if link.busy:
                try:
                    link.drain(SLICE_SECONDS)
                except LinkDown:
                    self.detach(link)
            elif self.writes != mark or self._turn.locked():
                mark = self.writes
                self._bell.acquire(timeout=FLOOD_SECONDS * max(1.0, self._pulse.links / 4))
            else:
                with self._turn:
                    self._armed = False
                    step = self._step()
                    if step == MORE:
                        self._armed = True
                    elif step != FULL:
                        return
                mark = self.writes
