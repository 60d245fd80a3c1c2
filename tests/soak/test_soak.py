"""The soak counts right, replays by its seed, and says when something is wrong. A short run is a test by itself."""

from __future__ import annotations

import os
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from headwater.federation.security.session import Exchange
from headwater.study.report.table import Table
from headwater_studies.harness.result import Result
from tests.federation import attacks
from tests.federation.faults import Outcome, Tally, count
from tests.federation.hostile import Frames, Mallory, Target
from tests.soak import long, properties, report
from tests.soak.__main__ import plan_of, soak
from tests.soak.federation import Faulted
from tests.soak.meter import Meter, Sample, sample
from tests.soak.plan import Phase, Plan, chance, derived

ROOT = Path(__file__).parents[2]


class TestCounting:
    def tally(self, folder: Path, *events: tuple[str, int], step: int = 1, **done: int) -> Tally:
        """Of a sink's log; an event's maker may end in "!", which is one that is marked as again."""
        lines = [f"s 0 {maker.rstrip('!')} {n} 1 {int(maker.endswith('!'))}" for maker, n in events]
        path = folder / "sink.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        published = {name.replace("_", "-"): n for name, n in done.items()}
        return count(path, step, published, published)

    def test_everything_came(self, tmp_path: Path) -> None:
        tally = self.tally(tmp_path, ("a-1", 3), ("a-1", 4), ("a-2", 1), ("a-2", 2), ("a-2!", 2), a_1=4, a_2=2)
        assert tally == Tally(wanted=4, delivered=4, again=1) and tally.good

    def test_in_steps(self, tmp_path: Path) -> None:
        assert self.tally(tmp_path, ("a-1", 3), ("a-1", 6), step=3, a_1=8).good
        assert self.tally(tmp_path, ("a-1", 3), ("a-1", 6), step=3, a_1=9).lost == 1

    @pytest.mark.parametrize(
        ("events", "lost", "duplicated", "disordered", "invented"),
        [
            ([1, 2, 5, 6], 2, 0, 0, 0),
            ([1, 2, 3], 3, 0, 0, 0),
            ([], 6, 0, 0, 0),
            ([1, 2, 3, 3, 4, 5, 6], 0, 1, 0, 0),
            ([1, 2, 3, 4, 5, 6, 2], 0, 1, 0, 0),
            ([1, 3, 2, 4, 5, 6], 0, 0, 1, 0),
            ([1, 2, 3, 4, 5, 6, 7], 0, 0, 0, 1),
            ([2, 3, 4, 5, 6], 0, 0, 0, 0),  # it began with the second
        ],
    )
    def test_what_is_wrong(
        self, tmp_path: Path, events: list[int], lost: int, duplicated: int, disordered: int, invented: int
    ) -> None:
        tally = self.tally(tmp_path, *(("a-1", n) for n in events), a_1=6)
        assert (tally.lost, tally.duplicated, tally.disordered, tally.invented) == (
            lost,
            duplicated,
            disordered,
            invented,
        )
        assert tally.good == (not tally.problems)
        assert tally.wanted == tally.delivered + tally.lost

    def test_those_of_a_later_life_must_come_from_the_first_on(self, tmp_path: Path) -> None:
        assert self.tally(tmp_path, ("a-1", 4), ("a-2", 3), a_1=4, a_2=3).lost == 2

    def test_marked_as_again_but_long_gone(self, tmp_path: Path) -> None:
        assert self.tally(tmp_path, ("a-1", 1), ("a-1", 2), ("a-1!", 1), a_1=2).duplicated == 1


class TestMeter:
    def growing(self, *threads: int) -> list[str]:
        return Meter({"it": [Sample(100 << 20, each, 10) for each in threads]}).growing()

    def test_growth(self) -> None:
        assert self.growing(*range(10, 40)) == ["it: threads grow from at most 19 to at least 30"]
        assert not self.growing(10, 10, 10, 10, 60, 10, 10, 11, 60, 10)  # a peak is none
        assert not self.growing(*range(10, 15))  # too few
        assert not self.growing(*[10] * 20, *[12] * 20)

    def test_of_this_process(self) -> None:
        found = sample(os.getpid())
        assert found.memory > 1 << 20 and found.threads >= 1 and found.files >= 3


