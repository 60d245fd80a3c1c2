"""`spark.read.format("headwater")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

from headwater import HeadwaterError, Interest, event_type
from headwater.interest import as_event_type
from headwater.spark import where
from headwater.spark.live import interest_options, register
from headwater.spark.live.row_shape import LOG_META
from headwater.spark.live.source import HeadwaterSource
from tests.spark.live.logs import CHANNEL, put

READING = event_type(as_event_type("level: f64, network: text, count: u32, kind: enum(USER, OTHER)?").record)


def reading(at: int) -> dict[str, Any]:
    return {"level": at / 10, "network": f"net-{at % 3}", "count": 2**32 - 1 - at, "kind": None if at % 4 else "OTHER"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log")
    put(root, READING, [reading(at) for at in range(10)])
    put(root, READING, [reading(at) for at in range(10, 20)], source="b", seqs=range(5, 95, 9))
    put(root, READING, [reading(at) for at in range(20, 30)], node="attic")
    return root


def read(spark: Any, log: Path, **options: Any) -> Any:
    return spark.read.format("headwater").options(log=str(log), channel=CHANNEL, **options).load()


def levels(frame: Any) -> list[float]:
    return sorted(row.level for row in frame.select("level").collect())


def test_everything_is_read_one_partition_per_source(spark: Any, log: Path) -> None:
    frame = read(spark, log)
    assert frame.columns == [*LOG_META.values(), "level", "network", "count", "kind"]
    assert frame.rdd.getNumPartitions() == 3
    rows = {(row.event_node, row.event_source, row.event_seq): row for row in frame.collect()}
    assert len(rows) == 30
    found = rows["hall", "b", 14]
    assert (found.level, found.network, found["count"], found.kind) == (1.1, "net-2", 2**32 - 12, None)
    assert rows["attic", "a", 1].kind == "OTHER"


def test_an_interest_runs_at_the_log(spark: Any, log: Path) -> None:
    loud = read(spark, log, where="level > :limit and network in :networks",
                params='{"limit": 1.5, "networks": ["net-1", "net-2"]}')  # fmt: skip
    expected = where(read(spark, log), Interest("level > 1.5 and network != 'net-0'", READING), meta=LOG_META)
    assert levels(loud) == levels(expected) and len(levels(loud)) == 10
    assert levels(read(spark, log, where="meta.source == 'b' and meta.seq > 50")) == [1.6, 1.7, 1.8, 1.9]
    assert levels(loud.where("network = 'net-1' and level < 2")) == [1.6, 1.9]


def test_an_interest_of_any_notation_travels_as_an_option(spark: Any, log: Path) -> None:
    loud = Interest(lambda e, *, known: e.network in known and e.level >= 2.5, READING, params={"known": {"net-1"}})
    assert levels(read(spark, log, **interest_options(loud))) == [2.5, 2.8]


def test_a_transformation_has_the_columns_of_its_output(spark: Any, log: Path) -> None:
    doubled = read(spark, log, where="{ output.twice = input.level * 2; return input.level > 2.7; }",
                   output="twice: f64", notation="ecode")  # fmt: skip
    assert doubled.columns == [*LOG_META.values(), "twice"]
    assert sorted(row.twice for row in doubled.collect()) == [5.6, 5.8]
    assert [row.event_seq for row in doubled.where("twice > 5.7").collect()] == [10]


def test_an_interest_with_state_sees_each_source_from_its_beginning(spark: Any, log: Path) -> None:
    third = "{ static int n = 0; n = n + 1; return n % 3 == 0; }"
    frame = read(spark, log, where=third)
    assert levels(frame) == [0.2, 0.5, 0.8, 1.2, 1.5, 1.8, 2.2, 2.5, 2.8]
    assert levels(frame.where("event_source = 'b' and level > 1.3")) == [1.5, 1.8]
    with pytest.raises(PySparkException, match="its state starts with the first event of a source"):
        read(spark, log, where=third, startingOffsets='{"hall": {"a": 2}}').count()


def test_ranges_by_sequence_numbers(spark: Any, log: Path) -> None:
    frame = read(
        spark, log, startingOffsets='{"hall": {"a": 8}, "attic": {"a": 10}}', endingOffsets='{"hall": {"a": 9}}'
    )
    assert levels(frame) == [0.8]
    frame = read(spark, log, startingOffsets='{"hall": {"a": 8, "b": 77}, "attic": {"a": 10}}')
    assert levels(frame) == [0.8, 0.9, 1.9]


def test_a_given_schema_picks_columns(spark: Any, log: Path) -> None:
    frame = spark.read.format("headwater").schema("level double, event_seq long").load(str(log), channel=CHANNEL)
    assert frame.columns == ["level", "event_seq"]
    assert [row.event_seq for row in frame.where("level = 1.3").collect()] == [32]
    wrong = spark.read.format("headwater").schema("level float, colour string").load(str(log), channel=CHANNEL)
    with pytest.raises(PySparkException, match=r"column level: expected double, found float(.|\n)*column colour: exp"):
        wrong.count()


def test_a_channel_that_has_gained_fields(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, event_type(as_event_type("level: f64, dropped: i32").record), [{"level": 1.0, "dropped": 7}])
    put(tmp_path, READING, [reading(3)], seqs=[2], segment=2)
    frame = read(spark, tmp_path)
    assert [tuple(r) for r in frame.select("level", "network", "dropped").orderBy("event_seq").collect()] == [
        (1.0, None, 7),
        (0.3, "net-0", None),
    ]
    assert levels(frame.where("network is null")) == [1.0]
    assert levels(read(spark, tmp_path, where="network is null")) == [1.0]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"channel": None}, 'option channel: expected the name of a channel, found none; add .option("channel"'),
        ({"wehre": "level > 1"}, "did you mean 'where'?"),
        ({"connect": "tcp/localhost:7447"}, "expected either log or connect, found both"),
        ({"log": None}, "expected log (a folder) or connect (endpoints of nodes), found neither"),
        ({"channel": "lab.raeding"}, "did you mean 'lab.reading'?"),
        ({"channel": "a//b"}, "segments are joined by dots"),
        ({"log": "/nowhere"}, "expected a folder with a log, found none"),
        ({"where": "level > and"}, "line 1, column 9"),
        ({"where": "lvel > 1"}, "did you mean 'level'?"),
        ({"where": "level > :l", "params": "{'l': 1}"}, "option params: expected an object in JSON"),
        ({"params": "{}"}, "option params: expected it only beside where"),
        ({"where": "level > :l", "params": '{"l": [[1]]}'}, "option params: expected l: a number, text, true or false"),
        ({"where": "level > :l", "params": '{"l": null}'}, "option params: expected l: a number, text, true or false"),
        ({"startingOffsets": "newest"}, "option startingOffsets: expected earliest or latest"),
        ({"maxEventsPerBatch": "many"}, "expected a whole number of 1 or more, found 'many'"),
        ({"startingOffsets": '{"hall": 4}'}, "option startingOffsets: expected earliest"),
        ({"interest": "nonsense"}, "what interest_options() makes"),
        ({"federation": "x"}, "option federation: expected it only beside connect"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_is_wrong_with_options(log: Path, options: dict[str, Any], says: str) -> None:
    given = {"log": str(log), "channel": CHANNEL, **options}
    with pytest.raises(HeadwaterError) as caught:
        HeadwaterSource(CaseInsensitiveDict({k: v for k, v in given.items() if v is not None})).schema()
    assert says in str(caught.value)


def test_all_wrong_options_are_told_at_once_on_the_driver(spark: Any) -> None:
    with pytest.raises(PySparkException, match=r"3 problems(.|\n)*'chanel'(.|\n)*option channel(.|\n)*option log"):
        spark.read.format("headwater").option("chanel", "x").load()


def test_it_can_be_registered_by_hand(spark: Any, log: Path) -> None:
    register(spark)
    assert read(spark, log).count() == 30
