"""MATCH_RECOGNIZE: which texts mean which patterns, and what is said of those that mean none."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import PatternError
from headwater.patterns.notation.match_recognize import parse
from headwater.patterns.pattern import Pattern as Checked
from headwater.patterns.written import (
    After,
    Atom,
    Both,
    Condition,
    Either,
    Measure,
    Node,
    Pattern,
    Repeat,
    Sequence,
    Window,
)
from tests.effort import examples


def text(pattern: str = "A B", define: str = "", *, select: str = "*", table: str = "hall.door", order: str = "at",
         partition: str = "", measures: str = "", after: str = "", within: str = "", subset: str = "",
         end: str = "") -> str:  # fmt: skip
    parts = [
        f"PARTITION BY {partition}" if partition else "",
        f"ORDER BY {order}" if order else "",
        f"MEASURES {measures}" if measures else "",
        f"AFTER MATCH SKIP {after}" if after else "",
        f"PATTERN ({pattern})",
        f"WITHIN {within}" if within else "",
        f"SUBSET {subset}" if subset else "",
        f"DEFINE {define}" if define else "",
    ]
    inside = "\n".join(part for part in parts if part)
    return f"SELECT {select} FROM {table} MATCH_RECOGNIZE (\n{inside}\n) {end}"


def atom(name: str, condition: str | None = None) -> Atom:
    return Atom("hall.door", name, condition=None if condition is None else Condition(condition))


A, B, C, D = (atom(name) for name in "ABCD")


def strictly(*parts: Node) -> Sequence:
    return Sequence(parts, ("strict",) * (len(parts) - 1))


def repeated(part: Node, least: int, most: int | None, *, greedy: bool = True) -> Repeat:
    return Repeat(part, least, most, "strict", greedy)


def problems(written: str) -> list[str]:
    """What is said of a text: `line:column message`."""
    with pytest.raises(PatternError) as caught:
        parse(written)
    return [f"{problem.line}:{problem.column} {problem.message}" for problem in caught.value.problems]


# ── what texts mean ──


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("A", A),
        ("A B C", strictly(A, B, C)),
        ("A (B C)", strictly(A, strictly(B, C))),
        ("A | B C", Either((A, strictly(B, C)))),
        ("(A | B) C", strictly(Either((A, B)), C)),
        ("A*B", strictly(repeated(A, 0, None), B)),
        ("A+", repeated(A, 1, None)),
        ("A? B", strictly(repeated(A, 0, 1), B)),
        ("A B*? C+? D??", strictly(A, repeated(B, 0, None, greedy=False), repeated(C, 1, None, greedy=False),
                                   repeated(D, 0, 1, greedy=False))),
        ("A{3}", repeated(A, 3, 3)),
        ("A{3,}", repeated(A, 3, None)),
        ("A{2,5}", repeated(A, 2, 5)),
        ("A{2,5}?", repeated(A, 2, 5, greedy=False)),
        ("A B{,5}", strictly(A, repeated(B, 0, 5))),
        ("A{1}", A),
        ("(A B){2}", repeated(strictly(A, B), 2, 2)),
        ("((A))", A),
        ("A B A", strictly(A, B, A)),
        ("PERMUTE(A, B, C)", Both((A, B, C), "strict")),
        ("PERMUTE(A)", A),
        ("permute(A B, C)", Either((strictly(strictly(A, B), C), strictly(C, strictly(A, B))))),
        ('"A" `B`', strictly(A, B)),
        ("A -- the first\n /* then */ B", strictly(A, B)),
        ("größe", atom("größe")),
    ],
)  # fmt: skip
def test_row_patterns(written: str, meant: Node) -> None:
    assert parse(text(written)).root == meant


def test_orders_of_permute_are_those_of_sql_from_the_first_part_on() -> None:
    def flat(node: Node) -> list[str]:
        match node:
            case Atom(_, name):
                return [str(name)]
            case Sequence(parts):
                return ["".join(names) for names in itertools.product(*(flat(part) for part in parts))]
            case Either(parts):
                return [names for part in parts for names in flat(part)]
        raise AssertionError(node)

    found = flat(parse(text("PERMUTE(A, B | C, D)")).root)
    assert found == ["ABD", "ACD", "ADB", "ADC", "BAD", "BDA", "CAD", "CDA", "DAB", "DAC", "DBA", "DCA"]


@pytest.mark.parametrize(
    ("define", "name", "meant"),
    [
        ("B AS level > 3", "B", "level > 3"),
        ("B AS B.level > A.level + 1", "B", "  level > A.level + 1"),
        ('B AS "B".level > "A".level', "B", "    level > A  .level"),
        ("B AS B.at.hour > 3", "B", "  at.hour > 3"),
        ("B AS LAST(A.level) > 1 AND LAST(B.level) > 2", "B", "     A.level  > 1 AND        level  > 2"),
        ("B AS LAST(B.level, 1) < B.level", "B", "B_.prev.level    <   level"),
        ("B AS LAST(A.level, 1) < B.level", "B", "A.prev.level     <   level"),
        ("B AS CAST(AVG(A.level) AS INT) < level", "B", "CAST(AVG(A.level) AS INT) < level"),
        ("B AS LAST(level, 1) < level", "B", "_.prev.level   < level"),
        ("B AS LAST(A.level,0) > 1", "B", "     A.level    > 1"),
        ("B AS FIRST(A.level) > 1 and first(B.level, 0) = 1", "B", "FIRST(A.level) > 1 and first(B.level)    = 1"),
        ("B AS PREV(B.level) < B.level", "B", "_.prev.level  <   level"),
        ("B AS PREV(level, 1) < PREV(level, 0)", "B", "_.prev.level   <      level    "),
        ("B AS COUNT(A.*) = 2 AND COUNT(*) < 9 AND COUNT(A) > 1", "B",
         "COUNT(A  ) = 2 AND COUNT(_) < 9 AND COUNT(A) > 1"),
        ("B AS SUM(B.level) < 9 AND AVG(A.reading.level) > 1", "B",
         "SUM(B.level) < 9 AND AVG(A.reading.level) > 1"),
        ("B AS SUM(level) < 9", "B", "SUM(_.level)<9"),
        ("B AS SUM(level)  <  9", "B", "SUM(_.level)<  9"),
        ("B AS MIN(A.level) < MAX(level, 3)", "B", "MIN(A.level) < MAX(level, 3)"),
        ("B AS RUNNING LAST(A.level) > 1", "B", "             A.level  > 1"),
        ("B AS at < A.at + INTERVAL '1' MINUTE", "B", "at < A.at + 60000000           "),
        ("B AS at > A.at + INTERVAL '-1' SECOND", "B", None),
        ("B AS at > A.at + INTERVAL -'1' SECOND", "B", "at > A.at + (-1000000)          "),
        ("B AS CLASSIFIER() = 'B'", "B", "'B'          = 'B'"),
        ("B AS level /* of it */ > :limit -- no more", "B", "level             > :limit"),
        ("B AS who IN ('a', 'it''s', 'x -- y')", "B", "who IN ('a', 'it''s', 'x -- y')"),
        ("B AS CAST(level AS INT) = 3 AND A.level BETWEEN 1 AND 2", "B",
         "CAST(level AS INT) = 3 AND A.level BETWEEN 1 AND 2"),
        ("B AS timestamp > timestamp '2026-01-01 00:00:00'", "B", "timestamp > timestamp '2026-01-01 00:00:00'"),
        ("A AS CASE WHEN level > 3 THEN true ELSE false END", "A", "CASE WHEN level > 3 THEN true ELSE false END"),
        ("B AS meta.source = A.meta.source AND values[0] = A.values[1]", "B",
         "meta.source = A.meta.source AND values[0] = A.values[1]"),
    ],
)  # fmt: skip
def test_conditions(define: str, name: str, meant: str | None) -> None:
    if meant is None:
        assert problems(text(define=define))
        return
    pattern = parse(text(define=define))
    assert isinstance(pattern.root, Sequence)
    conditions = {part.name: part.condition for part in pattern.root.parts if isinstance(part, Atom)}
    assert conditions == {"A": None, "B": None, name: Condition(meant)}


@pytest.mark.parametrize(
    ("measures", "meant"),
    [
        ("A.level AS first_level", [("first_level", "A.level")]),
        ("LAST(B.level) AS top, COUNT(*) AS n", [("top", "     B.level "), ("n", "COUNT(_)")]),
        ("level AS last_level", [("last_level", "_.level")]),
        ("FIRST(level) AS f", [("f", "FIRST(_.level)")]),
        ("FINAL LAST(A.level) - RUNNING FIRST(A.level) AS d", [("d", "           A.level  -         FIRST(A.level)")]),
        ("MATCH_ROWTIME() AS t", [("t", "_.at           ")]),
        ("CLASSIFIER() AS c", [("c", "'B'         ")]),
        ("meta.source AS s", [("s", "_.meta.source")]),
        ("SUM(A.x) + :p * 2 AS s", [("s", "SUM(A.x) + :p * 2")]),
    ],
)
def test_measures(measures: str, meant: list[tuple[str, str]]) -> None:
    found = parse(text(measures=measures)).measures
    assert found is not None
    assert [(measure.name, measure.value.definition) for measure in found] == meant


def test_the_result_has_the_columns_of_the_partition_and_then_the_measures() -> None:
    pattern = parse(text(partition="door, badge.owner, level % 2", measures="A.at AS begun"))
    assert pattern.partition == (Condition("door"), Condition("badge.owner"), Condition("level % 2"))
    assert pattern.measures == (
        Measure("door", Condition("_.door")),
        Measure("owner", Condition("_.badge.owner")),
        Measure("begun", Condition("A.at")),
    )
    assert pattern.subsets == {"_": ("A", "B")}


def test_a_select_list_chooses_and_renames() -> None:
    pattern = parse(text(select="t.b AS level, door, a x", partition="door", measures="A.x AS a, B.x AS b", end="AS t"))
    assert pattern.measures == (
        Measure("level", Condition("B.x")),
        Measure("door", Condition("_.door")),
        Measure("x", Condition("A.x")),
    )


def test_without_measures_the_result_is_all_elements() -> None:
    pattern = parse(text(partition="door"))
    assert pattern.measures is None
    assert pattern.subsets == {}


def test_what_is_not_said_is_as_in_sql() -> None:
    assert parse(text()) == Pattern(strictly(A, B), begin="each", after=After("past last"), time=Condition("at"),
                                    notation="match_recognize")  # fmt: skip


@pytest.mark.parametrize(
    ("after", "meant"),
    [
        ("PAST LAST ROW", After("past last")),
        ("to next row", After("next")),
        ("TO FIRST B", After("first", "B")),
        ("TO LAST B", After("last", "B")),
        ("TO A", After("last", "A")),
        ("TO U", After("last", "U")),
    ],
)
def test_after_a_match(after: str, meant: After) -> None:
    pattern = parse(text(after=after, subset="U = (A, B)"))
    assert pattern.after == meant
    assert pattern.subsets == {"U": ("A", "B")}


def test_variables_may_be_called_like_words_of_clauses() -> None:
    pattern = parse(text("FIRST LAST", after="TO LAST", define="LAST AS pattern > 3"))
    assert pattern.after == After("last", "LAST")
    assert pattern.root == strictly(atom("FIRST"), atom("LAST", "pattern > 3"))


def test_the_name_of_all_rows_is_one_that_no_variable_has() -> None:
    pattern = parse(text("_ A", define="A AS COUNT(*) > 1 AND _.level > 1"))
    assert pattern.root == strictly(atom("_"), atom("A", "COUNT(__)> 1 AND _.level > 1"))
    assert pattern.subsets == {"__": ("_", "A")}


SECOND = 1_000_000


@pytest.mark.parametrize(
    ("within", "micros"),
    [
        ("INTERVAL '10' SECOND", 10 * SECOND),
        ("INTERVAL '10' SECONDS", 10 * SECOND),
        ("interval '0.5' second(2, 3)", SECOND // 2),
        ("INTERVAL '0.000001' SECOND", 1),
        ("INTERVAL '1:30' MINUTE TO SECOND", 90 * SECOND),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND(1)", 93_784_500_000),
        ("INTERVAL '1 02' DAY(3) TO HOUR", 26 * 3600 * SECOND),
        ("INTERVAL '2' WEEK", 14 * 86_400 * SECOND),
        ("INTERVAL '9999' DAY", 9999 * 86_400 * SECOND),
        ("INTERVAL 5 MINUTE", 300 * SECOND),
        ("INTERVAL '250' MILLISECOND", 250_000),
    ],
)
def test_a_window_ends_a_microsecond_before_flinks(within: str, micros: int) -> None:
    assert parse(text(within=within)).window == Window(microseconds=micros - 1)


@pytest.mark.parametrize(
    "order", ["meta.time", "meta.time ASC", "meta.time, meta.source, meta.seq", "meta.time ASC, meta.source"]
)
def test_ordered_by_the_time_of_publication(order: str) -> None:
    assert parse(text(order=order)).time is None


def test_ordered_by_a_field() -> None:
    assert parse(text(order="reading.at ASC")).time == Condition("reading.at")


@pytest.mark.parametrize(
    ("table", "channel"),
    [
        ("door", "door"),
        ("ie.tcd.cs.sighting", "ie.tcd.cs.sighting"),
        ('"hall-1".door AS d', "hall-1.door"),
        ("x y", "x"),
    ],
)
def test_channels(table: str, channel: str) -> None:
    assert parse(text("A", table=table, end="AS t;")).root == Atom(channel, "A")


# ── places ──

WRITTEN = text(
    "A B+ C",
    "B AS PREV(B.level) < LAST( A.level ) AND SUM(B.level) < 9, C AS LAST(B.level, 1) > C.level",
    partition="door",
    measures="COUNT(B.*) AS n, LAST(B.level) AS top",
    within="INTERVAL '1' HOUR",
)


def test_a_condition_stands_where_it_was_written() -> None:
    pattern = parse(WRITTEN)
    assert isinstance(pattern.root, Sequence)
    repeat, last = pattern.root.parts[1:]
    assert isinstance(repeat, Repeat)
    assert isinstance(repeat.part, Atom)
    assert isinstance(last, Atom)
    assert pattern.measures is not None
    found = [repeat.part.condition, last.condition, *(measure.value for measure in pattern.measures[1:])]
    names = 0
    for condition in found:
        assert condition is not None
        written = WRITTEN[condition.span.start : condition.span.end]
        definition = str(condition.definition)
        assert len(definition) == len(written)
        for name in re.finditer(r"\blevel\b", written):
            names += 1
            assert definition[slice(*name.span())] == "level"
    assert names == 6


def test_parts_know_where_they_stand() -> None:
    pattern = parse(WRITTEN)
    assert isinstance(pattern.root, Sequence)
    spans = [part.span for part in pattern.root.parts]
    assert [WRITTEN[span.start : span.end] for span in spans] == ["A", "B+", "C"]
    assert WRITTEN[slice(*pattern.root.span)] == "A B+ C"
    assert pattern.window is not None
    assert WRITTEN[slice(*pattern.window.span)] == "INTERVAL '1' HOUR"


# ── what is not supported ──


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (text("^ A B"), "3:10 ^ is not supported"),
        (text("A B $"), "3:14 $ is not supported"),
        (text("A {- B+ -} C"), "3:12 the exclusion {- … -} is not supported"),
        (text("A ()"), "3:13 this is not expected here"),
        (text("A*"), "3:10 a pattern that can match no row at all is not supported"),
        (text("A? | B"), "3:10 a pattern that can match no row at all is not supported"),
        (text("(A* B?){2}"), "3:10 a pattern that can match no row at all is not supported"),
        (text(define="A AS NEXT(A.x) > 1"), "4:13 NEXT is not supported: it looks at a row that has not come yet"),
        (text(define="A AS PREV(A.x) > 1"),
         "4:13 PREV is not supported here: a row before the match is not part of it"),
        (text("A? B", define="B AS PREV(B.x) > 1"),
         "4:13 PREV is not supported here: a row before the match is not part of it"),
        (text(define="B AS PREV(A.x) > 1"), "4:13 PREV of another variable is not supported in the condition of B"),
        (text(define="B AS PREV(B.x, 2) > 1"), "4:13 PREV of 2 rows back is not supported"),
        (text(measures="PREV(B.x) AS p"), "3:10 PREV is not supported in MEASURES"),
        (text(define="B AS LAST(B.x, 2) > 1"), "4:13 LAST with an offset of 2 is not supported"),
        (text(define="B AS FIRST(B.x, 1) > 1"), "4:13 FIRST with an offset of 1 is not supported"),
        (text(define="B AS FINAL LAST(B.x) > 1"), "4:13 FINAL is not supported in DEFINE"),
        (text(define="B AS LAST(SUM(B.x)) > 1"), "4:18 LAST of an expression is not supported"),
        (text(define="B AS SUM(LAST(B.x)) > 1"), "4:17 SUM of an expression is not supported"),
        (text(define="B AS SUM(A.x + B.x) > 1"), "4:17 SUM of an expression is not supported"),
        (text(define="B AS COUNT(DISTINCT A.x) > 1"), "4:19 DISTINCT is not supported in an aggregate"),
        (text(define="B AS SUM(A.*) > 1"), "4:17 SUM takes a column"),
        (text(define="B AS STDDEV(A.x) > 1"), "4:13 STDDEV is not supported"),
        (text(define="B AS A.x || B.x = 'ab'"), "4:17 || is not supported: text is not joined"),
        (text(measures="MATCH_NUMBER() AS n"), "3:10 MATCH_NUMBER is not supported: matches are not counted"),
        (text(measures="MATCH_PROCTIME() AS n"),
         "3:10 MATCH_PROCTIME is not supported: results do not depend on when they are computed"),
        (text("A (B | C)", measures="CLASSIFIER() AS c"),
         "3:10 CLASSIFIER is supported where only one variable can be the last"),
        (text(partition="LAST(x)"), "2:14 LAST belongs in DEFINE or MEASURES"),
        (text(order=""), "1:41 there is no ORDER BY in it"),
        (text(order="at DESC"), "2:13 ORDER BY … DESC is not supported: time goes forward"),
        (text(order="at, door"), "2:14 ORDER BY of more than the time is not supported"),
        (text(order="at NULLS LAST"), "2:13 NULLS FIRST and NULLS LAST are not supported"),
        (text(order="at + 1"), "2:13 this is not expected here"),
        (text(within="INTERVAL '1' MONTH"), "4:21 an interval of MONTH is not supported: it is no fixed time"),
        (text(within="INTERVAL '0' SECOND"), "4:8 within no time at all"),
        (text(within="INTERVAL '9999999' DAY"), "4:8 this interval is longer than time"),
        (text(within="INTERVAL '1:61x' MINUTE TO SECOND"), "4:17 this interval cannot be read"),
        (text(within="INTERVAL '1' FORTNIGHT"), "4:21 this is no unit of time"),
        (text(within="10 SECONDS"), "4:8 this is not expected here"),
        (text(select="DISTINCT a", measures="A.x AS a"), "1:8 SELECT DISTINCT is not supported"),
        (text(select="a + 1", measures="A.x AS a"), "1:10 this is not expected here"),
        (text(select="b", measures="A.x AS a"), "1:8 there is no measure or partition column of this name"),
        (text(table="(SELECT * FROM x)"), "1:15 a subquery is not supported before MATCH_RECOGNIZE"),
        (text(table="x, y"), "1:16 several tables are not supported"),
        (text(end="AS t WHERE a > 1"), "4:8 WHERE is not supported after MATCH_RECOGNIZE"),
        (text(end="ORDER BY a"), "4:3 ORDER is not supported after MATCH_RECOGNIZE"),
        ("WITH x AS (SELECT 1) SELECT 1", "1:1 WITH is not supported before a pattern"),
        (text().replace("PATTERN", "ALL ROWS PER MATCH PATTERN"), "3:1 ALL ROWS PER MATCH is not supported"),
        (text().replace("PATTERN", "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN"),
         "3:1 ALL ROWS PER MATCH is not supported"),
        (text().replace("PATTERN", "SEEK PATTERN"), "3:1 SEEK is not supported"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(written: str, said: str) -> None:
    assert problems(written) == [said]


# ── mistakes ──


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "1:1 this is not expected here"),
        ("level > 3", "1:1 this is not expected here"),
        ("SELECT * FROM x", "1:16 this is not expected here"),
        ("SELECT * FROM x MATCH_RECOGNIZE", "1:32 this is not expected here"),
        ("SELECT * FROM x MATCH_RECOGNIZE (ORDER BY at PATTERN (A)", "1:33 this is never closed"),
        ("SELECT * FROM x MATCH_RECOGNIZE (a PATTERN (A))", "1:34 this is not expected here"),
        ("SELECT * FROM x MATCH_RECOGNIZE (ORDER BY at)", "1:33 there is no PATTERN in it"),
        (text("A B))"), "3:15 this is not expected here"),
        (text("A | | B"), "3:14 this is not expected here"),
        (text("A || B"), "3:12 this is not expected here"),
        (text("* A"), "3:10 this is not expected here"),
        (text("A**"), "3:12 this is not expected here"),
        (text("A{2}{3}"), "3:14 this is not expected here"),
        (text("A{}"), "3:12 this is not expected here"),
        (text("A{,}"), "3:13 this is not expected here"),
        (text("A{5,3}"), "3:11 this ends before it begins"),
        (text("A{0}B"), "3:11 nothing is repeated"),
        (text("A{1.5}"), "3:12 this is not a whole number"),
        (text("A{99999999999999999999999999999999}"), "3:12 this is too often"),
        (text("A, B"), "3:11 this is not expected here"),
        (text("and B"), "3:10 a variable cannot have this name: and is a word of conditions"),
        (text('"a b"'), '3:10 a variable cannot have this name: "a b" is not a plain word'),
        (text("A 3"), "3:12 this is not expected here"),
        (text(define="Q AS level > 3"), "4:8 PATTERN has no variable of this name"),
        (text(define="a AS level > 3"), "4:8 PATTERN has no variable of this name"),
        (text(define="A AS level > 3, A AS level > 4"), "4:24 this variable is defined twice"),
        (text(define="A AS"), "5:1 this is not expected here"),
        (text(define="A level > 3"), "4:10 this is not expected here"),
        (text(define="A AS level >"), "4:20 this is not complete"),
        (text(define="A AS level > 3 3"), "4:23 this is not expected here"),
        (text(define="A AS\n level >> = 3"), "5:11 this is not expected here"),
        (text(define="A AS (level > 3"), "1:41 this is never closed"),
        (text(define="A AS level > 'x"), "4:21 this quote is never closed"),
        (text(define="A AS level > 3 /* x"), "4:23 this comment is never closed"),
        (text(define="A AS level # 3"), "4:19 this character is no part of SQL"),
        (text(define="A AS level \0 3"), "4:19 this character is no part of SQL"),
        (text(define="A AS SUM(A.x, 2) > 1"), "4:13 SUM takes one argument"),
        (text(define="A AS COUNT() > 1"), "4:13 COUNT takes one argument"),
        (text(measures="A.x"), "3:12 this is not expected here"),
        (text(measures="A.x AS a, B.x AS a"), "3:27 two columns of the result have one name"),
        (text(partition="a", measures="B.x AS a"), "4:17 two columns of the result have one name"),
        (text(after="TO Q"), "3:21 there is no variable of this name to skip to"),
        (text(after="nowhere"), "3:18 this is not expected here"),
        (text(subset="U = (A, Q)"), "4:16 PATTERN has no variable of this name"),
        (text(subset="A = (A, B)"), "4:8 a subset has the name of a variable"),
        (text(subset="U = ()"), "4:13 this is not expected here"),
        (text(partition="a PARTITION BY b"), "2:16 PARTITION BY stands here twice"),
        (text(end="AS t x"), "4:8 this is not expected here"),
    ],
)
def test_mistakes_have_a_place(written: str, said: str) -> None:
    assert said in problems(written)


def test_all_problems_at_once() -> None:
    written = text(
        "A B C",
        "B AS NEXT(B.x) > 1, C AS C.x >, Q AS 1",
        order="at DESC",
        within="INTERVAL '1' YEAR",
        measures="MATCH_NUMBER() AS n, A.x",
        after="TO R",
        end="WHERE n > 1",
    )
    assert [said.split(" ")[0] for said in problems(written)] == [
        "2:13", "3:10", "3:33", "4:21", "6:21", "7:13", "7:38", "7:40", "8:3"
    ]  # fmt: skip


def test_a_hint_names_the_variable_that_was_meant() -> None:
    with pytest.raises(PatternError, match="did you mean DOWN"):
        parse(text("STRT DOWN", define="down AS level > 3"))


# ── hostile texts ──


@pytest.mark.parametrize(
    "written",
    [
        text("(" * 5_000 + "A" + ")" * 5_000),
        text("(" * 5_000),
        text(")" * 5_000),
        text("A" + "?" * 5_000),
        text("A" + "|" * 5_000),
        text("PERMUTE(" * 3_000),
        text("PERMUTE(A B, C, " * 20 + "D" + ")" * 20),
        text(f"PERMUTE({', '.join(['A B'] * 200)})"),
        text(define="A AS " + "(" * 5_000 + "x" + ")" * 5_000),
        text(define="A AS " + "not " * 5_000 + "x"),
        text(define="A AS " + "LAST(" * 5_000 + "x" + ")" * 5_000),
        text(define="A AS " + "MIN(1, " * 30_000 + "x" + ")" * 30_000),
        text(define="A AS " + "A.x + " * 30_000 + "x > 3"),
        text(define=", ".join(f"Q{at} AS x > 3" for at in range(10_000))),
        text(" ".join(f"V{at}" for at in range(20_000)), define=", ".join(f"Q{at} AS x > 3" for at in range(5_000))),
        text("^ " * 50_000),
        text("PERMUTE(A B, " * 90 + "C" + ")" * 90),
        text(within="INTERVAL '" + "9" * 100_000 + "' SECOND"),
        text(within="INTERVAL '1e9' SECOND"),
        text(within="INTERVAL '0.0000001' SECOND"),
        "'" * 20_001,
        "SELECT " * 10_000,
        "x" * 300_000,
        "SELECT * FROM x MATCH_RECOGNIZE (" + "DEFINE A AS " * 10_000 + ")",
        "\ud800",
    ],
)
def test_hostile_texts_are_refused(written: str) -> None:
    assert problems(written)


def test_a_text_is_a_text() -> None:
    with pytest.raises(PatternError, match="expected: a str"):
        parse(3)  # type: ignore[arg-type]


WORDS = (
    "SELECT * FROM x MATCH_RECOGNIZE ( ) PARTITION BY ORDER MEASURES PATTERN DEFINE SUBSET WITHIN AFTER MATCH SKIP TO "
    "PAST LAST FIRST ROW NEXT ONE PER ALL ROWS A B AS . , + ? { - } | ^ $ 1 'x' \"y\" = > INTERVAL SECOND COUNT SUM "
    "PREV CLASSIFIER RUNNING FINAL PERMUTE CASE END AND NOT :p [ ] -- /* */ ' `"
)
PIECES = st.sampled_from(WORDS.split())


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PIECES, max_size=30), st.lists(PIECES, max_size=20), st.lists(PIECES, max_size=20))
def test_any_text_is_a_pattern_or_an_error_with_places(pattern: list[str], define: list[str], whole: list[str]) -> None:
    for written in (
        text(" ".join(pattern)),
        text(define="A AS " + " ".join(define)),
        text(measures=" ".join(define) + " AS m"),
        " ".join(whole),
    ):
        try:
            parse(written)
        except PatternError as error:
            assert error.problems
            assert all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)


VARIABLES = st.sampled_from("ABCD").map(atom)


def _parts(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=2, max_size=3)
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (2, None), (1, 3), (0, 4)])
    return st.one_of(
        several.map(lambda parts: strictly(*parts)),
        several.map(lambda parts: Either(tuple(parts))),
        st.builds(lambda part, bound, greedy: repeated(part, *bound, greedy=greedy or bound == (2, 2)),
                  inner, bounds, st.booleans()),
        st.permutations([A, B, C]).map(lambda parts: Both(tuple(parts), "strict")),
    )  # fmt: skip


def said(node: Node) -> str:
    """A row pattern that means this."""
    match node:
        case Atom(_, name):
            return str(name)
        case Sequence(parts):
            return f"({' '.join(said(part) for part in parts)})"
        case Either(parts):
            return f"({' | '.join(said(part) for part in parts)})"
        case Both(parts):
            return f"PERMUTE({', '.join(said(part) for part in parts)})"
        case Repeat(part, least, most, _, greedy):
            counts = {(0, None): "*", (1, None): "+", (0, 1): "?", (2, 2): "{2}", (0, 4): "{,4}"}
            count = counts.get((least, most)) or f"{{{least},{'' if most is None else most}}}"
            return f"({said(part)}){count}{'' if greedy else '?'}"
    raise AssertionError(node)


@settings(max_examples=examples(200), deadline=None)
@given(st.recursive(VARIABLES, _parts, max_leaves=12))
def test_a_tree_that_is_said_is_the_tree_that_is_read(node: Node) -> None:
    assert parse(text(f"A {said(node)}")).root == strictly(A, node)


# ── with types ──

TRADES = {"trades": "symbol: text, price: f64?, amount: i64, at: timestamp"}


def told(written: str) -> list[tuple[str, str]]:
    """The problems, each with what it points at."""
    with pytest.raises(PatternError) as caught:
        Checked(written, TRADES)
    return [(each.message, written[each.column - 1 :][: each.width]) for each in caught.value.problems]


def test_an_error_of_syntax_hides_no_errors_of_types() -> None:
    written = (
        "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at PATTERN (A B) WITHIN INTERVAL '1' HOUR "
        "DEFINE A AS amount = 'x', B AS LAG(price) > 1)"
    )
    assert told(written) == [("== compares values of one kind", "amount = 'x'"), ("LAG is not supported", "LAG")]
    written = (
        "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at ALL ROWS PER MATCH PATTERN (A B) WITHIN INTERVAL '1' HOUR "
        "DEFINE A AS amount = 'x')"
    )
    assert told(written) == [
        ("ALL ROWS PER MATCH is not supported", "ALL ROWS PER MATCH"),
        ("== compares values of one kind", "amount = 'x'"),
    ]


def test_a_channel_that_is_not_there_is_told_where_it_is_named() -> None:
    written = "SELECT * FROM trade MATCH_RECOGNIZE (ORDER BY at PATTERN (A B) WITHIN INTERVAL '1' HOUR)"
    assert told(written) == [("no channel 'trade'", "trade")]


def test_a_window_that_is_missing_is_asked_for_in_the_words_of_sql() -> None:
    written = "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at PATTERN (A B+ C) DEFINE B AS price > 1)"
    assert told(written) == [("a pattern that begins anew at each event needs a window", "A B+ C")]
    with pytest.raises(PatternError, match=r"WITHIN INTERVAL '10' SECOND after PATTERN"):
        Checked(written, TRADES)


def test_what_is_sql_shows_in_its_words() -> None:
    assert Checked("a: trades{symbol = 'MATCH_RECOGNIZE ('}", TRADES).notation != "match_recognize"
    with pytest.raises(PatternError, match=r"expected: MATCH_RECOGNIZE \(…\)"):
        Checked("SELECT * FROM trades", TRADES)
    told = "-- it's mine\nSELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at PATTERN (A B) WITHIN INTERVAL '1' HOUR)"
    assert Checked(told, TRADES).notation == "match_recognize"
