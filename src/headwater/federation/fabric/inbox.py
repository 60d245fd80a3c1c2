"""What comes to a node over Zenoh: which handler gets it, and in which thread (see `fabric.py`).

Zenoh's own threads only put things into queues here, but for posts. Queues are bounded: what is too much is dropped and
counted, and an asker hears that it was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zenoh

from headwater.federation.fabric.counters import KINDS, Counters, bounded
from headwater.federation.fabric.queries import BROKEN, BUSY, FAILED, REFUSED, TOO_LARGE
from headwater.federation.fabric.reconnection import Reunion
from headwater.threads import Crashes, Worker

log = logging.getLogger("headwater.federation")

QUESTIONS_WAITING = 1024  # questions that may wait in a node
CONTROLS_WAITING = 65_536  # news and roll calls that may wait in a node
LOG_THREADS = 2  # questions about its log that a node answers at a time
LOG_QUESTION_BYTES = 1 << 20  # bytes of a question about a log


Answered = bytes | None | Callable[[Callable[[bytes | None], None]], None]
"""What a handler answers to a question: bytes, or nothing; or a function that is given one to answer with later, once,
from any thread: so that nobody has to wait in the thread in which questions come."""


class Inbox:
    """The half of a fabric that receives. Set the handlers (`on_…`) you need before it is opened."""

    def __init__(self, node: str, root: str, limit: int, crashes: Crashes) -> None:
        self.node = node
        self.failures: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.on_join: Callable[[str, int], None] | None = None
        self.on_leave: Callable[[str, int], None] | None = None
        self.on_roll: Callable[[bytes], bytes | None] | None = None  # None: nothing that can be answered
        self.on_news: Callable[[bytes], None] | None = None
        self.on_ask: Callable[[bytes], Answered] | None = None
        self.on_post: Callable[[bytes], None] | None = None
        # Whether this run of a node has proven to be one: else its sign of life is only kept if there are not too many.
        self.proven: Callable[[str, int], bool] = lambda node, incarnation: False
        # A connection to a Zenoh session: whether it is there (else it is gone), the other's id, from where, to where.
        # In a thread of Zenoh, in which it must not wait. `on_session`: there are none, for the session begins.
        self.on_link: Callable[[bool, str, str, str], None] | None = None
        self.on_session: Callable[[], None] | None = None
        self.on_log: Callable[[bytes], bytes | None] | None = None  # set before `open`, else there is nothing to ask

        self._root, self._limit, self._crashes = root, limit, crashes
        self._count = Counters()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._generation = 0  # of the session: what an earlier one still says does not count
        self._reunion: Reunion | None = None
        self._inside = threading.local()  # .post: this is a thread of Zenoh, in on_post
        self._control = Worker(f"{node}-control", CONTROLS_WAITING, crashes=crashes)
        self._answers = Worker(f"{node}-answers", QUESTIONS_WAITING, crashes=crashes)
        self._reads = Worker(f"{node}-log", QUESTIONS_WAITING, threads=LOG_THREADS, crashes=crashes)

    def _start(self) -> None:
        self._control.start()
        self._answers.start()
        if self.on_log is not None:
            self._reads.start()

    def _stop(self) -> None:
        self._control.stop()
        self._answers.stop()
        self._reads.stop()

    # ---- in Zenoh's threads

    def _took_post(self, sample: zenoh.Sample) -> None:
        handler = self.on_post
        data = sample.payload.to_bytes()
        self._count.received("post", len(data))
        if handler is None or self._closed.is_set():
            return
        inside = self._inside
        inside.post = True
        try:
            handler(data)
        except Exception:
            self._failed("post")
        finally:
            inside.post = False

    def _took_news(self, sample: zenoh.Sample) -> None:
        data = bounded(sample.payload, self._limit)
        self._count.received("news", len(sample.payload))
        if not self._control.put(lambda: self._guard("news", self.on_news, data), size=len(data)):
            self._failed("news", "too many wait")

    def _took_link(self, event: zenoh.LinkEvent) -> None:
        if self._closed.is_set():
            return
        reunion, told, there = self._reunion, self.on_link, event.kind == zenoh.SampleKind.PUT
        link = str(event.link.zid), str(event.link.src), str(event.link.dst)
        if told is not None:
            told(there, *link)
        if reunion is not None:
            (reunion.connected if there else reunion.disconnected)(*link)

    def _took_roll(self, query: Any) -> None:
        self._took_query("roll", query, self._control, lambda: self.on_roll)

    def _took_ask(self, query: Any) -> None:
        self._took_query("ask", query, self._answers, lambda: self.on_ask)

    def _took_read(self, query: Any) -> None:
        if query.payload is not None and len(query.payload) > LOG_QUESTION_BYTES:
            self._failed("log", "it is too large")
            _refuse(query, TOO_LARGE)
            query.drop()
            return
        self._took_query("log", query, self._reads, lambda: self.on_log)

    def _took_query(
        self, kind: str, query: Any, worker: Worker, handler: Callable[[], Callable[[bytes], Answered] | None]
    ) -> None:
        data = bounded(query.payload, self._limit) if query.payload is not None else b""
        self._count.received(kind, 0 if query.payload is None else len(query.payload))

        def answer() -> None:
            late = False
            try:
                call = handler()
                if call is not None and not self._closed.is_set():
                    late = self._reply(kind, query, call, data)
            finally:
                if not late:
                    query.drop()

        if not worker.put(answer, size=len(data)):
            self._failed(kind, "too many wait")
            _refuse(query, BUSY)
            query.drop()

    def _reply(self, kind: str, query: Any, call: Callable[[bytes], Answered], data: bytes) -> bool:
        """Answer a question; whether that is done later."""
        try:
            result = call(data)
            if callable(result):
                result(lambda made: self._reply_late(kind, query, made))
                return True
        except Exception:
            self._failed(kind)
            result, hint = None, BROKEN  # what went wrong is nobody's business
        else:
            hint = REFUSED
        self._send(kind, query, result, hint)
        return False

    def _reply_late(self, kind: str, query: Any, result: bytes | None) -> None:
        try:
            if not self._closed.is_set():
                self._send(kind, query, result, BROKEN)
        finally:
            query.drop()

    def _send(self, kind: str, query: Any, result: bytes | None, hint: bytes) -> None:
        if result is None:
            _refuse(query, hint)
            return
        self._count.sent(kind, len(result))  # before the other has it: who compares both ends must not find less
        with suppress(zenoh.ZError):  # the asker has gone, or this node is closing
            query.reply(f"{self._root}/{kind}/{self.node}", result, express=True)

    def _guard(self, kind: str, handler: Callable[..., None] | None, *arguments: Any) -> None:
        if handler is None or self._closed.is_set():
            return
        try:
            handler(*arguments)
        except Exception:
            self._failed(kind)

    def _failed(self, kind: str, why: str = "") -> None:
        with self._lock:
            self.failures[kind] += 1
            count = self.failures[kind]
        if why and count & (count - 1):
            return  # of many, ever fewer are said
        if why:
            log.warning("node %s: %s message dropped: %s", self.node, kind, why)
        else:
            log.exception("node %s: the handler of %s failed", self.node, kind)

    def _direct(self, callback: Callable[[Any], None]) -> Any:
        """Call in Zenoh's receiving thread, for what only puts something in a queue. (For posts, a thread of Python
        that waits for Zenoh is the quicker way: entering Python from a foreign thread costs more than waking one up.)
        Zenoh would say what it raises on the terminal at best."""

        generation = self._generation

        def call(what: Any) -> None:
            try:
                if generation == self._generation:
                    callback(what)
            except Exception as error:
                self._crashes.note(f"{self.node}: {callback.__name__}", error)

        return zenoh.handlers.Callback(call, indirect=False)


def _refuse(query: Any, hint: bytes) -> None:
    with suppress(zenoh.ZError):  # the asker has gone, or this node is closing
        query.reply_err(FAILED + hint)
