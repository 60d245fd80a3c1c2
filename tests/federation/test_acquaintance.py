"""Nodes that know those others only that they deal with: `Network(acquaintance="named")`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater import Network, Node
from headwater.errors import ConfigError, FederationError
from headwater.testing import Recorder, eventually

GUARD = 120.0


@pytest.fixture
def opened() -> Iterator[list[Node]]:
    nodes: list[Node] = []
    yield nodes
    for node in reversed(nodes):
        node.close(drain=False)


def hub(opened: list[Node], **network: object) -> Node:
    opened.append(Node("hub", network=Network(listen="tcp/127.0.0.1:0", router=True, **network)))  # type: ignore[arg-type]
    return opened[-1]


def client(opened: list[Node], name: str, **network: object) -> Node:
    given = {"acquaintance": "named", "client": True, "direct": "tcp/127.0.0.1:0", **network}
    opened.append(Node(name, network=Network(connect=opened[0].endpoints[0], **given)))  # type: ignore[arg-type]
    return opened[-1]


def hold(node: Node, other: str) -> None:
    node._engine.presence.acquaintances.hold(other)  # type: ignore[union-attr]


def test_who_is_not_dealt_with_is_not_known_and_who_is_gone_is_noticed(opened: list[Node]) -> None:
    hub(opened, acquaintance="named")
    first, second, third = (client(opened, name) for name in ("first", "second", "third"))
    door = first.channel("t.door", "n: i64").source("s")
    hold(second, first.id)
    assert second.until(lambda: second.has_channel("t.door"), GUARD)
    heard: Recorder = Recorder()
    second.channel("t.door").subscribe(heard, "n > 1")
    assert second.ready(GUARD)
    for number in range(4):
        door.publish(n=number)
    assert [event.n for event in heard.wait(2)] == [2, 3]
    assert first.peers == ["second"] and second.peers == ["first"] and third.peers == [] and opened[0].peers == []
    report = second.federation_report()
    assert {each.name for each in report.peers} == {"first"}
    # News reach those who attend.
    first.channel("t.window", "n: i64").source("s")
    assert second.until(lambda: second.has_channel("t.window"), GUARD) and not third.has_channel("t.window")
    first.close()
    assert second.until(lambda: second.peers == [], GUARD)


def test_a_node_is_found_by_its_name_and_again_when_it_was_started_again(opened: list[Node]) -> None:
    hub(opened, acquaintance="named")
    desk = client(opened, "desk")
    hold(desk, "lab")  # before there is one
    first = client(opened, "lab")
    assert desk.until(lambda: desk.peers == ["lab"], GUARD)
    first.close()
    assert desk.until(lambda: desk.peers == [], GUARD)
    again = client(opened, "lab")
    again.channel("t.door", "n: i64").source()
    assert desk.until(lambda: desk.has_channel("t.door"), GUARD)


def test_whom_nobody_deals_with_any_more_is_forgotten(opened: list[Node]) -> None:
    hub(opened, acquaintance="named", keep=0.2)
    first, second = client(opened, "first", keep=0.2), client(opened, "second", keep=0.2)
    first.channel("t.door", "n: i64").source()
    hold(second, first.id)
    assert second.until(lambda: second.has_channel("t.door"), GUARD)
    subscription = second.channel("t.door").subscribe()
    assert second.ready(GUARD) and first.peers == ["second"]
    subscription.cancel()
    second._engine.presence.acquaintances.release(first.id)  # type: ignore[union-attr]
    eventually(lambda: not first._engine.peers and not second._engine.peers, "both have forgotten each other")  # type: ignore[union-attr]
    eventually(lambda: second._engine.fabric.attended == 0, "nothing is heard of it")  # type: ignore[union-attr]
    hold(second, first.id)  # and it is found again
    assert second.until(lambda: second.peers == ["first"], GUARD)


def test_what_needs_all_nodes_is_refused(opened: list[Node]) -> None:
    node = hub(opened, acquaintance="named")
    node.channel("t.door", "n: i64")
    with pytest.raises(FederationError, match="knows all others"):
        node.sequence("t.door")
    with pytest.raises(ConfigError, match='one of "all", "named"'):
        Network(acquaintance="some")


def test_nodes_that_know_all_and_nodes_that_do_not_work_together(opened: list[Node]) -> None:
    hub(opened)
    shy = client(opened, "shy")
    shy.channel("t.door", "n: i64").source("s")
    other = client(opened, "other", acquaintance="all")
    assert other.until(lambda: other.has_channel("t.door"), GUARD)
    heard: Recorder = Recorder()
    other.channel("t.door").subscribe(heard)
    assert other.ready(GUARD)
    shy.channel("t.door").source("t").publish(n=1)
    assert heard.wait(1)[0].n == 1
    assert shy.until(lambda: "other" in shy.peers, GUARD)  # whoever knows all has asked it
    assert set(shy.peers) <= {"hub", "other"}
