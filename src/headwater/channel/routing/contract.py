"""What routing knows of those above it: the sources, channels and sinks between which it carries events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from headwater.channel.backlog.stretch import PastContext
from headwater.channel.reports.tally import Fates, Tally

if TYPE_CHECKING:
    from headwater.channel.backlog.contract import Backlog
    from headwater.channel.backlog.ring import EventRing
    from headwater.channel.concurrency.gate import Gate
    from headwater.channel.routing.route import Entry, Flow, Lineup, Member
    from headwater.channel.time.clock import Clock
    from headwater.interest import Interest
    from headwater.store.log.channel_log import ChannelLog
    from headwater.types import EventType
    from headwater.types.model import Record


class RoutedNode(Protocol):
    """A node, where events pass through its channels."""

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def _stamp(self) -> Callable[[], int]: ...


class RoutedChannel(Protocol):
    """A channel: who wants its events, and which sources they come from."""

    lineups: list[Lineup]
    entries: dict[object, Entry]  # those with members
    known: WeakValueDictionary[object, Entry]  # and those that are to get some
    stage_entry: Entry | None  # of a derived one: what it is at its parent
    past: Tally

    @property
    def node(self) -> RoutedNode: ...
    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> EventType | None: ...
    @property
    def context(self) -> Record | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def adopted(self) -> bool: ...
    @property
    def parent(self) -> RoutedChannel | None: ...
    @property
    def derived(self) -> Sequence[RoutedChannel]: ...
    @property
    def sources(self) -> Mapping[str, RoutedSource]: ...
    @property
    def interest(self) -> Interest | None: ...
    @property
    def keeps_facts(self) -> bool: ...
    @property
    def stage(self) -> Member | None: ...
    @property
    def backlog(self) -> Backlog: ...

    def flows(self) -> Iterator[Flow]:
        """Of every source whose events come through here."""
        ...

    def join_parent(self) -> None:
        """It is there, as one that is derived."""
        ...

    def leave_parent(self) -> None:
        """It is there no more."""
        ...


class SourceContext(PastContext, Protocol):
    """What interests may read of a source's process: its values now, and as they were."""

    @property
    def values(self) -> Mapping[str, Any]: ...


class RoutedSource(Protocol):
    """A source: where it stands, and its flow in each channel that its events come through."""

    live: int  # of a stand-in: up to this event comes what earlier sinks have missed
    withdrawn: bool
    flows: dict[RoutedChannel, Flow]
    past: Tally  # of channels derived from its own that are no more
    ring: EventRing | None  # its last events, where these are kept in memory
    _zones: frozenset[str]

    @property
    def channel(self) -> RoutedChannel: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def local(self) -> bool: ...
    @property
    def place(self) -> str | None: ...
    @property
    def promise(self) -> int | None: ...
    @property
    def said(self) -> int | None: ...
    @property
    def relays(self) -> bool: ...
    @property
    def come_to(self) -> Callable[[], tuple[int, int] | None] | None: ...
    @property
    def rereads(self) -> bool: ...
    @property
    def position_key(self) -> str | None: ...
    @property
    def begun_at(self) -> int | None: ...  # after which event all comes that is wanted; None if that is not known
    @property
    def priority(self) -> int: ...
    @property
    def facts(self) -> Interest | None: ...
    @property
    def zones(self) -> frozenset[str]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def moved_to(self) -> str | None: ...  # the node where it goes on, if not here any more
    @property
    def passive(self) -> bool: ...
    @property
    def seq(self) -> int: ...
    @property
    def uncrossable(self) -> Callable[[bytes, str, int], object] | None: ...  # told of a record that is too large
    @property
    def log(self) -> ChannelLog | None: ...
    @property
    def home(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def deeds(self) -> tuple[bytes, ...]: ...
    @property
    def context(self) -> SourceContext | None: ...
    @property
    def lock(self) -> Gate: ...
    @property
    def _stamp(self) -> Callable[[], int]: ...
    @property
    def _timer(self) -> Any: ...
    @property
    def origin(self) -> str: ...
    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def filters(self) -> tuple[str, ...]: ...

    def enlist(self) -> None:
        """Its flows are there: it is one of its channel, and may publish."""
        ...

    def delist(self) -> None:
        """It is none of its channel any more."""
        ...

    def shut(self) -> None:
        """Nothing may be published from here on."""
        ...

    def between(self) -> AbstractContextManager[None]:
        """Between two of its events."""
        ...

    def flow(self, channel: RoutedChannel, lineup: Lineup) -> Flow:
        """Its flow in a channel."""
        ...

    def logged_upto(self, channel: RoutedChannel) -> int:
        """The number of its last event in the log when it comes."""
        ...

    def fates(self, channel: RoutedChannel) -> Fates:
        """Where to count what becomes of its events in a channel."""
        ...

    def placed(self, channel: RoutedChannel, entry: Entry) -> tuple[str, str] | None:
        """Where an interest in its events runs, and why there; None if here."""
        ...

    def ask(self) -> int:
        """Ask it for events, where it waits for that."""
        ...

    def ask_again(self) -> None:
        """Sinks that were paused, and could not keep what came, want it now."""
        ...
