"""Passwords: what others can find out about one, and what somebody on the way can do, who does not know any."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from pathlib import Path

from headwater import Event, Rule, Security, u32
from headwater.federation.proof import login_key, password_key
from headwater.federation.tls import zenoh_settings
from tests.federation.nodes import nodes
from tests.federation.relays import Relay

PASSWORD = "correct horse: battery"
USERS = {"ann": PASSWORD, "bob": "staple"}


class Sighting(Event, name="ie.tcd.PasswordSighting"):
    badge: u32
    room: str = ""


def security(user: str) -> Security:
    return Security(user=user, password=USERS[user], users=USERS, rules=[Rule("**", "*")])


def numbers(data: bytes) -> Iterator[bytes]:
    """Every number of 64 bits that what was sent may contain: as it is, or with seven bits in a byte."""
    for at in range(len(data)):
        yield data[at : at + 8]
        value = 0
        for place, byte in enumerate(data[at : at + 9]):
            if place == 8 or not byte & 128:
                yield (value | byte << 7 * place).to_bytes(9, "little")[:8]
                break
            value |= (byte & 127) << 7 * place


def guessed(relay: Relay, secret: bytes) -> bool:
    """Whether who has seen a login can tell that this was the secret, by no more than a keyed hash of it."""
    sent, challenges = bytes(relay.towards[0]), bytes(relay.back[0])
    return any(hmac.digest(number, secret, "sha3_256") in sent for number in numbers(challenges))


def test_a_login_that_was_seen_does_not_make_guessing_quick() -> None:
    """Zenoh sends a keyed hash of what it is given: that must be slow to compute from a password."""
    with nodes() as make:
        lab = make("lab", security=security("ann"))
        with Relay(lab.endpoints[0]) as relay:
            desk = make("desk", connect=relay.endpoint, security=security("ann"))
            make.together(lab, desk)
            assert guessed(relay, login_key("ann", PASSWORD).encode()), "this is what Zenoh was given"
            assert not guessed(relay, PASSWORD.encode())
            assert not guessed(relay, password_key("ann", PASSWORD))
            assert PASSWORD.encode() not in b"".join([*relay.towards, *relay.back])


def test_zenoh_is_told_no_password_and_not_the_key_that_signs() -> None:
    """Neither by its settings nor by the file of users, which only this user can read."""
    settings = zenoh_settings(security("ann"))
    file = Path(settings["transport/auth/usrpwd/dictionary_file"])
    told = json.dumps(settings) + file.read_text()
    for name, password in USERS.items():
        assert password not in told
        assert password_key(name, password).hex() not in told
        assert f"{name}:{login_key(name, password)}\n" in file.read_text()
    assert settings["transport/auth/usrpwd/password"] == login_key("ann", PASSWORD)
    assert file.stat().st_mode & 0o777 == 0o600
    assert login_key("ann", "x") != login_key("bob", "x"), "one password of two users makes two keys"
    assert len(bytes.fromhex(login_key("ann", "x"))) == 32
