"""What a subscriber asks for, checked at the door and made ready for each channel it concerns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import FunctionType
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

from headwater.channel.names import Pattern
from headwater.channel.options.config import STRATEGIES, AsyncLoop, Config, Dispatch, Queue
from headwater.channel.options.delivery import (
    Delivery,
    Order,
    Reliable,
    check_delivery,
    check_history,
    check_order,
    check_zones,
)
from headwater.channel.options.rate import Rate, check_rate
from headwater.contextual import interest_with_context
from headwater.errors import HeadwaterError, SubscriptionError
from headwater.extras import require
from headwater.interest import Apart, Interest, is_reference
from headwater.ir.context import FIELD, PREFIX
from headwater.late import asyncio
from headwater.spelling import did_you_mean
from headwater.types import EventType
from headwater.types.model import Record

BATCH = 4096
FIRST = 2**62  # the highest priority there is


class AskedChannel(Protocol):
    """A channel, as those who ask for its events know it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> EventType | None: ...
    @property
    def context(self) -> Record | None: ...


class Claimant(Protocol):
    """A user that a subscription is for, with what proves that to other nodes."""

    @property
    def user(self) -> str: ...

    def when_renewed(self, call: Callable[[], None]) -> None:
        """Have this called whenever the proof is another."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The events of one channel, or of all whose names fit a pattern, that pass an interest, in the type wanted."""

    target: AskedChannel | Pattern
    where: Any = None
    params: Mapping[str, object] | None = None
    type: EventType | None = None
    name: str = ""  # of a part of a filter tree
    marking: Any = None  # of a pattern, where what comes is an event or a mark

    def wants(self, channel: AskedChannel) -> bool:
        if isinstance(self.target, Pattern):
            return self.target.matches(channel.name)
        return channel is self.target

    @property
    def text(self) -> str:
        return str(self.target) if isinstance(self.target, Pattern) else self.target.name

    def interest(self, channel: AskedChannel) -> Interest | None:
        """What sources of this node are asked with: the interest for a channel's type."""
        where = self.where.here if isinstance(self.where, Apart) else self.where
        return interest_for(channel, where, self.params)

    def wanted(self, channel: AskedChannel) -> Interest | Apart | None:
        """The same, with what sources of other nodes are asked with, where that is something else."""
        return self.where if isinstance(self.where, Apart) else self.interest(channel)


@dataclass(frozen=True, slots=True)
class Options:
    """How the events are to be handed over."""

    handler: Callable[..., Any] | None
    priority: Any
    lifetime: Any
    queue: Queue
    dispatch: Dispatch
    before: Callable[..., Any] | None
    after: Callable[..., Any] | None
    batch: int
    about: bool
    failures: int
    coroutine: bool
    delivery: Delivery = field(default_factory=Reliable)
    order: Order = "receive"
    zones: frozenset[str] | None = None
    history: int = 0  # past events to begin with; below 0 for all there are
    rate: Rate | None = None
    as_: Claimant | None = None  # the user that it is for

    @property
    def sheds(self) -> Rate | None:
        """The rate beyond which events are shed, where they come from."""
        return None if self.rate is None or self.rate.waits else self.rate


def parted(handler: Any, where: Any, type: EventType | None) -> tuple[Any, Any]:
    """The handler and the interest, whichever came first: text, or an Interest, is no handler. `type` is the channel's,
    if it is known: a single word that is none of its fields is not taken for an interest."""
    if not isinstance(handler, str | Interest):
        return handler, where
    if isinstance(handler, str) and handler.isidentifier() and (type is None or handler not in type.record.by_name):
        raise SubscriptionError(
            f"handler: expected a function, found {handler!r}, which is not a field either; an interest may "
            "stand here, or come as where="
        )
    if where is not None and not callable(where):
        raise SubscriptionError(
            f"handler: expected a function, found the interest {handler!r}, and another one as where={where!r}; "
            "combine them in one: where='... and ...'"
        )
    return where, handler


