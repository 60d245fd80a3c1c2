"""Channels and subjects of a real NATS server: core, and JetStream through restarts of server and bridge."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, DeliverPolicy

from headwater import Event, Node, u32
from headwater.bridges import nats as nats_bridge
from headwater.bridges.contract import BridgeProblem
from headwater.bridges.mapping import Mapping
from headwater.bridges.nats import NatsBridge, consumer_name, end_all
from headwater.errors import ConfigError
from headwater.testing import Recorder, eventually
from tests.bridges.brokers import Broker
from tests.bridges.killed import KilledBridge

GUARD = 60.0
CONSUMER = consumer_name("hall", "nats", "sensors.*")


class Reading(Event):
    room: str
    number: u32


IN = Mapping("sensors.{room}", "readings", payload="text:number")
OUT = Mapping("screens.{room}", "shown", direction="out", payload="text:number")


class Device:
    """A client of the server that is no bridge, with a loop of its own."""

    def __init__(self, broker: Broker) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = self.run(nats.connect(broker.nats, max_reconnect_attempts=-1, reconnect_time_wait=0.2))
        self.stream = self._client.jetstream()

    def run(self, what: Any) -> Any:
        made: Future[Any] = asyncio.run_coroutine_threadsafe(what, self._loop)
        return made.result(GUARD)

    def listen(self, subject: str) -> None:
        async def came(message: Any) -> None:
            self.heard.append((message.subject, bytes(message.data)))
            self.headers.append(message.headers or {})

        self.run(self._client.subscribe(subject, cb=came))
        self.run(self._client.flush())

    def say(self, subject: str, payload: bytes | str, headers: dict[str, str] | None = None) -> None:
        data = payload.encode() if isinstance(payload, str) else payload
        self.run(self._client.publish(subject, data, headers=headers))
        self.run(self._client.flush())

    def keep(self, subject: str, payload: str) -> None:
        """In the stream, once it is there again."""

        async def kept() -> None:
            while True:
                try:
                    await self.stream.publish(subject, payload.encode(), timeout=2)
                    return
                except (TimeoutError, nats.errors.Error, OSError):
                    continue

        self.run(kept())

    def kept(self) -> list[int]:
        """All that the stream has on the screens."""

        async def read() -> list[int]:
            state = (await self.stream.stream_info("BUILDING")).state
            if not state.messages:
                return []
            found = [await self.stream.get_msg("BUILDING", seq) for seq in range(state.first_seq, state.last_seq + 1)]
            return [int(each.data or b"") for each in found if str(each.subject).startswith("screens.")]

        found: list[int] = self.run(read())
        return found

    def close(self) -> None:
        self.run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as made:
        yield made


@pytest.fixture
def device(broker: Broker) -> Iterator[Device]:
    made = Device(broker)
    yield made
    made.close()


def joined(node: Node, broker: Broker, *mappings: Mapping, **options: Any) -> NatsBridge:
    made = node.services.add(NatsBridge(node, broker.nats, mappings, **options))
    eventually(lambda: made.is_connected, "the bridge is connected", GUARD)
    return made


def test_messages_are_events_and_events_messages(broker: Broker, device: Device) -> None:
    with Node("hall") as node:
        seen: Recorder[Reading] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        shown = node.channel("shown", Reading).source()
        bridge = joined(node, broker, IN, OUT)
        device.listen("screens.>")

        def heard() -> bool:  # core NATS keeps nothing for who is about to subscribe
            device.say("sensors.lab", "7")
            return bool(seen.events)

        eventually(heard, "the bridge hears", GUARD)
        assert seen.events[0] == Reading("lab", 7)
        for payload in ("many", b"\xff", "-1"):
            device.say("sensors.lab", payload)
        eventually(lambda: bridge.report()["bad"] == 3)
        shown.publish(Reading("lab", 10))
        shown.publish(Reading("no room", 10))  # no segment of a subject
        shown.publish(Reading("hall", 11))
        eventually(lambda: device.heard == [("screens.lab", b"10"), ("screens.hall", b"11")])
        assert bridge.report()["bad"] == 4


@pytest.mark.parametrize("stream", ["", "BUILDING"])
def test_fields_as_headers(broker: Broker, device: Device, stream: str) -> None:
    if stream:
        device.run(device.stream.add_stream(name=stream, subjects=["sensors", "screens"]))
    with Node("hall") as node:
        seen: Recorder[Reading] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        shown = node.channel("shown", Reading).source()
        comes, goes = (
            Mapping("sensors", "readings", payload="text:number", properties=("room",)),
            Mapping("screens", "shown", direction="out", payload="text:number", properties=("room",)),
        )
        bridge = joined(node, broker, comes, goes, stream=stream)
        device.listen("screens")

        def heard() -> bool:
            device.say("sensors", "7", {"room": "lab", "other": "x"})
            return bool(seen.events)

        eventually(heard, "the bridge hears", GUARD)
        assert seen.events[0] == Reading("lab", 7)
        device.say("sensors", "8")
        eventually(lambda: bridge.report()["bad"] == 1, "without a room it is no event")
        shown.publish(Reading("x\r\nNats-Msg-Id: 1", 9))  # no header
        shown.publish(Reading("hall", 10))
        eventually(lambda: device.heard == [("screens", b"10")])
        assert device.headers[0]["room"] == "hall" and bridge.report()["bad"] == 2


def test_a_bridge_that_fails_connects_anew(broker: Broker, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its library does: nothing of it ends unseen while the rest goes on."""
    hear, failed = NatsBridge._hear, list[str]()

    async def fails_once(self: NatsBridge, topic: str) -> None:
        if not failed:
            failed.append(topic)
            raise RuntimeError("something that was not foreseen")
        await hear(self, topic)

    monkeypatch.setattr(NatsBridge, "_hear", fails_once)
    with Node("hall") as node:
        seen: Recorder[Reading] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        source = node.channel("shown", Reading).source()
        device.listen("screens.>")
        bridge = node.services.add(NatsBridge(node, broker.nats, [IN, OUT]))

        def heard() -> bool:
            device.say("sensors.lab", "7")
            return bool(seen.events)

        eventually(heard, "the bridge hears", GUARD)
        source.publish(Reading("lab", 10))
        eventually(lambda: device.heard == [("screens.lab", b"10")], "it goes out", GUARD)
        assert failed == ["sensors.*"] and bridge.report()["connected"] == 2


