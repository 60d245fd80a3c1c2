"""Arguments of commands, from their text: numbers, times, and parameters of interests."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from datetime import UTC, datetime

from headwater.errors import ParameterError


def whole(text: str, *, least: int = 0) -> int:
    """A whole number."""
    if text.isascii() and text.isdigit() and int(text) >= least:
        return int(text)
    raise ArgumentTypeError(f"expected a number from {least}, found {text!r}")


def number(text: str, expected: str, *, below: float) -> float:
    """A number from 0; `expected` says of what."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < below:
        raise ArgumentTypeError(f"expected {expected}, found {text!r}")
    return found


def seconds(text: str) -> float:
    """So many seconds, from 0 on."""
    return number(text, "seconds", below=1e9)


def moment(text: str) -> datetime:
    """A time, of UTC unless it has a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a time as in 2026-01-31T12:00:00, found {text!r}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def given_params(items: list[str]) -> dict[str, object]:
    """Parameters of an interest, each as NAME=VALUE: a value is JSON, where a list is a set, or else text."""
    return dict(map(_param, items))


def pairs(option: str, of: str, items: list[str]) -> list[tuple[str, str]]:
    """Values of an option, each as NAME=`of`."""
    found = [item.partition("=") for item in items]
    for item, (name, _, value) in zip(items, found, strict=True):
        if not name.strip() or not value.strip():
            raise ParameterError(f"{option} {item!r}: expected NAME={of}")
    return [(name.strip(), value.strip()) for name, _, value in found]


def _param(item: str) -> tuple[str, object]:
    name, equals, value = item.partition("=")
    if not equals or not name.isidentifier():
        raise ParameterError(f"--param {item!r}: expected NAME=VALUE")
    try:
        parsed: object = json.loads(value)
    except ValueError:
        return name, value
    if not isinstance(parsed, list):
        return name, parsed
    if any(isinstance(member, list | dict) for member in parsed):
        raise ParameterError(f"--param {item!r}: expected a list of plain values, which is a set")
    return name, frozenset(parsed)
