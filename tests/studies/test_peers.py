"""Other systems beside ours: whatever is installed is run, and whatever is not is said to be not run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.study.report.table import Row, Table
from headwater_studies.fleet.peers import SYSTEMS, System, installed
from headwater_studies.fleet.worker import RECORD, WIDE, Meter, messages, taker
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.result import Bars, Plot, Result
from headwater_studies.peers.page import OURS, Case, Flow, Idle, Trip, Way, flow_page, trip_page
from headwater_studies.peers.part import WANTED, WAYS, peers
from tests.effort import examples

ROOT = Path(__file__).parents[2]
FAULTY = "tests.studies.faulty"


def table(found: Found, name: str) -> Table:
    return next(
        block
        for section in found.sections
        for block in section.blocks
        if isinstance(block, Table) and block.name == name
    )


def row(found: Found, name: str, way: str) -> Row:
    return next(each for each in table(found, name).rows if each.values[0] == way)


def names(found: Found, name: str) -> set[str]:
    return {str(each.values[0]) for each in table(found, name).rows}


# ── the real thing ──


@pytest.mark.soak
def test_whatever_is_installed_is_run_and_the_rest_is_said_to_be_not_run(bench: Bench) -> None:
    missing = installed()
    found = peers(bench)
    assert found.not_run == {SYSTEMS[key].name: why for key, why in missing.items() if why}
    here = {key for key, why in missing.items() if not why}
    assert names(found, "peers-trips") == {OURS, *(SYSTEMS[key].name for key in here)}
    ways = {way.name: way for way in WAYS if way.ours or way.system in here}
    for name in ("peers-rate", "peers-cpu", "peers-wire"):
        assert names(found, name) == set(ways)
        for each in table(found, name).rows:
            assert all(isinstance(value, float) and value > 0 for value in each.values[1:]), each
    spread = table(found, "peers-spread")
    assert len(spread.rows) == len(ways) * len(WANTED)
    assert {each.values[2] for each in spread.rows} == {1_000, 6_000}

    theirs = [way for way in ways.values() if not way.ours]
    assert Counter(each.reference for each in found.ratios if each.case.startswith("round trip")) == Counter(
        {SYSTEMS[key].name: 2 for key in here}
    )
    flows = Counter(each.reference for each in found.ratios if not each.case.startswith("round trip"))
    assert flows == Counter({way.name: len(WANTED) + 2 + 2 for way in theirs})
    assert all(each.why for each in found.ratios)
    for key, package in (("zmq", "pyzmq"), ("nats", "nats-server"), ("redis", "redis-server"), ("mqtt", "mosquitto")):
        assert (package in found.versions) == (key in here)
    assert all(found.versions.values())
    for section in found.sections:
        assert section.command == "headwater study peers" and section.repetitions
    plots = [block for section in found.sections for block in section.blocks if isinstance(block, Plot)]
    drawn = [len(plot.series) for plot in plots if plot.name.startswith("peers-rate")]
    assert drawn == [sum(not way.many for way in ways.values()), sum(way.many for way in ways.values())]
    assert any(isinstance(block, Bars) for section in found.sections for block in section.blocks)
    result = Result(
        name="peers", title="Peers", lead="", command="", begun="", seconds=0.0, sections=found.sections,
        ratios=found.ratios, versions=found.versions, not_run=found.not_run,
    )  # fmt: skip
    assert Result.from_json(result.to_json()) == result


def test_one_that_is_absent_loses_or_fails_has_no_figure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no host of their own can be had, as on many machines."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("headwater_studies.fleet.hosts.missing", lambda: "not wanted here")
    systems = {
        "zmq": System("Absent", FAULTY, lambda: "not installed here (a package)"),
        "nats": System("Forgetful", FAULTY, str),
        "mqtt": System("Broken", "tests.studies.broken", str),
    }
    found = peers(bench, systems=systems)
    assert found.not_run["Absent"] == "not installed here (a package)"
    assert found.not_run["Forgetful"] == "lost 1 of 1,000"
    assert found.not_run["Broken"].startswith("failed: ") and "does not listen" in found.not_run["Broken"]
    assert names(found, "peers-trips") == {OURS, "Forgetful"}
    assert {each.reference for each in found.ratios} == {"Forgetful"}
    assert all(each.case.startswith("round trip") for each in found.ratios)
    assert row(found, "peers-rate", "NATS").values == ("NATS", "lost 1 of 1,000", None, None, None, None)
    assert not any(way in names(found, "peers-rate") for way in ("ZeroMQ", "Mosquitto"))
    ours = {way.name for way in WAYS if way.ours}
    assert names(found, "peers-rate") == ours | {"NATS"}


# ── what they are sent, and what they look at ──


@pytest.mark.parametrize("packed", [1, 100, 1_000])
def test_a_thousand_events_have_every_pick_once(packed: int) -> None:
    sent = b"".join(messages("wide", 2 * WIDE, packed))
    events = list(RECORD.iter_unpack(sent))
    assert Counter(event[0] for event in events) == dict.fromkeys(map(float, range(WIDE)), 2)
    assert [event[2] for event in events[:WIDE]] == [float(number) for number in range(WIDE)]


@given(st.sampled_from([1, 100]), st.integers(1, 4), st.integers(0, WIDE))
@settings(deadline=None, max_examples=examples(40))
def test_receivers_count_what_is_below_a_limit(packed: int, thousands: int, limit: int) -> None:
    n, meter = thousands * WIDE, Meter()
    take = taker(f"packed-below:{limit}" if packed > 1 else f"below:{limit}", n, meter)
    for data in messages("wide", n, packed):
        take(data)
    found = meter.result(0)
    assert (found["got"], found["useful"]) == (n, thousands * limit)


# ── what is said of it ──

OUR = Way("ours", "ours", OURS, "direct")
BATCH = Way("ours of 100", "many", f"{OURS}, batches of 100", "direct", packed=100)
LARGE = Way("ours of 1200", "many", f"{OURS}, batches of 1,200", "direct", packed=1_200)  # nobody's equal
ONE = Way("one", "one", "One", "server")
TWO = Way("two", "two", "Two, packed", "direct", packed=100)
FLOWS = st.builds(
    Flow,
    events=st.integers(1, 10**7),
    rate=st.floats(1, 1e8),
    cpu=st.none() | st.floats(1e-9, 1.0),
    wire=st.none() | st.floats(1.0, 1e7),
)


@given(st.integers(1, 4), st.data())
@settings(deadline=None, max_examples=examples(40))
def test_what_is_not_told_or_lost_is_neither_compared_nor_drawn(rounds: int, data: st.DataObject) -> None:
    many = st.lists(FLOWS, min_size=rounds, max_size=rounds)
    cases = [
        Case(wanted, {
            "ours": data.draw(many), "ours of 100": data.draw(many), "ours of 1200": data.draw(many),
            "one": data.draw(many | st.just("lost 3 of 9")), "two": data.draw(many),
        })
        for wanted in (1.0, 0.01)
    ]  # fmt: skip
    found = flow_page((OUR, LARGE, BATCH, ONE, TWO), cases, Idle(0.0, True), rounds)
    for measure, name in (("rate", "wanted events a second"), ("cpu", "processor time"), ("wire", "bytes")):
        for case in cases:
            for way, beside in ((ONE, OUR), (TWO, BATCH)):
                theirs, ours = case.figures[way.key], case.figures[beside.key]
                told = not isinstance(theirs, str) and all(
                    getattr(each, measure) is not None for each in (*theirs, *ours)
                )
                made = [
                    each
                    for each in found.ratios
                    if each.reference == way.name
                    and each.case.startswith(name)
                    and f", {case.title} wanted" in each.case
                ]
                assert len(made) == told
                if made and not isinstance(theirs, str):
                    assert made[0].theirs == tuple(getattr(each, measure) for each in theirs)
                    assert made[0].ours == tuple(getattr(each, measure) for each in ours)
        for at, case in enumerate(cases, 1):
            if case.figures["one"] == "lost 3 of 9":
                assert row(found, f"peers-{measure}", "One").values[at] == "lost 3 of 9"


def test_a_round_trip_beside_ours_is_slower_above_one() -> None:
    found = trip_page(
        [("ours", OURS, [Trip(1e-4, 2e-4), Trip(3e-4, 4e-4)]), ("zmq", "ZeroMQ", [Trip(4e-4, 6e-4), Trip(4e-4, 6e-4)])],
        100,
        2,
    )
    assert row(found, "peers-trips", "ZeroMQ").values[5] == pytest.approx(2.0)
    assert [each.factors for each in found.ratios] == [pytest.approx((4.0, 4 / 3)), pytest.approx((3.0, 1.5))]
