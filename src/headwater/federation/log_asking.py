"""The answers to a question that was put to one node, or to all of them, in a thread of Zenoh."""

from __future__ import annotations

import threading
from time import monotonic

import zenoh

from headwater.federation.questions import FAILED

MANY = 10_000  # answers that are taken


class Answers:
    """`done` when there are no more; `taken` are the answers, `failed` says that a node could not answer, and why."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.taken: list[bytes] = []
        self.failed = ""
        self.late = False  # time was up before all had answered
        self.since = monotonic()

    def took(self, reply: zenoh.Reply) -> None:
        if reply.ok is not None:
            if len(self.taken) < MANY:
                self.taken.append(reply.ok.payload.to_bytes())
        elif reply.err is not None:
            data = reply.err.payload.to_bytes()
            if data.startswith(FAILED):
                self.failed = f"a node could not answer: {data[len(FAILED) :].decode(errors='replace')}"
            else:
                self.late = True  # Zenoh says that time is up

    def ended(self) -> None:
        self.done.set()
