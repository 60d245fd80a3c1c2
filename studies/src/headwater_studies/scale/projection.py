"""What larger federations send: `grow(spark, recorded, sizes, scenarios, costs)`, computed by Spark.

The rows are kinds of things, never single nodes or events: a class of events (`k`) that a node (`role`) of a kind of
sites (`c`) in a federation (`w`) publishes; a group of sites (`a`) of a tree. `n` counts events, `x` their bytes with
frames. So a federation of a million nodes takes as many rows as one of a few thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from headwater.errors import ConfigError, ConfigProblem
from headwater.late import pa
from headwater_studies.scale.recorded import Recorded
from headwater_studies.scale.scenario import TOPOLOGIES, Costs, Grown, Load, Scenario, Topology
from headwater_studies.scale.shapes import World

FANOUT = 16
MOST = 10_000_000  # nodes
_NAMED = re.compile(r"\{(\w+)\}(?! AS)")


def grow(
    spark: Any,
    known: Recorded,
    sizes: Iterable[int],
    scenarios: Iterable[Scenario],
    costs: Costs,
    *,
    fanout: int = FANOUT,
) -> tuple[Grown, ...]:
    """Every size in every scenario and topology, in this order. `fanout` is how many gateways of a tree meet."""
    given, chosen = list(sizes), list(scenarios)
    if not given or not chosen:
        raise ConfigError([ConfigProblem("model", "at least one size and one scenario", "none")])
    return grow_each(spark, [(known, size, scenario) for size in given for scenario in chosen], costs, fanout=fanout)


def grow_each(
    spark: Any,
    federations: Iterable[tuple[Recorded, int, Scenario]],
    costs: Costs,
    *,
    fanout: int | Sequence[int] = FANOUT,
) -> tuple[Grown, ...]:
    """Federations of their own recordings, sizes and scenarios, in one job: each in every topology, in this order. Each
    may have a fanout of its own."""
    given = list(federations)
    fanouts = [fanout] * len(given) if isinstance(fanout, int) else list(fanout)
    sites: list[Recorded] = []
    worlds: list[World] = []
    for (known, size, scenario), ways in zip(given, fanouts, strict=True):
        if not isinstance(ways, int) or ways < 2:
            raise ConfigError([ConfigProblem("model: fanout", "a number from 2", repr(ways))])
        if not isinstance(size, int) or not 1 <= size <= MOST:
            raise ConfigError([ConfigProblem("model: sizes", f"numbers of nodes from 1 to {MOST:,}", repr(size))])
        at = next((at for at, other in enumerate(sites) if other is known), len(sites))
        if at == len(sites):
            sites.append(known)
        worlds.append(World(len(worlds), at, size, scenario, len(known.nodes), len(known.subscriptions), ways))
    return _Job(spark, sites, worlds, costs).run()


def _both(text: str) -> str:
    """The same for events and for bytes: # is n and x in turn."""
    return ", ".join(text.replace("#", which) for which in "nx")


