"""Interests on Spark: as Columns wherever they can be said so, else as an Arrow function in the workers.

where(frame, interest)      the rows that pass
derive(frame, interest)     the output events of a transformation
outcome(frame, interest)    every row, and true, false or null (undecided)
match(frame, pattern)       the matches of a pattern, by window functions or by runners in the workers
pattern_choice(pattern)     which of the two, and why
declared(frame, type)       a DataFrame with its columns told, for where Spark must not be asked (pipelines)
choice(interest)            how it runs, and why
explain(interest)           the same in words, with the Column's SQL
LOG_META                    the columns in which a log has what the service knew of each event
events(spark, log, channel) a channel's log as a DataFrame
register(spark)             the format "headwater" by hand, where Spark does not find it by itself
interest_options(interest)  an interest as options of that format

spark_schema(record), to_dataframe(spark, type, events), from_dataframe(frame, type)
session(...)                a quiet SparkSession
"""

from headwater.spark.column import Unsupported, column_of
from headwater.spark.declared_frame import declared
from headwater.spark.frame import LOG_META, Choice, choice, derive, explain, outcome, where
from headwater.spark.live import interest_options, register
from headwater.spark.log import events
from headwater.spark.patterns.matching import match, pattern_choice
from headwater.spark.schema import from_dataframe, from_spark_arrow, spark_schema, to_dataframe, to_spark_arrow
from headwater.spark.session import session

__all__ = [
    "LOG_META",
    "Choice",
    "Unsupported",
    "choice",
    "column_of",
    "declared",
    "derive",
    "events",
    "explain",
    "from_dataframe",
    "from_spark_arrow",
    "interest_options",
    "match",
    "outcome",
    "pattern_choice",
    "register",
    "session",
    "spark_schema",
    "to_dataframe",
    "to_spark_arrow",
    "where",
]
