"""How large moved code is, and what runs it, beside SECO 7.4: lines of source, bytes that travel, machine code at the
source, and what a process needs on disk and in memory to take code from elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import headwater
from headwater.interest import Interest
from headwater.study.badges.code import code_facts
from headwater.study.badges.subscribers import Group, group
from headwater.study.report.bars import Bar
from headwater.study.report.data import CodeFacts
from headwater.study.report.html import Heading, Text
from headwater.study.report.table import Column, Row, Table, rows, size
from headwater.types import event_type
from headwater_studies.fleet.node import Sample, sample
from headwater_studies.harness.bench import Bench, Found, versions
from headwater_studies.harness.result import Bars, Section, content

COMMAND = "headwater study overhead --part footprint"
WEIGH = Path(__file__).parent.parent / "fleet" / "weigh.py"
WITHIN = 300.0  # seconds for weighing


@dataclass(frozen=True, slots=True)
class Published:
    """SECO, tables 7.7 and 7.8: lines of source, those for dynamic linking; bytes of the class itself (n1), of the stub
    in its place (n2), and of all when it is linked (n3)."""

    name: str
    lines: int
    linking: int
    real: int
    stub: int
    linked: int


SECO: Mapping[Group, Published] = {
    "god": Published("God", 203, 122, 37_750, 31_366, 79_376),
    "cameras": Published("SecurityCam", 227, 122, 41_895, 31_506, 83_666),
    "eyes": Published("PrivateEye", 227, 122, 41_880, 31_476, 83_620),
    "brothers": Published("BigBrother", 256, 128, 42_278, 33_170, 85_712),
}
REPOSITORY = 169_237  # SECO 7.4.3: bytes of object code of the class repository
PARTS = ("ir", "types", "native")  # of the package, that run moved code; without `native` it is interpreted


def footprint(bench: Bench) -> Found:
    """The part."""
    bench.say("code of the four constraints")
    facts = {which: code_facts(group(which)[0].interest(), name=SECO[which].name) for which in SECO}
    bench.say("memory of a process that runs moved code")
    weighed, why = _weigh(bench, bench.size(1_000, 10))
    disk = _disk()
    sections = (_moved(facts), _running(disk, weighed))
    steps = weighed.get("steps", {})
    costs: dict[str, float] = {"interest_bytes": float(facts["cameras"].serial_bytes + facts["cameras"].param_bytes)}
    if steps:
        costs["interest_memory"] = _each(weighed)
    return Found(sections, (), versions(), why, costs)


# ── measuring ──


def _weigh(bench: Bench, interests: int) -> tuple[dict[str, Any], dict[str, str]]:
    """What `fleet/weigh.py` says, or why it says nothing."""
    if not Path("/proc/self/smaps_rollup").exists():
        return {}, {"memory of a process that runs moved code": "this system does not tell what a process uses"}
    lines = [event_type(Sample).encode(sample(0)).hex()]
    for number in range(1, interests + 2):
        interest = Interest(f"pick * {number} + share > {number}.5 and number < {3 * number}", Sample)
        lines.append(interest.dumps(with_text=False).hex())
    path = bench.folder / "interests.hex"
    path.write_text("\n".join(lines), encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-P", str(WEIGH), str(path)], capture_output=True, text=True, timeout=WITHIN, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found, {}


def _each(weighed: Mapping[str, Any]) -> float:
    """Bytes of memory that one compiled interest takes."""
    steps = weighed["steps"]
    more: int = steps["interests"]["private"] - steps["compiler"]["private"]
    interests: int = weighed["interests"] - 1
    return more / interests


def _disk() -> dict[str, tuple[int, str]]:
    """Bytes on disk by what they are, and a remark."""
    root = Path(headwater.__file__).parent
    found: dict[str, tuple[int, str]] = {}
    for part in PARTS:
        found[f"headwater.{part}"] = (_python(root / part), "our source, Python")
    found["headwater, all of it"] = (_python(root), "our source, Python")
    for package, what in (
        ("llvmlite", "the compiler, LLVM"),
        ("pyarrow", "columns"),
        ("numpy", "columns"),
        ("msgspec", "values and their types"),
        ("eclipse-zenoh", "the network"),
    ):
        try:
            places = [Path(each.locate()) for each in files(package) or ()]
        except PackageNotFoundError:
            continue
        sizes = [each.stat().st_size for each in places if each.exists()]
        found[package] = (sum(sizes), f"{what}; its largest file {size(max(sizes, default=0))}")
    return found


def _python(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*.py"))


# ── showing ──


def _moved(facts: Mapping[Group, CodeFacts]) -> Section:
    lines = Table(
        name="footprint-lines",
        title="Lines of source",
        columns=(
            Column("constraint", "text"),
            Column("our interest", "code"),
            Column("lines", group="here"),
            Column("of these for moving it", group="here"),
            Column("lines", group="SECO, table 7.7"),
            Column("of these for dynamic linking", group="SECO, table 7.7"),
        ),
        rows=rows(
            (SECO[which].name, each.text, each.lines, 0, SECO[which].lines, SECO[which].linking)
            for which, each in facts.items()
        ),
        note="Ours is what a program hands to subscribe, which is one more line. SECO's were meant to be generated.",
    )
    sizes = Table(
        name="footprint-code",
        title="Bytes of moved code",
        columns=(
            Column("constraint", "text"),
            Column("serial form", "bytes", "here, what travels"),
            Column("parameters", "bytes", "here, what travels"),
            Column("machine code", "bytes", "here, at the source"),
            Column("instructions", group="here, at the source"),
            Column("checked in", "time", "here, at the source"),
            Column("compiled in", "time", "here, at the source"),
            Column("n1: real code", "bytes", "SECO, table 7.8"),
            Column("n2: stub", "bytes", "SECO, table 7.8"),
            Column("n3: linked", "bytes", "SECO, table 7.8"),
            Column("n3 to our machine code", "factor"),
        ),
        rows=tuple(
            Row(
                (
                    SECO[which].name, each.serial_bytes, each.param_bytes, each.object_bytes, each.instructions,
                    each.check_seconds, each.compile_seconds, SECO[which].real, SECO[which].stub, SECO[which].linked,
                    SECO[which].linked / each.object_bytes,
                )
            )
            for which, each in facts.items()
        ),
        note="Machine code: the object image with its tables, as SECO's object files. BigBrother's parameter is the "
        "list of badges itself, which SECO's constraint read from a shared file system.",
    )  # fmt: skip
    text = (
        "The four constraints of SECO's experiments as we have them in the badge study. SECO moves a class of C++: its "
        "author writes stubs, upcalls and the constraint, and object code for one kind of machine is linked into the "
        "running source. Here a sink writes the condition; what travels is a small program in a form that every kind "
        "of machine can check and compile."
    )
    return Section(
        key="moved-code",
        title="The size of moved code (SECO 7.4.2, 7.4.3)",
        contents=content(Text(text), lines, sizes),
        command=COMMAND,
        repetitions="sizes are exact; times are the quickest of 3",
    )


def _running(disk: Mapping[str, tuple[int, str]], weighed: Mapping[str, Any]) -> Section:
    on_disk = Table(
        name="footprint-disk",
        title="What runs moved code, on disk",
        columns=(
            Column("what", "text"),
            Column("size", "bytes"),
            Column("of SECO's class repository", "factor", digits=1),
            Column("", "text"),
        ),
        rows=rows(
            [
                ("SECO's class repository", REPOSITORY, 1.0, "object code of a library, C++ (published)"),
                *((name, count, count / REPOSITORY, what) for name, (count, what) in disk.items()),
            ]
        ),
    )
    llvm = disk.get("llvmlite", (0, ""))[0]
    text = (
        f"**We lose here.** SECO's class repository, which every process needs that "
        f"takes code from elsewhere, is {REPOSITORY:,} bytes. Ours is a compiler: LLVM alone is {size(llvm)} on disk, "
        f"{llvm / REPOSITORY:,.0f} times as much, and Python and the libraries for columns come on top. What one gets "
        "for it: code that is checked before it runs, so that it can neither loop for ever nor read what it should not "
        "(SECO's has to be trusted like the source itself); one form for all kinds of machines; code that is compiled "
        "for the processor at hand, also over whole columns; and programs of many sinks that become one. It suits "
        "machines of today with gigabytes, not a badge's base station of 1999; a source on a small device has to be "
        "behind a node."
    )
    notes = (
        "The interpreter needs no compiler, and every source has it anyway: it is the reference, and runs an interest "
        "until its machine code is ready. There is no option to leave LLVM out, but it comes with the first machine "
        "code, not with the package. The figure for the interpreter is of a process that loads only what that needs."
    )
    bars = Bars(
        name="footprint-bars",
        title="What runs moved code, on disk",
        unit="bytes",
        bars=(
            Bar("SECO's class repository", float(REPOSITORY), text=size(REPOSITORY)),
            *(Bar(name, float(count), text=size(count)) for name, (count, _) in disk.items()),
        ),
        log=True,
    )
    blocks: list[Any] = [Text(text), on_disk, bars]
    if weighed:
        blocks += [Heading("In memory"), _memory(weighed)]
    return Section(
        key="what-runs-it",
        title="What runs moved code (SECO 7.4.3)",
        contents=content(*blocks, Text(notes)),
        command=COMMAND,
        repetitions="one fresh process" + (f", {weighed['interests']:,} interests" if weighed else ""),
    )


def _memory(weighed: Mapping[str, Any]) -> Table:
    steps = weighed["steps"]
    more = weighed["interests"] - 1
    names = {
        "Python": "Python with nothing loaded",
        "interpreter": "and what checks and interprets an interest",
        "compiler": "and LLVM, with the first interest compiled",
        "interests": f"and {more:,} more, all different, all compiled and kept",
        "everything": "and the rest of the package, with the network",
    }
    made, before = [], {"resident": 0, "private": 0}
    for step, name in names.items():
        now = steps[step]
        made.append((name, now["resident"], now["resident"] - before["resident"], now["private"] - before["private"]))
        before = now
    return Table(
        name="footprint-memory",
        title="Memory of a process, step by step",
        columns=(
            Column("with", "text"),
            Column("in memory", "bytes"),
            Column("more than before", "bytes"),
            Column("of this, the process's own", "bytes"),
        ),
        rows=rows(made),
        note=f"An interest more is {size(_each(weighed))} of memory, {size(weighed['code'] / weighed['interests'])} of "
        "it machine code; equal programs with other parameters share theirs, and many comparisons become one table. "
        "What is not the process's own is shared with others that load the same files.",
    )


__all__ = ["SECO", "footprint"]