def test_mappings_in_another_order_have_the_places_that_they_had(
    broker: Broker, device: Device, tmp_path: Path
) -> None:
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>", "doors.>"]))
    doors = Mapping("doors.{room}", "doors", payload="text:number")
    seen: dict[str, Recorder[Reading]] = {"readings": Recorder(), "doors": Recorder()}
    for number, mappings in enumerate(([IN, doors], [doors, IN])):
        if number:  # while the bridge is away
            device.keep("sensors.lab", str(number))
        with Node("hall", log=tmp_path / "log") as node:
            for name, each in seen.items():
                node.channel(name, Reading).subscribe(each)
            bridge = joined(node, broker, *mappings, stream="BUILDING")
            eventually(lambda bridge=bridge: bridge._client._subs and len(bridge._client._subs) >= 2, "both", GUARD)  # type: ignore[misc]
            device.keep("doors.hall", str(10 + number))
            eventually(lambda number=number: len(seen["doors"].events) == number + 1, "a door", GUARD)  # type: ignore[misc]
    assert [each.number for each in seen["readings"].events] == [1]
    assert [each.number for each in seen["doors"].events] == [10, 11]


def test_what_a_server_does_not_let_somebody_hear_is_told(tmp_path: Path) -> None:
    denied = "authorization { users: [{ user: hall, password: x, permissions: { subscribe: { deny: 'sensors.>' } } }] }"
    with Broker(tmp_path, denied.replace("'", '"')) as broker, Node("hall") as node:
        problems: Recorder[Any] = Recorder()
        node.channel("readings", Reading)
        node.channel("headwater.bridges", BridgeProblem).subscribe(problems)
        node.services.add(NatsBridge(node, broker.nats, [IN], user="hall", password="x"))
        [problem] = problems.wait(1)
        assert problem.topic == "sensors.*" and "permissions violation" in problem.why.lower()


