"""Options that Spark hands along by itself are not taken for wrong ones."""

from __future__ import annotations

from headwater.spark.live.options import write_options


def test_a_query_with_a_name_of_sparks() -> None:
    # writeStream.queryName("alarms") and every flow of a declarative pipeline
    given = {"log": "events", "channel": "lab.alarm", "queryName": "alarms", "checkpointLocation": "somewhere"}
    made = write_options(given, streaming=True, overwrite=False)
    assert (made.query, made.checkpoint) == (None, "somewhere")
