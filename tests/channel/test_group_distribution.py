"""Who of a group gets an event, beside a model: nothing lost, nothing doubled unmarked, no member over its credit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.channel.groups import distribution
from headwater.channel.groups.distribution import MOST_CREDIT, Distribution, Handed
from tests.effort import examples

MEMBERS, KEYS = st.sampled_from("abcd"), st.sampled_from([None, 1, 2, 3])


class Life(RuleBasedStateMachine):
    """Members come and die, acknowledge, or claim what they never had."""

    def __init__(self) -> None:
        super().__init__()
        self.group: Distribution[int] = Distribution(10_000)
        self.credit: dict[str, int] = {}
        self.has: dict[str, dict[int, int]] = {}
        self.handed: set[int] = set()
        self.done: set[int] = set()
        self.published = 0
        self.keys: dict[int, Any] = {}
        self.owner: dict[Any, str] = {}  # of keys, while that member is there
        self.order: dict[Any, int] = {}  # the last event of each key that was handed over for the first time
        self.gathered: list[int] = []  # what waits for a run

    def take(self, handed: list[Handed[int]]) -> None:
        for member, number, event, redelivered in handed:
            assert redelivered == (event in self.handed) and event not in self.done
            self.handed.add(event)
            self.has[member][number] = event
            assert len(self.has[member]) <= self.credit[member]
            key = self.keys[event]
            if key is not None:
                assert self.owner.setdefault(key, member) == member
                assert redelivered or event > self.order.get(key, 0)
                self.order[key] = max(event, self.order.get(key, 0))
                before = {each for each in self.handed if self.keys[each] == key and each < event}
                assert before <= self.done | set(self.has[member].values())

    @rule(member=MEMBERS, credit=st.integers(-3, 5))
    def join(self, member: str, credit: int) -> None:
        self.credit[member] = max(1, credit)
        self.has.setdefault(member, {})
        self.take(self.group.join(member, credit))

    def forget(self, member: str) -> None:
        self.owner = {key: owner for key, owner in self.owner.items() if owner != member}

    @rule(member=MEMBERS, finishing=st.integers(0, 3), slowly=st.booleans())
    def cancel(self, member: str, finishing: int, slowly: bool) -> None:
        """It goes, but for what it is at: that it acknowledges before it is gone. What it is at may be fewer and fewer:
        it finds out one by one which it does not take any more."""
        mine = list(self.has.get(member, {}))
        self.forget(member)
        self.credit.pop(member, None)
        had = self.has.pop(member, {})
        while slowly and len(mine) > finishing:
            mine = mine[1:]
            self.take(self.group.give_back(member, mine))
        mine = mine[:finishing]
        kept = {number: had[number] for number in mine}
        self.take(self.group.give_back(member, mine))
        assert self.group.outstanding(member) == len(kept) and member not in self.group.members
        assert self.group.knows(member) == bool(kept)
        done, handed = self.group.acknowledge(member, mine)
        assert sorted(done) == sorted(kept.values()) and not self.group.knows(member)
        self.done.update(done)
        self.take(handed)

    @rule(member=MEMBERS)
    def die(self, member: str) -> None:
        self.forget(member)
        self.credit.pop(member, None)
        self.has.pop(member, None)
        self.take(self.group.leave(member))

    @rule(key=KEYS)
    def publish(self, key: Any) -> None:
        self.published += 1
        self.keys[self.published] = key
        self.take(self.group.put(self.published, key))

    @rule(events=st.sampled_from([0, 1, 1, 5, 64, 200]))
    def gather(self, events: int) -> None:
        """Events that are handed out in runs: at once to who has nothing, and many of them to who has the fewest."""
        for _ in range(events):
            self.published += 1
            self.keys[self.published] = None
            self.gathered.append(self.published)
        while self.gathered and (found := self.group.next_run(len(self.gathered))) is not None:
            member, most = found
            there = {
                each: len(self.has[each]) for each in self.group.members if len(self.has[each]) < self.credit[each]
            }
            assert there[member] == min(there.values()) and 1 <= most <= min(64, len(self.gathered))
            idle = sum(not has for has in there.values())
            if idle:  # nobody's share is for another one
                assert (most - 1) * idle < len(self.gathered)
            else:
                assert len(self.gathered) >= 64
            run, self.gathered = self.gathered[:most], self.gathered[most:]
            first = self.group.place_run(member, run)
            self.take([Handed(member, first + at, event, False) for at, event in enumerate(run)])
        there = {each: len(self.has[each]) for each in self.group.members if len(self.has[each]) < self.credit[each]}
        assert not self.gathered or self.group.waiting or all(there.values())
        assert len(self.gathered) < 64 or self.group.waiting or not there

    @rule(member=MEMBERS, which=st.integers(0, 20))
    def acknowledge(self, member: str, which: int) -> None:
        mine = list(self.has.get(member, {}))
        if mine:
            number = mine[which % len(mine)]
            event = self.has[member].pop(number)
            self.done.add(event)
            done, handed = self.group.acknowledge(member, [number, number])
            assert done == [event]
            self.take(handed)

    @rule(member=MEMBERS, number=st.integers(0, 50))
    def lie(self, member: str, number: int) -> None:
        if number not in self.has.get(member, {}):
            assert self.group.acknowledge(member, [number]) == ([], [])

    @invariant()
    def nothing_is_lost(self) -> None:
        held = [event for mine in self.has.values() for event in mine.values()]
        assert len(held) == len(set(held)) and not set(held) & self.done
        assert len(held) + len(self.done) + self.group.waiting + len(self.gathered) == self.published
        for member, mine in self.has.items():
            assert self.group.outstanding(member) == len(mine)


Life.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestLife = Life.TestCase


def test_a_member_that_claims_more_than_there_may_be_gets_no_more() -> None:
    group: Distribution[int] = Distribution(10)
    group.join("greedy", 10**12)
    group.join("modest", 1)
    for n in range(2 * MOST_CREDIT):
        if group.is_full:
            break
        group.put(n)
    assert group.outstanding("greedy") == MOST_CREDIT and group.outstanding("modest") == 1 and group.waiting == 10


def test_slow_members_get_fewer() -> None:
    group: Distribution[int] = Distribution(1000)
    got = {"quick": 0, "slow": 0}
    for member in got:
        group.join(member, 8)
    for n in range(100):
        for handed in group.put(n):
            got[handed.member] += 1
            if handed.member == "quick":
                group.acknowledge("quick", [handed.number])
    assert got["slow"] <= 8 and got["quick"] >= 92


def test_equals_take_turns() -> None:
    group: Distribution[int] = Distribution(1)
    for member in "abc":
        group.join(member, 1)
    got = []
    for n in range(9):
        (handed,) = group.put(n)
        got.append(handed.member)
        group.acknowledge(handed.member, [handed.number])
    assert got == list("abcabcabc")


def test_who_joins_gets_new_keys_and_leaves_the_others_theirs() -> None:
    group: Distribution[int] = Distribution(10)
    group.join("first", 1000)
    before = {key: group.put(0, key)[0].member for key in range(100)}
    assert set(before.values()) == {"first"}
    group.join("second", 1000)
    assert {key: group.put(0, key)[0].member for key in range(100)} == before
    later = {group.put(0, key)[0].member for key in range(100, 200)}
    assert later == {"first", "second"}


def test_what_a_member_gives_back_bit_by_bit_goes_to_another_in_order() -> None:
    group: Distribution[int] = Distribution(10)
    group.join("a", 8)
    for event in range(1, 5):
        group.put(event, "key")
    group.join("b", 8)
    handed = [group.give_back("a", finishing) for finishing in ([2, 3, 4], [3, 4], [4], [])]
    assert [[each.event for each in some] for some in handed] == [[], [], [], [1, 2, 3, 4]]


def test_nodes_that_see_the_same_members_choose_the_same_for_a_key() -> None:
    one: Distribution[int] = Distribution(10)
    other: Distribution[int] = Distribution(10)
    for member in "abcd":
        one.join(member, 1000)
    for member in "dcba":
        other.join(member, 1000)
    for key in ("x", 3, 2.5, ("",)):
        assert one.put(0, key)[0].member == other.put(0, key)[0].member


def test_keys_without_end_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "MOST_KEYS", 100)
    group: Distribution[int] = Distribution(10)
    group.join("a", 1000)
    group.join("b", 1000)
    kept = {key: group.put(0, key)[0].member for key in range(50)}  # they are not acknowledged
    for key in range(50, 500):
        (handed,) = group.put(0, key)
        group.acknowledge(handed.member, [handed.number])
    assert group.keys <= 101
    assert {key: group.put(0, key)[0].member for key in range(50)} == kept
