"""A policy decides: it allows, denies, or restricts to what an interest passes; wherever events come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Node
from headwater.channel.names import Pattern
from headwater.errors import ConfigError, FederationError
from headwater.federation.logs.client import LogClient
from headwater.federation.network import Network
from headwater.federation.security.policy import Action, Allow, Deny, Policy, Restrict, Verdict
from headwater.federation.security.rules import Principal, Rule, Rules
from headwater.federation.security.settings import Security
from headwater.federation.wire.requests import Install, Wish
from headwater.interest import as_event_type
from headwater.services.policy.conjunction import restricted
from tests.federation.nodes import GUARD, Log, Nodes, nodes

CHANNEL, HIDDEN, TYPE = "t.badges", "t.hidden", "badge: u32, room: u32, level: f64"
BOUND = as_event_type(TYPE)
NODE = Principal("desk", "certificate", "0" * 64)


class Rooms:
    """Of badges, every node gets what is seen in room 7. Of those who are said to be behind one, Ann may have all, Bob
    install nothing, Joe have what is loud, Eve nothing; that gives no node more than it would get itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
        self.asked.append((action, channel, on_behalf_of))
        if channel == HIDDEN:
            return Deny("it is nobody's business")
        if on_behalf_of == "bob" and action != "advertise":
            return Deny("no code of Bob's") if action == "install" else Allow("his")
        if on_behalf_of == "joe" and action == "subscribe":
            return Restrict(Interest("level > :least", BOUND, params={"least": 0.9}), "only what is loud")
        if action != "subscribe" or channel != CHANNEL or on_behalf_of == "ann":
            return Allow("why not")
        if on_behalf_of == "eve":
            return Deny("Eve is not welcome")
        return Restrict(Interest("room == :room", BOUND, params={"room": 7}), "only room 7 is public")

    def decide_some(self, principal: Principal, action: Action, pattern: Pattern) -> Verdict:
        return Allow("some")

    def open_to_all(self, action: Action, channel: str) -> bool:
        return channel not in (CHANNEL, HIDDEN)

    def seen_by(self, principal: Principal) -> Callable[[str], bool]:
        return lambda name: name != HIDDEN

    def hides_from(self, principal: Principal) -> bool:
        return True

    def deals_with(self, principal: Principal, action: Action | None = None) -> bool:
        return True


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def pair(make: Nodes, policy: Policy | None = None, **options: Any) -> tuple[Node, Node, Any]:
    network = Network(security=Security(policy=policy or Rooms()))
    lab = make("lab", listen="tcp/127.0.0.1:0", network=network, **options)
    source = lab.channel(CHANNEL, TYPE).source("door")
    desk = make("desk")
    make.together()
    desk.channel(CHANNEL, TYPE)
    return lab, desk, source


def publish(source: Any) -> list[dict[str, Any]]:
    """Rooms 6 and 7 by turns."""
    events = [{"badge": n, "room": 6 + n % 2, "level": n / 10} for n in range(20)]
    for event in events:
        source.publish(**event)
    return events


def test_rules_are_a_policy() -> None:
    rules = Rules([Rule("a.**", ["dublin", "*"], may=("subscribe",)), Rule("**", "cork")])
    assert isinstance(rules, Policy)
    assert rules.open_to_all("subscribe", "a.b") and not rules.open_to_all("install", "a.b")
    assert not rules.open_to_all("subscribe", "b") and Rules(default=True).open_to_all("subscribe", "b")
    assert rules.decide(NODE, "subscribe", "a.b", "ann") == rules.decide(NODE, "subscribe", "a.b")


