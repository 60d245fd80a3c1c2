"""The options of `format("headwater")`, checked on the driver before a task starts.

All problems are listed in one ConfigError. Spark does not mind the case of an option's name, and neither do we.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headwater.channel.names import check_name
from headwater.durations import UNITS, micros
from headwater.errors import ChannelError, ConfigError, ConfigProblem
from headwater.interest import NOTATIONS
from headwater.spelling import did_you_mean
from headwater.store.log.location import EXPECTED, local_folder, misplaced

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]+)")

Seqs = dict[str, dict[str, int]]
Start = Literal["earliest", "latest"] | Seqs

_PLACE = ("log", "connect", "federation", "security")
_INTEREST = ("where", "params", "notation", "output", "interest")
_READ = ("channel", *_PLACE, *_INTEREST, "startingOffsets")
BATCH = (*_READ, "endingOffsets", "pushFilters", "failOnDataLoss")
STREAM = (*_READ, "maxEventsPerBatch", "failOnDataLoss", "promises")
WRITE = ("channel", *_PLACE, "type", "staging", "query")
_SPARKS = ("path", "checkpointLocation", "queryName")  # Spark hands its own along


@dataclass(frozen=True, slots=True)
class Place:
    """Where the events are: a log's folder, or nodes that are reached over the network."""

    log: str | None = None
    connect: tuple[str, ...] = ()
    federation: str | None = None
    security: str | None = None

    def __str__(self) -> str:
        return f"the log in {self.log}" if self.log is not None else f"the nodes at {', '.join(self.connect)}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An interest as it was asked for, not yet checked against the channel's type."""

    where: str | None = None
    params: Mapping[str, Any] | None = None
    notation: str | None = None
    output: str | None = None
    package: str | None = None

    @property
    def everything(self) -> bool:
        return self.where is None and self.package is None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a batch read or a stream was asked for."""

    channel: str
    place: Place
    wanted: Wanted
    start: Start = "earliest"
    end: Seqs | None = None
    limit: int | None = None
    fail_on_loss: bool = True
    push: bool = False
    promises: int | None = None  # microseconds after its publication, at most, in which an event is in the log


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a batch write or a stream's sink was asked for."""

    channel: str
    place: Place
    type: str | None = None
    staging: str | None = None
    query: str | None = None
    checkpoint: str | None = None


