"""The two ends of a lane over a link that loses, doubles and delays posts: nothing is lost or handled twice."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Node
from headwater.channel.groups.distribution import Handed
from headwater.channel.routing.letter import Letter
from headwater.errors import FrameError
from headwater.federation.groups.attendance import Attendance
from headwater.federation.groups.seat import RemoteSeat
from headwater.federation.wire import group_messages as wire
from headwater.federation.wire.control import Post, decode_control
from headwater.testing import eventually
from tests.effort import examples

HEAD = 5  # bytes of a frame before its message


class Job(Event, name="lanes.Job"):
    number: int
    text: str


class Ledger:
    """In the place of a group: knows what it has handed over, and what is acknowledged."""

    def __init__(self) -> None:
        self.forged = self.lost = 0
        self.open: set[int] = set()
        self.done: list[int] = []

    def acknowledge(self, id: str, numbers: list[int]) -> None:
        for number in numbers:
            self.open.remove(number)
            self.done.append(number)

    def give_up(self, id: str, numbers: list[int]) -> None:
        self.acknowledge(id, numbers)
        self.lost += len(numbers)


class World:
    """A seat and an attendance, and posts on their way between them; a member at a real node."""

    def __init__(self, node: Node, handled: list[tuple[int, bool]], seed: int, loss: float) -> None:
        self.random, self.loss = random.Random(seed), loss
        self.carrying: list[Any] = []  # who has something to be sent
        self.ways: dict[str, list[bytes]] = {"there": [], "back": []}
        self.jobs = node.channel("jobs", Job)
        self.source = self.jobs.source()
        self.member: Any = self.jobs.subscribe(
            lambda job, about: handled.append((job.number, about.redelivered)), group="workers", queue=200
        )
        self.group = Ledger()
        self.seat = RemoteSeat("it", 7, 200, self.poster("there"), self.put_up)
        self.seat.group = self.group  # type: ignore[assignment]
        self.attendance = Attendance(self.member, "lab.1", 1, 7, "lab", self.poster("back"))
        self.attendance.accept(self.jobs.type)
        self.numbers = 0

    def put_up(self, seat: RemoteSeat, *, gathered: bool = False) -> None:
        self.carrying.append(seat)

    def poster(self, way: str) -> Any:
        def post(said: wire.GroupPost) -> bool:
            if self.random.random() >= self.loss:
                self.ways[way].append(wire.encode(said))
            return True

        return post

    def hand(self, count: int, text: str = "", again: bool = False, run: bool = False) -> None:
        handed = []
        for _ in range(count):
            self.numbers += 1
            record = self.jobs.type.encode(Job(self.numbers, text))
            letter = Letter(None, record, self.source, self.numbers, 0, 0, 0)  # type: ignore[arg-type]
            self.group.open.add(self.numbers)
            handed.append(Handed("it", self.numbers, letter, again))
        ready: list[Any] = []
        if run:
            self.seat.hand_run(handed[0].number, [each.event for each in handed], ready)
        else:
            self.seat.hand(handed, ready)
        for each in ready:
            each.dispatch()

    def send(self) -> None:
        """It is time to send."""
        carrying, self.carrying[:] = list(self.carrying), []
        for each in carrying:
            for frame in each.frames():
                post = decode_control(frame, HEAD)
                assert isinstance(post, Post)
                if self.random.random() >= self.loss:
                    self.ways["there"].append(post.body)

    def carry(self, way: str) -> None:
        if self.random.random() < 0.7 or not self.ways["there"]:
            self.send()
        posts = self.ways[way]
        if posts:
            self.hear(wire.decode(posts.pop(0)))

    def hear(self, said: wire.GroupPost) -> None:
        match said:
            case wire.Deal():
                self.attendance.take(said)
            case wire.Probe():
                self.attendance.stand()
            case wire.Handled(numbers=numbers):
                self.seat.handled(numbers)
            case wire.Standing(received=received, open=open):
                self.seat.stands(received, open)
            case wire.Again(after=after):
                self.seat.again(after)

    def settle(self) -> None:
        """The link loses nothing any more; now and then it is asked how far everybody is."""
        self.loss = 0.0
        for _ in range(20):
            self.seat.probe()
            while self.ways["there"] or self.ways["back"] or self.carrying:
                self.carry("there")
                self.carry("back")
            if not self.seat.waits:
                return
        raise AssertionError(f"not settled: {self.group.open}")


@given(
    st.lists(st.sampled_from(["hand", "hand", "there", "back", "cut", "probe"]), max_size=80),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.2, 0.6]),
)
@settings(max_examples=examples(100))
def test_what_is_handed_over_is_handled_once_whatever_the_link_loses(steps: list[str], seed: int, loss: float) -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, seed, loss)
        for step in steps:
            match step:
                case "hand":
                    world.hand(world.random.choice([1, 3, 40]), run=world.random.random() < 0.5)
                case "cut":
                    world.ways["there"].clear()
                    world.ways["back"].clear()
                case "probe":
                    world.seat.probe()
                case _:
                    world.carry(step)
            assert len(world.group.open) <= 80 * 40
        world.settle()
        assert [number for number, _ in handled] == list(range(1, world.numbers + 1))
        assert not world.group.open and sorted(world.group.done) == list(range(1, world.numbers + 1))
        assert world.group.forged == 0


def test_what_waits_when_it_is_time_to_send_goes_together() -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        for _ in range(50):
            world.hand(1)
        world.send()
        assert len(world.ways["there"]) == 1
        world.settle()
        assert len(handled) == 50


def test_an_event_that_is_too_large_for_one_post_goes_in_pieces() -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        world.hand(1)
        world.hand(1, "x" * (3 * wire.PIECE + 5), again=True)
        world.hand(1)
        world.send()
        assert len(world.ways["there"]) >= 4
        del world.ways["there"][1]  # one piece is lost
        world.settle()
        assert handled == [(1, False), (2, True), (3, False)] and not world.group.open


def test_what_is_said_again_over_an_older_link_is_not_forged() -> None:
    """A link that was cut may still be read when the next one has said how far the other end is."""
    with Node("desk") as node:
        world = World(node, [], 0, 0.0)
        world.hand(3)
        world.send()
        world.seat.stands(2, [])
        world.seat.handled([1, 2])
        assert world.group.forged == 0 and world.group.open == {3}
        world.seat.handled([4])
        assert world.group.forged == 1


def test_who_acknowledges_what_it_never_got_changes_nothing() -> None:
    with Node("desk") as node:
        world = World(node, [], 0, 0.0)
        world.hand(2)
        world.seat.handled([0, 2**40, 17])
        assert world.group.forged == 3 and world.group.open == {1, 2}
        world.seat.stands(2**50, range(1000))  # all of it, but these
        assert world.group.open == {1, 2}
        world.seat.again(0)
        world.settle()
        assert not world.group.open


def test_who_sends_more_than_the_member_takes_is_not_heard() -> None:
    with Node("desk") as node:
        world = World(node, [], 0, 0.0)
        world.member.pause()
        world.hand(201)
        with pytest.raises(FrameError, match="expected at most 200 events that are not handled"):
            for _ in range(100):
                world.carry("there")


@pytest.mark.parametrize(
    ("events", "sources", "words"),
    [
        ([(1, 0, [1], [b"nonsense"], False, False)], {1: "s"}, "not of its type"),
        ([(2, 0, [1], [b""], False, False)], {1: "s"}, "a source that was named before, found 2"),
    ],
)
def test_what_is_no_event_is_not_handed_over(events: Any, sources: Any, words: str) -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        with pytest.raises(FrameError, match=words):
            world.attendance.take(wire.Deal(7, 1, events, sources))
        assert not handled


def test_what_comes_before_the_answer_waits_for_it() -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        world.attendance = Attendance(world.member, "lab.1", 1, 7, "lab", world.poster("back"))
        world.hand(3)
        world.send()
        world.carry("there")
        assert not handled
        world.attendance.accept(world.jobs.type)
        world.settle()
        assert len(handled) == 3


def test_what_comes_again_and_again_before_the_answer_is_no_offence_and_fills_no_memory() -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        world.attendance = Attendance(world.member, "lab.1", 1, 7, "lab", world.poster("back"))
        world.hand(200)
        for _ in range(5):  # it is asked how far it is, over one link after the other
            world.seat.probe()
            world.seat.again(0)
            world.send()
            while world.ways["there"]:
                world.carry("there")
            world.attendance.take(wire.Deal(7, 1, [], {9: "nobody"}))
        assert not world.ways["back"] and len(world.attendance._early) < 20
        world.attendance.accept(world.jobs.type)
        world.settle()
        assert [number for number, _ in handled] == list(range(1, 201)) and not world.group.open


def test_an_event_in_crumbs_is_not_put_together() -> None:
    with Node("desk") as node:
        world = World(node, [], 0, 0.0)
        with pytest.raises(FrameError, match="expected pieces of 131,072 bytes, found 1"):
            world.attendance.take(wire.Deal(7, 1, [(1, 0, [1], [b"x"], False, True)], {1: "s"}))


@pytest.mark.parametrize(
    "runs",
    [
        [(1, 0, [1, 2], [b"x"], False, False)],
        [(1, 0, [1], [b"x", b"y"], False, False)],
        [(1, 0, [], [], False, False)],
        [(1, 0, [1, 2], [b"x", b"y"], False, True)],
        [(1, 0, list(range(400)), [b"x"] * 400, False, False)] * 2,
    ],
)
def test_runs_that_are_none_are_refused(runs: Any) -> None:
    with pytest.raises(FrameError, match=r"groups: expected (runs|at most 512 events)"):
        wire.decode(wire.encode(wire.Deal(7, 1, runs, {1: "s"})))


def test_what_follows_on_an_event_in_pieces_comes_after_it_though_all_goes_again_together() -> None:
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        world.hand(2, run=True)
        world.hand(1, "x" * (wire.PIECE + 5))
        world.hand(3, run=True)
        world.send()
        world.ways["there"].clear()  # lost with a link
        world.settle()
        assert [number for number, _ in handled] == [1, 2, 3, 4, 5, 6] and not world.group.open


def _dealt(jobs: Any, first: int, last: int) -> wire.Deal:
    encode = jobs.type.encode
    seqs = list(range(first, last + 1))
    return wire.Deal(7, first, [(1, 0, seqs, [encode(Job(at, "")) for at in seqs], False, False)], {1: "s"})


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_what_two_threads_bring_is_handled_in_order(dispatch: Any) -> None:
    handled: list[int] = []

    def handle(job: Job) -> None:
        if job.number == 1:  # while this one is at the first, a thread of another link brings more
            other = threading.Thread(target=lambda: attendance.take(_dealt(jobs, 101, 150)))
            other.start()
            other.join()
        handled.append(job.number)

    said: list[Any] = []
    with Node("desk") as node:
        jobs: Any = node.channel("jobs", Job)
        member: Any = jobs.subscribe(handle, group="workers", dispatch=dispatch)
        attendance = Attendance(member, "lab.1", 1, 7, "lab", lambda post: said.append(post) or True)  # type: ignore[func-returns-value]
        attendance.accept(jobs.type)
        attendance.take(_dealt(jobs, 1, 100))
        eventually(lambda: sum(len(post.numbers) for post in said) == 150)
        assert handled == list(range(1, 151))
        assert sorted(number for post in said for number in post.numbers) == handled


@pytest.mark.parametrize("drain", [True, False])
def test_what_a_member_that_ends_in_the_middle_does_not_handle_is_for_others(drain: bool) -> None:
    handled: list[int] = []

    def handle(job: Job) -> None:
        handled.append(job.number)
        if job.number == 10:
            member.cancel(drain=drain)
            attendance.leave()

    said: list[Any] = []
    with Node("desk") as node:
        jobs: Any = node.channel("jobs", Job)
        member: Any = jobs.subscribe(handle, group="workers", dispatch="inline")
        attendance = Attendance(member, "lab.1", 1, 7, "lab", lambda post: said.append(post) or True)  # type: ignore[func-returns-value]
        attendance.accept(jobs.type)
        attendance.take(_dealt(jobs, 1, 100))
        assert handled == list(range(1, 101 if drain else 11))
        leaves = next(at for at, post in enumerate(said) if isinstance(post, wire.Leave))
        told = {number for post in said[:leaves] for number in post.numbers} | set(said[leaves].finishing)
        assert told >= set(range(1, 11))  # nobody else gets what was handled by then
        done = {number for post in said if isinstance(post, wire.Handled) for number in post.numbers}
        kept = [set(post.finishing) for post in said if isinstance(post, wire.Leave)][-1]
        assert done == set(handled) and kept <= done and attendance.finished


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_what_is_handled_is_said_though_the_next_event_takes_long(
    dispatch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.channel.groups.member.LONG_SECONDS", 0.0)
    goes_on, there = threading.Event(), threading.Event()

    def handle(job: Job) -> None:
        if job.number == 5:
            there.set()
            assert goes_on.wait(60)

    said: list[Any] = []
    with Node("desk") as node:
        jobs: Any = node.channel("jobs", Job)
        member: Any = jobs.subscribe(handle, group="workers", dispatch=dispatch)
        attendance = Attendance(member, "lab.1", 1, 7, "lab", lambda post: said.append(post) or True)  # type: ignore[func-returns-value]
        attendance.accept(jobs.type)
        reader = threading.Thread(target=lambda: attendance.take(_dealt(jobs, 1, 10)))
        reader.start()
        assert there.wait(60)
        attendance.say()
        assert [number for post in said for number in post.numbers] == [1, 2, 3, 4]
        goes_on.set()
        reader.join()
        eventually(lambda: sorted(number for post in said for number in post.numbers) == list(range(1, 11)))


def test_an_event_that_is_too_large_for_any_lane_is_lost_and_keeps_nothing_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It went in pieces, its receiver took that for an offence, and the next member had it, without end."""
    monkeypatch.setattr(wire, "MOST_BYTES", 2 * wire.PIECE)
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        world.hand(1)
        world.hand(1, "x" * 2 * wire.PIECE)
        world.hand(1)
        world.settle()
        assert [number for number, _ in handled] == [1, 3] and world.group.open == {2}
        world.seat.give_up()
        assert world.group.lost == 1 and not world.group.open
    assert "expected at most 262,144 bytes" in caplog.text