def test_what_is_subscribed_to_is_restricted_at_the_source(make: Nodes) -> None:
    lab, desk, source = pair(make)
    everything, filtered, stateful, output = Log(), Log(), Log(), Log()
    channel = desk.channel(CHANNEL)
    sinks = [
        channel.subscribe(everything),
        channel.subscribe(filtered, "level >= 1.0"),
        channel.subscribe(stateful, "{ static int n = 0; n = n + 1; return n % 2 == 0; }"),
        channel.subscribe(
            output, Interest("{ output.twice = input.level * 2; return 1; }", BOUND, output="twice: f64")
        ),
    ]
    make.ready(desk)
    assert not any(sink.refused for sink in sinks)
    seen = [event for event in publish(source) if event["room"] == 7]
    assert lab.flush(GUARD)
    everything.wait(len(seen))
    assert everything.field("badge") == [event["badge"] for event in seen]
    assert filtered.wait(5) and filtered.field("badge") == [event["badge"] for event in seen if event["level"] >= 1]
    # What is hidden does not even count: it reaches neither state nor output.
    assert stateful.wait(5) and stateful.field("badge") == [event["badge"] for event in seen[1::2]]
    assert output.wait(10) and output.field("twice") == [event["level"] * 2 for event in seen]
    assert all(each.crossed <= 2 * len(seen) + 5 for sink in sinks for each in desk.remote_counts(sink))


def test_what_is_remembered_is_restricted_too(make: Nodes) -> None:
    _, desk, source = pair(make, config={"history": 100})
    events, log = publish(source), Log()
    desk.channel(CHANNEL).subscribe(log, history=100)
    make.ready(desk)
    wanted = [event["badge"] for event in events if event["room"] == 7]
    log.wait(len(wanted))
    assert log.field("badge") == wanted


def test_who_is_denied_is_told_why_and_sees_nothing(make: Nodes) -> None:
    lab, desk, _ = pair(make)
    hidden = lab.channel(HIDDEN, TYPE).source()
    log = Log()
    sink = desk.channel(HIDDEN, TYPE).subscribe(log)
    assert desk.until(lambda: f"{HIDDEN}@lab" in sink.refused, GUARD)
    assert "it is nobody's business" in sink.refused[f"{HIDDEN}@lab"]
    publish(hidden)
    assert lab.flush(GUARD) and log.events == [] and not desk.remote_sources(HIDDEN)


def test_each_wish_says_whom_it_is_for(make: Nodes) -> None:
    policy = Rooms()
    lab, desk, _ = pair(make, policy)
    assert desk._engine is not None
    program = Interest("level > 0.5", BOUND).dumps()
    wishes = [
        Wish(1, program, tagged=True, on_behalf_of="ann"),
        Wish(2, program, tagged=True, on_behalf_of="eve"),
        Wish(3, program, on_behalf_of="ann"),
        Wish(4, program),
        Wish(5, Interest("level * 2.0 > 1.0", BOUND).dumps(), tagged=True, on_behalf_of="bob"),  # more than comparisons
        Wish(6, program, tagged=True, on_behalf_of="joe"),
    ]
    answer = desk._engine.dialogue.ask(desk._engine.peers[lab.id], Install(CHANNEL, 1, wishes))
    assert set(answer.refused) == {2, 3, 5}
    assert answer.refused[5] == "not allowed to install code: no code of Bob's"
    assert answer.refused[2] == "not allowed: Eve is not welcome"
    assert "for 'ann' must come with a tag" in answer.refused[3]
    assert {("subscribe", CHANNEL, who) for who in ("", "ann", "eve")} <= set(policy.asked)
    installed = lab._engine.peers[desk.id].crossings[CHANNEL].wishes  # type: ignore[union-attr]
    interests = {tag: entry.interest for tag, (entry, _) in installed.items()}
    assert all("room" in str(interest) for interest in interests.values())  # it says that it is for Ann, and no more
    for tag, passing in ((1, 0.6), (4, 0.6), (6, 0.95)):
        native = interests[tag].native()
        found = [native.test(BOUND.encode({"badge": 1, "room": room, "level": level}))
                 for room in (6, 7) for level in (0.6, 0.95)]  # fmt: skip
        assert found == [False, False, passing <= 0.6, True]


def badges(client: LogClient, where: Interest | None = None) -> list[int]:
    pages = client.read(CHANNEL, "lab", "door", interest=where)
    return [badge for page in pages for badge in page.column("badge").to_pylist()]


