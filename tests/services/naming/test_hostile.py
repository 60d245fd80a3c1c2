"""Bytes of others: whatever was changed in an answer, nothing that its owner has not signed is believed, and nothing
fails."""

from __future__ import annotations

import time
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.services.naming.registration import read_endorsements
from tests.effort import examples
from tests.services.naming.world import SIGNATURES, World, anchor, book, endorsed


@cache
def signed() -> tuple[World, bytes, bytes]:
    """A domain, its zone and an endorsement, as bytes."""
    world = World()
    zone = world.add("ie", ["s1"], [("ie.tcd", ["s2"])])
    item = endorsed("ie.door", "n0", "s1", zone.zone)
    return world, zone.signed.to_bytes(), item.signed.to_bytes()


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes changed, left out, doubled or put in; or other bytes altogether."""
    kind = draw(st.sampled_from(["flip", "cut", "insert", "double", "other"]))
    if kind == "other":
        return draw(st.binary(max_size=300))
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(made) - 1)))
        match kind:
            case "flip" if made:
                made[place] ^= draw(st.integers(1, 255))
            case "cut":
                del made[place : place + draw(st.integers(1, 40))]
            case "insert":
                made[place:place] = draw(st.binary(min_size=1, max_size=40))
            case _:
                made[place:place] = made[place : place + 20]
    return bytes(made)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_a_zone_or_an_endorsement_that_was_changed_is_refused(data: st.DataObject) -> None:
    world, zone, item = signed()
    known = book(anchor("ie"))
    changed = data.draw(mutations(zone))
    problems = known.accept_all([changed])
    assert (changed == zone) or (len(problems) == 1 and len(known) == 0)
    altered = data.draw(mutations(item))
    found, refused = read_endorsements(
        [altered, item], world.domains["ie"].zone, SIGNATURES.verify, time.time_ns(), "ie.door"
    )
    assert len(found) == 1 and found[0].signed.to_bytes() == item
    assert (altered == item) or len(refused) == 1
