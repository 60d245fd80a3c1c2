"""Who asks: questions of one channel that are open at this node, and what has come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from secrets import randbits, token_bytes
from struct import unpack
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from headwater.channel.concurrency.bounded_queue import ABSENT, UNKNOWN
from headwater.channel.options.subscribe import check_seconds
from headwater.channel.questions.asked import Asked
from headwater.channel.questions.forms import (
    ANSWERS,
    QUESTIONS,
    Reply,
    answer_class,
    answer_type,
    asking,
    question_type,
)
from headwater.errors import (
    AnswerError,
    Busy,
    ChannelError,
    ClosedError,
    EncodeError,
    NoAnswerer,
    QuestionError,
    Unanswered,
)
from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.concurrency.bounded_queue import BoundedQueue
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.letter import About
    from headwater.channel.source import Source
    from headwater.types import EventType

NUMBERS = 64  # of questions that are drawn at once
OPEN = 4096  # questions of one channel that wait for answers at once
RECHECK, SLOWEST = 0.05, 0.2  # seconds after which somebody who waits looks who is still there: at first, and later


class Asker:
    """Asks the questions of one channel, and takes their answers."""

    def __init__(self, node: NodeContract, channel: Channel) -> None:
        if channel.type is None:
            raise QuestionError(
                f"channel {channel.name!r} has no type and carries bytes: expected one with a type; declare it with one"
            )
        self._node, self._channel = node, channel
        self.id = randbits(64)  # nobody else has it
        self.type = question_type(channel.type)
        self._asked_type: EventType = channel.type
        self._class = channel.type.cls
        self._make = asking(channel.type)
        self.open: dict[int, Asked] = {}
        self._numbers: list[int] = []  # of the next questions
        self.asked = self.answered = self.late = self.forged = self.repeated = 0
        self._opening = Lock()
        self._lock = Lock()  # what has become of questions
        self._source: Source | None = None
        self._sink: Any = None
        self._known: Any = None, None  # a route, and the one queue that leads to, if all questions go there
        self._answers: EventType | None = None
        self._given: Any = None  # what was last given for that, and is that

    # ── asking ──

    def ask_and_wait(self, event: Any, timeout: Any, to: str, answers: Any) -> Any:
        """Ask, and wait in this thread."""
        if timeout.__class__ is not float or not 1e-9 <= timeout < 1e9:
            timeout = check_seconds("timeout", timeout)
        end, bell, pause = monotonic() + timeout, Lock(), RECHECK
        bell.acquire()
        asked = self._begin(event, timeout, to, answers, bell.release)
        try:
            while not asked.done:
                left = end - monotonic()
                if left <= 0 or bell.acquire(True, min(left, pause)):
                    break
                pause = min(2 * pause, SLOWEST)
                self._go(asked, answers, end)
        finally:
            self.open.pop(asked.number, None)
        if asked.answer is None:
            return self._outcome(asked, timeout)
        self.answered += 1
        return asked.answer

    async def ask(self, event: Any, timeout: Any, to: str, answers: Any) -> Any:
        """Ask, and let the loop go on meanwhile."""
        timeout, loop = check_seconds("timeout", timeout), asyncio.get_running_loop()
        end, bell, pause = monotonic() + timeout, asyncio.Event(), RECHECK
        ring = ref(bell)  # weak: a loop that is closed leaves its tasks to be collected, and this is known by then
        asked = self._begin(event, timeout, to, answers, lambda: _ring(loop, ring))
        try:
            while not asked.done:
                left = end - monotonic()
                if left <= 0:
                    break
                again = loop.call_later(min(left, pause), bell.set)
                try:
                    await bell.wait()
                finally:
                    again.cancel()
                bell.clear()
                pause = min(2 * pause, SLOWEST)
                if not asked.done:
                    self._go(asked, answers, end)
        finally:
            self.open.pop(asked.number, None)
        if asked.answer is None:
            return self._outcome(asked, timeout)
        self.answered += 1
        return asked.answer

    def _begin(self, event: Any, timeout: float, to: str, answers: Any, bell: Callable[[], object]) -> Asked:
        """A question that is open, and has gone where it is to as far as that is known."""
        if to not in ("one", "all"):
            raise QuestionError(f"to: expected 'one' or 'all', found {to!r}")
        if self._channel.closed:
            raise ClosedError(f"channel {self._channel.name!r}: it is closed; open it again")
        if len(self.open) >= OPEN:
            raise Busy(
                f"channel {self._channel.name!r}: expected fewer than {OPEN:,} open questions, found so many; wait for "
                "answers before asking more"
            )
        if not isinstance(event, self._class):
            event = self._checked(event)
        # A number that nobody guesses: else who asks in another's name could have its question answered wrongly.
        try:
            number = self._numbers.pop()
        except IndexError:
            number = self._more_numbers()
        source, (route, queue) = self._source, self._known
        asked = self.open[number] = Asked(number, event, to == "one", bell)
        self.asked += 1
        try:
            if source is not None and route is source._flow.route and answers is self._given and not source._full:
                node, run = queue.destination
                if node:  # as a rule there is one place where all questions go
                    asked.places, asked.ways = {node: run}, (queue,)
                    source.publish(self._make(event, self.id, number, timeout, False))
                    return asked
            self._go(asked, answers, monotonic() + timeout)
        except BaseException:
            self.open.pop(number, None)
            raise
        return asked

    def _more_numbers(self) -> int:
        """Many at once cost little more than one."""
        made: list[int] = [number >> 1 for number in unpack(f"<{NUMBERS}Q", token_bytes(8 * NUMBERS))]
        self._numbers += made[1:]
        return made[0]

    def _checked(self, event: Any) -> Any:
        """An instance of the channel's class, of what is none."""
        try:
            return self._asked_type.from_dict(event)
        except (EncodeError, TypeError) as error:
            raise EncodeError("", f"channel {self._channel.name!r}: ask: {error}") from None

    def _go(self, asked: Asked, answers: Any, end: float) -> None:
        """Have it go where it is to, if it has not yet, or where it went is no more."""
        if (self._source is None or answers is not self._given) and not self._opened(answers):
            if not self._node._federated:
                raise self._nobody()
            return
        source = self._source
        assert source is not None
        if source.closed:
            raise ClosedError(f"channel {self._channel.name!r}: its questions are closed")
        made = self._make(asked.event, self.id, asked.number, max(0.0, end - monotonic()), asked.again)
        ways = list(self._queues(source, made))
        places, unknown = self._places(ways)
        slow = source._blocking(self.type.encode(made)) if source._full and not asked.places else None
        asked.full = "" if slow is None else slow.name
        if slow is not None:
            return  # nobody waits for room longer than for an answer: it is looked at again
        with self._lock:  # an answer may be coming just now
            if asked.done:
                return
            if asked.places or asked.open_end:
                if not self._all_gone(asked, places):
                    return
                asked.again = True  # somebody else may answer
                made = self._make(asked.event, self.id, asked.number, max(0.0, end - monotonic()), True)
            if places or unknown:
                asked.go(places, ways, open_end=unknown)
        if not places and not unknown:
            if not self._node._federated and not asked.again:
                raise self._nobody()
            return
        self.repeated += asked.again
        source.publish(made)

    def _all_gone(self, asked: Asked, present: dict[str, int]) -> bool:
        """Who of those that have a question is gone; whether nobody is left and somebody else may be asked. Of a
        question to all, a node that takes no more of them may still answer what it has. Its lock is held."""
        there = present if asked.first else present | self._places(asked.ways)[0]
        for node, run in asked.places.items():
            if there.get(node) != run:
                asked.gone(node)
        if asked.done or asked.places or asked.open_end:
            return False
        if not asked.first:
            asked.finish()
        return asked.first

    def _places(self, queues: Iterable[BoundedQueue]) -> tuple[dict[str, int], bool]:
        """Where a question would go: which runs of which nodes; and whether also where that is not known."""
        places: dict[str, int] = {}
        unknown = False
        for queue in queues:
            place = queue.destination
            if place == UNKNOWN:
                unknown = True
            elif place != ABSENT:
                places[place[0] or self._node.name] = place[1]
        return places, unknown

    def _queues(self, source: Source, made: Any) -> Iterable[BoundedQueue]:
        """Those that it would go into; where all who answer want every question, they are the same for all."""
        flow = source._flow
        route = flow.route
        if route.matching is not None or route.alone or source.channel.derived:
            return flow.reaches(self.type.encode(made))
        found = list(flow.reaches(self.type.encode(made)))
        if len(found) == 1:
            self._known = route, found[0]
        return found

    # ── answers ──

    def _take(self, event: Any, about: About) -> None:
        """What somebody says to a question of this one."""
        source = about._source
        node = source.node
        with self._lock:
            asked = self.open.get(event.number)
            if asked is None or asked.done:
                self.late += 1
            elif not (node in asked.places or node in asked.left or asked.open_end or source.origin):
                self.forged += 1
            elif asked.first and not asked.replies and (answer := event.answer) is not None:
                asked.answer, asked.done = answer, True  # as a rule; else as `take` says
                asked.bell()
            elif not asked.take(node, event):
                self.forged += 1

    def _too_large(self, record: bytes, node: str, most: int) -> None:
        """A question does not cross to a node: nobody there answers it."""
        error = QuestionError(
            f"channel {self._channel.name!r}: the question has {len(record):,} bytes: expected at most {most:,}, which "
            f"go to another node, as to {node!r}; ask with less, or in parts"
        )
        number = self.type.decode(record).question_number
        with self._lock:
            asked = self.open.get(number)
            if asked is not None and not asked.done and node in asked.places:
                asked.refused(node, error)

    def _outcome(self, asked: Asked, timeout: float) -> Any:
        """What the asker is given, or raised, now that nothing more is waited for, and there is not just one answer."""
        if asked.failure is not None:
            raise asked.failure
        replies, silent = list(asked.replies.values()), asked.silent()
        if asked.full and not replies and not silent:
            raise self._unanswered(timeout, f"the queue of {asked.full!r} is full, and so it was not asked")
        if not asked.first:
            if not replies and not silent and not asked.open_end:
                raise self._nobody()
            late = [
                Reply(node, "", error=AnswerError(f"node {node!r} has not answered in {timeout:g} s", node))
                for node in silent
            ]
            found = any(reply.error is None for reply in replies)
            self.answered += found
            return [*replies, *late]
        if replies and replies[0].error is not None:
            raise replies[0].error
        if not silent and not asked.open_end and not asked.again:
            raise self._nobody()
        whom = f"{', '.join(silent)} had it" if silent else "who had it is gone, and nobody else has come"
        raise self._unanswered(timeout, whom)

    def _unanswered(self, timeout: float, why: str) -> Unanswered:
        return Unanswered(f"channel {self._channel.name!r}: expected an answer within {timeout:g} s, found none; {why}")

    def _nobody(self) -> NoAnswerer:
        return NoAnswerer(
            f"channel {self._channel.name!r}: expected somebody who answers such a question, found nobody; "
            "have somebody answer: channel.answer(handler, answers=…)"
        )

    # ── its channels ──

    def _opened(self, answers: Any) -> bool:
        """Whether it can ask: the type of answers is known, here or from who answers."""
        with self._opening:
            if self._source is not None:
                self._check_answers(answers)
                return True
            name = self._channel.name + ANSWERS
            if answers is not None:
                found, channel = as_answers(answers), self._node.channel(name, answer_type(as_answers(answers)))
            else:
                try:
                    channel = self._node.channel(name)
                except ChannelError:
                    return False
                assert channel.type is not None
                found = answer_class(channel.type)
            form = channel.type if answers is None else answer_type(found)
            assert form is not None
            questions = self._node.channel(self._channel.name + QUESTIONS, self.type)  # first: it may be another's
            self._sink = channel.subscribe(
                self._take,
                "to == :me",
                params={"me": self.id},
                type=form,
                dispatch="inline",
                failures=0,
                name=f"answers to {self._node.name}/{self.id:x}",
            )
            self._answers = found
            try:
                source = questions.source(f"questions of {self._node.name}/{self.id:x}", type=self.type)
            except BaseException:
                self._sink.cancel()
                raise
            source.uncrossable = self._too_large
            self._source = source
        return True

    def _check_answers(self, given: Any) -> None:
        """What was given for the type of answers is that; QuestionError if not."""
        assert self._answers is not None
        if given is not None and as_answers(given) != self._answers:
            raise QuestionError(
                f"channel {self._channel.name!r}: answers: expected {self._answers.name}, which its answers are, "
                f"found {as_answers(given).name}"
            )
        self._given = given

    def close(self, why: str) -> None:
        """Nobody asks any more; whoever waits is told."""
        for asked in list(self.open.values()):
            with self._lock:
                if asked.done:
                    continue
                asked.failure = ClosedError(f"channel {self._channel.name!r}: {why}")
                asked.finish()

    def end(self) -> None:
        """Its channel is closed."""
        self.close("it is closed; open it again")
        with self._opening:
            if self._source is not None:
                self._sink.cancel()
                self._source.close()

    def report(self) -> dict[str, int]:
        return {
            "asked": self.asked,
            "answered": self.answered,
            "open": len(self.open),
            "late": self.late,
            "forged": self.forged,
            "repeated": self.repeated,
        }


def as_answers(given: Any) -> EventType:
    """The type of answers, as it was given."""
    from headwater.interest import as_event_type

    return as_event_type(given)


def _ring(loop: Any, ring: ref[Any]) -> None:
    bell = ring()
    if bell is None:
        return  # nobody waits any more
    try:
        if asyncio.get_running_loop() is loop:
            bell.set()
            return
    except RuntimeError:
        pass
    with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
        loop.call_soon_threadsafe(bell.set)


__all__ = ["OPEN", "Asker"]
