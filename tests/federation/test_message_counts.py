"""How many control messages a federation needs, beside those of SECO: 2n² + 4n for n nodes that come and go, and
4m(n - 1) for m subscriptions of one of them that come and go.

docs/federation-messages.md says what ours are, and why.
"""

from __future__ import annotations

from collections import Counter

import pytest

from headwater import Event, Interest, Node, Subscription, i64
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNEL = "ie.tcd.sighting"
MANY = 6  # subscriptions


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: i64
    room: i64


def counted(made: list[Node]) -> Counter[str]:
    """Over Zenoh by kind, `…_out` as they are said and `…_in` as they arrive; and frames on streams by kind."""
    total: Counter[str] = Counter()
    for node in made:
        assert node._engine is not None
        for kind, each in node._engine.fabric.counters.items():
            total[f"{kind}_out"] += each["messages_out"]
            total[f"{kind}_in"] += each["messages_in"]
        for peer in node._engine.everyone():
            total.update(peer.control_in)
    return +total


def said(counts: Counter[str]) -> int:
    """Messages over Zenoh: a declaration or a publication is one, and so is a question to all, or an answer."""
    return sum(number for kind, number in counts.items() if kind.endswith("_out"))


def settle(node: Node) -> None:
    engine = node._engine
    assert engine is not None
    # Not `ready`, which asks every node what it has: what is counted here is what interests cost.
    assert node.until(lambda: engine.requester.settled(node.channels(), barriers=True), GUARD)


def still(made: list[Node]) -> None:
    """Whatever was asked is answered, and all of it has been counted at both ends."""

    def answered() -> bool:
        counts = counted(made)
        return counts["ask_out"] == counts["ask_in"] and counts["ask_out"] % 2 == 0

    eventually(answered, "the answers to all questions")


def advertised(make: Nodes, count: int) -> list[Node]:
    """Nodes that all have a source of one channel."""
    made = [make(f"n{number}") for number in range(count)]
    make.together()
    for node in made:
        node.channel(CHANNEL, Sighting).source("s")
    make.ready()
    return made


@pytest.mark.parametrize("count", range(2, 9))
def test_nodes_that_come_and_go(count: int) -> None:
    with nodes() as make:
        made = [make(f"n{number}") for number in range(count)]
        make.together()
        pairs = count * (count - 1) // 2

        def arrived() -> bool:
            """Who is known may still have an answer on its way."""
            counts = counted(made)
            return counts["join_in"] == 2 * pairs and counts["roll_out"] == count + counts["roll_in"] // 2

        eventually(arrived, "the arrival of all that was said")
        joined = counted(made)
        for node in reversed(made):
            node.close()
        total = counted(made)
    assert joined["join_out"] == count and joined["join_in"] == 2 * pairs  # each is heard of by each
    # Each pair gets to know each other by one question and one answer: the newcomer's to all, or, where that was before
    # the two were connected, one of its own (which both may ask, if one is slow).
    assert joined["roll_out"] == count + joined["roll_in"] // 2
    assert 4 * pairs >= joined["roll_in"] + joined["ask_in"] >= 2 * pairs
    assert total["leave_out"] == count and total["leave_in"] <= pairs  # who closes next may not hear of it any more
    assert not any(
        joined[kind] for kind in ("post_out", "news_out", "barrier", "announce", "resume")
    )  # nobody wants anything
    seco = 2 * count**2 + 4 * count
    print(f"{count} nodes: {said(total)} said, SECO {seco}")
    assert said(total) < seco
    if not joined["ask_out"]:  # nobody was so slow that both of a pair have asked
        assert said(total) < seco / 2


