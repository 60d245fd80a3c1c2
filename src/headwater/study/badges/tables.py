"""Ours beside theirs: tables 7.1 to 7.8 of SECO and 1 to 3 of Mobile, with differences in columns of their own.

To be set beside SECO's, our events are counted as theirs were: two messages each, and 48 for the subscriber. What our
nodes really send is in `messages`, and in `report.traffic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from headwater.study.badges import published_tables as published
from headwater.study.badges.margins import DOUBTFUL
from headwater.study.badges.published_tables import (
    MOBILE,
    OVERHEAD,
    PER_EVENT,
    SECO,
    EventTable,
    MessageRow,
    MessageTable,
    decrease,
    rounded,
)
from headwater.study.badges.subscribers import GROUPS
from headwater.study.report.data import CodeFacts, StudyResult
from headwater.study.report.table import Column, Row, Table, Value

NODES = 13
DISTRIBUTION = 2 * NODES * NODES + 4 * NODES  # SECO's messages for thirteen nodes to know of each other

_NAMES = {"7.1": "god", "7.2": "camera {}", "7.6": "brother {}", "1": "god", "2": "brother {}", "3": "camera {}"}
_FIRST = {"7.1": "", "7.2": "network watched", "7.6": "badges watched", "1": "", "2": "badges watched",
          "3": "network watched"}  # fmt: skip


def subscriber(table: str, row: str) -> str:
    """What the subscriber of a row of a published table is called here."""
    return _NAMES.get(table, "eye {}").format(row)


def _points(ours: str, theirs: str) -> float:
    return round(float(ours) - float(theirs), 2)


def _less(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# ── SECO ──

_WRONG = "printed as {}; the row's own columns give {}"
_UNREAD = "this percentage cannot be read in the published table"
_UNSURE = "this id cannot be read with certainty in the published table; its count can"


def seco(result: StudyResult, number: str) -> Table:
    """One of tables 7.1 to 7.6."""
    table = SECO[number]
    rows = [_seco_row(result, table, row) for row in table.rows]
    if len(rows) > 1:
        rows.append(_together(rows))
    if table.average is not None:
        rows.append(_seco_average(result, table))
    eyes = number in ("7.3", "7.4", "7.5")
    note = f"Without filters every row has {published.UNFILTERED:,} messages; with them, {OVERHEAD} of overhead. "
    return Table(
        name=f"seco-{number.replace('.', '-')}",
        title=f"SECO table {number}: {table.subject}",
        columns=(
            Column(_FIRST.get(number, "badge watched"), "text"),
            *_event_columns(result),
            Column("ours", group="messages, as SECO counts"),
            Column("published", group="messages, as SECO counts"),
            Column("difference", "diff", group="messages, as SECO counts"),
            Column("ours", "percent", group="decrease"),
            Column("printed", "percent", group="decrease"),
            Column("recomputed", "percent", group="decrease"),
            Column("difference", "points", group="decrease"),
        ),
        rows=tuple(rows),
        note=note + _printed_wrong(table),
        folded=eyes,
    )


def _printed_wrong(table: MessageTable) -> str:
    """What is to be said of its percentages, if anything."""
    wrong = sum(row.wrong for row in table.rows)
    match wrong, len(table.rows):
        case 0, _:
            return ""
        case 1, _:
            which = "One percentage (†) is"
        case _, count if wrong == count:
            which = f"All {count} percentages (†) are"
        case _:
            which = f"{wrong} percentages (†) are"
    return f"{which} printed otherwise than the row's own columns give: the recomputed one stands beside it."


def _event_columns(result: StudyResult) -> list[Column]:
    columns = [
        Column("ours", group="events, live"),
        Column("published", group="events, live"),
        Column("difference", "diff", group="events, live"),
    ]
    if result.spark is not None:
        columns += [Column("ours", group="on Spark"), Column("difference", "diff", group="on Spark")]
    return columns


def _events(result: StudyResult, name: str, theirs: int) -> tuple[Value, ...]:
    """Ours, theirs and the difference; then ours on Spark, and its difference to what arrived live."""
    live = result.delivered(name)
    found: tuple[Value, ...] = (live, theirs, _less(live, theirs))
    if result.spark is None:
        return found
    spark = result.spark.counts.get(name)
    return (*found, spark, _less(spark, live))


def _percentages(ours: str | None, printed: str | None, again: str) -> tuple[Value, ...]:
    mine = None if ours is None else float(ours)
    theirs = None if printed is None else float(printed)
    return mine, theirs, float(again), None if ours is None else _points(ours, again)


def _remarks(values: Sequence[Value], printed: str | None, again: str) -> dict[int, str]:
    """On the printed percentage, the third from the end, if it is wrong or cannot be read."""
    at = len(values) - 3
    if printed is None:
        return {at: _UNREAD}
    return {at: _WRONG.format(printed, again)} if printed != again else {}


def _seco_row(result: StudyResult, table: MessageTable, row: MessageRow) -> Row:
    name = subscriber(table.number, row.name)
    live = result.delivered(name)
    total = None if live is None else PER_EVENT * live + OVERHEAD
    ours = None if total is None else rounded(decrease(total, row.unfiltered), 1)
    values: tuple[Value, ...] = (
        row.name,
        *_events(result, name, row.events),
        total,
        row.total,
        _less(total, row.total),
        *_percentages(ours, row.decrease, row.recomputed),
    )
    remarks = _remarks(values, row.decrease, row.recomputed)
    if row.name in DOUBTFUL:
        remarks[0] = _UNSURE
    return Row(values, remarks)


def _together(rows: Sequence[Row]) -> Row:
    """Sums of all columns but the percentages, which are the last four."""

    def added(at: int) -> int | None:
        return _sum([value if isinstance(value, int) else None for value in (row.values[at] for row in rows)])

    return Row(("Together", *(added(at) for at in range(1, len(rows[0].values) - 4)), *[None] * 4), total=True)


def _seco_average(result: StudyResult, table: MessageTable) -> Row:
    rows = table.averaged or table.rows
    live = [result.delivered(subscriber(table.number, row.name)) for row in rows]
    known = [each for each in live if each is not None]
    ours = None
    if len(known) == len(rows):
        parts = (decrease(PER_EVENT * each + OVERHEAD, published.UNFILTERED) for each in known)
        ours = rounded(sum(parts, Fraction(0)) / len(rows), 1)
    printed, again = table.average or "", table.recomputed_average
    name = f"Average of all {len(rows)}" if table.averaged else "Average"
    before = [None] * (len(_event_columns(result)) + 3)
    values: tuple[Value, ...] = (name, *before, *_percentages(ours, printed, again))
    return Row(values, _remarks(values, printed, again), total=True)


# ── Mobile ──


def mobile(result: StudyResult, number: str) -> Table:
    """One of tables 1 to 3."""
    table: EventTable = MOBILE[number]
    rows = []
    for row in table.rows:
        name = subscriber(number, row.name)
        live = result.delivered(name)
        ours = None if live is None else rounded(decrease(live, row.unfiltered), 2)
        values: tuple[Value, ...] = (
            row.name,
            row.unfiltered,
            *_events(result, name, row.filtered),
            *_percentages(ours, row.decrease, row.recomputed),
        )
        rows.append(Row(values, _remarks(values, row.decrease, row.recomputed)))
    return Table(
        name=f"mobile-{number}",
        title=f"Mobile table {number}: {table.subject}",
        columns=(
            Column(_FIRST[number], "text"),
            Column("unfiltered"),
            *_event_columns(result),
            Column("ours", "percent", group="decrease", digits=2),
            Column("printed", "percent", group="decrease", digits=2),
            Column("recomputed", "percent", group="decrease", digits=2),
            Column("difference", "points", group="decrease", digits=2),
        ),
        rows=tuple(rows),
    )


# ── between the nodes ──


def messages(result: StudyResult) -> Table:
    """The four experiments: SECO's messages, and what goes between our nodes for the same."""
    rows = []
    for group in GROUPS:
        run = result.run(group)
        if run is None:
            continue
        theirs = [row for table in SECO.values() for row in table.rows if subscriber(table.number, row.name) in
                  run.delivered]  # fmt: skip
        actual = sum(row.actual for row in theirs)
        overhead = sum(row.overhead for row in theirs)
        total = actual + overhead + DISTRIBUTION
        back = sum(link.back_frames for link in run.links)
        ours = run.frames + back + run.said
        values: tuple[Value, ...] = (
            run.title,
            sum(row.unfiltered for row in theirs),
            actual,
            overhead,
            DISTRIBUTION,
            total,
            run.frames,
            back,
            run.said,
            ours,
            run.bytes + run.said_bytes,
            ours - total,
        )
        rows.append(Row(values))
    return Table(
        name="messages",
        title="Messages: ours against SECO's",
        columns=(
            Column("run", "text"),
            Column("unfiltered", group="SECO"),
            Column("events", group="SECO"),
            Column("filtering", group="SECO"),
            Column("distribution", group="SECO"),
            Column("total", group="SECO"),
            Column("frames", group="ours, measured"),
            Column("back", group="ours, measured"),
            Column("control", group="ours, measured"),
            Column("total", group="ours, measured"),
            Column("bytes", "bytes", group="ours, measured"),
            Column("difference", "gap"),
        ),
        rows=tuple(rows),
        note="Messages of SECO: events with their replies, filtering, and distribution, which its formula gives once "
        f"for {NODES} nodes; each subscriber is an experiment of its own, to which every event goes by itself. Ours: "
        "frames with events, frames back, and control messages about nodes and interests; subscribers share what "
        "crosses.",
    )


