"""How a time is written: ISO 8601, seconds since 1970 and parts of them, or by a format with the signs of strptime."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo, available_timezones

from headwater.channel.options.settings import near

EPOCHS = {"epoch s": 1_000_000, "epoch ms": 1_000, "epoch us": 1, "epoch ns": 0}
_SIGNS = {
    "Y": "yyyy", "m": "MM", "d": "dd", "H": "HH", "I": "hh", "M": "mm", "S": "ss", "f": "SSSSSS", "p": "a", "b": "MMM",
    "B": "MMMM", "y": "yy", "j": "DDD", "z": "XX", ":z": "XXX", "Z": "VV", "-d": "d", "-m": "M", "-H": "H", "-I": "h",
    "%": "'%'", "F": "yyyy-MM-dd", "T": "HH:mm:ss",
}  # fmt: skip
_ZONED = {"z", ":z", "Z"}


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """`kind` is "iso", "epoch" or "pattern". `unit`: microseconds in one unit of an epoch, 0 if it is less than one;
    `java`: the pattern as Java writes it; `zoned`: whether it says the zone, else the time is one of `zone`."""

    kind: str
    text: str
    unit: int = 1
    java: str = ""
    zoned: bool = False
    zone: str = "UTC"

    def at(self, zone: str) -> TimeFormat:
        return replace(self, zone=zone)


def parse_time_format(text: object) -> TimeFormat | str:
    """The format, or what was expected."""
    expected = '"iso", "epoch s", "epoch ms", "epoch us", "epoch ns", or a format such as "%d.%m.%Y %H:%M:%S"'
    if not isinstance(text, str):
        return expected
    if text == "iso":
        return TimeFormat("iso", text)
    if text in EPOCHS:
        return TimeFormat("epoch", text, unit=EPOCHS[text])
    if "%" not in text:
        return expected
    java, zoned = "", False
    for found in re.finditer(r"%(-?:?.?)|([^%]+)", text, re.DOTALL):
        sign, literal = found[1], found[2]
        if literal is not None:
            java += re.sub(r"[A-Za-z]+|[\[\]{}#']", lambda m: "''" if m[0] == "'" else f"'{m[0]}'", literal)
        elif sign in _SIGNS:
            java += _SIGNS[sign]
            zoned |= sign in _ZONED
        else:
            return f"signs of {', '.join('%' + each for each in _SIGNS)}, and not %{sign}"
    return TimeFormat("pattern", text, java=java, zoned=zoned)


def zone_problem(zone: object) -> str | None:
    """What was expected of a zone, if it is none."""
    expected = 'a time zone such as "Europe/Dublin", "UTC" or "+02:00"'
    if not isinstance(zone, str):
        return expected
    if re.fullmatch(r"[+-](?:0\d|1[0-4]):[0-5]\d", zone):
        return None
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        hint = near(zone, available_timezones())
        return f"{expected}; {hint}" if hint else expected
    return None
