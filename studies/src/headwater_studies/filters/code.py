"""Moved code: how long the two programs of ECho take to become machine code and to run, beside sending the event."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from headwater import native
from headwater.interest import Interest
from headwater.native.record import RecordProgram, record_code
from headwater.types import event_type
from headwater_studies.filters import c_code
from headwater_studies.filters.breakeven import MODULE, Cost, FilterPair
from headwater_studies.filters.c_code import Compiled
from headwater_studies.filters.code_tables import FILTER, MEAN, Timed, section
from headwater_studies.fleet.filtering import AVERAGE, COLUMNS, ONE, ROWS, SIMPLE, WIND, Average, Reading, Wind, winds
from headwater_studies.fleet.tcp_c import NoCompiler, compiler, version
from headwater_studies.fleet.worker import Worker
from headwater_studies.harness.bench import Bench, Found, middle, versions
from headwater_studies.harness.benchmark import times
from headwater_studies.harness.result import Ratio

PYTHON_FILTER = "lambda e: e.level > 0.5"
PYTHON_MEAN = """
def average(e, out):
    total = 0.0
    for i in range(37):
        for j in range(253):
            total = total + e.wind[j][i]
    out.mean = total / (37 * 253)
    return True
"""
NOTATIONS = (
    (FILTER, "predicate", "level > 0.5"),
    (FILTER, "E-Code", SIMPLE),
    (FILTER, "Python", PYTHON_FILTER),
    (MEAN, "E-Code", AVERAGE),
    (MEAN, "Python", PYTHON_MEAN),
)
BATCH_ROWS = {FILTER: (100_000, 8_000), MEAN: (100, 8)}  # below what is split over threads
CALLS = {FILTER: (1_000_000, 20_000), MEAN: (1_000, 20)}
MADE = {FILTER: (15, 1), MEAN: (5, 1)}  # the interpreter is slow with the second
SENT = {ONE: (200_000, 2_000), WIND: (1_600, 16)}
_numbers = itertools.count(1)


def code(bench: Bench) -> Found:
    """From text to machine code, its size and speed, and what sending costs."""
    timed = Timed()
    with_compiler = compiler() is not None
    for number in range(bench.rounds):
        _making(bench, timed)
        bench.say(f"moved code is made, round {number + 1} of {bench.rounds}")
    not_run = {}
    try:
        _made_in_c(bench, timed)
    except NoCompiler as error:
        not_run["the same programs in C"] = str(error)
        with_compiler = False
    for number in range(bench.rounds):
        _running(bench, timed, number, with_compiler)
        bench.say(f"moved code runs, round {number + 1} of {bench.rounds}")
    _sending(bench, timed, *_first(bench, timed))
    _listings(bench, timed, with_compiler)
    found = {"C compiler": version()} if with_compiler else {}
    return Found(
        sections=(section(timed, _repetitions(bench)),),
        ratios=_ratios(timed) if with_compiler else (),
        versions={**versions(), **found},
        not_run=not_run,
        costs=_costs(timed),
    )


def _repetitions(bench: Bench) -> str:
    sent = " and ".join(f"{bench.size(*SENT[kind]):,}" for kind in (ONE, WIND))
    made = " and ".join(str(bench.size(*MADE[program])) for program in (FILTER, MEAN))
    return (
        f"{bench.rounds} rounds in turn. Making: the median of {made} of each in each round, each with another "
        f"constant. Running: the least of {bench.size(7, 2)} runs in each round, machine code made and loaded anew in "
        f"each. Sending: {sent} events in each round. Medians of the rounds, and the least to the most of them"
    )


# ── from text to machine code ──


def _anew(text: str) -> str:
    """The same program with another constant, so that nothing is answered from a cache."""
    old = "0.5" if "0.5" in text else "0.0"
    return text.replace(old, f"{old}{next(_numbers):07d}", 1)


def _interest(program: str, text: str) -> Interest:
    return Interest(text, Reading) if program == FILTER else Interest(text, Wind, output=Average)


def _records() -> dict[str, bytes]:
    reading = Reading(0.75, 1.0, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5)
    return {FILTER: event_type(Reading).encode(reading), MEAN: event_type(Wind).encode(winds()[3])}


def _making(bench: Bench, timed: Timed) -> None:
    records = _records()
    for program, notation, text in NOTATIONS:
        parts: list[list[float]] = [[], [], [], []]
        for _ in range(bench.size(*MADE[program])):
            start = perf_counter()
            interest = _interest(program, _anew(text))
            checked = perf_counter()
            made = record_code(interest.executed)
            end = perf_counter()
            parts[0].append(checked - start)
            parts[1].append(end - checked)
            parts[2].append(made.code.timing.total)
            start = perf_counter()
            running = _interest(program, _anew(text)).native()
            tier, passed = running.tier, running.run(records[program]).passed
            parts[3].append(perf_counter() - start)
            if not passed:
                raise RuntimeError(f"{program} in {notation}: expected that the event passes, found that it does not")
            running.wait()  # the compiler has nothing left to do when the next one is timed
            timed.tiers[program, notation] = tier
        for what, values in zip(("check", "generate", "llvm", "answer"), parts, strict=True):
            timed.add((program, notation, what), middle(values))


def _made_in_c(bench: Bench, timed: Timed) -> None:
    for program, source in ((FILTER, c_code.FILTER), (MEAN, c_code.MEAN)):
        for _ in range(bench.rounds):
            timed.add((program, "C", "generate"), c_code.compile_seconds(bench.folder, source))


def _first(bench: Bench, timed: Timed) -> tuple[Worker, Worker]:
    """In processes that have made no interest before; the last two of them."""
    found: list[Worker] = []
    for _ in range(bench.rounds):
        for each in found:
            each.close()
        found = [bench.start(MODULE), bench.start(MODULE)]
        for worker, program, kind, text in zip(found, (FILTER, MEAN), (ONE, WIND), (SIMPLE, AVERAGE), strict=True):
            for what, seconds in worker.call("first", kind=kind, text=text).items():
                timed.add((program, "first", what), seconds)
    bench.say("the first interests of processes are made")
    return found[0], found[1]


# ── running ──


def _least(function: Callable[[], object], number: int, repeat: int) -> float:
    """Seconds of one call: the least of several runs, since whatever disturbs a run makes it longer."""
    return min(times(function, repeat=repeat, number=number))


def _columns(program: str, n: int) -> tuple[pa.RecordBatch, Any]:
    """The events of a batch, and the column that the filter reads."""
    if program == MEAN:
        events = winds()
        return event_type(Wind).batch_of([events[k % len(events)] for k in range(n)]), None
    level = np.random.default_rng(1999).random(n)
    schema = event_type(Reading).schema
    return pa.RecordBatch.from_arrays([pa.array(level)] * len(schema), schema=schema), level


def _running(bench: Bench, timed: Timed, number: int, with_compiler: bool) -> None:
    """A call of a few cycles depends on where code happens to lie: ours and C's are made and loaded anew each round."""
    in_c = Compiled(bench.folder, number) if with_compiler else None
    for program, text in ((FILTER, SIMPLE), (MEAN, AVERAGE)):
        native.cache.clear()
        interest = _interest(program, text)
        running = interest.native().wait()
        record = _records()[program]
        _from_python(bench, timed, program, running, record)
        _over_batch(bench, timed, program, running, in_c)
        if in_c is not None:
            _from_c(bench, timed, program, RecordProgram(record_code(interest.executed)), record, in_c)


