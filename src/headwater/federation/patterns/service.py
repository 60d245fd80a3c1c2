"""The service `patterns` of a node: its named patterns are kept when it closes, and those that other nodes have asked
it to run are run, changed, told of, handed over and ended.

A pattern of another node runs here because all its events are here, and only its matches are to cross. It is checked as
one's own is, and besides: its node must be allowed to subscribe to its channels and to install what runs there, and to
advertise the channel of its results; what a policy restricts is put before its atoms; it has the limits that this
node's owner has set (`Config.patterns`), and ends when its node has been away for longer than a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater import runnable
from headwater.channel.services import Service
from headwater.errors import HeadwaterError
from headwater.federation.control_events import owns
from headwater.federation.security.policy import Restrict
from headwater.federation.wire.pattern_requests import (
    MAX_STATE,
    PAGE_BYTES,
    ChangePattern,
    PatternChanged,
    PatternIs,
    PatternPage,
    PatternReport,
    PatternRuns,
    PatternState,
    PatternStopped,
    RunPattern,
    StopPattern,
    pack_values,
)
from headwater.federation.wire.requests import Accepted, unpack_params
from headwater.services.policy.conjunction import restricted

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers
    from headwater.interest import Interest
    from headwater.patterns.pattern import Pattern

log = logging.getLogger("headwater.federation")
PATTERN = "pattern"
LOOK_SECONDS = 0.5  # between two looks at leases
STATE_SECONDS = 60.0  # for which a state that was to be handed over is kept for who goes on with it
ERROR_CHARACTERS = 2000  # of a refusal


class _Refused(Exception):
    """A pattern is not run here, and why."""


def load(data: bytes, params: Mapping[str, Any]) -> Pattern:
    """A pattern as it was sent; the bytes may come from anyone."""
    from headwater.patterns.pattern import Pattern  # late: few nodes have a pattern

    return Pattern.loads(data, params)


runnable.register(PATTERN, load)


@dataclass(slots=True)
class Foreign:
    """A pattern that another node has asked for. `owner` is that node's id."""

    owner: str
    made: Any
    fingerprint: bytes
    params: bytes
    since: int
    lease: float
    away: float | None = None  # since when its node is not there
    judged: Callable[[], Any] = lambda: None  # what policies restrict it to now,
    limits: Any = None  # and by which it was made
    channels: tuple[str, ...] = ()

    def stays(self) -> bool:
        """Whether policies still say of it what they said when it was made."""
        try:
            return bool(self.judged() == self.limits)
        except (_Refused, HeadwaterError):
            return False


