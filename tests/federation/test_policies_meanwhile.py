"""A policy is set just after something was judged by the one before, and before it is in force: it is judged again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from headwater import Node
from headwater.bridges.mapping import Mapping
from headwater.errors import FederationError
from headwater.federation.objects import trigger_server
from headwater.policy import ChannelPolicy, Clause
from tests.bridges.test_policy import Reading, Shelf
from tests.bridges.test_policy import policy as readings
from tests.federation.groups.test_groups import Job, Worker, counts, numbers
from tests.federation.groups.test_groups import publish as publish_jobs
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.federation.objects.plant import Plant
from tests.federation.test_policies_in_force import CHANNEL as DOORS
from tests.federation.test_policies_in_force import HIDES, opened, seen
from tests.federation.test_policies_in_force import TYPE as DOOR
from tests.federation.test_policies_in_force import publish as publish_sightings
from tests.federation.test_policy_ways_out import CHANGE, CHANNEL, TYPE, policy, publish


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Meanwhile:
    """A policy that a thread of its own sets before a step is done for the first time; whoever is told of policies is
    told of it before the step, as far as it is there by then."""

    def __init__(self, node: Node, policy: ChannelPolicy, patch: pytest.MonkeyPatch, place: Any, step: str) -> None:
        self._node, self._policy, self._done = node, policy, getattr(place, step)
        self._told, self._setting = Event(), list[Thread]()
        assert node._policies is not None
        node._policies.watch(lambda concerns, backlog: self._told.set())
        patch.setattr(place, step, self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not self._setting:
            setting = Thread(target=self._node.policies.set, args=(self._policy,))
            setting.start()
            self._setting.append(setting)
            assert self._told.wait(GUARD)
        return self._done(*args, **options)

    def join(self) -> None:
        """Until it is set."""
        eventually(lambda: bool(self._setting))
        self._setting[0].join(GUARD)
        assert not self._setting[0].is_alive()


def test_a_wish(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in force are judged anew before this one is, and it is put in force before they are."""
    lab = opened(make, "lab")
    source = lab.channel(DOORS, DOOR).source("door")
    engine: Any = lab._engine
    changes, looked, setting = engine.rejudgement._changes, Event(), list[Thread]()

    def look(*args: Any) -> Any:
        found = changes(*args)
        looked.set()
        return found

    grant = engine.installer.granting.grant

    def granted(*args: Any) -> Any:
        if not setting:
            made = Thread(target=lab.policies.set, args=(HIDES,))
            made.start()
            setting.append(made)
            assert looked.wait(GUARD)
        return grant(*args)

    monkeypatch.setattr(engine.rejudgement, "_changes", look)
    monkeypatch.setattr(engine.installer.granting, "grant", granted)
    log = Log()
    opened(make, "bob").channel(DOORS, DOOR).subscribe(log)
    make.together()
    make.ready()
    setting[0].join(GUARD)
    assert not setting[0].is_alive()
    publish_sightings(source)
    make.flush()
    assert seen(log, 4) == [1, 4, 7, 10]


def test_a_pattern_of_another_node(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, desk = make("lab"), make("desk")
    source = lab.channel(CHANNEL, TYPE).source("door")
    make.together()
    assert desk.until(lambda: bool(desk.remote_sources(CHANNEL)), GUARD)
    meanwhile = Meanwhile(lab, policy("n < 10 or n > 20"), monkeypatch, lab._patterns, "_make")
    text = f"x: {CHANNEL}{{n % 10 = 1}}; y: {CHANNEL}{{n = x.n + 3}} within 1 hour measures y.n as n"
    desk.pattern("found", text, at="lab")
    meanwhile.join()
    log = Log()
    desk.channel("found").subscribe(log)
    make.ready(desk)
    publish(source, 0, 30)
    log.until(lambda events: any(each.n == 24 for each in events))
    assert log.field("n") == [4, 24]
    assert lab.report().services["patterns"]["ended"] == {}


def test_a_member_of_a_group(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = opened(make, "lab")
    source = lab.channel("jobs", Job).source()
    few = ChannelPolicy(name="few", channel="jobs", type=Job, clauses=[Clause(who="desk", show="number < 5")])
    lanes: Any = lab._group_lanes
    meanwhile = Meanwhile(lab, few, monkeypatch, lanes._groups, "join")
    desk, worker = opened(make, "desk"), Worker()
    member = desk.channel("jobs", Job).subscribe(worker, group="workers")
    meanwhile.join()
    eventually(lambda: counts(lab)["members"] == 1 and not member.refused)
    publish_jobs(source, 10)
    eventually(lambda: numbers(worker) == list(range(5)))
    make.flush()
    assert numbers(worker) == list(range(5))


@pytest.mark.parametrize("step", ["installing", "changing"])
def test_a_trigger_of_another_node(make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=1.0)
    low = policy("new.level < 2", "objects.Tank", CHANGE)
    about = {"on": "tank", "when": "each", "where": "new.level > 5", "notify": {"level": "new.level"}}
    if step == "changing":
        trigger = plant.remote.trigger("high", **about)
        trigger.change(enabled=False)
    meanwhile = Meanwhile(plant.owner, low, monkeypatch, trigger_server, step)
    with pytest.raises(FederationError, match="which it may watch"):
        if step == "changing":
            trigger.change(enabled=True)
        else:
            plant.remote.trigger("high", **about)
    meanwhile.join()
    [found] = plant.objects.engine.triggers.registry
    assert not found.trigger.enabled


def test_a_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = Mapping("screens/{room}", "readings", direction="out", payload="text:number")
    with Node("hall", listen="127.0.0.1:0") as node:
        source = node.channel("readings", Reading).source()
        shelf = Shelf(node, mapping)
        even = readings(Clause(who="kind:bridge", show="number % 2 = 0"), Clause(show="true"))
        shown = shelf._shown

        def asked(outgoing: Any) -> Any:
            found = shown(outgoing)
            if not node.policies.list():
                node.policies.set(even)
            return found

        monkeypatch.setattr(shelf, "_shown", asked)
        node.services.add(shelf)
        for number in range(11):
            source.publish(room="lab", number=number)
        eventually(lambda: b"10" in shelf.shelf)
        assert [int(each) for each in shelf.shelf] == [0, 2, 4, 6, 8, 10]
