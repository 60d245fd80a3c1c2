"""`spark.read`: one partition per source, with Spark's own filters run where the events are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from headwater.errors import ConfigError, ConfigProblem, InterestError
from headwater.interest import Interest
from headwater.spark.live.filters import narrowed, only, translate
from headwater.spark.live.offsets import flat_seqs
from headwater.spark.live.options import ReadOptions
from headwater.spark.live.packing import package
from headwater.spark.live.places import open_place
from headwater.spark.live.ranges import Range, patiently, read_range
from headwater.types.model import Record


class HeadwaterReader(DataSourceReader):  # type: ignore[misc]
    """Reads a channel's log, each source from where the options say up to what is there now."""

    def __init__(
        self, options: ReadOptions, record: Record, schema: Any, events: Record, interest: Interest | None
    ) -> None:
        self.options, self.record, self.schema = options, record, schema
        self.stateful = interest is not None and interest.stateful
        self.derives = interest is not None and interest.output is not None
        self.package = package(interest) if interest is not None else None
        self.nodes: set[str] | None = None
        self.sources: set[str] | None = None
        self._planning: tuple[Record, Interest | None] | None = (events, interest)
        if self.stateful and options.start != "earliest":
            problem = ConfigProblem(
                "option startingOffsets",
                "earliest",
                "sequence numbers beside an interest with state",
                "its state starts with the first event of a source; leave startingOffsets out and select rows later",
            )
            raise ConfigError([problem])

    def partitions(self) -> list[Range]:
        options = self.options
        spans = patiently(lambda: open_place(options.place).sources(options.channel))
        starts = {} if isinstance(options.start, str) else flat_seqs(options.start)
        ends = None if options.end is None else flat_seqs(options.end)
        ranges = []
        for span in spans:
            key = (span.node, span.source)
            if self.nodes is not None and span.node not in self.nodes:
                continue
            if self.sources is not None and span.source not in self.sources:
                continue
            after = starts.get(key, 0)
            upto = span.last if ends is None else min(span.last, ends.get(key, 0))
            if upto > after:
                ranges.append(Range(span.node, span.source, after, upto, self.package, span.first))
        return ranges

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, Range):  # there was no source: Spark makes one partition of its own
            return iter(())
        options = self.options
        return read_range(
            partition, options.place, options.channel, self.record, self.schema, fail_on_loss=options.fail_on_loss
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planning": None}


class PushingReader(HeadwaterReader):
    """The same, with Spark's filters run at the sources too; Spark evaluates every one of them again.

    Only where it was asked for. Spark 4.3 keeps what it pushed with the loaded DataFrame, and leaves it there: another
    use of the same DataFrame, in the same query or a later one, would see only the rows of the first. Spark itself
    refuses a reader like this one, and says why, unless `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self.nodes, self.sources = only(filters, "event_node"), only(filters, "event_source")
        assert self._planning is not None
        events, interest = self._planning
        if self.stateful or self.derives:  # then they are about what comes out, not what goes in
            return filters
        conditions = [made for made in (translate(f, events) for f in filters) if made is not None]
        try:
            interest = narrowed(interest, conditions, events)
        except InterestError:  # together more than an interest may cost: Spark filters alone
            return filters
        self.package = package(interest) if interest is not None else None
        return filters
