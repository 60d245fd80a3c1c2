"""What the sinks of a node want of one channel: the wishes to ask for, kept in step with its interests one by one.

Each change of an interest costs what that interest costs, however many others there are: the wishes that follow from it
are replaced, and written down with the version at which that was, so that each peer can be told what is new to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headwater.channel.options.subscribe import FIRST
from headwater.channel.routing.attachment import Stage
from headwater.federation.demand.cover import Cover
from headwater.federation.wire.library_requests import Named, pack_named
from headwater.federation.wire.requests import Wish, WishRate, pack_params
from headwater.match.lower import is_plain

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry, Rated
    from headwater.channel.subscription import Subscription
    from headwater.federation.demand.demand import Demands

EVERYTHING = Wish(0, None)
ALL, FILTER, THERE, HERE = "all", "filter", "there", "here"  # what an interest is: where it runs follows from it
WISHES_REMEMBERED = 1024  # wishes that are no more, of which peers may not have been told yet


class Part(NamedTuple):
    """One distinct interest, with what its sinks add to the question."""

    kind: str
    tag: int
    key: int  # in the cover of its zones
    wish: Wish
    late: tuple[Subscription, ...] = ()  # sinks of this channel that want to begin with the past
    durable: tuple[Subscription, ...] = ()  # and those that are to find everything again after a restart
    names: tuple[str, ...] = ()  # of these, and of those of derived channels
    reliable: bool = False
    promises: bool = False
    direct: bool = False  # a sink of this federation wants it, not only gateways
    routes: frozenset[tuple[str, ...]] = frozenset()


@dataclass(slots=True)
class Changed:
    """Wishes and names of durable sinks: all there are, or what has changed since a version."""

    wishes: list[Wish] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    gone_names: list[str] = field(default_factory=list)


class Wanted:
    """Of one channel, for all peers that refuse nothing. Used under the wiring's lock."""

    def __init__(self, demands: Demands, channel: Channel, placement: str, versions: Iterator[int]) -> None:
        self._demands, self._channel, self._placement, self._versions = demands, channel, placement, versions
        self.parts: dict[Entry, Part] = {}
        self.wishes: dict[int, Wish] = {}  # by tag
        self.running: dict[Entry, Wish] = {}  # those that run at the source only
        self.late: dict[Entry, Part] = {}
        self.durable: dict[Entry, Part] = {}
        self.names: Counter[str] = Counter()  # of durable sinks
        self.special = 0  # wishes that are more than a filter from now on
        self.reliable = self.promises = False
        self.routes: tuple[tuple[str, ...], ...] = ()
        self.version = next(versions)
        self._covers: dict[frozenset[str] | None, Cover] = {}
        self._by_key: dict[tuple[frozenset[str] | None, int], Entry] = {}
        self._counts: Counter[str] = Counter()
        self._routes: Counter[tuple[str, ...]] = Counter()
        self._ahead: dict[Entry, None] = {}
        self._onward: dict[Entry, Part] = {}  # of gateways, which may lead elsewhere at any time
        self._changes: dict[int | str, int] = {}  # wishes and names, the latest last, and at which version
        self._complete = self.version  # before that not all changes are remembered
        self._tagged: tuple[Wish, ...] | None = None
        self._pending = self.version  # of changes that are being taken up
        self._all_here = False
        self._named: set[str] = set()  # durable sinks as they were last said
        self._renamed: set[str] = set()  # those that may have changed since

    @property
    def tagged(self) -> tuple[Wish, ...]:
        if self._tagged is None:
            self._tagged = tuple(self.running.values())
        return self._tagged

    # ── keeping in step ──

    def update(self, stale: Iterable[Entry], ahead: Iterable[Entry]) -> None:
        """Members of these interests have changed; those of `ahead` are to be asked for though they have none yet."""
        soon = dict.fromkeys(ahead)
        todo = {**dict.fromkeys(stale), **dict.fromkeys(self._onward)}
        todo.update({entry: None for entry in (*self._ahead, *soon) if (entry in soon) != (entry in self._ahead)})
        if not todo:
            return
        self._ahead = soon
        self._pending = next(self._versions)
        before = self.reliable, self.promises, self.routes
        altered = self._replace(todo)
        self.reliable = self._counts["reliable"] > 0 or bool(soon)
        self.promises = self._counts["promises"] > 0
        self.routes = () if self._counts["direct"] else tuple(sorted(self._routes))
        if altered or before != (self.reliable, self.promises, self.routes):
            self.version = self._pending
            self._tidy()

    def _replace(self, todo: dict[Entry, None]) -> bool:
        """Take up new, changed and lost interests; whether any wish has changed."""
        concerned: dict[Entry, None] = {}
        for entry in todo:
            old = self.parts.get(entry)
            new = self._part(entry, old) if entry.local or entry in self._ahead else None
            if new is not None:
                self._add(entry, new)
                concerned[entry] = None
            if old is not None:
                self._remove(entry, old, new)
        altered = self._take_all(concerned)
        for zones, cover in list(self._covers.items()):
            changes = cover.changes()
            for key in (*changes.install, *changes.withdraw):
                found = self._by_key.get((zones, key))
                if found is not None:
                    concerned[found] = None
            if not len(cover):
                del self._covers[zones]
        for entry in concerned:
            altered |= self._settle(entry)
        gone = [entry for entry in todo if entry not in self.parts]
        for entry in gone:
            tag = self._demands.number(entry)
            if tag is not None:
                altered |= self._say(tag, None)
                self._demands.forget(self._channel.name, entry)
        altered |= self._rename()
        return altered

    def _part(self, entry: Entry, old: Part | None) -> Part:
        """What one entry makes a peer be asked for: where it is to run, and its wish. What was decided before (`old`)
        stays, since the peer knows it by that."""
        channel, interest = self._channel, entry.interest
        sinks = list(sinks_behind([entry]))
        own = [member.subscription for member in entry.members if member.subscription is not None]
        tag = self._demands.tag(channel.name, entry)
        if old is not None:
            kind, key = old.kind, old.key
        elif entry.claimant is not None:
            kind, key = THERE, 0  # what the node may have is another thing
        elif self._placement == "destination" and (entry.rated or interest) and not (interest and interest.contextual):
            kind, key = HERE, 0
        elif entry.own:
            kind, key = THERE, 0
        elif interest is None:
            kind, key = ALL, 0
        else:
            kind, key = (FILTER if _merges(channel, entry) else THERE), 0
        if old is None and kind in (ALL, FILTER):
            key = self._covers.setdefault(entry.zones, Cover()).add(interest)
            self._by_key[entry.zones, key] = entry
        history, turn = _past(sinks)
        claim = None if entry.claimant is None else self._demands.claim(entry.claimant)
        wish = Wish(
            tag,
            None if interest is None else interest.dumps(),
            None if interest is None or not interest.params else pack_params(interest.params),
            kind == THERE,
            sorted(entry.zones or ()),
            history,
            turn,
            interest.kind if interest is not None and interest.contextual else "",
            named=b"" if interest is None or interest.origin is None else pack_named(Named(*interest.origin)),
            on_behalf_of="" if claim is None else claim.user,
            device="" if claim is None else claim.device,
            device_kind="" if claim is None else claim.device_kind,
            proof=b"" if claim is None else claim.proof,
            rate=None if kind != THERE or entry.rated is None else _packed(entry.rated),
        )
        onward = [sink._routes for sink in sinks]
        return Part(
            kind,
            tag,
            key,
            wish,
            tuple(sink for sink in own if sink._options.history),
            tuple(sink for sink in own if sink._progress is not None),
            tuple(sink.name for sink in sinks if sink._progress is not None),
            any(sink._options.delivery.name == "reliable" for sink in sinks),
            any(sink._by_time or sink._promising for sink in sinks),
            any(not routes for routes in onward),
            frozenset(route for routes in onward for route in routes),
        )

    def filter_wish(self, entry: Entry, tag: int) -> Wish:
        """What is asked for where marks, or only what bound values ask for, are refused."""
        here, matcher = entry.here, self._channel.lineups[0].matcher
        if here is not None and not (matcher is not None and matcher.takes(here) and is_plain(here)):
            here = None
        params = None if here is None or not here.params else pack_params(here.params)
        return Wish(tag, None if here is None else here.dumps(), params, zones=sorted(entry.zones or ()))

    def _add(self, entry: Entry, new: Part) -> None:
        self.parts[entry] = new
        self._count(new, 1)
        _keep(self.late, entry, new, new.late)
        _keep(self.durable, entry, new, new.durable)
        _keep(self._onward, entry, new, new.routes)

    def _remove(self, entry: Entry, old: Part, new: Part | None) -> None:
        self._count(old, -1)
        if new is not None:
            return
        del self.parts[entry]
        for known in (self.late, self.durable, self._onward):
            known.pop(entry, None)
        if old.key:
            self._covers[entry.zones].remove(old.key)
            del self._by_key[entry.zones, old.key]
        if self.running.pop(entry, None) is not None:
            self._tagged = None

    def _count(self, part: Part, sign: int) -> None:
        for what in ("reliable", "promises", "direct"):
            self._counts[what] += sign * getattr(part, what)
        for route in part.routes:
            self._routes[route] += sign
            if not self._routes[route]:
                del self._routes[route]
        for name in part.names:
            self.names[name] += sign
            self._renamed.add(name)
        self._counts["here"] += sign * (part.kind == HERE)

    # ── wishes ──

    def _take_all(self, concerned: dict[Entry, None]) -> bool:
        """If some of them are to run here, everything is asked for in the place of filters; whether that changes."""
        all_here = self._counts["here"] > 0
        if all_here == self._all_here:
            return False
        self._all_here = all_here
        concerned.update({entry: None for entry, part in self.parts.items() if part.kind == ALL})
        return self._say(0, EVERYTHING if all_here else None)

    def _settle(self, entry: Entry) -> bool:
        """Ask for an interest, or not; whether that is a change."""
        part = self.parts.get(entry)
        if part is None or part.kind == HERE:
            return False
        if part.kind == THERE:
            self.running[entry], self._tagged = part.wish, None
            return self._say(part.tag, part.wish)
        needed = self._covers[entry.zones].is_needed(part.key) or part.wish.history  # nobody else asks for its past
        return self._say(part.tag, part.wish if needed and not self._all_here else None)

    def _say(self, tag: int, wish: Wish | None) -> bool:
        before = self.wishes.get(tag)
        if before == wish:
            return False
        if wish is None:
            del self.wishes[tag]
        else:
            self.wishes[tag] = wish
        self.special += _special(wish) - _special(before)
        self._note(tag)
        return True

    def _rename(self) -> bool:
        """Durable sinks come and go; whether any has."""
        altered = False
        for name in self._renamed:
            if not self.names[name]:
                del self.names[name]
            if (name in self.names) != (name in self._named):
                self._named ^= {name}
                self._note(name)
                altered = True
        self._renamed.clear()
        return altered

    def _note(self, what: int | str) -> None:
        self._changes.pop(what, None)
        self._changes[what] = self._pending

    def _tidy(self) -> None:
        """Forget some of what is no more; who has not been told of that by now is told everything."""
        if len(self._changes) > 2 * (len(self.wishes) + len(self.names)) + WISHES_REMEMBERED:
            self._complete = self.version
            self._changes = {
                what: at for what, at in self._changes.items() if what in self.wishes or what in self.names
            }

    def since(self, version: int) -> Changed | None:
        """What has changed since a version; None if that is too long ago."""
        if version < self._complete:
            return None
        made = Changed()
        for what, at in reversed(self._changes.items()):
            if at <= version:
                break
            if isinstance(what, str):
                (made.names if what in self.names else made.gone_names).append(what)
            elif (wish := self.wishes.get(what)) is not None:
                made.wishes.append(wish)
            else:
                made.gone.append(what)
        made.wishes.reverse()
        return made

    # ── for people ──

    def asked(self, entry: Entry, version: int) -> bool:
        """Whether what is wanted at a version is wanted still, for an interest."""
        return entry in self.parts and self._changes.get(self.parts[entry].tag, 0) <= version

    def placed(self, entry: Entry, here: frozenset[Entry]) -> str:
        """Where an interest runs, and why."""
        part = self.parts[entry]
        if entry in here and entry.interest is not None and entry.interest.contextual:
            return "destination: the source refuses it, and so the context that it reads is missing"
        if entry in here and entry.rated is not None:
            return "destination: the source refuses it, and sends all that it asks for; its rate holds here"
        if entry in here:
            instead = "whole events, not marks" if entry.makes_marks else "events with all values, not only bound ones"
            return f"destination: the source refuses it{f'; it sends {instead}' if entry.apart else ''}"
        if part.kind == HERE:
            return "destination: as configured"
        if part.kind == ALL:
            return "source: it wants everything"
        if part.kind == THERE:
            if entry.interest is not None and entry.interest.contextual:
                return "source: it reads the context of its source"
            if entry.claimant is not None:
                return f"source: it is for user {entry.claimant.user!r}"
            if entry.rated is not None:
                return "source: it has a rate"
            return "source: it has state or output, or may run for long"
        if here or self._covers[entry.zones].is_needed(part.key):
            return "source and destination: filtered there, decided here"
        return "destination: another interest of this node covers it at the source"


