"""The security of a node: settings, endpoints, what is allowed, TLS and Zenoh for real."""

from __future__ import annotations

import dataclasses
import json
import socket
import ssl
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zenoh

from headwater.errors import ConfigError
from headwater.federation.endpoints import is_loopback, loopback_only
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.identity import same_key
from headwater.federation.security.rules import RIGHTS, Principal, Rule, Rules
from headwater.federation.security.settings import Security, User, tls_contexts, zenoh_settings
from headwater.federation.security.user_keys import UserKeys, login_key

USERS = {"ann": "correct horse: battery", "bob": "staple"}


def wrong(make: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(*args, **kwargs)
    assert caught.value.problems
    return str(caught.value)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ours", "theirs"):
            make_authority(folder / name)
        self.dublin, self.cork = self.security("ours", "dublin"), self.security("ours", "cork")
        self.foreign = self.security("theirs", "dublin")

    def security(self, authority: str, name: str, **more: Any) -> Security:
        files = issue(self.folder / authority, name)
        return Security(certificate=files.certificate, key=files.key, authority=files.authority, **more)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


# ── settings ──


def test_nothing_set() -> None:
    security = Security()
    assert not security.proves and security.credential() is None and not security.authorities()
    assert security == Security.of(None) == Security.of({}) == Security.of(security)
    assert tls_contexts(security) is None and zenoh_settings(security) == {}


def test_it_is_a_value(world: World) -> None:
    one, two = (
        Security(user="ann", password=USERS["ann"], users=USERS),
        Security(user="ann", password=USERS["ann"], users=dict(reversed(USERS.items()))),
    )
    assert one == two and hash(one) == hash(two) and one != world.dublin
    assert dataclasses.replace(one, skew=5).skew == 5.0 and dataclasses.replace(one, skew=5).users == one.users
    assert dataclasses.replace(world.dublin, rules=[Rule("a", "b")]).rules == (Rule("a", "b"),)
    assert Security(rules=Rules([Rule("a", "b")])).rules == (Rule("a", "b"),)
    for secret in ("horse", "staple"):
        assert secret not in repr(one) + str(one) + repr(one.credential()) + repr(one.users_by_name())
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.user = "bob"  # type: ignore[misc]


def test_contradictions(world: World, tmp_path: Path) -> None:
    files = {name: getattr(world.dublin, name) for name in ("certificate", "key", "authority")}
    for missing in files:
        some = {name: path for name, path in files.items() if name != missing}
        assert f"Security: {missing}: expected certificate, key and authority together" in wrong(Security, **some)
    assert "user and password together" in wrong(Security, user="ann", users=USERS)
    assert "user and password together" in wrong(Security, password="x", users=USERS)
    assert "users or an authority" in wrong(Security, user="ann", password="x")
    assert "user and password besides users" in wrong(Security, users=USERS)
    assert "user and password besides users" in wrong(Security, users=USERS, **files)
    assert "the one that users has" in wrong(Security, user="ann", password="x", users=USERS)
    assert "Security: open: expected false" in wrong(Security, open=True, **files)
    assert "verify_hosts" in wrong(Security, verify_hosts=True)
    Security(user="carl", password="x", users=USERS)
    Security(user="carl", password="x", **files)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"certificate": 5}, "certificate: expected the path of a file, found 5"),
        ({"key": "/nowhere/at/all"}, "the path of a file that can be read"),
        ({"authority": "/"}, "the path of a file that can be read"),
        ({"user": ""}, "user: expected a name"),
        ({"user": "a:b", "password": "x", "users": {"c": "x"}}, "a name without a colon"),
        (
            {"password": "secret\n"},
            "password: expected 1 to 1024 printable characters, no space around them, found 7 ch",
        ),
        ({"password": b"secret"}, "a value of type bytes"),
        ({"open": 1}, "open: expected true or false"),
        ({"skew": 0}, "skew: expected a number of seconds"),
        ({"limit": 10}, "limit: expected a whole number"),
        ({"rules": "x"}, "rules: expected a list of rules"),
        ({"rules": ["x"]}, "rules, number 1: expected a Rule"),
        ({"rules": [{"channel": "a", "who": "b", "my": 1}]}, 'did you mean "may"'),
        ({"rules": [{"who": "b"}]}, "rules, number 1: channel"),
        ({"users": {}}, "one user at least"),
        ({"users": 5}, "names with passwords"),
        ({"users": {"a:b": "x"}}, "without a colon"),
        ({"users": {"a": " secret"}}, "no space around them"),
        ({"users": {"a": {"password": "x", "group": "g"}}}, "only password or keys, and groups"),
        ({"users": {"a": {"groups": ["g"]}}}, "a password: expected"),
        ({"users": {"a": {"password": "x", "groups": "g"}}}, "a groups: expected a list of names"),
        ({"users": {7: "x"}}, "a name of 1 to 255"),
        ({"users": "/nowhere/at/all"}, "a file that headwater users has written"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    found = wrong(Security, **settings)
    assert message in found and "secret" not in found


def test_users_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    ann, bob = UserKeys.of("ann", "one:two"), UserKeys.of("bob", "three")
    file.write_text(f"# ours\nann:{ann}:staff,security\n\n bob:{bob} \n")
    security = Security(user="bob", password="three", users=file)
    assert security.users_by_name() == {
        "ann": User(None, ("staff", "security"), ann),
        "bob": User(None, (), bob),
    }
    assert "the one that users has for" in wrong(Security, user="bob", password="secret four", users=file)
    file.write_text(f"ann:{ann}\nann:{bob}\nsecret\nbob:secret\neve:scrypt1:00:11\n")
    found = wrong(Security, user="bob", password="three", users=file)
    assert "each name once" in found and "line 3: expected name:scrypt1:key:key" in found and "no colon" in found
    assert "line 4" in found and "headwater users convert" in found
    assert "two keys of 64 digits" in found
    assert "secret" not in found


def test_toml(world: World, tmp_path: Path) -> None:
    folder = world.folder / "ours"
    text = """
    certificate = "dublin.pem"
    key = "dublin.key"
    authority = "authority.pem"
    skew = 5
    [[rules]]
    channel = "ie.**"
    who = ["dublin", "group:staff"]
    may = ["advertise", "subscribe"]
    [[rules]]
    channel = "**"
    who = "*"
    """
    file = folder / "security.toml"
    file.write_text(text)
    expected = dataclasses.replace(
        world.dublin,
        skew=5,
        rules=[Rule("ie.**", ["dublin", "group:staff"], ("advertise", "subscribe")), Rule("**", "*")],
    )
    assert Security.load(file) == Security.of(str(file)) == expected
    file.write_text("[security]\nopen = true\n")
    assert Security.of(file) == Security(open=True)
    file.write_text('user = "ann"\npassword = "x"\n[users]\nann = "x"\nbob = {password = "y", groups = ["g"]}')
    assert Security.of(file).users_by_name()["bob"] == User("y", ("g",))
    assert Security.of({"open": True}) == Security(open=True)


def test_wrong_files(tmp_path: Path) -> None:
    file = tmp_path / "security.toml"
    assert "no such file" in wrong(Security.load, file)
    file.write_text("open = ")
    assert "expected TOML" in wrong(Security.load, file)
    file.write_bytes(b"\xff")
    assert "expected a TOML file in UTF-8, found byte 0xff at 0" in wrong(Security.load, file)
    file.write_text('pasword = "hunter"\nopen = 3\n')
    found = wrong(Security.load, file)
    assert 'did you mean "password"?' in found and "hunter" not in found
    file.write_text('key = "no.key"\nopen = 3\n')
    found = wrong(Security.load, file)
    assert f"{file}: key: expected" in found and f"{file}: open: expected true or false, found 3" in found
    file.write_text("security = 3")
    assert "expected a table" in wrong(Security.load, file)
    assert "a Security, the path" in wrong(Security.of, 5)


# ── endpoints ──


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("tcp/127.0.0.1:0", True),
        ("tcp/127.9.8.7:7447", True),
        ("tls/localhost:7447", True),
        ("tcp/[::1]:7447", True),
        ("tcp/[::ffff:127.0.0.1]:1", True),
        ("quic/127.0.0.1:7447?rel=1#x=y", True),
        ("unix//tmp/x.sock", True),
        ("unixsock-stream//tmp/x.sock", True),
        ("unixpipe/x", True),
        ("udp/224.0.0.224:7446#iface=lo", True),
        ("udp/224.0.0.224:7446#iface=eth0", False),
        ("udp/224.0.0.224:7446", False),
        ("tcp/0.0.0.0:7447#iface=lo", False),
        ("tcp/0.0.0.0:0", False),
        ("tcp/[::]:0", False),
        ("tcp/:7447", False),
        ("tcp/10.0.0.1:7447", False),
        ("tcp/[fe80::1%lo]:7447", False),
        ("tcp/[::ffff:10.0.0.1]:1", False),
        ("tcp/localhost.example.org:7447", False),
        ("tcp/127.0.0.1.example.org:7447", False),
        ("tcp/example.org:7447#127.0.0.1:1", False),
        ("tcp/127.1:7447", False),
        ("serial//dev/tty0", False),
        ("127.0.0.1:7447", True),
        ("7447", True),
        ("[::1]:7447", True),
        ("tcp://127.0.0.1:7447", True),
        ("tcp://10.0.0.1:7447", False),
        ("10.0.0.1:7447", False),
        ("tcp", False),
        ("", False),
        (None, False),
    ],
)
def test_what_stays_on_this_machine(endpoint: Any, local: bool) -> None:
    assert is_loopback(endpoint) is local
    assert loopback_only(["tcp/127.0.0.1:0", endpoint]) is local
    if local:
        assert Security().check_endpoints([endpoint])
    else:
        found = wrong(Security().check_endpoints, ["tcp/127.0.0.1:0", endpoint])
        assert found.count("\n") == 1, "only the one is a problem"
        for word in ("certificate=, key=, authority=", "user=, password=, users=", "tcp/127.0.0.1:0", "open=True"):
            assert word in found


