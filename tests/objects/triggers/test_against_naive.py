"""Random triggers and transactions against one that looks at every trigger for every event."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.errors import TransactionError
from headwater.objects.builder import Computed
from headwater.testing import Recorder
from tests.effort import examples
from tests.objects.triggers.naive import Naive

NAMES = ("a", "b", "c")  # an action changes an object further to the right only, so that everything ends
TEXTS = {
    "": "",
    "new": "new.x > :k",
    "moved": "abs(new.x - old.x) > :k",
    "last": "new.x is not null and (last.x is null or abs(new.x - last.x) > :k)",
    "both": "new.y < 3 and new.x - a.x > :k",
    "inputs": "a.x - b.x > :k",
}
_ROUND = count()


@st.composite
def triggers(draw: Any) -> dict[str, Any]:
    ask = draw(st.sampled_from(sorted(TEXTS)))
    kind = draw(st.sampled_from(["change", "change", "change", "created", "destroyed"]))
    on: Any = draw(st.sampled_from(["*", ("a",), ("b",), ("c",), ("a", "b")]))
    later = NAMES[max(NAMES.index(each) for each in (on if on != "*" else NAMES)) + 1 :]
    return {
        "ask": ask,
        "kind": kind,
        "on": on,
        "member": draw(st.sampled_from(["", "x", "y"])) if kind == "change" else "",
        "when": draw(st.sampled_from(["each", "becomes"])) if ask else "each",
        "k": draw(st.integers(-1, 3)),
        "priority": draw(st.integers(0, 1)),
        "target": draw(st.sampled_from(["", *later])),
    }


VALUES = st.fixed_dictionaries({}, optional={"x": st.integers(-2, 5), "y": st.integers(0, 5)})
OPERATIONS = st.one_of(
    st.tuples(st.just("update"), st.sampled_from(NAMES), VALUES, st.booleans()),
    st.tuples(st.just("update"), st.sampled_from(NAMES), VALUES, st.just(True)),
    st.tuples(st.sampled_from(["raise", "destroy"]), st.sampled_from(NAMES)),
    st.tuples(st.just("create"), st.sampled_from(NAMES), VALUES),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder: Path = tmp_path_factory.mktemp("naive")
    with Node("n", state=folder / "state") as made:
        made.objects.type("P", "x: i64, y: i64")
        yield made


@settings(
    max_examples=examples(75),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # each look at a smaller one installs triggers anew
)
@given(
    st.lists(triggers(), min_size=1, max_size=6), st.lists(st.lists(OPERATIONS, min_size=1, max_size=3), max_size=10)
)
def test_what_fires_is_what_a_look_at_every_trigger_finds(
    node: Node, given: list[dict[str, Any]], turns: list[list[tuple[Any, ...]]]
) -> None:
    objects, room = node.objects, f"r{next(_ROUND)}"
    for at, each in enumerate(given):
        each["name"] = f"{room}-t{at}"
    naive = Naive([])
    heard: dict[str, Recorder[Any]] = {}
    changes = Recorder[Any]()
    watching = objects.changes("P").subscribe(changes, f"starts_with(object, '//n/{room}/')")
    for name in NAMES:
        naive.turn([("create", name, {"x": 0})])
        with objects.transaction() as t:
            t.create(f"{room}/{name}", "P", x=0, y=0)
    kept = [each for each in given if install(objects, room, each, heard)]
    naive.triggers, naive.told = kept, {each["name"]: [] for each in kept}
    for operations in turns:
        assert naive.turn(operations) == run(objects, room, operations)
    changes.wait(len(naive.changes))
    assert [
        (e.object.rpartition("/")[2], e.op.name.lower(), e.new and e.new.x) for e in changes.events
    ] == naive.changes
    for name, told in naive.told.items():
        found = heard[name].wait(len(told))
        assert [(each.object.rpartition("/")[2], each.x) for each in found] == told, name
    watching.cancel()
    for each in kept:
        objects.triggers[each["name"]].remove()


def install(objects: Any, room: str, given: dict[str, Any], heard: dict[str, Recorder[Any]]) -> bool:
    """Whether it is a new one: of two equal ones, the second is the first."""
    names = [f"{room}/*"] if given["on"] == "*" else [f"{room}/{name}" for name in given["on"]]
    member = f".{given['member']}" if given["member"] else ""
    word = "" if given["kind"] == "change" else f"{given['kind']} "
    inputs = {name: (f"{room}/{name}", "P") for name in ("a", "b")} if given["ask"] in ("both", "inputs") else None
    value = Computed("coalesce(new.x, old.x) - 1")
    made = objects.trigger(
        given["name"],
        on=[f"{word}{name}{member}" for name in names],
        type="P",
        when=given["when"],
        where=TEXTS[given["ask"]],
        inputs=inputs,
        params={"k": given["k"]} if given["ask"] else {},
        priority=given["priority"],
        do=(lambda t: t.update(f"{room}/{given['target']}", {"x": value}, event=True)) if given["target"] else (),
        notify={"x": "new.x"},
    )
    if made.name == given["name"]:
        heard[made.name] = Recorder()
        made.subscribe(heard[made.name])
    return bool(made.name == given["name"])


def run(objects: Any, room: str, operations: list[tuple[Any, ...]]) -> bool:
    try:
        with objects.transaction() as t:
            for op, name, *rest in operations:
                match op:
                    case "update":
                        t.update(f"{room}/{name}", rest[0], event=rest[1])
                    case "raise":
                        t.raise_event(f"{room}/{name}")
                    case "destroy":
                        t.destroy(f"{room}/{name}")
                    case "create":
                        t.create(f"{room}/{name}", "P", {"x": 0, "y": 0, **rest[0]})
    except TransactionError:
        return False
    return True
