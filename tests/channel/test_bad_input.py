"""Bad input is a clear error at the call, and nothing is half done.

Each message names the place, what was expected, what was found, and what to do; afterwards no number of a sequence is
used, nothing is registered, and no count has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from headwater import (
    Event,
    HeadwaterError,
    Interest,
    Node,
    Queue,
    Source,
    Subscription,
    event_type,
    f32,
    i8,
    timestamp,
    u32,
)
from headwater.correlation import on
from headwater.errors import (
    ChannelError,
    ClosedError,
    ConfigError,
    EncodeError,
    EvolutionError,
    FactError,
    InterestError,
    InterestRefused,
    ParameterError,
    QueueFull,
    SubscriptionError,
    TypeDeclarationError,
)
from headwater.reports import Counts
from tests.channel.events import Alarm, Brief, Sighting, sighting


class Reading(Event, name="ie.tcd.Reading"):
    network: str
    badge: u32
    small: i8
    level: f32
    when: timestamp | None = None
    zones: list[u32] = []  # noqa: RUF012 - an event type's default


GOOD: dict[str, Any] = {"network": "n", "badge": 1, "small": 0, "level": 0.5}


@dataclass
class World:
    """A node with a little of everything, and a look at all that could have moved."""

    node: Node
    source: Source
    subscription: Subscription
    got: list[Any]

    def state(self) -> Any:
        channels = {
            channel.name: (channel.type, tuple(channel.sources), len(channel.entries), len(channel.lineups),
                           tuple(each.name for each in channel.derived))
            for channel in self.node.channels()
        }  # fmt: skip
        subscriptions = {
            name: (each.counts, each.epoch, each.points, each.state, tuple(each.refused))
            for name, each in self.node.subscriptions.items()
        }
        return channels, subscriptions, self.source.seq, list(self.got), self.node._timers.pending


@pytest.fixture
def world() -> Iterator[World]:
    with Node("lab") as node:
        channel = node.channel("ie.tcd.reading", Reading)
        node.channel("raw", bytes)
        node.channel("ie.tcd.alarm", Alarm)
        channel.derive("ie.tcd.loud", "level > 0.5").subscribe(name="loud")
        got: list[Any] = []
        subscription = channel.subscribe(got.append, "level > :least", params={"least": 0.25}, name="mine")
        node.subscribe("ie.**", name="pattern")
        source = channel.source("hall")
        source.publish(**GOOD)
        yield World(node, source, subscription, got)


def refused(world: World, call: Callable[[], Any], error: type[Exception], *words: str) -> Exception:
    before = world.state()
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, HeadwaterError)
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert world.state() == before
    return caught.value


# ── publishing ──

WRONG: list[tuple[str, Any, str, tuple[str, ...]]] = [
    ("missing field", {"network": "n", "badge": 1, "small": 0}, "level", ("expected a float or int", "no such key")),
    ("missing fields", {}, "network", ("expected a str", "no such key")),
    ("unknown field", {**GOOD, "colour": 1}, "colour", ("no such field", "its fields are network, badge")),
    ("too large", {**GOOD, "badge": 2**32}, "badge", ("expected 0 to 4294967295 for u32", "found 4294967296")),
    ("negative", {**GOOD, "badge": -1}, "badge", ("expected 0 to 4294967295", "found -1")),
    ("out of range", {**GOOD, "small": 128}, "small", ("expected -128 to 127 for i8", "found 128")),
    ("too large for a float", {**GOOD, "level": 1e300}, "level", ("f32", "1e+300")),
    ("text for a number", {**GOOD, "level": "loud"}, "level", ("expected a float or int", "found str 'loud'")),
    ("bool for a number", {**GOOD, "badge": True}, "badge", ("expected an int", "found bool True")),
    ("float for an integer", {**GOOD, "badge": 1.5}, "badge", ("expected an int", "found float 1.5")),
    ("number for text", {**GOOD, "network": 5}, "network", ("expected a str", "found int 5")),
    ("bytes for text", {**GOOD, "network": b"n"}, "network", ("expected a str", "found bytes")),
    ("no text", {**GOOD, "network": "\ud800"}, "network", ("expected",)),
    ("none for a value", {**GOOD, "level": None}, "level", ("expected a float or int", "None")),
    ("naive time", {**GOOD, "when": datetime(2000, 1, 1)}, "when", ("time zone",)),
    ("no list", {**GOOD, "zones": 5}, "zones", ("expected", "found int 5")),
    ("one of a list", {**GOOD, "zones": [1, -2]}, "zones[1]", ("expected 0 to 4294967295", "found -2")),
]


@pytest.mark.parametrize(("fields", "path", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_does_not_fit_the_type_names_the_field(
    world: World, fields: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    publish, many = world.source.publish, world.source.publish_many
    place = "source 'hall' of ie.tcd.reading: "
    for call in (lambda: publish(fields), lambda: publish(**fields)):
        error = refused(world, call, EncodeError, f"{place}{path}: ", *words)
        assert isinstance(error, EncodeError) and error.path == path
    error = refused(world, lambda: many([GOOD, fields]), EncodeError, f"event 1: {place}{path}: ", *words)
    assert isinstance(error, EncodeError) and error.path == path
    refused(world, lambda: asyncio.run(world.source.send(fields)), EncodeError, f"{place}{path}: ", *words)
    if set(fields) == set(GOOD) | {path.split("[")[0]} and path != "colour":  # what an instance can be made with
        refused(world, lambda: publish(Reading(**fields)), EncodeError, f"{place}{path}: ", *words)


@pytest.mark.parametrize("event", [5, "text", 0.5, object(), [GOOD], sighting(), Alarm(1, "x"), b"x", None, Reading])
def test_an_event_of_the_wrong_type(world: World, event: Any) -> None:
    refused(world, lambda: world.source.publish(event), EncodeError, "source 'hall' of ie.tcd.reading: ", "expected")
    refused(world, lambda: world.source.publish_many([GOOD, event]), EncodeError, "event 1: source 'hall'")


def test_an_event_and_fields_at_once(world: World) -> None:
    refused(world, lambda: world.source.publish(Reading(**GOOD), level=1.0), EncodeError,
            "expected an event, or its fields as keywords, found both")  # fmt: skip


@pytest.mark.parametrize("many", [5, "text", b"bytes", GOOD, None, Reading(**GOOD)])
def test_many_that_are_not_many(world: World, many: Any) -> None:
    words = "publish_many: expected an iterable of events, or columns, found"
    refused(world, lambda: world.source.publish_many(many), EncodeError, words, "publish() takes one event")


def test_columns_that_do_not_fit(world: World) -> None:
    frame = pd.DataFrame({name: [value, value] for name, value in GOOD.items()}).assign(zones=[[1], []])
    many = world.source.publish_many
    place = "source 'hall' of ie.tcd.reading: "
    cases: list[tuple[Any, type[Exception], str]] = [
        (frame.drop(columns="badge"), EvolutionError, "badge: expected uint32, found no such column"),
        (frame.assign(badge=["x", "y"]), EvolutionError, "badge: expected uint32"),
        (frame.assign(badge=[1, -1]), EncodeError, "badge"),
        (frame.assign(small=[1, 1000]), EncodeError, "small"),
        (frame.assign(level=pd.array([0.5, None], "Float32")), EncodeError, "level"),
        (
            pa.table({"network": ["n"], "badge": [2**33], "small": [1], "level": [0.5], "zones": [[]]}),
            EncodeError,
            "badge",
        ),
    ]
    for columns, error, words in cases:
        refused(world, lambda columns=columns: many(columns), error, place, words)  # type: ignore[misc]


def test_bytes_where_there_is_no_type(world: World) -> None:
    source = world.node.channel("raw").source("r")
    for event in ("text", 5, None, {"a": 1}, [1]):
        refused(world, lambda event=event: source.publish(event), EncodeError,  # type: ignore[misc]
                "source 'r' of raw: this channel has no type: expected bytes, found")  # fmt: skip
    refused(world, lambda: source.publish(level=1), EncodeError, "expected bytes, found fields")
    refused(world, lambda: source.publish_many([b"x", "y"]), EncodeError, "event 1: source 'r' of raw")
    refused(world, lambda: source.publish_many(pa.table({"a": [1]})), EncodeError, "an iterable of them, found columns")
    assert source.seq == 0


def test_a_closed_source(world: World) -> None:
    source = world.node.channel("ie.tcd.reading").source("door")
    source.publish(**GOOD)
    source.close()
    what = "source 'door' of ie.tcd.reading: expected an open source, found that it was closed; make another"
    columns = pa.Table.from_pylist([GOOD], schema=event_type(Reading).schema)
    for call in (lambda: source.publish(**GOOD), lambda: source.publish(Reading(**GOOD)),
                 lambda: source.publish_many([GOOD]), lambda: source.publish_many([]),
                 lambda: source.publish_many(columns), lambda: asyncio.run(source.send(GOOD))):  # fmt: skip
        refused(world, call, ClosedError, what)
    assert source.seq == 1
    source.close()  # once more is no error
    with world.node.channel("ie.tcd.reading").source("s") as brief:
        pass
    refused(world, lambda: brief.publish(**GOOD), ClosedError, "it was closed")


@pytest.mark.parametrize("sinks", ["a function", "a function and others", "nobody"])
def test_a_source_of_a_closed_node(sinks: str) -> None:
    got: list[Any] = []
    with Node("lab") as node:
        channel = node.channel("a", Sighting)
        if sinks != "nobody":
            channel.subscribe(got.append)
        if sinks == "a function and others":
            channel.subscribe(where="level > 1")
        source = channel.source()
        source.publish(sighting())
    with pytest.raises(ClosedError, match="expected an open source, found that its node is closed"):
        source.publish(sighting())
    assert source.seq == 1 and len(got) == (sinks != "nobody")


def test_a_contradiction_of_facts(world: World) -> None:
    source = world.node.channel("ie.tcd.reading").source("sure", facts={"network": "m", "badge": 1})
    expected = "source 'sure' of ie.tcd.reading: expected events for which its facts hold (network = 'm', badge = 1), "
    found = "found an event that contradicts them; correct the event, or publish it at a source"
    refused(world, lambda: source.publish(**GOOD), FactError, expected + found)
    assert source.seq == 0


def test_a_full_queue_whose_policy_is_to_say_so() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        first: list[Sighting] = []
        channel.subscribe(first.append)
        full = channel.subscribe(where="badge < 10", queue=Queue(limit=2, policy="fail"), name="full")
        source = channel.source("s")
        source.publish_many([sighting(1), sighting(2)])
        words = "source 's' of a: the queue of subscription 'full' is full with 2 events"
        calls: list[Callable[[], Any]] = [
            lambda: source.publish(sighting(3)),
            lambda: asyncio.run(source.send(sighting(3))),
            lambda: source.publish_many(event_type(Sighting).to_arrow([sighting(3)])),
        ]
        for call in calls:
            with pytest.raises(QueueFull, match=words) as caught:
                call()
            assert caught.value.subscription == "full"
        assert source.seq == 2 and len(first) == 2 and full.counts == Counts(evaluated=2, passed=2, queued=2)
        with pytest.raises(QueueFull) as partly:  # one by one: those that nobody full wants come through
            source.publish_many([sighting(20), sighting(30), sighting(4), sighting(40)])
        assert "event 2 of publish_many: those before it were published" in partly.value.__notes__[0]
        assert [event.badge for event in first] == [1, 2, 20, 30] and source.seq == 4
        full.get(0)
        assert source.publish(sighting(3)) == 5


# ── names ──

ILLEGAL: list[tuple[Any, str]] = [
    ("", "found nothing"),
    (".a", "it starts with a dot"),
    ("a.", "it ends with a dot"),
    ("a..b", "two dots in a row"),
    ("a b", "character ' ' in segment 'a b'"),
    ("a/b", "segments are joined by dots"),
    ("a#1", "character '#'"),
    ("a" * 65, "at most 64 characters"),
    (".".join("a" * 33), "at most 32 segments"),
    ("e\u0301", "composed form"),
    (5, "expected text such as 'ie.tcd.sighting', found int"),
    (None, "expected text"),
    (b"a", "found bytes"),
]


@pytest.mark.parametrize(("name", "words"), ILLEGAL, ids=[repr(name)[:12] for name, _ in ILLEGAL])
def test_a_name_that_is_not_legal(world: World, name: Any, words: str) -> None:
    node, channel = world.node, world.node.channel("ie.tcd.reading")
    for call in (lambda: node.channel(name, Reading), lambda: node.channel(name), lambda: node.subscribe(name, print),
                 lambda: channel.derive(name, "level > 1"), lambda: node.every(name, 1.0)):  # fmt: skip
        if call.__code__.co_names[-1:] == ("every",) and not isinstance(name, str):
            continue
        refused(world, call, ChannelError, words)
    if isinstance(name, str) and name:
        refused(world, lambda: node.correlate(on(name)), ChannelError, words)


def test_wildcards_are_for_patterns_and_patterns_are_checked(world: World) -> None:
    node = world.node
    refused(
        world, lambda: node.channel("ie.*", Reading), ChannelError, "the wildcard '*'", "node.subscribe takes patterns"
    )
    cases = {
        "ie.t*": "a wildcard stands for whole segments",
        "ie.**.a b": "character ' '",
        "ie..*": "two dots in a row",
    }
    for pattern, words in cases.items():
        refused(world, lambda pattern=pattern: node.subscribe(pattern, print), ChannelError, words)  # type: ignore[misc]
        refused(world, lambda pattern=pattern: node.channels(pattern), ChannelError, words)  # type: ignore[misc]


def test_a_channel_that_is_not_there(world: World) -> None:
    node = world.node
    words = ("channel 'ie.tcd.readnig': expected one that exists, found none; did you mean 'ie.tcd.reading'",)
    refused(world, lambda: node.channel("ie.tcd.readnig"), ChannelError, *words)
    refused(world, lambda: node.subscribe("ie.tcd.readnig", print), ChannelError, *words)
    refused(world, lambda: node.channel("x"), ChannelError, "declare it with a type, or with bytes")


# ── types ──


def test_two_types_under_one_name(world: World) -> None:
    node = world.node
    expected = "channel 'ie.tcd.reading': expected type ie.tcd.Reading (network: text, badge: u32"
    found = "found type ie.tcd.Alarm (badge: u32, text: text); a channel has one type: open it with that"
    refused(world, lambda: node.channel("ie.tcd.reading", Alarm), ChannelError, expected, found)
    refused(world, lambda: node.channel("ie.tcd.reading", bytes), ChannelError, "found bytes")
    refused(world, lambda: node.channel("raw", Alarm), ChannelError, "expected bytes, which it has, found type")
    refused(world, lambda: node.channel("ie.tcd.loud", Alarm), ChannelError, "'ie.tcd.loud': expected type")
    refused(
        world, lambda: node.channel("ie.tcd.reading", Brief), ChannelError, "give the source or subscription its own"
    )


def test_what_is_no_type(world: World) -> None:
    node, channel = world.node, world.node.channel("ie.tcd.reading")
    for wrong in (5, "badge: u33", str, "", object()):
        for call in (lambda wrong=wrong: node.channel("new", wrong), lambda wrong=wrong: channel.source(type=wrong),
                     lambda wrong=wrong: channel.subscribe(print, type=wrong)):  # fmt: skip
            refused(world, call, TypeDeclarationError)


def test_types_at_the_ends_that_do_not_fit(world: World) -> None:
    channel = world.node.channel("ie.tcd.reading")
    refused(world, lambda: channel.source(type=Alarm), EvolutionError, "network")
    refused(world, lambda: channel.subscribe(print, type=Alarm), EvolutionError, "text")
    refused(
        world, lambda: channel.subscribe(print, type="badge: u16"), EvolutionError, "badge"
    )  # it might be too large


def test_a_derived_channel_that_cannot_be(world: World) -> None:
    channel = world.node.channel("ie.tcd.reading")
    refused(world, lambda: channel.derive("ie.tcd.alarm", "level > 1"), ChannelError, "expected a new name", "in use")
    refused(world, lambda: channel.derive("new", None), SubscriptionError, "expected a filter or a transformation")
    refused(world, lambda: channel.derive("new", "levl > 1"), InterestError, "levl", "level")
    refused(world, lambda: channel.derive("new", "level > :x"), InterestError, "no parameter 'x'")
    refused(world, lambda: channel.derive("new", "{ return 1; }", output=Alarm, params={"p": []}), ParameterError)
    refused(world, lambda: world.node.channel("raw").derive("new", "level > 1"), ChannelError, "carries bytes")


# ── interests ──

FAULTY: list[tuple[Any, type[Exception], str]] = [
    ("levl > 1", InterestError, "levl"),
    ("level >", InterestError, "line 1, column"),
    ("", InterestError, "the predicate is empty"),
    ("level > 'x'", InterestError, "column 1"),
    ("network > 3 and levl = 1 or small(", InterestError, "problem"),
    ("badge", InterestError, "expected"),
    (5, InterestError, "expected: a function, a lambda, or source text"),
    (object(), InterestError, "expected"),
    ("{ return input.levl > 1; }", InterestError, "levl"),
    ("{ while (1) { } return 1; }", InterestRefused, ""),
    ("lambda e: e.levl > 1", InterestError, "levl"),
    ("level > :unknown", InterestError, "no parameter 'unknown'"),
]


@pytest.mark.parametrize(("where", "error", "words"), FAULTY, ids=[repr(case[0])[:24] for case in FAULTY])
def test_a_faulty_interest(world: World, where: Any, error: type[Exception], words: str) -> None:
    node, channel = world.node, world.node.channel("ie.tcd.reading")
    for call in (
        lambda: channel.subscribe(print, where),
        lambda: channel.subscribe(where=where),
        lambda: node.subscribe("ie.tcd.reading", print, where),
        lambda: node.subscribe("ie.**", print, where),
        lambda: node.correlate(on(channel, where)),
        lambda: world.subscription.change(where=where),
        lambda: channel.derive("new", where),
        lambda: channel.source(facts=where),
        lambda: node.deadline("new", channel, 1.0, where),
    ):
        caught = refused(world, call, error, words)
        assert isinstance(caught, InterestError) and caught.problems


def test_parameters_that_do_not_fit(world: World) -> None:
    channel = world.node.channel("ie.tcd.reading")
    refused(world, lambda: channel.subscribe(print, params={"x": 1}), SubscriptionError, "no interest that could use x")
    refused(
        world, lambda: channel.subscribe(print, "level > :x", params={"x": []}), ParameterError, "'x'", "found list"
    )
    made = Interest("level > :x", Reading, params={"x": 1.0})
    refused(world, lambda: channel.subscribe(print, made, params={"y": 1.0}), ParameterError, "no parameter 'y'")
    refused(world, lambda: channel.subscribe(print, made, params={"x": "loud"}), ParameterError, "'x'")
    refused(world, lambda: world.subscription.change(params={"lest": 1.0}), ParameterError,
            "change: params: expected least, found 'lest'; did you mean 'least'?")  # fmt: skip
    refused(
        world,
        lambda: world.subscription.change(),
        SubscriptionError,
        "expected where=, params= or zones=, found none of them",
    )


def test_an_interest_where_none_can_be(world: World) -> None:
    made = Interest("text = 'fire'", Alarm)
    for call in (
        lambda: world.node.channel("raw").subscribe(print, made),
        lambda: world.node.subscribe("raw", print, "x = 1"),
    ):
        advice = "it takes no interests; declare it with a type, or filter in the handler"
        refused(world, call, SubscriptionError, "channel 'raw' has no type and carries bytes", advice)


# ── options ──

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"handler": 5}, "handler: expected a function, found 5"),
    ({"handler": "print"}, "handler: expected a function, found 'print'"),
    ({"before": print, "handler": None}, "before: it is a constraint of the handler, and there is none"),
    ({"after": 5}, "after: expected a function"),
    ({"batch": 0}, "batch: expected a number of events from 1 on, or True for 4,096, found 0; leave it out"),
    ({"batch": -1}, "batch: expected a number of events from 1 on, or True for 4,096, found -1"),
    ({"batch": "many"}, "batch: expected a number of events from 1 on, or True for 4,096, found 'many'"),
    ({"batch": 10, "handler": None}, "batch: it is for handlers; to pull batches call get_batch()"),
    ({"failures": -1}, "failures: expected a number, 0 for no limit, found -1"),
    ({"failures": True}, "failures: expected a number"),
    ({"queue": "long"}, "queue: expected a Queue or a limit, found 'long'"),
    ({"queue": True}, "queue: expected a Queue or a limit, found True"),
    ({"dispatch": "threads"}, "dispatch: expected one of inline, pool, priority, deadline, asyncio, found 'threads'"),
    ({"dispatch": 5}, "dispatch: expected one of Inline, Pool, ByPriority, ByDeadline, AsyncLoop, found 5"),
    ({"name": ""}, "name: expected a text of 1 to 255 printable characters, found ''"),
    ({"name": 5}, "name: expected a text"),
    ({"name": "mine"}, "name: expected one that no subscription of this node has, found 'mine' in use"),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[str(next(iter(case[0].items()))) for case in OPTIONS])
def test_options_that_cannot_be(world: World, options: dict[str, Any], words: str) -> None:
    given = {"handler": print, **options}
    channel = world.node.channel("ie.tcd.reading")
    refused(world, lambda: channel.subscribe(**given), SubscriptionError, words)
    refused(world, lambda: world.node.subscribe("ie.tcd.*", **given), SubscriptionError, words)


def test_more_options_that_cannot_be(world: World) -> None:
    node, channel = world.node, world.node.channel("ie.tcd.reading")
    refused(world, lambda: channel.subscribe(print, queue=0), ConfigError, "limit", "found 0")
    refused(
        world,
        lambda: node.subscribe("ie.**", print, prioirty=1),
        SubscriptionError,
        "prioirty",
        "did you mean 'priority'?",
    )
    refused(world, lambda: channel.subscribe(print, priority="levl"), InterestError, "problem in this priority")
    refused(world, lambda: channel.subscribe(print, lifetime="network"), InterestError, "problem in this lifetime")
    refused(
        world,
        lambda: channel.subscribe(print, lifetime=-1),
        SubscriptionError,
        "lifetime: expected a number of seconds above 0",
    )
    for wrong in ("high", 1.5, True, None, 2**70):
        refused(world, lambda wrong=wrong: channel.source(priority=wrong), SubscriptionError,  # type: ignore[misc]
                "source: priority: expected a whole number")  # fmt: skip
    refused(world, lambda: channel.source("hall"), ChannelError, "source 'hall': expected a name that no source of")
    refused(world, lambda: channel.source(""), SubscriptionError, "source: name: expected a text of 1 to 255")
    refused(world, lambda: channel.source(5), SubscriptionError, "source: name: expected a text")  # type: ignore[arg-type]


def test_a_channel_of_another_node(world: World) -> None:
    with Node("other") as other:
        foreign = other.channel("ie.tcd.reading", Reading)
        refused(world, lambda: world.node.correlate(on(foreign)), ClosedError, "of another node")
        refused(world, lambda: world.node.deadline("new", foreign, 1.0), ClosedError, "another node")
        assert not other.subscriptions


def test_the_world_goes_on_after_all_that(world: World) -> None:
    for wrong in ({"badge": -1}, 5, None):
        with pytest.raises(EncodeError):
            world.source.publish(wrong)
    assert world.source.publish(**GOOD) == 2 and len(world.got) == 2
    assert world.subscription.counts == Counts(evaluated=2, passed=2, delivered=2)


def test_a_period_that_is_no_time_at_all_is_an_error_and_nothing_is_done() -> None:
    with Node() as node:
        for seconds in (1e-12, 5e-324):
            with pytest.raises(SubscriptionError, match="every: period: expected a number of seconds, above 0"):
                node.every("clock", seconds)
        assert node.channels() == []


def test_facts_are_of_fields_of_any_name() -> None:
    with Node() as node:
        channel = node.channel("a", "and: i64, in: i64, meta: i64, input: i64")
        facts = {"and": 1, "in": 2, "meta": 3, "input": 4}
        source = channel.source(facts=facts)
        source.publish(facts)
        with pytest.raises(FactError, match="and = 1, in = 2, meta = 3, input = 4"):
            source.publish(facts | {"meta": 4})
        with pytest.raises(SubscriptionError, match=r"facts: 'in': expected .*, found 'two'"):
            channel.source(facts={"and": 1, "in": "two"})
        with pytest.raises(SubscriptionError, match=r"facts: 'in': expected .*, found None"):
            channel.source(facts={"in": None})


def test_a_node_may_have_any_name_that_a_configuration_may_give_it() -> None:
    for node in (Node("the lab"), Node(config={"name": "the lab"})):
        with node:
            assert node.name == "the lab"
    for name in (" lab", "a\nb", 5):
        with pytest.raises(ConfigError, match="node: name: expected a name of 1 to 255 printable characters"):
            Node(name)  # type: ignore[arg-type]


def test_a_handler_that_cannot_take_an_event_is_an_error_at_the_call() -> None:
    class Method:
        def none(self) -> None: ...

        def __call__(self, event: object) -> None: ...

    async def coroutine() -> None: ...

    with Node() as node:
        channel = node.channel("a", Sighting)
        for handler in (lambda: None, lambda a, b, c: None, Method().none, coroutine, lambda event, *, key: None):
            with pytest.raises(SubscriptionError, match=r"handler: expected a function of the event, or .*, found"):
                channel.subscribe(handler)
        with pytest.raises(SubscriptionError, match="handler: expected a function of the event and an About, found"):
            channel.subscribe(lambda event: None, about=True)
        with pytest.raises(SubscriptionError, match="before: expected a function of the event, found"):
            channel.subscribe(print, before=lambda: True)
        with pytest.raises(SubscriptionError, match="after: expected a function of the event and the result, found"):
            channel.subscribe(print, after=lambda event: True)
        rights: list[Any] = [Method(), print, [].append, lambda *events: None, lambda event, about=None: None, dict]
        for right in rights:
            channel.subscribe(right)
        assert len(node.subscriptions) == 6


def test_what_is_no_filter_tree_is_an_error_of_the_call_that_was_made() -> None:
    with (
        Node() as node,
        pytest.raises(SubscriptionError, match=r"^correlate\(\): part 1: expected on\(…\), .* found str"),
    ):
        node.correlate("a", print)  # type: ignore[arg-type]
