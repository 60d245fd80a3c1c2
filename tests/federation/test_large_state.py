"""Nodes with so many channels that no message could hold them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater import Event, u32
from headwater.security import Security
from tests.federation.nodes import GUARD, Log, Nodes, nodes


class Reading(Event, name="building.Reading"):
    number: u32
    codeword: str
    temperature: float | None = None
    humidity: float | None = None
    pressure: float | None = None
    carbon_dioxide: float | None = None
    occupied: bool | None = None
    sensor: str | None = None
    firmware: str | None = None


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


@pytest.mark.parametrize("count", [8_000])
def test_a_node_with_very_many_channels_is_known(make: Nodes, count: int) -> None:
    lab = make("lab")
    names = [f"building.floor{number % 50}.room{number}.temperature" for number in range(count)]
    with lab._wiring.lock:  # in one go, which is quicker
        sources = [lab.channel(name, Reading).source("sensor") for name in names]
    desk = make("desk")
    make.together()
    assert desk.until(lambda: desk.remote_sources(names[-1]) == ["sensor@lab"], 4 * GUARD)
    log = Log()
    for name in (names[0], names[-1]):
        desk.channel(name, Reading).subscribe(log)
    assert desk.ready(GUARD)
    more = lab.channel("building.new", Reading).source("sensor")  # what is new now is told in few bytes
    assert desk._engine is not None
    before = desk._engine.fabric.counters["ask"]["bytes_in"]
    assert desk.until(lambda: desk.remote_sources("building.new") == ["sensor@lab"], GUARD)
    assert desk._engine.fabric.counters["ask"]["bytes_in"] - before < 10_000
    sources[0].publish(number=1, codeword="a")
    sources[-1].publish(number=2, codeword="b")
    more.publish(number=3, codeword="c")
    log.wait(2)
    state = desk._engine.peers[lab.id].state
    assert state is not None and len(state.channels) == len(state.sources) == count + 1


def test_what_changes_between_two_pages_is_known_as_well(make: Nodes) -> None:
    lab, desk = make("lab", security=Security(limit=65_536), listen="tcp/127.0.0.1:0"), make("desk")
    make.together()
    assert lab._engine is not None and desk._engine is not None
    kept = [lab.channel(f"c{number:05}", Reading).source("s") for number in range(1000)]
    description, peer = lab._engine.membership.description, desk._engine.peers[lab.id]
    assert desk.until(lambda: len(peer.sources) == 1000, GUARD)
    principal = lab._engine.peers[desk.id].principal
    assert principal is not None

    def known() -> bool:
        return peer.state is not None and peer.state.version == description.version

    state, pages, cursor = None, [], None
    while state is None or cursor is not None:
        page = description.state(principal, after=cursor)
        pages.append(page)
        state, cursor = page, page.next
        if len(pages) == 2:  # meanwhile
            kept[0].close()
            kept[999].close()
            lab.channel("a", Reading).source("s")
            lab.channel("z", Reading).source("s")
            # The desk may have been asking for pages of its own: then it has the last one first, then what has changed.
            assert desk.until(lambda: {ad.channel for ad in peer.sources} >= {"a", "z"} and known(), GUARD)
    assert len(pages) > 2 and pages[0].version < pages[-1].version
    found = {ad.sid: ad.channel for page in pages for ad in page.sources}
    names = {ad.name for page in pages for ad in page.channels}
    changes = description.state(principal, since=pages[0].version)
    assert changes.since == pages[0].version
    for sid in changes.gone_sources:
        found.pop(sid, None)
    found |= {ad.sid: ad.channel for ad in changes.sources}
    names = names - set(changes.gone_channels) | {ad.name for ad in changes.channels}
    assert sorted(found.values()) == sorted(ad.channel for ad in peer.sources) and len(found) == 1000
    assert names == {ad.name for ad in peer.state.channels}  # type: ignore[union-attr]


def test_a_channel_that_fits_in_no_message_is_said(make: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    lab, desk = make("lab", security=Security(limit=4096), listen="tcp/127.0.0.1:0"), make("desk")
    fields = ", ".join(f"a_field_with_a_long_name_{number}: i64" for number in range(400))
    with caplog.at_level("ERROR"):
        lab.channel("too.large", fields).source("s")
        lab.channel("small", Reading).source("s")
        make.together()
        assert desk.until(lambda: desk.remote_sources("small") == ["s@lab"], GUARD)
    assert desk.remote_sources("too.large") == []
    assert any("no other node can know of channel too.large" in record.message for record in caplog.records)
    assert lab.federation_report().untold == ("too.large",) and "too.large" in str(lab.federation_report())
