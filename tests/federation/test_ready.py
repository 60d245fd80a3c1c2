"""What `node.ready()` promises: of every source that was advertised before it is called, nothing is missed after it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import zenoh

from headwater.federation import readiness
from headwater.federation.node import Node
from tests.federation.nodes import GUARD, Log, nodes
from tests.federation.test_endpoints import free_port

TYPE = "n: i64"


def test_a_source_advertised_just_before_is_waited_for() -> None:
    """Nobody has heard of it yet when `ready` is called: its node is still about to tell."""
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        made.together()
        for round in range(20):
            name, log = f"t.c{round}", Log()
            desk.channel(name, TYPE).subscribe(log, "n >= 0")
            assert desk.ready(GUARD)
            source = lab.channel(name, TYPE).source()
            assert desk.ready(GUARD)
            source.publish(n=round)
            log.wait(1)
            assert log.field("n") == [round]


def test_a_node_that_has_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say so by itself: it is asked."""
    monkeypatch.setattr(readiness, "SILENT_SECONDS", 1e9)
    with nodes() as made:
        lab = made("lab")
        made("desk")
        made.together()
        assert lab.ready(GUARD), lab.unready()


def test_a_channel_that_a_pattern_fits_is_waited_for() -> None:
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        made.together()
        log = Log()
        desk.subscribe("t.**", log)
        for round in range(20):
            source = lab.channel(f"t.c{round}", TYPE).source()
            assert desk.ready(GUARD)
            source.publish(n=round)
        log.wait(20)
        assert sorted(log.field("n")) == list(range(20))


def test_a_pattern_finds_channels_that_were_known_before_it() -> None:
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        made.together()
        for round in range(20):
            source, log = lab.channel(f"t.c{round}.x", TYPE).source(), Log()
            assert desk.ready(GUARD)  # it knows of the channel, which concerns nobody yet
            desk.subscribe(f"t.c{round}.*", log)
            assert desk.ready(GUARD)
            source.publish(n=round)
            assert log.wait(1) and log.field("n") == [round]


def test_several_nodes_that_advertise_at_once_are_waited_for() -> None:
    with nodes() as made:
        labs = [made(f"lab{number}") for number in range(4)]
        desk = made("desk")
        made.together()
        log = Log()
        desk.channel("t.c", TYPE).subscribe(log)
        barrier = threading.Barrier(len(labs))
        sources: list[Any] = []

        def advertise(lab: Node) -> None:
            barrier.wait()
            sources.append(lab.channel("t.c", TYPE).source())

        threads = [threading.Thread(target=advertise, args=(lab,)) for lab in labs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert desk.ready(GUARD)
        for number, source in enumerate(sources):
            source.publish(n=number)
        log.wait(4)
        assert sorted(log.field("n")) == [0, 1, 2, 3]


def test_what_is_new_and_not_known_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has said that there is something new, and does not get round to saying what."""
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        made.together()
        assert lab._engine is not None
        go_on, describe_to = threading.Event(), lab._engine.membership.describe_to

        def slow(*args: Any) -> Any:
            assert go_on.wait(GUARD)
            return describe_to(*args)

        monkeypatch.setattr(lab._engine.membership, "describe_to", slow)
        log = Log()
        desk.channel("t.c", TYPE).subscribe(log)
        source = lab.channel("t.c", TYPE).source()
        assert not desk.ready(0.3)
        go_on.set()
        assert desk.ready(GUARD)
        source.publish(n=1)
        log.wait(1)


def test_signs_of_life_of_nobody_are_not_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "STRANGER_SECONDS", 0.2)
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        made.together()
        assert desk._engine is not None
        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", f'["{lab.endpoints[0]}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        with zenoh.open(config) as session:
            for number in range(20):
                name = f"nobody.{number:032x}".encode().hex()
                session.liveliness().declare_token(f"headwater/{desk._engine.network.federation}/alive/{name}/12")
            log = Log()
            source = lab.channel("t.c", TYPE).source()
            desk.channel("t.c", TYPE).subscribe(log)
            assert desk.ready(GUARD)
            source.publish(n=1)
            log.wait(1)


def test_who_is_at_an_endpoint_that_was_just_reached_is_waited_for() -> None:
    """There is a connection, and nobody has said yet who is at its other end."""
    with nodes() as made:
        for round in range(5):
            where, log = free_port(), Log()
            desk = made(f"desk{round}", connect=where)
            desk.channel("t.c", TYPE).subscribe(log)
            hall = made(f"hall{round}", listen=where)
            source = hall.channel("t.c", TYPE).source()
            assert desk.ready(GUARD), desk.unready()
            source.publish(n=round)
            log.wait(1)
            assert log.field("n") == [round]


def test_a_node_that_leaves_is_not_waited_for() -> None:
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        gone = made("gone")
        made.together()
        gone.channel("t.c", TYPE).source()
        desk.channel("t.c", TYPE).subscribe(lambda event: None)
        assert desk.ready(GUARD)
        gone.close(drain=False)
        assert desk.until(lambda: desk.peers == [lab.name], GUARD)
        assert desk.ready(GUARD)
