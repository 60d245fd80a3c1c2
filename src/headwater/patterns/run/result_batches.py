"""The results of many matches at once, as a RecordBatch: what `Results.raw` makes of each, by columns.

Of every element that measures read, the fields of all matches are read together, their aggregates are made together,
and one call of machine code makes the results. Few matches, and patterns without measures, go one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from headwater.late import np, pa
from headwater.patterns import model
from headwater.patterns.result import MATCH, is_result
from headwater.patterns.run.events import Event
from headwater.patterns.run.folds import fold
from headwater.patterns.run.identity import identity
from headwater.patterns.run.matches import Match
from headwater.patterns.run.reading import read_together
from headwater.patterns.run.results import Results
from headwater.types.arrow import arrow_type
from headwater.types.model import Field, Type

FEW = 32  # matches that are quicker one by one: machine code for measures takes a tenth of a second to make
AT_ONCE = 4_096  # matches of a batch
# Views that are one event: how far from the end of those taken it is, and how many must have been taken.
_ONE = {"latest": (1, 1), "prev": (2, 2), "first": (0, 1), "meta": (1, 1)}


class ResultBatches:
    """Of one pattern's runner. `channels` are those of its events."""

    def __init__(self, results: Results, channels: Mapping[str, model.Channel]) -> None:
        self.results, self.channels = results, channels
        self.pattern, self.output = results.pattern, results.pattern.output
        self._types = {name: channel.type for name, channel in channels.items()}
        self._labels = [element.name for element in self.pattern.elements]
        self._of_matches = any(is_result(channel.type.record) for channel in self.pattern.channels)
        self._measures: Any = None  # running, once there are enough

    def of(self, matches: Sequence[Match]) -> Iterator[Any]:
        """The results of matches that were found together, in batches."""
        for start in range(0, len(matches), AT_ONCE):
            some = matches[start : start + AT_ONCE]
            yield self._few(some) if self.pattern.measures is None or len(some) < FEW else self._many(some)

    def _few(self, matches: Sequence[Match]) -> Any:
        results = self.results
        read = read_together(self.channels, (event for match in matches for event in results.asked(match)))
        return self.output.to_arrow([results.raw(match, lambda event: read[event.origin]) for match in matches])

    def _many(self, matches: Sequence[Match]) -> Any:
        measures = self.pattern.measures
        assert measures is not None
        if self._measures is None:
            self._measures = measures.interest.native()
        taken = _Taken(matches)
        type = measures.interest.type
        views = zip(self.results.views, type.record.fields, strict=True)
        columns = [self._member(taken, view, names, field, types) for (view, names, _, types), field in views]
        made = self._measures.batch(pa.RecordBatch.from_arrays(columns, schema=type.schema))
        if made.output.num_rows < len(matches):  # one of them says why
            self._few(matches)
        return pa.RecordBatch.from_arrays([*made.output.columns, self._about(taken)], schema=self.output.schema)

    def _member(
        self, taken: _Taken, view: model.View, names: frozenset[int], field: Field, types: Mapping[str, Type]
    ) -> Any:
        """The column of one view."""
        here = taken.of(names)
        counts = np.bincount(taken.whose[here], minlength=taken.count)
        kind = arrow_type(field.type)
        if view.kind == "count":
            return pa.array(counts, kind)
        ends = np.cumsum(counts)
        if view.kind in _ONE:
            back, least = _ONE[view.kind]
            there = counts >= least
            at = (ends - counts if view.kind == "first" else ends - back)[there]
            return self._one(taken, here[at], there, kind, about=view.kind == "meta")
        rows = taken.held.rows(taken.numbers[here], self._types, [f.name for f in kind])
        whose = taken.whose[here]
        members = [_aggregate(view.kind, types[f.name], rows.column(f.name), whose, taken.count, f.type) for f in kind]
        return pa.StructArray.from_arrays(members, fields=list(kind))

    def _one(self, taken: _Taken, at: Any, there: Any, kind: Any, *, about: bool) -> Any:
        """The column of a view that is one event of each match, or what the service knows of it, if `there` is one."""
        if not len(at):
            return pa.nulls(taken.count, kind)
        numbers = taken.numbers[at]
        if about:
            rows = _contexts(taken.held.many(tuple(numbers.tolist())), kind)
        else:
            rows = taken.held.rows(numbers, self._types, [f.name for f in kind])
        which = pa.array(np.maximum(np.cumsum(there) - 1, 0))  # a match without one repeats another's, behind the mask
        columns = [rows.column(f.name).take(which) for f in kind]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(~there))

    def _about(self, taken: _Taken) -> Any:
        """The column of what is known of the matches themselves."""
        last = np.cumsum(taken.lengths) - 1
        origins = taken.held.about(taken.numbers if self.results.identified else taken.numbers[last])
        times = [each[3] for each in origins]
        if self.results.identified:
            times = [times[at] for at in last.tolist()]
        times = [time if m.deadline is None else m.time for m, time in zip(taken.matches, times, strict=True)]
        kind = self.output.schema.field(MATCH).type
        known = {
            "identity": pa.array(self._identities(taken, origins), pa.binary()),
            "time": pa.array(times, pa.int64()),
            "uncertain": pa.array([False] * taken.count),
        }
        return pa.StructArray.from_arrays([known[f.name].cast(f.type) for f in kind], fields=list(kind))

    def _identities(self, taken: _Taken, origins: list[tuple[str, str, int, int]]) -> list[bytes]:
        if not self.results.identified:
            return [b""] * taken.count
        if self._of_matches:  # who those are is in their fields
            return [self.results.identity(match) for match in taken.matches]
        events = [
            (label, origin[:3])
            for label, origin in zip(map(self._labels.__getitem__, taken.labels.tolist()), origins, strict=True)
        ]
        ends = np.cumsum(taken.lengths).tolist()
        places = zip([0, *ends], ends, taken.matches, strict=False)
        return [identity(self.results.fingerprint, events[start:end], m.deadline) for start, end, m in places]


