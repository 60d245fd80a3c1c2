"""A sink moves among processes that are killed: the one it leaves, the one it comes to, and the one with the source."""

from __future__ import annotations

from pathlib import Path

from tests.effort import rounds
from tests.federation.processes import World, world

CHANNEL, SINK = "test.count", "mail"
PLACES = ("desk", "phone")


def lines(path: Path) -> list[tuple[int, int]]:
    """The number of each event in its source, and whether it may have come before."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(int(row[1]), int(row[5])) for row in rows]


def begin(made: World, name: str) -> None:
    made.start(name)
    if name == "mill":
        made.open("mill", log={"channels": "test.**"})
        maker = f"m{made.life('mill')}"
        made["mill"]("flow", channel=CHANNEL, source="mill", maker=maker, path=made.path("flow"))
    else:
        made.open(name, seeds=["mill"], state=True)


def test_through_kills_nothing_is_lost_and_what_is_repeated_says_so() -> None:
    """Each round the sink moves under publishing, and somebody is killed (-9) between the token and the taking up, or
    just after it: all numbers of the source come, in order; an event comes again only if it was being handled when its
    process was killed, and is marked then."""
    with world() as made:
        for name in ("mill", *PLACES):
            begin(made, name)
        for name in PLACES:
            assert made[name]("sees", channel=CHANNEL, sources=["mill@mill"]) is True
        log = Path(made.path("sink.log"))
        made["desk"]("sink", channel=CHANNEL, name=SINK, path=str(log), durable=True)
        assert made["desk"]("ready") is True
        kills = 0
        for number, victim in enumerate(["old", "new", "mill", "none"] * rounds(1, 5)):
            old, new = PLACES[number % 2], PLACES[1 - number % 2]
            assert made[old]("more", sink=SINK, count=20) is True
            token = made[old]("move", sink=SINK)
            if victim in ("old", "mill"):
                name = old if victim == "old" else "mill"
                made.kill(name)
                begin(made, name)
            made[new]("resume", token=token, name=SINK, path=str(log))
            if victim == "new":
                assert made[new]("more", sink=SINK, count=20) is True
                made.kill(new)
                kills += 1
                begin(made, new)
                made[new]("resume", token=token, name=SINK, path=str(log))  # it is its own: it goes on
            assert made[new]("more", sink=SINK, count=20) is True
        [(maker, last)] = made["mill"]("stop").items()
        assert made[new]("came", sink=SINK, wanted={maker: last - 1}) is True
        came = lines(log)
    fresh = [number for number, again in came if not again]
    repeated = [number for number, again in came if again]
    numbers = sorted({number for number, _ in came})
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "all of them"
    assert fresh == sorted(set(fresh)), "in order, none twice but marked"
    assert len(came) - len(numbers) <= kills and len(repeated) <= 2 * kills + len(PLACES)
