"""Parameters are of the type that they are used as, whatever they begin with."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Interest
from headwater.errors import InterestError, ParameterError
from headwater.interest import MapOf, SetOf
from headwater.ir.interp import Status
from headwater.types.model import F64, I64, U64, Type

TYPE = "u: u64, o: u64?, i: i64, f: f64"
LARGE = (1 << 63) + 5


def event(**fields: Any) -> dict[str, Any]:
    return {"u": 0, "o": None, "i": 0, "f": 0.0} | fields


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        ("f > :p", {"p": 1}, F64),
        ("f * :p > 1", {"p": 1}, F64),
        ("i > :p", {"p": 1}, I64),
        ("i > :p and f > :p", {"p": 1}, I64),
        ("u > :p", {"p": 1}, U64),
        ("u + :p > 5", {"p": 1}, U64),
        ("u > :p", {"p": -1}, I64),
        ("max(u, :p) = 5", {"p": 1}, U64),
        ("coalesce(o, :p) = 5", {"p": 1}, U64),
        ("u in :p", {"p": {1}}, U64),
        ("u in :p", {"p": SetOf(int)}, U64),
        ("u in :p", {"p": {-1}}, I64),
        ("f in :p", {"p": {1}}, F64),
        ("f in :p or i in :p", {"p": {1}}, F64),
        (":p[u] = 1", {"p": {1: 1}}, U64),
        (":p[u] = 1", {"p": MapOf(int, int)}, U64),
        ("{ return input.f > p; }", {"p": 1}, F64),
        ("lambda e, *, p=1: e.f > p", {}, F64),
        ("lambda e, *, p=1: e.f > p", {"p": 0.5}, F64),
    ],
)
def test_the_type_follows_from_the_use(text: str, params: dict[str, Any], expected: Type) -> None:
    (decl,) = Interest(text, TYPE, params=params).program.params
    assert decl.type == expected


def test_new_values_may_be_all_that_the_use_allows() -> None:
    limit = Interest("f > :limit", TYPE, params={"limit": 1})
    native = limit.native()
    native.set_params(limit=0.5)
    assert native.test(limit.type.encode(event(f=0.7)))
    known = Interest("u not in :known", TYPE, params={"known": {1}}).native()
    known.set_params(known={LARGE})
    assert not known.test(limit.type.encode(event(u=LARGE)))
    prices = Interest("f < :prices[u]", TYPE, params={"prices": {1: 5}}).native()
    prices.set_params(prices={LARGE: 0.5})
    assert prices.test(limit.type.encode(event(u=LARGE, f=0.25)))
    with pytest.raises(ParameterError, match="expected i64"):
        Interest("i > :limit", TYPE, params={"limit": 1}).native().set_params(limit=0.5)


def test_a_key_that_a_map_cannot_hold_is_not_in_it_and_no_fault() -> None:
    interest = Interest(":m[u] = 5 or u in :m", TYPE, params={"m": {-1: 5, 3: 5}})
    assert interest.program.params[0].type == I64
    outcome = interest.interpret(event(u=LARGE))
    assert (outcome.status, int(outcome.faults)) == (Status.UNDECIDED, 0)
    assert interest.test(event(u=3))


@pytest.mark.parametrize(
    "text",
    [
        "coalesce(o, i) = 1", "coalesce(o, -1) = 1", "min(u, i) = 1", "max(i, 5, u) = 1",
        "case when f > 1 then u else i end = 1", "coalesce(i, 18446744073709551615) = 1",
        "{ return (input.f > 1 ? input.u : input.i) == 1; }", "lambda e: max(e.u, e.i) == 1",
    ],
)  # fmt: skip
def test_signed_and_unsigned_have_no_common_type(text: str) -> None:
    with pytest.raises(InterestError, match="mix signed and unsigned integers"):
        Interest(text, TYPE)


@pytest.mark.parametrize(
    "text",
    [
        "coalesce(o, 1) = 1", "min(u, 5) = 1", "max(5, 6, u) = 1", "coalesce(o, f) = 1",
        "coalesce(cast(o as i64), -1) = 1",
        "lambda e: max(int(e.u), e.i) == 1", "{ return ((long) input.u < input.i ? (long) input.u : input.i) == 1; }",
    ],
)  # fmt: skip
def test_literals_and_casts_have(text: str) -> None:
    Interest(text, TYPE)


def test_a_parameter_that_cannot_be_unsigned_does_not_mix_either() -> None:
    with pytest.raises(InterestError, match="mix signed and unsigned integers"):
        Interest("coalesce(o, :p) = 1", TYPE, params={"p": -1})
