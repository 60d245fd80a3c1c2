"""The questions of a node: who asks and who answers, by channel."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.questions.asker import Asker
from headwater.channel.questions.desk import Answering, Desk, answers_of
from headwater.channel.services import Service
from headwater.errors import ClosedError

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract


_making = threading.Lock()


class Questions(Service):
    """Made with the first question, or the first who answers."""

    name = "questions"

    def __init__(self, node: NodeContract) -> None:
        self._node = node
        self._askers: dict[int, Asker] = {}
        self._desks: dict[int, Desk] = {}
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()

    def answer(
        self, channel: Channel, handler: Any, where: Any, *, answers: Any, name: str | None, options: dict[str, Any]
    ) -> Answering:
        """Have a handler answer the questions of a channel."""
        type = answers_of(answers, channel.name)
        with self._lock:
            _check_open(channel)
            desk = self._desks.get(channel.number)
            if desk is None:
                desk = self._desks[channel.number] = Desk(self._node, channel, type)
                self._names[channel.number] = channel.name
        return desk.join(handler, where, name=name, answers=type, options=options)

    def asker(self, channel: Channel) -> Asker:
        """Who asks the questions of a channel here."""
        with self._lock:
            found = self._askers.get(channel.number)
            if found is None:
                _check_open(channel)
                found = self._askers[channel.number] = Asker(self._node, channel)
                self._names[channel.number] = channel.name
            return found

    def end(self, channel: Channel) -> None:
        """A channel is closed: whoever waits for an answer in it is told, and nobody here answers there any more, but
        for what they have."""
        with self._lock:
            asker, desk = self._askers.pop(channel.number, None), self._desks.pop(channel.number, None)
        if asker is not None:
            asker.end()
        if desk is not None:
            desk.end()

    @property
    def busy(self) -> bool:
        """Whoever waits for an answer would wait for nothing: they are told at once."""
        return any(asker.open for asker in list(self._askers.values()))

    def drain(self, until: float) -> None:
        self.stop()

    def stop(self) -> None:
        for asker in list(self._askers.values()):
            asker.close(f"node {self._node.name!r} is closed")

    def report(self) -> Mapping[str, Any]:
        made: dict[str, dict[str, int]] = {}
        parts: list[tuple[int, Asker | Desk]] = [*self._askers.items(), *self._desks.items()]
        for number, part in parts:
            made.setdefault(self._names[number], {}).update(part.report())
        return made


def _check_open(channel: Channel) -> None:
    if channel.closed:
        raise ClosedError(f"channel {channel.name!r}: it is closed; open it again")


def questions_of(node: Any) -> Questions:
    """The service of a node, which has it from then on."""
    found = node.services.get(Questions.name)
    if found is None:
        with _making:
            found = node.services.get(Questions.name)
            if found is None:
                found = node.services.add(Questions(node))
    return found  # type: ignore[no-any-return]


__all__ = ["Questions", "questions_of"]
