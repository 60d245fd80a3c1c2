"""What a gateway promises of a source that it passes on: what its origin has promised, once all of that is passed on.

The origin says how far time has come, to whoever asks for its events; a gateway asks for that while somebody behind it
goes by time. It is told on only when nothing of that source waits here: the promise is read first, and what came before
it is in a relay's queue by then, or was passed on. An origin that is not known, or has said nothing, promises nothing;
one that has vanished, no more than it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.federation.arrive.acknowledgement import FOREVER

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source


class OriginPromise:
    """Of one source. `find` gives it, as the gateway's node on its side knows it; `holds` says whether something of it
    may not be passed on yet."""

    def __init__(self, find: Callable[[], Source | None], holds: Callable[[], bool]) -> None:
        self._find, self._holds = find, holds
        self._said: int | None = None  # what was promised so far stays promised

    def said(self) -> int | None:
        """Nothing is passed on any more that is older than this, in nanoseconds; None while that is not known."""
        source = self._find()
        time = None if source is None else _promised(source)
        if source is not None and time is not None and not self._holds():
            self._said = max(time, self._said or 0)
        return self._said

    def is_away(self) -> bool:
        """Whether its node is not there just now: who does not have to be certain need not wait for it."""
        source = self._find()
        return source is not None and source.promise == FOREVER and not self._holds()

    def come_to(self) -> tuple[int, int] | None:
        """The same of a source that publishes matches, for the times that those have of their own."""
        source = self._find()
        times = None if source is None or source.come_to is None else source.come_to()
        return None if source is None or times is None or self._holds() else times


def _promised(source: Source) -> int | None:
    """How far a source has come, of whose events all that are older have been put into queues."""
    if not source.local or source.relays:
        return source.said
    now = source._stamp()
    with source.between():  # it stamps under its lock: what is older has come
        return now


__all__ = ["OriginPromise"]