def make_options(
    config: Config,
    handler: Any,
    *,
    priority: Any = None,
    lifetime: Any = None,
    queue: Queue | int | None = None,
    dispatch: Dispatch | str | None = None,
    before: Any = None,
    after: Any = None,
    batch: int | bool = False,
    about: bool | None = None,
    failures: int | None = None,
    delivery: Delivery | str | None = None,
    order: Order | None = None,
    zones: str | Iterable[str] | None = None,
    history: int | Literal["all"] | None = None,
    rate: Rate | float | None = None,
    as_: Claimant | None = None,
) -> Options:
    """Checked options; what is not given is the configuration's."""
    for what, function in (("handler", handler), ("before", before), ("after", after)):
        if function is not None and not callable(function):
            hint = "; an interest comes as where=" if what == "handler" else ""
            raise SubscriptionError(f"{what}: expected a function, found {function!r}{hint}")
    for what, function in (("before", before), ("after", after)):
        if function is not None and handler is None:
            raise SubscriptionError(f"{what}: it is a constraint of the handler, and there is none; remove it")
        if is_coroutine(function):
            raise SubscriptionError(f"{what}: expected a plain function, found a coroutine function")
    about = takes_about(handler) if about is None else bool(about)
    _check_arguments(handler, before, after, about=about)
    if isinstance(batch, bool):
        batch = BATCH if batch else 0
    elif not isinstance(batch, int) or batch < 1:
        raise SubscriptionError(
            f"batch: expected a number of events from 1 on, or True for {BATCH:,}, found {batch!r}; "
            "leave it out to be given single events"
        )
    if batch:
        require("arrow", "subscribe(batch=...)")
    if batch and handler is None:
        raise SubscriptionError("batch: it is for handlers; to pull batches call get_batch()")
    if failures is not None and (isinstance(failures, bool) or not isinstance(failures, int) or failures < 0):
        raise SubscriptionError(f"failures: expected a number, 0 for no limit, found {failures!r}")
    coroutine = is_coroutine(handler)
    checked = check_delivery(delivery, handler)
    return Options(
        handler=handler,
        priority=priority,
        lifetime=lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime,
        queue=_queue(queue, config),
        dispatch=_dispatch(dispatch, config, coroutine=coroutine),
        before=before,
        after=after,
        batch=batch,
        about=about,
        failures=config.failures if failures is None else failures,
        coroutine=coroutine,
        delivery=checked,
        order=check_order(order),
        zones=check_zones(zones),
        history=check_history(history),
        rate=_rate(rate, handler, checked),
        as_=_claimant(as_),
    )


def known_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options by name, none misspelt."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        hint = did_you_mean(unknown[0], OPTIONS)
        raise SubscriptionError(f"{unknown[0]}: expected one of {', '.join(OPTIONS)}{f'; {hint}' if hint else ''}")
    return options


OPTIONS = tuple(inspect.signature(make_options).parameters)[2:]


def _claimant(given: Any) -> Claimant | None:
    if given is not None and not hasattr(given, "when_renewed"):
        what = "its name alone, which proves nothing" if isinstance(given, str) else repr(given)
        raise SubscriptionError(f"as_: expected headwater.security.AsUser(...), found {what}")
    found: Claimant | None = given
    return found


def _rate(given: Any, handler: Any, delivery: Delivery) -> Rate | None:
    """The rate of a subscription. What is promised to a durable one is not shed: it waits."""
    rate = check_rate("rate", given)
    if rate is None:
        return None
    if delivery.durable:
        if rate.over == "shed" or rate.age is not None or rate.reserve:
            raise SubscriptionError(
                f"rate: expected one by which nothing is shed, for a durable subscription loses nothing, found {rate}; "
                'write Rate(..., over="wait"): what is beyond it waits, and is read from the log'
            )
        rate = replace(rate, over="wait")
    if rate.waits and handler is None:
        raise SubscriptionError(
            'rate: over="wait" says how often a handler is called, and there is none; who pulls waits by itself'
        )
    return rate


def _queue(given: Queue | int | None, config: Config) -> Queue:
    if given is None:
        return config.queue
    if isinstance(given, Queue):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        policy = config.queue.policy
        return Queue(limit=given, policy=policy, wait=config.queue.wait)
    raise SubscriptionError(f"queue: expected a Queue or a limit, found {given!r}")


