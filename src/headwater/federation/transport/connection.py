"""Connected sockets: made by dialling a listener, and set up the same way at both ends."""

from __future__ import annotations

import errno
import socket
import ssl
from time import monotonic

from headwater.errors import ConfigError, ConfigProblem, SecurityError, Unreachable
from headwater.federation.endpoints import is_loopback
from headwater.federation.transport.link import Endpoint, parse_endpoint
from headwater.federation.transport.stream import Stream, describe
from headwater.federation.transport.tls_stream import TlsStream

UNSENT_BYTES = 32 << 10  # bytes that wait in the kernel, on a link to another machine, until it says that it is full
# Kernels tell a vanished machine from a silent one after 10 s + 3 × 5 s.
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


def dial(endpoint: str, *, tls: ssl.SSLContext | None = None, timeout: float = 3.0) -> Stream:
    """Connect to a listener. Raises Unreachable if nobody is there, SecurityError if the TLS handshake fails."""
    target = parse_endpoint(endpoint)
    if target.kind != "unix" and target.port == 0:
        raise ConfigError([ConfigProblem("endpoint", "a port from 1 to 65535 to connect to", repr(endpoint))])
    context = context_of(target, tls)
    deadline = monotonic() + timeout
    sock: socket.socket | None = None
    try:
        if target.kind == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            sock.connect(target.path)
        else:
            sock = socket.create_connection((target.host, target.port), timeout)
            if sock.getsockname() == sock.getpeername():
                # A port from which connections start may by chance be the one that is dialled: TCP then connects it to
                # itself.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
        # Before the handshake: after it the other end may be gone again.
        loopback = tune(sock)
        if context is None:
            return Stream(sock, target.kind, str(target), loopback=loopback)
        sock.settimeout(max(0.001, deadline - monotonic()))
        sock = context.wrap_socket(sock, server_hostname=target.host)
        return TlsStream(sock, target.kind, str(target), loopback=loopback)
    except BaseException as error:
        if sock is not None:
            sock.close()
        if isinstance(error, TimeoutError):
            raise Unreachable(f"{endpoint}: no answer within {timeout:g} s") from error
        if isinstance(error, ssl.SSLError):
            raise SecurityError(f"{endpoint}: the TLS handshake failed: {describe(error)}") from error
        if isinstance(error, OSError):
            raise Unreachable(f"{endpoint}: no connection: {describe(error)}") from error
        raise


def context_of(endpoint: Endpoint, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The TLS context that the endpoint needs, None if it needs none."""
    if endpoint.kind != "tls":
        return None
    if tls is None:
        found = f"{str(endpoint)!r} and no certificates"
        raise ConfigError([ConfigProblem("endpoint", "certificates for TLS", found, "give them, or use tcp/host:port")])
    return tls


def tune(sock: socket.socket) -> bool:
    """Set a connected socket up; whether the other end is on this machine."""
    if sock.family == socket.AF_UNIX:
        return True
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    loopback = is_loopback(f"tcp/[{sock.getpeername()[0]}]:0")
    if not loopback:
        hold_little(sock)
    return loopback


def hold_little(sock: socket.socket) -> None:
    """Have the kernel say early that a connection is full: what waits here still can share frames, and what is urgent
    can overtake it. On one machine the link is never thin, and to be told often would only cost time."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
