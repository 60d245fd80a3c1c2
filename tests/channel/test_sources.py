"""Sources: every form in which events are published, facts that are stated of them, and sources that are asked."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headwater import Event, Node, event_type, f32
from headwater.errors import EncodeError, EvolutionError, FactError, SubscriptionError
from headwater.testing import ManualClock
from tests.channel.events import GUARD, Sighting, badges, sighting

TYPE = event_type(Sighting)
MANY = [sighting(1, 0.1, room="hall"), sighting(2, 0.2), sighting(3, 0.3, "other")]

# ── publishing ──


def test_an_event_is_published_as_an_instance_as_keywords_or_as_a_dict() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[Sighting] = []
        channel.subscribe(got.append)
        source = channel.source("hall")
        assert source.publish(sighting(1)) == 1
        assert source.publish(network="ORL-Net#1", badge=2, level=0.5) == 2
        assert source.publish({"network": "ORL-Net#1", "badge": 3, "level": 0.5, "room": None}) == 3
        assert source.publish({"network": "ORL-Net#1", "badge": 4, "level": 1}) == 4  # an int where a float is meant
        assert got == [sighting(1), sighting(2), sighting(3), sighting(4, 1.0)]
        assert {type(event) for event in got} == {Sighting} and type(got[3].level) is float
        assert source.seq == 4 and repr(source) == "<source 'hall' of a, 4 events>"


def test_fields_may_have_any_name() -> None:
    with Node() as node:
        channel = node.channel("a", "event: i64, source: i64, self: i64")
        got: list[Any] = []
        channel.subscribe(got.append)
        channel.source().publish(event=1, source=2, self=3)
        assert (got[0].event, got[0].source, got[0].self) == (1, 2, 3)


def test_what_is_published_cannot_change_afterwards() -> None:
    class Path(Event):
        points: list[int]
        level: f32

    with Node() as node:
        channel = node.channel("a", Path)
        pulled = channel.subscribe()
        points = [1, 2]
        channel.source().publish(Path(points=points, level=0.1))
        points.append(3)
        event = pulled.get(0)
        assert list(event.points) == [1, 2]
        assert event.level != 0.1 and event.level == pytest.approx(0.1)  # as a 32 bit number is, for everyone alike


FORMS: dict[str, Callable[[], Any]] = {
    "list": lambda: MANY,
    "tuple": lambda: tuple(MANY),
    "generator": lambda: (event for event in MANY),
    "dicts": lambda: [
        {"network": each.network, "badge": each.badge, "level": each.level, "room": each.room} for each in MANY
    ],
    "mixture": lambda: [MANY[0], {"network": "ORL-Net#1", "badge": 2, "level": 0.2}, MANY[2]],
    "RecordBatch": lambda: TYPE.to_arrow(MANY),
    "Table": lambda: pa.Table.from_batches([TYPE.to_arrow(MANY)]),
    "Table in chunks": lambda: pa.Table.from_batches([TYPE.to_arrow(MANY[:1]), TYPE.to_arrow(MANY[1:])]),
    "pandas": lambda: TYPE.to_pandas(MANY),
    "polars": lambda: pl.from_arrow(TYPE.to_arrow(MANY)),
    "columns in another order": lambda: pl.DataFrame(
        {"level": [0.1, 0.2, 0.3], "more": [1, 2, 3], "room": ["hall", None, None], "badge": [1, 2, 3],
         "network": ["ORL-Net#1", "ORL-Net#1", "other"]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_many_are_published_in_every_form(form: str) -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        pushed: list[tuple[int, Sighting]] = []
        channel.subscribe(lambda event, about: pushed.append((about.seq, event)))
        some = channel.subscribe(where="network = 'ORL-Net#1' and level > 0.15")
        batches: list[Any] = []
        channel.subscribe(batches.append, batch=True)
        source = channel.source()
        assert source.publish_many(FORMS[form]()) == source.seq == 3
        assert pushed == list(enumerate(MANY, 1))
        assert some.get(0) == MANY[1] and some.poll() is None
        assert TYPE.from_arrow(pa.Table.from_batches(batches)) == MANY
        assert source.publish_many(FORMS[form]()) == 6
        counts = some.counts
        assert (counts.evaluated, counts.passed, counts.rejected) == (6, 2, 4)


@pytest.mark.parametrize("nothing", [[], pd.DataFrame(), TYPE.to_arrow([]), TYPE.to_arrow([]).slice(0, 0)])
def test_none_are_published(nothing: Any) -> None:
    if isinstance(nothing, pd.DataFrame):
        nothing = TYPE.to_pandas([])
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe()
        source = channel.source()
        source.publish(sighting())
        assert source.publish_many(nothing) == 1 == source.seq == subscription.counts.evaluated


def test_all_are_checked_before_the_first_is_published() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[Sighting] = []
        subscription = channel.subscribe(got.append)
        source = channel.source("hall")
        with pytest.raises(
            EncodeError, match=r"event 1: source 'hall' of a: badge: expected 0 to 4294967295.*-2"
        ) as no:
            source.publish_many([sighting(1), {"network": "n", "badge": -2, "level": 0.5}])
        assert no.value.path == "badge"
        frame = pd.DataFrame({"network": ["a", "b"], "badge": [1, -2], "level": [0.5, 0.5]})
        with pytest.raises(EncodeError, match="badge"):
            source.publish_many(frame)
        with pytest.raises(EvolutionError, match="source 'hall' of a: these columns do not fit") as no_column:
            source.publish_many(frame.drop(columns="level"))
        assert no_column.value.problems == ("level: expected double, found no such column",)
        assert got == [] and source.seq == 0 and subscription.counts.evaluated == 0


def test_send_publishes_from_a_coroutine() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("a", Sighting)
            pulled = channel.subscribe()
            source = channel.source()
            assert await source.send(sighting(1)) == 1
            assert await source.send(network="n", badge=2, level=0.5) == 2
            with pytest.raises(EncodeError):
                await source.send(badge=2)
            assert badges([await pulled.receive(), await pulled.receive()]) == [1, 2] and source.seq == 2

    asyncio.run(main())


def test_threads_share_a_source_and_no_number_is_given_twice() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        order: list[tuple[int, int]] = []
        channel.subscribe(lambda event, about: order.append((about.seq, event.badge)))
        source = channel.source()
        numbers: dict[int, list[int]] = {}

        def work(worker: int) -> None:
            numbers[worker] = [source.publish(sighting(worker)) for _ in range(200)]

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        assert sorted(number for each in numbers.values() for number in each) == list(range(1, 801))
        assert all(each == sorted(each) for each in numbers.values())
        assert [seq for seq, _ in order] == list(range(1, 801))


def test_the_sources_of_a_channel_have_names_and_sequences_of_their_own() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[tuple[str, int]] = []
        channel.subscribe(lambda event, about: got.append((about.source, about.seq)))
        named, unnamed = channel.source("hall"), channel.source()
        for source in (named, unnamed, named):
            source.publish(sighting())
        assert got == [("hall", 1), (unnamed.name, 1), ("hall", 2)]
        number = int(unnamed.name.rpartition("-")[2])
        taken = channel.source(f"source-{number + 1}")  # a name that would have been given to the next one without
        assert len({channel.source().name for _ in range(3)} | {taken.name, named.name, unnamed.name}) == 6


# ── facts ──


def test_interests_that_can_never_match_are_not_consulted() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        here = channel.source("here", facts={"network": "ORL-Net#1"})
        free = channel.source("free")
        matching = channel.subscribe(where="network = 'ORL-Net#1' and level > 0.5", name="matching")
        never = channel.subscribe(where="network = 'other'", name="never")
        surely = channel.subscribe(where="network = 'ORL-Net#1'", name="surely")
        here.publish(sighting(1, 0.9))
        here.publish_many([sighting(2, 0.1), sighting(3, 0.9)])
        here.publish_many(TYPE.to_arrow([sighting(4, 0.9)]))
        assert (never.counts.evaluated, matching.counts.evaluated, surely.counts.evaluated) == (0, 4, 4)
        assert (never.counts.passed, matching.counts.passed, surely.counts.passed) == (0, 3, 4)
        free.publish(sighting(5, 0.9, "other"))
        assert (never.counts.evaluated, never.counts.passed) == (1, 1)
        where = {(each.source, each.subscription): (each.how, each.why) for each in channel.report().placements}
        assert where["here", "never"] == ("not consulted", "contradicts the facts its source states")
        assert where["here", "surely"] == ("every event", "the facts its source states already say so")
        assert "on network" in where["free", "never"][0] and "on network" in where["free", "surely"][0]
        assert here.report().facts == {"network": "ORL-Net#1"}
        assert "network = 'ORL-Net#1'" in str(here.report())
        assert "ORL-Net#1" in str(node.report())


def test_facts_may_be_a_condition_and_hold_for_derived_channels() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        quiet = channel.derive("b", "room = 'hall'")
        source = channel.source("low", facts="level < 0.5 and badge in [1, 2, 3]")
        loud = channel.subscribe(where="level > 0.7")
        high = quiet.subscribe(where="badge > 3")
        some = quiet.subscribe(where="badge > 2")
        source.publish(sighting(3, 0.4, room="hall"))
        assert (loud.counts.evaluated, high.counts.evaluated, some.counts.passed) == (0, 0, 1)


def test_subscriptions_that_come_later_and_change_see_the_facts_as_well() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source(facts={"network": "x"})
        subscription = channel.subscribe(where="network = :n", params={"n": "y"})
        source.publish(sighting(1, network="x"))
        subscription.change(params={"n": "x"})
        source.publish(sighting(2, network="x"))
        assert badges([subscription.get(0)]) == [2]
        assert (subscription.counts.evaluated, subscription.counts.passed) == (1, 1)
        source.close()  # the counts stay when nobody states these facts any more
        assert (subscription.counts.evaluated, subscription.counts.passed) == (1, 1)


@pytest.mark.parametrize("facts", [{"network": "x", "badge": 7}, "network = 'x' and badge = 7"])
def test_an_event_that_contradicts_the_facts_is_an_error(facts: Any) -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe()
        source = channel.source("hall", facts=facts)
        right, wrong = sighting(7, network="x"), sighting(8, network="x")
        message = "source 'hall' of a: expected events for which its facts hold .*badge = 7.*, found"
        with pytest.raises(FactError, match=f"{message} an event that contradicts them; correct the event"):
            source.publish(wrong)
        with pytest.raises(FactError, match=f"event 1: {message}"):
            source.publish_many([right, wrong])
        with pytest.raises(FactError, match=f"{message} row 2"):
            source.publish_many(TYPE.to_arrow([right, right, wrong]))
        assert source.seq == 0 and subscription.counts.evaluated == 0
        assert source.publish(right) == 1 and subscription.get(0) == right


def test_a_fact_about_a_missing_field_is_not_met() -> None:
    with Node() as node:
        source = node.channel("a", Sighting).source(facts={"room": "hall"})
        with pytest.raises(FactError):
            source.publish(sighting(room=None))


def test_faulty_facts_are_an_error_at_the_call() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        with pytest.raises(SubscriptionError, match=r"facts: expected fields of ie.tcd.Sighting .*, found 'netwrk'"):
            channel.source(facts={"netwrk": "x"})
        with pytest.raises(ValueError, match="badge"):
            channel.source(facts={"badge": "seven"})
        with pytest.raises(ValueError, match="netwrk"):
            channel.source(facts="netwrk = 'x'")
        with pytest.raises(SubscriptionError, match="facts: expected a condition on single events"):
            channel.source(facts="{ static int n = 0; n = n + 1; return n % 2 == 1; }")
        assert not channel.sources
        assert channel.source(facts={}).facts is None


# ── the four ways in which source and sink work together (models A to D) ──


def test_model_a_source_pushes_sink_is_pushed() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[Sighting] = []
        channel.subscribe(got.append)
        channel.source().publish(sighting(1))
        assert badges(got) == [1]


def test_model_b_source_pushes_sink_pulls() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe()
        assert subscription.poll() is None
        channel.source().publish(sighting(1))
        assert badges([subscription.get()]) == [1] and subscription.poll() is None


def test_model_c_source_is_asked_sink_is_pushed() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", Sighting)
        got: list[Sighting] = []
        channel.subscribe(got.append, "level > 0.2")
        given: list[Any] = [sighting(1), None, [sighting(2, 0.1), sighting(3)]]
        given += [{"network": "n", "badge": 4, "level": 1}, TYPE.to_arrow([sighting(5), sighting(6)]), []]
        answers = iter(given)
        source = channel.source(ask=lambda: next(answers), every=0.5)
        assert source.passive
        clock.advance(0.4)
        assert got == []
        clock.advance(2.6)
        assert badges(got) == [1, 3, 4, 5, 6] and source.seq == 6
        source.close()
        clock.advance(10)  # it is asked no more: the answers have run out


def test_model_d_source_is_asked_sink_pulls() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        numbers = iter(range(100))
        source = channel.source(ask=lambda: sighting(next(numbers)))
        subscription = channel.subscribe(where="badge % 2 = 1")
        everything = channel.subscribe()
        assert source.seq == 0  # nobody has asked yet
        assert badges([subscription.get(GUARD)]) == [1]  # asked until there was one for this sink
        assert source.seq == 2
        assert badges([everything.get(0), everything.get(0)]) == [0, 1]  # what was given reaches everyone
        assert source.seq == 2
        assert badges([everything.poll()]) == [2]  # nothing waits: the source is asked


def test_a_sink_that_waits_asks_again() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        answers: Any = iter([None, None, [], sighting(7)])
        channel.source(ask=lambda: next(answers))
        assert badges([channel.subscribe().get(GUARD)]) == [7]


def test_a_batch_is_asked_for_as_well() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        channel.source(ask=lambda: TYPE.to_arrow(MANY))
        assert channel.subscribe().get_batch().num_rows == 3


def test_a_coroutine_asks_too() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("a", Sighting)
            answers = iter([None, sighting(1), sighting(2)])
            channel.source(ask=lambda: next(answers, None))
            subscription = channel.subscribe()
            assert badges([await subscription.receive(), await subscription.receive()]) == [1, 2]

    asyncio.run(asyncio.wait_for(main(), GUARD))


def test_sources_of_derived_channels_are_asked_through_their_parents() -> None:
    with Node() as node:
        parent = node.channel("a", Sighting)
        loud = parent.derive("b", "level > 0.5")
        answers = iter([sighting(1, 0.1), sighting(2, 0.9)])
        parent.source(ask=lambda: next(answers, None))
        assert badges([loud.subscribe().get(GUARD)]) == [2]


def test_a_source_that_is_asked_may_fail_without_disturbing_the_sink(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise RuntimeError("no connection")

    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source("broken", ask=broken)
        subscription = channel.subscribe()
        other = channel.source()
        with caplog.at_level(logging.ERROR, "headwater"):
            assert subscription.poll() is None
        assert "source 'broken' of a: asking it raised RuntimeError: no connection" in caplog.text
        other.publish(sighting(5))
        assert badges([subscription.get(0)]) == [5]
        with pytest.raises(RuntimeError, match="no connection"):  # who asks it directly is told
            source.ask()


def test_what_a_source_may_be_asked_with_is_checked() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        with pytest.raises(SubscriptionError, match="expected ask= with every="):
            channel.source(every=1.0)
        with pytest.raises(SubscriptionError, match="ask: expected a function"):
            channel.source(ask=5)  # type: ignore[arg-type]
        for wrong in (0, -1.0, "soon", float("nan"), True):
            with pytest.raises(SubscriptionError, match="source: every: expected a number of seconds, above 0"):
                channel.source(ask=lambda: None, every=wrong)  # type: ignore[arg-type]
        assert not channel.sources
