"""Which of many interests an event satisfies.

    matcher = Matcher(type)
    key = matcher.add("mine", interest)
    matching = matcher.snapshot()
    matching.match(record)          ["mine"], or an empty tuple

The matcher is changed under its owner's lock, and has one of its own for matchings that are made `Later`; a matching
never changes and any thread may use it. New entries go into small segments that are merged as they grow, each merge
making a segment eight times as large, so that adding costs little and there are never many segments. Removed entries
are marked, and left out when their segment is next built.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from headwater.interest import Interest
from headwater.ir.nodes import Load, Path
from headwater.late import np
from headwater.match import counters as c
from headwater.match import layout as w
from headwater.match.attributes import Attribute, attribute_of
from headwater.match.lower import lower
from headwater.match.matching import Core, Held, Matching
from headwater.match.opaque import Opaques
from headwater.match.segment import Segment
from headwater.match.source import Entry, Payloads, Source, from_entries, from_ranges, merged
from headwater.types import EventType
from headwater.types.model import Scalar, promote

Choice = Literal["auto", "scan", "index"]
P = ParamSpec("P")
R = TypeVar("R")

FIRST, GROWTH = 64, 8  # entries of the smallest segments, and how much larger the next ones are
MEASURED = 256  # events, after which what a segment counted says something
# Of a segment's entries are candidates: then verifying all of them in order is quicker. That is sooner the case where
# the predicates do not fit the processor's cache, as memory is read much faster in order than here and there.
CROWDED, CROWDED_LARGE, LARGE = 0.7, 0.12, 16 << 20
DEAD = 0.25  # of a segment's entries: then it is built anew without them


def _locked(method: Callable[Concatenate[Matcher, P], R]) -> Callable[Concatenate[Matcher, P], R]:
    """Who changes a matcher, and who makes a matching of it, may be different threads."""

    @wraps(method)
    def guarded(self: Matcher, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return guarded


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """How one segment finds its entries, and how that went: candidates and hits are means per event."""

    entries: int
    removed: int
    always: int
    keyed: int
    swept: int
    scan: bool
    nbytes: int
    events: int
    candidates: float
    hits: float


class Matcher:
    """Entries, each an interest with a payload to hand out when an event satisfies it.

    Where more than `exact_undecided` entries have conditions on optional fields, an event that lacks such a field is
    taken not to satisfy them, and is not counted as undecided: to find all entries that are undecided would take as
    long as to evaluate every one. `unsplit` says how many events an entry was judged by so. `plan` is for tests.
    """

    def __init__(self, type: EventType, *, exact_undecided: int = 10_000, plan: Choice = "auto") -> None:
        if plan not in ("auto", "scan", "index"):
            raise ValueError(f"plan: expected auto, scan or index, found {plan!r}")
        self.type, self.exact_undecided, self.forced = type, exact_undecided, plan
        self.lock = threading.RLock()
        self._counters, self._opaques = c.Counters(), Opaques()
        self._pending: dict[int, Entry] = {}
        self._bulk: list[Source] = []
        self._held: list[Held] = []
        self._next = 0
        self._optional = 0  # entries with conditions on fields that may be missing
        self._made = 0
        self._cores: deque[weakref.ref[Core]] = deque()
        self._latest: Matching | None = None

    # ── entries ──

    def takes(self, interest: Interest) -> bool:
        """Whether it can be matched here: a filter of this type without state that needs nothing but the event, and
        that is quick enough to be run while other threads wait."""
        program = interest.executed.program
        return not (
            program.stateful
            or program.output is not None
            or program.input != self.type.record
            or not interest.needs_only_a_moment
        )

    @_locked
    def add(self, payload: object, interest: Interest) -> int:
        """A new entry, from the next snapshot on; returns its key."""
        if not self.takes(interest):
            raise ValueError(
                f"expected a stateless filter on {self.type.name} that uses the event only, found {interest!r}; "
                "evaluate it by itself"
            )
        predicates, faulty = lower(interest, self._opaques)
        optional = any(p.attribute.optional and p.attribute.opaque is None for p in predicates)
        sure = not any(p.attribute.optional or p.attribute.opaque is not None for p in predicates)
        slot = self._counters.take(c.WHOLE if faulty else c.PLAIN, split=optional, sure=sure)
        key = self._next
        self._next += 1
        self._pending[key] = Entry(key, payload, slot, predicates)
        self._optional += optional
        self._latest = None
        return key

    @_locked
    def add_many(self, entries: Iterable[tuple[object, Interest]]) -> list[int]:
        """The same for many."""
        return [self.add(payload, interest) for payload, interest in entries]

    @_locked
    def add_ranges(
        self, payloads: Sequence[object], fields: Sequence[str], *, owners: Any, which: Any, low: Any, high: Any
    ) -> range:
        """Many entries that are conjunctions of closed ranges of numbers, as arrays: row i says that the entry of
        `payloads[owners[i]]` wants `fields[which[i]]` between `low[i]` and `high[i]`. Returns their keys."""
        attributes = [self._number(name) for name in fields]
        owners, which = np.asarray(owners, np.int64), np.asarray(which, np.int64)
        if len({len(owners), len(which), len(low), len(high)}) != 1:
            raise ValueError("expected owners, which, low and high of one length")
        for name, found, end in (("owners", owners, len(payloads)), ("which", which, len(fields))):
            if len(found) and (found.min() < 0 or found.max() >= end):
                raise ValueError(f"{name}: expected numbers from 0 to {end - 1}, found {found.min()} to {found.max()}")
        keys = [_keys(attributes, which, np.asarray(ends)) for ends in (low, high)]
        optional = any(attribute.optional for attribute in attributes)
        count = len(payloads)
        found = range(self._next, self._next + count)
        self._next += count
        slots = self._counters.take_many(count, split=optional, sure=not optional)
        ids = (Payloads(payloads), slots, np.arange(found.start, found.stop))
        self._bulk.append(from_ranges(attributes, owners, which, keys[0], keys[1], ids))
        self._optional += count if optional else 0
        self._latest = None
        return found

    def _number(self, name: str) -> Attribute:
        field = self.type.record.by_name.get(name)
        made = None
        if field is not None:
            load = Load(Path((name,)), field.type, promote(field.type))
            made = attribute_of(self.type.record, load, ordered=True)
        if made is None or not (isinstance(made.stored, Scalar) and made.stored.is_number):
            raise ValueError(f"{self.type.name}.{name}: expected a field that holds a number, found {field}")
        return made

    @_locked
    def remove(self, key: int) -> c.Counted:
        """Take an entry away, from the next snapshot on; returns its last counts. KeyError if there is none."""
        entry = self._pending.pop(key, None)
        if entry is not None:
            slot, attributes = entry.slot, [p.attribute for p in entry.predicates]
        else:
            held, at = self._find(key)
            slot, attributes = int(held.segment.slots[at]), held.segment.attributes_at(at)
            held.kill(at)
        faulty = False
        for attribute in attributes:
            if attribute.opaque is not None:
                faulty = faulty or attribute.opaque.faulty
                self._opaques.release(attribute.opaque)
        size = c.WHOLE if faulty else c.PLAIN
        self._optional -= self._counters.split(slot)
        counted = self._counters.read(slot, size)
        self._counters.leave(slot, size, -1 if entry is not None else self._made)
        self._latest = None
        return counted

    def _find(self, key: int) -> tuple[Held, int]:
        if self._bulk:
            self._settle()
        for held in self._held:
            at = held.segment.find(key)
            if at >= 0 and not held.is_dead(at):
                return held, at
        raise KeyError(key)

    def _slot(self, key: int) -> tuple[int, int]:
        entry = self._pending.get(key)
        if entry is not None:
            slot, attributes = entry.slot, [p.attribute for p in entry.predicates]
        else:
            held, at = self._find(key)
            slot, attributes = int(held.segment.slots[at]), held.segment.attributes_at(at)
        faulty = any(a.opaque is not None and a.opaque.faulty for a in attributes)
        return slot, c.WHOLE if faulty else c.PLAIN

    @_locked
    def __len__(self) -> int:
        bulk = sum(source.count for source in self._bulk)
        return len(self._pending) + bulk + sum(held.segment.count - held.removed for held in self._held)

    # ── what is known of them ──

    @_locked
    def counts(self, key: int, ledgers: Iterable[c.Ledger] = ()) -> c.Counted:
        """An entry's undecided events, and its events by fault: those counted in these ledgers, or in none."""
        return self._counters.read(*self._slot(key), ledgers)

    @_locked
    def ledger(self) -> c.Ledger:
        """For one who counts what it matches by itself: its counts can be read while it, and nobody else, stands
        still. It is to be handed back (`absorb`)."""
        return self._counters.ledger()

    @_locked
    def absorb(self, ledger: c.Ledger) -> None:
        """Who counted in a ledger matches nothing here any more."""
        self._counters.absorb(ledger)

    @_locked
    def weigh(self, key: int, weight: int) -> None:
        """How much an entry counts for in totals (`Matching.counting_in`); 1 unless said."""
        if not 0 <= weight < 1 << 63:
            raise ValueError(f"expected a weight of 0 or more, found {weight}")
        self._counters.weigh(self._slot(key)[0], weight)

    @_locked
    def unsplit(self, key: int) -> int:
        """Events by which an entry was judged without telling undecided from rejected; 0 in the usual case."""
        return self._counters.unsplit_of(self._slot(key)[0])

    @_locked
    def explain(self, key: int) -> str:
        """How an entry is found."""
        if key in self._pending:
            return "waits for the next snapshot"
        held, at = self._find(key)
        return "scan: verified for each event" if held.scan else held.segment.explain(at)

    @property
    @_locked
    def plan(self) -> list[SegmentPlan]:
        """The segments, largest first."""
        made = []
        for held in self._held:
            it = held.segment
            events, candidates, hits = (int(n) for n in it.stats)
            per = max(1, events)
            made.append(
                SegmentPlan(
                    it.count,
                    held.removed,
                    it.always,
                    it.swept - it.always,
                    it.count - it.swept,
                    held.scan,
                    it.nbytes,
                    events,
                    candidates / per,
                    hits / per,
                )
            )
        return made

    @property
    @_locked
    def nbytes(self) -> int:
        """Memory of the index and the counters, without the payloads themselves."""
        return self._counters.nbytes + 8 * self._opaques.room + sum(held.segment.nbytes for held in self._held)

    # ── the present state ──

    @_locked
    def snapshot(self) -> Matching:
        """The entries as they are now. What was handed out before goes on as it was."""
        if self._latest is not None and not any(self._replan(held) for held in self._held):
            return self._latest
        self._settle()
        for held in self._held:
            self._replan(held)
        self._made += 1
        exact = self._optional <= self.exact_undecided
        core = Core(self.type, self._made, [held.share() for held in self._held], self._counters, self._opaques, exact)
        while self._cores and self._cores[0]() is None:
            self._cores.popleft()
        self._cores.append(weakref.ref(core))
        oldest = next(found.number for ref in self._cores if (found := ref()) is not None)
        self._counters.settle(oldest)
        self._latest = Matching(core)
        return self._latest

    def _replan(self, held: Held) -> bool:
        """Choose scan or index for a segment; whether that is a change."""
        before = held.scan
        if self.forced != "auto":
            held.scan = self.forced == "scan"
            return held.scan != before
        events, candidates, hits = (int(n) for n in held.segment.stats - held.since)
        if events < MEASURED << held.changes:  # a plan that went back and forth is given more time
            return False
        crowded = CROWDED if held.segment.predicates.nbytes < LARGE else CROWDED_LARGE
        limit = crowded * events * held.segment.count
        held.scan = hits > limit / 2 if before else candidates > limit
        held.since = held.segment.stats.copy()
        held.changes += held.scan != before
        return held.scan != before

    def _settle(self) -> None:
        """Put what is new into segments, and build those anew that have lost many entries."""
        sources = [*self._bulk, *([from_entries(list(self._pending.values()))] if self._pending else [])]
        self._bulk, self._pending = [], {}
        total = sum(source.count for source in sources)
        kept: list[Held] = []
        for held in sorted(self._held, key=lambda held: held.segment.count):
            alive = held.segment.count - held.removed
            if not alive:
                continue
            if sources and held.segment.count <= _room(total):
                sources.append(held.source())
                total += alive
            elif held.removed > DEAD * held.segment.count:
                kept.append(Held(Segment(held.source())))
            else:
                kept.append(held)
        if sources:
            kept.append(Held(Segment(merged(sources))))
        self._held = sorted(kept, key=lambda held: -held.segment.count)


