"""Patterns, their sources and durable subscribers of their matches in processes of their own, which are killed."""

from __future__ import annotations

import random
from collections import Counter
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
        made.open("home", seeds=["mill"], state=True, log={"channels": NAME})
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
