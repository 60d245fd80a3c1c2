"""Durable sinks of sources of their own node, where these are logged: through restarts of the node nothing is lost."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Interest, Node, Queue, Reliable, i64
from headwater.testing import eventually
from tests.effort import examples

CHANNEL, DERIVED = "test.count", "test.derived"
THIRD = "{ static int n = 0; n = n + 1; return n % 3 == 0; }"
TWICE = "{ output.n = input.n; output.twice = 2 * input.n; return 1; }"
KINDS = ("channel", "derived", "derived twice")
GUARD = 30.0
Seen = list[tuple[int, bool]]  # numbers, and whether they were said to have come before


class Count(Event, name="test.Count"):
    n: i64


class Double(Event, name="test.Double"):
    n: i64
    twice: i64


def home(path: Path) -> Node:
    return Node("home", log=path / "log", state=path / "state")


def derived(node: Node, where: Any, of: str = CHANNEL, name: str = DERIVED) -> Any:
    known = next((each for each in node.channels() if each.name == name), None)
    return node.channel(of, Count).derive(name, where) if known is None else known


def channel_of(node: Node, kind: str) -> Any:
    """The channel itself, or one that is derived from it and has all of its events."""
    channel = node.channel(CHANNEL, Count)
    if kind == "channel":
        return channel
    if kind == "derived":
        return derived(node, "n >= 0")
    derived(node, "n >= 0")
    return derived(node, Interest(TWICE, Count, output=Double), DERIVED, "test.derived.twice")


def subscribe(node: Node, seen: Seen, kind: str = "channel", **options: Any) -> Any:
    def take(event: Any, about: Any) -> None:
        assert kind != "derived twice" or event.twice == 2 * event.n
        seen.append((event.n, about.redelivered))

    delivery = Reliable(durable=True, **options)
    return channel_of(node, kind).subscribe(take, name="kept", delivery=delivery)


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source_first", [True, False])
@pytest.mark.parametrize("before", [0, 3])
def test_what_its_node_publishes_before_it_is_back_is_for_it(
    before: int, source_first: bool, kind: str, tmp_path: Path
) -> None:
    """And what was published before it was first subscribed is not."""
    seen = Seen()
    with home(tmp_path) as node:
        source = node.channel(CHANNEL, Count).source("s")
        publish(source, 0, before)
        sink = subscribe(node, seen, kind)
        publish(source, before, before + 5)
        sink.cancel()  # as if its node had been killed: nothing more comes to it
        publish(source, before + 5, before + 10)
    with home(tmp_path) as node:
        if not source_first:
            subscribe(node, seen, kind)
        source = node.channel(CHANNEL, Count).source("s")
        if source_first:
            publish(source, before + 10, before + 12)
            subscribe(node, seen, kind)
        publish(source, before + 12 if source_first else before + 10, before + 20)
        eventually(lambda: len(seen) >= 20, "all came")
    assert [n for n, _ in seen] == list(range(before, before + 20))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_acknowledged_comes_again_and_says_so(kind: str, tmp_path: Path) -> None:
    first, second = Seen(), Seen()
    with home(tmp_path) as node:
        source = node.channel(CHANNEL, Count).source("s")
        sink = subscribe(node, first, kind, acknowledge="manual")
        publish(source, 0, 5)
        eventually(lambda: len(first) == 5, "all came")
        assert not any(again for _, again in first)
        sink.cancel()
    with home(tmp_path) as node:
        source = node.channel(CHANNEL, Count).source("s")
        subscribe(node, second, kind, acknowledge="manual").acknowledge()
        publish(source, 5, 8)
        eventually(lambda: len(second) >= 8, "all came again")
    assert second == [(n, n < 5) for n in range(8)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_is_closed_and_made_again_shows_nothing_twice(kind: str, tmp_path: Path) -> None:
    seen = Seen()
    with home(tmp_path) as node:
        subscribe(node, seen, kind)
        for life in range(3):
            source = node.channel(CHANNEL, Count).source("s")
            publish(source, life * 5, life * 5 + 5)
            source.close()
        eventually(lambda: len(seen) >= 15, "all came")
    assert [n for n, _ in seen] == list(range(15))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [None, "n % 2 == 0"])
def test_what_a_paused_sink_cannot_keep_stays_in_the_log(where: str | None, kind: str, tmp_path: Path) -> None:
    """Its queue is short: the rest is read from the log when it goes on, in order, with what comes meanwhile; twice."""
    wanted = [n for n in range(500) if where is None or n % 2 == 0]
    with Node("lab", log=tmp_path / "log", state=tmp_path / "state") as lab:
        source, seen = lab.channel(CHANNEL, Count).source("s"), list[int]()
        kept: dict[str, Any] = {"delivery": Reliable(durable=True), "queue": Queue(limit=20)}
        sink = channel_of(lab, kind).subscribe(lambda event: seen.append(event.n), where, name="mail", **kept)
        for first in (0, 200):
            publish(source, first, first + 50)
            sink.pause()
            publish(source, first + 50, first + 200)
            sink.resume()
        publish(source, 400, 500)
        lab.flush()
        assert lab.until(lambda: len(seen) >= len(wanted), 60.0)
        assert seen == wanted


def test_of_a_derived_channel_that_counts_a_sink_has_what_others_there_had_meanwhile(tmp_path: Path) -> None:
    """The channel goes on counting while one of its sinks is away, or paused with a queue that is full: what that has
    from the log is judged by the same count."""
    with home(tmp_path) as node:
        source, first, late = node.channel(CHANNEL, Count).source("s"), list[int](), list[int]()
        publish(source, 0, 2)  # of these the channel has not heard
        thirds = derived(node, THIRD)

        def comes() -> Any:
            return thirds.subscribe(
                lambda event: late.append(event.n), name="late", delivery=Reliable(durable=True), queue=Queue(limit=5)
            )

        thirds.subscribe(lambda event: first.append(event.n), name="first", delivery=Reliable(durable=True))
        sink = comes()
        publish(source, 2, 30)
        sink.cancel()
        publish(source, 30, 70)
        sink = comes()
        publish(source, 70, 100)
        sink.pause()
        publish(source, 100, 200)
        sink.resume()
        publish(source, 200, 230)
        wanted = list(range(4, 230, 3))
        eventually(lambda: len(first) >= len(wanted) and len(late) >= len(wanted), f"all came: {late}")
        assert first == late == wanted


def test_a_derived_channel_that_counts_goes_on_where_its_only_sink_was(tmp_path: Path) -> None:
    """With the last sink, or the process, its count ends: it begins anew where the sink goes on, in the log."""
    seen = list[int]()
    for life in range(3):
        with home(tmp_path) as node:
            source = node.channel(CHANNEL, Count).source("s")
            publish(source, life * 60, life * 60 + 30)
            sink = derived(node, THIRD).subscribe(
                lambda event: seen.append(event.n), name="late", delivery=Reliable(durable=True)
            )
            publish(source, life * 60 + 30, life * 60 + 45)
            wanted = list(range(32, life * 60 + 45, 3))
            eventually(lambda wanted=wanted: len(seen) >= len(wanted), "all came")  # type: ignore[misc]
            sink.cancel()
            publish(source, life * 60 + 45, life * 60 + 60)
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
@given(steps=STEPS, manual=st.booleans(), limit=st.sampled_from([4, 64]), kind=st.sampled_from(KINDS))
def test_whatever_is_handed_over_twice_is_marked_and_nothing_else(
    steps: list[tuple[str, int]], manual: bool, limit: int, kind: str
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
        channel = channel_of(node, kind)
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
