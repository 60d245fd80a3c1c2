"""Events that are gathered for the members of a group, and handed out in runs: each goes to one, once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Config, Event, Node, Queue
from headwater.channel.groups.distribution import RUN, Handed
from headwater.channel.groups.gathering import Gathered
from headwater.channel.groups.terms import Terms
from headwater.channel.options.subscribe import interest_for
from headwater.channel.routing.letter import Letter
from headwater.errors import QueueFull
from headwater.testing import ManualClock, eventually
from tests.effort import examples


class Job(Event, name="gathering.Job"):
    number: int
    wanted: bool = True


class Elsewhere:
    """A seat as that of a member at another node: it has what it is given until the test says otherwise."""

    gathers = True

    def __init__(self, id: str, credit: int) -> None:
        self.id, self.credit = id, credit
        self.has: dict[int, tuple[str, int, bool]] = {}  # by number at the group: the event, and whether it comes again
        self.got: list[tuple[str, int, bool]] = []
        self.times: list[int] = []
        self.runs: list[int] = []

    def _take(self, number: int, letter: Letter, again: bool) -> None:
        assert number not in self.has
        self.has[number] = letter.source.name, letter.seq, again
        self.got.append(self.has[number])
        self.times.append(letter.stamp)
        assert len(self.has) <= self.credit

    def hand(self, handed: list[Handed[Letter]], ready: Any) -> None:
        for _, number, letter, again in handed:
            self._take(number, letter, again)

    def hand_one(self, number: int, letter: Letter, ready: Any) -> None:
        self._take(number, letter, False)

    def hand_run(self, first: int, letters: list[Letter], ready: Any) -> None:
        self.runs.append(len(letters))
        for number, letter in enumerate(letters, first):
            self._take(number, letter, False)


class World:
    """A node with two sources, a group, and members that are elsewhere, or here."""

    def __init__(self, node: Node, where: str | None = "wanted", **options: Any) -> None:
        self.jobs: Any = node.channel("jobs", Job)
        self.sources = [self.jobs.source(name) for name in "ab"]
        self.groups = node._groups()
        interest = None if where is None else interest_for(self.jobs, where, None)
        self.terms = Terms(interest, **options)
        self.seats: dict[str, Elsewhere] = {}
        self.gone: list[Elsewhere] = []
        self.here: list[Any] = []
        self.done: list[tuple[str, int]] = []
        self.got_here: list[tuple[str, int, bool]] = []
        self.wanted: list[tuple[str, int]] = []
        self.made = 0

    @property
    def group(self) -> Any:
        return self.groups.of(self.jobs, "workers")

    def join(self, credit: int) -> Elsewhere:
        self.made += 1
        seat = Elsewhere(f"seat-{self.made}", credit)
        self.seats[seat.id] = seat
        self.groups.join(self.jobs, "workers", self.terms, seat)
        return seat

    def join_here(self) -> None:
        def handle(job: Job, about: Any) -> None:
            self.got_here.append((about.source.split("/")[-1], about.seq, about.redelivered))

        self.here.append(self.jobs.subscribe(handle, self.terms.interest, group="workers"))

    def leave(self, seat: Elsewhere) -> None:
        del self.seats[seat.id]
        self.gone.append(seat)
        self.group.leave(seat.id)

    def acknowledge(self, seat: Elsewhere, count: int) -> None:
        numbers = list(seat.has)[:count]
        self.done += [seat.has.pop(number)[:2] for number in numbers]
        self.group.acknowledge(seat.id, numbers)

    def publish(self, which: int, how: str, wanted: bool, count: int) -> None:
        source = self.sources[which]
        before = source.seq
        match how:
            case "event":
                for at in range(count):
                    source.publish(Job(at, wanted))
            case "fields":
                for at in range(count):
                    source.publish(number=at, wanted=wanted)
            case "batch":
                source.publish_many([{"number": at, "wanted": wanted} for at in range(count)])
            case "mixed":
                for at in range(count):
                    source.publish(Job(at, at % 3 == 0))
        for seq in range(before + 1, source.seq + 1):
            at = seq - before - 1
            if self.terms.interest is None or (at % 3 == 0 if how == "mixed" else wanted):
                self.wanted.append((source.name, seq))

    def check(self) -> None:
        """All that is wanted has been given out once, but for what is marked; to each in order."""
        everyone = [*self.seats.values(), *self.gone]
        first = [it[:2] for seat in everyone for it in seat.got if not it[2]]
        first += [it[:2] for it in self.got_here if not it[2]]
        assert len(first) == len(set(first))
        assert sorted(first) == sorted(self.wanted)
        for got in [seat.got for seat in everyone]:
            for source in "ab":
                seqs = [seq for name, seq, again in got if name == source and not again]
                assert seqs == sorted(seqs)
        assert set(self.done) | {it[:2] for it in self.got_here} == set(self.wanted)


HOW = ["event", "event", "mixed", "fields", "batch"]
STEP = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 3), st.sampled_from([1, 3, 70, 256])),
    st.tuples(st.sampled_from(["leave", "here", "gone_here", "tick"]), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("acknowledge"), st.integers(0, 3), st.sampled_from([1, 2, 64, 300])),
    st.tuples(st.sampled_from(HOW), st.integers(0, 3), st.sampled_from([1, 5, 65, 200])),
)


@given(st.lists(STEP, max_size=40), st.sampled_from([None, "wanted"]))
@settings(max_examples=examples(100))
def test_whoever_comes_and_goes_each_event_is_handed_out_once_and_in_order(steps: Any, where: str | None) -> None:
    with Node("lab", config=Config(queue=Queue(limit=100_000))) as node:
        world = World(node, where)
        world.join(4)
        for what, which, count in steps:
            seats = list(world.seats.values())
            match what:
                case "join":
                    world.join(count)
                case "leave":
                    if len(seats) > 1:
                        world.leave(seats[which % len(seats)])
                case "here":
                    world.join_here()
                case "gone_here":
                    if world.here:
                        world.here.pop().cancel()
                case "tick":
                    world.group._gathering._tick()
                case "acknowledge":
                    world.acknowledge(seats[which % len(seats)], count)
                case _:
                    world.publish(which % 2, what, which > 0, count)
            report = world.group.report()
            assert report["lost"] == 0 and report["forged"] == 0
            waiting = report["waiting"]
            out = sum(len(seat.has) for seat in world.seats.values())
            assert waiting + out + len(set(world.done)) + len({it[:2] for it in world.got_here}) >= len(world.wanted)
            if waiting and not world.here:  # then nobody who is elsewhere has nothing to do
                assert all(seat.has for seat in world.seats.values())
        while any(seat.has for seat in world.seats.values()):
            for seat in list(world.seats.values()):
                world.acknowledge(seat, 1000)
        assert world.group.report()["waiting"] == 0 and world.group.report()["outstanding"] == 0
        world.check()


def test_who_is_free_has_an_event_at_once_and_who_is_busy_gets_runs() -> None:
    with Node("lab") as node:
        world = World(node)
        one, two = world.join(256), world.join(256)
        world.publish(0, "event", True, 2)
        assert len(one.has) == len(two.has) == 1  # each by itself
        world.publish(0, "event", True, 30)
        assert len(one.has) == len(two.has) == 1  # both are at something
        world.acknowledge(two, 1)
        assert len(one.has) == 1 and two.runs[-1] == 15  # one is free, and has its share: the other may be, too, soon
        world.publish(0, "event", True, 300)
        assert len(one.got) > RUN and RUN - 1 <= max(*one.runs, *two.runs) <= RUN  # there are many
        while one.has or two.has:
            world.acknowledge(one, 64)
            world.acknowledge(two, 64)
        world.check()


def test_a_member_that_never_acknowledges_keeps_nothing_from_others() -> None:
    with Node("lab") as node:
        world = World(node)
        stuck, free = world.join(256), world.join(256)
        for _ in range(50):
            world.publish(0, "event", True, 20)
            while free.has:
                world.acknowledge(free, 7)
        assert len(stuck.got) <= 1 + RUN and len(free.got) == 1000 - len(stuck.got)
        world.leave(stuck)
        world.acknowledge(free, 1000)
        assert [it[1] for it in free.got if it[2]] == [it[1] for it in stuck.got]
        world.check()


def test_an_event_has_the_time_when_it_was_published_however_long_it_waits() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        world = World(node)
        only, begin = world.join(256), node._stamp()
        for _ in range(10):
            world.publish(0, "event", True, 1)
            clock.advance(60)
        world.publish(0, "event", True, 70)  # more than 64: some go by Python
        clock.advance(60)
        world.publish(0, "event", True, 1)
        while only.has:
            world.acknowledge(only, 1000)
        world.publish(0, "event", True, 1)
        minutes = [round((each - begin) / 60e9) for each in only.times]
        assert minutes == [*range(10), *[10] * 70, 11, 11]
        world.acknowledge(only, 1)
        world.check()
        assert world.group._gathering._mailbox.gathered[world.sources[0]]._marks == 0


def test_who_takes_an_event_just_before_it_is_dated_has_the_time_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        world = World(node, None)
        only, begin = world.join(256), node._stamp()
        clock.advance(60)
        date = Gathered.date
        # Another thread hands out what is there in the middle of the call by machine code.
        monkeypatch.setattr(Gathered, "date", lambda self: (world.group._look(), date(self))[1])
        world.publish(0, "event", True, 1)
        world.acknowledge(only, 1)
        clock.advance(60)
        world.publish(0, "event", True, 1)
        assert [round((each - begin) / 60e9) for each in only.times] == [1, 2]


def test_while_nothing_is_to_be_gathered_the_fast_path_is_not_open_for_a_moment() -> None:
    class Watched(list[None]):
        def __setitem__(self, at: Any, value: Any) -> None:
            seen.append(bool(value))
            super().__setitem__(at, value)

    seen: list[bool] = []
    with Node("lab") as node:
        world = World(node)
        world.join_here()
        mailbox = world.group.mailbox
        mailbox.blocks_bypass = Watched([None])
        mailbox._tell()
        world.join_here()
        assert seen and all(seen)


def test_publishers_wait_for_what_is_gathered_and_go_on_when_half_of_it_is_gone() -> None:
    with Node("lab", config=Config(queue=Queue(limit=512, wait=0.01))) as node:
        world = World(node)
        slow = world.join(64)
        published = 0
        with pytest.raises(QueueFull, match="group workers"):
            for _ in range(2000):
                world.sources[0].publish(Job(0))
                published += 1
        assert 512 <= published <= 512 + 64 + 64
        while world.group.mailbox.is_full:
            world.acknowledge(slow, 64)
        assert world.group.report()["waiting"] <= 256
        world.sources[0].publish(Job(0))


def test_a_short_queue_takes_no_more_than_it_says() -> None:
    with Node("lab", config=Config(queue=Queue(limit=8, wait=0.01))) as node:
        world = World(node, None)
        world.join(1)
        published = 0
        with pytest.raises(QueueFull, match="group workers"):
            for _ in range(100):
                world.sources[0].publish(Job(0))
                published += 1
        assert published <= 10


def test_what_was_gathered_when_the_last_member_is_gone_is_lost_and_counted() -> None:
    with Node("lab") as node:
        world = World(node)
        only = world.join(1)
        world.publish(0, "event", True, 10)
        world.group.leave(only.id)
        world.groups.tidy(world.groups._groups[world.jobs.number, "workers"])
        assert node.report().services["groups"]["jobs/workers"]["lost"] == 10
        world.publish(0, "event", True, 10)  # nobody's
        late = world.join(100)
        world.publish(0, "event", True, 3)
        assert [it[1] for it in late.got] == [21] and world.group.report()["waiting"] == 2


def test_publishers_and_acknowledgements_of_many_threads_lose_nothing() -> None:
    with Node("lab") as node:
        world = World(node)
        seats = [world.join(50) for _ in range(3)]
        done, over = [set[tuple[str, int]]() for _ in seats], threading.Event()

        def work(seat: Elsewhere, mine: set[tuple[str, int]]) -> None:
            while not over.is_set():
                numbers = list(seat.has.copy())
                mine.update(seat.has.pop(number)[:2] for number in numbers)
                world.group.acknowledge(seat.id, numbers)

        def publish(source: Any) -> None:
            for n in range(3000):
                source.publish(Job(n, n % 5 != 0))

        workers = [threading.Thread(target=work, args=each) for each in zip(seats, done, strict=True)]
        publishers = [threading.Thread(target=publish, args=(source,)) for source in (*world.sources, world.sources[0])]
        for thread in (*workers, *publishers):
            thread.start()
        for thread in publishers:
            thread.join()
        eventually(lambda: sum(map(len, done)) == 3 * 2400)
        over.set()
        for thread in workers:
            thread.join()
        assert len(set().union(*done)) == 3 * 2400 and world.group.report()["outstanding"] == 0
        for seat in seats:
            for source in "ab":
                seqs = [seq for name, seq, _ in seat.got if name == source]
                assert seqs == sorted(seqs)
