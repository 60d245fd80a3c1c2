"""Subscriptions with order="total": they are to the channel in which a sequencer puts the events in their order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.channel.channel import Channel
from headwater.errors import SubscriptionError
from headwater.federation.wire.requests import ORDERED

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.options.subscribe import Asked, Options
    from headwater.channel.subscription import Subscription
    from headwater.federation.peers.table import Peers
    from headwater.federation.scheduler import Scheduler


def in_order(node: Node, asked: Asked, options: Options, sequence: Callable[[Channel], object] | None) -> Asked:
    """The same of the ordered channel. A node without a network sequences by itself: `sequence` begins that."""
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
    if sequence is not None:
        sequence(channel)
    return replace(asked, target=node.channel(channel.name + ORDERED, bytes if channel.type is None else channel.type))


def until_sequenced(subscription: Subscription, scheduler: Scheduler, peers: Peers) -> None:
    """While no node sequences what it wants, a subscription says so."""
    channel = next(asked.target for asked in subscription._asked)
    assert isinstance(channel, Channel)
    name = channel.name

    def look() -> None:
        if subscription.cancelled or _sequenced(peers, channel):
            subscription.refused.pop(name, None)
            with suppress(ValueError):
                scheduler.watchers.remove(look)

    subscription.refused[name] = (
        f"no node that is there sequences {name.removesuffix(ORDERED)}; have one do so: node.sequence(...)"
    )
    scheduler.watchers.append(look)
    look()


def _sequenced(peers: Peers, channel: Channel) -> bool:
    own = any(source.local for source in list(channel.sources.values()))
    return own or any(peer.gone is None and peer.has(channel.name) for peer in peers.everyone())
