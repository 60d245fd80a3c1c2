"""Brokers and devices that mean no good: what they say is bounded, and none of it ends the bridge.

The broker here is the test itself, at the other end of the connection: no broker that is sound says such things."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Event, Node, Queue, u32
from headwater.bridges import mqtt
from headwater.bridges.contract import BridgeProblem
from headwater.bridges.mapping import Mapping
from headwater.bridges.mqtt import MqttBridge
from headwater.errors import HeadwaterError, StoreError
from headwater.store.log.channel_log import ChannelLog
from headwater.testing import Recorder, eventually

GUARD = 60.0
CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ = 0x10, 0x20, 0x30, 0x40, 0x80, 0x90, 0xC0
PUBREC, PUBREL, PUBCOMP = 0x50, 0x60, 0x70


class Reading(Event):
    room: str
    number: u32


IN = Mapping("sensors/{room}", "readings", payload="text:number")


def head(kind: int, length: int) -> bytes:
    """The beginning of a packet, with its length as MQTT has it."""
    found = bytes([kind])
    while True:
        length, digit = divmod(length, 128)
        found += bytes([digit | (0x80 if length else 0)])
        if not length:
            return found


def packet(kind: int, body: bytes) -> bytes:
    return head(kind, len(body)) + body


def published(topic: bytes, payload: bytes, number: int) -> bytes:
    """With quality 1."""
    return packet(PUBLISH | 0x02, struct.pack("!H", len(topic)) + topic + struct.pack("!H", number) + payload)


class Connection:
    """The broker's end of one."""

    def __init__(self, made: socket.socket) -> None:
        self._socket, self.head = made, 0  # and the first byte of the last packet that was heard
        made.settimeout(GUARD)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            if not more:
                raise ConnectionError("the bridge has parted")
            found += more
        return found

    def hear(self, kind: int) -> bytes:
        """The body of the next packet of a kind; ConnectionError if the bridge has parted."""
        while True:
            head, length, shift = self._read(1)[0], 0, 0
            while True:
                digit = self._read(1)[0]
                length |= (digit & 127) << shift
                shift += 7
                if not digit & 128:
                    break
            body = self._read(length)
            if head & 0xF0 == kind:
                self.head = head
                return body

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def meet(self) -> bool:
        """As any broker does; whether it is one by which events go out."""
        asked = self.hear(CONNECT)
        self.say(packet(CONNACK, b"\0\0"))
        return asked[12:].startswith(b"headwater-hall-mqtt-out")

    def greet(self, granted: int = 1) -> None:
        """The same, with the answer to what is subscribed to."""
        self.meet()
        self.say(packet(SUBACK, self.hear(SUBSCRIBE)[:2] + bytes([granted])))

    def ended(self) -> bool:
        """Once the bridge has parted with this."""
        try:
            self.hear(0xF0)
        except OSError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


