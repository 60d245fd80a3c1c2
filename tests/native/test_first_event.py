"""The first event does not wait for the interpreter where that would take long: it waits for machine code."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headwater import Interest, Node
from headwater.native import cache
from headwater.native.program import INTERPRETED_BYTES, Native, _submit, needs_code

LOOPS = "for (i = 0; i < 3000; i++) for (j = 0; j < {n}; j++) n = n + input.a;"
LONG = f"{{{{ int i; int j; long n = 0; {LOOPS} return n > 0; }}}}"


@pytest.fixture
def busy() -> Iterator[None]:
    """The compiling thread has other things to do, and goes on when the test is over."""
    cache.clear()
    gate = threading.Event()
    _submit(lambda: gate.wait() and None)
    try:
        yield
    finally:
        gate.set()


def first(interest: Interest, event: dict[str, object]) -> Native:
    native = interest.native()
    assert native.run(interest.type.encode(event)).passed
    return native


def test_a_long_loop_is_compiled_at_once(busy: None) -> None:
    assert first(Interest(LONG.format(n=10), "a: i32"), {"a": 1}).tier == "native"


def test_fuel_counts_as_if_it_were_all_used(busy: None) -> None:
    loop = "{ int n = input.a; while (n != 1) { if (n % 2 == 0) n = n / 2; else n = 3 * n + 1; } return 1; }"
    assert first(Interest(loop, "a: i32"), {"a": 6}).tier == "native"


def test_a_large_record_is_not_interpreted(busy: None) -> None:
    interest = Interest("sum(v) > 10 and v[0] >= 0", "v: i64[]")
    assert first(interest, {"v": [1] * 20}).tier == "interpreter"
    assert first(interest, {"v": [1] * (INTERPRETED_BYTES // 8)}).tier == "native"


def test_state_is_kept_by_what_is_compiled_at_once(busy: None) -> None:
    text = "{ static int seen = 0; int i; seen++; for (i = 0; i < 30000; i++) { } return seen % 2; }"
    interest = Interest(text, "a: i32")
    native = first(interest, {"a": 1})
    assert native.tier == "native"
    assert not native.run(interest.type.encode({"a": 1})).passed
    assert native.counts.evaluated == 2


def test_what_is_short_is_answered_at_once(busy: None) -> None:
    assert first(Interest("sqrt(a) > 1", "a: i32"), {"a": 9}).tier == "interpreter"
    assert not needs_code(Interest(" or ".join(f"a + b = {i}" for i in range(1000)), "a: i32, b: i32").executed)


def test_nine_million_rounds_are_published_at_once() -> None:
    with Node() as node:
        channel = node.channel("t", "a: i32")
        got: list[object] = []
        channel.subscribe(got.append, where=LONG.format(n=3000))
        channel.source().publish(a=1)
        node.flush()
        assert len(got) == 1
