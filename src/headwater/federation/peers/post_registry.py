"""The registry of posts: what a service of another node says to one of this node, one way and without an answer.

A post goes by the link that there is, direct or routed. It may be lost with that, and comes after those that were
posted before; nothing is sent again. A service that posts has messages that bear this: it takes a kind of them by
`Service.posts()`.

>>> registry.register_all([("weather", lambda peer, body: …)])

Who posts has proven who it is, as with every frame of its link. A kind that nobody takes here is counted, and no
offence, since its sender may be newer. What comes faster than anybody needs it is dropped: posts may be lost anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any, Protocol

from headwater.errors import FederationError
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Post

RATE = 20_000  # posts of one peer in a second; and of their bytes, so many
RATE_BYTES = 32 << 20
Taker = Callable[[Any, bytes], object]


class Allowance:
    """How much one peer may still post: what is not used up within a second is not saved."""

    def __init__(self) -> None:
        self._since, self._posts, self._bytes = monotonic(), 0, 0

    def take(self, size: int, now: float) -> bool:
        """Whether one more is let through."""
        if now - self._since >= 1.0:
            self._since, self._posts, self._bytes = now, 0, 0
        self._posts += 1
        self._bytes += size
        return self._posts <= RATE and self._bytes <= RATE_BYTES


class Bounded:
    """Who takes posts that the two ends bound themselves, by what has been acknowledged: no rate is put on them."""

    def __init__(self, taker: Taker) -> None:
        self._taker = taker

    def __call__(self, peer: Any, body: bytes) -> object:
        return self._taker(peer, body)


class Correspondent(Protocol):
    """As much of a peer as is needed here."""

    link: Any
    allowance: Allowance

    def say(self, frame: bytes) -> None:
        """A frame beside the events."""
        ...


class PostRegistry:
    """Of one node. The threads that read links are here."""

    def __init__(self) -> None:
        self._takers: dict[str, Taker] = {}
        self.came: Counter[str] = Counter()  # by kind
        self.unknown = self.dropped = 0

    def register_all(self, posts: Iterable[tuple[str, Taker]]) -> Callable[[], None]:
        """Have posts of some kinds taken, all or none; calling what is returned takes that away again."""
        made = dict(posts)
        if known := made.keys() & self._takers.keys():
            raise FederationError(f"posts {', '.join(sorted(known))} are taken already; each kind is, by one")
        self._takers = {**self._takers, **made}
        return partial(self._forget, frozenset(made))

    def _forget(self, kinds: frozenset[str]) -> None:
        self._takers = {kind: taker for kind, taker in self._takers.items() if kind not in kinds}

    def deliver(self, peer: Correspondent, kind: str, body: bytes) -> None:
        """A post of another node, to whom it is for."""
        taker = self._takers.get(kind)
        if taker is None:
            self.unknown += 1
            return
        if not isinstance(taker, Bounded) and not peer.allowance.take(len(body), monotonic()):
            self.dropped += 1
            return
        self.came[kind] += 1
        taker(peer, body)


def frame_of(kind: str, body: bytes) -> bytes:
    """A post as a frame, for who has it sent by itself."""
    return wire.encode_control(Post(kind, body))


def post(peer: Correspondent, kind: str, body: bytes) -> bool:
    """Say something to a peer's service; whether there is a link that may bring it there."""
    if peer.link is None:
        return False
    peer.say(wire.encode_control(Post(kind, body)))
    return True


__all__ = ["Allowance", "Bounded", "PostRegistry", "frame_of", "post"]
