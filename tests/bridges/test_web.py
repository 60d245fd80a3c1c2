"""Web clients at a node: WebSocket, server-sent events and POST, for real, and what hostile ones may do."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headwater import Event, Node, u32
from headwater.bridges.web import WebBridge, WebLimits
from headwater.bridges.web.serving import Serving, send_until_gone
from headwater.bridges.web.session import Feed
from headwater.errors import ConfigError
from headwater.security import Rule, Security
from headwater.services.policy.identity import NOBODY
from headwater.testing import Recorder, eventually

GUARD = 240.0


class Door(Event):
    floor: u32
    name: str


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), GUARD))


async def soon(condition: Callable[[], bool]) -> None:
    """As `eventually`, while the loop goes on."""
    await asyncio.get_running_loop().run_in_executor(None, eventually, condition)


@asynccontextmanager
async def bridge(node: Node, **options: Any) -> AsyncIterator[WebBridge]:
    made = node.services.add(WebBridge(node, "127.0.0.1:0", **options))
    try:
        yield made
    finally:
        await asyncio.get_running_loop().run_in_executor(None, made.stop)


class Client:
    """A WebSocket that says hello."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.events, self.dropped = socket, list[tuple[int, int, Any]](), 0

    async def say(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))

    async def hear(self, op: str) -> dict[str, Any]:
        """The next message of a kind; events before it are noted."""
        while True:
            found = await self.socket.receive()
            assert found.type == aiohttp.WSMsgType.TEXT, (found.type, found.data, found.extra)
            said: dict[str, Any] = json.loads(found.data)
            self.note(said)
            if said["op"] == op:
                return said

    def note(self, said: dict[str, Any]) -> None:
        if said["op"] == "events":
            self.events += [(said["id"], said["first"] + at, each) for at, each in enumerate(said["events"])]
        if said["op"] == "dropped":
            self.dropped += said["count"]

    async def until(self, count: int) -> list[Any]:
        while len(self.events) < count:
            await self.hear("events")
        return [event for _, _, event in self.events]


@asynccontextmanager
async def client(made: WebBridge, **hello: Any) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{made.endpoint}/ws") as socket:
        found = Client(socket)
        await found.say(op="hello", **hello)
        yield found, await found.hear("welcome")


def test_filters_run_at_the_source_and_events_come_numbered() -> None:
    async def test() -> None:
        with Node("lab") as node:
            doors = node.channel("doors", Door)
            async with bridge(node) as made, client(made) as (one, _), client(made) as (two, _):
                await one.say(op="subscribe", id=1, channel="doors", where="floor = :f", params={"f": 3})
                await two.say(op="subscribe", id=9, channel="doors")
                assert (await one.hear("subscribed"))["type"] == "floor: u32, name: text"
                await two.hear("subscribed")
                source = doors.source()
                for floor in (1, 3, 2, 3):
                    source.publish(Door(floor, f"d{floor}"))
                assert await one.until(2) == [{"floor": 3, "name": "d3"}] * 2
                assert [number for _, number, _ in one.events] == [1, 2]
                assert [each["floor"] for each in await two.until(4)] == [1, 3, 2, 3]
                await one.say(op="change", id=1, params={"f": 2})
                await one.hear("changed")
                source.publish(Door(2, "x"))
                assert (await one.until(3))[-1] == {"floor": 2, "name": "x"}
                await one.say(op="cancel", id=1)
                await one.say(op="publish", id=5, channel="doors", event={"floor": 7, "name": "y"})
                assert (await one.hear("published"))["id"] == 5
                assert (await two.until(6))[-1] == {"floor": 7, "name": "y"}
                assert len(one.events) == 3

    run(test)


