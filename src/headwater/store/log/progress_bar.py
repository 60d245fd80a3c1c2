"""How far a long job is, for who watches: a bar on a terminal, a line now and then elsewhere.

However it was watched, one plain line says how it ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from shutil import get_terminal_size
from types import TracebackType
from typing import TextIO

from headwater.text_width import beginning, columns

_REDRAW = 0.1  # seconds between drawings on a terminal
_LINE = 5.0  # and between lines elsewhere
_BAR = 30  # characters
_CLEAR = "\x1b[K"  # the rest of the line
# What is left is estimated from that much on: the first moments of a job say little about the rest of it.
_EVIDENCE_SECONDS = 2.0
_EVIDENCE_SHARE = 0.02


class Progress:
    """Counts towards `total` (None: not known) and shows it on `stream`; `HEADWATER_PROGRESS=0` keeps it silent.

    with Progress(len(files), "verify", "files") as progress:
        for file in files:
            ...
            progress.add(1)

    `begin` says that what was done until then was preparation: rate and time left are of what comes after it, and the
    last line tells the two times apart.
    """

    def __init__(
        self,
        total: int | None,
        label: str,
        unit: str = "events",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.label, self.unit, self.done = total, label, unit, 0
        self._stream = sys.stderr if stream is None else stream
        self._silent = os.environ.get("HEADWATER_PROGRESS") == "0"
        drawn = os.environ.get("TERM") not in ("dumb", "unknown") and getattr(self._stream, "isatty", bool)()
        self._terminal = bool(drawn) and not self._silent
        self._every = _REDRAW if self._terminal else _LINE
        self._clock = clock
        self._began = clock()
        self._counted = self._began  # when something was counted last
        self._prepared: tuple[float, str] | None = None  # seconds, and what was done in them
        self._next = self._began + (0.0 if self._terminal else _LINE)
        self._drawn = False  # on a terminal: a bar, which goes when it is over
        self._ended = False

    def begin(self, after: str) -> None:
        """The work itself begins only now, `after` something that is not a part of it."""
        now = self._clock()
        self._prepared = now - self._began, after
        self._began = self._counted = now
        self._next = now + (0.0 if self._terminal else _LINE)

    def add(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if not self._silent:
            now = self._counted = self._clock()
            if now >= self._next:
                self._next = now + self._every
                self._show(now)

    def close(self) -> None:
        """Show how it ended; once."""
        if self._silent or self._ended:
            return
        self._ended = True
        if self._drawn:
            self._write(f"\r{_CLEAR}")
        self._write(self._line(self._clock() if self._prepared is None else self._counted) + "\n")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _show(self, now: float) -> None:
        if not self._terminal:
            self._write(self._line(now) + "\n")
            return
        self._drawn = True
        told = self._line(now).removeprefix(f"{self.label}: ")
        line = " ".join((f"{self.label}:", *((_bar(self.done / self.total),) if self.total else ()), told))
        room = get_terminal_size().columns - 1
        self._write(f"\r{line if columns(line) <= room else beginning(line, room)}{_CLEAR}")

    def _line(self, now: float) -> str:
        spent = max(now - self._began, 1e-9)
        rate = self.done / spent
        parts = [f"{self.label}:"]
        if self.total:
            parts.append(f"{min(self.done / self.total, 1.0):4.0%}")
        parts.append(f"{self.done:,}" + (f" of {self.total:,}" if self.total else "") + f" {self.unit},")
        parts.append(f"{rate:,.0f}/s,")
        if self._ended:
            parts.append(f"{_clock(spent)} in all" if self._prepared is None else f"in {_clock(spent)}")
        elif self._foreseen(spent):
            assert self.total
            parts.append(f"{_clock((self.total - self.done) / rate)} left")
        else:
            parts.append(f"{_clock(spent)} so far")
        if self._ended and self._prepared is not None:
            seconds, what = self._prepared
            parts.append(f"after {_clock(seconds)} {what}")
        return " ".join(parts)

    def _foreseen(self, spent: float) -> bool:
        """Whether enough is done to say how long the rest takes."""
        if not self.total or not _EVIDENCE_SHARE * self.total <= self.done < self.total:
            return False
        return spent >= _EVIDENCE_SECONDS

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # whoever watched has gone
            self._silent = True


def _bar(share: float) -> str:
    """A bar of which this share is done: heavy, and light what is left, so that it needs no colour."""
    halves = round(min(max(share, 0.0), 1.0) * 2 * _BAR)
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return done + "─" * (_BAR - len(done))


def _clock(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 60}:{whole % 60:02}" if whole >= 60 else f"{seconds:.1f} s"