@pytest.mark.parametrize("count", [2, 5, 8])
def test_subscriptions_that_come_and_go(count: int) -> None:
    with nodes() as make:
        made = advertised(make, count)
        first, others = made[0], count - 1
        channel = first.channel(CHANNEL)
        seco = 4 * MANY * others
        base = counted(made)

        def step() -> Counter[str]:
            """What it took since the last step."""
            nonlocal base
            settle(first)

            def told() -> bool:
                """Who sends counts afterwards: what has come may not be counted there yet."""
                took = counted(made) - base
                return took["ask_out"] >= took["ask_in"] and took["news_out"] * others >= took["news_in"]

            eventually(told, "all that has come to be counted as sent")
            before, base = base, counted(made)
            return base - before

        # All different, one after the other: one question and one answer each, and a barrier.
        subscriptions: list[Subscription] = []
        for number in range(MANY):
            subscriptions.append(channel.subscribe(Log(), f"badge == {number}"))
            took = step()
            assert took["ask_out"] == took["ask_in"] == 2 * others and took["barrier"] == others, took
            assert took["announce"] == (others if number == 0 else 0)
        total = 2 * MANY * others
        for number, subscription in enumerate(subscriptions):
            subscription.cancel()
            ends = others if number == MANY - 1 else 0  # on the streams, which nobody waits for
            eventually(lambda ends=ends: counted(made)["ends"] - base["ends"] >= ends, "the ends of what was asked for")
            took = step()
            assert took["ask_out"] == 2 * others and took["barrier"] == 0 and took["ends"] == ends, took
            total += took["ask_out"]
        assert total == seco  # as many as SECO needs, at worst

        # Covered by the first: nothing is asked.
        subscriptions = [channel.subscribe(Log(), "badge >= 0")]
        total = step()["ask_out"]
        assert total == 2 * others
        for number in range(1, MANY):
            subscriptions.append(channel.subscribe(Log(), f"badge >= {number} and room == {number}"))
            assert not said(step())
        for subscription in reversed(subscriptions):
            subscription.cancel()
            total += said(step())
        assert total == 4 * others == seco / MANY

        # The same interest again and again.
        subscriptions = [channel.subscribe(Log(), "badge == 7") for _ in range(MANY)]
        total = said(step())
        for subscription in subscriptions:
            subscription.cancel()
            total += said(step())
        assert total <= 6 * others < seco

        # On a channel that nobody else has: that its type is known to others is told once, and taken back once.
        subscriptions = [first.channel("elsewhere", Sighting).subscribe(Log(), f"badge == {n}") for n in range(MANY)]
        for there in (True, False):
            if not there:
                for subscription in subscriptions:
                    subscription.cancel()
            for node in made[1:]:
                assert node.until(lambda node=node, there=there: node.has_channel("elsewhere") is there, GUARD)
            took = step()
            assert took["news_out"] == 1 and took["ask_out"] == 2 * others and said(took) == 1 + 2 * others, took

        # Made in one go: they share a question.
        interests = [Interest(f"badge == {number} and room > {number}", Sighting) for number in range(MANY)]
        with first._wiring.lock:
            subscriptions = [channel.subscribe(Log(), each) for each in interests]
        took = step()
        total = said(took)
        assert took["barrier"] <= MANY // 2 * others  # one each, if this program is not held up between them
        with first._wiring.lock:
            for subscription in subscriptions:
                subscription.cancel()
        total += said(step())
        print(f"{count} nodes, {MANY} subscriptions made at once: {total} said, SECO {seco}")
        assert total <= seco / 2


def test_only_nodes_that_have_a_source_are_asked() -> None:
    with nodes() as make:
        made = [make(f"n{number}") for number in range(4)]
        make.together()
        source = made[1].channel(CHANNEL, Sighting).source("s")
        make.ready()
        still(made)
        before = counted(made)
        log = Log()
        made[0].channel(CHANNEL).subscribe(log, "badge == 1")
        settle(made[0])
        still(made)
        took = counted(made) - before
        assert took["ask_out"] == took["ask_in"] == 2 and took["barrier"] == took["announce"] == 1
        for badge in range(100):
            source.publish(badge=badge, room=0)
        log.wait(1)
        make.flush()
        assert said(counted(made) - before) == 2  # events need no control messages


def test_what_a_change_costs() -> None:
    """One message that something has changed, and of each other node a question what, with its answer: once for all
    that changes within a moment."""
    with nodes() as make:
        made = [make(f"n{number}") for number in range(4)]
        make.together()
        make.ready()  # who missed another one's roll call has made up for it
        still(made)
        first, others = made[0], made[1:]
        before = counted(made)
        for count in (1, 50):
            with first._wiring.lock:  # in one moment
                for number in range(count):
                    first.channel(f"{CHANNEL}.{count}.{number}", Sighting).source("s")
            for node in others:
                assert node.until(lambda node=node, count=count: has(node, first, count), GUARD)
            still(made)
            # Others may have heard and asked before who has said it has counted that.
            eventually(lambda before=before: (counted(made) - before)["news_out"] > 0, "what was said to be counted")
            took = counted(made) - before
            assert took["news_out"] == 1 and took["news_in"] == 3 and took["ask_out"] == took["ask_in"] == 2 * 3, took
            before = counted(made)


def has(node: Node, other: Node, count: int) -> bool:
    return all(node.remote_sources(f"{CHANNEL}.{count}.{number}") == [f"s@{other.name}"] for number in range(count))
