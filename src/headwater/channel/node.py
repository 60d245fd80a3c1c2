"""A node: the event service of a process, with its channels, sources and subscriptions. It knows no network."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from os import PathLike
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, overload
from weakref import WeakSet

from headwater.channel import report_collection as reporting
from headwater.channel.annotations import F
from headwater.channel.backlog.log import LogBacklog, RingsBeforeLog
from headwater.channel.backlog.node_logs import NodeLogs
from headwater.channel.backlog.ring import Rings
from headwater.channel.channel import Channel
from headwater.channel.concurrency.bounded_queue import BoundedQueue
from headwater.channel.correlation.operator_stage import Operator
from headwater.channel.correlation.subscription import Correlation, Derivation
from headwater.channel.correlation.tree import Condition, Match, Part, Tree
from headwater.channel.dispatch.dispatcher import Dispatcher, DispatchStatus
from headwater.channel.dispatch.thread_call import in_thread, nothing
from headwater.channel.names import Pattern, check_name, is_pattern
from headwater.channel.options.config import Config, Dispatch, log_of
from headwater.channel.options.delivery import check_keeping, check_zones
from headwater.channel.options.settings import Name
from headwater.channel.options.subscribe import (
    Asked,
    Options,
    check_label,
    interest_for,
    known_options,
    make_options,
    parted,
    spoken,
)
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.registration import advertise, attach, check_params, rated_of
from headwater.channel.reports.counters import Counts
from headwater.channel.reports.report import ChannelReport, NodeReport, SourceReport, SubscriptionReport
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.recorder import Recorder
from headwater.channel.routing.route import Entry
from headwater.channel.routing.wiring import Move, Wiring
from headwater.channel.services import Service, Services
from headwater.channel.shutdown import Closing, Ending, stay
from headwater.channel.source import Source
from headwater.channel.subscription import Subscription, text_of
from headwater.channel.time.clock import Clock, SystemClock
from headwater.channel.time.steady_time import SteadyTime
from headwater.channel.time.timer_engine import Timers
from headwater.channel.timer_events import Deadline, Timer, Timing
from headwater.channel.warning import ABOUT_INTEREST, remarks_on, remarks_on_history, tell
from headwater.errors import (
    ChannelError,
    ClosedError,
    ConfigError,
    HeadwaterError,
    HeadwaterWarning,
    LibraryError,
    SubscriptionError,
)
from headwater.interest import Interest, as_event_type, is_reference
from headwater.spelling import did_you_mean
from headwater.store import NodeState
from headwater.store.log.settings import Log
from headwater.threads import Crashes

if TYPE_CHECKING:
    import builtins
    from typing import Literal, Unpack

    from headwater.channel.annotations import HandOver
    from headwater.channel.groups.service import Groups
    from headwater.channel.objects.service import Objects
    from headwater.channel.patterns.operator import PatternOrder
    from headwater.channel.patterns.subscription import NamedPattern, Watch
    from headwater.channel.questions.service import Questions
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.hearing import Hearing
    from headwater.channel.routing.letter import About
    from headwater.patterns.model import Limits
    from headwater.types import EventType

log = logging.getLogger("headwater")
_NAMES = count(1)
Failure = Callable[[Subscription, Any, Any], object]  # the subscription, the exception, the event


class Node:
    """The event service of this process.

    `config` is a Config, the path of a TOML file, or a dict; `clock` is for tests that advance time by hand; `on_error`
    is called with the subscription, the exception and the event whenever a handler raises. With `log`, a Log or the
    path of a folder, what its sources publish is logged.

    >>> with Node() as node:
    ...     sightings = node.channel("ie.tcd.sighting", "badge: u32, level: f64")
    ...     with sightings.subscribe(print, "level > 0.5"), sightings.source() as source:
    ...         source.publish(badge=7, level=0.7)
    """

    _federated = False  # whether there may be other nodes
    _asking: Questions | None = None
    _sharing: Groups | None = None
    state: NodeState | None = None  # where durable subscriptions keep how far they are

    def __init__(
        self,
        name: str | None = None,
        *,
        config: Config | str | PathLike[str] | Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        on_error: Failure | None = None,
        log: Log | str | PathLike[str] | Mapping[str, Any] | None = None,
    ) -> None:
        self.config = Config.of(config)
        self.name = name or self.config.name or f"node-{next(_NAMES)}"
        if (problem := Name().problem("node: name", self.name)) is not None:
            raise ConfigError([problem])
        settings = log_of(log) or self.config.log
        self.services = Services(self.name, self._service_added)
        self._logs = None if settings is None else self.services.add(NodeLogs(settings, self.name))
        self.clock: Clock = clock or SystemClock()
        self._on_error = on_error
        self.closed = self._draining = False
        self._ended: Closing | None = None
        self._over = threading.Event()
        self._full: set[BoundedQueue] = set()  # mailboxes that make publishers wait or fail
        self._stamp: Callable[[], int] = time.time_ns if clock is None else lambda: 1000 * self.clock.time()
        self._steady = SteadyTime(self._stamp)  # for all, as soon as somebody relies on it
        self._crashes = Crashes()  # in threads of its own
        self._timers = Timers(self.clock, self.name, on_error=self._timer_failed)
        self.subscriptions: dict[str, Subscription] = {}
        self._parting: set[Subscription] = set()  # cancelled, but what waits is still to be delivered
        self._ordered: set[Subscription] = set()  # whose events wait for their turn by time
        self._pulling: WeakSet[Subscription] = WeakSet()  # cancelled, but what waits may still be pulled
        self._channels: dict[str, Channel] = {}
        self._dispatchers: dict[Dispatch, Dispatcher] = {}
        self._wiring = Wiring()
        self._timing = Timing(self)
        self._numbers = count(1)
        self.services.start()

    def _service_added(self, service: Service) -> Callable[[], None]:
        """Other nodes may ask something of it, where there are any; what is returned has them ask no more."""
        return lambda: None

    # ── channels ──

    @overload
    def channel(self, name: str, type: builtins.type[F], *, context: Any = None) -> Channel[F]: ...
    @overload
    def channel(self, name: str, type: Any = None, *, context: Any = None) -> Channel[Any]: ...
    def channel(self, name: str, type: Any = None, *, context: Any = None) -> Channel[Any]:
        """The channel of that name: opened if it is there, declared with that type if not.

        `type` is an Event class, an EventType, a declaration such as `"badge: u32, level: f32"`, an Arrow schema, or
        `bytes` for a channel without a type. It may be left out for a channel that exists. `context`, also an Event
        class or a declaration, says what interests may read of its sources' processes (`context.NAME`)."""
        check_name(name)
        wanted = None if type is None or type is bytes else as_event_type(type)
        with self._wiring.lock:
            self._must_be_open("channel")
            found = self._channels.get(name)
            if found is not None:
                if (wanted is not None or type is bytes) and wanted != found.type:
                    raise ChannelError(
                        f"channel {name!r}: expected {spoken(found.type)}, which it has, found {spoken(wanted)}; "
                        "a channel has one type: open it with that, or give the source or subscription its own type"
                    )
                found.adopted = found.adopted and type is None
                if context is not None:
                    found.has_context(context)
                return found
            if type is None:
                hint = did_you_mean(name, self._channels, count=3) or "declare it with a type, or with bytes"
                raise ChannelError(f"channel {name!r}: expected one that exists, found none; {hint}")
            made = Channel[Any](self, name, wanted)
            if context is not None:
                made.has_context(context)
            return self._add_channel(made)

    def channels(self, pattern: str = "**") -> list[Channel]:
        """Channels whose names fit a pattern, by name."""
        wanted = Pattern(pattern)
        with self._wiring.lock:
            return [channel for name, channel in sorted(self._channels.items()) if wanted.matches(name)]

    def _add_channel(self, channel: Channel) -> Channel:
        self._channels[channel.name] = channel
        if channel.parent is None:
            self._remember(channel)
        for subscription in list(self.subscriptions.values()):
            self._join_later(subscription, channel)
        return channel

    def _remember(self, channel: Channel) -> None:
        """Its past is kept, where that is wanted: in memory, in the log, or in both."""
        history, logs = self.config.history, self._logs
        if logs is not None and logs.wants(channel.name):
            channel.backlog = RingsBeforeLog(channel, logs) if history else LogBacklog(channel, logs)
        elif history:
            channel.backlog = Rings(channel)
        if history:
            recorder = Recorder(channel, history)
            self._wiring.move([Move(channel, self._wiring.entry(channel, None), recorder, joins=True)])

    def _derive(
        self, parent: Channel, name: str, where: Any, *, output: Any, params: Mapping[str, object] | None
    ) -> Channel:
        """A channel of what an interest passes or makes of another channel's events. The interest is checked, and
        compiled, before the registry's lock is taken: publishers of other channels do not wait for that."""
        check_name(name)
        if parent.type is None:
            raise ChannelError(f"channel {parent.name!r} has no type and carries bytes: nothing can be derived from it")
        interest = interest_for(parent, self._interest_of(where), params, output=output)
        if interest is None:
            raise SubscriptionError("derive: expected a filter or a transformation, found None")
        tell(f"derived channel {name!r}", [f"interest: {remark}" for remark in interest.warnings])
        interest.prepare()
        with self._wiring.lock:
            self._must_be_open("derive")
            if parent.closed:
                raise ClosedError(f"channel {parent.name!r} is closed")
            if name in self._channels:
                raise ChannelError(f"channel {name!r}: expected a new name for the derived channel, found one in use")
            channel = Channel(self, name, interest.output or parent.type, parent=parent, interest=interest)
            channel.stage_entry = self._wiring.entry(parent, interest)
            self._wiring.derive(channel)
            return self._add_channel(channel)

    def _shut_channel(self, channel: Channel) -> None:
        with self._wiring.lock:
            logs = None if channel.closed or channel.parent is not None else self._logs
            ended = self._close_channel(channel)
            had = None if logs is None else logs.release(channel.name)
        if logs is not None and had is not None:  # it comes to rest, and other channels do not wait for that
            logs.end(had)
        for subscription in ended:
            subscription._release()
        if self._asking is not None:
            self._asking.end(channel)
        self._release()

    def _close_channel(self, channel: Channel) -> list[Subscription]:
        """The subscriptions that end with it."""
        ended = []
        if not channel.closed:
            for derived in list(channel.derived):
                ended += self._close_channel(derived)
            channel.closed = True
            for subscription in list(self.subscriptions.values()):
                here = [key for key in subscription._attachments if key[0] is channel]
                if not here:
                    continue
                if all(asked.target is channel for asked in subscription._asked):
                    self._cancel(subscription, drain=True)
                    ended.append(subscription)
                else:
                    self._leave(subscription, here)
            for source in list(channel.sources.values()):
                self._withdraw(source)
            if channel.parent is not None:
                self._wiring.remove_derived(channel)
            del self._channels[channel.name]
            for subscription in self.subscriptions.values():
                subscription.refused.pop(channel.name, None)
        return ended

    # ── sources ──

    def _add_source(self, channel: Channel, name: str | None, **options: Any) -> Source:
        return advertise(self, channel, name, **options)

    def _place_source(self, source: Source) -> None:
        """A source is about to be advertised: where it was before, if it goes on elsewhere or comes from there."""

    def _moved_sources(self, channel: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Sources of a channel that came from other nodes and are here, with the event after which they are; and those
        that have left, with how often they had moved then."""
        return {}, {}

    def _move_source(self, source: Source, to: str | None, lasts: float) -> str:
        """A token with which a source goes on elsewhere."""
        raise SubscriptionError(
            f"move: {source}: expected a node of a federation, found one without a network; open it with listen= or "
            "connect="
        )

    def _free_name(self, what: str, taken: Container[str]) -> str:
        """A name for what was given none."""
        return next(name for number in self._numbers if (name := f"{what}-{number}") not in taken)

    def _close_source(self, source: Source) -> None:
        self._withdraw(source)
        self._release()

    def _withdraw(self, source: Source) -> None:
        if source._timer is not None:
            source._timer.cancel()
        if source.at_end is not None:
            source.at_end()
        self._wiring.withdraw(source)

    def _may_ask(self, subscription: Subscription) -> bool:
        """Whether a sink's events may come from sources that wait to be asked."""
        return any(
            flow.source.passive and not flow.source.closed
            for channel, _ in list(subscription._attachments)
            for flow in channel.flows()
        )

    def _ask_sources(self, subscription: Subscription) -> bool:
        """Ask them; whether any gave an event."""
        with self._wiring.lock:
            sources = {
                flow.source.id: flow.source for channel, _ in subscription._attachments for flow in channel.flows()
            }
        given = 0
        for source in sources.values():
            if source.passive and source._timer is None:
                try:
                    given += source.ask()
                except Exception as error:  # the source's fault: the sink that pulls goes on without it
                    log.error("%s: asking it raised %s: %s", source, type(error).__name__, error, exc_info=error)
        return given > 0

    # ── subscriptions ──

    @overload
    def subscribe(
        self,
        target: str,
        handler: Callable[[F], Any] | None = None,
        where: str | Callable[..., Any] | None = None,
        *,
        type: builtins.type[F],
        about: Literal[False] | None = None,
        **options: Unpack[HandOver],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        target: str,
        handler: Callable[[F, About], Any],
        where: str | Callable[..., Any] | None = None,
        *,
        type: builtins.type[F],
        about: bool | None = None,
        **options: Unpack[HandOver],
    ) -> Subscription[F]: ...
    @overload
    def subscribe(
        self,
        target: str,
        handler: Callable[..., Any] | str | Interest | None = None,
        where: Any = None,
        *,
        type: str | EventType | None = None,
        about: bool | None = None,
        batch: int | bool = False,
        **options: Unpack[HandOver],
    ) -> Subscription[Any]: ...
    def subscribe(
        self,
        target: str,
        handler: Callable[..., Any] | str | Interest | None = None,
        where: Any = None,
        *,
        params: Mapping[str, object] | None = None,
        type: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Subscription[Any]:
        """Ask for the events of a channel by name, or of all whose names fit a pattern, present and future.

        `*` stands for one part of a name, `**` for any number: `ie.tcd.**`. The rest is as for `channel.subscribe`. The
        interest is checked against each channel's type; channels that it does not fit are in `subscription.refused`."""
        wanted = Pattern(target) if is_pattern(target) else self.channel(target)
        function, where = parted(handler, where, wanted.type if isinstance(wanted, Channel) else None)
        asked = Asked(wanted, where, params, None if type is None else as_event_type(type))
        made: Subscription[Any] = self._start(
            Subscription, [asked], make_options(self.config, function, **known_options(options)), name
        )
        return made

    def correlate(
        self,
        tree: Condition,
        handler: Callable[[Match], Any] | Callable[[Match, About], Any] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Correlation:
        """Ask for a conjunction or disjunction of events over several channels: `all_of(on(...), on(...))`.

        It delivers a `Match`, the events that satisfied the tree, each time it is satisfied. The options are those of
        `channel.subscribe`."""
        wrong = [name for name, fine in (("batch", False), ("order", "receive")) if options.get(name, fine) != fine]
        if wrong:
            raise SubscriptionError(f"correlate: {wrong[0]}= has no meaning for matches; remove it")
        made = Tree(tree)
        chosen = make_options(self.config, handler, **known_options(options))
        correlation: Correlation = self._start(Correlation, self._inputs(made.leaves), chosen, name, made)
        return correlation

    def operate(
        self, operator: Operator, inputs: Sequence[Part], to: Channel, *, name: str | None = None
    ) -> Derivation:
        """Run an operator over events of several channels, each `on(...)`, and publish what it makes in a channel.

        It is offered one event at a time, with the number of its input, in order of arrival; see `Operator`. Cancelling
        what this returns ends it, and closes its source."""
        for each in inputs:
            if not isinstance(each, Part):
                raise SubscriptionError(f"operate: inputs: expected on(...) for each, found {each!r}")
        if not inputs:
            raise SubscriptionError("operate: inputs: expected one at least, found none")
        asked = self._inputs(inputs)
        source = to.source(name)
        try:
            made: Derivation = self._start(Derivation, asked, make_options(self.config, None), name, operator, source)
        except BaseException:
            source.close()
            raise
        return made

    def match(
        self,
        pattern: Any,
        handler: Callable[..., Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        aliases: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        name: str | None = None,
        order: PatternOrder = "time",
        **options: Any,
    ) -> Watch[Any]:
        """Ask for what several events say together: a `Pattern`, or its text, over channels that this node knows.

        Its results are handed over as events are, with the options of `channel.subscribe`. What an event must be to
        matter to the pattern is asked at its source. `order` is that of the events' times, or of their arrival."""
        from headwater.channel.patterns.creation import match

        return match(self, pattern, handler, params, aliases, limits, name, order, options)

    def pattern(
        self,
        name: str,
        pattern: Any,
        *,
        to: str | Channel | None = None,
        params: Mapping[str, Any] | None = None,
        aliases: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        order: PatternOrder = "time",
    ) -> NamedPattern:
        """A pattern with a name, whose results are events of a channel (`to`, or one of its name): they can be
        subscribed to, filtered, logged, and used in other patterns. Closing what this returns ends it."""
        from headwater.channel.patterns.creation import named

        return named(self, name, pattern, to, params, aliases, limits, order)

    def _is_gone(self, position_key: str) -> bool:
        """Whether a source of another node, by the key under which positions in it are kept, is no more."""
        return True

    def _position_key(self, source: Source) -> str | None:
        """Under which other nodes keep their positions in a source of this one that is not logged; None: there are
        none."""
        return None

    @property
    def _marks(self) -> bool:
        """Whether events may come from other nodes, and of those that no element of a pattern fits only marks."""
        return False

    def _narrowing_of(self, matching: Any) -> Any:
        """Who sees to it that only what a pattern can use comes from other nodes; None where nobody has to."""
        return None

    def _hearings(self, channel: Any, entry: Any) -> Sequence[Hearing]:
        """Of each other node with sources of a channel: since when what an interest wants of it comes here."""
        return ()

    def _known_types(self) -> dict[str, EventType]:
        """The channels that a pattern may name, with their types."""
        return {channel.name: channel.type for channel in self.channels() if channel.type is not None}

    def _inputs(self, parts: Iterable[Part]) -> list[Asked]:
        """What is asked for by parts that are put together."""
        asked = []
        for leaf in parts:
            target = leaf.channel
            if isinstance(target, str):
                target = Pattern(target) if is_pattern(target) else self.channel(target)
            elif not isinstance(target, Channel):
                raise SubscriptionError(f"on: expected a channel, its name or a pattern, found {target!r}")
            type = None if leaf.type is None else as_event_type(leaf.type)
            asked.append(Asked(target, leaf.where, leaf.params, type, str(leaf.name)))
        return asked

    def _start(self, kind: Any, asked: list[Asked], options: Options, name: str | None, *more: Any) -> Any:
        """Make a subscription and attach it to all channels it asks for, at once; or raise with nothing done."""
        check_label("subscribe", name)
        check_keeping(options.delivery, name, self.state)
        asked = [self._named(each) for each in asked]
        with self._wiring.lock:
            self._must_be_open("subscribe")
            if name is not None and name in self.subscriptions:
                raise SubscriptionError(
                    f"name: expected one that no subscription of this node has, found {name!r} in use"
                )
            if options.delivery.durable:
                self._end_earlier(name)
            made = kind(
                self,
                name or self._free_name("subscription", self.subscriptions),
                asked,
                options,
                None if options.handler is None else self._dispatcher(options.dispatch),
                *more,
            )
            for each in asked:
                if isinstance(each.target, Channel) and self._channels.get(each.target.name) is not each.target:
                    raise ClosedError(f"subscribe: channel {each.text!r} is closed, or of another node")
            attachments, errors = self._attach_all(made, range(len(asked)))
            self.subscriptions[made.name] = made
            # The past is judged without the registry's lock, since that may take long; what has changed meanwhile is
            # looked at again.
            begins = any(attachment.past is not None for attachment in attachments)
            if not begins:
                self._join(made, attachments, errors)
        if begins:
            self._prepare(made, attachments)
            with self._wiring.lock:
                self._still_there(made, attachments)
                self._join(made, attachments, errors)
        beginning, made._starters = made._starters, []
        if made._progress is not None:
            made._progress.note_beginnings()
        dispatch_all(beginning)
        self._warn(made, attachments)
        return made

    def _is_first(self, subscription: Subscription[Any]) -> bool:
        """Whether a durable subscription has what it has missed of sources of other nodes by itself, since nobody here
        has asked for their events before it; the wiring's lock is held."""
        return True

    def _named(self, asked: Asked) -> Asked:
        """What is asked for; where that is the name of an interest, with that interest."""
        return replace(asked, where=self._interest_of(asked.where)) if is_reference(asked.where) else asked

    def _interest_of(self, where: Any) -> Any:
        """What was given for an interest; of a name, the interest that the library has."""
        return self._by_name(where).interest() if is_reference(where) else where

    def _by_name(self, where: str) -> Any:
        """The entry of a library that a name such as `@tailgating/2` stands for."""
        raise LibraryError(f"{where}: expected a node with a library, found one without; use headwater.Node")

    def _warn(self, made: Subscription, attachments: list[Attachment]) -> None:
        """Say what is hardly meant; whoever has made warnings errors gets no subscription."""
        made.warnings = remarks_on(attachments) + remarks_on_history(made, attachments)
        try:
            tell(f"subscription {made.name!r}", made.warnings)
        except HeadwaterWarning:
            made.cancel()
            raise

    def _join(
        self, made: Subscription, attachments: list[Attachment], errors: list[tuple[Channel, HeadwaterError]]
    ) -> None:
        if made._by_time:
            self._ordered.add(made)
        if made._steadily:
            self._keep_time()
        made._entering()
        self._wiring.move(self._joining(made, attachments, errors))

    def _keep_time(self) -> None:
        """Somebody relies on it that nothing older is published: from here on times do not go back, though that takes
        a little longer."""
        with self._wiring.lock:
            if self._stamp is not self._steady:
                self._stamp = self._steady
                for channel in self._channels.values():
                    for source in list(channel.sources.values()):
                        if source.local:
                            source.keep_time(self._stamp)

    def _prepare(self, made: Subscription, attachments: list[Attachment]) -> None:
        """Read the past that a subscription wants to begin with; no lock is held, since it may be long."""
        try:
            for attachment in attachments:
                attachment.prepare()
        except BaseException:
            with self._wiring.lock:
                self.subscriptions.pop(made.name, None)
            raise

    def _still_there(self, made: Subscription, attachments: list[Attachment]) -> None:
        """What was closed while a subscription was being prepared is left out; raises if that is what it wanted."""
        for attachment in list(attachments):
            channel = attachment.channel
            if self._channels.get(channel.name) is not channel:
                attachments.remove(attachment)
                if not isinstance(made._asked[attachment.part].target, Pattern):
                    self.subscriptions.pop(made.name, None)
                    raise ClosedError(f"subscribe: channel {channel.name!r} was closed meanwhile")
        if made.cancelled or self.closed:
            self.subscriptions.pop(made.name, None)
            raise ClosedError(f"subscribe: node {self.name!r} was closed, or the subscription cancelled, meanwhile")

    def _attach_all(
        self, subscription: Subscription, parts: Iterable[int]
    ) -> tuple[list[Attachment], list[tuple[Channel, HeadwaterError]]]:
        """Attachments for all channels that these parts want, and what is wrong with those of a pattern that it does
        not fit; raises if there is a fault and it fits none."""
        made, errors = [], []
        for channel in self._channels.values():
            for part in parts:
                asked = subscription._asked[part]
                if not asked.wants(channel):
                    continue
                try:
                    made.append(attach(subscription, part, channel, self._wiring))
                except HeadwaterError as error:
                    if not isinstance(asked.target, Pattern):
                        raise
                    errors.append((channel, error))
        if errors and not made:
            raise errors[0][1]
        return made, errors

    def _joining(
        self, subscription: Subscription, made: list[Attachment], errors: list[tuple[Channel, HeadwaterError]]
    ) -> list[Move]:
        """Enter them with the subscription: what remains to be done to have them work."""
        for each in made:
            subscription._attachments[each.channel, each.part] = each
            subscription.refused.pop(each.channel.name, None)
        for channel, problem in errors:
            self._refuse(subscription, channel, problem)
        if subscription._shared:
            return []  # its group is in the routes
        return [Move(each.channel, each.entry, each, joins=True) for each in made]

    def _join_later(self, subscription: Subscription, channel: Channel) -> None:
        """A channel has come that a subscription's pattern fits."""
        for part in subscription._wants(channel):
            try:
                made = attach(subscription, part, channel, self._wiring)
            except HeadwaterError as error:
                self._refuse(subscription, channel, error)
            else:
                self._wiring.move(self._joining(subscription, [made], []))
                self._warn_later(subscription, made)

    def _warn_later(self, subscription: Subscription, made: Attachment) -> None:
        """The same for a channel that came later: what is new is logged, since its subscriber is elsewhere by now."""
        for message in remarks_on([made]):
            if message not in subscription.warnings:
                subscription.warnings.append(message)
                log.warning("subscription %r at channel %s: %s", subscription.name, made.channel.name, message)

    def _refuse(self, subscription: Subscription, channel: Channel, error: HeadwaterError) -> None:
        subscription.refused[channel.name] = str(error)
        log.warning("subscription %r is not attached to channel %s: %s", subscription.name, channel.name, error)

    def _leave(self, subscription: Subscription, keys: Iterable[tuple[RoutedChannel, int]]) -> None:
        gone = [subscription._attachments.pop(key) for key in keys]
        if not subscription._shared:
            self._wiring.move([Move(each.channel, each.entry, each, joins=False) for each in gone])

    def _change(
        self, subscription: Subscription, part: int, *, where: Any, params: Mapping[str, object] | None, zones: Any
    ) -> dict[str, int]:
        """Exchange an interest, its parameters or its zones, everywhere at once."""
        with self._wiring.lock:
            subscription._must_live("change")
            old, options = subscription._asked[part], subscription._options
            scope = options.zones if zones is ... else check_zones(zones)
            new = old
            if where is not ...:
                new = replace(old, where=where, params=params)
            elif params:
                check_params(subscription, part, params)
                new = replace(old, params={**(old.params or {}), **params})
            elif zones is ...:
                raise SubscriptionError("change: expected where=, params= or zones=, found none of them")
            subscription._asked[part], subscription._options = new, replace(options, zones=scope)
            subscription.epoch += 1
            try:
                parts = [part] if zones is ... else range(len(subscription._asked))
                after, errors = self._attach_all(subscription, parts)
                if where is not ...:  # whoever has made warnings errors keeps what was there
                    tell(f"subscription {subscription.name!r}", remarks_on(after))
            except Exception:
                subscription._asked[part], subscription._options = old, options
                subscription.epoch -= 1
                raise
            gone = [subscription._attachments.pop(key) for key in list(subscription._attachments) if key[1] in parts]
            before = {(each.channel, each.part): each for each in gone}
            for each in after:
                if (earlier := before.get((each.channel, each.part))) is not None:
                    each.goes_on_for(earlier)
            moves = [Move(each.channel, each.entry, each, joins=False) for each in gone]
            self._wiring.move(moves + self._joining(subscription, after, errors))
        if where is not ...:
            others = [each for each in subscription.warnings if not each.startswith(ABOUT_INTEREST)]
            subscription.warnings = remarks_on(subscription._attachments.values()) + others
        return {source: point for each in after for source, point in each.points.values()}

    def _move(self, subscription: Subscription, to: str | None, lasts: float) -> str:
        """A token with which a subscription goes on elsewhere."""
        raise SubscriptionError(
            f"move: subscription {subscription.name!r}: expected a node of a federation, found one without a network; "
            "open it with listen= or connect="
        )

    def _change_if_agreed(self, subscription: Subscription, part: int, **what: Any) -> dict[str, int]:
        """As `_change`; if another node that runs the old interest refuses the new one, FederationError, and nothing is
        changed."""
        return self._change(subscription, part, **what)

    async def _achange(self, subscription: Subscription, part: int, **what: Any) -> dict[str, int]:
        """The same for a coroutine. Once it has begun it is done, also if who awaits it is cancelled."""
        return await in_thread(partial(Node._change, self, subscription, part, **what), stop=nothing)

    def _foresee(
        self, subscription: Subscription, part: int, *, where: Any, params: Mapping[str, object] | None, zones: Any
    ) -> list[tuple[RoutedChannel, Entry]]:
        """The entries that such a change would lead to; nothing is changed. The wiring's lock is held."""
        asked, options = subscription._asked[part], subscription._options
        if where is not ...:
            asked = replace(asked, where=where, params=params)
        elif params:
            asked = replace(asked, params={**(asked.params or {}), **params})
        scope = options.zones if zones is ... else check_zones(zones)
        found = []
        for channel, of in subscription._attachments:
            if of == part:
                found.append((channel, self._foreseen(subscription, channel, part, asked, scope)))
        return found

    def _tell_again(self, entries: list[tuple[RoutedChannel, Entry]]) -> None:
        """What is said of these interests to other nodes has changed."""
        with self._wiring.lock:
            for channel, entry in entries:
                self._wiring.rearranged(channel, [entry])
            self._wiring.changed({channel: None for channel, _ in entries})

    def _foreseen(
        self, subscription: Subscription, channel: Any, part: int, asked: Asked, scope: frozenset[str] | None
    ) -> Entry:
        wanted = asked.wanted(channel)
        made = None if not isinstance(wanted, Interest) else wanted.output
        rated = rated_of(subscription._options, made or channel.type)
        owner, claimant = (subscription._number, part), subscription._options.as_
        return self._wiring.entry(channel, wanted, zones=scope, rated=rated, claimant=claimant, owner=owner)

    def _rename(self, subscription: Subscription, name: str) -> None:
        """Give the name of a subscription free for another."""
        with self._wiring.lock:
            self.subscriptions.pop(subscription.name, None)
            subscription.name = name
            self.subscriptions[name] = subscription

    def _end_subscription(self, subscription: Subscription, *, drain: bool) -> None:
        with self._wiring.lock:
            self._cancel(subscription, drain=drain)
        subscription._release()

    def _cancel(self, subscription: Subscription, *, drain: bool) -> None:
        if not subscription.cancelled:
            subscription.cancelled = True
            self._leave(subscription, list(subscription._attachments))
            self.subscriptions.pop(subscription.name, None)
            self._ordered.discard(subscription)
            drop = subscription._handler is not None and (not drain or subscription.paused is not None)
            subscription._mailbox.close(drop=drop)
            if drop or subscription._fenced is not None:  # what waits of one on its way is for its next place
                subscription._end_progress()
            if subscription._dispatcher is None:
                self._pulling.add(subscription)
            if not drop and (subscription._dispatcher is not None or subscription._progress is not None):
                self._parting.add(subscription)
            self._end_idle()

    def _end_idle(self) -> None:
        """Those that were cancelled and have nothing more to deliver, or are paused, are over."""
        for each in [each for each in self._parting if each._mailbox.idle and not each._parked]:
            each._mailbox.close(drop=each._handler is not None)
            each._end_progress()
            self._parting.discard(each)

    def _end_earlier(self, name: str | None) -> None:
        """A durable sink of a name that is subscribed anew hands over nothing more of what the new one has; the
        wiring's lock is held."""
        for each in {*self._parting, *self._pulling}:
            if each.name == name:
                each._end_progress()
                if each._handler is None:  # who pulls may still have what is in no log
                    self._parting.discard(each)

    def _release(self) -> None:
        """Sources have promised more, or are gone: what waited for them goes on. Call it without any lock."""
        for subscription in list(self._ordered):
            subscription._release()

    # ── objects ──

    def _spreading(self) -> Any:
        """Who carries what triggers over several nodes say (`channel/objects/spreading.py`), where there are others."""
        return None

    @property
    def objects(self) -> Objects:
        """The objects that this node owns, which are kept in its `state`; opened when they are first asked for."""
        from headwater.channel.objects.service import objects_of

        return objects_of(self)

    def _questions(self) -> Questions:
        """Who asks and who answers here; made when that is first wanted."""
        if self._asking is None:
            from headwater.channel.questions.service import questions_of

            self._asking = questions_of(self)
        return self._asking

    def _groups(self) -> Groups:
        """The groups that sinks here and elsewhere share events in; made when one is first wanted."""
        if self._sharing is None:
            from headwater.channel.groups.service import groups_of

            self._sharing = groups_of(self)
        return self._sharing

    # ── time ──

    def every(
        self,
        channel: str | Channel,
        period: float | timedelta,
        *,
        first: float | None = None,
        priority: int = 0,
        name: str | None = None,
    ) -> Timer:
        """Publish a `Timeout` on a channel every `period` seconds, the first after `first` if that is given.

        Of timers due at the same moment those of higher `priority` fire first; it is also the events' priority."""
        return self._timing.every(channel, period, first=first, priority=priority, name=name)

    def after(
        self, channel: str | Channel, delay: float | timedelta, *, priority: int = 0, name: str | None = None
    ) -> Timer:
        """Publish one `Timeout` on a channel, `delay` seconds from now."""
        return self._timing.after(channel, delay, priority=priority, name=name)

    def deadline(
        self,
        channel: str | Channel,
        on: str | Channel,
        within: float | timedelta,
        where: Any = None,
        *,
        params: Mapping[str, object] | None = None,
        repeat: bool = False,
        priority: int = 0,
        name: str | None = None,
    ) -> Deadline:
        """Publish a `Timeout` on `channel` when channel `on` had no event of the interest `where` for so many seconds.

        Once, until the next event comes; with `repeat`, again after each such time of silence."""
        return self._timing.deadline(
            channel, on, within, where, params=params, repeat=repeat, priority=priority, name=name
        )

    # ── dispatching and failures ──

    def _dispatcher(self, value: Dispatch) -> Dispatcher:
        found = self._dispatchers.get(value)
        if found is None:
            found = self._dispatchers[value] = value.start(self.name, self.clock)
        return found

    def _dispatching(self) -> list[DispatchStatus]:
        """What the dispatchers are doing."""
        return [each.status() for each in self._dispatchers.values()]

    def _report_failure(self, subscription: Subscription, error: BaseException, event: Any) -> None:
        """A handler raised."""
        log.error("subscription %r: its handler raised %s", subscription.name, text_of(error), exc_info=error)
        if self._on_error is not None:
            try:
                self._on_error(subscription, error, event)
            except Exception as worse:
                log.error("node %s: on_error itself raised %s: %s", self.name, type(worse).__name__, worse)

    def _timer_failed(self, error: BaseException) -> None:
        log.error("node %s: a timer raised %s: %s", self.name, type(error).__name__, error)

    # ── what is going on ──

    def report(self) -> NodeReport:
        """Everything: channels, sources, subscriptions, their counts, and where each interest runs and why."""
        return replace(reporting.node(self), services=self.services.report())

    def _channel_report(self, channel: Channel) -> ChannelReport:
        return reporting.channel(channel)

    def _source_report(self, source: Source) -> SourceReport:
        return reporting.source(source)

    def _subscription_report(self, subscription: Subscription) -> SubscriptionReport:
        return reporting.subscription(subscription)

    def _counts_of(self, subscription: Subscription) -> Counts:
        with self._wiring.lock:
            return subscription._counted()

    # ── the end ──

    def run(self) -> Closing:
        """Stay until Ctrl-C or SIGTERM, or until another thread closes the node; then close it, draining: what was
        published is delivered, and what durable sinks have handled is remembered.

        A second Ctrl-C does not wait for that: it raises KeyboardInterrupt. What a program had for these signals before
        is there again afterwards. Signals come to the main thread: in another one this stays until the node is closed,
        whoever does that. It is not for coroutines, whose loop it would stop."""
        return stay(self)

    def close(self, *, drain: bool = True, timeout: float | None = None) -> Closing:
        """End it: deliver what waits (`drain`), within `timeout` seconds, or drop it; then nothing is left running.

        While it drains, handlers may still publish. Called from a handler, it does not wait for that handler. What
        was not delivered is dropped, counted, and named in the result. Sinks that pull may still take what waits. In
        the end a log comes to rest, for which it has `Log.rest_seconds` besides."""
        until = monotonic() + (self.config.close_timeout if timeout is None else timeout)
        if drain:
            self.services.drain(until)
        ended = Ending(self, drain=drain, timeout=timeout).close()
        self._leave_all(drain, until)
        return ended

    async def aclose(self, *, drain: bool = True, timeout: float | None = None) -> Closing:
        """The same from a coroutine, without stopping the loop."""
        until = monotonic() + (self.config.close_timeout if timeout is None else timeout)
        if drain and self.services.busy:
            await in_thread(partial(self.services.drain, until))
        ended = await Ending(self, drain=drain, timeout=timeout).aclose()
        await in_thread(partial(self._leave_all, drain, until))
        return ended

    def _leave_all(self, drain: bool, until: float) -> None:
        """The last part of the end: other nodes, and what services hold."""
        try:
            self._depart(drain, until)
        finally:
            if self._over.is_set():  # else another thread is about to
                self.services.stop()

    def _depart(self, drain: bool, until: float) -> None:
        """Leave the other nodes, where there are any."""

    def _started_dispatchers(self) -> list[Dispatcher]:
        """Those that were needed so far."""
        return list(self._dispatchers.values())

    def _must_be_open(self, what: str) -> None:
        if self.closed:
            raise ClosedError(f"{what}: node {self.name!r} is closed; open another")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(drain=kind is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.aclose(drain=kind is None)

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}Node {self.name}: {len(self._channels)} channels>"
