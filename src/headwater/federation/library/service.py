"""The library as a service of its node: all of it is loaded, and its tables are opened, when somebody needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.channel.services import Service
from headwater.errors import HeadwaterError
from headwater.federation.library.asking import Network
from headwater.federation.wire import library_requests as wire
from headwater.federation.wire.library_requests import Named
from headwater.federation.wire.requests import Accepted

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.subscription import Subscription
    from headwater.federation.library.library import Library
    from headwater.federation.peers.request_registry import Caller
    from headwater.interest import Interest

ERROR_CHARACTERS = 2000  # of a refusal
_ANSWERS: tuple[tuple[Any, Callable[[Library], Callable[[Caller, Any], Any]]], ...] = (
    (wire.FetchEntry, lambda library: library.server.fetch),  # type: ignore[union-attr]
    (wire.PublishEntry, lambda library: library.server.publish),  # type: ignore[union-attr]
    (wire.WithdrawEntry, lambda library: library.server.withdraw),  # type: ignore[union-attr]
    (wire.ListEntries, lambda library: library.server.list),  # type: ignore[union-attr]
    (wire.ListRunning, lambda library: library.listing.answer),
    (wire.UpgradeEntry, lambda library: partial(library.upgrader.answer, partial(library.finder.find, fresh=True))),
)


class LibraryService(Service):
    """Of one node; without a `network` nobody asks it. It meets `NamedCode` and `NamedInterests`."""

    name = "library"

    def __init__(
        self, node: Node, network: Network | None = None, taken_up: Callable[[Subscription], bool] | None = None
    ) -> None:
        self._node, self._network = node, network
        self._taken_up = taken_up or (lambda subscription: True)
        self._lock = threading.Lock()
        self._library: Library | None = None
        self.refused = 0

    def opened(self) -> Library:
        """The library itself."""
        with self._lock:
            if self._library is None:
                from headwater.federation.library.library import Library

                self._library = Library(self._node, self._network, self._taken_up)
            return self._library

    def report(self) -> Mapping[str, Any]:
        """In numbers; nothing while nobody has needed it."""
        library = self._library
        return {} if library is None else {**library.report(), "requests refused": self.refused}

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return ((kind, partial(self._answer, answer)) for kind, answer in _ANSWERS)

    def _answer(self, answer: Callable[[Library], Callable[[Caller, Any], Any]], caller: Caller, request: Any) -> Any:
        """What is refused is said to who asks."""
        try:
            return answer(self.opened())(caller, request)
        except HeadwaterError as error:
            self.refused += 1
            return Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS])

    # ── wishes by name, of others and of this node ──

    def has(self, named: Named) -> bool:
        """Whether what a wish names is here, or comes with it."""
        return bool(named.document) or self.opened().held(named) is not None

    def interest(self, named: Named, params: Mapping[str, Any]) -> tuple[Interest[Any], int]:
        """The interest that a wish names, and the bytes of its code."""
        found = self.opened().taken(named)
        made = found.interest()
        return (made.given(params) if params else made), found.size

    def in_full(self, named: Named) -> Named | None:
        """With code and signature."""
        library = self.opened()
        library.finder.news.discard((named.name, named.version))
        found = library.held(named)
        if found is None:
            return None
        return Named(named.name, named.version, named.fingerprint, found.document, found.code)

    def is_new(self, named: Named) -> bool:
        """Whether it has only just been fetched."""
        return (named.name, named.version) in self.opened().finder.news


__all__ = ["LibraryService"]
