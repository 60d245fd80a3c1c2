"""Reading the logs of other nodes: what is there, ranges, interests that run there, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from secrets import token_bytes
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zenoh
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater
from headwater import Event, Interest, u32
from headwater.errors import ChannelError, ClosedError, ConfigError, FederationError, SecurityError, Unreachable
from headwater.federation.logs.client import LogClient
from headwater.federation.logs.server import LogServer
from headwater.federation.network import Budget, Network
from headwater.federation.node import Node
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.rules import Rule
from headwater.federation.security.settings import Security
from headwater.federation.wire import log_requests as log_messages
from headwater.federation.wire.log_requests import Logged, Read
from headwater.logs import LogFiles, LogReader
from headwater.store.log import retention
from tests.effort import examples
from tests.federation import hostile_arrow
from tests.federation.nodes import eventually, nodes
from tests.federation.nursery import Popen

Lab = tuple[Node, Node, LogClient]
CHANNEL = "ie.tcd.sighting"
COUNT = 5_000
LOG_COLUMNS = ["event_node", "event_source", "event_seq", "event_time"]


class Sighting(Event, name="test.Sighting"):
    badge: u32
    level: float
    room: str
    note: str | None = None


class Alarm(Event, name="test.Alarm"):
    badge: u32
    twice: float


def sighting(n: int) -> dict[str, Any]:
    return {"badge": n % 97, "level": n * 7919 % 1000 / 1000, "room": f"room {n % 13}", "note": None if n % 3 else "x"}


def fill(node: Node, source: str = "st", count: int = COUNT) -> list[dict[str, Any]]:
    rows = [sighting(n) for n in range(1, count + 1)]
    made = node.channel(CHANNEL, Sighting).source(source)
    for start in range(0, count, 700):
        made.publish_many([Sighting(**row) for row in rows[start : start + 700]])
    return rows


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def seqs(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [seq for batch in batches for seq in batch.column("event_seq").to_pylist()]


def where(condition: str, **options: Any) -> Interest:
    return Interest(condition, Sighting, **options)


def doubled(event: Any) -> Any:
    if event.level > 0.9:
        return Alarm(badge=event.badge, twice=event.level * 2)
    return None


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes with logs, and a client that is connected to the first."""
    folder = tmp_path_factory.mktemp("logs")
    with nodes() as made:
        alpha, beta = made("alpha", log=folder / "alpha"), made("beta", log=folder / "beta")
        made.together()
        fill(alpha)
        fill(beta, "st", 100)
        fill(beta, "other", 10)
        with LogClient(alpha.endpoints[0]) as client:
            yield alpha, beta, client


@pytest.fixture(scope="module")
def clients(lab: Lab) -> Iterator[dict[str, LogClient]]:
    """By how what they read is compressed."""
    with ExitStack() as made:
        place = lab[0].endpoints[0]
        yield {each: made.enter_context(LogClient(place, compress=each)) for each in ("", "lz4", "zstd")}


# ── what is there ──


def test_all_nodes_are_asked_through_one(lab: Lab) -> None:
    alpha, _, client = lab
    assert client.channels() == [CHANNEL]
    found = {(span.node, span.source): (span.first, span.last, span.events) for span in client.sources(CHANNEL)}
    assert found == {("alpha", "st"): (1, COUNT, COUNT), ("beta", "other"): (1, 10, 10), ("beta", "st"): (1, 100, 100)}
    type = client.type(CHANNEL)
    assert type is not None and type.record == headwater.event_type(Sighting).record
    assert client.schema(CHANNEL).names == [*LOG_COLUMNS, "badge", "level", "room", "note"]
    assert set(client.logs(CHANNEL)) == {"alpha", "beta"} and len(set(client.logs(CHANNEL).values())) == 2
    assert alpha.peers == ["beta"], "a client is no node"


def test_nodes_that_are_not_connected_with_each_other_are_all_read(tmp_path: Path) -> None:
    """Zenoh connects a client to one of the places that it is given; the others' events never came."""
    with nodes() as made:
        apart = [made(name, listen="tcp/127.0.0.1:0", log=tmp_path / name) for name in ("alpha", "beta", "gamma")]
        for node in apart:
            fill(node, count=10)
        places = [node.endpoints[0] for node in apart]
        with LogClient(places) as client:
            assert client.channels() == [CHANNEL]
            spans = client.sources(CHANNEL)
            assert [(span.node, span.last) for span in spans] == [("alpha", 10), ("beta", 10), ("gamma", 10)]
            for span in spans:
                assert seqs(client.read(CHANNEL, span.node, span.source)) == list(range(1, 11))
        assert not any(node.peers for node in apart), "reading from both does not introduce them"
        apart[1].close()
        with pytest.raises(Unreachable, match=f"answers at {places[1]}"):
            LogClient(places)


