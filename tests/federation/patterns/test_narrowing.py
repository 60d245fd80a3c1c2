"""What crosses to a pattern: of those who were nowhere near, nothing; and nothing is missed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from headwater import Config, Node
from headwater.channel.time.clock import SystemClock
from headwater.federation.security.policy import Allow, Deny, Verdict
from headwater.federation.wire.past_requests import Past, PastPage, PastPart
from headwater.federation.wire.requests import Accepted
from headwater.network import Network
from headwater.security import Security
from tests.federation.clocks import UnhurriedClock
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.patterns import oracle

CHANNEL = "ie.tcd.seen"
TYPE = "who: text, room: i64"
REACTOR = "a: Seen(P, 42); b: Seen(P, *) measures b.who as who, b.room as room"
KEPT = Config(history=10_000)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Building:
    """Nodes with sightings, and a home at which a pattern runs."""

    def __init__(self, make: Nodes, names: str, config: Config = KEPT, home: Any = None, **options: Any) -> None:
        self.make = make
        self.home = make("home", listen="tcp/127.0.0.1:0", **(home or {}))
        self.home.channel(CHANNEL, TYPE)
        self.nodes = {name: make(name, config=config, **options) for name in names.split()}
        self.sources = {name: node.channel(CHANNEL, TYPE).source(f"door-{name}") for name, node in self.nodes.items()}
        make.together()
        make.ready(self.home)
        self.found: Log = Log()

    def watch(self, text: str = REACTOR, **more: Any) -> Any:
        self.watching = self.home.match(text, self.found, aliases={"Seen": CHANNEL}, **more)
        self.make.ready(self.home)
        return self.watching

    @property
    def narrowing(self) -> Any:
        return self.watching._stage.arrivals

    def narrow(self, *names: str) -> None:
        """Wait until these nodes are asked for open values only."""
        wanted = sorted(names or self.nodes)
        try:
            eventually(lambda: self.report["asked for open values"] == wanted and self.idle, timeout=GUARD)
        except AssertionError:
            raise AssertionError(f"expected {wanted} to be asked for open values, found {self.report}") from None

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.narrowing.report()
        return found

    @property
    def idle(self) -> bool:
        return bool(self.narrowing.idle)

    def results(self, count: int) -> list[tuple[str, int]]:
        """Who was seen where afterwards, once there are so many."""
        try:
            self.found.wait(count, GUARD)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.report}") from None
        return [(each.who, each.room) for each in self.found.events]

    def see(self, node: str, who: str, room: int) -> None:
        self.sources[node].publish(who=who, room=room)


def test_only_those_who_were_there_cross(make: Nodes) -> None:
    building = Building(make, "east west")
    building.watch()
    building.narrow()
    for n in range(20):
        building.see("east", f"guest {n}", n)
        building.see("west", f"guest {n}", n)
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    for n in range(20):
        building.see("west", f"guest {n}", n)
        building.see("west", "ann", n)
    assert building.results(20) == [("ann", n) for n in range(20)]
    assert (building.report["crossed"], building.report["read back"], building.report["lost"]) == (21, 0, 0)


class Slow(SystemClock):
    """Of a node whose time is behind that of the others."""

    def __init__(self, seconds: int) -> None:
        self._behind = seconds * 1_000_000

    def time(self) -> int:
        return super().time() - self._behind


class Held:
    """A step of a narrowing that waits, before it is done or after, until it is let go."""

    def __init__(self, narrowing: Any, name: str, *, after: bool = False) -> None:
        self._done, self.reached, self.go = getattr(narrowing, name), threading.Event(), threading.Event()
        self._after = after
        setattr(narrowing, name, self)

    def __call__(self, *args: Any) -> Any:
        made = self._done(*args) if self._after else None
        self.reached.set()
        assert self.go.wait(GUARD)
        return made if self._after else self._done(*args)


@pytest.mark.parametrize("after", [False, True], ids=["before the sources know", "when they know"])
def test_what_is_published_while_a_value_is_being_asked_for_is_found(make: Nodes, after: bool) -> None:
    building = Building(make, "east west")
    building.watch()
    building.narrow()
    held = Held(building.narrowing, "_ask", after=after)
    building.see("west", "ann", 1)  # before she was there
    building.see("east", "ann", 42)
    assert held.reached.wait(GUARD)
    for n in range(5):
        building.see("west", "ann", n)
        building.see("west", "bob", n)
        building.see("east", "ann", 10 + n)
    assert not building.found.events  # nothing goes past the gap
    held.go.set()
    assert sorted(building.results(10)) == sorted([("ann", n) for n in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)])
    report = building.report
    assert report["crossed"] + report["read back"] == 11 and report["lost"] == 0
    assert report["read back"] == (0 if after else 10) and report["repeated"] == 0


def test_values_that_are_bound_meanwhile_go_together(make: Nodes) -> None:
    building = Building(make, "east west")
    building.watch()
    building.narrow()
    before = building.report["rounds"]
    held = Held(building.narrowing, "_ask")
    building.see("east", "p0", 42)
    assert held.reached.wait(GUARD)
    for n in range(1, 9):
        building.see("east", f"p{n}", 42)
    for n in range(9):
        building.see("west", f"p{n}", n)
    eventually(lambda: building.report["waiting"] == 8)
    held.go.set()
    assert sorted(building.results(9)) == [(f"p{n}", n) for n in range(9)]
    eventually(lambda: building.idle)
    assert building.report["rounds"] == before + 2


def test_of_a_key_with_several_parts_some_may_be_open_already(make: Nodes) -> None:
    building = Building(make, "east west")
    building.watch(
        "a: Seen{room > 40}; b: Seen{room < 40} within 1 hour "
        "partition by who, room % 4 measures b.who as who, b.room as room"
    )
    building.narrow()
    building.see("east", "ann", 42)
    building.see("east", "bob", 41)
    eventually(lambda: sum(building.report["open"].values()) == 4 and building.idle)
    held = Held(building.narrowing, "_ask")
    building.see("east", "cid", 42)  # whose room is open, but for another
    assert held.reached.wait(GUARD)
    building.see("west", "cid", 2)
    building.see("west", "cid", 3)
    building.see("west", "dan", 2)
    held.go.set()
    assert building.results(1) == [("cid", 2)]
    assert (building.report["crossed"], building.report["read back"], building.report["lost"]) == (3, 1, 0)


def test_a_value_that_is_open_may_have_been_bound_before(make: Nodes) -> None:
    """Of two events that bind it, the later one may come first: what is between them is wanted as well."""
    building = Building(make, "east")
    for name, seconds in (("west", 7200), ("north", 3600)):
        building.nodes[name] = node = make(name, config=KEPT, clock=Slow(seconds))
        building.sources[name] = node.channel(CHANNEL, TYPE).source(f"door-{name}")
    make.together()
    make.ready(building.home)
    building.watch(REACTOR.replace("measures", "within 1 day measures"))
    building.narrow()
    building.see("north", "ann", 7)
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    building.see("west", "ann", 42)
    eventually(lambda: building.report["read back"] == 1 and building.idle)
    assert (building.report["crossed"], building.report["repeated"], building.report["lost"]) == (2, 0, 0)


def test_a_node_that_keeps_no_past_sends_all_that_may_matter(make: Nodes) -> None:
    building = Building(make, "east west", config=Config())
    building.watch()
    eventually(lambda: set(building.report["asked for all"]) == {"east", "west"})
    assert "keeps no past" in building.report["asked for all"]["west"]
    for n in range(5):
        building.see("west", "bob", n)
    building.see("east", "ann", 42)
    building.see("west", "ann", 7)
    assert building.results(1) == [("ann", 7)]
    assert building.report["crossed"] == 7


def test_what_is_gone_by_then_is_counted(make: Nodes) -> None:
    building = Building(make, "east west", config=Config(history=4))
    building.watch()
    building.narrow()
    held = Held(building.narrowing, "_ask")
    building.see("east", "ann", 42)
    assert held.reached.wait(GUARD)
    for n in range(10):
        building.see("west", "ann", n)
    held.go.set()
    assert building.results(4) == [("ann", n) for n in (6, 7, 8, 9)]
    assert building.report["lost"] == 6


def test_values_are_forgotten_when_their_window_has_passed(make: Nodes) -> None:
    clock = UnhurriedClock()
    building = Building(make, "east west", home={"clock": clock}, clock=clock)
    building.watch("a: Seen(P, 42); b: Seen(P, *) within 1 second measures b.who as who, b.room as room")
    building.narrow()
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    building.see("west", "ann", 1)
    assert building.results(1) == [("ann", 1)]
    first = building.narrowing._open["open_1"]["ann"]
    clock.advance(1.2)
    eventually(lambda: building.narrowing._sure() > first + 1_100_000)
    building.see("east", "bob", 42)
    eventually(lambda: list(building.narrowing._open["open_1"]) == ["bob"] and building.idle)
    building.see("west", "ann", 2)
    building.see("west", "bob", 3)
    assert building.results(2) == [("ann", 1), ("bob", 3)]
    assert building.report["crossed"] == 4


def test_nodes_that_come_later_are_asked_too(make: Nodes) -> None:
    building = Building(make, "east")
    building.watch()
    building.narrow()
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    west = building.nodes["west"] = make("west", config=KEPT)
    building.sources["west"] = west.channel(CHANNEL, TYPE).source("door-west")
    make.together()
    make.ready(building.home)
    building.narrow("east", "west")
    building.see("west", "bob", 1)
    building.see("west", "ann", 2)
    building.see("west", "cid", 42)
    building.see("east", "cid", 3)
    assert sorted(building.results(2)) == [("ann", 2), ("cid", 3)]
    assert building.report["crossed"] + building.report["read back"] == 4


def test_a_pattern_that_is_changed_asks_anew(make: Nodes) -> None:
    building = Building(make, "east west")
    watch = building.watch(REACTOR.replace("42", ":room"), params={"room": 42})
    building.narrow()
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    building.see("west", "ann", 1)
    assert building.results(1) == [("ann", 1)]
    watch.change(params={"room": 43})
    eventually(lambda: building.report["open"] == {"P of the key": 0})
    building.narrow()
    before = building.report["crossed"]
    building.see("west", "ann", 2)
    building.see("east", "ann", 42)
    building.see("east", "bob", 43)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    building.see("west", "ann", 3)
    building.see("west", "bob", 4)
    assert building.results(2) == [("ann", 1), ("bob", 4)]
    assert building.report["crossed"] - before == 2


def test_a_change_while_values_are_being_asked_for_drops_them(make: Nodes) -> None:
    building = Building(make, "east west")
    watch = building.watch(REACTOR.replace("42", ":room"), params={"room": 42})
    building.narrow()
    held = Held(building.narrowing, "_missed")
    building.see("east", "ann", 42)
    assert held.reached.wait(GUARD)
    building.see("west", "ann", 1)
    watch.change(params={"room": 43})
    held.go.set()
    building.narrow()
    building.see("east", "bob", 43)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    building.see("west", "ann", 3)
    building.see("west", "bob", 4)
    assert building.results(1) == [("bob", 4)]


# ── those who may not, and those who do not as they should ──


class NoCode:
    """Everything but interests of others."""

    def decide(self, principal: Any, action: str, channel: str, on_behalf_of: str = "") -> Verdict:
        return Deny("no code here") if action == "install" else Allow("yes")

    def decide_some(self, principal: Any, action: str, pattern: Any) -> Verdict:
        return Allow("some")

    def open_to_all(self, action: str, channel: str) -> bool:
        return action != "install"

    def seen_by(self, principal: Any) -> Any:
        return lambda name: True

    def hides_from(self, principal: Any) -> bool:
        return False

    def deals_with(self, principal: Any, action: Any = None) -> bool:
        return True


def test_a_node_that_lets_nobody_install_sends_everything(make: Nodes) -> None:
    building = Building(make, "east west", network=Network(security=Security(policy=NoCode())))
    building.watch()
    eventually(lambda: set(building.report["asked for all"]) == {"east", "west"})
    assert "no code here" in building.report["asked for all"]["west"]
    building.see("west", "bob", 1)
    building.see("east", "ann", 42)
    building.see("west", "ann", 7)
    assert building.results(1) == [("ann", 7)]


@pytest.mark.parametrize("step", [";", ","])
def test_a_node_that_lets_nobody_install_goes_on_sending_while_others_are_asked_for_open_values(
    make: Nodes, step: str
) -> None:
    """It refuses each change: what it publishes meanwhile, and afterwards, is not lost."""
    building = Building(make, "east")
    west = make("west", config=KEPT, network=Network(security=Security(policy=NoCode())))
    building.sources["west"] = west.channel(CHANNEL, TYPE).source("door-west")
    make.together()
    building.watch(f"a: Seen(P, 42){step} b: Seen(P, 7) within 1 hour measures b.who as who, b.room as room")
    building.narrow("east")
    eventually(lambda: list(building.report["asked for all"]) == ["west"], "that west is asked for all", GUARD)
    assert building.home._engine is not None
    requester, seen = building.home._engine.requester, list[str]()
    answered = requester._answered

    def meanwhile(peer: Any, channel: Any, asked: Any, version: int, demand: Any, answer: Any, changed: Any) -> None:
        if peer.name == "west" and answer.refused and not seen:
            seen.append("ann")
            building.see("west", "ann", 7)
        answered(peer, channel, asked, version, demand, answer, changed)

    requester._answered = meanwhile  # type: ignore[method-assign]
    building.see("east", "ann", 42)
    assert building.results(1) == [("ann", 7)] and seen
    building.narrow("east")
    building.see("east", "bob", 42)
    building.narrow("east")
    building.see("west", "bob", 7)
    assert building.results(2) == [("ann", 7), ("bob", 7)]


def answer_past(node: Node, answer: Callable[[Past], Any]) -> None:
    """Have a node answer otherwise than it should, once a source is asked."""
    assert node._engine is not None
    known = node._engine.requests._known
    decode, honest = known["Past"]
    known["Past"] = decode, lambda caller, asked: answer(asked) if asked.sources else honest(caller, asked)


def page(asked: Past, off: int, *events: Any) -> PastPage:
    """Of the first source, up to a number that is off by so many."""
    return PastPage(True, [PastPart(asked.sources[0].sid, max(0, asked.sources[0].upto + off), *events)])


@pytest.mark.parametrize(
    ("answer", "offence"),
    [
        (lambda asked: PastPage(True), True),
        (lambda asked: page(asked, 1), True),
        (lambda asked: page(asked, -asked.sources[0].upto), True),
        (lambda asked: page(asked, 0, [1], [asked.since], []), True),
        (lambda asked: page(asked, 0, [1], [asked.since], [b"nonsense"]), True),
        (lambda asked: page(asked, 0, [2, 1], [asked.since] * 2, [b"", b""]), True),
        (lambda asked: page(asked, 0, [1], [1], [b""]), True),
        (lambda asked: PastPage(True, page(asked, 0).parts * 2), True),
        (lambda asked: PastPage(True, [PastPart(asked.sources[0].sid, asked.sources[0].upto, error="odd")]), False),
        (lambda asked: Accepted(error="not today"), False),
    ],
    ids=["none", "beyond", "backwards", "half", "nonsense", "no order", "older", "twice", "of none", "refused"],
)
def test_a_node_that_answers_half_keeps_nobody_waiting(
    make: Nodes, answer: Callable[[Past], Any], offence: bool
) -> None:
    building = Building(make, "east west")
    building.watch()
    building.narrow()
    building.see("west", "ann", 0)
    answer_past(building.nodes["west"], answer)
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.idle)
    building.see("west", "ann", 7)
    assert building.results(1) == [("ann", 7)]
    assert building.report["lost"] == 1 and "west" in building.report["problems"]
    assert bool(building.home.federation_report().offences) is offence


# ── everything at once ──


@pytest.mark.parametrize("text", [
    REACTOR,
    "a: Seen{room = 42}; b: Seen{who = a.who} within 10 seconds measures b.who as who, b.room as room",
    "a: Seen(P, 42) -> b: Seen(P, 7); without Seen(P, 8) within 100 milliseconds measures b.who as who, b.room as room",
])  # fmt: skip
def test_it_finds_what_the_definition_says(make: Nodes, text: str) -> None:
    building = Building(make, "n1 n2 n3")
    building.watch(text)
    building.narrow()
    random = Random(15)
    for _ in range(240):
        room = random.choice((42, 7, 8, 9, 10))
        building.see(random.choice(("n1", "n2", "n3")), random.choice("abcdefgh"), room)
        if random.random() < 0.05:
            eventually(lambda: building.idle)
    events = []
    for node, source in building.sources.items():
        channel = building.nodes[node].channel(CHANNEL)
        for stretch in channel.backlog.read(source.name):
            for seq, stamp, record in stretch.events():
                fields = channel.type.decode_raw(record)
                events.append(
                    {"channel": CHANNEL, "source": source.name, "seq": seq, "time": stamp // 1000, "fields": fields}
                )
    expected = sorted(
        (match.result["who"], match.result["room"]) for match in oracle.matches(building.watching.pattern.model, events)
    )
    assert sorted(building.results(len(expected))) == expected
    report = building.report
    taken = report["crossed"] + report["read back"] - report["repeated"]  # what has come may be read back as well
    assert taken <= len(events) and not report["lost"]
