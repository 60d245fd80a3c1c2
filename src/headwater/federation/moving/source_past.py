"""The past of a source that moves, as it goes from node to node: pages of events with their numbers and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.errors import FederationError, FrameError
from headwater.federation.wire.arrow_streams import Bounds, read_stream
from headwater.federation.wire.source_move_requests import MAX_PAGE, PAGE_BYTES
from headwater.late import pa

if TYPE_CHECKING:
    from headwater.channel.backlog.node_logs import NodeLogs
    from headwater.services.moving.source_register import Arrival
    from headwater.store.log.channel_log import ChannelLog
    from headwater.store.log.handed_past import HandedPast
    from headwater.store.log.reader import Scan

ROWS = 4096  # events that are read in one go
SEQ, TIME, RESERVED = "event_seq", "event_time", {"event_node", "event_source", "event_seq", "event_time"}  # columns


class EarlierEvents:
    """What a source had published before it came here, for lanes and latecomers: in the copy that came with it."""

    def __init__(self, past: HandedPast, channel: str, key: str, upto: int) -> None:
        self._past, self._channel, self._key, self.upto = past, channel, key, upto

    def scan(self, after: int, upto: int) -> Scan | None:
        return self._past.scan(self._channel, self._key, after, upto, ROWS)

    def first(self) -> int | None:
        scan = self.scan(0, self.upto)
        if scan is None or next(scan, None) is None:
            return None
        try:
            return scan.first
        finally:
            scan.close()


def page_of(
    logs: NodeLogs, past: HandedPast, channel: str, source: str, arrival: Arrival | None, after: int, upto: int
) -> tuple[bytes, int]:
    """The next events of a source of this node after an event, and up to which one there are no others. What it had
    published at other nodes is in a copy, what it has here in the log."""
    earlier = 0 if arrival is None else arrival.cut.upto
    if arrival is not None and after < min(earlier, upto):
        end = min(earlier, upto)
        found = past.scan(channel, arrival.cut.home, after, end, ROWS)
    else:
        end = upto
        open = logs.known(channel)
        recent = None if open is None else open.recent(source, after, upto)
        if recent is not None:
            return _packed(recent.batch(ROWS), end)
        reader = logs.reader(channel) if open is None else open.reader()
        if reader is None:
            return b"", end
        found = reader.read(node=logs.node, source=source, after=after, upto=upto, rows=ROWS)
    if found is None or after >= end:
        return b"", end
    try:
        batch = next(found, None)
    finally:
        found.close()
    return _packed(batch, end)


def _packed(batch: Any, end: int) -> tuple[bytes, int]:
    """As many of these events as are a page, and the last of them."""
    if batch is None or not batch.num_rows:
        return b"", end
    while batch.num_rows > 1 and batch.nbytes > PAGE_BYTES:
        batch = batch.slice(0, max(1, batch.num_rows * PAGE_BYTES // (2 * batch.nbytes)))
    made = pa.BufferOutputStream()
    with pa.ipc.new_stream(made, batch.schema) as stream:
        stream.write_batch(batch)
    return made.getvalue().to_pybytes(), int(batch.column(SEQ)[-1].as_py())


def append_page(log: ChannelLog, key: str, rows: bytes, after: int, upto: int) -> None:
    """Write a page that another node has sent. FederationError if it is none, or has other events than it says."""
    expected = {SEQ: pa.int64(), TIME: pa.timestamp("us", tz="UTC")}
    for batch in _batches(rows):
        found = dict(zip(batch.schema.names, batch.schema.types, strict=True))
        if any(found.get(name) != type for name, type in expected.items()):
            raise FederationError(f"resume_source: expected events with {SEQ} and {TIME}, found {batch.schema.names}")
        if batch.column(SEQ).null_count or batch.column(TIME).null_count:
            raise FederationError("resume_source: expected a number and a time for each event, found some without")
        seqs = batch.column(SEQ).to_pylist()
        if not seqs:
            continue
        last = log.last(key)
        if seqs[0] <= after or seqs[-1] > upto or seqs != sorted(set(seqs)):
            raise FederationError(
                f"resume_source: expected events {after + 1:,} to {upto:,}, found {seqs[0]:,} to {seqs[-1]:,}"
            )
        start = next((at for at, seq in enumerate(seqs) if seq > last), len(seqs))
        if start == len(seqs):
            continue  # it is here already
        rest = batch.slice(start)
        fields = [name for name in rest.schema.names if name not in RESERVED]
        log.append_rows(key, rest.column(SEQ), rest.column(TIME), rest.select(fields))


def _batches(rows: bytes) -> list[Any]:
    if not rows:
        return []
    try:
        return read_stream(rows, Bounds(MAX_PAGE, ROWS))
    except FrameError as error:
        raise FederationError(f"resume_source: expected events as Arrow, found: {error}") from None


__all__ = ["EarlierEvents", "append_page", "page_of"]
