"""The report of a study of one's own: its sections, plots and tables, from what was found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from headwater.spark.backtest import Backtest, Traffic
from headwater.spark.backtest.report import width_name
from headwater.study import own_patterns, own_tables
from headwater.study.own import Compared, OwnResult
from headwater.study.own_tables import WAYS, some
from headwater.study.own_times import LABEL, STEPS, areas, legend, lines, of_backtest, said
from headwater.study.report.bars import Bar, bars, columns, dots, ranks
from headwater.study.report.html import Block, Figure, Notes, Page, Section, Text, Tile
from headwater.study.report.plain import cut
from headwater.study.report.table import Table, duration, size
from headwater.study.report.traffic import shared

SERIES = 9  # of a plot; what is beyond is taken together
LINES = 8
BARS = 40  # with labels of their own; more are drawn as thin columns


def page(result: OwnResult) -> Page:
    """The report as a page; what was not asked for has no section."""
    judged = result.found is not None
    sections = [
        *(_sections(result) if judged else ()),
        Section("patterns", "What patterns would have found", tuple(_patterns(result)), "Patterns"),
        Section("live", "Played live", tuple(_live(result)), "Live"),
        Section("code", "Interests as code", tuple(_code(result)), "Code"),
        Section("notes", "How to read this", (Notes(tuple(_notes(result))),), "Notes"),
    ]
    return Page(
        title=result.title,
        over="Headwater",
        lead=(*([_lead(result)] if judged else ()), *_lead_of_patterns(result)),
        tiles=tuple(_tiles(result)),
        sections=tuple(section for section in sections if section.blocks),
        facts=_facts(result),
    )


def _sections(result: OwnResult) -> list[Section]:
    return [
        Section("log", "What was recorded", tuple(_log(result)), "The log"),
        Section("counts", "Who gets what", tuple(_counts(result)), "Counts"),
        Section("traffic", "What crosses between the nodes", tuple(_traffic(result)), "Traffic"),
    ]


def _lead(result: OwnResult) -> str:
    found = result.judged
    played = (
        " They were then played through a federation of real nodes, with the interests at the sources, and counted."
        if result.run is not None
        else ""
    )
    return (
        f"{found.events:,} events of `{result.channel}` that {some(len(found.sources), 'node')} recorded"
        f"{_between(found.first, found.last)}, and {some(len(found.subscriptions), 'subscription')} at "
        f"{some(len(found.sinks), 'node')}: what each gets of them, and what crosses between the nodes. "
        f"Judged on Spark in one pass over the log.{played}"
    )


def _lead_of_patterns(result: OwnResult) -> list[str]:
    fired = result.fired
    if fired is None:
        return []
    names = list(dict.fromkeys(name for row in fired.patterns for name in row.channels))
    channels = ", ".join(f"`{name}`" for name in names[:10]) + (" and more" if len(names) > 10 else "")
    when = _between(fired.first, fired.last) if result.found is None else ""
    return [
        f"{some(len(fired.patterns), 'pattern')} over the {fired.events:,} events of {channels}{when}: when each would "
        "have fired, and what would have crossed for it."
    ]


def summary(result: OwnResult) -> tuple[Table, ...]:
    """What a terminal shows: what crosses, and who gets what; how often patterns fire, and what crosses for them."""
    tables: list[Table] = []
    if result.found is not None:
        ranked = tuple(sorted(result.subscriptions, key=lambda each: -each.spark))
        tables += [own_tables.ways(result), own_tables.subscriptions(result, ranked, code=False)]
    if result.fired is not None:
        told = result.here or result.fired
        tables += [own_patterns.matches(result.fired, result.here), own_patterns.crossing(told, brief=True)]
    return tuple(tables)


# ── tiles ──


def _tiles(result: OwnResult) -> list[Tile]:
    tiles = _tiles_of_subscriptions(result) if result.found is not None else []
    if result.fired is not None:
        tiles += own_patterns.tiles(result.fired, result.here)
    spent = duration(sum(result.timings.values()))
    what = "Spark and the live run" if result.run is not None else "Spark alone"
    if result.found is None and result.here is not None:
        what = "Spark and this process"
    tiles.append(Tile(spent, "for the whole study", f"{what}, on this machine"))
    return tiles


def _tiles_of_subscriptions(result: OwnResult) -> list[Tile]:
    found = result.judged
    tiles = []
    if result.run is not None:
        count, same = len(result.subscriptions), len(result.subscriptions) - len(result.differences)
        more = "subscriptions that got, live, as many events as Spark finds"
        tiles.append(Tile(f"{same} of {count}", "the same live", more, "good" if same == count else "bad"))
    if (saved := found.merged.saved(found.unfiltered)) is not None:
        more = f"{size(found.merged.bytes)} cross, for {size(found.unfiltered.bytes)} if everything went to every node"
        tiles.append(Tile(_percent(abs(saved)), f"{'fewer' if saved >= 0 else 'more'} bytes with interests", more))
    if (saved := found.merged.saved(found.filtered)) is not None and saved > 0:
        more = "as an event crosses to a node once, however many of its sinks want it"
        tiles.append(Tile(_percent(saved), "saved by merging", more))
    if (saved := found.multicast.saved(found.merged)) is not None and saved > 0:
        more = "of what is left, if a datagram served all nodes that want an event"
        tiles.append(Tile(_percent(saved), "would be saved by multicast", more))
    return tiles


# ── the log ──


def _log(result: OwnResult) -> list[Block]:
    found = result.judged
    blocks: list[Block] = []
    if (over := of_backtest(found, _by_node(found))) is not None:
        label = "Area chart: recorded events over time, stacked by node"
        blocks.append(
            Figure(
                "Events over time by node",
                partial(areas, over, label),
                legend(over.series),
                f"Each colour is a node, on top of those before it: who recorded how much, and when. {said(over)}",
            )
        )
    return [*blocks, own_tables.nodes(result)]


def _by_node(found: Backtest) -> dict[str, list[int]]:
    """What nodes published in each stretch of time, the largest first; many small ones together."""
    order = sorted(range(len(found.sources)), key=lambda at: -found.sources[at].published.events)
    single = order if len(order) <= SERIES else order[: SERIES - 1]
    series = {
        found.sources[at].source or "not known": [row.sources[at] for row in found.times if row.start] for at in single
    }
    if rest := order[len(single) :]:
        series[f"{len(rest)} more nodes"] = [sum(row.sources[at] for at in rest) for row in found.times if row.start]
    return series


# ── counts ──


def _counts(result: OwnResult) -> list[Block]:
    """The section on what each subscription got, live and on Spark."""
    found = result.judged
    ranked = tuple(sorted(result.subscriptions, key=lambda each: -each.spark))
    blocks: list[Block] = []
    if result.run is not None:
        blocks.append(
            Text(
                f"{some(len(ranked), 'subscription')}, each of which got live what Spark finds in the log."
                if not result.differences
                else f"**{some(len(result.differences), 'subscription')} got something else live than Spark finds**: "
                + ", ".join(f"{each.name} ({each.difference:+,})" for each in result.differences[:10])
                + ("." if len(result.differences) <= 10 else " and more.")
            )
        )
    keys = ((0, "on Spark", ""), (-1, "live", "")) if result.run is not None else ()
    below = "Where the line is not on the end of the bar, or on the dot, live and Spark differ." if keys else ""
    blocks.append(Figure(_counted(ranked), partial(_received, ranked), keys, below))
    largest = [at for at in _largest(found) if found.subscriptions[at].events][:LINES]
    series = {found.subscriptions[at].name: [row.received[at] for row in found.times if row.start] for at in largest}
    if series and (over := of_backtest(found, series)) is not None:
        title = "Events received over time" + (
            f": the {len(largest)} subscriptions with the most" if len(largest) < len(found.subscriptions) else ""
        )
        label = "Line chart: events received over time by the largest subscriptions"
        blocks.append(Figure(title, partial(lines, over, label), legend(over.series), said(over)))
    return [*blocks, own_tables.subscriptions(result, ranked)]


def _largest(found: Backtest) -> list[int]:
    return sorted(range(len(found.subscriptions)), key=lambda at: -found.subscriptions[at].events)


def _counted(ranked: Sequence[Compared]) -> str:
    return f"Events for each of {len(ranked):,} subscriptions" + ("" if len(ranked) <= BARS else ", from most to least")


def _received(ranked: Sequence[Compared], width: int) -> str:
    top, low = max(each.spark for each in ranked), min((each.spark for each in ranked if each.spark), default=1)
    items = [Bar(cut(each.name, LABEL), each.spark, mark=each.live, title=each.name) for each in ranked]
    log = top > 100 * low
    label = "events for each subscription, on Spark, with a mark for live where it was played"
    if log:
        draw = dots if len(items) <= BARS else ranks
        return draw(items, width=width, label=f"Dots: {label}", unit="events", log=True)
    plain = bars if len(items) <= BARS else columns
    return plain(items, width=width, label=f"Bar chart: {label}", unit="events")


# ── traffic ──


def _traffic(result: OwnResult) -> list[Block]:
    """The section on what would cross between nodes, and what crossed."""
    found = result.judged
    blocks: list[Block] = [
        Text(
            "**Unfiltered**, every event crosses once to each node with a subscription. **Filtered**, each "
            "subscription gets what it wants on its own. **Merged**, an event crosses to a node once, however many of "
            "its filters want it, and results of interests that run at the source alone, as those with state or "
            "output do, for themselves: this is what Headwater sends. By **multicast**, a node sends an event that "
            "any other node wants once."
        ),
        Figure(
            "Bytes that cross",
            partial(_bytes, found),
            below="What the interests save is the way from the first bar to the third. Counted by the model below.",
        ),
        own_tables.ways(result),
    ]
    series = {
        name: [traffic.events for traffic in (getattr(row, name) for row in found.times if row.start)] for name in WAYS
    }
    if (over := of_backtest(found, series)) is not None:
        label = "Line chart: events that cross over time, unfiltered, filtered, merged and by multicast"
        title = "Events that cross over time"
        blocks.append(Figure(title, partial(lines, over, label), legend(over.series), said(over)))
    return [*blocks, own_tables.sinks(found), own_tables.links(found)]


def _bytes(found: Backtest, width: int) -> str:
    items = []
    for colour, name in enumerate(WAYS):
        traffic: Traffic = getattr(found, name)
        items.append(Bar(name, traffic.bytes, colour=colour, text=size(traffic.bytes)))
    return bars(items, width=width, label="Bar chart: bytes that cross", unit="bytes")


def _patterns(result: OwnResult) -> list[Block]:
    return [] if result.fired is None else own_patterns.blocks(result.fired, result.here)


# ── live ──


def _live(result: OwnResult) -> list[Block]:
    run = result.run
    if run is None:
        return []
    expects = "" if run.crossed == result.crossing else f" Spark, over the recording, merges to {result.crossing:,}."
    if expects and any("state" in each.kind for each in result.subscriptions):
        expects += " What an interest with state passes of a batch crosses for itself, of a single event with the rest."
    sinks = " Sinks at a node with sources were on a node of their own beside it, so what they got crossed too."
    return [
        Text(
            f"{some(len(run.links), 'node')} with the recorded sources published {run.published:,} events in "
            f"{duration(run.seconds)}; {sum(run.delivered.values()):,} were delivered from {run.crossed:,} that "
            f"crossed. {shared([run])}{expects} It took {duration(run.ready)} until all interests were at "
            f"the sources, and {run.said:,} messages ({size(run.said_bytes)}) about nodes, channels and interests."
            + (sinks if result.judged.local else "")
        ),
        own_tables.live(result, run),
    ]


# ── code and notes ──


def _code(result: OwnResult) -> list[Block]:
    if not result.code:
        return []
    return [
        Text(
            "Subscriptions that differ in parameters only have the same program, whose machine code is made once on "
            "each node. What travels is the serial form and the parameters."
        ),
        own_tables.code(result),
    ]


def _notes(result: OwnResult) -> list[str]:
    """What a reader has to know to judge the figures."""
    of_patterns = [] if result.fired is None else own_patterns.notes(result.fired, result.here)
    return [*(_notes_on_subscriptions(result) if result.found is not None else ()), *of_patterns]


def _notes_on_subscriptions(result: OwnResult) -> list[str]:
    """How they were judged, counted and played."""
    found = result.judged
    notes = [
        f"**Spark** read the log of `{result.channel}` in `{result.log}` as `{result.file}` says"
        f"{f', on `{result.master}`' if result.master else ''}. Judged by {found.how}.",
        f"**Bytes** follow a model: {found.model.removeprefix('bytes: ')}. Under load events share frames and take "
        "less.",
    ]
    if found.width is not None:
        notes.append(f"**Time** is that of the recording, in steps of {width_name(found.width)}; plots have up to "
                     f"{STEPS} steps.")  # fmt: skip
    if found.local:
        notes.append(f"**Local:** {found.local:,} events were for sinks of their own node, and do not cross.")
    if result.run is not None:
        notes.append(
            "**Live**, events have new times, and are numbered anew where the recording has gaps. They are published "
            "in the order of time. An interest that looks at numbers, times or earlier events may then give something "
            "else than over the recording; where it does, its count is compared with what Spark finds in the log of "
            "the live run, and marked †."
        )
    if result.names:
        some = ", ".join(f"{name} was {called}" for name, called in list(result.names.items())[:20])
        notes.append(f"**Names:** nodes in a federation have letters, digits, `.`, `_` and `-` in their names: {some}.")
    return [*notes, *(f"**Note:** {note}." for note in found.notes)]


def _facts(result: OwnResult) -> dict[str, str]:
    facts = {"made": result.made, "file": result.file, "log": result.log}
    if result.found is not None:
        facts["event type"] = result.found.type
    facts |= {name: duration(seconds) for name, seconds in result.timings.items()}
    return facts | dict(result.versions)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _between(first: datetime | None, last: datetime | None) -> str:
    if first is None or last is None:
        return ""
    clock = "%H:%M:%S" if last - first < timedelta(minutes=10) else "%H:%M"  # or both might look the same
    if first.date() == last.date():
        return f" on {_date(first)} between {first:{clock}} and {last:{clock}} UTC"
    return f" between {_date(first)}, {first:{clock}}, and {_date(last)}, {last:{clock}} UTC"


def _date(when: datetime) -> str:
    return f"{when.day} {when:%B %Y}"


__all__ = ["page", "summary"]
