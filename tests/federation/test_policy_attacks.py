"""Policies against insiders and bad luck: what is unknown, what is made up, a full disk, and a sink that catches up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Log, Network, Node, Reliable
from headwater.cli import main
from headwater.federation.policy import whereabouts
from headwater.federation.policy.whereabouts import Whereabouts
from headwater.federation.security import decisions as module
from headwater.federation.security.decisions import Decisions
from headwater.federation.security.settings import Security
from headwater.federation.wire.policy_requests import TellPolicies
from headwater.policy import ChannelPolicy, Clause, Identity, Location, shown
from headwater.testing import ManualClock
from tests.disk import full
from tests.federation.certified import authority
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen
from tests.federation.test_policy_nodes import BY_OTHER, held, joined, push, shows

CHANNEL, TYPE = "t.sighting", "who: text, n: u32"
__all__ = ["authority"]


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def policy(show: str, channel: str = CHANNEL, type: Any = TYPE, **more: Any) -> ChannelPolicy:
    return ChannelPolicy(name="p", channel=channel, type=type, clauses=[Clause(show=show)], **more)


# ── what is unknown ──


NEGATED = ["not ('guest' in :groups)", "not (:user = 'eve')", "not (n = :here)", ":device != 'x'"]


@pytest.mark.parametrize("show", NEGATED)
def test_what_is_unknown_is_closed_also_where_it_is_negated(show: str) -> None:
    here = Location(channel=CHANNEL, type=TYPE, user="who", gives={"here": "n"})
    found = shown(policy(show, location=here), Identity())
    assert found is None or not found.test({"who": "ann", "n": 1})
    vouched = shown(policy("not ('guest' in :groups)"), Identity(user="bob", how="vouched"))
    assert vouched is not None and not vouched.test({"who": "ann", "n": 1})  # nobody knows here in which groups Bob is
    staff = shown(policy("not ('guest' in :groups)"), Identity(user="bob", how="password"))
    assert staff is None or staff.test({"who": "ann", "n": 1})  # a user that is known, and is in no group


def test_a_place_that_was_said_long_ago_is_not_known_after_a_restart_either() -> None:
    here = Location(channel=CHANNEL, type=TYPE, user="who", gives={"here": "n"}, within=60.0)
    watched = policy("n = :here", "t.light", "n: u32", location=here)
    clock, ticks = ManualClock(), [1000.0]
    with Node("lab", clock=clock, config={"history": 100}) as lab:
        door = lab.channel(CHANNEL, TYPE).source("door")
        door.publish(who="ann", n=3)
        clock.advance(50.0)
        door.publish(who="bob", n=4)
        clock.advance(20.0)
        places = Whereabouts(lab, lambda *_: None, lambda task: task(), lambda: ticks[0])  # it begins with what was
        places.follow([watched])
        assert places.of(watched, "ann") is None and places.of(watched, "bob") == {"here": 4}
        ticks[0] += 41.0
        assert places.of(watched, "bob") is None
        places.close()


def test_who_is_forgotten_for_others_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "MOST_USERS", 3)
    here = Location(channel=CHANNEL, type=TYPE, user="who", gives={"here": "n"})
    watched, moved = policy("n = :here", "t.light", "n: u32", location=here), list[str]()
    with Node("lab") as lab:
        places = Whereabouts(lab, lambda _, user: moved.append(user), lambda task: task())
        places.follow([watched])
        door = lab.channel(CHANNEL, TYPE).source("door")
        for n in range(5):
            door.publish(who=f"user{n}", n=n)
        assert moved == ["user0", "user1", "user2", "user0", "user3", "user1", "user4"]
        assert places.of(watched, "user0") is None and places.of(watched, "user4") == {"here": 4}
        places.close()


# ── what is made up ──


def test_an_insider_does_not_use_up_the_versions_of_policies(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", BY_OTHER)
    hq = joined(make, authority, "other", BY_OTHER)
    eve = joined(make, authority, "eve", {"by": "eve"})
    make.together()
    hq.policies.set(shows("true"))
    most = 2**63 - 1
    assert eve.policies.set(shows("true"), after=most - 1).version == most  # at her own node, where she may
    assert hq.policies.newest_anywhere("sightings") == 1
    assert hq.policies.set(shows("n > 1"), after=hq.policies.newest_anywhere("sightings")).version == 2
    assert held(lab) == {"sightings": 2}


def test_a_flood_of_moves_takes_no_more_room_and_no_move_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MOVED", 10)
    decisions = Decisions(Security())
    first = decisions.stamp("ann")
    decisions.moved("ann")
    second = decisions.stamp("ann")
    for n in range(1000):
        decisions.moved(f"nobody{n}")
    third = decisions.stamp("ann")
    decisions.moved("ann")
    assert len({first, second, decisions.stamp("ann")}) == 3 and third != first
    assert len(decisions._moves) <= 10


# ── bad luck ──


def test_a_policy_node_that_may_have_forgotten_some_opens_nothing(make: Nodes, authority: Path, tmp_path: Path) -> None:
    lab = joined(make, authority, "lab", {"by": ["other", "reader"]})
    brief = joined(make, authority, "other", {"by": ["other", "reader"]})  # as a command is: it keeps nothing
    make.together()
    brief.policies.set(shows("true"))
    engine: Any = lab._engine
    asked = engine.dialogue.ask(engine.peers[brief.id], TellPolicies())
    assert len(asked.documents) == 1 and not asked.complete
    lab.policies._refresh(engine.peers[brief.id])
    assert lab.report().services["policies"]["closed"] and not lab.policies.why("ann", "another.channel")
    hq = joined(make, authority, "reader", {"by": ["other", "reader"]}, state=tmp_path / "hq.db")
    make.together()
    eventually(lambda: held(hq) == {"sightings": 1})  # policy nodes ask each other
    eventually(lambda: bool(lab.policies.why("ann", "another.channel")))


def test_after_a_split_with_two_truths_the_next_one_is_everybodys(make: Nodes, authority: Path, tmp_path: Path) -> None:
    both = {"by": ["other", "reader"]}
    lab, desk = joined(make, authority, "lab", both), joined(make, authority, "desk", both)
    one = joined(make, authority, "other", both, state=tmp_path / "one.db")
    two = joined(make, authority, "reader", both, state=tmp_path / "two.db")
    make.together()
    assert one.policies.set(shows("true")).version == 1 and held(two) == {"sightings": 1}
    sides = ((one, lab, "n = 1"), (two, desk, "n = 2"))  # neither hears of the other
    made = [(hq, place, hq.policies._holding.make(shows(show), "sightings")) for hq, place, show in sides]
    for hq, _, document in made:
        hq.policies._take(document)
    for hq, place, document in made:
        push(hq, place, document)  # unless that of the other side is there already
    for hq, place in ((one, desk), (two, lab)):
        push(hq, place, next(document for each, _, document in made if each is hq))  # each hears of both
    assert held(lab) == held(desk) == {"sightings": 2}
    for node in (lab, desk):
        eventually(lambda node=node: len(node.report().services["policies"]["conflicts"]) == 1)
        engine: Any = node._engine
        assert not engine.offences, engine.offences.last
    assert two.policies.set(shows("n = 3")).version == 3
    for node in (lab, desk, one, two):
        assert held(node) == {"sightings": 3} and not node.report().services["policies"]["conflicts"]
    eventually(lambda: "n = 3" in one.policies.why_at("lab", "ann", "ie.tcd.sighting").shown)  # when it has heard both


def test_without_certificates_policies_are_known_by_a_key_that_a_state_keeps(
    make: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "key", str(tmp_path / "hq.sqlite")]) == 0
    key = capsys.readouterr().out.strip()
    lab = make("lab", network=Network(security=Security(policies={"by": key})))
    file = tmp_path / "p.toml"
    file.write_text(f'name = "p"\nchannel = "{CHANNEL}"\ntype = "{TYPE}"\nshow = "who = :user"\n')
    there = ["--connect", lab.endpoints[0]]
    assert main(["policy", "set", str(file), *there]) == 2
    assert "found one that is gone with this command" in capsys.readouterr().err
    assert main(["policy", "set", str(file), "--state", str(tmp_path / "hq.sqlite"), *there]) == 0
    assert "in force at lab" in capsys.readouterr().out and held(lab) == {"p": 1}
    assert main(["policy", "why", "bob", CHANNEL, "--policy", str(file), "--action", "sbscribe"]) == 2
    assert "did you mean 'subscribe'?" in capsys.readouterr().err


def test_a_revocation_holds_on_a_full_disk_too(make: Nodes, authority: Path, tmp_path: Path) -> None:
    lab = joined(make, authority, "lab", BY_OTHER, state=tmp_path / "lab.db")
    hq = joined(make, authority, "other", BY_OTHER, state=tmp_path / "hq.db")
    source = lab.channel("ie.tcd.sighting", TYPE).source("door")
    make.together()
    hq.policies.set(shows("true"))
    verdict = lab.policies.why
    eventually(lambda: bool(verdict("ann", "ie.tcd.sighting")))
    with full():
        change = hq.policies.set(shows("n < 0 and n > 0", who="nobody"))
        assert not verdict("ann", "ie.tcd.sighting"), change
    source.publish(who="ann", n=1)
    assert hq.policies.set(shows("n = 3")).version == 3 and held(lab) == {"sightings": 3}


def test_two_doors_that_see_somebody_at_once_do_not_wait_for_each_other(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    here = Location(channel=CHANNEL, type=TYPE, user="who", gives={"here": "n"})
    lights = lab.channel("t.light", "n: u32").source("lamp")
    doors = [lab.channel(CHANNEL, TYPE).source(f"door{n}") for n in range(3)]
    lab.policies.set(policy("n = :here or n > 1000", "t.light", "n: u32", location=here))
    log = Seen()
    desk.channel("t.light", "n: u32").subscribe(log)
    make.ready(desk)

    def walk(door: Any) -> None:
        for n in range(60):
            door.publish(who=f"user{n % 7}", n=n)

    walkers = [threading.Thread(target=walk, args=(door,), daemon=True) for door in doors]
    for each in walkers:
        each.start()
    for n in range(200):
        lights.publish(n=2000 + n)
    for each in walkers:
        each.join(GUARD)
        assert not each.is_alive()
    log.wait(200)


# ── seams ──


def test_a_policy_changes_while_a_durable_sink_catches_up(make: Nodes, tmp_path: Path) -> None:
    many = 3000
    lab = make("lab", log=Log(tmp_path / "log"), listen="tcp/127.0.0.1:0")
    source = lab.channel(CHANNEL, TYPE).source("door")

    def sink(seen: Seen) -> Node:
        node = make("desk", connect=lab.endpoints[0], listen="tcp/127.0.0.1:0", state=tmp_path / "state")
        node.channel(CHANNEL, TYPE).subscribe(seen, name="kept", delivery=Reliable(durable=True))
        see(node, lab)
        assert node.ready(GUARD)
        return node

    first, second = Seen(), Seen()
    desk = sink(first)
    source.publish(who="ann", n=0)
    first.wait(1)
    desk.close()
    for n in range(1, many):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    desk = sink(second)
    second.wait(1)
    lab.policies.set(policy("who = 'ann' and n >= 0"))
    left = max(second.field("n"))  # it may have more on its way that left before
    for n in range(many, many + 20):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    eventually(lambda: many + 18 in second.field("n"), "what is shown still comes", timeout=GUARD)
    assert set(range(0, many + 20, 2)) <= set(second.field("n")) | {0}
    hidden = [n for n in second.field("n") if n % 2]
    assert not [n for n in hidden if n >= many], (left, hidden[-3:])
    # After the change nothing that it hides has left: what is odd is one run from the beginning.
    assert hidden == list(range(1, 2 * len(hidden), 2))


LOUD = "n >= :least"


def test_a_named_interest_is_restricted_and_stays_so_through_upgrades(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    source = lab.channel(CHANNEL, TYPE).source("door")
    make.together()
    assert desk.until(lambda: desk.has_channel(CHANNEL), GUARD)
    desk.library.publish("high", LOUD, on=CHANNEL, params={"least": 5})
    lab.policies.set(policy("who = 'ann'"))
    log = Seen()
    sink = desk.channel(CHANNEL).subscribe(log, "@high/1", params={"least": 3})
    make.ready(desk)
    for n in range(8):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    assert [event.n for event in log.wait(2)] == [4, 6]
    desk.library.publish("high", "n < :least or who = 'bob'", on=CHANNEL, params={"least": 5})
    sink.change(where="@high/2", params={"least": 3})
    for n in range(8):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    assert [event.n for event in log.wait(4)] == [4, 6, 0, 2]
    lab.policies.set(policy("n = 7"))
    source.publish(who="bob", n=1)
    source.publish(who="bob", n=7)
    assert [event.n for event in log.wait(5)] == [4, 6, 0, 2, 7] and not sink.refused


def test_what_others_ask_of_a_channel_is_told_as_the_policy_says(make: Nodes) -> None:
    lab, desk, eve = make("lab"), make("desk"), make("eve")
    lab.channel(CHANNEL, TYPE).source("door")
    desk.channel(CHANNEL, TYPE).subscribe(Seen(), "n > 4")
    make.ready(desk)
    make.together()

    def told() -> list[str]:
        page: Any = eve.library.running_everywhere(CHANNEL)["lab"]
        return [row.channel for row in page.rows]

    assert told() == [CHANNEL]
    some = Clause(show="true", may=["inspect"], when=":user = 'ann'")
    lab.policies.set(ChannelPolicy(name="p", channel=CHANNEL, type=TYPE, clauses=[some]))
    assert told() == []
