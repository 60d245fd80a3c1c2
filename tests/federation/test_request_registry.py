"""Requests of other nodes: rooms register the types that they answer, and what nobody answers is refused, by name."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec
import pytest

from headwater import Interest
from headwater.errors import FederationError, FrameError
from headwater.federation.peers.request_registry import Caller, Postponed, RequestRegistry, UnknownRequest
from headwater.federation.wire import requests as messages
from headwater.federation.wire.requests import Request, pack
from headwater.testing import eventually
from headwater.version import VERSION
from tests.federation.nodes import Nodes, nodes


class Forecast(msgspec.Struct, frozen=True, tag=True):
    text: str


class Weather(Request, frozen=True, tag=True):
    answer: ClassVar[Any] = Forecast
    city: str


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def asked(make: Nodes) -> tuple[Any, Any, Any]:
    lab, desk = make("lab"), make("desk")
    make.together()
    assert lab._engine is not None and desk._engine is not None
    return lab._engine, desk._engine, desk._engine.peers[lab.id]


def test_a_room_answers_requests_of_its_own(make: Nodes) -> None:
    lab, desk, peer = asked(make)

    def forecast(caller: Caller, request: Weather) -> Forecast:
        return Forecast(f"rain in {request.city} for {caller.peer.name}, by its {caller.principal.how}")

    lab.requests.register(Weather, forecast)
    assert desk.dialogue.ask(peer, Weather("Dublin")) == Forecast("rain in Dublin for desk, by its key")


def test_a_request_that_nobody_answers_is_refused_and_no_offence(make: Nodes) -> None:
    lab, desk, peer = asked(make)
    with pytest.raises(FederationError) as raised:
        desk.dialogue.ask(peer, Weather("Dublin"))
    said = str(raised.value)
    assert f"node lab (Headwater {VERSION})" in said and "found 'Weather'" in said and "Install" in said
    assert lab.node.federation_report().offences == {}


def test_a_request_that_is_not_as_its_type_says_is_refused(make: Nodes) -> None:
    class Wrong(Request, frozen=True, tag="Heard"):
        answer: ClassVar[Any] = messages.Accepted
        channel: int

    lab, desk, peer = asked(make)
    with pytest.raises(FederationError, match="expected a message Heard"):
        desk.dialogue.ask(peer, Wrong(7))
    assert sum(lab.node.federation_report().offences.values()) == 1


def test_an_answer_of_another_type_is_none(make: Nodes) -> None:
    lab, desk, peer = asked(make)
    lab.requests.register(Weather, lambda caller, request: messages.LatestIs(7))
    with pytest.raises(FederationError):
        desk.dialogue.ask(peer, Weather("Dublin"), 5.0)


def test_a_type_is_answered_by_one() -> None:
    registry = RequestRegistry("lab")
    registry.register(Weather, lambda caller, request: Forecast("sun"))
    with pytest.raises(FederationError, match="'Weather' are answered already"):
        registry.register(Weather, lambda caller, request: Forecast("rain"))


@pytest.mark.parametrize("data", [b"", b"\xc1", pack([1]), pack({"kind": "Weather"}), pack({"type": 7})])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match="expected a request") as raised:
        RequestRegistry("lab").decode(data)
    assert not isinstance(raised.value, UnknownRequest)


def test_a_wish_of_a_kind_that_is_not_known_is_refused_alone(make: Nodes) -> None:
    lab, desk, peer = asked(make)
    lab.node.channel("t.c", "level: f64").source()
    program = Interest("level > 0.5", "level: f64").dumps()
    wishes = [messages.Wish(1, program, tagged=True, kind="trigger"), messages.Wish(2, program, kind="interest")]
    answer = desk.dialogue.ask(peer, messages.Install("t.c", 1, wishes))
    assert set(answer.refused) == {1}
    kinds = "interest, interest with context, pattern"
    assert f"kinds that Headwater {VERSION} runs, which are {kinds}, found 'trigger'" in answer.refused[1]


def test_an_answer_may_come_later_and_keeps_nobody_waiting(make: Nodes) -> None:
    """While one request takes its time, others of the same node are answered."""
    lab, desk, peer = asked(make)
    answers: list[Any] = []
    lab.requests.register(Weather, lambda caller, request: Postponed(answers.append))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(desk.dialogue.ask, peer, Weather("Dublin"))
        eventually(lambda: len(answers) == 1, "it is asked")
        assert isinstance(desk.dialogue.ask(peer, messages.Latest()), messages.LatestIs) and not waiting.done()
        answers[0](Forecast("sun"))
        assert waiting.result(60) == Forecast("sun")


def test_what_fails_to_begin_is_said(make: Nodes) -> None:
    lab, desk, peer = asked(make)

    def fails(tell: Any) -> None:
        raise ValueError("no weather today")

    lab.requests.register(Weather, lambda caller, request: Postponed(fails))
    with pytest.raises(FederationError, match="no weather today"):
        desk.dialogue.ask(peer, Weather("Dublin"))
