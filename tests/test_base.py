"""What `import headwater` loads, what the plain installation can do, and what it says of what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater import Event, Network, Node, event_type, f64, u32
from tests.base import ARROW, FEDERATION, GUARD, end, run, start

HEAVY = ("pyarrow", "numpy", "llvmlite", "zenoh", "cryptography", "sqlglot", "pycparser", "pandas", "pyspark")
LOADED = f"print(json.dumps([name for name in {HEAVY!r} if sys.modules.get(name)]))"
SIGHTINGS = """
import json, sys, threading
from headwater import Event, Node, f64, u32

class Sighting(Event):
    badge: u32
    level: f64
    network: str
"""
LOCAL = (
    SIGHTINGS
    + """
found, own = [], []
with Node("lab") as node:
    sightings = node.channel("orl.sighting", Sighting)
    sightings.subscribe(found.append, "level > 0.5 and network == 'a'")  # by the table
    sightings.subscribe(own.append, "level * 2 > badge and length(network) = 1")  # by code of its own
    with sightings.source() as source:
        for number in range(200):
            source.publish(badge=number % 3, level=number / 100, network="ab"[number % 2])
        source.publish_many([Sighting(badge=7, level=9.0, network="a")] * 3)
    assert len(found) == 77 and len(own) == 152, (len(found), len(own))
"""
)
FEDERATED = (
    SIGHTINGS
    + """
found, done = [], threading.Event()

def took(event):
    found.append(event.badge)
    if len(found) == 50:
        done.set()

with Node("lab", listen="tcp/127.0.0.1:0") as lab, Node("desk", connect=lab.endpoints) as desk:
    source = lab.channel("orl.sighting", Sighting).source()
    desk.channel("orl.sighting", Sighting).subscribe(took, "level * 2 > badge and length(network) = 1")
    assert desk.ready(60)
    for number in range(100):
        source.publish(badge=number, level=float(number if number % 2 else 0), network="a")
    assert done.wait(60), found
"""
)


def test_importing_headwater_loads_nothing_heavy() -> None:
    assert run(f"import json, headwater\n{LOADED}") == []
    assert run(f"import json\nfrom headwater import *\n{LOADED}", without=FEDERATION) == []
    assert run(f"import json, headwater.cli\n{LOADED}") == []


def test_every_name_is_found_where_the_table_says() -> None:
    assert {*headwater._HOMES, "__version__"} == set(headwater.__all__)
    modules = {path.stem for path in Path(headwater.__file__).parent.iterdir()}
    assert not modules & set(headwater.__all__), "a module that is loaded would hide the name"
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None and name in dir(headwater)
    with pytest.raises(AttributeError, match="'headwater' has no attribute 'Nodes'"):
        _ = headwater.Nodes


def test_packages_and_modules_are_found_by_their_names() -> None:
    program = """
    import json, headwater
    other = [hasattr(headwater, name) for name in ("no_such_name", "_no_such_name", "__wrapped__")]
    print(json.dumps([headwater.types.__name__, headwater.federation.__name__, headwater.explain.__module__, other]))
    """
    assert run(program) == ["headwater.types", "headwater.federation", "headwater.explanation", [False] * 3]


def test_whoever_looks_at_all_names_finds_those_that_are_there() -> None:
    program = "import inspect, json, headwater\nprint(json.dumps([name for name, _ in inspect.getmembers(headwater)]))"
    found = set(run(program, without=FEDERATION))
    assert "Node" in found and "Interest" in found and "Network" not in found


def test_a_stand_in_for_a_package_is_taken_for_it() -> None:
    program = """
    import json, sys, types
    sys.modules["zenoh"] = types.SimpleNamespace()  # as tools that make documentation do
    from headwater import extras
    print(json.dumps(extras.installed("federation")))
    """
    assert run(program) is True


def test_a_program_that_publishes_and_subscribes_loads_what_it_needs() -> None:
    assert set(run(f"{LOCAL}\n{LOADED}")) == {"numpy", "llvmlite", "sqlglot"}


def test_a_federation_loads_no_arrow() -> None:
    assert set(run(f"{FEDERATED}\n{LOADED}")) == {"numpy", "llvmlite", "sqlglot", "zenoh", "cryptography"}


def test_a_worker_of_spark_loads_what_its_module_needs() -> None:
    rooms = ("channel.node", "federation", "lang.predicate", "native", "patterns")
    seen = f"print(json.dumps([room for room in {rooms!r} if 'headwater.' + room in sys.modules]))"
    assert run(f"import json, sys, headwater.spark, headwater.spark.live.options\n{seen}") == []


def test_the_base_publishes_and_subscribes() -> None:
    assert run(f"{LOCAL}\nprint(json.dumps(len(found)))", without=ARROW + FEDERATION) == 77


def test_nodes_without_arrow_work_together() -> None:
    found = run(f"{FEDERATED}\nprint(json.dumps(found))", without=ARROW)
    assert sorted(found) == list(range(1, 100, 2))


def test_what_the_base_lacks_is_named_with_the_way_to_get_it() -> None:
    program = (
        SIGHTINGS
        + """
