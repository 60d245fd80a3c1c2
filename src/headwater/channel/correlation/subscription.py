"""A subscription to a filter tree: delivered when the tree is satisfied, with the events that satisfied it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.channel.correlation.operator_stage import ROOM, Operator, OperatorStage, Put
from headwater.channel.correlation.tree import Match, Tree
from headwater.channel.dispatch.thread_call import in_thread
from headwater.channel.options.config import Inline, Queue
from headwater.channel.options.subscribe import Asked, Options
from headwater.channel.queues.mailbox import Mailbox
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Ready
from headwater.channel.subscription import Subscription
from headwater.errors import HeadwaterError, SubscriptionError
from headwater.interest import is_reference

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.dispatch.dispatcher import Dispatcher


R = TypeVar("R", covariant=True)


class Operated(Subscription[R]):
    """A subscription whose events go through an operator, which hands what it makes to `put`: each part's interest runs
    at the sources of its channel."""

    _calm = False

    def __init__(
        self,
        node: NodeContract,
        name: str,
        asked: list[Asked],
        options: Options,
        dispatcher: Dispatcher | None,
        operator: Operator,
        *,
        put: Put,
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher)
        self._now, self._call_at = node.clock.now, node._timers.call_at
        self._stage = stage = OperatorStage(self, operator, Letter, put)
        stage.mailbox = Mailbox(
            f"{name}, its operator", Queue(limit=ROOM), order="arrival", full=node._full, pull=False,
            deliver=stage.offer,
        )  # fmt: skip
        stage.mailbox.dispatched_by(node._dispatcher(Inline()))
        self._stages = (stage.mailbox,)

    def _arrive(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        self._stage.accept(attachment, letter, 1, ready)

    def _arrive_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        self._stage.accept(attachment, chunk, len(chunk), ready)

    def _began(self, attachment: Attachment) -> None:
        attachment.quick = attachment._quick = self._stage.mailbox.put_quick
        if attachment.epoch > 1:
            self._stage.clear(attachment)

    def cancel(self, *, drain: bool = False) -> None:
        super().cancel(drain=drain)
        self._stage.close()


class Derivation(Operated[Any]):
    """What an operator makes is published at a source: a channel that is derived from several."""

    def __init__(self, *args: Any) -> None:
        *rest, self._out = args
        super().__init__(*rest, put=self._publish)

    def _publish(self, result: Any, attachment: Any, letter: Any, ready: list[Any]) -> None:
        try:
            self._out.publish(result)
        except HeadwaterError as error:
            self._handler_failed(error, result)

    def cancel(self, *, drain: bool = False) -> None:
        super().cancel(drain=drain)
        self._out.close()


class Correlation(Operated[Match]):
    """Each part's interest runs at the sources of its channel; the tree is put together here, at the sink.

    Its handler gets a `Match`; `about`, if it takes one, is that of the event which completed it.
    """

    def __init__(
        self,
        node: NodeContract,
        name: str,
        asked: list[Asked],
        options: Options,
        dispatcher: Dispatcher | None,
        tree: Tree,
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher, tree, put=self._matched)
        self._tree = tree

    def _matched(self, result: Any, attachment: Any, letter: Any, ready: list[Any]) -> None:
        priority, expiry = self._urgency(attachment, letter)
        self._put((attachment, letter.seen_as(result), 1, priority, expiry), ready)

    @property
    def remembered(self) -> int:
        """How many events wait for others."""
        with self._stage.lock:
            self._tree.age(self.node.clock.now())
            return self._tree.remembered

    def change(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ..., part: str = ""
    ) -> dict[str, int]:
        """As for any subscription, for the part of that name (zones: for all); what was remembered is forgotten."""
        index, where = self._part(part, where, params, zones), self.node._interest_of(where)
        return self.node._change_if_agreed(self, index, where=where, params=params, zones=zones)

    async def achange(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ..., part: str = ""
    ) -> dict[str, int]:
        """As `change`, from a coroutine: its loop goes on while other nodes learn of it."""
        index = self._part(part, where, params, zones)
        if is_reference(where):
            where = await in_thread(partial(self.node._interest_of, where))
        return await self.node._achange(self, index, where=where, params=params, zones=zones)

    def _part(self, part: str, where: Any, params: Mapping[str, object] | None, zones: Any) -> int:
        """Which part a change is about."""
        names = [asked.name for asked in self._asked]
        if where is ... and params is None and zones is not ... and not part:
            part = names[0]
        if part not in names:
            raise SubscriptionError(f"change: expected part= with one of {', '.join(names)}, found {part!r}")
        return names.index(part)

    def get_batch(self, limit: int = 65_536) -> Any:
        """There is none: a match is no row."""
        raise SubscriptionError(f"get_batch: {self.name!r} delivers matches, which are no rows; use get() or poll()")
