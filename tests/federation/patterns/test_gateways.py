"""Patterns by time over sources behind gateways, which promise no more than the origins have, and was passed on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.channel.patterns.stage import Errand
from headwater.channel.time.clock import EPOCH_2000
from headwater.federation.node import Node
from headwater.testing import ManualClock
from tests.federation.clocks import UnhurriedClock
from tests.federation.nodes import GUARD, eventually
from tests.federation.test_gateway import Sighting, World, sees, world
from tests.federation.test_match import _vanished

SIGHTING, BELL = "ie.tcd.sighting", "bell"
PAIR = f"a: {SIGHTING}{{x = 1}}, b: {SIGHTING}{{x = 2}} within 1 hour measures b.x as x"
BOTH = f"a: {SIGHTING}; b: {BELL} within 1 hour measures a.x as x, b.n as n"
BEHIND = 5  # seconds by which clocks of this side are
ABSENT = f"a: {BELL}; without {SIGHTING}{{x = 2}} within 200 milliseconds measures a.n as n"
LATER = 1  # seconds, when nothing more is within that time


class Street:
    """A source, a gateway between two federations, and a home behind it; at the gateway and at home there is a bell."""

    def __init__(self, made: World, *, there: Any = None, here: Any = None) -> None:
        self.made = made
        self.here, self.far = made.federation("a", **(there or {}))
        self.gate, self.home = made.federation("b", **(here or {}))
        self.source = self.far.channel(SIGHTING, Sighting).source("far")
        self.gateway = made.join(self.here, self.gate)
        self.bells = {node: node.channel(BELL, "n: u32").source(node.name) for node in (self.gate, self.home)}
        sees(self.home, 1, SIGHTING)
        sees(self.gate, 1, BELL)

    def match(self, node: Node, text: str) -> Any:
        watch = node.match(text)
        for each in (node, self.gate, self.here):
            assert each.ready(GUARD)
        return watch

    def absent(self, node: Node, watch: Any, n: int, *clocks: UnhurriedClock) -> bool:
        """Ring; whether it is uncertain that nobody was seen."""
        self.bells[node].publish(n=n)
        for clock in clocks:
            clock.advance(LATER)
        found = _got(watch)
        assert found.n == n and watch.report().late == 0
        return bool(found.match.uncertain)


def _got(watch: Any) -> Any:
    found = watch.get(timeout=GUARD)
    assert found is not None, f"nothing in {GUARD} s: {watch.report()}"
    return found


def test_rows_and_matches_are_those_that_the_source_s_own_side_would_find() -> None:
    with world() as made:
        street = Street(made)
        watches = [street.match(node, PAIR) for node in (street.gate, street.home, street.far)]
        for x in (1, 3, 2, 1, 2):
            street.source.publish(x=x)
        street.source.publish_many(street.far.channel(SIGHTING).type.to_arrow([{"x": x} for x in (4, 1, 2, 1)]))
        for watch in watches:
            eventually(lambda watch=watch: (watch.report().rows, watch.report().matches) == (9, 2), timeout=GUARD)
        assert [watch.report().late for watch in watches] == [0, 0, 0]


def test_what_a_slow_gateway_still_holds_is_waited_for() -> None:
    """Nothing that is later goes before it, and nothing is said not to have come."""
    with world() as made:
        street = Street(made)
        for node in (street.gate, street.home):
            both, absent = street.match(node, BOTH), street.match(node, ABSENT)
            hasty = street.match(node, f"{ABSENT} patience 300 milliseconds")
            (relay,) = street.gateway.taking
            relay.pause()
            street.source.publish(x=2)
            eventually(lambda relay=relay: bool(relay._mailbox.items), timeout=GUARD)
            street.bells[node].publish(n=1)
            found = _got(hasty)
            assert (found.n, found.match.uncertain) == (1, True)
            assert both.poll() is None and absent.poll() is None
            assert absent.report().held_by.startswith(f"{SIGHTING}/far@"), absent.report()
            relay.resume()
            found = _got(both)
            assert (found.x, found.n, found.match.uncertain) == (2, 1, False)
            assert _got(absent).n == 1  # the sighting was before the bell
            assert both.report().late == absent.report().late == 0
            for watch in (both, absent, hasty):
                watch.cancel()


def test_what_comes_through_a_gateway_contradicts_and_its_absence_is_certain() -> None:
    clock = UnhurriedClock()
    with world() as made:
        street = Street(made, there={"clock": clock}, here={"clock": clock})
        for node in (street.gate, street.home):
            watch = street.match(node, ABSENT)
            assert not street.absent(node, watch, 1, clock)
            street.bells[node].publish(n=2)
            clock.advance(0.01)
            street.source.publish(x=2)
            clock.advance(LATER)
            eventually(lambda watch=watch: watch.report().rows == 3, timeout=GUARD)
            assert not street.absent(node, watch, 3, clock)
            watch.cancel()


def test_plain_subscribers_in_order_of_time_wait_for_what_a_gateway_holds() -> None:
    with world() as made:
        street = Street(made)
        near = street.home.channel(SIGHTING).source("near")
        came: list[int] = []
        sink = street.home.channel(SIGHTING).subscribe(lambda event: came.append(event.x), order="timestamp")
        for each in (street.home, street.gate, street.here):
            assert each.ready(GUARD)
        (relay,) = [each for each in street.gateway.taking if each.node is street.here]
        relay.pause()
        street.source.publish(x=1)
        eventually(lambda: bool(relay._mailbox.items), timeout=GUARD)
        near.publish(x=2)
        relay.resume()
        eventually(lambda: len(came) == 2, timeout=GUARD)
        assert came == [1, 2] and sink.report().counts.late == 0


def test_what_was_published_before_a_gateway_has_asked_is_not_known() -> None:
    """By the source's clock it was asked for five seconds after the bell rang."""
    here, there = ManualClock(), ManualClock(time=EPOCH_2000 + BEHIND * 1_000_000)
    with world() as made:
        street = Street(made, there={"clock": there}, here={"clock": here})
        street.source.publish(x=2)
        watches = [street.match(node, ABSENT) for node in (street.gate, street.home)]

        def found(watch: Any, matches: int) -> bool:
            here.advance(0.001)
            return bool(watch.report().matches >= matches)

        for round, uncertain in enumerate((True, False), 1):
            for node in (street.gate, street.home):
                street.bells[node].publish(n=round)
            here.advance(BEHIND)
            there.advance(BEHIND)
            for watch in watches:
                eventually(lambda watch=watch, round=round: found(watch, 2 * round), timeout=GUARD)
                assert [_got(watch).match.uncertain for _ in range(2)] == [uncertain] * 2
            here.advance(BEHIND)
            there.advance(BEHIND)


