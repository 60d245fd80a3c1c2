"""Patterns on Spark beside the same written by hand: as window functions, and as an Arrow function in the workers.

    python -m headwater_studies.patterns.spark [events]

Both read the same Parquet files and must find the same: each is asked for the number and the sums of its matches. Times
of ours and of the other are taken in turn.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headwater.late import np, pa
from headwater.patterns.pattern import Pattern
from headwater.spark import match, pattern_choice, session
from headwater_studies.harness.benchmark import Report

EVENTS, QUICK = 50_000_000, 200_000
KEYS = 10_000
ROUNDS = 3
FEWER = 5  # times: what so many fewer events take shows whether it is linear
WINDOWED, BY_WORKERS, LINEAR = 0.95, 0.7, 1.25  # what is to be reached: of the speed by hand, and of the time per event
META = {"source": "origin", "seq": "number", "time": "at"}
CHANNELS = {"machine": "k: i64, kind: text, v: i64"}

# One event in a hundred begins something; most others are of the kind that goes on.
NEXT = Pattern(
    "a: machine{kind = 'a'} -> b: machine{kind = 'c'} within 1 minute partition by k measures a.v as a, b.v as b",
    CHANNELS,
)
REPEATED = Pattern(
    "SELECT * FROM machine MATCH_RECOGNIZE (PARTITION BY k ORDER BY meta.time "
    "MEASURES A.v AS a, SUM(B.v) AS total, C.v AS c "
    "PATTERN (A B+ C) WITHIN INTERVAL '60' SECOND "
    "DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind = 'c')",
    CHANNELS,
)
Answer = tuple[int, ...]


def recorded(spark: Any, folder: Path, events: int) -> str:
    """Events in Parquet: a millisecond apart where all keys have one each second, so that each has some fifty a minute
    whatever their number."""
    keys = max(1, min(KEYS, events // 1_000))
    step = 1_000_000 // keys
    spark.range(events).selectExpr(
        f"pmod(id * 7919, {keys}) AS k",
        "CASE WHEN pmod(hash(id), 100) < 1 THEN 'a' WHEN pmod(hash(id), 100) < 5 THEN 'c' ELSE 'b' END AS kind",
        "pmod(hash(id, 7), 1000L) AS v",
        "concat('n', pmod(id, 4)) AS origin",
        "id AS number",
        f"timestamp_micros(1700000000000000L + id * {step}L) AS at",
    ).write.parquet(str(folder / f"events-{events}"))
    return str(folder / f"events-{events}")


# ── by hand ──


def next_by_hand(frame: Any) -> Any:
    """As somebody writes it who knows that looking ahead costs less in the other direction."""
    window = "PARTITION BY k ORDER BY at DESC, origin DESC, number DESC"
    before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    rows = frame.where("kind IN ('a', 'c')").selectExpr(
        "kind", "v", "at", f"last(IF(kind = 'c', struct(at, v), NULL), TRUE) OVER ({window} {before}) AS next"
    )
    late = "unix_micros(next.at) - unix_micros(at) <= 60000000L"
    return rows.where(f"kind = 'a' AND next IS NOT NULL AND {late}").selectExpr("v AS a", "next.v AS b", "next.at")


def repeated_by_hand(frame: Any) -> Any:
    """The rows of a key as one table, all of it by numpy."""

    def of_a_key(rows: Any) -> Any:
        rows = rows.sort_by([("at", "ascending"), ("origin", "ascending"), ("number", "ascending")])
        kinds = rows.column("kind").combine_chunks().dictionary_encode()
        names = kinds.dictionary.to_pylist()
        codes = kinds.indices.to_numpy(zero_copy_only=False)
        a, b, c = (codes == (names.index(name) if name in names else -1) for name in "abc")
        v = rows.column("v").to_numpy()
        at = rows.column("at").cast(pa.int64()).to_numpy()
        ends = np.flatnonzero(~b)  # what stands between two of these is all b
        first, last = ends[:-1], ends[1:]
        good = a[first] & c[last] & (last - first > 1) & (at[last] - at[first] < 60_000_000)
        first, last = first[good], last[good]
        sums = np.concatenate([[0], np.cumsum(np.where(b, v, 0))])
        return pa.table(
            {
                "a": v[first],
                "total": sums[last] - sums[first],
                "c": v[last],
                "at": rows.column("at").take(pa.array(last)).cast(pa.timestamp("us", "UTC")),
            }
        )

    return frame.groupBy("k").applyInArrow(of_a_key, "a long, total long, c long, at timestamp")


# ── measuring ──


@dataclass(frozen=True, slots=True)
class Case:
    """A pattern beside the same by hand; `sums` are the fields that are compared, `reach` what is to be reached."""

    name: str
    pattern: Pattern
    by_hand: Callable[[Any], Any]
    sums: tuple[str, ...]
    reach: float


CASES = (
    Case("window functions", NEXT, next_by_hand, ("a", "b"), WINDOWED),
    Case("runners in the workers", REPEATED, repeated_by_hand, ("a", "total", "c"), BY_WORKERS),
)


def rows(report: Report, quick: bool) -> None:
    """Window functions and runners in the workers, and whether they take so much longer as there is more."""
    measure(report, QUICK if quick else EVENTS, rounds=1 if quick else ROUNDS)


def measure(report: Report, events: int, *, rounds: int = ROUNDS) -> None:
    spark = session("headwater-patterns", **{"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "16"})
    kinds = [pattern_choice(each).kind for each in (NEXT, REPEATED)]
    assert kinds == ["window functions", "runners"], kinds
    with tempfile.TemporaryDirectory(prefix="headwater-patterns-") as folder:
        whole, part = (recorded(spark, Path(folder), count) for count in (events, events // FEWER))
        for case in CASES:
            _measure_case(report, spark, case, whole, part, events, rounds)
    spark.stop()


def _measure_case(report: Report, spark: Any, case: Case, whole: str, part: str, events: int, rounds: int) -> None:
    """Ours and by hand over the whole, and ours over a part of it."""

    def ours(path: str) -> Answer:
        return _answer(match(spark.read.parquet(path), case.pattern, meta=META, identity=False), case.sums)

    def by_hand() -> Answer:
        return _answer(case.by_hand(spark.read.parquet(whole)), case.sums)

    mine, other = _in_turn(rounds, partial(ours, whole), by_hand)
    name = f"Spark, {case.name}, {events:,} events"
    report.add(name, mine, other, reach=f"{case.reach:g}× by hand", ok=other / mine >= case.reach)
    (less,) = _in_turn(rounds, partial(ours, part))
    grown = mine / (less * FEWER)
    note = f"{events // FEWER:,} events take {less:.1f} s"
    reach = f"at most {LINEAR:g}× per event"
    report.add(f"  an event, {FEWER} times as many", grown, reach=reach, ok=grown <= LINEAR, unit="×", note=note)


def _answer(found: Any, sums: tuple[str, ...]) -> Answer:
    """How many there are, and what their fields come to: all of them are made for it."""
    (row,) = found.selectExpr("count(*)", *(f"coalesce(sum({name}), 0)" for name in sums)).collect()
    return tuple(int(value) for value in row)


def _in_turn(rounds: int, *functions: Callable[[], Answer]) -> list[float]:
    """The least seconds of each; all must answer the same, and something."""
    answers = {function() for function in functions}  # and Spark is warm
    if len(answers) != 1 or not next(iter(answers))[0]:
        raise AssertionError(f"expected the same matches, found {answers}")
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for at, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[at] = min(best[at], time.perf_counter() - start)
    return best


def main() -> None:
    report = Report("patterns-spark", "Patterns on Spark")
    measure(report, int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else EVENTS)
    report.finish()


if __name__ == "__main__":
    main()
