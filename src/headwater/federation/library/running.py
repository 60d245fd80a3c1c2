"""What runs at a node: interests of its own sinks and of other nodes, patterns and triggers; what each costs and has
done, which entry of a library it is, and who asked for it.

A node that asks another one is told of what it has asked for itself. Of what others have, its own sinks included, it is
told on channels on which it has the right "inspect".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
Sees = Callable[["Peer | None", list[str]], bool]  # whether what somebody (None: the node) asks of channels may be seen
TRIGGERS = "objects.triggers"  # on which one must have the right to be told of triggers


class Running:
    """Of one node."""

    def __init__(self, node: Node, context: Context | None, peers: Peers | None) -> None:
        self._node, self._context, self._peers = node, context, peers

    def rows(self, channels: str = "**") -> list[RunningRow]:
        """All that runs here, by channel."""
        return self._all(NamePattern(channels), lambda peer, names: True)

    def answer(self, caller: Caller, request: ListRunning) -> RunningPage:
        """As much of it as a caller may know."""
        assert self._context is not None
        security, decisions, may = self._context.security, self._context.decisions, dict[str, bool]()

        def sees(peer: Peer | None, names: list[str]) -> bool:
            for name in names:
                if name not in may:
                    may[name] = bool(decisions.decide(caller.principal, "inspect", name))
            return peer is caller.peer or all(may[name] for name in names)

        known = self._all(NamePattern(request.channels), sees)
        page = known[request.skip : request.skip + MOST_RUNNING]
        more = len(known) > request.skip + len(page)
        hidden = security.decides or security.proves or any(True for _ in decisions.book)
        return RunningPage(page, more, hidden=hidden)

    def _all(self, wanted: NamePattern, sees: Sees) -> list[RunningRow]:
        """Rows on channels that are wanted, and that may be seen: what may not is not even looked at."""
        found = [*self._own(wanted, sees), *self._others(wanted, sees)]
        if sees(None, [TRIGGERS]):
            found += [row for row in self._triggers() if wanted.text == "**" or wanted.matches(TRIGGERS)]
        return sorted(found, key=lambda row: (row.channel, row.what, row.asked_by))

    def _own(self, wanted: NamePattern, sees: Sees) -> Iterator[RunningRow]:
        """Of this node's sinks."""
        for subscription in list(self._node.subscriptions.values()):
            names = [asked.text for asked in list(subscription._asked)]
            if not any(_fits(wanted, name) for name in names) or not sees(None, names):
                continue
            counts = subscription.counts
            numbers = counts.evaluated, counts.passed, counts.undecided
            pattern = getattr(subscription, "pattern", None)
            if pattern is not None:
                yield self._row(
                    ", ".join(pattern.channels), _what(pattern.origin, pattern.text), "pattern",
                    f"{self._node.name}: pattern {subscription.name}", len(pattern.dumps()), pattern.cost.estimated,
                    numbers, print=pattern.fingerprint,
                )  # fmt: skip
                continue
            yield from self._parts(subscription, numbers)

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

    def _others(self, wanted: NamePattern, sees: Sees) -> Iterator[RunningRow]:
        """What other nodes have this one's sources run."""
        for peer in [] if self._peers is None else self._peers.everyone():
            who = f"{peer.name}: {peer.principal}" if peer.principal is not None else peer.name
            for crossing in list(peer.crossings.values()):
                name = crossing.channel.name
                if not _fits(wanted, name) or not sees(peer, [name]):
                    continue
                with self._node._wiring.lock:
                    told = crossing.counting.told().counts
                    wishes = [(tag, entry.interest) for tag, (entry, _) in crossing.wishes.items()]
                    labels, sizes, costs = dict(crossing.labels), dict(crossing.sizes), dict(crossing.costs)
                for tag, interest in wishes:
                    evaluated, passed, undecided, how, why = told.get(tag, (-1, -1, -1, "", ""))
                    what, kind = _said(interest)
                    yield self._row(
                        name, labels.get(tag, what), kind, who, sizes.get(tag, 0), costs.get(tag, 0),
                        (evaluated, passed, undecided), f"{how}: {why}" if why else how,
                        b"" if interest is None else interest.fingerprint,
                    )  # fmt: skip

    def _triggers(self) -> Iterator[RunningRow]:
        service: Any = self._node.services.get("objects")
        engine = getattr(service, "engine", None)
        for each in [] if engine is None else list(engine.triggers.registry):
            counts = each.counts
            labels: dict[str, Any] = getattr(service, "_named_triggers", {})
            text = f"{each.trigger.when} {each.trigger.where}".strip()
            yield self._row(
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


def _fits(wanted: NamePattern, channel: str) -> bool:
    """Whether a channel is meant; those of every node's own are not."""
    return not channel.startswith(HIDDEN) and wanted.matches(channel)


__all__ = ["Running"]
