"""An event type and a mapping proposed from a sample, with what was seen in it.

    print(infer(["visits.csv"]).toml())

Nothing is read into it that a person would not: numbers with a leading zero stay text, a column is a number or a time
only if all its values are, and a decimal comma is one only where cells are not parted by it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import ExecutionError
from headwater.spark.ingest.paths import Route
from headwater.store.log.schema import RESERVED

ROWS = 10_000
DISTINCT = 12  # values that may be an enumeration
_INT = re.compile(r"[+-]?(?:0|[1-9]\d*)\Z")
_FLOAT = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?\Z|[+-]?\.\d+(?:[eE][+-]?\d+)?\Z")
_COMMA = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:,\d+)?(?:[eE][+-]?\d+)?\Z")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})*(?:,\d+)?\Z")
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z")
_FORMATS = ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y",
            "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d", "%Y%m%d%H%M%S",
            "%Y%m%d %H:%M:%S", "%d %b %Y %H:%M:%S", "%d/%b/%Y:%H:%M:%S %z")  # fmt: skip
_MISSING = ("NA", "N/A", "NULL", "null", "None", "-")
_TIMELY = re.compile(r"(?:^|[_.\W])(?:time|timestamp|date|ts|when|at|datetime|t)(?:$|[_\W])", re.IGNORECASE)


@dataclass(slots=True)
class Seen:
    """What a column had: how many values, how many were missing, and which."""

    name: str
    route: str
    values: list[str] = field(default_factory=list)
    missing: int = 0
    kinds: set[str] = field(default_factory=set)
    type: str = "text"
    format: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def field_name(self) -> str:
        made = re.sub(r"\W+", "_", self.name).strip("_") or "field"
        made = made if not made[0].isdigit() else f"f_{made}"
        return f"{made}_" if made.lower() in RESERVED else made


@dataclass(slots=True)
class Proposal:
    """A mapping to look at and change."""

    format: str
    name: str
    columns: list[Seen]
    options: dict[str, Any]
    rows: int
    explode: tuple[str, str] | None = None

    def toml(self) -> str:
        """The mapping as TOML, with what was seen as comments."""
        return "\n".join(_toml(self)) + "\n"


def infer(samples: Iterable[str | os.PathLike[str]], *, format: str | None = None, rows: int = ROWS) -> Proposal:
    """A proposal from the first rows of files; `format` is guessed from names and contents if it is not given."""
    paths = [Path(each) for each in ([samples] if isinstance(samples, str | os.PathLike) else samples)]
    if not paths:
        raise ExecutionError("infer: expected a sample, found none")
    kind = format or _format(paths[0])
    table: dict[str, Seen] = {}
    options: dict[str, Any] = {}
    count = 0
    for path in paths:
        for record in _records(path, kind, options, rows):
            count += 1
            for route, value in record:
                seen = table.setdefault(str(route), Seen(_name(route), str(route)))
                if value is None or value == "":
                    seen.missing += 1
                else:
                    seen.values.append(value if isinstance(value, str) else _as_text(value))
                    seen.kinds.add("text" if isinstance(value, str) else type(value).__name__)
    if not count:
        raise ExecutionError(f"infer: expected records in {', '.join(map(str, paths))}, found none")
    for seen in table.values():
        seen.missing = count - len(seen.values) if kind == "json" else seen.missing
        _decide(seen, options)
    columns = list(table.values())
    names: Counter[str] = Counter()
    for seen in columns:
        names[seen.field_name] += 1
        if names[seen.field_name] > 1:
            seen.name = f"{seen.name}_{names[seen.field_name]}"
    return Proposal(kind, paths[0].name.partition(".")[0], columns, options, count)


def _name(route: Route) -> str:
    return "_".join(str(step) for step in route.steps)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# ── reading ──


def _format(path: Path) -> str:
    names = [suffix.lower() for suffix in path.suffixes]
    if ".parquet" in names:
        return "parquet"
    start = _start(path, 4096).lstrip()
    return "json" if start.startswith("{") else "csv"


def _bytes(path: Path, size: int) -> bytes:
    try:
        if path.is_dir():
            path = next(p for p in sorted(path.rglob("*")) if p.is_file() and p.name[0] not in "._")
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return bytes(file.read(size))
    except StopIteration:
        raise ExecutionError(f"infer: expected files in {path}, found none") from None
    except (OSError, EOFError) as error:
        raise ExecutionError(f"infer: {path} cannot be read: {error}") from None


def _start(path: Path, size: int, options: dict[str, Any] | None = None) -> str:
    data = _bytes(path, size)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        try:
            whole = data if len(data) < size else data[: data.rfind(b"\n") + 1]  # a character may be cut at the end
            whole.decode("utf-8-sig")
            encoding = "utf-8-sig"
        except UnicodeDecodeError:
            encoding = "cp1252"
    if options is not None and encoding != "utf-8-sig":
        options["encoding"] = encoding
    return data.decode(encoding, "replace")


def _records(path: Path, kind: str, options: dict[str, Any], rows: int) -> Iterator[list[tuple[Route, Any]]]:
    if kind == "parquet":
        yield from _parquet(path, rows)
        return
    text = _start(path, 64 << 20, options)
    if kind == "json":
        for line in text.splitlines()[:rows]:
            if line.strip():
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict):
                    yield list(_flat(found, ()))
        return
    if kind != "csv":
        raise ExecutionError(
            f"infer: expected csv, json or parquet, found {kind}; a pattern for text is yours to write"
        )
    yield from _csv(text, options, rows)


def _csv(text: str, options: dict[str, Any], rows: int) -> Iterator[list[tuple[Route, Any]]]:
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    if not lines:
        return
    delimiter = options.get("delimiter") or _delimiter(lines)
    if delimiter != ",":
        options["delimiter"] = delimiter
    table = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(cell.strip() for cell in row)]
    head = table[0]
    named = all(cell.strip() and not _FLOAT.match(cell) and not _ISO.match(cell) for cell in head)
    named = named and len(set(head)) == len(head)
    if any("\n" in cell for row in table[:rows] for cell in row):
        options["multiline"] = True
    if named:
        names = [cell.strip() for cell in head]
        table = table[1:]
    else:
        names = [f"c{i + 1}" for i in range(len(head))]
        options.update(header=False, columns=names)
    for row in table[:rows]:
        if len(row) == len(names):
            cells = [None if cell in _MISSING else cell for cell in row]
            if any(cell in _MISSING for cell in row):
                options["missing"] = sorted({*options.get("missing", []), *(c for c in row if c in _MISSING)})
            yield [(Route("", (name,)), cell) for name, cell in zip(names, cells, strict=True)]


def _delimiter(lines: list[str]) -> str:
    """The sign that parts most lines in as many cells, the more the better; dirty lines do not count for much."""
    best, most = ",", (1, 0.0)
    for sign in ";\t,|: ":
        counts = Counter(len(row) for row in csv.reader(lines, delimiter=sign) if row)
        cells, often = counts.most_common(1)[0]
        share = often / len(lines)
        if cells > 1 and share >= (0.95 if sign in ": " else 0.6) and (cells, share) > most:
            best, most = sign, (cells, share)
            if sign in ";\t":
                break
    return best


def _flat(found: dict[str, Any], steps: tuple[Any, ...]) -> Iterator[tuple[Route, Any]]:
    for name, value in found.items():
        if isinstance(value, dict) and value and len(steps) < 4:
            yield from _flat(value, (*steps, name))
        elif not isinstance(value, dict | list):
            yield Route("", (*steps, name)), value
        else:
            yield Route("", (*steps, name)), json.dumps(value)


def _parquet(path: Path, rows: int) -> Iterator[list[tuple[Route, Any]]]:
    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(rows), None)
    except (OSError, pa.ArrowException) as error:
        raise ExecutionError(f"infer: {path} cannot be read: {error}") from None
    for row in batch.to_pylist() if batch is not None else []:
        yield list(_flat(row, ()))


# ── deciding ──


def _decide(seen: Seen, options: dict[str, Any]) -> None:
    values = seen.values
    if not values:
        seen.notes.append("no value seen")
        return
    distinct = Counter(values)
    seen.notes.append(f"{len(distinct):,} distinct")
    flags = {v.lower() for v in distinct}
    if flags <= {"true", "false"}:
        seen.type = "bool"
    elif all(_INT.match(v) for v in distinct):
        _whole(seen, [int(v) for v in distinct])
    elif all(_FLOAT.match(v) for v in distinct):
        numbers = [float(v) for v in distinct]
        seen.type = "f64"
        seen.notes.append(f"{min(numbers):g} to {max(numbers):g}")
        _epoch(seen, numbers)
    elif all(_COMMA.match(v) for v in distinct) and options.get("delimiter", ",") != ",":
        seen.type, options["decimal"] = "f64", ","
        seen.notes.append("decimal commas")
    elif all(_GROUPED.match(v) for v in distinct) and any("," in v for v in distinct):
        seen.type, options["decimal"], options["thousands"] = "f64", ",", "."
        seen.notes.append("decimal commas, and points between thousands")
    elif all(_ISO.match(v) for v in distinct):
        seen.type, seen.format = "timestamp", "iso"
        zones = (
            "with a zone"
            if all(re.search(r"(?:Z|[+-]\d\d:?\d\d)\Z", v) for v in values)
            else "without a zone: set zone"
        )
        seen.notes.append(f"{min(values)} to {max(values)}, {zones}")
    elif fits := [f for f in _FORMATS if all(_is_time(v, f) for v in distinct)]:
        seen.type, seen.format = "timestamp", fits[0]
        other = f", or {fits[1]}: day and month may be the other way round" if len(fits) > 1 else ""
        seen.notes.append(
            f"like {values[0]}{other}; without a zone: set zone" if "%z" not in fits[0] else f"like {values[0]}"
        )
    else:
        if all(re.fullmatch(r"[+-]?\d+", v) for v in distinct):
            seen.notes.append("digits with leading zeros: text")
        shown = [v for v, _ in distinct.most_common(4)]
        seen.notes.append("such as " + ", ".join(json.dumps(v[:40], ensure_ascii=False) for v in shown))
        if len(distinct) <= DISTINCT < len(values) / 4 and all(re.fullmatch(r"[^\W\d]\w*", v) for v in distinct):
            seen.notes.append(f"may be enum({', '.join(sorted(distinct))})")


def _whole(seen: Seen, numbers: list[int]) -> None:
    low, high = min(numbers), max(numbers)
    seen.notes.append(f"{low:,} to {high:,}")
    if low < -(1 << 63) or high >= 1 << 64:
        seen.type = "text"
        seen.notes.append("too large for 64 bits: text")
    elif high >= 1 << 63:
        seen.type = "u64" if low >= 0 else "text"
    else:
        seen.type = "i32" if low >= -(1 << 30) and high < 1 << 30 else "i64"
        _epoch(seen, [float(each) for each in numbers])


def _epoch(seen: Seen, numbers: list[float]) -> None:
    """Numbers that are times between 1990 and 2100, if the column is called like one."""
    if not _TIMELY.search(seen.name):
        return
    for name, scale in (("epoch s", 1.0), ("epoch ms", 1e3), ("epoch us", 1e6)):
        if all(6.3e8 * scale <= each <= 4.1e9 * scale for each in numbers):
            seen.type, seen.format = "timestamp", name
            seen.notes.append(f"{name}: {_when(min(numbers) / scale)} to {_when(max(numbers) / scale)}")


def _when(seconds: float) -> str:
    from datetime import UTC

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _is_time(text: str, format: str) -> bool:
    try:
        datetime.strptime(text, format)
    except ValueError:
        return False
    return "%Y%m%d%H" not in format or len(text) == 14


# ── writing ──


def _toml(made: Proposal) -> Iterator[str]:
    time = next((each for each in made.columns if each.type == "timestamp" and not each.missing), None)
    own = [each for each in made.columns if each is not time]
    yield f"# Proposed from {made.rows:,} records. Look at each line before you trust it."
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
