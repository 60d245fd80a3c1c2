"""Several servers of one domain: one that dies is bypassed, and after a split they agree; and gateways for names."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headwater.errors import FederationError, SecurityError
from headwater.federation.naming.signatures import sign_zone
from headwater.federation.security.identity import Identity
from headwater.names import Delegation, NameChange, Names, NameUnresolved, NodeAddress
from headwater.services.naming.zone import Zone
from headwater.testing import Recorder, eventually
from tests.federation.naming.campus import GUARD, Campus, address_of, campus, owner
from tests.federation.relays import Relay

DOOR = "ie.ucc.door"


@pytest.fixture
def made() -> Iterator[Campus]:
    with campus() as found:
        yield found


def cut(relay: Relay) -> None:
    """Nothing gets through from now on."""
    relay.change_towards = lambda: lambda data: None
    for each in list(relay._open):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def heal(relay: Relay) -> None:
    relay.change_towards = lambda: bytes


def sources(names, name: str = DOOR) -> set[str]:  # type: ignore[no-untyped-def]
    """What a server knows itself."""
    return {each.address.name for each in names.server.table("ie.ucc").sources(name, time.time_ns())}


def test_a_server_that_dies_is_bypassed_for_lookups_registrations_and_watches(made: Campus) -> None:
    one, two = made.hub("one", "ucc"), made.hub("two", "cork")
    both = [address_of(one), address_of(two)]
    made.serve_root({"ie.ucc": both})
    made.serve("ie.ucc", one, servers=both)
    second = made.serve("ie.ucc", two, servers=both)
    porter = made.node("porter", two)
    having = made.use(porter, one, two)
    looking = made.use(made.node("desk", made.root), made.root)
    changes: Recorder[NameChange] = Recorder()
    watch = looking.watch(DOOR, changes)
    assert watch.ready(GUARD)
    having.advertise(DOOR)
    eventually(lambda: sources(made.names["one"]) == {"porter"} == sources(second), "both servers know of it")
    assert [each.name for each in looking.lookup(DOOR, fresh=True).places] == ["porter"]
    assert [event.change for event in changes.wait(1)] == ["advertised"]  # once, though both have told it
    one.close()
    assert [each.name for each in looking.lookup(DOOR, fresh=True).places] == ["porter"]
    having.withdraw(DOOR)
    assert [event.change for event in changes.wait(2)] == ["advertised", "withdrawn"]
    assert looking.lookup(DOOR, fresh=True).sources == ()
    watch.cancel()


def test_after_a_split_has_healed_the_servers_of_a_domain_agree(made: Campus) -> None:
    one, two = made.hub("one", "ucc"), made.hub("two", "cork")
    with Relay(one.endpoints[0]) as to_one, Relay(two.endpoints[0]) as to_two:
        both = [address_of(one, to_one.endpoint), address_of(two, to_two.endpoint)]
        made.serve_root({"ie.ucc": both})
        first = made.serve("ie.ucc", one, servers=both)
        second = made.serve("ie.ucc", two, servers=both)
        here, there = made.use(made.node("here", one), one), made.use(made.node("there", two), two)
        for names in (here, there):
            names.lookup(DOOR)
        assert first.reconcile() and second.reconcile()
        for relay in (to_one, to_two):
            cut(relay)
        eventually(lambda: not first.reconcile() and not second.reconcile(), "they are apart")
        here.advertise(DOOR, "ie.ucc.window")
        there.advertise(DOOR, "ie.ucc.lift")
        here.withdraw("ie.ucc.window")
        assert sources(first) == {"here"} and sources(second) == {"there"}
        for relay in (to_one, to_two):
            heal(relay)
        eventually(lambda: first.reconcile() and second.reconcile(), "they reach each other")
        eventually(lambda: sources(first) == sources(second) == {"here", "there"}, "they agree")
        assert first.server.table("ie.ucc").sums == second.server.table("ie.ucc").sums  # type: ignore[union-attr]
        assert sources(second, "ie.ucc.window") == set() and sources(first, "ie.ucc.lift") == {"there"}


def test_a_domain_is_given_to_somebody_else_while_everything_runs(made: Campus) -> None:
    """The root's owner signs another zone: what the first owner of the part has said is not believed any more."""
    old, new = made.hub("old", "old"), made.hub("new", "new")
    root = made.serve_root({"ie.ucc": [old]})
    made.serve("ie.ucc", old)
    names = made.use(made.node("desk", made.root), made.root)
    assert names.lookup(DOOR).domain == "ie.ucc"
    buyer = Identity.ephemeral("owner")
    zone = root.book.known(".").zone  # type: ignore[union-attr]
    given = Zone(".", zone.servers, {"ie.ucc": Delegation(buyer.fingerprint, (address_of(new),))}, zone.ttl)
    with pytest.raises(SecurityError) as caught:
        root.renew(sign_zone(buyer, given, 2**50))  # who is to have it cannot say so
    assert caught.value.reason == "owner"
    root.renew(sign_zone(owner("."), given, 2**50))
    with pytest.raises(FederationError, match="not served here"):
        root.renew(sign_zone(buyer, Zone("ie.ucc", (address_of(new),)), 1))
    with pytest.raises(NameUnresolved, match=r"'ie.ucc'"):  # the new owner does not serve it yet
        names.lookup(DOOR, fresh=True)
    second = made.serve("ie.ucc", new, key=buyer)
    second.advertise(DOOR)
    eventually(lambda: [each.name for each in _found(names)] == ["new"], "it is found at the new owner's", GUARD)