def test_nothing_is_lost_with_a_stream(broker: Broker, device: Device, tmp_path: Path) -> None:
    """Numbers in and out, while server and bridge go away in turn; each arrives, some perhaps twice."""
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>", "screens.>"]))
    came: list[int] = []
    said, published = iter(range(1000)), iter(range(1000))

    yard = Node("yard", listen="tcp/127.0.0.1:0", log=tmp_path / "yard")
    source = yard.channel("shown", Reading).source("screen")

    def node() -> Node:
        made = Node("hall", state=tmp_path / "state", log=tmp_path / "log", connect=yard.endpoints[0])
        made.channel("readings", Reading).subscribe(lambda event: came.append(event.number))
        made.channel("shown", Reading)
        return made

    def speak(count: int) -> None:
        for _ in range(count):
            device.keep("sensors.lab", str(next(said)))

    with node() as first:
        bridge = joined(first, broker, IN, OUT, stream="BUILDING")
        assert first.until(lambda: "yard" in first.peers, GUARD) and first.ready(GUARD)
        eventually(lambda: _consumers(device) == 1)
        speak(10)
        for _ in range(10):
            source.publish(Reading("lab", next(published)))
        eventually(lambda: bridge.report()["in"] == 10)
        broker.stop()  # killed, it loses what it has acknowledged a moment ago: its file is written behind
        for _ in range(10):
            source.publish(Reading("lab", next(published)))
        broker.start()
        speak(10)
        eventually(lambda: len(set(came)) == 20, "all has come in after a restart of the server", GUARD)
    speak(10)
    with node() as second:
        joined(second, broker, IN, OUT, stream="BUILDING")
        for _ in range(10):
            source.publish(Reading("lab", next(published)))
        eventually(lambda: len(set(came)) == 30, "all has come in after a restart of the bridge", GUARD)
        all_out(device, list(range(30)))
    yard.close()
    assert sorted(set(came)) == list(range(30))


IMPORTS = """
from headwater.bridges.nats import NatsBridge, consumer_name, end_all
from tests.bridges.test_nats import IN, OUT, Reading
"""


def test_nothing_is_lost_with_a_stream_when_the_bridge_is_killed(
    broker: Broker, device: Device, tmp_path: Path
) -> None:
    """At any point of what it does: what has come in is in its log, each for the first time in order; what goes out is
    in the stream once, in order."""
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>", "screens.>"]))
    said, published, rounds = iter(range(10_000)), iter(range(10_000)), 4
    everything = list(range(50 * rounds))
    with Node("yard", listen="tcp/127.0.0.1:0", log=tmp_path / "yard") as yard:
        source = yard.channel("shown", Reading).source("screen")
        made = 'NatsBridge(node, broker, [IN, OUT], stream="BUILDING")'
        bridge = KilledBridge(IMPORTS, made, broker.nats, yard.endpoints[0], tmp_path)
        for number in range(rounds):
            before = len(device.kept())
            with bridge:
                eventually(lambda: _consumers(device) > 0, "its consumer is there: what follows is for it", GUARD)
                for _ in range(50):
                    device.keep("sensors.lab", str(next(said)))
                    source.publish(Reading("lab", next(published)))
                if number % 2:  # else at once
                    eventually(lambda before=before: len(device.kept()) > before, "something has gone out", GUARD)  # type: ignore[misc]
        with bridge:
            eventually(lambda: len(set(bridge.logged())) == len(everything), "all has come in", GUARD)
            all_out(device, everything)
        assert list(dict.fromkeys(bridge.logged())) == everything


