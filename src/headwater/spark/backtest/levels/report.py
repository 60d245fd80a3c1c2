"""What a backtest of levels found: what each would have been told, and which bound was really met."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.spark.backtest.levels.measuring import Deviations, Measured
from headwater.spark.backtest.report import ENGINES, FRAME, Traffic, plain, write_tables
from headwater.text_tables import aligned

SHARES = {"half": 0.5, "nine_tenths": 0.9, "all_but_a_hundredth": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How far a member was off: the greatest, and what half of all, nine tenths and 99 of 100 were at most, to a
    thousandth of the bound. `unlike`: how often one of the two was missing or NaN."""

    bound: float
    measured: int
    greatest: float
    half: float | None
    nine_tenths: float | None
    all_but_a_hundredth: float | None
    unlike: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRow:
    """One level. `messages` are what is told, `corrections` those of them that only the model has made necessary.
    `met` is how far off each member was from what was told by then, which the bound is promised of; `seen`, from what
    had arrived by then, of which nothing is promised."""

    name: str
    messages: Traffic
    corrections: int
    share: float | None  # of the changes
    met: Mapping[str, Deviation]
    seen: Mapping[str, Deviation]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBacktest:
    """The whole report. `changes` are what turns have left of the objects: so many messages an exact replica takes."""

    objects: str
    type: str
    changes: int
    delay: float | None  # seconds, one way
    levels: tuple[LevelRow, ...]
    seconds: float
    engine: str
    notes: tuple[str, ...] = ()

    def level(self, name: str) -> LevelRow:
        """The row of one; KeyError if there is none."""
        for row in self.levels:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    def to_json(self, *, indent: int | None = 1) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def write_csv(self, folder: str | os.PathLike[str]) -> list[Path]:
        """levels.csv, with a row for each level and member."""
        head = ["level", "messages", "bytes", "member", "of", "bound", "greatest", *SHARES]
        rows = [
            [row.name, row.messages.events, row.messages.bytes, member, of, found.bound, found.greatest,
             *(getattr(found, name) for name in SHARES)]
            for row in self.levels
            for of, members in (("told", row.met), ("arrived", row.seen))
            for member, found in members.items()
        ]  # fmt: skip
        return write_tables(folder, {"levels": (head, rows)})

    def __str__(self) -> str:
        lines = [f"{self.changes:,} changes of {self.objects}, {len(self.levels):,} levels, in {self.seconds:,.1f} s"]
        head = ["level", "messages", "bytes", "of the changes"]
        rows = [
            [row.name, f"{row.messages.events:,}", f"{row.messages.bytes:,}",
             "–" if row.share is None else f"{100 * row.share:.1f} %"]
            for row in self.levels
        ]  # fmt: skip
        lines += ["", "What would cross:", *aligned(head, rows, [False, True, True, True])]
        lines += ["", "How far off what was told would have been:", *self._off("met")]
        if self.delay is not None:
            late = f"How far off what had arrived would have been, {1000 * self.delay:g} ms after it was told:"
            lines += ["", late, *self._off("seen")]
        lines += ["", f"bytes: the record of what is told and {FRAME} bytes more, once for each node that holds it",
                  f"run {ENGINES.get(self.engine, self.engine)}"]  # fmt: skip
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def _off(self, which: str) -> list[str]:
        rows = []
        for row in self.levels:
            found: Mapping[str, Deviation] = getattr(row, which)
            for member, each in found.items():
                shares = [getattr(each, name) for name in SHARES]
                told = ["–" if share is None else f"{share:.4g}" for share in shares]
                rows.append([row.name, member, f"{each.bound:g}", *told, f"{each.greatest:.4g}"])
        return aligned(["level", "member", "bound", "50 %", "90 %", "99 %", "greatest"], rows,
                       [False, False, *[True] * 5])  # fmt: skip


def level_row(name: str, found: Measured) -> LevelRow:
    """What the report says of one."""
    return LevelRow(
        name=name,
        messages=Traffic(found.messages, found.bytes),
        corrections=found.corrections,
        share=found.messages / found.changes if found.changes else None,
        met={path: _deviation(each) for path, each in found.met.items()},
        seen={path: _deviation(each) for path, each in found.seen.items()},
    )


def _deviation(found: Deviations) -> Deviation:
    shares = {name: found.below(share) for name, share in SHARES.items()}
    return Deviation(bound=found.bound, measured=found.count, greatest=found.greatest, unlike=found.unlike, **shares)


__all__ = ["Deviation", "LevelBacktest", "LevelRow", "level_row"]
