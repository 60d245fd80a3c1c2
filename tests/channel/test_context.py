"""Contexts of sources: interests there read values of the process, which change between two events."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Event, Interest, Log, Node
from headwater.contextual import interest_with_context
from headwater.errors import (
    ChannelError,
    ClosedError,
    EncodeError,
    ExecutionError,
    InterestError,
    ParameterError,
    StoreError,
    SubscriptionError,
)
from headwater.logs import LogFiles
from headwater.spark.frame import choice


class Reading(Event):
    level: float
    number: int = 0


class Oven(Event):
    gain: float
    mode: str = "eco"
    limit: float | None = None


@pytest.fixture
def node() -> Iterator[Node]:
    with Node("lab") as made:
        yield made


class Heard(list[Any]):
    """A handler that keeps what it is given; it is called where events are published."""

    def __call__(self, event: Any) -> None:
        self.append(event)


def levels(heard: Heard) -> list[float]:
    return [event.level for event in heard]


def numbers(heard: Heard) -> list[int]:
    return [event.number for event in heard]


NOTATIONS = [
    "level > context.gain",
    "{ return input.level > input.context.gain; }",
    "lambda event: event.level > event.context.gain",
]


@pytest.mark.parametrize("text", NOTATIONS)
def test_an_interest_reads_the_context_of_its_source_in_every_notation(node: Node, text: str) -> None:
    channel = node.channel("readings", Reading, context=Oven)
    oven = channel.source("oven", context=Oven(gain=1.0))
    heard = Heard()
    channel.subscribe(heard, text)
    oven.publish(level=2.0)
    assert oven.context is not None and oven.context.set(gain=3.0) == 1
    oven.publish(level=2.5)
    oven.publish_many([{"level": 4.0}, {"level": 1.0}])
    assert levels(heard) == [2.0, 4.0]
    assert dict(oven.context.values) == {"gain": 3.0, "mode": "eco", "limit": None}
    assert oven.context["gain"] == 3.0


def test_what_a_source_does_not_say_is_missing(node: Node) -> None:
    channel = node.channel("readings", Reading, context="gain: f64, mode: text, limit: f64")
    full, partly = channel.source("full", context=Oven(gain=1.0)), channel.source(context={"mode": "max"})
    silent = channel.source("silent")
    over, either, none = Heard(), Heard(), Heard()
    first = channel.subscribe(over, "level > context.gain")
    channel.subscribe(either, "context.mode = 'max' or level > 8")
    channel.subscribe(none, "context is null or context.gain is null")
    for source in (full, partly, silent):
        source.publish(level=5.0)
        source.publish(level=9.0)
    assert levels(over) == [5.0, 9.0]
    assert levels(either) == [9.0, 5.0, 9.0, 9.0]
    assert levels(none) == [5.0, 9.0, 5.0, 9.0]
    counts = first.counts
    assert (counts.evaluated, counts.passed, counts.undecided) == (6, 2, 4)
    assert full.context is not None
    full.context.set(gain=None)
    full.publish(level=9.0)
    assert len(over) == 2 and levels(none)[-1] == 9.0


def test_a_context_is_read_by_transformations_and_by_interests_with_state(node: Node) -> None:
    channel = node.channel("readings", Reading, context=Oven)
    oven = channel.source("oven", context=Oven(gain=2.0))
    scaled = channel.derive(
        "scaled", "{ output.level = input.level * input.context.gain; output.number = input.number; return 1; }",
        output=Reading,
    )  # fmt: skip
    made, third = Heard(), Heard()
    scaled.subscribe(made)
    channel.subscribe(third, "{ static int n = 0; if (input.level > input.context.gain) n = n + 1; return n >= 3; }")
    for level in (3.0, 4.0):
        oven.publish(level=level)
    assert oven.context is not None
    oven.context.set(gain=10.0)
    oven.publish(level=5.0)  # not counted
    oven.context.set(gain=None)
    oven.publish(level=6.0)  # nothing is known
    oven.context.set(gain=0.5)
    oven.publish(level=1.0)
    assert levels(made) == [6.0, 8.0, 50.0, 0.5]
    assert levels(third) == [1.0]


def test_no_event_is_judged_by_a_mixture_while_others_publish_and_change(node: Node) -> None:
    """Both values change together: an interest that compares them with each other would see a mixture."""
    channel = node.channel("readings", Reading, context="low: i64, high: i64")
    source = channel.source("s", context={"low": 0, "high": 0})
    wrong, right, epochs = Heard(), Heard(), Heard()
    channel.subscribe(wrong, "context.low <> context.high")
    channel.subscribe(right, "context.low = context.high")
    low = "{ output.level = input.context.low; output.number = input.number; return 1; }"
    channel.derive("low", low, output=Reading).subscribe(lambda event, about: epochs.append((about.seq, event.level)))
    context = source.context
    assert context is not None
    changes: dict[int, int] = {}
    start = threading.Barrier(3)

    def publish() -> None:
        start.wait()
        for number in range(300):
            source.publish(level=0.0, number=number)

    def change() -> None:
        start.wait()
        for value in range(1, 200):
            changes[context.set(low=value, high=value)] = value

    threads = [threading.Thread(target=each) for each in (publish, publish, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 0 and len(right) == 600
    assert context.values == {"low": 199, "high": 199}
    at = {point: changes[point] for point in sorted(changes)}
    for seq, level in epochs:  # each event has what was set last before it
        assert level == max((value for point, value in at.items() if point < seq), default=0)


def test_the_point_of_a_change_is_exact_and_the_past_is_judged_as_it_was(tmp_path: Path) -> None:
    for options in ({"config": Config(history=1000)}, {"log": Log(tmp_path / "log")}):
        with Node("lab", **options) as node:
            channel = node.channel("readings", Reading, context="gain: f64")
            source = channel.source("s", context={"gain": 0.0})
            assert source.context is not None
            live, points = Heard(), list[int]()
            channel.subscribe(live, "number > context.gain")
            for number in range(60):
                if number % 7 == 0:
                    points.append(source.context.set(gain=float((number * 13) % 50)))
                source.publish(level=0.0, number=number)
            assert points == [number for number in range(60) if number % 7 == 0]
            late, some = Heard(), Heard()
            channel.subscribe(late, "number > context.gain", history="all")
            channel.subscribe(some, "number > context.gain", history=5)
            assert live and numbers(late) == numbers(live)
            assert numbers(some) == numbers(live)[-5:]
            assert channel.type is not None and channel.context is not None
            scale = "{ output.level = input.context.gain; output.number = input.number; return 1; }"
            made = interest_with_context(scale, channel.type, channel.context, output=Reading)
            again = [channel.type.decode(record) for part in channel.backlog.read("s", interest=made)
                     for record in part.records]  # fmt: skip
            assert [each.level for each in again] == [float((number // 7 * 7 * 13) % 50) for number in range(60)]


def test_of_an_earlier_life_nothing_is_known(tmp_path: Path) -> None:
    for life in range(2):
        with Node("lab", log=Log(tmp_path / "log")) as node:
            channel = node.channel("readings", Reading, context="gain: f64")
            source = channel.source("s", context={"gain": 0.0})
            source.publish(level=1.0, number=life)
            heard, unknown = Heard(), Heard()
            channel.subscribe(heard, "level > context.gain", history="all")
            channel.subscribe(unknown, "context.gain is null", history="all")
            assert numbers(heard) == [life]
            assert numbers(unknown) == list(range(life))


def test_types_and_names_are_checked(node: Node) -> None:
    channel = node.channel("readings", Reading, context=Oven)
    source = channel.source("s", context=Oven(gain=1.0))
    assert source.context is not None
    with pytest.raises(InterestError, match="has no field 'gian'"):
        channel.subscribe(print, "level > context.gian")
    with pytest.raises(InterestError, match="values of one kind"):
        channel.subscribe(print, "level > context.mode")
    with pytest.raises(EncodeError, match="no value 'gian'; did you mean"):
        source.context.set(gian=1.0)
    with pytest.raises(EncodeError, match="gain"):
        source.context.set(gain="much", mode="max")
    assert source.context["mode"] == "eco"  # nothing was changed
    with pytest.raises(EncodeError, match="no value 'gian'"):
        source.context["gian"]
    with pytest.raises(ChannelError, match=r"gain: expected f64, as the channel has it, found text"):

        class Other(Event):
            gain: str

        channel.source("other", context=Other("much"))
    with pytest.raises(ChannelError, match="expected an event or a dict"):
        channel.source("other", context=3)  # type: ignore[arg-type]
    with pytest.raises(ChannelError, match="which it has"):
        node.channel("readings", context="gain: text")
    with pytest.raises(SubscriptionError, match="context"):
        channel.source("other", facts="level > context.gain")
    source.close()
    with pytest.raises(ClosedError, match="context"):
        source.context.set(gain=2.0)


def test_a_context_is_declared_where_it_can_be(node: Node) -> None:
    plain = node.channel("plain", Reading)
    with pytest.raises(InterestError, match=r"the channel has none \(context=\)"):
        plain.subscribe(print, "level > context.gain")
    with pytest.raises(ChannelError, match="a dict"):
        plain.source("s", context={"gain": 1.0})
    plain.source("s", context=Oven(gain=1.0))  # that is a declaration too
    plain.subscribe(print, "level > context.gain")
    with pytest.raises(ChannelError, match="rename it"):
        node.channel("own", "context: f64", context=Oven)
    with pytest.raises(ChannelError, match="one of bytes"):
        node.channel("bytes", bytes, context=Oven)
    with pytest.raises(ChannelError, match="expected a number"):
        node.channel("nested", Reading, context="where: f64[3]")
    with pytest.raises(ChannelError, match="derived"):
        plain.derive("derived", "level > 1").has_context(Oven)


def test_elsewhere_values_are_given_or_it_is_refused() -> None:
    made = Interest("level > context.gain * :k", Reading, params={"context.gain": 2, "k": 2.0})
    assert made.test({"level": 5.0}) and not made.test({"level": 4.0})
    with pytest.raises(InterestError, match=r"params=\{'context\.NAME'"):
        Interest("level > context.gain", Reading)
    with pytest.raises(ParameterError, match="does not read it"):
        Interest("level > 1", Reading, params={"context.gain": 2.0})


def test_a_log_and_spark_refuse_it_unless_values_are_given(tmp_path: Path) -> None:
    with Node("lab", log=Log(tmp_path / "log")) as node:
        channel = node.channel("readings", Reading, context=Oven)
        source = channel.source("s", context=Oven(gain=1.0))
        source.publish_many([{"level": level} for level in (0.5, 1.5, 2.5)])
        assert channel.type is not None and channel.context is not None
        reads = interest_with_context("level > context.gain", channel.type, channel.context)
    folder = LogFiles(tmp_path / "log")
    with pytest.raises(StoreError, match="reads the context of sources"):
        list(folder.read("readings", "lab", "s", interest=reads))
    with pytest.raises(ExecutionError, match="which no recording has"):
        choice(reads)
    given = Interest("level > context.gain", Reading, params={"context.gain": 2.0})
    assert sum(batch.num_rows for batch in folder.read("readings", "lab", "s", interest=given)) == 1
    assert choice(given).kind == "column"


def test_where_it_runs_is_said(node: Node) -> None:
    channel = node.channel("readings", Reading, context=Oven)
    channel.source("s", context=Oven(gain=1.0))
    subscription = channel.subscribe(print, "level > context.gain")
    assert any("reads the context of its source" in str(each) for each in subscription.report().placements)
