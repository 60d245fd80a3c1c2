"""Pages the logs of a federation's nodes, from any process, without being a node.

    with LogClient("tcp/127.0.0.1:7447") as client:
        for span in client.sources("ie.tcd.sighting"):
            loud = Interest("level > 0.9", client.type("ie.tcd.sighting"))
            for batch in client.read("ie.tcd.sighting", span.node, span.source, interest=loud): ...

Interests run at the nodes. A client opens in milliseconds and nobody is told of it: it asks the nodes that it connects
to, which pass questions on to others. What it asks each of them, and is answered, only that one and the client can
read. It has a session of Zenoh for each place that it connects to: one session would take the first that answers, and
nodes that are not connected with that one would not be read.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Any

import zenoh

from headwater.errors import (
    ChannelError,
    ClosedError,
    ConfigError,
    ConfigProblem,
    FederationError,
    FrameError,
    HeadwaterError,
    SecurityError,
    Unreachable,
)
from headwater.federation.endpoints import Locator
from headwater.federation.fabric import settings as wiring
from headwater.federation.fabric.answers import Answers
from headwater.federation.fabric.settings import plain
from headwater.federation.logs.union import Union
from headwater.federation.network import Network, endpoints
from headwater.federation.security.envelope import Opened, Sealer, Verifier, question_name
from headwater.federation.security.rules import Principal
from headwater.federation.security.session import Exchange, is_box
from headwater.federation.security.settings import Security
from headwater.federation.security.tls import zenoh_settings
from headwater.federation.security.trust import Stamp, stamp
from headwater.federation.wire import log_requests as log_messages
from headwater.federation.wire import requests as messages
from headwater.federation.wire.arrow_streams import Bounds, read_stream
from headwater.federation.wire.log_requests import ChannelLogged, Head, Listing, Logged, Question, Read
from headwater.federation.wire.requests import Card, pack, pack_params
from headwater.interest import Interest, Limits
from headwater.late import pa
from headwater.store.log.log_reader import Several, spans_of
from headwater.store.log.reader import Span
from headwater.types import EventType

LISTING_SECONDS = 10.0  # in which nodes say what they have
SIGNS_SECONDS = 2.0  # to look who is there, when somebody has not answered
ANSWER_SECONDS = 30.0  # for a page; a node takes half a second, and others may be waiting before
log = logging.getLogger("headwater.federation")
NAME = "reader"  # of a client that has no certificate


@dataclass(slots=True)
class ReadCounts:
    """What came: pages, rows and bytes of events; and how many events the nodes evaluated for that."""

    pages: int = 0
    evaluated: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, head: Head, size: int) -> None:
        self.pages += 1
        self.evaluated += head.evaluated
        self.rows += head.rows
        self.bytes += size


class LogClient:
    """The logs of the nodes of one federation. Threads may share it.

    A process that was forked from one that had a client open cannot have any: Zenoh's threads do not live on in it. One
    that is forked before, as Spark's workers are, or spawned, can.

    `connect` is where a node of the federation listens, or several such places: all of them are asked, with the nodes
    that they are connected with, and `Unreachable` names one where nobody answers. `security` as for a node. `network`
    has all of it as one value. `compress`: "lz4" or "zstd", for a slow network.
    """

    def __init__(
        self,
        connect: str | int | Sequence[str] | None = None,
        *,
        federation: str | None = None,
        security: Security | Mapping[str, Any] | str | None = None,
        network: Network | Mapping[str, Any] | None = None,
        compress: str = "",
        timeout: float = ANSWER_SECONDS,
    ) -> None:
        secure = None if security is None else Security.of(security)
        places = endpoints(connect) or None
        self.network = Network.of(network, connect=places, federation=federation, security=secure)
        self.security = self.network.security
        if not self.network.connect:
            hint = "where a node of the federation listens, such as tcp/127.0.0.1:7447"
            raise ConfigError([ConfigProblem("LogClient: connect", hint, "nothing")])
        if compress not in ("", "lz4", "zstd"):
            raise ConfigError([ConfigProblem("LogClient: compress", "nothing, lz4 or zstd", repr(compress))])
        self._compress, self._timeout = compress, timeout
        self._loopback = self.security.check_endpoints(self.network.connect_to, place="LogClient")
        self._lock = threading.Lock()
        self._sessions: tuple[Any, ...] = ()  # one for each place
        self._pid = os.getpid()
        self._closed = False
        self._counts = ReadCounts()
        self._unions: dict[str, Union] = {}
        self._places: dict[tuple[str, str], str] = {}  # channel and node as the log has it -> id of the node
        self._keys: dict[
            str, tuple[bytes, int]
        ] = {}  # id of a node -> the key to write to it with, and its incarnation
        self._ways: dict[str, int] = {}  # id of a node -> the session by which it is reached
        with self._lock:
            self._open()

    # ── opening and closing ──

    def _open(self) -> None:
        """Sessions of this process, and a key of its own; the lock is held."""
        _check_fork()
        security, federation = self.security, self.network.federation
        self._stamps = self._stamped()
        self._identity = security.identity(None if security.certificate is not None else NAME)
        self.id = self._identity.id
        self._incarnation = time.time_ns()
        self._exchange = Exchange()
        self._sealer = Sealer(self._identity, federation, self._incarnation, security)
        self._verifier = Verifier(
            security, federation, loopback=self._loopback, me=self.id, run=self._incarnation, runs=True
        )
        opened: list[Any] = []
        try:
            for place in self.network.connect_to:
                opened.append(self._open_at(place))
        except BaseException:
            for session in opened:
                _end(session)
            raise
        self._sessions, self._pid = tuple(opened), os.getpid()

    def _open_at(self, place: Locator) -> Any:
        wired = wiring.check(
            self.network.federation, self.id, listen=(), connect=(place,), scout=False, mode="client",
            lease=self.network.lease, settings=zenoh_settings(self.security),
        )  # fmt: skip
        try:
            config = zenoh.Config.from_json5(json.dumps(wiring.session_config(wired, ())))
        except (zenoh.ZError, TypeError, ValueError) as error:
            raise ConfigError([ConfigProblem("settings", "settings that Zenoh knows", plain(error))]) from error
        try:
            return zenoh.open(config)
        except zenoh.ZError as error:
            raise Unreachable(
                f"no node of federation {self.network.federation!r} answers at {place}, or it does not let this client "
                f"in: {plain(error)}"
            ) from error

    def _live(self) -> tuple[Any, ...]:
        """The sessions, opened anew where they have to be."""
        with self._lock:
            if self._closed:
                raise ClosedError("the log client is closed")
            if self._sessions and self._pid != os.getpid():
                _check_fork()
            if self._sessions and self._stamps != self._stamped():
                self._renew()
            if not self._sessions:
                self._open()
            return self._sessions

    def _stamped(self) -> tuple[Stamp, ...]:
        security = self.security
        return tuple(stamp(each) for each in (security.certificate, security.key, security.authority))

    def _renew(self) -> None:
        """Its files were replaced: open anew, if they are right. The lock is held."""
        self._stamps = self._stamped()
        try:
            self.security.identity()
        except ConfigError as error:
            log.error("log client %s: what was good last goes on: %s", self.id, error)
            return
        sessions, self._sessions = self._sessions, ()
        for session in sessions:
            _end(session)

    def _mend(self) -> str:
        """If a connection is lost, the next question opens all anew; the places to which it is lost, as text."""
        with self._lock:
            sessions, places = self._sessions, self.network.connect_to
            if self._pid != os.getpid():
                return ""
            lost = [place for place, each in zip(places, sessions, strict=False) if not each.info.transports()]
            if not sessions or not lost:
                return "" if sessions else ", ".join(map(str, places))
            self._sessions = ()
        for session in sessions:
            _end(session)
        return ", ".join(map(str, lost))

    def close(self) -> None:
        """May be called again."""
        with self._lock:
            self._closed = True
            sessions, self._sessions = self._sessions, ()
            if self._pid != os.getpid():
                _ABANDONED.extend(sessions)  # the parent's: ending them here would wait for threads that are there
                sessions = ()
        for session in sessions:
            _end(session)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __enter__(self) -> LogClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @classmethod
    def shared(cls, connect: str | int | Sequence[str] | None = None, **settings: Any) -> LogClient:
        """The client of this process with these settings: opened when first asked for, open until the process ends,
        and opened anew where its connection broke."""
        wanted = endpoints(connect), settings
        with _SHARING:
            for given, client in _SHARED:
                if given == wanted and not client.closed:
                    return client
            made = cls(connect, **settings)
            _SHARED[:] = [each for each in _SHARED if not each[1].closed]
            _SHARED.append((wanted, made))
            return made

    @property
    def counts(self) -> ReadCounts:
        """What has come so far, in all; a copy."""
        with self._lock:
            return ReadCounts(self._counts.pages, self._counts.evaluated, self._counts.rows, self._counts.bytes)

    # ── what there is ──

    def channels(self) -> list[str]:
        """The names of channels that nodes have logs of, as far as this client may subscribe to them."""
        return sorted({name for _, listing in self._listings("") for name in listing.channels})

    def sources(self, channel: str) -> list[Span]:
        """What there is of each source, at each node that is there now."""
        return [
            Span(node, each.source, each.first, each.last, each.events)
            for node, found in sorted(self._parts(channel).items())
            for each in found.sources
        ]

    def logs(self, channel: str) -> dict[str, str]:
        """By node, the id of its log of the channel: another one is another log, with other sequence numbers."""
        return {node: found.id for node, found in self._parts(channel).items()}

    def type(self, channel: str) -> EventType | None:
        """The type of the channel's events, of all nodes together; None for a channel of bytes."""
        return self._union(channel).type

    def schema(self, channel: str) -> pa.Schema:
        """The log's own columns and the fields, of all nodes together."""
        return self._union(channel).schema

    def _union(self, channel: str) -> Union:
        if channel not in self._unions:
            self._parts(channel)
        return self._unions[channel]

    def _parts(self, channel: str) -> dict[str, ChannelLogged]:
        """What each node has of a channel's log, asked anew; an error if two nodes of one name have some, since their
        sources could not be told apart."""
        found: dict[str, ChannelLogged] = {}
        for opened, listing in self._listings(channel):
            part = listing.channel
            if part is None:
                continue
            if listing.node != opened.sender.rpartition(".")[0]:
                raise SecurityError(f"{opened.sender} speaks of {listing.node}", "sender", opened.sender)
            if listing.node in found:
                raise FederationError(
                    f"channel {channel}: expected one node {listing.node!r} with a log, found two: their sources "
                    "cannot be told apart; give one of them another name"
                )
            found[listing.node] = part
            self._places[channel, listing.node] = opened.sender
        if not found:
            raise ChannelError(
                f"channel {channel!r}: expected one that a node has a log of, found none in federation "
                f"{self.network.federation!r}; there are {', '.join(self.channels()) or 'none at all'}"
            )
        self._unions[channel] = Union.of(channel, found)
        return found

    def _listings(self, channel: str) -> list[tuple[Opened, Listing]]:
        """What each node says that it has, of those that may advertise the channel here, or any."""
        under_way = []
        for node in self._advertisers(channel):
            question = Logged(token_bytes(16), channel)
            under_way.append((node, question, self._ask(node, question, LISTING_SECONDS)))
        found = []
        for node, question, answers in under_way:
            answered = self._answered(node, question, answers, LISTING_SECONDS)
            if answered is None:
                self._mend()
                why = f"; perhaps {answers.hint}" if answers.hint else ""
                raise Unreachable(f"node {node} has not said in {LISTING_SECONDS:g} s what it has logged{why}")
            opened, head, data = answered
            if head.error:
                raise FederationError(f"node {opened.sender}: {head.error}")
            found.append((opened, log_messages.listing(data)))
        return found

    def _advertisers(self, channel: str) -> list[str]:
        """The nodes to ask. One that may not advertise what is wanted is not asked, whatever it would say: else it
        could keep all others from being read."""
        found, refused = [], None
        for node, principal in self._introduce("*").items():
            if not channel:
                if not self.security.decides or self.security.deals_with(principal, "advertise"):
                    found.append(node)
                continue
            decision = self.security.decide(principal, "advertise", channel)
            if decision:
                found.append(node)
            else:
                refused = SecurityError(f"{node} may not advertise {channel}: {decision.why}", "rule", node)
        if refused is not None and not found:
            raise refused
        return found

    def _silent(self, way: int, answers: Answers, answered: Collection[str]) -> Unreachable:
        """Somebody takes questions there and does not answer: who, as far as that can be known."""
        place = str(self.network.connect_to[way])
        known = self._alive(way)
        if absent := sorted(known - set(answered)):
            who = f"nothing came from {', '.join(absent)} (of which those without a log need not answer)"
        else:
            nodes = ", ".join(sorted(answered)) or "none"
            who = f"the nodes that are known of have ({nodes}), so it is somebody else that takes questions about logs"
        why = f"; perhaps {answers.hint}" if answers.hint else ""
        return Unreachable(
            f"not all nodes of federation {self.network.federation!r} that are reached at {place} have answered in "
            f"{LISTING_SECONDS:g} s: {who}{why}"
        )

    def _alive(self, way: int) -> set[str]:
        """The ids of the nodes that give signs of life. Anyone can: this is for messages only."""
        root = f"headwater/{self.network.federation}/alive/"
        try:
            replies = list(self._live()[way].liveliness().get(f"{root}*/*", timeout=SIGNS_SECONDS))
        except (zenoh.ZError, HeadwaterError):
            return set()
        keys = (str(reply.ok.key_expr) for reply in replies if reply.ok is not None)
        return {key.removeprefix(root).partition("/")[0] for key in keys}

    def _introduce(self, node: str) -> dict[str, Principal]:
        """Tell a node, or all, who asks; those that have told who they are, by id."""
        self._mend()  # one that was lost long ago is not missed by Zenoh: it would answer for nobody
        ways = range(len(self._live())) if node == "*" or node not in self._ways else (self._ways[node],)
        card = pack(Card(self.id, self._incarnation, 0, self._exchange.public))
        under_way = []
        for way in ways:  # sealed for each: what comes twice is taken for a copy, by a node that both lead to
            payload = self._sealer.seal(log_messages.CARD, card, to="" if node == "*" else node)
            under_way.append((way, question_name(payload), self._get(way, node, payload, LISTING_SECONDS)))
        found: dict[str, Principal] = {}
        refused: SecurityError | FrameError | None = None
        for way, name, answers in under_way:
            here, silent = set(), True
            for answer in answers.each(LISTING_SECONDS + 1.0):
                silent = False
                try:
                    opened, theirs = self._opened_card(answer, name)
                except (SecurityError, FrameError) as error:
                    refused = error  # anyone may answer; what is nobody's card is no reason to give up the others
                    continue
                here.add(opened.sender)
                if opened.sender not in found:
                    self._keys[opened.sender], self._ways[opened.sender] = (theirs.exchange, theirs.incarnation), way
                    found[opened.sender] = opened.principal
            if answers.late:
                unreachable = self._silent(way, answers, here)
                self._mend()
                raise unreachable
            if node == "*" and silent and not self._alive(way):  # nodes without a log are alive
                raise Unreachable(
                    f"no node of federation {self.network.federation!r} is reached at "
                    f"{self.network.connect_to[way]}, though something answers there: is that another federation's?"
                )
        if lost := self._mend():  # while it was asked: who is there has not said it
            raise Unreachable(f"the connection to federation {self.network.federation!r} at {lost} is lost")
        if refused is not None and not found:
            raise refused
        return found

    def _opened_card(self, answer: bytes, name: bytes) -> tuple[Opened, Card]:
        if not is_box(answer):
            opened = self._verifier.open(log_messages.split(answer)[0], expected_kind=log_messages.REPLY, answers=name)
            error = log_messages.head(opened.body).error
            raise SecurityError(f"node {opened.sender} refuses: {error}", "refused", opened.sender)
        maker, sealed = self._exchange.unbox(answer)
        opened = self._verifier.open(sealed, expected_kind=log_messages.CARD, answers=name)
        card = messages.card(opened.body)
        if (card.node, card.incarnation, card.exchange) != (opened.sender, opened.incarnation, maker):
            raise SecurityError(f"{opened.sender} speaks of {card.node}", "sender", opened.sender)
        return opened, card

    # ── reading ──

    def read(
        self,
        channel: str,
        node: str | None = None,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
        *,
        interest: Interest | None = None,
        columns: Sequence[str] | None = None,
        max_bytes: int = log_messages.PAGE_BYTES,
    ) -> Pages | Several:
        """The events of a source with `after` < sequence number <= `upto` (default: all there are now), in order.

        With an interest, which runs there, those that pass; of a transformation, what it makes of them. Batches have
        the log's own columns and the fields, or those of both that are named in `columns`. Without a source, or a node,
        the events of all of them that are there, one source after another.

        `Unreachable`: the node has gone; what was read so far is good, and reading can go on after it once the node is
        back. `FederationError`: the node refuses."""
        if node is None or source is None:
            read = partial(self.read, channel, after=after, interest=interest, columns=columns, max_bytes=max_bytes)
            spans = spans_of(self, channel, node, source)
            # Of each no more than it has: a source that has moved has what follows elsewhere.
            ends = [each.last if upto is None else min(upto, each.last) for each in spans]
            each_to = zip(spans, ends, strict=True)
            return Several([partial(read, node=each.node, source=each.source, upto=end) for each, end in each_to])
        union = self._union(channel)
        schema = union.wanted(None if interest is None else interest.output, columns)
        program = params = fuel = None
        if interest is not None:
            program = interest.dumps(with_text=False)
            params = pack_params(interest.params) if interest.params else None
            fuel = interest.limits.fuel if interest.limits.fuel != Limits().fuel else None
        asked = None if columns is None else list(columns)
        page = max(1, min(max_bytes, log_messages.PAGE_BYTES))
        first = Read(token_bytes(16), channel, source, after, upto, program, params, fuel, asked, page, self._compress)
        return Pages(self, node, first, schema, union, made=interest is not None and interest.output is not None)

    def _place(self, channel: str, node: str) -> str:
        """The id of the node that has a log."""
        found = self._places.get((channel, node))
        if found is None:
            with suppress(ChannelError):
                self._parts(channel)
            found = self._places.get((channel, node))
        if found is None:
            raise Unreachable(f"node {node!r} with a log of {channel} is not in federation {self.network.federation!r}")
        return found

    def _start(self, node: str, question: Read) -> tuple[str, Answers]:
        place = self._place(question.channel, node)
        return place, self._ask(place, question, self._timeout)

    def _finish(self, node: str, place: str, question: Read, answers: Answers) -> tuple[Head, memoryview]:
        answered = self._answered(place, question, answers, self._timeout)
        if answered is None and answers.refused and place in self._introduce(place):  # it was started again
            answers = self._ask(place, question, self._timeout)
            answered = self._answered(place, question, answers, self._timeout)
        if answered is None:
            self._places.pop((question.channel, node), None)  # it may come back with another key, or elsewhere
            self._ways.pop(place, None)
            self._mend()
            why = f": perhaps {answers.hint}" if answers.hint else ""
            raise Unreachable(f"node {node} has gone, or did not answer in {self._timeout:g} s{why}")
        opened, head, data = answered
        if head.error:
            raise FederationError(f"node {node}: {head.error}")
        if not question.after <= head.next <= head.upto or (question.upto is not None and head.upto != question.upto):
            raise SecurityError(f"node {node} has answered another question", "malformed", opened.sender)
        with self._lock:
            self._counts.add(head, len(data))
        return head, data

    # ── questions and answers ──

    def _ask(self, node: str, question: Question, timeout: float) -> Answers:
        self._live()  # before sealing: they may be new, with a key of their own
        known = self._keys.get(node)
        if known is None:
            raise Unreachable(f"node {node} has not said who it is")
        exchange, incarnation = known
        sealed = self._sealer.seal(log_messages.KIND, pack(question), to=node, run=incarnation)
        return self._get(self._ways.get(node, 0), node, self._exchange.box(exchange, sealed), timeout)

    def _get(self, way: int, node: str, payload: bytes, timeout: float) -> Answers:
        answers = Answers()
        try:
            self._live()[way].get(
                f"headwater/{self.network.federation}/log/{node}",
                zenoh.handlers.Callback(answers.took, answers.ended, indirect=False),
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=timeout,
                congestion_control=zenoh.CongestionControl.BLOCK,
                express=True,
                payload=payload,
            )
        except zenoh.ZError as error:
            self._mend()
            if self._closed:  # by another thread, meanwhile
                raise ClosedError("the log client is closed") from error
            raise Unreachable(f"cannot ask: {plain(error)}") from error
        return answers

    def _answered(
        self, node: str, question: Question, answers: Answers, timeout: float
    ) -> tuple[Opened, Head, memoryview] | None:
        """The first answer that is the node's own, to this question; None if there is none. What others answer in its
        place is an error only if nothing else comes."""
        refused: SecurityError | FrameError | None = None
        for answer in answers.each(timeout + 1.0):
            try:
                return self._opened(answer, question, node)
            except (SecurityError, FrameError) as error:
                refused = error
        if refused is not None:
            raise refused
        return None

    def _opened(self, answer: bytes, question: Question, node: str) -> tuple[Opened, Head, memoryview]:
        maker, inner = self._exchange.unbox(answer)
        if maker != self._keys.get(node, (b"", 0))[0]:
            raise SecurityError(f"expected an answer of {node}, found one of somebody else", "key")
        envelope, data = log_messages.split(inner)
        opened = self._verifier.open(envelope, expected_kind=log_messages.REPLY)
        head = log_messages.head(opened.body)
        if opened.sender != node:
            raise SecurityError(f"expected an answer of {node}, found one of {opened.sender}", "key", opened.sender)
        if head.error and not head.nonce:  # the question was not even opened
            raise SecurityError(f"node {opened.sender} refuses: {head.error}", "refused", opened.sender)
        if head.nonce != question.nonce or head.digest != log_messages.digest(data):
            raise SecurityError(f"refused an answer of {opened.sender}: it is another's, or was changed", "forged")
        return opened, head, data


