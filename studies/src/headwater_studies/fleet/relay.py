"""A wire that takes its time: frames that arrive at one network interface leave at another one later, and back.

It stands between the two interfaces of a namespace of its own (see `hosts`), where the kernel has no `netem`. Every
packet is delayed, whoever sends it: connections being made, data, acknowledgements. See `worker` for how it is told.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from headwater.threads import Supervised
from headwater_studies.fleet.worker import Common, serve

EVERY = 0x0003  # ETH_P_ALL
PACKET, HEADER, INBOUND, BUFFER = 263, 15, 23, 33  # SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE
BEFORE = 10  # bytes before a frame that say what the sending host leaves to its network card, such as the checksum
LARGEST = 70_000
HELD = 8_000_000  # bytes that may be under way in a direction
AT_ONCE = 64  # frames that are read before those due are sent


class Line:
    """One direction: what is under way. `rate` is in bits a second, None if something else limits it; frames that
    would wait longer than `queue` seconds for their turn are lost, as in a router."""

    def __init__(self, delay: float, rate: float | None = None, queue: float = 0.2) -> None:
        self.delay, self.rate, self.queue = delay, rate, queue
        self.passed = self.lost = self.held = 0
        self._free = 0.0  # when the last frame has left
        self._frames: deque[tuple[float, bytes]] = deque()

    def put(self, frame: bytes, now: float, size: int | None = None) -> None:
        """A frame arrives; `size` in bytes, if it is not that of `frame`."""
        size = len(frame) if size is None else size
        leaves = now if self.rate is None else max(now, self._free) + 8 * size / self.rate
        if self.held + len(frame) > HELD or leaves - now > self.queue:
            self.lost += 1
            return
        self._free = leaves
        self.held += len(frame)
        self._frames.append((leaves + self.delay, frame))

    @property
    def due(self) -> float | None:
        """When the next frame is to be delivered."""
        return self._frames[0][0] if self._frames else None

    def take(self, now: float) -> bytes | None:
        """The next frame that is due."""
        if not self._frames or self._frames[0][0] > now:
            return None
        frame = self._frames.popleft()[1]
        self.held -= len(frame)
        self.passed += 1
        return frame


def attach(interface: str) -> socket.socket:
    """A socket for every frame that arrives at an interface."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # no protocol yet: nothing of other interfaces gets in
    made.setsockopt(PACKET, HEADER, 1)
    made.setsockopt(PACKET, INBOUND, 1)
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, BUFFER, 4_000_000)
    made.bind((interface, EVERY))
    made.setblocking(False)
    return made


class Relay(Common):
    """Between two interfaces."""

    def __init__(self) -> None:
        self._lines: tuple[Line, Line] | None = None
        self._ending = False
        self._refused = 0  # frames that the kernel would not send

    def open(self, left: str, right: str, delay: float, rate: float | None = None) -> None:
        """From now on: `delay` in seconds, each way."""
        with suppress(OSError):
            Path("/proc/self/timerslack_ns").write_text("1000")  # to wake up in time; threads take it over
        self._lines = Line(delay, rate), Line(delay, rate)
        sockets = attach(left), attach(right)
        Supervised(partial(self._run, sockets, self._lines), "headwater-study-relay").start()

    def _run(self, sockets: tuple[socket.socket, socket.socket], lines: tuple[Line, Line]) -> None:
        left, right = sockets
        ways = ((left, right, lines[0]), (right, left, lines[1]))
        while not self._ending:
            dues = [line.due for line in lines]
            soonest = min((due for due in dues if due is not None), default=None)
            select.select(sockets, (), (), None if soonest is None else max(0.0, soonest - monotonic()))
            for here, there, line in ways:
                with suppress(BlockingIOError):
                    for _ in range(AT_ONCE):
                        frame = here.recv(LARGEST)
                        line.put(frame, monotonic(), len(frame) - BEFORE)
                while (due := line.take(monotonic())) is not None:
                    try:
                        there.send(due)
                    except OSError:
                        self._refused += 1

    def counts(self) -> dict[str, Any]:
        """Frames that were passed on, and that were lost, in both directions."""
        lines = self._lines or ()
        return {"passed": sum(line.passed for line in lines), "lost": sum(line.lost for line in lines) + self._refused}

    def close(self) -> None:
        self._ending = True


if __name__ == "__main__":
    serve(Relay())
