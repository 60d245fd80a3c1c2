"""What went between the nodes, as tables: by run, and by link."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.study.report.data import Run, StudyResult
from headwater.study.report.table import Column, Row, Table, Value


def baseline(result: StudyResult, run: Run) -> Run | None:
    """What a run is compared with: the same without interests at the sources, or else one where everything crosses."""
    everything = (each for each in result.runs if each.crossed == each.published)
    return result.run(run.name, filtered=False) or next(everything, None)


def traffic(result: StudyResult) -> Table:
    """Every run: what crossed and was delivered, and in how many frames, messages and bytes."""
    rows = []
    for run in result.runs:
        against = baseline(result, run)
        saved = None
        if against is not None and against is not run and against.bytes:
            saved = round(100 * (1 - run.bytes / against.bytes), 1)
        values: tuple[Value, ...] = (
            _title(run),
            len(run.delivered),
            run.crossed,
            sum(run.delivered.values()),
            run.frames,
            sum(link.bytes for link in run.links),
            sum(link.back_frames for link in run.links),
            sum(link.back_bytes for link in run.links),
            saved,
            run.said,
            run.said_bytes,
            run.ready,
            run.seconds,
        )
        rows.append(Row(values))
    return Table(
        name="traffic",
        title="Between the nodes, measured",
        columns=(
            Column("run", "text"),
            Column("subscribers"),
            Column("crossed", group="events"),
            Column("delivered", group="events"),
            Column("frames", group="to the subscribers"),
            Column("bytes", "bytes", group="to the subscribers"),
            Column("frames", group="back"),
            Column("bytes", "bytes", group="back"),
            Column("fewer bytes", "percent"),
            Column("messages", group="control"),
            Column("bytes", "bytes", group="control"),
            Column("preparing", "seconds", group="time"),
            Column("playing", "seconds", group="time"),
        ),
        rows=tuple(rows),
        note=f"An event crosses to a node once, however many of its subscribers want it. {shared(result.runs)} "
        "**Fewer bytes:** than when everything crosses, in the same run with filters on arrival where there is one, "
        "in the first such run otherwise, counted both ways. **Control** messages are about nodes, channels and "
        f"interests. {TIMES}",
    )


TIMES = (
    "**Preparing** lasts until all nodes have found each other and all interests are at the sources; **playing**, from "
    "the first event to the last acknowledgement."
)


def shared(runs: Sequence[Run]) -> str:
    """How many events were in a frame on average, as measured in these runs."""
    found = [run.crossed / run.frames for run in runs if run.frames]
    if not found:
        return "No frames with events crossed."
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    measured = low if low == high else f"{low} to {high}"
    some = "hardly any" if max(found) < 1.1 else "few" if max(found) < 2 else "many"
    return (
        f"A frame had {measured} events on average: they share one where they are published faster than the link takes "
        f"them, as {some} were here."
    )


def links(result: StudyResult) -> Table:
    """For each run and each node with sources: what went between it and the subscribers."""
    rows = []
    for run in result.runs:
        for link in run.links:
            values: tuple[Value, ...] = (
                link.node,
                _title(run),
                link.sources,
                link.published,
                link.crossed,
                link.frames,
                link.bytes,
                link.back_frames,
                link.back_bytes,
            )
            rows.append(Row(values))
    return Table(
        name="links",
        title="Every link of every run",
        columns=(
            Column("node", "text"),
            Column("run", "text"),
            Column("stations"),
            Column("published", group="events"),
            Column("crossed", group="events"),
            Column("frames", group="to the subscribers"),
            Column("bytes", "bytes", group="to the subscribers"),
            Column("frames", group="back"),
            Column("bytes", "bytes", group="back"),
        ),
        rows=tuple(rows),
        folded=True,
    )


def _title(run: Run) -> str:
    return run.title if run.filtered else f"{run.title}, filtered on arrival"
