"""Conditions that read what methods of objects return."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node
from headwater.errors import InterestError, ObjectError
from headwater.objects import Computed, result_of
from headwater.testing import Recorder


class Van(Event):
    fuel: float
    load: float = 0.0


@pytest.fixture
def node() -> Iterator[Node]:
    with Node("depot", state=":memory:") as made:
        made.objects.type("Van", Van)
        with made.objects.transaction() as t:
            t.create("fleet/a", "Van", fuel=9.0)
            t.create("fleet/b", "Van", fuel=9.0)
        yield made


class Ranges:
    """A method that notes what it was asked."""

    def __init__(self, node: Node) -> None:
        self.asked: list[tuple[float, float]] = []

        @node.objects.method("Van")
        def range_left(van: Van, reserve: float = 0.0) -> float | None:
            self.asked.append((van.fuel, reserve))
            if van.fuel < 0:
                raise ArithmeticError("a leak")
            return None if van.fuel == 0 else (van.fuel - reserve) * 10


def burn(node: Node, name: str, *fuels: float) -> Any:
    for fuel in fuels:
        with node.objects.transaction() as t:
            t.update(name, fuel=fuel, event=True)
    return t


def test_a_condition_an_action_and_a_notification_read_what_a_method_returns(node: Node) -> None:
    Ranges(node)
    heard = Recorder[Any]()
    node.objects.trigger(
        "short", on="fleet/*", type="Van", when="becomes", where="left < :least", params={"least": 30.0},
        inputs={"left": result_of("{object}", "range_left", {"reserve": 1})},
        do=lambda t: t.update("{object}", load=t["left"]), notify=["left"],
    ).subscribe(heard)  # fmt: skip
    burn(node, "fleet/a", 5.0, 3.5, 2.0, 8.0, 3.0)
    burn(node, "fleet/b", 3.9)
    assert [(event.object[-1], event.left) for event in heard.wait(3)] == [("a", 25.0), ("a", 20.0), ("b", 29.0)]
    assert node.objects["fleet/b.load"] == pytest.approx(29.0)


def test_a_method_is_called_when_all_else_holds_and_once_at_an_event(node: Node) -> None:
    ranges = Ranges(node)
    inputs = {"left": result_of("fleet/a", "range_left")}
    for at, bound in enumerate((10.0, 20.0, 30.0)):
        node.objects.trigger(
            f"t{at}", on="fleet/a", when="each", where="left < :bound and new.fuel < 4 and other < 10",
            inputs={**inputs, "other": "fleet/b.fuel"}, params={"bound": bound}, notify=["left"],
        )  # fmt: skip
    burn(node, "fleet/a", 8.0, 5.0)
    assert ranges.asked == []  # the rest of the condition did not hold
    burn(node, "fleet/a", 3.0)
    assert ranges.asked == [(3.0, 0.0)]  # three triggers, of which none has fired, and one call
    assert "left called when all else holds" in node.objects.triggers["t0"].explain()
    assert "reads left: range_left() of //depot/fleet/a" in node.objects.triggers["t0"].explain()


def test_a_method_that_raises_fails_its_condition_and_nothing_else(node: Node) -> None:
    ranges = Ranges(node)
    inputs = {"left": result_of("fleet/a", "range_left")}
    failing = node.objects.trigger(
        "failing", on="fleet/a", when="each", where="left < 1000", inputs=inputs, notify=True
    )
    node.objects.trigger("fine", on="fleet/a", when="each", do=lambda t: t.update("fleet/b", fuel=t.new.fuel))
    outcome = burn(node, "fleet/a", 1.0, 0.0, -1.0).outcome
    assert outcome.done
    assert len(ranges.asked) == 3
    assert node.objects["fleet/b.fuel"] == -1.0
    report = failing.report()
    assert (report["evaluated"], report["fired"], report["failed"]) == (3, 1, 1)  # with 0, it is missing
    assert report["failure"] == "method 'range_left' of fleet/a: it raised ArithmeticError: a leak"


def test_arguments_are_computed_from_what_the_condition_reads(node: Node) -> None:
    ranges = Ranges(node)
    heard = Recorder[Any]()
    trigger = node.objects.trigger(
        "t", on="fleet/*", type="Van", when="each", where="left < 40 and new.fuel < 9",
        inputs={
            "spare": "fleet/b.load",
            "left": result_of("{object}", "range_left", {"reserve": Computed("spare + old.fuel / :part")}),
        },
        params={"part": 9.0}, notify=["left"],
    )  # fmt: skip
    trigger.subscribe(heard)
    with node.objects.transaction() as t:
        t.update("fleet/b", load=2.0)
    burn(node, "fleet/a", 5.0)
    assert heard.wait(1)[0].left == 20.0
    trigger.change(params={"part": 5.0})
    burn(node, "fleet/a", 4.0)
    assert ranges.asked == [(5.0, 3.0), (4.0, 3.0)]


def test_an_object_that_is_gone_or_of_another_type_has_no_result(node: Node) -> None:
    ranges = Ranges(node)
    node.objects.type("Car", "wheels: i64")
    inputs = {"left": result_of("fleet/a", "range_left")}
    trigger = node.objects.trigger("t", on="fleet/b", when="each", where="left is null", inputs=inputs, notify=True)
    burn(node, "fleet/b", 8.0)
    with node.objects.transaction() as t:
        t.destroy("fleet/a")
        t.update("fleet/b", fuel=7.0, event=True)
    with node.objects.transaction() as t:
        t.create("fleet/a", "Car", wheels=4)
        t.update("fleet/b", fuel=6.0, event=True)
    assert trigger.report()["fired"] == 2
    assert len(ranges.asked) == 1


def test_everything_wrong_is_told_when_it_is_installed(node: Node) -> None:
    @node.objects.method("Van")
    def fill(van: Van) -> Van:
        return van

    @node.objects.method("Van")
    def beep(van: Van) -> None:
        pass

    @node.objects.method("Van")
    def far(van: Van, speed: float) -> float:
        return speed

    with pytest.raises(ObjectError) as wrong:
        node.objects.trigger(
            "t", on="fleet/a", when="each", notify=True, where="a + b + c + d + e + f + g + h > 0",
            inputs={
                "a": result_of("fleet/a", "fill"),
                "b": result_of("fleet/a", "beep"),
                "c": result_of("fleet/a", "fly"),
                "d": result_of("fleet/a", "far", {"sped": 1.0}),
                "e": result_of("fleet/a", "far", {"speed": "fast"}),
                "f": result_of("fleet/a.fuel", "far"),
                "g": result_of("fleet/none", "far"),
                "h": result_of("fleet/a", "far", {"speed": Computed("i * 2.0")}),
                "i": result_of("fleet/a", "far", {"speed": 1.0}),
            },
        )  # fmt: skip
    for text in (
        "method 'fill' of Van returns the object's new value",
        "method 'beep' of Van returns nothing",
        "method 'fly' of Van is not known",
        "method 'far' of Van has no such argument",
        "did you mean",
        "speed: expected",
        "methods are of objects, and this is a member of one",
        "the type of this object is not known",
        "an argument reads i, the result of a method",
    ):
        assert text in str(wrong.value), text


def test_what_was_before_is_not_kept_of_a_result(node: Node) -> None:
    Ranges(node)
    with pytest.raises((InterestError, ObjectError), match="previous"):
        node.objects.trigger(
            "t", on="fleet/a", when="each", where="previous.left > left", notify=True,
            inputs={"left": result_of("fleet/a", "range_left")},
        )  # fmt: skip


def test_after_a_restart_a_trigger_fails_until_its_method_is_registered_again(tmp_path: Path) -> None:
    def installed(node: Node) -> Any:
        return node.objects.trigger(
            "t", on="fleet/a", when="each", where="left < 30", notify=["left"],
            inputs={"left": result_of("fleet/a", "range_left")},
        )  # fmt: skip

    with Node("depot", state=tmp_path / "state") as node:
        node.objects.type("Van", Van)
        Ranges(node)
        with node.objects.transaction() as t:
            t.create("fleet/a", "Van", fuel=9.0)
        installed(node)
    with Node("depot", state=tmp_path / "state") as node:
        node.objects.type("Van", Van)
        trigger = node.objects.triggers["t"]
        burn(node, "fleet/a", 2.0)
        assert trigger.report()["fired"] == 0
        assert "expected one that is registered, found none" in trigger.report()["failure"]
        Ranges(node)
        burn(node, "fleet/a", 2.5)
        assert trigger.report()["fired"] == 1
        assert installed(node).name == "t"  # an equal one, and no problem

        @node.objects.method("Van", name="range_left")
        def other(van: Van) -> str:
            return "far"

        burn(node, "fleet/a", 1.0)
        assert "expected what it returned when the trigger was installed" in trigger.report()["failure"]
        assert trigger.report()["failed"] == 2
