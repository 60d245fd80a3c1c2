"""Questions between nodes: who gets them, who may, and what comes of it when who was asked is no more, or lies."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event
from headwater.channel.questions.forms import answer_type
from headwater.errors import NoAnswerer, QuestionError
from headwater.interest import as_event_type
from headwater.questions import Question
from headwater.security import Rule
from tests.federation.certified import EVERYTHING, joined
from tests.federation.certified import authority as authority
from tests.federation.nodes import GUARD, Nodes, eventually, nodes
from tests.federation.nursery import Popen
from tests.federation.test_gateway import world

MOMENT = 0.2  # seconds, where nobody answers


class Job(Event, name="asking.Job"):
    size: int


class Done(Event, name="asking.Done"):
    by: str


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_questions_go_to_those_only_whose_interests_they_satisfy(make: Nodes) -> None:
    """Judged at the asker's source; all who have one are known, so that nobody waits for the others."""
    desk, small, large = make("desk"), make("small"), make("large")
    heard: dict[str, list[int]] = {"small": [], "large": []}
    for node, where in ((small, "size < 10"), (large, "size > 5")):

        def answer(job: Job, name: str = node.name) -> Done:
            heard[name].append(job.size)
            return Done(name)

        node.channel("c", Job).answer(answer, where, answers=Done, name="it")
    jobs = desk.channel("c", Job)
    assert jobs.ask_and_wait(Job(1), timeout=GUARD, answers=Done) == Done("small")
    assert jobs.ask_and_wait(Job(20), timeout=GUARD) == Done("large")
    both = jobs.ask_and_wait(Job(7), timeout=GUARD, to="all")
    assert sorted((reply.node, reply.who, reply.answer.by) for reply in both) == [
        ("large", "it", "large"),
        ("small", "it", "small"),
    ]
    assert heard == {"small": [1, 7], "large": [20, 7]}
    [questions] = [peer for peer in desk._engine.everyone() if peer.name == "large"]
    assert sum(lane.passed for lane in questions.lanes()) == 2  # the first never left for there
    large.close()
    eventually(lambda: jobs.ask_and_wait(Job(7), timeout=GUARD) == Done("small"))


def test_a_question_that_nobody_answers_waits_for_somebody_until_its_time_is_over(make: Nodes) -> None:
    desk, shop = make("desk"), make("shop")
    make.together()
    jobs = desk.channel("c", Job)
    with pytest.raises(NoAnswerer):
        jobs.ask_and_wait(Job(1), timeout=MOMENT)
    with pytest.raises(NoAnswerer):
        jobs.ask_and_wait(Job(1), timeout=MOMENT, to="all", answers=Done)
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(jobs.ask_and_wait(Job(1), timeout=GUARD)))
    waiting.start()
    shop.channel("c", Job).answer(lambda job: Done("shop"), answers=Done)
    waiting.join(GUARD)
    assert answers == [Done("shop")]


def test_only_who_was_asked_is_believed(make: Nodes) -> None:
    """Somebody who may answer, and answers a question that went to another."""
    desk, shop, eve = make("desk"), make("shop"), make("eve")
    gate, numbers = threading.Event(), []

    def answer(job: Job, question: Question) -> Done:
        gate.wait(GUARD)
        return Done("shop")

    shop.channel("c", Job).answer(answer, "size == 1", answers=Done, dispatch="pool")
    jobs = desk.channel("c", Job)
    spied = eve.channel("c.questions", shop.channel("c.questions").type)
    spied.subscribe(numbers.append, "size == 7")
    forged = eve.channel("c.answers", answer_type(as_event_type(Done))).source("forged")
    eventually(lambda: _unanswered(jobs, numbers))
    seen = numbers[-1]
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(jobs.ask_and_wait(Job(1), timeout=GUARD)))
    waiting.start()
    counts = lambda: desk.report().services["questions"]["c"]  # noqa: E731
    eventually(lambda: counts()["open"] == 1)
    [guessed] = desk.services["questions"].asker(jobs).open  # which is hard: numbers do not follow each other
    assert abs(guessed - seen.question_number) > 2**20
    for number in (seen.question_number, guessed, seen.question_number + 1):
        made = {
            "to": seen.question_asker,
            "number": number,
            "who": "x",
            "answerers": 1,
            "problem": "",
            "answer": {"by": "eve"},
        }
        forged.publish(made)
    eventually(lambda: counts()["forged"] == 1 and counts()["late"] == 2)
    gate.set()
    waiting.join(GUARD)
    assert answers == [Done("shop")]


