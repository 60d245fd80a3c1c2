"""How a soak is to be run, and what each of its phases hands back."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from tests.soak.meter import Meter

# With their share of the time.
PHASES: Mapping[str, float] = {"faults": 0.45, "moving": 0.15, "inputs": 0.15, "long": 0.13, "properties": 0.12}


def derived(seed: int, *names: object) -> int:
    """A seed that follows from another one and what it is for."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def chance(seed: int, *names: object) -> random.Random:
    return random.Random(derived(seed, *names))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One seed for everything: with the same one, the same things happen in the same order, for as long as there is
    time."""

    minutes: float = 20.0
    seed: int = 0
    faults: int = 0  # at most so many; 0: as many as there is time for
    rounds: int = 0  # of mutated inputs, the same
    first: int = 1  # the round of mutated inputs with which to begin
    effort: int = 20
    phases: tuple[str, ...] = tuple(PHASES)
    folder: Path = Path("build/soak")

    def command(self, **changed: object) -> str:
        """The same again."""
        given: dict[str, object] = {
            "MINUTES": f"{self.minutes:g}",
            "SEED": self.seed,
            "FAULTS": self.faults,
            "ROUNDS": self.rounds,
            "FIRST": self.first if self.first > 1 else 0,
            "EFFORT": self.effort if self.effort != 20 else 0,
            "PHASES": ",".join(self.phases) if self.phases != tuple(PHASES) else "",
        }
        given |= {name.upper(): value for name, value in changed.items()}
        return " ".join(["make soak", *(f"{name}={value}" for name, value in given.items() if value)])

    def share(self, phase: str) -> float:
        """The part of the time that is left which a phase may take, if those before it are done."""
        order = [each for each in PHASES if each in self.phases]
        return PHASES[phase] / sum(PHASES[each] for each in order[order.index(phase) :])


@dataclass
class Phase:
    """What one has found. `troubles`: everything that should not be, each with what replays it."""

    name: str
    seed: int
    seconds: float = 0.0
    troubles: list[str] = field(default_factory=list)
    replay: str = ""  # the command, if there was trouble
    notes: list[str] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)


class Clock:
    """The time that a phase has."""

    def __init__(self, seconds: float) -> None:
        self.begun = monotonic()
        self.seconds = seconds

    @property
    def spent(self) -> float:
        return monotonic() - self.begun

    @property
    def left(self) -> float:
        return self.seconds - self.spent


Say = Callable[[str], object]
