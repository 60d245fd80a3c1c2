"""Batches of rows on their way into a run: judged by columns, then fed in order, or kept until it is their turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from headwater.ir.interp import EventContext
from headwater.late import np, pa
from headwater.patterns import model
from headwater.patterns.engine.layout import ROW, ROW_EVENT, ROW_LETTER, ROW_PARTITION, ROW_TIME
from headwater.patterns.run.events import Events, fields_of, origin_of, source_id
from headwater.patterns.run.letters import JudgedBatch, Letters, context
from headwater.patterns.run.matches import Counts
from headwater.patterns.run.order import FOR_EVER, Order, Place, Waiting
from headwater.patterns.run.record_reading import Reading

FEW = 32  # rows of a batch that are quicker one by one


class Run(Protocol):
    """What rows are fed to. `all_rows`: those count that fit no element; `remembers`: runs remember values of them."""

    pattern: model.Pattern
    channels: dict[str, model.Channel]
    readings: dict[str, Reading]
    engine: Any
    events: Events
    counts: Counts
    order: Order
    all_rows: bool
    remembers: bool

    def letters_of(self, channel: str) -> Letters:
        """Who judges events of a channel; ExecutionError where it is none of the pattern's."""
        ...

    def offer(self, channel: str, record: Any, meta: EventContext) -> None:
        """One event."""

    def arrive(
        self,
        channel: str,
        data: Any,
        meta: EventContext,
        who: str,
        time: int,
        letter: int,
        words: Sequence[int],
        values: Sequence[int],
    ) -> None:
        """A row that came by itself, of the source with this id: taken now, or when it is its turn."""

    def feed(self, rows: Any, words: Any, values: Any) -> None:
        """Rows in order, with the words of their keys and the values that runs remember."""

    def decide(self, time: int) -> None:
        """Nothing earlier comes any more: what was absent is so."""

    def release(self) -> None:
        """Feed what no source can have an earlier event than."""


