"""Reading a log: what there is, ranges of a source, interests over it, and all of it while others change it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Interest
from headwater.errors import StoreError
from headwater.store.log.channel_log import ChannelLog
from headwater.store.log.layout import DAY_MICROSECONDS
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.reader import ChannelReader, Span, channels
from headwater.store.log.repair import repair
from headwater.store.log.seal import seal
from headwater.store.log.settings import Log
from headwater.store.log.verify import verify
from tests.effort import examples
from tests.store.log.logs import CHANNEL, DAY0, Logged, as_type, keys, sighting

SETTINGS = settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def log(tmp_path: Path) -> Logged:
    """Two nodes with a source of the same name, files of several row groups and days, and tails."""
    made = Logged(tmp_path)
    made.rest("a#1", [sighting("a#1", s, i, DAY0 + 10 * i) for s in "xy" for i in range(1, 50)], group=20)
    made.rest("a#1", [sighting("a#1", s, i, DAY0 + 10 * i) for s in "xy" for i in range(50, 60)])
    late = DAY0 + DAY_MICROSECONDS - 100
    made.rest("b", [sighting("b", s, i, late + 7 * i) for s in "xz" for i in range(1, 30)])
    made.tail("a#1", [sighting("a#1", "x", i, DAY0 + 7 * i) for i in range(60, 70)], batched=True)
    made.tail("b", [sighting("b", "x", i, late + 7 * i) for i in range(30, 40)])
    return made


class TestWhatThereIs:
    def test_channels_of_a_root(self, log: Logged) -> None:
        assert channels(log.root) == [CHANNEL] == LogFiles(log.root).channels()

    def test_sources_with_their_numbers(self, log: Logged) -> None:
        assert ChannelReader(log.root, CHANNEL).sources() == [
            Span("a#1", "x", 1, 69, 69),
            Span("a#1", "y", 1, 59, 59),
            Span("b", "x", 1, 39, 39),
            Span("b", "z", 1, 29, 29),
        ]

    def test_only_some_nodes(self, log: Logged) -> None:
        reader = ChannelReader(log.root, CHANNEL, nodes=["b"])
        assert [span.source for span in reader.sources()] == ["x", "z"]
        assert reader.count() == 68
        assert {key[0] for key in keys(reader.read())} == {"b"}

    def test_files_at_rest_and_not(self, log: Logged) -> None:
        files = ChannelReader(log.root, CHANNEL).files()
        assert [file.at_rest for file in files] == [True] * 4 + [False] * 2
        assert sum(file.rows for file in files) == len(log.rows)
        assert files[0].groups == 5 and files[0].bytes == files[0].path.stat().st_size
        assert (files[0].first_time, files[0].last_time) == (DAY0 + 10, DAY0 + 490)

    def test_the_type_and_the_columns(self, log: Logged) -> None:
        reader = ChannelReader(log.root, CHANNEL)
        assert reader.type == log.type
        assert reader.schema.names[:4] == ["event_node", "event_source", "event_seq", "event_time"]
        assert reader.schema.names[4:] == ["badge", "level", "place"]

    def test_a_channel_that_is_not_there(self, log: Logged) -> None:
        with pytest.raises(StoreError, match=r"expected a log of channel 'other', found only ie\.tcd\.sighting"):
            ChannelReader(log.root, "other")
        with pytest.raises(StoreError, match="found no log at all"):
            ChannelReader(log.root / "nowhere", "other")

    def test_a_file_of_another_writer_is_read_by_its_statistics(self, log: Logged) -> None:
        rows = [sighting("c", "w", i, DAY0 + i) for i in range(1, 11)]
        path = log.folder.path / "event_day=2024-10-04" / "part-0000.snappy.parquet"
        table = pa.Table.from_batches([log.batch(rows)]).replace_schema_metadata(None)
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)  # as Spark may write them
        log.rows += rows
        reader = ChannelReader(log.root, CHANNEL)
        assert Span("c", "w", 1, 10, 10) in reader.sources()
        assert sorted(keys(reader.read())) == sorted(log.ordered())
        assert keys(reader.merged()) == log.ordered()
        assert [key[2] for key in keys(reader.read(node="c", source="w", after=7))] == [8, 9, 10]
        assert keys(ChannelReader(log.root, CHANNEL, nodes=["b"]).read(source="w")) == []

    def test_a_segment_that_is_at_rest_but_whose_file_is_still_there_counts_once(self, log: Logged) -> None:
        tail = log.tail("a#1", [sighting("a#1", "x", i, DAY0) for i in range(70, 80)])
        log.segments["a#1"] -= 1
        half = log.rows[-10:-3]
        log.rest("a#1", half)
        del log.rows[-len(half) :]
        reader = ChannelReader(log.root, CHANNEL)
        assert tail.exists() and sorted(keys(reader.read())) == sorted(log.ordered())
        assert reader.sources()[0].last == 79


class TestRanges:
    def test_a_range_of_a_source_in_order(self, log: Logged) -> None:
        reader = ChannelReader(log.root, CHANNEL)
        batches = list(reader.read(node="a#1", source="x", after=45, upto=64, rows=4))
        assert [key[2] for key in keys(batches)] == list(range(46, 65))
        assert all(batch.num_rows <= 4 for batch in batches)

    def test_a_range_does_not_read_files_that_cannot_have_it(self, log: Logged) -> None:
        for path in (log.folder.path / "event_day=2024-10-04").glob("a*-00000001.parquet"):
            data = bytearray(path.read_bytes())
            data[4:400] = b"\xff" * 396  # its first row groups: who reads them finds out
            path.write_bytes(data)
        reader = ChannelReader(log.root, CHANNEL)
        found = reader.read(node="a#1", source="x", after=49)
        assert [key[2] for key in keys(found)] == list(range(50, 70))
        with pytest.raises(StoreError, match="headwater log verify"):
            list(reader.read(node="a#1", source="x"))

    def test_by_time_and_columns(self, log: Logged) -> None:
        reader = ChannelReader(log.root, CHANNEL)
        found = list(reader.read(since=DAY0 + 100, until=DAY0 + 120, columns=["level", "event_seq"]))
        assert {batch.schema.names[0] for batch in found} == {"level"}
        rows = sorted(value for batch in found for value in batch.column("event_seq").to_pylist())
        assert rows == [10, 10, 11, 11]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"after": "1"}, "after: expected a whole number, found '1'"),
            ({"rows": 0}, "rows: expected 1 or more"),
            ({"columns": ["nothing"]}, "columns: expected some of event_node, .* found 'nothing'"),
            ({"columns": "level"}, "columns: expected several names"),
        ],
    )
    def test_what_is_asked_wrongly(self, log: Logged, given: dict[str, Any], message: str) -> None:
        with pytest.raises(StoreError, match=message):
            ChannelReader(log.root, CHANNEL).read(**given)


class TestAgainstAList:
    @SETTINGS
    @given(data=st.data())
    def test_every_way_of_reading(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        log = Logged(tmp_path_factory.mktemp("log"))
        last: dict[tuple[str, str], int] = {}
        for _ in range(data.draw(st.integers(1, 5), "segments")):
            node = data.draw(st.sampled_from(["a", "b c"]))
            rows = []
            for _ in range(data.draw(st.integers(1, 12), "events")):
                source = data.draw(st.sampled_from(["x", "ü", "y"]))
                seq = last[node, source] = last.get((node, source), 0) + data.draw(st.sampled_from([1, 1, 5]))
                time = DAY0 + data.draw(st.integers(0, 3)) * DAY_MICROSECONDS // 2 + data.draw(st.integers(0, 5))
                rows.append(sighting(node, source, seq, time))
            if data.draw(st.booleans(), "at rest"):
                log.rest(node, rows, group=data.draw(st.sampled_from([0, 3])))
            else:
                log.tail(node, rows, batched=data.draw(st.booleans()))
        reader, size = ChannelReader(log.root, CHANNEL), data.draw(st.sampled_from([1, 4, 100]))
        every = log.ordered()
        assert keys(reader.merged(rows=size)) == every
        assert sorted(keys(reader.read(rows=size))) == sorted(every)
        assert reader.count() == len(every)
        since, until = (DAY0 + data.draw(st.integers(0, 2 * DAY_MICROSECONDS)) for _ in range(2))
        assert keys(reader.merged(since=since, until=until)) == [key for key in every if since <= key[3] < until]
        for span in reader.sources():
            own = sorted(key for key in every if key[:2] == (span.node, span.source))
            assert (span.first, span.last, span.events) == (own[0][2], own[-1][2], len(own))
            after, upto = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 40))
            found = keys(reader.read(node=span.node, source=span.source, after=after, upto=upto, rows=size))
            assert found == [key for key in own if after < key[2] <= upto]


class TestInterests:
    def test_a_filter_runs_over_a_range(self, log: Logged) -> None:
        interest = Interest("level > :least and place == 'room 1'", log.type, params={"least": 2.0})
        found = list(LogFiles(log.root).read(CHANNEL, "a#1", "x", 30, 66, interest=interest))
        expected = [i for i in range(31, 67) if i / 10 > 2 and i % 3 and i % 5 == 1]
        assert [key[2] for key in keys(found)] == expected
        assert found[0].schema.names == ChannelReader(log.root, CHANNEL).schema.names

    def test_what_the_service_knows_of_an_event(self, log: Logged) -> None:
        interest = Interest("meta.seq % 10 == 0 and meta.node == 'a#1' and meta.source == 'y'", log.type)
        found = LogFiles(log.root).read(CHANNEL, "a#1", "y", 0, None, interest=interest)
        assert [key[2] for key in keys(found)] == [10, 20, 30, 40, 50]

    def test_a_transformation_and_columns(self, log: Logged) -> None:
        interest = Interest(
            "{ if (input.badge != 3) return false; output.twice = input.level * 2; output.badge = input.badge; "
            "return true; }",
            log.type,
            output="badge: u32, twice: f64",
        )
        read = LogFiles(log.root).read
        found = list(read(CHANNEL, "b", "x", 0, None, interest=interest, columns=["event_seq", "twice"]))
        rows = [row for batch in found for row in batch.to_pylist()]
        assert rows == [{"event_seq": i, "twice": i / 10 * 2} for i in range(1, 40) if i % 7 == 3]
        whole = next(read(CHANNEL, "b", "x", 0, None, interest=interest))
        assert whole.schema.names[4:] == ["badge", "twice"]

    def test_state_from_the_beginning_only(self, log: Logged) -> None:
        third = Interest("{ static int n = 0; n = n + 1; return n % 3 == 0; }", log.type)
        files = LogFiles(log.root)
        found = files.read(CHANNEL, "a#1", "x", 0, None, interest=third, rows=7)
        assert [key[2] for key in keys(found)] == list(range(3, 70, 3))
        with pytest.raises(StoreError, match=r"expected one without state to read on after event 10"):
            files.read(CHANNEL, "a#1", "x", 10, None, interest=third)

    def test_a_field_that_the_log_does_not_have(self, log: Logged) -> None:
        with pytest.raises(StoreError, match="found 'height', which it does not; it has badge, level, place"):
            LogFiles(log.root).read(CHANNEL, "b", "x", 0, None, interest=Interest("height > 1", "height: f64"))

    def test_bytes_have_no_fields(self, tmp_path: Path) -> None:
        log = Logged(tmp_path, type=None)
        log.rest("a", [("a", "x", i, DAY0 + i, {"data": bytes([i])}) for i in range(1, 4)])
        log.tail("a", [("a", "x", 4, DAY0 + 4, {"data": b"four"})])
        files = LogFiles(tmp_path)
        assert files.type(CHANNEL) is None
        found = [value for b in files.read(CHANNEL, "a", "x", 1, None) for value in b.column("data").to_pylist()]
        assert found == [b"\x02", b"\x03", b"four"]
        with pytest.raises(StoreError, match="no type and carries bytes"):
            files.read(CHANNEL, "a", "x", 0, None, interest=Interest("a > 1", "a: i32"))


class TestEvolvedTypes:
    def test_one_table(self, tmp_path: Path) -> None:
        log = Logged(tmp_path, type=as_type("badge: u16, level: f32"))
        log.rest("a", [("a", "x", i, DAY0 + i, {"badge": i, "level": 0.5}) for i in range(1, 4)])
        log.tail("a", [("a", "x", 4, DAY0 + 4, {"badge": 4, "level": 0.5})])
        log.type = as_type("badge: u32, place: text")
        log.rest("b", [("b", "x", i, DAY0 + i, {"badge": 70_000 + i, "place": "here"}) for i in range(1, 4)])
        reader = ChannelReader(tmp_path, CHANNEL)
        assert reader.type == log.type
        table = pa.Table.from_batches(reader.merged())
        assert table.schema.names[4:] == ["badge", "level", "place"]
        assert table.schema.field("badge").type == pa.uint32()
        assert table.column("badge").to_pylist() == [1, 70_001, 2, 70_002, 3, 70_003, 4]
        assert table.column("place").to_pylist() == [None, "here", None, "here", None, "here", None]
        # What an older event does not have is missing to an interest.
        interest = Interest("place == 'here' or badge == 2", log.type)
        found = [keys(LogFiles(tmp_path).read(CHANNEL, node, "x", 0, None, interest=interest)) for node in "ab"]
        assert [[key[2] for key in each] for each in found] == [[2], [1, 2, 3]]

    def test_members_of_an_enumeration_keep_their_names(self, tmp_path: Path) -> None:
        from enum import Enum

        from headwater import Event
        from headwater.types import event_type

        class Kind(Enum):
            PERSON = 1
            THING = 2

        class Seen(Event, name="test.Seen"):
            kind: Kind

        log = Logged(tmp_path, type=event_type(Seen))
        log.rest("a", [("a", "x", i, DAY0 + i, {"kind": Kind.THING if i > 1 else Kind.PERSON}) for i in (2, 3)])
        log.tail("a", [("a", "x", 4, DAY0 + 4, {"kind": Kind.PERSON})])
        found = pa.Table.from_batches(ChannelReader(tmp_path, CHANNEL).read(node="a", source="x"))
        assert found.column("kind").to_pylist() == ["THING", "THING", "PERSON"]
        interest = Interest("kind == 'THING'", event_type(Seen))
        assert [k[2] for k in keys(LogFiles(tmp_path).read(CHANNEL, "a", "x", 0, None, interest=interest))] == [2, 3]


class TestWhatANodeWrites:
    def test_appended_and_at_rest(self, tmp_path: Path) -> None:
        kind = as_type("badge: u32, level: f64")
        with ChannelLog.open(Log(tmp_path), CHANNEL, "a", kind) as log:
            reader = log.reader()
            seen = []
            for i in range(1, 31):
                log.append("x", i, (DAY0 + i) * 1000, kind.encode(badge=i, level=0.5))
                if i % 10 == 0:
                    log.roll(wait=i == 10)
                # A write-ahead file that is read again is read on from where it ended.
                seen = [key[2] for key in keys(reader.read(node="a", source="x"))]
                assert seen == list(range(1, i + 1))
            batch = kind.to_arrow([{"badge": i, "level": 1.0} for i in range(5)])
            log.append_batch("x", 31, DAY0 * 1000, batch)
            assert [key[2] for key in keys(reader.read(node="a", source="x", after=29))] == list(range(30, 36))
        assert ChannelReader(tmp_path, CHANNEL).sources() == [Span("a", "x", 1, 35, 35)]

    def test_damage_is_not_passed_over(self, tmp_path: Path) -> None:
        log = Logged(tmp_path)
        path = log.tail("a", [sighting("a", "x", i, DAY0 + i) for i in range(1, 9)])
        data = bytearray(path.read_bytes())
        data[-200] ^= 255
        path.write_bytes(data)
        with pytest.raises(StoreError, match="headwater log repair"):
            ChannelReader(tmp_path, CHANNEL).sources()
        path.write_bytes(data[:-3])

    def test_a_footer_that_cannot_be_understood(self, tmp_path: Path) -> None:
        """Bounds that are no time, and names that are no text, are damage like any other."""
        log = Logged(tmp_path)
        [path] = log.rest("a", [sighting("a", "x", i, DAY0 + i) for i in range(1, 9)])
        whole = path.read_bytes()
        footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        for old, new in ((b"event_seq", b"event_\xcbeq"), ((DAY0 + 8).to_bytes(8, "little"), b"\xff" * 7 + b"\x7f")):
            changed = whole[:footer] + whole[footer:].replace(old, new)
            assert changed != whole
            path.write_bytes(changed)
            with pytest.raises(StoreError, match="headwater log repair"):
                ChannelReader(tmp_path, CHANNEL).count()
            assert not verify(tmp_path, CHANNEL).sound
        assert repair(tmp_path, CHANNEL).done and ChannelReader(tmp_path, CHANNEL).count() == 0

    def test_a_note_whose_name_is_no_text(self, tmp_path: Path) -> None:
        """It is none of ours, and what is in the file can be read."""
        log = Logged(tmp_path)
        [path] = log.rest("a", [sighting("a", "x", i, DAY0 + i) for i in range(1, 9)])
        whole = path.read_bytes()
        assert whole.count(b"headwater.segment") == 1
        path.write_bytes(whole.replace(b"headwater.segment", b"headwater.\x80egment"))
        seal(path)  # it was written so
        assert ChannelReader(tmp_path, CHANNEL).count() == 8

    def test_a_torn_end_is_no_damage(self, tmp_path: Path) -> None:
        log = Logged(tmp_path)
        path = log.tail("a", [sighting("a", "x", i, DAY0 + i) for i in range(1, 9)])
        data = path.read_bytes()
        path.write_bytes(data[:-3])
        reader = ChannelReader(tmp_path, CHANNEL)
        assert reader.count() == 7
        path.write_bytes(data)
        assert reader.count() == 8
