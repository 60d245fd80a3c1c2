"""Questions to one node and to all, over Zenoh's queries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

import zenoh

from headwater.errors import FederationError, Unreachable
from headwater.federation.fabric_parts import Counters
from headwater.federation.fabric_settings import plain

FAILED = b"\x00headwater failed: "  # starts the answer of a node whose handler raised
GRACE = 0.25  # seconds that a roll call waits for nodes it does not know once those it knows have answered

Answer = Callable[[bytes | FederationError], None]


class Questions:
    """What a node asks; `nodes` are those that are there now."""

    def __init__(self, federation: str, nodes: Mapping[str, int], count: Counters) -> None:
        self._federation = federation
        self._nodes = nodes
        self._count = count

    def ask(self, session: Any, node: str, payload: bytes, timeout: float, answer: Answer) -> None:
        """Ask one node; `answer` is called once, from a thread of Zenoh or from this one, and must not wait."""
        started = monotonic()
        first = threading.Lock()  # taken by whoever answers

        def finish(result: bytes | FederationError) -> None:
            if first.acquire(blocking=False):
                answer(result)

        def took(reply: zenoh.Reply) -> None:
            if reply.ok is not None:
                data = bytes(reply.ok.payload)
                self._count.received("ask", len(data))
                finish(data)
            elif reply.err is not None:
                data = bytes(reply.err.payload)
                if data.startswith(FAILED):  # else Zenoh says that time is up, and ends
                    self._count.received("ask", len(data))
                    text = data[len(FAILED) :].decode(errors="replace")
                    finish(FederationError(f"node {node} could not answer: {text}"))

        def ended() -> None:
            spent = monotonic() - started
            if node not in self._nodes:
                finish(Unreachable(f"there is no node {node!r} in the federation {self._federation!r} now"))
            elif spent < timeout * 0.9:
                finish(Unreachable(f"node {node} has gone or did not want to answer: it ended after {spent:.3f} s"))
            else:
                finish(Unreachable(f"node {node} did not answer within {timeout} s"))

        self._count.sent("ask", len(payload))
        self._get(session, f"ask/{node}", payload, timeout, took, ended)

    def roll_call(self, session: Any, payload: bytes, timeout: float) -> list[bytes]:
        """Ask every other node; the answers."""
        collected = Collected()

        def took(reply: zenoh.Reply) -> None:
            if reply.ok is not None:
                data = bytes(reply.ok.payload)
                self._count.received("roll", len(data))
                collected.add(str(reply.ok.key_expr).rpartition("/")[2], data)

        self._count.sent("roll", len(payload))
        self._get(session, "roll/*", payload, timeout, took, collected.end)
        return collected.wait(self._nodes.keys, timeout, GRACE)

    def _get(
        self,
        session: Any,
        key: str,
        payload: bytes,
        timeout: float,
        took: Callable[[zenoh.Reply], None],
        ended: Callable[[], None],
    ) -> None:
        try:
            session.get(
                f"headwater/{self._federation}/{key}",
                zenoh.handlers.Callback(took, ended, indirect=False),
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=timeout,
                congestion_control=zenoh.CongestionControl.BLOCK,
                express=True,
                payload=payload,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        except zenoh.ZError as error:
            raise Unreachable(f"cannot ask: {plain(error)}") from error


class Collected:
    """Answers of many nodes to one question."""

    def __init__(self) -> None:
        self._change = threading.Condition(threading.Lock())
        self._answers: list[bytes] = []
        self._from: set[str] = set()
        self._ended = False

    def add(self, node: str, answer: bytes) -> None:
        with self._change:
            self._answers.append(answer)
            self._from.add(node)
            self._change.notify_all()

    def end(self) -> None:
        with self._change:
            self._ended = True
            self._change.notify_all()

    def wait(self, expected: Callable[[], Iterable[str]], timeout: float, grace: float) -> list[bytes]:
        """All answers at the end; or, `grace` seconds after the last of `expected`, those that are there."""
        limit = monotonic() + timeout
        with self._change:
            self._change.wait_for(lambda: self._ended or self._from.issuperset(tuple(expected())), timeout)
            if not self._ended:
                self._change.wait_for(lambda: self._ended, min(grace, max(0.0, limit - monotonic())))
            return list(self._answers)
