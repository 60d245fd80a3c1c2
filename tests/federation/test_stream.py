"""Direct streams: frames both ways over every kind of socket, and one end, with a reason, however it comes."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ConfigError, FrameError, LinkDown, SecurityError, Unreachable
from headwater.federation.security.certificates import Issued, issue, make_authority
from headwater.federation.transport.connection import UNSENT_BYTES, dial, hold_little
from headwater.federation.transport.link import Endpoint, parse_endpoint
from headwater.federation.transport.listener import Listener
from headwater.federation.transport.stream import GREETING_BYTES, Stream
from tests.effort import examples
from tests.federation.nursery import Popen

GUARD = 120.0  # seconds, against hanging; nothing here takes long
MOST = 32  # strangers at a time


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


class Ear:
    """What comes out of a stream."""

    def __init__(self, then: Callable[[bytes], object] | None = None) -> None:
        self.frames: SimpleQueue[bytes] = SimpleQueue()
        self.ends: SimpleQueue[str] = SimpleQueue()
        self.then = then

    def listen(self, stream: Stream) -> None:
        stream.start(lambda: self.on_frame, self.ends.put)

    def on_frame(self, frame: bytes | memoryview, link: object) -> None:
        self.frames.put(bytes(frame))
        if self.then is not None:
            self.then(bytes(frame))

    def get(self) -> bytes:
        return self.frames.get(timeout=GUARD)

    def end(self, stream: Stream) -> str:
        """The one reason; the stream has no thread any more."""
        reason = self.ends.get(timeout=GUARD)
        assert stream.join(GUARD)
        with pytest.raises(Empty):
            self.ends.get_nowait()
        assert stream.ended == reason
        with pytest.raises(LinkDown, match="has ended"):
            stream.write(framed(b"late"))
        return reason


class Pair:
    """Both ends of a connection."""

    def __init__(self, near: Stream, far: Stream) -> None:
        self.near, self.far = near, far
        self.near_ear, self.far_ear = Ear(), Ear()

    def listen(self) -> None:
        self.near_ear.listen(self.near)
        self.far_ear.listen(self.far)


@contextmanager
def connected(
    endpoint: str, *, server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None
) -> Iterator[Pair]:
    accepted: SimpleQueue[Stream] = SimpleQueue()
    with Listener([endpoint], accepted.put, tls=server) as listener:
        near = dial(listener.endpoints[0], tls=client)
        pair = Pair(near, accepted.get(timeout=GUARD))
        try:
            yield pair
        finally:
            for stream in (pair.near, pair.far):
                stream.close()
                stream.join(GUARD)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Every test ends without a thread of ours."""
    before = set(threading.enumerate())  # those of other tests may be on their way out
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if name.startswith("headwater-") and name != "headwater-compile"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Issued]:
    good, other = tmp_path_factory.mktemp("good"), tmp_path_factory.mktemp("other")
    make_authority(good)
    make_authority(other)
    return {
        "server": issue(good, "server", ["localhost", "127.0.0.1"]),
        "client": issue(good, "client"),
        "stranger": issue(other, "stranger"),
    }


def context(side: ssl._SSLMethod, own: Issued | None, trusted: Issued) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.check_hostname = False
    made.load_verify_locations(trusted.authority)
    made.verify_mode = ssl.CERT_REQUIRED
    if own is not None:
        made.load_cert_chain(own.certificate, own.key)
    return made


