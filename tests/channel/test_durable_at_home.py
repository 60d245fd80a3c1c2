"""Durable sinks of sources of their own node, where these are logged: through restarts of the node nothing is lost."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Node, Queue, Reliable, i64
from headwater.testing import eventually
from tests.effort import examples

CHANNEL = "test.count"
GUARD = 30.0
Seen = list[tuple[int, bool]]  # numbers, and whether they were said to have come before


class Count(Event, name="test.Count"):
    n: i64


def home(path: Path) -> Node:
    return Node("home", log=path / "log", state=path / "state")


def subscribe(node: Node, seen: Seen, **options: Any) -> Any:
    def take(event: Count, about: Any) -> None:
        seen.append((event.n, about.redelivered))

    delivery = Reliable(durable=True, **options)
    return node.channel(CHANNEL, Count).subscribe(take, name="kept", delivery=delivery)


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


@pytest.mark.parametrize("source_first", [True, False])
@pytest.mark.parametrize("before", [0, 3])
def test_what_its_node_publishes_before_it_is_back_is_for_it(before: int, source_first: bool, tmp_path: Path) -> None:
    """And what was published before it was first subscribed is not."""
    seen = Seen()
    with home(tmp_path) as node:
        source = node.channel(CHANNEL, Count).source("s")
        publish(source, 0, before)
        sink = subscribe(node, seen)
        publish(source, before, before + 5)
        sink.cancel()  # as if its node had been killed: nothing more comes to it
        publish(source, before + 5, before + 10)
    with home(tmp_path) as node:
        if not source_first:
            subscribe(node, seen)
        source = node.channel(CHANNEL, Count).source("s")
        if source_first:
            publish(source, before + 10, before + 12)
            subscribe(node, seen)
        publish(source, before + 12 if source_first else before + 10, before + 20)
        eventually(lambda: len(seen) >= 20, "all came")
    assert [n for n, _ in seen] == list(range(before, before + 20))


def test_what_was_not_acknowledged_comes_again_and_says_so(tmp_path: Path) -> None:
    first, second = Seen(), Seen()
    with home(tmp_path) as node:
        source = node.channel(CHANNEL, Count).source("s")
        sink = subscribe(node, first, acknowledge="manual")
        publish(source, 0, 5)
        eventually(lambda: len(first) == 5, "all came")
        assert not any(again for _, again in first)
        sink.cancel()
    with home(tmp_path) as node:
        source = node.channel(CHANNEL, Count).source("s")
        subscribe(node, second, acknowledge="manual").acknowledge()
        publish(source, 5, 8)
        eventually(lambda: len(second) >= 8, "all came again")
    assert second == [(n, n < 5) for n in range(8)]


def test_a_source_that_is_closed_and_made_again_shows_nothing_twice(tmp_path: Path) -> None:
    seen = Seen()
    with home(tmp_path) as node:
        subscribe(node, seen)
        for life in range(3):
            source = node.channel(CHANNEL, Count).source("s")
            publish(source, life * 5, life * 5 + 5)
            source.close()
        eventually(lambda: len(seen) >= 15, "all came")
    assert [n for n, _ in seen] == list(range(15))


@pytest.mark.parametrize("where", [None, "n % 2 == 0"])
def test_what_a_paused_sink_cannot_keep_stays_in_the_log(where: str | None, tmp_path: Path) -> None:
    """Its queue is short: the rest is read from the log when it goes on, in order, with what comes meanwhile; twice."""
    wanted = [n for n in range(500) if where is None or n % 2 == 0]
    with Node("lab", log=tmp_path / "log", state=tmp_path / "state") as lab:
        source, seen = lab.channel(CHANNEL, Count).source("s"), list[int]()
        kept: dict[str, Any] = {"delivery": Reliable(durable=True), "queue": Queue(limit=20)}
        sink = lab.channel(CHANNEL).subscribe(lambda event: seen.append(event.n), where, name="mail", **kept)
        for first in (0, 200):
            publish(source, first, first + 50)
            sink.pause()
            publish(source, first + 50, first + 200)
            sink.resume()
        publish(source, 400, 500)
        lab.flush()
        assert lab.until(lambda: len(seen) >= len(wanted), 60.0)
        assert seen == wanted


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 12)),
        st.tuples(st.just("acknowledge"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["cancel", "drain", "source", "restart", "pause", "resume"]), st.just(0)),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=examples(30))
@given(steps=STEPS, manual=st.booleans(), limit=st.sampled_from([4, 64]))
def test_whatever_is_handed_over_twice_is_marked_and_nothing_else(
    steps: list[tuple[str, int]], manual: bool, limit: int
) -> None:
    """The sink is cancelled, drained, paused, subscribed again; its source is made again, its node started again."""
    seen: Seen = []
    abouts: list[Any] = []

    def take(event: Count, about: Any) -> None:
        seen.append((event.n, about.redelivered))
        abouts.append(about)

    def join(node: Node) -> Any:
        delivery = Reliable(durable=True, acknowledge="manual" if manual else "return")
        abouts.clear()
        channel = node.channel(CHANNEL, Count)
        return channel.subscribe(take, name="kept", delivery=delivery, queue=Queue(limit=limit))

    published = 0
    with TemporaryDirectory() as folder:
        node = home(Path(folder))
        sink, source = join(node), node.channel(CHANNEL, Count).source("s")
        for what, number in [*steps, ("resume", 0), ("cancel", 0)]:
            match what:
                case "publish":
                    publish(source, published, published + number)
                    published += number
                case "acknowledge" if abouts and manual and sink.state == "open":
                    abouts[min(number, len(abouts) - 1)].acknowledge()
                case "cancel" | "drain":
                    sink.cancel(drain=what == "drain")
                    sink = join(node)
                case "source":
                    source.close()
                    source = node.channel(CHANNEL, Count).source("s")
                case "restart":
                    node.close()
                    node = home(Path(folder))
                    sink, source = join(node), node.channel(CHANNEL, Count).source("s")
                case "pause" if sink.state == "open":
                    sink.pause()
                case "resume":
                    sink.resume()
        assert node.until(lambda: {n for n, _ in seen} == set(range(published)), GUARD), (published, seen)
        node.close()
    had: set[int] = set()
    for n, redelivered in seen:
        assert redelivered == (n in had), (n, seen)
        had.add(n)
    last = -1
    for n, redelivered in seen:
        assert redelivered or n == last + 1, seen
        last = max(n, last)
