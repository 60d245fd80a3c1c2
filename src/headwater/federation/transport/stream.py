"""Direct streams between two nodes: TCP, TLS and Unix sockets that carry frames.

    A:  listener = Listener(["tcp/127.0.0.1:0"], accept)        B:  stream = dial(listener.endpoints[0])
        accept(stream): stream.start(begin, on_end)                 stream.start(begin, on_end)
                                                                    stream.write(frame)

Each stream has one thread, which reads and calls the receiver; any thread may write. A plain socket stays in blocking
mode, so that reading is one system call and no more; writing asks not to wait, call by call.

In a process that was forked all streams have ended: they are its parent's, and what two processes wrote into one would
be nonsense; where it is encrypted it would also be two texts under one nonce.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from struct import Struct
from time import monotonic
from weakref import WeakSet

from headwater.errors import FrameError, LinkDown, SecurityError
from headwater.federation.transport.link import Link
from headwater.federation.wire.frames import MAX_FRAME, Splitter
from headwater.threads import PROCESS, Supervised

MOST_WAITING = 4096  # frames that may wait while one is being handled
MOST_BYTES = 64 << 20
SMALL, LARGE = 64 << 10, 256 << 10  # bytes asked for in one read; a full one makes the next one large
READING = select.POLLIN | select.POLLHUP | select.POLLERR
WRITING = select.POLLOUT | select.POLLHUP | select.POLLERR
PREFIX = Struct("<I")
NOW = int(socket.MSG_DONTWAIT)
MALFORMED = "not a frame"  # how the reason begins for which a stream ends that carried something else
FORGED = "not what the other end has sent"  # and the reason, of one whose bytes were changed on the way
GREETING_BYTES = 64 << 10  # of the first frame, from one who has not said who it is

Receiver = Callable[[bytes | memoryview, Link], None]  # gets each frame (kind and body), and where it came
Refusal = FrameError | SecurityError | LinkDown  # what a receiver may have against a frame


class Stream:
    """A connection that carries frames both ways; it comes from `dial` or from a `Listener`, and ends once.

    `remote` says who is at the other end; `certificate` is the certificate (DER) that the other end has shown, None if
    it has shown none. Whether it had to be a good one was decided by the TLS context."""

    def __init__(self, sock: socket.socket, kind: str, remote: str, *, loopback: bool, limit: int = MAX_FRAME) -> None:
        self.kind = kind
        self.remote = remote
        self.loopback = loopback  # the other end is on this machine
        self.certificate: bytes | None = None
        self.busy = False
        self.bytes_out = 0
        self.bytes_in = 0
        self.frames_in = 0
        self._sock = sock
        self._splitter = Splitter(limit)
        self._limit = limit + 4  # with the length
        self.waiting: deque[bytes | memoryview] = deque()  # frames that were read and not handled yet
        self._backlog: deque[bytes | memoryview] = deque()
        self._first = bytearray()  # what has come of the first frame, while nothing is read yet
        self._writing = threading.Lock()  # who writes, and every change of `_reason`, `_reader`
        self._polling = threading.Lock()  # who waits in `drain`; the socket is closed when nobody does
        self._reason: str | None = None  # why it has ended
        self._reader: threading.Thread | None = None
        self._wants_read = False
        self._get: Callable[[int], bytes] = sock.recv
        self._put: Callable[[bytes | memoryview, int], int] = sock.send
        self._prepare()
        _STREAMS.add(self)

    @property
    def ended(self) -> str | None:
        """Why the stream has ended; None if it has not."""
        return self._reason

    def hear(self) -> bytes | None:
        """The first frame, as soon as all of it has come; before `start`, and without waiting. FrameError if it is
        none, or larger than a greeting may be. When the other end has gone, the stream has `ended`."""
        first = self._first
        while self._reason is None:
            need = 4 - len(first)
            if need <= 0:
                (size,) = PREFIX.unpack_from(first)
                if not 0 < size <= GREETING_BYTES:
                    raise FrameError(f"expected a greeting of 1 to {GREETING_BYTES:,} bytes, found {size:,}")
                need += size
                if not need:
                    self._first = bytearray()
                    self.frames_in += 1
                    return bytes(first[4:])
            data = self._get_now(need)
            if data is None:
                return None
            if not data:
                self.close("closed by the other end")
            self.bytes_in += len(data)
            first += data
        return None

    def hear_within(self, timeout: float) -> bytes:
        """The first frame, waited for. LinkDown if the stream has ended or it has not come in time."""
        deadline = monotonic() + timeout
        poll = select.poll()
        poll.register(self._sock.fileno(), READING)
        while (frame := self.hear()) is None:
            left = deadline - monotonic()
            if self._reason is not None or left <= 0:
                raise LinkDown(f"{self.remote}: {self._reason or 'it did not say who it is in time'}")
            poll.poll(left * 1000 + 1)
        return frame

    def start(
        self,
        begin: Callable[[], Receiver],
        on_end: Callable[[str], None],
        refused: Callable[[Refusal], None] | None = None,
    ) -> None:
        """Begin to read. One thread calls `begin`, hands every frame to the receiver that this returned, and calls
        `on_end` once.

        `refused` is told what the receiver has against a frame, and may close the stream. Without it that ends the
        stream, as what is wrong with the framing does; so does any other exception, which is also logged. A receiver
        may write and may close; after a close no more frames come."""
        reader = Supervised(partial(self._run, begin, on_end, refused), f"headwater-{self.remote}")
        with self._writing:
            if self._reader is not None:
                raise RuntimeError(f"{self.remote}: start was called before; a stream is read by one")
            self._reader = reader
        try:
            reader.start()
        except RuntimeError:  # no more threads
            self._reader = None
            raise

    def write(self, data: bytes) -> bool:
        """Send now what can be sent without waiting; True if that was all, else the rest waits for `drain`."""
        with self._writing:
            if (self.busy or self._reason is not None) and not self._push():
                self._backlog.append(data)
                return False
            try:
                sent = self._put(data, NOW)
            except BlockingIOError:
                sent = 0
            except BaseException as error:
                raise self._failed(error) from error
            self.bytes_out += sent
            if sent == len(data):
                return True
            self._backlog.append(memoryview(data)[sent:])
            self.busy = True
            return False

    def drain(self, timeout: float) -> bool:
        """Send what waits, for at most `timeout` seconds; True if nothing waits any more. With 0 it never waits."""
        with self._writing:
            if self._push():
                return True
        if timeout <= 0:
            return False
        deadline = monotonic() + timeout
        if not self._polling.acquire(timeout=timeout):
            return False
        try:
            poll = select.poll()
            while True:
                with self._writing:
                    if self._push():
                        return True
                    poll.register(self._sock.fileno(), WRITING)
                left = deadline - monotonic()
                if left <= 0:
                    return False
                poll.poll(left * 1000 + 1)
                if self._wants_read:  # before it can write: the reading thread is about to
                    poll.register(self._sock.fileno(), READING)
                    poll.poll(10)
        finally:
            self._polling.release()

    def close(self, reason: str = "closed here") -> None:
        """End the stream, from any thread; what waits is given up. `on_end` is called by the reading thread."""
        with self._writing:
            self._end(reason)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until `on_end` has returned; True if it has. Not to be called by the receiver or `on_end`."""
        reader = self._reader
        if reader is not None and reader.ident is not None:
            reader.join(timeout)
            return not reader.is_alive()
        return self._reason is not None

    def __repr__(self) -> str:
        return f"<Stream {self.remote}{'' if self._reason is None else f', ended: {self._reason}'}>"

    def abandon(self, reason: str) -> None:
        """It is another process's: leave it to that one, without a word to the other end. No thread of this one's is
        left that could hold a lock."""
        self._writing, self._polling = threading.Lock(), threading.Lock()
        self._reason = self._reason or reason
        self._backlog.clear()
        self.busy = False
        with suppress(OSError):
            self._sock.close()

    # What differs for TLS.

    def _prepare(self) -> None:
        self._sock.setblocking(True)

    def _get_now(self, size: int) -> bytes | None:
        """What has come, at most so many bytes; None if nothing has."""
        try:
            return self._sock.recv(size, NOW)
        except BlockingIOError:
            return None

    def _get_more(self) -> bytes:
        """What has come, when something has."""
        return self._get(LARGE)

    def _farewell(self) -> None:
        """Before the connection is shut down."""

    # Under the lock.

    def _failed(self, error: BaseException) -> BaseException:
        """What to raise when sending failed."""
        if isinstance(error, OSError):
            return LinkDown(f"{self.remote}: the link has ended: {self._end(describe(error))}")
        # Ctrl-C: how much of it went out is not known, so the other end could not tell where the next frame begins.
        self._end("interrupted while sending")
        return error

    def _push(self) -> bool:
        """Send what waits until no more goes out; True if nothing waits."""
        if self._reason is not None:
            raise LinkDown(f"{self.remote}: the link has ended: {self._reason}")
        backlog = self._backlog
        while backlog:
            data = backlog[0]
            try:
                sent = self._put(data, NOW)
            except BlockingIOError:
                return False
            except BaseException as error:
                raise self._failed(error) from error
            self.bytes_out += sent
            if sent < len(data):
                if sent:
                    backlog[0] = memoryview(data)[sent:]
                return False
            backlog.popleft()
        self.busy = False
        return True

    def _end(self, reason: str) -> str:
        """Set the reason if there is none yet, and make the reading thread notice; returns the reason that holds."""
        if self._reason is None:
            self._reason = reason
            self._backlog.clear()
            self.busy = False
            self._farewell()
            with suppress(OSError):  # the other end was quicker
                self._sock.shutdown(socket.SHUT_RDWR)
            if self._reader is None:
                self._sock.close()
        return self._reason

    # The reading thread.

    def _run(
        self,
        begin: Callable[[], Receiver],
        on_end: Callable[[str], None],
        refused: Callable[[Refusal], None] | None,
    ) -> None:
        """Read to the end, then close the socket: only now nobody reads it, and nobody polls it any more either."""
        try:
            reason = self._read(begin(), refused)
        except FrameError as error:
            reason = f"{MALFORMED}: {error}"
        except SecurityError as error:
            reason = f"{FORGED}: {error}"
        except OSError as error:
            reason = describe(error)
        except BaseException as error:
            if self._reason is None:  # else it fails because of the end
                PROCESS.note(f"headwater-{self.remote}: a frame could not be handled, and", error)
            reason = f"a frame could not be handled: {type(error).__name__}: {error}"
        with self._writing:
            reason = self._end(reason)
        alone = self._polling.acquire(timeout=1.0)  # who polls wakes up at once
        with self._writing:
            self._sock.close()
        if alone:
            self._polling.release()
        try:
            on_end(reason)
        except Exception as error:
            PROCESS.note(f"headwater-{self.remote}: the end of the link", error)

    def _read(self, receive: Receiver, refused: Callable[[Refusal], None] | None) -> str:
        """Hand frames on until the stream ends; why it has."""
        get, feed, length, size = self._get, self._splitter.feed, PREFIX.unpack_from, SMALL
        waiting = self.waiting  # `pump`, called by the receiver, may put more there
        parted = False  # a frame has begun
        while self._reason is None:
            data = get(size)
            if not data:
                cut = ", in the middle of a frame" if self._splitter.waiting else ""
                return f"closed by the other end{cut}"
            got = len(data)
            self.bytes_in += got
            if not parted and 4 < got <= self._limit and length(data)[0] == got - 4:
                # Just one frame, as on every round trip: the splitter would find the same.
                self.frames_in += 1
                waiting.append(data[4:] if got < 4096 else memoryview(data)[4:])
            else:
                size = LARGE if got == size else SMALL
                frames = feed(data)
                self.frames_in += len(frames)
                waiting.extend(frames)
            while waiting:
                try:
                    receive(waiting.popleft(), self)
                except (FrameError, SecurityError, LinkDown) as error:
                    if refused is None:
                        raise
                    refused(error)
                if self._reason is not None:
                    waiting.clear()
            parted = self._splitter.waiting > 0
        return self._reason

    @property
    def here(self) -> bool:
        """Whether the calling thread is the one that reads."""
        return threading.current_thread() is self._reader

    def pump(self, timeout: float) -> bool:
        """For a receiver, which has to wait for what may come after the frame it has: read on into `waiting`, from
        which it may take what it needs. Whether something came in time. Nothing comes where the stream is encrypted."""
        if not self.here or self._reason is not None or len(self.waiting) > MOST_WAITING:
            return False
        if sum(map(len, self.waiting)) > MOST_BYTES:
            return False
        try:
            poll = select.poll()  # `select` knows of 1,024 files only
            poll.register(self._sock.fileno(), READING)
            if not poll.poll(timeout * 1000):
                return False
            data = self._get_more()
            frames = self._splitter.feed(data)
        except (FrameError, SecurityError, OSError, ValueError):
            return False  # whoever reads will find the same, and say so
        self.bytes_in += len(data)
        self.frames_in += len(frames)
        self.waiting.extend(frames)
        return bool(frames)


_STREAMS: WeakSet[Stream] = WeakSet()


def _forked() -> None:
    for stream in list(_STREAMS):
        stream.abandon("this process was forked, and the stream is its parent's")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def describe(error: OSError) -> str:
    """In words that say what has happened to a connection."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"the certificate of the other end is not accepted: {error.verify_message}"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return "closed by the other end"
        case ssl.SSLError():
            return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
        case ConnectionResetError():
            return "reset by the other end"
        case BrokenPipeError():
            return "closed by the other end"
        case ConnectionRefusedError():
            return "nobody listens there"
        case FileNotFoundError():
            return "there is no such socket"
        case TimeoutError():
            return "the other end does not answer any more"
        case socket.gaierror():
            return f"the host is not known: {error.strerror}"
    return error.strerror or str(error)
