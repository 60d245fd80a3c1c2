"""Events over UDP multicast: one datagram serves all nodes that want what is in it.

    multicast = Multicast(HashedGroups(), on_datagram, federation="lab", node="dublin.1f2e3d4c", incarnation=17)
    group = multicast.address_map.group("ie.tcd.sighting")
    multicast.join(group)                        # a sink here wants something of it; the last `leave` ends that
    multicast.interested(group, "cork.5a6b7c8d")    # another node does: from now on there is a point in sending
    multicast.send(group, frame)                 # whole frames as on a stream; together at most `budget` bytes

Delivery is best effort. A gap in a source's sequence shows above, in the frames, and is repaired over a direct stream.
Nothing that arrives can stop the receiver: it is handed on, or counted and dropped.
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from ipaddress import AddressValueError, IPv4Address
from types import MappingProxyType

from headwater.channel.options.settings import Count, show
from headwater.errors import ClosedError, ConfigError, ConfigProblem, FederationError, FrameError
from headwater.federation.address_map import AddressMap, Group
from headwater.federation.multicast.datagram import (
    ETHERNET,
    HEAD,
    KEYED,
    LOOPBACK,
    MAGIC,
    MAX_DATAGRAM,
    OVERHEAD,
    VERSION,
    Counters,
    Datagram,
    Offence,
    ReceivedCounts,
    Seal,
    SentCounts,
    Window,
    federation_number,
    node_number,
    split,
)
from headwater.threads import Supervised

log = logging.getLogger(__name__)

MOST_SENDERS = 4_096  # windows kept; beyond that the one unused for longest goes
DATAGRAMS_PER_TURN = 64  # datagrams of one group before the others have their turn
SEND_SECONDS = 1  # a full send buffer may hold up a publisher
IP_MULTICAST_ALL = 49  # of Linux; Python has no name for it


class Multicast:
    """The sockets of one node for its federation's groups. `on_datagram` runs in the one thread that receives.

    `interface`: the IPv4 address of the network interface that is used.
    `key`: 16 to 64 bytes that all nodes of the federation know; required for anything but loopback.
    `accepts(node, incarnation)`: whether a sender is known; asked when one is heard first, in the receiving thread.
    `lose(counter)`: drop this datagram as if it had never arrived, for soak tests of what repairs the loss.

    There must be one such object for an incarnation of a node: counters start at 1.
    """

    def __init__(
        self,
        address_map: AddressMap,
        on_datagram: Callable[[Datagram], None],
        *,
        federation: str,
        node: str,
        incarnation: int,
        key: bytes | None = None,
        interface: str = "127.0.0.1",
        ttl: int = 1,
        datagram: int | None = None,
        receive_buffer: int = 4 << 20,
        accepts: Callable[[int, int], bool] | None = None,
        lose: Callable[[int], bool] | None = None,
    ) -> None:
        _check(address_map, incarnation, key, interface, ttl, datagram, receive_buffer)
        self.address_map, self.interface, self.ttl = address_map, interface, ttl
        self.datagram = datagram or (LOOPBACK if IPv4Address(interface).is_loopback else ETHERNET)
        self._on_datagram, self._accepts, self._lose = on_datagram, accepts, lose
        self._name, self._buffer = node, receive_buffer
        self._me = node_number(node), incarnation
        self._federation = federation_number(federation)
        self._seal = Seal(key, federation)

        self._lock = threading.RLock()  # groups joined and members; handlers may join and leave
        self._incoming: dict[Group, _Incoming] = {}
        self._outgoing: dict[Group, _Outgoing] = {}
        self._closed = False
        self._sending = threading.Lock()  # counters of what is sent
        self._sent = SentCounts()
        self._seen = ReceivedCounts()  # belongs to the receiving thread
        self._windows: OrderedDict[tuple[Group, int, int], Window] = OrderedDict()
        self._joins = 0
        self._thread: threading.Thread | None = None

        self._socket = self._sender()
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._selector.register(self._wakes, selectors.EVENT_READ, None)

    @property
    def budget(self) -> int:
        """How many bytes of frames fit into a datagram."""
        return self.datagram - OVERHEAD

    # ── who wants what ──

    def interested(self, group: Group, node: str) -> None:
        """Another node wants what is sent to a group."""
        with self._lock:
            self._check_open("interested")
            out = self._outgoing.get(group)
            if out is None:
                out = self._outgoing[group] = _Outgoing(group, self._seal)
            out.members = out.members | {node}

    def uninterested(self, group: Group, node: str) -> None:
        """It does no longer."""
        with self._lock:
            out = self._outgoing.get(group)
            if out is not None:
                out.members = out.members - {node}

    def forget(self, node: str) -> None:
        """A node is gone: it wants nothing any more."""
        with self._lock:
            for out in self._outgoing.values():
                out.members = out.members - {node}

    def wanted(self, group: Group) -> bool:
        """Whether any other node is interested in a group."""
        out = self._outgoing.get(group)
        return out is not None and bool(out.members)

    def members(self, group: Group) -> frozenset[str]:
        """The other nodes that are interested in a group."""
        out = self._outgoing.get(group)
        return frozenset() if out is None else out.members

    # ── sending ──

    def send(self, group: Group, *frames: bytes) -> bool:
        """One datagram of whole frames (length and all) to a group. False if it did not go out, which is counted:
        because nobody is interested, or the network would not take it."""
        size = sum(map(len, frames)) + OVERHEAD
        if not OVERHEAD < size <= self.datagram:
            raise FrameError(
                f"multicast: expected frames of 1 to {self.budget} bytes in a datagram, found {size - OVERHEAD}; "
                "split the run of events by `budget`, or send it over the direct streams"
            )
        out = self._outgoing.get(group)
        if out is None or not out.members:
            self._check_open("send")
            with self._sending:
                self._sent.unwanted += 1
            return False
        with self._sending:
            out.counter += 1
            head = HEAD.pack(MAGIC, VERSION, self._seal.flags, self._federation, *self._me, out.counter)
        data = b"".join((head, out.seal.mac(head, *frames), *frames))
        try:
            self._socket.sendto(data, out.to)
        except OSError:
            self._check_open("send")
            with self._sending:
                self._sent.unsent += 1
            return False
        with self._sending:
            self._sent.sent += 1
            self._sent.bytes_out += size
        return True

    def _sender(self) -> socket.socket:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self.interface))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self.ttl)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)  # for the other nodes on this host
            # The kernel's own limit: one of Python's would cost a system call more for each datagram.
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
            sender.bind((self.interface, 0))
        except OSError as error:
            sender.close()
            raise FederationError(
                f"multicast: expected the IPv4 address of an interface of this host, found {self.interface}: "
                f"{_reason(error)}; `ip address` lists them"
            ) from error
        return sender

    # ── receiving ──

    def join(self, group: Group) -> None:
        """Receive what is sent to a group from now on. Each `join` needs its `leave`."""
        with self._lock:
            self._check_open("join")
            found = self._incoming.get(group)
            if found is not None:
                found.users += 1
                return
            self._joins += 1
            incoming = _Incoming(group, self._receiver(group), self._joins, self._seal)
            self._incoming[group] = incoming
            self._selector.register(incoming.socket, selectors.EVENT_READ, incoming)
            if self._thread is None:
                name = f"headwater {self._name} multicast"
                self._thread = Supervised(self._run, name, again=lambda: not self._closed)
                self._thread.start()

    def leave(self, group: Group) -> None:
        """One user of a group less; with the last one nothing more is received, but for what is just being handled."""
        with self._lock:
            incoming = self._incoming.get(group)
            if incoming is None:
                if self._closed:
                    return
                raise FederationError(f"multicast: expected a group that was joined, found {group}")
            incoming.users -= 1
            if not incoming.users:
                del self._incoming[group]
                self._selector.unregister(incoming.socket)
                incoming.socket.close()

    @property
    def joined(self) -> frozenset[Group]:
        """The groups that are received."""
        with self._lock:
            return frozenset(self._incoming)

    def _receiver(self, group: Group) -> socket.socket:
        """One socket for each group: bound to its address it gets nothing else, even if another process on this host
        has joined other groups on the same port; and a kernel allows a socket but few groups (Linux: 20)."""
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux":  # else it also gets what other processes have joined on other interfaces
                receiver.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            else:  # elsewhere the first option is not enough for several nodes of a host to share a port
                receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
            receiver.setblocking(False)
            receiver.bind((group.address, group.port))
            membership = socket.inet_aton(group.address) + socket.inet_aton(self.interface)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError as error:
            receiver.close()
            raise FederationError(
                f"multicast: cannot join {group} on interface {self.interface}: {_reason(error)}; "
                "is the port free for multicast, and the interface up?"
            ) from error
        return receiver

    def _run(self) -> None:
        buffer = bytearray(1 << 16)
        view = memoryview(buffer)
        while not self._closed:
            for key, _ in self._selector.select():
                incoming = key.data
                if incoming is not None:
                    try:
                        self._drain(incoming, view)
                    except Exception:
                        self._failed("receiving a datagram")
        self._dispose()

    def _drain(self, incoming: _Incoming, view: memoryview) -> None:
        seen = self._seen
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                size, sender = incoming.socket.recvfrom_into(view)
            except BlockingIOError:
                return
            except OSError:
                if incoming.socket.fileno() >= 0:  # else it was left meanwhile
                    seen.failures += 1
                return
            if self._closed or not incoming.users:
                return
            seen.arrived += 1
            seen.bytes_in += size
            self._take(incoming, bytes(view[:size]), sender)

    def _take(self, incoming: _Incoming, data: bytes, sender: tuple[str, int]) -> None:
        """Hand a datagram on, or count why not."""
        seen = self._seen
        if len(data) <= OVERHEAD:
            return seen.malformed_by(sender, f"{len(data)} bytes, too short for a datagram")
        magic, version, flags, federation, node, incarnation, counter = HEAD.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            return seen.malformed_by(sender, f"magic {magic:#06x}, version {version}: not a datagram of Headwater")
        if federation != self._federation:
            seen.foreign += 1
            return None
        if (node, incarnation) == self._me:
            seen.own += 1
            return None
        if flags != self._seal.flags or not incoming.seal.fits(data):
            why = "a wrong MAC" if flags == self._seal.flags else "a key" if flags & KEYED else "no key"
            return seen.forged_by(sender, f"{why}, claiming to be node {node:#018x}")
        if not flags and not sender[0].startswith("127."):
            return seen.forged_by(sender, "no key, and not from loopback")
        frames = split(data)
        if frames is None or counter == 0:
            return seen.malformed_by(sender, "lengths of frames that do not fit" if counter else "counter 0")
        key = incoming.group, node, incarnation
        window = self._windows.get(key)
        if window is None and self._accepts is not None and not self._accepts(node, incarnation):
            return seen.stranger(sender, f"unknown node {node:#018x} of incarnation {incarnation}")
        if self._lose is not None and self._lose(counter):
            seen.lost += 1
            return None
        if window is None:
            window = self._windows[key] = Window(counter, incoming.since)
            if len(self._windows) > MOST_SENDERS:
                self._windows.popitem(last=False)
        elif not window.take(counter, incoming.since, seen):
            return None
        self._windows.move_to_end(key)
        address = f"{sender[0]}:{sender[1]}"
        seen.received += 1  # before the handler, so that it finds itself counted
        try:
            self._on_datagram(Datagram(incoming.group, address, node, incarnation, counter, frames))
        except FrameError as error:
            seen.received -= 1
            seen.malformed_by(sender, str(error))
        except Exception:
            self._failed("handling a datagram")
        return None

    def _failed(self, what: str) -> None:
        self._seen.failures += 1
        failures = self._seen.failures
        if failures & (failures - 1) == 0:  # at 1, 2, 4, ...: who floods the network does not flood the log
            log.exception("%s: error no. %d in %s over multicast", self._name, failures, what)

    # ── counts, and the end ──

    @property
    def counters(self) -> Counters:
        """What has become of all datagrams so far."""
        sent, seen = self._sent, self._seen
        counts = {name: getattr(seen, name) for name in ReceivedCounts.__slots__ if name != "offenders"}
        offenders = MappingProxyType(dict(list(seen.offenders.items())))
        with self._sending:
            return Counters(
                sent.sent, sent.bytes_out, unwanted=sent.unwanted, unsent=sent.unsent, offenders=offenders, **counts
            )

    def close(self) -> None:
        """Leave all groups. Nothing is handed on afterwards, unless this is called by the handler itself."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
            with suppress(OSError):
                self._waker.send(b"\0")
        if thread is None:
            self._dispose()
        elif thread is not threading.current_thread():
            thread.join()

    def _dispose(self) -> None:
        with self._lock:
            for incoming in self._incoming.values():
                incoming.socket.close()
            self._incoming.clear()
            self._selector.close()
        for each in (self._waker, self._wakes, self._socket):
            each.close()

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise ClosedError(f"{what}: the multicast of node {self._name!r} is closed")

    def __enter__(self) -> Multicast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._incoming)} groups joined"
        return f"<Multicast of {self._name} on {self.interface}: {state}>"


