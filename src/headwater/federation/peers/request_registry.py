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
from functools import partial
from typing import TYPE_CHECKING, Any

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


class Postponed:
    """The answer to a request that takes its time: `begin` is called with a function that answers, which it has called
    once, from any thread, in the end. Requests come in one thread, in which nobody may wait."""

    def __init__(self, begin: Callable[[Callable[[Reply], None]], None]) -> None:
        self.begin = begin


Answer = Callable[[Caller, Any], Reply | Postponed]


class UnknownRequest(FrameError):
    """A request of a type that nobody here answers. It is refused; it is no offence, since its sender may be newer."""


class RequestRegistry:
    """Of one node. Types are registered while it starts, or by a service that comes later; threads may share it."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._known: dict[str, tuple[Callable[[bytes], Any], Answer]] = {}

    def register(self, type: type[Request], answer: Answer) -> None:
        """Have requests of a type answered by a function, which may raise: who asks is told what."""
        self.register_all([(type, answer)])

    def register_all(self, requests: Iterable[tuple[type[Request], Answer]]) -> Callable[[], None]:
        """The same for several, all or none; calling what is returned takes them away again."""
        made: dict[str, tuple[Callable[[bytes], Any], Answer]] = {}
        for type, answer in requests:
            kind = str(type.__struct_config__.tag)
            if kind in self._known or kind in made:
                raise FederationError(
                    f"node {self._node}: requests {kind!r} are answered already; each type is, by one"
                )
            made[kind] = decoder(type), answer
        self._known = {**self._known, **made}
        return partial(self._forget, made.keys())

    def _forget(self, kinds: Iterable[str]) -> None:
        gone = set(kinds)
        self._known = {kind: found for kind, found in self._known.items() if kind not in gone}

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

    def answer(self, caller: Caller, request: Request) -> Reply | Postponed:
        """What its function says to a request that was decoded here."""
        kind = str(request.__struct_config__.tag)
        if kind not in self._known:
            raise FederationError(f"requests {kind!r} are not answered any more")
        return self._known[kind][1](caller, request)