class TestReplaying:
    def test_a_seed_says_everything(self) -> None:
        assert derived(1, "faults") == derived(1, "faults") != derived(2, "faults")
        target = Target("lab.0", "headwater", "tcp/127.0.0.1:1", "tcp/127.0.0.1:2")

        def everything(seed: int) -> list[Any]:
            mallory = Mallory(target, key=chance(seed, "key").randbytes(32))
            mallory.known = Exchange().public  # as if the node had told it
            frames = Frames(1, attacks.CHANNEL, attacks.TYPE, attacks.RECORDS, chance(seed, "frames"))
            sizes = [len(attacks.request(mallory, chance(seed, "envelope", n))) for n in range(50)]
            return [mallory.id, sizes, list(islice(frames, 300))]

        assert everything(3) == everything(3) != everything(4)

    def test_the_command(self) -> None:
        plan = plan_of(["--seed", "5", "--phases", "faults,inputs", "--faults", "7"])
        assert plan.command() == "make soak MINUTES=20 SEED=5 FAULTS=7 PHASES=faults,inputs"
        assert plan.command(phases="inputs", faults=0) == "make soak MINUTES=20 SEED=5 PHASES=inputs"

    def test_what_make_does_with_it(self) -> None:
        command = Plan(seed=5, faults=7, phases=("inputs",)).command().split()
        shown = subprocess.run([*command, "-n", "-o", "env"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "--minutes 20" in shown.stdout
        assert "--seed 5 --faults 7" in shown.stdout and "--phases inputs" in shown.stdout

    def test_what_is_asked_wrongly(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            plan_of(["--phases", "faults,nothing"])
        assert "phases of faults, moving, inputs, long, properties" in capsys.readouterr().err


def cells(found: Result, table: str) -> dict[str, Any]:
    """By the first cell of each row, the last."""
    tables = [block for section in found.sections for block in section.blocks if isinstance(block, Table)]
    return {str(row.values[0]): row.values[-1] for each in tables if each.name == table for row in each.rows}


def test_a_short_run(tmp_path: Path) -> None:
    plan = Plan(minutes=10, seed=1, faults=2, rounds=1, effort=1, phases=("faults", "inputs"), folder=tmp_path)
    lines: list[str] = []
    assert soak(plan, lines.append) == 0, (tmp_path / "trouble.txt").read_text()
    assert lines[0].startswith("seed 1: make soak ")
    data = (tmp_path / "result.json").read_bytes()
    found = Result.from_json(data)
    assert found.to_json() == data and (found.name, found.title) == ("soak", "Reliability")
    figures = cells(found, "reliability")
    assert figures["faults injected"] >= 2 and figures["mutated inputs tried"] > 500
    assert figures["events delivered"] > figures["events published"] > 0
    hostile = cells(found, "hostile")
    assert figures["hostile acts meanwhile"] > 0 and hostile["messages that the insider heard"] > 0
    assert hostile["events, or names of channels, that it could read"] == 0 < hostile["failures of a handler"]
    assert figures["events lost"] == figures["events duplicated"] == figures["problems"] == 0
    assert set(cells(found, "processes")) > {"node under attack", "reader of files"}


def test_a_run_that_finds_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The result is written all the same, with what replays it."""

    def run(plan: Plan, seconds: float, say: Any) -> Phase:
        outcome = Outcome(9, {"hall-all": Tally(wanted=9, delivered=8, lost=1, problems=["a-1 5 after 3"])})
        found = Faulted("faults", 1, outcome=outcome, order=["a node stopped: hall"], happened={"a node stopped": 1})
        found.troubles += outcome.problems
        found.replay = plan.command(phases="faults", faults=1)
        return found

    def broken(plan: Plan, seconds: float, say: Any) -> Phase:
        raise OSError("no more files")

    plan = Plan(seed=77, phases=("faults", "inputs"), folder=tmp_path)
    assert soak(plan, lambda text: None, {"faults": run, "inputs": broken}) == 1
    figures = cells(Result.read(tmp_path / "result.json"), "reliability")
    assert figures["events lost"] == 1 and figures["problems"] == 2
    trouble = (tmp_path / "trouble.txt").read_text()
    assert "make soak MINUTES=20 SEED=77 FAULTS=1 PHASES=faults" in trouble and "no more files" in trouble
    assert "fault 1: a node stopped: hall" in trouble and "SEED=77" in capsys.readouterr().out


def test_property_tests_of_one_module() -> None:
    found = properties.run(Plan(effort=1), 2000.0, lambda text: None, only=["tests/ir/test_show.py"])
    assert not found.troubles and found.modules == 1 and found.tests > 0 and found.examples > 0
    assert not report.problems([found])
    assert len(properties.modules()) > 80


def test_long_tests_are_those_that_are_marked(tmp_path: Path) -> None:
    module = tmp_path / "test_some.py"
    tests = ["@pytest.mark.soak\ndef test_long(): pass", "@pytest.mark.soak\ndef test_bad(): assert 1 + 1 == 3"]
    module.write_text("\n".join(["import pytest", *tests, "def test_short(): raise OSError('not asked for')", ""]))
    found = long.run(Plan(), 2000.0, lambda text: None, only=[str(module)])
    assert found.tests == 1 and not found.cut
    (trouble,) = report.problems([found])
    assert "1 + 1" in trouble and "not asked for" not in trouble and "-m soak" in found.replay
    known = long.modules()
    assert "tests/studies/test_model.py" in known and "tests/spark/ingest/test_shapes.py" in known
