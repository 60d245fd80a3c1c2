"""The oracle itself: what must hold of the matches of any pattern, whatever they are."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.patterns import model, written
from headwater.patterns.checker.check import check
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import patterns, streams

_EXAMPLES = settings(max_examples=examples(150), deadline=None)


def _marks(pattern: model.Pattern, events: list[dict[str, Any]]) -> list[Any]:
    return [(match.events, match.deadline) for match in oracle.matches(pattern, events)]


@_EXAMPLES
@given(patterns(), streams())
def test_each_match_is_there_once_and_within_its_window(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    found = oracle.matches(pattern, events)
    times = {(e["channel"], e["source"], e["seq"]): e["time"] for e in events}
    assert len({(match.events, match.deadline) for match in found}) == len(found)
    for match in found:
        taken = [times[origin] for _, origin in match.events]
        assert taken == sorted(taken)
        assert len({origin for _, origin in match.events}) == len(match.events)
        assert pattern.window is not None
        if pattern.window.microseconds is not None:
            assert taken[-1] - taken[0] <= pattern.window.microseconds


@_EXAMPLES
@given(patterns(), streams())
def test_every_rule_after_a_match_leaves_some_of_all_occurrences(
    pattern: model.Pattern, events: list[dict[str, Any]]
) -> None:
    everything = _marks(replace(pattern, after=model.After("no skip"), reuse=True), events)
    assert set(_marks(pattern, events)) <= set(everything)
    past = _marks(replace(pattern, after=model.After("past last"), reuse=True), events)
    assert bool(past) == bool(everything)
    apart = _marks(replace(pattern, after=model.After("no skip"), reuse=False), events)
    used = [origin for events_, _ in apart for _, origin in events_]
    assert len(used) == len(set(used)) and bool(apart) == bool(everything)


@_EXAMPLES
@given(patterns(after=("no skip",)), streams())
def test_what_is_promised_only_adds_matches(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    pattern = replace(pattern, reuse=True)
    everything = oracle.matches(pattern, events)
    before: list[oracle.Match] = []
    for promised in (0, 3, 50, 1_000):
        now = oracle.matches(pattern, events, promised)
        assert set(before) <= set(now) <= set(everything)
        before = now
    assert before == everything


# ── against other definitions ──

_LETTERS = "abc"
_ATOM = st.sampled_from(_LETTERS).map(
    lambda letter: (written.Atom("x", condition=written.Condition(f"s = '{letter}'")), letter)
)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Expressions that take an event, each with the regular expression that says the same of adjacent rows."""
    parts = st.lists(inner, min_size=2, max_size=3)
    strict = parts.map(
        lambda ps: (written.Sequence(tuple(p for p, _ in ps), ("strict",) * (len(ps) - 1)), "".join(t for _, t in ps))
    )
    either = parts.map(lambda ps: (written.Either(tuple(p for p, _ in ps)), f"(?:{'|'.join(t for _, t in ps)})"))
    rounds = st.sampled_from(((1, None, "+"), (2, 2, "{2}"), (1, 3, "{1,3}"), (2, None, "{2,}")))
    repeat = st.tuples(inner, rounds, st.booleans()).map(
        lambda it: (
            written.Repeat(it[0][0], it[1][0], it[1][1], "strict", it[2]),
            f"(?:{it[0][1]}){it[1][2]}{'' if it[2] else '?'}",
        )
    )
    optional = st.tuples(inner, inner, st.booleans()).map(
        lambda it: (
            written.Sequence((written.Repeat(it[0][0], 0, 1, "strict", it[2]), it[1][0]), ("strict",)),
            f"(?:{it[0][1]})?{'' if it[2] else '?'}{it[1][1]}",
        )
    )
    return st.one_of(strict, either, repeat, optional)


@settings(max_examples=examples(150), deadline=None)
@given(st.recursive(_ATOM, _grown, max_leaves=5), st.text(_LETTERS, max_size=9))
def test_adjacent_rows_past_the_last_are_what_a_regular_expression_finds(form: Any, text: str) -> None:
    root, expression = form
    pattern = check(
        written.Pattern(root, written.Window(rows=1_000), after=written.After("past last")), {"x": "s: text"}
    )
    events = [{"channel": "x", "source": "n", "seq": at, "time": at, "fields": {"s": s}} for at, s in enumerate(text)]
    found = [(m.events[0][1][2], m.events[-1][1][2] + 1) for m in oracle.matches(pattern, events)]
    assert found == [match.span() for match in re.finditer(expression, text)]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(_LETTERS), min_size=1, max_size=3), st.text(_LETTERS, max_size=7), st.integers(0, 6))
def test_any_is_every_subsequence_within_the_window(letters: list[str], text: str, length: int) -> None:
    atoms = tuple(
        written.Atom("x", f"e{at}", condition=written.Condition(f"s = '{letter}'")) for at, letter in enumerate(letters)
    )
    window = written.Window(microseconds=length)
    pattern = check(written.Pattern(written.Sequence(atoms, ("any",) * (len(atoms) - 1)), window), {"x": "s: text"})
    events = [{"channel": "x", "source": "n", "seq": at, "time": at, "fields": {"s": s}} for at, s in enumerate(text)]
    found = {tuple(origin[2] for _, origin in match.events) for match in oracle.matches(pattern, events)}
    chosen = combinations(range(len(text)), len(letters))
    assert found == {c for c in chosen if [text[at] for at in c] == letters and c[-1] - c[0] <= length}
