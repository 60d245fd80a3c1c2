"""What objects show is what the page has: everything else of them begins with an underscore."""

from __future__ import annotations

import re
from pathlib import Path

import headwater as hw
from headwater.correlation import all_of, on

PAGE = Path(__file__).parent.parent / "docs" / "service.md"


def documented(heading: str) -> set[str]:
    """The names in the first column of the table that begins with this heading."""
    text = PAGE.read_text(encoding="utf-8")
    table = re.search(rf"^\| {heading} \| \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
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
        pulled, pushed = channel.subscribe(), channel.subscribe(print, "level > 0.5", name="loud")
        matches = node.correlate(all_of(on(channel)))
        assert shown(matches) == documented("subscription")
        assert shown(pulled) == shown(pushed) == documented("subscription") - {"remembered"}


def test_events_show_their_fields_and_how_they_become_something_else() -> None:
    assert shown(Level(0.5)) == {"level", "to_dict", "from_dict", "to_json", "from_json"}