# ── code ──

_NOTATIONS = {"predicate": "predicate text", "ecode": "E-Code", "python": "Python"}
_CLASSES = ("god", "camera", "eye", "brother")  # rows of tables 7.7 and 7.8


def _theirs(facts: CodeFacts) -> int | None:
    """The row of the published tables that an interest's name is about."""
    return next((at for at, word in enumerate(_CLASSES) if word in facts.name.lower()), None)


def lines(result: StudyResult) -> Table:
    """Table 7.7: lines of source code."""
    rows = []
    for facts in result.code:
        at = _theirs(facts)
        row = None if at is None else published.LINES[at]
        values: tuple[Value, ...] = (
            facts.name,
            facts.text,
            _NOTATIONS.get(facts.notation, facts.notation),
            facts.lines,
            0,
            None if row is None else row.lines,
            None if row is None else row.dynamic,
            None if row is None else row.percent,
            None if row is None else facts.lines - row.lines,
        )
        rows.append(Row(values))
    if rows:
        theirs = published.LINES_AVERAGE
        mean = round(sum(facts.lines for facts in result.code) / len(rows))
        last = (theirs.lines, theirs.dynamic, theirs.percent, mean - theirs.lines)
        rows.append(Row(("Average", None, None, mean, 0, *last), total=True))
    return Table(
        name="seco-7-7",
        title="SECO table 7.7: source code",
        columns=(
            Column("interest", "text"),
            Column("as written", "code", group="ours"),
            Column("notation", "text", group="ours"),
            Column("lines", group="ours"),
            Column("to move it", group="ours"),
            Column("lines", group="published"),
            Column("to link it", group="published"),
            Column("of all", "percent", group="published", digits=0),
            Column("difference in lines", "gap"),
        ),
        rows=tuple(rows),
        note="SECO's constraints are C++ classes, with headers, stubs and upcalls. Ours are the text alone: nothing is "
        "written so that an interest can move.",
    )


