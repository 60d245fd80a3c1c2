"""What a node says of its federation: who is there, what crosses, where interests run, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import headwater
from headwater import Event, Node, u32
from headwater.federation.network import Budget, Network
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

CHANNEL = "ie.tcd.sighting"
COUNTER = "{ static int n = 0; n = n + 1; return n % 10 == 0; }"


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float
    room: str | None = None


def pair(make: Nodes, **options: Any) -> tuple[Node, Node, Any]:
    lab, desk = make("lab", **options), make("desk")
    source = lab.channel(CHANNEL, Sighting).source("east")
    make.together()
    see(desk, lab)
    return lab, desk, source


def test_a_node_alone_has_no_federation_to_report() -> None:
    with Node("alone") as node:
        report = node.federation_report()
        assert str(report) == "node alone has no network" and report.peers == ()
        subscription = node.channel(CHANNEL, Sighting).subscribe(print)
        assert node.remote_counts(subscription) == []


def test_what_crosses_is_reported_at_both_ends() -> None:
    with nodes() as make:
        lab, desk, source = pair(make)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, "badge < 100", name="few")
        make.ready(desk)
        for badge in range(9_999, -1, -1):
            source.publish(badge=badge, level=0.0)
        log.wait(100)
        make.flush()

        (counts,) = desk.remote_counts(subscription)
        assert (counts.node, counts.channel, counts.interest) == ("lab", CHANNEL, "badge < 100")
        assert (counts.evaluated, counts.passed, counts.undecided, counts.crossed) == (10_000, 100, 0, 100)
        assert "10,000 evaluated at the source, 100 crossed" in str(counts)

        there, here = lab.federation_report().peer("desk"), desk.federation_report().peer("lab")
        (lane,) = there.lanes
        (remote_source,) = here.stand_ins
        assert (lane.channel, lane.source, lane.sent, lane.waiting, lane.kept, lane.dropped) == (
            CHANNEL, "east", 100, 0, 0, 0,
        )  # fmt: skip
        assert (remote_source.channel, remote_source.source, remote_source.received, remote_source.lost) == (
            CHANNEL,
            "east",
            100,
            0,
        )
        assert remote_source.last == 10_000
        assert there.link == here.link == "tcp" and there.away is None and there.trouble is None
        assert there.frames_out == here.frames_in > 0
        eventually(
            lambda: lab.federation_report().peer("desk").bytes_out == desk.federation_report().peer("lab").bytes_in
        )
        assert desk.federation_report().peer("lab").bytes_in > 100 * 20


def test_where_interests_run_and_why() -> None:
    with nodes() as make:
        lab, desk, source = pair(make)
        channel, log = desk.channel(CHANNEL), Log()
        wide = channel.subscribe(log, "level > 0.5", name="wide")
        narrow = channel.subscribe(log, "level > 0.7", name="narrow")
        tenth = channel.subscribe(log, COUNTER, name="tenth")
        make.ready(desk)
        where = {name: sub.report().placements[0] for name, sub in (("w", wide), ("n", narrow), ("t", tenth))}
        assert {each.source for each in where.values()} == {"east@lab"}
        assert (where["w"].how, where["w"].why) == ("source and destination", "filtered there, decided here")
        assert where["n"].how == "destination" and "covers it" in where["n"].why
        assert where["t"].how == "source" and "state" in where["t"].why

        for badge in range(100):
            source.publish(badge=badge, level=badge / 100)
        make.flush()
        (counts,) = desk.remote_counts(tenth)
        assert (counts.evaluated, counts.passed) == (100, 10) and tenth.counts.delivered == 10
        (counts,) = desk.remote_counts(narrow)  # the wide one was evaluated in its place
        assert counts.evaluated == 100 and counts.passed is None

        asked = {each.interest: each for each in desk.federation_report().peer("lab").asked}
        assert asked["level > 0.7"].where == "destination" and asked["level > 0.5"].points == {"east": 0}
        installed = {each.interest: each for each in lab.federation_report().peer("desk").installed}
        assert set(installed) == {"level > 0.5", COUNTER}
        assert installed[COUNTER].tagged and installed[COUNTER].cost > installed["level > 0.5"].cost > 0
        assert lab.federation_report().peer("desk").cost == sum(each.cost for each in installed.values())


def test_counts_begin_when_an_interest_is_installed_and_outlast_sources() -> None:
    with nodes() as make:
        lab, desk, source = pair(make)
        channel, log = desk.channel(CHANNEL), Log()
        channel.subscribe(log, "badge >= 20", name="first")
        make.ready(desk)
        for badge in range(50):
            source.publish(badge=badge, level=0.0)
        second = channel.subscribe(log, "room == 'G12'", name="second")
        make.ready(desk)
        other = lab.channel(CHANNEL).source("west")
        see(desk, lab)
        for badge in range(30):
            source.publish(badge=badge, level=0.0, room="G12" if badge % 3 else None)
            other.publish(badge=badge, level=0.0, room="F1")
        other.close()
        assert desk.until(lambda: desk.remote_sources(CHANNEL) == ["east@lab"], GUARD)
        make.flush()
        (counts,) = desk.remote_counts(second)
        assert (counts.evaluated, counts.undecided) == (60, 10)


def test_an_interest_with_state_is_never_judged_by_half_of_the_events() -> None:
    with nodes() as make:
        _, desk, source = pair(make)
        channel, log, tenths = desk.channel(CHANNEL), Log(), Log()
        channel.subscribe(log, "badge % 2 == 0")
        make.ready(desk)
        for badge in range(5000):  # on their way, those of them that the other one lets through
            source.publish(badge=badge, level=0.0)
        channel.subscribe(tenths, COUNTER)
        make.ready(desk)
        for badge in range(100):
            source.publish(badge=badge, level=0.0)
        make.flush()
        assert tenths.field("badge") == list(range(9, 100, 10))


def test_what_a_source_has_sent_before_its_end_is_acknowledged_when_it_is_done_with() -> None:
    with nodes() as make:
        lab, desk, source = pair(make)
        pulled = desk.channel(CHANNEL).subscribe()
        make.ready(desk)
        for badge in range(10):
            source.publish(badge=badge, level=0.0)
        source.close()
        assert desk.until(lambda: not desk.remote_sources(CHANNEL), GUARD)
        assert [pulled.get(GUARD).badge for _ in range(10)] == list(range(10))
        assert lab.flush(GUARD)
        assert all(lane.waiting == 0 for lane in lab.federation_report().peer("desk").lanes)


def test_a_refused_interest_says_so_in_the_reports() -> None:
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", budget=Budget(total=20, each=10))
        lab, desk, _ = pair(make, network=network)
        costly = " and ".join(f"badge % {n} != {n - 1}" for n in range(2, 30))
        desk.channel(CHANNEL).subscribe(Log(), costly, name="costly")
        make.ready(desk)
        (asked,) = desk.federation_report().peer("lab").asked
        assert asked.where == "refused" and "too costly" in asked.why
        assert lab.federation_report().peer("desk").installed == () and lab.federation_report().budget == (20, 10)
        assert "too costly" in str(desk.federation_report())


def test_the_routed_path_and_why() -> None:
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", direct=())
        _, desk, source = pair(make, network=network)
        log = Log()
        desk.channel(CHANNEL).subscribe(log)
        make.ready(desk)
        source.publish(badge=1, level=0.0)
        log.wait(1)
        eventually(lambda: desk.federation_report().peer("lab").link == "zenoh")
        report = desk.federation_report()
        assert report.peer("lab").trouble and "routed by Zenoh" in str(report)
        assert report.messages["post"]["messages_in"] > 0


def test_a_node_that_goes_is_away_while_something_is_kept_for_it() -> None:
    with nodes() as make:
        lab, desk, _ = pair(make)
        report = lab.federation_report()
        assert report.peer("desk").away is None and report.peer(desk.id).name == "desk"
        desk.close()
        assert lab.until(lambda: not lab.peers, GUARD)
        eventually(lambda: all(each.away is not None for each in lab.federation_report().peers))


def test_a_report_is_for_people_and_for_programs() -> None:
    with nodes() as make:
        lab, desk, source = pair(make)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, "badge > 1")
        make.ready(desk)
        source.publish(badge=2, level=0.0)
        log.wait(1)
        make.flush()
        shown = str(desk.federation_report())
        for part in (f"node desk ({desk.id}) in federation headwater", "1 other node", "direct stream (tcp)",
                     "sources there, as they arrive here", "this node's interests at other nodes",
                     "filtered there, decided here", "messages by Zenoh"):  # fmt: skip
            assert part in shown, part
        shown = str(lab.federation_report())
        for part in ("sources here, on their way", "budget of a channel: 1,000,000, of one node 250,000", "badge > 1"):
            assert part in shown, part
        assert max(map(len, shown.splitlines())) <= 120
        plain = json.loads(json.dumps(lab.federation_report().to_dict()))
        assert plain["peers"][0]["name"] == "desk" and plain["peers"][0]["installed"][0]["interest"] == "badge > 1"


def test_without_a_network_neither_zenoh_nor_cryptography_is_imported() -> None:
    program = """
import sys, headwater
with headwater.Node() as node:
    node.channel("a", "n: u32").subscribe(print)
print(sorted({"zenoh", "cryptography"} & set(sys.modules)))
from headwater.network import Budget
from headwater.security import Rule, Security
print(headwater.Network.__name__, Security.__name__, Rule.__name__, Budget.__name__)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert ran.stdout.splitlines() == ["[]", "Network Security Rule Budget"]


def test_everything_that_is_promised_is_there() -> None:
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None
    assert set(headwater.__all__) <= set(dir(headwater))
    try:
        headwater.nothing_of_the_kind  # noqa: B018
    except AttributeError as error:
        assert "nothing_of_the_kind" in str(error)
    else:
        raise AssertionError("it should not be there")
