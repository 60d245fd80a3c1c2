"""One function that wants everything: the same behaviour whether machine code calls it or Python does."""

from __future__ import annotations

import gc
import inspect
import logging
import pydoc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from types import BuiltinFunctionType, MethodType
from typing import Any

import pytest

import headwater.channel.source as source_module
from headwater import Channel, Event, Node, Queue, Source, Subscription, f32, i64
from headwater.channel.concurrency.reentrancy import DEPTH, NEST, running
from headwater.channel.routing.fast_path import SAMPLE_EVERY, SAMPLE_MASK
from headwater.errors import ClosedError, EncodeError, QueueFull
from tests.channel.concurrency import GUARD, Threads, conserved


class Number(Event, frozen=True):
    n: i64
    text: str = ""


class Rounded(Event):
    x: f32


class Grid(Event):
    cells: list[i64]


class More(Number, frozen=True):
    """An instance of a class derived from the channel's."""


@pytest.fixture(params=["machine code", "Python"])
def native(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    monkeypatch.setattr(source_module, "NATIVE", request.param == "machine code")
    yield request.param == "machine code"
    assert NEST == [None]


@pytest.fixture
def node(native: bool) -> Iterator[Node]:
    with Node() as made:
        yield made


def numbers(events: list[Any]) -> list[int]:
    return [event.n for event in events]


def calls_directly() -> bool:
    """Asked by a handler: whether Python code of ours called it."""
    return sys._getframe(2).f_code.co_name not in ("call", "_deliver_plain", "_deliver")


def lone(channel: Channel, handler: Any, **options: Any) -> tuple[Source, Subscription]:
    sink = channel.subscribe(handler, **options)
    return channel.source(), sink


def test_help_shows_what_publish_is_at_the_class_and_at_a_source(node: Node) -> None:
    source = node.channel("a", Number).source()
    with_facts = node.channel("a").source("other", facts={"n": 1})
    said = inspect.getdoc(Source.publish)
    assert said is not None and said.startswith("Publish one event: an instance, a dict, or its fields as keywords.")
    for publish in (source.publish, with_facts.publish):
        assert inspect.getdoc(publish) == said and publish.__name__ == "publish"
        parameters = dict(inspect.signature(publish).parameters)
        assert [(name, each.kind) for name, each in parameters.items()] == [
            ("event", inspect.Parameter.POSITIONAL_ONLY),
            ("fields", inspect.Parameter.VAR_KEYWORD),
        ]
        assert said in pydoc.plain(pydoc.render_doc(publish)).replace("    ", "")
    assert said.splitlines()[0] in pydoc.plain(pydoc.render_doc(Source.publish))


def test_who_calls(node: Node, native: bool) -> None:
    direct = []
    source, _ = lone(node.channel("a", Number), lambda event: direct.append(calls_directly()))
    assert type(source.publish) is (BuiltinFunctionType if native else MethodType)
    for n in range(200):
        source.publish(Number(n))
    assert direct == [native and bool((n + 1) & SAMPLE_MASK) for n in range(200)]


def test_events_in_order_numbered_and_counted(node: Node) -> None:
    got: list[Any] = []
    source, sink = lone(node.channel("a", Number), got.append)
    events = [Number(n) for n in range(1000)]
    assert [source.publish(event) for event in events] == list(range(1, 1001))
    assert all(a is b for a, b in zip(got, events, strict=True))
    assert source.seq == source.report().published == 1000
    counts = sink.counts
    assert (counts.evaluated, counts.passed, counts.delivered) == (1000, 1000, 1000)
    assert (counts.rejected, counts.undecided, counts.failed, counts.dropped) == (0, 0, 0, 0)
    assert sink.report().latency.count == 1000 // SAMPLE_EVERY


def test_all_ways_of_publishing(node: Node) -> None:
    got: list[Any] = []
    source, sink = lone(node.channel("a", Number), got.append)
    assert source.publish(Number(1)) == 1
    assert source.publish({"n": 2}) == 2
    assert source.publish(n=3, text="x") == 3
    assert source.publish(More(4)) == 4
    assert source.publish_many([Number(5), Number(6)]) == 6
    assert numbers(got) == [1, 2, 3, 4, 5, 6] and {type(event) for event in got} == {Number}
    assert sink.counts.delivered == 6 and conserved(sink)


def test_what_is_not_as_decoded_is_decoded(node: Node) -> None:
    got: list[Any] = []
    source, _ = lone(node.channel("a", Rounded), got.append)
    source.publish(event := Rounded(0.1))
    assert got == [Rounded(0.10000000149011612)] and got[0] is not event
    grid, _ = lone(node.channel("b", Grid), got.append)
    grid.publish(event := Grid([1, 2]))
    assert got[1] == event and got[1] is not event and got[1].cells is not event.cells


def test_a_sink_with_another_type(node: Node) -> None:
    class Less(Event):
        n: i64

    got: list[Any] = []
    channel = node.channel("a", Number)
    channel.subscribe(got.append, type=Less)
    source = channel.source()
    source.publish(Number(1, "x"))
    assert got == [Less(1)]


@pytest.mark.parametrize(
    "args, fields",
    [
        ((), {}),
        ((None,), {}),
        ((1,), {}),
        ((b"record",), {}),
        ((Rounded(1.0),), {}),
        ((Number("no"),), {}),  # type: ignore[arg-type]
        ((Number(1 << 70),), {}),
        (({"m": 1},), {}),
        ((), {"m": 1}),
        ((Number(1),), {"n": 1}),
        ((Number(1), Number(2)), {}),
    ],
    ids=str,
)
def test_wrong_events(monkeypatch: pytest.MonkeyPatch, args: Any, fields: Any) -> None:
    said = []
    for native in (True, False):
        monkeypatch.setattr(source_module, "NATIVE", native)
        with Node(name="same") as node:
            got: list[Any] = []
            source, sink = lone(node.channel("a", Number), got.append)
            with pytest.raises((EncodeError, TypeError)) as caught:
                source.publish(*args, **fields)
            said.append((caught.type, str(caught.value)))
            assert source.seq == 0 and got == []
            assert source.publish(Number(1)) == 1 and sink.counts.delivered == 1
    assert said[0] == said[1]


# ── handlers that fail ──


def test_a_handler_that_raises(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    got: list[int] = []
    told: list[Any] = []

    def handler(event: Number) -> None:
        got.append(event.n)
        if event.n % 3 == 0:
            raise ValueError(f"not {event.n}")

    def on_error(subscription: Any, error: Exception, event: Any) -> None:
        assert sys.exc_info()[1] is error
        assert error.__traceback__ is not None
        told.append((subscription.name, str(error), event))

    node._on_error = on_error
    source, sink = lone(node.channel("a", Number), handler, failures=None)
    events = [Number(n) for n in range(10)]
    assert [source.publish(event) for event in events] == list(range(1, 11))
    assert got == list(range(10))
    assert told == [(sink.name, f"not {n}", events[n]) for n in (0, 3, 6, 9)]
    assert sink.counts.failed == 4 and sink.counts.delivered == 10 and conserved(sink)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 4


def test_a_failure_keeps_its_context(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Any] = []

    def handler(event: Number) -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer")  # noqa: B904

    node._on_error = lambda subscription, error, event: kept.append(error)
    source, _ = lone(node.channel("a", Number), handler)
    try:
        raise OSError("outermost")
    except OSError as outermost:
        source.publish(Number(1))
        assert sys.exc_info()[1] is outermost
    assert isinstance(kept[0], ValueError) and isinstance(kept[0].__context__, KeyError)
    assert isinstance(kept[0].__context__.__context__, OSError)
    assert sys.exc_info() == (None, None, None)


def test_too_many_failures_pause(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def handler(event: Number) -> None:
        raise ValueError

    source, sink = lone(node.channel("a", Number), handler, failures=2)
    for n in range(5):
        source.publish(Number(n))
    assert sink.state == "paused" and sink.counts.failed == 2 and sink.counts.queued == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_goes_to_the_publisher(node: Node, error: type[BaseException]) -> None:
    got: list[int] = []

    def handler(event: Number) -> None:
        if event.n == 3:
            raise error
        got.append(event.n)

    source, sink = lone(node.channel("a", Number), handler)
    for n in range(8):
        if n == 3:
            with pytest.raises(error):
                source.publish(Number(n))
        else:
            assert source.publish(Number(n)) == n + 1
    assert got == [0, 1, 2, 4, 5, 6, 7] and source.seq == 8
    assert sink.counts.delivered == 8 and sink.counts.failed == 0 and sink._mailbox.idle
    assert node.close(timeout=GUARD).drained


def test_a_failure_in_on_error_that_is_no_exception(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def handler(event: Number) -> None:
        raise ValueError

    def on_error(*args: Any) -> None:
        raise KeyboardInterrupt

    node._on_error = on_error
    source, sink = lone(node.channel("a", Number), handler)
    with pytest.raises(KeyboardInterrupt):
        source.publish(Number(1))
    assert sink._mailbox.idle and source.seq == 1


# ── handlers that act on the service ──


def test_a_handler_publishes_to_its_own_source(node: Node) -> None:
    got: list[int] = []
    inside = 0

    def handler(event: Number) -> None:
        nonlocal inside
        assert not inside  # never twice at once
        inside = 1
        got.append(event.n)
        if event.n < 500:
            source.publish(Number(event.n + 1))
        inside = 0

    source, sink = lone(node.channel("a", Number), handler)
    source.publish(Number(0))
    assert got == list(range(501)) and source.seq == 501
    assert sink.counts.delivered == 501 and conserved(sink)


def test_a_chain_of_many_sources(node: Node) -> None:
    count = 300
    got: list[int] = []
    sources: list[Source] = []
    sinks = []

    def handler(event: Number) -> None:
        got.append(event.n)
        if event.n + 1 < count:
            sources[event.n + 1].publish(Number(event.n + 1))

    for index in range(count):
        source, sink = lone(node.channel(f"a{index}", Number), handler)
        sources.append(source)
        sinks.append(sink)
    assert count > 2 * DEPTH
    for _ in range(3):
        got.clear()
        sources[0].publish(Number(0))
        assert got == list(range(count))
    assert [source.seq for source in sources] == [3] * count
    assert [sink.counts.delivered for sink in sinks] == [3] * count


def test_a_ring_of_sources(node: Node) -> None:
    got: list[int] = []
    sources: list[Source] = []

    def handler(event: Number) -> None:
        got.append(event.n)
        if event.n < 1000:
            sources[(event.n + 1) % 3].publish(Number(event.n + 1))

    sources += [lone(node.channel(f"a{index}", Number), handler)[0] for index in range(3)]
    sources[0].publish(Number(0))
    assert got == list(range(1001))


def test_pause_and_resume_from_the_handler(node: Node) -> None:
    got: list[int] = []

    def handler(event: Number) -> None:
        got.append(event.n)
        if event.n == 2:
            sink.pause()

    source, sink = lone(node.channel("a", Number), handler)
    for n in range(6):
        source.publish(Number(n))
    assert got == [0, 1, 2] and sink.counts.queued == 3
    sink.resume()
    source.publish(Number(6))
    assert got == list(range(7)) and conserved(sink)


def test_cancel_from_the_handler_with_everything_gone(node: Node) -> None:
    got: list[int] = []
    holder: dict[str, Any] = {}
    channel = node.channel("a", Number)

    def subscribe() -> None:
        def handler(event: Number) -> None:
            holder.pop("sink").cancel()
            gc.collect()
            got.append(event.n)

        holder["sink"] = channel.subscribe(handler)

    subscribe()
    source = channel.source()
    assert source.publish(Number(1)) == 1
    assert source.publish(Number(2)) == 2
    assert got == [1]


def test_another_subscribes_within_the_handler(node: Node) -> None:
    got: list[int] = []
    other: list[int] = []
    channel = node.channel("a", Number)

    def handler(event: Number) -> None:
        got.append(event.n)
        if event.n == 3:
            made.append(channel.subscribe(lambda event: other.append(event.n)))
            points.update(made[0].points)
        if event.n == 6:
            made[0].cancel()  # which has the event already, and drops it

    made: list[Subscription] = []
    points: dict[str, int] = {}
    source, sink = lone(channel, handler)
    for n in range(10):
        source.publish(Number(n))
    assert got == list(range(10)) and other == [4, 5]
    assert points == {source.id: 4}
    assert sink.counts.delivered == 10 and (made[0].counts.delivered, made[0].counts.dropped) == (2, 1)
    assert conserved(sink) and conserved(made[0])


def test_a_change_within_the_handler(node: Node) -> None:
    got: list[int] = []

    def handler(event: Number) -> None:
        got.append(event.n)
        if event.n == 4:
            sink.change(where="n > 6")
        if event.n == 8:
            sink.change(where=None)

    source, sink = lone(node.channel("a", Number), handler)
    for n in range(12):
        source.publish(Number(n if n != 9 else 0))
    assert got == [0, 1, 2, 3, 4, 7, 8, 0, 10, 11]
    counts = sink.counts
    assert (counts.evaluated, counts.passed, counts.rejected) == (12, 10, 2)


def test_close_the_source_within_the_handler(node: Node) -> None:
    got: list[int] = []

    def handler(event: Number) -> None:
        got.append(event.n)
        source.close()
        with pytest.raises(ClosedError):
            source.publish(event)

    source, sink = lone(node.channel("a", Number), handler)
    assert source.publish(Number(1)) == 1
    with pytest.raises(ClosedError, match="it was closed"):
        source.publish(Number(2))
    assert got == [1] and sink.counts.delivered == 1


def test_close_the_node_within_the_handler(node: Node) -> None:
    got: list[Any] = []

    def handler(event: Number) -> None:
        got.append(node.close(timeout=GUARD))

    source, _ = lone(node.channel("a", Number), handler)
    assert source.publish(Number(1)) == 1
    assert [closing.drained for closing in got] == [True]
    with pytest.raises(ClosedError, match="its node is closed"):
        source.publish(Number(2))


def test_publish_while_the_node_drains(node: Node) -> None:
    """What a handler makes of the last events is delivered as well."""
    got: list[int] = []
    entered = threading.Event()
    second, _ = lone(node.channel("b", Number), lambda event: got.append(event.n))

    def handler(event: Number) -> None:
        entered.set()
        while not node.closed:
            pass
        second.publish(Number(event.n + 1))

    first, _ = lone(node.channel("a", Number), handler)

    def close() -> None:
        assert entered.wait(GUARD)
        assert node.close(timeout=GUARD).drained

    Threads(lambda: first.publish(Number(1)), close).join()
    assert got == [2]


def test_a_handler_that_fills_its_own_queue(node: Node) -> None:
    errors: list[QueueFull] = []

    def handler(event: Number) -> None:
        if event.n == 0:
            assert [mailbox.name for mailbox in running()] == [sink.name]
            source.publish(Number(1))
            with pytest.raises(QueueFull, match="only this thread could empty it") as caught:
                source.publish(Number(2))
            errors.append(caught.value)

    source, sink = lone(node.channel("a", Number), handler, queue=Queue(limit=1, policy="block"))
    source.publish(Number(0))
    assert len(errors) == 1 and source.seq == 2 and sink.counts.delivered == 2
    assert list(running()) == []


def test_running_tells_threads_apart(node: Node) -> None:
    entered, leave = threading.Event(), threading.Event()
    seen: list[Any] = []

    def inner(event: Number) -> None:
        seen.extend(mailbox.name for mailbox in running())
        entered.set()
        assert leave.wait(GUARD)

    one, _ = lone(node.channel("a", Number), lambda event: two.publish(event), name="outer")
    two, _ = lone(node.channel("b", Number), inner, name="inner")
    threads = Threads(lambda: one.publish(Number(1)))
    assert entered.wait(GUARD)
    assert list(running()) == []
    three, _ = lone(node.channel("c", Number), lambda event: seen.append([m.name for m in running()]), name="here")
    three.publish(Number(1))
    leave.set()
    threads.join()
    assert sorted(seen[:2]) == ["inner", "outer"] and seen[2] == ["here"]


# ── threads ──


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_two_threads_at_one_source(node: Node, hurried: None) -> None:
    got: list[tuple[int, str]] = []
    inside: list[int] = []

    def handler(event: Number) -> None:
        inside.append(1)
        assert len(inside) == 1
        got.append((event.n, event.text))
        inside.pop()

    source, sink = lone(node.channel("a", Number), handler)
    seqs: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    def publish(who: str) -> None:
        for n in range(3000):
            seqs[who].append(source.publish(Number(n, who)))

    Threads(*(lambda who=who: publish(who) for who in seqs)).join()
    assert sink.counts.delivered == 9000 == source.seq and conserved(sink)
    for who in seqs:
        assert [n for n, other in got if other == who] == list(range(3000))
        assert seqs[who] == sorted(seqs[who])
    assert sorted(seq for each in seqs.values() for seq in each) == list(range(1, 9001))
    order = {seq: (n, who) for who, each in seqs.items() for n, seq in enumerate(each)}
    assert got == [order[seq] for seq in range(1, 9001)]


def test_sinks_come_and_go_while_threads_publish(node: Node, hurried: None) -> None:
    channel = node.channel("a", Number)
    got: list[int] = []
    source, sink = lone(channel, lambda event: got.append(event.n))
    others: list[tuple[Subscription, list[int], dict[str, int]]] = []
    done = threading.Event()

    def publish() -> None:
        for n in range(20_000):
            source.publish(Number(n))
        done.set()

    def change() -> None:
        while not done.is_set() and len(others) < 500:
            log: list[int] = []
            other = channel.subscribe(lambda event, log=log: log.append(event.n))
            others.append((other, log, other.points))
            counts = sink.counts
            assert counts.passed == counts.delivered + counts.queued  # also the one on its way to the handler
            other.cancel()

    Threads(publish, change).join()
    assert got == list(range(20_000)) and sink.counts.delivered == 20_000 and conserved(sink)
    for other, log, points in others:
        start = points[source.id]
        assert log == list(range(start, start + len(log)))
        assert other.state == "closed"


def test_sources_of_one_sink_in_many_threads(node: Node, hurried: None) -> None:
    channel = node.channel("a", Number)
    got: list[tuple[str, int]] = []
    sink = channel.subscribe(lambda event: got.append((event.text, event.n)))
    sources = {name: channel.source(name) for name in "abc"}

    def publish(name: str) -> None:
        for n in range(2000):
            sources[name].publish(Number(n, name))

    Threads(*(lambda name=name: publish(name) for name in sources)).join()
    assert sink.counts.delivered == 6000 and conserved(sink)
    for name in sources:
        assert [n for other, n in got if other == name] == list(range(2000))


# ── references ──


def test_nothing_is_leaked(node: Node) -> None:
    def handler(event: Number) -> None:
        if event.n < 0:
            raise KeyboardInterrupt

    source, sink = lone(node.channel("a", Number), handler)
    good, bad = Number(1), Number(-1)

    def run(count: int) -> None:
        publish = source.publish
        for _ in range(count):
            publish(good)
            publish(Number(2))
        for _ in range(count // 100):
            with pytest.raises(KeyboardInterrupt):
                publish(bad)

    things = (None, good, bad, handler, source, sink, sink._mailbox, source._flow, source._flow.bypass, Number)
    run(200)
    gc.collect()
    counts, blocks = [sys.getrefcount(thing) for thing in things], sys.getallocatedblocks()
    run(50_000)
    gc.collect()
    after, left = [sys.getrefcount(thing) for thing in things], sys.getallocatedblocks()
    assert max(abs(a - b) for a, b in zip(counts, after, strict=True)) < 200
    assert abs(left - blocks) < 2000


def test_a_source_with_its_function_can_be_collected(node: Node) -> None:
    source, _ = lone(node.channel("a", Number), lambda event: None)
    source.publish(Number(1))
    gone = weakref.ref(source)
    source.close()
    del source
    gc.collect()
    assert gone() is None


def test_the_function_outlives_its_source_and_node(native: bool) -> None:
    with Node() as node:
        source, _ = lone(node.channel("a", Number), lambda event: None)
        publish = source.publish
    del node, source
    gc.collect()
    with pytest.raises(ClosedError):
        publish(Number(1))


def test_help(node: Node, native: bool) -> None:
    publish: Any = node.channel("a", Number).source().publish
    assert publish.__name__ == "publish" and publish.__qualname__ == "Source.publish"
    assert publish.__module__ == "headwater.channel.source"
    assert publish.__doc__.startswith("Publish one event") and "QueueFull" in publish.__doc__


def test_sources_that_need_more_have_the_function_in_python(node: Node) -> None:
    channel = node.channel("a", Number)
    got: list[int] = []
    channel.subscribe(lambda event: got.append(event.n))
    stating = channel.source(facts="n > 0")
    assert type(stating.publish) is MethodType
    stating.publish(Number(1))
    raw = node.channel("b", bytes).source()
    assert type(raw.publish) is MethodType
    assert got == [1] and raw.publish(b"x") == 1


ENDING = """
import threading
from headwater import Event, Node, i64

class Number(Event):
    n: i64

node = Node()
entered = threading.Event()
def handler(event):
    entered.set()
    threading.Event().wait()
channel = node.channel("a", Number)
channel.subscribe(handler)
source = channel.source()
threading.Thread(target=source.publish, args=(Number(1),), daemon=True).start()
assert entered.wait(10)
print("ends")
"""


def test_the_process_ends_while_a_daemon_is_in_a_handler() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=600, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")
