"""Mappings say what they mean, and everything that is wrong with them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.spark.ingest import IngestMapping
from headwater.spark.ingest.paths import Route, parse_route
from headwater.spark.ingest.reader import java_pattern
from headwater.spark.ingest.times import parse_time_format

GOOD = """
format = "json"
channel = "hub.sighting"
node = "hub"
time = { from = "data.timestamp", format = "epoch s" }
source = { value = "hub" }
explode = { from = "data.seen", kind = "entries" }

[type]
name = "Sighting"
fields = "badge: text, seen: text, kind: enum(USER, THING)?, rssi: i16"

[late]
bounds = ["60s", "10m"]
arrival = { from = "log_time", format = "epoch ms" }

[fields]
badge = "data.member"
seen = "@key"
kind = { from = "@value.k", enum = { u = "USER" } }
rssi = { from = "@value.rssi[0]", default = 0 }
"""

WRONG = """
format = "jsn"
channel = "a b"
nod = "x"
time = { from = "t", format = "%Q", zone = "Europe/Dublan" }
source = { from = "s", value = "both" }

[type]
fields = "badge: text, kind: enum(USER, THING), event_seq: i64"

[options]
decimal = ",,"
encodin = "utf-8"

[duplicates]
what = "forget"
key = ["badg"]

[fields]
bagde = "x"
kind = { from = "k", enum = { u = "USR" } }
badge = "@key"
"""


def test_a_mapping_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sighting.toml"
    path.write_text(GOOD, encoding="utf-8")
    made = IngestMapping.load(path)
    assert made.type.name == "Sighting"
    assert made.late.bounds == (60.0, 600.0)
    maps = dict(made.fields)
    assert maps["rssi"].route == Route("value", ("rssi", 0))
    assert maps["rssi"].default == 0
    assert maps["kind"].enum == (("u", "USER"),)
    assert made.time.time is not None and made.time.time.unit == 1_000_000


def test_a_field_comes_from_the_column_of_its_name() -> None:
    made = IngestMapping.of(format="csv", channel="a", type="x: i32", time="when", source={"value": "s"})
    assert dict(made.fields)["x"].route == Route("", ("x",))


def test_all_problems_are_said_at_once_with_places_and_nearest_names(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(WRONG, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        IngestMapping.load(path)
    told = {problem.place.removeprefix(f"{path}: "): problem for problem in caught.value.problems}
    assert set(told) >= {
        "format", "channel", "nod", "time.format", "source", "type event_seq", "options.decimal", "options.encodin",
        "duplicates.what", "duplicates.key", "fields.bagde", "fields.kind.enum.u", "fields.badge.from",
    }  # fmt: skip
    assert told["format"].hint == 'did you mean "json"?'
    assert told["nod"].hint == 'did you mean "node"?'
    assert told["fields.bagde"].hint == 'did you mean "badge"?'
    assert told["fields.kind.enum.u"].hint == 'did you mean "USER"?'


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"format": "text"}, "options.pattern"),
        ({"options": {"header": False}}, "options.columns"),
        ({"options": {"pattern": "(?P<a>.)"}}, "options.pattern"),
        ({"options": {"encoding": "utf-9"}}, "options.encoding"),
        ({"options": {"decimal": ",", "thousands": ","}}, "options.thousands"),
        ({"time": None}, "time"),
        ({"time": {"from": "t", "zone": "Mars/Olympus"}}, "time.zone"),
        ({"late": ["soon"]}, "late.bounds"),
        ({"fields": {"x": {"from": "x", "format": "iso"}}}, "fields.x"),
        ({"fields": {"x": "a.b"}}, "fields.x.from"),
        ({"type": "x: i33"}, "type"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed: dict[str, Any], place: str) -> None:
    given: dict[str, Any] = {"format": "csv", "channel": "a", "type": "x: i32", "time": "t", "source": "s", **changed}
    with pytest.raises(ConfigError) as caught:
        IngestMapping.of(**given)
    assert f"mapping: {place}" in [problem.place for problem in caught.value.problems]


def test_no_such_file_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a TOML file that can be read, found no such file"):
        IngestMapping.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("format = ")
    with pytest.raises(ConfigError, match="expected TOML"):
        IngestMapping.load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("a", Route("", ("a",))),
        ("a.b[0].c", Route("", ("a", "b", 0, "c"))),
        ('"a.b".c d', Route("", ("a.b", "c d"))),
        ("@key", Route("key", ())),
        ("@value[2].x", Route("value", (2, "x"))),
    ],
)
def test_routes_are_read_and_written(text: str, route: Route) -> None:
    assert parse_route(text) == route
    assert str(route) == text


@pytest.mark.parametrize("text", ["", "a..b", ".a", "a.", "[0]", "a[x]", "@keys", "@key.x", "a[0]b", 'a"b"'])
def test_routes_that_lead_nowhere(text: str) -> None:
    assert isinstance(parse_route(text), str)


def test_patterns_of_python_are_those_of_java() -> None:
    assert java_pattern(r"(?P<a>[^]x[&]+)-(?P=a)(b)\w\Z") == r"(?U)([^\]x\[\&]+)-\1(b)\w\z"


def test_formats_of_times() -> None:
    found = parse_time_format("%d/%b/%Y:%H:%M:%S.%f %z at 'x'")
    assert not isinstance(found, str)
    assert found.java == "dd/MMM/yyyy:HH:mm:ss.SSSSSS XX 'at' '''x'''" or found.zoned
    assert isinstance(parse_time_format("%A"), str)
    assert isinstance(parse_time_format("yyyy"), str)
