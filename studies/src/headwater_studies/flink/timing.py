"""How long Flink takes for `A X*? B` and `A B+ C` within a time, by partition, on one core.

    HEADWATER_FLINK=build/flink python -m headwater_studies.flink.timing 1000000

One event in a hundred begins a match. Reading the file is timed by itself as well, and told beside: it is no part of
matching, and Flink reads text slowly.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater_studies.flink.engine import Flink, Table, at, write_events

CHANNEL = "readings"
COLUMNS = (("id", "BIGINT"), ("k", "BIGINT"), ("kind", "BIGINT"), ("v", "BIGINT"), ("ts", "TIMESTAMP(3)"))
EVENT = "id: i64, k: i64, kind: i64, v: i64, ts: timestamp"
PARTITIONS = 1_000
BEGIN, END = 1, 2  # kinds: one event in a hundred is of each, all others are of none
PER_SECOND = 1_000  # events, of all partitions together
WITHIN = 60  # seconds, in which a partition has about as many events
SEED = 15

SEQUENCE = (
    f"SELECT * FROM {CHANNEL} MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, B.id AS b "
    "ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW "
    f"PATTERN (A X*? B) WITHIN INTERVAL '{WITHIN}' SECOND DEFINE A AS kind = {BEGIN}, B AS kind = {END})"
)
REPETITION = (
    f"SELECT * FROM {CHANNEL} MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
    "MEASURES A.id AS a, COUNT(B.id) AS n, SUM(B.v) AS total, C.id AS c "
    "ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW "
    f"PATTERN (A B+ C) WITHIN INTERVAL '{WITHIN}' SECOND "
    f"DEFINE A AS kind = {BEGIN}, B AS kind <> {END} AND SUM(B.v) < 1000, C AS kind = {END})"
)
READING = f"SELECT id FROM {CHANNEL} WHERE v < 0"  # which no event is

Row = tuple[int, int, int, int, int]  # the time in milliseconds


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a query on one core, and those of reading the file alone."""

    events: int
    seconds: float
    reading: float

    @property
    def events_per_second(self) -> float:
        """Of matching alone."""
        return self.events / max(self.seconds - self.reading, 1e-9)


def rows(count: int) -> Iterator[Row]:
    """The same ones each time, in the order of their times."""
    chance = random.Random(SEED)
    for number in range(count):
        draw = chance.random()
        kind = BEGIN if draw < 0.01 else END if draw < 0.02 else 0
        yield number, chance.randrange(PARTITIONS), kind, chance.randrange(100), number * 1_000 // PER_SECOND


def write(path: Path, count: int) -> Table:
    return Table(CHANNEL, COLUMNS, "ts", write_events(path, ((*row[:-1], at(row[-1] * 1_000)) for row in rows(count))))


def time_query(flink: Flink, table: Table, query: str, count: int, *, streaming: bool = True) -> Timed:
    """Each the better of two, the first of which warms Java up."""
    seconds, reading = (
        min(flink.seconds(table, text, streaming=streaming) for _ in range(2)) for text in (query, READING)
    )
    return Timed(count, seconds, reading)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with Flink() as flink:
        table = write(flink.folder / "timed.csv", count)
        for name, query in (("A X*? B", SEQUENCE), ("A B+ C", REPETITION)):
            for streaming in (True, False):
                timed = time_query(flink, table, query, count, streaming=streaming)
                mode = "streaming" if streaming else "batch"
                print(
                    f"{name}, {mode}: {count:,} events in {timed.seconds:.1f} s, {timed.reading:.1f} s of it reading; "
                    f"{timed.events_per_second:,.0f} events/s without reading, {count / timed.seconds:,.0f} with it",
                    flush=True,
                )


if __name__ == "__main__":
    main()
