"""Runs queries in Flink. Flink's own Python starts it; it knows nothing of Headwater, and is told by lines what to do.

A line on standard input is a request, as JSON: a table (its columns, its file, its time), a query, and whether its rows
are wanted or only how long it takes. The answer is one line on what standard output was before Java could write to it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

FRAMES = 3  # causes of an error that are told


def environment(streaming: bool) -> Any:
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    configuration = Configuration()
    for name, value in (
        ("parallelism.default", "1"),
        ("taskmanager.numberOfTaskSlots", "1"),
        ("pekko.ask.timeout", "600 s"),
        ("table.local-time-zone", "UTC"),
    ):
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().with_configuration(configuration)
    return TableEnvironment.create((settings.in_streaming_mode() if streaming else settings.in_batch_mode()).build())


def table(env: Any, request: dict[str, Any]) -> None:
    """The table over the file. The watermark stays a millisecond behind: an event at the watermark itself is late."""
    columns = [f"`{name}` {type}" for name, type in request["columns"]]
    time_column = request["time"]
    columns.append(f"WATERMARK FOR `{time_column}` AS `{time_column}` - INTERVAL '0.001' SECOND")
    env.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS `{request['table']}`")
    env.execute_sql(
        f"CREATE TEMPORARY TABLE `{request['table']}` ({', '.join(columns)}) WITH ('connector' = 'filesystem', "
        f"'path' = 'file://{request['file']}', 'format' = 'csv', 'csv.null-literal' = '\\N')"
    )


def rows(env: Any, query: str) -> dict[str, Any]:
    began = time.perf_counter()
    result = env.execute_sql(query)
    names = result.get_table_schema().get_field_names()
    with result.collect() as found:
        listed = [[_plain(value) for value in row] for row in found]
    return {"columns": list(names), "rows": listed, "seconds": time.perf_counter() - began}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def timed(env: Any, query: str) -> dict[str, Any]:
    """How long a query takes whose rows nobody wants; of the job itself, as Flink measures it, without planning."""
    schema = env.sql_query(query).get_schema()
    columns = ", ".join(
        f"`{name}` {type}"
        for name, type in zip(schema.get_field_names(), map(_sql_type, schema.get_field_data_types()), strict=True)
    )
    env.execute_sql("DROP TEMPORARY TABLE IF EXISTS nowhere")
    env.execute_sql(f"CREATE TEMPORARY TABLE nowhere ({columns}) WITH ('connector' = 'blackhole')")
    began = time.perf_counter()
    result = env.execute_sql(f"INSERT INTO nowhere {query}")
    job = result.get_job_client().get_job_execution_result().result()
    return {"seconds": time.perf_counter() - began, "job": job.get_net_runtime() / 1000}


def _sql_type(type: Any) -> str:
    return (
        str(type._j_data_type.getLogicalType().asSerializableString())
        if hasattr(type, "_j_data_type")
        else _named(type)
    )


def _named(type: Any) -> str:
    from pyflink.table.types import _to_java_data_type  # type: ignore[import-not-found]

    return str(_to_java_data_type(type).getLogicalType().asSerializableString())


def answer(envs: dict[bool, Any], request: dict[str, Any]) -> dict[str, Any]:
    streaming = bool(request.get("streaming", True))
    env = envs.get(streaming) or envs.setdefault(streaming, environment(streaming))
    table(env, request)
    return timed(env, request["query"]) if request.get("timed") else rows(env, request["query"])


def refused(error: BaseException) -> str:
    """What Java says: the messages of an error and of its causes, without their frames."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line and not line.startswith(("at ", "..."))]
    return "\n".join(causes[-FRAMES * 4 :])


def main() -> None:
    """Java writes to the standard output of its parent: answers go to a copy of it that Java does not have."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    envs: dict[bool, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            said = answer(envs, request)
        except Exception as error:
            said = {"refused": refused(error)}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
