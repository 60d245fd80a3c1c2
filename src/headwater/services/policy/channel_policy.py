"""A policy: which part of a channel's events somebody gets, and who may do what else there.

    ChannelPolicy(
        name="sightings",
        channel="ie.tcd.sighting",
        type="who: text, room: text, floor: u32",
        clauses=[
            Clause(who="group:security", show="true"),
            Clause(show="who = :user or floor = :here", wish="floor = :here"),
        ],
        location=Location(channel="ie.tcd.sighting", user="who", gives={"here": "floor"}),
    )

The first clause that is about somebody decides; whom none is about gets nothing. `show` is an interest, in any
notation, over the event and what is known of who asks (`parameters.py`); without it nothing is shown. `wish` is what
those get who subscribe without an interest of their own, as far as it is shown. `may` lists what else a clause allows,
and `when`, a condition over what is known of who asks alone, says when.

All of it is checked when it is made: a policy that does not type-check cannot be set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headwater.channel.names import Pattern
from headwater.channel.options.settings import read_toml
from headwater.decoders import msgpack_decoder
from headwater.errors import ChannelError, ConfigError, ConfigProblem, HeadwaterError
from headwater.interest import Interest, as_event_type
from headwater.ir import serial
from headwater.ir.functional import as_expression
from headwater.ir.nodes import Program
from headwater.services.policy.identity import MAX_TEXT
from headwater.services.policy.location import Location, read_location
from headwater.services.policy.parameters import RESERVED, SAMPLES, offered, read
from headwater.services.policy.verdicts import ACTIONS, Action
from headwater.services.policy.who import EVERYBODY, who_problems
from headwater.types import EventType, event_type

MOST_CLAUSES = 256
REPLICAS = ".replicas"  # after the name of a channel of changes: what holders of replicas are told
ORDERED = ".ordered"  # after the name of a channel: the one that has its events again, in a total order
MAX_INTEREST = 16 * 1024  # characters
_NOTHING = as_event_type("nothing: bool?")  # what `when` looks at: no event
_CLAUSE_FIELDS = ("who", "show", "wish", "replaces", "may", "when")
_FIELDS = ("name", "channel", "type", "clauses", "location", "attributes", "show")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """Whom it is about, and what they get. `replaces`: the policy's wish holds also for those who have an interest of
    their own, as far as that runs at the source alone."""

    who: str | Sequence[str] = EVERYBODY
    show: str = ""
    wish: str = ""
    replaces: bool = False
    may: Sequence[Action] = ()
    when: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.who, str):
            object.__setattr__(self, "who", (self.who,))
        elif isinstance(self.who, list | tuple):
            object.__setattr__(self, "who", tuple(self.who))
        object.__setattr__(self, "may", (self.may,) if isinstance(self.may, str) else tuple(self.may or ()))

    def __str__(self) -> str:
        parts = [f"shows `{self.show}`" if self.show else "shows nothing"]
        parts += [f"wish `{self.wish}`"] if self.wish else []
        parts += [f"may {', '.join(self.may)}"] if self.may else []
        parts += [f"when `{self.when}`"] if self.when else []
        return f"{', '.join(self.who)}: {'; '.join(parts)}"


class Programs:
    """What the clauses of one policy are as programs, checked; their parameters are not filled in."""

    __slots__ = ("show", "when", "wish")

    def __init__(self, show: Program | None, wish: Program | None, when: Program | None) -> None:
        self.show, self.wish, self.when = show, wish, when


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPolicy:
    """A checked policy. `type` is that of the channel's events: any declaration of one. `attributes` are the types of
    what is known of users besides: "text", "int", "float" or "bool"."""

    name: str
    channel: str
    type: Any
    clauses: Sequence[Clause]
    location: Location | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    pattern: Pattern = field(init=False, repr=False, compare=False)
    programs: tuple[Programs, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check all of it at once."""
        place = f"policy {self.name}:" if isinstance(self.name, str) else "policy:"
        problems = _plain_problems(self, place)
        kind = _type(self.type, f"{place} type", problems)
        if self.location is not None and kind is not None:
            same = not self.location.type and self.location.channel == self.channel
            problems += self.location.problems(f"{place} location:", kind if same else None)
        programs: list[Programs] = []
        if not problems and kind is not None:
            parameters = self._parameters(kind)
            for number, clause in enumerate(self.clauses, 1):
                programs.append(_programs(clause, kind, parameters, f"{place} clause {number}:", problems))
        if problems:
            raise ConfigError(problems, "this policy cannot be set")
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "clauses", tuple(self.clauses))
        object.__setattr__(self, "attributes", dict(self.attributes))
        object.__setattr__(self, "pattern", Pattern(self.channel))
        object.__setattr__(self, "programs", tuple(programs))

    def _parameters(self, kind: EventType) -> dict[str, object]:
        location = self.location
        same = location is not None and not location.type
        given = {} if location is None else location.samples(kind if same else None)
        return offered(self.attributes, given)

    @property
    def located(self) -> frozenset[str]:
        """The parameters that say where a user is."""
        return frozenset(() if self.location is None else self.location.gives)

    def about(self, channel: str) -> bool:
        """Whether it is a policy of a channel; and so of that which has the channel's events in a total order, and, of
        changes of objects, of what holders of replicas are told."""
        own = channel.removesuffix(ORDERED).removesuffix(REPLICAS)
        return self.pattern.matches(channel) or (own != channel and self.pattern.matches(own))

    def governs(self, action: Action) -> bool:
        """Whether it says anything of an action: of what is seen always, of others if a clause names them."""
        return action == "subscribe" or any(action in clause.may for clause in self.clauses)

    # ── as a file, and as bytes ──

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChannelPolicy:
        """The policy in a TOML file."""
        return cls.read(read_toml(path), place=os.fspath(path))

    @classmethod
    def read(cls, table: Mapping[str, Any], *, place: str = "policy") -> ChannelPolicy:
        """The policy in a table: `name`, `channel`, `type`, and `clauses`, or `show` where one clause does."""
        problems: list[ConfigProblem] = []
        values = dict(table)
        for key in [key for key in values if key not in _FIELDS]:
            problems.append(ConfigProblem(f"{place}: {key}", f"one of {', '.join(_FIELDS)}", repr(key)))
        show = values.pop("show", None)
        clauses = values.get("clauses", [{"show": show}] if show is not None else None)
        made = []
        if not isinstance(clauses, list | tuple) or ("clauses" in values and show is not None):
            problems.append(
                ConfigProblem(f"{place}: clauses", "a list of clauses, or `show` alone", repr(clauses)[:80])
            )
        else:
            made = [_read_clause(each, f"{place}: clause {n}", problems) for n, each in enumerate(clauses, 1)]
        location = read_location(values.get("location"), f"{place}: location", problems)
        for key in ("name", "channel", "type"):
            if key not in values:
                problems.append(ConfigProblem(f"{place}: {key}", "a value", "none"))
        if problems:
            raise ConfigError(problems, f"the policy in {place} cannot be set")
        return cls(
            name=values["name"],
            channel=values["channel"],
            type=values["type"],
            clauses=[each for each in made if each is not None],
            location=location,
            attributes=values.get("attributes", {}),
        )

    def to_bytes(self) -> bytes:
        """The body of its document."""
        return _encode(
            _Body(
                self.name,
                self.channel,
                serial.dumps(Interest("true", self.type).program, with_text=False),
                [_ClauseBody(list(each.who), each.show, each.wish, each.replaces, list(each.may), each.when)
                 for each in self.clauses],
                None if self.location is None else {
                    key: value for key in ("channel", "type", "user", "object", "of", "node")
                    if (value := getattr(self.location, key))
                } | {"gives": dict(self.location.gives)} | (
                    {} if self.location.within == float("inf") else {"within": self.location.within}
                ),
                dict(self.attributes),
            )
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> ChannelPolicy:
        """The policy of a document's body, whoever has made it; ConfigError if it is none, or does not check."""
        try:
            body = _decode(data)
            kind = event_type(serial.loads(body.type).input)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, HeadwaterError) as error:
            problem = ConfigProblem("policy", "the body of a policy's document", f"something else: {error}")
            raise ConfigError([problem]) from None
        table = msgspec.structs.asdict(body) | {
            "type": kind,
            "clauses": [msgspec.structs.asdict(each) for each in body.clauses],
        }
        return cls.read(table, place=f"policy {body.name}")


