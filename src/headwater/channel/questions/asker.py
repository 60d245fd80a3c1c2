"""Who asks: questions of one channel that are open at this node, and what has come of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.concurrency.bounded_queue import ABSENT, UNKNOWN
from headwater.channel.questions.forms import (
    ANSWERS,
    MOST,
    QUESTIONS,
    Reply,
    answer_class,
    answer_type,
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

OPEN = 4096  # questions of one channel that wait for answers at once
RECHECK = 0.05  # seconds after which somebody who has waited so long looks who is still there
Place = tuple[str, int]  # a node, and which run of it


class Asked:
    """One question: where it went, and what has come back."""

    __slots__ = (
        "again",
        "bell",
        "done",
        "event",
        "expected",
        "failure",
        "first",
        "number",
        "open_end",
        "places",
        "replies",
    )

    def __init__(self, number: int, event: Any, *, first: bool) -> None:
        self.number, self.event, self.first = number, event, first
        self.places: set[Place] = set()  # where it went, and from where not everything has come back
        self.expected: dict[str, int] = {}  # by node, how many there have it
        self.open_end = False  # it went where nobody can tell who has it
        self.replies: dict[tuple[str, str], Reply] = {}
        self.again = False
        self.failure: BaseException | None = None
        self.done = False
        self.bell: Callable[[], object] = lambda: None

    def finish(self) -> None:
        if not self.done:
            self.done = True
            self.bell()

    def answered(self) -> Reply | None:
        return next((reply for reply in self.replies.values() if reply.error is None), None)

    def settle(self, node: str) -> None:
        """Somebody of a node has said something: whether all have that are to."""
        if self.first and self.answered() is not None:
            self.finish()
            return
        said = sum(1 for each, _ in self.replies if each == node)
        if said >= self.expected.get(node, 1):
            self.places = {place for place in self.places if place[0] != node}
        if not self.places and not self.open_end:
            self.finish()


class Asker:
    """Asks the questions of one channel, and takes their answers."""

    def __init__(self, node: NodeContract, channel: Channel) -> None:
        if channel.type is None:
            raise QuestionError(
                f"channel {channel.name!r} has no type and carries bytes: expected one with a type; declare it with one"
            )
        self._node, self._channel = node, channel
        self.id = f"{node.name}/{token_hex(8)}"
        self.type = question_type(channel.type)
        self._asked_type: EventType = channel.type
        self._class = channel.type.cls
        self._make = self.type.binding.constructor
        self._attrs = channel.type.binding.attrs
        self._numbers = count(1)
        self.open: dict[int, Asked] = {}
        self.asked = self.answered = self.late = self.forged = self.repeated = 0
        self._opening = threading.Lock()
        self._lock = threading.Lock()  # what has become of questions
        self._source: Source | None = None
        self._sink: Any = None
        self._known: tuple[object, list[BoundedQueue]] = None, []  # by route, where questions go
        self._answers: EventType | None = None

    # ── asking ──

    def ask_and_wait(self, event: Any, timeout: float, to: str, answers: Any) -> Any:
        """Ask, and wait in this thread."""
        asked, end = self._begin(event, to), monotonic() + timeout
        bell = threading.Lock()
        bell.acquire()
        asked.bell = bell.release
        try:
            self._go(asked, answers, end)
            while not asked.done:
                left = end - monotonic()
                if left <= 0 or bell.acquire(timeout=min(left, RECHECK)):
                    break
                self._go(asked, answers, end)
        finally:
            self.open.pop(asked.number, None)
        return self._outcome(asked, timeout)

    async def ask(self, event: Any, timeout: float, to: str, answers: Any) -> Any:
        """Ask, and let the loop go on meanwhile."""
        asked, end = self._begin(event, to), monotonic() + timeout
        loop = asyncio.get_running_loop()
        bell = asyncio.Event()
        asked.bell = lambda: _ring(loop, bell)
        try:
            self._go(asked, answers, end)
            while not asked.done:
                left = end - monotonic()
                if left <= 0:
                    break
                again = loop.call_later(min(left, RECHECK), bell.set)
                await bell.wait()
                again.cancel()
                bell.clear()
                if not asked.done:
                    self._go(asked, answers, end)
        finally:
            self.open.pop(asked.number, None)
        return self._outcome(asked, timeout)

    def _begin(self, event: Any, to: str) -> Asked:
        if to not in ("one", "all"):
            raise QuestionError(f"to: expected 'one' or 'all', found {to!r}")
        if len(self.open) >= OPEN:
            raise Busy(
                f"channel {self._channel.name!r}: expected fewer than {OPEN:,} open questions, found so many; wait for "
                "answers before asking more"
            )
        asked = Asked(next(self._numbers), self._checked(event), first=to == "one")
        self.open[asked.number] = asked
        self.asked += 1
        return asked

    def _checked(self, event: Any) -> Any:
        """An instance of the channel's class."""
        try:
            if isinstance(event, self._class):
                return event
            return self._asked_type.from_dict(event)
        except (EncodeError, TypeError) as error:
            raise EncodeError("", f"channel {self._channel.name!r}: ask: {error}") from None

    def _go(self, asked: Asked, answers: Any, end: float) -> None:
        """Have it go where it is to, if it has not yet, or where it went is no more."""
        if not self._opened(answers):
            if not self._node._federated:
                raise self._nobody()
            return
        source = self._source
        assert source is not None
        if source.closed:
            raise ClosedError(f"channel {self._channel.name!r}: its questions are closed")
        event = asked.event
        values = [getattr(event, name) for name in self._attrs]
        made = self._make(*values, self.id, asked.number, max(0.0, end - monotonic()), asked.again)
        places, unknown = self._places(source, made)
        if asked.places or asked.open_end:
            if not self._all_gone(asked, places):
                return
            asked.again = True  # somebody else may answer
            made = self._make(*values, self.id, asked.number, max(0.0, end - monotonic()), True)
        if not places and not unknown:
            if not self._node._federated and not asked.again:
                raise self._nobody()
            return
        asked.places, asked.open_end = places, unknown
        self.repeated += asked.again
        source.publish(made)

    def _all_gone(self, asked: Asked, present: set[Place]) -> bool:
        """Who of those that have a question is gone; whether nobody is left and somebody else may be asked."""
        with self._lock:
            for place in asked.places - present:
                asked.places.discard(place)
                if not asked.first and len(asked.replies) < MOST:
                    node = place[0]
                    error = AnswerError(f"node {node!r} is gone, and had not answered", node)
                    asked.replies[node, ""] = Reply(node, "", error=error)
            if asked.done or asked.places or asked.open_end:
                return False
            if not asked.first:
                asked.finish()
            return asked.first

    def _places(self, source: Source, made: Any) -> tuple[set[Place], bool]:
        """Where a question would go: which runs of which nodes; and whether also where that is not known."""
        places: set[Place] = set()
        unknown = False
        for queue in self._queues(source, made):
            place = queue.destination
            if place == UNKNOWN:
                unknown = True
            elif place != ABSENT:
                places.add(place if place[0] else (self._node.name, 0))
        return places, unknown

    def _queues(self, source: Source, made: Any) -> Iterable[BoundedQueue]:
        """Those that it would go into; where all who answer want every question, they are the same for all."""
        flow = source._flow
        route = flow.route
        if route.matching is not None or route.alone or source.channel.derived:
            return flow.reaches(self.type.encode(made))
        known = self._known
        if known[0] is not route:
            known = self._known = route, list(flow.reaches(self.type.encode(made)))
        return known[1]

    # ── answers ──

    def _take(self, event: Any, about: About) -> None:
        """What somebody says to a question of this one."""
        with self._lock:
            self._judge(event, about._source)

    def _judge(self, event: Any, source: Any) -> None:
        asked = self.open.get(event.number)
        if asked is None or asked.done:
            self.late += 1
            return
        node = source.node
        if not (asked.open_end or source.origin or any(place[0] == node for place in asked.places)):
            self.forged += 1
            return
        if (node, event.who) in asked.replies or len(asked.replies) >= MOST:
            self.forged += 1
            return
        error = None
        if event.answer is None:
            error = AnswerError(f"{event.who!r} of node {node!r} has failed: {event.problem}", node, event.who)
        asked.expected.setdefault(node, min(MOST, max(1, event.answerers)))
        asked.replies[node, event.who] = Reply(node, event.who, event.answer, error)
        asked.settle(node)

    def _outcome(self, asked: Asked, timeout: float) -> Any:
        """What the asker is given, or raised, now that nothing more is waited for."""
        if asked.failure is not None:
            raise asked.failure
        replies = list(asked.replies.values())
        if not asked.first:
            if not replies and not asked.places and not asked.open_end:
                raise self._nobody()
            silent = sorted({node for node, _ in asked.places})
            late = [
                Reply(node, "", error=AnswerError(f"node {node!r} has not answered in {timeout:g} s", node))
                for node in silent
            ]
            self.answered += any(reply.error is None for reply in replies)
            return [*replies, *late]
        found = asked.answered()
        if found is not None:
            self.answered += 1
            return found.answer
        if replies and replies[0].error is not None:
            raise replies[0].error
        if not asked.places and not asked.open_end and not asked.again:
            raise self._nobody()
        silent = sorted({node for node, _ in asked.places})
        whom = f"{', '.join(silent)} had it" if silent else "who had it is gone, and nobody else has come"
        raise Unanswered(f"channel {self._channel.name!r}: expected an answer within {timeout:g} s, found none; {whom}")

    def _nobody(self) -> NoAnswerer:
        return NoAnswerer(
            f"channel {self._channel.name!r}: expected somebody who answers such a question, found nobody; "
            "channel.answer(handler, answers=…) has one answer"
        )

    # ── its channels ──

    def _opened(self, answers: Any) -> bool:
        """Whether it can ask: the type of answers is known, here or from who answers."""
        if self._source is not None:
            if answers is not None and as_answers(answers) != self._answers:
                assert self._answers is not None
                raise QuestionError(
                    f"channel {self._channel.name!r}: answers: expected {self._answers.name}, which its answers are, "
                    f"found {as_answers(answers).name}"
                )
            return True
        with self._opening:
            if self._source is not None:
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
            self._sink = channel.subscribe(
                self._take,
                "to == :me",
                params={"me": self.id},
                type=form,
                dispatch="inline",
                failures=0,
                name=f"answers to {self.id}",
            )
            questions = self._node.channel(self._channel.name + QUESTIONS, self.type)
            self._answers = found
            self._source = questions.source(f"questions of {self.id}", type=self.type)
        return True

    def close(self, why: str) -> None:
        """Nobody asks any more; whoever waits is told."""
        for asked in list(self.open.values()):
            asked.failure = ClosedError(f"channel {self._channel.name!r}: {why}")
            asked.finish()

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


def _ring(loop: Any, bell: Any) -> None:
    try:
        if asyncio.get_running_loop() is loop:
            bell.set()
            return
    except RuntimeError:
        pass
    with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
        loop.call_soon_threadsafe(bell.set)


__all__ = ["OPEN", "Asker"]
