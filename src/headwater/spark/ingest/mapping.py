"""What becomes of input records: one frozen value, from a TOML file or from Python.

    format = "json"                              # csv, json (one object a line), parquet, text (by a pattern)
    channel = "hub.sighting"
    type = "badge: text, seen: text, rssi: i32"  # or a table with name and fields
    time = { from = "data.timestamp", format = "epoch s" }
    source = { from = "data.badge_address" }     # or { value = "hub" }
    explode = { from = "data.rssi_distances", kind = "entries" }

    [fields]                                     # a field that is not named here comes from the column of its name
    badge = "data.member"
    seen = "@key"
    rssi = { from = "@value.rssi", default = 0 }

Everything that is wrong with a mapping is said at once (`ConfigError`), each with its place.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.channel.names import check_name
from headwater.channel.options.settings import near, quoted, read_toml, show, unknown
from headwater.errors import ChannelError, ConfigError, ConfigProblem, TypeDeclarationError
from headwater.spark.ingest.paths import Route, parse_route
from headwater.spark.ingest.times import TimeFormat, parse_time_format, zone_problem
from headwater.store.log.schema import RESERVED
from headwater.types import EventType, event_type
from headwater.types.declaration import parse_record
from headwater.types.model import BYTES, TIMESTAMP, Enum, Record

FORMATS = ("csv", "json", "parquet", "text")
KINDS = ("array", "entries")
DUPLICATES = ("keep", "report", "drop")
BYTE_FORMATS = ("utf-8", "hex", "base64")
_OPTIONS = ("delimiter", "header", "columns", "quote", "decimal", "thousands", "encoding", "multiline", "missing",
            "pattern", "comment")  # fmt: skip
_TOP = ("format", "channel", "type", "node", "time", "source", "fields", "explode", "late", "duplicates", "options")
_FIELD = ("from", "value", "default", "format", "zone", "enum")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a format is written. `missing`: texts that stand for a missing value, besides the empty cell;
    `multiline`: quoted cells of a CSV file may have line ends in them; `pattern`: a regular expression with named
    groups, for text; `comment`: what the lines of a CSV file begin with that are passed over."""

    delimiter: str = ","
    header: bool = True
    columns: tuple[str, ...] = ()
    quote: str = '"'
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    multiline: bool = False
    missing: tuple[str, ...] = ()
    pattern: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMap:
    """Where a value comes from: a `route` to it in the record, or a constant; and how it is read."""

    route: Route | None = None
    value: Any = None
    default: Any = None
    time: TimeFormat | None = None
    bytes: str = "utf-8"
    enum: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Explode:
    """One event for each element of an array, or for each entry of an object."""

    route: Route
    kind: str = "array"
    separator: str = ""


