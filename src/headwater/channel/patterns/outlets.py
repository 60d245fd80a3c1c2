"""Where the results of a pattern go: to the handler of a subscription, or to a source that publishes them.

Delivered       as any subscription delivers events
Published       as events of a channel
PublishedOnce   the same, of a pattern that goes on where it was: no match twice, and none is left out
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.channel import Channel
from headwater.channel.queues.forms import Form
from headwater.channel.registration import expression_of
from headwater.channel.reports.tally import Fates
from headwater.channel.routing.letter import About, Letter
from headwater.errors import ClosedError, HeadwaterError, StoreError

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Options
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription
    from headwater.types import EventType

Failed = Callable[[BaseException, Any], None]  # of a result, and why it could not be handed on


class Outlet(Protocol):
    """Takes results in the order in which they were made, one at a time."""

    def put(self, result: Any, ready: list[Any]) -> None:
        """A result; mailboxes that are to run go into `ready`."""
        ...


class _ResultSource:
    """Whom results are from that nobody has published."""

    local, place, promise, position_key, rereads, live = True, None, None, None, False, 0

    def __init__(self, name: str, node: str) -> None:
        self.id = self.name = self.key = name
        self.node, self.number, self._fates = node, 0, Fates()

    def fates(self, channel: object) -> Fates:
        return self._fates


class _Results:
    """Where results wait that nobody has published, in the place of an attachment."""

    def __init__(self, subscription: Subscription[Any], type: EventType, options: Options) -> None:
        self.subscription, self.form, self.part = subscription, Form(type, type), 0
        self.channel: Channel[Any] = Channel(subscription.node, subscription.name, type)
        self.cls, self.by_event, self.epoch = None, False, 1
        self.priority = expression_of(options.priority, type, "priority")
        self.lifetime = expression_of(options.lifetime, type, "lifetime")

    def about(self, letter: Letter) -> About:
        return letter.about(self.channel.name, self.subscription.epoch, self.subscription.name)


class Delivered:
    """To the subscription itself; `options` are those that were asked for its results, which are of this type."""

    def __init__(self, subscription: Subscription[Any], type: EventType, options: Options) -> None:
        self._subscription, self._type = subscription, type
        self._results = _Results(subscription, type, options)
        self._from = _ResultSource(subscription.name, subscription.node.name)
        self._numbers = count(1)

    def put(self, result: Any, ready: list[Any]) -> None:
        """As an event that its handler is to see."""
        to, results = self._subscription, self._results
        record = b""
        if results.priority is not None or results.lifetime is not None:
            record = self._type.encode(result)
        letter = Letter(result, record, self._from, next(self._numbers), to.node._stamp(), perf_counter_ns(), 0)  # type: ignore[arg-type]
        priority, expiry = to._urgency(results, letter)  # type: ignore[arg-type]
        letter.record = None  # it is as its sink is to see it
        to._put((results, letter, 1, priority, expiry), ready)  # type: ignore[arg-type]


class Published:
    """At a source."""

    def __init__(self, source: Source[Any], failed: Failed) -> None:
        self._source, self._failed = source, failed

    def put(self, result: Any, ready: list[Any]) -> None:
        """As an event of its channel."""
        try:
            self._source.publish(result)
        except HeadwaterError as error:
            self._failed(error, result)


class PublishedOnce:
    """At a source that has published some before: `had` are the identities of those. What cannot be logged now waits,
    and what comes after it; `troubled` is told, and sees to it that `publish` is called again."""

    def __init__(self, source: Source[Any], failed: Failed, troubled: Callable[[HeadwaterError], None]) -> None:
        self._source, self._failed, self._troubled = source, failed, troubled
        self.had: set[bytes] = set()
        self.waiting: list[Any] = []  # in their order

    def put(self, result: Any, ready: list[Any]) -> None:
        """As an event of its channel, unless it was one before."""
        if self.had:
            identity = bytes(result.match.identity)
            if identity in self.had:
                self.had.discard(identity)
                return
        self.waiting.append(result)
        self.publish()

    def publish(self) -> None:
        """What waits."""
        while self.waiting:
            try:
                self._source.publish(self.waiting[0])
            except (StoreError, ClosedError) as error:  # if it is over, who goes on finds them again
                self._troubled(error)
                return
            except HeadwaterError as error:
                self._failed(error, self.waiting[0])
            self.waiting.pop(0)


__all__ = ["Delivered", "Outlet", "Published", "PublishedOnce"]
