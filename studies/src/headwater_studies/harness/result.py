"""What a study of performance has found: sections of text, tables and plots as values, with all that it takes to judge
them (command, machine, versions, repetitions, spread), and every comparison as a ratio.

A result is written as JSON and read again; pages are made from it and nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from headwater.decoders import json_decoder
from headwater.errors import StoreError
from headwater.study.report.bars import Bar
from headwater.study.report.html import Heading, Notes, Text
from headwater.study.report.table import Table
from headwater_studies.harness.xy import Axis, Series, Style


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Series over two axes. `name` is a file's; `below` says what is to be seen."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    below: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars with their values."""

    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    log: bool = False
    below: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Exactly one of them, in a section's order."""

    text: Text | None = None
    heading: Heading | None = None
    notes: Notes | None = None
    table: Table | None = None
    plot: Plot | None = None
    bars: Bars | None = None


Block = Text | Heading | Notes | Table | Plot | Bars
_FIELD: dict[type, str] = {
    Text: "text",
    Heading: "heading",
    Notes: "notes",
    Table: "table",
    Plot: "plot",
    Bars: "bars",
}


def content(*blocks: Block) -> tuple[Content, ...]:
    """Blocks as the contents of a section."""
    return tuple(Content(**{_FIELD[type(block)]: block}) for block in blocks)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a study. `command` makes it anew; `repetitions` says how often what was measured.

    `part` and `begun` (when, UTC) are filled in by who runs it.
    """

    key: str
    title: str
    contents: tuple[Content, ...]
    command: str
    repetitions: str = ""
    part: str = ""
    begun: str = ""

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(
            next(block for name in _FIELD.values() if (block := getattr(each, name)) is not None)
            for each in self.contents
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ours beside a reference of the same run, round by round. `why`: said where we are behind."""

    case: str
    reference: str  # its name
    ours: tuple[float, ...]  # of each round
    theirs: tuple[float, ...]  # of the same rounds
    kind: Literal["seconds", "per second", "bytes", "count"]
    why: str = ""
    part: str = ""  # filled in by who runs it

    def __post_init__(self) -> None:
        if not self.ours or len(self.ours) != len(self.theirs):
            raise ValueError(f"{self.case}: expected as many of ours as of theirs, found {self.ours}, {self.theirs}")

    @property
    def factors(self) -> tuple[float, ...]:
        """How many times as good we are, in each round; below 1 we are behind."""
        pairs = zip(self.ours, self.theirs, strict=True)
        if self.kind == "per second":
            return tuple(mine / theirs if theirs else float("inf") for mine, theirs in pairs)
        return tuple(theirs / mine if mine else float("inf") for mine, theirs in pairs)


def spread(
    name: str,
    points: Iterable[tuple[float, Sequence[float]]],
    scale: float = 1.0,
    *,
    style: Style = "line",
    dashed: bool = False,
) -> Series:
    """A series of several rounds: their medians, and the least and the most of them as a band."""
    taken = [(x, [value * scale for value in values]) for x, values in points]
    return Series(
        name=name,
        points=tuple((x, float(statistics.median(values))) for x, values in taken),
        band=tuple((min(values), max(values)) for _, values in taken),
        style=style,
        dashed=dashed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All of one study."""

    name: str
    title: str
    lead: str
    command: str
    begun: str  # when, UTC
    seconds: float
    quick: bool = False  # a short run, to see that everything works; its figures mean little
    machine: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)  # what could not be run here, and why
    sections: tuple[Section, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)  # what a model is fed with, by name

    def to_json(self, indent: int = 1) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=indent) + b"\n"

    @classmethod
    def from_json(cls, data: bytes, place: str = "a result") -> Result:
        try:
            return json_decoder(cls).decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
            raise StoreError(f"{place}: expected the result of a study of performance, found {error}") from None

    @classmethod
    def read(cls, path: Path) -> Result:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
        return cls.from_json(data, str(path))


__all__ = [
    "Axis",
    "Bars",
    "Block",
    "Content",
    "Plot",
    "Ratio",
    "Result",
    "Section",
    "Series",
    "content",
    "spread",
]
