"""Entries in bulk: predicates as arrays of ranks among the constants they mention. What segments are made from.

from_entries([...])     entries one by one, as they were added
from_ranges(...)        a table of ranges, for many entries at once
merged([...])           several into one: constants are united, ranks follow
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.late import np
from headwater.match import layout as w
from headwater.match.attributes import Attribute, Key
from headwater.match.lower import End, Predicate

Keys = Any  # of numbers, a sorted array of 64-bit keys; of texts, a sorted list of bytes


class Entry(NamedTuple):
    """What was added: a number of its own, what to hand out, where it is counted."""

    number: int
    payload: object
    slot: int
    predicates: tuple[Predicate, ...]


@dataclass
class Source:
    """`predicates` has a row of flags and attribute, lo, span for each predicate; `starts` says whose they are."""

    attributes: list[Attribute]
    keys: list[Keys]
    starts: Any
    predicates: Any
    pool: Any
    payloads: Payloads
    slots: Any
    numbers: Any

    @property
    def count(self) -> int:
        return len(self.numbers)

    def only(self, keep: Any) -> Source:
        """Without some of the entries."""
        if keep.all():
            return self
        counts = np.diff(self.starts)
        starts = np.zeros(int(keep.sum()) + 1, np.uint32)
        np.cumsum(counts[keep], out=starts[1:])
        rows = np.repeat(keep, counts)
        ids = (self.payloads[keep], self.slots[keep], self.numbers[keep])
        return _tidied(Source(self.attributes, self.keys, starts, self.predicates[rows], self.pool, *ids))


class Payloads:
    """Objects, kept alive, and an array of their addresses.

    An array of objects would be both in one, but the garbage collector cannot look into it: payloads that lead back to
    their matcher would stay for ever."""

    __slots__ = ("addresses", "items")

    def __init__(self, items: Iterable[object]) -> None:
        self.items = tuple(items)
        self.addresses = np.fromiter(map(id, self.items), np.uint64, len(self.items))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, which: Any) -> Payloads:
        """Those at some positions, or where a mask is true."""
        positions = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Payloads([self.items[at] for at in positions.tolist()])


def from_entries(entries: Sequence[Entry]) -> Source:
    """The tables of these entries: for each attribute all constants in order, and predicates as ranges of ranks among
    them."""
    numbers: dict[Attribute, int] = {}
    constants: list[set[Key]] = []
    for entry in entries:
        for predicate in entry.predicates:
            at = numbers.setdefault(predicate.attribute, len(numbers))
            if at == len(constants):
                constants.append(set())
            keys = predicate.members or (predicate.low.key, predicate.high.key)
            constants[at].update(key for key in keys if key is not None)
    ordered = [sorted(found) for found in constants]
    places = [{key: i for i, key in enumerate(found)} for found in ordered]
    rows: list[tuple[int, int, int]] = []
    pool: list[int] = []
    starts = [0]
    for entry in entries:
        for predicate in entry.predicates:
            at = numbers[predicate.attribute]
            rows.append(_row(predicate, at, places[at], pool))
        starts.append(len(rows))
    attributes = list(numbers)
    return Source(
        attributes,
        [found if a.is_text else np.array(found, np.int64) for a, found in zip(attributes, ordered, strict=True)],
        np.array(starts, np.uint32),
        np.array(rows, np.uint32).reshape(-1, 3),
        np.array(pool, np.uint32),
        Payloads([entry.payload for entry in entries]),
        np.array([entry.slot for entry in entries], np.uint32),
        np.array([entry.number for entry in entries], np.int64),
    )


def _row(predicate: Predicate, at: int, places: dict[Key, int], pool: list[int]) -> tuple[int, int, int]:
    if predicate.members is not None:
        start = len(pool)
        pool += [2 * places[key] + 1 for key in predicate.members]
        return at | w.SET | (w.NOT if predicate.negated else 0), start, len(predicate.members)
    flags = w.OPAQUE if predicate.attribute.kind == w.OPAQUE_KIND else 0
    lo = _rank(predicate.low, places)
    if predicate.high.rank == w.MISSING:
        return at | w.WRAPS, lo, w.FULL
    hi = _rank(predicate.high, places)
    if hi < lo != w.NAN:
        return at | flags, w.NEVER, 0
    if lo == w.NAN:
        flags |= w.WRAPS
    return at | flags, lo, (hi - lo) & 0xFFFF_FFFF


def _rank(end: End, places: dict[Key, int]) -> int:
    return end.rank if end.key is None else 2 * places[end.key] + 1 + end.step


def from_ranges(
    attributes: Sequence[Attribute], owners: Any, which: Any, low: Any, high: Any, ids: tuple[Any, Any, Any]
) -> Source:
    """Closed ranges of number keys: row i says that entry `owners[i]` wants attribute `which[i]` from `low[i]` to
    `high[i]`. `ids` are payloads, slots and numbers of the entries."""
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(attributes) + 1))
    predicates = np.empty((len(which), 3), np.uint32)
    predicates[:, 0] = which
    keys: list[Keys] = []
    for at in range(len(attributes)):
        mine = order[bounds[at] : bounds[at + 1]]
        found = np.unique(np.concatenate([low[mine], high[mine]]))
        lo = 2 * np.searchsorted(found, low[mine]) + 1
        hi = 2 * np.searchsorted(found, high[mine]) + 1
        predicates[mine, 1] = np.where(hi < lo, w.NEVER, lo)
        predicates[mine, 2] = np.where(hi < lo, 0, hi - lo)
        keys.append(found)
    by_owner = np.argsort(owners, kind="stable")
    starts = np.zeros(len(ids[0]) + 1, np.uint32)
    np.cumsum(np.bincount(owners, minlength=len(ids[0])), out=starts[1:])
    return Source(list(attributes), keys, starts, predicates[by_owner], np.zeros(0, np.uint32), *ids)


def merged(sources: Sequence[Source]) -> Source:
    """All entries of several, in order."""
    if len(sources) == 1:
        return sources[0]
    numbers: dict[Attribute, int] = {}
    for source in sources:
        for attribute in source.attributes:
            numbers.setdefault(attribute, len(numbers))
    found: list[list[Keys]] = [[] for _ in numbers]
    for source in sources:
        for attribute, keys in zip(source.attributes, source.keys, strict=True):
            found[numbers[attribute]].append(keys)
    united = [_united(keys) for keys in found]
    parts, starts, pools = [], [np.zeros(1, np.int64)], []
    rows = pooled = 0
    for source in sources:
        predicates, pool = _moved(source, numbers, united, pooled)
        parts.append(predicates)
        pools.append(pool)
        starts.append(source.starts[1:].astype(np.int64) + rows)
        rows += len(predicates)
        pooled += len(pool)
    return Source(
        list(numbers),
        united,
        np.concatenate(starts).astype(np.uint32),
        np.concatenate(parts),
        np.concatenate(pools),
        Payloads([item for source in sources for item in source.payloads.items]),
        np.concatenate([source.slots for source in sources]),
        np.concatenate([source.numbers for source in sources]),
    )


def _tidied(source: Source) -> Source:
    """Without the attributes, constants and sets that no predicate needs any more."""
    index = source.predicates[:, 0] & w.INDEX
    used, predicates = np.unique(index).tolist(), source.predicates.copy()
    among = (predicates[:, 0] & np.uint32(w.SET)) != 0
    pool = source.pool[_members(predicates[among])]
    predicates[among, 1] = np.cumsum(predicates[among, 2]) - predicates[among, 2]
    order = np.argsort(index, kind="stable")
    bounds = np.searchsorted(index[order], [*used, w.INDEX])
    attributes, old, kept = [], [], []
    for number, at in enumerate(used):
        rows = order[bounds[number] : bounds[number + 1]]
        attributes.append(source.attributes[at])
        old.append(source.keys[at])
        kept.append(_needed(source.keys[at], predicates[rows], pool))
        predicates[rows, 0] -= np.uint32(at - number)
    whole = Source(attributes, old, source.starts, predicates, pool, source.payloads, source.slots, source.numbers)
    predicates, pool = _moved(whole, {a: n for n, a in enumerate(attributes)}, kept, 0)
    return Source(attributes, kept, source.starts, predicates, pool, source.payloads, source.slots, source.numbers)


def _needed(keys: Keys, predicates: Any, pool: Any) -> Keys:
    """Those of an attribute's constants that its predicates mention."""
    wanted = np.zeros(len(keys), bool)
    among = (predicates[:, 0] & np.uint32(w.SET)) != 0
    wanted[pool[_members(predicates[among])] >> 1] = True
    if len(keys):
        lo, span = predicates[~among, 1], predicates[~among, 2]
        hi = lo + span
        wanted[((lo - 1) >> 1)[(lo > 0) & (lo < w.TOP)]] = True  # 2i + 1, or one more: above constant i
        wanted[(hi >> 1)[(hi < w.TOP) & (span != w.FULL)]] = True  # 2i + 1, or one less: below it
    if isinstance(keys, list):
        return [keys[at] for at in np.flatnonzero(wanted).tolist()]
    return keys[wanted]


