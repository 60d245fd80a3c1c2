"""Thin links: hosts made of namespaces, the relay that delays, and the part of the study that uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.study.report.table import Table
from headwater_studies.fleet import hosts
from headwater_studies.fleet.hosts import CannotMake, Link, pair
from headwater_studies.fleet.relay import HELD, Line
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.result import Plot, Section
from headwater_studies.latency.links import OURS, THIN, TOPIC, links
from headwater_studies.latency.links_run import Passes
from tests.effort import examples

# ── the wire that takes its time ──


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 2000)), max_size=60),
    st.floats(0, 0.2),
    st.one_of(st.none(), st.floats(1e4, 1e8)),
)
def test_frames_leave_in_order_not_before_their_time_and_no_faster_than_the_rate(
    arriving: list[tuple[float, int]], delay: float, rate: float | None
) -> None:
    line, now, put = Line(delay, rate), 0.0, dict[bytes, tuple[float, int]]()
    for number, (pause, size) in enumerate(arriving):
        now += pause
        frame = number.to_bytes(2, "little") + bytes(size)
        before = line.lost
        line.put(frame, now, size)
        if line.lost == before:
            put[frame] = (now, size)
    came, at = list[bytes](), list[float]()
    while (due := line.due) is not None:
        assert line.take(due - 1e-6) is None
        taken = line.take(due)
        assert taken is not None
        came.append(taken)
        at.append(due)
    assert came == list(put)
    assert (line.passed, line.passed + line.lost, line.held) == (len(put), len(arriving), 0)
    for frame, due in zip(came, at, strict=True):
        waited = due - put[frame][0] - delay
        assert -1e-9 <= waited <= line.queue + 1e-9
    if rate is None:
        assert line.lost == 0
        return
    for frame, one, other in zip(came[1:], at, at[1:], strict=False):
        assert other - one >= 8 * put[frame][1] / rate - 1e-9


def test_a_line_holds_a_bounded_number_of_bytes() -> None:
    line, frame = Line(1.0), bytes(70_000)
    for _ in range(HELD // len(frame) + 10):
        line.put(frame, 0.0)
    assert line.held <= HELD
    assert line.lost == 10


def test_what_a_system_that_sends_everything_gets_to_those_who_want_less() -> None:
    everything = Passes("it", 100, 2000, 2000, [2.0, 4.0], [20_000, 40_000])
    less = everything.of(1)
    assert (less.published, less.useful, less.wanted) == (2000, 20, 1)
    assert less.rates == (10.0, 5.0)
    assert less.each == (1000.0, 2000.0)


# ── hosts ──


def namespaces() -> list[str]:
    """Ours of this process that are left."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"{hosts.MARK}-{os.getpid()}-")]


def trip(bench: Bench, made: hosts.LinkedHosts) -> float:
    near = bench.start("headwater_studies.fleet.tcp", inside=made.near.inside)
    far = bench.start("headwater_studies.fleet.tcp", inside=made.far.inside)
    far.call("open", peer=near.call("open", host=made.near.address)["peer"])
    near.call("join", peer=None)
    far.ask("echo", n=3)
    found = float(near.call("trips", n=3)["p50"])
    far.answer()
    return found


def test_hosts_are_apart_by_their_delay_or_cannot_be_made_and_are_gone_in_the_end(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link("test", "test", 10e6, 0.03)
    if why := hosts.missing():
        with pytest.raises(CannotMake), pair(bench.start, link):
            pass
        assert "namespaces" in why
        return
    with pair(bench.start, link) as made:
        assert len(namespaces()) == 3
        assert trip(bench, made) >= 2 * link.delay
        before = made.near.traffic()
        assert before > 3 * 2 * 64
        assert made.quiet() >= before
    assert namespaces() == []

    # Without `tc` the relay limits the rate as well; and an interrupt leaves nothing behind.
    ip = shutil.which("ip")
    assert ip is not None
    (tmp_path / "ip").symlink_to(ip)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), pair(bench.start, link) as made:
        assert made.by == "rate and delay by our relay"
        assert made.relay is not None
        assert trip(bench, made) >= 2 * link.delay + 2 * 8 * 64 / link.rate
        assert made.relay.call("counts")["lost"] == 0
        raise KeyboardInterrupt
    assert namespaces() == []


# ── the part ──


def table(section: Section, name: str) -> list[dict[str, object]]:
    found = next(block for block in section.blocks if isinstance(block, Table) and block.name == name)
    names = [column.title for column in found.columns]
    return [dict(zip(names, row.values, strict=True)) for row in found.rows]


def test_every_useful_event_crosses_a_thin_link_once_and_the_others_do_not(bench: Bench) -> None:
    found = links(bench)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Found) == found
    why = hosts.missing()
    if why:
        assert found == replace(Found(), not_run={"thin links": why})
        return
    assert namespaces() == []
    (section,) = found.sections
    assert section.command.startswith("headwater study latency")

    trips = {row["system"]: row for row in table(section, "links-trips")}
    assert {OURS, "raw TCP"} <= set(trips)
    for row in trips.values():
        assert isinstance(row["median"], float) and row["median"] >= 2 * THIN.delay

    useful = table(section, "links-useful")
    for row in useful:
        assert row["lost, twice or out of order"] == 0
        assert row["useful"] == row["published"] * row["wanted"] // 100  # type: ignore[operator]
        assert row["useful a second"] > 0  # type: ignore[operator]
    ours = {row["wanted"]: row for row in useful if row["system"] == OURS}
    assert set(ours) == {100, 10, 1}
    for row in ours.values():  # an event and its headers, not the ninety or ninety-nine that nobody wants
        assert 64 < row["bytes on the wire for each"] < 400  # type: ignore[operator]
    for row in useful:
        if row["system"] not in (OURS, TOPIC) and row["wanted"] == 1:
            assert row["bytes on the wire for each"] > 6400  # type: ignore[operator]

    same = table(section, "links-same")
    assert len({(row["published"], row["useful"]) for row in same}) == 1

    full = {str(row["what"]): row["median"] for row in table(section, "links-full")}
    assert full["published, all rounds"] == full["arrived"]
    assert full["lost, twice or out of order"] == "0"

    (plot,) = [block for block in section.blocks if isinstance(block, Plot)]
    assert [x for x, _ in plot.series[0].points] == [1.0, 10.0, 100.0]
    assert all(len(ratio.ours) == bench.rounds for ratio in found.ratios)
    assert {"round trip, thin link"} <= {ratio.case for ratio in found.ratios}
    systems = {str(row["system"]) for row in useful}
    for name in ("ZeroMQ", "Zenoh"):
        assert (name in systems) != (f"{name} over thin links" in found.not_run)
    assert found.costs["link_bytes_per_event"] > 64


def test_where_there_is_no_ip_it_says_so(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = links(bench)
    assert found.sections == ()
    assert list(found.not_run) == ["thin links"]
    assert "namespaces need" in found.not_run["thin links"]
