"""What is going on between a node and the others, as values: for people with `str()`, for programs with `.to_dict()`.

node desk (desk.5e1f0c2a…) in federation headwater, listening at tcp/127.0.0.1:41001: 1 other node
  lab  present, direct stream (tcp), 1,204 bytes in, 310 bytes out
…
this node's interests at other nodes
  node  channel          interest     where                   why
  lab   ie.tcd.sighting  level > 0.5  source and destination  filtered there, decided here
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from headwater.text_tables import Cell, block, table

SHOWN_ROWS = 100  # rows of a table for people


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """A source of this node on its way to another: `sent` events in so many `frames`, `waiting` to be sent or
    acknowledged, frames `kept` until they are, events `dropped` because there was no room, and `shed` because they
    were beyond what that node may have (`Network.rates`)."""

    channel: str
    source: str
    sent: int
    waiting: int
    kept: int
    dropped: int
    frames: int = 0
    shed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInReport:
    """A source of another node as it arrives here: how many of its events came (`last` is the number of the last one),
    events that the other node says it had to drop, and frames that came again."""

    channel: str
    source: str
    received: int
    last: int
    lost: int
    repeated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledReport:
    """An interest of another node that runs at this node's sources, and what it may cost there at most (native
    operations an event). `tagged`: it runs here only, having state or output."""

    channel: str
    interest: str
    cost: int
    tagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedReport:
    """An interest of this node's sinks in another node's sources: `where` it runs ("source", "source and destination",
    "destination", "refused") and why. `points`: by source, the last event before it held."""

    channel: str
    interest: str
    where: str
    why: str
    points: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackReport:
    """Events that go, or went, to another node by Zenoh's path because there is no direct stream: for how many
    `seconds` now (None: there is one, or Zenoh's path is forbidden), how many `times` so far, and `why` the last
    time."""

    seconds: float | None
    times: int
    why: str

    def __str__(self) -> str:
        since = "" if self.seconds is None else f" for {self.seconds:.1f} s now,"
        return f"fallback{since} {self.times:,} time{'s' if self.times != 1 else ''}, last because {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerReport:
    """Another node. `away` is for how many seconds it is not there, None if it is; `link` is "tcp", "tls", "unix",
    "zenoh", or None while there is nothing to exchange; `trouble` is why it is not a direct stream. `frames_in` and
    `frames_out` are of events; `answers` are all frames that came over the present direct stream, acknowledgements and
    what is said about interests included. `refused` has the channels, and patterns of names, that it asked for here and
    no rule lets it subscribe to, and why: the last of them, of channels that this node does not have, too."""

    name: str
    id: str
    proven: str | None  # who it has proven to be, and how
    away: float | None
    link: str | None
    trouble: str | None
    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    router: bool
    answers: int = 0
    lanes: tuple[LaneReport, ...] = ()
    stand_ins: tuple[StandInReport, ...] = ()
    installed: tuple[InstalledReport, ...] = ()
    asked: tuple[AskedReport, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    fallback: FallbackReport | None = None

    @property
    def cost(self) -> int:
        """What its interests may cost here together, in the channel where that is most; `Budget.each` is the limit."""
        costs: dict[str, int] = {}
        for each in self.installed:
            costs[each.channel] = costs.get(each.channel, 0) + each.cost
        return max(costs.values(), default=0)

    def _line(self) -> str:
        state = "present" if self.away is None else f"away for {self.away:.1f} s"
        if self.link is None:
            link = "no link"
        elif self.link == "zenoh":
            link = "routed by Zenoh, encrypted"
        else:
            link = f"direct stream ({self.link})"
        if self.trouble and (self.fallback is None or self.fallback.why != self.trouble):
            link += f": {self.trouble}"
        bytes_ = f"{self.bytes_in:,} bytes in, {self.bytes_out:,} bytes out"
        parts = [state, "router" if self.router else "", link, bytes_, f"proven: {self.proven}" if self.proven else ""]
        parts.insert(3, str(self.fallback or ""))
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactReport:
    """An endpoint of `connect`, as it was `written`: whether it is `reached`, for how many `seconds` that is so,
    whether it `ever` was, how often it was lost, and the last `reason` why it is not reached."""

    endpoint: str
    written: str
    reached: bool
    seconds: float
    ever: bool
    losses: int
    reason: str

    def __str__(self) -> str:
        if self.reached:
            return f"reached for {self.seconds:.1f} s"
        state = "lost" if self.ever else "never reached, tried"
        return f"{state} for {self.seconds:.1f} s: {self.reason or 'no answer yet'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationReport:
    """A node's view of its federation; it does not change when things go on.

    `budget` is what other nodes' interests may cost a source here: all together, and those of one node. `offences`
    counts what should not have come, by who sent it, `refusals` has what was wrong with the last of it, and `strangers`
    counts what was turned away before it was known whose it is. `fallback` is what is allowed where no direct stream
    can be made. `untold` are channels that fit in no message, so that no other node can know of them. `messages` counts
    Zenoh's messages by kind. `failing` is what this node itself fails to do at present, by what it is about
    ("channel@node"), and tries again. `crashes` counts failures in threads of this node and of its process, by thread;
    the log has their tracebacks. `expelled` are nodes that nobody vouches for any more, by id, and why: their
    certificate was revoked, say. `contacts` are the endpoints to connect to, and whether they are
    reached. `security` is what is wrong with the files of this node's security."""

    node: str
    id: str
    federation: str
    endpoints: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()  # where direct streams are accepted
    peers: tuple[PeerReport, ...] = ()
    budget: tuple[int, int] = (0, 0)
    offences: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    strangers: Mapping[str, int] = field(default_factory=dict)
    fallback: str = ""
    untold: tuple[str, ...] = ()
    messages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    crashes: Mapping[str, int] = field(default_factory=dict)
    expelled: Mapping[str, str] = field(default_factory=dict)
    security: str = ""
    contacts: tuple[ContactReport, ...] = ()

    def peer(self, name: str) -> PeerReport:
        """The node of that name or id; KeyError if it is not known."""
        for each in self.peers:
            if name in (each.name, each.id):
                return each
        known = ", ".join(each.name for each in self.peers) or "none"
        raise KeyError(f"node {name!r} is not known; these are: {known}")

    @property
    def namesakes(self) -> dict[str, list[str]]:
        """Names that several nodes have which are there, and the ids of these."""
        found: dict[str, list[str]] = {self.node: [self.id]}
        for each in self.peers:
            if each.away is None:
                found.setdefault(each.name, []).append(each.id)
        return {name: ids for name, ids in found.items() if len(ids) > 1}

    def to_dict(self) -> dict[str, Any]:
        """For programs: nothing but dicts, lists, texts, numbers, booleans and None."""
        made: dict[str, Any] = _plain(self)
        return made

    def __str__(self) -> str:
        """As text: the others first, then what is wrong, and tables last."""
        if not self.federation:
            return f"node {self.node} has no network"
        where = f"listening at {', '.join(self.endpoints)}" if self.endpoints else "not listening"
        count = f"{len(self.peers):,} other node{'s' if len(self.peers) != 1 else ''}"
        lines = [f"node {self.node} ({self.id}) in federation {self.federation}, {where}: {count}"]
        lines += _cut(block([(each.name, each._line()) for each in self.peers[:SHOWN_ROWS]]), len(self.peers))
        missing = [(each.written, str(each)) for each in self.contacts if not each.reached]
        lines += _section("not reached, and tried again", block(missing))
        lines += _section("nodes of one name", block([(name, ", ".join(ids)) for name, ids in self.namesakes.items()]))
        lines += self._tables()
        lines += _section("fails, and is tried again", block(list(self.failing.items())))
        lines += _section("wrong with the files of its security", [self.security] if self.security else [])
        lines += _section("expelled", block(list(self.expelled.items())))
        lines += _section("failed in threads", block([(name, f"{count:,}") for name, count in self.crashes.items()]))
        offences = [(who, f"{count:,}, last: {self.refusals.get(who, '')}") for who, count in self.offences.items()]
        lines += _section("offences", block(offences))
        strangers = [(what, f"{count:,}") for what, count in self.strangers.items() if count]
        lines += _section("strangers turned away", block(strangers))
        lines += _section("channels too large to be told to anybody", [f"  {name}" for name in self.untold])
        rows: list[list[Cell]] = [
            [kind, *(count.get(name, 0) for name in _MESSAGES)]
            for kind, count in self.messages.items()
            if any(count.values())
        ]
        lines += _section("messages by Zenoh", _rows(["kind", *_MESSAGES], rows))
        return "\n".join(lines)

    def _tables(self) -> list[str]:
        lines = _section(
            "sources there, as they arrive here",
            _of(self.peers, "stand_ins", ["channel", "source", "received", "last", "?lost", "?repeated"]),
        )
        lines += _section(
            "this node's interests at other nodes", _of(self.peers, "asked", ["channel", "interest", "where", "why"])
        )
        lines += _section(
            "sources here, on their way",
            _of(self.peers, "lanes", ["channel", "source", "sent", "waiting", "?kept", "?dropped", "?shed"]),
        )
        installed = _of(self.peers, "installed", ["channel", "interest", "cost"])
        total, each = self.budget
        title = f"other nodes' interests at sources here (budget of a channel: {total:,}, of one node {each:,})"
        lines += _section(title, installed)
        rows: list[list[Cell]] = [[peer.name, *each] for peer in self.peers for each in peer.refused.items()]
        return lines + _section("refused here, since no rule allows it", _rows(["node", "channel", "why"], rows))


_MESSAGES = ("messages_out", "bytes_out", "messages_in", "bytes_in")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCounts:
    """What a subscription's interest has done at another node's sources, since it was installed there.

    `evaluated` events were looked at there, of which it `passed` so many (None where several filters of this node are
    counted together) and left so many `undecided`; `crossed` events of the channel came here, for all of this node's
    sinks together, each once. `shed` passed and were beyond the subscription's rate; `withheld` were beyond what this
    node may have of that one, for all of its sinks together. `where` and `why` say where it runs, `how` how it does so
    there."""

    node: str
    channel: str
    interest: str
    where: str
    why: str
    how: str = ""
    evaluated: int = 0
    passed: int | None = None
    undecided: int = 0
    crossed: int = 0
    shed: int = 0
    withheld: int = 0

    def __str__(self) -> str:
        unclear = f", {self.undecided:,} undecided" if self.undecided else ""
        unclear += f", {self.shed:,} shed" if self.shed else ""
        unclear += f", {self.withheld:,} withheld from this node" if self.withheld else ""
        return (
            f"{self.channel}@{self.node}: {self.evaluated:,} evaluated at the source{unclear}, "
            f"{self.crossed:,} crossed; {self.where}: {self.why}"
        )


# ── for people and programs ──


def _of(peers: Iterable[PeerReport], what: str, head: list[str]) -> list[str]:
    """A table of one kind of rows of all peers."""
    names = [title.lstrip("?>") for title in head]
    rows: list[list[Cell]] = [
        [peer.name, *(getattr(each, name) for name in names)] for peer in peers for each in getattr(peer, what)
    ]
    return _rows(["node", *head], rows)


def _rows(head: list[str], rows: list[list[Cell]]) -> list[str]:
    return _cut(table(head, rows[:SHOWN_ROWS]), len(rows)) if rows else []


def _cut(lines: list[str], found: int) -> list[str]:
    return [*lines, f"  … and {found - SHOWN_ROWS:,} more; to_dict() has them all"] if found > SHOWN_ROWS else lines


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *lines] if lines else []


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


__all__ = [
    "AskedReport",
    "ContactReport",
    "FallbackReport",
    "FederationReport",
    "InstalledReport",
    "LaneReport",
    "PeerReport",
    "RemoteCounts",
    "StandInReport",
]
