"""Who follows a source that has come from another node: nodes that had its events there, until they have asked here.

Of a source without a log they would miss what is published before that, so that it is waited for when it comes; so is
it for members of groups that are not durable. Else they have it from the log then; but who wants to know that they have
it (`flush`), or closes the source or its node, so that nobody can ask any more, waits for the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.channel.source import Source
    from headwater.federation.context import Context
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
END_SECONDS = 5.0  # for which a source that is closed waits for them
WANTED_SECONDS = 1.0  # after which it is asked again who wants its events
STRANGER_SECONDS = 2.0  # for which nodes are waited for that are not known here yet
Who = Callable[[], Iterable[str]]
Members = Callable[[str], Collection[tuple[str, str, bool]]]


class Followed:
    """One source, and those of one kind that follow it. `who` asks the node that it was at which nodes want its events
    now; HeadwaterError if that cannot be had: some may want nothing more by now. `has_asked`: what a node wants is in
    force here, or was refused."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        source: Source[Any],
        ids: Iterable[str],
        who: Who,
        has_asked: Callable[[Peer], bool],
    ) -> None:
        self._context, self._peers, self._who, self._has_asked = context, peers, who, has_asked
        self._made, self._channel = source, source.channel.name
        self._ids = set(ids) - {context.id}
        self._began = monotonic()

    @property
    def source(self) -> Source[Any]:
        """As it is now: it may have been closed, and made again."""
        found = self._made.channel.sources.get(self._made.name)
        if found is not None and found.local:
            self._made = found
        return self._made

    @property
    def complete(self) -> bool:
        """Whether all of them have asked; or it has gone on, or was closed with nothing published here."""
        source = self.source
        return not self._ids or source.moved_to is not None or (source.closed and self.unused)

    @property
    def unused(self) -> bool:
        """Whether nothing was published since it came."""
        return self._made.seq <= self._made.begins_after

    @property
    def over(self) -> bool:
        """Whether nobody is to ask any more: all have, or are gone, or may not have it here. Who is away is not waited
        for, and is again when it is back."""
        if self.complete:
            return True
        late = False
        for id in self._ids:
            peer = self._peers.get(id)
            if peer is None:
                late |= monotonic() - self._began < STRANGER_SECONDS
            elif self._has_asked(peer):
                self._ids = self._ids - {id}
            elif peer.gone is None and self._may_have(peer):
                late = True
        return not late

    def wait(self, end: float, given_up: threading.Event) -> bool:
        """Until it is over, or too late; whether it is over. Of a source that is closed nobody can ask for anything."""

        def done() -> bool:
            return self.over or given_up.is_set() or self.source.closed

        scheduler = self._context.scheduler
        while not scheduler.until(done, max(0.0, min(WANTED_SECONDS, end - monotonic()))):
            if monotonic() >= end:
                break
            with suppress(HeadwaterError):  # that node is not needed any more
                self._ids = self._ids & set(self._who())
        return self.over

    def _may_have(self, peer: Peer) -> bool:
        principal = peer.principal
        return principal is None or bool(self._context.decisions.decide(principal, "subscribe", self._channel))


class Followers:
    """Of one node: those of all sources that have come since it was opened. `members` are those of groups of a channel
    here: the node of each, its group, and whether that is durable."""

    def __init__(self, context: Context, peers: Peers, members: Members) -> None:
        self._context, self._peers, self._members = context, peers, members
        self._lock = threading.Lock()
        self._all: list[Followed] = []

    def of_channel(self, source: Source[Any], ids: Iterable[str], who: Who) -> Followed:
        """These nodes had the events of a source that has come."""
        channel, ids = source.channel.name, list(ids)
        known = ((id, self._peers.get(id)) for id in ids)
        before = {id: peer.unwanted.get(channel, 0) for id, peer in known if peer is not None}

        def has_asked(peer: Peer) -> bool:
            crossing = peer.crossings.get(channel)
            if crossing is None:
                return peer.unwanted.get(channel, 0) > before.get(peer.id, 0)
            return not crossing.parked and 0 < crossing.due <= crossing.told  # what is only withdrawn needs no barrier

        return Followed(self._context, self._peers, source, ids, who, has_asked)

    def of_group(self, source: Source[Any], group: str, ids: Iterable[str], who: Who) -> Followed:
        """These nodes have members of a group that had its events."""
        channel = source.channel.name

        def has_asked(peer: Peer) -> bool:
            return any((peer.id, group) == each[:2] for each in self._members(channel))

        return Followed(self._context, self._peers, source, ids, who, has_asked)

    def expect(self, followed: Followed) -> None:
        """Who looks whether others have all that is published here waits for these too."""
        with self._lock:
            self._all = [*(each for each in self._all if not each.complete), followed]

    def closes(self, source: Source[Any]) -> None:
        """A source is about to be closed: what was published is delivered to those who had its events elsewhere, if
        they ask soon."""
        end = monotonic() + END_SECONDS
        for each in self._all:
            if source.closed or each.source is not source or each.unused:
                continue
            if not each.wait(end, threading.Event()):
                log.warning("%s is closed, and not all that had its events elsewhere asked for them here", source)

    @property
    def over(self) -> bool:
        """Whether nobody is to ask any more."""
        return all(each.over for each in self._all)

    def wait(self, end: float, given_up: threading.Event) -> bool:
        """Until nobody is to ask any more, or too late; whether that is so."""
        return all(each.wait(end, given_up) for each in self._all)


__all__ = ["Followed", "Followers", "Members"]