def test_a_place_of_another_federation_is_named(tmp_path: Path) -> None:
    """Somebody answers there, but nobody whose log is meant: it was left out without a word."""
    with nodes() as made:
        mine = made("alpha", listen="tcp/127.0.0.1:0", log=tmp_path / "alpha")
        other = made("beta", listen="tcp/127.0.0.1:0", log=tmp_path / "beta", federation="other")
        for node in (mine, other):
            fill(node, count=10)
        for places in ([mine.endpoints[0], other.endpoints[0]], [other.endpoints[0]]):
            with LogClient(places) as client, pytest.raises(Unreachable, match=f"reached at {other.endpoints[0]}"):
                client.sources(CHANNEL)


def test_a_node_that_is_reached_by_two_places_is_read_once(lab: Lab) -> None:
    alpha, beta, _ = lab
    with LogClient([alpha.endpoints[0], beta.endpoints[0]]) as client:
        assert [(span.node, span.source) for span in client.sources(CHANNEL)] == [
            ("alpha", "st"), ("beta", "other"), ("beta", "st")
        ]  # fmt: skip
        assert seqs(client.read(CHANNEL, "beta", "st")) == list(range(1, 101))
    assert alpha.peers == ["beta"]


def test_one_of_them_that_ends_is_named_when_it_is_missed(tmp_path: Path) -> None:
    with nodes() as made:
        alpha, beta = (made(name, listen="tcp/127.0.0.1:0", log=tmp_path / name) for name in ("alpha", "beta"))
        fill(alpha, count=5)
        fill(beta, count=5)
        places = [alpha.endpoints[0], beta.endpoints[0]]
        with LogClient(places) as client:
            assert len(client.sources(CHANNEL)) == 2
            beta.close()

            def missed() -> bool:
                try:
                    client.sources(CHANNEL)
                except Unreachable as error:
                    return places[1] in str(error)
                return False

            eventually(missed)


@pytest.mark.parametrize("compress", ["", "zstd"])
@pytest.mark.parametrize("name", hostile_arrow.STREAMS)
def test_pages_that_ask_for_more_memory_than_they_are(
    lab: Lab, clients: dict[str, LogClient], monkeypatch: pytest.MonkeyPatch, name: str, compress: str
) -> None:
    """A node with a certificate may send anything: it is refused, and reading goes on when the node is honest again."""
    page, rows = hostile_arrow.STREAMS[name](), log_messages.PAGE_ROWS + 1
    with monkeypatch.context() as patched:
        patched.setattr("headwater.federation.logs.server._packed", lambda *_: (page, rows))
        with pytest.raises(FederationError, match="its events cannot be read: expected"):
            list(clients[compress].read(CHANNEL, "alpha", "st"))
    assert len(seqs(clients[compress].read(CHANNEL, "alpha", "st", after=COUNT - 10))) == 10


def test_who_does_not_answer_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha, beta, _ = lab
    monkeypatch.setattr("headwater.federation.logs.client.LISTING_SECONDS", 1.0)
    config = zenoh.Config.from_json5(f'{{mode: "client", connect: {{endpoints: ["{alpha.endpoints[0]}"]}}}}')
    held: list[Any] = []
    with zenoh.open(config) as stranger, LogClient(alpha.endpoints[0]) as client:
        with stranger.declare_queryable("headwater/headwater/log/somebody", held.append):
            sources = client.sources

            def refused() -> str:
                try:
                    sources(CHANNEL)
                except Unreachable as error:
                    return str(error)
                return ""

            eventually(refused)
            said = refused()
            assert alpha.endpoints[0] in said and alpha.id in said and beta.id in said and "somebody else" in said
            with stranger.liveliness().declare_token("headwater/headwater/alive/somebody/1"):
                eventually(lambda: "nothing came from somebody" in refused())
        held.clear()
        eventually(lambda: not refused())


