"""From a pattern's shape to Spark SQL: what is selected of the events, which window functions look at their neighbours,
which rows are matches, and what is told of them. All of it is text: nothing here needs a running Spark.

Rows are in the order of their time, source and sequence number, as everywhere. A look ahead is a look back in the
opposite order: Spark computes a frame that ends at the last row anew for each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.interest import Interest
from headwater.ir.backend import Unsupported
from headwater.ir.nodes import META_TYPES
from headwater.patterns import model
from headwater.patterns.checker.window import MAX_TIME
from headwater.spark.column import outputs_of, sql_of
from headwater.spark.patterns.shapes import Absence, Fixed, Following, Later, Shape, shape_of
from headwater.spark.sql_text import is_sayable, name, sql_type, text_literal
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN, Record

# Names of columns on the way; events' own fields are in a struct, so they cannot clash with these.
TIME, SOURCE, SEQ, FITS, ROW = "_t", "_s", "_n", "_f", "_x"
IN_THE_CALENDAR = f"{TIME} BETWEEN {TIMESTAMP_MIN}L AND {TIMESTAMP_MAX}L"  # what is outside of it is no time
_MEMBERS = {"t": TIME, "s": SOURCE, "n": SEQ, "f": FITS, "e": "_e", "m": "_m"}  # of what is taken along of a row
_NAMED = re.compile(r"\b_x\d*\.([tsnfem])\b")
ALL_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND {} PRECEDING"
_Sql = TypeVar("_Sql")
_KINDS = ("latest", "first", "prev", "count", "meta")


class _CannotSay(Exception):
    def __init__(self, found: Unsupported) -> None:
        super().__init__(found.reason)
        self.found = found


@dataclass(frozen=True, slots=True)
class Plan:
    """In this order: select events, keep those with a time, not those that are late (a window and a test), of them the
    rows; look at neighbours, keep matches, select what is told of each."""

    shape: Shape
    rows: tuple[str, ...]
    placed: str
    late: tuple[str, str] | None
    kept: str
    carried: tuple[str, ...]
    windows: tuple[str, ...]
    matches: str
    results: tuple[tuple[str, str], ...]  # name and SQL
    time: str
    origins: str  # labels with the source and number of each event
    deadline: str | None = None

    @property
    def text(self) -> str:
        """For people."""
        lines = [f"of events     {self.placed}"]
        lines += [f"and           {self.late[0]}: {self.late[1]}"] if self.late else []
        lines += [f"of rows       {self.kept}", *(f"beside each   {window}" for window in self.windows)]
        return "\n".join([*lines, f"matches       {self.matches}"])


def lateness(pattern: model.Pattern, own_time: bool, *, who: Sequence[str] = (SOURCE,)) -> tuple[str, str] | None:
    """A window and a test by which late events are left out. The time of publication never goes back in a source, so
    that of it none is late. `who` are the columns that tell sources apart."""
    if not own_time or pattern.lateness >= MAX_TIME:
        return None
    window = f"max({TIME}) OVER (PARTITION BY {', '.join(who)} ORDER BY {SEQ} {ALL_BEFORE.format(1)}) AS _l"
    return window, f"coalesce({TIME} >= _l - {pattern.lateness}L, TRUE)"


@dataclass(frozen=True, slots=True)
class _Taken:
    """An event of a match: its element, and the SQL of its row; None: any number of rows that nothing is known of."""

    element: int
    row: str | None


@dataclass(slots=True)
class _Planner:
    pattern: model.Pattern
    columns: Mapping[str, str]  # SQL of the event's fields
    meta: Mapping[str, str]
    identified: bool
    keys: list[str] = field(default_factory=list)

    # ── questions about one event ──

    @property
    def channel(self) -> model.Channel:
        return self.pattern.channels[0]

    def verdict(self, interest: Interest, columns: Mapping[str, str], meta: Mapping[str, str]) -> str:
        return _said(sql_of(interest.program, interest.params, columns=columns, meta=meta, truth=True)).text

    def fits(self) -> str:
        """A word with a bit for each element that the event fits by itself."""
        return " + ".join(f"IF({self.test(at)}, {1 << at}L, 0L)" for at in range(len(self.pattern.elements)))

    def bit(self, *elements: int, of: str = FITS) -> str:
        return f"(({of} & {sum(1 << at for at in set(elements))}L) != 0L)"

    def times(self) -> tuple[str, str | None]:
        """SQL of the time in microseconds, and whether there is one, if that is not plain from it."""
        if self.channel.time is None:
            return f"unix_micros({self.meta['time']})", None
        time = self.channel.time
        made = _said(outputs_of(time.program, time.params, columns=self.columns, meta=self.meta, truth=True))
        return f"unix_micros({made.fields['time']})", made.passes

    def key(self) -> tuple[list[str], str | None]:
        """SQL of the parts of the partition's key, and whether the event is of any partition."""
        key = self.channel.key
        if key is None:
            return [], None
        made = _said(outputs_of(key.program, key.params, columns=self.columns, meta=self.meta, truth=True))
        return list(made.fields.values()), made.passes

    def event(self) -> str:
        """The fields of an event that are taken along."""
        parts = [f"{text_literal(which)}, {self.columns[which]}" for which in self.carried()]
        return f"named_struct({', '.join(parts)})" if parts else "NULL"

    def carried(self) -> list[str]:
        """What conditions between elements and results read; without measures, all."""
        if self.pattern.measures is None:
            return list(self.columns)
        records = [condition.interest.type.record for condition in self.pattern.conditions]
        records.append(self.pattern.measures.interest.type.record)
        found = {field.name for record in records for member in record.fields if isinstance(member.type, Record)
                 for field in member.type.fields}  # fmt: skip
        found |= {which for variable in self.pattern.variables for _, which in variable.fields}
        return [which for which in self.columns if which in found]

    def about(self) -> str:
        known = [f"'{which}', {self.meta.get(which) or f'CAST(NULL AS {sql_type(type)})'}"
                 for which, type in META_TYPES.items()]  # fmt: skip
        return f"named_struct({', '.join(known)})"

    # ── the whole ──

    def plan(self, shape: Shape) -> Plan:
        """The plan of a shape: what each row is given, which rows stay, which windows look at the rows around it, and
        which rows are matches."""
        time, timed = self.times()
        keys, keyed = self.key()
        self.keys = [f"_k{at}" for at in range(len(keys))]
        first = [f"{time} AS {TIME}", f"{self.source()} AS {SOURCE}", f"{self.meta['seq']} AS {SEQ}"]
        first += [f"{text} AS {key}" for text, key in zip(keys, self.keys, strict=True)]
        first += [f"{self.fits()} AS {FITS}", f"{self.event()} AS _e", f"{self.about()} AS _m"]
        placed, kept = [IN_THE_CALENDAR], list[str]()
        among = self.among()
        for test, column in ((timed, "_tp"), (keyed, "_kp"), (among, "_r")):
            if test is not None:
                first.append(f"{test} AS {column}")
        placed += ["_tp"] if timed is not None else []
        kept += ["_kp"] if keyed is not None else []
        made = _SHAPES[type(shape)](self, shape)
        if made.only is not None:
            first.append(f"{self.any_of(made.only)} AS _u")
            kept.append("_u")
        elif among is not None or not self.channel.all:
            kept.append(f"({FITS} != 0L OR _r)" if among is not None else f"{FITS} != 0L")
        taken = made.taken
        windows, matches = made.windows, " AND ".join([*made.tests, *self.asked(taken)])
        results, time_of = self.results(taken), f"{_last(taken)}.t"
        if made.time is not None:
            time_of = f"least({made.time}, {TIMESTAMP_MAX}L)"
        origins = self.origins(taken)
        told = [*windows, matches, *(sql for _, sql in results), time_of, *([origins] if self.identified else [])]
        return Plan(
            shape,
            tuple(first),
            " AND ".join(placed),
            lateness(self.pattern, self.channel.time is not None),
            " AND ".join(kept) or "TRUE",
            (TIME, SOURCE, SEQ, FITS, *self.keys, f"{_row(_NAMED.findall(' '.join(told)))} AS {ROW}"),
            windows,
            matches,
            results,
            time_of,
            origins,
            made.time,
        )

    def source(self) -> str:
        """The id of the event's source, as `patterns.events.source_id` has it."""
        name, node = self.meta["source"], self.meta.get("node")
        return name if node is None else f"concat_ws(char(0), {name}, nullif({node}, ''))"

    def any_of(self, elements: Sequence[int]) -> str:
        """Whether an event fits one of these, as a file's statistics can be asked."""
        tests = [self.test(at) for at in dict.fromkeys(elements)]
        return f"({' OR '.join(tests)})"

    def test(self, element: int) -> str:
        condition = self.pattern.elements[element].condition
        return "TRUE" if condition is None else self.verdict(condition, self.columns, self.meta)

    def among(self) -> str | None:
        if self.channel.among is None:
            return None
        return f"coalesce({self.verdict(self.channel.among, self.columns, self.meta)}, FALSE)"

    def over(self, *, back: bool = False) -> str:
        way = " DESC" if back else ""
        by = f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""
        return f"{by}ORDER BY {TIME}{way}, {SOURCE}{way}, {SEQ}{way}"

    def within(self, first: str, last: str) -> list[str]:
        window = self.pattern.window
        return [] if window is None or window.microseconds is None else [f"{last} - {first} <= {window.microseconds}L"]

    def begins(self, element: int) -> tuple[list[str], list[str]]:
        """Where a match may begin: at each event of the element, or at the first. Windows, and tests."""
        if self.pattern.begin == "each":
            return [], [self.bit(element)]
        before = f"max({self.bit(element)}) OVER ({self.over()} {ALL_BEFORE.format(1)}) AS _b"
        return [before], [self.bit(element), "NOT coalesce(_b, FALSE)"]

    # ── questions about several events ──

    def asked(self, taken: Sequence[_Taken]) -> list[str]:
        """Conditions between elements, each when all that it names have been taken, and variables."""
        tests = []
        for condition in self.pattern.conditions:
            for at in range(len(taken)):
                have = {each.element for each in taken[: at + 1]}
                if taken[at].element in condition.elements and have.issuperset(condition.elements):
                    record = self.record(condition.interest.type.record, condition.views, taken[: at + 1])
                    tests.append(self.verdict(condition.interest, record, {}))
        for variable in self.pattern.variables:
            places = dict(variable.fields)
            bound = [f"{each.row}.e.{name(places[each.element])}" for each in taken if each.element in places]
            if not variable.key:
                tests += [f"{bound[0]} = {other}" for other in bound[1:]]
        return tests

    def record(self, record: Record, views: Sequence[model.View], taken: Sequence[_Taken]) -> dict[str, str]:
        """SQL of the members of a condition's record."""
        found = {}
        for view, member in zip(views, record.fields, strict=True):
            if view.kind not in _KINDS:
                raise _CannotSay(Unsupported(f"it asks for the {view.kind} of several events"))
            found[member.name] = self.member(view, member.type, taken)
        return found

    def member(self, view: model.View, type: object, taken: Sequence[_Taken]) -> str:
        names = {at for at, element in enumerate(self.pattern.elements) if element.name == view.name}
        names |= {at for subset in self.pattern.subsets if subset.name == view.name for at in subset.elements}
        rows = [each.row for each in taken if each.element in names]
        if view.kind == "count":
            if None in rows:
                raise _CannotSay(Unsupported("it counts events of which there may be any number"))
            return f"{len(rows)}L"
        at = {"first": 0, "prev": len(rows) - 2}.get(view.kind, len(rows) - 1)
        if view.kind == "prev" and None in rows:
            raise _CannotSay(Unsupported("it asks for one of any number of events"))
        if not 0 <= at < len(rows):
            return f"CAST(NULL AS {sql_type(type)})"  # type: ignore[arg-type]
        row = rows[at]
        if row is None:
            raise _CannotSay(Unsupported("it asks for one of any number of events"))
        return f"{row}.m" if view.kind == "meta" else f"{row}.e"

    # ── what is told ──

    def results(self, taken: Sequence[_Taken]) -> tuple[tuple[str, str], ...]:
        measures = self.pattern.measures
        if measures is not None:
            interest = measures.interest
            record = self.record(interest.type.record, measures.views, taken)
            made = _said(outputs_of(interest.program, interest.params, columns=record, meta={}))
            return tuple(made.fields.items())
        found = []
        for at, element in enumerate(self.pattern.elements):
            if element.negative:
                continue
            rows = [each.row for each in taken if each.element == at]
            if None in rows:
                raise _CannotSay(Unsupported("its result has any number of events"))
            if not is_sayable(element.name):
                raise _CannotSay(Unsupported(f"Spark would substitute a part of the name {element.name!r}"))
            events = [f"{row}.e" for row in rows]
            whole = f"array({', '.join(events)})" if element.multiple else events[0]
            found.append((element.name, whole))
        return tuple(found)

    def origins(self, taken: Sequence[_Taken]) -> str:
        """An array: only where it is known how many events there are."""
        if any(each.row is None for each in taken):
            return ""
        events = (
            f"named_struct('label', {text_literal(self.pattern.elements[each.element].name)}, "
            f"'source', {each.row}.s, 'seq', {each.row}.n)"
            for each in taken
        )
        return f"array({', '.join(events)})"


