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
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from headwater.errors import ConfigError, ConfigProblem, FrameError, LinkDown
from headwater.federation.transport.connection import context_of, tune
from headwater.federation.transport.link import Endpoint, parse_endpoints
from headwater.federation.transport.strangers import (
    ENCRYPTED,
    GREETING_SECONDS,
    SPOKE,
    Stranger,
    Strangers,
    place_of_address,
)
from headwater.federation.transport.stream import Stream, describe
from headwater.federation.transport.tls_stream import TlsStream
from headwater.threads import Supervised

log = logging.getLogger("headwater.federation")

BACKLOG = 1024  # connections that the kernel keeps for us
ACCEPTED_AT_ONCE = 64  # connections that are accepted before those that are there have their turn
RELIEF_SECONDS = 0.1  # of rest when the process has no more file descriptors


class Greeter(Protocol):
    """What is said to a stranger, and what becomes of what it says."""

    challenge: bytes  # a frame that is sent to it first

    def answered(self, stream: Stream, frame: bytes | memoryview) -> bool:
        """Its first frame; whether it is a greeting that counts. The stream is started or closed then. Called by the
        listening thread: it should not wait for anyone."""
        ...

    def failed(self, stream: Stream, error: FrameError) -> None:
        """It has sent what is no frame, or too large for a greeting."""
        ...


