"""A node whose clock was set back between two runs is heard again at once, and what an earlier run said is not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zenoh

from headwater import Event, Reliable, i64
from headwater.errors import SecurityError
from headwater.federation import engine as engine_module
from headwater.federation.fabric.incarnation import next_incarnation
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.envelope import Sealer, Verifier
from headwater.federation.security.identity import Identity
from headwater.security import Rule, Security
from headwater.store import NodeState
from tests.federation.nodes import GUARD, Log, eventually, nodes, see

CHANNEL = "test.count"
BACK = 10 * 10**9  # ns


class Count(Event, name="test.Count"):
    n: i64


class Clock:
    """The module `time`, with another time in it."""

    def __init__(self, back: int) -> None:
        self._back = back

    def time_ns(self) -> int:
        return time.time_ns() - self._back


@contextmanager
def clock_set_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "time", Clock(BACK))
        yield


def secured(folder: Path, name: str) -> Security:
    if not (folder / "authority.pem").exists():
        make_authority(folder)
    if not (folder / f"{name}.pem").exists():
        issue(folder, name)
    rules = [Rule("**", "*", may=("advertise", "subscribe", "install"))]
    return Security(
        certificate=folder / f"{name}.pem", key=folder / f"{name}.key", authority=folder / "authority.pem", rules=rules
    )


@pytest.mark.parametrize("state", [False, True], ids=["without state", "with state"])
@pytest.mark.parametrize("orderly", [True, False], ids=["closed", "vanished"])
def test_a_node_whose_clock_was_set_back_is_heard_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: bool, orderly: bool
) -> None:
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=secured(tmp_path, "desk"))
        heard = Log()
        desk.channel(CHANNEL, Count).subscribe(heard, delivery=Reliable())

        def lab(first: int) -> tuple[str, int]:
            node = make(
                "lab",
                connect=desk.endpoints[0],
                security=secured(tmp_path, "lab"),
                state=tmp_path / "lab.state" if state else None,
            )
            source = node.channel(CHANNEL, Count).source("hill")
            see(desk, node)
            assert desk.ready(GUARD)
            for n in range(first, first + 10):
                source.publish(n=n)
            heard.wait(first + 10)
            found = node.id, node._engine.incarnation
            if orderly:
                node.close()
            else:
                node._engine.close = lambda: None  # type: ignore[method-assign]
                node._engine.context.closed = node._engine.context.closing = True
                node._engine.listener.close()
                for peer in node._engine.everyone():
                    if peer.link is not None:
                        peer.link.close("vanished")
                node._engine.fabric.close()
                node.close(drain=False)
            return found

        first = lab(0)
        with clock_set_back(monkeypatch):
            second = lab(10)
        assert second[0] == first[0]
        assert (second[1] > first[1]) is state
        third = lab(20)  # the clock is right again
        assert third[1] > second[1]
        assert heard.field("n") == list(range(30))


def test_a_state_remembers_the_last_run(tmp_path: Path) -> None:
    with NodeState(tmp_path / "a.state") as state:
        first = next_incarnation(state, "lab", lambda: 1000)
        assert [first, next_incarnation(state, "lab", lambda: 10), next_incarnation(state, "cork", lambda: 5)] == [
            1000,
            1001,
            5,
        ]
    with NodeState(tmp_path / "a.state") as state:
        assert next_incarnation(state, "lab", lambda: 1) == 1002
        assert next_incarnation(state, "lab", lambda: 5000) == 5000


class TestWhatAnEarlierRunSaid:
    identity = Identity.ephemeral("lab")

    def sealer(self, run: int) -> Sealer:
        return Sealer(self.identity, "f", run)

    def refused(self, verifier: Verifier, data: bytes, **how: object) -> str:
        with pytest.raises(SecurityError) as caught:
            verifier.open(data, **how)  # type: ignore[arg-type]
        return caught.value.reason

    def test_a_lesser_number_must_answer_and_the_known_run_be_gone(self) -> None:
        living = {2000}
        verifier = Verifier(Security(), "f", loopback=True, lives=lambda sender, run: run in living)
        before = self.sealer(2000)
        captured = [before.seal("news", b"old") for _ in range(3)]
        verifier.open(before.seal("news", b"old"))
        later = self.sealer(1000)
        answer = later.seal("reply", b"", answers=b"q")
        assert self.refused(verifier, later.seal("news", b"new")) == "stale"
        assert self.refused(verifier, answer, answers=b"q") == "stale"  # the other one lives
        living.clear()
        assert self.refused(verifier, later.seal("news", b"new")) == "stale"  # who knows when it was made
        assert self.refused(verifier, answer, answers=b"p") == "question"
        assert verifier.open(answer, answers=b"q").incarnation == 1000
        assert verifier.run_of(self.identity.id) == 1000
        verifier.open(later.seal("news", b"new"))
        # What the first run had said, and nobody has shown here yet, does not bring it back.
        for data in captured:
            assert self.refused(verifier, data) == "stale"
        assert verifier.run_of(self.identity.id) == 1000
        assert verifier.open(self.sealer(3000).seal("news", b"")).incarnation == 3000

    def test_a_forged_answer_changes_nothing(self) -> None:
        verifier = Verifier(Security(), "f", loopback=True, lives=lambda sender, run: False)
        verifier.open(self.sealer(2000).seal("news", b""))
        forged = bytearray(self.sealer(1000).seal("reply", b"body", answers=b"q"))
        forged[10] ^= 1
        assert self.refused(verifier, bytes(forged), answers=b"q") == "signature"
        assert verifier.run_of(self.identity.id) == 2000

    def test_a_body_with_a_number_of_ours_is_new(self) -> None:
        verifier = Verifier(Security(), "f", loopback=True, lives=lambda sender, run: False)
        verifier.open(self.sealer(2000).seal("news", b""))
        hello = self.sealer(1000).seal("hello", b"nonce")
        assert self.refused(verifier, hello, fresh=lambda body: body == b"another") == "stale"
        assert verifier.open(hello, fresh=lambda body: body == b"nonce").incarnation == 1000


def test_a_sign_of_life_of_the_run_before_that_somebody_has_made_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reaches Zenoh can make one: the run that it is said to be of is asked, and does not answer."""
    with nodes() as make:
        desk = make("desk", listen="tcp/127.0.0.1:0", security=secured(tmp_path, "desk"))
        heard = Log()
        desk.channel(CHANNEL, Count).subscribe(heard)
        lab = make("lab", connect=desk.endpoints[0], security=secured(tmp_path, "lab"))
        eventually(lambda: "lab" in desk.peers)
        known = lab.id, lab._engine.incarnation
        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", json.dumps([desk.endpoints[0]]))
        config.insert_json5("scouting/multicast/enabled", "false")
        with zenoh.open(config) as enemy:
            token = enemy.liveliness().declare_token(f"headwater/headwater/alive/{known[0]}/{known[1]}")
            lab.close()
            with clock_set_back(monkeypatch):
                again = make("lab", connect=desk.endpoints[0], security=secured(tmp_path, "lab"))
            source = again.channel(CHANNEL, Count).source("hill")
            see(desk, again)
            assert desk.ready(GUARD)
            source.publish(n=1)
            heard.wait(1)
            token.undeclare()


