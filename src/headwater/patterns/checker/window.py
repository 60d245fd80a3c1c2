"""The window of a pattern: how far the last event may be from the first."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Protocol

from headwater.ir.nodes import Span
from headwater.patterns import model, written
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

MAX_TIME = TIMESTAMP_MAX - TIMESTAMP_MIN  # microseconds: no two events are further apart
MAX_ROWS = 1 << 40
SECOND = 1_000_000  # microseconds


class Notes(Protocol):
    """Where parameters are looked up, and problems told."""

    params: Any
    used: set[str]

    def problem(self, span: Span, message: str, **more: str | None) -> None: ...


def as_window(window: written.Window | None, notes: Notes) -> model.Window | None:
    """A window with its length known, or None; what is wrong with it is noted."""
    if window is None:
        return None
    micros = window.microseconds
    if window.parameter is not None:
        if window.parameter not in notes.params:
            hint = f"give it: params={{{window.parameter!r}: 10.0}}"
            notes.problem(window.span, f"no parameter {window.parameter!r}", expected="a number of seconds", hint=hint)
            return None
        notes.used.add(window.parameter)
        micros = seconds_as_micros(notes.params[window.parameter])
        if micros is None:
            notes.problem(
                window.span,
                f"the parameter {window.parameter!r} is no time",
                expected="a number of seconds",
                found=repr(notes.params[window.parameter])[:40],
            )
            return None
    if (micros is None) == (window.rows is None):
        notes.problem(window.span, "a window has a time or a number of events", expected="one of the two")
        return None
    if micros is not None and not 0 <= micros <= MAX_TIME:
        message = "a window is not below zero" if micros < 0 else "no window is so long"
        notes.problem(window.span, message, expected="a time up to 9,998 years", found=f"{micros:,} µs")
        return None
    if window.rows is not None and not 1 <= window.rows <= MAX_ROWS:
        notes.problem(
            window.span, "no window has so many events", expected=f"1 to {MAX_ROWS:,}", found=f"{window.rows:,}"
        )
        return None
    return model.Window(micros, window.rows, window.parameter)


def seconds_as_micros(value: object) -> int | None:
    """Of a number of seconds, or a timedelta; None if it is none."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(value * SECOND) if abs(value) <= MAX_TIME else None
