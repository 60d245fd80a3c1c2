"""A key that two nodes share, so that each event need not be signed: for events that travel through other nodes.

Each node makes an `Exchange` (an X25519 key pair) when it starts; its public half travels in the node's signed state,
and so is known to be the node's. From its own private and the other's public half each computes the same two keys, one
for each direction (a message sent back to its sender is so not mistaken for one of the peer). A message then carries
a counter and a MAC: 24 bytes, about two microseconds.

This shows that a message is the peer's, unchanged and new. It does not hide what the message says from the nodes on
the way.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from hashlib import blake2b
from itertools import count

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headwater.errors import SecurityError
from headwater.federation.replay import WIDTH, Window

MAC = 16
HEAD = 8 + MAC  # bytes that `Session.seal` adds
PUBLIC = 32
_PURPOSE = b"headwater session 1"
_SESSIONS = 4096


def mac(key: bytes, counter: int, data: bytes | memoryview) -> bytes:
    """The MAC of data under a counter."""
    made = blake2b(counter.to_bytes(8, "little"), digest_size=MAC, key=key)
    made.update(data)
    return made.digest()


def check(key: bytes, counter: int, data: bytes | memoryview, found: bytes) -> bool:
    """Whether the MAC is right; takes the same time whichever byte is wrong."""
    return hmac.compare_digest(mac(key, counter, data), found)


class Exchange:
    """A node's key pair for sessions, made anew each time that the node starts: counters begin again with it."""

    __slots__ = ("_lock", "_private", "_sessions", "public")

    def __init__(self) -> None:
        self._private = x25519.X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._lock = threading.Lock()

    def session(self, peer_public: bytes, *, peer: str = "the peer") -> Session:
        """The session with the node that has this public half; always the same one, for its counters go on."""
        with self._lock:
            found = self._sessions.get(peer_public)
            if found is None:
                found = Session(*channel_keys(self, peer_public), peer=peer)
                self._sessions[peer_public] = found
                if len(self._sessions) > _SESSIONS:
                    self._sessions.popitem(last=False)
            else:
                self._sessions.move_to_end(peer_public)
            return found

    def shared(self, peer_public: bytes) -> bytes:
        """The secret that only the owners of the two private halves can compute."""
        try:
            return self._private.exchange(x25519.X25519PublicKey.from_public_bytes(peer_public))
        except (ValueError, TypeError) as error:  # another length, or a point that makes a secret everybody knows
            raise SecurityError(
                f"session: expected the {PUBLIC} bytes of an X25519 public key: {error}", "key"
            ) from error


def channel_keys(mine: Exchange, peer_public: bytes) -> tuple[bytes, bytes]:
    """The keys for what this node sends to the peer and for what it receives from it."""
    if peer_public == mine.public:
        raise SecurityError("session: expected the public half of another node, found this node's own", "key")
    secret = mine.shared(peer_public)

    def towards(sender: bytes, receiver: bytes) -> bytes:
        return HKDF(hashes.SHA256(), 32, salt=None, info=_PURPOSE + sender + receiver).derive(secret)

    return towards(mine.public, peer_public), towards(peer_public, mine.public)


class Session:
    """Messages between this node and one peer, each with a counter and a MAC. Thread-safe."""

    __slots__ = ("_counter", "_lock", "_receive", "_send", "_window", "peer")

    def __init__(self, send: bytes, receive: bytes, *, peer: str = "the peer", width: int = WIDTH) -> None:
        self.peer = peer
        self._send, self._receive = send, receive
        self._counter = count(1)
        self._window = Window(width)
        self._lock = threading.Lock()

    def seal(self, data: bytes | memoryview) -> bytes:
        """The data with what proves it: counter, MAC, data."""
        counter = next(self._counter)
        return b"".join((counter.to_bytes(8, "little"), mac(self._send, counter, data), data))

    def open(self, sealed: bytes | memoryview) -> memoryview:
        """The data of a sealed message, not copied; SecurityError if it is not the peer's, or was there before."""
        view = memoryview(sealed)
        if len(view) < HEAD:
            message = f"refused a message of {self.peer}: expected at least {HEAD} bytes, found {len(view)}"
            raise SecurityError(message, "malformed", self.peer)
        counter = int.from_bytes(view[:8], "little")
        data = view[HEAD:]
        if not check(self._receive, counter, data, bytes(view[8:HEAD])):
            raise SecurityError(f"refused a message of {self.peer}: it is changed, or not its own", "forged", self.peer)
        with self._lock:
            if not self._window.fresh(counter):
                raise SecurityError(
                    f"refused a message of {self.peer}: number {counter} was there before, or comes too late",
                    "replayed",
                    self.peer,
                )
            self._window.mark(counter)
        return data
