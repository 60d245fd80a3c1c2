"""A node that stood still for longer than others keep what it wanted, or had: it gets its events again afterwards."""

from __future__ import annotations

import pytest

from headwater.federation.wire.requests import Install, Wish
from tests.federation.nodes import GUARD, Log, eventually, nodes
from tests.federation.processes import World, world
from tests.federation.worker import Count

CHANNEL = "count"
BRIEF = {"lease": 1.0, "keep": 0.3}


def _open(made: World, **hill: float) -> None:
    for name in ("hill", "hall"):
        made.start(name)
    made.open("hill", **{**BRIEF, **hill})
    made.open("hall", seeds=["hill"], **BRIEF)


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best effort"])
def test_a_subscriber_that_stood_still_for_too_long_is_served_again(reliable: bool) -> None:
    with world() as made:
        _open(made)
        made["hall"]("sink", channel=CHANNEL, name="hall", path=made.path("log"), reliable=reliable)
        made["hill"]("flow", channel=CHANNEL, source="hill", maker="hill", path=made.path("published"))
        assert made["hall"]("more", sink="hall", count=10) is True
        made["hall"].stop()
        assert made["hill"]("wishes", channel=CHANNEL, wanted=0) == {}
        made["hall"].go_on()
        assert made["hill"]("peers", wanted=["hall"]) is True
        assert made["hall"]("more", sink="hall", count=500, timeout=20.0) is True


def test_what_is_asked_of_a_source_that_stood_still_for_too_long_counts() -> None:
    """It has not forgotten what it was asked for; who asks it has forgotten all about it."""
    with world() as made:
        _open(made, keep=60.0)
        made["hill"]("flow", channel=CHANNEL, source="hill", maker="hill", path=made.path("published"))
        for number in range(5):
            made["hall"]("sink", channel=CHANNEL, name=f"{number}", path=made.path("log"), where=f"n == -{number + 1}")
            assert made["hall"]("sees", channel=CHANNEL, sources=["hill@hill"]) is True
            assert made["hall"]("ready") is True
        made["hill"].stop()
        assert made["hall"]("gone", unwanted=["hill"]) is True
        made["hill"].go_on()
        assert made["hall"]("peers", wanted=["hill"]) is True
        made["hall"]("sink", channel=CHANNEL, name="all", path=made.path("all"))
        assert made["hall"]("more", sink="all", count=50, timeout=20.0) is True


def test_a_question_that_comes_after_it_was_taken_back_asks_for_nothing() -> None:
    """It took long to read; who asked has given up waiting, and wants nothing more."""
    with nodes() as made:
        hill, hall = made("hill"), made("hall")
        hill.channel(CHANNEL, Count).source("hill")
        made.together()
        sink = hall.channel(CHANNEL, Count).subscribe(Log(), "n > 0")
        made.ready(hall)
        assert hill._engine is not None
        (peer,) = hill._engine.everyone()
        crossing = peer.crossings[CHANNEL]
        (tag,) = crossing.wishes
        interest = next(iter(hall.channel(CHANNEL).entries.values())).interest
        assert interest is not None
        early = Install(CHANNEL, crossing.version, [Wish(tag, interest.dumps())])
        sink.cancel()
        eventually(lambda: not peer.crossings, "the question to withdraw it")
        hill._engine.installer.install(peer, peer.principal, early)
        assert not peer.crossings


def test_a_channel_that_its_source_closes_and_opens_again_is_asked_for_again() -> None:
    with nodes() as made:
        hill, hall = made("hill"), made("hall")
        first = hill.channel(CHANNEL, Count)
        first.source("hill").publish(Count(maker="hill", n=0))
        made.together()
        seen = Log()
        hall.channel(CHANNEL, Count).subscribe(seen)
        made.ready(hall)
        for turn in range(1, 4):
            hill.channel(CHANNEL).close()
            source = hill.channel(CHANNEL, Count).source("hill")
            assert hall.ready(GUARD)
            source.publish(Count(maker="hill", n=turn))
            seen.wait(turn)
        assert seen.field("n") == [1, 2, 3]
