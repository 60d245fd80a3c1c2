"""Nodes in processes of their own, and the wires between them, which can be cut: all of it ends with the test."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from tests.federation.nursery import Popen, environment

GUARD = 240.0  # seconds, against hanging
START = 600.0  # the same for a process that starts: a machine with much else to do may take long to load everything
ANSWER = 3 * GUARD  # what is asked of a process waits for GUARD at most; more than once, it may be
_ROOT = Path(__file__).parents[2]
WORKER = "tests.federation.worker"
_CREDENTIALS = struct.Struct("3i")  # pid, user, group of the other end of a Unix socket


class Died(Exception):
    """A process has ended that was to answer."""


class Process:
    """A node in a process of its own, which runs a module that ends in `tests.federation.worker.serve`."""

    def __init__(self, name: str, log: Path, module: str = WORKER, more: Mapping[str, str] | None = None) -> None:
        self.name = name
        command = [sys.executable, "-m", module]
        with log.open("ab") as errors:
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self._process: subprocess.Popen[bytes] = (
                subprocess.Popen(command, env=environment(more), cwd=_ROOT, **streams)
                if more
                else Popen(command, cwd=_ROOT, **streams)
            )
        self.pid = self._process.pid
        self._log = log
        self._come = b""  # what it has said that nobody has asked for yet
        self._ready = False
        self.stopped = False

    def ready(self) -> None:
        """Wait until it has started, by its own word."""
        if not self._ready:
            self._line(START)
            self._ready = True

    def start(self, do: str, /, **what: Any) -> None:
        """Ask for something; `answer` waits for it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Died(f"{self.name}: {error}; {self.log()}") from error

    def says(self, timeout: float) -> bool:
        """Whether it says something, or ends, within that time; `answer` then does not wait."""
        assert self._process.stdout is not None
        return bool(b"\n" in self._come or select.select([self._process.stdout], [], [], timeout)[0])

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._come:  # not by `readline`: what that reads beyond the line, `select` does not see
            assert self.says(timeout), f"{self.name} has not answered for {timeout:.0f} s; {self.log()}"
            some = os.read(self._process.stdout.fileno(), 1 << 16)
            if not some:
                raise Died(f"{self.name} has ended with {self._process.wait()}; {self.log()}")
            self._come += some
        line, _, self._come = self._come.partition(b"\n")
        return line

    def answer(self) -> Any:
        self.ready()
        answer = json.loads(self._line(ANSWER))
        if "error" in answer:
            raise AssertionError(f"{self.name}: {answer['error']}")
        return answer["ok"]

    def __call__(self, do: str, /, **what: Any) -> Any:
        self.start(do, **what)
        return self.answer()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def said(self, what: str) -> list[str]:
        """All lines of its log that have this in them."""
        return [line for line in self._log.read_text(errors="replace").splitlines() if what in line]

    # ── what may happen to it ──

    def kill(self) -> None:
        """As it is, in the middle of whatever it does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def stop(self) -> None:
        """It stands still, and its connections with it."""
        self._process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.stopped = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


class Wires:
    """What connects processes: every byte between them goes through here, over Unix sockets.

    An end is known by its process, so that a node can be cut off from all others. Cut connections are ended, or, if
    they are only to be held, stand still until they are let go on."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.AbstractServer] = []
        self._open: dict[asyncio.Task[Any], tuple[str, str]] = {}
        self._names: dict[int, str] = {}
        self._targets: dict[Path, Path] = {}
        self._cut: set[str] = set()
        self._streamless: set[str] = set()
        self._held: set[str] = set()
        self._healed = self._do(self._event())
        self.carried = 0

    async def _event(self) -> asyncio.Event:
        return asyncio.Event()

    def _do(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(GUARD)

    # ── ends ──

    def process(self, pid: int, name: str) -> None:
        self._names[pid] = name

    def between(self, name: str, path: Path) -> None:
        """Stand between a node that listens at a path and everyone who calls it there."""
        behind = path.with_name(f"{path.name}.behind")
        path.rename(behind)
        self.lead(name, path, behind)

    def lead(self, name: str, path: Path, target: Path) -> None:
        """Calls at a path lead to what listens at another one, which is of that node."""
        known = path in self._targets
        self._targets[path] = target

        async def serve() -> None:
            self._servers.append(
                await asyncio.start_unix_server(lambda reader, writer: self._carry(name, path, reader, writer), path)
            )

        if not known:
            self._do(serve())

    def _caller(self, writer: asyncio.StreamWriter) -> str:
        sock = writer.get_extra_info("socket")
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return self._names.get(_CREDENTIALS.unpack(found)[0], "unknown")

    # ── carrying ──

    async def _carry(self, called: str, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = self._caller(writer), called
        writers, task = [writer], asyncio.current_task()
        assert task is not None
        self._open[task] = ends
        try:
            if self._cut.intersection(ends) or (path.suffix == ".d" and self._streamless.intersection(ends)):
                return
            far_reader, far_writer = await asyncio.open_unix_connection(self._targets[path])
            writers.append(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far_writer, ends))
                both.create_task(self._copy(far_reader, writer, ends))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            del self._open[task]
            for each in writers:
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: tuple[str, str]) -> None:
        while data := await reader.read(65536):
            while self._held.intersection(ends):
                await self._healed.wait()
            self.carried += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one direction alone is of no use

    # ── what may happen ──

    def cut(self, name: str, *, ended: bool = True) -> None:
        """A node reaches nobody: its connections end and no new one is made; or they only stand still."""

        async def cut() -> None:
            if not ended:
                self._healed.clear()
                self._held.add(name)
                return
            self._cut.add(name)
            concerned = [task for task, ends in self._open.items() if name in ends]
            for task in concerned:
                task.cancel()
            if concerned:
                await asyncio.wait(concerned)

        self._do(cut())

    def without_streams(self, name: str) -> None:
        """No direct stream leads to a node, nor from it: its events take Zenoh's path."""
        self._streamless.add(name)

    def heal(self, name: str) -> None:
        async def heal() -> None:
            self._cut.discard(name)
            self._held.discard(name)
            self._healed.set()
            if self._held:
                self._healed.clear()

        self._do(heal())

    def connections(self) -> list[tuple[str, str]]:
        async def now() -> list[tuple[str, str]]:
            return sorted(self._open.values())

        found: list[tuple[str, str]] = self._do(now())
        return found

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            for task in list(self._open):
                task.cancel()
            self._healed.set()
            self._held.clear()
            while self._open:
                await asyncio.wait(list(self._open))

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GUARD)
        self._loop.close()


