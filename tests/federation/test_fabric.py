"""Nodes in one federation over real Zenoh sessions on loopback: who is there, questions, news, messages."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headwater.errors import ClosedError, FederationError, Unreachable
from headwater.federation.fabric.fabric import Fabric
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.settings import Security
from headwater.federation.security.tls import zenoh_settings
from tests.federation.fabric_support import PATIENCE, Child, Witness, closing, fabric
from tests.federation.nodes import eventually
from tests.ports import free_endpoint

LOOP = ["tcp/127.0.0.1:0"]


def pair(**kwargs: Any) -> tuple[Fabric, Witness, Fabric, Witness]:
    """Two nodes that know each other."""
    a, seen_a = fabric("a", listen=LOOP, **kwargs)
    b, seen_b = fabric("b", connect=a.endpoints, **kwargs)
    seen_a.until_saw(("join", "b", 1))
    seen_b.until_saw(("join", "a", 1))
    return a, seen_a, b, seen_b


def test_two_nodes_meet_talk_and_part() -> None:
    a, seen_a, b, seen_b = pair()
    with closing(a, b):
        assert a.alive == {("b", 1)} and b.alive == {("a", 1)}
        assert a.ask("b", b"who?", 5.0) == b"b:who?"
        assert b.ask("a", b"", 5.0) == b"a:"
        for number in range(100):
            a.post("b", b"%d" % number)
        a.tell(b"something changed")
        seen_b.until_saw(("post", b"99"), ("news", b"something changed"))
        assert [what[1] for what in seen_b.seen if what[0] == "post"] == [b"%d" % n for n in range(100)]
        b.close()
        seen_a.until_saw(("leave", "b", 1))
        assert a.alive == frozenset()
        # Nothing of one's own comes back.
        assert {what[0] for what in seen_a.seen} == {"join", "leave"}
        assert all(what[1] == "b" for what in seen_a.seen)


def test_the_port_the_system_chose_is_told() -> None:
    a, _ = fabric("a", listen=["tcp/127.0.0.1:0", "tcp/127.0.0.1:0"])
    with closing(a):
        ports = [int(endpoint.rpartition(":")[2]) for endpoint in a.endpoints]
        assert len(set(ports)) == 2 and 0 not in ports
        for port in ports:
            socket.create_connection(("127.0.0.1", port), 5.0).close()


def test_many_nodes_at_once_get_ports_of_their_own() -> None:
    made: list[Fabric] = []
    lock = threading.Lock()

    def one(name: str) -> None:
        opened, _ = fabric(name, listen=LOOP)
        with lock:
            made.append(opened)

    threads = [threading.Thread(target=one, args=(f"n{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    with closing(*made):
        assert len({endpoint for one in made for endpoint in one.endpoints}) == 8


@pytest.mark.parametrize("listen", ["tcp/[::1]:0", "tcp/localhost:0", "udp/127.0.0.1:0", "ws/127.0.0.1:0"])
def test_ways_to_listen(listen: str) -> None:
    a, _ = fabric("a", listen=[listen])
    b, seen_b = fabric("b", connect=a.endpoints)
    with closing(a, b):
        seen_b.until_saw(("join", "a", 1))
        assert b.ask("a", b"x", 5.0) == b"a:x"


def test_a_unix_socket(tmp_path: Path) -> None:
    a, _ = fabric("a", listen=[f"unix/{tmp_path}/z.sock"])
    b, seen_b = fabric("b", connect=a.endpoints)
    with closing(a, b):
        assert a.endpoints == (f"unix/{tmp_path}/z.sock",)
        seen_b.until_saw(("join", "a", 1))
        assert b.ask("a", b"x", 5.0) == b"a:x"


def test_federations_do_not_hear_each_other() -> None:
    a, seen_a = fabric("a", listen=LOOP, federation="one")
    b, seen_b = fabric("b", connect=a.endpoints, federation="two")
    c, seen_c = fabric("c", connect=a.endpoints, federation="one")
    with closing(a, b, c):
        seen_a.until_saw(("join", "c", 1))
        seen_c.until_saw(("join", "a", 1))
        a.tell(b"for one")
        seen_c.until_saw(("news", b"for one"))
        assert c.roll_call(b"", 5.0) == [b"a:"]
        assert b.roll_call(b"", 5.0) == []
        assert seen_b.seen == []
        with pytest.raises(Unreachable, match="no node 'a' in the federation 'two'"):
            b.post("a", b"x")


# ---- finding each other


def test_a_seed_that_starts_later_is_found() -> None:
    seed = free_endpoint()
    b, seen_b = fabric("b", connect=[seed])
    a, seen_a = fabric("a", listen=[seed])
    with closing(a, b):
        seen_a.until_saw(("join", "b", 1))
        seen_b.until_saw(("join", "a", 1))
        assert b.ask("a", b"x", 5.0) == b"a:x"


def test_nodes_that_know_one_seed_find_each_other_and_outlive_it() -> None:
    a, _ = fabric("a", listen=LOOP)
    b, seen_b = fabric("b", connect=a.endpoints)
    c, seen_c = fabric("c", connect=a.endpoints)
    with closing(a, b, c):
        seen_b.until_saw(("join", "a", 1), ("join", "c", 1))
        seen_c.until_saw(("join", "a", 1), ("join", "b", 1))
        a.close()
        seen_b.until_saw(("leave", "a", 1))
        assert b.ask("c", b"still", 5.0) == b"c:still"
        c.post("b", b"here")
        seen_b.until_saw(("post", b"here"))
        assert ("leave", "c", 1) not in seen_b.seen


def test_scouting_on_loopback() -> None:
    group = f"224.0.0.{random.randrange(100, 200)}:{random.randrange(20_000, 30_000)}#iface=lo"
    a, seen_a = fabric("a", scout=group)
    b, seen_b = fabric("b", scout=group)
    with closing(a, b):
        assert all(endpoint.startswith("tcp/127.0.0.1:") for endpoint in (*a.endpoints, *b.endpoints))
        seen_a.until_saw(("join", "b", 1))
        seen_b.until_saw(("join", "a", 1))
        assert b.ask("a", b"x", 5.0) == b"a:x"


def test_a_node_that_comes_back_is_a_new_incarnation() -> None:
    a, seen_a, b, _ = pair()
    with closing(a, b):
        b.close()
        again, _ = fabric("b", 2, connect=a.endpoints)
        with closing(again):
            seen_a.until_saw(("leave", "b", 1), ("join", "b", 2))
            assert a.alive == {("b", 2)}
            assert a.ask("b", b"x", 5.0) == b"b:x"


# ---- nodes that vanish

LONG = 3_600.0  # a lease that no test waits for


def test_a_killed_node_is_noticed() -> None:
    a, seen_a = fabric("a", listen=LOOP, lease=LONG)
    with closing(a), Child("b", connect=list(a.endpoints), lease=LONG) as b:
        seen_a.until_saw(("join", "b", 1))
        b.kill()
        seen_a.until_saw(("leave", "b", 1))  # its connection closed: no lease had to pass
        with pytest.raises(Unreachable, match="no node 'b'"):
            a.ask("b", b"x", 5.0)
        with Child("b", 2, connect=list(a.endpoints)):
            seen_a.until_saw(("join", "b", 2))
            assert a.ask("b", b"x", 5.0) == b"b:x"


def test_a_frozen_node_is_noticed_within_its_lease() -> None:
    lease = 1.5
    a, seen_a = fabric("a", listen=LOOP, lease=lease)
    with closing(a), Child("b", connect=list(a.endpoints), lease=lease) as b:
        seen_a.until_saw(("join", "b", 1))
        b.freeze()
        seen_a.until_saw(("leave", "b", 1))
        seen_a.clear()
        b.thaw()
        seen_a.until_saw(("join", "b", 1))  # the same incarnation: its process never ended
        assert a.ask("b", b"x", 5.0) == b"b:x"
        assert b.end() == ""


def test_a_frozen_node_is_noticed_while_much_is_posted_to_it() -> None:
    lease = 1.5
    a, seen_a = fabric("a", listen=LOOP, lease=lease)
    with closing(a), Child("b", connect=list(a.endpoints), lease=lease) as b:
        seen_a.until_saw(("join", "b", 1))
        b.freeze()
        before = monotonic()
        with pytest.raises(Unreachable):
            while monotonic() - before < PATIENCE:
                a.post("b", bytes(50_000))
        seen_a.until_saw(("leave", "b", 1))


def test_closing_is_quick_beside_a_frozen_node() -> None:
    a, seen_a = fabric("a", listen=LOOP, lease=LONG)
    with closing(a), Child("b", connect=list(a.endpoints), lease=LONG) as b:
        seen_a.until_saw(("join", "b", 1))
        b.freeze()
        with pytest.raises(Unreachable, match="did not answer within"):
            a.ask("b", b"x", 0.2)
        filling = Filling(a, "b")
        filling.start()
        before = monotonic()
        a.close()
        assert monotonic() - before < LONG / 2  # the lease was not waited for
        filling.join(PATIENCE)
        assert not filling.is_alive() and isinstance(filling.error, Unreachable | ClosedError)


class Filling(threading.Thread):
    """Posts until the node or the sender ends."""

    def __init__(self, sender: Fabric, node: str) -> None:
        super().__init__(daemon=True)
        self._sender, self._node = sender, node
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while True:
                self._sender.post(self._node, bytes(50_000))
        except Exception as error:
            self.error = error


class ClosedMeanwhile(Fabric):
    """Once `doomed`, it is closed by another thread whenever a call has just found its session open."""

    doomed = False

    def _live(self) -> Any:
        session = super()._live()
        if self.doomed:
            self.close()
        return session


SPEAKING: dict[str, Callable[[Fabric], Any]] = {
    "post": lambda a: a.post("b", b"x"),
    "tell": lambda a: a.tell(b"x"),
    "ask": lambda a: a.ask("b", b"x", 5.0),
    "ask_soon": lambda a: a.ask_soon("b", b"x", print, timeout=5.0),
    "roll_call": lambda a: a.roll_call(b"x", 5.0),
    "roll_answers": lambda a: list(a.roll_answers(b"x", 5.0, list, print)),
}


@pytest.mark.parametrize("speak", SPEAKING.values(), ids=SPEAKING.keys())
def test_a_call_that_finds_the_fabric_closed_half_way_says_so(speak: Callable[[Fabric], Any]) -> None:
    b, _ = fabric("b", listen=LOOP)
    a = ClosedMeanwhile("test", "a", 1, connect=b.endpoints)
    with closing(a, b):
        a.open()
        eventually(lambda: ("b", 1) in a.alive)
        a.doomed = True
        with pytest.raises(ClosedError, match="node a: its fabric is closed"):
            speak(a)


def test_posts_go_on_after_the_session_was_opened_anew_while_one_was_under_way() -> None:
    a, _, b, seen_b = pair()
    with closing(a, b):
        a.post("b", b"first")
        kept = a._publishers["b"]
        kept.undeclare()  # as it is with the session that had declared it
        with pytest.raises(Unreachable, match="node b cannot be sent to"):
            a.post("b", b"lost")
        a.post("b", b"second")
        seen_b.until_saw(("post", b"second"))


def test_nodes_without_their_seed_find_each_other_again() -> None:
    lease = 1.0
    with Child("a", listen=LOOP, lease=lease) as a:
        b, seen_b = fabric("b", connect=a.endpoints, lease=lease)
        with closing(b), Child("c", connect=a.endpoints, lease=lease) as c:
            seen_b.until_saw(("join", "a", 1), ("join", "c", 1))
            a.kill()
            seen_b.until_saw(("leave", "a", 1))
            c.freeze()
            seen_b.until_saw(("leave", "c", 1))
            seen_b.clear()
            assert c.process.poll() is None
            c.thaw()
            seen_b.until_saw(("join", "c", 1))
            assert b.ask("c", b"x", 5.0) == b"c:x"
            assert c.do("ask", "b", "y") == "b:y"
            assert c.end() == ""


# ---- routers and clients


def test_clients_reach_each_other_through_a_router_that_dies_and_returns() -> None:
    seed = free_endpoint()
    with Child("r", listen=[seed], mode="router") as router:
        b, seen_b = fabric("b", connect=[seed], mode="client")
        c, seen_c = fabric("c", connect=[seed], mode="client")
        with closing(b, c):
            assert b.endpoints == ()
            seen_b.until_saw(("join", "r", 1), ("join", "c", 1))
            seen_c.until_saw(("join", "r", 1), ("join", "b", 1))
            assert b.ask("c", b"x", 5.0) == b"c:x"
            b.post("c", b"routed")
            seen_c.until_saw(("post", b"routed"))
            assert sorted(b.roll_call(b"", 5.0)) == [b"c:", b"r:"]
            assert router.do("roll", "") == ["b:", "c:"]
            router.kill()
            seen_b.until_saw(("leave", "r", 1), ("leave", "c", 1))
            with pytest.raises(Unreachable):
                b.ask("c", b"x", 1.0)
            seen_b.clear()
            seen_c.clear()
            with Child("r", 2, listen=[seed], mode="router") as again:
                seen_b.until_saw(("join", "r", 2), ("join", "c", 1))
                seen_c.until_saw(("join", "r", 2), ("join", "b", 1))
                assert b.ask("c", b"x", 5.0) == b"c:x"
                b.post("c", b"again")
                seen_c.until_saw(("post", b"again"))
                assert again.end() == ""


def test_a_client_opens_before_its_router() -> None:
    seed = free_endpoint()
    b, seen_b = fabric("b", connect=[seed], mode="client")
    with closing(b):
        with pytest.raises(Unreachable, match="not connected yet: no answer from tcp/127"):
            b.ask("r", b"x", 1.0)
        with pytest.raises(Unreachable, match="not connected yet"):
            b.tell(b"x")
        r, _ = fabric("r", listen=[seed], mode="router")
        with closing(r):
            seen_b.until_saw(("join", "r", 1))
            assert b.ask("r", b"x", 5.0) == b"r:x"
    unheard, _ = fabric("u", connect=[free_endpoint()], mode="client")
    unheard.close()  # also when it never connected


def test_routers_in_a_ring_pass_on_once() -> None:
    seeds = [free_endpoint() for _ in range(3)]
    routers = [fabric(f"r{n}", listen=[seeds[n]], connect=[seeds[(n + 1) % 3]], mode="router") for n in range(3)]
    leaves = [fabric(f"c{n}", connect=[seeds[n]], mode="client") for n in range(3)]
    everyone = [*routers, *leaves]
    with closing(*(one for one, _ in everyone)):
        names = {one.node for one, _ in everyone}
        for one, seen in everyone:
            seen.until_saw(*(("join", name, 1) for name in names - {one.node}))
        for one, _ in everyone:
            others = sorted(name.encode() + b":" for name in names - {one.node})
            assert sorted(one.roll_call(b"", 5.0)) == others
        leaves[0][0].tell(b"once")
        leaves[0][0].post("c2", b"one")
        leaves[0][0].post("c2", b"two")
        leaves[2][1].until_saw(("news", b"once"), ("post", b"two"))
        assert [what for what in leaves[2][1].seen if what[0] in ("post", "news")].count(("news", b"once")) == 1
        assert [what[1] for what in leaves[2][1].seen if what[0] == "post"] == [b"one", b"two"]


# ---- security of the connections


def proof(folder: Path, name: str) -> dict[str, Any]:
    """Zenoh's settings of a node with a certificate from the authority in the folder."""
    issued = issue(folder, name)
    return zenoh_settings(Security(certificate=issued.certificate, key=issued.key, authority=issued.authority))


