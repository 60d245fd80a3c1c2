"""The serial form: what comes out is what went in, and bytes of an enemy are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, ParameterError, PatternError, SerialError
from headwater.interest import Interest
from headwater.patterns import model
from headwater.patterns.pattern import Pattern
from headwater.patterns.serial import MAGIC, dumps, loads
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.fixtures import cases
from tests.patterns.strategies import patterns

CHANNELS = {"x": "v: i64?, f: f64, s: text?", "y": "v: i64?, f: f64"}
RICH = """a: x(s = S, v = 1) -> b: x{v > coalesce(b.prev.v, a.v) and f > :limit}+ ; without n: y{v = a.v} ;
    (c: x(s = S) & d: y{v > c.v}) within :t partition by v, f after match last b measures sum(b.f) as total, c as c"""


@pytest.fixture(scope="module")
def rich() -> bytes:
    return Pattern(RICH, CHANNELS, params={"limit": 0.5, "t": 3}).dumps()


def form(data: bytes) -> Any:
    return msgspec.msgpack.decode(data[len(MAGIC) :])


def bytes_of(form: Any) -> bytes:
    return MAGIC + msgspec.msgpack.encode(form)


@settings(max_examples=examples(60), deadline=None)
@given(patterns())
def test_it_comes_back_as_it_was(pattern: model.Pattern) -> None:
    back = loads(dumps(pattern))
    assert back.fingerprint == pattern.fingerprint
    assert dumps(back) == dumps(pattern)
    assert (back.root, back.absent, back.variables, back.window) == (
        pattern.root, pattern.absent, pattern.variables, pattern.window)  # fmt: skip
    assert back.output.record == pattern.output.record
    assert [e.multiple for e in back.elements] == [e.multiple for e in pattern.elements]


def test_what_comes_back_means_the_same() -> None:
    for case in cases():
        back = loads(case.pattern.dumps(), case.pattern.params)
        assert oracle.matches(back, case.events, case.promised) == oracle.matches(
            case.pattern.model, case.events, case.promised
        )


def test_parameters_travel_beside_it(rich: bytes) -> None:
    back = Pattern.loads(rich, {"limit": 0.25, "t": 7})
    assert back.model.window == model.Window(7_000_000, None, "t") and back.text == RICH
    assert back.fingerprint == Pattern(RICH, CHANNELS, params={"limit": 0.5, "t": 3}).fingerprint
    for params in (
        {},
        {"limit": 1.0},
        {"limit": 1.0, "t": "x"},
        {"limit": "x", "t": 1},
        {"limit": 1.0, "t": 1, "q": 2},
    ):
        with pytest.raises(ParameterError):
            Pattern.loads(rich, params)


def test_it_is_no_interest_and_no_interest_is_one(rich: bytes) -> None:
    with pytest.raises(SerialError):
        Interest.loads(rich)
    with pytest.raises(SerialError, match="first bytes"):
        Pattern.loads(Interest("v > 1", "v: i64").dumps())


def test_what_the_owner_does_not_allow_is_refused() -> None:
    data = Pattern("x{s like '%a%'}", CHANNELS).dumps()
    with pytest.raises(PatternError, match="refused"):
        Pattern.loads(data, limits=model.Limits(worst=10))


def _changed(form: Any, path: tuple[int, ...], value: Any) -> Any:
    if not path:
        return value
    return [_changed(part, path[1:], value) if at == path[0] else part for at, part in enumerate(form)]


LEAF, NEVER = [0, 0], [1, [[0, 0], [0, 0]], [["any", []]]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((0,), 2),
        ((1,), ""),
        ((2, 0), b""),
        ((3,), []),
        ((3, 0, 1), 9),
        ((3, 0, 2), None),  # a key for one channel only
        ((4, 0, 0), "not a name"),
        ((4, 0, 0), "b"),  # twice
        ((4, 0, 2), ["y"]),  # a channel of another type
        ((4, 0, 2), []),
        ((4, 0, 4), None),  # a variable that may be missing
        ((4, 0, 5), True),  # a negative element that is taken
        ((4, 2, 5), False),
        ((5,), [0, 99]),
        ((5,), [0, -1]),
        ((5,), [1, [LEAF], []]),
        ((5,), [1, [LEAF, LEAF], []]),
        ((5,), [1, [LEAF, LEAF], [["some", []]]]),
        ((5,), [1, [LEAF, LEAF], [["any", [0]]]]),
        ((5,), [4, LEAF, 0, 0, ["any", []], True]),
        ((5,), [4, LEAF, 2, 1, ["any", []], True]),
        ((5,), [4, LEAF, 10**9, None, ["any", []], True]),
        ((5,), [4, [4, LEAF, 900, 900, ["any", []], True], 900, 900, ["any", []], True]),
        ((5,), [7]),
        ((5,), []),
        ((6,), [0]),
        ((7, 0, 0), []),
        ((7, 0, 0), [0]),  # of an element that comes before what is read
        ((8, 0, 1), [[0, "nix"]]),
        ((8, 0, 1), []),
        ((9,), [["u", []]]),
        ((9,), [["a", [0]]]),
        ((9,), [["u", [0, 4]]]),
        ((10, 0), [None, None, None]),
        ((10, 0), [-1, None, None]),
        ((10, 0), [1 << 62, None, None]),
        ((10, 1), "later"),
        ((10, 2), "past last"),
        ((10, 3), []),
        ((10, 4), 1),
        ((10, 5), -1),
        ((10, 6), "soon"),
        ((11,), b"x"),
        ((13,), 3),
    ],
)
def test_an_enemy_cannot_say_what_no_text_can(rich: bytes, path: tuple[int, ...], value: Any) -> None:
    with pytest.raises((SerialError, PatternError)):
        loads(bytes_of(_changed(form(rich), path, value)), {"limit": 0.5, "t": 3})


def test_interests_are_swapped_in_vain(rich: bytes) -> None:
    """An interest of another place is of another type."""
    whole = form(rich)
    places = [(3, 0, 2), (4, 0, 4), (7, 0, 1), (11,)]
    for one in places:
        for other in places:
            if one != other:
                taken = whole
                for at in other:
                    taken = taken[at]
                with pytest.raises((SerialError, PatternError)):
                    loads(bytes_of(_changed(whole, one, taken)), {"limit": 0.5, "t": 3})


def test_deep_and_large_forms_are_refused_quickly() -> None:
    tree: Any = LEAF
    for _ in range(400):
        tree = [2, [tree, LEAF]]
    small = form(Pattern("x", CHANNELS).dumps())
    deep = bytes_of(_changed(small, (5,), tree))
    large = MAGIC + b"\xc0" * (9 << 20)
    for data in (deep, large, MAGIC + b"\x91" * 100_000, MAGIC + b"\xdd\xff\xff\xff\xff", MAGIC, b""):
        with pytest.raises(SerialError):
            loads(data)
    with pytest.raises(SerialError):
        loads("text")  # type: ignore[arg-type]


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_changed_bytes_are_a_pattern_or_refused(rich: bytes, data: st.DataObject) -> None:
    changed = bytearray(rich)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(0, len(changed))) if data.draw(st.booleans()) else len(changed)
    try:
        pattern = loads(bytes(changed[:size]), {"limit": 0.5, "t": 3})
    except HeadwaterError:
        return
    assert loads(dumps(pattern), {"limit": 0.5, "t": 3}).fingerprint == pattern.fingerprint


def _places(form: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    inner = (
        [place for at, part in enumerate(form) for place in _places(part, (*path, at))] if type(form) is list else []
    )
    return [path, *inner]


_ANYTHING = [None, 0, 1, -1, 2**63 - 1, "", "a", "b", b"", [], [[]], True, 3.5, "any", "strict"]


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_changed_parts_are_a_pattern_or_refused(rich: bytes, data: st.DataObject) -> None:
    whole = form(rich)
    places = _places(whole)[1:]
    path, other = data.draw(st.sampled_from(places)), data.draw(st.sampled_from(places))
    taken = whole
    for at in other:
        taken = taken[at]
    value = data.draw(st.sampled_from([taken, *_ANYTHING]))
    try:
        pattern = loads(bytes_of(_changed(whole, path, value)), {"limit": 0.5, "t": 3})
    except HeadwaterError:
        return
    assert loads(dumps(pattern), {"limit": 0.5, "t": 3}).fingerprint == pattern.fingerprint
