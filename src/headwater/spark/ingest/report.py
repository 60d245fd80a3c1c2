"""What an ingest did, as a value and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class FileNote:
    """Something to say of a file; `fatal`: nothing of it was read."""

    path: str
    what: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(slots=True)
class IngestReport:
    """Counts that add up: `lines` = `read` + `blank` + `headers`, and `read` = `logged` + `empty` + `quarantined`.

    `events` are those in the log; each record has one, unless records are exploded. `repeated`: events that are like
    one before (None: not looked at); `dropped`: those of them that were left out, and are in the quarantine."""

    id: str
    channel: str
    node: str
    files: int = 0
    lines: int = 0
    blank: int = 0
    headers: int = 0
    logged: int = 0
    empty: int = 0
    quarantined: int = 0
    events: int = 0
    repeated: int | None = None
    dropped: int = 0
    backwards: int = 0
    late: tuple[tuple[float, int], ...] = ()
    late_by: str = ""
    sources: int = 0
    first: int | None = None
    last: int | None = None
    quarantine: str | None = None
    reasons: tuple[tuple[str, int], ...] = ()
    notes: list[FileNote] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def read(self) -> int:
        return self.logged + self.empty + self.quarantined

    @property
    def complete(self) -> bool:
        """Whether every file could be read."""
        return not any(note.fatal for note in self.notes)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        """The report as text: what was read, logged and quarantined, and why."""
        yield f"ingest {self.id[:8]} into {self.channel} as node {self.node}, {self.seconds:,.1f} s"
        yield from (f"  before: {line}" for line in self.recovered)
        rows: list[tuple[str, str]] = [("files read", f"{self.files:,}"), ("lines", f"{self.lines:,}")]
        rows += [("  blank", f"{self.blank:,}"), ("  headers", f"{self.headers:,}"), ("records read", f"{self.read:,}")]
        rows += [("  logged", f"{self.logged:,}")]
        if self.empty:
            rows += [("  with nothing to explode", f"{self.empty:,}")]
        rows += [("  quarantined", f"{self.quarantined:,}"), ("events logged", f"{self.events:,}")]
        if self.repeated is not None:
            rows += [
                ("  duplicates", f"{self.repeated:,}" + (" (left out, quarantined)" if self.dropped else " (kept)"))
            ]
        rows += [("  time goes backwards", f"{self.backwards:,} (kept)")]
        for bound, count in self.late:
            rows += [(f"  late by more than {bound:g} s", f"{count:,} {self.late_by} (kept)")]
        rows += [("  sources", f"{self.sources:,}")]
        if self.first is not None and self.last is not None:
            rows += [("  from", _time(self.first)), ("  to", _time(self.last))]
        wide = max(len(value.split(" ")[0]) for name, value in rows if name.strip() not in ("from", "to"))
        for name, value in rows:
            number, space, rest = value.partition(" ")
            plain = name.strip() in ("from", "to")
            yield f"  {name:<28} {value if plain else number.rjust(wide) + space + rest}"
        if self.quarantine:
            yield f"quarantine: {self.quarantine}"
            yield from (f"  {count:>8,}  {reason}" for reason, count in self.reasons)
        yield from (f"{'not read: ' if note.fatal else 'note: '}{note}" for note in self.notes)


def _time(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat(" ").replace("+00:00", "Z")
