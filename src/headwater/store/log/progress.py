"""How far a long job is, for who watches: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import TextIO

_REDRAW = 0.1  # seconds between drawings on a terminal
_LINE = 5.0  # and between lines elsewhere
_WIDTH = 30


class Progress:
    """Counts towards `total` (None: not known) and shows it on `stream`; `HEADWATER_PROGRESS=0` keeps it silent.

    with Progress(len(files), "verify", "files") as progress:
        for file in files:
            ...
            progress.add(1)
    """

    def __init__(self, total: int | None, label: str, unit: str = "events", stream: TextIO | None = None) -> None:
        self.total, self.label, self.unit, self.done = total, label, unit, 0
        self._stream = sys.stderr if stream is None else stream
        self._silent = os.environ.get("HEADWATER_PROGRESS") == "0"
        self._terminal = not self._silent and bool(getattr(self._stream, "isatty", bool)())
        self._every = _REDRAW if self._terminal else _LINE
        self._began = time.monotonic()
        self._next = self._began + (0.0 if self._terminal else _LINE)
        self._shown = 0  # characters on the line
        self._ended = False

    def add(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if not self._silent:
            now = time.monotonic()
            if now >= self._next:
                self._next = now + self._every
                self._show(now)

    def close(self) -> None:
        """Show how it ended; once."""
        if self._silent or self._ended:
            return
        self._ended = True
        self._show(time.monotonic())
        if self._terminal:
            self._write("\n")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _show(self, now: float) -> None:
        line = self._line(now)
        if self._terminal:
            self._write("\r" + line.ljust(self._shown))
            self._shown = len(line)
        else:
            self._write(line + "\n")

    def _line(self, now: float) -> str:
        spent = max(now - self._began, 1e-9)
        rate = self.done / spent
        parts = [f"{self.label}:"]
        if self.total:
            share = min(self.done / self.total, 1.0)
            if self._terminal:
                full = int(share * _WIDTH)
                parts.append(f"[{'#' * full}{'.' * (_WIDTH - full)}]")
            parts.append(f"{share:4.0%}")
        parts.append(f"{self.done:,}" + (f" of {self.total:,}" if self.total else "") + f" {self.unit},")
        parts.append(f"{rate:,.0f}/s,")
        if self._ended or not self.total or not rate or self.done >= self.total:
            parts.append(f"{_clock(spent)} in all" if self._ended else f"{_clock(spent)} so far")
        else:
            parts.append(f"{_clock((self.total - self.done) / rate)} left")
        return " ".join(parts)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # whoever watched has gone
            self._silent = True


def _clock(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 60}:{whole % 60:02}" if whole >= 60 else f"{seconds:.1f} s"
