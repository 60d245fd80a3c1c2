"""Plots over time of a study of one's own, and what is said below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from headwater.spark.backtest import Backtest
from headwater.study.report import svg
from headwater.study.report.data import Timeline
from headwater.study.report.plain import cut

STEPS = 240  # of a plot, at most
LABEL = 44  # characters of a name in a plot


def of_backtest(found: Backtest, series: Mapping[str, Sequence[int]]) -> Timeline | None:
    """Numbers for the stretches of time of a backtest that have a start."""
    starts = [row.start for row in found.times if row.start is not None]
    counts = {name: zip(starts, values, strict=True) for name, values in series.items()}
    return timeline(counts, found.width, found.first, found.last)


def timeline(
    counts: Mapping[str, Iterable[tuple[datetime, int]]],
    width: timedelta | None,
    first: datetime | None,
    last: datetime | None,
) -> Timeline | None:
    """Numbers by the start of a stretch of time, in equal steps without holes, for all that was recorded."""
    if width is None:
        return None
    length = round(width.total_seconds() * 1_000_000)
    by_place = {name: {_micros(start) // length: n for start, n in each} for name, each in counts.items()}
    covered = None if first is None or last is None else (_micros(first), _micros(last))
    places = {place for each in by_place.values() for place in each} | {at // length for at in covered or ()}
    if not places:
        return None
    begin = min(places)
    wide = -(-(max(places) - begin + 1) // STEPS)  # so many stretches make a step
    made = {}
    for name, each in by_place.items():
        sums = [0] * ((max(places) - begin) // wide + 1)
        for place, value in each.items():
            sums[(place - begin) // wide] += value
        made[name] = tuple(sums)
    return Timeline(start=begin * length, step=length * wide, series=made, covered=covered)


def _micros(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def said(it: Timeline) -> str:
    """What is said of the axis of time: which steps have fewer events only because less of them was recorded."""
    steps = max((len(values) for values in it.series.values()), default=0)
    found = svg.partial_steps(it.start, it.step, steps, it.covered)
    if not found:
        return "Times are UTC."
    which = {0: "first", steps - 1: "last"}
    if steps == 1:
        return "Times are UTC. The recording is shorter than the one step (shaded)."
    named = " and the ".join(which[at] for at in found)
    many = len(found) > 1
    return (
        f"Times are UTC. Of the {named} step{'s' * many} (shaded) only a part was recorded: "
        f"{'their counts are' if many else 'its count is'} of less time than the others."
    )


def areas(it: Timeline, label: str, width: int) -> str:
    """Stacked."""
    return svg.areas(
        it.series, start=it.start, step=it.step, width=width, label=label, unit=_unit(it, "events"), covered=it.covered
    )


def lines(it: Timeline, label: str, width: int, what: str = "events") -> str:
    """Each by itself; on a logarithmic scale where they are too far apart for one of equal steps."""
    tops = [top for values in it.series.values() if (top := max(values, default=0))]
    apart = bool(tops) and max(tops) > 30 * min(tops)
    return svg.lines(
        it.series,
        start=it.start,
        step=it.step,
        width=width,
        label=label,
        unit=_unit(it, what),
        log=apart,
        covered=it.covered,
    )


def _unit(it: Timeline, what: str) -> str:
    seconds = it.step / 1_000_000
    for unit, each in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= each and not seconds % each:
            count = round(seconds / each)
            one = f"{'an' if each == 3600 else 'a'} {unit[:-1]}"
            return f"{what} in {f'{count} {unit}' if count > 1 else one}"
    return f"{what} in {seconds:g} s"


def legend(series: Mapping[str, Sequence[int]]) -> tuple[tuple[int, str, str], ...]:
    """Colours, names and sums."""
    return tuple(
        (at % svg.COLOURS, cut(name, LABEL), f"{sum(values):,}") for at, (name, values) in enumerate(series.items())
    )


__all__ = ["LABEL", "STEPS", "areas", "legend", "lines", "of_backtest", "said", "timeline"]