def test_after_a_break_nothing_is_missing_and_nothing_comes_twice() -> None:
    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made:
                async with aiohttp.ClientSession() as web:
                    socket = await web.ws_connect(f"{made.endpoint}/ws")
                    one = Client(socket)
                    await one.say(op="hello")
                    key = (await one.hear("welcome"))["session"]
                    await one.say(op="subscribe", id=1, channel="doors")
                    await one.hear("subscribed")
                    for number in range(5):
                        source.publish(Door(number, ""))
                    await one.until(5)
                    assert socket._response.connection is not None
                    socket._response.connection.transport.abort()  # type: ignore[union-attr]
                await soon(lambda: made.report()["away"] == 1)
                for number in range(5, 8):
                    source.publish(Door(number, ""))
                async with client(made, session=key, after={"1": 3}) as (two, welcome):
                    assert welcome["resumed"]
                    assert [each["floor"] for each in await two.until(5)] == [3, 4, 5, 6, 7]
                    assert [number for _, number, _ in two.events] == [4, 5, 6, 7, 8]
                await soon(lambda: made.report()["clients"] + made.report()["away"] == 0)
                async with client(made, session=key) as (_, welcome):
                    assert not welcome["resumed"], "who says goodbye is gone"
                async with client(made, session="x" * 64) as (_, welcome):
                    assert not welcome["resumed"]

    run(test)


def test_a_client_that_comes_by_a_second_connection_has_left_the_first() -> None:
    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made, client(made) as (one, welcome):
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                async with client(made, session=welcome["session"]) as (two, again):
                    assert again["resumed"]
                    source.publish(Door(1, "x"))
                    assert await two.until(1) == [{"floor": 1, "name": "x"}]
                    await one.socket.close()
                    source.publish(Door(2, "x"))
                    assert len(await two.until(2)) == 2
                    assert made.report()["clients"] == 1 and not one.events

    run(test)


def test_who_does_not_read_loses_the_oldest_and_is_told() -> None:
    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made, client(made) as (one, _):
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                for number in range(60_000):  # many times what is kept, and more than sockets hold
                    source.publish(Door(number, "x" * 200))
                last = Door(60_000, "last")
                source.publish(last)
                while not one.events or one.events[-1][2]["name"] != "last":
                    await one.hear("events")
                assert one.dropped + len(one.events) == 60_001
                numbers = [number for _, number, _ in one.events]
                assert numbers == sorted(set(numbers))
                assert node.report().services["web"]["dropped"] == one.dropped

    run(test)


