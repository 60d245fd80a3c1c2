"""Another version of an entry in the place of the one that runs: at an exact point of every source, which they confirm.

All subscriptions of a node that run some version of a name go on with another one, the older as well: a roll back is an
upgrade to a version before. First everything is checked, against each channel, with each subscription's parameters: if
one does not fit, nothing is changed. Then each subscription changes as by `subscription.change`: each source has one
last event that was judged by the old version. A subscription whose new version some source refuses to run goes on with
the old one, at all of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from headwater.channel.options.subscribe import interest_for
from headwater.channel.patterns.subscription import Matching
from headwater.errors import ClosedError, HeadwaterError, LibraryError
from headwater.federation.library.signing import RIGHTS
from headwater.federation.wire.library_requests import (
    MAX_ERROR,
    MAX_SAID,
    MOST_POINTS,
    MOST_UPGRADED,
    UpgradedAll,
    UpgradedRow,
    UpgradeEntry,
)
from headwater.interest import Interest, Origin
from headwater.services.library.reference import Reference

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.services.library.entry import LibraryEntry

MOST_ERRANDS = 64  # upgrades that were asked for by others, of which is remembered what became of them
SHOWN = 20  # problems, in an error


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What became of one subscription: which version it had, the last event of each source that was judged by that,
    and whether all nodes had taken up the new one by then (else a source may have changed later); or what is wrong, and
    then it goes on as it was."""

    subscription: str
    before: int
    points: dict[str, int] = field(default_factory=dict)
    acknowledged: bool = False
    error: str = ""