def test_scouting_leaves_the_machine() -> None:
    assert loopback_only([], scout=False) and loopback_only([]) and loopback_only("tcp/127.0.0.1:1")
    assert loopback_only([], scout="224.0.0.224:7446#iface=lo")
    assert not loopback_only([], scout=True) and not loopback_only([], scout="224.0.0.224:7446")
    assert "scouting on the network" in wrong(Security().check_endpoints, [], scout=True)
    assert "rules alone prove nothing" in wrong(Security(rules=[]).check_endpoints, "tcp/0.0.0.0:0")


def test_open_is_allowed_and_loud(caplog: pytest.LogCaptureFixture) -> None:
    security = Security(open=True)
    assert security.check_endpoints(["tcp/127.0.0.1:0"]) and not caplog.records
    assert not security.check_endpoints(["tcp/0.0.0.0:0"], scout=True, place="dublin")
    assert "dublin: OPEN to everybody" in caplog.text and caplog.records[0].levelname == "WARNING"


def test_certificates_are_not_used_in_the_clear(world: World) -> None:
    assert not world.dublin.check_endpoints(["tls/0.0.0.0:7447", "quic/example.org:1", "tcp/127.0.0.1:0"])
    found = wrong(world.dublin.check_endpoints, ["tcp/0.0.0.0:7447"])
    assert "expected tls or quic" in found and 'write "tls/0.0.0.0:7447"' in found
    password = Security(user="ann", password=USERS["ann"], users=USERS)
    assert not password.check_endpoints(["tcp/0.0.0.0:7447"])


