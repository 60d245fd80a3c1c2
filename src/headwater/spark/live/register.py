"""Registering the format by hand, where Spark does not find it by itself."""

from __future__ import annotations

from typing import Any

from headwater.extras import require


def register(spark: Any) -> None:
    """Make `format("headwater")` known to a session, classic or Connect.

    Spark does this by itself where the package `pyspark_headwater` is on the Python path of the driver (of the server,
    with Connect), as it is after `pip install headwater`.
    """
    require("spark", 'format("headwater")')
    from headwater.spark.live.source import HeadwaterSource

    spark.dataSource.register(HeadwaterSource)
