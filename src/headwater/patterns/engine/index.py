"""Conditions that compare one value of an event with one of the event taken just before: found by order of values.

`b.level > a.level + 1` where `a` comes right before `b`: the runs that wait for `b` are a tree ordered by the value of
`a`, and what fits is one side of a cut (`dag.py`). Values are words that are ordered as they are: numbers as they are,
doubles by their bits turned so, texts (for equality) by a number that was given to each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.ir.nodes import Binary, Compare, Const, Expr, Load, Path, Return
from headwater.late import np, pc
from headwater.patterns import model
from headwater.patterns.automaton import NOWHERE, Automaton, State
from headwater.patterns.engine import trees
from headwater.patterns.engine.keys import words_of
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, TIMESTAMP, Enum, Record, Type, promote

CROWDED = 1 << 16  # texts; beyond so many, those that nothing holds are let go
_COMPARES = {"lt": trees.LESS, "le": trees.AT_MOST, "eq": trees.EQUAL, "ge": trees.AT_LEAST, "gt": trees.GREATER}
_TURNED = {"lt": "gt", "le": "ge", "eq": "eq", "ge": "le", "gt": "lt"}
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Column:
    """A field of an event, and what is added to it."""

    name: str
    type: Type
    plus: int | float = 0


@dataclass
class Index:
    """`comparisons` are by the element that comes second: how the value before compares with its own, and where both
    are among a row's values. `labels` are elements whose values are texts."""

    columns: list[Column] = field(default_factory=list)
    comparisons: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    texts: dict[Any, int] = field(default_factory=dict)
    labels: set[int] = field(default_factory=set)

    def column(self, wanted: Column) -> int:
        if wanted not in self.columns:
            self.columns.append(wanted)
        return 2 * self.columns.index(wanted)

    # ── values of rows ──

    def of(self, record: Record) -> list[tuple[int, Column]]:
        """The columns that events of a type have."""
        found = []
        for at, column in enumerate(self.columns):
            there = record.by_name.get(column.name)
            if there is not None and promote(there.type) == column.type:
                found.append((2 * at, column))
        return found

    def reads(self, record: Record) -> list[tuple[Expr | None, bool]]:
        """The values of a row as expressions over an event of a type, in order; they are compared by order."""
        found: list[tuple[Expr | None, bool]] = [(None, True)] * len(self.columns)
        for at, column in self.of(record):
            value: Expr = Load(Path((column.name,)), record.by_name[column.name].type, column.type)
            if column.plus:
                value = Binary("add", value, Const(column.plus, column.type), column.type)
            found[at // 2] = value, True
        return found

    def number(self, text: Any) -> int:
        found = self.texts.get(text)
        if found is None:
            found = self.texts[text] = len(self.texts)
        return found

    def row(self, record: Record, raw: Mapping[str, Any], meta: Any) -> list[int]:
        """The values of a row, each with its presence."""
        out = [0] * (2 * len(self.columns))
        for at, column in self.of(record):
            value = raw[column.name]
            if value is None:
                continue
            if column.type in (TEXT, BYTES):
                word = self.number(value)
            elif column.type == F64:
                word = int(ordered(np.array([value + column.plus]))[0])
                if value + column.plus != value + column.plus:
                    continue
            else:
                word = int(value) + int(column.plus)
                if not _LEAST <= word <= _MOST:
                    continue
            out[at], out[at + 1] = word, 1
        return out

    def rows(self, record: Record, batch: Any, metas: Mapping[str, Any]) -> Any:
        out = np.zeros((batch.num_rows, 2 * len(self.columns)), np.int64)
        for at, column in self.of(record):
            values = batch.column(column.name)
            there = values.is_valid().to_numpy(zero_copy_only=False).copy()
            words, good = self.words(values.drop_null(), column)
            there[there] = good
            out[there, at], out[there, at + 1] = words[good], 1
        return out

    def words(self, values: Any, column: Column) -> tuple[Any, Any]:
        """And which of them are any."""
        if column.type in (TEXT, BYTES):
            encoded = pc.dictionary_encode(values)
            numbers = np.array([self.number(value) for value in encoded.dictionary.to_pylist()] or [0], np.int64)
            words = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
            return words, np.ones(len(words), bool)
        if column.type == F64:
            floats = words_of(values, F64, zero=False).view(np.float64) + column.plus
            return ordered(floats), floats == floats
        words, plus = words_of(values, column.type), int(column.plus)
        total = words + np.int64(plus)
        good = total >= words if plus >= 0 else total < words
        return total, good

    # ── texts ──

    @property
    def crowded(self) -> bool:
        return len(self.texts) > CROWDED

    def trim(self, labels: Any, values: Any, waiting: Any) -> None:
        """Let go of texts that neither nodes nor rows that wait have; new numbers are in the order of the old."""
        columns = [2 * at for at, column in enumerate(self.columns) if column.type in (TEXT, BYTES)]
        if not columns:
            return
        mine = np.isin(labels, sorted(self.labels))
        kept = np.unique(np.concatenate([values[mine], *(row[columns] for row in waiting)]))
        texts = list(self.texts)
        self.texts = {texts[number]: at for at, number in enumerate(kept.tolist()) if 0 <= number < len(texts)}
        values[mine] = np.searchsorted(kept, values[mine])
        for row in waiting:
            row[columns] = np.searchsorted(kept, row[columns])

    def renumber(self, words: Any, places: list[int], waiting: Any) -> None:
        """Let go of texts that are neither in these columns of words nor in rows that wait; all get new numbers."""
        columns = [2 * at for at, column in enumerate(self.columns) if column.type in (TEXT, BYTES)]
        if not columns:
            return
        kept = np.unique(np.concatenate([words[:, places].reshape(-1), *(row[columns] for row in waiting)]))
        texts = list(self.texts)
        self.texts = {texts[number]: at for at, number in enumerate(kept.tolist()) if 0 <= number < len(texts)}
        words[:, places] = np.searchsorted(kept, words[:, places])
        for row in waiting:
            row[columns] = np.searchsorted(kept, row[columns])


def ordered(floats: Any) -> Any:
    """Doubles as words with their order; -0.0 is 0.0."""
    words = (floats + 0.0).view(np.int64)
    return words ^ ((words >> 63) & _MOST)


# ── which patterns ──


def compared(pattern: model.Pattern) -> list[model.Variable]:
    """The variables whose values are compared: bound by several events, and no part of the key."""
    return [
        variable
        for variable in pattern.variables
        if not variable.key
        and (len(variable.fields) > 1 or any(pattern.elements[at].multiple for at, _ in variable.fields))
    ]


def index_of(pattern: model.Pattern, automaton: Automaton) -> Index | None:
    """None where conditions between elements are others, or more, than an order of values finds."""
    found = Index()
    if not pattern.conditions and not compared(pattern):
        return found
    pairs: dict[int, tuple[str, int, Column, Column]] = {}  # by second element: how the first's value compares
    wanted = [_of_condition(pattern, condition) for condition in pattern.conditions]
    wanted += [_of_variable(pattern, automaton, variable) for variable in compared(pattern)]
    for each in wanted:
        if each is None or each[0] in pairs:
            return None
        pairs[each[0]] = each[1:]
    if not _adjacent(automaton, {second: pair[1] for second, pair in pairs.items()}):
        return None
    for second, (op, first, before, now) in pairs.items():
        found.comparisons[second] = _COMPARES[op], found.column(before), found.column(now)
        if before.type in (TEXT, BYTES):
            found.labels.add(first)
    return found


def _of_condition(pattern: model.Pattern, condition: model.Condition) -> tuple[int, str, int, Column, Column] | None:
    """A condition that compares one value of its element with one of an element before it, as (element, comparison,
    the other, its column, the own column), the other's value on the left; None for any other."""
    program = condition.interest.executed.program
    body = program.body
    if len(condition.elements) != 1 or len(body) != 1 or not isinstance(body[0], Return):
        return None
    test = body[0].value
    if not isinstance(test, Compare) or test.op not in _COMPARES:
        return None
    views = {view.member: view for view in condition.views}
    a, b = _side(pattern, views, test.a), _side(pattern, views, test.b)
    second = condition.elements[0]
    if a is None or b is None:
        return None
    (one, left), (other, right) = a, b
    if one == other or second not in (one, other) or left.type != right.type:
        return None
    if left.type not in (I64, F64, TIMESTAMP) and test.op != "eq":
        return None
    if one == second:
        return second, _TURNED[test.op], other, right, left
    return second, test.op, one, left, right


def equalities(pattern: model.Pattern) -> list[tuple[int, int, Column, Column]] | None:
    """The conditions between elements, where all say that two values are equal: the element that is asked, the other
    one, its column, the own one."""
    found = []
    for condition in pattern.conditions:
        it = _of_condition(pattern, condition)
        if it is None or it[1] != "eq":
            return None
        second, _, first, before, now = it
        found.append((second, first, before, now))
    return found


def _side(pattern: model.Pattern, views: dict[str, model.View], e: Expr) -> tuple[int, Column] | None:
    """An element, and a field of its latest event with something added."""
    match e:
        case Binary(op="add", a=a, b=Const(value=int() | float() as plus), type=type) if type in (I64, F64):
            found = _side(pattern, views, a)
            fits = found is not None and found[1].plus == 0 and found[1].type == type
            return (found[0], Column(found[1].name, type, plus)) if found is not None and fits else None
        case Binary(op="sub", a=a, b=Const(value=int() | float() as plus), type=type) if type in (I64, F64):
            found = _side(pattern, views, a)
            fits = found is not None and found[1].plus == 0 and found[1].type == type and plus != _LEAST
            return (found[0], Column(found[1].name, type, -plus)) if found is not None and fits else None
        case Load(path=path, type=type) if len(path.steps) == 2:
            member, name = path.steps
            view = views.get(member) if isinstance(member, str) else None
            if view is None or view.kind != "latest" or not isinstance(name, str):
                return None
            elements = [at for at, element in enumerate(pattern.elements) if element.name == view.name]
            if len(elements) != 1 or not (type in (I64, F64, TIMESTAMP, TEXT, BYTES, BOOL) or isinstance(type, Enum)):
                return None
            return elements[0], Column(name, type)
    return None


def _of_variable(
    pattern: model.Pattern, automaton: Automaton, variable: model.Variable
) -> tuple[int, str, int, Column, Column] | None:
    """Equality of two elements' fields, the earlier one first."""
    if len(variable.fields) != 2 or any(pattern.elements[at].multiple for at, _ in variable.fields):
        return None
    columns = [
        (at, Column(name, promote(pattern.elements[at].type.record.by_name[name].type))) for at, name in variable.fields
    ]
    if any(automaton.first >> at & 1 for at, _ in columns[1:]) and not automaton.first >> columns[0][0] & 1:
        columns.reverse()
    (first, before), (second, now) = columns
    if before.type != now.type or str(before.type) == "u64":
        return None
    return second, "eq", first, before, now


def _adjacent(automaton: Automaton, pairs: Mapping[int, int]) -> bool:
    """Whether states are such that a tree by value will do: each second element is the only one with which its state
    goes on, all runs there have just taken the first, and no row is passed over or not because of what was taken."""
    states = automaton.states
    assert states is not None
    bound = sum(1 << second for second in pairs)
    if automaton.absent & bound or automaton.first & bound:
        return False
    arrivals: dict[int, set[int]] = {}
    for state in states:
        for entry in state.entries:
            arrivals.setdefault(entry.target, set()).add(entry.element)
    moved = {target for state in states for target in state.skips if target != state.number}
    for state in states[1:]:
        if any(killer & bound for killer in state.killers):
            return False
        seconds = [entry.element for entry in state.entries if entry.element in pairs]
        if seconds and (state.number in moved or not _orderly(state, pairs[seconds[0]], arrivals)):
            return False
    return True


def _orderly(state: State, first: int, arrivals: Mapping[int, set[int]]) -> bool:
    if len(state.entries) != 1 or arrivals.get(state.number, set()) != {first}:
        return False
    return set(state.skips) <= {state.number, NOWHERE}


__all__ = ["Column", "Index", "compared", "equalities", "index_of"]
