"""The native encoder and decoder against those of `types`: the same bytes, the same events, the same errors."""

from __future__ import annotations

import enum
import gc
import math
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DecodeError, EncodeError
from headwater.native import cache
from headwater.native.python.codec import LARGEST, faithful, fast_decoder, fast_encoder
from headwater.types import Array, Event, EventType, event_type, f32, i8, i32, u8, u16, u32, u64
from headwater.types import model as m
from tests.effort import examples
from tests.strategies import NAMES, ODD_NAMES, raw_events, raw_values, records, records_with_events

NOON = datetime(2026, 3, 4, 12, 30, 15, 123456, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    AZURE = "blue"  # noqa: PIE796 - another name of BLUE


class Code(enum.IntEnum):
    LOW = -5
    HIGH = 2**31 - 1


class Text(str):
    pass


class Whole(int):
    pass


class Moment(datetime):
    pass


class Point(Event):
    x: float
    y: i8 | None = None


class Sighting(Event):
    badge: u32
    network: str
    level: float
    seen: datetime
    near: bool | None = None


class Everything(Event):
    n8: i8
    n64: int
    u16: u16
    u64: u64
    f32: f32
    data: bytes
    colour: Colour | None
    code: Code
    point: Point
    maybe: Point | None
    words: list[str]
    points: tuple[Point, ...]
    grid: Array[f32, 2, 3]
    names: Array[str, 2]
    rows: list[list[u8]]


SIGHTING = Sighting(70_000, "ORL-Net#1", 0.25, NOON, True)
EVERYTHING = Everything(
    -128, 2**63 - 1, 65535, 2**64 - 1, 1.5, b"\0\xff", Colour.BLUE, Code.LOW, Point(1.0), Point(2.0, 3),
    ["a", "", "é😀"], (Point(4.0, 5), Point(-0.0)), ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), ("x", "yz"),
    [[1, 2], [], [255]],
)  # fmt: skip


def encoder(kind: Any) -> Callable[[object], bytes | None]:
    found = fast_encoder(event_type(kind))
    assert found is not None
    return found


