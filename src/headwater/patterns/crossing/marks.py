"""Marks: what crosses of a row that fits no element, its time and its partition, and nothing else of it.

    found = marking(pattern, "door")     None where no event of the channel could cross as a mark
    found.asked(wanted)                  what is asked of sources: an event or a mark of what passes, of other nodes
    found.opened(record)                 what came: the record of the event, or a Mark

Where rows are counted (a strict step, a window of rows), what passes `among` and fits no element stands between events;
where events say their own time, each tells how far its source has come. For either it need not be known what it was. So
of an event that fits no element the sources of other nodes send a mark (`types/marks.py`): the parts of its key, and
its time if it says that itself. Events and marks of a source are one stream: numbers, order and promises are as ever.

Sources of the node at which the pattern runs give all events as they are: nothing of those crosses. So do those of
nodes that do not let this one install code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError
from headwater.interest import Apart, Interest
from headwater.ir import walk
from headwater.ir.cost import Limits
from headwater.ir.nodes import (
    Cond,
    Const,
    Expr,
    If,
    InSet,
    Logic,
    Lookup,
    Param,
    ParamDecl,
    Path,
    Program,
    Return,
    SetOut,
    Stmt,
)
from headwater.patterns import model
from headwater.patterns.crossing.atoms import channel_of, counts_rows, expression_of, source_interest
from headwater.types import EventType, event_type
from headwater.types.marks import WHOLE, is_of, mark_type
from headwater.types.model import BOOL, TIMESTAMP, Field

KEY, TIME, ROW = "key_", "time", "row"  # fields of a mark; KEY is followed by the name of a part
_TRUE, _FALSE = Const(True, BOOL), Const(False, BOOL)


class Mark(NamedTuple):
    """Of an event that fits no element. `row`: it counts as one; then `key` is that of its partition, raw, None where
    it has none. `time` is what the event said itself, None if nothing, or if that goes by publication. `size` is that
    of what crossed, in bytes."""

    row: bool
    key: Mapping[str, Any] | None
    time: int | None
    size: int = 0


class Marking:
    """Of one channel of a pattern. `type` is that of its marks."""

    def __init__(self, channel: model.Channel) -> None:
        self.channel = channel
        key = None if channel.key is None else channel.key.program.output
        self._key = () if key is None else key.fields
        fields = [Field(ROW, BOOL)]
        if channel.time is not None:
            fields.append(Field(TIME, TIMESTAMP, optional=True))
        fields += [Field(KEY + part.name, part.type, optional=True) for part in self._key]
        self.type: EventType = event_type(mark_type(fields))

    # ── at the sources ──

    def asked(self, wanted: Interest | None, here: Interest | None, pattern: model.Pattern) -> Apart | Interest | None:
        """What gives an event, or a mark, of all that passes `wanted` (None: of everything), where it is of another
        node, and what passes `here` where it is not; `wanted` itself, if that is more than a source could be asked. The
        pattern is the one that it was made for, or the same with other parameters."""
        value: Expr | None = _TRUE
        decls: dict[str, ParamDecl] = {}
        params: dict[str, Any] = {}
        if wanted is not None:
            value = expression_of(wanted, self.channel)
            decls = {decl.name: decl for decl in wanted.program.params}
            params = dict(wanted.params)
        made = None if value is None else self.transformation(value, decls, params, pattern)
        return wanted if made is None else Apart(made, here)

    def transformation(
        self,
        passes: Expr,
        decls: Mapping[str, ParamDecl],
        params: Mapping[str, Any],
        pattern: model.Pattern,
    ) -> Interest | None:
        """The same of what passes an expression with these parameters, for sources of other nodes; None if that is more
        than a source could be asked."""
        it = self.channel
        fits = _fits(pattern, it)
        if fits is None:
            return None
        if any(name in decls and fits.params[name] != params[name] for name in fits.params):
            return None  # two that are called the same
        every = {**fits.decls, **decls}
        values = {**fits.params, **params}
        mark = self._mark(pattern, every, values)
        whole = Cond(fits.value, _TRUE, _FALSE, _FALSE, BOOL)
        body: tuple[Stmt, ...] = (If(whole, (_set(WHOLE, _TRUE), _set(ROW, _TRUE)), mark), Return(passes))
        return self._interest(body, every, values, pattern.limits)

    def apart(self, pattern: model.Pattern) -> tuple[Interest, Interest] | None:
        """The same in two: what passes the events that cross whole, and what makes the marks of the others; for those
        who count them."""
        fits, wanted = _fits(pattern, self.channel), source_interest(pattern, self.channel.name)
        passes = _TRUE if wanted is None else expression_of(wanted, self.channel)
        if fits is None or passes is None:
            return None
        every, values = dict(fits.decls), dict(fits.params)
        if wanted is not None:
            every |= {decl.name: decl for decl in wanted.program.params}
            values |= wanted.params
        mark = self._mark(pattern, every, values)
        others = Logic("and", (Cond(fits.value, _FALSE, _TRUE, _TRUE, BOOL), passes))
        events = self._interest((Return(fits.value),), every, values, pattern.limits)
        marks = self._interest((*mark, Return(others)), every, values, pattern.limits)
        return None if events is None or marks is None else (events, marks)

    def _interest(
        self, body: tuple[Stmt, ...], decls: Mapping[str, ParamDecl], params: Mapping[str, Any], limits: model.Limits
    ) -> Interest | None:
        """Of these statements, with the parameters that they read; None if it is more than a source could be asked."""
        read, output = _read(body), None if len(body) == 1 else self.type.record
        declared = tuple(decl for name, decl in decls.items() if name in read)
        program = Program(self.channel.type.record, output, declared, (), body, "predicate")
        given = {decl.name: params[decl.name] for decl in declared}
        try:
            return Interest.from_program(program, given, limits=Limits(max_worst=limits.worst))
        except HeadwaterError:
            return None

    def _mark(self, pattern: model.Pattern, decls: dict[str, ParamDecl], params: dict[str, Any]) -> tuple[Stmt, ...]:
        """Whether it is a row, the time where the event says that, and the parts of the key."""
        it = self.channel
        row = Cond(self._row(pattern, decls, params), _TRUE, _FALSE, _FALSE, BOOL)
        made: list[Stmt] = [_set(WHOLE, _FALSE), _set(ROW, row)]
        if it.time is not None:
            time = next(stmt for stmt in it.time.program.body if isinstance(stmt, SetOut))
            made.append(SetOut(Path((TIME,)), time.value, TIMESTAMP))
        for stmt in () if it.key is None else it.key.program.body:
            if isinstance(stmt, SetOut):
                made.append(SetOut(Path((KEY + str(stmt.path.steps[0]),)), stmt.value, stmt.stored))
        return tuple(made)

    def _row(self, pattern: model.Pattern, decls: dict[str, ParamDecl], params: dict[str, Any]) -> Expr:
        """Whether what fits no element counts as a row."""
        it = channel_of(pattern, self.channel.name)
        if it.among is None:
            return _TRUE if it.all else _FALSE
        value = expression_of(it.among, it)
        assert value is not None, "looked at when it was made"
        for decl in it.among.program.params:
            decls[decl.name], params[decl.name] = decl, it.among.params[decl.name]
        return value

    # ── where the pattern runs ──

    def opened(self, record: bytes) -> bytes | Mark:
        """What came: the record of an event, or a mark."""
        return self._mark_of(self.type.decode_raw(record), len(record)) if is_of(record, self.type) else record

    def opened_rows(self, batch: Any) -> list[Mark] | None:
        """The marks that a batch has; None if it has events."""
        if batch.schema.names[0] != WHOLE or not batch.schema.equals(self.type.schema):
            return None
        return [self._mark_of(self.type.decode_raw(each), len(each)) for each in self.type.arrow_to_records(batch)]

    def _mark_of(self, raw: Mapping[str, Any], size: int) -> Mark:
        key: dict[str, Any] | None = {part.name: raw[KEY + part.name] for part in self._key}
        assert key is not None
        if any(value is None or value != value for value in key.values()):
            key = None
        time = None if self.channel.time is None else raw[TIME]
        return Mark(bool(raw[ROW]), key, time, size)


class _Fits(NamedTuple):
    """Whether an event fits an element by itself."""

    value: Expr
    decls: dict[str, ParamDecl]
    params: dict[str, Any]


def _fits(pattern: model.Pattern, channel: model.Channel) -> _Fits | None:
    """None where every event does, or where it cannot be said by an expression."""
    values: dict[Expr, None] = {}
    decls: dict[str, ParamDecl] = {}
    params: dict[str, Any] = {}
    for element in pattern.elements:
        if channel.name not in element.channels:
            continue
        value = None if element.condition is None else expression_of(element.condition, channel)
        if value is None or value == _TRUE:
            return None
        assert element.condition is not None
        values[value] = None
        decls.update({decl.name: decl for decl in element.condition.program.params})
        params.update(element.condition.params)
    tests = tuple(values)
    return _Fits(Logic("or", tests) if len(tests) > 1 else tests[0] if tests else _FALSE, decls, params)


def marking(pattern: model.Pattern, name: str) -> Marking | None:
    """How events of the channel come from other nodes; None where none of them could be a mark, or where that is more
    than a source could be asked."""
    it = channel_of(pattern, name)
    rows = counts_rows(pattern) and (it.all or it.among is not None)
    if not rows and it.time is None:
        return None
    if it.among is not None and expression_of(it.among, it) is None:
        return None
    try:
        made = Marking(it)
    except HeadwaterError:  # names that no mark can have
        return None
    same = made.type.record.fingerprint == it.type.record.fingerprint
    return None if same or made.transformation(_TRUE, {}, {}, pattern) is None else made


def _set(name: str, value: Expr) -> SetOut:
    return SetOut(Path((name,)), value, BOOL)


def _read(body: tuple[Stmt, ...]) -> set[str]:
    """The names of the parameters that statements read."""
    names: set[str] = set()
    for expr in walk.all_expressions(body):
        match expr:
            case Param(name=name) | InSet(param=str(name)) | Lookup(param=name):
                names.add(name)
    return names


__all__ = ["Mark", "Marking", "marking"]
