"""NATS with uvloop, and credit from the receiver, since its server drops what a slow client does not take."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from headwater_studies.fleet.receiving import JOIN, WINDOW, Receiving, free_port
from headwater_studies.fleet.server import ending_with_us, spent
from headwater_studies.fleet.worker import Trips, messages, record, serve

CREDIT = 8_192  # messages after which the sender gets news of them


def server() -> str | None:
    """Where its server is, if it is installed."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class Nats(Receiving):
    """Two clients of one server, which `near` starts."""

    _server: subprocess.Popen[bytes] | None = None
    _run_number = 0  # at both ends: credit of an earlier run is not for this one

    def open(self, peer: Any = None) -> dict[str, Any]:
        import uvloop

        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        if peer is None:
            port, program = free_port(), server()
            assert program is not None
            self._server = subprocess.Popen(
                ending_with_us([program, "-a", "127.0.0.1", "-p", str(port)]),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
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

    def cpu(self) -> dict[str, Any]:
        """Processor time used so far, by this process and by the server that it has started."""
        used: dict[str, Any] = {"cpu": process_time()}
        if self._server is not None:
            used["server"] = spent(self._server.pid)
        return used

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait(5)


if __name__ == "__main__":
    serve(Nats())
