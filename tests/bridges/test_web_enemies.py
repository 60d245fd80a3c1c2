"""Web clients that mean no good, or have bad luck: none of them costs others their service, or the node its memory."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from headwater import Event, Node, Queue, u32
from headwater.bridges.web import WebBridge, WebLimits
from headwater.bridges.web import session as sessions
from headwater.bridges.web.doorway import Doorway
from headwater.bridges.web.gate import network_of
from headwater.bridges.web.session import Feed, Room, Sessions
from headwater.federation.security.certificates import issue, make_authority
from headwater.policy import ChannelPolicy, Clause
from headwater.security import Issuer, Rule, Security
from headwater.services.policy.identity import NOBODY
from tests.bridges.test_web import USERS, Client, basic, bridge, client, guarded, run, soon
from tests.federation.test_tokens import KEY, written
from tests.federation.test_tokens import jwk as public


class Door(Event):
    floor: u32
    name: str


async def raw(endpoint: str, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which somebody has begun to speak."""
    host, port = endpoint.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    return reader, writer


def test_a_body_that_never_comes_is_not_waited_for() -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node, limits=WebLimits(read=0.1)) as made:
                head = b"POST /channels/doors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                reader, writer = await raw(made.endpoint, head + b"Content-Length: 100\r\n\r\n{")
                assert b" 408 " in await reader.readline()
                writer.close()
                assert made.report()["refused"] == 1

    run(test)


def test_bad_utf_8_and_endless_messages_end_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    """As frames of their own making, which no library sends: masked, as those of clients are."""

    def frame(first: int, payload: bytes) -> bytes:
        return bytes([first, 0x80 | 126]) + len(payload).to_bytes(2, "big") + bytes(4) + payload

    hello = frame(0x81, b'{"op": "hello"}')

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made:
                for bad, code in (
                    (frame(0x81, b'{"op": "hello\xff"}'), 1007),
                    (frame(0x01, b"x" * 60_000) + frame(0x00, b"x" * 60_000), 1009),
                    (frame(0x83, b"x"), 1002),
                    (hello + frame(0x81, b'{"op": "publish\xff"}'), 1007),
                    (hello + frame(0x83, b"x"), 1002),
                ):
                    ask = b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
                    reader, writer = await raw(made.endpoint, ask + key)
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(bad)
                    head = await reader.readexactly(4)
                    if head[0] == 0x81:  # the welcome, of less than 64 KiB
                        await reader.readexactly(int.from_bytes(head[2:], "big"))
                        head = await reader.readexactly(4)
                    assert (head[0], int.from_bytes(head[2:], "big")) == (0x88, code)
                    writer.close()

    run(test)
    assert not caplog.records


def test_a_flood_of_pings_is_a_flood() -> None:
    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node, limits=WebLimits(rate=1.0, burst=20)) as made, client(made) as (one, _):
                await one.socket.ping(b"x")  # one is answered
                for _ in range(40):
                    if one.socket.closed:
                        break
                    await one.socket.ping(b"x")
                while not one.socket.closed:
                    await one.socket.receive()
                assert one.socket.close_code == 1008
                assert made.report()["refused"] == 1

    run(test)


def test_posts_are_counted_by_their_number_and_size_for_who_sends_them() -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            limits = WebLimits(rate=0.001, burst=20)
            async with bridge(node, limits=limits) as made, aiohttp.ClientSession(made.endpoint) as web:
                event, status = {"floor": 1, "name": "x"}, []
                for _ in range(4):
                    async with web.post("/channels/doors", json=event) as answer:
                        status.append(answer.status)
                large = b'{"floor": 1, "name": "' + b"x" * 20_000 + b'"}'
                for _ in range(2):
                    post = {"data": large, "headers": {"Content-Type": "application/json"}}
                    async with web.post("/channels/doors", **post) as answer:
                        status.append(answer.status)
                        later = answer.headers.get("Retry-After")
                assert status == [200] * 5 + [429] and int(later or 0) > 0
                async with web.get("/channels/doors/events") as answer:
                    assert answer.status == 429

    run(test)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_images_and_forms_of_other_sites_reach_nothing(site: str) -> None:
    """Such requests say no Origin; browsers say where they come from all the same."""

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                headers = {"Sec-Fetch-Site": site}
                for path, status in (("/channels/doors/events", 403), ("/channels", 403), ("/headwater.js", 200)):
                    async with web.get(path, headers=headers) as answer:
                        assert answer.status == status
                        assert answer.headers["X-Content-Type-Options"] == "nosniff"
                async with web.get("/channels", headers={"Sec-Fetch-Site": "same-origin"}) as answer:
                    assert answer.status == 200
                assert made.report()["subscriptions"] == 0

    run(test)


