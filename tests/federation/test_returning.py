"""A node that has left and is back at once, with the same identity, while others are about to forget it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.federation.peers.peer import Peer
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes


class Slow:
    """Keeps what others have installed, as ever; but who forgets a node has to wait for it."""

    def __init__(self, installer: Any) -> None:
        self._installer = installer
        self.began, self.goes_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._installer, name)

    def gone(self, peer: Peer, *, orderly: bool) -> bool:
        kept: bool = self._installer.gone(peer, orderly=orderly)
        self.began.set()
        self.goes_on.wait(GUARD)
        return kept


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_a_node_that_is_back_while_it_is_forgotten_has_its_link(make: Nodes, tmp_path: Path) -> None:
    """It was gone when that began, and is there before it has ended."""
    log: Log[bytes] = Log()
    a, b = make("a"), make("b", state=tmp_path / "b.state")
    source = a.channel("c", bytes).source("s")
    b.channel("c", bytes).subscribe(log)
    make.ready(b)
    engine = a._engine
    assert engine is not None
    (peer,) = engine.everyone()
    slow = engine.presence.installer = Slow(engine.presence.installer)
    b.close()
    assert slow.began.wait(GUARD) and peer.gone is not None
    b = make("b", state=tmp_path / "b.state")
    eventually(lambda: peer.gone is None, "that it is there again", GUARD)
    slow.goes_on.set()
    b.channel("c", bytes).subscribe(log)
    make.ready(b)
    source.publish(b"7")
    assert log.wait(1, GUARD) == [b"7"]
    assert engine.everyone() == [peer] and not peer.forgotten, f"{engine.everyone()}, {peer}: {peer.trouble}"


def test_nobody_calls_a_node_for_one_that_was_forgotten(make: Nodes, tmp_path: Path) -> None:
    """Who still has hold of the former one takes no link from the one that has its place."""
    log: Log[bytes] = Log()
    a, b = make("a"), make("b", state=tmp_path / "b.state")
    source = a.channel("c", bytes).source("s")
    b.channel("c", bytes).subscribe(log)
    make.ready(b)
    engine = a._engine
    assert engine is not None
    (former,) = engine.everyone()
    b.close()
    eventually(lambda: former.forgotten and not engine.everyone(), "that it is forgotten", GUARD)
    b = make("b", state=tmp_path / "b.state")
    b.channel("c", bytes).subscribe(log)
    make.ready(b)
    (peer,) = engine.everyone()
    assert peer is not former and peer.id == former.id
    links = former.links
    engine.links.connect(former)
    assert not former.calling and not engine.links.call(former)
    source.publish(b"7")
    assert log.wait(1, GUARD) == [b"7"]
    assert former.links == links and former.link is None and peer.link is not None, f"{former}: {former.links}, {peer}"
