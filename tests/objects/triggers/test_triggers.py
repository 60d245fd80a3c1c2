"""What triggers do, through `node.objects`: what fires, in which order, and what comes of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from headwater import Config, Log, Node, Reliable
from headwater.channel.objects.service import Objects
from headwater.errors import HeadwaterWarning, InterestError, ObjectError, TransactionError
from headwater.objects import Computed, count, over, was
from headwater.testing import ManualClock, Recorder, eventually

_ROOMS = numbers()


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Node]:
    with Node("plant", state=tmp_path_factory.mktemp("triggers") / "state", clock=clock) as made:
        made.objects.type("P", "x: f64, n: i64, note: text?")
        yield made


@pytest.fixture
def objects(node: Node) -> Iterator[Objects]:
    yield node.objects
    for each in node.objects.triggers.values():
        each.remove()


@pytest.fixture
def room() -> str:
    """A folder of its own for each test."""
    return f"room{next(_ROOMS)}"


def create(objects: Objects, *names: str, x: float = 0.0) -> None:
    with objects.transaction() as t:
        for name in names:
            t.create(name, "P", x=x, n=0)


def move(objects: Objects, name: str, *xs: float) -> None:
    for x in xs:
        with objects.transaction() as t:
            t.update(name, x=x, event=True)


def updates(objects: Objects, prefix: str) -> Recorder[Any]:
    heard = Recorder[Any]()
    objects.changes("P").subscribe(heard, f"op = 'updated' and starts_with(object, '//plant/{prefix}')")
    return heard


def test_each_fires_while_it_holds_and_becomes_when_it_begins_to(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    options: Any = {"on": f"{room}/a", "where": "new.x > 5", "notify": {"x": "new.x"}}
    each, becomes = Recorder[Any](), Recorder[Any]()
    objects.trigger("each", when="each", **options).subscribe(each)
    objects.trigger("becomes", when="becomes", **options).subscribe(becomes)
    move(objects, f"{room}/a", 6.0, 7.0, 5.0, 8.0, 9.0)
    assert [event.x for event in each.wait(4)] == [6.0, 7.0, 8.0, 9.0]
    assert [event.x for event in becomes.wait(2)] == [6.0, 8.0]


def test_who_asks_for_notifications_finds_their_source_at_once(node: Node, objects: Objects, room: str) -> None:
    """Else another node that is ready before it is there misses the first one."""
    create(objects, f"{room}/a")
    for number in range(20):
        objects.trigger(f"t{number}", on=f"{room}/a", when="each", where=f"new.x > {number}", notify=True)
        assert list(node.channel(f"triggers.plant.t{number}").sources) == ["objects"]


def test_transactions_that_are_caused_run_depth_first_in_the_order_of_figure_3_3(objects: Objects, room: str) -> None:
    """T1 sets off T2 and T5; T2 sets off T3 and T4: they run in the order of their numbers, before the next turn."""
    tree = {"t1": ("t2", "t5"), "t2": ("t3", "t4"), "t5": ("t6",)}
    create(objects, *(f"{room}/t{at}" for at in range(1, 7)))
    heard = updates(objects, f"{room}/")
    for cause, effects in tree.items():
        for effect in effects:
            objects.trigger(
                f"{cause}-{effect}", on=f"{room}/{cause}", when="each",
                do=lambda t, effect=effect: t.update(f"{room}/{effect}", {"x": t.new.x}, event=True),
            )  # fmt: skip
    for x in (1.0, 2.0):
        objects.submit(moving(objects, f"{room}/t1", x), wait=False)
    found = [(event.object.rpartition("/")[2], event.new.x) for event in heard.wait(12)]
    order = ["t1", "t2", "t3", "t4", "t5", "t6"]
    assert found == [(name, 1.0) for name in order] + [(name, 2.0) for name in order]
    assert len({event.turn for event in heard.events}) == 2


def moving(objects: Objects, name: str, x: float) -> Any:
    made = objects.builder()
    made.update(name, x=x, event=True)
    return made


def test_all_conditions_of_an_event_are_judged_before_any_action(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    told = Recorder[Any]()
    inputs = {"b": f"{room}/b"}
    objects.trigger("first", on=f"{room}/a", when="each", priority=5, inputs=inputs, where="b.x = 0",
                    do=lambda t: t.update(f"{room}/b", x=1.0))  # fmt: skip
    objects.trigger("second", on=f"{room}/a", when="each", inputs=inputs, where="b.x = 0", notify=["b.x"]).subscribe(
        told
    )
    move(objects, f"{room}/a", 1.0)
    assert [event.x for event in told.wait(1)] == [0.0]
    assert objects[f"{room}/b.x"] == 1.0


def test_priority_goes_before_the_order_of_installation(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/log")
    heard = updates(objects, f"{room}/log")
    for name, priority in (("low", -1), ("one", 0), ("two", 0), ("high", 9)):
        objects.trigger(name, on=f"{room}/a", when="each", priority=priority,
                        do=lambda t, name=name: t.update(f"{room}/log", note=name, event=True))  # fmt: skip
    move(objects, f"{room}/a", 1.0)
    assert [event.new.note for event in heard.wait(4)] == ["high", "one", "two", "low"]


def test_a_veto_rolls_its_transaction_back_and_nothing_else(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    seen = objects.trigger("seen", on=f"{room}/*", type="P", when="becomes", where="new.x < 0", notify=True)
    objects.trigger("floor", on=f"{room}/a", when="each", where="new.x < 0", coupling="within", veto="x is below zero")
    with (
        pytest.raises(TransactionError, match="'floor' does not allow it: x is below zero"),
        objects.transaction() as t,
    ):
        t.update(f"{room}/b", x=-1.0, event=True)
        t.update(f"{room}/a", x=-1.0, event=True)
    assert (objects[f"{room}/a.x"], objects[f"{room}/b.x"]) == (0.0, 0.0)
    assert objects.triggers["floor"].report()["vetoed"] == 1
    heard = Recorder[Any]()
    seen.subscribe(heard)
    move(objects, f"{room}/b", -2.0)  # that it was below zero before was undone as well
    assert [event.object for event in heard.wait(1)] == [f"//plant/{room}/b"]


def test_an_action_within_is_a_part_of_the_transaction(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/sum")
    objects.trigger("sum", on=f"{room}/a", when="each", coupling="within",
                    do=lambda t: t.update(f"{room}/sum", x=Computed("x + new.x - old.x")))  # fmt: skip
    with objects.transaction() as t:
        t.update(f"{room}/a", x=2.0, event=True)
        t.update(f"{room}/a", x=5.0, event=True)
    assert objects[f"{room}/sum.x"] == 5.0


def test_a_failing_action_is_undone_alone_or_with_its_turn(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    missing = objects.trigger("missing", on=f"{room}/a", when="each", where="new.x = 1",
                              do=lambda t: t.update(f"{room}/nobody", x=1.0))  # fmt: skip
    strict = objects.trigger("strict", on=f"{room}/a", when="each", where="new.x = 2", on_failure="abort turn",
                             do=lambda t: t.update(f"{room}/nobody", x=2.0))  # fmt: skip
    outcome = objects.submit(moving(objects, f"{room}/a", 1.0))
    assert [each.trigger for each in outcome.failures] == ["missing"]
    assert missing.report()["failed"] == 1 and "expected an object" in missing.report()["failure"]
    with pytest.raises(TransactionError, match="everything was undone"):
        objects.submit(moving(objects, f"{room}/a", 2.0))
    assert objects[f"{room}/a.x"] == 1.0
    assert strict.report()["fired"] == 1


def test_what_is_decoupled_is_a_turn_of_its_own(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    heard = updates(objects, f"{room}/")
    objects.trigger("later", on=f"{room}/a", when="each", coupling="decoupled",
                    do=lambda t: t.update(f"{room}/b", x=t.new.x, event=True))  # fmt: skip
    move(objects, f"{room}/a", 1.0)
    first, second = heard.wait(2)
    assert (first.turn < second.turn, second.new.x) == (True, 1.0)


def test_triggers_that_may_not_end_are_named_and_cascades_are_bounded(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    objects.trigger("there", on=f"{room}/a", when="each",
                    do=lambda t: t.update(f"{room}/b", {"x": t.new.x + 1}, event=True))  # fmt: skip
    with pytest.warns(HeadwaterWarning, match="back -> there -> back"):
        objects.trigger("back", on=f"{room}/b.x", when="each",
                        do=lambda t: t.update(f"{room}/a", {"x": t.new.x + 1}, event=True))  # fmt: skip
    with pytest.raises(TransactionError, match="64 transactions deep"):
        move(objects, f"{room}/a", 1.0)
    assert (objects[f"{room}/a.x"], objects[f"{room}/b.x"]) == (0.0, 0.0)


def test_equal_triggers_are_one_and_others_need_another_name(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    options: Any = {"on": f"{room}/a", "when": "each", "notify": True}
    first = objects.trigger("first", where="new.x > :d", params={"d": 1.0}, **options)
    again = objects.trigger("again", where="new.x > :d", params={"d": 1.0}, **options)
    other = objects.trigger("other", where="new.x > :d", params={"d": 2.0}, **options)
    assert (again.name, other.name, sorted(objects.triggers)) == (first.name, "other", ["first", "other"])
    with pytest.raises(TransactionError, match="found another of that name"):
        objects.trigger("first", where="new.x > 9", **options)
    with pytest.raises(TransactionError, match="'other' is so"):
        first.change(params={"d": 2.0})


def test_parameters_change_at_an_exact_point(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    heard = Recorder[Any]()
    alert = objects.trigger("alert", on=f"{room}/a", when="becomes", where="new.x > :d", params={"d": 5}, notify=True)
    alert.subscribe(heard)
    before = objects.submit(moving(objects, f"{room}/a", 4.0))
    changed = alert.change(params={"d": 3.5})
    after = objects.submit(moving(objects, f"{room}/a", 4.0))
    assert before.turn < changed.turn < after.turn
    assert [event.turn for event in heard.wait(1)] == [after.turn]
    with pytest.raises(TransactionError, match="no text of this trigger reads :e"):
        alert.change(params={"e": 1})


def test_groups_are_disabled_and_enabled_together(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    heard = {name: Recorder[Any]() for name in ("one", "two", "three")}
    for name, recorder in heard.items():
        group = "" if name == "three" else "night"
        made = objects.trigger(name, on=f"{room}/a", when="each", group=group, notify=["new.x"], priority=len(name))
        made.subscribe(recorder)
    objects.disable("night")
    move(objects, f"{room}/a", 1.0)
    objects.enable("night")
    move(objects, f"{room}/a", 2.0)
    assert [event.x for event in heard["three"].wait(2)] == [1.0, 2.0]
    assert [event.x for name in ("one", "two") for event in heard[name].wait(1)] == [2.0, 2.0]
    with pytest.raises(TransactionError, match="did you mean 'night'"):
        objects.enable("nights")


def test_the_value_at_the_last_firing(objects: Objects, room: str) -> None:
    """The thesis's own trigger: the position is more than so far from where it last told."""
    create(objects, f"{room}/a")
    heard = Recorder[Any]()
    where = "last.x is null or abs(new.x - last.x) > 2"
    objects.trigger("far", on=f"{room}/a", when="each", where=where, notify=["new.x"]).subscribe(heard)
    move(objects, f"{room}/a", 1.0, 2.0, 3.5, 3.0, 0.5, 0.0)
    assert [event.x for event in heard.wait(3)] == [1.0, 3.5, 0.5]


