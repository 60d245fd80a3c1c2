"""A link that may drop: how many events it keeps, which, and that each has its own number and time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, u32
from headwater.channel.options.config import Queue
from headwater.federation.network import Network
from tests.federation.nodes import Log, nodes
from tests.federation.pairs import Held, pair

LINK = 100


class Count(Event, name="ie.tcd.Count"):
    n: u32


@pytest.mark.parametrize("more", [0, 10, 40])
@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("limit", [20, LINK])
def test_a_link_that_drops(policy: Any, limit: int, more: int) -> None:
    """It keeps about as many as it may, and whatever comes has the number that it was published with."""
    log, last = Log(), 640 + more
    with nodes() as make:
        network = Network(listen=("tcp/127.0.0.1:0",), link=Queue(limit=limit, policy=policy))
        source, a, there, _ = pair(make, Count, lambda event, about: log((event.n, about.seq)), network=network)
        assert source.publish(Count(n=1)) == 1
        log.wait(1)
        assert a.flush(10.0)
        with Held(there):
            for n in range(2, last + 1):
                source.publish(Count(n=n))
            lane = next(iter(there.lanes()))
            assert lane.waiting <= limit + 64
        assert a.flush(10.0)
        log.wait(last - lane.dropped)
        got = [n for n, _ in log.events]
        assert all(n == seq for n, seq in log.events)
        kept = len(got) - 1
        assert limit <= kept == last - 1 - lane.dropped
        assert got == [1, *(range(last - kept + 1, last + 1) if policy == "drop_oldest" else range(2, kept + 2))]


def test_batches_at_a_link_that_drops_the_oldest() -> None:
    log = Log()
    with nodes() as make:
        network = Network(listen=("tcp/127.0.0.1:0",), link=Queue(limit=LINK, policy="drop_oldest"))
        source, a, there, _ = pair(make, Count, lambda event: log(event.n), network=network)
        with Held(there):
            for start in range(0, 600, 60):
                source.publish_many(pa.table({"n": pa.array(range(start, start + 60), pa.uint32())}))
            lane = next(iter(there.lanes()))
            assert (lane.waiting, lane.dropped) == (LINK, 500)
        assert a.flush(10.0)
        assert log.wait(LINK) == list(range(500, 600))


def test_an_event_after_a_while_has_its_own_time() -> None:
    log = Log()
    with nodes() as make:
        source, a, there, _ = pair(make, Count, lambda event, about: log(about._stamp))
        source.publish(Count(n=1))
        log.wait(1)
        assert a.flush(10.0)
        with Held(there):
            before = a._stamp()
            source.publish(Count(n=2))
        assert log.wait(2)[1] >= before
