"""Where row patterns stand in a statement of SQL."""

from __future__ import annotations

import pytest

from headwater.errors import PatternError
from headwater.patterns.notation.sql_statement import row_patterns

CLAUSE = "MATCH_RECOGNIZE (ORDER BY at PATTERN (A B) DEFINE B AS B.v > A.v)"


def test_a_statement_may_have_several() -> None:
    text = f"WITH x AS (SELECT * FROM a.t {CLAUSE}) SELECT * FROM x JOIN `odd name` {CLAUSE} AS y ON x.k = y.k"
    one, other = row_patterns(text)
    assert text[one.span.start : one.span.end] == f"a.t {CLAUSE}"
    assert text[other.span.start : other.span.end] == f"`odd name` {CLAUSE}"
    assert (one.table, other.table) == (("a", "t"), ("odd name",))
    assert (one.channel, other.channel) == ("a.t", "odd name")


@pytest.mark.parametrize("alias", ["AS d", "d"])
def test_a_table_may_have_another_name(alias: str) -> None:
    (found,) = row_patterns(f"SELECT * FROM t {alias} {CLAUSE}, u")
    assert found.table == ("t",)


def test_what_is_no_row_pattern_is_left_alone() -> None:
    assert row_patterns("SELECT 'MATCH_RECOGNIZE (' AS match_recognize, @ FROM t -- MATCH_RECOGNIZE (") == []


def test_problems_have_their_places() -> None:
    two = f"SELECT *\nFROM (SELECT 1) {CLAUSE}\nJOIN t MATCH_RECOGNIZE (PATTERN (A @ B) DEFINE)"
    with pytest.raises(PatternError) as error:
        row_patterns(two)
    found = [(problem.line, problem.message) for problem in error.value.problems]
    assert (2, "the name of a table or view is expected before MATCH_RECOGNIZE") in found
    assert {line for line, _ in found} == {2, 3}
    assert "make a view of it first" in str(error.value)
