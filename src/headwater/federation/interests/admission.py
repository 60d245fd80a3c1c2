"""Whether this node's sources run an interest of another node: what it may do, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec.structs import replace

from headwater.channel.options.expression import Expression
from headwater.channel.registration import NOTHING
from headwater.channel.routing.limiter import Limiter
from headwater.errors import HeadwaterError
from headwater.federation.security.decisions import Claim, identity_of
from headwater.federation.security.policy import Action, Allow, Deny, Restrict, Verdict
from headwater.federation.security.rules import Principal
from headwater.federation.wire.library_requests import Named, unpack_named
from headwater.federation.wire.requests import Wish, WishRate, unpack_params, unpack_wish
from headwater.interest import Interest
from headwater.ir import walk
from headwater.match.lower import is_plain
from headwater.services.policy.conjunction import restricted

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry
    from headwater.federation.context import Context
    from headwater.federation.peers.table import Peers
    from headwater.federation.send.crossing import Crossing

RATE_SECONDS = 1.0  # over which the rate of a channel is measured


class Refused(Exception):
    """A wish is not granted, and why."""


class Asked(NamedTuple):
    """What somebody has asked for, as it was before policies had their say: they judge it anew when they change."""

    principal: Principal
    claim: Claim
    wish: Wish  # without its program
    wanted: Interest | None
    zones: frozenset[str] | None = None
    cost: int = 0
    size: int = 0  # in bytes
    text: str = ""
    label: str = ""
    limiter: Limiter | None = None  # of one that has a rate
    quota: Limiter | None = None  # of the user that it is for

    @property
    def user(self) -> str:
        """Whom it is for."""
        return user_of(self.principal, self.claim)


class Grant(NamedTuple):
    """A wish that was read and may run here. `hidden`: a policy lets nothing through for it at present, and why."""

    interest: Interest | None
    zones: frozenset[str] | None = None
    cost: int = 0
    size: int = 0  # in bytes
    text: str = ""
    label: str = ""  # the entry of a library that it is
    limit: Interest | None = None  # what policies restrict it to
    hidden: str = ""
    asked: Asked | None = None
    stamp: tuple[int, ...] = ()  # of the policies, and of where the user is, by which it was judged
    limiter: Limiter | None = None  # of one that has a rate
    quota: Limiter | None = None  # of the user that it is for


class NamedCode(Protocol):
    """Code that wishes name instead of having it: the shelf of the node's library."""

    def has(self, named: Named) -> bool:
        """Whether it is here, or comes with the wish."""
        ...

    def interest(self, named: Named, params: Mapping[str, Any]) -> tuple[Interest, int]:
        """The interest, with these values of its parameters, and the bytes of its code; raises if what is named is not
        here, or what came is not what was signed."""
        ...


