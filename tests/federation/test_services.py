"""Services of a node: started, drained, stopped, reported and asked by one way, whatever they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from headwater.channel.node import Node as LocalNode
from headwater.channel.services import Service
from headwater.errors import ChannelError, ClosedError, FederationError, StoreError
from headwater.federation.node import Node
from headwater.federation.wire.requests import Request
from tests.federation.nodes import GUARD, Log, Nodes, nodes

TYPE = "number: i64"


class Count(msgspec.Struct, frozen=True, tag=True):
    number: int


class HowMany(Request, frozen=True, tag=True):
    answer: ClassVar[Any] = Count
    channel: str


class Counter(Service):
    """Counts the events of a channel, and says how many there were to nodes that ask."""

    def __init__(self, node: LocalNode, said: list[str], name: str = "counter") -> None:
        self.name, self._node, self._said, self.count = name, node, said, 0

    @property
    def busy(self) -> bool:
        return True

    def start(self) -> None:
        self._said.append(f"{self.name} starts")
        self._node.channel(f"t.{self.name}", TYPE).subscribe(self._took, dispatch="inline")

    def _took(self, event: Any) -> None:
        self.count += 1

    def drain(self, until: float) -> None:
        self._said.append(f"{self.name} drains, node {'closed' if self._node.closed else 'open'}")
        self._node.channel(f"t.{self.name}").source("last").publish(number=0)  # everything works still

    def stop(self) -> None:
        self._said.append(f"{self.name} stops, node {'closed' if self._node.closed else 'open'}")

    def report(self) -> Mapping[str, Any]:
        return {"count": self.count}

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return ((HowMany, lambda caller, request: Count(self.count)),)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_logs_sequencers_and_control_events_are_services(tmp_path: Path) -> None:
    with Node("lab", listen="tcp/127.0.0.1:0", log=tmp_path) as node:
        channel = node.channel("t.c", TYPE)
        source, log = channel.source("s"), Log()
        node.sequence(channel)
        channel.subscribe(log, order="total")
        source.publish(number=1)
        log.wait(1)
        report = node.report()
        names = ["logs", "sequencers", "control events", "patterns", "policies"]
        names += ["objects for others", "library", "zones", "moving", "group lanes", "moving sources"]
        assert [service.name for service in node.services] == [*names, "log server"]
        assert report.services["patterns"] == {"foreign": {}, "ended": {}}
        assert "t.c" in report.services["logs"]["open"]
        assert report.services["sequencers"]["t.c"]["place"] == 1 and report.services["sequencers"]["t.c"]["active"]
        control = {"headwater.nodes", "headwater.sources", "headwater.interests", "headwater.policy.decisions"}
        assert set(report.services["control events"]) == control
        assert report.services["log server"]["questions"] == 0
        assert report.to_dict()["services"]["sequencers"]["t.c"]["missing"] == 0
    with LocalNode() as alone:
        assert not list(alone.services)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", [LocalNode, Node])
def test_a_service_lives_with_its_node(kind: type[LocalNode], asynchronous: bool) -> None:
    said: list[str] = []
    node = kind()
    first, second = (node.services.add(Counter(node, said, name)) for name in ("a", "b"))
    node.channel("t.a").source().publish(number=1)
    assert node.report().services["a"] == {"count": 1} and node.report().services["b"] == {"count": 0}
    if asynchronous:
        asyncio.run(node.aclose())
    else:
        node.close()
    assert said == [
        "a starts", "b starts", "b drains, node open", "a drains, node open",
        "b stops, node closed", "a stops, node closed",
    ]  # fmt: skip
    assert (first.count, second.count) == (2, 1)
    with pytest.raises(ClosedError, match="service 'c'"):
        node.services.add(Counter(node, said, "c"))


def test_a_node_that_is_aborted_does_not_drain_its_services() -> None:
    said: list[str] = []
    node = LocalNode()
    node.services.add(Counter(node, said))
    node.close(drain=False)
    assert said == ["counter starts", "counter stops, node closed"]


def test_a_service_answers_requests_of_other_nodes(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    assert desk._engine is not None
    peer = desk._engine.peers[lab.id]
    with pytest.raises(FederationError, match="needs the service that answers this"):
        desk._engine.dialogue.ask(peer, HowMany("t.counter"))
    lab.services.add(Counter(lab, []))
    lab.channel("t.counter").source().publish(number=1)
    assert desk._engine.dialogue.ask(peer, HowMany("t.counter"), GUARD) == Count(1)


def test_two_of_a_name_and_one_that_cannot_start_are_refused() -> None:
    class Broken(Service):
        name = "broken"

        def start(self) -> None:
            raise StoreError("it cannot")

    with LocalNode("lab") as node:
        node.services.add(Counter(node, []))
        with pytest.raises(ChannelError, match="node 'lab' has one of that name already"):
            node.services.add(Counter(node, []))
        with pytest.raises(StoreError, match="it cannot"):
            node.services.add(Broken())
        assert "broken" not in node.services and len(node.services) == 1


def test_what_one_service_cannot_close_keeps_no_other_open() -> None:
    class Stuck(Service):
        name = "stuck"

        def stop(self) -> None:
            raise StoreError("it is stuck")

    said: list[str] = []
    node = LocalNode()
    node.services.add(Counter(node, said))
    node.services.add(Stuck())
    with pytest.raises(StoreError, match="it is stuck"):
        node.close()
    assert said[-1] == "counter stops, node closed"


class Failing(Service):
    """Cannot do anything, and does not say so in Headwater's own words."""

    name = "failing"

    @property
    def busy(self) -> bool:
        raise ZeroDivisionError("busy")

    def drain(self, until: float) -> None:
        raise ZeroDivisionError("drain")

    def stop(self) -> None:
        raise ZeroDivisionError("stop")

    def report(self) -> Mapping[str, Any]:
        raise ZeroDivisionError("report")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_service_that_fails_at_everything_keeps_no_other_from_anything(asynchronous: bool) -> None:
    said: list[str] = []
    node = LocalNode()
    node.services.add(Counter(node, said))
    node.services.add(Failing())
    found = node.report().services
    assert found["counter"] == {"count": 0}
    assert found["failing"] == {"problem": "it could not report: ZeroDivisionError: report"}
    with pytest.raises(ZeroDivisionError, match="stop"):
        asyncio.run(node.aclose()) if asynchronous else node.close()
    assert said == ["counter starts", "counter drains, node open", "counter stops, node closed"]
    assert node.closed


def test_a_service_that_did_not_start_answers_nothing(make: Nodes) -> None:
    class Broken(Counter):
        def start(self) -> None:
            raise StoreError("it cannot")

    class Twice(Counter):
        def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
            return (*super().requests(), *super().requests())

    lab, desk = make("lab"), make("desk")
    make.together()
    assert desk._engine is not None
    peer = desk._engine.peers[lab.id]
    with pytest.raises(StoreError, match="it cannot"):
        lab.services.add(Broken(lab, []))
    with pytest.raises(FederationError, match="'HowMany' are answered already"):
        lab.services.add(Twice(lab, []))
    with pytest.raises(FederationError, match="needs the service that answers this"):
        desk._engine.dialogue.ask(peer, HowMany("t.counter"), GUARD)
    lab.services.add(Counter(lab, []))
    assert desk._engine.dialogue.ask(peer, HowMany("t.counter"), GUARD) == Count(0)
