"""Patterns over sources of other nodes: promises are asked for, who vanishes is waited for, or not for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater import Network
from headwater.errors import PatternError
from headwater.store.log.channel_log import ChannelLog
from tests.federation.clocks import UnhurriedClock
from tests.federation.nodes import GUARD, Nodes, eventually, nodes

DOOR = "who: text, n: u32"
PAIR = "a: door{n = 1}; b: door{n = 2} within 1 hour measures a.who as first, b.who as second"
ABSENT = "a: door{n = 1}; without door{n = 2} within 200 milliseconds measures a.who as who"


def _got(watch: Any) -> Any:
    found = watch.get(timeout=GUARD)
    assert found is not None, f"nothing in {GUARD} s: {watch.report()}"
    return found


def _door(made: Nodes, name: str, **options: Any) -> tuple[Any, Any]:
    node = made(name, **options)
    return node, node.channel("door", DOOR).source(name)


@contextmanager
def _vanished(node: Any, desk: Any) -> Iterator[None]:
    """Gone without a goodbye."""
    engine = node._engine
    engine.fabric.close()
    engine.listener.close()
    engine.context.closed = True  # it calls nobody any more
    for peer in engine.everyone():
        if peer.link is not None:
            peer.link.close("cut by the test")
    try:
        assert desk.until(lambda: node.name not in desk.peers, GUARD)
        yield
    finally:
        engine.context.closed = False


def test_events_of_two_other_nodes_are_put_in_order_and_absence_waits_for_both() -> None:
    with nodes() as made:
        desk = made("desk")
        (_, east), (_, west) = _door(made, "east"), _door(made, "west")
        made.together()
        assert desk.until(lambda: len(desk.remote_sources("door")) == 2, GUARD)
        watch, silent = desk.match(PAIR), desk.match(ABSENT)  # of a channel that only others have
        made.ready(desk)
        east.publish(who="ann", n=1)
        west.publish(who="bob", n=3)
        west.publish(who="cy", n=2)
        found = _got(watch)
        assert (found.first, found.second) == ("ann", "cy")
        assert not found.match.uncertain
        east.publish(who="di", n=1)
        found = _got(silent)
        assert (found.who, found.match.uncertain) == ("di", False)
        assert watch.report().late == silent.report().late == 0
        with pytest.raises(PatternError, match=r"dor"):
            desk.match("a: dor")


def test_absence_of_matches_is_sure_as_their_pattern_says_how_far_it_has_come() -> None:
    """Nobody has ever been found there, and nobody has to be."""
    clock = UnhurriedClock()
    with nodes() as made:
        desk = made("desk", clock=clock)
        near = desk.channel("bell", "n: u32").source("near")
        east_node, door = _door(made, "east", clock=clock)
        east_node.pattern("alarm", PAIR)
        made.together()
        assert desk.until(lambda: bool(desk.remote_sources("alarm")), GUARD)
        watch = desk.match("a: bell; without alarm within 1 second measures a.n as n")
        made.ready(desk)
        near.publish(n=7)
        clock.advance(2)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (7, False)
        near.publish(n=8)
        clock.advance(0.1)
        door.publish(who="ann", n=1)
        door.publish(who="bob", n=2)  # an alarm, which is why there is none for the bell
        clock.advance(2)
        eventually(lambda: watch.report().rows == 3)
        near.publish(n=9)
        clock.advance(2)
        assert _got(watch).n == 9


def test_how_far_a_pattern_has_come_is_said_again_though_that_was_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may be through before who has asked for it goes on."""
    with nodes() as made:
        desk = made("desk")
        near = desk.channel("bell", "n: u32").source("near")
        east, _ = _door(made, "east")
        east.pattern("alarm", PAIR)
        made.together()
        assert desk.until(lambda: bool(desk.remote_sources("alarm")), GUARD) and east._engine is not None
        scheduler = east._engine.scheduler
        work = scheduler.work

        def at_once(task: Any, *args: Any, on: str = "") -> bool:
            done = threading.Event()
            return work(lambda: (task(*args), done.set()), on=on) and (bool(on) or done.wait(GUARD))

        monkeypatch.setattr(scheduler, "work", at_once)
        watch = desk.match("a: bell; without alarm within 10 milliseconds measures a.n as n")
        made.ready(desk)
        for n in (1, 2):
            near.publish(n=n)
            assert _got(watch).n == n


def test_a_node_that_vanished_is_waited_for_unless_there_is_patience() -> None:
    with nodes() as made:
        desk = made("desk", network=Network(listen="tcp/127.0.0.1:0", lease=1.0), listen=None)
        near = desk.channel("door", DOOR).source("near")
        east_node, _ = _door(made, "east")
        made.together()
        sure, hasty = desk.match(ABSENT), desk.match(f"{ABSENT} patience 100 milliseconds")
        plain = desk.match("a: door measures a.who as who patience 100 milliseconds")
        made.ready(desk)
        with _vanished(east_node, desk):
            near.publish(who="ann", n=1)
            assert _got(plain).who == "ann"
            found = _got(hasty)
            assert (found.who, found.match.uncertain) == ("ann", True)
            assert hasty.report().uncertain == 1
            assert sure.poll() is None and sure.report().held_by == "door/east@east"


def test_a_source_that_is_closed_holds_nothing_back() -> None:
    with nodes() as made:
        desk = made("desk")
        near = desk.channel("door", DOOR).source("near")
        _, east = _door(made, "east")
        made.together()
        watch = desk.match(ABSENT)
        made.ready(desk)
        east.close()
        near.publish(who="ann", n=1)
        assert _got(watch).who == "ann"


def test_other_values_hold_at_all_nodes_from_a_point_of_each_source() -> None:
    with nodes() as made:
        desk = made("desk")
        _, east = _door(made, "east")
        made.together()
        assert desk.until(lambda: bool(desk.remote_sources("door")), GUARD)
        watch = desk.match("a: door{n > :least} measures a.n as n", params={"least": 5})
        made.ready(desk)
        east.publish(who="ann", n=3)
        east.publish(who="ann", n=6)
        assert _got(watch).n == 6
        points = watch.change(params={"least": 2})
        assert set(points.values()) == {2}
        east.publish(who="ann", n=1)
        east.publish(who="ann", n=3)
        assert _got(watch).n == 3
        eventually(lambda: watch.report().rows == 2)


def test_a_source_promises_nothing_while_it_writes_to_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event has its time before it is written, and goes out after that."""
    with nodes() as made:
        desk = made("desk")
        lab = made("lab", log=tmp_path)
        source = lab.channel("door", DOOR).source("lab")
        made.together()
        assert desk.until(lambda: bool(desk.remote_sources("door")), GUARD)
        watch = desk.match("a: door{n = 1} measures a.who as who")
        made.ready(desk)
        append, promise = ChannelLog.append, lab._engine.installer.promise  # type: ignore[union-attr]

        def slowly(*event: Any) -> int:
            promises = threading.Thread(target=promise)
            promises.start()
            promises.join(0.2)  # it would be told by then
            return append(*event)

        monkeypatch.setattr(ChannelLog, "append", slowly)
        for who in ("ann", "bob"):
            source.publish(who=who, n=1)
            assert _got(watch).who == who
        assert watch.report().late == 0