import headwater
from headwater import Interest, Log, event_type
from headwater.errors import MissingExtra

one = Sighting(badge=1, level=1.0, network="a")
node = Node("lab")
channel = node.channel("orl.sighting", Sighting)
calls = {
    "listen": lambda: Node("desk", listen="tcp/127.0.0.1:0"),
    "connect": lambda: Node("desk", connect="tcp/127.0.0.1:7447"),
    "Network": lambda: headwater.Network,
    "Security": lambda: headwater.security.Security,
    "LogClient": lambda: headwater.logs.LogClient,
    "log": lambda: Node("desk", log="events"),
    "batch": lambda: channel.subscribe(print, batch=True),
    "get_batch": lambda: channel.subscribe().get_batch(),
    "schema": lambda: event_type(Sighting).schema,
    "to_arrow": lambda: event_type(Sighting).to_arrow([one]),
}
said = {}
for name, call in calls.items():
    try:
        call()
    except MissingExtra as error:
        assert isinstance(error, ImportError)
        said[name] = [error.extra, str(error)]
node.close()
from headwater import *  # what there is
assert Node and "Network" not in globals()
print(json.dumps(said))
"""
    )
    said = run(program, without=ARROW + FEDERATION)
    extras = {name: extra for name, (extra, _) in said.items()}
    assert extras == {
        **dict.fromkeys(("listen", "connect", "Network", "Security", "LogClient"), "federation"),
        **dict.fromkeys(("log", "batch", "get_batch", "schema", "to_arrow"), "arrow"),
    }
    for extra, text in said.values():
        package = "zenoh and cryptography" if extra == "federation" else "pyarrow"
        assert package in text and text.endswith(f": pip install 'headwater[{extra}]'"), text


class Sighting(Event):
    badge: u32
    level: f64
    network: str


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_rows_of_a_batch_reach_a_node_without_arrow_as_records(compress: str) -> None:
    """Whoever has Arrow sends columns and compresses them; a node without says so, and gets plain records."""
    program = (
        SIGHTINGS
        + """
from headwater import Interest

found, halves, done = [], [], threading.Barrier(3)
half = "{ output.badge = input.badge; output.half = input.level / 2.0; return input.level > 0.5; }"

def took(into):
    def take(event):
        into.append(event.badge)
        if event.badge == 9_998:
            threading.Thread(target=done.wait, args=(120,)).start()
    return take

with Node("desk", connect=sys.stdin.readline().strip()) as desk:
    sightings = desk.channel("orl.sighting", Sighting)
    sightings.subscribe(took(found), "level > 0.5")
    sightings.subscribe(took(halves), Interest(half, Sighting, output="badge: u32, half: f64"))
    assert desk.ready(60)
    print("ready", flush=True)
    done.wait(120)
print(json.dumps([found, halves]))
"""
    )
    with Node("lab", network=Network(listen="tcp/127.0.0.1:0", compress=compress)) as lab:
        source = lab.channel("orl.sighting", Sighting).source()
        process = start(program, without=ARROW)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{lab.endpoints[0]}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=GUARD)[1]
        rows = [Sighting(badge=number, level=number % 3 / 2, network="x" * 40) for number in range(10_000)]
        for begin in range(0, 10_000, 5_000):
            source.publish_many(event_type(Sighting).to_arrow(rows[begin : begin + 5_000]))
        found, halves = end(process)
    assert found == halves == [row.badge for row in rows if row.level > 0.5]
