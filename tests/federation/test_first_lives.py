"""Durable sinks whose first life ends before they are done with anything: what was for them is for the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, Reliable, i64
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

CHANNEL = "test.count"
MANUAL = Reliable(durable=True, acknowledge="manual")
Seen = list[tuple[int, bool]]  # numbers, and whether they were said to have come before


class Count(Event, name="test.Count"):
    n: i64


def lab_of(make: Nodes, path: Path, logged: bool) -> Node:
    """The same each time, but for the process."""
    more: dict[str, Any] = {"log": path / "log"} if logged else {}
    return make("lab", listen="tcp/127.0.0.1:0", state=path / "lab", **more)


def desk_of(make: Nodes, lab: Node, path: Path) -> Node:
    return make("desk", connect=lab.endpoints[0], listen="tcp/127.0.0.1:0", state=path / "desk")


def subscribe(desk: Node, seen: Seen, name: str = "kept", **options: Any) -> Any:
    def take(event: Count, about: Any) -> None:
        seen.append((event.n, about.redelivered))

    return desk.channel(CHANNEL, Count).subscribe(take, name=name, **{"delivery": MANUAL, **options})


def in_force(desk: Node, lab: Node) -> None:
    see(desk, lab)
    assert desk.ready(GUARD)


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize(("came", "before"), [(0, 7), (10, 0), (10, 7)])
def test_what_came_and_was_not_acknowledged_comes_again(came: int, before: int, logged: bool, tmp_path: Path) -> None:
    """Also if none had come yet; and what was published before it was there does not."""
    with nodes() as make:
        lab = lab_of(make, tmp_path, logged)
        source = lab.channel(CHANNEL, Count).source("s")
        publish(source, 0, before)
        desk, first, second = desk_of(make, lab, tmp_path), Seen(), Seen()
        subscribe(desk, first)
        in_force(desk, lab)
        publish(source, before, before + came)
        eventually(lambda: len(first) == came, "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, before + came, before + 20)
        again = desk_of(make, lab, tmp_path)
        subscribe(again, second)
        in_force(again, lab)
        publish(source, before + 20, before + 30)
        eventually(lambda: len(second) >= 30, "all came")
        assert [n for n, _ in second] == list(range(before, before + 30))
        assert all(redelivered for n, redelivered in second if n < before + came)


@pytest.mark.parametrize("before", [0, 7])
def test_both_ends_are_started_again_and_the_log_has_it(before: int, tmp_path: Path) -> None:
    """Of a source that is logged nothing had come yet: it is owed from where the interest was in force."""
    with nodes() as make:
        lab = lab_of(make, tmp_path, True)
        source = lab.channel(CHANNEL, Count).source("s")
        publish(source, 0, before)
        desk, seen = desk_of(make, lab, tmp_path), Seen()
        subscribe(desk, seen)
        in_force(desk, lab)
        desk.close(drain=False, timeout=0.0)
        publish(source, before, before + 20)
        lab.close(drain=False, timeout=0.0)
        lab = lab_of(make, tmp_path, True)
        source = lab.channel(CHANNEL, Count).source("s")
        desk = desk_of(make, lab, tmp_path)
        subscribe(desk, seen)
        in_force(desk, lab)
        publish(source, before + 20, before + 30)
        eventually(lambda: len(seen) >= 30, "all came")
        assert [n for n, _ in seen] == list(range(before, before + 30))


@pytest.mark.parametrize("logged", [False, True])
def test_one_that_is_done_does_not_speak_for_one_that_is_not(logged: bool, tmp_path: Path) -> None:
    """Two durable sinks at one node, with different interests; and a third, which is new in the second life."""
    with nodes() as make:
        lab = lab_of(make, tmp_path, logged)
        source = lab.channel(CHANNEL, Count).source("s")
        desk, done, open, even = desk_of(make, lab, tmp_path), Seen(), Seen(), Seen()
        subscribe(desk, done, "done", delivery=Reliable(durable=True))
        subscribe(desk, open, "open")
        subscribe(desk, even, "even", where="n % 2 == 0")
        in_force(desk, lab)
        publish(source, 0, 10)
        eventually(lambda: len(done) == len(open) == 10 and len(even) == 5, "all came")
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        done, open, even, new = Seen(), Seen(), Seen(), Seen()
        desk = desk_of(make, lab, tmp_path)
        subscribe(desk, done, "done", delivery=Reliable(durable=True))
        subscribe(desk, open, "open")
        subscribe(desk, even, "even", where="n % 2 == 0")
        subscribe(desk, new, "new")
        in_force(desk, lab)
        publish(source, 20, 30)
        eventually(lambda: (len(done), len(open), len(even), len(new)) >= (20, 30, 15, 10), "all came")
        assert [n for n, _ in done if n >= 10] == list(range(10, 30))
        assert [n for n, _ in open] == list(range(30))
        assert [n for n, _ in even] == list(range(0, 30, 2))
        assert [n for n, _ in new] == list(range(20, 30))


def test_a_batch_that_was_being_handled_comes_again_and_says_so(tmp_path: Path) -> None:
    """It was written that the batch was handed over, and not that it was done with: the first of all."""
    with nodes() as make:
        lab = lab_of(make, tmp_path, False)
        source = lab.channel(CHANNEL, Count).source("s")
        desk, rows = desk_of(make, lab, tmp_path), list[tuple[list[int], bool]]()

        def take(batch: Any, about: Any) -> None:
            rows.append((batch["n"].to_pylist(), about.redelivered))
            if len(rows) == 1:
                raise RuntimeError("as if it had been killed")

        def again() -> None:
            desk.channel(CHANNEL, Count).subscribe(
                take, name="rows", batch=8, failures=1, delivery=Reliable(durable=True)
            )

        again()
        in_force(desk, lab)
        source.publish_many([Count(n) for n in range(8)])
        eventually(lambda: len(rows) == 1, "a batch came")
        desk.close(drain=False, timeout=0.0)
        desk = desk_of(make, lab, tmp_path)
        again()
        in_force(desk, lab)
        publish(source, 8, 9)
        eventually(lambda: sum(len(some) for some, _ in rows[1:]) >= 9, "all came")
        assert [n for some, _ in rows[1:] for n in some] == list(range(9))
        assert rows[1][1] and not rows[-1][1]
