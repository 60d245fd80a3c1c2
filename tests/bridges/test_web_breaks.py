"""Web clients whose connections break, whose node is killed, or who come twice; and events as records."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest

from headwater import Event, Node, u32
from headwater.bridges.web import WebLimits
from headwater.policy import ChannelPolicy, Clause
from headwater.security import Rule, Security
from headwater.testing import Recorder
from tests.bridges.test_web import Client, bridge, client, run, soon
from tests.bridges.test_web_enemies import FOLLOW, SOCKET, masked, raw
from tests.federation.nursery import Popen
from tests.ports import free_port


class Door(Event):
    floor: u32
    name: str


async def told(content: Any) -> dict[str, str]:
    """The next server-sent event, by its fields; comments are left out."""
    found: dict[str, str] = {}
    while (line := (await content.readline()).decode().rstrip("\n")) or not found:
        name, _, value = line.partition(": ")
        if name:
            found[name] = value
    return found


@pytest.mark.parametrize(("code", "kept"), [(1000, 0), (1001, 1), (1011, 1), (3000, 1), (4999, 1), (None, 1)])
def test_only_a_goodbye_ends_a_session(code: int | None, kept: int) -> None:
    """That is a close with 1000. With any other code, or without one, its client may come back."""

    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made, client(made) as (one, welcome):
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                if code is None:
                    await one.socket._writer.send_frame(b"", aiohttp.WSMsgType.CLOSE)
                    await one.socket.receive()
                else:
                    await one.socket.close(code=code)
                await soon(lambda: made.report()["clients"] == 0)
                assert made.report()["away"] == kept
                source.publish(Door(1, "a"))
                async with client(made, session=welcome["session"], after={"1": 0}) as (two, back):
                    assert back["resumed"] == bool(kept)
                    if kept:
                        assert await two.until(1) == [{"floor": 1, "name": "a"}]

    run(test)


def test_a_follower_gets_what_was_on_its_way_when_the_connection_broke() -> None:
    """What has left the node has not come yet."""

    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made, aiohttp.ClientSession(made.endpoint) as web:
                reader, writer = await raw(made.endpoint, FOLLOW)
                await soon(lambda: made.report()["subscriptions"] == 1)
                for number in range(1, 11):  # each goes alone, and nobody reads
                    source.publish(Door(number, ""))
                    await soon(lambda number=number: made.report()["sent"] == number)  # type: ignore[misc]
                await reader.readuntil(b"id: ")
                first = (await reader.readline()).decode().strip()
                writer.transport.abort()
                await soon(lambda: made.report()["away"] == 1)
                async with web.get("/channels/doors/events", headers={"Last-Event-ID": first}) as again:
                    found = [await told(again.content) for _ in range(9)]
                assert [json.loads(each["data"])["floor"] for each in found] == list(range(2, 11))

    run(test)


def test_a_follower_that_begins_anew_is_told() -> None:
    """Its session is not known any more: nobody can say how much it has missed."""

    async def test() -> None:
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with (
                bridge(node) as made,
                aiohttp.ClientSession(made.endpoint) as web,
                web.get("/channels/doors/events", headers={"Last-Event-ID": "gone:7"}) as follow,
            ):
                source.publish(Door(1, ""))
                assert await told(follow.content) == {"event": "dropped", "data": "null"}
                assert json.loads((await told(follow.content))["data"])["floor"] == 1

    run(test)


def shows(**clause: Any) -> ChannelPolicy:
    return ChannelPolicy(name="doors", channel="doors", type=Door, clauses=[Clause(**clause)])


def test_a_follower_that_may_have_nothing_any_more_does_not_ask_for_ever() -> None:
    """Browsers come back to what has ended, again and again, until the answer is an error."""

    async def test() -> None:
        security = Security(user="node", password="n", users={"node": "n"}, rules=[Rule("**", "*")])
        with Node("house", listen="127.0.0.1:0", security=security) as node:
            source = node.channel("doors", Door).source()
            node.policies.set(shows(show="true"))
            async with bridge(node, anonymous=True) as made, aiohttp.ClientSession(made.endpoint) as web:
                async with web.get("/channels/doors/events") as follow:
                    source.publish(Door(1, ""))
                    id = (await told(follow.content))["id"]
                    await asyncio.to_thread(node.policies.set, shows(who="bob", show="true"))
                    assert (await told(follow.content))["event"] == "ended"
                    assert await follow.content.read() == b""
                async with web.get("/channels/doors/events", headers={"Last-Event-ID": id}) as again:
                    assert again.status == 403 and "no clause about" in await again.text()
                assert made.report()["subscriptions"] == 0

    run(test)


def test_a_policy_that_changes_while_a_client_changes_its_interest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        security = Security(user="node", password="n", users={"node": "n"}, rules=[Rule("**", "*")])
        with Node("house", listen="127.0.0.1:0", security=security) as node:
            source = node.channel("doors", Door).source()
            node.policies.set(shows(show="true"))
            async with bridge(node, anonymous=True) as made, client(made) as (one, _):
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                judged: Callable[..., Any] = made._feeds._interest

                def meanwhile(*arguments: Any) -> Any:
                    found = judged(*arguments)
                    monkeypatch.setattr(made._feeds, "_interest", judged)
                    node.policies.set(shows(show="floor < 5"))  # what was found does not count any more
                    return found

                monkeypatch.setattr(made._feeds, "_interest", meanwhile)
                await one.say(op="change", id=1, where="floor > 1")
                await one.hear("changed")
                for floor in (1, 9, 3):
                    source.publish(Door(floor, ""))
                assert [event["floor"] for event in await one.until(1)] == [3]

    run(test)


def test_who_has_come_by_another_connection_is_told_on_the_first_and_not_heard_there() -> None:
    async def test() -> None:
        with Node("lab") as node:
            seen: Recorder[Door] = Recorder()
            node.channel("doors", Door).subscribe(seen)
            async with bridge(node) as made, client(made) as (one, welcome):
                async with client(made, session=welcome["session"]) as (two, _):
                    found = await one.socket.receive()
                    assert (found.type, one.socket.close_code) == (aiohttp.WSMsgType.CLOSE, 4001)
                    await two.say(op="publish", id=1, channel="doors", event={"floor": 1, "name": ""})
                    await two.hear("published")
                assert len(seen.events) == 1

    run(test)


def test_a_subscription_asked_for_on_two_connections_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has not been answered when the client comes back, and asks again."""

    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made:
                loop, inside, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
                opens = made._feeds.open

                def slowly(*arguments: Any) -> Any:
                    monkeypatch.setattr(made._feeds, "open", opens)
                    loop.call_soon_threadsafe(inside.set)
                    asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
                    return opens(*arguments)

                monkeypatch.setattr(made._feeds, "open", slowly)
                async with client(made) as (one, welcome):
                    await one.say(op="subscribe", id=1, channel="doors")
                    await inside.wait()
                    async with client(made, session=welcome["session"]) as (two, _):
                        await two.say(op="subscribe", id=1, channel="doors")
                        await two.hear("subscribed")
                        go_on.set()
                        await soon(lambda: len(node.subscriptions) == 1 and made.report()["subscriptions"] == 1)
                await soon(lambda: not node.subscriptions)

    run(test)


