"""Interrupts, threads, finalizers and endless change: nothing is lost, nothing is kept, nothing breaks."""

from __future__ import annotations

import gc
import random
import sys
import threading
from typing import Any

import numpy as np
import pytest

from headwater.interest import Interest, as_event_type
from headwater.ir.interp import Fault, Status
from headwater.match import KINDS, Matcher, new_totals
from headwater.types import EventType

READING = as_event_type("level: f64, network: text, zone: i32?, note: text?")


def reading(**fields: Any) -> bytes:
    return READING.encode({"level": 0.5, "network": "a", "zone": 1, "note": None} | fields)


def on(text: str, type: EventType = READING, **params: object) -> Interest:
    return Interest(text, type, params=params)


# ── interrupts ──


def interrupted(matching: Any, record: bytes, *, nth: int = 1) -> None:
    """Match, and be interrupted as the nth Python function is about to start that answers the kernel."""
    calls = 0

    def interrupt(frame: Any, what: str, _: object) -> None:
        nonlocal calls
        calls += what == "call"
        if what == "call" and calls == nth:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        matching.match(record)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_interrupt_comes_through_whenever_it_comes(nth: int) -> None:
    matcher = Matcher(READING)
    keys = [matcher.add(n, on(f"level * {n + 3} > zone or network = 'n{n}'")) for n in range(5)]
    matching = matcher.snapshot()
    with pytest.raises(KeyboardInterrupt):
        interrupted(matching, reading(zone=None), nth=nth)
    assert [matcher.counts(key) for key in keys] == [(0, {})] * 5  # that event is as if it had not been
    assert sorted(matching.match(reading(network="n3"))) == [0, 1, 2, 3, 4]


# ── endless change ──


def test_what_is_removed_is_forgotten_by_those_who_stay() -> None:
    """Attributes, constants, sets and native code of removed entries are not handed on from segment to segment."""
    matcher = Matcher(READING)
    kept = [matcher.add(n, on(f"level >= 0.{n} and network in ('a', 'b{n}') and zone != {n}")) for n in range(1, 9)]
    sizes = []
    for n in range(60):
        made = [matcher.add(("t", k), on(f"level * {n}.5 > zone + {k + 999} or network = 'q'")) for k in range(3)]
        made.append(
            matcher.add("s", on(f"note in ('a{n}', 'b{n}') and network in ('x{n}', 'y{n}') and level < 0.{n}1"))
        )
        made.append(matcher.add("r", on(f"not (zone in ({n + 50}, {n + 1000})) and level > 1.{n}")))
        matching = matcher.snapshot()
        assert sorted(matching.match(reading(level=0.45, zone=3))) == [1, 2, 4]
        assert len(matching.native) == 3
        for key in made:
            matcher.remove(key)
        sizes.append(matcher.snapshot().match(reading(level=0.85, zone=9)) and matcher.nbytes)
    gc.collect()
    assert len(matcher.snapshot().native) == 0
    assert sizes[-1] == sizes[20]
    assert sorted(matcher.snapshot().match(reading(level=0.45, zone=3))) == [1, 2, 4]
    assert len(matcher) == len(kept)


# ── threads ──


