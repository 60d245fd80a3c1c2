"""The references of `make bench-federation`: raw TCP, ZeroMQ, Zenoh and NATS from Python, each so that nothing is lost.

    python benchmarks/federation_peers.py SYSTEM       reads requests; see federation_worker

Each is set up as its own makers would for speed: TCP_NODELAY; XPUB_NODROP and long queues for ZeroMQ; congestion
control BLOCK, and the quicker of callback and channel, for Zenoh; uvloop for NATS, and credit from the receiver, since
its server drops what a slow client does not take. Zenoh by itself passes large messages through shared memory on one
machine; here loopback stands for a network, so that is off, as it is in our nodes. `near` sends, `far` receives or
sends back.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from federation_worker import Common, Meter, Trips, messages, record, serve, taker

SIZE = 64
DEEP = 100_000  # messages that ZeroMQ may queue at either end
WINDOW, CREDIT = 65_536, 8_192  # messages that may be under way; after how many NATS gets news of them
JOIN = 10.0  # seconds to find each other


def installed() -> dict[str, str]:
    """The systems, and why one cannot be run ("" if it can)."""
    found = {"tcp": ""}
    for name, modules in (("zmq", ("zmq",)), ("zenoh", ("zenoh",)), ("nats", ("nats", "uvloop"))):
        missing = [module for module in modules if find_spec(module) is None]
        found[name] = f"{', '.join(missing)} not installed" if missing else ""
    if not found["nats"] and _nats_server() is None:
        found["nats"] = "nats-server not installed"
    return found


def _nats_server() -> str | None:
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


class Receiving(Common):
    """A receiver is told what to expect, then waits for it."""

    meter: Meter

    def expect(self, n: int, mode: str) -> None:
        self.meter = Meter()
        self.take = taker(mode, n, self.meter)

    def echo(self, n: int) -> None:
        """Send `n` messages back; those that do so in callbacks have nothing to do for it."""


class Tcp(Receiving):
    """Two sockets, recv and sendall."""

    def open(self, peer: Any = None) -> dict[str, Any]:
        if peer is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            return {"peer": self._listener.getsockname()}
        self._socket = socket.create_connection(tuple(peer))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return {"peer": None}

    def join(self, peer: Any) -> None:
        self._socket, _ = self._listener.accept()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def echo(self, n: int) -> None:
        recv, sendall = self._socket.recv, self._socket.sendall
        for _ in range(n):
            data = recv(SIZE)
            while len(data) < SIZE:
                data += recv(SIZE - len(data))
            sendall(data)

    def trips(self, n: int) -> dict[str, Any]:
        trips, data = Trips(n), record(0)
        recv, sendall = self._socket.recv, self._socket.sendall
        more = True
        while more:
            sendall(data)
            came = recv(SIZE)
            while len(came) < SIZE:
                came += recv(SIZE - len(came))
            more = trips.back()
        return trips.result()

    def close(self) -> None:
        self._socket.close()


class Zmq(Receiving):
    """XPUB with NODROP to SUB, a pair for either direction."""

    def _bind(self) -> Any:
        made = self._context.socket(self._zmq.XPUB)
        made.setsockopt(self._zmq.XPUB_NODROP, 1)
        made.setsockopt(self._zmq.SNDHWM, DEEP)
        made.setsockopt(self._zmq.LINGER, 0)
        made.bind("tcp://127.0.0.1:*")
        return made

    def _connect(self, endpoint: str) -> Any:
        made = self._context.socket(self._zmq.SUB)
        made.setsockopt(self._zmq.RCVHWM, DEEP)
        made.setsockopt(self._zmq.LINGER, 0)
        made.setsockopt(self._zmq.RCVTIMEO, 20_000)
        made.setsockopt(self._zmq.SUBSCRIBE, b"")
        made.connect(endpoint)
        return made

    def open(self, peer: Any = None) -> dict[str, Any]:
        import zmq

        self._zmq, self._context = zmq, zmq.Context()
        self._out = self._bind()
        if peer is not None:
            self._in = self._connect(peer)
        return {"peer": self._out.getsockopt_string(zmq.LAST_ENDPOINT)}

    def join(self, peer: Any) -> None:
        if peer is not None:
            self._in = self._connect(peer)
        self._out.recv()  # the other end has subscribed

    def echo(self, n: int) -> None:
        recv, send = self._in.recv, self._out.send
        for _ in range(n):
            send(recv())

    def trips(self, n: int) -> dict[str, Any]:
        trips, data = Trips(n), record(0)
        recv, send = self._in.recv, self._out.send
        more = True
        while more:
            send(data)
            recv()
            more = trips.back()
        return trips.result()

    def send(self, n: int, how: str, packed: int) -> dict[str, Any]:
        send, made = self._out.send, messages(how, n, packed)
        start = perf_counter()
        for data in made:
            send(data)
        return {"start": start}

    def wait(self) -> dict[str, Any]:
        recv, take, meter = self._in.recv, self.take, self.meter
        with suppress(self._zmq.Again):  # nothing came for long: the result says how many did
            while not meter.end:
                take(recv())
        return meter.result(0)

    def close(self) -> None:
        self._context.destroy(linger=0)


class Zenoh(Receiving):
    """Two peers, connected directly. Round trips in callbacks, many events through a channel: the quickest of each."""

    def open(self, peer: Any = None) -> dict[str, Any]:
        import zenoh

        endpoint = peer or f"tcp/127.0.0.1:{free_port()}"
        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("connect/endpoints" if peer else "listen/endpoints", f'["{endpoint}"]')
        if peer:
            config.insert_json5("listen/endpoints", "[]")
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("transport/shared_memory/enabled", "false")
        self._session = zenoh.open(config)
        here, there = ("far", "near") if peer else ("near", "far")
        self._ping, self._data = self._publisher(zenoh, there, True), self._publisher(zenoh, f"{there}/data", False)
        self._took: Any = (lambda payload: self._ping.put(payload)) if peer else None
        pinged = zenoh.handlers.Callback(self._pinged, indirect=False)
        self._pings = self._session.declare_subscriber(f"bench/{here}", pinged)
        fifo = zenoh.handlers.FifoChannel(WINDOW)
        self._in = self._session.declare_subscriber(f"bench/{here}/data", fifo)
        return {"peer": endpoint}

    def _publisher(self, zenoh: Any, key: str, express: bool) -> Any:
        return self._session.declare_publisher(
            f"bench/{key}",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=express,
        )

    def _pinged(self, sample: Any) -> None:
        self._took(sample.payload.to_bytes())

    def join(self, peer: Any) -> None:
        end = perf_counter() + JOIN
        while not (self._ping.matching_status.matching and self._data.matching_status.matching):
            if perf_counter() > end:
                raise TimeoutError("Zenoh's peers have not found each other")
            time.sleep(0.01)

    def trips(self, n: int) -> dict[str, Any]:
        trips, data, put = Trips(n), record(0), self._ping.put

        def back(payload: bytes) -> None:
            if trips.back():
                put(payload)

        self._took = back
        put(data)
        return trips.result()

    def send(self, n: int, how: str, packed: int) -> dict[str, Any]:
        put, made = self._data.put, messages(how, n, packed)
        start = perf_counter()
        for data in made:
            put(data)
        return {"start": start}

    def wait(self) -> dict[str, Any]:
        recv, take, meter = self._in.recv, self.take, self.meter
        while not meter.end:
            take(recv().payload.to_bytes())
        return meter.result(0)

    def close(self) -> None:
        self._session.close()


class Nats(Receiving):
    """Two clients of one server, which `near` starts."""

    _server: subprocess.Popen[bytes] | None = None
    _run_number = 0  # at both ends: credit of an earlier run is not for this one

    def open(self, peer: Any = None) -> dict[str, Any]:
        import uvloop

        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        if peer is None:
            port, program = free_port(), _nats_server()
            assert program is not None
            self._server = subprocess.Popen(
                [program, "-a", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            peer = f"nats://127.0.0.1:{port}"
            self._run(self._open(peer, "near"))
        else:
            self._run(self._open(peer, "far"))
        return {"peer": peer}

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(what)

    async def _open(self, url: str, here: str) -> None:
        import nats
        from nats.errors import Error

        end = perf_counter() + JOIN
        while True:
            try:
                self._client = await nats.connect(url, allow_reconnect=False, error_cb=self._ignore)
                break
            except (OSError, Error):
                if perf_counter() > end:
                    raise
                await asyncio.sleep(0.05)
        self._credit, self._more = 0, asyncio.Event()
        unlimited = {"pending_msgs_limit": 0, "pending_bytes_limit": 0}
        if here == "near":
            await self._client.subscribe("pong", cb=self._pong)
            await self._client.subscribe("credit", cb=self._credited)
        else:
            await self._client.subscribe("ping", cb=self._pinged, **unlimited)
            await self._client.subscribe("data", cb=self._came, **unlimited)
        await self._client.flush()

    async def _ignore(self, error: Exception) -> None:
        """What is lost is counted at the end."""

    def join(self, peer: Any) -> None:
        """The server knows of the subscriptions by now."""

    async def _pinged(self, message: Any) -> None:
        await self._client.publish("pong", message.data)
        self._left -= 1
        if not self._left:
            self._echoed.set()

    def echo(self, n: int) -> None:
        async def until_done() -> None:
            await asyncio.wait_for(self._echoed.wait(), 60)
            await self._client.flush()

        self._left, self._echoed = n, asyncio.Event()
        self._run(until_done())

    async def _pong(self, message: Any) -> None:
        if self._trips.back():
            await self._client.publish("ping", message.data)
        else:
            self._back.set()

    def trips(self, n: int) -> dict[str, Any]:
        async def there_and_back() -> None:
            self._back = asyncio.Event()
            await self._client.publish("ping", record(0))
            await asyncio.wait_for(self._back.wait(), 60)

        self._trips = Trips(n)
        self._run(there_and_back())
        return self._trips.result()

    async def _credited(self, message: Any) -> None:
        run, count = map(int, message.data.split())
        if run == self._run_number:
            self._credit = count
            self._more.set()

    async def _until(self, count: int) -> None:
        """So many have arrived; it also keeps the loop going that sends them."""
        while self._credit < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)

    async def _came(self, message: Any) -> None:
        self.take(message.data)
        self._count += 1
        if not self._count % CREDIT or self.meter.end:
            await self._client.publish("credit", f"{self._run_number} {self._count}".encode())
        if self.meter.end:
            self._all.set()

    def send(self, n: int, how: str, packed: int) -> dict[str, Any]:
        async def sending() -> float:
            publish, made = self._client.publish, messages(how, n, packed)
            self._credit = 0
            self._run_number += 1
            start = perf_counter()
            for sent, data in enumerate(made, 1):
                await publish("data", data)
                if not sent % CREDIT:
                    await self._until(sent - WINDOW)
            await self._until(n // packed)
            return start

        return {"start": self._run(sending())}

    def expect(self, n: int, mode: str) -> None:
        super().expect(n, mode)
        self._run_number += 1
        self._count, self._all = 0, asyncio.Event()

    def wait(self) -> dict[str, Any]:
        async def all_there() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all.wait(), 60)
            await self._client.flush()

        self._run(all_there())
        return self.meter.result(0)

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait(5)


SYSTEMS: dict[str, type[Receiving]] = {"tcp": Tcp, "zmq": Zmq, "zenoh": Zenoh, "nats": Nats}

if __name__ == "__main__":
    serve(SYSTEMS[sys.argv[1]]())