def test_nodes_with_certificates_find_each_other_and_find_back(tmp_path: Path) -> None:
    make_authority(tmp_path)
    lease = 1.0
    with Child("a", listen=["tls/127.0.0.1:0"], lease=lease, settings=proof(tmp_path, "a")) as a:
        b, seen_b = fabric("b", connect=a.endpoints, lease=lease, settings=proof(tmp_path, "b"))
        with closing(b), Child("c", connect=a.endpoints, lease=lease, settings=proof(tmp_path, "c")) as c:
            assert b.endpoints[0].startswith("tls/127.0.0.1:")
            seen_b.until_saw(("join", "a", 1), ("join", "c", 1))
            a.kill()
            c.freeze()
            seen_b.until_saw(("leave", "a", 1), ("leave", "c", 1))
            seen_b.clear()
            c.thaw()
            seen_b.until_saw(("join", "c", 1))
            assert b.ask("c", b"x", 5.0) == b"c:x"


def test_a_stranger_is_not_connected_to(tmp_path: Path) -> None:
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        make_authority(tmp_path / folder)
    a, seen_a = fabric("a", listen=["tls/127.0.0.1:0"], settings=proof(tmp_path / "ours", "a"))
    stranger, seen_stranger = fabric("s", connect=a.endpoints, settings=proof(tmp_path / "theirs", "s"))
    b, _ = fabric("b", connect=a.endpoints, settings=proof(tmp_path / "ours", "b"))
    with closing(a, stranger, b):
        seen_a.until_saw(("join", "b", 1))
        assert seen_a.seen == [("join", "b", 1)]
        assert seen_stranger.seen == []
        eventually(lambda: stranger.connected == 0)  # a handshake that will fail may be under way


