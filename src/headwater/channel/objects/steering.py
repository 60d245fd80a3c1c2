"""Steering: an object has the settings that a source is to work with, and the source takes them up.

What is *wanted* is an object: it is changed in transactions, by programs, triggers and other nodes that may, within the
limits of its type, and survives a restart. What *is* is the context of the source: interests there read it. In between
is the program's own function, which makes it so. Changes are taken up one by one, in the order of turns, after they are
durable; while the function is slow, at most so many wait, and the oldest of more than that are passed over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, ObjectError
from headwater.objects.names import object_name
from headwater.objects.observers import Observer
from headwater.threads import Crashes, Worker
from headwater.types.model import promote

if TYPE_CHECKING:
    from headwater.channel.source import Source
    from headwater.channel.source_context import Context
    from headwater.objects.object_types import ObjectType
    from headwater.objects.reactions import Moment, Occurrence
    from headwater.types import EventType

Apply = Callable[[Any], object]
MOST_WAITING = 1_024  # changes of one object


class Steering:
    """A source that is steered. Made by `objects.steer`; it ends with its source, or when it is closed."""

    def __init__(self, desk: SteeringDesk, object: str, type: EventType, context: Context, apply: Apply | None) -> None:
        self.object, self._type, self._context, self._apply = object, type, context, apply
        self._desk = desk
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._working = False
        self._latest = 0  # the last whose settings are wanted
        self.turn = 0  # the last whose settings were looked at
        self.applied = self.failed = self.passed_over = 0
        self.failure = ""  # why the last ones could not be taken up; nothing, if they were
        self.closed = False

    def until(self, turn: int, timeout: float | None = None) -> bool:
        """Wait until what was wanted after a turn was taken up, or could not be; whether that is so."""
        end = None if timeout is None else monotonic() + timeout
        with self._changed:
            while self.turn < turn and not self.closed:
                left = None if end is None else end - monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
            return self.turn >= turn

    @property
    def settings(self) -> dict[str, Any]:
        """What the context has of them: what is, and not what is wanted."""
        return {name: self._context[name] for name in self._type.record.by_name}

    def report(self) -> dict[str, Any]:
        """How often settings were taken up, or could not be, and why the last ones could not."""
        return {
            "turn": self.turn, "applied": self.applied, "failed": self.failed, "failure": self.failure,
            "passed over": self.passed_over,
        }  # fmt: skip

    def close(self) -> None:
        """Take up nothing any more; the object stays as it is."""
        self._desk.remove(self)
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def takes(self, type: EventType) -> bool:
        """Whether objects of a type are settings for it."""
        return type is self._type or type == self._type

    def want(self, record: bytes, turn: int, *, first: bool = False) -> bool:
        """Settings as they are after a turn: to be taken up; whether somebody has to be told to. The `first` are those
        that there were as it began, unless later ones have come already."""
        with self._changed:
            if first and turn <= self._latest:
                return False
            self._latest = turn
            self._waiting.append((record, turn))
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.passed_over += 1
            tell, self._working = not self._working, True
            return tell

    def work(self) -> None:
        """Take up all that waits."""
        while True:
            with self._changed:
                if not self._waiting or self.closed:
                    self._waiting.clear()
                    self._working = False
                    return
                record, turn = self._waiting.popleft()
            self._take(record, turn)

    def _take(self, record: bytes, turn: int) -> None:
        """The context tells what is: it is changed if the settings could be taken up."""
        failure, settings = "", self._type.decode(record)
        try:
            if self._apply is not None:
                self._apply(settings)
        except Exception as error:  # of the program's function: the next settings may be better
            failure = f"{error.__class__.__name__}: {error}"
            self._desk.crashes.note(f"steering {self.object}", error)
        if not failure:
            try:
                self._context.set({name: getattr(settings, name) for name in self._type.record.by_name})
            except ClosedError:
                self.close()
                return
        with self._changed:
            more = bool(self._waiting) and self._waiting[0][1] == turn  # it has changed several times in that turn
            self.turn, self.failure = turn - more, failure
            self.applied += not failure
            self.failed += bool(failure)
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<Steering of {self.object}>"


class SteeringDesk(Observer):
    """All sources of a node that are steered: it sees changes in their turns, and has them taken up afterwards."""

    def __init__(self, node: str, crashes: Crashes) -> None:
        super().__init__()
        self._node, self.crashes = node, crashes
        self._lock = threading.Lock()
        self._steered: Mapping[str, Steering] = {}  # by path
        self._seen: deque[tuple[str, bytes, int]] = deque()  # since the last commit
        self._worker: Worker | None = None

    # ── turns ──

    def changed(self, occurrence: Occurrence, moment: Moment) -> None:
        """A change of settings, to be taken up if its turn is committed. What is made under their name, and is of
        another type, is none."""
        steering = self._steered.get(occurrence.object)
        if steering is not None and occurrence.new is not None and steering.takes(occurrence.type):
            self._seen.append((occurrence.object, occurrence.new, occurrence.turn))
            self.journal.did(self._unsee)

    def _unsee(self) -> None:
        if self._seen:
            self._seen.pop()

    def committed(self) -> None:
        """What was seen is certain."""
        while self._seen:
            object, record, turn = self._seen.popleft()
            steering = self._steered.get(object)
            if steering is not None:
                self.want(steering, record, turn)

    def forget(self) -> None:
        """The commit failed."""
        self._seen.clear()

    # ── who is steered ──

    def add(self, object: str, type: ObjectType, source: Source[Any], apply: Apply | None) -> Steering:
        """One more; ObjectError if it does not fit, or the object steers another."""
        if apply is not None and not callable(apply):
            raise ObjectError(f"steer {object!r}: expected a function of the settings, found {apply!r}")
        made = Steering(self, object, type.type, _context(object, type.type, source), apply)
        with self._lock:
            known = self._steered.get(object)
            if known is not None:
                raise ObjectError(f"steer {object!r}: expected an object that steers no source yet, found that it does")
            if self._worker is None:
                self._worker = Worker(f"headwater-{self._node}-steering", crashes=self.crashes)
                self._worker.start()
            self._steered = {**self._steered, object: made}
        return made

    def want(self, steering: Steering, record: bytes, turn: int, *, first: bool = False) -> None:
        """Have settings taken up by the thread that does so."""
        if steering.want(record, turn, first=first) and self._worker is not None:
            self._worker.put(steering.work, always=True)

    def remove(self, steering: Steering) -> None:
        """It is not steered any more."""
        with self._lock:
            self._steered = {name: each for name, each in self._steered.items() if each is not steering}

    def report(self) -> dict[str, Any]:
        """Of each, by object."""
        return {each.object: each.report() for each in self._steered.values()}

    def stop(self) -> None:
        """End; what was not taken up will be when it is steered again."""
        for each in list(self._steered.values()):
            each.close()
        if self._worker is not None:
            self._worker.stop()


def _context(object: str, type: EventType, source: Source[Any]) -> Context:
    """That of a source, which has a value for each setting; ObjectError with all that does not fit."""
    context = getattr(source, "context", None)
    if context is None or source.closed:
        raise ObjectError(
            f"steer {object!r}: expected a source of this node with a context, found {source!r}; make it with "
            "channel.source(context=…)"
        )
    wrong = []
    for field in type.record.fields:
        there = context.record.by_name.get(field.name)
        if there is None or promote(there.type) != promote(field.type):
            wrong.append(f"{field.name}: expected {field.type}, found {'nothing' if there is None else there.type}")
    if wrong:
        raise ObjectError(
            f"steer {object!r}: expected a context with all settings of {type.name}, found: {'; '.join(wrong)}"
        )
    found: Context = context
    return found


def path_of(name: str, node: str) -> str:
    """The path of an object of this node, not of a member."""
    found = object_name(name, node)
    if found.node != node or found.member:
        raise ObjectError(f"steer {name!r}: expected an object of this node, //{node}/…, found another, or a member")
    return found.object


__all__ = ["Apply", "Steering", "SteeringDesk", "path_of"]
