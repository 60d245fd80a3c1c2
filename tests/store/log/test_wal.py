"""The write-ahead file: everything whole in it is read, whatever happened to the rest, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StoreError
from headwater.store.log import wal
from headwater.store.log.schema import first_table
from headwater.store.log.wal_writer import Writer
from headwater.types import EventType
from tests.effort import EFFORT, examples
from tests.store.log.samples import EVERYTHING, NOON, SIGHTING, everything, record, sighting

Row = tuple[str, int, int, Any]


def header(type: EventType | None = SIGHTING) -> wal.Header:
    return wal.Header("ie.sighting", "lab", 3, "0123", type)


def rows(segment: wal.Segment, **which: Any) -> list[Row]:
    """Source, sequence number, time in microseconds and fields of every event."""
    assert segment.header is not None
    table = first_table(segment.header.type, "ie.sighting")
    made = []
    for batch in segment.batches(table, **which):
        assert batch.schema.equals(table.schema, check_metadata=True)
        batch.validate(full=True)
        times = batch.column("event_time").view("int64").to_pylist()
        for row, time in zip(batch.drop_columns(["event_node", "event_time"]).to_pylist(), times, strict=True):
            made.append((row.pop("event_source"), row.pop("event_seq"), time, row))
    return made


def written(path: Path) -> tuple[bytes, list[tuple[int, list[Row]]]]:
    """A file of all kinds of blocks, and after which size which events are in it."""
    writer = Writer.create(path, header())
    done: list[Row] = []
    states = [(writer.size, list(done))]

    def note(*new: Row) -> None:
        done.extend(new)
        states.append((writer.size, list(done)))

    batch = SIGHTING.to_arrow([sighting(n) for n in range(3)])
    writer.event("a", 1, NOON, record(1))
    note(("a", 1, NOON // 1000, sighting(1)))
    writer.event("b", 1, NOON + 1999, record(2))
    note(("b", 1, NOON // 1000 + 1, sighting(2)))
    writer.batch("c", 5, NOON, batch)
    note(*(("c", 5 + n, NOON // 1000, sighting(n)) for n in range(3)))
    writer.rows("a", np.array([4, 9, 11]), np.array([-5, 7, 6]), batch)
    note(("a", 4, -5, sighting(0)), ("a", 9, 7, sighting(1)), ("a", 11, 6, sighting(2)))
    writer.event("a", 12, 0, record(6))
    note(("a", 12, 0, sighting(6)))
    writer.close()
    return path.read_bytes(), states


def places(states: list[tuple[int, list[Row]]], end: int) -> list[int]:
    """All of a file, in `make soak`; else those about the ends of its blocks, and some of the others."""
    near = {size + more for size, _ in states for more in range(-9, 10)}
    return [at for at in range(end) if EFFORT > 1 or at in near or at % 7 == 0]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "00000003.wal"
    data, states = written(path)
    segment = wal.read(path)
    assert segment.header == header() and segment.torn is None and not segment.damage and segment.end == len(data)
    assert rows(segment) == states[-1][1]
    assert segment.rows == 9
    assert segment.spans == {"a": (1, 12, 5), "b": (1, 1, 1), "c": (5, 7, 3)}
    assert segment.last_times == {"a": 0, "b": NOON // 1000 + 1, "c": NOON // 1000}
    assert rows(segment, ordered=True) == sorted(states[-1][1], key=lambda row: row[:2])
    assert [row[:2] for row in rows(segment, source="a", after=1, upto=11)] == [("a", 4), ("a", 9), ("a", 11)]
    assert [row[:2] for row in rows(segment, source="c", after=5, rows=1)] == [("c", 6), ("c", 7)]
    assert rows(segment, source="nobody") == []


def test_types_with_everything_and_bytes(tmp_path: Path) -> None:
    events = [everything(n) for n in range(50)]
    path = tmp_path / "1.wal"
    writer = Writer.create(path, header(EVERYTHING))
    for n in range(20):
        writer.event("s", n + 1, NOON, EVERYTHING.encode(events[n]))
    batch = EVERYTHING.to_arrow(events[20:])
    writer.batch("s", 21, NOON, batch.slice(0, 10))
    writer.batch("s", 31, NOON, batch.slice(10))
    writer.close()
    found = wal.read(path)
    batches = list(found.batches(first_table(EVERYTHING, "c")))
    made = [event for batch in batches for event in EVERYTHING.arrow_to_raw(batch)]
    assert made == [EVERYTHING.to_raw(event) for event in events]

    raws = [b"", b"x", b"12345678", bytes(range(256)) * 3, b"abc"]
    writer = Writer.create(path, header(None))
    for n, raw in enumerate(raws):
        writer.event("s", n + 1, NOON, raw)
    writer.close()
    assert [row[3]["data"] for row in rows(wal.read(path))] == raws


def test_a_file_cut_anywhere_keeps_every_whole_block(tmp_path: Path) -> None:
    path = tmp_path / "00000003.wal"
    data, states = written(path)
    start = states[0][0]
    for size in places(states, len(data) + 1):
        path.write_bytes(data[:size])
        segment = wal.read(path)
        assert not segment.damage
        if size < start:
            assert segment.header is None and segment.torn is not None and segment.torn.bytes == size
            continue
        end, expected = next(state for state in reversed(states) if state[0] <= size)
        assert rows(segment) == expected
        whole = segment.end  # a source's name may be whole without its event
        assert end <= whole <= size
        assert segment.torn is None if whole == size else segment.torn is not None
        if segment.torn is not None:
            assert (segment.torn.offset, segment.torn.bytes) == (whole, size - whole)
        writer = Writer.resume(segment)
        seq = 100
        writer.event("a", seq, NOON, record(3))
        writer.close()
        assert rows(wal.read(path)) == [*expected, ("a", seq, NOON // 1000, sighting(3))]


def test_changed_bytes_never_give_wrong_events(tmp_path: Path) -> None:
    path = tmp_path / "00000003.wal"
    data, states = written(path)
    everything_written = states[-1][1]
    for at in places(states, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            segment = wal.read(path)
        except StoreError as error:
            assert at < states[0][0] and "headwater log repair" in str(error)
            segment = wal.read(path, instead=header())
            assert rows(segment) == everything_written
            continue
        assert at >= states[0][0]
        assert segment.damage or segment.torn
        last = states[-2][0]
        assert bool(segment.torn) == (at >= last)
        found = rows(segment)
        assert all(row in everything_written for row in found) and len(found) < len(everything_written)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_damage_never_gives_wrong_events(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("wal") / "00000003.wal"
    whole, states = written(path)
    first, everything_written = states[0][0], states[-1][1]
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(first, len(changed)))
        size = data.draw(st.integers(0, 60))
        match data.draw(st.sampled_from(["zeros", "random", "cut", "insert"])):
            case "zeros":
                changed[at : at + size] = bytes(len(changed[at : at + size]))
            case "random":
                changed[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))
            case "cut":
                del changed[at : at + 8 * (size // 8)]
            case _:
                changed[at:at] = data.draw(st.binary(min_size=size, max_size=size))
    path.write_bytes(changed)
    segment = wal.read(path)
    found = rows(segment)
    assert all(row in everything_written for row in found)
    if bytes(changed) != whole and not segment.damage and segment.torn is None:
        assert len(changed) < len(whole)  # whole blocks were cut out at their bounds


def test_a_block_within_an_event_is_no_block(tmp_path: Path) -> None:
    """A file that is logged as bytes and then torn is a torn end, not damage."""
    path, other = tmp_path / "00000003.wal", tmp_path / "other.wal"
    Writer.create(other, wal.Header("ie.sighting", "lab", 2, "0123", None)).event("s", 1, NOON, b"12345678" * 9)
    writer = Writer.create(path, header(None))
    writer.event("s", 1, NOON, b"first")
    size = writer.size
    writer.event("s", 2, NOON, other.read_bytes() * 3)
    writer.close()
    path.write_bytes(path.read_bytes()[:-8])
    segment = wal.read(path)
    assert not segment.damage and segment.torn is not None and segment.torn.offset == size
    assert [row[3]["data"] for row in rows(segment)] == [b"first"]


def test_what_is_no_write_ahead_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(b"PAR1" * 20)
    with pytest.raises(StoreError, match="begins with b'PAR1PAR1'"):
        wal.read(path)
    path.write_bytes(bytes(500))  # its size was on the disk before the rest
    assert wal.read(path).header is None
