"""Events as dicts and as JSON, both ways: nothing is lost, and what is wrong is named."""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings

from headwater import Array, Event, Node, event_type, f32, timestamp, u64
from headwater.errors import EncodeError, TypeDeclarationError
from headwater.types.model import Record
from tests import strategies
from tests.effort import examples


class Colour(enum.Enum):
    red = "r"
    blue = "b"


class Part(Event):
    n: u64
    seen: timestamp | None = None


class Level(Event):
    level: float


class Whole(Event, name="test.Whole"):
    at: timestamp
    raw: bytes
    grid: Array[f32, 2, 2]
    parts: list[Part]
    colour: Colour
    level: float
    note: str | None = None


AT = datetime(2026, 1, 31, 12, 0, 0, 1, UTC)
EVENT = Whole(AT, b"\x00\xff", ((1.0, 2.0), (3.0, 0.5)), [Part(2**64 - 1), Part(0, AT)], Colour.blue, float("-inf"))
JSON = {
    "at": "2026-01-31T12:00:00.000001+00:00",
    "raw": "AP8=",
    "grid": [[1.0, 2.0], [3.0, 0.5]],
    "parts": [{"n": 2**64 - 1, "seen": None}, {"n": 0, "seen": "2026-01-31T12:00:00.000001+00:00"}],
    "colour": "blue",
    "level": "-Infinity",
    "note": None,
}


def test_an_event_as_a_dict_and_back() -> None:
    made = EVENT.to_dict()
    assert made == {
        "at": AT,
        "raw": b"\x00\xff",
        "grid": [[1.0, 2.0], [3.0, 0.5]],
        "parts": [{"n": 2**64 - 1, "seen": None}, {"n": 0, "seen": AT}],
        "colour": Colour.blue,
        "level": float("-inf"),
        "note": None,
    }
    assert Whole.from_dict(made) == EVENT and event_type(Whole).from_dict(made) == EVENT
    assert Part.from_dict({"n": 3}) == Part(3)


def test_an_event_as_json_and_back() -> None:
    text = EVENT.to_json()
    assert json.loads(text) == JSON and "\n" not in text
    assert "\n" in EVENT.to_json(indent=2)
    for given_text in (text, text.encode(), EVENT.to_json(indent=2)):
        assert Whole.from_json(given_text) == EVENT
    elsewhere = {**JSON, "at": "2026-01-31T14:00:00.000001000+02:00"}
    assert Whole.from_json(json.dumps(elsewhere)) == EVENT  # the same moment


@settings(max_examples=examples(150), deadline=None)
@given(strategies.records_with_events())
def test_nothing_is_lost(drawn: tuple[Record, list[dict[str, Any]]]) -> None:
    record, raws = drawn
    type = event_type(record)
    for raw in raws:
        event = type.from_raw(raw)
        for back in (
            type.from_dict(type.to_dict(event)),
            type.from_json(type.to_json(event)),
            type.from_json(type.to_json(raw).encode()),
        ):
            assert back.__class__ is event.__class__
            assert strategies.same(type.to_raw(back), raw)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"at": "yesterday"}, "at: expected a time with its zone"),
        ({"at": "2026-01-31T12:00:00"}, "at: expected a time with its zone"),
        ({"at": "2026-01-31T12:00:00.000000001Z"}, "at: expected microseconds, found nanoseconds"),
        ({"raw": "?"}, "raw: expected base64"),
        ({"raw": "é"}, "raw: expected base64"),
        ({"grid": [[1, 2], [3]]}, r"grid\[1\]: expected 2 elements"),
        ({"grid": [[1, 2], [3, "x"]]}, r"grid\[1\]\[1\]: expected a float"),
        ({"parts": [{"n": -1}]}, r"parts\[0\].n: expected 0 to"),
        ({"parts": [{"n": 1.5}]}, r"parts\[0\].n: expected an int"),
        ({"parts": [{"n": 1, "seen": "x"}]}, r"parts\[0\].seen: expected a time"),
        ({"parts": [{"m": 1}]}, r"parts\[0\].m: .* has no such field"),
        ({"parts": [{}]}, r"parts\[0\].n: .*found no such key"),
        ({"colour": "green"}, r"colour: expected a member of Colour \(red, blue\)"),
        ({"level": None}, "level: expected a float or int, found None"),
    ],
)
def test_errors_name_the_field(wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(EncodeError, match=f"^{place}") as caught:
        Whole.from_json(json.dumps({**JSON, **wrong}))
    assert caught.value.path == str(caught.value).partition(": ")[0]


def test_what_is_no_json_of_an_event() -> None:
    for text, said in (
        ("", "expected JSON"),
        ("{", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        (b"\xff", "expected JSON"),
        ("[]", r"expected a JSON object with the fields of Part, found \[\]"),
        (b"7", "expected a JSON object with the fields of Part, found 7"),
        ('{"n": 1, "n": 2}', "n: expected it once in a JSON object"),
    ):
        with pytest.raises(EncodeError, match=said):
            Part.from_json(text)
    with pytest.raises(EncodeError, match="expected a dict with the fields of Part, found list"):
        Part.from_dict([1])  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="n: expected an int"):
        Part("one").to_json()  # type: ignore[arg-type]
    with pytest.raises(TypeDeclarationError):
        Event.from_json("{}")


def test_a_number_that_no_float_holds_is_not_taken_for_infinity() -> None:
    assert Level.from_json('{"level": "Infinity"}').level == float("inf")
    for text in ("1e999", "-1e999", "1" + "0" * 400, "1" + "0" * 400 + ".5"):
        with pytest.raises(EncodeError, match="f64"):
            Level.from_json(f'{{"level": {text}}}')


class Levels(Event):
    name: str
    all: list[float]
    inner: Level


def test_what_json_has_no_number_for_is_text() -> None:
    for word in ("NaN", "Infinity", "-Infinity"):
        assert str(Level.from_json(f'{{"level": "{word}"}}').level) == str(float(word))
        for text, place in (
            (f'{{"name": "a", "all": [1.0, {word}], "inner": {{"level": 1.0}}}}', r"all\[1\]"),
            (f'{{"name": "a", "all": [], "inner": {{"level": {word}}}}}', r"inner\.level"),
            (f'{{"name": {word}, "all": [], "inner": {{"level": 1.0}}}}', "name"),
            (f'{{"name": "a", "all": {word}, "inner": {{"level": 1.0}}}}', "all"),
            (f'{{"name": "a", "all": [], "inner": {word}}}', "inner"),
        ):
            for each in (text, text.encode(), bytearray(text.encode())):
                with pytest.raises(EncodeError, match=f'{place}: .*JSON has no {word}.*"{word}"'):
                    Levels.from_json(each)
        with pytest.raises(EncodeError, match=f"expected a JSON object with the fields of Level, found {word}"):
            Level.from_json(word)


def test_fields_of_these_names_are_the_fields() -> None:
    class Odd(Event):
        to_json: str
        from_dict: int = 5

    event, type = Odd("x"), event_type(Odd)
    assert event.to_json == "x" and event.from_dict == 5
    assert type.from_json(type.to_json(event)) == event and event.to_dict() == {"to_json": "x", "from_dict": 5}


def test_events_of_types_made_at_run_time_have_them_too() -> None:
    with Node() as node:
        channel = node.channel("a", "level: f64, at: timestamp?")
        got = channel.subscribe()
        channel.source().publish(level=0.5, at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))))
        event = got.get(0)
        assert json.loads(event.to_json()) == {"level": 0.5, "at": "2025-12-31T23:00:00+00:00"}
        assert channel.type is not None and channel.type.from_json(event.to_json()) == event
