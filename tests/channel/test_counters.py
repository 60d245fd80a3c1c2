"""Counts, the latency distribution, and reports for people and programs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.reports.counters import BUCKETS, Counts, Latency, bucket_of, bucket_range, duration
from headwater.channel.reports.report import ChannelReport, NodeReport, Placement, SourceReport, SubscriptionReport
from headwater.ir.interp import Fault
from headwater.text_tables import rounded, shorten, table
from tests.effort import examples

TIMES = st.one_of(st.integers(0, 100), st.integers(0, 10**6), st.integers(0, 2**44 - 1))


def latency(*times: int) -> Latency:
    made = Latency()
    for time in times:
        made.add(time)
    return made


# ── latency ──


def test_buckets_follow_each_other_without_a_gap() -> None:
    end = -1
    for at in range(BUCKETS):
        low, high = bucket_range(at)
        assert low == end + 1 and bucket_of(low) == bucket_of(high) == at
        assert (high - low) * 16 <= low
        end = high
    assert end == 2**44 - 1


@given(st.integers(-(2**70), 2**70))
@settings(deadline=None, max_examples=examples(200))
def test_every_duration_has_a_bucket(ns: int) -> None:
    low, high = bucket_range(bucket_of(ns))
    assert low <= min(max(ns, 0), 2**44 - 1) <= high
    if 0 <= ns < 2**44:  # as it is written in place
        assert bucket_of(ns) == (ns if ns < 32 else ((s := ns.bit_length() - 5) << 4) + (ns >> s))
    counted = latency(ns)
    assert counted.buckets[bucket_of(ns)] == counted.count == 1


@given(st.lists(TIMES, min_size=1, max_size=60), st.floats(0, 1))
@settings(deadline=None, max_examples=examples(200))
def test_a_distribution_is_right_within_a_sixteenth(times: list[int], q: float) -> None:
    made, ordered = latency(*times), sorted(times)
    exact = ordered[max(1, math.ceil(q * len(ordered))) - 1]
    found, mean = made.quantile(q), made.mean
    assert found is not None and mean is not None and made.min is not None and made.max is not None
    assert made.count == len(times)
    assert abs(found - exact) <= exact / 16
    assert made.min <= ordered[0] <= made.min * 17 / 16
    assert ordered[-1] <= made.max <= ordered[-1] * 17 / 16
    assert abs(mean - sum(times) / len(times)) <= sum(times) / len(times) / 16


@given(st.lists(TIMES, max_size=20), st.lists(TIMES, max_size=20))
@settings(deadline=None, max_examples=examples(50))
def test_merging_is_counting_both(one: list[int], other: list[int]) -> None:
    a, b = latency(*one), latency(*other)
    both = a + b
    assert both == latency(*one, *other) and a == latency(*one)
    a.merge(b)
    assert a == both and a.copy() == both and a.copy() is not a


def test_nothing_measured() -> None:
    empty = Latency()
    assert (empty.count, empty.mean, empty.min, empty.max, empty.quantile(0.5)) == (0, None, None, None, None)
    assert str(empty) == "none measured" and repr(empty) == "<Latency none measured>"
    with pytest.raises(ValueError, match=r"a share from 0 to 1, found 1\.5"):
        empty.quantile(1.5)
    with pytest.raises(ValueError, match="found 3"):
        Latency([0, 0, 0])


def test_latency_reads_well() -> None:
    made = latency(*[1_200] * 900, *[45_000] * 95, *[3_000_000] * 5)
    assert str(made) == "p50 1.2 µs, p90 1.2 µs, p99 44.0 µs, max 3.0 ms, n=1,000"
    told = made.to_dict()
    assert told["count"] == 1000 and told["p99.9"] == made.quantile(0.999) and json.dumps(told)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (999.6, "1.0 µs"),
        (1_250, "1.2 µs"),
        (99_960, "100 µs"),
        (999_600, "1.0 ms"),
        (2.5e9, "2.5 s"),
        (59.97e9, "1.0 min"),
        (90e9, "1.5 min"),
        (7200e9, "2.0 h"),
        (1e18, "277,778 h"),
    ],
)
def test_durations_for_people(ns: float | None, text: str) -> None:
    assert duration(ns) == text


# ── counts ──


def counts() -> st.SearchStrategy[Counts]:
    number = st.integers(0, 1000)

    def build(passed: int, rejected: int, undecided: int, faults: dict[Fault, int], rest: list[int]) -> Counts:
        names = ("delivered", "dropped", "expired", "skipped", "failed", "queued")
        more = dict(zip(names, rest, strict=True))
        total = passed + rejected + undecided
        return Counts(evaluated=total, passed=passed, rejected=rejected, undecided=undecided, faults=faults, **more)

    faults = st.dictionaries(st.sampled_from([fault for fault in Fault if fault]), st.integers(1, 5))
    return st.builds(build, number, number, number, faults, st.lists(number, min_size=6, max_size=6))


@given(counts(), counts(), counts())
@settings(deadline=None, max_examples=examples(50))
def test_counts_add_up(a: Counts, b: Counts, c: Counts) -> None:
    assert a + b == b + a and (a + b) + c == a + (b + c) and a + Counts() == a
    both = a + b
    assert both.evaluated == both.passed + both.rejected + both.undecided
    assert both.faulty == a.faulty + b.faulty and both.queued == a.queued + b.queued
    assert json.loads(json.dumps(both.to_dict()))["passed"] == both.passed


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match=r"= 3 evaluated, found 1 \+ 1 \+ 0"):
        Counts(evaluated=3, passed=1, rejected=1)


def test_counts_for_people_and_programs() -> None:
    made = Counts(evaluated=5000, passed=3000, rejected=2000, dropped=5, faults={Fault.OVERFLOW: 3})
    assert str(made) == "5,000 evaluated, 3,000 passed, 2,000 rejected, 5 dropped, 3 overflow faults"
    assert made.to_dict()["faults"] == {"overflow": 3} and made.to_dict()["dropped"] == 5


# ── tables ──


def test_a_table_is_aligned() -> None:
    lines = table(["name", "count", "?zero", "?>time"], [["a", 1234, 0, "1.2 µs"], ["long", 5, 0, None]])
    assert lines == ["  name  count    time", "  a     1,234  1.2 µs", "  long      5       -"]


def test_characters_that_take_two_columns_count_as_two() -> None:
    lines = table(["name", "count"], [["世界", 1], ["ab🎉", 22], ["abcd", 333]])
    assert lines == ["  name  count", "  世界      1", "  ab🎉     22", "  abcd    333"]
    assert shorten("世界世界世界", 8) == "世 …世界"


def test_a_wide_table_gives_way() -> None:
    name = "ie.tcd.cs.weather.station.on.the.roof"
    lines = table(["name", "channel", "n"], [[name, name, 1]], width=40)
    assert max(map(len, lines)) == 40 and "ie.tcd.…the.roof" in lines[1]
    lines = table(["name", *"abcdef"], [[name, *[123_456_789] * 6]], width=70)
    assert max(map(len, lines)) <= 70 and "123 M" in lines[1]


def test_shortening() -> None:
    assert shorten("abcdefghij", 10) == "abcdefghij" and shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("a  b\nc", 10) == "a b c"
    assert [rounded(n) for n in (9_999, 12_345, 9_994_999, 999_499_999, 10**15, 10**18)] == [
        "9,999", "12.3 k", "9.99 M", "999 M", "1,000 T", "1,000,000 T"
    ]  # fmt: skip


# ── reports ──


def report() -> NodeReport:
    where = (Placement("sensor", "ie.tcd.sighting", "index", "equality on network"),)
    quick = latency(*[2_000] * 100)
    counted = Counts(evaluated=1_234_567, passed=12_345, rejected=1_222_217, undecided=5, delivered=12_333, dropped=12)
    alarm = SubscriptionReport(
        name="alarm",
        channel="ie.tcd.**",
        type="Sighting",
        epoch=3,
        interest="level > :limit",
        dispatch="pool: 3 threads of 1 to 8",
        queue="1,000 events, drop oldest",
        counts=counted + Counts(queued=1000),
        latency=quick,
        slow="full for 3.2 s",
        trouble="ValueError: bad badge",
        placements=where,
    )
    log = SubscriptionReport(name="log", channel="raw", state="paused")
    source = SourceReport(
        name="sensor",
        channel="ie.tcd.sighting",
        type="Sighting",
        published=1_234_567,
        facts={"network": "ORL-Net#1", "limit": math.inf},
        counts=counted,
        placements=where,
    )
    return NodeReport(
        name="hall",
        channels=(
            ChannelReport(name="ie.tcd.sighting", type="Sighting", sources=("sensor",), subscriptions=("alarm",)),
            ChannelReport(name="raw"),
            ChannelReport(name="ie.tcd.loud", type="Sighting", derived="ie.tcd.sighting where level > 0.5"),
        ),
        sources=(source,),
        subscriptions=(alarm, log),
        dispatch=("pool: 3 threads of 1 to 8, 12 waiting",),
        notes=("compiling 2 interests",),
    )


def test_a_node_tells_everything() -> None:
    text = str(report())
    lines = text.splitlines()
    assert lines[0] == "node hall, open: 3 channels, 1 source, 2 subscriptions"
    assert max(map(len, lines)) <= 118
    for part in ("pool: 3 threads", "compiling 2", "1,234,567", "where level > 0.5", "equality on network", "bad badge",
                 "2.0 µs", "paused"):  # fmt: skip
        assert part in text
    slow = lines[lines.index("slow sinks") + 1]
    assert slow == "  alarm  full for 3.2 s, 12 dropped, 1,000 queued (queue: 1,000 events, drop oldest)"
    assert [each.name for each in report().slow] == ["alarm"]


def test_each_report_tells_its_part() -> None:
    made = report()
    alarm, source, channel = str(made.subscriptions[0]), str(made.sources[0]), str(made.channels[0])
    assert alarm.startswith("subscription alarm, open, events of type Sighting\n")
    for part in ("level > :limit", "drop oldest", "p50 2.0 µs", "equality on network", "full for 3.2 s", "bad badge"):
        assert part in alarm
    assert "every event" in str(made.subscriptions[1]) and "paused, bytes" in str(made.subscriptions[1])
    assert "network = 'ORL-Net#1'" in source and "1,234,567" in source and "where interests run" in source
    assert "1: sensor" in channel and "none" in str(made.channels[1]) and "where level" in str(made.channels[2])


def test_reports_for_programs() -> None:
    made = report()
    told = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert told["counts"]["evaluated"] == 1_234_567 and told["slow"] == ["alarm"]
    assert told["subscriptions"][0]["placements"][0]["why"] == "equality on network"
    assert told["subscriptions"][0]["latency"]["count"] == 100 and told["subscriptions"][0]["epoch"] == 3
    assert told["sources"][0]["facts"] == {"network": "ORL-Net#1", "limit": "inf"}
    assert told["channels"][1]["type"] is None and told["channels"][0]["sources"] == ["sensor"]


def test_an_empty_node_and_a_crowded_one() -> None:
    assert "0 evaluated" in str(NodeReport(name="x"))
    long = "a.name.of.many.segments." * 9
    rows = tuple(SubscriptionReport(name=f"{long}{n}", channel=long, slow="yes") for n in range(1000))
    text = str(NodeReport(name="x", subscriptions=rows))
    assert "… and 900 more" in text and len(text.splitlines()) < 350
    assert max(map(len, text.splitlines())) <= 118


@pytest.mark.parametrize("width", [100, 118])
def test_huge_numbers_stay_within_the_width(width: int) -> None:
    rows: list[list[Any]] = [["x" * 200, "y" * 200, "open", *[10**12] * 6]]
    lines = table(["name", "channel", "state", *"abcdef"], rows, width=width)
    assert max(map(len, lines)) <= width
