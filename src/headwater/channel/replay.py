"""Replaying a log: its events once more into live channels, as fast as they were published, faster, or at once.

with Node() as node:
    node.channel("ie.tcd.sighting", Sighting).subscribe(print)
    replay("events", node, speed=60)             # an hour in a minute
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.channel.channel import Channel
from headwater.channel.names import check_name
from headwater.channel.node import Node
from headwater.channel.source import Source
from headwater.channel.time.clock import to_nanosecond
from headwater.errors import ClosedError, EncodeError, EvolutionError, StoreError
from headwater.late import np
from headwater.signals import End
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.ordered_merge import ranks, times
from headwater.store.log.reader import ChannelReader, Span
from headwater.store.log.schema import NODE, SEQ, SOURCE, TIME, Table
from headwater.types import EventType, event_type
from headwater.types.model import Field, Record

MANY = 8  # events of one source in a row from which they are published as a batch
ROWS = 8192  # events that are looked at together
RECHECK_SECONDS = 0.2  # seconds after which it is looked whether the end has come
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Time = int | datetime  # microseconds since 1970, or a time with its zone


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What was replayed: how many events of how many sources in which channels, what time it took by the node's clock,
    and how late the latest event was, in seconds. `stopped`: it was told to end before the last."""

    events: int
    sources: int
    channels: tuple[str, ...]
    seconds: float
    late: float
    first: int | None  # the times of the first and the last event replayed, in microseconds
    last: int | None
    stopped: bool = False


def replay(
    log: LogFiles | str | os.PathLike[str],
    node: Node,
    *,
    channel: str | Collection[str] | None = None,
    to: str | Mapping[str, str] | None = None,
    speed: float | None = None,
    since: Time | None = None,
    until: Time | None = None,
    sources: Collection[str] | None = None,
    source: Callable[[Channel, str, str], Source] | None = None,
    progress: Callable[[int], object] | None = None,
    ready: Callable[[], object] | None = None,
    stop: threading.Event | End | None = None,
) -> ReplayReport:
    """Publish the events of a log into channels of a node, in the order of time over all nodes and sources of the log.

    channel        which of the log's channels, one or several; default: all
    to             the name of the live channel, or of each; default: the same name
    speed          1: as it was recorded, 10: ten times faster; None or 0: as fast as possible
    since, until   since <= event_time < until
    sources        only sources of these names
    source         gives the live source, from the live channel and the names of the recorded node and source; such
                   sources are not closed at the end. Default: one of the recorded name, closed at the end
    progress       told how many events were published, over and over
    ready          called when all sources are advertised, before the first event
    stop           when it is set, replaying ends after the event under way

    Each recorded source is a source of that name, with the node's name before it where two nodes have the same one.
    Waiting is by the node's clock. Returns when everything is published.
    """
    files = log if isinstance(log, LogFiles) else LogFiles(log)
    pace = _pace(speed)
    if isinstance(sources, str):
        sources = [sources]
    begin, end = _micros("since", since), _micros("until", until)
    chosen = _channels(files, channel)
    target = _targets(chosen, to)
    _check_apart(files, node, target)
    streams = []
    opened: list[Source] = []
    try:
        for name in chosen:
            reader = files.reader(name)
            spans = [span for span in reader.sources() if sources is None or span.source in sources]
            live = _live(node, target[name], reader.table, name)
            if source is not None:
                made = {(span.node, span.source): source(live, span.node, span.source) for span in spans}
            else:
                made = {(span.node, span.source): live.source(text) for span, text in _names(spans)}
                opened += made.values()
            wanted = None if sources is None else list(sources)
            batches = reader.merged(since=begin, until=end, sources=wanted, rows=ROWS)
            streams.append(_Stream(reader, live, made, batches, source))
        if ready is not None:
            ready()
        run = _Run(node, pace, progress or (lambda count: None), stop)
        run.play(streams)
    finally:
        for each in opened:
            each.close()
    return ReplayReport(
        run.events,
        sum(len(stream.heard) for stream in streams),
        tuple(target[name] for name in chosen),
        node.clock.now() - run.start,
        run.late,
        run.first,
        run.last,
        run.stopped,
    )


