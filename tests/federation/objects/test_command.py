"""`headwater objects`, as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.cli import main
from headwater.errors import HeadwaterWarning
from headwater.objects import over
from tests.federation.nodes import Nodes, nodes

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """What a command prints about the objects of a node that runs; an error is a line, and the exit code says so."""
    with nodes() as make:
        make: Nodes
        plant = make("plant", state=tmp_path / "plant.state")
        plant.objects.type("Tank", "level: f64, label: text?, at: {x: i64, y: i64}")

        def called(*arguments: str, code: int = 0) -> str:
            assert main(["objects", *arguments, "--connect", plant.endpoints[0]]) == code
            said = capsys.readouterr()
            return said.err if code else said.out

        called.plant = plant  # type: ignore[attr-defined]
        yield called


def test_objects_are_made_changed_read_listed_and_ended(call: Call) -> None:
    assert call("create", "//plant/hall/a", "Tank", "level=1.5", "label=north", 'at={"x": 1, "y": 2}') == "turn 1\n"
    call("create", "//plant/b", "Tank", "level=3", 'at={"x": 0, "y": 0}')
    update = ("update", "//plant/hall/a", "at.x=7", "--compute", "level=level * :by", "--param", "by=2")
    call(*update, "--only-if", "it.level < 2", "--event")
    assert json.loads(call("get", "//plant/hall/a")) == {"level": 3.0, "label": "north", "at": {"x": 7, "y": 2}}
    assert call("get", "//plant/hall/a.at.x") == "7\n"
    assert "only if" in call(*update, "--only-if", "it.level < 2", code=2)
    shown = call("list", "//plant")
    assert "//plant/b" in shown and "//plant/hall/a" in shown and "label: text?" in call("types", "//plant")
    found = [json.loads(line) for line in call("list", "//plant/hall/*", "--json").splitlines()]
    assert [(each["object"], each["type"], each["value"]["level"]) for each in found] == [("//plant/hall/a", "Tank", 3)]
    assert "more than 1" in call("list", "//plant", "--most", "1")
    call("destroy", "//plant/b", "--only-if", "it.level > 2")
    assert "//plant/b" not in call("list", "//plant")


def test_triggers_are_listed_and_explained(call: Call) -> None:
    objects = call.plant.objects  # type: ignore[attr-defined]
    with objects.transaction() as t:
        t.create("a", "Tank", level=1.0, at={"x": 1, "y": 2})
    with pytest.warns(HeadwaterWarning, match="high -> high"):
        objects.trigger(
            "high", on="a", when="becomes", where="new.level > :most and past.mean > 1", params={"most": 5.0},
            history={"past": over("new.level", "1 hour")}, notify={"level": "new.level"},
            do=lambda t: t.update("a", label="high", event=True),
        )  # fmt: skip
    for level in (6.0, 7.0):
        with objects.transaction() as t:
            t.update("a", level=level, event=True)
    [found] = map(json.loads, call("triggers", "//plant", "--json").splitlines())
    assert (found["name"], found["on"], found["fired"], found["failed"]) == ("high", "//plant/a", 1, 0)
    assert "//plant/a" in call("triggers", "//plant")
    told = call("explain", "//plant", "high")
    for text in (
        "1 of 2 parts decided by the index",
        "native operations an event",
        "at the moment of 1, 3 values in all",
        "may set each other off without end: high -> high",
        "one message at each firing for each other node",
        "1 fired",
    ):
        assert text in told, told
    told = call("explain", "//plant", "--on", "a", "--when", "becomes", "--where", "new.level > :m", "--param", "m=3")
    assert "not installed" in told and ":m = 3" in told and "of another node" in told
    assert list(objects.triggers) == ["high"]
    assert "not both" in call("explain", "//plant", code=2)
    assert "new.lvl" in call("explain", "//plant", "--on", "a", "--where", "new.lvl > 3", code=2)


def test_a_replica_is_shown_with_its_bound_and_time(call: Call) -> None:
    call("create", "//plant/hall/a", "Tank", "level=1.5", 'at={"x": 1, "y": 2}')
    call("create", "//plant/hall/b", "Tank", "level=2.5", 'at={"x": 1, "y": 2}')
    replica = ("replica", "//plant/hall/*", "--type", "Tank", "--bound", "level=0.5")
    found = [json.loads(line) for line in call(*replica, "--count", "2").splitlines()]
    assert [(each["object"], each["value"]["level"], each["bound"]) for each in found] == [
        ("//plant/hall/a", 1.5, {"level": 0.5}),
        ("//plant/hall/b", 2.5, {"level": 0.5}),
    ]
    assert all(each["as_of"] > 1e15 for each in found)
    assert "--bound level: expected a number" in call("replica", "//plant/hall/a", "--bound", "level=x", code=2)


def test_what_is_wrong_is_said_in_a_line_that_names_it(call: Call) -> None:
    for arguments, said in (
        (("get", "plant/a"), "expected //NODE/PATH"),
        (("get", "//plant/a"), "//plant/a: expected an object of that name"),
        (("update", "//plant/a"), "nothing to change"),
        (("create", "//plant/a", "Tnak", "level=1"), "Tnak"),
        (("create", "//plant/a", "Tank", "level"), "expected NAME=VALUE"),
        (("get", "//nobody/a", "--wait", "0.1"), "expected node 'nobody' in the federation, found"),
    ):
        found = call(*arguments, code=2)
        assert said in found and found.startswith("headwater objects: ") and "Traceback" not in found, found
