"""Whether this node's sources run an interest of another node: what it may do, and what that costs."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.federation.messages import Wish, unpack_interest
from headwater.interest import Interest
from headwater.match.lower import is_plain

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.route import Entry
    from headwater.federation.crossing import Crossing
    from headwater.federation.engine import Engine
    from headwater.federation.rules import Principal

PERIOD = 1.0  # seconds over which the rate of a channel is measured


class Refused(Exception):
    """A wish is not granted, and why."""


class Granting:
    """Used under the wiring's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rates: dict[Channel, tuple[float, int, float]] = {}  # when, how many events by then, events per second

    def grant(self, principal: Principal, crossing: Crossing, wish: Wish) -> tuple[Entry, int]:
        """The entry of a wish and what it costs; raises if it cannot or may not run here."""
        channel, wiring = crossing.channel, self._engine.node.wiring
        interest = unpack_interest(wish.program, wish.params)
        zones = frozenset(wish.zones) if wish.zones else None
        if interest is None:
            return wiring.entry(channel, None, zones=zones), 0
        if channel.type is None:
            raise Refused(f"channel {channel.name} carries bytes here, which no interest can look into")
        if interest.type.record != channel.type.record:
            interest = interest.on(channel.type)
        if wish.tagged or not _plain(channel, interest):
            decision = self._engine.security.allows(principal, "install", channel.name)
            if not decision:
                raise Refused(f"not allowed to install code: {decision.why}")
        if wish.tagged and not wish.tag:
            raise Refused("what comes with a tag needs one that is not 0")
        if not wish.tagged and (interest.program.stateful or interest.output is not None):
            raise Refused("an interest with state or output must come with a tag")
        cost = interest.cost.estimated
        self._check(crossing, cost)
        return wiring.entry(channel, interest, zones=zones), cost

    def _check(self, crossing: Crossing, cost: int) -> None:
        """What all would cost with this one, against what they may."""
        channel, budget = crossing.channel, self._engine.network.budget
        mine = cost + sum(crossing.costs.values())
        others = [peer.crossings.get(channel.name) for peer in self._engine.everyone()]
        total = cost + sum(sum(each.costs.values()) for each in others if each is not None)
        for what, found, most in (("this node", mine, budget.each), ("all nodes", total, budget.total)):
            if found > most:
                raise Refused(
                    f"too costly: the interests of {what} in {channel.name} would take about {found:,} native "
                    f"operations an event, more than {most:,}"
                )
        rate = self.rate(channel)
        if rate * total > budget.load:
            raise Refused(
                f"too loaded: at {rate:,.0f} events/s the interests of all nodes in {channel.name} would take about "
                f"{rate * total:,.0f} native operations a second, more than {budget.load:,}"
            )

    def rate(self, channel: Channel) -> float:
        """How many events a second the channel's own sources publish, as measured last."""
        found = self._rates.get(channel)
        return 0.0 if found is None else found[2]

    def measure(self) -> None:
        """Called now and then."""
        now = monotonic()
        channels = self._engine.node.channels()
        for channel in channels:
            seen = sum(source.seq for source in list(channel.sources.values()) if source.local)
            when, before, _ = self._rates.get(channel, (now, seen, 0.0))
            if now - when >= PERIOD or channel not in self._rates:
                self._rates[channel] = now, seen, max(0, seen - before) / (now - when) if now > when else 0.0
        for channel in [each for each in self._rates if each not in channels]:
            del self._rates[channel]


def _plain(channel: Channel, interest: Interest) -> bool:
    """Whether it is nothing but comparisons, which a table answers: no code has to be made for it."""
    matcher: Any = channel.lineups[0].matcher
    return matcher is not None and matcher.takes(interest) and is_plain(interest)
