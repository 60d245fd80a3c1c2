"""An event log: what was published survives a kill, and is there for latecomers, replay and whoever reads Parquet.

python examples/log.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

from headwater import Event, Node, u32
from headwater.cli import main as headwater
from headwater.logs import replay


class Sighting(Event):
    badge: u32
    level: float


def station(folder: str) -> None:
    """A node that publishes until it is killed; it says up to which event `publish` has returned."""
    with Node("station", log=folder) as node:
        source = node.channel("ie.tcd.sighting", Sighting).source("hall")
        while True:
            print(source.publish(badge=source.seq % 50, level=source.seq % 1000 / 1000), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([sys.executable, __file__, folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = 0
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged == 5000:
                os.kill(process.pid, signal.SIGKILL)
        process.wait()

        with Node("station", log=folder) as node:
            sightings = node.channel("ie.tcd.sighting", Sighting)
            source = sightings.source("hall")
            kept = source.seq
            print(f"killed with event {acknowledged:,} acknowledged; nothing of that is lost: {kept >= acknowledged}")
            print(f"the sequence goes on: {source.publish(badge=1, level=0.5) == kept + 1}")
            late: list[Sighting] = []
            sightings.subscribe(late.append, "level > 0.99", history=10)
            print(f"a latecomer begins with the last {len(late)} events above 0.99")
        # Closing has brought it to rest; while a node runs, that happens every hour, or every 64 MiB.
        headwater(["log", "verify", folder])
        table = Path(folder) / "ie.tcd.sighting"
        query = f"select count(*), max(level) from '{table}/**/*.parquet' where badge = 7 and event_source = 'hall'"
        print("DuckDB reads it as it is:", duckdb.sql(query).fetchall())

        with Node() as node:
            loud: list[Sighting] = []
            node.channel("test.sighting", Sighting).subscribe(loud.append, "level > 0.9")
            report = replay(folder, node, to="test.sighting")
            wanted = sum(number % 1000 > 900 for number in range(kept))  # as the station made them
            print(f"replayed {report.events:,} events; a rule that is new heard {len(loud):,} of them")
            print(f"those are all above 0.9: {len(loud) == wanted}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        station(sys.argv[1])
    else:
        main()
