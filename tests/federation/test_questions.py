"""What a node asks of another: each interest once, what has changed and not everything, and so much of it as may be."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.channel.routing.route import Lineup
from headwater.channel.routing.wiring import Wiring
from headwater.errors import Unreachable
from headwater.federation.interests import requester as requester
from headwater.federation.network import Budget, Network
from headwater.federation.node import Node
from headwater.federation.send.crossing import Crossing
from headwater.federation.wire.requests import Install, Installed, Wish, pack_wishes, unpack_wishes
from headwater.interest import Interest
from headwater.match import matcher
from tests.effort import EFFORT
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNEL, TYPE = "t.c", "a: f64, b: i64"


def pair(made: Nodes, **network: Any) -> tuple[Node, Node, Any]:
    """A node with a source, one that knows of it, and the source."""
    lab = made("lab", network=Network(listen=("tcp/127.0.0.1:0",), **network)) if network else made("lab")
    source = lab.channel(CHANNEL, TYPE).source()
    desk = made("desk", connect=lab.endpoints[0])
    made.together()
    desk.channel(CHANNEL, TYPE)
    return lab, desk, source


def other(node: Node) -> Any:
    assert node._engine is not None
    [peer] = node._engine.everyone()
    return peer


def questions(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[Install]:
    """The questions for events that a node asks from here on."""
    found: list[Install] = []
    dialogue: Any = node._engine.dialogue  # type: ignore[union-attr]
    ask = dialogue.ask

    def heard(peer: Any, request: Any, *args: Any) -> Any:
        if isinstance(request, Install):
            found.append(request)
        return ask(peer, request, *args)

    monkeypatch.setattr(dialogue, "ask", heard)
    return found


def range_of(n: int) -> str:
    return f"a > {n} and a < {n}.75 and b == {n}"


# ── each once ──


def test_each_interest_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes() as made:
        _, desk, source = pair(made)
        asked, log = questions(desk, monkeypatch), Log()
        subscriptions = []
        for n in range(300):
            subscriptions.append(desk.channel(CHANNEL).subscribe(log, range_of(n)))
        assert desk.ready(GUARD)
        sent = [wish for question in asked for wish in unpack_wishes(question)]
        assert len(sent) == len({wish.tag for wish in sent}) == 300
        asked.clear()
        desk.channel(CHANNEL).subscribe(log, range_of(300))
        assert desk.ready(GUARD)
        assert [len(unpack_wishes(question)) for question in asked] == [1]
        asked.clear()
        subscriptions[7].cancel()
        assert desk.ready(GUARD)
        assert [(len(unpack_wishes(question)), len(question.gone)) for question in asked] == [(0, 1)]
        for n in range(301):
            source.publish(a=n + 0.5, b=n)
        log.wait(300)
        assert sorted(log.field("b")) == [n for n in range(301) if n != 7]


def test_many_interests_take_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes() as made:
        _, desk, _ = pair(made)
        asked = questions(desk, monkeypatch)
        with desk._wiring.lock:  # so that they are asked for in one go
            for n in range(300):
                desk.channel(CHANNEL).subscribe(lambda event: None, range_of(n))
        assert desk.ready(GUARD)
        assert len(asked) == 1
        assert len(asked[0].packed) < 300 * 100


def test_what_is_packed_is_unpacked_within_bounds() -> None:
    wishes = [Wish(n, Interest(range_of(n), TYPE).dumps()) for n in range(50)]
    plain, packed = pack_wishes(wishes)
    assert not plain and unpack_wishes(Install(CHANNEL, 1, packed=packed)) == wishes
    assert pack_wishes(wishes[:1]) == (wishes[:1], b"")


# ── whatever is lost ──


WEATHER = {"question lost", "answer lost", "old question", "twice"}


class Weather:
    """Loses questions and answers, repeats old questions before new ones, and makes the other node forget."""

    def __init__(self, lab: Node, desk: Node, chance: random.Random) -> None:
        self.chance, self.lab, self.calm = chance, lab, False
        self.seen: list[tuple[Any, ...]] = []
        self.happened: set[str] = set()
        desk_engine: Any = desk._engine
        lab_engine: Any = lab._engine
        self._ask, self._install = desk_engine.dialogue.ask, lab_engine.installer.install
        desk_engine.dialogue.ask, lab_engine.installer.install = self.ask, self.install

    def ask(self, peer: Any, request: Any, *args: Any) -> Any:
        if not isinstance(request, Install) or self.calm:
            return self._ask(peer, request, *args)
        dice = self.chance.random()
        if dice < 0.15:
            self.happened.add("question lost")
            raise Unreachable("the question is lost")
        answer = self._ask(peer, request, *args)
        if dice < 0.35:
            self.happened.add("answer lost")
            raise Unreachable("the answer is lost")
        return answer

    def install(self, *question: Any) -> Installed:
        if not self.calm and self.seen and self.chance.random() < 0.4:
            self.happened.add("old question")
            self._install(*self.chance.choice(self.seen))
        if not self.calm and self.chance.random() < 0.1:
            self.happened.add("forgotten")
            engine: Any = self.lab._engine
            for crossing in list(question[0].crossings.values()):
                engine.installer._drop(question[0], crossing)
        self.seen.append(question)
        answer = self._install(*question)
        if not self.calm and self.chance.random() < 0.3:
            self.happened.add("twice")
            return self._install(*question)
        return answer


@pytest.mark.parametrize("seed", range(4))
def test_changes_lead_to_where_everything_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is lost, comes twice or late or is forgotten, in the end the source has what is wanted, and no more."""
    monkeypatch.setattr(requester, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(requester, "PAGE_WISHES", 5)
    chance = random.Random(seed)
    with nodes() as made:
        lab, desk, source = pair(made)
        weather = Weather(lab, desk, chance)
        channel, log = desk.channel(CHANNEL), Log()
        subscriptions: dict[int, Any] = {}
        for step in range(4000):
            if step >= 40 and weather.happened >= WEATHER:  # where all is slow, fewer questions are asked
                break
            for n in chance.sample(range(60), chance.randrange(1, 12)):
                if n in subscriptions:
                    subscriptions.pop(n).cancel()
                else:
                    subscriptions[n] = channel.subscribe(log, range_of(n), history=chance.choice((0, 0, 0, 1)))
            if step % 4 == 0:
                desk.ready(0.05)
        weather.calm = True
        subscriptions[99] = channel.subscribe(log, range_of(99))
        assert desk.ready(GUARD)
        assert desk._engine is not None
        with desk._wiring.lock:
            wanted = desk._engine.demands.of(channel, other(desk)).wanted
        assert wanted is not None
        crossing = other(lab).crossings[CHANNEL]
        assert crossing.wishes.keys() == wanted.wishes.keys()
        programs = {tag: entry.interest.text for tag, (entry, _) in crossing.wishes.items()}
        assert programs == {tag: Interest.loads(wish.program).text for tag, wish in wanted.wishes.items()}
        assert crossing.cost == sum(crossing.costs.values())
        assert weather.happened >= WEATHER, weather.happened
        log.events.clear()
        for n in range(100):
            source.publish(a=n + 0.5, b=n)
        log.wait(len(subscriptions))
        assert sorted(log.field("b")) == sorted(subscriptions)


def test_a_question_may_take_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requester, "PAGE_WISHES", 7)
    with nodes() as made:
        lab, desk, source = pair(made)
        asked, log = questions(desk, monkeypatch), Log()
        with desk._wiring.lock:
            for n in range(40):
                desk.channel(CHANNEL).subscribe(log, range_of(n))
        assert desk.ready(GUARD)
        assert [question.page for question in asked] == list(range(6)) and not asked[-1].more
        assert len(other(lab).crossings[CHANNEL].wishes) == 40
        for n in range(40):
            source.publish(a=n + 0.5, b=n)
        log.wait(40)


