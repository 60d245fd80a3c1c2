"""What runs inside Spark's Python workers for a pattern: a runner over rows that Spark has sorted, and matches out.

A pattern travels as bytes: its serial form, and the values of its parameters. Nothing is given up here: where a runner
would have to, the task fails and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError
from headwater.late import np, pa
from headwater.patterns import model, serial
from headwater.patterns.run.identity import identity
from headwater.patterns.run.result_batches import ResultBatches
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import Runner
from headwater.spark.schema import from_spark_arrow, to_spark_arrow

# Columns of the rows that come: which channel, what the service knew, and for each channel the event, if it is of that.
CHANNEL, SOURCE, SEQ, PUBLISHED, NODE, EVENT = "_c", "_s", "_n", "_p", "_d", "_e"
RANK = "_o"  # of the channel, among those of events of one source, number and time

AT_ONCE = 1_024  # matches: results of many are made together
# A history is matched exactly or not at all, so these are as large as a worker may be.
LIMITS = model.Limits(
    partitions=50_000_000, runs_per_partition=50_000_000, runs=50_000_000, memory=4 << 30, worst=4_000_000_000
)


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    pattern: bytes
    values: dict[str, Any]
    sets: dict[str, list[Any]]
    maps: dict[str, list[tuple[Any, Any]]]


_DECODER = msgpack_decoder(_Wire)


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
    wire = _DECODER.decode(package)
    params = dict(wire.values) | {name: frozenset(members) for name, members in wire.sets.items()}
    params |= {name: dict(entries) for name, entries in wire.maps.items()}
    return serial.loads(wire.pattern, params, limits=LIMITS)


def matches(package: bytes, batches: Iterable[Any], fingerprint: bytes, *, identified: bool) -> Iterator[Any]:
    """The matches of one task: batches of results, which say who they are if that is wanted."""
    pattern = unpack(package)
    runner = Runner(pattern)
    results = ResultBatches(Results(pattern, fingerprint, identified=identified), runner.channels)
    for batch in batches:
        runner.ordered(parts(pattern, batch))
        if runner.found >= AT_ONCE:
            yield from batches_of(runner, results)
    runner.finish()
    yield from batches_of(runner, results)
    check_whole(runner)


def check_whole(runner: Runner) -> None:
    """ExecutionError if something had to be given up."""
    if runner.counts.given_up:
        raise ExecutionError(
            f"a runner gave up {runner.counts.given_up:,} partial matches of {runner.counts.events:,} events: expected "
            "that all fit a worker; give the pattern a shorter window, or partition it by more"
        )


def parts(pattern: model.Pattern, batch: Any) -> Iterator[tuple[str, Any, Mapping[str, Any], Any]]:
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


def batches_of(runner: Runner, results: ResultBatches) -> Iterator[Any]:
    """What a runner has found, as batches of results."""
    for batch in results.of(runner.matches()):
        yield to_spark_arrow(batch, results.output.record)


def identities(fingerprint: bytes, channel: str, rows: Any) -> Any:
    """Of matches of one channel, given by the labels, sources and numbers of their events, and their deadline."""
    made = []
    for row in rows.to_pylist():
        events = ((event["label"], (channel, event["source"], event["seq"])) for event in row["events"])
        made.append(identity(fingerprint, events, row["deadline"]))
    return pa.array(made, pa.binary())


__all__ = [
    "CHANNEL",
    "EVENT",
    "NODE",
    "PUBLISHED",
    "RANK",
    "SEQ",
    "SOURCE",
    "batches_of",
    "check_whole",
    "identities",
    "matches",
    "pack",
    "parts",
    "unpack",
]
