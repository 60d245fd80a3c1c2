"""Two versions of an interest side by side on what was logged: what each passes, and what only one of them does."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import LibraryError
from headwater.interest import Interest
from headwater.late import np, pa
from headwater.patterns.pattern import Pattern
from headwater.store.log.interest_scan import Judge
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.schema import NODE, SEQ, SOURCE, TIME
from headwater.text_tables import table

OWN = (NODE, SOURCE, SEQ, TIME)  # the log's own columns


@dataclass(frozen=True)
class Comparison:
    """Of two interests, over the same events. `only_old` and `only_new` are how many only one of them passes,
    `differing` how many both pass and make something else of; of the first of them, the events are in `examples_…`."""

    channel: str
    old: str
    new: str
    events: int = 0
    old_passed: int = 0
    new_passed: int = 0
    both: int = 0
    only_old: int = 0
    only_new: int = 0
    differing: int = 0
    examples_old: list[dict[str, Any]] = field(default_factory=list)
    examples_new: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""  # what is to be known of these numbers

    @property
    def same(self) -> bool:
        """Whether they did the same on all of these events."""
        return not (self.only_old or self.only_new or self.differing)

    def __str__(self) -> str:
        rows: list[tuple[str, int]] = [
            ("events", self.events),
            (f"passed by {self.old}", self.old_passed),
            (f"passed by {self.new}", self.new_passed),
            ("passed by both", self.both),
            (f"only by {self.old}", self.only_old),
            (f"only by {self.new}", self.only_new),
        ]
        if self.differing:
            rows.append(("by both, with other results", self.differing))
        lines = table((self.channel, "events"), rows, indent="")
        for title, examples in ((self.old, self.examples_old), (self.new, self.examples_new)):
            lines += [f"only {title}: {_shown(each)}" for each in examples]
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)


def named(interest: Interest[Any] | Pattern, otherwise: str) -> str:
    """What it is called in a comparison."""
    return str(interest.origin) if interest.origin is not None else otherwise


def compare(
    old: Interest[Any], new: Interest[Any], log: str | os.PathLike[str] | Any, channel: str, *, examples: int = 10
) -> Comparison:
    """Over the log of a channel, in this process: source by source, in the order of its events, as they ran there.

    `log` is its folder, or any LogReader. `examples` of the events that only one passes are kept of each."""
    reader: Any = LogFiles(log) if isinstance(log, str | os.PathLike) else log
    if channel not in reader.channels():
        known = ", ".join(reader.channels()) or "none"
        raise LibraryError(f"compare: expected a channel of the log, found {channel!r}; it has {known}")
    schema = reader.schema(channel)
    sides = [_Side(each, schema) for each in (old, new)]
    total: dict[str, Any] = {}
    first: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for span in reader.sources(channel):
        for batch in reader.read(channel, span.node, span.source):
            passed = [side.judged(batch) for side in sides]
            counts, apart = _difference(batch, *passed)
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
            for kept, seqs in zip(first, apart, strict=True):
                kept += _rows(batch, seqs[: examples - len(kept)])
    return Comparison(
        channel, named(old, "old"), named(new, "new"), **total, examples_old=first[0], examples_new=first[1]
    )


class _Side:
    """One of the two, over batches of one source after the other."""

    def __init__(self, interest: Interest[Any], schema: Any) -> None:
        made = [] if interest.output is None else [each.name for each in interest.output.schema]
        clash = [name for name in made if name in OWN]
        self._judge = Judge(interest, schema, columns=[*OWN, *(each for each in made if each not in clash)])
        self._made = [each for each in made if each not in clash]

    def judged(self, batch: Any) -> tuple[Any, Any]:
        """Numbers of the events that pass, in order, and what is made of them, if anything is."""
        passed = self._judge(batch)
        seqs = passed.column(SEQ).to_numpy(zero_copy_only=False)
        return seqs, passed.select(self._made) if self._made else None


def _difference(batch: Any, old: tuple[Any, Any], new: tuple[Any, Any]) -> tuple[dict[str, int], tuple[Any, Any]]:
    """How many of each, and the numbers of those that only one passes."""
    only_old, only_new = np.setdiff1d(old[0], new[0]), np.setdiff1d(new[0], old[0])
    both = len(old[0]) - len(only_old)
    counts = {
        "events": batch.num_rows,
        "old_passed": len(old[0]),
        "new_passed": len(new[0]),
        "both": both,
        "only_old": len(only_old),
        "only_new": len(only_new),
        "differing": _differing(old, new, both),
    }
    return counts, (only_old, only_new)


def _differing(old: tuple[Any, Any], new: tuple[Any, Any], both: int) -> int:
    """Of those that both pass, how many have another result; all of them, if that is of another type."""
    if (old[1] is None and new[1] is None) or not both:
        return 0
    if old[1] is None or new[1] is None or old[1].schema != new[1].schema:
        return both
    left = old[1].take(pa.array(np.flatnonzero(np.isin(old[0], new[0]))))
    right = new[1].take(pa.array(np.flatnonzero(np.isin(new[0], old[0]))))
    if left.equals(right):
        return 0
    return sum(a != b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True))


def _rows(batch: Any, seqs: Any) -> list[dict[str, Any]]:
    if not len(seqs):
        return []
    at = np.flatnonzero(np.isin(batch.column(SEQ).to_numpy(zero_copy_only=False), seqs))
    found: list[dict[str, Any]] = batch.take(pa.array(at)).to_pylist()
    return found


def _shown(row: dict[str, Any]) -> str:
    if SOURCE not in row:
        return ", ".join(f"{name}={value!s}" for name, value in row.items())
    fields = ", ".join(f"{name}={value!r}" for name, value in row.items() if name not in OWN and value is not None)
    return f"{row[SOURCE]}@{row[NODE]} {row[SEQ]}: {fields}"


__all__ = ["Comparison", "compare", "named"]
