"""Streams over TLS: a socket that does not block, because its two directions share one state."""

from __future__ import annotations

import select
import ssl
from contextlib import suppress

from headwater.federation.transport.stream import READING, WRITING, Stream


class TlsStream(Stream):
    """A stream over TLS; the handshake is done."""

    _sock: ssl.SSLSocket

    def _prepare(self) -> None:
        self._sock.setblocking(False)
        self.certificate = self._sock.getpeercert(binary_form=True)
        self._poll = select.poll()
        self._poll.register(self._sock.fileno(), READING)
        self._get, self._put = self._take, self._give

    def pump(self, timeout: float) -> bool:
        return False  # what has come cannot be told from what is still missing

    def _get_now(self, size: int) -> bytes | None:
        with self._writing:
            if self._reason is not None:
                return b""
            try:
                return self._sock.recv(size)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None

    def _take(self, size: int) -> bytes:
        """What has come, waited for. The lock is held for one call only; a poll waits, so that another thread can write
        meanwhile."""
        sock, lock, poll = self._sock, self._writing, self._poll
        with lock:
            ready = bool(sock.pending())  # the rest of a record, which the kernel has no more
        while True:
            if not ready:
                poll.poll()
            ready = False
            with lock:
                if self._reason is not None:
                    return b""
                try:
                    return sock.recv(size)
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLWantWriteError:
                    pass
            writable = select.poll()
            writable.register(sock.fileno(), WRITING)
            writable.poll()
            ready = True

    def _give(self, data: bytes | memoryview, _: int) -> int:
        sent, view = 0, memoryview(data)
        self._wants_read = False
        try:
            while sent < len(view):  # one call takes one record
                sent += self._sock.send(view[sent:])
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLWantReadError:
            self._wants_read = True
        return sent

    def _farewell(self) -> None:
        with suppress(OSError, ValueError):
            self._sock.unwrap()  # says goodbye; it does not wait for the answer, and so always raises