def test_moved_by_more_than_so_much_within_so_long(objects: Objects, room: str, clock: ManualClock) -> None:
    create(objects, f"{room}/a")
    heard = Recorder[Any]()
    objects.trigger(
        "jump", on=f"{room}/a", when="each", where="recent.max - recent.min > 2",
        history={"recent": over("new.x", "10 s")}, notify={"low": "recent.min", "high": "recent.max"},
    ).subscribe(heard)  # fmt: skip
    for seconds, x in ((0, 1.0), (6, 2.5), (6, 3.5), (1, 5.0)):
        clock.advance(seconds)
        move(objects, f"{room}/a", x)
    assert [(event.low, event.high) for event in heard.wait(1)] == [(2.5, 5.0)]


def test_counts_and_whether_it_was_inside(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    heard = Recorder[Any]()
    inside = "new.x between 0 and 10"
    objects.trigger(
        "crossing", on=f"{room}/a", when="each", where="was.it != (new.x between 0 and 10)",
        history={"was": was(inside), "seen": count(inside)}, notify={"x": "new.x", "seen": "seen.count"},
    ).subscribe(heard)  # fmt: skip
    move(objects, f"{room}/a", 5.0, 6.0, 11.0, 12.0, 3.0)
    assert [(event.x, event.seen) for event in heard.wait(2)] == [(11.0, 2), (3.0, 3)]


def test_inputs_that_are_no_events_and_their_previous_values(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    heard = Recorder[Any]()
    objects.trigger(
        "both", on=f"{room}/a", when="each", inputs={"b": f"{room}/b.x"}, where="b > new.x",
        notify={"b": "b", "before": "previous.b"},
    ).subscribe(heard)  # fmt: skip
    move(objects, f"{room}/b", 5.0, 7.0)
    move(objects, f"{room}/a", 1.0, 9.0)
    assert [(event.b, event.before) for event in heard.wait(1)] == [(7.0, 5.0)]


def test_creation_and_destruction_of_what_fits_a_pattern(objects: Objects, room: str) -> None:
    heard = Recorder[Any]()
    objects.trigger(
        "roll", on=[f"created {room}/*", f"destroyed {room}/*"], type="P", when="each", notify={"x": "new.x"}
    ).subscribe(heard)
    create(objects, f"{room}/a", f"{room}/deep/b", x=1.0)
    with objects.transaction() as t:
        t.destroy(f"{room}/a")
    found = [(event.object.rpartition("/")[2], event.op, event.x) for event in heard.wait(2)]
    assert found == [("a", "created", 1.0), ("a", "destroyed", None)]


def test_an_action_names_the_object_of_its_event(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    objects.trigger("count", on=f"{room}/*", type="P", when="each",
                    do=lambda t: t.update("{object}", n=Computed("n + 1")))  # fmt: skip
    move(objects, f"{room}/a", 1.0, 2.0)
    move(objects, f"{room}/b", 1.0)
    assert (objects[f"{room}/a.n"], objects[f"{room}/b.n"]) == (2, 1)


def test_what_has_not_changed_for_a_minute(objects: Objects, room: str, clock: ManualClock) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    heard = Recorder[Any]()
    objects.trigger("quiet", on=f"unchanged 60 s {room}/a.x", when="each", notify={"x": "new.x"}).subscribe(heard)
    move(objects, f"{room}/a", 1.0)
    clock.advance(40)
    with objects.transaction() as t:
        t.update(f"{room}/a", x=2.0)  # silent, and a change all the same
    clock.advance(40)
    with objects.transaction() as t:
        t.update(f"{room}/a", n=3, event=True)  # another member
    assert not heard.events
    clock.advance(25)
    assert [event.x for event in heard.wait(1)] == [2.0]
    clock.advance(200)
    move(objects, f"{room}/b", 1.0)
    assert len(heard.events) == 1


def test_ticks(objects: Objects, room: str, clock: ManualClock) -> None:
    create(objects, f"{room}/a")
    objects.trigger("tick", on="every 10 s", when="each", do=lambda t: t.update(f"{room}/a", n=Computed("n + 1")))

    def ticked(times: int) -> bool:
        clock.advance(0.002)  # the clock may have been advanced before the next tick was asked for
        return bool(objects[f"{room}/a.n"] == times)

    for times in (1, 2):
        clock.advance(10)
        eventually(lambda times=times: ticked(times))


def test_events_of_a_channel(node: Node, objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    channel = node.channel(f"quotes.{room}", "price: f64, symbol: text")
    objects.trigger("quote", on=f"channel quotes.{room}", when="each", where="new.symbol = 'ACME'",
                    do=lambda t: t.update(f"{room}/a", x=t.new.price))  # fmt: skip
    with channel.source() as source:
        source.publish(price=3.0, symbol="OTHER")
        source.publish(price=4.0, symbol="ACME")
    eventually(lambda: objects[f"{room}/a.x"] == 4.0)


def test_everything_wrong_is_told_at_once_with_its_place(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    with pytest.raises(TransactionError) as caught:
        objects.trigger("bad", on=[f"{room}/a.q", f"{room}/none"], when="each", where="new.y > :e and 3",
                        inputs={"b": f"{room}/a.z"}, params={"d": 1}, notify=["new.w"])  # fmt: skip
    said = str(caught.value)
    for part in ("no member 'q'", "the type of this object is not known", "has no field 'y'", "no parameter 'e'",
                 "no member 'z'", "reads :d", "notify: w"):  # fmt: skip
        assert part in said
    with pytest.raises(ObjectError, match="when: expected a condition"):
        objects.trigger("bad", on=f"{room}/a", when="becomes", notify=True)
    assert not objects.triggers


def test_subscribers_that_block_or_fail_disturb_nobody(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    gate, well = threading.Event(), Recorder[Any]()
    alert = objects.trigger("blocked", on=f"{room}/a", when="each", notify=["new.x"])

    def fail(event: Any) -> None:
        raise ValueError("not today")

    alert.subscribe(lambda event: gate.wait(60))
    alert.subscribe(fail)
    alert.subscribe(well)
    move(objects, f"{room}/a", 1.0, 2.0, 3.0)
    assert [event.x for event in well.wait(3)] == [1.0, 2.0, 3.0]
    gate.set()


def test_notifications_are_taken_by_async_for(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    alert = objects.trigger("awaited", on=f"{room}/a", when="each", notify=["new.x"])

    async def run() -> list[float]:
        found = []
        subscription = alert.subscribe()
        await asyncio.to_thread(move, objects, f"{room}/a", 1.0, 2.0)
        async for event in subscription:
            found.append(event.x)
            if len(found) == 2:
                break
        subscription.cancel()
        return found

    assert asyncio.run(run()) == [1.0, 2.0]


def test_a_channel_has_notifications_of_one_shape(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    shaped = objects.trigger("shaped", on=f"{room}/a", when="each", notify=["new.x"])
    shaped.subscribe(Recorder[Any]())
    shaped.remove()
    with pytest.raises(TransactionError, match="give the trigger another name"):
        objects.trigger("shaped", on=f"{room}/a", when="each", notify={"other": "new.n"})


def test_nodes_whose_subscribers_wait_for_each_other_never_stand_still(tmp_path: Path) -> None:
    """Each notification of one node is a transaction at the other, which is waited for."""
    with Node("one", state=tmp_path / "one") as one, Node("two", state=tmp_path / "two") as two:
        pair = (one.objects, two.objects)
        for objects, other in (pair, pair[::-1]):
            objects.type("P", "x: f64, n: i64, note: text?")
            create(objects, "ball")
            thrown = objects.trigger("thrown", on="ball", when="each", where="new.x < 20", notify=["new.x"])
            thrown.subscribe(lambda event, other=other: move(other, "ball", event.x + 1))
        for objects in pair:
            objects.submit(moving(objects, "ball", 0.0), wait=False)
        for objects in pair:
            eventually(lambda objects=objects: objects["ball.x"] >= 19.0)


def test_a_durable_subscriber_has_each_notification_over_a_restart(tmp_path: Path) -> None:
    found: list[float] = []
    for first in (1.0, 3.0):
        config = Config(log=Log(tmp_path / "log"))
        with Node("kept", state=tmp_path / "state", config=config) as node:
            objects = node.objects
            objects.type("P", "x: f64, n: i64, note: text?")
            if "a" not in objects:
                create(objects, "a")
            alert = objects.trigger("alert", on="a", when="each", notify=["new.x"])
            alert.subscribe(lambda event: found.append(event.x), name="desk", delivery=Reliable(durable=True))
            move(objects, "a", first, first + 1)
            eventually(lambda last=first + 1: len(found) >= last)
    assert found == [1.0, 2.0, 3.0, 4.0]


def test_it_says_in_words_what_it_is(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a", f"{room}/b")
    text = objects.trigger(
        "near", on=f"{room}/a", when="becomes", where="new.x > :d and abs(new.x - b.x) < 2", params={"d": 1.0},
        inputs={"b": f"{room}/b"}, do=lambda t: t.update(f"{room}/b", n=Computed("n + 1")), notify=True,
    ).explain()  # fmt: skip
    for part in ("fires when it becomes true that", "1 of 2 parts decided by the index", "n = n + 1", "0 fired"):
        assert part in text


# ── over restarts ──


def test_what_triggers_remember_survives(tmp_path: Path) -> None:
    clock = ManualClock()
    heard = Recorder[Any]()

    def opened() -> Node:
        return Node("again", state=tmp_path / "state", clock=clock)

    with opened() as node:
        objects = node.objects
        objects.type("P", "x: f64, n: i64, note: text?")
        create(objects, "a")
        objects.trigger("becomes", on="a", when="becomes", where="new.x > 5", notify=["new.x"])
        objects.trigger("far", on="a", when="each", where="abs(new.x - last.x) > 2 or last.x is null", notify=["new.x"])
        objects.trigger("sum", on="a", when="each", where="r.count = 3", history={"r": over("new.x", "60 s")},
                        notify={"x": "r.sum"})  # fmt: skip
        objects.trigger("off", on="a", when="each", enabled=False, notify=True)
        objects.trigger("quiet", on="unchanged 60 s a", when="each", notify={"x": "new.x"})
        move(objects, "a", 6.0, 7.0)
    clock.advance(10)
    with opened() as node:
        objects = node.objects
        told = {name: Recorder[Any]() for name in ("becomes", "far", "sum", "quiet")}
        for name, recorder in told.items():
            objects.triggers[name].subscribe(recorder)
        move(objects, "a", 7.5, 9.0, 1.0, 8.0)
        assert [event.x for event in told["becomes"].wait(1)] == [8.0]
        assert [event.x for event in told["far"].wait(3)] == [9.0, 1.0, 8.0]
        assert [event.x for event in told["sum"].wait(1)] == [20.5]
        assert not objects.triggers["off"].report()["enabled"]
        clock.advance(61)
        assert [event.x for event in told["quiet"].wait(1)] == [8.0]
    assert not heard.events


def test_faulty_bytes_are_no_trigger() -> None:
    from headwater.objects.triggers.definition import pack, trigger, unpack

    made = trigger("t", on="//n/a", when="each", notify=True, params={"some": {1, 2}})
    assert unpack(pack(made)) == made
    for bad in (b"", b"\xc1", pack(made)[:-1], b"\x81\xa4name\xa1x"):
        with pytest.raises((ObjectError, InterestError)):
            unpack(bad)


def test_a_trigger_outlives_its_object_and_a_restart(tmp_path: Path) -> None:
    heard = Recorder[Any]()
    with Node("again", state=tmp_path / "state") as node:
        node.objects.type("P", "x: f64, n: i64, note: text?")
        create(node.objects, "a", "b")
        node.objects.trigger("high", on="a", when="becomes", inputs={"b": "b"}, where="new.x > b.x", notify=["new.x"])
        move(node.objects, "a", 1.0)
        with node.objects.transaction() as t:
            t.destroy("a")
            t.destroy("b")
    with Node("again", state=tmp_path / "state") as node:
        node.objects.triggers["high"].subscribe(heard)
        create(node.objects, "a", "b")
        move(node.objects, "a", 2.0)  # of a new object it was not known to hold
        assert [event.x for event in heard.wait(1)] == [2.0]


def test_what_never_changes_is_unchanged_since_the_trigger_was_installed(
    objects: Objects, room: str, clock: ManualClock
) -> None:
    create(objects, f"{room}/a")
    heard = Recorder[Any]()
    objects.trigger("idle", on=f"unchanged 30 s {room}/a", when="each", notify=True).subscribe(heard)
    clock.advance(31)
    assert [event.op for event in heard.wait(1)] == ["unchanged 30 seconds"]


def test_errands_from_faulty_bytes_are_refused_and_the_queue_goes_on(objects: Objects, room: str) -> None:
    create(objects, f"{room}/a")
    objects.trigger("well", on=f"{room}/a", when="each", notify=True)
    packed = msgpack.encode({"name": "t", "on": [{"kind": "change", "name": f"//plant/{room}/a"}], "when": "each",
                             "where": "new.x in :s", "notify": {}, "params": {"s": {"set": [[1], {}]}}})  # fmt: skip
    for what, body in (
        ("install trigger", packed),
        ("install trigger", b"\xc1"),
        ("change trigger", b"\x81\xa6params\x01"),
        ("change trigger", msgpack.encode({"params": {"d": {}}})),
        ("subscribe", b"\xff"),
        ("due", b"\x01"),
        ("due", msgpack.encode([{}, []])),
        ("received", b"\x00"),
        ("conquer", b""),
    ):
        with pytest.raises(TransactionError), objects.transaction() as t:
            t.administer(what, "well", body)
    move(objects, f"{room}/a", 1.0)
    assert objects.triggers["well"].report()["fired"] == 1


def test_a_condition_that_an_index_cannot_take_is_asked_all_the_same(objects: Objects, room: str) -> None:
    heard = Recorder[Any]()
    objects.type(f"L{room}", "many: f64[100000], x: f64")
    with objects.transaction() as t:
        t.create(f"{room}/a", f"L{room}", many=[0.0] * 100_000, x=0.0)
    objects.trigger("long", on=f"{room}/a", when="becomes", where="sum(new.many) = 0 and new.x > 1", notify=True,
                    ).subscribe(heard)  # fmt: skip
    move(objects, f"{room}/a", 2.0, 3.0, 0.0, 2.0)
    assert len(heard.wait(2)) == 2