# ---- questions


def test_a_node_that_is_not_there_is_named() -> None:
    a, _ = fabric("a", listen=LOOP)
    with closing(a):
        before = monotonic()
        with pytest.raises(Unreachable, match="there is no node 'nobody' in the federation 'test' now"):
            a.ask("nobody", b"x", LONG)
        with pytest.raises(Unreachable, match="there is no node 'nobody'"):
            a.post("nobody", b"x")
        assert monotonic() - before < LONG / 2


def test_an_answer_that_takes_too_long() -> None:
    a, _, b, seen_b = pair()
    release = threading.Event()

    def slow(payload: bytes) -> bytes:
        release.wait(PATIENCE)
        return payload

    b.on_ask = slow
    with closing(a, b):
        with pytest.raises(Unreachable, match=r"node b did not answer within 0\.2 s"):
            a.ask("b", b"x", 0.2012345)  # what is left of a deadline is told as people say it
        # Meanwhile everything else goes on.
        assert a.roll_call(b"", 5.0) == [b"b:"]
        a.post("b", b"on")
        a.tell(b"and on")
        seen_b.until_saw(("post", b"on"), ("news", b"and on"))
        release.set()
        assert a.ask("b", b"y", 5.0) == b"y"


def test_a_handler_that_fails_is_counted_and_who_asks_hears_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    a, _, b, seen_b = pair()

    def fail(payload: bytes) -> Any:
        if payload == b"done":
            return seen_b.saw(payload)
        raise RuntimeError("no such interest")

    with closing(a, b):
        b.on_ask = b.on_post = b.on_news = b.on_roll = fail
        with pytest.raises(Unreachable, match="node b has not answered") as caught:
            a.ask("b", b"x", 5.0)
        assert "no such interest" not in str(caught.value)  # anyone could have said so, and anyone could hear it
        assert a.roll_call(b"", 5.0) == []
        a.tell(b"x")
        a.post("b", b"x")
        a.post("b", b"done")
        seen_b.until_saw(b"done")
        a.tell(b"done")
        seen_b.until(lambda seen: seen.count(b"done") == 2)
        assert b.failures == {"join": 0, "leave": 0, "roll": 1, "news": 1, "ask": 1, "post": 1, "log": 0}
        assert a.failures == dict.fromkeys(b.failures, 0)
    assert "the handler of ask failed" in caplog.text


