"""Bare Zenoh around a router: two clients in one process, a router in another; set up as in `zenoh`.

What the first client puts passes through the router and comes to a callback of the second, which lets the first go on.
"""

from __future__ import annotations

import time
from importlib import import_module
from time import perf_counter
from typing import Any

from headwater_studies.fleet.receiving import JOIN, free_port
from headwater_studies.fleet.worker import Common, Trips, record, serve

KEY = "bench/through"


class ZenohCentral(Common):
    """A router, or two clients of it."""

    def __init__(self) -> None:
        self._sessions: list[Any] = []

    def router(self) -> dict[str, Any]:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        self._open("router", "listen", endpoint)
        return {"endpoint": endpoint}

    def clients(self, connect: str) -> None:
        zenoh: Any = import_module("zenoh")
        supplier, consumer = (self._open("client", "connect", connect) for _ in range(2))
        self._took: Any = lambda payload: None
        took = zenoh.handlers.Callback(lambda sample: self._took(sample.payload.to_bytes()), indirect=False)
        self._subscriber = consumer.declare_subscriber(KEY, took)
        self._publisher = supplier.declare_publisher(
            KEY,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=True,
        )
        end = perf_counter() + JOIN
        while not self._publisher.matching_status.matching:
            if perf_counter() > end:
                raise TimeoutError("Zenoh's clients have not found each other")
            time.sleep(0.01)

    def _open(self, mode: str, side: str, endpoint: str) -> Any:
        zenoh: Any = import_module("zenoh")
        config = zenoh.Config()
        config.insert_json5("mode", f'"{mode}"')
        config.insert_json5("listen/endpoints", "[]")
        config.insert_json5(f"{side}/endpoints", f'["{endpoint}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("transport/shared_memory/enabled", "false")
        self._sessions.append(zenoh.open(config))
        return self._sessions[-1]

    def echo(self, n: int) -> None:
        """The router passes on by itself."""

    def trips(self, n: int) -> dict[str, Any]:
        trips, data, put = Trips(n), record(0), self._publisher.put
        self._took = trips.answer(put)
        put(data)
        return trips.result()

    def close(self) -> None:
        for session in self._sessions:
            session.close()


if __name__ == "__main__":
    serve(ZenohCentral())