def test_who_is_logged_out_publishes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it takes nothing of what is sent to it, and so cannot be told."""

    async def test() -> None:
        with Node("lab") as node:
            doors = node.channel("doors", Door)
            seen: Recorder[Door] = Recorder()
            doors.subscribe(seen, "floor = 77")
            async with bridge(node) as made:
                asked = b'{"op":"hello"}', b'{"op":"subscribe","id":1,"channel":"doors"}'
                _, writer = await raw(made.endpoint, SOCKET + b"".join(map(masked, asked)))
                await soon(lambda: made.report()["subscriptions"] == 1)
                [session] = made._serving.sessions
                source = doors.source()
                while not session.feeds[1].dropped:  # more than sockets hold: it is being waited for
                    source.publish(Door(1, "x" * 5000))
                session.until = 0.0
                asked = tuple(
                    json.dumps({"op": "publish", "id": at, "channel": "doors", "event": {"floor": 77, "name": ""}})
                    for at in range(2)
                )
                publishes = b"".join(masked(each.encode()) for each in asked)
                bad = made.report()["bad"]
                writer.write(publishes + masked(b"{"))  # which is complained of when those were heard
                await soon(lambda: made.report()["bad"] > bad or not made.report()["clients"])
                assert not seen.events
                writer.transport.abort()

    run(test)


PROGRAM = """
import sys
from headwater import Event, Node, u32
from headwater.bridges.web import WebBridge

class Door(Event):
    floor: u32
    name: str