class Listener:
    """Listens from the start, at all of `endpoints` or at none; `accept` is called with every new stream.

    `accept` is called by the listening thread, for TLS after the handshake, and should start or close the stream and
    return. With `greet`, a new stream is given to a greeter instead, once its other end has said something. Streams
    live on when the listener is closed.

    One thread does all that, and waits for nobody: see `strangers`. `endpoints` are the real ones: a port 0 has become
    a number. `refused` counts TLS handshakes that failed."""

    def __init__(
        self,
        endpoints: Sequence[str],
        accept: Callable[[Stream], None] = Stream.close,
        *,
        tls: ssl.SSLContext | None = None,
        greet: Callable[[], Greeter] | None = None,
        strangers: int = 0,
    ) -> None:
        self._accept, self._greet = accept, greet
        self._tls = tls
        self._lock = threading.Lock()
        self._files: list[tuple[str, tuple[int, int]]] = []  # Unix sockets, and which file each is
        self._selector = selectors.DefaultSelector()
        self._closed = False
        self._resting: list[tuple[socket.socket, Endpoint]] = []  # not listened at for a moment
        self._rested = 0.0
        self.strangers = Strangers(strangers)
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
        self._thread = Supervised(self._serve, f"headwater-listen-{self.endpoints}", again=self._goes_on)
        self._thread.start()

    def renew(self, tls: ssl.SSLContext) -> None:
        """From here on, handshakes are made with this."""
        self._tls = tls

    def close(self) -> None:
        """Stop listening, and end those who have not said who they are.

        After this `accept` is not called any more, unless it is `accept` that closes. Unix sockets' files are gone."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._wake.send(b"x")
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self, endpoint: Endpoint) -> Endpoint:
        """Open one endpoint; returned with the port that it got."""
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
            sock.listen(BACKLOG)
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, endpoint)
        except BaseException:
            sock.close()
            raise
        return endpoint

    def _release(self) -> None:
        for stranger in self.strangers:
            self._drop(stranger, "the listener is closed")
        for sock, _ in self._resting:
            sock.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._wake.close()
        for path, file in self._files:
            with suppress(OSError):
                if _file(path) == file:  # not if another listener has replaced it
                    Path(path).unlink()

    # The listening thread.

    def _serve(self) -> None:
        """Until it is closed; what fails on the way closes nothing."""
        while not self._closed:
            self._turn()
        self._goes_on()

    def _goes_on(self) -> bool:
        """Whether it is not closed; else nothing is left."""
        if not self._closed:
            return True
        with self._lock:
            if self._selector.get_map() is not None:
                self._release()
        return False

    def _turn(self) -> None:
        """Wait until something happens, and see to it: first those who are there, then newcomers."""
        ready = self._selector.select(self._patience())
        for key, _ in ready:
            if isinstance(key.data, Stranger) and not self._closed:
                self._attend(key.data)
        for key, _ in ready:
            if isinstance(key.data, Endpoint) and not self._closed:
                self._take(key.fileobj, key.data)  # type: ignore[arg-type]
        while (late := self.strangers.overdue()) is not None:
            self.strangers.late += 1
            self._drop(late, f"it did not say who it is within {GREETING_SECONDS:g} s")
        if self._resting and monotonic() >= self._rested:
            for sock, endpoint in self._resting:
                self._selector.register(sock, selectors.EVENT_READ, endpoint)
            self._resting.clear()

    def _patience(self) -> float | None:
        patience = self.strangers.patience()
        if not self._resting:
            return patience
        rest = max(0.0, self._rested - monotonic()) + 0.001
        return rest if patience is None else min(rest, patience)

    def _take(self, listening: socket.socket, endpoint: Endpoint) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, ConnectionError):
                return  # whoever came has gone again
            except OSError as error:
                log.error("%s: a connection could not be accepted: %s", endpoint, describe(error))
                self._rest(listening, endpoint)
                return
            try:
                self._meet(sock, address, endpoint)
            except OSError:
                sock.close()  # it has gone again

    def _rest(self, listening: socket.socket, endpoint: Endpoint) -> None:
        """There are no more file descriptors: let some strangers go, and listen again in a moment."""
        for _ in range(ACCEPTED_AT_ONCE):
            self._evict(self.strangers.any_surplus())
        self._selector.unregister(listening)
        self._resting.append((listening, endpoint))
        self._rested = monotonic() + RELIEF_SECONDS

    def _meet(self, sock: socket.socket, address: Any, endpoint: Endpoint) -> None:
        place, loopback = place_of_address(address), tune(sock)
        if not self.strangers.may_come(place, loopback=loopback):
            sock.close()
            return
        stranger = Stranger(sock, endpoint.kind, _remote(endpoint, sock, address), place, loopback)
        if endpoint.kind != "tls" and self._greet is None:
            self.strangers.came += 1
            self._hand_over(stranger, Stream(sock, endpoint.kind, stranger.remote, loopback=loopback))
            return
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, stranger)
        self._evict(self.strangers.add(stranger))
        if endpoint.kind != "tls":
            self._begin(stranger, Stream(sock, endpoint.kind, stranger.remote, loopback=loopback))

    def _attend(self, stranger: Stranger) -> None:
        """A stranger may have sent something."""
        try:
            stranger.reached(SPOKE)
            if stranger.stream is None:
                self._shake(stranger)
            if stranger.stream is not None:
                self._hear(stranger)
        except OSError as error:
            log.info("%s: it has gone before it said who it is: %s", stranger.remote, describe(error))
            self.strangers.left += 1
            self._drop(stranger, describe(error))

    def _shake(self, stranger: Stranger) -> None:
        """Go on with a TLS handshake."""
        assert self._tls is not None
        secure = stranger.sock
        try:
            if not isinstance(secure, ssl.SSLSocket):
                self._selector.unregister(secure)
                stranger.sock = secure = self._tls.wrap_socket(secure, server_side=True, do_handshake_on_connect=False)
                self._selector.register(secure, selectors.EVENT_READ, stranger)
            secure.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(secure, selectors.EVENT_READ, stranger)
        except ssl.SSLWantWriteError:
            self._selector.modify(secure, selectors.EVENT_WRITE, stranger)
        except (OSError, ValueError) as error:
            reason = describe(error) if isinstance(error, OSError) else str(error)
            log.info("%s: the TLS handshake failed: %s", stranger.remote, reason)
            self.refused += 1
            self.strangers.refused += 1
            self._drop(stranger, reason)
        else:
            self._selector.modify(secure, selectors.EVENT_READ, stranger)
            stranger.reached(ENCRYPTED)
            stream = TlsStream(secure, "tls", stranger.remote, loopback=stranger.loopback)
            if self._greet is None:
                self._let_go(stranger)
                self._hand_over(stranger, stream)
            else:
                self._begin(stranger, stream)

    def _begin(self, stranger: Stranger, stream: Stream) -> None:
        """Frames can be exchanged: ask who it is."""
        assert self._greet is not None
        stranger.stream, stranger.greeter = stream, self._greet()
        try:
            stream.write(stranger.greeter.challenge)
        except LinkDown as error:
            self.strangers.left += 1
            self._drop(stranger, str(error))

    def _hear(self, stranger: Stranger) -> None:
        stream, greeter = stranger.stream, stranger.greeter
        assert stream is not None
        try:
            frame = stream.hear()
        except FrameError as error:
            self.strangers.refused += 1
            self._let_go(stranger)
            greeter.failed(stream, error)
            stream.close(f"refused: {error}")
            return
        if stream.ended is not None:
            self.strangers.left += 1
            self._drop(stranger, stream.ended)
        elif frame is None:
            self._evict(self.strangers.grew(stranger, stream.bytes_in))
        else:
            self._let_go(stranger)
            self._admit(stranger, frame)

    def _admit(self, stranger: Stranger, frame: bytes | memoryview) -> None:
        stream = stranger.stream
        assert stream is not None
        try:
            good = stranger.greeter.answered(stream, frame)
        except Exception as error:
            log.exception("%s: the connection could not be taken", stream.remote)
            stream.close(f"the connection could not be taken: {error}")
            good = False
        if good:
            self.strangers.admitted += 1
        else:
            self.strangers.refused += 1

    def _hand_over(self, stranger: Stranger, stream: Stream) -> None:
        self.strangers.admitted += 1
        try:
            self._accept(stream)
        except Exception as error:
            log.exception("%s: the connection could not be taken", stream.remote)
            stream.close(f"the connection could not be taken: {error}")

    def _evict(self, stranger: Stranger | None) -> None:
        if stranger is not None:
            self.strangers.evicted += 1
            self._drop(stranger, "too many others have not said who they are either")

    def _let_go(self, stranger: Stranger) -> None:
        """It is a stranger no more."""
        if self.strangers.remove(stranger):
            with suppress(KeyError, ValueError):
                self._selector.unregister(stranger.sock)

    def _drop(self, stranger: Stranger, reason: str) -> None:
        self._let_go(stranger)
        stranger.close(reason)


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
