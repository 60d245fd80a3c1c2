"""Somebody on the way between two nodes: a relay that passes on what they send, keeps it, and may change it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Change = Callable[[bytes], bytes | None]  # what is passed on instead; None: nothing, and the connection ends


class Relay:
    """Listens at `endpoint` and connects to where a node listens ("tcp/host:port"), once for each connection.

    `towards` and `back` have, for each connection, what was sent to the node and what it has answered, before
    what `change_towards` and `change_back` make have had it."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.partition("/")[2].rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp/127.0.0.1:{self._listening.getsockname()[1]}"
        self.towards: list[bytearray] = []
        self.back: list[bytearray] = []
        self.change_towards: Callable[[], Change] = lambda: bytes  # made for each connection
        self.change_back: Callable[[], Change] = lambda: bytes
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="relay", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                called = socket.create_connection(self._target)
                self._open += [caller, called]
                self.towards.append(bytearray())
                self.back.append(bytearray())
                self._start(self._pass_on, caller, called, self.towards[-1], self.change_towards())
                self._start(self._pass_on, called, caller, self.back[-1], self.change_back())

    def _pass_on(self, one: socket.socket, other: socket.socket, kept: bytearray, change: Change) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                kept += data
                passed = change(data)
                if passed is None:
                    break
                other.sendall(passed)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        for end in [self._listening, *self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)


class Meddler:
    """Changes some of what passes through a relay, frame by frame, after the greetings: one of `every`, up to
    `most` in all. What it does with a frame: flip a bit of it, repeat it, let it change places with the next, drop it.
    """

    def __init__(self, action: str, *, every: int = 10, most: int = 8) -> None:
        self.action, self._every, self._left = action, every, most
        self.done = self._count = 0
        self._lock = threading.Lock()

    def direction(self, greetings: int) -> Change:
        """For one direction of one connection, in which so many frames are greetings."""
        waiting, held = bytearray(), bytearray()
        seen = 0

        def change(data: bytes) -> bytes:
            nonlocal seen, held
            waiting.extend(data)
            out = bytearray()
            while len(waiting) >= 4 and len(waiting) >= (size := 4 + int.from_bytes(waiting[:4], "little")):
                frame = bytes(waiting[:size])
                del waiting[:size]
                seen += 1
                if seen > greetings and self._now():
                    match self.action:
                        case "flip":
                            out += frame[:-9] + bytes((frame[-9] ^ 4,)) + frame[-8:]  # in what an event says
                        case "repeat":
                            out += frame + frame
                        case "swap":
                            held = bytearray(frame)
                    continue
                out += frame + held
                held = bytearray()
            return bytes(out)

        return change

    def _now(self) -> bool:
        with self._lock:
            self._count += 1
            if self._count % self._every or not self._left:
                return False
            self._left -= 1
            self.done += 1
            return True
