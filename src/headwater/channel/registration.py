"""How a source, and a subscription to a channel, comes: everything is checked, then it is made, or nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.options.delivery import check_zones
from headwater.channel.options.expression import Expression
from headwater.channel.options.rate import check_rate
from headwater.channel.options.subscribe import Options, check_label, check_priority, check_seconds, resolve_facts
from headwater.channel.queues.forms import BytesForm, BytesIntake, Form, Intake
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.queues.position_keys import key_of
from headwater.channel.routing.attachment import Attachment, attachments_of
from headwater.channel.routing.route import Rated, Ready
from headwater.channel.routing.wiring import Wiring
from headwater.channel.source import Source
from headwater.channel.source_context import context_of
from headwater.channel.subscription import Subscription
from headwater.errors import ChannelError, ClosedError, ParameterError, SubscriptionError
from headwater.interest import as_event_type
from headwater.spelling import did_you_mean
from headwater.types import EventType

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract

NOTHING = as_event_type("nothing: bool?")  # the type of a constant expression on a channel without one


def advertise(
    node: NodeContract,
    channel: Channel,
    name: str | None,
    *,
    type: Any,
    facts: Any,
    priority: int,
    ask: Callable[[], Any] | None,
    every: float | None,
    zones: Any = None,
    context: Any = None,
    rate: Any = None,
    ready: Ready | None = None,
) -> Source:
    """A source of a channel; see `Channel.source`. With `ready`, it is for the caller to tell durable sinks what they
    have missed of it, when it holds no lock."""
    intake: Intake | BytesIntake
    if channel.type is None:
        if type not in (None, bytes) or facts is not None:
            what = "facts" if facts is not None else "types"
            raise ChannelError(
                f"channel {channel.name!r} has no type and carries bytes: its sources cannot have {what}"
            )
        intake = BytesIntake()
    else:
        intake = Intake(channel.type if type is None else as_event_type(type), channel.type)
    stated = resolve_facts(facts, channel)
    check_label("source", name)
    check_priority("source", priority)
    allowed, period, told = check_run("source", channel, ask=ask, every=every, context=context, rate=rate)
    scope = check_zones(zones) or frozenset()
    if node._logs is not None:
        node._logs.wait_for_end(channel.name)  # of a channel of the same name, before others have to wait for this
    with node._wiring.lock:
        node._must_be_open("source")
        if channel.closed:
            raise ClosedError(f"source: channel {channel.name!r} is closed")
        if name is None:
            name = node._free_name("source", channel.sources)
        elif name in channel.sources:
            raise ChannelError(f"source {name!r}: expected a name that no source of {channel.name} has; it is in use")
        log = None if node._logs is None or channel.parent is not None else node._logs.of(channel)
        source = Source(
            channel,
            name,
            intake,
            facts=stated,
            priority=priority,
            ask=ask,
            zones=scope,
            log=log,
            context=told,
            rate=allowed,
        )
        if told is not None and channel.context is None:
            channel.context = told.record
        source.stated = (
            dict(facts) if isinstance(facts, Mapping) else {} if stated is None else {"condition": stated.text}
        )
        node._place_source(source)
        if log is not None:
            source.kept_key, source.rereads = source.home or key_of(node.name, log.id, name), node.state is not None
        node._wiring.advertise(source)
        source.again = source.seq if log is not None else 0
        durable = [] if log is None else _durable(source)
    if durable:
        _catch_up(source, durable, ready)
    if period is not None:
        source._timer = node._timers.every(period, lambda due, missed: source.ask(), priority=priority)
    return source


def check_run(
    place: str, channel: Channel, *, ask: Any = None, every: Any = None, context: Any = None, rate: Any = None
) -> tuple[Any, float | None, Any]:
    """What a source does where it runs, and does not take along when it moves: its rate, period and context."""
    allowed = check_rate(f"{place}: rate", rate)
    if allowed is not None and allowed.age is not None:
        raise SubscriptionError(f"{place}: rate: age: what is published is new; leave it out")
    if ask is not None and not callable(ask):
        raise SubscriptionError(f"{place}: ask: expected a function that returns events, found {ask!r}")
    if every is not None and ask is None:
        raise SubscriptionError(f"{place}: expected ask= with every=, found every= alone: whom should it ask?")
    period = None if every is None else check_seconds(f"{place}: every", every)
    told = None
    if context is not None:
        record = None if channel.type is None else channel.type.record
        told = context_of(channel.name, record, channel.context, context)
    return allowed, period, told


def _durable(source: Source) -> list[Attachment]:
    """The durable sinks of a source that are there; the wiring's lock is held."""
    return [each for each in attachments_of(source) if each.subscription._progress is not None]


