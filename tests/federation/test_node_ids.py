"""Ids of nodes and `key:` rules rest on 128 bits of a fingerprint, and what was kept under 32 bits still opens."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater import Event, Log, Reliable, i64
from headwater.errors import ConfigError, SecurityError
from headwater.federation.security.envelope import Sealer, Verifier
from headwater.federation.security.identity import Identity
from headwater.federation.security.settings import Security
from headwater.security import Rule
from tests.federation.nodes import GUARD, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
# What version 1 of a node's state was before there were any others.
_STATE = """
CREATE TABLE secrets (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
    sink TEXT NOT NULL, source TEXT NOT NULL, seq INTEGER NOT NULL DEFAULT 0, handed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sink, source)
) WITHOUT ROWID;
PRAGMA application_id = 1214609252;
PRAGMA user_version = 1;
"""


class Count(Event, name="test.Count"):
    n: i64


def test_an_id_has_128_bits_of_the_fingerprint() -> None:
    identity = Identity.ephemeral("dublin")
    assert identity.id == f"dublin.{identity.fingerprint[:32]}"


@pytest.mark.parametrize("digits", [1, 8, 16, 31])
def test_a_rule_about_a_key_that_another_could_begin_like_is_refused(digits: int) -> None:
    with pytest.raises(ConfigError) as caught:
        Rule("**", f"key:{'1f2e3d4c' * 4:.{digits}}")
    message = str(caught.value)
    assert "expected key: and 32 to 64 digits" in message and f"{4 * digits} bits" in message
    assert "write the whole fingerprint" in message


def test_a_rule_is_about_one_key_not_about_all_that_begin_like_it() -> None:
    mine, other = Identity.ephemeral("a"), Identity.ephemeral("a")
    rule = Rule("**", f"key:{mine.fingerprint}")
    verifier = Verifier(Security(), "f", loopback=True)
    for identity, fits in ((mine, True), (other, False)):
        opened = verifier.open(Sealer(identity, "f", 1).seal("news", b""))
        assert rule.fits(opened.principal, "a.b") is fits


def test_a_sender_that_says_only_the_beginning_of_its_key_is_refused() -> None:
    class Older(Identity):
        @property
        def id(self) -> str:
            return f"{self.name}.{self.fingerprint[:8]}"

    old = Older("dublin", Identity.ephemeral("dublin").private)
    with pytest.raises(SecurityError, match=r"expected a name and the first 32 digits.*found 8, which are too few"):
        Verifier(Security(), "f", loopback=True).open(Sealer(old, "f", 1).seal("news", b""))


def old_state(path: Path, name: str, identity: Identity, positions: dict[str, int]) -> None:
    """A node's state as it was written when ids had 8 digits of the fingerprint."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.executescript(_STATE)
        file.execute("INSERT INTO secrets VALUES (?, ?)", (f"identity/{name}", identity.to_bytes()))
        for source, seq in positions.items():
            file.execute("INSERT INTO positions VALUES ('desk', ?, ?, 0)", (source, seq))


def test_positions_and_keys_of_before_go_on_where_they_were(tmp_path: Path) -> None:
    lab_key, desk_key = Identity.ephemeral("lab"), Identity.ephemeral("desk")
    old_state(tmp_path / "lab.state", "lab", lab_key, {})
    with nodes() as make:
        lab = make("lab", state=tmp_path / "lab.state", log=Log(tmp_path / "log"))
        assert lab.id == f"lab.{lab_key.fingerprint[:32]}"
        source = lab.channel(CHANNEL, Count).source("hill")
        for n in range(1, 101):
            source.publish(n=n)
        assert source.log is not None
        # 60 events were dealt with; and a source without a log, of a node that begins with the same 32 bits, ended with
        # its process: nobody takes up its place.
        gone = f"lab.{lab_key.fingerprint[:8]}/{lab._engine.incarnation}/{source.number}"
        old_state(tmp_path / "desk.state", "desk", desk_key, {f"log/lab/{source.log.id}/hill": 60, gone: 90})
        desk = make("desk", state=tmp_path / "desk.state")
        assert desk.id == f"desk.{desk_key.fingerprint[:32]}"
        seen: list[int] = []
        desk.channel(CHANNEL, Count).subscribe(
            lambda event: seen.append(event.n), name="desk", delivery=Reliable(durable=True)
        )
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(n=101)
        eventually(lambda: bool(seen) and seen[-1] == 101, "the rest")
        make.flush()
        assert seen == list(range(61, 102))
        assert desk.state.positions("desk")[f"log/lab/{source.log.id}/hill"] == 101


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by Zenoh"])
def test_the_longest_names_fit_wherever_ids_go(direct: bool) -> None:
    names = ["a" * 64, "b" * 64]
    options = {} if direct else {"network": {"direct": []}}
    with nodes() as make:
        lab, desk = (make(name, **options) for name in names)
        heard = Seen()
        sequencer = lab.sequence(lab.channel(CHANNEL, Count))
        desk.channel(CHANNEL, Count).subscribe(heard, order="total")
        source = lab.channel(CHANNEL, Count).source("hill")
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(n=1)
        heard.wait(1)
        assert desk.federation_report().peer(names[0]).link == ("tcp" if direct else "zenoh")
        sequencer.close()
