"""The answers to a question that was put to one node, or to all of them, in a thread of Zenoh."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from time import monotonic

import zenoh

from headwater.federation.fabric.queries import FAILED, REFUSED, unproven_hint

MOST_ANSWERS = 10_000  # answers that are taken


class Answers:
    """As they come; whether they are what they say to be is not known yet."""

    def __init__(self) -> None:
        self._came: SimpleQueue[bytes | None] = SimpleQueue()
        self._taken = 0
        self.hint = ""  # why somebody could not answer, perhaps
        self.refused = False  # somebody says that the question cannot be opened
        self.late = False  # time was up before all had answered

    def took(self, reply: zenoh.Reply) -> None:
        if reply.ok is not None:
            self._taken += 1
            if self._taken <= MOST_ANSWERS:
                self._came.put(reply.ok.payload.to_bytes())
        elif reply.err is not None:
            data = reply.err.payload.to_bytes()
            if data.startswith(FAILED):
                self.hint = unproven_hint(data) or self.hint
                self.refused = self.refused or data == FAILED + REFUSED
            else:
                self.late = True  # Zenoh says that time is up

    def ended(self) -> None:
        self._came.put(None)

    def each(self, timeout: float) -> Iterator[bytes]:
        """The answers, until there are no more or it is too late."""
        end = monotonic() + timeout
        while True:
            try:
                answer = self._came.get(timeout=max(0.0, end - monotonic()))
            except Empty:
                self.late = True
                return
            if answer is None:
                return
            yield answer
