"""Where an interest runs, what it may cost there, and who is told if it may not run."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from headwater import Event, Interest, Node, State, i64, u32
from headwater.channel.node import Node as ChannelNode
from headwater.federation.network import Budget, Network
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

CHANNEL = "ie.tcd.sighting"
COSTLY = " and ".join(f"badge % {n} != {n - 1}" for n in range(2, 30))


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float = 0.0


class Doubled(Event, name="ie.tcd.Doubled"):
    badge: u32
    twice: i64


def every_third(event: Sighting, *, seen: State = State(n=0)) -> bool:
    seen.n += 1
    return seen.n % 3 == 0


DOUBLED = Interest(
    "{ output.badge = input.badge; output.twice = input.badge * 2; return input.badge % 2 == 0; }",
    Sighting,
    output=Doubled,
)
PLENTY = Budget()


def pair(make: Nodes, placement: str = "source", budget: Budget = PLENTY) -> tuple[Node, Node, Any]:
    """A node with a source and a budget, and one whose interests are placed so."""
    lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", budget=budget))
    desk = make("desk", network=Network(connect=lab.endpoints[0], placement=placement))
    make.together()
    source = lab.channel(CHANNEL, Sighting).source("east")
    see(desk, lab)
    return lab, desk, source


def crossed(node: Node) -> int:
    assert node._engine is not None
    return sum(lane.passed for peer in node._engine.everyone() for lane in peer.lanes())


@pytest.mark.parametrize("placement", ["source", "destination", "auto"])
def test_wherever_it_runs_sinks_see_the_same(placement: str) -> None:
    with nodes() as make:
        lab, desk, source = pair(make, placement)
        logs = [Log() for _ in range(4)]
        channel = desk.channel(CHANNEL)
        channel.subscribe(logs[0], "badge % 10 == 0")
        channel.subscribe(logs[1], every_third)
        channel.subscribe(logs[2], DOUBLED)
        channel.subscribe(
            lambda rows: [logs[3](badge) for badge in rows["badge"].to_pylist()], "badge > 90", batch=True
        )
        make.ready(desk)
        for badge in range(100):
            source.publish(badge=badge)
        source.publish_many([Sighting(badge=badge) for badge in range(100, 120)])
        logs[3].wait(29)
        make.flush()
        assert logs[0].field("badge") == list(range(0, 120, 10))
        assert logs[1].field("badge") == [badge for badge in range(120) if badge % 3 == 2]
        assert logs[2].events == [Doubled(badge=badge, twice=2 * badge) for badge in range(0, 120, 2)]
        assert logs[3].events == list(range(91, 120))
        where = {each.where for peer in desk.federation_report().peers for each in peer.asked}
        assert where == ({"destination"} if placement == "destination" else {"source", "source and destination"})
        assert (crossed(lab) == 120) or placement != "destination"  # once each, whatever the sinks


def test_at_the_source_only_what_is_wanted_crosses() -> None:
    with nodes() as make:
        lab, desk, source = pair(make)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, "badge == 7")
        make.ready(desk)
        for badge in range(100):
            source.publish(badge=badge)
        log.wait(1)
        make.flush()
        assert crossed(lab) == 1


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(each=10), "too costly: the interests of this node"),
        (Budget(total=10), "too costly: the interests of all nodes"),
    ],
    ids=["each", "total"],
)
def test_a_budget_refuses_and_says_why(budget: Budget, words: str) -> None:
    with nodes() as make:
        lab, desk, source = pair(make, budget=budget)
        there, here = Log(), Log()
        desk.subscribe("headwater.interests", there, "change == 'refused'")
        lab.subscribe("headwater.interests", here, "change == 'refused'")
        log, cheap = Log(), Log()
        subscription = desk.channel(CHANNEL).subscribe(log, COSTLY, name="costly")
        make.ready(desk)
        other = desk.channel(CHANNEL).subscribe(cheap, "badge == 7", name="cheap")
        make.ready(desk)
        assert words in subscription.refused[f"{CHANNEL}@lab"] and CHANNEL in subscription.refused[f"{CHANNEL}@lab"]
        assert not other.refused
        told = there.wait(1)[0]
        assert (told.node, told.channel, told.here) == ("lab", CHANNEL, False) and words in told.reason
        told = here.wait(1)[0]
        assert (told.node, told.channel, told.here) == ("desk", CHANNEL, True) and words in told.reason
        assert any(where == "refused" and words in why for where, why in _where(desk))
        for badge in range(20):
            source.publish(badge=badge)
        cheap.wait(1)
        make.flush()
        assert not log.events and cheap.field("badge") == [7]
        # Something cheaper instead is taken, and the refusal is over.
        subscription.change(where="badge == 3")
        make.ready(desk)
        assert not subscription.refused
        source.publish(badge=3)
        assert log.wait(1)[0].badge == 3


def _where(node: Node) -> list[tuple[str, str]]:
    return [(each.where, each.why) for peer in node.federation_report().peers for each in peer.asked]


def test_the_budget_of_all_is_shared_by_nodes() -> None:
    with nodes() as make:
        cost = Interest(COSTLY, Sighting).cost.estimated
        lab, desk, _ = pair(make, budget=Budget(total=2 * cost))
        hall, yard = make("hall"), make("yard")
        make.together()
        made = []
        for node in (desk, hall, yard):
            see(node, lab)
            made.append(node.channel(CHANNEL, Sighting).subscribe(Log(), COSTLY))
            make.ready(node)
        assert [bool(each.refused) for each in made] == [False, False, True]
        made[0].cancel()
        assert lab._engine is not None
        eventually(lambda: sum(len(peer.crossings) for peer in lab._engine.everyone()) == 1)  # type: ignore[union-attr]
        yard.channel(CHANNEL).subscribe(Log(), "badge == 1 and level > 0.5")  # a question, with which it is asked again
        make.ready(yard)
        assert not made[2].refused


def test_a_source_that_is_loaded_refuses() -> None:
    with nodes() as make:
        lab, desk, source = pair(make, budget=Budget(load=1))
        assert lab._engine is not None
        granting = lab._engine.installer.granting
        channel = lab.channel(CHANNEL)
        count = 0

        def busy() -> bool:
            nonlocal count
            source.publish(badge=count)
            count += 1
            return granting.rate(channel) > 1

        eventually(busy)
        subscription = desk.channel(CHANNEL).subscribe(Log(), "badge == 7")
        make.ready(desk)
        assert "too loaded" in subscription.refused[f"{CHANNEL}@lab"]
        everything = desk.channel(CHANNEL).subscribe(Log())  # costs nothing to evaluate
        make.ready(desk)
        assert not everything.refused


@pytest.mark.parametrize("what", ["filter", "state", "output"])
def test_auto_runs_at_the_destination_what_is_refused(what: str) -> None:
    with nodes() as make:
        budget = Budget(total=0) if what != "filter" else Budget(total=10)
        lab, desk, source = pair(make, "auto", budget)
        log, told = Log(), Log()
        desk.subscribe("headwater.interests", told, "change == 'refused'")
        interest: Any = {"filter": COSTLY, "state": every_third, "output": DOUBLED}[what]
        subscription = desk.channel(CHANNEL).subscribe(log, interest)
        told.wait(1)
        assert desk.until(lambda: [where for where, _ in _where(desk)] == ["destination"], GUARD)
        make.ready(desk)
        ((where, why),) = _where(desk)
        assert (where, why) == ("destination", "the source refuses it")
        assert desk._engine is not None
        (asked,) = [peer.asked[CHANNEL] for peer in desk._engine.everyone()]
        assert list(asked.demand.placed.values()) == ["destination: the source refuses it"]
        (place,) = subscription.report().placements
        assert place.how == "destination" or "destination" in place.why
        for badge in range(99):
            source.publish(badge=badge)
        wanted = {
            "filter": [badge for badge in range(99) if Interest(COSTLY, Sighting).test(Sighting(badge=badge))],
            "state": list(range(2, 99, 3)),
            "output": list(range(0, 99, 2)),
        }[what]
        log.wait(len(wanted))
        make.flush()
        assert log.field("badge") == wanted and crossed(lab) == 99


def test_a_source_that_cannot_run_an_interest_says_so() -> None:
    class Coloured(Event, name="ie.tcd.Sighting"):
        badge: u32
        level: float
        colour: str

    with nodes() as make:
        lab = make("lab")
        desk = make("desk")
        make.together()
        lab.channel(CHANNEL, Sighting).source("east")
        lab.channel("raw", bytes).source("east")
        see(desk, lab)
        coloured = desk.channel(CHANNEL, Coloured).subscribe(Log(), "colour == 'red'")
        raw = desk.channel("raw", Sighting).subscribe(Log(), "badge == 1")
        make.ready(desk)
        assert "colour" in coloured.refused[f"{CHANNEL}@lab"]
        assert "bytes" in raw.refused["raw@lab"]
        assert {where for where, _ in _where(desk)} >= {"refused"}


@pytest.mark.parametrize("single", [True, False])
def test_what_was_evaluated_at_the_source_counts_here_as_far_as_it_came_here(single: bool) -> None:
    """Counts add up at the sink's node, too: nothing is rejected there that never came."""
    with nodes() as make:
        _, desk, source = pair(make)
        third, filtered = Log(), Log()
        stateful = desk.channel(CHANNEL).subscribe(third, every_third)
        plain = desk.channel(CHANNEL).subscribe(filtered, "badge > 3")
        make.ready(desk)
        events = [Sighting(badge=badge) for badge in range(9)]
        if single:
            for event in events:
                source.publish(event)
        else:
            source.publish_many(source.type.to_arrow(events))
        third.wait(3)
        filtered.wait(5)
        for subscription, passed in ((stateful, 3), (plain, 5)):
            counts = subscription.counts
            assert (counts.evaluated, counts.passed, counts.rejected, counts.delivered) == (passed, passed, 0, passed)
        total = desk.channel(CHANNEL).report().counts
        assert (total.evaluated, total.passed, total.rejected) == (8, 8, 0)


