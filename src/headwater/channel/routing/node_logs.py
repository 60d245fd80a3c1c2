"""The logs of a node: one for each of its channels that is logged, opened with the first source there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.channel.names import Pattern
from headwater.channel.services import Service
from headwater.errors import ClosedError, EncodeError, StoreError
from headwater.extras import require
from headwater.late import np, pc
from headwater.store.log.settings import Log

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.store.log.channel_log import ChannelLog
    from headwater.types import EventType

log = logging.getLogger("headwater")
OWN = "headwater."  # channels on which a node speaks of itself
NAMED = 5  # channels that a warning names
ROWS = 16_384  # events that are read in one go


class NodeLogs(Service):
    """Of one node, as one of its services; `settings` say where they are, and which channels are logged."""

    name = "logs"

    def __init__(self, settings: Log, node: str) -> None:
        require("arrow", "a node with a log")
        self.settings, self.node = settings, node
        patterns = (settings.channels,) if isinstance(settings.channels, str) else settings.channels
        self._patterns = [Pattern(each) for each in patterns]
        self._open: dict[str, ChannelLog] = {}
        self._ending: dict[str, ChannelLog] = {}  # of channels that are closed, and that are not let go of yet
        self._lock = threading.Condition()
        self._closed = False

    def wants(self, channel: str) -> bool:
        """Whether a channel of that name is logged."""
        return not channel.startswith(OWN) and any(each.matches(channel) for each in self._patterns)

    def of(self, channel: RoutedChannel) -> ChannelLog | None:
        """The log of a channel, if it has one; StoreError if it cannot be opened."""
        if not self.wants(channel.name):
            return None
        self.wait_for_end(channel.name)
        with self._lock:
            if self._closed:
                raise ClosedError(f"log of {channel.name}: node {self.node!r} is closed; open another")
            from headwater.store.log.channel_log import ChannelLog  # late: a node without a log needs none of it

            found = self._open.get(channel.name)
            if found is None or found.type != channel.type:
                if found is not None:  # the channel was closed, and another has its name
                    found.close(until=0.0, why="")  # opening it again brings to rest what it has, in the background
                    del self._open[channel.name]
                found = ChannelLog.open(self.settings, channel.name, self.node, channel.type)
                self._open[channel.name] = found
                if found.recovered is not None:
                    log.warning("node %s: the log of %s was recovered: %s", self.node, channel.name, found.recovered)
            return found

    def known(self, channel: str) -> ChannelLog | None:
        """The log of a channel of that name, if it is open."""
        with self._lock:
            return self._open.get(channel)

    def release(self, channel: str) -> ChannelLog | None:
        """The log of a channel that is closed, if it has one: its files are not kept open for good. It is to be ended
        then, by who holds no locks."""
        with self._lock:
            found = self._open.pop(channel, None)
            if found is not None:
                self._ending[channel] = found
            return found

    def wait_for_end(self, channel: str) -> None:
        """Return when no log of a channel of that name is about to end."""
        with self._lock:
            while channel in self._ending:
                self._lock.wait()

    def end(self, released: ChannelLog) -> None:
        """Bring it to rest and let go of it."""
        try:
            released.close()
        except StoreError as error:
            log.error("node %s: %s", self.node, error)
        finally:
            with self._lock:
                del self._ending[released.channel]
                self._lock.notify_all()

    def stop(self) -> None:
        """Let go of them all, at rest as far as there is time for that (`Log.rest_seconds`, for all together); what was
        written can still be read. `StoreError`, in the end, if one could not be synced."""
        with self._lock:
            self._closed = True
            found = list(self._open.values())
        problem: StoreError | None = None
        until = monotonic() + self.settings.rest_seconds
        left: list[str] = []  # for which there was no time at all
        for each in found:
            try:
                if monotonic() < until:
                    each.close(until=until)
                elif not each.close(until=until, why=""):
                    left.append(each.channel)
            except StoreError as error:
                problem = problem or error
        if left and self.settings.rest_seconds:
            log.warning(
                "node %s: closed with the logs of %d channels not at rest as Parquet (%s%s): rest_seconds are over; "
                "nothing is lost: opening them again, or `headwater log rest`, brings them to rest",
                self.node, len(left), ", ".join(left[:NAMED]), ", …" if len(left) > NAMED else "",
            )  # fmt: skip
        with self._lock:
            while self._ending:
                self._lock.wait()
        if problem is not None:
            raise problem

    def report(self) -> Mapping[str, Any]:
        with self._lock:
            return {"folder": str(self.settings.folder), "open": sorted(self._open)}


class Logged(NamedTuple):
    """Events of one source from its log, in their order: numbers, times (nanoseconds), and rows of the channel's type,
    or, where that carries bytes, records."""

    seqs: Any
    stamps: Any
    batch: Any
    data: list[bytes] | None

    def __len__(self) -> int:
        return len(self.seqs)

    def records(self, type: Any) -> list[bytes]:
        found: list[bytes] = self.data if self.data is not None else type.arrow_to_records(self.batch)
        return found


def read(found: ChannelLog, channel: RoutedChannel, source: str, after: int, upto: int) -> Iterator[Logged]:
    """Events of a source, after < number <= upto. Those that are none of the channel's present type, because they lack
    a field that it must have or have a value that it cannot, are left out."""
    if after >= upto:
        return
    from headwater.store.log.schema import SEQ, TIME

    found.check()
    reader, type = found.reader(), channel.type
    for batch in reader.read(node=found.node, source=source, after=after, upto=upto, rows=ROWS):
        seqs = batch.column(SEQ).to_numpy(zero_copy_only=False)
        stamps = batch.column(TIME).cast("int64").to_numpy(zero_copy_only=False) * 1000
        if type is None:
            yield Logged(seqs, stamps, None, batch.column("data").to_pylist())
            continue
        try:
            rows = type.conform(batch)
        except EncodeError:
            kept = _fitting(type, batch)
            if not len(kept):
                continue
            rows, seqs, stamps = type.conform(batch.take(kept)), seqs[kept], stamps[kept]
        yield Logged(seqs, stamps, rows, None)


def _fitting(type: EventType, batch: Any) -> Any:
    """The rows that are events of a type, where some are not."""
    whole = np.ones(batch.num_rows, bool)
    for field in type.record.fields:
        if not field.optional and field.name in batch.schema.names:
            whole &= pc.is_valid(batch.column(field.name)).to_numpy(zero_copy_only=False)
        elif not field.optional:
            whole[:] = False
    fitting, left = [], [np.flatnonzero(whole)]  # what else there is shows when it is tried, a half at a time
    while left:
        rows = left.pop()
        try:
            if len(rows):
                type.conform(batch.take(rows))
            fitting.append(rows)
        except EncodeError:
            half = len(rows) // 2
            if half:
                left += [rows[half:], rows[:half]]
    return np.concatenate(fitting) if fitting else np.zeros(0, np.int64)


__all__ = ["Log", "Logged", "NodeLogs", "read"]
