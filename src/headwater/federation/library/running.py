"""What runs at a node: interests of its own sinks and of other nodes, patterns and triggers; what each costs and has
done, which entry of a library it is, and who asked for it.

A node that asks another one is told of what it has asked for itself. Of what others have, its own sinks included, it is
told on channels on which it has the right "inspect".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.channel.names import Pattern as NamePattern
from headwater.federation.wire.library_requests import MAX_SAID, MOST_RUNNING, ListRunning, RunningPage, RunningRow
from headwater.interest import Interest

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers

HIDDEN = "headwater."  # channels of every node's own, of which nothing is told
TRIGGERS = "objects.triggers"  # on which one must have the right to be told of triggers


class Running:
    """Of one node."""

    def __init__(self, node: Node, context: Context | None, peers: Peers | None) -> None:
        self._node, self._context, self._peers = node, context, peers

    def rows(self, channels: str = "**") -> list[RunningRow]:
        """All that runs here, by channel."""
        return [row for _, row in self._all(NamePattern(channels))]

    def answer(self, caller: Caller, request: ListRunning) -> RunningPage:
        """As much of it as a caller may know."""
        assert self._context is not None
        security, may = self._context.security, dict[str, bool]()
        known: list[RunningRow] = []
        for peer, row in self._all(NamePattern(request.channels)):
            names = _rights(row)
            for name in names:
                if name not in may:
                    may[name] = bool(security.decide(caller.principal, "inspect", name))
            if peer is caller.peer or all(may[name] for name in names):
                known.append(row)
        page = known[request.skip : request.skip + MOST_RUNNING]
        more = len(known) > request.skip + len(page)
        return RunningPage(page, more, hidden=security.decides or security.proves)

    def _all(self, wanted: NamePattern) -> list[tuple[Peer | None, RunningRow]]:
        found = [*self._own(), *self._others(), *self._triggers()]
        kept = [(peer, row) for peer, row in found if not row.channel.startswith(HIDDEN) and _fits(wanted, row.channel)]
        return sorted(kept, key=lambda each: (each[1].channel, each[1].what, each[1].asked_by))

    def _own(self) -> Iterator[tuple[None, RunningRow]]:
        """Of this node's sinks."""
        for subscription in list(self._node.subscriptions.values()):
            counts = subscription.counts
            numbers = counts.evaluated, counts.passed, counts.undecided
            pattern = getattr(subscription, "pattern", None)
            if pattern is not None:
                yield None, self._row(
                    ", ".join(pattern.channels), _what(getattr(subscription, "origin", None), pattern.text), "pattern",
                    f"{self._node.name}: pattern {subscription.name}", len(pattern.dumps()), pattern.cost.estimated,
                    numbers, print=pattern.fingerprint,
                )  # fmt: skip
                continue
            yield from ((None, row) for row in self._parts(subscription, numbers))

    def _parts(self, subscription: Subscription, numbers: tuple[int, int, int]) -> Iterator[RunningRow]:
        for asked in list(subscription._asked):
            where: Any = asked.where
            if not isinstance(where, Interest):  # as it runs, since its type is that of the channel
                attached = list(subscription._attachments.values())
                where = next((each.entry.interest for each in attached if asked.wants(each.channel)), None)
            alone = len(subscription._asked) == 1
            yield self._row(
                asked.text, *_said(where), f"{self._node.name}: subscription {subscription.name}", *_costs(where),
                numbers if alone else (-1, -1, -1), print=b"" if where is None else where.fingerprint,
            )  # fmt: skip

    def _others(self) -> Iterator[tuple[Peer, RunningRow]]:
        """What other nodes have this one's sources run."""
        for peer in [] if self._peers is None else self._peers.everyone():
            who = f"{peer.name}: {peer.principal}" if peer.principal is not None else peer.name
            for crossing in list(peer.crossings.values()):
                with self._node._wiring.lock:
                    told = crossing.counting.told().counts
                    wishes = [(tag, entry.interest) for tag, (entry, _) in crossing.wishes.items()]
                    labels, sizes, costs = dict(crossing.labels), dict(crossing.sizes), dict(crossing.costs)
                for tag, interest in wishes:
                    evaluated, passed, undecided, how, why = told.get(tag, (-1, -1, -1, "", ""))
                    what, kind = _said(interest)
                    yield peer, self._row(
                        crossing.channel.name, labels.get(tag, what), kind, who, sizes.get(tag, 0), costs.get(tag, 0),
                        (evaluated, passed, undecided), f"{how}: {why}" if why else how,
                        b"" if interest is None else interest.fingerprint,
                    )  # fmt: skip

    def _triggers(self) -> Iterator[tuple[None, RunningRow]]:
        service: Any = self._node.services.get("objects")
        engine = getattr(service, "engine", None)
        for each in [] if engine is None else list(engine.triggers.registry):
            counts = each.counts
            labels: dict[str, Any] = getattr(service, "_named_triggers", {})
            text = f"{each.trigger.when} {each.trigger.where}".strip()
            yield None, self._row(
                ", ".join(map(str, each.trigger.on)), _what(labels.get(each.trigger.name), text), "trigger",
                f"{self._node.name}: trigger {each.trigger.name}", 0, 0, (counts.evaluated, counts.fired, -1),
                print=each.trigger.fingerprint,
            )  # fmt: skip

    def _row(
        self,
        channel: str,
        what: str,
        kind: str,
        who: str,
        size: int,
        cost: int,
        numbers: tuple[int, int, int],
        how: str = "",
        print: bytes = b"",
    ) -> RunningRow:
        return RunningRow(
            channel[:MAX_SAID], what[:MAX_SAID], kind, who[:MAX_SAID], size, cost, *numbers, how[:MAX_SAID], print
        )


def _said(interest: Any) -> tuple[str, str]:
    """What an interest is called, or says; and its kind."""
    if interest is None:
        return "everything", "interest"
    return _what(interest.origin, interest.text or str(interest)), "interest"


def _what(origin: Any, text: str) -> str:
    return str(origin) if origin is not None else " ".join(text.split())


def _costs(interest: Any) -> tuple[int, int]:
    return (0, 0) if interest is None else (len(interest.dumps()), interest.cost.estimated)


def _rights(row: RunningRow) -> list[str]:
    """The channels that one must have the right to inspect. A pattern of names is only had by who has all of it."""
    return [TRIGGERS] if row.kind == "trigger" else row.channel.split(", ")


def _fits(wanted: NamePattern, channels: str) -> bool:
    """Whether one of these channels, or of what a trigger listens to, is meant."""
    return wanted.text == "**" or any(wanted.matches(each) for each in channels.split(", "))


__all__ = ["Running"]
