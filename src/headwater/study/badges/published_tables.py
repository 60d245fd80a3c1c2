"""The published tables as data, every column as printed, and what the printed percentages should have been.

SECO counts messages: an event that crosses is two of them, the event and its reply, and every subscriber costs 48
more, for being made known to twelve nodes and withdrawn again, each with a reply. Mobile counts events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from headwater.study.badges.margins import BADGES, CATEGORIES, NETWORKS, SIGHTINGS, Category

PER_EVENT = 2  # messages: the event and its reply
OVERHEAD = 48  # messages: 4 * (13 - 1), for one subscriber and thirteen nodes
UNFILTERED = PER_EVENT * SIGHTINGS

Source = str  # "SECO" or "Mobile"


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A row of SECO's tables 7.1 to 7.6. `decrease` is the percentage as printed, none if it cannot be read."""

    name: str
    unfiltered: int
    actual: int
    overhead: int
    total: int
    decrease: str | None

    @property
    def events(self) -> int:
        return self.actual // PER_EVENT

    @property
    def exact(self) -> Fraction:
        """The decrease in percent, as the other columns have it."""
        return decrease(self.total, self.unfiltered)

    @property
    def recomputed(self) -> str:
        return rounded(self.exact, 1)

    @property
    def wrong(self) -> bool:
        """Whether the printed percentage, where it can be read, is not what the row's own columns give."""
        return self.decrease is not None and self.decrease != self.recomputed


@dataclass(frozen=True, slots=True)
class MessageTable:
    """One of tables 7.1 to 7.6. `average` is the mean of its percentages as printed, if it has one."""

    number: str
    subject: str
    rows: tuple[MessageRow, ...]
    average: str | None = None
    averaged: tuple[MessageRow, ...] = ()  # what the average is of: table 7.5 has it for 7.3 to 7.5

    @property
    def recomputed_average(self) -> str:
        rows = self.averaged or self.rows
        return rounded(sum((row.exact for row in rows), Fraction(0)) / len(rows), 1)


@dataclass(frozen=True, slots=True)
class EventRow:
    """A row of Mobile's tables 1 to 3."""

    name: str
    unfiltered: int
    filtered: int
    decrease: str

    @property
    def recomputed(self) -> str:
        return rounded(decrease(self.filtered, self.unfiltered), 2)

    @property
    def wrong(self) -> bool:
        return self.decrease != self.recomputed


@dataclass(frozen=True, slots=True)
class EventTable:
    """One of tables 1 to 3."""

    number: str
    subject: str
    rows: tuple[EventRow, ...]


@dataclass(frozen=True, slots=True)
class LinesRow:
    """Table 7.7: lines of source code of a constraint, how many of them are there for dynamic linking, and percent."""

    name: str
    lines: int
    dynamic: int
    percent: int

    @property
    def recomputed(self) -> str:
        return rounded(Fraction(100 * self.dynamic, self.lines), 0)


@dataclass(frozen=True, slots=True)
class FootprintRow:
    """Table 7.8: bytes of object code of a constraint (n1), of the stub linked in its place (n2), of all of it once
    linked (n3), and the changes in percent as printed."""

    name: str
    code: int
    stub: int
    linked: int
    change_not_linked: str
    change_linked: str

    @property
    def upcall(self) -> int:
        """Not printed: what n3 has beyond n1 and n2."""
        return self.linked - self.code - self.stub


def decrease(left: int, whole: int) -> Fraction:
    """By how many percent `left` is less than `whole`."""
    return 100 * (1 - Fraction(left, whole))


def rounded(value: Fraction, digits: int) -> str:
    """To a number of digits, halves up, as text: exact, where floats are not."""
    scale = 10**digits
    units = (2 * value * scale + 1) // 2
    whole, part = divmod(abs(units), scale)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{part:0{digits}d}" if digits else f"{sign}{whole}"


def _messages(rows: Iterable[tuple[str, int, str]]) -> tuple[MessageRow, ...]:
    """The first and third columns are the same in every row, and every total that can be read is right."""
    return tuple(
        MessageRow(
            name,
            UNFILTERED,
            PER_EVENT * events,
            OVERHEAD,
            PER_EVENT * events + OVERHEAD,
            None if printed == "?" else printed,
        )
        for name, events, printed in rows
    )


def _columns(counts: dict[str, int], printed: str) -> Iterable[tuple[str, int, str]]:
    return ((name, events, each) for (name, events), each in zip(counts.items(), printed.split(), strict=True))


