"""A set of subscriptions, as it is tried out on recorded events: from a TOML file, a Python file, or made in code.

    channel = "orl.sighting"                 # optional: the channel they are for
    at = "office"                            # the node of the sinks, where a subscription does not say
    type = "badge: text, network: text"      # optional: the event type, where the log does not say
    log = "events"                           # for a study: the folder of the log, relative to the file
    title = "A day in the office"            # and what it is called

    [[subscription]]
    name = "god"                             # no interest: everything

    [[subscription]]
    name = "big brother of {kind}"           # one for each kind
    at = "security"
    where = ":kinds[badge] = :kind"          # or E-Code, or Python, with `notation` where that is not plain
    params = {kinds = {file = "badges.csv", key = "badge", value = "kind"}}
    each = {param = "kind", in = ["person", "equipment", "visitor"]}

Parameters are numbers, text, true, false and times; a list is a set, a table is a map. Both may come from a CSV file
with a header, named relative to the file: `{file, key, value}` is a map, `{file, column}` a set, and
`numbers = ["kind"]` says which of its columns hold numbers. `each` makes one subscription for each value: of a list, or
of `{file, column}`; several tables make one for each combination. `{param}` in `name` and `at` is the value. `output`
is the type that a transformation gives.

`[[pattern]]` asks for what several events say together (`patterns/asked.py`), `[[trigger]]` for what changes of objects
would have set off (`triggers/asked.py`).

A Python file has a list `subscriptions` of `Subscription`, `patterns` or `triggers`, and may have `channel`, `type`,
`log` and `title`. Whatever is wrong is a ConfigError with every problem and its place.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import runpy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.channel.options.settings import parse_toml, read_toml
from headwater.errors import ConfigError, ConfigProblem, HeadwaterError
from headwater.interest import NOTATIONS, Interest, Notation, as_event_type, check_syntax
from headwater.spark.backtest.patterns.asked import AskedPattern
from headwater.spark.backtest.triggers.asked import AskedTrigger, asked_of
from headwater.spelling import did_you_mean
from headwater.store.log.location import EXPECTED, local_folder, misplaced
from headwater.types import EventType

SINK = "sink"  # the node of sinks where nothing is said
MOST = 100_000  # subscriptions that `each` may make

_TOP = ("channel", "type", "at", "log", "title", "subscription", "pattern", "trigger")
_KEYS = ("name", "at", "where", "params", "notation", "output", "each")
_PATTERN = ("name", "at", "match", "params", "aliases")
_TABLE = ("file", "key", "value", "column", "numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What one sink wants. `where` is an interest in any notation, or an `Interest`; None is everything. `at` is the
    sink's node."""

    name: str
    where: str | Callable[..., Any] | Interest | None = None
    at: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    notation: Notation | None = None
    output: Any = None
    place: str = ""  # where it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriptions:
    """A set of them, in order. What the file does not say is None; `log` and `title` are for studies."""

    subscriptions: tuple[Subscription, ...]
    channel: str | None = None
    type: EventType | None = None
    place: str = "subscriptions"
    log: Path | None = None
    title: str | None = None
    patterns: tuple[AskedPattern, ...] = ()
    triggers: tuple[AskedTrigger, ...] = ()

    def __len__(self) -> int:
        return len(self.subscriptions)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription whose interest is made and checked."""

    name: str
    at: str
    interest: Interest | None


# ── from files ──


def load(path: str | os.PathLike[str]) -> Subscriptions:
    """The subscriptions of a file that ends in .toml or .py."""
    where = Path(path)
    if where.suffix == ".py":
        return _from_python(where)
    if where.suffix != ".toml":
        raise _one(str(where), "a file that ends in .toml or .py", repr(where.name))
    return _Reader(where.name, where.parent).read(read_toml(where))


def loads(text: str, *, where: str = "subscriptions", folder: str | os.PathLike[str] = ".") -> Subscriptions:
    """The same from the text of a TOML file; files of parameters are looked for in `folder`."""
    return _Reader(where, Path(folder)).read(parse_toml(text, where))


def _from_python(path: Path) -> Subscriptions:
    """What a file of Python has made, by its names."""
    try:
        found = runpy.run_path(str(path))
    except Exception as error:  # whatever such a file does when it is run
        raise _one(str(path), "a Python file that runs", f"{error.__class__.__name__}: {error}") from error
    asked, triggers = found.get("patterns", ()), found.get("triggers", ())
    made = found.get("subscriptions", [] if asked or triggers else None)
    if isinstance(made, Subscriptions):
        return made
    for name, many, kind in (("patterns", asked, AskedPattern), ("triggers", triggers, AskedTrigger)):
        if not isinstance(many, list | tuple) or not all(isinstance(each, kind) for each in many):
            raise _one(f"{path.name}: {name}", f"a list of {kind.__name__}", repr(many)[:60])
    if not isinstance(made, list | tuple):
        shown = "none" if made is None else type(made).__name__
        raise _one(f"{path.name}: subscriptions", "a list of Subscription", shown)
    given = checked(made, channel=found.get("channel"), type=found.get("type"), place=path.name)
    log, title = found.get("log"), found.get("title")
    if log is not None and not (isinstance(log, str | os.PathLike) and os.fspath(log)):
        raise _one(f"{path.name}: log", "the folder of a log", repr(log)[:60])
    if title is not None and not (isinstance(title, str) and title):
        raise _one(f"{path.name}: title", "text that is not empty", repr(title)[:60])
    return replace(given, log=None if log is None else path.parent / local_folder(log), title=title,
                   patterns=tuple(asked), triggers=tuple(triggers))  # fmt: skip


def checked(
    made: Iterable[Any], *, channel: Any = None, type: Any = None, place: str = "subscriptions"
) -> Subscriptions:
    """A set from subscriptions that were made in code."""
    problems: list[ConfigProblem] = []
    kept: list[Subscription] = []
    for number, each in enumerate(made, 1):
        at = f"{place}: subscription {number}"
        if not isinstance(each, Subscription):
            problems.append(ConfigProblem(at, "a Subscription", each.__class__.__name__))
            continue
        kept.append(each if each.place else replace(each, place=at))
        if isinstance(each.where, str):
            _check_syntax(each.where, each.notation, f"{at} {each.name!r} where", problems)
    if channel is not None and not isinstance(channel, str):
        problems.append(ConfigProblem(f"{place}: channel", "the name of a channel", repr(channel)))
    kind = None
    if type is not None:
        kind = _type(type, f"{place}: type", problems)
    _check_names(kept, problems)
    if problems:
        raise ConfigError(problems)
    return Subscriptions(subscriptions=tuple(kept), channel=channel, type=kind, place=place)


class _Reader:
    """Reads a whole file and keeps what is wrong with it."""

    def __init__(self, where: str, folder: Path) -> None:
        self.where, self.folder = where, folder
        self.problems: list[ConfigProblem] = []
        self._tables: dict[Path, list[dict[str, str]] | None] = {}

    def say(self, place: str, expected: str, found: str, hint: str | None = None) -> None:
        self.problems.append(ConfigProblem(f"{self.where}: {place}", expected, found, hint))

    def _folder(self, log: str) -> Path | None:
        elsewhere = misplaced(log)
        if elsewhere is not None:
            self.say("log", EXPECTED, f"{log!r}, {elsewhere}")
            return None
        return self.folder / local_folder(log)

    def read(self, found: Mapping[str, Any]) -> Subscriptions:
        """All that a file says, checked; problems are collected, so that one error names them all."""
        self.known(found, _TOP, "")
        channel, at = self._text(found, "channel", ""), self._text(found, "at", "")
        log, title = self._text(found, "log", ""), self._text(found, "title", "")
        folder = None if log is None else self._folder(log)
        kind = None
        if (declared := self._text(found, "type", "")) is not None:
            kind = _type(declared, f"{self.where}: type", self.problems)
        tables, patterns, triggers = (self._tables_of(found, name) for name in ("subscription", "pattern", "trigger"))
        if not tables and not patterns and not triggers:
            self.say("subscription", "at least one [[subscription]], [[pattern]] or [[trigger]]", "none")
        made: list[Subscription] = []
        for number, table in enumerate(tables, 1):
            made += self._subscription(number, table, at)
        asked = [self._pattern(number, table, at) for number, table in enumerate(patterns, 1)]
        tried = [asked_of(self, number, table) for number, table in enumerate(triggers, 1)]
        _check_names([*made, *asked, *tried], self.problems)
        if self.problems:
            raise ConfigError(self.problems)
        return Subscriptions(
            subscriptions=tuple(made),
            channel=channel,
            type=kind,
            place=self.where,
            log=folder,
            title=title,
            patterns=tuple(asked),
            triggers=tuple(tried),
        )

    def _tables_of(self, found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        tables = found.get(name, [])
        if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
            return tables
        self.say(name, f"tables, each under [[{name}]]", type(tables).__name__)
        return []

    def named(self, table: Mapping[str, Any], place: str, number: int) -> str:
        name = self._text(table, "name", place)
        if name is None and "name" not in table:
            self.say(f"{place} name", "a name", "none")
        return str(number) if name is None else name

    def _pattern(self, number: int, table: Mapping[str, Any], default: str | None) -> AskedPattern:
        """A pattern as it is written; it is checked when the channels are known."""
        place = f"pattern {number}"
        name = self.named(table, place, number)
        place = f"{place} {name!r}"
        self.known(table, _PATTERN, place)
        match = self._text(table, "match", place)
        if match is None and "match" not in table:
            self.say(f"{place} match", "a pattern, as text or MATCH_RECOGNIZE", "none")
        params = {key: self.param(value, f"{place} params.{key}") for key, value in self.table(table, "params", place)}
        aliases = {key: str(value) for key, value in self.table(table, "aliases", place)}
        return AskedPattern(name=name, match=match or "", at=self._text(table, "at", place) or default, params=params,
                            aliases=aliases, place=f"{self.where}: pattern {number}")  # fmt: skip

    def table(self, table: Mapping[str, Any], key: str, place: str) -> Iterable[tuple[str, Any]]:
        given = table.get(key, {})
        if isinstance(given, dict):
            return given.items()
        self.say(f"{place} {key}", "a table", type(given).__name__)
        return ()

    def _subscription(self, number: int, table: Mapping[str, Any], default: str | None) -> list[Subscription]:
        """The subscriptions of one table: one, or, with `each`, one for every value that it names."""
        place = f"subscription {number}"
        name = self.named(table, place, number)
        place = f"{place} {name!r}"
        self.known(table, _KEYS, place)
        at, where = self._text(table, "at", place) or default, self._text(table, "where", place)
        notation: Any
        notation, output = self._text(table, "notation", place), self._text(table, "output", place)
        if notation is not None and notation not in NOTATIONS:
            self.say(f"{place} notation", " or ".join(NOTATIONS), repr(notation))
            notation = where = None
        if where is not None:
            _check_syntax(where, notation, f"{self.where}: {place} where", self.problems)
        params = {}
        if not isinstance(given := table.get("params", {}), dict):
            self.say(f"{place} params", "a table of parameters", type(given).__name__)
        else:
            params = {key: self.param(value, f"{place} params.{key}") for key, value in given.items()}
        plain = Subscription(name=name, where=where, at=at, params=params, notation=notation, output=output,
                             place=f"{self.where}: subscription {number}")  # fmt: skip
        return self._expand(plain, table["each"], place) if "each" in table else [plain]

    def _expand(self, plain: Subscription, each: Any, place: str) -> list[Subscription]:
        """One for each value, or for each combination of values."""
        names, lists = [], []
        for table in each if isinstance(each, list) else [each]:
            if not isinstance(table, dict) or not isinstance(table.get("param"), str) or "in" not in table:
                self.say(f"{place} each", '{param = "name", in = [values]}', repr(table)[:60])
                continue
            self.known(table, ("param", "in"), f"{place} each")
            values = table["in"]
            if isinstance(values, dict):
                values = self.param(values, f"{place} each.in")
                if isinstance(values, Mapping):
                    self.say(f"{place} each.in", "a list, or {file, column}", "a map")
                    continue
                values = sorted(values) if values is not None else []
            if not isinstance(values, list) or not all(isinstance(v, str | int | float | bool) for v in values):
                self.say(f"{place} each.in", "a list of numbers or texts, or {file, column}", repr(values)[:60])
                continue
            names.append(table["param"])
            lists.append(list(dict.fromkeys(values)))
        count = 1
        for values in lists:
            count *= len(values)
        if count > MOST:
            self.say(f"{place} each", f"at most {MOST:,} subscriptions", f"{count:,}")
            return []
        made = []
        for chosen in itertools.product(*lists):
            values = dict(zip(names, chosen, strict=True))
            name, at = _filled(plain.name, values), _filled(plain.at, values) if plain.at is not None else None
            if name == plain.name and values:
                name = f"{name} {' '.join(map(str, chosen))}"
            read = {param: value for param, value in values.items() if _speaks_of(plain.where, param)}
            made.append(replace(plain, name=name, at=at, params={**plain.params, **read}))
        return made

    # ── parameters ──

    def param(self, value: Any, place: str) -> Any:
        match value:
            case list():
                if any(isinstance(member, list | dict) for member in value):
                    self.say(place, "a list of plain values, which is a set", "a list of lists or tables")
                    return None
                return frozenset(value)
            case {"file": _}:
                return self._from_file(value, place)
            case dict():
                return dict(value)
        return value

    def _from_file(self, table: Mapping[str, Any], place: str) -> Any:
        """The value of a parameter from a CSV file: a map of two columns, or a set of one."""
        self.known(table, _TABLE, place)
        if not isinstance(table["file"], str):
            self.say(f"{place} file", "the name of a CSV file", repr(table["file"]))
            return None
        rows = self._rows(table["file"], place)
        columns = [str(table[key]) for key in ("key", "value", "column") if key in table]
        if not (("key" in table and "value" in table) ^ ("column" in table)) or ("column" in table) == ("key" in table):
            self.say(place, "key and value for a map, or column for a set", ", ".join(table))
            return None
        numbers = table.get("numbers", [])
        if not isinstance(numbers, list) or any(name not in columns for name in numbers):
            self.say(f"{place} numbers", f"a list of columns among {', '.join(columns)}", repr(numbers))
            return None
        if rows is None:
            return None
        lacking = [name for name in columns if rows and name not in rows[0]]
        if lacking:
            self.say(place, f"columns {', '.join(columns)} in {table['file']}", f"columns {', '.join(rows[0])}")
            return None
        try:
            if len(columns) == 1:
                return frozenset(_value(row[columns[0]], columns[0] in numbers) for row in rows)
            key, of = columns
            return {_value(row[key], key in numbers): _value(row[of], of in numbers) for row in rows}
        except ValueError as error:
            self.say(place, f"numbers in {', '.join(numbers)} of {table['file']}", str(error))
            return None

    def _rows(self, name: str, place: str) -> list[dict[str, str]] | None:
        path = self.folder / name
        if path not in self._tables:
            try:
                with path.open(encoding="utf-8-sig", newline="") as file:
                    self._tables[path] = [
                        {key: value or "" for key, value in row.items() if key is not None}
                        for row in csv.DictReader(file)
                    ]
            except (OSError, UnicodeDecodeError, csv.Error) as error:
                self.say(f"{place} file", "a readable CSV file with a header", str(error))
                self._tables[path] = None
        return self._tables[path]

    # ── tables ──

    def known(self, table: Mapping[str, Any], keys: tuple[str, ...], place: str) -> None:
        for key in table:
            if key not in keys:
                hint = did_you_mean(key, keys)
                self.say(f"{place} {key}".strip(), f"one of {', '.join(keys)}", repr(key), hint)

    def _text(self, table: Mapping[str, Any], key: str, place: str) -> str | None:
        value = table.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        self.say(f"{place} {key}".strip(), "text that is not empty", repr(value)[:60])
        return None


def _value(text: str, number: bool) -> Any:
    if not number:
        return text
    return int(text) if text.strip().lstrip("+-").isdigit() else float(text)


def _speaks_of(where: object, param: str) -> bool:
    """Whether an interest may read a parameter; one that only names and nodes differ by is none of its own."""
    return not isinstance(where, str) or re.search(rf"\b{re.escape(param)}\b", where) is not None


def _filled(text: str, values: Mapping[str, Any]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def _type(declared: Any, place: str, problems: list[ConfigProblem]) -> EventType | None:
    try:
        return as_event_type(declared)
    except HeadwaterError as error:
        problems.append(ConfigProblem(place, "an event type, as in 'level: f64, network: text'", str(error)))
        return None


def _check_syntax(where: str, notation: Notation | None, place: str, problems: list[ConfigProblem]) -> None:
    """What is wrong with an interest on any event type is told when it is read, not when there is a type."""
    try:
        check_syntax(where, notation)
    except HeadwaterError as error:
        found = "\n    ".join(str(error).splitlines())
        problems.append(ConfigProblem(place, f"an interest in {notation or 'one of the notations'}", found))


def _check_names(made: Iterable[Subscription | AskedPattern | AskedTrigger], problems: list[ConfigProblem]) -> None:
    seen: dict[str, str] = {}
    for each in made:
        if not each.name:
            problems.append(ConfigProblem(f"{each.place} name", "text that is not empty", "''"))
        elif each.name in seen:
            hint = (
                "write {param} where the name shall have the value of each" if seen[each.name] == each.place else None
            )
            problems.append(ConfigProblem(f"{each.place} name", "a name of its own", f"{each.name!r} again", hint))
        seen[each.name] = each.place


def _one(place: str, expected: str, found: str) -> ConfigError:
    return ConfigError([ConfigProblem(place, expected, found)])


# ── on an event type ──


def resolve(given: Subscriptions, type: EventType) -> list[Wanted]:
    """Every interest made and checked on the event type; a ConfigError lists all that cannot be."""
    problems: list[ConfigProblem] = []
    made: list[Wanted] = []
    for each in given.subscriptions:
        try:
            made.append(Wanted(each.name, each.at or SINK, _interest(each, type)))
        except (HeadwaterError, TypeError, ValueError) as error:
            found = "\n    ".join(str(error).splitlines())
            problems.append(ConfigProblem(f"{each.place} {each.name!r} where", f"an interest on {type.name}", found))
    if problems:
        raise ConfigError(problems)
    return made


def _interest(given: Subscription, type: EventType) -> Interest | None:
    if given.where is None:
        if given.params or given.output is not None:
            raise ValueError("parameters or an output, but no interest that uses them")
        return None
    if isinstance(given.where, Interest):
        return given.where if given.where.type == type else given.where.on(type)
    return Interest(given.where, type, output=given.output, params=given.params, notation=given.notation)


__all__ = ["Subscription", "Subscriptions", "Wanted", "checked", "load", "loads", "resolve"]
