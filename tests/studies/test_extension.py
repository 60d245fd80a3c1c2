"""What measures is installed beside Headwater: its studies are there when it is, and named when they are missed."""

from __future__ import annotations

import argparse
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headwater.study.command import add_study
from headwater.study.extension import ELSEWHERE, GROUP, Extension, Extensions, extensions, load
from headwater_studies.extension import EXTENSION
from headwater_studies.harness.run import STUDIES
from tests.base import run
from tests.without import Without


def parser(more: Extensions) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headwater")
    add_study(made.add_subparsers(), more)
    return made


def told(more: Extensions, *arguments: str) -> int:
    args = parser(more).parse_args(["study", *arguments])
    done: int = args.run(args)
    return done


def test_the_studies_of_performance_are_installed_and_known() -> None:
    assert EXTENSION in extensions().usable
    assert list(EXTENSION.studies) == [*STUDIES, "performance"] == list(ELSEWHERE)


def test_they_are_of_the_version_of_headwater_that_they_measure() -> None:
    root = Path(__file__).parents[2]
    ours, theirs = (
        tomllib.loads((root / path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for path in ("", "studies")
    )
    assert theirs["version"] == ours["version"]
    assert f"headwater[arrow,federation]=={ours['version']}" in theirs["dependencies"]


def test_naming_them_loads_nothing_heavy() -> None:
    heavy = ("numpy", "pyarrow", "llvmlite", "zenoh", "pyspark", "headwater_studies.harness")
    program = "import json, sys\nfrom headwater.cli import make_parser\nmake_parser()\n"
    assert run(f"{program}print(json.dumps([name for name in {heavy!r} if name in sys.modules]))") == []


def test_without_them_headwater_says_what_to_install(tmp_path: Path) -> None:
    alone = Without(tmp_path / "alone", "headwater_studies")
    asked = alone.headwater("study", "latency", "--quick", "--rounds", "2")
    assert asked.returncode == 2 and "Traceback" not in asked.stderr
    assert asked.stderr.endswith(
        "latency is a study of headwater-studies, which is not installed: pip install headwater-studies\n"
    )
    shown = alone.headwater("study", "--help")
    assert shown.returncode == 0 and "badges|FILE\n" in shown.stdout
    assert "latency" not in shown.stdout and "--quick" not in shown.stdout
    missed = alone.headwater("study", "nothing.toml")
    assert missed.returncode == 2 and "nothing.toml" in missed.stderr and "headwater-studies" not in missed.stderr


def test_an_extension_runs_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def runs(args: argparse.Namespace, say: object) -> int:
        asked.append(f"{args.what} {args.depth}")
        return 7

    def options(to: argparse.ArgumentParser) -> None:
        to.add_argument("--depth", type=int)

    more = Extensions(
        (
            Extension(
                studies={"tides": "a study of the sea"},
                options={"depth": ("a study of the sea",)},
                examples="  headwater study tides\n",
                add_options=options,
                run=runs,
            ),
        )
    )
    assert told(more, "tides", "--depth", "3") == 7 and asked == ["tides 3"]
    with pytest.raises(SystemExit):
        parser(more).parse_args(["study", "--help"])
    shown = capsys.readouterr().out
    assert "badges|FILE|tides" in shown and "  headwater study tides\n" in shown


@pytest.mark.parametrize("value", ["no_such_module_anywhere:EXTENSION", "headwater.study.extension:GROUP"])
def test_one_that_cannot_be_loaded_disturbs_nobody_who_does_not_ask(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = load([EntryPoint("performance", value, GROUP)])
    assert found.usable == () and list(found.broken) == [value]
    assert parser(found).parse_args(["study", "badges"]).what == "badges"
    monkeypatch.setitem(ELSEWHERE, "latency", value)
    with pytest.raises(SystemExit):
        parser(found).parse_args(["study", "latency"])
    assert "which cannot be loaded (" in capsys.readouterr().err