class Granting:
    """Used under the wiring's lock, but for `read` and `lacks`."""

    named: NamedCode | None = None  # of a node that has a library

    def __init__(self, context: Context, peers: Peers) -> None:
        self._context, self._peers = context, peers
        self._rates: dict[Channel, tuple[float, int, float]] = {}  # when, how many events by then, events per second

    def read(self, principal: Principal, channel: Channel, wish: Wish) -> Grant:
        """What a wish says, and all that takes time to find out about it; raises if it cannot or may not run here.
        Where policies restrict what may be subscribed to, it is the wish so restricted. Needs no lock."""
        claim = Claim(wish.on_behalf_of, wish.device, wish.device_kind, wish.proof)
        stamp = self._context.decisions.stamp(user_of(principal, claim))
        verdict = self._ask(principal, "subscribe", channel, claim)
        if claim and not wish.tagged:
            raise Refused(f"what is for {wish.on_behalf_of!r} must come with a tag, so that nobody else gets it")
        granted = self._read(principal, channel, wish, claim)
        if wish.rate is not None:
            granted = self._rated(principal, channel, wish, claim, wish.rate, granted)
        bare = replace(wish, program=None, params=None, named=b"")
        asked = Asked(principal, claim, bare, granted.interest, *granted[1:6], granted.limiter, self._quota(claim))
        return self._restricted(asked, channel, verdict)._replace(stamp=stamp)

    def judge(self, asked: Asked, channel: Channel) -> Grant:
        """The same for what was read before: policies have changed since, or where somebody is. Needs no lock."""
        stamp = self._context.decisions.stamp(asked.user)
        verdict = self._ask(asked.principal, "subscribe", channel, asked.claim)
        return self._restricted(asked, channel, verdict)._replace(stamp=stamp)

    def _quota(self, claim: Claim) -> Limiter | None:
        """What the user may have of this node that a wish is for, at whichever nodes it asks."""
        if not claim.user:
            return None
        groups = self._context.decisions.groups_of(claim.user)
        return self._context.quotas.of(Principal(claim.user, "password", "", groups), "")

    def _rated(
        self, principal: Principal, channel: Channel, wish: Wish, claim: Claim, rate: WishRate, granted: Grant
    ) -> Grant:
        """With what lets no more pass than a rate says. How urgent events are may take code, for which the same holds
        as for that of an interest."""
        interest = granted.interest
        if not wish.tagged or not wish.tag:
            raise Refused("what has a rate must come with a tag, so that nobody else gets it")
        if interest is not None and interest.whole_at is not None:
            raise Refused("what is an event or a mark of one has no rate")
        if not rate.program:
            urgency = None if rate.priority is None else Expression(rate.priority, channel.type or NOTHING)
            return granted._replace(limiter=Limiter(rate.packed, urgency))
        type = channel.type if interest is None or interest.output is None else interest.output
        self._check_size(granted.size + len(rate.program))
        self._ask(principal, "install", channel, claim)
        program = Interest.loads(rate.program, {})
        self._check_parts(program)
        if type is None or program.type.record != type.record:
            raise Refused(f"what says how urgent events are is about other events than those of {channel.name}")
        urgency = Expression.of(program, type)
        return granted._replace(
            limiter=Limiter(rate.packed, urgency),
            cost=granted.cost + program.cost.estimated,
            size=granted.size + len(rate.program),
        )

    def nothing(self, asked: Asked, channel: Channel, why: str) -> Grant:
        """What is left where a policy cannot be said of what was asked for."""
        plain = _plain_grant(asked)
        return self._hidden(plain, channel, why)

    def is_current(self, grant: Grant) -> bool:
        """Whether it was judged by what holds now."""
        user = "" if grant.asked is None else grant.asked.user
        return grant.stamp == self._context.decisions.stamp(user)

    def _restricted(self, asked: Asked, channel: Channel, verdict: Verdict) -> Grant:
        """What policies leave of what was asked for."""
        plain = _plain_grant(asked)
        match verdict:
            case Deny(why=why):
                return self._hidden(plain, channel, f"not allowed: {why}")
            case Allow():
                return plain
            case Restrict() as limit:
                wanted = asked.wanted
                own = wanted is not None and not (limit.replaces and asked.wish.tagged and wanted.output is None)
                try:
                    interest = restricted(wanted if own else limit.wish, limit.interest, channel.type)
                except HeadwaterError as error:
                    raise Refused(f"not allowed: {limit.why}, which cannot be said here: {error}") from None
                interest.prepare()
                return plain._replace(interest=interest, cost=interest.cost.estimated, limit=limit.interest)

    def _hidden(self, plain: Grant, channel: Channel, why: str) -> Grant:
        """A wish that gets nothing, as long as the policies are what they are."""
        return plain._replace(interest=Interest("false", channel.type or NOTHING), cost=0, hidden=why)

    def _ask(self, principal: Principal, action: Action, channel: Channel, claim: Claim) -> Verdict:
        """What the node itself may, and what the one may for whom it says that it asks; Refused if that can only
        become otherwise by other rules."""
        verdict = self._context.decisions.decide(principal, action, channel.name, claim)
        if isinstance(verdict, Deny) and (verdict.lasting or action != "subscribe"):
            what = "not allowed to install code" if action == "install" else "not allowed"
            raise Refused(f"{what}: {verdict.why}")
        return verdict

    def _read(self, principal: Principal, channel: Channel, wish: Wish, claim: Claim) -> Grant:
        """What the wish itself says."""
        zones = frozenset(wish.zones) if wish.zones else None
        size = len(wish.program or b"") + len(wish.params or b"")
        interest, label = None, ""
        if wish.named and self.named is not None:
            named = unpack_named(wish.named)
            self._check_size(len(named.code) + size)
            interest, more = self.named.interest(named, unpack_params(wish.params))
            size, label = size + more, f"@{named.name}/{named.version}"
        self._check_size(size)
        if not label:
            interest = unpack_wish(wish)
        if interest is not None and not isinstance(interest, Interest):
            raise Refused(f"what is of the kind {wish.kind!r} does not run at a source of this node")
        if interest is None:
            return Grant(None, zones)
        if channel.type is None:
            raise Refused(f"channel {channel.name} carries bytes here, which no interest can look into")
        self._check_parts(interest)
        if interest.type.record != channel.type.record:
            interest = interest.on(channel.type)
        if (wish.tagged and wish.rate is None and not claim) or not _plain(channel, interest):
            self._ask(principal, "install", channel, claim)
        if wish.tagged and not wish.tag:
            raise Refused("what comes with a tag needs one that is not 0")
        if not wish.tagged and (interest.stateful or interest.output is not None or interest.contextual):
            raise Refused("an interest with state, output or context must come with a tag")
        _ = interest.fingerprint  # so that nobody waits for it, and for what follows, later
        interest.prepare()
        text = interest.text or str(interest)
        return Grant(interest, zones, interest.cost.estimated, size, f"{label}: {text}" if label else text, label)

    def lacks(self, wish: Wish) -> bool:
        """Whether a wish names code that is not here. Needs no lock."""
        return bool(wish.named) and self.named is not None and not self.named.has(unpack_named(wish.named))

    def _check_size(self, size: int) -> None:
        most = self._context.network.budget.bytes
        if size > most:
            raise Refused(
                f"too large: an interest takes {size:,} bytes with its parameters, more than {most:,} (Budget.bytes); "
                "make it smaller, ask for several, or give it placement at the destination"
            )

    def _check_parts(self, interest: Interest) -> None:
        most = self._context.network.budget.parts
        found = sum(1 for _ in islice(walk.all_expressions(interest.program.body), most + 1))
        if found > most:
            raise Refused(
                f"too large: an interest has more than {most:,} parts (Budget.parts); make it smaller, ask for "
                "several, use a set as a parameter, or give it placement at the destination"
            )

    def grant(self, crossing: Crossing, grant: Grant) -> Entry:
        """The entry of a wish that was read, if there is room in the budget for it; the wiring's lock is held."""
        if grant.interest is not None:
            self._check(crossing, grant)
        return self._context.wiring.entry(crossing.channel, grant.interest, zones=grant.zones)

    def _check(self, crossing: Crossing, grant: Grant) -> None:
        """What all would cost with this one, against what they may."""
        channel, budget, cost = crossing.channel, self._context.network.budget, grant.cost
        size = crossing.size + grant.size
        if size > budget.node_bytes:
            raise Refused(
                f"too large: the interests of this node in {channel.name} would take {size:,} bytes, more than "
                f"{budget.node_bytes:,} (Budget.node_bytes)"
            )
        mine = cost + crossing.cost
        others = [peer.crossings.get(channel.name) for peer in self._peers.everyone()]
        total = cost + sum(each.cost for each in others if each is not None)
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
        channels = self._context.node.channels()
        for channel in channels:
            seen = sum(source.seq for source in list(channel.sources.values()) if source.local)
            when, before, _ = self._rates.get(channel, (now, seen, 0.0))
            if now - when >= RATE_SECONDS or channel not in self._rates:
                self._rates[channel] = now, seen, max(0, seen - before) / (now - when) if now > when else 0.0
        there = set(channels)
        for gone in [each for each in self._rates if each not in there]:
            del self._rates[gone]


def user_of(principal: Principal, claim: Claim) -> str:
    """The user that somebody asks for, or is."""
    return claim.user or identity_of(principal).user


def _plain_grant(asked: Asked) -> Grant:
    """What was asked for, as if there were no policies."""
    given = asked.zones, asked.cost, asked.size, asked.text, asked.label
    return Grant(asked.wanted, *given, limiter=asked.limiter, quota=asked.quota, asked=asked)


def _plain(channel: Channel, interest: Interest) -> bool:
    """Whether it is nothing but comparisons, which a table answers: no code has to be made for it."""
    matcher: Any = channel.lineups[0].matcher
    return matcher is not None and matcher.takes(interest) and is_plain(interest)
