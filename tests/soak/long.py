"""Phase 4: the tests that take too long for `make test`, marked `soak`, once each and as they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.soak.plan import Clock, Phase, Plan, Say, derived
from tests.soak.properties import ROOT, pytest_for, summary

MARKED = re.compile(r"\bmark\.soak\b")
COMMAND = ("-m", "pytest", "-q", "-m", "soak", "--timeout=0", "-p", "no:cacheprovider")


@dataclass
class Long(Phase):
    tests: int = 0
    cut: bool = False  # its time was up before all of them were done


def modules() -> list[str]:
    """All that have such tests."""
    found = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARKED.search(path.read_text("utf-8"))]
    return [str(path.relative_to(ROOT)) for path in found]


def run(plan: Plan, seconds: float, say: Say, *, only: Sequence[str] = ()) -> Long:
    found = Long("long", derived(plan.seed, "long"))
    clock = Clock(seconds)
    command = [*COMMAND, *(only or modules())]
    code, text = pytest_for([sys.executable, *command], seconds, effort=1)
    counts = summary(text)
    found.tests, found.cut = counts.get("passed", 0), code is None
    if code or counts.keys() & {"failed", "error"}:
        found.replay = " ".join(["python", *(each for each in command if each != "--timeout=0")])
        found.troubles.append(f"pytest ended with {code}\n{text[-6000:]}")
    say(f"{found.tests} tests that are long{', and its time was up' if found.cut else ''}")
    found.seconds = clock.spent
    return found