class World:
    """Processes, and the wires between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wires = Wires()
        self.running: dict[str, Process] = {}
        self._lives: dict[str, int] = {}
        self.options: Callable[[str], dict[str, Any]] = lambda name: {}  # of each node's network
        self.environment: Callable[[str], dict[str, str]] = lambda name: {}  # of its next process

    def start(self, name: str) -> Process:
        """A process; its node is not open yet."""
        process = Process(name, self.folder / f"{name}.err", more=self.environment(name))
        self.running[name] = process
        self.wires.process(process.pid, name)
        self._lives[name] = self._lives.get(name, 0) + 1
        return process

    def open(
        self,
        *names: str,
        seeds: Sequence[str] = (),
        state: bool = False,
        log: dict[str, Any] | None = None,
        **network: Any,
    ) -> None:
        """Nodes that lead to each other only by wires: each connects to the seeds."""
        for name in names:
            if name not in self.running:
                self.start(name)
        for name in names:
            process = self.running[name]
            process.ready()
            listen, direct = (self.folder / f"{name}.{self.life(name)}.{kind}" for kind in "zd")
            options = {"listen": f"unix/{listen}", "direct": f"unix/{direct}", **network, **self.options(name)}
            options["connect"] = [f"unix/{self.folder}/{seed}.z" for seed in seeds]
            self.wires.cut(name, ended=False)  # nothing gets to it, nor out of it, before the wires stand between
            kept = self.path(f"{name}.state") if state else None
            logged = None if log is None else {"path": self.path("events"), **log}
            process.start("open", name=name, network=options, state=kept, log=logged)
        for name in names:
            paths = [self.folder / f"{name}.{self.life(name)}.{kind}" for kind in "zd"]
            self._until_open(self.running[name], paths)
            for path in paths:
                self.wires.between(name, path)
            self.wires.lead(name, self.folder / f"{name}.z", paths[0].with_name(f"{paths[0].name}.behind"))
            self.wires.heal(name)
        for name in names:
            self.running[name].answer()

    def _until_open(self, process: Process, paths: Sequence[Path]) -> None:
        """It listens; unless it has ended, or says why it cannot, which is raised."""
        end = monotonic() + START
        while not all(path.exists() for path in paths):
            if process.says(0.005) and not all(path.exists() for path in paths):
                process.answer()
            assert monotonic() < end, f"{process.name} has not opened its sockets for {START:.0f} s; {process.log()}"

    def life(self, name: str) -> int:
        """How often it was started."""
        return self._lives[name]

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def __getitem__(self, name: str) -> Process:
        return self.running[name]

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
        self.wires.close()


@contextmanager
def world() -> Iterator[World]:
    """Nothing of it is left at the end."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:  # a short path: those of Unix sockets must be
        made = World(Path(folder))
        try:
            yield made
        finally:
            made.close()
