"""The endpoints that a node was told to connect to: whether somebody is reached at each, since when, and why not.

Zenoh tries each of them for ever, and says nothing about it. Here its connections are compared with the endpoints. For
one that is not reached a connection of our own is tried now and then, which is closed at once: the system says then
why not. What is found is in `node.federation_report()`; `node.ready()` waits for endpoints that were never reached; and
the log says once that one is not reached, once that it is, and once that it was lost.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from ipaddress import IPv6Address, ip_address
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from headwater.federation.endpoints import DATAGRAMS, Locator, parse_locator, resolve
from headwater.federation.transport.addresses import own_addresses
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.fabric.fabric import Fabric

log = logging.getLogger("headwater.federation")
GRACE_SECONDS = 2.0  # after which it is said that an endpoint is not reached, or was lost
PROBE_SECONDS = 1.0  # for which a connection is tried
TELL_SECONDS = 2.0  # after which an endpoint is spoken of even if it is not known yet why it is not reached
TRIED_AT_ONCE = 16  # endpoints
LONGEST_PAUSE_SECONDS = 30.0  # between two of those, which doubles up to this
BESIDE_SECONDS = 15.0  # for which one that takes connections is waited for, where a node of its host is reached
QUIET_SECONDS = 60.0  # between two records of the log that say of one endpoint that it was lost

SILENT = "somebody listens there, but is no node that lets this one in: another program, or security that does not fit"
UNPROBED = "nobody answers there"
BESIDE = (
    "somebody listens there, and a node of that host is reached at {}: nothing is missing if it is the same one; else "
    "it is another program, or security that does not fit"
)

LOOPBACK = frozenset({"127.0.0.1", "::1"})  # of "localhost"
Address = tuple[str, str, int]  # protocol, host, port; of a Unix socket its path as the host


class Contact:
    """One endpoint of `connect`. All changes are made under the lock of `Contacts`."""

    def __init__(self, endpoint: Locator) -> None:
        self.endpoint = endpoint
        self.reached = self.ever = False
        self.since = monotonic()
        self.losses = 0
        self.reason = ""
        self.accepts = False  # a connection of our own was accepted there, when it was tried last
        self.accepting = inf  # since when that is so
        self.hosts: frozenset[str] = frozenset() if endpoint.unix else frozenset({_plain(endpoint.host)})
        self.busy, self.tried = False, 0.0  # a connection of our own is tried now; and when that was begun last
        self.told = False  # the log has been told that it is not reached
        self.lost_told = -QUIET_SECONDS  # when it was told last that it was lost

    @property
    def written(self) -> str:
        return self.endpoint.written or str(self.endpoint)

    def at(self, address: Address) -> bool:
        """Whether an address is this endpoint's."""
        protocol, host, port = address
        endpoint = self.endpoint
        if endpoint.unix:
            return protocol == "unix" and host == endpoint.address
        return (protocol, port) == (endpoint.protocol, endpoint.port) and (host in self.hosts or endpoint.wildcard)

    def __str__(self) -> str:
        seconds = monotonic() - self.since
        if self.reached:
            return f"{self.written} is reached for {seconds:.1f} s"
        state = f"lost {seconds:.1f} s ago" if self.ever else f"not reached for {seconds:.1f} s"
        return f"{self.written}, to connect to, is {state}: {self.reason or 'no answer yet'}"