class _Taken:
    """The events of some matches, one after the other: their numbers, which elements they are, and of which match."""

    def __init__(self, matches: Sequence[Match]) -> None:
        self.matches, self.held, self.count = matches, matches[0].held, len(matches)
        self.lengths = np.fromiter((len(match.found.events) for match in matches), np.int64, self.count)
        size = int(self.lengths.sum())
        self.numbers = np.fromiter(chain.from_iterable(match.found.events for match in matches), np.int64, size)
        self.labels = np.fromiter(chain.from_iterable(match.found.labels for match in matches), np.int64, size)
        self.whose = np.repeat(np.arange(self.count), self.lengths)

    def of(self, elements: frozenset[int]) -> Any:
        """The places of the events of some elements."""
        wanted = np.zeros(model.MAX_ELEMENTS, bool)
        wanted[list(elements)] = True
        return np.flatnonzero(wanted[self.labels])


def _contexts(events: list[Event], kind: Any) -> Any:
    """What the service knows of events, as columns."""
    values = {
        "source": [event.source for event in events],
        "node": [event.node for event in events],
        "seq": [event.seq for event in events],
        "time": [event.published for event in events],
    }
    columns = [pa.array(values[f.name], pa.int64() if f.name == "time" else f.type).cast(f.type) for f in kind]
    return pa.RecordBatch.from_arrays(columns, [f.name for f in kind])


def _aggregate(kind: str, type: Type, column: Any, whose: Any, count: int, into: Any) -> Any:
    """Of the values of each match that are there."""
    present = column.is_valid().to_numpy(zero_copy_only=False)
    whose = whose[present]
    lengths = np.bincount(whose, minlength=count)
    values = whose  # how many there are does not depend on what they are
    if kind != "values":
        values = column.drop_null().to_numpy(zero_copy_only=False)
    found, there = fold(kind, type, values, np.cumsum(lengths) - lengths, lengths)
    return pa.array(found, into, mask=~there)


__all__ = ["ResultBatches"]