# ── publishing goes on meanwhile ──


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A method that stops in the middle: an event that says that it does, and one that lets it go on."""
    inside, go_on = threading.Event(), threading.Event()
    method: Callable[..., Any] = getattr(owner, name)

    def slow(*args: Any) -> Any:
        inside.set()
        assert go_on.wait(GUARD)
        return method(*args)

    monkeypatch.setattr(owner, name, slow)
    try:
        yield inside, go_on
    finally:
        go_on.set()


def test_publishing_and_subscribing_go_on_while_a_question_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes() as made:
        lab, desk, source = pair(made)
        assert lab._engine is not None
        with held(monkeypatch, lab._engine.installer.granting, "read") as (inside, go_on):
            desk.channel(CHANNEL).subscribe(lambda event: None, " or ".join(f"a == {n}.5" for n in range(2000)))
            assert inside.wait(GUARD)
            log = Log()
            lab.channel(CHANNEL).subscribe(log, "b >= 0")
            for n in range(100):
                source.publish(a=0.0, b=n)
            log.wait(100)
            go_on.set()
        assert desk.ready(GUARD)


def test_publishing_goes_on_while_interests_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes() as made:
        lab, desk, source = pair(made)
        log = Log()
        lab.channel(CHANNEL).subscribe(log, "b >= 0")
        [lineup] = lab.channel(CHANNEL).lineups
        with held(monkeypatch, lineup, "prepare") as (inside, go_on):
            desk.channel(CHANNEL).subscribe(lambda event: None, "a > 5")
            assert inside.wait(GUARD)
            for n in range(100):
                source.publish(a=0.0, b=n)
            log.wait(100)
            go_on.set()
        assert desk.ready(GUARD)


def test_while_sources_stand_still_nothing_is_compiled_and_each_node_is_started_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many interests in one question: what is done for each of them is done before the sources are stopped."""
    with nodes() as made:
        lab, desk, _ = pair(made)
        standing = threading.local()
        started, late = [0], list[str]()
        still, begin, lower, prepare = Wiring.still, Crossing.started, matcher.lower, Lineup.prepare

        @contextmanager
        def watched(self: Wiring, channels: Any) -> Iterator[None]:
            with still(self, channels):
                standing.now = True
                try:
                    yield
                finally:
                    standing.now = False

        def begins(self: Crossing) -> None:
            started[0] += 1
            begin(self)

        def not_while_still(what: str, method: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any) -> Any:
                if getattr(standing, "now", False):
                    late.append(what)
                return method(*args)

            return called

        monkeypatch.setattr(Wiring, "still", watched)
        monkeypatch.setattr(Crossing, "started", begins)
        monkeypatch.setattr(matcher, "lower", not_while_still("lower", lower))
        monkeypatch.setattr(Lineup, "prepare", not_while_still("prepare", prepare))
        many = 1500 if EFFORT == 1 else 6000
        wishes = [Wish(n + 1, Interest(f"b == {n}", TYPE).dumps()) for n in range(many)]
        _, packed = pack_wishes(wishes)
        assert desk._engine is not None
        answer = desk._engine.dialogue.ask(other(desk), Install(CHANNEL, 1, packed=packed), GUARD)
        assert isinstance(answer, Installed) and not answer.error and not answer.refused
        assert len(other(lab).crossings[CHANNEL].wishes) == many
        assert started[0] == 1 and not late


