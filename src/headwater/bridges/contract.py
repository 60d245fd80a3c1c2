"""What bridges to brokers have in common: one small interface, so that the next one is a file.

A bridge is a service of a node, with mappings (`mapping.py`). It gives the connection, in whatever way its library has
one; of each message that comes in it says `take(topic, payload)`, and of each event that goes out it is told `send`:

    connect     begin to be connected, and stay so; what cannot ever be is raised
    disconnect  end it
    send        one message out, in the order of calls; call `done()` when the broker has it for certain
    syntax      how its topics are written

What comes in is acknowledged to the broker when `take` has returned: the event is published by then, and with a log it
is on the disk. What goes out is a subscription; with a node that has a state it is durable, and an event counts as done
when the broker has it. So nothing is lost, whoever is killed and started again; an event may come, or go, twice then.
A message that is no event is counted, told on the channel `headwater.bridges`, and not taken again.
"""

from __future__ import annotations

import logging
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from secrets import token_hex
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headwater.bridges.mapping import MAX_PAYLOAD, Message, Properties, Translation
from headwater.bridges.mapping import Mapping as TopicMapping
from headwater.bridges.topics import TopicSyntax
from headwater.channel.options.delivery import Reliable
from headwater.channel.options.rate import Rate
from headwater.channel.services import Service
from headwater.channel.time.token_bucket import TokenBucket
from headwater.errors import ClosedError, ConfigError, ConfigProblem, EncodeError, HeadwaterError, QueueFull, StoreError
from headwater.federation.security.policy import Allow, Restrict
from headwater.interest import Interest
from headwater.services.policy.conjunction import restricted
from headwater.services.policy.identity import Identity
from headwater.types import Event, timestamp

if TYPE_CHECKING:
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription
    from headwater.federation.node import Node

log = logging.getLogger("headwater.bridges")
PROBLEMS = "headwater.bridges"
WINDOW = 256  # messages on their way to the broker at a time
MOST_LIMIT = (1 << 28) - 1  # bytes of a message, as MQTT has it
MOST_WINDOW = 65_535  # as many as MQTT has numbers for
RECHECK_SECONDS = 0.5  # after which who waits looks whether there is still a point
SHOWN = 200  # characters of a topic, and of what is wrong
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
TOLD_RATE, TOLD_BURST = 10, 200  # of messages that are no events, so many are told of in a second


class BridgeProblem(Event):
    """A message that was no event, or an event that was no message."""

    bridge: str
    topic: str
    why: str
    at: timestamp


class Outgoing:
    """Events of one channel on their way out, in order: done up to the first that is not."""

    def __init__(self, bridge: Bridge, translation: Translation, name: str) -> None:
        self._bridge, self.translation, self.name = bridge, translation, name
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[list[Any]]] = {}  # by source: what is to be acknowledged, and whether it is done
        self.subscription: Subscription[Any] | None = None
        self.echoes = False  # what goes out could come in again: then what has come in does not go out
        self.limit: Interest | None = None  # what policies show the broker, if not all of it

    def went(self, event: Any, about: Any) -> None:
        """An event is to go out; the handler of its subscription. It waits while too many are on their way."""
        bridge, entry = self._bridge, [about, False]
        with self._lock:
            self._waiting.setdefault(bridge.identity(about), deque()).append(entry)
        if self.limit is not None and not self.limit.test(event):  # it waited while a policy changed
            self._done(entry, places=0)
            return
        if self.echoes and about.source in bridge.own_sources:
            self._done(entry, places=0)
            return
        try:
            message = self.translation.write(event)
            bridge.check_size(message)
        except EncodeError as error:
            bridge.complain(self.translation.mapping.topic, error)
            self._done(entry, places=0)
            return
        while not bridge.window.acquire(timeout=RECHECK_SECONDS):
            if bridge.hopeless:
                return  # it was not acknowledged, and goes the next time
        bridge.counts["out"] += 1
        key = f"{self.name}:{about.channel}:{bridge.identity(about)}:{about.seq}"
        try:
            bridge.send(self.translation.mapping, message, key, lambda: self._done(entry, places=1))
        except ClosedError:
            return  # the same
        except ValueError as error:  # its library takes no such message, and never will
            bridge.complain(message.topic, error)
            self._done(entry, places=1)

    def _done(self, entry: list[Any], *, places: int) -> None:
        """The broker has it; any thread, any order, once."""
        with self._lock:
            if entry[1]:
                return
            entry[1] = True
            identity = self._bridge.identity(entry[0])
            line = self._waiting[identity]
            last: dict[Any, Any] = {}  # by the source that it came from: of one origin it may be several gateways
            while line and line[0][1]:
                about = line.popleft()[0]
                last[about._source] = about
            if not line:
                del self._waiting[identity]
            if self._bridge.durable:
                with suppress(HeadwaterError):  # it is over: what was not acknowledged goes again
                    for about in last.values():
                        about.acknowledge()
        if places:
            with suppress(ValueError):  # it is over, and all places are free
                self._bridge.window.release()


