"""What a node believes of domains: by signatures, from pinned keys, with an end, and never an older version again."""

from __future__ import annotations

import time

import pytest

from headwater.errors import ConfigError, SecurityError
from headwater.federation.naming.signatures import sign_zone
from headwater.services.naming.answer_cache import Answer, AnswerCache
from headwater.services.naming.domains import check_domain, enclosing, is_in
from headwater.services.naming.zone import Zone
from tests.services.naming.world import World, address, anchor, book, endorsed, owner_of

HOUR = 3600 * 10**9


def test_domains_and_names() -> None:
    assert check_domain("ie.tcd.") == "ie.tcd" and check_domain(".") == "."
    assert list(enclosing("ie.tcd.cs.ActiveBadge")) == ["ie.tcd.cs", "ie.tcd", "ie", "."]
    assert is_in("ie.tcd.cs", "ie.tcd") and not is_in("ie.tcdx.door", "ie.tcd") and not is_in("ie.tcd", "ie.tcd")
    with pytest.raises(ValueError, match=r"ie\.\*"):
        check_domain("ie.*")


def test_a_zone_is_believed_while_it_is_good_and_what_is_below_it_too() -> None:
    world = World()
    world.add(".", ["s0"], [("ie", ["s1"])], lasts=10_000.0)
    world.add("ie", ["s1"], lasts=5_000.0)
    now = [time.time_ns()]
    known = book(anchor(), lambda: now[0])
    known.accept(world.domains["."].signed)
    known.accept(world.domains["ie"].signed)
    assert known.path("ie.door").missing is None
    now[0] += 2 * HOUR  # ie's has ended, the root's has not
    path = known.path("ie.door")
    assert path.missing is not None and path.missing[0] == "ie"
    now[0] += 2 * HOUR
    assert known.path("ie.door").zones == ()
    with pytest.raises(SecurityError, match="signed anew"):
        known.accept(world.domains["ie"].signed)


def test_an_older_version_is_refused_and_one_from_the_future_too() -> None:
    known = book(anchor("ie"))
    known.accept(World().add("ie", ["s1"], version=5).signed)
    with pytest.raises(SecurityError) as caught:
        known.accept(World().add("ie", ["s2"], version=4).signed)
    assert caught.value.reason == "rollback"
    early = book(anchor("ie"), lambda: time.time_ns() - HOUR)
    with pytest.raises(SecurityError) as caught:
        early.accept(World().add("ie", ["s1"], version=6).signed)
    assert caught.value.reason == "early"


def test_a_domain_gives_away_only_what_is_below_it_and_that_once() -> None:
    owner = owner_of("ie")
    good = World().add("ie", ["s1"], [("ie.tcd", ["s2"])]).zone
    for parts, words in (
        ({"com": good.delegations["ie.tcd"]}, "below 'ie'"),
        ({"ie": good.delegations["ie.tcd"]}, "below 'ie'"),
        ({"ie.tcd": good.delegations["ie.tcd"], "ie.tcd.cs": good.delegations["ie.tcd"]}, "given to somebody already"),
    ):
        with pytest.raises(ConfigError, match=words):
            sign_zone(owner, Zone("ie", (address("s1"),), parts), 1)


def test_a_book_is_bounded_and_keeps_what_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.services.naming import zone_book

    monkeypatch.setattr(zone_book, "MOST_ZONES", 8)
    world = World()
    parts = [f"d{number}" for number in range(20)]
    world.add(".", ["s0"], [(part, ["s1"]) for part in parts])
    known = book(anchor())
    known.accept(world.domains["."].signed)
    for part in parts:
        known.accept(World().add(part, ["s1"]).signed)
    assert len(known) <= 8


def test_no_owner_of_a_domain_drives_out_what_a_node_serves_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.services.naming import zone_book

    monkeypatch.setattr(zone_book, "MOST_ZONES", 8)
    world, parts = World(), [f"evil.d{number}" for number in range(40)]
    world.add(".", ["s0"], [("a", ["s1"]), ("evil", ["s2"]), ("ie", ["s3"])])
    world.add("a", ["s1"], [("a.b", ["s1"])])
    known = book({**anchor(), **anchor("a.b")})  # a.b is served here
    for domain in (world.domains["."], world.domains["a"], World().add("a.b", ["s1"])):
        known.accept(domain.signed)
    known.accept(World().add("evil", ["s2"], [(part, ["s2"]) for part in parts]).signed)
    for part in parts:
        known.accept(World().add(part, ["s2"]).signed)
    assert len(known) <= 8
    for domain in (".", "a", "a.b", "evil"):
        assert known.known(domain) is not None
    assert known.is_shown("a.b")


def test_answers_are_cached_for_as_long_as_the_domain_lets_whatever_the_wall_clock_does() -> None:
    zone = World().add("ie", ["s1"]).zone
    source = endorsed("ie.door", "n0", "s1", zone, lease=60.0)
    ticks, now = [0.0], [time.time_ns()]
    cache = AnswerCache(lambda: ticks[0], lambda: now[0], most=2)
    cache.put(Answer("ie.door", "ie", (source,), until=30.0))
    cache.put(Answer("ie.none", "ie", (), until=5.0))
    found = cache.get("ie.door")
    assert found is not None and found.cached and found.places == (address("n0"),)
    assert cache.get("ie.none") is not None
    ticks[0], now[0] = 6.0, now[0] - HOUR  # the wall clock goes back: nothing lives longer
    assert cache.get("ie.none") is None and cache.get("ie.door") is not None
    now[0] += 2 * HOUR  # and forward: the lease has ended, and who else there is is not known
    assert cache.get("ie.door") is None
    for name in ("ie.a", "ie.b", "ie.c"):
        cache.put(Answer(name, "ie", (), until=30.0))
    assert len(cache) == 2 and cache.get("ie.a") is None
