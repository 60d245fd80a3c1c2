"""A backtest as slow and obvious as can be: each event, each interest, the reference interpreter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.channel.reports.counters import fault_name
from headwater.interest import Interest
from headwater.ir import interp
from headwater.ir.interp import EventContext, Fault
from headwater.native.record import is_long, uses_meta
from headwater.spark.backtest.report import DATAGRAM, FRAME, MARK, Backtest, Traffic
from headwater.spark.backtest.subscriptions import Wanted
from headwater.types import EventType


class Row(NamedTuple):
    node: str | None
    source: str | None
    seq: int
    time: int
    event: dict[str, Any]


class Naive:
    """The sums, by subscription and by link."""

    def __init__(self, type: EventType, wanted: Sequence[Wanted], rows: Sequence[Row], width: int) -> None:
        self.wanted, self.sinks = wanted, list(dict.fromkeys(each.at for each in wanted))
        self.subscriptions = [
            {"events": 0, "record_bytes": 0, "undecided": 0, "faults": defaultdict(int)} for _ in wanted
        ]
        self.links: dict[tuple[Any, str], dict[str, Traffic]] = defaultdict(lambda: defaultdict(Traffic))
        self.multicast: dict[Any, Traffic] = defaultdict(Traffic)
        self.times: dict[int, list[int]] = defaultdict(lambda: [0] * len(wanted))
        # As a node asks for it: filters are merged, the others run at the source alone, and their results are marked.
        self.alone = [each.interest is not None and runs_alone(each.interest) for each in wanted]
        self.marked = {each.at for each, alone in zip(wanted, self.alone, strict=True) if alone}
        states: dict[Any, Any] = {}
        ordered = sorted(rows, key=lambda row: (str(row.node), str(row.source), row.seq))
        for row in ordered:
            self.one(type, row, states, width)

    def one(self, type: EventType, row: Row, states: dict[Any, Any], width: int) -> None:
        size = len(type.encode(row.event))
        meta = EventContext(source=row.source, node=row.node, seq=row.seq, time=row.time)
        merged: set[str] = set()  # nodes whose merged filters want the event
        results: dict[str, dict[Any, int]] = defaultdict(dict)  # what else crosses to a node: whose, and its size
        for number, each in enumerate(self.wanted):
            if each.interest is None:
                passed, made = True, None
            else:
                passed, made = self.judge(number, each, row, meta, states)
            if not passed:
                continue
            sums = self.subscriptions[number]
            length = size if made is None else made
            sums["events"] += 1
            sums["record_bytes"] += length
            self.times[row.time // width][number] += 1
            if each.at != row.node:
                self.add(row.node, each.at, "filtered", length + MARK * self.alone[number])
            if not self.alone[number]:
                merged.add(each.at)
            else:
                assert each.interest is not None
                shared = (each.interest.fingerprint, repr(each.interest.params))
                results[each.at][number if each.interest.program.stateful else shared] = length
        for sink in self.sinks:
            if sink == row.node:
                continue
            self.add(row.node, sink, "unfiltered", size)
            for length in [*([size] if sink in merged else []), *results[sink].values()]:
                mark = MARK * (sink in self.marked)
                self.add(row.node, sink, "merged", length + mark)
                if mark:
                    self.send(row.node, length + mark)
        if merged - self.marked - {row.node}:
            self.send(row.node, size + DATAGRAM)

    def judge(
        self, number: int, each: Wanted, row: Row, meta: EventContext, states: dict[Any, Any]
    ) -> tuple[bool, int | None]:
        it = each.interest
        assert it is not None
        state = None
        if it.program.stateful:
            state = states.setdefault((number, row.node, row.source), interp.initial_state(it.program))
        result = interp.run(it.program, row.event, meta=meta, params=it.params, state=state, fuel=it.limits.fuel)
        sums = self.subscriptions[number]
        sums["undecided"] += result.status is interp.Status.UNDECIDED
        for kind in Fault:
            if kind and kind in result.faults:
                sums["faults"][fault_name(kind)] += 1
        if not result.passed:
            return False, None
        return True, None if it.output is None else len(it.output.encode(result.output))

    def add(self, node: Any, sink: str, what: str, size: int) -> None:
        self.links[node, sink][what] += Traffic(1, size + FRAME)

    def send(self, node: Any, size: int) -> None:
        self.multicast[node] += Traffic(1, size + FRAME)

    def check(self, found: Backtest) -> None:
        """Everything in the report is what it ought to be."""
        total = found.events
        rows = zip(found.subscriptions, self.subscriptions, self.wanted, self.alone, strict=True)
        for row, sums, each, alone in rows:
            assert (row.name, row.at) == (each.name, each.at)
            got = (row.events, row.record_bytes, row.undecided, dict(row.faults))
            text = each.interest.program.body if each.interest else None
            assert got == (sums["events"], sums["record_bytes"], sums["undecided"], dict(sums["faults"])), text
            assert row.bytes == row.record_bytes + (FRAME + MARK * alone) * row.events
            assert row.evaluated == row.passed + row.rejected + row.undecided == total
        for link in found.links:
            expected = self.links[link.source, link.sink]
            assert (link.unfiltered, link.filtered, link.merged) == tuple(
                expected[what] for what in ("unfiltered", "filtered", "merged")
            ), (link.source, link.sink)
        assert {row.source: row.multicast for row in found.sources if row.multicast.events} == dict(self.multicast)
        for what in ("unfiltered", "filtered", "merged"):
            total_of = sum((getattr(row, what) for row in found.links), Traffic())
            assert getattr(found, what) == total_of == sum((getattr(row, what) for row in found.sinks), Traffic())
            assert total_of == sum((getattr(row, what) for row in found.times), Traffic())
        assert found.multicast == sum((row.multicast for row in found.times), Traffic())
        assert [sum(row.received) for row in found.times if sum(row.received)] == [
            sum(self.times[at]) for at in sorted(self.times)
        ]


def runs_alone(interest: Interest) -> bool:
    program = interest.executed.program
    return program.stateful or program.output is not None or uses_meta(program) or is_long(program)