class _Job:
    """The tables, each made from those before it."""

    def __init__(self, spark: Any, known: Sequence[Recorded], worlds: Sequence[World], costs: Costs) -> None:
        self.spark, self.known, self.worlds, self.costs = spark, known, worlds, costs
        self.tables: dict[str, Any] = {}

    def rows(self, name: str, columns: str, values: Iterable[tuple[int, ...]]) -> None:
        """A table from the driver."""
        names, found = columns.split(), list(values)
        made = {column: pa.array([row[at] for row in found], pa.int64()) for at, column in enumerate(names)}
        self.local(name, pa.table(made))

    def local(self, name: str, table: Any) -> None:
        self.tables[name] = self.spark.createDataFrame(table)

    def table(self, name: str, query: str, *, keep: bool = False) -> Any:
        """A query over the tables that it names in braces. What is used more than once is kept: as a table of the
        driver's where it is small, so that Spark knows how small and plans do not grow from one to the next."""
        used = {each: frame for each, frame in self.tables.items() if f"{{{each}}}" in query}
        self.tables[name] = self.spark.sql(_NAMED.sub(r"{\1} AS \1", query), **used)
        if keep:
            self.local(name, self.tables[name].toArrow())
        return self.tables[name]

    def run(self) -> tuple[Grown, ...]:
        self.given()
        self.wanting()
        self.publishing()
        self.receiving()
        nodes = self.nodes()
        gateways = self.gateways()
        delays = {row["w"]: row for row in self.delays().collect()}
        return tuple(
            self.grown(world, topology, nodes[world.number], gateways.get(world.number), delays[world.number])
            for world in self.worlds
            for topology in TOPOLOGIES
        )

    # ── what is known ──

    def given(self) -> None:
        classes = list(enumerate((s, each) for s, known in enumerate(self.known) for each in known.classes))
        with_frames = [(k, s, c.role, c.events, c.bytes + self.costs.frame * c.events) for k, (s, c) in classes]
        self.rows("classes", "k s role n x", with_frames)
        self.rows("matches", "k s j", ((k, s, j) for k, (s, each) in classes for j in each.matched))
        self.rows(
            "worlds",
            "w full part period height ways",
            ((w.number, w.full, w.part, w.period, w.height, w.fanout) for w in self.worlds),
        )
        kinds = [(w, kind) for w in self.worlds for kind in w.kinds()]
        self.rows(
            "sites",
            "w s many kept everywhere c size times first near_c",
            (
                (w.number, w.site, w.count, w.scenario.kept, w.scenario.everywhere, *kind, kind[-1] % w.kept_period)
                for w, kind in kinds
            ),
        )
        sizes = sorted({(w.site, size) for w, (_, size, _, _) in kinds})
        self.rows(
            "places",
            "s size j role",
            (
                (s, size, j, self.known[s].place(j, size))
                for s, size in sizes
                for j in range(len(self.known[s].subscriptions))
            ),
        )

    def wanting(self) -> None:
        """Which nodes want which class: of their own site, and of all."""
        self.table(
            "asked",
            """SELECT s, kept, size, near_c, j, role
            FROM (SELECT DISTINCT s, many, kept, size, near_c FROM {sites}) JOIN {places} USING (s, size)
            WHERE (near_c * many + j) % kept = 0""",
            keep=True,
        )
        query = "SELECT DISTINCT kept, size, near_c, k, role FROM {asked} JOIN {matches} USING (s, j)"
        self.table("near", query, keep=True)
        self.table(
            "asked_far",
            """SELECT w, c, s, times, j, role FROM {sites} JOIN {places} USING (s, size)
            WHERE everywhere > 0 AND (first * many + j) % kept = 0
            AND (first * many + j) % if(everywhere > 0, everywhere, 1) = 0""",
            keep=True,
        )
        self.table(
            "far", "SELECT DISTINCT w, c, times, k, role FROM {asked_far} JOIN {matches} USING (s, j)", keep=True
        )
        self.table("far_sites", "SELECT w, c, times, k, count(*) AS own FROM {far} GROUP BY w, c, times, k", keep=True)
        self.table(
            "far_total",
            """SELECT w, k, sum(times * own) AS total, sum(times) AS sites, max(own) AS most
            FROM {far_sites} GROUP BY w, k""",
            keep=True,
        )

    def publishing(self) -> None:
        """Each class of events that a site publishes, and how many other nodes want them: `wants`."""
        self.table(
            "near_count",
            """SELECT kept, size, near_c, k, count(*) AS near
            FROM {near} JOIN {classes} USING (k) WHERE near.role <> classes.role GROUP BY kept, size, near_c, k""",
        )
        self.table(
            "published",
            """SELECT *, near + total - own AS wants FROM (
                SELECT w, c, k, sites.times, kept, size, near_c, role, n, x,
                    coalesce(near, 0) AS near, coalesce(own, 0) AS own, coalesce(total, 0) AS total,
                    coalesce(far_total.sites, 0) AS far_sites, coalesce(most, 0) AS most
                FROM {sites} JOIN {classes} ON sites.s = classes.s AND role < size
                LEFT JOIN {near_count} USING (kept, size, near_c, k)
                LEFT JOIN {far_sites} USING (w, c, k)
                LEFT JOIN {far_total} USING (w, k)
            )""",
        )
        self.tables["published"] = self.tables["published"].localCheckpoint()  # the one that is not small
        self.table(
            "sent",
            f"""SELECT w, c, role, {_both("sum(#) AS pub_#")}, {_both("sum(if(wants > 0, #, 0)) AS any_#")},
                {_both("sum(# * wants) AS out_#")},
                {_both("sum(# * (near + if(total > own, 1, 0))) AS tree_#")}
            FROM {{published}} GROUP BY w, c, role""",
            keep=True,
        )
        self.table(
            "sent_site",
            f"""SELECT w, c, times, {_both("sum(any_#) AS site_#")}
            FROM {{sent}} JOIN {{sites}} USING (w, c) GROUP BY w, c, times""",
        )
        self.table("sent_all", f"SELECT w, {_both('sum(times * site_#) AS all_#')} FROM {{sent_site}} GROUP BY w")

    def receiving(self) -> None:
        """What each node gets that it wants."""
        self.table(
            "got_near",
            f"""SELECT w, c, near.role, {_both("sum(#) AS got_#")}
            FROM {{published}} AS published JOIN {{near}} AS near USING (kept, size, near_c, k)
            WHERE near.role <> published.role GROUP BY w, c, near.role""",
        )
        self.table(
            "all_of",
            f"""SELECT w, k, {_both("sum(times * #) AS #")}
            FROM {{published}} GROUP BY w, k""",
        )
        self.table(
            "got_far",
            f"""SELECT far.w, far.c, far.role, {_both("sum(all_of.# - coalesce(here.#, 0)) AS got_#")}
            FROM {{far}} AS far JOIN {{all_of}} AS all_of USING (w, k)
            LEFT JOIN {{published}} AS here ON here.w = far.w AND here.c = far.c AND here.k = far.k
            GROUP BY far.w, far.c, far.role""",
        )

    # ── nodes ──

    def nodes(self) -> dict[int, dict[str, Any]]:
        """Sums, and the busiest, by federation and topology."""
        names = [f"{what}_{of}" for what in ("pub", "any", "out", "tree") for of in "nx"]
        sums = ", ".join(f"coalesce({name}, 0) AS {name}" for name in names)
        self.table(
            "nodes",
            f"""SELECT w, c, role, times, {sums}, {_both("coalesce(site_#, 0) AS site_#")},
                {_both("coalesce(all_#, 0) AS all_#")},
                {_both("coalesce(got_near.got_#, 0) + coalesce(got_far.got_#, 0) AS got_#")},
                member.role IS NOT NULL AS member, far_member.role IS NOT NULL AS far_member
            FROM (SELECT *, explode(sequence(0L, size - 1)) AS role FROM {{sites}})
            LEFT JOIN {{sent}} USING (w, c, role) LEFT JOIN {{sent_site}} USING (w, c, times)
            LEFT JOIN {{sent_all}} USING (w)
            LEFT JOIN {{got_near}} AS got_near USING (w, c, role) LEFT JOIN {{got_far}} AS got_far USING (w, c, role)
            LEFT JOIN (SELECT DISTINCT s, kept, size, near_c, role FROM {{asked}}) AS member
                USING (s, kept, size, near_c, role)
            LEFT JOIN (SELECT DISTINCT w, c, role FROM {{asked_far}}) AS far_member USING (w, c, role)""",
        )
        costs, rows = self.costs, []
        for topology in TOPOLOGIES:
            sent, out, got, into = _work(topology, costs)
            rows.append(f"'{topology}', double({sent}), double({out}), double({got}), double({into})")
        self.table(
            "work",
            f"""SELECT w, times, topology, sent, bytes_out, got, bytes_in, pub_n, got_n,
                {costs.publish!r}D * pub_n + {costs.send!r}D * sent + {costs.receive!r}D * got_n
                + {costs.discard!r}D * (got - got_n) AS cpu
            FROM {{nodes}} LATERAL VIEW
                stack({len(rows)}, {", ".join(rows)}) AS topology, sent, bytes_out, got, bytes_in""",
        )
        found = self.table(
            "busy",
            """SELECT w, topology, sum(times * pub_n) AS published, sum(times * got_n) AS delivered,
                sum(times * sent) AS sent, sum(times * bytes_out) AS bytes_out, sum(times * got) AS got,
                sum(times * bytes_in) AS bytes_in, max(cpu) AS cpu, max(greatest(bytes_out, bytes_in)) AS bytes,
                max(sent) AS most_sent, max(got) AS most_got
            FROM {work} GROUP BY w, topology""",
        ).collect()
        made: dict[int, dict[str, Any]] = {world.number: {} for world in self.worlds}
        for row in found:
            made[row["w"]][row["topology"]] = row
        return made

    # ── the gateways of a tree ──

    def gateways(self) -> dict[int, Any]:
        """What passes through them, and the busiest, by federation; only where anything does."""
        worlds = [w for w in self.worlds if w.scenario.everywhere and w.sites > 1]
        if not worlds:
            return {}
        self.rows("groups", "w l a times low high", ((w.number, *group) for w in worlds for group in w.groups()))
        self.rows("children", "w l a child number", ((w.number, *each) for w in worlds for each in w.children()))
        self.table(
            "hits",  # how many sites of a group have nodes that want the class of all sites
            """SELECT w, 1L AS l, c AS a, k, 1L AS inside FROM {far_sites} JOIN {worlds} USING (w)
            UNION ALL
            SELECT w, l, a, k, sum(inside) AS inside FROM (
                SELECT w, l, a, k, if(c < 0, if(low <= full AND full < high, 1L, 0L),
                    (least(high, full) - c + period - 1) div period - (least(low, full) - c + period - 1) div period
                ) AS inside
                FROM {groups} JOIN {far_sites} USING (w) JOIN {worlds} USING (w) WHERE l > 1
            ) WHERE inside > 0 GROUP BY w, l, a, k""",
            keep=True,
        )
        self.table(
            "ways",  # to how many nodes, or groups within it, an event goes that comes to a group
            """SELECT w, 1L AS l, c AS a, k, own AS ways FROM {far_sites}
            UNION ALL
            SELECT w, children.l, children.a, k, sum(number) AS ways
            FROM {children} JOIN {hits} USING (w) WHERE hits.l = children.l - 1 AND hits.a = children.child
            GROUP BY w, children.l, children.a, k""",
        )
        self.table(
            "insides",
            f"""SELECT w, l, a, role, {_both("sum(#) AS hit_#")},
                {_both("sum(if(inside = far_total.sites, #, 0)) AS all_#")},
                {_both("sum(# * ways) AS ways_#")}
            FROM {{hits}} JOIN {{ways}} USING (w, l, a, k) JOIN {{far_total}} USING (w, k) JOIN {{classes}} USING (k)
            GROUP BY w, l, a, role""",
        )
        self.table(
            "far_of",
            f"""SELECT w, role, {_both("sum(#) AS far_#")}
            FROM {{far_total}} JOIN {{classes}} USING (k) GROUP BY w, role""",
        )
        self.table(
            "flows",  # by the role that publishes; `here`: sites of the group that do, `there`: others
            f"""SELECT w, l, a, role, groups.times, {_both("far_#")},
                {_both("coalesce(hit_#, 0) AS hit_#")}, {_both("coalesce(all_#, 0) AS all_#")},
                {_both("coalesce(ways_#, 0) AS ways_#")},
                high - low - if(high > full AND role >= part, 1, 0) AS here,
                full + if(role < part, 1, 0) - (high - low - if(high > full AND role >= part, 1, 0)) AS there
            FROM {{groups}} JOIN {{far_of}} USING (w) JOIN {{worlds}} USING (w)
            LEFT JOIN {{insides}} USING (w, l, a, role)""",
            keep=True,
        )
        self.table(
            "through",
            f"""SELECT w, l, a, times, {_both("sum(here * (far_# - all_#) + there * hit_#) AS in_#")},
                {_both("sum(there * ways_#) AS down_#")}
            FROM {{flows}} JOIN {{worlds}} USING (w) WHERE l < height GROUP BY w, l, a, times""",
            keep=True,
        )
        self.table(
            "upward",
            f"""SELECT outside.w, inside.l, inside.a, outside.a AS parent,
                {_both("sum(inside.here * (outside.ways_# + outside.far_# - outside.all_# - inside.hit_#)) AS up_#")}
            FROM {{flows}} AS outside JOIN {{children}} AS children USING (w, l, a)
            JOIN {{flows}} AS inside ON inside.w = outside.w AND inside.l = children.l - 1 AND inside.a = children.child
                AND inside.role = outside.role
            GROUP BY outside.w, inside.l, inside.a, outside.a""",
        )
        costs = self.costs
        busiest = self.table(
            "busiest",
            f"""SELECT w, max({costs.forward!r}D * in_n + {costs.send!r}D * (down_n + up_n)) AS cpu,
                max(greatest(in_x, down_x + up_x)) AS bytes, max(down_n + up_n) AS most_sent, max(in_n) AS most_got
            FROM {{through}} JOIN {{upward}} USING (w, l, a) GROUP BY w""",
        )
        total = self.table("total", f"SELECT w, {_both('sum(times * in_#) AS in_#')} FROM {{through}} GROUP BY w")
        return {row["w"]: row for row in busiest.join(total, "w").collect()}

    # ── what each federation comes to ──

    def delays(self) -> Any:
        """How many events any other node wants, and until the last has them, added up."""
        send, hop, loss = (f"{cost!r}D" for cost in (self.costs.send, self.costs.hop, self.costs.loss))
        ways = "near + greatest(least(ways, far_sites) - 1, 0) * (2 * height - 3) + greatest(most - 1, 0)"
        return self.table(
            "delays",
            f"""SELECT w, sum(times * n) AS wanted, sum(times * n * wants) AS wants,
                sum(times * n * if(
                    total > own, {hop} * (2 * height - 1) + {send} * ({ways}), {hop} + {send} * (near - 1)
                )) AS tree,
                sum(times * n * {hop} * (3D - 2D * power(1D - {loss}, wants))) AS multicast
            FROM {{published}} JOIN {{worlds}} USING (w) WHERE wants > 0 GROUP BY w
            UNION ALL SELECT w, 0L, 0L, 0D, 0D FROM {{worlds}} ANTI JOIN {{published}} AS some
                ON worlds.w = some.w AND some.wants > 0""",
        )

    def grown(self, world: World, topology: Topology, nodes: Any, gateways: Any, delays: Any) -> Grown:
        row, costs = nodes[topology], self.costs
        messages, size, others, other = row["sent"], row["bytes_out"], 0, Load()
        wanted, wants = delays["wanted"], delays["wants"]
        one_by_one = costs.send * (wants - wanted)
        match topology:
            case "peer to peer":
                last = costs.hop * wanted + one_by_one
            case "router" | "centralised" | "centralised, filtered":
                out = nodes["peer to peer"]
                messages, size, others = messages + out["sent"], size + out["bytes_out"], 1
                each = costs.relay * out["sent"]
                other = Load(
                    cpu=each if topology == "router" else costs.forward * row["sent"] + costs.send * out["sent"],
                    bytes=max(row["bytes_out"], out["bytes_out"]),
                    sent=out["sent"],
                    received=row["sent"],
                )
                last = 2 * costs.hop * wanted + one_by_one
            case "tree":
                last, others = delays["tree"], world.gateways
                if gateways is not None:
                    # Each node gets a frame for what it wants, and so does each gateway on the way.
                    messages = row["got"] + gateways["in_n"]
                    size = row["bytes_in"] + gateways["in_x"]
                    other = Load(
                        cpu=gateways["cpu"],
                        bytes=gateways["bytes"],
                        sent=gateways["most_sent"],
                        received=gateways["most_got"],
                    )
            case _:
                last = delays["multicast"]
        return Grown(
            nodes=world.nodes,
            scenario=world.scenario.name,
            topology=topology,
            published=row["published"],
            wanted=wanted,
            delivered=row["delivered"],
            messages=messages,
            bytes=size,
            source_messages=row["sent"],
            source_bytes=row["bytes_out"],
            received=row["got"],
            others=others,
            node=Load(cpu=row["cpu"], bytes=row["bytes"], sent=row["most_sent"], received=row["most_got"]),
            other=other,
            latency=last / wanted if wanted else None,
            seconds=self.known[world.site].seconds,
        )


def _work(topology: Topology, costs: Costs) -> tuple[str, str, str, str]:
    """What a node does: frames and bytes sent, and received."""
    match topology:
        case "peer to peer" | "router":
            return "out_n", "out_x", "got_n", "got_x"
        case "centralised":
            return "pub_n", "pub_x", "got_n", "got_x"
        case "centralised, filtered":
            return "any_n", "any_x", "got_n", "got_x"
        case "tree":
            return "tree_n", "tree_x", "got_n", "got_x"
    # Datagrams that come: of all others, or of the site's and, for who is everywhere, of all.
    lost = f"{costs.loss!r}D"
    sent = f"any_n + {lost} * out_n"
    out = f"any_x + {costs.datagram} * any_n + {lost} * out_x"
    each = [
        f"if(member, site_{of} - any_{of}, 0) + if(far_member, all_{of} - site_{of}, 0)"
        if topology == "multicast by site"
        else f"if(member, all_{of} - any_{of}, 0)"
        for of in "nx"
    ]
    return sent, out, each[0], f"{each[1]} + {costs.datagram} * ({each[0]})"


__all__ = ["FANOUT", "grow", "grow_each"]
