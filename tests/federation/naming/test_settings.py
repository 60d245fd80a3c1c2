"""Settings of names, in TOML: what can be wrong with them is said all at once, with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import ConfigError, SecurityError
from headwater.federation.naming.domain_server import served_anchors
from headwater.federation.naming.signatures import Signatures, read_document
from headwater.names import NameSettings, make_owner_key
from tests.services.naming.world import World, address

ID = "gate." + "5a" * 16
HERE = f"{ID}@tcd=tcp/127.0.0.1:7447"


def written(folder: Path, text: str) -> Path:
    path = folder / "names.toml"
    path.write_text(text)
    return path


def test_a_file_has_the_domain_its_parent_its_delegations_and_links(tmp_path: Path) -> None:
    owner = make_owner_key(tmp_path / "tcd.key")
    found = NameSettings.of(
        written(
            tmp_path,
            f"""
            anchors = {{ "." = "{"0" * 64}" }}
            entry = ["tcp/gate.tcd.ie:7447"]
            [[serve]]
            domain = "ie.tcd."
            key = "tcd.key"
            parent = ["{HERE}"]
            lease = 30.0
            [serve.delegations."ie.tcd.cs"]
            owner = "{"9a" * 32}"
            servers = ["{HERE}"]
            [[serve.advertise]]
            names = "ie.tcd.**"
            who = ["group:staff"]
            [[links]]
            domain = "ie.ucc"
            owner = "{"77" * 32}"
            servers = ["{HERE}"]
            """,
        )
    )
    served = found.serve[0]
    assert served.domain == "ie.tcd" and served.owner is not None and served.owner.fingerprint == owner
    assert served.parent[0].federation == "tcd" and served.lease == 30.0
    assert set(found.anchors) == {".", "ie.ucc"} and found.anchors["ie.ucc"].servers[0].node == ID
    assert set(served_anchors(found, Signatures())) == {".", "ie.ucc", "ie.tcd"}


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    make_owner_key(tmp_path / "tcd.key")
    with pytest.raises(ConfigError) as caught:
        NameSettings.of(
            written(
                tmp_path,
                f"""
                anchor = "x"
                anchors = {{ "ie.*" = "abc" }}
                servers = ["gate@tcd"]
                gateway = "edge"
                [[serve]]
                domain = "ie.tcd"
                key = "tcd.key"
                lease = 0
                [serve.delegations."ie.tcd"]
                owner = "{"9a" * 32}"
                servers = ["{HERE}"]
                [serve.delegations."com.example"]
                owner = "{"9a" * 32}"
                [[serve.advertise]]
                names = "ie.tcd.**"
                who = "key:12"
                [[serve]]
                domain = "ie.ucc"
                [[links]]
                domain = "ie.nuig"
                owner = "{"9a" * 32}"
                """,
            )
        )
    said = "\n".join(map(str, caught.value.problems))
    for words in (
        'did you mean "anchors"', "64 hex digits", "ie.*", "NODE@FEDERATION=ENDPOINT", "gateway", "above 0",
        "a domain below 'ie.tcd'", "'com.example' servers", "key:12", "key, or document", "a link without it leads",
    ):  # fmt: skip
        assert words in said, f"{words!r} is not in:\n{said}"


def test_delegations_within_each_other_are_refused() -> None:
    part = {"owner": "9a" * 32, "servers": [address("s1")]}
    with pytest.raises(ConfigError, match="given away as well"):
        NameSettings.of(
            {"serve": [{"domain": "ie", "key": _owner(), "delegations": {"ie.tcd": part, "ie.tcd.cs": part}}]}
        )


def _owner():  # type: ignore[no-untyped-def]
    from headwater.federation.security.identity import Identity

    return Identity.ephemeral("owner")


def test_a_signed_zone_is_read_from_a_file_and_one_that_was_changed_is_refused(tmp_path: Path) -> None:
    signed = World().add("ie", ["s1"]).signed
    path = tmp_path / "ie.domain"
    path.write_bytes(signed.to_bytes())
    found = NameSettings.of({"serve": [{"domain": "ie", "document": str(path)}]})
    assert found.serve[0].document == signed
    with pytest.raises(ConfigError, match="one of 'ie'"):
        NameSettings.of({"serve": [{"domain": "ie.tcd", "document": str(path)}]})
    data = bytearray(path.read_bytes())
    data[20] ^= 1  # in the signature
    path.write_bytes(data)
    forged = NameSettings.of({"serve": [{"domain": "ie", "document": str(path)}]})
    with pytest.raises(SecurityError, match="not signed by it"):
        served_anchors(forged, Signatures())
    path.write_bytes(b"no document")
    with pytest.raises(ConfigError, match="headwater names sign"):
        read_document(path)


def test_a_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "tcd.key"
    assert len(make_owner_key(path)) == 64 and path.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="not there yet"):
        make_owner_key(path)
