"""Channels and topics of a real MQTT broker: in and out, through kills of broker and bridge, with nothing lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from headwater import Event, Node, u32
from headwater.bridges.mapping import Mapping
from headwater.bridges.mqtt import MqttBridge
from headwater.errors import ConfigError
from headwater.testing import Recorder, eventually
from tests.bridges.brokers import Broker
from tests.bridges.killed import KilledBridge

GUARD = 60.0


class Reading(Event):
    room: str
    number: u32


IN = Mapping("sensors/{room}", "readings", payload="text:number")
OUT = Mapping("screens/{room}", "readings", direction="out", where="number >= 10")


class Device:
    """A client of the broker that is no bridge, with a session that is kept."""

    def __init__(self, broker: Broker, name: str, *topics: str) -> None:
        self.heard: list[tuple[str, bytes, bool]] = []
        self._there = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        self._there.on_message = lambda client, data, message: self.heard.append(
            (message.topic, bytes(message.payload), message.retain)
        )
        self._topics, self._answers = topics, 0
        self._there.on_connect = lambda client, *_: self.subscribe()
        self._there.on_subscribe = self._answered
        self._there.reconnect_delay_set(1, 1)
        self._there.connect_async("127.0.0.1", broker.mqtt_port)
        self._there.loop_start()
        eventually(self._there.is_connected, "the device is connected")
        eventually(lambda: self._answers >= len(topics), "the device has subscribed")

    def subscribe(self) -> None:
        for topic in self._topics:
            self._there.subscribe(topic, 1)

    def _answered(self, *about: Any) -> None:
        self._answers += 1

    def say(self, topic: str, payload: bytes | str, qos: int = 1, retain: bool = False) -> Any:
        return self._there.publish(topic, payload, qos, retain)

    def close(self) -> None:
        self._there.disconnect()
        self._there.loop_stop()
        self._there._reset_sockets(sockpair_only=True)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as made:
        yield made


def joined(node: Node, broker: Broker, *mappings: Mapping, **options: Any) -> MqttBridge:
    made = node.services.add(MqttBridge(node, broker.mqtt, mappings, **options))
    eventually(lambda: made.is_connected, "the bridge is connected", GUARD)
    return made


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_are_events_and_events_messages(broker: Broker, qos: int) -> None:
    seen: Recorder[Reading] = Recorder()
    with Node("hall") as node:
        readings = node.channel("readings", Reading)
        readings.subscribe(seen)
        out = Mapping("screens/{room}", "readings", direction="out", where="number >= 10", qos=qos)
        bridge = joined(node, broker, IN, out)
        device = Device(broker, "device", "screens/#")
        try:
            device.say("sensors/lab", "7", qos)
            device.say("sensors/hall", "11", qos)
            assert seen.wait(2) == [Reading("lab", 7), Reading("hall", 11)]
            source = readings.source()
            for number in (9, 10, 12):
                source.publish(Reading("lab", number))
            eventually(lambda: len(device.heard) == 3)
            # What has come in goes out, too: there it cannot come in again.
            told = {(topic, json.loads(payload)["number"]) for topic, payload, _ in device.heard}
            assert told == {("screens/hall", 11), ("screens/lab", 10), ("screens/lab", 12)}
            assert bridge.report()["in"] == 2 and bridge.report()["bad"] == 0
        finally:
            device.close()


def test_what_comes_in_by_a_mapping_of_both_directions_is_not_echoed(broker: Broker) -> None:
    with Node("hall") as node:
        readings = node.channel("readings", Reading)
        seen: Recorder[Reading] = Recorder()
        readings.subscribe(seen)
        joined(node, broker, Mapping("rooms/{room}", "readings", direction="both"))
        device = Device(broker, "device", "rooms/#")
        try:
            device.say("rooms/lab", '{"number": 1}')
            seen.wait(1)
            readings.source().publish(Reading("hall", 2))
            eventually(lambda: len(device.heard) == 2)
            seen.wait(2)
            device.say("rooms/end", '{"number": 3}')
            eventually(lambda: len(device.heard) == 3)
            assert [topic for topic, *_ in device.heard] == ["rooms/lab", "rooms/hall", "rooms/end"]
        finally:
            device.close()


def test_messages_that_are_no_events_are_counted_told_and_in_nobodys_way(broker: Broker) -> None:
    with Node("hall") as node:
        seen: Recorder[Reading] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        bridge = joined(node, broker, IN, limit=1000)
        problems: Recorder[Any] = Recorder()
        node.channel("headwater.bridges").subscribe(problems)
        device = Device(broker, "device")
        try:
            for payload in ("many", "-1", b"\xff\xfe", "", "1e400", b"7" * 2000, "[1]"):
                device.say("sensors/lab", payload)
            device.say("sensors/lab/deeper", "7")  # no topic of the mapping
            device.say("sensors/lab", "7")
            assert seen.wait(1) == [Reading("lab", 7)]
            assert len(problems.wait(7)) == 7 and bridge.report()["bad"] == 7
            assert {each.topic for each in problems.events} == {"sensors/lab"}
        finally:
            device.close()


def test_retained_messages(broker: Broker) -> None:
    device = Device(broker, "device", "screens/#")
    try:
        device.say("sensors/lab", "7", 1, retain=True).wait_for_publish(GUARD)
        with Node("hall") as node:
            seen: Recorder[Reading] = Recorder()
            readings = node.channel("readings", Reading)
            readings.subscribe(seen)
            joined(node, broker, IN, Mapping("screens/{room}", "readings", direction="out", retain=True))
            assert seen.wait(1) == [Reading("lab", 7)]
            readings.source().publish(Reading("hall", 1))
            eventually(lambda: len(device.heard) >= 1)
        late = Device(broker, "late", "screens/#")
        try:

            def kept() -> bool:  # the broker may keep it a moment after it has told others of it
                late.subscribe()
                return ("screens/hall", b'{"number":1}', True) in late.heard

            eventually(kept, "the broker has kept it")
        finally:
            late.close()
    finally:
        device.close()


def test_retained_messages_may_be_left_out(broker: Broker) -> None:
    device = Device(broker, "device")
    try:
        device.say("sensors/lab", "7", 1, retain=True).wait_for_publish(GUARD)
        with Node("hall") as node:
            seen: Recorder[Reading] = Recorder()
            node.channel("readings", Reading).subscribe(seen)
            joined(node, broker, IN, retained=False)
            device.say("sensors/lab", "8", 1, retain=True)  # to who is there already it comes as any
            assert seen.wait(1) == [Reading("lab", 8)]
    finally:
        device.close()


def test_a_message_of_several_mappings_is_one_event_of_each(broker: Broker) -> None:
    """Also where the broker sends it once for each; of mappings of one pattern the best quality counts."""
    topics = ("sensors/{room}", "sensors/{room...}", "{room}/lab", "sensors/{room}")
    with Node("hall") as node, ExitStack() as ending:
        seen = [Recorder[Reading]() for _ in topics]
        for number, each in enumerate(seen):
            node.channel(f"readings-{number}", Reading).subscribe(each)
        mappings = [
            Mapping(topic, f"readings-{number}", payload="text:number", qos=int(number < 3))
            for number, topic in enumerate(topics)
        ]
        bridge = joined(node, broker, *mappings)
        assert bridge._topics["sensors/+"] == 1
        device = Device(broker, "device")
        ending.callback(device.close)
        for number in range(3):
            device.say("sensors/lab", str(number))
        device.say("lab/lab", "3")
        for topic, each in zip(topics, seen, strict=True):
            expected = [0, 1, 2, 3] if topic == "{room}/lab" else [0, 1, 2]
            assert [event.number for event in each.wait(len(expected))] == expected
        device.say("sensors/end", "4")
        for number in (0, 1, 3):
            assert [event.number for event in seen[number].wait(4)] == [0, 1, 2, 4]
        assert bridge.report()["in"] == 16 and bridge.report()["bad"] == 0


def test_mappings_in_another_order_go_on_where_they_were(broker: Broker, tmp_path: Path) -> None:
    signs = Mapping("signs/{room}", "posted", direction="out", payload="text:number")
    screens = Mapping("screens/{room}", "shown", direction="out", payload="text:number")
    device = Device(broker, "device", "screens/#", "signs/#")
    with Node("yard", listen="tcp/127.0.0.1:0", log=tmp_path / "yard") as yard, ExitStack() as ending:
        ending.callback(device.close)
        sources = [yard.channel(name, Reading).source("screen") for name in ("shown", "posted")]
        for life, mappings in enumerate(([screens, signs], [signs, screens])):
            for source in sources if life else ():  # while the bridge is away
                source.publish(Reading("lab", 1))
            with Node("hall.north", state=tmp_path / "state", connect=yard.endpoints[0]) as node:
                for name in ("shown", "posted"):
                    node.channel(name, Reading)
                joined(node, broker, *mappings)
                assert node.until(lambda node=node: "yard" in node.peers, GUARD) and node.ready(GUARD)  # type: ignore[misc]
                for source in sources:
                    source.publish(Reading("lab", 2 * life))
                wanted = {(topic, number) for topic in ("screens/lab", "signs/lab") for number in range(2 * life + 1)}
                eventually(
                    lambda wanted=wanted: {(each[0], int(each[1])) for each in device.heard} == wanted,  # type: ignore[misc]
                    "all has gone out",
                    GUARD,
                )


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_through_kills_of_the_broker_and_restarts_of_the_bridge(
    broker: Broker, tmp_path: Path, qos: int
) -> None:
    """Numbers in and out, while each side goes away in turn; each arrives, some perhaps twice."""
    device = Device(broker, "device", "screens/#")
    came: list[int] = []
    said, published = iter(range(10_000)), iter(range(10_000))

    def speak(count: int) -> None:
        for _ in range(count):
            device.say("sensors/lab", str(next(said)), qos)

    yard = Node("yard", listen="tcp/127.0.0.1:0", log=tmp_path / "yard")
    source = yard.channel("shown", Reading).source("screen")

    def node() -> Node:
        made = Node("hall", state=tmp_path / "state", log=tmp_path / "log", connect=yard.endpoints[0])
        made.channel("readings", Reading).subscribe(lambda event: came.append(event.number))
        made.channel("shown", Reading)
        return made

    out = Mapping("screens/{room}", "shown", direction="out", payload="text:number", qos=qos)
    comes = Mapping("sensors/{room}", "readings", payload="text:number", qos=qos)
    try:
        with node() as first:
            bridge = joined(first, broker, comes, out)
            assert first.until(lambda: "yard" in first.peers, GUARD) and first.ready(GUARD)
            speak(20)
            for _ in range(20):
                source.publish(Reading("lab", next(published)))
            eventually(lambda: bridge.report()["in"] == 20)
            broker.kill()
            speak(20)  # the device keeps these itself
            for _ in range(20):
                source.publish(Reading("lab", next(published)))
            broker.start()
            eventually(lambda: len(set(came)) == 40, "all has come in after a kill of the broker", GUARD)
            eventually(lambda: len({each[1] for each in device.heard}) == 40, "all has gone out", GUARD)
            for _ in range(10):  # some of these are on their way when the bridge goes
                source.publish(Reading("lab", next(published)))
        speak(20)  # the broker keeps these for the bridge
        with node() as second:
            joined(second, broker, comes, out)
            for _ in range(10):
                source.publish(Reading("lab", next(published)))
            eventually(lambda: len(set(came)) == 60, "all has come in after a restart of the bridge", GUARD)
            eventually(lambda: len({each[1] for each in device.heard}) == 60, "all has gone out", GUARD)
    finally:
        device.close()
        yard.close()
    assert sorted(set(came)) == list(range(60))
    assert sorted({int(each[1]) for each in device.heard}) == list(range(60))


def test_a_failure_in_the_thread_of_the_connection_is_survived(broker: Broker) -> None:
    with Node("hall") as node:
        readings = node.channel("readings", Reading)
        once, twice = (
            Mapping(f"{name}/{{room}}", "readings", direction="out", payload="text:number", where=where, qos=qos)
            for name, where, qos in (("once", "number < 10", 1), ("twice", "number >= 10", 2))
        )
        bridge = joined(node, broker, once, twice)
        published, failed = bridge._out.on_publish, list[int]()

        def fails(*about: Any) -> None:
            if not failed:
                failed.append(1)
                raise RuntimeError("something that was not foreseen")
            published(*about)

        bridge._out.on_publish = fails
        device = Device(broker, "device", "once/#", "twice/#")
        try:
            source = readings.source()
            source.publish(Reading("lab", 10))
            eventually(lambda: bool(failed), "it has failed", GUARD)
            source.publish(Reading("lab", 1))
            eventually(lambda: "once/lab" in {each[0] for each in device.heard}, "it goes on", GUARD)
            source.publish(Reading("lab", 11))
            eventually(lambda: b"11" in {each[1] for each in device.heard}, "with both qualities", GUARD)
            eventually(lambda: bridge.is_connected, "it is back", GUARD)
        finally:
            device.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_when_the_bridge_is_killed(broker: Broker, tmp_path: Path, qos: int) -> None:
    """At any point of what it does, and the broker beside it: what has come in is in the bridge's log."""
    device = Device(broker, "device", "screens/#")
    said, published, rounds = iter(range(10_000)), iter(range(10_000)), 4
    total = 50 * rounds
    with Node("yard", listen="tcp/127.0.0.1:0", log=tmp_path / "yard") as yard, ExitStack() as ending:
        ending.callback(device.close)
        source = yard.channel("shown", Reading).source("screen")
        bridge = KilledBridge(IMPORTS, BRIDGE, broker.mqtt, yard.endpoints[0], tmp_path, str(qos))
        for number in range(rounds):
            before = len(device.heard)
            with bridge:
                for _ in range(50):
                    spoken = device.say("sensors/lab", str(next(said)), qos)
                    source.publish(Reading("lab", next(published)))
                if number == 2:
                    if qos == 2:
                        # In the middle of a device's exchange this broker itself loses messages of quality 2 when it is
                        # killed, whoever listens: it takes them from one stream before they are in the other.
                        spoken.wait_for_publish(GUARD)
                    broker.kill()
                else:
                    eventually(lambda before=before: len(device.heard) > before, "something has gone out", GUARD)  # type: ignore[misc]
            if number == 2:
                broker.start()
        with bridge:
            try:
                eventually(lambda: len(set(bridge.logged())) == total, "all has come in", GUARD)
                eventually(lambda: len({each[1] for each in device.heard}) == total, "all has gone out", GUARD)
            finally:
                came, went = set(bridge.logged()), {int(each[1]) for each in device.heard}
                missing = set(range(total)) - came, set(range(total)) - went
                assert missing == (set(), set()), "what has not come in, and not gone out"


