"""Events and rows of any size cross a link: together in a frame, alone in one, or counted as too large."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater import Event
from headwater.federation.wire.frames import MAX_FRAME
from tests.federation.nodes import GUARD, Log, Nodes, nodes
from tests.federation.pairs import Held, pair


class Text(Event, name="ie.tcd.Text"):
    text: str


def unbroken(make: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """No frame was refused at the other end, and none could not be sent. How many links there were says nothing: both
    nodes may have called each other, and then one call takes the place of the other."""
    for node in make.opened:
        report = node.federation_report()
        assert not report.offences, f"{node}: {report.refusals}"
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def test_a_short_event_before_many_long_ones(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with nodes() as make:
        source, _, there, _ = pair(make, bytes, lambda event: log(len(event)))
        sizes = [10, *[100_000] * 300]
        with Held(there):
            for size in sizes:
                source.publish(b"x" * size)
        assert log.wait(len(sizes), GUARD) == sizes
        unbroken(make, caplog)


def test_events_that_fit_a_frame_each_but_not_together(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with nodes() as make:
        source, _, there, _ = pair(make, bytes, lambda event: log(len(event)))
        sizes = [600_000, MAX_FRAME - 100_000, 10]
        with Held(there):
            for size in sizes:
                source.publish(b"x" * size)
        assert log.wait(3, GUARD) == sizes
        unbroken(make, caplog)


def test_an_event_that_no_frame_can_take_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with nodes() as make:
        source, a, there, _ = pair(make, bytes, lambda event: log(len(event)))
        for size in (1, MAX_FRAME + 1, 2):
            source.publish(b"x" * size)
        assert log.wait(2, GUARD) == [1, 2]
        assert a.flush(GUARD), f"not flushed: {there}, {[(lane.waiting, lane.dropped) for lane in there.lanes()]}"
        assert [lane.dropped for lane in there.lanes()] == [1]
        unbroken(make, caplog)


@pytest.mark.parametrize("rows", [[3_000] * 8_000, [3 << 20, 1, 2], [1] * 60 + [3 << 20], [1, MAX_FRAME + 1, 2]])
def test_rows_of_any_size(rows: list[int], caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with nodes() as make:
        source, a, there, _ = pair(make, Text, lambda event: log(len(event.text)))
        source.publish_many(pa.table({"text": ["x" * size for size in rows]}))
        source.publish(text="")
        fit = [size for size in rows if size <= MAX_FRAME]
        assert log.wait(len(fit) + 1, GUARD) == [*fit, 0]
        assert a.flush(GUARD), f"not flushed: {there}, {[(lane.waiting, lane.dropped) for lane in there.lanes()]}"
        assert [lane.dropped for lane in there.lanes()] == [len(rows) - len(fit)]
        unbroken(make, caplog)