_CAMERAS = "99.9 99.9 99.9 94.0 84.0 80.6 92.7 85.9 94.1 94.6 80.0 93.7"
# A ? is a percentage that cannot be read in the text we have.
_EYES = """
    99.8 99.8 98.2 98.0 99.8 99.8 99.7 99.6 99.7 99.7 98.7 99.8 99.7 99.4 99.7 99.4 99.8 99.8
    99.4 99.7 99.1 99.8 99.7 99.8 99.8 99.8 99.3 99.5 99.3 98.0 99.0 98.8 99.2 99.8 99.8 99.7
    98.8 98.9 99.7 99.8 98.8 99.2 99.3 99.7 99.1 99.0 99.2 99.3 99.5 99.6 99.4 ? 98.8 99.0
    98.9 98.9 98.8 98.9 99.3 98.9 98.9 98.8 98.9 99.8 98.9 99.5 99.0 99.5 98.9 98.9 99.4 98.9
    98.9 99.0 99.0 98.9 98.9 98.9 99.0 98.9 99.8 98.9 98.9 99.0 98.9 99.2 99.8 99.0 99.1 98.9
    98.9 98.9 98.4 98.5 99.2 ? 98.9 99.1 ? 99.0 98.9 99.0 99.0 99.0 98.9 99.0 99.0 98.9
    99.2 98.9 98.9 99.0 99.8 98.8 99.1 99.7 98.9 98.8 98.9 99.7 98.9 99.1 98.9 99.1 99.1 98.9
    99.1 99.8 98.9 99.1 99.7 99.1 98.9 98.9 98.9 99.8 99.2 99.7 99.0 99.0 99.5 99.2 99.8 98.9
    99.4 99.6 99.2 99.2 99.8 99.8 99.7 99.3 99.8 99.3 99.3 98.7 99.8 99.2 98.3 99.3 99.7 99.6
"""
_BROTHERS = {"users": "72.2", "equipment": "34.1", "unlisted": "93.5"}

EYES = _messages(_columns(BADGES, _EYES))
BROTHER_ORDER: tuple[Category, ...] = ("users", "equipment", "unlisted")

SECO: dict[str, MessageTable] = {
    table.number: table
    for table in (
        MessageTable("7.1", "God", _messages([("God", SIGHTINGS, "-0.1")])),
        MessageTable("7.2", "Security cameras", _messages(_columns(NETWORKS, _CAMERAS)), "91.6"),
        MessageTable("7.3", "Private eyes, 1 of 3", EYES[:54]),
        MessageTable("7.4", "Private eyes, 2 of 3", EYES[54:108]),
        MessageTable("7.5", "Private eyes, 3 of 3", EYES[108:], "99.2", EYES),
        MessageTable(
            "7.6",
            "Big brothers",
            _messages((kind, CATEGORIES[kind], _BROTHERS[kind]) for kind in BROTHER_ORDER),
            "66.6",
        ),
    )
}

_CCTV = "99.85 99.94 99.98 94.07 84.07 80.64 92.79 85.97 94.21 94.70 80.05 93.73"

MOBILE: dict[str, EventTable] = {
    table.number: table
    for table in (
        EventTable("1", "God", (EventRow("God", SIGHTINGS, SIGHTINGS, "0.00"),)),
        EventTable(
            "2",
            "Big brothers",
            (
                EventRow("equipment", SIGHTINGS, CATEGORIES["equipment"], "34.16"),
                EventRow("unlisted", SIGHTINGS, CATEGORIES["unlisted"], "93.58"),
                EventRow("users", SIGHTINGS, CATEGORIES["users"], "72.26"),
            ),
        ),
        EventTable(
            "3",
            "Security cameras",
            tuple(EventRow(name, SIGHTINGS, events, printed) for name, events, printed in _columns(NETWORKS, _CCTV)),
        ),
    )
}

LINES: tuple[LinesRow, ...] = (
    LinesRow("God", 203, 122, 60),
    LinesRow("SecurityCam", 227, 122, 54),
    LinesRow("PrivateEye", 227, 122, 54),
    LinesRow("BigBrother", 256, 128, 50),
)
LINES_AVERAGE = LinesRow("Average", 228, 124, 54)

FOOTPRINTS: tuple[FootprintRow, ...] = (
    FootprintRow("God", 37_750, 31_366, 79_376, "-16.9", "+110"),
    FootprintRow("SecurityCam", 41_895, 31_506, 83_666, "-24.8", "+99.7"),
    FootprintRow("PrivateEye", 41_880, 31_476, 83_620, "-24.8", "+99.7"),
    FootprintRow("BigBrother", 42_278, 33_170, 85_712, "-21.5", "+103"),
)
FOOTPRINT_AVERAGE = ("-22.0", "+103")  # of the two changes
REPOSITORY = 169_237  # bytes of the class repository, which every application with dynamic classes carries