def _keep(known: dict[Entry, Part], entry: Entry, part: Part, given: Iterable[object]) -> None:
    if given:
        known[entry] = part
    else:
        known.pop(entry, None)


def _packed(rated: Rated) -> WishRate:
    """A rate as it travels."""
    urgency, constant = rated.priority, None
    if urgency is not None and urgency.constant is not None:
        constant = int(max(-FIRST, min(FIRST, urgency.constant)))
    program = b"" if urgency is None or urgency.interest is None or constant is not None else urgency.interest.dumps()
    return WishRate(*rated.rate, priority=constant, program=program)


def _special(wish: Wish | None) -> bool:
    return wish is not None and wish.special


def _past(sinks: Iterable[Subscription]) -> tuple[int, int]:
    """How many events of the past these want at most (below 0: all), and the number of the last of them that does."""
    begins = {sink._number: sink._options.history for sink in sinks if sink._options.history}
    if not begins:
        return 0, 0
    return -1 if min(begins.values()) < 0 else max(begins.values()), max(begins)


def _merges(channel: Channel, entry: Entry) -> bool:
    """Whether it is a filter that may run at both ends."""
    matcher = channel.lineups[0].matcher
    return matcher is not None and entry.interest is not None and matcher.takes(entry.interest)


def sinks_behind(entries: Iterable[Entry]) -> Iterator[Subscription]:
    """The subscriptions behind interests, those of derived channels included."""
    for entry in entries:
        for member in entry.members:
            if member.subscription is not None:
                yield member.subscription
            elif isinstance(member, Stage) and member.local:
                yield from sinks_behind(member.channel.entries.values())


__all__ = ["ALL", "EVERYTHING", "FILTER", "HERE", "THERE", "Changed", "Part", "Wanted", "sinks_behind"]