class _ClauseBody(msgspec.Struct, frozen=True, array_like=True):
    who: list[str]
    show: str = ""
    wish: str = ""
    replaces: bool = False
    may: list[str] = []
    when: str = ""


class _Body(msgspec.Struct, frozen=True, array_like=True):
    name: str
    channel: str
    type: bytes
    clauses: list[_ClauseBody]
    location: dict[str, Any] | None = None
    attributes: dict[str, str] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(_Body).decode


def _plain_problems(policy: ChannelPolicy, place: str) -> list[ConfigProblem]:
    """What is wrong with a policy before its interests are read."""
    found = []
    name = policy.name
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TEXT or not name.isprintable() or name != name.strip():
        found.append(ConfigProblem("policy: name", f"1 to {MAX_TEXT} printable characters", repr(name)[:MAX_TEXT]))
    try:
        Pattern(policy.channel)
    except ChannelError as error:
        found.append(ConfigProblem(f"{place} channel", "a channel, or a pattern of channels", str(error)))
    if not isinstance(policy.clauses, list | tuple) or not 0 < len(policy.clauses) <= MOST_CLAUSES:
        found.append(ConfigProblem(f"{place} clauses", f"1 to {MOST_CLAUSES} clauses", repr(policy.clauses)[:80]))
        return found
    for number, clause in enumerate(policy.clauses, 1):
        where = f"{place} clause {number}:"
        if not isinstance(clause, Clause):
            found.append(ConfigProblem(where, "a Clause", repr(clause)[:80]))
            continue
        found += who_problems(clause.who, f"{where} who")
        found += [
            ConfigProblem(f"{where} may", f"some of {', '.join(ACTIONS[:-1])}", repr(each)[:80])
            for each in clause.may
            if each not in ACTIONS[:-1] or each == "subscribe"
        ]
        if clause.wish and not clause.show:
            found.append(ConfigProblem(f"{where} wish", "a wish of what is shown", "nothing that is"))
        if clause.when and not clause.may:
            found.append(ConfigProblem(f"{where} when", "what it allows, as may", "nothing"))
    if not isinstance(policy.attributes, Mapping):
        found.append(ConfigProblem(f"{place} attributes", "names with types", repr(policy.attributes)[:80]))
        return found
    for name, type in policy.attributes.items():
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            found.append(ConfigProblem(f"{place} attributes", "names that no other parameter has", repr(name)[:80]))
        elif type not in SAMPLES:
            found.append(ConfigProblem(f"{place} attributes {name}", f"one of {', '.join(SAMPLES)}", repr(type)[:80]))
    return found


