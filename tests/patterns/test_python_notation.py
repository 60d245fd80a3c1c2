"""Patterns in Python say what the compact text says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headwater.errors import PatternError
from headwater.patterns.notation.python import ANY, Expression, atom, both, either, param, seq, var, without
from headwater.patterns.notation.text import parse
from headwater.patterns.pattern import Pattern

P = var("P")
A, B = atom("a"), atom("b")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (atom("a", P, 42, ANY), "a(P, 42, *)"),
        (atom("a", who=P, at=param("p")), "a(who = P, at = :p)"),
        (atom("a", fields={"name": "x"}), "a(name = 'x')"),
        (atom("a", where="v > 1", name="e"), "e: a{v > 1}"),
        (A.named("e"), "e: a"),
        (seq(A, B), "a ; b"),
        (seq(A, B, selection="next"), "a -> b"),
        (seq(seq(A, B, selection="strict"), A), "(a , b) ; a"),
        (seq(A), "a"),
        (either(A, B), "a | b"),
        (both(A, B), "a & b"),
        (both(A, B, selection="any"), "a &; b"),
        (A.times(3), "a{3}"),
        (A.times(2, 5, greedy=False), "a{2,5}?"),
        (A.times(2, None, selection="any"), "a{2,} any"),
        (A.one_or_more(), "a+"),
        (A.zero_or_more(selection="strict"), "a* strict"),
        (A.optional(), "a?"),
        (seq(A, without(B), A), "a ; without b ; a"),
        (seq(A, B).without(atom("c")), "(a ; b) without c"),
        (A.within(seconds=2), "a within 2 seconds"),
        (A.within(2.5), "a within 2500 ms"),
        (A.within("1 hour 30 minutes"), "a within 90 minutes"),
        (A.within(timedelta(days=1)), "a within 1 day"),
        (A.within(events=7), "a within 7 events"),
        (A.within(param("t")), "a within :t"),
        (A.whenever(), "whenever a"),
        (A.once(), "once a"),
        (A.partition_by("k", "v + 1"), "a partition by k, v + 1"),
        (A.among("v > 1").time("at"), "a among v > 1 time at"),
        (A.after("past last"), "a after match past last"),
        (A.after("first", "a"), "a after match first a"),
        (A.no_reuse().lateness(1).patience("2 s"), "a no reuse lateness 1 s patience 2 s"),
        (A.measures(n="count(a)"), "a measures count(a) as n"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_it_is_the_same_pattern(expression: Expression, text: str) -> None:
    assert expression.written == parse(text)


def test_expressions_never_change() -> None:
    before = A.written
    A.within(1).partition_by("k").named("q")
    assert A.written == before


def test_subsets_and_aliases() -> None:
    expression = seq(atom("Door", name="a"), atom("Door", name="b")).within(1).subset("u", "a", "b").aliases(Door="x")
    pattern = Pattern(expression.measures(n="count(u)"), {"x": "v: i64"}).model
    assert pattern.subsets[0].elements == (0, 1) and pattern.elements[0].channels == ("x",)


@pytest.mark.parametrize(
    "make",
    [
        lambda: atom(""),
        lambda: atom(3),
        lambda: seq(),
        lambda: seq(A, "b"),
        lambda: seq(A.within(1), B),
        lambda: seq(A, B, selection="some"),
        lambda: A.times(1.5),
        lambda: A.times(True),
        lambda: A.within(),
        lambda: A.within(1, events=2),
        lambda: A.within("soon"),
        lambda: A.within(float("nan")),
        lambda: A.within("1 s 2"),
        lambda: A.after("later"),
        lambda: A.after("first"),
        lambda: A.after("next", "a"),
        lambda: var("1x"),
        lambda: seq(A, B).named("q"),
    ],
)
def test_what_is_not_meant_is_refused_at_once(make: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|options"):
        make()


X = {"x": "v: i64?, f: f64"}


def test_functions_name_other_elements_by_their_arguments() -> None:
    rising = seq(atom("x", name="a"), atom("x", name="b", where=lambda e, a: e.f > a.f and e.v > 1)).within(1)
    pattern = Pattern(rising, X)
    text = Pattern("a: x ; b: x{f > a.f and v > 1} within 1 s", X)
    assert pattern.fingerprint == text.fingerprint
    many = atom("x", name="b", where=lambda e, b: e.f > b.prev.f).one_or_more()
    last = atom("x", name="c", where=lambda e, b: count(b) > 2 and sum(b.v) > 3)  # noqa: F821
    same = Pattern("b: x{f > b.prev.f}+ -> c: x{count(b) > 2 and sum(b.v) > 3} within 1 s", X)
    assert Pattern(seq(many, last, selection="next").within(1), X).fingerprint == same.fingerprint


def test_parameters_of_functions_are_the_patterns() -> None:
    one = seq(atom("x", name="a", where=lambda e, *, limit=1: e.f > limit), atom("x", name="b")).within(1)
    assert Pattern(one, X).params == {"limit": 1}
    changed = Pattern(one, X, params={"limit": 2.5}).model
    assert changed.elements[0].condition is not None and changed.elements[0].condition.params == {"limit": 2.5}
    two = seq(one.node and Expression(one.node), atom("x", name="c", where=lambda e, *, limit=2: e.v > limit)).within(1)
    with pytest.raises(PatternError, match="two values"):
        Pattern(two, X)
