"""A mapping as Spark Columns: from raw records to events, with what is wrong with each record.

    scan (reader.py)  →  raw values by route  →  values  →  verdict of the record  →  events

Each arrow is a projection of its own, so that Spark computes a value once though several others use it.
A verdict is a number: GOOD, BAD, BLANK, HEADER or EMPTY (nothing to explode).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from headwater.spark.ingest.convert import ISO, conversion
from headwater.spark.ingest.mapping import FieldMap, IngestMapping
from headwater.spark.ingest.paths import Route
from headwater.types.model import TEXT, TIMESTAMP, Array, Enum, List, Record, Scalar, Type, describe

GOOD, BAD, BLANK, HEADER, EMPTY = range(5)
VERDICT, REASON, ELEMENTS, ARRIVAL = "__verdict", "__reason", "__elements", "__arrival"
SHOWN = 80  # characters of a value in a reason


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column of the event: its name, type, and where it comes from."""

    name: str
    kind: Type
    optional: bool
    how: FieldMap

    @property
    def elementary(self) -> bool:
        return self.how.route is not None and self.how.route.start != ""


def wanted(mapping: IngestMapping) -> list[Wanted]:
    """The columns of an event in the log's order, without those that are the same for all."""
    maps = dict(mapping.fields)
    own = [Wanted("event_source", TEXT, False, mapping.source), Wanted("event_time", TIMESTAMP, False, mapping.time)]
    return own + [Wanted(f.name, f.type, f.optional, maps[f.name]) for f in mapping.record.fields]


def twins(mapping: IngestMapping) -> dict[str, str]:
    """Columns that are read from the same place in the same way as one before them, with the name of that one: the
    value is made once, and `events` has it twice."""
    found: dict[str, str] = {}
    firsts: list[Wanted] = []
    for each in wanted(mapping):
        if each.how.route is None or each.elementary:
            continue
        like = next((first for first in firsts if _alike(first, each)), None)
        if like is None:
            firsts.append(each)
        else:
            found[each.name] = like.name
    return found


def _alike(a: Wanted, b: Wanted) -> bool:
    one, other = (replace(x.how, time=x.how.time or ISO, default=_text(x.how.default)) for x in (a, b))
    return a.kind == b.kind and one == other


@dataclass(frozen=True, slots=True)
class Scan:
    """Raw records as a reader gives them.

    `frame` has the raw values; `find(route)` is a value's Column and Spark type, or None where its column is not in the
    file; `verdict` and `reason` say what is wrong with a record as such; `keep` are columns that go along."""

    frame: Any
    find: Any
    verdict: Any
    reason: Any
    keep: tuple[str, ...]