def footprints(result: StudyResult) -> Table:
    """Table 7.8: bytes of code, and how long ours takes to make."""
    rows = []
    for facts in result.code:
        at = _theirs(facts)
        row = None if at is None else published.FOOTPRINTS[at]
        values: tuple[Value, ...] = (
            facts.name,
            facts.serial_bytes,
            facts.param_bytes,
            facts.object_bytes,
            facts.instructions,
            facts.shared_by,
            facts.check_seconds,
            facts.compile_seconds,
            None if row is None else row.code,
            None if row is None else row.stub,
            None if row is None else row.linked,
            None if row is None else facts.object_bytes - row.code,
        )
        rows.append(Row(values))
    return Table(
        name="seco-7-8",
        title="SECO table 7.8: size of code, and time to compile it",
        columns=(
            Column("interest", "text"),
            Column("serial form", "int", group="ours: bytes"),
            Column("parameters", "int", group="ours: bytes"),
            Column("object code", "int", group="ours: bytes"),
            Column("instructions", group="ours"),
            Column("shared by", group="ours"),
            Column("check", "seconds", group="ours: time to"),
            Column("compile", "seconds", group="ours: time to"),
            Column("class (n1)", group="published: bytes"),
            Column("stub (n2)", group="published: bytes"),
            Column("linked (n3)", group="published: bytes"),
            Column("difference to n1", "gap"),
        ),
        rows=tuple(rows),
        note="The serial form and the parameters are what travels. Object code is as LLVM emits it, with its tables; "
        "theirs was made by GCC 2.6 with debugging information. Besides, every application of theirs carries a class "
        f"repository of {published.REPOSITORY:,} bytes. SECO has no compile times: its constraints are compiled before "
        "they travel, ours where they arrive.",
    )
