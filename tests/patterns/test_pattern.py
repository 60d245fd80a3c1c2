"""The face of patterns: notations are told apart, and what was understood can be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from headwater.patterns import model
from headwater.patterns.checker.check import check
from headwater.patterns.description import expression
from headwater.patterns.notation.python import atom, seq
from headwater.patterns.notation.text import parse
from headwater.patterns.pattern import Pattern
from tests.effort import examples
from tests.patterns.strategies import CHANNELS, patterns

DOOR = {"hall.door": "door: i64, who: text, action: text", "repair": "machine: i64", "failure": "machine: i64"}
TAILGATING = (
    "a: hall.door(action = 'in'); b: hall.door{action = 'in' and who != a.who} within 2 seconds partition by door"
)
SQL = """SELECT * FROM failure MATCH_RECOGNIZE (
    PARTITION BY machine ORDER BY at PATTERN (A B) WITHIN INTERVAL '1' HOUR DEFINE B AS B.machine > 0)"""


def test_notations_are_told_apart() -> None:
    assert Pattern(TAILGATING, DOOR).notation == "text"
    assert Pattern(seq(atom("repair"), atom("failure")).within(1), DOOR).notation == "python"
    assert (
        Pattern("a: repair{match_recognize = 1}", {"repair": "match_recognize: i64"}, notation="text").notation
        == "text"
    )
    with pytest.raises(ValueError, match="notation"):
        Pattern(TAILGATING, DOOR, notation="sql")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected text"):
        Pattern(7, DOOR)  # type: ignore[arg-type]


def test_sql_is_told_apart() -> None:
    pattern = Pattern(SQL, {"failure": "machine: i64, at: timestamp"})
    assert pattern.notation == "match_recognize" and pattern.model.after.rule == "past last"


def test_what_was_understood() -> None:
    assert Pattern(TAILGATING, DOOR).description == (
        "a: hall.door ; b: hall.door\n"
        "within 2 seconds, begins at each a, no skip, partitions by door\n"
        "of one event\n"
        "    a  input.action = 'in'\n"
        "    b  input.action = 'in'\n"
        "between events, at\n"
        "    b  a.who != b.who\n"
        "result Match: a, b, match"
    )
    once = Pattern("f: failure{3} without r: repair within 1 hour no reuse after match last f", DOOR)
    assert once.description.splitlines()[:2] == [
        "f: failure{3} without r: repair",
        "within 1 hour, begins at each f, goes on last f, no reuse",
    ]


def test_it_shows_itself() -> None:
    pattern = Pattern(TAILGATING, DOOR)
    assert str(pattern) == TAILGATING and TAILGATING[:20] in repr(pattern)
    assert str(Pattern.loads(pattern.dumps(with_text=False))) == "a: hall.door ; b: hall.door"
    assert Pattern.loads(pattern.dumps()).text == TAILGATING
    assert pattern.cost.worst >= pattern.cost.estimated > 0 and pattern.partition == ("door",)
    assert pattern.channels == ("hall.door",) and pattern.stateful and pattern.kind == "pattern"


def test_equal_meaning_has_equal_fingerprints() -> None:
    one = Pattern("a: repair{machine > 3}; b: repair within 60 seconds", DOOR)
    for text in (
        "a: repair{4 <= machine} ;\n b: repair within 1 minute",
        "(a: repair{machine > 3}; b: repair) within 1 min",
    ):
        assert Pattern(text, DOOR).fingerprint == one.fingerprint
    for text in (
        "a: repair{machine > 3} -> b: repair within 60 seconds",
        "a: repair{machine > 3}; c: repair within 60 seconds",
        "a: repair{machine > 4}; b: repair within 60 seconds",
        "a: repair{machine > 3}; b: repair within 61 seconds",
        "a: repair{machine > 3}; b: repair within 60 seconds after match next",
        "a: repair{machine > 3}; b: repair within 60 seconds no reuse",
        "a: repair{machine > 3}; b: failure within 60 seconds",
    ):
        assert Pattern(text, DOOR).fingerprint != one.fingerprint
    limited = Pattern("a: repair{machine > 3}; b: repair within 60 seconds", DOOR, limits=model.Limits(partitions=3))
    assert limited.fingerprint == one.fingerprint


def test_aliases() -> None:
    pattern = Pattern("Seen(*, W, *)", DOOR, aliases={"Seen": "hall.door"})
    assert pattern.model.elements[0].channels == ("hall.door",) and pattern.model.elements[0].name == "Seen"


def test_limits_are_numbers() -> None:
    with pytest.raises(ValueError, match="partitions"):
        model.Limits(partitions=0)


def _named(pattern: model.Pattern, node: Any) -> Any:
    """The tree with names for elements; what a strict step forbids is of no account."""
    match node:
        case model.Step(selection=selection, forbidden=forbidden):
            return selection, set() if selection == "strict" else {pattern.elements[at].name for at in forbidden}
        case model.Leaf(element=at):
            return pattern.elements[at].name
        case model.Repeat():
            return "repeat", node.least, node.most, node.greedy, _named(pattern, node.part), _named(pattern, node.step)
        case model.Both():
            return "both", _named(pattern, node.parts), _named(pattern, node.step)
        case model.Sequence():
            return "sequence", _named(pattern, node.parts), _named(pattern, node.steps)
        case model.Either():
            return "either", _named(pattern, node.parts)
        case tuple():
            return [_named(pattern, each) for each in node]
    raise AssertionError(node)


@settings(max_examples=examples(60), deadline=None)
@given(patterns(between=False, variables=False))
def test_the_expression_that_is_shown_has_the_same_tree(pattern: model.Pattern) -> None:
    again = check(parse(f"{expression(pattern)} within 100 us"), CHANNELS)
    assert _named(again, again.root) == _named(pattern, pattern.root)
    assert len(again.absent) == len(pattern.absent)