def judged(mapping: IngestMapping, scan: Scan, *, reasons: bool) -> Any:
    """A frame with `keep`, the verdict, its columns but `twins` (or ELEMENTS), and with `reasons` the reason."""
    columns = wanted(mapping)
    late = mapping.late.arrival
    extra = [] if late is None else [Wanted(ARRIVAL, TIMESTAMP, True, late)]
    plain = [each for each in columns if not each.elementary]
    same = twins(mapping)
    own = [each for each in (*plain, *extra) if each.name not in same]
    parts = _Parts(mapping, scan)
    raws = {each.name: parts.raw(each) for each in own}
    elements = parts.elements(columns, reasons=reasons)
    first = [scan.verdict.alias("__first"), scan.reason.alias("__why")] if reasons else [scan.verdict.alias("__first")]
    keep = list(scan.keep)
    frame = scan.frame.select(
        *keep, *first,
        *(raw.column.alias(f"__raw_{name}") for name, raw in raws.items()),
        *([elements.alias(ELEMENTS)] if elements is not None else []),
    )  # fmt: skip
    from pyspark.sql import functions as F

    made = {
        each.name: conversion(
            each.kind, F.col(f"`__raw_{each.name}`"), raws[each.name].given, each.how, mapping.options
        )
        for each in own
    }
    passed = ["__first", *(["__why"] if reasons else []), *([ELEMENTS] if elements is not None else [])]
    passed += [f"`__raw_{name}`" for name in raws]
    firsts = {name: c.first.alias(f"__1_{name}") for name, c in made.items() if c.first is not None}
    frame = frame.select(*keep, *passed, *firsts.values()) if firsts else frame
    values = (c.make(F.col(f"`__1_{name}`") if name in firsts else None).alias(name) for name, c in made.items())
    frame = frame.select(*keep, *passed, *values)
    faults = []
    texts = []
    for each in plain:
        name = same.get(each.name, each.name)
        value = F.col(f"`{name}`")
        wrong = made[name].fault(value)
        faults.append(wrong if each.optional else wrong | value.isNull())
        texts.append(parts.reason(each, raws[name], F.col(f"`__raw_{name}`"), wrong, value))
    count = F.size(ELEMENTS) if elements is not None else None
    if count is not None:
        faults.append(F.exists(ELEMENTS, lambda each: each["__bad"]))
        if reasons:
            texts.append(F.filter(F.transform(ELEMENTS, lambda each: each["__why"]), lambda why: why.isNotNull())[0])
    verdict = F.when(F.col("__first") != GOOD, F.col("__first"))
    if count is not None:
        verdict = verdict.when(F.coalesce(count, F.lit(0)) <= 0, F.lit(EMPTY))
    verdict = verdict.when(reduce(lambda a, b: a | b, faults), F.lit(BAD)).otherwise(F.lit(GOOD))
    result = [*keep, verdict.alias(VERDICT), *(F.col(f"`{each.name}`") for each in own)]
    if reasons:
        result.append(F.coalesce(F.col("__why"), *texts, F.lit("it cannot be read")).alias(REASON))
    return frame.select(*result, *([F.col(ELEMENTS)] if elements is not None else []))


def events(mapping: IngestMapping, frame: Any, keep: tuple[str, ...]) -> Any:
    """The events of good records: `keep` and the event's columns, each element of an exploded one on its own."""
    from pyspark.sql import functions as F

    columns = wanted(mapping)
    frame = frame.where(F.col(VERDICT) == GOOD)
    same = twins(mapping)
    if same:
        frame = frame.select("*", *(F.col(f"`{first}`").alias(name) for name, first in same.items()))
    if mapping.explode is None:
        return frame
    plain = [F.col(f"`{each.name}`") for each in columns if not each.elementary]
    frame = frame.select(*keep, *plain, F.explode(ELEMENTS).alias("__each"))
    return frame.select(
        *keep,
        *(
            F.col("__each")[each.name].alias(each.name) if each.elementary else F.col(f"`{each.name}`")
            for each in columns
        ),
    )


@dataclass(frozen=True, slots=True)
class _Raw:
    column: Any
    given: Any  # its Spark type
    absent: str = ""  # the column that the file does not have