IMPORTS = """
from headwater.bridges.mapping import Mapping
from headwater.bridges.mqtt import MqttBridge
from tests.bridges.test_mqtt import Reading
"""
BRIDGE = """MqttBridge(node, broker, [
    Mapping("sensors/{room}", "readings", payload="text:number", qos=int(rest[0])),
    Mapping("screens/{room}", "shown", direction="out", payload="text:number", qos=int(rest[0])),
])"""


def test_bridges_that_cannot_be(broker: Broker) -> None:
    with Node("hall") as node:
        node.channel("readings", Reading)
        for address, mappings, options, said in (
            ("1883", [IN], {}, "HOST:PORT"),
            (broker.mqtt, [IN], {"version": "4"}, "'3.1.1' or '5'"),
            (broker.mqtt, [], {}, "one mapping at least"),
            (broker.mqtt, [Mapping("a", "nowhere")], {}, "a channel that there is"),
            (broker.mqtt, [Mapping("a/{flor}", "readings")], {}, "fields of Reading"),
            (broker.mqtt, [Mapping("a", "readings", direction="out", where="nmber > 1")], {}, "did you mean 'number'"),
            (broker.mqtt, ["sensors/{room}"], {}, r"Mapping\(topic, channel\)"),
            ("mqtt://127.0.0.1:1883", [IN], {}, "HOST:PORT"),
            (None, [IN], {}, "HOST:PORT"),
            (broker.mqtt, [IN], {"name": "a b"}, "letters, digits"),
            (broker.mqtt, [IN], {"window": 0}, "from 1 to 65,535"),
            (broker.mqtt, [IN], {"limit": "large"}, "limit: expected a number"),
            (broker.mqtt, [IN], {"keepalive": 0}, "whole seconds"),
            (broker.mqtt, [IN], {"client_id": "a\0b"}, "printable"),
            (broker.mqtt, [IN], {"user": 5}, "user: expected a text"),
            (broker.mqtt, [IN], {"password": "x"}, "a user with it"),
            (broker.mqtt, [IN], {"tls": "yes"}, "a context of ssl"),
            (broker.mqtt, [IN], {"retained": "no"}, "True or False"),
        ):
            with pytest.raises(ConfigError, match=said):
                MqttBridge(node, address, mappings, **options)  # type: ignore[arg-type]
