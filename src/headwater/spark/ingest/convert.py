"""A value of the input as one of an event's field: Columns that are null where that is not possible, and never throw.

The session's time zone must be UTC. What the texts mean is in docs/ingest.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from headwater.spark.ingest.mapping import FieldMap, Options
from headwater.spark.ingest.times import TimeFormat
from headwater.spark.schema import spark_type
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN, Array, Enum, Field, List, Record, Scalar, Type

ISO = TimeFormat("iso", "iso")
_NARROW = {"u8": "smallint", "u16": "int", "u32": "bigint"}
_DATE, _CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_PLAIN = {  # formats that are ISO 8601 written out, each with texts for which a cast is exactly as strict
    f"yyyy-MM-dd{java}HH:mm:ss{fraction}": rf"^{_DATE}{sign}{_CLOCK}{digits}\z"
    for java, sign in ((" ", " "), ("'T'", "T"))
    for fraction, digits in (("", ""), (".SSSSSS", r"\.[0-9]{1,6}"))
}
SPACES = " \u00a0\u2009\u202f"  # between thousands: a space, and those at which no line breaks
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class Conversion:
    """`first`: a Column that the value is made from, if it is dear and needed more than once. `make(column)`: the
    value, given the column in which that is. `fault(column)`: whether there was something and it could not be taken,
    given the column in which the value is."""

    first: Any
    make: Callable[[Any], Any]
    fault: Callable[[Any], Any]

    @property
    def value(self) -> Any:
        return self.make(self.first)


def conversion(kind: Type, raw: Any, given: Any, how: FieldMap, options: Options) -> Conversion:
    """`given` is the Spark type of `raw`."""
    match kind:
        case List() | Array() | Record():
            made = _value(kind, raw, given, how, options)
            return Conversion(None, lambda _: made, lambda _: _nested_fault(kind, raw, given, how, options))
        case Scalar() if given.simpleString() == "string" and kind.is_float:
            first = _pointed(raw, options).try_cast(spark_type(kind).simpleString())
            return Conversion(
                first, lambda number: _float(raw, number, options), lambda v: raw.isNotNull() & v.isNull()
            )
        case Scalar(name="timestamp") if given.simpleString() == "string" and (how.time or ISO).kind == "iso":
            first = _instant(raw)
            return Conversion(first, lambda t: _iso(raw, t, how.time or ISO), lambda v: raw.isNotNull() & v.isNull())
        case Scalar(name="timestamp") if given.simpleString() == "string" and how.time and how.time.kind == "pattern":
            first = _by_pattern(raw, how.time)
            return Conversion(first, _not_before_year_one, lambda v: raw.isNotNull() & v.isNull())
        case _:
            made = _value(kind, raw, given, how, options)
            return Conversion(None, lambda _: made, lambda v: raw.isNotNull() & v.isNull())


def _value(kind: Type, raw: Any, given: Any, how: FieldMap, options: Options) -> Any:
    from pyspark.sql import functions as F

    match kind:
        case Scalar():
            return _scalar(kind, raw, given, how, options)
        case Enum():
            return _enum(kind, raw if given.typeName() == "string" else raw.cast("string"), how)
        case List() | Array():
            inner = _element(kind)
            return F.transform(raw, lambda each: _value(inner, each, given.elementType, how, options))
        case Record(fields=fields):
            parts = [_value(f.type, raw[f.name], given[f.name].dataType, how, options).alias(f.name) for f in fields]
            return F.when(raw.isNotNull(), F.struct(*parts))


def _element(kind: Array | List) -> Type:
    if isinstance(kind, Array) and len(kind.shape) > 1:
        return Array(kind.element, kind.shape[1:])
    return kind.element


def _nested_fault(kind: Type, raw: Any, given: Any, how: FieldMap, options: Options) -> Any:
    """Whether any part of it, at any depth, is missing though it must not be, or cannot be taken."""
    from pyspark.sql import functions as F

    match kind:
        case List() | Array():
            inner = _element(kind)

            def bad(each: Any) -> Any:
                return each.isNull() | _nested_fault(inner, each, given.elementType, how, options)

            wrong = F.coalesce(F.exists(raw, bad), F.lit(False))
            return wrong | (F.size(raw) != kind.shape[0]) & raw.isNotNull() if isinstance(kind, Array) else wrong
        case Record(fields=fields):

            def lacks(f: Field) -> Any:
                wrong = _nested_fault(f.type, raw[f.name], given[f.name].dataType, how, options)
                return wrong if f.optional else wrong | raw[f.name].isNull()

            return raw.isNotNull() & reduce(lambda a, b: a | b, [lacks(f) for f in fields])
        case _:
            return raw.isNotNull() & _value(kind, raw, given, how, options).isNull()


def _scalar(kind: Scalar, raw: Any, given: Any, how: FieldMap, options: Options) -> Any:
    found = given.simpleString()
    if kind.name == "timestamp":
        return time_value(raw, found, how.time or ISO)
    if found == "string":
        return _of_text(kind, raw, how, options)
    target = spark_type(kind).simpleString()
    if found == target and not kind.name.startswith("u"):
        return raw
    if kind.is_integer and (found in _WHOLE or found.startswith("decimal") or found in ("float", "double")):
        return _whole(kind, raw, found)
    if kind.is_float and (found in (*_WHOLE, "float", "double") or found.startswith("decimal")):
        return raw.try_cast(target)
    if kind.name == "text" and found != "binary":
        return raw.cast("string")
    if kind.name == "bytes" and found == "binary":
        return raw
    return _of_text(kind, raw.try_cast("string"), how, Options())


def _whole(kind: Scalar, raw: Any, found: str) -> Any:
    """A number as an integer, if it is one and fits."""
    from pyspark.sql import functions as F

    low, high = kind.range
    exact = raw.try_cast("decimal(38,0)")
    same = (raw == F.floor(raw)) if found in ("float", "double") or found.startswith("decimal") else F.lit(True)
    fits = exact.between(F.lit(low).cast("decimal(38,0)"), F.lit(high).cast("decimal(38,0)"))
    return F.when(same & fits, exact.try_cast(spark_type(kind).simpleString()))


def _of_text(kind: Scalar, raw: Any, how: FieldMap, options: Options) -> Any:
    from pyspark.sql import functions as F

    if kind.name == "text":
        return raw
    if kind.name == "bytes":
        return raw.cast("binary") if how.bytes == "utf-8" else F.try_to_binary(raw, F.lit(how.bytes))
    if kind.name == "bool":
        return raw.try_cast("boolean")
    target = spark_type(kind).simpleString()
    if kind.is_integer:
        text = _ungrouped(raw, options) if options.thousands else raw
        if kind.is_signed:
            return text.try_cast(target)
        if kind.name == "u64":
            made = F.when(text.rlike(r"^\s*\+?[0-9]+\s*$"), text.try_cast("decimal(38,0)"))
            return F.when(made <= F.lit(kind.range[1]).cast("decimal(38,0)"), made.cast(target))
        number = text.try_cast(_NARROW[kind.name])
        return F.when(number.between(*kind.range), number)
    return _float(raw, _pointed(raw, options).try_cast(target), options)


def _float(raw: Any, number: Any, options: Options) -> Any:
    """The number, unless Java takes for one what is none: 1d, 1f and 0x1p3; and 1e999 for an infinity, which only its
    name is to be."""
    from pyspark.sql import functions as F

    text = _pointed(raw, options)
    last = F.substring(text, -1, 1)
    hexadecimal = F.contains(text, F.lit("x")) | F.contains(text, F.lit("X"))
    plain = F.contains(F.lit("0123456789."), last) & ~hexadecimal  # nearly all of them, and told at once
    suffixed = reduce(lambda a, b: a | b, [F.contains(text, F.lit(sign)) for sign in "dDfF"])
    finite = F.abs(number) < F.lit(float("inf"))
    named = F.contains(text, F.lit("n")) | F.contains(text, F.lit("N"))
    return F.when(F.when(finite, plain | ~(hexadecimal | suffixed)).otherwise(named), number)


def _pointed(raw: Any, options: Options) -> Any:
    """The text of a number with a decimal point; what must not be in it becomes a letter that no number has."""
    from pyspark.sql import functions as F

    if options.thousands:
        return F.translate(_ungrouped(raw, options), options.decimal, ".")
    return raw if options.decimal == "." else F.translate(raw, f"{options.decimal}.", ".x")


def _ungrouped(raw: Any, options: Options) -> Any:
    from pyspark.sql import functions as F

    signs = SPACES if options.thousands in SPACES else options.thousands
    group, point = "[" + "".join(_quoted(sign) for sign in signs) + "]", _quoted(options.decimal)
    around = rf"[\s{''.join(_quoted(sign) for sign in SPACES)}]*+" if signs == SPACES else r"\s*+"
    sound = rf"^{around}[+-]?(?:\d{{1,3}}(?:{group}\d{{3}})++|\d*+)(?:{point}\d*+)?(?:[eE][+-]?\d++)?{around}$"
    special = raw.rlike(r"^\s*+[+-]?(?i:nan|inf|infinity)\s*+$")
    return F.when(raw.rlike(sound), F.translate(raw, signs, "")).when(special, raw)


def _quoted(sign: str) -> str:
    return f"\\x{{{ord(sign):x}}}"


def _enum(kind: Enum, raw: Any, how: FieldMap) -> Any:
    from pyspark.sql import functions as F

    renamed = dict(how.enum)
    pairs = {**{name: name for name, _ in kind.members}, **renamed}
    same = [text for text, member in pairs.items() if text == member]
    made = F.when(raw.isin(same), raw) if same else None
    for text, member in pairs.items():
        if text != member:
            made = F.when(raw == text, member) if made is None else made.when(raw == text, member)
    return made


def time_value(raw: Any, found: str, how: TimeFormat) -> Any:
    """A time as an instant, between the years 1 and 9999."""
    from pyspark.sql import functions as F

    match found:
        case "timestamp":
            return raw
        case "timestamp_ntz" | "date":
            return F.to_utc_timestamp(raw.cast("timestamp"), F.lit(how.zone))
    if how.kind == "epoch":
        micros = _epoch_micros(raw, found, how.unit)
        return F.when(micros.between(TIMESTAMP_MIN, TIMESTAMP_MAX), F.timestamp_micros(micros))
    text = raw if found == "string" else raw.try_cast("string")
    if how.kind == "pattern":
        return _not_before_year_one(_by_pattern(text, how))
    return _iso(text, _instant(text), how)


def _epoch_micros(raw: Any, found: str, unit: int) -> Any:
    """Microseconds since 1970; digits beyond them are cut off, none is rounded."""
    from pyspark.sql import functions as F

    # 20 digits before the point and 18 behind it, all that a decimal has room for. More of them in a text are cut off
    # first, or a cast would round.
    text = F.regexp_replace(raw, r"(\.[0-9]{18})[0-9]+", "$1") if found == "string" else raw
    number = text.try_cast("decimal(38,18)")
    whole = number.try_cast("bigint")
    if not unit:  # nanoseconds
        return ((whole - whole % 1000) / F.lit(1000).cast("decimal(4,0)")).try_cast("bigint")
    part = number % F.lit(1).cast("decimal(1,0)")  # exact, as a difference is not
    exact = F.try_add(F.try_multiply(whole, F.lit(unit)), (part * F.lit(unit)).try_cast("bigint"))
    if found != "string":
        return exact
    return F.coalesce(F.try_multiply(raw.try_cast("bigint"), F.lit(unit)), exact)


def _by_pattern(text: Any, how: TimeFormat) -> Any:
    from pyspark.sql import functions as F

    made = F.try_to_timestamp(text, F.lit(how.java))
    if how.java in _PLAIN:  # ISO 8601 written out: a cast needs no formatter, and means the same
        made = F.when(text.rlike(_PLAIN[how.java]), text.try_cast("timestamp")).otherwise(made)
    return made if how.zoned or how.zone == "UTC" else F.to_utc_timestamp(made, F.lit(how.zone))


def _not_before_year_one(made: Any) -> Any:
    from pyspark.sql import functions as F

    return F.when(made >= F.timestamp_micros(F.lit(TIMESTAMP_MIN)), made)


def _instant(text: Any) -> Any:
    """The time that a text says; Spark takes no zone after minutes without seconds."""
    from pyspark.sql import functions as F

    seconds = F.regexp_replace(text, r"^(.{10}[T ][0-9]{2}:[0-9]{2})([Zz+-].*)$", "$1:00$2")
    return F.coalesce(text.try_cast("timestamp"), seconds.try_cast("timestamp"))


def _iso(text: Any, made: Any, how: TimeFormat) -> Any:
    from pyspark.sql import functions as F

    if how.zone != "UTC":
        told = made.isNotNull() & text.rlike(r"[T ][0-9].*[Zz+\-A-Za-z]")
        made = F.when(told, made).otherwise(F.to_utc_timestamp(made, F.lit(how.zone)))
    # Spark takes 12:30 for today, and 2026 for its first day: neither is a time that was written down.
    dashes = (F.instr(text, "-") == 5) & (F.locate("-", text, 6) == 8)
    return F.when(dashes & (made >= F.timestamp_micros(F.lit(TIMESTAMP_MIN))), made)
