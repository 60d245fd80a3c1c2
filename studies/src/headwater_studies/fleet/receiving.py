"""What the processes of other systems share: they are told what to expect, and wait for it."""

from __future__ import annotations

import socket

from headwater_studies.fleet.worker import Common, Meter, taker

WINDOW = 65_536  # messages that may be under way
JOIN = 10.0  # seconds to find each other


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
