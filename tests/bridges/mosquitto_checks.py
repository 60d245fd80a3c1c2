"""MQTT 5 with mosquitto, which not every machine has: `make test-mosquitto` runs these, `make test` does not."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from headwater import Event, Node, u32
from headwater.bridges.mapping import Mapping
from headwater.bridges.mqtt import MqttBridge
from headwater.testing import Recorder, eventually
from tests.ports import free_port

GUARD = 60.0


class Reading(Event):
    room: str
    number: u32


class Mosquitto:
    """A broker that keeps sessions and messages in a folder."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """`more`: further settings."""
        self.port, self._folder = free_port(), folder
        self._settings = folder / "mosquitto.conf"
        self._settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nuser root\nautosave_on_changes true\nautosave_interval 1\n{more}"
        )
        self.start()

    def start(self) -> None:
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        assert Path(program).exists(), "expected mosquitto, found none: apt-get install mosquitto"
        self._process = subprocess.Popen([program, "-c", str(self._settings)], stderr=subprocess.DEVNULL)
        eventually(self._listens, "mosquitto listens", GUARD)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    made = Mosquitto(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def device(broker: Mosquitto) -> Iterator[Any]:
    made = paho.Client(CallbackAPIVersion.VERSION2, client_id="device", protocol=MQTTProtocolVersion.MQTTv5)
    made.heard, made.messages = [], []

    def came(client: Any, data: Any, message: Any) -> None:
        made.messages.append(message)
        made.heard.append((message.topic, bytes(message.payload), getattr(message.properties, "ContentType", None)))

    made.on_message = came
    made.on_connect = lambda client, *_: client.subscribe("screens/#", 1)
    made.reconnect_delay_set(1, 1)
    made.connect_async("127.0.0.1", broker.port)
    made.loop_start()
    eventually(made.is_connected, "the device is connected", GUARD)
    yield made
    made.disconnect()
    made.loop_stop()
    made._reset_sockets(sockpair_only=True)


OUT = Mapping("screens/{room}", "shown", direction="out", qos=2)
IN = Mapping("sensors/{room}", "readings", payload="text:number")


def joined(node: Node, broker: Mosquitto) -> MqttBridge:
    made = node.services.add(MqttBridge(node, f"127.0.0.1:{broker.port}", [IN, OUT], version="5"))
    eventually(lambda: made.is_connected, "the bridge is connected", GUARD)
    return made


class Valve(Event):
    name: str
    open: bool
    unit: str | None = None


def test_fields_as_properties_of_version_5(broker: Mosquitto, device: Any) -> None:
    with Node("hall") as node:
        seen: Recorder[Valve] = Recorder()
        node.channel("valves", Valve).subscribe(seen)
        shown = node.channel("shown", Valve).source()
        comes = Mapping("valves/{name}", "valves", payload="text:open", properties=("unit",), qos=2)
        goes = Mapping("screens/{name}", "shown", direction="out", properties=("unit",), expiry=60, retain=True)
        bridge = node.services.add(MqttBridge(node, f"127.0.0.1:{broker.port}", [comes, goes], version="5"))
        eventually(lambda: bridge.is_connected, "the bridge is connected", GUARD)
        for pairs in ([("unit", "bar")], [], [("unit", "a"), ("unit", "b")], [("other", "x"), ("unit", "m³")]):
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = pairs
            device.publish("valves/a", "on", 2, properties=properties)
        assert seen.wait(3) == [Valve("a", True, "bar"), Valve("a", True), Valve("a", True, "m³")]
        eventually(lambda: bridge.report()["bad"] == 1, "the one with two units is no event")
        shown.publish(Valve("b", False, "bar"))
        eventually(lambda: device.messages)
        [message] = device.messages
        assert (message.topic, bytes(message.payload)) == ("screens/b", b'{"open":false}')
        told = message.properties
        assert told.UserProperty == [("unit", "bar")] and told.ContentType == "application/json"
        assert told.PayloadFormatIndicator == 1 and 0 < told.MessageExpiryInterval <= 60


def test_version_5_in_and_out_with_what_the_payload_is(broker: Mosquitto, device: Any) -> None:
    with Node("hall") as node:
        seen: Recorder[Reading] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        shown = node.channel("shown", Reading).source()
        bridge = joined(node, broker)
        for qos in (0, 1, 2):
            device.publish("sensors/lab", str(qos), qos)
        assert sorted(each.number for each in seen.wait(3)) == [0, 1, 2]
        shown.publish(Reading("lab", 7))
        eventually(lambda: device.heard == [("screens/lab", b'{"number":7}', "application/json")])
        assert bridge.report()["bad"] == 0


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_many_messages_of_quality_2_go_out(broker: Mosquitto, device: Any, version: Any) -> None:
    """More at a time than this broker takes (`max_inflight_messages`) it loses, and acknowledges."""
    with Node("hall") as node:
        shown = node.channel("shown", Reading).source()
        bridge = node.services.add(MqttBridge(node, f"127.0.0.1:{broker.port}", [OUT], version=version))
        eventually(lambda: bridge.is_connected, "the bridge is connected", GUARD)
        for number in range(1000):
            shown.publish(Reading("lab", number))
        try:
            eventually(lambda: len(device.heard) == 1000, "all has gone out", GUARD)
        finally:
            assert [payload for _, payload, _ in device.heard] == [b'{"number":%d}' % each for each in range(1000)]


def test_what_a_broker_refuses_is_told(tmp_path: Path) -> None:
    """With either quality; of version 5."""
    (tmp_path / "rules").write_text("topic read #\ntopic write open/#\n")
    broker = Mosquitto(tmp_path, f"acl_file {tmp_path}/rules\nmax_packet_size 300\n")
    try:
        with Node("hall") as node:
            shown = node.channel("shown", Reading).source()
            mappings = [
                Mapping(f"{place}/{{room}}/{qos}", "shown", direction="out", qos=qos, payload="text:number")
                for place in ("open", "shut")
                for qos in (1, 2)
            ]
            bridge = node.services.add(MqttBridge(node, f"127.0.0.1:{broker.port}", mappings, version="5"))
            eventually(lambda: bridge.is_connected, "the bridge is connected", GUARD)
            shown.publish(Reading("lab", 1))
            eventually(lambda: bridge.report()["bad"] == 2, "what may not be said is told", GUARD)
            shown.publish(Reading("x" * 300, 1))
            eventually(lambda: bridge.report()["bad"] == 6, "and what is too large", GUARD)
            assert bridge.report()["lost"] == 0
    finally:
        broker.stop()


def test_a_message_of_two_mappings_is_one_event_of_each(broker: Mosquitto, device: Any) -> None:
    with Node("hall") as node:
        seen: dict[str, Recorder[Reading]] = {"readings": Recorder(), "others": Recorder()}
        for name, each in seen.items():
            node.channel(name, Reading).subscribe(each)
        whole = Mapping("sensors/{room...}", "others", payload="text:number")
        bridge = node.services.add(MqttBridge(node, f"127.0.0.1:{broker.port}", [IN, whole], version="5"))
        eventually(lambda: bridge.is_connected, "the bridge is connected", GUARD)
        for number in range(5):
            device.publish("sensors/lab", str(number), 1)
        for each in seen.values():
            eventually(lambda each=each: any(event.number == 4 for event in each.events), "the last", GUARD)  # type: ignore[misc]
            assert [event.number for event in each.events] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_of_version_5_outlives_the_bridge_and_the_broker(
    broker: Mosquitto, device: Any, tmp_path: Path, qos: int
) -> None:
    came: list[int] = []
    said = iter(range(1000))

    def node() -> Node:
        made = Node("hall", state=tmp_path / "state")
        made.channel("readings", Reading).subscribe(lambda event: came.append(event.number))
        made.channel("shown", Reading)
        return made

    def speak(count: int) -> None:
        told = [device.publish("sensors/lab", str(next(said)), qos) for _ in range(count)]
        for each in told:
            each.wait_for_publish(GUARD)

    with node() as first:
        joined(first, broker)
        speak(10)
        eventually(lambda: len(set(came)) == 10, timeout=GUARD)
    speak(10)  # the broker keeps these for the bridge
    broker.stop()
    broker.start()
    eventually(device.is_connected, timeout=GUARD)
    with node() as second:
        joined(second, broker)
        speak(10)
        eventually(lambda: len(set(came)) == 30, timeout=GUARD)
    assert sorted(set(came)) == list(range(30))