class Pages(Iterator[Any]):
    """Batches of one range, a page at a time; the next page is on its way while the caller works on this one.

    `schema` is that of every batch, `counts` what has come so far, `position` the sequence number up to which
    everything has been handed out. `removed` has first and last number of what was asked for and lay before the first
    event that the log had when that page was read: retention has removed it, if it was ever there."""

    def __init__(
        self, client: LogClient, node: str, first: Read, schema: pa.Schema, union: Union, *, made: bool
    ) -> None:
        self.schema, self.counts, self.position = schema, ReadCounts(), first.after
        self.removed: list[tuple[int, int]] = []
        self._union, self._made = union, made
        self._client, self._node, self._question = client, node, first
        self._under_way: tuple[str, Answers] | None = None
        self._over = first.upto is not None and first.after >= first.upto
        if not self._over:
            self._under_way = client._start(node, first)

    def __iter__(self) -> Pages:
        return self

    def __next__(self) -> pa.RecordBatch:
        """The next rows. While they are worked on, the question for the following page is under way."""
        while not self._over:
            if self._under_way is None:  # it failed before, and is tried again
                self._under_way = self._client._start(self._node, self._question)
            under_way, self._under_way = self._under_way, None
            head, data = self._client._finish(self._node, under_way[0], self._question, under_way[1])
            self.counts.add(head, len(data))
            if head.first > self._question.after + 1:
                self.removed.append((self._question.after + 1, min(head.first - 1, head.upto)))
            if head.next >= head.upto:
                self._over = True
            else:
                question = self._question
                self._question = Read(
                    token_bytes(16), question.channel, question.source, head.next, head.upto, question.program,
                    question.params, question.fuel, question.columns, question.max_bytes, question.compress,
                )  # fmt: skip
                self._under_way = self._client._start(self._node, self._question)
            self.position = head.next
            if head.rows:
                return self._batch(data, head.rows)
        raise StopIteration

    def _batch(self, data: memoryview, rows: int) -> pa.RecordBatch:
        """The events of a page, in the schema that was promised."""
        try:
            bounds = Bounds(log_messages.ANSWER_BYTES, log_messages.PAGE_ROWS, compressed=bool(self._question.compress))
            table = pa.Table.from_batches(read_stream(data, bounds))
            if table.num_rows != rows:
                raise FrameError(f"expected {rows:,} rows, found {table.num_rows:,}")
            return self._union.fitted(table, self.schema, self._node, self._question.source, made=self._made)
        except (pa.ArrowException, OSError, ValueError, HeadwaterError) as error:
            raise FederationError(f"node {self._node}: its events cannot be read: {error}") from error


# ── of the process ──

_SHARED: list[tuple[Any, LogClient]] = []
_SHARING = threading.Lock()
_ABANDONED: list[Any] = []  # sessions of a parent process
_USED: list[int] = []  # the process that has opened a session


def _check_fork() -> None:
    """Zenoh would wait for ever for threads that only the parent has."""
    if not _USED:
        _USED.append(os.getpid())
    elif _USED[0] != os.getpid():
        raise FederationError(
            "expected a process of its own for a log client, found one that was forked from a process with an open "
            "one; open none before the fork, or start processes with 'spawn'"
        )


def _end(session: Any) -> None:
    with suppress(zenoh.ZError):
        session.close()


def _forked() -> None:
    global _SHARING
    _SHARING = threading.Lock()
    _ABANDONED.extend(session for _, client in _SHARED for session in client._sessions)
    _SHARED.clear()


@atexit.register
def _close_shared() -> None:
    for _, client in _SHARED:
        client.close()


os.register_at_fork(after_in_child=_forked)

__all__ = ["LogClient", "Pages", "ReadCounts"]