def test_a_lane_has_any_number_of_sources_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_SOURCES", 3)
    handled: list[tuple[int, bool]] = []
    with Node("desk") as node:
        world = World(node, handled, 0, 0.0)
        first = world.source
        for number in range(20):
            world.source = first if number % 3 == 0 else world.jobs.source(f"one-{number}")
            world.hand(1)
            world.send()
            if number == 10:
                world.seat.again(0)  # and all that is not said to be handled is named anew
            world.settle()
        assert [number for number, _ in handled] == list(range(1, 21)) and len(world.attendance._sources) == 3
        assert len(world.seat._sources) <= 3


def test_what_was_not_sent_when_a_seat_is_given_up_is_not_sent_any_more() -> None:
    with Node("desk") as node:
        world = World(node, [], 0, 0.0)
        world.hand(3)
        world.seat.over = True
        world.send()
        assert not world.ways["there"] and not world.seat.waits


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\xa4deal\x00\x01", b"\x92\xa5probe\xff", b"\x93\xa7handled\x01\xa1x"]
)
def test_what_is_no_post_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match="groups: expected a post"):
        wire.decode(data)


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_what_a_member_has_handled_goes_to_nobody_else_though_it_ends_before_it_is_said(dispatch: Any) -> None:
    handled: list[int] = []
    said: list[Any] = []
    with Node("desk") as node:
        jobs: Any = node.channel("jobs", Job)
        member: Any = jobs.subscribe(lambda job: handled.append(job.number), group="workers", dispatch=dispatch)
        attendance: Any = Attendance(member, "lab.1", 1, 7, "lab", lambda post: said.append(post) or True)  # type: ignore[func-returns-value]
        done, ends = attendance.done, [True]

        def meanwhile(numbers: Any) -> None:
            if ends and ends.pop():
                member.cancel()
                attendance.leave()
            done(numbers)

        attendance.done = meanwhile
        attendance.accept(jobs.type)
        attendance.take(_dealt(jobs, 1, 3))
        eventually(lambda: attendance.left and attendance.finished)
        left = next(post for post in said if isinstance(post, wire.Leave))
        assert handled and set(handled) <= set(left.finishing)
        assert {number for post in said if isinstance(post, wire.Handled) for number in post.numbers} >= set(handled)


class Unspeakable(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise ValueError("it cannot be said")


@pytest.mark.parametrize("error", [Unspeakable(), SystemExit(1)])
@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_whatever_a_handler_raises_its_event_is_acknowledged_and_the_others_follow(
    dispatch: Any, error: BaseException
) -> None:
    handled: list[int] = []
    said: list[Any] = []

    def handle(job: Job) -> None:
        handled.append(job.number)
        if job.number == 2:
            raise error

    with Node("desk") as node:
        jobs: Any = node.channel("jobs", Job)
        member: Any = jobs.subscribe(handle, group="workers", dispatch=dispatch)
        attendance = Attendance(member, "lab.1", 1, 7, "lab", lambda post: said.append(post) or True)  # type: ignore[func-returns-value]
        attendance.accept(jobs.type)
        for first, last in ((1, 4), (5, 5)):
            with suppress(ValueError, SystemExit):
                attendance.take(_dealt(jobs, first, last))
        eventually(lambda: attendance.finished, f"all is acknowledged: {said}", timeout=10)
        assert handled == [1, 2, 3, 4, 5]
        assert sorted(number for post in said for number in post.numbers) == handled
