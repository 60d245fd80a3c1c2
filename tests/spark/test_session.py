"""Finding Java, and saying what to do where there is none."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ExecutionError
from headwater.spark import session
from headwater.spark.session import find_java, java_version


def _java(home: Path, version: str, *, modules: str = "jdk.incubator.vector@17") -> Path:
    """A stand-in that answers what is asked of it, and otherwise repeats its arguments."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -version) echo \'openjdk version "{version}" 2026-01-01\' >&2;;'
        f" --list-modules) echo '{modules}';; *) printf '%s|' \"$@\";; esac\n"
    )
    java.chmod(0o755)
    return home


def test_versions_old_and_new_are_read(tmp_path: Path) -> None:
    assert java_version(_java(tmp_path / "a", "17.0.1")) == 17
    assert java_version(_java(tmp_path / "b", "1.8.0_402")) == 8
    assert java_version(tmp_path) is None


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = _java(tmp_path / "new", "21.0.1"), _java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert find_java() == new
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert find_java() == new


def test_a_small_runtime_is_not_asked_for_a_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = _java(tmp_path / "a small one", "21.0.8", modules="java.base@21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(small))
    found = find_java()
    assert found != small
    command = [str(found / "bin" / "java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "--x=$y"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "-cp|a b|Main|--x=$y|"


def test_without_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.import_module("headwater.spark.session"), "find_spec", lambda name: None)
    with pytest.raises(ExecutionError, match=r"Java 17 or newer.*Java 11.*pip install"):
        find_java()


def test_the_session_is_quiet_and_reused(spark: Any) -> None:
    assert session() is spark
