"""Where a pattern runs in a federation: at the one node that has its events, if that lets it, or where it is wanted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Interest, Node, Patterns
from headwater.errors import ChannelError, ClosedError, FederationError
from headwater.federation.security.policy import Allow, Deny, Restrict
from headwater.federation.security.settings import Security
from headwater.federation.wire.pattern_requests import PatternReport, PatternState, RunPattern, StopPattern
from headwater.federation.wire.requests import Install, Wish, pack_params
from headwater.patterns.pattern import Pattern
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

TYPE = "who: text, n: i64"
TEXT = "x: t.door{n % 10 = :r}; y: t.door{n = x.n + 3} within 1 hour measures y.n as n"
WHEN = {"r": 1}


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Watchman:
    """A policy that lets everything through but what it is told to refuse or restrict."""

    def __init__(self, decide: Any) -> None:
        self._decide = decide

    def decide(self, principal: Any, action: str, channel: str, on_behalf_of: str = "") -> Any:
        found = self._decide(action, channel)
        return Allow("all may") if found is None else found

    def decide_some(self, principal: Any, action: str, pattern: Any) -> Any:
        return Allow("all may")

    def open_to_all(self, action: str, channel: str) -> bool:
        return self._decide(action, channel) is None

    def seen_by(self, principal: Any) -> Any:
        return lambda channel: True

    def hides_from(self, principal: Any) -> bool:
        return False

    def deals_with(self, principal: Any, action: Any = None) -> bool:
        return True


def lab_and_desk(make: Nodes, **lab: Any) -> tuple[Node, Node, Any]:
    """The lab has the source."""
    there, desk = make("lab", **lab), make("desk")
    source = there.channel("t.door", TYPE).source("east")
    make.together(there, desk)
    see(desk, there)
    return there, desk, source


def numbers(node: Node, type: Any = None) -> tuple[list[int], Any]:
    found: list[int] = []
    return found, node.channel("found", type).subscribe(lambda event: found.append(event.n))


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last + 1):
        source.publish(who="Ann", n=n)


def test_it_runs_where_all_its_sources_are_and_only_matches_cross(make: Nodes) -> None:
    lab, desk, source = lab_and_desk(make)
    made = desk.pattern("found", TEXT, params=WHEN)
    assert made.home.node == "lab" and "all its sources" in made.home.why and made.local is None
    found, _ = numbers(desk)
    make.ready(desk)
    publish(source, 1, 40)
    eventually(lambda: found == [4, 14, 24, 34])
    assert lab._engine is not None
    assert sum(lane.passed for peer in lab._engine.everyone() for lane in peer.lanes()) == 4
    report = made.report()
    assert report.home == "lab" and report.to_dict()["matches"] == 4
    assert made.change(params={"r": 2}) == {"t.door/east": 40}
    publish(source, 41, 60)
    eventually(lambda: found[4:] == [45, 55])
    made.close()
    assert lab.report().services["patterns"]["foreign"] == {}
    with pytest.raises(ClosedError, match="was closed"):
        made.change(params={"r": 3})


def test_it_moves_with_what_is_open_when_sources_come_to_be_elsewhere(make: Nodes) -> None:
    lab, desk, source = lab_and_desk(make)
    made = desk.pattern("found", TEXT, params=WHEN)
    found, _ = numbers(desk)
    make.ready(desk)
    publish(source, 1, 12)  # 11 is open
    eventually(lambda: found == [4])
    third = make("third")
    make.together()
    other = third.channel("t.door", TYPE).source("west")
    eventually(lambda: made.home.node == "desk")
    assert made.moves == 1 and "moved from lab" in made.home.why
    make.ready(desk)
    publish(source, 13, 15)
    eventually(lambda: found == [4, 14])
    publish(other, 21, 21)
    other.publish(who="Bob", n=24)
    eventually(lambda: found == [4, 14, 24])
    assert made.report().home == "desk"
    assert lab.report().services["patterns"]["foreign"] == {}


def test_it_begins_anew_when_the_node_that_it_runs_at_has_left_and_others_have_sources(make: Nodes) -> None:
    desk = make("desk", config=Config(patterns=Patterns(lease=0.1)))
    lab = make("lab")
    source = lab.channel("t.door", TYPE).source("east")
    make.together()
    see(desk, lab)
    made = desk.pattern("found", TEXT, params=WHEN)
    found, _ = numbers(desk)
    make.ready(desk)
    publish(source, 1, 4)
    eventually(lambda: found == [4])
    lab.close()
    make.opened.remove(lab)
    third = make("third")
    other = third.channel("t.door", TYPE).source("west")
    make.together()
    eventually(lambda: made.home.node == "desk" and made.local is not None)
    assert "away" in made.report().why
    make.ready(desk)
    publish(other, 11, 14)
    eventually(lambda: found == [4, 14])


def test_what_runs_elsewhere_though_it_runs_here_is_stopped_there(make: Nodes) -> None:
    lab, desk, _ = lab_and_desk(make)
    made = desk.pattern("found", TEXT, params=WHEN, at="desk")
    engine = desk._engine
    assert engine is not None
    request = RunPattern("found", "found", "pattern", made.pattern.dumps(), pack_params(WHEN))
    engine.dialogue.ask(engine.peers[lab.id], request, GUARD)
    eventually(lambda: lab.report().services["patterns"]["foreign"] == {})
    assert made.problem == ""


def test_the_user_says_where(make: Nodes) -> None:
    _, desk, _ = lab_and_desk(make)
    with pytest.raises(
        FederationError, match=r"expected a node that is there \(desk, lab\), found 'lob'; did you mean"
    ):
        desk.pattern("found", TEXT, params=WHEN, at="lob")
    here = desk.pattern("found", TEXT, params=WHEN, at="desk")
    assert here.home.node == "desk" and here.local is not None
    here.close()
    there = desk.pattern("found", TEXT, params=WHEN, at="lab")
    assert there.home.node == "lab"
    with pytest.raises(FederationError, match="no network"), Node() as alone:
        alone.channel("t.door", TYPE)
        alone.pattern("found", TEXT, params=WHEN, at="lab")


REFUSALS = {
    "subscribe": (lambda action, channel: Deny("no") if (action, channel) == ("subscribe", "t.door") else None, {}),
    "install": (lambda action, channel: Deny("no") if (action, channel) == ("install", "t.door") else None, {}),
    "advertise": (lambda action, channel: Deny("no") if (action, channel) == ("advertise", "found") else None, {}),
    "foreign": (lambda action, channel: None, {"config": Config(patterns=Patterns(foreign=0))}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_who_may_not_have_it_run_there_is_told(make: Nodes, name: str) -> None:
    decide, more = REFUSALS[name]
    lab, desk, _ = lab_and_desk(make, security=Security(policy=Watchman(decide)), **more)
    with pytest.raises(FederationError, match=r"refused: .*(not allowed|may not publish|at most)"):
        desk.pattern("found", TEXT, params=WHEN, at="lab")
    made = desk.pattern("found", TEXT, params=WHEN)
    assert made.home.node == "desk" and "does not run it" in made.home.why
    assert lab.report().services["patterns"]["foreign"] == {}


def test_what_a_policy_hides_is_not_in_any_match(make: Nodes) -> None:
    hidden = Restrict(Interest("who != 'Eve'", TYPE), "not her")
    policy = Watchman(lambda action, channel: hidden if (action, channel) == ("subscribe", "t.door") else None)
    _, desk, source = lab_and_desk(make, security=Security(policy=policy))
    made = desk.pattern("found", TEXT, params=WHEN, at="lab")
    found, _ = numbers(desk)
    make.ready(desk)
    for who, n in (("Eve", 1), ("Ann", 4), ("Ann", 11), ("Eve", 14), ("Ann", 21), ("Ann", 24)):
        source.publish(who=who, n=n)
    eventually(lambda: found == [24])
    assert made.report().to_dict()["events"] == 4


def test_it_ends_when_its_node_is_away_for_longer_than_its_lease(make: Nodes) -> None:
    lab, desk, _ = lab_and_desk(make, config=Config(patterns=Patterns(lease=0.1)))
    desk.pattern("found", TEXT, params=WHEN)
    assert list(lab.report().services["patterns"]["foreign"]) == ["found"]
    desk.close(drain=False, timeout=0)
    eventually(lambda: lab.report().services["patterns"]["foreign"] == {})
    assert "away" in lab.report().services["patterns"]["ended"]["found"]
    eventually(lambda: not lab.channel("found").sources)


def test_a_name_has_one_home(make: Nodes) -> None:
    lab, desk, _ = lab_and_desk(make)
    first = lab.pattern("found", TEXT, params=WHEN)
    see(desk, lab)
    with pytest.raises(ChannelError, match="'found': it has its home at node lab; subscribe to channel 'found'"):
        desk.pattern("found", TEXT, params=WHEN)
    assert first.problem == ""
    with pytest.raises(ChannelError, match="in use"):
        lab.pattern("found", TEXT, params=WHEN)


def test_of_two_that_claim_a_name_at_once_the_later_one_ends(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, desk, _ = lab_and_desk(make)
    assert desk._placements is not None
    monkeypatch.setattr(desk._placements, "_check_free", lambda name, to: None)  # neither has heard of the other
    first = lab.pattern("found", TEXT, params=WHEN)
    second = desk.pattern("found", TEXT, params=WHEN, at="desk")
    eventually(lambda: "has its home at node lab" in second.problem)
    assert first.problem == "" and not first.closed
    with pytest.raises(ClosedError, match="claimed it before"):
        second.change(params={"r": 2})


def test_bytes_of_anybody_are_refused_or_harmless(make: Nodes) -> None:
    lab, desk, _ = lab_and_desk(make)
    made = desk.pattern("found", TEXT, params=WHEN, at="desk")
    engine = desk._engine
    assert engine is not None
    peer, data, dice = engine.peers[lab.id], made.pattern.dumps(), random.Random(3)
    good = RunPattern("other", "other", "pattern", data, pack_params(WHEN))

    def ask(**changed: Any) -> str:
        fields = {name: getattr(good, name) for name in good.__struct_fields__} | changed
        try:
            engine.dialogue.ask(peer, RunPattern(**fields), GUARD)
        except FederationError as error:
            return str(error)
        engine.dialogue.ask(peer, StopPattern("other"), GUARD)
        return ""

    assert "found 'spell'" in ask(kind="spell")
    assert "not the serial form" in ask(pattern=b"")
    assert "found something else" in ask(params=b"\xc1")
    assert ask(params=pack_params({}))
    assert "t.doos" in ask(pattern=data.replace(b"t.door", b"t.doos"))
    for _ in range(20):
        changed = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        ask(pattern=bytes(changed))
    for request in (StopPattern("found"), PatternState("found", 0), StopPattern("never", hand_over=True)):
        with pytest.raises(FederationError, match="refused"):
            engine.dialogue.ask(peer, request, GUARD)
    assert engine.dialogue.ask(peer, PatternReport("never"), GUARD).here is False
    assert lab.report().services["patterns"]["foreign"] == {}
    assert ask() == ""


def test_a_wish_of_that_kind_is_refused_by_itself(make: Nodes) -> None:
    lab, desk, _ = lab_and_desk(make)
    made = desk.pattern("found", TEXT, params=WHEN, at="desk")
    engine = desk._engine
    assert engine is not None
    pattern, plain = (
        1 << 20,
        1 << 21,
    )  # none that the node has asked with itself: what is granted is not looked at again
    wishes = [Wish(pattern, made.pattern.dumps(), pack_params(WHEN), kind="pattern"), Wish(plain, None)]
    told = engine.dialogue.ask(engine.peers[lab.id], Install("t.door", 1 << 40, wishes), GUARD)
    assert set(told.refused) == {pattern} and "does not run at a source" in told.refused[pattern]


@pytest.mark.parametrize("who", ["lab", "desk"])
def test_it_goes_on_where_it_runs_when_either_node_is_started_again(make: Nodes, tmp_path: Path, who: str) -> None:
    def lab() -> tuple[Node, Any]:
        there = make("lab", state=tmp_path / "lab", log=tmp_path / "log", listen="tcp/127.0.0.1:0")
        return there, there.channel("t.door", TYPE).source("east")

    def desk(lab: Node) -> tuple[Node, Any]:
        here = make("desk", state=tmp_path / "desk", connect=lab.endpoints[0])
        make.together(lab, here)
        see(here, lab)
        return here, here.pattern("found", TEXT, params=WHEN)

    there, source = lab()
    here, made = desk(there)
    assert made.home.node == "lab"
    found, _ = numbers(here)
    make.ready(here)
    publish(source, 1, 12)
    eventually(lambda: found == [4])
    (there if who == "lab" else here).close(drain=False, timeout=0)
    if who == "lab":
        make.opened.remove(there)
        here.close(drain=False, timeout=0)  # it reaches the lab at another endpoint
        make.opened.remove(here)
        there, source = lab()
    else:
        make.opened.remove(here)
        publish(source, 13, 14)  # while nobody is there for it, for less than its lease
    here, made = desk(there)
    found, _ = numbers(here)
    make.ready(here)
    assert made.home.node == "lab"
    eventually(lambda: list(there.report().services["patterns"]["foreign"]) == ["found"])
    publish(source, 13 if who == "lab" else 21, 24)
    eventually(lambda: found[-1:] == [24])
    logged = there.channel("found").backlog.read("found")
    assert [n for part in logged for n in part.rows.column("n").to_pylist()] == [4, 14, 24]


def test_what_another_node_has_kept_comes_after_a_restart_though_it_has_no_log(make: Nodes, tmp_path: Path) -> None:
    lab = make("lab")
    source = lab.channel("t.door", TYPE).source("east")

    def desk() -> tuple[Node, list[int]]:
        here = make("desk", state=tmp_path / "desk", log=tmp_path / "log")
        door = here.channel("t.door", TYPE)
        matches = Pattern(TEXT, {"t.door": door.type}, params=WHEN).output
        found, _ = numbers(here, matches)  # first: what it has to catch up with may be there as soon as it is made
        here.pattern("found", TEXT, params=WHEN, at="desk")
        make.together(lab, here)
        see(here, lab)
        make.ready(here)
        return here, found

    here, found = desk()
    publish(source, 1, 12)
    eventually(lambda: found == [4])
    here.close()
    make.opened.remove(here)
    publish(source, 13, 18)
    here, found = desk()
    publish(source, 19, 24)
    eventually(lambda: found == [14, 24])
