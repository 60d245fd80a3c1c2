"""Certificates that are renewed or revoked while nodes run."""

from __future__ import annotations

import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_certificate

from headwater import Event, Node, Reliable, i64
from headwater.cli import main
from headwater.errors import ConfigError, SecurityError
from headwater.federation.security.certificates import issue, make_authority, renew, revoke
from headwater.federation.security.identity import Identity, read_certificates
from headwater.federation.security.revocation import read_revocations, serial_of
from headwater.logs import LogClient
from headwater.security import Rule, Security
from tests.federation.nodes import GUARD, Log, eventually, nodes, see

CHANNEL = "test.count"
DAY = timedelta(days=1)


class Count(Event, name="test.Count"):
    n: i64


class World:
    """An authority, and nodes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority(folder)

    def issue(self, name: str, *, left: float | None = None) -> None:
        """`left`: seconds for which it is still good."""
        start = None if left is None else datetime.now(UTC) - DAY + timedelta(seconds=left)
        issue(self.folder, name, days=365 if left is None else 1, start=start)

    def security(self, name: str, **more: Any) -> Security:
        if not (self.folder / f"{name}.pem").exists():
            self.issue(name)
        if (self.folder / "revoked.pem").exists():
            more.setdefault("revoked", self.folder / "revoked.pem")
        return Security(
            certificate=self.folder / f"{name}.pem",
            key=self.folder / f"{name}.key",
            authority=self.folder / "authority.pem",
            rules=[Rule("**", "*")],
            **more,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "secrets")


class Flow:
    """Events of a node, one after the other, until it is stopped."""

    def __init__(self, node: Node) -> None:
        self.source = node.channel(CHANNEL, Count).source(node.name)
        self.count = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.005):
            self.source.publish(n=self.count)
            self.count += 1

    def stop(self) -> int:
        self._over.set()
        self._thread.join(GUARD)
        return self.count


def test_a_node_whose_certificate_is_revoked_is_parted_with(world: World) -> None:
    revoke(world.folder)
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=world.security("desk"))
        lab, cork = (make(name, connect=desk.endpoints[0], security=world.security(name)) for name in ("lab", "cork"))
        heard, mine = Log(), Log()
        desk.channel(CHANNEL, Count).subscribe(heard)
        cork.channel("test.desk", Count).subscribe(mine)
        flows = [Flow(lab), Flow(cork)]
        own = desk.channel("test.desk", Count).source("desk")
        for node in (lab, cork):
            see(desk, node)
        see(cork, desk)
        assert desk.ready(GUARD) and cork.ready(GUARD)
        for flow in flows:
            flow.start()
        own.publish(n=1)
        mine.wait(1)
        heard.wait(20)
        assert desk.federation_report().peer("cork").link == "tls" and not desk.federation_report().expelled
        revoke(world.folder, "cork")
        eventually(lambda: cork.id in desk.federation_report().expelled, "its end")
        assert "revoked on" in desk.federation_report().expelled[cork.id] and "expelled" in str(
            desk.federation_report()
        )
        assert desk.peers == ["lab"] and desk.remote_sources(CHANNEL) == ["lab@lab"]
        # Nothing of it comes, and nothing goes to it, whatever it tries; others go on.
        before = len(heard.events)
        heard.wait(before + 50)
        eventually(lambda: desk.federation_report().offences.get(f"{cork.id} (unproven)", 0) > 0, "its next attempt")
        assert desk.peers == ["lab"] and not any(p.name == "cork" and p.link for p in desk.federation_report().peers)
        own.publish(n=2)
        desk.flush(GUARD)
        assert mine.field("n") == [1]
        for flow in flows:
            flow.stop()
    with nodes() as make:  # and so it is when they are started again
        desk = make("desk", listen="tls/127.0.0.1:0", security=world.security("desk"))
        cork = make("cork", connect=desk.endpoints[0], security=world.security("cork"))
        eventually(lambda: sum(desk.federation_report().offences.values()) > 0, "its attempt")
        assert desk.peers == []


@pytest.mark.parametrize("listens", ["lab", "desk"])
def test_a_certificate_that_is_renewed_in_time_costs_no_event(world: World, listens: str) -> None:
    world.issue("lab", left=14)
    with nodes() as make:
        first = make(listens, listen="tls/127.0.0.1:0", security=world.security(listens))
        other = "desk" if listens == "lab" else "lab"
        second = make(other, connect=first.endpoints[0], security=world.security(other))
        lab, desk = (first, second) if listens == "lab" else (second, first)
        heard = Log()
        desk.channel(CHANNEL, Count).subscribe(heard, delivery=Reliable())
        flow = Flow(lab)
        see(desk, lab)
        assert desk.ready(GUARD)
        flow.start()
        heard.wait(10)
        id_ = lab.id
        old = read_certificates(world.folder / "lab.pem")[0]
        renew(world.folder, "lab")
        renewed = read_certificates(world.folder / "lab.pem")[0].public_bytes(Encoding.DER)
        eventually(lambda: lab._engine.keyring.credentials.identity.chain[0] == renewed, "its renewal")
        until = old.not_valid_after_utc + timedelta(seconds=3)
        eventually(lambda: datetime.now(UTC) > until, "the end of the old certificate")
        count = flow.stop()
        heard.wait(count)
        assert heard.field("n") == list(range(count))
        assert (
            lab.id == id_ and not desk.federation_report().expelled and desk.peers == ["lab"] and lab.peers == ["desk"]
        )
        # Nodes that come now hear of it, and it of them.
        late = make("late", connect=first.endpoints[0], security=world.security("late"))
        make.together(lab, desk, late)


def test_a_certificate_that_expires_ends_what_there_was(world: World) -> None:
    world.issue("lab", left=10)
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=world.security("desk"))
        lab = make("lab", connect=desk.endpoints[0], security=world.security("lab"))
        heard = Log()
        desk.channel(CHANNEL, Count).subscribe(heard)
        flow = Flow(lab)
        see(desk, lab)
        assert desk.ready(GUARD)
        flow.start()
        heard.wait(10)
        eventually(lambda: lab.id in desk.federation_report().expelled, "its end")
        assert "was good until" in desk.federation_report().expelled[lab.id] and desk.peers == []
        renew(world.folder, "lab")  # late, but not too late
        eventually(lambda: desk.peers == ["lab"], "its return")
        assert not desk.federation_report().expelled
        before = len(heard.events)
        heard.wait(before + 10)
        flow.stop()


def test_a_client_of_logs_takes_up_its_renewed_certificate_and_a_revoked_one_is_refused(
    world: World, tmp_path: Path
) -> None:
    revoke(world.folder)
    with nodes() as make:
        lab = make("lab", listen="tls/127.0.0.1:0", security=world.security("lab"), log=tmp_path / "log")
        lab.channel(CHANNEL, Count).source("hill").publish(n=1)
        with LogClient(lab.endpoints[0], security=world.security("reader")) as client:
            assert client.channels() == [CHANNEL]
            renew(world.folder, "reader")
            assert client.channels() == [CHANNEL]
            renewed = read_certificates(world.folder / "reader.pem")[0].public_bytes(Encoding.DER)
            assert client._identity.chain[0] == renewed
            (world.folder / "reader.pem").write_bytes(b"nonsense")
            assert client.channels() == [CHANNEL]  # what was good last goes on
            renew_from(world, renewed)
            revoke(world.folder, "reader")
            lab.renew_security()
            with pytest.raises(SecurityError, match="revoked on"):
                client.type(CHANNEL)


def renew_from(world: World, certificate: bytes) -> None:
    (world.folder / "reader.pem").write_bytes(load_der_x509_certificate(certificate).public_bytes(Encoding.PEM))


def test_what_is_wrong_with_the_files_is_said_and_what_was_good_goes_on(world: World, tmp_path: Path) -> None:
    revoke(world.folder, days=1)
    other = World(tmp_path / "other")
    other.issue("lab")
    good = (world.folder / "revoked.pem").read_bytes()
    foreign = revoke(other.folder).read_bytes()
    late = revoke(world.folder, days=1, start=datetime.now(UTC) - 2 * DAY).read_bytes()
    path = world.folder / "revoked.pem"
    security = world.security("lab")
    for data, why in ((b"nonsense", "cannot be read"), (foreign, "signed"), (late, "was good until")):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=why):
            Node("lab", listen="tls/127.0.0.1:0", security=security)
    path.write_bytes(good)
    with nodes() as make:
        lab = make("lab", listen="tls/127.0.0.1:0", security=security)
        lab.renew_security()
        assert lab.federation_report().security == ""
        for data, why in ((b"nonsense", "cannot be read"), (foreign, "signed"), (late, "no older than the one in use")):
            path.write_bytes(data)
            with pytest.raises(ConfigError, match=why):
                lab.renew_security()
            assert why in lab.federation_report().security and why in str(lab.federation_report())
        path.unlink()
        eventually(lambda: "no such file" in lab.federation_report().security, "the complaint")
        path.write_bytes(good)
        eventually(lambda: lab.federation_report().security == "", "that all is well")
        # Another key would be another node.
        before = lab.id
        for suffix in ("key", "pem"):
            (world.folder / f"lab.{suffix}").unlink()
        world.issue("lab")
        with pytest.raises(ConfigError, match="expected the key that the node has begun with"):
            lab.renew_security()
        assert lab.id == before
        shutil.copy(other.folder / "lab.pem", world.folder / "lab.pem")
        with pytest.raises(ConfigError, match="another key"):
            lab.renew_security()


def test_a_list_that_goes_out_of_date_still_revokes_and_is_complained_about(world: World) -> None:
    world.issue("cork")
    revoke(world.folder, "cork", days=1, start=datetime.now(UTC) - DAY + timedelta(seconds=4))
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=world.security("desk"))
        eventually(lambda: "was good until" in desk.federation_report().security, "the complaint")
        make("cork", connect=desk.endpoints[0], security=world.security("cork", revoked=None))
        eventually(lambda: sum(desk.federation_report().offences.values()) > 0, "its attempt")
        assert desk.peers == []
        revoke(world.folder)
        eventually(lambda: desk.federation_report().security == "", "that all is well")
        assert desk.peers == [] and not desk.federation_report().peers


def test_a_node_whose_own_certificate_is_revoked_says_so(world: World) -> None:
    revoke(world.folder)
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=world.security("desk"))
        desk.renew_security()
        revoke(world.folder, "desk")
        eventually(lambda: "this node's own" in desk.federation_report().security, "the complaint")
        assert "revoked on" in desk.federation_report().security


def test_renewed_and_revoked_by_command(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    issue(world.folder, "dublin", ["dublin.example.org"], groups=["staff"], days=1)
    before = read_certificates(world.folder / "dublin.pem")[0]
    (world.folder / "dublin.key").rename(world.folder / "dublin.elsewhere")
    assert main(["certificates", "renew", str(world.folder), "dublin", "--days", "90"]) == 0
    after = read_certificates(world.folder / "dublin.pem")[0]
    assert after.public_key() == before.public_key() and after.subject == before.subject
    assert after.serial_number != before.serial_number and after.not_valid_after_utc > before.not_valid_after_utc
    (world.folder / "dublin.elsewhere").rename(world.folder / "dublin.key")
    assert Identity.load(certificate=world.folder / "dublin.pem", key=world.folder / "dublin.key").name == "dublin"
    world.issue("cork")
    assert main(["certificates", "revoke", str(world.folder), "dublin"]) == 0
    assert main(["certificates", "revoke", str(world.folder), "cork", "--days", "7"]) == 0
    assert main(["certificates", "revoke", str(world.folder)]) == 0
    authority = read_certificates(world.folder / "authority.pem")
    found = read_revocations(world.folder / "revoked.pem", authority)
    cork = read_certificates(world.folder / "cork.pem")[0]
    assert set(found.since) == {serial_of(after), serial_of(cork)}
    assert found.of([serial_of(before)]) is None and found.of([serial_of(cork)]) is not None
    assert "revoked.pem" in capsys.readouterr().out
    assert main(["certificates", "renew", str(world.folder), "nobody"]) == 2
