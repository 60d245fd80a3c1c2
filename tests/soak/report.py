"""What a soak has found, as a result that pages include, and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.study.report.html import Notes, Text
from headwater.study.report.plain import plain
from headwater.study.report.table import Column, Row, Table, rows
from headwater_studies.harness.bench import machine, versions
from headwater_studies.harness.result import Axis, Block, Plot, Result, Section, Series, content
from tests.federation.faults import SINKS
from tests.soak.federation import LASTING, Faulted
from tests.soak.inputs import Mutated
from tests.soak.long import Long
from tests.soak.moving import SINKS as MOVING
from tests.soak.moving import SOURCES, Stormed
from tests.soak.plan import PHASES, Phase, Plan
from tests.soak.properties import Tested

KINDS = {
    "frames": "frames on streams, after a proper greeting",
    "greetings": "greetings of streams",
    "envelopes": "envelopes and requests over Zenoh",
    "interests": "interests in their serial form",
    "files": "write-ahead files",
    "logs": "logs, of which one to three files were mutated",
}
MEGABYTE = 1_000_000


def problems(phases: Sequence[Phase]) -> list[str]:
    """Everything that makes a soak fail."""
    return [
        *(f"{phase.name}: {trouble}" for phase in phases for trouble in phase.troubles),
        *(f"{phase.name}: {grows}" for phase in phases for grows in phase.meter.growing()),
    ]


def result(plan: Plan, begun: str, seconds: float, phases: Sequence[Phase]) -> Result:
    command = plan.command()
    wrong = problems(phases)
    sections = [_summary(phases, command, wrong)]
    for phase in phases:
        match phase:
            case Faulted():
                sections.append(_faults(phase, command))
            case Stormed():
                sections.append(_storm(phase, command))
            case Mutated():
                sections.append(_inputs(phase, command))
            case Long():
                sections.append(_long(phase, command))
            case Tested():
                sections.append(_properties(phase, plan, command))
    sections.append(_processes(phases, command))
    ended = "nothing was lost, duplicated or broken" if not wrong else f"**{len(wrong)} problems**, named below"
    return Result(
        name="soak",
        title="Reliability",
        lead=f"{seconds / 60:.1f} minutes with seed {plan.seed}: {ended}.",
        command=command,
        begun=begun,
        seconds=seconds,
        quick=plan.minutes < 5,
        machine=machine(),
        versions=versions("hypothesis"),
        not_run={name: "not asked for" for name in PHASES if name not in plan.phases},
        sections=tuple(sections),
    )


def _section(key: str, title: str, command: str, repetitions: str, *blocks: Block) -> Section:
    return Section(key=key, title=title, contents=content(*blocks), command=command, repetitions=repetitions)


def _summary(phases: Sequence[Phase], command: str, wrong: list[str]) -> Section:
    figures: list[tuple[str, int]] = []
    faulted = [phase for phase in phases if isinstance(phase, Faulted)]
    mutated = [phase for phase in phases if isinstance(phase, Mutated)]
    tallies = [tally for phase in faulted if phase.outcome for tally in phase.outcome.sinks.values()]
    figures.append(("faults injected", sum(len(phase.order) for phase in faulted)))
    figures.append(("hostile acts meanwhile", sum(sum(each.hostile.values()) for each in faulted)))
    published = sum(phase.outcome.published for phase in faulted if phase.outcome)
    figures.append(("events published", published + sum(phase.published for phase in mutated)))
    figures.append(("events delivered", _sum(tallies, "delivered") + sum(phase.delivered for phase in mutated)))
    figures.append(("events lost", _sum(tallies, "lost") + sum(phase.lost for phase in mutated)))
    figures.append(("events duplicated", _sum(tallies, "duplicated") + sum(phase.duplicated for phase in mutated)))
    figures.append(("mutated inputs tried", sum(sum(phase.tried.values()) for phase in mutated)))
    figures.append(("random examples of property tests", sum(p.examples for p in phases if isinstance(p, Tested))))
    figures.append(("problems", len(wrong)))
    table = Table(name="reliability", title="In all", columns=(Column("", "text"), Column("count")), rows=rows(figures))
    blocks: list[Block] = [table]
    if wrong:
        replays = [f"`{phase.replay}` replays it" for phase in phases if phase.replay]
        blocks.append(Notes((*(line.split("\n", 1)[0][:500] for line in wrong), *replays)))
    return _section("summary", "In all", command, "one run", *blocks)


def _sum(tallies: Sequence[object], name: str) -> int:
    return sum(getattr(each, name) for each in tallies)


def _faults(found: Faulted, command: str) -> Section:
    happened = sorted(found.happened.items(), key=lambda each: -each[1])
    kinds = Table(
        name="faults",
        title="Faults injected",
        columns=(Column("fault", "text"), Column("times")),
        rows=(*rows(happened), Row(("all", len(found.order)), total=True)),
    )
    blocks: list[Block] = [
        Text(
            "Eight nodes in processes of their own, with certificates, three sources that log, four reliable sinks, "
            "two sequencers and three sinks of their one order, publish without pause. A node is killed, stopped, cut "
            "off, has its bytes held or its links dropped; then it comes back, and after each fault events of every "
            "source must come to every sink again. An event counts as published once `publish` has returned, as lost "
            "if it was published, wanted and never came, and as duplicated if it came twice without being marked as "
            "such: a killed sink may be given again what it had in its hands."
        ),
        kinds,
    ]
    if found.hostile:
        blocks.append(
            Table(
                name="hostile",
                title="Hostile peers, at the same time",
                columns=(Column("what", "text"), Column("times")),
                rows=rows(list(found.hostile.items())),
                note="One who has a certificate of the authority, and no rule that allows anything, listens to all "
                "that passes over Zenoh, says it again, garbles it, and answers what others are asked; strangers hold "
                "connections to the ports of nodes; a handler fails now and then; clocks are set back when nodes are "
                "started again. After each fault events must come to every sink all the same, and in the end nothing "
                "of an event may have been read.",
            )
        )
    if found.outcome is not None:
        nodes = {sink: node for node, sinks in SINKS.items() for sink in sinks}
        names = ("wanted", "delivered", "again", "lost", "duplicated", "disordered", "invented")
        sinks = [
            (sink, nodes.get(sink, sink.removesuffix("-total")), *(int(getattr(tally, name)) for name in names))
            for sink, tally in found.outcome.sinks.items()
        ]
        columns = (Column("sink", "text"), Column("node", "text"), Column("wanted"), Column("delivered"))
        columns += (Column("marked as again"), Column("lost"), Column("duplicated"), Column("out of order"))
        columns += (Column("not published"),)
        title = f"Events: {found.outcome.published:,} published"
        blocks.append(Table(name="events", title=title, columns=columns, rows=rows(sinks)))
    return _section("faults", "A federation with faults", command, f"{len(found.order)} faults", *blocks)


def _storm(found: Stormed, command: str) -> Section:
    figures = [("moves", found.moves), ("nodes killed", found.kills), ("events delivered", found.delivered)]
    figures.append(("events that came again, and said so", found.again))
    text = Text(
        f"{MOVING} durable sinks and the {SOURCES} logged sources of their events move at random among five nodes in "
        "processes of their own, up to four at the same time, while all sources publish. In four steps of ten a node "
        "is killed between leaving and arriving, in the midst of it, or just after: the one that was left, the one "
        "that it goes to, the one with the source, or another. In the end every sink must have each event of its "
        "source, in order; one that comes again must say so; and the logs of all nodes together must have each number "
        "once, and all that was published."
    )
    table = Table(name="storm", title="Moves", columns=(Column("", "text"), Column("count")), rows=rows(figures))
    return _section("moving", "A storm of moves", command, f"{found.moves} moves", text, table)


def _inputs(found: Mutated, command: str) -> Section:
    told = ("frames", "interests", "files", "logs")
    tried = [
        (KINDS[kind], count, found.refused.get(kind, 0) if kind in told else None)
        for kind, count in found.tried.items()
    ]
    table = Table(
        name="inputs",
        title="Mutated inputs",
        columns=(Column("input", "text"), Column("tried"), Column("of these refused")),
        rows=(*rows(tried), Row(("all", sum(found.tried.values()), None), total=True)),
        note="A frame counts as refused if it ends the stream; others are taken as far as they can be read. A file or "
        "log counts as refused if not all of it could be read. Greetings and envelopes are answered by nothing or by "
        f"an error: the node noted {found.offences:,} offences of {found.offenders:,} offenders.",
    )
    text = Text(
        "Mutated inputs go to a node that runs, which goes on exchanging events with an honest node: of these, "
        f"{found.published:,} were published and {found.delivered:,} of {found.wanted:,} delivered, {found.lost:,} "
        f"lost and {found.duplicated:,} duplicated. {found.foreign:,} deliveries were mutated events that still were "
        "events. An interest that is taken must do natively what it does by the interpreter; a write-ahead file must "
        "give only events that were written; a log must be readable once it is repaired."
    )
    return _section("inputs", "Mutated inputs", command, f"{found.rounds} rounds", text, table)


def _long(found: Long, command: str) -> Section:
    values: list[tuple[str, int | str]] = [
        ("tests passed", found.tests),
        ("all were reached", "no" if found.cut else "yes"),
    ]
    table = Table(name="long", title="Long tests", columns=(Column("", "text"), Column("", "text")), rows=rows(values))
    return _section("long", "Tests that are too long for `make test`", command, "once each", table)


def _properties(found: Tested, plan: Plan, command: str) -> Section:
    values = [
        ("modules run to their end", found.modules),
        ("modules whose time was up, with nothing found", found.cut),
        ("modules not reached", found.not_reached),
        ("tests passed", found.tests),
        ("random examples tried", found.examples),
    ]
    table = Table(
        name="properties", title="Property tests", columns=(Column("", "text"), Column("count")), rows=rows(values)
    )
    said = f"{plan.effort} times the examples of `make test`"
    return _section("properties", "Property tests, harder", command, said, table)


def _processes(phases: Sequence[Phase], command: str) -> Section:
    lines: list[tuple[str, int, int, int, int, int, int, int, int]] = []
    series: list[Series] = []
    for phase in phases:
        for name, taken in phase.meter.samples.items():
            first, last = taken[min(1, len(taken) - 1)], taken[-1]  # the first fault or round warms it up
            most = max(each.memory for each in taken)
            memory, threads = (first.memory, last.memory, most), (first.threads, last.threads, last.kept)
            lines.append((_called(name), len(taken), *memory, *threads, first.files, last.files))
            points = tuple((n / max(1, len(taken) - 1), each.memory / MEGABYTE) for n, each in enumerate(taken))
            series.append(Series(name=_called(name), points=points))
    columns = (Column("process", "text"), Column("samples"))
    columns += tuple(Column(title, "bytes", "memory") for title in ("start", "end", "most"))
    columns += tuple(Column(title, "int", "threads") for title in ("start", "end", "for nodes gone"))
    columns += tuple(Column(title, "int", "open files") for title in ("start", "end"))
    table = Table(
        name="processes",
        title="Processes that lived through it",
        columns=columns,
        rows=rows(lines),
        note="Memory is what is resident. The start is after the first fault or round. It counts as growing, which "
        "fails the soak, if even the least of the last third is clearly more than the most of the first third. A node "
        "that was killed and came again with another key is remembered for ten minutes, with a thread that is not "
        "counted as growth; the Zenoh library has threads of its own, which come and go.",
    )
    blocks: list[Block] = [table]
    if series:
        x, y = Axis("part of the phase"), Axis("resident memory in MB", least=0.0)
        blocks.append(Plot(name="memory", title="Memory over the run", x=x, y=y, series=tuple(series)))
    title, sampled = "Memory, threads and open files", "a sample after each fault or round"
    return _section("processes", title, command, sampled, *blocks)


def _called(name: str) -> str:
    return f"node {name}, with two sinks, never killed" if name == LASTING else name


def shown(found: Result) -> str:
    """For people."""
    tables = [plain(block) for section in found.sections for block in section.blocks if isinstance(block, Table)]
    return "\n\n".join(tables)