def _room(count: int) -> int:
    """How large the segment that this many entries belong in may grow."""
    room = FIRST
    while room < count:
        room *= GROWTH
    return room


def _keys(attributes: list[Attribute], which: Any, values: Any) -> Any:
    """Numbers as 64-bit keys that sort as they do."""
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError("expected ranges of numbers, found a NaN")
    made = np.empty(len(which), np.int64)
    if values.dtype.kind not in "iuf":
        raise ValueError(f"expected ranges of numbers, found {values.dtype}")
    converts = np.array([attribute.convert for attribute in attributes])[which]
    for convert in np.unique(converts):
        mine = converts == convert
        these = values[mine]
        if convert == w.FLOAT:
            bits = (these.astype(np.float64) + 0.0).view(np.int64)
            made[mine] = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
            continue
        least, most = (0, 2**64) if convert == w.UNSIGNED else (-(2**63), 2**63)
        if len(these) and (these.min() < least or these.max() >= most or (np.floor(these) != these).any()):
            raise ValueError("ranges of an integer field: expected whole numbers within its range")
        if convert == w.UNSIGNED:
            made[mine] = (these.astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
        else:
            made[mine] = these.astype(np.int64)
    return made


__all__ = ["Choice", "Matcher", "SegmentPlan"]
