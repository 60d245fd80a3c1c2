"""The rows of a log in their order, node by node, read by this process: little of it is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Any

from headwater.channel.objects.outlets import SOURCE
from headwater.late import pa, pc
from headwater.spark.backtest.triggers.recording import HELD, Entry, Objects, OfNode, Package
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.schema import SEQ, TIME

_Keyed = tuple[tuple[int, ...], Entry]


def entries(files: LogFiles, package: Package, held: Mapping[int, Any], objects: Objects | None) -> Iterator[Entry]:
    """All that is replayed. `held` are changes that say which objects there were before, by their table's number;
    `objects` are those that matter."""
    for node in package.nodes:
        for table, batch in held.items():
            for raw in package.tables[table].rows.arrow_to_raw(batch):
                if raw["object"].startswith(f"//{node}/"):
                    yield Entry(node, table, raw, raw["at"])
        yield from entries_of(files, package, node, objects)


def entries_of(files: LogFiles, package: Package, node: str, objects: Objects | None) -> Iterator[Entry]:
    """What was recorded of one node."""
    plan, numbered = package.nodes[node], list(enumerate(package.tables))
    changes = merge(
        *(_changes(files, package, number, node, plan, objects) for number, table in numbered if table.objects),
        key=_key,
    )
    heard = [_events(files, package, number, node, plan) for number, table in numbered if not table.objects]
    if heard:
        changes = merge(_by_time(changes), *heard, key=_key)
    yield from (entry for _, entry in changes)


def _key(keyed: _Keyed) -> tuple[int, ...]:
    return keyed[0]


def _changes(
    files: LogFiles, package: Package, number: int, node: str, plan: OfNode, objects: Objects | None
) -> Iterator[_Keyed]:
    """Those of one type, by turn and place in it."""
    table = package.tables[number]
    of = table.rows
    for batch in files.reader(table.channel).read(node=node, source=SOURCE):
        kept = batch if objects is None else batch.filter(_matter(batch.column("object"), objects))
        for raw, seq in zip(of.arrow_to_raw(kept), kept.column(SEQ).to_pylist(), strict=True):
            if raw["turn"] > plan.after:
                key = raw["turn"], raw["step"] or 0, raw["position"] or 0, number, seq
                yield key, Entry(node, number, raw, raw["at"])


def _matter(names: Any, objects: Objects) -> Any:
    found = pc.is_in(names, value_set=pa.array(sorted(objects.names), pa.string()))
    for prefix in objects.prefixes:
        found = pc.or_(found, pc.starts_with(names, prefix))
    return found


def _by_time(changes: Iterator[_Keyed]) -> Iterator[_Keyed]:
    """In the same order, by times that do not go back."""
    latest = HELD
    for (turn, *rest), entry in changes:
        latest = max(latest, entry.at)
        yield (latest, 1, turn, *rest), entry


def _events(files: LogFiles, package: Package, number: int, node: str, plan: OfNode) -> Iterator[_Keyed]:
    """Those of a channel, whoever has published them, by time."""
    table = package.tables[number]
    for batch in files.reader(table.channel).merged():
        times = batch.column(TIME).cast("int64").to_pylist()
        for raw, time, seq in zip(table.type.arrow_to_raw(batch), times, batch.column(SEQ).to_pylist(), strict=True):
            if time > plan.begin or not plan.after:
                yield (time, 0, number, seq), Entry(node, number, raw, time)


__all__ = ["entries", "entries_of"]
