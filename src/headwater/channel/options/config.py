"""How a node works, as one frozen value: the dispatch strategy, the sinks' queues, what happens on failure.

    Config(dispatch=Pool(maximum=4), queue=Queue(limit=256, policy="drop_oldest"))
    Config.load("service.toml")

The same in a file:

    name = "dublin"
    failures = 10
    close_timeout = 30.0

    [dispatch]
    strategy = "pool"
    maximum = 4

    [queue]
    limit = 256
    policy = "drop_oldest"

Whatever is unknown, of the wrong type, out of range or contradictory is a `ConfigError`, which lists every problem at
once. The same holds for values made in code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from headwater.channel.dispatch.dispatcher import Dispatcher, InlineDispatcher
from headwater.channel.dispatch.event_loop import LoopDispatcher
from headwater.channel.dispatch.pool import Arrival, ThreadDispatcher, Urgency, by_deadline, by_priority
from headwater.channel.names import Pattern
from headwater.channel.options.pattern_limits import Patterns
from headwater.channel.options.settings import (
    Choice,
    Count,
    Name,
    Seconds,
    Settings,
    near,
    parse_toml,
    quoted,
    read_toml,
    show,
    unknown,
)
from headwater.channel.time.clock import Clock
from headwater.errors import ChannelError, ConfigError, ConfigProblem
from headwater.late import asyncio
from headwater.store.log.settings import Log

Policy = Literal["block", "drop_oldest", "drop_newest", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How many events may wait for a sink, and what happens to the next one.

    `block` makes the publisher wait, `wait` seconds at most, then `publish` raises QueueFull; `fail` raises it at once;
    `drop_oldest` and `drop_newest` drop an event and count it.
    """

    limit: int = 1024
    policy: Policy = "block"
    wait: float | None = None  # 30 seconds where the policy is `block`; no other policy waits

    settings: ClassVar[Settings] = Settings(
        limit=Count(1, 2**31 - 1),
        policy=Choice("block", "drop_oldest", "drop_newest", "fail"),
        wait=Seconds(above=True),
    )

    def __post_init__(self) -> None:
        if self.wait is None and self.policy == "block":
            object.__setattr__(self, "wait", 30.0)
        _check(self)

    @staticmethod
    def contradictions(value: Mapping[str, Any], place: str) -> list[ConfigProblem]:
        """Settings that are right by themselves and not together."""
        if value.get("wait") is None or value.get("policy", "block") == "block":
            return []
        policy = value["policy"]
        does = "raises at once" if policy == "fail" else "drops an event at once"
        return [
            ConfigProblem(
                f"{place} wait",
                'no setting, for only policy "block" waits',
                show(value["wait"]),
                f'policy "{policy}" {does}: leave out wait, or set policy to "block"',
            )
        ]


