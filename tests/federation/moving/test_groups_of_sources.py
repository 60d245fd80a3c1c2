"""Durable groups of sources that move: how far they are goes along, and each event is handled by one member."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Log, Node, Reliable
from headwater.channel.groups.durable import DurableGroup
from headwater.channel.groups.service import groups_of
from headwater.errors import Unreachable
from tests.federation.moving.test_sources import (
    CHANNEL,
    LISTEN,
    Count,
    Publisher,
    again,
    numbers,
    place,
    publish,
    world,
)
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

DURABLE = Reliable(durable=True)


class Workers:
    """Handlers that share what they have done: numbers that came for the first time, and those that came again and
    said so."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.again: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, event: Any, about: Any) -> None:
        with self._lock:
            (self.again if about.redelivered else self.done).append(event.n)

    def join(self, node: Node, **options: Any) -> Any:
        return node.channel(CHANNEL, Count).subscribe(self, group="workers", delivery=DURABLE, **options)

    def wait(self, numbers: range) -> None:
        eventually(lambda: {*self.done, *self.again} >= set(numbers), f"{numbers} are done", GUARD)
        assert {*self.done, *self.again} == set(numbers)
        assert len(self.done) == len(set(self.done)), "what comes again says so"


def attended(node: Node, by: int, group: str = "workers") -> None:
    """A group of a node has so many members."""

    def members() -> int:
        return int(node.report().services.get("groups", {}).get(f"{CHANNEL}/{group}", {}).get("members", 0))

    eventually(lambda: members() >= by, f"{by} members at {node.name}", GUARD)


def leave(node: Node, member: Any) -> None:
    """The last member of a group of a node goes, when it has acknowledged all that it has had."""
    counts = lambda: node.report().services["groups"][f"{CHANNEL}/workers"]  # noqa: E731
    eventually(lambda: counts()["outstanding"] == 0, "all is acknowledged", GUARD)
    member.cancel()
    eventually(lambda: counts()["members"] == 0, "nobody is there", GUARD)


def deserted(make: Nodes, path: Path, done: int, upto: int) -> tuple[Workers, Node, Node, Node, Any]:
    """A source with a group that has handled some of its events, and of which nobody was there for the rest."""
    workers = Workers()
    hub, lab, mill = world(make, path)
    source = lab.channel(CHANNEL).source("s")
    member = workers.join(hub)
    attended(lab, 1)
    publish(source, 0, done)
    workers.wait(range(done))
    leave(lab, member)
    publish(source, done, upto)
    return workers, hub, lab, mill, source


@pytest.mark.parametrize("key", [None, "n"])
def test_each_event_is_handled_by_one_member_while_the_source_moves_to_and_fro(tmp_path: Path, key: str | None) -> None:
    workers = Workers()
    with nodes() as make:
        hub, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        for node in (hub, hub, mill):
            workers.join(node, group_key=key)
        attended(lab, 3)
        places = [lab, mill]
        with Publisher(source) as publisher:
            for number in range(4):
                enough = publisher.next + 50
                eventually(lambda enough=enough: publisher.next >= enough, "it publishes")
                token = publisher.source.move()
                publisher.goes_on_at(places[1 - number % 2].resume_source(token, timeout=GUARD))
            enough = publisher.next + 50
            eventually(lambda: publisher.next >= enough, "it publishes")
        workers.wait(range(publisher.next))
        counts = [node.report().services["groups"][f"{CHANNEL}/workers"] for node in (lab, mill)]
        assert all(each["forged"] == each["lost"] == 0 for each in counts)


def test_what_waits_for_a_member_goes_along_and_the_old_node_is_not_needed_any_more(tmp_path: Path) -> None:
    """Nobody is there while it moves. A source that the new node has had before is the group's from here on."""
    with nodes() as make:
        workers, hub, lab, mill, source = deserted(make, tmp_path, 5, 15)
        other = mill.channel(CHANNEL).source("other")
        for n in range(100, 110):
            other.publish(Count(n))
        moved = mill.resume_source(source.move(), timeout=GUARD)
        publish(moved, 15, 20)
        lab.close()
        make.opened.remove(lab)
        other.publish(Count(20))
        workers.join(hub)
        workers.wait(range(21))
        publish(moved, 20, 21)
        assert workers.again == []


def test_what_a_member_has_at_hand_comes_again_marked_where_the_source_goes_on(tmp_path: Path) -> None:
    """It may finish; at the old node nobody gets it again, though it is given back there."""
    workers, began, gate = Workers(), threading.Event(), threading.Event()

    def slow(event: Any, about: Any) -> None:
        began.set()
        gate.wait(GUARD)
        workers(event, about)

    with nodes() as make:
        hub, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        member = hub.channel(CHANNEL).subscribe(slow, group="workers", delivery=DURABLE, queue=4, dispatch="pool")
        attended(lab, 1)
        publish(source, 0, 10)
        assert began.wait(GUARD)
        eventually(lambda: lab.report().services["groups"][f"{CHANNEL}/workers"]["outstanding"] == 4, "it has 4", GUARD)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        workers.join(lab)
        attended(mill, 1)
        attended(lab, 1)
        publish(moved, 10, 12)
        member.cancel()
        gate.set()
        workers.wait(range(12))
        eventually(lambda: 0 in workers.done, "it has finished", GUARD)
        assert {0, 1, 2, 3} <= set(workers.again) and len(workers.again) == len(set(workers.again))
        at_lab = lab.report().services["groups"][f"{CHANNEL}/workers"]
        assert at_lab["handed"] == 4 and at_lab["redelivered"] == at_lab["forged"] == at_lab["lost"] == 0