class _Stream:
    """The events of one channel, a batch at a time."""

    def __init__(
        self,
        reader: ChannelReader,
        live: Channel,
        sources: dict[tuple[str, str], Source],
        batches: Iterator[Any],
        make: Callable[[Channel, str, str], Source] | None,
    ) -> None:
        self.place, self._make = f"log of {reader.channel}", make
        self.live, self.sources, self.batches = live, sources, batches
        self.heard: set[tuple[str, str]] = set()
        self.at = 0
        self.times: Any = np.zeros(0, np.int64)

    @property
    def next(self) -> int | None:
        """The time of its next event; None at the end."""
        while self.at >= len(self.times):
            batch = next(self.batches, None)
            if batch is None:
                return None
            self.batch, self.at, self.times = batch, 0, times(batch)
            nodes, sources = batch.column(NODE), batch.column(SOURCE)
            self._codes = ranks(nodes).astype(np.int64) << 32 | ranks(sources)
            self._events: list[Any] | None = None
        return int(self.times[self.at])

    def publish(self, upto: int) -> None:
        """All events before this row."""
        codes = self._codes[self.at : upto]
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for begin, end in pairwise(starts):
            row = self.at + begin
            key = (self.batch.column(NODE)[row].as_py(), self.batch.column(SOURCE)[row].as_py())
            source = self.sources.get(key)
            if source is None:  # it began after the sources were looked at
                if self._make is not None:
                    source = self._make(self.live, *key)
                else:
                    taken = self.live.sources
                    source = self.live.source(_free(*key, taken) if key[1] in taken else key[1])
                self.sources[key] = source
            self.heard.add(key)
            try:
                self._publish(source, row, end - begin)
            except (EncodeError, EvolutionError) as error:
                seq, when = self.batch.column(SEQ)[row].as_py(), self.batch.column(TIME)[row].as_py()
                raise StoreError(
                    f"{self.place}: event {seq:,} of source {key[1]!r} of node {key[0]!r} ({when}), or one soon after "
                    f"it, does not fit channel {self.live.name!r}: {error}; replay to another channel"
                ) from error
        self.at = upto

    def _publish(self, source: Source, row: int, count: int) -> None:
        type = self.live.type
        if type is None:
            for at in range(row, row + count):
                source.publish(self.batch.column("data")[at].as_py())
        elif count >= MANY:
            source.publish_many(self.batch.slice(row, count))
        else:
            if self._events is None:
                self._events = type.from_arrow(self.batch)
            for event in self._events[row : row + count]:
                source.publish(event)


class _Run:
    """The replaying itself."""

    def __init__(
        self, node: Node, pace: float | None, tell: Callable[[int], object], stop: threading.Event | End | None
    ) -> None:
        self.node, self.pace, self.tell, self.stop = node, pace, tell, stop
        self.start = node.clock.now()
        self.events = 0
        self.late = 0.0
        self.first: int | None = None
        self.last: int | None = None
        self.stopped = False

    def play(self, streams: list[_Stream]) -> None:
        """Publish the events of all channels in the order of their times, at the pace that is asked for: as many at
        once as come before the next event of another channel."""
        while not self._ended():
            heads = [(when, order) for order, stream in enumerate(streams) if (when := stream.next) is not None]
            if not heads:
                return
            when, order = min(heads)
            stream = streams[order]
            if self.first is None:
                self.first = when
            if not self._wait(when):
                continue
            # Whatever comes before the next event of another channel, and is due.
            upto = len(stream.times)
            for other, place in heads:
                if place != order:
                    upto = min(upto, int(np.searchsorted(stream.times, other, "right" if order < place else "left")))
            if self.pace is not None:
                passed = self.first + (self.node.clock.now() - self.start) * self.pace * 1e6
                due = int(np.searchsorted(stream.times, max(passed, when), "right"))
                upto = min(upto, due)
            upto = max(upto, stream.at + 1)
            count = upto - stream.at
            self.last = int(stream.times[upto - 1])
            stream.publish(upto)
            self.events += count
            self.tell(count)

    def _wait(self, when: int) -> bool:
        """Until an event of this time is due; False if it is not, as the end has come."""
        if self.pace is None:
            return True
        assert self.first is not None
        clock = self.node.clock
        due = to_nanosecond(self.start + (when - self.first) / 1e6 / self.pace)
        if clock.now() >= due:
            self.late = max(self.late, clock.now() - due)
            return True
        reached = threading.Event()
        timer = self.node._timers.call_at(due, reached.set)
        try:
            while not reached.wait(RECHECK_SECONDS):
                if self._ended():
                    return False
        finally:
            timer.cancel()
        return True

    def _ended(self) -> bool:
        if self.node.closed:
            raise ClosedError(f"replay: node {self.node.name!r} was closed after {self.events:,} events")
        self.stopped = self.stop is not None and self.stop.is_set()
        return self.stopped


