"""Backtest: what a set of subscriptions would have received of recorded events, and what would have crossed.

backtest(spark, events, subscriptions)     the report: subscriptions, links, nodes, time
load(path), loads(text)                    subscriptions from a TOML or Python file
Subscription(name=..., where=..., at=...)  one of them, made in code
"""

from headwater.spark.backtest.backtest import backtest
from headwater.spark.backtest.report import Backtest, LinkRow, SinkRow, SourceRow, SubscriptionRow, TimeRow, Traffic
from headwater.spark.backtest.subscriptions import Subscription, Subscriptions, load, loads

__all__ = [
    "Backtest",
    "LinkRow",
    "SinkRow",
    "SourceRow",
    "Subscription",
    "SubscriptionRow",
    "Subscriptions",
    "TimeRow",
    "Traffic",
    "backtest",
    "load",
    "loads",
]
