"""Names across federations, for real: two federations on one machine that know nothing of each other's nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater import Node, Reliable
from headwater.errors import FederationError, SubscriptionError
from headwater.names import NameChange, Names, NameUnresolved
from headwater.policy import ChannelPolicy, Clause
from headwater.testing import Recorder, eventually
from tests.federation.naming.campus import GUARD, Campus, address_of, campus

DOOR = "ie.ucc.door"


@pytest.fixture
def made() -> Iterator[Campus]:
    with campus() as found:
        yield found


def two_domains(made: Campus) -> tuple[Node, Node]:
    """The routers of tcd and ucc, which serve ie.tcd and ie.ucc."""
    tcd, ucc = made.hub("gate", "tcd"), made.hub("names", "ucc")
    made.serve_root({"ie.tcd": [tcd], "ie.ucc": [ucc]}, advertise=[])
    made.serve("ie.tcd", tcd)
    made.serve("ie.ucc", ucc, advertise=[{"names": "ie.ucc.door", "who": "*"}])
    return tcd, ucc


def test_a_source_in_another_federation_is_found_by_name_and_nobody_else_there(made: Campus) -> None:
    tcd, ucc = two_domains(made)
    desk, porter, others = made.node("desk", tcd), made.node("porter", ucc), [made.node(f"o{n}", ucc) for n in range(3)]
    looking, having = made.use(desk, tcd), made.use(porter, ucc)
    front = porter.channel(DOOR, "open: bool, n: i64").source("front")
    assert looking.lookup(DOOR).sources == ()  # that nobody has it is an answer
    having.advertise(DOOR)
    assert [each.name for each in looking.lookup(DOOR, fresh=True).places] == ["porter"]
    heard: Recorder = Recorder()
    told: list[tuple[int, str]] = []
    with (
        looking.subscribe(DOOR, heard, "open and n > 3") as subscription,
        looking.subscribe(DOOR, lambda event, about: told.append((event.n, about.source)), "n == 0") as other,
    ):
        assert subscription.ready(GUARD) and other.ready(GUARD), subscription.missing
        for number in range(10):
            front.publish(open=number % 2 == 0, n=number)
        assert [event.n for event in heard.wait(3)] == [4, 6, 8]
        # The interest went to the source, and nobody learnt of those who have nothing to do with it.
        leg = looking.reach.legs["ucc"]
        assert set(leg.peers) == {"porter", "names"} and desk.peers == ["gate"]
        assert set(porter.peers) == {"names", "desk"} and all(each.peers == [] for each in others)
        counts = leg.federation_report().to_dict()
        assert "o0" not in str(counts)
        points = subscription.change(where="not open")
        assert list(points) and all(place.endswith("@ucc") for place in points)
        front.publish(open=False, n=11)
        assert heard.wait(4)[-1].n == 11
        eventually(lambda: told == [(0, "front")], "the other has had its one")


def test_what_is_found_by_name_is_shown_as_far_as_the_policy_of_its_node_lets(made: Campus) -> None:
    tcd, ucc = two_domains(made)
    desk, porter = made.node("desk", tcd), made.node("porter", ucc)
    looking, having = made.use(desk, tcd), made.use(porter, ucc)
    front = porter.channel(DOOR, "open: bool, n: i64").source("front")

    def policy(show: str) -> ChannelPolicy:
        return ChannelPolicy(name="doors", channel=DOOR, type="open: bool, n: i64", clauses=[Clause(show=show)])

    porter.policies.set(policy("n % 2 = 0"))
    having.advertise(DOOR)
    heard: Recorder = Recorder()
    with looking.subscribe(DOOR, heard, "n > 3") as subscription:
        assert subscription.ready(GUARD), subscription.missing
        for number in range(10):
            front.publish(open=True, n=number)
        assert [event.n for event in heard.wait(3)] == [4, 6, 8]
        porter.policies.set(policy(""))  # of what was found by name nothing is shown any more, and that is said
        eventually(lambda: 'policy "doors" version 2' in str(subscription.refused))
        front.publish(open=True, n=10)
        porter.policies.set(policy("true"))
        eventually(lambda: not subscription.refused)
        front.publish(open=True, n=12)
        assert [event.n for event in heard.wait(4)] == [4, 6, 8, 12]


def test_a_name_is_watched_and_a_subscription_follows_its_sources(made: Campus) -> None:
    tcd, ucc = two_domains(made)
    desk, first, second = made.node("desk", tcd), made.node("first", ucc), made.node("second", tcd)
    looking = made.use(desk, tcd)
    one, other = made.use(first, ucc), made.use(second, tcd)  # the second is of a federation that does not own the name
    sources = [node.channel(DOOR, "open: bool, n: i64").source("s") for node in (first, second)]
    changes: Recorder[NameChange] = Recorder()
    with looking.watch(DOOR, changes, "federation == 'tcd'") as watch:
        assert watch.ready(GUARD)
        heard: Recorder = Recorder()
        with looking.subscribe(DOOR, heard) as subscription:
            one.advertise(DOOR)
            eventually(lambda: subscription.sources == ["first@ucc"], "the first source was found")
            other.advertise(DOOR)
            eventually(lambda: subscription.sources == ["first@ucc", "second@tcd"], "the second source was found")
            assert subscription.ready(GUARD)
            for number, source in enumerate(sources):
                source.publish(open=True, n=number)
            assert sorted(event.n for event in heard.wait(2)) == [0, 1]
            other.withdraw(DOOR)
            eventually(lambda: subscription.sources == ["first@ucc"], "the second was let go")
            sources[1].publish(open=True, n=2)
            sources[0].publish(open=True, n=3)
            assert heard.wait(3)[-1].n == 3
        changes.until(lambda events: len(events) == 2)
        assert [(event.change, event.node) for event in changes.events] == [
            ("advertised", "second"),
            ("withdrawn", "second"),
        ]


def test_advertising_needs_the_consent_of_the_domain(made: Campus) -> None:
    _, ucc = two_domains(made)
    porter = made.node("porter", ucc)
    names = made.use(porter, ucc)
    with pytest.raises(FederationError, match=r"'ie.ucc.window'.*'ie.ucc' has not consented"):
        names.advertise("ie.ucc.window")
    with pytest.raises(
        FederationError, match=r"'ie.nuig.door'.*'.' has not consented"
    ):  # it is nobody's but the root's
        names.advertise("ie.nuig.door")
    assert names.advertised == {}


def test_a_durable_subscription_to_another_federation_needs_a_gateway(made: Campus) -> None:
    tcd, ucc = two_domains(made)
    porter = made.node("porter", ucc)
    having, looking = made.use(porter, ucc), made.use(made.node("desk", tcd), tcd)
    porter.channel(DOOR, "n: i64").source()
    having.advertise(DOOR)
    with pytest.raises(SubscriptionError, match=r"porter@ucc is in another federation.*gateway"):
        looking.subscribe(DOOR, print, name="kept", delivery=Reliable(durable=True))
    with pytest.raises(SubscriptionError, match="expected a function"):
        looking.subscribe(DOOR, "open")  # type: ignore[arg-type]

    async def handler(event: object) -> None: ...

    with pytest.raises(SubscriptionError, match="a coroutine function"):
        looking.subscribe(DOOR, handler)


def test_an_insider_without_consent_is_not_heard_though_it_has_such_a_channel(made: Campus) -> None:
    """Eve is in the federation, has the channel, and makes herself known to who has subscribed by name."""
    tcd, ucc = two_domains(made)
    desk, porter, eve = made.node("desk", tcd), made.node("porter", ucc), made.node("eve", ucc)
    looking, having = made.use(desk, tcd), made.use(porter, ucc)
    good = porter.channel(DOOR, "open: bool, n: i64").source("front")
    bad = eve.channel(DOOR, "open: bool, n: i64").source("front")
    having.advertise(DOOR)
    heard: Recorder = Recorder()
    with looking.subscribe(DOOR, heard) as subscription:
        assert subscription.ready(GUARD)
        leg = looking.reach.legs["ucc"]
        eve._engine.presence.acquaintances.hold(leg.id)  # type: ignore[union-attr]
        assert eve.until(lambda: "desk" in eve.peers, GUARD)
        assert leg.until(lambda: "eve" in leg.peers and leg.remote_sources(DOOR) != ["front@porter"], GUARD)
        assert leg.ready(GUARD)
        bad.publish(open=True, n=666)
        good.publish(open=True, n=1)
        eve.flush(GUARD)
        assert [event.n for event in heard.wait(1)] == [1]
        assert subscription.sources == ["porter@ucc"]


def test_a_source_that_was_killed_keeps_nobody_from_the_others_and_is_gone_with_its_lease(made: Campus) -> None:
    """It has not withdrawn: its domain names it until the lease ends. Who has only Zenoh's path gets events, too."""
    tcd, ucc = made.hub("gate", "tcd"), made.hub("names", "ucc")
    made.serve_root({"ie.tcd": [tcd], "ie.ucc": [ucc]})
    made.serve("ie.tcd", tcd)
    made.serve("ie.ucc", ucc, lease=4.0, ttl=0.0)
    dead, alive = made.node("dead", ucc), made.node("alive", ucc, direct=())  # no streams: events are routed
    looking = made.use(made.node("desk", tcd), tcd)
    source = alive.channel(DOOR, "n: i64").source("s")
    dead.channel(DOOR, "n: i64").source("s")
    for node in (dead, alive):
        made.use(node, ucc).advertise(DOOR)
    dead.close(drain=False)
    assert [each.name for each in looking.lookup(DOOR).places] == ["alive", "dead"]
    heard: Recorder = Recorder()
    with looking.subscribe(DOOR, heard) as subscription:
        leg = looking.reach.legs["ucc"]
        assert leg.ready(GUARD)
        source.publish(n=1)
        assert heard.wait(1)[0].n == 1
        assert "zenoh" in str(leg.federation_report().peer("alive")).lower()
        eventually(lambda: subscription.sources == ["alive@ucc"], "the dead one was let go", GUARD)
        assert [each.name for each in looking.lookup(DOOR, fresh=True).places] == ["alive"]
        assert subscription.ready(GUARD) and subscription.missing == {}