# ── what is asked for ──


def _pace(speed: float | None) -> float | None:
    if speed is None or (isinstance(speed, int | float) and not isinstance(speed, bool) and speed == 0):
        return None
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not (math.isfinite(speed) and speed > 0):
        raise StoreError(f"replay: speed: expected a number above 0, or None for as fast as possible, found {speed!r}")
    return float(speed)


def _micros(what: str, when: Time | None) -> int | None:
    if when is None or (isinstance(when, int) and not isinstance(when, bool)):
        return when
    if isinstance(when, datetime) and when.tzinfo is not None:
        return (when - _EPOCH) // timedelta(microseconds=1)
    raise StoreError(f"replay: {what}: expected microseconds since 1970, or a time with its zone, found {when!r}")


def _channels(files: LogFiles, channel: str | Collection[str] | None) -> list[str]:
    there = files.channels()
    chosen = there if channel is None else [channel] if isinstance(channel, str) else list(channel)
    unknown = [name for name in chosen if name not in there]
    if unknown or not chosen:
        raise StoreError(
            f"replay: expected channels that the log {os.fspath(files.root)!r} has, found "
            f"{', '.join(map(repr, unknown)) or 'none'}; it has {', '.join(there) or 'none'}"
        )
    return chosen


def _targets(chosen: list[str], to: str | Mapping[str, str] | None) -> dict[str, str]:
    if isinstance(to, str):
        if len(chosen) > 1:
            raise StoreError(
                f"replay: to: expected a name for each of {', '.join(chosen)}, found one name, {to!r}; give a dict, or "
                "replay one channel"
            )
        to = {chosen[0]: to}
    given = dict(to or {})
    if unknown := [name for name in given if name not in chosen]:
        raise StoreError(f"replay: to: expected names of channels that are replayed, found {unknown[0]!r}")
    return {name: check_name(given.get(name, name)) for name in chosen}


def _check_apart(files: LogFiles, node: Node, target: dict[str, str]) -> None:
    """A log is not replayed into itself."""
    if node._logs is None or Path(node._logs.settings.folder).resolve() != Path(files.root).resolve():
        return
    if again := [live for name, live in target.items() if live in target and node._logs.wants(live)]:
        raise StoreError(
            f"replay: node {node.name!r} logs channel {again[0]!r} in the very log that is replayed: every event would "
            "be there twice; replay into a node with another log or none, or into channels of other names"
        )


def _names(spans: list[Span]) -> list[tuple[Span, str]]:
    """What each source is called: by its own name, where no other node has one of that name."""
    count = Counter(span.source for span in spans)
    taken = {name for name, times in count.items() if times == 1}
    made = []
    for span in spans:
        name = span.source if count[span.source] == 1 else _free(span.node, span.source, taken)
        taken.add(name)
        made.append((span, name))
    return made


def _free(node: str, source: str, taken: Container[str]) -> str:
    """A name for a source of a node that no other has."""
    made = f"{node}.{source}"
    while made in taken:
        made = f"{node}.{made}"
    return made


def _live(node: Node, name: str, table: Table, recorded: str) -> Channel:
    """The channel to publish in: as it is, or made with the type that all events of the log have."""
    if found := [each for each in node.channels() if each.name == name]:
        live = found[0]
        if (live.type is None) != (table.type is None):
            have, want = ("bytes", "events") if live.type is None else ("events", "bytes")
            raise StoreError(
                f"replay: channel {name!r} carries {have}, and the log of {recorded!r} has {want}; name another channel"
            )
        return live
    return node.channel(name, common_type(table) or bytes)


def common_type(table: Table) -> EventType | None:
    """What all events of a log have: the newest type, unless older events may lack what it requires: then with all its
    fields optional. None for bytes."""
    newest = table.type
    if newest is None:
        return None
    record = newest.record
    loose = tuple(Field(field.name, field.type, True) for field in record.fields)
    if loose == table.fields.record.fields:
        return newest
    return event_type(Record(record.name, tuple(table.fields.record.by_name[field.name] for field in record.fields)))


__all__ = ["ReplayReport", "common_type", "replay"]
