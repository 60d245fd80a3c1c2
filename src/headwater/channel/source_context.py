"""The context of a source: values of its process that interests at the source may read, and no event carries.

A change of them takes effect between two events of the source: all interests judge the event before it by the old
values and the event after it by the new ones. What they were is remembered for a while, so that events which are judged
again later (for sinks that come with the past, and for peers that catch up) are judged as they were; it is in no log.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headwater.errors import ChannelError, ClosedError, EncodeError, HeadwaterError
from headwater.interest import as_event_type
from headwater.ir import context as contexts
from headwater.spelling import did_you_mean
from headwater.types import Event, event_type
from headwater.types.model import Record, promote

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource

log = logging.getLogger("headwater")
MOST = 16_384  # changes that are remembered; what was before them is not known any more


class Context:
    """Made by `channel.source(context=…)`, and found as `source.context`. Threads may share it."""

    def __init__(self, record: Record, given: Mapping[str, Any]) -> None:
        self.record = record
        self._type = event_type(record)
        self._values: Mapping[str, Any] = self._checked(dict.fromkeys(record.by_name), given)
        self._changing = threading.Lock()
        self._source: RoutedSource | None = None
        self._points: list[int] = []  # after these events,
        self._past: list[Mapping[str, Any]] = []  # these were the values
        self._began = 0  # the last event of its source before it
        self._told = False

    @property
    def values(self) -> Mapping[str, Any]:
        """All of them, by name, as they are now; None for what is missing."""
        return self._values

    def __getitem__(self, name: str) -> Any:
        self._must_have([name])
        return self._values[name]

    def set(self, values: Event | Mapping[str, Any] | None = None, /, **more: Any) -> int:
        """Other values, some or all, from the next event on: the sequence number of the last event before that.

        Where any of them does not fit its type nothing is changed (`EncodeError`)."""
        given = {**_plain(values), **more}
        with self._changing:
            made = self._checked(self._values, given)
            source = self._source
            if source is None:  # it is not advertised yet
                self._values = made
                return 0
            with source.lock:
                if source.closed:
                    raise ClosedError(f"{source}: its context cannot be changed: it is closed")
                point = source.seq
                self._hold(point, made)
            return point

    def begin(self, source: RoutedSource) -> None:
        """The source is there: what it publishes from now on has this context."""
        self._source, self._began = source, source.seq
        self._hold(source.seq, self._values)

    def _hold(self, point: int, values: Mapping[str, Any]) -> None:
        self._values = values
        if self._points and self._points[-1] == point:
            self._past[-1] = values  # no event has had what was before
            return
        self._points.append(point)
        self._past.append(values)
        if len(self._points) > MOST:
            del self._points[0], self._past[0]

    def pieces(self, seqs: Any) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
        """Of events with these numbers, ascending: places up to which (exclusive) they have had the same values, and
        which those are; None where that is not known any more."""
        while True:  # the lists grow, and lose their beginning, while others read
            points, past = list(self._points), list(self._past)
            if len(points) == len(past):
                break
        numbers, done = seqs.tolist(), 0
        if not self._told and numbers and points and max(numbers[0], self._began + 1) <= points[0]:
            self._told = True
            log.warning(
                "%s: its context for events up to %d is not known any more, since it has changed %d times since: "
                "interests that read it are undecided there", self._source, points[0], len(points),
            )  # fmt: skip
        for point, values in zip(points, [None, *past[:-1]], strict=True):
            end = bisect_left(numbers, point + 1)
            if end > done:
                yield end, values
                done = end
        if done < len(numbers):
            yield len(numbers), past[-1] if past else None

    def _checked(self, before: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        self._must_have(given)
        try:
            event = self._type.decode(self._type.encode({**before, **given}))
        except EncodeError as error:
            raise EncodeError("", f"context: {error}") from None
        return MappingProxyType({name: getattr(event, name) for name in self.record.by_name})

    def _must_have(self, names: Any) -> None:
        for name in names:
            if name not in self.record.by_name:
                hint = did_you_mean(name, self.record.by_name) or f"it has {', '.join(self.record.by_name)}"
                raise EncodeError("", f"context: no value {name!r}; {hint}")

    def __repr__(self) -> str:
        return f"<Context {', '.join(f'{name}={value!r}' for name, value in self._values.items())}>"


def _plain(values: Any) -> Mapping[str, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return values
    if isinstance(values, Event):
        return {name: getattr(values, name) for name in event_type(values.__class__).record.by_name}
    raise EncodeError("", f"context: expected an event of its type, a dict or keywords, found {values!r}")


def declared(channel: str, event: Record | None, given: Any) -> Record:
    """The type of the contexts of a channel's sources, from an event class or a declaration; ChannelError."""
    if event is None:
        raise ChannelError(f"channel {channel!r}: context: expected a channel with a type, found one of bytes")
    if contexts.FIELD in event.by_name:
        raise ChannelError(
            f"channel {channel!r}: context: expected events without a field of that name, found one; rename it"
        )
    try:
        return contexts.check(as_event_type(given).record)
    except HeadwaterError as error:
        raise ChannelError(f"channel {channel!r}: {error}") from None


def context_of(channel: str, event: Record | None, known: Record | None, given: Any) -> Context:
    """The context of a new source: an event whose fields are its values, or a dict of some values that the channel's
    context has. ChannelError names what does not fit."""
    if isinstance(given, Event):
        record = declared(channel, event, given.__class__)
    elif isinstance(given, Mapping) and known is not None:
        record = known
    elif isinstance(given, Mapping):
        raise ChannelError(
            f"channel {channel!r}: context: expected one whose type is known, found a dict; give an event, or declare "
            "the channel with context="
        )
    else:
        raise ChannelError(f"channel {channel!r}: context: expected an event or a dict of values, found {given!r}")
    for name, field in record.by_name.items():
        there = None if known is None else known.by_name.get(name)
        if there is not None and promote(there.type) != promote(field.type):
            raise ChannelError(
                f"channel {channel!r}: context: {name}: expected {there.type}, as the channel has it, found "
                f"{field.type}"
            )
    return Context(record, _plain(given))


__all__ = ["MOST", "Context", "context_of", "declared"]
