"""The report of the badge study: its sections, plots and tables, from what was found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headwater.study.badges import tables
from headwater.study.badges.margins import BADGES, CATEGORY, DOUBTFUL
from headwater.study.badges.published_tables import PER_EVENT, SECO
from headwater.study.badges.subscribers import GROUPS
from headwater.study.report import svg, traffic
from headwater.study.report.bars import Bar, bars, dots, ranks
from headwater.study.report.data import Run, StudyResult
from headwater.study.report.html import Block, Figure, Heading, Notes, Page, Section, Text, Tile
from headwater.study.report.table import Column, Row, Table, Value, duration, size

_KINDS = {"equipment": 0, "users": 1, "unlisted": 2}  # colours
_GREY, _OURS, _THEIRS = 11, 0, 1


def page(result: StudyResult) -> Page:
    """The report as a page."""
    sections = [
        Section("day", "The day", tuple(_day(result)), "The day"),
        Section("counts", "Who got what", tuple(_counts(result)), "Counts"),
        Section("mobile", "The same study in Mobile", tuple(_mobile(result)), "Mobile"),
        Section("traffic", "What crossed between the nodes", tuple(_traffic(result)), "Traffic"),
        Section("code", "Interests as code", tuple(_code(result)), "Code"),
        Section("notes", "How to read this", (Notes(_notes(result)),), "Notes"),
    ]
    return Page(
        title="The active badge study",
        over="Headwater",
        lead=(
            "How much need not be sent if an interest runs where the events happen? In 1998 the infrared stations of a "
            "laboratory saw its active badges for a day, and two publications played that day through an event "
            "service: one counted messages (called SECO here), the other events (Mobile). This is their study again.",
            f"A day of {result.events:,} badge sightings at {result.stations} stations on {_nodes(result)} networks, "
            f"played through a federation with a node for each network and {len(result.subscriptions)} subscribers on "
            "one more, whose interests run at the sources."
            + (" The same interests then ran on Spark over the nodes' logs." if result.spark is not None else "")
            + " Every number stands beside the published one, with the difference in a column of its own.",
        ),
        tiles=tuple(_tiles(result)),
        sections=tuple(section for section in sections if section.blocks),
        facts=_facts(result),
    )


def _nodes(result: StudyResult) -> int:
    return len(result.day.series)


# ── tiles ──


def _published() -> dict[str, int]:
    """Events by subscriber."""
    return {tables.subscriber(table.number, row.name): row.events for table in SECO.values() for row in table.rows}


def _same(found: Mapping[str, int | None]) -> int:
    return sum(found.get(name) == events for name, events in _published().items())


def _tiles(result: StudyResult) -> list[Tile]:
    """The figures at the top of the page."""
    wanted = len(_published())
    live = {name: result.delivered(name) for name in _published()}
    same = _same(live)
    tiles = [
        Tile(
            f"{same} of {wanted}",
            "counts as published",
            "subscribers that got, live, as many events as in the published tables. The day is made to meet their "
            "totals: this tests filters and delivery, not the data",
            "good" if same == wanted else "bad",
        )
    ]
    if result.spark is not None:
        equal = sum(result.spark.counts.get(name) == events for name, events in live.items())
        more = f"the interests over the logs give what arrived live; {duration(result.spark.seconds)} for all of them"
        tiles.append(Tile(f"{equal} of {wanted}", "the same on Spark", more, "good" if equal == wanted else "bad"))
    eyes = SECO["7.5"].recomputed_average
    cameras = SECO["7.2"].recomputed_average
    if same == wanted:
        more = f"for a private eye, on average; {cameras} % for a security camera"
        tiles.append(Tile(f"{eyes} %", "fewer messages, as SECO counts", more))
    every = result.run("all")
    if every is not None and every.crossed:
        delivered = sum(every.delivered.values())
        more = (
            f"{delivered:,} deliveries to {len(every.delivered)} subscribers from {every.crossed:,} events: one "
            "crosses to a node once, however many want it there"
        )
        tiles.append(Tile(f"{delivered / every.crossed:.1f} for 1", "deliveries for an event that crosses", more))
    if result.timings:
        spent = duration(result.timings.get("total", sum(result.timings.values())))
        what = f"{len(result.runs)} live runs{' and Spark' if result.spark is not None else ''}, on this machine"
        tiles.append(Tile(spent, "for the whole study", what))
    return tiles


# ── counts ──


def _counts(result: StudyResult) -> list[Block]:
    """The section with the published counts beside ours."""
    spark = ""
    if result.spark is not None:
        spark = (
            f" On Spark{f' (`{result.spark.master}`)' if result.spark.master else ''} the same interests ran over the "
            f"{result.spark.rows:,} events of the nodes' logs, all in {duration(result.spark.seconds)}."
        )
    return [
        Text(
            "Four experiments, each a live run of its own, because with God on the same node everything must cross. "
            "God wants every sighting, a security camera those of its network, a private eye those of its badge, a big "
            "brother those of a kind of badge, which it looks up in a list that travels with its interest." + spark
        ),
        tables.seco(result, "7.1"),
        tables.seco(result, "7.2"),
        Figure(
            "Events delivered to each security camera",
            partial(_bars, _compared(result, "7.2")),
            ((_OURS, "ours", ""), (-1, "published", "")),
            "A camera gets what its network has seen. Where a bar ends at its line, as many events arrived as were "
            "published.",
        ),
        tables.seco(result, "7.6"),
        Heading("SECO tables 7.3 to 7.5: private eyes"),
        Figure(
            f"Events delivered to each of the {len(BADGES)} private eyes, from most to least",
            partial(_eyes, _compared(result, "7.3", "7.4", "7.5")),
            (
                *((colour, f"badges of {kind}" if kind != "unlisted" else "unlisted badges", "")
                  for kind, colour in _KINDS.items()),
                (-1, "published", ""),
            ),
            "A dot on its line is an eye that got as many events as were published. Most badges are seen a few hundred "
            "times, so that an eye wants about one event in a hundred: that is where filters at the sources save most. "
            "Which badge is of which kind is not published; this split meets the three published sums.",
        ),
        *(tables.seco(result, number) for number in ("7.3", "7.4", "7.5")),
    ]  # fmt: skip


def _compared(result: StudyResult, *numbers: str) -> list[Bar]:
    return [
        Bar(
            row.name,
            result.delivered(tables.subscriber(number, row.name)) or 0,
            mark=row.events,
            colour=_KINDS[CATEGORY[row.name]] if row.name in CATEGORY else _OURS,
        )
        for number in numbers
        for row in SECO[number].rows
    ]


def _bars(items: list[Bar], width: int) -> str:
    label = "Bar chart: events delivered to each subscriber, ours with a mark for the published number"
    return bars(items, width=width, label=label, unit="events")


def _eyes(items: list[Bar], width: int) -> str:
    items = sorted(items, key=lambda bar: (-bar.value, bar.label))
    label = "Dots: events delivered to each private eye, from most to least, with marks for published numbers"
    return ranks(items, width=width, label=label, unit="events", log=True)


def _mobile(result: StudyResult) -> list[Block]:
    return [
        Text(
            "Mobile repeats three of the experiments on the same data and counts events, not messages. All of its "
            "percentages follow from its counts."
        ),
        *(tables.mobile(result, number) for number in ("1", "2", "3")),
    ]


# ── traffic ──


def _traffic(result: StudyResult) -> list[Block]:
    """The section on what crossed between the nodes."""
    if not result.runs:
        return []
    alone = [run for run in result.runs if len(run.delivered) == 1 and run.name != "god"]
    blocks: list[Block] = [
        Text(
            "SECO takes each subscriber for itself: without filters all events go to each of them, with filters only "
            "what it wants. Here the subscribers of a run share a node, and an event that several of them want crosses "
            "to it once. As the cameras, eyes and brothers together want every event, every event crosses in their "
            "runs, once" + ("; what interests save on the wire shows where a subscriber is alone." if alone else ".")
        ),
        Figure(
            "Events sent, with and without interests",
            partial(_sent, result),
            (
                (_GREY, "each subscriber for itself, unfiltered", ""),
                (_THEIRS, "each for itself, filtered", ""),
                (_OURS, "crossed to one node, measured", ""),
            ),
            "From the first dot of a run to the second is what interests save; from there to the third, what it saves "
            "that an event crosses once for all who want it. Each step of the scale is ten times the one before.",
        ),
        tables.messages(result),
        traffic.traffic(result),
    ]
    if len(result.runs) > 1:
        on_arrival = any(not run.filtered for run in result.runs)
        blocks.append(
            Figure(
                "Bytes between the nodes, both ways, measured",
                partial(_bytes, list(result.runs)),
                ((_OURS, "interests at the sources", ""), (_GREY, "filtered on arrival", "")) if on_arrival else (),
                "To a subscriber that is alone, only what it wants crosses. The grey bar below is the same one with "
                "its interest on arrival: everything crosses."
                if on_arrival
                else "",
            )
        )
    if result.crossing is not None:
        blocks.append(
            Figure(
                "Events that cross over the day",
                partial(_crossing, result),
                tuple((at % svg.COLOURS, name, f"{sum(values):,}")
                      for at, (name, values) in enumerate(result.crossing.series.items())),
                "All subscribers on one node, as Spark finds it in the recording. Times are UTC.",
            )
        )  # fmt: skip
    return [*blocks, traffic.links(result)]


def _sent(result: StudyResult, width: int) -> str:
    items: list[Bar] = []
    for run in _filtered(result):
        count, delivered = len(run.delivered), sum(run.delivered.values())
        items += [
            Bar(run.title, count * result.events, colour=_GREY, title=f"{run.title}, unfiltered", apart=bool(items)),
            Bar("", delivered, colour=_THEIRS, title=f"{run.title}, filtered"),
            Bar("", run.crossed, colour=_OURS, title=f"{run.title}, crossed"),
        ]
    label = "Dots: events sent in each run, without filters, with them, and as measured here"
    return dots(items, width=width, label=label, unit="events", log=True)


def _filtered(result: StudyResult) -> list[Run]:
    return [run for run in result.runs if run.filtered and (run.name in GROUPS or run.name == "all")]


def _bytes(runs: list[Run], width: int) -> str:
    items = [
        Bar(
            f"{run.title}{'' if run.filtered else ', filtered on arrival'}",
            run.bytes,
            colour=_OURS if run.filtered else _GREY,
            text=size(run.bytes),
        )
        for run in runs
    ]
    return bars(items, width=width, label="Bar chart: bytes between the nodes in each run", unit="bytes")


def _crossing(result: StudyResult, width: int) -> str:
    assert result.crossing is not None
    it = result.crossing
    label = "Line chart: events that cross to the subscribers over the day"
    unit = f"events in {it.step // 60_000_000} minutes"
    tops = [max(values, default=0) for values in it.series.values()]
    apart = max(tops) > 30 * min(tops)  # too far for one scale of equal steps
    return svg.lines(it.series, start=it.start, step=it.step, width=width, label=label, unit=unit, log=apart)


# ── the day ──


def _day(result: StudyResult) -> list[Block]:
    """The section on the day that is played."""
    it = result.day
    label = "Area chart: sightings over the day, stacked by network; few at night, most from nine to six"
    return [
        Text(
            "The published study has totals by network, by badge and by kind of badge, and this day meets all of them "
            "exactly. Who was seen at which station at what time is made up: equipment sits still and is seen at "
            "regular intervals, people come, move and leave, nights are quiet."
        ),
        Figure(
            "Sightings over the day by network",
            lambda width: svg.areas(
                it.series,
                start=it.start,
                step=it.step,
                width=width,
                label=label,
                unit=f"sightings in {it.step // 60_000_000} minutes",
            ),
            tuple((at % svg.COLOURS, name, f"{sum(values):,}") for at, (name, values) in enumerate(it.series.items())),
            "Each colour is a network, on top of those before it. Times are UTC.",
        ),
    ]


# ── code and times ──


def _code(result: StudyResult) -> list[Block]:
    if not result.code:
        return []
    return [
        Text(
            "Subscribers of one kind have the same program with other parameters, so its machine code is made once on "
            "each node. Until it is ready, a table-driven kernel or the interpreter answers."
        ),
        tables.lines(result),
        tables.footprints(result),
    ]


def _notes(result: StudyResult) -> tuple[str, ...]:
    """What a reader has to know to judge the figures: what is made up, how messages are counted, misprints of the
    original."""
    eyes = [row for number in ("7.3", "7.4", "7.5") for row in SECO[number].rows]
    low = sum(row.wrong for row in eyes)
    found = [
        "**Synthetic:** the totals by network, badge and kind are the published ones. How sightings are spread over "
        "networks for each badge, how many stations a network has, the station and the time of each sighting, and "
        "which badge is of which kind are our own making. Counts do not depend on them; traffic per link does.",
        f"**Messages:** SECO counts {PER_EVENT} for an event that crosses, itself and its reply, and 48 for a "
        "subscription: made known to twelve nodes and withdrawn, each with a reply. In the tables 7.1 to 7.6 our "
        "events are counted in the same way. What our nodes really send is in [the section on traffic](#traffic).",
        f"**Percentages:** of private eyes, all {low} printed percentages that can be read are 0.1 lower than what "
        f"their rows give, and so is their average ({SECO['7.5'].average} for {SECO['7.5'].recomputed_average}); "
        "CL-ArupExtn#8 in table 7.2 is printed 99.9 for 99.8. Everything else is right. Differences are to "
        "the recomputed ones.",
        f"**Ids:** {len(DOUBTFUL)} badge ids cannot be read with certainty in the published tables. Their counts "
        "can; the ids here are the likeliest, and marked †.",
        "**Bytes** are those of our frames and messages, without what TCP, IP and Ethernet add. Neither publication "
        "has bytes.",
        *result.notes,
    ]  # fmt: skip
    return tuple(found)


def _facts(result: StudyResult) -> dict[str, str]:
    facts = {"made": result.made}
    facts |= {name: duration(seconds) for name, seconds in result.timings.items()}
    return facts | dict(result.versions)


def summary(result: StudyResult) -> Table:
    """What a terminal shows: each experiment in a line."""
    rows = []
    wanted = _published()
    for run in _filtered(result):
        theirs = sum(wanted.get(name, 0) for name in run.delivered)
        delivered = sum(run.delivered.values())
        spark = None
        if result.spark is not None:
            spark = sum(result.spark.counts.get(name, 0) for name in run.delivered)
        values: tuple[Value, ...] = (
            run.title,
            len(run.delivered),
            delivered,
            spark,
            theirs,
            delivered - theirs,
            run.crossed,
            run.frames,
            run.bytes,
            run.ready,
            run.seconds,
        )
        rows.append(Row(values))
    return Table(
        name="summary",
        title="Runs",
        columns=(
            Column("run", "text"),
            Column("subscribers"),
            Column("delivered"),
            Column("on Spark"),
            Column("published"),
            Column("difference", "diff"),
            Column("crossed"),
            Column("frames"),
            Column("bytes", "bytes"),
            Column("preparing", "seconds"),
            Column("playing", "seconds"),
        ),
        rows=tuple(rows),
    )
