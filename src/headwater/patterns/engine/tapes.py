"""Conditions between elements as tapes, and what runs have to remember for them: from the checked pattern to words.

What a tape cannot say (functions of text, `u64`, sets of parameters, programs of more than one expression) leaves the
pattern to the engine in plain Python; `Unsupported` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from headwater.ir.nodes import (
    META_TYPES,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Meta,
    Param,
    Path,
    Return,
    Unary,
)
from headwater.late import np, pc
from headwater.patterns import model
from headwater.patterns.engine import registers as r
from headwater.patterns.engine.index import compared
from headwater.patterns.engine.keys import words_of
from headwater.patterns.engine.partitioned import signed
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, TIMESTAMP, Enum, Record, Type, promote

_INTEGER = {"add": r.ADD, "sub": r.SUB, "mul": r.MUL}
_FLOAT = {"add": r.ADD_F, "sub": r.SUB_F, "mul": r.MUL_F, "div": r.DIV_F}
_COMPARED = {"eq": r.EQ, "ne": r.NE, "lt": r.LT, "le": r.LE, "gt": r.GT, "ge": r.GE}
_COMPARED_FLOATS = {"eq": r.EQ_F, "ne": r.NE_F, "lt": r.LT_F, "le": r.LE_F, "gt": r.GT_F, "ge": r.GE_F}
MAX_REGISTERS = 256  # words of a node
CROWDED = 1 << 16  # texts; beyond so many, those that nothing holds are let go


class Unsupported(Exception):
    """A condition needs something that tapes do not have."""


@dataclass
class Registers:
    """`columns` are what is read of a row: a field with its type, or what is known of it (`meta`). `texts` is set
    where a column is one of texts, which go by numbers."""

    columns: dict[tuple[str, str], Type] = field(default_factory=dict)
    program: list[int] = field(default_factory=list)
    size: int = 0
    stack: int = 0
    texts: dict[Any, int] = field(default_factory=dict)
    fixed: int = 0  # texts that are on tapes
    of_text: set[int] = field(default_factory=set)  # registers

    def column(self, name: str, type: Type, kind: str = "field") -> int:
        """Where a column's value is among those of a row."""
        key = (kind, f"{name}:{type}")
        if key not in self.columns:
            self.columns[key] = type
        return 2 * list(self.columns).index(key)

    @property
    def crowded(self) -> bool:
        return len(self.texts) > self.fixed + CROWDED

    def trim(self, regs: Any, waiting: Any) -> None:
        """Let go of texts that are neither on tapes, nor in these blocks, nor in the values of rows that wait; all get
        new numbers, in place."""
        blocks = sorted(self.of_text)
        columns = [2 * at for at, type in enumerate(self.columns.values()) if type in (TEXT, BYTES)]
        parts = [(regs, blocks), *((row.reshape(1, -1), columns) for row in waiting)]
        held = [np.arange(self.fixed), *(array[:, places].reshape(-1) for array, places in parts)]
        kept = np.unique(np.concatenate(held))
        texts = list(self.texts)
        self.texts = {texts[number]: at for at, number in enumerate(kept.tolist()) if number < len(texts)}
        for array, places in parts:
            array[:, places] = np.searchsorted(kept, array[:, places])

    def number(self, text: Any) -> int:
        found = self.texts.get(text)
        if found is None:
            found = self.texts[text] = len(self.texts)
        return found

    def word(self, value: Any, type: Type) -> int:
        if type in (TEXT, BYTES):
            return self.number(value)
        if promote(type) == F64:
            return int(np.array([float(value)]).view(np.int64)[0])
        return int(value)

    def of(self, record: Record) -> list[tuple[int, str, str, Type]]:
        """The columns that events of a type have: where, of which kind, by which name."""
        found = []
        for at, ((kind, key), type) in enumerate(self.columns.items()):
            name = key.partition(":")[0]
            if kind == "meta" or (name in record.by_name and promote(record.by_name[name].type) == type):
                found.append((2 * at, kind, name, type))
        return found

    def reads(self, record: Record) -> list[tuple[Expr | None, bool]]:
        """The values of a row as expressions over an event of a type, in order."""
        found: list[tuple[Expr | None, bool]] = [(None, False)] * len(self.columns)
        for at, kind, name, type in self.of(record):
            value: Expr
            if kind == "meta":
                value = Meta(cast(Any, name), META_TYPES[name])
            else:
                value = Load(Path((name,)), record.by_name[name].type, type)
            found[at // 2] = value, False
        return found

    def row(self, record: Record, raw: Mapping[str, Any], meta: Any) -> list[int]:
        """The values of a row, each with its presence."""
        out = [0] * (2 * len(self.columns))
        for at, kind, name, type in self.of(record):
            value = raw[name] if kind == "field" else getattr(meta, name)
            if value is not None:
                out[at], out[at + 1] = self.word(value, type), 1
        return out

    def rows(self, record: Record, batch: Any, metas: Mapping[str, Any]) -> Any:
        """The values of the rows of a batch. `metas` has lists."""
        out = np.zeros((batch.num_rows, 2 * len(self.columns)), np.int64)
        for at, kind, name, type in self.of(record):
            if kind == "meta":
                for row, value in enumerate(metas[name]):
                    if value is not None:
                        out[row, at], out[row, at + 1] = self.word(value, type), 1
                continue
            column = batch.column(name)
            there = column.is_valid().to_numpy(zero_copy_only=False)
            out[:, at + 1] = there
            out[there, at] = self.words(column.drop_null(), type)
        return out

    def words(self, column: Any, type: Type) -> Any:
        if type in (TEXT, BYTES):
            encoded = pc.dictionary_encode(column)
            numbers = np.array([self.number(value) for value in encoded.dictionary.to_pylist()] or [0], np.int64)
            return numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return words_of(column, type, zero=False)


def registers(pattern: model.Pattern) -> Registers:
    """Raises Unsupported."""
    return _Writer(pattern).run()


class _Writer:
    def __init__(self, pattern: model.Pattern) -> None:
        self.pattern = pattern
        self.out = Registers()
        self.places: dict[tuple[str, str, str], int] = {}
        self.updates: dict[int, dict[int, list[tuple[int, int, int, int]]]] = {}  # by element, by turn
        self.deepest = 0

    def run(self) -> Registers:
        """Lay out what runs remember, and write for each element what it is asked and what it changes; raises
        `Unsupported` where a condition needs more than words."""
        pattern, out = self.pattern, self.out
        conditions: dict[int, list[tuple[int, list[int]]]] = {}
        for condition in pattern.conditions:
            tape = self.condition(condition)
            taken = signed(sum(1 << at for at in condition.elements))
            for element in condition.elements:
                conditions.setdefault(element, []).append((taken, tape))
        variables: dict[int, list[tuple[int, int, int]]] = {}
        for variable in compared(pattern):
            register = self.register()
            for element, name in variable.fields:
                type = self.scalar(pattern.elements[element].type.record.by_name[name].type)
                column = out.column(name, type)
                variables.setdefault(element, []).append((register, column, int(type == F64)))
                self.update(element, 2, r.LATEST, register, column)
        if out.size > MAX_REGISTERS:
            raise Unsupported(f"runs would remember {out.size // 2} values each, more than {MAX_REGISTERS // 2}")
        words = out.program = [0] * (len(pattern.elements) * r.ELEMENT)
        for element in range(len(pattern.elements)):
            head = element * r.ELEMENT
            mine = conditions.get(element, [])
            tapes = []
            for _, tape in mine:
                tapes.append(len(words))
                words += tape
            words[head + r.CONDITIONS], words[head + r.CONDITION_COUNT] = len(words), len(mine)
            for (taken, tape), start in zip(mine, tapes, strict=True):
                words += [taken, start, len(tape) // 2]
            updates = [each for turn in sorted(self.updates.get(element, {})) for each in self.updates[element][turn]]
            words[head + r.UPDATES], words[head + r.UPDATE_COUNT] = len(words), len(updates)
            for each in updates:
                words += each
            bound = variables.get(element, [])
            words[head + r.VARIABLES], words[head + r.VARIABLE_COUNT] = len(words), len(bound)
            for binding in bound:
                words += binding
        out.stack = 2 * self.deepest + 4
        out.fixed = len(out.texts)
        return out

    def register(self) -> int:
        self.out.size += 2
        return self.out.size - 2

    def update(self, element: int, turn: int, kind: int, to: int, source: int = 0, other: int = 0) -> None:
        types = list(self.out.columns.values())
        read = kind in (r.LATEST, r.FIRST_OF) and types[source // 2] in (TEXT, BYTES)
        if read or (kind == r.COPY and source in self.out.of_text):
            self.out.of_text.add(to)
        turns = self.updates.setdefault(element, {}).setdefault(turn, [])
        if (kind, to, source, other) not in turns:
            turns.append((kind, to, source, other))

    def scalar(self, type: Type) -> Type:
        found = promote(type)
        if found in (I64, F64, BOOL, TEXT, BYTES, TIMESTAMP) or isinstance(found, Enum):
            return found
        raise Unsupported(f"a value of type {type} is no number, text or time")

    # ── registers ──

    def names(self, name: str) -> list[int]:
        found = [at for at, element in enumerate(self.pattern.elements) if element.name == name]
        return found + [at for subset in self.pattern.subsets if subset.name == name for at in subset.elements]

    def count(self, name: str) -> int:
        place = self.places.get((name, "count", ""))
        if place is None:
            place = self.places[name, "count", ""] = self.register()
            for element in self.names(name):
                self.update(element, 4, r.COUNT, place)
        return place

    def place(self, view: model.View, path: str) -> int:
        """The register of a view's field."""
        key = (view.name, view.kind, path)
        if key in self.places:
            return self.places[key]
        elements = self.names(view.name)
        if view.kind == "prev":
            latest = self.place(model.View(view.name, "latest"), path)
            found = self.places[key] = self.register()
            for element in elements:
                self.update(element, 1, r.COPY, found, latest)
            return found
        if view.kind == "first":
            counted = self.count(view.name)
        found = self.places[key] = self.register()
        if view.kind == "mean":
            self.register()  # how many, beside the total
        for element in elements:
            if view.kind == "meta":
                type: Type = TEXT if path in ("source", "node") else I64
                self.update(element, 2, r.LATEST, found, self.out.column(path, type, "meta"))
                continue
            record = self.pattern.elements[element].type.record
            if path not in record.by_name:
                raise Unsupported(f"{view.name}.{path} is a part of a field")
            type = self.scalar(record.by_name[path].type)
            column = self.out.column(path, type)
            real = type == F64
            match view.kind:
                case "latest":
                    self.update(element, 2, r.LATEST, found, column)
                case "first":
                    self.update(element, 3, r.FIRST_OF, found, column, counted)
                case "values":
                    self.update(element, 5, r.PRESENT, found, column)
                case "sum":
                    self.update(element, 5, r.SUM_FLOAT if real else r.SUM, found, column)
                case "min":
                    self.update(element, 5, r.MIN_FLOAT if real else r.MIN, found, column)
                case "max":
                    self.update(element, 5, r.MAX_FLOAT if real else r.MAX, found, column)
                case "mean":
                    self.update(element, 5, r.SUM_FLOAT if real else r.TOTAL, found, column)
                    self.update(element, 5, r.PRESENT, found + 2, column)
        return found

    # ── tapes ──

    def condition(self, condition: model.Condition) -> list[int]:
        program = condition.interest.executed.program
        body = program.body
        if len(body) != 1 or not isinstance(body[0], Return) or program.stateful:
            raise Unsupported("a condition is a program of more than one expression")
        views = {view.member: view for view in condition.views}
        tape: list[int] = []
        self.write(body[0].value, tape, views, condition.interest.params, 1)
        return tape

    def write(self, e: Expr, tape: list[int], views: dict[str, model.View], params: Any, depth: int) -> None:
        """Write an expression after what is on the tape, operands before operators; `depth` is how many values lie on
        the stack before it."""
        self.deepest = max(self.deepest, depth)
        if depth > r.STACK:
            raise Unsupported("a condition is nested too deeply")

        def write(inner: Expr, more: int = 0) -> None:
            self.write(inner, tape, views, params, depth + more)

        match e:
            case Const(value=constant, type=type):
                tape += [r.PUSH, signed(self.out.word(constant, self.scalar(type)) & ((1 << 64) - 1))]
            case Param(name=name, type=type):
                tape += [r.PUSH, signed(self.out.word(params[name], self.scalar(type)) & ((1 << 64) - 1))]
            case Load():
                self.load(e, tape, views)
            case IsMissing(a=Load(path=Path(steps=(str() as member,)))) if views[member].kind != "count":
                view = views[member]  # whether it has been taken at all, or twice
                least = 2 if view.kind == "prev" else 1 if view.kind in ("latest", "first", "meta") else 0
                self.deepest = max(self.deepest, depth + 1)
                tape += [r.READ_COUNT, self.count(view.name), r.PUSH, least, r.LT, 0]
            case IsMissing(a=a):
                write(a)
                tape += [r.MISSING, 0]
            case Unary(op="not", a=a):
                write(a)
                tape += [r.NOT, 0]
            case Unary(op="neg", a=a, type=type) if type in (I64, F64):
                write(a)
                tape += [r.NEG_F if type == F64 else r.NEG, 0]
            case Logic(op=op, args=args):
                write(args[0])
                for arg in args[1:]:
                    write(arg, 1)
                    tape += [r.AND if op == "and" else r.OR, 0]
            case Binary(op=op, a=a, b=b, type=type) if (_FLOAT if type == F64 else _INTEGER).get(op) is not None:
                if type not in (I64, F64) or a.type != type or b.type != type:
                    raise Unsupported(f"{op} of {a.type} and {b.type}")
                write(a)
                write(b, 1)
                tape += [(_FLOAT if type == F64 else _INTEGER)[op], 0]
            case Compare(op=op, a=a, b=b):
                self.compare(op, a, b, write, tape)
            case Cast(a=a, to=to) if to == F64 and a.type == I64:
                write(a)
                tape += [r.TO_FLOAT, 0]
            case Call(fn="coalesce", args=args, type=type):
                self.scalar(type)
                write(args[0])
                for arg in args[1:]:
                    write(arg, 1)
                    tape += [r.COALESCE, 0]
            case Call(fn="is_nan", args=(a,)):
                write(a)
                tape += [r.IS_NAN, 0]
            case InSet(a=a, values=values, param=None) if values and a.type != F64:
                for at, one in enumerate(values):
                    write(a, min(at, 1))
                    write(one, min(at, 1) + 1)
                    tape += [r.EQ, 0]
                    if at:
                        tape += [r.OR, 0]
            case _:
                raise Unsupported(f"{e.__class__.__name__} is not on tapes")

    def compare(self, op: str, a: Expr, b: Expr, write: Any, tape: list[int]) -> None:
        types = {self.scalar(a.type), self.scalar(b.type)}
        if len(types) != 1:
            raise Unsupported(f"a comparison of {a.type} and {b.type}")
        if types & {TEXT, BYTES} and op not in ("eq", "ne"):
            raise Unsupported("an order of texts")
        write(a)
        write(b, 1)
        tape += [(_COMPARED_FLOATS if F64 in types else _COMPARED)[op], 0]

    def load(self, e: Load, tape: list[int], views: dict[str, model.View]) -> None:
        member, *path = e.path.steps
        view = views.get(member) if isinstance(member, str) else None
        if view is None or any(not isinstance(step, str) for step in path) or isinstance(e.type, Record):
            raise Unsupported("a whole record, or an element of a list")
        if view.kind == "count":
            tape += [r.READ_COUNT, self.count(view.name)]
            return
        if len(path) != 1:
            raise Unsupported(f"{'.'.join(map(str, e.path.steps))} is a part of a field")
        self.scalar(e.type)
        place = self.place(view, str(path[0]))
        kinds = {"values": r.READ_COUNT, "sum": r.READ_SUM, "mean": r.READ_MEAN}
        tape += [kinds.get(view.kind, r.READ), place]


__all__ = ["Registers", "Unsupported", "registers"]