class Between:
    """A batch comes at a node, one frame for each interest, and between two of them something is done."""

    def __init__(self, node: Node, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._came, self._go, self._source = threading.Event(), threading.Event(), source
        (remote,) = [each for each in node.channel(CHANNEL).sources.values() if not each.local]
        for name in ("deliver", "deliver_batch"):
            monkeypatch.setattr(remote, name, partial(self._deliver, getattr(remote, name)))

    def _deliver(self, deliver: Any, frame: Any) -> None:
        deliver(frame)
        self._came.set()
        assert self._go.wait(GUARD)

    def publish(self, events: list[Event]) -> None:
        """Until the first frame was delivered."""
        self._source.publish_many(self._source.type.to_arrow(events))
        assert self._came.wait(GUARD)

    def go_on(self) -> None:
        self._go.set()


def _times(factor: int) -> Interest:
    text = f"{{ output.badge = input.badge; output.twice = input.badge * {factor}; return true; }}"
    return Interest(text, Sighting, output=Doubled)


@pytest.mark.parametrize("before", ["level >= 0.0", _times(2)], ids=["filter", "made"])
def test_an_interest_changes_between_two_frames_of_a_batch(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both interests run at the source meanwhile, and both results of its rows come: each row is delivered once."""
    with nodes() as make:
        _, desk, source = pair(make)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, before)
        make.ready(desk)
        source.publish(badge=0)
        log.wait(1)
        between, change = Between(desk, source, monkeypatch), ChannelNode._change

        def changes(*args: Any, **what: Any) -> Any:
            """When all sources know both."""
            between.publish([Sighting(badge=badge) for badge in range(1, 41)])
            try:
                return change(*args, **what)
            finally:
                between.go_on()

        monkeypatch.setattr(ChannelNode, "_change", changes)
        points = subscription.change(where=_times(3))
        source.publish(badge=41)
        log.wait(42)
        make.flush()
        assert log.field("badge") == list(range(42))
        assert list(points.values()) == [41]
        assert log.events[41].twice == 3 * 41