def _catch_up(source: Source, durable: list[Attachment], ready: Ready | None) -> None:
    """Of a source that goes on with its log, durable sinks that were there before it have what they have missed."""
    missed: Ready = [] if ready is None else ready
    with source.between():
        for attachment in durable:
            attachment.catch_up(source, missed)
    if ready is None:
        for attachment in durable:
            if (progress := attachment.subscription._progress) is not None:
                progress.note_beginnings()
        dispatch_all(missed)


def attach(subscription: Subscription, part: int, channel: Channel, wiring: Wiring) -> Attachment:
    """A subscription at a channel, ready to be moved in; raises where it does not fit."""
    asked, options = subscription._asked[part], subscription._options
    wanted = asked.wanted(channel)
    interest = asked.interest(channel)
    if interest is not None:
        interest.prepare()  # so that no source waits for it
    if channel.type is None:
        for what, given in (("type", asked.type), ("priority", options.priority), ("lifetime", options.lifetime)):
            if given is not None and not isinstance(given, (int, float)):
                raise SubscriptionError(f"{what}: channel {channel.name!r} has no type and carries bytes; remove it")
        if options.batch:
            raise SubscriptionError(f"batch: channel {channel.name!r} carries bytes, which are no rows; remove it")
    type = interest.output if interest is not None and interest.output is not None else channel.type
    form = BytesForm() if type is None else Form(type, asked.type or type)
    rated = rated_of(options, type)
    if options.as_ is not None and not subscription._calm:
        raise SubscriptionError("as_: expected a subscription to single events, found one to what several of them say")
    if options.rate is not None and not subscription._calm:
        raise SubscriptionError("rate: expected a subscription to single events, found one to what several of them say")
    return Attachment(
        subscription,
        channel,
        wiring.entry(
            channel,
            wanted,
            zones=options.zones,
            rated=rated,
            claimant=options.as_,
            owner=(subscription._number, part),
        ),
        form,
        priority=expression_of(options.priority, type, "priority"),
        lifetime=expression_of(options.lifetime, type, "lifetime"),
        part=part,
        limiter=None if rated is None else subscription._limiters.setdefault((channel, part), rated.limiter()),
    )


def rated_of(options: Options, type: EventType | None) -> Rated | None:
    """The rate beyond which a subscription's events are shed, with how urgent they are if that counts."""
    if options.sheds is None:
        return None
    urgency = options.priority if options.sheds.reserve else None
    return Rated(options.sheds.packed(), expression_of(urgency, type, "priority"))


def expression_of(definition: Any, type: EventType | None, what: str) -> Expression | None:
    """A number for each event, as a priority or a lifetime is."""
    if definition is None:
        return None
    made = Expression(definition, type or NOTHING, what=what)
    if what == "lifetime" and made.constant is not None and made.constant <= 0:
        raise SubscriptionError(f"lifetime: expected a number of seconds above 0, found {definition!r}; leave it out")
    return made


def check_params(subscription: Subscription, part: int, params: Mapping[str, object]) -> None:
    """New values are for parameters that there are; a wrong name would else change nothing, and nobody see it."""
    for key, attachment in subscription._attachments.items():
        if key[1] == part and (interest := attachment.entry.interest) is not None:
            for name in params:
                if name not in interest.params:
                    hint = did_you_mean(name, interest.params)
                    raise ParameterError(
                        f"change: params: expected {', '.join(interest.params) or 'none'}, found {name!r}"
                        + (f"; {hint}" if hint else "")
                    )
