"""Flink as a process that answers: tables of events go in as files, rows or times come out.

Flink is no dependency of Headwater. It runs in an environment of its own, which HEADWATER_FLINK names:

    python3.11 -m venv build/flink && build/flink/bin/pip install apache-flink==2.3.0
    HEADWATER_FLINK=build/flink python -m headwater_studies.flink.recording tests/patterns/flink.json
    HEADWATER_FLINK=build/flink python -m headwater_studies.flink.timing 1000000

It wants Java 11 or 17, and a Python that its release knows (2.3: 3.9 to 3.12).
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from headwater.errors import MissingExtra

VARIABLE = "HEADWATER_FLINK"
WANTED = "apache-flink==2.3.0"
MISSING = r"\N"  # how a file says that there is no value
MILLISECOND = 1_000  # microseconds: Flink's rows have no finer time
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Table:
    """Events as Flink reads them: the types of its SQL by column, the column of their time (TIMESTAMP(3)), the file."""

    name: str
    columns: tuple[tuple[str, str], ...]
    time: str
    file: Path


class Refused(Exception):
    """Flink does not run this query, and says why."""


def python() -> Path:
    """The interpreter of the environment in which Flink is."""
    named = os.environ.get(VARIABLE)
    found = Path(named) / "bin" / "python" if named else None
    if found is None or not found.exists():
        what = f"{VARIABLE} names {named}, where there is no bin/python" if named else f"{VARIABLE} is not set"
        make = f"python3.11 -m venv build/flink && build/flink/bin/pip install {WANTED}"
        raise MissingExtra(f"Flink is not here: {what}\n    make it with: {make}\n    and set {VARIABLE}=build/flink")
    return found.absolute()


def write_events(path: Path, rows: Iterable[Sequence[Any]]) -> Path:
    """A file of events. A time is given in microseconds by `at`; None is a missing value."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([_cell(value) for value in row] for row in rows)
    return path


def _cell(value: Any) -> Any:
    """As Java reads it."""
    if value is None:
        return MISSING
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def at(microseconds: int) -> str:
    """A time as Flink's files have it."""
    if microseconds % MILLISECOND:
        raise ValueError(f"Flink's times are milliseconds, and this is {microseconds} microseconds")
    return f"{_EPOCH + timedelta(microseconds=microseconds):%Y-%m-%d %H:%M:%S.%f}"[:-3]


class Flink:
    """One process, for many queries: it takes seconds to start."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-flink-")
        worker = Path(__file__).with_name("worker.py")
        self._messages = (Path(self._folder.name) / "messages").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [python(), "-I", worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            cwd=self._folder.name,
        )

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._messages.close()
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        """For files of events; it goes with the process."""
        return Path(self._folder.name)

    def matches(self, table: Table, query: str, *, streaming: bool = True) -> tuple[list[str], list[list[Any]]]:
        """The names of a query's columns and its rows."""
        said = self._ask(table, query, streaming=streaming, timed=False)
        return said["columns"], said["rows"]

    def seconds(self, table: Table, query: str, *, streaming: bool = True) -> float:
        """How long its job runs on one core, as Flink measures it: without planning, and with reading the file."""
        return cast(float, self._ask(table, query, streaming=streaming, timed=True)["job"])

    def _ask(self, table: Table, query: str, *, streaming: bool, timed: bool) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {
            "table": table.name,
            "columns": table.columns,
            "time": table.time,
            "file": str(table.file.absolute()),
            "query": query,
            "streaming": streaming,
            "timed": timed,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            messages = Path(self._messages.name).read_text(encoding="utf-8")
            raise Refused(f"Flink has ended: {messages[-2000:]}")
        said = cast(dict[str, Any], json.loads(line))
        if "refused" in said:
            raise Refused(said["refused"])
        return said


__all__ = ["Flink", "Refused", "Table", "at", "python", "write_events"]