class Batches:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def take(self, channel: str, batch: Any, meta: Mapping[str, Any], upto: Place | None = None) -> None:
        """The rows of a RecordBatch. `meta` has source, seq and time, and perhaps node, each for all rows or by row.
        With `upto`, nothing else comes any more that is before this place: rows up to there need not wait."""
        it, order = self._run.letters_of(channel), self._run.order
        count = batch.num_rows
        if count <= FEW and self._run.readings.get(channel) is not None and self._run.readings[channel].ready():
            self._offer(channel, batch, meta)
            return
        if not count:
            return
        judged, rows, used = self._judged(it, batch, meta)
        source = meta.get("source")
        if not isinstance(source, str):
            self._of_many(channel, batch, meta, judged, rows, used)
            return
        seqs = _column(meta["seq"], count)
        times = judged.times
        latest = int(times[judged.timed].max()) if judged.timed.any() else None
        who = source_id(source, meta.get("node"))
        key = order.source(channel, who)
        promised = order.promises.get(key, -FOR_EVER)
        lateness = self._run.pattern.lateness
        so_far = np.maximum.accumulate(np.where(judged.timed, times - lateness, -FOR_EVER))
        before = np.concatenate([[promised], np.maximum(so_far[:-1], promised)])
        late = np.zeros(count, bool)
        if not order.given or it.channel.time is not None:
            late = times < before
            if latest is not None:
                order.promise(key, latest - lateness)
        self._run.counts.late += int((rows & late).sum())
        at = np.flatnonzero(used & ~late)
        if order.given:
            in_time = [not order.is_behind(time, who, self._run.counts) for time in times[at].tolist()]
            at = at[np.array(in_time, bool)]
        self._run.counts.rows += len(at)
        words = self._words(judged, at)
        kept = batch if len(at) == count else batch.take(pa.array(at))
        published = None if meta.get("time") is None else _column(meta["time"], count)[at]
        first = self._run.events.add_batch(channel, kept, source, seqs[at], times[at], meta.get("node"), published)
        values = self._values(it, kept, source, meta, seqs[at], published)
        if order.is_next(who, times[at], upto):
            self._run.feed(_rows(judged.letters[at], first, times[at]), words, values)
        else:
            parts = words.reshape(-1, self._run.engine.keys.words).tolist()
            held = [()] * len(at) if values is None else values.tolist()
            when, numbers, letters = times[at].tolist(), seqs[at].tolist(), judged.letters[at].tolist()
            for k in range(len(at)):
                place = when[k], who, numbers[k], channel
                order.wait(Waiting(*place, letters[k], first + k, parts[k], held[k]))
        self._run.release()

    def _judged(self, it: Letters, batch: Any, meta: Mapping[str, Any]) -> tuple[JudgedBatch, Any, Any]:
        """What is known of the rows by themselves; which are rows of a partition, and which of these can decide about
        matches. All are counted."""
        judged, counts = it.judge_batch(batch, meta), self._run.counts
        counts.events += batch.num_rows
        counts.timeless += batch.num_rows - int(judged.timed.sum())
        counts.keyless += int((judged.timed & judged.rows & ~judged.keyed).sum())
        rows = judged.timed & judged.keyed & judged.rows
        return judged, rows, rows if self._run.all_rows else rows & (judged.letters != 0)

    def _offer(self, channel: str, batch: Any, meta: Mapping[str, Any]) -> None:
        """Few rows, one by one: each takes as long as an event does, where all together take some tenths of a
        millisecond however few they are."""
        count = batch.num_rows
        records = self._run.channels[channel].type.arrow_to_records(batch)
        sources, nodes = _each(meta.get("source"), count), _each(meta.get("node"), count)
        seqs = _column(meta["seq"], count).tolist()
        times = [None] * count if meta.get("time") is None else _column(meta["time"], count).tolist()
        for record, source, node, seq, time in zip(records, sources, nodes, seqs, times, strict=True):
            self._run.offer(channel, record, EventContext(source, node, seq, time))

    def _values(self, it: Letters, batch: Any, source: str, meta: Mapping[str, Any], seqs: Any, published: Any) -> Any:
        """What runs remember of the rows of a batch."""
        if not self._run.remembers:
            return None
        count = batch.num_rows
        times = [None] * count if published is None else published.tolist()
        metas = {"source": [source] * count, "node": [meta.get("node")] * count, "seq": seqs.tolist(), "time": times}
        return self._run.engine.registers.rows(it.channel.type.record, it.channel.type.conform(batch), metas)

    def _of_many(self, channel: str, batch: Any, meta: Mapping[str, Any], judged: Any, rows: Any, used: Any) -> None:
        """Rows of several sources, one after the other; those that are `used` can decide about matches."""
        words, width = self._words(judged, np.flatnonzero(judged.keyed)), self._run.engine.keys.words
        place = np.cumsum(judged.keyed) - 1
        it, order = self._run.letters_of(channel), self._run.order
        for row in range(batch.num_rows):
            if not judged.timed[row]:
                continue
            about = context(meta, row)
            source, _ = origin_of(about)
            time = int(judged.times[row])
            who = source_id(source, about.node)
            late = order.is_late(channel, it.time is not None, who, time)
            if late:
                self._run.counts.late += int(rows[row])
                continue
            if not used[row]:
                continue
            if order.given and order.is_behind(time, who, self._run.counts):
                continue
            self._run.counts.rows += 1
            data = batch.slice(row, 1), 0
            part = words[place[row] * width : (place[row] + 1) * width].tolist()
            values: Sequence[int] = ()
            if self._run.remembers:
                values = self._run.engine.registers.row(it.channel.type.record, fields_of(it.channel, data), about)
            self._run.arrive(channel, data, about, who, time, int(judged.letters[row]), part, values)
        self._run.release()

    def ordered(self, parts: Iterable[tuple[str, Any, Mapping[str, Any], Any]]) -> None:
        """Rows of all sources and channels that are in order as they come, so that none has to wait: of a history that
        somebody else has sorted. A part is a channel, a batch of its rows, their meta by row (source, seq, time, node),
        and the places of the rows among those of all parts. Nothing comes later that belongs before them; `finish`
        comes after the last."""
        width = self._run.engine.keys.words
        rows, words, values, places = list[Any](), list[Any](), list[Any](), list[Any]()
        for channel, batch, meta, place in parts:
            it = self._run.letters_of(channel)
            judged, _, used = self._judged(it, batch, meta)
            count = batch.num_rows
            at = np.flatnonzero(used)
            self._run.counts.rows += len(at)
            kept = batch if len(at) == count else batch.take(pa.array(at))
            sources, nodes = (_taken(meta.get(name), at, count) for name in ("source", "node"))
            seqs, times = _column(meta["seq"], count)[at], judged.times[at]
            published = None if meta.get("time") is None else _column(meta["time"], count)[at]
            first = self._run.events.add_batch(channel, kept, sources, seqs, times, nodes, published)
            if self._run.remembers:
                columns = {"source": sources, "node": nodes, "seq": seqs, "time": published}
                metas = {name: _listed(column, len(at)) for name, column in columns.items()}
                values.append(
                    self._run.engine.registers.rows(it.channel.type.record, it.channel.type.conform(kept), metas)
                )
            rows.append(_rows(judged.letters[at], first, times))
            words.append(self._words(judged, at).reshape(-1, width))
            places.append(np.asarray(place)[at])
        if not rows:
            return
        order = np.argsort(np.concatenate(places), kind="stable")
        if len(order):
            fed = np.concatenate(rows)[order]
            remembered = np.concatenate(values)[order] if self._run.remembers else None
            self._run.feed(fed, np.concatenate(words)[order].reshape(-1), remembered)
            if self._run.pattern.absent:
                self._run.decide(int(fed[-1, 3]))

    def _words(self, judged: Any, at: Any) -> Any:
        """The words of the keys of some rows."""
        width = self._run.engine.keys.words
        if judged.keys is None:
            return np.zeros(len(at) * width, np.int64)
        words = self._run.engine.keys.of_batch(judged.keys).reshape(-1, width)
        place = np.cumsum(judged.keyed) - 1
        return words[place[at]].reshape(-1)


def _rows(letters: Any, first: int, times: Any) -> Any:
    """As an engine takes them: without a partition yet, with events whose numbers begin with `first`."""
    rows = np.empty((len(letters), ROW), np.int64)
    rows[:, ROW_PARTITION], rows[:, ROW_LETTER], rows[:, ROW_TIME] = -1, letters, times
    rows[:, ROW_EVENT] = np.arange(first, first + len(letters))
    return rows


def _each(value: Any, count: int) -> list[Any]:
    """What is known of all rows, or of each."""
    if value is None or isinstance(value, str):
        return [value] * count
    return value.to_pylist() if hasattr(value, "to_pylist") else list(value)


def _column(values: Any, count: int) -> Any:
    if isinstance(values, int):
        return np.full(count, values, np.int64)
    if hasattr(values, "to_numpy"):
        values = values.cast("int64").to_numpy(zero_copy_only=False)
    found = np.asarray(values)
    return found.astype(np.int64)


def _taken(column: Any, at: Any, count: int) -> Any:
    """Of some rows of an Arrow array; nothing where none has a value."""
    if column is None or column.null_count == count:
        return None
    return column if len(at) == count else column.take(pa.array(at))


def _listed(column: Any, count: int) -> list[Any]:
    return [None] * count if column is None else column.tolist()


__all__ = ["Batches"]
