"""One question at the node that asks it: where it went, and what has come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from headwater.channel.questions.forms import MOST, Reply
from headwater.errors import AnswerError, QuestionError

if TYPE_CHECKING:
    from headwater.channel.concurrency.bounded_queue import BoundedQueue


class Asked(Struct, eq=False):
    """One question. What becomes of it is written under its asker's lock."""

    number: int
    event: Any
    first: bool  # one answer is enough
    bell: Callable[[], object]
    places: dict[str, int] = {}  # nodes where it went, and their runs, as far as more is to come
    ways: Iterable[BoundedQueue] = ()  # by which it went there
    left: tuple[str, ...] = ()  # nodes where it went, and nobody takes such questions any more: some may finish theirs
    done: bool = False
    open_end: bool = False  # it went where nobody can tell who has it
    again: bool = False  # it went to somebody who is no more
    full: str = ""  # whose queue has no room for it, while it has not gone anywhere for that
    answer: Any = None  # where the first is enough
    failure: BaseException | None = None
    replies: dict[tuple[str, str], Reply] = {}  # by node, and who there
    expected: dict[str, int] = {}  # by node, how many there have it

    def finish(self) -> None:
        if not self.done:
            self.done = True
            self.bell()

    def take(self, node: str, said: Any) -> bool:
        """What somebody of a node says; False if it has said something already, or too many have."""
        answer, who = said.answer, said.who
        if (node, who) in self.replies or len(self.replies) >= MOST:
            return False
        if answer is not None and self.first:
            self.answer = answer
            self.finish()
            return True
        error = None
        if answer is None:
            error = AnswerError(f"{who!r} of node {node!r} has failed: {said.problem}", node, who)
        self._reply(Reply(node, who, answer, error))
        expected = self.expected.setdefault(node, min(MOST, max(1, said.answerers)))
        if sum(1 for each, _ in self.replies if each == node) >= expected:
            self._without(node)
        if not self.places and not self.open_end:
            self.finish()
        return True

    def _without(self, node: str) -> None:
        self.places = {each: run for each, run in self.places.items() if each != node}

    def gone(self, node: str) -> None:
        """The run of a node that has it is no more."""
        self._without(node)
        self.left = *self.left, node
        if not self.first and len(self.replies) < MOST:
            self._reply(Reply(node, "", error=AnswerError(f"node {node!r} is gone, and had not answered", node)))

    def go(self, places: dict[str, int], ways: Iterable[BoundedQueue], *, open_end: bool) -> None:
        """It goes there. If it went elsewhere before, what was said to it then does not count any more."""
        self.places, self.ways, self.open_end = places, ways, open_end
        self.replies, self.expected = {}, {}

    def refused(self, node: str, error: QuestionError) -> None:
        """It cannot go to a node."""
        self._without(node)
        if len(self.replies) < MOST:
            self._reply(Reply(node, "", error=error))
        if not self.places and not self.open_end:
            self.finish()

    def _reply(self, reply: Reply) -> None:
        self.replies[reply.node, reply.who] = reply

    def silent(self) -> list[str]:
        """Nodes that have it, and have not said all they are to."""
        return sorted(self.places)


__all__ = ["Asked"]
