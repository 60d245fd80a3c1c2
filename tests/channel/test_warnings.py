"""What is allowed and hardly meant is said to whoever subscribes, and stays to be seen."""

from __future__ import annotations

import logging
import warnings

import pytest

from headwater import Config, HeadwaterWarning, Node
from headwater.errors import SubscriptionError

TYPE = "level: f32, b: u8"


def test_an_interest_that_no_event_can_pass_is_a_warning_at_the_callers_line() -> None:
    with Node() as node:
        channel = node.channel("a", TYPE)
        with pytest.warns(HeadwaterWarning, match="no event can pass this interest") as caught:
            subscription = channel.subscribe(print, "b > 300", name="loud")
        assert caught[0].filename == __file__
        message = str(caught[0].message)
        assert "subscription 'loud'" in message and "a value from 0 to 255" in message and "line 1, column 1" in message
        assert len(subscription.warnings) == 1
        report = subscription.report()
        assert report.warnings == tuple(subscription.warnings) and "never true" in str(report)


def test_so_is_one_that_every_event_passes_and_what_is_derived_or_changed() -> None:
    with Node() as node:
        channel = node.channel("a", TYPE)
        with pytest.warns(HeadwaterWarning, match="every event passes this interest"):
            channel.subscribe(print, "b >= 0")
        with pytest.warns(HeadwaterWarning, match="derived channel 'c': .*never equal"):
            channel.derive("c", "level = 0.1")
        subscription = channel.subscribe(print, "b > 3")
        assert subscription.warnings == []
        with pytest.warns(HeadwaterWarning, match="never true"):
            subscription.change(where="b > 300")
        assert len(subscription.warnings) == 1
        subscription.change(where="b > 4")
        assert subscription.warnings == []


def test_whoever_makes_it_an_error_gets_no_subscription() -> None:
    with Node() as node, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HeadwaterWarning):
            node.channel("a", TYPE).subscribe(print, "b > 300", name="loud")
        assert not node.subscriptions
        node.channel("a").subscribe(print, "b > 3", name="loud")


def test_nor_a_change_and_what_is_said_of_history_stays() -> None:
    with Node() as node:
        channel = node.channel("a", TYPE)
        with pytest.warns(HeadwaterWarning, match="history"):
            subscription = channel.subscribe(where="b > 3", history=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(HeadwaterWarning, match="never true"):
                subscription.change(where="b > 300")
        assert subscription.epoch == 1 and [each[:8] for each in subscription.warnings] == ["history:"]
        with channel.source() as source:
            source.publish({"level": 0.0, "b": 4})
        assert subscription.get(timeout=0).b == 4
        subscription.change(where="b > 4")
        assert [each[:8] for each in subscription.warnings] == ["history:"]


def test_a_channel_that_comes_later_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Node() as node, caplog.at_level(logging.WARNING, "headwater"):
        subscription = node.subscribe("a.*", print, "b > 300", name="loud")
        assert not caplog.records
        node.channel("a.one", TYPE)
        node.channel("a.two", TYPE)
        assert [record.message for record in caplog.records if "never true" in record.message][1:] == []
        assert len(subscription.warnings) == 1 and "a.one" in caplog.records[0].message


def test_history_of_a_node_that_keeps_none() -> None:
    with Node() as node:
        channel = node.channel("a", TYPE)
        for history in ("all", 5):
            with pytest.warns(HeadwaterWarning, match=r"history: expected past events .* keeps none of a; give it"):
                channel.subscribe(print, history=history)  # type: ignore[arg-type]
    with Node(config=Config(history=10)) as node:
        assert node.channel("a", TYPE).subscribe(print, history="all").warnings == []


def test_a_batch_of_no_events() -> None:
    with Node() as node:
        for batch in (0, -1):
            with pytest.raises(SubscriptionError, match="batch: expected a number of events from 1 on"):
                node.channel("a", TYPE).subscribe(print, batch=batch)
        node.channel("a").subscribe(print, batch=False)
        node.channel("a").subscribe(print, batch=1)
