"""MQTT: topics of a broker as channels, and back. Versions 3.1.1 and 5, by paho.

    node.services.add(MqttBridge(node, "127.0.0.1:1883", [Mapping("sensors/{room}", "building.sensors")]))

What qualities of service mean here:

    in    0  as it comes; what the broker drops is lost
          1  acknowledged when the event is published; it comes again after a break, and may be published twice
          2  subscribed to as 1: the library keeps half of MQTT's exchange in memory, and would lose the message with
             its process. Nothing lost, perhaps twice, is what is promised
    out   0  as it goes: handed to the connection
          1  done when the broker has said so; else it goes again, also after a restart (a node with a state)
          2  the same, by a connection with another id in each life: the numbers of messages that a bridge had under way
             when it was killed are not known to its next life, and a broker that remembers them takes other messages of
             these numbers for the same, and drops them

What goes out has a connection of its own, beside the one by which messages come in: the thread of that one waits while
events cannot be published, and if they go out as well, that would be for answers that only it could read.

The session is kept by the broker under the client's id, so that what is published while the bridge is away comes when
it is back. A retained message comes as an event, once for each time that the bridge subscribes anew, unless
`retained=False`; with `Mapping(retain=True)` what goes out is retained.

Of version 5: `Mapping(properties=…)` has fields as user properties, `Mapping(expiry=…)` how long what goes out is of
use. What goes out says what its payload is; a session is kept for a week.
"""

from __future__ import annotations

import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headwater.bridges.contract import RECHECK_SECONDS, WINDOW, Bridge
from headwater.bridges.mapping import MAX_PAYLOAD, Mapping, Message, Translation
from headwater.bridges.topics import MQTT, Topic
from headwater.errors import ClosedError, ConfigError, ConfigProblem, ServiceError
from headwater.extras import require

require("mqtt", "headwater.bridges.mqtt")

import paho.mqtt.client as paho  # noqa: E402
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402
from paho.mqtt.reasoncodes import ReasonCode  # noqa: E402
from paho.mqtt.subscribeoptions import SubscribeOptions  # noqa: E402

if TYPE_CHECKING:
    from headwater.federation.node import Node

log = logging.getLogger("headwater.bridges")
FIRST_PAUSE, LONGEST_PAUSE = 1, 30  # seconds between attempts to connect
SESSION_SECONDS = 7 * 86_400  # for which a broker of version 5 is asked to keep the session
HEAD_BYTES = 16  # of a packet, at most: what it is, its length and number, and the length of its topic
MOST_ID = 65_000  # bytes of a client's id
HEADER_BYTES = 1 << 17  # of a packet besides its payload: a topic, and properties
PIECE_BYTES = 1 << 16  # that are read at a time
# Messages under way at a time where some are of quality 2, unless a broker says how many: as libraries have it.
# Mosquitto 2.0 drops what goes beyond its `max_inflight_messages`, and acknowledges it.
TWICE_WINDOW = 20
REFUSED = 0x80  # and what is above, as a reason of version 5


