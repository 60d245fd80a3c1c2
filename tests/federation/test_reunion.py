"""Nodes that were parted find each other again whatever Zenoh raises, and many of one process come together."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import zenoh

from headwater import Node
from headwater.federation.fabric import reconnection as module
from headwater.federation.fabric.fabric import Fabric
from headwater.federation.fabric.reconnection import Reunion
from headwater.federation.fabric.settings import Locator, parse_locator, session_config
from headwater.threads import Crashes
from tests.effort import EFFORT
from tests.federation.nodes import eventually, nodes

MANY = min(50, 12 * EFFORT)


class Unclosing:
    """A session that introduces nobody, and cannot be closed."""

    def close(self) -> None:
        raise zenoh.ZError("close operation timed out!")


def locator(text: str) -> Locator:
    found = parse_locator("test", text)
    assert isinstance(found, Locator)
    return found


@pytest.mark.parametrize("fails", ["close", "panic"])
def test_the_search_goes_on_after_an_error_of_zenoh(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    class Panic(BaseException):
        """As what foreign code raises that has come to its end: no Exception."""

    opened: list[int] = []
    real = zenoh.open

    def failing(config: Any) -> Any:
        opened.append(1)
        if len(opened) > 2:
            return real(config)
        if fails == "panic":
            raise Panic
        return Unclosing()

    here, there = (Fabric("f", name, 1, listen=["tcp/127.0.0.1:0"]) for name in ("here", "there"))
    here.open()
    there.open()
    crashes = Crashes()
    home = locator(here.endpoints[0])
    found = Reunion(session_config(here._settings, [home]), [home], "here", crashes)
    try:
        monkeypatch.setattr(module.zenoh, "open", failing)
        found.connected("aa", "tcp/127.0.0.1:1", there.endpoints[0])
        found.disconnected("aa", "tcp/127.0.0.1:1", there.endpoints[0])
        eventually(lambda: ("there", 1) in here.alive and ("here", 1) in there.alive, "their reunion")
        assert found.attempts >= 3 and sum(crashes.counts.values()) >= 2
    finally:
        found.close()
        here.close()
        there.close()


def test_a_connection_that_is_told_twice_is_lost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zenoh tells twice of a connection that comes while it is asked which there are. Of two connections to one node,
    one may end."""
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 60.0)  # nobody is called
    home, there = locator("tcp/127.0.0.1:1"), "tcp/127.0.0.1:3"
    found = Reunion({"connect": {"endpoints": []}}, [home], "here", Crashes())
    try:
        for _ in range(2):
            found.connected("aa", "tcp/127.0.0.1:2", there)
        found.connected("aa", "tcp/127.0.0.1:1", "tcp/127.0.0.1:4")
        found.disconnected("aa", "tcp/127.0.0.1:1", "tcp/127.0.0.1:4")
        assert found.lost == ()
        found.disconnected("aa", "tcp/127.0.0.1:2", there)
        assert found.lost == (there,)
    finally:
        found.close()


def test_what_is_lost_later_is_looked_for_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends when nothing is lost, or with what it could not stand; with the next loss there is one again."""
    tried = threading.Semaphore(0)

    def failing(config: Any) -> Any:
        tried.release()
        raise RuntimeError("not even an error of Zenoh")

    monkeypatch.setattr(module.zenoh, "open", failing)
    home = locator("tcp/127.0.0.1:1")
    found = Reunion({"connect": {"endpoints": []}}, [home], "here", Crashes())
    try:
        for zid in ("aa", "bb"):
            found.connected(zid, "tcp/127.0.0.1:2", "tcp/127.0.0.1:3")
            found.disconnected(zid, "tcp/127.0.0.1:2", "tcp/127.0.0.1:3")
            assert tried.acquire(timeout=30)
            assert tried.acquire(timeout=30)
    finally:
        found.close()


def test_many_nodes_of_one_process_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, while sessions that introduce nodes fail to close, as they do on a loaded machine."""
    real = zenoh.open

    class Failing:
        def __init__(self, session: Any) -> None:
            self._session = session

        def close(self) -> None:
            self._session.close()
            raise zenoh.ZError("close operation timed out!")

    def opening(config: Any) -> Any:
        session = real(config)
        return Failing(session) if threading.current_thread().name.endswith("-reunion") else session

    monkeypatch.setattr(module.zenoh, "open", opening)
    with nodes() as make:
        hub = make("n0")

        def open_one(number: int) -> None:
            make.opened.append(Node(f"n{number}", connect=hub.endpoints[0]))

        threads = [threading.Thread(target=open_one, args=(number,)) for number in range(1, MANY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eventually(lambda: all(len(node.peers) == MANY - 1 for node in make.opened), "all nodes together", timeout=480)