@dataclass(frozen=True, slots=True)
class _Made:
    """Of one shape: events in the order in which they are taken, windows and tests; `only` these elements' rows matter;
    `time` is that of the match, if it is not that of the last event."""

    taken: tuple[_Taken, ...]
    windows: tuple[str, ...]
    tests: tuple[str, ...]
    only: tuple[int, ...] | None = None
    time: str | None = None


def _fixed(planner: _Planner, shape: Shape) -> _Made:
    assert isinstance(shape, Fixed)
    first, *others = shape.elements
    rows = [ROW, *(f"_x{at}" for at in range(1, len(shape.elements)))]
    windows, tests = planner.begins(first)
    for at, element in enumerate(others, 1):
        windows.append(f"lead({ROW}, {at}) OVER ({planner.over()}) AS {rows[at]}")
        tests.append(planner.bit(element, of=f"{rows[at]}.f"))
    tests += planner.within(TIME, f"{rows[-1]}.t")
    window = planner.pattern.window
    if window is not None and window.rows is not None and window.rows < len(rows):
        tests.append("FALSE")
    taken = tuple(_Taken(element, row) for element, row in zip(shape.elements, rows, strict=True))
    only = shape.elements if not others else None
    return _Made(taken, tuple(windows), tuple(tests), only)


