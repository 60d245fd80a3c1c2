"""What the transformations share: the event type, how raw records become events, and the interests."""

from __future__ import annotations

from pathlib import Path

from headwater import Event, Interest, f64
from headwater.spark.ingest import IngestMapping

HERE = Path(__file__).resolve().parent
RAW = HERE / "raw"  # files of JSON lines, dirty as they come
LOG = HERE / "log"  # where the nodes log what their sources publish, and where we publish what was in the files


class Reading(Event):
    station: str
    temperature: f64
    humidity: f64 | None


class Fall(Event):
    station: str
    by: f64


MAPPING = IngestMapping.of(
    format="json",
    channel="weather.archive",
    node="files",
    type=Reading,
    time={"from": "at", "format": "%d.%m.%Y %H:%M", "zone": "Europe/Berlin"},
    source={"from": "station.id"},
    fields={"station": "station.id", "temperature": "t", "humidity": "h"},
    options={"missing": ["-"]},
)

FROST = Interest("temperature < :limit", Reading, params={"limit": 0.0})

# Its state is kept per source, in the order of the source.
FALLING = Interest(
    """{
        static double last = 1000;
        double by = last - input.temperature;
        bool first = last == 1000;
        last = input.temperature;
        output.station = input.station;
        output.by = by;
        return !first && by > 2;
    }""",
    Reading,
    output=Fall,
)