def contexts(certificates: dict[str, Issued]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = certificates["server"], certificates["client"]
    return context(ssl.PROTOCOL_TLS_SERVER, server, server), context(ssl.PROTOCOL_TLS_CLIENT, client, server)


@pytest.fixture(params=["tcp", "ipv6", "unix", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, certificates: dict[str, Issued]) -> Iterator[Pair]:
    server, client = contexts(certificates)
    endpoint = {
        "tcp": "tcp/127.0.0.1:0",
        "ipv6": "tcp/[::1]:0",
        "unix": f"unix/{tmp_path}/s.sock",
        "tls": "tls/127.0.0.1:0",
    }[request.param]
    with connected(endpoint, server=server, client=client) as made:
        yield made


# ── frames ──


def test_frames_arrive_whole_and_in_order_both_ways(pair: Pair) -> None:
    pair.listen()
    bodies = [bytes([size % 251]) * size for size in (1, 2, 3, 64, 65531, 65532, 65533, 100_000, 1_000_000, 7)]
    for body in bodies:
        pair.near.write(framed(body))
        pair.far.write(framed(body + b"!"))
    assert pair.near.drain(GUARD)
    assert pair.far.drain(GUARD)
    assert [pair.far_ear.get() for _ in bodies] == bodies
    assert [pair.near_ear.get() for _ in bodies] == [body + b"!" for body in bodies]
    total = sum(len(body) + 4 for body in bodies)
    assert (pair.near.bytes_out, pair.far.bytes_in, pair.far.frames_in) == (total, total, len(bodies))
    assert pair.near.loopback
    assert pair.far.loopback


def test_many_small_frames_in_one_write_and_one_frame_in_many(pair: Pair) -> None:
    pair.listen()
    bodies = [struct.pack("<I", n) for n in range(5000)]
    pair.near.write(b"".join(map(framed, bodies)))
    assert pair.near.drain(GUARD)
    assert [pair.far_ear.get() for _ in bodies] == bodies
    for byte in framed(b"slowly"):
        pair.near.write(bytes([byte]))
    assert pair.far_ear.get() == b"slowly"


def test_frames_of_several_threads_do_not_mix(pair: Pair) -> None:
    pair.listen()

    def work(number: int) -> None:
        for n in range(300):
            pair.near.write(framed(struct.pack("<II", number, n) + bytes([number]) * (n * 7)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pair.near.drain(GUARD)
    seen = [0] * 4
    for _ in range(1200):
        frame = pair.far_ear.get()
        number, n = struct.unpack_from("<II", frame)
        assert n == seen[number]
        assert frame[8:] == bytes([number]) * (n * 7)
        seen[number] += 1


def test_a_full_socket_makes_the_rest_wait_for_drain(pair: Pair) -> None:
    body = bytes(300_000)
    count = 0
    while pair.near.write(framed(body)) or (pair.near.busy and pair.near.drain(0.3)):
        count += 1  # the system's buffers grow while nobody reads
        assert not pair.near.busy
    count += 1
    assert pair.near.busy
    assert not pair.near.drain(0)
    assert not pair.near.drain(0.01)
    assert not pair.near.write(framed(b"last"))
    assert not pair.near.write(framed(b"very last"))
    pair.listen()
    assert pair.near.drain(GUARD)
    assert not pair.near.busy
    assert [pair.far_ear.get() for _ in range(count)] == [body] * count
    assert pair.far_ear.get() == b"last"
    assert pair.far_ear.get() == b"very last"


def test_both_ends_flood_each_other_at_once(pair: Pair) -> None:
    pair.listen()

    def flood(stream: Stream) -> None:
        for n in range(200):
            if not stream.write(framed(struct.pack("<I", n) + bytes(20_000))):
                assert stream.drain(GUARD)

    threads = [threading.Thread(target=flood, args=(stream,)) for stream in (pair.near, pair.far)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ear in (pair.near_ear, pair.far_ear):
        assert [struct.unpack_from("<I", ear.get())[0] for _ in range(200)] == list(range(200))


def test_an_answer_may_be_written_by_the_reading_thread(pair: Pair) -> None:
    rounds = 500
    pair.far_ear.then = lambda frame: pair.far.write(framed(frame))
    pair.listen()
    for n in range(rounds):
        pair.near.write(framed(struct.pack("<I", n)))
        assert pair.near_ear.get() == struct.pack("<I", n)


# ── the end ──


def test_close_is_told_once_on_both_sides(pair: Pair) -> None:
    pair.listen()
    pair.near.write(framed(b"x"))
    assert pair.far_ear.get() == b"x"
    threads = [threading.Thread(target=pair.near.close, args=("enough",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pair.near_ear.end(pair.near) == "enough"
    assert "by the other end" in pair.far_ear.end(pair.far)
    with pytest.raises(LinkDown):
        pair.near.drain(1)


def test_close_by_on_frame_stops_the_frames(pair: Pair) -> None:
    pair.far_ear.then = lambda frame: pair.far.close("had it")
    pair.listen()
    pair.near.write(framed(b"1") + framed(b"2") + framed(b"3"))
    assert pair.far_ear.end(pair.far) == "had it"
    assert pair.far_ear.get() == b"1"
    assert pair.far_ear.frames.empty()
    assert "by the other end" in pair.near_ear.end(pair.near)


def fill(stream: Stream) -> None:
    """Until the system takes no more, although it is given time: its buffers grow while nobody reads."""
    while stream.write(framed(bytes(300_000))) or stream.drain(0.3):
        pass


def test_close_wakes_who_waits_in_drain(pair: Pair) -> None:
    fill(pair.near)
    raised: SimpleQueue[BaseException | None] = SimpleQueue()

    def drain() -> None:
        try:
            while pair.near.drain(GUARD):  # the system's buffers may have grown since: then there is more
                pair.near.write(framed(bytes(300_000)))
            raised.put(None)
        except LinkDown as error:
            raised.put(error)

    thread = threading.Thread(target=drain)
    pair.near_ear.listen(pair.near)
    thread.start()
    pair.near.close("enough")
    assert isinstance(raised.get(timeout=GUARD), LinkDown)
    thread.join()
    assert pair.near_ear.end(pair.near) == "enough"


def test_started_after_the_end_it_still_tells(pair: Pair) -> None:
    pair.near.close("before")
    pair.near_ear.listen(pair.near)
    assert pair.near_ear.end(pair.near) == "before"
    with pytest.raises(RuntimeError, match="start was called before"):
        pair.near_ear.listen(pair.near)


def test_a_stream_that_nobody_started_can_be_closed(pair: Pair) -> None:
    pair.near.close()
    assert pair.near.join(GUARD)
    assert pair.near.ended == "closed here"


@pytest.mark.parametrize("length", [0, 2**31, 2**32 - 1])
def test_what_is_no_frame_ends_the_stream(pair: Pair, length: int) -> None:
    pair.listen()
    pair.near.write(framed(b"good") + struct.pack("<I", length) + b"garbage")
    assert "not a frame" in pair.far_ear.end(pair.far)
    assert "by the other end" in pair.near_ear.end(pair.near)


def test_a_frame_error_of_on_frame_ends_the_stream(pair: Pair) -> None:
    def refuse(frame: bytes) -> None:
        raise FrameError("kind 99 is not known")

    pair.far_ear.then = refuse
    pair.listen()
    pair.near.write(framed(b"x"))
    assert pair.far_ear.end(pair.far) == "not a frame: kind 99 is not known"


def test_a_failing_on_frame_ends_the_stream_and_is_logged(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    def fail(frame: bytes) -> None:
        raise KeyError("what")

    pair.far_ear.then = fail
    pair.listen()
    with caplog.at_level(logging.ERROR):
        pair.near.write(framed(b"x"))
        assert pair.far_ear.end(pair.far) == "a frame could not be handled: KeyError: 'what'"
    assert "could not be handled" in caplog.text


def raw(listener: Listener) -> socket.socket:
    host, _, port = listener.endpoints[0].partition("/")[2].rpartition(":")
    return socket.create_connection((host, int(port)))


def test_reset_half_closed_and_cut_off_connections_end() -> None:
    accepted: SimpleQueue[Stream] = SimpleQueue()
    with Listener(["tcp/127.0.0.1:0"], accepted.put) as listener:

        def one() -> tuple[socket.socket, Stream, Ear]:
            sock = raw(listener)
            stream, ear = accepted.get(timeout=GUARD), Ear()
            ear.listen(stream)
            return sock, stream, ear

        sock, stream, ear = one()
        with sock:
            sock.sendall(framed(b"x"))
            ear.get()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert ear.end(stream) == "reset by the other end"

        sock, stream, ear = one()
        with sock:
            sock.sendall(framed(b"x"))
            sock.shutdown(socket.SHUT_WR)
            assert ear.end(stream) == "closed by the other end"
            assert sock.recv(10) == b""
        assert ear.get() == b"x"

        sock, stream, ear = one()
        with sock:
            sock.sendall(framed(b"long")[:-1])
        assert ear.end(stream) == "closed by the other end, in the middle of a frame"


CHILD = """
import struct, sys, threading
from headwater.federation.transport.connection import dial
stream = dial(sys.argv[1])
echo = lambda frame, link: stream.write(struct.pack("<I", len(frame)) + bytes(frame))
stream.start(lambda: echo, lambda reason: None)
threading.Event().wait()
"""


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_other_process_is_killed(kind: str, tmp_path: Path) -> None:
    accepted: SimpleQueue[Stream] = SimpleQueue()
    endpoint = "tcp/127.0.0.1:0" if kind == "tcp" else f"unix/{tmp_path}/s.sock"
    with (
        Listener([endpoint], accepted.put) as listener,
        Popen([sys.executable, "-c", CHILD, listener.endpoints[0]]) as child,
    ):
        try:
            stream, ear = accepted.get(timeout=GUARD), Ear()
            ear.listen(stream)
            if kind == "unix":
                assert stream.remote == f"{endpoint} (process {child.pid})"
            stream.write(framed(b"hello"))
            assert ear.get() == b"hello"
        finally:
            child.kill()
        assert "by the other end" in ear.end(stream)


# ── dialling and listening ──


def test_nobody_there(tmp_path: Path) -> None:
    with Listener(["tcp/127.0.0.1:0"], Stream.close) as listener:
        endpoint = listener.endpoints[0]
    with pytest.raises(Unreachable, match="nobody listens there"):
        dial(endpoint)
    with pytest.raises(Unreachable, match="no such socket"):
        dial(f"unix/{tmp_path}/none.sock")
    with pytest.raises(Unreachable, match="the host is not known"):
        dial("tcp/no-such-host.invalid:7447")
    with pytest.raises(ConfigError, match="a port from 1 to 65535"):
        dial("tcp/127.0.0.1:0")
    with pytest.raises(ConfigError, match="certificates for TLS"):
        dial("tls/127.0.0.1:7447")


def test_one_listener_at_several_endpoints(tmp_path: Path, certificates: dict[str, Issued]) -> None:
    server, client = contexts(certificates)
    accepted: SimpleQueue[Stream] = SimpleQueue()
    wanted = ["tcp/127.0.0.1:0", "tcp/[::1]:0", "tls/localhost:0", f"unix/{tmp_path}/s.sock"]
    with Listener(wanted, accepted.put, tls=server) as listener:
        assert [endpoint.partition("/")[0] for endpoint in listener.endpoints] == ["tcp", "tcp", "tls", "unix"]
        for endpoint in listener.endpoints:
            near = dial(endpoint, tls=client)
            far, ear = accepted.get(timeout=GUARD), Ear()
            assert near.kind == far.kind == endpoint.partition("/")[0]
            assert near.remote == endpoint
            ear.listen(far)
            near.write(framed(endpoint.encode()))
            assert ear.get() == endpoint.encode()
            near.close()
            ear.end(far)


def test_streams_outlive_their_listener() -> None:
    with connected("tcp/127.0.0.1:0") as pair:
        pass
    accepted: SimpleQueue[Stream] = SimpleQueue()
    listener = Listener(["tcp/127.0.0.1:0"], accepted.put)
    near = dial(listener.endpoints[0])
    pair = Pair(near, accepted.get(timeout=GUARD))
    listener.close()
    listener.close()
    pair.listen()
    near.write(framed(b"still"))
    assert pair.far_ear.get() == b"still"
    near.close()
    pair.near_ear.end(near)
    pair.far_ear.end(pair.far)


def test_addresses_that_cannot_be_listened_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Listener(["tcp/127.0.0.1:0", f"unix/{tmp_path}/s.sock"], Stream.close) as listener:
        bad = [*listener.endpoints, f"unix/{tmp_path}/file", f"unix/{tmp_path}/none/s.sock", "tls/127.0.0.1:0"]
        with pytest.raises(ConfigError) as caught:
            Listener(["tcp/127.0.0.1:0", *bad], Stream.close)
        assert [problem.found.partition("'")[2].partition("'")[0] for problem in caught.value.problems] == bad
        texts = [str(problem) for problem in caught.value.problems]
        for text, part in zip(
            texts,
            [
                "address already in use",
                "address already in use",
                "no socket",
                "folder does not exist",
                "no certificates",
            ],
            strict=True,
        ):
            assert part in text
        near = dial(listener.endpoints[1])  # the socket of the one that was there first is still good
        near.close()
    with pytest.raises(ConfigError, match="2 problems") as caught:
        Listener(["127.0.0.1", "udp/x:1", "tcp/127.0.0.1:0"], Stream.close)
    with pytest.raises(ConfigError, match=r"write \['tcp/127.0.0.1:0'\]"):
        Listener("tcp/127.0.0.1:0", Stream.close)


def test_the_file_of_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    assert path.exists()
    first = Listener([f"unix/{path}"], Stream.close)
    assert path.is_socket()
    first.close()
    assert not path.exists()
    # One that took the place of a lost file does not lose its own when the first ends.
    first = Listener([f"unix/{path}"], Stream.close)
    path.unlink()
    second = Listener([f"unix/{path}"], Stream.close)
    first.close()
    assert path.is_socket()
    second.close()
    assert not path.exists()


def test_an_accept_that_fails_closes_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(stream: Stream) -> None:
        raise ValueError("not today")

    with Listener(["tcp/127.0.0.1:0"], refuse) as listener, caplog.at_level(logging.ERROR):
        for _ in range(2):
            near, ear = dial(listener.endpoints[0]), Ear()
            ear.listen(near)
            assert "by the other end" in ear.end(near)
    assert "could not be taken" in caplog.text


# ── TLS ──


def test_each_end_sees_the_certificate_of_the_other(certificates: dict[str, Issued]) -> None:
    server, client = contexts(certificates)
    with connected("tls/127.0.0.1:0", server=server, client=client) as pair:
        assert pair.near.certificate == ssl.PEM_cert_to_DER_cert(_first(certificates["server"]))
        assert pair.far.certificate == ssl.PEM_cert_to_DER_cert(_first(certificates["client"]))
    server.verify_mode = ssl.CERT_NONE
    alone = context(ssl.PROTOCOL_TLS_CLIENT, None, certificates["server"])
    with connected("tls/127.0.0.1:0", server=server, client=alone) as pair:
        assert pair.far.certificate is None
    with connected("tcp/127.0.0.1:0") as pair:
        assert pair.near.certificate is None


def _first(issued: Issued) -> str:
    text = issued.certificate.read_text()
    end = "-----END CERTIFICATE-----"
    return text[: text.index(end) + len(end)]


def test_strangers_are_refused_and_the_others_are_not(certificates: dict[str, Issued]) -> None:
    server, client = contexts(certificates)
    accepted: SimpleQueue[Stream] = SimpleQueue()
    good, stranger = certificates["server"], certificates["stranger"]
    with Listener(["tls/127.0.0.1:0"], accepted.put, tls=server) as listener:
        with pytest.raises(SecurityError, match="certificate of the other end is not accepted"):
            dial(listener.endpoints[0], tls=context(ssl.PROTOCOL_TLS_CLIENT, stranger, stranger))
        for own in (None, stranger):
            # With TLS 1.3 who dials learns only from the first read that it was refused.
            near, ear = dial(listener.endpoints[0], tls=context(ssl.PROTOCOL_TLS_CLIENT, own, good)), Ear()
            ear.listen(near)
            assert ear.end(near).startswith(("TLS: ", "reset by", "closed by"))
        with raw(listener) as sock, suppress(ConnectionResetError):
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while sock.recv(1000):
                pass
        near = dial(listener.endpoints[0], tls=client)
        far = accepted.get(timeout=GUARD)
        assert accepted.empty()
        near.close()
        far.close()
    assert listener.refused == 4


def test_the_context_decides_whether_the_host_must_fit(certificates: dict[str, Issued]) -> None:
    server, client = contexts(certificates)
    client.check_hostname = True
    with connected("tls/127.0.0.1:0", server=server, client=client):
        pass
    with (
        Listener(["tls/127.0.0.2:0"], Stream.close, tls=server) as listener,
        pytest.raises(SecurityError, match=r"not accepted: IP address mismatch"),
    ):
        dial(listener.endpoints[0], tls=client)


def test_who_connects_and_says_nothing_keeps_nobody_out(certificates: dict[str, Issued]) -> None:
    server, client = contexts(certificates)
    accepted: SimpleQueue[Stream] = SimpleQueue()
    with Listener(["tls/127.0.0.1:0"], accepted.put, tls=server, strangers=MOST) as listener:
        silent = [raw(listener) for _ in range(MOST + 5)]
        near = dial(listener.endpoints[0], tls=client)
        far = accepted.get(timeout=GUARD)
        for sock in silent[:5]:  # those that waited longest had to go
            sock.settimeout(GUARD)
            assert sock.recv(1) == b""
        near.close()
        far.close()
    for sock in silent:
        assert sock.recv(1) == b""  # the end of the listener has ended the others
        sock.close()


def test_a_handshake_with_a_silent_listener_times_out(certificates: dict[str, Issued]) -> None:
    _, client = contexts(certificates)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(Unreachable, match=r"no answer within 0\.05 s"),
    ):
        dial(f"tls/127.0.0.1:{silent.getsockname()[1]}", tls=client, timeout=0.05)


@pytest.mark.parametrize("size", [0, GREETING_BYTES + 1, 16 << 20])
def test_who_is_called_cannot_say_more_than_a_greeting_either(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = dial(f"tcp/127.0.0.1:{server.getsockname()[1]}")
        other, _ = server.accept()
        with other:
            other.sendall(struct.pack("<I", size) + bytes(1000))
            with pytest.raises(FrameError, match="expected a greeting of 1 to"):
                stream.hear_within(GUARD)
            assert stream.bytes_in == 4
        stream.close()


def test_the_first_frame_is_heard_in_whatever_parts_and_nothing_of_the_next(pair: Pair) -> None:
    first, rest = framed(b"who is there"), framed(b"next") + framed(b"but one")
    for at in range(1, len(first)):
        assert pair.near.hear() is None
        pair.far.write(first[at - 1 : at])
    pair.far.write(first[-1:] + rest)
    assert pair.near.hear_within(GUARD) == b"who is there"
    pair.listen()
    assert pair.near_ear.get() == b"next" and pair.near_ear.get() == b"but one"


def test_who_is_silent_is_not_waited_for(pair: Pair) -> None:
    with pytest.raises(LinkDown, match="did not say who it is in time"):
        pair.near.hear_within(0.01)
    pair.far.close()
    with pytest.raises(LinkDown, match="closed by the other end"):
        pair.near.hear_within(GUARD)


# ── endpoints ──

HOSTS = st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z0-9]{1,9}){0,3}", fullmatch=True) | st.ip_addresses().map(str)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["tcp", "tls"]), HOSTS, st.integers(0, 65535))
def test_endpoints_are_read_as_they_are_written(kind: str, host: str, port: int) -> None:
    endpoint = Endpoint(kind, host, port)
    assert parse_endpoint(str(endpoint)) == endpoint


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"(tcp|tls|unix)/.{0,20}", fullmatch=True))
def test_any_other_text_is_refused_with_the_forms(text: str) -> None:
    try:
        assert parse_endpoint(str(parse_endpoint(text))) == parse_endpoint(text)
    except ConfigError as error:
        assert error.problems[0].place == "endpoint"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "an endpoint such as '127.0.0.1:7447'"),
        ("tcp:127.0.0.1:7447", "write tcp/127.0.0.1:7447"),
        ("udp/127.0.0.1:7447", "tcp/host:port, tls/host:port or unix//path"),
        ("tcp/127.0.0.1", "name the host and the port"),
        ("tcp/:7447", "name the host"),
        ("tcp/host:65536", "a port from 0 to 65535"),
        ("tcp/host:+1", "a port from 0 to 65535"),
        ("tcp/::1:7447", "tcp/[::1]:7447"),
        ("tcp/[::g]:7447", "an IPv6 address in [ ]"),
        ("tls/a b:7447", "a host's name or address"),
        ("unix/relative.sock", "the absolute path"),
        ("unix//folder/", "the absolute path"),
        ("unix//" + "x" * 107, "at most 107 bytes"),
        (7.5, "found 7.5"),
        ("tcp/127.0.0.1:7447#iface=lo", "nothing may follow"),
    ],
)
def test_messages_say_what_is_wrong(text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_endpoint(text)
    assert part in str(caught.value)


def test_a_link_that_holds_little_is_full_soon_and_all_of_it_arrives() -> None:
    taken = []
    frames = [framed(bytes((n % 256,)) * 1000) for n in range(20_000)]
    for little in (False, True):
        with connected("tcp/127.0.0.1:0") as pair:
            if little:
                hold_little(pair.near._sock)
                assert pair.near._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES
            sent = 0
            while pair.near.write(frames[sent]):  # nobody reads yet
                sent += 1
            taken.append(pair.near.bytes_out)
            pair.listen()
            assert pair.near.drain(GUARD)
            for frame in frames[: sent + 1]:
                assert pair.far_ear.get() == frame[4:]
    assert taken[1] < taken[0]
