"""What `flush` and `close` wait for where sources move and nodes are started again: all that is owed, nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Log, Node, Reliable, i64
from headwater.network import Network
from tests.federation.moving.test_sources import EVERY_FIFTH, LISTEN, place
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

CHANNEL = "test.count"
DURABLE = Reliable(durable=True)


class Count(Event, name="test.Count"):
    n: i64


def sink(node: Node, seen: list[int], **options: Any) -> Any:
    return node.channel(CHANNEL, Count).subscribe(lambda event: seen.append(event.n), name="mail", **options)


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def begun(make: Nodes, path: Path, *, log: bool = True, **options: Any) -> tuple[Node, Node, Any, list[int]]:
    """A lab with a source, and a desk with a sink that has had ten events of it."""
    lab, desk = place(make, "lab", path, log=log), place(make, "desk", path, log=False)
    source = lab.channel(CHANNEL, Count).source("s")
    seen = list[int]()
    sink(desk, seen, **options)
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 10)
    eventually(lambda: len(seen) == 10, "all came")
    return lab, desk, source, seen


@pytest.mark.parametrize("moves", ["before", "after"])
def test_nothing_is_owed_to_a_node_that_was_started_again_of_a_source_that_has_left(moves: str, tmp_path: Path) -> None:
    """What it missed it has from the node that the source has come to: it never asks the old one again."""
    with nodes() as make:
        lab, desk, source, seen = begun(make, tmp_path, delivery=DURABLE)
        hall = place(make, "hall", tmp_path)
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        if moves == "before":
            source = hall.resume_source(source.move(), timeout=GUARD)
        desk = place(make, "desk", tmp_path, log=False)
        make.together(lab, hall, desk)
        if moves == "after":
            source = hall.resume_source(source.move(), timeout=GUARD)
        see(desk, hall)
        assert desk.until(lambda: not any("@lab" in each for each in desk.remote_sources(CHANNEL)), GUARD)
        publish(source, 20, 30)
        sink(desk, seen, delivery=DURABLE)
        eventually(lambda: len(seen) == 30, "it has what it missed")
        assert lab.flush(GUARD)
        assert hall.flush(GUARD)
        assert seen == list(range(30))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("ends", ["flush", "close", "close the source"])
def test_who_had_the_events_of_a_source_has_those_that_are_published_where_it_has_come_to(
    ends: str, known: bool, tmp_path: Path
) -> None:
    """Though it has not asked there yet, and is perhaps not known there yet, when they are published."""
    with nodes() as make:
        lab, desk, source, seen = begun(make, tmp_path)
        hall = place(make, "hall", tmp_path)
        if known:
            make.together(lab, desk, hall)
        moved = hall.resume_source(source.move(), timeout=GUARD)
        publish(moved, 10, 20)
        if ends == "close the source":
            moved.close()
        if ends != "close":
            assert hall.flush(GUARD)
            assert seen == list(range(20))
            hall.close(drain=False, timeout=0.0)
        else:
            hall.close(timeout=GUARD)
            eventually(lambda: len(seen) == 20, "it came before the node was closed")
        assert seen == list(range(20))


def test_a_subscriber_is_not_waited_for_where_it_has_asked_before_and_wants_less_by_now(tmp_path: Path) -> None:
    """The source comes back to a node that has told it before that all it wants is in force."""
    with nodes() as make:
        lab, desk, source, seen = begun(make, tmp_path)
        fewer = desk.channel(CHANNEL).subscribe(print, EVERY_FIFTH)
        hall = place(make, "hall", tmp_path)
        for node, cancels in ((hall, True), (lab, False), (hall, False)):
            source = node.resume_source(source.move(), timeout=GUARD)
            assert node.flush(GUARD)
            if cancels:
                fewer.cancel()
                assert desk.ready(GUARD)
        publish(source, 10, 20)
        assert hall.flush(GUARD)
        assert seen == list(range(20))


def test_without_a_log_a_subscriber_that_is_not_known_yet_misses_nothing(tmp_path: Path) -> None:
    """The node that the source comes to was opened just now."""
    with nodes() as make:
        _, _, source, seen = begun(make, tmp_path, log=False)
        hall = place(make, "hall", tmp_path, log=False)
        moved = hall.resume_source(source.move(), timeout=GUARD)
        publish(moved, 10, 20)
        assert hall.flush(GUARD)
        assert seen == list(range(20))


def test_something_is_owed_to_a_node_that_is_away(tmp_path: Path) -> None:
    """It is not waited for; when it is back, it is."""
    with nodes() as make:
        lab, desk, source, seen = begun(make, tmp_path, log=False, delivery=DURABLE)
        desk.close(drain=False, timeout=0.0)
        assert lab.until(lambda: "desk" not in lab.peers, GUARD)
        publish(source, 10, 20)
        assert not lab.flush(GUARD)
        desk = place(make, "desk", tmp_path, log=False)
        sink(desk, seen, delivery=DURABLE)
        make.together(lab, desk)
        assert lab.flush(GUARD)
        assert seen == list(range(20))


def test_a_node_that_is_closed_still_sends_what_it_has_kept_for_one_that_was_started_again(tmp_path: Path) -> None:
    """That asks for it when the other has begun to close."""
    with nodes() as make:
        lab, desk, source, seen = begun(make, tmp_path, log=False, delivery=DURABLE)
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        desk = place(make, "desk", tmp_path, log=False)
        make.together(lab, desk)
        see(desk, lab)
        closing = threading.Thread(target=lambda: lab.close(timeout=GUARD))
        closing.start()
        eventually(lambda: lab.closed, "it is being closed")
        sink(desk, seen, delivery=DURABLE)
        eventually(lambda: len(seen) == 20, "it has what was kept")
        closing.join(GUARD)
        assert seen == list(range(20))


@pytest.mark.parametrize("logged", [True, False])
def test_what_is_kept_for_a_node_that_was_started_again_and_does_not_ask_is_given_up(
    logged: bool, tmp_path: Path
) -> None:
    """As if it had stayed away: after `keep` seconds. A log still has it."""
    with nodes() as make:
        log = {"log": Log(tmp_path / "log")} if logged else {}
        lab = make("lab", network=Network(listen=LISTEN, keep=1.0), state=tmp_path / "lab.state", **log)
        source = lab.channel(CHANNEL, Count).source("s")
        desk, seen = place(make, "desk", tmp_path, log=False), list[int]()
        sink(desk, seen, delivery=DURABLE)
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        eventually(lambda: len(seen) == 10, "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        desk = place(make, "desk", tmp_path, log=False)
        make.together(lab, desk)
        assert lab.flush(GUARD)
        sink(desk, seen, delivery=DURABLE)
        assert desk.ready(GUARD)
        publish(source, 20, 30)
        eventually(lambda: seen[-1] == 29, "it goes on")
        assert seen == [n for n in range(30) if logged or not 10 <= n < 20]


@pytest.mark.parametrize(("logged", "delivery"), [(True, DURABLE), (True, Reliable()), (False, Reliable())])
def test_who_was_a_member_of_a_group_has_what_is_published_where_the_source_has_come_to(
    logged: bool, delivery: Reliable, tmp_path: Path
) -> None:
    """Though its node has not asked there yet for a place in the group."""
    with nodes() as make:
        _, _, source, seen = begun(make, tmp_path, log=logged, group="workers", delivery=delivery)
        hall = place(make, "hall", tmp_path, log=logged)
        moved = hall.resume_source(source.move(), timeout=GUARD)
        publish(moved, 10, 20)
        assert hall.flush(GUARD)
        assert seen == list(range(20))
