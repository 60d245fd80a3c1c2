"""Large programs: compiled for batches in time that grows with their size, by another thread than the publisher's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import Interest, Node
from headwater.native import cache
from headwater.native.batch import batch_source, is_large, passes_for
from headwater.native.program import _submit

TERMS = 800


def many(n: int) -> str:
    return " or ".join(f"a * {i} = {2 * i + 7 * (i % 3)}" for i in range(1, n + 1))


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """The compiling thread waits until it is let go."""
    cache.clear()
    gate = threading.Event()
    _submit(lambda: gate.wait() and None)
    try:
        yield gate
    finally:
        gate.set()


def rows(interest: Interest) -> Any:
    return interest.type.to_arrow([{"a": i} for i in range(-20, 40)])


def test_small_programs_are_vectorised_and_large_ones_are_not() -> None:
    small, large = (Interest(many(n), "a: i32").executed for n in (10, TERMS))
    assert passes_for(batch_source(small)[0]) == "all" and not is_large(small.program)
    assert passes_for(batch_source(large)[0]) == "straight" and is_large(large.program)


def test_a_batch_does_not_wait_for_the_code_for_batches(held: threading.Event) -> None:
    interest = Interest(many(TERMS), "a: i32")
    native = interest.native()
    batch = rows(interest)
    expected = [bool(interest.interpret({"a": i}).passed) for i in range(-20, 40)]
    assert native.batch(batch).selection.to_pylist() == expected
    assert native._batch is None
    held.set()
    assert native._batch_future is not None
    native._batch_future.result()
    assert native.batch(batch).selection.to_pylist() == expected
    assert native._batch is not None
    assert native.counts.evaluated == 2 * len(expected) and native.counts.passed == 2 * sum(expected)


def test_state_goes_on_from_the_code_for_records_to_that_for_batches(held: threading.Event) -> None:
    sums = " ".join(f"n = n + (input.a == {i});" for i in range(300))
    interest = Interest(f"{{ static int n = 0; {sums} return n % 2 == 0; }}", "a: i32")
    native, batch = interest.native(), rows(interest)
    states = interest.native()
    expected = [states.run(record).passed for _ in range(2) for record in interest.type.arrow_to_records(batch)]
    assert is_large(native.program)
    first = native.batch(batch).selection.to_pylist()
    held.set()
    assert native._batch_future is not None
    native._batch_future.result()
    assert first + native.batch(batch).selection.to_pylist() == expected


def test_a_large_interest_on_a_published_batch(held: threading.Event) -> None:
    with Node() as node:
        channel = node.channel("t", "a: i32")
        got: list[Any] = []
        wanted = Interest(many(TERMS), "a: i32")
        channel.subscribe(got.append, where=wanted)
        source = channel.source()
        source.publish_many(source.channel.type.to_arrow([{"a": i} for i in range(30)]))
        node.flush()
        assert [event.a for event in got] == [i for i in range(30) if wanted.test({"a": i})]
