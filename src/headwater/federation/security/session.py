"""A key that two nodes share: what passes between them is read and made by nobody else, and need not be signed.

Each node makes an `Exchange` (an X25519 key pair) when it starts; its public half travels in the node's signed card,
and so is known to be the node's, in this run of it. From its own private and the other's public half each computes the
same two keys, one for each direction (a message sent back to its sender is so not mistaken for one of the peer). The
ids of both nodes go into them: a card proves whose it is, not that its key is not another node's. A message is then
sealed with AES-GCM under a counter that is never used twice: 24 bytes more, about two microseconds. A process that was
forked has the same keys and counters as its parent, and can seal nothing with them.

This hides what a message says, and shows that it is the peer's, unchanged and new. It does not hide how large it is,
when it is sent, or between whom.

A question and its answer travel in a box instead, for which nothing need be remembered: each has a key of its own, made
with a salt that travels with it. A box names the public half of its maker, so that one of whom nothing is known yet can
be answered; who that is must be signed inside, and so must be what keeps it from being taken twice. Boxes for a node
that was started again since cannot be opened by anybody.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from weakref import WeakSet

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headwater.errors import LinkDown, SecurityError
from headwater.federation.security.replay_window import WINDOW_COUNTERS, Window
from headwater.formats import BOX as BOX_FORMAT
from headwater.formats import SESSION

TAG = 16
COUNTER = 8
HEAD = COUNTER + TAG  # bytes that `Session.seal` adds
PUBLIC = 32
BOX = b"HWB%d" % BOX_FORMAT
_SALT = 16
_BOX_HEAD = len(BOX) + PUBLIC + _SALT  # bytes before the ciphertext of a box
_STREAM_PURPOSE, _BOX_PURPOSE = b"headwater session %d" % SESSION, b"headwater box %d" % BOX_FORMAT
_NONCE_PREFIX = bytes(4)  # a nonce is this and the counter; the two directions have keys of their own
_MAX_SESSIONS = 4096  # that are kept, those used last
_MAX_FLOORS = 65_536  # peers whose sessions were given up, of which it is still known what they have sent
_MAX_BOX_KEYS = 4096  # pairs of keys that are kept, those used last
_ONE_MESSAGE = bytes(12)  # the nonce under a key that seals one message only
_LEAP = 1 << 32  # counters left out when a session is given up: who still holds it makes no nonce a second time


class Exchange:
    """A node's key pair for sessions, made anew each time that the node starts: counters begin again with it."""

    __slots__ = ("__weakref__", "_box_keys", "_first", "_floors", "_lock", "_private", "_sessions", "public")

    def __init__(self) -> None:
        self._private = x25519.X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        self._sessions: OrderedDict[tuple[bytes, str], Session] = OrderedDict()  # by key and id of the peer
        self._box_keys: OrderedDict[bytes, tuple[bytes, bytes]] = OrderedDict()
        self._floors: OrderedDict[tuple[bytes, str], int] = (
            OrderedDict()
        )  # of peers whose session was given up: its last counter
        self._first = 1  # counter of a session that begins now: beyond all that may be in use by one given up
        self._lock = threading.Lock()
        _EXCHANGES.add(self)

    def session(self, peer_public: bytes, *, me: str = "", peer: str = "") -> Session:
        """The session with the node that has this public half, and these are the ids of the two; as long as it is in
        use always the same one."""
        with self._lock:
            key = peer_public, peer
            found = self._sessions.get(key)
            if found is None:
                keys = channel_keys(self, peer_public, _STREAM_PURPOSE, me, peer)
                floor = self._floors.pop(key, 0)
                found = Session(*keys, peer=peer or "the peer", first=self._first, floor=floor)
                self._sessions[key] = found
                if len(self._sessions) > _MAX_SESSIONS:
                    self._give_up(*self._sessions.popitem(last=False))
            else:
                self._sessions.move_to_end(key)
            return found

    def forget(self, peer_public: bytes, peer: str = "") -> None:
        """The node that has this public half has gone. Should it be back, nothing of before is taken again."""
        with self._lock:
            found = self._sessions.pop((peer_public, peer), None)
            if found is not None:
                self._give_up((peer_public, peer), found)

    def _give_up(self, key: tuple[bytes, str], session: Session) -> None:
        self._first = max(self._first, session.sent) + _LEAP
        self._floors[key] = session.newest
        if len(self._floors) > _MAX_FLOORS:
            self._floors.popitem(last=False)

    def box(self, peer_public: bytes, data: bytes | memoryview) -> bytes:
        """A message that only the owner of that public half can open."""
        head = b"".join((BOX, self.public, os.urandom(_SALT)))
        return head + _box_cipher(self._keys(peer_public)[0], head).encrypt(_ONE_MESSAGE, data, head)

    def unbox(self, boxed: bytes | memoryview) -> tuple[bytes, bytes]:
        """The public half of the maker of a box, and what is in it; SecurityError if it was not made for this node."""
        view = memoryview(boxed)
        if len(view) < _BOX_HEAD + TAG or view[: len(BOX)] != BOX:
            found = bytes(view[:4])
            raise SecurityError(
                f"refused a message: expected one that begins with {BOX!r}, found {found!r}", "malformed"
            )
        head = bytes(view[:_BOX_HEAD])
        maker = head[len(BOX) : len(BOX) + PUBLIC]
        try:
            return maker, _box_cipher(self._keys(maker)[1], head).decrypt(_ONE_MESSAGE, view[_BOX_HEAD:], head)
        except InvalidTag:
            why = "it is changed, or for another node, or for an earlier run of this one"
            raise SecurityError(f"refused a message: {why}", "forged") from None

    def _keys(self, peer_public: bytes) -> tuple[bytes, bytes]:
        with self._lock:
            found = self._box_keys.get(peer_public)
            if found is not None:
                self._box_keys.move_to_end(peer_public)
                return found
        made = channel_keys(self, peer_public, _BOX_PURPOSE)
        with self._lock:
            self._box_keys[peer_public] = made
            if len(self._box_keys) > _MAX_BOX_KEYS:
                self._box_keys.popitem(last=False)
        return made

    def shared(self, peer_public: bytes) -> bytes:
        """The secret that only the owners of the two private halves can compute."""
        try:
            return self._private.exchange(x25519.X25519PublicKey.from_public_bytes(peer_public))
        except (ValueError, TypeError) as error:  # another length, or a point that makes a secret everybody knows
            raise SecurityError(
                f"session: expected the {PUBLIC} bytes of an X25519 public key: {error}", "key"
            ) from error


