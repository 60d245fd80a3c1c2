"""What would cross if later events of a pattern were asked for by the values that earlier ones have bound: over a
history, event by event, so that a value counts from the event on that opened it. It stays open from then on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.interest import Interest
from headwater.ir.nodes import Const, Expr, Path, Program, Return, SetOut
from headwater.late import np
from headwater.patterns import model
from headwater.patterns.crossing.atoms import channel_of
from headwater.patterns.crossing.bindings import Bindings
from headwater.spark.backtest.patterns.history import Part
from headwater.types.model import BOOL, Field, Record, Type

_TRUE = Const(True, BOOL)


@dataclass(frozen=True, slots=True)
class _Opening:
    """Events that pass one of the conditions (None: all) open the value that they have for a slot."""

    slot: str
    conditions: Sequence[Interest] | None
    value: _Value


class _Value:
    """What an expression gives for the rows of a batch; None where it gives nothing."""

    def __init__(self, channel: model.Channel, value: Expr, type: Type) -> None:
        output = Record("Value", (Field("value", type),))
        body = (SetOut(Path(("value",)), value, type), Return(_TRUE))
        self._native = Interest.from_program(Program(channel.type.record, output, (), (), body, "predicate")).native()

    def of(self, events: Any, meta: Mapping[str, Any]) -> list[Any]:
        result = self._native.batch(events, meta=meta)
        found: list[Any] = [None] * events.num_rows
        for at, value in zip(
            np.flatnonzero(_truth(result.selection)), result.output.column(0).to_pylist(), strict=True
        ):
            found[at] = value
        return found


class Bound:
    """Fed with pieces of a history, it says which of their events would cross."""

    def __init__(self, found: Bindings) -> None:
        pattern = found.pattern
        types = {slot.name: slot.type for slot in found.slots}
        self._open: dict[str, set[Any]] = {slot.name: set() for slot in found.slots}
        self._questions: dict[str, list[tuple[Interest | None, list[tuple[str, _Value]]]]] = {}
        self._openings: dict[str, list[_Opening]] = {}
        for channel in pattern.channels:
            self._questions[channel.name] = [
                (asked.condition, [(slot, _Value(channel, value, types[slot])) for slot, value in asked.slots])
                for asked in found.questions(channel.name)
            ]
            self._openings[channel.name] = list(_openings(found, channel))

    def crossing(self, parts: Sequence[Part]) -> list[Any]:
        """Of each part, which rows cross: truth values."""
        masks = [np.zeros(events.num_rows, bool) for _, events, _, _ in parts]
        rows: list[tuple[int, int, int, list[list[tuple[str, Any]]], list[tuple[str, Any]]]] = []
        for number, (name, events, meta, places) in enumerate(parts):
            asked: dict[int, list[list[tuple[str, Any]]]] = {}
            opened: dict[int, list[tuple[str, Any]]] = {}
            for condition, slots in self._questions[name]:
                values = [(slot, value.of(events, meta)) for slot, value in slots]
                for at in np.flatnonzero(_passed(condition, events, meta)).tolist():
                    asked.setdefault(at, []).append([(slot, of[at]) for slot, of in values])
            for each in self._openings[name]:
                given = each.value.of(events, meta)
                for at in np.flatnonzero(_any(each.conditions, events, meta)).tolist():
                    if given[at] is not None:
                        opened.setdefault(at, []).append((each.slot, given[at]))
            rows += [(int(places[at]), number, at, tests, opened.get(at, [])) for at, tests in asked.items()]
        for _, number, at, tests, opens in sorted(rows, key=lambda row: row[0]):
            masks[number][at] = any(all(value in self._open[slot] for slot, value in one) for one in tests)
            for slot, value in opens:
                self._open[slot].add(value)
        return masks


def _openings(found: Bindings, channel: model.Channel) -> Iterator[_Opening]:
    for slot in found.slots:
        if channel.name not in slot.values:
            continue
        here = [found.pattern.elements[at] for at in sorted(slot.binders)]
        here = [element for element in here if channel.name in element.channels]
        if not here:
            continue
        asked = [element.condition.on(channel.type) for element in here if element.condition is not None]
        value = _Value(channel_of(found.pattern, channel.name), slot.values[channel.name], slot.type)
        yield _Opening(slot.name, asked if len(asked) == len(here) else None, value)


def _passed(condition: Interest | None, events: Any, meta: Mapping[str, Any]) -> Any:
    if condition is None:
        return np.ones(events.num_rows, bool)
    return _truth(condition.native().batch(events, meta=meta).selection)


def _any(conditions: Sequence[Interest] | None, events: Any, meta: Mapping[str, Any]) -> Any:
    if conditions is None:
        return np.ones(events.num_rows, bool)
    found = np.zeros(events.num_rows, bool)
    for each in conditions:
        found |= _passed(each, events, meta)
    return found


def _truth(selection: Any) -> Any:
    return (selection.fill_null(False) if selection.null_count else selection).to_numpy(zero_copy_only=False)


__all__ = ["Bound"]
