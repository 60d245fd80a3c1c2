"""What a process takes: memory, threads and open files, at the start, at the end, and whether that grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FEW = 6  # samples below which nothing is said about growth
SPARE = {"threads": 4, "files": 8, "memory": 96 << 20}  # what it may have more of at the end without being suspicious


class Sample(NamedTuple):
    memory: int  # bytes that are resident
    threads: int
    files: int
    kept: int = 0  # threads that are there for nodes which are gone, and will not be when these are forgotten

    @property
    def own(self) -> int:
        return self.threads - self.kept


def sample(pid: int, kept: int = 0) -> Sample:
    """Of a process of ours, now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"]), files, kept)


@dataclass
class Meter:
    """Samples of processes by name, each taken when nothing is the matter with it."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def take(self, name: str, pid: int, kept: int = 0) -> None:
        self.samples.setdefault(name, []).append(sample(pid, kept))

    def growing(self) -> list[str]:
        """What clearly grows: even the least of the last third is more than the most of the first third, by more than
        what is spare. Peaks that come and go are not that."""
        found = []
        for name, taken in self.samples.items():
            third = len(taken) // 3
            if len(taken) < FEW:
                continue
            for what, spare in SPARE.items():
                values = [each.own if what == "threads" else getattr(each, what) for each in taken]
                most, least = max(values[:third]), min(values[-third:])
                if least > most + spare and least > 1.25 * most:
                    found.append(f"{name}: {what} grow from at most {most:,} to at least {least:,}")
        return found
