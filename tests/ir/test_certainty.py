"""What is said of an interest before any event is true of every event: never passes, always passes, never true."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headwater import Interest
from headwater.interest import as_event_type
from headwater.ir import interp
from headwater.ir.interp import Status
from headwater.types import model as m
from tests import strategies as s
from tests.effort import examples
from tests.native.support import Events
from tests.programs import FUEL, Case, cases

TYPE = "b: u8, i: i8, n: i64, u: u64, f: f32, d: f64, o: u8?, q: f32?, wind: f64[3], xs: i64[], t: timestamp, s: text"
NEVER, ALWAYS = "no event can pass this interest", "every event passes this interest"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b > 300", NEVER),
        ("b < 0", NEVER),
        ("o > 300", NEVER),
        ("i = 128", NEVER),
        ("wind[9] > 1", NEVER),
        ("wind[3] > 1 and b = 1", NEVER),
        ("wind[9] is not null", NEVER),
        ("f = 0.1", NEVER),
        ("q = 0.1 and b = 1", NEVER),
        ("f in (0.1, 0.2)", NEVER),
        ("n = 0.5", NEVER),
        ("hour(t) > 23", NEVER),
        ("n > 5 and n < 3", NEVER),
        ("s = 'a' and s = 'b'", NEVER),
        ("b is null", NEVER),
        ("d > d", NEVER),
        ("n > i and n < i", NEVER),
        ("d > 1/0", NEVER),
        ("{ if (input.b > 300) return 1; return 0; }", NEVER),
        ("{ static int k; k = k + 1; return k > 2 && input.b < 0; }", NEVER),
        ("lambda e: e.f == 0.1", NEVER),
        ("b >= 0", ALWAYS),
        ("b < 256", ALWAYS),
        ("f != 0.1", ALWAYS),
        ("b is not null", ALWAYS),
        ("o is null or o >= 0", ALWAYS),
        ("b > 300 or n > 1", "this is never true"),
        ("f in (0.1, 0.5)", "this is never equal"),
    ],
)
def test_what_is_hardly_meant_is_said(text: str, said: str) -> None:
    found = Interest(text, TYPE).warnings
    assert found and all(problem.line == 1 and problem.excerpt for problem in found)
    assert any(said in problem.message for problem in found), found


@pytest.mark.parametrize(
    ("text", "expected", "hint"),
    [
        ("t > '2020-01-01' and t < '2019-01-01'",
         "a value from 2020-01-01T00:00:00.000001Z to 9999-12-31T23:59:59.999999Z", "t is timestamp"),
        ("kind = 'A' and kind = 'B'", "A", "kind is Kind"),
        ("b between 5 and 3", "the lower bound first: between 3 and 5", "b is u8"),
        ("f = 0.1", "a value that f32 holds; the nearest is 0.10000000149011612",
         "no f32 is 0.1: ask for a range, e.g. abs(f - 0.1) < 1e-6, or declare the field f64"),
        ("n % 0 = 1", None, "n % 0 has no value, whatever the event: it overflows, or divides by zero"),
        ("d / 0 > 1 or d > 1/0", None, "d / 0 has no value, whatever the event: it divides by zero"),
        ("n is null and b > 3", None, "n is never missing"),
        ("s = 'a' and s = 'b'", None, "what it asks for contradicts itself"),
    ],
)  # fmt: skip
def test_and_in_the_words_of_whoever_wrote_it(text: str, expected: str | None, hint: str) -> None:
    (found,) = Interest(text, _type_with_a_kind()).warnings
    assert (found.expected, found.hint) == (expected, hint)


def _type_with_a_kind() -> m.Record:
    kind = m.Enum("Kind", (("A", 0), ("B", 7)))
    return m.Record("Kinds", (*as_event_type(TYPE).record.fields, m.Field("kind", kind)))


@pytest.mark.parametrize(
    "text",
    [
        "b > 254",
        "o >= 0",
        "not (n > 5 and n < 8)",
        "f = 0.5",
        "f > 0.1",
        "d = 0.1",
        "b > :limit",
        "xs[9] > 1",
        "wind[b] > 1",
        "f in (0.5, 1)",
        "n = 5 or n = 6",
        "true",
        "false",
        "{ return 1; }",
        "{ return 0; }",
        "{ static int k; k = k + input.b; return k > 300; }",
        "lambda e: True",
    ],
)
def test_what_may_be_meant_is_left_alone(text: str) -> None:
    params = {"limit": 300} if ":limit" in text else {}
    assert Interest(text, TYPE, params=params).warnings == ()


def test_a_remark_names_the_place_what_is_possible_and_what_to_do() -> None:
    [problem] = Interest("level > 1 and level = 0.1", "level: f32").warnings
    assert (problem.line, problem.column, problem.found) == (1, 15, "0.1")
    assert problem.expected is not None and "0.10000000149011612" in problem.expected and problem.hint is not None
    [problem] = Interest("b > 300", "b: u8").warnings
    assert (problem.expected, problem.found, problem.hint) == ("a value from 0 to 255", "b > 300", "b is u8")
    [problem] = Interest("wind[9] > 1", "wind: f64[3]").warnings
    assert (problem.expected, problem.found) == ("0 to 2", "9")


def _check(interest: Interest, events: list[Any], params: Any = None) -> None:
    messages = " ".join(problem.message for problem in interest.warnings)
    never, always = NEVER in messages, ALWAYS in messages
    assert not (never and always)
    state = interp.initial_state(interest.program)
    for event in events:
        found = interp.run(interest.program, event, params=interest.params, state=state, fuel=FUEL)
        assert not (never and found.status is Status.PASSED), interest.warnings
        assert not (always and found.status is not Status.PASSED), interest.warnings


_EDGES = st.sampled_from((-129, -128, -1, 0, 1, 2, 3, 9, 127, 128, 255, 256, 300, 2**63 - 1))
_FLOATS = st.sampled_from((0.1, 0.5, -0.0, 1.5, 300.5, 1e39, 16777217.0))
_FIELDS = st.sampled_from(("b", "i", "n", "u", "f", "d", "o", "q", "wind[1]", "wind[3]", "xs[1]", "hour(t)", "len(xs)"))
_TESTS = (
    st.builds("{} {} {}".format, _FIELDS, st.sampled_from(("=", "!=", "<", "<=", ">", ">=")), _EDGES | _FLOATS)
    | st.builds("{} in ({}, {})".format, _FIELDS, _EDGES | _FLOATS, _EDGES | _FLOATS)
    | st.builds("{} is {}null".format, _FIELDS, st.sampled_from(("", "not ")))
    | st.builds("s {} '{}'".format, st.sampled_from(("=", "<", "like")), st.sampled_from(("", "a", "b", "a%")))
)
PREDICATES = st.recursive(
    _TESTS,
    lambda inner: (
        st.builds("({} and {})".format, inner, inner)
        | st.builds("({} or {})".format, inner, inner)
        | st.builds("not ({})".format, inner)
        | st.builds("case when {} then {} else {} end".format, inner, inner, inner)
    ),
    max_leaves=5,
)
RECORD = Interest("true", TYPE).type.record


@settings(deadline=None, max_examples=examples(250), suppress_health_check=list(HealthCheck))
@given(PREDICATES, st.lists(s.raw_events(RECORD), min_size=4, max_size=4))
@example("not (o > 300)", [])
@example("not (q != 0.1)", [])
def test_no_event_contradicts_what_is_said_of_a_predicate(text: str, events: list[dict[str, Any]]) -> None:
    _check(Interest(text, RECORD), events)


@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(cases(meta=False))
def test_nor_of_any_program(case: tuple[Case, Events]) -> None:
    made, events = case
    try:
        interest = Interest.from_program(made.program, made.params)
    except Exception:  # refused: too costly, or endless
        return
    _check(interest, [event for event, _ in events])