def test_post_and_follow_as_curl_does() -> None:
    async def test() -> None:
        with Node("lab") as node:
            doors = node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                follow = await web.get("/channels/doors/events", params={"where": "floor > :least", "param.least": "1"})
                assert follow.headers["Content-Type"] == "text/event-stream"
                json_lines = {"Content-Type": "application/x-ndjson"}
                body = "\n".join(json.dumps({"floor": floor, "name": "a\nb"}) for floor in (1, 2, 3))
                async with web.post("/channels/doors", data=body, headers=json_lines) as answer:
                    assert (answer.status, await answer.json()) == (200, {"published": 3})
                ids = []
                for floor in (2, 3):
                    id = (await follow.content.readline()).decode().strip()
                    assert id.startswith("id: ")
                    ids.append(id.removeprefix("id: "))
                    data = (await follow.content.readline()).decode()
                    assert json.loads(data.removeprefix("data: ")) == {"floor": floor, "name": "a\nb"}
                    assert await follow.content.readline() == b"\n"
                follow.close()
                await soon(lambda: made.report()["away"] == 1)
                doors.source("other").publish(Door(4, ""))
                async with web.get("/channels/doors/events", headers={"Last-Event-ID": ids[0]}) as again:
                    lines = [await again.content.readline() for _ in range(6)]
                    assert [json.loads(line[6:])["floor"] for line in lines if line.startswith(b"data")] == [3, 4]
                await soon(lambda: made.report()["away"] == 1)
                other = {"params": {"where": "floor = 9"}, "headers": {"Last-Event-ID": ids[0]}}
                async with web.get("/channels/doors/events", **other) as anew:  # another question is another answer
                    for floor in (4, 9):
                        doors.source().publish(Door(floor, ""))
                    lines = [await anew.content.readline() for _ in range(5)]
                    assert lines[:2] == [b"event: dropped\n", b"data: null\n"]
                    assert json.loads(lines[4][6:])["floor"] == 9 and made.report()["resumed"] == 1
                async with web.get("/channels") as answer:
                    [shown] = (await answer.json())["channels"]
                    assert shown == {"name": "doors", "type": "floor: u32, name: text"}
                for path, status in (
                    ("/nowhere", 404),
                    ("/channels/doors", 405),
                    ("/channels/doors/events?whre=x", 400),
                ):
                    async with web.get(path) as answer:  # a filter that is misspelt is not none
                        assert answer.status == status
                body = '{"floor": 1, "name": "x"}\n{"floor": 2}'
                async with web.post("/channels/doors", data=body, headers=json_lines) as answer:
                    assert answer.status == 400 and "event 2 of 2: " in await answer.text()

    run(test)


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ({"Content-Type": "application/json"}, b'{"floor": -1, "name": "x"}', 400, "floor"),
        ({"Content-Type": "application/json"}, b'{"floor": 1}', 400, "name"),
        ({"Content-Type": "application/json"}, b"\xff\xfe", 400, "JSON"),
        ({"Content-Type": "application/json"}, b"[" * 60_000, 400, "JSON"),
        ({"Content-Type": "application/x-ndjson"}, b'{"floor": 1, "name": "x"}\n{"floor": 1}', 400, "name"),
        ({"Content-Type": "text/plain"}, b'{"floor": 1, "name": "x"}', 400, "Content-Type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"floor=1", 400, "Content-Type"),
        ({"Content-Type": "application/json"}, b"x" * 1_048_577, 413, "at most 1,048,576 bytes"),
        ({"Content-Type": "application/json", "Origin": "https://evil.example"}, b"{}", 403, "this site"),
        ({"Content-Type": "application/json", "Host": "evil.example"}, b"{}", 403, "Host"),
    ],
)
def test_posts_that_are_refused(headers: dict[str, str], body: bytes, status: int, said: str) -> None:
    async def test() -> None:
        with Node("lab") as node:
            doors = node.channel("doors", Door)
            came: list[Any] = []
            doors.subscribe(came.append)
            post = {"data": io.BytesIO(body), "headers": headers}
            async with (
                bridge(node) as made,
                aiohttp.ClientSession(made.endpoint) as web,
                web.post("/channels/doors", **post) as answer,
            ):
                assert answer.status == status
                assert said in await answer.text()
            assert not came

    run(test)


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/nowhere", 404, "/nowhere: expected one of the addresses that GET / tells of, found another"),
        ("GET", "/channels/doors", 405, "/channels/doors: expected POST, found GET; GET / says what is here"),
        ("DELETE", "/channels", 405, "/channels: expected GET or HEAD, found DELETE; GET / says what is here"),
        ("GET", "/ws", 400, "expected the headers of a WebSocket, found others"),
    ],
)
def test_addresses_that_are_none_are_told_what_there_is(method: str, path: str, status: int, said: str) -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with (
                bridge(node) as made,
                aiohttp.ClientSession(made.endpoint) as web,
                web.request(method, path) as answer,
            ):
                assert answer.status == status
                assert (await answer.json())["error"] == said

    run(test)


def test_a_channel_that_is_not_shown_is_as_one_that_is_not_there() -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            node.channel("secrets", Door)
            async with bridge(node, channels=["doors", "attic"]) as made, aiohttp.ClientSession(made.endpoint) as web:
                said = set()
                for name in ("secrets", "nowhere", "attic"):
                    async with web.get(f"/channels/{name}/events") as answer:
                        assert answer.status == 403
                        said.add((await answer.json())["error"].replace(name, "NAME"))
                assert said == {
                    "channel 'NAME': expected one that a client without a login may use so, found none; GET /channels "
                    "lists those that there are"
                }

    run(test)


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        ("{", 1008, "expected a message"),
        ('{"op": "explode"}', 1008, "explode"),
        ('{"op": "subscribe", "id": -1, "channel": "doors"}', 1008, "id"),
        ('{"op": "subscribe", "id": 1, "channel": "doors", "extra": 1}', 1008, "extra"),
        ("x" * 70_000, 1009, ""),
        (b"\x00\x01", 1008, "a record"),
    ],
)
def test_messages_that_end_a_connection(message: str | bytes, code: int, said: str) -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, client(made) as (one, _):
                send = one.socket.send_bytes if isinstance(message, bytes) else one.socket.send_str
                await send(message)  # type: ignore[arg-type]
                found = await one.socket.receive()
                assert (
                    found.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED) and one.socket.close_code == code
                )
                assert said in str(found.extra)

    run(test)


