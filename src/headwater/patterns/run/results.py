"""From matches to their results: the events of the pattern's output, the same live and on Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from headwater.errors import ExecutionError
from headwater.interest import Interest
from headwater.ir import interp
from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.engine.views import Views
from headwater.patterns.result import MATCH
from headwater.patterns.run.events import Event
from headwater.patterns.run.identity import identity_of
from headwater.patterns.run.matches import Match
from headwater.types.model import Type

if TYPE_CHECKING:
    from headwater.native.program import Native

Raw = dict[str, Any]
_NOTHING: Raw = {}  # of an event that nobody asks for
_ONE = {"latest": slice(-1, None), "first": slice(0, 1), "prev": slice(-2, -1)}
_UNREAD = ("count", "meta")  # views that read no field
WORTH_COMPILING = 64  # matches


class Measures:
    """Measures of matches, one by one: by the interpreter, until there were so many that machine code is worth it."""

    def __init__(self, interest: Interest) -> None:
        assert interest.output is not None
        self._interest, self._input, self._output = interest, interest.type, interest.output
        self._native: Native | None = None
        self._asked = 0

    def prepare(self) -> None:
        """Wait for machine code."""
        self._native = (self._native or self._interest.native()).wait()

    def __call__(self, read: Raw) -> Raw:
        """The fields of a result, of what views have read."""
        native = self._native
        if native is not None and native.compiled is not None:
            made = native.run(self._input.encode(read))
            status, output = made.status, None if made.output is None else self._output.decode_raw(made.output)
        else:
            self._asked += 1
            if self._asked == WORTH_COMPILING:
                self._native = self._interest.native()
            outcome = interp.run(self._interest.program, read, params=self._interest.params)
            status, output = outcome.status, outcome.output
        if output is None:
            raise ExecutionError(f"a match has no result: {status.name.lower()}")
        return dict(output)


class Results:
    """Results in raw form. `fingerprint` is the one that the pattern has at home: that of its serial form may differ
    in types that were named anew. Without `identified` it is not said who a match is, which takes time. A match may
    have many more events than its result reads: `asked` are those."""

    def __init__(self, pattern: model.Pattern, fingerprint: bytes | None = None, *, identified: bool = True) -> None:
        self.pattern, self.identified = pattern, identified
        self.fingerprint = pattern.fingerprint if fingerprint is None else fingerprint
        measures = pattern.measures
        self.measures = None if measures is None else Measures(measures.interest)
        self._views = None if measures is None else Views(pattern, measures.interest.type.record, measures.views)
        members = () if self._views is None else self._views.members
        self._reads = [(view.kind, names) for view, names, _, _ in members if view.kind not in _UNREAD]
        self._says_where = any(view.kind == "meta" for view, _, _, _ in members)

    def _places(self, labels: tuple[int, ...]) -> Collection[int]:
        """Where in a match the events are whose fields the result reads."""
        if self._views is None:
            return range(len(labels))
        found = set[int]()
        for kind, names in self._reads:
            here = [at for at, label in enumerate(labels) if label in names]
            found.update(here[_ONE[kind]] if kind in _ONE else here)
        return found

    @property
    def views(self) -> list[tuple[model.View, frozenset[int], tuple[str, ...], dict[str, Type]]]:
        """What measures read: each view, of which elements, and of these which fields, with their types."""
        return [] if self._views is None else self._views.members

    def asked(self, match: Match) -> list[Event]:
        """The events whose fields the result reads."""
        events = match.events
        return [events[at][1] for at in self._places(match.found.labels)]

    def raw(self, match: Match, fields: Callable[[Event], Raw], *, uncertain: bool = False) -> dict[str, Any]:
        """The result of a match; `fields` gives those of an event that was asked for, in raw form."""
        labels, events = match.found.labels, match.events
        asked = self._places(labels)
        taken = [
            (label, fields(event) if at in asked else _NOTHING, self._context(event))
            for at, (label, (_, event)) in enumerate(zip(labels, events, strict=True))
        ]
        if self.measures is not None and self._views is not None:
            found = self.measures(self._views.read(taken))
        else:
            found = {}
            for at, element in enumerate(self.pattern.elements):
                if not element.negative:
                    here = [raw for each, raw, _ in taken if each == at]
                    found[element.name] = here if element.multiple else here[0] if here else None
        who = self.identity(match) if self.identified else b""
        found[MATCH] = {"identity": who, "time": match.time, "uncertain": uncertain}
        return found

    def _context(self, event: Event) -> EventContext | None:
        """Where an event is from, if a measure says so."""
        if not self._says_where:
            return None
        return EventContext(event.source, event.node, event.seq, event.published)

    def identity(self, match: Match) -> bytes:
        """Who it is."""
        return identity_of(self.pattern, self.fingerprint, match.events, match.deadline)


__all__ = ["Measures", "Results"]
