"""Sources that are steered: an object has the settings, within limits, and the source takes them up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node
from headwater.errors import ObjectError, TransactionError
from headwater.objects import Computed
from headwater.testing import eventually

GUARD = 60.0


class Reading(Event):
    celsius: float


class Heater(Event):
    power: float
    step: int = 1
    celsius: float | None = None


class Heating(Event):
    power: float
    step: int


LIMITS: dict[str, Any] = {"power": (0.0, 5.0), "step": (1, None)}


@pytest.fixture
def node() -> Iterator[Node]:
    with Node("plant", state=":memory:") as made:
        made.objects.type("Heating", Heating, limits=LIMITS)
        yield made


def source(node: Node, power: float = 2.0) -> Any:
    return node.channel("readings", Reading, context=Heater).source("hall", context=Heater(power))


def wanted(node: Node, **values: Any) -> int:
    with node.objects.transaction() as t:
        t.update("heating/hall", values)
    return t.outcome.turn  # type: ignore[no-any-return]


def test_settings_are_taken_up_in_order_and_the_context_tells(node: Node) -> None:
    hall, seen = source(node), list[float]()
    heard: list[float] = []
    node.channel("readings").subscribe(lambda event: heard.append(event.celsius), "context.power > 3")
    steering = node.objects.steer("heating/hall", hall, type="Heating", apply=lambda found: seen.append(found.power))
    assert node.objects["heating/hall"].power == 2.0  # made of what the context has
    hall.publish(celsius=18.0)
    for power in (3.0, 4.0, 4.5):
        turn = wanted(node, power=power)  # silently, too
    assert steering.until(turn, GUARD)
    hall.publish(celsius=19.0)
    assert seen == [2.0, 3.0, 4.0, 4.5] and heard == [19.0]
    assert steering.settings == {"power": 4.5, "step": 1}
    assert node.objects.report()["steering"]["heating/hall"]["applied"] == 4


def test_what_is_outside_of_the_limits_is_refused_whoever_wants_it(node: Node) -> None:
    hall = source(node)
    steering = node.objects.steer("heating/hall", hall, type="Heating")

    @node.objects.method("Heating")
    def boost(heating: Heating) -> Heating:
        return Heating(power=heating.power * 100, step=1)

    attempts: list[Any] = [
        lambda t: t.update("heating/hall", power=5.5),
        lambda t: t.update("heating/hall", power=float("nan"), event=True),
        lambda t: t.update("heating/hall", power=Computed("power * 3"), step=2),
        lambda t: t.create("heating/other", "Heating", power=-1.0, step=0),
        lambda t: t.invoke("heating/hall", "boost"),
        lambda t: (t.destroy("heating/hall"), t.create("heating/hall", "Heating", power=9.0, step=1)),
    ]
    for attempt in attempts:
        with pytest.raises(TransactionError) as refused, node.objects.transaction() as t:
            attempt(t)
        assert "power: expected 0.0 to 5.0, found" in str(refused.value)
    with pytest.raises(TransactionError, match=r"update .*heating/hall: step: expected at least 1, found 0"):
        wanted(node, step=0)
    assert steering.until(wanted(node, power=5.0), GUARD)
    assert hall.context["power"] == 5.0


def test_a_trigger_steers_and_one_that_goes_too_far_is_reported(node: Node) -> None:
    hall = source(node)
    steering = node.objects.steer("heating/hall", hall, type="Heating")
    cold = node.objects.trigger(
        "cold", on="channel readings", when="each", where="new.celsius < 20",
        do=lambda t: t.update("heating/hall", power=Computed("power + (20 - new.celsius)")),
    )  # fmt: skip
    hall.publish(celsius=18.0)
    eventually(lambda: hall.context["power"] == 4.0)
    hall.publish(celsius=10.0)
    eventually(lambda: cold.report()["failed"] == 1)
    assert "power: expected 0.0 to 5.0, found 14.0" in cold.report()["failure"]
    assert hall.context["power"] == 4.0 and steering.report()["failed"] == 0


def test_what_cannot_be_done_leaves_the_context_as_it_is(node: Node) -> None:
    hall, broken = source(node), threading.Event()

    def apply(settings: Any) -> None:
        if broken.is_set():
            raise OSError("the relay is stuck")

    steering = node.objects.steer("heating/hall", hall, type="Heating", apply=apply)
    assert steering.until(1, GUARD)
    broken.set()
    assert steering.until(wanted(node, power=4.0), GUARD)
    assert hall.context["power"] == 2.0 and node.objects["heating/hall.power"] == 4.0
    assert steering.report()["failure"] == "OSError: the relay is stuck"
    broken.clear()
    assert steering.until(wanted(node, step=2), GUARD)
    assert dict(hall.context.values) == {"power": 4.0, "step": 2, "celsius": None} and steering.failure == ""


def test_a_transaction_that_is_undone_steers_nothing(node: Node) -> None:
    hall, seen = source(node), list[float]()
    steering = node.objects.steer("heating/hall", hall, type="Heating", apply=lambda found: seen.append(found.power))
    with pytest.raises(TransactionError), node.objects.transaction() as t:
        t.update("heating/hall", power=1.0)
        t.only_if("1 > 2")
    node.objects.trigger(
        "never", on="heating/hall", when="each", where="new.power < 1", coupling="within", veto="too cold"
    )
    with pytest.raises(TransactionError, match="too cold"), node.objects.transaction() as t:
        t.update("heating/hall", power=0.5, event=True)
    assert steering.until(wanted(node, power=3.0), GUARD)
    assert seen == [2.0, 3.0]


def test_an_object_of_another_type_under_that_name_is_nobodys_settings(node: Node) -> None:
    node.objects.type("Note", "text: text")
    hall, seen = source(node), list[float]()
    steering = node.objects.steer("heating/hall", hall, type="Heating", apply=lambda found: seen.append(found.power))
    with node.objects.transaction() as t:
        t.destroy("heating/hall")
        t.create("heating/hall", "Note", text="closed")
    with node.objects.transaction() as t:
        t.destroy("heating/hall")
        t.create("heating/hall", "Heating", power=4.0, step=1)
    assert steering.until(t.outcome.turn, GUARD)
    assert seen == [2.0, 4.0] and hall.context["power"] == 4.0 and steering.failure == ""


def test_a_turn_is_taken_up_when_all_of_it_is(node: Node) -> None:
    """A trigger corrects what was wanted, in the same turn: who waits for that turn finds the last of it."""
    hall = source(node)
    at, go_on = threading.Event(), threading.Event()

    def apply(found: Any) -> None:
        if found.power == 4.5:
            at.set()
            assert go_on.wait(GUARD)

    steering = node.objects.steer("heating/hall", hall, type="Heating", apply=apply)
    correct = lambda t: t.update("heating/hall", power=3.0)  # noqa: E731
    node.objects.trigger("gently", on="heating/hall", when="each", where="new.power > 4", do=correct)
    with node.objects.transaction() as t:
        for power in (1.0, 4.5):
            t.update("heating/hall", power=power, event=True)
    assert at.wait(GUARD) and steering.turn < t.outcome.turn
    go_on.set()
    assert steering.until(t.outcome.turn, GUARD)
    assert steering.settings["power"] == 3.0 and steering.applied == 4


def test_settings_and_limits_survive_a_restart(tmp_path: Path) -> None:
    with Node("plant", state=tmp_path / "state") as node:
        node.objects.type("Heating", "power: f64, step: i64", limits=LIMITS)
        steering = node.objects.steer("heating/hall", source(node), type="Heating")
        assert steering.until(wanted(node, power=4.0), GUARD)
    with Node("plant", state=tmp_path / "state") as node:
        with pytest.raises(TransactionError, match=r"expected 0\.0 to 5\.0"):  # before anything is declared
            wanted(node, power=6.0)
        wanted(node, power=3.0)
        hall = source(node)
        steering = node.objects.steer("heating/hall", hall, type="Heating")
        assert steering.until(1, GUARD)
        assert hall.context["power"] == 3.0  # what is wanted, and not what the program begins with
        node.objects.type("Heating", "power: f64, step: i64")  # leaves them as they are
        with pytest.raises(TransactionError, match=r"expected 0\.0 to 5\.0"):
            wanted(node, power=6.0)
        node.objects.type("Heating", "power: f64, step: i64", limits={"power": (0, 10)})
        assert steering.until(wanted(node, power=6.0, step=-1), GUARD)
    with Node("plant", state=tmp_path / "state") as node, pytest.raises(TransactionError, match="expected 0 to 10"):
        wanted(node, power=11.0)


def test_while_a_function_is_slow_the_oldest_changes_are_passed_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.channel.objects.steering.MOST_WAITING", 3)
    hall, go, begun, seen = source(node), threading.Event(), threading.Event(), list[float]()

    def apply(settings: Any) -> None:
        seen.append(settings.power)
        begun.set()
        assert go.wait(GUARD)

    steering = node.objects.steer("heating/hall", hall, type="Heating", apply=apply)
    assert begun.wait(GUARD)
    for number in range(1, 9):
        turn = wanted(node, power=number / 2)  # who submits does not wait for the function
    go.set()
    assert steering.until(turn, GUARD)
    assert seen == [2.0, 3.0, 3.5, 4.0] and steering.passed_over == 5


def test_what_does_not_fit_is_told_at_once(node: Node) -> None:
    objects, hall = node.objects, source(node)
    objects.type("Wrong", "power: text, volume: f64")
    bad: list[tuple[Any, str]] = [
        (lambda: objects.steer("x", hall, type="Heatng"), "did you mean"),
        (lambda: objects.steer("x", hall, type="Wrong"), "power: expected text, found f64; volume: expected f64"),
        (lambda: objects.steer("//other/x", hall, type="Heating"), "expected an object of this node"),
        (lambda: objects.steer("x", node.channel("plain", Reading).source(), type="Heating"), "with a context"),
        (lambda: objects.steer("x", hall, type="Heating", apply=3), "expected a function"),  # type: ignore[arg-type]
        (lambda: objects.type("L", "a: f64, b: text, c: f64", limits={"b": (0, 1), "d": (0, 1), "a": (2, 1), "c": 1}),  # type: ignore[dict-item]
         "b: expected a number"),
    ]  # fmt: skip
    for attempt, text in bad:
        with pytest.raises(ObjectError) as wrong:
            attempt()
        assert text in str(wrong.value)
    assert all(each in str(wrong.value) for each in ("d: expected a member", "a: expected low", "c: expected (low"))
    objects.steer("heating/hall", hall, type="Heating")
    with pytest.raises(ObjectError, match="found that it does"):
        objects.steer("heating/hall", hall, type="Heating")
    with objects.transaction() as t:
        objects.type("Other", "power: f64")
        t.create("thing", "Other", power=1.0)
    with pytest.raises(ObjectError, match="expected an object of type 'Heating', found one of 'Other'"):
        objects.steer("thing", hall, type="Heating")


def test_it_ends_with_its_source_or_when_it_is_closed(node: Node) -> None:
    hall = source(node)
    steering = node.objects.steer("heating/hall", hall, type="Heating")
    assert steering.until(1, GUARD)
    hall.close()
    turn = wanted(node, power=1.0)
    eventually(lambda: steering.closed)
    assert not steering.until(turn, GUARD) and hall.context["power"] == 2.0
    hall = node.channel("readings").source("hall again", context=Heater(0.0))
    again = node.objects.steer("heating/hall", hall, type="Heating")
    assert again.until(turn, GUARD) and hall.context["power"] == 1.0
    again.close()
    assert not again.until(wanted(node, power=3.0), GUARD)
