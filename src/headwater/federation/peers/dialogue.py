"""Questions that nodes put to each other, and their answers: each for one node only, and each answer for one question.

A question is signed, and travels in a box that only the run of the node can open that it is put to. The answer is
signed too, names the question, and is in a box for the one that asked. What comes back otherwise, an error of Zenoh's
or the answer to another question, may mean that a node cannot be reached, and nothing else.

To one of whom no key is known this node introduces itself, with its card, in the clear; the answer is in a box already,
and has the key in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.errors import FederationError, FrameError, SecurityError, Unreachable
from headwater.federation.fabric.inbox import Answered as Sent
from headwater.federation.peers.request_registry import Postponed, RequestRegistry, UnknownRequest
from headwater.federation.security.envelope import Opened, question_name
from headwater.federation.security.session import is_box
from headwater.federation.wire import requests as messages
from headwater.federation.wire.requests import Accepted, Card, Reply, Request, State, pack

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.peers.description import Description
    from headwater.federation.peers.peer import Peer

log = logging.getLogger("headwater.federation")
ANSWER_SECONDS = 10.0  # for which an answer is waited for
QUESTION_KIND, REPLY_KIND, CARD_KIND = "ask", "reply", "card"


@dataclass(frozen=True, slots=True)
class Question:
    """What was put to a node (or to all), and what its answer must have."""

    payload: bytes
    node: str = ""  # nothing: any
    exchange: bytes = b""  # the key of who must answer; nothing: it is in the answer
    newest: int = 0  # the version of the node's state that was known of when it was asked
    expects: Any = State  # the type of its answer

    @property
    def name(self) -> bytes:
        return question_name(self.payload)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that is the node's own, to this question."""

    opened: Opened
    reply: Reply
    question: Question
    exchange: bytes  # the key with which its box was made; nothing: it was in the clear


