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
    `change_towards` and `change_back` have had it."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.partition("/")[2].rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp/127.0.0.1:{self._listening.getsockname()[1]}"
        self.towards: list[bytearray] = []
        self.back: list[bytearray] = []
        self.change_towards: Change = bytes
        self.change_back: Change = bytes
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
                self._start(self._pass_on, caller, called, self.towards[-1], True)
                self._start(self._pass_on, called, caller, self.back[-1], False)

    def _pass_on(self, one: socket.socket, other: socket.socket, kept: bytearray, towards: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                kept += data
                passed = (self.change_towards if towards else self.change_back)(data)
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