def test_what_cannot_be_asked_for_is_refused_and_the_rest_goes_on() -> None:
    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            node.channel("secret.plans", Door)
            async with bridge(node, channels=["doors"]) as made, client(made) as (one, _):
                for asked, said in (
                    ({"channel": "nowhere"}, "found none"),
                    ({"channel": "secret.plans"}, "found none"),
                    ({"channel": "doors", "where": "flor = 1"}, "did you mean"),
                    ({"channel": "doors", "where": "floor = :x"}, "x"),
                    ({"channel": "doors", "where": "__import__('os')"}, "__import__"),
                ):
                    await one.say(op="subscribe", id=1, **asked)
                    assert said in (await one.hear("refused"))["why"], asked
                await one.say(op="publish", id=2, channel="secret.plans", event={"floor": 1, "name": ""})
                assert "found none" in (await one.hear("refused"))["why"]
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                await one.say(op="subscribe", id=1, channel="doors")
                assert "in use" in (await one.hear("refused"))["why"]
                source.publish(Door(1, "a"))
                assert await one.until(1) == [{"floor": 1, "name": "a"}]

    run(test)


def test_too_many_messages_and_too_many_connections() -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            limits = WebLimits(rate=1.0, burst=5, connections=3)
            async with bridge(node, limits=limits) as made:
                async with client(made) as (one, _):
                    with suppress(aiohttp.ClientError, ConnectionError):  # it is parted with before the last of them
                        for _ in range(100):  # however slow the machine is, that is more than one in a second
                            await one.say(op="cancel", id=1)
                    while not one.socket.closed:
                        await one.socket.receive()
                    assert one.socket.close_code == 1008
                await soon(lambda: made.report()["clients"] == 0)
                host, port = made.endpoint.removeprefix("http://").split(":")
                idle = [socket.create_connection((host, int(port))) for _ in range(6)]
                await soon(lambda: made.report()["refused"] >= 4)
                for each in idle:
                    each.close()
                async with aiohttp.ClientSession(made.endpoint) as web:

                    async def served() -> bool:
                        try:
                            async with web.get("/") as answer:
                                return answer.status == 200
                        except aiohttp.ClientError:
                            return False

                    while not await served():
                        pass

    run(test)


def test_who_says_nothing_is_parted_with() -> None:
    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node, limits=WebLimits(hello=0.2)) as made:
                host, port = made.endpoint.removeprefix("http://").split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")  # and never more
                assert await reader.read() == b""
                writer.close()
                found = None
                while found is None:
                    with suppress(aiohttp.ClientError):  # who is too slow to ask for a WebSocket is parted with as well
                        async with aiohttp.ClientSession() as web, web.ws_connect(f"{made.endpoint}/ws") as quiet:
                            found = await quiet.receive()
                assert found.type == aiohttp.WSMsgType.CLOSE and "hello" in str(found.extra)

    run(test)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


USERS = {"ann": "correct horse", "bob": "battery staple"}


def guarded(name: str) -> Security:
    rules = [
        Rule("doors", "user:ann", ("subscribe",)),
        Rule("doors", "user:bob", ("advertise",)),
        Rule("**", "user:lab"),
    ]
    users = {**USERS, "lab": "node node node"}
    return Security(user="lab", password="node node node", users=users, rules=rules)