def test_what_a_node_knows_does_not_grow_with_its_federations(made: Campus) -> None:
    """Each node of two domains uses two names, however many nodes there are."""
    tcd, ucc = made.hub("gate", "tcd"), made.hub("names", "ucc")
    made.serve_root({"ie.tcd": [tcd], "ie.ucc": [ucc]})
    servers = [made.serve("ie.tcd", tcd), made.serve("ie.ucc", ucc)]
    known: list[int] = []
    nodes: list[tuple[Node, Names]] = []
    for count in (3, 9):
        while len(nodes) < 2 * count:
            number = len(nodes)
            hub = (tcd, ucc)[number % 2]
            node = made.node(f"n{number}", hub)
            names = made.use(node, hub)
            name = f"ie.{('tcd', 'ucc')[number % 2]}.n{number}"
            node.channel(name, "n: i64").source()
            names.advertise(name)
            nodes.append((node, names))
        node, names = nodes[0]
        for other in (1, 2):  # of the other domain, and of its own
            target = f"ie.{('tcd', 'ucc')[other % 2]}.n{other}"
            with names.subscribe(target, print) as subscription:
                assert subscription.ready(GUARD)
        engines = [node._engine, *(leg._engine for leg in names.reach.legs.values())]
        known.append(sum(len(engine.peers) for engine in engines))  # type: ignore[union-attr]
    assert known[0] == known[1] <= 4  # two servers, and two nodes with sources
    assert [len(each.server.table(domain)) for each, domain in zip(servers, ("ie.tcd", "ie.ucc"), strict=True)] == [
        9,
        9,
    ]  # type: ignore[union-attr]


