"""Two hosts on this machine with a link between them: network namespaces, a rate limit, and a delay.

    with pair(start, Link("thin", "thin link", rate=1e6, delay=0.05)) as hosts:
        worker = start("headwater_studies.fleet.tcp", inside=hosts.near.inside)

Nothing but namespaces made here is touched, and they are gone afterwards. The rate is limited by `tbf` of `tc`. The
delay is by `netem` where the kernel has it, else by our `relay` in a third namespace between the two.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

from headwater_studies.fleet.worker import Worker

NEAR, FAR = "198.18.0.1", "198.18.0.2"  # of the range that RFC 2544 sets apart for measurements
PORT = "hw0"  # a host's interface
QUEUE = 0.2  # seconds that a packet may wait for its turn
FRAME = 1514  # bytes, the largest
MARK = "headwater"  # what our namespaces' names begin with; then the process that made them
_numbers = count(1)


class Start(Protocol):
    def __call__(self, module: str, *arguments: str, inside: list[str]) -> Worker: ...


class CannotMake(Exception):
    """This machine does not let us make hosts; why."""


@dataclass(frozen=True, slots=True)
class Link:
    """`rate` in bits a second each way, `delay` in seconds each way."""

    key: str
    name: str
    rate: float
    delay: float


@dataclass(frozen=True, slots=True)
class Host:
    """`inside` goes before a command that is to run on it."""

    namespace: str
    address: str

    @property
    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]

    def traffic(self) -> int:
        """Bytes that went in and out at its interface so far, headers included."""
        shown = _run("ip", "-n", self.namespace, "-j", "-s", "link", "show", "dev", PORT)
        counted = json.loads(shown)[0]["stats64"]
        return int(counted["rx"]["bytes"]) + int(counted["tx"]["bytes"])


@dataclass(frozen=True, slots=True)
class LinkedHosts:
    """Two hosts. `by` says what limits the rate and what delays."""

    link: Link
    near: Host
    far: Host
    by: str
    relay: Worker | None = None

    def quiet(self, longest: float = 3.0) -> int:
        """The traffic so far, when what is under way has come to rest; keeping alive may go on."""
        end, before, pause = time.monotonic() + longest, -1, 2 * self.link.delay + 0.02
        while (now := self.near.traffic()) != before and time.monotonic() < end:
            before = now
            time.sleep(pause)
        return now


def missing() -> str:
    """Why hosts cannot be made here; "" if they can."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces need Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (package iproute2)"
    try:
        with _namespaces("t") as (name,):
            _batch(name, "link add hwt type veth peer name hwu")
    except CannotMake as error:
        return f"network namespaces cannot be made: {error}"
    return ""


Way = Literal["netem", "relay"]


@contextmanager
def pair(start: Start, link: Link, *, way: Way | None = None) -> Iterator[LinkedHosts]:
    """Two hosts joined by a link; gone afterwards. CannotMake if this machine does not allow it.

    `way`: what delays; by itself `netem` if the kernel has it."""
    with _namespaces("a", "m", "b") as (a, m, b):
        near, far = Host(a, NEAR), Host(b, FAR)
        way = way or ("netem" if _netem(a, "lo", Link("", "", 1e9, 0.001)) else "relay")
        middle = ("hwa", "hwb")
        if way == "netem":
            _batch(a, f"link add {PORT} type veth peer name {PORT} netns {b}")
        else:
            for name, end in zip((a, b), middle, strict=True):
                _batch(name, f"link add {PORT} type veth peer name {end} netns {m}")
            _batch(m, *(line for end in middle for line in (f"link set {end} addrgenmode none", f"link set {end} up")))
        for number, (here, there) in enumerate(((near, far), (far, near)), 1):
            _batch(
                here.namespace,
                "link set lo up",
                f"link set {PORT} address 02:00:00:00:00:0{number} addrgenmode none",  # nothing but what is measured
                f"link set {PORT} gso_max_segs 1",  # as on a wire: no packets of several frames
                f"link set {PORT} up",
                f"address add {here.address}/24 dev {PORT}",
                f"neigh add {there.address} lladdr 02:00:00:00:00:0{3 - number} dev {PORT} nud permanent",
            )
        if way == "netem":
            if not all(_netem(host.namespace, PORT, link) for host in (near, far)):
                raise CannotMake("netem was there, and then it was not")
            yield LinkedHosts(link, near, far, "rate and delay by netem")
            return
        limited = all(_tbf(host.namespace, link) for host in (near, far))
        relay = start("headwater_studies.fleet.relay", inside=Host(m, "").inside)
        try:
            relay.call("open", left=middle[0], right=middle[1], delay=link.delay, rate=None if limited else link.rate)
            by = "rate by tbf, delay by our relay" if limited else "rate and delay by our relay"
            yield LinkedHosts(link, near, far, by, relay)
        finally:
            relay.close()


@contextmanager
def alone() -> Iterator[Host]:
    """A host with a loopback interface and no other, so that only its own traffic is counted there; gone afterwards."""
    with _namespaces("s") as (name,):
        _batch(name, "link set lo up")
        yield Host(name, "127.0.0.1")


@contextmanager
def _namespaces(*kinds: str) -> Iterator[tuple[str, ...]]:
    """Namespaces with names that nobody else has, removed in the end."""
    number, made = next(_numbers), list[str]()
    _sweep()
    try:
        for kind in kinds:
            made.append(f"{MARK}-{os.getpid()}-{number}{kind}")
            _run("ip", "netns", "add", made[-1])
        yield tuple(made)
    finally:
        for name in made:
            with suppress(CannotMake):
                _run("ip", "netns", "delete", name)


def _sweep() -> None:
    """Remove what processes left that were killed."""
    for line in _run("ip", "netns", "list").splitlines():
        mark, _, rest = line.split(" ")[0].partition("-")
        owner = rest.partition("-")[0]
        if mark == MARK and owner.isdecimal() and not Path("/proc", owner).exists():
            _done("ip", "netns", "delete", line.split(" ")[0])


def _tbf(namespace: str, link: Link) -> bool:
    """Whether the rate of a host's interface is limited now."""
    burst = max(4096, int(link.rate / 8 * 0.002))  # 2 ms of it: what the clock of the kernel makes good
    return _done(
        "tc", "-n", namespace, "qdisc", "add", "dev", PORT, "root",
        "tbf", "rate", f"{link.rate:.0f}bit", "burst", str(burst), "latency", f"{QUEUE * 1000:.0f}ms",
    )  # fmt: skip


def _netem(namespace: str, interface: str, link: Link) -> bool:
    """Whether the interface is limited and delayed by the kernel now."""
    held = max(100, int(link.rate / 8 / FRAME * (link.delay + QUEUE)))
    return _done(
        "tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root",
        "netem", "delay", f"{link.delay * 1e6:.0f}us", "rate", f"{link.rate:.0f}bit", "limit", str(held),
    )  # fmt: skip


def _done(*command: str) -> bool:
    try:
        _run(*command)
    except CannotMake:
        return False
    return True


def _batch(namespace: str, *lines: str) -> None:
    """Several commands of `ip` in a namespace."""
    _run("ip", "-n", namespace, "-batch", "-", told="\n".join(lines) + "\n")


def _run(*command: str, told: str = "") -> str:
    try:
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotMake(f"{command[0]}: {type(error).__name__}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise CannotMake(f"{command[0]}: {said[0]}")
    return done.stdout
