"""Arrow that asks for far more than it is: streams and schemas of a few kilobytes that would take gigabytes.

As a program it reads each of them with little memory left, and says what became of it: nothing may be allocated before
it is refused. `bare NAME` gives one of them to Arrow itself.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import FrameError
from headwater.federation.wire.arrow_streams import Bounds, read_schema, read_stream

BOUNDS = Bounds(8 << 20, 10_000, compressed=True)
ROOM = 192 << 20  # bytes
MANY = 40_000


def plain() -> bytes:
    """A stream as a node sends it."""
    return streamed(pa.record_batch({"a": pa.array(range(1000)), "b": pa.array(["x"] * 1000)}))


def streamed(*batches: Any, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


# ── what Arrow's own writer can make ──


def bomb(codec: str) -> bytes:
    """64 MB of zeros, compressed."""
    zeros = pa.array(memoryview(bytes(64 << 20)).cast("q"))
    return streamed(pa.record_batch({"a": zeros}), compression=codec)


def claim() -> bytes:
    """A buffer that says it unpacks to 64 GiB."""
    made = bytearray(streamed(pa.record_batch({"a": pa.array([7] * 1000)}), compression="zstd"))
    at = made.rindex(struct.pack("<q", 8000))
    made[at : at + 8] = struct.pack("<q", 64 << 30)
    return bytes(made)


def long_dictionary() -> bytes:
    """A text of a megabyte, in each of 10,000 rows."""
    indices = pa.array([0] * 10_000, pa.int32())
    return streamed(pa.record_batch({"a": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * (1 << 20)]))}))


def dictionary_bomb() -> bytes:
    values = pa.array(["x" * (64 << 20)])
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)
    return streamed(pa.record_batch({"a": column}), compression="zstd")


def boasting(batch: Any) -> bytes:
    """Rows without end, in columns that have no bytes for them."""
    return streamed(batch).replace(struct.pack("<q", batch.num_rows), struct.pack("<q", 1 << 40))


def no_bytes() -> bytes:
    return boasting(pa.record_batch([pa.nulls(12_345)], ["a"]))


def nothing_in_them() -> bytes:
    return boasting(pa.record_batch([pa.StructArray.from_buffers(pa.struct([]), 12_345, [None])], ["a"]))


def run_ends() -> bytes:
    column = pa.RunEndEncodedArray.from_arrays(pa.array([12_345]), pa.array(["x"]))
    return boasting(pa.record_batch([column], ["a"]))


def batches() -> bytes:
    one = pa.record_batch({"a": pa.array([1])})
    return streamed(*[one] * MANY)


def columns() -> bytes:
    return streamed(pa.record_batch([pa.array([1])] * MANY, [str(at) for at in range(MANY)]))


def notes() -> bytes:
    return streamed(pa.record_batch([pa.array([1])], schema=pa.schema([("a", pa.int64())], {"k": "v" * (5 << 20)})))


# ── what only an enemy makes: one part that is referred to many times ──


class Flat:
    """A flatbuffer, written from its root on: what is referred to comes after it."""

    def __init__(self) -> None:
        self.data = bytearray(4)

    def table(self, slots: Mapping[int, tuple[str, int]]) -> dict[int, int]:
        """A table with these values; where each of them stands."""
        self._pad(8)
        count = max(slots, default=-1) + 1
        names = len(self.data)
        self.data += bytes(4 + 2 * count)
        self._pad(8)
        table = len(self.data)
        self.data += struct.pack("<i", table - names)
        places = {}
        for slot, (form, value) in slots.items():
            self._pad(struct.calcsize(form))
            places[slot] = len(self.data)
            struct.pack_into("<H", self.data, names + 4 + 2 * slot, len(self.data) - table)
            self.data += struct.pack("<" + form, value)
        struct.pack_into("<HH", self.data, names, 4 + 2 * count, len(self.data) - table)
        return {-1: table, **places}

    def vector(self, count: int) -> tuple[int, list[int]]:
        self._pad(4)
        at = len(self.data)
        self.data += struct.pack("<I", count) + bytes(4 * count)
        return at, [at + 4 + 4 * each for each in range(count)]

    def text(self, value: bytes) -> int:
        self._pad(4)
        at = len(self.data)
        self.data += struct.pack("<I", len(value)) + value + b"\0"
        return at

    def refer(self, place: int, to: int) -> None:
        struct.pack_into("<I", self.data, place, to - place)

    def message(self) -> bytes:
        self._pad(8)
        return struct.pack("<II", 0xFFFFFFFF, len(self.data)) + bytes(self.data)

    def _pad(self, size: int) -> None:
        self.data += bytes(-len(self.data) % size)


REF = ("I", 0)


def schema_root(flat: Flat) -> dict[int, int]:
    root = flat.table({0: ("h", 4), 1: ("B", 1), 2: REF, 3: ("q", 0)})
    flat.refer(0, root[-1])
    schema = flat.table({1: REF, 2: REF})
    flat.refer(root[2], schema[-1])
    at, _ = flat.vector(0)
    flat.refer(schema[2], at)
    return schema


def field(flat: Flat, kind: int = 2, more: Mapping[int, tuple[str, int]] | None = None) -> dict[int, int]:
    made = flat.table({0: REF, 2: ("B", kind), 3: REF, 5: REF, **(more or {})})
    flat.refer(made[0], flat.text(b"a"))
    type = flat.table({0: ("i", 64), 1: ("B", 1)} if kind == 2 else {})
    flat.refer(made[3], type[-1])
    return made


def childless(flat: Flat, made: Mapping[int, int]) -> None:
    flat.refer(made[5], flat.vector(0)[0])


def one_column_many_times() -> bytes:
    flat = Flat()
    schema = schema_root(flat)
    at, places = flat.vector(100_000)
    flat.refer(schema[1], at)
    made = field(flat)
    childless(flat, made)
    for place in places:
        flat.refer(place, made[-1])
    return flat.message()


def nested() -> bytes:
    return within(1, 1000)


def doubling() -> bytes:
    """Each field has the next one twice within it: a million of them at depth 20."""
    return within(2, 20)


def within(times: int, depth: int) -> bytes:
    flat = Flat()
    schema = schema_root(flat)
    at, places = flat.vector(1)
    flat.refer(schema[1], at)
    for _ in range(depth):
        made = field(flat, 13)
        for place in places:
            flat.refer(place, made[-1])
        at, places = flat.vector(times)
        flat.refer(made[5], at)
    made = field(flat)
    childless(flat, made)
    for place in places:
        flat.refer(place, made[-1])
    flat.data += bytes(1 << 18)  # Arrow counts tables by the size of a message
    return flat.message()


def one_name_many_times() -> bytes:
    flat = Flat()
    schema = schema_root(flat)
    at, places = flat.vector(4000)
    flat.refer(schema[1], at)
    named = []
    for place in places:
        made = field(flat)
        childless(flat, made)
        flat.refer(place, made[-1])
        named.append(made[0])
    name = flat.text(b"x" * (1 << 18))
    for place in named:
        flat.refer(place, name)
    return flat.message()


def notes_many_times() -> bytes:
    flat = Flat()
    schema = schema_root(flat)
    at, places = flat.vector(1)
    flat.refer(schema[1], at)
    made = field(flat)
    childless(flat, made)
    flat.refer(places[0], made[-1])
    at, places = flat.vector(4000)
    flat.refer(schema[2], at)
    pair = flat.table({0: REF, 1: REF})
    text = flat.text(b"x" * (1 << 18))
    flat.refer(pair[0], text)
    flat.refer(pair[1], text)
    for place in places:
        flat.refer(place, pair[-1])
    return flat.message()


def zone_many_times() -> bytes:
    flat = Flat()
    schema = schema_root(flat)
    at, places = flat.vector(4000)
    flat.refer(schema[1], at)
    zones = []
    for place in places:
        made = flat.table({0: REF, 2: ("B", 10), 3: REF, 5: REF})
        flat.refer(made[0], flat.text(b"a"))
        type = flat.table({0: ("h", 2), 1: REF})
        flat.refer(made[3], type[-1])
        childless(flat, made)
        flat.refer(place, made[-1])
        zones.append(type[1])
    zone = flat.text(b"x" * (1 << 18))
    for place in zones:
        flat.refer(place, zone)
    return flat.message()


def noted_message(kind: int = 1) -> bytes:
    """A message whose own metadata has one long text many times."""
    flat = Flat()
    root = flat.table({0: ("h", 4), 1: ("B", kind), 2: REF, 3: ("q", 0), 4: REF})
    flat.refer(0, root[-1])
    inner = flat.table({1: REF} if kind == 1 else {0: ("q", 1)})
    flat.refer(root[2], inner[-1])
    if kind == 1:
        flat.refer(inner[1], flat.vector(0)[0])
    at, places = flat.vector(4000)
    flat.refer(root[4], at)
    pair = flat.table({0: REF, 1: REF})
    text = flat.text(b"x" * (1 << 18))
    flat.refer(pair[0], text)
    flat.refer(pair[1], text)
    for place in places:
        flat.refer(place, pair[-1])
    return flat.message()


STREAMS: dict[str, Callable[[], bytes]] = {
    "zstd bomb": lambda: bomb("zstd"),
    "lz4 bomb": lambda: bomb("lz4"),
    "claim": claim,
    "long dictionary": long_dictionary,
    "dictionary bomb": dictionary_bomb,
    "no bytes": no_bytes,
    "nothing in them": nothing_in_them,
    "run ends": run_ends,
    "batches": batches,
    "columns": columns,
    "notes": notes,
}
SCHEMAS: dict[str, Callable[[], bytes]] = {
    "one column many times": one_column_many_times,
    "doubling": doubling,
    "nested": nested,
    "one name many times": one_name_many_times,
    "notes many times": notes_many_times,
    "zone many times": zone_many_times,
    "noted message": noted_message,
}


def said(read: Callable[[bytes], Any], data: bytes) -> str:
    try:
        read(data)
        return "taken"
    except FrameError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def limit() -> None:
    """From here on a few megabytes more may be used."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    made = {name: make() for name, make in (STREAMS | SCHEMAS).items()}
    if sys.argv[1:]:
        limit()
        print(said(lambda data: list(pa.ipc.open_stream(data)), made[sys.argv[1]]))
        return
    said(lambda data: read_stream(data, BOUNDS), plain())  # everything is loaded
    limit()
    found = {name: said(lambda data: read_stream(data, BOUNDS), data) for name, data in made.items()}
    found |= {f"{name}, as a schema": said(read_schema, made[name]) for name in SCHEMAS}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
