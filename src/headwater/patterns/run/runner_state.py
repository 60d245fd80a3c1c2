"""What is kept of a run: its engine's state, the events that are held, rows that wait, and what was found.

A snapshot may come from anyone: whatever it leads to is looked at before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError
from headwater.patterns import model
from headwater.patterns.engine.found import Found
from headwater.patterns.run.events import Events
from headwater.patterns.run.matches import Counts
from headwater.patterns.run.order import FOR_EVER, Order, Waiting

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(list[Any])
_WRONG = (ValueError, TypeError, IndexError, KeyError, OverflowError, msgspec.MsgspecError)


class Kept(NamedTuple):
    """What a run is made of. `found` are matches that were not asked for yet, `blind` stretches of time of which not
    all events are known."""

    engine: Any
    events: Events
    order: Order
    found: list[Found]
    counts: Counts
    blind: list[tuple[int, int]]


def dump(it: Kept, live: list[int], channels: Mapping[str, model.Channel]) -> bytes:
    """As bytes; `live` are the numbers of the events that are held."""
    waiting = []
    for *place, letter, number, words, values in sorted(it.order.waiting):
        waiting.append([place, letter, number, list(words), list(values)])
    found = [[list(f.events), list(f.labels), f.time, f.deadline, list(f.key)] for f in it.found]
    state = [
        it.engine.name,
        it.engine.dump(),
        it.events.dump(live, channels),
        it.order.promises,
        list(it.order.released),
        waiting,
        found,
        [getattr(it.counts, name) for name in it.counts.__dataclass_fields__],
        it.blind,
    ]
    return _ENCODER.encode(state)


def load(data: bytes, it: Kept, channels: Mapping[str, model.Channel], elements: int, columns: int) -> Kept:
    """Put the state into engine, events and order of a new run; what that is made of then. `elements` are those of the
    pattern, `columns` the words of values that a row has."""
    try:
        name, engine, events, promises, released, waiting, matches, counts, blind = _DECODER.decode(data)
        if name != it.engine.name:
            raise ExecutionError(f"snapshot: expected the state of a {it.engine.name} engine, found {name!r}")
        it.engine.load(engine)
        it.events.load(events)
        rows = [Waiting(*place, *rest) for place, *rest in waiting]
        it.order.go_on(dict(promises), (released[0], released[1]), rows)
        made = it._replace(
            found=[Found(tuple(e), tuple(by), t, d, tuple(k)) for e, by, t, d, k in matches],
            counts=Counts(*counts),
            blind=[(int(start), int(upto)) for start, upto in blind],
        )
        _check(made, channels, range(elements), columns)
    except _WRONG as error:
        raise ExecutionError(f"snapshot: expected the state of a pattern, found something else: {error}") from None
    return made


def _check(it: Kept, channels: Mapping[str, model.Channel], elements: range, columns: int) -> None:
    """All events that runs, rows that wait and matches hold are there."""
    held = {number for found in it.found for number in found.events}
    held.update(row.number for row in it.order.waiting)
    held.update(it.engine.live_events().tolist())
    good = held <= it.events.numbers() and all(label in elements for f in it.found for label in f.labels)
    width = it.engine.keys.words
    for _, _, _, channel, letter, _, words, values in it.order.waiting:
        numbers = all(isinstance(word, int) and -FOR_EVER - 1 <= word <= FOR_EVER for word in (letter, *words, *values))
        good = good and numbers and len(words) == width and len(values) == columns and channel in channels
    if not good:
        raise ExecutionError("snapshot: expected events for all that is held, found others")


__all__ = ["Kept", "dump", "load"]
