"""Control messages of a federation, counted as SECO 7.2.3 counts its own, with its formulas; and events to several
nodes, by streams and by multicast."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from headwater_studies.fleet.worker import Gone, Worker
from headwater_studies.harness.bench import Bench

CROWD = "headwater_studies.fleet.crowd"
KINDS = ("join", "leave", "roll", "news", "ask", "post", "log")
ALONE = ("unshare", "--net")  # a network namespace that ends with its process
CHANNEL = "crowd.sighting"


# ── SECO 7.2.3 ──


def seco_distribution(n: int) -> int:
    """n application instances that come and go: 6n with the central registry, 2(n² - n) for the group."""
    return 6 * n + 2 * (n * n - n)


def seco_distribution_multicast(n: int) -> int:
    """The same if the group were kept by multicast, which SECO did not have."""
    return 6 * n + 2 * (n - 1)


def seco_filtering(m: int, n: int) -> int:
    """m subscriptions of one instance that come and go."""
    return 4 * m * (n - 1)


def seco_filtering_multicast(m: int) -> int:
    return 2 * m


# ── measuring ──


@dataclass(frozen=True, slots=True)
class Talk:
    """Control messages as they are said (one to all is one) and as they arrive, of these the signs of life and their
    ends, bytes of all as they arrive, frames beside events on streams, and all bytes on the wire where nothing else
    was on it."""

    said: int
    arrived: int
    lives: int
    bytes: int
    frames: int
    wire: int | None


Counts = Mapping[str, int]


def talk(before: Counts, after: Counts, *, alone: bool) -> Talk:
    def took(name: str) -> int:
        return after.get(name, 0) - before.get(name, 0)

    frames = sum(took(name) for name in after if name.startswith("stream_"))
    return Talk(
        said=sum(took(f"{kind}_out") for kind in KINDS),
        arrived=sum(took(f"{kind}_in") for kind in KINDS),
        lives=took("join_in") + took("leave_in"),
        bytes=sum(took(f"{kind}_bytes_in") for kind in KINDS),
        frames=frames,
        wire=took("loopback") if alone else None,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """Events to some nodes: event frames over streams, or datagrams; bytes of these; and bytes on the wire."""

    frames: int
    datagrams: int
    bytes: int
    wire: int | None


def open_crowd(bench: Bench) -> tuple[Worker, bool, dict[str, str]]:
    """A process for all nodes; with a loopback of its own if that can be had, so that every byte on it is known."""
    if shutil.which(ALONE[0]) is None:
        why = f"the command {ALONE[0]} is not here"
    else:
        tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True)
        if tried.returncode == 0:
            crowd = bench.start(CROWD, inside=ALONE)
            crowd.call("private")
            return crowd, True, {}
        why = tried.stderr.strip()
    return bench.start(CROWD), False, {"bytes on the wire": f"no network namespace of their own: {why}"}


def come(crowd: Worker, n: int, alone: bool) -> Talk:
    """One after the other, each when all before know each other."""
    before = crowd.call("messages")
    first = crowd.call("join", name="n0")["endpoint"]
    for number in range(1, n):
        crowd.call("join", name=f"n{number}", connect=first)
        crowd.call("together", others=number)
    return talk(before, crowd.call("messages"), alone=alone)


def leave(crowd: Worker, alone: bool) -> Talk:
    before = crowd.call("messages")
    crowd.call("all_leave")
    return talk(before, crowd.call("messages"), alone=alone)


def added(one: Talk, other: Talk) -> Talk:
    wire = None if one.wire is None or other.wire is None else one.wire + other.wire
    return Talk(
        said=one.said + other.said,
        arrived=one.arrived + other.arrived,
        lives=one.lives + other.lives,
        bytes=one.bytes + other.bytes,
        frames=one.frames + other.frames,
        wire=wire,
    )


def subscribe(crowd: Worker, m: int, alone: bool) -> dict[str, Talk]:
    """m subscriptions of one node that come and go, with a source at every other; in several ways."""
    others = crowd.call("others", name="n0")["names"]
    for name in others:
        crowd.call("advertise", node=name, channel=CHANNEL)
    crowd.call("knows", node="n0", channel=CHANNEL, count=len(others))
    for name in others:  # what they tell each other has come before anything is counted
        crowd.call("knows", node=name, channel=CHANNEL, count=len(others) - 1)
    # The streams are made by the first that is ever wanted; that is counted with nobody.
    crowd.call("take", node="n0", channel=CHANNEL, wheres=["pick < 0"])
    crowd.call("drop", node="n0")
    ways: dict[str, tuple[list[str], bool]] = {
        "one after the other": ([f"pick = {number} and share > {number}" for number in range(m)], True),
        "all at once": ([f"pick = {number} and share > {number}.5" for number in range(m)], False),
        "covered by the first": ([f"pick >= {number}" for number in range(m)], True),
    }
    found = {}
    for way, (wheres, one_by_one) in ways.items():
        before = crowd.call("messages")
        crowd.call("take", node="n0", channel=CHANNEL, wheres=wheres, one_by_one=one_by_one)
        crowd.call("drop", node="n0", one_by_one=one_by_one)
        found[way] = talk(before, crowd.call("messages"), alone=alone)
    for name in others:
        crowd.call("withdraw", node=name, channel=CHANNEL)
    return found


def _port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def tell(bench: Bench, crowd: Worker, nodes: int, multicast: bool, events: int, alone: bool) -> Told:
    """Events one by one to so many nodes that want all of them, over streams or by multicast."""
    bench.say(f"events to {nodes} nodes {'by multicast' if multicast else 'over streams'}")
    groups = _port() if multicast else None
    first = crowd.call("join", name="m0", groups=groups)["endpoint"]
    crowd.call("advertise", node="m0", channel=CHANNEL)
    for number in range(1, nodes + 1):
        crowd.call("join", name=f"m{number}", connect=first, groups=groups)
        crowd.call("together", others=number)
    for number in range(1, nodes + 1):
        crowd.call("knows", node=f"m{number}", channel=CHANNEL, count=1)
        crowd.call("listen", node=f"m{number}", channel=CHANNEL, wheres=[None])
    before = crowd.call("messages")["loopback"]
    sent = crowd.call("tell", node="m0", channel=CHANNEL, n=events)
    wire = crowd.call("messages")["loopback"] - before
    came = crowd.call("came", channel=CHANNEL)["calls"]
    crowd.call("all_leave")
    if came != events * nodes:
        raise Gone(f"{came} of {events * nodes} events have come to {nodes} nodes, multicast: {multicast}")
    return Told(
        frames=0 if multicast else sent["frames"],
        datagrams=sent["datagrams"],
        bytes=sent["stream_bytes"] + sent["datagram_bytes"],
        wire=wire if alone else None,
    )
