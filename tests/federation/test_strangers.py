"""Who has not said who it is costs little, however many there are; and whoever does say so gets through among them."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, u32
from headwater.federation.fabric.file_limit import share_of_files
from headwater.federation.fabric.settings import UNGREETED_SESSIONS
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.transport.link import parse_endpoint
from headwater.federation.transport.listener import Listener
from headwater.federation.transport.strangers import (
    GREETING_SECONDS,
    NEW_AT_ONCE,
    SPOKE,
    STRANGERS_BYTES,
    Stranger,
    Strangers,
    place_of_address,
)
from headwater.federation.transport.stream import GREETING_BYTES, Stream
from headwater.federation.wire.frames import encode_ping
from headwater.security import Rule, Security
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

MANY = 1000
HALF_FRAME = struct.pack("<I", 16 << 20) + bytes(8 << 20)
HALF_GREETING = struct.pack("<I", GREETING_BYTES) + bytes(GREETING_BYTES - 1)
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)  # of TLS
RULES = (Rule("**", "*"),)


class Sighting(Event, name="ie.tcd.StrangerSighting"):
    badge: u32


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def address(node: Node) -> tuple[str, int]:
    assert node._engine is not None and node._engine.listener is not None
    endpoint = parse_endpoint(node._engine.listener.endpoints[0])
    return endpoint.host, endpoint.port


@contextmanager
def crowd(node: Node, says: bytes, count: int = MANY) -> Iterator[list[socket.socket]]:
    """Connections that say as much of this as they can without waiting, and nothing more."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(address(node), GUARD))
            sock.setblocking(False)
            made.append(sock)
            with suppress(OSError):
                sock.send(says)
        yield made


class Reopening:
    """Connections that are opened again and again, as soon as they are closed, until the end."""

    def __init__(self, node: Node, says: bytes, count: int = 500) -> None:
        self._address, self._says, self._count = address(node), says, count
        self._over = threading.Event()
        self.opened = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        made: list[socket.socket] = []
        while not self._over.is_set():
            with suppress(OSError):
                sock = socket.create_connection(self._address, 1.0)
                made.append(sock)
                sock.setblocking(False)
                sock.send(self._says)
                self.opened += 1
            if len(made) > self._count:
                made.pop(0).close()
        for sock in made:
            sock.close()

    def __enter__(self) -> Reopening:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(GUARD)


def links(make: Nodes, lab: Node, **options: Any) -> None:
    """Another node joins, gets a direct stream, and events come over it."""
    source = lab.channel("sightings", Sighting).source()
    desk, heard = make("desk", **options), Log()
    desk.channel("sightings", Sighting).subscribe(heard)
    assert desk.until(lambda: bool(desk.remote_sources("sightings")), GUARD), "the source is not known"
    assert desk.ready(GUARD)
    # On a busy machine the first call may take too long: then it is by another way for the moment.
    eventually(lambda: lab.federation_report().peer("desk").link in ("tcp", "tls"), "a direct stream", timeout=GUARD)
    source.publish(Sighting(badge=7))
    assert heard.wait(1) == [Sighting(badge=7)]


@pytest.mark.parametrize("says", [b"", HALF_FRAME, HALF_GREETING], ids=["nothing", "half a frame", "half a greeting"])
def test_a_thousand_strangers_cost_no_threads_and_little_memory(says: bytes) -> None:
    with nodes() as make:
        lab = make("lab")
        threads, memory = threading.active_count(), resident()
        with crowd(lab, says):
            assert lab._engine is not None and lab._engine.listener is not None
            strangers = lab._engine.listener.strangers
            eventually(lambda: strangers.came >= MANY, "all of them")
            assert threading.active_count() <= threads + 3
            assert resident() - memory < (48 << 20)
            links(make, lab)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    issue(folder, "lab")
    issue(folder, "desk")
    return folder


