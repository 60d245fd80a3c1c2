"""Matching on the rows of a batch: the same kernels, given Arrow's buffers instead of records."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.errors import ExecutionError
from headwater.late import np, pa
from headwater.match import layout as w
from headwater.match.attributes import Attribute
from headwater.match.counters import Ledger, increase
from headwater.match.few import few
from headwater.match.kernels.library import match_rows
from headwater.match.kernels.match import O_BUFFER, O_COUNT, O_ROOM, O_WORDS
from headwater.native.codegen.batch_reader import Buffers, Plan, check_buffers, misses_required
from headwater.types.arrow import arrow_type
from headwater.types.conform import conform
from headwater.types.model import BOOL, Enum, Record, Type

if TYPE_CHECKING:
    from headwater.match.matching import Core, Held

BLOCK, WORK = 4096, 1 << 22  # rows, and rows times entries, at a time: other threads may run in between
ROOM = 1 << 15  # positions found at a time, or as many as there are entries

Spans = tuple[Any, Iterable[tuple[Any, int, int]]]  # rows, and for each payload which stretch of them it wants
Node = tuple[str, ...]
Word = tuple[Node, str]


class Rows:
    """What a matching needs to know about batches; made when the first one comes."""

    def __init__(self, core: Core, held: list[Held]) -> None:
        """`held` are the segments to look at: the core's, or one that has all their entries."""
        self.core, self.held = core, held
        self.refs = refs_of(held)
        self.record: Record = core.type.record
        words: dict[Word, int] = {}
        types: dict[Node, Type] = {}
        self.columns = [self._columns_of(each, words, types) for each in held]
        self.plan = Plan(tuple(words), (), (), types)
        self.used = tuple(dict.fromkeys(node[0] for node in types))
        self.kinds = {name: arrow_type(self.record.by_name[name].type) for name in self.used}
        self.opaques = list(dict.fromkeys(core.opaques))
        self._control: _Control | None = None  # the last one
        # Entries of all segments under one number.
        sizes = [each.segment.count for each in held]
        self._bases = np.cumsum([0, *sizes]).astype(np.uint32)
        self._payloads = [payload for each in held for payload in each.segment.payloads.items]
        self._few = few(self.record, held)

    def _columns_of(self, held: Held, words: dict[Word, int], types: dict[Node, Type]) -> Any:
        """For each attribute of a segment and each word of its column, the number of that word in the plan, or -1."""
        made = np.full((len(held.segment.attributes), w.D_WORDS), -1, np.int64)
        for row, attribute in zip(made, held.segment.attributes, strict=True):
            for at, word in _words_of(self.record, attribute, types):
                row[at] = words.setdefault(word, len(words))
        return made

    def match(self, batch: Any, totals: Any, ledger: Ledger | None) -> Spans:
        """The entries that want some of a batch, and which rows: by the kernel for few interests, or by ranks; answers
        of opaque ones are asked for before."""
        if not isinstance(batch, pa.RecordBatch):
            raise ExecutionError(f"expected a pyarrow RecordBatch, found {type(batch).__name__}")
        core, rows = self.core, batch.num_rows
        check_buffers(batch)
        if self._few is not None and (found := self._few.match(batch)) is not None:
            if not core.exact:
                increase(core.counters.unsplit, 0, rows)
            return found
        buffers = Buffers(self.plan, self._columns(batch))
        words = np.append(buffers.words[: len(self.plan.words)], np.uint64(0))  # -1 is the last: none
        answers = self._ask(batch, totals, ledger)
        control = self._control_for(totals, ledger)
        if not core.exact:
            increase(core.counters.unsplit, 0, rows)
        hits, scratch = _Hits(rows), _local.take()
        for number, held in enumerate(self.held):
            columns = words[self.columns[number]]
            for at, attribute in enumerate(held.segment.attributes):
                if attribute.opaque is not None:
                    columns[at, w.D_DATA] = answers[attribute.opaque.number].ctypes.data
            self._segment(number, held, columns, rows, control, hits, scratch)
        _local.spare.append(scratch)
        return hits.grouped(self._payloads)

    def _control_for(self, totals: Any, ledger: Ledger | None) -> _Control:
        found = self._control
        if found is None or found.totals is not totals or found.ledger is not ledger:
            found = self._control = _Control(self.core, totals, ledger)
        return found

    def _columns(self, batch: Any) -> dict[str, Any]:
        """The columns that are read, brought to the event type's schema where they are not so."""
        schema, found = batch.schema, {}
        for name in self.used:
            at = schema.get_field_index(name)
            if at < 0 or schema.field(at).type != self.kinds[name]:
                break
            column = batch.column(at)
            if column.null_count and not self.record.by_name[name].optional:
                break
            found[name] = column
        else:
            if not misses_required(self.plan, found):
                return found
        whole = conform(self.record, batch)
        return {name: whole.column(name) for name in self.used}

    def _ask(self, batch: Any, totals: Any, ledger: Ledger | None) -> dict[int, Any]:
        """What native code says of each row: 0 rejected, 1 passed, 2 undecided; faults are counted here."""
        answers = {}
        for opaque in self.opaques:
            result = opaque.native.batch(batch)
            valid, passed = result.selection.buffers()
            rows = batch.num_rows
            status = _bits(passed, rows)
            if valid is not None:
                status = np.where(_bits(valid, rows) != 0, status, np.uint8(2))
            answers[opaque.number] = np.ascontiguousarray(status, np.uint8)
            if result.counts.faults:
                for held in self.held:
                    held.count_faults(opaque, result.counts.faults, self.core.counters, totals, ledger)
        return answers

    def _segment(
        self, number: int, held: Held, columns: Any, rows: int, control: _Control, hits: _Hits, scratch: _Scratch
    ) -> None:
        segment = held.segment
        room = max(ROOM, 4 * segment.count)
        size = min(rows, BLOCK, max(1, WORK // max(1, segment.count)))
        buffer, out, ranks, marks = scratch.of(room, size * len(segment.attributes), size + 1)
        out[O_BUFFER], out[O_ROOM] = buffer.ctypes.data, room
        fixed = (columns.ctypes.data, ranks.ctypes.data, out.ctypes.data, marks.ctypes.data + marks.itemsize)
        start, ref, base = control.address, self.refs[number].ctypes.data, self._bases[number]
        row, call = 0, match_rows()
        while row < rows:
            out[O_COUNT] = 0
            done = call(start, ref, fixed[0], row, min(size, rows - row), fixed[1], fixed[2], fixed[3])
            count = int(out[O_COUNT])
            if count:
                hits.add(buffer[:count] + base, row, marks[: done + 1])
            if done < size:
                size = max(1, done)
            row += done


class _Control:
    """The control block for totals and a ledger, with all that it leads to: another thread's may be the last one while
    it is in use."""

    def __init__(self, core: Core, totals: Any, ledger: Ledger | None) -> None:
        self.totals, self.ledger = totals, ledger
        words, self._kept = core.counting_in(totals, ledger)
        self._block = ctypes.create_string_buffer(words, len(words))
        self.address = ctypes.addressof(self._block)


def refs_of(held: list[Held]) -> Any:
    """What the kernels are given of each segment."""
    refs = np.zeros((max(1, len(held)), w.R_WORDS), np.uint64)
    for row, each in zip(refs, held, strict=False):
        dead = 0 if each.dead is None else each.dead.ctypes.data
        row[:] = (each.segment.address, dead, each.scan)
    return refs


class _Scratch:
    """Memory that a thread uses again for every batch: to ask for it anew would cost as much as the matching."""

    def __init__(self) -> None:
        self._buffer, self._ranks = np.empty(ROOM, np.uint32), np.empty(BLOCK, np.uint32)
        self._marks, self._out = np.zeros(BLOCK + 1, np.int64), np.zeros(O_WORDS, np.uint64)

    def of(self, room: int, ranks: int, marks: int) -> tuple[Any, Any, Any, Any]:
        if len(self._buffer) < room:
            self._buffer = np.empty(room, np.uint32)
        if len(self._ranks) < ranks:
            self._ranks = np.empty(ranks, np.uint32)
        if len(self._marks) < marks:
            self._marks = np.zeros(marks, np.int64)
        self._out[:] = 0
        self._marks[0] = 0
        return self._buffer, self._out, self._ranks, self._marks


class _Local(threading.local):
    def __init__(self) -> None:
        self.spare: list[_Scratch] = []

    def take(self) -> _Scratch:
        """To be put back. Who comes while it is out, from a finalizer or a signal's handler, gets another one."""
        return self.spare.pop() if self.spare else _Scratch()


_local = _Local()


class _Hits:
    """Which entry wants which row, as they are found: by segment, and in it by row."""

    def __init__(self, rows: int) -> None:
        self._numbers = np.arange(rows)
        self._entries: list[Any] = []
        self._rows: list[Any] = []

    def add(self, entries: Any, row: int, marks: Any) -> None:
        """The entries of the rows from `row` on; `marks` say where each row's begin."""
        self._entries.append(entries)
        self._rows.append(np.repeat(self._numbers[row : row + len(marks) - 1], marks[1:] - marks[:-1]))

    def grouped(self, payloads: list[object]) -> Spans:
        """Rows by entry. Rows come in order, so a stable sort by entry keeps them so."""
        if not self._entries:
            return (), ()
        many = len(self._entries) > 1
        entries = np.concatenate(self._entries) if many else self._entries[0]
        rows = np.concatenate(self._rows) if many else self._rows[0]
        # Of 16 bits the sort is by radix.
        order = np.argsort(entries.astype(np.uint16) if len(payloads) <= 1 << 16 else entries, kind="stable")
        entries, rows = entries[order], rows[order]
        starts = np.flatnonzero(entries[1:] != entries[:-1]) + 1
        bounds = [0, *starts.tolist(), len(rows)]
        found = [payloads[at] for at in entries[np.array(bounds[:-1])].tolist()]
        return rows, zip(found, bounds, bounds[1:], strict=False)


def _bits(buffer: Any, rows: int) -> Any:
    return np.unpackbits(np.frombuffer(buffer, np.uint8), count=rows, bitorder="little")


def _words_of(record: Record, attribute: Attribute, types: dict[Node, Type]) -> list[tuple[int, Word]]:
    """The words of an attribute's column: where each goes, and what it is."""
    if attribute.opaque is not None:
        return []
    made: list[tuple[int, Word]] = []
    here: Type = record
    checks = [(w.D_VALID, w.D_VALID_OFFSET), (w.D_WITHIN, w.D_WITHIN_OFFSET)]
    for n in range(len(attribute.path)):
        assert isinstance(here, Record)
        node, field = attribute.path[: n + 1], here.by_name[attribute.path[n]]
        types[node] = here = field.type
        if field.optional:
            bitmap, offset = checks.pop(0)
            made += [(bitmap, (node, "valid")), (offset, (node, "valid offset"))]
    node = attribute.path
    if attribute.kind == w.PRESENCE:
        return made
    if here == BOOL:
        return [*made, (w.D_DATA, (node, "bits")), (w.D_OFFSETS, (node, "bits offset"))]
    if isinstance(here, Enum):
        made += [(w.D_CODES, (node, "codes")), (w.D_MEMBERS, (node, "members"))]
    if attribute.is_text:
        made.append((w.D_OFFSETS, (node, "offsets")))
    return [*made, (w.D_DATA, (node, "data"))]
