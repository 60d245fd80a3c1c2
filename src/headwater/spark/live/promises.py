"""What sources have promised, as rows of a stream: a row with a source and a time, and without a number.

    event_node  event_source  event_seq  event_time
    hall        door          null       10:00:05.2     nothing more of this source was published before that time
    attic       roof          null       null           it is there, and has promised nothing yet

A log says of itself what is in it, not what is still on its way there. How long that takes at most is for the user to
say (the option `promises`): what was published earlier than so long ago is there, or was never published.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition

from headwater.errors import ConfigError, ConfigProblem
from headwater.late import pa
from headwater.spark.live.offsets import Key
from headwater.spark.live.row_shape import arrow_of
from headwater.spark.log_columns import LOG_META

EVERY = 1_000_000  # microseconds: a batch that has promises only is not worth more often

Told = list[tuple[str, str, int | None]]


class Promises(InputPartition):  # type: ignore[misc]
    """The promises of a batch."""

    def __init__(self, told: Told) -> None:
        super().__init__(None)
        self.told = told

    def batch(self, schema: Any) -> Any:
        """Their rows, in the columns of the stream."""
        node, source, when = ([each[at] for each in self.told] for at in range(3))
        values = {LOG_META["node"]: node, LOG_META["source"]: source, LOG_META["time"]: when}
        target = arrow_of(schema)
        columns = [
            pa.array(values[field.name], field.type) if field.name in values else pa.nulls(len(self.told), field.type)
            for field in target
        ]
        return pa.RecordBatch.from_arrays(columns, schema=target)


def now() -> int:
    """In microseconds."""
    return time.time_ns() // 1_000


def promises_between(before: Mapping[Key, int | None], until: Mapping[Key, int | None]) -> Told:
    """What is new in the later ones."""
    changed = ((key, when) for key, when in until.items() if key not in before or before[key] != when)
    return [(*key, when) for key, when in sorted(changed, key=lambda each: each[0])]


def worth_telling(before: Mapping[Key, int | None], until: Mapping[Key, int | None]) -> bool:
    """Whether there is a source that was not known, or one that has gone on for a while."""
    for key, when in until.items():
        known = before.get(key)
        if key not in before or (when is not None and (known is None or when - known >= EVERY)):
            return True
    return False


def check_columns(schema: Any) -> None:
    """Promises are told in the log's own columns."""
    lacking = [name for name in LOG_META.values() if name not in schema.fieldNames()]
    if lacking:
        problem = ConfigProblem(
            "option promises",
            f"the columns {', '.join(LOG_META.values())} in the schema",
            f"a schema without {', '.join(lacking)}",
            "add them, or leave the schema out",
        )
        raise ConfigError([problem])
