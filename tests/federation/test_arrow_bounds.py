"""Arrow of other nodes is read within bounds: what asks for too much is refused before memory is taken for it."""

from __future__ import annotations

import json
import random
import re
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headwater.federation
from headwater.errors import FederationError, FrameError
from headwater.federation.logs.union import Union
from headwater.federation.moving.source_past import append_page
from headwater.federation.wire import frames as wire
from headwater.federation.wire.arrow_streams import Bounds, read_schema, read_stream
from headwater.federation.wire.log_requests import ChannelLogged
from headwater.logs import Log
from headwater.store.log.handed_past import HandedPast
from headwater.store.log.schema import TYPE_KEY
from headwater.types import event_type
from headwater.types import model as m
from tests.effort import rounds
from tests.federation import hostile_arrow as hostile
from tests.federation.nursery import run

COUNT = event_type(m.Record("test.Count", (m.Field("n", m.I64, False),)))


def test_a_few_kilobytes_do_not_take_gigabytes() -> None:
    """In a process that has little memory left. Arrow that runs out of it may end its process without an error."""
    made = run(
        [sys.executable, "-m", "tests.federation.hostile_arrow"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    assert set(found) > set(hostile.STREAMS | hostile.SCHEMAS)
    assert {name: text for name, text in found.items() if not text.startswith("refused: expected ")} == {}


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_nodes_send_is_read(compression: str | None) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None] * 100, pa.int32()), pa.array(["no", "yes"]))
    lists = pa.array([[words[0].as_py()], [], ["x", "y"]] * 100)
    batch = pa.record_batch({"a": pa.array(range(300)), "b": words, "c": lists, "d": pa.array([{"e": 1.5}] * 300)})
    data = hostile.streamed(batch, compression=compression)
    [found] = read_stream(memoryview(b"x" + data)[1:], Bounds(1 << 20, 300, compressed=compression is not None))
    assert found.equals(batch)
    assert read_schema(batch.schema.serialize().to_pybytes()).equals(batch.schema, check_metadata=True)
    for tight in (Bounds(100, 300, compressed=True), Bounds(1 << 20, 299, compressed=True)):
        with pytest.raises(FrameError, match="expected at most"):
            read_stream(data, tight)
    if compression is not None:
        with pytest.raises(FrameError, match="expected plain Arrow buffers"):
            read_stream(data, Bounds(1 << 20, 300))


def test_what_is_no_stream_is_refused() -> None:
    plain, bounds = hostile.plain(), Bounds(1 << 20, 1000, 9)
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    for end in range(1, len(plain) - 8):
        with pytest.raises(FrameError, match="expected"):
            assert read_stream(plain[:end], bounds) == []  # a schema alone is a stream without rows
            raise FrameError("expected rows")
    for data in (plain + b"x", schema + plain, plain[-8:] + plain, bytes(100), b"\xff" * 100):
        with pytest.raises(FrameError, match="expected"):
            read_stream(data, bounds)
    for data in (plain[len(schema) :], b"", bytes(100)):
        with pytest.raises(FrameError, match="expected"):
            read_schema(data)


def test_mutated_streams_are_read_or_refused() -> None:
    chance = random.Random(18)
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["no", "yes"]))
    batch = pa.record_batch({"a": pa.array([1, None]), "b": words, "c": pa.array([[1], []])})
    for compression in (None, "lz4", "zstd"):
        whole = hostile.streamed(batch, compression=compression)
        for _ in range(rounds(500, 20_000)):
            data = bytearray(whole)
            for _ in range(chance.choice((1, 1, 2, 5))):
                at, size = chance.randrange(len(data)), chance.choice((1, 2, 4, 8))
                value = chance.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), chance.getrandbits(8 * size)))
                data[at : at + size] = value.to_bytes(size, "little")
            try:
                for found in read_stream(bytes(data), Bounds(1 << 16, 100, compressed=True)):
                    found.to_pylist()
            except FrameError:
                pass
            except (ValueError, ArithmeticError, pa.ArrowException):  # a time that Python does not have
                pass


# ── where they are read ──


@pytest.mark.parametrize("name", hostile.STREAMS | hostile.SCHEMAS)
def test_a_past_that_is_too_much_is_not_written(tmp_path: Path, name: str) -> None:
    past = HandedPast(Log(tmp_path), "lab")
    says = "resume_source: expected events as Arrow, found: expected"
    with pytest.raises(FederationError, match=says), past.opened("c", COUNT) as log:
        append_page(log, "key", (hostile.STREAMS | hostile.SCHEMAS)[name](), 0, 5)
    with past.opened("c", COUNT) as log:
        assert log.last("key") == 0
    past.stop()


@pytest.mark.parametrize("name", hostile.SCHEMAS)
def test_a_log_with_columns_that_are_too_much(name: str) -> None:
    listed = ChannelLogged("c", "id", None, hostile.SCHEMAS[name](), [])
    with pytest.raises(FederationError, match="node lab: expected the columns of a log, found: expected"):
        Union.of("c", {"lab": listed})


def test_the_type_within_the_columns_of_a_log_is_not_looked_at() -> None:
    """It could be as large; the type is sent beside it."""
    schema = pa.schema([("n", pa.int64())], {b"headwater.name": b"test.Count", TYPE_KEY: b"no base64"})
    made = Union.of("c", {"lab": ChannelLogged("c", "id", None, schema.serialize().to_pybytes(), [])})
    assert made.schema.names[-1] == "n"


def test_a_frame_whose_message_has_metadata_is_refused() -> None:
    frame = struct.pack("<BIBIQQqI", 3, 1, 8, 0, 1, 1, 1, 1) + hostile.noted_message(3)
    made = wire.decode(frame)
    assert isinstance(made, wire.Batch)
    with pytest.raises(FrameError, match="batch: expected an Arrow message without metadata"):
        made.batch(COUNT.schema)


def test_nobody_reads_arrow_of_others_in_another_way() -> None:
    opened = re.compile(r"ipc\.(open_|read_)|RecordBatchStreamReader|MessageReader")
    room = Path(headwater.federation.__file__).parent
    found = {path.relative_to(room).as_posix() for path in room.rglob("*.py") if opened.search(path.read_text())}
    assert found == {"wire/arrow_streams.py", "wire/batch.py"}
