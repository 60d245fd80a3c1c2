"""Policies as values: whom a clause is about, what it shows somebody, as bytes and from files; and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ConfigError
from headwater.federation.policy.whereabouts import Whereabouts
from headwater.interest import Interest
from headwater.policy import ChannelPolicy, Clause, Identity, Location, shown
from headwater.services.policy.book import InForce, PolicyBook
from headwater.services.policy.verdicts import Allow, Deny, Restrict
from headwater.services.policy.who import concerns
from tests.effort import examples

TYPE = "who: text, room: u32?, level: f64"
HERE = Location(channel="t.moves", type="who: text, room: u32", user="who", gives={"here": "room"})
SHOW = "'security' in :groups or (who = :user and level <= :clearance) or room = :here or :device_kind = 'console'"


def policy(*clauses: Clause, **more: Any) -> ChannelPolicy:
    return ChannelPolicy(
        name="p", channel="t.**", type=TYPE, clauses=clauses, location=HERE, attributes={"clearance": "float"}, **more
    )


@pytest.mark.parametrize(
    ("who", "fits"),
    [
        ("*", True), ("ann", True), ("user:a*", True), ("bob", False), ("group:staff", True), ("group:sta", False),
        ("kind:phone", True), ("device:*", True), ("node:lab", True), ("node:la", False), ("staff", False),
        ("group:ann", False), ("user:*", True), ("kind:*", True),
    ],
)  # fmt: skip
def test_whom_a_clause_is_about(who: str, fits: bool) -> None:
    ann = Identity(user="ann", groups=["staff"], device="d", device_kind="phone", node="lab.0123")
    assert concerns([who], ann) is fits
    assert concerns([who], Identity()) is (who == "*")  # what is not known fits nothing but everybody


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(["", "ann", "bob"]),
    st.sets(st.sampled_from(["security", "staff"])),
    st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    st.none() | st.integers(0, 3),
    st.sampled_from(["", "console", "phone"]),
    st.tuples(st.sampled_from(["ann", "bob"]), st.none() | st.integers(0, 3), st.sampled_from([0.25, 0.75])),
)
def test_what_is_known_decides_and_what_is_missing_does_not(
    user: str, groups: set[str], clearance: float | None, here: int | None, kind: str, event: tuple[Any, Any, Any]
) -> None:
    known: dict[str, Any] = {} if clearance is None else {"clearance": clearance}
    identity = Identity(user=user, groups=sorted(groups), attributes=known, device_kind=kind)
    limit = shown(policy(Clause(show=SHOW)), identity, None if here is None else {"here": here})
    assert limit is not None
    who, room, level = event
    wanted = (
        "security" in groups
        or (who == user and clearance is not None and level <= clearance)
        or (room is not None and room == here)
        or kind == "console"
    )
    assert limit.test({"who": who, "room": room, "level": level}) is wanted


def test_a_policy_survives_as_bytes_and_is_checked_again() -> None:
    phones = Clause(who=["ann", "kind:phone"], show=SHOW, wish="room = :here")
    made = policy(phones, Clause(may=["transact"], when=":here = 3"))
    again = ChannelPolicy.from_bytes(made.to_bytes())
    assert again == made and again.to_bytes() == made.to_bytes()
    for at in range(0, len(made.to_bytes()), 7):
        data = bytearray(made.to_bytes())
        data[at] ^= 0x55
        try:
            other = ChannelPolicy.from_bytes(bytes(data))
        except ConfigError:
            continue
        assert all(each.show is None or not each.show.stateful for each in other.programs)


def test_the_first_clause_decides_and_policies_hold_together() -> None:
    book, ann, eve = PolicyBook(), Identity(user="ann"), Identity(user="eve")
    book.put(InForce(policy(Clause(who="eve"), Clause(show="true")), 1, "hq"))
    place: Any = lambda *_: {"here": 2}  # noqa: E731
    assert isinstance(book.decide(ann, "subscribe", "t.a", place), Allow)
    assert isinstance(book.decide(eve, "subscribe", "t.a", place), Deny)
    assert book.decide(ann, "subscribe", "other", place) is None and book.decide(ann, "transact", "t.a", place) is None
    narrow = [Clause(show="level > 0.5", may=["transact"], when=":here = 2")]
    more = ChannelPolicy(name="q", channel="t.a", type=TYPE, clauses=narrow, location=HERE)
    book.put(InForce(more, 1, "hq"))
    verdict = book.decide(ann, "subscribe", "t.a", place)
    assert isinstance(verdict, Restrict) and verdict.interest.test({"who": "x", "room": 1, "level": 0.6})
    assert not verdict.interest.test({"who": "x", "room": 1, "level": 0.4})
    assert book.decide(ann, "transact", "t.a", place) and not book.decide(ann, "transact", "t.a", lambda *_: None)
    found = [book.decide(each, "subscribe", "t.a.ordered", place) for each in (ann, eve)]
    assert found[0] and not found[1]  # the same events, in a total order
    book.lift("p")
    assert book.decide(eve, "subscribe", "t.a", place)


def test_versions_can_be_compared() -> None:
    wide, narrow = (policy(Clause(show=text)) for text in ("who = :user", "who = :user and level > 0.5"))
    bob = Identity(user="bob")
    old, new = shown(wide, bob), shown(narrow, bob)
    assert old is not None and new is not None and old.covers(new) and not new.covers(old)
    assert shown(policy(Clause(who="ann", show="true")), bob) is None
    assert isinstance(shown(policy(Clause(show="true")), bob), Interest)


def test_all_that_is_wrong_with_a_file_is_told_at_once() -> None:
    table = {"name": "p", "channel": "a..b", "type": "x: u32", "clauses": [{"who": 3, "shw": "true"}], "loc": {}}
    with pytest.raises(ConfigError) as found:
        ChannelPolicy.read(table, place="p.toml")
    assert {each.place for each in found.value.problems} == {"p.toml: loc", "p.toml: clause 1 shw"}
    here = {"channel": "m", "type": "who: u32", "user": "who", "gives": {"user": "who"}, "within": -1}
    with pytest.raises(ConfigError) as found:
        ChannelPolicy.read(
            {"name": "p", "channel": "a", "type": "x: u32", "show": "x > :user", "location": here,
             "attributes": {"groups": "int", "a": "date"}},
        )  # fmt: skip
    places = [each.place.partition(": ")[2] for each in found.value.problems]
    assert places == ["attributes", "attributes a", "location: within", "location: user", "location: gives"]


def test_a_place_is_known_for_a_while() -> None:
    from headwater import Node

    now, moved = [0.0], list[str]()
    within = Location(channel="t.moves", type="who: text, room: u32", user="who", gives={"here": "room"}, within=60)
    watched = ChannelPolicy(name="p", channel="t.a", type=TYPE, clauses=[Clause(show="room = :here")], location=within)
    with Node("lab") as node:
        places = Whereabouts(node, lambda _, user: moved.append(user), lambda task: task(), lambda: now[0])
        places.follow([watched])
        source = node.channel("t.moves").source()
        source.publish(who="ann", room=3)
        source.publish(who="ann", room=3)
        assert places.of(watched, "ann") == {"here": 3} and places.of(watched, "bob") is None and moved == ["ann"]
        now[0] = 61.0
        assert places.of(watched, "ann") is None
        places.expire()
        assert moved == ["ann", "ann"]
        source.publish(who="ann", room=3)
        assert places.of(watched, "ann") == {"here": 3} and len(moved) == 3
        places.close()
        source.publish(who="ann", room=4)
        assert places.of(watched, "ann") is None
