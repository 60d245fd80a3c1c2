"""The ECO world: entities A, B and C; A subscribes with a constraint, B and C raise events, A unsubscribes.

The constraint goes to B and C. The event of B satisfies it and is delivered; that of C does not, and never leaves C.
After the unsubscription neither B nor C has the constraint any more, and events raised then go nowhere.
"""

from __future__ import annotations

from headwater import Event, i64
from tests.federation.nodes import GUARD, Log, eventually, nodes
from tests.federation.processes import world

CHANNEL = "eco.moved"


class Moved(Event, name="eco.Moved"):
    entity: str
    x: i64
    y: i64


def test_the_world_in_one_process() -> None:
    with nodes() as make:
        a, b, c = make("a"), make("b"), make("c")
        make.together()
        raisers = {node.name: node.channel(CHANNEL, Moved).source(node.name) for node in (b, c)}
        happened = {node.name: Log() for node in (b, c)}
        for node in (b, c):
            node.subscribe("headwater.interests", happened[node.name])
        handler = Log()

        # 1. A's constraint goes to B and C
        subscription = a.channel(CHANNEL, Moved).subscribe(handler, "x > 10 and y > 10")
        make.ready(a)
        for node in (b, c):
            told = happened[node.name].wait(1)[0]
            assert (told.change, told.node, told.channel, told.here) == ("installed", "a", CHANNEL, True)
            assert told.interest == "x > 10 and y > 10"
        assert subscription.points == {f"{CHANNEL}/b@b": 0, f"{CHANNEL}/c@c": 0} and not subscription.refused

        # 2. B raises an event that satisfies it, 3. C one that does not
        assert b._engine is not None and c._engine is not None
        quiet = {node.name: {peer.name: peer.bytes_out for peer in node._engine.everyone()} for node in (b, c)}  # type: ignore[union-attr]
        raisers["b"].publish(entity="B", x=20, y=20)
        raisers["c"].publish(entity="C", x=20, y=5)
        handler.wait(1)
        make.flush()
        assert handler.events == [Moved(entity="B", x=20, y=20)]
        crossed = {
            node.name: sum(lane.passed for peer in node._engine.everyone() for lane in peer.lanes()) for node in (b, c)
        }  # type: ignore[union-attr]
        assert crossed == {"b": 1, "c": 0}
        for node in (b, c):
            for peer in node._engine.everyone():  # type: ignore[union-attr]
                grew = peer.bytes_out > quiet[node.name][peer.name]
                assert grew == (node is b and peer.name == "a"), f"{node.name} to {peer.name}"
        by_node = {each.node: (each.evaluated, each.crossed) for each in a.remote_counts(subscription)}
        assert by_node == {"b": (1, 1), "c": (1, 0)}

        # 4. A unsubscribes, and the constraint is removed from B and C
        subscription.cancel()
        for node in (b, c):
            told = happened[node.name].wait(2)[1]
            assert (told.change, told.node, told.interest) == ("withdrawn", "a", "x > 10 and y > 10")
            assert all(not peer.crossings for peer in node._engine.everyone())  # type: ignore[union-attr]
        before = b._engine.everyone()[0].bytes_out
        raisers["b"].publish(entity="B", x=30, y=30)
        assert b._engine.everyone()[0].bytes_out == before and handler.events == [Moved(entity="B", x=20, y=20)]


def test_the_world_in_three_processes() -> None:
    with world() as made:
        made.open("a")
        made.open("b", "c", seeds=["a"])
        a = made["a"]
        for name in ("b", "c"):
            made[name]("channel", name=CHANNEL, type="entity: text, x: i64, y: i64")
            made[name]("source", channel=CHANNEL, name=name)
        assert a("sees", channel=CHANNEL, sources=["b@b", "c@c"]) is True
        a("subscribe", channel=CHANNEL, name="handler", where="x > 10 and y > 10")
        assert a("ready") is True
        assert [made[name]("wishes", channel=CHANNEL) for name in ("b", "c")] == [{"a": 1}, {"a": 1}]
        made["b"]("publish", source="b", events=[{"entity": "B", "x": 20, "y": 20}])
        made["c"]("publish", source="c", events=[{"entity": "C", "x": 20, "y": 5}])
        eventually(lambda: bool(a("rows", name="handler")), "the event of B", GUARD)
        assert made["b"]("flush") is True and made["c"]("flush") is True
        rows = [["b", 1, {"entity": "B", "x": 20, "y": 20}]]
        assert a("rows", name="handler") == rows
        assert (made["b"]("crossed"), made["c"]("crossed")) == (1, 0)
        a("cancel", name="handler")
        assert [made[name]("wishes", channel=CHANNEL, wanted=0) for name in ("b", "c")] == [{}, {}]
        made["b"]("publish", source="b", events=[{"entity": "B", "x": 30, "y": 30}])
        assert made["b"]("crossed") == 0  # the lane is gone with the interest
        assert a("rows", name="handler") == rows
