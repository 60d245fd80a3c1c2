"""What ships for tests of programs: waiting for events without sleeping."""

from __future__ import annotations

import threading

import pytest

from headwater import Event, Node, i64
from headwater.testing import ManualClock, Recorder, eventually


class Number(Event):
    n: i64


def test_a_recorder_keeps_what_comes_and_is_waited_with() -> None:
    with Node(clock=ManualClock()) as node:
        heard: Recorder[Number] = Recorder()
        channel = node.channel("a", Number)
        channel.subscribe(heard, "n > 1", dispatch="pool")
        channel.source().publish_many([Number(n) for n in range(4)])
        assert [event.n for event in heard.wait(2)] == heard.field("n") == [2, 3]
        heard.until(lambda events: events[-1].n == 3)
        with pytest.raises(AssertionError, match=r"3 events did not come, but 2: \[Number\(n=2\), Number\(n=3\)\]"):
            heard.wait(3, timeout=0.0)
        with pytest.raises(AssertionError, match="a five did not come"):
            heard.until(lambda events: any(event.n == 5 for event in events), "a five", timeout=0.0)


def test_what_nothing_tells_of_is_looked_at_again() -> None:
    done = threading.Event()
    threading.Timer(0.01, done.set).start()
    eventually(done.is_set, "the timer")
    with pytest.raises(AssertionError, match="the end of the world did not happen"):
        eventually(lambda: False, "the end of the world", timeout=0.0)
