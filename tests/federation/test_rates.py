"""Rates between nodes: what is beyond one is shed where it is published, told, and does not cross."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Config, Event, Interest, Log, Network, Node, Queue, Rate, Reliable, event_type
from headwater.errors import ConfigError
from headwater.federation.security.quotas import MOST, Quotas
from headwater.federation.security.rules import Principal
from headwater.federation.wire.requests import Wish, WishRate
from headwater.network import HashedGroups
from tests.federation.clocks import UnhurriedClock
from tests.federation.nodes import GUARD, Nodes, eventually, nodes
from tests.federation.pairs import Held


class Door(Event):
    room: int
    level: int


def storm(source: Any, rooms: range, *, level: int = 0, urgent: int = 0) -> None:
    """Many events, of which every so many is urgent."""
    for room in rooms:
        source.publish(Door(room=room, level=9 if urgent and room % urgent == urgent - 1 else level))


def crossed(node: Node) -> int:
    """Events that have left a node for others."""
    return sum(lane.sent for peer in node.federation_report().peers for lane in peer.lanes)


def test_two_subscriptions_of_one_node_have_each_their_own_rate_and_a_third_has_none() -> None:
    clock, slow, quick, free = UnhurriedClock(), list[int](), list[int](), list[int]()
    with nodes() as make:
        a, b = make("a", clock=clock), make("b")
        source = a.channel("doors", Door).source()
        doors = b.channel("doors", Door)
        two = doors.subscribe(lambda event: slow.append(event.room), "level == 0", rate=Rate(1, burst=2))
        five = doors.subscribe(lambda event: quick.append(event.room), "level == 0", rate=Rate(1, burst=5))
        doors.subscribe(lambda event: free.append(event.room), "level == 0")
        make.ready(b)
        storm(source, range(50))
        storm(source, range(100, 110), level=1)
        clock.advance(3)
        storm(source, range(50, 60))
        eventually(lambda: len(free) == 60)
        assert slow == [0, 1, 50, 51]
        assert quick == [0, 1, 2, 3, 4, 50, 51, 52]
        told = {each.passed: each for sub in (two, five) for each in b.remote_counts(sub)}
        assert sorted(told) == [4, 8]
        assert told[4].shed == 56 and told[8].shed == 52
        assert told[4].evaluated == 70 and told[4].where == "source" and "rate" in told[4].why
        assert "56 shed" in str(told[4])
        assert (two.counts.passed, two.counts.delivered, two.counts.shed) == (4, 4, 0)


def test_what_is_shed_does_not_cross() -> None:
    seen = list[int]()
    with nodes() as make:
        a, b = make("a", clock=UnhurriedClock()), make("b")
        source = a.channel("doors", Door).source()
        sink = b.channel("doors", Door).subscribe(lambda event: seen.append(event.room), rate=Rate(1, burst=3))
        make.ready(b)
        storm(source, range(1000))
        batch = event_type(Door).to_arrow([Door(room=n, level=0) for n in range(1000)])
        source.publish_many(batch)
        make.flush()
        eventually(lambda: len(seen) == 3)
        assert seen == [0, 1, 2] and crossed(a) == 3
        assert b.remote_counts(sink)[0].shed == 1997


@pytest.mark.parametrize("batched", [False, True])
def test_in_a_storm_what_is_urgent_crosses_and_the_source_says_what_that_is(batched: bool) -> None:
    seen = list[Door]()
    with nodes() as make:
        a, b = make("a", clock=UnhurriedClock()), make("b")
        source = a.channel("doors", Door).source()
        b.channel("doors", Door).subscribe(
            seen.append, rate=Rate(1, burst=8, reserve={5: 0.5}), priority="if(level > 5, 9, 0)"
        )
        make.ready(b)
        if batched:
            events = [Door(room=n, level=9 if n % 50 == 49 else 0) for n in range(200)]
            source.publish_many(event_type(Door).to_arrow(events))
        else:
            storm(source, range(200), urgent=50)
        eventually(lambda: len(seen) == 8)
        assert sorted(event.room for event in seen if event.level == 9) == [49, 99, 149, 199]
        assert sorted(event.room for event in seen if event.level == 0) == [0, 1, 2, 3]
        assert crossed(a) == 8


def test_a_rate_of_an_interest_that_makes_something_is_one_of_what_it_makes() -> None:
    seen = list[Any]()
    with nodes() as make:
        a, b = make("a", clock=UnhurriedClock()), make("b")
        source = a.channel("doors", Door).source()
        doubled = Interest("{ output.twice = input.room * 2; return input.level > 0; }", Door, output="twice: i64")
        b.channel("doors", Door).subscribe(seen.append, doubled, rate=Rate(1, burst=2))
        make.ready(b)
        storm(source, range(10))
        storm(source, range(10, 20), level=1)
        eventually(lambda: len(seen) == 2)
        assert [event.twice for event in seen] == [20, 22]


def test_where_interests_run_at_the_destination_their_rate_holds_there() -> None:
    seen = list[int]()
    with nodes() as make:
        a = make("a")
        b = make("b", network=Network(connect=a.endpoints[0], placement="destination"))
        source = a.channel("doors", Door).source()
        sink = b.channel("doors", Door).subscribe(
            lambda event: seen.append(event.room), "level > 0 and room > 2", rate=Rate(0.001, burst=3)
        )
        make.ready(b)
        storm(source, range(20), level=1)
        eventually(lambda: sink.counts.shed == 14)
        assert seen == [3, 4, 5] and b.remote_counts(sink)[0].where == "destination"


def test_without_limits_the_fast_path_is_taken_and_with_one_it_is_not() -> None:
    for options, rate, fast in (
        ({}, None, True),
        ({}, Rate(1e6), False),
        ({"rates": {"*": Rate(1e6)}}, None, False),
    ):
        seen = list[int]()
        with nodes() as make:
            a = make("a", network=Network(listen="tcp/127.0.0.1:0", **options))  # type: ignore[arg-type]
            b = make("b")
            source = a.channel("doors", Door).source()
            b.channel("doors", Door).subscribe(
                lambda event, seen=seen: seen.append(event.room), "level == 0", rate=rate
            )
            make.ready(b)
            storm(source, range(200))
            eventually(lambda seen=seen: len(seen) == 200)
            assert (source._flow.bypass is not None) is fast
            assert seen == list(range(200))


def test_what_has_a_rate_does_not_go_by_multicast() -> None:
    seen, other = list[int](), list[int]()
    with nodes() as make:
        a = make("a", clock=UnhurriedClock(), network=Network(listen="tcp/127.0.0.1:0", multicast=HashedGroups()))
        b = make("b", network=Network(connect=a.endpoints[0], multicast=HashedGroups()))
        c = make("c", network=Network(connect=a.endpoints[0], multicast=HashedGroups()))
        source = a.channel("doors", Door).source()
        b.channel("doors", Door).subscribe(lambda event: seen.append(event.room), rate=Rate(1, burst=2))
        c.channel("doors", Door).subscribe(lambda event: other.append(event.room))
        make.ready(b, c)
        storm(source, range(50))
        eventually(lambda: len(other) == 50)
        make.flush()
        assert seen == [0, 1]


def test_what_has_taken_too_long_is_shed_where_it_arrives() -> None:
    here, seen = UnhurriedClock(), list[int]()
    with nodes() as make:
        a, b = make("a"), make("b", clock=here)
        source = a.channel("doors", Door).source()
        sink = b.channel("doors", Door).subscribe(lambda event: seen.append(event.room), rate=Rate(1e6, age=600))
        make.ready(b)
        storm(source, range(3))
        eventually(lambda: len(seen) == 3)
        here.advance(3600)  # as if what comes now had been on its way for an hour
        storm(source, range(3, 8))
        eventually(lambda: sink.counts.shed == 5)
        counts = sink.counts
        assert seen == [0, 1, 2] and (counts.passed, counts.delivered) == (3, 3)


def test_what_is_read_from_the_log_for_a_full_link_goes_by_the_rate_too(tmp_path: Any) -> None:
    clock, seen = UnhurriedClock(), list[int]()
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", link=Queue(limit=10, policy="block"))
        log = Config(log=Log(tmp_path / "log"))
        a, b = make("a", clock=clock, network=network, state=tmp_path / "a", config=log), make("b")
        source = a.channel("doors", Door).source()
        sink = b.channel("doors", Door).subscribe(lambda event: seen.append(event.room), rate=Rate(0.001, burst=30))
        make.ready(b)
        peer = a._engine.everyone()[0]
        assert a.until(lambda: peer.resumed, GUARD)
        with Held(peer):  # it takes nothing: the lane is full soon, and gives way to the log
            storm(source, range(200))
        eventually(lambda: len(seen) >= 30)
        make.flush()
        eventually(lambda: b.remote_counts(sink)[0].passed == len(seen))
        assert seen == sorted(set(seen)) and 30 <= len(seen) <= 60
        assert b.remote_counts(sink)[0].shed >= 140


# ── what a node may have at all ──


def test_a_node_gets_no_more_than_it_may_whatever_it_asks_for_and_is_told() -> None:
    seen, all_of_it = list[int](), list[int]()
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", rates={"guest": Rate(1000), "*": Rate(1, burst=10)})
        a, b = make("a", clock=UnhurriedClock(), network=network), make("b")
        source = a.channel("doors", Door).source()
        windows = a.channel("windows", Door).source()
        sink = b.channel("doors", Door).subscribe(lambda event: seen.append(event.room))
        b.channel("windows", Door).subscribe(lambda event: seen.append(1000 + event.room), "level > 0")
        a.channel("doors", Door).subscribe(lambda event: all_of_it.append(event.room))
        make.ready(b)
        storm(source, range(6))
        storm(windows, range(6), level=1)
        storm(source, range(6, 20))
        make.flush()
        eventually(lambda: len(seen) == 10)
        assert sorted(seen) == [0, 1, 2, 3, 4, 5, 1000, 1001, 1002, 1003]
        assert len(all_of_it) == 20
        assert b.remote_counts(sink)[0].withheld == 14
        lanes = [lane for peer in a.federation_report().peers for lane in peer.lanes]
        assert sum(lane.shed for lane in lanes) == 16 and "shed" in str(a.federation_report())


def test_who_comes_with_many_keys_fills_no_memory_and_names_that_are_proven_share_a_rate() -> None:
    quotas = Quotas({"ann": Rate(1), "*": Rate(5)})
    for number in range(MOST + 10):
        assert quotas.of(Principal("x", "key", f"{number:064x}"), f"x.{number}") is not None
    assert len(quotas._known) == MOST
    ann = [Principal("ann", how, print_) for how, print_ in (("certificate", "ab" * 32), ("password", "cd" * 32))]
    assert quotas.of(ann[0], "ann.1") is quotas.of(ann[1], "ann.2")
    assert quotas.of(None, "y.1") is not quotas.of(None, "y.2")
    assert Quotas({"ann": Rate(1)}).of(None, "ann.1") is None  # a name that nothing proves


def test_batches_are_cut_where_the_quota_of_a_node_ends() -> None:
    seen = list[int]()
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", rates={"*": Rate(1, burst=10)})
        a, b = make("a", clock=UnhurriedClock(), network=network), make("b")
        source = a.channel("doors", Door).source()
        b.channel("doors", Door).subscribe(lambda event: seen.append(event.room), "level == 0")
        make.ready(b)
        source.publish_many(event_type(Door).to_arrow([Door(room=n, level=n % 2) for n in range(100)]))
        make.flush()
        eventually(lambda: len(seen) == 10)
        assert seen == list(range(0, 20, 2))


def test_for_a_durable_sink_what_is_beyond_an_quota_waits(tmp_path: Any) -> None:
    seen = list[int]()
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", rates={"*": Rate(200, burst=10)})
        a = make("a", network=network)
        b = make("b", state=tmp_path / "state")
        source = a.channel("doors", Door).source()
        b.channel("doors", Door).subscribe(
            lambda event: seen.append(event.room), name="sink", delivery=Reliable(durable=True)
        )
        make.ready(b)
        for start in range(0, 60, 10):
            storm(source, range(start, start + 10))
            make.flush()
        eventually(lambda: len(seen) == 60)
        assert seen == list(range(60))
        assert not any(lane.shed or lane.dropped for peer in a.federation_report().peers for lane in peer.lanes)


def test_what_is_in_a_log_waits_and_is_not_lost(tmp_path: Any) -> None:
    seen = list[int]()
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", rates={"*": Rate(500, burst=5)})
        a = make("a", network=network, state=tmp_path / "a", config=Config(log=Log(tmp_path / "log")))
        b = make("b")
        source = a.channel("doors", Door).source()
        b.channel("doors", Door).subscribe(lambda event: seen.append(event.room))
        make.ready(b)
        storm(source, range(100))
        eventually(lambda: len(seen) == 100, GUARD)
        assert seen == list(range(100))


# ── bad input ──


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        Network(listen="tcp/127.0.0.1:0", rates={"nobody:x": Rate(1), "ann": 5, "*": Rate(1, over="wait")})  # type: ignore[dict-item]
    text = str(caught.value)
    assert "nobody" in text and "rates ann" in text and "over" in text
    made = Network.of({"listen": "tcp/127.0.0.1:0", "rates": {"*": {"per_second": 5, "burst": 9}}})
    assert made.rates == {"*": Rate(5, burst=9)}


def _refusal(make: Nodes, wish: Wish) -> str:
    """What a node says to a wish that is sent to it as it is."""
    from headwater.federation.wire.requests import Install

    a, b = make("a"), make("b")
    a.channel("doors", Door).source()
    b.channel("doors", Door)
    make.together(a, b)
    peer = b._engine.everyone()[0]
    answer = b._engine.dialogue.ask(peer, Install("doors", 1, [wish]))
    assert not answer.points or wish.tag in answer.refused or answer.error, answer
    return answer.refused.get(wish.tag, answer.error)


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (lambda: Wish(7, None, rate=WishRate(1, 1)), "must come with a tag"),
        (lambda: Wish(7, None, tagged=True, rate=WishRate(1, 1, program=b"\x00\x01")), ""),
        (lambda: Wish(7, None, tagged=True, rate=WishRate(1, 1, program=_about_others())), "other events"),
        (lambda: Wish(7, None, tagged=True, rate=WishRate(1, 1, program=_no_number())), "a number"),
    ],
)
def test_a_rate_that_is_none_is_refused_and_nothing_goes(wish: Any, expected: str) -> None:
    with nodes() as make:
        refusal = _refusal(make, wish())
        assert refusal and expected in refusal


def _about_others() -> bytes:
    from headwater.channel.options.expression import Expression

    class Window(Event):
        pane: int

    interest = Expression("pane", event_type(Window)).interest
    assert interest is not None
    return interest.dumps()


def _no_number() -> bytes:
    return Interest("level > 0", Door).dumps()