def test_a_session_goes_on_only_as_what_it_was() -> None:
    """Whoever shows the session of a WebSocket to server-sent events, or that of another channel, begins anew."""

    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            node.channel("gates", Door)
            async with (
                bridge(node) as made,
                aiohttp.ClientSession(made.endpoint) as web,
                client(made) as (one, welcome),
            ):
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                for number in ("0", "7", "x", "9" * 30):
                    headers = {"Last-Event-ID": f"{welcome['session']}:{number}"}
                    async with web.get("/channels/doors/events", headers=headers) as answer:
                        assert answer.status == 200
                async with web.get("/channels/doors/events") as follow:
                    source.publish(Door(1, "a"))
                    id = (await follow.content.readline()).decode().strip().removeprefix("id: ")
                async with web.get("/channels/gates/events", headers={"Last-Event-ID": id}) as other:
                    node.channel("gates").source().publish(Door(2, "b"))
                    line = [await other.content.readline() for _ in range(5)][4]
                    assert json.loads(line.removeprefix(b"data: ")) == {"floor": 2, "name": "b"}
                assert await one.until(1) == [{"floor": 1, "name": "a"}]
                assert made.report()["resumed"] == 0

    run(test)


def test_who_leaves_while_it_subscribes_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node, keep=0.0) as made:
                loop, inside, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
                opens = made._feeds.open

                def slowly(*arguments: Any) -> Any:
                    loop.call_soon_threadsafe(inside.set)
                    asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
                    return opens(*arguments)

                monkeypatch.setattr(made._feeds, "open", slowly)
                async with aiohttp.ClientSession() as web:
                    one = Client(await web.ws_connect(f"{made.endpoint}/ws"))
                    await one.say(op="hello")
                    await one.hear("welcome")
                    await one.say(op="subscribe", id=1, channel="doors")
                    await inside.wait()
                await soon(lambda: made.report()["clients"] == 0)
                go_on.set()
                await soon(lambda: not node.subscriptions and made.report()["away"] == 0)

    run(test)


def test_what_waits_is_bounded_for_a_client_and_for_all() -> None:
    """However many subscriptions a client has; and where all have too much, who has most loses first."""
    above = Room(10_000)
    greedy, modest = Room(8_000, above), Room(8_000, above)
    many, one = [Feed(room=greedy) for _ in range(50)], Feed(room=modest)
    for number in range(4):
        one.put(b"x" * 1000)
        for feed in many:
            feed.put(bytes([number]) * 100)
    assert greedy._used <= 8_000
    for _ in range(100):
        for feed in many:
            feed.put(b"x" * 100)
    assert greedy._used <= 5_000 + 50 * 100 and one.dropped == 0
    one.acknowledge(0)
    assert len(one.take().events) == 4  # type: ignore[union-attr]
    for feed in (*many, one):
        feed.close()
        assert not feed.put(b"late")
    assert (greedy._used, modest._used, above._used) == (0, 0, 0)


