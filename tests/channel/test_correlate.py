"""Filter trees: conjunctions and disjunctions of events."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.correlation.tree import AllOf, AnyOf, Condition, Match, Part, Tree, all_of, any_of, on
from headwater.errors import SubscriptionError
from tests.effort import examples


def offered(tree: Tree, *arrivals: tuple[int, Any] | tuple[int, Any, float]) -> list[Match]:
    """All matches of some arrivals: leaf, event, and the time if it matters."""
    done: list[Match] = []
    for leaf, event, *now in arrivals:
        done += tree.offer(leaf, event, now[0] if now else 0.0)  # type: ignore[arg-type]
    return done


# ── what each kind means ──


def test_a_leaf_is_satisfied_by_each_event() -> None:
    tree = Tree(on("door"))
    assert offered(tree, (0, "x"), (0, "y")) == [Match(("x",), ("part1",)), Match(("y",), ("part1",))]


def test_any_of_hands_on_the_events_of_the_part_that_is_satisfied() -> None:
    tree = Tree(any_of(on("door", name="door"), all_of(on("a"), on("b"))))
    first, second = offered(tree, (1, 1), (0, 2), (2, 3))
    assert first.events == (2,) and first.parts == ("door",)
    assert second.events == (1, 3) and second.parts == ("part2", "part3")


def test_all_of_waits_for_all_and_then_forgets() -> None:
    tree = Tree(all_of(on("door", name="door"), on("motion", "level > 0.5", name="motion")))
    (match,) = offered(tree, (1, "m1"), (1, "m2"), (0, "d1"))
    assert match.events == ("m2", "d1") and match["door"] == "d1" and match["motion"] == "m2"
    assert offered(tree, (0, "d2"), (0, "d3")) == [] and tree.remembered == 1
    assert [m.events for m in offered(tree, (1, "m3"))] == [("d3", "m3")]
    assert tree.remembered == 0


def test_keep_first() -> None:
    tree = Tree(all_of(on("a"), on("b"), keep="first"))
    assert [m.events for m in offered(tree, (0, 1), (0, 2), (1, 3), (1, 4), (0, 5))] == [(1, 3), (4, 5)]


def test_keep_all_up_to_a_limit() -> None:
    tree = Tree(all_of(on("a", name="a"), on("b"), keep="all", limit=3))
    (match,) = offered(tree, (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 6))
    assert match.events == (3, 4, 5, 6) and tree.forgotten == 2 and tree.expired == 0
    assert match["a"] == 5 and match.all_by_name("a") == (3, 4, 5) and match.parts == ("a", "part2")


@pytest.mark.parametrize("keep", ["latest", "first", "all"])
def test_within(keep: Any) -> None:
    tree = Tree(all_of(on("a"), on("b"), within=5.0, keep=keep))
    assert [m.events for m in offered(tree, (0, 1, 10.0), (1, 2, 15.0))] == [(1, 2)]  # not older than that
    assert offered(tree, (0, 3, 20.0), (1, 4, 25.5)) == [] and tree.expired == 1
    assert [m.events for m in offered(tree, (0, 5, 26.0))] == [(4, 5)]
    assert tree.forgotten == 0


def test_first_makes_room_when_it_is_too_old() -> None:
    tree = Tree(all_of(on("a"), on("b"), within=timedelta(seconds=5), keep="first"))
    assert [m.events for m in offered(tree, (0, 1, 0.0), (0, 2, 6.0), (1, 3, 7.0))] == [(2, 3)]


def test_what_is_old_goes_without_a_further_event() -> None:
    tree = Tree(all_of(on("a"), on("b"), within=5.0))
    offered(tree, (0, 1, 0.0))
    assert tree.age(5.0) == 0 and tree.age(5.1) == 1 and tree.remembered == 0 and tree.expired == 1


def test_clear_forgets_everything() -> None:
    tree = Tree(all_of(on("a"), on("b")))
    offered(tree, (0, 1))
    tree.clear()
    assert tree.remembered == 0 and offered(tree, (1, 2)) == []


def test_a_part_that_is_satisfied_at_once_counts_from_then() -> None:
    """The age of a nested conjunction is that of its satisfaction, not of its oldest event."""
    tree = Tree(all_of(all_of(on("a"), on("b")), on("c"), within=5.0))
    assert [m.events for m in offered(tree, (0, 1, 0.0), (1, 2, 100.0), (2, 3, 104.0))] == [(1, 2, 3)]


def test_memory_is_bounded() -> None:
    inner = all_of(on("a"), on("b"), keep="all", limit=4)
    tree = Tree(all_of(inner, on("c"), keep="all", limit=6))
    for n in range(10_000):
        tree.offer(n % 7 > 3, n, float(n))
    assert tree.remembered <= 2 * 4 + 2 * 6
    assert tree.forgotten + tree.remembered == 10_000


# ── names ──


def test_leaves_are_in_the_order_written_and_have_names() -> None:
    door = on("door")
    tree = Tree(all_of(any_of(door, on("b", name="part1")), all_of(on("c"), door), on("d", "x > 1", params={"y": 1})))
    assert [leaf.name for leaf in tree.leaves] == ["part1_2", "part1", "part3", "part4", "part5"]
    assert [leaf.channel for leaf in tree.leaves] == ["door", "b", "c", "door", "d"]
    assert tree.leaves[4].where == "x > 1" and tree.leaves[4].params == {"y": 1}
    assert door.name is None


def test_a_match_by_name() -> None:
    match = Match((1, 2, 3), ("a", "b", "a"))
    assert match["a"] == 3 and match.by_name("b") == 2 and match.get("c") is None and match.get("c", 9) == 9
    assert len(match) == 3 and list(match) == [1, 2, 3] and "a" in match and "c" not in match
    with pytest.raises(KeyError, match="no event of part 'c'; there are: a, b"):
        match["c"]
    with pytest.raises(FrozenInstanceError):
        match.events = ()  # type: ignore[misc]
    assert match == Match((1, 2, 3), ("a", "b", "a")) and hash(match) == hash(Match((1, 2, 3), ("a", "b", "a")))


# ── at the door ──


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: all_of(), "all_of(): expected at least one part, found none"),
        (lambda: any_of(), "any_of(): expected at least one part, found none"),
        (lambda: all_of("door"), "found str; hint: write on('door')"),
        (lambda: any_of(on("a"), None), "part 2: expected on(…), all_of(…) or any_of(…), found NoneType"),
        (lambda: all_of([on("a")]), "hint: write all_of(*parts)"),
        (lambda: all_of(on("a", name="x"), any_of(on("b", name="x"))), "found 'x' twice"),
        (
            lambda: all_of(on("a"), keep="frist"),
            "latest, first, all, found 'frist'; hint: did you mean 'first'?",
        ),
        (lambda: all_of(on("a"), keep=None), "one of latest, first, all, found None"),
        (lambda: all_of(on("a"), within=0), "a number of seconds above 0, found 0"),
        (lambda: all_of(on("a"), within=-1.5), "found -1.5"),
        (lambda: all_of(on("a"), within=float("nan")), "found nan"),
        (lambda: all_of(on("a"), within=float("inf")), "hint: leave it out"),
        (lambda: all_of(on("a"), within="5"), "found '5'"),
        (lambda: all_of(on("a"), within=True), "found True"),
        (lambda: all_of(on("a"), limit=0), "at least 1, found 0"),
        (lambda: all_of(on("a"), limit=1.5), "found 1.5"),
        (lambda: on(""), "on(): expected a channel"),
        (lambda: on(None), "found None"),
        (lambda: on(on("a")), "join parts with all_of"),
        (lambda: on("a", name=""), "name: expected text, found ''"),
        (lambda: on("a", params=[1]), "params: expected values by name, found list"),
        (lambda: Tree("door"), "found str"),
    ],
)
def test_wrong_parts(make: Any, says: str) -> None:
    with pytest.raises(SubscriptionError) as raised:
        make()
    assert says in str(raised.value)


# ── against a slow model ──


@dataclass
class Slow:
    """The same, as plainly as it can be said: each conjunction has a list of (child, when, events), oldest first."""

    condition: Condition
    leaves: list[Part] = field(default_factory=list)
    memory: dict[int, list[tuple[int, float, list[Any]]]] = field(default_factory=dict)
    forgotten: int = 0
    expired: int = 0

    def satisfied(self, here: Condition, leaf: int, event: Any, now: float, at: list[int]) -> list[Any] | None:
        """The events by which this part is satisfied now, as (arrival, leaf, event)."""
        me = at[1]
        at[1] += 1
        if isinstance(here, Part):
            at[0] += 1
            return [event] if at[0] - 1 == leaf else None
        results = [self.satisfied(part, leaf, event, now, at) for part in here.parts]
        found = [(child, events) for child, events in enumerate(results) if events is not None]
        if not found:
            return None
        if isinstance(here, AnyOf):
            return found[0][1]
        return self.conjunction(here, self.memory.setdefault(me, []), *found[0], now)

    def conjunction(self, here: AllOf, kept: list[Any], child: int, events: list[Any], now: float) -> list[Any] | None:
        if here.within is not None:
            self.expired += sum(len(e) for _, when, e in kept if when < now - here.within)
            kept[:] = [entry for entry in kept if not entry[1] < now - here.within]
        mine = [entry for entry in kept if entry[0] == child]
        if here.keep == "latest":
            kept[:] = [entry for entry in kept if entry[0] != child]
        if here.keep != "first" or not mine:
            kept.append((child, now, events))
        mine = [entry for entry in kept if entry[0] == child]
        while sum(len(e) for _, _, e in mine) > here.limit and len(mine) > 1:
            oldest = mine.pop(0)
            kept.remove(oldest)
            self.forgotten += len(oldest[2])
        if {c for c, _, _ in kept} != set(range(len(here.parts))):
            return None
        done = sorted(event for _, _, events in kept for event in events)
        kept.clear()
        return done


def conditions() -> st.SearchStrategy[Condition]:
    def composite(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        parts = st.lists(inner, min_size=1, max_size=3)
        conjunction = st.builds(
            lambda parts, within, keep, limit: all_of(*parts, within=within, keep=keep, limit=limit),
            parts,
            st.none() | st.sampled_from((1.0, 3.0, 10.0)),
            st.sampled_from(("latest", "first", "all")),
            st.integers(1, 5),
        )
        return st.one_of(conjunction, parts.map(lambda parts: any_of(*parts)), conjunction)

    return st.recursive(st.just("c").map(on), composite, max_leaves=6)


@given(conditions(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
@settings(deadline=None, max_examples=examples(300))
def test_a_tree_does_what_the_model_does(root: Condition, steps: list[tuple[int, int]]) -> None:
    tree, slow = Tree(root), Slow(root)
    now = 0.0
    for number, (leaf, later) in enumerate(steps):
        leaf, now = leaf % len(tree.leaves), now + later
        event = (number, leaf)
        expected = slow.satisfied(root, leaf, event, now, [0, 0])
        found = tree.offer(leaf, event, now)
        assert [list(match.events) for match in found] == ([] if expected is None else [expected])
        for match in found:
            assert match.names == tuple(tree.leaves[which].name for _, which in match.events)
        assert (tree.forgotten, tree.expired) == (slow.forgotten, slow.expired)
        assert tree.remembered == sum(len(events) for kept in slow.memory.values() for _, _, events in kept)
