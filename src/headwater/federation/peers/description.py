"""What a node says of itself: its card, which is for everybody, and its channels and sources, which are told to each
other node as far as the rules let that one do something with them. A channel that its sinks want, and that nobody is
known to have sources of, is told to those that may advertise it: what sinks want is nobody else's business.

A state has a version, which grows with every change. Who knows an earlier one is told what has changed since, if that
is remembered and not too much; else all of it, in pages. A page goes on after a name, not after a number of entries: so
pages are good together whatever changes meanwhile, if after the last one it is asked what has changed since the first.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headwater.channel.routing.attachment import Attachment
from headwater.federation.control_events import owns
from headwater.federation.transport.addresses import announced
from headwater.federation.wire.control import SourceAd
from headwater.federation.wire.kinds import takes_columns
from headwater.federation.wire.requests import ORDERED, ORDERING, Card, ChannelAd, Cursor, State, pack_params, pack_type

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.context import Context
    from headwater.federation.security.rules import Principal
    from headwater.types import EventType

log = logging.getLogger("headwater.federation")
PAGE_BYTES = 256 * 1024  # of a page, about, however large a message may be
CHANGES_REMEMBERED = 16_384  # channels and sources of which it is known when they last changed
TYPES_REMEMBERED = 4096
ADDRESSES_SECONDS = 10.0  # for which the addresses of this machine are taken to be the same
EMPTY = 1  # the version of a state that has neither channels nor sources, and never had

# The name of a channel; or the number of a source, or WANTED for a channel that is only wanted, with the name.
Key = str | tuple[int, str]
WANTED = -1
Ads = tuple[dict[str, ChannelAd], dict[int, SourceAd], frozenset[str]]  # and the names of channels only wanted
Sees = Callable[[str], bool]


class Changes:
    """Which channels and sources have changed in which version, of those that changed last."""

    def __init__(self) -> None:
        self._versions: OrderedDict[Key, int] = OrderedDict()  # the last version in which each has changed
        self._forgotten = 0  # the newest version of which something is not remembered

    def note(self, keys: Iterable[Key], version: int) -> None:
        for key in keys:
            self._versions[key] = version
            self._versions.move_to_end(key)
        while len(self._versions) > CHANGES_REMEMBERED:
            self._forgotten = self._versions.popitem(last=False)[1]

    def since(self, version: int) -> list[Key] | None:
        """All that has changed after a version; None if that is not known any more."""
        if version < self._forgotten:
            return None
        found: list[Key] = []
        for key, changed in reversed(self._versions.items()):
            if changed <= version:
                break
            found.append(key)
        return found


class Description:
    """Of one node. Reading it is thread-safe; one thread at a time may `renew` it."""

    def __init__(
        self,
        context: Context,
        *,
        is_offered: Callable[[str], bool],
        streams: Callable[[], Sequence[str] | None],
        session: Callable[[], str],
    ) -> None:
        """`is_offered`: whether a node that is there has sources of a channel; `streams`: where direct streams are
        accepted, None if nowhere; `session`: the id of Zenoh's."""
        self._context, self._is_offered, self._streams, self._session = context, is_offered, streams, session
        self._lock = threading.Lock()
        self.version = EMPTY
        self.told: Ads = ({}, {}, frozenset())
        self._changes = Changes()
        self._sorted: tuple[int, list[str], list[int]] = (EMPTY, [], [])  # keys of what is told, in a version
        self._own: dict[int, Source] = {}  # sources of this node, by number
        self._types: dict[int, tuple[EventType | None, bytes | None]] = {}  # by identity: written down
        self._made: dict[str, tuple[tuple[object, ...], ChannelAd | None]] = {}  # by channel: what of, and its ad
        self._too_large: set[str] = set()  # channels that fit in no message
        self._found: tuple[float, tuple[str, ...], list[str]] = (0.0, (), [])  # when, for which, and what
        self.wants = False  # whether sinks want a channel, declared here, of which there is no source here
        self._page = min(PAGE_BYTES, context.security.limit // 4)

    # ── what there is ──

    def renew(self) -> list[Source] | None:
        """Look what there is now; None if nothing has changed, else the sources that are gone."""
        before, now = self.told, self._ads()
        if before == now:
            return None
        numbers = _differences(before[1], now[1])
        changed: list[Key] = [*_differences(_offered(before), _offered(now))]
        changed += [(WANTED, name) for name in _differences(_only_wanted(before), _only_wanted(now))]
        changed += [(sid, (now[1].get(sid) or before[1][sid]).channel) for sid in numbers]
        with self._lock:
            self.told, self.version = now, self.version + 1
            self._changes.note(changed, self.version)
        return [self._own.pop(sid) for sid in before[1] if sid not in now[1] and sid in self._own]

    def _ads(self) -> Ads:
        """What this node offers, and which channels it wants, as it stands now: by channel, and by source."""
        channels: dict[str, ChannelAd] = {}
        sources: dict[int, SourceAd] = {}
        wanted, wants = set(), False
        with self._context.wiring.lock:
            known = {channel.name: channel for channel in self._context.node.channels()}
            for channel in known.values():
                if owns(channel.name):
                    continue
                own = [source for source in channel.sources.values() if source.local]
                offered = bool(own) or channel.parent is not None
                if not offered:
                    if not is_wanted(channel, known.get(channel.name + ORDERED)):
                        continue
                    wants = True
                    if self._is_offered(channel.name):
                        continue  # whoever may know of it does
                ad = self._channel_ad(channel)
                if ad is not None:
                    channels[channel.name] = ad
                    if not offered:
                        wanted.add(channel.name)
                    for source in own:
                        sources[source.number] = describe(source)
                        self._own[source.number] = source
        if len(self._made) > 2 * len(channels) + 64:
            self._made = {name: made for name, made in self._made.items() if name in channels}
        self.wants = wants
        return channels, sources, frozenset(wanted)

    def _channel_ad(self, channel: Channel) -> ChannelAd | None:
        """None if it is too large to be told. It is that of before if nothing of it has changed: types take their time
        to write down."""
        made_of = channel, channel.type, channel.interest
        known = self._made.get(channel.name)
        if known is None or any(old is not new for old, new in zip(known[0], made_of, strict=True)):
            ad = _channel_ad(channel, self._packed_type(channel.type))
            known = self._made[channel.name] = made_of, ad if self._fits(ad) else None
        return known[1]

    def _packed_type(self, type: EventType | None) -> bytes | None:
        known = self._types.get(id(type))
        if known is None or known[0] is not type:
            if len(self._types) >= TYPES_REMEMBERED:
                self._types.clear()
            known = self._types[id(type)] = type, pack_type(type)
        return known[1]

    def _fits(self, ad: ChannelAd) -> bool:
        """Whether a channel can be told at all."""
        size, most = _channel_size(ad), self._context.security.limit * 3 // 4
        if size <= most:
            self._too_large.discard(ad.name)
            return True
        if ad.name not in self._too_large:
            self._too_large.add(ad.name)
            log.error(
                "node %s: no other node can know of channel %s: its type and program take %s bytes, more than the %s "
                "that fit in a message; make them smaller, or allow for more with Security(limit=bytes) at all nodes",
                self._context.name, ad.name, f"{size:,}", f"{most:,}",
            )  # fmt: skip
        return False

    @property
    def untold(self) -> frozenset[str]:
        """Channels that fit in no message, so that no other node can know of them."""
        return frozenset(self._too_large)

    # ── what is said of it ──

    def card(self) -> Card:
        context = self._context
        return Card(
            node=context.id,
            incarnation=context.incarnation,
            version=self.version,
            exchange=context.keyring.exchange.public,
            multicast=context.network.multicast is not None,
            router=context.network.router,
            columns=takes_columns(),
            names=True,
            session=self._session(),
        )

    def state(self, principal: Principal, since: int = 0, after: Cursor | None = None) -> State:
        """What another node may know of this one: what has changed since a version, or all, from some place on."""
        with self._lock:
            (channels, sources, wanted), version = self.told, self.version
            changed = self._changes.since(since) if since and after is None else None
        sees, streams = self._context.security.seen_by(principal), self._streams()
        allows = self._context.security.decide

        def shows(name: str) -> bool:
            return sees(name) and (name not in wanted or bool(allows(principal, "advertise", name)))

        known = streams is not None and self._context.security.deals_with(principal)  # else it has no business there
        endpoints = self._addresses(tuple(streams)) if streams is not None and known else []
        state = None
        if changed is not None and since <= version:
            told = [key for key in changed if key[0] != WANTED or allows(principal, "advertise", key[1])]
            state = self._changed(channels, sources, told, sees, shows)
        if state is None:
            state, since = self._paged(channels, sources, version, sees, shows, after), 0
        restricted = self._context.security.hides_from(principal)
        return replace(state, version=version, since=since, endpoints=endpoints, restricted=restricted)

    def _addresses(self, endpoints: tuple[str, ...]) -> list[str]:
        """Where this node can be called. To find out all addresses of a machine may take its time."""
        since, given, found = self._found
        if given != endpoints or monotonic() - since > ADDRESSES_SECONDS:
            found = announced(endpoints)
            self._found = monotonic(), endpoints, found
        return found

    def _blank(self) -> State:
        context = self._context
        return State(
            node=context.id,
            incarnation=context.incarnation,
            version=0,
            endpoints=[],
            exchange=context.keyring.exchange.public,
            channels=[],
            sources=[],
            multicast=context.network.multicast is not None,
            router=context.network.router,
            columns=takes_columns(),
            names=True,
            session=self._session(),
        )

    def _changed(
        self, channels: dict[str, ChannelAd], sources: dict[int, SourceAd], changed: list[Key], sees: Sees, shows: Sees
    ) -> State | None:
        """What has changed, unless that takes more than a page."""
        names = [key if isinstance(key, str) else key[1] for key in changed if isinstance(key, str) or key[0] == WANTED]
        named = [name for name in dict.fromkeys(names) if sees(name)]
        numbered = [key[0] for key in changed if not isinstance(key, str) and key[0] != WANTED and sees(key[1])]
        there = {name for name in named if name in channels and shows(name)}
        state = replace(
            self._blank(),
            channels=[_shown(channels[name], sees) for name in named if name in there],
            sources=[sources[sid] for sid in numbered if sid in sources],
            gone_channels=[name for name in named if name not in there],
            gone_sources=[sid for sid in numbered if sid not in sources],
        )
        size = size_of(state) + sum(map(len, state.gone_channels)) + 8 * len(numbered)
        return state if size <= self._page else None

    def _paged(
        self,
        channels: dict[str, ChannelAd],
        sources: dict[int, SourceAd],
        version: int,
        sees: Sees,
        shows: Sees,
        after: Cursor | None,
    ) -> State:
        """One page of the description, of what the asker may see, from `after` on: so much that an answer can take it,
        and where the next one begins."""
        kept = self._sorted
        if kept[0] != version:
            kept = self._sorted = version, sorted(channels), sorted(sources)
        _, names, sids = kept
        place = after or Cursor("")
        room = self._page
        shown: list[ChannelAd] = []
        for name in _following(names, place.channel):
            if shows(name):
                ad = _shown(channels[name], sees)
                room -= _channel_size(ad)
                if room < 0 and shown:
                    return replace(
                        self._blank(), channels=shown, after=after, next=Cursor(shown[-1].name, place.source)
                    )
                shown.append(ad)
        listed: list[SourceAd] = []
        for sid in _following(sids, place.source):
            if sees(sources[sid].channel):
                room -= _source_size(sources[sid])
                if room < 0 and (shown or listed):
                    last = listed[-1].sid if listed else place.source
                    following = Cursor(None, last)
                    return replace(self._blank(), channels=shown, sources=listed, after=after, next=following)
                listed.append(sources[sid])
        return replace(self._blank(), channels=shown, sources=listed, after=after)


def is_wanted(channel: Channel, ordered: Channel | None) -> bool:
    """Whether a channel was declared here, and a sink has asked for it by its name, or for it in total order."""
    if channel.adopted or channel.name.endswith((ORDERED, ORDERING)):
        return False
    return is_asked_for(channel) or (ordered is not None and is_asked_for(ordered))


def is_asked_for(channel: Channel) -> bool:
    """Whether a sink here has asked for a channel by its name, and not only for what fits a pattern."""
    return any(
        isinstance(member, Attachment) and member.subscription._asked[member.part].target is channel
        for entry in channel.entries.values()
        for member in entry.members
    )


def _offered(ads: Ads) -> dict[str, ChannelAd]:
    return {name: ad for name, ad in ads[0].items() if name not in ads[2]}


def _only_wanted(ads: Ads) -> dict[str, ChannelAd]:
    return {name: ads[0][name] for name in ads[2]}


def _differences(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[Any]:
    """What is new, changed or gone."""
    yield from (key for key, ad in now.items() if before.get(key) != ad)
    yield from (key for key in before if key not in now)


def _following(keys: list[Any], last: str | int | None) -> Iterator[Any]:
    """The keys after one; no one: there are none."""
    return iter(()) if last is None else iter(keys[bisect_right(keys, last) :])


def _shown(ad: ChannelAd, sees: Sees) -> ChannelAd:
    """A channel as someone sees it: what it is derived from is nothing to who may not know of that."""
    if ad.parent is None or sees(ad.parent):
        return ad
    return ChannelAd(ad.name, ad.type, number=ad.number)


def size_of(state: State) -> int:
    """Bytes of the channels and sources of a state, about."""
    return sum(map(_channel_size, state.channels)) + sum(map(_source_size, state.sources))


def _channel_size(ad: ChannelAd) -> int:
    return 32 + len(ad.name) + len(ad.parent or "") + sum(len(each or b"") for each in (ad.type, ad.program, ad.params))


def _source_size(ad: SourceAd) -> int:
    texts = (ad.name, ad.channel, ad.origin, ad.log, ad.home, *ad.zones, *ad.path, *ad.filters)
    return 32 + sum(4 + 4 * len(each) for each in texts)


def _channel_ad(channel: Channel, type: bytes | None) -> ChannelAd:
    interest = channel.interest
    if channel.parent is None or interest is None:
        return ChannelAd(channel.name, type, number=channel.number)
    program, params = interest.dumps(), pack_params(interest.params)
    return ChannelAd(channel.name, type, channel.parent.name, program, params, channel.number)


def describe(source: Source) -> SourceAd:
    """A source as others are told of it."""
    log_id = "" if source.log is None else source.log.id
    return SourceAd(
        source.number,
        source.name,
        source.channel.name,
        sorted(source.zones),
        source.priority,
        source.origin,
        list(source.path),
        log_id,
        sorted(source.filters),
        source.home,
        source.term,
    )