def test_another_federation_is_left_when_nothing_of_it_is_wanted_any_more() -> None:
    with campus(keep=0.3) as made:
        tcd, ucc = two_domains(made)
        desk, porter = made.node("desk", tcd), made.node("porter", ucc)
        looking, having = made.use(desk, tcd), made.use(porter, ucc)
        porter.channel(DOOR, "n: i64").source()
        having.advertise(DOOR)
        with looking.subscribe(DOOR, print) as subscription:
            assert subscription.ready(GUARD) and set(looking.reach.legs) == {"ucc"}
        eventually(lambda: not looking.reach.legs, "the other federation was left", GUARD)
        eventually(lambda: "desk" not in porter.peers, "and is not known there any more", GUARD)
        with looking.subscribe(DOOR, print) as subscription:  # and joined again
            assert subscription.ready(GUARD)


def test_a_name_of_a_domain_that_nobody_serves_says_so(made: Campus) -> None:
    tcd = made.hub("gate", "tcd")
    dead = made.hub("gone", "gone")
    address = address_of(dead)
    made.serve_root({"ie.tcd": [tcd], "ie.gone": [address]})
    made.serve("ie.tcd", tcd)
    dead.close()
    names = made.use(made.node("desk", tcd), tcd)
    with pytest.raises(NameUnresolved, match=r"'ie.gone.door'.*'ie.gone'.*gone@gone.*no answer"):
        names.lookup("ie.gone.door")


def test_what_a_cache_was_poisoned_with_is_refused(made: Campus) -> None:
    """The server that a node asks answers with what it has no right to: another domain's name, its own consent."""
    from headwater.federation.naming.signatures import endorse, sign_registration
    from headwater.federation.wire.name_requests import NameIs
    from headwater.services.naming.registration import Registration

    tcd, _ = two_domains(made)
    desk = made.node("desk", tcd)
    names = made.use(desk, tcd)
    good = names.lookup(DOOR)
    assert good.domain == "ie.ucc"
    gate = tcd._engine.keyring.credentials.identity  # type: ignore[union-attr]
    enemy = Registration(DOOR, address_of(tcd))
    signed = sign_registration(gate, enemy, 99, 60.0)
    now = signed.document.issued
    item = endorse(gate, signed, now + 10**10, now).to_bytes()
    for domain in ("ie.ucc", "ie.tcd", "."):
        with pytest.raises(NameUnresolved, match="verified"):
            names.lookups.believed(DOOR, NameIs([], [item], domain, lives=1000.0))
    assert names.lookup(DOOR).sources == () and names.report()["refused"] >= 1
