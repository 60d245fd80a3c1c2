"""Groups at one node: each event to one member, slow ones get fewer, keys stay together, what one leaves goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Config, Event, Node, Queue
from headwater.channel.groups import service
from headwater.channel.groups.terms import Terms
from headwater.channel.routing.letter import Letter
from headwater.errors import QueueFull, SubscriptionError
from headwater.testing import Recorder, eventually
from tests.effort import examples


class Job(Event):
    number: int
    owner: str


class Worker:
    """A handler that keeps what it gets, and how that was marked."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.again: list[int] = []

    def __call__(self, job: Any, about: Any) -> None:
        self.numbers.append(job.number)
        if about.redelivered:
            self.again.append(job.number)


def counts(node: Node, group: str = "jobs/workers") -> dict[str, int]:
    return dict(node.report().services["groups"][group])


def test_each_event_that_is_wanted_goes_to_one_member() -> None:
    workers, everything = [Worker() for _ in range(3)], Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        for worker in workers:
            jobs.subscribe(worker, "number >= 10", group="workers")
        jobs.subscribe(everything)
        source = jobs.source()
        for number in range(40):
            source.publish(Job(number, "ann"))
        source.publish_many([Job(number, "ann") for number in range(40, 60)])
        assert everything.numbers == list(range(60))
        assert sorted(n for worker in workers for n in worker.numbers) == list(range(10, 60))
        assert all(len(worker.numbers) >= 16 for worker in workers)  # equals take turns
        assert counts(node)["handed"] == counts(node)["acknowledged"] == 50


@pytest.mark.parametrize("many", [False, True])
def test_what_is_handed_to_a_member_that_has_just_ended_goes_to_another(many: bool) -> None:
    leaving, other = Worker(), Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        member, source = jobs.subscribe(leaving, group="workers"), jobs.source()
        jobs.subscribe(other, group="workers")
        source.publish(Job(0, "ann"))  # to the one
        source.publish(Job(1, "ann"))  # and to the other
        with node._wiring.lock:  # cancel(drain=True) as far as it takes nothing more
            node._cancel(member, drain=True)
        some = [Job(number, "ann") for number in range(2, 6)]
        if many:
            source.publish_many(some)
        else:
            for job in some:
                source.publish(job)
        member._release()  # and the rest of it
        assert sorted([*leaving.numbers, *other.numbers]) == list(range(6))
        assert counts(node)["outstanding"] == counts(node)["waiting"] == 0 and counts(node)["members"] == 1


def test_batches_of_rows_are_shared_event_by_event() -> None:
    workers = [Worker() for _ in range(3)]
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        for worker in workers:
            jobs.subscribe(worker, "number % 2 == 0", group="workers")
        jobs.source().publish_many(jobs.type.to_arrow([Job(number, "ann") for number in range(60)]))
        assert sorted(n for worker in workers for n in worker.numbers) == list(range(0, 60, 2))
        assert {len(worker.numbers) for worker in workers} == {10}


def test_two_groups_have_everything_each() -> None:
    days, nights = Worker(), Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        jobs.subscribe(days, group="day")
        jobs.subscribe(nights, "number > 4", group="night")
        source = jobs.source()
        for number in range(10):
            source.publish(Job(number, "ann"))
        assert days.numbers == list(range(10)) and nights.numbers == list(range(5, 10))


def test_a_member_that_does_not_go_on_gets_no_more_than_its_queue_takes() -> None:
    slow, quick = Worker(), Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        held = jobs.subscribe(slow, group="workers", queue=4)
        jobs.subscribe(quick, group="workers")
        held.pause()
        source = jobs.source()
        for number in range(100):
            source.publish(Job(number, "ann"))
        assert slow.numbers == [] and len(quick.numbers) >= 96
        held.resume()
        assert 1 <= len(slow.numbers) <= 4
        assert sorted(slow.numbers + quick.numbers) == list(range(100))
        assert not slow.again + quick.again


def test_what_a_member_has_not_handled_when_it_ends_goes_to_others_marked() -> None:
    first, second = Worker(), Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        held = jobs.subscribe(first, group="workers", queue=10)
        held.pause()
        jobs.subscribe(second, group="workers")
        source = jobs.source()
        for number in range(100):
            source.publish(Job(number, "ann"))
        left = set(range(100)) - set(second.numbers)
        assert left and not second.again
        held.cancel()
        assert sorted(second.numbers) == list(range(100)) and set(second.again) == left
        assert counts(node)["redelivered"] == len(left) and counts(node)["lost"] == 0


