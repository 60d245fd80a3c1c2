"""What Java has loaded after a little of everything that tests do with Spark, kept in a file of the environment.

A Java that begins with that file need not find, read and check thousands of classes again: it starts in about half the
processor time. Tests start many (a session, a cluster, the examples). Java leaves the file aside where it was made by
another Java or for other jars; without it everything runs as well, more slowly."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "java.jsa"
# Java runs for seconds in a test: optimising what it runs would cost more than it saves. Without that it has a small
# place for the code it makes; a session of many tests fills it, goes on uncompiled, and ends for want of it.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
SILENT = "-Xlog:cds*=off"  # else Java says on its standard output why it does without a file
GUARD = 600.0  # seconds, against hanging
LITTLE_OF_EVERYTHING = """
import sys
import subprocess
from headwater.spark.session import session
folder = sys.argv[1]
spark = session("archive", master="local[2]", **{"spark.connect.grpc.binding.port": "0"})
rows = spark.range(200).selectExpr("id", "id % 7 as k", "cast(id as string) as s", "array(id, 1) as a",
                                   "timestamp_micros(id) as t", "named_struct('x', id / 2) as r")
rows.write.partitionBy("k").parquet(f"{folder}/p")
read = spark.read.parquet(f"{folder}/p")
read.groupBy("k").agg({"id": "sum", "s": "max"}).join(read.select("k", "s"), "k").orderBy("s").collect()
read.mapInArrow(lambda batches: batches, read.schema).toArrow()
read.selectExpr("row_number() over (partition by k order by t) as n", "explode(a) as e", "to_json(r) as j").collect()
rows.select("s").write.text(f"{folder}/t")
spark.read.text(f"{folder}/t").selectExpr("from_json(value, 'v int') as v", "split(value, ',') as c").distinct().count()
spark.createDataFrame(rows.toArrow()).unionByName(rows).createOrReplaceTempView("v")
spark.sql("select k, percentile_approx(id, 0.5) from v where s like '1%' group by k").collect()
stream = spark.readStream.schema(read.schema).parquet(f"{folder}/p")
query = stream.writeStream.foreachBatch(lambda frame, _: frame.count())
query.option("checkpointLocation", f"{folder}/c").trigger(availableNow=True).start().awaitTermination()
for name in ("master.Master", "master.ui.MasterWebUI", "worker.Worker", "worker.ExecutorRunner",
             "worker.ui.WorkerWebUI", "client.StandaloneAppClient", "PythonRunner", "SparkPipelines"):
    spark._jvm.java.lang.Class.forName(f"org.apache.spark.deploy.{name}")
server = getattr(getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
server.start(spark._jsc.sc())
subprocess.run([sys.executable, "-c", sys.argv[2], f"sc://127.0.0.1:{server.localPort()}", folder])
spark.stop()
"""
# The same of a server that others connect to, and of a pipeline.
CONNECTED = """
import os, sys
from pathlib import Path
from pyspark.pipelines import cli
from pyspark.sql import SparkSession
remote, folder = sys.argv[1:]
os.environ["SPARK_REMOTE"] = remote
spark = SparkSession.builder.remote(remote).getOrCreate()
rows = spark.read.parquet(f"{folder}/p")
rows.groupBy("k").agg({"id": "sum"}).orderBy("k").collect()
spark.createDataFrame(rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()).selectExpr("id + 1").count()
query = spark.readStream.schema(rows.schema).parquet(f"{folder}/p").writeStream.format("parquet")
query = query.options(path=f"{folder}/o", checkpointLocation=f"{folder}/d").trigger(availableNow=True)
query.start().awaitTermination()
project = Path(folder) / "project"
project.mkdir()
(project / "flows.py").write_text(f'''
from pyspark import pipelines as dp

@dp.table
def taken():
    return spark.readStream.schema("id bigint, s string").parquet("{folder}/p")

@dp.materialized_view
def counted():
    return spark.read.table("taken").groupBy("s").count()
''')
spec = project / "spark-pipeline.yaml"
spec.write_text(f"name: archive\\nstorage: {project.as_uri()}/storage\\nlibraries: [glob: {{include: flows.py}}]\\n")
cli.run(spec, [], False, [], False)
"""


def options() -> str:
    """How tests start Java."""
    return f'{QUICK} -XX:SharedArchiveFile="{ARCHIVE}" {SILENT}' if ARCHIVE.exists() else QUICK


def _where() -> dict[str, str]:
    """Classes are kept by the files that they come from: those of the Spark that tests start."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools.spark_home import home

    found = home()
    return {} if found is None else {"SPARK_HOME": str(found)}


def make(archive: Path) -> None:
    """Runs that in a Java that writes the file when it ends. It is written beside its place, and is there whole or not
    at all: Java leaves it so that it cannot be written over."""
    made = archive.with_name(f"{archive.name}.{os.getpid()}")
    writing = f'{QUICK} -XX:ArchiveClassesAtExit="{made}" {SILENT}'
    try:
        with tempfile.TemporaryDirectory(prefix="headwater-archive-") as folder:
            subprocess.run(
                [sys.executable, "-c", LITTLE_OF_EVERYTHING, folder, CONNECTED],
                env={**os.environ, "JDK_JAVA_OPTIONS": writing, **_where()},
                cwd=folder,
                check=True,
                timeout=GUARD,
                capture_output=True,  # this waits for Java as well, which writes the file as the last thing it does
            )
        made.replace(archive)
    finally:
        made.unlink(missing_ok=True)


if __name__ == "__main__":
    make(ARCHIVE)
