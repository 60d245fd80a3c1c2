"""What a pattern says about times of which it does not know all that other nodes have published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater import Config, Network
from headwater.channel.time.clock import EPOCH_2000
from headwater.testing import ManualClock
from tests.federation.clocks import UnhurriedClock
from tests.federation.nodes import GUARD, Nodes, eventually, nodes
from tests.federation.test_incarnations import secured
from tests.federation.test_match import _vanished

DOOR = "who: text, n: u32"
ABSENT = "a: bell; without door{n = 2} within 1 second measures a.n as n"
BETWEEN = "a: bell{n = 1}; without door{n = 2}; b: bell{n = 2} within 1 hour measures a.n as n"
PAIR = "a: bell; b: bell within 1 hour measures b.n as n"
BEHIND = 5  # seconds by which the desk's clock is behind


def _got(watch: Any) -> Any:
    found = watch.get(timeout=GUARD)
    assert found is not None, f"nothing in {GUARD} s: {watch.report()}"
    return found


class _Clocks:
    """Of a desk with a bell, and of a node `east` with a door, which is ahead."""

    def __init__(self, make: Nodes, **options: Any) -> None:
        self.here, self.there = ManualClock(), ManualClock(time=EPOCH_2000 + BEHIND * 1_000_000)
        self.desk = make("desk", clock=self.here)
        self.bell = self.desk.channel("bell", "n: u32").source("bell")
        self.east = make("east", clock=self.there, **options)
        self.door = self.east.channel("door", DOOR).source("door")

    def together(self, make: Nodes) -> None:
        make.together()
        assert self.desk.until(lambda: bool(self.desk.remote_sources("door")), GUARD)

    def advance(self, seconds: float) -> None:
        """Time goes on everywhere, and both know that it has."""
        self.there.advance(seconds)
        self.here.advance(seconds)


def _promised(clocks: _Clocks, watch: Any) -> Any:
    """What is found once the other node has said how late it is there."""
    eventually(lambda: _ticks(clocks, watch), timeout=GUARD)
    return _got(watch)


def _ticks(clocks: _Clocks, watch: Any, matches: int = 1) -> bool:
    clocks.here.advance(0.001)
    return watch.report().matches >= matches


def test_absence_is_uncertain_where_it_reaches_back_before_another_node_was_asked() -> None:
    """By its clock, that was five seconds after the bell rang: what it has published until then is not known."""
    with nodes() as make:
        clocks = _Clocks(make)
        clocks.door.publish(who="ann", n=2)
        clocks.together(make)
        watch, between, positive = (clocks.desk.match(each) for each in (ABSENT, BETWEEN, PAIR))
        make.ready(clocks.desk)
        clocks.bell.publish(n=1)
        clocks.here.advance(1)
        clocks.bell.publish(n=2)
        clocks.here.advance(0.1)
        found = _promised(clocks, watch)
        assert (found.n, found.match.uncertain) == (1, True)
        assert _got(between).match.uncertain
        assert not _got(positive).match.uncertain  # nothing that is not known could have been in its way
        assert watch.report().uncertain >= 1

        clocks.here.advance(BEHIND)  # from here on, all is known that was published there
        clocks.bell.publish(n=1)
        clocks.advance(10)
        found = _got(watch)
        while found.n == 2:  # of the bell before
            found = _got(watch)
        assert not found.match.uncertain


def test_a_node_that_has_not_answered_is_waited_for() -> None:
    with nodes() as make:
        clocks = _Clocks(make)
        clocks.door.publish(who="ann", n=2)
        clocks.together(make)
        with clocks.east._engine.installer._lock:  # it is busy
            watch = clocks.desk.match(ABSENT)
            hasty = clocks.desk.match(f"{ABSENT} patience 2 seconds")
            clocks.bell.publish(n=1)
            clocks.here.advance(10)
            assert watch.poll() is None and watch.report().held_by == "door@east"
            assert _got(hasty).match.uncertain
        make.ready(clocks.desk)
        clocks.advance(10)
        assert _promised(clocks, watch).match.uncertain


def test_a_node_that_comes_later_and_has_published_nothing_leaves_nothing_unknown() -> None:
    with nodes() as make:
        desk = make("desk")
        bell = desk.channel("bell", "n: u32").source("bell")
        desk.channel("door", DOOR)
        watch = desk.match("a: bell; without door within 1 second measures a.n as n")
        bell.publish(n=1)
        quiet, loud = make("quiet"), make("loud")
        quiet.channel("door", DOOR).source("quiet")
        make.together()
        assert desk.until(lambda: len(desk.remote_sources("door")) == 1, GUARD)
        make.ready(desk)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (1, False)
        slow = desk.match("a: bell; without door within 10 minutes measures a.n as n")
        bell.publish(n=2)
        with loud._engine.installer._lock:  # it cannot be asked for it in time
            source = loud.channel("door", DOOR).source("loud")
            source.publish(who="ann", n=1)
            source.close()  # nobody can say any more what it was
        loud.channel("door", DOOR).source("again")
        assert desk.until(lambda: len(desk.remote_sources("door")) == 2, GUARD)
        make.ready(desk)
        eventually(lambda: bool(slow._stage.operator.runner.blind), timeout=GUARD)
        assert _got(watch).n == 2


def test_what_a_node_may_have_published_before_it_was_given_up_is_not_known() -> None:
    clock = UnhurriedClock()
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", lease=1.0, keep=0.5)
        desk = make("desk", network=network, listen=None, clock=clock)
        bell = desk.channel("bell", "n: u32").source("bell")
        desk.channel("door", DOOR)
        east = make("east", clock=clock)
        east.channel("door", DOOR).source("door")
        make.together()
        watch = desk.match(ABSENT)
        make.ready(desk)
        bell.publish(n=1)
        clock.advance(2)
        assert not _got(watch).match.uncertain
        bell.publish(n=2)
        with _vanished(east, desk):
            clock.advance(2)
            found = _got(watch)  # it is not expected any longer
            assert (found.n, found.match.uncertain) == (2, True)
            bell.publish(n=3)
            clock.advance(2)
            assert not _got(watch).match.uncertain


def test_what_a_node_has_published_between_two_lives_is_not_known(tmp_path: Path) -> None:
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=secured(tmp_path, "desk"))
        bell = desk.channel("bell", "n: u32").source("bell")
        desk.channel("door", DOOR)

        def east() -> Any:
            node = make("east", connect=desk.endpoints[0], security=secured(tmp_path, "east"))
            node.channel("door", DOOR).source("door")
            make.together(desk, node)
            assert desk.until(lambda: bool(desk.remote_sources("door")), GUARD)
            return node

        first = east()
        watch = desk.match(ABSENT)
        make.ready(desk)
        bell.publish(n=1)
        assert not _got(watch).match.uncertain
        with _vanished(first, desk):
            bell.publish(n=2)
            make.opened.remove(first)
            east()
            found = _got(watch)
            assert (found.n, found.match.uncertain) == (2, True)
            bell.publish(n=3)
            found = _got(watch)
            assert (found.n, found.match.uncertain) == (3, False)
        first.close(drain=False, timeout=2.0)


def test_what_a_node_publishes_while_it_takes_this_one_for_gone_is_not_known() -> None:
    """It has given up what it was asked for, and is asked again as soon as the two find each other."""
    with nodes() as make:
        clocks = _Clocks(make)
        clocks.together(make)
        watch = clocks.desk.match(ABSENT)
        make.ready(clocks.desk)
        clocks.bell.publish(n=1)
        clocks.here.advance(2)
        found = _promised(clocks, watch)
        assert (found.n, found.match.uncertain) == (1, False)
        clocks.bell.publish(n=2)
        engine = clocks.east._engine
        (peer,) = engine.everyone()
        engine.installer.gone(peer, orderly=False)
        clocks.door.publish(who="ann", n=2)  # by its clock, not in the time of the bell
        peer.link.close("cut by the test")
        eventually(lambda: bool(watch._stage.operator.runner.blind), timeout=GUARD)
        clocks.here.advance(2)
        eventually(lambda: _ticks(clocks, watch, 2), timeout=GUARD)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (2, True)


@contextmanager
def _refused() -> Iterator[tuple[Any, Any, Any]]:
    """A pattern whose other node has events of another type, so that none of them comes: they can be none of those that
    it is about, or so it seems."""
    with nodes() as make:
        desk, east = make("desk"), make("east")
        bell = desk.channel("bell", "n: u32").source("bell")
        desk.channel("door", DOOR)
        east.channel("door", "who: text, n: text").source("door")
        make.together()
        watch = desk.match(ABSENT)
        assert desk.until(lambda: bool(watch.refused), GUARD)
        bell.publish(n=1)
        yield east, bell, watch


def test_what_a_node_does_not_send_stays_unknown() -> None:
    with _refused() as (_, _, watch):
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (1, True)


def test_what_a_node_did_not_send_stays_unknown_when_it_has_left() -> None:
    with _refused() as (east, bell, watch):
        eventually(lambda: watch._stage.operator.runner.unheard, timeout=GUARD)
        east.close()
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (1, True)
        bell.publish(n=2)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (2, False)


def test_what_was_lost_of_events_that_say_their_own_times_is_not_known() -> None:
    """It is older than what came next, and so it may have been in between."""
    with nodes() as make:
        desk, east = make("desk"), make("east")
        bell = desk.channel("bell", "n: u32, at: i64").source("bell")
        desk.channel("door", "n: u32, at: i64")
        door = east.channel("door", "n: u32, at: i64").source("door")
        make.together()
        assert desk.until(lambda: bool(desk.remote_sources("door")), GUARD)
        watch = desk.match("a: bell; without door{n = 2} within 1 second time at measures a.n as n")
        make.ready(desk)

        def ring(n: int, seconds: int) -> Any:
            bell.publish(n=n, at=seconds * 1_000_000)
            for later in (5, 6):
                bell.publish(n=0, at=(seconds + later) * 1_000_000)
                door.publish(n=1, at=(seconds + later) * 1_000_000)
            found = _got(watch)
            while found.n != n:
                found = _got(watch)
            return found.match

        door.publish(n=1, at=0)
        assert not ring(1, 10).uncertain
        (source,) = [each for each in desk.channel("door").sources.values() if not each.local]
        runner = watch._stage.operator.runner
        eventually(lambda: runner.promised("door", "door", "east") == 16_000_000)  # nothing is on its way
        source.missed += 1
        assert ring(2, 20).uncertain
        assert not ring(3, 40).uncertain


def test_what_a_node_had_published_stays_unknown_when_it_has_left_and_said_no_time() -> None:
    with nodes() as make:
        desk, east = make("desk"), make("east")
        bell = desk.channel("bell", "n: u32, at: i64").source("bell")
        desk.channel("door", "n: u32, at: i64")
        east.channel("door", "n: u32, at: i64").source("door").publish(n=2, at=10_500_000)
        make.together()
        assert desk.until(lambda: bool(desk.remote_sources("door")), GUARD)
        watch = desk.match("a: bell; without door{n = 2} within 1 second time at measures a.n as n")
        make.ready(desk)
        for n, seconds in enumerate((10, 15, 16)):
            bell.publish(n=n, at=seconds * 1_000_000)
        eventually(lambda: watch.report().events == 3 and bool(watch._stage.watermark.blind._unheard), timeout=GUARD)
        east.close()
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (0, True)


def test_what_was_published_before_is_known_where_it_begins_with_the_past() -> None:
    with nodes() as make:
        clocks = _Clocks(make, config=Config(history=100))
        for n in (1, 2, 1):
            clocks.door.publish(who="ann", n=n)
            clocks.there.advance(1)
        clocks.there.advance(100)
        clocks.together(make)
        watch = clocks.desk.match("a: bell; without door within 1 second measures a.n as n", history=10)
        make.ready(clocks.desk)
        clocks.here.advance(BEHIND - 0.5)
        clocks.bell.publish(n=1)  # before the first that is known
        clocks.here.advance(20)
        clocks.bell.publish(n=2)  # after the last, and before it was asked for them
        clocks.here.advance(2)
        clocks.there.advance(1)
        found = _got(watch)
        assert (found.n, found.match.uncertain) == (2, False)
        assert watch.report().late == 0
