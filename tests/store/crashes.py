"""Ends a process at each of its steps, and looks at what it has left in its state file.

A scenario is an object of a test module that does something with a state file, and another that knows what must be
there afterwards:

    class Counting:
        @staticmethod
        def work(path: Path, life: Life) -> None:
            with NodeState(path) as state:
                tables = state.tables(COUNTS)
                life.begin()                                # from here on it may end
                for number in range(3):
                    with tables.transaction(durable=True) as write:
                        write("UPDATE counts SET n = n + 1")
                    life.said(number)                       # what others have heard must hold

        @staticmethod
        def check(path: Path, said: list[Any]) -> None:
            with NodeState(path) as state:
                assert state.tables(COUNTS).read("SELECT n FROM counts")[0][0] in (len(said), len(said) + 1)

    def test_nothing_that_was_said_is_lost(tmp_path: Path) -> None:
        ended = crashes.everywhere(f"{__name__}:Counting", tmp_path)
        assert ended.steps > 10 and ended.writes > 10

`work` is run once to its end, and once for each point at which it can end: before each of its SQL statements on a
connection that writes, before each thing that it says, and at each write to the write-ahead log, of which the system
lets it do the first bytes only (a limit of the size of files, whose signal kills), also in the middle of a page. Each
time `check` is called with what was said until then, in a process of its own, and after a `work` that came to its end
too. Both may start nodes and threads: each runs in a fork of a process that has loaded the scenario's module and has no
thread, in some milliseconds (fewer the less that module imports). What fails is told with its point; `only=` runs that
one alone:

    crashes.everywhere(f"{__name__}:Counting", tmp_path, only="step 17")

It ends processes, not machines: what the system was given and has not written yet is not lost by it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from tests.federation.nursery import environment

HEADER, FRAME, PAGE = 32, 24, 1024  # bytes of the write-ahead log: its header, that of a page in it, a page
READ_ONLY = "mode=ro"


class Scenario(Protocol):
    """See above; the path is that of the state file, in a folder of its own."""

    def work(self, path: Path, life: Life) -> None: ...

    def check(self, path: Path, said: list[Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How many processes were ended, at a step or in a write; and how many others did not come to their point: none,
    but where threads take turns as they like."""

    steps: int
    writes: int
    others: int


def everywhere(scenario: str, folder: Path, *, only: str = "", every: int = 1) -> Ended:
    """End it at all points, or at one of each `every`; the scenario is named `module:object`."""
    command = [sys.executable, "-m", "tests.store.crashes", scenario, str(folder), only, str(every)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert ended.returncode == 0, ended.stderr
    return Ended(**json.loads(ended.stdout))


class Life:
    """Of a process that ends at one point, or at none; given to `work`."""

    def __init__(self, path: Path, point: tuple[str, int], tell: Callable[[str, Any], None]) -> None:
        self._log = Path(f"{path}-wal")
        self._kind, self._at = point
        self._tell = tell
        self.steps = -1  # not begun
        connect = sqlite3.connect

        def watched(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(database, *args, **options)
            if READ_ONLY not in str(database):
                connection.set_trace_callback(lambda _: self._step())
            return connection

        sqlite3.connect = watched  # type: ignore[assignment]

    def begin(self) -> None:
        """From here on the process may end. Before it, what is the same for all points."""
        self._tell("begun", self._size())
        self.steps = 0
        if self._kind == "write":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._at, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def said(self, value: Any) -> None:
        """Something that JSON can say is known outside: whatever made it true must hold."""
        self._step()
        self._tell("said", value)

    def ended(self) -> None:
        """All was done."""
        assert self.steps >= 0, "expected work that calls life.begin(), found none"
        self._tell("ended", [self.steps, self._size()])

    def _size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _step(self) -> None:
        if self.steps >= 0:
            self.steps += 1
            if self._kind == "step" and self.steps == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            self._tell("size", self._size())


# ── the program ──


def main(name: str, folder: str, only: str, every: str) -> None:
    """End the scenario at all points, one after the other; the first that is wrong ends this."""
    module, _, attribute = name.partition(":")
    scenario: Scenario = getattr(importlib.import_module(module), attribute)
    steps, first, last = _whole(scenario, Path(folder) / "whole")
    points = [("step", number) for number in range(1, steps + 1)]
    points += [("write", size) for size in _writes(first, last)]
    if only:
        kind, _, at = only.partition(" ")
        points = [(kind, int(at))]
    chosen = points[:: int(every)]
    kinds = [_at(scenario, point, Path(folder) / "ended") for point in chosen]
    shutil.rmtree(Path(folder) / "whole")
    print(json.dumps({name: kinds.count(name[:-1]) for name in ("steps", "writes", "others")}))


def _whole(scenario: Scenario, folder: Path) -> tuple[int, int, int]:
    """Its steps, and how long the log was at the beginning and at its longest."""
    code, told = _lived(scenario, ("none", 0), folder)
    if code:
        raise SystemExit(f"expected work that comes to its end, found that it ended with {code}")
    [first] = [value for kind, value in told if kind == "begun"]
    [(steps, size)] = [value for kind, value in told if kind == "ended"]
    _judge(scenario, folder, told, "its end")
    return steps, first, max([size, *(value for kind, value in told if kind == "size")])


def _at(scenario: Scenario, point: tuple[str, int], folder: Path) -> str:
    """One life, and what it has left; which kind of end it had."""
    code, told = _lived(scenario, point, folder)
    where = f"{point[0]} {point[1]}"
    if code not in (-signal.SIGKILL, -signal.SIGXFSZ, 0):
        raise SystemExit(f"at {where}: expected a process that is killed, found that it ended with {code}")
    _judge(scenario, folder, told, where)
    shutil.rmtree(folder)
    return point[0] if code else "other"


def _writes(first: int, last: int) -> Iterator[int]:
    """Sizes of the log at which a write begins: of the header, of a page's header, of the page; and halfway."""
    size = 0
    while size < last:
        for part in (0, FRAME, FRAME + PAGE // 2) if size else (0,):
            if first <= size + part < last:
                yield size + part
        size += FRAME + PAGE if size else HEADER


def _lived(scenario: Scenario, point: tuple[str, int], folder: Path) -> tuple[int, list[tuple[str, Any]]]:
    """How a process ended that has done the work, and what it has told until then."""
    folder.mkdir()
    theirs, ours = os.pipe()

    def tell(kind: str, value: Any) -> None:
        os.write(ours, (json.dumps([kind, value]) + "\n").encode())

    def work() -> None:
        os.close(theirs)
        life = Life(folder / "state", point, tell)
        scenario.work(folder / "state", life)
        life.ended()

    pid = _forked(work)
    os.close(ours)
    with os.fdopen(theirs) as lines:
        told = [tuple(json.loads(line)) for line in lines]
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told


def _judge(scenario: Scenario, folder: Path, told: list[tuple[str, Any]], where: str) -> None:
    said = [value for kind, value in told if kind == "said"]
    pid = _forked(lambda: scenario.check(folder / "state", said))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit(f"ended at {where}, after {said!r} was said: see above")


def _forked(call: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    return _ends(call)


def _ends(call: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        call()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    from tests.store import crashes  # the module itself, whose names scenarios know

    crashes.main(*sys.argv[1:])