def test_asking_in_a_handler() -> None:
    a, _, b, seen_b = pair()

    def pushed(payload: bytes) -> None:
        try:
            b.ask("a", payload, 5.0)
        except FederationError as error:
            seen_b.saw(str(error))
        b.ask_soon("a", payload, lambda answer: seen_b.saw(("answer", answer)), timeout=5.0)
        b.ask_soon("nobody", payload, lambda answer: seen_b.saw(("answer", str(answer))), timeout=5.0)

    def told(payload: bytes) -> None:
        seen_b.saw(("news", b.ask("a", payload, 5.0), b.roll_call(b"?", 5.0)))

    b.on_post = pushed
    b.on_news = told
    a.on_ask = lambda payload: b.node.encode() + a.ask("b", payload, 5.0) if payload == b"back" else b"a:" + payload
    with closing(a, b):
        a.post("b", b"x")
        a.tell(b"y")
        seen_b.until_saw(
            "ask in on_post would wait for ever: use ask_soon, or another thread",
            ("answer", b"a:x"),
            ("answer", "there is no node 'nobody' in the federation 'test' now"),
            ("news", b"a:y", [b"a:?"]),
        )
        assert b.ask("a", b"back", 5.0) == b"bb:back"


def test_questions_of_one_asker_are_answered_in_order() -> None:
    a, _, b, _ = pair()
    order: list[bytes] = []
    b.on_ask = lambda payload: (order.append(payload), payload)[1]
    answers = Witness()
    with closing(a, b):
        for number in range(200):
            a.ask_soon("b", b"%d" % number, answers.saw, timeout=10.0)
        answers.until(lambda seen: len(seen) == 200)
        assert order == answers.seen == [b"%d" % number for number in range(200)]


