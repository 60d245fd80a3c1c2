"""How a source comes: everything about it is checked, then it is made and advertised, or nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.options.delivery import check_zones
from headwater.channel.options.subscribe import check_label, check_priority, check_seconds, resolve_facts
from headwater.channel.queues.forms import BytesIntake, Intake
from headwater.channel.source import Source
from headwater.errors import ChannelError, ClosedError, SubscriptionError
from headwater.interest import as_event_type

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.node import Node


def advertise(
    node: Node,
    channel: Channel,
    name: str | None,
    *,
    type: Any,
    facts: Any,
    priority: int,
    ask: Callable[[], Any] | None,
    every: float | None,
    zones: Any = None,
) -> Source:
    """A source of a channel; see `Channel.source`."""
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
    if ask is not None and not callable(ask):
        raise SubscriptionError(f"source: ask: expected a function that returns events, found {ask!r}")
    if every is not None and ask is None:
        raise SubscriptionError("source: expected ask= with every=, found every= alone: whom should it ask?")
    period = None if every is None else check_seconds("source: every", every)
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
        source = Source(channel, name, intake, facts=stated, priority=priority, ask=ask, zones=scope, log=log)
        source.stated = (
            dict(facts) if isinstance(facts, Mapping) else {} if stated is None else {"condition": stated.text}
        )
        node._wiring.advertise(source)
    if period is not None:
        source._timer = node._timers.every(period, lambda due, missed: source.ask(), priority=priority)
    return source