class _Checker:
    def __init__(self, given: Mapping[str, str], names: tuple[str, ...], what: str) -> None:
        self.given = {name.lower(): value for name, value in given.items()}
        self.what = what
        self.problems: list[ConfigProblem] = []
        known = {name.lower(): name for name in names}
        for name in self.given:
            if name in known or name in (other.lower() for other in _SPARKS):
                continue
            elsewhere = {other.lower() for other in (*BATCH, *STREAM, *WRITE)}
            hint = did_you_mean(name, names) or f"the options of a {what} are {', '.join(names)}"
            if name in elsewhere:
                self.problem(name, f"an option of a {what}", f"{name!r}, which a {what} does not have", hint)
            else:
                self.problem(name, f"an option of a {what}", f"{name!r}", hint)

    def get(self, name: str) -> str | None:
        return self.given.get(name.lower())

    def problem(self, name: str, expected: str, found: str, hint: str | None = None) -> None:
        self.problems.append(ConfigProblem(f"option {name}", expected, found, hint))

    def finish(self) -> None:
        if self.problems:
            count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
            raise ConfigError(self.problems, f'format("headwater"): {count} in the options of this {self.what}')

    # ── one option each ──

    def channel(self) -> str:
        name = self.get("channel")
        if name is None:
            self.problem("channel", "the name of a channel", "none", 'add .option("channel", "ie.tcd.sighting")')
            return ""
        try:
            return check_name(name)
        except ChannelError as error:
            self.problem("channel", "the name of a channel", repr(name), str(error))
            return name

    def place(self, *, both: bool = False) -> Place:
        """`both`: what is published to nodes may be logged in a folder too."""
        log, path, connect = self.get("log"), self.get("path"), self.get("connect")
        if log is not None and path is not None:
            self.problem("log", "one folder", f"log={log!r} and the path {path!r}", "leave one of them out")
        log = log if log is not None else path
        ends = tuple(end.strip() for end in (connect or "").split(",") if end.strip())
        if log is not None and connect is not None and not both:
            self.problem("log", "either log or connect", "both",
                         "log reads a folder, connect asks nodes over the network; leave one of them out")  # fmt: skip
        elif log is None and connect is None:
            self.problem("log", "log (a folder) or connect (endpoints of nodes)", "neither",
                         'add .option("log", "events") or .option("connect", "tcp/host:7447")')  # fmt: skip
        elif connect is not None and not ends:
            self.problem("connect", "endpoints such as tcp/host:7447, with commas between them", repr(connect))
        elif log is not None and not log.strip():
            self.problem("log", "the folder of a log", repr(log))
        log = self._folder("log" if self.get("log") is not None else "path", log)
        federation, security = self.get("federation"), self.get("security")
        for name, value in (("federation", federation), ("security", security)):
            if value is not None and connect is None:
                self.problem(name, "it only beside connect", f"{value!r} without connect", "leave it out")
        return Place(log, ends, federation, security)

    def _folder(self, name: str, text: str | None) -> str | None:
        """A folder as the driver knows it: `~` is its user's, whoever runs the tasks."""
        if text is None or not text.strip():
            return text
        elsewhere = misplaced(text)
        if elsewhere is not None:
            self.problem(name, EXPECTED, f"{text!r}, {elsewhere}")
            return text
        return str(local_folder(text))

    def staging(self) -> str | None:
        return self._folder("staging", self.get("staging"))

    def wanted(self) -> Wanted:
        """Which events are wanted: by an interest that is given as text with its parameters, or packed."""
        where, package, output = self.get("where"), self.get("interest"), self.get("output")
        notation, params = self.get("notation"), self.get("params")
        if where is not None and package is not None:
            self.problem("where", "either where or interest", "both", "leave one of them out")
        if where is None:
            for name, value in (("params", params), ("notation", notation), ("output", output)):
                if value is not None:
                    self.problem(name, "it only beside where", f"{value!r} without where", "add where, or leave it out")
        if notation is not None and notation not in NOTATIONS:
            self.problem(
                "notation", f"one of {', '.join(NOTATIONS)}", repr(notation), did_you_mean(notation, NOTATIONS)
            )
        values: dict[str, Any] = {}
        if params is not None:
            found = self._json("params", params, 'an object in JSON such as {"limit": 0.5, "badges": ["a", "b"]}')
            for name, value in (found or {}).items():
                members = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
                if any(isinstance(member, list | dict) or member is None for member in members):
                    expected = f"{name}: a number, text, true or false, or a list or an object of these"
                    self.problem("params", expected, json.dumps(value)[:60])
                values[name] = frozenset(map(_hashable, value)) if isinstance(value, list) else value
        return Wanted(where, values, notation, output, package)

    def _json(self, name: str, text: str, expected: str) -> dict[str, Any] | None:
        try:
            found = json.loads(text)
        except ValueError as error:
            self.problem(name, expected, repr(text), str(error))
            return None
        if not isinstance(found, dict):
            self.problem(name, expected, repr(text))
            return None
        return found

    def seqs(self, name: str, text: str, words: tuple[str, ...]) -> Any:
        if text.lower() in words:
            return text.lower()
        expected = f'{" or ".join(words)}, or sequence numbers in JSON: {{"node": {{"source": 42}}}}'
        found = self._json(name, text, expected)
        if found is None:
            return words[0]
        for node, sources in found.items():
            if not isinstance(sources, dict) or not all(
                isinstance(seq, int) and not isinstance(seq, bool) and seq >= 0 for seq in sources.values()
            ):
                self.problem(name, expected, f"{json.dumps(sources)} for node {node!r}")
        return found

    def number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            value = 0
        if value < 1:
            self.problem(name, "a whole number of 1 or more", repr(text))
        return value

    def duration(self, name: str) -> int | None:
        """Microseconds."""
        text = self.get(name)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.strip())
        length = None if found is None or found[2] not in UNITS else micros(found[1], found[2])
        if length is None:
            self.problem(name, "a length of time such as '2 seconds' or '500 ms'", repr(text))
        return length

    def flag(self, name: str, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            self.problem(name, "true or false", repr(text))
        return text.lower() == "true"


def _hashable(member: Any) -> Any:
    return repr(member) if isinstance(member, list | dict) else member  # it is reported


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of a read; ConfigError lists everything that is wrong with them. With `streaming` None it is not
    known yet of what kind, and those of either pass."""
    names, what = {
        True: (STREAM, "stream"),
        False: (BATCH, "batch read"),
        None: (tuple(dict.fromkeys((*BATCH, *STREAM))), "read"),
    }[streaming]
    check = _Checker(given, names, what)
    channel, place, wanted = check.channel(), check.place(), check.wanted()
    words = ("earliest",) if streaming is False else ("earliest", "latest")
    start = check.seqs("startingOffsets", check.get("startingOffsets") or "earliest", words)
    end = None if streaming else check.seqs("endingOffsets", check.get("endingOffsets") or "latest", ("latest",))
    limit, fail = check.number("maxEventsPerBatch"), check.flag("failOnDataLoss", True)
    push, promises = check.flag("pushFilters", False), check.duration("promises")
    if promises is not None and wanted.output is not None:
        hint = "what a transformation makes has no time of its own to promise; leave one of them out"
        check.problem("promises", "the events of the channel", "promises beside output", hint)
    check.finish()
    ends = None if end == "latest" else end
    return ReadOptions(channel, place, wanted, start, ends, limit, fail, push, promises)


def write_options(given: Mapping[str, str], *, streaming: bool, overwrite: bool) -> WriteOptions:
    """The options of a write; ConfigError lists everything that is wrong with them."""
    check = _Checker(given, WRITE, "stream's sink" if streaming else "batch write")
    channel, place = check.channel(), check.place(both=True)
    query = check.get("query")
    if query is not None and not query.strip():
        check.problem("query", "a name for this query", repr(query))
    if overwrite:
        what = "outputMode('append')" if streaming else "mode('append')"
        check.problem("mode", "append", "overwrite", f"what was published stays published; use {what}")
    staging = check.staging()
    nowhere = staging is None and (not streaming or check.get("checkpointLocation") is None)
    if nowhere and place.connect and place.log is None:
        check.problem("staging", "a folder that driver and executors share", "none",
                      "tasks put their rows there until the batch is committed")  # fmt: skip
    check.finish()
    return WriteOptions(channel, place, check.get("type"), staging, query, check.get("checkpointLocation"))
