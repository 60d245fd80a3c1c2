"""How large an interest may be: chains of operators are no nesting, and loops nest as deep as the page says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from headwater import Interest
from headwater.errors import InterestRefused
from headwater.explanation import explain
from headwater.ir.analyse import MAX_LOOPS
from headwater.ir.interp import Status
from headwater.ir.nodes import Block, Loop
from headwater.ir.notes import MAX_LEVELS

TYPE = "a: f64, b: i64?"
CHAINS = {
    "predicate": lambda n: " * ".join(["a"] * n) + " = 1",
    "sum": lambda n: " + ".join(["b"] * n) + f" = {n}",
    "ecode": lambda n: "{ return " + " * ".join(["input.a"] * n) + " == 1; }",
    "python": lambda n: "lambda e: " + " * ".join(["e.a"] * n) + " == 1",
}
T = TypeVar("T")


def under(frames: int, work: Callable[[], T]) -> T:
    """With so many calls around it."""
    return work() if not frames else under(frames - 1, work)


def everything(text: str) -> None:
    """All that is done with an interest, by all who do it."""
    interest = Interest(text, TYPE)
    event = {"a": 1.0, "b": 1}
    assert interest.interpret(event).status is Status.PASSED
    assert interest.native().wait().run(interest.type.encode(event)).passed
    assert interest.select([event]).selection.to_pylist() == [True]
    again = Interest.loads(interest.dumps())
    assert again.fingerprint == interest.fingerprint and again.covers(interest)
    assert interest.on("a: f32, b: i32?, c: i8").test({"a": 1.0, "b": 1, "c": 0})
    assert interest.cost.worst > 0 and str(interest) and explain(interest)


@pytest.mark.parametrize("notation", CHAINS)
@pytest.mark.parametrize("factors", [200, MAX_LEVELS - 4])
def test_a_long_product_is_no_nesting(notation: str, factors: int) -> None:
    under(150, lambda: everything(CHAINS[notation](factors)))


@pytest.mark.parametrize("notation", CHAINS)
def test_a_longer_one_is_refused_by_name(notation: str) -> None:
    with pytest.raises(InterestRefused, match=f"more than {MAX_LEVELS} operators in a row"):
        Interest(CHAINS[notation](MAX_LEVELS + 1), TYPE)


def test_what_nests_is_still_nesting() -> None:
    with pytest.raises(InterestRefused, match="nest"):
        Interest("a * (" * 120 + "a" + ")" * 120 + " = 1", TYPE)


def nested(depth: int, rounds: int) -> str:
    body = "n = n + " + " + ".join(f"i{at}" for at in range(depth)) + " + 1;"
    for at in reversed(range(depth)):
        body = f"for (i{at} = 0; i{at} < {rounds if at % 5 == 0 else 1}; i{at}++) {{ {body} }}"
    return "{ long n = 0; " + " ".join(f"int i{at};" for at in range(depth)) + f" {body} return n > input.b; }}"


def bounds(block: Block) -> list[int | None]:
    loops = [stmt for stmt in block if isinstance(stmt, Loop)]
    return [bound for loop in loops for bound in (loop.bound, *bounds(loop.body))]


@pytest.mark.parametrize("depth", [1, 6, 7, 8, 9, MAX_LOOPS])
@pytest.mark.parametrize("rounds", [2, 3, 9])
def test_loops_nest_as_deep_as_the_page_says(depth: int, rounds: int) -> None:
    interest = Interest(nested(depth, rounds), TYPE)
    assert bounds(interest.executed.program.body) == [rounds if at % 5 == 0 else 1 for at in range(depth)]
    event = {"a": 1.0, "b": 3}
    outcome = interest.interpret(event) if rounds < 9 else None
    native = interest.native().wait().run(interest.type.encode(event))
    assert outcome is None or (outcome.status, outcome.faults) == (native.status, native.faults)
    assert interest.select([event]).selection.to_pylist() == [native.passed]


def test_deeper_loops_are_refused() -> None:
    with pytest.raises(InterestRefused, match=f"loops nest deeper than {MAX_LOOPS}"):
        Interest(nested(MAX_LOOPS + 1, 1), TYPE)