def test_what_retention_has_removed_is_told_by_the_reading(tmp_path: Path) -> None:
    with nodes() as made:
        node = made("alpha", log=tmp_path)
        fill(node, count=100)
        assert node._logs is not None
        found = node._logs.known(CHANNEL)
        assert found is not None
        found.roll(wait=True)
        node.channel(CHANNEL).sources["st"].publish(Sighting(**sighting(101)))
        with LogClient(node.endpoints[0]) as client:
            whole = client.read(CHANNEL, "alpha", "st")
            assert len(seqs(whole)) == 101 and whole.removed == []
            retention.apply(tmp_path, CHANNEL, "alpha", keep_bytes=0)
            rest = client.read(CHANNEL, "alpha", "st", 40, 101, interest=where("level >= 0"))
            assert seqs(rest) == [101] and rest.removed == [(41, 100)]
            found.roll(wait=True)
            retention.apply(tmp_path, CHANNEL, "alpha", keep_bytes=0)
            gone = client.read(CHANNEL, "alpha", "st", 40, 101)
            assert seqs(gone) == [] and gone.removed == [(41, 101)]


def test_a_channel_that_nobody_has(lab: Lab) -> None:
    with pytest.raises(ChannelError, match=r"ie.tcd.nothing.*there are ie.tcd.sighting"):
        lab[2].sources("ie.tcd.nothing")


def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match="no node of federation"):
        LogClient("tcp/127.0.0.1:1")
    with pytest.raises(ConfigError, match="connect"):
        LogClient()
    with pytest.raises(ConfigError, match="compress"):
        LogClient("tcp/127.0.0.1:1", compress="rar")


def test_a_node_without_a_log_does_not_answer() -> None:
    with nodes() as made:
        node = made("bare")
        node.channel(CHANNEL, Sighting).source("st").publish(Sighting(**sighting(1)))
        with LogClient(node.endpoints[0]) as client:
            assert client.channels() == []
            with pytest.raises(ChannelError, match="none at all"):
                client.type(CHANNEL)
        assert node.log_reads.questions == 0


# ── reading ──


def test_everything_in_order(lab: Lab) -> None:
    client = lab[2]
    reading = client.read(CHANNEL, "alpha", "st", max_bytes=20_000)
    rows = rows_of(reading)
    assert reading.counts.pages > 5 and reading.counts.rows == COUNT and reading.position == COUNT
    assert [row["event_seq"] for row in rows] == list(range(1, COUNT + 1))
    assert {(row["event_node"], row["event_source"]) for row in rows} == {("alpha", "st")}
    assert [{name: row[name] for name in ("badge", "level", "room", "note")} for row in rows] == [
        sighting(n) for n in range(1, COUNT + 1)
    ]


@settings(deadline=None, max_examples=examples(40))
@given(
    after=st.integers(0, COUNT),
    size=st.integers(0, COUNT),
    page=st.sampled_from([1, 100, 5_000, 100_000, 4 << 20]),
    limit=st.none() | st.sampled_from([0.0, 0.5, 0.9, 0.99, 2.0]),
    columns=st.none() | st.lists(st.sampled_from([*LOG_COLUMNS, "badge", "level"]), min_size=1, unique=True),
    compress=st.sampled_from(["", "lz4", "zstd"]),
)
def test_any_range(
    clients: dict[str, LogClient],
    after: int,
    size: int,
    page: int,
    limit: float | None,
    columns: Any,
    compress: str,
) -> None:
    upto = min(COUNT, after + (size if page > 1 else size % 20))
    client = clients[compress]
    interest = None if limit is None else where("level > :limit", params={"limit": limit})
    found = client.read(CHANNEL, "alpha", "st", after, upto, interest=interest, columns=columns, max_bytes=page)
    rows = rows_of(found)
    wanted = [n for n in range(after + 1, upto + 1) if limit is None or sighting(n)["level"] > limit]
    assert len(rows) == len(wanted) == found.counts.rows
    for name in columns or ["event_seq", "badge"]:
        if name == "event_seq":
            assert [row[name] for row in rows] == wanted
        elif name in ("badge", "level"):
            assert [row[name] for row in rows] == [sighting(n)[name] for n in wanted]
    assert found.schema.names == (columns or client.schema(CHANNEL).names)
    assert all(list(row) == found.schema.names for row in rows[:1])
    assert found.counts.evaluated >= upto - after