# ── how large a question may be ──


def test_too_large_an_interest_is_refused_and_says_why() -> None:
    with nodes() as made:
        _, desk, source = pair(made, budget=Budget(parts=500))
        log = Log()
        large = desk.channel(CHANNEL).subscribe(log, " or ".join(f"a == {n}.5" for n in range(1000)))
        small = desk.channel(CHANNEL).subscribe(log, "b == 7")
        assert desk.ready(GUARD)
        eventually(lambda: bool(large.refused), "a refusal")
        [why] = large.refused.values()
        assert "too large" in why and "more than 500 parts" in why and "Budget.parts" in why
        assert not small.refused
        source.publish(a=1.0, b=7)
        log.wait(1)


def test_bytes_are_bounded_for_each_interest_and_for_a_node() -> None:
    with nodes() as made:
        _, desk, _ = pair(made, budget=Budget(bytes=2_000, node_bytes=2_500))
        channel = desk.channel(CHANNEL)
        large = channel.subscribe(lambda event: None, "b in :set", params={"set": set(range(5_000))})
        assert desk.ready(GUARD)
        [why] = large.refused.values()
        assert "Budget.bytes" in why and "more than 2,000" in why
        large.cancel()
        many = [channel.subscribe(lambda event: None, range_of(n)) for n in range(40)]
        assert desk.ready(GUARD)
        refused = [each for each in many if each.refused]
        assert 0 < len(refused) < 40
        assert all("Budget.node_bytes" in why for each in refused for why in each.refused.values())