def form(value: Any) -> Any:
    """A value with the types of everything in it, comparable also where there is NaN."""
    if isinstance(value, Event):
        return type(value), [form(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list | tuple):
        return type(value), [form(item) for item in value]
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else struct.pack("<d", value)
    return type(value), value


def outcome(decode: Callable[[Any], Any], data: Any) -> Any:
    try:
        return form(decode(data))
    except Exception as error:
        return type(error), str(error)


def encoded(type: EventType, event: Any) -> bytes | None:
    try:
        return type.encode(event)
    except EncodeError:
        return None


# ── the ordinary case ──


@settings(deadline=None, max_examples=examples(120))
@given(records_with_events(kinds=records(names=NAMES + ODD_NAMES)))
def test_events_of_any_type_have_the_same_record_and_come_back_the_same(case: Any) -> None:
    record, raws = case
    type = EventType(record)
    encode, decode = fast_encoder(type), fast_decoder(type)
    assert encode is not None
    for raw in raws:
        event, data = type.from_raw(raw), type.encode(raw)
        assert encode(event) == data
        assert form(decode(data)) == form(type.decode(data))


@pytest.mark.parametrize("event", [SIGHTING, EVERYTHING], ids=lambda e: type(e).__name__)
def test_a_declared_class(event: Event) -> None:
    type = event_type(event)
    data = type.encode(event)
    assert encoder(type)(event) == data
    assert fast_decoder(type)(data) == event
    assert form(fast_decoder(type)(data)) == form(type.decode(data))


def test_times_from_the_first_to_the_last() -> None:
    class Tick(Event):
        at: datetime

    type, encode, decode = event_type(Tick), encoder(Tick), fast_decoder(event_type(Tick))
    times = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    for year in (1, 4, 100, 400, 1600, 1899, 1900, 1968, 1969, 1970, 1972, 1999, 2000, 2001, 2023, 2024, 2100, 9999):
        for month, day in ((1, 1), (1, 31), (2, 28), (3, 1), (12, 31)):
            times += [datetime(year, month, day, tzinfo=UTC), datetime(year, month, day, 23, 59, 59, 999_999, UTC)]
    times += [datetime(year, 2, 29, 1, 2, 3, 4, UTC) for year in (4, 400, 1600, 1972, 2000, 2024)]
    for time in times:
        data = encode(Tick(time))
        assert data == type.encode(Tick(time))
        found = decode(data).at
        assert found == time
        assert found.tzinfo is UTC


@pytest.mark.parametrize("size", [1001, 2049, 100_001, 1_000_001])
def test_what_follows_a_field_that_has_filled_the_memory_exactly(size: int) -> None:
    """Its padding, and the next list: the memory may be elsewhere by then."""

    class Filled(Event):
        text: str
        numbers: list[int]
        more: str

    for rest in range(9):
        given = Filled("x" * (size + rest), [1, 2], "y" * rest)
        record = fast_encoder(event_type(Filled))(given)
        assert record == event_type(Filled).encode(given)


def test_records_that_outgrow_the_stack() -> None:
    class Long(Event):
        text: str
        words: list[str]
        numbers: list[int]
        data: bytes | None

    type, encode, decode = event_type(Long), encoder(Long), fast_decoder(event_type(Long))
    for size in (0, 1, 100, 900, 1000, 1024, 5000, 100_000):
        event = Long("é" * size, ["w" * (size % 13)] * (size // 10), list(range(size)), b"z" * size)
        data = type.encode(event)
        assert encode(event) == data
        assert decode(data) == event
        assert encode(Long("é" * size, ["w"] * size, [*range(size), 1 << 64], None)) is None


# ── the unusual, and the wrong ──

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 255, 256, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**400, Whole(3),
    0.0, -0.0, 0.5, 3.5e38, -3.5e38, 1e-50, math.nan, -math.nan, math.inf, -math.inf,
    "", "a", "é😀", "\0", "\ud800", "a\udfff", Text("t"), b"", b"\0\xff", bytearray(b"x"), memoryview(b"y"),
    NOON, NOON.replace(tzinfo=None), NOON.replace(fold=1), NOON.astimezone(timezone(timedelta(hours=2))),
    NOON.replace(tzinfo=ZoneInfo("UTC")), NOON.replace(tzinfo=timezone(timedelta(0))),
    Moment(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))), NOON.date(),
    np.int8(1), np.uint64(2**64 - 1), np.float32(0.1), np.float64(0.1), np.bool_(True), np.str_("n"), np.bytes_(b"n"),
    np.datetime64("2026-01-01"), np.array([1.0, 2.0]), np.array([[1, 2], [3, 4]], np.int32), np.array(1),
    Colour.RED, Colour.AZURE, Code.HIGH, "RED", [], (), [1], (1.0,), [None], ["a", 1], [[1], [2]], ((1, 2), (3, 4)), {},
    {"a": 1}, Point(1.0), Point(1.0, 300), Point("x"), SIGHTING, object(), int, ...,
]  # fmt: skip


def odd_values(binding: Any) -> st.SearchStrategy[Any]:
    """A good value, a good one but for something inside it, or nothing of the kind."""
    kind = binding.type
    strategies: list[st.SearchStrategy[Any]] = [st.sampled_from(ODD)]
    match kind:
        case m.Record():
            strategies.append(odd_events(binding))
        case m.Enum(members=members):
            strategies.append(st.sampled_from([*binding.members, *(code for _, code in members)]))
        case m.Array() | m.List():
            items = st.lists(odd_values(binding.parts[0]), max_size=3)
            strategies += [raw_values(kind), items, items.map(tuple)]
        case _:
            strategies.append(raw_values(kind))
    return st.one_of(*strategies, *strategies[1:])


def odd_events(binding: Any) -> st.SearchStrategy[Any]:
    values = st.tuples(*map(odd_values, binding.parts))
    return values.map(lambda given: binding.cls(**dict(zip(binding.attrs, given, strict=True))))


@settings(deadline=None, max_examples=examples(250))
@given(records(names=NAMES).map(EventType), st.data())
def test_what_is_taken_is_encoded_alike_and_what_is_wrong_is_not_taken(type: EventType, data: st.DataObject) -> None:
    encode = fast_encoder(type)
    assert encode is not None
    for event in data.draw(st.lists(odd_events(type.binding), min_size=1, max_size=5)):
        found = encode(event)
        assert found is None or found == encoded(type, event)


