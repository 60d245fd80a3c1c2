"""Objects of another node: transactions are run by their owner, once, and touch only what they may."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Interest
from headwater.errors import FederationError, ObjectError, TransactionError, Unreachable
from headwater.federation.objects import remote
from headwater.federation.wire.object_requests import SubmitTransaction
from headwater.objects import Computed
from headwater.objects.operations import Administer, Invoke, Permits, Raise, Transaction, Update, pack
from headwater.security import Deny, Restrict
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.federation.objects.plant import Plant, Rights
from tests.ports import free_endpoint


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_a_transaction_runs_at_the_owner_and_is_read_there(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    with plant.remote.transaction() as t:
        t.create("hall/tank", "Tank", level=1.0)
        level = t.read("hall/tank.level")
        t.update("hall/tank", {"level": level + 1}, event=True)
        t.read("hall/tank.level", as_="now")
    assert t.results["now"] == 2.0
    assert plant.objects["hall/tank.level"] == plant.remote["hall/tank.level"] == 2.0
    assert plant.remote.get("//plant/hall/tank").turn == t.outcome.turn
    assert sorted(plant.remote.types) == ["Secret", "Tank"]
    assert plant.remote.get("none") is None
    with pytest.raises(KeyError):
        plant.remote["none"]

    async def add() -> float:
        async with plant.remote.transaction() as t:
            t.update("hall/tank", {"level": t.read("hall/tank.level") + 1})
            t.read("hall/tank.level", as_="now")
        found: float = t.results["now"]
        return found

    assert asyncio.run(add()) == 3.0


def test_its_changes_are_events_at_the_other_node(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    seen: Log[Event] = Log()
    plant.remote.changes("Tank").subscribe(seen, "new.level > 1")
    make.ready(plant.desk)
    for level in (1.0, 2.0):
        with plant.remote.transaction() as t:
            t.create(f"tank{int(level)}", "Tank", level=level)
    assert [event.object for event in seen.wait(1)] == ["//plant/tank2"]


def test_objects_that_nobody_has_opened_are_opened_by_who_asks(make: Nodes, tmp_path: Path) -> None:
    """In a new life of the owner, whose program does not ask for them, or has not yet."""
    desk, owner = make("desk"), make("plant", state=tmp_path / "plant.state")
    owner.objects.type("Tank", "level: f64")
    with owner.objects.transaction() as t:
        t.create("tank", "Tank", level=1.0)
    owner.close()
    owner, remote = make("plant", state=tmp_path / "plant.state"), desk.objects_at("plant")
    assert remote["tank.level"] == 1.0
    with remote.transaction() as t:
        t.update("tank", {"level": 2.0})
    assert owner.objects["tank.level"] == remote["tank.level"] == 2.0


def test_many_objects_come_page_by_page(make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.federation.objects.object_server.MOST_OBJECTS", 3)
    monkeypatch.setattr("headwater.objects.engine.LOOKED", 4)
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        for n in range(10):
            t.create(f"hall/t{n}", "Tank", level=float(n))
            t.create(f"yard/t{n}", "Tank", level=float(n))
    assert [kept.value.level for kept in plant.remote.list("yard/*")] == [float(n) for n in range(10)]
    assert len(list(plant.remote.list())) == 20
    assert [kept.name for kept in plant.remote.list("*/t3")] == ["//plant/hall/t3", "//plant/yard/t3"]


def test_an_object_with_the_longest_name_is_read_and_listed(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    longest = "/".join(["x" * 61] * 8)  # with its owner and a member nearly 512 bytes
    with plant.remote.transaction() as t:
        t.create(longest, "Tank", level=1.0)
    assert plant.remote[f"{longest}.level"] == 1.0
    assert [kept.name for kept in plant.remote.list()] == [f"//plant/{longest}"]


def test_what_is_wrong_names_the_operation_and_changes_nothing(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    builder = plant.remote.builder()
    builder.create("tank", "Tank", level=1.0)
    builder.update("tank", {"level": "high"})
    builder.update("other", {"level": 1.0})
    with pytest.raises(TransactionError) as raised:
        plant.remote.submit(builder)
    assert [problem.operation for problem in raised.value.problems] == [2, 3]
    assert "tank" not in plant.objects
    with pytest.raises(ObjectError, match="one of this node"):
        plant.objects.get("//desk/tank")
    with pytest.raises(ObjectError, match="plant"):
        plant.remote.get("//desk/tank")
    with pytest.raises(FederationError, match="it owns no objects"):
        plant.owner.objects_at("desk").get("tank")


def test_the_same_ticket_runs_once_and_is_its_senders_own(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    other: Any = make("other")
    make.together()
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0)
    builder = plant.remote.builder(ticket=plant.objects.ticket())
    builder.update("tank", {"level": builder.read("tank.level") + 1})
    ticket = builder.build().ticket
    with pytest.raises(ObjectError, match="found another"):
        plant.remote.outcome(ticket)
    first = plant.remote.submit(builder)
    assert plant.remote.submit(builder, wait=False) == ticket
    assert plant.remote.outcome(ticket).turn == plant.remote.submit(builder).turn == first.turn
    assert plant.objects["tank.level"] == 1.0
    with pytest.raises(ObjectError, match="found another"):
        other.objects_at("plant").outcome(ticket)
    assert other.objects_at("plant").submit(builder).turn > first.turn  # which is another transaction
    assert plant.objects["tank.level"] == 2.0


def test_an_owner_that_was_away_runs_it_once_when_it_is_back(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path, listen=free_endpoint())
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0)
    hub = plant.owner.endpoints[0]
    builder = plant.remote.builder(ticket=plant.objects.ticket())
    builder.update("tank", {"level": builder.read("tank.level") + 1})
    plant.owner.close()
    make.opened.remove(plant.owner)
    with pytest.raises(Unreachable, match=builder.build().ticket.hex()):
        plant.remote.submit(builder, timeout=0.2)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(plant.remote.submit(builder, timeout=GUARD)))
    thread.start()
    plant.options = {"listen": hub}
    plant.open()
    thread.join(GUARD)
    assert found[0].done and plant.objects["tank.level"] == 1.0


def test_it_touches_only_what_it_may(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    alarms = plant.owner.channel("alarms", "text: text")
    heard: Log[Event] = Log()
    alarms.subscribe(heard)
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0)
        t.create("secret", "Secret", key=7)
    rights.no = {
        ("transact", "objects.Secret"): Deny("no"),
        ("subscribe", "objects.Secret"): Deny("no"),
        ("advertise", "alarms"): Deny("no"),
        ("transact", "objects.Tank"): Deny("no"),
    }
    assert plant.remote["tank.level"] == 0.0
    assert list(plant.remote.types) == ["Tank"] and len(list(plant.remote.list())) == 1
    builder = plant.remote.builder()
    builder.update("secret", {"key": 8})
    builder.read("secret.key", as_="key")
    builder.update("none", {"key": 8})
    builder.update("tank", {"level": 1.0})
    builder.create("mine", "Secret", key=1)
    builder.publish("alarms", text="fire")
    builder.administer("install", "x")
    with pytest.raises(TransactionError) as raised:
        plant.remote.submit(builder)
    texts = [problem.text.partition(": ")[2] for problem in raised.value.problems]
    assert [problem.operation for problem in raised.value.problems] == [1, 2, 3, 4, 5, 6, 7]
    assert texts[0] == texts[2]  # whether there is one is not told
    assert "7" not in texts[1] and "of type Tank, which it may not change" in texts[3]
    assert plant.objects["secret.key"] == 7 and plant.objects["tank.level"] == 0.0 and not heard.events
    some = Restrict(Interest("new.level < 1", plant.objects.changes("Tank").type), "some")
    rights.no = {("transact", "objects.Tank"): some}  # which of them is not known
    with pytest.raises(TransactionError, match="may not change"), plant.remote.transaction() as t:
        t.update("tank", {"level": 0.5})
    rights.no = {}
    with plant.remote.transaction() as t:
        t.update("tank", {"level": 1.0})
        t.publish("alarms", text="fire")
    assert [event.text for event in heard.wait(1)] == ["fire"]


def test_what_is_put_is_made_or_changed_by_who_may(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    with plant.objects.transaction() as t:
        t.create("secret", "Secret", key=7)
    for level in (1.0, 2.0):
        with plant.remote.transaction() as t:
            t.put("tank", "Tank", {"level": level}, event=True)
    assert plant.objects["tank.level"] == 2.0
    rights.no = {
        ("transact", "objects.Secret"): Deny("no"),
        ("subscribe", "objects.Secret"): Deny("no"),
    }
    builder = plant.remote.builder()
    builder.put("secret", "Secret", {"key": 8})
    builder.put("secret", "Tank", {"level": 1.0})
    builder.put("new", "Secret", {"key": 8})
    builder.put("tank", "Tank", {"level": Computed("level + 1")})
    with pytest.raises(TransactionError) as raised:
        plant.remote.submit(builder)
    assert [problem.operation for problem in raised.value.problems] == [1, 2, 3]
    said = [problem.text for problem in raised.value.problems]
    assert said[0] == said[1] and "7" not in said[0] and "may change, found 'Secret'" in said[2]
    rights.no = {("transact", "objects.Tank"): Deny("no")}
    with (
        pytest.raises(TransactionError, match="of type Tank, which it may not change"),
        plant.remote.transaction() as t,
    ):
        t.put("tank", "Secret", {"key": 1})
    assert plant.objects["tank.level"] == 2.0 and plant.objects["secret.key"] == 7 and "new" not in plant.objects


def test_a_right_is_looked_at_in_the_turn(make: Nodes, tmp_path: Path) -> None:
    """The object of that name may be of another type by then; and what a node says that it may is not believed."""
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    rights.no = {("transact", "objects.Secret"): Deny("no"), ("subscribe", "objects.Secret"): Deny("no")}
    with plant.objects.transaction() as t:
        t.create("box", "Tank", level=0.0)
    begun, go = threading.Event(), threading.Event()

    def slow(tank: Any) -> float:
        begun.set()
        assert go.wait(GUARD)
        return 0.0

    plant.objects.method("Tank", slow)
    holding = plant.objects.builder()
    holding.invoke("box", "slow")
    holding.destroy("box")
    holding.create("box", "Secret", key=1)
    thread = threading.Thread(target=plant.objects.submit, args=(holding,))
    thread.start()
    assert begun.wait(GUARD)
    everything = Permits(("Secret", "Tank"), ("Secret", "Tank"))
    sent = Transaction((Update("//plant/box", {"key": 2}),), plant.objects.ticket(), {}, "plant", everything)
    engine: Any = plant.desk._engine
    peer = next(each for each in engine.everyone() if each.name == "plant")
    ticket = plant.objects.ticket()
    engine.dialogue.ask(peer, SubmitTransaction(pack(sent), ticket))
    go.set()
    thread.join(GUARD)
    eventually(lambda: plant.remote.outcome(ticket) is not None)
    outcome = plant.remote.outcome(ticket)
    assert not outcome.done and "may change" in outcome.problems[0].text
    assert plant.objects["box.key"] == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", pack(Transaction((Administer("install", "x", b"\x00"),))), b"\x94\x91\xc0\xc0\x80\xa0"],
)
def test_hostile_transactions_are_refused(make: Nodes, tmp_path: Path, data: bytes) -> None:
    plant = Plant(make, tmp_path)
    engine: Any = plant.desk._engine
    peer = next(each for each in engine.everyone() if each.name == "plant")
    try:
        found = engine.dialogue.ask(peer, SubmitTransaction(data, bytes(16), 0.25))
        while not found.outcome:
            found = engine.dialogue.ask(peer, remote.CollectOutcome(bytes(16), 0.25))
        assert not remote.unpack_outcome(found.outcome).done
    except FederationError as error:
        assert "refused" in str(error)
    with plant.remote.transaction() as t:  # it goes on
        t.create("tank", "Tank", level=1.0)


def test_many_that_wait_share_the_time_that_a_node_waits_for_them(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    go = threading.Event()

    def block(tank: Any) -> float:
        go.wait(GUARD)
        return 1.0

    block.__annotations__ = {"tank": plant.objects.types["Tank"].binding.cls, "return": float}
    plant.objects.method("Tank", block)
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0)
    server = plant.owner.services.get("objects for others")._opened()[0]  # type: ignore[union-attr, attr-defined]
    plant.objects.engine.submit(Transaction((Invoke("tank", "block"),)), waits=True)
    clients = [
        threading.Thread(target=lambda: plant.remote.submit(Transaction((Raise("tank"),)), timeout=GUARD))
        for _ in range(8)
    ]
    for client in clients:
        client.start()
    eventually(lambda: len(server._waiting) == 8)
    assert server._patience(0.25) <= 0.25 / 8
    go.set()
    for client in clients:
        client.join(GUARD)
    assert not server._waiting