def test_sessions_that_were_left_make_room_for_who_comes() -> None:
    made = Sessions(30.0, most=4)
    eve = [made.begin(NOBODY, "eve") for _ in range(2)]
    ann, bob = made.begin(NOBODY, "ann"), made.begin(NOBODY, "bob")
    assert made.is_full and made.begin(NOBODY) is None and made.dispensable() is None
    for at, each in enumerate((ann, *eve)):
        assert each is not None and made.leave(each, 0, float(at))
    assert made.dispensable() is eve[0]  # ann has been away for longer, and has left but one
    made.end(eve[0])  # type: ignore[arg-type]
    assert made.dispensable() is ann and bob is not None
    assert made.begin(NOBODY) is not None


def test_of_version_6_a_network_is_one_place() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") != network_of("2001:db8:0:1::1")
    assert network_of("192.0.2.1") == "192.0.2.1" and network_of("") == ""


def test_a_token_that_has_expired_shows_nothing_more_and_another_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the other one says of its user counts from then on."""
    passed = 0.0
    monkeypatch.setattr(sessions, "time", lambda: time.time() + passed)
    keys = written(tmp_path / "keys.json", public(KEY, kid="one"))
    issuer = Issuer(issuer="https://login.example", audience="building", keys=keys)
    security = Security(user="lab", password="l", users={"lab": "l"}, rules=[Rule("**", "*")])
    staff = ChannelPolicy(name="doors", channel="doors", type=Door, clauses=[Clause(who="group:staff", show="true")])

    def token(hours: int, *groups: str) -> str:
        ends = time.time() + hours * 3600
        given = {"iss": issuer.issuer, "aud": "building", "sub": "ann", "exp": ends, "groups": groups}
        return jwt.encode(given, KEY, "EdDSA", headers={"kid": "one"})

    async def test() -> None:
        nonlocal passed
        with Node("lab", listen="127.0.0.1:0", security=security) as node:
            source = node.channel("doors", Door).source()
            node.policies.set(staff)
            async with bridge(node, issuers=[issuer]) as made:
                async with client(made, token=token(1, "staff")) as (one, welcome):
                    await one.say(op="subscribe", id=1, channel="doors")
                    await one.hear("subscribed")
                    source.publish(Door(1, "a"))
                    await one.until(1)
                    passed = 7200.0
                    source.publish(Door(2, "b"))
                    while not one.socket.closed:
                        await one.socket.receive()
                    assert one.socket.close_code == 3000 and len(one.events) == 1
                again = {"session": welcome["session"], "after": {"1": 1}}
                async with aiohttp.ClientSession() as web:
                    two = Client(await web.ws_connect(f"{made.endpoint}/ws"))
                    await two.say(op="hello", token=token(10, "staff"), **again)
                    assert (await two.hear("welcome"))["resumed"]
                    assert [event["floor"] for event in await two.until(1)] == [2]
                await soon(lambda: made.report()["away"] == 1)
                source.publish(Door(3, "c"))
                async with client(made, token=token(10), **again) as (three, known):
                    assert known["resumed"]
                    assert "no clause about" in (await three.hear("ended"))["why"]
                    assert not three.events

    run(test)


FOLLOW = b"GET /channels/doors/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def masked(text: bytes) -> bytes:
    """A message of a WebSocket, as clients send it."""
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text


@pytest.mark.parametrize(
    "asked",
    [FOLLOW, SOCKET + masked(b'{"op":"hello"}') + masked(b'{"op":"subscribe","id":1,"channel":"doors"}')],
    ids=["follower", "socket"],
)
def test_the_connection_of_who_does_not_read_is_ended(asked: bytes) -> None:
    """And not only what is sent by it: what is said in parting would wait for the same reader."""

    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node, limits=WebLimits(write=0.2)) as made:
                _, writer = await raw(made.endpoint, asked)
                await soon(lambda: made.report()["subscriptions"] == 1)
                while made.report()["clients"]:
                    for number in range(200):  # more than sockets hold, in the end
                        source.publish(Door(number, "x" * 5000))
                    await asyncio.sleep(0.01)
                await soon(lambda: not made._doorway._places)
                writer.transport.abort()

    run(test)


def test_tokens_that_have_expired_lock_out_nobody(tmp_path: Path) -> None:
    """Nobody guesses a signature: a client that shows an old token again and again keeps none of its address out."""
    issuer = Issuer(
        issuer="https://login", audience="lab", keys=written(tmp_path / "keys.json", public(KEY, kid="one"))
    )
    security = Security(user="lab", password="l", users={"lab": "l"}, rules=[Rule("**", "*")])

    def bearer(hours: int) -> dict[str, str]:
        given = {"iss": issuer.issuer, "aud": "lab", "sub": "ann", "exp": time.time() + hours * 3600}
        return {"Authorization": f"Bearer {jwt.encode(given, KEY, 'EdDSA', headers={'kid': 'one'})}"}

    async def test() -> None:
        with Node("lab", listen="127.0.0.1:0", security=security) as node:
            async with bridge(node, issuers=[issuer]) as made, aiohttp.ClientSession(made.endpoint) as web:
                found = []
                password = {"Authorization": f"Basic {base64.b64encode(b'lab:l').decode()}"}
                for login in (*[bearer(-1)] * 7, bearer(1), password):
                    async with web.get("/channels", headers=login) as answer:
                        found.append(answer.status)
                assert found == [401] * 7 + [200, 200]

    run(test)


@pytest.mark.parametrize("said", [b"Basic \xc3\xa9", b"Basic \xff", b"Bearer \xff\xfe", b"Bearer \xc3\xa9"])
def test_a_login_that_is_no_ascii_shows_nobody(said: bytes, tmp_path: Path) -> None:
    issuer = Issuer(
        issuer="https://login", audience="lab", keys=written(tmp_path / "keys.json", public(KEY, kid="one"))
    )

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node, issuers=[issuer]) as made:
                ask = b"GET /channels HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + said + b"\r\n\r\n"
                reader, writer = await raw(made.endpoint, ask)
                assert b" 401 " in await reader.readline()
                writer.close()

    run(test)


def test_a_parameter_that_is_nested_too_deep_is_refused() -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession() as session:
                query = {"where": "floor = :f", "param.f": "[" * 2500}
                async with session.get(f"{made.endpoint}/channels/doors/events", params=query) as answer:
                    assert answer.status == 400

    run(test)


def test_an_event_that_says_something_twice_is_refused_by_a_socket_too() -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, client(made) as (one, _):
                said = '{"op": "publish", "id": 1, "channel": "doors", "event": {"floor": 1, "floor": 2, "name": "x"}}'
                await one.socket.send_str(said)
                assert "twice" in (await one.hear("refused"))["why"]

    run(test)


def test_who_says_nothing_where_tls_is_spoken_is_parted_with(tmp_path: Path) -> None:
    """A connection is one of those that are counted when its TLS is there; until then it may not stay for long."""
    make_authority(tmp_path)
    issue(tmp_path, "lab")

    async def test() -> None:
        files = {"certificate": str(tmp_path / "lab.pem"), "key": str(tmp_path / "lab.key")}
        with Node("lab") as node:
            async with bridge(node, limits=WebLimits(hello=0.2), **files) as made:
                reader, writer = await raw(made.endpoint.replace("https", "http"), b"")
                async with asyncio.timeout(20):  # a minute is what Python gives it
                    with suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()

    run(test)


def test_of_several_events_that_find_a_queue_full_it_is_said_how_many_were_published() -> None:
    async def test() -> None:
        with Node("lab") as node:
            gate, seen = threading.Event(), list[int]()

            def slow(event: Any) -> None:
                gate.wait(60.0)
                seen.append(event.floor)

            node.channel("doors", Door).subscribe(slow, dispatch="pool", queue=Queue(limit=2, policy="fail"))
            async with bridge(node) as made, aiohttp.ClientSession() as web:
                lines = [json.dumps({"floor": floor, "name": "x"}) for floor in range(10)]
                kind, published = {"Content-Type": "application/x-ndjson"}, 0
                while published < 10:  # the rest, again and again
                    body = "\n".join(lines[published:])
                    async with web.post(f"{made.endpoint}/channels/doors", data=body, headers=kind) as answer:
                        said = await answer.json()
                        assert answer.status == (200 if published + said["published"] == 10 else 503)
                        assert answer.status == 200 or "were published" in said["error"] or not said["published"]
                        published += said["published"]
                        gate.set()
                await soon(lambda: len(seen) == 10)
                assert seen == list(range(10)) and made.report()["published"] == 10

    run(test)


def test_requests_that_are_none_fill_no_log_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may send them, as fast as they like; and none of them leads to two opinions about where it ends."""
    host, kind = b"Host: localhost\r\n", b"Content-Type: application/json\r\n"
    post = b"POST /channels/doors HTTP/1.1\r\n" + host + kind
    event = b'{"floor": 1, "name": "x"}'
    both = b"Content-Length: 25\r\nTransfer-Encoding: chunked\r\n\r\n"
    bad = [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        post + both + event,
        post + b"Content-Length: 25\r\nContent-Length: 3\r\n\r\n" + event,
        post + b"Content-Length: +25\r\n\r\n" + event,
        post + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        SOCKET.replace(b"websocket", b"web\xffsocket"),
        SOCKET.replace(b"Key: AA", b"Key: \xff"),
        b"GET / HTTP/1.1\r\n" + host + b"".join(b"X%d: y\r\n" % each for each in range(5000)) + b"\r\n",
    ]

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made:
                for text in bad:
                    reader, writer = await raw(made.endpoint, text)
                    assert b" 400 " in await reader.readline(), text
                    writer.close()
                assert made.report()["published"] == 0
                assert (
                    made.report()["bad"] >= len(bad) - 3
                )  # what is no HTTP, or no WebSocket, at all is of no concern to anybody

    run(test)
    assert not caplog.records


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "nonsense"])
def test_bodies_that_are_compressed_are_refused(encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    """And not unpacked first: a few of their bytes may be as many as one likes."""

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
                body = gzip.compress(b" " * 5_000_000 + b'{"floor": 1, "name": "x"}')
                async with web.post("/channels/doors", data=body, headers=headers) as answer:
                    assert answer.status == 415 and "Content-Encoding" in (await answer.json())["error"]

    run(test)
    assert not caplog.records


def test_compressed_frames_end_a_connection() -> None:
    """It was asked for, and not agreed to."""

    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node) as made:
                ask = SOCKET.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
                reader, writer = await raw(made.endpoint, ask)
                assert b"permessage" not in await reader.readuntil(b"\r\n\r\n")
                writer.write(bytes([0xC1, 0x81]) + bytes(4) + b"x")
                assert await reader.readexactly(4) == b"\x88\x02" + (1002).to_bytes(2, "big")
                writer.close()

    run(test)


