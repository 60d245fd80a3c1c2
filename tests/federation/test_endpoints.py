"""Endpoints, as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.federation.logs.client import LogClient
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.settings import Security
from tests.federation.nodes import GUARD, Log, nodes
from tests.ports import free_port

FORMS = [
    ("127.0.0.1:{}", "tcp/127.0.0.1:{}"),
    ("localhost:{}", "tcp/localhost:{}"),
    ("tcp://127.0.0.1:{}", "tcp/127.0.0.1:{}"),
    ("TCP://127.0.0.1:{}/", "tcp/127.0.0.1:{}"),
    ("{}", "tcp/127.0.0.1:{}"),
    ("[::1]:{}", "tcp/[::1]:{}"),
    ("tcp://[::1]:{}", "tcp/[::1]:{}"),
    ("tcp/127.0.0.1:{}", "tcp/127.0.0.1:{}"),
]


@pytest.mark.parametrize(("written", "understood"), FORMS, ids=[written for written, _ in FORMS])
def test_nodes_listen_and_connect_where_they_are_told(written: str, understood: str) -> None:
    port = free_port("::1" if "::1" in written else "127.0.0.1")
    heard = Log()
    with nodes() as made:
        hall = made("hall", listen=written.format(port))
        desk = made("desk", connect=written.format(port))
        assert hall.endpoints == (understood.format(port),)
        desk.channel("door", "n: i64").subscribe(heard)
        source = hall.channel("door", "n: i64").source()
        made.ready(desk)
        source.publish(n=1)
        assert heard.wait(1)[0].n == 1


def test_a_port_may_be_a_number_and_a_table_may_say_it(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "node.toml"
    config.write_text(f"[network]\nlisten = {port}\n", encoding="utf-8")
    with Node("hall", config=config) as hall, Node("desk", network=Network(connect=port)) as desk:
        assert hall.endpoints == (f"tcp/127.0.0.1:{port}",)
        assert desk.until(lambda: desk.peers == ["hall"], GUARD)


def test_settings_that_a_table_of_a_table_does_not_have_are_named_all_at_once(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        "[network]\nlisen = 1\n[network.link]\nlimt = 3\n[network.budget]\ntotl = 1\n"
        '[network.security]\npasword = "hunter"\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        Node("hall", config=config)
    said = [str(each) for each in caught.value.problems]
    assert len(said) == 4 and "hunter" not in str(caught.value)
    for place, meant in (("] lisen", "listen"), (".link] limt", "limit"), (".budget] totl", "total")):
        assert any(f"[network{place}: expected one of" in each and f'did you mean "{meant}"?' in each for each in said)
    assert "[network.security] pasword: expected one of" in said[3] and 'did you mean "password"?' in said[3]


def test_a_log_client_understands_the_same(tmp_path: Path) -> None:
    port = free_port()
    with Node("hall", listen=f"localhost:{port}", log=tmp_path / "log") as hall:
        hall.channel("door", "n: i64").source().publish(n=1)
        for written in (f"127.0.0.1:{port}", f"tcp://localhost:{port}", str(port)):
            with LogClient(written) as client:
                assert client.channels() == ["door"]


def test_unix_sockets_have_a_url_too(tmp_path: Path) -> None:
    with Node("hall", listen=f"unix://{tmp_path}/hall.sock") as hall:
        assert hall.endpoints == (f"unix/{tmp_path}/hall.sock",)
        with Node("desk", connect=hall.endpoints) as desk:
            assert desk.until(lambda: desk.peers == ["hall"], GUARD)


def test_without_a_protocol_certificates_mean_tls(tmp_path: Path) -> None:
    make_authority(tmp_path)
    made = issue(tmp_path, "lab", ["lab.example"])
    security = Security(certificate=made.certificate, key=made.key, authority=made.authority)
    network = Network(connect=("lab.example:7447", "tcp/127.0.0.1:7447"), security=security)
    assert [str(each) for each in network.connect_to] == ["tls/lab.example:7447", "tcp/127.0.0.1:7447"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": "0.0.0.0:7447"}, ["node desk: listen", "found '0.0.0.0:7447'"]),
        ({"listen": "tcp://0.0.0.0:7447"}, ["node desk: listen", "found 'tcp://0.0.0.0:7447'"]),
        ({"connect": "lab.example:7447"}, ["node desk: connect", "found 'lab.example:7447'"]),
        (
            {"connect": "10.0.0.5:7447", "listen": 7448},
            ["node desk: connect", "found '10.0.0.5:7447'"],
        ),
        ({"listen": "[::]:7447"}, ["node desk: listen", "found '[::]:7447'"]),
        ({"scout": True}, ["node desk: scout", "found scouting on the network"]),
    ],
)
def test_what_leaves_the_machine_is_refused_in_the_words_of_the_user(settings: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Node("desk", **settings)
    [problem] = caught.value.problems  # and of nothing that the user did not write
    for part in said:
        assert part in str(problem)
    port = 7447 if "connect" in settings else 0  # there is nobody to connect to at port 0
    assert "Security(" in str(problem) and f"tcp/127.0.0.1:{port};" in str(problem)


@pytest.mark.parametrize("setting", ["listen", "connect"])
@pytest.mark.parametrize(
    ("written", "expected", "hint"),
    [
        ("127.0.0.1:65536", "a port from 0 to 65535", ""),
        ("99999", "a port from 0 to 65535", ""),
        ("localhost", "a port from 0 to 65535", "localhost:7447"),
        (":7447", "'tcp/host:port'", "127.0.0.1:7447 is of this machine"),
        ("http://127.0.0.1:7447", "one of the protocols tcp, tls, ws, udp, quic, unix", ""),
        ("tcp:127.0.0.1:7447", "an endpoint such as", "write tcp/127.0.0.1:7447"),
        ("::1:7447", "an IPv6 address in brackets", "[::1]"),
        ("[::g]:7447", "an IPv6 address in [ ]", ""),
        ("300.0.0.1:7447", "a host's name or address", ""),
        ("127.1:7447", "a host's name or address", ""),
        ("127.0.0.1:7447,127.0.0.1:7448", "host:port", "a list"),
        ("/run/hall.sock", "an endpoint such as", "unix//run/hall.sock"),
        ("", "an endpoint such as", ""),
        ("tcp://", "an endpoint such as", ""),
        (7.5, "an endpoint such as", ""),
        (True, "an endpoint such as", ""),
        (-1, "", ""),
    ],
)
def test_what_is_no_endpoint_is_refused_with_the_place(setting: str, written: Any, expected: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Node("desk", **{setting: written})
    [problem] = caught.value.problems
    assert problem.place == setting and str(written) in str(problem)
    assert expected in problem.expected and hint in (problem.hint or "")


def test_all_wrong_endpoints_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Network(listen="127.0.0.1:99999", connect=["http/x:1", "localhost:7447"], direct="nowhere")
    assert [problem.place for problem in caught.value.problems] == ["listen", "connect", "direct"]


def test_a_name_to_listen_at_must_resolve() -> None:
    with pytest.raises(ConfigError) as caught:
        Node("hall", listen="no-such-host.invalid:7447", security=Security(open=True))
    [problem] = caught.value.problems
    assert problem.place == "node hall: listen" and problem.found == "'no-such-host.invalid:7447'"
    assert problem.hint is not None and "the name 'no-such-host.invalid' does not resolve" in problem.hint
