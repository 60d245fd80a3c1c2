"""The home of a trigger: hears its owners, decides time, gives zones.

To be persisted: `snapshot()`, with all that a method returns, before anything is sent or told. After a crash the owners
are asked for everything since the last decided time; their zones are withdrawn by that.

An `each`-trigger, and a condition of which nothing is certain in any box, get no zones: every change crosses. That is
the simple scheme, `zones=False`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec

from headwater.objects.zones.allotment import Allotment
from headwater.objects.zones.conditions import Condition, Verdict
from headwater.objects.zones.examination import Examination, Stretch
from headwater.objects.zones.messages import Alive, Effects, Fired, FromOwner, Known, Report, Unknown
from headwater.objects.zones.peer import Peer

SECOND = 1_000_000_000
LEASE_PARTS = 8  # how exactly it is known since when something waits
When = Literal["becomes", "each"]


class Terms(msgspec.Struct, frozen=True):
    """Times in nanoseconds. `lease`: of whom nothing is heard for so long, nothing is known. `retry`: when a question
    or a zone is sent again; a little more than it takes to be answered. `error`: how far owners' clocks may be from the
    true time."""

    lease: int = 10 * SECOND
    retry: int = SECOND
    error: int = 0


class Counts(msgspec.Struct):
    """What it cost and brought. `changes` of owners are what the simple scheme would have sent."""

    sent: int = 0
    received: int = 0
    heartbeats: int = 0  # of the links, which carry them anyway
    zones: int = 0
    questions: int = 0
    fired: int = 0
    unknown: int = 0  # nanoseconds, of what is over
    changes: int = 0

    @property
    def messages(self) -> int:
        """In both directions."""
        return self.sent + self.received

    @property
    def saved(self) -> int:
        """Messages that the simple scheme would have sent beyond these."""
        return max(0, self.changes - self.messages)


class CoordinatorState(msgspec.Struct, frozen=True):
    """What of a trigger's home survives."""

    term: int
    decided: int
    holds: Verdict
    before: Verdict
    unknown_since: int | None
    declared: bool
    counts: Counts


