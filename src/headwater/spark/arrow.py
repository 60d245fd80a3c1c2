"""The Arrow function: what cannot be a Column runs natively in Spark's Python workers, batch by batch.

The functions handed to Spark hold bytes (`worker.pack`) and names, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.ir.nodes import Program
from headwater.late import pa
from headwater.spark import worker
from headwater.spark.schema import spark_schema

_STRUCT = "_headwater"


@dataclass(frozen=True, slots=True)
class Job:
    """A program with its raw parameters, and SQL text for the columns and the meta that it reads."""

    program: Program
    params: Mapping[str, Any]
    fuel: int
    columns: Mapping[str, str]
    meta: Mapping[str, str]

    @property
    def package(self) -> bytes:
        return worker.pack(self.program, self.params, fuel=self.fuel)

    def struct(self) -> Any:
        """One struct column of just what is read; the meta are named with a prefix."""
        from pyspark.sql import functions as F

        parts = [F.expr(text).alias(which) for which, text in self.columns.items()]
        parts += [F.expr(text).alias(worker.META_PREFIX + which) for which, text in self.meta.items()]
        return F.struct(*(parts or [F.lit(None).cast("int").alias("nothing")]))


def verdict(job: Job) -> Any:
    """A boolean Column that asks the workers: true, false, or null for undecided."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    # Not "boolean": Connect has the server read a type's name, and a declarative pipeline's refuses to be asked.
    return F.arrow_udf(_verdicts(job.package), T.BooleanType())(job.struct())


def _verdicts(package: bytes) -> Callable[[Any], Any]:
    def headwater_interest(rows: pa.Array) -> pa.Array:
        return worker.verdicts(package, rows)

    # Spark reads the annotations to tell what kind of function this is.
    headwater_interest.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return headwater_interest


def derived(frame: Any, job: Job) -> Any:
    """The output events, in the output type's Spark schema."""
    assert job.program.output is not None
    package = job.package

    def headwater_transformation(batches: Iterator[Any]) -> Iterator[Any]:
        return worker.outputs(package, batches, _STRUCT)

    rows = frame.select(job.struct().alias(_STRUCT))
    return rows.mapInArrow(headwater_transformation, spark_schema(job.program.output))


def in_order(frame: Any, job: Job, mode: str, *, name: str = "outcome") -> Any:
    """A program with state: each source's rows in sequence order, in one task. Memory stays bounded by the batch.

    Where nodes are known, a source is one of a node: another node's source of the same name has a state of its own."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    package = job.package
    if mode == "derive":
        assert job.program.output is not None
        schema, rows = spark_schema(job.program.output), frame.select(job.struct().alias(_STRUCT))
    else:
        schema, rows = frame.schema, frame.withColumn(_STRUCT, job.struct())
        if mode == "outcome":
            schema = T.StructType([*schema.fields, T.StructField(name, T.BooleanType(), True)])

    def headwater_stateful(batches: Iterator[Any]) -> Iterator[Any]:
        return worker.in_order(package, batches, mode, _STRUCT, name)

    known = [which for which in ("node", "source") if which in job.meta]
    *source, seq = (F.col(_STRUCT).getField(worker.META_PREFIX + which) for which in (*known, "seq"))
    return rows.repartition(*source).sortWithinPartitions(*source, seq).mapInArrow(headwater_stateful, schema)


__all__ = ["Job", "derived", "in_order", "verdict"]
