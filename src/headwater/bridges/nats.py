"""NATS: subjects as channels, and back; core, which promises nothing, and JetStream, which keeps what it has.

node.services.add(NatsBridge(node, "nats://127.0.0.1:4222", [Mapping("sensors.{room}", "building.sensors")],
                             stream="BUILDING"))

core       in: as it comes; what is published while the bridge is away is lost
           out: done when the server has taken it from the connection
JetStream  in: by a durable consumer of `stream`, acknowledged when the event is published; what was not is delivered
           again, so that an event may be published twice
           out: done when the stream has it, under an id made of the event's source and number: what goes again
           after a restart is the same message, and a stream that remembers ids (two minutes unless said) has it once
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.bridges.contract import RECHECK_SECONDS, WINDOW, Bridge
from headwater.bridges.mapping import MAX_PAYLOAD, Mapping, Message, Translation
from headwater.bridges.topics import NATS
from headwater.errors import ClosedError, ConfigError, ConfigProblem, FederationError
from headwater.extras import require
from headwater.spelling import did_you_mean
from headwater.threads import Supervised

require("nats", "headwater.bridges.nats")

import nats  # noqa: E402
from nats.errors import Error as NatsError  # noqa: E402
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: E402
from nats.js.errors import APIError, BadRequestError, NotFoundError  # noqa: E402

if TYPE_CHECKING:
    from headwater.federation.node import Node

log = logging.getLogger("headwater.bridges")
PAUSE_SECONDS = 1.0  # between attempts
AGAIN_SECONDS = 0.1  # after which one that has not ended is told so again
FETCHED = 64  # messages of a stream that are taken at a time
WAIT_SECONDS = 5.0
TOO_LARGE = 10054  # by which JetStream says that a stream takes no message of that size
OPTIONS = tuple(inspect.signature(nats.NATS.connect).parameters)[1:]
OWN_OPTIONS = (
    "servers",
    "max_reconnect_attempts",
    "reconnect_time_wait",
    "disconnected_cb",
    "reconnected_cb",
    "closed_cb",
    "error_cb",
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_QUOTED = re.compile(r"\"([^\"]+)\"")


class NatsBridge(Bridge):
    """Joins channels of a node to subjects of a NATS server. `stream` is the name of a JetStream stream that holds
    all subjects of the mappings; without one they are those of core NATS. `options` are for `nats.connect`."""

    syntax = NATS

    def __init__(
        self,
        node: Node,
        server: str | list[str],
        mappings: Iterable[Mapping],
        *,
        name: str = "nats",
        stream: str = "",
        limit: int = MAX_PAYLOAD,
        window: int = WINDOW,
        **options: Any,
    ) -> None:
        super().__init__(node, name, mappings, limit=limit, window=window, knows=("properties",))
        for each in ([server] if isinstance(server, str) else server) or [""]:
            if not re.match(r"(nats|tls|ws|wss)://", str(each)):
                raise ConfigError([ConfigProblem("NatsBridge: server", "nats://HOST:PORT", repr(each))])
        if stream and not _NAME.fullmatch(stream):
            raise ConfigError([ConfigProblem("NatsBridge: stream", "letters, digits, _ and -", repr(stream))])
        wrong = [each for each in options if each in OWN_OPTIONS or each not in OPTIONS]
        if wrong:
            hint = "it is set by the bridge" if wrong[0] in OWN_OPTIONS else did_you_mean(wrong[0], OPTIONS)
            raise ConfigError([ConfigProblem("NatsBridge", "options of nats.connect", wrong[0], hint)])
        self._server, self._stream, self._options = server, stream, options
        self._topics: tuple[str, ...] = ()
        self._places: dict[str, tuple[Any, int]] = {}  # by topic: the birth of the stream, and how far it was taken
        self._said = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._line: deque[_Going] = deque()  # what the server does not have yet; of the loop
        self._there = threading.Event()
        self._thread = Supervised(self._run, f"headwater-{node.name}-{name}", node._crashes, again=self._goes_on)
        # One for all that comes in: in the order of the server. Publishing may wait, and the loop must not.
        self._taking = ThreadPoolExecutor(1, f"headwater-{node.name}-{name}-in")

    # ── the connection ──

    @property
    def is_connected(self) -> bool:
        """Whether the server is there at present."""
        return self._there.is_set() and not self.closing.is_set()

    def _goes_on(self) -> bool:
        return not self.closing.is_set()

    def connect(self, incoming: list[Translation]) -> None:
        """In a thread with a loop of its own."""
        self._topics = tuple(dict.fromkeys(each.topic.pattern for each in incoming))
        self._thread.start()

    def disconnect(self) -> None:
        """The consumer stays with its stream."""
        self._there.set()  # who waits for it finds that it is over
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._over.set)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(10.0)
        self._taking.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.run(self._connected())

    async def _connected(self) -> None:
        """From the first attempt to connect until it is over."""
        self._over, self._more, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        over = asyncio.create_task(self._over.wait())
        while not self.closing.is_set():
            try:
                connecting = asyncio.create_task(self._connect())
                await asyncio.wait((connecting, over), return_when=asyncio.FIRST_COMPLETED)
                if not connecting.done():  # it tries again for ever
                    connecting.cancel()
                    await asyncio.gather(connecting, return_exceptions=True)
                    return
                self._client = connecting.result()
                break
            except (TimeoutError, NatsError, OSError) as error:
                log.warning("bridge %s: the server is not there (%s); trying again", self.name, error)
                with suppress(asyncio.TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await self._over.wait()
        if self.closing.is_set():
            return
        await self._back()
        if self._line:
            self._more.set()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._hear(topic)) for topic in self._topics]
        tasks += [asyncio.create_task(self._send_all()), asyncio.create_task(self._ended.wait())]
        try:
            ended, _ = await asyncio.wait((over, *tasks), return_when=asyncio.FIRST_COMPLETED)
            for each in ended - {over}:
                each.result()  # what it raises is told, and all begins anew
            if over not in ended:
                raise ConnectionError(f"the server has ended the connection: {self._client.last_error}")
        finally:
            if not self.closing.is_set():
                self._there.clear()
            await end_all(tasks)
            with suppress(NatsError, OSError, asyncio.TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._client.close()

    async def _connect(self) -> Any:
        return await nats.connect(
            self._server,
            max_reconnect_attempts=-1,
            reconnect_time_wait=PAUSE_SECONDS,
            disconnected_cb=self._lost,
            reconnected_cb=self._back,
            closed_cb=self._closed,
            error_cb=self._wrong,
            **self._options,
        )

    async def _lost(self) -> None:
        if not self.closing.is_set():
            self._there.clear()
            self.counts["lost"] += 1

    async def _back(self) -> None:
        self.counts["connected"] += 1
        self._there.set()

    async def _closed(self) -> None:
        """For good: after most errors that a server says, the library does not connect again."""
        self._ended.set()

    async def _wrong(self, error: Exception) -> None:
        """Said once, until it is another."""
        said = f"{type(error).__name__}: {error}"
        if said != self._said:
            self._said = said
            about = _QUOTED.search(said)  # a subject, if the server refuses one
            tell = functools.partial(self.complain, about[1] if about else "", error)
            with suppress(RuntimeError):  # it is over
                await asyncio.get_running_loop().run_in_executor(self._taking, tell)

    # ── in ──

    async def _hear(self, topic: str) -> None:
        """Messages of a topic, one after the other, for ever."""
        if self._stream:
            await self._consume(topic)
            return
        subscription = await self._client.subscribe(topic)
        async for message in subscription.messages:
            with suppress(ClosedError):
                await self._took(message, topic)

    async def _consume(self, topic: str) -> None:
        """What the stream has for this bridge's consumer, and what comes."""
        consumer: Any = None
        link, idle = 0, False
        while True:
            try:
                if idle and consumer is not None:
                    await consumer.consumer_info()  # somebody may have deleted it, or its stream
                idle = False
                if consumer is None or link != self.counts["connected"]:
                    link = self.counts["connected"]
                    if consumer is not None:
                        await consumer.unsubscribe()
                    consumer = await self._consumer(topic)
                for message in await consumer.fetch(FETCHED, timeout=WAIT_SECONDS):
                    await self._took(message, topic)
                    self._places[topic] = self._places[topic][0], message.metadata.sequence.stream
                    await message.ack()
            except ClosedError:
                return  # what was not acknowledged comes again
            except TimeoutError:
                idle = True  # nothing has come
            except (NatsError, OSError) as error:
                if isinstance(error, NotFoundError) and consumer is None:
                    await self._wrong(
                        FederationError(
                            f"expected a stream {self._stream!r} at the server, found none; make it, it is looked for"
                        )
                    )
                else:
                    log.warning("bridge %s: stream %s: %s; trying again", self.name, self._stream, error)
                if consumer is not None:
                    with suppress(NatsError, OSError):
                        await consumer.unsubscribe()
                consumer = None
                await asyncio.sleep(PAUSE_SECONDS)

    async def _consumer(self, topic: str) -> Any:
        """This bridge's place in the stream, of whatever life. The server would deliver what was under way over an
        earlier connection after half a minute only, and after all that came later: where there is such, another
        consumer takes over from the first that was not acknowledged, and then the earlier one goes. If it is killed in
        between there are both, and neither is further than the bridge."""
        stream, name = self._client.jetstream(), consumer_name(self._node.name, self.name, topic)
        settings = ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.NEW,
            filter_subject=topic,
            max_ack_pending=FETCHED,
        )
        there = {}
        for each in (name, f"{name}-b"):
            with suppress(NotFoundError):
                there[each] = await stream.consumer_info(self._stream, each)
        try:
            about = await stream.stream_info(self._stream)
        except NotFoundError:
            if topic not in self._places:  # all that it will have when it is made is new to this bridge
                self._places[topic] = "none yet", 0
            raise
        begun, upto = self._places.get(topic, (None, 0))
        if not there:
            if begun is not None:  # somebody has deleted it: it goes on, or with another stream begins with that
                settings.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
                settings.opt_start_seq = upto + 1 if begun == about.created else 1
            await stream.add_consumer(self._stream, settings)
        elif len(there) == 1 and not any(info.num_ack_pending for info in there.values()):
            (name,) = there
        else:
            latest = max(there, key=lambda each: there[each].ack_floor.stream_seq)
            name = name if latest != name else f"{name}-b"
            if name in there:
                await stream.delete_consumer(self._stream, name)
            settings.durable_name, settings.deliver_policy = name, DeliverPolicy.BY_START_SEQUENCE
            settings.opt_start_seq = there[latest].ack_floor.stream_seq + 1
            try:
                await stream.add_consumer(self._stream, settings)
            except BadRequestError as error:  # it may have no more consumers than there are
                log.warning("bridge %s: stream %s: %s; what was under way comes late", self.name, self._stream, error)
                name = latest
            else:
                await stream.delete_consumer(self._stream, latest)
        if begun != about.created:
            floors = [info.ack_floor.stream_seq for info in there.values()]
            self._places[topic] = about.created, max(floors) if there else 0 if begun else about.state.last_seq
        return await stream.pull_subscribe_bind(name, self._stream)

    async def _took(self, message: Any, pattern: str) -> None:
        beside = tuple((message.headers or {}).items())
        take = functools.partial(self.take, message.subject, bytes(message.data), beside, (pattern,))
        try:
            await asyncio.get_running_loop().run_in_executor(self._taking, take)
        except ClosedError:
            raise
        except Exception as error:  # whatever is wrong with one message is that message's
            self.complain(message.subject, error)

    # ── out ──

    def send(self, mapping: Mapping, message: Message, key: str, done: Callable[[], None]) -> None:
        """In the handler's thread: it waits for the connection, so that what cannot go stays where it is kept."""
        while not self._there.wait(RECHECK_SECONDS) and not self.hopeless:
            pass
        loop = self._loop
        if self.closing.is_set() or loop is None or not self._there.is_set():
            raise ClosedError(f"bridge {self.name!r} is closed: the event goes out the next time")
        going = _Going(*message, key, done)
        try:
            loop.call_soon_threadsafe(self._line_up, going)
        except RuntimeError:  # it is over; or it has crashed, and the next one takes this up
            self._line.append(going)

    def _line_up(self, message: _Going) -> None:
        self._line.append(message)
        self._more.set()

    async def _send_all(self) -> None:
        """What goes out, in order, all that waits at a time. What the server has not taken goes again, before anything
        that came later does."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._line:
                sent = list(self._line)
                results = await asyncio.gather(*map(self._give, sent), return_exceptions=True)
                left = [each for each in zip(sent, results, strict=True) if not self._settled(*each)]
                self._line = deque([*(message for message, _ in left), *islice(self._line, len(sent), None)])
                if left:
                    message, why = left[0]
                    log.warning("bridge %s: %s: %r; trying again (%d)", self.name, message.topic, why, len(left))
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _give(self, message: _Going) -> None:
        """One message; when this returns the server has it."""
        headers = dict(message.properties)
        if self._stream:
            headers["Nats-Msg-Id"] = f"{self._node.name}:{self.name}:{message.key}"
            stream = self._client.jetstream()
            await stream.publish(
                message.topic, message.payload, stream=self._stream, timeout=WAIT_SECONDS, headers=headers
            )
        else:
            await self._client.publish(message.topic, message.payload, headers=headers or None)
            await self._client.flush()

    def _settled(self, message: _Going, result: BaseException | None) -> bool:
        """Whether a message needs no more to be done: the server has it, or will never take it, which is told."""
        if isinstance(result, BaseException):
            if not _is_refused(result):
                return False
            self.complain(message.topic, result)
        try:
            message.done()
        except Exception as error:
            log.exception("bridge %s: what has gone out could not be noted", self.name, exc_info=error)
        return True


class _Going(NamedTuple):
    """A message that is to go out; its key is the same when it goes again."""

    topic: str
    payload: bytes
    properties: tuple[tuple[str, str], ...]
    key: str
    done: Callable[[], None]


def consumer_name(node: str, bridge: str, topic: str) -> str:
    """That of a topic's consumer, in whatever order mappings are: readable, and no other's."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", f"{node}-{bridge}")[:60]
    digest = blake2b("\0".join((node, bridge, topic)).encode(), digest_size=6)
    return f"headwater-{readable}-{digest.hexdigest()}"


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End them, whatever they wait for. The library swallows a cancellation now and then (where it flushes), and who is
    in a loop would go on: it is said again, until they have ended."""
    all_of_them = list(tasks)
    left = {task for task in all_of_them if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
    await asyncio.gather(*all_of_them, return_exceptions=True)


def _is_refused(error: BaseException) -> bool:
    """Whether a server would say the same the next time: a message that waits for that would hold up all others."""
    if isinstance(error, (nats.errors.MaxPayloadError, nats.errors.BadSubjectError)):
        return True
    return isinstance(error, APIError) and error.err_code == TOO_LARGE


__all__ = ["NatsBridge", "consumer_name", "end_all"]
