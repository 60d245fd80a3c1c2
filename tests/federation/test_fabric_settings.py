"""What a node is told about its network, judged before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ConfigError
from headwater.federation.fabric.fabric import Fabric
from headwater.federation.fabric.settings import Locator, merge, parse_locator


def problems(**kwargs: Any) -> list[str]:
    settings: dict[str, Any] = {"federation": "f", "node": "n", "incarnation": 1, **kwargs}
    with pytest.raises(ConfigError) as caught:
        Fabric(settings.pop("federation"), settings.pop("node"), settings.pop("incarnation"), **settings)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["", "a/b", "a*", "a#b", "a?", "$a", "a b", "ä", "a\n", "x" * 201, 7, None])
@pytest.mark.parametrize("place", ["federation", "node"])
def test_names_that_would_break_a_key(place: str, name: Any) -> None:
    [problem] = problems(**{place: name})
    assert problem.startswith(f"{place}: expected 1 to 200 letters, digits, '.', '_' or '-', found ")
    assert len(problem) < 150


@given(st.text(alphabet="abcXYZ019._-", min_size=1, max_size=40))
def test_names_that_do_not(name: str) -> None:
    Fabric(name, name, 0)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"listen": "tcp/127.0.0.1:0"}, "listen: expected a list of endpoints"),
        ({"listen": [7.5]}, "listen: expected an endpoint such as"),
        ({"listen": ["tcp:127.0.0.1:7447"]}, "listen: expected an endpoint such as"),
        ({"listen": ["carrier/pigeon:1"]}, "listen: expected one of the protocols tcp, tls"),
        ({"listen": ["tcp/127.0.0.1"]}, "listen: expected 'tcp/host:port' with a port from 0 to 65535"),
        ({"listen": ["tcp/127.0.0.1:65536"]}, "listen: expected 'tcp/host:port'"),
        ({"listen": ["tcp/127.0.0.1:²"]}, "listen: expected 'tcp/host:port'"),
        ({"listen": ["tcp/::1:7447"]}, "listen: expected an IPv6 address in brackets"),
        ({"connect": ["tcp/127.0.0.1:0"]}, "connect: expected the port at which the other node listens"),
        ({"scout": "127.0.0.1:7446"}, "scout: expected True, False, or a multicast group"),
        ({"scout": "224.0.0.224"}, "scout: expected True"),
        ({"scout": "224.0.0.224:7446#iface=a b"}, "scout: expected True"),
        ({"scout": 1.5}, "scout: expected True"),
        ({"mode": "bus"}, "mode: expected one of peer, router, client"),
        ({"mode": "client"}, "connect: expected an endpoint, or scout=True, in mode 'client'"),
        (
            {"mode": "client", "connect": ["tcp/h:1"], "listen": ["tcp/h:1"]},
            "listen: expected nothing in mode 'client'",
        ),
        ({"lease": 0}, "lease: expected 0.1 to 3600 seconds"),
        ({"lease": True}, "lease: expected 0.1 to 3600 seconds"),
        ({"lease": "5"}, "lease: expected 0.1 to 3600 seconds"),
        ({"settings": ["x"]}, "settings: expected a table"),
        ({"incarnation": -1}, "incarnation: expected a number from 0"),
        ({"incarnation": True}, "incarnation: expected a number from 0"),
    ],
)
def test_settings_that_are_not_possible(kwargs: dict[str, Any], expected: str) -> None:
    [problem] = problems(**kwargs)
    assert problem.startswith(expected)


def test_all_problems_are_told_at_once() -> None:
    found = problems(federation="a/b", listen=["x"], connect=["y"], mode="bus", lease=-1)
    assert [problem.partition(":")[0] for problem in found] == ["federation", "listen", "connect", "mode", "lease"]


@pytest.mark.parametrize("settings", [{"no_such_table": 1}, {"transport": {"link": {"tx": {"lease": "soon"}}}}])
def test_settings_that_zenoh_does_not_know(settings: dict[str, Any]) -> None:
    fabric = Fabric("f", "n", 1, settings=settings)
    with pytest.raises(ConfigError, match="settings: expected settings that Zenoh knows") as caught:
        fabric.open()
    assert ".rs" not in str(caught.value)


def test_settings_reach_zenoh_as_tables_or_paths() -> None:
    base: dict[str, Any] = {"a": {"b": 1, "c": 2}}
    assert merge(base, {"a": {"b": 3}, "a/d/e": 4, "f": {"g": {}}}) == {
        "a": {"b": 3, "c": 2, "d": {"e": 4}},
        "f": {"g": {}},
    }
    fabric = Fabric("f", "n", 1, listen=["tcp/127.0.0.1:0"], settings={"transport/unicast/max_sessions": 7})
    fabric.open()
    fabric.close()


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, "127.0.0.1:"),
        ({"connect": ["tcp/127.0.0.1:1"]}, "127.0.0.1:"),
        ({"connect": ["tcp/[::1]:1", "tcp/localhost:1"]}, "127.0.0.1:"),
        ({"connect": ["unix//nowhere/z.sock"]}, "127.0.0.1:"),
        ({"scout": "224.0.0.224:7999#iface=lo"}, "127.0.0.1:"),
    ],
)
def test_a_node_that_knows_only_this_machine_listens_only_here(kwargs: dict[str, Any], expected: str) -> None:
    fabric = Fabric("f", "n", 1, **kwargs)
    fabric.open()
    try:
        assert [endpoint.startswith(f"tcp/{expected}") for endpoint in fabric.endpoints] == [True]
    finally:
        fabric.close()


@given(
    st.sampled_from(["tcp", "tls", "udp", "quic", "ws"]),
    st.one_of(st.ip_addresses().map(lambda ip: f"[{ip}]" if ip.version == 6 else str(ip)), st.just("lab.example")),
    st.integers(0, 65535),
    st.sampled_from(["", "#iface=lo", "?rel=1#so_sndbuf=1"]),
)
def test_endpoints_are_read_and_written_alike(protocol: str, host: str, port: int, tail: str) -> None:
    text = f"{protocol}/{host}:{port}{tail}"
    locator = parse_locator("here", text)
    assert isinstance(locator, Locator)
    assert str(locator) == locator.zenoh == text
    assert (locator.protocol, locator.host, locator.port) == (protocol, host.strip("[]"), port)
    assert parse_locator("here", str(locator.at(locator.host, 5))) == locator.at(locator.host, 5)


@given(st.text(max_size=30))
def test_any_text_is_an_endpoint_or_a_problem(text: str) -> None:
    locator = parse_locator("here", text)
    if isinstance(locator, Locator):
        assert parse_locator("here", str(locator)) == locator and locator.written == text
        assert isinstance(locator.loopback, bool) and isinstance(locator.wildcard, bool)
