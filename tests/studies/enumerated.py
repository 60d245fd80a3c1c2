"""A small federation, event by event and node by node: what the model of larger ones must come to as well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from headwater_studies.scale import Costs, Scenario
from headwater_studies.scale.recorded import Class, Recorded

Node = Any  # (site, role), or a gateway ("gateway", level, group), or "centre"


@dataclass
class Traffic:
    """What nodes send and take in, in one topology."""

    sent: Counter[Node] = field(default_factory=Counter)
    out: Counter[Node] = field(default_factory=Counter)
    got: Counter[Node] = field(default_factory=Counter)
    into: Counter[Node] = field(default_factory=Counter)
    late: float = 0.0

    def frame(self, a: Node, b: Node, events: int, size: int) -> None:
        self.sent[a] += events
        self.out[a] += size
        self.got[b] += events
        self.into[b] += size


class Enumerated:
    """All sites and nodes one by one."""

    def __init__(self, known: Recorded, nodes: int, scenario: Scenario, costs: Costs, fanout: int) -> None:
        self.known, self.costs, self.fanout = known, costs, fanout
        self.all = [(at // len(known.nodes), at % len(known.nodes)) for at in range(nodes)]
        self.sites = max(site for site, _ in self.all) + 1
        self.size = [sum(1 for site, _ in self.all if site == each) for each in range(self.sites)]
        self.asked: dict[Node, list[tuple[int, bool]]] = {node: [] for node in self.all}
        for site in range(self.sites):
            for j in range(len(known.subscriptions)):
                number = site * len(known.subscriptions) + j
                if number % scenario.kept == 0:
                    everywhere = scenario.everywhere > 0 and number % scenario.everywhere == 0
                    self.asked[site, known.place(j, self.size[site])].append((j, everywhere))
        self.published = self.wanted = self.delivered = 0
        self.by = {name: Traffic() for name in _RULES}
        self.useful: Counter[Node] = Counter()
        self.own: Counter[Node] = Counter()
        for node in self.all:
            for each in known.classes:
                if each.role == node[1]:
                    self.event(node, each)

    def wants(self, source: Node, each: Class) -> list[Node]:
        return [
            node
            for node, asked in self.asked.items()
            if node != source
            and any(j in each.matched and (everywhere or node[0] == source[0]) for j, everywhere in asked)
        ]

    def event(self, source: Node, each: Class) -> None:
        wanting = self.wants(source, each)
        self.published += each.events
        self.own[source] += each.events
        self.wanted += each.events if wanting else 0
        self.delivered += each.events * len(wanting)
        for node in wanting:
            self.useful[node] += each.events
        size = each.bytes + self.costs.frame * each.events
        for name, rule in _RULES.items():
            traffic = self.by[name]
            late = rule(self, traffic, source, wanting, each.events, size)
            traffic.late += late * each.events if wanting else 0.0

    # ── topologies ──

    def peers(self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int) -> float:
        for node in wanting:
            t.frame(source, node, n, x)
        return self.costs.hop + self.costs.send * (len(wanting) - 1)

    def router(self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int) -> float:
        for node in wanting:
            t.frame(source, "centre", n, x)
            t.frame("centre", node, n, x)
        return 2 * self.costs.hop + self.costs.send * (len(wanting) - 1)

    def centre(self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int) -> float:
        t.frame(source, "centre", n, x)
        for node in wanting:
            t.frame("centre", node, n, x)
        return 2 * self.costs.hop + self.costs.send * (len(wanting) - 1)

    def filtered(self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int) -> float:
        return self.centre(t, source, wanting, n, x) if wanting else 0.0

    def group(self, site: int, level: int) -> int:
        return int(site // self.fanout ** (level - 1))

    @property
    def height(self) -> int:
        level = 1
        while self.group(self.sites - 1, level) > 0:
            level += 1
        return level

    def tree(self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int) -> float:
        near = [node for node in wanting if node[0] == source[0]]
        for node in near:
            t.frame(source, node, n, x)
        sites = {node[0] for node in wanting if node[0] != source[0]}
        if not sites:
            return self.costs.hop + self.costs.send * (len(near) - 1)
        self.up(t, source, 1, source[0], wanting, n, x)
        # The bound on the latency: everything that is everywhere, the source's own site with it.
        far = Counter(node[0] for node in self.all if self._everywhere(node, source, n, x))
        ways = min(self.fanout, len(far))
        serial = len(near) + (ways - 1) * (2 * self.height - 3) + max(far.values()) - 1
        return (2 * self.height - 1) * self.costs.hop + self.costs.send * serial

    def _everywhere(self, node: Node, source: Node, n: int, x: int) -> bool:
        each = next(
            c
            for c in self.known.classes
            if c.role == source[1] and c.events == n and c.bytes + self.costs.frame * n == x
        )
        return any(everywhere and j in each.matched for j, everywhere in self.asked[node])

    def up(self, t: Traffic, by: Node, level: int, site: int, wanting: list[Node], n: int, x: int) -> None:
        """From within a group to its gateway, which sends to all in the next federation that lead to somebody."""
        here = ("gateway", level, self.group(site, level))
        t.frame(by, here, n, x)
        parent = self.group(site, level + 1)
        beside = {
            self.group(node[0], level)
            for node in wanting
            if self.group(node[0], level + 1) == parent and self.group(node[0], level) != self.group(site, level)
        }
        for other in beside:
            self.down(t, here, level, other, wanting, n, x)
        if any(self.group(node[0], level + 1) != parent for node in wanting):
            self.up(t, here, level + 1, site, wanting, n, x)

    def down(self, t: Traffic, by: Node, level: int, group: int, wanting: list[Node], n: int, x: int) -> None:
        here = ("gateway", level, group)
        t.frame(by, here, n, x)
        within = [node for node in wanting if self.group(node[0], level) == group]
        if level == 1:
            for node in within:
                t.frame(here, node, n, x)
            return
        for child in {self.group(node[0], level - 1) for node in within}:
            self.down(t, here, level - 1, child, wanting, n, x)

    def multicast(
        self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int, *, by_site: bool = False
    ) -> float:
        if not wanting:
            return 0.0
        loss = self.costs.loss
        t.sent[source] += n + loss * n * len(wanting)
        t.out[source] += x + self.costs.datagram * n + loss * x * len(wanting)
        for node, asked in self.asked.items():
            member = asked and (not by_site or node[0] == source[0] or any(everywhere for _, everywhere in asked))
            if member and node != source:
                t.got[node] += n
                t.into[node] += x + self.costs.datagram * n
        return self.costs.hop * (1 + 2 * (1 - (1 - loss) ** len(wanting)))

    def by_site(self, t: Traffic, source: Node, wanting: list[Node], n: int, x: int) -> float:
        return self.multicast(t, source, wanting, n, x, by_site=True)

    # ── what comes of it ──

    def cpu(self, topology: str, node: Node) -> float:
        t, costs = self.by[topology], self.costs
        if node == "centre" and topology == "router":
            return costs.relay * t.sent[node]
        if node not in self.own and node not in self.asked:
            return costs.forward * t.got[node] + costs.send * t.sent[node]
        return (
            costs.publish * self.own[node]
            + costs.send * t.sent[node]
            + costs.receive * self.useful[node]
            + costs.discard * (t.got[node] - self.useful[node])
        )


_RULES: dict[str, Any] = {
    "peer to peer": Enumerated.peers,
    "router": Enumerated.router,
    "centralised": Enumerated.centre,
    "centralised, filtered": Enumerated.filtered,
    "tree": Enumerated.tree,
    "multicast": Enumerated.multicast,
    "multicast by site": Enumerated.by_site,
}
