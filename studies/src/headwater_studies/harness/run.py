"""The studies of performance: which there are, what parts they have, and how they are run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from headwater.errors import ConfigError, ConfigProblem
from headwater_studies.fleet.worker import Gone, workers
from headwater_studies.harness.bench import Bench, Found, Part, machine, now, versions
from headwater_studies.harness.result import Result

_HERE = "headwater_studies"


@dataclass(frozen=True, slots=True)
class Study:
    """A study: its title, what it asks, and its parts as module and function."""

    title: str
    lead: str
    parts: Mapping[str, str]


STUDIES: Mapping[str, Study] = {
    "latency": Study(
        "Latency",
        "How long until an event is there: peer to peer and through a router, to many consumers, and over links that "
        "are slow and thin.",
        {
            "samples": "latency.round_trips:samples",
            "consumers": "latency.consumers:consumers",
            "links": "latency.links:links",
        },
    ),
    "filters": Study(
        "Filters at the source",
        "What it costs to make and to run moved code, and from which rejection rate on that pays.",
        {"code": "filters.code:code", "breakeven": "filters.breakeven:breakeven"},
    ),
    "overhead": Study(
        "Overhead",
        "What the service itself costs: its operations, the messages it needs to keep itself together, and its size.",
        {
            "operations": "overhead.operations:operations",
            "administration": "overhead.administration:administration",
            "footprint": "overhead.footprint:footprint",
        },
    ),
    "interests": Study(
        "Growth",
        "More subscriptions, sources, sinks and nodes: measured as far as one machine goes, and a model of the rest.",
        {
            "subscriptions": "growth.subscriptions:subscriptions",
            "sources": "growth.pairs:sources",
            "sinks": "growth.pairs:sinks",
            "nodes": "growth.nodes:nodes",
            "model": "model.part:model",
        },
    ),
    "peers": Study(
        "Peers",
        "The same event and the same work through other systems, in the same run.",
        {"peers": "peers.part:peers"},
    ),
}


def study(
    name: str,
    *,
    say: Callable[[str], None],
    only: Sequence[str] = (),
    quick: bool = False,
    rounds: int | None = None,
    master: str = "local[*]",
    costs: Mapping[str, float] | None = None,
    before: Result | None = None,
) -> Result:
    """Run a study, or some parts of it: those that are not run are taken from what was found `before`."""
    about = STUDIES[name]
    parts = chosen(name, only)
    begun, start = now(), time.perf_counter()
    found = Found(costs=dict(costs or {}))
    with tempfile.TemporaryDirectory(prefix="headwater-study-") as folder, workers() as started:
        bench = Bench(
            start=started,
            say=say,
            folder=Path(folder),
            quick=quick,
            rounds=rounds or (1 if quick else 3),
            master=master,
        )
        for part, function in parts.items():
            say(f"{name}: {part}")
            found += _run(part, function, replace(bench, costs=found.costs))
    result = Result(
        name=name,
        title=about.title,
        lead=about.lead,
        command=" ".join(["headwater study", name, *(f"--part {each}" for each in only)]) + " --quick" * quick,
        begun=begun,
        seconds=time.perf_counter() - start,
        quick=quick,
        machine=machine(),
        versions={**versions(), **found.versions},
        not_run=found.not_run,
        sections=found.sections,
        ratios=found.ratios,
        costs=found.costs,
    )
    return result if before is None else _together(before, result, list(about.parts), list(parts))


def chosen(name: str, only: Sequence[str]) -> dict[str, Part]:
    """The parts of a study that are to be run."""
    there = STUDIES[name].parts
    if unknown := [each for each in only if each not in there]:
        problems = [ConfigProblem(f"study {name}", f"a part: {', '.join(there)}", each, "name one") for each in unknown]
        raise ConfigError(problems)
    return {part: _function(where) for part, where in there.items() if not only or part in only}


def _function(where: str) -> Part:
    module, _, function = where.partition(":")
    found: Part = getattr(import_module(f"{_HERE}.{module}"), function)
    return found


def _run(part: str, function: Part, bench: Bench) -> Found:
    begun = now()
    try:
        found = function(bench)
    except Gone as error:
        bench.say(f"{part} failed: {error}")
        return Found(not_run={part: f"failed: {error}"})
    return replace(
        found,
        sections=tuple(replace(each, part=part, begun=begun) for each in found.sections),
        ratios=tuple(replace(each, part=part) for each in found.ratios),
    )


def _together(before: Result, now: Result, order: Sequence[str], again: Sequence[str]) -> Result:
    """An earlier result with some parts made anew."""
    kept = [each for each in before.sections if each.part not in again]
    sections = sorted([*kept, *now.sections], key=lambda each: order.index(each.part) if each.part in order else 99)
    return replace(
        now,
        command=before.command,
        sections=tuple(sections),
        ratios=(*(each for each in before.ratios if each.part not in again), *now.ratios),
        versions={**before.versions, **now.versions},
        not_run={**{key: why for key, why in before.not_run.items() if key not in again}, **now.not_run},
        costs={**before.costs, **now.costs},
        quick=before.quick or now.quick,
    )


__all__ = ["STUDIES", "Study", "chosen", "study"]