def _dispatch(given: Dispatch | str | None, config: Config, *, coroutine: bool) -> Dispatch:
    """The dispatch strategy of a subscription: what is given, or the node's. A coroutine needs a loop: by default that
    in which `subscribe` is called."""
    if isinstance(given, str):
        if given not in STRATEGIES:
            hint = did_you_mean(given, STRATEGIES)
            raise SubscriptionError(
                f"dispatch: expected one of {', '.join(STRATEGIES)}, found {given!r}{f'; {hint}' if hint else ''}"
            )
        given = STRATEGIES[given]()
    elif given is not None and not isinstance(given, tuple(STRATEGIES.values())):
        names = ", ".join(cls.__name__ for cls in STRATEGIES.values())
        raise SubscriptionError(f"dispatch: expected one of {names}, found {given!r}")
    chosen = config.dispatch if given is None else given
    if coroutine and not isinstance(chosen, AsyncLoop):
        if given is not None:
            raise SubscriptionError(
                f"dispatch: a coroutine handler runs on an asyncio loop, found {chosen.name!r}; "
                "use AsyncLoop(), or a plain function"
            )
        chosen = AsyncLoop()
    if isinstance(chosen, AsyncLoop) and chosen.loop is None:
        try:
            chosen = AsyncLoop(loop=asyncio.get_running_loop())
        except RuntimeError:
            raise SubscriptionError(
                "dispatch: expected a running asyncio loop in this thread, found none; "
                "subscribe in a coroutine, or give the loop: AsyncLoop(loop=...)"
            ) from None
    return chosen


def takes_about(handler: Callable[..., Any] | None) -> bool:
    """Whether a handler wants a second argument, what the service knows of the event."""
    if handler is None:
        return False
    try:
        parameters = _signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False  # a builtin: it gets the event
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional) == 2


_signatures: WeakKeyDictionary[Any, inspect.Signature] = WeakKeyDictionary()


def _signature(function: Any) -> inspect.Signature:
    """How it is called; of plain functions, which many subscriptions may have in common, found out once."""
    if not isinstance(function, FunctionType):
        return inspect.signature(function)
    found = _signatures.get(function)
    if found is None:
        found = _signatures[function] = inspect.signature(function)
    return found


def _check_arguments(handler: Any, before: Any, after: Any, *, about: bool) -> None:
    """Each can be called as it will be; else that would be found out with every event."""
    event = "the event and an About" if about else "the event"
    for what, function, count, given in (
        ("handler", handler, 2 if about else 1, event),
        ("before", before, 2 if about else 1, event),
        ("after", after, 2, "the event and the result"),
    ):
        problem = uncallable(function, count) if function is not None else ""
        if problem:
            other = ", or of the event and an About" if what == "handler" and not about else ""
            raise SubscriptionError(f"{what}: expected a function of {given}{other}, found {function!r}, {problem}")


def uncallable(function: Any, count: int) -> str:
    """Why a function cannot be called with so many values; nothing, if it can."""
    try:
        signature = _signature(function)
    except (TypeError, ValueError):
        return ""  # a builtin, of which nothing is known
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        return f"which cannot be called with {'that' if count == 1 else 'these'}: {error}"
    return ""


def is_coroutine(handler: Any) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(handler) or (
        inspect.iscoroutinefunction(type(handler).__call__) if callable(handler) else False
    )


# ── for one channel ──


