"""Interests on Spark: as Columns wherever they can be said so, else as an Arrow function in the workers.

where(frame, interest)      the rows that pass
derive(frame, interest)     the output events of a transformation
outcome(frame, interest)    every row, and true, false or null (undecided)
match(frame, pattern)       the matches of a pattern, by window functions or by runners in the workers
sql(spark, text)            a statement with MATCH_RECOGNIZE in it, over tables and views that Spark knows
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

from typing import TYPE_CHECKING

from headwater.late_names import late_names
from headwater.spark.session import session  # at once: its module has the same name

if TYPE_CHECKING:
    from headwater.spark.column import Unsupported, column_of
    from headwater.spark.declared_frame import declared
    from headwater.spark.frame import Choice, choice, derive, explain, outcome, where
    from headwater.spark.live.packing import interest_options
    from headwater.spark.live.register import register
    from headwater.spark.log import events
    from headwater.spark.log_columns import LOG_META
    from headwater.spark.patterns.matching import match, pattern_choice
    from headwater.spark.patterns.statement import sql
    from headwater.spark.schema import from_dataframe, from_spark_arrow, spark_schema, to_dataframe, to_spark_arrow

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
    "sql",
    "to_dataframe",
    "to_spark_arrow",
    "where",
]

# Where each name is from: imported when it is first asked for. Every Python worker of Spark imports this package, and
# most of them need one module of it.
_MODULES = {
    "headwater.spark.column": "Unsupported column_of",
    "headwater.spark.declared_frame": "declared",
    "headwater.spark.frame": "Choice choice derive explain outcome where",
    "headwater.spark.live.packing": "interest_options",
    "headwater.spark.live.register": "register",
    "headwater.spark.log": "events",
    "headwater.spark.log_columns": "LOG_META",
    "headwater.spark.patterns.matching": "match pattern_choice",
    "headwater.spark.patterns.statement": "sql",
    "headwater.spark.schema": "from_dataframe from_spark_arrow spark_schema to_dataframe to_spark_arrow",
}
if not TYPE_CHECKING:  # to a type checker a name that is not above is an error
    __getattr__ = late_names(__name__, _MODULES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
