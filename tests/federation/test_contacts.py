"""Endpoints to connect to at which nobody is: the log, reports and `ready()` say so; and it goes on trying."""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.federation.report import ContactReport
from headwater.federation.security.settings import Security
from headwater.federation.transport import contacts
from tests.federation.nodes import GUARD, Log, eventually, nodes
from tests.federation.test_endpoints import free_port

pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not reached is said sooner."""
    monkeypatch.setattr(contacts, "GRACE_SECONDS", 0.1)


class Records(logging.Handler):
    """What the log of a federation says, of warnings and of what is for information."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def said(self, *words: str, level: int = logging.WARNING) -> list[str]:
        texts = [each.getMessage() for each in list(self.records) if each.levelno == level]
        return [text for text in texts if all(word in text for word in words)]


@pytest.fixture
def records() -> Iterator[Records]:
    logger, found = logging.getLogger("headwater.federation"), Records()
    before = logger.level
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    try:
        yield found
    finally:
        logger.removeHandler(found)
        logger.setLevel(before)


def contact(node: Node) -> ContactReport:
    [found] = node.federation_report().contacts
    return found


def test_nobody_there_is_said_in_the_log_in_reports_and_by_ready(records: Records) -> None:
    where = f"127.0.0.1:{free_port()}"
    with Node("desk", connect=where) as desk:
        assert not desk.ready(0.3)
        assert any(where in reason and "not reached" in reason for reason in desk.unready())
        eventually(lambda: bool(records.said("node desk", where, "connection refused", "start a node")), "the warning")
        found = contact(desk)
        assert (found.written, found.endpoint) == (where, f"tcp/{where}")
        assert not found.reached and not found.ever and found.losses == 0
        assert "connection refused" in found.reason and found.seconds > 0
        assert "not reached, and tried again" in str(desk.federation_report()) and where in str(
            desk.federation_report()
        )
        assert desk.federation_report().to_dict()["contacts"][0]["reached"] is False


def test_who_comes_later_is_reached_and_that_is_said_once(records: Records) -> None:
    where, heard = f"127.0.0.1:{free_port()}", Log()
    with nodes() as made:
        desk = made("desk", connect=where)
        desk.channel("door", "n: i64").subscribe(heard)
        eventually(lambda: bool(records.said("node desk", where)), "the warning")
        hall = made("hall", listen=where)
        source = hall.channel("door", "n: i64").source()
        assert desk.ready(GUARD), desk.unready()
        assert desk.unready() == []
        made.ready(desk)
        source.publish(n=1)
        heard.wait(1)
        assert contact(desk).reached and contact(desk).reason == ""
        assert "not reached" not in str(desk.federation_report())
        assert len(records.said("node desk", where, "is reached", level=logging.INFO)) == 1
        assert len(records.said("node desk", where)) == 1


def test_one_that_is_lost_is_said_once_and_blocks_nobody(records: Records) -> None:
    where = f"127.0.0.1:{free_port()}"
    with nodes() as made:
        hall = made("hall", listen=where)
        desk, door = made("desk", connect=where), made("door", connect=where)
        made.together()
        hall.close()
        eventually(lambda: bool(records.said("node desk", where, "was lost")), "the warning")
        assert desk.until(lambda: desk.peers == ["door"], GUARD)
        assert desk.ready(GUARD), desk.unready()
        assert not contact(desk).reached and contact(desk).ever and contact(desk).losses == 1
        made("hall", listen=where)
        eventually(lambda: contact(desk).reached and contact(door).reached, "reaching it again")
        assert len(records.said("node desk", where, "is reached", level=logging.INFO)) == 2


def test_one_that_comes_and_goes_does_not_flood_the_log(records: Records) -> None:
    where = f"127.0.0.1:{free_port()}"
    with nodes() as made:
        desk = made("desk", connect=where, network=Network(lease=1.0))
        for times in range(1, 4):
            with Node("hall", listen=where):
                eventually(lambda: contact(desk).reached, "reaching it")
            eventually(lambda times=times: contact(desk).losses == times, "losing it")
            eventually(lambda: "refused" in contact(desk).reason, "trying it again")
            eventually(lambda: bool(records.said("node desk", where, "was lost")), "the warning")
        assert len(records.said("node desk", where, "was lost")) == 1


def test_nodes_that_lead_to_each_other_may_start_one_after_the_other() -> None:
    first, second = free_port(), free_port()
    with nodes() as made:
        one = made("one", listen=first, connect=f"localhost:{second}")
        assert not one.ready(0.2) and str(second) in one.unready()[0]
        two = made("two", listen=second, connect=f"localhost:{first}")
        assert one.ready(GUARD) and two.ready(GUARD)
        assert one.peers == ["two"] and two.peers == ["one"]


def test_with_passwords_they_may_too() -> None:
    first, second, users = free_port(), free_port(), {"ann": "a long one for ann", "bob": "a long one for bob"}
    with nodes() as made:
        one, two = (
            made(name, listen=own, connect=other, security=Security(user=name, password=users[name], users=users))
            for name, own, other in (("ann", first, second), ("bob", second, first))
        )
        assert one.ready(GUARD), one.unready()
        assert two.ready(GUARD), two.unready()


