"""Ports for those that must be known before anybody listens there."""

from __future__ import annotations

import random
import socket

# Below those that the system gives out by itself, to listeners on port 0 and to whoever connects: on a busy machine one
# of these would have it before the test.
FIRST, LAST = 15_000, 32_000
_RANDOM = random.SystemRandom()  # tests are run side by side


def free_port(host: str = "127.0.0.1") -> int:
    """One at which nobody listens, and that nobody is given by chance."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = _RANDOM.randrange(FIRST, LAST)
        with socket.socket(family) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port


def free_endpoint() -> str:
    """The same, as a node takes it."""
    return f"tcp/127.0.0.1:{free_port()}"
