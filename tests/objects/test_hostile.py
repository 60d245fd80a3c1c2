"""Operations that mean nothing, as they may come from bytes: each is refused with its number, and turns go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.errors import ObjectError
from headwater.objects.operations import (
    Administer,
    Create,
    Destroy,
    Guard,
    Invoke,
    Outcome,
    Raise,
    Read,
    Transaction,
    Update,
    pack,
    unpack,
)
from tests.effort import examples

WORDS = st.sampled_from(
    [
        "",
        "a",
        "x",
        "//plant/a",
        "//plant/a.x",
        "//plant/a.inner.y",
        "//plant/b",
        "//other/a",
        "a.inner",
        "Thing",
        "more",
    ]
) | st.text(max_size=8)
TEXTS = WORDS | st.sampled_from(
    ["x + 1", "1 / 0", "x / (x - x)", "inner.y", "x > 1", ":p", "inner", "9e999", "x(", "'"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
GIVEN = st.dictionaries(WORDS, VALUES, max_size=3)
COMPUTED = st.dictionaries(WORDS, TEXTS, max_size=2)
OPERATIONS = st.one_of(
    st.builds(Create, WORDS, WORDS, GIVEN, COMPUTED),
    st.builds(Update, WORDS, GIVEN, COMPUTED, st.booleans()),
    st.builds(Read, WORDS, WORDS),
    st.builds(Invoke, WORDS, WORDS, GIVEN, COMPUTED, WORDS),
    st.builds(Raise, WORDS, WORDS, GIVEN, COMPUTED),
    st.builds(Destroy, WORDS),
    st.builds(Guard, TEXTS),
    st.builds(Administer, WORDS, WORDS, st.binary(max_size=8), WORDS),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with Node("plant", state=folder / "state") as made:
        made.objects.type("Thing", "x: i8, inner: {y: f32, kind: enum(A, B)}?, at: timestamp?, many: u16[]")
        yield made


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(OPERATIONS, max_size=5), st.dictionaries(st.sampled_from(["p", "q"]), VALUES, max_size=2))
@example([Update("//plant/a", {"x": 128})], {})
@example([Update("//plant/a", {}, {"x": "x + 127"}), Update("//plant/a", {}, {"x": "x + 127"})], {})
@example([Update("//plant/a", {"inner": None}), Update("//plant/a", {"inner.y": 1})], {})
@example([Read("//plant/a", "a"), Guard("a.x > :p")], {"p": [1]})
@example([Create("//plant/b", "Thing", {"many": []}, {"x": "1", "inner.y": "2"})], {})
def test_what_means_nothing_is_refused_and_turns_go_on(
    node: Node, operations: list[Any], params: dict[str, Any]
) -> None:
    objects = node.objects
    if "a" not in objects:
        objects.submit(
            Transaction((Create("//plant/a", "Thing", {"x": 1, "inner": {"y": 1, "kind": "A"}, "many": []}),))
        )
    before = objects.get("a")
    try:
        transaction = unpack(pack(Transaction(tuple(operations), params=params)))
    except ObjectError:
        return  # there is text in it that no encoding has
    outcome: Outcome = objects.engine.submit(transaction).wait()
    assert outcome.done == (not outcome.problems)
    if not outcome.done:
        assert all(0 < each.operation <= len(operations) and each.text for each in outcome.problems)
        assert objects.get("a") == before


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60) | VALUES.map(msgspec.msgpack.encode))
def test_bytes_that_are_no_transaction_are_refused(data: bytes) -> None:
    try:
        found = unpack(data)
    except ObjectError as error:
        assert str(error).startswith("transaction: expected")
    else:
        assert isinstance(found, Transaction)