def test_the_new_node_is_started_again_and_goes_on_with_what_came(tmp_path: Path) -> None:
    """Also before its program makes the source, and though that publishes nothing any more."""
    with nodes() as make:
        workers, _, lab, mill, source = deserted(make, tmp_path, 3, 8)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        publish(moved, 8, 10)
        lab.close()
        make.opened.remove(lab)
        mill = again(make, mill, tmp_path, "mill")
        workers.join(mill)
        workers.wait(range(10))
        back = mill.channel(CHANNEL).source("s")
        publish(back, 10, 12)
        workers.wait(range(12))
        assert workers.again == []
        mill = again(make, mill, tmp_path, "mill")
        workers.join(mill)
        publish(mill.channel(CHANNEL).source("s"), 12, 14)
        workers.wait(range(14))
        assert workers.again == []


def lose_the_answer(lab: Node, mill: Node, token: str) -> None:
    """A source of one node is claimed by the other, which does not hear of it."""
    service = lab._moving_sources
    assert service is not None
    answered = service._groups_with

    def lost(*given: Any) -> Any:
        if service.left:
            raise Unreachable("the answer is lost")
        return answered(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "_groups_with", lost)
        with pytest.raises(Exception, match="the answer is lost"):
            mill.resume_source(token, timeout=1.0)


def test_a_claim_whose_answer_was_lost_is_answered_the_same_after_a_restart(tmp_path: Path) -> None:
    """The old node was killed between: its group does not go on with what is another's."""
    with nodes() as make:
        workers, _, lab, mill, source = deserted(make, tmp_path, 4, 9)
        token = source.move()
        lose_the_answer(lab, mill, token)
        lab = again(make, lab, tmp_path, "lab")
        lab.channel(CHANNEL).source("another")
        workers.join(lab)
        moved = mill.resume_source(token, timeout=GUARD)
        publish(moved, 9, 12)
        see(lab, mill)
        workers.wait(range(12))
        assert workers.again == []


def test_a_group_that_has_not_begun_where_it_was_begins_where_it_comes(tmp_path: Path) -> None:
    workers = Workers()
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 5)
        mill.channel(CHANNEL).source("other").publish(Count(50))
        member = mill.channel(CHANNEL).subscribe(workers, "n < 100", group="elsewhere", delivery=DURABLE)
        attended(mill, 1, "elsewhere")
        member.cancel()  # there may be such a group at the other node by now, or not
        moved = mill.resume_source(source.move(), timeout=GUARD)
        workers.join(mill)
        publish(moved, 5, 10)
        workers.wait(range(5, 10))
        assert workers.again == []


def test_what_is_just_read_while_the_source_leaves_is_not_taken_for_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads the log has come to its end when the source leaves, with what it has read."""
    held, read, left, over = (threading.Event() for _ in range(4))
    reading, skip, rest, part = (getattr(DurableGroup, name) for name in ("_read_some", "_skip", "rest", "part"))
    with nodes() as make:
        workers, _, lab, mill, source = deserted(make, tmp_path, 5, 15)

        def reads(group: Any, each: Any) -> Any:
            return (group.node is not lab or held.wait(GUARD)) and reading(group, each)

        def skips(group: Any, each: Any) -> None:
            if group.node is lab:
                read.set()
                left.wait(GUARD)
            skip(group, each)
            over.set()

        def rests(group: Any, *given: Any) -> Any:
            found = rest(group, *given)
            held.set()
            read.wait(GUARD)
            return found

        def parts(group: Any, name: str) -> None:
            part(group, name)
            left.set()
            over.wait(GUARD)

        for name, instead in (("_read_some", reads), ("_skip", skips), ("rest", rests), ("part", parts)):
            monkeypatch.setattr(DurableGroup, name, instead)
        workers.join(lab)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        publish(moved, 15, 20)
        workers.wait(range(20))
        assert workers.again == []


def test_a_group_begins_where_a_source_is_that_came_back_and_is_not_open_yet(tmp_path: Path) -> None:
    """What it has published elsewhere since it was here before was before the group."""
    workers = Workers()
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        publish(moved, 10, 20)
        lab.resume_source(moved.move(), timeout=GUARD)
        lab = again(make, lab, tmp_path, "lab")
        workers.join(lab)
        publish(lab.channel(CHANNEL).source("s"), 20, 25)
        workers.wait(range(20, 25))


def test_a_group_that_comes_with_a_source_begins_where_others_are_that_came_back(tmp_path: Path) -> None:
    with nodes() as make:
        workers, _, _, mill, source = deserted(make, tmp_path, 5, 10)
        other = mill.channel(CHANNEL).source("other")
        hut = place(make, "hut", tmp_path)
        hut.channel(CHANNEL, Count)
        make.together()
        other.publish(Count(100))
        other = hut.resume_source(other.move(), timeout=GUARD)
        other.publish(Count(101))
        other = mill.resume_source(other.move(), timeout=GUARD)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        workers.join(mill)
        publish(moved, 10, 15)
        other.publish(Count(15))
        workers.wait(range(16))
        assert workers.again == []


def test_a_source_that_has_left_before_groups_met_it_is_not_followed(tmp_path: Path) -> None:
    with nodes() as make:
        workers, _, lab, mill, source = deserted(make, tmp_path, 5, 10)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        workers.join(lab)
        attended(mill, 1)
        workers.wait(range(10))
        groups_of(lab).meet(source)
        publish(moved, 10, 15)
        workers.wait(range(15))
        assert lab.report().services["groups"][f"{CHANNEL}/workers"]["handed"] == 5


def test_a_source_that_comes_while_a_group_starts_is_followed_from_where_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened between two looks of the group at what there is; what was before is not the group's."""
    workers = Workers()
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        mill.channel(CHANNEL).source("other")
        workers.join(mill).cancel()
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        token, real = source.move(), mill._moved_sources
        resuming = threading.Thread(target=lambda: mill.resume_source(token, timeout=GUARD))

        def meanwhile(channel: str) -> Any:
            found = real(channel)
            if resuming.ident is None:
                resuming.start()
                eventually(lambda: "s" in mill.channel(CHANNEL).sources, "it is here", GUARD)
            return found

        monkeypatch.setattr(mill, "_moved_sources", meanwhile)
        workers.join(mill)
        resuming.join(GUARD)
        publish(mill.channel(CHANNEL).sources["s"], 10, 15)
        workers.wait(range(10, 15))


