"""What a multicast datagram is, how one is told from another, and what is counted.

A datagram, all numbers little endian:

    u16 magic | u8 version | u8 flags | u32 federation | u64 node | u64 incarnation | u64 counter | 16 bytes MAC
    frames, each u32 length | u8 kind | body

Federation and node are hashes of their names; the counter is the sender's for this group, from 1, so that receivers
see what is missing and drop what comes twice. With a key the MAC covers everything, the group included: it proves that
a member of the federation sent it, and hides nothing. Without a key it is zero, which is for loopback only.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from headwater.federation.address_map import Group
from headwater.formats import DATAGRAM

MAGIC, VERSION = 0x5748, DATAGRAM  # "HW"
KEYED = 1
HEAD = struct.Struct("<HBBIQQQ")
MAC = 16
OVERHEAD = HEAD.size + MAC
NO_MAC = bytes(MAC)
MAX_DATAGRAM = 65_507  # what UDP over IPv4 carries
ETHERNET = 1_400  # fits into a frame of 1500 bytes, tunnels included
LOOPBACK = 32_768

WINDOW_DATAGRAMS = 1_024  # datagrams by which one may be late
MOST_OFFENDERS = 256

_LENGTH = struct.Struct("<I")
_MASK = (1 << WINDOW_DATAGRAMS) - 1


class Datagram:
    """What has arrived and is sound; `frames` are kind and body each, and may be kept."""

    __slots__ = ("address", "counter", "frames", "group", "incarnation", "node")

    def __init__(
        self, group: Group, address: str, node: int, incarnation: int, counter: int, frames: list[memoryview]
    ) -> None:
        self.group, self.address = group, address
        self.node, self.incarnation, self.counter = node, incarnation, counter
        self.frames = frames


@dataclass(frozen=True, slots=True)
class Offence:
    """How many datagrams of an address were dropped, and what was wrong with the last."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Counters:
    """Datagrams by what became of them.

    arrived = received + own + foreign + malformed + forged + strangers + stale + duplicates + lost, always.
    """

    sent: int
    bytes_out: int
    unwanted: int  # not sent: no other node is interested in the group
    unsent: int  # not sent: the network refused them
    arrived: int
    bytes_in: int
    received: int  # handed on
    own: int  # sent by this node itself
    foreign: int  # of another federation
    malformed: int
    forged: int  # the MAC is wrong, or there is none where there must be one
    strangers: int  # of nodes that `accepts` does not know
    stale: int  # more than a window late
    duplicates: int
    lost: int  # dropped by `lose`
    missed: int  # sent to a group that was joined, and not seen so far
    failures: int  # errors of the handler and the socket
    offenders: Mapping[str, Offence]  # by address; of malformed, forged and strangers


def node_number(node: str) -> int:
    """The number by which datagrams name a node: 64 bits of a hash of its id."""
    return int.from_bytes(blake2b(node.encode(), digest_size=8, person=b"hw-node").digest(), "little")


class SentCounts:
    """Counts of what was sent."""

    __slots__ = ("bytes_out", "sent", "unsent", "unwanted")

    def __init__(self) -> None:
        self.sent = self.bytes_out = self.unwanted = self.unsent = 0


class ReceivedCounts:
    """Counts of what has arrived; one thread writes them."""

    __slots__ = (
        "arrived", "bytes_in", "duplicates", "failures", "foreign", "forged", "lost", "malformed", "missed",
        "offenders", "own", "received", "stale", "strangers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.arrived = self.bytes_in = self.received = self.own = self.foreign = self.malformed = self.forged = 0
        self.strangers = self.stale = self.duplicates = self.lost = self.missed = self.failures = 0
        self.offenders: dict[str, Offence] = {}

    def malformed_by(self, sender: tuple[str, int], reason: str) -> None:
        self.malformed += 1
        self._offence(sender, reason)

    def forged_by(self, sender: tuple[str, int], reason: str) -> None:
        self.forged += 1
        self._offence(sender, reason)

    def stranger(self, sender: tuple[str, int], reason: str) -> None:
        self.strangers += 1
        self._offence(sender, reason)

    def _offence(self, sender: tuple[str, int], reason: str) -> None:
        address = f"{sender[0]}:{sender[1]}"
        before = self.offenders.pop(address, None)
        self.offenders[address] = Offence(1 if before is None else before.count + 1, reason)
        if len(self.offenders) > MOST_OFFENDERS:
            del self.offenders[next(iter(self.offenders))]


class Seal:
    """The MAC of a federation's datagrams, or none if there is no key; `of(group)` is that of one group."""

    __slots__ = ("_base", "flags")

    def __init__(self, key: bytes | None, federation: str) -> None:
        self.flags = KEYED if key is not None else 0
        self._base: Any = None
        if key is not None:
            name = federation.encode()
            self._base = blake2b(_LENGTH.pack(len(name)) + name, key=key, digest_size=MAC, person=b"hw-multicast")

    def of(self, group: Group) -> Seal:
        seal = Seal.__new__(Seal)
        seal.flags, seal._base = self.flags, self._base
        if self._base is not None:
            seal._base = self._base.copy()
            seal._base.update(socket.inet_aton(group.address) + _LENGTH.pack(group.port))
        return seal

    def mac(self, *parts: bytes | memoryview) -> bytes:
        """Of a head and frames."""
        if self._base is None:
            return NO_MAC
        mac = self._base.copy()
        for part in parts:
            mac.update(part)
        return bytes(mac.digest())

    def fits(self, data: bytes) -> bool:
        """Whether a datagram has the right one."""
        view = memoryview(data)
        return hmac.compare_digest(self.mac(view[: HEAD.size], view[OVERHEAD:]), view[HEAD.size : OVERHEAD])


class Window:
    """Which of a sender's latest datagrams to a group have been seen: a bit each, the latest lowest."""

    __slots__ = ("_bits", "_first", "_since", "_top")

    def __init__(self, counter: int, since: int) -> None:
        self._top = self._first = counter
        self._since = since
        self._bits = 1

    def take(self, counter: int, since: int, seen: ReceivedCounts) -> bool:
        """Whether this one is new."""
        ahead = counter - self._top
        if ahead > 0:
            self._bits = (self._bits << ahead | 1) & _MASK if ahead < WINDOW_DATAGRAMS else 1
            self._top = counter
            if since == self._since:
                seen.missed += ahead - 1
            else:  # what was sent while the group was left is not missed
                self._since, self._first = since, counter
            return True
        if ahead <= -WINDOW_DATAGRAMS:
            seen.stale += 1
            return False
        bit = 1 << -ahead
        if self._bits & bit:
            seen.duplicates += 1
            return False
        self._bits |= bit
        if counter > self._first:  # it was given up when a later one came
            seen.missed -= 1
        return True


def split(data: bytes) -> list[memoryview] | None:
    """The frames of a datagram, or None if their lengths do not fit."""
    view, end = memoryview(data), len(data)
    frames = []
    at = OVERHEAD
    while at < end:
        if at + 4 > end:
            return None
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if length == 0 or length > end - at:
            return None
        frames.append(view[at : at + length])
        at += length
    return frames


def federation_number(federation: str) -> int:
    """The number by which datagrams name a federation: 32 bits of a hash of its name."""
    return int.from_bytes(blake2b(federation.encode(), digest_size=4, person=b"hw-federation").digest(), "little")
