"""A source moves among processes that are killed: the one it leaves and the one it comes to, before, in the middle and
after."""

from __future__ import annotations

from pathlib import Path

from tests.effort import rounds
from tests.federation.moving.test_kills import lines
from tests.federation.processes import World, world

CHANNEL, SOURCE, SINK = "test.count", "flow", "mail"
PLACES = ("lab", "mill")
VICTIMS = ("new during", "old during", "old after", "new after", "old before")  # of moves


def begin(made: World, name: str) -> None:
    made.start(name)
    log = {"channels": "test.**"} if name in PLACES else None
    made.open(name, seeds=[] if name == "desk" else ["desk"], state=True, log=log)


def maker(made: World, name: str) -> str:
    return f"{name}{made.life(name)}"


def again(made: World, name: str) -> bool:
    """It is killed, and started again: whether its program finds the source there."""
    made.kill(name)
    begin(made, name)
    where = {"channel": CHANNEL, "source": SOURCE, "maker": maker(made, name), "path": made.path(f"{name}.flow")}
    return bool(made[name]("flow_if_here", **where))


def test_through_kills_there_is_one_sequence() -> None:
    """Each round the source moves under publishing, and somebody is killed (-9): before the token is used, while it is
    being used, or after. One of the two goes on with it; a durable sink has every number once, in order."""
    with world() as made:
        for name in ("desk", *PLACES):
            begin(made, name)
        log = Path(made.path("sink.log"))
        made["desk"]("sink", channel=CHANNEL, name=SINK, path=str(log), durable=True)
        made["lab"]("flow", channel=CHANNEL, source=SOURCE, maker=maker(made, "lab"), path=made.path("lab.flow"))
        assert made["desk"]("sees", channel=CHANNEL, sources=[f"{SOURCE}@lab"]) is True
        assert made["desk"]("ready") is True
        at = 0
        many = rounds(1, 6)
        for victim in VICTIMS[:3] if many == 1 else VICTIMS * many:
            old, new = PLACES[at], PLACES[1 - at]
            assert made["desk"]("more", sink=SINK, count=20) is True
            token = made[old]("move_source", maker=maker(made, old))
            if victim == "old before":
                assert again(made, old), "nothing has changed: it goes on there"
            taken = {"token": token, "maker": maker(made, new), "path": made.path(f"{new}.flow")}
            made[new].start("resume_source", **taken)
            if victim == "new during":
                made.kill(new)
                begin(made, new)
                taken["maker"] = maker(made, new)
                assert made[new]("resume_source", **taken) is True  # it may be that it had it by then
            else:
                if victim == "old during":
                    again(made, old)
                assert made[new].answer() is True
            assert made["desk"]("more", sink=SINK, count=20) is True
            if victim == "new after":
                assert again(made, new), "it is its own"
            if victim == "old after":
                assert not again(made, old), "it has moved"
            assert made["desk"]("more", sink=SINK, count=20) is True
            at = 1 - at
        name = PLACES[at]
        last = made[name]("stop")[maker(made, name)]
        assert made["desk"]("came", sink=SINK, wanted={maker(made, name): last}) is True
        came = lines(log)
    numbers = [number for number, _ in came]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "all of them, in order, none twice"
