"""The groups of a node: made with their first member, wherever that is, and gone with the last."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.groups.durable import DurableGroup, ends_of, why_not
from headwater.channel.groups.group import Group, Seat
from headwater.channel.groups.group_positions import GroupPosition, GroupPositions
from headwater.channel.groups.member import GroupMember
from headwater.channel.groups.terms import Terms, check_group, credit_of
from headwater.channel.options.config import Queue
from headwater.channel.options.subscribe import Asked, interest_for
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.services import Service
from headwater.errors import ClosedError, SubscriptionError
from headwater.threads import Worker

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.options.subscribe import Options
    from headwater.channel.routing.route import Ready
    from headwater.channel.source import Source

log = logging.getLogger("headwater")
UNBOUNDED = 2**31 - 1
MOST_PAST = 1024  # groups that are no more, whose counts are kept: other nodes may choose any names
_making = threading.Lock()


class Carrier(Protocol):
    """What groups need of a federation: that members of this node get events of other nodes too."""

    def joined(self, member: GroupMember) -> None:
        """A member has come here."""
        ...

    def left(self, member: GroupMember) -> None:
        """And is gone."""
        ...


class Groups(Service):
    """Of one node; made when a group is first wanted. `_lock` → the locks of groups and of the wiring."""

    name = "groups"

    def __init__(self, node: NodeContract) -> None:
        self._node = node
        self._lock = threading.RLock()
        self._groups: dict[tuple[int, str], Group] = {}  # by channel and name
        self._past: dict[str, dict[str, int]] = {}  # what groups that are no more had counted
        self.carrier: Carrier | None = None
        self._reader: Worker | None = None

    # ── members of this node ──

    def subscribe(
        self, channel: Channel, where: Any, params: Any, type: Any, *, options: Options, group: Any, key: Any, name: Any
    ) -> GroupMember:
        """A member of a group, in force here; other nodes are asked meanwhile."""
        durable = options.delivery.durable
        where = self._node._interest_of(where)
        interest = interest_for(channel, where, params)
        made = channel.type if interest is None or interest.output is None else interest.output
        checked = check_group(group, key, options, made)
        terms = Terms(interest, key or "", options.zones, durable)
        asked = Asked(channel, where, params, type)
        wide = replace(checked, queue=Queue(limit=UNBOUNDED))  # its credit bounds what waits for it
        ready: Ready = []
        with self._lock:
            found = self._groups.get((channel.number, group))
            if found is not None and not found.over:
                found.terms.check(group, channel.name, terms)
            member: GroupMember = self._node._start(
                GroupMember, [asked], wide, name, self, group, terms, credit_of(options)
            )
            why = why_not(self._node, channel, terms) if durable else ""
            try:
                if not why:
                    self._let_in(channel, group, terms, member, ready)
                elif self.carrier is None:
                    raise SubscriptionError(f"group {group!r} of channel {channel.name!r}: {why}")
                else:
                    self._not_here(member, why)
            except BaseException:
                member.cancel()
                raise
        if self.carrier is not None:
            self.carrier.joined(member)
        dispatch_all(ready)
        return member

    def _not_here(self, member: GroupMember, why: str) -> None:
        """Events of this node's own sources cannot wait here, and so they are none of the group's."""
        channel = member.channel
        member.refused[f"{channel.name} at {self._node.name}"] = why
        if any(source.local for source in channel.sources.values()):
            log.warning(
                "group %r of channel %s: what this node publishes is not shared: %s", member.group, channel.name, why
            )

    def leave(self, member: GroupMember) -> None:
        """A member of this node has ended."""
        if self.carrier is not None:
            self.carrier.left(member)
        group = self.of(member.channel, member.group)
        if group is None:
            return
        if member.drains:
            group.retire(member.id, member.untaken)
        else:
            group.leave(member.id, finishing=member.finishing(), why="it was cancelled")
        self.tidy(group)

    def acknowledge(self, member: GroupMember, numbers: Sequence[int]) -> None:
        """A member has handled events of this node's own sources."""
        group = self.of(member.channel, member.group)
        if group is not None:
            group.acknowledge(member.id, numbers)
            if group.over:
                self.tidy(group)

    # ── members anywhere ──

    def of(self, channel: Channel, name: str) -> Group | None:
        """The group of a channel with that name, if it has members."""
        return self._groups.get((channel.number, name))

    def join(self, channel: Channel, name: str, terms: Terms, seat: Seat) -> Group:
        """A member comes; SubscriptionError if it wants something else than those that are there."""
        ready: Ready = []
        group = self._let_in(channel, name, terms, seat, ready)
        dispatch_all(ready)
        return group

    def _let_in(self, channel: Channel, name: str, terms: Terms, seat: Seat, ready: Ready) -> Group:
        """The same, but for what is to be dispatched then: no handler runs under the lock."""
        with self._lock:
            group = self._groups.get((channel.number, name))
            if group is not None and not group.over:
                group.terms.check(name, channel.name, terms)
                if group.join(seat, ready):
                    return group
            if channel.closed or self._node.closed:
                raise ClosedError(f"group {name!r}: channel {channel.name!r} is closed")
            if group is not None:
                self.tidy(group)
            if terms.durable:
                group = DurableGroup(self._node, channel, name, terms, self._later)
            else:
                group = Group(self._node, channel, name, terms)
            group.join(seat, ready)
            group.start()
            self._groups[channel.number, name] = group
            return group

    # ── sources that move ──

    def rest(self, channel: Channel, source: str, rests: bool = True) -> bool:
        """Durable groups hand nothing more over of a source, or go on with it; whether no member has any of it."""
        idle = [group.rest(source, rests) for group in self._durable(channel)]
        return all(idle)

    def part(self, channel: Channel, source: str) -> None:
        """A source has left: what durable groups here have not done of it is for those where it goes on."""
        for group in self._durable(channel):
            group.part(source)

    def take_over(self, channel: Channel, source: str, told: Iterable[GroupPosition]) -> None:
        """A source is about to come, and durable groups go on with it where they were at another node. StoreError if
        that cannot be written."""
        kept = GroupPositions.at(self._node, channel.name)
        if kept is None:
            return
        told = list(told)
        with self._lock:  # no group begins meanwhile
            kept.take_over(source, told, ends_of(self._node, channel), self._node._moved_sources(channel.name)[1])
            there = {group.name: group for group in self._durable(channel)}
            for each in told:
                if each.group in there:
                    there[each.group].told(source, each)

    def meet(self, source: Source) -> None:
        """A source that came from another node is open here."""
        for group in self._durable(source.channel):
            group.meet(source)

    def _durable(self, channel: Channel) -> list[DurableGroup]:
        with self._lock:
            found = [group for (number, _), group in self._groups.items() if number == channel.number]
        return [group for group in found if isinstance(group, DurableGroup) and not group.over]

    # ── what there is ──

    def tidy(self, group: Group) -> None:
        """It may be over: what it has counted stays."""
        if not group.over:
            return
        with self._lock:
            key = group.channel.number, group.name
            if self._groups.get(key) is group:
                del self._groups[key]
                place = f"{group.channel.name}/{group.name}"
                past = self._past.pop(place, {})
                self._past[place] = {
                    what: past.get(what, 0) + (count if what not in ("members", "waiting", "outstanding") else 0)
                    for what, count in group.report().items()
                }
                if len(self._past) > MOST_PAST:
                    del self._past[next(iter(self._past))]

    def _later(self, task: Callable[[], None]) -> None:
        """By a thread that may read files."""
        with self._lock:
            if self._reader is None:
                self._reader = Worker(f"headwater-{self._node.name}-groups", crashes=self._node._crashes)
                self._reader.start()
        self._reader.put(task)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    def everyone(self) -> list[Group]:
        """Those that are there."""
        with self._lock:
            return list(self._groups.values())

    def report(self) -> Mapping[str, Any]:
        """By channel and name, what became of the events of this node's own sources."""
        with self._lock:
            found, there = {place: dict(counts) for place, counts in self._past.items()}, list(self._groups.values())
        for group in there:
            counts = found.setdefault(f"{group.channel.name}/{group.name}", {})
            for what, count in group.report().items():
                counts[what] = counts.get(what, 0) + count
        return found


def groups_of(node: Any) -> Groups:
    """The service of a node, which has it from then on."""
    found = node.services.get(Groups.name)
    if found is None:
        with _making:
            found = node.services.get(Groups.name)
            if found is None:
                found = node.services.add(Groups(node))
    return found  # type: ignore[no-any-return]


__all__ = ["Carrier", "Groups", "groups_of"]