class Bridge(Service, ABC):
    """A node's connection to a broker. What is different for each is at the end.

    `knows` is what mappings may say of messages besides topic and payload: `properties`, `expiry`."""

    syntax: TopicSyntax

    def __init__(
        self,
        node: Node,
        name: str,
        mappings: Iterable[TopicMapping],
        *,
        limit: int = MAX_PAYLOAD,
        window: int = WINDOW,
        knows: Collection[str] = (),
    ) -> None:
        problems = []
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(ConfigProblem("bridge: name", "1 to 64 letters, digits, _, - and .", repr(name)))
        for word, said, most in (("limit", limit, MOST_LIMIT), ("window", window, MOST_WINDOW)):
            if said.__class__ is not int or not 0 < said <= most:
                problems.append(ConfigProblem(f"bridge {name!r}: {word}", f"a number from 1 to {most:,}", repr(said)))
        if problems:
            raise ConfigError(problems)
        self.name, self._node, self._limit, self._window, self._knows = name, node, limit, window, knows
        self.window = threading.BoundedSemaphore(window)
        self.closing = threading.Event()
        self.own_sources: set[str] = set()
        self.counts = dict.fromkeys(("in", "out", "bad", "untold", "refused", "connected", "lost"), 0)
        self._telling = threading.Lock()
        self._told = TokenBucket(Rate(TOLD_RATE, burst=TOLD_BURST).packed())
        self.durable = node.state is not None
        self._life = token_hex(8)  # of this object, as opposed to others of its name, before it and after it
        self._problems: Source[Any] | None = None
        self._sources: dict[str, Source[Any]] = {}
        self._incoming: list[Translation] = []
        self._outgoing: list[Outgoing] = []
        self.mappings = (mappings,) if isinstance(mappings, TopicMapping) else tuple(mappings)
        self._translate()

    def _translate(self) -> None:
        """Check all mappings against the node's channels: ConfigError has everything that is wrong."""
        problems: list[ConfigProblem] = []
        if not self.mappings:
            problems.append(ConfigProblem(f"bridge {self.name!r}", "one mapping at least", "none"))
        wrong = [each for each in self.mappings if not isinstance(each, TopicMapping)]
        if wrong:
            problems.append(ConfigProblem(f"bridge {self.name!r}", "mappings: Mapping(topic, channel)", repr(wrong[0])))
            raise ConfigError(problems, f"bridge {self.name!r} cannot be like this")
        for mapping in self.mappings:
            problems += [
                ConfigProblem(
                    f"mapping of {mapping.topic!r}: {word}", "nothing: this system has none", repr(said), hint
                )
                for word, said, hint in (
                    ("properties", mapping.properties, "MQTT has them in version='5'"),
                    ("expiry", mapping.expiry, "MQTT has it in version='5'"),
                )
                if said and word not in self._knows
            ]
            if not self._node.has_channel(mapping.channel):
                hint = "open it before the bridge: node.channel(name, type)"
                place = f"mapping of {mapping.topic!r}: channel"
                problems.append(ConfigProblem(place, "a channel that there is", mapping.channel, hint))
                continue
            type = self._node.channel(mapping.channel).type
            try:
                made = Translation(mapping, self.syntax, type)
            except ConfigError as error:
                problems += error.problems
                continue
            place = f"mapping of {mapping.topic!r}: where"
            if mapping.where and type is None:
                problems.append(ConfigProblem(place, "nothing: bytes have no fields", repr(mapping.where)))
            elif mapping.where and type is not None:
                try:
                    Interest(mapping.where, type)
                except HeadwaterError as error:
                    problems.append(ConfigProblem(place, f"an interest in {type.name}", str(error)))
            if mapping.comes_in:
                self._incoming.append(made)
            if mapping.goes_out:
                self._outgoing.append(Outgoing(self, made, self._out_name(mapping)))
        if problems:
            raise ConfigError(problems, f"bridge {self.name!r} cannot be like this")
        for outgoing in self._outgoing:
            outgoing.echoes = any(each.topic.overlaps(outgoing.translation.topic) for each in self._incoming)

    def _out_name(self, mapping: TopicMapping) -> str:
        """That of a mapping's subscription, the same in whatever order mappings are: with another one it would begin
        anew, and what it had not sent would be lost."""
        digest = blake2b("\0".join((mapping.channel, mapping.topic)).encode(), digest_size=6).hexdigest()
        name = f"bridge-{self.name}-{digest}"
        others = sum(each.name.startswith(name) for each in self._outgoing)  # of the same topic and channel
        return f"{name}-{others}" if others else name

    # ── as a service ──

    def start(self) -> None:
        """Be connected, and subscribe to what goes out; if that fails, nothing of it stays."""
        try:
            self._start()
        except BaseException:
            self.stop()
            for outgoing in self._outgoing:
                if outgoing.subscription is not None:
                    outgoing.subscription.cancel()
            for source in (self._problems, *self._sources.values()):
                if source is not None:
                    source.close()
            raise

    def _start(self) -> None:
        """Sources first: what comes in has somewhere to go."""
        self._problems = self._node.channel(PROBLEMS, BridgeProblem).source(f"{self._node.name}.{self.name}")
        for translation in self._incoming:
            channel = self._node.channel(translation.mapping.channel)
            if channel.name not in self._sources:
                self._sources[channel.name] = channel.source(f"bridge-{self.name}")
                self.own_sources.add(f"bridge-{self.name}")
        self.connect(self._incoming)
        before = self._policies_now()
        for outgoing in self._outgoing:
            mapping = outgoing.translation.mapping
            delivery = Reliable(durable=True, acknowledge="manual") if self.durable else Reliable()
            outgoing.subscription = self._node.channel(mapping.channel).subscribe(
                outgoing.went,
                self._shown(outgoing),
                name=outgoing.name,
                delivery=delivery,
                dispatch="pool",
            )

        if self._node._policies is not None:
            self._node._policies.watch(self._rejudge)
            if self._policies_now() != before:  # those that have changed meanwhile had not found it
                self._rejudge(lambda channel: True, True)

    def _policies_now(self) -> Any:
        """Something else whenever policies are others."""
        engine = self._node._engine
        return None if engine is None else engine.context.decisions.stamp("")

    def _shown(self, outgoing: Outgoing) -> Interest | str | None:
        """What goes out: of what the mapping says, what policies show a device of the kind `bridge`, which is all that
        is known of who reads a broker."""
        mapping, engine = outgoing.translation.mapping, self._node._engine
        channel = self._node.channel(mapping.channel)
        outgoing.limit = None
        if engine is None or not engine.context.decisions.governed(channel.name):
            return mapping.where or None
        broker = Identity(device=self.name, device_kind="bridge", node=engine.id)
        verdict = engine.context.decisions.judge(broker, "subscribe", channel.name)
        if isinstance(verdict, Allow):
            return mapping.where or None
        if isinstance(verdict, Restrict) and channel.type is not None:
            wanted = Interest(mapping.where, channel.type) if mapping.where else None
            try:
                made = restricted(wanted, verdict.interest, channel.type)
                outgoing.limit = verdict.interest
                return made
            except HeadwaterError as error:
                log.error("bridge %s: nothing of %s goes out: %s", self.name, channel.name, error)
        else:
            log.warning("bridge %s: nothing of %s goes out: %s", self.name, channel.name, verdict.why)
        if channel.type is None:
            raise ClosedError(f"bridge {self.name!r}: {channel.name}: {verdict.why}")
        outgoing.limit = Interest("false", channel.type)
        return outgoing.limit

    def _rejudge(self, concerns: Callable[[str], bool], backlog: bool) -> None:
        """Policies of these channels have changed: what goes out changes, what waits to included."""
        for outgoing in self._outgoing:
            if concerns(outgoing.translation.mapping.channel) and outgoing.subscription is not None:
                with suppress(ClosedError):
                    shown = self._shown(outgoing)
                    outgoing.subscription._impose("true" if shown is None else shown)

    def stop(self) -> None:
        """Part with the broker; what it does not have goes out the next time, where the node has a state."""
        self.closing.set()
        with suppress(ValueError):
            for _ in range(self._window):
                self.window.release()  # whoever waits for a place finds that it is over
        self.disconnect()

    def report(self) -> Mapping[str, Any]:
        """Counts, and whether it is connected."""
        return {"is connected": self.is_connected, **self.counts}

    @property
    def hopeless(self) -> bool:
        """Whether nothing more goes out: it is over; or its node ends, and would wait for a broker that is gone."""
        node = self._node
        return self.closing.is_set() or (node.closed and not (node._draining and self.is_connected))

    def identity(self, about: Any) -> str:
        """The source of an event, told from all others: nodes may have sources of one name, and a source without a log
        begins with the first number again in each life of its node."""
        source = about._source
        kept = source.origin or source.position_key or source.kept_key
        return kept or f"{self._life}/{source.number}"

    def check_size(self, message: Message) -> None:
        """EncodeError if a message is larger than one may be that comes in: a broker may end the connection for it, and
        it would go again for ever."""
        if len(message.payload) > self._limit:
            raise EncodeError(
                "", f"expected at most {self._limit:,} bytes in a message, found {len(message.payload):,}"
            )

    # ── in ──

    def take(
        self, topic: str, payload: bytes, properties: Properties = (), patterns: Collection[str] | None = None
    ) -> None:
        """A message: it is an event, or counted as none, when this returns. ClosedError if it could not be looked at
        any more: then it must come again. `patterns`: those that it may have come by, where it comes once by each."""
        for translation in self._incoming:
            if patterns is not None and translation.topic.pattern not in patterns:
                continue
            try:
                if len(payload) > self._limit:
                    raise EncodeError("", f"expected at most {self._limit:,} bytes, found {len(payload):,}")
                event = translation.read(topic, payload, properties)
                if event is not None:
                    self._publish(self._sources[translation.mapping.channel], event)
                    self.counts["in"] += 1
            except ClosedError:
                raise
            except (HeadwaterError, ValueError) as error:  # no event; or one that contradicts what its source states
                self.complain(topic, error)

    def _publish(self, source: Source[Any], event: Any) -> None:
        """However long it takes: a full queue is the broker's to wait for, and so is a disk that cannot be written: who
        acknowledges what is not logged loses it."""
        while not self.closing.is_set():
            try:
                source.publish(event)
                return
            except QueueFull:
                continue
            except StoreError as error:
                self._node._crashes.note(f"bridge {self.name}: what comes in waits", error)
                self.closing.wait(RECHECK_SECONDS)
        raise ClosedError(f"bridge {self.name!r} is closed")

    def complain(self, topic: str, error: BaseException) -> None:
        """Something cannot be said on the other side. Of very many only some are told."""
        self.counts["bad"] += 1
        with self._telling:
            if not self._told.take(monotonic_ns(), 1):
                self.counts["untold"] += 1
                return
        why = f"{type(error).__name__}: {error}"[:SHOWN]
        log.warning("bridge %s: %s%s", self.name, f"{topic[:SHOWN]}: " if topic else "", why)
        if self._problems is not None:
            with suppress(HeadwaterError):
                self._problems.publish(BridgeProblem(self.name, topic[:SHOWN], why, datetime.now(UTC)))

    # ── what each bridge does in its own way ──

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether the broker is there at present."""

    @abstractmethod
    def connect(self, incoming: list[Translation]) -> None:
        """Begin to be connected, and to hear these topics."""

    @abstractmethod
    def disconnect(self) -> None:
        """End it; `closing` is set."""

    @abstractmethod
    def send(self, mapping: TopicMapping, message: Message, key: str, done: Callable[[], None]) -> None:
        """One message; it may wait for the connection. `key` is the same when the event goes again. `done` is called
        when the broker has it. ClosedError if it is `hopeless`: then it goes the next time."""


__all__ = ["PROBLEMS", "WINDOW", "Bridge", "BridgeProblem"]
