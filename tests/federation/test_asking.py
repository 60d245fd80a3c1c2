"""Questions between nodes: who gets them, who may, and what comes of it when who was asked is no more, or lies."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater import Event
from headwater.channel.questions.asker import RECHECK
from headwater.channel.questions.forms import answer_type
from headwater.dispatch import Pool
from headwater.errors import AnswerError, NoAnswerer, QuestionError
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


class Letter(Event, name="asking.Letter"):
    size: int
    text: str


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


def test_a_question_is_asked_once_whenever_its_answer_comes(make: Nodes) -> None:
    """Also in the moment in which its asker looks whether who has it is still there."""
    desk, shop = make("desk"), make("shop")
    had: list[int] = []

    def answer(job: Job) -> Done:
        had.append(job.size)
        threading.Event().wait(RECHECK + job.size % 50 * 2e-5)
        return Done("shop")

    for number in range(8):
        shop.channel("c", Job).answer(answer, f"size % 8 == {number}", answers=Done, dispatch=Pool(minimum=8))
    jobs = desk.channel("c", Job)
    assert jobs.ask_and_wait(Job(0), timeout=GUARD, answers=Done) == Done("shop")
    with ThreadPoolExecutor(8) as threads:
        ask = partial(jobs.ask_and_wait, timeout=GUARD, to="all", answers=Done)
        for replies in threads.map(ask, [Job(number) for number in range(1, 161)]):
            assert [reply.answer for reply in replies] == [Done("shop")]
    assert sorted(had) == list(range(161)) and desk.report().services["questions"]["c"]["repeated"] == 0


TOO_MUCH = (16 << 20) + 1  # characters


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_an_answer_that_is_too_large_to_cross_is_an_error_at_both_ends(
    make: Nodes, dispatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what was found, how much may be, and what to do; at once, and to nobody else."""
    desk, shop = make("desk"), make("shop")
    shop.channel("c", Job).answer(lambda job: Done("x" * job.size), answers=Done, name="scribe", dispatch=dispatch)
    jobs = desk.channel("c", Job)
    assert jobs.ask_and_wait(Job(3), timeout=GUARD, answers=Done) == Done("xxx")
    with pytest.raises(AnswerError, match="'scribe' of node 'shop' has failed: the answer has 16,777") as found:
        jobs.ask_and_wait(Job(TOO_MUCH), timeout=GUARD)
    assert "expected at most 16,777" in str(found.value) and "answer with less" in str(found.value)
    assert (found.value.node, found.value.who) == ("shop", "scribe")
    assert any("'scribe', to a question of node desk: the answer has" in each.message for each in caplog.records)
    [reply] = jobs.ask_and_wait(Job(TOO_MUCH), timeout=GUARD, to="all")
    assert reply.answer is None and "the answer has" in str(reply.error)
    assert jobs.ask_and_wait(Job(2), timeout=GUARD) == Done("xx")
    counts = lambda: shop.report().services["questions"]["c"]  # noqa: E731
    eventually(lambda: (counts()["failures"], counts()["answers"]) == (2, 2))  # its own may be counted after it came


def test_a_question_that_is_too_large_to_cross_is_an_error_and_others_may_still_answer(make: Nodes) -> None:
    desk, shop = make("desk"), make("shop")
    shop.channel("c", Letter).answer(lambda letter: Done("shop"), answers=Done, name="there")
    letters, large = desk.channel("c", Letter), Letter(1, "x" * TOO_MUCH)
    assert letters.ask_and_wait(Letter(1, ""), timeout=GUARD, answers=Done) == Done("shop")
    with pytest.raises(QuestionError, match=r"the question has 16,777.*expected at most 16,777.*'shop'; ask with less"):
        letters.ask_and_wait(large, timeout=GUARD)
    letters.answer(lambda letter: Done("desk"), answers=Done, name="here")
    assert letters.ask_and_wait(large, timeout=GUARD) == Done("desk")
    replies = letters.ask_and_wait(large, timeout=GUARD, to="all")
    assert sorted((reply.node, reply.error is None) for reply in replies) == [("desk", True), ("shop", False)]
    assert letters.ask_and_wait(Letter(1, ""), timeout=GUARD) in (Done("shop"), Done("desk"))


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


class Letter(Event, name="asking.Letter"):
    size: int
    text: str
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
            asker = desk._questions().asker(jobs)
            # Open are they also before they have gone anywhere: then nobody has them who could be gone.
            eventually(lambda: [list(each.places) for each in list(asker.open.values())] == [["doomed"]] * 2)
        finally:
            doomed.kill()
        shop.channel("c", Job).answer(
            lambda job, question: Done(f"shop, again: {question.redelivered}"), answers=Done, name="it"
        )
        for each in asking:
            each.join(GUARD)
    found = dict(answers)
    assert found["one"] == Done("shop, again: True")
    assert [(reply.node, reply.answer) for reply in found["all"]] == [("doomed", None)]


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


@pytest.mark.parametrize("to", ["one", "all"])
def test_who_stops_answering_at_another_node_answers_what_it_has_and_is_heard(make: Nodes, to: str) -> None:
    desk, shop = make("desk"), make("shop")
    jobs = desk.channel("c", Job)

    def slow(job: Job) -> Done:
        if job.size:
            answering.close()
            source = desk._questions().asker(jobs)._source
            assert source is not None
            eventually(lambda: not list(source._flow.reaches(b"")))  # the asker's node has heard of it
            threading.Event().wait(4 * RECHECK)  # and has looked
        return Done("shop")

    answering = shop.channel("c", Job).answer(slow, answers=Done, name="it", dispatch="pool")
    assert jobs.ask_and_wait(Job(0), timeout=GUARD, answers=Done) == Done("shop")
    found = jobs.ask_and_wait(Job(1), timeout=GUARD, to=to)
    assert (
        found == Done("shop") if to == "one" else [(each.who, each.answer) for each in found] == [("it", Done("shop"))]
    )
    assert desk.report().services["questions"]["c"]["forged"] == 0


def test_what_is_asked_again_since_who_had_it_is_gone_may_be_answered_by_one_that_had_failed(make: Nodes) -> None:
    """Its error was for the first time only."""
    desk, shop = make("desk"), make("shop")
    make.together()
    failed = threading.Event()

    def fails_first(job: Job, question: Question) -> Done:
        if not question.redelivered:
            failed.set()
            raise ValueError("not yet")
        return Done("shop")

    shop.channel("c", Job).answer(fails_first, answers=Done, name="it")
    with Popen(
        [sys.executable, "-c", ANSWERER, desk.endpoints[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as doomed:
        try:
            assert doomed.stdout is not None and doomed.stdout.readline() == "ready\n"
            jobs, answers = desk.channel("c", Job), list[Any]()
            asker = desk._questions().asker(jobs)
            asker._opened(Done)
            source, question = asker._source, asker._make(Job(1), asker.id, 1, GUARD, False)
            assert source is not None
            eventually(lambda: len(asker._places(asker._queues(source, question))[0]) == 2)
            asking = threading.Thread(target=lambda: answers.append(jobs.ask_and_wait(Job(1), timeout=GUARD)))
            asking.start()
            assert doomed.stdout.readline() == "asked\n" and failed.wait(GUARD)
            eventually(lambda: any(asked.replies for asked in list(asker.open.values())))
        finally:
            doomed.kill()
        asking.join(GUARD)
    assert answers == [Done("shop")]
