"""A segment: an immutable index over a set of entries, laid out for the kernels.

Entries lie in three stretches. Those without a predicate that can be indexed are verified for every event. Those with a
rare equality lie together by attribute and constant. The rest is *swept*: for each attribute and each span of its ranks
there is a row of bits, one for each entry, that says whether it might want such an event; the rows that an event
chooses, combined, leave few entries to verify. Swept entries are sorted by the attributes they need, so that what an
event lacks rules out whole chunks of them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from headwater.late import np
from headwater.match import layout as w
from headwater.match.attributes import Attribute
from headwater.match.kernels.library import build_hash
from headwater.match.source import Source

if TYPE_CHECKING:
    from headwater.match.opaque import Opaque

RARE = 1 / 16  # of the entries that compare an attribute for equality: a constant so rare is an access key
FEW = 24  # entries, below which nothing is gained by keys
ROW_BYTES = 72  # for each swept entry, to spend on rows of bits
SMALL = 1 << 21  # bits of a segment, for which memory does not matter
MAX_SPANS = 512  # of ranks, each with a row


class Segment:
    """The index of a source's entries. `words` is what the kernels read; everything it leads to lives in here."""

    def __init__(self, source: Source) -> None:
        count = source.count
        owner = np.repeat(np.arange(count), np.diff(source.starts).astype(np.int64))
        preds = source.predicates
        index, flags = (preds[:, 0] & w.INDEX).astype(np.int64), preds[:, 0] & ~np.uint32(w.INDEX)
        opaque = (flags & np.uint32(w.OPAQUE)) != 0
        indexed = np.zeros(count, bool)
        indexed[owner[~opaque]] = True
        key = _rarest(source, owner, index, flags) if count >= FEW else np.full(count, -1, np.int64)
        keyed = key >= 0
        swept = indexed & ~keyed
        order = _order(source.attributes, index[~opaque])
        perm = np.concatenate(
            [
                np.flatnonzero(~indexed),
                _sorted_by(np.flatnonzero(keyed), key[keyed]),
                _clustered(source, swept, owner, index, opaque, order),
            ]
        )
        self.count, self.always, self.swept = count, int((~indexed).sum()), int((~swept).sum())
        place = np.empty(count, np.int64)
        place[perm] = np.arange(count)
        # Within an entry: what is cheap first, and of that what an event is least likely to have.
        by = np.lexsort((-order[index], flags, place[owner]))
        owner, index = place[owner][by], index[by]
        self.attributes, self.keys, self.pool = source.attributes, source.keys, _aligned(source.pool)
        self.predicates = np.ascontiguousarray(preds[by])
        self.starts = np.zeros(count + 1, np.uint32)
        np.cumsum(np.diff(source.starts)[perm], out=self.starts[1:])
        self.payloads, self.slots, self.numbers = source.payloads[perm], source.slots[perm], source.numbers[perm]
        self.stats = np.zeros(w.T_WORDS, np.uint64)
        self._sorter: Any = None
        self._kept: list[Any] = []
        self.descriptors = self._descriptors()
        self.key_table, self.key_count = self._keys(key[keyed])
        self._rows(owner, index, order)
        self.words = self._words()

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    def source(self, dead: Any) -> Source:
        """The entries again, without the dead ones (a mask by position, or None)."""
        whole = Source(self.attributes, self.keys, self.starts, self.predicates, self.pool,
                       self.payloads, self.slots, self.numbers)  # fmt: skip
        return whole if dead is None else whole.only(~dead)

    def find(self, number: int) -> int:
        """The position of an entry, or -1."""
        if self._sorter is None:
            self._sorter = np.argsort(self.numbers)
        at = int(np.searchsorted(self.numbers, number, sorter=self._sorter))
        if at == self.count:
            return -1
        position = int(self._sorter[at])
        return position if int(self.numbers[position]) == number else -1

    def attributes_at(self, at: int) -> list[Attribute]:
        """The attributes that an entry's predicates are about."""
        rows = self.predicates[int(self.starts[at]) : int(self.starts[at + 1]), 0]
        return [self.attributes[int(row) & w.INDEX] for row in rows]

    def users(self, opaque: Opaque) -> list[int]:
        """The positions of entries that use some native code."""
        if opaque.attribute not in self.attributes:
            return []
        rows = np.flatnonzero(self.predicates[:, 0] == self.attributes.index(opaque.attribute) | w.OPAQUE)
        found: list[int] = (np.searchsorted(self.starts, rows, side="right") - 1).tolist()
        return found

    def explain(self, at: int) -> str:
        """How the entry at a position is found."""
        attributes = self.attributes_at(at)
        if at < self.always:
            return "native code, each event" if attributes else "passes every event"
        if at < self.swept:
            for row in self.key_table[: self.key_count]:
                attr = self.attributes[int(row[w.K_ATTR])]
                starts = np.ctypeslib.as_array(
                    ctypes.cast(int(row[w.K_STARTS]), ctypes.POINTER(ctypes.c_uint32)), (int(row[w.K_SIZE]),)
                )
                if starts[0] <= at < starts[-1]:
                    return f"equality on {attr}"
        rows = self.predicates[int(self.starts[at]) : int(self.starts[at + 1])]
        plain = [(str(a), row) for a, row in zip(attributes, rows, strict=True) if a.opaque is None]
        equal = {name for name, (flags, lo, span) in plain if flags < w.PLAIN and span == 0 and lo & 1}
        others = {name for name, _ in plain} - equal
        ways = [
            f"{way} on {', '.join(sorted(names))}" for way, names in (("equality", equal), ("range", others)) if names
        ]
        return "; ".join(ways) + ("; then native code" if len(plain) < len(attributes) else "")

    @property
    def nbytes(self) -> int:
        """Memory, without the payloads themselves."""
        arrays = [self.pool, self.predicates, self.starts, self.payloads.addresses, self.slots, self.numbers, self.bits]
        arrays += [*self._kept, self.descriptors, *(keys for keys in self.keys if not isinstance(keys, list))]
        texts = sum(len(key) + 33 for keys in self.keys if isinstance(keys, list) for key in keys)
        return int(texts + sum(array.nbytes for array in arrays))

    # ── how it is laid out ──

    def _words(self) -> Any:
        words = np.zeros(w.S_WORDS, np.uint64)
        words[w.S_COUNT], words[w.S_ATTRS] = self.count, len(self.attributes)
        words[w.S_ALWAYS], words[w.S_SWEPT], words[w.S_KEYED] = self.always, self.swept, self.key_count
        words[w.S_WIDTH], words[w.S_FIRSTS], words[w.S_ROWED] = self.width, self.firsts.ctypes.data, len(self.specs)
        for at, array in (
            (w.S_DESCRIPTORS, self.descriptors),
            (w.S_STARTS, self.starts),
            (w.S_PREDICATES, self.predicates),
            (w.S_PAYLOADS, self.payloads.addresses),
            (w.S_SLOTS, self.slots),
            (w.S_POOL, self.pool),
            (w.S_KEYS, self.key_table),
            (w.S_ROWS, self.specs),
            (w.S_VALID, self.bits),
            (w.S_STATS, self.stats),
        ):
            words[at] = array.ctypes.data
        return words

    def _keep(self, array: Any) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)

    def _descriptors(self) -> Any:
        made = np.zeros((max(1, len(self.attributes)), w.A_WORDS), np.uint64)
        for row, attribute, keys in zip(made, self.attributes, self.keys, strict=False):
            row[w.A_KIND], row[w.A_LOAD], row[w.A_CONVERT] = attribute.kind, attribute.load, attribute.convert
            row[w.A_CHECK : w.A_CHECK + 4] = attribute.checks
            row[w.A_OFFSET], row[w.A_COUNT] = attribute.offset, len(keys)
            if attribute.opaque is not None:
                row[w.A_OPAQUE] = attribute.opaque.number
            elif attribute.is_text:
                ends = np.zeros(len(keys) + 1, np.uint64)
                np.cumsum(np.fromiter(map(len, keys), np.uint64, len(keys)), out=ends[1:])
                blob = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
                row[w.A_KEYS], row[w.A_BLOB] = self._keep(ends), self._keep(blob)
                if attribute.kind == w.TEXT_EQUAL:
                    table = np.zeros(1 << (2 * len(keys)).bit_length(), np.uint64)
                    row[w.A_TABLE], row[w.A_MASK] = self._keep(table), len(table) - 1
                    build_hash()(blob.ctypes.data, ends.ctypes.data, len(keys), table.ctypes.data, len(table) - 1)
            else:
                row[w.A_KEYS] = keys.ctypes.data
        return made

    def _keys(self, codes: Any) -> tuple[Any, int]:
        """For each attribute with keyed entries, where the entries of each of its constants start."""
        codes = np.sort(codes)
        used = np.unique(codes >> 32)
        table = np.zeros((max(1, len(used)), w.K_WORDS), np.uint64)
        for row, attr in zip(table, used, strict=False):
            attr = int(attr)
            wanted = (np.int64(attr) << 32) + 2 * np.arange(len(self.keys[attr]) + 1)
            starts = (np.searchsorted(codes, wanted) + self.always).astype(np.uint32)
            row[w.K_ATTR], row[w.K_STARTS], row[w.K_SIZE] = attr, self._keep(starts), len(starts)
        return table, len(used)

    def _rows(self, owner: Any, index: Any, order: Any) -> None:
        """The rows of bits of the swept entries, for each attribute that they use."""
        mine = owner >= self.swept
        position, index, preds = owner[mine] - self.swept, index[mine], self.predicates[mine]
        used = np.array([a for a in np.unique(index) if self.attributes[a].kind != w.OPAQUE_KIND], np.int64)
        used = used[np.argsort(order[used])]
        swept = self.count - self.swept
        self.width = -(-swept // (64 * w.CHUNK)) * w.CHUNK
        spans = max(1, min(MAX_SPANS, max(ROW_BYTES * 8, SMALL // max(1, swept)) // max(1, len(used)) - 2))
        shifts = [_span_shift(len(self.keys[a]), spans) for a in used]
        counts = [(2 * len(self.keys[a]) >> shift) + 1 for a, shift in zip(used, shifts, strict=True)]
        self.bits = _aligned(np.zeros((1 + sum(counts) + 2 * len(counts), self.width * 8), np.uint8))
        self.bits[0, : -(-swept // 8)] = np.packbits(np.ones(swept, np.uint8), bitorder="little")
        self.specs = np.zeros((len(used), w.B_WORDS), np.uint64)
        self.firsts = _firsts(position, index, used, self.width // w.CHUNK, len(self.attributes))
        by = np.argsort(index, kind="stable")
        bounds = np.searchsorted(index[by], np.arange(len(self.attributes) + 1))
        at = 1
        for number, (attr, shift, count) in enumerate(zip(used, shifts, counts, strict=True)):
            rows = by[bounds[attr] : bounds[attr + 1]]
            self._fill(self.bits[at : at + count + 2], preds[rows], position[rows], shift, count)
            self.specs[number] = (attr, self.bits[at:].ctypes.data, shift, count)
            at += count + 2

    def _fill(self, out: Any, preds: Any, position: Any, shift: int, count: int) -> None:
        """An entry's bit is on unless it has a predicate here that the span cannot satisfy."""
        chosen, column = np.unique(position, return_inverse=True)
        steps = np.zeros((count + 1, len(chosen)), np.int32)
        lo, span = preds[:, 1], preds[:, 2]
        hi = lo + span
        among = (preds[:, 0] & np.uint32(w.SET)) != 0
        members = among & ((preds[:, 0] & np.uint32(w.NOT)) == 0)
        every = (among & ~members) | (~among & (span == w.FULL))
        wraps = ~among & ~every & (lo == w.NAN)
        first = np.where(every | wraps, 0, lo >> np.uint32(shift))
        last = np.where(every | ((hi >= w.TOP) & ~wraps), count - 1, hi >> np.uint32(shift))
        usual = every | (~members & (lo != w.NEVER))
        np.add.at(steps, (first[usual], column[usual]), 1)
        np.add.at(steps, (last[usual] + 1, column[usual]), -1)
        for row in np.flatnonzero(members):
            spans = np.unique(self.pool[int(lo[row]) : int(lo[row]) + int(span[row])] >> np.uint32(shift))
            steps[spans, column[row]] += 1
            steps[spans + 1, column[row]] -= 1
        some = np.cumsum(steps[:count], axis=0) > 0
        nan = np.zeros(len(chosen), bool)
        nan[column[every | wraps | (~among & (lo <= w.NAN) & (hi >= w.NAN))]] = True
        swept = self.count - self.swept
        line, size = np.ones(swept, np.uint8), -(-swept // 8)
        for number in range(count + 2):
            line[chosen] = some[number] if number < count else (nan if number > count else 0)
            out[number, :size] = np.packbits(line, bitorder="little")


def _rarest(source: Source, owner: Any, index: Any, flags: Any) -> Any:
    """The attribute and rank of each entry's rarest equality, as one number; -1 where none is rare."""
    lo, span = source.predicates[:, 1], source.predicates[:, 2]
    found = np.full(source.count, -1, np.int64)
    equal = np.flatnonzero((flags == 0) & (span == 0) & (lo < w.TOP) & (lo & 1 == 1))
    if not len(equal):
        return found
    codes = (index[equal] << 32) + lo[equal] - 1
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    share = counts[inverse] / np.bincount(index[equal])[index[equal]]
    order = np.lexsort((share, owner[equal]))
    firsts = np.flatnonzero(np.diff(owner[equal][order], prepend=-1))
    best = order[firsts]
    best = best[share[best] <= RARE]
    found[owner[equal[best]]] = codes[best]
    return found


def _order(attributes: list[Attribute], index: Any) -> Any:
    """A place for each attribute: first those an event may lack, and of these first those that few entries use."""
    uses = np.bincount(index, minlength=len(attributes))
    required = np.array([not a.optional for a in attributes], bool)
    made = np.empty(len(attributes), np.int64)
    made[np.lexsort((uses, required))] = np.arange(len(attributes))
    return made


def _sorted_by(items: Any, keys: Any) -> Any:
    return items[np.argsort(keys, kind="stable")]


def _clustered(source: Source, swept: Any, owner: Any, index: Any, opaque: Any, order: Any) -> Any:
    """Swept entries, those with the same first three attributes together; of required ones also by value."""
    items = np.flatnonzero(swept)
    if len(items) < 2 * 64:
        return items
    rows = np.flatnonzero(swept[owner] & ~opaque)
    rows = rows[np.lexsort((order[index[rows]], owner[rows]))]
    who = owner[rows]
    nth = np.arange(len(rows)) - np.flatnonzero(np.diff(who, prepend=-1))[np.cumsum(np.diff(who, prepend=-1) > 0) - 1]
    sizes = np.array([2 * len(keys) + 1 for keys in source.keys], np.int64)
    required = np.array([not a.optional for a in source.attributes], bool)
    lo = np.minimum(source.predicates[rows, 1].astype(np.int64), sizes[index[rows]] - 1)
    part = np.where(required[index[rows]], lo * 15 // sizes[index[rows]] + 1, 0)
    code = np.minimum(order[index[rows]], (1 << 16) - 1) * 16 + part
    key = np.zeros(source.count, np.int64)
    for n in range(3):
        these = nth == n
        key[who[these]] |= (code[these] + 1) << (42 - 21 * n)
    return _sorted_by(items, key[items])


def _firsts(position: Any, index: Any, used: Any, chunks: int, attributes: int) -> Any:
    """For each chunk of entries, the number of the first row that any of them minds."""
    number = np.full(attributes, len(used), np.uint32)
    number[used] = np.arange(len(used))
    made = np.full(max(1, chunks), len(used), np.uint32)
    np.minimum.at(made, position // (64 * w.CHUNK), number[index])
    return made


def _span_shift(keys: int, spans: int) -> int:
    shift = 0
    while (2 * keys >> shift) + 1 > spans:
        shift += 1
    return shift


def _aligned(array: Any) -> Any:
    """A copy whose memory starts at a multiple of 64 bytes."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