def test_a_log_is_read_as_far_as_the_policy_lets(make: Nodes, tmp_path: Path) -> None:
    lab, _, source = pair(make, log=tmp_path)
    events = publish(source)
    with LogClient(lab.endpoints[0]) as client:
        wanted = [event["badge"] for event in events if event["room"] == 7]
        assert badges(client) == wanted
        assert badges(client, Interest("level >= 1.0", BOUND)) == [badge for badge in wanted if badge >= 10]


@pytest.mark.parametrize(
    "answer",
    [None, True, "yes", ZeroDivisionError("oh")],
)
def test_what_a_policy_leaves_open_is_closed(make: Nodes, answer: Any) -> None:
    class Vague(Rooms):
        def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Any:
            if channel != CHANNEL or action != "subscribe":
                return Allow("")
            if isinstance(answer, Exception):
                raise answer
            return answer

    security = Security(policy=Vague())
    verdict = security.decide(NODE, "subscribe", CHANNEL)
    assert not verdict and "the policy" in verdict.why


def test_a_policy_that_fails_at_everything_hides_everything(make: Nodes) -> None:
    class Failing:
        def __getattribute__(self, name: str) -> Any:
            def fail(*_: Any, **__: Any) -> Any:
                raise ZeroDivisionError(name)

            return object.__getattribute__(self, name) if name.startswith("__") else fail

    class Odd(Failing):
        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) if name.startswith("__") else lambda *_, **__: "of course"

    class Sees(Rooms):
        def seen_by(self, principal: Principal) -> Callable[[str], bool]:
            return lambda name: {}[name]

    for policy in (Failing(), Odd()):
        security = Security(policy=policy)  # type: ignore[arg-type]
        assert not security.decide(NODE, "subscribe", CHANNEL) and not security.decide_named(NODE, "subscribe", "t.*")
        assert not security.open_to_all("subscribe", CHANNEL) and not security.seen_by(NODE)(CHANNEL)
        assert security.hides_from(NODE) and not security.deals_with(NODE)
    assert not Security(policy=Sees()).seen_by(NODE)(CHANNEL)


@pytest.mark.parametrize("action", ["advertise", "install"])
def test_only_what_is_subscribed_to_can_be_restricted(action: Action) -> None:
    class Odd(Rooms):
        def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
            return Restrict(Interest("room == 7", BOUND), "odd")

    security = Security(policy=Odd())
    assert security.decide(NODE, "subscribe", CHANNEL)
    assert security.decide(NODE, action, CHANNEL) == Deny("odd, and only what is subscribed to can be restricted")


def test_a_restriction_that_does_not_fit_lets_nothing_through(make: Nodes) -> None:
    class Stateful(Rooms):
        def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
            if channel != CHANNEL or action != "subscribe":
                return Allow("")
            return Restrict(Interest("{ static int n = 0; n = n + 1; return n > 3; }", BOUND), "some only")

    _, desk, _ = pair(make, Stateful())
    log = Log()
    sink = desk.channel(CHANNEL).subscribe(log, "level > 0.1")
    assert desk.until(lambda: bool(sink.refused), GUARD)
    [why] = sink.refused.values()
    assert "some only, which cannot be said here: a restriction must be a filter without state" in why
    with pytest.raises(FederationError, match="a channel of bytes cannot be restricted"):
        restricted(None, Interest("room == 7", BOUND), None)


def test_a_restriction_that_is_missing_hides() -> None:
    optional = as_event_type("room: u32?, level: f64")
    limit = Interest("room == 7", optional)
    for wanted in (
        None,
        Interest("level > 0", optional),
        Interest("{ static int n = 0; n = n + 1; return 1; }", optional),
    ):
        made = restricted(wanted, limit, optional)
        native = made.native()
        for room, level, passes in ((7, 1.0, True), (None, 1.0, False), (6, 1.0, False), (7, 2.0, True)):
            assert native.test(optional.encode({"room": room, "level": level})) is passes


def test_a_policy_is_one_and_there_are_no_rules_beside_it() -> None:
    with pytest.raises(ConfigError, match="an object with decide"):
        Security(policy="open")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rules or a policy"):
        Security(policy=Rooms(), rules=[Rule("**", "*")])
