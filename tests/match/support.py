"""What the matching tests share: a matcher beside the plain way, every interest by itself in the interpreter."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from headwater.interest import Interest
from headwater.ir.interp import Fault, Status
from headwater.ir.nodes import (
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Path,
    Program,
    Return,
    Unary,
)
from headwater.match import Matcher
from headwater.types import EventType
from headwater.types import model as m
from tests import strategies as s


class Beside:
    """A matcher, and what each of its entries ought to have counted."""

    def __init__(self, type: EventType, **options: Any) -> None:
        self.type, self.matcher = type, Matcher(type, **options)
        self.interests: dict[int, Interest] = {}
        self.undecided: Counter[int] = Counter()
        self.faults: dict[int, Counter[Fault]] = {}

    def add(self, interest: Interest) -> int:
        key = self.matcher.add(("payload", len(self.interests), interest), interest)
        assert key not in self.interests
        self.interests[key] = interest
        self.faults[key] = Counter()
        return key

    def remove(self, key: int) -> None:
        assert self.matcher.remove(key) == self.counted(key)
        del self.interests[key]

    def counted(self, key: int) -> tuple[int, dict[Fault, int]]:
        return self.undecided[key], dict(self.faults[key])

    def expect(self, raw: dict[str, Any]) -> set[int]:
        """The keys that pass; counts the rest."""
        passed = set()
        for key, interest in self.interests.items():
            outcome = interest.interpret(raw)
            if outcome.status is Status.PASSED:
                passed.add(key)
            self.undecided[key] += outcome.status is Status.UNDECIDED
            self.faults[key].update(kind for kind in Fault if kind and kind in outcome.faults)
        return passed

    def keys_of(self, payloads: Any) -> set[int]:
        by_interest = {id(interest): key for key, interest in self.interests.items()}
        keys = [by_interest[id(payload[2])] for payload in payloads]
        assert len(set(keys)) == len(keys), "an entry was found twice"
        return set(keys)

    def check(self, raws: list[dict[str, Any]], *, batch: bool = True) -> None:
        """Records one by one, then all as a batch: the same answers and the same counts."""
        matching = self.matcher.snapshot()
        wanted = []
        for raw in raws:
            record = self.type.encode(raw)
            assert self.keys_of(matching.probe(record)) == self.keys_of(matching.match(record)) == self.expect(raw)
            wanted.append(self.keys_of(matching.probe(record)))
        self.check_counts()
        if not batch:
            return
        found: list[set[int]] = [set() for _ in raws]
        for payload, rows in matching.batch(self.type.to_arrow(raws)):
            (key,) = self.keys_of([payload])
            assert list(rows) == sorted(set(rows.tolist()))
            for row in rows.tolist():
                found[row].add(key)
        for raw in raws:
            self.expect(raw)
        assert found == wanted
        self.check_counts()

    def check_counts(self) -> None:
        for key in self.interests:
            assert self.matcher.counts(key) == self.counted(key), str(self.interests[key])


def interest_of(program: Program, params: dict[str, Any] | None = None) -> Interest:
    return Interest.from_program(program, params)


def paths(record: m.Record) -> list[tuple[tuple[str, ...], m.Type]]:
    """Every field that is found by names alone, with its type."""
    found = []
    for field in record.fields:
        found.append(((field.name,), field.type))
        if isinstance(field.type, m.Record):
            found += [((field.name, *steps), type) for steps, type in paths(field.type)]
    return found


def value_at(raw: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        raw = None if raw is None else raw[step]
    return raw


@st.composite
def conditions(draw: st.DrawFn, record: m.Record, events: list[dict[str, Any]]) -> Expr:
    """One comparison of a field, mostly with a value that some event has."""
    steps, stored = draw(st.sampled_from(paths(record)))
    type = m.promote(stored)
    load = Load(Path(steps), stored, type)
    if isinstance(stored, m.Array | m.List | m.Record) or draw(st.integers(0, 9)) == 0:
        made: Expr = IsMissing(load)
        return Unary("not", made, m.BOOL) if draw(st.booleans()) else made
    if stored == m.BOOL:
        return Unary("not", load, m.BOOL) if draw(st.booleans()) else load
    seen = [v for raw in events if (v := value_at(raw, steps)) is not None]

    def constant(of: m.Type) -> Const:
        values = [v for v in seen if of == type]
        if values and draw(st.integers(0, 3)):
            return Const(draw(st.sampled_from(values)), of)
        return Const(draw(s.raw_values(of)), of)

    ordered = not isinstance(stored, m.Enum)
    choice = draw(st.integers(0, 9))
    if choice < 2:
        values = {c.value: c for c in (constant(type) for _ in range(draw(st.integers(1, 3)))) if c.value == c.value}
        made = InSet(load, tuple(values.values())) if values else IsMissing(load)
    elif choice == 2 and type == m.TEXT:
        made = Call("starts_with", (load, constant(type)), m.BOOL)
    elif choice == 2 and type in (m.I64, m.U64):
        made = Compare(draw(_ops(True)), Cast(load, m.F64, m.F64), constant(m.F64))
    elif choice == 3 and type in (m.I64, m.U64):
        made = Compare(draw(_ops(True)), load, constant(m.U64 if type == m.I64 else m.I64))
    else:
        made = Compare(draw(_ops(ordered)), load, constant(type))
    return Unary("not", made, m.BOOL) if draw(st.integers(0, 4)) == 0 else made


def _ops(ordered: bool) -> st.SearchStrategy[Any]:
    return st.sampled_from(("eq", "eq", "ne", "lt", "le", "gt", "ge") if ordered else ("eq", "ne"))


@st.composite
def conjunctions(draw: st.DrawFn, record: m.Record, events: list[dict[str, Any]]) -> Program:
    terms = draw(st.lists(conditions(record, events), min_size=1, max_size=4))
    return conjunction(record, terms)


def conjunction(record: m.Record, terms: list[Expr]) -> Program:
    body = Return(Logic("and", tuple(terms)) if len(terms) > 1 else terms[0])
    return Program(record, None, (), (), (body,))
