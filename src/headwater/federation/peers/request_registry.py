"""The registry of requests: which types of request a node answers, and who in it does.

A room that lets other nodes ask it something declares a `Request` with the type of its answer, and registers a function
for it; a service does so by `requests()`. Who asks has proven who it is before the function is called.

>>> class Weather(Request, frozen=True, tag=True):
...     answer: ClassVar[Any] = Forecast
...     city: Name
>>> registry.register(Weather, lambda caller, request: Forecast(...))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import FederationError, FrameError
from headwater.federation.wire.requests import Reply, Request, decoder, kind_of
from headwater.version import VERSION

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer
    from headwater.federation.security.envelope import Opened
    from headwater.federation.security.rules import Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as it has proven: a node that is there."""

    peer: Peer
    opened: Opened

    @property
    def principal(self) -> Principal:
        return self.opened.principal


Answer = Callable[[Caller, Any], Reply]


class UnknownRequest(FrameError):
    """A request of a type that nobody here answers. It is refused; it is no offence, since its sender may be newer."""


class RequestRegistry:
    """Of one node. Types are registered while it starts, or by a service that comes later; threads may share it."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._known: dict[str, tuple[Callable[[bytes], Any], Answer]] = {}

    def register(self, type: type[Request], answer: Answer) -> None:
        """Have requests of a type answered by a function, which may raise: who asks is told what."""
        kind = msgspec.inspect.type_info(type).tag  # type: ignore[attr-defined]
        if kind in self._known:
            raise FederationError(f"node {self._node}: requests {kind!r} are answered already; each type is, by one")
        self._known = {**self._known, kind: (decoder(type), answer)}

    def register_all(self, requests: Iterable[tuple[type[Request], Answer]]) -> None:
        for type, answer in requests:
            self.register(type, answer)

    def decode(self, data: bytes) -> Request:
        """A request that is answered here; UnknownRequest or FrameError if it is none."""
        kind = kind_of(data)
        found = self._known.get(kind)
        if found is None:
            raise UnknownRequest(
                f"expected a request that node {self._node} (Headwater {VERSION}) answers, which are "
                f"{', '.join(sorted(self._known))}, found {kind!r}; it needs the service that answers this, or a newer "
                "version"
            )
        made: Request = found[0](data)
        return made

    def answer(self, caller: Caller, request: Request) -> Reply:
        """What its function says to a request that was decoded here."""
        kind = request.__struct_config__.tag
        return self._known[str(kind)][1](caller, request)
