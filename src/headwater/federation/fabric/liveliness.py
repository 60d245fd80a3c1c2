"""Signs of life of the other nodes: Zenoh liveliness tokens. They prove nothing: who reaches Zenoh can make any."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import zenoh

from headwater.federation.fabric.settings import name_problem, plain

log = logging.getLogger("headwater.federation")
UNPROVEN_TOKENS = 1024  # signs of life that are kept of nodes that have proven nothing
INCARNATION_DIGITS = 20
VOUCH_SECONDS = 10.0  # for which the sign of life of a node is looked for that has proven to be there

Who = tuple[str, int]  # id and incarnation


class Liveliness:
    """Of one federation, as one node sees it, itself excluded. `key` is what keys of tokens begin with.

    `proven` says whether a run of a node has proven to be one: else its sign of life is only kept if there are not too
    many. `changed(there, who, proven)` is called in the order of changes, with the lock held: it must not wait."""

    def __init__(
        self,
        node: str,
        incarnation: int,
        key: str,
        proven: Callable[[str, int], bool],
        changed: Callable[[bool, Who, bool], None],
    ) -> None:
        self._me, self._key, self._proven, self._changed = (node, str(incarnation)), key, proven, changed
        self._lock = threading.Lock()
        self._alive: dict[Who, None] = {}
        self._unproven: set[Who] = set()  # of those
        self._vouching: dict[Who, bool] = {}  # whose token is looked for; True: it has gone meanwhile
        self._announced: set[Who] | None = None  # tokens seen since the session was opened anew
        self.ignored = 0  # signs of life beyond `UNPROVEN_TOKENS`
        self.nodes: dict[str, int] = {}  # id -> how many of its incarnations are alive

    @property
    def alive(self) -> frozenset[Who]:
        """The other nodes that are there now."""
        with self._lock:
            return frozenset(self._alive)

    @property
    def unproven(self) -> int:
        """How many of them have proven nothing yet."""
        return len(self._unproven)

    def is_alive(self, node: str, incarnation: int) -> bool:
        return (node, incarnation) in self._alive

    def took_token(self, sample: zenoh.Sample) -> None:
        """A token has come, or is gone; in Zenoh's thread."""
        *_, node, incarnation = str(sample.key_expr).split("/")
        if (node, incarnation) == self._me:
            return
        number = incarnation.isascii() and incarnation.isdigit() and len(incarnation) <= INCARNATION_DIGITS
        if name_problem("node", node) is not None or not number:
            return
        self._took((node, int(incarnation)), there=sample.kind == zenoh.SampleKind.PUT)

    def _took(self, who: Who, *, there: bool, vouched: bool = False) -> None:
        """A sign of life was put up or taken down. Those that nobody can vouch for are counted against a limit: anybody
        could put up as many as it likes."""
        node, proven = who[0], vouched or self._proven(*who)
        with self._lock:
            if there:
                if self._announced is not None:
                    self._announced.add(who)
                if vouched and self._vouching.get(who):
                    return  # it has gone while it was looked for
                if who in self._alive:
                    return
                if not proven and len(self._unproven) >= UNPROVEN_TOKENS:
                    self.ignored += 1
                    return
                self._alive[who] = None
                if not proven:
                    self._unproven.add(who)
                self.nodes[node] = self.nodes.get(node, 0) + 1
            else:
                if who in self._vouching:
                    self._vouching[who] = True
                if who not in self._alive:
                    return
                del self._alive[who]
                self._unproven.discard(who)
                self.nodes[node] -= 1
                if not self.nodes[node]:
                    del self.nodes[node]
            # Within the lock: what is queued there happens in the order in which `alive` changed.
            self._changed(there, who, proven)

    def forget(self, node: str) -> None:
        """Nothing is heard of a node any more, and so it is not known whether it is there; nobody is told."""
        with self._lock:
            for who in [each for each in self._alive if each[0] == node]:
                del self._alive[who]
                self._unproven.discard(who)
            self.nodes.pop(node, None)

    def begin_anew(self) -> None:
        """The session is ended, to be opened anew: what is not announced then has left meanwhile."""
        with self._lock:
            self._announced = set()

    def drop_unannounced(self) -> None:
        """Nodes that have left while the session was opened anew."""
        with self._lock:
            announced, self._announced = self._announced or set(), None
            gone = [who for who in self._alive if who not in announced]
        for who in gone:
            self._took(who, there=False)

    def vouch(self, session: Any, node: str, incarnation: int) -> None:
        """A node has proven to be one: its sign of life counts, also if it was ignored before."""
        who = node, incarnation
        with self._lock:
            self._unproven.discard(who)
            if session is None or who in self._alive or who in self._vouching:
                return
            self._vouching[who] = False

        def took(reply: zenoh.Reply) -> None:
            if reply.ok is not None:
                self._took(who, there=True, vouched=True)

        def ended() -> None:
            with self._lock:
                self._vouching.pop(who, None)

        try:
            handler = zenoh.handlers.Callback(took, ended, indirect=False)
            session.liveliness().get(f"{self._key}/{node}/{incarnation}", handler, timeout=VOUCH_SECONDS)
        except zenoh.ZError as error:
            log.debug("node %s: %s", self._me[0], plain(error))
            ended()


__all__ = ["Liveliness"]
