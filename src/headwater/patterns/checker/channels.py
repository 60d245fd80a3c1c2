"""What the events of each channel of a pattern are judged by: their key, their time, and what counts as a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.interest import Interest
from headwater.ir.build import Builder
from headwater.ir.nodes import Expr, Load, Path, Span
from headwater.patterns import model, written
from headwater.patterns.checker.expressions import Expressions
from headwater.patterns.result import MATCH, is_result
from headwater.types import EventType
from headwater.types.model import Record, promote

MAX_PARTS = 16  # of a partition's key


class Channels:
    """Those of the elements of one pattern; `keys` are variables that are part of the key, with their fields."""

    def __init__(
        self,
        pattern: written.Pattern,
        types: Mapping[str, EventType],
        expressions: Expressions,
        elements: Sequence[model.Element],
    ) -> None:
        self.written, self.types, self.expressions, self.elements = pattern, types, expressions, elements

    def checked(self, keys: Mapping[str, Mapping[str, str]]) -> tuple[tuple[model.Channel, ...], EventType | None]:
        """What each channel's events are judged by, key, time and among, and the type of the keys. A part of the key
        is an expression over every channel's events: it has to mean something, and the same type, in all of them."""
        names = sorted({channel for element in self.elements for channel in element.channels})
        parts: dict[str, list[tuple[str, Expr]]] = {name: [] for name in names}
        labels = self._key_labels(list(keys))
        if len(labels) > MAX_PARTS:
            place = self.written.partition[-1].span if self.written.partition else Span(0, 0)
            expected = f"at most {MAX_PARTS}"
            self.expressions.problem(
                place, "too many parts of a partition's key", expected=expected, found=str(len(labels))
            )
            return (), None
        for at, condition in enumerate(self.written.partition):
            seen: dict[Record, Expr | None] = {}
            for name in names:
                record = self.types[name].record
                if record not in seen:
                    seen[record] = self.expressions.value(condition, record) if None not in seen.values() else None
                value = seen[record]
                if value is not None:
                    parts[name].append((labels[at], value))
            self._check_alike(condition, [value for value in seen.values() if value is not None])
        for label, variable in zip(labels[len(self.written.partition) :], keys, strict=True):
            for name in names:
                field = self.types[name].record.by_name[keys[variable][name]]
                parts[name].append((label, Load(Path((field.name,)), field.type, promote(field.type))))
        among = self._among(names)
        channels, key = [], None
        for name in names:
            record = self.types[name].record
            made = None
            if labels and len(parts[name]) == len(labels):
                made = self.expressions.key(parts[name], record)
                key = made.output if made is not None else key
            time = self._time(record)
            filter, all = among.get(name, (None, True))
            channels.append(model.Channel(name, self.types[name], made, time, filter, all))
        return tuple(channels), key

    def _time(self, record: Record) -> Interest | None:
        """What says the time of an event; that of its publication if nothing does, or of a match its own."""
        if self.written.time is not None:
            return self.expressions.time(self.written.time, record)
        if is_result(record):
            return self.expressions.time(written.Condition(f"{MATCH}.time"), record)
        return None

    def _check_alike(self, condition: written.Condition, values: list[Expr]) -> None:
        types = {value.type for value in values}
        if len(types) > 1:
            found = " and ".join(sorted(map(str, types)))
            self.expressions.problem(
                condition.span,
                "the channels have this part of the key in different types",
                found=found,
                hint="cast it to one: cast(x as i64)",
            )

    def _key_labels(self, variables: list[str]) -> list[str]:
        labels: list[str] = []
        for at, condition in enumerate(self.written.partition):
            text = condition.definition if isinstance(condition.definition, str) else ""
            labels.append(text.strip() if text.strip().isidentifier() else f"key{at + 1}")
        labels += variables
        return [label if labels.index(label) == at else f"{label}_{at + 1}" for at, label in enumerate(labels)]

    def _among(self, names: list[str]) -> dict[str, tuple[Any, bool]]:
        """By channel: the interest that makes rows, and whether all events are. A channel whose type lacks a field that
        another has, passes nothing."""
        condition = self.written.among
        if condition is None:
            return {}
        found: dict[str, tuple[Any, bool]] = {}
        kept, first = list(self.expressions.problems), None
        for name in names:
            before = len(self.expressions.problems)
            program = self.expressions.read(condition, self.types[name].record, Builder)
            problems = self.expressions.problems[before:]
            if program is not None:
                found[name] = (self.expressions.interest(program), False)
                continue
            first = first or problems
            if all(problem.about is not None for problem in problems):
                found[name] = (None, False)
                del self.expressions.problems[before:]
        if first and not any(interest is not None for interest, _ in found.values()):
            self.expressions.problems = kept + first
        return found