def test_the_event_that_a_handler_has_when_its_member_ends_is_not_given_to_another() -> None:
    inside, leave = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(job: Job) -> None:
        inside.set()
        leave.wait(30)
        done.append(job.number)

    other = Recorder[Any]()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(slow, group="workers", dispatch="pool")
        source = jobs.source()
        source.publish(Job(0, "ann"))
        source.publish(Job(1, "ann"))
        assert inside.wait(30)
        jobs.subscribe(other, group="workers", dispatch="pool")
        member.cancel()
        assert [job.number for job in other.wait(1)] == [1]
        leave.set()
        eventually(lambda: counts(node)["outstanding"] == 0, "everything is acknowledged")
        assert done == [0] and counts(node)["members"] == 1


def test_a_member_that_drains_finishes_what_it_has() -> None:
    inside, leave = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(job: Job) -> None:
        inside.set()
        leave.wait(30)
        done.append(job.number)

    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(slow, group="workers", dispatch="pool")
        source = jobs.source()
        for number in range(5):
            source.publish(Job(number, "ann"))
        assert inside.wait(30)
        member.cancel(drain=True)
        leave.set()
        eventually(lambda: done == list(range(5)), "all are handled")
        eventually(lambda: counts(node)["members"] == 0, "it is gone")
        assert counts(node)["lost"] == 0 and counts(node)["acknowledged"] == 5


def test_a_group_whose_members_are_all_gone_says_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(Worker(), group="workers")
        member.pause()
        source = jobs.source()
        for number in range(7):
            source.publish(Job(number, "ann"))
        with caplog.at_level(logging.WARNING, "headwater"):
            member.cancel()
        assert "its last member is gone (it was cancelled), and 7 events" in caplog.text
        assert counts(node) | {"lost": 7, "members": 0, "waiting": 0, "outstanding": 0} == counts(node)
        source.publish(Job(7, "ann"))  # nobody is there
        late = Worker()
        jobs.subscribe(late, "number != 9", group="workers")  # another group of that name: it may want something else
        source.publish(Job(8, "ann"))
        assert late.numbers == [8] and counts(node)["lost"] == 7


def test_groups_that_are_no_more_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_PAST", 3)
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        source = jobs.source()
        for number in (0, 1, 2, 3, 1, 4):
            member = jobs.subscribe(Worker(), group=f"group-{number}")
            source.publish(Job(number, "ann"))
            member.cancel()
        found = node.report().services["groups"]
        assert {name: each["acknowledged"] for name, each in found.items()} == {
            "jobs/group-3": 1,
            "jobs/group-1": 2,
            "jobs/group-4": 1,
        }


@pytest.mark.parametrize("key", [None, "owner"])
def test_what_is_lost_is_counted_once_wherever_it_waited(key: str | None) -> None:
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(Worker(), group="workers", queue=2, group_key=key)
        member.pause()
        source = jobs.source()
        for number in range(7):
            source.publish(Job(number, "ann"))
        member.cancel()
        assert counts(node)["lost"] == 7


@pytest.mark.parametrize("key", [None, "owner"])
def test_a_member_that_was_cancelled_and_does_not_come_back_from_its_handler_holds_up_nobody(key: str | None) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stuck(job: Job) -> None:
        inside.set()
        leave.wait(30)

    room = 8 + (1024 if key else 1)  # what waits: in the queue of the group, and for the members of keys
    with Node("lab", config=Config(queue=Queue(limit=8, wait=0.05))) as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(stuck, group="workers", dispatch="pool", queue=1, group_key=key)
        source = jobs.source()
        source.publish(Job(0, "ann"))
        assert inside.wait(30)
        member.cancel()
        for number in range(1, room + 6):
            source.publish(Job(number, str(number)))
        assert counts(node) | {"waiting": room, "outstanding": 1, "lost": 5} == counts(node)
        late = Worker()
        jobs.subscribe(late, group="workers", group_key=key)
        assert late.numbers == list(range(1, room + 1))  # those that have waited for somebody
        source.publish(Job(9999, "new"))
        assert late.numbers[-1] == 9999
        leave.set()
        eventually(lambda: counts(node)["members"] == 1, "who was cancelled is gone")
        assert counts(node) | {"waiting": 0, "outstanding": 0, "lost": 5, "acknowledged": room + 2} == counts(node)


