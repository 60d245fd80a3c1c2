"""What the study of moved code shows: making it, running it, its instructions, and sending instead."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import zip_longest

from headwater.native.engine import cpu
from headwater.study.report.html import Notes, Text
from headwater.study.report.table import Column, Row, Table, Value, time
from headwater_studies.filters.breakeven import ECHO_AVERAGE, ECHO_FILTER, ECHO_SEND, ECHO_SEND_LARGE
from headwater_studies.filters.c_code import instructions, longest
from headwater_studies.harness.bench import between, middle
from headwater_studies.harness.result import Section, content

FILTER, MEAN = "level > 0.5", "37×253 average"
COMMAND = "headwater study filters --part code"

# ECho, 3.3 and 4 (optimisation): a Sun Ultra 1/140.
ECHO_MAKE = {FILTER: 2.3e-3, MEAN: 7e-3}
ECHO_RUN = {FILTER: ECHO_FILTER, MEAN: ECHO_AVERAGE}
ECHO_SENDS = {FILTER: ECHO_SEND, MEAN: ECHO_SEND_LARGE}
ECHO_INSTRUCTIONS, ECHO_ENOUGH = 21, 10


@dataclass
class Timed:
    """Figures by what was measured, one for each round; listings of machine code; who answers first."""

    values: dict[tuple[Hashable, ...], list[float]] = field(default_factory=dict)
    tiers: dict[tuple[str, str], str] = field(default_factory=dict)
    listings: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, key: tuple[Hashable, ...], value: float) -> None:
        self.values.setdefault(key, []).append(value)

    def middle(self, *key: Hashable) -> float:
        return middle(self.values[key])

    def spread(self, *key: Hashable) -> str:
        return between(self.values[key], time)


def section(timed: Timed, repetitions: str) -> Section:
    contents = content(
        Text(
            "ECho (3.2) moves two programs to the source: a filter, `level > 0.5`, and an average over 37×253 numbers. "
            "They are written here in E-Code, the subset of C that it uses, and in our other notations. ECho "
            "measured on a Sun Ultra 1/140: compare what a program costs with what sending the event costs on the same "
            "machine, not microseconds with microseconds."
        ),
        _making(timed),
        _first(timed),
        _running(timed),
        _sending(timed),
        _instructions(timed),
        _listing(timed),
        Notes(_notes(timed)),
    )
    return Section(
        key="moved-code",
        title="Moved code: making it, running it, and sending instead",
        contents=contents,
        command=COMMAND,
        repetitions=repetitions,
    )


def _making(timed: Timed) -> Table:
    rows = []
    for (program, notation), tier in timed.tiers.items():
        rows.append(
            Row(
                (
                    program,
                    notation,
                    timed.middle(program, notation, "check"),
                    timed.middle(program, notation, "answer"),
                    tier,
                    timed.middle(program, notation, "generate"),
                    timed.spread(program, notation, "generate"),
                    timed.middle(program, notation, "llvm"),
                    ECHO_MAKE[program] if notation == "E-Code" else None,
                )
            )
        )
        if notation == "Python" and (program, "C", "generate") in timed.values:
            key = (program, "C", "generate")
            rows.append(
                Row((program, "C, by a compiler", None, None, None, timed.middle(*key), timed.spread(*key), None, None))
            )
    return Table(
        name="code-making",
        title="From text to an answer, and to machine code",
        columns=(
            Column("program", "text"),
            Column("notation", "text"),
            Column("read and checked", "time"),
            Column("after", "time", "text to the first answer"),
            Column("by", "text", "text to the first answer"),
            Column("in all", "time", "making optimised machine code"),
            Column("rounds", "text", "making optimised machine code"),
            Column("of it LLVM", "time", "making optimised machine code"),
            Column("ECho", "time"),
        ),
        rows=tuple(rows),
        note="A source judges events by a table, or the interpreter, until a thread beside has made the machine code; "
        "an event waits for that only where the interpreter might take more than some 20 ms for it. "
        "ECho's is code generation without optimisation. The C compiler is a process that reads a file and writes a "
        "library.",
    )


def _first(timed: Timed) -> Table:
    parts = (("checked", "read and checked"), ("answered", "first answer"), ("native", "machine code in use"))
    return Table(
        name="code-first",
        title="The first interest of a process, which loads parser and compiler",
        columns=(
            Column("program, in E-Code", "text"),
            *(Column(title, "time") for _, title in parts),
            Column("rounds of the last", "text"),
        ),
        rows=tuple(
            Row(
                (
                    program,
                    *(timed.middle(program, "first", what) for what, _ in parts),
                    timed.spread(program, "first", "native"),
                )
            )
            for program in (FILTER, MEAN)
        ),
        note="Since the text was given.",
    )


def _running(timed: Timed) -> Table:
    ways = (
        ("native", "our machine code on a record, called from C"),
        ("batch", "our machine code on a batch, for each row"),
        ("called", "our machine code on a record, called from Python"),
        ("simple", "C at -O2 on a record"),
        ("checked", "C at -O2 on a record, checking the header as ours does"),
        ("average", "C at -O2 on a record"),
        ("batch in C", "C at -O2 over a column, for each row"),
        ("numpy", "numpy's mean of an array"),
        ("python", "the same in plain Python, on an object"),
        ("loop", "a Python function that does nothing"),
    )
    rows = []
    for program in (FILTER, MEAN):
        for key, title in ways:
            if (program, key) not in timed.values:
                continue
            mine = timed.middle(program, key)
            rows.append(
                Row((program, title, mine, timed.spread(program, key), mine / timed.middle(program, "send") * 100))
            )
        share = ECHO_RUN[program] / ECHO_SENDS[program] * 100
        rows.append(Row((program, "ECho 1999, on its machine", ECHO_RUN[program], None, share)))
    return Table(
        name="code-running",
        title="Running it on one event",
        columns=(
            Column("program", "text"),
            Column("as", "text"),
            Column("time", "time"),
            Column("rounds", "text"),
            Column("of the sender's cost of sending the event", "percent", digits=2),
        ),
        rows=tuple(rows),
        note="The last column is what counts: ECho's filter took 60 % of what sending took, its average 145 %. Sending "
        "is measured in this run, as processor time of the process that publishes (below).",
    )


def _sending(timed: Timed) -> Table:
    titles = {FILTER: "64 bytes of fields", MEAN: "74,888 bytes of fields"}
    return Table(
        name="code-sending",
        title="Sending the event as it is, over a direct stream to another process",
        columns=(
            Column("event", "text"),
            Column("sender", "time", "processor time"),
            Column("rounds", "text", "processor time"),
            Column("receiver", "time", "processor time"),
            Column("until `publish` returned".replace("`", ""), "time", "time that passed"),
            Column("until acknowledged", "time", "time that passed"),
            Column("bytes both ways", "bytes"),
            Column("ECho, sender", "time"),
        ),
        rows=tuple(
            Row(
                (
                    titles[program],
                    timed.middle(program, "send"),
                    timed.spread(program, "send"),
                    timed.middle(program, "receive"),
                    timed.middle(program, "handed"),
                    timed.middle(program, "sent"),
                    timed.middle(program, "bytes"),
                    ECHO_SENDS[program],
                )
            )
            for program in (FILTER, MEAN)
        ),
        note="For each event, of many published one after the other as fast as they are taken, delivered reliably to "
        "one sink. Small events published so go out many in a frame, which they share the cost of. ECho's figures are "
        "worked out from the bandwidth that it measured on Ethernet of 100 Mbit/s.",
    )


def _instructions(timed: Timed) -> Table:
    names = {
        (FILTER, "ours"): "ours",
        (FILTER, "simple"): "C at -O2, checking nothing",
        (FILTER, "checked"): "C at -O2, checking the header as ours does",
        (MEAN, "ours"): "ours",
        (MEAN, "ours, output"): "ours, making the output's record",
        (MEAN, "average"): "C at -O2",
    }
    rows: list[tuple[Value, ...]] = [
        (program, title, len(instructions(timed.listings[program, key])), longest(timed.listings[program, key]))
        for (program, key), title in names.items()
        if (program, key) in timed.listings
    ]
    rows.insert(0, (FILTER, "ECho 1999, Sparc", ECHO_INSTRUCTIONS, None))
    rows.insert(1, (FILTER, "ECho: what would do, Sparc", ECHO_ENOUGH, None))
    return Table(
        name="code-instructions",
        title=f"Machine instructions, here for {cpu()}",
        columns=(
            Column("program", "text"),
            Column("made by", "text"),
            Column("in all"),
            Column("at most for an event"),
        ),
        rows=tuple(map(Row, rows)),
        note="Of the function that judges a record, its return included. With loops there is no such most.",
    )


def _listing(timed: Timed) -> Table:
    names = {"ours": "ours", "simple": "C at -O2", "checked": "C at -O2, checking the header"}
    there = [name for name in names if (FILTER, name) in timed.listings]
    lines = zip_longest(*(timed.listings[FILTER, name] for name in there))
    return Table(
        name="code-listing",
        title="The filter's machine code",
        columns=tuple(Column(names[name], "code") for name in there),
        rows=tuple(map(Row, lines)),
        folded=True,
    )


def _notes(timed: Timed) -> tuple[str, ...]:
    count = len(instructions(timed.listings[FILTER, "ours"]))
    row = timed.middle(FILTER, "batch") / timed.middle(FILTER, "send")
    mean = timed.middle(MEAN, "called") / timed.middle(MEAN, "send")
    notes = [
        f"The filter is {count} instructions, where ECho generated {ECHO_INSTRUCTIONS} and thought {ECHO_ENOUGH} would "
        "do. Ours are more than the comparison needs because each record is first checked to be one of this type: its "
        "length, and 16 bytes of header in one comparison. That is what lets a source judge records that came from "
        "elsewhere without a crash. `level` cannot be missing here, so nothing is checked for that, and there are no "
        "bounds to check.",
        f"Judging a row of a batch costs {row * 100:.2g} % of what sending an event costs the sender; ECho's filter "
        "cost 60 %.",
        f"The average, called from Python, costs {mean * 100:.0f} % of what sending its event costs the sender; ECho's "
        f"cost {ECHO_AVERAGE / ECHO_SEND_LARGE * 100:.0f} %. "
        + ("Here it saves the sender time." if mean < 1 else "As with ECho, it costs the sender more than it saves."),
        "The average adds one number after the other, as the program says: neither LLVM nor the C compiler may add in "
        "another order, so both wait for each addition. numpy adds several at a time.",
    ]
    return tuple(notes)
