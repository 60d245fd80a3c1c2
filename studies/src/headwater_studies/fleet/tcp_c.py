"""Raw TCP from C: the same two sockets as in `tcp`, in loops that the system's compiler makes of `native/tcp.c`.

A process is started with the path of what `build` has made.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater_studies.fleet.tcp import SIZE, Tcp
from headwater_studies.fleet.worker import record, serve, times

SOURCE = Path(__file__).with_name("native") / "tcp.c"
FLAGS = ("-O2", "-shared", "-fPIC")
PATIENCE = 60.0  # seconds for the compiler


class NoCompiler(Exception):
    """There is no C compiler, or it does not make what it should."""


def compiler() -> str | None:
    """The path of the system's C compiler: what CC says, else cc, gcc or clang."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def build(folder: Path) -> Path:
    """Compile the loops into a folder: the path of the library. NoCompiler says why there is none."""
    path = compiler()
    if path is None:
        raise NoCompiler("no C compiler (cc, gcc or clang) installed")
    made = folder / "tcp.so"
    command = [path, *FLAGS, "-o", str(made), str(SOURCE)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompiler(f"{path} could not be run: {error}") from None
    if ended.returncode:
        raise NoCompiler(f"{path} ended with code {ended.returncode}: {ended.stderr.strip()[:200]}")
    return made


def version() -> str:
    """What the compiler says it is, in a line; "" where there is none."""
    path = compiler()
    if path is None:
        return ""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.partition("\n")[0].strip()


class TcpC(Tcp):
    """Two sockets, connected from Python; all that is timed happens in C."""

    def __init__(self, library: str) -> None:
        self._loops = ctypes.CDLL(library)
        numbers = ctypes.POINTER(ctypes.c_int64)
        self._loops.echo.argtypes = [ctypes.c_int, ctypes.c_int64]
        self._loops.trips.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_char_p, numbers]
        self._loops.echo.restype = self._loops.trips.restype = ctypes.c_int64

    def echo(self, n: int) -> None:
        done = self._loops.echo(self._socket.fileno(), n)
        if done != n:
            raise ConnectionError(f"{done:,} of {n:,} messages were sent back")

    def trips(self, n: int) -> dict[str, Any]:
        taken, data = (ctypes.c_int64 * n)(), record(0)
        assert len(data) == SIZE
        done = self._loops.trips(self._socket.fileno(), n, data, taken)
        if done != n:
            raise ConnectionError(f"{done:,} of {n:,} round trips were made")
        return times(list(taken))


if __name__ == "__main__":
    serve(TcpC(sys.argv[1]))
