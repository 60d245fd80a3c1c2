"""Reading ranges of a log straight from its folder: the same calls that ask other nodes for their logs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from headwater.errors import StoreError
from headwater.interest import Interest
from headwater.late import pa
from headwater.store.log.interest_scan import Judge
from headwater.store.log.location import local_folder
from headwater.store.log.log_reader import Several, spans_of
from headwater.store.log.reader import ROWS, ChannelReader, Scan, Span, channels
from headwater.types import EventType


class LogFiles:
    """The logs in a folder, of all nodes or only these. An interest runs here, natively.

    >>> log = LogFiles("events")                                              # doctest: +SKIP
    >>> for batch in log.read("ie.tcd.sighting"): ...                         # doctest: +SKIP
    >>> for span in log.sources("ie.tcd.sighting"):                           # doctest: +SKIP
    ...     for batch in log.read("ie.tcd.sighting", span.node, span.source, 0, span.last): ...
    """

    def __init__(self, root: str | os.PathLike[str], *, nodes: Collection[str] | None = None) -> None:
        self.root, self.nodes = local_folder(root), nodes
        if not self.root.is_dir():
            raise StoreError(f"log {os.fspath(root)!r}: expected a folder with a log, found none; name another")
        self._readers: dict[str, ChannelReader] = {}

    def reader(self, channel: str) -> ChannelReader:
        """What reads a channel; StoreError if there is no log of it."""
        found = self._readers.get(channel)
        if found is None:
            found = self._readers[channel] = ChannelReader(self.root, channel, nodes=self.nodes)
        return found

    def channels(self) -> list[str]:
        """Those with a log."""
        return channels(self.root)

    def type(self, channel: str) -> EventType | None:
        """A channel's newest event type; None for bytes."""
        return self.reader(channel).type

    def schema(self, channel: str) -> pa.Schema:
        """What `read` gives without an interest: the log's columns, then all fields the channel has had."""
        return self.reader(channel).schema

    def sources(self, channel: str) -> list[Span]:
        """What there is of each source of a channel."""
        return self.reader(channel).sources()

    def read(
        self,
        channel: str,
        node: str | None = None,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
        *,
        interest: Interest | None = None,
        columns: Collection[str] | None = None,
        rows: int = ROWS,
    ) -> Scan | Passing | Several:
        """A source's events with after < event_seq <= upto, in order: the log's columns and its fields, or the output
        fields of an interest that is a transformation. An interest with state is judged from the beginning only.

        Without a source, or a node, those of all of them, one source after another. `removed` of what this returns says
        which numbers were not there any more when it began."""
        reader = self.reader(channel)
        if node is None or source is None:
            read = partial(self.read, channel, after=after, upto=upto, interest=interest, columns=columns, rows=rows)
            spans = spans_of(self, channel, node, source)
            return Several([partial(read, node=each.node, source=each.source) for each in spans])
        if interest is None:
            return reader.read(node=node, source=source, after=after, upto=upto, columns=columns, rows=rows)
        judge = judged(reader, interest, columns, after=after)
        batches = reader.read(node=node, source=source, after=after, upto=upto, columns=judge.needs, rows=rows)
        return Passing(judge, batches)

    def merged(
        self,
        channel: str,
        *,
        since: int | None = None,
        until: int | None = None,
        columns: Collection[str] | None = None,
        rows: int = ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """All events of a channel in the order of time: since <= event_time < until, in microseconds."""
        return self.reader(channel).merged(since=since, until=until, columns=columns, rows=rows)


def judged(
    reader: ChannelReader, interest: Interest, columns: Collection[str] | None = None, *, after: int = 0
) -> Judge:
    """What runs an interest over a channel's log; StoreError where it cannot."""
    table = reader.table
    if table.type is None:
        raise StoreError(
            f"channel {reader.channel!r} has no type and carries bytes: no interest can be run over its log; "
            "read it without one"
        )
    judge = Judge(interest, table.schema, columns=None if columns is None else list(columns))
    if judge.stateful and after > 0:
        raise StoreError(
            f"interest: expected one without state to read on after event {after:,}, found one that remembers what it "
            "has seen; read from the beginning (after=0), or use an interest without state"
        )
    return judge


class Passing(Iterator[Any]):  # of RecordBatches
    """What passes an interest of a scan."""

    def __init__(self, judge: Judge, scan: Scan) -> None:
        self._judge, self._scan = judge, scan

    def __iter__(self) -> Passing:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            found = self._judge(next(self._scan))
            if found.num_rows:
                return found

    @property
    def removed(self) -> list[tuple[int, int]]:
        """As of the scan."""
        return self._scan.removed

    def close(self) -> None:
        self._scan.close()


__all__ = ["LogFiles", "Passing", "judged"]
