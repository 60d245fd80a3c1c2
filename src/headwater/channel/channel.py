"""A channel: a hierarchical name with an event type, where sources and sinks meet without knowing each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Literal, overload
from weakref import WeakValueDictionary

from headwater.channel.annotations import E, F, Judged, Where, shown
from headwater.channel.backlog.contract import Backlog, NoBacklog
from headwater.channel.options.config import Dispatch, Queue
from headwater.channel.options.delivery import Delivery, Order
from headwater.channel.options.rate import Rate
from headwater.channel.options.subscribe import Asked, Claimant, make_options, parted
from headwater.channel.reports.report import ChannelReport
from headwater.channel.reports.tally import Tally
from headwater.channel.routing.attachment import Stage
from headwater.channel.routing.route import Entry, Flow, Lineup
from headwater.channel.source_context import declared
from headwater.channel.subscription import Subscription
from headwater.errors import ChannelError
from headwater.interest import Interest, Unchanged, as_event_type
from headwater.types import EventType

if TYPE_CHECKING:
    import builtins
    from typing import Unpack

    from headwater.channel.annotations import Answering, Answers, Shared
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.letter import About
    from headwater.channel.source import Source
    from headwater.types import Event
    from headwater.types.model import Record


_NUMBERS = count(1)
SHOWN = frozenset(  # what programs use
    [
        "answer",
        "ask",
        "ask_and_wait",
        "close",
        "closed",
        "derive",
        "derived",
        "interest",
        "name",
        "node",
        "parent",
        "report",
        "source",
        "sources",
        "subscribe",
        "type",
    ]
)


class Channel(Generic[E]):
    """Made by `node.channel(name, type)` and `channel.derive(...)`; without a type (`bytes`) it carries bytes."""

    def __init__(
        self,
        node: NodeContract,
        name: str,
        type: EventType | None,
        *,
        parent: Channel | None = None,
        interest: Interest | None = None,
    ) -> None:
        self.node, self.name, self.type, self.parent, self.interest = node, name, type, parent, interest
        self.number = next(_NUMBERS)  # of its own, also among those of the same name that were closed
        self.closed = False
        self.context: Record | None = None  # what its sources may say of their processes, all of it optional
        self.adopted = False  # it is here as another node has it; nobody has declared it here
        self.sources: dict[str, Source] = {}  # its own
        self.derived: list[Channel] = []
        self.backlog: Backlog = NoBacklog(self)  # what was published before by its own sources
        self.past = Tally()  # of sources that are no more, and whose facts nobody states any more
        self.entries: dict[object, Entry] = {}  # those with members
        self.known: WeakValueDictionary[object, Entry] = WeakValueDictionary()  # and those that are to get some
        self.lineups: list[Lineup] = [Lineup(self, None)]
        # In the routes of the parent, while anyone wants its events.
        self.stage = Stage(self) if parent is not None else None
        self.stage_entry: Entry | None = None
        # Whether what sources state of their events holds for the derived ones too.
        self.keeps_facts = interest is None or interest.output is None
        self._asker: Any = None  # of its questions; made with the first

    def flows(self) -> Iterator[Flow]:
        """Of every source whose events come through here."""
        for lineup in self.lineups:
            yield from lineup.flows

    def has_context(self, given: Any) -> None:
        """What its sources may say of their processes is this, from now on; ChannelError if it is something else."""
        if self.parent is not None:
            raise ChannelError(
                f"channel {self.name!r}: context: expected a channel with sources, found a derived one; read the "
                "context where it is derived"
            )
        wanted = declared(self.name, None if self.type is None else self.type.record, given)
        if self.context not in (None, wanted):
            assert self.context is not None
            raise ChannelError(
                f"channel {self.name!r}: context: expected {', '.join(map(str, self.context.fields))}, which it has, "
                f"found {', '.join(map(str, wanted.fields))}"
            )
        self.context = wanted

    def join_parent(self) -> None:
        """It is there: the sources of its parent flow through it from now on."""
        assert self.parent is not None
        self.parent.derived.append(self)

    def leave_parent(self) -> None:
        """It is closed."""
        assert self.parent is not None
        self.parent.derived.remove(self)

    @overload
    def source(
        self,
        name: str | None = None,
        *,
        type: None = None,
        facts: Mapping[str, object] | str | Interest | None = None,
        priority: int = 0,
        ask: Callable[[], Any] | None = None,
        every: float | None = None,
        zones: str | Iterable[str] | None = None,
        context: Event | Mapping[str, object] | None = None,
        rate: Rate | float | None = None,
    ) -> Source[E]: ...
    @overload
    def source(
        self,
        name: str | None = None,
        *,
        type: builtins.type[F],
        facts: Mapping[str, object] | str | Interest | None = None,
        priority: int = 0,
        ask: Callable[[], Any] | None = None,
        every: float | None = None,
        zones: str | Iterable[str] | None = None,
        context: Event | Mapping[str, object] | None = None,
        rate: Rate | float | None = None,
    ) -> Source[F]: ...
    @overload
    def source(
        self,
        name: str | None = None,
        *,
        type: Any,
        facts: Mapping[str, object] | str | Interest | None = None,
        priority: int = 0,
        ask: Callable[[], Any] | None = None,
        every: float | None = None,
        zones: str | Iterable[str] | None = None,
        context: Event | Mapping[str, object] | None = None,
        rate: Rate | float | None = None,
    ) -> Source[Any]: ...
    def source(
        self,
        name: str | None = None,
        *,
        type: Any = None,
        facts: Mapping[str, object] | str | Interest | None = None,
        priority: int = 0,
        ask: Callable[[], Any] | None = None,
        every: float | None = None,
        zones: str | Iterable[str] | None = None,
        context: Event | Mapping[str, object] | None = None,
        rate: Rate | float | None = None,
    ) -> Source[Any]:
        """Advertise a source of events.

        `type` is the source's own event type where it has more fields than the channel's, or narrower ones.
        `facts` hold for all its events (`{"network": "ORL-Net#1"}`, or a condition): interests that can never match
        here are not consulted, and an event that contradicts them is an error. `priority` is that of its events where
        a subscription does not give one.

        With `ask`, the source is passive: the function is called for events when a sink pulls and nothing waits, or,
        with `every`, each so many seconds. It returns an event, a list of events, or None.

        `zones` are named scopes within the channel that its events stay in: they reach the sinks that look at one of
        these zones, or at the whole channel. A source without zones is heard everywhere. It may `move` later.

        `context` are values of this process that interests may read here as `context.NAME`, though no event has them:
        an event whose fields they are, or a dict where the channel has declared them. `source.context.set(…)` changes
        them between two events.

        `rate` is what it may publish, to whomever: `Rate(100, burst=200)`. What is beyond it is shed before anybody
        looks at it, and counted in `source.report().shed`, or (`over="wait"`) `publish` waits.
        """
        return self.node._add_source(
            self,
            name,
            type=type,
            facts=facts,
            priority=priority,
            ask=ask,
            every=every,
            zones=zones,
            context=context,
            rate=rate,
        )

    # What its events are: of the channel's class, or of the class that is given; a pair with `about=True` and without a
    # handler; of what an Interest makes of them; whatever a handler takes where it is given batches.
    @overload
    def subscribe(
        self, handler: str | None = None, where: Where[E] = None, *, about: Literal[True], **options: Unpack[Shared]
    ) -> Subscription[tuple[E, About]]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[E], Any] | None = None,
        where: Where[E] = None,
        *,
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[E, About], Any],
        where: Where[E] = None,
        *,
        about: bool | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: str,
        where: Callable[[E], Any] | None = None,
        *,
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: str,
        where: Callable[[E, About], Any],
        *,
        about: bool | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[F], Any] | None = None,
        where: Where[E] = None,
        *,
        type: builtins.type[F],
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        handler: str,
        where: Callable[[F], Any] | None = None,
        *,
        type: builtins.type[F],
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[F, About], Any],
        where: Where[E] = None,
        *,
        type: builtins.type[F],
        about: bool | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[..., Any] | str | None = None,
        where: Any = None,
        *,
        type: str | EventType,
        about: bool | None = None,
        batch: int | bool = False,
        **options: Unpack[Shared],
    ) -> Subscription[Any]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[..., Any],
        where: Any = None,
        *,
        batch: int | bool,
        type: Any = None,
        about: bool | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[Any]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[E], Any] | None = None,
        *,
        where: Interest[Unchanged],
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[E], Any] | None,
        where: Interest[Unchanged],
        *,
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: Interest[Unchanged],
        where: Callable[[E], Any] | None = None,
        *,
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[E]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[F], Any] | None = None,
        *,
        where: Interest[F],
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[[F], Any] | None,
        where: Interest[F],
        *,
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        handler: Interest[F],
        where: Callable[[F], Any] | None = None,
        *,
        about: Literal[False] | None = None,
        **options: Unpack[Shared],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        handler: Interest,
        where: Callable[..., Any] | None = None,
        *,
        type: Any = None,
        about: bool | None = None,
        batch: int | bool = False,
        **options: Unpack[Shared],
    ) -> Subscription[Any]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[..., Any] | None = None,
        *,
        where: Interest,
        type: Any = None,
        about: bool | None = None,
        batch: int | bool = False,
        **options: Unpack[Shared],
    ) -> Subscription[Any]: ...
    @overload
    def subscribe(
        self,
        handler: Callable[..., Any] | None,
        where: Interest,
        *,
        type: Any = None,
        about: bool | None = None,
        batch: int | bool = False,
        **options: Unpack[Shared],
    ) -> Subscription[Any]: ...
    def subscribe(
        self,
        handler: Callable[..., Any] | str | Interest | None = None,
        where: Any = None,
        *,
        params: Mapping[str, object] | None = None,
        type: Any = None,
        name: str | None = None,
        priority: Any = None,
        lifetime: Any = None,
        queue: Queue | int | None = None,
        dispatch: Dispatch | str | None = None,
        before: Callable[..., Any] | None = None,
        after: Callable[..., Any] | None = None,
        batch: int | bool = False,
        about: bool | None = None,
        failures: int | None = None,
        delivery: Delivery | str | None = None,
        order: Order | None = None,
        zones: str | Iterable[str] | None = None,
        history: int | Literal["all"] | None = None,
        rate: Rate | float | None = None,
        as_: Claimant | None = None,
        group: str | None = None,
        group_key: str | None = None,
    ) -> Subscription[Any]:
        """Ask for this channel's events, or those that pass the interest `where`.

        `handler` is a function or a coroutine function of the event, or of the event and what is known of it (`About`).
        Without one, events are pulled: `get`, `poll`, `for event in`, `async for event in`. An interest that is text or
        an `Interest` may come first: `subscribe("level > 0.5")` pulls, `subscribe("level > 0.5", handler)` does not.

        where, params   an Interest, predicate text, E-Code or a Python function, and its parameters
        type            the sink's own event type, where it wants fewer fields than the channel's, or wider ones
        priority        of the events for this sink: a number, or an expression over the event
        lifetime        seconds after which an event is no longer worth delivering: a number or an expression
        queue           `Queue(limit, policy)`, or a limit
        dispatch        which thread calls the handler: a value such as `Pool()`, or its name
        before, after   constraints of the handler: `before(event)` says whether it runs (true), the event is skipped
                        (false), or waits (WAIT); `after(event, result)` runs when the handler has returned
        batch           call the handler with RecordBatches of up to so many events (True: 4096)
        failures        failures of the handler in a row after which the subscription is paused; 0 for never
        delivery        how surely events of other nodes come: `Reliable(...)`, as it is, or `BestEffort()`, or the name
        order           of events from several sources: "receive" as they come, "timestamp" by their time, or "total",
                        the same for all who ask for that
        zones           only events in one of these zones, or of sources in none: a name, or several; else all events
        history         how many past events to begin with, or "all" that are still there
        rate            how many events a second it takes: `Rate(100, burst=200)`. More is shed where it is published,
                        and counted; or waits
        as_             the user that it is for, `headwater.security.AsUser(…)`: nodes with policies give what that one
                        may have
        group           share the events with all sinks of that name, at whichever nodes: each goes to one of them, and
                        what that has not handled when it is gone, to another; see docs/sharing.md
        group_key       a field: events with the same value go to the same member of the group, in order
        """
        function, where = parted(handler, where, self.type)
        options = make_options(
            self.node.config,
            function,
            priority=priority,
            lifetime=lifetime,
            queue=queue,
            dispatch=dispatch,
            before=before,
            after=after,
            batch=batch,
            about=about,
            failures=failures,
            delivery=delivery,
            order=order,
            zones=zones,
            history=history,
            rate=rate,
            as_=as_,
        )
        seen_as = None if type is None else as_event_type(type)
        made: Subscription[Any]
        if group is not None or group_key is not None:
            made = self.node._groups().subscribe(
                self, where, params, seen_as, options=options, group=group, key=group_key, name=name
            )
            return made
        asked = Asked(self, where, params, seen_as)
        made = self.node._start(Subscription, [asked], options, name)
        return made

    @overload
    def derive(self, name: str, where: Judged[E], *, params: Mapping[str, object] | None = None) -> Channel[E]: ...
    @overload
    def derive(
        self,
        name: str,
        where: Judged[E],
        *,
        output: builtins.type[F],
        params: Mapping[str, object] | None = None,
    ) -> Channel[F]: ...
    @overload
    def derive(
        self, name: str, where: Interest[Unchanged], *, params: Mapping[str, object] | None = None
    ) -> Channel[E]: ...
    @overload
    def derive(self, name: str, where: Interest[F], *, params: Mapping[str, object] | None = None) -> Channel[F]: ...
    @overload
    def derive(
        self, name: str, where: Any, *, output: Any = None, params: Mapping[str, object] | None = None
    ) -> Channel[Any]: ...
    def derive(
        self,
        name: str,
        where: Any,
        *,
        output: Any = None,
        params: Mapping[str, object] | None = None,
    ) -> Channel[Any]:
        """A channel of what a filter passes, or, with `output`, of what a transformation makes of the events.

        It is computed at the sources of this channel, is a channel in its own right, and may have own sources too.
        """
        return self.node._derive(self, name, where, output=output, params=params)

    async def ask(self, event: Any, *, timeout: float, to: Literal["one", "all"] = "one", answers: Any = None) -> Any:
        """Ask those who `answer`, here or at other nodes, and wait no longer than `timeout` seconds.

        To "one": the first answer; to "all": a list with a `Reply` of each, which has an answer or an error. `answers`
        is the type of answers, which may be left out where somebody who answers is known. See docs/sharing.md.

        Raises NoAnswerer where there is nobody, AnswerError where who was asked has failed, Unanswered when the time is
        over, and Busy where too many questions are open."""
        return await self._asks().ask(event, timeout, to, answers)

    def ask_and_wait(
        self, event: Any, *, timeout: float, to: Literal["one", "all"] = "one", answers: Any = None
    ) -> Any:
        """As `ask`, for a thread, which waits."""
        return (self._asker or self._asks()).ask_and_wait(event, timeout, to, answers)

    def _asks(self) -> Any:
        if self._asker is None:
            self._asker = self.node._questions().asker(self)
        return self._asker

    def answer(
        self,
        handler: Callable[..., Any],
        where: Any = None,
        *,
        answers: Any,
        name: str | None = None,
        **options: Unpack[Answers],
    ) -> Answering:
        """Answer the questions that are asked in this channel, or those that pass the interest `where`.

        `handler` is a function or a coroutine function of the event that was asked, or of that and a `Question`, and
        returns an answer of the type `answers`, or a dict. What it raises the asker gets as an AnswerError, with the
        text and nothing else. The options are those of `subscribe`."""
        made: Answering = self.node._questions().answer(
            self, handler, where, answers=answers, name=name, options=dict(options)
        )
        return made

    def close(self) -> None:
        """Withdraw its own sources, cancel what is subscribed only here, and close what is derived from it."""
        self.node._shut_channel(self)

    def report(self) -> ChannelReport:
        """Its sources and subscriptions, and what has come of its events."""
        return self.node._channel_report(self)

    def __dir__(self) -> list[str]:
        return shown(self, SHOWN)

    def __repr__(self) -> str:
        kind = self.type.name if self.type is not None else "bytes"
        return f"<{'closed ' if self.closed else ''}Channel {self.name}: {kind}>"
