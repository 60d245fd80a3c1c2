"""Random transactions have the outcomes, values and events that a simple model says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.channel.objects.service import Computed, Objects
from headwater.objects.operations import Outcome
from headwater.testing import Recorder
from tests.effort import examples
from tests.objects.model import Model

NAMES = st.sampled_from(["a", "b", "c/d"])
ALIASES = st.sampled_from(["r", "s"])
NUMBERS = st.integers(-3, 3)
NOTES = st.none() | st.sampled_from(["", "it's"])
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), NAMES, NUMBERS, NOTES),
    st.tuples(st.just("set"), NAMES, st.fixed_dictionaries({}, optional={"x": NUMBERS, "note": NOTES}), st.booleans()),
    st.tuples(st.just("put"), NAMES, st.fixed_dictionaries({}, optional={"x": NUMBERS, "note": NOTES}), st.booleans()),
    st.tuples(st.just("add"), NAMES, st.none() | ALIASES, NUMBERS, st.booleans()),
    st.tuples(st.just("read"), NAMES, ALIASES),
    st.tuples(st.just("guard"), st.just(""), ALIASES, NUMBERS),
    st.tuples(st.just("destroy"), NAMES),
    st.tuples(st.just("raise"), NAMES),
)
TRANSACTIONS = st.lists(st.lists(OPERATIONS, max_size=6), max_size=8)
_WORLDS = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder: Path = tmp_path_factory.mktemp("objects")
    with Node("plant", state=folder / "state") as made:
        made.objects.type("Thing", "x: i64, note: text?")
        yield made


def build(objects: Objects, operations: list[tuple[Any, ...]], world: str) -> Any:
    """The same as a transaction."""
    t = objects.builder()
    for what, name, *rest in operations:
        full = f"{world}/{name}"
        match what:
            case "create":
                t.create(full, "Thing", x=rest[0], note=rest[1])
            case "set":
                t.update(full, rest[0], event=rest[1])
            case "put":
                t.put(full, "Thing", rest[0], event=rest[1])
            case "add":
                t.update(full, x=Computed(f"{rest[0] or 'x'} + ({rest[1]})"), event=rest[2])
            case "read":
                t.read(f"{full}.x", as_=rest[0])
            case "guard":
                t.only_if(f"{rest[0]} < {rest[1]}")
            case "destroy":
                t.destroy(full)
            case "raise":
                t.raise_event(full)
    return t


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TRANSACTIONS, st.booleans())
def test_transactions_do_what_the_model_does(
    node: Node, transactions: list[list[tuple[Any, ...]]], at_once: bool
) -> None:
    objects, model, world = node.objects, Model(), f"w{next(_WORLDS)}"
    seen: Recorder[Any] = Recorder()
    with objects.changes("Thing").subscribe(seen, f"startswith(object, '//plant/{world}/')"):
        built = [build(objects, each, world).build() for each in transactions]
        expected = [model.run(each) for each in transactions]
        if at_once:
            items = [objects.engine.submit(each) for each in built]
            outcomes: list[Outcome] = [item.wait() for item in items]
        else:
            outcomes = [objects.engine.submit(each).wait() for each in built]
        for (refused, reads), outcome in zip(expected, outcomes, strict=True):
            assert outcome.done == (refused == 0), outcome
            assert outcome.results == reads
            assert not refused or refused in [problem.operation for problem in outcome.problems]
        kept = {each.name.removeprefix(f"//plant/{world}/"): each.value for each in objects.list(f"{world}/**")}
        assert {name: {"x": each.x, "note": each.note} for name, each in kept.items()} == model.objects
        seen.wait(len(model.changes))
    assert [
        (
            each.object.removeprefix(f"//plant/{world}/"),
            each.op.name,
            each.old and {"x": each.old.x, "note": each.old.note},
            each.new and {"x": each.new.x, "note": each.new.note},
        )
        for each in seen.events
    ] == model.changes
