"""Interests on Spark: as Columns wherever they can be said so, else as an Arrow function in the workers.

where(frame, interest)      the rows that pass
derive(frame, interest)     the output events of a transformation
outcome(frame, interest)    every row, and true, false or null (undecided)
choice(interest)            how it runs, and why
explain(interest)           the same in words, with the Column's SQL

spark_schema(record), to_dataframe(spark, type, events), from_dataframe(frame, type)
session(...)                a quiet SparkSession
"""

from headwater.spark.column import Unsupported, column_of
from headwater.spark.frame import Choice, choice, derive, explain, outcome, where
from headwater.spark.schema import from_dataframe, from_spark_arrow, spark_schema, to_dataframe, to_spark_arrow
from headwater.spark.session import session

__all__ = [
    "Choice",
    "Unsupported",
    "choice",
    "column_of",
    "derive",
    "explain",
    "from_dataframe",
    "from_spark_arrow",
    "outcome",
    "session",
    "spark_schema",
    "to_dataframe",
    "to_spark_arrow",
    "where",
]
