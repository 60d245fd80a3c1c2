"""A node with a log: what its sources publish is written first, goes on where it ended, and is there for latecomers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Config, Event, Interest, Log, Reliable, State, f32, i64, u32
from headwater.channel.node import Node
from headwater.dispatch import Pool
from headwater.errors import ClosedError, ConfigError, StoreError
from headwater.store.log.reader import ChannelReader
from headwater.testing import ManualClock
from tests.channel.events import GUARD, Alarm, Detailed, Sighting, badges, sighting
from tests.disk import full
from tests.federation.nursery import Popen

CHANNEL = "ie.tcd.sighting"


class Tenth(Event, name="ie.tcd.Tenth"):
    badge: u32
    tenth: i64


def logged(folder: Path, channel: str = CHANNEL) -> list[dict[str, Any]]:
    """Everything in a channel's log."""
    return [row for batch in ChannelReader(folder, channel).read() for row in batch.to_pylist()]


def numbers(folder: Path, source: str, channel: str = CHANNEL) -> list[int]:
    reader = ChannelReader(folder, channel)
    return [seq for batch in reader.read(node="lab", source=source) for seq in batch["event_seq"].to_pylist()]


# ── what is written ──


def test_events_are_in_the_log_when_publish_returns(tmp_path: Path) -> None:
    clock = ManualClock()
    with Node("lab", log=tmp_path, clock=clock) as node:
        source = node.channel(CHANNEL, Sighting).source("hall")
        assert source.publish(sighting(7, level=0.25)) == 1
        [row] = logged(tmp_path)
        assert (row["event_node"], row["event_source"], row["event_seq"]) == ("lab", "hall", 1)
        assert row["event_time"].timestamp() * 1_000_000 == clock.time()
        assert (row["network"], row["badge"], row["level"], row["room"]) == ("ORL-Net#1", 7, 0.25, None)


@pytest.mark.parametrize("sinks", [0, 1, 2])
def test_no_event_goes_past_the_log(tmp_path: Path, sinks: int) -> None:
    """With one function that takes everything in the publisher's thread there is a fast path, which is not taken."""
    seen: list[list[Any]] = [[] for _ in range(sinks)]
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        for each in seen:
            channel.subscribe(each.append)
        source = channel.source("hall")
        for badge in range(500):
            source.publish(network="a", badge=badge, level=0.5)
    assert numbers(tmp_path, "hall") == list(range(1, 501))
    assert all(badges(each) == list(range(500)) for each in seen)


def test_a_sink_is_called_after_the_event_is_written(tmp_path: Path) -> None:
    found: list[int] = []
    with Node("lab", log=Log(tmp_path, sync="publish")) as node:
        channel = node.channel(CHANNEL, Sighting)
        channel.subscribe(lambda event: found.append(len(logged(tmp_path))))
        source = channel.source()
        for badge in range(3):
            source.publish(sighting(badge))
    assert found == [1, 2, 3]


