"""Signs of life that prove nothing: whoever reaches Zenoh can make any number of them, and nobody waits for those."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import zenoh

from headwater import Event, u32
from headwater.errors import FederationError, Unreachable
from headwater.federation.fabric.liveliness import UNPROVEN_TOKENS
from headwater.federation.node import Node
from headwater.federation.peers.inquiries import (
    FIRST_TIMEOUT_SECONDS,
    UNPROVEN_UNDER_WAY,
    UNPROVEN_WAITING,
    Inquiries,
    Inquiry,
)
from headwater.federation.peers.membership import Membership
from headwater.federation.worker_pool import Workers
from headwater.spark.live.publisher import Publisher
from headwater.threads import WAITING_BYTES, Worker
from headwater.types import event_type
from tests.federation.nodes import Log, eventually, nodes

GUARD = 240.0  # seconds, against hanging: Zenoh takes its time with thousands of tokens on a busy machine


class Sighting(Event, name="ie.tcd.LifeSighting"):
    badge: u32


class Forger:
    """A session of Zenoh's that says for many nodes that they are there, and answers nothing."""

    def __init__(self, session: zenoh.Session, federation: str) -> None:
        self._session, self._root = session, f"headwater/{federation}"
        self._tokens: list[zenoh.LivelinessToken] = []
        self.asked = 0
        self._kept: list[zenoh.Query] = []  # a question that is let go is answered with nothing: these are not
        self._lock = threading.Lock()
        self._queryable = session.declare_queryable("headwater/**", self._silent)

    def _silent(self, query: zenoh.Query) -> None:
        with self._lock:
            self.asked += 1
            self._kept.append(query)

    def say(self, key: str, payload: bytes) -> None:
        waits = zenoh.CongestionControl.BLOCK  # else Zenoh drops what is large, where it is busy
        publisher = self._session.declare_publisher(f"{self._root}/{key}", congestion_control=waits)
        eventually(lambda: publisher.matching_status.matching, "somebody who hears it")
        publisher.put(payload)

    def ask(self, key: str, payload: bytes) -> None:
        waits = zenoh.CongestionControl.BLOCK
        self._session.get(
            f"{self._root}/{key}", lambda reply: None, payload=payload, timeout=GUARD, congestion_control=waits
        )

    def tokens(self, count: int, first: int = 0) -> None:
        live = self._session.liveliness()
        for number in range(first, first + count):
            self._tokens.append(live.declare_token(f"{self._root}/alive/ghost-{number}.{number:032x}/{number + 1}"))


@contextmanager
def forger(node: Node) -> Iterator[Forger]:
    config = zenoh.Config()
    config.insert_json5("mode", '"client"')
    config.insert_json5("connect/endpoints", f'["{node.endpoints[0]}"]')
    config.insert_json5("scouting/multicast/enabled", "false")
    assert node._engine is not None
    with zenoh.open(config) as session:
        yield Forger(session, node._engine.network.federation)


@pytest.mark.parametrize("count", [100, 2_000])
def test_an_honest_node_joins_among_forged_ones(count: int) -> None:
    """Its subscription is ready and gets what is published, however many others seem to be there."""
    with nodes() as make:
        lab = make("lab")
        source = lab.channel("sightings", Sighting).source()
        assert lab._engine is not None
        with forger(lab) as mallory:
            mallory.tokens(count)
            fabric = lab._engine.fabric
            eventually(lambda: len(fabric.alive) + fabric.ignored_tokens >= count, "the forged tokens", GUARD)
            eventually(lambda: mallory.asked > 0, "a question to one that is not there")
            desk, heard = make("desk"), Log()
            desk.channel("sightings", Sighting).subscribe(heard)
            assert desk.until(lambda: "lab" in desk.peers, GUARD), desk.peers
            assert desk.until(lambda: "sightings" in lab._engine.peers[desk.id].crossings, GUARD)
            assert desk.ready(GUARD)
            source.publish(Sighting(badge=7))
            assert heard.wait(1) == [Sighting(badge=7)]
            assert set(desk.peers) == {"lab"} and set(lab.peers) == {"desk"}


