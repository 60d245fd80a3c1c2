"""What it takes to hold a federation together, as in SECO 7.2.3: control messages and bytes against the number of nodes
and of subscriptions; and, since SECO hoped for multicast, what multicast saves for events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headwater.study.report.html import Heading, Text
from headwater.study.report.table import Column, Row, Table
from headwater_studies.harness.bench import Bench, Found, versions
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, Series, content
from headwater_studies.overhead.seco_messages import (
    Talk,
    Told,
    added,
    come,
    leave,
    open_crowd,
    seco_distribution,
    seco_distribution_multicast,
    seco_filtering,
    seco_filtering_multicast,
    subscribe,
    tell,
)

COMMAND = "headwater study overhead --part administration"
ONE_BY_ONE = "one after the other"  # a way to subscribe, of `control.subscribe`
MANY, FEW = 20, 3  # subscriptions at any number of nodes, and nodes with any number of them: the rest takes long


def administration(bench: Bench) -> Found:
    """The part."""
    crowd, alone, why = open_crowd(bench)
    sizes = (2, 3) if bench.quick else (2, 3, 4, 6, 8, 12, 16)
    many = (1, 5) if bench.quick else (1, 5, 20, 50)
    came: dict[int, Talk] = {}
    wanted: dict[tuple[str, int, int], Talk] = {}
    for n in sizes:
        bench.say(f"{n} nodes come, subscribe and go")
        came[n] = come(crowd, n, alone)
        for m in many:
            if m <= MANY or n <= FEW:
                wanted.update({(how, m, n): took for how, took in subscribe(crowd, m, alone).items()})
        leaving = leave(crowd, alone)
        came[n] = added(came[n], leaving)
    events = bench.size(50, 5)
    told = {
        (n, how): tell(bench, crowd, n, how == "multicast", events, alone)
        for n in ((1, 2) if bench.quick else (1, 2, 4, 8))
        for how in ("streams", "multicast")
    }
    sections = (_distribution(came, alone), _filtering(wanted, sizes, many), _events(told, events))
    return Found(sections, _ratios(came, wanted, told), versions(), why, _costs(came, wanted))


# ── showing ──


def _distribution(come: Mapping[int, Talk], alone: bool) -> Section:
    columns = (
        Column("nodes"),
        Column("messages said", group="here"),
        Column("messages that arrive", group="here"),
        Column("of these signs of life and their ends", group="here"),
        Column("their bytes", "bytes", "here"),
        Column("on the wire", "bytes", "here"),
        Column("unicast: 2n² + 4n", group="SECO 7.2.3"),
        Column("multicast: 8n − 2", group="SECO 7.2.3"),
        Column("SECO's unicast to ours that arrive", "factor", digits=2),
    )
    made = tuple(
        Row(
            (
                n, took.said, took.arrived, took.lives, took.bytes, took.wire, seco_distribution(n),
                seco_distribution_multicast(n), seco_distribution(n) / took.arrived,
            )
        )
        for n, took in come.items()
    )  # fmt: skip
    text = (
        "n nodes come one after the other, each when those before know each other, and go again. SECO's instances "
        "register with a central one, greet all others one by one, and say goodbye the same way. Here there is no "
        "central node: each gives a sign of life, calls the roll with its card, and is told by those who are there "
        "what they have; that it goes, others hear from Zenoh. **Said**: what a node puts into Zenoh, where something "
        "for all is one message. **Arrive**: at each node that gets it, as SECO counts. Signs of life are among them, "
        "which SECO has none of: that an instance has died, it finds out when a message to it fails."
    )
    grows = (
        "Both grow with the square of the nodes, for everybody gets to know everybody. Besides signs of life n² − n "
        "messages arrive here at best, half of SECO's; more where two have missed each other in a roll call, and ask "
        f"each other. {_fewer(come, seco_distribution, 'SECO')} "
        + (_wire(come[max(come)], max(come)) if alone else "Below these messages there is more: ")
        + "Zenoh's own greetings between each two nodes, their declarations, what keeps connections alive, and the "
        "headers of TCP. SECO's bytes were not published. With multicast SECO would have needed 8n − 2 messages. "
        f"{_fewer(come, seco_distribution_multicast, 'SECO with multicast')} Zenoh can find nodes by multicast, but "
        "then talks to each over a connection, since what nodes say has to arrive."
    )
    plot = Plot(
        name="distribution",
        title="Control messages for n nodes that come and go",
        x=Axis("nodes", log=True),
        y=Axis("messages", log=True),
        series=(
            Series(name="here, said", points=tuple((float(n), float(took.said)) for n, took in come.items())),
            Series(name="here, arrived", points=tuple((float(n), float(took.arrived)) for n, took in come.items())),
            Series(
                name="SECO, 2n² + 4n", points=tuple((float(n), float(seco_distribution(n))) for n in come), dashed=True
            ),
            Series(
                name="SECO with multicast, 8n − 2",
                points=tuple((float(n), float(seco_distribution_multicast(n))) for n in come),
                dashed=True,
            ),
        ),
    )
    table = Table(
        name="administration-distribution", title="n nodes that come and go", columns=columns, rows=made,
        note="Bytes are of payloads, as they arrive; on the wire: all bytes on loopback, headers and Zenoh's own "
        "traffic included.",
    )  # fmt: skip
    return Section(
        key="distribution",
        title="Nodes that come and go (SECO 7.2.3)",
        contents=content(Text(text), table, plot, Text(grows)),
        command=COMMAND,
        repetitions="counted once for each number of nodes",
    )


def _fewer(come: Mapping[int, Talk], formula: Callable[[int], int], whose: str) -> str:
    behind = [n for n, took in come.items() if took.arrived > formula(n)]
    if not behind:
        return f"Ours, signs of life included, are no more than those of {whose}, with up to {max(come)} nodes."
    return f"**{whose} has fewer** than ours, signs of life included, with {', '.join(map(str, behind))} nodes."


def _wire(took: Talk, n: int) -> str:
    assert took.wire is not None
    times = took.wire / took.bytes
    return f"On the wire there are {times:.1f} times the bytes of these messages with {n} nodes: "


Wanted = Mapping[tuple[str, int, int], Talk]


def _filtering(wanted: Wanted, sizes: Sequence[int], many: Sequence[int]) -> Section:
    columns = (
        Column("nodes"),
        Column("subscriptions"),
        Column("made", "text"),
        Column("messages", group="here"),
        Column("frames on streams", group="here"),
        Column("bytes", "bytes", "here"),
        Column("of a message", "bytes", "here"),
        Column("on the wire", "bytes", "here"),
        Column("unicast: 4m(n − 1)", group="SECO 7.2.3"),
        Column("multicast: 2m", group="SECO 7.2.3"),
    )
    made = tuple(
        Row(
            (
                n, m, how, took.arrived, took.frames, took.bytes,
                took.bytes / took.arrived if took.arrived else None, took.wire, seco_filtering(m, n),
                seco_filtering_multicast(m),
            )
        )
        for (how, m, n), took in sorted(wanted.items(), key=lambda each: (each[0][2], each[0][1]))
    )  # fmt: skip
    few = FEW
    table = Table(
        name="administration-filtering", title="m subscriptions that come and go", columns=columns, rows=made,
        note="Frames on streams are marks, by which a subscriber knows that it misses nothing from there on.",
        folded=len(made) > 40,
    )  # fmt: skip
    text = (
        "One node subscribes m times and unsubscribes, with a source at each of the n − 1 others, as in SECO. *One "
        "after the other*: all different, each in force before the next, and withdrawn one after the other: a question "
        f"to each source's node and its answer, {_as_seco(wanted)}. *All at once*: what changes within a moment goes "
        "in one question. *Covered by the first*: interests that are narrower than one that is already at the source "
        "are not sent at all."
    )
    squares = (
        "**Where we lose**: a question names all that a node wants of a channel, not what has changed, so that it "
        "does not matter which questions were lost. One after the other, m questions name up to m interests each, so "
        "that bytes grow with m²; made at once they grow with m. The subscriber also finds out anew at each change "
        "which interests are covered by others, for every node: this is why the table ends where it does."
    )
    series = [
        Series(
            name=f"{how}, {few} nodes",
            points=tuple((float(m), float(wanted[how, m, few].bytes)) for m in many if (how, m, few) in wanted),
        )
        for how in dict.fromkeys(how for how, _, _ in wanted)
    ]
    plot = Plot(
        name="filtering-bytes",
        title="Bytes of control messages for m subscriptions that come and go",
        x=Axis("subscriptions", log=True),
        y=Axis("bytes", log=True),
        series=tuple(series),
    )
    top = max(m for how, m, n in wanted if n == max(sizes))
    by_n = Plot(
        name="filtering-messages",
        title=f"Control messages for {top} subscriptions that come and go",
        x=Axis("nodes", log=True),
        y=Axis("messages", log=True),
        series=(
            *(
                Series(
                    name=f"here, {how}",
                    points=tuple(
                        (float(n), float(wanted[how, top, n].arrived)) for n in sizes if (how, top, n) in wanted
                    ),
                )
                for how in dict.fromkeys(how for how, _, _ in wanted)
            ),
            Series(
                name="SECO, 4m(n − 1)",
                points=tuple((float(n), float(seco_filtering(top, n))) for n in sizes),
                dashed=True,
            ),
            Series(
                name="SECO with multicast, 2m",
                points=tuple((float(n), float(seco_filtering_multicast(top))) for n in sizes),
                dashed=True,
            ),
        ),
    )
    return Section(
        key="filtering",
        title="Subscriptions that come and go (SECO 7.2.3)",
        contents=content(Text(text), by_n, table, Text(squares), plot),
        command=COMMAND,
        repetitions="counted once for each number of nodes and subscriptions",
    )


def _as_seco(wanted: Wanted) -> str:
    single = [(took.arrived, seco_filtering(m, n)) for (how, m, n), took in wanted.items() if how == ONE_BY_ONE]
    equal = sum(ours == theirs for ours, theirs in single)
    return "4m(n − 1) as with SECO" + ("" if equal == len(single) else f" in {equal} of {len(single)} cases")


def _events(told: Mapping[tuple[int, str], Told], events: int) -> Section:
    columns = (
        Column("nodes that want the events"),
        Column("sent over", "text"),
        Column("frames", "number", "for each event"),
        Column("datagrams", "number", "for each event"),
        Column("bytes sent", "number", "for each event"),
        Column("on the wire", "number", "for each event"),
    )
    made = tuple(
        Row(
            (
                nodes, how, each.frames / events, each.datagrams / events, each.bytes / events,
                None if each.wire is None else each.wire / events,
            )
        )
        for (nodes, how), each in told.items()
    )  # fmt: skip
    text = (
        "Our multicast is for events: what nodes say about themselves and what they want has to arrive, and goes over "
        "connections. So this is what multicast saves here: events of 64 bytes, published one by one, to nodes that "
        "all want them, over a stream to each, or as one datagram to all; reliable in both. With multicast the streams "
        "carry acknowledgements, progress, and what was missed."
    )
    table = Table(
        name="administration-multicast",
        title="Events to several nodes, unicast and multicast",
        columns=columns,
        rows=made,
        note="Bytes sent: what the source's node writes, what it says beside events included. On the wire: both ways, "
        "headers included; loopback counts a datagram once, however many sockets get it.",
    )
    plot = Plot(
        name="multicast-bytes",
        title="Bytes that a source's node sends for an event",
        x=Axis("nodes that want it"),
        y=Axis("bytes for each event", least=0.0),
        series=tuple(
            Series(
                name=name,
                points=tuple((float(nodes), told[nodes, way].bytes / events) for nodes, way in told if way == name),
            )
            for name in ("streams", "multicast")
        ),
    )
    return Section(
        key="multicast",
        title="Unicast and multicast",
        contents=content(Heading("Events to several nodes"), Text(text), table, plot),
        command=COMMAND,
        repetitions=f"{events} events each, each when all have the one before",
    )


def _ratios(come: Mapping[int, Talk], wanted: Wanted, told: Mapping[tuple[int, str], Told]) -> tuple[Ratio, ...]:
    n = max(come)
    found = [
        Ratio(
            case=f"control messages that arrive, {n} nodes come and go",
            reference="the formula of SECO 7.2.3",
            ours=(come[n].arrived,),
            theirs=(seco_distribution(n),),
            kind="count",
            why="Signs of life are among ours, by which nodes notice who dies; SECO has none.",
        )
    ]
    top = max(m for _, m, _ in wanted)
    most = max(at for _, m, at in wanted if m == top)
    found += [
        Ratio(
            case=f"control messages, {m} subscriptions {how}, {at} nodes",
            reference="the formula of SECO 7.2.3",
            ours=(took.arrived,),
            theirs=(seco_filtering(m, at),),
            kind="count",
            why="There were more questions than changes.",
        )
        for (how, m, at), took in wanted.items()
        if (m, at) == (top, most)
    ]
    nodes = max(at for at, _ in told)
    found.append(
        Ratio(
            case=f"bytes sent for events by multicast, {nodes} nodes",
            reference="our streams",
            ours=(told[nodes, "multicast"].bytes,),
            theirs=(told[nodes, "streams"].bytes,),
            kind="bytes",
            why="What is said beside the datagrams costs more than they save with so few nodes.",
        )
    )
    return tuple(found)


def _costs(come: Mapping[int, Talk], wanted: Wanted) -> dict[str, float]:
    n = max(come)
    single = [took for (how, m, _), took in wanted.items() if m == 1 and how == ONE_BY_ONE]
    return {
        "control_message_bytes": sum(each.bytes for each in single) / sum(each.arrived for each in single),
        "membership_message_bytes": come[n].bytes / come[n].arrived,
    }


__all__ = ["administration"]
