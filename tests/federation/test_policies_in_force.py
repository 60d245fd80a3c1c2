"""Policies at the sources: what leaves is what they show, wherever events come out, and from an exact point on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Node
from headwater.errors import ConfigError, FederationError
from headwater.federation.logs.client import LogClient
from headwater.federation.network import Network
from headwater.federation.security.settings import Security
from headwater.federation.wire.requests import Install, Wish
from headwater.interest import as_event_type
from headwater.security import Rule
from headwater.services.policy.channel_policy import ChannelPolicy, Clause
from headwater.services.policy.location import Location
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNEL, TYPE = "ie.tcd.sighting", "who: text, room: u32, n: u32"
BOUND = as_event_type(TYPE)
USERS = {
    "lab": "l",
    "ann": {"password": "a", "groups": ["security"]},
    "bob": {"password": "b", "groups": ["staff", "kind:phone"]},
    "eve": "e",
    "desk": "d",
}
HIDES = ChannelPolicy(
    name="sightings",
    channel=CHANNEL,
    type=TYPE,
    clauses=[Clause(who="group:security", show="true"), Clause(who="eve"), Clause(show="who = :user")],
)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def security(user: str, *rules: Rule, **more: Any) -> Security:
    password: Any = USERS[user]
    password = password["password"] if isinstance(password, dict) else password
    return Security(user=user, password=password, users=USERS, rules=rules or (Rule("**", "*"),), **more)


def opened(make: Nodes, user: str, *rules: Rule, **options: Any) -> Node:
    return make(user, network=Network(security=security(user, *rules), **options.pop("network", {})), **options)


def publish(source: Any, count: int = 12, start: int = 0) -> list[dict[str, Any]]:
    events = [
        {"who": ("ann", "bob", "eve")[n % 3], "room": n % 4, "n": n} for n in range(start, start + count)
    ]
    for event in events:
        source.publish(**event)
    return events


def seen(log: Log, count: int) -> list[int]:
    log.wait(count)
    return log.field("n")


def test_each_gets_its_part_and_the_source_decides(make: Nodes) -> None:
    lab = opened(make, "lab")
    source = lab.channel(CHANNEL, TYPE).source("door")
    change = lab.policies.set(HIDES)
    assert (change.version, change.points, change.refused) == (1, {"lab": {CHANNEL: {"door": 0}}}, {})
    logs = {}
    for user in ("ann", "bob", "eve"):
        node = opened(make, user)
        logs[user] = Log(), Log()
        node.channel(CHANNEL, TYPE).subscribe(logs[user][0])
        node.channel(CHANNEL).subscribe(logs[user][1], "{ static int k = 0; k = k + 1; return k % 2 == 0; }")
    make.together()
    make.ready()
    publish(source)
    make.flush()
    assert seen(logs["ann"][0], 12) == list(range(12)) and seen(logs["ann"][1], 6) == list(range(1, 12, 2))
    assert seen(logs["bob"][0], 4) == [1, 4, 7, 10] and seen(logs["bob"][1], 2) == [4, 10]
    eve = make.opened[3]
    [sink, _] = [each for each in eve.subscriptions.values() if each.target == CHANNEL or True][:2]
    assert eve.until(lambda: f"{CHANNEL}@lab" in sink.refused, GUARD)
    assert "clause 2 (eve: shows nothing)" in sink.refused[f"{CHANNEL}@lab"]
    assert logs["eve"][0].events == [] and logs["eve"][1].events == []
    crossings = {peer.name: peer.crossings[CHANNEL] for peer in lab._engine.everyone()}  # type: ignore[union-attr]
    assert sum(lane.passed for lane in crossings["eve"].active()) == 0


def test_a_change_holds_from_an_exact_point_on_and_the_backlog_does_not_leave(make: Nodes) -> None:
    lab = opened(make, "lab")
    source = lab.channel(CHANNEL, TYPE).source("door")
    bob = opened(make, "bob")
    log = Log()
    sink = bob.channel(CHANNEL, TYPE).subscribe(log)
    control = Log()
    bob.channel("headwater.interests").subscribe(control, "change = 'hidden'")
    make.together()
    make.ready()
    publish(source, 3)
    make.flush()
    assert seen(log, 3) == [0, 1, 2]
    engine: Any = lab._engine
    peer = engine.peers[bob.id]
    # What waits was let through when it was published; the policy hides some of it, and that does not leave.
    with peer.sender._turn:  # nobody sends
        publish(source, 6, start=9)
        change = lab.policies.set(HIDES)
    assert change.points["lab"][CHANNEL] == {"door": 9}
    publish(source, 3, start=15)
    make.flush()
    eventually(lambda: 16 in log.field("n"))
    late = [n for n in log.field("n") if n >= 9]
    assert late == [10, 13, 16], late
    assert engine.rejudgement.withheld >= 4
    # A revocation: nothing leaves, and who it concerns is told.
    nothing = ChannelPolicy(name="sightings", channel=CHANNEL, type=TYPE, clauses=[Clause(who="ann", show="true")])
    with peer.sender._turn:
        publish(source, 6, start=18)
        assert lab.policies.set(nothing).version == 2
    publish(source, 6, start=24)
    make.flush()
    eventually(lambda: f"{CHANNEL}@lab" in sink.refused)
    assert 'no clause about user "bob"' in sink.refused[f"{CHANNEL}@lab"] and control.wait(1)
    assert max(log.field("n")) == 16
    # And back: nobody has to ask again.
    lab.policies.lift("sightings")
    publish(source, 3, start=30)
    eventually(lambda: log.field("n")[-3:] == [30, 31, 32])
    eventually(lambda: not sink.refused)
