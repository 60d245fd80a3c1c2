"""Who answers: handlers of one channel's questions at this node."""

from __future__ import annotations

import logging
import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.options.config import Queue
from headwater.channel.options.subscribe import is_coroutine, takes_about, uncallable
from headwater.channel.questions.forms import (
    ANSWERS,
    ERROR_LENGTH,
    MOST,
    QUESTIONS,
    Question,
    answer_type,
    asked,
    question_type,
)
from headwater.channel.questions.held import HeldAnswers
from headwater.channel.routing.letter import Chunk
from headwater.channel.subscription import text_of
from headwater.errors import ClosedError, EncodeError, HeadwaterError, QuestionError
from headwater.interest import as_event_type
from headwater.late import asyncio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.letter import About
    from headwater.channel.subscription import Subscription
    from headwater.interest import Interest
    from headwater.types import EventType

log = logging.getLogger("headwater")
HELD = 2 * MOST  # answers that wait until their asker has said that it wants them: all to one question, at least
RETRY, SLOWEST = 0.02, 0.2  # seconds after which they are tried again: at first, and when it was of no use
PATIENCE = 10.0  # seconds that one waits so, at most
WAITING = 16_384  # questions that wait for one who answers, if nothing else is said: of more, the oldest are dropped
LONGEST_NAME = 200


class Answering:
    """A handler that answers, while it is not closed."""

    def __init__(self, desk: Desk, name: str, handler: Callable[..., Any]) -> None:
        self._desk, self.name, self._handler = desk, name, handler
        self._about = takes_about(handler)
        self.caught: type[BaseException] = Exception  # what a handler may raise, as with any sink (`join`)
        self._now: Any = None  # the question that it has in hand, or has had last
        self._owes: set[int] | None = None  # of one that has left: the numbers of questions that it still had then
        self.subscription: Subscription[Any] = None  # type: ignore[assignment]
        self.interest: Interest | None = None

    def plain(self) -> Callable[[Any], None]:
        """What takes one question, as it comes, by a function that wants to know no more of it: with all it needs at
        hand. As a rule one answers here, and it is known how to reach the asker; all else is for `Desk.say`."""
        desk, handler, name, failed, succeeded = self._desk, self._handler, self.name, self._fail, self._succeed
        asked, cls, formed, members, source = desk.asked, desk.cls, desk._formed, desk._members, desk._source
        flow, publish, alone = source._flow, source.publish, (self,)

        def take(event: Any) -> None:
            self._now = event
            here = alone if len(members) == 1 and not desk.leaving else desk.everybody()  # others come too late for it
            try:
                result = handler(asked(event))
            except Exception as error:
                failed(event, None, error, here)
                return
            (route, known), asker = desk.reached, event.question_asker
            if route is flow.route and asker in known and here is alone and isinstance(result, cls):
                try:
                    publish(formed(asker, event.question_number, name, 1, "", result))
                except (EncodeError, ClosedError):
                    pass  # the asker is told, or nobody is
                else:
                    desk.answered += 1
                    return
            succeeded(event, None, result, here)

        return take

    def take(self, event: Any, about: About | None) -> None:
        """One question, by a plain function."""
        self._now = event
        try:
            result = self._handler(*self._arguments(event, about))
        except self.caught as error:
            self._fail(event, about, error)
        else:
            self._succeed(event, about, result)

    async def atake(self, event: Any, about: About) -> None:
        """One question, by a coroutine function."""
        self._now = event
        try:
            result = await self._handler(*self._arguments(event, about))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # whoever runs it has ended it
            self._fail(event, about, error)  # something that it waited for was cancelled
        except Exception as error:
            self._fail(event, about, error)
        else:
            self._succeed(event, about, result)

    def _arguments(self, event: Any, about: About | None) -> tuple[Any, ...]:
        asked = self._desk.asked(event)
        if not self._about or about is None:
            return (asked,)
        return asked, Question(about._source.node, event.question_seconds, event.question_again)

    def _succeed(self, event: Any, about: About | None, result: Any, here: Sequence[Answering] | None = None) -> None:
        try:
            answer = self._desk.answer_of(result)
        except (HeadwaterError, TypeError) as error:
            self._fail(event, about, error, here, raised=False)
            return
        self._desk.answered += 1
        self._desk.say(self, event, about, answer, "", here)

    def _fail(
        self,
        event: Any,
        about: About | None,
        error: BaseException,
        here: Sequence[Answering] | None = None,
        *,
        raised: bool = True,
    ) -> None:
        """The asker gets the text; what led to it stays here. `raised`: by the handler, else what it returned is no
        answer, and where that was found out helps nobody."""
        self._desk.failed += 1
        text = text_of(error)[:ERROR_LENGTH].encode(errors="backslashreplace").decode()
        whose = "" if about is None else f" of node {about._source.node!r}"
        log.warning(
            "channel %r: %r has failed to answer a question%s, and the asker is told: %s",
            self._desk.name,
            self.name,
            whose,
            text,
            exc_info=error if raised else None,
        )
        self._desk.say(self, event, about, None, text, here)

    def has(self, event: Any, about: About | None, record: bytes) -> bool:
        """Whether a question has come to it: it satisfies its interest, and it was here then."""
        if self._owes is not None:
            return event.question_number in self._owes
        return self._was_here(about) and (self.interest is None or self.interest.test(record))

    def _was_here(self, about: About | None) -> bool:
        if self.subscription is None:  # it is only being made
            return False
        if about is None:  # it is coming just now
            return True
        attachments = list(self.subscription._attachments.values())
        return any(each.points.get(about._source.number, ("", 0))[1] < about.seq for each in attachments)

    def close(self) -> None:
        """Answer no more questions; those that have come are answered first."""
        self._desk.leave(self)

    def end(self) -> None:
        """Take no more questions; which it still has is known from here on."""
        self.subscription.cancel(drain=True)
        left = [] if self._now is None else [self._now]
        waiting = self.subscription._mailbox.items
        for attachment, letter, *_ in list(waiting) if isinstance(waiting, deque) else [each[2] for each in waiting]:
            left += attachment.form.many(letter) if isinstance(letter, Chunk) else [attachment.form.one(letter)]
        self._owes = {question.question_number for question in left}

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Answering {self.name}: {self._desk.name}>"