def is_box(data: bytes | memoryview) -> bool:
    """Whether this says to be one."""
    return data[: len(BOX)] == BOX


def _box_cipher(key: bytes, head: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, head, "sha256"))


def channel_keys(
    mine: Exchange, peer_public: bytes, purpose: bytes = _STREAM_PURPOSE, me: str = "", peer: str = ""
) -> tuple[bytes, bytes]:
    """The keys for what this node sends to the peer and for what it receives from it; `me` and `peer` are their ids."""
    if peer_public == mine.public:
        raise SecurityError("session: expected the public half of another node, found this node's own", "key")
    secret = mine.shared(peer_public)

    def towards(sender: tuple[bytes, str], receiver: tuple[bytes, str]) -> bytes:
        ids = f"\0{sender[1]}\0{receiver[1]}".encode() if me or peer else b""
        info = purpose + sender[0] + receiver[0] + ids
        return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(secret)

    ours, theirs = (mine.public, me), (peer_public, peer)
    return towards(ours, theirs), towards(theirs, ours)


class Session:
    """Messages between this node and one peer, encrypted, each with a counter. Thread-safe.

    A message may have a `header` that travels beside it in the clear: it opens only with the same one.
    """

    __slots__ = ("__weakref__", "_counter", "_decrypt", "_encrypt", "_lock", "_window", "peer", "sent")

    def __init__(
        self,
        send: bytes,
        receive: bytes,
        *,
        peer: str = "the peer",
        width: int = WINDOW_COUNTERS,
        first: int = 1,
        floor: int = 0,
    ) -> None:
        self.peer = peer
        self._encrypt: Callable[..., bytes] = AESGCM(send).encrypt
        self._decrypt = AESGCM(receive).decrypt
        self._counter = count(first)
        self.sent = first  # about how far counters have come
        self._window = Window(width)
        self._window.seen_to(floor)
        self._lock = threading.Lock()
        _SESSIONS.add(self)

    @property
    def newest(self) -> int:
        """The highest counter that has come."""
        return self._window.newest

    def seal(self, data: bytes | memoryview, header: bytes | memoryview | None = None) -> bytes:
        """The data, encrypted: counter, ciphertext with its tag."""
        counter = self.sent = next(self._counter)
        number = counter.to_bytes(COUNTER, "little")
        return number + self._encrypt(_NONCE_PREFIX + number, data, header)

    def open(self, sealed: bytes | memoryview, header: bytes | memoryview | None = None) -> memoryview:
        """The data of a sealed message; SecurityError if it is not the peer's, or was there before."""
        view = memoryview(sealed)
        if len(view) < HEAD:
            message = f"refused a message of {self.peer}: expected at least {HEAD} bytes, found {len(view)}"
            raise SecurityError(message, "malformed", self.peer)
        number = bytes(view[:COUNTER])
        try:
            data = self._decrypt(_NONCE_PREFIX + number, view[COUNTER:], header)
        except InvalidTag:
            message = f"refused a message of {self.peer}: it is changed, or not its own"
            raise SecurityError(message, "forged", self.peer) from None
        counter = int.from_bytes(number, "little")
        with self._lock:
            if not self._window.fresh(counter):
                raise SecurityError(
                    f"refused a message of {self.peer}: number {counter} was there before, or comes too late",
                    "replayed",
                    self.peer,
                )
            self._window.mark(counter)
        return memoryview(data)


_EXCHANGES: WeakSet[Exchange] = WeakSet()
_SESSIONS: WeakSet[Session] = WeakSet()


def _refuse_to_seal(*_: object) -> bytes:
    raise LinkDown("this process was forked, and the session is its parent's: no counter may be used twice")


def _forked() -> None:
    for session in list(_SESSIONS):
        session._encrypt = _refuse_to_seal
    for exchange in list(_EXCHANGES):  # what is made of it from here on has nothing in common with its parent's
        exchange._private = x25519.X25519PrivateKey.generate()
        exchange._lock = threading.Lock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
