"""What SQLite alone takes for the same work: the SQL of a workload is recorded, and run again with nothing around it.

    with Recording(node.state, folder) as recording:
        work()
    seconds = recording.replay(folder / "bare")

Recorded are the statements of the connection that writes, each with its values, and when the file was synced; and the
file as it was before. The replay runs them in a loop of one thread, from that file on, through the same module of
Python with the same pragmas: it finds its statements prepared, as ours are, and fetches no row, which ours does. So it
is what no engine on top of that module can be better than, and no wrapper of ours is in it. It syncs the write-ahead
log where the workload has, by the same call, and nowhere else: after a commit, as `synchronous = FULL` would within it.

Reads of other connections are not in it; they stop nobody. Recording takes time: measure the work without it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from time import perf_counter
from typing import Any

from headwater.store import NodeState, durability

PRAGMAS = ("locking_mode", "journal_mode", "synchronous", "wal_autocheckpoint", "cache_size", "journal_size_limit")
Step = tuple[str, tuple[Any, ...]] | None  # None: a sync
# Makes a state of its own in an empty folder, and what is to be done with it.
Prepare = Callable[[Path], AbstractContextManager[tuple[NodeState, Callable[[], object]]]]


class Recording:
    """All that a state's connection is told to write between the beginning and the end of a block."""

    def __init__(self, state: NodeState, folder: Path) -> None:
        self._state, self._start = state, folder / "start.sqlite"
        self.steps: list[Step] = []
        self.pragmas: dict[str, Any] = {}

    def __enter__(self) -> Recording:
        state = self._state
        with state._lock:
            connection = state._connection
            assert connection is not None, "expected a state that is open"
            self.pragmas = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
            with closing(sqlite3.connect(self._start)) as start:
                connection.backup(start)
            state._connection = _Recorder(connection, self.steps)  # type: ignore[assignment]
        self._connection, self._sync = connection, durability.sync

        def sync(descriptor: int) -> None:
            self.steps.append(None)
            self._sync(descriptor)

        durability.sync = sync
        return self

    def __exit__(self, *_: object) -> None:
        durability.sync = self._sync
        with self._state._lock:
            self._state._connection = self._connection

    @property
    def syncs(self) -> int:
        """How often the file was synced."""
        return self.steps.count(None)

    @property
    def commits(self) -> int:
        """Transactions that have come to their end."""
        return sum(step is not None and step[0] == "COMMIT" for step in self.steps)

    def replay(self, folder: Path) -> float:
        """Seconds that SQLite alone takes for it, in a new folder, which then has the file."""
        folder.mkdir()
        path = folder / "state"
        shutil.copy(self._start, path)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for name, value in self.pragmas.items():
                connection.execute(f"PRAGMA {name} = {value}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # the log is there from now on
            log = os.open(f"{path}-wal", os.O_RDONLY)
            try:
                return self._run(connection, log)
            finally:
                os.close(log)

    def _run(self, connection: sqlite3.Connection, log: int) -> float:
        execute, sync = connection.execute, durability.sync
        start = perf_counter()
        for step in self.steps:
            if step is None:
                sync(log)
            else:
                execute(*step)
        return perf_counter() - start


class _Recorder:
    """In place of a connection: as that, but what it is told is written down."""

    def __init__(self, connection: sqlite3.Connection, steps: list[Step]) -> None:
        self._connection, self._steps = connection, steps

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        cursor = self._connection.execute(statement, values)
        self._steps.append((statement, tuple(values)))
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def beside_bare(prepare: Prepare, folder: Path, *, rounds: int = 5) -> tuple[float, float, Recording]:
    """Median seconds of some work, and of SQLite alone with what was recorded of it; taking turns, so that noise hits
    both alike. Each round begins with a state of its own."""
    ours, bare = list[float](), list[float]()
    (folder / "recorded").mkdir(parents=True)
    with prepare(folder / "recorded") as (state, work), Recording(state, folder) as recording:
        work()
    for number in range(rounds):
        own = folder / f"ours{number}"
        own.mkdir()
        with prepare(own) as (_, work):
            start = perf_counter()
            work()
            ours.append(perf_counter() - start)
        bare.append(recording.replay(folder / f"bare{number}"))
    return statistics.median(ours), statistics.median(bare), recording


__all__ = ["Prepare", "Recording", "beside_bare"]
