"""Two versions of a filter, or of a pattern, side by side on recorded events: `compare(spark, events, old, new)`.

On Spark both filters are judged in one pass, as Columns where they can be said so; without it, this process does the
same over the log, and for transformations too. Patterns are run as `backtest_patterns` runs them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from typing import Any

from headwater.errors import ExecutionError
from headwater.interest import Interest
from headwater.patterns.pattern import Pattern
from headwater.patterns.result import MATCH
from headwater.services.library import comparison as local
from headwater.services.library.comparison import OWN, Comparison, named
from headwater.spark.backtest.patterns.asked import AskedPattern
from headwater.spark.backtest.patterns.run import KEPT, backtest_patterns
from headwater.spark.frame import outcome
from headwater.spark.log import events as log_events

_OLD, _NEW = "headwater_old", "headwater_new"


def compare(
    spark: Any,
    events: str | os.PathLike[str] | Any,
    old: Interest[Any] | Pattern,
    new: Interest[Any] | Pattern,
    *,
    channel: str = "",
    examples: int = 10,
) -> Comparison:
    """How many of these events each of two interests passes, and which only one of them does; of two patterns, their
    matches.

    `events` is the folder of a log, with the `channel`, or a DataFrame. With `spark` None this process does it, for a
    log. `examples` of the events that only one passes are kept of each."""
    of_log = isinstance(events, str | os.PathLike)
    if isinstance(old, Pattern) and isinstance(new, Pattern):
        return _patterns(spark, events, old, new, examples)
    if isinstance(old, Pattern) or isinstance(new, Pattern):
        raise ExecutionError("compare: expected two interests, or two patterns, found one of each")
    if spark is None:
        if not of_log:
            raise ExecutionError("compare: expected the folder of a log where there is no Spark session, found a frame")
        return local.compare(old, new, events, channel, examples=examples)
    made = [each for each in (old, new) if each.output is not None]
    if made:
        raise ExecutionError(
            f"compare: expected two filters, found {named(made[0], 'a transformation')}, which makes events of another "
            "type; compare it in this process: spark=None"
        )
    frame = log_events(spark, events, channel, tail=True) if of_log else events
    both = outcome(outcome(frame, old, name=_OLD), new, name=_NEW)
    return _counted(both, Comparison(channel, named(old, "old"), named(new, "new")), examples)


def _patterns(spark: Any, log: Any, old: Pattern, new: Pattern, examples: int) -> Comparison:
    """By when matches are and what they say: who a match is depends on its pattern."""
    asked = [AskedPattern(name="old", match=old), AskedPattern(name="new", match=new)]
    report = backtest_patterns(spark, log, asked, bucket="none")
    rows = report.patterns
    left, right = (Counter(_said(each) for each in row.latest) for row in rows)
    only = [list((one - other).elements()) for one, other in ((left, right), (right, left))]
    most = max(row.matches for row in rows)
    note = "" if most <= KEPT else f"what only one of them finds is of the last {KEPT:,} matches of each"
    return Comparison(
        ", ".join(dict.fromkeys((*old.channels, *new.channels))), named(old, "old"), named(new, "new"), report.events,
        rows[0].matches, rows[1].matches, (left & right).total(), len(only[0]), len(only[1]),
        examples_old=[json.loads(each) for each in only[0][:examples]],
        examples_new=[json.loads(each) for each in only[1][:examples]], note=note,
    )  # fmt: skip


def _said(match: Any) -> str:
    """A match, without who it is."""
    result = {name: value for name, value in match["result"].items() if name != MATCH}
    return json.dumps({"time": match["time"], **result}, default=str)


def _counted(both: Any, blank: Comparison, examples: int) -> Comparison:
    """One job for the numbers, and one for examples of each side."""
    from pyspark.sql import functions as F

    left, right = F.coalesce(F.col(_OLD), F.lit(False)), F.coalesce(F.col(_NEW), F.lit(False))
    row = both.agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(left).alias("old_passed"),
        F.count_if(right).alias("new_passed"),
        F.count_if(left & right).alias("both"),
        F.count_if(left & ~right).alias("only_old"),
        F.count_if(right & ~left).alias("only_new"),
    ).first()
    found: dict[str, Any] = {
        name: int(row[name]) for name in ("events", "old_passed", "new_passed", "both", "only_old", "only_new")
    }
    shown = []
    for wanted, count in ((left & ~right, found["only_old"]), (right & ~left, found["only_new"])):
        rows = both.where(wanted).drop(_OLD, _NEW, "event_day")
        order = [name for name in OWN if name in rows.columns]
        rows = rows.orderBy(*order) if order else rows
        shown.append([each.asDict(recursive=True) for each in rows.limit(examples).collect()] if count else [])
    return replace(blank, **found, examples_old=shown[0], examples_new=shown[1])


__all__ = ["compare"]
