"""Redis's publish and subscribe, set up so that nothing is dropped: no limit to what waits for a subscriber.

`publish` of its client waits for the server's answer. Whoever has many events to send uses a pipeline, which sends so
many commands before it reads their answers; `pipeline` says how many. Answers are read by hiredis, as its makers
advise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from headwater_studies.fleet.server import Served, program
from headwater_studies.fleet.worker import Trips, messages, record, serve

QUIET = 20.0  # seconds without a message, after which no more are expected


def _server(port: int, folder: Path) -> Sequence[str]:
    return [
        *(program("redis-server") or "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
        *("--save", "", "--appendonly", "no", "--client-output-buffer-limit", "pubsub 0 0 0"),
    ]


class Redis(Served):
    """Two clients of one server."""

    def open(self, peer: Any = None) -> dict[str, Any]:
        import redis

        near = peer is None
        port = self.serve(_server) if near else int(peer)
        self._client = redis.Redis(port=port)
        self._in = self._client.pubsub(ignore_subscribe_messages=True)
        self._in.subscribe(*(["pong"] if near else ["ping", "data"]))
        for _ in range(1 if near else 2):
            self._in.get_message(ignore_subscribe_messages=True, timeout=QUIET)  # the server knows of it
        return {"peer": port}

    def join(self, peer: Any) -> None:
        """The server knows of the subscriptions by now."""

    def _came(self) -> bytes:
        message = self._in.get_message(timeout=QUIET)
        if message is None:
            raise TimeoutError(f"nothing came within {QUIET:g} s")
        data: bytes = message["data"]
        return data

    def echo(self, n: int) -> None:
        came, publish = self._came, self._client.publish
        for _ in range(n):
            publish("pong", came())

    def trips(self, n: int) -> dict[str, Any]:
        trips, data = Trips(n), record(0)
        came, publish = self._came, self._client.publish
        more = True
        while more:
            publish("ping", data)
            came()
            more = trips.back()
        return trips.result()

    def send(self, n: int, how: str, packed: int, pipeline: int = 1) -> dict[str, Any]:
        made = messages(how, n, packed)
        if pipeline > 1:
            return self._piped(made, pipeline)
        publish = self._client.publish
        start = perf_counter()
        for data in made:
            publish("data", data)
        return {"start": start}

    def _piped(self, made: Any, many: int) -> dict[str, Any]:
        start = perf_counter()
        with self._client.pipeline(transaction=False) as pipe:
            while part := list(islice(made, many)):
                for data in part:
                    pipe.publish("data", data)
                pipe.execute()
        return {"start": start}

    def wait(self) -> dict[str, Any]:
        get, take, meter = self._in.get_message, self.take, self.meter
        while not meter.end:
            message = get(timeout=QUIET)
            if message is None:
                break  # the result says how many came
            take(message["data"])
        return meter.result(0)


if __name__ == "__main__":
    serve(Redis())
