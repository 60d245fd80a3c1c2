"""Since when a node hears all that it wants of another one's sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

# Of a node, of what it remembers to have been asked for, and of its channel; and when something was last not heard that
# gateways there pass on.
Life = tuple[int, int, int, int]
NEVER = 1 << 62  # nanoseconds: it is not known since when all that is wanted is heard


class Neighbour(Protocol):
    """Another node, as far as one has to know what has become of it."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def gone(self) -> float | None: ...
    @property
    def parted(self) -> bool:
        """Whether it has said goodbye, with all that it had sent."""
        ...

    @property
    def described(self) -> bool:
        """Whether it has said what it has."""
        ...

    @property
    def sources(self) -> Sequence[Any]: ...
    def log(self, channel: str) -> str:
        """The log of a channel there, if there is one."""
        ...

    def gap(self, channel: str) -> tuple[int, int]:
        """Of a channel, when something was last not heard that gateways there pass on, and since when all is."""
        ...


class Hearing(NamedTuple):
    """What is heard of one channel from another node. In one `life` of it there is no gap; `since` is the time there,
    in nanoseconds, from which all that is wanted comes, and `first` says that nothing was published before. That holds
    once it is `in_force`."""

    place: str
    name: str  # for people
    node: Neighbour
    life: Life
    since: int
    first: bool
    refused: bool  # nothing of it comes, and nothing will
    in_force: Callable[[], bool]
    judged: int = 0  # how often policies there have come to something else: some of it may not have come meanwhile


__all__ = ["NEVER", "Hearing", "Life", "Neighbour"]