node = Node("lab")
node.channel("doors", Door)
print(node.services.add(WebBridge(node, "127.0.0.1:" + sys.argv[1])).endpoint, flush=True)
sys.stdin.read()
"""


@contextmanager
def process(port: int) -> Iterator[tuple[Any, str]]:
    """A node with a bridge, in a process that can be killed."""
    made = Popen([sys.executable, "-c", PROGRAM, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert made.stdout is not None
        yield made, made.stdout.readline().decode().strip()
    finally:
        made.kill()
        made.communicate()


def test_who_comes_back_to_a_node_that_was_killed_begins_anew_and_is_told() -> None:
    async def test() -> None:
        port = free_port()
        event = {"floor": 1, "name": ""}
        async with aiohttp.ClientSession() as web:
            with process(port) as (lives, endpoint):
                one = Client(await web.ws_connect(f"{endpoint}/ws"))
                await one.say(op="hello")
                key = (await one.hear("welcome"))["session"]
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                follow = await web.get(f"{endpoint}/channels/doors/events")
                await one.say(op="publish", id=2, channel="doors", event=event)
                await one.hear("published")
                await one.until(1)
                last = (await told(follow.content))["id"]
                lives.send_signal(signal.SIGKILL)
                assert (await one.socket.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
                follow.close()
            with process(port) as (_, endpoint):
                two = Client(await web.ws_connect(f"{endpoint}/ws"))
                await two.say(op="hello", session=key, after={"1": 1})
                welcome = await two.hear("welcome")
                assert (welcome["resumed"], welcome["subscriptions"]) == (False, [])
                again = await web.get(f"{endpoint}/channels/doors/events", headers={"Last-Event-ID": last})
                assert await told(again.content) == {"event": "dropped", "data": "null"}
                again.close()
                await two.socket.close()

    run(test)


def test_in_a_storm_of_breaks_every_event_comes_once_and_in_order() -> None:
    """Connections break at any moment, some before what was sent has come; what a client says of numbers that it has
    not had, or of more than there are, costs nobody anything."""

    async def test() -> None:
        chance, rounds, each = random.Random(7), 12, 40
        with Node("lab") as node:
            source = node.channel("doors", Door).source()
            async with bridge(node) as made, aiohttp.ClientSession() as web:
                key, had = "", list[int]()
                for number in range(rounds):
                    socket = await web.ws_connect(f"{made.endpoint}/ws")
                    one = Client(socket)
                    await one.say(op="hello", session=key, after={"1": len(had), "9": 2**53, "x": 0})
                    welcome = await one.hear("welcome")
                    assert welcome["resumed"] == bool(key)
                    key = welcome["session"]
                    if not number:
                        await one.say(op="subscribe", id=1, channel="doors")
                        await one.hear("subscribed")
                    for floor in range(each):
                        source.publish(Door(number * each + floor, "x" * chance.randrange(2000)))
                    wanted = rounds * each if number == rounds - 1 else len(had) + chance.randrange(each)
                    while len(had) + len(one.events) < wanted:
                        await one.hear("events")
                    numbers = [at for _, at, _ in one.events]
                    assert numbers == list(range(len(had) + 1, len(had) + 1 + len(numbers)))
                    had += [event["floor"] for _, _, event in one.events]
                    await one.say(op="ack", upto={"1": chance.choice([len(had), max(0, len(had) - 5)]), "8": 2**53})
                    assert one.dropped == 0 and socket._response.connection is not None
                    socket._response.connection.transport.abort()  # type: ignore[union-attr]
                assert had == list(range(rounds * each))

    run(test)


def test_events_as_records_come_and_go() -> None:
    async def test() -> None:
        with Node("lab") as node:
            doors, plain = node.channel("doors", Door), node.channel("plain", bytes)
            async with bridge(node) as made, client(made) as (one, _):
                heard: dict[int, list[tuple[int, bytes]]] = {}

                async def records(id: int, count: int) -> list[tuple[int, bytes]]:
                    while len(heard.setdefault(id, [])) < count:
                        found = await one.socket.receive()
                        if found.type == aiohttp.WSMsgType.BINARY:
                            data = found.data
                            whose, first, at = (
                                int.from_bytes(data[:4], "little"),
                                int.from_bytes(data[8:16], "little"),
                                16,
                            )
                            while at < len(data):
                                size = int.from_bytes(data[at : at + 4], "little")
                                heard.setdefault(whose, []).append((first, data[at + 4 : at + 4 + size]))
                                at, first = at + 4 + size, first + 1
                    return heard[id]

                for id, name in ((1, "doors"), (2, "plain")):
                    await one.say(op="subscribe", id=id, channel=name, binary=True)
                    await one.hear("subscribed")
                await one.socket.send_bytes(record(5, "doors", doors.type.encode(Door(3, "é"))))  # type: ignore[union-attr]
                [(number, data)] = await records(1, 1)
                assert number == 1 and doors.type is not None and doors.type.decode(data) == Door(3, "é")
                await one.socket.send_bytes(record(6, "plain", b"\x00anything\xff"))
                plain.source().publish(b"")
                assert sorted(data for _, data in await records(2, 2)) == [b"", b"\x00anything\xff"]
                for name, data, said in (
                    ("doors", b"", "record"),
                    ("doors", b"\xff" * 40, ""),
                    ("nowhere", b"x", "found none"),
                ):
                    await one.socket.send_bytes(record(7, name, data))
                    refused = await one.hear("refused")
                    assert refused["id"] == 7 and said in refused["why"]
                assert made.report()["published"] == 2

    run(test)


def record(id: int, channel: str, data: bytes) -> bytes:
    """An event as a record, as clients send it."""
    name = channel.encode()
    return id.to_bytes(4, "little") + len(name).to_bytes(4, "little") + name + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x00\x00",
        record(1, "doors", b"")[:-1],
        b"\x01\0\0\0\xff\xff\xff\xff",
        record(2**31, "doors", b""),
        record(1, "", b"x"),
        b"\x01\0\0\0\x01\0\0\0\xff",
        record(1, "x" * 256, b""),
    ],
)
def test_records_that_are_cut_off_or_lie_end_a_connection(data: bytes) -> None:
    async def test() -> None:
        with Node("lab") as node:
            node.channel("doors", Door)
            async with bridge(node) as made, client(made) as (one, _):
                await one.socket.send_bytes(data)
                assert (await one.socket.receive()).type == aiohttp.WSMsgType.CLOSE
                assert one.socket.close_code == 1008 and made.report()["published"] == 0

    run(test)


def test_a_socket_that_has_nothing_to_say_says_that_it_is_there() -> None:
    """Pages hear nothing of pings, and could not tell a quiet channel from a network that is gone."""

    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node, limits=WebLimits(ping=0.05)) as made, client(made) as (one, welcome):
                assert welcome["alive"] == 0.05
                await one.hear("alive")
                await one.hear("alive")

    run(test)


def test_who_is_there_when_a_bridge_ends_is_told_so() -> None:
    """And not waited for until it is cut off."""

    async def test() -> None:
        with Node("lab") as node:
            async with bridge(node) as made, client(made) as (one, _):
                stopping = asyncio.create_task(asyncio.to_thread(made.stop))
                assert (await one.socket.receive()).type == aiohttp.WSMsgType.CLOSE
                assert one.socket.close_code == aiohttp.WSCloseCode.GOING_AWAY
                await stopping

    run(test)


def test_a_policy_changes_for_all_whoever_has_left() -> None:
    """Something of who has left may still be in memory; it kept a policy from being set, and from whom it concerns."""

    async def test() -> None:
        security = Security(user="node", password="n", users={"node": "n"}, rules=[Rule("**", "*")])
        with Node("house", listen="127.0.0.1:0", security=security) as node:
            source = node.channel("doors", Door).source()
            node.policies.set(shows(show="true"))
            async with bridge(node, anonymous=True) as made, client(made) as (one, _):
                await one.say(op="subscribe", id=1, channel="doors")
                await one.hear("subscribed")
                [session] = made._serving.sessions
                left = session.feeds[1]
                await one.say(op="cancel", id=1)
                await one.say(op="subscribe", id=2, channel="doors")
                await one.hear("subscribed")
                await asyncio.to_thread(node.policies.set, shows(show="floor < 5"))
                for floor in (9, 3):
                    source.publish(Door(floor, ""))
                assert [event["floor"] for event in await one.until(1)] == [3] and not left.number

    run(test)


def test_a_subscription_that_is_cancelled_while_a_policy_changes_keeps_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        security = Security(user="node", password="n", users={"node": "n"}, rules=[Rule("**", "*")])
        with Node("house", listen="127.0.0.1:0", security=security) as node:
            source = node.channel("doors", Door).source()
            node.policies.set(shows(show="true"))
            async with bridge(node, anonymous=True) as made, client(made) as (one, _):
                for id in (1, 2):
                    await one.say(op="subscribe", id=id, channel="doors")
                    await one.hear("subscribed")
                [session] = made._serving.sessions
                judged: Callable[..., Any] = made._feeds._interest

                def meanwhile(*arguments: Any) -> Any:
                    monkeypatch.setattr(made._feeds, "_interest", judged)
                    made._feeds.cancel(session.feeds[1])  # of the first that is judged
                    return judged(*arguments)

                monkeypatch.setattr(made._feeds, "_interest", meanwhile)
                await asyncio.to_thread(node.policies.set, shows(show="floor < 5"))
                for floor in (9, 3):
                    source.publish(Door(floor, ""))
                await one.until(1)
                assert [(id, event["floor"]) for id, _, event in one.events] == [(2, 3)]

    run(test)