def test_the_interest_runs_there(lab: Lab) -> None:
    alpha, _, client = lab
    before, received = alpha.log_reads, client.counts
    reading = client.read(CHANNEL, "alpha", "st", interest=where("level > 0.99"))
    found = seqs(reading)
    assert found == [n for n in range(1, COUNT + 1) if sighting(n)["level"] > 0.99]
    after = alpha.log_reads
    assert after.rows - before.rows == len(found) and after.evaluated - before.evaluated == COUNT
    assert after.bytes - before.bytes == reading.counts.bytes == client.counts.bytes - received.bytes
    whole = client.read(CHANNEL, "alpha", "st")
    assert len(seqs(whole)) == COUNT and reading.counts.bytes < whole.counts.bytes / 10


def test_a_transformation_and_what_is_known_of_an_event(lab: Lab) -> None:
    client = lab[2]
    alarm = Interest(doubled, Sighting, output=Alarm)
    rows = rows_of(client.read(CHANNEL, "alpha", "st", 0, 1000, interest=alarm))
    wanted = [n for n in range(1, 1001) if sighting(n)["level"] > 0.9]
    assert [row["event_seq"] for row in rows] == wanted
    assert list(rows[0]) == [*LOG_COLUMNS, "badge", "twice"]
    assert [row["twice"] for row in rows] == [sighting(n)["level"] * 2 for n in wanted]
    about = where("meta.seq > 10 and meta.source = 'st' and meta.node = 'beta'")
    assert seqs(client.read(CHANNEL, "beta", "st", interest=about)) == list(range(11, 101))
    assert seqs(client.read(CHANNEL, "beta", "other", interest=about)) == []


def test_what_is_published_meanwhile_is_there(lab: Lab) -> None:
    _, beta, client = lab
    source = beta.channel(CHANNEL).source("late")
    for n in range(1, 20):
        source.publish(Sighting(**sighting(n)))
        last = next(span.last for span in client.sources(CHANNEL) if span.source == "late")
        assert last == n and seqs(client.read(CHANNEL, "beta", "late", n - 1, n)) == [n]


def test_a_log_is_read_in_one_way_wherever_it_is(tmp_path: Path) -> None:
    def whole(log: LogReader) -> Any:
        """All that a reader says, by a program that does not know which one it is."""
        [channel] = log.channels()
        every = log.read(channel)
        loud = log.read(channel, interest=where("level > 0.5"), columns=["event_source", "event_seq"])
        some = log.read(channel, source="b", after=3, upto=8)
        ended = [rows_of(each) for each in (every, loud, some)]
        return ended, log.sources(channel), log.type(channel), log.schema(channel), every.removed, some.removed

    with nodes() as made:
        node = made("lab", log=tmp_path)
        channel = node.channel(CHANNEL, Sighting)
        for name in "ba":
            channel.source(name).publish_many([Sighting(**sighting(n)) for n in range(1, 11)])
        with LogClient(node.endpoints[0]) as client:
            there, here = whole(client), whole(LogFiles(tmp_path))
    assert there == here
    every, loud, some = there[0]
    assert [(row["event_source"], row["event_seq"]) for row in every] == [(s, n) for s in "ab" for n in range(1, 11)]
    assert [row["event_seq"] for row in some] == [4, 5, 6, 7, 8]
    assert [(row["event_source"], row["event_seq"]) for row in loud] == [
        (s, n) for s in "ab" for n in range(1, 11) if sighting(n)["level"] > 0.5
    ]


def test_many_readers(lab: Lab) -> None:
    client = lab[2]

    def read(n: int) -> int:
        return len(seqs(client.read(CHANNEL, "alpha", "st", interest=where(f"badge = {n}"), max_bytes=10_000)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(24))) == [sum(m % 97 == n for m in range(1, COUNT + 1)) for n in range(24)]


def test_bytes(tmp_path: Path) -> None:
    with nodes() as made:
        node = made("raw", log=tmp_path)
        node.channel("ie.raw", bytes).source("st").publish_many([b"a", b"", b"\x00" * 70_000])
        with LogClient(node.endpoints[0]) as client:
            assert client.type("ie.raw") is None
            rows = rows_of(client.read("ie.raw", "raw", "st", max_bytes=100))
            assert [row["data"] for row in rows] == [b"a", b"", b"\x00" * 70_000]
            with pytest.raises(FederationError, match="carries bytes"):
                rows_of(client.read("ie.raw", "raw", "st", interest=Interest("a = 1", "a: i32")))


