"""How questions and answers travel: as events of two channels beside the one that they belong to.

`NAME.questions` has the fields of the channel's type, so that interests on these choose which questions reach whom, at
the asker's source; and who asks, under which number, how long it waits, and whether it asks again. `NAME.answers` says
to whom and to which number, by whom, and has the answer or the text of an error. Its sources send it to the asker only,
by an interest like any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from headwater.errors import QuestionError
from headwater.interest import as_event_type
from headwater.types import EventType
from headwater.types.binding import Binding
from headwater.types.event import make_class
from headwater.types.model import BOOL, F64, TEXT, U16, U64, Field, Record

QUESTIONS, ANSWERS = ".questions", ".answers"
ERROR_LENGTH = 2000  # characters of an error's text
MOST = 1024  # answers to one question that are kept, and answerers that a node may have for one channel
_ASKING = (("question_asker", U64), ("question_number", U64), ("question_seconds", F64), ("question_again", BOOL))
_ANSWERING = (("to", U64), ("number", U64), ("who", TEXT), ("answerers", U16), ("problem", TEXT))


@lru_cache(256)
def question_type(type: EventType) -> EventType:
    """The type of questions of a channel of that type."""
    taken = [name for name, _ in _ASKING if name in type.record.by_name]
    if taken:
        raise QuestionError(
            f"{type.name}: expected no field called {', '.join(taken)}, which questions have; rename it"
        )
    return _made(f"{type.name}Question", type.binding, _ASKING)


@lru_cache(256)
def answer_type(type: EventType) -> EventType:
    """The type of the events that carry answers of that type."""
    fields = (*(Field(name, each, False) for name, each in _ANSWERING), Field("answer", type.record, True))
    record = Record(f"{type.name}Answer", fields)
    parts = (*(Binding(each) for _, each in _ANSWERING), type.binding)
    return EventType(record, binding=_bound(record, parts))


def answer_class(channel_type: EventType) -> EventType:
    """The type of the answers in a channel of answers that another node has."""
    field = channel_type.record.by_name.get("answer")
    if field is None or not isinstance(field.type, Record):
        raise QuestionError(f"{channel_type.name}: expected a channel of answers, found none of their fields")
    return as_event_type(EventType(field.type))


def asking(type: EventType) -> Callable[[Any, int, int, float, bool], Any]:
    """What makes a question of an event: with who asks, under which number, for how many seconds, and whether again."""
    make, attrs = question_type(type).binding.constructor, type.binding.attrs
    if len(attrs) == 1:
        value = attrgetter(*attrs)
        return lambda event, asker, number, seconds, again: make(value(event), asker, number, seconds, again)
    values = _values(attrs)
    return lambda event, asker, number, seconds, again: make(*values(event), asker, number, seconds, again)


def asked(type: EventType) -> Callable[[Any], Any]:
    """What makes the event of a question."""
    make, attrs = type.binding.constructor, type.binding.attrs
    if len(attrs) == 1:
        value = attrgetter(*attrs)
        return lambda question: make(value(question))
    values = _values(attrs)
    return lambda question: make(*values(question))


def _values(attrs: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*attrs) if attrs else lambda event: ()


def _made(name: str, binding: Binding, more: tuple[tuple[str, Any], ...]) -> EventType:
    fields = (*binding.record.fields, *(Field(name, each, False) for name, each in more))
    record = Record(name, fields)
    return EventType(record, binding=_bound(record, (*binding.parts, *(Binding(each) for _, each in more))))


def _bound(record: Record, parts: tuple[Binding, ...]) -> Binding:
    """Of a class that is made, with the classes of the fields as they are."""
    from headwater.types.binding import attribute_names

    attrs = attribute_names(record)
    return Binding(record, make_class(record, attrs, parts), attrs, parts)


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of a question, for handlers that take a second argument."""

    node: str  # that asks
    seconds: float  # that the asker waits, from when it has asked
    redelivered: bool  # it was asked before, of somebody who is no more

    def __repr__(self) -> str:
        return f"<Question of {self.node}, which waits {self.seconds:g} s{', again' if self.redelivered else ''}>"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one of those who were asked has said: an answer, or an error."""

    node: str
    who: str
    answer: Any = None
    error: QuestionError | None = None


__all__ = [
    "ANSWERS",
    "ERROR_LENGTH",
    "MOST",
    "QUESTIONS",
    "Question",
    "Reply",
    "answer_class",
    "answer_type",
    "asked",
    "asking",
    "question_type",
]
