"""How a pattern comes to a node: everything is checked, then it is made, or nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.channel import Channel
from headwater.channel.options.delivery import Reliable
from headwater.channel.options.subscribe import Asked, Options, known_options, make_options
from headwater.channel.patterns.cycles import remarks_on_cycle
from headwater.channel.patterns.definition import pattern_of
from headwater.channel.patterns.keeping import Keeping, remarks
from headwater.channel.patterns.kept_pattern import KeptPattern
from headwater.channel.patterns.operator import ORDERS, PatternOperator, PatternOrder
from headwater.channel.patterns.resumption import Narrow, Resumption, narrowed, resumption
from headwater.channel.patterns.subscription import NamedPattern, Watch
from headwater.channel.warning import tell
from headwater.errors import ChannelError, HeadwaterWarning, SubscriptionError
from headwater.interest import is_reference
from headwater.patterns.crossing.atoms import source_interest
from headwater.patterns.crossing.marks import marking
from headwater.patterns.model import Limits
from headwater.patterns.pattern import Pattern
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.source import Source
    from headwater.types import EventType


def match(
    node: NodeContract,
    given: Any,
    handler: Callable[..., Any] | None,
    params: Mapping[str, Any] | None,
    aliases: Mapping[str, str] | None,
    limits: Limits | None,
    name: str | None,
    order: PatternOrder,
    options: dict[str, Any],
) -> Watch[Any]:
    """See `Node.match`."""
    _check_order(order)
    chosen = make_options(node.config, handler, **known_options(options))
    _check_options(chosen)
    pattern = pattern_of(
        by_name(node, given),
        node._known_types(),
        params=params,
        aliases=aliases,
        limits=limits or node.config.patterns.limits,
    )
    made: Watch[Any] = node._start(Watch, inputs_of(node, pattern), chosen, name, pattern, order)
    return made


def by_name(node: NodeContract, given: Any) -> Any:
    """What was given; of the name of a pattern (`@tailgating/2`) that pattern."""
    return node._by_name(given).pattern() if is_reference(given) else given


def named(
    node: NodeContract,
    name: str,
    given: Any,
    to: str | Channel[Any] | None,
    params: Mapping[str, Any] | None,
    aliases: Mapping[str, str] | None,
    limits: Limits | None,
    order: PatternOrder,
    *,
    waits: bool = False,
    narrow: Narrow | None = None,
) -> NamedPattern:
    """See `Node.pattern`. With `waits`, it takes events and does nothing before it is told from where to go on
    (`KeptPattern.go_on`). `narrow` says what is asked of a channel, given what the pattern wants of it."""
    _check_order(order)
    pattern = pattern_of(
        by_name(node, given),
        node._known_types(),
        params=params,
        aliases=aliases,
        limits=limits or node.config.patterns.limits,
    )
    channel = to if isinstance(to, Channel) else _channel_of(node, name, to or name, pattern)
    asked = inputs_of(node, pattern, narrow)
    source = _source_of(channel, name)
    made: NamedPattern
    try:
        if node.state is not None or waits:
            made = _kept(node, name, pattern, order, asked, source, narrow, waits)
        else:
            options = make_options(node.config, None)
            made = node._start(NamedPattern, asked, options, name, pattern, order, source, narrow)
    except BaseException:
        source.close()
        raise
    _say(made, remarks_on_cycle(node, made))
    return made


def _channel_of(node: NodeContract, name: str, to: str, pattern: Pattern) -> Channel[Any]:
    """Where its matches go; a channel that is there already has to be of their type."""
    try:
        return node.channel(to, pattern.output)
    except ChannelError as error:
        here = node._known_types().get(to)
        if here is None or here.record == pattern.output.record:
            raise
        raise ChannelError(
            f"pattern {name!r}: expected a channel {to!r} with the type of its matches, {_shown(pattern.output)}, "
            f"found one with {_shown(here)}; give the pattern another name, name another channel with to=, or name "
            "measures that make the same type"
        ) from error


def _shown(type: EventType) -> str:
    return f"{type.name} ({', '.join(map(str, type.record.fields))})"


def _source_of(channel: Channel[Any], name: str) -> Source[Any]:
    if any(source.local and source.name == name for source in list(channel.sources.values())):
        raise ChannelError(
            f"pattern {name!r}: expected a name of its own, found a source of channel {channel.name!r} that has it; "
            "close() the pattern that has it, change(params=…) it, or take another name"
        )
    return channel.source(name)


def _kept(
    node: NodeContract,
    name: str,
    pattern: Pattern,
    order: PatternOrder,
    asked: list[Asked],
    source: Source[Any],
    narrow: Narrow | None,
    waits: bool,
) -> KeptPattern:
    """One whose state is kept: first what was logged since it was last written, then it is attached, with what it holds
    open by then."""
    keeping = Keeping(node, name, pattern, asked)
    operator = PatternOperator(pattern, order) if waits else keeping.operator(pattern, order)
    keeping.catch_up(operator)
    resumed = Resumption()
    if keeping.resumed and order == "time":
        resumed = resumption(operator, keeping.narrow(), keeping.floor)
        asked = narrowed(asked, operator, resumed, narrow)
    options = make_options(node.config, None, delivery=Reliable())
    more = (pattern, order, source, narrow, keeping, operator, None if waits else resumed)
    made: KeptPattern = node._start(KeptPattern, asked, options, name, *more)
    if node.state is None:
        return made
    channels: list[Channel[Any]] = [node.channel(each.text) for each in asked]
    said = remarks(node, [each for each in channels if any(one.local for one in each.sources.values())], source.channel)
    _say(made, said)
    if not waits:
        made.began()
    return made


def _say(made: NamedPattern, said: list[str]) -> None:
    """What is hardly meant; whoever has made warnings errors gets no pattern."""
    made.warnings += said
    try:
        tell(f"pattern {made.name!r}", said)
    except HeadwaterWarning:
        made.cancel()
        raise


def inputs_of(node: NodeContract, pattern: Pattern, narrow: Narrow | None = None) -> list[Asked]:
    """What is asked of each channel of a pattern. Where events may come from other nodes, those that fit no element
    come as marks."""
    asked = []
    for channel in pattern.model.channels:
        wanted = source_interest(pattern.model, channel.name)
        if narrow is not None:
            wanted = narrow(channel.name, wanted)
        marks = marking(pattern.model, channel.name) if node._marks else None
        where = wanted if marks is None else marks.asked(wanted, wanted, pattern.model)
        asked.append(Asked(node.channel(channel.name), where, name=channel.name, marking=marks))
    return asked


def _check_order(order: object) -> None:
    if order not in ORDERS:
        hint = did_you_mean(str(order), ORDERS)
        raise SubscriptionError(
            f"match: order: expected one of {', '.join(ORDERS)}, found {order!r}{f'; {hint}' if hint else ''}"
        )


def _check_options(options: Options) -> None:
    if getattr(options.delivery, "durable", False):
        raise SubscriptionError(
            "match: delivery: nothing is kept of a pattern without a name; make it with node.pattern(name, …), and "
            "subscribe to its channel with delivery=Reliable(durable=True)"
        )


__all__ = ["inputs_of", "match", "named"]
