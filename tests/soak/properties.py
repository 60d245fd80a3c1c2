"""Phase 5: the property tests, many times as hard: modules in an order that follows from the seed, in turn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.plan import Clock, Phase, Plan, Say, chance, derived

ROOT = Path(__file__).parents[2]
PROPERTY = re.compile(r"@given\(|\.TestCase$|\btests\.effort\b", re.MULTILINE)  # what such a module has
LEAST = 15.0  # seconds that a module may take, at least
_SUMMARY = re.compile(r"^(?:=+ )?(\d+ [a-z]+\b.*) in [\d.]+s\b", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|error)")
_EXAMPLES = re.compile(r"- (\d+) passing\b")


@dataclass
class Tested(Phase):
    modules: int = 0  # that were run to their end
    cut: int = 0  # that were ended when their time was up, with nothing found
    not_reached: int = 0
    tests: int = 0
    examples: int = 0  # random ones, as far as modules came to their end


def modules() -> list[str]:
    """All that have properties, or whose tests try harder when told so."""
    found = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if PROPERTY.search(path.read_text("utf-8"))]
    return [str(path.relative_to(ROOT)) for path in found]


def run(plan: Plan, seconds: float, say: Say, *, only: Sequence[str] = ()) -> Tested:
    found = Tested("properties", derived(plan.seed, "properties"))
    clock = Clock(seconds)
    order = list(only) or modules()
    chance(found.seed, "order").shuffle(order)
    most = max(LEAST, seconds / 8)
    for number, module in enumerate(order):
        if clock.left < 5.0:
            found.not_reached = len(order) - number
            break
        command = ["-m", "pytest", "-q", "-x", "--timeout=0", "-p", "no:cacheprovider", "-p", "tests.soak.profile"]
        command += ["--hypothesis-show-statistics", f"--hypothesis-seed={found.seed}", module]
        code, text = pytest_for([sys.executable, *command], min(most, clock.left), plan.effort)
        counts = summary(text)
        found.tests += counts.get("passed", 0)
        found.examples += sum(map(int, _EXAMPLES.findall(text)))
        if code is None:
            found.cut += 1
        elif code == 0:
            found.modules += 1
        else:
            shown = " ".join(["python", *(each for each in command if each != "--timeout=0")])
            found.replay = f"HEADWATER_EFFORT={plan.effort} PYTHONHASHSEED=0 {shown}"
            found.troubles.append(f"{module}: pytest ended with {code}\n{text[-6000:]}")
            break
        said = "its time was up" if code is None else f"{counts.get('passed', 0)} tests"
        say(f"{module}: {said}")
    found.seconds = clock.spent
    return found


def summary(text: str) -> dict[str, int]:
    """How many passed, failed, were errors, as pytest said at its end; packages may say something after it."""
    said = _SUMMARY.findall(text)
    return {word: int(count) for count, word in _COUNT.findall(said[-1])} if said else {}


def pytest_for(command: list[str], seconds: float, effort: int) -> tuple[int | None, str]:
    """Its exit code, None if its time was up, and what it said."""
    environment = {**os.environ, "HEADWATER_EFFORT": str(effort), "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        text, _ = process.communicate(timeout=seconds)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it then still says what it has done
        try:
            text, _ = process.communicate(timeout=10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        return None, text
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
