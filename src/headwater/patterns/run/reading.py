"""The fields of many events at once: those that came in one batch are read together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.late import pa
from headwater.patterns import model
from headwater.patterns.run.events import Event, raw_of

Origin = tuple[str, str, int]


def read_together(channels: Mapping[str, model.Channel], events: Iterable[Event]) -> dict[Origin, dict[str, Any]]:
    """In raw form, by their origins: one by one, an event of a batch takes a hundred times as long."""
    found: dict[Origin, dict[str, Any]] = {}
    rows: dict[int, dict[int, Event]] = {}
    batches: dict[int, Any] = {}
    for event in events:
        if isinstance(event.data, tuple):
            batch, row = event.data
            batches[id(batch)] = batch
            rows.setdefault(id(batch), {})[row] = event
        else:
            found[event.origin] = raw_of(channels[event.channel], event)
    for which, wanted in rows.items():
        some = list(wanted.values())
        taken = batches[which].take(pa.array(list(wanted)))
        raw = channels[some[0].channel].type.arrow_to_raw(taken)
        found.update(zip((event.origin for event in some), raw, strict=True))
    return found


__all__ = ["read_together"]