class Fake:
    """A place where a broker listens."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(GUARD)
        self._open: list[Connection] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def accept(self) -> Connection:
        self._open.append(Connection(self._server.accept()[0]))
        return self._open[-1]

    def accept_both(self) -> tuple[Connection, Connection]:
        """Those of a bridge in both directions, in whatever order: by which messages come in, and go out."""
        found = [self.accept(), self.accept()]
        ways = {each.meet(): each for each in found}
        ways[False].say(packet(SUBACK, ways[False].hear(SUBSCRIBE)[:2] + b"\1"))
        return ways[False], ways[True]

    def close(self) -> None:
        self._server.close()
        for each in self._open:
            each.close()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(mqtt, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(mqtt, "LONGEST_PAUSE", 0.02)
    made = Fake()
    yield made
    made.close()


@contextmanager
def bridge(fake: Fake, *mappings: Mapping, **options: Any) -> Iterator[tuple[Node, MqttBridge, Recorder[Any]]]:
    with Node("hall") as node:
        seen: Recorder[Any] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        options = {"keepalive": 3600, **options}  # the broker here does not answer to signs of life
        yield node, node.services.add(MqttBridge(node, fake.address, mappings or (IN,), **options)), seen


GARBAGE = {
    "a topic longer than its packet": packet(PUBLISH | 0x02, b"\xff\xff" + b"x" * 10),
    "a message without a topic": packet(PUBLISH | 0x02, b""),
    "a message without a number": packet(PUBLISH | 0x02, b"\x00\x01x"),
    "quality 3": packet(PUBLISH | 0x06, b"\x00\x01x\x00\x01"),
    "a kind that there is not": packet(0x00, b"xy"),
    "what only clients say": packet(CONNECT, b"\x00\x04MQTT"),
    "a length without an end": b"\x30\xff\xff\xff\xff\xff",
    "half an answer": packet(PUBACK, b"\x01"),
    "an answer to nothing": packet(SUBACK, b""),
    "a greeting of nothing": packet(CONNACK, b""),
}


def test_a_broker_that_talks_nonsense_is_parted_with_and_the_bridge_goes_on(fake: Fake) -> None:
    with bridge(fake) as (_, made, seen):
        for number, garbage in enumerate(GARBAGE.values()):
            connection = fake.accept()
            connection.greet()
            connection.say(published(b"sensors/lab", str(number).encode(), 1))
            connection.hear(PUBACK)
            connection.say(garbage)
            connection.say(packet(PUBLISH, b"\xff\xff"))  # for those that are passed over
            assert connection.ended()
        fake.accept().greet()
        eventually(lambda: made.is_connected)
        assert [event.number for event in seen.events] == list(range(len(GARBAGE)))


def test_a_topic_in_bad_utf_8_is_a_message_that_is_no_event(fake: Fake) -> None:
    with bridge(fake) as (_, made, seen):
        connection = fake.accept()
        connection.greet()
        connection.say(published(b"sensors/\xff\xfe", b"1", 1) + published(b"sensors/a\0b", b"x", 2))
        connection.say(published(b"sensors/lab", b"7", 3))
        assert [connection.hear(PUBACK) for _ in range(3)] == [b"\0\1", b"\0\2", b"\0\3"]
        assert seen.wait(1) == [Reading("lab", 7)] and made.report()["bad"] == 2


def test_of_a_message_that_is_too_large_no_more_is_kept_than_shows_that(fake: Fake) -> None:
    size, piece = 48 << 20, bytes(1 << 16)
    with bridge(fake, limit=1000) as (_, made, seen):
        connection = fake.accept()
        connection.greet()
        tracemalloc.start()
        try:
            begin = struct.pack("!H", 11) + b"sensors/lab" + b"\0\1"
            connection.say(head(PUBLISH | 0x02, len(begin) + size) + begin)
            for _ in range(size // len(piece)):
                connection.say(piece)
            assert connection.hear(PUBACK) == b"\0\1"
            assert tracemalloc.get_traced_memory()[1] < size // 12
        finally:
            tracemalloc.stop()
        connection.say(published(b"sensors/lab", b"7", 2))
        assert seen.wait(1) == [Reading("lab", 7)] and made.report()["bad"] == 1


def test_a_topic_that_the_broker_refuses_is_told(fake: Fake) -> None:
    with bridge(fake) as (node, made, _):
        problems: Recorder[Any] = Recorder()
        node.channel("headwater.bridges").subscribe(problems)
        fake.accept().greet(granted=0x80)
        [problem] = problems.wait(1)
        assert problem.topic == "sensors/+" and "refuses" in problem.why
        assert made.report()["refused"] == 1


def test_a_bridge_is_connected_when_the_broker_has_taken_what_it_wants_to_hear(fake: Fake) -> None:
    with bridge(fake) as (_, made, _):
        connection = fake.accept()
        connection.hear(CONNECT)
        connection.say(packet(CONNACK, b"\0\0"))
        asked = connection.hear(SUBSCRIBE)
        assert not made.is_connected
        connection.say(packet(SUBACK, asked[:2] + b"\1"))
        eventually(lambda: made.is_connected)


def test_what_was_on_its_way_with_quality_0_does_not_keep_the_rest(fake: Fake) -> None:
    """A place in the window is free again when its message is lost with the connection."""
    out = Mapping("screens/{room}", "shown", payload="text:number", direction="out", qos=0)
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        node.channel("readings", Reading)
        made = node.services.add(MqttBridge(node, fake.address, [IN, out], window=2))
        _, first = fake.accept_both()
        eventually(lambda: made.is_connected)
        large = "x" * 60_000  # more than sockets hold, in the end
        for number in range(400):
            source.publish(Reading(large, number))
        first.close()  # it has read nothing
        second = fake.accept()
        assert second.meet()
        source.publish(Reading("last", 7))
        while not second.hear(PUBLISH).endswith(b"screens/last7"):
            pass
        assert made.report()["out"] == 401


def test_a_broker_that_takes_nothing_keeps_no_more_than_the_window(fake: Fake) -> None:
    out = Mapping("screens/{room}", "shown", payload="text:number", direction="out", qos=1)
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        node.channel("readings", Reading)
        made = node.services.add(MqttBridge(node, fake.address, [IN, out], window=4))
        comes, goes = fake.accept_both()
        for number in range(100):
            source.publish(Reading("lab", number))
        for _ in range(4):
            goes.hear(PUBLISH)
        for number in range(1000, 1200):
            goes.say(packet(PUBACK, struct.pack("!H", number)))  # of what was never sent
        comes.say(published(b"sensors/lab", b"7", 1))
        comes.hear(PUBACK)
        assert made.report()["out"] == 4 and made.report()["in"] == 1
        [name] = [each for each in node.subscriptions if each.startswith("bridge-mqtt-")]
        eventually(lambda: node.subscriptions[name].counts.queued == 95, "one more waits for its place")
        assert node.close(drain=False).dropped == {name: 95}


def test_what_comes_in_and_goes_out_again_waits_for_nothing_that_waits_for_it(fake: Fake) -> None:
    """Its queue is full until the broker answers what went out: who waits to publish keeps no answer unread."""
    out = Mapping("screens/{room}", "readings", payload="text:number", direction="out")
    with Node("hall", config=Config(queue=Queue(limit=8))) as node:
        node.channel("readings", Reading)
        made = node.services.add(MqttBridge(node, fake.address, [IN, out], window=4, keepalive=3600))
        comes, goes = fake.accept_both()
        comes.say(b"".join(published(b"sensors/lab", b"7", number) for number in range(1, 41)))
        under_way = [number_of(goes.hear(PUBLISH)) for _ in range(4)]
        for _ in range(36):
            goes.say(packet(PUBACK, under_way.pop(0)))
            under_way.append(number_of(goes.hear(PUBLISH)))
        for number in range(1, 41):
            assert comes.hear(PUBACK) == struct.pack("!H", number)
        for each in under_way:
            goes.say(packet(PUBACK, each))
        assert made.report()["in"] == made.report()["out"] == 40


def test_a_flood_of_what_is_no_event_is_counted_and_told_of_now_and_then(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headwater.bridges")
    with bridge(fake) as (node, made, seen):
        problems: Recorder[Any] = Recorder()
        node.channel("headwater.bridges").subscribe(problems)
        connection = fake.accept()
        connection.greet()
        connection.say(b"".join(published(b"sensors/lab", b"none", number) for number in range(1, 5001)))
        connection.say(published(b"sensors/lab", b"7", 5001))
        assert seen.wait(1) == [Reading("lab", 7)]
        report = made.report()
        assert report["bad"] == 5000
        assert 100 <= len(problems.events) < 5000 and len(problems.events) + report["untold"] == 5000
        assert len([each for each in caplog.records if "none" in each.getMessage()]) <= len(problems.events)


def test_a_node_that_ends_does_not_wait_for_a_broker_that_is_gone(fake: Fake) -> None:
    """What cannot go out keeps nobody; a node with a state has it when it is back."""
    out = Mapping("screens/{room}", "shown", payload="text:number", direction="out")
    with Node("hall", config=Config(close_timeout=10 * GUARD)) as node:
        source = node.channel("shown", Reading).source()
        made = node.services.add(MqttBridge(node, fake.address, [out]))
        connection = fake.accept()
        connection.hear(CONNECT)
        connection.say(packet(CONNACK, b"\0\0"))
        eventually(lambda: made.is_connected)
        fake.close()
        eventually(lambda: not made.is_connected)
        for number in range(3):
            source.publish(Reading("lab", number))


OUT = Mapping("screens/{room...}", "shown", payload="text:number", direction="out")


def going(
    fake: Fake, node: Node, out: Mapping = OUT, greeting: bytes = b"\0\0", **options: Any
) -> tuple[MqttBridge, Connection]:
    """A bridge by which something goes out, and nothing comes in."""
    made = node.services.add(MqttBridge(node, fake.address, [out], keepalive=3600, **options))
    connection = fake.accept()
    connection.hear(CONNECT)
    connection.say(packet(CONNACK, greeting))
    eventually(lambda: made.is_connected)
    return made, connection


def number_of(body: bytes) -> bytes:
    """By which a message of quality 1 is acknowledged."""
    end = 2 + int.from_bytes(body[:2])
    return body[end : end + 2]


def test_no_more_of_quality_2_is_under_way_than_brokers_take(fake: Fake) -> None:
    """Mosquitto loses what is beyond its own number, and acknowledges it."""
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        made, connection = going(fake, node, replace(OUT, qos=2))
        for number in range(30):
            source.publish(Reading("lab", number))
        heard = [connection.hear(PUBLISH) for _ in range(mqtt.TWICE_WINDOW)]
        eventually(lambda: made.report()["out"] == mqtt.TWICE_WINDOW + 1, "the next one waits")
        assert len(made._sent) == mqtt.TWICE_WINDOW
        connection.say(packet(PUBREC, number_of(heard[0])))
        connection.say(packet(PUBCOMP, connection.hear(PUBREL)))
        assert connection.hear(PUBLISH).endswith(str(mqtt.TWICE_WINDOW).encode())
        node.close(drain=False)


def test_a_broker_of_version_5_is_asked_for_no_more_than_it_has(fake: Fake) -> None:
    """It would end the connection, and so for ever: two messages under way, of 100 bytes, quality 1, none retained."""
    limits = b"\x21\0\2" + b"\x27\0\0\0\x64" + b"\x24\1" + b"\x25\0"
    with Node("hall") as node:
        problems: Recorder[Any] = Recorder()
        node.channel("headwater.bridges", BridgeProblem).subscribe(problems)
        source = node.channel("shown", Reading).source()
        out = replace(OUT, qos=2, retain=True)
        made, connection = going(fake, node, out, b"\0\0" + bytes([len(limits)]) + limits, version="5")
        assert [("quality 2" in each.why, "retains" in each.why) for each in problems.wait(2)] == [
            (True, False),
            (False, True),
        ]
        for room in ("x" * 100, "a", "b", "c"):
            source.publish(Reading(room, 7))
        heard = [connection.hear(PUBLISH) for _ in range(2)]
        assert [b"screens/a" in heard[0], b"screens/b" in heard[1], connection.head] == [True, True, PUBLISH | 0x02]
        assert "at most 100 bytes, as the broker says" in problems.wait(3)[2].why
        assert len(made._sent) == 2
        connection.say(packet(PUBACK, number_of(heard[0])))
        assert b"screens/c" in connection.hear(PUBLISH)
        node.close(drain=False)


def test_a_message_of_quality_2_that_a_broker_refuses_is_told(fake: Fake) -> None:
    with Node("hall") as node:
        problems: Recorder[Any] = Recorder()
        node.channel("headwater.bridges", BridgeProblem).subscribe(problems)
        source = node.channel("shown", Reading).source()
        made, connection = going(fake, node, replace(OUT, qos=2), b"\0\0\0", version="5")
        source.publish(Reading("lab", 1))
        connection.say(packet(PUBREC, number_of(connection.hear(PUBLISH)) + b"\x87\0"))
        assert "Not authorized" in problems.wait(1)[0].why
        eventually(lambda: not made._sent)


def test_what_was_under_way_goes_again_before_anything_else(fake: Fake) -> None:
    class Late(threading.Event):
        """Who waits for it goes on before whoever sets it."""

        def set(self) -> None:
            super().set()
            eventually(lambda: made.closing.is_set() or len(made._sent) == 2, "the other one goes on", GUARD)

    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        made, first = going(fake, node)
        source.publish(Reading("lab", 1))
        first.hear(PUBLISH)
        made._out.there = Late()
        first.close()
        second = fake.accept()
        second.hear(CONNECT)
        source.publish(Reading("lab", 2))
        eventually(lambda: made.report()["out"] == 2, "it waits for the connection")
        second.say(packet(CONNACK, b"\0\0"))
        assert [second.hear(PUBLISH)[-1:] for _ in range(2)] == [b"1", b"2"]
        node.close(drain=False)


def test_a_bridge_that_cannot_start_leaves_nothing_behind(fake: Fake) -> None:
    with Node("hall") as node:
        readings = node.channel("shown", Reading)
        made = MqttBridge(node, fake.address, [OUT])
        with readings.subscribe(print, name=made._outgoing[0].name), pytest.raises(HeadwaterError, match="name"):
            node.services.add(made)
        assert made._out._thread is None and made.name not in node.services
        node.services.add(MqttBridge(node, fake.address, [OUT]))


def test_an_event_that_is_too_large_for_a_broker_is_told_and_holds_up_nothing(fake: Fake) -> None:
    """One that ends the connection for it would do so for ever."""
    with Node("hall") as node:
        problems: Recorder[Any] = Recorder()
        node.channel("headwater.bridges", BridgeProblem).subscribe(problems)
        source = node.channel("shown", Reading).source()
        _, connection = going(fake, node, Mapping("screens", "shown", direction="out"), limit=1000)
        source.publish(Reading("x" * 1000, 1))
        source.publish(Reading("lab", 2))
        assert connection.hear(PUBLISH).endswith(b'{"room":"lab","number":2}')
        assert "at most 1,000 bytes" in problems.wait(1)[0].why


def test_a_number_that_is_still_under_way_is_not_given_to_another_message(fake: Fake) -> None:
    """Numbers go around after 65,535 messages, and a broker may leave one of them without an answer all that time."""
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        made, connection = going(fake, node)
        source.publish(Reading("first", 1))
        first = connection.hear(PUBLISH)
        made._out._last_mid -= 1  # as after all the others
        source.publish(Reading("second", 2))
        second = connection.hear(PUBLISH)
        assert b"screens/second" in second and number_of(second) != number_of(first)
        connection.say(packet(PUBACK, number_of(first)) + packet(PUBACK, number_of(second)))
        eventually(lambda: not made._sent)


def test_an_event_that_the_library_refuses_is_told_and_holds_up_nothing(fake: Fake) -> None:
    out = Mapping("{room}", "shown", payload="text:number", direction="out")
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        made, connection = going(fake, node, out, window=1)
        source.publish(Reading("", 1))  # an empty segment may be; a topic of nothing else may not
        source.publish(Reading("lab", 2))
        assert connection.hear(PUBLISH).endswith(b"2")
        assert made.report()["bad"] == 1


def test_messages_of_quality_2_that_are_never_released_do_not_fill_the_memory(fake: Fake) -> None:
    """Nothing was asked for with quality 2: a broker that begins such exchanges, and ends none, is parted with."""
    with bridge(fake) as (_, made, _):
        connection = fake.accept()
        connection.greet()
        topic = struct.pack("!H", 11) + b"sensors/lab"
        with suppress(OSError):  # it may be gone before all is said
            for number in range(1, 2001):
                connection.say(packet(PUBLISH | 0x04, topic + struct.pack("!H", number) + b"7"))
        assert connection.ended()
        fake.accept().greet()
        eventually(lambda: made.is_connected)
        assert len(made._in._in_messages) <= mqtt.WINDOW


def test_what_cannot_be_logged_is_not_acknowledged_and_is_an_event_when_it_can(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, tried = True, threading.Event()
    append = ChannelLog.append

    def appended(self: ChannelLog, *about: Any, **options: Any) -> Any:
        if full:
            tried.set()
            raise StoreError("no space left on device")
        return append(self, *about, **options)

    monkeypatch.setattr(ChannelLog, "append", appended)
    with Node("hall", log=tmp_path / "log") as node:
        seen: Recorder[Any] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        made = node.services.add(MqttBridge(node, fake.address, [IN], keepalive=3600))
        connection = fake.accept()
        connection.greet()
        connection.say(published(b"sensors/lab", b"7", 1))
        assert tried.wait(GUARD)
        full = False
        assert connection.hear(PUBACK) == b"\0\1"
        assert seen.wait(1) == [Reading("lab", 7)] and made.report()["bad"] == 0
