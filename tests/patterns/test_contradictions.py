"""What is refused since it can never match never does: asked so that nothing is known of it, the same finds nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.errors import PatternError
from headwater.patterns.pattern import Pattern
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import CHANNELS, streams

_OPS = st.sampled_from((">", ">=", "=", "!=", "<=", "<"))
_FIRST = ("v > 1", "v <= 2", "v != v", "v = 2", "f > 0.5", "f != f", "not (f > 0.5)", "s > 'x'", "v is null")
_TIMES = ("", "?", "+", "{2}")
NOWHERE = -99  # no event has it


@st.composite
def conditions(draw: st.DrawFn, name: str, earlier: str) -> list[str]:
    """What is asked of one element, each a conjunct; of single events, and against those before."""
    found = draw(st.lists(st.sampled_from(_FIRST), max_size=2))
    for other in draw(st.lists(st.sampled_from(earlier or name), max_size=3)):
        found.append(f"v {draw(_OPS)} {other}.v{draw(st.sampled_from(('', ' + 1', ' - 1')))}")
    return found


@st.composite
def asked(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Of each element: how often it is taken, and its conditions."""
    times = ["", draw(st.sampled_from(_TIMES)), draw(st.sampled_from(_TIMES))]
    return [
        (each, draw(conditions(name, "abc"[:at]))) for at, (name, each) in enumerate(zip("abc", times, strict=True))
    ]


def text(parts: list[tuple[str, list[str]]], condition: str) -> str:
    """The pattern, with each conjunct put as `condition` says."""
    atoms = []
    for name, (times, conjuncts) in zip("abc", parts, strict=True):
        said = " and ".join(condition.format(each) for each in conjuncts)
        atom = f"({name}: a{{{said}}})" if said else f"({name}: a)"
        atoms.append(atom + times)
    return f"{' ; '.join(atoms)} within 100 microseconds"


@settings(max_examples=examples(60), deadline=None)
@given(asked(), streams())
@example([("", ["v = 2"]), ("", ["v < a.v", "v >= 3"]), ("", [])], [])
def test_what_can_never_match_never_does(parts: list[tuple[str, list[str]]], events: list[dict[str, Any]]) -> None:
    try:
        Pattern(text(parts, "{}"), CHANNELS)
    except PatternError as error:
        assert all("never match" in problem.message for problem in error.problems), error
        hidden = Pattern(text(parts, "({} or v = :nowhere)"), CHANNELS, params={"nowhere": NOWHERE})
        assert oracle.matches(hidden.model, events) == []
