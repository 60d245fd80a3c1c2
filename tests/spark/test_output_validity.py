"""A transformation's output is a valid event on Spark too, whatever its columns hold."""

from __future__ import annotations

from typing import Any

from headwater import Interest
from headwater.spark import choice, derive, outcome
from headwater.spark.sql_text import sql_type
from headwater.types import model as m
from tests.spark.support import COLOUR


def test_an_output_is_a_valid_event_or_none(spark: Any, ansi: str) -> None:
    """Spark's columns hold what event types do not: texts of any bytes, times in no year, members of no name."""
    record = m.Record(
        "Loose",
        (
            m.Field("n", m.I64),
            m.Field("s", m.TEXT, True),
            m.Field("t", m.TIMESTAMP, True),
            m.Field("kind", COLOUR, True),
            m.Field("small", m.List(m.U8), True),
            m.Field("names", m.List(m.TEXT), True),
            m.Field("times", m.List(m.TIMESTAMP), True),
        ),
    )
    good = {
        "s": "'grün'",
        "t": "timestamp_micros(0L)",
        "kind": "'RED'",
        "small": "array(255S)",
        "names": "array('a', 'ß')",
        "times": "array(timestamp_micros(1L))",
    }
    nothing = {which: f"CAST(NULL AS {sql_type(record.by_name[which].type)})" for which in good}
    wrong = {
        "s": "CAST(X'67ff' AS STRING)",
        "t": f"timestamp_micros({1 << 62}L)",
        "kind": "'PURPLE'",
        "small": "array(256S)",
        "names": "array('a', CAST(X'c3' AS STRING))",
        "times": f"array(timestamp_micros({1 << 62}L))",
    }
    rows = [good, nothing, *({**good, which: text} for which, text in wrong.items())]
    columns = [
        f"{n}L AS n, " + ", ".join(f"{text} AS {which}" for which, text in row.items()) for n, row in enumerate(rows)
    ]
    frame = spark.sql(" UNION ALL ".join(f"SELECT {each}" for each in columns))
    text = "{ " + " ".join(f"output.{f.name} = input.{f.name};" for f in record.fields) + " return 1; }"
    copy = Interest(text, record, output=record)
    assert choice(copy).kind == "column"
    found = {row["n"]: row["outcome"] for row in outcome(frame, copy).select("n", "outcome").collect()}
    assert found == {0: True, 1: True} | dict.fromkeys(range(2, len(rows)))
    assert sorted(row["n"] for row in derive(frame, copy).select("n").collect()) == [0, 1]


def test_nor_as_the_arrow_function(spark: Any) -> None:
    """What cannot be a Column: rows with such values are left out, and the others of their batch are not."""
    record = m.Record("Loose", (m.Field("n", m.I64), m.Field("s", m.TEXT), m.Field("t", m.TIMESTAMP),
                                m.Field("names", m.List(m.TEXT)), m.Field("times", m.List(m.TIMESTAMP))))  # fmt: skip
    good = {"s": "'grün'", "t": "timestamp_micros(0L)", "names": "array('ß')", "times": "array(timestamp_micros(1L))"}
    wrong = {
        "s": "CAST(X'67ff' AS STRING)",
        "t": f"timestamp_micros({1 << 62}L)",
        "names": "array(CAST(X'c3' AS STRING))",
        "times": f"array(timestamp_micros({1 << 62}L))",
    }
    rows = [good, *({**good, which: text} for which, text in wrong.items()), good]
    columns = [f"{n}L AS n, " + ", ".join(f"{text} AS {which}" for which, text in row.items())
               for n, row in enumerate(rows)]  # fmt: skip
    frame = spark.sql(" UNION ALL ".join(f"SELECT {each}" for each in columns)).coalesce(1)
    text = "{ " + " ".join(f"output.{f.name} = input.{f.name};" for f in record.fields)
    copy = Interest(text + " for (int i = 0; i < 3; i++) { } return 1; }", record, output=record)
    assert choice(copy).kind == "arrow function"
    assert sorted(row["n"] for row in derive(frame, copy).select("n").collect()) == [0, len(rows) - 1]