@pytest.mark.parametrize("cut", [False, True], ids=["the bridge", "between two consumers"])
def test_what_a_killed_bridge_had_fetched_comes_before_what_came_later(
    broker: Broker, device: Device, cut: bool
) -> None:
    """And without waiting for the server to give up on who had it."""
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>"]))
    came: list[int] = []

    def life(upto: int) -> None:
        with Node("hall") as node:
            node.channel("readings", Reading).subscribe(lambda event: came.append(event.number))
            joined(node, broker, IN, stream="BUILDING")
            eventually(lambda: _consumers(device) == 1)
            if not upto:
                for number in range(3):
                    device.keep("sensors.lab", str(number))
            eventually(lambda: len(set(came)) == (upto or 3), "all has come in", GUARD)

    life(0)
    for number in range(3, 10):
        device.keep("sensors.lab", str(number))

    async def fetch() -> list[bytes]:
        """As a bridge that is killed when it has published the first of these."""
        taken = await device.stream.pull_subscribe_bind(CONSUMER, "BUILDING")
        messages = await taken.fetch(5, timeout=GUARD)
        await messages[0].ack_sync()
        return [each.data for each in messages]

    assert device.run(fetch()) == [b"3", b"4", b"5", b"6", b"7"]
    came.append(3)
    if cut:  # it was killed once more, when it had just begun to go on with another consumer
        again = ConsumerConfig(
            durable_name=f"{CONSUMER}-b",
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=5,
            filter_subject="sensors.*",
        )
        device.run(device.stream.add_consumer("BUILDING", again))
    for number in range(10, 13):
        device.keep("sensors.lab", str(number))
    life(13)
    assert list(dict.fromkeys(came)) == list(range(13)) and _consumers(device) == 1
    for number in range(13, 16):
        device.keep("sensors.lab", str(number))
    life(16)
    assert list(dict.fromkeys(came)) == list(range(16))


def test_a_stream_that_takes_no_second_consumer_is_read_all_the_same(broker: Broker, device: Device) -> None:
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>"], max_consumers=1))
    came: list[int] = []
    for life in range(2):
        with Node("hall") as node:
            node.channel("readings", Reading).subscribe(lambda event: came.append(event.number))
            joined(node, broker, IN, stream="BUILDING")
            eventually(lambda: _consumers(device) == 1)
            device.keep("sensors.lab", str(life))
            eventually(lambda life=life: life in came, "it has come in", GUARD)  # type: ignore[misc]
        if not life:
            device.keep("sensors.lab", "7")

            async def fetch() -> None:
                taken = await device.stream.pull_subscribe_bind(CONSUMER, "BUILDING")
                assert len(await taken.fetch(1, timeout=GUARD)) == 1  # and it was killed

            device.run(fetch())


def all_out(device: Device, numbers: list[int]) -> None:
    """All has gone out, each once, in order."""
    try:
        eventually(lambda: len(device.kept()) >= len(numbers), "all has gone out", GUARD)
    finally:
        assert device.kept() == numbers


def test_what_the_broker_never_had_goes_out_in_the_next_life(broker: Broker, device: Device, tmp_path: Path) -> None:
    """Not one event was acknowledged before the bridge ended: that it had begun is known."""
    device.run(device.stream.add_stream(name="BUILDING", subjects=["screens.>"]))
    with Node("yard", listen="tcp/127.0.0.1:0", log=tmp_path / "yard") as yard:
        source = yard.channel("shown", Reading).source("screen")
        source.publish(Reading("lab", 99))  # before there was a bridge
        for life in range(2):
            with Node("hall", state=tmp_path / "state", connect=yard.endpoints[0]) as node:
                node.channel("shown", Reading)
                bridge = joined(node, broker, OUT, stream="BUILDING")
                assert node.until(lambda: "yard" in node.peers, GUARD) and node.ready(GUARD)
                if not life:
                    broker.stop()
                    assert node.until(lambda it=bridge: not it.is_connected, GUARD)  # type: ignore[misc]
                    for number in range(5):
                        source.publish(Reading("lab", number))
                else:
                    all_out(device, list(range(10)))
            if not life:
                for number in range(5, 10):
                    source.publish(Reading("lab", number))
                broker.start()


def test_what_a_stream_never_takes_is_told_and_holds_up_nothing(broker: Broker, device: Device, tmp_path: Path) -> None:
    settings = {"subjects": ["screens.>"], "max_msg_size": 200}
    device.run(device.stream.add_stream(name="BUILDING", **settings))
    with Node("hall", state=tmp_path / "state") as hall:
        shown = hall.channel("shown", Reading)
        problems: Recorder[Any] = Recorder()
        out = Mapping("screens.out", "shown", direction="out", payload="record")
        bridge = joined(hall, broker, out, stream="BUILDING", window=1)
        hall.channel("headwater.bridges").subscribe(problems)
        source = shown.source()
        for room in ("lab", "x" * 300, "hall"):
            source.publish(Reading(room, 1))
        eventually(lambda: device.run(device.stream.stream_info("BUILDING")).state.messages == 2)
        assert [each.topic for each in problems.wait(1)] == ["screens.out"] and bridge.report()["bad"] == 1


