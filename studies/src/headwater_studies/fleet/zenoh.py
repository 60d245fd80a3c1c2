"""Bare Zenoh, set up so that nothing is lost: congestion control BLOCK, and the quicker of callback and channel.

By itself it passes large messages through shared memory on one machine; here loopback stands for a network, so that is
off, as it is in our nodes.
"""

from __future__ import annotations

import time
from importlib import import_module
from time import perf_counter
from typing import Any

from headwater_studies.fleet.receiving import JOIN, WINDOW, Receiving, free_port
from headwater_studies.fleet.worker import Trips, messages, record, serve


class Zenoh(Receiving):
    """Two peers, connected directly. Round trips in callbacks, many events through a channel: the quickest of each."""

    def open(self, peer: Any = None, host: str = "127.0.0.1") -> dict[str, Any]:
        zenoh: Any = import_module("zenoh")
        endpoint = peer or f"tcp/{host}:{free_port()}"
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
        self._took = trips.answer(put)
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


if __name__ == "__main__":
    serve(Zenoh())
