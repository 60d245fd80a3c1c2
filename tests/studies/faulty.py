"""A system that does not do what it should, for tests: it loses an event."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from headwater_studies.fleet.tcp import SIZE, Tcp
from headwater_studies.fleet.worker import messages, serve


class Forgetful(Tcp):
    """Events over TCP; the third of the events that are measured is not sent."""

    def expect(self, n: int, mode: str) -> None:
        super().expect(n, mode)
        self._socket.settimeout(1.0)

    def send(self, n: int, how: str, packed: int) -> dict[str, Any]:
        start = perf_counter()
        for number, data in enumerate(messages(how, n, packed)):
            if how != "wide" or number != 2:
                self._socket.sendall(data)
        return {"start": start}

    def wait(self) -> dict[str, Any]:
        data = b""
        try:
            while not self.meter.end:
                data += self._socket.recv(SIZE)
                if len(data) >= SIZE:
                    self.take(data[:SIZE])
                    data = data[SIZE:]
        except TimeoutError:
            pass  # the result says how many came
        return self.meter.result(0)


if __name__ == "__main__":
    serve(Forgetful())