def test_what_an_origin_may_have_published_before_it_was_given_up_is_not_known() -> None:
    clock = UnhurriedClock()
    with world() as made:
        away = {"clock": clock, "network": {"lease": 1.0, "keep": 2.0}}
        street = Street(made, there=away, here={"clock": clock})
        watches = {node: street.match(node, ABSENT) for node in (street.gate, street.home)}
        street.bells[street.gate].close()
        assert not street.absent(street.home, watches[street.home], 1, clock)
        street.bells[street.home].publish(n=2)
        with _vanished(street.far, street.here):
            clock.advance(LATER)
            found = _got(watches[street.home])
            assert (found.n, found.match.uncertain) == (2, True)
            assert not street.absent(street.home, watches[street.home], 3, clock)
        assert [_got(watches[street.gate]).match.uncertain for _ in range(3)] == [False, True, False]


def test_what_is_published_while_there_is_no_gateway_is_not_known() -> None:
    here = UnhurriedClock()
    there = here.twin()
    with world() as made:
        street = Street(made, there={"clock": there}, here={"clock": here})
        street.bells[street.gate].close()
        watch = street.match(street.home, ABSENT)
        assert not street.absent(street.home, watch, 1, here, there)
        street.bells[street.home].publish(n=2)
        there.advance(0.05)  # after the bell, also by the clock of who closes
        here.advance(0.1)  # so far the source has not come
        street.gateway.close()
        street.source.publish(x=2)
        here.advance(LATER)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (2, True)
        street.bells[street.home].publish(n=3)
        made.join(street.here, street.gate)
        sees(street.home, 1, SIGHTING)
        for each in (street.home, street.gate, street.here):
            assert each.ready(GUARD)
        here.advance(LATER)
        there.advance(2 * LATER + 0.05)  # the two show the same again
        assert _got(watch).n == 3
        assert not street.absent(street.home, watch, 4, here, there)


