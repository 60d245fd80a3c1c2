"""A changed byte in the footer of a Parquet file is an error of ours, or changes nothing that matters: it never ends
the process, as an exception does that Arrow's library raises where nobody can catch it."""

from __future__ import annotations

import os
import random
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import StoreError
from headwater.store.log.footers import footer
from headwater.store.log.parquet_footer import Damaged, row_groups
from tests.effort import EFFORT
from tests.federation.nursery import run
from tests.store.log.logs import DAY0, Logged, sighting

ROOT = Path(__file__).parents[3]
READ = """
import random, sys
from pathlib import Path
from headwater.errors import StoreError
from headwater.store.log.footers import footer

path, whole = Path(sys.argv[1]), Path(sys.argv[1]).read_bytes()
first = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
changes = [(at, value) for at in range(first, len(whole)) for value in {whole[at] ^ 1, whole[at] ^ 0x80, 0, 0x1C, 0xFF}]
refused = 0
for at, value in random.Random(7).sample(changes, min(len(changes), int(sys.argv[2]))):
    path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
    try:
        footer(path)
    except StoreError as error:
        assert str(path) in str(error), error
        refused += 1
print(refused)
"""


def test_no_changed_byte_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    log = Logged(tmp_path / "log")
    log.rest("a", [sighting("a", "x", i, DAY0 + i) for i in range(1, 21)], group=10)
    [path] = tmp_path.rglob("*.parquet")
    pq.write_table(pq.read_table(path), path, row_group_size=10)  # without a seal, which notices all of it
    child = run(
        [sys.executable, "-c", READ, os.fspath(path), str(1000 * EFFORT)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) > 100  # as many as are noticed; some say nothing that matters


def test_what_is_whole_is_taken(tmp_path: Path) -> None:
    """Of every kind that a column may have, from several writers' settings."""
    count = 50
    table = pa.table(
        {
            "boolean": pa.array([True, False, None, False, True] * 10),
            "narrow": pa.array(range(count), pa.uint8()),
            "wide": pa.array([2**64 - 1, None] * 25, pa.uint64()),
            "single": pa.array([0.5, float("nan")] * 25, pa.float32()),
            "time": pa.array(range(count), pa.timestamp("ns", "UTC")),
            "money": pa.array(range(count), pa.decimal128(12, 2)),
            "four": pa.array([b"abcd", None] * 25, pa.binary(4)),
            "text": pa.array(["", "x" * 5000] * 25),
            "empty": pa.array([None] * count, pa.int64()),
            "list": pa.array([[1, 2], None] * 25),
            "map": pa.array([[("k", 1)], []] * 25, pa.map_(pa.string(), pa.int64())),
            "nested": pa.array([{"a": 1, "b": [{"c": "x"}]}] * count),
        }
    )
    path = tmp_path / "x.parquet"
    for rows in (count, 7):
        for version, statistics in (("1.0", True), ("2.6", False), ("2.6", ["text"])):
            for part in (table, table.slice(0, 0)):
                pq.write_table(
                    part,
                    path,
                    row_group_size=rows,
                    version=version,
                    write_statistics=statistics,
                    use_deprecated_int96_timestamps=version == "1.0",
                    write_page_index=version == "2.6",
                )
                metadata, found = pq.read_metadata(path), row_groups(path)
                assert [group.rows for group in found] == [
                    metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)
                ]
                for number, group in enumerate(found):
                    for at, chunk in enumerate(group.chunks.values()):
                        column = metadata.row_group(number).column(at)
                        assert (chunk.path, chunk.values, chunk.bytes) == (
                            column.path_in_schema,
                            column.num_values,
                            column.total_uncompressed_size,
                        )
                        noted = column.statistics
                        assert chunk.nulls == (noted.null_count if noted is not None else None)


def test_what_is_no_footer_is_said(tmp_path: Path) -> None:
    chance, path = random.Random(7), tmp_path / "x.parquet"
    for size in range(300):
        data = chance.randbytes(size)
        path.write_bytes(b"PAR1" + data + size.to_bytes(4, "little") + b"PAR1")
        with suppress(Damaged):
            row_groups(path)  # a few are footers of nothing
        path.write_bytes(data)
        with pytest.raises(Damaged):
            row_groups(path)
    nested = b"\x1c" * 100_000
    path.write_bytes(b"PAR1" + nested + len(nested).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(Damaged, match="too deep"):
        row_groups(path)


def test_names_with_dots_are_no_damage(tmp_path: Path) -> None:
    """Others write what they like: a column `a.b` beside `b` in `a`."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [{"b": 1}], "a.b": ["x"]}), path)
    assert [group.rows for group in row_groups(path)] == [1]


def test_what_every_event_has_is_of_its_kind(tmp_path: Path) -> None:
    columns = {"event_node": ["a"], "event_source": ["x"], "event_seq": [1], "event_time": [1]}
    for name, expected in (("event_time", "times"), ("event_seq", "whole numbers"), ("event_node", "text")):
        path = tmp_path / f"{name}.parquet"
        right = {"event_time": pa.array([1], pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table({**columns, **right, name: [0.5]}), path)
        with pytest.raises(StoreError, match=f"expected {expected} in {name}, found: double"):
            footer(path)
