"""The register of sources that move, as a model: claims lost and doubled, nodes killed between any two steps.

However it goes, every number of the source is published once, and the next one by whoever may publish at all.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from headwater.errors import SubscriptionError
from headwater.services.moving.source_register import Arrival, Cut, SourceRegister
from headwater.store import NodeState
from tests.effort import examples

NODES = ("a", "b", "c")
CHANNEL, SOURCE, HOME = "test.count", "s", "log/a/x/s"
HOUR = 3600 * 10**9


class Place:
    """A node: its state and log stay, what is in memory goes with a kill."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = NodeState(":memory:")
        self.register = SourceRegister(self.state)
        self.running = False  # in memory: there is a source, and its program publishes
        self.logged = 0  # the last event in its own log
        self.may = name == "a"  # its program has had the source, and makes it by its name whenever it starts

    def kill(self) -> None:
        self.running = False
        self.register = SourceRegister(self.state)

    def start(self) -> None:
        """Its program makes the source by its name, if it had one."""
        if self.may and self.register.fence(CHANNEL, SOURCE) is None:
            self.running = True

    @property
    def term(self) -> int:
        found = self.register.arrival(CHANNEL, SOURCE)
        return 0 if found is None else found.cut.term

    @property
    def last(self) -> int:
        found = self.register.arrival(CHANNEL, SOURCE)
        return max(self.logged, 0 if found is None else found.cut.upto)


class Moves(RuleBasedStateMachine):
    """One source, three places. A claim is asked, answered, and its answer taken; each may be lost, or come twice."""

    tokens: Any = Bundle("tokens")
    granted: Any = Bundle("granted")  # answers that are on their way

    def __init__(self) -> None:
        super().__init__()
        self.places = {name: Place(name) for name in NODES}
        self.places["a"].running = True
        self.published = self.made = 0
        self.now = HOUR

    @rule(name=st.sampled_from(NODES))
    def publish(self, name: str) -> None:
        place = self.places[name]
        if place.running:
            assert place.last == self.published, "it goes on with the next number, and nobody else has had that"
            place.logged = self.published = self.published + 1

    @rule(target=tokens, name=st.sampled_from(NODES), lasts=st.sampled_from([1, HOUR]))
    def move(self, name: str, lasts: int) -> Any:
        place = self.places[name]
        if not place.running:
            return multiple()
        self.made += 1
        id = self.made.to_bytes(32, "big")
        place.register.begin(id, CHANNEL, SOURCE, "", self.now + lasts, self.now)
        return id, name

    @rule(target=granted, token=tokens, name=st.sampled_from(NODES))
    def ask(self, token: Any, name: str) -> Any:
        """What the node that gave a token says to a claim. It may be killed right after."""
        (id, giver), taker = token, self.places[name]
        place = self.places[giver]
        if giver == name or taker.register.taken(id):
            return multiple()
        try:
            cut = place.register.claimed(id, name, taker.register.claimant)
            if cut is None:
                place.register.check(id, self.now)
                if not place.running:
                    return multiple()
                cut = Cut(HOME, place.term + 1, place.last, self.now)
                place.register.claim(id, name, taker.register.claimant, cut)
                place.running = False
        except SubscriptionError:
            return multiple()
        return id, name, cut

    @rule(answer=granted)
    def take(self, answer: Any) -> None:
        """An answer comes, for the first time or again."""
        id, name, cut = answer
        place = self.places[name]
        if not place.register.taken(id):
            place.register.take(id, CHANNEL, SOURCE, Arrival(cut, (b"deed",)))
            place.running = place.may = True

    @rule(name=st.sampled_from(NODES))
    def kill(self, name: str) -> None:
        self.places[name].kill()

    @rule(name=st.sampled_from(NODES))
    def start(self, name: str) -> None:
        self.places[name].start()

    @rule()
    def time_passes(self) -> None:
        self.now += 2

    @invariant()
    def at_one_place(self) -> None:
        assert sum(place.running for place in self.places.values()) <= 1

    def teardown(self) -> None:
        for place in self.places.values():
            place.state.close()


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_what_there_is_and_why_not() -> None:
    with NodeState(":memory:") as state:
        register = SourceRegister(state)
        register.begin(b"1" * 32, CHANNEL, SOURCE, "desk", HOUR, 0)
        assert register.report() == {"may leave": ["test.count/s"], "moved": {}}
        with pytest.raises(SubscriptionError, match="never made here"):
            register.claimed(b"2" * 32, "desk", b"x" * 16)
        register.claim(b"1" * 32, "desk", b"x" * 16, Cut(HOME, 1, 7, 5))
        with pytest.raises(SubscriptionError, match="used just now"):
            register.claim(b"1" * 32, "mill", b"y" * 16, Cut(HOME, 1, 7, 5))
        with pytest.raises(SubscriptionError, match="desk goes on with 's'"):
            register.claimed(b"1" * 32, "mill", b"x" * 16)
        assert register.claimed(b"1" * 32, "desk", b"x" * 16) == Cut(HOME, 1, 7, 5)
        assert register.fence(CHANNEL, SOURCE) == "desk" and register.fence(CHANNEL, "other") is None
        register.take(b"3" * 32, CHANNEL, SOURCE, Arrival(Cut(HOME, 2, 9, 6), (b"d",)))
        assert register.fence(CHANNEL, SOURCE) is None and register.taken(b"3" * 32)
        assert register.arrival(CHANNEL, SOURCE) == Arrival(Cut(HOME, 2, 9, 6), (b"d",))
        with pytest.raises(SubscriptionError, match="has come back since"):
            register.claimed(b"1" * 32, "desk", b"x" * 16)