def test_the_same_users_and_rules_as_between_nodes() -> None:
    async def test() -> None:
        with Node("lab", listen="tcp/127.0.0.1:0", security=guarded("lab")) as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                ann = basic("ann", USERS["ann"])
                bob = basic("bob", USERS["bob"])
                event = {"floor": 1, "name": "x"}
                for auth, status in (
                    ({}, 401),
                    (basic("ann", "guess guess"), 401),
                    (ann, 403),
                    (bob, 200),
                ):
                    async with web.post("/channels/doors", json=event, headers=auth) as answer:
                        assert answer.status == status, await answer.text()
                async with web.get("/channels/doors/events", headers=bob) as answer:
                    assert answer.status == 403
                async with client(made, user="ann", password=USERS["ann"]) as (one, welcome):
                    assert welcome["user"] == "ann"
                    await one.say(op="subscribe", id=1, channel="doors")
                    await one.hear("subscribed")
                    source.publish(Door(2, "y"))
                    assert await one.until(1) == [{"floor": 2, "name": "y"}]
                    # What ann has lost, bob cannot take up.
                    async with client(made, user="bob", password=USERS["bob"], session=welcome["session"]) as (
                        _,
                        other,
                    ):
                        assert not other["resumed"]
                async with aiohttp.ClientSession() as more, more.ws_connect(f"{made.endpoint}/ws") as nobody:
                    await nobody.send_str('{"op": "hello", "user": "ann", "password": "guess"}')
                    found = await nobody.receive()
                    assert found.type == aiohttp.WSMsgType.CLOSE and nobody.close_code == 1008

    run(test)


def test_what_json_has_no_number_for() -> None:
    """It is text; as it is, it is no JSON, and the error names the field: over HTTP and over a WebSocket."""
    bare, said = '{"celsius": NaN, "room": "lab"}', "JSON has no NaN"

    async def test() -> None:
        with Node("lab") as node:
            heard = node.channel("warmth", "celsius: f64, room: text").subscribe()
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                for body in (bare, bare.replace("NaN", '"NaN"')):
                    async with web.post(
                        "/channels/warmth", data=body, headers={"Content-Type": "application/json"}
                    ) as answer:
                        told = await answer.json()
                        if body is bare:
                            assert answer.status == 400 and told["error"].startswith("celsius: ") and said in str(told)
                        else:
                            assert (answer.status, told) == (200, {"published": 1})
                async with client(made) as (one, _):
                    await one.say(op="publish", id=4, channel="warmth", event={"celsius": "NaN", "room": "lab"})
                    assert (await one.hear("published"))["id"] == 4
                    await one.socket.send_str(f'{{"op":"publish","id":3,"channel":"warmth","event":{bare}}}')
                    closed = await one.socket.receive()  # as after whatever is no JSON
                    assert closed.type == aiohttp.WSMsgType.CLOSE and one.socket.close_code == 1008
                    assert closed.extra.startswith("event.celsius: ") and said in closed.extra
            assert [math.isnan(heard.get(0).celsius) for _ in range(2)] == [True, True]

    run(test)


def test_guessing_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.bridges.web.gate.WHILE_SECONDS", 1000.0)  # each guess may take its time here

    async def test() -> None:
        with Node("lab", listen="tcp/127.0.0.1:0", security=guarded("lab")) as node:
            node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                found = []
                for number in range(7):
                    async with web.get("/channels", headers=basic("ann", f"guess {number}")) as answer:
                        found.append(answer.status)
                assert found == [401] * 5 + [429] * 2

    run(test)


