"""Questions to one node and to all, over Zenoh's queries."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any

import zenoh

from headwater.errors import Unreachable
from headwater.federation.fabric.counters import Counters, bounded

# What comes back instead of an answer is nobody's word, for anyone could have said it: it is not quoted, and believed
# for nothing but that no answer is to be expected.
FAILED = b"\x00headwater failed: "
REFUSED, BUSY, BROKEN, TOO_LARGE = b"refused", b"busy", b"broken", b"too large"
HINTS = {
    REFUSED: "it cannot open the question, having been started again perhaps",
    BUSY: "it has too many questions waiting",
    BROKEN: "it failed; its own log says why",
    TOO_LARGE: "the question is too large",
}
MOST_REPLIES = 256  # to one question that are looked at: who was asked answers once, but others may, too
STRAGGLER_SECONDS = 0.25  # that a roll call waits for nodes it does not know once those it knows have answered

MOST_ANSWERS = 65_536  # that wait to be heard

Answer = Callable[[Any], None]  # with the answer, or a FederationError


class Questions:
    """What a node asks; `nodes` are those that are there now. What Zenoh raises is the caller's to translate."""

    def __init__(self, federation: str, nodes: Mapping[str, int], count: Counters, limit: int) -> None:
        """`limit`: bytes of an answer; of more no more are looked at."""
        self._limit = limit
        self._federation = federation
        self._nodes = nodes
        self._count = count

    def ask(
        self,
        session: Any,
        node: str,
        payload: bytes,
        timeout: float,
        took: Callable[[bytes], None],
        ended: Callable[[Unreachable], None],
    ) -> None:
        """Ask one node: `took` is called with each answer, whoever's that is, and once, when no more will come, `ended`
        with why there is none; both from a thread of Zenoh or from this one, and they must not wait."""
        started = monotonic()
        replies, hint = 0, ""

        def replied(reply: zenoh.Reply) -> None:
            nonlocal replies, hint
            replies += 1
            if replies > MOST_REPLIES:
                return
            if reply.ok is not None:
                data = bounded(reply.ok.payload, self._limit)
                self._count.received("ask", len(reply.ok.payload))
                took(data)
            elif reply.err is not None:
                hint = unproven_hint(bytes(reply.err.payload)) or hint

        def over() -> None:
            spent = monotonic() - started
            if node not in self._nodes:
                ended(Unreachable(f"there is no node {node!r} in the federation {self._federation!r} now"))
            elif hint:
                ended(Unreachable(f"node {node} has not answered; perhaps {hint}"))
            elif spent < timeout * 0.9:
                ended(Unreachable(f"node {node} has gone or did not want to answer: it ended after {spent:.3f} s"))
            else:
                ended(Unreachable(f"node {node} did not answer within {round(timeout, 2):g} s"))

        self._count.sent("ask", len(payload))
        self._get(session, f"ask/{node}", payload, timeout, replied, over)

    def roll_call(self, session: Any, payload: bytes, timeout: float) -> list[bytes]:
        """Ask every other node; the answers."""
        return list(self.roll_answers(session, payload, timeout, self._nodes.keys, lambda answer: None))

    def roll_answers(
        self,
        session: Any,
        payload: bytes,
        timeout: float,
        expected: Callable[[], Iterable[str]],
        late: Callable[[bytes], None],
    ) -> Iterator[bytes]:
        """Ask every other node; the answers as they come, see `Collected`."""
        collected = Collected(late)

        def took(reply: zenoh.Reply) -> None:
            if reply.ok is not None:
                data = bounded(reply.ok.payload, self._limit)
                self._count.received("roll", len(reply.ok.payload))
                collected.add(str(reply.ok.key_expr).rpartition("/")[2], data)

        self._count.sent("roll", len(payload))
        self._get(session, "roll/*", payload, timeout, took, collected.end)
        return collected.each(expected, timeout, STRAGGLER_SECONDS)

    def _get(
        self,
        session: Any,
        key: str,
        payload: bytes,
        timeout: float,
        took: Callable[[zenoh.Reply], None],
        ended: Callable[[], None],
    ) -> None:
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


def unproven_hint(error: bytes) -> str:
    """What an error that somebody has sent instead of an answer may mean, in words of this node's own."""
    return HINTS.get(error.removeprefix(FAILED), "") if error.startswith(FAILED) else ""


class Collected:
    """Answers of many nodes to one question, for one who waits for some of them; what comes later goes to `late`.

    Anyone may answer to a roll call, in any name and any number of times: so many wait to be heard, and no more."""

    def __init__(self, late: Callable[[bytes], None]) -> None:
        self._change = threading.Condition(threading.Lock())
        self._answers: deque[bytes] = deque()
        self._from: set[str] = set()
        self._late = late
        self._ended = self._over = False

    def add(self, node: str, answer: bytes) -> None:
        with self._change:
            if not self._over:
                if len(self._answers) < MOST_ANSWERS:
                    self._answers.append(answer)
                    self._from.add(node)
                self._change.notify_all()
                return
        self._late(answer)

    def end(self) -> None:
        with self._change:
            self._ended = True
            self._change.notify_all()

    def each(self, expected: Callable[[], Iterable[str]], timeout: float, grace: float) -> Iterator[bytes]:
        """The answers as they come: to the end; or until `grace` seconds after the last of `expected`, or too late."""
        limit, waited = monotonic() + timeout, False
        while True:
            with self._change:
                while not self._answers and not self._ended:
                    now = monotonic()
                    if not waited and self._from.issuperset(expected()):
                        limit, waited = min(limit, now + grace), True
                    if now >= limit:
                        break
                    self._change.wait(limit - now)
                if not self._answers:
                    self._over = True
                    return
                answer = self._answers.popleft()
            yield answer
