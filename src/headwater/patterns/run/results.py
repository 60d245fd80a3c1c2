"""From matches to their results: the events of the pattern's output, the same live and on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.errors import ExecutionError
from headwater.ir import interp
from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.engine.views import Views
from headwater.patterns.result import MATCH
from headwater.patterns.run.events import Event
from headwater.patterns.run.identity import identity_of
from headwater.patterns.run.matches import Match
from headwater.types.model import Type

Raw = dict[str, Any]
_NOTHING: Raw = {}  # of an event that nobody asks for
_ONE = {"latest": slice(-1, None), "first": slice(0, 1), "prev": slice(-2, -1)}


class Results:
    """Results in raw form. `fingerprint` is the one that the pattern has at home: that of its serial form may differ
    in types that were named anew. Without `identified` it is not said who a match is, which takes time. A match may
    have many more events than its result reads: `asked` are those."""

    def __init__(self, pattern: model.Pattern, fingerprint: bytes | None = None, *, identified: bool = True) -> None:
        self.pattern, self.identified = pattern, identified
        self.fingerprint = pattern.fingerprint if fingerprint is None else fingerprint
        self._places = {element.name: at for at, element in enumerate(pattern.elements)}
        measures = pattern.measures
        self._views = None if measures is None else Views(pattern, measures.interest.type.record, measures.views)

    @property
    def views(self) -> list[tuple[model.View, frozenset[int], tuple[str, ...], dict[str, Type]]]:
        """What measures read: each view, of which elements, and of these which fields, with their types."""
        return [] if self._views is None else self._views.members

    def asked(self, match: Match) -> list[Event]:
        """The events whose fields the result reads."""
        if self._views is None:
            return [event for _, event in match.events]
        found = list[Event]()
        for view, names, _, _ in self._views.members:
            if view.kind in ("count", "meta"):
                continue
            events = [event for label, event in match.events if self._places[label] in names]
            found += events[_ONE[view.kind]] if view.kind in _ONE else events
        return found

    def raw(self, match: Match, fields: Callable[[Event], Raw], *, uncertain: bool = False) -> dict[str, Any]:
        """The result of a match; `fields` gives those of an event that was asked for, in raw form."""
        asked = {event.origin for event in self.asked(match)} if self._views is not None else None
        taken = [
            (
                self._places[label],
                fields(event) if asked is None or event.origin in asked else _NOTHING,
                EventContext(event.source, event.node, event.seq, event.published),
            )
            for label, event in match.events
        ]
        measures = self.pattern.measures
        if measures is not None and self._views is not None:
            outcome = interp.run(measures.interest.program, self._views.read(taken), params=measures.interest.params)
            if outcome.output is None:
                raise ExecutionError(f"a match has no result: {outcome.status.name.lower()}")
            found = dict(outcome.output)
        else:
            found = {}
            for at, element in enumerate(self.pattern.elements):
                if not element.negative:
                    events = [raw for each, raw, _ in taken if each == at]
                    found[element.name] = events if element.multiple else events[0] if events else None
        who = self.identity(match) if self.identified else b""
        found[MATCH] = {"identity": who, "time": match.time, "uncertain": uncertain}
        return found

    def identity(self, match: Match) -> bytes:
        """Who it is."""
        return identity_of(self.pattern, self.fingerprint, match.events, match.deadline)


__all__ = ["Results"]