def test_events_of_a_key_go_to_one_member_in_order() -> None:
    workers = [Worker() for _ in range(4)]
    owners: dict[str, set[int]] = {}

    def handler(place: int) -> Any:
        def handle(job: Job, about: Any) -> None:
            owners.setdefault(job.owner, set()).add(place)
            workers[place](job, about)

        return handle

    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        members = [jobs.subscribe(handler(place), group="workers", group_key="owner") for place in range(3)]
        source = jobs.source()
        for number in range(200):
            source.publish(Job(number, f"owner-{number % 20}"))
        assert all(len(places) == 1 for places in owners.values())
        assert all(worker.numbers == sorted(worker.numbers) for worker in workers)
        before = dict(owners)
        members.append(jobs.subscribe(handler(3), group="workers", group_key="owner"))
        for number in range(200, 400):
            source.publish(Job(number, f"owner-{number % 200}"))
        assert {owner: owners[owner] for owner in before} == before  # who is there keeps what is its own
        assert workers[3].numbers  # and who comes gets of what is new
        owners.clear()
        members[0].cancel()
        for number in range(400, 800):
            source.publish(Job(number, f"owner-{number % 40}"))
        assert all(len(places) == 1 and 0 not in places for places in owners.values())
        assert {owner: owners[owner] for owner in before if before[owner] != {0}} == {
            owner: place for owner, place in before.items() if place != {0}
        }
        assert sorted(n for worker in workers for n in worker.numbers) == list(range(800))


def test_a_key_whose_member_is_held_keeps_no_other_key_waiting() -> None:
    got: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        members = {
            name: jobs.subscribe(
                lambda job, name=name: got[name].update([job.owner]), group="workers", group_key="owner", queue=2
            )
            for name in got
        }
        source = jobs.source()
        for number in range(40):
            source.publish(Job(number, f"owner-{number}"))
        of_a = sorted(got["a"])
        members["a"].pause()
        for number in range(200):
            source.publish(Job(number, f"owner-{number % 40}"))
        assert sum(got["b"].values()) == len(got["b"]) * 6 and sum(got["a"].values()) == len(of_a)
        members["a"].resume()
        assert all(count == 6 for count in got["a"].values()) and sorted(got["a"]) == of_a


def test_publishers_wait_for_a_group_that_has_no_room() -> None:
    config = Config(queue=Queue(limit=8, policy="fail"))
    worker = Worker()
    with Node("lab", config=config) as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(worker, group="workers", queue=3)
        member.pause()
        source = jobs.source()
        published = 0
        with pytest.raises(QueueFull, match="group workers"):
            for number in range(100):
                source.publish(Job(number, "ann"))
                published += 1
        assert 8 <= published <= 16
        member.resume()
        assert worker.numbers == list(range(published))
        source.publish(Job(99, "ann"))
        assert worker.numbers[-1] == 99


def test_sinks_that_pull_have_acknowledged_what_they_had_when_they_ask_for_more() -> None:
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        pulls = jobs.subscribe(group="workers")
        source = jobs.source()
        for number in range(4):
            source.publish(Job(number, "ann"))
        assert pulls.get(0).number == 0 and counts(node)["acknowledged"] == 0
        assert pulls.get(0).number == 1 and counts(node)["acknowledged"] == 1
        pulls.acknowledge()
        assert counts(node)["acknowledged"] == 2
        assert pulls.get(0).number == 2
        worker = Worker()
        jobs.subscribe(worker, group="workers")
        pulls.cancel()
        assert worker.numbers == worker.again == [2, 3]


def test_coroutines_batches_and_skipped_events_acknowledge_too() -> None:
    async def main() -> None:
        got: list[int] = []
        rows: list[int] = []
        with Node("lab") as node:
            jobs = node.channel("jobs", Job)

            async def handle(job: Job) -> None:
                await asyncio.sleep(0)
                got.append(job.number)

            jobs.subscribe(handle, group="loops")
            jobs.subscribe(lambda batch: rows.extend(batch["number"].to_pylist()), group="rows", batch=10)
            jobs.subscribe(Worker(), group="skip", before=lambda job, about: job.number % 2 == 0)
            jobs.subscribe(Worker(), group="old", lifetime=1e-9)
            source = jobs.source()
            for number in range(20):
                source.publish(Job(number, "ann"))
            while any(counts(node, f"jobs/{group}")["acknowledged"] < 20 for group in ("loops", "rows", "skip", "old")):
                await asyncio.sleep(0.001)
            assert sorted(got) == list(range(20)) == sorted(rows)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_handler_that_raises_has_had_its_event() -> None:
    worker = Worker()

    def fails(job: Job) -> None:
        raise ValueError(job.number)

    with Node("lab", on_error=lambda *what: None) as node:
        jobs = node.channel("jobs", Job)
        jobs.subscribe(fails, group="workers", failures=0)
        jobs.subscribe(worker, group="workers")
        source = jobs.source()
        for number in range(10):
            source.publish(Job(number, "ann"))
        assert counts(node)["acknowledged"] == 10 and len(worker.numbers) == 5 and not worker.again


