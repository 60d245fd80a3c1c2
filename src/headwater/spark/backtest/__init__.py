"""Backtest: what a set of subscriptions would have received of recorded events, and what would have crossed.

backtest(spark, events, subscriptions)     the report: subscriptions, links, nodes, time
load(path), loads(text)                    subscriptions from a TOML or Python file
Subscription(name=..., where=..., at=...)  one of them, made in code
backtest_patterns(spark, log, patterns)    when patterns would have fired, and what would have crossed for them
AskedPattern(name=..., match=..., at=...)  one of them, made in code
compare(spark, events, old, new)           two versions of a filter or pattern, and what only one of them finds
backtest_triggers(spark, log, triggers)    when triggers would have fired over recorded changes of objects
backtest_distributed(spark, log, triggers) the same of triggers over several nodes, and the messages they would take
AskedTrigger(name=..., on=..., when=...)   one of them, made in code
backtest_levels(spark, log, objects, ...)  what replicas would be told at several levels, and how far off they would be
"""

from typing import TYPE_CHECKING

from headwater.late_names import late_names
from headwater.spark.backtest.backtest import backtest  # at once: its module has the same name
from headwater.spark.backtest.report import Backtest, LinkRow, SinkRow, SourceRow, SubscriptionRow, TimeRow, Traffic
from headwater.spark.backtest.subscriptions import Subscription, Subscriptions, load, loads

if TYPE_CHECKING:
    from headwater.spark.backtest.comparison import compare
    from headwater.spark.backtest.levels.report import Deviation, LevelBacktest, LevelRow
    from headwater.spark.backtest.levels.run import backtest_levels
    from headwater.spark.backtest.patterns.asked import AskedPattern
    from headwater.spark.backtest.patterns.report import PatternBacktest, PatternRow
    from headwater.spark.backtest.patterns.run import backtest_patterns
    from headwater.spark.backtest.triggers.asked import AskedTrigger
    from headwater.spark.backtest.triggers.distributed import (
        Cost,
        DistributedBacktest,
        DistributedRow,
        backtest_distributed,
    )
    from headwater.spark.backtest.triggers.report import TriggerBacktest, TriggerRow
    from headwater.spark.backtest.triggers.run import backtest_triggers

__all__ = [
    "AskedPattern",
    "AskedTrigger",
    "Backtest",
    "Cost",
    "Deviation",
    "DistributedBacktest",
    "DistributedRow",
    "LevelBacktest",
    "LevelRow",
    "LinkRow",
    "PatternBacktest",
    "PatternRow",
    "SinkRow",
    "SourceRow",
    "Subscription",
    "SubscriptionRow",
    "Subscriptions",
    "TimeRow",
    "Traffic",
    "TriggerBacktest",
    "TriggerRow",
    "backtest",
    "backtest_distributed",
    "backtest_levels",
    "backtest_patterns",
    "backtest_triggers",
    "compare",
    "load",
    "loads",
]

_MODULES = {
    "headwater.spark.backtest.levels.report": "Deviation LevelBacktest LevelRow",
    "headwater.spark.backtest.levels.run": "backtest_levels",
    "headwater.spark.backtest.comparison": "compare",
    "headwater.spark.backtest.patterns.asked": "AskedPattern",
    "headwater.spark.backtest.patterns.report": "PatternBacktest PatternRow",
    "headwater.spark.backtest.patterns.run": "backtest_patterns",
    "headwater.spark.backtest.triggers.asked": "AskedTrigger",
    "headwater.spark.backtest.triggers.distributed": "Cost DistributedBacktest DistributedRow backtest_distributed",
    "headwater.spark.backtest.triggers.report": "TriggerBacktest TriggerRow",
    "headwater.spark.backtest.triggers.run": "backtest_triggers",
}

if not TYPE_CHECKING:
    __getattr__ = late_names(__name__, _MODULES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