@pytest.mark.parametrize("path", ["/channels/doors/events", "/ws"])
def test_who_asks_for_the_head_only_of_what_never_ends_is_refused(path: str) -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                async with web.head(path) as answer:
                    assert answer.status == 405
                assert made.report()["connected"] == 0

    run(test)


def test_a_request_that_names_no_host_is_not_meant_for_us() -> None:
    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node) as made:
                reader, writer = await raw(made.endpoint, b"GET /channels HTTP/1.0\r\n\r\n")
                assert b" 403 " in await reader.readline()
                writer.close()

    run(test)


class Place(asyncio.Transport):
    """A connection from somewhere: a test has but one address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_one_address_does_not_take_all_connections() -> None:
    """Where there are no more, who has most of them gives one for who has fewer; the oldest stay."""
    doorway = Doorway(10, 5.0, 30.0)
    greedy = [Place("192.0.2.1") for _ in range(10)]
    assert all(map(doorway.let_in, greedy))
    doorway.heard(greedy[0])
    others = [Place(f"198.51.100.{number}") for number in range(3)]
    for each in others:
        assert doorway.let_in(each)
    assert [each.aborted for each in greedy] == [False] * 7 + [True] * 3
    assert not doorway.let_in(Place("192.0.2.1"))
    assert doorway.refused == 4 and not any(each.aborted for each in others)
    for each in greedy[7:]:
        doorway.left(each)  # as their protocols say when they are gone
    doorway.left(others[0])
    assert doorway.let_in(Place("192.0.2.1"))
    even = Doorway(2, 5.0, 30.0)
    assert even.let_in(Place("192.0.2.1")) and even.let_in(Place("192.0.2.2")) and not even.let_in(Place("192.0.2.3"))


def test_subscriptions_of_all_are_bounded_and_nobody_takes_them_all() -> None:
    """Each is some memory of the node, and some work for each event."""

    async def test() -> None:
        with Node("lab", listen="127.0.0.1:0", security=guarded("lab")) as node:
            node.channel("doors", Door)
            limits = WebLimits(all_subscriptions=6)
            async with (
                bridge(node, limits=limits) as made,
                client(made, user="ann", password=USERS["ann"]) as (ann, _),
                client(made, user="ann", password=USERS["ann"]) as (more, _),
                client(made, user="lab", password="node node node") as (lab, _),
            ):
                for id in range(6):
                    await ann.say(op="subscribe", id=id, channel="doors")
                    await ann.hear("subscribed")
                await more.say(op="subscribe", id=9, channel="doors")
                assert "subscriptions of all clients" in (await more.hear("refused"))["why"]
                for id in range(3):  # a half of them is its share
                    await lab.say(op="subscribe", id=id, channel="doors")
                    await lab.hear("subscribed")
                await lab.say(op="subscribe", id=9, channel="doors")
                await lab.hear("refused")
                await ann.say(op="cancel", id=0)
                async with aiohttp.ClientSession(made.endpoint) as web:
                    headers = basic("ann", USERS["ann"])
                    async with web.get("/channels/doors/events", headers=headers) as answer:
                        assert answer.status == 503 and answer.headers["Retry-After"]

    run(test)


def test_what_is_to_be_said_of_the_interest_of_a_client_is_told_to_it(recwarn: pytest.WarningsRecorder) -> None:
    """And not in warnings of the node, which has not asked for it: they would be as many as clients like."""

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, client(made) as (one, _):
                await one.say(op="subscribe", id=1, channel="doors", history=5)
                [remark] = (await one.hear("subscribed"))["remarks"]
                assert "keeps none of doors" in remark
                await one.say(op="change", id=1, where="floor < 1 and floor > 2")
                [remark] = (await one.hear("changed"))["remarks"]
                assert "interest" in remark

    run(test)
    assert not recwarn.list


def test_who_asks_and_asks_and_reads_nothing_is_parted_with() -> None:
    """By whatever requests, also those that need no login."""

    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node, limits=WebLimits(write=0.2)) as made:
                ask = b"GET /headwater.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
                _, writer = await raw(made.endpoint, ask * 5000)  # whose answers are more than sockets hold
                await soon(lambda: bool(made._doorway._places))
                await soon(lambda: not made._doorway._places)
                assert made.report()["refused"] == 1
                writer.transport.abort()

    run(test)


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("127.0.0.1", 200), ("192.0.2.1:8080", 200), ("[2001:db8::1]:80", 200), ("localhost", 200)],
)
def test_where_nothing_is_proven_no_name_of_a_page_leads_here(host: str, status: int) -> None:
    """A page may have its name lead to any address; with TLS the certificate would not fit."""

    async def test() -> None:
        with Node("lab", listen="127.0.0.1:0", security=Security(open=True)) as node:
            made = node.services.add(WebBridge(node, "0.0.0.0:0", anonymous=True))
            port = made.endpoint.rpartition(":")[2]
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as web:
                for path in ("/channels", "/"):
                    async with web.get(path, headers={"Host": host, "Origin": f"http://{host}"}) as answer:
                        assert answer.status == status

    run(test)
