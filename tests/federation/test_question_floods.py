"""Floods of questions and of answers: what comes of them is bounded, and whoever asks honestly is answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event
from headwater.channel.questions.desk import HELD
from headwater.channel.questions.forms import MOST, answer_type, question_type
from headwater.channel.questions.held import HeldAnswers
from headwater.errors import AnswerError, NoAnswerer, QuestionError
from headwater.interest import as_event_type
from headwater.security import Rule
from tests.federation.certified import EVERYTHING, joined
from tests.federation.certified import authority as authority
from tests.federation.nodes import GUARD, Nodes, eventually, nodes

MOMENT = 0.2  # seconds, where nobody answers


class Job(Event, name="floods.Job"):
    size: int


class Done(Event, name="floods.Done"):
    by: str


EVE = 1  # who asks, as nobody is called
QUESTION, ANSWER = question_type(as_event_type(Job)), answer_type(as_event_type(Done))


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def asked(asker: Any, number: int, seconds: float = GUARD, size: int = 1) -> dict[str, Any]:
    """A question as its channel carries it, of whoever it says."""
    return {
        "size": size,
        "question_asker": asker,
        "question_number": number,
        "question_seconds": seconds,
        "question_again": False,
    }


class Held:
    """An answer, as much of it as matters here."""

    def __init__(self, to: str, number: int) -> None:
        self.to, self.number = to, number


def test_of_answers_that_nobody_takes_those_go_first_whose_asker_has_most() -> None:
    held = HeldAnswers(4)
    for number in range(4):
        assert held.add(1.0, Held("eve", number))
    assert not held.add(1.0, Held("ann", 0)) and len(held) == 4
    assert not held.add(1.0, Held("bob", 0)) and len(held) == 4
    lines = held.take()
    assert [[(each.to, each.number) for _, each in line] for line in lines] == [
        [("eve", 2), ("eve", 3)],
        [("ann", 0)],
        [("bob", 0)],
    ]
    assert held.add(1.0, Held("eve", 4)) and len(held) == 1
    held.give_back(lines[:1])
    assert [[each.number for _, each in line] for line in held.take()] == [[2, 3, 4]] and not len(held)
    for asker in "abcdef":  # as many askers as one likes to name
        held.add(1.0, Held(asker, 0))
    lines = held.take()
    assert [line[0][1].to for line in lines] == ["c", "d", "e", "f"]
    for number in range(4):  # what comes while others are tried is no more than they are
        held.add(1.0, Held("eve", number))
    assert held.give_back(lines) == 4 and len(held) == 4


def test_questions_of_who_takes_no_answers_keep_nobody_from_having_theirs(make: Nodes) -> None:
    shop, eve, desk = make("shop"), make("eve"), make("desk")
    make.together()
    shop.channel("c", Job).answer(lambda job: Done("shop"), answers=Done, name="it")
    flood = eve.channel("c.questions", QUESTION).source("flood")
    assert shop.until(lambda: bool(shop.remote_sources("c.questions")), GUARD) and shop.ready(GUARD)
    for number in range(HELD + 500):
        flood.publish(asked(EVE, number))
    counts = lambda: shop.report().services["questions"]["c"]  # noqa: E731
    eventually(lambda: counts()["answers"] == HELD + 500)
    assert counts()["held"] <= HELD
    jobs = desk.channel("c", Job)
    assert jobs.ask_and_wait(Job(1), timeout=GUARD, answers=Done) == Done("shop")
    assert counts()["held"] + counts()["dropped"] >= HELD


def test_answers_to_what_was_never_asked_are_counted_and_gone(make: Nodes) -> None:
    desk, shop, eve = make("desk"), make("shop"), make("eve")
    shop.channel("c", Job).answer(lambda job: Done("shop"), answers=Done)
    jobs = desk.channel("c", Job)
    assert jobs.ask_and_wait(Job(1), timeout=GUARD, answers=Done) == Done("shop")
    made = desk.services["questions"].asker(jobs).id  # somebody who answers knows it
    flood = eve.channel("c.answers", ANSWER).source("flood")
    assert desk.until(lambda: "flood@eve" in desk.remote_sources("c.answers"), GUARD) and desk.ready(GUARD)
    for number in range(2000):
        flood.publish(
            {"to": made, "number": number, "who": "x", "answerers": 65_535, "problem": "", "answer": {"by": "eve"}}
        )
    counts = lambda: desk.report().services["questions"]["c"]  # noqa: E731
    eventually(lambda: counts()["late"] == 2000)
    assert jobs.ask_and_wait(Job(2), timeout=GUARD) == Done("shop") and counts()["open"] == 0


def test_large_answers_come_and_one_that_is_too_large_to_cross_is_an_error(make: Nodes) -> None:
    desk, shop = make("desk"), make("shop")
    shop.channel("c", Job).answer(lambda job: Done("x" * job.size), answers=Done, name="it")
    jobs = desk.channel("c", Job)
    assert len(jobs.ask_and_wait(Job(1_000_001), timeout=GUARD, answers=Done).by) == 1_000_001
    with pytest.raises(AnswerError, match="the answer has 17,825,872 bytes: expected at most"):
        jobs.ask_and_wait(Job(17 << 20), timeout=GUARD)
    assert jobs.ask_and_wait(Job(1), timeout=GUARD) == Done("x")


def test_who_may_not_answer_is_not_believed_whatever_it_says(make: Nodes, authority: Path) -> None:
    """Its source of answers is not asked for anything, so that a flood of them does not leave it."""
    rules = (Rule("c.answers", ["eve"], may=("subscribe",)), *EVERYTHING)
    desk, shop, eve = (joined(make, authority, name, rules) for name in ("desk", "guest", "eve"))
    make.together()
    gate = threading.Event()

    def answer(job: Job) -> Done:
        gate.wait(GUARD)
        return Done("shop")

    shop.channel("c", Job).answer(answer, answers=Done, dispatch="pool")
    jobs = desk.channel("c", Job)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(jobs.ask_and_wait(Job(1), timeout=GUARD, answers=Done)))
    asking.start()
    counts = lambda: desk.report().services.get("questions", {}).get("c", {})  # noqa: E731
    eventually(lambda: counts().get("open") == 1)
    made = desk.services["questions"].asker(jobs).id
    forged = eve.channel("c.answers", ANSWER).source("forged")
    for number in range(200):
        forged.publish(
            {"to": made, "number": number, "who": "", "answerers": 1, "problem": "", "answer": {"by": "eve"}}
        )
    assert eve.flush(GUARD)
    gate.set()
    asking.join(GUARD)
    assert answers == [Done("shop")] and counts()["forged"] + counts()["late"] == 0


def test_to_all_of_very_many_at_one_node(make: Nodes) -> None:
    """Each is heard once; how many there may be is bounded, and said."""
    desk, shop = make("desk"), make("shop")
    offered = shop.channel("c", Job)
    for number in range(MOST):
        offered.answer(lambda job, number=number: Done(str(number)), answers=Done, name=str(number))
    with pytest.raises(QuestionError, match="at most 1,024 who answer"):
        offered.answer(lambda job: Done(""), answers=Done)
    jobs = desk.channel("c", Job)
    replies = jobs.ask_and_wait(Job(1), timeout=GUARD, to="all", answers=Done)
    assert len(replies) == MOST and {reply.who for reply in replies} == {reply.answer.by for reply in replies}
    with pytest.raises(NoAnswerer):
        desk.channel("d", Job).ask_and_wait(Job(1), timeout=MOMENT, to="all", answers=Done)
