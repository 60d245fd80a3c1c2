"""A subscription to a filter tree: delivered when the tree is satisfied, with the events that satisfied it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.correlation.tree import Match, Tree
from headwater.channel.options.subscribe import Asked, Options
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Ready
from headwater.channel.subscription import Subscription
from headwater.errors import SubscriptionError

if TYPE_CHECKING:
    from headwater.channel.dispatch.dispatcher import Dispatcher
    from headwater.channel.node import Node


class Correlation(Subscription[Match]):
    """Each part's interest runs at the sources of its channel; the tree is put together here, at the sink.

    Its handler gets a `Match`; `about`, if it takes one, is that of the event which completed it.
    """

    def __init__(
        self, node: Node, name: str, asked: list[Asked], options: Options, dispatcher: Dispatcher | None, tree: Tree
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher)
        self._tree = tree
        self._tree_lock = threading.Lock()

    _calm = False

    def _arrive(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        event = attachment.form.one(letter)
        with self._tree_lock:
            matches = self._tree.offer(attachment.part, event, self.node.clock.now())
        for match in matches:
            priority, expiry = self._urgency(attachment, letter)
            self._put((attachment, letter.seen_as(match), 1, priority, expiry), ready)

    def _arrive_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        for letter in chunk.letters(attachment.form.have.arrow_to_records(chunk.taken())):
            self._arrive(attachment, letter, ready)

    @property
    def remembered(self) -> int:
        """How many events wait for others."""
        with self._tree_lock:
            self._tree.age(self.node.clock.now())
            return self._tree.remembered

    def change(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ..., part: str = ""
    ) -> dict[str, int]:
        """As for any subscription, for the part of that name (zones: for all); what was remembered is forgotten."""
        return self.node._change(self, self._part(part, where, params, zones), where=where, params=params, zones=zones)

    async def achange(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ..., part: str = ""
    ) -> dict[str, int]:
        """As `change`, from a coroutine: its loop goes on while other nodes learn of it."""
        index = self._part(part, where, params, zones)
        return await self.node._achange(self, index, where=where, params=params, zones=zones)

    def _part(self, part: str, where: Any, params: Mapping[str, object] | None, zones: Any) -> int:
        """Which part a change is about."""
        names = [asked.name for asked in self._asked]
        if where is ... and params is None and zones is not ... and not part:
            part = names[0]
        if part not in names:
            raise SubscriptionError(f"change: expected part= with one of {', '.join(names)}, found {part!r}")
        return names.index(part)

    def _began(self, attachment: Attachment) -> None:
        if attachment.epoch > 1:
            with self._tree_lock:
                self._tree.clear()

    def get_batch(self, limit: int = 65_536) -> Any:
        """There is none: a match is no row."""
        raise SubscriptionError(f"get_batch: {self.name!r} delivers matches, which are no rows; use get() or poll()")