@dataclass(frozen=True, slots=True)
class Late:
    """Bounds in seconds; `arrival`: when a record was received, else the greatest time before it of its source is
    what it is late against."""

    bounds: tuple[float, ...] = ()
    arrival: FieldMap | None = None


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What becomes of events that are like one before, in all fields, or in those of the `key`."""

    what: str = "keep"
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestMapping:
    """How records become events. Make one with `IngestMapping.load(path)` or `IngestMapping.of(format=..., ...)`."""

    format: str
    channel: str
    type: EventType
    fields: tuple[tuple[str, FieldMap], ...]
    time: FieldMap
    source: FieldMap
    node: str = "ingest"
    explode: Explode | None = None
    late: Late = field(default_factory=Late)
    duplicates: Duplicates = field(default_factory=Duplicates)
    options: Options = field(default_factory=Options)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> IngestMapping:
        """From a TOML file."""
        return _Reader(f"{os.fspath(path)}:").read(read_toml(path))

    @classmethod
    def of(cls, **settings: Any) -> IngestMapping:
        """From Python, with the names and values of the TOML file; `type` may also be an event type or class."""
        return _Reader("mapping:").read(settings)

    @property
    def record(self) -> Record:
        return self.type.record


class _Reader:
    """Reads settings, and gathers what is wrong with them."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.problems: list[ConfigProblem] = []
        self.format = ""
        self.exploding = False

    def bad(self, where: str, expected: str, found: object, hint: str | None = None) -> None:
        shown = found if isinstance(found, str) and found.startswith("\0") else show(found)
        self.problems.append(ConfigProblem(f"{self.place} {where}", expected, shown.removeprefix("\0"), hint))

    def read(self, given: Mapping[str, Any]) -> IngestMapping:
        """The mapping, checked; problems are collected, so that one error names them all."""
        self.unknown(given, _TOP, "")
        self.format = self.one_of("format", given.get("format"), FORMATS) or "csv"
        channel = self.channel(given.get("channel"))
        kind = self.type(given.get("type"))
        options = self.options(self.table("options", given.get("options", {})))
        node = given.get("node", "ingest")
        if not isinstance(node, str) or not node or not node.isprintable():
            self.bad("node", "the name of a node", node)
            node = "ingest"
        explode = self.explode(given.get("explode"))
        self.exploding = explode is not None
        fields = self.fields(self.table("fields", given.get("fields", {})), kind)
        time = self.field_map("time", given.get("time"), TIMESTAMP, optional=False)
        source = self.field_map("source", given.get("source"), None, optional=False)
        late = self.late(given.get("late", {}))
        duplicates = self.duplicates(given.get("duplicates", "keep"), kind)
        if self.format in ("csv", "text"):
            self.flat([("time", time), ("source", source), *fields])
        if self.problems:
            raise ConfigError(self.problems)
        assert kind is not None and time is not None and source is not None
        return IngestMapping(
            format=self.format,
            channel=channel,
            type=kind,
            fields=tuple(fields),
            time=time,
            source=source,
            node=node,
            explode=explode,
            late=late,
            duplicates=duplicates,
            options=options,
        )

    # ── parts ──

    def channel(self, found: object) -> str:
        try:
            return check_name(found)
        except ChannelError as error:
            self.bad("channel", "the name of a channel", f"\0{error}")
            return ""

    def type(self, found: object) -> EventType | None:
        """The event type, from a declaration in the file or an event class."""
        name = self.place.rstrip(":").rpartition("/")[2].removesuffix(".toml").title() or "Event"
        name = "".join(c for c in name if c.isalnum()) or "Event"
        try:
            match found:
                case str():
                    kind = event_type(parse_record(found, name))
                case {"fields": str(fields), **rest} if set(rest) <= {"name"}:
                    kind = event_type(parse_record(fields, str(rest.get("name", name))))
                case None | Mapping():
                    self.bad(
                        "type", "fields such as 'badge: text, level: f64?', or a table with name and fields", found
                    )
                    return None
                case _:
                    kind = event_type(found)
        except TypeDeclarationError as error:
            self.bad("type", "an event type", f"\0{error}")
            return None
        for each in kind.record.fields:
            if each.name.lower() in RESERVED:
                self.bad(f"type {each.name}", "a name that the log has not taken", each.name, "rename the field")
        return kind

    def options(self, given: Mapping[str, Any]) -> Options:
        """How files are read: those settings that fit the format, each with a value that it takes."""
        self.unknown(given, _OPTIONS, "options.")
        made: dict[str, Any] = {}
        for name, value in given.items():
            place = f"options.{name}"
            match name:
                case "delimiter" | "quote" | "decimal":
                    if not (isinstance(value, str) and len(value) == 1):
                        self.bad(place, "one character", value)
                        continue
                case "thousands":
                    if not (isinstance(value, str) and len(value) <= 1):
                        self.bad(place, "one character, or none", value)
                        continue
                case "header" | "multiline":
                    if not isinstance(value, bool):
                        self.bad(place, "true or false", value)
                        continue
                case "columns" | "missing":
                    if not (isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)):
                        self.bad(place, "a list of texts", value)
                        continue
                    value = tuple(value)
                case "encoding":
                    if not _is_encoding(value):
                        self.bad(place, 'an encoding such as "utf-8", "latin-1", "cp1252", "utf-16"', value)
                        continue
                case "comment":
                    if not (isinstance(value, str) and value.strip() == value and value.isprintable()):
                        self.bad(place, 'what a comment begins with, such as "#"', value)
                        continue
                case "pattern":
                    if not self.pattern(value):
                        continue
            if name in _OPTIONS:
                made[name] = value
        options = Options(**made)
        self.fitting(options, made)
        return options

    def fitting(self, options: Options, made: Mapping[str, Any]) -> None:
        if self.format == "text" and not options.pattern:
            self.bad("options.pattern", "a regular expression with named groups, for text", "\0none")
        if self.format == "csv" and not options.header and not options.columns:
            self.bad("options.columns", "the names of the columns, for there is no header", "\0none")
        if options.decimal == options.thousands:
            self.bad("options.thousands", "another character than decimal", options.thousands)
        if len({options.delimiter, options.quote}) == 1:
            self.bad("options.quote", "another character than delimiter", options.quote)
        csv_only = (
            {"delimiter", "header", "columns", "quote", "multiline", "comment"} if self.format != "csv" else set()
        )
        text_only = {"pattern"} if self.format != "text" else set()
        for name in sorted((csv_only | text_only) & set(made)):
            of = "csv" if name in csv_only else "text"
            self.bad(f"options.{name}", f"no such option for {self.format}", made[name], f"it is one of {of}")

    def pattern(self, value: object) -> bool:
        try:
            names = re.compile(value).groupindex if isinstance(value, str) else {}
        except re.error as error:
            self.bad("options.pattern", "a regular expression", f"\0{error}")
            return False
        if not names:
            self.bad("options.pattern", "a regular expression with named groups: (?P<badge>\\w+)", value)
        return bool(names)

    def explode(self, found: object) -> Explode | None:
        if found is None:
            return None
        given = {"from": found} if isinstance(found, str) else self.table("explode", found)
        self.unknown(given, ("from", "kind", "separator"), "explode.")
        kind = self.one_of("explode.kind", given.get("kind", "array"), KINDS) or "array"
        separator = given.get("separator", "")
        flat = self.format in ("csv", "text")
        if not isinstance(separator, str) or (flat and not separator) or (separator and not flat):
            self.bad("explode.separator", "what is between the elements, in csv and text only", separator)
            separator = ","
        if flat and kind == "entries":
            self.bad("explode.kind", '"array", for csv and text', kind)
        route = self.route("explode.from", given.get("from"))
        if route is not None and route.start:
            self.bad("explode.from", "a place in the record", str(route))
        return None if route is None else Explode(route, kind, separator)

    def fields(self, given: Mapping[str, Any], kind: EventType | None) -> list[tuple[str, FieldMap]]:
        if kind is None:
            return []
        names = [each.name for each in kind.record.fields]
        for name in given:
            if name not in names:
                self.bad(f"fields.{name}", f"one of the fields {', '.join(names)}", name, near(name, names))
        made = []
        for each in kind.record.fields:
            found = self.field_map(f"fields.{each.name}", given.get(each.name, each.name), each.type, each.optional)
            if found is not None:
                made.append((each.name, found))
        return made

    def field_map(self, place: str, found: object, kind: Any, optional: bool) -> FieldMap | None:
        """From where a field comes, and how it is converted to its kind."""
        if found is None:
            self.bad(place, "a column, or a table with from, value, format, zone, default, enum", "\0none")
            return None
        given = {"from": found} if isinstance(found, str) else self.table(place, found)
        self.unknown(given, _FIELD, f"{place}.")
        if ("from" in given) == ("value" in given):
            self.bad(place, "either from or value", f"\0{'both' if 'from' in given else 'neither'}")
            return None
        made: dict[str, Any] = {"value": given.get("value"), "default": given.get("default")}
        if "from" in given:
            made["route"] = self.route(f"{place}.from", given["from"])
        if kind == TIMESTAMP:
            made["time"] = self.time(place, given)
        elif kind == BYTES and "format" in given:
            made["bytes"] = self.one_of(f"{place}.format", given["format"], BYTE_FORMATS) or "utf-8"
        elif "format" in given or "zone" in given:
            self.bad(place, "format and zone for a timestamp only", f"\0a field of type {kind or 'text'}")
        if "enum" in given:
            made["enum"] = self.enum(f"{place}.enum", given["enum"], kind)
        for name in ("value", "default"):
            if given.get(name) is not None and isinstance(given[name], dict | list):
                self.bad(f"{place}.{name}", "a plain value", given[name])
            elif given.get(name) is not None and isinstance(kind, Enum) and kind.code_of(str(given[name])) is None:
                members = [member for member, _ in kind.members]
                self.bad(f"{place}.{name}", f"one of {quoted(members)}", given[name], near(given[name], members))
        return FieldMap(**made)

    def time(self, place: str, given: Mapping[str, Any]) -> TimeFormat | None:
        found = parse_time_format(given.get("format", "iso"))
        if isinstance(found, str):
            self.bad(f"{place}.format", found, given.get("format"))
            return None
        zone = given.get("zone", "UTC")
        if problem := zone_problem(zone):
            self.bad(f"{place}.zone", problem, zone)
            return None
        return found.at(zone)

    def enum(self, place: str, found: object, kind: Any) -> tuple[tuple[str, str], ...]:
        if not isinstance(kind, Enum):
            self.bad(place, "a map for a field that is an enumeration", f"\0a field of type {kind or 'text'}")
            return ()
        members = [member for member, _ in kind.members]
        made = []
        for text, member in self.table(place, found).items():
            if member not in members:
                self.bad(f"{place}.{text}", f"one of {quoted(members)}", member, near(member, members))
            made.append((text, str(member)))
        return tuple(made)

    def late(self, found: object) -> Late:
        given = {"bounds": found} if isinstance(found, str | list | tuple) else self.table("late", found)
        self.unknown(given, ("bounds", "arrival"), "late.")
        bounds = given.get("bounds", ())
        made = []
        for text in [bounds] if isinstance(bounds, str) else bounds:
            match_ = _DURATION.fullmatch(text) if isinstance(text, str) else None
            if match_ is None:
                self.bad("late.bounds", 'durations such as "60s", "10m", "1h"', text)
            else:
                made.append(float(match_[1]) * _SECONDS[match_[2]])
        arrival = given.get("arrival")
        return Late(tuple(made), self.field_map("late.arrival", arrival, TIMESTAMP, True) if arrival else None)

    def duplicates(self, found: object, kind: EventType | None) -> Duplicates:
        given = {"what": found} if isinstance(found, str) else self.table("duplicates", found)
        self.unknown(given, ("what", "key"), "duplicates.")
        what = self.one_of("duplicates.what", given.get("what", "report"), DUPLICATES) or "keep"
        names = ["event_source", "event_time", *(each.name for each in kind.record.fields)] if kind else []
        key = given.get("key", ())
        for name in key if isinstance(key, list | tuple) else [key]:
            if kind and name not in names:
                self.bad("duplicates.key", f"some of {', '.join(names)}", name, near(name, names))
        return Duplicates(what, tuple(key) if isinstance(key, list | tuple) else (str(key),))

    # ── small things ──

    def flat(self, maps: Iterable[tuple[str, FieldMap | None]]) -> None:
        """CSV and text have cells and groups, no places within."""
        for name, found in maps:
            if found and found.route and len(found.route.steps) > (1 if found.route.start != "value" else 0):
                where = name if name in ("time", "source") else f"fields.{name}"
                self.bad(f"{where}.from", "the name of a column, for csv and text", str(found.route),
                         'a name with dots goes in quotes: \'"a.b"\'')  # fmt: skip

    def route(self, place: str, found: object) -> Route | None:
        made = parse_route(found) if isinstance(found, str) else "a column or a path such as a.b[0].c"
        if isinstance(made, str):
            self.bad(place, made, found)
            return None
        if made.start and not self.exploding:
            self.bad(place, "a place in the record, for nothing is exploded", found)
            return None
        return made

    def table(self, place: str, found: object) -> Mapping[str, Any]:
        if isinstance(found, Mapping):
            return found
        self.bad(place, "a table", found)
        return {}

    def one_of(self, place: str, found: object, words: tuple[str, ...]) -> str | None:
        if isinstance(found, str) and found in words:
            return found
        self.bad(place, f"one of {quoted(words)}", found, near(found, words))
        return None

    def unknown(self, given: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
        for name in given:
            if name not in known:
                self.problems.append(unknown(f"{self.place} {place}{name}", name, known))


def _is_encoding(value: object) -> bool:
    try:
        return isinstance(value, str) and codecs.lookup(value)._is_text_encoding
    except LookupError:
        return False
