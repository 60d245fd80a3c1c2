"""From the sums of all tasks to the report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headwater.channel.reports.counters import fault_name
from headwater.late import np
from headwater.match.counters import KINDS
from headwater.spark.backtest.judging import crosses_alone
from headwater.spark.backtest.report import (
    DATAGRAM,
    FRAME,
    MARK,
    Backtest,
    LinkRow,
    SinkRow,
    SourceRow,
    SubscriptionRow,
    TimeRow,
    Traffic,
    moment,
)
from headwater.spark.backtest.subscriptions import Wanted
from headwater.spark.backtest.tally import Tally

NONE = Traffic()


def report(
    tally: Tally,
    wanted: Sequence[Wanted],
    *,
    channel: str | None,
    type: str,
    seconds: float,
    engine: str = "spark",
    notes: tuple[str, ...] = (),
) -> Backtest:
    """The tables of what was counted."""
    it = _Sums(tally, wanted)
    nodes = sorted({node for node, _ in tally.cells}, key=lambda node: (node is None, node or ""))
    stretches = sorted({s for _, s in tally.cells}, key=lambda s: (s is None, s or 0))
    links = tuple(it.link(node, sink) for node in nodes for sink in range(len(it.sinks)) if node != it.sinks[sink])
    sources = tuple(it.source(node, links) for node in nodes)
    sinks = tuple(it.sink_row(sink, links) for sink in range(len(it.sinks)))
    times = tuple(it.time(stretch, nodes) for stretch in stretches)
    known = [stretch for stretch in stretches if stretch is not None]
    width = tally.width if known else None
    local = sum(it.local(node) for node in nodes)
    return Backtest(
        channel=channel,
        type=type,
        events=tally.rows,
        first=None if tally.first is None else moment(tally.first),
        last=None if tally.last is None else moment(tally.last),
        width=timedelta(microseconds=width) if width else None,
        unfiltered=_sum(row.unfiltered for row in links),
        filtered=_sum(row.filtered for row in links),
        merged=_sum(row.merged for row in links),
        multicast=_sum(row.multicast for row in sources),
        local=local,
        subscriptions=tuple(it.subscription(number, tally) for number in range(len(wanted))),
        links=links,
        sinks=sinks,
        sources=sources,
        times=times,
        seconds=seconds,
        how=_how(tally),
        engine=engine,
        notes=notes,
    )


def _sum(rows: Any) -> Traffic:
    return sum(rows, NONE)


def _how(tally: Tally) -> str:
    names = {"classes": "matching classes of equal events", "events": "matching each event"}
    return "; ".join(f"{names[how]}: {rows:,} events" for how, rows in sorted(tally.how.items())) or "nothing to judge"


class _Sums:
    """The cells, as arrays of events and bytes by item."""

    def __init__(self, tally: Tally, wanted: Sequence[Wanted]) -> None:
        self.items, self.wanted = tally.items, wanted
        self.sinks = list(dict.fromkeys(each.at for each in wanted))
        self.of = [self.sinks.index(each.at) for each in wanted]
        # Bytes of frame, of what each subscription and each node gets. Where some events are marked, all are.
        self.frames = [FRAME + MARK * crosses_alone(each.interest) for each in wanted]
        self.links = [max(self.frames[n] for n, at in enumerate(self.of) if at == s) for s in range(len(self.sinks))]
        self.cells, self._width = tally.cells, tally.width or 0
        zero = np.zeros((2, self.items.count), np.int64)
        self.by_node: dict[str | None, Any] = {}
        self.total = zero.copy()
        for (node, _), sums in self.cells.items():
            self.by_node[node] = self.by_node.get(node, zero) + sums
            self.total = self.total + sums

    def _traffic(self, sums: Any, item: int, extra: int = FRAME) -> Traffic:
        events, size = int(sums[0, item]), int(sums[1, item])
        return Traffic(events, size + extra * events)

    def _filtered(self, sums: Any, sink: int) -> Traffic:
        first = self.items.first
        return _sum(self._traffic(sums, first + n, self.frames[n]) for n, at in enumerate(self.of) if at == sink)

    def _merged(self, sums: Any, sink: int) -> Traffic:
        return self._traffic(sums, self.items.merged + sink, self.links[sink])

    def _multicast(self, sums: Any, node: str | None) -> Traffic:
        """One datagram for all, and streams to nodes with marked events."""
        streams = (
            self._merged(sums, sink)
            for sink, name in enumerate(self.sinks)
            if name != node and self.links[sink] > FRAME
        )
        return _sum(streams) + self._traffic(sums, self.items.datagrams, FRAME + DATAGRAM)

    def subscription(self, number: int, tally: Tally) -> SubscriptionRow:
        item = self.items.first + number
        events, size = int(self.total[0, item]), int(self.total[1, item])
        undecided = int(tally.undecided[number])
        faults = {fault_name(kind): int(n) for kind, n in zip(KINDS, tally.faults[number], strict=True) if n}
        return SubscriptionRow(
            name=self.wanted[number].name,
            at=self.wanted[number].at,
            events=events,
            bytes=size + self.frames[number] * events,
            record_bytes=size,
            evaluated=tally.rows,
            passed=events,
            rejected=tally.rows - events - undecided,
            undecided=undecided,
            faults=faults,
        )

    def link(self, node: str | None, sink: int) -> LinkRow:
        sums = self.by_node[node]
        return LinkRow(
            source=node,
            sink=self.sinks[sink],
            unfiltered=self._traffic(sums, self.items.everything),
            filtered=self._filtered(sums, sink),
            merged=self._merged(sums, sink),
        )

    def sink_row(self, sink: int, links: Sequence[LinkRow]) -> SinkRow:
        mine = [row for row in links if row.sink == self.sinks[sink]]
        return SinkRow(
            sink=self.sinks[sink],
            subscriptions=self.of.count(sink),
            unfiltered=_sum(row.unfiltered for row in mine),
            filtered=_sum(row.filtered for row in mine),
            merged=_sum(row.merged for row in mine),
        )

    def source(self, node: str | None, links: Sequence[LinkRow]) -> SourceRow:
        mine = [row for row in links if row.source == node]
        sums = self.by_node[node]
        return SourceRow(
            source=node,
            published=self._traffic(sums, self.items.everything, 0),
            unfiltered=_sum(row.unfiltered for row in mine),
            filtered=_sum(row.filtered for row in mine),
            merged=_sum(row.merged for row in mine),
            multicast=self._multicast(sums, node),
        )

    def time(self, stretch: int | None, nodes: Sequence[str | None]) -> TimeRow:
        cells = {node: self.cells[node, stretch] for node in nodes if (node, stretch) in self.cells}
        pairs = [(sums, sink) for node, sums in cells.items() for sink, name in enumerate(self.sinks) if name != node]
        items = self.items
        received = sum(sums[0, items.first : items.first + items.subscriptions] for sums in cells.values())
        return TimeRow(
            start=None if stretch is None else moment(stretch * self._width),
            events=sum(int(sums[0, items.everything]) for sums in cells.values()),
            unfiltered=_sum(self._traffic(sums, items.everything) for sums, _ in pairs),
            filtered=_sum(self._filtered(sums, sink) for sums, sink in pairs),
            merged=_sum(self._merged(sums, sink) for sums, sink in pairs),
            multicast=_sum(self._multicast(sums, node) for node, sums in cells.items()),
            received=tuple(np.asarray(received).tolist()),
            sources=tuple(int(cells[node][0, items.everything]) if node in cells else 0 for node in nodes),
        )

    def local(self, node: str | None) -> int:
        """What sinks of its own node get of it, as it would cross."""
        if node not in self.sinks:
            return 0
        return int(self.by_node[node][0, self.items.merged + self.sinks.index(node)])


__all__ = ["report"]
