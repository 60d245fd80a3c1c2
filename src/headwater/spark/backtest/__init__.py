"""Backtest: what a set of subscriptions would have received of recorded events, and what would have crossed.

backtest(spark, events, subscriptions)     the report: subscriptions, links, nodes, time
load(path), loads(text)                    subscriptions from a TOML or Python file
Subscription(name=..., where=..., at=...)  one of them, made in code
backtest_patterns(spark, log, patterns)    when patterns would have fired, and what would have crossed for them
AskedPattern(name=..., match=..., at=...)  one of them, made in code
"""

from headwater.spark.backtest.backtest import backtest
from headwater.spark.backtest.patterns.asked import AskedPattern
from headwater.spark.backtest.patterns.report import PatternBacktest, PatternRow
from headwater.spark.backtest.patterns.run import backtest_patterns
from headwater.spark.backtest.report import Backtest, LinkRow, SinkRow, SourceRow, SubscriptionRow, TimeRow, Traffic
from headwater.spark.backtest.subscriptions import Subscription, Subscriptions, load, loads

__all__ = [
    "AskedPattern",
    "Backtest",
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
    "backtest",
    "backtest_patterns",
    "load",
    "loads",
]
