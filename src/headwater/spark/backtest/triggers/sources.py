"""Where recorded changes are: the folder of a log, or DataFrames by the names of their channels.

Both say which types and nodes there are, when the recording of a node begins and ends, and of which type an object is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from headwater.channel.objects.outlets import SOURCE
from headwater.errors import ConfigError, ConfigProblem
from headwater.interest import Interest, as_event_type
from headwater.objects.object_types import CHANNEL
from headwater.spark.backtest.triggers.recording import object_type
from headwater.spark.sql_text import text_literal
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.reader import channel_types
from headwater.types import EventType


class Span(NamedTuple):
    """When a recording begins and ends, in microseconds, and how many rows it has."""

    first: int
    last: int
    rows: int

    def joined(self, other: Span | None) -> Span:
        """Of two tables."""
        if other is None:
            return self
        return Span(min(self.first, other.first), max(self.last, other.last), self.rows + other.rows)


class LogSource:
    """A log, in its folder."""

    def __init__(self, log: str | os.PathLike[str]) -> None:
        self.log = log
        self._types = channel_types(log)
        self.files = LogFiles(log)

    @cached_property
    def objects(self) -> dict[str, EventType]:
        """The types of objects, by name."""
        found = {name: object_type(type) for name, type in self._types.items() if name.startswith(CHANNEL)}
        return {name.removeprefix(CHANNEL): type for name, type in found.items() if type is not None}

    @property
    def channels(self) -> dict[str, EventType]:
        """Types of all other channels."""
        return {name: type for name, type in self._types.items() if not name.startswith(CHANNEL)}

    @cached_property
    def nodes(self) -> list[str]:
        """Those that have objects."""
        return sorted({span.node for name in self.objects for span in self.files.sources(CHANNEL + name)})

    def span(self, channel: str, node: str | None) -> Span | None:
        """Of a node's changes of a type, by their own times; of a channel, by those of publication, of all nodes."""
        reader = self.files.reader(channel)
        if node is None:
            ends = [(each.first_time, each.last_time, each.rows) for each in reader.files()]
            known = [(first, last, rows) for first, last, rows in ends if first is not None and last is not None]
            if not known:
                return None
            return Span(
                min(first for first, _, _ in known), max(last for _, last, _ in known), sum(r for *_, r in known)
            )
        found = next((each for each in reader.sources() if (each.node, each.source) == (node, SOURCE)), None)
        if found is None:
            return None
        first = next(reader.read(node=node, source=SOURCE, columns=["at"], rows=1))
        last = list(reader.read(node=node, source=SOURCE, after=found.last - 1, columns=["at"]))[-1]
        at = [batch.column("at").cast("int64")[place].as_py() for batch, place in ((first, 0), (last, -1))]
        return Span(at[0], at[1], found.events or 0)

    def find(self, spark: Any, names: Collection[str]) -> dict[str, set[str]]:
        """The types of objects, by their whole names, as far as there are changes of them."""
        found: dict[str, set[str]] = {name: set() for name in names}
        for type in self.objects:
            if spark is not None:
                objects = _distinct(self.frame(spark, CHANNEL + type), names)
            else:
                change = self._types[CHANNEL + type]
                interest = Interest("object in :names", change, params={"names": set(names)})
                scan = self.files.read(CHANNEL + type, interest=interest, columns=["object"])
                objects = {each for batch in scan for each in batch.column("object").unique().to_pylist()}
            for name in objects:
                found[name].add(type)
        return found

    def frame(self, spark: Any, channel: str) -> Any:
        """The rows of a channel, with the columns of a log."""
        from headwater.spark.log import events

        return events(spark, self.log, channel, tail=True)


class FrameSource:
    """DataFrames with the columns of a log, by the names of their channels, or of types of objects."""

    def __init__(self, frames: Mapping[str, Any], types: Mapping[str, Any]) -> None:
        self._frames, self.objects, self.channels = dict[str, Any](), dict[str, EventType](), dict[str, EventType]()
        problems: list[ConfigProblem] = []
        for name, frame in frames.items():
            short = name.removeprefix(CHANNEL)
            declared = types.get(name, types.get(short))
            if declared is None:
                hint = f"types={{{short!r}: 'x: f64, …'}}: what the objects are, or the events of a channel"
                problems.append(ConfigProblem(f"backtest: types: {short}", "the type of it", "none", hint))
            elif name.startswith(CHANNEL) or {"object", "old", "new"} <= set(frame.columns):
                self.objects[short] = as_event_type(declared)
                self._frames[CHANNEL + short] = frame
            else:
                self.channels[name] = as_event_type(declared)
                self._frames[name] = frame
        if problems:
            raise ConfigError(problems)

    @cached_property
    def _spans(self) -> dict[str, dict[str, Span]]:
        """By channel and node, asked for at once."""
        from pyspark.sql import functions as F

        found: dict[str, dict[str, Span]] = {}
        for channel, frame in self._frames.items():
            time = "at" if channel.startswith(CHANNEL) else "event_time"
            rows = frame.selectExpr("event_node", f"unix_micros({time}) AS t").groupBy("event_node")
            told = rows.agg(F.min("t"), F.max("t"), F.count("*")).collect()
            found[channel] = {row[0]: Span(row[1], row[2], row[3]) for row in told if row[1] is not None}
        return found

    @property
    def nodes(self) -> list[str]:
        """Those that have objects."""
        return sorted({node for name in self.objects for node in self._spans[CHANNEL + name]})

    def span(self, channel: str, node: str | None) -> Span | None:
        """As that of a log."""
        spans = self._spans[channel]
        if node is not None:
            return spans.get(node)
        made: Span | None = None
        for each in spans.values():
            made = each.joined(made)
        return made

    def find(self, spark: Any, names: Collection[str]) -> dict[str, set[str]]:
        """As that of a log."""
        found: dict[str, set[str]] = {name: set() for name in names}
        for type in self.objects:
            for name in _distinct(self._frames[CHANNEL + type], names):
                found[name].add(type)
        return found

    def frame(self, spark: Any, channel: str) -> Any:
        """What was given."""
        return self._frames[channel]


def _distinct(frame: Any, names: Iterable[str]) -> set[str]:
    listed = ", ".join(text_literal(name) for name in sorted(names))
    return {row[0] for row in frame.where(f"object IN ({listed})").select("object").distinct().collect()}


__all__ = ["FrameSource", "LogSource", "Span"]
