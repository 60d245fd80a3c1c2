"""Mosquitto, with the Eclipse project's own client for Python: QoS 0 over TCP, no limit to what is queued, no delay.

Each client has a thread of its own that reads; events are handled and sent back in it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from headwater_studies.fleet.receiving import JOIN
from headwater_studies.fleet.server import Served, program
from headwater_studies.fleet.worker import PATIENCE, Trips, messages, record, serve

CONFIG = """
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
log_dest none
"""


def _server(port: int, folder: Path) -> Sequence[str]:
    config = folder / "mosquitto.conf"
    config.write_text(CONFIG.format(port=port), encoding="ascii")
    folder.chmod(0o755)  # started by root, it becomes another user
    return [program("mosquitto") or "mosquitto", "-c", str(config)]


class Mqtt(Served):
    """Two clients of one server; the near one sends many events over a connection of its own, from its own thread."""

    def open(self, peer: Any = None) -> dict[str, Any]:
        near = peer is None
        port = self.serve(_server) if near else int(peer)
        self._client = self._connected(port, ["pong"] if near else ["ping", "data"])
        self._client.on_message = self._ponged if near else self._came
        if near:
            self._out = self._connected(port, [])
        return {"peer": port}

    def _connected(self, port: int, topics: list[str]) -> Any:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        client: Any = Client(CallbackAPIVersion.VERSION2)
        there, known = threading.Event(), threading.Semaphore(0)
        client.on_socket_open = lambda _c, _u, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.on_connect = lambda *_: there.set()
        client.on_subscribe = lambda *_: known.release()
        client.connect("127.0.0.1", port, keepalive=0)
        client.loop_start()
        if not there.wait(JOIN):
            raise TimeoutError("Mosquitto's client is not connected")
        for topic in topics:
            client.subscribe(topic, qos=0)
        if not all(known.acquire(timeout=JOIN) for _ in topics):
            raise TimeoutError("Mosquitto's client has not subscribed")
        if not topics:
            client.loop_stop()  # without a thread of the client, `publish` writes to the socket itself
        return client

    def join(self, peer: Any) -> None:
        """The server knows of the subscriptions by now."""

    def _came(self, client: Any, user: Any, message: Any) -> None:
        if message.topic == "ping":
            client.publish("pong", message.payload)
        else:
            self.take(message.payload)

    def _ponged(self, client: Any, user: Any, message: Any) -> None:
        if self._trips.back():
            client.publish("ping", message.payload)

    def trips(self, n: int) -> dict[str, Any]:
        self._trips = Trips(n)
        self._client.publish("ping", record(0))
        return self._trips.result()

    def send(self, n: int, how: str, packed: int) -> dict[str, Any]:
        publish, made = self._out.publish, messages(how, n, packed)
        start = perf_counter()
        for data in made:
            publish("data", data)
        end = start + PATIENCE / 2
        while self._out.want_write():
            if self._out.loop_write() or perf_counter() > end:
                raise TimeoutError("Mosquitto's server does not take what is sent")
        return {"start": start}

    def wait(self) -> dict[str, Any]:
        return self.meter.result()


if __name__ == "__main__":
    serve(Mqtt())