class Desk:
    """Those of this node who answer questions of one channel."""

    def __init__(self, node: NodeContract, channel: Channel, answers: EventType) -> None:
        if channel.type is None:
            raise QuestionError(
                f"channel {channel.name!r} has no type and carries bytes: expected one with a type; declare it with one"
            )
        self._node, self.name, self.answers = node, channel.name, answers
        self.asked = asked(channel.type)  # the question as its channel has it
        self._wide = question_type(channel.type)
        self._form, self.cls = answer_type(answers), answers.cls
        self._formed = self._form.binding.constructor
        self._questions = node.channel(channel.name + QUESTIONS, self._wide)
        self._channel = node.channel(channel.name + ANSWERS, self._form)
        name = (
            "answers" if "answers" not in self._channel.sources else f"answers-{channel.number}"
        )  # it may be open anew
        self._source = self._channel.source(name, type=self._form)
        self._source.uncrossable = self._too_large
        self._members: dict[str, Answering] = {}
        self.leaving: list[Answering] = []  # those who take no more questions, and may have some
        self._lock = threading.Lock()
        self._held = HeldAnswers(HELD)
        self._retrying, self._pause = False, RETRY
        self.reached: tuple[object, set[str]] = None, set()  # by route, askers that get what is said to them
        self.answered = self.failed = 0
        self.dropped = 0  # answers whose asker did not want them in time

    def join(
        self, handler: Any, where: Any, *, name: str | None, answers: EventType, options: dict[str, Any]
    ) -> Answering:
        """One more who answers."""
        if answers != self.answers:
            raise QuestionError(
                f"channel {self.name!r}: answers: expected {self.answers.name}, which others here answer with, found "
                f"{answers.name}; a channel has one type of answers"
            )
        if not callable(handler):
            raise QuestionError(f"channel {self.name!r}: answer: expected a function, found {handler!r}")
        problem = uncallable(handler, 2 if takes_about(handler) else 1)
        if problem:
            raise QuestionError(
                f"channel {self.name!r}: answer: expected a function of the question, or of the question and what is "
                f"known of it, found {handler!r}, {problem}"
            )
        if name is not None and not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= LONGEST_NAME):
            raise QuestionError(
                f"channel {self.name!r}: answer: name: expected a text of 1 to {LONGEST_NAME} characters, found "
                f"{name!r}"
            )
        with self._lock:
            if len(self._members) >= MOST:
                raise QuestionError(f"channel {self.name!r}: expected at most {MOST:,} who answer at a node")
            number = 1
            while name is None or (name in self._members and name.startswith("answerer-")):
                name, number = f"answerer-{number}", number + 1
            if name in self._members:
                raise QuestionError(f"channel {self.name!r}: answer: expected a new name, found {name!r} in use")
            made = self._members[name] = Answering(self, name, handler)
        options["queue"] = _queue(options.get("queue"))
        try:
            take: Any = made.atake if is_coroutine(handler) else made.take
            dispatch = options.get("dispatch") or self._node.config.dispatch
            if getattr(dispatch, "name", dispatch) != "inline":
                made.caught = BaseException
                options["lifetime"] = "question_seconds"  # nobody waits for an answer that is later
            elif not takes_about(handler) and not is_coroutine(handler):
                take = made.plain()
            made.subscription = self._questions.subscribe(take, where, type=self._wide, failures=0, **options)
            (made.interest,) = {each.entry.interest for each in made.subscription._attachments.values()}
            if made.interest is not None and (made.interest.stateful or made.interest.output is not None):
                made.subscription.cancel()
                raise QuestionError(
                    f"channel {self.name!r}: answer: expected an interest in single questions, found one with state or "
                    "output"
                )
        except BaseException:
            with self._lock:
                del self._members[name]
            raise
        return made

    def leave(self, member: Answering) -> None:
        """One less."""
        with self._lock:
            if self._members.get(member.name) is not member:
                return
            del self._members[member.name]
            self.leaving = [*self._unfinished(), member]
        member.end()

    def end(self) -> None:
        """Its channel is closed: all of them leave."""
        for member in list(self._members.values()):
            self.leave(member)

    def everybody(self) -> list[Answering]:
        """Who may have a question that is here: those who answer, and those who have left and are not done yet."""
        with self._lock:
            self.leaving = self._unfinished()
            return [*self._members.values(), *self.leaving]

    def _unfinished(self) -> list[Answering]:
        return [each for each in self.leaving if not each.subscription._mailbox.idle]

    def answer_of(self, result: Any) -> Any:
        """What a handler returned, as an answer; EncodeError if it is none."""
        if isinstance(result, self.cls):
            return result
        if not isinstance(result, dict):
            raise QuestionError(
                f"expected an answer of type {self.answers.name}, found {type(result).__name__}; have the handler "
                "return one, or a dict with its fields"
            )
        return self.answers.from_dict(result)

    def say(
        self,
        member: Answering,
        event: Any,
        about: About | None,
        answer: Any,
        problem: str,
        here: Sequence[Answering] | None = None,
    ) -> None:
        """To the asker, and nobody else. `here`: who may have the question too, if that is known from when it came."""
        others = [each for each in (self.everybody() if here is None else here) if each is not member]
        record = self._wide.encode(event) if others else b""
        answerers = 1 + sum(each.has(event, about, record) for each in others)
        made = self._formed(event.question_asker, event.question_number, member.name, answerers, problem, answer)
        try:
            said = self._try(made)
        except EncodeError as error:
            made = self._formed(made.to, made.number, made.who, made.answerers, str(error)[:ERROR_LENGTH], None)
            said = self._try(made)
        if said:
            return
        with self._lock:  # the asker is there, but that it wants answers has not come here yet
            until = monotonic() + min(PATIENCE, max(0.0, event.question_seconds))
            self.dropped += not self._held.add(until, made)
            begin, self._retrying = not self._retrying, True
        if begin:
            self._node._timers.call_after(self._pause, self._retry)

    def _try(self, made: Any) -> bool:
        """Say it, if its asker is known to want it; whether that is so."""
        source = self._source
        if source.closed:
            return True
        route, known = self.reached
        now = source._flow.route
        if now is not route or made.to not in known:
            if next(iter(source._flow.reaches(self._form.encode(made))), None) is None:
                return False
            self.reached = now, {*known, made.to} if now is route and len(known) < MOST else {made.to}
        source.publish(made)
        return True

    def _too_large(self, record: bytes, node: str, most: int) -> None:
        """An answer does not cross: its asker is told that, instead."""
        made = self._form.decode(record)
        problem = (
            f"the answer has {len(record):,} bytes: expected at most {most:,}, which go to another node; answer with "
            "less, or have it asked for in parts"
        )
        log.error("channel %r: %r, to a question of node %s: %s", self.name, made.who, node, problem)
        self.answered -= 1
        self.failed += 1
        self._try(self._formed(made.to, made.number, made.who, made.answerers, problem, None))

    def _retry(self) -> None:
        """Say what can be said by now: once for each asker it is looked whether it wants answers. While none does,
        that is done ever less often."""
        with self._lock:
            waiting = self._held.take()
        said, left, dropped = False, [], 0
        for line in waiting:
            while line and self._try(line[0][1]):
                line.popleft()
                said = True
            while line and line[0][0] <= monotonic():
                line.popleft()
                dropped += 1
            if line:
                left.append(line)
        with self._lock:
            self.dropped += dropped + self._held.give_back(left)
            self._pause = RETRY if said or not self._held else min(2 * self._pause, SLOWEST)
            self._retrying = again = bool(self._held) and not self._node.closed
        if again:
            self._node._timers.call_after(self._pause, self._retry)

    def report(self) -> dict[str, int]:
        return {
            "answerers": len(self._members),
            "answers": self.answered,
            "failures": self.failed,
            "held": len(self._held),
            "dropped": self.dropped,
        }


def _queue(given: Any) -> Any:
    """Where questions wait. One who is stuck keeps nobody from asking others: what its queue does not take is dropped,
    the oldest first, unless it has said otherwise."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given > 0):
        return Queue(limit=given or WAITING, policy="drop_oldest")
    return given


def answers_of(given: Any, name: str) -> EventType:
    """The type of answers that somebody gives."""
    if given is None:
        raise QuestionError(f"channel {name!r}: answers: expected the type of answers, found None; give an Event class")
    return as_event_type(given)


__all__ = ["Answering", "Desk", "answers_of"]