def test_members_agree_on_what_they_want() -> None:
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        jobs.subscribe(Worker(), "number > :least", params={"least": 5}, group="workers", group_key="owner")
        for where, least, key, words in (
            ("number > :least", 6, "owner", r"expected 'number > :least' with .*5.*found 'number > :least' with .*6"),
            ("number < :least", 5, "owner", "expected 'number > :least' .* found 'number < :least'"),
            ("number > :least", 5, None, "group_key: expected owner, found none"),
        ):
            with pytest.raises(SubscriptionError, match=words):
                jobs.subscribe(Worker(), where, params={"least": least}, group="workers", group_key=key)
        with pytest.raises(SubscriptionError, match=r"interest: .* found all events; group_key: .* zones: "):
            jobs.subscribe(Worker(), group="workers", zones="north")
        assert len(node.subscriptions) == 1
        jobs.subscribe(Worker(), "number > :least", params={"least": 5}, group="workers", group_key="owner")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": ""}, "group: expected a name"),
        ({"group": 7}, "group: expected a name of 1 to 200 characters, found 7"),
        ({"group_key": "owner"}, "group_key: expected group= beside it, found 'owner' alone"),
        ({"group": "w", "group_key": "ownr"}, "group_key: expected a field of Job, found 'ownr'; did you mean 'owner'"),
        ({"group": "w", "group_key": 3}, "group_key: expected the name of a field, found 3"),
        ({"group": "w", "history": 5, "order": "timestamp"}, "history: .*; order: "),
        ({"group": "w", "rate": 5}, "rate: what is shed is lost"),
        ({"group": "w", "delivery": "best_effort"}, "delivery: what a member does not acknowledge"),
    ],
)
def test_what_a_member_cannot_ask_for_is_said(options: dict[str, Any], words: str) -> None:
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        with pytest.raises(SubscriptionError, match=words):
            jobs.subscribe(Worker(), **options)
        assert not node.subscriptions


def test_what_a_member_cannot_do_is_said() -> None:
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        member = jobs.subscribe(Worker(), group="workers")
        for call in (member.change, member.move, member.acknowledge):
            with pytest.raises(SubscriptionError, match="group"):
                call()
        raw = node.channel("raw", bytes)
        with pytest.raises(SubscriptionError, match="carries bytes"):
            raw.subscribe(print, group="w", group_key="owner")
        got: list[bytes] = []
        raw.subscribe(got.append, group="w")
        raw.source().publish(b"abc")
        assert got == [b"abc"]


def test_a_group_ends_with_its_channel() -> None:
    worker = Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        jobs.subscribe(worker, group="workers")
        jobs.source().publish(Job(1, "ann"))
        jobs.close()
        assert worker.numbers == [1] and counts(node)["members"] == 0 and not node.subscriptions
        again = node.channel("jobs", Job)
        again.subscribe(worker, "number > 1", group="workers")
        again.source().publish(Job(2, "ann"))
        assert worker.numbers == [1, 2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["join", "cancel", "pause", "resume"]), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(STEPS, st.booleans())
@settings(max_examples=examples(80))
def test_whoever_comes_and_goes_each_event_is_handled_once(steps: Any, keyed: bool) -> None:
    handled: Counter[int] = Counter()

    def handle(job: Job, about: Any) -> None:
        handled[job.number] += 1

    with Node("lab", config=Config(queue=Queue(limit=1000))) as node:
        jobs = node.channel("jobs", Job)
        source = jobs.source()
        members: dict[int, Any] = {}
        key = "owner" if keyed else None
        keeper = jobs.subscribe(handle, group="workers", group_key=key, queue=3)  # so that nothing is lost
        published = 0
        for what, place in steps:
            if what == "publish":
                source.publish(Job(published, str(place)))
                published += 1
            elif what == "join" and place not in members:
                members[place] = jobs.subscribe(handle, group="workers", group_key=key, queue=2)
            elif what != "join" and place in members:
                getattr(members.pop(place) if what == "cancel" else members[place], what)()
        for member in members.values():
            member.resume()
        keeper.resume()
        assert sorted(handled) == list(range(published)) and set(handled.values()) <= {1}
        assert counts(node)["lost"] == 0 == counts(node)["waiting"] == counts(node)["outstanding"]


