"""What the groups of partitions of a stream keep and find: the same matches as the definition's, each once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import ExecutionError
from headwater.late import pa
from headwater.patterns import model
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.identity import identity
from headwater.spark.patterns import runs, sending
from headwater.spark.patterns.group import Group
from headwater.spark.schema import spark_arrow_schema, to_spark_arrow
from tests.effort import rounds
from tests.patterns import oracle
from tests.patterns.strategies import is_decided, patterns, streams

NODES = {"n1": "west", "n2": "east"}  # with a source of one name each
ONE, OTHER = ("n1", None), ("n2", None)
Promised = list[tuple[tuple[str, str | None], int | None]]
AFTERWARDS = 1 << 40  # microseconds: later than anything in a stream


def _batch(pattern: model.Pattern, events: list[dict[str, Any]], promises: Promised) -> Any:
    """Rows as Spark hands them over, all of one group."""
    names = [channel.name for channel in pattern.channels]
    order = sorted(names)
    rows = [event for event in events if event["channel"] in names]
    told = [(number, who, time) for number in range(len(names)) for who, time in promises]
    numbers = [names.index(event["channel"]) for event in rows] + [number for number, _, _ in told]
    times = [event["time"] for event in rows] + [time for _, _, time in told]
    columns = {
        sending.TIME: pa.array(times, pa.int64()),
        runs.RANK: pa.array([order.index(names[number]) for number in numbers], pa.int32()),
        runs.CHANNEL: pa.array(numbers, pa.int32()),
        runs.SOURCE: pa.array([event["source"] for event in rows] + [who[0] for _, who, _ in told], pa.string()),
        runs.SEQ: pa.array([event["seq"] for event in rows] + [None] * len(told), pa.int64()),
        runs.PUBLISHED: pa.array(times, pa.int64()),
        runs.NODE: pa.array([event.get("node") for event in rows] + [who[1] for _, who, _ in told], pa.string()),
    }
    for number, channel in enumerate(pattern.channels):
        record = channel.type.record
        own = to_spark_arrow(channel.type.to_arrow([e["fields"] for e in rows if e["channel"] == channel.name]), record)
        values = iter(pa.array(own.to_pylist()).to_pylist() if own.num_rows else [])
        listed = [next(values) if event["channel"] == channel.name else None for event in rows] + [None] * len(told)
        columns[f"{runs.EVENT}{number}"] = pa.array(listed, pa.struct(spark_arrow_schema(record)))
    columns[sending.GROUP] = pa.array([0] * len(times), pa.int32())
    columns[sending.KEPT] = pa.array([True] * len(rows) + [False] * len(told), pa.bool_())
    columns[sending.PROMISES] = pa.array([False] * len(rows) + [True] * len(told), pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


class _Stream:
    """A query of one group, started anew for each batch."""

    def __init__(self, pattern: model.Pattern, *, own_time: bool = False) -> None:
        self.pattern, self.own_time = pattern, own_time
        self.state: bytes | None = None
        self.found: list[tuple[bytes, int]] = []
        self.late = 0

    def step(self, events: list[dict[str, Any]], promises: Promised | None = None) -> None:
        batch = _batch(self.pattern, events, promises or [])
        sent = list(sending.packages([batch], 1, self.pattern.lateness, own_time=self.own_time))
        self.take([data for each in sent for data in each.column(sending.SENT).to_pylist()])

    def take(self, sent: list[bytes]) -> None:
        group = Group(runs.pack(self.pattern), self.pattern.fingerprint, 1, self.state)
        group.take(sent)
        for data in group.release():
            for batch in sending.loaded(data):
                who, when, _ = batch.column("match").flatten()
                self.found += zip(who.to_pylist(), when.cast(pa.int64()).to_pylist(), strict=True)
        self.state, self.late = group.dump(), group.late

    def end(self) -> None:
        """Nothing more comes: as if every source promised."""
        numbers = range(len(self.pattern.channels))
        who = [(number, node, "n1", AFTERWARDS) for number in numbers for node in NODES.values()]
        self.take([sending.packed(sending.Sent(who, [], b""))])


def _expected(pattern: model.Pattern, events: list[dict[str, Any]]) -> list[tuple[bytes, int]]:
    found = oracle.matches(pattern, events)
    return sorted((identity(pattern.fingerprint, each.events, each.deadline), each.time) for each in found)


@settings(max_examples=rounds(8, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(patterns(), st.data(), st.booleans())
def test_batches_find_what_the_definition_says(pattern: model.Pattern, data: st.DataObject, late: bool) -> None:
    events = [{**event, "source": "n1", "node": NODES[event["source"]]} for event in data.draw(streams(late=late))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    stream = _Stream(pattern, own_time=late)
    everybody: Promised = [(("n1", node), None) for node in NODES.values()]
    for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        stream.step(events[start:end], everybody if start == 0 else None)
    stream.end()
    expected = _expected(pattern, events)
    if is_decided(pattern):
        assert sorted(stream.found) == expected, pattern.text
    else:  # a stream has no end: what a further row would decide waits for it
        assert not Counter(stream.found) - Counter(expected), pattern.text


ABSENT = Pattern(
    "open: door{state = 'open'}; without door{state = 'shut'} within 10 seconds", {"door": "state: text"}
).model


def _event(source: str, seq: int, time: int, state: str) -> dict[str, Any]:
    return {"channel": "door", "source": source, "seq": seq, "time": time, "fields": {"state": state}}


def test_an_absence_is_found_by_promises_alone_once_all_have_promised() -> None:
    stream = _Stream(ABSENT)
    stream.step([_event("n1", 1, 5, "open")], [(ONE, None), (OTHER, None)])
    stream.step([], [(ONE, 20_000_000)])
    assert stream.found == []  # the other source may still have shut it
    stream.step([], [(OTHER, 20_000_000)])
    assert [time for _, time in stream.found] == [10_000_005]
    stream.step([], [(ONE, 90_000_000), (OTHER, 90_000_000)])
    assert len(stream.found) == 1


def test_what_comes_after_its_time_was_released_is_left_out_and_counted() -> None:
    stream = _Stream(ABSENT)
    stream.step([_event("n1", 1, 5, "open")], [(ONE, 20_000_000)])
    stream.step([_event("n2", 1, 6, "shut")])
    assert (len(stream.found), stream.late) == (1, 1)


def test_state_is_of_one_pattern_and_one_number_of_groups() -> None:
    stream = _Stream(ABSENT)
    stream.step([_event("n1", 1, 5, "open")], [(ONE, 6)])
    with pytest.raises(ExecutionError, match="expected groups=1, as when this query was first started, found groups=2"):
        Group(runs.pack(ABSENT), ABSENT.fingerprint, 2, stream.state)
    with pytest.raises(ExecutionError, match="expected the state of a pattern, found something else"):
        Group(runs.pack(ABSENT), ABSENT.fingerprint, 1, b"\x93\x01\x02\x03")
    other = Pattern("door{state = 'open'}; without door within 10 seconds", {"door": "state: text"}).model
    group = Group(runs.pack(other), other.fingerprint, 1, stream.state)
    group.take([sending.packed(sending.Sent([(0, None, "n1", AFTERWARDS)], [], b""))])
    with pytest.raises(ExecutionError, match="another checkpointLocation"):
        group.release()
