"""One pass over a log: which subscriptions want which events, as classes of events that the same ones want."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from headwater.errors import ConfigError, ConfigProblem, ExecutionError
from headwater.late import np, pa
from headwater.spark.backtest.chunk import Chunk
from headwater.spark.backtest.judging import Judge, pack
from headwater.spark.backtest.subscriptions import Subscription, Subscriptions, Wanted, checked, load, resolve
from headwater.spark.backtest.worker import judge_of
from headwater.spark.columns import bind_columns
from headwater.spark.log import events
from headwater.spark.log_columns import LOG_META
from headwater.spark.sql_text import name as quoted
from headwater.store.log.reader import ChannelReader
from headwater.types import EventType

_MATCHED = "node string, size bigint, time timestamp, matched array<int>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """Events of one node that exactly the same subscriptions match: how many, and the bytes of their records."""

    role: int  # the number of the node
    matched: tuple[int, ...]  # the numbers of the subscriptions
    events: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A site as it was recorded. `at` says of each subscription which node it is at; None: placed by its name."""

    nodes: tuple[str, ...]
    subscriptions: tuple[str, ...]
    at: tuple[int | None, ...]
    classes: tuple[Class, ...]
    seconds: float

    @property
    def events(self) -> int:
        return sum(each.events for each in self.classes)

    def place(self, subscription: int, size: int) -> int:
        """The node of a subscription in a site of `size` nodes: the first so many."""
        at = self.at[subscription]
        if at is not None and at < size:
            return at
        digest = blake2b(self.subscriptions[subscription].encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % size


def recorded(
    spark: Any,
    log: str | os.PathLike[str],
    subscriptions: str | os.PathLike[str] | Subscriptions | Iterable[Subscription],
    *,
    channel: str | None = None,
    nodes: Iterable[str] = (),
    seconds: float | None = None,
) -> Recorded:
    """What these subscriptions match of a channel's log (what is at rest of it), each event judged once.

    `nodes` are nodes of the site that published nothing. A subscription is `at` one of the site's nodes, or, if that is
    no node of it, anywhere. `seconds` is how long the recording took, if not from its first event to its last.
    """
    given = _given(subscriptions)
    named = channel or given.channel
    if named is None:
        raise _problem("channel", "the name of the log's channel", "none")
    kind = given.type or ChannelReader(log, named).type
    if kind is None:
        raise _problem("type", "a channel with an event type", "bytes")
    if not len(given):
        raise _problem("subscriptions", "at least one", "none")
    wanted = resolve(given, kind)
    frame = _judged(spark, log, named, wanted, kind)
    found = frame.groupBy("node", "matched").agg({"*": "count", "size": "sum"}).collect()
    ends = frame.selectExpr("min(unix_micros(time))", "max(unix_micros(time))").first() if seconds is None else (0, 0)
    frame.unpersist()
    if not found:
        raise _problem("log", "at least one event at rest", "none", "close the nodes that write it, or name another")
    known = sorted({row["node"] for row in found} | set(nodes))
    classes = sorted(
        (known.index(row["node"]), tuple(row["matched"]), int(row["count(1)"]), int(row["sum(size)"])) for row in found
    )
    return Recorded(
        nodes=tuple(known),
        subscriptions=tuple(each.name for each in wanted),
        at=tuple(known.index(each.at) if each.at in known else None for each in wanted),
        classes=tuple(Class(role=role, matched=m, events=n, bytes=size) for role, m, n, size in classes),
        seconds=seconds if seconds is not None else max((ends[1] - ends[0]) / 1e6, 1e-6),
    )


def _given(subscriptions: Any) -> Subscriptions:
    if isinstance(subscriptions, Subscriptions):
        return subscriptions
    if isinstance(subscriptions, str | os.PathLike):
        return load(subscriptions)
    return checked(subscriptions)


def _problem(place: str, expected: str, found: str, hint: str | None = None) -> ConfigError:
    return ConfigError([ConfigProblem(f"model: {place}", expected, found, hint)])


def _judged(spark: Any, log: Any, channel: str, wanted: list[Wanted], kind: EventType) -> Any:
    """A row for each event: its node, the size of its record, and the numbers of the subscriptions that it matches."""
    package = pack(wanted, kind.record)
    judge = Judge(package)
    if judge.alone:
        names = ", ".join(repr(wanted[entry.number].name) for entry in judge.alone[:3])
        raise ExecutionError(
            f"model: expected filters that look at nothing but the event, found {names}, with state, an output, meta "
            "or long loops; leave them out"
        )
    frame = events(spark, log, channel)
    columns = bind_columns(frame, kind.record, judge.columns)
    picked = [f"{quoted(LOG_META[which])} AS {quoted(LOG_META[which])}" for which in ("node", "time")]
    picked += [f"{text} AS {quoted(field)}" for field, text in columns.items()]
    return frame.selectExpr(*picked).mapInArrow(_function(package), _MATCHED).persist()


def _function(package: bytes) -> Callable[[Any], Any]:
    def headwater_scale(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                yield matched(judge_of(package), batch)

    return headwater_scale


def matched(judge: Judge, batch: Any) -> Any:
    """The rows of a batch of a log, with the subscriptions that each matches, in the order of their numbers."""
    chunk = Chunk.of(batch, judge)
    rows, bounds, entries, _ = judge.rows.match(chunk.batch(judge))
    always = np.array([entry.number for entry in judge.always], np.int64)
    at = np.concatenate([np.asarray(rows, np.int64), np.repeat(np.arange(chunk.rows), len(always))])
    who = np.concatenate([np.repeat(entries, np.diff(bounds)), np.tile(always, chunk.rows)])
    order = np.lexsort((who, at))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=chunk.rows))])
    sizes = judge.sizes(chunk.columns, chunk.rows)
    return pa.RecordBatch.from_arrays(
        [
            batch.column(LOG_META["node"]),
            pa.array(np.broadcast_to(np.asarray(sizes, np.int64), (chunk.rows,))),
            batch.column(LOG_META["time"]),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(who[order].astype(np.int32))),
        ],
        names=["node", "size", "time", "matched"],
    )


__all__ = ["Class", "Recorded", "matched", "recorded"]
