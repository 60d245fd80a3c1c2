"""Bring back connections that nobody else brings back.

Zenoh tries an endpoint of `connect` for ever, but a connection that came about through a third node (gossip) is not
tried again once it breaks: if the third node has died by then, two healthy nodes would stay apart for good. Here the
node that had dialled remembers where, and introduces the two again: a short-lived session connects to this node and
to the lost one, each learns of the other from it, and they connect as they did the first time.
The same is done for a node whose very first connection has failed.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import zenoh

from headwater.federation.endpoints import DATAGRAMS, STREAMS, Locator
from headwater.federation.fabric.settings import matchmaker_config, plain
from headwater.threads import PROCESS, Crashes, Supervised

log = logging.getLogger("headwater.federation")
FIRST_PAUSE_SECONDS = 0.25  # before the first attempt, and its length
LONGEST_PAUSE_SECONDS = 30.0  # the pause between attempts doubles up to this
FORGET_SECONDS = 86_400.0  # after which a lost node is given up
_INTRODUCING = threading.Lock()  # one at a time in a process: see `session.one_at_a_time`
MOST_LOST = 64  # lost nodes that are looked for; the longest lost are given up first
_CHANCE = random.Random()  # not the one that programs seed


class Reunion:
    """Looks for lost nodes until they are back, in a thread that exists only while something is lost."""

    def __init__(
        self, config: Mapping[str, Any], homes: Sequence[Locator], name: str, crashes: Crashes = PROCESS
    ) -> None:
        self._crashes = crashes
        self._config = config
        self._home = homes[0]
        self._ports = {str(home.port) for home in homes if not home.unix}
        self._name = name
        self._links: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # Zenoh id -> connections there are now
        self._dialled: dict[str, str] = {}  # Zenoh id -> where it was dialled
        self._lost: dict[str, tuple[str, float]] = {}  # Zenoh id -> where, and since when
        self._known = set(config["connect"]["endpoints"])
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = False
        self.attempts = 0

    def connected(self, zid: str, source: str, destination: str) -> None:
        """A connection is there; `source` tells whether this node dialled (else it is the other's to bring back).

        Zenoh says twice of one that comes while it is asked which there are: so they are known by their ends."""
        with self._lock:
            self._links[zid].add((source, destination))
            found = self._lost.pop(zid, None)
            for endpoint in self._known:  # with the first connection the others are found, or Zenoh tries again
                found = self._lost.pop(endpoint, None) or found
            if found is not None:
                self._change.notify_all()
            networked = destination.partition("/")[0] in (*STREAMS, *DATAGRAMS)
            if networked and source.rpartition(":")[2] not in self._ports and destination not in self._known:
                self._dialled[zid] = destination

    def disconnected(self, zid: str, source: str, destination: str) -> None:
        """A connection is gone; look for its node if it was the last one, and this one had dialled.

        If both had dialled there were two for a moment, and one of them was closed: nothing is lost with that."""
        with self._lock:
            self._links[zid].discard((source, destination))
            if self._links[zid]:
                return
            del self._links[zid]
            where = self._dialled.pop(zid, None)
            if where is None or self._closed:
                return
            self._lost[zid] = (where, monotonic())
            while len(self._lost) > MOST_LOST:
                del self._lost[next(iter(self._lost))]
            self._look()

    def begin(self) -> None:
        """Until the first connection is there: Zenoh does not try an endpoint again whose very first connection was
        accepted and closed at once."""
        with self._lock:
            if self._known and not self._closed:
                self._lost.update((endpoint, (endpoint, monotonic())) for endpoint in self._known)
                self._look()

    def _look(self) -> None:
        self._change.notify_all()
        if self._thread is None or not self._thread.is_alive():
            thread = Supervised(self._run, f"{self._name}-reunion", self._crashes, again=lambda: not self._closed)
            thread.start()
            self._thread = thread  # only now: had no thread begun, the next loss must try again

    @property
    def lost(self) -> tuple[str, ...]:
        """Where the nodes were that are looked for."""
        with self._lock:
            return tuple(where for where, _ in self._lost.values())

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            with self._lock:
                seen = set(self._lost)
                self._change.wait_for(lambda: self._closed, pause * _CHANCE.uniform(1.0, 2.0))  # not all nodes at once
                now = monotonic()
                self._lost = {zid: kept for zid, kept in self._lost.items() if now - kept[1] < FORGET_SECONDS}
                if self._closed or not self._lost:
                    self._thread = None
                    return
                pause = FIRST_PAUSE_SECONDS if set(self._lost) - seen else min(2 * pause, LONGEST_PAUSE_SECONDS)
                wanted = sorted({where for where, _ in self._lost.values()})
            self._introduce(wanted)

    def _introduce(self, wanted: list[str]) -> None:
        """Connect to both sides for a moment; whether they found each other shows in `connected`."""
        with _INTRODUCING:
            if not self._closed:
                self._introduce_now(wanted)

    def _introduce_now(self, wanted: list[str]) -> None:
        self.attempts += 1
        session: Any = None
        try:
            session = zenoh.open(self._session_config(wanted))
            with self._lock:
                before = len(self._lost)
                self._change.wait_for(lambda: self._closed or len(self._lost) < before, 2 * FIRST_PAUSE_SECONDS)
        except zenoh.ZError as error:
            log.debug("%s: the nodes at %s are not reached: %s", self._name, ", ".join(wanted), plain(error))
        finally:  # the next attempt may find more
            if session is not None:
                self._end(session)

    def _session_config(self, wanted: list[str]) -> zenoh.Config:
        return zenoh.Config.from_json5(json.dumps(matchmaker_config(self._config, self._home, wanted)))

    def _end(self, session: Any) -> None:
        """Zenoh may fail to close what it has opened, where many sessions come and go: the search goes on."""
        try:
            session.close()
        except zenoh.ZError as error:
            self._crashes.note(f"{self._name}-reunion: closing a session", error)

    def close(self) -> None:
        """End the search."""
        with self._lock:
            self._closed = True
            self._lost.clear()
            self._change.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
