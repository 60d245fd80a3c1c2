"""A named pattern as its user holds it, wherever it runs: what `Node.pattern` returns in a federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.dispatch.thread_call import in_thread, nothing
from headwater.errors import ClosedError

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.patterns.operator import PatternOrder
    from headwater.channel.patterns.report import PatternReport
    from headwater.channel.patterns.subscription import NamedPattern
    from headwater.patterns.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Home:
    """The node that a pattern runs at, and why there."""

    node: str
    why: str
    far: bool = False  # another node than the one that wants it


@dataclass(frozen=True, slots=True)
class FarReport:
    """Of a pattern that runs at another node: where, why, and what that node says of it, by name."""

    name: str
    home: str
    why: str
    values: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**self.values, "name": self.name, "home": self.home, "why": self.why}

    def __str__(self) -> str:
        lines = [f"{what:<10} {value}" for what, value in self.values.items() if not isinstance(value, dict | list)]
        return "\n".join([f"pattern {self.name} runs at node {self.home}: {self.why}", *lines])


class Placing(Protocol):
    """Who places patterns, and speaks with the nodes that they run at."""

    def change(self, placed: PlacedPattern, params: Mapping[str, Any]) -> dict[str, int]: ...
    def values(self, placed: PlacedPattern) -> dict[str, Any]: ...
    def close(self, placed: PlacedPattern, *, forget: bool) -> None: ...


class PlacedPattern:
    """A pattern with a name. `home` says where it runs and why, `problem` why it has ended by itself, if it has;
    `moves`, how often it has changed its home. Its matches are events of `channel`."""

    def __init__(
        self,
        placing: Placing,
        name: str,
        pattern: Pattern,
        channel: Channel[Any],
        order: PatternOrder,
        home: Home,
        at: str | None = None,
    ) -> None:
        self.name, self.pattern, self.channel, self.order, self.home, self.at = name, pattern, channel, order, home, at
        self.local: NamedPattern | None = None  # where it runs here
        self.problem, self.closed, self.moves, self.since = "", False, 0, 0
        self.away: float | None = None  # since when the node that it runs at is not there
        self.asked: tuple[str, int] | None = None  # the run of the node that was asked to run it
        self.heard: set[tuple[str, int]] = set()  # runs of nodes that use the name for something else
        self._placing = placing

    def _check_open(self) -> None:
        if self.problem or self.closed:
            raise ClosedError(self.problem or f"pattern {self.name!r} was closed; make it again")

    def change(self, *, params: Mapping[str, Any]) -> dict[str, int]:
        """Other values of its parameters, at a point of every source; what was open is dropped, and counted."""
        self._check_open()
        if self.local is None:
            return self._placing.change(self, params)
        points: dict[str, int] = self.local.change(params=params)
        self.pattern = self.local.pattern
        return points

    async def achange(self, *, params: Mapping[str, Any]) -> dict[str, int]:
        """As `change`, from a coroutine: its loop goes on. Once begun it is done."""
        return await in_thread(lambda: self.change(params=params), stop=nothing)

    def report(self) -> PatternReport | FarReport:
        """What is going on in it, where it runs, and why there. What runs at another node is asked for there."""
        if self.local is not None:
            return replace(self.local.report(), home=self.home.node, why=self.problem or self.home.why)
        values = {} if self.closed else self._placing.values(self)
        return FarReport(self.name, self.home.node, self.problem or self.home.why, values)

    def close(self, *, forget: bool = False) -> None:
        """End it, wherever it runs. What is kept of it stays for when it is made again, unless it is to `forget`."""
        if not self.closed:
            self.closed = True
            self._placing.close(self, forget=forget)

    def keep(self) -> None:
        """Have its state written now, where it runs here and is kept."""
        keep = getattr(self.local, "keep", None)
        if keep is not None:
            keep()

    def __enter__(self) -> PlacedPattern:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}pattern {self.name!r} at node {self.home.node}>"


__all__ = ["FarReport", "Home", "PlacedPattern"]
