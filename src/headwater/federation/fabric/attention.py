"""Which nodes' signs of life and news a node hears, where it does not hear those of all.

In a federation of few nodes each hears all others. Where there are many, a node attends to those that it deals with
(`Network(acquaintance="named")`): it asks Zenoh for their tokens and their news only, and so neither learns nor keeps
anything of the rest. Whom it deals with, others say: the naming service, and whoever has asked this node something.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import zenoh

from headwater.federation.fabric.settings import plain

log = logging.getLogger("headwater.federation")
MOST_ATTENDED = 65_536  # nodes; those of more are not heard
_ANY = ".$*"  # any fingerprint


class Attention:
    """Of one node. `token_handler` and `news_handler` make what Zenoh calls, for each session anew. `attend` and
    `ignore` may be called anywhere: `soon` has something done in a thread in which Zenoh can be waited for."""

    def __init__(
        self,
        root: str,
        token_handler: Callable[[], Any],
        news_handler: Callable[[], Any],
        soon: Callable[[Callable[[], None]], object],
        forget: Callable[[str], None],
    ) -> None:
        """`forget` is told that nothing more is heard of a node: that it is there is not known any longer."""
        self._root, self._token_handler, self._news_handler, self._soon = root, token_handler, news_handler, soon
        self._forget = forget
        self._lock = threading.Lock()
        self._wanted: dict[str, None] = {}  # parts of keys: an id, or a name and `.$*`
        self._declared: dict[str, list[Any]] = {}
        self._session: Any = None

    @property
    def attended(self) -> frozenset[str]:
        """Those that it attends to, as parts of keys."""
        with self._lock:
            return frozenset(self._wanted)

    def begin(self, session: Any) -> None:
        """There is a session: nothing is declared in it yet."""
        with self._lock:
            self._session = session
            self._declared.clear()
            wanted = list(self._wanted)
        for key in wanted:
            self._declare(key)

    def attend(self, key: str) -> None:
        """Hear of a node from now on."""
        with self._lock:
            if key in self._wanted or len(self._wanted) >= MOST_ATTENDED:
                return
            self._wanted[key] = None
        self._soon(lambda: self._declare(key))

    def ignore(self, key: str) -> None:
        """Hear of it no more."""
        with self._lock:
            self._wanted.pop(key, None)
        self._soon(lambda: self._undeclare(key))

    def _declare(self, key: str) -> None:
        """Ask Zenoh for what it says, if that is still wanted, and was not asked for."""
        with self._lock:
            session = self._session
            if session is None or key not in self._wanted or key in self._declared:
                return
            made = self._declared[key] = []
        try:
            if not key.endswith(_ANY):  # who is found by its name is attended to by its id from then on
                made.append(session.declare_subscriber(f"{self._root}/news/{key}", self._news_handler()))
            live = session.liveliness()
            made.append(live.declare_subscriber(f"{self._root}/alive/{key}/*", self._token_handler(), history=True))
        except zenoh.ZError as error:  # the session is ended: the next one begins anew
            log.debug("signs of life of %s: %s", key, plain(error))

    def _undeclare(self, key: str) -> None:
        """Should it be wanted again by now, Zenoh is asked anew: it says only once that a node is there."""
        with self._lock:
            made = self._declared.pop(key, [])
        for each in made:
            try:
                each.undeclare()
            except zenoh.ZError as error:
                log.debug("signs of life of %s: %s", key, plain(error))
        self._forget(key)
        self._declare(key)


def any_of_name(name: str) -> str:
    """The part of a key that stands for all nodes of a name, whatever key they have."""
    return f"{name}{_ANY}"


__all__ = ["Attention", "any_of_name"]
