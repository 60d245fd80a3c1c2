"""A node ends while it is about to be asked for what it has published of a value that was just bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Node, Patterns
from headwater.federation.patterns.asking import Asking
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

NAME = "found"
DOOR = "who: text, n: u32"
ABSENT = """
    a: door{n = 1}; without door{n = 2 and who = a.who} within 200 milliseconds measures a.who as who
"""
OFTEN = Config(patterns=Patterns(keep_events=1, grace=GUARD))


def east_of(make: Nodes, folder: Path) -> tuple[Node, Any]:
    node = make("east", log=folder / "east")
    return node, node.channel("door", DOOR).source("far")


@pytest.mark.filterwarnings("ignore:.*log:headwater.HeadwaterWarning")
def test_what_it_had_is_read_when_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for having nothing: what was in its log, and had not crossed, was said to be absent."""
    with nodes() as make:
        east, far = east_of(make, tmp_path)
        home = make("home", state=tmp_path / "state", log=tmp_path / "home", config=OFTEN)
        home.channel("door", DOOR)
        see(home, east)
        made: Any = home.pattern(NAME, ABSENT, at="home")
        make.ready(home)
        eventually(lambda: made.local.crossing["asked for open values"] == ["east"], timeout=GUARD)
        ask, ended = Asking.ask, list[Node]()

        def then_it_ends(self: Asking, open: Any, *more: Any) -> Any:
            points = ask(self, open, *more)
            if not ended and any("ann" in values for values in open.values()):
                east.close(drain=False)
                eventually(lambda: not home.peers, timeout=GUARD)
                ended.append(east)
            return points

        monkeypatch.setattr(Asking, "ask", then_it_ends)
        far.publish_many([{"who": "ann", "n": 1}, {"who": "ann", "n": 2}, {"who": "bob", "n": 1}])
        eventually(lambda: bool(ended), timeout=GUARD)
        make.opened.remove(east)
        east, far = east_of(make, tmp_path)
        see(home, east)
        make.ready(home)
        far.publish(who="cid", n=1)
        channel: Any = home.channel(NAME)
        seen = channel.backlog.read
        eventually(lambda: channel.sources[NAME].seq >= 2, timeout=GUARD)
        raw = [channel.type.decode_raw(record) for part in seen(NAME) for _, _, record in part.events()]
        assert [each["who"] for each in raw] == ["bob", "cid"] and not raw[1]["match"]["uncertain"]