def test_who_guesses_locks_out_nobody_who_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others share its address. Who has logged in from there has tries of its own; who has not yet waits."""
    monkeypatch.setattr("headwater.bridges.web.gate.WHILE_SECONDS", 1000.0)

    async def test() -> None:
        with Node("lab", listen="tcp/127.0.0.1:0", security=guarded("lab")) as node:
            node.channel("doors", Door)
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:

                async def tried(user: str, *passwords: str) -> list[int]:
                    found = []
                    for each in passwords:
                        async with web.get("/channels", headers=basic(user, each)) as answer:
                            found.append(answer.status)
                            assert answer.status != 429 or int(answer.headers["Retry-After"]) > 0
                    return found

                assert await tried("ann", USERS["ann"]) == [200]
                assert await tried("bob", *"123456") == [401] * 5 + [429]
                assert await tried("nobody", "guess") == [429]
                assert await tried("ann", "mistyped", *[USERS["ann"]] * 5) == [401] + [200] * 5
                async with client(made, user="ann", password=USERS["ann"]) as (_, welcome):
                    assert welcome["user"] == "ann"
                assert await tried("bob", USERS["bob"]) == [429]
                assert await tried("ann", *"1234", USERS["ann"]) == [401] * 4 + [429]

    run(test)


def test_clients_of_a_proxy_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the proxy says of them, and by nothing that they say themselves."""
    monkeypatch.setattr("headwater.bridges.web.gate.WHILE_SECONDS", 1000.0)

    async def statuses(proxies: list[str], *who: tuple[str, str]) -> list[int]:
        found = []
        with Node("lab", listen="tcp/127.0.0.1:0", security=guarded("lab")) as node:
            async with bridge(node, proxies=proxies) as made, aiohttp.ClientSession(made.endpoint) as web:
                for forwarded, password in who:
                    said = basic("ann", password) | {"X-Forwarded-For": forwarded}
                    async with web.get("/channels", headers=said) as answer:
                        found.append(answer.status)
        return found

    async def test() -> None:
        guesses = [("192.0.2.1", "guess")] * 6
        ann = USERS["ann"]
        for proxies in (["127.0.0.1"], ["198.51.100.0/24", "127.0.0.0/8"]):
            more = ("192.0.2.2", ann), ("192.0.2.2, 192.0.2.1", ann), ("192.0.2.2, nonsense", ann), ("", ann)
            assert await statuses(proxies, *guesses, *more) == [401] * 5 + [429, 200, 429, 200, 200]
        chain = [("192.0.2.1, 198.51.100.7", "guess")] * 5
        assert await statuses(proxies, *chain, ("192.0.2.1", ann), ("192.0.2.2,198.51.100.7", ann)) == [
            *[401] * 5,
            429,
            200,
        ]
        assert await statuses([], *guesses, ("192.0.2.2", ann)) == [401] * 5 + [429] * 2
        with Node("lab") as node:
            heard = node.channel("doors", Door).subscribe()
            async with bridge(node, proxies=["127.0.0.1"]) as made, client(made) as (one, _):
                await one.say(op="publish", id=1, channel="doors", event={"floor": 1, "name": "x"})
                await one.hear("published")
                said = {"X-Forwarded-For": "[2001:db8::1]"}
                web = aiohttp.ClientSession(made.endpoint, headers=said)
                async with web, web.post("/channels/doors", json={"floor": 2, "name": "y"}) as answer:
                    assert answer.status == 200
            assert [heard.get(0).floor for _ in range(2)] == [1, 2]

    run(test)


def test_bridges_that_cannot_be(tmp_path: Path) -> None:
    with Node("lab") as node:
        node.channel("plans", Door)
        node.channel("raw", bytes)
        for listen, options, said in (
            ("8080", {}, "HOST:PORT"),
            ("0.0.0.0:0", {}, "TLS beyond this machine"),
            ("127.0.0.1:0", {"anonymous": False}, "a way to log in"),
            ("127.0.0.1:0", {"certificate": "x"}, "together"),
            ("127.0.0.1:0", {"certificate": "x", "key": "y"}, "PEM files"),
            ("127.0.0.1:0", {"proxies": ["proxy.example"]}, "addresses or networks"),
            ("127.0.0.1:0", {"sources": ["nowhere"]}, "channels that there are"),
            ("127.0.0.1:0", {"sources": ["plans"], "channels": ["doors"]}, "channels that it shows"),
            ("127.0.0.1:0", {"sources": ["raw"]}, "channels with a type"),
        ):
            with pytest.raises(ConfigError, match=said):
                WebBridge(node, listen, **options)  # type: ignore[arg-type]
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="may listen"):
            node.services.add(WebBridge(node, f"127.0.0.1:{taken.getsockname()[1]}"))


