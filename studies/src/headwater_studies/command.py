"""The studies of performance from the command line: one of them, or all and the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from headwater.errors import ConfigError, ConfigProblem
from headwater.study.report.files import RESULT, replace, write
from headwater_studies.harness.page import markdown, page, text
from headwater_studies.harness.result import Result
from headwater_studies.harness.run import STUDIES, study

SOAK = "soak"  # its result is shown as well, if it is there: `make soak`
Say = Callable[[str], None]


def run_one(args: argparse.Namespace, say: Say) -> int:
    """`headwater study latency` and the like."""
    out = args.out or Path("studies") / args.what
    result = _study(args, args.what, out, say)
    sys.stdout.write(f"{text(result)}\n\nThe report is {out / 'report.html'}\n")
    return 1 if _failed(result) else 0


def _study(args: argparse.Namespace, name: str, out: Path, say: Say) -> Result:
    """Run it and write its report; parts that are not run anew are kept."""
    before = Result.read(out / RESULT) if args.part and (out / RESULT).exists() else None
    costs: dict[str, float] = {}
    for other in STUDIES:  # what was measured before may feed a model
        if other != name and (out.parent / other / RESULT).exists():
            costs |= Result.read(out.parent / other / RESULT).costs
    result = study(
        name,
        say=say,
        only=args.part,
        quick=args.quick,
        rounds=args.rounds,
        master=args.master,
        costs=costs,
        before=before,
    )
    write(page(result), result, out)
    return result


def _failed(result: Result) -> bool:
    return any(why.startswith("failed") for why in result.not_run.values())


def run_all(args: argparse.Namespace, say: Say) -> int:
    """`headwater study performance`."""
    root = args.out or Path("studies")
    if args.no_run and args.page is None:
        raise ConfigError([ConfigProblem("study performance", "--page DIR with --no-run", "none", "say where to")])
    failed = False
    if not args.no_run:
        for name in STUDIES:
            failed |= _failed(_study(args, name, root / name, say))
    paths = [path for name in (*STUDIES, SOAK) if (path := root / name / RESULT).exists()]
    results = [Result.read(path) for path in paths]
    if not results:
        places = ", ".join(str(root / name / RESULT) for name in STUDIES)
        raise ConfigError([ConfigProblem("study performance", f"results at {places}", "none", "leave out --no-run")])
    for result in results:
        sys.stdout.write(f"{root / result.name / 'report.html'}\n" if result.name != SOAK else "")
    if args.page is not None:
        sys.stdout.write(f"{write_page(results, args.page)}\n")
    return 1 if failed else 0


def write_page(results: list[Result], folder: Path) -> Path:
    """`performance.md`, its plots, and the results that it is made from; plots of an earlier page are removed."""
    made = markdown(results)
    beside = folder / "performance"
    beside.mkdir(parents=True, exist_ok=True)
    for old in (*beside.glob("*.svg"), *beside.glob("*.json")):
        old.unlink()
    for result in results:
        replace(beside / f"{result.name}.json", result.to_json(indent=0))
    for name, content in made.items():
        replace(folder / name, content.encode())
    return folder / "performance.md"
