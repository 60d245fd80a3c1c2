"""A report as files: the page, its tables as CSV, and the result itself as JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from headwater.study.report.html import Page, render

PAGE, RESULT, TABLES = "report.html", "result.json", "tables"


class Result(Protocol):
    """What a study has found."""

    def to_json(self) -> bytes: ...


def write(page: Page, result: Result, folder: str | os.PathLike[str]) -> Path:
    """Write all of it below `folder`, which is made if need be; returns the page's path."""
    root = Path(folder)
    (root / TABLES).mkdir(parents=True, exist_ok=True)
    for table in page.tables():
        replace(root / TABLES / f"{table.name}.csv", table.csv().encode())
    replace(root / RESULT, result.to_json())
    path = root / PAGE
    replace(path, render(page).encode())
    return path


def replace(path: Path, data: bytes) -> None:
    """All of it or nothing: a reader of the old file is not disturbed."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(data)
    beside.replace(path)
