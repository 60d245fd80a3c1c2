"""How a runner puts events in order, what it gives up, and what it goes on from."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from headwater.errors import ExecutionError
from headwater.ir.interp import EventContext
from headwater.patterns import written as w
from headwater.patterns.checker.check import check
from headwater.patterns.engine import index, tapes
from headwater.patterns.model import Limits, Pattern
from headwater.patterns.pattern import Pattern as TextPattern
from headwater.patterns.plan import plan
from headwater.patterns.run import runner as runner_module
from headwater.patterns.run.batches import FEW as FEW_ROWS
from headwater.patterns.run.runner import Runner
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN
from tests.effort import EFFORT
from tests.patterns import oracle

TYPE = {"a": "k: text, v: i64, f: f64?"}


def atom(name: str, condition: str | None = None) -> w.Atom:
    return w.Atom("a", name, condition=None if condition is None else w.Condition(condition))


def sequence(*parts: w.Node, by: Any = "any") -> w.Sequence:
    return w.Sequence(parts, (by,) * (len(parts) - 1))


def checked(root: w.Node, window: int = 100, limits: Limits | None = None, **more: Any) -> Pattern:
    partition = more.pop("partition", (w.Condition("k"),))
    return check(w.Pattern(root, w.Window(microseconds=window), partition=partition, **more), TYPE, limits=limits)


def event(time: int, v: int, k: str = "x", source: str = "n1", seq: int | None = None) -> dict[str, Any]:
    fields = {"k": k, "v": v, "f": None}
    return {"channel": "a", "source": source, "seq": time if seq is None else seq, "time": time, "fields": fields}


def offer(runner: Runner, *events: dict[str, Any]) -> None:
    for each in events:
        runner.offer("a", each["fields"], EventContext(each["source"], None, each["seq"], each["time"]))


def found(runner: Runner) -> list[list[tuple[str, int]]]:
    return [[(taken.source, taken.seq) for _, taken in match.events] for match in runner.matches()]


ONE_TWO = sequence(atom("x", "v = 1"), atom("y", "v = 2"))


def test_events_wait_for_sources_that_may_have_earlier_ones() -> None:
    runner = Runner(checked(ONE_TWO))
    runner.expect(["n1", "n2"])
    offer(runner, event(5, 2))
    offer(runner, event(7, 2))
    assert found(runner) == []
    offer(runner, event(4, 1, source="n2"))
    assert found(runner) == []  # n2 may have more at 4, and at 5
    runner.promise("n2", 6)
    assert found(runner) == [[("n2", 4), ("n1", 5)]]
    runner.leave("n2")
    assert found(runner) == [[("n2", 4), ("n1", 7)]]


def test_at_one_time_the_order_is_by_source_and_number() -> None:
    runner = Runner(checked(ONE_TWO))
    runner.expect(["n1", "n2"])
    offer(runner, event(5, 2, source="n2", seq=1), event(5, 1, source="n1", seq=9), event(5, 2, source="n1", seq=10))
    runner.finish()
    assert sorted(found(runner)) == [[("n1", 9), ("n1", 10)], [("n1", 9), ("n2", 1)]]


def test_what_is_late_is_dropped_and_counted() -> None:
    runner = Runner(checked(ONE_TWO, lateness=3))
    offer(runner, event(10, 2), event(8, 1), event(6, 1), event(20, 0))
    assert found(runner) == [[("n1", 8), ("n1", 10)]]
    assert (runner.counts.late, runner.counts.events) == (1, 4)


def test_a_batch_that_begins_without_a_time_makes_nothing_late() -> None:
    text = "x: a{v = 1} ; y: a{v = 2} within 1 second time at lateness 5 milliseconds"
    pattern = TextPattern(text, {"a": "v: i64, at: timestamp?"}).model
    rows = [{"v": 1 + (n % 2 == 0), "at": n * 1_000 or None} for n in range(2 * FEW_ROWS)]
    one_by_one, together = Runner(pattern), Runner(pattern)
    for seq, row in enumerate(rows):
        one_by_one.offer("a", row, EventContext("n1", None, seq, seq))
    seqs = np.arange(len(rows))
    together.batch("a", pattern.channels[0].type.to_arrow(rows), {"source": "n1", "seq": seqs, "time": seqs})
    for runner in (one_by_one, together):
        runner.finish()
    apart = found(one_by_one)
    assert found(together) == apart
    assert [("n1", 1), ("n1", 2)] in apart
    assert together.counts.late == one_by_one.counts.late == 0


def test_events_of_other_channels_are_refused() -> None:
    with pytest.raises(ExecutionError, match=r"expected an event of one of the pattern's channels \(a\), found 'b'"):
        Runner(checked(ONE_TWO)).offer("b", {}, EventContext("n1", None, 0, 0))
    with pytest.raises(ExecutionError, match="expected an event's source and number"):
        Runner(checked(ONE_TWO)).offer("a", event(0, 1)["fields"], EventContext())


def test_absence_is_asserted_when_all_sources_have_promised() -> None:
    runner = Runner(checked(sequence(atom("x", "v = 1"), w.Without(atom("z", "v = 2"))), 10))
    runner.expect(["n1", "n2"])
    offer(runner, event(5, 1))
    runner.promise("n1", 100)
    runner.promise("n2", 15)  # something may still come at 15
    assert found(runner) == []
    runner.promise("n2", 16)
    assert [(match.time, match.deadline) for match in runner.matches()] == [(15, 15)]


# ── many rows, and room ──


def crowd(count: int, keys: int, seed: int = 3) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    events = [event(at // 3, dice.choice((0, 0, 1, 2, 3)), f"k{dice.randrange(keys)}", seq=at) for at in range(count)]
    for each in events:
        each["fields"]["f"] = dice.choice((None, None, None, 0.0, -0.0, 1.5, -7.0, math.nan, math.inf))
    return events


def batches(runner: Runner, events: list[dict[str, Any]], size: int) -> None:
    type = runner.channels["a"].type
    for start in range(0, len(events), size):
        piece = events[start : start + size]
        meta = {
            "source": "n1",
            "seq": np.array([each["seq"] for each in piece]),
            "time": np.array([each["time"] for each in piece]),
        }
        runner.batch("a", type.to_arrow([each["fields"] for each in piece]), meta)


MANY = {
    "shared": checked(sequence(atom("x", "v = 1"), atom("y", "v = 2"), atom("z", "v = 3")), 60),
    "absent": checked(sequence(atom("x", "v = 1"), w.Without(atom("z", "v = 3"))), 30),
    "past last": checked(
        sequence(atom("x", "v = 1"), w.Repeat(atom("r"), 0, None, "strict", False), atom("y", "v = 2"), by="strict"),
        60,
        after=w.After("past last"),
    ),
    "between": checked(sequence(atom("x", "v = 1"), atom("y", "v > x.v and f is null")), 40),
    "same": checked(sequence(atom("x", "v = 1"), atom("y", "v = 2 and k = x.k")), 40, partition=()),
    "rising": checked(
        sequence(atom("x", "v >= 2"), atom("y", "v >= 1 and f >= x.f"), atom("z", "v < y.v - 1")), 6, partition=()
    ),
    "falling": checked(sequence(atom("x", "v >= 1"), atom("y", "v <= 2 and v + 1 <= x.v")), 3, partition=()),
    "equal": checked(sequence(atom("x", "v = 1"), atom("y", "f = x.f"), w.Without(atom("z", "v = 3"))), 4),
    "rounds": checked(
        sequence(
            w.Repeat(atom("x", "v >= 1 and v >= coalesce(x.prev.v, 0)"), 1, 3, "next"),
            atom("y", "v = 0 and sum(x.v) > 4"),
            by="next",
        ),
        40,
        after=w.After("next"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_many_events_through_batches_records_and_snapshots(name: str) -> None:
    pattern = MANY[name]
    # Where nothing parts them, the oracle tries all that a window has of all keys.
    events = crowd(450 if pattern.key else 160, 20)
    expected = sorted((list(match.events), match.time) for match in oracle.matches(pattern, events))
    assert expected
    whole, pieces, alone = Runner(pattern), Runner(pattern), Runner(pattern)
    batches(whole, events, len(events))
    half = len(events) // 2
    batches(pieces, events[:half], 37)
    made = pieces.matches()
    kept = pieces.snapshot({"n1": half - 1})
    again = Runner(pattern)
    again.restore(kept)
    batches(again, events[half:], 41)
    offer(alone, *events)
    for runner in (whole, again, alone):
        runner.finish()
    for matches in (whole.matches(), made + again.matches(), alone.matches()):
        plain = sorted(([(label, taken.origin) for label, taken in m.events], m.time) for m in matches)
        assert plain == expected


def test_machine_code_makes_room_as_it_is_needed() -> None:
    pattern = checked(sequence(atom("x", "v = 1"), atom("y", "v = 2")), 5)
    events = crowd(30_000, 3_000)
    runner = Runner(pattern)
    batches(runner, events, 10_000)
    runner.finish()
    by_key: dict[str, list[tuple[int, int]]] = {}
    for each in events:
        by_key.setdefault(each["fields"]["k"], []).append((each["time"], each["fields"]["v"]))
    count = sum(
        v == 1 and u == 2 and s - t <= 5
        for rows in by_key.values()
        for at, (t, v) in enumerate(rows)
        for s, u in rows[at + 1 : at + 30]
    )
    assert len(runner.matches()) == count and runner.counts.given_up == 0
    assert runner.engine.open < 3_000  # partitions that can match no more are let go


@pytest.mark.parametrize("name", ["shared", "between", "past last"])
def test_beyond_the_limits_the_oldest_is_given_up_and_counted(name: str) -> None:
    pattern = MANY[name]
    small = check(_written(name), TYPE, limits=Limits(partitions=4, runs_per_partition=3, runs=8))
    runner = Runner(small)
    events = crowd(900, 20)
    batches(runner, events, 100)
    runner.finish()
    found = runner.matches()
    assert runner.counts.given_up > 0 and runner.engine.open <= 4
    everything = {tuple(match.events) for match in oracle.matches(pattern, events)}
    if pattern.after.rule == "no skip":  # what is found is right
        assert {tuple((label, taken.origin) for label, taken in match.events) for match in found} <= everything


def _written(name: str) -> w.Pattern:
    roots: dict[str, Any] = {
        "shared": (sequence(atom("x", "v = 1"), atom("y", "v = 2"), atom("z", "v = 3")), 60, {}),
        "between": (sequence(atom("x", "v = 1"), atom("y", "v > x.v and f is null")), 40, {}),
        "past last": (sequence(atom("x", "v = 1"), atom("y", "v = 2")), 60, {"after": w.After("past last")}),
    }
    root, window, more = roots[name]
    return w.Pattern(root, w.Window(microseconds=window), partition=(w.Condition("k"),), **more)


# ── snapshots from anyone ──


@pytest.mark.parametrize("name", MANY)
def test_snapshots_that_were_tampered_with_are_refused_or_harmless(name: str) -> None:
    pattern = MANY[name]
    runner = Runner(pattern)
    offer(runner, *crowd(120, 3))
    kept = runner.snapshot({})
    dice = random.Random(5)
    for _ in range(20 if EFFORT == 1 else 60):
        data = bytearray(kept)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(40, len(data))] = dice.randrange(256)
        again = Runner(pattern, mode="interpreted", interpreted=True)  # every index is looked at
        try:
            again.restore(bytes(data))
        except ExecutionError:
            continue
        offer(again, *crowd(30, 3, seed=9))
        again.matches()


def test_a_snapshot_of_another_pattern_is_refused() -> None:
    kept = Runner(MANY["shared"]).snapshot({})
    with pytest.raises(ExecutionError, match="expected the state of pattern"):
        Runner(MANY["absent"]).restore(kept)


@pytest.mark.parametrize("name", ["shared", "ordered", "tape", "reuse"])
def test_texts_that_nothing_holds_are_let_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    roots: dict[str, Any] = {
        "shared": sequence(atom("x", "v = 1"), atom("y", "v = 2")),
        "ordered": sequence(atom("x", "v = 1"), atom("y", "v = 2 and k = x.k and k != 'k7'")),
        "tape": sequence(atom("x", "v = 1"), atom("y", "v = 2 and (k = x.k or k = 'k7')")),
        "reuse": sequence(atom("x", "v = 1"), atom("y", "v = 2")),
    }
    monkeypatch.setattr(tapes, "CROWDED", 50)
    monkeypatch.setattr(index, "CROWDED", 50)
    monkeypatch.setattr(runner_module, "HELD", 100)
    keyed = (w.Condition("k"),) if name in ("shared", "reuse") else ()
    pattern = checked(roots[name], 6, partition=keyed, reuse=name != "reuse")
    events = crowd(9_000, 2_500)
    runner = Runner(pattern)
    runner.expect(["n2"])  # so that rows wait
    found = []
    for start in range(0, len(events), 500):
        batches(runner, events[start : start + 500], 100)
        runner.promise("n2", events[start]["time"])
        found += runner.matches()
    assert len(runner.engine.keys.values) < 1_500
    assert keyed or len(runner.engine.registers.texts) < 1_500
    runner.finish()
    found += runner.matches()
    calm = Runner(pattern)
    monkeypatch.setattr(runner_module, "HELD", 1 << 20)
    batches(calm, events, len(events))
    calm.finish()
    assert found and sorted(m.identity for m in found) == sorted(m.identity for m in calm.matches())


def test_times_at_their_ends() -> None:
    for pattern in (MANY["absent"], checked(ONE_TWO, 100, after=w.After("past last"))):
        runner = Runner(pattern)
        offer(
            runner, event(TIMESTAMP_MIN - 1, 1, seq=0), event(TIMESTAMP_MIN, 1, seq=1), event(TIMESTAMP_MAX, 1, seq=2)
        )
        offer(runner, event(1 << 62, 1, seq=3))
        runner.finish()
        assert runner.counts.timeless == 2
        assert len(runner.matches()) == (2 if pattern.absent else 0)
        runner.engine.compact()
        assert runner.engine.live_events().tolist() == []


def test_a_plan_says_what_will_run_it() -> None:
    for name in ("same", "rising", "falling", "equal", "between"):
        it = plan(MANY[name])
        assert it.engine == "shared" and "logarithm" in it.row, name
    for name, pattern in MANY.items():
        it = plan(pattern)
        assert it.engine == Runner(pattern).engine.name, name
        assert "begins x" in str(it)
    lonely = checked(ONE_TWO, reuse=False)
    assert plan(lonely).engine == Runner(lonely).engine.name == "apart"
    odd = checked(sequence(atom("x", "v = 1"), atom("y", "lower(k) = lower(x.k)")), partition=())
    assert plan(odd).engine == Runner(odd).engine.name == "apart" and "machine code does not have" in plan(odd).why


def test_what_a_matcher_knows_is_not_asked_again() -> None:
    runner = Runner(checked(ONE_TWO))
    for time, letter in ((1, 0b01), (2, 0b10), (3, 0)):
        each = event(time, 0)
        runner.offer("a", each["fields"], EventContext("n1", None, time, time), letter)
    assert found(runner) == [[("n1", 1), ("n1", 2)]]
