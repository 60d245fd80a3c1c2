"""Questions and answers in one process: typed answers, errors and deadlines, to one or to all."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Node, Queue
from headwater.channel.questions.asker import OPEN
from headwater.errors import (
    AnswerError,
    Busy,
    ChannelError,
    ClosedError,
    EncodeError,
    NoAnswerer,
    QuestionError,
    SubscriptionError,
    Unanswered,
)
from headwater.questions import Question, Reply
from headwater.testing import ManualClock, eventually
from tests.effort import examples

GUARD = 120.0


class Symbol(Event):
    name: str
    amount: int


class Price(Event):
    value: float


def priced(asked: Symbol) -> Price:
    return Price(asked.amount * 2.0)


def test_one_answers_and_its_answer_has_its_type() -> None:
    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        told: list[Any] = []

        def answer(asked: Symbol, question: Question) -> dict[str, float]:
            told.append((asked, question.node, question.redelivered, 0 < question.seconds <= GUARD))
            return {"value": 1.5}

        with prices.answer(answer, "amount > 0", answers=Price):
            assert prices.ask_and_wait(Symbol("a", 1), timeout=GUARD) == Price(1.5)
            assert prices.ask_and_wait({"name": "a", "amount": 2}, timeout=GUARD, answers=Price) == Price(1.5)
            assert told[0] == (Symbol("a", 1), node.name, False, True)
            with pytest.raises(NoAnswerer, match=r"t\.prices.*expected somebody who answers such a question"):
                prices.ask_and_wait(Symbol("a", 0), timeout=GUARD)
        with pytest.raises(NoAnswerer):
            prices.ask_and_wait(Symbol("a", 1), timeout=GUARD)


def test_neither_channel_events_nor_other_questions_are_mixed_up() -> None:
    """Who subscribes to a channel sees no questions, and who answers sees no events."""
    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        seen: list[Any] = []
        prices.subscribe(seen.append)
        with prices.answer(priced, answers=Price):
            prices.source().publish(Symbol("event", 1))
            assert prices.ask_and_wait(Symbol("question", 2), timeout=GUARD) == Price(4.0)
        assert [event.name for event in seen] == ["event"]
        assert node.report().services["questions"]["t.prices"]["answers"] == 1


def test_what_an_answerer_raises_comes_as_text_and_not_as_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with Node() as node:
        prices = node.channel("t.prices", Symbol)

        def fails(asked: Symbol) -> Price:
            raise LookupError(f"no {asked.name}" + "!" * 10_000)

        prices.answer(fails, "amount == 1", answers=Price, name="broker")
        prices.answer(lambda asked: "nothing", "amount == 2", answers=Price)
        with pytest.raises(AnswerError, match=r"'broker' of node .* has failed: LookupError: no x!") as caught:
            prices.ask_and_wait(Symbol("x", 1), timeout=GUARD)
        assert (caught.value.node, caught.value.who) == (node.name, "broker")
        assert (
            "channel 't.prices': 'broker' has failed to answer a question, and the asker is told: Look" in caplog.text
        )
        assert len(str(caught.value)) < 2200 and "Traceback" not in str(caught.value)
        assert "in fails" in caplog.text  # where it was raised is logged where it was
        caplog.clear()
        with pytest.raises(AnswerError, match=r"expected an answer of type .*Price, found str"):
            prices.ask_and_wait(Symbol("x", 2), timeout=GUARD)
        prices.answer(lambda asked: {"valu": 1.0}, "amount == 3", answers=Price)
        with pytest.raises(AnswerError, match=r"valu: Price has no such field; did you mean 'value'"):
            prices.ask_and_wait(Symbol("x", 3), timeout=GUARD)
        assert "found str" in caplog.text and "has no such field" in caplog.text
        assert "Traceback" not in caplog.text  # nothing was raised: what was returned is wrong


def test_who_waits_in_a_loop_lets_it_go_on() -> None:
    async def main() -> None:
        with Node() as node:
            prices = node.channel("t.prices", Symbol)
            gate = asyncio.Event()

            async def slow(asked: Symbol) -> Price:
                await gate.wait()
                return Price(1.0)

            prices.answer(slow, answers=Price)
            asked = asyncio.create_task(prices.ask(Symbol("a", 1), timeout=GUARD, to="all"))
            await asyncio.sleep(0)
            prices.answer(priced, answers=Price, name="quick")  # it has not been asked
            gate.set()
            assert [reply.answer for reply in await asked] == [Price(1.0)]
            first = await prices.ask(Symbol("a", 2), timeout=GUARD)
            assert first == Price(4.0)

    asyncio.run(main())


class Slow:
    """Answers when it may; what it has had, and that it has something."""

    def __init__(self) -> None:
        self.gate, self.inside, self.had = threading.Event(), threading.Event(), list[int]()

    def __call__(self, asked: Symbol) -> Price:
        self.had.append(asked.amount)
        self.inside.set()
        assert self.gate.wait(GUARD)
        return priced(asked)


def test_late_answers_are_dropped_and_counted() -> None:
    async def main() -> None:
        with Node() as node:
            prices, slow = node.channel("t.prices", Symbol), Slow()
            prices.answer(slow, answers=Price, dispatch="pool")
            asked = asyncio.create_task(prices.ask(Symbol("a", 1), timeout=GUARD))
            await asyncio.sleep(0)
            assert await asyncio.to_thread(slow.inside.wait, GUARD)
            asked.cancel()
            with pytest.raises(Unanswered, match=r"within 0.01 s, found none") as caught:
                await prices.ask(Symbol("a", 2), timeout=0.01)
            assert isinstance(caught.value, TimeoutError)
            [reply] = await prices.ask(Symbol("a", 2), timeout=0.01, to="all")
            assert reply.answer is None and "has not answered in 0.01 s" in str(reply.error)
            slow.gate.set()
            assert await prices.ask(Symbol("a", 3), timeout=GUARD) == Price(6.0)
            assert node.report().services["questions"]["t.prices"]["late"] >= 1

    asyncio.run(main())


def test_nobody_is_kept_busy_with_questions_whose_time_is_over() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        prices, slow = node.channel("t.prices", Symbol), Slow()
        answering: Any = prices.answer(slow, answers=Price, dispatch="pool")
        first = threading.Thread(target=lambda: prices.ask_and_wait(Symbol("a", 1), timeout=GUARD))
        first.start()
        assert slow.inside.wait(GUARD)
        for to in ("one", "all"):
            with suppress(Unanswered):
                prices.ask_and_wait(Symbol("a", 2), timeout=0.01, to=to)  # type: ignore[call-overload]
        clock.advance(1.0)
        slow.gate.set()
        assert prices.ask_and_wait(Symbol("a", 3), timeout=GUARD) == Price(6.0)
        first.join(GUARD)
        assert slow.had == [1, 3] and answering.subscription.report().counts.expired == 2


def test_open_questions_are_bounded_and_a_node_that_closes_tells_who_waits() -> None:
    async def main() -> None:
        node = Node()
        prices = node.channel("t.prices", Symbol)

        async def never(asked: Symbol) -> Price:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        prices.answer(never, answers=Price, queue=2 * OPEN)
        tasks = [asyncio.create_task(prices.ask(Symbol("a", n), timeout=GUARD)) for n in range(OPEN)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="fewer than 4,096 open questions"):
            await prices.ask(Symbol("a", 1), timeout=GUARD)
        tasks.pop().cancel()
        await asyncio.sleep(0)
        assert node.report().services["questions"]["t.prices"]["open"] == OPEN - 1
        await node.aclose(drain=False)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {ClosedError}

    asyncio.run(main())


def test_what_is_wrong_is_said() -> None:
    class Odd(Event):
        question_number: int

    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        with pytest.raises(QuestionError, match="answers: expected the type of answers, found None"):
            prices.answer(priced, answers=None)
        prices.answer(priced, answers=Price, name="a")
        for wrong, message in (
            (lambda: prices.answer(priced, answers=Price, name="a"), "expected a new name, found 'a' in use"),
            (lambda: prices.answer(priced, answers=Symbol), "answers: expected .*Price"),
            (lambda: prices.answer(7, answers=Price), "expected a function, found 7"),  # type: ignore[arg-type]
            (lambda: prices.answer(lambda: Price(1.0), answers=Price), "a function of the question, or of .* cannot"),
            (lambda: prices.answer(lambda a, b, c: Price(1.0), answers=Price), "cannot be called with that: missing"),
            (
                lambda: prices.answer(priced, "{ static int n = 0; n = n + 1; return n > 1; }", answers=Price),
                "found one with state",
            ),
            (
                lambda: prices.ask_and_wait(Symbol("a", 1), timeout=1, to="some"),  # type: ignore[arg-type]
                "to: expected 'one' or 'all'",
            ),
            (lambda: prices.ask_and_wait(Symbol("a", 1), timeout=1, answers=Symbol), "found type SymbolAnswer"),
            (lambda: node.channel("t.bytes", bytes).ask_and_wait(b"", timeout=1), "expected one with a type"),
            (lambda: node.channel("t.odd", Odd).ask_and_wait(Odd(1), timeout=1), "no field called question_number"),
        ):
            with pytest.raises((QuestionError, ValueError), match=message):
                wrong()
        with pytest.raises(EncodeError, match="amount"):
            prices.ask_and_wait({"name": "a"}, timeout=1)
        with pytest.raises(SubscriptionError, match="timeout: expected a number of seconds"):
            prices.ask_and_wait(Symbol("a", 1), timeout=0)
        assert node.report().services["questions"]["t.prices"]["answerers"] == 1


@settings(max_examples=examples(80))
@given(
    answerers=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["answers", "raises", "pool"])), max_size=5),
    questions=st.lists(st.integers(0, 5), max_size=6),
)
def test_everybody_whose_interest_a_question_satisfies_is_heard_once(
    answerers: list[tuple[int, str]], questions: list[int]
) -> None:
    """To all: exactly they, each with its answer or its error; to one: one of those who answer."""
    with Node() as node:
        prices = node.channel("t.prices", Symbol)

        def raises(asked: Symbol) -> Price:
            raise ValueError

        for number, (least, how) in enumerate(answerers):
            prices.answer(
                raises if how == "raises" else priced,
                f"amount >= {least}",
                answers=Price,
                name=str(number),
                dispatch="pool" if how == "pool" else None,
            )
        for amount in questions:
            fits = {str(n): how != "raises" for n, (least, how) in enumerate(answerers) if amount >= least}
            try:
                replies: list[Reply] = prices.ask_and_wait(Symbol("a", amount), timeout=GUARD, to="all")
            except NoAnswerer:
                replies = []
            assert {reply.who: reply.error is None for reply in replies} == fits and len(replies) == len(fits)
            assert {reply.answer.value for reply in replies if reply.error is None} <= {amount * 2.0}
            if any(fits.values()):
                assert prices.ask_and_wait(Symbol("a", amount), timeout=GUARD) == Price(amount * 2.0)
            elif fits:
                with pytest.raises(AnswerError):
                    prices.ask_and_wait(Symbol("a", amount), timeout=GUARD)


@pytest.mark.parametrize("to", ["one", "all"])
def test_who_stops_answering_answers_what_it_has_and_is_heard(to: str) -> None:
    """Also when that takes long, so that its asker has seen meanwhile that nobody takes such questions any more."""
    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        looks: list[int] = []

        def slow(asked: Symbol) -> Price:
            answering.close()
            asker, before = node._questions().asker(prices), len(looks)
            original = asker._all_gone
            asker._all_gone = lambda *given: (original(*given), looks.append(1))[0]  # type: ignore[func-returns-value, method-assign]
            eventually(lambda: len(looks) > before, "its asker looks who is there")
            return priced(asked)

        answering = prices.answer(slow, answers=Price, name="slow", dispatch="pool")
        found = prices.ask_and_wait(Symbol("a", 1), timeout=GUARD, to=to)
        assert found == (Price(2.0) if to == "one" else [Reply(node.name, "slow", Price(2.0))])
        assert node.report().services["questions"]["t.prices"]["forged"] == 0


@pytest.mark.parametrize("first", ["stays", "leaves"])
def test_a_question_to_all_waits_for_those_who_have_it_and_have_stopped_answering(first: str) -> None:
    inside = {name: threading.Event() for name in ("stays", "leaves")}
    go_on = {name: threading.Event() for name in ("stays", "leaves")}
    with Node() as node:
        prices = node.channel("t.prices", Symbol)

        def answer(name: str, asked: Symbol) -> Price:
            inside[name].set()
            assert go_on[name].wait(GUARD)
            return priced(asked)

        handlers = {name: (lambda asked, name=name: answer(name, asked)) for name in inside}
        made = {
            name: prices.answer(handler, answers=Price, name=name, dispatch="pool")
            for name, handler in handlers.items()
        }
        replies: list[Reply] = []
        asking = threading.Thread(
            target=lambda: replies.extend(prices.ask_and_wait(Symbol("a", 1), timeout=GUARD, to="all"))
        )
        asking.start()
        assert all(each.wait(GUARD) for each in inside.values())
        made["leaves"].close()
        go_on[first].set()
        counts = node.report().services["questions"]
        eventually(lambda: node.report().services["questions"]["t.prices"]["answers"] == 1, f"not one answer: {counts}")
        for each in go_on.values():
            each.set()
        asking.join(GUARD)
        assert sorted((reply.who, reply.answer) for reply in replies) == [
            ("leaves", Price(2.0)),
            ("stays", Price(2.0)),
        ]
        assert prices.ask_and_wait(Symbol("a", 2), timeout=GUARD, to="all") == [Reply(node.name, "stays", Price(4.0))]


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_nobody_waits_for_one_who_came_while_a_question_was_being_answered(dispatch: Any) -> None:
    with Node() as node:
        prices = node.channel("t.prices", Symbol)

        def joins(asked: Symbol) -> Price:
            prices.answer(priced, answers=Price, name="late", dispatch=dispatch)
            return priced(asked)

        prices.answer(joins, answers=Price, name="first", dispatch=dispatch)
        replies = prices.ask_and_wait(Symbol("a", 1), timeout=GUARD, to="all")
        assert replies == [Reply(node.name, "first", Price(2.0))]


class Unspeakable(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise ValueError("it cannot be said")


@pytest.mark.parametrize("error", [Unspeakable(), SystemExit(1), asyncio.CancelledError()])
def test_whatever_a_handler_raises_its_asker_is_told_at_once(error: BaseException) -> None:
    def fails(asked: Symbol) -> Price:
        raise error

    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        prices.answer(fails, answers=Price, name="it", dispatch="pool")
        with pytest.raises(AnswerError, match=f"'it' of node .* has failed: {type(error).__name__}"):
            prices.ask_and_wait(Symbol("a", 1), timeout=GUARD)


def test_a_coroutine_that_answers_and_waits_for_something_that_is_cancelled_has_failed() -> None:
    async def fails(asked: Symbol) -> Price:
        waits = asyncio.get_running_loop().create_future()
        waits.cancel()
        return await waits  # type: ignore[no-any-return]

    async def main() -> None:
        with Node() as node:
            prices = node.channel("t.prices", Symbol)
            prices.answer(fails, answers=Price, name="it")
            with pytest.raises(AnswerError, match="has failed: CancelledError"):
                await prices.ask(Symbol("a", 1), timeout=GUARD)

    asyncio.run(main())


def test_who_cannot_ask_leaves_nothing_behind_and_is_told_the_same_again() -> None:
    with Node() as node:
        node.channel("t.prices.questions", Price)  # somebody has another use for the name
        prices = node.channel("t.prices", Symbol)
        for _ in range(2):
            with pytest.raises(ChannelError, match="expected type Price"):
                prices.ask_and_wait(Symbol("a", 1), timeout=GUARD, answers=Price)
        assert not node.subscriptions


def test_one_who_is_stuck_keeps_nobody_from_the_answers_of_others() -> None:
    gate = threading.Event()
    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        prices.answer(
            lambda asked: gate.wait(GUARD) and priced(asked), answers=Price, name="stuck", dispatch="pool", queue=2
        )
        prices.answer(priced, answers=Price, name="quick", dispatch="pool")
        for amount in range(8):
            assert prices.ask_and_wait(Symbol("a", amount), timeout=GUARD) == Price(amount * 2.0)
        [quick, stuck] = prices.ask_and_wait(Symbol("a", 9), timeout=0.1, to="all")
        assert quick.answer == Price(18.0) and "has not answered in 0.1 s" in str(stuck.error)
        gate.set()


def test_who_asks_one_whose_queue_is_full_waits_no_longer_than_it_says_and_its_loop_goes_on() -> None:
    gate, inside = threading.Event(), threading.Event()

    def slow(asked: Symbol) -> Price:
        inside.set()
        assert gate.wait(GUARD)
        return priced(asked)

    async def main() -> None:
        with Node() as node:
            prices = node.channel("t.prices", Symbol)
            prices.answer(slow, answers=Price, dispatch="pool", queue=Queue(limit=1, policy="block"))
            asked = [asyncio.create_task(prices.ask(Symbol("a", 0), timeout=GUARD))]
            await asyncio.sleep(0)
            assert await asyncio.to_thread(inside.wait, GUARD)
            asked += [asyncio.create_task(prices.ask(Symbol("a", n), timeout=GUARD)) for n in (1, 2)]
            await asyncio.sleep(0)  # the first of them waits in the queue, which is full then
            for to in ("one", "all"):
                with pytest.raises(Unanswered, match=r"within 0.01 s, found none; the queue of .* is full"):
                    await prices.ask(Symbol("a", 3), timeout=0.01, to=to)  # type: ignore[arg-type]
                with pytest.raises(Unanswered, match="is full"):
                    prices.ask_and_wait(Symbol("a", 4), timeout=0.01, to=to)  # type: ignore[arg-type]
            gate.set()
            assert await asyncio.gather(*asked) == [Price(0.0), Price(2.0), Price(4.0)]
            assert node.report().services["questions"]["t.prices"]["open"] == 0

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", 5, b"x", "\ud800", "two\nlines", "x" * 201])
def test_a_name_under_which_nobody_could_answer_is_refused(name: Any) -> None:
    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        with pytest.raises(QuestionError, match="name: expected a text of 1 to 200 characters, found"):
            prices.answer(priced, answers=Price, name=name)
        prices.answer(priced, answers=Price, name="x" * 200)
        assert prices.ask_and_wait(Symbol("a", 1), timeout=GUARD) == Price(2.0)


def test_an_error_whose_text_cannot_be_written_is_told_as_well_as_can_be() -> None:
    def fails(asked: Symbol) -> Price:
        raise ValueError("no file caf\udce9")

    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        prices.answer(fails, answers=Price, name="it")
        with pytest.raises(AnswerError, match=r"'it' of node .* has failed: ValueError: no file caf\\udce9$"):
            prices.ask_and_wait(Symbol("a", 1), timeout=GUARD)


def test_a_question_whose_loop_was_closed_is_open_no_more() -> None:
    with Node() as node:
        prices = node.channel("t.prices", Symbol)
        gate = threading.Event()
        prices.answer(lambda asked: gate.wait(GUARD) and priced(asked), answers=Price, dispatch="pool")
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # that its tasks were not awaited
        asked = [loop.create_task(prices.ask(Symbol("a", n), timeout=GUARD)) for n in range(3)]
        loop.run_until_complete(asyncio.sleep(0))
        assert node.report().services["questions"]["t.prices"]["open"] == 3
        loop.close()
        del asked, loop
        gc.collect()
        assert node.report().services["questions"]["t.prices"]["open"] == 0
        gate.set()
        assert prices.ask_and_wait(Symbol("a", 4), timeout=GUARD) == Price(8.0)


def test_nobody_asks_or_answers_in_a_channel_that_was_closed_and_in_another_of_its_name_they_do() -> None:
    with Node() as node:
        prices, slow = node.channel("t.prices", Symbol), Slow()
        prices.answer(slow, answers=Price, dispatch="pool")
        told: list[BaseException] = []

        def ask() -> None:
            with pytest.raises(ClosedError, match=r"'t\.prices': it is closed") as caught:
                prices.ask_and_wait(Symbol("a", 1), timeout=GUARD)
            told.append(caught.value)

        asking = threading.Thread(target=ask)
        asking.start()
        assert slow.inside.wait(GUARD)
        prices.close()
        asking.join(GUARD)
        assert told
        with pytest.raises(ClosedError, match=r"'t\.prices': it is closed"):
            prices.ask_and_wait(Symbol("a", 1), timeout=GUARD)
        with pytest.raises(ClosedError, match=r"'t\.prices': it is closed"):
            prices.answer(priced, answers=Price)
        again = node.channel("t.prices", Symbol)
        with pytest.raises(NoAnswerer):
            again.ask_and_wait(Symbol("a", 1), timeout=GUARD)
        again.answer(priced, answers=Price, name="another")
        assert again.ask_and_wait(Symbol("a", 2), timeout=GUARD, to="all") == [Reply(node.name, "another", Price(4.0))]
        slow.gate.set()
