"""Messages of other systems as events of channels, and back: topics with fields in them, and payloads."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, i32, timestamp
from headwater.bridges.mapping import Mapping, Translation
from headwater.bridges.topics import MQTT, NATS, Topic, TopicSyntax
from headwater.errors import ConfigError, EncodeError
from headwater.types import event_type
from tests.effort import examples


class Mode(enum.Enum):
    HEAT = 0
    COOL = 1


class Reading(Event):
    floor: i32
    room: str
    celsius: float
    mode: Mode | None = None


TYPE = event_type(Reading)
JSON = Mapping("building/{floor}/{room}/temperature", "building.temperature")
TEXT = Mapping("building/{floor}/{room}", "building.temperature", payload="text:celsius")


def mqtt(mapping: Mapping, type: Any = TYPE) -> Translation:
    return Translation(mapping, MQTT, type)


def test_a_message_is_an_event() -> None:
    found = mqtt(JSON).read("building/3/lab/temperature", b'{"celsius": 21.5, "mode": "COOL"}')
    assert found == Reading(3, "lab", 21.5, Mode.COOL)
    assert mqtt(JSON).read("building/3/lab/humidity", b"{}") is None
    assert mqtt(TEXT).read("building/-1/lab", b"21.5") == Reading(-1, "lab", 21.5)
    assert mqtt(JSON).topic.pattern == "building/+/+/temperature"
    assert Topic("a.{b}.{rest...}", NATS).pattern == "a.*.>"
    assert Topic("a.{b}.{rest...}", NATS).read("a.1.2.3") == {"b": "1", "rest": "2.3"}


def test_what_goes_out_is_what_would_come_in() -> None:
    for mapping in (JSON, TEXT):
        event = Reading(3, "lab", 21.5)
        assert mqtt(mapping).read(*mqtt(mapping).write(event)) == event
    assert mqtt(JSON).write(Reading(3, "lab", 21.5)).payload == b'{"celsius":21.5,"mode":null}'


def test_what_is_no_number() -> None:
    """In JSON it is text, and in text it is what it is called; both ways."""
    for mapping, payload in ((JSON, b'{"celsius":"NaN","mode":null}'), (TEXT, b"NaN")):
        topic, written, *_ = mqtt(mapping).write(Reading(3, "lab", float("nan")))
        assert written == payload and math.isnan(mqtt(mapping).read(topic, written).celsius)  # type: ignore[union-attr]
    with pytest.raises(EncodeError, match=r'celsius: .*JSON has no NaN.*"NaN"'):
        mqtt(JSON).read("building/3/lab/temperature", b'{"celsius": NaN}')
    with pytest.raises(EncodeError, match="floor: expected"):
        mqtt(TEXT).read("building/NaN/lab", b"1.0")


class Valve(Event):
    name: str
    open: bool
    since: timestamp | None = None
    unit: str | None = None
    image: bytes | None = None


VALVE = Mapping("valves/{name}", "valves", payload="text:open", properties=("unit", "since"))


def test_fields_beside_the_payload() -> None:
    """As user properties of MQTT 5, and headers of NATS."""
    made, type = mqtt(VALVE, event_type(Valve)), event_type(Valve)
    valve = Valve("a", True, datetime(2026, 5, 1, tzinfo=UTC), "bar")
    message = made.write(valve)
    assert message.payload == b"true"  # as others write it
    assert dict(message.properties) == {"unit": "bar", "since": "2026-05-01T00:00:00+00:00"}
    assert made.read(*message) == valve
    assert made.read("valves/a", b"off", [("unit", "m³"), ("other", "x"), ("other", "y")]).unit == "m³"
    assert made.write(Valve("a", False)).properties == ()
    options: Any = {"properties": ["unit"]}  # as a file has it
    images = mqtt(Mapping("valves/{name}/{open}", "valves", payload="bytes:image", **options), type)
    assert images.read(*images.write(Valve("a", True, None, "x", b"\xff\x00"))).image == b"\xff\x00"
    whole = mqtt(Mapping("valves", "valves", properties=("unit",)), type)
    assert b"unit" not in whole.write(valve).payload and whole.read(*whole.write(valve)) == valve
    for properties, said in (
        ([("unit", "a"), ("unit", "a")], "once, found it twice"),
        ([("since", "yesterday")], "since"),
        ([("unit", "x" * 5000)], "at most 4,096 bytes"),
    ):
        with pytest.raises(EncodeError, match=said):
            made.read("valves/a", b"1", properties)
    with pytest.raises(EncodeError, match="the property says, 'a'"):
        whole.read("valves", b'{"name": "a", "open": true, "unit": "b"}', [("unit", "a")])


@pytest.mark.parametrize("unit", ["a\r\nNats-Msg-Id: 1", "a\nb", "\x00", " a", "x" * 5000])
def test_no_event_chooses_another_header_than_its_own(unit: str) -> None:
    with pytest.raises(EncodeError, match="one line"):
        mqtt(VALVE, event_type(Valve)).write(Valve("a", True, None, unit))


@pytest.mark.parametrize(
    ("mapping", "topic", "payload", "said"),
    [
        (JSON, "building/x/lab/temperature", b'{"celsius": 1}', "floor"),
        (JSON, "building/99999999999/lab/temperature", b'{"celsius": 1}', "floor"),
        (JSON, "building/3/lab/temperature", b"{", "expected JSON"),
        (JSON, "building/3/lab/temperature", b"\xff", "expected JSON"),
        (JSON, "building/3/lab/temperature", b"[1]", "a JSON object"),
        (JSON, "building/3/lab/temperature", b"{}", "celsius"),
        (JSON, "building/3/lab/temperature", b'{"celsius": 1, "floor": 4}', "what the topic says, 3, found 4"),
        (JSON, "building/3/lab/temperature", b'{"celsius": "warm"}', "celsius"),
        (JSON, "building/3/lab/temperature", b'{"celsius": 1, "celsius": 2}', "twice"),
        (JSON, "building/3/lab/temperature", b'{"celsius": 1, "mode": "BOIL"}', "mode"),
        (JSON, "building/3/lab/temperature", b'{"celsius": 1, "weight": 2}', "weight"),
        (TEXT, "building/3/lab", b"warm", "celsius"),
        (TEXT, "building/3/lab", b"\xff\xfe", "UTF-8"),
        (TEXT, "building/3/lab", b"", "celsius"),
    ],
)
def test_messages_that_are_no_events(mapping: Mapping, topic: str, payload: bytes, said: str) -> None:
    with pytest.raises(EncodeError, match=said):
        mqtt(mapping).read(topic, payload)


@pytest.mark.parametrize("room", ["a/b", "+", "#", "x\x00", "a+b", "\x1b[2J", "\ufdd0", "a\uffff", "\U0010fffe"])
def test_no_event_chooses_another_topic_than_its_own(room: str) -> None:
    with pytest.raises(EncodeError, match="room: expected what MQTT has between separators"):
        mqtt(JSON).write(Reading(3, room, 1.0))


@pytest.mark.parametrize(
    ("topic", "syntax", "field"),
    [
        ("{a}/b", MQTT, "$SYS"),
        ("{a...}", MQTT, "$JS/API/STREAM/DELETE/BUILDING"),
        ("{a...}", NATS, "$JS.API.STREAM.DELETE.BUILDING"),
        ("{a}.b", NATS, "_INBOX"),
    ],
)
def test_no_event_speaks_to_the_broker_itself(topic: str, syntax: TopicSyntax, field: str) -> None:
    with pytest.raises(EncodeError, match="a: expected no topic of the broker itself"):
        Topic(topic, syntax).write({"a": field})
    assert Topic(f"x{syntax.separator}{{a}}", syntax).write({"a": "$SYS"}) == f"x{syntax.separator}$SYS"


@pytest.mark.parametrize(
    ("text", "syntax", "said"),
    [
        ("a/+/b", MQTT, "{name}"),
        ("a/#", MQTT, "{name...}"),
        ("a/{x...}/b", MQTT, "last segment"),
        ("a/{x}/{x}", MQTT, "each field once"),
        ("a/b{x}", MQTT, "as a whole segment"),
        ("a/{x}", NATS, "NATS has '.' between segments"),
        ("", MQTT, "1 to 65,535 bytes"),
        ("a..b", NATS, "as NATS has them"),
        ("a.b c", NATS, "as NATS has them"),
        ("/".join("a" * 200), MQTT, "at most 128 segments"),
        ("$share/group/a/{x}", MQTT, "no shared subscription"),
        ("a/\ud800", MQTT, "as MQTT has them"),
    ],
)
def test_topics_that_cannot_be(text: str, syntax: TopicSyntax, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("{", r"\{").replace(".", r"\.")):
        Topic(text, syntax)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"payload": "xml"}, "one of json, text, bytes, record"),
        ({"payload": "text"}, "text:FIELD"),
        ({"payload": "json:x"}, "expected json"),
        ({"direction": "sideways"}, "one of in, out, both"),
        ({"where": "x > 1"}, "direction='out'"),
        ({"where": 5, "direction": "out"}, "an interest, as text"),
        ({"qos": 3}, "0, 1 or 2"),
        ({"qos": 1.0}, "0, 1 or 2"),
        ({"qos": True}, "0, 1 or 2"),
        ({"properties": "unit"}, "names of fields"),
        ({"properties": None}, "names of fields"),
        ({"expiry": -1}, "whole seconds"),
        ({"expiry": 1.5}, "whole seconds"),
        ({"channel": "a b"}, "the name of a channel"),
    ],
)
def test_mappings_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Mapping(**{"topic": "a", "channel": "b", **options})


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (Mapping("a/{flor}", "b"), "did you mean 'floor'"),
        (Mapping("a/{celsius}", "b"), "a text, a whole number"),
        (Mapping("a/{floor}", "b", payload="text:floor"), "both"),
        (Mapping("a/{floor}", "b", payload="text:celsius"), "nothing of room"),
        (Mapping("a/{floor}", "b", payload="bytes:room"), "a field of bytes"),
        (Mapping("a/{floor}", "b", payload="record"), "a record has them all"),
        (Mapping("a", "b", properties=("rom",)), "did you mean 'room'"),
        (Mapping("a/{room}", "b", properties=("room",)), "each field in one place"),
        (Mapping("a", "b", payload="record", properties=("room",)), "a record has all fields"),
    ],
)
def test_mappings_that_do_not_fit_a_type(mapping: Mapping, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        mqtt(mapping)


SEGMENTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/+#.*> \t{}"), min_size=1, max_size=8
)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), SEGMENTS, st.floats(allow_nan=False), st.sampled_from([None, *Mode]))
def test_there_and_back(floor: int, room: str, celsius: float, mode: Mode | None) -> None:
    event = Reading(floor, room, celsius, mode)
    for syntax, separator in ((MQTT, "/"), (NATS, ".")):
        mapping = Mapping(separator.join(("b", "{floor}", "{room}")), "b")
        translation = Translation(mapping, syntax, TYPE)
        assert translation.read(*translation.write(event)) == event


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=40), st.binary(max_size=60))
def test_whatever_comes_is_an_event_or_an_error(topic: str, payload: bytes) -> None:
    for mapping in (JSON, TEXT):
        for text in (topic, f"building/3/{topic}", f"building/{topic}/lab/temperature"):
            try:
                found = mqtt(mapping).read(text, payload)
            except EncodeError:
                continue
            assert found is None or isinstance(found, Reading)


def test_overlapping_topics() -> None:
    assert Topic("a/{x}", MQTT).overlaps(Topic("{y}/b", MQTT))
    assert Topic("a/{x...}", MQTT).overlaps(Topic("a/b/c", MQTT))
    assert not Topic("a/{x}", MQTT).overlaps(Topic("b/{x}", MQTT))
    assert not Topic("a/{x}", MQTT).overlaps(Topic("a/b/c", MQTT))
    for one, two in (("a", "a/{x...}"), ("a/{x...}", "a")):  # a # is sent the topic above it, too
        assert not Topic(one, MQTT).overlaps(Topic(two, MQTT))
        assert Topic(one, MQTT).overlaps(Topic(two, MQTT), sent=True)
    assert not Topic("a", MQTT).overlaps(Topic("a/{x}", MQTT), sent=True)