def interest_for(
    channel: AskedChannel, where: Any, params: Mapping[str, object] | None = None, *, output: Any = None
) -> Interest | None:
    """An interest on a channel's events; an InterestError or ParameterError says what is wrong with it."""
    if where is None:
        if params:
            raise SubscriptionError(f"params: there is no interest that could use {', '.join(params)}")
        return None
    if channel.type is None:
        raise SubscriptionError(
            f"channel {channel.name!r} has no type and carries bytes, so it takes no interests; "
            "declare it with a type, or filter in the handler"
        )
    if is_reference(where):
        raise SubscriptionError(
            f"{where!r}: expected an interest, found the name of one, which is not looked up here; give "
            f"node.library.find({where!r}).interest()"
        )
    if not isinstance(where, Interest):
        if channel.context is not None and _may_read_context(where, params):
            return interest_with_context(where, channel.type, channel.context, output=output, params=params)
        return Interest(where, channel.type, output=output, params=params)
    if output is not None:
        raise SubscriptionError("output: this interest says itself what it makes; remove output=")
    if where.origin is not None and (lacking := where.unreadable(channel.type)):
        wanted, has = where.type.record.by_name, channel.type.record.by_name
        expected = ", ".join(str(wanted[name]) for name in lacking)
        found = ", ".join(str(has[name]) if name in has else f"no {name}" for name in lacking)
        raise SubscriptionError(
            f"{where.origin} does not fit channel {channel.name!r}: expected {expected}, found {found}; publish a "
            "version for its type"
        )
    interest = where if where.type.record == channel.type.record else where.on(channel.type)
    if not params:
        return interest
    return interest.given(params)


def _may_read_context(where: Any, params: Mapping[str, object] | None) -> bool:
    """Whether it could: by the word, of a text; not where its values are given beside it."""
    if any(name.startswith(PREFIX) for name in params or ()):
        return False
    return not isinstance(where, str) or FIELD in where


def spoken(type: EventType | None) -> str:
    """A channel's type, in words."""
    return "bytes" if type is None else f"type {type.name} ({', '.join(str(field) for field in type.record.fields)})"


def check_label(what: str, name: object) -> None:
    """The name of a source or subscription is any text that can be shown in a line."""
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= 255 and name.isprintable()):
        raise SubscriptionError(
            f"{what}: name: expected a text of 1 to 255 printable characters, found {name!r}; or leave it out"
        )


def check_priority(what: str, priority: object) -> None:
    """A priority that is the same for all events."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > FIRST:
        raise SubscriptionError(
            f"{what}: priority: expected a whole number, the higher the sooner, found {priority!r}; "
            "only subscriptions take expressions"
        )


def check_seconds(what: str, value: object, *, zero: bool = False) -> float:
    """A number of seconds, or a timedelta, as a float."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    shortest = 0 if zero else 1e-9  # times are kept to the nanosecond
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and shortest <= seconds < 1e9:
        return float(seconds)
    least = "0 or more" if zero else "above 0"
    raise SubscriptionError(f"{what}: expected a number of seconds, {least}, or a timedelta, found {value!r}")


def resolve_facts(facts: Any, channel: AskedChannel) -> Interest | None:
    """What a source states of all its events, as a condition: from a dict of values, text, or an interest."""
    if facts is None:
        return None
    assert channel.type is not None
    if isinstance(facts, Mapping):
        if not facts:
            return None
        unknown = [name for name in facts if name not in channel.type.record.by_name]
        if unknown:
            raise SubscriptionError(
                f"facts: expected fields of {channel.type.name} ({', '.join(channel.type.record.by_name)}), "
                f"found {', '.join(map(repr, unknown))}"
            )
        made = _facts_of(facts, channel)
    else:
        made = interest_for(channel, facts)
    assert made is not None
    if made.stateful or made.output is not None or made.contextual:
        raise SubscriptionError("facts: expected a condition on single events, found one with state, output or context")
    return made


def _facts_of(facts: Mapping[str, object], channel: AskedChannel) -> Interest | None:
    """Equality of each of these fields, whatever their names, with its value."""
    assert channel.type is not None
    text = " and ".join(f"input.{name} == :p{number}" for number, name in enumerate(facts))
    try:
        return interest_for(channel, text, {f"p{number}": value for number, value in enumerate(facts.values())})
    except HeadwaterError as error:
        if len(facts) > 1:
            for name, value in facts.items():
                _facts_of({name: value}, channel)
            raise
        [(name, value)] = facts.items()
        expected = channel.type.record.by_name[name].type
        raise SubscriptionError(
            f"facts: {name!r}: expected a value to compare with {expected}, found {value!r}; "
            f"correct it, or state a condition"
        ) from error


__all__ = [
    "FIRST",
    "Asked",
    "Options",
    "check_label",
    "check_priority",
    "check_seconds",
    "interest_for",
    "known_options",
    "make_options",
    "resolve_facts",
    "spoken",
]
