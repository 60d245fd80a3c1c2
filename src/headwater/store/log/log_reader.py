"""What reads a log, wherever it is: one protocol, which a folder's log and those of other nodes both have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from headwater.interest import Interest
from headwater.store.log.reader import Span
from headwater.types import EventType


class Batches(Protocol):
    """RecordBatches, as they are read."""

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def removed(self) -> list[tuple[int, int]]:
        """First and last number of what was asked for and not there any more when it was read."""


class LogReader(Protocol):
    """A log that can be read: `LogFiles` for one in a folder, `LogClient` for those of other nodes."""

    def channels(self) -> list[str]:
        """Those with a log."""

    def type(self, channel: str) -> EventType | None:
        """A channel's event type; None for bytes."""

    def schema(self, channel: str) -> Any:
        """What `read` gives without an interest: the log's own columns, then the fields."""

    def sources(self, channel: str) -> list[Span]:
        """What there is of each source of a channel."""

    def read(
        self,
        channel: str,
        node: str | None = None,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
        *,
        interest: Interest | None = None,
        columns: Any = None,
    ) -> Batches:
        """Events of a channel, or only of a node or a source: of each source, in their order, those with
        after < event_seq <= upto; and of these, where an interest is given, those that pass it."""


class Several:
    """What is read of several sources, one after another. Each is asked for when the one before it has ended."""

    def __init__(self, reads: Iterable[Callable[[], Batches]]) -> None:
        self._reads = reads
        self._begun: list[Batches] = []

    def __iter__(self) -> Iterator[Any]:
        for read in self._reads:
            self._begun.append(batches := read())
            yield from batches

    @property
    def removed(self) -> list[tuple[int, int]]:
        """As of each of them, so far."""
        return [each for batches in self._begun for each in batches.removed]


def spans_of(log: LogReader, channel: str, node: str | None, source: str | None) -> list[Span]:
    """What a log has of the sources that are asked for."""
    found = log.sources(channel)
    return [each for each in found if node in (None, each.node) and source in (None, each.source)]


__all__ = ["Batches", "LogReader", "Several", "spans_of"]
