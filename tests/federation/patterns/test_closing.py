"""A pattern's node closes while a source of another node is behind: what that has not promised is not decided."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Node, Patterns
from headwater.dispatch import Pool
from headwater.errors import ClosedError
from headwater.testing import ManualClock
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

NAME = "found"
DOOR = "who: text, n: u32"
ABSENT = "a: door{n = 1}; without door{n = 2} within 1 second partition by who measures a.who as who"
OFTEN = Config(patterns=Patterns(keep_events=1, grace=GUARD))
AHEAD = 10  # seconds by which the clock of the pattern's node is


class Home:
    """A node with a pattern over doors here and at `east`; its state is kept, and it can be opened again."""

    def __init__(self, make: Nodes, folder: Path) -> None:
        self.make, self.folder = make, folder
        self.here, self.there = ManualClock(), ManualClock()
        self.east = make("east", log=folder / "east", clock=self.there)
        self.far = self.east.channel("door", DOOR).source("far")
        self.open()

    def open(self) -> None:
        log = self.folder / "home"
        self.node: Node = self.make("home", state=self.folder / "state", log=log, clock=self.here, config=OFTEN)
        self.near = self.node.channel("door", DOOR).source("near")
        see(self.node, self.east)
        self.pattern: Any = self.node.pattern(NAME, ABSENT, at="home")
        self.make.ready(self.node)

    def close(self) -> None:
        self.node.close()
        self.make.opened.remove(self.node)

    def found(self, count: int) -> Counter[tuple[str, bool]]:
        """Who was alone, and whether that is uncertain: all that were ever published, once there are so many."""
        channel: Any = self.node.channel(NAME)

        def there() -> bool:
            self.there.advance(0.1)
            self.here.advance(0.1)
            return bool(channel.sources[NAME].seq >= count)

        eventually(there, timeout=GUARD)
        records = [record for part in channel.backlog.read(NAME) for _, _, record in part.events()]
        raw = [channel.type.decode_raw(record) for record in records]
        return Counter((each["who"], each["match"]["uncertain"]) for each in raw)


@pytest.mark.parametrize("late", [False, True])
def test_what_was_not_promised_is_decided_after_the_restart(tmp_path: Path, late: bool) -> None:
    """With `late`, its state is written when its sources have stopped already: an event has come at the last moment."""
    with nodes() as make:
        home = Home(make, tmp_path)
        first = home.node

        def last(event: Any) -> None:
            """While the node drains, its handlers may still publish."""
            eventually(lambda: first.closed, timeout=GUARD)
            home.near.publish(who="cid", n=1)

        home.far.publish(who="ann", n=1)
        eventually(lambda: home.pattern.report().rows == 1, timeout=GUARD)
        home.here.advance(AHEAD)
        if late:
            go = first.channel("go", "n: u32")
            go.subscribe(last, dispatch=Pool())
            go.source("go").publish(n=1)
        home.close()
        home.far.publish(who="ann", n=2)
        home.far.publish(who="bob", n=1)
        home.open()
        assert home.pattern.report().kept["resumed"]
        home.there.advance(AHEAD)
        expected = Counter({("bob", False): 1, **({("cid", False): 1} if late else {})})
        assert home.found(expected.total()) == expected


def test_who_does_not_go_on_says_at_the_end_what_is_uncertain() -> None:
    """Nobody will be there to say it later: what other nodes could still contradict is marked."""
    with nodes() as make:
        here, there = ManualClock(), ManualClock()
        east = make("east", clock=there)
        far = east.channel("door", DOOR).source("far")
        home = make("home", clock=here)
        near = home.channel("door", DOOR).source("near")
        see(home, east)
        seen: dict[str, list[tuple[str, bool]]] = {"watched": [], "named": []}

        def note(where: str) -> Any:
            return lambda found: seen[where].append((found.who, found.match.uncertain))

        watch = home.match(ABSENT, note("watched"))
        home.pattern(NAME, ABSENT, at="home")
        home.channel(NAME).subscribe(note("named"))
        pairs = home.match("a: door{n = 1}; b: door{n = 3} within 1 minute partition by who measures a.who as who")
        make.ready(home)
        far.publish(who="ann", n=1)
        near.publish(who="ann", n=3)
        eventually(lambda: watch.report().rows == 1 and pairs.report().events == 2, timeout=GUARD)
        here.advance(AHEAD)
        near.publish(who="bob", n=1)  # its time is not over
        assert seen == {"watched": [], "named": []} and pairs.poll() is None
        home.close()
        make.opened.remove(home)
        assert seen == {"watched": [("ann", True)], "named": [("ann", True)]}
        found = pairs.poll()
        assert found is not None and (found.who, found.match.uncertain) == ("ann", True)  # who knows what came between
        with pytest.raises(ClosedError):
            pairs.poll()
