"""How a pattern comes to a node: everything is checked, then it is made, or nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.channel import Channel
from headwater.channel.options.subscribe import Asked, Options, known_options, make_options
from headwater.channel.patterns.definition import pattern_of
from headwater.channel.patterns.operator import ORDERS, PatternOrder
from headwater.channel.patterns.subscription import NamedPattern, Watch
from headwater.errors import SubscriptionError
from headwater.patterns.atoms import source_interest
from headwater.patterns.model import Limits
from headwater.patterns.pattern import Pattern
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract


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
    pattern = pattern_of(given, node._known_types(), params=params, aliases=aliases, limits=limits)
    made: Watch[Any] = node._start(Watch, inputs_of(node, pattern), chosen, name, pattern, order)
    return made


def named(
    node: NodeContract,
    name: str,
    given: Any,
    to: str | Channel[Any] | None,
    params: Mapping[str, Any] | None,
    aliases: Mapping[str, str] | None,
    limits: Limits | None,
    order: PatternOrder,
) -> NamedPattern:
    """See `Node.pattern`."""
    _check_order(order)
    pattern = pattern_of(given, node._known_types(), params=params, aliases=aliases, limits=limits)
    channel = to if isinstance(to, Channel) else node.channel(to or name, pattern.output)
    asked = inputs_of(node, pattern)
    source = channel.source(name)
    try:
        made: NamedPattern = node._start(
            NamedPattern, asked, make_options(node.config, None), name, pattern, order, source
        )
    except BaseException:
        source.close()
        raise
    return made


def inputs_of(node: NodeContract, pattern: Pattern) -> list[Asked]:
    """What is asked of each channel of a pattern."""
    return [
        Asked(node.channel(channel.name), source_interest(pattern.model, channel.name), name=channel.name)
        for channel in pattern.model.channels
    ]


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
