"""What people get wrong when they begin, and the hint that each notation gives them."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import pytest

from headwater import Event, Interest
from headwater.errors import InterestError


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
    ("{ return is_null(input.level); }", "did you mean 'is_missing'?"),
]
PYTHON = [
    ("def f(e, limit=0.5):\n  return e.level > limit", "a parameter comes after a bare *: def f(e, *, limit=…)"),
    ("def f(e, limit):\n  return e.level > limit", "a parameter comes after a bare *: def f(e, *, limit=…)"),
    ("lambda e: e.seen > datetime.now()", "meta.time is the time of the event"),
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
