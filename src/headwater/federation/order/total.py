"""Subscriptions with order="total": they are to the channel in which a sequencer puts the events in their order."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.channel.channel import Channel
from headwater.errors import SubscriptionError
from headwater.federation.wire.requests import ORDERED

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Asked, Options
    from headwater.channel.subscription import Subscription
    from headwater.federation.node import Node


def in_order(node: Node, asked: Asked, options: Options) -> Asked:
    """The same of the ordered channel. A node without a network sequences by itself."""
    channel = asked.target
    if not isinstance(channel, Channel):
        raise SubscriptionError(
            f'order: expected one channel with order="total", found the pattern {str(channel)!r}; each channel has an '
            "order of its own: subscribe to each"
        )
    if options.zones is not None:
        raise SubscriptionError('order: the order "total" is one of the whole channel; remove zones=')
    if channel.name.endswith(ORDERED):
        return asked
    if node._engine is None:
        node.sequence(channel)
    return replace(asked, target=node.channel(channel.name + ORDERED, bytes if channel.type is None else channel.type))


def until_sequenced(node: Node, subscription: Subscription) -> None:
    """While no node sequences what it wants, a subscription says so."""
    engine = node._engine
    if engine is None:
        return
    channel = next(asked.target for asked in subscription._asked)
    assert isinstance(channel, Channel)
    name = channel.name

    def look() -> None:
        if subscription.cancelled or _sequenced(node, channel):
            subscription.refused.pop(name, None)
            with suppress(ValueError):
                engine.scheduler.watchers.remove(look)

    subscription.refused[name] = (
        f"no node that is there sequences {name.removesuffix(ORDERED)}; have one do so: node.sequence(...)"
    )
    engine.scheduler.watchers.append(look)
    look()


def _sequenced(node: Node, channel: Channel) -> bool:
    assert node._engine is not None
    own = any(source.local for source in list(channel.sources.values()))
    return own or any(peer.gone is None and peer.has(channel.name) for peer in node._engine.everyone())