class Dialogue:
    """Of one node. Where what others say leads to is set by who makes it: `on_request` answers what another node asks,
    having proven who it is; `on_card` is told that one says which run of it this is, and how to write to it; `on_sign`,
    that one is said to be there, which proves nothing."""

    requests: RequestRegistry  # those that are answered here
    on_request: Callable[[Opened, Request], Reply | Postponed]
    on_card: Callable[[Opened, Card], None]
    on_sign: Callable[[str, int], None]

    def __init__(self, context: Context, fabric: Fabric, description: Description) -> None:
        self._context, self._fabric, self._description = context, fabric, description
        self._began = time.time_ns()

    # ── asking ──

    def ask(
        self,
        peer: Peer,
        request: Request,
        timeout: float = ANSWER_SECONDS,
        sent: Callable[[], None] | None = None,
    ) -> Any:
        """A question to a peer, and its answer; Unreachable if there is none that is its own, or not yet. `sent` is
        called when the question is on its way."""
        question = self.question(peer, request)
        answered = self._fabric.ask(peer.id, question.payload, timeout, partial(self.accept, question), sent)
        answer = answered.reply
        if isinstance(answer, Accepted) and answer.error:
            raise (Unreachable if answer.later else FederationError)(f"node {peer.name}: {answer.error}")
        return answer

    def question(self, peer: Peer, request: Request) -> Question:
        with peer.lock:
            exchange, incarnation, newest = peer.exchange, peer.incarnation, peer.newest
        if exchange is None:
            raise Unreachable(f"node {peer.name} has not introduced itself yet")
        sealed = self._context.keyring.seal(QUESTION_KIND, pack(request), to=peer.id, run=incarnation)
        return Question(self._context.keyring.exchange.box(exchange, sealed), peer.id, exchange, newest, request.answer)

    def introduction(self, node: str = "", incarnation: int = 0) -> Question:
        """This node's card, for one node or for all; it is answered with what that one has."""
        card = self._description.card()
        return Question(self._context.keyring.seal(CARD_KIND, pack(card), to=node, run=incarnation), node)

    def accept(self, question: Question, data: bytes) -> Answered:
        """An answer, if it is one to this question by who was asked; SecurityError or FrameError if it is not."""
        opened = None
        try:
            exchange, inner = self._unboxed(question, data)
            opened = self._context.keyring.open(inner, REPLY_KIND, answers=question.name)
            if question.node and opened.sender != question.node:
                found = f"expected an answer of {question.node}, found one of {opened.sender}"
                raise SecurityError(found, "key", opened.sender)
            reply = messages.reply(opened.body, question.expects)
            if not exchange and not isinstance(reply, Accepted):
                raise SecurityError(f"{opened.sender} answers in the clear", "kind", opened.sender)
            if isinstance(reply, State) and reply.exchange != exchange:
                raise SecurityError(f"{opened.sender} speaks of another key than its own", "key", opened.sender)
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
            raise
        return Answered(opened, reply, question, exchange)

    def _unboxed(self, question: Question, data: bytes) -> tuple[bytes, bytes]:
        if not is_box(data) and not question.exchange:
            return b"", data  # who cannot judge a card has no key to answer with
        exchange, inner = self._context.keyring.exchange.unbox(data)
        if question.exchange and exchange != question.exchange:
            raise SecurityError(f"expected an answer of {question.node}, found one of somebody else", "key")
        return exchange, inner

    # ── answering ──

    def on_ask(self, payload: bytes) -> Sent:
        """The answer to a question; None where it is not known who asks, or for whom. It may come later."""
        if not is_box(payload):
            return self.on_introduction(payload)
        opened = None
        try:
            exchange, inner = self._context.keyring.exchange.unbox(payload)
        except SecurityError as error:
            self._context.offences.blame(None, error)
            return None
        try:
            opened = self._context.keyring.open(inner, QUESTION_KIND)
            request = self.requests.decode(opened.body)
        except UnknownRequest as error:
            return self._boxed(exchange, payload, opened, Accepted(error=f"refused: {error}"))
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
            return self._boxed(exchange, payload, opened, Accepted(error=f"refused: {error}"))
        answer = self._answer(opened, request)
        if isinstance(answer, Postponed):
            box = partial(self._boxed, exchange, payload, opened)
            return partial(self._answer_later, answer, box)
        return self._boxed(exchange, payload, opened, answer)

    def _answer_later(
        self, answer: Postponed, box: Callable[[Reply], bytes], send: Callable[[bytes | None], None]
    ) -> None:
        try:
            answer.begin(lambda reply: send(box(reply)))
        except Exception as error:
            log.exception("node %s: a question could not be answered", self._context.name)
            send(box(Accepted(error=f"it could not answer: {type(error).__name__}: {error}")))

    def _answer(self, opened: Opened, request: Request) -> Reply | Postponed:
        try:
            return self.on_request(opened, request)
        except Exception as error:  # who asks is told, and nobody else
            log.exception("node %s: a question of %s could not be answered", self._context.name, opened.sender)
            return Accepted(error=f"it could not answer: {type(error).__name__}: {error}")

    def _boxed(self, exchange: bytes, payload: bytes, opened: Opened | None, reply: Reply) -> bytes:
        to, run = ("", 0) if opened is None else (opened.sender, opened.incarnation)
        seal = partial(self._context.keyring.seal, REPLY_KIND, to=to, run=run, answers=question_name(payload))
        try:
            sealed = seal(pack(reply))
        except FederationError as error:  # it is too large
            log.error("node %s: the answer to a question of %s: %s", self._context.name, to, error)
            sealed = seal(pack(Accepted(error=f"it could not answer: {error}")))
        return self._context.keyring.exchange.box(exchange, sealed)

    def on_introduction(self, payload: bytes) -> bytes | None:
        """Another node says who it is, and is told what it may know; why it is not, in the clear, if it is not.

        What was said to all before this run of the node began may have been captured then: it counts as a sign of life,
        and whose it is said to be is asked. (An honest one comes here only if the two clocks differ.)"""
        opened = None
        try:
            opened = self._context.keyring.open(payload, CARD_KIND)
            card = messages.card(opened.body)
            if not opened.to and opened.time < self._began:
                self.on_sign(opened.sender, opened.incarnation)
                return None
            state = self._description.state(opened.principal)
            reply = self._boxed(card.exchange, payload, opened, state)  # first: the key may be none
            if opened.to or not self._fabric.named:  # who says so to all wants nothing of this one
                self.on_card(opened, card)
            return reply
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
            body = pack(Accepted(error=f"refused: {error}"))
            return self._context.keyring.seal(REPLY_KIND, body, answers=question_name(payload))
