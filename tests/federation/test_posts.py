"""Posts: what a service of a node says to that of another, over whatever link there is, and at what pace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headwater.channel.services import Service
from headwater.errors import FederationError
from headwater.federation.peers.post_registry import PostRegistry, post
from tests.federation.nodes import Log, Nodes, eventually, nodes


class Weather(Service):
    """Keeps what others say."""

    name = "weather"

    def __init__(self) -> None:
        self.heard: Log[tuple[str, bytes]] = Log()

    def posts(self) -> Iterable[tuple[str, Any]]:
        return (("weather", lambda peer, body: self.heard((peer.name, body))),)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def linked(make: Nodes, direct: Any) -> tuple[Any, Any, Weather]:
    """Two nodes with a link that nobody but a service wants, and the service of the first."""
    lab, desk = make("lab", network={"direct": direct}), make("desk", network={"direct": direct})
    make.together()
    weather = lab.services.add(Weather())
    engine: Any = desk._engine
    peer = engine.peers[lab.id]
    engine.links.reasons.append(lambda each: each is peer)
    engine.links.connect(peer)
    eventually(lambda: peer.link is not None)
    return lab, peer, weather


@pytest.mark.parametrize("direct", [None, ()], ids=["direct", "routed"])
def test_a_service_hears_what_another_posts(make: Nodes, direct: Any) -> None:
    """Also where there is no direct stream; a link that was wanted comes again."""
    lab, peer, weather = linked(make, direct)
    assert post(peer, "weather", b"rain")
    assert weather.heard.wait(1) == [("desk", b"rain")]
    if direct is None:
        links = peer.links
        peer.link.close("it was cut")
        eventually(lambda: peer.links > links and peer.link is not None)
        assert post(peer, "weather", b"sun")
        assert weather.heard.wait(2)[1] == ("desk", b"sun")
    assert lab.federation_report().offences == {}


def test_a_kind_that_nobody_takes_is_counted_and_no_offence(make: Nodes) -> None:
    lab, peer, weather = linked(make, None)
    assert post(peer, "news", b"?") and post(peer, "weather", b"rain")
    weather.heard.wait(1)
    engine: Any = lab._engine
    assert engine.posts.unknown == 1 and lab.federation_report().offences == {}
    with pytest.raises(FederationError, match="taken already"):
        engine.posts.register_all([("weather", print)])


def test_what_comes_faster_than_anybody_needs_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by size; the next second is another."""
    from headwater.federation.peers import post_registry

    now = [0.0]
    monkeypatch.setattr(post_registry, "RATE", 3)
    monkeypatch.setattr(post_registry, "RATE_BYTES", 100)
    monkeypatch.setattr(post_registry, "monotonic", lambda: now[0])
    registry, heard = PostRegistry(), []
    registry.register_all([("a", lambda peer, body: heard.append(body))])

    class Peer:
        allowance = post_registry.Allowance()
        link = None

        def say(self, frame: bytes) -> None:
            raise AssertionError

    for _ in range(5):
        registry.deliver(Peer(), "a", b"x")
    assert len(heard) == 3 and registry.dropped == 2
    now[0] = 1.5
    registry.deliver(Peer(), "a", b"x" * 90)
    registry.deliver(Peer(), "a", b"x" * 90)
    assert len(heard) == 4 and registry.dropped == 3 and not post(Peer(), "a", b"")
