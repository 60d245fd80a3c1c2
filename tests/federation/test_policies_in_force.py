"""Policies at the sources: what leaves is what they show, wherever events come out, and from an exact point on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Node, Reliable
from headwater.errors import ConfigError, FederationError
from headwater.federation.logs.client import LogClient
from headwater.federation.network import Network
from headwater.federation.security.settings import Security
from headwater.federation.wire import frames as wire
from headwater.federation.wire.requests import Install, Wish
from headwater.interest import as_event_type
from headwater.policy import ChannelPolicy, Clause, Identity, Location, shown
from headwater.security import Rule
from tests.effort import rounds
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNEL, TYPE = "ie.tcd.sighting", "who: text, room: u32, n: u32"
BOUND = as_event_type(TYPE)
USERS = {
    "lab": "l",
    "ann": {"password": "a", "groups": ["security"]},
    "bob": {"password": "b", "groups": ["staff", "kind:phone"]},
    "eve": "e",
    "desk": "d",
}
HIDES = ChannelPolicy(
    name="sightings",
    channel=CHANNEL,
    type=TYPE,
    clauses=[Clause(who="group:security", show="true"), Clause(who="eve"), Clause(show="who = :user")],
)

ANNS = ChannelPolicy(name="sightings", channel=CHANNEL, type=TYPE, clauses=[Clause(who="ann", show="true")])


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def security(user: str, *rules: Rule, **more: Any) -> Security:
    password: Any = USERS[user]
    password = password["password"] if isinstance(password, dict) else password
    return Security(user=user, password=password, users=USERS, rules=rules or (Rule("**", "*"),), **more)


def opened(make: Nodes, user: str, *rules: Rule, **options: Any) -> Node:
    return make(user, network=Network(security=security(user, *rules), **options.pop("network", {})), **options)


def publish(source: Any, count: int = 12, start: int = 0) -> list[dict[str, Any]]:
    events = [{"who": ("ann", "bob", "eve")[n % 3], "room": n % 4, "n": n} for n in range(start, start + count)]
    for event in events:
        source.publish(**event)
    return events


def seen(log: Log, count: int) -> list[int]:
    log.wait(count)
    return log.field("n")


def test_each_gets_its_part_and_the_source_decides(make: Nodes) -> None:
    lab = opened(make, "lab")
    source = lab.channel(CHANNEL, TYPE).source("door")
    change = lab.policies.set(HIDES)
    assert (change.version, change.points, change.refused) == (1, {"lab": {CHANNEL: {"door": 0}}}, {})
    logs = {}
    for user in ("ann", "bob", "eve"):
        node = opened(make, user)
        logs[user] = Log(), Log()
        node.channel(CHANNEL, TYPE).subscribe(logs[user][0])
        node.channel(CHANNEL).subscribe(logs[user][1], "{ static int k = 0; k = k + 1; return k % 2 == 0; }")
    make.together()
    make.ready()
    publish(source)
    make.flush()
    assert seen(logs["ann"][0], 12) == list(range(12)) and seen(logs["ann"][1], 6) == list(range(1, 12, 2))
    assert seen(logs["bob"][0], 4) == [1, 4, 7, 10] and seen(logs["bob"][1], 2) == [4, 10]
    eve = make.opened[3]
    sink = next(iter(eve.subscriptions.values()))
    assert eve.until(lambda: f"{CHANNEL}@lab" in sink.refused, GUARD)
    assert "clause 2 (eve: shows nothing)" in sink.refused[f"{CHANNEL}@lab"]
    assert logs["eve"][0].events == [] and logs["eve"][1].events == []
    crossings = {peer.name: peer.crossings[CHANNEL] for peer in lab._engine.everyone()}  # type: ignore[union-attr]
    assert sum(lane.passed for lane in crossings["eve"].active()) == 0


def test_a_change_holds_from_an_exact_point_on_and_the_backlog_does_not_leave(make: Nodes) -> None:
    lab = opened(make, "lab")
    source = lab.channel(CHANNEL, TYPE).source("door")
    bob = opened(make, "bob")
    log = Log()
    sink = bob.channel(CHANNEL, TYPE).subscribe(log)
    control = Log()
    bob.channel("headwater.interests").subscribe(control, "change = 'hidden'")
    make.together()
    make.ready()
    publish(source, 3)
    make.flush()
    assert seen(log, 3) == [0, 1, 2]
    engine: Any = lab._engine
    peer = engine.peers[bob.id]
    # What waits was let through when it was published; the policy hides some of it, and that does not leave.
    with peer.sender._turn:  # nobody sends
        publish(source, 6, start=9)
        change = lab.policies.set(HIDES)
    assert change.points["lab"][CHANNEL] == {"door": 9}
    publish(source, 3, start=15)
    make.flush()
    eventually(lambda: 16 in log.field("n"))
    late = [n for n in log.field("n") if n >= 9]
    assert late == [10, 13, 16], late
    assert engine.rejudgement.withheld >= 4
    # A revocation: nothing leaves, and who it concerns is told.
    with peer.sender._turn:
        publish(source, 6, start=18)
        assert lab.policies.set(ANNS).version == 2
    publish(source, 6, start=24)
    make.flush()
    eventually(lambda: f"{CHANNEL}@lab" in sink.refused)
    assert 'no clause about user "bob"' in sink.refused[f"{CHANNEL}@lab"] and control.wait(1)
    assert max(log.field("n")) == 16
    # And back: nobody has to ask again.
    lab.policies.lift("sightings")
    publish(source, 3, start=30)
    eventually(lambda: log.field("n")[-3:] == [30, 31, 32])
    eventually(lambda: not sink.refused)


HERE = ChannelPolicy(
    name="here",
    channel="ie.tcd.light",
    type="room: u32, n: u32",
    clauses=[Clause(show="room = :room", wish="n < 100")],
    location=Location(channel=CHANNEL, type=TYPE, user="who", gives={"room": "room"}),
)


def test_where_a_user_is_decides_and_what_is_unknown_is_closed(make: Nodes) -> None:
    lab = opened(make, "lab")
    lights = lab.channel("ie.tcd.light", HERE.type).source("lamp")
    people = lab.channel(CHANNEL, TYPE).source("door")
    lab.policies.set(HERE)
    bob, phone = opened(make, "bob"), make("phone", network=Network(security=security("bob")))
    everything, some = Log(), Log()
    bob.channel("ie.tcd.light", HERE.type).subscribe(everything)
    phone.channel("ie.tcd.light", HERE.type).subscribe(some, "n >= 2")
    make.together()
    make.ready()
    numbers = iter(range(1000))

    def shine() -> None:
        for room in range(3):
            lights.publish(room=room, n=next(numbers))

    shine()  # nobody knows where Bob is
    people.publish(who="bob", room=1, n=0)
    shine()
    people.publish(who="ann", room=2, n=0)
    people.publish(who="bob", room=2, n=0)
    shine()
    lights.publish(room=2, n=500)  # beyond the wish of who has no interest of his own
    make.flush()
    assert seen(some, 3) == [4, 8, 500] and seen(everything, 2) == [4, 8]
    assert "whose place is not known" in lab.policies.why("eve", "ie.tcd.light").why
    assert "with room = 2" in lab.policies.why("bob", "ie.tcd.light").why


def test_a_node_speaks_for_its_users_only_if_the_rules_let_it(make: Nodes) -> None:
    may = ("advertise", "subscribe", "install", "vouch")
    lab = opened(make, "lab", Rule("**", "user:desk", may=may), Rule("**", "*"))
    lab.channel(CHANNEL, TYPE).source("door")
    lab.policies.set(HIDES)
    desk, eve = opened(make, "desk"), opened(make, "eve")
    make.together()
    program = Interest("n >= 0", BOUND).dumps()
    wishes = [Wish(1, program, tagged=True, on_behalf_of="ann"), Wish(2, program, tagged=True, on_behalf_of="bob")]

    def asked(node: Node) -> Any:
        engine: Any = node._engine
        return engine.dialogue.ask(engine.peers[lab.id], Install(CHANNEL, 1, wishes))

    assert (asked(desk).refused, asked(desk).hidden) == ({}, {})
    engine: Any = lab._engine
    granted = engine.peers[desk.id].crossings[CHANNEL].asked
    event = BOUND.encode({"who": "bob", "room": 1, "n": 1})
    assert granted[1].limit is None  # Ann is of the security: this node knows her groups, nobody says them
    assert granted[2].limit.test(event) and not granted[2].limit.test(BOUND.encode({"who": "ann", "room": 1, "n": 1}))
    # Eve's node is an insider, with a password of its own: that Ann sits at it is nothing but text.
    refused = asked(eve).refused
    assert set(refused) == {1, 2} and "nothing proves that it asks for user 'ann'" in refused[1]
    assert "may not vouch for its users" in refused[1]


def badges(client: LogClient) -> list[int]:
    return [n for page in client.read(CHANNEL, "lab", "door") for n in page.column("n").to_pylist()]


def test_history_and_logs_show_no_more_than_the_policy(make: Nodes, tmp_path: Path) -> None:
    lab = opened(make, "lab", log=tmp_path, config={"history": 100})
    source = lab.channel(CHANNEL, TYPE).source("door")
    publish(source)
    bob = opened(make, "bob")
    lab.policies.set(HIDES)
    log, derived = Log(), Log()
    bob.channel(CHANNEL, TYPE).subscribe(log, history=100)
    make.ready(bob)
    assert seen(log, 4) == [1, 4, 7, 10]
    lab.channel(CHANNEL).derive("ie.tcd.low", "n < 6")
    bob.channel(CHANNEL).derive("ie.tcd.low", "n < 6").subscribe(derived)
    make.ready(bob)
    with LogClient(lab.endpoints[0], security=security("bob")) as client:
        assert badges(client) == [1, 4, 7, 10]
        lab.policies.set(ANNS)
        with pytest.raises(FederationError, match="no clause about user"):
            badges(client)
        lab.policies.set(HIDES)
    publish(source, 6)
    make.flush()
    assert seen(derived, 2) == [1, 4]


def test_every_decision_is_an_event(make: Nodes) -> None:
    lab = opened(make, "lab")
    lab.channel(CHANNEL, TYPE).source("door")
    log = Log()
    lab.channel("headwater.policy.decisions").subscribe(log, "outcome = 'denied'")
    lab.policies.set(HIDES)
    eve = opened(make, "eve")
    eve.channel(CHANNEL, TYPE).subscribe(Log())
    make.together()
    make.ready(eve)
    log.wait(1)
    assert (log.events[0].user, log.events[0].channel, log.events[0].action) == ("eve", CHANNEL, "subscribe")
    assert "clause 2" in log.events[0].reason


def test_policies_that_do_not_check_are_refused_when_they_are_set() -> None:
    with pytest.raises(ConfigError) as found:
        ChannelPolicy(
            name="p",
            channel="a.b",
            type=TYPE,
            clauses=[
                Clause(who="gruop:x", show="true"),
                Clause(show="room = 'text'"),
                Clause(show="who = :usr"),
                Clause(show="{ static int n = 0; n = n + 1; return n; }"),
                Clause(may=["vouch"]),
            ],
        )
    assert len(found.value.problems) == 2 and "did you mean 'group'?" in str(found.value)
    with pytest.raises(ConfigError) as found:
        ChannelPolicy(
            name="p",
            channel="a.b",
            type=TYPE,
            clauses=[
                Clause(show="room = 'text'"),
                Clause(show="who = :usr"),
                Clause(show="{ static int n = 0; n = n + 1; return n; }"),
            ],
        )
    assert [each.place for each in found.value.problems] == [f"policy p: clause {n}: show" for n in (1, 2, 3)]


def test_what_was_sent_and_may_have_to_go_again_is_judged_anew(make: Nodes, tmp_path: Path) -> None:
    lab = opened(make, "lab")
    source = lab.channel(CHANNEL, TYPE).source("door")
    bob, log = opened(make, "bob", state=tmp_path / "bob.db"), Log()
    manual = Reliable(durable=True, acknowledge="manual")
    bob.channel(CHANNEL, TYPE).subscribe(log, name="notes", delivery=manual)
    make.ready(bob)
    publish(source, 9)
    assert seen(log, 9) == list(range(9))  # and nothing is acknowledged: all of it may have to go again
    peer = lab._engine.peers[bob.id]  # type: ignore[union-attr]
    [lane] = peer.crossings[CHANNEL].active()

    def kept() -> list[int]:
        found: list[Any] = [wire.decode(memoryview(each.frame)[4:]) for each in lane.kept]
        return [seq - 1 for events in found for seq in events.seqs]

    assert kept() == list(range(9))
    lab.policies.set(HIDES)
    assert kept() == [1, 4, 7] and lane.kept[-1].number == lane.number  # the peer counts on from where it is
    publish(source, 3, start=9)
    assert seen(log, 10)[9:] == [10]
    lab.policies.set(ANNS)
    assert kept() == []


def test_a_random_life_beside_a_model(make: Nodes) -> None:
    """Moves, other policies and events by turns: each event is seen by whom the policy of that moment shows it."""
    chance = random.Random(17)
    lab = opened(make, "lab")
    source = lab.channel(CHANNEL, TYPE).source("door")
    shows = [
        "true",
        "who = :user",
        "room = :here",
        "room = :here or 'security' in :groups",
        "n % 2 = 0 and room >= :here",
    ]
    identities = {"ann": Identity(user="ann", groups=["security"]), "bob": Identity(user="bob", groups=["staff"])}
    logs = {}
    for user in identities:
        logs[user] = Log()
        opened(make, user).channel(CHANNEL, TYPE).subscribe(logs[user], "n != 7")
    make.together()
    make.ready()
    here = Location(channel="t.moves", type="who: text, room: u32", user="who", gives={"here": "room"})
    moves = lab.channel("t.moves", "who: text, room: u32").source("badges")
    policy: ChannelPolicy | None = None
    places: dict[str, dict[str, int]] = {}
    wanted: dict[str, list[int]] = {user: [] for user in identities}
    for n in range(rounds(150, 2000)):
        match chance.randrange(8):
            case 0:
                make.flush()  # so that nothing waits: what waits is judged anew, and is another test's
                policy = ChannelPolicy(
                    name="sightings",
                    channel=CHANNEL,
                    type=TYPE,
                    clauses=[Clause(who=chance.choice(["*", "bob", "group:staff"]), show=chance.choice(shows))],
                    location=here,
                )
                places = places if lab.policies.list() else {}  # nobody watched before
                lab.policies.set(policy)
            case 1:
                who, room = chance.choice(["ann", "bob"]), chance.randrange(4)
                moves.publish(who=who, room=room)
                if policy is not None:
                    places[who] = {"here": room}
            case _:
                event = {"who": chance.choice(["ann", "bob"]), "room": chance.randrange(4), "n": n}
                source.publish(**event)
                for user, identity in identities.items():
                    limit = Interest("true", BOUND) if policy is None else shown(policy, identity, places.get(user))
                    if limit is not None and limit.test(event) and n != 7:
                        wanted[user].append(n)
    make.flush()
    for user, log in logs.items():
        assert seen(log, len(wanted[user])) == wanted[user]


def test_what_was_decided_before_a_change_does_not_come_in_force_after_it(make: Nodes) -> None:
    lab, bob = opened(make, "lab"), opened(make, "bob")
    channel = lab.channel(CHANNEL, TYPE)
    channel.source("door")
    make.together()
    engine: Any = lab._engine
    granting, decisions = engine.installer.granting, engine.context.decisions
    principal = engine.peers[bob.id].principal
    early = granting.read(principal, channel, Wish(1, None))
    assert granting.is_current(early) and early.interest is None
    lab.policies.set(HIDES)
    assert not granting.is_current(early)  # whoever would install it reads it again
    assert granting.read(principal, channel, Wish(1, None)).limit is not None
    # A reading that is under way is waited for before a change is said to be in force.
    with decisions.reading():
        assert not decisions.settle(0.0)
        with decisions.reading():
            pass
    assert decisions.settle(0.0)


def test_a_policy_that_has_expired_closes_its_channels(make: Nodes) -> None:
    lab, bob = opened(make, "lab"), opened(make, "bob")
    lab.channel(CHANNEL, TYPE).source("door")
    sink = bob.channel(CHANNEL, TYPE).subscribe(Log())
    make.together()
    make.ready(bob)
    lab.policies.set(HIDES, lasts=0.2)
    over = "good for a time that is over"
    eventually(lambda: over in lab.policies.why("ann", CHANNEL).why, "that the policy has expired", GUARD)
    try:
        eventually(lambda: over in sink.refused.get(f"{CHANNEL}@lab", ""), timeout=GUARD)
    except AssertionError:
        raise AssertionError(f"expected that it is refused as {over!r}, found {sink.refused}") from None
    lab.policies.set(HIDES)
    eventually(lambda: not sink.refused, "that nothing is refused", GUARD)
    with pytest.raises(FederationError, match="name of a policy that is in force"):
        lab.policies.lift("nothing")
    with Node("alone") as alone, pytest.raises(FederationError, match="in no federation"):
        _ = alone.policies


def test_a_channel_of_bytes_under_a_policy_is_closed_and_others_go_on(make: Nodes) -> None:
    """Events that are bytes cannot be judged: whom the policy does not show everything gets nothing any more."""
    lab, bob, ann = opened(make, "lab"), opened(make, "bob"), opened(make, "ann")
    source = lab.channel(CHANNEL, bytes).source("door")
    logs = {node: Log() for node in (bob, ann)}
    sinks = {node: node.channel(CHANNEL, bytes).subscribe(log) for node, log in logs.items()}
    make.together()
    make.ready()
    source.publish(b"1")
    make.flush()
    assert all(log.wait(1) == [b"1"] for log in logs.values())
    engine: Any = lab._engine
    with engine.peers[bob.id].sender._turn:  # nobody sends
        source.publish(b"2")
        lab.policies.set(ANNS)
    source.publish(b"3")
    make.flush()
    assert logs[ann].wait(3) == [b"1", b"2", b"3"]
    eventually(lambda: bool(sinks[bob].refused))
    assert logs[bob].events == [b"1"]
    lab.policies.lift("sightings")
    source.publish(b"4")
    make.ready()
    source.publish(b"5")
    make.flush()
    eventually(lambda: b"5" in logs[bob].events)
    assert b"2" not in logs[bob].events and b"3" not in logs[bob].events


def test_an_answer_from_before_a_change_that_was_told_already_does_not_take_it_back(
    make: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy changes between a source's answer and what its asker makes of it, and is told of on another way."""
    lab, bob = opened(make, "lab"), opened(make, "bob")
    lab.channel(CHANNEL, TYPE).source("door")
    make.together()
    engine: Any = bob._engine
    put, late = engine.requester._put, []

    def overtaken(peer: Any, question: Install, changed: Any) -> Any:
        answer = put(peer, question, changed)
        if question.channel == CHANNEL and changed.wishes and not late:
            late.append(lab.policies.set(ANNS))
            eventually(lambda: peer.asked[CHANNEL].judged == 1)
        return answer

    monkeypatch.setattr(engine.requester, "_put", overtaken)
    sink = bob.channel(CHANNEL, TYPE).subscribe(Log())
    eventually(lambda: bool(late) and bob.ready(GUARD) and f"{CHANNEL}@lab" in sink.refused)
