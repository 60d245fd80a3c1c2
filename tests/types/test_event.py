"""Declaring event types: what is possible, what is refused and how it is said."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Optional

import numpy as np
import pytest

from headwater.errors import DecodeError, EncodeError, TypeDeclarationError
from headwater.types import (
    Array,
    Event,
    EventType,
    Field,
    Record,
    Shape,
    event_type,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    model,
    text,
    timestamp,
    u8,
    u16,
    u32,
    u64,
)


class Colour(enum.IntEnum):
    RED = 10
    GREEN = -3


class Mode(enum.Enum):
    ON = "on"
    OFF = "off"


class Position(Event):
    x: f32
    y: f32 = 0.0


class Everything(Event, name="test.Everything"):
    a: bool
    b: int
    c: float
    d: str
    e: bytes
    f: datetime
    g: i8
    h: i16
    i: i32
    j: i64
    k: u8
    l: u16  # noqa: E741
    m: u32
    n: u64
    o: f32
    p: f64
    q: text
    r: timestamp
    s: Colour
    t: Mode
    u: Position
    v: Optional[int]  # noqa: UP045
    w: list[f32]
    x: tuple[Position, ...] | None
    y: Array[Sequence[Sequence[f64]], 2, 3]
    z: Annotated[Sequence[i16], Shape(2)]
    unit: ClassVar[str] = "m"


def test_every_annotation() -> None:
    kind = event_type(Everything)
    assert kind.name == "test.Everything"
    expected = (
        "bool i64 f64 text bytes timestamp i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 text timestamp "
        "Colour Mode Position i64? f32[] Position[]? f64[2×3] i16[2]"
    )
    assert " ".join(str(f.type) + "?" * f.optional for f in kind.record.fields) == expected
    assert kind.record.by_name["s"].type == model.Enum("Colour", (("RED", 10), ("GREEN", -3)))
    assert kind.record.by_name["t"].type == model.Enum("Mode", (("ON", 0), ("OFF", 1)))
    assert event_type(kind) is kind
    assert event_type(Everything) is kind


def test_the_ways_to_write_an_array_are_one_type() -> None:
    class One(Event, name="A"):
        grid: Array[f64, 2, 3]

    class Two(Event, name="A"):
        grid: Annotated[f64, Shape(2, 3)]

    class Three(Event, name="A"):
        grid: Array[Array[f64, 3], Literal[2]]

    assert event_type(One) == event_type(Two) == event_type(Three)
    grid = np.arange(6.0).reshape(2, 3)
    data = event_type(One).encode(grid=grid)
    assert data == event_type(Two).encode(grid=grid.tolist()) == event_type(Three).encode(grid=grid.T.copy().T)
    assert event_type(One).decode(data).grid == ((0.0, 1.0, 2.0), (3.0, 4.0, 5.0))
    assert (event_type(One).view(data).grid == grid).all()
    with pytest.raises(EncodeError, match=r"grid\[1\]: expected 3 elements"):
        event_type(One).encode(grid=[[1, 2, 3], [1, 2]])
    with pytest.raises(EncodeError, match="grid: expected 2 elements"):
        event_type(One).encode(grid=grid.T)
    with pytest.raises(EncodeError, match=r"grid\[0\]\[1\]: expected a float"):
        event_type(One).encode(grid=[[1, "2", 3], [1, 2, 3]])


def test_instances_are_immutable_values() -> None:
    here = Position(1.0)
    assert here == Position(1.0, 0.0)
    assert hash(here) == hash(Position(1.0, 0.0))
    with pytest.raises(AttributeError):
        here.x = 2.0  # type: ignore[misc]


def test_classes_inside_functions_and_classes_resolve() -> None:
    class Local(Event):
        value: i32

    class Holder:
        class Part(Event):
            local: Local | None

        class Whole(Event):
            parts: list[Part]  # type: ignore[name-defined]  # noqa: F821

    kind = event_type(Holder.Whole)
    assert [str(t) for t in model.walk(kind.record)] == ["Whole", "Part[]", "Part", "Local", "i32"]


class Early(Event):
    later: Later


class Later(Event):
    value: int


def test_a_class_may_be_declared_later_in_the_module() -> None:
    assert event_type(Early).record.by_name["later"].type == event_type(Later).record


def test_inheritance_and_keyword_only_fields() -> None:
    class Base(Event):
        id: u32

    class Derived(Base, kw_only=True):
        flag: bool = False
        level: f32

    kind = event_type(Derived)
    assert sorted(kind.record.by_name) == ["flag", "id", "level"]
    event = Derived(7, level=0.5)
    assert kind.decode(kind.encode(event)) == event
    assert kind.from_arrow(kind.to_arrow([event])) == [event]


def test_keys_left_out_take_the_class_default() -> None:
    class Defaulted(Event):
        a: int
        b: list[int] = []  # noqa: RUF012
        c: int | None = 5
        d: int | None = None

    kind = event_type(Defaulted)
    assert kind.decode(kind.encode(a=1)) == Defaulted(1)
    assert kind.decode(kind.encode(a=1, c=None)) == Defaulted(1, c=None)


def test_a_name_that_cannot_be_resolved() -> None:
    class Broken(Event):
        value: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeDeclarationError, match=r"Broken\.value: .*'Nowhere' is not defined; declare it before"):
        event_type(Broken)


class Loop(Event):
    inner: Loop | None


def test_a_type_within_itself() -> None:
    with pytest.raises(TypeDeclarationError, match="cannot contain itself"):
        event_type(Loop)


class Permission(enum.Flag):
    READ = 1


class NoMembers(enum.Enum):
    pass


class WideCode(enum.Enum):
    A = 1 << 40


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (dict, "found dict"),
        (dict[str, int], "found dict"),
        (int | str, "a choice of types"),
        (list, "without one element type"),
        (tuple[int, str], "without one element type"),
        (list[int | None], "elements are never missing"),
        (complex, "found complex"),
        (Any, "found .*Any"),
        (None, "found None"),
        (Permission, "a Flag"),
        (NoMembers, "expected at least one member"),
        (WideCode, "does not fit 32 bits"),
        ("1 +", "is faulty"),
        (Annotated[Sequence[int], Shape(2, 2)], "one Sequence for each of 2 dimensions"),
        (Annotated[int, Shape(1 << 40)], "more than"),
    ],
)
def test_an_unsupported_annotation_is_named(annotation: Any, words: str) -> None:
    with pytest.raises(TypeDeclarationError, match=words) as caught:
        type(Event)("Bad", (Event,), {"__annotations__": {"field": annotation}, "__module__": __name__})
    if words.startswith("found"):
        assert "Bad.field" in str(caught.value)
        assert "possible are bool, int" in str(caught.value)


def test_all_faulty_fields_are_listed() -> None:
    with pytest.raises(TypeDeclarationError) as caught:

        class Bad(Event):
            a: complex
            fine: int
            b: set[int]

    assert "Bad.a" in str(caught.value)
    assert "Bad.b" in str(caught.value)


def test_options_that_mean_nothing_here() -> None:
    with pytest.raises(TypeDeclarationError, match="immutable"):

        class Mutable(Event, frozen=False):
            a: int

    with pytest.raises(TypeDeclarationError, match="rename="):

        class Renamed(Event, rename="camel"):
            a: int

    with pytest.raises(TypeDeclarationError, match="empty"):

        class Nameless(Event, name=""):
            a: int

    with pytest.raises(TypeDeclarationError, match="one or more dimensions"):
        Array[f64]
    with pytest.raises(TypeDeclarationError, match="dimensions of 1 or more, found 0"):
        Array[f64, 0]


def test_a_type_without_fields_is_none() -> None:
    class Abstract(Event):
        pass

    with pytest.raises(TypeDeclarationError, match="at least one field"):
        event_type(Abstract)
    for wrong in (Event, int, 3, "x"):
        with pytest.raises(TypeDeclarationError, match="expected an Event class"):
            event_type(wrong)
    with pytest.raises(TypeDeclarationError, match="name="):
        event_type(Position, name="x")


def test_field_names_python_does_not_allow() -> None:
    names = ["class", "with space", "with_space", "0", "__init__", "ﬁ", "日本", "a.b", "''"]
    record = Record("odd.names", tuple(Field(name, model.I32) for name in names))
    kind = event_type(record)
    attrs = kind.binding.attrs
    assert len(set(attrs)) == len(names)
    assert attrs[2] == "with_space"
    assert attrs[6] == "日本"
    assert all(attr.isidentifier() for attr in attrs)
    raw = {name: i for i, name in enumerate(names)}
    event = kind.from_raw(raw)
    assert getattr(event, attrs[0]) == 0
    assert kind.to_raw(event) == raw
    assert type(event).__name__ == "names"


def test_a_class_made_at_run_time() -> None:
    kind = event_type(Record("made", (Field("a", model.I32), Field("b", model.TEXT, True))))
    assert issubclass(kind.cls, Event)
    assert kind.cls(1) == kind.cls(1, None)  # type: ignore[call-arg]
    assert event_type(kind.cls) == kind
    assert repr(kind.cls(1, "x")) == "made(a=1, b='x')"  # type: ignore[call-arg]


def test_enumerations_in_all_forms() -> None:
    class Light(Event):
        colour: Colour
        mode: Mode | None = None

    kind = event_type(Light)
    data = kind.encode(Light(Colour.GREEN, Mode.OFF))
    assert data == kind.encode(colour="GREEN", mode="OFF") == kind.encode(colour=-3, mode=1)
    assert kind.decode(data) == Light(Colour.GREEN, Mode.OFF)
    assert kind.decode_raw(data) == {"colour": -3, "mode": 1}
    for wrong in ("BLUE", 7, True, Mode.ON, 1.0, None):
        with pytest.raises(EncodeError, match=r"colour: expected a member of Colour \(RED, GREEN\)"):
            kind.encode(colour=wrong)


def test_a_declaration_reads_well() -> None:
    class Sighting(Event):
        badge: u32
        colour: Colour
        at: list[Position] | None

    assert str(event_type(Sighting)) == (
        "event type Sighting\n"
        "    badge: u32\n"
        "    colour: Colour\n"
        "        RED = 10, GREEN = -3\n"
        "    at: Position[]?\n"
        "        x: f32\n"
        "        y: f32"
    )
    assert repr(event_type(Position)).startswith("<EventType Position 0x")


def test_a_class_that_refuses_its_values() -> None:
    class Picky(Event):
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise RuntimeError("negative")

    kind = event_type(Picky)
    with pytest.raises(DecodeError, match="Picky cannot be made of this record: negative"):
        kind.decode(kind.encode({"a": -1}))


def test_a_view_shows_its_fields() -> None:
    kind = event_type(Position)
    view = kind.view(kind.encode(x=1.0))
    assert view.x == view["x"] == 1.0
    assert "y" in dir(view)
    assert "x, y" in repr(view)
    with pytest.raises(AttributeError, match="no field 'z'"):
        _ = view.z
    assert isinstance(kind, EventType)
