"""Trying levels of a replica on recorded changes: `backtest_levels(spark, log, objects, levels=…)`.

The rules by which an owner tells its replicas are run over the changes of its objects, all levels in one pass; objects
do not concern each other, so that on Spark all cores work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Any

import msgspec

from headwater.errors import ConfigError, ConfigProblem, ObjectError
from headwater.late import pa
from headwater.objects.names import NamePattern
from headwater.objects.object_types import CHANNEL, packed
from headwater.objects.replicas.spec import Linear, ReplicaSpec, pack, replica_spec
from headwater.spark.backtest.levels import measuring
from headwater.spark.backtest.levels.measuring import Asked, Measured, measured
from headwater.spark.backtest.levels.report import LevelBacktest, level_row
from headwater.spark.backtest.triggers import frames, local
from headwater.spark.backtest.triggers.recording import Objects, OfNode, Package, Table
from headwater.spark.backtest.triggers.recording import loads as load_package
from headwater.spark.backtest.triggers.run import length_of, source_of
from headwater.spark.backtest.triggers.sources import FrameSource, LogSource
from headwater.types import EventType


def backtest_levels(
    spark: Any,
    log: Any,
    objects: str,
    *,
    type: str,
    levels: Mapping[str, Mapping[str, float]],
    members: Iterable[str] = (),
    model: Linear | None = None,
    delay: str | None = None,
    types: Mapping[str, Any] | None = None,
) -> LevelBacktest:
    """How many messages a replica of these objects would have taken at each level, and how far off it would have been.

    `objects` is a name or a pattern of names; without an owner, of every node. A level is how far each member may be
    off: `levels={"fine": {"position.x": 1.0}, "coarse": {"position.x": 25.0}}`; other members are exact, or with
    `members` only these are kept in step. `model` is dead reckoning. With a `delay`, one way, it is measured too how
    far off what has arrived is. `spark`, `log` and `types` are as in `backtest_triggers`."""
    started = monotonic()
    source = source_of(spark, log, types)
    form = source.objects.get(type)
    if form is None:
        known = ", ".join(source.objects) or "none"
        raise ConfigError([ConfigProblem("backtest: type", f"a type of recorded objects: {known}", repr(type))])
    nodes = _nodes(source, objects)
    _check(objects, type, form, nodes, levels, tuple(members), model)
    asked = Asked(
        {name: {path: float(bound) for path, bound in bounds.items()} for name, bounds in levels.items()},
        objects,
        tuple(sorted(set(members))),
        pack(ReplicaSpec("//x/x", type, model=model)),
        None if delay is None else length_of("delay", delay),
    )
    table = Table(CHANNEL + type, packed(form))
    spans = {node: span for node in nodes if (span := source.span(table.channel, node)) is not None}
    package = Package(
        {node: OfNode(span.first, span.last, 0, [], {}) for node, span in spans.items()},
        {type: table.form},
        [table],
        None,
    )
    found = _measured(spark, source, package, asked)
    changes = max((each.changes for each in found.values()), default=0)
    return LevelBacktest(
        objects=objects,
        type=type,
        changes=changes,
        delay=None if asked.delay is None else asked.delay / 1e6,
        levels=tuple(level_row(name, each) for name, each in found.items()),
        seconds=monotonic() - started,
        engine="local" if spark is None else "spark",
        notes=("updates without an event are in no log, and are told of live where they are too far off",),
    )


def _nodes(source: LogSource | FrameSource, objects: str) -> list[str]:
    """Whose objects are meant."""
    if not objects.startswith("//"):
        return list(source.nodes)
    owner = objects[2:].partition("/")[0]
    if owner not in source.nodes:
        known = ", ".join(source.nodes) or "none"
        raise ConfigError([ConfigProblem("backtest: objects", f"those of a recorded node: {known}", repr(objects))])
    return [owner]


def _check(
    objects: str,
    type: str,
    form: EventType,
    nodes: list[str],
    levels: Mapping[str, Mapping[str, float]],
    members: tuple[str, ...],
    model: Linear | None,
) -> None:
    """A ConfigError with everything that is wrong with any level."""
    problems = [] if levels else [ConfigProblem("backtest: levels", "at least one", "none")]
    for name, bounds in levels.items():
        try:
            replica_spec(objects, type, form, node=(nodes or ["node"])[0], bound=bounds, members=members, model=model)
        except (ObjectError, TypeError, AttributeError) as error:
            told = "\n    ".join(str(error).splitlines())
            problems.append(ConfigProblem(f"backtest: level {name!r}", "bounds of numbers by member", told))
    if problems:
        raise ConfigError(problems)


def _measured(spark: Any, source: LogSource | FrameSource, package: Package, asked: Asked) -> dict[str, Measured]:
    """By this process, or in Spark's workers."""
    patterns = [NamePattern(asked.pattern, node) for node in package.nodes]
    wanted = Objects(frozenset(), frozenset(f"//{each.node}/{each.prefix}" for each in patterns))
    if spark is None:
        assert isinstance(source, LogSource)
        return measured(package, asked, local.entries(source.files, package, {}, wanted))
    if not package.nodes:
        return {name: Measured() for name in asked.levels}
    (table,) = package.tables
    frame = {table.channel: source.frame(spark, table.channel)}
    rows = frames.sorted_rows(spark, package, frame, {}, wanted, apart=True)
    sent, question = package.dumps(), msgspec.msgpack.encode(asked)

    def headwater_levels(batches: Iterator[Any]) -> Iterator[Any]:
        return _in_worker(sent, question, batches)

    told = rows.mapInArrow(headwater_levels, "found BINARY").collect()
    return measuring.joined((measuring.loads(bytes(row[0])) for row in told), list(asked.levels))


def _in_worker(sent: bytes, question: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """What there is of the objects of one task."""
    package, asked = load_package(sent), measuring.asked_of(question)
    found = measured(package, asked, frames.entries(package, batches))
    yield pa.RecordBatch.from_pydict({"found": pa.array([measuring.dumps(found)], pa.binary())})


__all__ = ["backtest_levels"]
