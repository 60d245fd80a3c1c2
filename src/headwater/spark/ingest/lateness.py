"""What is out of order or late among events, by source, in the order of input; and how far each source is.

The events were just written: three of their columns are read again, a few rows at a time, without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.late import np, pa, pq
from headwater.store.log.footers import footer
from headwater.store.log.ordered_merge import Piece, by_sequence
from headwater.store.log.schema import SEQ, SOURCE, TIME

_COLUMNS = (SOURCE, SEQ, TIME)
_NEVER = -(1 << 63)


@dataclass(slots=True)
class Order:
    """`backwards`: events whose time is before that of the one before them, of the same source. `late`: by more than
    each bound behind the latest before them. `last`: of each source its last sequence number and time."""

    events: int = 0
    backwards: int = 0
    late: list[int] = field(default_factory=list)
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    first_time: int | None = None
    last_time: int | None = None


def order_of(files: list[Path], bounds: tuple[float, ...]) -> Order:
    """Of all events in these files."""
    found = Order(late=[0] * len(bounds))
    numbers: dict[str, int] = {}
    latest, before, seqs, times = (np.zeros(0, np.int64) for _ in range(4))
    limits = [int(bound * 1e6) for bound in bounds]
    for batch in by_sequence(list(_pieces(files)), rows=1 << 19):
        when = batch.column(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False)
        seq = batch.column(SEQ).to_numpy(zero_copy_only=False)
        texts = batch.column(SOURCE)
        texts = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        codes = np.array([numbers.setdefault(t, len(numbers)) for t in texts.dictionary.to_pylist()], np.int64)
        source = codes[texts.indices.to_numpy(zero_copy_only=False)]
        if len(numbers) > len(latest):
            more = len(numbers) - len(latest)
            latest, before = (np.append(each, np.full(more, _NEVER)) for each in (latest, before))
            seqs, times = (np.append(each, np.zeros(more, np.int64)) for each in (seqs, times))
        order = np.argsort(source, kind="stable")
        s, w, q = source[order], when[order], seq[order]
        starts = np.flatnonzero(np.diff(s, prepend=-1))
        previous = np.empty_like(w)
        previous[1:] = w[:-1]
        previous[starts] = before[s[starts]]
        found.backwards += int(np.count_nonzero(w < previous))
        ends = np.append(starts[1:], len(w))
        if limits:
            for a, b in zip(starts, ends, strict=True):
                top = np.maximum.accumulate(np.append(latest[s[a]], w[a:b]))
                behind = top[1:] - w[a:b]
                for i, limit in enumerate(limits):
                    found.late[i] += int(np.count_nonzero(behind > limit))
                latest[s[a]] = top[-1]
        at = ends - 1
        before[s[at]], seqs[s[at]] = w[at], q[at]
        times[s[at]] = w[at]
        low, high = int(when.min()), int(when.max())
        found.first_time = low if found.first_time is None else min(found.first_time, low)
        found.last_time = high if found.last_time is None else max(found.last_time, high)
        found.events += len(when)
    found.last = {name: (int(seqs[i]), int(times[i])) for name, i in numbers.items()}
    return found


def _pieces(files: list[Path]) -> Iterator[Piece]:
    for path in files:
        for number, group in enumerate(footer(path).groups):
            if group.rows:
                yield Piece(group.seqs[0], _loader(path, number))


def _loader(path: Path, group: int) -> Any:
    def load() -> pa.RecordBatch:
        with pq.ParquetFile(path, read_dictionary=[SOURCE], page_checksum_verification=True) as file:
            table = file.read_row_group(group, columns=list(_COLUMNS), use_threads=False).select(list(_COLUMNS))
        columns = [_one(column) for column in table.columns]
        columns[0] = columns[0].cast(pa.utf8()) if not pa.types.is_dictionary(columns[0].type) else columns[0]
        return pa.RecordBatch.from_arrays([columns[0].cast(pa.utf8()), columns[1], columns[2]], names=list(_COLUMNS))

    return load


def _one(column: Any) -> Any:
    made = column.combine_chunks()
    return made.chunk(0) if isinstance(made, pa.ChunkedArray) else made