def test_a_policy_decides_of_web_clients_and_changes_what_they_get() -> None:
    from headwater.policy import ChannelPolicy, Clause

    def shows(**clause: Any) -> ChannelPolicy:
        return ChannelPolicy(name="doors", channel="doors", type=Door, clauses=[Clause(**clause)])

    async def test() -> None:
        users: dict[str, Any] = {"node": "n", "ann": {"password": "a", "groups": ["kind:phone"]}}
        security = Security(user="node", password="n", users=users, rules=[Rule("**", "*")])
        with Node("house", listen="127.0.0.1:0", security=security) as node:
            source = node.channel("doors", Door).source()
            node.policies.set(shows(who="kind:phone", show="name = :user"))
            async with bridge(node) as made, client(made, user="ann", password="a") as (ann, _):
                await ann.say(op="subscribe", id=1, channel="doors", where="floor > 0")
                await ann.hear("subscribed")
                for floor, name in ((0, "ann"), (1, "bob"), (2, "ann")):
                    source.publish(floor=floor, name=name)
                await ann.until(1)
                assert [event[2]["floor"] for event in ann.events] == [2]
                await asyncio.to_thread(node.policies.set, shows(show="true"))
                source.publish(floor=3, name="bob")
                await ann.until(2)
                await asyncio.to_thread(node.policies.set, shows(who="bob", show="true"))
                source.publish(floor=4, name="ann")
                told = await ann.hear("ended")
                assert 'no clause about user "ann"' in told["why"]
                assert [event[2]["floor"] for event in ann.events] == [2, 3]

    run(test)


def test_the_first_event_of_a_client_is_heard_elsewhere_too() -> None:
    """Another node has asked for it, since the source was there before."""

    async def test() -> None:
        with Node("house", listen="127.0.0.1:0") as house, Node("attic", connect=house.endpoints[0]) as attic:
            house.channel("doors", Door)
            async with bridge(house, sources=["doors"]) as made, aiohttp.ClientSession(made.endpoint) as web:
                heard: Recorder[Door] = Recorder()
                attic.channel("doors", Door).subscribe(heard)
                assert await asyncio.to_thread(attic.until, lambda: bool(attic.remote_sources("doors")), GUARD)
                assert await asyncio.to_thread(attic.ready, GUARD)
                async with web.post("/channels/doors", json={"floor": 1, "name": "x"}) as answer:
                    assert answer.status == 200
                await asyncio.to_thread(heard.wait, 1)
                assert heard.events == [Door(1, "x")]

    run(test)


def test_what_comes_just_when_a_client_has_changed_connections_is_for_the_new_one() -> None:
    """The old one has been told, and has not had its turn in the loop yet."""

    async def test() -> None:
        anything: Any = None
        serving = Serving(anything, anything, WebLimits(), 30.0, "work")
        serving.open()
        session = serving.begin(NOBODY)
        feed = session.feeds[1] = Feed()
        went: list[tuple[str, bytes]] = []

        def to(name: str) -> asyncio.Task[None]:
            async def send(id: int, feed: Any, portion: Any) -> None:
                went.extend((name, event) for event in portion.events)
                if len(went) == 2:
                    serving.ending.set()
                    session.wake()

            async def idle() -> None:
                pass

            return asyncio.create_task(send_until_gone(serving, session, session.turn, send, idle))

        old = to("old")
        feed.put(b"1")
        while not went:
            await asyncio.sleep(0)
        assert await serving.resume(session.key, NOBODY, {"1": 1}) is session
        feed.put(b"2")
        await asyncio.gather(old, to("new"))
        assert went == [("old", b"1"), ("new", b"2")]
        serving.close()

    run(test)
