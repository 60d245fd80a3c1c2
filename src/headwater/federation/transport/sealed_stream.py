"""Direct streams whose records are sealed with a key of the two nodes: for TCP and Unix sockets, which have no TLS.

    record:   u32 length of what follows | AES-GCM( up to 64 KiB of what a stream carries ) with its tag of 16 bytes

The two ends agree on a key in their greetings (see handshake.py); each direction has its own. The nonce is the number
of the record, which both ends count and nobody sends: a record that is changed, left out, repeated or moved does not
open, and that ends the stream. After a number of records (`RECORDS_PER_KEY`) both ends go on to a key made from the one
before, which they forget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from headwater.errors import LinkDown, SecurityError
from headwater.federation.security.session import PUBLIC, Exchange
from headwater.federation.transport.stream import LARGE, NOW, PREFIX, Stream
from headwater.formats import SEALED_STREAM

TAG = 16
RECORD_BYTES = 64 << 10  # bytes that are sealed together, at most
HEAD = PREFIX.size
RECORDS_PER_KEY = 1 << 20
KEY = 32
_PURPOSE = b"headwater stream %d" % SEALED_STREAM


class Agreement:
    """What one end of a stream contributes to its keys: half of a key, made for this stream and then forgotten."""

    __slots__ = ("_exchange", "public")

    def __init__(self) -> None:
        self._exchange = Exchange()
        self.public = self._exchange.public

    def keys(self, other: bytes, *, caller: bytes, called: bytes) -> tuple[bytes, bytes]:
        """The keys from caller to called, and back. `caller` and `called` say all that the two ends must agree on."""
        if len(other) != PUBLIC or other == self.public:
            raise SecurityError(f"expected the {PUBLIC} bytes of another public key, found {len(other)}", "key")
        secret = self._exchange.shared(other)
        salt = hashes.Hash(hashes.SHA256())
        for part in (caller, called):
            salt.update(len(part).to_bytes(4, "little") + part)
        made = HKDF(hashes.SHA256(), 2 * KEY, salt=salt.finalize(), info=_PURPOSE).derive(secret)
        return made[:KEY], made[KEY:]


class Seal:
    """One direction: seals or opens records, one after the other."""

    __slots__ = ("_cipher", "_key", "_number")

    def __init__(self, key: bytes) -> None:
        self._key, self._number = key, 0
        self._cipher = AESGCM(key)

    def _nonce(self) -> bytes:
        """Of the next record."""
        number = self._number
        self._number = number + 1
        if number and number % RECORDS_PER_KEY == 0:
            self._key = HKDFExpand(hashes.SHA256(), KEY, b"headwater stream, next key").derive(self._key)
            self._cipher = AESGCM(self._key)
        return number.to_bytes(12, "little")

    def seal(self, data: bytes | memoryview) -> bytes:
        """A record, with its length."""
        head = PREFIX.pack(len(data) + TAG)
        nonce = self._nonce()
        return head + self._cipher.encrypt(nonce, data, head)

    def open(self, head: bytes | memoryview, sealed: bytes | memoryview) -> bytes:
        nonce = self._nonce()
        return self._cipher.decrypt(nonce, sealed, head)


class SealedStream(Stream):
    """A stream whose ends have agreed on keys. It takes the place of one that has not been started yet."""

    def __init__(self, stream: Stream, send: bytes, receive: bytes) -> None:
        if stream.busy or stream.ended is not None:
            raise LinkDown(f"{stream.remote}: {stream.ended or 'it does not take a greeting'}")
        self._sealing, self._opening = Seal(send), Seal(receive)
        self._arrived = bytearray()  # of a record that is not complete
        self._need = HEAD  # bytes until it is, or until its length is known
        self._forged: SecurityError | None = None
        super().__init__(stream._sock, stream.kind, stream.remote, loopback=stream.loopback)
        self.bytes_in, self.bytes_out, self.frames_in = stream.bytes_in, stream.bytes_out, stream.frames_in

    def _prepare(self) -> None:
        super()._prepare()
        self._receive: Callable[[int], bytes] = self._sock.recv
        self._get = self._take

    def write(self, data: bytes) -> bool:
        """As a stream's. Sealed where it is written, so that records go out in the order of their numbers."""
        with self._writing:
            if self._reason is not None:
                self._push()  # raises
            seal = self._sealing.seal
            if len(data) <= RECORD_BYTES:
                sealed = seal(data)
            else:
                view = memoryview(data)
                sealed = b"".join([seal(view[at : at + RECORD_BYTES]) for at in range(0, len(data), RECORD_BYTES)])
            if self.busy and not self._push():
                self._backlog.append(sealed)
                return False
            try:
                sent = self._put(sealed, NOW)
            except BlockingIOError:
                sent = 0
            except BaseException as error:
                raise self._failed(error) from error
            self.bytes_out += sent
            if sent == len(sealed):
                return True
            self._backlog.append(memoryview(sealed)[sent:])
            self.busy = True
            return False

    def _take(self, size: int) -> bytes:
        """What records brought, as soon as one is complete; nothing at the end."""
        if self._forged is not None:
            raise self._forged
        while True:
            data = self._receive(size)
            if not data:
                return b""
            opened = self._opened(data)
            if opened:
                return opened

    def _get_now(self, size: int) -> bytes | None:
        raise AssertionError("a sealed stream begins after the greetings")

    def _get_more(self) -> bytes:
        if self._forged is not None:
            raise self._forged
        data = self._sock.recv(LARGE, NOW)
        return self._opened(data) if data else b""

    def _opened(self, data: bytes) -> bytes:
        """What the records contain that are complete with this."""
        length = PREFIX.unpack_from
        if not self._arrived and len(data) >= HEAD and length(data)[0] == len(data) - HEAD:
            return self._open(data[:HEAD], memoryview(data)[HEAD:])  # just one, as on every round trip
        arrived = self._arrived
        arrived += data
        if len(arrived) < self._need:
            return b""
        found, at, end = [], 0, len(arrived)
        with memoryview(arrived) as view:
            while end - at >= HEAD:
                (size,) = length(view, at)
                if not TAG < size <= RECORD_BYTES + TAG:
                    self._refuse(f"expected a record of {TAG + 1} to {RECORD_BYTES + TAG} bytes, found {size}")
                if end - at < HEAD + size:
                    break
                found.append(self._open(bytes(view[at : at + HEAD]), view[at + HEAD : at + HEAD + size]))
                at += HEAD + size
        del arrived[:at]
        self._need = HEAD if len(arrived) < HEAD else HEAD + length(arrived)[0]
        return b"".join(found)

    def _open(self, head: bytes, sealed: memoryview) -> bytes:
        try:
            opened = self._opening.open(head, sealed)
        except InvalidTag:
            self._refuse("a record was changed, left out, repeated or moved on the way")
        self.bytes_in += HEAD + TAG  # the rest is counted where it is read
        return opened

    def _refuse(self, what: str) -> NoReturn:
        self._forged = SecurityError(f"{self.remote}: {what}", "forged")
        raise self._forged
