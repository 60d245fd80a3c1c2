"""What Spark runs for each group of partitions in each batch of a stream: its state, what was sent, and matches out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headwater.spark.patterns.group import Group
from headwater.spark.patterns.sending import SENT

FOUND = "_m"  # the column of what was found: batches of matches, as bytes


class Matching(StatefulProcessor):  # type: ignore[misc]
    """The state of a group is one value. There are no timers of Spark's: a promise of the sources is what moves time,
    and every group is told of each."""

    def __init__(self, package: bytes, fingerprint: bytes, groups: int, *, identified: bool) -> None:
        self.package, self.fingerprint, self.groups, self.identified = package, fingerprint, groups, identified
        self._state: Any = None

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("pattern", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        held = self._state.get()
        group = Group(
            self.package,
            self.fingerprint,
            self.groups,
            None if held is None else bytes(held[0]),
            identified=self.identified,
        )
        group.take(bytes(row[SENT]) for row in rows)
        found = group.release()
        self._state.update((group.dump(),))
        return iter([Row(**{FOUND: batch}) for batch in found])

    def close(self) -> None:
        """Nothing is held between batches but the state."""
