"""Nodes with certificates of one authority: the folder it is in, fixtures, and ways to open such nodes.

The fixtures are in `conftest.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Network, Node
from headwater.federation.security.certificates import issue, make_authority
from headwater.security import Rule, Security
from tests.federation.nodes import Nodes, nodes

TLS = "tls/127.0.0.1:0"
EVERYTHING = (Rule("**", "*"),)
GROUPS = {"lab": (), "desk": ("staff",), "guest": (), "other": (), "reader": (), "eve": ()}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority, with certificates and keys of all who are in `GROUPS`."""
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    for name, groups in GROUPS.items():
        issue(folder, name, groups=groups)
    return folder


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def certified(folder: Path, name: str, rules: tuple[Rule, ...] = EVERYTHING, **more: Any) -> Security:
    return Security(
        certificate=folder / f"{name}.pem",
        key=folder / f"{name}.key",
        authority=folder / "authority.pem",
        rules=rules,
        **more,
    )


def joined(make: Nodes, folder: Path, name: str, rules: tuple[Rule, ...] = EVERYTHING, **network: Any) -> Node:
    """A node with a certificate; the first one listens, the others connect to it."""
    limit = {"limit": network.pop("limit")} if "limit" in network else {}
    place = {"connect": make.opened[0].endpoints[0]} if make.opened else {"listen": TLS}
    return make(name, network=Network(**network, security=certified(folder, name, rules, **limit)), **place)
