"""A matching: which entries an event satisfies, at one moment. It never changes; any thread may use it."""

from __future__ import annotations

from typing import Any

from headwater.ir.interp import Fault
from headwater.late import np
from headwater.match import layout as w
from headwater.match.counters import KINDS, Counters, Ledger
from headwater.match.kernels.library import judge_of, record_function
from headwater.match.opaque import Opaque, Opaques
from headwater.match.rows import Rows, Spans, refs_of
from headwater.match.segment import Segment
from headwater.match.source import Source, merged
from headwater.native.program import Native
from headwater.types import EventType

_EMPTY: tuple[()] = ()
FEW = 4096  # entries, put into one segment in some ten milliseconds


class Held:
    """A segment with those of its entries that are removed, and how it is searched."""

    def __init__(self, segment: Segment) -> None:
        self.segment, self.scan, self.removed = segment, False, 0
        self.dead: Any = None  # bits by position
        self.since, self.changes = np.zeros(w.T_WORDS, np.uint64), 0  # of the plan
        self._shared = False

    def share(self) -> Held:
        """As it is now, for a matching."""
        made = Held(self.segment)
        made.scan, made.removed, made.dead = self.scan, self.removed, self.dead
        self._shared = True
        return made

    def kill(self, at: int) -> None:
        if self.dead is None:
            self.dead = np.zeros(-(-self.segment.count // 8), np.uint8)
        elif self._shared:
            self.dead = self.dead.copy()
        self._shared = False
        self.dead[at >> 3] |= 1 << (at & 7)
        self.removed += 1

    def is_dead(self, at: int) -> bool:
        return self.dead is not None and bool(self.dead[at >> 3] >> (at & 7) & 1)

    def mask(self) -> Any:
        if self.dead is None:
            return None
        return np.unpackbits(self.dead, count=self.segment.count, bitorder="little").astype(bool)

    def source(self) -> Source:
        return self.segment.source(self.mask())

    def count_faults(
        self, opaque: Opaque, faults: dict[Fault, int], counters: Counters, totals: Any, ledger: Ledger | None
    ) -> None:
        """Faults of a batch, for every entry that is this native code."""
        for at in self.segment.users(opaque):
            if not self.is_dead(at):
                counters.add(int(self.segment.slots[at]), faults, totals, ledger)


def new_totals() -> Any:
    """Undecided events of all entries together, then faults by kind (`KINDS`)."""
    return np.zeros(1 + len(KINDS), np.uint64)


def _check_totals(totals: Any) -> None:
    """Kernels write there."""
    right = isinstance(totals, np.ndarray) and totals.dtype == np.uint64 and totals.shape == (1 + len(KINDS),)
    if not (right and totals.flags.c_contiguous and totals.flags.writeable):
        raise ValueError(f"totals: expected what new_totals() gives, found {totals!r}")


class Core:
    """All that the kernels are led to, as one whole that lives as long as any of them may run."""

    def __init__(
        self, type: EventType, number: int, held: list[Held], counters: Counters, opaques: Opaques, exact: bool
    ) -> None:
        self.type, self.number, self.held, self.counters, self.exact = type, number, held, counters, exact
        self.opaques: list[Opaque] = []
        self.table = np.zeros(opaques.room + 1, np.uint64)
        for segment in (each.segment for each in held):
            for attribute in segment.attributes:
                if attribute.opaque is not None:
                    self.opaques.append(attribute.opaque)
                    self.table[attribute.opaque.number] = attribute.opaque.address
        self.refs = refs_of(held)
        self._nowhere = np.zeros(1, np.uint64)
        self.totals = new_totals()  # where nobody asks for them
        self._weights = counters.table
        self.control = self._control(counting=True, totals=self.totals, table=self._weights)
        self.silent = self._control(counting=False, totals=self.totals, table=self._weights)

    def counting_in(self, totals: Any, ledger: Ledger | None) -> tuple[bytes, Any]:
        """The control block that counts in these totals as well, and in this ledger; and what it needs to be kept.

        Where undecided is not told apart from rejected anyway, all count in one place."""
        table = self._weights if ledger is None or not self.exact else ledger.table()
        return self._control(counting=True, totals=totals, table=table), (self, totals, ledger, table)

    def ledger_of(self, ledger: Ledger | None) -> Ledger | None:
        """Where batches count: see `counting_in`."""
        return ledger if self.exact else None

    def _control(self, *, counting: bool, totals: Any, table: Any) -> bytes:
        header = self.type.layout.header
        words = np.zeros(w.C_WORDS, np.uint64)
        words[w.C_FIXED] = self.type.layout.size
        words[w.C_MAGIC] = int.from_bytes(header[:4], "little")
        words[w.C_FINGERPRINT] = int.from_bytes(header[4:], "little")
        words[w.C_SEGMENTS], words[w.C_SEGREFS] = len(self.held), self.refs.ctypes.data
        words[w.C_OPAQUES], words[w.C_OPAQUE_COUNT] = self.table.ctypes.data, len(self.table)
        words[w.C_COUNTERS], words[w.C_WEIGHTS] = table.ctypes.data, self._weights.ctypes.data
        words[w.C_ATTRS] = max((len(each.segment.attributes) for each in self.held), default=0)
        words[w.C_COUNTING], words[w.C_EMPTY], words[w.C_EXACT] = counting, id(_EMPTY), self.exact
        words[w.C_UNSPLIT] = (self._nowhere if self.exact else self.counters.unsplit).ctypes.data
        words[w.C_TOTALS] = totals.ctypes.data
        return words.tobytes()


class Matching:
    """The entries of a matcher as they were when it was made.

    `match(record)` returns the payloads of the entries that the record satisfies, in no particular order: a new list,
    or an empty tuple. It counts what is undecided and what faults. `probe(record)` gives the same answer and counts
    nothing. Both are builtin functions; anything that holds bytes will do for a record.
    """

    __slots__ = ("__weakref__", "_core", "_rows", "match", "probe")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.match: Any = record_function(core.control, core)
        self.probe: Any = record_function(core.silent, core)
        self._rows: Rows | None = None

    def __len__(self) -> int:
        return sum(held.segment.count - held.removed for held in self._core.held)

    @property
    def exact(self) -> bool:
        """Whether every undecided event is counted as such."""
        return self._core.exact

    @property
    def native(self) -> list[Native]:
        """The native code that entries share; each answers at most once for an event."""
        return [opaque.native for opaque in dict.fromkeys(self._core.opaques)]

    def counting_in(self, totals: Any, ledger: Ledger | None = None) -> Any:
        """A `match` that counts in these totals (`new_totals`) as well: undecided events, then faults by kind, of all
        entries together, each with its weight. With a `ledger` (`Matcher.ledger`) it counts for entries there."""
        _check_totals(totals)
        return record_function(*self._core.counting_in(totals, ledger))

    def judge_in(self, totals: Any, ledger: Ledger | None = None) -> tuple[bytes, Any]:
        """The same for machine code that has to know only whether anybody wants a record (`kernel.judge_of`), and what
        is to be kept as long as it may ask."""
        _check_totals(totals)
        control, kept = self._core.counting_in(totals, ledger)
        return judge_of(control), kept

    def settle(self) -> bool:
        """Let machine code answer where it has become ready, also for native code that nobody has asked since: whether
        it is now everywhere."""
        return all(opaque.settle() for opaque in self._core.opaques)

    def _for_rows(self) -> list[Held]:
        """A batch pays for each segment it visits: few entries are put into one, once for all batches to come."""
        held = self._core.held
        alive = sum(each.segment.count - each.removed for each in held)
        if len(held) < 2 or alive > FEW:
            return held
        made = Held(Segment(merged([each.source() for each in held if each.segment.count > each.removed])))
        made.scan = all(each.scan for each in held)
        return [made]

    def batch(self, batch: Any) -> list[tuple[object, Any]]:
        """For each entry that a row of a RecordBatch satisfies, its payload and the rows, ascending. Counts."""
        rows, spans = self.spans(batch)
        return [(payload, rows[start:end]) for payload, start, end in spans]

    def spans(self, batch: Any, totals: Any = None, ledger: Ledger | None = None) -> Spans:
        """The same, as one array of rows and the stretch of it that each payload wants; counts in `totals` as well, and
        for entries in `ledger`."""
        if totals is not None:
            _check_totals(totals)
        if self._rows is None:
            self._rows = Rows(self._core, self._for_rows())
        return self._rows.match(batch, self._core.totals if totals is None else totals, self._core.ledger_of(ledger))