class Coordinator:
    """One trigger over the values of several owners. Its time begins with `now`; `begin` says what to send first."""

    def __init__(
        self,
        condition: Condition,
        now: int,
        *,
        terms: Terms | None = None,
        when: When = "becomes",
        zones: bool = True,
    ) -> None:
        self.condition = condition
        self.terms = terms or Terms()
        self.when = when
        self.counts = Counts()
        self.decided = now  # through when
        self._term = now
        self._holds: Verdict = None
        self._before: Verdict = None  # what held when time became unknown
        self._unknown_since: int | None = now + 1
        self._declared = False
        self._heard = deque[tuple[int, int]]()  # at what times something of later than what is decided was heard first
        self._counted: dict[str, int] = {}
        self._peers = self._make_peers(now, now)
        self._examination = Examination(condition, list(self._peers.values()), each=when == "each")
        self._allotment = Allotment(condition, list(self._peers.values())) if zones and when == "becomes" else None

    def _make_peers(self, start: int, now: int) -> dict[str, Peer]:
        return {name: Peer(name, len(values), start, now) for name, values in self.condition.owners.items()}

    # ── what survives ──

    def snapshot(self) -> CoordinatorState:
        """What has to be persisted with the effects."""
        counts = msgspec.structs.replace(self.counts)
        return CoordinatorState(
            self._term, self.decided, self._holds, self._before, self._unknown_since, self._declared, counts
        )

    @classmethod
    def restore(
        cls,
        condition: Condition,
        state: CoordinatorState,
        now: int,
        *,
        terms: Terms | None = None,
        when: When = "becomes",
        zones: bool = True,
    ) -> Coordinator:
        """After a crash: a new term, in which nothing is known of the owners after the last decided time."""
        self = cls(condition, state.decided, terms=terms, when=when, zones=zones)
        self._term = max(state.term + 1, now)
        self._holds, self._before, self._unknown_since = state.holds, state.before, state.unknown_since
        self._declared = state.declared
        self.counts = msgspec.structs.replace(state.counts)
        for peer in self._peers.values():
            peer.heard_at = now
        return self

    # ── what happens to it ──

    def begin(self, now: int) -> Effects:
        """Ask everybody; also after `restore`."""
        effects = Effects()
        for peer in self._peers.values():
            self._ask(peer, self.decided + 1, self.decided, now, effects)
        return effects

    def received(self, owner: str, message: FromOwner, now: int) -> Effects:
        """A message of an owner."""
        effects = Effects()
        peer = self._peers[owner]
        if isinstance(message, Alive):
            self.counts.heartbeats += 1
        else:
            self.counts.received += 1
        if isinstance(message, Report) and self._allotment is not None:
            self._allotment.ledger.reports += 1
        news = peer.received(message, self._term, now)
        if news is not None:
            self._examination.revisit(news)
            self._changes(peer)
            self._proceed(now, effects)
            self._declare(now, effects)
        return effects

    def tick(self, now: int) -> Effects:
        """Time passed: questions are put again, and time of which nothing is heard is declared unknown."""
        effects = Effects()
        for peer in self._peers.values():
            asked, missing = peer.asked, peer.missing_since
            if asked is not None and now - asked.at > self.terms.retry:
                self._ask(peer, asked.since, asked.through, now, effects)
            elif asked is None and missing is not None and now - missing > self.terms.retry:
                self._ask(peer, peer.heard + 1, peer.heard, now, effects)
        self._examination.revisit(self.decided)
        self._proceed(now, effects)
        self._declare(now, effects)
        return effects

    @property
    def holds(self) -> Verdict:
        """Whether it holds at the last decided time; None: that is not known."""
        return self._holds

    @property
    def unknown_since(self) -> int | None:
        """Since when nothing is known, if that has been declared."""
        return self._unknown_since if self._declared else None

    @property
    def gives_zones(self) -> bool:
        """Whether owners may be silent; else every change crosses."""
        return self._allotment is not None

    @property
    def peers(self) -> Sequence[Peer]:
        """What is known of each owner."""
        return list(self._peers.values())

    # ── deciding ──

    def _proceed(self, now: int, effects: Effects) -> None:
        for stretch in self._examination.decided(self.decided):
            self._decide(stretch, effects)
            self.decided = stretch.end
        for peer in self._peers.values():
            peer.timeline.forget(self.decided)
        self._note(now)
        if not all(peer.linked for peer in self._peers.values()):
            return
        doubtful = False
        if self.when == "becomes":
            for doubt in self._examination.doubts(self.decided, self._holds):
                doubtful = True
                for peer in doubt.peers:
                    if self._allotment is not None and not peer.reporting and peer.asked is None:
                        self._allotment.ledger.spent += 2  # it is asked because it is silent
                    self._ask(peer, doubt.time, doubt.time, now, effects)
        if not doubtful:
            self._allot(now, effects)

    def _decide(self, stretch: Stretch, effects: Effects) -> None:
        """Go on with what is certain of the next stretch of time, or with that nothing is."""
        if stretch.holds is None:
            if self._unknown_since is None:
                self._before, self._unknown_since = self._holds, stretch.start
            if not self._declared:
                effects.happenings.append(Unknown(self._unknown_since, "what happened is not known any more"))
                self._declared = True
            self._holds = None
            return
        was, late, earliest = self._holds, self._declared, stretch.start
        if self._unknown_since is not None:
            was, earliest = self._before, self._unknown_since
            self.counts.unknown += stretch.start - earliest
            effects.happenings.append(Known(earliest, stretch.start, stretch.holds))
        self._unknown_since, self._declared, self._holds = None, False, stretch.holds
        became = stretch.holds and was is False
        if became if self.when == "becomes" else stretch.holds and stretch.event:
            self.counts.fired += 1
            effects.happenings.append(Fired(stretch.start, earliest, self.terms.error, stretch.areas, late))

    def _declare(self, now: int, effects: Effects) -> None:
        """Say that the time after what is decided is unknown, if who would have to be heard is silent for too long, or
        has not told yet what it was asked."""
        if self._declared:
            return
        down = [peer for peer in self._peers.values() if self._is_down(peer, now)]
        why = ""
        if down and self._examination.blocked(self.decided, down):
            why = f"nothing is heard of {', '.join(peer.name for peer in down)}"
        elif self._heard and now - self._heard[0][0] > self.terms.lease:
            awaited = [peer.name for peer in self._peers.values() if peer.asked is not None or peer in down]
            why = f"what happened is still to be heard of {', '.join(awaited)}"
        if why:
            if self._unknown_since is None:
                self._before, self._unknown_since = self._holds, self.decided + 1
            self._declared = True
            effects.happenings.append(Unknown(self._unknown_since, why))

    def _note(self, now: int) -> None:
        """Remember since when what was heard waits to be decided, as exactly as a lease needs it."""
        heard, latest = self._heard, max(peer.heard for peer in self._peers.values())
        while heard and heard[0][1] <= self.decided:
            heard.popleft()
        if latest > self.decided and (not heard or now - heard[-1][0] > self.terms.lease // LEASE_PARTS):
            heard.append((now, latest))

    def _is_down(self, peer: Peer, now: int) -> bool:
        return peer.heard <= self.decided and now - peer.heard_at > self.terms.lease

    # ── asking and giving ──

    def _ask(self, peer: Peer, since: int, through: int, now: int, effects: Effects) -> None:
        """Ask, unless it is asked that already and there is still time to answer."""
        asked = peer.asked
        if asked is not None:
            in_time = now - asked.at <= self.terms.retry
            reached = max(asked.through, asked.at - 2 * self.terms.error)  # an answer is later than the question
            if in_time and asked.since <= since and through <= reached:
                return
            since, through = min(since, asked.since), max(through, asked.through)
        effects.messages.append((peer.name, peer.ask(self._term, since, through, now)))
        self.counts.sent += 1
        self.counts.questions += 1

    def _allot(self, now: int, effects: Effects) -> None:
        """New zones to who reports everything, if there is room; else others are asked how much they need of theirs."""
        if self._allotment is None:
            return
        plan = self._allotment.plan(now, self.terms.retry)
        for peer, area in plan.zones:
            effects.messages.append((peer.name, peer.give(self._term, area, now)))
            self.counts.sent += 1
            self.counts.zones += 1
        for peer in plan.questions:
            self._ask(peer, peer.heard + 1, peer.heard, now, effects)

    def _changes(self, peer: Peer) -> None:
        before = self._counted.get(peer.name, 0)
        self.counts.changes += max(0, peer.moves.changes - before)
        if self._allotment is not None:
            self._allotment.ledger.changes += max(0, peer.moves.changes - before)
        self._counted[peer.name] = peer.moves.changes
