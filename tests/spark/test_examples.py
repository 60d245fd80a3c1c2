"""The examples that start Spark run in the session of all tests, and say what they promise: beginning to end, each as
a program of its own, but for Java, which has begun before and goes on."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.test_examples import ARGUMENTS, FOLDER, SPARK, check


@pytest.mark.timeout(660)  # on machines that do other work
@pytest.mark.parametrize("name", SPARK)
def test_example_with_spark_runs(
    spark: Any, java_errors: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said_before = java_errors.stat().st_size
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *ARGUMENTS.get(name, [])])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
        try:
            runpy.run_path(str(FOLDER / name), run_name="__main__")
        except SystemExit as ended:
            assert not ended.code, capfd.readouterr()
    said = capfd.readouterr()
    assert "Traceback" not in said.err
    assert b"Traceback" not in java_errors.read_bytes()[said_before:]
    check(name, said.out)
