"""Looking names up, held against a central table: random trees of domains, dead servers, lost answers, and liars."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SecurityError
from headwater.services.documents import SignedDocument
from headwater.services.naming.resolver import MOST_STEPS, Inquiry, NameUnresolved, Reply, Resolver, Step
from tests.effort import examples
from tests.services.naming.world import World, address, anchor, book, endorsed, identity, owner_of, run

POOL = [f"s{number}" for number in range(9)]  # servers
NODES = [f"n{number}" for number in range(4)]


def small() -> World:
    """The root gives away ie.tcd and ie.ucc, and ie.tcd gives away ie.tcd.cs."""
    world = World()
    world.add(".", ["s0"], [("ie.tcd", ["s1", "s2"]), ("ie.ucc", ["s3"])])
    world.add("ie.tcd", ["s1", "s2"], [("ie.tcd.cs", ["s4"])])
    world.add("ie.ucc", ["s3"])
    world.add("ie.tcd.cs", ["s4"])
    return world


def resolver(world: World, *hints: str, anchors: dict | None = None) -> Resolver:  # type: ignore[type-arg]
    return Resolver(
        book(anchor(servers=["s0"]) if anchors is None else anchors), [address(each) for each in hints], time.monotonic
    )


def honest(world: World):  # type: ignore[no-untyped-def]
    return lambda inquiry: world.says(inquiry.server.name, inquiry.name)


def test_a_name_is_found_by_following_delegations_and_all_sources_are_returned() -> None:
    world = small()
    for node in NODES:
        world.register("ie.tcd.cs.ActiveBadge", node)
    steps: list[Step] = []
    found = run(resolver(world), "ie.tcd.cs.ActiveBadge", honest(world), steps)
    assert found == {identity(node).id for node in NODES}
    assert [step.domain for step in steps] == [".", "ie.tcd", "ie.tcd.cs", "ie.tcd.cs"] or len(steps) <= 4
    # What is believed by then is not asked for again: one question does.
    again: list[Step] = []
    lookup = resolver(world)
    run(lookup, "ie.tcd.cs.ActiveBadge", honest(world))
    run(lookup, "ie.tcd.cs.Door", honest(world), again)
    assert len(again) == 1 and again[0].domain == "ie.tcd.cs"


def test_that_nobody_has_sources_is_an_answer_and_not_a_failure() -> None:
    world = small()
    assert run(resolver(world), "ie.ucc.door", honest(world)) == set()


def test_a_server_that_is_dead_is_bypassed() -> None:
    world = small()
    world.register("ie.tcd.door", "n0")
    for dead in ("s1", "s2"):
        found = run(
            resolver(world),
            "ie.tcd.door",
            lambda inquiry, dead=dead: (
                None if inquiry.server.name == dead else world.says(inquiry.server.name, inquiry.name)
            ),
        )
        assert found == {identity("n0").id}


def test_a_domain_of_which_no_server_answers_is_named_with_what_was_tried() -> None:
    world = small()
    with pytest.raises(NameUnresolved, match=r"'ie.ucc.door'.*'ie.ucc'.*s3@f-s3 \(ie.ucc\): no answer"):
        run(
            resolver(world),
            "ie.ucc.door",
            lambda inquiry: None if inquiry.server.name == "s3" else world.says(inquiry.server.name, inquiry.name),
        )


def test_a_lookup_climbs_by_the_parent_where_the_root_s_servers_are_not_known() -> None:
    world = small()
    world.register("ie.ucc.door", "n1")
    lookup = resolver(world, "s1", anchors=anchor())  # only the root's key, and a server of ie.tcd

    def ask(inquiry: Inquiry) -> Reply:
        said = world.says(inquiry.server.name, inquiry.name)
        return replace(said, above=[address("s0")]) if inquiry.server.name == "s1" else said

    assert run(lookup, "ie.ucc.door", ask) == {identity("n1").id}


def test_a_static_link_needs_nobody_above() -> None:
    world = small()
    world.register("ie.tcd.cs.ActiveBadge", "n2")
    steps: list[Step] = []
    lookup = resolver(world, anchors={**anchor(servers=["s0"]), **anchor("ie.tcd.cs", ["s4"])})
    assert run(lookup, "ie.tcd.cs.ActiveBadge", honest(world), steps) == {identity("n2").id}
    assert {step.server for step in steps} == {"s4@f-s4"}


def test_without_a_pinned_key_nothing_is_believed() -> None:
    with pytest.raises(NameUnresolved, match="pinned key"):
        run(resolver(small(), anchors={}), "ie.tcd.door", lambda inquiry: None)


@pytest.mark.parametrize(
    "lie", ["other owner", "expired", "changed", "not below", "other domain", "other name", "loop"]
)
def test_what_a_server_has_no_right_to_say_is_refused(lie: str) -> None:
    """A liar in the place of a server of ie.tcd; the other one is honest, and the name is found by it."""
    world = small()
    world.register("ie.tcd.door", "n0")
    enemy = World()
    if lie == "not below":  # it says that the root is its own
        enemy.add(".", ["s1"], [("ie.tcd", ["s1"])], version=9)
        enemy.domains["."].signed = _signed_by("owner-ie.tcd", enemy.domains["."])
    zone = world.domains["ie.tcd"].zone

    def lied(name: str) -> Reply:
        good = world.domains["ie.tcd"].signed
        match lie:
            case "other owner":
                forged = _signed_by("enemy", world.domains["ie.tcd"], version=9)
                return Reply([forged.to_bytes()], [], "ie.tcd")
            case "expired":
                return Reply([_signed_by("owner-ie.tcd", world.domains["ie.tcd"], lasts=1e-9, version=2).to_bytes()])
            case "changed":
                data = bytearray(good.to_bytes())
                data[-5] ^= 1
                return Reply([bytes(data)], [b"HWD1" + b"x" * 100], "ie.tcd")
            case "not below":
                return Reply([enemy.domains["."].signed.to_bytes()], [], ".")
            case "other domain":  # it serves no such domain, and consents all the same
                world.add("ie.ucc", ["s1"], version=1)
                item = endorsed("ie.ucc.door", "n3", "s1", world.domains["ie.ucc"].zone)
                return Reply([good.to_bytes()], [item.signed.to_bytes()], "ie.ucc")
            case "other name":
                item = endorsed("ie.tcd.window", "n3", "s1", zone)
                return Reply([], [item.signed.to_bytes()], "ie.ucc")
            case _:  # it knows nothing, and sends everybody back to where they come from
                return Reply([world.domains["."].signed.to_bytes()], [], "", [address("s0"), address("s1")])

    lookup = resolver(world)
    asked = []

    def ask(inquiry: Inquiry) -> Reply:
        asked.append(inquiry.server.name)
        return lied(inquiry.name) if inquiry.server.name == "s1" else world.says(inquiry.server.name, inquiry.name)

    assert run(lookup, "ie.tcd.door", ask) == {identity("n0").id}
    assert len(asked) < 8
    assert not lookup.book.accept_all([world.domains["ie.tcd"].signed.to_bytes()])  # nothing false is in its place


def _signed_by(owner: str, domain, *, version: int = 1, lasts: float = 60.0) -> SignedDocument:  # type: ignore[no-untyped-def]
    from headwater.federation.security.signed_document import sign

    zone = domain.zone
    return sign(identity(owner), "", "domain", zone.domain, version, zone.to_bytes(), lasts=lasts)


def test_a_delegation_that_was_given_to_somebody_else_ends_what_was_believed_of_the_first() -> None:
    world = small()
    world.register("ie.ucc.door", "n0")
    lookup = resolver(world)
    assert run(lookup, "ie.ucc.door", honest(world)) == {identity("n0").id}
    sold = World()
    sold.add(".", ["s0"], [("ie.tcd", ["s1", "s2"]), ("ie.ucc", ["s5"])], version=2)
    # The new owner has the name served elsewhere, by a key of its own.
    root = sold.domains["."]
    part = root.zone.delegations["ie.ucc"]
    zone = replace_zone(
        root.zone, {**root.zone.delegations, "ie.ucc": type(part)(identity("buyer").fingerprint, part.servers)}
    )
    from headwater.federation.naming.signatures import sign_zone

    lookup.book.accept(sign_zone(owner_of("."), zone, 3))
    assert lookup.book.known("ie.ucc") is None
    with pytest.raises(NameUnresolved):
        run(lookup, "ie.ucc.door", honest(world))


def replace_zone(zone, delegations):  # type: ignore[no-untyped-def]
    return type(zone)(zone.domain, zone.servers, delegations)


def test_who_does_not_serve_a_domain_any_more_cannot_say_that_there_is_nothing() -> None:
    """The delegation still names it, the zone does not: its word that nobody has sources is not enough."""
    world = World()
    world.add(".", ["s0"], [("ie", ["s1", "s2"])])
    world.add("ie", ["s2"])
    world.register("ie.door", "n0")
    bare = Reply([world.domains["ie"].signed.to_bytes()], [], "ie")

    def ask(inquiry: Inquiry) -> Reply:
        return bare if inquiry.server.name == "s1" else world.says(inquiry.server.name, inquiry.name)

    assert run(resolver(world), "ie.door", ask) == {identity("n0").id}


def test_a_zone_that_its_owner_has_not_signed_is_not_kept() -> None:
    world = small()
    known = book(anchor())
    known.accept(world.domains["."].signed)
    with pytest.raises(SecurityError) as caught:
        known.accept(_signed_by("enemy", world.domains["ie.tcd"], version=9))
    assert caught.value.reason == "owner" and len(known) == 1


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_fails_an_answer_is_that_of_the_central_table(seed: int) -> None:
    """A random tree; servers that are dead, lose answers, or lie. Whoever is asked, the answer is right or there is
    none; and it is there if each domain on the way has a server that is honest and answers."""
    random_ = random.Random(seed)
    world, good = _random_world(random_)
    names = [*world.central, "ie.nobody.has"]
    lookup = resolver(world, *random_.sample(POOL, 2))
    liars = {each for each in POOL if each not in good and random_.random() < 0.5}
    replies = [world.says(server, name) for server in POOL for name in names]

    def ask(inquiry: Inquiry) -> Reply | None:
        server = inquiry.server.name
        if server in good:
            return world.says(server, inquiry.name)
        if server in liars:  # what others have said, about anything
            picked = random_.choice(replies)
            mixed = random_.choice(replies)
            return replace(picked, sources=mixed.sources, above=mixed.above, domain=random_.choice(["", picked.domain]))
        return None if random_.random() < 0.7 else world.says(server, inquiry.name)

    for name in names:
        steps: list[Step] = []
        expected = world.central.get(name, set())
        try:
            found = run(lookup, name, ask, steps)
        except NameUnresolved:
            assert not _reachable(world, name, good), (name, steps)
        else:
            assert found <= expected, (name, steps)
            if _honestly(world, name, good | (set(POOL) - liars)):
                assert found == expected, (name, steps)
        assert len(steps) <= MOST_STEPS


def _random_world(random_: random.Random) -> tuple[World, set[str]]:
    """Domains at random, each of one to three servers; and servers that are honest and answer."""
    world = World()
    domains = ["."]
    for _ in range(random_.randrange(1, 7)):
        above = random_.choice(domains)
        part = random_.choice("abc") if above == "." else f"{above}.{random_.choice('abc')}"
        if part not in domains:
            domains.append(part)
    served = {domain: random_.sample(POOL, random_.randrange(1, 4)) for domain in domains}
    served["."] = list(dict.fromkeys(["s0", *served["."]]))
    for domain in domains:
        parts = [each for each in domains if each != "." and _above(each, domains) == domain]
        world.add(domain, served[domain], [(part, served[part]) for part in parts])
    for _ in range(random_.randrange(0, 8)):
        name = f"{random_.choice(domains)}.{random_.choice('xyz')}".lstrip(".")
        world.register(name, random_.choice(NODES))
    return world, set(random_.sample(POOL, random_.randrange(1, 9)))


def _above(domain: str, domains: list[str]) -> str:
    while "." in domain:
        domain = domain.rpartition(".")[0]
        if domain in domains:
            return domain
    return "."


def _reachable(world: World, name: str, good: set[str]) -> bool:
    """Whether each domain on the way to a name has a server that is honest and answers."""
    way = [domain for domain in world.domains if domain == "." or name.startswith(f"{domain}.")]
    return all(set(world.domains[domain].tables) & good for domain in way) and "s0" in good


def _honestly(world: World, name: str, fair: set[str]) -> bool:
    """Whether no server of the name's own domain lies: one that does may leave sources out."""
    return set(world.owning(name).tables) <= fair
