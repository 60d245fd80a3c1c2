"""The compact text: what it says, that it can be shown again, and what becomes of texts that say nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.errors import InterestError, PatternError
from headwater.patterns import written as w
from headwater.patterns.notation.show import show
from headwater.patterns.notation.text import parse, read
from headwater.patterns.pattern import Pattern
from tests.effort import examples
from tests.patterns.strategies import CHANNELS, written_patterns

A, B, C, D = (w.Atom(name) for name in "abcd")


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("a", A),
        ("a; b", w.Sequence((A, B), ("any",))),
        ("a -> b , c", w.Sequence((A, B, C), ("next", "strict"))),
        ("a ; b | c ; d", w.Either((w.Sequence((A, B), ("any",)), w.Sequence((C, D), ("any",))))),
        ("a & b ; c | d", w.Either((w.Both((A, w.Sequence((B, C), ("any",)))), D))),
        ("a &; b &; c", w.Both((A, B, C), "any")),
        ("(a | b) -> c", w.Sequence((w.Either((A, B)), C), ("next",))),
        ("a+", w.Repeat(A)),
        ("a*?", w.Repeat(A, 0, None, greedy=False)),
        ("a? any", w.Repeat(A, 0, 1, "any")),
        ("a{3}", w.Repeat(A, 3, 3)),
        ("a{2,}", w.Repeat(A, 2, None)),
        ("a{,5}", w.Repeat(A, 0, 5)),
        ("a{2,5}? strict", w.Repeat(A, 2, 5, "strict", greedy=False)),
        ("a{v > 3}{2}", w.Repeat(w.Atom("a", condition=w.Condition("v > 3")), 2, 2)),
        ("a ; without b", w.Sequence((A, w.Without(B)), ("any",))),
        ("a ; without b -> c", w.Sequence((A, w.Without(B), C), ("any", "next"))),
        ("(a; b) without c", w.Without(C, w.Sequence((A, B), ("any",)))),
        ("a+ without (b | c)", w.Without(w.Either((B, C)), w.Repeat(A))),
        ("x: a-1.b.*.**", w.Atom("a-1.b.*.**", "x")),
        ("a->b", w.Sequence((A, B), ("next",))),
        ("a(1, -2.5, 'it''s', :p, P, *, true, null)", w.Atom("a", arguments=tuple(w.Argument(each) for each in (
            w.Value(1), w.Value(-2.5), w.Value("it's"), w.Value("p", True), w.Variable("P"), w.Wildcard(),
            w.Value(True), w.Value(None))))),
        ("a(k = 1, z=Z)", w.Atom("a", arguments=(w.Argument(w.Value(1), "k"), w.Argument(w.Variable("Z"), "z")))),
        ("a()", w.Atom("a", arguments=())),
        ("a{s = '}' and t = \"}\"}", w.Atom("a", condition=w.Condition("s = '}' and t = \"}\""))),
        ("-- a comment\n a -- another\n ; b", w.Sequence((A, B), ("any",))),
    ],
)  # fmt: skip
def test_expressions(text: str, root: w.Node) -> None:
    assert parse(text).root == root


def test_clauses_come_in_any_order() -> None:
    text = """whenever a ; b
        measures count(b) as n, a.time as time, case when a.x then 1 else 2 end as within
        time time lateness 1.5 ms patience 1 hour 30 minutes
        after match first b partition by time, k % 2, (a, b)[1]
        no reuse within 3 events among within > 3 and time is not null"""
    pattern = parse(text)
    assert pattern.begin == "each" and pattern.window == w.Window(rows=3)
    assert pattern.measures is not None
    assert [(m.name, m.value.definition) for m in pattern.measures] == [
        ("n", "count(b)"),
        ("time", "a.time"),
        ("within", "case when a.x then 1 else 2 end"),
    ]
    assert pattern.time == w.Condition("time") and pattern.lateness == 1_500 and pattern.patience == 5_400_000_000
    assert pattern.after == w.After("first", "b") and not pattern.reuse
    assert pattern.partition == (w.Condition("time"), w.Condition("k % 2"), w.Condition("(a, b)[1]"))
    assert pattern.among == w.Condition("within > 3 and time is not null")
    assert parse("once a within :t").begin == "first" and parse("a within :t").window == w.Window(parameter="t")


@pytest.mark.parametrize("rule", ["no skip", "next", "past last", "to next", "to first a", "last a"])
def test_after_match(rule: str) -> None:
    after = parse(f"a ; b within 1 s after match {rule}").after
    assert f"{after.rule} {after.element or ''}".strip() == rule.removeprefix("to ")


def test_conditions_know_their_place() -> None:
    text = "a{v > 1} ;\n b{ v < 2 } partition by k"
    root = parse(text).root
    assert isinstance(root, w.Sequence)
    for atom in root.parts:
        assert isinstance(atom, w.Atom) and atom.condition is not None and isinstance(atom.condition.definition, str)
        assert text[atom.condition.span.start : atom.condition.span.end] == atom.condition.definition
    (key,) = parse(text).partition
    assert text[key.span.start : key.span.end] == "k"


@settings(max_examples=examples(200), deadline=None)
@given(written_patterns())
def test_what_is_shown_says_the_same(pattern: w.Pattern) -> None:
    assert parse(show(pattern)) == pattern


# ── what is wrong ──


def told(text: str) -> list[str]:
    return [f"{p.column}: {p.message}" for p in read(text)[1]]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["1: the pattern is empty"]),
        ("  -- nothing", ["13: the pattern is empty"]),
        ("a ;", ["4: this is not expected here"]),
        ("a ;; b ;; c", ["4: this is not expected here", "9: this is not expected here"]),
        ("a b", ["3: this is not expected here"]),
        ("a b ; c d ; (e", [f"{at}: this is not expected here" for at in (3, 9)] + ["13: this is never closed"]),
        ("(a ; b", ["1: this is never closed"]),
        ("a) ; b", ["2: this is not expected here"]),
        ("a{v > 1", ["2: this is never closed"]),
        ("a{v = 'q} ; b", ["7: this quote is never closed"]),
        ("a(1, 2", ["2: this is never closed"]),
        ("a(1 + 2)", ["5: this is not expected here"]),
        ("a('q)", ["3: this quote is never closed"]),
        ("a(:)", ["4: this is not expected here"]),
        ("a{1,2", ["2: this is never closed"]),
        ("a within", ["9: this is not expected here"]),
        ("a within 3", ["11: this is not expected here"]),
        ("a within 3 parsecs", ["12: this is not expected here"]),
        ("a within 1.0000001 seconds", ["10: this is no whole number of microseconds"]),
        ("a within 1 s within 2 s", ["14: within is there twice"]),
        ("a within 1 s nonsense among v > 1", ["14: this is not expected here"]),
        ("a partition k", ["13: this is not expected here"]),
        ("a measures count(b)", ["20: this is not expected here"]),
        ("a after match", ["14: this is not expected here"]),
        ("a after match first", ["20: this is not expected here"]),
        ("a among", ["8: this is not expected here"]),
        ("a no way", ["6: this is not expected here"]),
        ("a &; b &, c", ["1: the steps of one and are of one kind"]),
    ],
)  # fmt: skip
def test_problems(text: str, problems: list[str]) -> None:
    assert told(text) == problems
    with pytest.raises(PatternError):
        parse(text)


def test_an_error_of_syntax_hides_no_errors_of_types() -> None:
    with pytest.raises(PatternError) as caught:
        Pattern("e: a{v > } ; f: b{nothing = e.v} ; g: a( ; h: b{v = 'x'} within 3 parsec", CHANNELS)
    assert [problem.message for problem in caught.value.problems] == [
        "this is not complete",
        "Event has no field 'nothing', and no element or variable is called so",
        "this is not expected here",
        "== compares values of one kind",
        "this is not expected here",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "a" + ")" * 5_000,
        "a" + "{1}" * 3_000,
        "a ; " * 5_000 + "a",
        "a | " * 5_000 + "a",
        "a{" + "(" * 3_000 + "v" + ")" * 3_000 + "}",
        "a{v > 1}" + "?" * 3_000,
        "a" + " without b" * 3_000,
        "a{999999999999}",
        "a(" + "9" * 10_000 + ")",
        "a within " + "9" * 10_000 + " seconds",
        "a within 9999999999999999 weeks",
        "a within 99999999999999999999 events",
        "a\x00b{v\x00> 1}",
        "\x00",
        "a{\x00}",
        "a ; b \ud800",
        "whenever " * 1_000,
        "a measures " + "v as v, " * 5_000,
        "a measures " + ", ".join(f"a.v as v{at}" for at in range(5_000)),
        "a partition by " + "v, " * 5_000 + "v",
        "a: " * 5_000,
        "a." * 5_000 + "a",
        "'" * 5_001,
        "-" * 10_000,
        "a(" * 5_000,
        "a{" * 5_000,
        "x" * 300_000,
    ],
)
def test_hostile_texts_are_refused_quickly(text: str) -> None:
    with pytest.raises(PatternError):
        Pattern(text, CHANNELS)


def test_what_nests_too_deeply_is_told_once() -> None:
    with pytest.raises(PatternError) as caught:
        Pattern("(" * 5_000 + "a" + ")" * 5_000, CHANNELS)
    assert [problem.message for problem in caught.value.problems] == ["this nests deeper than 100"]


_MARKS = list("abvP:(){};,|&'>+*?13 ")
_CLAUSES = ["->", "without", "within", "1 s", "partition by", "measures", "as", "among", "{2}", "after match", "next"]
_WORDS = _MARKS + _CLAUSES


@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join)))
@example("a;'")
def test_any_text_is_a_pattern_or_a_pattern_error(text: str) -> None:
    try:
        found = Pattern(text, CHANNELS)
    except InterestError as error:
        assert error.problems
    else:
        assert parse(show(parse(text))) == found.written
