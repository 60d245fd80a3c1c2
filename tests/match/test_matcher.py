"""The matcher by its words: what it takes, what it says of itself, and what it does with odd input."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import ExecutionError
from headwater.interest import Interest, as_event_type
from headwater.ir.interp import Fault
from headwater.match import Matcher, new_totals
from headwater.native.program import Native
from headwater.types import EventType, event_type
from headwater.types import model as m

READING = as_event_type("level: f64, network: text, zone: i32?, note: text?")


def reading(**fields: Any) -> bytes:
    return READING.encode({"level": 0.5, "network": "a", "zone": 1, "note": None} | fields)


def on(text: str, type: EventType = READING, **params: object) -> Interest:
    return Interest(text, type, params=params)


def test_payloads_are_handed_out() -> None:
    matcher, mine = Matcher(READING), object()
    matcher.add(mine, on("level > 0.2"))
    matcher.add("other", on("level > 0.9"))
    matching = matcher.snapshot()
    assert matching.match(reading()) == [mine]
    assert matching.probe(reading(level=0.1)) == ()
    assert sorted(map(str, matching.match(memoryview(reading(level=1.0))))) == sorted(map(str, [mine, "other"]))
    assert len(matching) == len(matcher) == 2
    with pytest.raises(TypeError):
        matching.match(3.5)


def test_nothing_to_match() -> None:
    matching = Matcher(READING).snapshot()
    assert matching.match(reading()) == () == matching.match(b"")
    assert matching.batch(READING.to_arrow([])) == []


def test_one_payload_may_stand_for_several_entries() -> None:
    matcher = Matcher(READING)
    matcher.add_many([("same", on("level > 0")), ("same", on("level > 0.1"))])
    assert matcher.snapshot().match(reading()) == ["same", "same"]


def test_what_it_takes() -> None:
    matcher = Matcher(READING)
    assert matcher.takes(on("level > 0.5"))
    other = as_event_type("level: f64")
    refused = [
        on("level > 0.5", other),
        on("meta.seq > 3"),
        Interest("{ static int n = 0; n++; return n > 3; }", READING),
        Interest("{ output.level = input.level; return 1; }", READING, output="level: f64"),
        Interest("{ int n = 0; while (n < 1000000) { n++; } return 1; }", READING),
    ]
    for interest in refused:
        assert not matcher.takes(interest)
        with pytest.raises(ValueError, match="stateless filter"):
            matcher.add("x", interest)
    assert len(matcher) == 0
    with pytest.raises(ValueError, match="scan"):
        Matcher(READING, plan="quick")  # type: ignore[arg-type]


def test_parameters_are_constants() -> None:
    matcher = Matcher(READING)
    for limit in (0.2, 0.4, 0.6):
        matcher.add(limit, on("level > :limit and network in :nets", limit=limit, nets={"a", "b"}))
    assert sorted(matcher.snapshot().match(reading())) == [0.2, 0.4]
    assert matcher.snapshot().match(reading(network="c")) == ()


def test_equal_native_code_is_shared() -> None:
    """And is asked at most once for an event: it counts what it is asked."""
    matcher = Matcher(READING)
    for n in range(10):
        matcher.add(n, on(f"level * 2 > 0.5 and zone >= {n}"))
    matching = matcher.snapshot()
    assert sorted(matching.match(reading(zone=4))) == [0, 1, 2, 3, 4]
    (native,) = matching.native
    assert native.counts.evaluated <= 1


def test_machine_code_takes_over() -> None:
    matcher = Matcher(READING)
    key = matcher.add("x", on("level * zone > 1.0 or network = 'z'"))
    matching = matcher.snapshot()
    records = [reading(level=0.1 * n, zone=n % 7 or None, network="az"[n % 2]) for n in range(40)]
    before = [matching.match(record) for record in records]
    (native,) = matching.native
    native.wait(60)
    assert [matching.match(record) for record in records] == before
    assert [matching.match(record) for record in records] == before  # the first call made the change
    assert native.counts.evaluated <= 2 * len(records)  # the kernel calls machine code by itself
    undecided = sum(on("level * zone > 1.0 or network = 'z'").interpret(r).status == 2 for r in records)
    assert matcher.counts(key) == (3 * undecided, {})


def test_malformed_records_leave_everything_undecided() -> None:
    matcher = Matcher(READING)
    keys = [matcher.add(text, on(text)) for text in ("level > 0", "network = 'a'", "level * 2 > 0", "note = 'b'")]
    gone = matcher.add("gone", on("level > 0"))
    matcher.snapshot()
    matcher.remove(gone)
    matching = matcher.snapshot()
    good = bytearray(reading(note="b"))
    assert len(matching.match(bytes(good))) == 4
    for n, record in enumerate((b"", bytes(good[:-8]), b"x" + bytes(good[1:]), bytes(len(good)))):
        assert matching.probe(record) == ()
        assert matching.match(record) == ()
        for key in keys:
            assert matcher.counts(key) == (n + 1, {Fault.MALFORMED: n + 1})


@pytest.mark.parametrize("exact", [0, 100])
def test_a_text_outside_the_record_concerns_those_who_ask_for_it(exact: int) -> None:
    """It is as good as missing; that it is a fault is for those to count that cannot do without it."""
    matcher, bad = Matcher(READING, exact_undecided=exact), {Fault.MALFORMED: 1}
    expected: dict[str, tuple[int, dict[Fault, int]]] = {
        "level > 0": (0, {}),
        "network = 'a'": (1, bad),
        "network in ('a', 'b') and level > 0": (1, bad),
        "not (network in ('a', 'b')) and network != 'c'": (1, bad),
        "network > 'a' and note = 'b'": (1, bad),
        "network = 'a' and level < 0": (0, bad),
        "note = 'b' and zone = 1": (0, {}),
        "zone = 2": (0, {}),
    }
    keys = {text: matcher.add(text, on(text)) for text in expected}
    gone = matcher.add("gone", on("network = 'a'"))
    matcher.snapshot()
    matcher.remove(gone)
    wild = bytearray(reading(note="b"))
    offset = READING.layout.slots["network"].offset + 16
    wild[offset : offset + 4] = b"\xff\xff\xff\x7f"
    totals = new_totals()
    matching = matcher.snapshot()
    assert sorted(matching.probe(bytes(wild))) == ["level > 0", "note = 'b' and zone = 1"]
    assert sorted(matching.counting_in(totals)(bytes(wild))) == ["level > 0", "note = 'b' and zone = 1"]
    assert {text: matcher.counts(key) for text, key in keys.items()} == expected
    assert totals.tolist() == [4, 0, 0, 0, 0, 5]


def test_faults_are_counted_for_each_entry() -> None:
    matcher = Matcher(READING)
    first = matcher.add(1, on("10 div zone > 2"))
    matcher.snapshot().match(reading(zone=0))
    second = matcher.add(2, on("10 div zone > 2"))
    for _ in range(3):
        matcher.snapshot().match(reading(zone=0))
    assert matcher.counts(first) == (4, {Fault.DIVISION: 4})
    assert matcher.counts(second) == (3, {Fault.DIVISION: 3})
    matcher.snapshot().batch(READING.to_arrow([READING.decode(reading(zone=z)) for z in (0, 1, 0, None)]))
    assert matcher.counts(second) == (6, {Fault.DIVISION: 5})
    assert matcher.remove(first) == (7, {Fault.DIVISION: 6})


def test_a_guarded_fault_stays_guarded() -> None:
    """The second term alone would divide by zero: it is not torn from the first."""
    matcher = Matcher(READING)
    key = matcher.add("x", on("zone != 0 and 10 div zone > 2"))
    assert matcher.snapshot().match(reading(zone=0)) == ()
    assert matcher.snapshot().match(reading(zone=3)) == ["x"]
    assert matcher.counts(key) == (0, {})


def test_it_says_how_entries_are_found() -> None:
    matcher = Matcher(READING)
    keys = [matcher.add(n, on(f"network = 'net{n}' and level > 0.5")) for n in range(100)]
    ranged = matcher.add("r", on("level > 0.5 and zone < 7"))
    code = matcher.add("c", on("level * 2 > 1"))
    both = matcher.add("b", on("level > 0.5 and level * 2 > 1"))
    every = matcher.add("e", on("true"))
    assert matcher.explain(keys[0]) == "waits for the next snapshot"
    matcher.snapshot()
    assert {matcher.explain(key) for key in keys} == {"equality on network"}
    assert matcher.explain(ranged) == "range on level, zone"
    assert matcher.explain(code) == "native code, each event"
    assert matcher.explain(both) == "range on level; then native code"
    assert matcher.explain(every) == "passes every event"
    (plan,) = matcher.plan
    assert (plan.entries, plan.keyed, plan.always, plan.swept) == (104, 100, 2, 2)
    scanning = Matcher(READING, plan="scan")
    key = scanning.add("x", on("level > 0.5"))
    scanning.snapshot()
    assert scanning.explain(key) == "scan: verified for each event"
    with pytest.raises(KeyError):
        matcher.explain(12345)


def test_the_plan_follows_what_is_measured() -> None:
    """Where nearly everything matches, entries are verified in order instead."""
    matcher = Matcher(READING)
    matcher.add_many((n, on(f"level > {n / 1000}")) for n in range(100))
    matching = matcher.snapshot()
    assert matcher.snapshot() is matching
    for _ in range(300):
        assert len(matching.match(reading())) == 100
    again = matcher.snapshot()
    assert again is not matching and matcher.plan[0].scan
    assert sorted(again.match(reading(level=0.0105))) == list(range(11))
    for _ in range(600):
        assert again.match(reading(level=-1.0)) == ()
    assert matcher.snapshot() is not again and not matcher.plan[0].scan


@pytest.mark.parametrize("plan", ["auto", "scan"])
def test_beyond_the_limit_undecided_is_not_told_apart(plan: Any) -> None:
    matcher = Matcher(READING, exact_undecided=2, plan=plan)
    optional = [matcher.add(n, on(f"zone = {n}")) for n in range(2)]
    required = matcher.add("r", on("level > 0.9"))
    assert matcher.snapshot().exact
    matcher.snapshot().match(reading(zone=None))
    optional.append(matcher.add(2, on("zone = 2")))
    optional.append(matcher.add(3, on("zone != 2 and level * 2 > 0 and zone * level > 0")))
    assert not matcher.snapshot().exact
    matcher.snapshot().match(reading(zone=None))
    matcher.snapshot().batch(READING.to_arrow([READING.decode(reading(zone=None))] * 4))
    assert matcher.snapshot().match(reading(zone=2)) == [2]
    assert [matcher.counts(key)[0] for key in optional] == [1, 1, 0, 0]
    assert [matcher.unsplit(key) for key in (*optional, required)] == [6, 6, 6, 6, 0]
    matcher.remove(optional[0])
    matcher.remove(optional[1])
    assert matcher.snapshot().exact


def test_ranges_are_checked() -> None:
    matcher = Matcher(READING)
    rows: dict[str, Any] = {"owners": [0], "which": [0], "low": [1.0], "high": [2.0]}
    with pytest.raises(ValueError, match="holds a number"):
        matcher.add_ranges(["x"], ["network"], **rows)
    with pytest.raises(ValueError, match="holds a number"):
        matcher.add_ranges(["x"], ["nothing"], **rows)
    with pytest.raises(ValueError, match="one length"):
        matcher.add_ranges(["x"], ["level"], **rows | {"low": [1.0, 2.0]})
    with pytest.raises(ValueError, match="NaN"):
        matcher.add_ranges(["x"], ["level"], **rows | {"low": [float("nan")]})
    (key,) = matcher.add_ranges(["x"], ["level"], **rows)
    assert matcher.snapshot().match(reading(level=1.0)) == ["x"]
    matcher.remove(key)
    assert matcher.snapshot().match(reading(level=1.0)) == ()


# ── batches ──


def test_batches_that_need_to_be_brought_to_the_schema() -> None:
    matcher = Matcher(READING)
    matcher.add("x", on("zone = 2 and network = 'b'"))
    matching = matcher.snapshot()
    columns = {"zone": pa.array([2, 2, None], pa.int8()), "network": pa.array(["b", "a", "b"], pa.large_string())}
    batch = pa.record_batch(columns | {"level": pa.array([0.0] * 3, pa.float32()), "more": pa.array([1, 2, 3])})
    ((payload, rows),) = matching.batch(batch)
    assert payload == "x" and rows.tolist() == [0] and rows.dtype == np.int64
    with pytest.raises(ExecutionError, match="RecordBatch"):
        matching.batch([1, 2])


def test_slices_and_nested_columns() -> None:
    colour = m.Enum("Colour", (("RED", 5), ("BLUE", -3)))
    inner = m.Record("Inner", (m.Field("x", m.I16, True), m.Field("on", m.BOOL), m.Field("c", colour)))
    type = event_type(m.Record("Outer", (m.Field("a", inner, True), m.Field("b", m.BOOL, True))))
    raws = [
        {"a": None if n % 5 == 0 else {"x": n % 4 or None, "on": n % 3 == 0, "c": 5 if n % 2 else -3},
         "b": None if n % 7 == 0 else n % 2 == 0}
        for n in range(60)
    ]  # fmt: skip
    texts = ["a.x = 3", "a.on", "not a.on and b", "a.c = 'RED'", "a is null", "a.x is null", "a.x != 2", "b"]
    matcher = Matcher(type)
    for text in texts:
        matcher.add(text, on(text, type))
    matching = matcher.snapshot()
    batch = type.to_arrow(raws)
    for start, size in ((0, 60), (3, 40), (17, 9), (59, 1), (5, 0)):
        found = {text: rows.tolist() for text, rows in matching.batch(batch.slice(start, size))}
        for text in texts:
            part = raws[start : start + size]
            wanted = [n for n, raw in enumerate(part) if on(text, type).interpret(raw).passed]
            assert found.get(text, []) == wanted, text


def test_large_batches_with_many_hits() -> None:
    matcher = Matcher(READING)
    matcher.add_many((n, on(f"level >= {n / 100}")) for n in range(100))
    rng = np.random.default_rng(1)
    levels = rng.random(20_000).round(2)
    batch = pa.record_batch({"level": levels, "network": ["a"] * len(levels)})
    found = dict(matcher.snapshot().batch(batch))
    for n in range(100):
        assert np.array_equal(found.get(n, np.zeros(0, int)), np.flatnonzero(levels >= n / 100))


# ── threads ──


def test_matching_while_entries_come_and_go() -> None:
    """Two threads match, each with the latest matching; a third one changes entries. Nothing is lost or made up."""
    matcher, lock = Matcher(READING), threading.Lock()
    keys = {matcher.add(n, on(f"zone = {n} or level * 2 > {n}.5")): n for n in range(3)}
    keys |= {matcher.add(n, on(f"network = 'n{n % 50}' and zone >= 0")): n for n in range(3, 200)}
    state = {"matching": matcher.snapshot(), "done": False}
    rounds, problems = 400, list[str]()
    lacking = reading(zone=None, network="n7", level=-1.0)
    wanted = {n for n in range(3, 200) if n % 50 == 7}

    def match() -> None:
        for _ in range(rounds):
            matching = state["matching"]
            if matching.match(lacking):  # type: ignore[attr-defined]
                problems.append("found something for an event that lacks its field")
            found = set(matching.probe(reading(zone=900, network="n7", level=-1.0)))  # type: ignore[attr-defined]
            if {n for n in found if n < 200} != wanted:
                problems.append(f"found {found}")

    def change() -> None:
        number = 1000
        while not state["done"]:
            with lock:
                made = [matcher.add(number + n, on(f"network = 'n{n}' and zone < {number}")) for n in range(20)]
                state["matching"] = matcher.snapshot()
                for key in made:
                    matcher.remove(key)
                state["matching"] = matcher.snapshot()
            number += 20

    threads = [threading.Thread(target=match) for _ in range(2)]
    changer = threading.Thread(target=change)
    for thread in (*threads, changer):
        thread.start()
    for thread in threads:
        thread.join()
    state["done"] = True
    changer.join()
    assert not problems
    for key, n in keys.items():
        interest = on(f"zone = {n} or level * 2 > {n}.5") if n < 3 else on(f"network = 'n{n % 50}' and zone >= 0")
        undecided = interest.interpret(lacking).status == 2
        assert matcher.counts(key) == (2 * rounds * undecided, {})


def test_an_interrupt_comes_through() -> None:
    """Before there is machine code, Python answers the kernel, and may be interrupted meanwhile."""
    matcher = Matcher(READING)
    matcher.add("x", on("level * 3 > 1.0"))
    matching = matcher.snapshot()

    def interrupt(frame: Any, what: str, _: object) -> None:
        if what == "call" and frame.f_code is Native.run.__code__:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            matching.match(reading())
    finally:
        sys.setprofile(None)
    assert matching.match(reading()) == ["x"]


def test_who_counts_by_itself_is_read_by_itself() -> None:
    matcher = Matcher(READING)
    key = matcher.add("zone", on("zone = 1"))
    one, two, totals = matcher.ledger(), matcher.ledger(), new_totals()
    matching = matcher.snapshot()
    for ledger, events in ((one, 3), (two, 5)):
        for _ in range(events):
            matching.counting_in(totals, ledger)(reading(zone=None))
    assert matcher.counts(key) == (0, {}) and matcher.counts(key, [one]) == (3, {})
    assert matcher.counts(key, [one, two]) == (8, {}) and totals[0] == 8
    before = one.copy()
    matching.counting_in(totals, one)(reading(zone=None))
    assert matcher.counts(key, [before]) == (3, {}) and matcher.counts(key, [one]) == (4, {})
    matcher.absorb(one)
    assert matcher.counts(key) == (4, {}) and matcher.counts(key, [two]) == (9, {})


def test_a_slot_that_is_used_again_begins_with_nothing() -> None:
    matcher, totals = Matcher(READING), new_totals()
    ledger = matcher.ledger()
    for _ in range(4):
        key = matcher.add("zone", on("zone = 1"))
        matching = matcher.snapshot()
        matching.counting_in(totals, ledger)(reading(zone=None))
        assert matcher.counts(key, [ledger]) == (1, {})
        matcher.remove(key)
        del matching


def test_a_thread_keeps_the_table_it_counts_in() -> None:
    """Threads share what a matching knows of batches: what one of them is led to lives until it is done."""
    matcher = Matcher(READING)
    matcher.add("zone", on("zone = 1"))
    one, two, totals = matcher.ledger(), matcher.ledger(), new_totals()
    matching = matcher.snapshot()
    matching.spans(READING.to_arrow([{"level": 1.0, "network": "a"}]), totals, one)
    rows = matching._rows
    assert rows is not None
    control, table = rows._control_for(totals, one), weakref.ref(one.table())
    one._covers = -1  # as if there were a block more: the next matching gets another table
    one.table()
    rows._control_for(totals, two)  # another thread's source
    assert table() is not None
    del control
    assert table() is None
