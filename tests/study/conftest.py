"""The Spark session of the tests of that room."""

from tests.spark.conftest import spark

__all__ = ["spark"]
