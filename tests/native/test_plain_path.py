"""Which Pythons machine code looks into, and that all others get the same from the plain path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import python_versions
from headwater.python_versions import VERIFIED, Interpreter, refusal, unknown
from tests.base import GUARD

USUAL = Interpreter("cpython", (3, 11), debug=False, free_threaded=False, locked=True, bits=64, byteorder="little")
ROOT = Path(__file__).parents[2]
SOURCES = Path(headwater.__file__).parents[1]


@pytest.mark.parametrize("version", VERIFIED)
def test_versions_that_were_verified_are_known(version: tuple[int, int]) -> None:
    assert unknown(USUAL._replace(version=version)) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": (3, 15)}, "verified on CPython 3.11, 3.12, 3.13, 3.14, and not on 3.15"),
        ({"version": (4, 0)}, "and not on 4.0"),
        ({"implementation": "pypy"}, "not of PyPy 3.11"),
        ({"implementation": "graalpy"}, "not of graalpy 3.11"),
        ({"debug": True}, "not of a debug CPython 3.11"),
        ({"free_threaded": True}, "not of a free-threaded CPython 3.11"),
        ({"bits": 32}, "not of 32 bits, little-endian"),
        ({"byteorder": "big"}, "not of 64 bits, big-endian"),
    ],
)
def test_machine_code_does_not_look_into_others(change: dict[str, Any], why: str) -> None:
    found = unknown(USUAL._replace(**change))
    assert found is not None and why in found


def test_without_its_lock_no_python_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(USUAL) is refusal(USUAL._replace(free_threaded=True)) is None
    assert "PYTHON_GIL=1" in str(refusal(USUAL._replace(free_threaded=True, locked=False)))
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(ImportError, match=r"relies on Python's global lock, and this .*CPython .* runs without"):
        python_versions.check()


@cache
def seen(mode: str) -> dict[str, Any]:
    """What the program sees: with machine code, on the plain path by request, or on a Python that is not known."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCES), str(ROOT)))}
    environment[python_versions.PLAIN] = "1" if mode == "chosen" else "0"
    command = [sys.executable, "-m", "tests.native.plain_program", *(("unknown",) if mode == "unknown" else ())]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_with_machine_code_nothing_is_told() -> None:
    found = seen("known")
    assert found["builtin"] and found["told"] == []
    assert found["threads"] == [2000, 4 * sum(range(500))]
    counts = found["counts"]
    assert counts["evaluated"] == counts["passed"] + counts["rejected"] + counts["undecided"] == len(found["log"]) + 2


@pytest.mark.parametrize(
    ("mode", "why"),
    [("chosen", "HEADWATER_PLAIN=1 is set"), ("unknown", f"and not on {sys.version_info[0]}.{sys.version_info[1]}")],
)
def test_the_plain_path_gives_the_same_and_says_why_it_is_taken(mode: str, why: str) -> None:
    plain, native = seen(mode), seen("known")
    assert not plain["builtin"]
    assert len(plain["told"]) == 1 and plain["told"][0].endswith(why)
    for what in ("coded", "answers", "log", "counts", "threads"):
        assert plain[what] == native[what], what