@contextmanager
def _overtaken(watch: Any, home: Node) -> Iterator[None]:
    """What the gateway's node says over its link, of what was not heard, comes only after a pattern has seen that there
    are no sources behind it any more, which is said by another way. That they end goes over the link as well."""
    (gate,) = home._engine.everyone()
    came, told = home._engine.requester.barrier_came, threading.Event()

    def late(peer: Any, channel: str, version: int, since: int, first: bool, gap: int) -> None:
        if gap and channel == SIGHTING:
            assert home.until(lambda: not gate.has(SIGHTING), GUARD)
            watch._stage.nudge()
            told.set()
        came(peer, channel, version, since, first, gap)

    home._engine.requester.barrier_came = late
    try:
        yield
        assert told.wait(GUARD)
    finally:
        home._engine.requester.barrier_came = came


@contextmanager
def _busy(watch: Any, home: Node) -> Iterator[None]:
    """A pattern looks at nothing before all has come that the gateway's node says meanwhile."""
    (gate,) = home._engine.everyone()
    begun, ended = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        ended.wait(GUARD)

    worker = threading.Thread(target=watch._stage.do, args=[Errand(wait)])
    worker.start()
    try:
        assert begun.wait(GUARD)
        yield
        assert home.until(lambda: not gate.has(SIGHTING) and not gate.remote_sources, GUARD)
    finally:
        ended.set()
        worker.join(GUARD)


@pytest.mark.parametrize("late", [_overtaken, _busy])
def test_what_a_gateway_has_not_heard_is_not_known_whatever_is_seen_first(late: Any) -> None:
    """That it has not, and that there are no sources behind it any more, come by two ways; or are seen at once."""
    clock = UnhurriedClock()
    with world() as made:
        street = Street(made, there={"clock": clock}, here={"clock": clock})
        street.bells[street.gate].close()
        watch = street.match(street.home, ABSENT)
        assert not street.absent(street.home, watch, 1, clock)
        street.bells[street.home].publish(n=2)
        clock.advance(0.1)
        with late(watch, street.home):
            street.gateway.close()
        street.source.publish(x=2)
        clock.advance(LATER)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (2, True)
        assert not street.absent(street.home, watch, 3, clock)


def test_what_a_gateway_has_not_heard_is_told_before_a_new_link_says_what_is_in_force() -> None:
    """A link has come up again, over which nothing is said to be in force yet, and the gateway is closed."""
    clock = UnhurriedClock()
    with world() as made:
        street = Street(made, there={"clock": clock}, here={"clock": clock})
        street.bells[street.gate].close()
        watch = street.match(street.home, ABSENT)
        assert not street.absent(street.home, watch, 1, clock)
        street.bells[street.home].publish(n=2)
        clock.advance(0.1)
        barriers, due = street.gate._engine.barriers, queue.SimpleQueue[Any]()
        send, barriers.send_barrier = barriers.send_barrier, lambda *what: due.put(what)
        (home,) = street.gate._engine.everyone()
        home.link.close("cut by the test")
        while (waiting := due.get(timeout=GUARD))[1].channel.name != SIGHTING:
            send(*waiting)
        street.gateway.close()
        street.source.publish(x=2)
        clock.advance(LATER)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (2, True)
        barriers.send_barrier = send
        send(*waiting)
        assert not street.absent(street.home, watch, 3, clock)