def test_who_joins_while_the_last_member_leaves_is_in_a_group_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the group had counted before is still counted."""
    first, second = Worker(), Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        leaving, source = jobs.subscribe(first, group="workers"), jobs.source()
        source.publish(Job(0, "ann"))
        check, looks = Terms.check, list[str]()

        def meanwhile(terms: Terms, *given: Any) -> None:
            check(terms, *given)
            looks.append("its terms are right")
            if len(looks) == 2:  # it is let in in a moment
                other = threading.Thread(target=leaving.cancel)
                other.start()
                eventually(lambda: group.over)

        group: Any = node._groups().of(jobs, "workers")
        monkeypatch.setattr(Terms, "check", meanwhile)
        jobs.subscribe(second, group="workers")
        source.publish(Job(1, "ann"))
        assert second.numbers == [1]
        assert counts(node)["handed"] == counts(node)["acknowledged"] == 2 and counts(node)["members"] == 1


def test_a_handler_that_runs_while_its_member_is_let_in_keeps_nobody_else_waiting() -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow(job: Job) -> None:
        inside.set()
        leave.wait(30)

    reports: list[Any] = []

    def looks(job: Job) -> None:
        other = threading.Thread(target=lambda: reports.append(counts(node)), daemon=True)
        other.start()
        other.join(5)
        reports.append("the handler goes on")

    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        jobs.subscribe(slow, group="workers", dispatch="pool", queue=1)
        source = jobs.source()
        source.publish(Job(0, "ann"))
        assert inside.wait(30)
        source.publish(Job(1, "ann"))  # it waits
        try:
            jobs.subscribe(looks, group="workers")
            eventually(lambda: bool(reports))
            assert reports[0] != "the handler goes on" and reports[0]["handed"] == 2
        finally:
            leave.set()


def test_what_a_handler_has_returned_from_goes_to_nobody_else_though_its_member_ends_just_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Worker(), Worker()
    with Node("lab") as node:
        jobs = node.channel("jobs", Job)
        leaving, source = jobs.subscribe(first, group="workers"), jobs.source()
        service = node._groups()
        acknowledge = service.acknowledge

        def meanwhile(member: Any, numbers: Any) -> None:
            if member is leaving:  # it is said in a moment that the event is handled
                monkeypatch.setattr(service, "acknowledge", acknowledge)
                other = threading.Thread(target=leaving.cancel)
                other.start()
                other.join(30)
            acknowledge(member, numbers)

        monkeypatch.setattr(service, "acknowledge", meanwhile)
        jobs.subscribe(second, group="workers")
        source.publish(Job(0, "ann"))
        assert (first.numbers, second.numbers) == ([0], [])
        assert counts(node) == {**counts(node), "members": 1, "outstanding": 0, "acknowledged": 1, "redelivered": 0}


class Reading(Event):
    number: int
    level: float


@pytest.mark.parametrize("level", [float("nan"), -0.0])
def test_numbers_that_are_the_same_are_one_key_however_they_are_written(level: float) -> None:
    """Who joins later gets keys that are new: not those that are none, or have another sign."""
    with Node("lab") as node:
        readings = node.channel("readings", Reading)
        heard: dict[str, list[int]] = {"first": []}
        readings.subscribe(lambda it: heard["first"].append(it.number), group="g", group_key="level")
        source = readings.source()
        source.publish(Reading(0, level))
        for name in ("a", "b", "c", "d", "e", "f"):
            heard[name] = []
            readings.subscribe(lambda it, name=name: heard[name].append(it.number), group="g", group_key="level")
        source.publish(Reading(1, level))
        source.publish(Reading(2, abs(level)))
        assert heard["first"] == [0, 1, 2]
        group = node._groups().of(readings, "g")
        assert group is not None and group.distribution.keys == 1
        letters = [readings.type.encode(Reading(0, value)) for value in (level, abs(level))]
        assert len({repr(group._key(Letter(None, each, source, 1, 0, 0, 0))) for each in letters}) == 1  # type: ignore[arg-type]
