"""Registrations at servers of one domain: leases, and how tables that were apart come to agree."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import FederationError, SecurityError
from headwater.services.naming import registration_table
from headwater.services.naming.registration import Endorsed, read_endorsement, read_endorsements
from headwater.services.naming.registration_table import RegistrationTable
from headwater.services.naming.zone import Zone
from tests.effort import examples
from tests.services.naming.world import SIGNATURES, World, address, endorsed, identity

NOW = time.time_ns()
SECOND = 10**9


@cache
def zone() -> Zone:
    return World().add("ie.tcd", ["s1", "s2"], [("ie.tcd.cs", ["s4"])]).zone


@cache
def item(name: str, node: str, server: str, version: int, lease: float, withdrawn: bool) -> Endorsed:
    return endorsed(name, node, server, zone(), version=version, now=NOW, lease=lease, withdrawn=withdrawn)


ITEMS = st.builds(
    item,
    st.sampled_from(["ie.tcd.door", "ie.tcd.window"]),
    st.sampled_from(["n0", "n1"]),
    st.sampled_from(["s1", "s2"]),
    st.integers(1, 3),
    st.sampled_from([10.0, 20.0]),
    st.booleans(),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ITEMS, max_size=12), st.randoms(use_true_random=False))
def test_tables_that_have_heard_the_same_agree_in_whichever_order_and_however_often(items, random) -> None:
    one, other = RegistrationTable("ie.tcd"), RegistrationTable("ie.tcd")
    one.merge_all(items, NOW)
    again = [*items, *items[: len(items) // 2]]
    random.shuffle(again)
    other.merge_all(again, NOW)
    assert one.sums == other.sums
    for name in ("ie.tcd.door", "ie.tcd.window"):
        assert _sources(one, name) == _sources(other, name)
    assert one.beyond(other.sums, NOW, 100) == ([], False)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ITEMS, max_size=10), st.lists(ITEMS, max_size=10), st.integers(1, 4))
def test_after_a_split_has_healed_all_servers_have_the_same(left, right, page) -> None:
    """Each side has heard of its own; then each takes over, in pages, what the other has."""
    one, other = RegistrationTable("ie.tcd"), RegistrationTable("ie.tcd")
    one.merge_all(left, NOW)
    other.merge_all(right, NOW)
    central = RegistrationTable("ie.tcd")
    central.merge_all([*left, *right], NOW)
    for taker, giver in ((one, other), (other, one)):
        sums, after, more = taker.sums, None, True
        while more:
            found, more = giver.beyond(sums, NOW, page, after)
            taker.merge_all(found, NOW)
            after = found[-1].key if found else None
    assert one.sums == other.sums == central.sums


def _sources(table: RegistrationTable, name: str) -> set[tuple[str, int]]:
    return {(each.address.node, each.version) for each in table.sources(name, NOW)}


def test_a_registration_ends_with_its_lease_and_that_is_told_once() -> None:
    table = RegistrationTable("ie.tcd")
    change = table.merge(item("ie.tcd.door", "n0", "s1", 1, 10.0, False), NOW)
    assert change is not None and change.what == "advertised"
    assert len(table.sources("ie.tcd.door", NOW + 9 * SECOND)) == 1
    assert table.sources("ie.tcd.door", NOW + 11 * SECOND) == []
    assert [each.what for each in table.sweep(NOW + 11 * SECOND)] == ["expired"]
    assert table.sweep(NOW + 12 * SECOND) == [] and len(table) == 0 and table.sums == RegistrationTable("x").sums
    # What comes late does not bring it back.
    assert table.merge(item("ie.tcd.door", "n0", "s1", 1, 10.0, False), NOW + 11 * SECOND) is None
    assert len(table) == 0


def test_what_was_withdrawn_is_not_brought_back_by_what_was_said_before() -> None:
    table = RegistrationTable("ie.tcd")
    table.merge(item("ie.tcd.door", "n0", "s1", 2, 10.0, True), NOW)
    assert table.merge(item("ie.tcd.door", "n0", "s2", 1, 20.0, False), NOW) is None
    assert table.sources("ie.tcd.door", NOW) == []
    back = table.merge(item("ie.tcd.door", "n0", "s2", 3, 20.0, False), NOW)
    assert back is not None and back.what == "advertised"
    # Renewing it is no news.
    assert table.merge(item("ie.tcd.door", "n0", "s1", 4, 20.0, False), NOW) is None


def test_a_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_table, "MOST_OF_NAME", 1)
    table = RegistrationTable("ie.tcd")
    table.merge(item("ie.tcd.door", "n0", "s1", 1, 10.0, False), NOW)
    with pytest.raises(FederationError, match=r"at most 1 nodes with sources of 'ie.tcd.door'"):
        table.merge(item("ie.tcd.door", "n1", "s1", 1, 10.0, False), NOW)
    table.merge(item("ie.tcd.door", "n0", "s1", 2, 10.0, False), NOW)  # one that is there is renewed


def test_consent_is_the_domain_s_and_a_registration_its_node_s() -> None:
    good = item("ie.tcd.door", "n0", "s1", 1, 10.0, False)
    assert read_endorsement(good.signed, zone(), SIGNATURES.verify, NOW).address == address("n0")
    for wrong, at, reason in (
        (World().add("ie.tcd", ["s3"]).zone, NOW, "domain"),  # its servers are others
        (World().add("ie.ucc", ["s1"]).zone, NOW, "domain"),  # the name is not in it
        (World().add("ie.tcd", ["s1"], [("ie.tcd.door", ["s4"])]).zone, NOW + 11 * SECOND, "expired"),
    ):
        with pytest.raises(SecurityError) as caught:
            read_endorsement(good.signed, wrong, SIGNATURES.verify, at)
        assert caught.value.reason == reason
    # A server that puts another node's address around its own signature is seen.
    from headwater.federation.naming.signatures import endorse, sign_registration
    from headwater.services.naming.registration import Registration

    stolen = sign_registration(identity("n1"), Registration("ie.tcd.door", address("n0")), 9, 60.0, now=NOW)
    found, refused = read_endorsements(
        [endorse(identity("s1"), stolen, NOW + 10 * SECOND, NOW).to_bytes(), good.signed.to_bytes()],
        zone(), SIGNATURES.verify, NOW, "ie.tcd.door",
    )  # fmt: skip
    assert [each.version for each in found] == [1] and "speaks for itself" in refused[0]
