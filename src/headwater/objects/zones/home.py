"""One trigger over values of several nodes, at its home: what it asks its owners, and what it believes of them."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headwater.objects.zones.coordinator import SECOND, Coordinator, CoordinatorState, Terms
from headwater.objects.zones.distribution import condition_of, forms_of, gives_zones
from headwater.objects.zones.explanation import explain
from headwater.objects.zones.messages import Alive, Answer, FromOwner, Happening, Moves, Report
from headwater.objects.zones.ranges import exactly

if TYPE_CHECKING:
    from headwater.objects.triggers.installed import Installed

AHEAD = 3_600 * SECOND  # by which an owner's clock may be ahead, at most: beyond, it is not believed
SAVED_LEASES = 6  # after which the state is written again, though nothing has happened
MOST_CHANGES = 1 << 53


class Home:
    """Of one trigger. `starting`: nothing is sent before its term is in the file. `waiting`: a turn is to write it."""

    def __init__(
        self,
        installed: Installed,
        fingerprint: bytes,
        state: CoordinatorState | None,
        after: int,
        now: int,
        terms: Terms,
    ) -> None:
        """`state` is what the file has of it; `after`, the last term of a life that does not count any more."""
        self.installed, self.fingerprint, self.terms = installed, fingerprint, terms
        self.name, self.number = installed.name, installed.number
        trigger = installed.trigger
        assert trigger.distributed is not None
        self.when = trigger.distributed.when
        self.condition = condition_of(trigger)
        self.forms = forms_of(trigger, self.condition)
        self.zones = gives_zones(trigger, self.condition)
        self.key = blake2b(fingerprint, digest_size=16, key=str(self.number).encode(), person=b"hw-zones").digest()
        self.happenings: list[Happening] = []
        self.refused: dict[str, str] = {}
        self._asked: dict[str, int] = {}
        self.written_at = now
        self._after = after
        self.restart(state, now)

    def restart(self, state: CoordinatorState | None, now: int) -> None:
        """With what the file has, as after a crash; or from the beginning."""
        options: dict[str, Any] = {"terms": self.terms, "when": self.when, "zones": self.zones}
        if state is None:
            self.coordinator = Coordinator(self.condition, max(now, self._after + 1), **options)
        else:
            self.coordinator = Coordinator.restore(self.condition, state, now, **options)
        self._after = max(self._after, self.coordinator.snapshot().term)
        self.happenings.clear()
        self.starting, self.waiting, self.broken = True, False, False

    def may_ask(self, node: str, now: int, *, patient: bool) -> bool:
        """Whether an owner may be asked again to measure something; who refuses, only after a while."""
        pause = self.terms.lease if patient else self.terms.retry // 2
        last = self._asked.get(node)
        if last is not None and now - last < pause:
            return False
        self._asked[node] = now
        return True

    def is_late(self, now: int) -> bool:
        """Whether it is time to write the state, so that not too much is asked for after a crash."""
        return not self.waiting and now - self.written_at > SAVED_LEASES * self.terms.lease

    def believable(self, node: str, message: FromOwner, now: int) -> bool:
        """Whether a message can be of an owner that does what it should: values of their types, in times that may have
        been. What it says of its own values beyond that, nobody else knows."""
        standing, latest = message.standing, now + AHEAD
        if not (0 <= standing.life <= latest and 0 <= standing.stamp <= latest and 0 <= standing.entered <= latest):
            return False
        if not (0 <= standing.count < MOST_CHANGES and 0 <= standing.epoch < MOST_CHANGES):
            return False
        part = self.condition.parts[node]
        match message:
            case Report(values=values, moves=moves):
                return _counted(moves, len(part.names)) and part.fits(exactly(values))
            case Answer(since=since, items=items, moves=moves):
                timely = 0 <= since <= latest and all(0 <= item.start <= latest for item in items)
                return timely and _counted(moves, len(part.names)) and all(part.fits(item.area) for item in items)
            case Alive():
                return True

    def explain(self) -> str:
        """Who evaluates which part, where everybody may be, and what it has cost."""
        lines = ["  decided over several nodes; its home is this one"]
        for node in self.forms:
            part = self.condition.parts[node]
            names = part.names
            alone, told = names[: len(part.local)], names[len(part.local) :]
            lines += [f"    {node} alone decides {each}: only changes of its truth cross" for each in alone]
            if told:
                lines.append(f"    {node} tells {', '.join(told)}")
        if self.condition.shared is not None:
            lines.append(f"    home decides the rest{'' if self.zones else ', of every change'}")
        lines += [f"    {node} refuses: {why}" for node, why in self.refused.items()]
        return "\n".join(lines + [f"  {line}" for line in explain(self.coordinator).splitlines()])

    def report(self) -> dict[str, Any]:
        """What it has cost and brought, as plain values; times in microseconds since 1970, by the owners' clocks."""
        counts, unknown = self.coordinator.counts, self.coordinator.unknown_since
        return {
            "scheme": "zones" if self.zones else "simple",
            "holds": self.coordinator.holds,
            "decided": self.coordinator.decided // 1000,
            "unknown_since": None if unknown is None else unknown // 1000,
            "unknown_seconds": counts.unknown / SECOND,
            "messages": counts.messages,
            "sent": counts.sent,
            "received": counts.received,
            "heartbeats": counts.heartbeats,
            "zones": counts.zones,
            "questions": counts.questions,
            "changes": counts.changes,
            "saved": counts.saved,
            "refused": dict(self.refused),
        }


def _counted(moves: Moves, width: int) -> bool:
    sound = 0 <= moves.changes < MOST_CHANGES and len(moves.squares) == width
    return sound and all(math.isfinite(each) and each >= 0 for each in moves.squares)


__all__ = ["Home"]
