"""A pattern: what several events say together, written once, checked, and ready to run wherever the events are.

>>> from headwater.patterns import Pattern
>>> door = "who: text, action: text"
>>> tailgating = Pattern(
...     "a: hall.door(action = 'in'); b: hall.door{action = 'in' and who != a.who} within 2 seconds",
...     {"hall.door": door},
... )
>>> [element.name for element in tailgating.model.elements]
['a', 'b']
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from headwater.errors import PatternError, Problem
from headwater.interest import Origin
from headwater.ir.cost import Cost
from headwater.patterns import model, serial, written
from headwater.patterns.checker.check import RESULT, check, check_parts, in_order
from headwater.patterns.checker.verify import interests
from headwater.patterns.description import describe, expression
from headwater.patterns.explanation import Explanation, explain
from headwater.patterns.notation import match_recognize, text
from headwater.patterns.notation.python import Expression
from headwater.patterns.notation.show import show
from headwater.types import EventType

KIND = "pattern"
Notation = Literal["text", "match_recognize"]
NOTATIONS: tuple[Notation, ...] = ("text", "match_recognize")
_SQL = re.compile(r"\bmatch_recognize\b|^\s*select\s+(?:\*|[\w.\"`]+)\s*(?:,|\bas\b|\bfrom\b)", re.IGNORECASE)
_QUOTED = re.compile(r"'[^'\n]*'")  # a quote in a comment ends with its line


class Pattern:
    """A checked pattern over channels.

    `definition` is compact text, SQL with MATCH_RECOGNIZE (`notation` says which where that is not plain), an
    expression in Python (`headwater.patterns.notation.python`), or one that was written already. `channels` are the
    channels that there are, by name, each with its type.
    `aliases` are other names for channels: `{"Seen": "ie.tcd.cs.sighting"}`.
    `result` names the type of its matches. Everything wrong with it is reported at once, as a PatternError.
    """

    kind: ClassVar[str] = KIND
    origin: Origin | None = None  # where it was had by name

    def __init__(
        self,
        definition: str | Expression | written.Pattern,
        channels: Mapping[str, Any],
        *,
        params: Mapping[str, Any] | None = None,
        aliases: Mapping[str, str] | None = None,
        limits: model.Limits | None = None,
        notation: Notation | None = None,
        result: str = RESULT,
    ) -> None:
        if limits is not None and not isinstance(limits, model.Limits):
            raise TypeError(f"limits: expected Limits(…), found {limits!r:.60}")
        given = dict(params or {})
        self.written: written.Pattern | None = _read(definition, channels, given, aliases or {}, notation)
        self.model = check(self.written, channels, params=given, limits=limits, result=result)

    @classmethod
    def from_model(cls, checked: model.Pattern) -> Pattern:
        """A pattern that was checked, or received."""
        self = cls.__new__(cls)
        self.written = None
        self.model = checked
        return self

    # ── what it is ──

    @property
    def text(self) -> str:
        """As it was written; of a Python expression, the same as compact text."""
        return self.model.text or (show(self.written) if self.written is not None else "")

    @property
    def notation(self) -> str:
        return self.model.notation

    @property
    def params(self) -> Mapping[str, Any]:
        return self.model.params

    @property
    def output(self) -> EventType:
        """The type of its matches."""
        return self.model.output

    @property
    def channels(self) -> tuple[str, ...]:
        """Those that it takes events of."""
        return tuple(channel.name for channel in self.model.channels)

    @property
    def stateful(self) -> bool:
        return True

    @property
    def partition(self) -> tuple[str, ...]:
        """The parts of the key by which its state is kept apart."""
        return () if self.model.key is None else tuple(f.name for f in self.model.key.record.fields)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is allowed and hardly meant, each with its place."""
        return self.model.warnings

    @property
    def fingerprint(self) -> bytes:
        """16 bytes, equal for patterns that mean the same, on every machine."""
        return self.model.fingerprint

    @cached_property
    def cost(self) -> Cost:
        """What an event costs if all conditions are asked of it once, and the memory that a run may take."""
        costs = [interest.cost for interest in interests(self.model)]
        estimated, worst = sum(cost.estimated for cost in costs), sum(cost.worst for cost in costs)
        return Cost(estimated, worst, self.model.limits.memory)

    def __repr__(self) -> str:
        line = " ".join(self.text.split())
        return f"<Pattern {self.fingerprint.hex()[:12]}: {line if len(line) <= 60 else line[:57] + '…'}>"

    def __str__(self) -> str:
        return self.text or expression(self.model)

    @property
    def description(self) -> str:
        """What was understood, in a few lines."""
        return describe(self.model)

    def explain(self) -> Explanation:
        """What was understood, the automaton as a picture, what runs at the sources, cost and memory; `print` it."""
        return explain(self)

    # ── moving it ──

    def dumps(self, *, with_text: bool = True) -> bytes:
        """The serial form: what travels between nodes. Values of parameters travel beside it."""
        return serial.dumps(self.model, with_text=with_text)

    @classmethod
    def loads(
        cls, data: bytes, params: Mapping[str, Any] | None = None, *, limits: model.Limits | None = None
    ) -> Pattern:
        """From the serial form; the bytes may come from anyone."""
        return cls.from_model(serial.loads(data, params, limits=limits))


def _read(
    definition: str | Expression | written.Pattern,
    channels: Mapping[str, Any],
    params: Mapping[str, Any],
    aliases: Mapping[str, str],
    notation: Notation | None,
) -> written.Pattern:
    """As a notation reads it; after an error of syntax, what can be read is checked, so that all problems are told."""
    if isinstance(definition, Expression):
        definition = definition.written
    if isinstance(definition, written.Pattern):
        return _with(definition, aliases)
    if not isinstance(definition, str):
        raise TypeError(f"expected text, or an expression such as seq(a, b), found {definition!r:.60}")
    if notation is not None and notation not in NOTATIONS:
        raise ValueError(f"notation: expected one of {', '.join(NOTATIONS)}, found {notation!r}")
    if notation == "match_recognize" or (notation is None and _is_sql(definition)):
        found, problems = match_recognize.read(definition)
        found = found and _with(found, aliases)
    else:
        found, problems = text.read(definition, aliases)
    if problems or found is None:
        more = check_parts(found, channels, params) if found is not None else []
        raise PatternError(in_order([*problems, *more]))
    return found


def _is_sql(definition: str) -> bool:
    """Whether a text is meant as SQL: by its words, not by what it compares with."""
    return _SQL.search(_QUOTED.sub("''", definition)) is not None


def readable(definition: str) -> bool:
    """Whether a text says a pattern, whatever its channels are."""
    if _is_sql(definition):
        return True
    try:
        return not text.read(definition)[1]
    except PatternError:
        return False


def _with(pattern: written.Pattern, aliases: Mapping[str, str]) -> written.Pattern:
    return replace(pattern, aliases={**pattern.aliases, **aliases}) if aliases else pattern


__all__ = ["KIND", "NOTATIONS", "Notation", "Pattern", "readable"]
