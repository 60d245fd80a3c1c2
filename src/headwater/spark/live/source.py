"""The data source itself: what Spark creates for `format("headwater")`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from headwater.interest import Interest
from headwater.spark.live.options import ReadOptions, read_options, write_options
from headwater.spark.live.packing import wanted_interest
from headwater.spark.live.places import open_place, type_of
from headwater.spark.live.ranges import patiently
from headwater.spark.live.row_shape import log_record, picked
from headwater.spark.schema import spark_schema
from headwater.types import EventType
from headwater.types.model import Record


class HeadwaterSource(DataSource):  # type: ignore[misc]
    """`format("headwater")`: read, readStream, write and writeStream of a channel."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> Any:
        # Spark does not say yet whether this will be a batch or a stream.
        type, interest = self._asked(read_options(self.options, streaming=None))
        return spark_schema(_record(type, interest))

    def reader(self, schema: Any) -> Any:
        from headwater.spark.live.reader import HeadwaterReader, PushingReader

        options = read_options(self.options, streaming=False)
        type, interest = self._asked(options)
        kind = PushingReader if options.push else HeadwaterReader
        return kind(options, picked(_record(type, interest), schema), schema, type.record, interest)

    def streamReader(self, schema: Any) -> Any:
        from headwater.spark.live.stream import HeadwaterStreamReader

        options = read_options(self.options, streaming=True)
        type, interest = self._asked(options)
        return HeadwaterStreamReader(options, picked(_record(type, interest), schema), schema, type.record, interest)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from headwater.spark.live.writer import HeadwaterWriter

        return HeadwaterWriter(write_options(self.options, streaming=False, overwrite=overwrite), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from headwater.spark.live.writer import HeadwaterStreamWriter

        return HeadwaterStreamWriter(write_options(self.options, streaming=True, overwrite=overwrite), schema)

    @staticmethod
    def _asked(options: ReadOptions) -> tuple[EventType, Interest | None]:
        place, channel = options.place, options.channel
        type = patiently(lambda: type_of(open_place(place), place, channel))
        return type, wanted_interest(options.wanted, type)


def _record(type: EventType, interest: Interest | None) -> Record:
    return log_record(interest.output if interest is not None and interest.output is not None else type)
