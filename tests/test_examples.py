"""Every example runs, and says what it promises. Those that start Spark do in tests/spark/test_examples.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.federation import nursery

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
ARGUMENTS = {"four_executions.py": ["20000"]}
PROMISES = {
    "backtest.py": ["visitors would receive 600 of 1800 events", "What would cross between nodes", "merging saves"],
    "building.py": [
        "ann sees ann in 0.01, bob in 1.01, eve in 1.01, bob in 2.01\nbob sees bob in 1.01, bob in 2.01\neve sees",
        "bob hears of the lights of 1.02, 2.03\neve hears of the lights of 1.02, 1.03\n",
        "for bob the door of floor 2 opens\nfor bob the door of floor 1 stays shut\nfor ann the door of floor 0 opens",
        "for eve the door of floor 1 stays shut",
        "version 2 holds from {'ie.tcd.sighting': {'badges': 4}} on\neve is told: not allowed: policy",
        "eve has seen 1, ann 5",
        "Ann is on floor 0, Bob on floor 2, and both have mail\n"
        "    floor 0              mail for ann: Coffee?, mail for ann: Lunch?\n"
        "    floor 2              mail for bob: Your bicycle\n"
        "    house                ann's watch #1: 120 steps\n"
        "Ann's phone asks how warm it is there; a thermometer says so, by MQTT\n"
        "    phone, by WebSocket  21°\n"
        "she prints from it\n"
        "    floor 0              prints a map\n"
        "a badge reader sees her on floor 2, by MQTT; on the stairs there is mail\n"
        "    floor 2              mail for ann: Where are you?\n"
        "her watch has come along, and goes on\n"
        "    house                ann's watch #2: 240 steps\n"
        "who has paper on floor 2?\n"
        "    house                2a has 0 sheets, 2b has 250 sheets\n"
        "she prints again; her phone asks about floor 2\n"
        "    floor 2              prints slides\n"
        "Bob goes down to floor 0 with his watch, and there is mail\n"
        "    floor 0              mail for bob: It is stolen\n"
        "    house                bob's watch #1: 80 steps\n"
        "in the lift her phone hears nothing; floor 2 gets warm, which starts a fan\n"
        "    fan, by MQTT         at 27°\n"
        "it is back, and goes on\n"
        "    phone, by WebSocket  26°, 27°, 26°\n",
    ],
    "four_executions.py": ["share one fingerprint", "the four executions agree", "everything agrees"],
    "eco_world.py": [
        "B has 'x > 10 and y > 10' of A, C has 'x > 10 and y > 10' of A",
        "A hears: B is at (20, 20)\nat B: 1 evaluated, 1 sent\nat C: 1 evaluated, 0 sent\nB has no constraint",
    ],
    "storm.py": [
        "the desk got 19 of 1000, and 981 were shed\nwho wants the latest got rooms [0, 999]",
        "at hall 1000 were looked at for rooms [0, 1, 2], 497 were shed there\nthe desk may have 100 of hall's, so 903",
    ],
    "study.py": ["loud in room 1", "live and Spark agree", "the report is report.html"],
    "event_types.py": ["ie.tcd.Sighting", "the same event for an older sink", "where"],
    "interests.py": [
        "only [5.0, 6.2, 7.3] are sent",
        "did you mean 'sensor'?",
        "no event can pass this interest",
        "wide covers narrow: True",
    ],
    "moving.py": [
        "home: resume: 'ann': node desk: refused: the token is for phone, and not for home\n"
        "desk: subscribe: 'ann': it has moved to phone\n",
        "lab: source 'server' of tcd.mail: it has moved to home, and goes on there; publish there\n",
        "the server has published 60 events, of which the log at home has the last ten",
        "desk has read [1, 2, 3, 4, 5, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30]\n",
        "phone has read [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]",
        "all of it once, in order: True",
    ],
    "named_interest.py": [
        "at hall runs @loud/1 for desk: 3 evaluated, 2 passed",
        "of 3 events 1 would not be heard any more: cat",
        "guard went from version 1 to 2 after {'hall.door/east@hall': 3}\nall nodes know: True",
        "the guard hears bob",
        "and, back at version 1, cat",
    ],
    "service.py": ["heard ['anna', 'cleo']", "not consulted", "anna entered room 4", "nothing heard from the doors"],
    "typed.py": ["alarm: here", "event 1 of stairs: badge 7", "pulled: badge 3"],
    "service_asyncio.py": ["average 80.0", "warned ['boiler', 'boiler']"],
    "names.py": [
        "ie.ucc.door: has not consented\nie.tcd.cs.ActiveBadge of ie.tcd: station@tcd\n",
        "station@tcd (cached)\nheard 10 of 100 sightings, all of room {7}\n",
        "the desk knows names at home and gate, station in tcd\nthe offices know 0 nodes\nstation: withdrawn",
    ],
    "federation.py": [
        "at hall: 1,000 evaluated, 20 crossed",
        "'building.reading/hall@hall': 1000",
        "heard 20 more, all of level {0.99}",
        "left: attic",
        "heard 10 without attic",
    ],
    "reactor_room.py": [
        "a morning of 1,000 sightings: 0 have crossed",
        "Ann was in the reactor room, and is in room 7 now\nAnn was in the reactor room, and is in room 1 now",
        "3 of 1,005 sightings have left their nodes",
        "lost: 0",
    ],
    "equipment_at_night.py": [
        "○── seen ─▶(1)── -> gone without lent ─▶((2))\n22:05 the oscilloscope of the lab has left the building",
        "23:27 the drill of the lab has left",
        "the log says so 2 times; 10 of 11 events would cross",
    ],
    "stock_alert.py": [
        "below the limit: 89, after 95\ntrigger 'floor' does not allow it: no such price\n",
        "below the new limit: 75, 2 turns after it was given\nwithin a minute: from 91 to 75\n",
        "2 alerts, the worst at 75, in 6 trades",
    ],
    "trigger_backtest.py": [
        "721 changes of plant, 4 triggers",
        "above-8 would have told of it 11 times",
        "coarse: 10 messages of 721",
        "live: 8.4",
    ],
    "vehicles.py": [
        "the van is at 30\n",
        "2 l are left\n",
        "operation 2: invoke //depot/fleet/van: it raised ValueError: 60 km are too far with 2 l",
        "and so the driver is still Ada\n",
        "refuelled: True\n//depot/fleet/truck has 30 l\n//depot/fleet/van has 12 l",
    ],
    "replicas.py": [
        "near: 495 m, within 10 m: True\nfar: 402 m, within 200 m: True\nof 500 updates 47 were told, to both together",
        "at 15 m/s, four seconds later it is taken to be at 560 m\nas the link is, near: within 10 m",
    ],
    "sharing.py": [
        "in colour: attic, 50 s\nquickest: hall, 20 s\na large one: 'ink' of node 'attic' has failed: ValueError",
        "in colour: nobody any more, since the attic is closed",
    ],
    "workers.py": [
        "20 orders of more than 10, each packed once: True\npacked while the first rests: 8\n",
        "what the first had in hand went to others, marked: True",
    ],
    "separation.py": [
        "too close: 116 and 185, 69 miles apart\nfired 1 time, and is known not to hold now: True\nof 360 changes",
    ],
    "tanks_elsewhere.py": ["made in turn 1\nit is nearly full at 9\nand now 10, after 12 turns"],
    "thermostat.py": [
        "update //hall/heating: step: expected 1 to 30, found 0\n12 readings in 120 minutes; now 19.3 degrees\n",
        "minute 10: still 18.9 degrees, though it heats",
    ],
    "tanks.py": [
        "raven and bison meet among the mines at (98, 79)\na new minefield, from event 7\nrhino and badger meet",
        "2 meetings in 14 moves",
    ],
    "silent_sensor.py": [
        "after 60 s: nothing from the boiler since it said 2\nand then nothing from pump and valve",
        "the boiler once more, certain: True",
    ],
    "tailgating.py": [
        "Bob came in behind Ann at door 1\nten seconds from event 7 on\nHal came in behind Gus",
        "9 passages, 8 of interest, 3 matches",
    ],
    "measuring.py": ["Running it on one event", "evaluate: ", "comparisons"],
    "log.py": [
        "nothing of that is lost: True",
        "the sequence goes on: True",
        "the last 10 events above 0.99",
        ": sound",
        "those are all above 0.9: True",
    ],
    "pattern_stream.py": ["left open: attic", "as over the log at rest: True"],
    "spark_stream.py": ["a batch of all of them: 200", "published as alarms: 18", "the same query again: 19"],
    "ingest.py": ["quarantined                 4", "monday.csv, line 5: temperature", "in the log: {"],
    "declarative_pipeline.py": [
        "flows completed: archived, falls, frost, live, publish, quarantine, readings, savings",
        "8 records in the quarantine, 48 taken",
        "published to weather.archive in the log: 48 events",
        "together 26 of 59 events cross",
    ],
    "pattern_restart.py": [
        "killed after two failures of machine 7\nthe factory goes on",
        "machine 7 has failed three times, from 1 to 4\nmachine 8 has failed three times, from 3 to 8\neach once: True",
    ],
    "durable.py": ["the archive was killed while it handled order 200", "each once and in order: True"],
    "dispatching.py": ["slow sinks: stuck", "broken is paused with 1 event waiting", "['fire', 'post', 'tea']"],
}


# Those that tests/spark/test_examples.py runs, in the session of all tests.
SPARK = ("study.py", "four_executions.py", "ingest.py", "pattern_stream.py", "spark_stream.py")
# Those that others run.
PARTS = ("building_devices.py", "building_floors.py", "building_outside.py")
# Those that run one after the other in one process, which loads everything once.
PLAIN = (
    "backtest.py",
    "dispatching.py",
    "eco_world.py",
    "event_types.py",
    "interests.py",
    "replicas.py",
    "separation.py",
    "service.py",
    "sharing.py",
    "service_asyncio.py",
    "tanks_elsewhere.py",
    "thermostat.py",
    "trigger_backtest.py",
    "typed.py",
    "vehicles.py",
    "workers.py",
)
# Each logs as it would by itself: one that has the log say nothing hides no traceback of another.
RUN = """
import logging, runpy, sys
for given in sys.argv[1:]:
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("headwater").setLevel(logging.NOTSET)
    sys.argv = given.split("|")
    sys.stdout.write(f"\\n>>>>{sys.argv[0]}\\n")
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    sys.stdout.flush()
"""


PIPELINE = "declarative_pipeline.py"
# A server of Spark's, which a pipeline starts, takes a port of its own: two on one machine do not meet.
OWN_PORT = {"SPARK_TESTING": "1"}
GUARD = 600.0  # seconds, on machines that do other work


def run(*arguments: str, more: Mapping[str, str] | None = None) -> str:
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", *arguments]
    env = {**os.environ, **(more or {})}
    return output(subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False, env=env))


def output(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    assert "Traceback" not in ran.stderr
    return ran.stdout


@cache
def in_one(names: tuple[str, ...]) -> dict[str, str]:
    """What these examples say that run one after the other in one process."""
    given = ["|".join([str(FOLDER / name), *ARGUMENTS.get(name, [])]) for name in names]
    parts = run("-c", RUN, *given).split("\n>>>>")[1:]
    return {Path(part.partition("\n")[0]).name: part.partition("\n")[2] for part in parts}


def check(name: str, said: str) -> None:
    for promise in PROMISES[name]:
        assert promise in said, said


@pytest.mark.timeout(660)
@pytest.mark.parametrize("name", PLAIN)
def test_example_without_processes_runs(name: str) -> None:
    check(name, in_one(PLAIN)[name])


@pytest.mark.timeout(660)
@pytest.mark.parametrize(
    "name", [path.name for path in EXAMPLES if path.name not in (*SPARK, *PLAIN, *PARTS, PIPELINE)]
)
def test_example_runs(name: str) -> None:
    command = [sys.executable, str(FOLDER / name), *ARGUMENTS.get(name, [])]
    check(name, output(nursery.run(command, capture_output=True, text=True, timeout=GUARD)))


@pytest.mark.timeout(660)
def test_a_pipeline_runs() -> None:
    check(PIPELINE, run(str(FOLDER / PIPELINE), more=OWN_PORT))