def test_threads_that_match_batches_lose_no_count() -> None:
    matcher = Matcher(READING, exact_undecided=0)
    faulty, optional = matcher.add("x", on("10 div zone > 2")), matcher.add("y", on("zone = 4"))
    matcher.weigh(faulty, 3)
    matching, totals = matcher.snapshot(), new_totals()
    batch = READING.to_arrow([READING.decode(reading(zone=zone)) for zone in (0, 1, None)])
    rounds, threads = 700, 3

    def match() -> None:
        for _ in range(rounds):
            matching.spans(batch, totals)

    matching.spans(batch, totals)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        running = [threading.Thread(target=match) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    times = 1 + rounds * threads
    assert matcher.counts(faulty) == (2 * times, {Fault.DIVISION: times})
    assert matcher.unsplit(optional) == 3 * times
    assert totals.tolist() == [6 * times, 0, 3 * times, 0, 0, 0]


# ── finalizers ──


def test_a_batch_in_the_midst_of_a_batch() -> None:
    """Garbage is collected at any time, and whatever that sets off may match events itself."""
    matcher = Matcher(READING)
    for n in range(40):
        matcher.add(n, on(f"level >= {n / 40} and zone >= {n % 3}"))
    matching = matcher.snapshot()
    rng = random.Random(1)
    events = [READING.decode(reading(level=rng.random(), zone=rng.randrange(4))) for _ in range(300)]
    large, small = READING.to_arrow(events), READING.to_arrow(events[100:150])
    wanted = [[(payload, rows.tolist()) for payload, rows in matching.batch(each)] for each in (large, small)]
    inside, found, nested = False, [], []

    def again(phase: str, info: object) -> None:
        nonlocal inside
        if phase == "stop" and not inside:
            inside = True
            nested.append(matching.batch(small))
            inside = False

    threshold = gc.get_threshold()
    gc.callbacks.append(again)
    gc.set_threshold(1)
    try:
        found = [matching.batch(large) for _ in range(30)]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(again)
    assert nested
    for each, right in ((found, wanted[0]), (nested, wanted[1])):
        for one in each:
            assert [(payload, rows.tolist()) for payload, rows in one] == right


# ── totals and weights ──


def judged(matcher: Matcher, keys: dict[int, Interest], events: list[bytes], weights: dict[int, int]) -> list[int]:
    """What totals ought to be: undecided events and faults by kind, each interest by itself and by its weight."""
    made = [0] * (1 + len(KINDS))
    for key, interest in keys.items():
        for outcome in map(interest.interpret, events):
            made[0] += weights.get(key, 1) * (outcome.status is Status.UNDECIDED)
            for n, kind in enumerate(KINDS, 1):
                made[n] += weights.get(key, 1) * (kind in outcome.faults)
    return made


@pytest.mark.parametrize("plan", ["auto", "scan", "index"])
def test_totals_are_the_sum_of_all_entries_by_weight(plan: Any) -> None:
    matcher = Matcher(READING, plan=plan)
    texts = [
        "zone > 0", "note = 'b' and zone < 5", "10 div zone > 2", "zone != 0 and 10 div zone > 2", "level > 0.2",
        "zone * 9223372036854775807 > 3", "level * 2 > zone or note = 'b'", "true", "note in ('a', 'b')",
    ]  # fmt: skip
    keys = {matcher.add(text, on(text)): on(text) for text in texts}
    for n in range(100):
        keys[matcher.add(n, on(f"zone = {n}"))] = on(f"zone = {n}")
    events = [reading(zone=zone, note=note) for zone in (None, 0, 1, 7) for note in (None, "b")]
    weights: dict[int, int] = {}
    batch = READING.to_arrow([READING.decode(event) for event in events])
    wanted, totals, others = [0] * 6, new_totals(), new_totals()
    for round in range(4):
        matching = matcher.snapshot()
        count = matching.counting_in(totals)
        for event in events:
            assert sorted(map(str, count(event))) == sorted(map(str, matching.probe(event)))
            matching.match(event)  # counts for the entries, and in nobody's totals
        matching.spans(batch, totals)
        matching.spans(batch, others)
        matching.batch(batch)
        once = judged(matcher, keys, events, weights)
        wanted = [a + 2 * b for a, b in zip(wanted, once, strict=True)]
        assert totals.tolist() == wanted
        assert others.tolist() == once
        others[:] = 0
        for key in list(keys)[:3]:  # entries leave, others take their places, and all of them have new weights
            matcher.remove(key)
            weights.pop(key, None)
            del keys[key]
        keys[matcher.add("late", on("10 div zone > 3"))] = on("10 div zone > 3")
        for n, key in enumerate(keys):
            weights[key] = (n + round) % 4
            matcher.weigh(key, weights[key])
    malformed = new_totals()
    assert matcher.snapshot().counting_in(malformed)(b"") == ()
    assert malformed.tolist() == [sum(weights.values()), 0, 0, 0, 0, sum(weights.values())]


def test_a_slot_that_is_used_again_weighs_one() -> None:
    matcher, totals = Matcher(READING), new_totals()
    key = matcher.add("x", on("zone = 1"))
    matcher.weigh(key, 50)
    matcher.snapshot()
    matcher.remove(key)
    for _ in range(3):
        matcher.snapshot()
        matcher.add("y", on("zone = 1"))
    matcher.snapshot().counting_in(totals)(reading(zone=None))
    assert totals.tolist() == [3, 0, 0, 0, 0, 0]


def test_totals_are_checked_at_the_door() -> None:
    matching = Matcher(READING).snapshot()
    batch = READING.to_arrow([])
    for wrong in (
        np.zeros(5, np.uint64),
        np.zeros(6),
        np.zeros(12, np.uint64)[::2],
        [0] * 6,
        np.zeros((1, 6), np.uint64),
    ):
        with pytest.raises(ValueError, match="new_totals"):
            matching.counting_in(wrong)
        with pytest.raises(ValueError, match="new_totals"):
            matching.spans(batch, wrong)
    with pytest.raises(ValueError, match="weight"):
        matcher = Matcher(READING)
        matcher.weigh(matcher.add("x", on("zone = 1")), -1)


def test_owners_and_fields_of_ranges_are_checked_at_the_door() -> None:
    """What is wrong leaves no trace."""
    matcher = Matcher(READING)
    rows: dict[str, Any] = {"owners": [0], "which": [0], "low": [1.0], "high": [2.0]}
    for wrong in ({"which": [-1]}, {"which": [1]}, {"owners": [-1]}, {"owners": [1]}):
        with pytest.raises(ValueError, match=r"expected .* from 0 to 0"):
            matcher.add_ranges(["x"], ["level"], **rows | wrong)
    with pytest.raises(ValueError, match=r"expected .* from 0 to -1"):
        matcher.add_ranges([], ["level"], **rows)
    assert len(matcher) == 0 and matcher.snapshot().match(reading()) == ()


@pytest.mark.parametrize("plan", ["auto", "scan", "index"])
def test_undecided_is_told_apart_again_when_entries_have_left(plan: Any) -> None:
    matcher = Matcher(READING, exact_undecided=10, plan=plan)
    first, required = matcher.add("first", on("zone = 1")), matcher.add("required", on("level > 0"))
    exact = total = 0
    for round in range(6):
        more = [matcher.add(n, on(f"zone >= {n}")) for n in range(9 + round % 2)]
        matching = matcher.snapshot()
        assert matching.exact == (round % 2 == 0)
        for _ in range(3):
            matching.match(reading(zone=None))
        matching.batch(READING.to_arrow([READING.decode(reading(zone=None))] * 2))
        total += 5
        exact += 5 * matching.exact
        assert matcher.counts(first) == (exact, {})
        assert matcher.unsplit(first) == total - exact
        assert matcher.counts(required) == (0, {}) and matcher.unsplit(required) == 0
        for key in more:
            matcher.remove(key)
