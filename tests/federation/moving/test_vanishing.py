"""Sinks that vanish without a word and come back within their lease; and sinks of sources without a log that move among
processes which are killed: what is lost is what docs/moving.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import rounds
from tests.federation.processes import World, world

CHANNEL, SINK = "test.count", "mail"
PLACES = ("desk", "phone")


def lines(path: Path) -> list[tuple[int, int]]:
    """The number of each event in its source, and whether it may have come before."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(int(row[1]), int(row[5])) for row in rows]


def open_all(made: World, *, logged: bool, state: bool) -> None:
    made.start("mill")
    made.open("mill", log={"channels": "test.**"} if logged else None)
    made["mill"]("flow", channel=CHANNEL, source="mill", maker="m", path=made.path("flow"))
    for name in PLACES:
        begin(made, name, state=state)


def begin(made: World, name: str, *, state: bool) -> None:
    made.start(name)
    made.open(name, seeds=["mill"], state=state)
    assert made[name]("sees", channel=CHANNEL, sources=["mill@mill"]) is True


def subscribed(made: World, *, durable: bool) -> Path:
    log = Path(made.path("sink.log"))
    made["desk"]("sink", channel=CHANNEL, name=SINK, path=str(log), durable=durable)
    assert made["desk"]("ready") is True
    assert made["desk"]("more", sink=SINK, count=20) is True
    return log


def all_of_it(made: World, where: str, log: Path) -> list[tuple[int, int]]:
    """Everything that came, once all has that was published."""
    [(maker, last)] = made["mill"]("stop").items()
    assert made[where]("came", sink=SINK, wanted={maker: last - 1}) is True
    return lines(log)


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("how", ["cut", "held", "stopped"])
def test_a_node_that_is_not_heard_of_for_a_while(how: str, durable: bool, logged: bool) -> None:
    """Its links are cut, or stand still, or its process does: what its sinks have asked for is kept for it, and so is
    what they have missed. All of it comes, once, in order."""
    with world() as made:
        open_all(made, logged=logged, state=durable)
        log = subscribed(made, durable=durable)
        before = made["mill"]("published")["m"]
        if how == "stopped":
            made["desk"].stop()
        else:
            made.wires.cut("desk", ended=how == "cut")
        while made["mill"]("published")["m"] < before + 100:
            pass
        if how == "stopped":
            made["desk"].go_on()
        else:
            made.wires.heal("desk")
        assert made["desk"]("more", sink=SINK, count=120) is True
        came = all_of_it(made, "desk", log)
    first = came[0][0]
    assert [number for number, _ in came] == list(range(first, first + len(came)))


@pytest.mark.parametrize("logged", [False, True])
def test_a_durable_sink_whose_process_is_killed(logged: bool) -> None:
    """It is subscribed again by its name: at most the event that its handler had comes twice, and says so."""
    with world() as made:
        open_all(made, logged=logged, state=True)
        log = subscribed(made, durable=True)
        for _ in range(rounds(2, 6)):
            made.kill("desk")
            begin(made, "desk", state=True)
            made["desk"]("sink", channel=CHANNEL, name=SINK, path=str(log), durable=True)
            assert made["desk"]("more", sink=SINK, count=30) is True
        came = all_of_it(made, "desk", log)
    fresh = [number for number, again in came if not again]
    numbers = sorted({number for number, _ in came})
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "all of them"
    assert fresh == sorted(set(fresh)) and len(came) - len(numbers) <= rounds(2, 6)


@pytest.mark.parametrize("durable", [False, True])
def test_moves_among_processes_lose_and_repeat_nothing(durable: bool) -> None:
    """Of a source without a log, under publishing, to and fro; while it is on its way too."""
    with world() as made:
        open_all(made, logged=False, state=durable)
        log = subscribed(made, durable=durable)
        places = list(PLACES)
        for _ in range(rounds(6, 60)):
            token = made[places[0]]("move", sink=SINK)
            made[places[1]]("resume", token=token, name=SINK, path=str(log))
            places.reverse()
            assert made[places[0]]("more", sink=SINK, count=10) is True
        came = all_of_it(made, places[0], log)
    first = came[0][0]
    assert came == [(number, 0) for number in range(first, first + len(came))]


def test_of_a_durable_sink_a_kill_takes_no_more_than_what_waited() -> None:
    """A source without a log: the old node is killed while the sink is on its way, and what waited there is gone; or
    the new one when it has it. Nothing comes twice but marked, in order, and it goes on."""
    with world() as made:
        open_all(made, logged=False, state=True)
        log = subscribed(made, durable=True)
        for number, victim in enumerate(["old", "new"] * rounds(1, 5)):
            old, new = PLACES[number % 2], PLACES[1 - number % 2]
            token = made[old]("move", sink=SINK)
            if victim == "old":
                made.kill(old)
                begin(made, old, state=True)
            made[new]("resume", token=token, name=SINK, path=str(log))
            assert made[new]("more", sink=SINK, count=20) is True
            if victim == "new":
                made.kill(new)
                begin(made, new, state=True)
                made[new]("resume", token=token, name=SINK, path=str(log))
                assert made[new]("more", sink=SINK, count=20) is True
        came = all_of_it(made, new, log)
    fresh = [number for number, again in came if not again]
    assert fresh == sorted(set(fresh))
    gaps = [
        second for first, second in zip(sorted(set(fresh)), sorted(set(fresh))[1:], strict=False) if second > first + 1
    ]
    assert len(gaps) <= 2 * rounds(1, 5)


def test_of_a_sink_that_is_not_durable_a_kill_of_the_old_node_ends_it() -> None:
    with world() as made:
        open_all(made, logged=False, state=False)
        log = subscribed(made, durable=False)
        token = made["desk"]("move", sink=SINK)
        made.kill("desk")
        begin(made, "desk", state=False)
        with pytest.raises(AssertionError, match=r"never made here|is not there"):
            made["phone"]("resume", token=token, name=SINK, path=str(log), timeout=10.0)
