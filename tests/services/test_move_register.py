"""The register of moves, as a model: moves at random, claims lost and doubled, either side killed between two steps.

Exactly one place goes on, or none yet; what is done never goes back.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from headwater.errors import SubscriptionError
from headwater.services.moving.register import MoveRegister, digest_of
from headwater.store import NodeState
from tests.effort import examples

NODES = ("a", "b", "c")
SINK, SOURCE = "mail", "log/lab/x/s"
HOUR = 3600 * 10**9


class Place:
    """A node: its state stays, what is in memory goes with a kill."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = NodeState(":memory:")
        self.register = MoveRegister(self.state)
        self.running = False  # in memory: it has the sink, and hands events over
        self.had = False  # its program knows the sink, and subscribes by its name whenever it starts

    def kill(self) -> None:
        self.running = False
        self.register = MoveRegister(self.state)

    def start(self, now: int) -> bool:
        """The program subscribes by name, as it always does."""
        if self.running or not self.had or self.register.enter(SINK, now) is not None:
            return self.running
        self.running = True
        return True

    @property
    def done(self) -> int:
        return self.state.positions(SINK).get(SOURCE, 0)


class Token:
    def __init__(self, number: int, giver: str, position: int) -> None:
        self.id, self.giver, self.position = number.to_bytes(32, "big"), giver, position


class Moves(RuleBasedStateMachine):
    """One sink, three places. A claim is asked, answered, and its answer taken, in three steps; each may be lost."""

    tokens: Any = Bundle("tokens")
    granted: Any = Bundle("granted")  # answers that are on their way

    def __init__(self) -> None:
        super().__init__()
        self.places = {name: Place(name) for name in NODES}
        first = self.places["a"]
        first.state.commit(SINK, SOURCE, 0)
        first.running = first.had = True
        self.now, self.numbers, self.handed = 1, 0, 0

    def teardown(self) -> None:
        for place in self.places.values():
            place.state.close()

    @property
    def at(self) -> Place | None:
        """Where it is just now."""
        return next((place for place in self.places.values() if place.running), None)

    @precondition(lambda self: self.at is not None)
    @rule(events=st.integers(1, 3))
    def handles(self, events: int) -> None:
        place = self.at
        assert place is not None and place.done == self.handed, "it goes on where it was: nothing lost, nothing twice"
        self.handed += events
        place.state.commit(SINK, SOURCE, self.handed)

    @precondition(lambda self: self.at is not None)
    @rule(target=tokens, lasts=st.sampled_from([2, 5, HOUR]))
    def moves(self, lasts: int) -> Any:
        place = self.at
        assert place is not None
        self.numbers += 1
        token = Token(self.numbers, place.name, place.done)
        place.register.begin(token.id, SINK, ["c"], "", self.now + lasts)
        place.running = False
        return token

    @rule(target=granted, token=tokens, name=st.sampled_from(NODES))
    def asks(self, token: Token, name: str) -> Any:
        """Anybody, any number of times, with any token that ever was."""
        try:
            asker = self.places[name]
            if asker.register.taken(token.id) is not None:
                return multiple()
            self.places[token.giver].register.claim(token.id, name, asker.register.claimant, self.now)
        except SubscriptionError:
            return multiple()
        return token, name

    @rule(answer=consumes(granted))
    def has_an_answer(self, answer: tuple[Token, str]) -> None:
        self.takes(answer)

    def takes(self, answer: tuple[Token, str]) -> None:
        """The answer has come; whoever was killed meanwhile has forgotten that it asked, and asks again."""
        token, name = answer
        place = self.places[name]
        try:
            if place.running or place.register.taken(token.id) is not None:
                return
            self.places[token.giver].register.claim(token.id, name, place.register.claimant, self.now)
        except SubscriptionError:
            return
        place.register.take(token.id, SINK, {SOURCE: token.position}, {})
        place.running = place.had = True

    @rule(token=tokens, name=st.sampled_from(NODES))
    def asks_and_takes(self, token: Token, name: str) -> None:
        self.takes((token, name))

    @rule(answer=consumes(granted))
    def an_answer_is_lost(self, answer: tuple[Token, str]) -> None:
        pass

    @rule(name=st.sampled_from(NODES))
    def is_killed(self, name: str) -> None:
        self.places[name].kill()

    @rule(name=st.sampled_from(NODES))
    def is_started_again(self, name: str) -> None:
        self.places[name].start(self.now)

    @rule()
    def are_all_started_again(self) -> None:
        for place in self.places.values():
            place.start(self.now)

    @rule(seconds=st.integers(-3, 10))
    def time_passes(self, seconds: int) -> None:
        """Clocks go back, too."""
        self.now = max(1, self.now + seconds)

    @precondition(lambda self: self.now < HOUR)
    @rule()
    def a_long_time_passes(self) -> None:
        self.now += 2 * HOUR

    @invariant()
    def it_is_at_one_place(self) -> None:
        running = [place.name for place in self.places.values() if place.running]
        assert len(running) <= 1, running
        for name in running:
            assert self.places[name].done == self.handed

    @invariant()
    def who_may_go_on_is_one(self) -> None:
        """Those that a program could start it at, as it always does: without any token."""
        able = [place.name for place in self.places.values() if place.had and place.register.fence(SINK) is None]
        assert len(able) <= 1, able


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=examples(400), stateful_step_count=40, deadline=None)


def test_of_a_token_only_the_digest_is_kept() -> None:
    with NodeState(":memory:") as state:
        register = MoveRegister(state)
        id = bytes(range(32))
        register.begin(id, SINK, ["one", "two"], "desk", 10)
        assert register.terms(id) == ("desk", ["one", "two"])
        with state.reading() as read:
            kept = [value for row in read("SELECT * FROM moves") for value in row]
        assert id not in kept and digest_of(id) in kept


def test_what_has_expired_is_not_given_out_also_if_the_clock_goes_back() -> None:
    with NodeState(":memory:") as home:
        register, id = MoveRegister(home), bytes(32)
        register.begin(id, SINK, [], "", 10)
        for now in (10, 9):
            with pytest.raises(SubscriptionError, match="expired"):
                register.claim(id, "b", bytes(16), now)
        assert register.enter(SINK, 9) is None


def test_a_state_that_has_forgotten_everything_is_another_claimant() -> None:
    """A node without a file, started again under its name and key: what it had is gone, and maybe elsewhere."""
    with NodeState(":memory:") as one, NodeState(":memory:") as two, NodeState(":memory:") as home:
        register, id = MoveRegister(home), bytes(32)
        register.begin(id, SINK, [], "", 10)
        register.claim(id, "b", MoveRegister(one).claimant, 1)
        register.claim(id, "b", MoveRegister(one).claimant, 10**18)  # the answer was lost
        with pytest.raises(SubscriptionError, match="used"):
            register.claim(id, "b", MoveRegister(two).claimant, 1)


def test_there_is_a_limit() -> None:
    with NodeState(":memory:") as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.services.moving.register.MOST_OPEN", 3)
        patch.setattr("headwater.services.moving.register.MOST_OVER", 2)
        register = MoveRegister(home)
        for n in range(3):
            register.begin(bytes([n]) * 32, f"sink{n}", [], "", 10)
        with pytest.raises(SubscriptionError, match="forget"):
            register.begin(bytes([9]) * 32, "sink9", [], "", 10)
        for n in range(3):
            assert register.forget(f"sink{n}")
        assert register.report() == {"on their way": [], "moved": {}}
        assert register.terms(bytes(32)) is None  # long over
        register.begin(bytes([9]) * 32, "sink9", [], "", 10)