def _over_batch(bench: Bench, timed: Timed, program: str, running: Any, in_c: Compiled | None) -> None:
    n, repeat = bench.size(*BATCH_ROWS[program]), bench.size(7, 2)
    rows, level = _columns(program, n)
    passed = running.batch(rows).counts.passed
    timed.add((program, "batch"), _least(lambda: running.batch(rows), 1, repeat) / n)
    if in_c is None or program == MEAN:
        return
    bits = np.zeros(n // 8, np.uint8)
    at, to = level.ctypes.data, bits.ctypes.data
    if (expected := in_c.rows(at, n, to)) != passed:
        raise RuntimeError(f"expected {expected:,} of {n:,} events to pass, found {passed:,}")
    timed.add((program, "batch in C"), _least(lambda: in_c.rows(at, n, to), 1, repeat) / n)


def _from_c(bench: Bench, timed: Timed, program: str, made: RecordProgram, record: bytes, in_c: Compiled) -> None:
    names, calls = ("simple", "checked") if program == FILTER else ("average",), bench.size(*CALLS[program])
    _same(made.run(record).output, in_c, names, record)
    context = made.context()
    turns: dict[str, Callable[[], int]] = {
        "native": lambda: in_c.call(made.code.address, record, context.address, calls),
        **{name: partial(in_c.call_c, name, record, calls) for name in names},
    }
    least = dict.fromkeys(turns, float("inf"))
    for _ in range(bench.size(7, 2)):
        for name, turn in turns.items():
            least[name] = min(least[name], _least(turn, 1, 1) / calls)
    for name, seconds in least.items():
        timed.add((program, name), seconds)


def _same(output: bytes | None, in_c: Compiled, names: tuple[str, ...], record: bytes) -> None:
    """C must find what we find."""
    for name in names:
        if in_c.call_c(name, record, 1) != 1:
            raise RuntimeError(f"{name} in C: expected that the event passes, found that it does not")
    if output is not None:
        ours = event_type(Average).decode(output).mean
        if in_c.result() != ours:
            raise RuntimeError(f"expected the same average in C, found {in_c.result()} and {ours}")


def _from_python(bench: Bench, timed: Timed, program: str, running: Any, record: bytes) -> None:
    repeat, number = bench.size(7, 2), bench.size(20_000, 200)
    if program == FILTER:
        event = event_type(Reading).decode(record)
        test = running.test
        timed.add((program, "called"), _least(lambda: test(record), number, repeat))
        timed.add((program, "python"), _least(lambda: event.level > 0.5, number, repeat))
        timed.add((program, "loop"), _least(lambda: None, number, repeat))
        return
    wind = event_type(Wind).decode(record).wind
    matrix = np.asarray(wind)

    def loop() -> float:
        total = 0.0
        for i in range(COLUMNS):
            for j in range(ROWS):
                total = total + wind[j][i]
        return total / (COLUMNS * ROWS)

    timed.add((program, "called"), _least(lambda: running.run(record), max(1, number // 200), repeat))
    timed.add((program, "python"), _least(loop, 1, 2))
    timed.add((program, "numpy"), _least(matrix.mean, max(1, number // 200), repeat))


# ── sending ──


def _sending(bench: Bench, timed: Timed, sender: Worker, receiver: Worker) -> None:
    """Everything, to one sink over a direct stream."""
    pair = FilterPair(sender, receiver)
    try:
        for number in range(bench.rounds + 1):
            for kind, program in ((ONE, FILTER), (WIND, MEAN)):
                cost = pair.run(kind, kept=False, n=bench.size(*SENT[kind]))
                if number:
                    _add_cost(timed, program, cost)
        pair.check()
    finally:
        pair.close()
    bench.say("the same events are sent")


def _add_cost(timed: Timed, program: str, cost: Cost) -> None:
    timed.add((program, "send"), cost.sender)
    timed.add((program, "receive"), cost.receiver)
    timed.add((program, "handed"), cost.handed)
    timed.add((program, "sent"), cost.wall)
    timed.add((program, "bytes"), cost.bytes)


# ── instructions ──


def _listings(bench: Bench, timed: Timed, with_compiler: bool) -> None:
    for program, text in ((FILTER, SIMPLE), (MEAN, AVERAGE)):
        ours = native.asm(_interest(program, text).executed)
        timed.listings[program, "ours"] = c_code.function(ours, "run")
        if program == MEAN:
            timed.listings[program, "ours, output"] = c_code.function(ours, "assemble")
    if with_compiler:
        theirs = c_code.listing(bench.folder)
        timed.listings[FILTER, "simple"] = c_code.function(theirs, "simple")
        timed.listings[FILTER, "checked"] = c_code.function(theirs, "checked")
        timed.listings[MEAN, "average"] = c_code.function(theirs, "average")


# ── what it comes to ──


def _ratios(timed: Timed) -> tuple[Ratio, ...]:
    checks = (
        "Ours checks the length and the 16 bytes of the header of every record, since records come from other nodes; "
        "the rest is the same."
    )
    made = [
        Ratio(
            case=case,
            reference=reference,
            ours=tuple(timed.values[program, ours]),
            theirs=tuple(timed.values[program, theirs]),
            kind="seconds",
            why=why,
        )
        for case, reference, program, ours, theirs, why in (
            ("level > 0.5 on one record", "C at -O2 that checks nothing", FILTER, "native", "simple", checks),
            (
                "level > 0.5 on one record",
                "C at -O2 that checks the header too",
                FILTER,
                "native",
                "checked",
                "A call takes a few cycles, and which of the two is ahead depends on where the code happens to lie.",
            ),
            (
                "37×253 average of one record",
                "C at -O2",
                MEAN,
                "native",
                "average",
                "Both wait for one addition after the other; ours also makes the record of the output.",
            ),
            (
                "level > 0.5 on each row of a batch",
                "C at -O2 over the same column",
                FILTER,
                "batch",
                "batch in C",
                "Ours includes finding the column, counting outcomes and making an Arrow array.",
            ),
        )
    ]
    ours, theirs = (len(c_code.instructions(timed.listings[FILTER, name])) for name in ("ours", "checked"))
    made.append(
        Ratio(
            case="instructions of level > 0.5",
            reference="C at -O2 that checks the header too",
            ours=(float(ours),),
            theirs=(float(theirs),),
            kind="count",
            why="Both check the header; ours with other instructions.",
        )
    )
    return tuple(made)


def _costs(timed: Timed) -> dict[str, float]:
    """`evaluate`: one record in machine code; without a C compiler to call it from, called from Python."""
    evaluate = timed.middle(FILTER, "native") if (FILTER, "native") in timed.values else timed.middle(FILTER, "called")
    return {
        "evaluate": evaluate,
        "evaluate_batch": timed.middle(FILTER, "batch"),
        "compile": timed.middle(FILTER, "E-Code", "check") + timed.middle(FILTER, "E-Code", "generate"),
        "send_event": timed.middle(FILTER, "send"),
        "receive_event": timed.middle(FILTER, "receive"),
    }