@pytest.mark.parametrize("kind", [Sighting, Everything])
def test_one_odd_value_in_each_field(kind: Any) -> None:
    type, encode, decode = event_type(kind), encoder(kind), fast_decoder(event_type(kind))
    good = SIGHTING if kind is Sighting else EVERYTHING
    for name in kind.__struct_fields__:
        for value in ODD:
            event = msgspec.structs.replace(good, **{name: value})
            found = encode(event)
            assert found is None or found == encoded(type, event), (name, value)
            if found is not None and kind is Sighting:
                assert form(decode(found)) == form(event)  # it is faithful


def test_every_integer_type_at_its_ends() -> None:
    for scalar in m.INTEGERS:
        type = EventType(m.Record("N", (m.Field("n", scalar),)))
        encode, decode = fast_encoder(type), fast_decoder(type)
        assert encode is not None
        low, high = scalar.range
        for number in (low, low + 1, 0, 1, high - 1, high):
            assert encode(type.cls(number)) == type.encode({"n": number})
            assert decode(type.encode({"n": number})).n == number
        for number in (low - 1, high + 1, -(2**64), 2**65, True, 1.0):
            assert encode(type.cls(number)) is None


def test_only_instances_of_the_class_itself() -> None:
    class Other(Event, name="Sighting"):
        badge: u32
        network: str
        level: float
        seen: datetime
        near: bool | None = None

    class Nearer(Sighting, name="Sighting"):
        pass

    encode = encoder(Sighting)
    assert event_type(Other) == event_type(Sighting)
    other = Other(70_000, "ORL-Net#1", 0.25, NOON, True)
    assert encode(other) is None
    assert encoder(Other)(SIGHTING) is None
    assert encoder(Other)(other) == encode(SIGHTING) == event_type(Sighting).encode(other)
    for thing in (None, 1, {}, Sighting, Nearer(1, "", 0.0, NOON), msgspec.structs.asdict(SIGHTING)):
        assert encode(thing) is None


def test_a_field_that_is_not_set() -> None:
    encode = encoder(Sighting)
    for name in Sighting.__struct_fields__:
        event = Sighting(70_000, "n", 0.25, NOON, True)
        getattr(Sighting, name).__delete__(event)
        assert encode(event) is None


# ── decoding what is not a record ──


