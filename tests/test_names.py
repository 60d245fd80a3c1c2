"""What objects show, and what can be imported, is what the pages have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import headwater as hw
from headwater.correlation import all_of, on

DOCS = Path(__file__).parent.parent / "docs"
MODULES = re.findall(r"^\| `headwater\.(\w+)` \|", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def documented(heading: str, page: str = "service.md") -> set[str]:
    """The names in the first column of the table that begins with this heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = re.search(rf"^\| {heading} \| [^\n]*\|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return {name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def shown(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


class Level(hw.Event):
    level: float


def test_nodes_and_subscriptions_show_what_is_documented() -> None:
    with hw.Node("lab", listen="tcp/127.0.0.1:0") as node, hw.Node("alone") as alone:
        assert shown(node) == shown(alone) == documented("node")
        channel = node.channel("ie.tcd.level", Level)
        source = channel.source()
        assert shown(channel) == documented("channel") and shown(source) == documented("source")
        pulled, pushed = channel.subscribe(), channel.subscribe(print, "level > 0.5", name="loud")
        matches = node.correlate(all_of(on(channel)))
        assert shown(matches) == documented("subscription")
        assert shown(pulled) == shown(pushed) == documented("subscription") - {"remembered"}


def test_events_show_their_fields_and_how_they_become_something_else() -> None:
    assert shown(Level(0.5)) == {"level", "to_dict", "from_dict", "to_json", "from_json"}


def test_what_can_be_imported_is_documented() -> None:
    assert set(hw.__all__) - {"__version__"} == documented("`headwater`", "api.md")
    assert len(hw.__all__) <= 36


@pytest.mark.parametrize("module", MODULES)
def test_what_a_module_has_is_documented(module: str) -> None:
    assert set(getattr(hw, module).__all__) == documented(f"`headwater.{module}`", "api.md")
    assert all(getattr(getattr(hw, module), name) is not None for name in getattr(hw, module).__all__)


def test_a_network_shows_its_settings() -> None:
    network = hw.Network()
    assert shown(network) == {"of", *(each.name for each in fields(network))}