def certified(folder: Path, name: str) -> dict[str, Any]:
    return {
        "security": Security(
            certificate=folder / f"{name}.pem",
            key=folder / f"{name}.key",
            authority=folder / "authority.pem",
            rules=RULES,
        )
    }


@pytest.mark.parametrize("says", [b"", HALF_HELLO], ids=["nothing", "half a hello"])
def test_a_thousand_half_open_handshakes_do_not_keep_an_honest_caller_out(authority: Path, says: bytes) -> None:
    """Else the two would fall back to Zenoh's path, as whoever opens the connections may want."""
    with nodes() as make:
        lab = make("lab", listen="tls/127.0.0.1:0", **certified(authority, "lab"))
        threads, memory = threading.active_count(), resident()
        with crowd(lab, says):
            assert lab._engine is not None and lab._engine.listener is not None
            strangers = lab._engine.listener.strangers
            eventually(lambda: strangers.came >= MANY, "all of them")
            assert threading.active_count() <= threads + 3
            assert resident() - memory < (160 << 20)
            links(make, lab, **certified(authority, "desk"))


def test_an_honest_caller_gets_through_a_crowd_that_keeps_coming(authority: Path) -> None:
    with nodes() as make:
        lab = make("lab", listen="tls/127.0.0.1:0", **certified(authority, "lab"))
        with Reopening(lab, HALF_HELLO) as others:
            eventually(lambda: others.opened > 500)
            links(make, lab, **certified(authority, "desk"))


def test_what_is_announced_as_larger_than_a_greeting_is_refused_at_once() -> None:
    """Without waiting for it, and counted as an offence; so is a frame that is not a greeting."""
    with nodes() as make:
        lab = make("lab")
        assert lab._engine is not None and lab._engine.listener is not None
        strangers = lab._engine.listener.strangers
        for says in (struct.pack("<I", GREETING_BYTES + 1), struct.pack("<I", 0), encode_ping(1)):
            with socket.create_connection(address(lab), GUARD) as sock:
                sock.sendall(says)
                with suppress(ConnectionResetError):
                    while sock.recv(1 << 16):
                        pass
        eventually(lambda: strangers.refused == 3)
        assert sum(lab.federation_report().offences.values()) == 3
        assert strangers.came == 3 and not len(strangers)


# ── who has to go ──


class Quiet:
    """A greeter of which nothing is expected."""

    challenge = encode_ping(1)

    def answered(self, stream: Stream, frame: bytes | memoryview) -> bool:
        stream.close()
        return True

    def failed(self, stream: Stream, error: Exception) -> None:
        pass


def stranger(place: str = "192.0.2.1") -> Stranger:
    return Stranger(socket.socket(), "tcp", place, place, False)


def test_one_place_does_not_push_out_another() -> None:
    strangers = Strangers(most=10)
    honest = stranger("192.0.2.7")
    assert strangers.add(honest) is None
    for _ in range(50):
        surplus = strangers.add(stranger())
        if surplus is not None:
            assert surplus is not honest
            strangers.remove(surplus)
            surplus.close("")
    assert honest in list(strangers) and len(strangers) == 10
    for each in strangers:
        each.close("")


def test_who_makes_no_progress_goes_before_who_does() -> None:
    strangers = Strangers(most=3)
    first, second, third = stranger(), stranger(), stranger()
    for each in (first, second, third):
        assert strangers.add(each) is None
    first.reached(SPOKE)
    first.reached(SPOKE)
    fourth = stranger()
    assert strangers.add(fourth) is second, "it has waited longest without saying anything"
    for each in (first, second, third, fourth):
        each.close("")