# ── types that change ──


def test_a_type_that_has_evolved(tmp_path: Path) -> None:
    with Node("alpha", log=tmp_path / "a") as first:
        source = first.channel(CHANNEL, "badge: u8, level: f32").source("st")
        source.publish_many([{"badge": n, "level": 1} for n in range(5)])
    with nodes() as made:
        alpha, beta = made("alpha", log=tmp_path / "a"), made("beta", log=tmp_path / "b")
        made.together()
        new = "badge: u32, level: f64, room: text"
        alpha.channel(CHANNEL, new).source("st").publish_many([{"badge": 70_000, "level": 2, "room": "x"}])
        beta.channel("ie.other", new).source("st")
        beta.channel(CHANNEL, "badge: u16, kind: text").source("st").publish_many([{"badge": 300, "kind": "k"}])
        with LogClient(alpha.endpoints[0]) as client:
            rows = rows_of(client.read(CHANNEL, "alpha", "st"))
            assert [row["badge"] for row in rows] == [0, 1, 2, 3, 4, 70_000]
            assert [row["room"] for row in rows] == [None] * 5 + ["x"]
            assert client.schema(CHANNEL).names == [*LOG_COLUMNS, "badge", "level", "room", "kind"]
            (other,) = rows_of(client.read(CHANNEL, "beta", "st"))
            assert (other["badge"], other["kind"], other["room"]) == (300, "k", None)
            interest = Interest("badge >= 3 and (room is null or room = 'x')", client.type(CHANNEL))
            assert seqs(client.read(CHANNEL, "alpha", "st", interest=interest)) == [4, 5, 6]
            assert seqs(client.read(CHANNEL, "beta", "st", interest=interest)) == [1]
            named = Interest("room = 'x'", "badge: u32, level: f64, room: text")
            assert seqs(client.read(CHANNEL, "alpha", "st", interest=named)) == [6]
            assert seqs(client.read(CHANNEL, "beta", "st", interest=named)) == []


# ── what is refused ──


def test_ranges_that_are_not_there(lab: Lab) -> None:
    client = lab[2]
    with pytest.raises(FederationError, match=f"up to {COUNT}, where its log ends, found {COUNT + 1}"):
        rows_of(client.read(CHANNEL, "alpha", "st", 0, COUNT + 1))
    with pytest.raises(FederationError, match="has no source 'nobody'"):
        rows_of(client.read(CHANNEL, "alpha", "nobody"))
    with pytest.raises(FederationError, match="found one after 7000"):
        rows_of(client.read(CHANNEL, "alpha", "st", 7000))
    with pytest.raises(Unreachable, match="node 'gamma'"):
        rows_of(client.read(CHANNEL, "gamma", "st"))
    with pytest.raises(headwater.HeadwaterError, match="columns: expected some of"):
        client.read(CHANNEL, "alpha", "st", columns=["colour"])
    assert rows_of(client.read(CHANNEL, "alpha", "st", 70, 70)) == []


def test_an_interest_with_state_is_refused(lab: Lab) -> None:
    stateful = Interest("{ static int n = 0; n = n + 1; return n % 2 == 0; }", Sighting)
    with pytest.raises(FederationError, match="with state cannot be run over part of a log"):
        rows_of(lab[2].read(CHANNEL, "alpha", "st", interest=stateful))


def test_what_costs_too_much_is_refused(tmp_path: Path) -> None:
    with nodes() as made:
        network = Network(listen="tcp/127.0.0.1:0", budget=Budget(each=20))
        node = made("dear", network=network, log=tmp_path, listen=None)
        fill(node, count=10)
        with LogClient(node.endpoints[0]) as client:
            assert len(seqs(client.read(CHANNEL, "dear", "st", interest=where("level > 0")))) == 10
            long = where(" or ".join(f"room = 'room {n}'" for n in range(50)))
            with pytest.raises(FederationError, match="too costly"):
                rows_of(client.read(CHANNEL, "dear", "st", interest=long))
        assert node.log_reads.refused == 1


