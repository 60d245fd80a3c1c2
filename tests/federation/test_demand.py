"""What is wanted of a channel, kept in step one interest at a time, held against what all at once gives."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.channel.node import Node
from headwater.federation.demand import wishes as wanted_module
from headwater.federation.demand.demand import NOTHING, Demand, Demands
from headwater.interest import Interest

TYPE = "level: i64, room: i64"
PEER: Any = SimpleNamespace(id="peer.1", name="peer")
COUNTING = "{ static int n = 0; n = n + 1; return n > 3; }"
WHERES = [
    None,
    COUNTING,
    *(f"level > {n % 4} and room == {n % 3}" for n in range(5)),
    *(f"level > {n}" for n in range(6)),
    *(f"room in ({n}, {n + 1})" for n in range(3)),
]


class Replica:
    """What another node has been told, change by change; it may miss any number of versions."""

    def __init__(self) -> None:
        self.told: Demand = NOTHING
        self.wishes: dict[int, Any] = {}
        self.names: set[str] = set()
        self.all_of_it = 0

    def follow(self, demands: Demands, demand: Demand) -> None:
        changed = demands.changed(demand, self.told) if self.told.wishes else None
        if changed is None:
            self.all_of_it += 1
            self.wishes, self.names = {}, set()
            changed = demands.everything(demand)
        for tag in changed.gone:
            self.wishes.pop(tag, None)
        self.wishes.update({wish.tag: wish for wish in changed.wishes})
        self.names = (self.names | set(changed.names)) - set(changed.gone_names)
        self.told = demand


def _facts(demands: Demands, channel: Any) -> tuple[Any, ...]:
    """All that is asked for, in a form in which two can be compared that count their tags differently."""
    demand = demands.of(channel, PEER)
    if demand.wanted is None:
        return ([], 0)
    wishes = demands.everything(demand).wishes
    programs = sorted(("" if w.program is None else Interest.loads(w.program).text, w.tagged, w.zones) for w in wishes)
    return programs, len(wishes), demand.reliable, demand.promises, demand.routes, demand.plain


@pytest.mark.parametrize("placement", ["source", "destination"])
@pytest.mark.parametrize("seed", range(8))
def test_step_by_step_leads_to_what_all_at_once_gives(
    placement: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanted_module, "WISHES_REMEMBERED", 4)
    chance = random.Random(seed)
    with Node("n") as node:
        channel = node.channel("t.c", TYPE)
        derived = channel.derive("t.d", "level > 2")
        demands = Demands(node, placement)
        node._wiring.rearranged = demands.touch
        replicas = [Replica() for _ in range(3)]
        alive: list[Any] = []
        for _ in range(60):
            if alive and chance.random() < 0.45:
                alive.pop(chance.randrange(len(alive))).cancel()
            else:
                at = derived if chance.random() < 0.15 else channel
                where = chance.choice(WHERES)
                options: dict[str, Any] = {"zones": chance.choice((None, None, "north"))}
                if where != COUNTING:
                    options["delivery"] = chance.choice(("reliable", "best_effort"))
                alive.append(at.subscribe(lambda event: None, where, **options))
            with node._wiring.lock:
                assert _facts(demands, channel) == _facts(Demands(node, placement), channel)
                demand = demands.of(channel, PEER)
                for replica in replicas:
                    if chance.random() < 0.5:
                        replica.follow(demands, demand)
                        now = {wish.tag: wish for wish in demands.everything(demand).wishes}
                        assert replica.wishes == now and len(now) == demand.wishes
        assert all(replica.all_of_it < 25 for replica in replicas)