class PatternService(Service):
    """Of one node. Requests come one at a time for each node that asks, in threads of the network."""

    name = "patterns"

    def __init__(self, node: Node, context: Context | None = None, peers: Peers | None = None) -> None:
        """A node without a network has no `context`: nobody asks it."""
        self._node, self._context, self._peers = node, context, peers
        self._foreign: dict[str, Foreign] = {}
        self.claims: dict[str, int] = {}  # patterns of this node that run here, and since when, in microseconds
        self._states: dict[tuple[str, str], tuple[float, bytes]] = {}  # by owner and name: since when, and what
        self.ended: dict[str, str] = {}  # foreign patterns that were ended here, and why
        if context is not None:
            context.scheduler.every(LOOK_SECONDS, self._look, wanted=lambda: bool(self._foreign or self._states))

    # ── with the node ──

    def _kept(self) -> list[Any]:
        return [each for each in list(self._node.subscriptions.values()) if hasattr(each, "finish")]

    @property
    def busy(self) -> bool:
        return bool(self._kept())

    def drain(self, until: float) -> None:
        """Write the state of all patterns once more, while everything still works."""
        for each in self._kept():
            each.finish(max(0.0, until - monotonic()))

    def report(self) -> Mapping[str, Any]:
        """Patterns of other nodes that run here, and those that were ended."""
        found = {name: {"for": each.owner, "since": each.since} for name, each in list(self._foreign.items())}
        return {"foreign": found, "ended": dict(self.ended)}

    # ── what other nodes ask ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return (
            (RunPattern, partial(self._answer, self._run)),
            (ChangePattern, partial(self._answer, self._change)),
            (PatternReport, partial(self._answer, self._tell)),
            (StopPattern, partial(self._answer, self._stop)),
            (PatternState, partial(self._answer, self._page)),
        )

    def _answer(self, answer: Callable[[Caller, Any], Any], caller: Caller, request: Any) -> Any:
        """What is refused is said to who asks."""
        try:
            return answer(caller, request)
        except (_Refused, HeadwaterError) as error:
            log.warning(
                "node %s: %s asks for pattern %r, and is refused: %s",
                self._node.name, caller.peer.name, request.name, error,
            )  # fmt: skip
            return Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS])

    def _run(self, caller: Caller, request: RunPattern) -> PatternRuns:
        """A pattern of another node: it runs from now on, or as it has."""
        running = self._foreign.get(request.name)
        if running is not None and running.owner != caller.peer.id:
            raise _Refused(f"pattern {request.name!r} has its home here, for node {running.owner}; name it otherwise")
        settings = self._node.config.patterns
        if running is None and len(self._foreign) >= settings.foreign:
            raise _Refused(f"it runs {settings.foreign} patterns of other nodes at most (Config.patterns.foreign)")
        pattern = self._read(request)
        if running is not None:
            if (running.fingerprint, running.params) == (pattern.fingerprint, request.params) and not request.fresh:
                running.away = None
                return PatternRuns(running.since, True)
            self._end(request.name, "another one was asked for", forget=True)
        assert self._context is not None
        with self._context.decisions.reading():
            begun = self._begin(caller, request, pattern)
            # A policy may have changed since it was asked, and have found this too early, or just now.
            while self._foreign.get(request.name) is not begun or not begun.stays():
                self._end(request.name, "a policy has changed what its node may have", forget=True)
                begun = self._begin(caller, request, pattern)
        self.ended.pop(request.name, None)
        keeping = getattr(begun.made, "_keeping", None)
        resumed = keeping is not None and keeping.resumed
        return PatternRuns(begun.since, resumed, [text[:1000] for text in begun.made.warnings[:100]])

    def _begin(self, caller: Caller, request: RunPattern, pattern: Pattern) -> Foreign:
        """As policies are now; from here on those that change find it."""
        narrowed = self._permitted(caller, pattern, request.to)
        begun = self._foreign[request.name] = Foreign(
            caller.peer.id,
            self._make(request, pattern, narrowed),
            pattern.fingerprint,
            request.params,
            self._node._stamp() // 1000,
            min(request.lease, self._node.config.patterns.lease),
            judged=lambda: _limits(self._permitted(caller, pattern, request.to)),
            limits=_limits(narrowed),
            channels=tuple(pattern.channels),
        )
        return begun

    def _read(self, request: RunPattern) -> Pattern:
        """What was sent, checked, with the limits of this node's owner."""
        assert self._context is not None
        most = self._context.network.budget.bytes
        size = len(request.pattern) + len(request.params)
        if size > most:
            raise _Refused(f"too large: it takes {size:,} bytes with its parameters, more than {most:,} (Budget.bytes)")
        params = unpack_params(request.params)
        if request.kind != PATTERN:
            runnable.loads(request.kind, request.pattern, params)
            raise _Refused(f"expected a pattern, found what is of the kind {request.kind!r}")
        from headwater.patterns.pattern import Pattern

        return Pattern.loads(request.pattern, params, limits=self._node.config.patterns.limits)

    def _permitted(self, caller: Caller, pattern: Pattern, to: str) -> dict[str, list[Interest]]:
        """By channel, what a policy restricts it to; _Refused if it may not be."""
        assert self._context is not None
        decisions = self._context.decisions
        narrowed: dict[str, list[Interest]] = {}
        for name in pattern.channels:
            if owns(name):
                raise _Refused(f"{name} is what this node says of itself")
            for action in ("subscribe", "install"):
                verdict = decisions.decide(caller.principal, action, name)
                if not verdict:
                    what = "not allowed to install code" if action == "install" else "not allowed"
                    raise _Refused(f"{name}: {what}: {verdict.why}")
                if isinstance(verdict, Restrict):
                    narrowed.setdefault(name, []).append(verdict.interest)
        verdict = decisions.decide(caller.principal, "advertise", to)
        if owns(to) or not verdict:
            raise _Refused(f"{to}: it may not publish its matches there: {getattr(verdict, 'why', '')}")
        here = {channel.name for channel in self._node.channels()}
        if missing := [name for name in pattern.channels if name not in here]:
            raise _Refused(f"expected its channels here, found none of the name {', '.join(missing)}")
        return narrowed

    def _make(self, request: RunPattern, pattern: Pattern, narrowed: Mapping[str, list[Interest]]) -> Any:
        from headwater.channel.patterns.creation import named

        def narrow(channel: str, wanted: Interest | None) -> Interest | None:
            for limit in narrowed.get(channel, ()):
                wanted = restricted(wanted, limit, self._node.channel(channel).type)
            return wanted

        return named(self._node, request.name, pattern, request.to, None, None, None, "time", narrow=narrow)

    def _of(self, caller: Caller, name: str) -> Foreign:
        """A pattern of who asks."""
        found = self._foreign.get(name)
        if found is None or found.owner != caller.peer.id:
            raise _Refused(f"it has no pattern {name!r} here")
        return found

    def _change(self, caller: Caller, request: ChangePattern) -> PatternChanged:
        found = self._of(caller, request.name)
        points = found.made.change(params=unpack_params(request.params))
        found.params = request.params
        return PatternChanged(points)

    def _tell(self, caller: Caller, request: PatternReport) -> PatternIs:
        """How a pattern is, to its node; to others, only that there is one, and since when."""
        found = self._foreign.get(request.name)
        if found is None:
            since = self.claims.get(request.name)
            return PatternIs(since is not None, "", b"", since or 0)
        if found.owner != caller.peer.id:
            return PatternIs(True, found.owner, b"", found.since)
        values = {name: _plain(value) for name, value in found.made.report().to_dict().items()}
        return PatternIs(True, found.owner, found.fingerprint, found.since, pack_values(values))

    def _stop(self, caller: Caller, request: StopPattern) -> PatternStopped:
        found = self._of(caller, request.name)
        if not request.hand_over:
            self._end(request.name, "its node has ended it", forget=True)
            return PatternStopped()
        state = found.made.hand_over()
        self._foreign.pop(request.name, None)
        if not state or len(state) > MAX_STATE:
            return PatternStopped(0, f"its state takes {len(state):,} bytes, and travels up to {MAX_STATE:,}")
        self._states[caller.peer.id, request.name] = monotonic(), state
        return PatternStopped(len(state))

    def _page(self, caller: Caller, request: PatternState) -> PatternPage:
        found = self._states.get((caller.peer.id, request.name))
        if found is None:
            raise _Refused(f"no state of pattern {request.name!r} is kept for it")
        data = found[1][request.after : request.after + PAGE_BYTES]
        if request.after + len(data) >= len(found[1]):
            self._states.pop((caller.peer.id, request.name), None)
        return PatternPage(data)

    def rejudge(self, concerns: Callable[[str], bool], backlog: bool) -> None:
        """Policies of these channels have changed, or where somebody is: what was made of events by others is not to be
        told any more. Whose pattern it is may ask for it again."""
        for name, each in list(self._foreign.items()):
            if not any(map(concerns, each.channels)):
                continue
            if not each.stays():
                log.warning("node %s: pattern %r of %s ends: a policy has changed", self._node.name, name, each.owner)
                self._end(name, "a policy has changed what its node may have", forget=True)

    # ── the end ──

    def _end(self, name: str, why: str, *, forget: bool) -> None:
        found = self._foreign.pop(name, None)
        if found is not None:
            self.ended[name] = why
            found.made.close(forget=forget)

    def _look(self) -> None:
        """End what nobody is there for, and forget states that nobody has fetched."""
        assert self._peers is not None
        now = monotonic()
        for name, each in list(self._foreign.items()):
            peer = self._peers.get(each.owner)
            if peer is not None and peer.gone is None:
                each.away = None
            elif each.away is None:
                each.away = now
            elif now - each.away > each.lease:
                log.warning("node %s: pattern %r ends: its node, %s, is away", self._node.name, name, each.owner)
                self._end(name, "its node was away for longer than its lease", forget=True)
        for key, (since, _) in list(self._states.items()):
            if now - since > STATE_SECONDS:
                self._states.pop(key, None)

    def stop(self) -> None:
        """Nothing runs for anybody any more."""
        self._foreign.clear()
        self._states.clear()


def _limits(narrowed: Mapping[str, list[Interest]]) -> Any:
    """By which restrictions are known from others."""
    return {name: [(each.fingerprint, dict(each.params)) for each in limits] for name, limits in narrowed.items()}


def _plain(value: Any) -> Any:
    """As it can travel: numbers and texts, what consists of them, and else in words."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value if isinstance(value, int | float | str | bytes | None) else str(value)


__all__ = ["PATTERN", "PatternService"]