class _Client(paho.Client):  # type: ignore[misc]
    """A connection that whoever speaks at its other end can neither fill the memory by, nor end."""

    def __init__(self, bridge: MqttBridge, most: int, **options: Any) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, manual_ack=True, **options)
        self._bridge, self._most = bridge, most
        self.there = threading.Event()  # whether the broker is, and has been sent again what it may not have had
        self.gate = threading.Lock()  # of who sends, and who connects anew
        self.unsure: dict[int, str] = {}  # by packet, topics of which the broker has not said that it sends them

    def reconnect(self) -> Any:
        """Nothing goes out by the next connection before what was under way by the last one."""
        with self.gate:
            if not self._bridge.closing.is_set():
                self.there.clear()
        return super().reconnect()

    def _handle_connack(self) -> Any:
        found = super()._handle_connack()
        if self.is_connected():
            self.there.set()
        return found

    def _handle_pubrec(self) -> Any:
        """A message of quality 2 that a broker of version 5 refuses: paho would go on as if it had taken it."""
        packet = self._in_packet["packet"]
        if self._protocol != MQTTProtocolVersion.MQTTv5 or len(packet) < 3 or packet[2] < REFUSED:
            return super()._handle_pubrec()
        number, reason = int.from_bytes(packet[:2]), ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
        with self._out_message_mutex:
            if number in self._out_messages:
                return self._do_on_publish(number, reason, Properties(PacketTypes.PUBREC))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> Any:
        """The thread of the connection: what it raises is said, and it begins anew."""
        while True:
            try:
                return super().loop_forever(timeout, retry_first_connection)
            except Exception as error:
                if self._bridge.closing.is_set():
                    return MQTTErrorCode.MQTT_ERR_SUCCESS
                self._bridge.failed(self, error)
                self._bridge.closing.wait(FIRST_PAUSE)
                with suppress(OSError, ValueError):  # the loop tries again
                    self.reconnect()

    def _mid_generate(self) -> int:
        """The next number by which nothing is under way: they go around, and the answer to one may take that long."""
        found: int = super()._mid_generate()
        for _ in range(65_535):
            if not self._bridge.has_under_way(self, found):
                break
            found = super()._mid_generate()
        return found

    def _send_pubrec(self, mid: int) -> Any:
        """Of messages of quality 2, which nobody has asked for, some; what is not released stays in the memory."""
        if len(self._in_messages) >= WINDOW:
            raise ServiceError(f"expected at most {WINDOW} messages of quality 2 that are not released, found more")
        return super()._send_pubrec(mid)

    def _sock_recv(self, bufsize: int) -> Any:
        """The next piece. Of a packet that is too large as much is kept as shows what it is: it is counted,
        acknowledged and gone. paho reads a hundred pieces before it comes to anything else, if they are there."""
        packet = self._in_packet
        if packet["remaining_length"] > self._most:
            del packet["packet"][self._most :]
        return super()._sock_recv(min(bufsize, PIECE_BYTES))


class _Sent(NamedTuple):
    """What is to be done when the broker has a packet."""

    topic: str
    done: Callable[[], None]
    told: Any  # what paho says of it; None where the broker must say that it has it


class _Limits(NamedTuple):
    """What a broker of version 5 says that it takes."""

    under_way: int = 65_535  # messages at a time
    size: int = 1 << 28  # bytes of a packet
    qos: int = 2
    retain: bool = True

    @classmethod
    def said(cls, properties: Any) -> _Limits:
        return cls(
            getattr(properties, "ReceiveMaximum", cls().under_way),
            getattr(properties, "MaximumPacketSize", cls().size),
            getattr(properties, "MaximumQoS", cls().qos),
            bool(getattr(properties, "RetainAvailable", True)),
        )