def _following(planner: _Planner, shape: Shape) -> _Made:
    """Look back over the partition from its end: the next row that fits is the last one seen."""
    assert isinstance(shape, Following)
    windows, tests = planner.begins(shape.first)
    frame = ALL_BEFORE.format(shape.least + 1)

    def next_of(row: str, *elements: int) -> str:
        return f"last(IF({planner.bit(*elements)}, {row}, NULL), TRUE) OVER ({planner.over(back=True)} {frame})"

    windows.append(f"{next_of(ROW, shape.second)} AS _x1")
    tests += ["_x1 IS NOT NULL", *planner.within(TIME, "_x1.t")]
    if shape.between:
        windows.append(f"{next_of(_row('tsn'), *shape.between)} AS _w")
        ordered = "struct(_w.t, _w.s, _w.n) >= struct(_x1.t, _x1.s, _x1.n)"
        tests.append(f"(_w IS NULL OR {ordered})")
    if shape.exclusive:
        windows.append(f"lag({_row('tf')}, 1) OVER ({planner.over()}) AS _y")
        sooner = [planner.bit(shape.first, of="_y.f"), *planner.within("_y.t", "_x1.t")]
        if shape.between:  # this very row may be what may not come between that one and the second
            sooner.append(f"NOT {planner.bit(*shape.between)}")
        tests.append(f"NOT coalesce({' AND '.join(sooner)}, FALSE)")
    filler = () if shape.filler is None else (_Taken(shape.filler, None),)
    taken = (_Taken(shape.first, ROW), *filler, _Taken(shape.second, "_x1"))
    only = None if shape.least else (shape.first, shape.second, *shape.between)
    return _Made(taken, tuple(windows), tuple(tests), only)