def test_a_roll_call_ends_when_all_have_answered() -> None:
    seed, _ = fabric("n0", listen=LOOP)
    rest = [fabric(f"n{n}", connect=seed.endpoints) for n in range(1, 6)]
    with closing(seed, *(one for one, _ in rest)):
        caller, seen = rest[-1]
        seen.until_saw(*(("join", f"n{n}", 1) for n in range(5)))
        before = monotonic()
        assert sorted(caller.roll_call(b"here", 100.0)) == [b"n%d:here" % n for n in range(5)]
        assert monotonic() - before < LONG / 2


def test_a_roll_call_does_not_wait_for_ever_for_a_silent_node() -> None:
    a, _, b, _ = pair()
    c, seen_c = fabric("c", connect=a.endpoints)
    release = threading.Event()
    b.on_roll = lambda payload: (release.wait(PATIENCE), payload)[1]
    with closing(a, b, c):
        seen_c.until_saw(("join", "a", 1), ("join", "b", 1))
        assert c.roll_call(b"", 0.3) == [b"a:"]
        release.set()


# ---- counters


def test_counters_of_every_kind() -> None:
    a, _, b, seen_b = pair()
    with closing(a, b):
        a.ask("b", b"123", 5.0)
        a.roll_call(b"12", 5.0)
        a.tell(b"1234")
        for _ in range(3):
            a.post("b", b"12345")
        seen_b.until(lambda seen: sum(what[0] in ("post", "news") for what in seen) == 4)
        out, in_ = a.counters, b.counters
        assert (out["ask"]["messages_out"], out["ask"]["bytes_out"]) == (1, 3)
        assert (out["ask"]["messages_in"], out["ask"]["bytes_in"]) == (1, 5)
        assert (in_["ask"]["messages_in"], in_["ask"]["bytes_in"]) == (1, 3)
        assert (in_["ask"]["messages_out"], in_["ask"]["bytes_out"]) == (1, 5)
        assert (in_["roll"]["messages_in"], in_["roll"]["bytes_in"]) == (1, 2)
        assert (out["roll"]["messages_in"], out["roll"]["bytes_in"]) == (1, 4)
        assert (out["news"]["messages_out"], out["news"]["bytes_out"]) == (1, 4)
        assert (in_["news"]["messages_in"], in_["news"]["bytes_in"]) == (1, 4)
        assert (out["post"]["messages_out"], out["post"]["bytes_out"]) == (3, 15)
        assert (in_["post"]["messages_in"], in_["post"]["bytes_in"]) == (3, 15)
        assert out["join"]["messages_in"] == 1 and out["join"]["messages_out"] == 1
        assert out["leave"]["messages_in"] == 0


