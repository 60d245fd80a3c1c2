"""A backtest without Spark: this process reads the log itself, batch by batch, and judges it with the same code that
Spark's workers run. What is in memory does not grow with the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headwater.spark.backtest import worker
from headwater.spark.backtest.chunk import Chunk
from headwater.spark.backtest.job import LogJob, Plan
from headwater.spark.backtest.subscriptions import Subscriptions
from headwater.spark.backtest.tally import Tally
from headwater.spark.log_columns import LOG_META
from headwater.store.log.reader import ChannelReader
from headwater.store.log.snapshot import Snapshot
from headwater.types import EventType

ROWS = 1 << 17  # of a batch of one source


class LocalLogJob(LogJob):
    """A log, judged in this process."""

    engine = "local"

    def __init__(
        self,
        reader: ChannelReader,
        snapshot: Snapshot,
        type: EventType | None,
        given: Subscriptions,
        width: int | None,
    ) -> None:
        super().__init__(snapshot, type, given, width)
        self.reader = reader

    def judge_files(self, plan: Plan, tally: Tally) -> None:
        chunks = (chunk for task in self.tasks(1) for part in task for chunk in worker.read(part, plan.judge))
        tally.absorb(worker.of_chunks(plan.judge, self.width, chunks))

    def judge_in_order(self, plan: Plan, tail: Sequence[Any]) -> Tally:
        chunks = (Chunk.of(batch, plan.judge) for batch in self._sorted(plan))
        tally = self.tally(plan)
        tally.absorb(worker.of_chunks(plan.judge, self.width, chunks, ordered=True))
        return tally

    def _sorted(self, plan: Plan) -> Iterator[Any]:
        """The events of one source after another, those not at rest among them."""
        there = self.snapshot.table.schema.names
        columns = [name for name in (*LOG_META.values(), *plan.judge.columns) if name in there]
        yield from self.reader.by_source(self.snapshot, columns, rows=ROWS)


__all__ = ["LocalLogJob"]
