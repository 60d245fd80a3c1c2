"""Subscriptions and events of web clients, at the node: what a client asks for, checked, and as the node has it.

Called in threads that may wait. A policy that restricts a client is conjoined with what it asks for, as for a node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headwater.bridges.web.session import MOST_FEEDS, Feed
from headwater.channel.warning import collected
from headwater.errors import EncodeError, FrameError, HeadwaterError, QueueFull, ServiceError, StoreError
from headwater.federation.security.policy import Restrict
from headwater.interest import Interest
from headwater.services.policy.conjunction import restricted
from headwater.types.plain import object_in

if TYPE_CHECKING:
    from headwater.bridges.web.gate import Gate
    from headwater.bridges.web.messages import Change, Subscribe
    from headwater.bridges.web.session import Room, Session
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.federation.node import Node
    from headwater.federation.security.policy import Action
    from headwater.services.policy.identity import Identity

SOURCE = "web"  # of what clients publish, at each channel


class Refused(HeadwaterError):
    """A rule or a policy says no, or there is no such thing: which of the two is not told."""


class NotNow(ServiceError):
    """What would have been published, were there room: another time it may be. `published`: what was before it."""

    def __init__(self, message: str, published: int) -> None:
        super().__init__(message)
        self.published = published


class Feeds:
    """Of one bridge. `shows` says which channels it is for."""

    def __init__(self, node: Node, gate: Gate, shows: Callable[[str], bool]) -> None:
        self._node, self._gate, self._shows = node, gate, shows
        self._sources: dict[str, Source[Any]] = {}
        self._open: WeakKeyDictionary[Feed, tuple[Identity, Callable[[], None]]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def listed(self, identity: Identity) -> list[dict[str, Any]]:
        """The channels that a client may know of, with their types."""
        sees = self._gate.sees(identity)
        found = [each for each in self._node.channels() if self._shows(each.name) and sees(each.name)]
        return [{"name": each.name, "type": self.described(each.name)} for each in found]

    def described(self, channel: str) -> str | None:
        """The type of a channel: its fields, in the notation of declarations."""
        type = self._node.channel(channel).type
        return None if type is None else ", ".join(map(str, type.record.fields))

    def check_room(self, session: Session, asked: Subscribe) -> None:
        """Whether a client may have one more subscription, of this name."""
        if asked.id in session.feeds:
            raise FrameError(f"subscription {asked.id}: expected another id than one in use, found that one")
        if len(session.feeds) >= MOST_FEEDS:
            raise FrameError(f"expected at most {MOST_FEEDS} subscriptions of a client, found more; cancel some")

    def open(self, identity: Identity, asked: Subscribe, stir: Callable[[], None], room: Room | None = None) -> Feed:
        """A subscription; HeadwaterError if it cannot be."""
        channel = self._allowed(identity, "subscribe", asked.channel)
        interest = self._interest(identity, channel, asked.where, asked.params)
        feed = Feed(asked.binary, room=room)
        feed.asked = asked.channel, asked.where, asked.params
        type = channel.type

        def came(event: Any) -> None:
            if type is None:
                data = bytes(event)
            elif asked.binary:
                data = type.encode(event)
            else:
                data = type.to_json(event).encode()
            if feed.put(data):
                stir()

        if type is None and not asked.binary:
            raise FrameError(f"channel {asked.channel!r}: expected binary for a channel of bytes, found JSON")
        options: dict[str, Any] = {"history": asked.history} if asked.history else {}
        with self._lock:  # before it is judged for the last time: a policy that changes meanwhile finds it
            self._open[feed] = identity, stir
        with collected() as feed.remarks:
            feed.subscription = channel.subscribe(came, interest, dispatch="inline", **options)
        self._rejudge(feed, interest)
        return feed

    def rejudge(self, concerns: Callable[[str], bool], backlog: bool) -> None:
        """Policies of these channels have changed, or where somebody is: what clients get changes at a point of each
        source. `backlog`: what waits for them does not leave any more; who gets nothing from now on is told why."""
        with self._lock:
            found = [(feed, stir) for feed, (_, stir) in self._open.items() if concerns(feed.asked[0])]
        for feed, stir in found:
            if feed.subscription is not None and not feed.why:
                changed = self._rejudge(feed, None, anew=True)
                if backlog and changed:
                    feed.withhold()
                    stir()

    def reidentify(self, feeds: Sequence[Feed], identity: Identity) -> None:
        """A client is back, and more or less is known of it than before: it gets what it may have now."""
        for feed in feeds:
            with self._lock:
                if feed in self._open:
                    self._open[feed] = identity, self._open[feed][1]
            if not feed.why and self._rejudge(feed, None, anew=True):
                feed.withhold()

    def _rejudge(self, feed: Feed, made: Interest | None, *, anew: bool = False) -> bool:
        """Have a subscription get what its client may have now; whether that may be something else than before, which
        was `made` unless it is to be `anew`. One at a time: what was found first must not be imposed last."""
        with feed.judging:
            with self._lock:
                if feed not in self._open:
                    return False  # it was cancelled
                identity, stir = self._open[feed]
            channel, where, params = feed.asked
            try:
                interest = self._interest(identity, self._allowed(identity, "subscribe", channel), where, params)
                if not anew and _same(made, interest):
                    return False
                with collected():
                    feed.subscription._impose(interest if interest is not None else "true")
            except HeadwaterError as error:  # also if it was cancelled just now: nobody else waits for that
                feed.withhold()
                feed.subscription.cancel()
                feed.why = str(error)
                stir()
                return False
            return True

    def change(self, identity: Identity, feed: Feed | None, asked: Change) -> dict[str, int]:
        """Another interest for a subscription: from which event of each source on."""
        if feed is None or feed.subscription is None:
            raise FrameError(f"subscription {asked.id}: expected one that there is, found none")
        where = feed.asked[1] if asked.where is None else asked.where
        params = dict(feed.asked[2]) if asked.params is None else asked.params
        channel = self._allowed(identity, "subscribe", feed.asked[0])
        interest = self._interest(identity, channel, where, params)
        before, feed.asked = feed.asked, (channel.name, where, params)  # a policy that changes meanwhile is about this
        try:
            with collected() as feed.remarks:
                points: dict[str, int] = feed.subscription.change(where=interest)
        except BaseException:
            feed.asked = before
            self._rejudge(feed, None, anew=True)
            raise
        self._rejudge(feed, interest)  # and what was found before that does not count
        return points

    def cancel(self, feed: Feed) -> None:
        """No more events of it."""
        with self._lock:
            self._open.pop(feed, None)
        if feed.subscription is not None:
            feed.subscription.cancel()
        feed.close()

    def publish(self, identity: Identity, name: str, lines: Sequence[bytes], *, binary: bool = False) -> int:
        """Events of a client, as JSON or as records; how many there were. All are looked at before the first is
        published. `NotNow` if one finds no room, or cannot be logged: it says how many were published before it."""
        channel = self._allowed(identity, "advertise", name)
        type = channel.type
        if type is None and not binary:
            raise FrameError(f"channel {name!r}: expected one with a type, found one of bytes")
        if type is None:
            events: list[Any] = list(lines)
        else:
            events = []
            for at, line in enumerate(lines, 1):
                try:
                    events.append(type.decode(line) if binary else type.from_dict(object_in(type, line)))
                except (EncodeError, FrameError) as error:
                    if len(lines) == 1:
                        raise
                    raise FrameError(f"event {at:,} of {len(lines):,}: {error}; none was published") from None
        source = self._source(channel)
        for count, event in enumerate(events):
            try:
                source.publish(event)
            except (QueueFull, StoreError) as error:
                before = f"; the first {count:,} of {len(events):,} were published: send the rest" if count else ""
                raise NotNow(f"{error}{before}", count) from error
        return len(events)

    def prepare(self, names: Sequence[str]) -> None:
        """Have a source in these channels before anybody publishes."""
        for name in names:
            self._source(self._node.channel(name))

    def _source(self, channel: Channel[Any]) -> Source[Any]:
        with self._lock:
            found = self._sources.get(channel.name)
            if found is None or found.closed:
                found = self._sources[channel.name] = channel.source(SOURCE)
            return found

    def _allowed(self, identity: Identity, action: Action, name: str) -> Channel[Any]:
        """A channel on which a client may do this; the same answer for one that is not there."""
        verdict = self._gate.decide(identity, action, name)
        who = identity if identity.user else "a client without a login"
        refusal = f"channel {name!r}: expected one that {who} may use so, found none"
        if not self._shows(name) or (verdict and not self._node.has_channel(name)):
            raise Refused(f"{refusal}; GET /channels lists those that there are")
        if not verdict:
            raise Refused(f"{refusal}: {verdict.why}")
        return self._node.channel(name)

    def _interest(
        self, identity: Identity, channel: Channel[Any], where: str, params: dict[str, Any]
    ) -> Interest | None:
        """What a client gets: what it asks for of what it may have."""
        wanted = Interest(where, channel.type, params=params, notation="predicate") if where else None
        verdict = self._gate.decide(identity, "subscribe", channel.name)
        return restricted(wanted, verdict.interest, channel.type) if isinstance(verdict, Restrict) else wanted


def _same(one: Interest | None, other: Interest | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.fingerprint == other.fingerprint and one.params == other.params


__all__ = ["Feeds", "NotNow", "Refused"]