def test_a_node_that_says_nothing_sends_nothing() -> None:
    a, _, b, _ = pair()
    with closing(a, b):
        quiet = {kind: {"messages_out": 1 if kind == "join" else 0, "bytes_out": 0} for kind in a.counters}
        for one in (a, b):
            counted = one.counters
            assert {kind: {key: counted[kind][key] for key in quiet[kind]} for kind in counted} == quiet


# ---- opening and closing


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp/127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(FederationError, match=rf"node a: .*{endpoint}.*in use") as caught:
            fabric("a", listen=[endpoint])
        assert ".rs" not in str(caught.value)


def test_an_address_of_another_machine_is_refused() -> None:
    for listen in ("tcp/192.0.2.1:7447", "tcp/192.0.2.1:0"):
        with pytest.raises(FederationError, match=r"node a: .*192\.0\.2\.1.*[Cc]annot assign"):
            fabric("a", listen=[listen])


def test_closing_twice_and_speaking_afterwards() -> None:
    a, seen_a, b, _ = pair()
    with closing(a):
        before = monotonic()
        b.close()
        assert monotonic() - before < LONG / 2
        b.close()
        assert b.closed and not a.closed
        for speak in (lambda: b.ask("a", b"", 1.0), lambda: b.roll_call(b"", 1.0), lambda: b.tell(b"")):
            with pytest.raises(ClosedError, match="closed"):
                speak()
        with pytest.raises(ClosedError):
            b.post("a", b"")
        with pytest.raises(ClosedError, match="opens once"):
            b.open()
        seen_a.until_saw(("leave", "b", 1))
    unopened = Fabric("test", "c", 1, listen=LOOP)
    with pytest.raises(ClosedError, match="not open yet"):
        unopened.tell(b"")
    unopened.close()


