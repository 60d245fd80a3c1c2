"""Patterns, their sources and durable subscribers of their matches in processes of their own, which are killed."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

from headwater.logs import LogFiles
from tests.effort import rounds
from tests.federation.processes import World, world

# From x to y there are seven rows, and five of them come as marks: if one came twice, nothing would be found.
TEXT = """
    x: test.count{n % 20 = 1}; y: test.count{n % 20 = 7 and n = x.n + 6} within 7 events
    partition by maker measures y.maker as maker, y.n as n
"""
NAME = "found"
KEEP = 10.0  # seconds after which what a mill that was killed may yet say is waited for no more; the next is a new one


def expected(folder: Path) -> set[tuple[str, int]]:
    """What is in the log of the sources says which matches there are."""
    rows = [row for batch in LogFiles(folder).read("test.count") for row in batch.to_pylist()]
    counts = {(row["maker"], row["n"]) for row in rows}
    return {(maker, n) for maker, n in counts if n % 20 == 7 and (maker, n - 6) in counts}


def seen(path: Path) -> list[tuple[str, int, int]]:
    """Maker, number, and whether it may have come before."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(maker, int(n), int(again)) for _, _, maker, n, _, again in lines]


def doubles(path: Path) -> list[str]:
    """The lines of what came more than once."""
    lines = path.read_text().splitlines()
    counts = Counter(" ".join(line.split()[2:4]) for line in lines)
    return [f"{at}: {line}" for at, line in enumerate(lines) if counts[" ".join(line.split()[2:4])] > 1]


def begin(made: World, name: str) -> None:
    """Open a node, for the first time or again, and have it do what it does."""
    life = made.life(name) if name in made.running else 1
    if name == "mill":
        made.open("mill", log={"channels": "test.**"})
        made["mill"]("flow", channel="test.count", source="mill", maker=f"m{made.life(name)}", path=made.path("flow"))
    elif name == "home":
        made.open("home", seeds=["mill"], state=True, log={"channels": NAME}, keep=KEEP)
        made["home"]("pattern", name=NAME, text=TEXT, at="home")
    else:
        made.open("desk", seeds=["home", "mill"], state=True)
        made["desk"]("matches", name=NAME, text=TEXT, path=made.path("desk.log"))
    assert life >= 1


def test_every_match_comes_once_through_kills_of_either_side() -> None:
    pick = random.Random(11)
    with world() as made:
        for name in ("home", "desk", "mill"):
            made.start(name)
        made.open("mill", log={"channels": "test.**"})
        begin(made, "home")
        begin(made, "desk")
        assert made["desk"]("peers", wanted=["home", "mill"]) is True
        made["mill"]("flow", channel="test.count", source="mill", maker="m1", path=made.path("flow"))
        assert made["home"]("sees", channel="test.count", sources=["mill@mill"]) is True
        assert made["home"]("ready") is True and made["desk"]("ready") is True
        victims = ["home", "desk", "home", "mill"] * rounds(1, 5)
        for victim in victims:
            assert made["desk"]("more", sink=NAME, count=3) is True
            if pick.random() < 0.5 and "home" in made.running:
                made["home"]("keep", name=NAME)
            made.kill(victim)
            made.start(victim)
            begin(made, victim)
        assert made["desk"]("more", sink=NAME, count=3) is True
        last = made["mill"]("stop")
        wanted = {maker: n - (n - 7) % 20 for maker, n in last.items() if n >= 7}
        assert made["desk"]("came", sink=NAME, wanted=wanted) is True
        assert made["home"]("narrow", name=NAME, nodes=["mill"]) is True
        for name in ("mill", "home"):
            made[name]("close")
        came = seen(Path(made.path("desk.log")))
        sure = [(maker, n) for maker, n, again in came if not again]
        assert len(set(sure)) == len(sure), doubles(Path(made.path("desk.log")))
        first = min(n for maker, n, _ in came if maker == "m1")
        there = {(maker, n) for maker, n in expected(Path(made.path("events"))) if maker != "m1" or n >= first}
        assert {(maker, n) for maker, n, _ in came} == there
        doubled = len(came) - len(set(came))
        assert doubled <= victims.count("desk")  # what the handler had when its process was killed


# After every second x nothing of the kind comes, after the others something does, unless their process was killed.
ABSENT = """
    x: test.count{n % 20 = 1}; without test.count{n = x.n + 6 and n % 40 = 7 and maker = x.maker} within 300 ms
    measures x.maker as maker, x.n as n
"""


def open_absence(made: World, name: str) -> None:
    if name == "mill":
        made.open("mill", log={"channels": "test.**"})
        made["mill"]("flow", channel="test.count", source="mill", maker=f"m{made.life(name)}", path=made.path("flow"))
    else:
        made.open("home", seeds=["mill"], state=True, log={"channels": NAME}, keep=KEEP)
        made["home"]("matches", name=NAME, text=ABSENT, path=made.path("home.log"), durable=False)
        made["home"]("pattern", name=NAME, text=ABSENT, at="home")


def absent(folder: Path) -> dict[tuple[str, int], datetime]:
    """After which x nothing came, and when those were, by the log of their source."""
    rows = [row for batch in LogFiles(folder).read("test.count") for row in batch.to_pylist()]
    times = {(row["maker"], row["n"]): row["event_time"] for row in rows}

    def followed(maker: str, n: int) -> bool:
        later = times.get((maker, n + 6))
        return later is not None and n % 40 == 1 and later - times[maker, n] <= timedelta(milliseconds=300)

    return {at: time for at, time in times.items() if at[1] % 20 == 1 and not followed(*at)}


def test_absence_is_said_once_and_truly_through_kills_of_either_side() -> None:
    """Nothing is said to be absent while its source is away, though time is over: what that had logged comes first."""
    pick = random.Random(5)
    with world() as made:
        for name in ("home", "mill"):
            made.start(name)
        open_absence(made, "mill")
        open_absence(made, "home")
        assert made["home"]("sees", channel="test.count", sources=["mill@mill"]) is True
        assert made["home"]("ready") is True
        for victim in ["home", "mill"] * rounds(1, 5):
            assert made["home"]("more", sink=NAME, count=3) is True
            if pick.random() < 0.5:
                made["home"]("keep", name=NAME)
            made.kill(victim)
            made.start(victim)
            open_absence(made, victim)
        assert made["home"]("more", sink=NAME, count=3) is True
        ((maker, last),) = made["mill"]("stop").items()
        last -= (last - 21) % 40  # nothing came after this one, for sure
        assert made["home"]("came", sink=NAME, wanted={maker: last}) is True
        for name in ("home", "mill"):
            made[name]("close")
        folder = Path(made.path("events"))
        rows = [row for batch in LogFiles(folder).read(NAME) for row in batch.to_pylist()]
        found = {(row["maker"], row["n"]): bool(row["match"]["uncertain"]) for row in rows}
        assert len(found) == len(rows)  # each once
        there = absent(folder)
        since = min(there[at] for at in found if at in there)
        upto = there[maker, last]
        assert {at for at, time in there.items() if since <= time <= upto} <= found.keys()
        assert [at for at, uncertain in found.items() if not uncertain and at not in there] == []
        assert sum(found.values()) < len(found) / 2  # what was logged is known
