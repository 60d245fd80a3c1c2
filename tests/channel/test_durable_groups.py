"""Durable groups: what no member has handled waits in the log, through members that are gone and nodes that end."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Node, Reliable
from headwater.channel.backlog.log import LogBacklog
from headwater.channel.groups import following
from headwater.errors import StoreError, SubscriptionError
from headwater.store import NodeState
from headwater.testing import eventually as looks
from tests.effort import examples

DURABLE = Reliable(durable=True)
GUARD = 120.0  # seconds, against hanging


def eventually(condition: Callable[[], bool], what: str = "it") -> None:
    looks(condition, what, GUARD)


class Job(Event, name="durable.Job"):
    number: int
    owner: str = ""


class Worker:
    """A handler that keeps what it gets, and how that was marked."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.again: list[int] = []

    def __call__(self, job: Any, about: Any) -> None:
        self.numbers.append(job.number)
        if about.redelivered:
            self.again.append(job.number)

    def wait(self, numbers: Any) -> None:
        wanted = sorted(numbers)
        eventually(lambda: sorted(self.numbers) == wanted, f"{wanted}")


def opened(folder: Path) -> Node:
    return Node("lab", log=folder / "log", state=folder / "lab.state")


def counts(node: Node) -> dict[str, int]:
    return dict(node.report().services["groups"]["jobs/workers"])


def full(*given: Any) -> None:
    raise StoreError("the disk is full")


def publish(source: Any, *span: int) -> None:
    for number in range(*span):
        source.publish(Job(number, f"owner-{number % 3}"))


def test_events_wait_while_no_member_is_there(tmp_path: Path) -> None:
    """From when it had its first one on; also of sources that come meanwhile."""
    worker = Worker()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        source = jobs.source("first")
        publish(source, 5)
        member = jobs.subscribe(worker, "number % 2 == 0", group="workers", delivery=DURABLE)
        publish(source, 5, 10)
        worker.wait([6, 8])
        member.cancel()
        publish(source, 10, 20)
        publish(jobs.source("second"), 100, 104)
        assert len(worker.numbers) == 2 and counts(lab)["lost"] == 0
        jobs.subscribe(worker, "number % 2 == 0", group="workers", delivery=DURABLE)
        worker.wait([*range(6, 20, 2), 100, 102])
        publish(source, 20, 24)
        worker.wait([*range(6, 24, 2), 100, 102])
        assert not worker.again


def test_what_was_not_handled_comes_again_marked_after_a_restart(tmp_path: Path) -> None:
    worker = Worker()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        member = jobs.subscribe(worker, group="workers", delivery=DURABLE)
        source = jobs.source("first")
        publish(source, 5)
        worker.wait(range(5))
        member.pause()
        publish(source, 5, 10)
        eventually(lambda: counts(lab)["outstanding"] == 5)
        lab.close(drain=False)
    with opened(tmp_path) as lab:  # nobody is there, and nobody publishes as the first source did
        publish(lab.channel("jobs", Job).source("second"), 10, 12)
    with opened(tmp_path) as lab:
        lab.channel("jobs", Job).subscribe(worker, group="workers", delivery=DURABLE)
        worker.wait(range(12))
        assert sorted(worker.again) == list(range(5, 10))
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        publish(jobs.source("first"), 12, 20)
        worker.wait(range(20))
        assert sorted(worker.again) == list(range(5, 10)) and counts(lab)["lost"] == 0