class _Strategy:
    """A dispatch strategy: a value that can be put to work."""

    __slots__ = ()

    name: ClassVar[str]
    settings: ClassVar[Settings] = Settings()

    @staticmethod
    def contradictions(value: Mapping[str, Any], place: str) -> list[ConfigProblem]:
        """Settings that are right by themselves and not together."""
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline(_Strategy):
    """Handlers run in the publisher's thread, before `publish` returns."""

    name: ClassVar[str] = "inline"

    def start(self, name: str, clock: Clock) -> Dispatcher:
        """The dispatcher of a node that uses this strategy."""
        return InlineDispatcher(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Threads(_Strategy):
    """Handlers run in threads of the node.

    Water marks count the subscriptions with events waiting that no thread is about to take. There are up to `minimum`
    threads as needed; above that the pool grows by a thread whenever more than `high` wait, up to `maximum`, and
    shrinks again when not more than `low` have waited for `idle` seconds. With the marks at 0, no subscription waits
    for another one's handler while a thread may still be started.
    """

    minimum: int = 1
    maximum: int = 8
    low: int = 0
    high: int = 0
    idle: float = 5.0

    settings: ClassVar[Settings] = Settings(
        minimum=Count(0, 1024), maximum=Count(1, 1024), low=Count(0), high=Count(0), idle=Seconds()
    )

    def __post_init__(self) -> None:
        _check(self)

    @staticmethod
    def contradictions(value: Mapping[str, Any], place: str) -> list[ConfigProblem]:
        """As those of others: a minimum is not above its maximum."""
        full = {"minimum": 1, "maximum": 8, "low": 0, "high": 0, **value}
        found = []
        for less, more in (("minimum", "maximum"), ("low", "high")):
            if full[less] > full[more]:
                default = {less, more} - set(value)
                note = f"; {', '.join(default)} is {full[default.pop()]} unless set" if default else ""
                found.append(
                    ConfigProblem(f"{place} {less}", f"at most {more}, which is {full[more]}", f"{full[less]}{note}")
                )
        return found

    def _start(self, name: str, order: Arrival | Urgency) -> Dispatcher:
        return ThreadDispatcher(
            name,
            self.name,
            order,
            minimum=self.minimum,
            maximum=self.maximum,
            low=self.low,
            high=self.high,
            idle=self.idle,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(_Threads):
    """Handlers run in threads; subscriptions have their turn in order of arrival."""

    name: ClassVar[str] = "pool"

    def start(self, name: str, clock: Clock) -> Dispatcher:
        """The dispatcher of a node that uses this strategy; its threads begin with the first events."""
        return self._start(name, Arrival())


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPriority(_Threads):
    """Handlers run in threads; events of the highest priority first."""

    name: ClassVar[str] = "priority"

    def start(self, name: str, clock: Clock) -> Dispatcher:
        """As that of a pool, which takes what is most important first."""
        return self._start(name, by_priority())


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDeadline(_Threads):
    """Handlers run in threads; events with the earliest end of lifetime first."""

    name: ClassVar[str] = "deadline"

    def start(self, name: str, clock: Clock) -> Dispatcher:
        """As that of a pool, which takes what is due soonest first."""
        return self._start(name, by_deadline())


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncLoop(_Strategy):
    """Handlers run on an asyncio loop, coroutine handlers as tasks: on `loop`, or the one that runs at the start."""

    name: ClassVar[str] = "asyncio"

    loop: asyncio.AbstractEventLoop | None = None

    def __post_init__(self) -> None:
        if self.loop is not None and not isinstance(self.loop, asyncio.AbstractEventLoop):
            raise ConfigError([ConfigProblem("AsyncLoop: loop", "an asyncio event loop or None", show(self.loop))])

    def start(self, name: str, clock: Clock) -> Dispatcher:
        """The dispatcher of a node that uses this strategy, on the loop that is given or runs in this thread;
        ConfigError if there is none."""
        loop = self.loop
        if loop is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                hint = "open the node in a coroutine, or give the loop: AsyncLoop(loop=...)"
                problem = ConfigProblem(f"{name}: dispatch", "a running asyncio loop", "none in this thread", hint)
                raise ConfigError([problem]) from None
        if loop.is_closed():
            raise ConfigError([ConfigProblem(f"{name}: dispatch", "an open asyncio loop", "one that is closed")])
        return LoopDispatcher(name, loop)


Dispatch = Inline | Pool | ByPriority | ByDeadline | AsyncLoop
STRATEGIES: Mapping[str, type[Dispatch]] = {cls.name: cls for cls in (Inline, Pool, ByPriority, ByDeadline, AsyncLoop)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of a node.

    `failures`: how many times in a row a handler may raise before its subscription is paused; 0: as often as it likes.
    `history`: events that each source remembers, for sinks that ask for the past when they come.
    `log`: a Log, or the path of a folder; where and how what the node's sources publish is logged.
    `patterns`: what patterns may take here, and how often their state is kept.
    `close_timeout`: seconds that closing the node takes at most; what has not been delivered by then is dropped.
    """

    name: str | None = None
    dispatch: Dispatch = field(default_factory=Inline)
    queue: Queue = field(default_factory=Queue)
    failures: int = 10
    history: int = 0
    close_timeout: float = 30.0
    log: Log | None = None
    patterns: Patterns = field(default_factory=Patterns)

    settings: ClassVar[Settings] = Settings(
        name=Name(), failures=Count(0), history=Count(0, 10_000_000), close_timeout=Seconds()
    )

    def __post_init__(self) -> None:
        _check(self)

    @staticmethod
    def contradictions(value: Mapping[str, Any], place: str) -> list[ConfigProblem]:
        """Parts of a configuration that are of another class than they should be."""
        found = []
        if "dispatch" in value and not isinstance(value["dispatch"], Dispatch):
            names = ", ".join(cls.__name__ for cls in STRATEGIES.values())
            found.append(ConfigProblem(f"{place} dispatch", f"one of {names}", show(value["dispatch"])))
        if "queue" in value and not isinstance(value["queue"], Queue):
            found.append(ConfigProblem(f"{place} queue", "a Queue", show(value["queue"])))
        if "patterns" in value and not isinstance(value["patterns"], Patterns):
            found.append(ConfigProblem(f"{place} patterns", "a Patterns", show(value["patterns"])))
        if not isinstance(value.get("log"), Log | None):
            found.append(ConfigProblem(f"{place} log", "a Log or None", show(value["log"])))
        return found

    @classmethod
    def of(cls, what: Config | str | os.PathLike[str] | Mapping[str, Any] | None) -> Config:
        """The configuration that is meant: itself, a TOML file's, a dict's as in such a file, or the default one."""
        match what:
            case None:
                return cls()
            case Config():
                return what
            case str() | os.PathLike():
                return cls.load(what)
            case Mapping():
                return cls._read(what, "")
            case _:
                wanted = "a Config, the path of a TOML file, a dict or None"
                raise ConfigError([ConfigProblem("configuration", wanted, show(what))])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Config:
        """The configuration in a TOML file."""
        return cls._read(read_toml(path), os.fspath(path))

    @classmethod
    def parse(cls, text: str, *, place: str = "") -> Config:
        """The configuration in a TOML text; `place` says in errors where it is from."""
        return cls._read(parse_toml(text, place or "configuration"), place)

    @classmethod
    def _read(cls, tables: Mapping[str, Any], place: str) -> Config:
        prefix = f"{place}: " if place else ""
        values = dict(tables)
        problems: list[ConfigProblem] = []
        parts: dict[str, Any] = {}
        if "dispatch" in values:
            parts["dispatch"] = _read_dispatch(values.pop("dispatch"), prefix, problems)
        for name, kind in (("queue", Queue), ("patterns", Patterns)):
            if name in values:
                given = values.pop(name)
                whole = isinstance(given, kind)
                parts[name] = given if whole else _read_table(kind, given, f"{prefix}[{name}]", problems)
        if "log" in values:
            parts["log"] = _read_log(values.pop("log"), f"{prefix}[log]", problems)
        known = ("dispatch", "queue", "log", "patterns")
        problems += cls.settings.problems(values, f"{place or 'configuration'}:", known=known)
        if problems:
            raise ConfigError(problems, _title(problems, place))
        return cls(**values, **parts)

    def to_toml(self) -> str:
        """The configuration as a TOML file, everything that holds spelled out."""
        lines = _lines(self)
        lines += ["", "[dispatch]", f'strategy = "{self.dispatch.name}"', *_lines(self.dispatch)]
        lines += ["", "[queue]", *_lines(self.queue)]
        lines += ["", "[patterns]", *_lines(self.patterns)]
        if self.log is not None:
            lines += ["", "[log]", *_log_lines(self.log)]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.to_toml()


def _check(value: Queue | _Threads | Config) -> None:
    """The door for values made in code: all problems at once, and numbers of seconds become floats."""
    place = f"{type(value).__name__}:"
    given = {item.name: getattr(value, item.name) for item in fields(value)}
    optional = {name for name in ("name", "wait") if given.get(name, 0) is None}
    plain = {name: found for name, found in given.items() if name in type(value).settings and name not in optional}
    problems = type(value).settings.problems(plain, place)
    wrong = {problem.place for problem in problems}
    problems += type(value).contradictions(
        {name: found for name, found in given.items() if f"{place} {name}" not in wrong and name not in optional}, place
    )
    if problems:
        raise ConfigError(problems, _title(problems, ""))
    for name, found in plain.items():
        if isinstance(type(value).settings[name], Seconds):
            object.__setattr__(value, name, float(found))


def _read_dispatch(found: Any, prefix: str, problems: list[ConfigProblem]) -> Any:
    """The strategy in a table, or of a name. Settings that only other strategies have are problems which say whose they
    are."""
    place = f"{prefix}[dispatch]"
    if isinstance(found, Dispatch):
        return found
    if isinstance(found, str):  # dispatch = "pool"
        found = {"strategy": found}
    if not isinstance(found, Mapping):
        problems.append(ConfigProblem(place, "a table, or the name of a strategy", show(found)))
        return None
    values = dict(found)
    strategy = values.pop("strategy", None)
    cls = STRATEGIES.get(strategy) if isinstance(strategy, str) else None
    if cls is None:
        found = "nothing" if strategy is None else show(strategy)
        expected = f"one of {quoted(STRATEGIES)}"
        problems.append(ConfigProblem(f"{place} strategy", expected, found, near(strategy, STRATEGIES)))
        # Settings that no strategy has, or with values that none takes, are wrong whichever was meant.
        problems += _Threads.settings.problems(values, place, known=("strategy",))
        return None
    if alien := [key for key in values if key not in cls.settings and key in _Threads.settings]:
        owners = ", ".join(name for name, other in STRATEGIES.items() if alien[0] in other.settings)
        for key in alien:
            problems.append(
                ConfigProblem(
                    f"{place} {key}",
                    f'only settings of strategy "{strategy}", which has no threads of its own',
                    show(values.pop(key)),
                    f"it belongs to the strategies {owners}",
                )
            )
    if cls is AsyncLoop and "loop" in values:
        hint = "leave it out and open the node in a coroutine, or give AsyncLoop(loop=...) in code"
        problems.append(ConfigProblem(f"{place} loop", "no loop in a file", show(values.pop("loop")), hint))
    return _read_table(cls, values, place, problems)


def _read_table(
    cls: type[Queue] | type[Dispatch] | type[Patterns], found: Any, place: str, problems: list[ConfigProblem]
) -> Any:
    if not isinstance(found, Mapping):
        problems.append(ConfigProblem(place, "a table", show(found)))
        return None
    values = dict(found)
    wrong = cls.settings.problems(values, place)
    bad = {problem.place for problem in wrong}
    wrong += cls.contradictions({key: value for key, value in values.items() if f"{place} {key}" not in bad}, place)
    problems += wrong
    return None if wrong else cls(**values)


def _lines(value: Any) -> list[str]:
    """A table's settings, as TOML."""
    shown = ((item.name, getattr(value, item.name)) for item in fields(value) if item.name in type(value).settings)
    return [f"{name} = {_toml(found)}" for name, found in shown if found is not None]


def _toml(value: Any) -> str:
    """A value as TOML has it: as JSON has it, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def log_of(given: Log | str | os.PathLike[str] | Mapping[str, Any] | None) -> Log | None:
    """The log that is meant: itself, that in a folder, or a table's as in a TOML file."""
    problems: list[ConfigProblem] = []
    made = None if given is None else _read_log(given, "log", problems)
    if problems:
        raise ConfigError(problems, _title(problems, ""))
    return made


def _read_log(found: Any, place: str, problems: list[ConfigProblem]) -> Log | None:
    """The log in a table, or in the folder of a path."""
    match found:
        case Log():
            return found
        case str() | os.PathLike():
            values: dict[str, Any] = {"path": found}
        case Mapping():
            values = dict(found)
        case _:
            problems.append(ConfigProblem(place, "a Log, the path of a folder, or a table", show(found)))
            return None
    names = [item.name for item in fields(Log)]
    wrong = [key for key in values if key not in names]
    problems += [unknown(f"{place} {key}", key, names, f" = {show(values[key])}") for key in wrong]
    if "path" not in values:
        problems.append(ConfigProblem(f"{place} path", "the path of a folder", "nothing"))
    if wrong or "path" not in values:
        return None
    if isinstance(values.get("channels"), list):
        values["channels"] = tuple(values["channels"])
    patterns = values.get("channels", "**")
    try:
        for each in (patterns,) if isinstance(patterns, str) else patterns:
            Pattern(each)
        return Log(values.pop("path"), **values)
    except ConfigError as error:
        problems += [
            ConfigProblem(f"{place} {each.place.partition(': ')[2]}", each.expected, each.found, each.hint)
            for each in error.problems
        ]
    except (ChannelError, TypeError) as error:
        problems.append(ConfigProblem(f"{place} channels", "patterns of names of channels", str(error)))
    return None


def _log_lines(log: Log) -> list[str]:
    shown = {item.name: getattr(log, item.name) for item in fields(log)}
    shown["path"] = os.fspath(log.path)
    return [f"{name} = {_toml(found)}" for name, found in shown.items() if found is not None]


def _title(problems: list[ConfigProblem], place: str) -> str:
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
    return f"{count} in the configuration {place}" if place else f"{count} in this configuration"