def _unanswered(jobs: Any, numbers: list[Any]) -> bool:
    """Somebody hears a question, and answers nothing."""
    with pytest.raises(QuestionError):
        jobs.ask_and_wait(Job(7), timeout=MOMENT, answers=Done)
    return bool(numbers)


ANSWERER = """
import sys
from headwater import Event, Node
class Job(Event, name="asking.Job"):
    size: int
class Done(Event, name="asking.Done"):
    by: str
def answer(job):
    print("asked", flush=True)
    sys.stdin.readline()
    return Done("killed")
node = Node("doomed", connect=sys.argv[1])
node.channel("c", Job).answer(answer, answers=Done)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_what_a_killed_answerer_had_is_asked_of_another_and_marked(make: Nodes) -> None:
    desk, shop = make("desk"), make("shop")
    make.together()
    with Popen(
        [sys.executable, "-c", ANSWERER, desk.endpoints[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as doomed:
        try:
            assert doomed.stdout is not None and doomed.stdout.readline() == "ready\n"
            answers: list[Any] = []
            jobs = desk.channel("c", Job)

            def ask(to: Any) -> Any:
                return jobs.ask_and_wait(Job(1), timeout=GUARD, to=to, answers=Done)

            asking = [threading.Thread(target=lambda to=to: answers.append((to, ask(to)))) for to in ("one", "all")]
            for each in asking:
                each.start()
            assert doomed.stdout.readline() == "asked\n"
            eventually(lambda: desk.report().services["questions"]["c"]["open"] == 2)
        finally:
            doomed.kill()
        shop.channel("c", Job).answer(
            lambda job, question: Done(f"shop, again: {question.redelivered}"), answers=Done, name="it"
        )
        for each in asking:
            each.join(GUARD)
    found = dict(answers)
    assert found["one"] == Done("shop, again: True")
    assert [(reply.node, reply.answer) for reply in found["all"]] in (
        [("doomed", None)],
        [("shop", Done("shop, again: False"))],
    )


def test_to_answer_takes_the_right_to_have_questions(make: Nodes, authority: Path) -> None:
    rules = (Rule("c.questions", ["guest"], may=("subscribe",)), Rule("c.questions", "*", may=()), *EVERYTHING)
    desk = joined(make, authority, "desk", rules)
    good, bad = joined(make, authority, "guest"), joined(make, authority, "eve")
    make.together()
    bad.channel("c", Job).answer(lambda job: Done("bad"), answers=Done)
    jobs = desk.channel("c", Job)
    with pytest.raises(NoAnswerer):
        jobs.ask_and_wait(Job(1), timeout=MOMENT, answers=Done)
    good.channel("c", Job).answer(lambda job: Done("good"), answers=Done)
    assert jobs.ask_and_wait(Job(1), timeout=GUARD) == Done("good")
    assert [reply.node for reply in jobs.ask_and_wait(Job(1), timeout=GUARD, to="all")] == ["guest"]


def test_questions_and_answers_go_through_gateways() -> None:
    with world() as made:
        here, there = made.federation("a"), made.federation("b")
        made.join(here[0], there[0])
        there[1].channel("ie.c", Job).answer(lambda job: Done("b1"), answers=Done)
        jobs = here[1].channel("ie.c", Job)
        assert jobs.ask_and_wait(Job(1), timeout=GUARD, answers=Done) == Done("b1")
