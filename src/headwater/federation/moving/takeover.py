"""What waited for a sink at the node that it has left comes before what has come to it here since.

Whatever another node hands over is checked as all events are that come from one: they are records of their type, of
channels that the sink is attached to, each source's in their order, and no more than fit. Where what was handed over
ends and what came here begins, each source's node has said itself (`marks.py`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.queues.forms import fitting
from headwater.channel.queues.mailbox import Item, part_of
from headwater.channel.routing.letter import Chunk, Letter
from headwater.errors import HeadwaterError
from headwater.federation.arrive.foreign_source import ForeignSource
from headwater.federation.arrive.record_check import check_of
from headwater.federation.moving.source_keys import is_logged, shared_key
from headwater.federation.wire.move_requests import MOST_BYTES, MOST_EVENTS
from headwater.federation.wire.requests import unpack_type
from headwater.native.python.codec import fast_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context
    from headwater.federation.moving.marks import Place, Watch
    from headwater.federation.wire.move_requests import WaitingPage, WaitingSource


class HandedSource:
    """A source whose events up to one come again: a handler has had them, at another node, and not acknowledged."""

    log = None

    def __init__(self, source: Any, again: int) -> None:
        self._source, self.again = source, again

    def resent(self, seq: int) -> bool:
        return seq <= self.again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@dataclass(frozen=True, slots=True)
class _Nobody:
    """In the place of a node that is not known here."""

    id: str


class DepartedSource(ForeignSource):
    """One whose events were handed over, and which is not known here: it is gone, or its node cannot be reached."""

    local = False

    def __init__(self, channel: Any, name: str, key: str) -> None:
        super().__init__(channel, name, hint="its events were handed over with a sink", origin="", path=())
        self.position_key = key
        self.peer = _Nobody(key.partition("/")[0])
        self.closed = True


class Takeover:
    """Of one sink that comes. Used by one thread. `adopt`: have a channel known here that a node has told of."""

    def __init__(
        self, context: Context, sink: Subscription[Any], watch: Watch, node: str, adopt: Callable[[str, str, Any], bool]
    ) -> None:
        self._context, self._sink, self._watch, self._node, self._adopt = context, sink, watch, node, adopt
        self._known: dict[tuple[str, str], Any] = {}  # by channel and key: the source
        self._items: list[tuple[str, int, Item]] = []  # with the key and number of each
        self._last: dict[tuple[str, str], int] = {}
        self._bytes = 0
        self.refused = 0  # events that were none, or not for it
        self.told: dict[Place, dict[int, int]] = {}  # the marks, as the old node has had them

    # ── in ──

    def accept(self, page: WaitingPage) -> bool:
        """Take what is on a page; False if it is not one, or too much: nothing more is to be asked for."""
        columns = page.of, page.seqs, page.stamps, page.records
        if len({len(each) for each in columns}) != 1 or any(place >= len(page.sources) for place in page.of):
            return self._offend(f"a page of what waited for {self._sink.name!r} that does not fit together")
        self._bytes += sum(map(len, page.records))
        if len(self._items) + len(page.seqs) > MOST_EVENTS or self._bytes > MOST_BYTES:
            return self._offend(
                f"expected at most {MOST_EVENTS:,} events and {MOST_BYTES:,} bytes that wait for {self._sink.name!r}, "
                "found more"
            )
        makers: dict[int, Callable[[bytes, int, int, bool], Letter] | None] = {}
        again, before = set(page.again), self.refused
        for at, (place, seq, stamp, record) in enumerate(zip(*columns, strict=True)):
            source = page.sources[place]
            if place not in makers:
                makers[place] = self._maker(source)
            make, where = makers[place], (source.channel, source.key)
            if make is None or seq <= self._last.get(where, 0) or not -(1 << 63) <= stamp < 1 << 63:
                self.refused += 1
                continue
            try:
                letter = make(record, seq, stamp, at in again)
            except HeadwaterError:
                self.refused += 1
                continue
            self._last[where] = seq
            attachment = self._attachment(source.channel)
            assert attachment is not None
            item = attachment, letter, 1, *self._sink._urgency(attachment, letter)
            self._items.append((source.key, seq, item))
        if self.refused > before:
            self._offend(f"{self.refused - before} events, said to wait for {self._sink.name!r}, that are none of it")
        return True

    def _offend(self, what: str) -> bool:
        self._context.offences.note(self._node, what)
        return False

    def _maker(self, named: WaitingSource) -> Callable[[bytes, int, int, bool], Letter] | None:
        """How events of a source become letters here; None if they are not for the sink."""
        attachment = self._attachment(named.channel)
        if attachment is None:
            # Nobody here has heard of the channel, or not yet: it may be one that a pattern of the sink fits.
            with suppress(HeadwaterError, ValueError):
                if self._adopt(self._node, named.channel, unpack_type(named.type)):
                    attachment = self._attachment(named.channel)
        if attachment is None:
            return None
        source = self._source(attachment, named)
        if source is None or (self._sink._progress is not None and is_logged(source)):
            return None  # what a log has, is read from there
        try:
            read = self._reader(attachment, named)
        except (HeadwaterError, ValueError):
            return None

        def make(record: bytes, seq: int, stamp: int, again: bool) -> Letter:
            event, made = read(record)
            its = HandedSource(source, seq) if again else source
            return Letter(event, made, its, seq, stamp, perf_counter_ns(), source.priority)

        return make

    def _attachment(self, channel: str) -> Attachment | None:
        found = (each for (its, _), each in list(self._sink._attachments.items()) if its.name == channel)
        return next(found, None)

    def _source(self, attachment: Attachment, named: WaitingSource) -> Any:
        where = named.channel, named.key
        found = self._known.get(where)
        if found is None:
            channel: Any = attachment.channel
            for flow in channel.flows():
                if flow.source.channel is channel and shared_key(self._context, flow.source) == named.key:
                    found = flow.source
            if found is None and named.key.startswith(f"{self._context.id}/{self._context.incarnation}/"):
                return None  # it would be one of this node, and there is no such source
            if found is None:
                found = DepartedSource(channel, named.name, named.key)
            self._known[where] = found
        return found

    def _reader(self, attachment: Attachment, named: WaitingSource) -> Callable[[bytes], tuple[Any, bytes | None]]:
        """From a record to the event, if it is as the sink sees it already, or to a record of the channel here."""
        form, type = attachment.form, unpack_type(named.type)
        have = getattr(form, "have", None)
        if type is None or have is None:
            if type is not None or have is not None:
                raise ValueError("bytes for events")
            return lambda record: (None, record)
        check, decode = check_of(type), fast_decoder(type)

        def checked(record: bytes) -> bytes:
            if check([record]):
                decode(record)  # which says what is wrong
                raise HeadwaterError("no record")
            return record

        try:
            plan = fitting(type, have)
        except HeadwaterError:
            seen = fitting(type, form.type)  # it is as the sink saw it
            want = fast_decoder(form.type)
            return lambda record: (want(checked(record) if seen is None else seen.convert(checked(record))), None)
        if plan is None:
            return lambda record: (None, checked(record))
        return lambda record: (None, plan.convert(checked(record)))

    # ── and on ──

    def finish(self) -> dict[tuple[str, str], int]:
        """Put what was handed over before what has come here. Of sources whose nodes have not said here where it ends:
        the last event of each, by channel and key; what still comes up to there came already."""
        sink, (cuts, marked, told) = self._sink, self._cuts()
        items: list[Item] = []
        last: dict[tuple[str, str], int] = {}
        for key, seq, item in self._items:
            where = item[0].channel.name, key
            if seq <= cuts.get(where, inf):
                items.append(item)
                last[where] = seq
                item[0].begin_with(item[1])
                if sink._progress is not None:
                    sink._progress.arrive(item[0], item[1])
        ends = {**last, **{where: cuts[where] for where in marked | told}}

        def keeps(item: Item) -> Item | None:
            """What came here of an item after the mark; where there is none, after what was handed over."""
            attachment, letter, n = item[:3]
            if sink._progress is not None and is_logged(letter.source):
                return item
            end = ends.get((attachment.channel.name, shared_key(self._context, letter.source)))
            if end is None:
                return item
            early = int(letter.seqs.searchsorted(end, "right")) if isinstance(letter, Chunk) else int(letter.seq <= end)
            if early:
                attachment.repeats(letter, early)
            return item if not early else part_of(item, early, n) if early < n else None

        sink._mailbox.begin_with(items, keeps)
        return {where: end for where, end in ends.items() if where not in marked}

    def _cuts(self) -> tuple[dict[tuple[str, str], int], set[tuple[str, str]], set[tuple[str, str]]]:
        """By channel and key, the last event of each source that may be handed over: that before its node's mark; where
        there is none, the last one that is known here, whatever is said to wait. And which are marked, and of which the
        old node tells so."""
        found: dict[tuple[str, str], int] = {}
        marked: set[tuple[str, str]] = set()
        told: set[tuple[str, str]] = set()
        for attachment in list(self._sink._attachments.values()):
            channel: Any = attachment.channel
            for flow in channel.flows():
                source = flow.source
                if source.channel is not channel or (self._sink._progress is not None and is_logged(source)):
                    continue
                node, number = (self._context.id, source.number) if source.local else (source.peer.id, source.sid)
                points = self._watch.points.get((node, channel.name))
                where = channel.name, shared_key(self._context, source)
                if points is not None:
                    found[where] = points.get(number, 0)
                    marked.add(where)
                else:
                    asked = None if source.local else source.peer.asked.get(channel.name)
                    found[where] = max(source.seq, 0 if asked is None else asked.points.get(number, 0))
                    point = self.told.get((node, channel.name), {}).get(number)
                    if point is not None:
                        found[where] = min(found[where], point)
                        told.add(where)
        return found, marked, told


__all__ = ["DepartedSource", "HandedSource", "Takeover"]
