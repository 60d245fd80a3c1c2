"""The model of larger federations: its scenarios, topologies, costs and results, and what it takes for granted.

A recording is of one *site*: its nodes, in the order of their names, and what they published. A federation of N nodes
is as many copies of the site as fit; what is left over is a smaller site with the first so many of its nodes. Every
site has its own copy of the recorded subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from headwater.errors import ConfigError, ConfigProblem
from headwater.spark.backtest.report import DATAGRAM, FRAME

Topology = Literal[
    "peer to peer",
    "router",
    "centralised",
    "centralised, filtered",
    "tree",
    "multicast",
    "multicast by site",
]  # fmt: skip
TOPOLOGIES: tuple[Topology, ...] = (
    "peer to peer",
    "router",
    "centralised",
    "centralised, filtered",
    "tree",
    "multicast",
    "multicast by site",
)
ASSUMPTIONS = (
    "A federation is copies of the recorded site: all publish what was recorded, at the same pace, each copy its own "
    "events. Copies are alike, so each kind of site is computed once and counted as often as there are such sites; "
    "nothing is sampled, and the counts are exact for the model.",
    "Subscriptions that name a recorded node are there; the others are placed on the site's nodes by a hash of their "
    "name. A local subscription wants what it matches of its own site (a channel for each site); one that is "
    "everywhere wants what it matches of all sites. Which ones are everywhere follows from their number: every "
    "1000th, for instance, counted through all sites.",
    "An event that several sinks of a node want crosses to it once. What a node wants of its own sources does not "
    "cross.",
    "Peer to peer: one frame for each node that wants the event. Router: the same frames, each through one router, as "
    "Headwater does it where nodes cannot reach each other. Centralised: every event goes to one centre, which sends a "
    "frame to each node that wants it; filtered: only events that somebody wants go to the centre.",
    "Tree: a site's nodes are peers; a gateway joins each site to a federation of neighbouring sites, and so on, with "
    "at most as many gateways in a federation as the fan-out. A gateway takes an event up if a node outside wants it, "
    "and down if one inside does. Gateways are nodes beside the N.",
    "Multicast: an event that any other node wants is one datagram to all nodes of the group, which is of all nodes "
    "with a subscription or, by site, of those of the site and of all that are everywhere; receivers drop what they do "
    "not want. A share of the datagrams is lost at each receiver that wants them and comes again over its stream. The "
    "network copies datagrams at no cost, which few networks beyond one site do.",
    "Costs per event and frame are those measured, and do not grow with the number of links or interests; events are "
    "sent one by one. Latency is for an idle federation: hops, and sends one after the other; there are no queues, so "
    "it means nothing where something is beyond its limit. In a tree it is an upper bound: through the top, and the "
    "last of all ways at each gateway.",
    "All nodes stay. Acknowledgements, keep-alives, and the headers of TCP, UDP and IP are not counted.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who wants what: every `kept`-th subscription is there, for its own site; every `everywhere`-th of all (0: none)
    that is there is for all sites."""

    name: str
    kept: int = 1
    everywhere: int = 0

    def __post_init__(self) -> None:
        for what, least in (("kept", 1), ("everywhere", 0)):
            found = getattr(self, what)
            if not isinstance(found, int) or not least <= found <= 100_000:
                place = f"scenario {self.name!r}: {what}"
                raise ConfigError([ConfigProblem(place, f"a number from {least} to 100,000", repr(found))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of one event, in seconds of a processor, seconds, and bytes.

    publish    at its source, however many want it
    send       for each frame
    receive    at the node that wants it, until its handler has returned
    discard    of a datagram that a node gets and does not want
    forward    at a gateway or centre that takes it in to pass it on; each frame that it sends is a `send`
    relay      of a frame that goes through a router
    hop        latency from publishing until the handler of another node has it
    frame      bytes around the record; `datagram` more bytes of a datagram
    loss       share of datagrams that a receiver misses
    """

    publish: float
    send: float
    receive: float
    discard: float
    forward: float
    relay: float
    hop: float
    frame: int = FRAME
    datagram: int = DATAGRAM
    loss: float = 0.001

    def __post_init__(self) -> None:
        for field in fields(self):
            found = getattr(self, field.name)
            if not isinstance(found, int | float) or not 0 <= found < float("inf"):
                raise ConfigError([ConfigProblem(f"costs: {field.name}", "a number from 0", repr(found))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The most that any one node has to do in the time of the recording. The four need not be of the same node."""

    cpu: float = 0.0  # seconds
    bytes: float = 0.0  # sent, or received, whichever is more
    sent: float = 0.0  # frames and datagrams
    received: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A federation of `nodes` nodes in the time of the recording.

    published    events; `wanted`: of them by any other node
    delivered    events to nodes that want them, each once
    messages     frames and datagrams sent, on every leg of their way; `bytes` of them
    source_messages, source_bytes    of them by the nodes that publish
    received     frames and datagrams that the nodes take in, with those that they drop
    others       nodes beside the N: a centre, a router, gateways
    node, other  the busiest of the nodes, and of the others
    latency      until the last node has an event, on average of those that any wants; None if none is wanted
    seconds      of the recording
    """

    nodes: int
    scenario: str
    topology: Topology
    published: int
    wanted: int
    delivered: int
    messages: float
    bytes: float
    source_messages: float
    source_bytes: float
    received: float
    others: int
    node: Load
    other: Load
    latency: float | None
    seconds: float

    @property
    def busiest(self) -> Load:
        """Of all nodes."""
        return Load(
            cpu=max(self.node.cpu, self.other.cpu),
            bytes=max(self.node.bytes, self.other.bytes),
            sent=max(self.node.sent, self.other.sent),
            received=max(self.node.received, self.other.received),
        )

    def faster(self, rate: float) -> float:
        """How many times as fast as recorded it is where each node publishes `rate` events a second."""
        return rate * self.nodes * self.seconds / self.published if self.published else 0.0