class _Parts:
    """Raw values by route, in the record or in an element."""

    def __init__(self, mapping: IngestMapping, scan: Scan) -> None:
        self.mapping, self.scan = mapping, scan

    def raw(self, each: Wanted, element: Any = None) -> _Raw:
        """What a field is made from, before it is converted: a constant, a column, or nothing where the input has
        none."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        how, options = each.how, self.mapping.options
        if how.route is None:
            return _Raw(F.lit(_text(how.value)), T.StringType())
        found = self.scan.find(how.route, element)
        if found is None:
            column, given, absent = F.lit(None).cast("string"), T.StringType(), str(how.route)
            if isinstance(each.kind, List | Array | Record):
                given = raw_type(each.kind)
                column = F.lit(None).cast(given)
        else:
            (column, given), absent = found, ""
        if given.typeName() == "string" and options.missing:
            column = F.when(~column.isin(list(options.missing)), column)
        if how.default is not None:
            column = F.coalesce(
                column if given.typeName() == "string" else column.cast("string"), F.lit(_text(how.default))
            )
            given = T.StringType()
        return _Raw(column, given, absent)

    def elements(self, columns: list[Wanted], *, reasons: bool) -> Any:
        """The array of elements, each a struct of values and whether anything is wrong with it."""
        from pyspark.sql import functions as F

        explode = self.mapping.explode
        if explode is None:
            return None
        found = self.scan.find(explode.route, None)
        if found is None:
            return self._none(columns, reasons)
        column, _ = found
        if explode.kind == "entries":
            column = F.map_entries(column)
        elif explode.separator:
            column = F.split(column, _literal_pattern(explode.separator))

        def made(each: Any, index: Any) -> Any:
            return self._element(columns, (each, index), reasons)

        return F.transform(column, made)

    def _none(self, columns: list[Wanted], reasons: bool) -> Any:
        from pyspark.sql import functions as F

        one = self._element(columns, None, reasons)
        return F.filter(F.array(one), lambda _: F.lit(False))

    def _element(self, columns: list[Wanted], element: Any, reasons: bool) -> Any:
        """The fields that come from an exploded element, with what is wrong with them."""
        from pyspark.sql import functions as F

        parts, faults, texts = [], [F.lit(False)], [F.lit(None).cast("string")]
        for each in columns:
            if not each.elementary:
                continue
            nothing = raw_type(each.kind)
            raw = self.raw(each, element) if element is not None else _Raw(F.lit(None).cast(nothing), nothing)
            made = conversion(each.kind, raw.column, raw.given, each.how, self.mapping.options)
            parts.append(made.value.alias(each.name))
            wrong = made.fault(made.value)
            faults.append(wrong if each.optional else wrong | made.value.isNull())
            if reasons:
                texts.append(self.reason(each, raw, raw.column, wrong, made.value))
        parts.append(reduce(lambda a, b: a | b, faults).alias("__bad"))
        if reasons:
            why = F.coalesce(*texts)
            if element is not None:
                why = F.concat(F.lit("element "), (element[1] + 1).cast("string"), F.lit(": "), why)
            parts.append(why.alias("__why"))
        return F.struct(*parts)

    def reason(self, each: Wanted, raw: _Raw, column: Any, wrong: Any, value: Any) -> Any:
        """A text, or null where nothing is wrong."""
        from pyspark.sql import functions as F

        nested = isinstance(each.kind, List | Array | Record)
        text = F.to_json(column) if nested else column.cast("string")
        shown = F.when(F.length(text) > SHOWN, F.concat(F.left(text, F.lit(SHOWN)), F.lit("…"))).otherwise(text)
        found = F.concat(F.lit(f"{each.name}: expected {_expected(each)}, found "), shown)
        why = F.when(wrong, found)
        if each.optional:
            return why
        where = f"column {raw.absent} is not in this file" if raw.absent else "it is missing"
        return why.when(value.isNull(), F.lit(f"{each.name}: expected {_expected(each)}; {where}"))


def _expected(each: Wanted) -> str:
    how = each.how.time
    if each.kind == TIMESTAMP and how is not None:
        zone = "" if how.zone == "UTC" or how.kind == "epoch" or how.zoned else f" in {how.zone}"
        return f"a time ({how.text}{zone})"
    if isinstance(each.kind, Enum):
        names = [name for name, _ in each.kind.members]
        return f"one of {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"
    return describe(each.kind)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return None if value is None else str(value)


def _literal_pattern(text: str) -> str:
    return "".join(f"\\x{{{ord(c):x}}}" for c in text)


def raw_type(kind: Type) -> Any:
    """The Spark type in which a value of JSON is read: text, in whatever structure the field has."""
    from pyspark.sql import types as T

    match kind:
        case Scalar() | Enum():
            return T.StringType()
        case List(element=element):
            return T.ArrayType(raw_type(element))
        case Array(element=element, shape=shape):
            made = raw_type(element)
            for _ in shape:
                made = T.ArrayType(made)
            return made
        case Record(fields=fields):
            return T.StructType([T.StructField(f.name, raw_type(f.type)) for f in fields])


def routes(mapping: IngestMapping) -> list[tuple[Route, Type]]:
    """Every place that is read, and the type of what is read there."""
    found = [(each.how.route, each.kind) for each in wanted(mapping) if each.how.route is not None]
    if mapping.late.arrival is not None and mapping.late.arrival.route is not None:
        found.append((mapping.late.arrival.route, TIMESTAMP))
    return found
