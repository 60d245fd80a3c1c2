"""What a backtest says would cross is what crosses, as live nodes count it."""

from __future__ import annotations

from headwater import Interest, Network, Node
from headwater.interest import as_event_type
from headwater.spark.backtest.subscriptions import Wanted
from tests.spark.backtest.support import START
from tests.spark.backtest.test_worker import Row, run

READING = as_event_type("level: i32")
EVERY_SECOND = "{ static int n = 0; n = n + 1; return n % 2 == 0; }"
COUNT = 60


def wanted() -> list[Wanted]:
    """A filter, and of all kinds that run at the source by themselves two that are the same."""
    half = Interest("{ output.half = input.level; return input.level < 20; }", READING, output="half: i32")
    alone = [Interest(EVERY_SECOND, READING), Interest("meta.seq > 50", READING), half]
    some = [Interest("level >= 30", READING), Interest("level >= 40", READING), *alone, *alone]
    return [Wanted(f"w{number}", "desk", interest) for number, interest in enumerate(some)]


def test_what_crosses_live_in_a_batch() -> None:
    some = wanted()
    events = [{"level": level} for level in range(COUNT)]
    found = run(READING, some, [Row("hall", "s", seq, START, event) for seq, event in enumerate(events, 1)])
    assert found.merged.events == 30 + 2 * 30 + 10 + 20
    network = Network(listen=("tcp/127.0.0.1:0",), federation="crossing")
    with Node("hall", network=network) as hall, Node("desk", connect=hall.endpoints, federation="crossing") as desk:
        source = hall.channel("lab.reading", READING).source("s")
        counts = dict.fromkeys([each.name for each in some], 0)
        for each in some:

            def count(_: object, name: str = each.name) -> None:
                counts[name] += 1

            desk.channel("lab.reading", READING).subscribe(count, each.interest, name=each.name)
        assert desk.until(lambda: bool(desk.remote_sources("lab.reading")), 10.0) and desk.ready(10.0)
        source.publish_many(READING.to_arrow(events))
        assert hall.flush(10.0) and desk.flush(10.0)
        crossed = sum(lane.sent for peer in hall.federation_report().peers for lane in peer.lanes)
    assert counts == {row.name: row.events for row in found.subscriptions}
    assert crossed == found.merged.events
