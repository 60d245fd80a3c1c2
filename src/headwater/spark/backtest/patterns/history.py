"""The events of several channels of a log in one order, in pieces: what a runner takes without waiting for anything.

By time, then source, then number, then channel. A piece ends between two times, never among events of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.late import np, pa
from headwater.patterns import model
from headwater.patterns.run.events import source_id
from headwater.spark.log_columns import LOG_META
from headwater.store.log.ordered_merge import joined, take
from headwater.store.log.reader import ChannelReader

ROWS = 1 << 16  # of a batch that is read
Part = tuple[str, Any, Mapping[str, Any], Any]  # channel, events, what the service knew of them, and their places


@dataclass(slots=True)
class _Open:
    """A channel that is being read: what has come of it and was not handed on, as a batch with the columns of a log."""

    channel: model.Channel
    batches: Iterator[Any]
    held: Any = None
    ended: bool = False

    def more(self) -> None:
        batch = next(self.batches, None)
        if batch is None:
            self.ended = True
        elif self.held is None or not self.held.num_rows:
            self.held = batch
        else:
            self.held = joined([self.held, batch])

    @property
    def last(self) -> int:
        return int(_times(self.held)[-1])

    def before(self, bound: int | None) -> Any:
        """What is older than this, and all of it without a bound; the rest is held."""
        batch, self.held = self.held, None
        if batch is None or bound is None:
            return batch
        end = int(np.searchsorted(_times(batch), bound, side="left"))
        self.held = batch.slice(end)
        return batch.slice(0, end)


def by_publication(
    root: Any, channels: Sequence[model.Channel], progress: Callable[[int], object]
) -> Iterator[list[Part]]:
    """Pieces of all channels, in the order of the time of publication. In memory is little more than one piece."""
    opened = [_Open(channel, ChannelReader(root, channel.name).merged(rows=ROWS)) for channel in channels]
    while True:
        for each in opened:
            while not each.ended and (each.held is None or not each.held.num_rows or _is_of_one_time(each.held)):
                each.more()
        going = [each for each in opened if not each.ended]
        bound = min((each.last for each in going), default=None)
        piece = [
            (each.channel, batch) for each in opened if (batch := each.before(bound)) is not None and batch.num_rows
        ]
        progress(sum(batch.num_rows for _, batch in piece))
        if piece:
            yield _parts(piece)
        if bound is None:
            return


def at_once(
    root: Any, channels: Sequence[model.Channel], times: Callable[[model.Channel, Any, Any], tuple[Any, Any]],
    lateness: int, late: Callable[[int], object], progress: Callable[[int], object],
) -> Iterator[list[Part]]:  # fmt: skip
    """All of it as one piece, where events say their own time: `times` are those of a batch, and which rows have one.
    What is older than another that its source sent before, by more than it may be late, is left out and counted."""
    piece, told = list[tuple[model.Channel, Any]](), list[Any]()
    for channel in channels:
        reader = ChannelReader(root, channel.name)
        for batch in reader.read(rows=ROWS):
            progress(batch.num_rows)
            found, timed = times(channel, *events_of(channel, batch))
            at = np.flatnonzero(timed)
            piece.append((channel, take(batch, pa.array(at))))
            told.append(found[at])
    names, seqs, ranks = _who(piece)
    every = np.concatenate(told)
    kept = np.ones(len(every), bool)
    order = np.lexsort((seqs, names, ranks))
    other = (names[order][1:] != names[order][:-1]) | (np.diff(ranks[order]) != 0)
    for stretch in np.split(order, np.flatnonzero(other) + 1):
        so_far = np.maximum.accumulate(every[stretch])
        kept[stretch[1:]] = every[stretch[1:]] >= so_far[:-1] - lateness
    late(int((~kept).sum()))
    start, rested, clocks = 0, list[tuple[model.Channel, Any]](), list[Any]()
    for channel, batch in piece:
        at = np.flatnonzero(kept[start : start + batch.num_rows])
        rested.append((channel, take(batch, pa.array(at))))
        clocks.append(every[start : start + batch.num_rows][at])
        start += batch.num_rows
    yield _parts(rested, clocks)


def events_of(channel: model.Channel, batch: Any) -> tuple[Any, dict[str, Any]]:
    """The events of a batch of a log, and what the service knew of them."""
    events = channel.type.conform(batch)
    return events, {which: batch.column(name) for which, name in LOG_META.items()}


def _parts(piece: Sequence[tuple[model.Channel, Any]], clocks: Sequence[Any] | None = None) -> list[Part]:
    sizes = [batch.num_rows for _, batch in piece]
    times = np.concatenate([_times(batch) for _, batch in piece] if clocks is None else list(clocks))
    order = np.lexsort((*_who(piece), times))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    ends = np.cumsum(sizes)
    return [
        (channel.name, *events_of(channel, batch), places[end - size : end])
        for (channel, batch), size, end in zip(piece, sizes, ends, strict=True)
    ]


def _who(piece: Sequence[tuple[model.Channel, Any]]) -> tuple[Any, Any, Any]:
    """Of all rows: their channels, their numbers, and the ranks of the ids of their sources."""
    names = np.repeat(np.array([channel.name for channel, _ in piece]), [batch.num_rows for _, batch in piece])
    seqs = np.concatenate([_column(batch, "seq") for _, batch in piece])
    ids = [
        source_id(source, node)
        for _, batch in piece
        for source, node in zip(
            *(batch.column(LOG_META[which]).to_pylist() for which in ("source", "node")), strict=True
        )
    ]
    place = {each: at for at, each in enumerate(sorted(set(ids)))}
    return names, seqs, np.fromiter((place[each] for each in ids), np.int64, len(ids))


def _column(batch: Any, which: str) -> Any:
    column = batch.column(LOG_META[which])
    return (column.cast("int64") if which == "time" else column).to_numpy(zero_copy_only=False)


def _times(batch: Any) -> Any:
    return _column(batch, "time")


def _is_of_one_time(batch: Any) -> bool:
    times = _times(batch)
    return bool(times[0] == times[-1])


__all__ = ["Part", "at_once", "by_publication", "events_of"]
