"""What another node may cost an owner: places in line, outcomes, expressions to compile, and what triggers remember."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headwater import Event, Node
from headwater.errors import Busy, TransactionError
from headwater.objects import expressions, tables
from headwater.objects.operations import (
    Create,
    Destroy,
    Guard,
    Invoke,
    Permits,
    Raise,
    Read,
    Transaction,
    Update,
    pack,
)
from headwater.objects.triggers import definition
from headwater.objects.triggers.administration import installing, removing
from headwater.objects.triggers.definition import over
from headwater.testing import Recorder
from tests.effort import examples

ALL = Permits(("Tank",), ("Tank",), ())
ASKER = "desk.k1"


class Tank(Event):
    level: float
    label: str = ""


def opened(folder: Path) -> Node:
    node = Node("plant", state=folder / "state")
    node.objects.type("Tank", Tank)
    if "tank" not in node.objects:
        node.objects.submit(Transaction((Create("tank", "Tank", {"level": 0.0}),)))
    return node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with opened(tmp_path) as made:
        yield made


def of(caller: str, ticket: bytes, *operations: Any) -> Transaction:
    return Transaction(operations, ticket, {}, caller, ALL)


# ── the line ──


def test_a_node_has_its_share_of_the_line_and_others_have_theirs(node: Node) -> None:
    engine = node.objects.engine
    shares = engine.queue.shares
    shares.most = 3
    entered: list[Any] = []

    def inside(_: object) -> None:
        """Between two turns, so that nothing of it runs: what is submitted meanwhile stays in line."""
        entered.extend(
            engine.queue.submit(of("desk", bytes([n]) * 16, Raise("tank")), waits=n % 2 == 0) for n in range(3)
        )
        with pytest.raises(Busy, match=r"at most 3 transactions .* found 3 .* again with its ticket"):
            engine.queue.submit(of("desk", b"x" * 16, Raise("tank")), waits=True)
        again = engine.queue.submit(of("desk", bytes(16), Raise("tank")), waits=True)  # the same ticket is no other one
        other = engine.queue.submit(of("shop", b"y" * 16, Raise("tank")), waits=True)
        own = engine.queue.submit(Transaction((Raise("tank"),)), waits=True)
        entered.extend([again, other, own])
        assert node.objects.report()["waiting of others"] == {"desk": 3, "shop": 1}

    runner, engine.queue._runner = engine.queue._runner, -1  # somebody runs a turn: nobody else does
    try:
        inside(None)
    finally:
        engine.queue._runner = runner
        engine.queue.look()
    node.objects.drain(monotonic() + 60.0)
    assert all(item.outcome.done for item in entered)
    assert shares.report() == {}
    assert engine.submit(of("desk", b"x" * 16, Raise("tank"))).wait().done


def test_bytes_in_line_are_bounded_and_what_is_refused_leaves_nothing(node: Node) -> None:
    shares = node.objects.engine.queue.shares
    shares.size = 1000
    shares.enter("desk", 900)
    large = of("desk", b"l" * 16, Update("tank", {"label": "x" * 500}))
    with pytest.raises(Busy, match="1,000 bytes"):
        node.objects.engine.submit(large)
    shares.leave("desk", 900)
    assert node.objects.engine.submit(large).wait().done  # alone, it may be larger than the share
    assert shares.report() == {}


def test_shares_of_the_line_are_known_again_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as node:

        @node.objects.method("Tank")
        def same(tank: Tank) -> Tank:
            return tank

        bodies = [pack(of("desk", bytes([n]) * 16, Invoke("tank", "same"))) for n in range(3)]

        def queue(execute: Any) -> None:
            for number, body in enumerate(bodies):
                tables.queue_last(execute, bytes([number]) * 16, body, "desk")

        node.objects.engine.queue.between(queue)
    with Node("plant", state=tmp_path / "state") as node:  # they wait for the method
        shares = node.objects.engine.queue.shares
        assert shares.of("desk") == (3, sum(map(len, bodies)))
        node.objects.method("Tank", same)
        node.objects.drain(monotonic() + 60.0)
        assert all(node.objects.outcome(bytes([n]) * 16).done for n in range(3))  # type: ignore[union-attr]
        assert shares.report() == {}


def test_a_node_has_its_share_of_outcomes_and_pushes_out_its_own_only(tmp_path: Path) -> None:
    def run(caller: str, number: int) -> None:
        ticket = f"{caller}{number:>12}".encode()
        node.objects.engine.submit(of(caller, ticket, Read("tank.label", "label"))).wait().check()

    with opened(tmp_path) as node:
        own = node.objects.ticket()
        node.objects.submit(Transaction((Raise("tank"),), own))
        node.objects.engine.queue.outcomes.most = 20
        run("shop", 0)
        for number in range(50):
            run("desk", number)
        rows = dict(node.objects.engine._tables.read("SELECT caller, count(*) FROM outcomes GROUP BY caller"))
        assert 18 <= rows["desk"] <= 20
        assert rows["shop"] == rows[""] == 1
        assert node.objects.outcome(own) is not None
        assert node.objects.outcome(b"desk          49") is not None
        with node.objects.transaction() as t:
            t.update("tank", label="x" * 10_000)
        node.objects.engine.queue.outcomes.size = 50_000
        for number in range(50, 60):
            run("desk", number)
        [[size]] = node.objects.engine._tables.read("SELECT sum(length(body)) FROM outcomes WHERE caller = 'desk'")
        assert size <= 50_000


# ── expressions ──


def test_texts_of_others_are_compiled_once_kept_apart_and_bounded() -> None:
    texts = expressions.Texts(count=10, length=2000)
    names = {"x": expressions.Named(Tank.__event_type__.record.by_name["level"].type, False, 1.0)}
    for number in range(50):
        assert texts.condition(f"x < {number + 2}", names, {})
        assert len(texts) <= 10
    made = texts.compiled("x < 51", names, None, {})
    assert texts.compiled("x < 51", names, None, {}) is made
    for _ in range(2):
        with pytest.raises(Exception, match="nothing was read as"):
            texts.compiled("y < 51", names, None, {})
    of_sets = [texts.compiled("x in :s", names, None, {"s": {each}}) for each in (1.5, 1.5, 2.5)]
    assert of_sets[0] is of_sets[1] is not of_sets[2]
    assert texts.compiled("x < :s", names, None, {"s": 1}) is not texts.compiled("x < :s", names, None, {"s": 1.0})


def test_what_is_prepared_is_not_compiled_in_the_turn(node: Node) -> None:
    engine = node.objects.engine
    transaction = of(
        "desk",
        b"p" * 16,
        Read("tank.level", "was"),
        Guard("was >= 0 - 12345"),
        Update("tank", {}, {"level": "level + was + 12345"}),
    )
    before = len(expressions.OTHERS)
    engine.prepare(transaction)
    assert len(expressions.OTHERS) == before + 2
    assert engine.submit(transaction).wait().done
    assert len(expressions.OTHERS) == before + 2


def test_computing_is_bounded_by_what_the_checker_counts(node: Node) -> None:
    with node.objects.transaction() as t:
        t.update("tank", label="x" * 500_000)
    guard = Guard(" or ".join(["contains(label, 'yyyyyyyy')"] * 60) + " or true")
    operations = Read("tank.label", "label"), *[guard] * 200
    with pytest.raises(TransactionError, match="expected values that take less than 250 ms"):
        node.objects.submit(of("desk", b"c" * 16, *operations))
    node.objects.submit(of("desk", b"d" * 16, *operations[:2]))


def test_a_transaction_of_the_owner_may_compute_as_much_as_it_likes_also_later(tmp_path: Path) -> None:
    many = Transaction((Update("tank", {}, {"level": "level + 1"}),) * 1500, b"m" * 16)
    with opened(tmp_path) as node:
        node.objects.engine.queue.between(lambda execute: tables.queue_last(execute, b"m" * 16, pack(many)))
    with opened(tmp_path) as node:  # it was queued, and nobody knew: as after a kill
        node.objects.drain(monotonic() + 60.0)
        assert node.objects["tank.level"] == 1500.0


# ── what triggers remember ──


def delegated(name: str, **more: Any) -> definition.Trigger:
    """As the owner installs what another node has asked for."""
    given: dict[str, Any] = {
        "on": "//plant/tanks/*",
        "when": "each",
        "type": "Tank",
        "history": {"past": over("new.level", "1 hour")},
        "where": "past.count >= 0",
        "notify": {"count": "past.count", "whole": "past.whole"},
        **more,
    }
    made = definition.trigger(name, node="plant", **given)
    return replace(made, name=f"{ASKER}.{name}", group=ASKER)


def install(node: Node, trigger: definition.Trigger) -> str:
    node.objects.submit(Transaction((installing(trigger),)))
    return trigger.name


def level(node: Node, number: int, value: float) -> None:
    name = f"tanks/{number}"
    if name in node.objects:
        node.objects.submit(Transaction((Update(name, {"level": value}, {}, True),)))
    else:
        node.objects.submit(Transaction((Create(name, "Tank", {"level": value}), Raise(name))))


def test_places_of_another_node_are_bounded_and_beyond_them_its_triggers_say_so(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        shares = node.objects.engine.triggers.shares
        shares.most_places = 3
        name = install(node, delegated("mean"))
        own = node.objects.trigger(
            "own", on="tanks/*", type="Tank", when="each", history={"h": over("new.level * 1", "1 hour")},
            where="h.count >= 0", notify=True,
        )  # fmt: skip
        for number in range(6):
            level(node, number, 1.0)
        report = node.objects.triggers[name].report()
        assert report["fired"] == 3
        assert report["failed"] == 3
        assert "remember at most 3 things, found as many" in report["failure"]
        assert own.report()["fired"] == 6
        assert own.report()["failed"] == 0
        assert shares.places == {ASKER: 3}
    with opened(tmp_path) as node:
        shares = node.objects.engine.triggers.shares
        assert shares.places == {ASKER: 3}
        assert shares.values == {ASKER: 6}  # of each tank: created, and raised
        node.objects.submit(Transaction((removing(name),)))
        assert shares.places == shares.values == {}


def test_values_of_another_node_are_bounded_and_its_histories_not_whole_then(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        shares = node.objects.engine.triggers.shares
        shares.most_values = 10
        name = install(node, delegated("mean"))
        told: Recorder[Any] = Recorder()
        node.objects.triggers[name].subscribe(told)
        for turn in range(20):
            level(node, turn % 2, float(turn))
        seen = told.wait(20)
        assert seen[4].whole
        assert not seen[-1].whole
        assert shares.values[ASKER] <= 11
        [[rows]] = node.objects.engine._tables.read("SELECT count(*) FROM trigger_values")
        assert rows == shares.values[ASKER]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("udvirsc"), st.integers(0, 3)), max_size=25))
def test_shares_are_what_is_remembered_whatever_is_undone(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Updates, ends, vetoed updates, triggers that come and go, and the owner asking for the same."""
    many = [
        delegated(f"t{n}", when="becomes", where=f"past.count > {n}", on=f"tanks/{'*' if n else 1}") for n in range(4)
    ]
    triggers = {each.name: each for each in many}
    with opened(tmp_path_factory.mktemp("shares")) as node:
        node.objects.trigger("no", on="tanks/*", type="Tank", when="each", where="new.level < 0", coupling="within",
                             veto="no")  # fmt: skip
        shares = node.objects.engine.triggers.shares
        shares.most_places, shares.most_values = 7, 12
        for step, number in steps:
            name, there = f"{ASKER}.t{number}", node.objects.triggers
            if step == "u":
                level(node, number, 1.0)
            elif step == "d" and f"tanks/{number}" in node.objects:
                node.objects.submit(Transaction((Destroy(f"tanks/{number}"),)))
            elif step == "v" and f"tanks/{number}" in node.objects:
                deeds = [Update(f"tanks/{number}", {"level": each}, {}, True) for each in (1.0, -1.0)]
                with pytest.raises(TransactionError):
                    node.objects.submit(Transaction(tuple(deeds)))
            elif step == "i" and name not in there:
                install(node, triggers[name])
            elif step == "r" and name in there:
                node.objects.submit(Transaction((removing(name),)))
            elif step == "s":
                with pytest.raises(TransactionError):
                    node.objects.submit(Transaction((installing(delegated("undone")), Destroy("nothing"))))
            elif step == "c" and "own" not in there:
                past = {"past": over("new.level", "1 hour")}
                node.objects.trigger("own", on="tanks/2", type="Tank", when="each", where="past.count > 0",
                                     history=past, notify=True)  # fmt: skip
            _must_agree(node)


def _must_agree(node: Node) -> None:
    """Counted anew, shares are what they are."""
    triggers = node.objects.engine.triggers
    pasts, variables = triggers.pasts, triggers.variables
    foreign = {each.number for each in triggers.registry if each.trigger.asker}
    paid = {each: past for each, past in pasts._pasts.items() if pasts._askers(*each)}
    places = len(paid) + sum(len(many) for number, many in variables._objects.items() if number in foreign)
    assert triggers.shares.places.get(ASKER, 0) == places
    assert triggers.shares.values.get(ASKER, 0) == sum(map(len, paid.values()))
