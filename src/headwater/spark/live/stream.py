"""`readStream`: one partition per source; offsets are sequence numbers; each range has its own interest."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headwater.errors import ChannelError, ExecutionError, StoreError
from headwater.interest import Interest
from headwater.spark.live.loss import tell_of_loss
from headwater.spark.live.offsets import Key, Offset, flat_seqs, shares
from headwater.spark.live.options import ReadOptions
from headwater.spark.live.packing import loose, package, unpack
from headwater.spark.live.places import open_place
from headwater.spark.live.promises import Promises, check_columns, now, promises_between, worth_telling
from headwater.spark.live.ranges import Range, patiently, read_range
from headwater.store.log.reader import Span
from headwater.types.model import Record

_log = logging.getLogger("headwater.spark")


class HeadwaterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans ranges on the driver and reads them in the tasks."""

    def __init__(
        self, options: ReadOptions, record: Record, schema: Any, events: Record, interest: Interest | None
    ) -> None:
        if interest is not None and interest.stateful:
            raise ExecutionError(
                "option where: this interest has state, which a stream of ranges does not carry from one to the next. "
                "Subscribe to the channel where it is published (its state is kept at the source), read the channel "
                'as a batch with spark.read.format("headwater"), or keep the state in Spark: read the stream without '
                "the interest and use transformWithState"
            )
        if options.promises is not None:
            check_columns(schema)
        self.options, self.record, self.schema, self.events = options, record, schema, events
        self.package = package(interest) if interest is not None else None
        self._target: dict[Key, int] | None = None
        self._target_time = 0
        self._planned: dict[str, Any] | None = None

    # ── offsets ──

    def initialOffset(self) -> dict[str, Any]:
        start = self.options.start
        if start == "latest":
            return Offset({_key(span): span.last for span in self._sources()}).to_json()
        return Offset({} if start == "earliest" else flat_seqs(start)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target_time = now()  # before the logs are looked at: what comes later was published later
        self._target = {_key(span): span.last for span in self._sources()}

    def reportLatestOffset(self) -> dict[str, Any]:
        return Offset({_key(span): span.last for span in self._sources()}).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Up to where the next batch may read: as far as the logs have it, and no more than the limit. A source whose
        log begins later than it was read to has lost something; one whose log ends earlier is another log."""
        before = Offset.from_json(start)
        after, begins, lasts = dict(before.seqs), dict[Key, int](), dict[Key, int]()
        lost: dict[Key, list[int]] = {}
        time = now() if self._target is None else self._target_time
        spans = {_key(span): span for span in self._sources()}
        for key, span in spans.items():
            last = span.last if self._target is None else min(span.last, self._target.get(key, 0))
            if key not in before.seqs:
                if last < span.first:
                    continue
                after[key] = begins[key] = span.first - 1
            elif span.last < before.seqs[key]:
                self._replaced(key, span, before.seqs[key])
                continue
            elif span.first > before.seqs[key] + 1:
                lost[key] = [before.seqs[key] + 1, span.first - 1]
                after[key] = begins[key] = span.first - 1
            lasts[key] = max(last, after[key])
        for key, seen in before.ahead.items():
            # Nodes come and go, but a source does not leave a folder unless retention took all of it.
            if key not in spans and self.options.place.log is not None and seen > before.seqs.get(key, 0):
                lost[key] = [before.seqs.get(key, 0) + 1, seen]
                after[key] = begins[key] = lasts[key] = seen
        if lost:
            self._report(lost)
        uptos = self._admitted(limit, spans, after, lasts, before.turn)
        promised = self._promised(before, uptos, lasts, spans, time)
        still = all(before.seqs.get(key) == upto for key, upto in uptos.items())
        if still and not worth_telling(before.promised, promised):
            return start
        ahead = {key: last for key, last in lasts.items() if last > uptos.get(key, after[key])}
        kept = {key: seen for key, seen in before.ahead.items() if key not in lasts}
        begins = {key: begin for key, begin in begins.items() if key in uptos}
        turn = before.turn + limit.max_rows if isinstance(limit, ReadMaxRows) and ahead else before.turn
        end = Offset({**before.seqs, **uptos}, begins, {**kept, **ahead}, lost, self.package, turn, promised).to_json()
        self._planned = end
        return end

    def _promised(
        self, before: Offset, uptos: dict[Key, int], lasts: dict[Key, int], spans: dict[Key, Span], time: int
    ) -> dict[Key, int | None]:
        """What each source has promised once this batch is read. One that the limit cut short, or whose node is away,
        promises no more than it did."""
        delay = self.options.promises
        if delay is None:
            return {}
        promised = dict(before.promised)
        for key in spans:
            whole = uptos.get(key) == lasts[key] if key in lasts else key not in before.seqs  # else it was replaced
            known = promised.setdefault(key, None)
            if whole and (known is None or known < time - delay):
                promised[key] = time - delay
        return promised

    def _admitted(
        self, limit: ReadLimit, spans: dict[Key, Span], after: dict[Key, int], lasts: dict[Key, int], turn: int
    ) -> dict[Key, int]:
        """The number up to which each source is read, so that all together keep to the limit."""
        if not isinstance(limit, ReadMaxRows):
            return lasts
        waiting = {key: last - after[key] for key, last in lasts.items() if last > after[key]}
        granted = shares(limit.max_rows, waiting, turn=turn)
        uptos = {}
        for key, last in lasts.items():
            if key not in granted or granted[key] >= waiting[key]:
                uptos[key] = last
            elif granted[key]:
                uptos[key] = self._reach(spans[key], after[key], last, granted[key])
        return uptos

    def _reach(self, span: Span, after: int, last: int, count: int) -> int:
        """The number of the `count`-th event after `after`: where numbers have gaps it lies further than `count`."""
        numbers = span.last - span.first + 1
        if span.events is None or span.events >= numbers:
            return min(last, after + count)
        if self.options.place.log is None:  # not worth asking a node for every number: about as many
            return min(last, after + max(count, count * numbers // max(1, span.events)))
        log = open_place(self.options.place)
        for batch in log.read(self.options.channel, span.node, span.source, after, last, columns=["event_seq"]):
            if count <= batch.num_rows:
                return int(batch.column("event_seq")[count - 1].as_py())
            count -= batch.num_rows
        return last

    def _sources(self) -> Sequence[Span]:
        place, channel = self.options.place, self.options.channel
        try:
            found: Sequence[Span] = patiently(lambda: open_place(place).sources(channel))
        except ChannelError:
            if place.log is not None:
                raise
            return ()  # its nodes are away, and the query waits for them
        return found

    # ── what is not there any more ──

    def _report(self, lost: dict[Key, list[int]]) -> None:
        missing = ((node, source, first, last) for (node, source), (first, last) in lost.items())
        tell_of_loss(self.options.channel, missing, fail=self.options.fail_on_loss)

    def _replaced(self, key: Key, span: Span, seq: int) -> None:
        message = (
            f"{self.options.channel}: {key[0]}/{key[1]} was read up to {seq}, but {self.options.place} has it only up "
            f"to {span.last}: it was replaced or cut"
        )
        if self.options.fail_on_loss:
            raise StoreError(
                f"{message}. Use another checkpointLocation, or wait until it has passed {seq} with "
                '.option("failOnDataLoss", "false")'
            )
        _log.warning("%s; waiting until it passes %d, as failOnDataLoss is false", message, seq)

    # ── ranges ──

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Range | Promises]:
        before, until = Offset.from_json(start), Offset.from_json(end)
        interest = until.interest if until.interest == self.package else self._recorded(until.interest)
        ranges = []
        for (node, source), upto in until.seqs.items():
            after = until.begins.get((node, source), before.seqs.get((node, source), 0))
            if upto > after:
                ranges.append(Range(node, source, after, upto, interest))
        told = promises_between(before.promised, until.promised)
        if ranges and end != self._planned:  # planned before this driver started: the log may have changed since
            self._still_there(ranges)
        return [*ranges, Promises(told)] if told else ranges

    def _still_there(self, ranges: list[Range]) -> None:
        spans = {_key(span): span for span in self._sources()}
        lost = {}
        for part in ranges:
            span = spans.get((part.node, part.source))
            if span is not None and span.first > part.after + 1:
                lost[part.node, part.source] = [part.after + 1, min(part.upto, span.first - 1)]
            elif span is None and self.options.place.log is not None:
                lost[part.node, part.source] = [part.after + 1, part.upto]
        if lost:
            self._report(lost)

    def _recorded(self, packed: str | None) -> str | None:
        """The interest that a range was planned with, on today's type. It must give the columns of this query."""
        old = unpack(packed) if packed is not None else None
        new = unpack(self.package) if self.package is not None else None
        outputs = [i.output.record.fields if i is not None and i.output is not None else None for i in (old, new)]
        if outputs[0] != outputs[1]:
            raise ExecutionError(
                "option output: this checkpoint has a batch under way whose interest gives other columns than the one "
                "asked for now. Run the query once with the interest it had, so that the batch is finished, or use "
                "another checkpointLocation"
            )
        return None if old is None else package(old.on(loose(self.events)))

    def read(self, partition: Range | Promises) -> Iterator[Any]:
        options = self.options
        if isinstance(partition, Promises):
            return iter([partition.batch(self.schema)])
        return read_range(
            partition, options.place, options.channel, self.record, self.schema, fail_on_loss=options.fail_on_loss
        )

    def commit(self, end: dict[str, Any]) -> None:
        """Logs keep events as long as their retention says, whoever has read them."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_target": None, "_planned": None}


def _key(span: Span) -> Key:
    return span.node, span.source