def test_the_right_to_subscribe_and_to_install(tmp_path: Path) -> None:
    rules = [
        Rule("**", "user:node", may=("advertise", "subscribe", "install")),
        Rule("ie.tcd.**", "user:ann", may=("subscribe",)),
        Rule("**", "user:bob", may=("subscribe", "install")),
    ]
    users = {"node": "n", "ann": "a", "bob": "b", "eve": "e"}
    with nodes() as made:
        node = made("safe", security=Security(user="node", password="n", users=users, rules=rules), log=tmp_path)
        fill(node, count=10)
        node.channel("ie.secret", Sighting).source("st").publish(Sighting(**sighting(1)))

        def client(user: str, password: str) -> LogClient:
            known = users | {user: password}
            security = Security(user=user, password=password, users=known, rules=[Rule("**", "user:node")])
            return LogClient(node.endpoints[0], security=security)

        code = where("level * 2 > 0")
        with client("ann", "a") as ann:
            assert ann.channels() == [CHANNEL]
            assert len(seqs(ann.read(CHANNEL, "safe", "st", interest=where("level > 0")))) == 10
            with pytest.raises(FederationError, match="not allowed to install code"):
                rows_of(ann.read(CHANNEL, "safe", "st", interest=code))
            with pytest.raises(FederationError, match=r"may not subscribe to ie\.secret"):
                ann.sources("ie.secret")
        with client("bob", "b") as bob:
            assert bob.channels() == ["ie.secret", CHANNEL]
            assert len(seqs(bob.read(CHANNEL, "safe", "st", interest=code))) == 10
            # What bob has had compiled is not ann's to use.
        with client("ann", "a") as ann, pytest.raises(FederationError, match="not allowed to install code"):
            rows_of(ann.read(CHANNEL, "safe", "st", interest=code))
        with client("eve", "e") as eve:
            assert eve.channels() == []
            with pytest.raises(FederationError, match="may not subscribe"):
                eve.type(CHANNEL)
        with pytest.raises(Unreachable, match="does not let this client in"):
            client("eve", "wrong")
        with pytest.raises(Unreachable, match="does not let this client in"):
            LogClient(node.endpoints[0])
        with (
            LogClient(
                node.endpoints[0],
                security=Security(user="bob", password="b", users=users, rules=[Rule("**", "user:ann")]),
            ) as careful,
            pytest.raises(SecurityError, match="may not advertise"),
        ):
            careful.sources(CHANNEL)


def test_clients_with_one_certificate(tmp_path: Path) -> None:
    make_authority(tmp_path)
    for name in ("safe", "spark"):
        issue(tmp_path, name)

    def security(name: str, who: str) -> Security:
        return Security(
            certificate=tmp_path / f"{name}.pem", key=tmp_path / f"{name}.key", authority=tmp_path / "authority.pem",
            rules=[Rule("**", who)],
        )  # fmt: skip

    with nodes() as made:
        node = made("safe", listen="tls/127.0.0.1:0", security=security("safe", "spark"), log=tmp_path / "log")
        fill(node, count=10)
        with (
            LogClient(node.endpoints[0], security=security("spark", "safe")) as first,
            LogClient(node.endpoints[0], security=security("spark", "safe")) as second,
        ):
            for client in (first, second, first, second):
                assert len(seqs(client.read(CHANNEL, "safe", "st", max_bytes=100))) == 10


def test_clients_of_one_user_do_not_shut_each_other_out(tmp_path: Path) -> None:
    with nodes() as made:
        node = made("open", log=tmp_path)
        fill(node, count=10)
        clients = [LogClient(node.endpoints[0]) for _ in range(3)]
        for client in (*clients, *reversed(clients)):
            assert len(seqs(client.read(CHANNEL, "open", "st"))) == 10
        for client in clients:
            client.close()
        with pytest.raises(ClosedError):
            clients[0].channels()


# ── hostile questions ──


def raw(client: LogClient, payload: bytes, node: str = "*") -> list[bytes]:
    """Whatever the nodes answer to these bytes, as they are."""
    session = client._live()[0]
    replies = session.get(
        f"headwater/headwater/log/{node}", payload=payload, target=zenoh.QueryTarget.ALL,
        consolidation=zenoh.ConsolidationMode.NONE, timeout=5.0,
    )  # fmt: skip
    return [bytes(each.ok.payload) if each.ok is not None else b"" for each in replies]