def test_all_ways_to_publish(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        source = channel.source("hall")
        source.publish(sighting(0))
        assert source.publish_many([sighting(badge) for badge in range(1, 4)]) == 4
        rows = pa.table({"network": ["b"] * 3, "badge": pa.array([4, 5, 6], pa.uint32()), "level": [0.5] * 3})
        assert source.publish_many(rows) == 7
        given = iter([[sighting(7), sighting(8)], sighting(9)])
        asked = channel.source("asked", ask=lambda: next(given))
        assert (asked.ask(), asked.ask()) == (2, 1)
        wider = channel.source("wider", type=Detailed)
        wider.publish(Detailed(network="c", badge=10, level=f32(0.5), room="x", battery=1.0))
        raw = node.channel("ie.raw", bytes).source("raw")
        raw.publish(b"some bytes")
        raw.publish_many([b"", b"more"])
    found = logged(tmp_path)
    assert [row["badge"] for row in sorted(found, key=lambda row: row["badge"])] == list(range(11))
    assert [row["event_seq"] for row in found if row["event_source"] == "hall"] == list(range(1, 8))
    assert [row["data"] for row in logged(tmp_path, "ie.raw")] == [b"some bytes", b"", b"more"]


def test_what_is_not_published_is_not_logged(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        source = channel.source("hall", facts={"network": "a"})
        source.publish(sighting(1, network="a"))
        with pytest.raises(ValueError, match="facts"):
            source.publish(sighting(2, network="b"))
        with pytest.raises(ValueError):
            source.publish(network="a", badge=-1, level=0.5)
        source.close()
        with pytest.raises(Exception, match="closed"):
            source.publish(sighting(3, network="a"))
    assert numbers(tmp_path, "hall") == [1]


def test_only_own_sources_of_channels_that_are_not_derived(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        loud = channel.derive("ie.tcd.loud", "level > 0.5")
        seen: list[Any] = []
        loud.subscribe(seen.append)
        loud.source("direct").publish(sighting(1, level=0.9))
        channel.source("hall").publish(sighting(2, level=0.9))
        assert badges(seen) == [1, 2]
    assert [row["badge"] for row in logged(tmp_path)] == [2]
    assert not (tmp_path / "ie.tcd.loud").exists()


def test_only_channels_that_are_wanted(tmp_path: Path) -> None:
    with Node("lab", log=Log(tmp_path, channels=("ie.tcd.*", "us.**"))) as node:
        for name in ("ie.tcd.a", "ie.b", "us.c.d"):
            node.channel(name, Sighting).source().publish(sighting())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ie.tcd.a", "us.c.d"]


def test_many_threads_publish_without_a_gap(tmp_path: Path) -> None:
    with Node("lab", log=Log(tmp_path, sync="publish", roll_bytes=16_384)) as node:
        channel = node.channel(CHANNEL, Sighting)
        seen: list[Any] = []
        channel.subscribe(lambda event, about: seen.append(about.seq))
        source = channel.source("hall")

        def run(start: int) -> None:
            for badge in range(start, start + 100):
                source.publish(sighting(badge))

        threads = [threading.Thread(target=run, args=(1000 * index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
    assert numbers(tmp_path, "hall") == list(range(1, 401))
    assert sorted(seen) == list(range(1, 401))


def test_a_write_that_fails_publishes_nothing(tmp_path: Path) -> None:
    """As on a disk that is full: files may not become larger than they are."""
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        seen: list[Any] = []
        channel.subscribe(seen.append)
        source = channel.source("hall")
        source.publish(sighting(1))
        size = max(path.stat().st_size for path in tmp_path.rglob("*.wal"))
        with full(size + 8):
            with pytest.raises(StoreError):
                source.publish(sighting(2))
            with pytest.raises(StoreError):
                source.publish_many(pa.table({"network": ["b"], "badge": pa.array([3], pa.uint32()), "level": [0.5]}))
        assert (source.seq, badges(seen)) == (1, [1])
        assert source.publish(sighting(4)) == 2
    assert [row["badge"] for row in logged(tmp_path)] == [1, 4]


# ── going on ──


def test_the_sequence_goes_on_and_counts_are_of_this_process(tmp_path: Path) -> None:
    for life in range(3):
        with Node("lab", log=tmp_path) as node:
            channel = node.channel(CHANNEL, Sighting)
            seen: list[tuple[int, int]] = []
            sink = channel.subscribe(lambda event, about, seen=seen: seen.append((about.seq, event.badge)), "badge > 0")
            source = channel.source("hall")
            assert source.seq == 3 * life
            for badge in range(3):
                source.publish(sighting(badge))
            assert seen == [(3 * life + 2, 1), (3 * life + 3, 2)]
            assert source.report().published == channel.report().published == 3
            assert (source.report().counts.evaluated, sink.counts.evaluated, sink.counts.passed) == (3, 3, 2)
            later = channel.subscribe(lambda event: None, "badge == 7")
            other = channel.source("other")
            other.publish(sighting(7))
            assert (later.counts.evaluated, later.counts.passed) == (1, 1)
    assert numbers(tmp_path, "hall") == list(range(1, 10))
    assert numbers(tmp_path, "other") == [1, 2, 3]


def test_a_source_made_again_in_the_same_process_goes_on(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        for life in range(3):
            with channel.source("hall") as source:
                source.publish(sighting(life))
        assert channel.report().published == 3
        channel.close()
        other = node.channel(CHANNEL, Sighting).source("hall")
        assert other.publish(sighting(3)) == 4


def test_a_killed_process_loses_nothing_that_it_had_published(tmp_path: Path) -> None:
    child = """
import sys
from headwater import Node
source = Node("lab", log=sys.argv[1]).channel("ie.tcd.sighting", "badge: u32").source("hall")
for badge in range(source.seq, 10**9):
    print(source.publish(badge=badge), flush=True)
"""
    last = 0
    for stop in (1, 50, 400):
        command = [sys.executable, "-c", child, str(tmp_path)]
        with Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last = int(line)
                if last >= stop:
                    process.kill()
                    break
            for line in process.stdout:  # what it had said by then
                last = int(line) if line.endswith("\n") else last
    with Node("lab", log=tmp_path) as node:
        source = node.channel(CHANNEL, "badge: u32").source("hall")
        assert source.seq >= last
        assert [row["badge"] for row in logged(tmp_path)] == list(range(source.seq))


def test_two_nodes_of_one_name_cannot_have_the_same_log(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node, Node("lab", log=tmp_path) as twin, Node("desk", log=tmp_path) as desk:
        node.channel(CHANNEL, Sighting).source("hall").publish(sighting(1))
        channel = twin.channel(CHANNEL, Sighting)
        with pytest.raises(StoreError, match="open in process"):
            channel.source("hall")
        assert not channel.sources
        desk.channel(CHANNEL, Sighting).source("hall").publish(sighting(2))
    assert sorted((row["event_node"], row["badge"]) for row in logged(tmp_path)) == [("desk", 2), ("lab", 1)]


def test_a_type_that_does_not_fit_is_refused_with_nothing_done(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        node.channel(CHANNEL, "badge: u32, room: str").source("hall").publish(badge=1, room="a")
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, "badge: str")
        with pytest.raises(StoreError, match="badge"):
            channel.source("hall")
        assert not channel.sources
    with Node("lab", log=tmp_path) as node:
        node.channel("ie.x", "event_seq: i64")
        with pytest.raises(StoreError, match="event_seq"):
            node.channel("ie.x").source()


def test_events_from_before_a_type_had_a_field_are_no_past_of_it(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        node.channel(CHANNEL, "badge: u32").source("hall").publish(badge=1)
    with Node("lab", log=tmp_path) as node:
        source = node.channel(CHANNEL, "badge: u32, room: str?").source("hall")
        source.publish(badge=2, room="a")
        seen: list[Any] = []
        node.channel(CHANNEL).subscribe(seen.append, history="all")
        assert [(event.badge, event.room) for event in seen] == [(1, None), (2, "a")]
    with Node("lab", log=tmp_path) as node:
        source = node.channel(CHANNEL, "badge: u32, room: str?, level: f64").source("hall")
        assert source.publish(badge=3, room=None, level=0.5) == 3
        seen = []
        node.channel(CHANNEL).subscribe(seen.append, history="all")
        assert [(event.badge, event.level) for event in seen] == [(3, 0.5)]


# ── the past ──


def every_third(event: Sighting, *, seen: State = State(n=0)) -> bool:
    seen.n += 1
    return seen.n % 3 == 0


@pytest.mark.parametrize("rolled", [False, True], ids=["tail", "at rest"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "started again"])
def test_sinks_that_come_later_begin_with_the_log(tmp_path: Path, restarted: bool, rolled: bool) -> None:
    def begin() -> tuple[Node, Any]:
        node = Node("lab", log=Log(tmp_path, roll_bytes=8192 if rolled else 1 << 20), config=Config(history=5))
        return node, node.channel(CHANNEL, Sighting).source("hall")

    node, source = begin()
    for badge in range(300):
        source.publish(sighting(badge))
    source.publish_many([sighting(badge) for badge in range(300, 400)])
    if restarted:
        node.close()
        node, source = begin()
    channel = node.channel(CHANNEL)
    program = "{ output.badge = input.badge; output.tenth = input.badge / 10; return input.badge % 100 == 5; }"
    wanted: dict[tuple[Any, Any], list[int]] = {
        (None, "all"): list(range(402)),
        (None, 3): [397, 398, 399, 400, 401],
        (None, 0): [400, 401],
        ("badge % 100 == 0", "all"): [0, 100, 200, 300, 400],
        ("badge % 100 == 0", 2): [200, 300, 400],
        ("badge < 2", 1): [1],
        (Interest(program, Sighting, output=Tenth), 2): [205, 305],
        (every_third, "all"): list(range(2, 402, 3)),
        (every_third, 2): [395, 398, 401],
        ("meta.seq % 200 == 1 and meta.source == 'hall'", "all"): [0, 200, 400],
    }
    seen: dict[Any, list[Any]] = {}
    for where, history in wanted:
        got = seen[where, history] = []
        channel.subscribe(lambda event, about, got=got: got.append((about.seq, event.badge)), where, history=history)
    for badge in (400, 401):
        source.publish(sighting(badge))
    assert {key: [badge for _, badge in got] for key, got in seen.items()} == wanted
    assert all(seq == badge + 1 for got in seen.values() for seq, badge in got)
    node.close()


def test_the_past_of_several_sources_is_in_order_of_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with Node("lab", log=tmp_path, clock=clock) as node:
        channel = node.channel(CHANNEL, Sighting)
        sources = [channel.source(name) for name in ("east", "west")]
        for badge in range(20):
            sources[badge % 2].publish(sighting(badge))
            clock.advance(0.001)
        for history, wanted in (("all", range(20)), (5, range(15, 20))):
            seen: list[Any] = []
            channel.subscribe(seen.append, history=history)
            assert badges(seen) == list(wanted)


def test_bytes_have_a_past_too(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        source = node.channel("ie.raw", bytes).source()
        source.publish_many([b"a", b"", b"c"])
        seen: list[bytes] = []
        node.channel("ie.raw").subscribe(seen.append, history=2)
        assert seen == [b"", b"c"]


def test_no_event_is_missed_or_doubled_between_past_and_present(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        channel = node.channel(CHANNEL, Sighting)
        source = channel.source()
        stop, logs = threading.Event(), list[list[int]]()

        def run() -> None:
            badge = 0
            while not stop.is_set() and badge < 20_000:
                source.publish(sighting(badge))
                badge += 1

        thread = threading.Thread(target=run)
        thread.start()
        try:
            for _ in range(6):
                seen: list[int] = []
                logs.append(seen)
                channel.subscribe(lambda event, seen=seen: seen.append(event.badge), "badge % 10 == 0", history="all")
        finally:
            stop.set()
            thread.join(GUARD)
        total = source.seq
    assert all(seen == list(range(0, total, 10)) for seen in logs)


# ── settings ──


def from_file(folder: Path) -> Config:
    (folder / "node.toml").write_text(
        f'name = "lab"\n[log]\npath = "{folder}/log"\nsync = "publish"\nchannels = ["ie.**"]\nkeep_bytes = 1000000\n'
    )
    return Config.load(folder / "node.toml")


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: Node("lab", log=Log(folder / "log")),
        lambda folder: Node("lab", log=str(folder / "log")),
        lambda folder: Node("lab", log={"path": folder / "log", "sync": "roll"}),
        lambda folder: Node("lab", config=Config(log=Log(folder / "log"))),
        lambda folder: Node(config=from_file(folder)),
        lambda folder: Node(config=Config.parse(from_file(folder).to_toml())),
        lambda folder: Node("lab", config={"log": {"path": str(folder / "log")}}),
        lambda folder: Node("lab", config={"log": str(folder / "log")}),
    ],
)
def test_ways_to_say_it(tmp_path: Path, make: Callable[[Path], Node]) -> None:
    with make(tmp_path) as node:
        node.channel(CHANNEL, Sighting).source("hall").publish(sighting())
    assert numbers(tmp_path / "log", "hall") == [1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "log: expected a Log, the path of a folder, or a table, found 7"),
        ({}, "log path: expected the path of a folder, found nothing"),
        ({"path": "x", "synch": "roll"}, 'did you mean "sync"?'),
        ({"path": "x", "sync": "always"}, "log sync: expected 'publish', 'interval' or 'roll', found 'always'"),
        ({"path": "x", "channels": ["a..b"]}, "log channels: expected patterns"),
        ({"path": "", "interval": -1}, "log interval"),
    ],
)
def test_settings_that_are_not_possible(given: Any, words: str) -> None:
    for make in (lambda: Node(log=given), lambda: Config.of({"log": given})):
        with pytest.raises(ConfigError) as caught:
            make()
        assert words.removeprefix("log") in str(caught.value)


def test_a_config_with_something_else_as_its_log() -> None:
    with pytest.raises(ConfigError, match="a Log or None"):
        Config(log="folder")  # type: ignore[arg-type]


def test_the_log_is_free_when_the_node_is_closed(tmp_path: Path) -> None:
    node = Node("lab", log=tmp_path)
    source = node.channel(CHANNEL, Sighting).source("hall")
    source.publish(sighting())
    node.close()
    with pytest.raises(ClosedError):
        source.publish(sighting())
    with Node("lab", log=tmp_path) as again:
        assert again.channel(CHANNEL, Sighting).source("hall").seq == 1


def test_handlers_may_publish_while_the_node_drains(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        alarms = node.channel("ie.alarm", Alarm).source("alarm")
        channel = node.channel(CHANNEL, Sighting)
        channel.subscribe(lambda event: alarms.publish(badge=event.badge, text="!"), dispatch=Pool(maximum=1))
        source = channel.source("hall")
        for badge in range(200):
            source.publish(sighting(badge))
    assert [row["badge"] for row in logged(tmp_path, "ie.alarm")] == list(range(200))


def test_durable_sinks_of_the_same_node_need_no_log(tmp_path: Path) -> None:
    """They keep no position for sources of their own process."""
    from headwater.store import NodeState

    with Node("lab", log=tmp_path / "log") as node:
        node.state = NodeState(tmp_path / "state")
        channel = node.channel(CHANNEL, Sighting)
        seen: list[Any] = []
        channel.subscribe(seen.append, name="desk", delivery=Reliable(durable=True))
        channel.source("hall").publish(sighting(1))
        assert badges(seen) == [1]
        node.state.close()
    assert [path.name for path in (tmp_path / "log").iterdir()] == [CHANNEL]