@pytest.mark.parametrize("kind", ["post", "news", "ask", "roll"])
def test_closing_in_a_handler(kind: str) -> None:
    a, seen_a, b, seen_b = pair()

    def end(payload: bytes) -> bytes:
        b.close()
        seen_b.saw("closed")
        return payload

    setattr(b, f"on_{kind}", end)
    with closing(a, b):
        match kind:
            case "post":
                a.post("b", b"")
            case "news":
                a.tell(b"")
            case "ask":
                with pytest.raises(Unreachable):
                    a.ask("b", b"", 5.0)
            case _:
                assert a.roll_call(b"", 5.0) == []
        seen_b.until_saw("closed")
        seen_a.until_saw(("leave", "b", 1))


def test_nothing_arrives_after_close() -> None:
    a, _, b, seen_b = pair()
    with closing(a, b):
        b.close()
        seen_b.clear()
        for _ in range(100):
            a.tell(b"late")
        assert seen_b.seen == []


def test_nothing_is_written_to_standard_error() -> None:
    with Child("a", listen=LOOP, lease=1.0) as a, Child("b", connect=[*a.endpoints, free_endpoint()], lease=1.0) as b:
        assert b.do("until", ["join", "a", 1]) is True
        assert b.do("ask", "a", "x") == "a:x"
        assert a.do("post", "nobody", "x").startswith("Unreachable: there is no node")
        assert a.end() == ""
        assert b.do("until", ["leave", "a", 1]) is True
        assert b.end() == ""
