"""A virtual world over three nodes: A wants to know who comes near, B and C move. `python examples/eco_world.py`

It is the smallest world of the ECO model (events, constraints, objects): one subscription, two raised events of which
one satisfies the constraint, and one unsubscription. Here the three nodes are in one process, which changes nothing.
"""

from __future__ import annotations

import threading

from headwater import Event, Node, i64


class Moved(Event, name="eco.Moved"):
    entity: str
    x: i64
    y: i64


came = threading.Event()


def handler(event: Moved) -> None:
    print(f"A hears: {event.entity} is at ({event.x}, {event.y})")
    came.set()


def interests(node: Node) -> str:
    """What other nodes have asked of this one's sources."""
    found = [
        f"{each.interest!r} of {peer.name.upper()}"
        for peer in node.federation_report().peers
        for each in peer.installed
    ]
    return ", ".join(found) or "no constraint"


with (
    Node("a", listen="tcp/127.0.0.1:0") as a,
    Node("b", connect=a.endpoints[0]) as b,
    Node("c", connect=a.endpoints[0]) as c,
):
    # B and C are able to raise events of this type: each is a source, and all nodes get to know that.
    raisers = {node.name: node.channel("eco.moved", Moved).source(node.name) for node in (b, c)}
    a.until(lambda: len(a.remote_sources("eco.moved")) == 2)
    print("A knows of", a.remote_sources("eco.moved"))

    # 1. A subscribes; its constraint goes to B and C, and to nobody else.
    subscription = a.channel("eco.moved").subscribe(handler, "x > 10 and y > 10", name="near")
    a.ready()
    print(f"B has {interests(b)}, C has {interests(c)}; in force after {subscription.points}")

    # 2. B raises an event that satisfies the constraint: it is delivered to A.
    raisers["b"].publish(entity="B", x=20, y=20)
    came.wait(10)

    # 3. C raises one that does not: it is judged at C, and never leaves it.
    raisers["c"].publish(entity="C", x=20, y=5)
    c.flush()
    for counts in sorted(a.remote_counts(subscription), key=lambda each: each.node):
        print(f"at {counts.node.upper()}: {counts.evaluated} evaluated, {counts.crossed} sent")

    # 4. A unsubscribes, which removes the constraint from B and C.
    gone = [threading.Event(), threading.Event()]
    for node, event in zip((b, c), gone, strict=True):
        node.subscribe("headwater.interests", lambda _, event=event: event.set(), "change == 'withdrawn'")
    subscription.cancel()
    for event in gone:
        event.wait(10)
    print(f"B has {interests(b)}, C has {interests(c)}")
    raisers["b"].publish(entity="B", x=30, y=30)  # goes nowhere
