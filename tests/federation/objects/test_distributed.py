"""Triggers over values of several nodes: they fire as if one node saw everything, once, and say when nobody knows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event
from headwater.errors import HeadwaterWarning, InterestError, ObjectError, TransactionError
from headwater.federation.objects import zone_carrier
from headwater.federation.peers.post_registry import post
from headwater.federation.wire import zone_posts as wire
from headwater.objects.zones.messages import Ask, Moves, Report, Standing, Zone
from headwater.objects.zones.ranges import Bounds, Only
from headwater.security import Deny
from tests.federation.nodes import Log, Nodes, eventually, nodes
from tests.federation.objects.distributed import Fleet, decided, silent
from tests.federation.objects.plant import Rights


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_it_fires_when_it_becomes_true_wherever_the_values_are(make: Nodes, tmp_path: Path) -> None:
    """Silent updates count; the action and the notification are those of any trigger, and few messages cross."""
    fleet = Fleet(make, tmp_path)
    trigger = fleet.install()
    told: Log[Event] = Log()
    trigger.subscribe(told)
    decided(trigger, False)
    watches = fleet.nodes["north"].objects.watches
    ((place, _),) = watches
    eventually(lambda: silent(fleet, "far") and watches.owner(place).silent)
    zone, reported = watches.owner(place).zone, watches.reported
    assert zone is not None
    for n in range(100):  # as far as nobody has to know
        fleet.move("north", x=(zone[0].high if n % 2 else zone[0].low), event=n % 3 == 0)
    assert watches.reported == reported
    fleet.move("north", x=100.0)
    fleet.move("north", x=101.0, event=False)
    assert [(event.ax, event.bx) for event in told.wait(1)] == [(101.0, 0.0)]
    eventually(lambda: fleet.count == 1)
    fleet.move("south", x=50.0)
    decided(trigger, False)
    fleet.move("south", x=-50.0)
    eventually(lambda: fleet.count == 2)
    report = trigger.report()
    assert report["fired"] == 2 and report["unknown_since"] is None and report["failed"] == 0
    assert report["changes"] > 100
    explained = trigger.explain()
    assert "fires when it becomes true that abs(a.x - b.x) > :d" in explained and "north tells a.x" in explained
    assert re.search(r"decided through \d{4}-\d\d-\d\d \d\d:\d\d", explained)


def test_conjuncts_of_one_node_are_decided_there(make: Nodes, tmp_path: Path) -> None:
    """Only changes of their truth cross; a text of which nobody else learns anything."""
    fleet = Fleet(make, tmp_path)
    trigger = fleet.install(where="a.armed and a.label = :label and b.x > 10", params={"label": "x"}, notify=True)
    decided(trigger, False)
    for n in range(20):
        fleet.move("north", label=f"label {n}", x=float(n))
    fleet.move("north", label="x")
    fleet.move("south", x=11.0)
    eventually(lambda: fleet.count == 1)
    assert trigger.report()["changes"] <= 5  # of truths, among more than twenty of values
    assert "north alone decides a.armed" in trigger.explain() and "north tells" not in trigger.explain()


def test_the_home_may_be_one_of_the_owners(make: Nodes, tmp_path: Path) -> None:
    fleet = Fleet(make, tmp_path, ["north"])
    fleet.create("desk")
    trigger = fleet.install(inputs={"a": "//north/car", "b": "car"})
    decided(trigger, False)
    fleet.move("north", x=60.0)
    fleet.move("desk", x=-60.0)
    eventually(lambda: fleet.count == 1)


def test_each_event_and_the_simple_scheme(make: Nodes, tmp_path: Path) -> None:
    """Where zones are of no use, every change crosses, and it says so; events count, silent updates do not fire."""
    fleet = Fleet(make, tmp_path)
    with pytest.warns(HeadwaterWarning, match="every change crosses"):
        each = fleet.install("each", where="a.x + b.x > :d", when="each", on=["//north/car"], notify={"x": "a.x"})
    simple = fleet.install("simple", scheme="simple", do=())
    told: Log[Event] = Log()
    each.subscribe(told)
    decided(each, False)
    decided(simple, False)
    fleet.move("south", x=200.0)
    for x, event in ((1.0, True), (2.0, False), (3.0, True)):
        fleet.move("north", x=x, event=event)
    assert [event.x for event in told.wait(2)] == [1.0, 3.0]
    decided(simple, True)
    assert simple.report()["zones"] == 0 and simple.report()["scheme"] == "simple"
    assert simple.report()["received"] >= 4


def test_a_node_that_is_away_makes_it_unknown_and_all_is_known_again(make: Nodes, tmp_path: Path) -> None:
    """With the time since when, and whom nothing is heard of; what happened meanwhile is not missed."""
    fleet = Fleet(make, tmp_path)
    trigger = fleet.install()
    certainty: Log[Event] = Log()
    trigger.certainty.subscribe(certainty, "not known and why like '%north%' or known and since > unknown_since")
    decided(trigger, False)
    fleet.close("north")
    eventually(lambda: trigger.unknown_since is not None)
    assert trigger.holds in (None, False)
    said = [event for event in certainty.events if not event.known]
    eventually(lambda: any("north" in (event.why or "") for event in certainty.events if not event.known))
    fleet.open("north")
    fleet.move("north", x=500.0)
    eventually(lambda: fleet.count == 1)
    decided(trigger, True)
    assert trigger.unknown_since is None and trigger.report()["unknown_seconds"] >= 0
    assert said is not None


def test_an_owner_that_never_was_is_waited_for(make: Nodes, tmp_path: Path) -> None:
    """With the type given, the trigger is there before its owner; that nothing is known is said, and who is missing."""
    fleet = Fleet(make, tmp_path, ["south"])
    trigger = fleet.install(inputs={"a": ("//north/car", "Car"), "b": "//south/car"})
    eventually(lambda: trigger.unknown_since is not None)
    assert trigger.holds is None and "north has not answered yet" in trigger.explain()
    fleet.open("north")
    decided(trigger, False)  # there is no car yet
    fleet.create("north", x=101.0)
    eventually(lambda: fleet.count == 1)


def test_a_home_that_was_away_fires_once_for_what_happened_meanwhile(make: Nodes, tmp_path: Path) -> None:
    """The owners remember it, and everything is in the file."""
    fleet = Fleet(make, tmp_path)
    trigger = fleet.install()
    decided(trigger, False)
    fleet.move("north", x=150.0)
    eventually(lambda: fleet.count == 1)
    endpoint = fleet.nodes["desk"].endpoints[0]
    fleet.close("desk")
    fleet.move("north", x=0.0)
    fleet.move("south", x=150.0)
    fleet.open("desk", listen=endpoint)
    eventually(lambda: fleet.count == 2)
    trigger = fleet.desk.triggers["far"]
    decided(trigger, True)
    assert fleet.count == 2


def test_a_home_begins_again_as_its_program_says_while_an_owner_is_away(make: Nodes, tmp_path: Path) -> None:
    """A program installs its triggers when it starts. Types of owners that are away are those that it had."""
    fleet = Fleet(make, tmp_path)
    fleet.install()
    before = fleet.desk.engine.triggers.found("far").trigger
    endpoint = fleet.nodes["desk"].endpoints[0]
    fleet.close("desk")
    fleet.close("north")
    fleet.open("desk", listen=endpoint)
    trigger = fleet.install()
    assert fleet.desk.engine.triggers.found("far").trigger == before and list(fleet.desk.triggers) == ["far"]
    fleet.open("north")
    decided(trigger, False)  # what is so when it is first known has not become so
    fleet.move("north", x=150.0)
    eventually(lambda: fleet.count == 1)


def test_other_parameters_count_from_then_on_and_what_is_removed_ends_everywhere(make: Nodes, tmp_path: Path) -> None:
    fleet = Fleet(make, tmp_path)
    trigger = fleet.install()
    decided(trigger, False)
    fleet.move("north", x=50.0)
    trigger.change(params={"d": 40.0})
    decided(trigger, True)
    fleet.move("north", x=0.0)
    decided(trigger, False)
    fleet.move("north", x=45.0)
    eventually(lambda: fleet.count == 1)
    watches = [fleet.nodes[name].objects.watches for name in ("north", "south")]
    eventually(lambda: [len(each) for each in watches] == [1, 1])  # the first ones are over
    trigger.disable()
    eventually(lambda: [len(each) for each in watches] == [0, 0])
    trigger.enable()
    decided(trigger, True)
    trigger.remove()
    eventually(lambda: [len(each) for each in watches] == [0, 0])
    assert not len(fleet.desk.homes)


def test_an_equal_one_is_that_one_and_objects_that_come_and_go_are_missing(make: Nodes, tmp_path: Path) -> None:
    fleet = Fleet(make, tmp_path)
    trigger = fleet.install(where="b.x > 10 and not (a.x > 5)", inputs={"a": "//north/car", "b": "//south/car"})
    assert fleet.install("again", where="b.x > 10 and not (a.x > 5)").name == trigger.name
    decided(trigger, False)
    fleet.move("south", x=20.0)
    eventually(lambda: fleet.count == 1)
    with fleet.nodes["north"].objects.transaction() as t:
        t.destroy("car")  # missing is neither more than 5 nor not
    decided(trigger, False)
    fleet.create("north")
    eventually(lambda: fleet.count == 2)
    with fleet.nodes["north"].objects.transaction() as t:
        t.destroy("car")
        fleet.nodes["north"].objects.type("Other", "x: f64")
        t.create("car", "Other", x=0.0)
    decided(trigger, False)


def test_what_is_wrong_is_said_before_anything_is_sent(make: Nodes, tmp_path: Path) -> None:
    fleet = Fleet(make, tmp_path)
    fleet.install()
    inputs = {"a": "//north/car", "b": "//south/car"}
    for error, text, given in (
        (ObjectError, "all inputs, or nothing", {"on": "//north/car"}),
        (ObjectError, "objects that are inputs", {"on": "every 10 s"}),
        (ObjectError, "there is no transaction here", {"coupling": "within"}),
        (ObjectError, "expected 'report'", {"on_failure": "abort turn"}),
        (ObjectError, "'zones' or 'simple'", {"scheme": "boxes"}),
        (ObjectError, "no member 'z'", {"inputs": {**inputs, "a": "//north/car.z"}}),
        (ObjectError, "expected an object that this node may read", {"inputs": {**inputs, "a": "//north/none"}}),
        (InterestError, "nothing", {"where": "abs(a.x - nothing.x) > 1"}),
        (ObjectError, "which it does not", {"inputs": {**inputs, "c": "//north/car.y"}}),
        (TransactionError, "no text of this trigger reads :d", {"where": "a.x > b.x", "params": {"d": 1.0}}),
        (TransactionError, "has no field 'c'", {"notify": {"c": "c.x"}}),
    ):
        with pytest.raises(error, match=text):
            fleet.install("wrong", **given)  # type: ignore[arg-type]
    assert list(fleet.desk.triggers) == ["far"]


def test_a_home_has_watched_only_what_it_may_and_as_long_as_it_may(
    make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zone_carrier, "RENEW_BEATS", 2)
    rights = Rights()
    fleet = Fleet(make, tmp_path, north={"security": {"policy": rights}})
    trigger = fleet.install()
    decided(trigger, False)
    rights.no = {("install", "objects.Car"): Deny("no")}
    eventually(lambda: trigger.unknown_since is not None and "north" in trigger.report().get("refused", {}))
    assert len(fleet.nodes["north"].objects.watches) == 0
    assert "any more" in trigger.explain() or "install" in trigger.explain()
    rights.no = {}
    decided(trigger, False)
    rights.no = {("subscribe", "objects.Car"): Deny("no")}
    with pytest.raises(ObjectError, match="may read"):
        fleet.install("other", where="a.x > b.x")


def test_what_nobody_renews_ends(make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that was removed while an owner could not hear of it, or whose home never comes back."""
    fleet = Fleet(make, tmp_path)
    decided(fleet.install(), False)
    watches = fleet.nodes["north"].objects.watches
    assert len(watches) == 1
    fleet.close("desk")
    monkeypatch.setattr(zone_carrier, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr(zone_carrier, "RENEW_BEATS", 2)
    eventually(lambda: len(watches) == 0)


def _peer(fleet: Fleet, of: str, name: str) -> Any:
    engine: Any = fleet.nodes[of]._engine
    return next(each for each in engine.everyone() if each.name == name)


def test_an_insider_harms_nobody_but_conditions_over_its_own_values(make: Nodes, tmp_path: Path) -> None:
    """Forged terms, other nodes' triggers, zones of other widths, values of other types, times that cannot be."""
    fleet = Fleet(make, tmp_path, ["north", "south", "enemy"])
    trigger = fleet.install()
    decided(trigger, False)
    home = fleet.desk.homes.named("far")
    assert home is not None
    key, enemy = home.key, _peer(fleet, "enemy", "north")
    far = 1 << 62
    wide = (Bounds(-1e9, 1e9),)
    to_owner = [
        wire.Told(key, Ask(far, far, 0, 0)),  # it is another one's trigger: keys are known by who asks
        wire.Told(key, Zone(far, far, wide)),
        wire.End(key),
        wire.Watch(bytes(16), b"\xc1"),
        wire.Watch(bytes(16), b""),
        wire.Renew((key,)),
    ]
    fleet.nodes["enemy"]._zones.carrier._links.connect(enemy)  # type: ignore[union-attr]
    eventually(lambda: enemy.link is not None)
    for said in to_owner:
        assert post(enemy, wire.KIND, wire.encode(said))
    desk = _peer(fleet, "enemy", "desk")
    fleet.nodes["enemy"]._zones.carrier._links.connect(desk)  # type: ignore[union-attr]
    eventually(lambda: desk.link is not None)
    standing = Standing(1, 1, far, far, True, 1, far)
    assert post(desk, wire.KIND, wire.encode(wire.Said(key, Report(standing, (1e9,), True, Moves(1, (1.0,))))))
    assert post(desk, wire.KIND, b"\xc1")
    assert post(desk, "what nobody takes", b"x")
    eventually(lambda: fleet.desk.homes.strange > 0)
    lying = _peer(fleet, "north", "desk")
    now = home.coordinator.decided
    term = home.coordinator.snapshot().term
    for values, stamp in ((("x",), now), ((1e9,), far), ((1.0, 2.0), now), ((True,), now)):
        said = wire.Said(key, Report(Standing(1, 99, term, 1, False, 1, stamp), values, True, Moves(1, (1.0,))))
        assert post(lying, wire.KIND, wire.encode(said))
    eventually(lambda: fleet.desk.homes.strange >= 5)
    fleet.move("south", x=101.0)
    eventually(lambda: fleet.count == 1)  # it goes on
    assert len(fleet.nodes["north"].objects.watches) == 1
    engine: Any = fleet.nodes["desk"]._engine
    assert engine.posts.unknown == 1


def test_a_home_that_asks_for_too_much_is_refused(make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of triggers of each node; what is refused is told, and the others go on."""
    monkeypatch.setattr("headwater.objects.zones.watches.MOST_WATCHES", 1)
    fleet = Fleet(make, tmp_path)
    first = fleet.install()
    decided(first, False)
    second = fleet.install("second", where="a.x > b.x + 1")
    eventually(lambda: "at most 1 triggers" in second.report().get("refused", {}).get("north", ""))
    fleet.move("north", x=101.0)
    eventually(lambda: fleet.count == 1)


def test_what_checking_takes_is_the_homes(make: Nodes, tmp_path: Path) -> None:
    """Beyond its budget it is told to come later, and gets it when there is some again."""
    fleet = Fleet(make, tmp_path)
    first = fleet.install()
    decided(first, False)
    carrier = fleet.nodes["north"]._zones.carrier  # type: ignore[union-attr]
    carrier._budgets.spend(fleet.nodes["desk"].id, 2.0)
    second = fleet.install("second", where="a.x > b.x + 1")
    eventually(lambda: "processor time" in second.report().get("refused", {}).get("north", ""))
    carrier._budgets.spend(fleet.nodes["desk"].id, -2.0)
    decided(second, False)
    assert not second.report().get("refused")


def test_an_action_that_goes_too_far_is_told_and_not_tried_again(make: Nodes, tmp_path: Path) -> None:
    """Its turn is undone, what was decided is not."""
    from headwater.objects.turn import Cascades

    fleet = Fleet(make, tmp_path)
    trigger = fleet.install(do=lambda t: t.update("log", {"count": t.read("log.count") + 1}, event=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadwaterWarning)
        fleet.desk.trigger(
            "loop", on="log", when="each", do=lambda t: t.update("log", {"count": t.new.count + 1}, event=True)
        )
    fleet.desk.cascades = Cascades(depth=5)
    decided(trigger, False)
    fleet.move("north", x=101.0)
    eventually(lambda: trigger.report()["failed"] == 1)
    decided(trigger, True)
    assert fleet.count == 0 and "deep" in trigger.report()["failure"]
    fleet.desk.triggers["loop"].remove()
    fleet.move("north", x=0.0)
    decided(trigger, False)
    fleet.move("north", x=102.0)
    eventually(lambda: fleet.count == 1)


def test_a_node_without_a_network_says_so(tmp_path: Path) -> None:
    from headwater import Node

    with Node("desk", state=tmp_path / "desk.state") as desk, pytest.raises(ObjectError, match="no network"):
        desk.objects.trigger("far", when="becomes", where="a.x > 1", inputs={"a": "//north/car"}, notify=True)


def test_posts_survive_their_own_form() -> None:
    """An answer that is too long says less of the past."""
    from headwater.objects.zones.messages import Answer, Item

    items = tuple(Item(n, (Only("x" * 2000),)) for n in range(256))
    answer = wire.Said(bytes(16), Answer(Standing(1, 1, 1, 1, False, 1, 300), 0, items, Moves(0, (0.0,))))
    found = wire.decode(wire.encode(answer))
    assert isinstance(found, wire.Said) and isinstance(found.message, Answer)
    assert 0 < len(found.message.items) < 256 and found.message.items[-1] == items[-1]
    assert found.message.since == found.message.items[0].start