def test_what_retention_has_removed_after_what_came_with_a_source_is_counted_as_lost(tmp_path: Path) -> None:
    """It was published where the source is now; what it had published before, elsewhere, is still there."""
    with nodes() as make:
        workers, hub, _, mill, source = deserted(make, tmp_path, 5, 15)
        forgetful: dict[str, Any] = {"log": Log(tmp_path / "mill.log", keep_bytes=0), "connect": hub.endpoints[0]}
        for first in (15, 20):
            mill.close()
            make.opened.remove(mill)
            mill = make("mill", state=tmp_path / "mill.state", listen=LISTEN, **forgetful)
            mill.channel(CHANNEL, Count)
            make.together()
            if first == 15:
                source = mill.resume_source(source.move(), timeout=GUARD)
            else:
                source = mill.channel(CHANNEL).source("s")
                eventually(lambda: not numbers(tmp_path, "mill"), "it is removed", GUARD)
            publish(source, first, first + 5)
        workers.join(mill)
        eventually(lambda: 24 in workers.done, "all that there is is done", GUARD)
        assert workers.done == [*range(15), *range(20, 25)] and workers.again == []
        assert mill.report().services["groups"][f"{CHANNEL}/workers"]["lost"] == 5


@pytest.mark.parametrize("comes_along", [False, True])
def test_a_group_that_begins_while_a_source_is_on_its_way_has_what_comes_then(
    comes_along: bool, tmp_path: Path
) -> None:
    """It begins where the source was, with a member there or with another source that comes there."""
    workers = Workers()
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        token = source.move()
        lose_the_answer(lab, mill, token)
        if comes_along:
            other = mill.channel(CHANNEL).source("other")
            workers.join(mill).cancel()
            lab.resume_source(other.move(), timeout=GUARD)
        workers.join(lab)
        moved = mill.resume_source(token, timeout=GUARD)
        see(lab, mill)
        publish(moved, 10, 15)
        workers.wait(range(10, 15))


def test_a_source_that_came_to_a_group_is_the_groups_from_there_on_though_the_node_ends_before_anything_is_done(
    tmp_path: Path,
) -> None:
    """What a member has just then comes again, marked; what the source had published before it came does not."""
    workers, began, gate = Workers(), threading.Event(), threading.Event()

    def stuck(event: Any, about: Any) -> None:
        began.set()
        gate.wait(GUARD)

    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        mill.channel(CHANNEL).source("other")
        workers.join(mill).cancel()
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        mill.channel(CHANNEL).subscribe(stuck, group="workers", delivery=DURABLE, dispatch="pool")
        publish(moved, 10, 12)
        assert began.wait(GUARD)
        state = (tmp_path / "mill.state").read_bytes(), (tmp_path / "mill.state-wal").read_bytes()
        gate.set()
        mill.close()
        make.opened.remove(mill)
        for name, data in zip(("mill.state", "mill.state-wal"), state, strict=True):  # as a kill would have left it
            (tmp_path / name).write_bytes(data)
        mill = place(make, "mill", tmp_path)
        workers.join(mill)
        publish(mill.channel(CHANNEL, Count).source("s"), 12, 15)
        workers.wait(range(10, 15))
        assert 10 in workers.again