def test_all_together_may_not_hold_too_many_bytes() -> None:
    strangers = Strangers(most=1000)
    held = [stranger() for _ in range(STRANGERS_BYTES // GREETING_BYTES + 1)]
    gone = []
    for each in held:
        strangers.add(each)
        surplus = strangers.grew(each, GREETING_BYTES)
        if surplus is not None:
            gone.append(surplus)
    assert gone == [held[0]]
    for each in held:
        each.close("")


def test_how_many_may_come_from_one_place() -> None:
    """Processes of this machine are not counted: they have other ways to use it up."""
    strangers = Strangers()
    let_in = sum(strangers.may_come("192.0.2.1", loopback=False) for _ in range(2 * int(NEW_AT_ONCE)))
    assert NEW_AT_ONCE <= let_in < 1.9 * NEW_AT_ONCE
    assert strangers.too_many == 2 * int(NEW_AT_ONCE) - let_in
    assert strangers.may_come("192.0.2.2", loopback=False)
    assert all(strangers.may_come("127.0.0.1", loopback=True) for _ in range(3 * int(NEW_AT_ONCE)))


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", ""),
    ],
)
def test_places(address: object, place: str) -> None:
    assert place_of_address(address) == place


def test_who_is_silent_for_too_long_is_let_go() -> None:
    with Listener(["tcp/127.0.0.1:0"], greet=Quiet) as listener:
        endpoint = parse_endpoint(listener.endpoints[0])
        with socket.create_connection((endpoint.host, endpoint.port), GUARD) as sock:
            while sock.recv(100):
                pass
        assert listener.strangers.late == 1 and GREETING_SECONDS < GUARD


def test_the_counts_add_up() -> None:
    """Everyone who came is there, or is counted for what became of it."""
    with Listener(["tcp/127.0.0.1:0"], greet=Quiet, strangers=4) as listener:
        endpoint, counts = parse_endpoint(listener.endpoints[0]), listener.strangers

        def come(says: bytes, then: Callable[[], bool]) -> None:
            with socket.create_connection((endpoint.host, endpoint.port), GUARD) as sock:
                sock.sendall(says)
                eventually(then)

        come(encode_ping(1), lambda: counts.admitted == 1)
        come(bytes(4), lambda: counts.refused == 1)
        come(b"", lambda: counts.came == 3)
        eventually(lambda: counts.left == 1)
        with ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(socket.create_connection((endpoint.host, endpoint.port), GUARD))
            eventually(lambda: counts.evicted == 2 and len(counts) == 4)
        eventually(lambda: counts.left == 5)
        assert counts.came == counts.admitted + counts.refused + counts.evicted + counts.late + counts.left


def test_tls_with_one_who_has_a_certificate_and_says_nothing_more(authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority / "authority.pem")
    context.load_cert_chain(authority / "desk.pem", authority / "desk.key")
    with nodes() as make:
        lab = make("lab", listen="tls/127.0.0.1:0", **certified(authority, "lab"))
        assert lab._engine is not None and lab._engine.listener is not None
        strangers = lab._engine.listener.strangers
        with context.wrap_socket(socket.create_connection(address(lab), GUARD)) as secure:
            assert secure.recv(100)  # the challenge
            secure.sendall(struct.pack("<I", GREETING_BYTES + 1))
            with suppress(OSError):
                while secure.recv(100):
                    pass
        eventually(lambda: strangers.refused == 1)
        links(make, lab, **certified(authority, "desk"))


def test_silent_connections_to_zenoh_do_not_keep_a_node_out() -> None:
    """It joins while they are all there: none has to be given up first."""
    with nodes() as make:
        lab = make("lab")
        lab.channel("sightings", Sighting).source()
        host, _, port = lab.endpoints[0].partition("/")[2].rpartition(":")
        with ExitStack() as stack:
            silent = []
            for _ in range(min(1_500, share_of_files(UNGREETED_SESSIONS) - 20)):
                sock = stack.enter_context(socket.create_connection((host, int(port)), GUARD))
                sock.setblocking(False)
                silent.append(sock)
            desk = make("desk")
            assert desk.until(lambda: bool(desk.remote_sources("sightings")), GUARD)
            for sock in silent:
                with pytest.raises(BlockingIOError):
                    sock.recv(1)
