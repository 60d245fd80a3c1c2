"""Run by `test_connect.py` in a process of its own: classic Spark and Spark Connect do not share one."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from headwater.spark import derive, outcome, session, where
from tests.spark import test_frame as t
from tests.spark.live.connected import reads_streams_and_publishes


def main(folder: Path) -> None:
    warnings.simplefilter("error")
    zone: dict[str, Any] = {"spark.sql.session.timeZone": "America/New_York", "spark.driver.memory": "1g"}
    spark = session("headwater-connect", remote="local[2]", **zone)
    assert "connect" in type(spark).__module__
    gives_the_same_answers(spark)
    reads_streams_and_publishes(spark, folder)
    spark.stop()
    sys.stdout.write("agreed\n")


def gives_the_same_answers(spark: Any) -> None:
    rows = t.to_dataframe(spark, t.READING, t.EVENTS).coalesce(1)
    assert t.levels(where(rows, t.condition(t.loud))) == [0.7]
    assert t.levels(where(rows, t.program(t.counting))) == [0.9, 0.1]
    assert [row.outcome for row in outcome(rows, t.condition(t.loud)).collect()] == [True, False, False, False]
    for body in (t.doubling_columns, t.doubling_with_loop):
        assert derive(rows, t.program(body, output=t.OUT)).count() == 2
    known = rows.selectExpr("*", "'s' AS _source", "monotonically_increasing_id() AS _seq")
    meta = {"source": "_source", "seq": "_seq"}
    assert where(known, t.program(t.every_second), meta=meta).count() == 2


if __name__ == "__main__":
    main(Path(sys.argv[1]))
