"""After a syntax error the rest is looked at: what is certainly wrong there is told with it, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Interest
from headwater.errors import InterestError
from tests.effort import examples

TYPE = "level: f32, network: text, b: u8, n: i64, wind: f64[3], xs: f64[]"

CASES = [
    ("level > 1 and and networ = 5 and b > 'x'", ["15 and", "19 networ", "34 > compares"]),
    ("level > 1 and (networ = 5", ["15 never closed", "16 networ"]),
    ("level > 1) and networ = 5", ["10 not expected", "16 networ"]),
    ("level > 0,5 and zon = 1 and n === 3", ["10 not expected", "17 zon", "33 not expected"]),
    ("b between 1 5 and networ = 1 or not lower(b) = 'x'", ["13 not expected", "43 lower()"]),
    ("if(level > 1 and networ = 5, b, n) = = 1 and levl > 1", ["38 not expected", "46 levl"]),
    ("network = 'abc and networ = 5", ["11 never closed"]),  # where does the text end?
    ("{ int x = ; y = 5; return input.levl > 1; }", ["11 not C", "13 no variable 'y'", "33 levl"]),
    ("{ int x = ; x = 5; return input.levl > x; }", ["11 not C", "33 levl"]),
    ("{ long x = 1; { char *x = ; return x == \"a\"; } return q; }", ["27 not C", "55 'q'"]),
    ("{ for (int i = 0; i < ; i++) { if (input.wind[i] > 1) { break; } } return input.levl > 1; }",
     ["23 not C", "81 levl"]),
    ("{ if (input.b > ) { return input.foo; } else { return input.bar; } return z; }",
     ["17 not C", "34 foo", "61 bar", "75 'z'"]),
    ("{ int x = ; int y = ; return input.levl; }", ["11 not C", "21 not C", "36 levl"]),
    ("{ level = 5; if (x { return 1; } }", ["34 expected ')'"]),  # brackets that do not match
    ("def f(e):\n  x = =\n  return e.levl > x", ["2:7 not Python", "3:10 levl"]),
    ("def f(e):\n  if e.level > 1\n    y = 3\n    return e.levl > y\n  else:\n    return e.q\n  return e.zz > 1",
     ["2:17 not Python", "4:12 levl", "6:12 'q'", "7:10 zz"]),
    ("def f(e):\n  for x in e.xs\n    if x > 1:\n      break\n  return e.zz > 1", ["2:16 not Python", "5:10 zz"]),
    ("def f(e):\n  x: float = =\n  x = 1\n  x = 0.5\n  return e.zz > x", ["2:14 not Python", "5:10 zz"]),
    ("lambda e: e.zz > ", ["18 not Python"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text[:40] for text, _ in CASES])
def test_the_rest_is_looked_at(text: str, expected: list[str]) -> None:
    with pytest.raises(InterestError) as caught:
        Interest(text, TYPE)
    found = caught.value.problems
    assert len(found) == len(expected), caught.value
    for problem, said in zip(found, expected, strict=True):
        place, _, words = said.partition(" ")
        line, _, column = place.rpartition(":")
        assert (problem.line, problem.column) == (int(line or 1), int(column)), problem
        assert words in f"{problem.message} {problem.found}", problem
        assert problem.excerpt == text.split("\n")[problem.line - 1]


GOOD = ["level > 1", "network = 'a'", "b between 1 and 3", "(n = 1 or n = 2)", "not wind[1] > 2", "n in (1, 2)",
        "case when b = 1 then true else n > 2 end", "if(b > 1, n, 3) = 3", "lower(network) like 'a%'"]  # fmt: skip
_BAD = st.sampled_from(["level > > 1", "= 3", "n n", "(", ")", "b >", "level >= (1", "1 2", ", 3"])


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(GOOD), min_size=1, max_size=4), _BAD, st.integers(0, 4), st.data())
def test_no_problem_is_made_up(parts: list[str], bad: str, at: int, data: st.DataObject) -> None:
    """One thing is wrong: nothing is said of the conditions around it, however they are joined."""
    parts.insert(min(at, len(parts)), bad)
    joined = parts[0]
    for part in parts[1:]:
        joined += data.draw(st.sampled_from((" and ", " or "))) + part
    with pytest.raises(InterestError) as caught:
        Interest(joined, TYPE)
    assert len(caught.value.problems) == 1, caught.value


STATEMENTS = [
    "int a{0} = input.b;",
    "if (input.b > 1) {{ return 1; }} else {{ return 0; }}",
    "double d{0} = input.wind[1];",
    "for (int i = 0; i < 3; i++) {{ if (input.wind[i] > 1) break; }}",
    "static int s{0}; s{0} = s{0} + 1;",
]
_BROKEN = st.sampled_from(["int q = ;", "q = 1 +;", "if (input.b > ) { return 1; }", "while (input.n <) { continue; }",
                           "for (int k = 0; k < ; k++) { int z = k; }", "return input.b input.n;"])  # fmt: skip


@settings(deadline=None, max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(STATEMENTS), max_size=4), _BROKEN, st.integers(0, 4))
def test_nor_of_statements(parts: list[str], broken: str, at: int) -> None:
    body = [part.format(number) for number, part in enumerate(parts)]
    body.insert(min(at, len(body)), broken)
    with pytest.raises(InterestError) as caught:
        Interest("{ " + " ".join(body) + " return 1; }", TYPE)
    assert len(caught.value.problems) == 1, caught.value
