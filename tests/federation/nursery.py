"""A process that has loaded all that a node needs, from which others are forked: milliseconds instead of seconds each.

As a program it reads requests from the socket that is its standard input: each names a module with its arguments,
brings the three streams of a process that runs it, and is answered with its number. It ends with its parent.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

import headwater

_ROOT = Path(__file__).parents[2]
_PID = struct.Struct("i")
_REQUEST = 4096  # bytes that a request may have
_ENDING = 60.0  # seconds in which a thread that is about to end has ended
_LOCK = threading.Lock()
AVAILABLE = hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a process which is to find the same headwater and these tests."""
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([str(Path(headwater.__file__).parents[1]), str(_ROOT), *given])
    return {**os.environ, **(more or {}), "PYTHONPATH": path}


class Forked:
    """A process that runs a module: what `subprocess.Popen` says of one, as far as it is needed."""

    def __init__(self, errors: int, module: str, *arguments: str) -> None:
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        try:
            self.pid = _nursery().fork((module, *arguments), stdin, stdout, errors)
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

    def fork(self, command: Sequence[str], *streams: int) -> int:
        request = json.dumps(command).encode()
        assert len(request) < _REQUEST
        with _LOCK:
            socket.send_fds(self._socket, [request], streams)
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

    import headwater_studies.fleet.worker  # noqa: F401
    from tests.federation import worker

    _warm(worker.Count)
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            request, streams, _, _ = socket.recv_fds(requests, _REQUEST, 3)
            if len(streams) != 3:
                return
            pid = os.fork()
            if not pid:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                requests.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                _run(json.loads(request))
            for stream in streams:
                os.close(stream)
            requests.send(_PID.pack(pid))


def _run(command: list[str]) -> NoReturn:
    """As `python -m` would; but a module that is loaded already is not loaded twice."""
    from tests.federation import worker

    code = 0
    try:
        sys.argv = command
        if command == [worker.__name__]:
            worker.serve(worker.Worker())
        else:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _warm(kind: type[headwater.Event]) -> None:
    """Whatever a node makes when it is first used (machine code that is the same for all, parsers) is made here once.
    No thread may be left of it, whatever it was at: a fork has none but its own."""
    with headwater.Node("nursery") as node:
        channel = node.channel("nursery.count", kind)
        channel.subscribe(lambda _: None, "level < 30")
        channel.source("nursery").publish(maker="nursery", n=3)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_ENDING)
            assert not thread.is_alive(), thread


def _reap(*_: object) -> None:
    """So that what they have used is known, and nothing is left of them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
