"""What passes between nodes over Zenoh is for the two of them: someone who has a certificate of the same authority, and
no rule that allows anything, listens to all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Event, Network, Node, Rule, Security, u32
from headwater.federation.certificates import issue, make_authority
from headwater.federation.log_client import LogClient
from tests.federation.eavesdropper import eavesdropper
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

CHANNEL = "zeta.plans.secret"
TEXT = "XYZZY-the-drop-is-at-noon"
PARAM = "PLUGH-who-asks-for-this"
SOURCE = "omega-source"
FIELD = "codeword"
TLS = "tls/127.0.0.1:0"
RULES = (Rule("zeta.**", ["lab", "desk", "reader"]),)  # and nothing for anybody else


class Plan(Event, name="zeta.Plan"):
    number: u32
    codeword: str


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    for name in ("lab", "desk", "reader", "eve"):
        issue(folder, name)
    return folder


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def certified(folder: Path, name: str, rules: tuple[Rule, ...] = RULES) -> Security:
    return Security(
        certificate=folder / f"{name}.pem", key=folder / f"{name}.key", authority=folder / "authority.pem", rules=rules
    )


def secrets(*made: Node) -> list[str]:
    """What nobody else may read."""
    streams = [each for node in made for each in node.federation().streams]
    ports = [each.rpartition("/")[2] for each in streams]
    return [CHANNEL, "zeta", TEXT, TEXT[:9], PARAM, SOURCE, FIELD, *streams, *ports]


def exchange(lab: Node, desk: Node, count: int = 20) -> Log:
    """Events, with an interest that has parameters and one that is a program."""
    log = Log()
    source = lab.channel(CHANNEL, Plan).source(SOURCE)
    see(desk, lab)
    channel = desk.channel(CHANNEL, Plan)
    channel.subscribe(log, "codeword != :who", params={"who": PARAM})
    channel.subscribe(Log(), f"codeword == '{PARAM}' or number % 2 == 1")
    assert desk.ready(GUARD)
    for number in range(count):
        source.publish(number=number, codeword=f"{TEXT} {number}")
    log.wait(count)
    assert log.field("number") == list(range(count))
    return log


@pytest.mark.parametrize("direct", [None, ()], ids=["streams", "routed"])
def test_an_insider_without_rules_reads_nothing(make: Nodes, authority: Path, direct: tuple[str, ...] | None) -> None:
    lab = make("lab", network=Network(listen=TLS, direct=direct, security=certified(authority, "lab")))
    with eavesdropper(lab.endpoints[0], certified(authority, "eve")) as eve:
        desk = make(
            "desk", network=Network(connect=lab.endpoints, direct=direct, security=certified(authority, "desk"))
        )
        make.together(lab, desk)
        exchange(lab, desk)
        lab.channel("zeta.more.secret", Plan).source("another")
        assert desk.until(lambda: desk.remote_sources("zeta.more.secret") == ["another@lab"], GUARD)
        lab.federation(), desk.federation()
        desk.remote_counts(next(iter(desk.subscriptions.values())))
        kinds = {"alive", "roll", "news", "ask"} | ({"post"} if direct == () else set())
        eventually(lambda: kinds <= eve.kinds(), f"{kinds} heard")
        assert not eve.heard(*secrets(lab, desk))
        assert eve.heard("lab.") and eve.heard("desk.")  # who is there is no secret


def test_an_insider_reads_nothing_of_logs(make: Nodes, authority: Path, tmp_path: Path) -> None:
    lab = make("lab", network=Network(listen=TLS, security=certified(authority, "lab")), log=tmp_path / "log")
    source = lab.channel(CHANNEL, Plan).source(SOURCE)
    for number in range(20):
        source.publish(number=number, codeword=f"{TEXT} {number}")
    with eavesdropper(lab.endpoints[0], certified(authority, "eve")) as eve:
        with LogClient(lab.endpoints[0], security=certified(authority, "reader")) as client:
            assert client.channels() == [CHANNEL]
            (span,) = client.sources(CHANNEL)
            read = [batch.num_rows for batch in client.read(CHANNEL, "lab", SOURCE)]
            assert sum(read) == span.events == 20
        eventually(lambda: "log" in eve.kinds(), "questions about logs heard")
        assert not eve.heard(*secrets(lab))
