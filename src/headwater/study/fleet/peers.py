"""Other systems that do the same work, each in two processes: `near` sends, `far` receives or sends back.

Each is set up as its own makers would for speed, and so that nothing is lost. One that is not installed is said to be
not run, with the reason; nothing is ever guessed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class System:
    """A system: its name for people, the module of its processes, and why it cannot be run here ("" if it can)."""

    name: str
    module: str
    missing: Callable[[], str]


def _modules(*needed: str) -> Callable[[], str]:
    def missing() -> str:
        absent = [name for name in needed if find_spec(name) is None]
        return f"{', '.join(absent)} not installed" if absent else ""

    return missing


def _nats() -> str:
    from headwater.study.fleet.nats import server

    return _modules("nats", "uvloop")() or ("" if server() else "nats-server not installed")


_HERE = "headwater.study.fleet"
SYSTEMS = {
    "tcp": System("raw TCP", f"{_HERE}.tcp", str),
    "zmq": System("ZeroMQ", f"{_HERE}.zmq", _modules("zmq")),
    "zenoh": System("Zenoh", f"{_HERE}.zenoh", _modules("zenoh")),
    "nats": System("NATS", f"{_HERE}.nats", _nats),
}


def installed() -> dict[str, str]:
    """The systems, and why one cannot be run ("" if it can)."""
    return {key: system.missing() for key, system in SYSTEMS.items()}
