"""Studies that other distributions add to `headwater study`, found by the entry points of a group:

    [project.entry-points."headwater.studies"]
    performance = "headwater_studies.extension:EXTENSION"        an Extension

Nothing here imports them by name: they depend on Headwater, and Headwater not on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points

GROUP = "headwater.studies"
Say = Callable[[str], None]
# Studies that are known to be somewhere, by the distribution that has them: what to install for them.
ELSEWHERE = {
    **dict.fromkeys(("latency", "filters", "overhead", "interests", "peers", "performance"), "headwater-studies"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Studies that are run by somebody else, by name, each with its kind; and the options that kinds of them have.

    It is loaded with every command line: what `run` needs is imported there."""

    studies: Mapping[str, str]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # as argparse stores them, with their kinds
    examples: str = ""  # shown by --help
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    run: Callable[[argparse.Namespace, Say], int]


@dataclass(frozen=True, slots=True)
class Extensions:
    """What was found, and what cannot be used: a distribution by name, and why."""

    usable: tuple[Extension, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)

    def having(self, study: str) -> Extension | None:
        """Whoever runs this study."""
        return next((each for each in self.usable if study in each.studies), None)


def extensions() -> Extensions:
    """All that are installed. One that cannot be loaded disturbs nobody who does not ask for it."""
    return load(list(entry_points(group=GROUP)))


def load(points: Sequence[EntryPoint]) -> Extensions:
    """What these entry points name."""
    usable: list[Extension] = []
    broken: dict[str, str] = {}
    for point in points:
        try:
            found = point.load()
            if not isinstance(found, Extension):
                raise TypeError(f"expected a headwater.study.extension.Extension, found {found!r}")
            usable.append(found)
        except Exception as error:
            name = point.dist.name if point.dist is not None else point.value
            broken[name] = f"{type(error).__name__}: {error}"
    return Extensions(tuple(usable), broken)


__all__ = ["ELSEWHERE", "GROUP", "Extension", "Extensions", "Say", "extensions", "load"]
