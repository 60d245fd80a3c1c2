"""What a link to another node can do, and how the address of one is written.

tcp/127.0.0.1:7447     tcp/[::1]:7447     tls/lab.example:7447     unix//run/headwater.sock
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from headwater.errors import ConfigError, ConfigProblem

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


def parse_endpoint(text: str, *, place: str = "endpoint") -> Endpoint:
    """Read "tcp/host:port", "tls/host:port" or "unix//path"; anything else is a ConfigError that says what is wrong."""
    if not isinstance(text, str):
        _refuse(place, FORMS, f"{text!r}, a {type(text).__name__}")
    kind, slash, rest = text.partition("/")
    if not slash or kind not in ("tcp", "tls", "unix"):
        hint = f"tcp/{text} perhaps" if not slash and text.count(":") == 1 else None
        _refuse(place, FORMS, repr(text), hint)
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
    host, colon, port = rest.rpartition(":")
    if not colon or not host:
        _refuse(place, f"{kind}/host:port", repr(text), "name the host and the port; port 0 listens at any free one")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            _refuse(place, "an IPv6 address in [ ]", repr(text))
    elif ":" in host:
        _refuse(place, f"{kind}/host:port", repr(text), f"an IPv6 address stands in brackets: {kind}/[{host}]:{port}")
    elif not all(part.isprintable() and not part.isspace() for part in host) or set(host) & set("/[]@#?"):
        _refuse(place, f"a host's name or address in {kind}/host:port", repr(text))
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        _refuse(place, "a port from 0 to 65535", repr(text))
    return Endpoint(kind, host, int(port))


def parse_endpoints(texts: Sequence[str], *, place: str = "endpoint") -> list[Endpoint]:
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
