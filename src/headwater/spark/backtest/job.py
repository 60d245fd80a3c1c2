"""What a backtest does, whatever does the work: interests are made, events judged, and what was counted added up.

Job        the interests, and the sums
LogJob     of a log: what its footers say, and what is not at rest yet; subclasses judge the files
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import ConfigError, ConfigProblem
from headwater.spark.backtest import worker
from headwater.spark.backtest.chunk import Chunk
from headwater.spark.backtest.judging import Judge, pack
from headwater.spark.backtest.subscriptions import Subscriptions, Wanted, resolve
from headwater.spark.backtest.tally import Tally
from headwater.spark.log_columns import LOG_META
from headwater.store.log.schema import BYTES_RECORD
from headwater.store.log.snapshot import Rested, Snapshot
from headwater.types import EventType, event_type

TASKS = 4  # for each core, so that the last one to end is not waited for long
LEAST = 1 << 17  # events of a task
MOST = 1 << 24


def problem(place: str, expected: str, found: str, hint: str | None = None) -> ConfigError:
    """Something that was asked for is not possible."""
    return ConfigError([ConfigProblem(f"backtest: {place}", expected, found, hint)])


@dataclass
class Plan:
    """What is sent to the workers."""

    package: bytes
    judge: Judge


class Job:
    """Makes the interests, has events judged, and adds up what comes back."""

    engine = ""  # what does the work

    def __init__(self, type: EventType, given: Subscriptions, width: int | None) -> None:
        if not len(given):
            raise problem("subscriptions", "at least one", "none")
        self.type, self.width = type, width
        self.wanted: list[Wanted] = resolve(given, type)
        self.notes: list[str] = []

    def run(self) -> Tally:
        raise AssertionError

    def plan(self, lacking: Iterable[str] = ()) -> Plan:
        package = pack(self.wanted, self.type.record, lacking=lacking)
        return Plan(package, Judge(package))

    def tally(self, plan: Plan) -> Tally:
        return Tally(plan.judge.items, self.width)


class LogJob(Job):
    """Of a log, as a snapshot has it."""

    def __init__(self, snapshot: Snapshot, type: EventType | None, given: Subscriptions, width: int | None) -> None:
        super().__init__(type or snapshot.table.type or event_type(BYTES_RECORD), given, width)
        self.snapshot = snapshot
        self.rested = [part for part in snapshot.parts if isinstance(part, Rested)]

    def run(self) -> Tally:
        lacking, perhaps = self._lacking()
        if lacking:
            self.notes.append(f"required fields that some events lack are missing there: {', '.join(lacking)}")
        plan = self.plan((*lacking, *perhaps))
        tail = list(self._tail(plan.judge))
        if tail:
            count = sum(batch.num_rows for batch in tail)
            self.notes.append(f"{count:,} of the events were not at rest yet")
        if plan.judge.stateful:
            self.notes.append("interests with state: the events were brought into order per source")
            return self.judge_in_order(plan, tail)
        tally = self.tally(plan)
        if tail:  # it is small: at most what one segment of each node has
            chunks = (Chunk.of(batch, plan.judge) for batch in tail)
            tally.absorb(worker.of_chunks(plan.judge, self.width, chunks))
        self.judge_files(plan, tally)
        return tally

    def judge_files(self, plan: Plan, tally: Tally) -> None:
        """Judge what is at rest, in any order."""
        raise AssertionError

    def judge_in_order(self, plan: Plan, tail: Sequence[Any]) -> Tally:
        """Judge everything, each source's events in sequence order; `tail` is what is not at rest."""
        raise AssertionError

    def tasks(self, cores: int) -> list[list[worker.Task]]:
        """What is at rest, as tasks for so many cores."""
        return spread([(str(part.path), [g.rows for g in part.groups]) for part in self.rested], cores)

    def _lacking(self) -> tuple[list[str], list[str]]:
        """Required fields that are null, or not there, in some file, as footers say; and those of which a footer does
        not say, because their statistics are of what is within them."""
        required = [field.name for field in self.type.record.fields if not field.optional]
        found: set[str] = set()
        inner: set[str] = set()
        for part in self.rested:
            found.update(name for name in required if name not in part.schema.names)
            for group in part.footer.row_groups:
                inner.update(path.split(".")[0] for path in group.chunks if "." in path)
                found.update(n for n in required if n in group.chunks and group.chunks[n].nulls != 0)
        table = self.snapshot.table
        for tail in self.snapshot.parts:
            if not tail.at_rest:  # it has no footer, and may be of an older type than the newest
                found.update(name for name in required if name not in table.schema.names)
                for tailing in tail.groups:
                    batch = tail.load(table, tailing.index, required)
                    found.update(name for name in batch.schema.names if batch.column(name).null_count)
        return [n for n in required if n in found], [n for n in required if n in inner and n not in found]

    def _tail(self, judge: Judge) -> Iterator[Any]:
        columns = [*LOG_META.values(), *judge.columns]
        for part in self.snapshot.parts:
            if not part.at_rest:
                for group in part.groups:
                    batch = part.load(self.snapshot.table, group.index, columns)
                    if batch.num_rows:
                        yield batch


def spread(files: Sequence[tuple[str, Sequence[int]]], cores: int) -> list[list[worker.Task]]:
    """The row groups of files (the rows of each), in order, as tasks of about equal numbers of rows."""
    total = sum(sum(groups) for _, groups in files)
    target = min(MOST, max(LEAST, -(-total // (cores * TASKS))))
    tasks: list[list[worker.Task]] = []
    here: list[worker.Task] = []
    rows = 0
    for path, groups in files:
        chosen: list[int] = []
        for number, count in enumerate(groups):
            if not count:
                continue
            if rows and rows + count // 2 > target:
                if chosen:
                    here.append(worker.Task(path, chosen))
                tasks.append(here)
                here, chosen, rows = [], [], 0
            chosen.append(number)
            rows += count
        if chosen:
            here.append(worker.Task(path, chosen))
    if here:
        tasks.append(here)
    return tasks


__all__ = ["Job", "LogJob", "Plan", "problem", "spread"]