def test_what_signs_of_life_cost_is_bounded() -> None:
    """So many are kept; one that was not counts as soon as its node has proven to be there."""
    with nodes() as make:
        lab = make("lab")
        source = lab.channel("sightings", Sighting).source()
        assert lab._engine is not None
        fabric = lab._engine.fabric
        with forger(lab) as mallory:
            mallory.tokens(UNPROVEN_TOKENS + 500)
            eventually(lambda: fabric.ignored_tokens >= 500, "more than are kept", GUARD)
            threads = threading.active_count()
            desk, heard = make("desk"), Log()
            assert desk._engine is not None
            desk.channel("sightings", Sighting).subscribe(heard)
            assert desk.until(lambda: "lab" in desk.peers, GUARD), desk.peers
            assert lab.until(lambda: "sightings" in lab._engine.peers[desk.id].crossings, GUARD)
            assert desk.ready(GUARD)
            source.publish(Sighting(badge=7))
            heard.wait(1)
            eventually(lambda: fabric.is_alive(desk.id, desk._engine.incarnation), "the sign of life that was ignored")
            assert len(fabric.alive) <= UNPROVEN_TOKENS + 1
            assert lab._engine.membership.inquiries.waiting <= UNPROVEN_WAITING
            assert threading.active_count() - threads < 40, "a node costs no threads for those that only seem to be"
            desk.close()
            assert lab.until(lambda: not lab.peers, GUARD), lab.peers


def test_nodes_that_missed_each_other_among_many_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keeps the other's sign of life, and what it said when it joined was lost: it says it again."""
    calls, roll_call = [], Membership.roll_call

    def lost_at_first(membership: Membership) -> None:
        calls.append(membership)
        if calls.count(membership) > 1:
            roll_call(membership)

    monkeypatch.setattr(Membership, "roll_call", lost_at_first)
    with nodes() as make:
        lab = make("lab")
        assert lab._engine is not None
        with forger(lab) as mallory:
            mallory.tokens(UNPROVEN_TOKENS + 100)
            eventually(lambda: lab._engine.fabric.ignored_tokens >= 100, "more than are kept", GUARD)
            desk = make("desk")
            assert desk.until(lambda: "lab" in desk.peers, GUARD) and lab.until(lambda: "desk" in lab.peers, GUARD)


def test_who_publishes_from_a_journal_does_not_wait_for_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with nodes() as make:
        lab, heard = make("lab"), Log()
        lab.channel("sightings", Sighting).subscribe(heard)
        assert lab._engine is not None
        with forger(lab) as mallory:
            mallory.tokens(100)
            eventually(lambda: len(lab._engine.fabric.alive) >= 100, "the forged tokens", GUARD)
            type, row = event_type(Sighting), Sighting(badge=7)
            connect = lab.endpoints[0]
            with Publisher("sightings", query="q", type=Sighting, log=tmp_path, connect=connect) as publisher:
                publisher.publish(1, type.records_to_arrow([type.encode(row)]))
                assert heard.wait(1) == [row]
        assert "not all nodes have said what they have" not in caplog.text


