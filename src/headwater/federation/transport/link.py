"""What a link to another node can do, and how the address of one is written.

tcp/127.0.0.1:7447     tcp/[::1]:7447     tls/lab.example:7447     unix//run/headwater.sock
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.endpoints import Locator, parse_locator

FORMS = "tcp/host:port, tls/host:port or unix//path"
LONGEST_PATH = 107  # bytes of a Unix socket's path that every Linux takes


class Link(Protocol):
    """A way to one other node that takes frames in order: a direct stream, or the routed path.

    A link that has ended raises `LinkDown` from `write` and `drain`; whoever made it is told once, through `on_end`."""

    kind: str  # "tcp", "tls", "unix", or the name of the routed path
    bytes_out: int
    bytes_in: int
    busy: bool  # some of what was written waits in the link

    def write(self, data: bytes) -> bool:
        """Send now what can be sent without waiting; True if that was all, else the rest waits in the link."""
        ...

    def drain(self, timeout: float) -> bool:
        """Send what waits, for at most `timeout` seconds; True if nothing waits any more."""
        ...

    def close(self, reason: str) -> None:
        """End the link, from any thread; what waits in it is given up."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A parsed address; `str()` writes it as it is parsed."""

    kind: str  # "tcp", "tls" or "unix"
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.kind == "unix":
            return f"unix/{self.path}"
        return f"{self.kind}/[{self.host}]:{self.port}" if ":" in self.host else f"{self.kind}/{self.host}:{self.port}"


def parse_endpoint(text: str | Locator, *, place: str = "endpoint") -> Endpoint:
    """Read "tcp/host:port", "tls/host:port" or "unix//path", in any of the forms of an endpoint; anything else is a
    ConfigError that says what is wrong."""
    found = parse_locator(place, text)
    if isinstance(found, ConfigProblem):
        raise ConfigError([found])
    kind, rest = found.protocol, found.address
    if kind not in ("tcp", "tls", "unix") or found.tail:
        _refuse(place, FORMS, repr(text), "nothing may follow the address" if found.tail else None)
    if kind == "unix":
        if not rest.startswith("/") or rest.endswith("/") or "\0" in rest:
            _refuse(place, "unix//path with the absolute path of a socket", repr(text), f"write unix/{os.sep}...")
        if len(os.fsencode(rest)) > LONGEST_PATH:
            _refuse(
                place,
                f"a path of at most {LONGEST_PATH} bytes",
                f"{len(os.fsencode(rest))} bytes: {text!r}",
                "choose a shorter folder",
            )
        return Endpoint("unix", path=rest)
    return Endpoint(kind, found.host, found.port)


def parse_endpoints(texts: Sequence[str | Locator], *, place: str = "endpoint") -> list[Endpoint]:
    """All of them; a ConfigError names every faulty one at once."""
    if isinstance(texts, str):
        _refuse(place, f"a list of {FORMS}", repr(texts), f"write [{texts!r}]")
    found, problems = [], list[ConfigProblem]()
    for text in texts:
        try:
            found.append(parse_endpoint(text, place=place))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return found


def _refuse(place: str, expected: str, found: str, hint: str | None = None) -> NoReturn:
    raise ConfigError([ConfigProblem(place, expected, found, hint)])