def boxed(client: LogClient, node: Node, sealed: bytes) -> bytes:
    """What the node answers to a question that is proper on the outside."""
    assert node._engine is not None
    (answer,) = raw(client, client._exchange.box(node._engine.keyring.exchange.public, sealed), node.id)
    maker, inner = client._exchange.unbox(answer)
    assert maker == node._engine.keyring.exchange.public
    return inner


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=40)
    | st.text("ab\0é"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = {
    "nonce": st.binary(min_size=15, max_size=17) | ANYTHING,
    "channel": st.sampled_from([CHANNEL, "", "..", "*", "a/b", "../../etc", "headwater.nodes", "x" * 300]) | ANYTHING,
    "source": st.sampled_from(["st", "", "\0", "x" * 255]) | ANYTHING,
    "after": st.sampled_from([0, -1, COUNT, 2**62, 2**63 - 1, 2**64 - 1]) | ANYTHING,
    "upto": st.sampled_from([None, 0, -1, COUNT, COUNT + 1, 2**63 - 1]) | ANYTHING,
    "program": st.sampled_from([None, b"", b"\x00" * 100, where("level > 0.5").dumps()]) | ANYTHING,
    "params": st.sampled_from([None, b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"a": 1})]) | ANYTHING,
    "fuel": st.sampled_from([None, 0, 1, 2**62]) | ANYTHING,
    "columns": st.sampled_from([None, [], ["badge", "badge"], ["event_seq"], ["no"], [""]]) | ANYTHING,
    "max_bytes": st.sampled_from([0, 1, 2**22, 2**40]) | ANYTHING,
    "compress": st.sampled_from(["", "lz4", "brotli"]) | ANYTHING,
}


@settings(deadline=None, max_examples=examples(100))
@given(question=st.fixed_dictionaries({}, optional=FIELDS), kind=st.sampled_from(["Read", "Read", "Logged", "Other"]))
def test_hostile_questions_are_answered_by_refusals(lab: Lab, question: dict[str, Any], kind: str) -> None:
    alpha, _, client = lab
    nonce = token_bytes(16)
    usual = {"type": kind, "nonce": nonce, "channel": CHANNEL, "source": "st", "after": 0}
    body = msgspec.msgpack.encode(usual | question)
    envelope, data = log_messages.split(boxed(client, alpha, client._sealer.seal(log_messages.KIND, body, to=alpha.id)))
    head = log_messages.head(client._verifier.open(envelope, expected_kind=log_messages.REPLY).body)
    assert head.digest == log_messages.digest(data)
    assert (head.error != "") or head.nonce == question.get("nonce", nonce)
    assert alpha._engine is not None and alpha._engine.fabric.failures["log"] == 0


@settings(deadline=None, max_examples=examples(50))
@given(payload=st.binary(max_size=400) | st.binary(max_size=100).map(lambda tail: b"HWE2" + tail))
def test_garbage(lab: Lab, payload: bytes) -> None:
    alpha, _, client = lab
    (answer,) = raw(client, payload, alpha.id)
    envelope, _ = log_messages.split(answer)
    assert log_messages.head(client._verifier.open(envelope, expected_kind=log_messages.REPLY).body).error


def test_replayed_misdirected_and_oversized_questions(lab: Lab) -> None:
    alpha, beta, client = lab

    def error(answer: bytes) -> str:
        opened = client._verifier.open(log_messages.split(answer)[0], expected_kind=log_messages.REPLY)
        return log_messages.head(opened.body).error

    question = msgspec.msgpack.encode(Read(token_bytes(16), CHANNEL, "st", 0))
    sealed = client._sealer.seal(log_messages.KIND, question, to=alpha.id)
    assert error(boxed(client, alpha, sealed)) == ""
    assert "was there before" in error(boxed(client, alpha, sealed))
    assert f"this node is '{beta.id}'" in error(boxed(client, beta, sealed))
    assert "expected an envelope of kind" in error(boxed(client, alpha, client._sealer.seal("ask", question)))
    in_the_clear = client._sealer.seal(log_messages.KIND, question, to=alpha.id)
    assert "expected an envelope of kind" in error(raw(client, in_the_clear, alpha.id)[0])
    assert alpha._engine is not None
    for_alpha = client._exchange.box(alpha._engine.keyring.exchange.public, in_the_clear)
    assert raw(client, for_alpha, beta.id) == [b""]  # it cannot even be opened
    assert raw(client, b"\x00" * (2 << 20), alpha.id) == [b""]
    assert client.channels() == [CHANNEL]


