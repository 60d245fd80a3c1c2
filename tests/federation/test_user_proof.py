"""Users that nodes ask for: proven by a password or a token, to one node, for as long as that is good."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from headwater import Node, Rate
from headwater.errors import ConfigError, SubscriptionError
from headwater.federation.network import Network
from headwater.federation.security.decisions import Claim
from headwater.federation.security.rules import Principal
from headwater.federation.security.settings import Security
from headwater.federation.security.user_proof import UserProofs
from headwater.policy import Identity
from headwater.security import AsUser, Deny, Issuer, Rule
from tests.federation.nodes import Log, Nodes, eventually, nodes
from tests.federation.test_policies_in_force import CHANNEL, HIDES, TYPE, publish, security, seen
from tests.federation.test_tokens import jwk, written

KEY, OTHER = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
DESK, THIEF = Principal("desk", "password", "ab" * 32), Principal("eve", "password", "cd" * 32)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    keys = written(tmp_path / "keys.json", jwk(KEY, kid="one"))
    return Issuer(issuer="https://login.example", audience="building", keys=keys, leeway=0)


def token(user: str, *, seconds: float = 3600, key: Any = KEY, **claims: Any) -> str:
    given = {"iss": "https://login.example", "aud": "building", "sub": user, "exp": time.time() + seconds, **claims}
    return jwt.encode(given, key, "EdDSA", headers={"kid": "one"})


def lab(make: Nodes, *rules: Rule, issuers: tuple[Issuer, ...] = ()) -> tuple[Node, Any]:
    """A node with a source, and the policy that ann sees everything, eve nothing, and others themselves."""
    made = make("lab", network=Network(security=security("lab", *rules, issuers=issuers)))
    source = made.channel(CHANNEL, TYPE).source("door")
    made.policies.set(HIDES)
    return made, source


def desk(make: Nodes, user: str = "desk") -> Node:
    return make(user, network=Network(security=security(user)))


# ── what proves what ──


def proofs(*issuers: Issuer) -> UserProofs:
    return UserProofs(security("lab", issuers=issuers), "headwater")


def test_a_password_proves_a_user_to_the_node_that_it_was_signed_for_and_on_that_device() -> None:
    claim = AsUser("bob", password="b", device="bobs", kind="phone").claim("headwater", DESK.fingerprint)
    found = proofs()(DESK, claim)
    assert isinstance(found, Identity)
    assert (found.user, found.groups, found.device, found.device_kind, found.how) == (
        "bob",
        ("staff",),
        "",  # no certificate proves which device it is
        "phone",  # which the file of users says of Bob
        "password",
    )
    stolen = proofs()(THIEF, claim)
    assert isinstance(stolen, Deny) and "no proof that user 'bob'" in stolen.why
    for other in (
        Claim("ann", claim.device, claim.device_kind, claim.proof),
        Claim("bob", "anns", claim.device_kind, claim.proof),
        Claim("bob", claim.device, "desk", claim.proof),
        Claim("bob", claim.device, claim.device_kind, claim.proof[:-1]),
        Claim("nobody", claim.device, claim.device_kind, claim.proof),
        Claim("bob", claim.device, claim.device_kind, b"x" + claim.proof),
        AsUser("bob", password="wrong").claim("headwater", DESK.fingerprint),
        AsUser("bob", password="b").claim("other", DESK.fingerprint),
    ):
        assert isinstance(proofs()(DESK, other), Deny), other
    assert proofs()(DESK, Claim("bob")) is None


def test_nobody_becomes_another_kind_of_device_by_saying_so(make: Nodes) -> None:
    claim = AsUser("bob", password="b", device="console-1", kind="console").claim("headwater", DESK.fingerprint)
    found = proofs()(DESK, claim)
    assert isinstance(found, Identity) and (found.user, found.device, found.device_kind) == ("bob", "", "")
    cert = Principal("hall", "certificate", "ef" * 32, ("kind:console",))
    proven = proofs()(cert, AsUser("bob", password="b", kind="console").claim("headwater", cert.fingerprint))
    assert isinstance(proven, Identity) and (proven.device, proven.device_kind) == ("hall", "console")
    may = ("advertise", "subscribe", "install", "vouch")
    node, _ = lab(make, Rule("**", "user:desk", may=may), Rule("**", "*"))
    engine: Any = node._engine
    decisions = engine.context.decisions
    vouched = decisions.identify(DESK, CHANNEL, claim)
    assert (vouched.user, vouched.device, vouched.device_kind, vouched.how) == (
        "bob", "console-1", "console", "password"
    )  # fmt: skip
    stranger = AsUser("bob", password="b", kind="console").claim("headwater", THIEF.fingerprint)
    assert decisions.identify(THIEF, CHANNEL, stranger).device_kind == ""


def test_a_token_proves_whom_it_is_about_and_nobody_else(issuer: Issuer, tmp_path: Path) -> None:
    good = AsUser("ann", token=token("ann", groups=["security"]), device="mine").claim("headwater", DESK.fingerprint)
    found = proofs(issuer)(DESK, good)
    assert isinstance(found, Identity) and (found.user, found.groups, found.how) == ("ann", ("security",), "token")
    assert found.device == ""  # the token says nothing of it, and what the node says is only text
    keys = written(tmp_path / "bound.json", jwk(KEY, kid="one"))
    bound = Issuer(issuer="https://login.example", audience="building", keys=keys, bound=True)
    for claim, why in (
        (AsUser("bob", token=token("ann")), "not of user 'bob'"),
        (AsUser("ann", token=token("ann", key=OTHER)), "signature"),
        (AsUser("ann", token=token("ann", aud="garage")), "audience"),
        (AsUser("ann", token=token("ann", iss="https://evil.example")), "issuer"),
        (AsUser("ann", token=token("ann", seconds=-5)), "expired"),
        (AsUser("ann", token="no.token.atall"), "not good"),
    ):
        denied = proofs(issuer)(DESK, claim.claim("headwater", DESK.fingerprint))
        assert isinstance(denied, Deny) and why in denied.why.lower(), denied
    mine = AsUser("ann", token=token("ann", cnf={"kid": DESK.fingerprint})).claim("headwater", DESK.fingerprint)
    assert isinstance(proofs(bound)(DESK, mine), Identity)
    assert isinstance(proofs(bound)(THIEF, mine), Deny)
    assert isinstance(proofs()(DESK, good), Deny)


def test_what_is_no_user_is_refused_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        AsUser(" ann", password="x", token="y", device=3)  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in ("user", "device", "both"))
    with Node() as node, pytest.raises(SubscriptionError, match="AsUser"):
        node.channel("c", TYPE).subscribe(as_="ann")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="issuers"):
        Security(issuers=[{"issuer": "x"}])


# ── between nodes ──


def test_one_node_asks_for_several_users_and_each_gets_what_it_may(make: Nodes) -> None:
    _, source = lab(make)
    node = desk(make)
    channel = node.channel(CHANNEL, TYPE)
    logs = {user: Log() for user in ("ann", "bob", "desk")}
    for user, password in (("ann", "a"), ("bob", "b")):
        channel.subscribe(logs[user], "n < 9", as_=AsUser(user, password=password))
    channel.subscribe(logs["desk"])
    make.together()
    make.ready()
    publish(source)
    make.flush()
    assert seen(logs["ann"], 9) == list(range(9))
    assert seen(logs["bob"], 3) == [1, 4, 7]
    assert logs["desk"].events == []  # nobody is called so


def test_a_claim_without_proof_counts_only_for_who_may_vouch(make: Nodes) -> None:
    _, source = lab(make, Rule("**", "desk", may=["advertise", "subscribe", "install", "vouch"]), Rule("**", "*"))
    logs = {user: Log() for user in ("desk", "bob")}
    sinks = {}
    for user in ("desk", "bob"):
        node = desk(make, user)
        sinks[user] = node.channel(CHANNEL, TYPE).subscribe(logs[user], as_=AsUser("ann"))
    make.together()
    make.ready(make.opened[1])
    publish(source)
    make.flush()
    assert seen(logs["desk"], 12) == list(range(12))
    eventually(lambda: f"{CHANNEL}@lab" in sinks["bob"].refused)
    assert "nothing proves" in sinks["bob"].refused[f"{CHANNEL}@lab"] and logs["bob"].events == []


def test_a_proof_of_another_node_is_of_no_use_and_what_it_would_show_does_not_cross(make: Nodes) -> None:
    made, source = lab(make)
    thief = desk(make, "eve")

    class Stolen(AsUser):
        """Shows a proof that was made for another node."""

        def claim(self, federation: str, fingerprint: str) -> Claim:
            return super().claim(federation, "ab" * 32)

    log = Log()
    sink = thief.channel(CHANNEL, TYPE).subscribe(log, as_=Stolen("ann", password="a"))
    make.together()
    eventually(lambda: f"{CHANNEL}@lab" in sink.refused)
    publish(source)
    make.flush()
    assert "no proof that user 'ann'" in sink.refused[f"{CHANNEL}@lab"]
    assert log.events == []
    lanes = [lane for peer in made.federation_report().peers for lane in peer.lanes]
    assert sum(lane.sent for lane in lanes if lane.channel == CHANNEL) == 0


def test_when_a_token_expires_nothing_comes_any_more_and_with_another_it_goes_on(make: Nodes, issuer: Issuer) -> None:
    _, source = lab(make, issuers=(issuer,))
    node = desk(make)
    ann, log = AsUser("ann", token=token("ann", seconds=6, groups=["security"])), Log()
    sink = node.channel(CHANNEL, TYPE).subscribe(log, as_=ann)
    make.together()
    make.ready()
    publish(source, 3)
    assert seen(log, 3) == [0, 1, 2]
    eventually(lambda: f"{CHANNEL}@lab" in sink.refused)
    assert "expired" in sink.refused[f"{CHANNEL}@lab"]
    publish(source, 3, start=10)
    make.flush()
    ann.renew(token("ann", groups=["security"]))
    eventually(lambda: f"{CHANNEL}@lab" not in sink.refused)
    make.ready()
    publish(source, 3, start=20)
    assert seen(log, 6) == [0, 1, 2, 20, 21, 22]


def test_a_token_that_is_renewed_in_time_interrupts_nothing(make: Nodes, issuer: Issuer) -> None:
    _, source = lab(make, issuers=(issuer,))
    node = desk(make)
    ann, log = AsUser("ann", token=token("ann", groups=["security"])), Log()
    node.channel(CHANNEL, TYPE).subscribe(log, as_=ann)
    make.together()
    make.ready()
    for round in range(5):
        publish(source, 3, start=10 * round)
        ann.renew(token("ann", seconds=3600 + round, groups=["security"]))
    make.ready()
    publish(source, 3, start=50)
    make.flush()
    assert seen(log, 18) == [10 * round + n for round in range(6) for n in range(3)]


def test_a_user_has_one_rate_at_whichever_nodes_it_asks(make: Nodes) -> None:
    limited = Network(security=security("lab"), rates={"user:ann": Rate(0.001, burst=5)})
    source = make("lab", network=limited).channel(CHANNEL, TYPE).source("door")
    logs, sinks = [Log() for _ in range(3)], list[Any]()
    for log, name in zip(logs, ("desk", "bob"), strict=False):
        node = desk(make, name)
        sinks.append((node, node.channel(CHANNEL, TYPE).subscribe(log, as_=AsUser("ann", password="a"))))
    sinks[0][0].channel(CHANNEL, TYPE).subscribe(logs[2])  # of the node itself, which has no limit
    make.together()
    make.ready()
    publish(source)
    make.flush()
    assert seen(logs[2], 12) == list(range(12))
    eventually(lambda: len(logs[0].events) + len(logs[1].events) == 5)
    assert sum(node.remote_counts(sink)[0].withheld for node, sink in sinks) == 19
