"""`Log`: where events are logged, and how."""

from __future__ import annotations

import math
import os
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from headwater.errors import ConfigError, ConfigProblem
from headwater.store.log.location import EXPECTED, local_folder, misplaced

Sync = Literal["publish", "interval", "roll"]
SYNCS = ("publish", "interval", "roll")

MIB = 1 << 20
LEAST_ROLL = 4096  # bytes; below this files would be more footer than events


@dataclass(frozen=True, slots=True)
class Log:
    """Log the events of a node's own sources in a folder, which many nodes may share.

    What `publish` returned for is written, and survives the end of the process however it comes. `sync` says what
    survives a power cut too: every event ("publish": the call returns when it is on the disk), all but those of the
    last `interval` seconds ("interval"), or what is at rest ("roll").

    Events wait in a write-ahead file until it has `roll_bytes` or is `roll_seconds` old, and then come to rest as
    Parquet. With `keep_seconds` or `keep_bytes` the oldest files at rest are deleted, for each channel and node.

    Closing brings what was logged to rest too, and begins nothing more of that after `rest_seconds` (0: not at all).
    What is left waits where it is, and `headwater log rest` does it.
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    channels: str | tuple[str, ...] = "**"
    sync: Sync = "interval"
    interval: float = 1.0
    roll_bytes: int = 64 * MIB
    roll_seconds: float = 3600.0
    rest_seconds: float = 10.0
    keep_seconds: float | None = None
    keep_bytes: int | None = None

    def __post_init__(self) -> None:
        problems = self.problems()
        if problems:
            raise ConfigError(problems, "the log cannot be like this")

    def problems(self, place: str = "Log") -> list[ConfigProblem]:
        """Everything that is not possible about these settings."""
        found: list[ConfigProblem] = []

        def expect(right: bool, key: str, expected: str, hint: str | None = None) -> None:
            if not right:
                found.append(ConfigProblem(f"{place}: {key}", expected, repr(getattr(self, key)), hint))

        path = os.fspath(self.path) if isinstance(self.path, (str, os.PathLike)) else None
        fine = isinstance(path, str) and bool(path) and "\0" not in path
        expect(fine, "path", "the path of a folder")
        if fine and path is not None and (elsewhere := misplaced(path)) is not None:
            found.append(ConfigProblem(f"{place}: path", EXPECTED, f"{path!r}, {elsewhere}"))
        patterns = (self.channels,) if isinstance(self.channels, str) else self.channels
        fine = isinstance(patterns, tuple) and bool(patterns) and all(isinstance(p, str) and p for p in patterns)
        expect(fine, "channels", "a pattern of names of channels, or a tuple of them", "'**' stands for every channel")
        expect(self.sync in SYNCS, "sync", "'publish', 'interval' or 'roll'")
        expect(_above(self.interval), "interval", "a number of seconds above 0", "sync='publish' waits for each event")
        size = isinstance(self.roll_bytes, int) and not isinstance(self.roll_bytes, bool)
        expect(size and LEAST_ROLL <= self.roll_bytes < 1 << 40, "roll_bytes", f"a number of bytes from {LEAST_ROLL}")
        expect(_above(self.roll_seconds), "roll_seconds", "a number of seconds above 0")
        patient = self.rest_seconds == 0 and not isinstance(self.rest_seconds, bool)
        expect(patient or _above(self.rest_seconds), "rest_seconds", "a number of seconds from 0")
        expect(self.keep_seconds is None or _above(self.keep_seconds), "keep_seconds", "seconds above 0, or None")
        keep = isinstance(self.keep_bytes, int) and not isinstance(self.keep_bytes, bool) and self.keep_bytes >= 0
        expect(self.keep_bytes is None or keep, "keep_bytes", "a number of bytes from 0, or None")
        return found

    @property
    def folder(self) -> str:
        """The path of the folder that is meant, as text: without `~` or `file:`."""
        return os.fspath(local_folder(self.path))


def _above(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
