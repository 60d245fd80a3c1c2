"""An event type and a mapping proposed from a sample, with what was seen in it.

    print(infer(["visits.csv"]).toml())

Nothing is read into it that a person would not: numbers with a leading zero stay text, as does what may be
hexadecimal; a column is a number or a time only if all its values are; and a decimal comma is one only where it cannot
be one between thousands, or cells are not parted by commas.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.errors import ExecutionError
from headwater.spark.ingest.dialect import Dialect, find_dialect
from headwater.spark.ingest.numerals import PLAIN, Numerals, find_numerals, is_ambiguous, may_be_hexadecimal
from headwater.spark.ingest.paths import Route
from headwater.spark.ingest.sample import (
    Unsampled,
    decode,
    find_samples,
    guess_format,
    json_objects,
    lines_of,
    parquet_rows,
    read_start,
)
from headwater.store.log.schema import RESERVED

ROWS = 10_000
DISTINCT = 12  # values that may be an enumeration
IN_ORDER = 0.9  # of numbers that are times, so many are not before the one before them
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z")
_FORMATS = ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y",
            "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d", "%Y%m%d %H:%M:%S",
            "%d %b %Y %H:%M:%S", "%d/%b/%Y:%H:%M:%S %z")  # fmt: skip
_DIGITS = {
    14: "%Y%m%d%H%M%S",
    12: "%Y%m%d%H%M",
    10: "%Y%m%d%H",
    8: "%Y%m%d",
}  # times that are written as numbers, by their length
_MISSING = ("NA", "N/A", "NULL", "null", "None", "-")
_TIMELY = re.compile(
    r"(?:^|[_.\W])(?:ts|when|at|t)(?:$|[_\W])|time|date|datum|zeit|stamp|epoch|utc", re.IGNORECASE
)  # fmt: skip
_CODE = re.compile(
    r"(?:^|[_.\W])(?:zip|zipcode|postal|postcode|plz|fips|phone|tel|isbn|ean|upc|iban|sku|code|hash|hex|uuid|mac)"
    r"(?:$|[_\W])|[a-z](?:Code|Zip|Phone|Hash|Hex)\b",
)  # fmt: skip
_EPOCHS = (("epoch s", 1.0), ("epoch ms", 1e3), ("epoch us", 1e6), ("epoch ns", 1e9))


@dataclass(slots=True)
class Seen:
    """What a column had: how many values, how many were missing, and which. `epoch`: how its numbers may be times,
    though its name does not say so."""

    name: str
    route: str
    values: list[str] = field(default_factory=list)
    missing: int = 0
    kinds: set[str] = field(default_factory=set)
    type: str = "text"
    format: str = ""
    epoch: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def field_name(self) -> str:
        made = re.sub(r"\W+", "_", self.name).strip("_")
        made = "".join(c if f"a{c}".isidentifier() else "_" for c in made) or "field"
        made = made if made.isidentifier() else f"f_{made}"
        return f"{made}_" if made.lower() in RESERVED else made


@dataclass(slots=True)
class Proposal:
    """A mapping to look at and change."""

    format: str
    name: str
    columns: list[Seen]
    options: dict[str, Any]
    rows: int
    notes: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """The mapping as TOML, with what was seen as comments."""
        return "\n".join(_toml(self)) + "\n"


def infer(samples: Iterable[str | os.PathLike[str]], *, format: str | None = None, rows: int = ROWS) -> Proposal:
    """A proposal from the first rows of files; `format` is guessed from names and contents if it is not given."""
    if format not in (None, "csv", "json", "parquet"):
        raise ExecutionError(
            f"infer: expected csv, json or parquet, found {format}; a pattern for text is yours to write"
        )
    found = find_samples([samples] if isinstance(samples, str | os.PathLike) else samples)
    looking = _Looking(format, rows, notes=found.notes)
    for path in sorted(found.files, key=lambda each: -each.stat().st_size):  # the largest says what kind all are of
        try:
            looking.at(path)
        except Unsampled as problem:
            looking.notes.append(f"{path}: {problem}")
    if not looking.count:
        shown = "; ".join(looking.notes) or ", ".join(map(str, found.files))
        raise ExecutionError(f"infer: expected records, found none: {shown}")
    return looking.proposal(found.name)


@dataclass(slots=True)
class _Looking:
    """The records of one file after the other."""

    format: str | None
    rows: int
    notes: list[str]
    table: dict[str, Seen] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    looked: bool = False
    guessed: bool = False

    def at(self, path: Path) -> None:
        """Take in the first records of a file; Unsampled if it is not like the larger ones before it."""
        format = self.format if self.format and not self.guessed else guess_format(path)
        if self.format and format != self.format:
            raise Unsampled(f"it looks like {format} and is left out: larger files are {self.format}")
        if format == "parquet":
            records: Iterable[list[tuple[Route, Any]]] = (list(_flat(row, ())) for row in parquet_rows(path, self.rows))
        else:
            data, whole = read_start(path, self.rows)
            text, encoding = decode(data, whole=whole)
            found: dict[str, Any] = {} if encoding == "utf-8" else {"encoding": encoding}
            if format == "json":
                records = [list(_flat(each, ())) for each in json_objects(data, text, self.rows)]
                if not records and data.strip():
                    raise Unsampled("expected one JSON object a line, or an array of objects; found none")
            else:
                dialect = find_dialect(lines_of(text), self.rows)
                if dialect is None:
                    return
                records = list(self.csv(path, dialect, found))
            self.agree(path, found)
        self.guessed = self.guessed or self.format is None
        self.format = format
        for record in records:
            self.record(record)

    def agree(self, path: Path, found: dict[str, Any]) -> None:
        """The first file says how all are written; of others it is said where they differ, and those are left out that
        are parted in another way."""
        if not self.looked:
            self.looked = True
            self.options.update(found)
            return
        for name in sorted({*found, *self.options} - {"missing"}):
            if found.get(name) != self.options.get(name):
                here, before = (json.dumps(each.get(name), ensure_ascii=False) for each in (found, self.options))
                differs = f"{name} is {here} in it, and {before} in larger files"
                if name in ("delimiter", "header", "columns"):
                    raise Unsampled(f"it is left out: {differs}")
                self.notes.append(f"{path}: {differs}")

    def csv(self, path: Path, dialect: Dialect, options: dict[str, Any]) -> Iterator[list[tuple[Route, Any]]]:
        """The records of a CSV file, with the options that its dialect needs."""
        names = dialect.names
        if self.table and not {str(Route("", (name,))) for name in names} & self.table.keys():
            raise Unsampled("it is left out: none of its columns is in larger files")
        if dialect.delimiter != ",":
            options["delimiter"] = dialect.delimiter
        if dialect.multiline:
            options["multiline"] = True
        if dialect.comment:
            options["comment"] = dialect.comment
        if not dialect.header:
            options.update(header=False, columns=names)
        twice = {name for name, often in Counter(names).items() if name and often > 1}
        if left := [f"column {i + 1} has no name" for i, name in enumerate(names) if not name]:
            self.notes.append(f"{path}: {', '.join(left)}, and is left out; give it one to read it")
        for name in sorted(twice):
            self.notes.append(f"{path}: {json.dumps(name)} names more than one column, and is left out")
        taken = [(i, Route("", (name,))) for i, name in enumerate(names) if name and name not in twice]
        if not taken:
            raise Unsampled("expected columns with names, found none")
        for row in dialect.rows:
            if len(row) == len(names):
                yield [(route, row[i]) for i, route in taken]

    def record(self, record: list[tuple[Route, Any]]) -> None:
        self.count += 1
        for route, value in record:
            seen = self.table.setdefault(str(route), Seen(_name(route), str(route)))
            if value is None or value == "" or (self.format == "csv" and value in _MISSING):
                if value:
                    self.options["missing"] = sorted({*self.options.get("missing", []), value})
            else:
                seen.values.append(value if isinstance(value, str) else _as_text(value))
                seen.kinds.add("text" if isinstance(value, str) else type(value).__name__)

    def proposal(self, name: str) -> Proposal:
        """What the mapping may look like, from all that was seen."""
        columns = list(self.table.values())
        texts = [tuple(dict.fromkeys(seen.values)) for seen in columns if seen.values]
        numerals = find_numerals(texts, self.options.get("delimiter", ",")) if self.format == "csv" else PLAIN
        if numerals.decimal != ".":
            self.options["decimal"] = numerals.decimal
        if numerals.thousands:
            self.options["thousands"] = numerals.thousands
        for seen in columns:
            seen.missing = self.count - len(seen.values)
            _decide(seen, numerals)
        if not any(seen.type == "timestamp" and not seen.missing for seen in columns):
            for seen in columns:
                if seen.epoch and not seen.missing:
                    seen.type, seen.format = "timestamp", seen.epoch
                    break
        names: Counter[str] = Counter()
        for seen in columns:
            first = seen.field_name
            while seen.field_name in names:
                names[first] += 1
                seen.name = f"{first}_{names[first]}"
            names[seen.field_name] += 1
        return Proposal(self.format or "csv", name, columns, self.options, self.count, self.notes)


def _name(route: Route) -> str:
    return "_".join(str(step) for step in route.steps)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _flat(found: dict[str, Any], steps: tuple[Any, ...]) -> Iterator[tuple[Route, Any]]:
    for name, value in found.items():
        if isinstance(value, dict) and value and len(steps) < 4:
            yield from _flat(value, (*steps, name))
        elif not isinstance(value, dict | list):
            yield Route("", (*steps, name)), value
        else:
            yield Route("", (*steps, name)), json.dumps(value, default=str)


# ── deciding ──


def _decide(seen: Seen, numerals: Numerals) -> None:
    """The type of a column: the narrowest that all its values have, with a note of why."""
    values = seen.values
    if not values:
        seen.notes.append("no value seen")
        return
    distinct = Counter(values)
    seen.notes.append(f"{len(distinct):,} distinct")
    texts = list(distinct)
    if seen.kinds == {"bytes"}:
        seen.type = "bytes"
    elif {text.lower() for text in texts} <= {"true", "false"}:
        seen.type = "bool"
    elif format := _digits_of_time(seen, texts):
        seen.type, seen.format = "timestamp", format
        seen.notes.append(f"like {values[0]}; without a zone: set zone")
    elif reason := _kept_as_text(seen, texts, numerals):
        seen.notes.append(reason)
    elif numerals.are_whole(texts):
        _whole(seen, numerals)
    elif numerals.are_numbers(texts):
        _fraction(seen, texts, numerals)
    elif all(_ISO.match(text) for text in texts):
        _iso(seen)
    elif fits := [each for each in _FORMATS if all(_is_time(text, each) for text in texts)]:
        _by_format(seen, fits)
    else:
        _text(seen, distinct)


def _kept_as_text(seen: Seen, texts: list[str], numerals: Numerals) -> str:
    """Why texts that could be numbers are none."""
    if not numerals.are_numbers(texts) or seen.kinds & {"int", "float", "Decimal"}:
        return ""
    if may_be_hexadecimal(texts):
        return f"may be hexadecimal, as {next(t for t in texts if 'e' in t.lower())} is: text"
    if _CODE.search(seen.name) or _CODE.search(seen.name.lower()):
        return "a code, as its name says: text"
    if all(text.startswith("+") and len(text) > 8 for text in texts):
        return "may be telephone numbers: text"
    return ""


def _digits_of_time(seen: Seen, texts: list[str]) -> str:
    """A format for times that are written as digits only, of this century and the last."""
    sizes = {len(text) for text in texts}
    format = _DIGITS.get(next(iter(sizes))) if len(sizes) == 1 else None
    if format is None or not all(text[:2] in ("19", "20") and text.isdecimal() for text in texts):
        return ""
    timely = _TIMELY.search(seen.name) or (_in_order([float(v) for v in seen.values]) and format == _DIGITS[14])
    return format if timely and all(_is_time(text, format) for text in texts) else ""


def _whole(seen: Seen, numerals: Numerals) -> None:
    numbers = [numerals.whole(text) for text in seen.values]
    low, high = min(numbers), max(numbers)
    seen.notes.append(f"{low:,} to {high:,}")
    _say_numerals(seen, numerals)
    if low < -(1 << 63) or high >= 1 << 64:
        seen.type = "text"
        seen.notes.append("too large for 64 bits: text")
    elif high >= 1 << 63:
        seen.type = "u64" if low >= 0 else "text"
    else:
        seen.type = "i32" if low >= -(1 << 30) and high < 1 << 30 else "i64"
        _epoch(seen, [float(each) for each in numbers])


def _fraction(seen: Seen, texts: list[str], numerals: Numerals) -> None:
    numbers = [numerals.value(text) for text in seen.values]
    finite = [each for each in numbers if abs(each) < float("inf")] or [0.0]
    seen.type = "f64"
    seen.notes.append(f"{min(finite):g} to {max(finite):g}")
    _say_numerals(seen, numerals)
    if len(finite) == len(numbers):
        _epoch(seen, numbers)


def _say_numerals(seen: Seen, numerals: Numerals) -> None:
    marked = [text for text in seen.values if "," in text]
    if not marked:
        return
    if numerals.thousands == ",":
        other = ", or decimal commas" if is_ambiguous(seen.values) else ""
        seen.notes.append(f"{marked[0]} is {numerals.value(marked[0]):,.10g}: commas between thousands{other}")
    else:
        other = ", or commas between thousands" if is_ambiguous(seen.values) else ""
        seen.notes.append(f"decimal commas{other}")


def _iso(seen: Seen) -> None:
    seen.type, seen.format = "timestamp", "iso"
    zoned = all(re.search(r"(?:Z|[+-]\d\d:?\d\d)\Z", value) for value in seen.values)
    zones = "with a zone" if zoned else "without a zone: set zone"
    seen.notes.append(f"{min(seen.values)} to {max(seen.values)}, {zones}")


def _by_format(seen: Seen, fits: list[str]) -> None:
    seen.type, seen.format = "timestamp", fits[0]
    other = f", or {fits[1]}: day and month may be the other way round" if len(fits) > 1 else ""
    zone = "" if "%z" in fits[0] else f"{other}; without a zone: set zone"
    seen.notes.append(f"like {seen.values[0]}{zone}")


def _text(seen: Seen, distinct: Counter[str]) -> None:
    if all(re.fullmatch(r"[+-]?\d+", text) for text in distinct):
        seen.notes.append("digits with leading zeros: text")
    elif all(re.fullmatch(r"[0-9a-fA-F]+", text) for text in distinct):
        seen.notes.append("may be hexadecimal")
    shown = [text for text, _ in distinct.most_common(4)]
    seen.notes.append("such as " + ", ".join(json.dumps(text[:40], ensure_ascii=False) for text in shown))
    named = all(re.fullmatch(r"[^\W\d]\w*", text) for text in distinct)
    if len(distinct) <= DISTINCT < len(seen.values) / 4 and named:
        seen.notes.append(f"may be enum({', '.join(sorted(distinct))})")


def _epoch(seen: Seen, numbers: list[float]) -> None:
    """Numbers that are times: between 1990 and 2100 if the column is called like one; else in this part of the century
    and mostly one after the other, and then it is for the whole file to say whether there is a better one."""
    timely = _TIMELY.search(seen.name) is not None
    first, last = (6.3e8, 4.1e9) if timely else (1e9, 2.2e9)
    for name, scale in _EPOCHS:
        if all(first * scale <= each <= last * scale for each in numbers):
            when = f"{name}: {_when(min(numbers) / scale)} to {_when(max(numbers) / scale)}"
            if timely:
                seen.type, seen.format = "timestamp", name
                seen.notes.append(when)
            elif _in_order(numbers) and len(set(numbers)) > 1:
                seen.epoch = name
                seen.notes.append(f"may be {when}")
            return


def _in_order(numbers: Sequence[float]) -> bool:
    steps = len(numbers) - 1
    return steps > 0 and sum(1 for a, b in pairwise(numbers) if a <= b) >= IN_ORDER * steps


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _is_time(text: str, format: str) -> bool:
    try:
        datetime.strptime(text, format)
    except ValueError:
        return False
    return True


# ── writing ──


def _toml(made: Proposal) -> Iterator[str]:
    """The proposal as a mapping file, with comments for what its reader has to decide."""
    time = next((each for each in made.columns if each.type == "timestamp" and not each.missing), None)
    own = [each for each in made.columns if each is not time]
    yield f"# Proposed from {made.rows:,} records. Look at each line before you trust it."
    for note in made.notes:
        yield "# " + " ".join(note.splitlines())
    yield f"format = {_string(made.format)}"
    yield f"channel = {_string(re.sub(r'[^A-Za-z0-9_-]+', '_', made.name).strip('_') or 'events')}"
    if time is None:
        yield "# No column that is a time in every record was seen: name the one that is, or all are in the quarantine."
        yield f'time = {{ from = {_string(_first(own))}, format = "iso" }}'
    else:
        yield f"# {'; '.join(time.notes)}"
        zone = ', zone = "UTC"' if not time.format.startswith("epoch") and "%z" not in time.format else ""
        yield f"time = {{ from = {_string(time.route)}, format = {_string(time.format)}{zone} }}"
    yield f'source = {{ value = {_string(made.name)} }}  # or {{ from = "column" }}: who each event is of'
    yield ""
    yield "[type]"
    yield f"name = {_string(re.sub(r'[^A-Za-z0-9]+', ' ', made.name).title().replace(' ', '') or 'Event')}"
    yield 'fields = """'
    for each in own:
        yield f"    {each.field_name}: {each.type}{'?' if each.missing else ''},"
    yield '"""'
    if made.options:
        yield ""
        yield "[options]"
        for name, value in made.options.items():
            yield f"{name} = {_value(value)}"
    yield ""
    yield "[fields]"
    for each in own:
        notes = [*each.notes, f"{each.missing:,} missing"] if each.missing else each.notes
        yield f"# {each.field_name}: {'; '.join(notes)}"
        if each.type == "timestamp":
            zone = ', zone = "UTC"' if not each.format.startswith("epoch") and "%z" not in each.format else ""
            yield f"{each.field_name} = {{ from = {_string(each.route)}, format = {_string(each.format)}{zone} }}"
        elif each.route != each.field_name:
            yield f"{each.field_name} = {_string(each.route)}"


def _first(columns: list[Seen]) -> str:
    return columns[0].route if columns else "time"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "[" + ", ".join(_string(each) for each in value) + "]" if isinstance(value, list) else _string(value)
