"""Who leads: votes, terms and leases, in a network that does what it likes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.arrive.deduplication import Fence, PlacesOfTerm, order_of, order_origin
from headwater.federation.order.election import Ballot
from headwater.federation.order.leadership import LEASE_COUNTED
from headwater.federation.wire.requests import Lead, Stand
from tests.effort import examples

LEASE = 10.0
NODES = 5


def lead(term: int, leader: str, *followers: str, version: int = 1, resigned: bool = False, place: int = 0) -> Lead:
    return Lead("c", term, leader, LEASE, place, [leader, *followers], version, resigned)


def stand(term: int, leader: str, known: int = 0, knows: str = "") -> Stand:
    return Stand("c", term, leader, LEASE, known, knows)


def nobody(rank: str) -> bool:
    return False


class TestBallot:
    def test_one_vote_in_a_term(self) -> None:
        ballot = Ballot()
        assert ballot.stand(stand(1, "a"), 0.0, nobody).granted
        assert not ballot.stand(stand(1, "b"), 100.0, nobody).granted
        assert ballot.lead(lead(1, "a"), 1.0).granted and not ballot.lead(lead(1, "b"), 1.0).granted

    def test_nobody_is_elected_within_a_lease(self) -> None:
        ballot = Ballot()
        ballot.lead(lead(1, "a", "b"), 0.0)
        assert not ballot.stand(stand(2, "b", 1, "a"), LEASE, nobody).granted
        refused = ballot.stand(stand(2, "b", 1, "a"), LEASE / 2, nobody)
        assert (refused.term, refused.leader) == (1, "a")
        assert ballot.stand(stand(2, "b", 1, "a"), LEASE + 0.1, nobody).granted
        assert not ballot.lead(lead(1, "a", "b"), LEASE + 0.2).granted  # it was away

    def test_who_resigns_is_replaced_at_once(self) -> None:
        ballot = Ballot()
        ballot.lead(lead(1, "a", "b"), 0.0)
        ballot.lead(lead(1, "a", "b", resigned=True), 0.0)
        assert ballot.stand(stand(2, "b", 1, "a"), 0.1, nobody).granted

    def test_who_does_not_follow_waits_for_those_who_do(self) -> None:
        ballot = Ballot()
        ballot.lead(lead(1, "a", "b"), 0.0)
        assert not ballot.stand(stand(2, "c"), 100.0, {"b"}.__contains__).granted
        vote = ballot.stand(stand(2, "c"), 100.0, nobody)
        assert vote.granted and not vote.close  # then with what is published from then on

    def test_what_a_leader_says_later_counts(self) -> None:
        ballot = Ballot()
        ballot.lead(lead(1, "a", version=2), 0.0)
        assert ballot.lead(lead(1, "a", "b", version=1), 0.1).granted  # overtaken on its way
        assert not ballot.stand(stand(2, "b", 1, "a"), 100.0, nobody).close

    def test_the_first_is_elected_without_more_ado(self) -> None:
        vote = Ballot().stand(stand(1, "a"), 0.0, nobody)
        assert vote.granted and vote.close


class _Sequencer:
    def __init__(self, name: str) -> None:
        self.name, self.term, self.until, self.highest = name, 0, -1.0, 0


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_at_no_time_do_two_lead(data: Any) -> None:
    """Questions are lost, answers are lost, nodes stand still for as long as they like, and clocks go on."""
    ballots = [Ballot() for _ in range(NODES)]
    rivals = [_Sequencer(name) for name in "abc"]
    now = 0.0
    for _ in range(30):
        now += data.draw(st.sampled_from([0.0, 0.5, 3.0, LEASE, 2 * LEASE]))
        one = data.draw(st.sampled_from(rivals))
        reached = data.draw(st.sets(st.integers(0, NODES - 1)))
        answered = reached & data.draw(st.sets(st.integers(0, NODES - 1)))
        begun = now
        leads = one.term > 0
        term = one.term if leads else one.highest + 1
        votes = {}
        for at in sorted(reached):
            now += data.draw(st.sampled_from([0.0, 0.1, 2.0]))  # on its way, or frozen
            made = (
                ballots[at].lead(lead(term, one.name), now)
                if leads
                else ballots[at].stand(stand(term, one.name, one.highest, one.name), now, nobody)
            )
            votes[at] = made
        heard = [votes[at] for at in answered]
        one.highest = max([one.highest, term, *(vote.term for vote in heard)])
        granted = all(vote.granted for vote in heard) and 2 * len(heard) > NODES
        if not all(vote.granted for vote in heard):
            one.term = 0
        elif granted and leads:
            one.until = begun + LEASE_COUNTED * LEASE
        elif granted:
            one.term = term
        assert len([each for each in rivals if each.term and each.until > now]) <= 1
    terms = [each.term for each in rivals if each.term]
    assert len(set(terms)) == len(terms)


class TestFence:
    def test_each_place_once_and_in_order(self) -> None:
        fence = Fence()
        assert [fence.admits(1, place) for place in (1, 2, 2, 5, 4, 6)] == [True, True, False, True, False, True]
        assert fence.admits(1, 3, tag=7) and fence.place == 6

    def test_an_older_term_is_not_heard(self) -> None:
        fence = Fence()
        old, new = PlacesOfTerm(fence, 1), PlacesOfTerm(fence, 2)
        assert old.new(1) and old.new(2)
        assert not new.new(2) and new.new(3)  # published again, and what follows
        assert not old.new(4) and fence.refused == 1

    @pytest.mark.parametrize("channel", ["a", "ie.tcd.move"])
    def test_origins(self, channel: str) -> None:
        assert order_of(order_origin("a/b", channel, 12)) == (f"a/b/{channel}", 12)
        assert order_of("headwater/sequencer.0123/12/3") is None
