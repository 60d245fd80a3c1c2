"""Events of many files in one order, with no more in memory than overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.store.log.ordered_merge import Piece, by_sequence, by_time, ranks
from headwater.store.log.schema import meta_fields
from tests.effort import examples
from tests.store.log.logs import keys

SCHEMA = pa.schema(meta_fields())
Key = tuple[str, str, int, int]


def batch(rows: list[Key]) -> Any:
    columns = zip(*rows, strict=True) if rows else [[], [], [], []]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, pa.int64()).cast(f.type) if f.name == "event_time" else pa.array(c, f.type)
         for c, f in zip(columns, meta_fields(), strict=True)],
        schema=SCHEMA,
    )  # fmt: skip


def row() -> st.SearchStrategy[Key]:
    names = st.sampled_from(["a", "b", "ä", "Z", "\U0001f600", "～"])
    return st.tuples(names, names, st.integers(1, 9), st.integers(0, 30))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.lists(row(), max_size=8), st.integers(0, 3)), max_size=8), st.integers(1, 10))
def test_order_of_time(given: list[tuple[list[Key], int]], rows: int) -> None:
    pieces = [
        Piece(min((key[3] for key in part), default=5) - slack, lambda part=part: batch(part)) for part, slack in given
    ]
    found = list(by_time(pieces, rows=rows))
    every = sorted((key for part, _ in given for key in part), key=lambda key: (key[3], *key[:3]))
    assert keys(found) == every
    assert all(each.num_rows == rows for each in found[:-1])


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=6), max_size=6))
def test_order_of_numbers(given: list[list[int]]) -> None:
    pieces = [Piece(min(part), lambda part=part: batch([("a", "x", seq, 0) for seq in part])) for part in given]
    assert [key[2] for key in keys(by_sequence(pieces, rows=5))] == sorted(seq for part in given for seq in part)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.text(max_size=3)))
def test_ranks_are_in_the_order_of_code_points(texts: list[str]) -> None:
    found = ranks(pa.array(texts, pa.utf8())).tolist()
    order = sorted(set(texts))
    assert found == [order.index(text) for text in texts]


def test_no_more_is_read_than_overlaps() -> None:
    """A thousand pieces in a row: of those not handed out yet, never more than two have been read."""
    loaded = handed = 0
    most = 0

    def load(number: int) -> Any:
        nonlocal loaded, most
        loaded += 100
        most = max(most, loaded - handed)
        return batch([("a", "x", i, 100 * number + i) for i in range(100)])

    pieces = [
        Piece(100 * number, lambda number=number: load(number)) for number in np.random.default_rng(1).permutation(1000)
    ]
    for each in by_time(pieces, rows=100):
        handed += each.num_rows
    assert handed == 100_000
    assert most <= 300
