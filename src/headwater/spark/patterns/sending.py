"""From the rows of a streaming batch to what each group of partitions is sent: its rows, and what sources promised.

A group is the partitions whose keys fall together. It is sent its own rows only, and so could not know that a source
of which it has none has gone on: so that every task tells every group how far the sources of its rows have come. What a
group is sent is bytes: rows in Arrow's form, with all types as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.late import np, pa, pc
from headwater.spark.patterns import runs

TIME, GROUP, KEPT, PROMISES = "_t", "_g", "_kept", "_promises"  # columns of the rows that come, beside those of runs
BEFORE = "_l"  # of a row that is sent: the latest time of its source among the rows of this batch before it
SENT = "_b"  # the column of what is sent
NEVER = -(1 << 63)

Promise = tuple[int, str | None, str]  # by whom: the channel's number, the node, the source


class Sent(msgspec.Struct, array_like=True, frozen=True):
    """`promises` are the times before which a source has nothing more; None: it is there, and has promised nothing.
    `latest` are the latest times of sources by channel and id; `rows` are batches of rows."""

    promises: list[tuple[int, str | None, str, int | None]]
    latest: list[tuple[str, int]]
    rows: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(Sent)


def packed(sent: Sent) -> bytes:
    """As it travels."""
    return _ENCODER.encode(sent)


def read(sent: bytes) -> Sent:
    """What has travelled; it was packed by a task of the same query."""
    return _DECODER.decode(sent)


def packages(batches: Iterable[Any], groups: int, lateness: int, *, own_time: bool) -> Iterator[Any]:
    """What is sent of the rows of one task, as batches of GROUP and SENT. With a time of one's own, they are all rows
    of their sources in this batch, and are put in the order of their numbers: lateness goes by it."""
    told = _Told(lateness)
    if own_time:
        rows = [batch for batch in batches if batch.num_rows]
        batches = _by_number(pa.Table.from_batches(rows)) if rows else ()
    for batch in batches:
        promising = pc.fill_null(batch.column(PROMISES), False)
        promises = batch.filter(promising)
        if promises.num_rows:
            told.promised(promises, expected_only=own_time)
            batch = batch.filter(pc.invert(promising))
        before = told.latest_before(batch) if own_time else np.full(batch.num_rows, NEVER, np.int64)
        told.seen(batch)
        yield from _rows(batch, before)
    yield from told.packages(groups)


def _by_number(table: Any) -> Iterator[Any]:
    order = [(runs.SEQ, "ascending"), (runs.RANK, "ascending")]
    return iter(table.sort_by(order).combine_chunks().to_batches())


def _rows(batch: Any, before: Any) -> Iterator[Any]:
    """The rows that are of use, those of each group together."""
    kept = batch.append_column(BEFORE, pa.array(before, pa.int64())).filter(pc.fill_null(batch.column(KEPT), False))
    if not kept.num_rows:
        return
    groups = kept.column(GROUP).to_numpy(zero_copy_only=False)
    kept = kept.drop_columns([GROUP, KEPT, PROMISES])
    found = np.unique(groups)
    sent = []
    for group in found.tolist():
        some = kept if len(found) == 1 else kept.filter(pa.array(groups == group))
        sent.append(packed(Sent([], [], stored([some]))))
    yield _batch(found.tolist(), sent)


def _batch(groups: list[int], sent: list[bytes]) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(groups, pa.int32()), pa.array(sent, pa.binary())], [GROUP, SENT])


def ids(rows: Any) -> Any:
    """The ids of the rows' sources, as `patterns.events.source_id` has them."""
    return pc.binary_join_element_wise(rows.column(runs.SOURCE), rows.column(runs.NODE), "\0", null_handling="skip")


def senders(rows: Any) -> Any:
    """Whose numbers the rows have: a source counts, and is late, in each channel by itself."""
    return pc.binary_join_element_wise(rows.column(runs.CHANNEL).cast(pa.string()), ids(rows), "/")


def stored(batches: list[Any]) -> bytes:
    """Batches as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def loaded(data: bytes) -> list[Any]:
    """What was stored."""
    with pa.ipc.open_stream(data) as reader:
        return list(reader)


class _Told:
    """What the rows of a task say of their sources."""

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self.promises: dict[Promise, int | None] = {}
        self.latest: dict[str, int] = {}

    def promised(self, rows: Any, *, expected_only: bool) -> None:
        """Rows that are promises and no events. They are about the time of publication."""
        columns = (rows.column(name).to_pylist() for name in (runs.CHANNEL, runs.NODE, runs.SOURCE, TIME))
        for channel, node, source, time in zip(*columns, strict=True):
            self._promise((channel, node, source), None if expected_only else time)

    def _promise(self, who: Promise, time: int | None) -> None:
        known = self.promises.setdefault(who, time)
        if time is not None and (known is None or known < time):
            self.promises[who] = time

    def latest_before(self, rows: Any) -> Any:
        """Of rows in the order of their sources' numbers, the latest time of the source before each."""
        times = rows.column(TIME).to_numpy(zero_copy_only=False)
        before = np.full(len(times), NEVER, np.int64)
        sources = senders(rows).dictionary_encode()
        codes = sources.indices.to_numpy(zero_copy_only=False)
        for code, source in enumerate(sources.dictionary.to_pylist()):
            at = np.flatnonzero(codes == code)
            so_far = np.maximum.accumulate(np.concatenate([[self.latest.get(source, NEVER)], times[at]]))
            before[at] = so_far[:-1]
            self.latest[source] = int(so_far[-1])
        return before

    def seen(self, rows: Any) -> None:
        """Each source's rows promise for it."""
        who = pa.table([rows.column(name) for name in (runs.CHANNEL, runs.NODE, runs.SOURCE, TIME)], list("cdst"))
        for each in who.group_by(["c", "d", "s"]).aggregate([("t", "max")]).to_pylist():
            self._promise((each["c"], each["d"], each["s"]), max(NEVER, each["t_max"] - self.lateness))

    def packages(self, groups: int) -> Iterator[Any]:
        """To every group."""
        if self.promises:
            promises = [(*who, time) for who, time in self.promises.items()]
            sent = packed(Sent(promises, list(self.latest.items()), b""))
            yield _batch(list(range(groups)), [sent] * groups)
