"""Everything Zenoh: who is there, questions and answers, news, and messages to one node.

A `Fabric` is one node's place in one federation. Keys, all below `headwater/<federation>/`:

    alive/<id>/<incarnation>   liveliness token of every node            -> on_join, on_leave
    roll/<id>                  queryable of every node; asked as roll/*  -> on_roll
    news                       put by anyone, everyone subscribes        -> on_news
    news/<id>                  the same, for those who do not hear all
    ask/<id>                   queryable of one node                     -> on_ask
    post/<id>                  subscriber of one node                    -> on_post
    log/<id>                   queryable of a node with a log            -> on_log

Whoever may connect to Zenoh can hear all of this, and answer to it. So nothing that is said here is for everybody but
signs of life, cards (on `roll`) and that there is news; and nothing that comes is believed here (see
`peers/dialogue.py`).

Threads. `on_post` runs in a thread of Zenoh's that has nothing else to do: one for all posts to this node, in the
order of each sender. It must not wait: once a few hundred posts are held up, nothing at all is received over those
connections, and a sender that cannot send for 0.55 leases gives its connection up. So `ask` and `roll_call` refuse to
be called there (their answer might never arrive). `on_join`, `on_leave`, `on_roll` and `on_news` run one after the
other in the order of arrival in one thread of the fabric, `on_ask` in another: they may ask. `on_log` runs in threads
of its own, two at a time: what reads much keeps nobody else waiting. What handlers raise is counted (`failures`) and
logged; an asker hears that there is no answer, and nothing more: what it would hear here, anyone could have said.

How soon a frozen or cut-off node is noticed: `lease` seconds at most, 0.45 of it if nothing is being posted to it. It
is the lease of the node that vanishes that counts: a node tells the others how long to wait. A killed process is
noticed at once (its connections close). Zenoh tells nobody that a node is back other than by `on_join`.

Two peers of one federation must be able to reach each other unless they are connected to different routers: neither
a peer nor a router passes on between its own peers. A node that others cannot reach is a "client" of a node (peer or
router) that it can reach: between clients, and between a client and anyone, everything is passed on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any

import zenoh

from headwater.errors import (
    ClosedError,
    ConfigError,
    ConfigProblem,
    FederationError,
    FrameError,
    SecurityError,
    Unreachable,
)
from headwater.federation.endpoints import Locator, parse_locator
from headwater.federation.fabric import settings as zenoh_settings
from headwater.federation.fabric.attention import Attention
from headwater.federation.fabric.inbox import Inbox
from headwater.federation.fabric.liveliness import Liveliness
from headwater.federation.fabric.queries import Answer, Questions
from headwater.federation.fabric.reconnection import Reunion
from headwater.federation.fabric.session import end_session, one_at_a_time, open_session
from headwater.federation.fabric.settings import Mode, SessionSettings, plain
from headwater.threads import PROCESS, Crashes, Supervised

log = logging.getLogger("headwater.federation")

LEASE_SECONDS = 5.0
CLOSE_SECONDS = 0.9  # that closing waits for Zenoh


class Fabric(Inbox):
    """One node in one federation. Set the handlers (`on_…`) you need, then `open()`.

    `endpoints` says after `open()` where this node listens, with the ports the system chose. `alive` has the nodes
    that are there now (this one excluded), `counters` what was sent and received by kind. A federation in mode
    "client" may open before its router is there: it connects as soon as it can. `limit`: bytes of a message that is
    looked at, other than a post. `named`: it hears of those nodes only that it attends to (`attend`).
    """

    def __init__(
        self,
        federation: str,
        node: str,
        incarnation: int,
        *,
        listen: Sequence[str | Locator] = (),
        connect: Sequence[str | Locator] = (),
        scout: bool | str = False,
        mode: Mode = "peer",
        lease: float = LEASE_SECONDS,
        settings: Mapping[str, Any] | None = None,
        limit: int = zenoh_settings.MESSAGE_BYTES,
        crashes: Crashes | None = None,
        named: bool = False,
    ) -> None:
        self._settings: SessionSettings = zenoh_settings.check(
            federation,
            node,
            listen=listen,
            connect=connect,
            scout=scout,
            mode=mode,
            lease=lease,
            settings=settings or {},
        )
        if isinstance(incarnation, bool) or not isinstance(incarnation, int) or incarnation < 0:
            raise ConfigError([ConfigProblem("incarnation", "a number from 0", repr(incarnation))])
        super().__init__(node, f"headwater/{federation}", limit, PROCESS if crashes is None else crashes)
        self.federation = federation
        self.incarnation = incarnation
        self.mode = mode
        self.lease = float(lease)
        self.endpoints: tuple[str, ...] = ()
        self._live_nodes = Liveliness(
            node, incarnation, f"{self._root}/alive", lambda *who: self.proven(*who), self._signed_in_or_out
        )
        self._nodes = self._live_nodes.nodes
        self._attention: Attention | None = None
        if named:
            self._attention = Attention(
                self._root,
                lambda: self._direct(self._live_nodes.took_token),
                lambda: self._direct(self._took_news),
                lambda task: self._control.put(task, always=True),
                self._live_nodes.forget,
            )
        self._questions = Questions(federation, self._nodes, self._count, limit)
        self._publishers: dict[str, zenoh.Publisher] = {}
        self._stuck: dict[str, float] = {}  # id -> when a post to it was given up
        self._patience = self.lease * zenoh_settings.STUCK * 0.95
        self._session: Any = None
        self._reopening = threading.Lock()
        self._token: Any = None
        self._opener: threading.Thread | None = None
        self._opened = False

    # ---- opening and closing

    def open(self) -> None:
        """Join the federation. `FederationError`: a port is taken; `ConfigError`: Zenoh refuses a setting."""
        with self._lock:
            if self._opened or self._closed.is_set():
                raise ClosedError(f"node {self.node}: a fabric opens once")
            self._opened = True
        with one_at_a_time():
            self._join()

    def _join(self) -> None:
        try:
            session = self._open_session()
        except FederationError:
            if self.mode != "client":
                self.close()
                raise
            # A client's session only opens with a connection; ours opens now and connects when it can.
            self._start()
            self._opener = Supervised(
                self._open_later, f"{self.node}-opening", self._crashes, again=lambda: not self._closed.is_set()
            )
            self._opener.start()
            return
        except ConfigError:
            self.close()
            raise
        self._start()
        self._declare(session)

    def _open_session(self) -> Any:
        opened = open_session(self.node, self._settings)
        self.endpoints = tuple(map(str, opened.endpoints))
        if opened.endpoints:
            self._reunion = Reunion(opened.config, opened.endpoints, self.node, self._crashes)
        return opened.session

    def _open_later(self) -> None:
        pause = 0.1
        while not self._closed.wait(pause):
            pause = min(2 * pause, 2.0)
            try:
                with one_at_a_time():
                    self._declare(self._open_session())
                return
            except (FederationError, ConfigError) as error:
                log.log(logging.WARNING if isinstance(error, ConfigError) else logging.DEBUG, "%s", error)
                with self._lock:
                    session, self._session = self._session, None
                if session is not None:  # it opened, but not everything could be declared
                    end_session(self.node, session)

    def reopen(self) -> None:
        """Have the session opened anew, at the same places: only then Zenoh reads the files of its certificates again.

        That is done in a thread of its own. Meanwhile nobody can be asked and nothing be posted, as if the connections
        were lost for a moment; direct streams go on."""
        Supervised(self._reopen, f"{self.node}-reopening", self._crashes).start()

    def _reopen(self) -> None:
        with self._reopening:
            with self._lock:
                session, self._session = self._session, None
                if session is None:  # it is not open yet, and will be, with what is there now; or it is closed
                    return
                self._generation += 1
                self._live_nodes.begin_anew()
                found = (parse_locator("listen", each) for each in self.endpoints)
                self._settings = replace(
                    self._settings, listen=tuple(each for each in found if isinstance(each, Locator))
                )
            if self._reunion is not None:
                self._reunion.close()
            self._publishers.clear()
            self._end_soon(session)
            self._open_later()
            if not self._closed.wait(self.lease):
                self._live_nodes.drop_unannounced()

    def _declare(self, session: Any) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._session = session
        if self._session is None:
            end_session(self.node, session)
            return
        try:
            self._declare_all(session)
        except zenoh.ZError as error:
            if not self._closed.is_set():
                raise FederationError(f"node {self.node}: {plain(error)}") from error

    def _declare_all(self, session: Any) -> None:
        """Receive first, be seen last: who sees the token can reach all the rest."""
        remote = zenoh.Locality.REMOTE
        root = self._root
        if self._reunion is not None:
            self._reunion.begin()  # before it hears of the connections that are there
        if self.on_session is not None:
            self.on_session()
        if self._reunion is not None or self.on_link is not None:
            session.info.declare_link_events_listener(self._direct(self._took_link), history=True)
        session.declare_subscriber(f"{root}/post/{self.node}", self._took_post, allowed_origin=remote)
        if self._attention is None:
            session.declare_subscriber(f"{root}/news", self._direct(self._took_news), allowed_origin=remote)
        session.declare_queryable(f"{root}/ask/{self.node}", self._direct(self._took_ask), allowed_origin=remote)
        session.declare_queryable(f"{root}/roll/{self.node}", self._direct(self._took_roll), allowed_origin=remote)
        if self.on_log is not None:
            session.declare_queryable(f"{root}/log/{self.node}", self._direct(self._took_read), allowed_origin=remote)
        live = session.liveliness()
        if self._attention is None:
            live.declare_subscriber(f"{root}/alive/*/*", self._direct(self._live_nodes.took_token), history=True)
        else:
            self._attention.begin(session)
        self._token = live.declare_token(f"{root}/alive/{self.node}/{self.incarnation}")
        self._count.sent("join", 0)

    def close(self) -> None:
        """Leave: the others hear of it at once. May be called again, and from any thread.

        In `on_post` it only begins to leave, and another thread finishes: Zenoh cannot end in its own thread.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            session, self._session = self._session, None
        if getattr(self._inside, "post", False):
            Supervised(lambda: self._end(session), f"{self.node}-closing", self._crashes, daemon=False).start()
        else:
            self._end(session)

    def _end(self, session: Any) -> None:
        if self._reunion is not None:
            self._reunion.close()
        if session is not None:
            self._count.sent("leave", 0)
            self._end_soon(session)
        self._publishers.clear()
        self._stop()

    def _end_soon(self, session: Any) -> None:
        """Beside a frozen node Zenoh may take ten seconds; the others hear of the end before that."""
        ending = Supervised(lambda: end_session(self.node, session), f"{self.node}-end", self._crashes)
        ending.start()
        ending.join(CLOSE_SECONDS)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def session_id(self) -> str:
        """By which Zenoh names this session at the other ends of its connections; nothing while there is none."""
        session = self._session
        return "" if session is None else str(session.zid())

    @property
    def connected(self) -> int:
        """How many Zenoh sessions (nodes, and routers that are not nodes) this one is connected to."""
        session = self._session
        return len(session.info.transports()) if session is not None else 0

    @property
    def alive(self) -> frozenset[tuple[str, int]]:
        """The other nodes that are there now: (id, incarnation)."""
        return self._live_nodes.alive

    @property
    def unproven(self) -> int:
        """How many of them have proven nothing yet."""
        return self._live_nodes.unproven

    @property
    def ignored_tokens(self) -> int:
        """Signs of life that were not kept, because there were too many of nodes that have proven nothing."""
        return self._live_nodes.ignored

    def is_alive(self, node: str, incarnation: int) -> bool:
        return self._live_nodes.is_alive(node, incarnation)

    def vouch(self, node: str, incarnation: int) -> None:
        """A node has proven to be one: its sign of life counts, also if it was ignored before."""
        self._live_nodes.vouch(self._session, node, incarnation)

    @property
    def named(self) -> bool:
        """Whether it hears of those nodes only that it attends to."""
        return self._attention is not None

    @property
    def attended(self) -> int:
        """How many nodes it attends to, where it does not hear of all."""
        return 0 if self._attention is None else len(self._attention.attended)

    def attend(self, key: str) -> None:
        """Hear of a node, by its id, or of those of a name (`any_of_name`); of no effect where all are heard."""
        if self._attention is not None:
            self._attention.attend(key)

    def ignore(self, key: str) -> None:
        """Hear of it no more; what is known of it is the caller's to forget."""
        if self._attention is not None:
            self._attention.ignore(key)

    @property
    def counters(self) -> dict[str, dict[str, int]]:
        """By kind (join, leave, roll, news, ask, post, log): messages and bytes, in and out, since the start.

        Bytes are those of payloads. A question counts out at the asker and in at each node asked, an answer likewise.
        """
        return self._count.snapshot()

    # ---- sending

    def tell(self, payload: bytes) -> None:
        """Send news to every other node: to those who hear all, and to those who attend to this one."""
        with self._speaking("nothing can be told") as session:
            for key in (f"{self._root}/news", f"{self._root}/news/{self.node}"):
                session.put(
                    key,
                    payload,
                    congestion_control=zenoh.CongestionControl.BLOCK,
                    express=True,
                    allowed_destination=zenoh.Locality.REMOTE,
                )
        self._count.sent("news", len(payload))

    def post(self, node: str, payload: bytes) -> None:
        """Send to one node, in order, without waiting for it to arrive. Raises `Unreachable` if the node is not
        there, or if its connection did not take the message in time (what was posted before may be lost then).

        A full connection makes this wait, for 0.55 leases at most.
        """
        publisher = self._publishers.get(node)
        if publisher is None or node not in self._nodes:
            publisher = self._publisher(node)
        elif self._stuck and node in self._stuck:
            self._unstick(node)
        before = perf_counter()
        try:
            publisher.put(payload)
        except zenoh.ZError as error:
            self._publishers.pop(node, None)  # it may be one of a session that was ended meanwhile
            raise self._unspoken(f"node {node} cannot be sent to", error) from error
        if perf_counter() - before > self._patience:
            with self._lock:
                self._stuck[node] = monotonic()
            raise Unreachable(f"node {node} has taken nothing for {self._patience:.1f} s; its connection is given up")
        self._count.sent("post", len(payload))

    def _publisher(self, node: str) -> zenoh.Publisher:
        with self._speaking(f"node {node} cannot be sent to") as session:
            if node not in self._nodes:
                raise Unreachable(f"there is no node {node!r} in the federation {self.federation!r} now")
            # Not within the lock: Zenoh's threads wait for it, and this waits for them.
            declared = session.declare_publisher(
                f"{self._root}/post/{node}",
                congestion_control=zenoh.CongestionControl.BLOCK,
                reliability=zenoh.Reliability.RELIABLE,
                express=True,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        return self._publishers.setdefault(node, declared)

    def _unstick(self, node: str) -> None:
        """Refuse until the stuck connection is noticed as gone: until then Zenoh drops what is put."""
        with self._lock:
            since = self._stuck.get(node, 0.0)
            if monotonic() - since < self.lease:
                raise Unreachable(f"node {node} takes nothing; its connection was given up")
            self._stuck.pop(node, None)

    def ask(
        self,
        node: str,
        payload: bytes,
        timeout: float,
        accept: Callable[[bytes], Any] = bytes,
        sent: Callable[[], None] | None = None,
    ) -> Any:
        """Ask one node and wait for its answer. Raises `Unreachable` if it is not there, does not answer in time, or
        cannot.

        Anyone may answer: `accept` makes of an answer what this returns, or raises SecurityError or FrameError, and
        then the next is looked at. `sent` is called when the question is on its way."""
        self._may_wait("ask")
        replies: SimpleQueue[bytes | Unreachable] = SimpleQueue()
        with self._speaking(f"node {node} cannot be asked") as session:
            self._questions.ask(session, node, payload, timeout, replies.put, replies.put)
        if sent is not None:
            sent()
        end, refused = monotonic() + timeout + 1.0, ""  # Zenoh ends it at its timeout; the margin is for a busy machine
        while True:
            try:
                reply = replies.get(timeout=max(0.0, end - monotonic()))
            except Empty:
                raise Unreachable(f"node {node} did not answer within {round(timeout, 2):g} s{refused}") from None
            if isinstance(reply, Unreachable):
                raise Unreachable(f"{reply}{refused}")
            try:
                return accept(reply)
            except (SecurityError, FrameError) as error:
                refused = f" (an answer that is not its own was refused: {error})"

    def ask_soon(
        self,
        node: str,
        payload: bytes,
        answer: Answer,
        *,
        timeout: float,
        accept: Callable[[bytes], Any] = bytes,
    ) -> None:
        """Ask one node; `answer` is called once with what `ask` would return or the error it would raise.

        It may be called anywhere, `on_post` included; `answer` runs in the thread of `on_join` and `on_news`.
        """
        done = False

        def look(result: bytes | Unreachable) -> None:  # in one thread
            nonlocal done
            if done:
                return
            if not isinstance(result, Unreachable):
                try:
                    made = accept(result)
                except (SecurityError, FrameError):
                    return
            else:
                made = result
            done = True
            answer(made)

        def deliver(result: bytes | Unreachable) -> None:
            self._control.put(lambda: self._guard("ask", look, result), always=True)

        with self._speaking(f"node {node} cannot be asked") as session:
            self._questions.ask(session, node, payload, timeout, deliver, deliver)

    def roll_call(self, payload: bytes, timeout: float) -> list[bytes]:
        """Ask every other node; the answers that came within `timeout`, in the order of arrival.

        It ends when all have answered: Zenoh says so, or every node known to be alive has.
        """
        self._may_wait("roll_call")
        with self._speaking("no node can be asked") as session:
            return self._questions.roll_call(session, payload, timeout)

    def roll_answers(
        self,
        payload: bytes,
        timeout: float,
        expected: Callable[[], Iterable[str]],
        late: Callable[[bytes], None],
    ) -> Iterator[bytes]:
        """Ask every other node: answers as they come, until Zenoh says that these are all, or all of `expected` have
        answered and a moment has passed. What comes after that goes to `late`, in the thread of `on_join`."""
        self._may_wait("roll_answers")

        def deliver(answer: bytes) -> None:
            if not self._control.put(lambda: self._guard("roll", late, answer), size=len(answer)):
                self._failed("roll", "too many wait")

        with self._speaking("no node can be asked") as session:
            return self._questions.roll_answers(session, payload, timeout, expected, deliver)

    def _live(self) -> Any:
        session = self._session
        if session is not None:
            return session
        if self._closed.is_set():
            raise ClosedError(f"node {self.node}: its fabric is closed")
        if not self._opened:
            raise ClosedError(f"node {self.node}: its fabric is not open yet")
        raise Unreachable(
            f"node {self.node} is not connected yet: no answer from {', '.join(map(str, self._settings.connect))}"
        )

    @contextmanager
    def _speaking(self, problem: str) -> Iterator[Any]:
        """The session, for calls into Zenoh. It may be ended at any moment by another thread: what Zenoh raises then is
        `ClosedError`, as if the call had come later; anything else it raises is `Unreachable`, with `problem`."""
        session = self._live()
        try:
            yield session
        except zenoh.ZError as error:
            raise self._unspoken(problem, error) from error

    def _unspoken(self, problem: str, error: zenoh.ZError) -> ClosedError | Unreachable:
        """What to raise for an error of Zenoh."""
        try:
            self._live()
        except (ClosedError, Unreachable) as ended:
            return ended
        return Unreachable(f"{problem}: {plain(error)}")

    def _may_wait(self, what: str) -> None:
        if getattr(self._inside, "post", False):
            raise FederationError(f"{what} in on_post would wait for ever: use ask_soon, or another thread")

    def _signed_in_or_out(self, there: bool, who: tuple[str, int], proven: bool) -> None:
        """A node has come, or is gone; what is queued here happens in that order."""
        node, kind = who[0], "join" if there else "leave"
        if there:
            self._stuck.pop(node, None)
        elif node not in self._nodes:
            self._control.put(lambda: self._forget(node), always=True)  # Zenoh's thread must not undeclare
        self._count.received(kind, 0)
        self._control.put(lambda: self._guard(kind, self.on_join if there else self.on_leave, *who), always=proven)

    def _forget(self, node: str) -> None:
        if node not in self._nodes:
            self._publishers.pop(node, None)