# ── what is allowed ──

KEY = Principal("key:12345678", "key", "12345678" + "0" * 56)
NODE = Principal("cork", "certificate", "ab" * 32)


def test_defaults(world: World) -> None:
    assert not Security().decide(KEY, "vouch", "a.b") and not Security(open=True).decide(KEY, "vouch", "a.b")
    for action in RIGHTS:
        assert "nodes of one machine" in Security().decide(KEY, action, "a.b").why
        assert Security().decide(KEY, action, "a.b") and Security(open=True).decide(KEY, action, "a.b")
        found = world.dublin.decide(NODE, action, "a.b")
        assert not found and "where others must prove who they are" in found.why
        for security in (
            Security(rules=[]),
            Security(open=True, rules=[]),
            dataclasses.replace(world.dublin, rules=()),
        ):
            assert not security.decide(KEY, action, "a.b")


def test_rules_decide(world: World) -> None:
    security = dataclasses.replace(world.dublin, rules=[Rule("ie.**", "cork", may=("subscribe",))])
    assert security.decide(NODE, "subscribe", "ie.tcd") and not security.decide(NODE, "install", "ie.tcd")
    assert not security.decide(NODE, "subscribe", "uk") and not security.decide(KEY, "subscribe", "ie.tcd")


# ── TLS ──


