"""Durable sinks that come back after others of their node have had events already: none of theirs is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, Reliable, i64
from tests.federation.moving.test_sources import place
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

CHANNEL = "test.count"
DURABLE = Reliable(durable=True)


class Count(Event, name="test.Count"):
    n: i64


def sink(node: Node, name: str, seen: list[int], where: str | None = None) -> None:
    node.channel(CHANNEL, Count).subscribe(lambda event: seen.append(event.n), where, name=name, delivery=DURABLE)


def publish(source: object, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", [None, "n % 2 == 0"])
def test_one_that_is_back_long_after_its_sibling_has_all(
    where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source waits for it for a while, and then no longer."""
    monkeypatch.setattr("headwater.federation.interests.installer.RETURN_SECONDS", 0.1)
    with nodes() as make:
        lab = place(make, "lab", tmp_path)
        source = lab.channel(CHANNEL, Count).source("s")
        desk, first, late = place(make, "desk", tmp_path), [], []
        sink(desk, "first", first)
        sink(desk, "late", late, where)
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        wanted = [n for n in range(10) if where is None or n % 2 == 0]
        eventually(lambda: len(first) == 10 and late == wanted, "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        desk = place(make, "desk", tmp_path)
        sink(desk, "first", first)
        see(desk, lab)
        eventually(lambda: len(first) == 20, "the first has what it missed")
        publish(source, 20, 30)
        eventually(lambda: len(first) == 30, "and what followed")
        sink(desk, "late", late, where)
        assert desk.ready(GUARD)
        publish(source, 30, 40)
        wanted = [n for n in range(40) if where is None or n % 2 == 0]
        eventually(lambda: len(late) >= len(wanted), f"the late one has all: {late}")
        assert late == wanted
        assert first == list(range(40))


def test_a_source_that_moves_meanwhile_waits_for_nobody_and_the_late_one_has_all(tmp_path: Path) -> None:
    """Its new node is told how far those are who are back by then."""
    with nodes() as make:
        lab, hall = place(make, "lab", tmp_path), place(make, "hall", tmp_path)
        hall.channel(CHANNEL, Count)
        source = lab.channel(CHANNEL, Count).source("s")
        desk, first, late = place(make, "desk", tmp_path), [], []
        sink(desk, "first", first)
        sink(desk, "late", late)
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        eventually(lambda: len(first) == len(late) == 10, "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        token = source.move()
        source = hall.resume_source(token)
        publish(source, 20, 25)
        desk = place(make, "desk", tmp_path)
        sink(desk, "first", first)
        see(desk, hall)
        eventually(lambda: len(first) == 25, "the first has what it missed")
        sink(desk, "late", late)
        assert desk.ready(GUARD)
        publish(source, 25, 30)
        eventually(lambda: len(late) >= 30, f"the late one has all: {late}")
        assert first == late == list(range(30))


@pytest.mark.parametrize("moved", [False, True])
def test_a_source_that_is_made_again_after_its_sinks_are_back(moved: bool, tmp_path: Path) -> None:
    """Who asks for its events does not know of it yet."""
    with nodes() as make:
        place(make, "hub", tmp_path)
        lab, hall = place(make, "lab", tmp_path), place(make, "hall", tmp_path)
        source = lab.channel(CHANNEL, Count).source("s")
        if moved:
            source = hall.resume_source(source.move())
            lab, hall = hall, lab
        desk, seen = place(make, "desk", tmp_path), []
        sink(desk, "first", seen)
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        eventually(lambda: len(seen) == 10, "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        name = lab.name
        lab.close(drain=False, timeout=0.0)
        lab = place(make, name, tmp_path)
        channel = lab.channel(CHANNEL, Count)
        desk = place(make, "desk", tmp_path)
        sink(desk, "first", seen)
        see(desk, lab)
        assert desk.ready(GUARD)
        source = channel.source("s")
        publish(source, 20, 30)
        eventually(lambda: len(seen) >= 30, f"it has all: {seen}")
        assert seen == list(range(30))


@pytest.mark.parametrize("late", [1, 4])
def test_those_that_come_back_together_have_what_they_missed_once(late: int, tmp_path: Path) -> None:
    """Though the first of them is asked for before the others are there: nothing is read twice for them."""
    names = [f"sink {number}" for number in range(1 + late)]
    with nodes() as make:
        lab = place(make, "lab", tmp_path)
        source = lab.channel(CHANNEL, Count).source("s")
        desk = place(make, "desk", tmp_path)
        seen: dict[str, list[int]] = {name: [] for name in names}
        for name in names:
            sink(desk, name, seen[name])
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        eventually(lambda: all(len(each) == 10 for each in seen.values()), "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 500)
        desk = place(make, "desk", tmp_path)
        for name in names:
            sink(desk, name, seen[name])
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 500, 510)
        eventually(lambda: all(len(each) >= 510 for each in seen.values()), "all came")
        assert all(each == list(range(510)) for each in seen.values())
        [came] = [each for peer in desk.federation_report().peers for each in peer.stand_ins if each.channel == CHANNEL]
        assert came.received == 500


@pytest.mark.parametrize("moved", [False, True])
def test_one_that_was_about_to_leave_when_its_node_was_killed(moved: bool, tmp_path: Path) -> None:
    """What came meanwhile was acknowledged, and left to the log: the source's node has forgotten that."""
    with nodes() as make:
        place(make, "hub", tmp_path)
        lab, hall = place(make, "lab", tmp_path), place(make, "hall", tmp_path)
        source = lab.channel(CHANNEL, Count).source("s")
        if moved:
            source = hall.resume_source(source.move(), timeout=GUARD)
        desk, seen = place(make, "desk", tmp_path), list[int]()
        sink(desk, "kept", seen)
        see(desk, hall if moved else lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        eventually(lambda: len(seen) == 10, "all came")
        token = desk.subscriptions["kept"].move(lasts=3600.0)
        publish(source, 10, 20)
        assert (hall if moved else lab).flush(GUARD)
        desk.close(drain=False, timeout=0.0)
        publish(source, 20, 30)
        desk = place(make, "desk", tmp_path)
        desk.channel(CHANNEL, Count)
        desk.resume(token, lambda event: seen.append(event.n), timeout=GUARD)
        publish(source, 30, 40)
        eventually(lambda: len(seen) >= 40, f"it has all: {seen}")
        assert seen == list(range(40))


def lives_while_away(make: Nodes, path: Path, lives: int, had: int, *others: str) -> tuple[Node, list[int]]:
    """A source is closed and made again while its sink is away, and publishes ten events in each of its lives."""
    place(make, "hub", path)
    lab = place(make, "lab", path)
    channel, desk, seen = lab.channel(CHANNEL, Count), place(make, "desk", path), list[int]()
    source = channel.source("s")
    for each in others:
        channel.source(each)
    sink(desk, "first", seen)
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, had)
    eventually(lambda: len(seen) == had, "all came")
    desk.close(drain=False, timeout=0.0)
    for life in range(lives):
        if life:
            source = channel.source("s")
        publish(source, had + life * 10, had + life * 10 + 10)
        source.close()
    return lab, seen


@pytest.mark.parametrize("made_before", [False, True])
@pytest.mark.parametrize("had", [0, 5])
@pytest.mark.parametrize("lives", [1, 2, 3])
def test_a_source_that_is_made_again_and_again_while_its_sink_is_away(
    lives: int, had: int, made_before: bool, tmp_path: Path
) -> None:
    """Also of one that the sink has had nothing of yet: it is to have all since it was subscribed."""
    with nodes() as make:
        lab, seen = lives_while_away(make, tmp_path, lives, had)
        source = lab.channel(CHANNEL).source("s") if made_before else None
        desk, last = place(make, "desk", tmp_path), had + lives * 10
        see(desk, lab)
        source = source or lab.channel(CHANNEL).source("s")
        sink(desk, "first", seen)
        publish(source, last, last + 10)
        assert desk.ready(GUARD)
        publish(source, last + 10, last + 20)
        eventually(lambda: len(seen) >= last + 20, f"it has all: {seen}")
        assert seen == list(range(last + 20))


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("had", [0, 5])
@pytest.mark.parametrize("lives", [1, 2, 3])
def test_a_source_that_is_closed_while_its_sink_is_away_and_publishes_nothing_more(
    lives: int, had: int, beside: bool, tmp_path: Path
) -> None:
    """What it had published comes when it is there again, or where another one is."""
    with nodes() as make:
        lab, seen = lives_while_away(make, tmp_path, lives, had, *(["other"] if beside else []))
        desk = place(make, "desk", tmp_path)
        see(desk, lab)
        sink(desk, "first", seen)
        if not beside:
            lab.channel(CHANNEL).source("s")
        eventually(lambda: len(seen) >= had + lives * 10, f"it has all: {seen}")
        assert seen == list(range(had + lives * 10))


def test_those_that_ask_in_the_moment_in_which_their_source_is_made_again_have_all(tmp_path: Path) -> None:
    """They do not know of it yet, so they do not say how far they are. Its earlier life has kept some for them, and the
    next one begins after that, and says so first."""
    with nodes() as make:
        lab = place(make, "lab", tmp_path)
        channel = lab.channel(CHANNEL, Count)
        source = channel.source("s")
        desk, seen, last = place(make, "desk", tmp_path), list[int](), list[int]()
        sink(desk, "kept", seen, "n % 2 == 0")
        sink(desk, "last", last)
        see(desk, lab)
        assert desk.ready(GUARD)
        desk.close(drain=False, timeout=0.0)
        publish(source, 0, 10)
        desk = place(make, "desk", tmp_path)
        sink(desk, "kept", seen, "n % 2 == 0")
        peer = next(each for each in lab._engine.everyone() if each.name == "desk")  # type: ignore[union-attr]
        eventually(lambda: peer.crossings[CHANNEL].deferred is not None, "it has asked")
        source.close()
        assert desk.until(lambda: not desk.remote_sources(CHANNEL), GUARD)
        positions = desk._engine.positions  # type: ignore[union-attr]
        said = positions.said

        def says(*given: Any) -> Any:
            found = said(*given)
            if not channel.sources:
                publish(channel.source("s"), 10, 20)
            return found

        positions.said = says  # type: ignore[method-assign]
        sink(desk, "last", last)
        eventually(lambda: bool(channel.sources), "it has asked")
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(channel.sources["s"], 20, 30)
        eventually(lambda: 28 in seen and 29 in last, f"the last came: {seen}, {last}")
        assert seen == list(range(0, 30, 2))
        assert last == list(range(30))
