"""Questions for the state of nodes that are said to be there: asked without a thread that waits, few at a time.

A sign of life proves nothing, and anyone who reaches Zenoh can make any number of them. So what is asked because of one
has bounds of its own: so many questions are under way (`UNPROVEN_UNDER_WAY`), so many nodes wait to be asked
(`UNPROVEN_WAITING`; for more, those have to go that have not answered), each node is asked once at a time, and
ever less often. Half of the questions are for nodes that have never failed to answer. Nodes that have signed something
are asked beside that, and never wait for the others.

An honest node does not depend on being asked: it speaks first, in its roll call, and that is signed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from headwater.errors import FederationError, HeadwaterError

UNPROVEN_UNDER_WAY = 16
UNPROVEN_WAITING = 1024
PROVEN_UNDER_WAY = 64
FIRST_TIMEOUT_SECONDS, LONGEST_TIMEOUT_SECONDS = 2.0, 10.0  # for which an answer is waited for: at first, and at most
QUESTIONS_AT_ONCE, QUESTIONS_PER_SECOND = 16, 20  # what is new in a node that changes ever again
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 30.0  # until a node that has not answered is asked again


class Pace:
    """How often one node is asked what is new: at once, and if that goes on, `QUESTIONS_PER_SECOND` times a second."""

    __slots__ = ("_left", "_then")

    def __init__(self) -> None:
        self._left, self._then = float(QUESTIONS_AT_ONCE), monotonic()

    def wait(self) -> float:
        """Seconds until the next question."""
        now = monotonic()
        self._left = min(float(QUESTIONS_AT_ONCE), self._left + (now - self._then) * QUESTIONS_PER_SECOND)
        self._then = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / QUESTIONS_PER_SECOND  # it is asked once for all who wait until then


@dataclass(slots=True, eq=False)
class Inquiry:
    """What is wanted of one node: its state, of this version at least."""

    node: str
    incarnation: int
    version: int
    proven: bool  # the node has signed something, in this incarnation
    due: float
    anew: bool = False  # it is asked even if that is known: this may have changed meanwhile
    failures: int = 0
    under_way: bool = False

    @property
    def timeout(self) -> float:
        return (
            LONGEST_TIMEOUT_SECONDS
            if self.proven
            else min(LONGEST_TIMEOUT_SECONDS, FIRST_TIMEOUT_SECONDS * (1 << min(self.failures, 8)))
        )

    @property
    def pause(self) -> float:
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * (1 << min(self.failures - 1, 8)))


class Inquiries:
    """Of one node. Thread-safe.

    `ask(inquiry, answered)` asks, and calls `answered` later with the answer or an error; `heard` takes an answer, and
    says whether the next one is to be asked for at once; `wanted` says whether an inquiry still makes sense; `later`
    has something called after some seconds."""

    def __init__(
        self,
        ask: Callable[[Inquiry, Callable[[Any], None]], None],
        heard: Callable[[Any], bool],
        wanted: Callable[[Inquiry], bool],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._ask, self._heard, self._wanted, self._later = ask, heard, wanted, later
        self._inquiries: dict[tuple[str, bool], Inquiry] = {}  # by node, and whether it has proven something
        self._under_way = {False: 0, True: 0}
        self._unproven = 0  # of them, that have not
        self._failed: dict[str, None] = {}  # those that have not answered when they were asked, the first to fail first
        self._failing = 0  # of those under way that have proven nothing: which have failed before
        self._alarm = float("inf")  # when `_step` is called
        self._lock = threading.Lock()
        self.given_up = 0  # nodes that were not asked any more, because too many others were waiting

    def want(
        self, node: str, incarnation: int, version: int = 1, *, proven: bool, anew: bool = False, delay: float = 0.0
    ) -> None:
        """Ask a node for its state, some seconds from now, unless it has come by then (`anew`: in any case)."""
        due = monotonic() + delay
        with self._lock:
            key = node, proven
            found = self._inquiries.get(key)
            if found is None or incarnation != found.incarnation:
                if found is None and not proven and not self._make_room():
                    self.given_up += 1
                    return
                if found is not None and found.under_way:  # its answer, if there is one, is of another run
                    self._ended(found)
                self._unproven += found is None and not proven
                if not proven:
                    self._failed.pop(node, None)
                self._inquiries[key] = Inquiry(node, incarnation, version, proven, due, anew)
            else:
                found.version, found.anew = max(found.version, version), found.anew or anew
                if proven:
                    found.due = min(found.due, due)
            self._arm(due)

    @property
    def waiting(self) -> int:
        """Nodes that have proven nothing and are to be asked, or are being asked."""
        with self._lock:
            return self._unproven

    # Under the lock.

    def _make_room(self) -> bool:
        """Whether there is room for one more that has proven nothing: else one goes that has not answered, if there is
        one. This must be quick: somebody may make it necessary very often."""
        if self._unproven < UNPROVEN_WAITING:
            return True
        for node in self._failed:
            inquiry = self._inquiries[node, False]
            if not inquiry.under_way:  # as all but a few are not
                self._forget(inquiry)
                self.given_up += 1
                return True
        return False

    def _arm(self, due: float) -> None:
        """See to it that `_step` is called by then."""
        if due < self._alarm:
            self._alarm = due
            self._later(max(0.0, due - monotonic()), self._rang)

    def _next(self, now: float) -> Inquiry | None:
        """One that may be asked now; None if there is none, and then `_step` comes again when there may be one."""
        best: Inquiry | None = None
        soonest = float("inf")
        for each in self._inquiries.values():
            if each.under_way or not self._room(each):
                continue
            if each.due > now:
                soonest = min(soonest, each.due)
            elif best is None or (not each.proven, each.failures, each.due) < (
                not best.proven,
                best.failures,
                best.due,
            ):
                best = each
        if best is None and soonest < float("inf"):
            self._arm(soonest)
        return best

    def _room(self, inquiry: Inquiry) -> bool:
        if inquiry.proven:
            return self._under_way[True] < PROVEN_UNDER_WAY
        if self._under_way[False] >= UNPROVEN_UNDER_WAY:
            return False
        return not inquiry.failures or self._failing < UNPROVEN_UNDER_WAY // 2

    def _ended(self, inquiry: Inquiry) -> None:
        inquiry.under_way = False
        self._under_way[inquiry.proven] -= 1
        if inquiry.failures and not inquiry.proven:
            self._failing -= 1

    def _forget(self, inquiry: Inquiry) -> None:
        key = inquiry.node, inquiry.proven
        if self._inquiries.get(key) is inquiry:
            del self._inquiries[key]
            if not inquiry.proven:
                self._unproven -= 1
                self._failed.pop(inquiry.node, None)

    # Not under it.

    def _rang(self) -> None:
        with self._lock:
            self._alarm = float("inf")
        self._step()

    def _step(self) -> None:
        """Ask all that may be asked now."""
        while True:
            with self._lock:
                inquiry = self._next(monotonic())
                if inquiry is None:
                    return
                inquiry.under_way = True
                self._under_way[inquiry.proven] += 1
                if inquiry.failures and not inquiry.proven:
                    self._failing += 1
            if not self._wanted(inquiry):
                with self._lock:
                    if inquiry.under_way:
                        self._ended(inquiry)
                    self._forget(inquiry)
                continue
            try:
                self._ask(inquiry, partial(self._answered, inquiry))
            except HeadwaterError:  # there is no connection, or no more
                self._done(inquiry)

    def _answered(self, inquiry: Inquiry, result: Any) -> None:
        more = False
        try:
            if not isinstance(result, FederationError):
                inquiry.anew = False
                more = self._heard(result)
        finally:
            self._done(inquiry, more=more)
            self._step()

    def _done(self, inquiry: Inquiry, *, more: bool = False) -> None:
        inquiry.anew = inquiry.anew or more
        wanted = self._wanted(inquiry)
        with self._lock:
            if inquiry.under_way:
                self._ended(inquiry)
            if wanted and more:
                inquiry.failures, inquiry.due = 0, monotonic()
                return
            if not wanted:
                self._forget(inquiry)
                return
            inquiry.failures += 1
            inquiry.due = monotonic() + inquiry.pause
            if not inquiry.proven and self._inquiries.get((inquiry.node, False)) is inquiry:
                self._failed[inquiry.node] = None
            self._arm(inquiry.due)
