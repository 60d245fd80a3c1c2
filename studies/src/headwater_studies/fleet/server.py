"""The server of a system that has one: started for a measurement on a free port of loopback, ended by its number."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from headwater_studies.fleet.receiving import JOIN, Receiving, free_port

PLACES = ("/usr/sbin", "/usr/local/sbin")  # where servers are that a user's own path often leaves out


def program(name: str) -> str | None:
    """Where a program is, if it is installed."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES))


def said(*command: str) -> str:
    """What a program says of its version, whatever it ends with; nothing if it says nothing."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        return (done.stdout or done.stderr).strip()
    return ""


_ENDING = """
import ctypes, os, signal, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl is not None:
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):  # else that has come too late
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def ending_with_us(command: Sequence[str]) -> list[str]:
    """The command of a program that is ended when the thread that starts it does, however that came, where the system
    sees to that: on Linux."""
    return [sys.executable, "-I", "-S", "-c", _ENDING, str(os.getpid()), *command]


def spent(pid: int) -> float | None:
    """Processor time that a process has used, in seconds; None where the system does not tell."""
    with suppress(OSError, ValueError, OverflowError):
        return time.clock_gettime(~pid << 3 | 2)  # the clock that clock_getcpuclockid(3) gives for it on Linux
    return None


class Server:
    """A running server, and a folder for what it writes, which is gone with it.

    `command` gets the port and the folder; its first word is the program."""

    def __init__(self, command: Callable[[int, Path], Sequence[str]]) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-")
        self._command = command(self.port, Path(self._folder.name))
        self._process = subprocess.Popen(
            ending_with_us(self._command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
        )
        self.pid = self._process.pid

    def until_there(self) -> None:
        """Return when it can be connected to."""
        end = perf_counter() + JOIN
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._command!r} ended with code {self._process.returncode}")
            if perf_counter() > end:
                raise TimeoutError(f"{self._command!r} does not listen on port {self.port}")
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(5)
        self._folder.cleanup()


class Served(Receiving):
    """A client of a server, which the near one starts."""

    _server: Server | None = None

    def serve(self, command: Callable[[int, Path], Sequence[str]]) -> int:
        """Start the server: its port."""
        self._server = Server(command)
        self._server.until_there()
        return self._server.port

    def cpu(self) -> dict[str, Any]:
        """Processor time used so far, by this process and by the server that it has started."""
        used: dict[str, Any] = {"cpu": process_time()}
        if self._server is not None:
            used["server"] = spent(self._server.pid)
        return used

    def rest(self) -> None:
        """The server stands still from now on, so that it takes no time from others."""
        if self._server is not None:
            self._server.signal(signal.SIGSTOP)

    def wake(self) -> None:
        if self._server is not None:
            self._server.signal(signal.SIGCONT)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
