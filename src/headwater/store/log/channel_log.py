"""`ChannelLog`: one node's part of one channel's log, open for appending.

Locks, in the order they may be taken: `_lock` for what is appended, `_turn` for who syncs and what comes to rest. No
sync, and no coming to rest, happens while one of them is held.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from struct import error as StructError
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from headwater.errors import ClosedError, HeadwaterError, StoreError
from headwater.late import np, pa
from headwater.store.log import background, recovery, schema
from headwater.store.log.layout import ChannelFolder, Foundation, make_folders
from headwater.store.log.parquet_segment import put_to_rest
from headwater.store.log.recent_events import MOST_EVENTS, RecentEvents, recent_events
from headwater.store.log.recovery import Recovered
from headwater.store.log.settings import Log
from headwater.store.log.wal import NANOS, Header
from headwater.store.log.wal_writer import Writer
from headwater.types import EventType
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

if TYPE_CHECKING:
    from headwater.store.log.reader import ChannelReader

APPENDS_PER_CHECK = 128  # a power of two: after so many it is looked whether the file is still where it was made
WATCH_SECONDS = 0.1  # and so long after an append at the latest
_RETRY = 30.0  # seconds until a segment that could not come to rest is tried again

_log = logging.getLogger("headwater.log")
_OPEN: WeakSet[ChannelLog] = WeakSet()


class _Waiter:
    """A thread that wants what it appended synced. It leads, and syncs for all, or waits for its lock to be released:
    then it is synced, or leads. It releases that of the one behind it."""

    __slots__ = ("behind", "leads", "lock", "ticket", "waits")

    def __init__(self, ticket: int) -> None:
        self.ticket, self.leads, self.waits, self.behind = ticket, False, False, None
        self.lock = threading.Lock()
        self.lock.acquire()

    behind: _Waiter | None


class ChannelLog:
    """Open it with `ChannelLog.open`. Threads may share it; one process has it at a time.

    `id` says which log this is, also after a restart under another address or key. `recovered` says what was cut off
    when it was opened, if the process or the power had ended while something was written. `syncs` counts how often it
    was synced.
    """

    # Found quicker than in a dictionary, which counts in `append`.
    # fmt: off
    __slots__ = (
        "__weakref__", "_age_job", "_aging", "_armed", "_attend_at", "_claim", "_closed", "_each", "_failure",
        "_folder", "_last", "_lock", "_mark", "_resting", "_retry", "_roll_at", "_rolled", "_sealed", "_sync_job",
        "_synced", "_syncing", "_ticket", "_times", "_trouble", "_turn", "_unsynced", "_waiters", "_watch_job",
        "_writer", "channel", "id", "node", "recovered", "settings", "syncs", "type",
    )
    # fmt: on

    def __init__(self, settings: Log, channel: str, node: str, type: EventType | None) -> None:
        self.settings, self.channel, self.node, self.type = settings, channel, node, type
        self._lock = threading.Lock()
        self._turn = threading.Condition(threading.Lock())
        self._each = settings.sync == "publish"
        self._mark = None if type is None else type.layout.header
        self._ticket = self._synced = self.syncs = 0
        self._syncing = self._resting = False
        self._armed = False  # whether what is due for the events so far is planned
        self._sync_job = self._age_job = self._retry = self._watch_job = 0  # what is planned
        self._aging = 0  # the segment whose roll by age is planned
        self._failure: str | None = None  # why nothing is taken any more
        self._unsynced: str | None = None  # why nothing can be synced any more
        self._trouble: HeadwaterError | None = None
        self._waiters: list[_Waiter] = []  # for a sync after the one that is under way
        self._rolled: list[Writer] = []  # not synced and closed yet
        self._closed = False

    @classmethod
    def open(cls, settings: Log, channel: str, node: str, type: EventType | None) -> ChannelLog:
        """The log of a node's own sources in a channel, as it was left, however that ended.

        `StoreError` if another process has it open, if the type does not fit what is logged, or if a file is damaged:
        then nothing has been changed.
        """
        log = cls(settings, channel, node, type)
        folder = ChannelFolder.of(settings.folder, channel).node(node)
        try:
            schema.check(folder.channel, type)
            foundation = Foundation.of(folder, make_folders(folder.path, sync=False))
            state = recovery.recover(folder, type)
        except OSError as error:
            raise StoreError(
                f"log {os.fspath(settings.folder)!r}: expected a folder that can be written, found: {error.strerror} "
                f"({error.filename}); choose another folder, or see to its rights and room"
            ) from error
        log._folder, log._claim, log.id, log.recovered = folder, state.claim, state.id, state.recovered
        log._last, log._times, log._sealed = state.last, state.times, state.sealed
        try:
            if state.tail is None:
                log._writer = log._create(state.next, foundation)
            else:
                log._writer = Writer.resume(state.tail, foundation)
        except OSError as error:
            os.close(state.claim)
            raise StoreError(
                f"log {os.fspath(folder.path)!r}: expected to make a file there, found: {error.strerror}; make room"
            ) from error
        log._start()
        return log

    _folder: Any
    _claim: int
    _writer: Writer
    _last: dict[str, int]
    _times: dict[str, int]
    _sealed: list[int]
    id: str
    recovered: Recovered | None

    def _start(self) -> None:
        self._roll_at = self.settings.roll_bytes
        self._attend_at = 0  # the size of the file from which on something is due: it is rolled, or a mark is set
        _OPEN.add(self)
        with self._lock:
            if self._writer.names:
                self._attend()
        if self._sealed:
            background.RESTER.after(0, self._later(ChannelLog._rest))
        elif self.settings.keep_seconds is not None or self.settings.keep_bytes is not None:
            background.RESTER.after(0, self._later(ChannelLog._retain))

    def _create(self, segment: int, foundation: Foundation | None = None) -> Writer:
        header = Header(self.channel, self.node, segment, self.id, self.type)
        return Writer.create(self._folder.wal(segment), header, foundation)

    # ── what is there ──

    def last(self, source: str) -> int:
        """The sequence number of a source's last event; 0 if it has none."""
        return self._last.get(source, 0)

    def last_time(self, source: str) -> int:
        """When a source's last event was published, in nanoseconds since 1970; 0 if it has none."""
        return self._times.get(source, 0)

    def sources(self) -> dict[str, int]:
        """The last sequence number of every source."""
        with self._lock:
            return dict(self._last)

    @property
    def trouble(self) -> HeadwaterError | None:
        """Why segments do not come to rest at the moment, if so. Nothing is lost; it is tried again."""
        return self._trouble

    def reader(self) -> ChannelReader:
        """A reader of this node's events in the channel."""
        from headwater.store.log.reader import ChannelReader

        return ChannelReader(self.settings.folder, self.channel, nodes=(self.node,))

    def recent(self, source: str, after: int, upto: int) -> RecentEvents | None:
        """What a reader would find of a source with after < number <= upto, from the end of the file that is written;
        None where that does not have all of it, or something is amiss: then a reader says. No lock is needed."""
        writer, last = self._writer, self._last.get(source, 0)
        if not after < min(upto, last) or last - after > MOST_EVENTS or self._failure is not None or not writer.there():
            return None
        return recent_events(writer, source, after, min(upto, last))

    # ── appending ──

    def append(self, source: str, seq: int, stamp: int, record: bytes) -> int:
        """Log an event, published at `stamp` (nanoseconds); a ticket for `settle`.

        It survives the end of the process when this returns. `StoreError` if it cannot be written: then it is not
        there, and the next may be tried.
        """
        if self._mark is not None and (record[4:16] != self._mark or len(record) & 7):
            raise self._misfit(f"a record of {self.type.name}", "another record")  # type: ignore[union-attr]
        with self._lock:
            if self._each or not self._ticket & (APPENDS_PER_CHECK - 1):
                self._look()
            if seq <= self._last.get(source, 0) or self._failure is not None:
                raise self._refusal(source, seq)
            writer, size = self._writer, self._writer.size
            try:
                writer.event(source, seq, stamp, record)
                self._last[source] = seq
                self._times[source] = stamp
                self._ticket = ticket = self._ticket + 1
            except BaseException as error:
                raise self._taken_back(error, writer, size, source, seq) from error
            if not self._armed or writer.size >= self._attend_at:
                self._attend()
        return ticket

    def append_batch(self, source: str, first: int, stamp: int, batch: Any) -> int:
        """Log the rows of a RecordBatch as events `first`, `first` + 1, …, published at `stamp`: all, or none."""
        batch = self._conforming(batch)
        count = batch.num_rows
        if not count:
            return self._ticket
        return self._append(source, first, first + count - 1, stamp, lambda w: w.batch(source, first, stamp, batch))

    def append_rows(self, source: str, seqs: Any, stamps_us: Any, batch: Any) -> int:
        """Log the rows of a RecordBatch with a sequence number (increasing) and a time (microseconds) for each."""
        batch = self._conforming(batch)
        numbers, times = _numbers(seqs), _numbers(stamps_us)
        count = batch.num_rows
        if len(numbers) != count or len(times) != count:
            raise self._misfit(f"a number and a time for each of {count} rows", f"{len(numbers)} and {len(times)}")
        if not count:
            return self._ticket
        if (np.diff(numbers) <= 0).any():
            raise self._misfit("sequence numbers that increase", "some that do not")
        if times.min() < TIMESTAMP_MIN or times.max() > TIMESTAMP_MAX:
            raise self._misfit("times in the years 1 to 9999", "others")
        last, stamp = int(numbers[-1]), int(times[-1]) * NANOS
        return self._append(
            source, int(numbers[0]), last, stamp, lambda writer: writer.rows(source, numbers, times, batch)
        )

    def _append(self, source: str, first: int, last: int, stamp: int, write: Callable[[Writer], None]) -> int:
        with self._lock:
            self._look()
            if first <= self._last.get(source, 0) or self._failure is not None:
                raise self._refusal(source, first)
            writer, size = self._writer, self._writer.size
            try:
                write(writer)
                self._last[source], self._times[source] = last, stamp
                self._ticket = ticket = self._ticket + 1
            except BaseException as error:
                raise self._taken_back(error, writer, size, source, first) from error
            if not self._armed or writer.size >= self._attend_at:
                self._attend()
        return ticket

    def _taken_back(self, error: BaseException, writer: Writer, size: int, source: str, seq: int) -> BaseException:
        """What to raise when an append did not come to its end: an interrupt (Ctrl-C) can come at any point of it, and
        then the caller takes it for not done, so it must not be."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, StructError):
            return self._misfit("numbers of 64 bits", f"{error} (source {source!r}, from {seq})")
        writer.take_back(size)
        if self._last.get(source, 0) >= seq:
            self._last[source] = seq - 1
        return error

    def _conforming(self, batch: Any) -> Any:
        kind = self._writer.header.rows
        if isinstance(batch, pa.RecordBatch) and batch.schema.equals(kind.schema):
            return batch
        try:
            return kind.conform(batch)
        except HeadwaterError as error:
            raise self._misfit(f"a batch of {kind.name}", str(error)) from error

    @property
    def _place(self) -> str:
        return f"log of channel {self.channel!r}, node {self.node!r}"

    def _misfit(self, expected: str, found: str) -> StoreError:
        return StoreError(f"{self._place}: expected {expected}, found {found}; nothing of it is logged")

    def _refusal(self, source: str, seq: int) -> Exception:
        if self._failure is not None:
            return ClosedError(self._failure) if self._closed else StoreError(self._failure)
        last = self._last.get(source, 0)
        return self._misfit(f"a sequence number above {last} from source {source!r}", f"{seq}")

    # ── whether its file is still there ──

    def check(self) -> None:
        """`StoreError` if its folder was taken away: what there is to be read would be taken for all there is.

        It does not wait for a disk that takes its time: only what looks amiss is looked at again under the lock."""
        if self._failure is None and self._writer.there():
            return
        with self._lock:  # it may just have begun its next file
            self._look()
            if self._failure is not None and not self._closed:
                raise StoreError(self._failure)

    def _look(self) -> None:
        """See whether the file is where it was made; `_lock` is held, so that it is the one that is written."""
        writer = self._writer
        if self._failure is not None or writer.there():
            return
        self._failure = self._unsynced = (
            f"{self._place}: expected its file {os.fspath(writer.path)!r}, found that the folder was deleted, moved or "
            "exchanged under the node; what was published since then is in no log that can be found, and nothing more "
            "is taken. Put the folder back or name another, then close the node and open it again"
        )
        _log.error("%s", self._failure)

    def _watch(self) -> None:
        with self._lock:
            self._watch_job, self._armed = 0, False
            self._look()

    # ── syncing ──

    def settle(self, ticket: int) -> None:
        """With sync="publish": return when what the ticket is for is on the disk. One sync serves all who wait."""
        if self._each and self._synced < ticket:
            self._sync(ticket)

    def sync(self) -> None:
        """Return when everything that was appended is on the disk."""
        self._sync(self._ticket)

    def _sync(self, ticket: int) -> None:
        """Group commit: until what the ticket stands for is on the disk. The first who comes leads, and syncs for all
        that wait by then; the others sleep until they are synced, or one of them leads next."""
        waiter = _Waiter(ticket)
        try:
            with self._turn:
                if self._synced >= ticket:
                    return
                if self._unsynced is not None:
                    raise StoreError(self._unsynced)
                if self._syncing:
                    waiter.waits = True
                    self._waiters.append(waiter)
                else:
                    self._syncing = waiter.leads = True
            if waiter.waits:
                waiter.lock.acquire()
            if waiter.leads:
                self._sync_all()
            elif self._synced < ticket:
                raise StoreError(self._unsynced)
        finally:  # also after an interrupt, at any point: nobody is to wait for this thread
            self._leave(waiter)

    def _sync_all(self) -> None:
        """Sync what there is, for all who wait."""
        with self._lock:
            upto, done, current = self._ticket, list(self._rolled), self._writer
        try:
            for writer in (*done, current):
                writer.sync()
        except OSError as error:
            # What the system could not write it may have forgotten: nothing more can be promised for this file.
            self._unsynced = self._failure = (
                f"{self._place}: expected to sync its file, found: {error.strerror}; see to the disk, then close the "
                "node and open it again"
            )
            raise StoreError(self._unsynced) from error
        with self._lock:
            self._look()
            if self._unsynced is not None:
                raise StoreError(self._unsynced)
        self.syncs += 1
        self._synced = upto
        if done:
            with self._lock:
                for writer in done:
                    self._rolled.remove(writer)
            for writer in done:
                writer.close()

    def _leave(self, waiter: _Waiter) -> None:
        """Hand on what others wait for.

        Each waits for a lock of its own, so that nobody wakes in vain. The one that syncs next is woken first: while
        the disk is at it, the others bring their next events. Those wake one another in a row: all at once they would
        only queue for the interpreter.
        """
        if waiter.leads or waiter.waits:
            with self._turn:
                if waiter.leads:
                    waiter.leads = False
                    self._pass_on()
                elif waiter.waits:
                    waiter.waits = False
                    self._waiters.remove(waiter)
        behind, waiter.behind = waiter.behind, None
        if behind is not None:
            behind.lock.release()

    def _pass_on(self) -> None:
        """Let those go whose events are synced, or never will be, and one of the others sync; `_turn` is held."""
        upto, first = (self._synced if self._unsynced is None else self._ticket), None
        for each in reversed(self._waiters):
            if each.ticket <= upto:
                each.waits, each.behind, first = False, first, each
        self._waiters = [each for each in self._waiters if each.waits]
        self._syncing = bool(self._waiters)
        if self._syncing:
            leader = self._waiters.pop(0)
            leader.waits, leader.leads = False, True
            leader.lock.release()
        if first is not None:
            first.lock.release()
        self._turn.notify_all()

    # ── rolling ──

    def roll(self, *, wait: bool = False) -> None:
        """Begin a new segment; the events so far come to rest in the background, or before this returns (`wait`)."""
        with self._lock:
            if self._failure is not None:
                raise StoreError(self._failure)
            try:
                self._roll()
            except OSError as error:
                raise StoreError(
                    f"{self._place}: expected to begin a new file, found: {error.strerror}; make room on the disk"
                ) from error
        if wait:
            self._rest()
            with self._turn:
                while self._resting:
                    self._turn.wait()
            if self._sealed and self._trouble is not None:
                raise self._trouble

    def _roll(self) -> None:
        """A new segment, if there is something in this one; `_lock` is held."""
        writer = self._writer
        if not writer.names:
            return
        self._writer = self._create(writer.header.segment + 1)
        self._rolled.append(writer)
        self._sealed.append(writer.header.segment)
        self._roll_at, self._attend_at = self.settings.roll_bytes, 0
        self._armed = False
        background.RESTER.after(0, self._later(ChannelLog._rest))

    def _attend(self) -> None:
        """Plan what is due after an append; `_lock` is held."""
        writer = self._writer
        if writer.size >= self._roll_at:
            try:
                self._roll()
            except OSError as error:  # the event is logged; it only stays where it is for longer
                self._roll_at = writer.size + max(self.settings.roll_bytes // 8, 1)
                self._look()
                if self._failure is None:
                    _log.warning("%s: no new file could be begun: %s", self._place, error.strerror)
            return
        self._attend_at = min(self._roll_at, writer.mark())
        self._armed = True
        keeper = background.KEEPER
        if self.settings.sync == "interval" and not self._sync_job:
            self._sync_job = keeper.after(self.settings.interval, self._later(ChannelLog._sync_now))
        if not self._each and not self._watch_job:
            self._watch_job = keeper.after(WATCH_SECONDS, self._later(ChannelLog._watch))
        if self._aging != writer.header.segment:
            keeper.cancel(self._age_job)
            self._aging = writer.header.segment
            self._age_job = keeper.after(self.settings.roll_seconds, self._later(ChannelLog._age, self._aging))

    def _later(self, job: Callable[..., None], *given: Any) -> Callable[[], None]:
        """A job that does not keep the log alive, and does nothing once it is closed."""
        found = ref(self)

        def run() -> None:
            log = found()
            if log is not None and not log._closed:
                job(log, *given)

        return run

    def _sync_now(self) -> None:
        with self._lock:
            self._sync_job, self._armed = 0, False
        try:
            self._sync(self._ticket)
        except StoreError as error:
            _log.error("%s", error)

    def _age(self, segment: int) -> None:
        if self._writer.header.segment == segment:
            with suppress(StoreError):
                self.roll()

    # ── coming to rest ──

    def _rest(self) -> None:
        """Bring to rest what can be; one thread at a time."""
        with self._turn:
            while self._resting:
                self._turn.wait()
            if self._closed or not self._sealed:
                return
            self._resting = True
        try:
            self._sync(self._ticket)
            while self._sealed and not self._closed:
                put_to_rest(self._folder, self._sealed[0], given_up=lambda: self._closed)
                with self._lock:
                    del self._sealed[0]
                self._retain()
            self._trouble = None
        except (HeadwaterError, OSError, pa.ArrowException) as error:
            if self._closed:  # which sees to the rest of it, as long as there is time
                return
            self._trouble = error if isinstance(error, HeadwaterError) else self._not_at_rest(error)
            _log.warning("%s", self._trouble)
            background.RESTER.cancel(self._retry)
            self._retry = background.RESTER.after(_RETRY, self._later(ChannelLog._rest))
        finally:
            with self._turn:
                self._resting = False
                self._turn.notify_all()

    def _not_at_rest(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self._place}: expected segment {self._sealed[0]} to come to rest as Parquet, found: {error}; nothing is "
            "lost, and it is tried again; make room on the disk"
        )

    def _retain(self) -> None:
        keep_seconds, keep_bytes = self.settings.keep_seconds, self.settings.keep_bytes
        if keep_seconds is None and keep_bytes is None:
            return
        from headwater.store.log.retention import apply

        try:
            apply(self.settings.folder, self.channel, self.node, keep_seconds, keep_bytes)
        except (HeadwaterError, OSError, pa.ArrowException) as error:
            _log.warning("%s: old files could not be deleted: %s", self._place, error)

    # ── the end ──

    def close(self, *, until: float | None = None, why: str = "rest_seconds are over") -> bool:
        """Sync, bring everything to rest, and let go; whether all of it is at rest. Closing twice is fine.

        What is not at rest by `until` (by the clock of `time.monotonic`; as a rule `rest_seconds` from now), or cannot
        come to rest, stays in its write-ahead file, which is as safe: that is said, with what to do and `why` (not if
        that is "")."""
        until = time.monotonic() + self.settings.rest_seconds if until is None else until
        with self._turn:
            if self._closed:
                return True
            self._closed = True
            while self._resting:
                self._turn.wait()
        with self._lock:
            if self._failure is None:
                self._failure = f"{self._place} is closed"
            for job in (self._sync_job, self._age_job, self._watch_job):
                background.KEEPER.cancel(job)
            background.RESTER.cancel(self._retry)
        try:
            self._sync(self._ticket)
        finally:
            with self._turn:
                while self._syncing:
                    self._turn.wait()
                for writer in (*self._rolled, self._writer):
                    writer.close()
                self._rolled.clear()
            try:
                at_rest = self._rest_at_the_end(until, why)
            finally:
                os.close(self._claim)
                _OPEN.discard(self)
        return at_rest

    def _rest_at_the_end(self, until: float, why: str) -> bool:
        """Bring to rest what is not, as long as there is time; nobody appends any more. Nothing is deleted for it: what
        there is at the end is what others are to read, and opening it sees to retention."""
        if self._unsynced is not None:  # nothing is known of what its files have
            return False
        waiting = [*self._sealed, *([self._writer.header.segment] if self._writer.names else [])]
        while waiting and (left := until - time.monotonic()) > 0:
            try:
                put_to_rest(self._folder, waiting[0], wait=left)
            except (HeadwaterError, OSError, pa.ArrowException) as error:
                why = str(error)
                break
            del waiting[0]
        if waiting and why and self.settings.rest_seconds:
            _log.warning(
                "%s: closed with %s not at rest as Parquet (%s); nothing is lost: opening the log again, or "
                "`headwater log rest`, brings that to rest",
                self._place, "a segment" if len(waiting) == 1 else f"{len(waiting)} segments", why,
            )  # fmt: skip
        return not waiting

    def __enter__(self) -> ChannelLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ChannelLog {self.channel!r} of node {self.node!r} in {os.fspath(self.settings.folder)!r}>"

    def _forget(self) -> None:
        """In a process forked from the one that has it: let go without a trace."""
        self._closed, self._failure = True, f"{self._place} belongs to the process that this one was forked from"
        self._lock, self._turn = threading.Lock(), threading.Condition(threading.Lock())
        for descriptor in (*(writer.descriptor for writer in (*self._rolled, self._writer)), self._claim):
            with suppress(OSError):
                os.close(descriptor)


def _numbers(values: Any) -> Any:
    """Any array of whole numbers or times as contiguous int64."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        values = values.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(values.type) else values
        values = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, np.int64)


def _close_all() -> None:
    """The program ends: what is synced is safe, and it does not wait for more."""
    for log in list(_OPEN):
        with suppress(StoreError):
            log.close(until=0.0, why="the program ended without closing its node")


def _forget_all() -> None:
    for log in list(_OPEN):
        log._forget()
    _OPEN.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)

__all__ = ["ChannelLog", "Recovered"]
