"""One source's range of sequence numbers: what a task reads, and how."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pyspark.sql.datasource import InputPartition

from headwater.errors import EncodeError, EvolutionError, LinkDown, Unreachable
from headwater.interest import Interest
from headwater.late import pc
from headwater.spark.live.loss import Missing, tell_of_loss
from headwater.spark.live.options import Place
from headwater.spark.live.packing import unpack
from headwater.spark.live.places import open_place
from headwater.spark.live.row_shape import arrow_of, shaped
from headwater.store.log.interest_scan import Judge
from headwater.store.log.log_reader import Batches, LogReader
from headwater.types.model import Record

ATTEMPTS = 6  # of reaching a node, over a few seconds, before a task fails
_SEQ = "event_seq"
T = TypeVar("T")


class Range(InputPartition):  # type: ignore[misc]
    """Events `after` < seq <= `upto` of one source, judged by a packed interest. When it was planned, the source's log
    went back to `first`, or further: what lacks of that when it is read was lost."""

    def __init__(
        self, node: str, source: str, after: int, upto: int, interest: str | None, first: int | None = None
    ) -> None:
        super().__init__(None)
        self.node, self.source, self.after, self.upto, self.interest = node, source, after, upto, interest
        self.first = after + 1 if first is None else max(first, after + 1)

    def missing(self, removed: list[tuple[int, int]]) -> list[Missing]:
        """Of what was removed, what was there when this was planned."""
        lost = [(max(self.first, first), min(self.upto, last)) for first, last in removed]
        return [(self.node, self.source, first, last) for first, last in lost if first <= last]


def patiently(ask: Callable[[], T]) -> T:
    """What a node answers; one that is away for a moment is asked again."""
    for attempt in range(ATTEMPTS):
        try:
            return ask()
        except (Unreachable, LinkDown):
            if attempt + 1 == ATTEMPTS:
                raise
            _wait(attempt)
    raise AssertionError("the last attempt returns or raises")


def _wait(attempt: int) -> None:
    time.sleep(0.1 * 2**attempt * (1 + random.random()))


def read_range(
    part: Range, place: Place, channel: str, record: Record, schema: Any, *, fail_on_loss: bool
) -> Iterator[Any]:
    """The range's batches in Spark's types. After a node was away, reading goes on where it stopped.

    What retention has removed since the range was planned is an error, before anything of the batch is committed, or
    (`fail_on_loss` false) a warning."""
    target = arrow_of(schema)
    columns = record.by_name
    asked = [f.name for f in record.fields if f.name != _SEQ]
    interest = unpack(part.interest) if part.interest is not None else None
    reached, attempt = part.after, 0
    lost: dict[Missing, None] = {}  # in order, each once, however often it is tried
    while True:
        found: Batches | None = None
        try:
            log = open_place(place)
            # A stateful interest must see its source from the beginning, also when it is read again.
            after = part.after if interest is not None and interest.stateful else reached
            found, judge = _reading(log, place, channel, part, after, interest, asked)
            for batch in found:
                if judge is not None:
                    batch = judge(batch)
                if reached > after:
                    batch = batch.filter(pc.greater(batch.column(_SEQ), reached))
                if batch.num_rows == 0:
                    continue
                yield shaped(batch.select([n for n in batch.schema.names if n in columns]), record, target)
                reached, attempt = batch.column(_SEQ)[-1].as_py(), 0
            lost |= dict.fromkeys(part.missing(found.removed))
            tell_of_loss(channel, lost, fail=fail_on_loss)
            return
        except (Unreachable, LinkDown):
            lost |= dict.fromkeys(part.missing(found.removed) if found is not None else ())
            attempt += 1
            if attempt == ATTEMPTS:
                raise
            _wait(attempt)
        except EncodeError as error:
            raise EvolutionError(
                f"{channel}: its type has changed since this query was planned, and has values that do not fit",
                [f"{error}; load it again: a stream goes on where it was, with the new type"],
            ) from None


def _reading(
    log: LogReader, place: Place, channel: str, part: Range, after: int, interest: Interest | None, names: list[str]
) -> tuple[Batches, Judge | None]:
    """The columns wanted of the events that pass, and the number by which reading goes on; and what is still to judge
    them."""
    # What a transformation makes is asked for whole.
    columns = None if interest is not None and interest.output is not None else [*names, _SEQ]
    if interest is None or not interest.stateful or place.log is not None:
        return log.read(channel, part.node, part.source, after, part.upto, interest=interest, columns=columns), None
    # Nodes do not run what has state over part of a log: it is run here, over all of it.
    judge = Judge(interest, log.schema(channel), columns=columns)
    return log.read(channel, part.node, part.source, after, part.upto, columns=judge.needs), judge
