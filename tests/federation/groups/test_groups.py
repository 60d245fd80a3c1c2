"""Groups over several nodes: who gets what, who may, and what becomes of it when a member, or a link, is no more."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Network
from headwater.errors import SubscriptionError
from headwater.federation.groups.attendance import Attendance
from headwater.federation.groups.service import GroupLanes
from headwater.policy import ChannelPolicy, Clause
from headwater.security import Rule
from headwater.testing import Recorder
from tests.federation.certified import EVERYTHING, joined
from tests.federation.certified import authority as authority
from tests.federation.nodes import GUARD, Nodes, nodes
from tests.federation.nodes import eventually as looks
from tests.federation.nursery import Popen


class Job(Event, name="groups.Job"):
    number: int
    owner: str = ""


class Worker:
    """A handler that keeps what it gets, and how that was marked; while it is held it comes to no end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.again: list[int] = []
        self.sources: set[str] = set()
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, job: Any, about: Any) -> None:
        self.inside.set()
        self.go_on.wait(GUARD)
        self.numbers.append(job.number)
        self.sources.add(about.source)
        if about.redelivered:
            self.again.append(job.number)


def eventually(condition: Callable[[], bool]) -> None:
    looks(condition, timeout=GUARD)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def counts(node: Any, group: str = "jobs/workers") -> dict[str, int]:
    return dict(node.report().services["groups"][group])


def numbers(*workers: Worker) -> list[int]:
    return sorted(number for worker in workers for number in worker.numbers)


def publish(source: Any, *span: int) -> None:
    for number in range(*span):
        source.publish(Job(number, f"owner-{number % 7}"))


def test_each_event_of_each_source_goes_to_one_member_wherever_that_is(make: Nodes) -> None:
    """Filtered where it is published: what nobody wants does not leave its node, and what goes there goes once."""
    nodes = [make(name) for name in ("lab", "desk", "shop")]
    sources = [node.channel("jobs", Job).source(f"at-{node.name}") for node in nodes]
    workers = [Worker() for _ in range(4)]
    for worker, node in zip(workers, [*nodes, nodes[1]], strict=True):
        node.channel("jobs", Job).subscribe(worker, "number % 2 == 0", group="workers")
    make.ready()
    for at, source in enumerate(sources):
        publish(source, 1000 * at, 1000 * at + 200)
    wanted = [number for at in range(3) for number in range(1000 * at, 1000 * at + 200, 2)]
    eventually(lambda: len(numbers(*workers)) >= 300)
    make.flush()
    assert numbers(*workers) == wanted and not any(worker.again for worker in workers)
    assert all(worker.sources == {"at-lab", "at-desk", "at-shop"} for worker in workers)
    for node in nodes:
        eventually(lambda node=node: counts(node)["acknowledged"] == 100)
        assert counts(node)["handed"] == 100 and counts(node)["redelivered"] == counts(node)["lost"] == 0
        assert node.federation_report().offences == {}


def test_a_member_that_comes_before_any_source_and_sources_that_come_later(make: Nodes) -> None:
    desk, worker = make("desk"), Worker()
    desk.channel("jobs", Job).subscribe(worker, group="workers")
    lab = make("lab")
    source = lab.channel("jobs", Job).source()
    make.ready(desk)
    publish(source, 10)
    eventually(lambda: len(worker.numbers) == 10)
    other = make("other")
    publish_there = other.channel("jobs", Job).source()
    make.ready(desk)
    publish(publish_there, 10, 20)
    eventually(lambda: numbers(worker) == list(range(20)))


def test_slow_members_get_fewer(make: Nodes) -> None:
    lab, slow, quick = make("lab"), Worker(), Worker()
    source = lab.channel("jobs", Job).source()
    for name, worker in (("slow", slow), ("quick", quick)):
        make(name).channel("jobs", Job).subscribe(worker, group="workers", queue=8, dispatch="pool")
    make.ready()
    slow.go_on.clear()
    publish(source, 300)
    eventually(lambda: len(quick.numbers) >= 292)
    assert not slow.numbers and counts(lab)["outstanding"] <= 16
    slow.go_on.set()
    eventually(lambda: numbers(slow, quick) == list(range(300)))
    assert len(slow.numbers) <= 8


