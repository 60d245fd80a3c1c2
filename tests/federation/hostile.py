"""Another node that knows how to greet, and after that sends what it likes."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from time import time_ns
from typing import Any, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headwater.errors import FrameError
from headwater.federation.node import Node
from headwater.federation.security.envelope import Sealer
from headwater.federation.security.identity import Identity
from headwater.federation.security.session import Exchange
from headwater.federation.transport.link import parse_endpoint
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, Challenge, Ends, Greeting, SourceAd
from headwater.federation.wire.kinds import U32
from headwater.federation.wire.requests import pack_type
from headwater.types import EventType

GUARD = 120.0
START = 1_790_000_000_000_000_000  # nanoseconds: when the first frame says to be made


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same bytes but for some."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(6):
            case 0 | 1 | 2:
                made[at : at + 1] = bytes((chance.choice((0, 1, 127, 128, 255, chance.randrange(256))),))
            case 3:
                value = chance.choice((0, 1, 2, 0x7FFFFFFF, 0x80000000, U32, len(made), chance.getrandbits(32)))
                made[at : at + 4] = value.to_bytes(4, "little")
            case 4:
                del made[at : at + chance.randrange(1, 9)]
            case 5:
                made[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(made)


class Target(NamedTuple):
    """What one must know of a node to attack it."""

    id: str
    federation: str
    direct: str  # where it takes streams
    zenoh: str  # and everything else

    @classmethod
    def of(cls, node: Node) -> Target:
        assert node._engine is not None and node._engine.listener is not None
        return cls(node.id, node._engine.network.federation, node._engine.listener.endpoints[0], node.endpoints[0])


class Mallory:
    """Its identity; each `call` is a stream on which it has greeted as it must."""

    def __init__(self, target: Target, name: str = "mallory", *, key: bytes = b"") -> None:
        self.target = target
        self.identity = (  # with a key of 32 bytes, its signatures are the same each time
            Identity(name, Ed25519PrivateKey.from_private_bytes(key)) if key else Identity.ephemeral(name)
        )
        self.sealer = Sealer(self.identity, target.federation, time_ns())
        self.exchange, self.known = Exchange(), b""  # its keys, and that of the node once it is told
        endpoint = parse_endpoint(target.direct)
        self.address = endpoint.host, endpoint.port

    @property
    def id(self) -> str:
        return self.identity.id

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, GUARD)

    def call(self) -> Call:
        return Call(self)


class Call:
    """A stream, on this side."""

    def __init__(self, mallory: Mallory) -> None:
        self._socket = mallory.connect()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = wire.Splitter()
        self._frames = self._read()
        self._number = 0
        challenge = next(self._frames)
        assert isinstance(challenge, Challenge)
        body = msgspec.msgpack.encode((challenge.nonce, b"n" * 16))
        hello = mallory.sealer.seal("hello", body, to=mallory.target.id)
        self.send(wire.encode_control(Greeting(hello)))
        assert isinstance(next(self._frames), Greeting)

    def _read(self) -> Iterator[Any]:
        with suppress(OSError):
            while data := self._socket.recv(1 << 16):
                for frame in self._splitter.feed(data):
                    yield wire.decode(bytes(frame))

    def send(self, data: bytes) -> bool:
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def heard(self) -> bool:
        """Wait until all that was sent has been dealt with; False if the other end has hung up on it."""
        self._number += 1
        if not self.send(wire.encode_ping(self._number)):
            return False
        return any(isinstance(frame, wire.Pong) and frame.number == self._number for frame in self._frames)

    def hung_up(self) -> None:
        """Wait until the other end has."""
        for _ in self._frames:
            pass

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Frames:
    """Mutated frames of one source, numbered so that the other end takes them as far as they can be read."""

    def __init__(self, sid: int, channel: str, type: EventType, records: list[bytes], chance: random.Random) -> None:
        self.sid, self._type, self._records, self._chance = sid, type, records, chance
        self._number, self._seq, self._now = 0, 1, START
        self._ad = SourceAd(sid, f"fuzz-{sid}", channel)
        self._batch = type.records_to_arrow(records)
        self._header = wire.header_of(type.record)

    def first(self) -> bytes:
        return wire.encode_control(Announce(ad=self._ad, type=pack_type(self._type), next=1))

    def last(self) -> bytes:
        return wire.encode_control(Ends(self.sid))

    def good(self) -> bytes:
        """A frame as it should be."""
        chance, number = self._chance, self._number + 1
        now = self._now = self._now + 1_000_000  # not the clock's: the same chance makes the same frames
        header = chance.choice((None, self._header))
        match chance.randrange(12):
            case 0 | 1:
                return wire.encode_event(self.sid, number, self._seq, now, chance.choice(self._records), header)
            case 2 | 3 | 4:
                records = [chance.choice(self._records) for _ in range(chance.choice((2, 3, 40)))]
                times = [now] * len(records)
                return wire.encode_run_first(self.sid, number, self._seq, times, records, header=header)
            case 5:
                records = [chance.choice(self._records) for _ in range(3)]
                seqs = [self._seq, self._seq, self._seq + 7]
                tags = [(chance.choice((0, 1, 2, 1 << 31, 1 << 31 | 1)),), (1, 2), (0,)]
                return wire.encode_events(self.sid, number, seqs, [now] * 3, records, tags, header=header)
            case 6:
                tag = chance.choice((0, 0, 1, 2, 77))
                rows = self._batch.num_rows
                return wire.encode_batch(self.sid, number, range(self._seq, self._seq + rows), now, self._batch, tag)
            case 7:
                return wire.encode_ack([(chance.randrange(5), chance.choice((0, 1, 5, 1 << 40)))])
            case 8:
                return wire.encode_promise([(self.sid, now), (chance.randrange(9), chance.getrandbits(62))])
            case 9:
                return wire.encode_control(wire.Resume({chance.randrange(5): chance.choice((0, 1, 1 << 40))}))
            case 10:
                return wire.encode_control(Announce(ad=self._ad, type=pack_type(self._type), next=number))
            case _:
                return wire.encode_control(Ends(self.sid + 1))

    def __iter__(self) -> Iterator[tuple[bytes, bool]]:
        """Frames with their prefix, and whether they can be read."""
        while True:
            good = self.good()
            body = mutated(good[4:], self._chance)
            if self._chance.random() < 0.3:  # only what is in the records, which the frame does not show
                at = self._chance.randrange(len(good) - 4)
                body = good[4:][:at] + bytes((self._chance.randrange(256),)) + good[4:][at + 1 :]
            try:
                message = wire.decode(body)
            except FrameError:
                readable = False
            else:
                readable = not isinstance(message, (wire.Bye, Greeting, Challenge))
                if isinstance(message, (wire.Events, wire.Batch)):
                    if message.source == self.sid and message.number == self._number + 1:
                        self._number += 1
                        self._seq = max(self._seq, int(message.seqs[-1])) + 1
                        if self._seq >= U32:
                            readable = False  # time for another source
                    elif not message.number:
                        readable = False
                    if isinstance(message, wire.Batch):
                        readable = readable and _rows(message, self._type)
                elif isinstance(message, Ends) and message.source == self.sid:
                    readable = False
                elif isinstance(message, Announce) and message.ad.sid == self.sid:
                    readable = readable and message.next <= self._number + 1
            yield len(body).to_bytes(4, "little") + body, readable


def _rows(message: wire.Batch, type: EventType) -> bool:
    try:
        message.batch(type.schema)
    except FrameError:
        return False
    return True
