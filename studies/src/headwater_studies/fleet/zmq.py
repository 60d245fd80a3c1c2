"""ZeroMQ, set up so that nothing is lost: XPUB_NODROP and long queues."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from time import perf_counter
from typing import Any

from headwater_studies.fleet.receiving import Receiving
from headwater_studies.fleet.worker import FIRST, Trips, messages, record, serve

DEEP = 100_000  # messages that may be queued at either end


class Zmq(Receiving):
    """XPUB with NODROP to SUB, a pair for either direction."""

    def _bind(self, host: str) -> Any:
        made = self._context.socket(self._zmq.XPUB)
        made.setsockopt(self._zmq.XPUB_NODROP, 1)
        made.setsockopt(self._zmq.SNDHWM, DEEP)
        made.setsockopt(self._zmq.LINGER, 0)
        made.bind(f"tcp://{host}:*")
        return made

    def _connect(self, endpoint: str) -> Any:
        made = self._context.socket(self._zmq.SUB)
        made.setsockopt(self._zmq.RCVHWM, DEEP)
        made.setsockopt(self._zmq.LINGER, 0)
        made.setsockopt(self._zmq.RCVTIMEO, 20_000)
        made.setsockopt(self._zmq.SUBSCRIBE, b"")
        self._prefix = b""
        made.connect(endpoint)
        return made

    def open(self, peer: Any = None, host: str = "127.0.0.1") -> dict[str, Any]:
        self._zmq: Any = import_module("zmq")
        self._context = self._zmq.Context()
        self._out = self._bind(host)
        if peer is not None:
            self._in = self._connect(peer)
        return {"peer": self._out.getsockopt_string(self._zmq.LAST_ENDPOINT)}

    def join(self, peer: Any) -> None:
        if peer is not None:
            self._in = self._connect(peer)
        self._out.recv()  # the other end has subscribed

    def only(self, pick: float | None) -> None:
        """From now on only messages that begin with this field, or (None) all; the sender is to hear of two changes.

        The sender leaves out the others: a prefix is all that it can look at."""
        prefix = b"" if pick is None else FIRST.pack(pick)
        self._in.setsockopt(self._zmq.SUBSCRIBE, prefix)
        self._in.setsockopt(self._zmq.UNSUBSCRIBE, self._prefix)
        self._prefix = prefix

    def heard(self, n: int) -> None:
        """Wait for so many changes of what the other end wants."""
        for _ in range(n):
            self._out.recv()

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


if __name__ == "__main__":
    serve(Zmq())
