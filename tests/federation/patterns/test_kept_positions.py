"""How far a kept pattern is with its sources: of those that are no more, nothing is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Node, Patterns
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

NAME = "found"
TEXT = "a: door{n = 1}; b: door{n = 2} within 1 hour partition by who measures b.who as who"
DOOR = "who: text, n: u32"
OFTEN = Config(patterns=Patterns(keep_events=1, grace=GUARD))


def home(make: Nodes, folder: Path, east: Node) -> tuple[Node, Any]:
    node: Any = make("home", state=folder / "state", log=folder / "home", config=OFTEN)
    node.channel("door", DOOR)
    see(node, east)
    made = node.pattern(NAME, TEXT, at="home")
    make.ready(node)
    return node, made


@pytest.mark.parametrize("logged", [False, True])
def test_sources_that_are_closed_for_good_are_forgotten(tmp_path: Path, logged: bool) -> None:
    """One that is logged may be made again, and goes on with its numbers: it is remembered."""
    with nodes() as make:
        east: Any = make("east", log=tmp_path / "east") if logged else make("east")
        stays = east.channel("door", DOOR).source("stays")
        node, made = home(make, tmp_path, east)
        stays.publish(who="ann", n=1)
        for number in range(5):
            with east.channel("door").source(f"guest {number}") as guest:
                make.ready(node)
                guest.publish(who="ben", n=1)
                guest.publish(who="cid", n=1)
        eventually(lambda: made.report().rows == 11 and len(node.remote_sources("door")) == 1, timeout=GUARD)
        for _ in range(2):  # what is dropped was written as it is, and acknowledged
            made.keep()

        def forgotten() -> bool:
            """Each time it is written: its node may not have heard yet, the first times, that they are no more."""
            made.keep()
            return len(node.state.positions(NAME)) == (6 if logged else 1)

        eventually(forgotten, timeout=GUARD)
        node.close()
        make.opened.remove(node)
        node, made = home(make, tmp_path, east)
        assert made.report().kept["resumed"] and len(node.state.positions(NAME)) == (6 if logged else 1)
        stays.publish(who="ben", n=2)
        stays.publish(who="cid", n=2)
        channel: Any = node.channel(NAME)
        eventually(lambda: channel.sources[NAME].seq == 10, timeout=GUARD)  # five of each