def test_a_stream_that_is_made_after_the_bridge_is_read_from_its_beginning(
    broker: Broker, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it is told that it is not there."""
    with Node("hall") as hall:
        readings, seen = hall.channel("readings", Reading), Recorder[Any]()
        readings.subscribe(seen)
        joined(hall, broker, IN, stream="LATE")
        eventually(lambda: "expected a stream 'LATE'" in caplog.text, "it is told")
        device.run(device.stream.add_stream(name="LATE", subjects=["sensors.>"]))
        device.run(device.stream.publish("sensors.lab", b"1"))
        assert [each.room for each in seen.wait(1)] == ["lab"]


def test_an_event_of_two_mappings_is_a_message_of_each(broker: Broker, device: Device) -> None:
    """A stream that has both subjects does not take one for the other."""
    device.run(device.stream.add_stream(name="BUILDING", subjects=["screens.>", "signs.>"]))
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        joined(node, broker, OUT, Mapping("signs.{room}", "shown", direction="out"), stream="BUILDING")
        for number in range(3):
            source.publish(Reading("lab", number))
        eventually(lambda: device.run(device.stream.stream_info("BUILDING")).state.messages == 6, timeout=GUARD)


def test_a_subject_that_is_too_long_for_a_server_is_told_and_holds_up_nothing(broker: Broker, device: Device) -> None:
    """A server parts with whoever says a longer line, and the library would not connect again after that."""
    with Node("hall") as node:
        source = node.channel("shown", Reading).source()
        bridge = joined(node, broker, Mapping("screens.{room}", "shown", direction="out"), window=1)
        device.listen("screens.*")
        for room in ("x" * 3_880, "y" * 5_000, "lab"):
            source.publish(Reading(room, 1))
        eventually(lambda: [len(topic) for topic, *_ in device.heard] == [3_888, 11])
        assert bridge.report()["bad"] == 1


@pytest.mark.parametrize("whole", [False, True])
def test_a_consumer_that_somebody_deletes_is_made_anew_and_goes_on(
    broker: Broker, device: Device, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, or with its stream."""
    monkeypatch.setattr(nats_bridge, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(nats_bridge, "PAUSE_SECONDS", 0.1)
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>"]))
    with Node("hall") as node:
        seen: Recorder[Reading] = Recorder()
        node.channel("readings", Reading).subscribe(seen)
        joined(node, broker, IN, stream="BUILDING")
        eventually(lambda: device.run(device.stream.stream_info("BUILDING")).state.consumer_count == 1)
        for number in (1, 2):
            device.keep("sensors.lab", str(number))
        seen.wait(2)
        if whole:
            device.run(device.stream.delete_stream("BUILDING"))
            device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>"]))
        else:
            device.run(device.stream.delete_consumer("BUILDING", CONSUMER))
        device.keep("sensors.lab", "3")
        assert [event.number for event in seen.wait(3)] == [1, 2, 3]


@pytest.mark.parametrize("stream", ["", "BUILDING"])
def test_a_message_of_two_mappings_is_one_event_of_each(broker: Broker, device: Device, stream: str) -> None:
    device.run(device.stream.add_stream(name="BUILDING", subjects=["sensors.>"]))
    with Node("hall") as node:
        seen: dict[str, Recorder[Reading]] = {"readings": Recorder(), "copies": Recorder(), "wide": Recorder()}
        for name, each in seen.items():
            node.channel(name, Reading).subscribe(each)
        copy = Mapping("sensors.{room}", "copies", payload="text:number")
        wide = Mapping("sensors.{room...}", "wide", payload="text:number")
        bridge = joined(node, broker, IN, copy, wide, stream=stream)
        if stream:
            eventually(lambda: device.run(device.stream.stream_info("BUILDING")).state.consumer_count >= 2)
        else:
            eventually(lambda: bridge._client._subs and len(bridge._client._subs) >= 2)
            device.run(device._client.flush())
        for number in range(3):
            device.keep("sensors.lab", str(number))
        device.keep("sensors.end", "9")
        for each in seen.values():
            eventually(lambda each=each: [event.number for event in each.events][-1:] == [9])
        assert all([event.number for event in each.events] == [0, 1, 2, 9] for each in seen.values())


def test_a_server_that_ends_the_connection_with_an_error_is_connected_to_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Node("hall") as node:
        server.settimeout(GUARD)
        source = node.channel("shown", Reading).source()
        address = f"nats://127.0.0.1:{server.getsockname()[1]}"
        node.services.add(NatsBridge(node, address, [OUT]))
        for last in (False, True):
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as said:
                connection.settimeout(GUARD)
                connection.sendall(
                    b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true}\r\n'
                )
                while said.readline() != b"PING\r\n":
                    pass
                connection.sendall(b"PONG\r\n")
                if last:
                    source.publish(Reading("lab", 7))
                    while not said.readline().startswith(b"PUB screens.lab"):
                        pass
                    connection.sendall(b"PONG\r\n")
                else:
                    connection.sendall(b"-ERR 'User Authentication Expired'\r\n")
                    while said.readline():
                        pass


def test_sources_of_one_name_are_told_from_each_other(broker: Broker, device: Device, tmp_path: Path) -> None:
    """Of two nodes, and of two lives of one that has no log: none is taken for what the stream has already."""
    device.run(device.stream.add_stream(name="BUILDING", subjects=["screens.>"]))
    with Node("hall", state=tmp_path / "state", listen="tcp/127.0.0.1:0") as hall:
        hall.channel("shown", Reading)
        joined(hall, broker, OUT, stream="BUILDING")
        number = 0
        for name in ("yard", "yard", "hill"):
            with Node(name, connect=hall.endpoints[0], state=tmp_path / name) as node:
                source = node.channel("shown", Reading).source("screen")
                assert hall.until(lambda name=name: name in hall.peers, GUARD) and hall.ready(GUARD)  # type: ignore[misc]
                source.publish(Reading("lab", number))
                number += 1
                all_out(device, list(range(number)))
            eventually(lambda name=name: name not in hall.peers, "it is gone")  # type: ignore[misc]
        for _ in range(2):
            with hall.channel("shown").source("screen") as own:
                own.publish(Reading("lab", number))
                number += 1
        all_out(device, list(range(number)))


def _consumers(device: Device) -> int:
    found = device.run(device.stream.stream_info("BUILDING"))
    return int(found.state.consumer_count)


def test_bridges_that_cannot_be(broker: Broker) -> None:
    with Node("hall") as node:
        node.channel("readings", Reading)
        for server, mappings, options, said in (
            ("127.0.0.1:4222", [IN], {}, "nats://HOST:PORT"),
            (broker.nats, [IN], {"stream": "a.b"}, "letters, digits"),
            (broker.nats, [Mapping("a..b", "readings")], {}, "as NATS has them"),
            (broker.nats, [IN], {"passwort": "x"}, "did you mean 'password'"),
            (broker.nats, [IN], {"error_cb": print}, "set by the bridge"),
        ):
            with pytest.raises(ConfigError, match=said):
                NatsBridge(node, server, mappings, **options)  # type: ignore[arg-type]


def test_what_swallows_that_it_is_to_end_is_told_so_again() -> None:
    """As the library does now and then: its caller would go on for ever, and so would a node that closes."""

    async def deaf(times: int, heard: list[int]) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append(times)
                if len(heard) > times:
                    raise

    async def test() -> None:
        heard: dict[int, list[int]] = {times: [] for times in range(3)}
        tasks = [asyncio.create_task(deaf(times, each)) for times, each in heard.items()]
        tasks.append(asyncio.create_task(asyncio.sleep(0)))
        await asyncio.sleep(0)
        await end_all(tasks)
        assert all(task.done() for task in tasks)
        assert [len(each) for each in heard.values()] == [1, 2, 3]

    asyncio.run(test())