class Upgrader:
    """Of one node. `taken_up` says whether all nodes had taken up a subscription's last change."""

    def __init__(self, node: Node, context: Context | None, taken_up: Callable[[Subscription], bool]) -> None:
        self._node, self._context, self._taken_up = node, context, taken_up
        self._errands: OrderedDict[tuple[str, bytes], _Errand] = OrderedDict()
        self._lock = threading.Lock()
        self._one = threading.Lock()  # upgrade at a time

    def upgrade(self, entry: LibraryEntry, only: str | None = None) -> list[Upgraded]:
        """All subscriptions of this node that run another version of the same name, or only one of them.
        LibraryError with all that does not fit; then nothing was changed."""
        with self._one:
            todo = self._concerned(entry, only)
            self._check(todo, entry)
            return [self._change(subscription, part, entry) for subscription, part in todo]

    def _check(self, todo: list[tuple[Subscription, int]], entry: LibraryEntry) -> None:
        """All that does not fit, as one error."""
        each = ((subscription.name, self._misfit(subscription, part, entry)) for subscription, part in todo)
        problems = [f"{name}: {why}" for name, why in each if why]
        if problems:
            more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
            told = "".join(f"\n  - {each}" for each in problems[:SHOWN])
            raise LibraryError(f"{entry} does not fit, and nothing was changed:{told}{more}")

    def _concerned(self, entry: LibraryEntry, only: str | None) -> list[tuple[Subscription, int]]:
        found = []
        for subscription in list(self._node.subscriptions.values()):
            if only is not None and subscription.name != only:
                continue
            for part in (0,) if isinstance(subscription, Matching) else range(len(subscription._asked)):
                origin = origin_of(subscription, part)
                if origin is not None and origin.name == entry.name and origin != entry.origin:
                    found.append((subscription, part))
        if only is not None and only not in self._node.subscriptions:
            raise LibraryError(f"upgrade: expected a subscription of this node, found {only!r}")
        return found

    def _misfit(self, subscription: Subscription, part: int, entry: LibraryEntry) -> str:
        """What is wrong with an entry for a subscription; nothing if nothing is."""
        try:
            if isinstance(subscription, Matching):
                return (
                    "a pattern is not exchanged while it runs, for runs that are open would be judged by both; close "
                    f"it, and match {entry}"
                )
            new, asked = entry.interest(), subscription._asked[part]
            if _type(asked.where.output) != _type(new.output):
                expected, found = _type(asked.where.output), _type(new.output)
                return f"what it makes of events is of another type: expected {expected}, found {found}"
            for channel, of in list(subscription._attachments):
                if of == part:
                    interest_for(channel, new, asked.params)
        except HeadwaterError as error:
            return str(error)
        return ""

    def _change(self, subscription: Subscription, part: int, entry: LibraryEntry) -> Upgraded:
        origin = origin_of(subscription, part)
        before = 0 if origin is None else origin.version
        try:
            params = subscription._asked[part].params
            points = self._node._change_if_agreed(subscription, part, where=entry.interest(), params=params, zones=...)
        except ClosedError:
            return Upgraded(subscription.name, before, error="it was cancelled meanwhile")
        except HeadwaterError as error:
            return Upgraded(subscription.name, before, error=str(error))
        return Upgraded(subscription.name, before, points, self._taken_up(subscription))

    # ── asked for by others ──

    def answer(self, find: Callable[[Reference], LibraryEntry], caller: Caller, request: UpgradeEntry) -> UpgradedAll:
        """Begin with it in another thread, since it waits for other nodes; asked again, say what has become of it."""
        assert self._context is not None
        verdict = self._context.decisions.decide(caller.principal, "publish", RIGHTS + request.name)
        if not verdict:
            raise LibraryError(f"not allowed: {verdict.why}")
        key = caller.peer.id, request.ticket
        with self._lock:
            errand = self._errands.get(key)
            if errand is None:
                if sum(not each.over for each in self._errands.values()) >= MOST_ERRANDS:
                    raise LibraryError(f"{MOST_ERRANDS} upgrades are under way here already; ask later")
                errand = self._errands[key] = _Errand()
                while len(self._errands) > MOST_ERRANDS:
                    over = next((each for each in self._errands if self._errands[each].over), key)
                    del self._errands[over]
                self._context.scheduler.work(self._run, find, request, errand)
        return errand.said if errand.over else UpgradedAll(done=False)

    def _run(self, find: Callable[[Reference], LibraryEntry], request: UpgradeEntry, errand: _Errand) -> None:
        try:
            entry = find(Reference(request.name, request.version))
            if entry.fingerprint != request.fingerprint:
                raise LibraryError(
                    f"{entry} stands for {entry.fingerprint.hex()} here, and for {request.fingerprint.hex()} there"
                )
            done = sorted(self.upgrade(entry), key=lambda each: not each.error and each.acknowledged)
            errand.said = UpgradedAll([told(each) for each in done[:MOST_UPGRADED]], more=len(done[MOST_UPGRADED:]))
        except HeadwaterError as error:
            errand.said = UpgradedAll(error=str(error)[:MAX_ERROR])
        except Exception as error:
            errand.said = UpgradedAll(error=f"it failed: {type(error).__name__}")
            raise
        finally:
            errand.over = True


class _Errand:
    """An upgrade that another node has asked for."""

    def __init__(self) -> None:
        self.over, self.said = False, UpgradedAll()


def origin_of(subscription: Subscription, part: int) -> Origin | None:
    """The entry that a part of a subscription, or a pattern, was asked for by."""
    if isinstance(subscription, Matching):
        return subscription.origin
    where = subscription._asked[part].where
    return where.origin if isinstance(where, Interest) else None


def told(upgraded: Upgraded) -> UpgradedRow:
    """As it is sent."""
    return UpgradedRow(
        upgraded.subscription[:MAX_SAID], upgraded.before, dict(islice(upgraded.points.items(), MOST_POINTS)),
        upgraded.acknowledged,
        upgraded.error[:MAX_SAID],
    )  # fmt: skip


def _type(type: Any) -> str:
    return "none" if type is None else f"{type.name}({', '.join(map(str, type.record.fields))})"


__all__ = ["Upgraded", "Upgrader", "origin_of", "told"]
