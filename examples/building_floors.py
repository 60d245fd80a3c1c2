"""The floors of the building: what is there, and what comes with people who move. `building_devices.py` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import Event, Network, Node, Reliable, u32
from headwater.security import Rule, Security


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


class Steps(Event):
    """What a watch counts: it speaks to the node of the floor that it is on."""

    who: str
    count: u32


class Page(Event):
    """What is to be printed on a floor, by one of its printers."""

    floor: u32
    title: str


class Paper(Event):
    """A question: who has paper on a floor?"""

    floor: u32


class Tray(Event):
    """The answer of a printer."""

    printer: str
    sheets: u32


class Handover(Event):
    """Somebody is on another floor now: a sink or source goes there, by a token for that floor's node and no other."""

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


def proven(name: str) -> Network:
    """How a node takes part: with a password of its own, so that others know who it is."""
    users = {**USERS, "ann": "ann's"}
    return Network(security=Security(user=name, password=f"{name}'s", users=users, rules=RULES))


BY = {"phone": "phone, by WebSocket", "fan": "fan, by MQTT"}  # what is no node, and how it is joined to one


class Story:
    """What happens, and what is seen of it at each place; a step is over when all of that has come."""

    PLACES = ("floor 0", "floor 2", "house", "phone", "fan")

    def __init__(self) -> None:
        self._steps: list[tuple[str, dict[str, list[str]]]] = []

    def step(self, what: str) -> None:
        self._steps.append((what, {place: [] for place in self.PLACES}))

    def tell(self, place: str, what: str) -> None:
        self._steps[-1][1][place].append(what)

    def seen(self, place: str) -> int:
        return len(self._steps[-1][1][place])

    def show(self) -> None:
        for what, seen in self._steps:
            print(what)
            for place, things in seen.items():
                if things:
                    print(f"    {BY.get(place, place):<21}{', '.join(things)}")


class Floor:
    """The node of a floor: a screen that shows mail, and printers, for whoever is there."""

    def __init__(self, number: int, house: Node, folder: Path, story: Story, printers: dict[str, int]) -> None:
        self._number, self._place, self._story, name = number, f"floor {number}", story, f"floor{number}"
        self.node = Node(name, connect=house.endpoints[0], network=proven(name), state=folder / name)
        self.sinks: dict[tuple[str, str], Any] = {}  # by who, and what
        self.watches: dict[str, Any] = {}  # sources, by who wears them
        handovers = self.node.channel("building.handover", Handover)
        self._handover = handovers.source()
        self._here = {"params": {"here": number}}
        handovers.subscribe(self._take, "floor = :here", **self._here, dispatch="pool")
        sightings = self.node.channel("building.sighting", Sighting)
        sightings.subscribe(self._seen_elsewhere, "floor <> :here", **self._here, dispatch="pool")
        self._printing = self.node.channel("building.printing", Page).source()
        for printer, sheets in printers.items():
            self._install(printer, sheets)

    def _install(self, printer: str, sheets: int) -> None:
        """Each printer says how much paper it has. Those with paper are a group: a page is printed by one of them."""
        paper = self.node.channel("building.paper", Paper)
        paper.answer(lambda _: Tray(printer, sheets), "floor = :here", **self._here, answers=Tray, name=printer)
        if sheets:
            self.node.channel("building.printing", Page).subscribe(
                lambda page: self._story.tell(self._place, f"prints {page.title}"),
                "floor = :here", **self._here, group=f"printers of {self._place}",
            )  # fmt: skip

    def welcome(self, who: str) -> None:
        """Somebody begins the day here, with a watch."""
        for what, type, where in (("mail", Mail, "to = :who"), ("jobs", Job, "owner = :who")):
            self.sinks[who, what] = self.node.channel(f"building.{what}", type).subscribe(
                self._handler(what), where, params={"who": who}, name=f"{who}'s {what}", delivery=Reliable(durable=True)
            )
        self.watches[who] = self.node.channel("building.steps", Steps).source(f"{who}'s watch")

    def _seen_elsewhere(self, sighting: Sighting) -> None:
        """Who was here goes: nothing more is handed over here, and what comes meanwhile waits."""
        who, there = sighting.who, sighting.floor
        going = {what: self.sinks.pop((who, what)) for name, what in list(self.sinks) if name == who}
        if who in self.watches:
            going["watch"] = self.watches.pop(who)
        for what, each in going.items():
            token = each.move(to=f"user:floor{there}")
            self._handover.publish(who=who, what=what, floor=there, token=token)

    def _take(self, handover: Handover) -> None:
        """Somebody has come: go on where that floor has stopped."""
        who, what = handover.who, handover.what
        if what == "watch":
            self.watches[who] = self.node.resume_source(handover.token)
        else:
            self.sinks[who, what] = self.node.resume(handover.token, self._handler(what))

    def _handler(self, what: str) -> Any:
        if what == "mail":
            return lambda mail: self._story.tell(self._place, f"mail for {mail.to}: {mail.subject}")
        return lambda job: self._printing.publish(floor=self._number, title=job.title)