def test_a_forged_answer_is_not_taken(lab: Lab) -> None:
    alpha, beta, client = lab
    assert client.channels() == [CHANNEL]  # it has been told their keys
    assert alpha._engine is not None
    server, key = alpha.services[LogServer.name], alpha._engine.keyring.exchange.public
    assert isinstance(server, LogServer)

    def answer(question: Logged) -> bytes:
        sealed = client._sealer.seal(log_messages.KIND, msgspec.msgpack.encode(question), to=alpha.id)
        answered = server.answer(client._exchange.box(key, sealed))
        assert answered is not None
        return answered

    def changed(box: bytes, inner: Callable[[bytes], bytes]) -> bytes:
        """As only who has the keys of both could change it."""
        assert alpha._engine is not None
        return alpha._engine.keyring.exchange.box(client._exchange.public, inner(client._exchange.unbox(box)[1]))

    with pytest.raises(SecurityError, match="another's"):
        client._opened(answer(Logged(token_bytes(16))), Logged(token_bytes(16)), alpha.id)
    again = Logged(token_bytes(16))
    other = answer(again)
    with pytest.raises(SecurityError, match="was changed"):
        client._opened(changed(other, lambda inner: inner[:-1] + b"\xff"), again, alpha.id)
    with pytest.raises(SecurityError, match="somebody else"):
        client._opened(other, again, beta.id)
    for cut in (b"", other[:2], other[:40], other[:-1], b"\xff" * 100):
        with pytest.raises(FederationError):
            client._opened(cut, again, alpha.id)


# ── nodes that go, clients that stay ──

SERVER = """
import sys
from headwater.federation.node import Node
name, listen, log, channel, count = sys.argv[1:]
node = Node(name, listen=listen, log=log)
source = node.channel(channel, "badge: u32, level: f64").source("st")
source.publish_many([{"badge": n, "level": n} for n in range(int(count))])
print(node.endpoints[0], flush=True)
sys.stdin.readline()
"""


class Server:
    """A node with a log in a process of its own."""

    def __init__(self, name: str, listen: str, log: Path, count: int) -> None:
        self._process = Popen(
            [sys.executable, "-c", SERVER, name, listen, str(log), CHANNEL, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def test_a_node_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    server = Server("far", "tcp/127.0.0.1:0", tmp_path, 3_000)
    endpoint = server.endpoint
    try:
        client = LogClient.shared(endpoint)
        with LogClient.shared(endpoint, compress="lz4") as other:
            assert LogClient.shared([endpoint]) is client and other is not client
        (span,) = client.sources(CHANNEL)
        id = client.logs(CHANNEL)
        reading = client.read(CHANNEL, "far", "st", 0, span.last, max_bytes=5_000)
        found = [*next(reading).column("event_seq").to_pylist()]
        server.kill()
        with pytest.raises(Unreachable):
            for batch in reading:  # what was on its way may still come
                found += batch.column("event_seq").to_pylist()
        assert found == list(range(1, reading.position + 1)) and reading.position < 3_000
        server = Server("far", endpoint, tmp_path, 5)

        def back() -> bool:
            try:
                return client.sources(CHANNEL)[0].last == 3_005
            except (FederationError, ChannelError):
                return False

        eventually(back, "the node's return")
        assert LogClient.shared(endpoint) is client and client.logs(CHANNEL) == id
        found += seqs(reading)
        assert found == list(range(1, 3_001))
    finally:
        server.kill()


FORKED = """
import os, sys
from headwater.errors import FederationError
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.logs.client import LogClient
client = LogClient.shared(sys.argv[1])
assert client.channels()
child = os.fork()
if child == 0:
    try:
        LogClient.shared(sys.argv[1])
    except FederationError as error:
        try:
            client.channels()
        except FederationError:
            client.close()
            os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), client.channels())
"""


def test_a_forked_process_says_that_it_cannot(lab: Lab) -> None:
    path = str(Path(headwater.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", FORKED, lab[0].endpoints[0]], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["7", f"['{CHANNEL}']"], done.stderr
