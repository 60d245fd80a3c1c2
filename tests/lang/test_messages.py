"""What people get wrong when they begin, and the hint that each notation gives them."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import pytest

from headwater import Event, Interest, Node
from headwater.errors import InterestError, ParameterError, SubscriptionError


class Kind(Enum):
    USER = 1
    EQUIPMENT = 2


class Sighting(Event):
    badge: str
    network: str
    level: float | None
    zone: int
    kind: Kind
    seen: datetime
    samples: list[float]
    ok: bool


PREDICATE = [
    ('network = "ORL"', "text is written in single quotes: 'ORL'"),
    ("network = ORL", "text is written in single quotes: 'ORL'"),
    ("level => 0.5", "write >="),
    ("level is None", "write is null"),
    ("level is not nil", "write is not null"),
    ("zone is 3", "is asks for null only; compare values with ="),
    ("ok is true", "compare conditions with = true or = false"),
    ("ok = 'true'", "a boolean is a condition by itself; true and false are written without quotes"),
    ("level =< 0.5", "write <="),
    ("zone === 1", "write = or =="),
    ("level > 0,5", "decimals are written with a point: 0.5"),
    ("limit > 1", 'a field of this name is written "limit", a parameter :limit'),
    ("e.level > 0.5", "fields are written by themselves: level"),
    ("event.zone > 1", "fields are written by themselves: zone"),
    ("level != nan", "test for it with is_nan(x)"),
    ("on /* never closed", "predicate text has no comments"),
    ("kind = 1", "compare it with a member's name; code(x) is its number"),
    ("seen > 2026", "a time is written '2026-01-31T09:30:00Z'; micros(x) is its number"),
    ("network = 5", "text is written in quotes: '5'"),
    ("zone = '5'", "write numbers without quotes"),
    ("zone = network", "text and numbers cannot be turned into each other"),
    ("level == None", "test for a missing value with: level is null"),
    ("level != none", "test for a missing value with: level is not null"),
    ("null = level", "test for a missing value with: level is null"),
    ("input['badge'] = 'x'", "write badge"),
    ("samples > 1", "take an element, e.g. x[0], or min, max, sum, mean or len of it"),
]
ECODE = [
    ("{ if input.ok { return 1; } }", "the condition of 'if' stands in parentheses"),
    ("{ for i in range(3) { } }", "the condition of 'for' stands in parentheses"),
    ("{ while input.ok return 1; }", "the condition of 'while' stands in parentheses"),
    ("{ return input.level > 0.5 and input.ok; }", "C writes && for and"),
    ("{ return input.ok or input.ok; }", "C writes || for or"),
    ("{ return not input.ok; }", "C writes ! for not"),
    ("{ retrun 1; }", "did you mean 'return'?"),
    ("{ If (input.ok) return 1; }", "did you mean 'if'?"),
    ("{ string s = input.network; return 1; }", "a text is declared char * or text"),
    ("{ return input.network == 'ORL'; }", "a text is written in double quotes"),
    ("{ return input.network == 5; }", 'text is written in quotes: "5"'),
    ("{ int x = y; return x; }", "declare it first, e.g. int y = 0;"),
    ("{ int yy = 1; int x = y; return x; }", "did you mean 'yy'?"),
    ('{ return input["zone"] == 1; }', "write input.zone"),
    ("{ return input.level == None; }", "write NULL"),
    ("{ return is_null(input.level); }", "did you mean 'is_missing'?"),
]
PYTHON = [
    ("def f(e, limit=0.5):\n  return e.level > limit", "a parameter comes after a bare *: def f(e, *, limit=…)"),
    ("def f(e, limit):\n  return e.level > limit", "a parameter comes after a bare *: def f(e, *, limit=…)"),
    ("lambda e: e.seen > datetime.now()", "meta.time is the time of the event"),
    ("lambda e: e['zone'] == 1", "write e.zone"),
    ("lambda e: e['zon'] == 1", "did you mean 'zone'?"),
    ("lambda e: e[0] == 1", "e is the event, not a dict or list"),
    ("lambda e: e.network == 5", "text is written in quotes: '5'"),
    ("lambda e: e.level == None", "test for a missing value with e.level is None"),
    ("lambda e: None != e.level", "test for a missing value with e.level is not None"),
    ("lambda e: re.match('x', e.network)", "there are no regular expressions"),
    ("lambda e: isinstance(e.level, float)", "test for a missing value with `is None`"),
    ("lambda e: e.zone == 0x" + "f" * 10_000, "does not fit 64 bits"),
]
CASES = [
    *(("predicate", text, hint) for text, hint in PREDICATE),
    *(("ecode", text, hint) for text, hint in ECODE),
    *(("python", text, hint) for text, hint in PYTHON),
]


@pytest.mark.parametrize(("notation", "text", "hint"), CASES, ids=[f"{n}-{t[:30]}" for n, t, _ in CASES])
def test_hint(notation: str, text: str, hint: str) -> None:
    with pytest.raises(InterestError) as caught:
        Interest(text, Sighting, notation=notation)  # type: ignore[arg-type]
    assert hint in str(caught.value)


def test_a_parameter_by_position_is_one_problem() -> None:
    with pytest.raises(InterestError) as caught:
        Interest("def f(e, limit=0.5):\n  return e.level > limit", Sighting, notation="python")
    assert len(caught.value.problems) == 1


def test_a_flood_of_problems_is_cut() -> None:
    with pytest.raises(InterestError) as caught:
        Interest(" and ".join(f"unknown{at} > 1" for at in range(2_000)), Sighting)
    assert len(caught.value.problems) == 2_000
    assert len(str(caught.value)) < 50_000 and str(caught.value).endswith("and 1,950 more")


def test_each_of_them_names_the_place_what_was_expected_found_and_what_to_do() -> None:
    fields = "level: f32, network: text, battery: f32?"
    for definition, params in (
        ("network = 5", {}),
        ("level = 'high'", {}),
        ("battery == None", {}),
        ("level in :levels", {"levels": {"a"}}),
        ("network in :levels", {"levels": {1, 2}}),
        ("lambda e: e['level'] > 1", {}),
        ("{ int x = y; return x; }", {}),
    ):
        with pytest.raises(InterestError) as caught:
            Interest(definition, fields, params=params)
        [problem] = caught.value.problems
        assert problem.expected and problem.found and problem.hint and problem.excerpt, definition
        assert problem.line == 1 and problem.column >= 1


def test_what_is_declared_f32_is_called_so() -> None:
    for definition in ("level = 'high'", "level % 2 = 1", "level", "lower(level) = 'a'", "level in :names"):
        with pytest.raises(InterestError) as caught:
            Interest(definition, "level: f32", params={"names": {"a"}} if ":names" in definition else {})
        assert "f32 (float, 32 bits)" in str(caught.value) and "f64" not in str(caught.value), definition


def test_a_set_of_integers_is_one_of_floats_beside_a_float() -> None:
    interest = Interest("level in :levels", "level: f32", params={"levels": {1, 2}})
    assert interest.test({"level": 2.0}) and not interest.test({"level": 2.5})


def test_a_list_for_a_parameter() -> None:
    with pytest.raises(ParameterError, match="found list; write a set"):
        Interest("level in :levels", "level: f32", params={"levels": [1, 2]})


@pytest.mark.parametrize("notation", ["predicate", "ecode", "python"])
def test_a_parameter_that_is_not_used(notation: str) -> None:
    text = {"predicate": "level > :limit", "ecode": "{ return input.level > limit; }",
            "python": "lambda e, *, limit: e.level > limit"}[notation]  # fmt: skip
    with pytest.raises(ParameterError) as caught:
        Interest(text, "level: f32", params={"limit": 1, "limits": 2})
    assert "limits" in str(caught.value) and "did you mean 'limit'?" in str(caught.value)


def test_delivery_durable() -> None:
    with Node() as node, pytest.raises(SubscriptionError) as caught:
        node.channel("a", "level: f32").subscribe(print, delivery="durable")
    assert "Reliable(durable=True)" in str(caught.value) and "did you mean" not in str(caught.value)
