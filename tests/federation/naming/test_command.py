"""`headwater names`: keys, signed zones, the tree, and a name step by step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater import Network, Node
from headwater.cli import main
from headwater.names import Names
from tests.federation.naming.campus import address_of, campus
from tests.federation.nursery import Popen


def test_keys_zones_the_tree_and_a_name_step_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str, code: int = 0) -> str:
        assert main(["names", *arguments]) == code
        found = capsys.readouterr()
        return found.out + found.err

    root, ucc = (said("key", str(tmp_path / f"{name}.key")).strip() for name in ("root", "ucc"))
    with campus() as made:
        hub = made.hub("names", "ucc")
        (tmp_path / "root.toml").write_text(
            f"""
            [[serve]]
            domain = "."
            key = "root.key"
            servers = ["{address_of(made.root)}"]
            [serve.delegations."ie.ucc"]
            owner = "{ucc}"
            servers = ["{address_of(hub)}"]
            [serve.delegations."ie.gone"]
            owner = "{"9a" * 32}"
            servers = ["gone.{"5a" * 16}@gone=tcp/127.0.0.1:1"]
            """
        )
        assert "root.domain: domain '.' version" in said("sign", str(tmp_path / "root.toml"))
        # The server needs the signed zone only, and not the key.
        Names(made.root, {"serve": [{"domain": ".", "document": str(tmp_path / "root.domain")}]})
        anchors = f'anchors = {{ "." = {{ owner = "{root}", servers = ["{address_of(made.root)}"] }} }}\n'
        (tmp_path / "ucc.toml").write_text(
            f'{anchors}[[serve]]\ndomain = "ie.ucc"\nkey = "ucc.key"\nadvertise = [{{ names = "**", who = "*" }}]\n'
        )
        Names(hub, tmp_path / "ucc.toml").advertise("ie.ucc.door")
        (tmp_path / "names.toml").write_text(anchors)
        tree = said("tree", str(tmp_path / "names.toml"), code=1)
        lines = [line.split() for line in tree.splitlines()]
        assert [line[0] for line in lines] == ["domain", ".", "ie.gone", "ie.ucc"]
        assert "gone@gone does not answer" in tree and "names@ucc" in tree and "good for 30.0 days" in tree
        found = said("resolve", "ie.ucc.door", str(tmp_path / "names.toml"))
        assert "root@core" in found and "knows the way to ie.ucc" in found and "sources at names@ucc" in found
        assert f"ie.ucc.door at {hub.id}@ucc" in found
        assert "knows of no sources" in said("resolve", "ie.ucc.window", str(tmp_path / "names.toml"))
        # With a pinned key and a server to ask, as nodes have that only look names up.
        for domain, key in ((".", root), ("ie.ucc", ucc)):
            asks = f'servers = ["{address_of(hub)}"]\nanchors = {{ "{domain}" = "{key}" }}\n'
            (tmp_path / "asks.toml").write_text(asks)
            assert f"ie.ucc.door at {hub.id}@ucc" in said("resolve", "ie.ucc.door", str(tmp_path / "asks.toml"))
        lost = said("resolve", "ie.gone.door", str(tmp_path / "names.toml"), code=2)
        assert "no answer" in lost and "'ie.gone'" in lost
        assert "a domain that" not in said("tree", str(tmp_path / "nowhere.toml"), code=2)


def test_a_node_serves_the_domains_of_a_file_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["names", "key", str(tmp_path / "root.key")]) == 0
    key = capsys.readouterr().out.strip()
    (tmp_path / "root.toml").write_text('[[serve]]\ndomain = "."\nkey = "root.key"\n')
    arguments = ["node", "--name", "top", "--listen", "tcp/127.0.0.1:0", "--names", str(tmp_path / "root.toml")]
    with Popen(
        [sys.executable, "-m", "headwater.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = next(line for line in process.stdout if line.startswith("serves . as "))
            address = line.removeprefix("serves . as ").strip()
            (tmp_path / "names.toml").write_text(f'anchors = {{ "." = "{key}" }}\nservers = ["{address}"]\n')
            assert main(["names", "tree", str(tmp_path / "names.toml")]) == 0
            assert "top@headwater" in capsys.readouterr().out
        finally:
            process.kill()


def test_a_node_that_its_zone_does_not_name_does_not_serve_it(tmp_path: Path) -> None:
    from headwater.errors import ConfigError
    from tests.services.naming.world import World

    path = tmp_path / "ie.domain"
    path.write_bytes(World().add("ie", ["s1"]).signed.to_bytes())
    with (
        Node("other", network=Network(listen="tcp/127.0.0.1:0")) as node,
        pytest.raises(ConfigError, match="as a server"),
    ):
        Names(node, {"serve": [{"domain": "ie", "document": str(path)}]})