def _found(names: Names) -> tuple[NodeAddress, ...]:
    try:
        return names.lookup(DOOR, fresh=True).places
    except NameUnresolved:
        return ()


def test_a_zone_that_has_ended_is_told_and_nothing_is_said_of_its_names(made: Campus) -> None:
    names = made.serve_root({}, lasts=0.5, version=1)
    names.advertise("t.door")
    assert len(names.lookup("t.door").sources) == 1
    eventually(lambda: names.report()["ended"] == ["."], "its end is noticed")
    with pytest.raises(NameUnresolved, match=r"'t.door'"):
        names.lookup("t.door", fresh=True)
    zone = Zone(".", (address_of(made.root),))
    names.renew(sign_zone(owner("."), zone, 2))
    assert len(names.lookup("t.door", fresh=True).sources) == 1


def test_a_server_that_was_started_again_is_told_anew(made: Campus) -> None:
    """Its table is in memory: nodes register again as soon as they see another run of it."""
    from headwater import Network, Node
    from headwater.store import NodeState

    state = NodeState(":memory:")
    hub = Node("hub", network=Network(listen="tcp/127.0.0.1:0", router=True, acquaintance="named", federation="ucc"),
               state=state)  # fmt: skip
    made.nodes.append(hub)
    made.serve_root({"ie.ucc": [hub]})
    made.serve("ie.ucc", hub)
    porter = made.node("porter", hub)
    having = made.use(porter, hub)
    having.advertise(DOOR)
    endpoint, before = hub.endpoints[0], hub.id
    hub.close()
    again = Node(
        "hub", network=Network(listen=endpoint, router=True, acquaintance="named", federation="ucc"), state=state
    )
    made.nodes.append(again)
    assert again.id == before
    second = made.serve("ie.ucc", again)
    eventually(lambda: sources(second) == {"porter"}, "it was registered again", GUARD)


def test_a_gateway_carries_names_for_the_nodes_of_its_federation(made: Campus) -> None:
    """Two desks want different things of a door in another federation: the door's node deals with the gateway alone,
    and what covers both leaves it once."""
    tcd, ucc = made.hub("gate", "tcd"), made.hub("names", "ucc")
    made.serve_root({"ie.tcd": [tcd], "ie.ucc": [ucc]})
    made.serve("ie.tcd", tcd)
    made.serve("ie.ucc", ucc)
    edge = made.node("edge", tcd)
    made.use(edge, tcd, carries=True)
    desks = [made.node(f"desk{number}", tcd) for number in range(2)]
    looking = [made.use(desk, tcd, gateway=edge.id) for desk in desks]
    porter = made.node("porter", ucc)
    having = made.use(porter, ucc)
    front = porter.channel(DOOR, "open: bool, n: i64").source("front")
    having.advertise(DOOR)
    heard: list[Recorder] = [Recorder(), Recorder()]
    wants = ["n > 3", "n > 5 and open"]
    subscriptions = [names.subscribe(DOOR, each, want) for names, each, want in zip(looking, heard, wants, strict=True)]
    assert all(each.ready(GUARD) for each in subscriptions)
    assert [each.sources for each in subscriptions] == [["edge@tcd"], ["edge@tcd"]]
    for number in range(10):
        front.publish(open=number % 2 == 0, n=number)
    assert [event.n for event in heard[0].wait(6)] == [4, 5, 6, 7, 8, 9]
    assert [event.n for event in heard[1].wait(2)] == [6, 8]
    assert set(porter.peers) == {"names", "edge"}
    report = porter.federation_report().to_dict()
    assert "n > 3" in str(report) and "n > 5" not in str(report)  # one interest covers the other
    assert all(not names.reach.legs for names in looking)  # nobody but the gateway is in the other federation
    for each in subscriptions:
        each.cancel()
