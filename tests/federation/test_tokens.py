"""Tokens of an outside issuer: who they are about, and everything that makes one worth nothing."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import ConfigError, SecurityError
from headwater.federation.security import tokens
from headwater.federation.security.tokens import Issuer
from tests.effort import examples

KEY, OTHER = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
CURVE = ec.generate_private_key(ec.SECP256R1())
NOW = 1_800_000_000
PRINT = "ab" * 32


def jwk(key: Any, **more: str) -> dict[str, Any]:
    """The public half of a key."""
    match key:
        case ed25519.Ed25519PrivateKey():
            found = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ec.EllipticCurvePrivateKey():
            found = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            found = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**found, **more}


def written(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    keys = written(tmp_path / "keys.json", jwk(KEY, kid="one"), jwk(CURVE, kid="two", alg="ES256"))
    return Issuer(issuer="https://login.example", audience="building", keys=keys, attributes=("clearance",))


def token(key: Any = KEY, algorithm: str = "EdDSA", header: dict[str, Any] | None = None, **claims: Any) -> bytes:
    given = {"iss": "https://login.example", "aud": "building", "sub": "ann", "exp": NOW + 60, **claims}
    given = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": "one", **(header or {})}).encode()


def who(issuer: Issuer, data: bytes, *, fingerprint: str = PRINT, now: float = NOW) -> Any:
    return issuer.identity(data, node="lab.1", fingerprint=fingerprint, now=now)


def refused(issuer: Issuer, data: bytes, **more: Any) -> str:
    with pytest.raises(SecurityError, match="a token is not good") as error:
        who(issuer, data, **more)
    assert error.value.reason == "token"
    return str(error.value)


def test_a_good_token_says_who_somebody_is(issuer: Issuer) -> None:
    found = who(issuer, token(groups=["staff", "security"], clearance=3, role="x"))
    assert (found.user, found.groups, found.node, found.how) == ("ann", ("security", "staff"), "lab.1", "token")
    assert dict(found.attributes) == {"clearance": 3}
    assert who(issuer, token(CURVE, "ES256", {"kid": "two"}, groups="staff")).groups == ("staff",)
    assert issuer.until(token()) == NOW + 60 + issuer.leeway


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": True}, "no time"),
        ({"nbf": NOW + 31}, "not good yet"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "udience"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "who it is about"),
        ({"sub": ""}, "who it is about"),
        ({"groups": [1]}, "no texts"),
        ({"groups": {"a": 1}}, "no texts"),
        ({"groups": [f"g{number}" for number in range(65)]}, "65, of at most 64"),
        ({"clearance": {"deep": 1}}, "claims say nobody"),
        ({"sub": "a" * 300}, "claims say nobody"),
        ({"sub": "an\x00n"}, "claims say nobody"),
    ],
)
def test_tokens_that_say_something_else(issuer: Issuer, claims: dict[str, Any], said: str) -> None:
    assert said in refused(issuer, token(**claims))


def test_clocks_may_differ_by_the_leeway_and_no_more(issuer: Issuer) -> None:
    assert who(issuer, token(exp=NOW), now=NOW + 30).user == "ann"
    assert "expired" in refused(issuer, token(exp=NOW), now=NOW + 30.5)
    assert "not good yet" in refused(issuer, token(nbf=NOW), now=NOW - 3600)  # this node's clock was set back


def test_forged_tokens(issuer: Issuer) -> None:
    assert "ignature" in refused(issuer, token(OTHER))
    assert "no such key" in refused(issuer, token(OTHER, header={"kid": "three"}))
    assert "no such key" in refused(issuer, token(header={"kid": "two"}))  # that one is for ES256 only
    head, body, signature = token().split(b".")
    mine = json.loads(base64.urlsafe_b64decode(body + b"=="))
    other = base64.urlsafe_b64encode(json.dumps({**mine, "sub": "root"}).encode()).rstrip(b"=")
    assert "ignature" in refused(issuer, b".".join((head, other, signature)))
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').rstrip(b"=")
    assert "signed by 'none'" in refused(issuer, b".".join((none, other, b"")))


def test_a_public_key_is_no_secret_that_signs(issuer: Issuer) -> None:
    """The old trick: a token by HMAC, with the issuer's public key as the secret."""
    public = KEY.public_key().public_bytes_raw()
    assert "signed by 'HS256'" in refused(issuer, token(public, "HS256"))
    for bad in ("HS256", "none", "RS1", "rs256"):
        with pytest.raises(ConfigError, match="algorithms: expected some of"):
            Issuer(issuer="x", audience="y", keys=issuer.keys, algorithms=("ES256", bad))


def test_a_bound_token_is_of_no_use_to_who_has_stolen_it(issuer: Issuer) -> None:
    bound = Issuer(issuer=issuer.issuer, audience=issuer.audience, keys=issuer.keys, bound=True)
    made = token(cnf={"kid": PRINT})
    assert who(bound, made).user == "ann"
    assert "not made for the node" in refused(bound, made, fingerprint="cd" * 32)
    assert "not made for the node" in refused(bound, token())
    assert "not made for the node" in refused(bound, token(cnf=PRINT))


ANY = st.binary(max_size=200) | st.text(max_size=200).map(str.encode)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY | ANY.filter(bool).map(lambda more: token() + more) | st.integers(1, 200).map(lambda less: token()[:-less]))
def test_whatever_comes_is_refused_in_one_way(issuer: Issuer, data: bytes) -> None:
    refused(issuer, data)


def test_large_tokens_are_refused(issuer: Issuer) -> None:
    assert "8,192 are taken" in refused(issuer, token(note="x" * 9000))


def test_keys_that_are_replaced_take_effect(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "RECHECK_SECONDS", 0.0)
    assert who(issuer, token()).user == "ann"
    written(Path(issuer.keys), jwk(OTHER, kid="one"))
    assert "ignature" in refused(issuer, token())
    assert who(issuer, token(OTHER)).user == "ann"
    Path(issuer.keys).write_text("{")  # what was good last goes on
    assert who(issuer, token(OTHER)).user == "ann"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "something else"),
        ("[]", "something else"),
        ('{"keys": []}', "0 keys"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "a private key"),
        ('{"keys": [3]}', "something else"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "something else"),
        (json.dumps({"keys": [jwk(KEY), jwk(OTHER)]}), "do not tell apart"),
        (json.dumps({**jwk(KEY), "d": "AAAA"}), "a private key"),
    ],
)
def test_files_that_hold_no_keys(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match=said):
        Issuer(issuer="x", audience="y", keys=tmp_path / "keys")


def test_one_key_as_pem_and_weak_ones(tmp_path: Path) -> None:
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "key.pem").write_bytes(KEY.public_key().public_bytes(*form))
    issuer = Issuer(issuer="https://login.example", audience="building", keys=tmp_path / "key.pem")
    assert who(issuer, token(header={"kid": "whatever"})).user == "ann"
    weak = rsa.generate_private_key(65537, 1024)
    (tmp_path / "weak.pem").write_bytes(weak.public_key().public_bytes(*form))
    with pytest.raises(ConfigError, match="RSA keys of 2048 bits"):
        Issuer(issuer="x", audience="y", keys=tmp_path / "weak.pem")
    private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "private.pem").write_bytes(KEY.private_bytes(*private))
    with pytest.raises(ConfigError, match="have the issuer make a new key"):
        Issuer(issuer="x", audience="y", keys=tmp_path / "private.pem")
