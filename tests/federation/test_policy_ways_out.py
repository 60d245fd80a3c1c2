"""Wherever events come out, a policy holds: multicast, gateways, objects, triggers, patterns, recorded events."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headwater import Node
from headwater.errors import FederationError, ObjectError
from headwater.federation.address_map import HashedGroups
from headwater.federation.gateway.gateway import Gateway
from headwater.federation.network import Network
from headwater.federation.objects import zone_carrier
from headwater.federation.wire.object_requests import HoldReplica, ReadReplica
from headwater.federation.wire.requests import unpack_type
from headwater.objects.replicas import spec as specs
from headwater.policy import ChannelPolicy, Clause, Identity, Location, shown
from headwater.spark.backtest import Subscription, backtest
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.federation.objects.plant import Plant

CHANNEL, TYPE = "t.sighting", "who: text, n: u32"
_PORTS = count(41_000 + os.getpid() % 10_000)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def policy(show: str, channel: str = CHANNEL, type: Any = TYPE, **more: Any) -> ChannelPolicy:
    return ChannelPolicy(name="p", channel=channel, type=type, clauses=[Clause(show=show)], **more)


def publish(source: Any, start: int, end: int) -> None:
    for n in range(start, end):
        source.publish(who="ann", n=n)


def see_source(node: Node, channel: str) -> None:
    assert node.until(lambda: bool(node.remote_sources(channel)), GUARD), f"{node}: no source of {channel}"


def test_a_channel_leaves_its_multicast_group_when_a_policy_comes(make: Nodes) -> None:
    shared = Network(multicast=HashedGroups(port=next(_PORTS), base="239.255.78.0"))
    lab = make("lab", network=shared, listen="tcp/127.0.0.1:0")
    source = lab.channel(CHANNEL, TYPE).source("door")
    logs = [Log(), Log()]
    desks = [make(f"desk{n}", network=shared, connect=lab.endpoints[0]) for n in range(2)]
    for desk, log in zip(desks, logs, strict=True):
        desk.channel(CHANNEL, TYPE).subscribe(log)
    make.ready(*desks)
    publish(source, 0, 4)
    for log in logs:
        log.wait(4)
    engine: Any = lab._engine
    peers = [engine.peers[desk.id] for desk in desks]
    assert all(peer.crossings[CHANNEL].share is not None for peer in peers)
    # Datagrams are for all who have the key: nothing that is hidden from somebody may be in one.
    lab.policies.set(policy("n % 2 = 0"))
    publish(source, 4, 8)
    assert all(CHANNEL not in peer.crossings or peer.crossings[CHANNEL].share is None for peer in peers)
    eventually(lambda: all(CHANNEL in peer.crossings and peer.crossings[CHANNEL].wishes for peer in peers))
    for desk in desks:
        assert desk.ready(GUARD)
    publish(source, 8, 12)
    for log in logs:
        eventually(lambda log=log: 10 in log.field("n"))
        assert not {5, 7, 9, 11} & set(log.field("n"))


def test_a_gateway_gets_what_is_its_own_and_its_policies_hold_on_the_other_side() -> None:
    with Node("a0", listen="tcp/127.0.0.1:0", federation="a") as a0, \
         Node("a1", connect=a0.endpoints[0], federation="a") as a1, \
         Node("b0", listen="tcp/127.0.0.1:0", federation="b") as b0, \
         Node("b1", connect=b0.endpoints[0], federation="b") as b1:  # fmt: skip
        source = a0.channel(CHANNEL, TYPE).source("door")
        a0.policies.set(policy("n % 2 = 0"))
        b0.policies.set(policy("n % 3 = 0"))
        gateway = Gateway(a1, b0, "t.**")
        try:
            assert b1.until(lambda: bool(b1.remote_sources(CHANNEL)), GUARD)
            log = Log()
            b1.channel(CHANNEL).subscribe(log)
            assert b1.ready(GUARD)
            publish(source, 0, 13)
            log.wait(3)
            assert log.field("n") == [0, 6, 12]
        finally:
            gateway.close()


CHANGE = "object: text, op: text, new: {level: f64, label: text?}?"


def test_objects_are_read_as_far_as_their_changes_would_be_shown(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    for n in range(4):
        with plant.objects.transaction() as t:
            t.create(f"tanks/{n}", "Tank", level=float(n))
    assert len(list(plant.remote.list())) == 4
    high = plant.remote.trigger("high", on="tanks/3", when="each", where="new.level > 5", notify={"level": "new.level"})
    plant.owner.policies.set(policy("new.level >= 2", "objects.Tank", CHANGE))
    assert [kept.name for kept in plant.remote.list()] == ["//plant/tanks/2", "//plant/tanks/3"]
    # What a trigger tells may be made of anything: it needs all of it, and is disabled when it has not.
    found = next(each for each in plant.objects.engine.triggers.registry if each.name.endswith(".high"))
    assert not found.trigger.enabled and high is not None
    with pytest.raises(FederationError, match="which it may watch"):
        plant.remote.trigger("low", on="tanks/3", when="each", where="new.level < 5", notify={"level": "new.level"})
    # And a transaction that is narrowed to nobody changes nothing.
    only = Clause(show="true", may=["transact"], when=":user = 'ann'")
    plant.owner.policies.set(ChannelPolicy(name="p", channel="objects.Tank", type=CHANGE, clauses=[only]))
    with pytest.raises(ObjectError), plant.remote.transaction() as t:
        t.update("tanks/3", {"level": 9.0}, event=True)
    assert plant.objects["tanks/3"].level == 3.0 and len(list(plant.remote.list())) == 4


def test_replicas_are_told_nothing_that_a_policy_may_hide(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=1.0)
    spec = specs.ReplicaSpec("//plant/tank", "Tank")
    engine: Any = plant.desk._engine
    owner = engine.peers[plant.owner.id]
    told = Log()
    held = engine.dialogue.ask(owner, HoldReplica(specs.pack(spec)))
    plant.desk.channel(held.channel, unpack_type(held.told)).subscribe(told)
    see_source(plant.desk, held.channel)  # it is opened behind the answer, and nothing is heard of it before
    make.ready(plant.desk)

    def set_level(level: float) -> None:
        with plant.objects.transaction() as t:
            t.update("tank", level=level)

    set_level(2.0)
    told.wait(1)
    assert engine.dialogue.ask(owner, ReadReplica(spec.number)).rows
    plant.owner.policies.set(policy("new.level < 1.5", "objects.Tank", CHANGE))
    set_level(3.0)
    assert plant.objects.engine.outbox.wait(GUARD)  # what leaves later is judged by the policy of then
    for question in (ReadReplica(spec.number), HoldReplica(specs.pack(spec))):
        with pytest.raises(FederationError, match="expected a type that it may read"):
            engine.dialogue.ask(owner, question)
    plant.owner.policies.set(policy("true", "objects.Tank", CHANGE))
    set_level(4.0)
    told.until(lambda events: any(each.value.level == 4.0 for each in events))
    assert all(each.value.level != 3.0 for each in told.events)


def test_replicas_show_no_more_than_the_objects_themselves(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("tanks/0", "Tank", level=1.0)
    desk: Any = plant.desk
    replica = plant.remote.replica("tanks/*", type="Tank")
    assert replica.ready(GUARD) and replica["tanks/0"].value.level == 1.0
    ask = lambda request: plant.remote._ask(request, monotonic() + GUARD)  # noqa: E731
    assert len(ask(ReadReplica(replica.spec.number)).rows) == 1
    # The policy is about changes of tanks; what replicas are told is made of the same values.
    heard = Log[Any]()
    sink = desk.channel("objects.Tank.replicas").subscribe(heard)
    make.ready(desk)
    plant.owner.policies.set(policy("new.level >= 2", "objects.Tank", CHANGE))
    with plant.objects.transaction() as t:
        t.update("tanks/0", {"level": 5.0}, event=True)
    with pytest.raises(FederationError, match="expected a type that it may read, found 'Tank'"):
        ask(ReadReplica(replica.spec.number))
    with pytest.raises(FederationError, match="expected a type that it may read, found 'Tank'"):
        plant.remote.replica("**", type="Tank")
    make.flush()
    eventually(lambda: any("objects.Tank.replicas" in each for each in sink.refused))
    assert replica["tanks/0"].value.level == 1.0 and not heard.events
    assert replica.as_of < t.outcome.at and replica.state.startswith("unknown")
    # And back: nobody has to ask again.
    plant.owner.policies.lift("p")
    assert replica.until(t.outcome.at, GUARD) and replica["tanks/0"].value.level == 5.0


def test_triggers_of_other_nodes_are_judged_anew_also_if_nobody_has_asked_since_a_restart(
    make: Nodes, tmp_path: Path
) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("tanks/0", "Tank", level=1.0)
    plant.remote.trigger("high", on="tanks/0", when="each", where="new.level > 5", notify={"level": "new.level"})
    plant.owner.close()
    make.opened.remove(plant.owner)
    plant.open()
    [found] = plant.objects.engine.triggers.registry
    assert found.trigger.enabled
    plant.owner.policies.set(policy("new.level < 2", "objects.Tank", CHANGE))
    [found] = plant.objects.engine.triggers.registry
    assert not found.trigger.enabled
    # Nor is it if the objects are opened later than the policy comes.
    plant.owner.policies.lift("p")
    plant.remote.trigger("low", on="tanks/0", when="each", where="new.level < 5", notify={"level": "new.level"})
    plant.owner.close()
    make.opened.remove(plant.owner)
    plant.owner = make("plant", state=tmp_path / "plant.state")
    plant.owner.policies.set(policy("new.level < 2", "objects.Tank", CHANGE))
    registry = plant.owner.objects.engine.triggers.registry
    eventually(lambda: len(list(registry)) == 2 and not any(each.trigger.enabled for each in registry))


def test_what_another_node_has_watched_ends_when_it_may_not_see_it_any_more(
    make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=1.0)
    home = make("home", state=tmp_path / "home.state")
    make.together()
    home.objects.type("Tank", "level: f64, label: text?")
    with home.objects.transaction() as t:
        t.create("own", "Tank", level=1.0)
    inputs = {"a": "//plant/tank", "b": "//home/own"}
    where = "a.level - b.level > 5"
    trigger = home.objects.trigger("apart", inputs=inputs, when="becomes", where=where, notify={})
    eventually(lambda: trigger.holds is False)
    assert len(plant.objects.watches) == 1
    monkeypatch.setattr(zone_carrier, "RENEW_BEATS", 1 << 30)  # else it is looked at now and then
    plant.owner.policies.set(policy("new.level < 1", "objects.Tank", CHANGE))
    eventually(lambda: not len(plant.objects.watches))
    eventually(lambda: "plant" in trigger.report()["refused"])


def test_where_somebody_is_may_be_an_object(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("people/ann", "Tank", level=2.0)
    here = Location(object="people/{user}", of="Tank", type="level: f64", gives={"here": "level"})
    plant.owner.policies.set(policy("n < :here", location=here))
    why = plant.owner.policies.why
    eventually(lambda: "with here = 2.0" in why("ann", CHANNEL).why)
    with plant.objects.transaction() as t:
        t.update("people/ann", {"level": 5.0}, event=True)
    eventually(lambda: "with here = 5.0" in why("ann", CHANNEL).why)
    with plant.objects.transaction() as t:
        t.destroy("people/ann")
    eventually(lambda: "place is not known" in why("ann", CHANNEL).why)


def test_a_pattern_that_runs_for_another_node_ends_when_it_may_see_something_else(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    source = lab.channel(CHANNEL, TYPE).source("door")
    make.together()
    assert desk.until(lambda: bool(desk.remote_sources(CHANNEL)), GUARD)
    text = f"x: {CHANNEL}{{n % 10 = 1}}; y: {CHANNEL}{{n = x.n + 3}} within 1 hour measures y.n as n"
    desk.pattern("found", text, at="lab")
    log = Log()
    desk.channel("found").subscribe(log)
    make.ready(desk)
    publish(source, 0, 6)
    log.wait(1)
    assert list(lab.report().services["patterns"]["foreign"]) == ["found"]
    lab.policies.set(policy("n < 10"))
    assert lab.report().services["patterns"]["ended"] == {"found": "a policy has changed what its node may have"}


def test_what_a_policy_would_have_hidden_of_recorded_events(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as lab:
        source = lab.channel(CHANNEL, TYPE).source("door")
        for n in range(30):
            source.publish(who=("ann", "bob", "eve")[n % 3], n=n)
    clauses = [Clause(who="group:security", show="true"), Clause(show="who = :user and n >= :least")]
    hides = ChannelPolicy(name="p", channel=CHANNEL, type=TYPE, clauses=clauses, attributes={"least": "int"})
    users = [
        Identity(user="ann", groups=["security"]),
        Identity(user="bob", attributes={"least": 15}),
        Identity(user="eve"),  # whose clearance is not known
    ]
    asked = [Subscription(name=each.user, where=shown(hides, each)) for each in users]
    report = backtest(None, tmp_path, asked, channel=CHANNEL)
    assert {each.name: each.passed for each in report.subscriptions} == {"ann": 30, "bob": 5, "eve": 0}