def _later(planner: _Planner, shape: Shape) -> _Made:
    assert isinstance(shape, Later)
    begun = f"first(IF({planner.bit(shape.first)}, {ROW}, NULL), TRUE)"
    window = f"{begun} OVER ({planner.over()} {ALL_BEFORE.format(1)}) AS _x0"
    tests = ("_x0 IS NOT NULL", planner.bit(shape.second), *planner.within("_x0.t", TIME))
    taken = (_Taken(shape.first, "_x0"), _Taken(shape.second, ROW))
    return _Made(taken, (window,), tests, (shape.first, shape.second))


def _absence(planner: _Planner, shape: Shape) -> _Made:
    assert isinstance(shape, Absence)
    window = planner.pattern.window
    assert window is not None and window.microseconds is not None
    windows, tests = planner.begins(shape.first)
    found = f"last(IF({planner.bit(*shape.absent)}, {TIME}, NULL), TRUE)"
    windows.append(f"{found} OVER ({planner.over(back=True)} {ALL_BEFORE.format(1)}) AS _w")
    deadline = f"{TIME} + {window.microseconds}L"
    tests.append(f"(_w IS NULL OR _w > {deadline})")
    return _Made((_Taken(shape.first, ROW),), tuple(windows), tuple(tests), (shape.first, *shape.absent), deadline)


_SHAPES = {Fixed: _fixed, Following: _following, Later: _later, Absence: _absence}


def _row(members: Iterable[str]) -> str:
    """What is taken along of a row: what somebody looks at, and no more."""
    wanted = set(members) | {"t"}
    return f"named_struct({', '.join(f'{which!r}, {column}' for which, column in _MEMBERS.items() if which in wanted)})"


def _last(taken: Sequence[_Taken]) -> str:
    row = taken[-1].row
    assert row is not None
    return row


def _said(made: _Sql | Unsupported) -> _Sql:
    if isinstance(made, Unsupported):
        raise _CannotSay(made)
    return made


def plan(
    pattern: model.Pattern, columns: Mapping[str, str], meta: Mapping[str, str], *, identified: bool = False
) -> Plan | Unsupported:
    """How window functions say a pattern, or why they cannot. `columns` and `meta` are SQL of what it reads;
    `identified`: it is to be told which events are in a match."""
    shape = shape_of(pattern)
    if isinstance(shape, Unsupported):
        return shape
    try:
        return _Planner(pattern, columns, meta, identified).plan(shape)
    except _CannotSay as error:
        return error.found


__all__ = ["IN_THE_CALENDAR", "ROW", "Plan", "lateness", "plan"]