def test_more_than_fits_into_memory_is_left_to_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers do not wait for the group; events of a key come in their order all the same."""
    monkeypatch.setattr(following, "MOST", 16)
    worker, held = Worker(), Worker()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        sources = [jobs.source("first"), jobs.source("second")]
        member = jobs.subscribe(worker, group="workers", group_key="owner", delivery=DURABLE, queue=4)
        member.pause()
        for at, source in enumerate(sources):
            publish(source, 1000 * at, 1000 * at + 300)
        assert not worker.numbers
        member.resume()
        worker.wait([*range(300), *range(1000, 1300)])
        for at in range(2):
            mine = [number for number in worker.numbers if number // 1000 == at]
            assert mine == sorted(mine)
        publish(sources[0], 300, 400)
        worker.wait([*range(400), *range(1000, 1300)])
        assert not worker.again + held.again


def test_batches_of_rows_and_what_transformations_make_wait_too(tmp_path: Path) -> None:
    got: list[Any] = []
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        source = jobs.source("first")
        member = jobs.subscribe(got.append, "number >= 3", group="workers", delivery=DURABLE)
        source.publish_many(jobs.type.to_arrow([Job(number) for number in range(6)]))
        eventually(lambda: [job.number for job in got] == [3, 4, 5])
        member.cancel()
        source.publish_many(jobs.type.to_arrow([Job(number) for number in range(6)]))
        jobs.subscribe(got.append, "number >= 3", group="workers", delivery=DURABLE)
        eventually(lambda: [job.number for job in got] == [3, 4, 5] * 2)
        source.publish_many(jobs.type.to_arrow([Job(number) for number in range(4, 8)]))
        eventually(lambda: [job.number for job in got] == [3, 4, 5, 3, 4, 5, 4, 5, 6, 7])


def test_a_node_that_cannot_keep_it_says_so(tmp_path: Path) -> None:
    with (
        Node("lab", state=tmp_path / "lab.state") as lab,
        pytest.raises(SubscriptionError, match="keeps no log of jobs"),
    ):
        lab.channel("jobs", Job).subscribe(print, group="workers", delivery=DURABLE)
    with Node("lab", log=tmp_path / "log") as lab, pytest.raises(SubscriptionError, match="has no state"):
        lab.channel("jobs", Job).subscribe(print, group="workers", delivery=DURABLE)
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        with pytest.raises(SubscriptionError, match="zones: a durable group has all zones"):
            jobs.subscribe(print, group="workers", delivery=DURABLE, zones="north")
        with pytest.raises(SubscriptionError, match="its interest has state"):
            jobs.subscribe(print, "{ static int n = 0; n = n + 1; return n > 2; }", group="workers", delivery=DURABLE)
        with pytest.raises(SubscriptionError, match='acknowledge="manual"'):
            jobs.subscribe(print, group="workers", delivery=Reliable(durable=True, acknowledge="manual"))
        jobs.subscribe(Worker(), group="workers", delivery=DURABLE)
        with pytest.raises(SubscriptionError, match="expected one that is durable, found one that is not durable"):
            jobs.subscribe(Worker(), group="workers")
        assert len(lab.subscriptions) == 1


def test_a_state_that_cannot_be_written_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        source = jobs.source("first")
        publish(source, 5)
        worker.wait(range(5))
        with monkeypatch.context() as patch:
            patch.setattr(NodeState, "commit_all", full)
            publish(source, 5, 10)
            worker.wait(range(10))
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        publish(jobs.source("first"), 10, 12)
        worker.wait([*range(10), *range(5, 10), 10, 11])
        assert sorted(worker.again) == list(range(5, 10))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "join", "cancel", "pause", "resume", "restart"]), st.integers(0, 2)
    ),
    max_size=25,
)


@given(STEPS, st.booleans())
@settings(max_examples=examples(30), deadline=None)
def test_through_whatever_happens_each_event_is_handled_and_again_only_marked(steps: Any, keyed: bool) -> None:
    handled: Counter[int] = Counter()
    unmarked: list[int] = []  # that came again all the same

    def handle(job: Job, about: Any) -> None:
        handled[job.number] += 1
        if handled[job.number] > 1 and not about.redelivered:
            unmarked.append(job.number)

    key = "owner" if keyed else None
    with tempfile.TemporaryDirectory() as folder:
        lab, published = opened(Path(folder)), 0
        try:
            jobs = lab.channel("jobs", Job)
            members: dict[int, Any] = {0: jobs.subscribe(handle, group="workers", group_key=key, delivery=DURABLE)}
            for what, place in steps:
                if what == "publish":
                    name = f"source-{place}"
                    source = jobs.sources[name] if name in jobs.sources else jobs.source(name)
                    source.publish(Job(published, str(place)))
                    published += 1
                elif what == "restart":
                    lab.close(drain=bool(place))
                    lab, members = opened(Path(folder)), {}
                    jobs = lab.channel("jobs", Job)
                elif what == "join" and place not in members:
                    members[place] = jobs.subscribe(handle, group="workers", group_key=key, delivery=DURABLE, queue=2)
                elif what != "join" and place in members:
                    getattr(members.pop(place) if what == "cancel" else members[place], what)()
            for member in members.values():
                member.resume()
            jobs.subscribe(handle, group="workers", group_key=key, delivery=DURABLE)
            eventually(lambda: sorted(handled) == list(range(published)), "all are handled")
            eventually(lambda: counts(lab)["outstanding"] == 0 == counts(lab)["waiting"])
            assert counts(lab)["lost"] == 0 and not unmarked
        finally:
            lab.close(drain=False)


def test_nothing_is_handed_over_while_that_cannot_be_written_so_that_nothing_comes_again_unmarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        source = jobs.source("first")
        publish(source, 5)
        worker.wait(range(5))
        for round in (5, 10):
            with monkeypatch.context() as patch:
                patch.setattr(NodeState, "hand_all", full)
                patch.setattr(NodeState, "commit_all", full)
                publish(source, round, round + 5)
                eventually(lambda: "the disk is full" in caplog.text)
                if round == 5:
                    assert worker.numbers == list(range(5))
                else:
                    lab.close(drain=False)
            if round == 5:
                worker.wait(range(10))
                assert worker.numbers == list(range(10))
            caplog.clear()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        publish(jobs.source("first"), 15, 17)
        worker.wait(range(17))
        assert not worker.again


def test_a_group_whose_beginning_cannot_be_written_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told that there is a group may rely on it: what is published from then on waits."""
    worker = Worker()
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        source = jobs.source("first")
        with monkeypatch.context() as patch:
            patch.setattr(NodeState, "commit_all", full)
            with pytest.raises(StoreError, match="the disk is full"):
                jobs.subscribe(worker, group="workers", delivery=DURABLE)
        publish(source, 5)
        assert not lab.subscriptions and not worker.numbers
        jobs.subscribe(worker, group="workers", delivery=DURABLE).cancel()
        publish(source, 5, 10)
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        worker.wait(range(5, 10))


def test_a_source_that_opens_just_when_all_of_its_past_was_read_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first event is handed over, though no other one follows."""
    worker, last = Worker(), LogBacklog.last
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        publish(jobs.source("first"), 5)
        worker.wait(range(5))
    with opened(tmp_path) as lab:
        jobs = lab.channel("jobs", Job)

        def opens(backlog: Any, name: str) -> int:
            found = last(backlog, name)
            if "first" not in jobs.sources:
                publish(jobs.source("first"), 5, 6)
            return found

        monkeypatch.setattr(LogBacklog, "last", opens)
        jobs.subscribe(worker, group="workers", delivery=DURABLE)
        worker.wait(range(6))