def _type(given: Any, place: str, problems: list[ConfigProblem]) -> EventType | None:
    try:
        return as_event_type(given)
    except (HeadwaterError, TypeError, ValueError) as error:
        problems.append(ConfigProblem(place, "the type of the channel's events", str(error)))
        return None


def _programs(
    clause: Clause, kind: EventType, parameters: Mapping[str, object], place: str, problems: list[ConfigProblem]
) -> Programs:
    """A clause's interests, checked: filters without state, loops or output."""
    made: dict[str, Program | None] = {}
    for what, on in (("show", kind), ("wish", kind), ("when", _NOTHING)):
        text = getattr(clause, what)
        made[what] = None
        if not isinstance(text, str) or len(text) > MAX_INTEREST:
            problems.append(ConfigProblem(f"{place} {what}", f"an interest of at most {MAX_INTEREST:,} characters",
                                          repr(text)[:80]))  # fmt: skip
        elif text:
            try:
                program, _ = read(text, on.record, parameters)
            except (HeadwaterError, ValueError) as error:
                problems.append(ConfigProblem(f"{place} {what}", "an interest that checks", f"{text!r}\n{error}"))
                continue
            if program.stateful or as_expression(program) is None:
                problems.append(ConfigProblem(f"{place} {what}", "a filter without state, output or loops", repr(text)))
                continue
            made[what] = program
    return Programs(made["show"], made["wish"], made["when"])


def _read_clause(table: Any, place: str, problems: list[ConfigProblem]) -> Clause | None:
    if isinstance(table, Clause):
        return table
    if not isinstance(table, Mapping):
        problems.append(ConfigProblem(place, "a table", repr(table)[:80]))
        return None
    unknown = [key for key in table if key not in _CLAUSE_FIELDS]
    problems += [ConfigProblem(f"{place} {key}", f"one of {', '.join(_CLAUSE_FIELDS)}", repr(key)) for key in unknown]
    wrong = [key for key in ("show", "wish", "when") if not isinstance(table.get(key, ""), str)]
    problems += [ConfigProblem(f"{place} {key}", "the text of an interest", repr(table[key])[:80]) for key in wrong]
    return None if unknown or wrong else Clause(**{str(key): value for key, value in table.items()})


__all__ = ["ChannelPolicy", "Clause", "Programs"]
