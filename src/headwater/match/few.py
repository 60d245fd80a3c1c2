"""Matching on the rows of a batch where there are few entries, and all they do is compare numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.late import np
from headwater.match import layout as w
from headwater.match.kernels.few import (
    F_ATTRS,
    F_CHILDREN,
    F_COLUMNS,
    F_ENTRIES,
    F_PREDICATES,
    F_STARTS,
    F_STATS,
    F_WORDS,
    LANES,
    Q_WORDS,
    RANKED,
    match_few,
)
from headwater.native.python.row_picker import exports
from headwater.types.arrow import arrow_schema
from headwater.types.model import Record, Scalar

if TYPE_CHECKING:
    from headwater.match.matching import Held
    from headwater.match.rows import Spans

ENTRIES, CONSTANTS = 32, 32  # with more of them, to search is quicker
WORK = 1 << 22  # rows times entries, and rows times attributes
KEPT = 1 << 17  # the same, of what memory is kept for
_WIDTHS = (1, 2, 4, 8, 1, 2, 4, 4)  # bytes of a number, by how it is loaded


class Few:
    """The entries of one segment that are not removed."""

    def __init__(self, record: Record, held: Held) -> None:
        segment, dead = held.segment, held.mask()
        alive = np.arange(segment.count) if dead is None else np.flatnonzero(~dead)
        spans = [(int(segment.starts[at]), int(segment.starts[at + 1])) for at in alive.tolist()]
        chosen = [segment.predicates[start:end] for start, end in spans]
        predicates = np.concatenate([*chosen, np.zeros((1, 3), np.uint32)]).astype(np.uint32)  # never empty
        predicates[:, 0] &= np.uint32(w.INDEX)
        starts = np.cumsum([0, *(end - start for start, end in spans)]).astype(np.uint32)
        used = np.unique(predicates[:-1, 0])
        predicates[:-1, 0] = np.searchsorted(used, predicates[:-1, 0])
        columns = np.zeros((max(1, len(used)), Q_WORDS), np.uint64)
        schema = arrow_schema(record)
        for row, at in zip(columns, used.tolist(), strict=False):
            attribute = segment.attributes[at]
            descriptor = segment.descriptors[at].ctypes.data
            row[:] = (schema.get_field_index(attribute.path[0]), descriptor, _WIDTHS[attribute.load])
        words = np.zeros(F_WORDS, np.uint64)
        words[F_CHILDREN], words[F_ATTRS], words[F_ENTRIES] = len(schema), len(used), len(spans)
        for number, array in (
            (F_COLUMNS, columns),
            (F_STARTS, starts),
            (F_PREDICATES, predicates),
            (F_STATS, segment.stats),
        ):
            words[number] = array.ctypes.data
        self._schema, self._at = schema, int(words.ctypes.data)
        self._kept = (segment, words, columns, starts, predicates)
        self._entries, self._attributes = len(spans), len(used)
        self._payloads = [segment.payloads.items[at] for at in alive.tolist()]
        self._spare: list[_Room] = []

    def match(self, batch: Any) -> Spans | None:
        """As `Rows.match`, of a valid batch; None, and nothing is done, if this is none for it."""
        rows, entries = batch.num_rows, self._entries
        if rows < RANKED or rows * max(entries, self._attributes) > WORK or not batch.schema.equals(self._schema):
            return None
        try:
            room = self._spare.pop()
        except IndexError:
            room = _Room(entries)
        if room.rows < rows:
            room.grow(rows, entries, self._attributes)
        export = exports.take()
        batch._export_to_c(export[1])
        total = match_few()(export[1], self._at, rows, room.ranks_at, room.found_at, room.ends_at)
        exports.give(export)
        if total > 0:
            found, ends = room.found[:total].copy(), room.ends.tolist()
        if rows * entries <= KEPT:
            self._spare.append(room)
        if total <= 0:
            return None if total else ((), ())
        if entries == 1:
            return found, ((self._payloads[0], 0, total),)
        spans = zip(self._payloads, [0, *ends], ends, strict=False)
        return found, [span for span in spans if span[1] < span[2]]


class _Room:
    """Memory to work in."""

    def __init__(self, entries: int) -> None:
        self.rows = 0
        self.ends = np.zeros(entries, np.int64)
        self.ends_at = int(self.ends.ctypes.data)

    def grow(self, rows: int, entries: int, attributes: int) -> None:
        self.rows = rows
        self.found = np.empty(rows * entries + 1, np.int64)
        self.ranks = np.empty(max(1, attributes) * (rows + LANES), np.uint32)
        self.found_at, self.ranks_at = int(self.found.ctypes.data), int(self.ranks.ctypes.data)


def few(record: Record, held: list[Held]) -> Few | None:
    """What matches these segments on rows, if it can."""
    if len(held) != 1:
        return None
    segment = held[0].segment
    if segment.count == held[0].removed or segment.count > ENTRIES:
        return None
    if sum(map(len, segment.keys)) > CONSTANTS or (segment.predicates[:, 0] >= w.OPAQUE).any():
        return None
    for attribute in segment.attributes:
        if attribute.kind != w.NUMBER or len(attribute.path) != 1 or attribute.load >= len(_WIDTHS):
            return None
        if not isinstance(attribute.stored, Scalar):
            return None
    return Few(record, held[0])