class _Outgoing:
    """A group as its sender sees it."""

    __slots__ = ("counter", "members", "seal", "to")

    def __init__(self, group: Group, seal: Seal) -> None:
        self.to = (group.address, group.port)
        self.members: frozenset[str] = frozenset()
        self.counter = 0
        self.seal = seal.of(group)


class _Incoming:
    """A group as its receiver sees it; `since` numbers the time from a join to the last leave."""

    __slots__ = ("group", "seal", "since", "socket", "users")

    def __init__(self, group: Group, receiver: socket.socket, since: int, seal: Seal) -> None:
        self.group, self.socket, self.since = group, receiver, since
        self.users = 1
        self.seal = seal.of(group)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _check(
    address_map: object,
    incarnation: int,
    key: bytes | None,
    interface: str,
    ttl: int,
    datagram: int | None,
    receive_buffer: int,
) -> None:
    """The door."""
    place = "multicast"
    found = [
        Count(0, 2**64 - 1).problem(f"{place} incarnation", incarnation),
        Count(0, 255).problem(f"{place} ttl", ttl),
        Count(4_096, 1 << 30).problem(f"{place} receive_buffer", receive_buffer),
    ]
    if datagram is not None:
        found.append(Count(256, MAX_DATAGRAM).problem(f"{place} datagram", datagram))
    if not isinstance(address_map, AddressMap):
        found.append(ConfigProblem(f"{place} address_map", "an address map such as HashedGroups()", show(address_map)))
    if key is not None and not (isinstance(key, bytes) and 16 <= len(key) <= 64):
        what = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        found.append(ConfigProblem(f"{place} key", "16 to 64 bytes, or None", what))
    try:
        address = IPv4Address(interface) if isinstance(interface, str) else None
    except AddressValueError:
        address = None
    if address is None or address.is_multicast or address.is_unspecified:
        expected = "the IPv4 address of a network interface of this host"
        found.append(ConfigProblem(f"{place} interface", expected, show(interface), "`ip address` lists them"))
    elif key is None and not address.is_loopback:
        hint = "without one anybody on the network could send events; configure the federation's security"
        found.append(ConfigProblem(f"{place} key", f"a key, for {interface} is not loopback", "none", hint))
    problems = [problem for problem in found if problem is not None]
    if problems:
        raise ConfigError(problems)


__all__ = ["Counters", "Datagram", "Multicast", "Offence", "node_number"]