class Contacts:
    """All endpoints of `connect` of a node, but for its own: nodes may share one list."""

    def __init__(self, context: Context, fabric: Fabric) -> None:
        self._context, self._fabric = context, fabric
        self._client = context.network.client
        self._lock = threading.Lock()
        self._all = [Contact(each) for each in dict.fromkeys(context.network.connect_to)]
        # With passwords, of two connections that two nodes have made to each other Zenoh keeps one, whichever.
        self._one_of_two = context.security.user is not None
        self._links: set[tuple[str, Address | None, Address]] = set()  # Zenoh id, the near and the far end
        self._homes: list[Locator] = []  # where this node listens
        self._ports: set[int] = set()
        self._pause = GRACE_SECONDS
        self._due = inf  # when they are examined next

    def start(self) -> None:
        """The node has begun to listen, and to connect."""
        found = [parse_locator("", each) for each in self._fabric.endpoints]
        self._homes = [each for each in found if isinstance(each, Locator)]
        with self._lock:
            self._ports = {each.port for each in self._homes if not each.unix}
            self._all = [each for each in self._all if not self._is_plainly_own(each)]
            named = [each for each in self._all if not each.endpoint.unix and not _is_address(each.endpoint.host)]
        for each in named:
            self._aside(partial(self._resolve_one, each))
        if self._all:
            self._schedule(GRACE_SECONDS)

    def _is_plainly_own(self, contact: Contact) -> bool:
        hosts = LOOPBACK if contact.endpoint.host.lower() == "localhost" else contact.hosts
        return any(_is_own(contact.endpoint, home, hosts) for home in self._homes)

    def all(self) -> list[Contact]:
        with self._lock:
            return list(self._all)

    def awaited(self, enough: int | None = None) -> list[Contact]:
        """Those that were never reached, but for what is most likely another endpoint of a node that is: between two
        nodes there is one connection. A client has one at a time altogether: one endpoint is enough for it. None, if
        as many were reached as are `enough`."""
        now = monotonic()
        with self._lock:
            if enough is not None and sum(each.ever for each in self._all) >= min(enough, len(self._all)):
                return []
            found = [each for each in self._all if not each.ever and not self._is_likely_other(each, now)]
            return [] if self._client and len(found) < len(self._all) else found

    def unmet(self, sessions: Collection[str], since: float) -> list[Contact]:
        """Those that are reached since a time, or later, and where the session is none of these: who is there has not
        said anything yet."""
        with self._lock:
            found = [each for each in self._all if each.reached and each.since >= since]
            return [each for each in found if not self._sessions_at(each) & set(sessions)]

    def _sessions_at(self, contact: Contact) -> set[str]:
        return {session for session, _, far in self._links if contact.at(far)}

    # ── connections, in threads of Zenoh ──

    def reset(self) -> None:
        """Zenoh's session is opened, or opened anew: there are no connections."""
        with self._lock:
            self._links.clear()
        self._compare()

    def linked(self, there: bool, zid: str, source: str, destination: str) -> None:
        """There is a connection, or it is no more."""
        near, far = parse_locator("", source), parse_locator("", destination)
        if not isinstance(far, Locator) or not self._all:
            return
        link = zid, _address(near) if isinstance(near, Locator) else None, _address(far)
        with self._lock:
            (self._links.add if there else self._links.discard)(link)
        self._compare()
        if there and self._one_of_two and not self._dialled(link[1]):
            self._try(self._missing())

    def _compare(self) -> None:
        """Which endpoints are reached now."""
        now = monotonic()
        with self._lock:
            changed = [each for each in self._all if each.reached is not self._is_reached(each)]
            for each in changed:
                each.reached = not each.reached
                self._note(each, now)
        if changed:
            self._context.scheduler.changed()
            if any(not each.reached for each in changed):
                self._pause = GRACE_SECONDS
                self._schedule(GRACE_SECONDS)

    def _is_reached(self, contact: Contact) -> bool:
        if any(contact.at(far) for _, near, far in self._links if self._dialled(near)):
            return True
        if not self._one_of_two or not contact.accepts:
            return False
        return any(far[1] in contact.hosts for _, near, far in self._links if not self._dialled(near))

    def _is_likely_other(self, contact: Contact, now: float) -> bool:
        return now - contact.accepting >= BESIDE_SECONDS and self._beside(contact) is not None

    def _beside(self, contact: Contact) -> str | None:
        """Where else at the host of an endpoint a node is reached."""
        unix = contact.endpoint.unix  # whose sockets are all of one host
        found = (
            far
            for _, near, far in self._links
            if self._dialled(near) and (far[0] == "unix" if unix else far[1] in contact.hosts)
        )
        return next((host if protocol == "unix" else f"{host}:{port}" for protocol, host, port in found), None)

    def _dialled(self, near: Address | None) -> bool:
        """Whether this node has made a connection: it did so from a port at which it does not listen."""
        return near is None or near[2] not in self._ports

    def _note(self, contact: Contact, now: float) -> None:
        name, waited = self._context.name, now - contact.since
        contact.since = now
        if contact.reached:
            if not contact.ever or contact.told:
                log.info("node %s: %s is reached, after %.1f s", name, contact.written, waited)
            contact.ever, contact.told, contact.reason = True, False, ""
        else:
            contact.losses += 1
            contact.accepts = False
            contact.reason = "the connection was lost"

    # ── what is not reached ──

    def _schedule(self, seconds: float) -> None:
        """Examine what is missing so many seconds from now, unless that is to be done before."""
        due = monotonic() + seconds
        with self._lock:
            if due >= self._due:
                return
            self._due = due
        self._context.scheduler.later(seconds, partial(self._examine, due))

    def _missing(self) -> list[Contact]:
        with self._lock:
            missing = [each for each in self._all if not each.reached]
            return [] if self._client and len(missing) < len(self._all) else missing

    def _examine(self, due: float) -> None:
        """Try what is not reached, say so, and come again as long as there is any. In the keeper's thread."""
        with self._lock:
            if due != self._due:
                return  # it was done before
            self._due = inf
        missing = self._missing()
        if not missing or self._context.closing:
            return
        self._try(missing)
        for each in missing:  # a name may take the system a while
            self._context.scheduler.later(TELL_SECONDS, partial(self._tell, each))
        self._schedule(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def _try(self, missing: Iterable[Contact]) -> None:
        """Find out why they are not reached; who waited longest has the first turn."""
        with self._lock:
            chosen = sorted((each for each in missing if not each.busy), key=lambda each: each.tried)[:TRIED_AT_ONCE]
            for each in chosen:
                each.busy, each.tried = True, monotonic()
        for each in chosen:
            self._aside(partial(self._try_one, each))

    def _aside(self, task: Callable[[], object]) -> None:
        """In a thread that nobody waits for, also not the end of the program: names may take long to resolve."""
        node = self._context.node
        Supervised(task, f"headwater-{node.name}-contact", node._crashes).start()

    def _try_one(self, contact: Contact) -> None:
        reason, accepts, hosts = _probe(contact.endpoint)
        with self._lock:
            contact.busy = False
            contact.hosts |= hosts
            if not contact.reached:
                beside = self._beside(contact) if accepts else None
                contact.reason, contact.accepts = BESIDE.format(beside) if beside else reason, accepts
            first = accepts and contact.accepting == inf
            contact.accepting = min(contact.accepting, monotonic()) if accepts else inf
        self._compare()  # a name may resolve by now, or somebody have called who cannot be dialled
        if first:
            self._context.scheduler.later(BESIDE_SECONDS, self._context.scheduler.changed)
        self._tell(contact)

    def _resolve_one(self, contact: Contact) -> None:
        """An endpoint with a name can be compared with addresses; it may be this node's own."""
        try:
            found = frozenset(map(_plain, resolve(contact.endpoint)))
            own = any(_is_own(contact.endpoint, home, found) for home in self._homes)
        except OSError:
            return
        with self._lock:
            contact.hosts |= found
            if own:
                self._all = [each for each in self._all if each is not contact]
        self._compare()
        self._context.scheduler.changed()

    def _is_beside(self, contact: Contact) -> bool:
        with self._lock:
            return self._beside(contact) is not None

    def _tell(self, contact: Contact) -> None:
        """Log that a contact is not reached: once, after some time, and not again for one that comes and goes."""
        now, name = monotonic(), self._context.name
        with self._lock:
            if contact.reached or contact.told or now - contact.since < GRACE_SECONDS or self._context.closing:
                return
            if contact.ever and now - contact.lost_told < QUIET_SECONDS:
                return
            contact.told = True
            reason, seconds = contact.reason or "no answer yet", now - contact.since
            if contact.ever:
                contact.lost_told = now
        if contact.accepts and not contact.ever and self._is_beside(contact):
            log.warning("node %s: there is no connection to %s (connect): %s", name, contact.written, reason)
        elif contact.ever:
            log.warning(
                "node %s: %s was lost %.1f s ago: %s. It goes on trying", name, contact.written, seconds, reason
            )
        else:
            log.warning(
                "node %s: nobody is reached at %s (connect): %s. It goes on trying, and gets nothing from there until "
                "then; start a node that listens there, or correct `connect`",
                name, contact.written, reason,
            )  # fmt: skip


def _probe(endpoint: Locator) -> tuple[str, bool, frozenset[str]]:
    """Why nobody is reached; whether a connection is accepted all the same; and the addresses of the host."""
    hosts: frozenset[str] = frozenset()
    try:
        if endpoint.unix:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
                found.settimeout(PROBE_SECONDS)
                found.connect(endpoint.address)
            return SILENT, True, hosts
        hosts = frozenset(map(_plain, resolve(endpoint)))
        if endpoint.protocol in DATAGRAMS:
            return UNPROBED, True, hosts
        socket.create_connection((endpoint.host, endpoint.port), PROBE_SECONDS).close()
    except OSError as error:
        return _why(error), False, hosts
    return SILENT, True, hosts


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {PROBE_SECONDS:g} s"
    if error.errno == errno.ECONNREFUSED:
        return "nobody listens there (connection refused)"
    if error.errno == errno.ENOENT:
        return "there is no such socket"
    return os.strerror(error.errno) if error.errno else str(error)


def _is_own(endpoint: Locator, home: Locator, hosts: frozenset[str]) -> bool:
    """Whether an endpoint, whose host has these addresses, is where the node itself listens."""
    if endpoint.unix or home.unix:
        return endpoint.unix and home.unix and endpoint.address == home.address
    if (endpoint.protocol, endpoint.port) != (home.protocol, home.port):
        return False
    if home.wildcard:
        return endpoint.loopback or bool(hosts & frozenset(map(_plain, own_addresses())))
    return endpoint.host.lower() == home.host.lower() or bool(hosts & _addresses_of(home))


def _addresses_of(home: Locator) -> frozenset[str]:
    if home.host.lower() == "localhost":
        return LOOPBACK
    return frozenset({_plain(home.host)} if _is_address(home.host) else map(_plain, resolve(home)))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _address(endpoint: Locator) -> Address:
    if endpoint.unix:
        return "unix", endpoint.address, 0
    return endpoint.protocol, _plain(endpoint.host), endpoint.port


def _plain(host: str) -> str:
    """An address in the one form in which it is compared; a name as it is."""
    try:
        found = ip_address(host)
    except ValueError:
        return host.lower()
    return str((found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found)


__all__ = ["Contact", "Contacts"]