def test_keys_stay_with_their_members_over_nodes(make: Nodes) -> None:
    """Nodes that see the same members choose the same one, each for itself; and in order."""
    nodes = [make(name) for name in ("lab", "desk", "shop")]
    sources = [node.channel("jobs", Job).source() for node in nodes]
    seen: dict[str, list[tuple[str, int]]] = {}
    lock = threading.Lock()

    def handler(name: str) -> Any:
        def handle(job: Any) -> None:
            with lock:
                seen.setdefault(job.owner, []).append((name, job.number))

        return handle

    for node in nodes:
        node.channel("jobs", Job).subscribe(handler(node.name), group="workers", group_key="owner")
    make.ready()
    for at, source in enumerate(sources):
        publish(source, 1000 * at, 1000 * at + 70)
    eventually(lambda: sum(map(len, seen.values())) == 210)
    make.flush()
    for owner, came in seen.items():
        for at in range(3):
            mine = [number for _, number in came if number // 1000 == at]
            assert mine == sorted(mine), owner
            assert len({name for name, number in came if number // 1000 == at}) == 1
    assert len({name for came in seen.values() for name, _ in came}) > 1


def test_members_that_want_something_else_are_refused_naming_both(make: Nodes) -> None:
    lab = make("lab")
    source = lab.channel("jobs", Job).source()
    first, second = Worker(), Worker()
    make("desk").channel("jobs", Job).subscribe(first, "number > 5", group="workers")
    make.ready()
    shop = make("shop")
    refused = shop.channel("jobs", Job).subscribe(second, "number > 7", group="workers")
    make.ready()
    [why] = refused.refused.values()
    assert "expected 'number > 5', found 'number > 7'" in why and "another name for the group" in why
    publish(source, 20)
    eventually(lambda: numbers(first) == list(range(6, 20)))
    assert not second.numbers
    with pytest.raises(SubscriptionError, match="expected 'number > 5'"):
        lab.channel("jobs", Job).subscribe(Worker(), "number < 5", group="workers")


DOOMED = """
import sys
from headwater import Event, Node
class Job(Event, name="groups.Job"):
    number: int
    owner: str = ""
def handle(job):
    if job.number >= 10:
        print("has", job.number, flush=True)
        sys.stdin.readline()
    print("done", job.number, flush=True)
node = Node("doomed", connect=sys.argv[1])
node.channel("jobs", Job).subscribe(handle, group="workers", queue=20)
assert node.ready(60)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_what_a_killed_member_had_not_acknowledged_goes_to_another_marked(make: Nodes) -> None:
    lab, other = make("lab", network=Network(listen="tcp/127.0.0.1:0", lease=1.0)), Worker()
    source = lab.channel("jobs", Job).source()
    with Popen(
        [sys.executable, "-c", DOOMED, lab.endpoints[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as doomed:
        try:
            assert doomed.stdout is not None and doomed.stdout.readline() == "ready\n"
            publish(source, 10)
            assert [doomed.stdout.readline() for _ in range(10)] == [f"done {n}\n" for n in range(10)]
            eventually(lambda: counts(lab)["acknowledged"] == 10)
            publish(source, 10, 150)
            assert doomed.stdout.readline() == "has 10\n"
            had = counts(lab)[
                "outstanding"
            ]  # while it is at one, the others wait for somebody who is free, or are many
            desk = make("desk")
            desk.channel("jobs", Job).subscribe(other, group="workers")
            assert desk.ready(GUARD)
            publish(source, 150, 170)
            eventually(lambda: len(numbers(other)) == 160 - had and counts(lab)["outstanding"] == had)
            assert not other.again
        finally:
            doomed.kill()
        eventually(lambda: len(numbers(other)) == 160)
    assert numbers(other) == list(range(10, 170)) and sorted(other.again) == list(range(10, 10 + had)) and had > 1
    assert counts(lab)["redelivered"] == len(other.again) and counts(lab)["lost"] == 0
    assert counts(lab)["members"] == 1


def test_a_group_of_which_all_are_gone_says_what_was_lost(make: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    lab, desk, worker = make("lab"), make("desk"), Worker()
    source = lab.channel("jobs", Job).source()
    member = desk.channel("jobs", Job).subscribe(worker, group="workers", dispatch="pool")
    assert desk.ready(GUARD)
    make.ready()
    worker.go_on.clear()
    publish(source, 5)
    assert worker.inside.wait(GUARD)
    member.cancel()
    eventually(lambda: counts(lab)["outstanding"] == 1)  # what its handler has it finishes
    assert counts(lab)["waiting"] == 4 and not counts(lab)["lost"]  # until then another may come
    worker.go_on.set()
    eventually(lambda: counts(lab)["members"] == 0)
    assert numbers(worker) == [0] and counts(lab)["acknowledged"] == 1 and counts(lab)["lost"] == 4
    assert "its last member is gone" in caplog.text and "4 events" in caplog.text


def test_nothing_is_lost_or_handled_twice_when_links_break(make: Nodes) -> None:
    lab, desk, worker = make("lab"), make("desk"), Worker()
    source = lab.channel("jobs", Job).source()
    desk.channel("jobs", Job).subscribe(worker, group="workers")
    make.ready()
    there: Any = lab._engine.everyone()[0]  # type: ignore[union-attr]
    for round in range(3):
        publish(source, 200 * round, 200 * round + 100)
        eventually(lambda: there.link is not None)
        link = there.link
        if link is not None:
            link.close("cut")
        publish(source, 200 * round + 100, 200 * round + 200)
    eventually(lambda: len(worker.numbers) >= 600)
    make.flush()
    assert Counter(worker.numbers) == Counter(range(600)) and not worker.again
    assert counts(lab)["lost"] == counts(lab)["forged"] == 0


def test_members_that_come_and_go_while_events_are_published(make: Nodes) -> None:
    lab, done = make("lab"), Recorder[int]()
    source = lab.channel("jobs", Job).source()
    others = [make(name).channel("jobs", Job) for name in ("desk", "shop")]
    marked: list[int] = []

    def handle(job: Any, about: Any) -> None:
        if about.redelivered:
            marked.append(job.number)
        done(job.number)

    others[0].subscribe(handle, group="workers")
    make.ready()
    publishing = threading.Thread(target=publish, args=(source, 2000))
    publishing.start()
    for _ in range(5):
        members = [channel.subscribe(handle, group="workers", queue=16) for channel in others]
        seen = len(done.events)
        done.until(lambda events, seen=seen: len(events) > seen or len(set(events)) == 2000, "more", GUARD)
        for member in members:
            member.cancel()
    publishing.join(GUARD)
    done.until(lambda events: set(events) == set(range(2000)), "all events", GUARD)
    make.flush()
    twice = {number for number, count in Counter(done.events).items() if count > 1}
    assert twice <= set(marked)
    assert counts(lab)["lost"] == 0


def test_to_be_a_member_takes_the_right_to_subscribe(make: Nodes, authority: Path) -> None:
    rules = (Rule("jobs", ["guest"], may=("subscribe",)), Rule("jobs", "*", may=()), *EVERYTHING)
    lab = joined(make, authority, "lab", rules)
    source = lab.channel("jobs", Job).source()
    good, bad = joined(make, authority, "guest"), joined(make, authority, "eve")
    mine, others = Worker(), Worker()
    good.channel("jobs", Job).subscribe(mine, group="workers")
    member: Any = bad.channel("jobs", Job).subscribe(others, group="workers")
    assert good.ready(GUARD) and bad.ready(GUARD)
    bad_lanes: Any = bad._group_lanes
    peer = next(each for each in bad._engine.everyone() if each.name == "lab")  # type: ignore[union-attr]
    # Of what it may not have it knows nothing; should it ask all the same:
    from headwater.errors import FederationError
    from headwater.federation.groups.service import _join

    with pytest.raises(FederationError, match="not allowed"):
        bad_lanes._dialogue.ask(peer, _join(member, 7), GUARD)
    publish(source, 20)
    eventually(lambda: numbers(mine) == list(range(20)))
    assert not others.numbers and counts(lab)["members"] == 1


def test_policies_say_what_members_get_and_a_change_of_them_ends_membership(make: Nodes) -> None:
    from tests.federation.test_policies_in_force import opened

    lab = opened(make, "lab")
    source = lab.channel("jobs", Job).source()
    few = ChannelPolicy(name="few", channel="jobs", type=Job, clauses=[Clause(who="desk", show="number < 5")])
    lab.policies.set(few)
    desk, bob, first, second = opened(make, "desk"), opened(make, "bob"), Worker(), Worker()
    member = desk.channel("jobs", Job).subscribe(first, group="workers")
    other = bob.channel("jobs", Job).subscribe(second, group="workers")
    make.ready()
    eventually(lambda: counts(lab)["members"] == 1)
    publish(source, 10)
    eventually(lambda: numbers(first) == list(range(5)))
    assert not second.numbers and other.refused and not member.refused
    lab.policies.set(ChannelPolicy(name="few", channel="jobs", type=Job, clauses=[Clause(who="bob", show="true")]))
    eventually(lambda: bool(member.refused))
    publish(source, 10, 20)
    eventually(lambda: not other.refused)
    publish(source, 20, 30)
    eventually(lambda: set(range(20, 30)) <= set(second.numbers))
    assert numbers(first) == list(range(5))


def test_a_node_that_knows_no_groups_hands_nothing_to_all(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GroupLanes, "requests", lambda self: ())
        lab = make("lab")
    source = lab.channel("jobs", Job).source()
    members, workers = [], [Worker(), Worker()]
    for name, worker in zip(("desk", "shop"), workers, strict=True):
        members.append(make(name).channel("jobs", Job).subscribe(worker, group="workers"))
    make.ready()
    for member in members:
        [why] = member.refused.values()
        assert "it needs the service that answers this, or a newer version" in why
    everything = Worker()
    make.opened[1].channel("jobs", Job).subscribe(everything)
    make.ready()
    publish(source, 10)
    eventually(lambda: numbers(everything) == list(range(10)))
    assert numbers(*workers) == []


def test_events_of_another_version_of_the_type_are_converted(make: Nodes) -> None:
    lab, desk, got = make("lab"), make("desk"), Recorder[Any]()
    wide = lab.channel("jobs", "number: i64, owner: text, extra: f64").source()
    desk.channel("jobs", "number: i64, owner: text").subscribe(got, "number >= 0", group="workers")
    make.ready()
    wide.publish(number=1, owner="ann", extra=2.5)
    [event] = got.wait(1, GUARD)
    assert (event.number, event.owner) == (1, "ann") and not hasattr(event, "extra")


def test_who_ends_a_member_while_others_are_told_to_nodes_is_not_disturbed(make: Nodes) -> None:
    """The keeper makes lanes at any time, as here when the one that ends looks for its own."""
    shop, desk = make("shop"), make("desk")
    shop.channel("jobs", Job).source()
    member: Any = desk.channel("jobs", Job).subscribe(Worker(), group="workers")
    make.together()
    lanes: Any = desk.services.get("group lanes")
    eventually(lambda: any(each.accepted for each in list(lanes._lanes.values())))

    class Another(Attendance):
        """A lane beside which another one is made just when it is looked at."""

        @property
        def member(self) -> Any:  # type: ignore[override]
            lanes._lanes.setdefault(("another", 2), self)
            return None

        @member.setter
        def member(self, value: Any) -> None: ...

    lanes._lanes["another", 1] = Another(member, "another", 1, 1, "another", lambda post: True)
    try:
        member.cancel()
    finally:
        for number in (1, 2):
            lanes._lanes.pop(("another", number), None)
    assert not [each for each in lanes._lanes.values() if not each.left]
    eventually(lambda: counts(shop)["members"] == 0)