def connect(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None
) -> tuple[bytes | None, bytes | None]:
    """The certificates that each side sees of the other, after a byte each way."""
    listening, calling = socket.socketpair()
    found: list[Any] = []

    def accept() -> None:
        with ExitStack() as stack:
            stack.enter_context(listening)
            try:
                secure = stack.enter_context(server.wrap_socket(listening, server_side=True))
                secure.sendall(secure.recv(1))
                found.append(secure.getpeercert(binary_form=True))
            except (ssl.SSLError, OSError) as error:
                found.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with calling, client.wrap_socket(calling, server_hostname=host) as secure:
            secure.sendall(b"x")
            if secure.recv(1) != b"x":
                raise ssl.SSLError("closed")
            seen = secure.getpeercert(binary_form=True)
    finally:
        thread.join()
    return found[0], seen


def test_mutual_tls(world: World) -> None:
    ours, theirs, foreign = (tls_contexts(each) for each in (world.dublin, world.cork, world.foreign))
    assert ours is not None and theirs is not None and foreign is not None
    seen_by_server, seen_by_client = connect(ours[0], theirs[1])
    assert same_key(seen_by_server, world.cork.identity().public)
    assert same_key(seen_by_client, world.dublin.identity().public)
    assert not same_key(seen_by_client, world.cork.identity().public)
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname = False
    nobody.verify_mode = ssl.CERT_NONE
    for server, client in ((ours[0], foreign[1]), (foreign[0], ours[1]), (ours[0], nobody)):
        with pytest.raises((ssl.SSLError, OSError)):
            connect(server, client)
    for context in ours:
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2 and context.verify_mode == ssl.CERT_REQUIRED


def test_hosts_are_verified_by_choice(world: World) -> None:
    strict = tls_contexts(dataclasses.replace(world.cork, verify_hosts=True))
    server = tls_contexts(world.dublin)
    assert strict is not None and server is not None
    connect(server[0], strict[1], "localhost")
    connect(server[0], strict[1], "dublin")
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        connect(server[0], strict[1], "example.org")


def test_files_that_tls_cannot_use(world: World, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no PEM")
    mixed = dataclasses.replace(world.dublin, key=world.cork.key)
    for security in (mixed, dataclasses.replace(world.dublin, authority=text)):
        assert "in PEM form" in wrong(tls_contexts, security)


# ── Zenoh ──


def open_session(security: Security, *, listen: str | None = None, connect: str | None = None, patience: int) -> Any:
    config = zenoh.Config()
    settings = zenoh_settings(security) | {
        "mode": "peer" if listen else "client",
        "scouting/multicast/enabled": False,
        "listen/endpoints": [listen] if listen else [],
        "connect/endpoints": [connect] if connect else [],
        "connect/timeout_ms": patience,
        "connect/exit_on_failure": True,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def free(protocol: str) -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"{protocol}/127.0.0.1:{sock.getsockname()[1]}"


def meet(protocol: str, host: Security, welcome: list[Security], refused: list[Security]) -> None:
    """A node listens; some can ask it something, others cannot even connect."""
    endpoint = free(protocol)
    with ExitStack() as stack:
        session = stack.enter_context(open_session(host, listen=endpoint, patience=10_000))
        stack.enter_context(session.declare_queryable("ask", lambda query: query.reply("ask", b"yes")))
        for security in welcome:
            with open_session(security, connect=endpoint, patience=10_000) as other:
                assert [bytes(reply.ok.payload) for reply in other.get("ask")] == [b"yes"]
        for security in refused:
            with pytest.raises(zenoh.ZError, match="Unable to connect"):
                open_session(security, connect=endpoint, patience=500)


def test_zenoh_with_certificates(world: World) -> None:
    strict = dataclasses.replace(world.cork, verify_hosts=True)
    meet("tls", world.dublin, [world.cork, strict], [world.foreign, Security()])


def test_zenoh_with_passwords() -> None:
    ann = Security(user="ann", password=USERS["ann"], users=USERS)
    bob = Security(user="bob", password=USERS["bob"], users=USERS)
    guess = Security(user="bob", password="stable", users={"bob": "stable"})
    eve = Security(user="eve", password="x", users={"eve": "x"})
    meet("tcp", ann, [bob, ann], [guess, eve, Security()])


def test_the_file_of_passwords_is_private_and_one() -> None:
    security = Security(user="ann", password=USERS["ann"], users=USERS)
    path = zenoh_settings(security)["transport/auth/usrpwd/dictionary_file"]
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).read_text() == "".join(f"{name}:{login_key(name, USERS[name])}\n" for name in sorted(USERS))
    assert zenoh_settings(security)["transport/auth/usrpwd/dictionary_file"] == path