def test_a_captured_message_of_an_earlier_run_does_not_displace_the_live_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=secured(tmp_path, "desk"))
        heard = Log()
        desk.channel(CHANNEL, Count).subscribe(heard)
        lab = make("lab", connect=desk.endpoints[0], security=secured(tmp_path, "lab"))
        see(lab, desk)
        eventually(lambda: "lab" in desk.peers)
        captured = [lab._engine.dialogue.introduction().payload for _ in range(3)]
        lab.close()
        with clock_set_back(monkeypatch):
            again = make("lab", connect=desk.endpoints[0], security=secured(tmp_path, "lab"))
        source = again.channel(CHANNEL, Count).source("hill")
        see(desk, again)
        assert desk.ready(GUARD)
        assert desk._engine.peers[again.id].incarnation == again._engine.incarnation
        for payload in captured:
            desk._engine.dialogue.on_introduction(payload)
        assert desk._engine.peers[again.id].incarnation == again._engine.incarnation
        source.publish(n=1)
        heard.wait(1)


def test_a_run_that_says_to_come_after_a_live_one_does_not_displace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes with one certificate, the second with a clock that is behind: the first one is there, and stays."""
    with nodes() as make:
        desk = make("desk", listen="tls/127.0.0.1:0", security=secured(tmp_path, "desk"))
        heard = Log()
        desk.channel(CHANNEL, Count).subscribe(heard, delivery=Reliable())
        lab = make("lab", connect=desk.endpoints[0], security=secured(tmp_path, "lab"))
        source = lab.channel(CHANNEL, Count).source("hill")
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(n=0)
        heard.wait(1)
        with clock_set_back(monkeypatch):
            make("lab", connect=desk.endpoints[0], security=secured(tmp_path, "lab"))
        eventually(lambda: sum(desk.federation_report().offences.values()) >= 2, "its attempts")
        assert desk._engine.peers[lab.id].incarnation == lab._engine.incarnation
        for n in range(1, 20):
            source.publish(n=n)
        heard.wait(20)
        assert heard.field("n") == list(range(20))
