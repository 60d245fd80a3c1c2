"""Where users are, as the policies of this node need it: the last events of channels, or objects, that say so.

Each location is watched once, however many policies use it. A user who has moved is judged anew before the next event
of a source of the same node; what is said elsewhere counts when it has come. What was not said, or too long ago, is not
known. Who may say where somebody is, is for the rules: whoever may advertise the channel.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.services.policy.location import USER, Location

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.letter import About
    from headwater.channel.subscription import Subscription
    from headwater.services.policy.channel_policy import ChannelPolicy

log = logging.getLogger("headwater.federation")
MOST_USERS = 100_000  # whose place is remembered, those that moved last
PAST = 1000  # events to begin with

Place = dict[str, Any]


class Watch:
    """One location: where each user was last, and since when."""

    def __init__(self, location: Location, type: Any, node: str) -> None:
        self.location, self.type = location, type
        self.before, _, self.after = location.object.partition(USER)
        owner = location.node or node
        self.owned = f"//{owner}/{self.before}"  # how the names of objects begin that say where somebody is
        self.sink: Subscription | None = None
        self.places: OrderedDict[str, tuple[float, Place]] = OrderedDict()


class Whereabouts:
    """Of one node. `moved(location, user)` is told of each change, with no lock held."""

    def __init__(
        self,
        node: Node,
        moved: Callable[[Location, str], None],
        later: Callable[[Callable[[], None]], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._node, self._moved, self._later, self._clock = node, moved, later, clock
        self._lock = threading.Lock()
        self._watches: dict[Location, Watch] = {}

    def of(self, policy: ChannelPolicy, user: str) -> Mapping[str, Any] | None:
        """Where a user is, by the names that a policy gives it; None if that is not known."""
        location = policy.location
        watch = None if location is None else self._watches.get(_key(policy))
        if watch is None:
            return None
        with self._lock:
            found = watch.places.get(user)
        if found is None or self._clock() - found[0] > watch.location.within:
            return None
        return found[1]

    def follow(self, policies: Iterable[ChannelPolicy]) -> None:
        """Watch what these need, and nothing else."""
        wanted = {_key(policy): policy.type for policy in policies if policy.location is not None}
        with self._lock:
            gone = [self._watches.pop(key) for key in list(self._watches) if key not in wanted]
            fresh = [Watch(key, type, self._node.name) for key, type in wanted.items() if key not in self._watches]
            for watch in fresh:
                self._watches[watch.location] = watch
        for watch in gone:
            if watch.sink is not None:
                watch.sink.cancel()
        for watch in fresh:
            self._begin(watch)

    def _begin(self, watch: Watch) -> None:
        """Watch a location; where that fails, nobody is anywhere, and it is tried again. The owner of objects may be
        another node, which is asked for them."""
        if watch.location.object:
            self._later(partial(self._guarded, watch, self._follow_objects))
        else:
            self._guarded(watch, self._follow_channel)

    def _guarded(self, watch: Watch, begin: Callable[[Watch], None]) -> None:
        try:
            begin(watch)
        except HeadwaterError as error:
            log.error("node %s: where users are is not known: %s", self._node.name, error)

    def _follow_channel(self, watch: Watch) -> None:
        location = watch.location
        there = next((each for each in self._node.channels() if each.name == location.channel), None)
        channel = there or self._node.channel(location.channel, location.type or watch.type)
        past = PAST if self._node._federated or channel.backlog.remembers else 0
        watch.sink = channel.subscribe(partial(self._sighted, watch), history=past, dispatch="inline")

    def _follow_objects(self, watch: Watch) -> None:
        """Changes of objects, and what they are when that begins; what has changed since is newer."""
        location, node = watch.location, self._node
        remote: Any = node
        objects = remote.objects_at(location.node) if location.node not in ("", node.name) else remote.objects
        watch.sink = objects.changes(location.of).subscribe(partial(self._changed, watch), dispatch="inline")
        whole = watch.before.endswith("/") and not watch.after
        for kept in objects.list(f"{watch.before}*" if whole else "**"):
            if kept.type == location.of:
                self._set(watch, _user(watch, kept.name), kept.value, newer=False)

    def _sighted(self, watch: Watch, event: Any, about: About) -> None:
        """Remembered events were said long before they are heard."""
        age = max(0.0, self._node._stamp() / 1e9 - about.time.timestamp())
        self._set(watch, getattr(event, watch.location.user, None), event, age=age)

    def _changed(self, watch: Watch, event: Any) -> None:
        self._set(watch, _user(watch, event.object), event.new if event.op != "destroyed" else None)

    def _set(self, watch: Watch, user: str | None, value: Any, *, newer: bool = True, age: float = 0.0) -> None:
        """A user is there. Whatever is missing of it is not known."""
        if not isinstance(user, str) or not user:
            return
        place = {name: getattr(value, each, None) for name, each in watch.location.gives.items()}
        with self._lock:
            found = watch.places.pop(user, None)
            if found is not None and not newer:
                watch.places[user] = found
                return
            if value is not None:
                watch.places[user] = self._clock() - age, place
            forgotten = [watch.places.popitem(last=False)[0] for _ in range(len(watch.places) - MOST_USERS)]
        for each in forgotten:
            self._moved(watch.location, each)
        if found is None or value is None or found[1] != place or self._clock() - found[0] > watch.location.within:
            self._moved(watch.location, user)

    def expire(self) -> None:
        """Called now and then: users of whom nothing was heard for too long are nowhere."""
        now = self._clock()
        for watch in list(self._watches.values()):
            if watch.sink is None:
                self._begin(watch)
            within = watch.location.within
            with self._lock:
                over = [user for user, (since, _) in watch.places.items() if now - since > within]
                for user in over:
                    del watch.places[user]
            for user in over:
                self._moved(watch.location, user)

    def close(self) -> None:
        """Nothing is watched any more."""
        self.follow(())


def _user(watch: Watch, name: str) -> str | None:
    """Whose place an object of that name says, if anybody's."""
    before, after = watch.owned, watch.after
    fits = name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)
    return name[len(before) : len(name) - len(after)] if fits else None


def _key(policy: ChannelPolicy) -> Location:
    """By which a location is watched once."""
    assert policy.location is not None
    return policy.location


__all__ = ["Whereabouts"]
