"""All subscriptions on one batch of events: who wants which, and the sums of that.

Filters without state are matched together, in one pass (`headwater.match`). Where the fields that they read have few
different values, the events of a batch fall into few *classes* of equal values: then classes are matched instead of
events, each with the number of its events and bytes in each cell. That is exact, because such an interest sees
nothing of an event but these fields. What is undecided or faults is counted as the service counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.interest import Interest
from headwater.ir.cost import Limits
from headwater.ir.inputs import fields_read, narrowed
from headwater.ir.nodes import Program
from headwater.ir.package import Package
from headwater.ir.rebind import rebind
from headwater.late import np, pa
from headwater.match import Matcher
from headwater.match.counters import KINDS
from headwater.match.matching import new_totals
from headwater.native.batch import BatchProgram, batch_code
from headwater.native.record import is_long, uses_meta
from headwater.spark.backtest.sizes import heap_fields, record_sizes
from headwater.spark.backtest.subscriptions import Wanted
from headwater.spark.backtest.tally import Items
from headwater.types.arrow import arrow_schema, record_from_schema
from headwater.types.event_type import event_type
from headwater.types.layout import Layout
from headwater.types.model import Record

NEVER_SPLIT = 1 << 40  # entries: undecided is always told apart from rejected


class _One(msgspec.Struct, array_like=True, frozen=True):
    sink: int  # number of the sink's node
    package: Package | None


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    schema: bytes
    sinks: list[str]
    wanted: list[_One]
    fields: list[str]
    relaxed: list[str]


_WIRE = msgpack_decoder(_Wire)


def pack(wanted: Sequence[Wanted], record: Record, *, lacking: Iterable[str] = ()) -> bytes:
    """What travels to the workers: the event type, and each interest in its serial form over the fields that any of
    them reads. `lacking` are required fields that some events do not have after all."""
    programs = [each.interest.program for each in wanted if each.interest is not None]
    read = {name for program in programs for name in fields_read(program)}
    relaxed = sorted(read.intersection(lacking))
    narrow = narrowed(record, read, relaxed)
    sinks = list(dict.fromkeys(each.at for each in wanted))
    made = []
    for each in wanted:
        at, interest = sinks.index(each.at), each.interest
        if interest is None:
            made.append(_One(at, None))
            continue
        program = replace(interest.program, input=narrowed(record, read))
        if relaxed:
            program = rebind(program, narrow)
        made.append(_One(at, Package.of(program, interest.params, interest.limits.fuel)))
    schema = arrow_schema(record).serialize().to_pybytes()
    fields = [field.name for field in record.fields if field.name in read]
    return msgspec.msgpack.encode(_Wire(schema, sinks, made, fields, relaxed))


@dataclass(frozen=True, slots=True)
class Entry:
    """A subscription in the workers."""

    number: int
    sink: int
    interest: Interest | None

    @property
    def program(self) -> Program:
        """As it is run: state, or meta, that changes nothing is not in it."""
        assert self.interest is not None
        return self.interest.executed.program

    @property
    def meta(self) -> bool:
        return self.interest is not None and uses_meta(self.program)

    def runner(self) -> BatchProgram:
        """Native code with parameters and, where it has some, the state for one source."""
        assert self.interest is not None
        it = self.interest
        return BatchProgram(batch_code(it.executed), params=it.params, fuel=it.limits.fuel)


class Judge:
    """The subscriptions, ready to run on batches of one event type."""

    def __init__(self, package: bytes) -> None:
        wire = _WIRE.decode(package)
        self.record = record_from_schema(pa.ipc.read_schema(pa.py_buffer(wire.schema)))
        self.layout = Layout.of(self.record)
        self.read = tuple(wire.fields)
        self.narrow = narrowed(self.record, wire.fields, wire.relaxed)
        self.sinks = wire.sinks
        self.entries = [Entry(number, one.sink, _interest(one)) for number, one in enumerate(wire.wanted)]
        self.items = Items(len(self.entries), len(self.sinks))
        self.columns = tuple(dict.fromkeys((*self.read, *heap_fields(self.record))))  # all that is looked at

        self.type = event_type(self.narrow)
        trial = Matcher(self.type)
        known = [entry for entry in self.entries if entry.interest is not None]
        self.always = [entry for entry in self.entries if entry.interest is None]
        self.matched = [entry for entry in known if entry.interest is not None and trial.takes(entry.interest)]
        self.alone = [entry for entry in known if entry not in self.matched]
        self.stateful = [entry for entry in self.alone if entry.program.stateful]
        # Whether all of them see nothing but the fields of an event, so that equal events are judged alike.
        self.by_value = not any(entry.program.stateful or entry.meta for entry in self.alone)
        self.needs_source = bool(self.stateful) or any(entry.meta for entry in self.alone)
        self.rows = Matching(self.type, self.matched)
        self.classes = Matching(self.type, self.matched)
        self.twins = _twins(self.alone)
        self.streams = {entry.sink for entry in self.alone}  # nodes that multicast does not serve
        self.programs = {entry.number: entry.runner() for entry in self.alone if not entry.program.stateful}

    def sizes(self, columns: Mapping[str, Any], rows: int) -> Any:
        return record_sizes(self.layout, columns, rows)


def _interest(one: _One) -> Interest | None:
    it = one.package
    return None if it is None else Interest.loads(it.program, it.params, limits=_limits(it.fuel))


def crosses_alone(interest: Interest | None) -> bool:
    """Whether what it passes is not merged with what other interests of the node pass: it runs at the source only, and
    its results are marked as its own."""
    if interest is None:
        return False
    program = interest.executed.program
    return program.stateful or program.output is not None or uses_meta(program) or is_long(program)


def _twins(entries: Sequence[Entry]) -> set[int]:
    """Those that give the same as an earlier one of the same node: its results cross once for both. Not with state:
    each has its own, from when it was subscribed."""
    made: set[int] = set()
    seen: list[Entry] = []
    for entry in entries:
        it = entry.interest
        assert it is not None
        if it.program.stateful:
            continue
        for other in seen:
            assert other.interest is not None
            same = other.interest.fingerprint == it.fingerprint and other.interest.params == it.params
            if same and other.sink == entry.sink:
                made.add(entry.number)
                break
        else:
            seen.append(entry)
    return made


def _limits(fuel: int) -> Limits:
    """Nothing is refused here: that was done on the driver, where the interest was made."""
    most = 1 << 62
    return Limits(max_worst=most, fuel=fuel, memory=most)


class Matching:
    """Filters without state, matched together; counts grow."""

    def __init__(self, type: Any, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.matcher = Matcher(type, exact_undecided=NEVER_SPLIT)
        self.keys = self.matcher.add_many(
            [(at, entry.interest) for at, entry in enumerate(entries) if entry.interest is not None]
        )
        self.now = self.matcher.snapshot()
        self.totals = new_totals()
        self.known = self.counts()  # when they were last asked for

    def match(self, batch: Any) -> tuple[Any, Any, Any, bool]:
        """The rows that entries want, one entry's after another's; where each entry's begin, with the end of all;
        which entries these are; and whether anything was undecided or faulted."""
        if not self.entries:
            return np.zeros(0, np.intp), np.zeros(1, np.intp), np.zeros(0, np.intp), False
        before = self.totals.copy()
        rows, spans = self.now.spans(batch, self.totals)
        found = list(spans)
        entries = np.array([self.entries[at].number for at, _, _ in found], np.intp)
        bounds = np.array([0, *(end for _, _, end in found)], np.intp)
        return np.asarray(rows, np.intp), bounds, entries, bool((self.totals != before).any())

    def counts(self) -> tuple[Any, Any]:
        """Undecided events, and events by fault, of each entry so far."""
        undecided = np.zeros(len(self.entries), np.int64)
        faults = np.zeros((len(self.entries), len(KINDS)), np.int64)
        for at, key in enumerate(self.keys):
            undecided[at], found = self.matcher.counts(key)
            faults[at] = fault_row(found)
        return undecided, faults


def fault_row(found: Mapping[Any, int]) -> list[int]:
    """Faults as a row of counts, one for each kind."""
    return [found.get(kind, 0) for kind in KINDS]


__all__ = ["Entry", "Judge", "Matching", "crosses_alone", "fault_row", "pack"]
