"""Waits at endpoints for other nodes to connect."""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import ssl
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.link import Endpoint, parse_endpoints
from headwater.federation.stream import Stream, TlsStream, context_of, describe, tune
from headwater.threads import Supervised

log = logging.getLogger("headwater.federation")

HANDSHAKE = 5.0  # seconds for a TLS handshake
PENDING = 32  # handshakes at a time; one more ends the oldest
QUEUE = 128  # connections that the kernel keeps for us
RELIEF = 0.1  # seconds of rest when the process has no more file descriptors


class Listener:
    """Listens from the start, at all of `endpoints` or at none; `accept` is called with every new stream.

    `accept` is called by the listening thread (for TLS: after the handshake, by a thread of its own) and should start
    or close the stream and return. Streams live on when the listener is closed.

    `endpoints` are the real ones: a port 0 has become a number. `refused` counts handshakes that failed."""

    def __init__(
        self, endpoints: Sequence[str], accept: Callable[[Stream], None], *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._accept = accept
        self._tls = tls
        self._lock = threading.Lock()
        self._handshakes: dict[threading.Thread, socket.socket | None] = {}  # the oldest first; None: done, in `accept`
        self._files: list[tuple[str, tuple[int, int]]] = []  # Unix sockets, and which file each is
        self._selector = selectors.DefaultSelector()
        self._closed = False
        self.refused = 0
        found, problems = list[Endpoint](), list[ConfigProblem]()
        wake, self._wake = socket.socketpair()
        self._selector.register(wake, selectors.EVENT_READ)
        try:
            for endpoint in parse_endpoints(endpoints, place="listen"):
                try:
                    context_of(endpoint, tls)
                    found.append(self._listen(endpoint))
                except ConfigError as error:
                    problems.extend(error.problems)
                except OSError as error:
                    problems.append(_problem(endpoint, error))
            if problems:
                raise ConfigError(problems)
        except BaseException:
            self._release()
            raise
        self.endpoints = [str(endpoint) for endpoint in found]
        self._thread = Supervised(self._serve, f"headwater-listen-{self.endpoints}", again=lambda: not self._closed)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end the handshakes that are under way.

        After this `accept` is not called any more, unless it is `accept` that closes. Unix sockets' files are gone."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._wake.send(b"x")
        self._join(self._thread)
        with self._lock:
            pending = dict(self._handshakes)
            for sock in pending.values():
                if sock is not None:
                    _shut(sock)
        for thread in pending:
            self._join(thread)

    def _join(self, thread: threading.Thread) -> None:
        if thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self, endpoint: Endpoint) -> Endpoint:
        if endpoint.kind == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            family, *_, address = socket.getaddrinfo(
                endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if endpoint.kind == "unix":
                _bind(sock, endpoint.path)
                self._files.append((endpoint.path, _file(endpoint.path)))
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(address)
                endpoint = replace(endpoint, host=sock.getsockname()[0], port=sock.getsockname()[1])
            sock.listen(QUEUE)
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, endpoint)
        except BaseException:
            sock.close()
            raise
        return endpoint

    def _release(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._wake.close()
        for path, file in self._files:
            with suppress(OSError):
                if _file(path) == file:  # not if another listener has replaced it
                    Path(path).unlink()

    def _serve(self) -> None:
        """Until it is closed; what fails on the way closes nothing."""
        while not self._closed:
            for key, _ in self._selector.select():
                if key.data is not None and not self._closed:
                    self._take(key.fileobj, key.data)  # type: ignore[arg-type]
        with self._lock:
            self._release()

    def _take(self, listening: socket.socket, endpoint: Endpoint) -> None:
        try:
            sock, address = listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # whoever came has gone again
        except OSError as error:
            log.error("%s: a connection could not be accepted: %s", endpoint, describe(error))
            threading.Event().wait(RELIEF)
            return
        try:
            remote, loopback = _remote(endpoint, sock, address), tune(sock)
        except OSError:
            sock.close()  # as above
            return
        if endpoint.kind != "tls":
            self._hand_over(Stream(sock, endpoint.kind, remote, loopback=loopback))
            return
        thread = Supervised(partial(self._shake, sock, remote, loopback), f"headwater-handshake-{remote}")
        with self._lock:
            # The one that takes longest is the least likely to succeed, and newcomers always have their chance.
            pending = [other for other in self._handshakes.values() if other is not None]
            if len(pending) >= PENDING:
                _shut(pending[0])
            self._handshakes[thread] = sock
        try:
            thread.start()
        except RuntimeError:  # no more threads
            log.error("%s: no thread for the handshake with %s", endpoint, remote)
            with self._lock:
                del self._handshakes[thread]
            sock.close()

    def _shake(self, sock: socket.socket, remote: str, loopback: bool) -> None:
        me = threading.current_thread()
        try:
            secure = self._secured(sock, remote)
            if secure is not None:
                self._hand_over(TlsStream(secure, "tls", remote, loopback=loopback))
        finally:
            with self._lock:
                self._handshakes.pop(me, None)

    def _secured(self, sock: socket.socket, remote: str) -> ssl.SSLSocket | None:
        assert self._tls is not None
        me = threading.current_thread()
        secure: ssl.SSLSocket | None = None
        try:
            sock.settimeout(HANDSHAKE)
            secure = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            with self._lock:
                self._handshakes[me] = secure
                self._check_open()
            secure.do_handshake()
            with self._lock:
                self._handshakes[me] = None
                self._check_open()
        except (OSError, ValueError) as error:
            self.refused += 1
            reason = describe(error) if isinstance(error, OSError) else str(error)
            log.info("%s: the TLS handshake failed: %s", remote, reason)
            (secure or sock).close()
            return None
        return secure

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the listener is closed")

    def _hand_over(self, stream: Stream) -> None:
        try:
            self._accept(stream)
        except Exception as error:
            log.exception("%s: the connection could not be taken", stream.remote)
            stream.close(f"the connection could not be taken: {error}")


def _bind(sock: socket.socket, path: str) -> None:
    """Bind to the path, also if it is there but nobody listens at it any more."""
    try:
        sock.bind(path)
        return
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        except OSError:
            pass
    sock.bind(path)


def _file(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _remote(endpoint: Endpoint, sock: socket.socket, address: tuple[str, int] | str) -> str:
    if isinstance(address, tuple):
        return str(replace(endpoint, host=address[0], port=address[1]))
    if hasattr(socket, "SO_PEERCRED"):
        process, *_ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f"{endpoint} (process {process})"
    return str(endpoint)


def _problem(endpoint: Endpoint, error: OSError) -> ConfigProblem:
    expected, found = "an address to listen at", f"{str(endpoint)!r}: {describe(error)}"
    hint = None
    match error.errno:
        case errno.EADDRINUSE if endpoint.kind == "unix" and not stat.S_ISSOCK(os.lstat(endpoint.path).st_mode):
            expected, found = "a path that is free", f"{str(endpoint)!r}: there is a file that is no socket"
            hint = "choose another path, or remove the file"
        case errno.EADDRINUSE:
            expected, found = "an address that is free", f"{str(endpoint)!r}: address already in use"
            hint = "choose another path" if endpoint.kind == "unix" else "choose another port, or 0 for any free one"
        case errno.EACCES | errno.EPERM:
            hint = "this user may not listen there"
        case errno.EADDRNOTAVAIL:
            hint = "it is not an address of this machine"
        case errno.ENOENT:
            found, hint = f"{str(endpoint)!r}: its folder does not exist", "make the folder first"
    return ConfigProblem("listen", expected, found, hint)
