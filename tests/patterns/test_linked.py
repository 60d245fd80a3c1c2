"""Values that elements have in common which are not next to each other: runs are found by them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ExecutionError
from headwater.patterns import model
from headwater.patterns.engine.linked import SMALLEST_LOG
from headwater.patterns.pattern import Pattern
from headwater.patterns.plan import plan
from headwater.patterns.run.runner import Runner
from tests.effort import examples
from tests.patterns.test_reading import offer
from tests.patterns.test_runner import Events, expected, plain

CHANNELS = {
    "seen": "kind: i64, who: text?, n: i64, x: f64?",
    "left": "kind: i64, person: text?, m: i64, y: f64?",
    "alarm": "kind: i64",
}
NAN = float("nan")
SAME = {"seen": ("who = a.who", "n = a.n", "x = a.x"), "left": ("person = a.who", "m = a.n", "y = a.x")}
FIELDS = {"seen": ("who", "n", "x"), "left": ("person", "m", "y")}


@st.composite
def linked(draw: Any) -> str:
    """The first element, one that has its value, and others between and after them, with it or without."""
    which = draw(st.integers(0, 2))

    def atom(name: str) -> str:
        channel = draw(st.sampled_from(("seen", "left", "alarm")))
        kinds = draw(st.sampled_from(("kind >= 0", "kind = 1", "kind < 2", "kind != 0")))
        same = f" and {SAME[channel][which]}" if channel in SAME and draw(st.booleans()) else ""
        return f"{name}: {channel}{{{kinds}{same}}}"

    def part(name: str) -> str:
        match draw(st.integers(0, 5)):
            case 0:
                return f"({atom(name)}){draw(st.sampled_from(('?', '+', '{1,2}')))}"
            case 1:
                return f"({atom(name)} | {atom(name + '2')})"
            case _:
                return atom(name)

    text = "a: seen{kind <= 1}"
    for name in draw(st.sampled_from((("b",), ("b", "e"), ("b", "e", "f")))):
        if draw(st.integers(0, 4)) == 0:
            text += f"; without {atom('w' + name)}"
        text += draw(st.sampled_from(("; ", " -> "))) + part(name)
    if draw(st.integers(0, 4)):
        text += f"; z: seen{{kind >= 1 and {SAME['seen'][which]}}}"
    return f"{text} within {draw(st.sampled_from((4, 9, 1000)))} microseconds"


def seen(kind: int, who: str | None, n: int, x: float | None) -> dict[str, Any]:
    return {"channel": "seen", "fields": {"kind": kind, "who": who, "n": n, "x": x}}


def of_channel(event: dict[str, Any], channel: str) -> dict[str, Any]:
    fields = event["fields"]
    if channel == "left":
        names = ("kind", *FIELDS["left"])
        return {"channel": "left", "fields": dict(zip(names, fields.values(), strict=True))}
    return {"channel": "alarm", "fields": {"kind": fields["kind"]}} if channel == "alarm" else event


happened = st.builds(
    seen,
    st.integers(0, 2),
    st.sampled_from(["p", "p", "q", None]),
    st.integers(0, 1),
    st.sampled_from([0.0, -0.0, 1.0, NAN, None]),
)


@st.composite
def days(draw: Any) -> Events:
    time, found = 1_000, []
    for seq in range(1, draw(st.integers(1, 14)) + 1):
        time += draw(st.sampled_from((0, 1, 1, 3)))
        event = of_channel(draw(happened), draw(st.sampled_from(("seen", "seen", "left", "alarm"))))
        found.append({**event, "source": draw(st.sampled_from(("n1", "n2"))), "seq": seq, "time": time})
    return found


@settings(max_examples=examples(40), report_multiple_bugs=False, deadline=None)
@given(linked(), days(), st.data())
def test_runs_are_found_by_the_value_that_holds_them_together(text: str, events: Events, data: st.DataObject) -> None:
    pattern = Pattern(text, CHANNELS).model
    mode: Any = data.draw(st.sampled_from(("compiled", "interpreted")))
    runner = Runner(pattern, mode=mode, interpreted=True)
    assert runner.engine.name == plan(pattern).engine
    runner.expect(("n1", "n2"))
    found = []
    for event in events:
        offer(runner, event)
        if data.draw(st.integers(0, 5)) == 0:
            found += runner.matches()
            kept = runner.snapshot({})
            runner = Runner(pattern, mode="interpreted", interpreted=True)
            runner.restore(kept)
    runner.finish()
    found += runner.matches()
    assert plain(found) == expected(pattern, events)


LINKED = [
    "a: seen{kind = 0}; b: alarm; c: seen{kind = 2 and who = a.who} within 1 minute",
    "a: seen{kind = 0}; b: alarm; c: left{person = a.who and m = a.n} within 1 minute",
    "seen(0, P, *, *); alarm; left(*, P, *, *) within 1 minute",
    "a: seen{kind = 0}; b: seen{x = a.x}+; without w: alarm{kind = 2}; c: left{y = a.x} within 1 minute",
]
OTHERS = {
    "a: seen{kind = 0}; b: alarm; c: seen{who = a.who and n > a.n} within 1 minute": "separate",
    "a: seen{kind = 0}; b: alarm; c: seen{who = a.who} within 1 minute after match past last": "separate",
    "a: seen{kind = 0}; b: seen; c: seen{who = b.who and n = a.n} within 1 minute": "separate",
    "a: seen; c: seen{who = a.who} within 1 minute": "shared",
    "a: seen; b: alarm; c: left{person = a.who}; without w: alarm within 1 minute": "separate",
    "a: seen; b: left{person = a.who}; c: alarm within 1 minute": "shared",
    "a: seen; b: alarm; c: left{person = a.who}; d: alarm within 1 minute": "separate",
    "a: seen; without w: left{person = a.who}; b: alarm within 1 minute": "separate",
}


@pytest.mark.parametrize("text", [*LINKED, *OTHERS])
def test_which_patterns_are_found_by_a_value(text: str) -> None:
    pattern = Pattern(text, CHANNELS).model
    assert Runner(pattern).engine.name == plan(pattern).engine == OTHERS.get(text, "linked")


def crowd(count: int, people: int) -> Events:
    rng, found = random.Random(7), list[dict[str, Any]]()
    for seq in range(count):
        kind = rng.choice((0, 1, 2))
        event = of_channel(
            seen(kind, f"p{rng.randrange(people)}", rng.randrange(2), 0.5), rng.choice(("seen", "left", "alarm"))
        )
        found.append({**event, "source": "n1", "seq": seq + 1, "time": 1_000_000 + seq * 1_000})
    return found


def fed(pattern: model.Pattern, events: Events, engine: Any, **more: Any) -> Runner:
    runner = Runner(pattern, engine=engine, **more)
    for event in events:
        offer(runner, event)
    return runner


def finished(pattern: model.Pattern, events: Events, engine: Any) -> Runner:
    runner = fed(pattern, events, engine)
    runner.finish()
    return runner


@pytest.mark.parametrize("text", LINKED[:3])
def test_many_values_and_a_long_log(text: str) -> None:
    pattern = Pattern(text.replace("1 minute", "300 milliseconds"), CHANNELS).model
    events = crowd(4 * SMALLEST_LOG, 300)
    assert sum(event["channel"] == "alarm" for event in events) > SMALLEST_LOG
    linked_, separate = finished(pattern, events, None), finished(pattern, events, "separate")
    assert (linked_.engine.name, separate.engine.name) == ("linked", "separate")
    assert plain(linked_.matches()) == plain(separate.matches())
    assert linked_.counts.given_up == 0


def test_beyond_the_limits_the_oldest_is_given_up_and_counted() -> None:
    limits = model.Limits(partitions=8, memory=1 << 20)
    pattern = Pattern(LINKED[0], CHANNELS, limits=limits).model
    runner = finished(pattern, crowd(3_000, 200), None)
    runner.matches()
    assert runner.counts.given_up > 0 and runner.engine.open <= 8


def test_texts_that_nothing_holds_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.patterns.engine.index.CROWDED", 8)
    monkeypatch.setattr("headwater.patterns.run.runner.HELD", 64)
    pattern = Pattern(LINKED[0].replace("1 minute", "20 milliseconds"), CHANNELS).model
    events = crowd(2_000, 500)
    runner, other = finished(pattern, events, None), finished(pattern, events, "separate")
    assert len(runner.engine.registers.texts) < 300
    assert plain(runner.matches()) == plain(other.matches())


def test_a_log_that_was_tampered_with_is_refused_or_harmless() -> None:
    pattern = Pattern(LINKED[0], CHANNELS).model
    kept = fed(pattern, crowd(60, 3), None, mode="interpreted").snapshot({})
    rng = random.Random(3)
    for _ in range(60):
        data = bytearray(kept)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        runner = Runner(pattern, mode="interpreted")
        try:
            runner.restore(bytes(data))
        except ExecutionError:
            continue
        try:
            for event in crowd(10, 3):
                offer(runner, {**event, "seq": event["seq"] + 100, "time": event["time"] + 60_000})
            runner.finish()
        except (ExecutionError, ValueError, OverflowError):
            continue


def test_a_value_that_is_not_there_holds_nothing_together() -> None:
    pattern = Pattern(LINKED[0], CHANNELS).model
    runner = Runner(pattern)
    alarm = {"channel": "alarm", "fields": {"kind": 0}}
    for seq, event in enumerate([seen(0, None, 0, None), alarm, seen(2, None, 0, None)]):
        offer(runner, {**event, "source": "n1", "seq": seq, "time": 10 + seq})
    runner.finish()
    assert runner.matches() == [] and runner.counts.rows == 3
