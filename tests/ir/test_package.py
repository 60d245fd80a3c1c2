"""A program with its parameters as bytes: what comes out is what went in, and equal ones are equal bytes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headwater import Interest
from headwater.errors import ParameterError
from headwater.ir.package import Package

TYPE = "level: f64, network: text, tag: bytes, at: timestamp, count: u64"
VALUES = [
    ("level in :p", {0.5, -0.0, 1e300}),
    ("network in :p", {"b", "a", "", "ü"}),
    ("tag in :p", {b"\xff", b""}),
    ("count in :p", {(1 << 64) - 1, 1 << 63}),
    ("at in :p", {datetime(2020, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)}),
    ("level > :p", 0.25),
    ("network = :p", "x"),
    ("count > :p", (1 << 64) - 1),
    ("at > :p", datetime(2020, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[text for text, _ in VALUES])
def test_sets_and_values_come_out_as_they_went_in(text: str, value: object) -> None:
    interest = Interest(text, TYPE, params={"p": value})
    made = Package.of(interest.program, interest.params, interest.limits.fuel)
    found = Package.loads(made.dumps())
    assert found == made
    program, params = found.open()
    assert params == interest.params
    assert program.body == interest.program.body


@pytest.mark.parametrize("value", [{"a": 1, "b": 2}, {1: 0.5, 2: -1.5}, {b"a": True, b"\xff": False}])
def test_maps_come_out_as_they_went_in(value: dict[object, object]) -> None:
    key = {str: "network", int: "count", bytes: "tag"}[type(next(iter(value)))]
    function = f"lambda e, *, p: e.{key} in p" if key != "count" else "lambda e, *, p: e.small in p"
    interest = Interest(function, TYPE + ", small: i64", params={"p": value}, notation="python")
    _, params = Package.of(interest.program, interest.params, 7, with_text=True).open()
    assert params == {"p": value} == interest.params


def test_equal_interests_are_equal_bytes() -> None:
    names = [f"net-{n}" for n in range(100)]
    made = {
        Package.of(it.program, it.params, 7).dumps()
        for it in (Interest("network in :p", TYPE, params={"p": set(order)}) for order in (names, names[::-1]))
    }
    assert len(made) == 1


def test_values_that_the_program_does_not_have_are_left_out_and_others_are_checked() -> None:
    interest = Interest("level > :p", TYPE, params={"p": 0.5})
    made = Package.of(interest.program, {**interest.params, "q": 1}, 7)
    assert made.params == {"p": 0.5}
    with pytest.raises(ParameterError, match="'p': expected f64, found 'loud'"):
        Package(made.program, {"p": "loud"}, 7).open()