def test_a_list_of_all_nodes_may_have_the_node_itself() -> None:
    seeds = [free_port() for _ in range(3)]
    with nodes() as made:
        opened = [made(f"n{port}", listen=port, connect=[f"localhost:{each}" for each in seeds]) for port in seeds]
        for node in opened:
            assert node.ready(GUARD), node.unready()
            assert [each.reached for each in node.federation_report().contacts] == [True, True]


def test_each_endpoint_counts() -> None:
    where, missing = free_port(), free_port()
    with nodes() as made:
        made("hall", listen=where)
        desk = made("desk", connect=[where, missing])
        assert desk.until(lambda: desk.peers == ["hall"], GUARD)
        assert not desk.ready(0.3)
        [reason] = desk.unready()
        assert str(missing) in reason


@pytest.mark.parametrize("waits", [True, False])
def test_one_of_several_may_be_enough(waits: bool) -> None:
    """Nothing is missed of what is there; the others are tried meanwhile, and heard when they are there."""
    where, missing, heard = free_port(), free_port(), Log()

    def ready(node: Node, timeout: float, reached: int) -> bool:
        if waits:
            return node.ready(timeout, reached=reached)
        return asyncio.run(node.aready(timeout, reached=reached))

    with nodes() as made:
        desk = made("desk", connect=[where, missing])
        desk.channel("door", "n: i64").subscribe(heard)
        assert not ready(desk, 0.2, 1) and len(desk.unready()) == 2  # one at least
        assert ready(desk, GUARD, 0)
        hall = made("hall", listen=where).channel("door", "n: i64").source()
        assert ready(desk, GUARD, 1), desk.unready()
        hall.publish(n=1)
        heard.wait(1)
        assert not ready(desk, 0.2, 2) and not ready(desk, 0.2, 9) and not desk.ready(0.2)
        yard = made("yard", listen=missing).channel("door", "n: i64").source()
        assert ready(desk, GUARD, 2), desk.unready()
        yard.publish(n=2)
        heard.wait(2)
        assert heard.field("n") == [1, 2]
    for wrong in (-1, True, "1"):
        with Node("alone") as alone, pytest.raises(ConfigError, match="how many endpoints"):
            alone.ready(1.0, reached=wrong)  # type: ignore[arg-type]


def test_two_endpoints_of_one_node_are_one_connection(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contacts, "BESIDE_SECONDS", 0.1)
    where = [free_port(), free_port()]
    with nodes() as made:
        made("hall", listen=where)
        desk = made("desk", connect=where)
        assert desk.ready(GUARD), desk.unready()
        eventually(lambda: bool(records.said("node desk", "nothing is missing if it is the same one")), "the warning")
        assert not records.said("node desk", "nobody is reached")


def test_two_paths_of_one_unix_socket_are_one_connection(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be reached by the other one before this is tried: others have said that it listens there."""
    monkeypatch.setattr(contacts, "BESIDE_SECONDS", 0.1)
    with tempfile.TemporaryDirectory(prefix="hw-") as folder, nodes() as made:
        made("hall", listen=f"unix/{folder}/hall")
        Path(folder, "alias").symlink_to("hall")
        desk = made("desk", connect=[f"unix/{folder}/hall", f"unix/{folder}/alias"])
        assert desk.ready(GUARD), desk.unready()
        eventually(lambda: bool(records.said("node desk", "nothing is missing if it is the same one")), "the warning")


def test_one_endpoint_is_enough_for_a_client(records: Records) -> None:
    where, missing = free_port(), free_port()
    with nodes() as made:
        made("hall", listen=where)
        desk = made("desk", connect=[missing, where], network=Network(client=True))
        assert desk.ready(GUARD), desk.unready()
        alone = made("alone", connect=missing, network=Network(client=True))
        eventually(lambda: bool(records.said("node alone", str(missing))), "the warning")
        assert not alone.ready(0.1)
        assert not records.said("node desk")


def test_another_program_is_no_node(records: Records) -> None:
    """One that takes connections, reads, and says nothing."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server, nodes() as made:

        def take() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        port = server.getsockname()[1]
        desk = made("desk", listen=0, connect=port)
        made("door", connect=desk.endpoints)
        eventually(lambda: bool(records.said("node desk", str(port), "another program")), "the warning")
        assert not contact(desk).reached and not desk.ready(0.1)
        server.shutdown(socket.SHUT_RDWR)
    for each in held:
        each.close()


def test_a_name_that_does_not_resolve_is_said(records: Records) -> None:
    with Node("desk", connect="no-such-host.invalid:7447", listen=0, security=Security(open=True)) as desk:
        eventually(lambda: bool(records.said("'no-such-host.invalid' does not resolve", "nobody is")), "the warning")
        assert "does not resolve" in contact(desk).reason


def test_a_socket_that_is_not_there(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "hall.sock"
    with nodes() as made:
        desk = made("desk", connect=f"unix/{path}")
        eventually(lambda: "no such socket" in contact(desk).reason, "the reason")
        made("hall", listen=f"unix/{path}")
        assert desk.ready(GUARD), desk.unready()
