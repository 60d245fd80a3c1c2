"""A process that has loaded all that a node needs, from which others are forked: milliseconds instead of seconds each.

As a program it reads requests from the socket that is its standard input: each brings the three streams of a worker
(`tests.federation.worker`) and is answered with its process number. It ends with whoever has started it.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import headwater

_ROOT = Path(__file__).parents[2]
_PID = struct.Struct("i")
_LOCK = threading.Lock()
AVAILABLE = hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a process which is to find the same headwater and these tests."""
    path = os.pathsep.join([str(Path(headwater.__file__).parents[1]), str(_ROOT)])
    return {**os.environ, **(more or {}), "PYTHONPATH": path}


class Forked:
    """A worker: what `subprocess.Popen` says of one, as far as it is needed."""

    def __init__(self, errors: IO[bytes]) -> None:
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        try:
            self.pid = _nursery().fork(stdin, stdout, errors.fileno())
        finally:
            os.close(stdin)
            os.close(stdout)
        self._handle = os.pidfd_open(self.pid)
        self.stdin: IO[bytes] = os.fdopen(self._stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(self._stdout, "rb")

    def poll(self) -> int | None:
        """None while it runs; how it has ended is not told."""
        return -1 if select.select([self._handle], [], [], 0)[0] else None

    def wait(self) -> int:
        select.select([self._handle], [], [])
        return -1

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._handle)


class Nursery:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.federation.nursery"], stdin=theirs, cwd=_ROOT, env=environment()
            )

    def fork(self, *streams: int) -> int:
        with _LOCK:
            socket.send_fds(self._socket, [b"f"], streams)
            answer = self._socket.recv(_PID.size)
        assert len(answer) == _PID.size, "the process from which others are forked has ended"
        pid: int = _PID.unpack(answer)[0]
        return pid

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_MADE: dict[int, Nursery] = {}  # by process


def _nursery() -> Nursery:
    with _LOCK:
        made = _MADE.get(os.getpid())
        if made is None:
            made = _MADE[os.getpid()] = Nursery()
            atexit.register(made.close)
        return made


# ── the program ──


def main() -> None:
    import zenoh  # noqa: F401  before anything forks: all that is loaded late elsewhere

    import headwater.federation.engine
    import headwater.federation.security.certificates
    import headwater.native  # noqa: F401
    from tests.federation import worker

    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            _, streams, _, _ = socket.recv_fds(requests, 1, 3)
            if len(streams) != 3:
                return
            pid = os.fork()
            if not pid:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                requests.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                worker.serve(worker.Worker())
                os._exit(0)
            for stream in streams:
                os.close(stream)
            requests.send(_PID.pack(pid))


def _reap(*_: object) -> None:
    """So that what they have used is known, and nothing is left of them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