@settings(deadline=None, max_examples=examples(150))
@given(records(), st.data())
def test_damaged_records_are_decoded_or_refused_alike(record: m.Record, data: st.DataObject) -> None:
    type = EventType(record)
    decode, good = fast_decoder(type), type.encode(data.draw(raw_events(record)))
    for _ in range(12):
        damaged = bytearray(good)
        for _ in range(data.draw(st.integers(1, 3))):
            # mostly after the header, where it is not refused at once
            at = data.draw(st.integers(0, len(damaged) - 1) | st.integers(min(16, len(damaged) - 1), len(damaged) - 1))
            damaged[at] = data.draw(st.sampled_from((0, 1, 2, 8, 16, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
        assert outcome(decode, bytes(damaged)) == outcome(type.decode, bytes(damaged))


@settings(deadline=None, max_examples=examples(60))
@given(records_with_events(max_events=1))
def test_cut_and_lengthened_records_are_refused_alike(case: Any) -> None:
    record, raws = case
    type = EventType(record)
    decode = fast_decoder(type)
    for raw in raws:
        good = type.encode(raw)
        for size in {*range(0, len(good), 3), len(good) - 1}:
            cut = good[:size]
            fitting = size.to_bytes(4, "little") + cut[4:]
            longer = (len(good) + 8).to_bytes(4, "little") + good[4:] + bytes(8)
            for damaged in (cut, fitting[:size], good + bytes(8), longer):
                assert outcome(decode, damaged) == outcome(type.decode, damaged)


@pytest.mark.parametrize("event", [SIGHTING, EVERYTHING], ids=lambda e: type(e).__name__)
def test_every_byte_of_a_record_changed(event: Event) -> None:
    type = event_type(event)
    decode, good = fast_decoder(type), type.encode(event)
    for at in range(len(good)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF, good[at] ^ 1):
            damaged = good[:at] + bytes([byte]) + good[at + 1 :]
            assert outcome(decode, damaged) == outcome(type.decode, damaged)


def test_other_buffers_and_what_is_none() -> None:
    type = event_type(Sighting)
    decode, data = fast_decoder(type), type.encode(SIGHTING)

    class Bytes(bytes):
        pass

    buffers = (bytearray(data), memoryview(data), Bytes(data), np.frombuffer(data, np.uint8), b"", b"x" * 100)
    for thing in (*buffers, None, 1, "text", object()):
        assert outcome(decode, thing) == outcome(type.decode, thing)
    with pytest.raises(DecodeError, match="magic"):
        decode(bytes(64))


# ── classes ──


def test_classes_with_options() -> None:
    class Named(Event, kw_only=True):
        a: int
        b: str = "b"

    class Mixed(Event):
        a: int
        b: int = msgspec.field(default=2)

    class Uncollected(Event, gc=False):
        a: int
        b: str

    class Referred(Event, weakref=True):
        a: int
        b: str

    class Hashed(Event, cache_hash=True):
        a: int
        p: Point

    for event in (Named(a=1, b="x"), Mixed(1), Uncollected(1, "u"), Referred(1, "r"), Hashed(1, Point(2.0))):
        type = event_type(event)
        data = type.encode(event)
        hash(event)
        assert encoder(type)(event) == data
        made, expected = fast_decoder(type)(data), type.decode(data)
        assert form(made) == form(expected) == form(event)
        assert gc.is_tracked(made) == gc.is_tracked(expected)
        assert hash(made) == hash(expected)
    referred = fast_decoder(event_type(Referred))(event_type(Referred).encode(Referred(1, "r")))
    assert weakref.ref(referred)() is referred


def test_a_class_that_looks_at_its_values_does_so() -> None:
    seen: list[int] = []

    class Checked(Event):
        n: int

        def __post_init__(self) -> None:
            seen.append(self.n)
            if self.n < 0:
                raise ValueError("too small")
            if self.n > 9:
                raise KeyboardInterrupt

    type = event_type(Checked)
    encode, decode = encoder(Checked), fast_decoder(type)
    assert seen == []  # nothing of the class ran while the code was made
    assert decode(type.encode({"n": 3})) == Checked(3)
    assert seen == [3, 3]
    assert outcome(decode, type.encode({"n": -1})) == outcome(type.decode, type.encode({"n": -1}))
    with pytest.raises(DecodeError, match="too small"):
        decode(type.encode({"n": -1}))
    with pytest.raises(KeyboardInterrupt):
        decode(type.encode({"n": 10}))
    assert encode(Checked(5)) == type.encode({"n": 5})


def test_where_there_is_no_native_encoder() -> None:
    class Sly(Event):
        n: int

        def __getattribute__(self, name: str) -> Any:
            return 7 if name == "n" else super().__getattribute__(name)

    class Loose(Event, dict=True):
        n: int

    loose = fast_decoder(event_type(Loose))(event_type(Loose).encode(Loose(1)))
    loose.__dict__["more"] = 5
    assert (loose, loose.more) == (Loose(1), 5)
    for kind in (Sly, Loose):
        assert fast_encoder(event_type(kind)) is None
    data = event_type(Sly).encode({"n": 3})
    assert msgspec.structs.asdict(fast_decoder(event_type(Sly))(data)) == {"n": 3}
    wide = EventType(m.Record("Wide", tuple(m.Field(f"f{i}", m.I64) for i in range(LARGEST))))
    assert fast_encoder(wide) is None
    assert fast_decoder(wide)(wide.encode({f"f{i}": i for i in range(LARGEST)})).f9 == 9


def test_faithful_where_an_event_is_as_good_as_its_record() -> None:
    class Nested(Event):
        point: Point | None
        colour: Colour

    class Rounded(Event):
        level: f32

    class Deep(Event):
        rounded: Rounded | None

    class Many(Event):
        numbers: list[int]

    class Fixed(Event):
        numbers: Array[int, 3]

    class Loose(Event, dict=True):
        n: int

    class Busy(Event):
        n: int

        def __post_init__(self) -> None:
            pass

    for kind in (Sighting, Point, Nested):
        assert faithful(event_type(kind))
    for kind in (Rounded, Deep, Many, Fixed, Loose, Busy, Everything):
        assert not faithful(event_type(kind))


# ── as functions ──


def test_made_once_for_a_class_and_let_go_with_it() -> None:
    def use() -> weakref.ref[Any]:
        class Brief(Event):
            n: int
            colour: Colour

        type = event_type(Brief)
        assert encoder(type) is encoder(type)
        assert fast_decoder(type) is fast_decoder(type)
        assert fast_decoder(type)(encoder(type)(Brief(1, Colour.RED))) == Brief(1, Colour.RED)
        return weakref.ref(Brief)

    gone = use()
    cache.clear()
    gc.collect()
    assert gone() is None


def test_the_functions_outlive_everything_else() -> None:
    def make() -> tuple[Any, Any, bytes]:
        class Brief(Event, kw_only=True):
            n: int
            colour: Colour
            inner: Point

        type = event_type(Brief)
        return encoder(type), fast_decoder(type), type.encode(Brief(n=1, colour=Colour.RED, inner=Point(1.0)))

    encode, decode, data = make()
    cache.clear()
    gc.collect()
    for _ in range(100):
        assert encode(decode(data)) == data


def references(values: list[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def test_no_reference_is_lost_or_kept() -> None:
    event = Everything(
        1, 2**40, 3, 2**63, 0.5, b"some bytes", Colour.RED, Code.HIGH, Point(1.25, 5), Point(2.5), ["some", "words"],
        (Point(3.5),), [[1.5] * 3, [2.5] * 3], ["more", "text"], [[1], [2, 3]],
    )  # fmt: skip
    type, encode, decode = event_type(Everything), encoder(Everything), fast_decoder(event_type(Everything))
    data = type.encode(event)
    bad = msgspec.structs.replace(event, rows=[[1], [2, 300]])
    late = data[:-8] + b"\xff" * 8  # wrong at its very end, after everything has been made
    broken = [data[:k] + b"\xee" + data[k + 1 :] for k in range(16, len(data), 3)]
    watched = [
        None, True, event, Everything, Point, Colour.RED, Code.HIGH, data, datetime, UTC, type,
        *(getattr(event, name) for name in Everything.__struct_fields__), *event.points, *event.words, event.point.x,
    ]  # fmt: skip

    def work() -> None:
        assert encode(event) == data
        assert encode(bad) is None
        assert encode(3) is None
        assert form(decode(data)) == form(type.decode(data))
        for damaged in (late, *broken):
            outcome(decode, damaged)

    work()
    gc.collect()
    before, objects = references(watched), len(gc.get_objects())
    for _ in range(50):
        work()
    gc.collect()
    after = references(watched)
    assert len(gc.get_objects()) - objects < 40
    # None and True are used everywhere: what is lost or kept once per call would show as hundreds
    assert all(abs(a - b) < 40 for a, b in zip(after, before, strict=True))


def test_memory_does_not_grow() -> None:
    class Blob(Event):
        text: str
        data: bytes
        seen: datetime
        more: list[int]

    type, encode, decode = event_type(Blob), encoder(Blob), fast_decoder(event_type(Blob))
    event = Blob("é" * 3000, b"x" * 3000, NOON, [10**12] * 50)
    wrong = Blob("é" * 3000, b"x" * 3000, NOON, [10**12] * 50 + [2**70])
    data = type.encode(event)
    late = data[:-8] + b"\xff" * 8 + bytes(8)  # wrong at its end

    def work() -> None:
        for _ in range(300):
            assert encode(event) == data
            assert encode(wrong) is None
            assert len(decode(data).more) == 50
            outcome(decode, late)

    work()
    before = sys.getallocatedblocks()
    work()
    assert sys.getallocatedblocks() - before < 200


def test_many_threads_at_once() -> None:
    class Shared(Event):
        n: int
        text: str
        points: list[Point]

    type = event_type(Shared)
    wrong: list[Any] = []
    gate = threading.Barrier(6)

    def work(k: int) -> None:
        gate.wait()
        encode, decode = encoder(type), fast_decoder(type)
        for i in range(400):
            event = Shared(i * k, "é" * (i % 50), [Point(float(i), k)] * (i % 5))
            data = encode(event)
            if data != type.encode(event) or decode(data) != event:
                wrong.append(event)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))
    assert wrong == []


def test_a_list_is_taken_whole_or_not_at_all() -> None:
    class Lists(Event):
        numbers: list[i32]
        flags: tuple[bool, ...]

    encode = encoder(Lists)
    assert encode(Lists([1, 2], (True,))) == event_type(Lists).encode(Lists([1, 2], (True,)))
    assert encode(Lists((1, 2), [True])) == event_type(Lists).encode(Lists((1, 2), [True]))  # type: ignore[arg-type]
    for numbers in ([1, 2.0], [1, None], [1, True], [2**31], "12", range(2), np.array([1, 2]), {1, 2}):
        assert encode(Lists(numbers, ())) is None  # type: ignore[arg-type]
