"""The Spark session of the tests of that room."""

from tests.spark.conftest import java_errors, spark

__all__ = ["java_errors", "spark"]
