"""Services of a node: what lives as long as it does, and is started, drained, stopped and reported with it.

A room that gives a node something of its own (a log, a naming service, triggers) makes a `Service`, and adds it:
`node.services.add(...)`. The node knows no more of it than what is here.

    start       when the node is there, and before others can reach it; at once, if it is added later
    drain       when the node is closed and may take its time: end what is under way, while everything else still works
    stop        at the end: sinks have had their events, and no other node is heard any more
    report      what `node.report().services` says of it
    requests    what other nodes may ask of it (`federation/peers/request_registry.py`)
    posts       what other nodes may say to it, without an answer (`federation/peers/post_registry.py`)

Services start in the order in which they were added, and drain and stop in the opposite one. One that fails to drain,
stop or report keeps no other from doing so, and no node from closing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from headwater.errors import ChannelError, ClosedError

log = logging.getLogger("headwater")


class Service:
    """What a service may do; each of it does nothing unless it is overridden."""

    name: str  # by which a report shows it, and others find it; one of each at a node

    @property
    def busy(self) -> bool:
        """Whether there is anything to drain."""
        return False

    def start(self) -> None:
        """Begin; what is raised here is raised to who opens the node, or adds the service."""

    def drain(self, until: float) -> None:
        """End what is under way, no later than `until`, by `time.monotonic`."""

    def stop(self) -> None:
        """Let go of everything. It may be called again, and without `start`."""

    def report(self) -> Mapping[str, Any]:
        """Plain values, by name. It must not wait for anything."""
        return {}

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        """Types of requests, and who answers them."""
        return ()

    def posts(self) -> Iterable[tuple[str, Callable[..., Any]]]:
        """Kinds of posts, and who takes them; whoever does must be quick, and wait for nothing."""
        return ()


S = TypeVar("S", bound=Service)


class Services:
    """Those of one node, by name, in the order in which they start."""

    def __init__(self, node: str, added: Callable[[Service], Callable[[], None]]) -> None:
        """`added` is told of each service; what it returns undoes that, should the service not start."""
        self._node, self._added = node, added
        self._all: dict[str, Service] = {}
        self._lock = threading.Lock()
        self._started = self._stopped = False

    def add(self, service: S) -> S:
        """Have the node keep a service; it is started as soon as the node is, and so at once if that is open."""
        with self._lock:
            if self._stopped:
                raise ClosedError(f"service {service.name!r}: node {self._node!r} is closed; open another")
            if service.name in self._all:
                raise ChannelError(f"service {service.name!r}: node {self._node!r} has one of that name already")
            self._all = {**self._all, service.name: service}
            started = self._started
        undo: Callable[[], None] | None = None
        try:
            undo = self._added(service)
            if started:
                service.start()
        except BaseException:
            with self._lock:
                self._all = {name: each for name, each in self._all.items() if each is not service}
            if undo is not None:
                undo()
            raise
        return service

    def get(self, name: str) -> Service | None:
        return self._all.get(name)

    def __getitem__(self, name: str) -> Service:
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[Service]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    # ── called by the node ──

    def start(self) -> None:
        with self._lock:
            self._started = True
            services = list(self._all.values())
        for service in services:
            service.start()

    @property
    def busy(self) -> bool:
        """Whether there is anything to drain, or one that cannot say."""
        return any(self._is_busy(service) for service in self)

    def drain(self, until: float) -> None:
        """All of them, also if one cannot: a node is closed whatever its services say."""
        for service in reversed(list(self)):
            try:
                if self._is_busy(service):
                    service.drain(until)
            except Exception:
                log.exception("node %s: service %r could not drain", self._node, service.name)

    def _is_busy(self, service: Service) -> bool:
        try:
            return bool(service.busy)
        except Exception:
            log.exception("node %s: service %r could not say whether it is busy", self._node, service.name)
            return True

    def stop(self) -> None:
        """All of them, also if one cannot; what the first of those has said is raised in the end."""
        with self._lock:
            self._stopped = True
        problem: Exception | None = None
        for service in reversed(list(self)):
            try:
                service.stop()
            except Exception as error:
                if problem is not None:
                    log.exception("node %s: service %r could not stop", self._node, service.name)
                problem = problem or error
        if problem is not None:
            raise problem

    def report(self) -> dict[str, Mapping[str, Any]]:
        return {service.name: self._report(service) for service in self}

    def _report(self, service: Service) -> Mapping[str, Any]:
        try:
            return service.report()
        except Exception as error:
            return {"problem": f"it could not report: {type(error).__name__}: {error}"}


__all__ = ["Service", "Services"]
