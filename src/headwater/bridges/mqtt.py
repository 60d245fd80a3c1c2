"""MQTT: topics of a broker as channels, and back. Versions 3.1.1 and 5, by paho.

    node.services.add(MqttBridge(node, "127.0.0.1:1883", [Mapping("sensors/{room}", "building.sensors")]))

What qualities of service mean here:

    in    0  as it comes; what the broker drops is lost
          1  acknowledged when the event is published; it comes again after a break, and may be published twice
          2  subscribed to as 1: the library keeps half of MQTT's exchange in memory, and would lose the message with
             its process. Nothing lost, perhaps twice, is what is promised
    out   0  as it goes: handed to the connection
          1  done when the broker has said so; else it goes again, also after a restart (a node with a state)
          2  the same; twice only if the bridge is killed between the broker's answer and the next commit

The session is kept by the broker under the client's id, so that what is published while the bridge is away comes when
it is back. A retained message comes as an event, once for each time that the bridge subscribes anew, unless
`retained=False`; with `Mapping(retain=True)` what goes out is retained.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from headwater.bridges.contract import WINDOW, Bridge
from headwater.bridges.mapping import MAX_PAYLOAD, Mapping, Translation
from headwater.bridges.topics import MQTT
from headwater.errors import ClosedError, ConfigError, ConfigProblem
from headwater.extras import require

require("mqtt", "headwater.bridges.mqtt")

import paho.mqtt.client as paho  # noqa: E402
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402
from paho.mqtt.subscribeoptions import SubscribeOptions  # noqa: E402

if TYPE_CHECKING:
    from headwater.federation.node import Node

log = logging.getLogger("headwater.bridges")
FIRST_PAUSE, LONGEST_PAUSE = 1, 30  # seconds between attempts to connect
SESSION_SECONDS = 7 * 86_400  # for which a broker of version 5 is asked to keep the session
RECHECK_SECONDS = 0.5


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
        super().__init__(node, name, mappings, limit=limit, window=window)
        host, colon, port = broker.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError([ConfigProblem("MqttBridge: broker", "HOST:PORT, as in 127.0.0.1:1883", repr(broker))])
        if version not in ("3.1.1", "5"):
            raise ConfigError([ConfigProblem("MqttBridge: version", "'3.1.1' or '5'", repr(version))])
        self._address, self._keepalive, self._retained = (host.strip("[]"), int(port)), keepalive, retained
        self._five = version == "5"
        self._topics: dict[str, int] = {}
        self._there = threading.Event()
        self._noting = threading.Lock()
        self._done: dict[int, Callable[[], None]] = {}  # by packet
        self._early: set[int] = set()  # packets that were done before they were noted
        self._client = self._made(client_id or f"headwater-{node.name}-{name}")
        if user is not None:
            self._client.username_pw_set(user, password)
        if tls:
            self._client.tls_set_context(tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context())

    def _made(self, client_id: str) -> Any:
        version = MQTTProtocolVersion.MQTTv5 if self._five else MQTTProtocolVersion.MQTTv311
        options: dict[str, Any] = {} if self._five else {"clean_session": False}
        made = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version, manual_ack=True, **options
        )
        made.max_inflight_messages_set(65_535)  # the window is ours
        made.reconnect_delay_set(FIRST_PAUSE, LONGEST_PAUSE)
        made.on_connect, made.on_disconnect = self._connected, self._lost
        made.on_message, made.on_publish = self._came, self._published
        return made

    # ── the connection ──

    @property
    def is_connected(self) -> bool:
        """Whether the broker is there at present."""
        return self._there.is_set() and not self.closing.is_set()

    def connect(self, incoming: list[Translation]) -> None:
        """In a thread of paho's, which tries again for ever."""
        self._topics = {each.topic.pattern: min(each.mapping.qos, 1) for each in incoming}
        options: dict[str, Any] = {}
        if self._five:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = SESSION_SECONDS
            options = {"clean_start": False, "properties": properties}
        self._client.connect_async(*self._address, keepalive=self._keepalive, **options)
        self._client.loop_start()

    def disconnect(self) -> None:
        """The session stays with the broker."""
        self._there.set()  # who waits for it finds that it is over
        self._client.disconnect()
        self._client.loop_stop()
        self._client._reset_sockets(sockpair_only=True)  # it would keep them until it is collected

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            log.error("bridge %s: the broker refuses: %s", self.name, reason)
            return
        self.counts["connected"] += 1
        for pattern, qos in self._topics.items():
            if self._five:
                client.subscribe(pattern, options=SubscribeOptions(qos=qos))
            else:
                client.subscribe(pattern, qos)
        self._there.set()

    def _lost(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.closing.is_set():
            self._there.clear()
            self.counts["lost"] += 1
            log.warning("bridge %s: the broker is gone (%s); trying again", self.name, reason)

    # ── in ──

    def _came(self, client: Any, data: Any, message: Any) -> None:
        """In paho's thread, which must not end: whatever goes wrong with one message is that message's."""
        try:
            if self._retained or not message.retain:
                self.take(message.topic, bytes(message.payload))
        except ClosedError:
            return  # it is not acknowledged, and comes again
        except Exception as error:
            self.complain("a topic that is none", error)
        client.ack(message.mid, message.qos)

    # ── out ──

    def send(self, mapping: Mapping, topic: str, payload: bytes, key: str, done: Callable[[], None]) -> None:
        """In the handler's thread: it waits for the connection, so that what cannot go stays where it is kept."""
        while not self._there.wait(RECHECK_SECONDS):
            pass
        if self.closing.is_set():
            raise ClosedError(f"bridge {self.name!r} is closed: the event goes out the next time")
        options: dict[str, Any] = {}
        if self._five:
            properties = Properties(PacketTypes.PUBLISH)
            properties.ContentType = "application/json" if mapping.payload == "json" else "application/octet-stream"
            options["properties"] = properties
        # No lock of ours is held there: paho calls back with one of its own.
        told = self._client.publish(topic, payload, qos=mapping.qos, retain=mapping.retain, **options)
        with self._noting:
            if told.mid not in self._early:
                self._done[told.mid] = done
                return
            self._early.discard(told.mid)
        done()

    def _published(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        """The broker has a packet; for quality 0, it was written. In paho's thread, or in that of `send`."""
        with self._noting:
            done = self._done.pop(mid, None)
            if done is None:
                self._early.add(mid)
        if done is not None:
            try:
                done()
            except Exception as error:  # paho's thread must not end
                log.exception("bridge %s: what has gone out could not be noted", self.name, exc_info=error)


__all__ = ["MqttBridge"]
