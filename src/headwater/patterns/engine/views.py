"""What a condition reads of the events that were taken: its record, view by view."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from headwater.patterns import model
from headwater.types.model import F64, U64, Record, Type, promote

_SIGNED, _UNSIGNED = (-(1 << 63), (1 << 63) - 1), (0, (1 << 64) - 1)


class Views:
    """Of one condition, or of the measures. `read` takes the fields and the context of each event, with its element."""

    def __init__(self, pattern: model.Pattern, record: Record, views: Iterable[model.View]) -> None:
        self.members: list[tuple[model.View, frozenset[int], tuple[str, ...], dict[str, Type]]] = []
        for view, member in zip(views, record.fields, strict=True):
            names = [at for at, element in enumerate(pattern.elements) if element.name == view.name]
            names += [at for subset in pattern.subsets if subset.name == view.name for at in subset.elements]
            fields = tuple(f.name for f in member.type.fields) if isinstance(member.type, Record) else ()
            stored = pattern.elements[min(names)].type.record.by_name
            types = {name: stored[name].type for name in fields if name in stored}
            self.members.append((view, frozenset(names), fields, types))

    def read(self, taken: Sequence[tuple[int, dict[str, Any], Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for view, names, fields, types in self.members:
            events = [(raw, meta) for element, raw, meta in taken if element in names]
            found[view.member] = _member(view, events, fields, types)
        return found


def _member(
    view: model.View, events: list[tuple[dict[str, Any], Any]], fields: tuple[str, ...], types: dict[str, Type]
) -> Any:
    match view.kind:
        case "count":
            return len(events)
        case "latest" | "first" | "prev":
            at = {"latest": len(events) - 1, "first": 0, "prev": len(events) - 2}[view.kind]
            return {name: events[at][0][name] for name in fields} if 0 <= at < len(events) else None
        case "meta":
            return {name: getattr(events[-1][1], name) for name in fields} if events else None
    return {name: aggregate(view.kind, types[name], _values(events, name)) for name in fields}


def _values(events: list[tuple[dict[str, Any], Any]], name: str) -> list[Any]:
    return [raw[name] for raw, _ in events if raw[name] is not None]


def aggregate(kind: str, type: Type, values: list[Any]) -> Any:
    """Of the values that are there, in their order."""
    match kind:
        case "values":
            return len(values)
        case "sum":
            return _sum(promote(type), values)
        case "mean":
            return _sum(F64, list(map(float, values))) / len(values) if values else None
    best = values[0] if values else None
    for value in values[1:]:
        if best != best or value != value:
            best = math.nan
        elif value < best if kind == "min" else value > best:
            best = value
    return best


def _sum(type: Type, values: list[Any]) -> Any:
    """Missing as soon as it does not fit."""
    if type == F64:
        total = 0.0
        for value in values:
            total += value
        return total
    least, most = _UNSIGNED if type == U64 else _SIGNED
    whole = 0
    for value in values:
        whole += value
        if not least <= whole <= most:
            return None
    return whole


__all__ = ["Views", "aggregate"]
