"""Frames of one source's events, made from what waits in a lane: as records or as rows, with tags, as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from headwater.channel.routing.letter import Chunk, Marked
from headwater.errors import FrameError
from headwater.federation.send.batch_rows import few_records, picked_frame, picker_of
from headwater.federation.send.pending import BYTES, Complete, Numbered, PendingRows, root_of, union
from headwater.federation.wire import frames as wire
from headwater.federation.wire.headerless import Headers, header_of
from headwater.federation.wire.kinds import WHOLE
from headwater.late import np
from headwater.native.python.row_picker import Picker
from headwater.types.model import Enum, walk

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.types import EventType

MAX_ROWS = 8192  # rows in a frame
MAX_EVENTS = 4096  # events in a frame
MAX_RECORD_BYTES = wire.MAX_FRAME - 64  # bytes of a record that a frame can take
FEW_ROWS = 48  # rows of a batch up to which they travel as records: the frame of a batch has a few hundred bytes itself

TooLarge = Callable[[int, bytes | None], None]
Frame = tuple[int, int, bytes]  # the number of its last event, how many events it has, and the frame


class Wants(Protocol):
    """What the builder needs to know of what a peer wants."""

    @property
    def columns(self) -> bool:
        """Whether the peer takes rows as columns."""
        ...

    def filters(self, tag: int) -> bool:
        """Whether a tagged interest passes the events as they are."""
        ...

    def type_of(self, tag: int) -> EventType | None:
        """The type of the events that a wish has cross."""
        ...


class FrameBuilder:
    """Makes frames, numbered from 1 without gaps. A lane is one, and knows what becomes of them; an event that no frame
    can take goes to `too_large`, with its size, and its record if it has one: it cannot cross, and it must not keep
    others from it.

    Used by one thread at a time."""

    def __init__(self, source: Source, wants: Wants, too_large: TooLarge) -> None:
        self.source, self.sid, self._wants, self._too_large = source, source.number, wants, too_large
        self.number = 0  # of the last frame
        self.sent = 0  # the last event that is in a frame
        self.tagging = False  # one event may be put in several times, with different tags
        type = source.channel.type
        self.header = None if type is None else wire.header_of(type.record)
        self._plain = type is not None and not any(isinstance(each, Enum) for each in walk(type.record))

    @cached_property
    def _picker(self) -> Picker | None:
        return picker_of(self.source.channel.type)

    def frames_of(self, items: Sequence[Complete]) -> Iterator[Frame]:
        """All that is in these, in order."""
        if not self.tagging and (made := self._single(items)) is not None:
            yield made
            return
        start, total = 0, len(items)
        while start < total:
            item = items[start]
            if isinstance(item, Numbered) and not self.tagging:
                run = self._run(items, start)
                start += len(run)
                if len(run[0].record) > MAX_RECORD_BYTES:
                    self._too_large(len(run[0].record), run[0].record)
                    continue
                yield run[-1].seq, len(run), self._events(run)
            elif isinstance(item, Numbered):
                events = _tagged_run(items, start)
                start += len(events)
                yield from self._tagged(events)
            elif isinstance(item, PendingRows):
                parts = _parts_of_one(items, start)
                start += len(parts)
                yield from self._rows(parts)
            else:
                yield self.sent, 0, item.frame
                start += 1

    # ── events ──

    def _single(self, items: Sequence[Complete]) -> Frame | None:
        """One frame of all, if these are nothing but events that it takes: the frequent case, in which each is looked
        at no oftener than needed."""
        total = len(items)
        if total == 1 and isinstance(only := items[0], Numbered) and len(only.record) <= MAX_RECORD_BYTES:
            self.number += 1
            frame = wire.encode_event(self.sid, self.number, only.seq, only.stamp, only.record, self.header)
            return only.seq, 1, frame
        if total > MAX_EVENTS or set(map(type, items)) != {Numbered}:
            return None
        run = cast(list[Numbered], items)
        first = run[0]
        if len(first.record) * total >= BYTES // 4:
            return None
        stamps, records = [item.stamp for item in run], [item.record for item in run]
        fits = wire.spans(first.stamp, min(stamps)) and wire.spans(first.stamp, max(stamps))
        if not fits or sum(map(len, records)) > BYTES:  # what is passed on is of several clocks
            return None
        self.number += 1
        seqs = [item.seq for item in run]
        frame = wire.encode_events(self.sid, self.number, seqs, stamps, records, header=self.header)
        return seqs[-1], total, frame

    def _run(self, items: Sequence[Complete], start: int) -> list[Numbered]:
        """The events from there on that one frame takes: at least one, and it alone if it is too large."""
        run: list[Numbered] = []
        size = 0
        for at in range(start, min(len(items), start + MAX_EVENTS)):
            item = items[at]
            if not isinstance(item, Numbered) or (run and not wire.spans(run[0].stamp, item.stamp)):
                break
            size += len(item.record)
            if run and size > BYTES:
                break
            run.append(item)
        return run

    def _events(self, run: Sequence[Numbered]) -> bytes:
        """Their frame."""
        self.number += 1
        if len(run) == 1:
            event = run[0]
            return wire.encode_event(self.sid, self.number, event.seq, event.stamp, event.record, self.header)
        seqs, stamps = [each.seq for each in run], [each.stamp for each in run]
        records = [each.record for each in run]
        return wire.encode_events(self.sid, self.number, seqs, stamps, records, header=self.header)

    def _tagged(self, items: Sequence[Numbered]) -> Iterator[Frame]:
        """Frames of events with their tags: what has the same number and record crosses once."""
        events: list[Numbered] = []
        tags: list[tuple[int, ...]] = []
        for item in items:
            if events and events[-1].seq == item.seq and events[-1].record is item.record:
                tags[-1] = (*tags[-1], item.tag)
            else:
                events.append(item)
                tags.append((item.tag,))
        seqs, stamps = [each.seq for each in events], [each.stamp for each in events]
        records = [each.record for each in events]
        for start, end in wire.runs(seqs, stamps, records, tags, limit=BYTES, alone=True):
            part = slice(start, end)
            if (size := sum(map(len, records[part]))) > MAX_RECORD_BYTES:  # what one event has given
                self._too_large(size, records[start])
                continue
            self.number += 1
            frame = wire.encode_events(
                self.sid, self.number, seqs[part], stamps[part], records[part], tags[part],
                header=self._headers([its[0] for its in tags[part]]),
            )  # fmt: skip
            yield seqs[end - 1], end - start, frame

    def _headers(self, tags: Sequence[int]) -> Headers | None:
        """How records with these tags begin, each; None where the channel has no type."""
        types = {tag: self._wants.type_of(tag) for tag in set(tags)}
        known = {tag: header_of(type.record) for tag, type in types.items() if type is not None}
        return Headers([known[tag] for tag in tags]) if len(known) == len(types) else None

    # ── rows ──

    def _rows(self, items: Sequence[PendingRows]) -> Iterator[Frame]:
        """Frames of what several interests have taken from one batch: each row crosses once, and once for each tag."""
        for tag in dict.fromkeys(item.tag for item in items):
            parts = [item.chunk for item in items if item.tag == tag]
            chunk = parts[0] if len(parts) == 1 else union(parts)
            if isinstance(chunk, Marked):
                yield from self._marked(chunk, tag)
                continue
            if not self._wants.columns:
                yield from self._records(chunk, tag)
                continue
            rows, type = len(chunk), self.source.channel.type
            small = rows <= FEW_ROWS and type is not None and (tag == 0 or self._wants.filters(tag))
            if small and (records := few_records(self._picker, type, chunk)) is not None:
                seqs = chunk.seqs
                numbers, stamps = seqs.tolist(), [chunk.stamp] * rows
                self.number += 1
                tags = None if tag == 0 else [(tag,)] * rows
                frame = wire.encode_events(self.sid, self.number, numbers, stamps, records, tags, header=self.header)
                yield int(seqs[-1]), rows, frame
                continue
            if tag == 0 and (made := picked_frame(self._picker, self.sid, self.number + 1, chunk)) is not None:
                self.number += 1
                yield made
                continue
            yield from self._columns(chunk, tag)

    def _columns(self, chunk: Chunk, tag: int) -> Iterator[Frame]:
        """Frames of rows as columns."""
        rows, whole = len(chunk), chunk.__class__ is Chunk and chunk.consecutive
        for begin in range(0, rows, MAX_ROWS):
            part = chunk if rows <= MAX_ROWS else chunk.part(begin, min(begin + MAX_ROWS, rows))
            rows_of: Any = chunk.first + begin if whole else part.seqs
            last = chunk.first + begin + len(part) - 1 if whole else int(rows_of[-1])
            taken, plain = part.taken(), tag == 0 and self._plain
            frames = self._batches(self.number + 1, rows_of, chunk.stamp, taken, tag, plain)
            for index, frame in enumerate(frames):
                self.number += 1
                # All of a part are kept or acknowledged together: its last event tells.
                yield last, len(part) if index == len(frames) - 1 else 0, frame

    def _marked(self, chunk: Marked, tag: int) -> Iterator[Frame]:
        """Frames of rows of which some go as marks: as records, for they are of two types."""
        seqs, stamp = chunk.seqs.tolist(), chunk.stamp
        tags = [tag | WHOLE if whole else tag for whole in chunk.whole]
        for begin in range(0, len(seqs), MAX_EVENTS):
            part = slice(begin, begin + MAX_EVENTS)
            numbered = zip(seqs[part], chunk.records[part], tags[part], strict=True)
            yield from self._tagged([Numbered(seq, stamp, record, its) for seq, record, its in numbered])

    def _records(self, chunk: Chunk, tag: int) -> Iterator[Frame]:
        """Frames of the same for a peer that takes no columns: each row as a record."""
        type = self._wants.type_of(tag)
        assert type is not None, "a channel without a type has no rows"
        for begin in range(0, len(chunk), MAX_EVENTS):
            part = chunk if len(chunk) <= MAX_EVENTS else chunk.part(begin, min(begin + MAX_EVENTS, len(chunk)))
            numbered = zip(part.seqs.tolist(), type.arrow_to_records(part.taken()), strict=True)
            yield from self._tagged([Numbered(seq, chunk.stamp, record, tag) for seq, record in numbered])

    def _batches(self, number: int, seqs: Any, stamp: int, rows: Any, tag: int, plain: bool) -> list[bytes]:
        """Frames of rows, numbered from there on; without those that no frame can take."""
        try:
            return wire.encode_batches(self.sid, number, seqs, stamp, rows, tag, plain=plain, limit=2 * BYTES)
        except FrameError:  # a row alone is larger
            total = rows.num_rows
        if total > 1:
            seqs, half = np.arange(seqs, seqs + total) if isinstance(seqs, int) else seqs, total // 2
            made = self._batches(number, seqs[:half], stamp, rows.slice(0, half), tag, plain)
            return made + self._batches(number + len(made), seqs[half:], stamp, rows.slice(half), tag, plain)
        try:
            return wire.encode_batches(self.sid, number, seqs, stamp, rows, tag, plain=plain)
        except FrameError:
            self._too_large(rows.nbytes, None)
            return []


def _tagged_run(items: Sequence[Complete], start: int) -> list[Numbered]:
    """Events from there on for one frame, or a few; not up to between the tags of one event."""
    run: list[Numbered] = []
    for at in range(start, min(len(items), start + MAX_EVENTS + 1)):
        item = items[at]
        if not isinstance(item, Numbered):
            return run
        run.append(item)
    if len(run) <= MAX_EVENTS:
        return run
    following = run.pop()
    while len(run) > 1 and run[-1].seq == following.seq:
        run.pop()
    return run


def _parts_of_one(items: Sequence[Complete], start: int) -> list[PendingRows]:
    """Rows of one batch, as several interests have taken them one after the other."""
    parts: list[PendingRows] = []
    for at in range(start, len(items)):
        item = items[at]
        if not isinstance(item, PendingRows) or (parts and root_of(parts[0].chunk) is not root_of(item.chunk)):
            break
        parts.append(item)
    return parts
