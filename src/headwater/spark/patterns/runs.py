"""What runs inside Spark's Python workers for a pattern: a runner over rows that Spark has sorted, and matches out.

A pattern travels as bytes: its serial form, and the values of its parameters. Nothing is given up here: where a runner
would have to, the task fails and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from headwater.errors import ExecutionError
from headwater.ir import interp
from headwater.ir.interp import EventContext
from headwater.late import np, pa
from headwater.patterns import model, serial
from headwater.patterns.engine.views import Views
from headwater.patterns.events import Event
from headwater.patterns.identity import identity
from headwater.patterns.runner import Match, Runner
from headwater.spark.schema import from_spark_arrow, spark_arrow_schema, to_spark_arrow

# Columns of the rows that come: which channel, what the service knew, and for each channel the event, if it is of that.
CHANNEL, SOURCE, SEQ, PUBLISHED, NODE, EVENT = "_c", "_s", "_n", "_p", "_d", "_e"
AT_ONCE = 4_096  # matches in a batch that goes back

# A history is matched exactly or not at all, so these are as large as a worker may be.
LIMITS = model.Limits(
    partitions=50_000_000, runs_per_partition=50_000_000, runs=50_000_000, memory=4 << 30, worst=4_000_000_000
)


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    pattern: bytes
    values: dict[str, Any]
    sets: dict[str, list[Any]]
    maps: dict[str, list[tuple[Any, Any]]]


def pack(pattern: model.Pattern) -> bytes:
    """What travels to the workers."""
    values, sets, maps = dict[str, Any](), dict[str, list[Any]](), dict[str, list[tuple[Any, Any]]]()
    for name, value in pattern.params.items():
        if isinstance(value, Mapping):
            maps[name] = list(value.items())
        elif isinstance(value, set | frozenset | list | tuple):
            sets[name] = list(value)
        else:
            values[name] = value
    return msgspec.msgpack.encode(_Wire(serial.dumps(pattern, with_text=False), values, sets, maps))


def unpack(package: bytes) -> model.Pattern:
    """The pattern in a package, with its parameters: what a worker does before its first row."""
    wire = msgspec.msgpack.decode(package, type=_Wire)
    params = dict(wire.values) | {name: frozenset(members) for name, members in wire.sets.items()}
    params |= {name: dict(entries) for name, entries in wire.maps.items()}
    return serial.loads(wire.pattern, params, limits=LIMITS)


def matches(package: bytes, batches: Iterable[Any], fingerprint: bytes, *, identified: bool) -> Iterator[Any]:
    """The matches of one task: batches of results with their times, and identities if they are wanted."""
    pattern = unpack(package)
    runner = Runner(pattern)
    results = Results(pattern, fingerprint, identified=identified)
    for batch in batches:
        runner.ordered(_parts(pattern, batch))
        yield from results.batches(runner)
    runner.finish()
    yield from results.batches(runner)
    if runner.counts.given_up:
        raise ExecutionError(
            f"a runner gave up {runner.counts.given_up:,} partial matches of {runner.counts.events:,} events: expected "
            "that all fit a worker; give the pattern a shorter window, or partition it by more"
        )


def _parts(pattern: model.Pattern, batch: Any) -> Iterator[tuple[str, Any, Mapping[str, Any], Any]]:
    """The rows of each channel, with their places."""
    channels = batch.column(CHANNEL).to_numpy(zero_copy_only=False)
    for number, channel in enumerate(pattern.channels):
        at = np.flatnonzero(channels == number)
        if not len(at):
            continue
        rows = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
        events = from_spark_arrow(
            pa.RecordBatch.from_struct_array(rows.column(f"{EVENT}{number}")), channel.type.record
        )
        meta = {
            "source": rows.column(SOURCE),
            "seq": rows.column(SEQ),
            "time": rows.column(PUBLISHED).cast(pa.timestamp("us", "UTC")),
            "node": rows.column(NODE),
        }
        yield channel.name, events, meta, at


class Results:
    """From matches to the fields of their results, in raw form. Events are read together, and only those that are
    asked for: a match may have many more."""

    def __init__(self, pattern: model.Pattern, fingerprint: bytes, *, identified: bool) -> None:
        self.pattern = pattern
        self.fingerprint = fingerprint
        self.identified = identified
        self.places = {element.name: at for at, element in enumerate(pattern.elements)}
        measures = pattern.measures
        self.views = None if measures is None else Views(pattern, measures.interest.type.record, measures.views)

    def batches(self, runner: Runner) -> Iterator[Any]:
        found = runner.matches()
        for start in range(0, len(found), AT_ONCE):
            yield self._batch(runner, found[start : start + AT_ONCE])

    def _batch(self, runner: Runner, found: list[Match]) -> Any:
        output = self.pattern.output
        read = _read(runner, [event for match in found for event in self._asked(match)])
        events = [output.from_raw(self._raw(match, read)) for match in found]
        table = to_spark_arrow(output.to_arrow(events), output.record)
        columns = [*table.columns, pa.array([match.time for match in found], pa.timestamp("us", "UTC"))]
        names = [*spark_arrow_schema(output.record).names, "time"]
        if self.identified:
            columns.append(pa.array([self._identity(match) for match in found], pa.binary()))
            names.append("identity")
        return pa.RecordBatch.from_arrays(columns, names)

    def _identity(self, match: Match) -> bytes:
        """By the fingerprint that the pattern has at home."""
        return identity(self.fingerprint, ((label, event.origin) for label, event in match.events), match.deadline)

    def _asked(self, match: Match) -> list[Event]:
        """The events whose fields the result reads."""
        if self.views is None:
            return [event for _, event in match.events]
        found = list[Event]()
        for view, names, _, _ in self.views.members:
            if view.kind in ("count", "meta"):
                continue
            events = [event for label, event in match.events if self.places[label] in names]
            found += events[_ONE[view.kind]] if view.kind in _ONE else events
        return found

    def _raw(self, match: Match, read: Mapping[Origin, dict[str, Any]]) -> dict[str, Any]:
        taken = [
            (self.places[label], read.get(event.origin, _NOTHING), _context(event)) for label, event in match.events
        ]
        measures = self.pattern.measures
        if measures is not None and self.views is not None:
            outcome = interp.run(measures.interest.program, self.views.read(taken), params=measures.interest.params)
            if outcome.output is None:
                raise ExecutionError(f"a match has no result: {outcome.status.name.lower()}")
            return dict(outcome.output)
        found: dict[str, Any] = {}
        for at, element in enumerate(self.pattern.elements):
            if not element.negative:
                events = [raw for each, raw, _ in taken if each == at]
                found[element.name] = events if element.multiple else events[0] if events else None
        return found


_NOTHING: dict[str, Any] = {}  # of an event that nobody asks for
_ONE = {"latest": slice(-1, None), "first": slice(0, 1), "prev": slice(-2, -1)}
Origin = tuple[str, str, int]


def _context(event: Event) -> EventContext:
    return EventContext(event.source, event.node, event.seq, event.published)


def _read(runner: Runner, events: list[Event]) -> dict[Origin, dict[str, Any]]:
    """The fields of events, those of one batch together."""
    rows: dict[int, dict[int, Event]] = {}
    batches: dict[int, Any] = {}
    for event in events:
        batch, row = event.data
        batches[id(batch)] = batch
        rows.setdefault(id(batch), {})[row] = event
    found: dict[Origin, dict[str, Any]] = {}
    for which, wanted in rows.items():
        some = list(wanted.values())
        taken = batches[which].take(pa.array(list(wanted)))
        raw = runner.channels[some[0].channel].type.arrow_to_raw(taken)
        found.update(zip((event.origin for event in some), raw, strict=True))
    return found


def identities(fingerprint: bytes, channel: str, rows: Any) -> Any:
    """Of matches of one channel, given by the labels, sources and numbers of their events, and their deadline."""
    made = []
    for row in rows.to_pylist():
        events = ((event["label"], (channel, event["source"], event["seq"])) for event in row["events"])
        made.append(identity(fingerprint, events, row["deadline"]))
    return pa.array(made, pa.binary())


__all__ = ["CHANNEL", "EVENT", "NODE", "PUBLISHED", "SEQ", "SOURCE", "identities", "matches", "pack"]