def _united(keys: list[Keys]) -> Keys:
    if len(keys) == 1:
        return keys[0]
    if isinstance(keys[0], list):
        return sorted(set().union(*keys))
    return np.unique(np.concatenate(keys))


def _moved(source: Source, numbers: dict[Attribute, int], united: list[Keys], pooled: int) -> tuple[Any, Any]:
    """A source's predicates and pool with the ranks they have among more constants."""
    predicates, pool = source.predicates.copy(), source.pool.copy()
    index = predicates[:, 0] & w.INDEX
    order = np.argsort(index, kind="stable")
    bounds = np.searchsorted(index[order], np.arange(len(source.attributes) + 1))
    for at, attribute in enumerate(source.attributes):
        mine = order[bounds[at] : bounds[at + 1]]
        flags = predicates[mine, 0] & ~np.uint32(w.INDEX)
        predicates[mine, 0] = flags | np.uint32(numbers[attribute])
        old, new = source.keys[at], united[numbers[attribute]]
        if attribute.kind == w.OPAQUE_KIND:
            continue
        place = _places(old, new)
        among = (flags & np.uint32(w.SET)) != 0
        members = _members(predicates[mine[among]])
        pool[members] = 2 * place[pool[members] >> 1] + 1
        predicates[mine[among], 1] += np.uint32(pooled)
        plain = mine[~among]
        lo, span = predicates[plain, 1], predicates[plain, 2]
        hi = lo + span
        lows, highs = np.zeros(2 * len(place) + 1, np.uint32), np.zeros(2 * len(place) + 1, np.uint32)
        lows[1::2], lows[2::2] = 2 * place + 1, 2 * place + 2
        highs[1::2], highs[0:-1:2] = 2 * place + 1, 2 * place
        lo = _through(lows, lo)
        predicates[plain, 1] = lo
        predicates[plain, 2] = np.where(span == w.FULL, span, _through(highs, hi) - lo)
    return predicates, pool


def _members(sets: Any) -> Any:
    """Where in the pool the members of these predicates are, one set after the other."""
    starts, counts = sets[:, 1].astype(np.int64), sets[:, 2].astype(np.int64)
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _through(table: Any, ranks: Any) -> Any:
    """Ranks of values by the table; codes stay as they are."""
    value = ranks < w.TOP
    return np.where(value, table[np.where(value, ranks, 0)], ranks)


def _places(old: Keys, new: Keys) -> Any:
    """Where each key is among others; any place for one that is not there."""
    if isinstance(old, list):
        at = {key: i for i, key in enumerate(new)} if len(old) * 8 > len(new) else None
        if at is not None:
            return np.array([at.get(key, 0) for key in old], np.int64)
        return np.array([bisect_left(new, key) for key in old], np.int64)
    return np.searchsorted(new, old)
