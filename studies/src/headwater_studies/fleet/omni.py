"""omniEvents, a CORBA event service, with clients in C++ (`native/omni.cc`), which are built when they are needed.

Its processes here only pass on what they are told to a client each. Its channels by themselves pass events on every
tenth of a second; here they do so at once. While others are measured its server stands still, since it polls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater_studies.fleet.server import Served, ending_with_us, program
from headwater_studies.fleet.worker import serve

SOURCE = Path(__file__).parent / "native" / "omni.cc"
LIBRARIES = ("-lomniORB4", "-lomniDynamic4", "-lomnithread", "-lCOS4", "-lCOSDynamic4", "-pthread")
HEADERS = ("omniORB4/CORBA.h", "COS/CosEventChannelAdmin.hh", "COS/CosLifeCycle.hh")
QUIET = 40  # seconds for events to arrive


def missing() -> str:
    """Why it cannot be run here ("" if it can)."""
    if program("omniEvents") is None:
        return "omniEvents not installed (Debian's omnievents)"
    if program("g++") is None:
        return "no C++ compiler for its client (Debian's g++)"
    includes = "\n".join(f"#include <{header}>" for header in HEADERS)
    tried = subprocess.run(
        ["g++", "-x", "c++", "-E", "-o", os.devnull, "-"], input=includes, capture_output=True, text=True, check=False
    )
    return "its headers are not installed (Debian's libomniorb4-dev and libcos4-dev)" if tried.returncode else ""


def build(folder: Path) -> Path:
    """The client's program, built in a folder unless it is there."""
    made = folder / "omni"
    if not made.exists():
        partly = folder / f"omni-{os.getpid()}"
        command = ["g++", "-O2", "-std=c++17", "-o", str(partly), str(SOURCE), *LIBRARIES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{SOURCE.name} cannot be built: {done.stderr.strip()[-500:]}")
        partly.replace(made)
    return made


def _server(port: int, folder: Path) -> Sequence[str]:
    # It listens on every address, so it is told to take connections from this machine only.
    return [
        *(program("omniEvents") or "omniEvents", "-f", "-p", str(port), "-l", str(folder), "-t", os.devnull),
        *("-ORBserverTransportRule", "localhost tcp"),
    ]


class Omni(Served):
    """A client of the server, told line by line, as we are."""

    _client: subprocess.Popen[str] | None = None

    def __init__(self, folder: Path | None = None) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="headwater-") if folder is None else None
        self._folder = Path(self._own.name) if folder is None and self._own is not None else folder

    def open(self, peer: Any = None) -> dict[str, Any]:
        assert self._folder is not None
        made = build(self._folder)
        port = self.serve(_server) if peer is None else int(peer)
        place = f"corbaloc::127.0.0.1:{port}/"
        side = ("near", f"{place}omniEvents") if peer is None else ("far", place)
        self._client = subprocess.Popen(
            ending_with_us([str(made), *side, "-ORBendPoint", "giop:tcp:127.0.0.1:"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        return {"peer": port}

    def _tell(self, line: str) -> list[str]:
        assert self._client is not None and self._client.stdin is not None
        self._client.stdin.write(f"{line}\n")
        self._client.stdin.flush()
        return self._answer()

    def _answer(self) -> list[str]:
        assert self._client is not None and self._client.stdout is not None
        line = self._client.stdout.readline().strip()
        if not line or line.startswith("error"):
            raise RuntimeError(f"omniEvents' client: {line.removeprefix('error ') or 'it has ended'}")
        return line.split()

    def join(self, peer: Any) -> None:
        """The channels know of their consumers by now."""

    def pin(self, core: int | None) -> None:
        if self._client is None or not hasattr(os, "sched_setaffinity"):
            return
        cores = set(range(os.cpu_count() or 1)) if core is None else {core}
        for thread in Path(f"/proc/{self._client.pid}/task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)

    def cpu(self) -> dict[str, Any]:
        """Of the client, and of the server."""
        return {**super().cpu(), "cpu": float(self._tell("cpu")[0])}

    def echo(self, n: int) -> None:
        self._tell(f"echo {n}")

    def trips(self, n: int) -> dict[str, Any]:
        p50, p99 = self._tell(f"trips {n}")
        return {"p50": float(p50), "p99": float(p99)}

    def expect(self, n: int, mode: str) -> None:
        kind, _, limit = mode.partition(":")
        self._tell(f"expect {n} {kind} {limit or 0}")

    def send(self, n: int, how: str, packed: int) -> dict[str, Any]:
        return {"start": float(self._tell(f"send {n} {how}")[0])}

    def wait(self) -> dict[str, Any]:
        end, got, useful, total = self._tell(f"wait {QUIET}")
        return {"end": float(end), "got": int(got), "useful": int(useful), "total": float(total)}

    def close(self) -> None:
        if self._client is not None:
            self._client.kill()
            self._client.wait(5)
        super().close()
        if self._own is not None:
            self._own.cleanup()


if __name__ == "__main__":
    serve(Omni(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
