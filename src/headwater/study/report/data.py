"""What a study has found, as values that can be written to a file and read again.

Numbers are what was measured. Percentages and differences are computed where they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headwater.decoders import json_decoder
from headwater.errors import StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Between a node with sources and the nodes with sinks."""

    node: str
    published: int  # events
    crossed: int  # events; one that several sinks of a node want crosses once
    frames: int  # with events in them
    bytes: int  # of everything that went this way
    sources: int = 0
    back_frames: int = 0  # acknowledgements, interests and what else came back
    back_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One live run: who got how much, and what that took between the nodes."""

    name: str
    title: str
    delivered: Mapping[str, int]  # events, by subscription
    links: tuple[Link, ...]
    said: int  # messages about nodes, channels and interests
    said_bytes: int
    seconds: float  # from the first event to the last acknowledgement
    ready: float  # seconds until all interests were at the sources
    filtered: bool = True  # interests at the sources; otherwise everything crosses and is filtered on arrival
    where: Mapping[str, str] = field(default_factory=dict)  # by subscription: where its interest runs

    @property
    def published(self) -> int:
        return sum(link.published for link in self.links)

    @property
    def crossed(self) -> int:
        return sum(link.crossed for link in self.links)

    @property
    def frames(self) -> int:
        return sum(link.frames for link in self.links)

    @property
    def bytes(self) -> int:
        """Both ways."""
        return sum(link.bytes + link.back_bytes for link in self.links)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFacts:
    """An interest as code."""

    name: str
    notation: str
    text: str
    lines: int
    text_bytes: int
    serial_bytes: int  # what travels, without the text
    param_bytes: int  # what travels beside it
    object_bytes: int  # machine code as the compiler emits it, with what links it
    instructions: int
    check_seconds: float  # from the serial form to a checked and rewritten program
    compile_seconds: float  # from there to machine code in place
    cost: int  # estimated operations an event
    shared_by: int = 1  # subscriptions with the same program


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkResult:
    """The same interests over the log, on Spark."""

    counts: Mapping[str, int]  # events, by subscription
    seconds: float
    rows: int
    kinds: Mapping[str, str] = field(default_factory=dict)  # by subscription: "column" or "arrow"
    master: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Events over time: numbers for equal steps from `start` (microseconds since 1970), by series.

    `covered` are the times of the first and the last event, where they are known: a step that is longer than what was
    recorded of it has fewer events for that reason alone."""

    start: int
    step: int  # microseconds
    series: Mapping[str, tuple[int, ...]]
    covered: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Who subscribed: `group` is the run it was in, `watches` what it is about."""

    name: str
    group: str
    watches: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """All of it. Times that belong to the machine, not to the result, are in `timings`, `seconds` and `ready` only."""

    title: str
    made: str  # when, ISO 8601
    events: int
    stations: int
    subscriptions: tuple[Subscription, ...]
    runs: tuple[Run, ...]
    day: Timeline  # events by node with sources
    code: tuple[CodeFacts, ...] = ()
    spark: SparkResult | None = None
    crossing: Timeline | None = None  # events that cross, by run, where known
    record_bytes: int = 0  # of all events as records: what they hold, without frames
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds, by what took them
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def run(self, name: str, *, filtered: bool = True) -> Run | None:
        """The run of this name, if there was one."""
        return next((each for each in self.runs if each.name == name and each.filtered == filtered), None)

    def delivered(self, subscription: str) -> int | None:
        """Live, in the run of its own group; none if it was in no run."""
        for group in (next((each.group for each in self.subscriptions if each.name == subscription), ""), "all"):
            run = self.run(group)
            if run is not None and subscription in run.delivered:
                return run.delivered[subscription]
        return None

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> StudyResult:
        return json_decoder(cls).decode(data)

    @classmethod
    def load(cls, path: Path) -> StudyResult:
        """From a file that a study wrote."""
        try:
            return cls.from_json(path.read_bytes())
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise StoreError(f"{path}: expected the result of a study, found {problem}; run the study again") from None


def timeline(times: Sequence[int], keys: Sequence[str], *, step: int, order: Sequence[str] = ()) -> Timeline:
    """Events counted by key and step; `times` are microseconds, in any order. Keys in `order` come first, and in it."""
    if step <= 0:
        raise ValueError(f"timeline: expected a step of at least a microsecond, found {step}")
    start = min(times) // step * step if times else 0
    steps = (max(times) - start) // step + 1 if times else 0
    series: dict[str, list[int]] = {key: [0] * steps for key in order}
    for at, key in zip(times, keys, strict=True):
        series.setdefault(key, [0] * steps)[(at - start) // step] += 1
    made = {key: tuple(counts) for key, counts in series.items()}
    return Timeline(start=start, step=step, series=made, covered=(min(times), max(times)) if times else None)