class Clockless:
    """Inquiries whose answers come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.timeouts: list[float] = []
        self.answers: list[Callable[[bytes | FederationError], None]] = []
        self.known: set[str] = set()
        self.alarms: list[Callable[[], None]] = []
        self.inquiries = Inquiries(self._ask, self._heard, self._wanted, self._later)

    def _ask(self, inquiry: Inquiry, answered: Callable[[bytes | FederationError], None]) -> None:
        self.asked.append(inquiry.node)
        self.timeouts.append(inquiry.timeout)
        self.answers.append(answered)

    def _heard(self, answer: bytes) -> bool:
        self.known.add(answer.decode())
        return False

    def _wanted(self, inquiry: Inquiry) -> bool:
        return inquiry.anew or inquiry.node not in self.known

    def _later(self, seconds: float, task: Callable[[], None]) -> None:
        if not seconds:
            self.alarms.append(task)

    def ring(self) -> None:
        while self.alarms:
            self.alarms.pop()()


def test_few_are_asked_at_a_time_and_the_proven_do_not_wait_for_them() -> None:
    made = Clockless()
    for number in range(5 * UNPROVEN_WAITING):
        made.inquiries.want(f"ghost-{number}", 1, proven=False)
    made.ring()
    assert len(made.asked) == UNPROVEN_UNDER_WAY
    assert made.inquiries.waiting == UNPROVEN_WAITING
    assert made.inquiries.given_up == 4 * UNPROVEN_WAITING
    made.inquiries.want("lab", 1, proven=True)
    made.ring()
    assert made.asked[UNPROVEN_UNDER_WAY:] == ["lab"]
    made.answers[-1](b"lab")
    assert made.known == {"lab"} and made.asked[-1] == "lab", "what is known is not asked again"


def test_who_has_not_answered_lets_others_go_first() -> None:
    made = Clockless()
    for number in range(UNPROVEN_UNDER_WAY):
        made.inquiries.want(f"ghost-{number}", 1, proven=False)
        made.inquiries.want(f"ghost-{number}", 1, proven=False)  # each once
    made.ring()
    assert sorted(made.asked) == sorted(f"ghost-{number}" for number in range(UNPROVEN_UNDER_WAY))
    made.inquiries.want("desk", 1, proven=False)
    made.ring()
    assert "desk" not in made.asked
    made.answers[0](Unreachable("nobody"))
    assert made.asked[-1] == "desk"
    made.answers[-1](b"desk")
    assert made.known == {"desk"} and set(made.timeouts) == {FIRST_TIMEOUT_SECONDS}


def test_who_has_not_answered_goes_first_when_there_are_too_many() -> None:
    made = Clockless()
    for number in range(UNPROVEN_WAITING):
        made.inquiries.want(f"ghost-{number}", 1, proven=False)
    made.ring()
    for answered in list(made.answers):
        answered(Unreachable("nobody"))
    tried = set(made.asked)
    for number in range(UNPROVEN_UNDER_WAY):
        made.inquiries.want(f"late-{number}", 1, proven=False)
    assert made.inquiries.waiting == UNPROVEN_WAITING and made.inquiries.given_up == UNPROVEN_UNDER_WAY
    made.inquiries.want("one more", 1, proven=False)  # all others have had no chance yet
    assert made.inquiries.waiting == UNPROVEN_WAITING and made.inquiries.given_up == UNPROVEN_UNDER_WAY + 1
    while len(made.asked) < 2 * UNPROVEN_WAITING and len(set(made.asked)) < UNPROVEN_WAITING + UNPROVEN_UNDER_WAY:
        made.answers.pop()(Unreachable("nobody"))
    assert len(tried) >= UNPROVEN_UNDER_WAY and "late-0" in made.asked and "one more" not in made.asked


def test_one_node_that_does_not_answer_holds_up_few_threads() -> None:
    workers, go, others = Workers("headwater-test-workers", threads=4, of_one=2), threading.Event(), threading.Event()
    done: list[int] = []
    try:
        for number in range(6):
            workers.submit("frozen", lambda number=number: (go.wait(30), done.append(number)))  # type: ignore[misc]
        workers.submit("lab", others.set)
        assert others.wait(30), "a thread for the other node"
        go.set()
        eventually(lambda: len(done) == 6, "the rest")
    finally:
        go.set()
        workers.stop()


def test_what_waits_to_be_looked_at_is_bounded_in_bytes() -> None:
    """Whoever sends it; something always gets in."""
    worker, go, done = Worker("headwater-test-worker", 1000), threading.Event(), []
    worker.start()
    try:
        assert worker.put(lambda: go.wait(30) and None)
        taken = [worker.put(lambda: done.append(1), size=WAITING_BYTES // 4) for _ in range(10)]
        assert taken.count(True) in (4, 5) and taken == sorted(taken, reverse=True)
        assert worker.put(lambda: done.append(1), size=WAITING_BYTES, always=True)
        go.set()
        eventually(lambda: len(done) == taken.count(True) + 1, "all that was taken")
        eventually(lambda: worker.put(lambda: done.append(1), size=10 * WAITING_BYTES), "one that is alone")
    finally:
        go.set()
        worker.stop()


def test_messages_that_are_too_large_cost_little_and_are_offences() -> None:
    with nodes() as make:
        lab = make("lab")
        assert lab._engine is not None
        with forger(lab) as mallory:
            for number, (send, key) in enumerate(
                [(mallory.say, "news"), (mallory.ask, f"ask/{lab.id}"), (mallory.ask, f"roll/{lab.id}")], 1
            ):
                send(key, bytes(4 << 20))
                noted = partial(lambda least: sum(lab.federation_report().offences.values()) >= least, number)
                eventually(noted, f"an offence by {key}", GUARD)
        desk, heard = make("desk"), Log()
        source = lab.channel("sightings", Sighting).source()
        desk.channel("sightings", Sighting).subscribe(heard)
        assert desk.until(lambda: bool(desk.remote_sources("sightings")), GUARD)
        assert desk.ready(GUARD)
        source.publish(Sighting(badge=7))
        heard.wait(1)