class MqttBridge(Bridge):
    """Joins channels of a node to topics of a broker at HOST:PORT.

    `client_id` names the session, and is made of the node's and the bridge's name unless said: two bridges of one id
    push each other out. `tls` is a context of `ssl`, or True for the system's authorities."""

    syntax = MQTT

    def __init__(
        self,
        node: Node,
        broker: str,
        mappings: Iterable[Mapping],
        *,
        name: str = "mqtt",
        client_id: str = "",
        version: Literal["3.1.1", "5"] = "3.1.1",
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | bool = False,
        keepalive: int = 30,
        retained: bool = True,
        limit: int = MAX_PAYLOAD,
        window: int = WINDOW,
    ) -> None:
        knows = ("properties", "expiry") if version == "5" else ()
        super().__init__(node, name, mappings, limit=limit, window=window, knows=knows)
        host, colon, port = str(broker).rpartition(":")
        sound = colon and host and "/" not in host and port.isdecimal() and 0 < int(port) < 65_536
        problems = [
            ConfigProblem(f"MqttBridge: {word}", expected, repr(found)[:60])
            for word, right, expected, found in (
                ("broker", sound, "HOST:PORT, as in 127.0.0.1:1883", broker),
                ("version", version in ("3.1.1", "5"), "'3.1.1' or '5'", version),
                ("user", user is None or isinstance(user, str), "a text", user),
                ("password", password is None or isinstance(password, str), "a text", type(password)),
                ("password", user is not None or password is None, "a user with it", user),
                ("tls", isinstance(tls, bool | ssl.SSLContext), "True, False or a context of ssl", tls),
                ("keepalive", keepalive in range(1, 65_536), "whole seconds from 1 to 65,535", keepalive),
                ("client_id", _is_id(client_id), f"printable text of at most {MOST_ID:,} bytes", client_id),
                ("retained", isinstance(retained, bool), "True or False", retained),
            )
            if not right
        ]
        if problems:
            raise ConfigError(problems)
        self._address, self._keepalive, self._retained = (host.strip("[]"), int(port)), keepalive, retained
        self._five = version == "5"
        self._topics: dict[str, int] = {}  # by pattern, the best quality that a mapping of it wants
        for each in self._incoming:
            self._topics[each.topic.pattern] = max(min(each.mapping.qos, 1), self._topics.get(each.topic.pattern, 0))
        self._noting = threading.Condition()
        self._sent: dict[int, _Sent] = {}  # by number of the packet
        self._early: set[int] = set()  # packets that were done before they were noted
        client_id = client_id or own_id(node.name, name)
        self._hearing: dict[_Client, tuple[str, ...]] = {}
        for number, patterns in enumerate(apart(self._incoming)):
            made = self._made(f"{client_id}-{_digest(*patterns)}" if number else client_id, kept=True)
            made.on_connect, made.on_message, made.on_subscribe = self._hears, self._came, self._granted
            self._hearing[made] = patterns
        self._in = next(iter(self._hearing), None)
        self._out, self._limits = None, _Limits()
        if any(each.goes_out for each in self.mappings):
            # A new id: NATS goes on with the old exchange though the session is a clean one.
            twice = any(each.goes_out and each.qos == 2 for each in self.mappings)
            self._limits = _Limits(under_way=TWICE_WINDOW) if twice else _Limits()
            own = f"-out-{token_hex(6)}" if twice else "-out" if self._in is not None else ""
            self._out = self._made(client_id + own, kept=False)
            self._out.on_connect, self._out.on_publish = self._speaks, self._published
        for client in self._clients:
            if user is not None:
                client.username_pw_set(user, password)
            if tls:
                client.tls_set_context(tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context())

    def _made(self, client_id: str, *, kept: bool) -> _Client:
        """A connection, and whether its session outlives it."""
        version = MQTTProtocolVersion.MQTTv5 if self._five else MQTTProtocolVersion.MQTTv311
        options: dict[str, Any] = {} if self._five else {"clean_session": not kept}
        made = _Client(self, self._limit + HEADER_BYTES, client_id=client_id, protocol=version, **options)
        made.max_inflight_messages_set(65_535)  # the window is ours
        made.reconnect_delay_set(FIRST_PAUSE, LONGEST_PAUSE)
        made.on_disconnect = self._lost
        return made

    @property
    def _clients(self) -> list[_Client]:
        return [*self._hearing, *([self._out] if self._out is not None else ())]

    # ── the connection ──

    @property
    def is_connected(self) -> bool:
        """Whether the broker is there at present, and has said that it sends what is to come in."""
        there = all(client.there.is_set() for client in self._clients)
        return there and not any(client.unsure for client in self._hearing) and not self.closing.is_set()

    def connect(self, incoming: list[Translation]) -> None:
        """In a thread of paho's, which tries again for ever."""
        for client in self._hearing:
            options: dict[str, Any] = {}
            if self._five:
                properties = Properties(PacketTypes.CONNECT)
                properties.SessionExpiryInterval = SESSION_SECONDS
                properties.MaximumPacketSize = self._limit + HEADER_BYTES
                options = {"clean_start": False, "properties": properties}
            client.connect_async(*self._address, keepalive=self._keepalive, **options)
        if self._out is not None:
            options = {"clean_start": True} if self._five else {}
            self._out.connect_async(*self._address, keepalive=self._keepalive, **options)
        for client in self._clients:
            client.loop_start()

    def disconnect(self) -> None:
        """The session stays with the broker."""
        for client in self._clients:
            client.there.set()  # who waits for it finds that it is over
        for client in self._clients:
            client.disconnect()
            client.loop_stop()
            client._reset_sockets(sockpair_only=True)  # it would keep them until it is collected

    def _hears(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        """A connection by which messages come in is there; in paho's thread, as all of these."""
        if self._greeted(reason):
            client.unsure = {}
            for pattern in self._hearing[client]:
                qos = self._topics[pattern]
                options = {"options": SubscribeOptions(qos=qos)} if self._five else {"qos": qos}
                client.unsure[client.subscribe(pattern, **options)[1]] = pattern

    def _speaks(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        """And that by which they go out."""
        if self._greeted(reason):
            if self._five:
                self._limits = _Limits.said(properties)
                self._lament()
            self._give_up()

    def _lament(self) -> None:
        """Tell what of the mappings a broker does not have: it would end the connection that asks for it."""
        for mapping in (each for each in self.mappings if each.goes_out):
            if mapping.qos > self._limits.qos:
                why = f"the broker has no quality {mapping.qos}: messages go with {self._limits.qos}"
                self.complain(mapping.topic, ServiceError(why))
            if mapping.retain and not self._limits.retain:
                self.complain(mapping.topic, ServiceError("the broker retains nothing: messages go as any"))

    def _greeted(self, reason: Any) -> bool:
        if reason.is_failure:
            log.error("bridge %s: the broker refuses: %s", self.name, reason)
            return False
        self.counts["connected"] += 1
        return True

    def _granted(self, client: Any, data: Any, mid: int, reasons: Any, properties: Any) -> None:
        """The broker sends a topic, or refuses to."""
        pattern = client.unsure.pop(mid, None)
        if pattern is not None and any(each.is_failure for each in reasons):
            self.counts["refused"] += 1
            self.complain(pattern, ServiceError(f"the broker refuses to send it: {reasons[0]}"))

    def failed(self, client: Any, error: Exception) -> None:
        """Something that paho did not foresee: the connection is over, and there will be another."""
        self._node._crashes.note(f"bridge {self.name}", error)
        self._lost(client, None, None, error, None)

    def _lost(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.closing.is_set():
            client.there.clear()
            self.counts["lost"] += 1
            log.warning("bridge %s: the broker at %s:%d is gone (%s); trying again", self.name, *self._address, reason)

    # ── in ──

    def _came(self, client: Any, data: Any, message: Any) -> None:
        """In paho's thread, which must not end: whatever goes wrong with one message is that message's."""
        try:
            if self._retained or not message.retain:
                beside = getattr(message.properties, "UserProperty", ()) if self._five else ()
                self.take(message.topic, bytes(message.payload), beside, self._hearing[client])
        except ClosedError:
            return  # it is not acknowledged, and comes again
        except Exception as error:
            self.complain("a topic that is none", error)
        client.ack(message.mid, message.qos)

    # ── out ──

    def send(self, mapping: Mapping, message: Message, key: str, done: Callable[[], None]) -> None:
        """In the handler's thread: it waits for the connection, so that what cannot go stays where it is kept."""
        client = self._out
        assert client is not None
        while not self.closing.is_set():
            with client.gate:
                if client.there.is_set() and self._has_room():
                    gone = self._go(client, mapping, message, done)
                    break
            if self.hopeless:
                raise ClosedError(f"bridge {self.name!r} is closed: the event goes out the next time")
            client.there.wait(RECHECK_SECONDS)
            with self._noting:
                self._noting.wait_for(self._has_room, RECHECK_SECONDS)
        else:
            raise ClosedError(f"bridge {self.name!r} is closed: the event goes out the next time")
        if gone:
            done()

    def _has_room(self) -> bool:
        """Whether the broker takes one more while it has not answered to these."""
        return len(self._sent) < self._limits.under_way

    def _go(self, client: _Client, mapping: Mapping, message: Message, done: Callable[[], None]) -> bool:
        """Whether it is done already. ValueError if the broker, or paho, takes no such message."""
        limits, options = self._limits, dict[str, Any]()
        if self._five:
            options["properties"] = beside = _properties(mapping, message)
            size = len(message.topic.encode()) + len(message.payload) + len(beside.pack()) + HEAD_BYTES
            if size > limits.size:
                raise ValueError(f"expected at most {limits.size:,} bytes, as the broker says, found {size:,}")
        qos, retain = min(mapping.qos, limits.qos), mapping.retain and limits.retain
        # Of the locks, `_noting` is not held there: paho calls back with one of its own.
        told = client.publish(message.topic, message.payload, qos=qos, retain=retain, **options)
        with self._noting:
            if told.mid not in self._early and (qos or told.rc == MQTTErrorCode.MQTT_ERR_SUCCESS):
                self._sent[told.mid] = _Sent(message.topic, done, None if qos else told)
                return False
            self._early.discard(told.mid)
        return True

    def has_under_way(self, client: Any, mid: int) -> bool:
        """Whether a connection has a packet of this number of which the broker has not said that it has it."""
        return mid in client._out_messages or (client is self._out and mid in self._sent)

    def _give_up(self) -> None:
        """What was to be written, with quality 0, when the last connection ended: nobody will say that it was."""
        with self._noting:
            gone = [packet for packet, sent in self._sent.items() if sent.told is not None and sent.told._published]
            lost = [self._sent.pop(packet) for packet in gone]
            self._noting.notify_all()
        for sent in lost:
            sent.done()

    def _published(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        """The broker has a packet; for quality 0, it was written. In paho's thread, or in that of `send`."""
        with self._noting:
            sent = self._sent.pop(mid, None)
            if sent is None:
                self._early.add(mid)
            self._noting.notify_all()
        if sent is not None:
            try:
                if reason is not None and reason.is_failure:
                    self.complain(sent.topic, ServiceError(f"the broker refuses it: {reason}"))
                sent.done()
            except Exception as error:  # paho's thread must not end
                log.exception("bridge %s: what has gone out could not be noted", self.name, exc_info=error)


def own_id(node: str, bridge: str) -> str:
    """The id of a client whose bridge says none: NATS takes no dots in it."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", f"{node}-{bridge}")
    return f"headwater-{plain}" if plain == f"{node}-{bridge}" else f"headwater-{plain}-{_digest(node, bridge)}"


def _is_id(text: object) -> bool:
    return isinstance(text, str) and text.isprintable() and len(text.encode()) <= MOST_ID


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(), digest_size=6).hexdigest()


def apart(incoming: list[Translation]) -> list[tuple[str, ...]]:
    """The patterns of each connection. A broker may send a message once for each pattern of a connection that it fits,
    and does not say which: of those that overlap, each but the first has a connection of its own."""
    first, others = list[Topic](), list[tuple[str, ...]]()
    for topic in {each.topic.pattern: each.topic for each in incoming}.values():
        if any(topic.overlaps(each, sent=True) for each in first):
            others.append((topic.pattern,))
        else:
            first.append(topic)
    return [tuple(each.pattern for each in first), *others] if first else []


def _properties(mapping: Mapping, message: Message) -> Properties:
    """What version 5 says beside a payload."""
    kind, made = mapping.payload.partition(":")[0], Properties(PacketTypes.PUBLISH)
    made.ContentType = {"json": "application/json", "text": "text/plain"}.get(kind, "application/octet-stream")
    made.PayloadFormatIndicator = int(kind in ("json", "text"))  # 1: it is UTF-8
    if mapping.expiry:
        made.MessageExpiryInterval = mapping.expiry
    if message.properties:
        made.UserProperty = list(message.properties)
    return made


__all__ = ["MqttBridge"]
