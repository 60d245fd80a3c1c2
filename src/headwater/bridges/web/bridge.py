"""The bridge of web clients: `node.services.add(WebBridge(node, "127.0.0.1:8080"))`.

    GET  /                            a page that says what is here
    GET  /headwater.js                the module for browsers
    GET  /ws                          WebSocket: subscribe, publish, go on after a break (`messages.py`)
    GET  /channels                    the channels that one may know of
    POST /channels/NAME               publish: one event as JSON, or several, a line each (application/x-ndjson)
    GET  /channels/NAME/events        follow it: server-sent events; ?where=… and ?param.NAME=… as of any subscription

It has a thread of its own with an event loop. Interests run where they do for any subscription of the node: at the
sources. What comes from the network is bounded in size, rate and time; who reads too slowly loses the oldest, and is
told; pages of other sites can do nothing here unless `origins` names them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import json
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from headwater.bridges.web import messages
from headwater.bridges.web.feeds import Feeds, Refused
from headwater.bridges.web.gate import Gate, TooOften
from headwater.bridges.web.session import Portion, Session, Sessions
from headwater.channel.names import Pattern
from headwater.channel.services import Service
from headwater.errors import (
    ClosedError,
    ConfigError,
    ConfigProblem,
    EncodeError,
    FrameError,
    HeadwaterError,
    SecurityError,
)
from headwater.services.policy.identity import NOBODY, Identity
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.federation.node import Node
    from headwater.federation.security.tokens import Issuer

log = logging.getLogger("headwater.bridges")
SCRIPT = Path(__file__).with_name("headwater.js")
HEADER = 16  # bytes before the records of a binary message: subscription, 0, and the number of the first


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What a client may cost. Seconds, bytes and numbers."""

    connections: int = 2048
    message: int = 1 << 16  # bytes of a message of a WebSocket
    body: int = 1 << 20  # bytes of a POST
    rate: float = 1000.0  # messages a second, of one client
    burst: int = 2000
    hello: float = 5.0  # seconds until a client must have said who it is, or sent a request
    write: float = 30.0  # seconds in which it must take what is sent
    ping: float = 20.0  # seconds between signs of life of an idle WebSocket


class WebBridge(Service):
    """Lets web clients attach to a node.

    `listen` is HOST:PORT, port 0 for any free one: `endpoint` says which. `channels` are patterns of those that it
    shows. `origins` are sites whose pages may use it besides its own; `hosts`, names by which it may be addressed.
    `anonymous`: whether one may come in without saying who one is; unless said, where the node knows no users and only
    this machine reaches it. `issuers` are whose tokens count. `certificate` and `key` are PEM files, for TLS, without
    which it listens on this machine only. `keep` is for how many seconds a client that is gone may come back.
    """

    def __init__(
        self,
        node: Node,
        listen: str = "127.0.0.1:8080",
        *,
        channels: Sequence[str] = ("**",),
        origins: Sequence[str] = (),
        hosts: Sequence[str] = (),
        anonymous: bool | None = None,
        issuers: Sequence[Issuer] = (),
        certificate: str | None = None,
        key: str | None = None,
        keep: float = 30.0,
        limits: WebLimits | None = None,
        name: str = "web",
    ) -> None:
        self.name, self._node, self.limits = name, node, limits or WebLimits()
        self._gate = Gate(node, anonymous=bool(anonymous), issuers=issuers)
        self._host, self._port = _address(listen)
        self._tls = _tls(certificate, key)
        loopback = _is_loopback(self._host)
        self._gate.anonymous = (loopback and not self._gate.knows_somebody) if anonymous is None else anonymous
        _check_reach(listen, loopback, self._tls is not None, self._gate)
        self._patterns = tuple(Pattern(each) for each in channels)
        self._origins = frozenset(each.rstrip("/").lower() for each in origins)
        self._hosts = frozenset(each.lower() for each in hosts) | (
            {"localhost", "127.0.0.1", "[::1]"} if loopback else set()
        )
        self.sessions = Sessions(keep)
        self._feeds = Feeds(node, self._gate, self._shows)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self._thread = Supervised(self._run, f"headwater-{node.name}-{name}", node._crashes)
        self._slow = ThreadPoolExecutor(4, f"headwater-{node.name}-{name}-work")  # what waits, or computes long
        self._open: dict[asyncio.BaseTransport, float] = {}  # connections that have not said anything yet, since when
        self._spoken: set[asyncio.BaseTransport] = set()
        self._counts = dict.fromkeys(("connected", "refused", "published", "sent", "dropped", "resumed", "bad"), 0)
        self.endpoint = ""

    # ── as a service ──

    def start(self) -> None:
        """Listen; what keeps it from that is raised here."""
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Part with everybody."""
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ending.set)
            if threading.current_thread() is not self._thread:
                self._thread.join(10.0)
        self._slow.shutdown(wait=False, cancel_futures=True)

    def report(self) -> Mapping[str, Any]:
        """Counts, and who is there."""
        connected = sum(each.left is None for each in self.sessions)
        return {
            "endpoint": self.endpoint,
            "clients": connected,
            "away": len(self.sessions) - connected,
            "subscriptions": sum(len(each.feeds) for each in self.sessions),
            **self._counts,
        }

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        application = web.Application(middlewares=[self._guard], client_max_size=self.limits.body)
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/headwater.js", self._script),
                web.get("/ws", self._socket),
                web.get("/channels", self._channels),
                web.post("/channels/{channel}", self._publish),
                web.get("/channels/{channel}/events", self._follow),
                web.options("/{path:.*}", self._preflight),
            ]
        )
        runner = web.AppRunner(application, access_log=None, keepalive_timeout=30.0, shutdown_timeout=2.0)
        try:
            await runner.setup()
            server = await self._loop.create_server(
                functools.partial(self._connected, runner), self._host, self._port, ssl=self._tls
            )
        except BaseException as error:
            self._failure = _opening(error, self._host, self._port)
            self._opened.set()
            return
        host, port = server.sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.endpoint = f"{'https' if self._tls else 'http'}://{shown}:{port}"
        self._opened.set()
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._ending.wait()
        finally:
            sweeping.cancel()
            server.close()
            for session in self.sessions:
                session.wake()
            await runner.cleanup()
            for session in self.sessions:
                self._end(session)

    def _connected(self, runner: web.AppRunner) -> asyncio.BaseProtocol:
        """The protocol of a connection, which is watched until it has said something."""
        assert runner.server is not None
        protocol = runner.server()
        begin, end = protocol.connection_made, protocol.connection_lost

        def made(transport: asyncio.BaseTransport) -> None:
            if len(self._open) + len(self._spoken) >= self.limits.connections:
                self._counts["refused"] += 1
                transport.abort()  # type: ignore[attr-defined]
                return
            self._open[transport] = monotonic()
            begin(transport)

        def lost(error: BaseException | None) -> None:
            for transport in [each for each in (*self._open, *self._spoken) if each.is_closing()]:
                self._open.pop(transport, None)
                self._spoken.discard(transport)
            with suppress(AttributeError, AssertionError):  # it was never begun
                end(error)

        protocol.connection_made, protocol.connection_lost = made, lost  # type: ignore[method-assign]
        return protocol

    async def _sweep(self) -> None:
        """Part with who has said nothing, and forget who does not come back."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.hello))
            now = monotonic()
            for transport, since in list(self._open.items()):
                if now - since > self.limits.hello:
                    self._counts["refused"] += 1
                    self._open.pop(transport, None)
                    transport.abort()  # type: ignore[attr-defined]
            for session in self.sessions.expired(now):
                self._end(session)

    def _end(self, session: Session) -> None:
        for feed in self.sessions.end(session):
            self._feeds.cancel(feed)

    # ── at the door ──

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        """Nothing for pages of other sites, nor for names that lead here by chance; errors as JSON."""
        if request.transport is not None:
            self._open.pop(request.transport, None)
            self._spoken.add(request.transport)
        if not self._is_here(request):
            self._counts["refused"] += 1
            return _problem(403, f"expected a Host of {', '.join(sorted(self._hosts))}; name others: hosts=[…]")
        origin = request.headers.get("Origin", "")
        if origin and not self._is_welcome(request, origin):
            self._counts["refused"] += 1
            return _problem(403, "pages of this site may do nothing here; name it: WebBridge(…, origins=[…])")
        try:
            answer = await handler(request)
        except web.HTTPException as error:
            answer = _problem(error.status, error.reason)
        except TooOften as error:
            answer = _problem(429, str(error))
        except SecurityError as error:
            answer = _problem(401, str(error), {"WWW-Authenticate": 'Basic realm="headwater", charset="UTF-8"'})
        except (EncodeError, FrameError) as error:
            self._counts["bad"] += 1
            answer = _problem(400, str(error))
        except HeadwaterError as error:
            answer = _problem(403 if isinstance(error, Refused) else 400, str(error))
        if origin and not answer.prepared:
            answer.headers["Access-Control-Allow-Origin"] = origin
            answer.headers["Vary"] = "Origin"
        return answer

    def _is_here(self, request: web.Request) -> bool:
        """A page of anybody may have a name that leads to this address: who asks for that name is not meant."""
        host = request.host.lower()
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return name in self._hosts or not self._hosts

    def _is_welcome(self, request: web.Request, origin: str) -> bool:
        own = f"{'https' if self._tls else 'http'}://{request.host}".lower()
        return origin.lower() in (own, *self._origins)

    async def _preflight(self, request: web.Request) -> web.Response:
        return web.Response(
            status=204,
            headers={
                "Access-Control-Allow-Methods": "GET, POST",
                "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID",
                "Access-Control-Max-Age": "600",
            },
        )

    async def _identity(self, request: web.Request) -> Identity:
        """Of a request, by its header; SecurityError if that shows nobody."""
        kind, _, rest = request.headers.get("Authorization", "").partition(" ")
        user = password = token = ""
        match kind.lower():
            case "basic":
                try:
                    user, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
                except (binascii.Error, UnicodeDecodeError):
                    raise SecurityError("Authorization: expected Basic with user:password in base64", "login") from None
            case "bearer":
                token = rest.strip()
            case "":
                pass
            case _:
                raise SecurityError("Authorization: expected Basic or Bearer, found another", "login")
        return await self._identified(request, user, password, token)

    async def _identified(self, request: web.Request, user: str, password: str, token: str) -> Identity:
        if not (user or password or token) and self._gate.anonymous:
            return NOBODY
        return await self._work(self._gate.identify, request.remote or "", user, password, token)

    async def _work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Whatever may wait, or takes long, in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._slow, functools.partial(function, *arguments))

    def _shows(self, channel: str) -> bool:
        return any(each.matches(channel) for each in self._patterns)

    # ── pages ──

    async def _index(self, request: web.Request) -> web.Response:
        text = (__doc__ or "").partition("\n\n")[2]
        return web.Response(text=f"Headwater, node {self._node.name}\n\n{text}", content_type="text/plain")

    async def _script(self, request: web.Request) -> web.Response:
        return web.Response(text=SCRIPT.read_text(encoding="utf-8"), content_type="text/javascript")

    async def _channels(self, request: web.Request) -> web.Response:
        identity = await self._identity(request)
        return web.json_response({"channels": await self._work(self._feeds.listed, identity)})

    # ── HTTP ──

    async def _publish(self, request: web.Request) -> web.Response:
        """One event, or several: all or none."""
        identity = await self._identity(request)
        channel = request.match_info["channel"]
        kind = request.content_type
        if kind not in ("application/json", "application/x-ndjson"):
            raise FrameError(f"Content-Type: expected application/json or application/x-ndjson, found {kind}")
        body = await request.read()
        lines = [body] if kind == "application/json" else [line for line in body.splitlines() if line.strip()]
        count = await self._work(self._feeds.publish, identity, channel, lines)
        self._counts["published"] += count
        return web.json_response({"published": count})

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, until the client leaves; with Last-Event-ID it goes on where it was."""
        identity = await self._identity(request)
        session = await self._followed(request, identity)
        feed = session.feeds[0]
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        if origin := request.headers.get("Origin"):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"
        await response.prepare(request)
        try:
            await self._until_gone(
                session,
                functools.partial(_send_lines, response, session.key),
                lambda: asyncio.wait_for(response.write(b": \n\n"), self.limits.write),
            )
            if feed.why:
                await response.write(b"event: ended\ndata: " + json.dumps(feed.why).encode() + b"\n\n")
        except (ConnectionError, asyncio.TimeoutError, TimeoutError):
            pass
        finally:
            self.sessions.leave(session, monotonic())
        return response

    async def _followed(self, request: web.Request, identity: Identity) -> Session:
        """The session of a client that follows a channel: one that it had, or a new one."""
        key, _, number = request.headers.get("Last-Event-ID", "").rpartition(":")
        if key and number.isdecimal() and len(number) < 17:
            found = self.sessions.resume(key, identity, {"0": int(number)})
            if found is not None:
                self._counts["resumed"] += 1
                return found
        session = self._begin(identity)
        asked = messages.Subscribe(
            0,
            request.match_info["channel"],
            request.query.get("where", ""),
            {name[6:]: _value(text) for name, text in request.query.items() if name.startswith("param.")},
        )
        try:
            session.feeds[0] = await self._work(
                self._feeds.open, identity, asked, functools.partial(self._stir, session)
            )
        except BaseException:
            self._end(session)
            raise
        return session

    def _begin(self, identity: Identity) -> Session:
        session = self.sessions.begin(identity)
        if session is None:
            raise web.HTTPServiceUnavailable(reason="there are too many clients")
        self._counts["connected"] += 1
        return session

    def _stir(self, session: Session) -> None:
        """There is something to send; by any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(session.wake)

    async def _until_gone(
        self,
        session: Session,
        send: Callable[[int, Any, Portion], Awaitable[None]],
        idle: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """Send what there is whenever there is something, until all subscriptions of a follower have ended."""
        stirred = asyncio.Event()
        session.wake = stirred.set
        stirred.set()
        while not self._ending.is_set():
            try:
                await asyncio.wait_for(stirred.wait(), self.limits.ping)
            except (asyncio.TimeoutError, TimeoutError):
                if idle is not None:
                    await idle()
                continue
            stirred.clear()
            for id, feed in session.pending():
                while (portion := feed.take()) is not None:
                    self._counts["sent"] += len(portion.events)
                    self._counts["dropped"] += portion.dropped
                    await asyncio.wait_for(send(id, feed, portion), self.limits.write)
                if feed.why and idle is not None:
                    return

    # ── WebSocket ──

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """A client, from its hello until it leaves."""
        socket = web.WebSocketResponse(
            max_msg_size=self.limits.message, heartbeat=self.limits.ping, autoping=True, compress=False
        )
        await socket.prepare(request)
        try:
            session = await asyncio.wait_for(self._greeted(request, socket), self.limits.hello)
        except (asyncio.TimeoutError, TimeoutError):
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"expected a hello")
            return socket
        if session is None:
            return socket
        sending = asyncio.create_task(self._send_all(session, socket))
        try:
            await self._hear(session, socket)
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await sending
            self.sessions.leave(session, monotonic())
            if socket.close_code == WSCloseCode.OK or self._ending.is_set():
                self._end(session)  # it has said goodbye
        return socket

    async def _greeted(self, request: web.Request, socket: web.WebSocketResponse) -> Session | None:
        """The session of who has said who it is; None if it was parted with."""
        first = await socket.receive()
        if first.type != WSMsgType.TEXT:
            await socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"expected text")
            return None
        try:
            hello = messages.read(first.data)
            if not isinstance(hello, messages.Hello):
                raise FrameError("expected a hello first, found another message")
            identity = await self._identified(request, hello.user, hello.password, hello.token)
        except (SecurityError, FrameError) as error:
            self._counts["refused"] += 1
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=_short(error))
            return None
        session = self.sessions.resume(hello.session, identity, hello.after) if hello.session else None
        resumed = session is not None
        self._counts["resumed"] += resumed
        if session is None:
            try:
                session = self._begin(identity)
            except web.HTTPServiceUnavailable as error:
                await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=error.reason.encode())
                return None
        await socket.send_str(_said(op="welcome", session=session.key, resumed=resumed, user=identity.user))
        return session

    async def _hear(self, session: Session, socket: web.WebSocketResponse) -> None:
        """What a client says, one message after the other, no faster than it may."""
        tokens, last = float(self.limits.burst), monotonic()
        async for message in socket:
            now = monotonic()
            tokens = min(self.limits.burst, tokens + (now - last) * self.limits.rate) - 1
            last = now
            if tokens < 0:
                self._counts["refused"] += 1
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many messages")
                return
            if message.type != WSMsgType.TEXT:
                self._counts["bad"] += 1
                await socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"expected text")
                return
            try:
                said = messages.read(message.data)
            except FrameError as error:
                self._counts["bad"] += 1
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=_short(error))
                return
            answer = await self._answer(session, said)
            if answer is not None:
                await asyncio.wait_for(socket.send_str(answer), self.limits.write)
            session.wake()

    async def _answer(self, session: Session, said: messages.Message) -> str | None:
        """What a message leads to; errors are answers."""
        id = getattr(said, "id", None)
        try:
            match said:
                case messages.Subscribe():
                    self._feeds.check_room(session, said)
                    feed = await self._work(
                        self._feeds.open, session.identity, said, functools.partial(self._stir, session)
                    )
                    session.feeds[said.id] = feed
                    return _said(op="subscribed", id=id, type=self._feeds.described(said.channel))
                case messages.Change():
                    points = await self._work(self._feeds.change, session.identity, session.feeds.get(said.id), said)
                    return _said(op="changed", id=id, points=points)
                case messages.Cancel():
                    if (ended := session.feeds.pop(said.id, None)) is not None:
                        await self._work(self._feeds.cancel, ended)
                case messages.Publish():
                    data = msgspec.json.encode(said.event)
                    await self._work(self._feeds.publish, session.identity, said.channel, [data])
                    self._counts["published"] += 1
                    return _said(op="published", id=id)
                case messages.Ack():
                    for name, upto in said.upto.items():
                        feed = session.feeds.get(int(name)) if name.isdecimal() and len(name) < 11 else None
                        if feed is not None:
                            feed.acknowledge(upto)
                case messages.Hello():
                    return _said(op="refused", why="expected one hello, found another")
        except ClosedError as error:
            return _said(op="refused", id=id, why=str(error))
        except HeadwaterError as error:
            self._counts["bad"] += 1
            return _said(op="refused", id=id, why=str(error))
        return None

    async def _send_all(self, session: Session, socket: web.WebSocketResponse) -> None:
        """Events to one client; one that does not take them is parted with, and may come back."""

        async def send(id: int, feed: Any, portion: Portion) -> None:
            if portion.dropped:
                await socket.send_str(_said(op="dropped", id=id, count=portion.dropped))
            if portion.events and feed.binary:
                parts = [id.to_bytes(4, "little"), bytes(4), portion.first.to_bytes(8, "little")]
                for data in portion.events:
                    parts += (len(data).to_bytes(4, "little"), data)
                await socket.send_bytes(b"".join(parts))
            elif portion.events:
                head = f'{{"op":"events","id":{id},"first":{portion.first},"events":['.encode()
                await socket.send_str((head + b",".join(portion.events) + b"]}").decode())
            if feed.why:
                await socket.send_str(_said(op="ended", id=id, why=feed.why))
                session.feeds.pop(id, None)

        try:
            await self._until_gone(session, send)
        except (ConnectionError, asyncio.TimeoutError, TimeoutError):
            self._counts["refused"] += 1
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"too slow")


async def _send_lines(response: web.StreamResponse, key: str, id: int, feed: Any, portion: Portion) -> None:
    """Events as server-sent ones."""
    lines = [b"event: dropped\ndata: %d\n\n" % portion.dropped] if portion.dropped else []
    lines += [
        b"id: %b:%d\ndata: %b\n\n" % (key.encode(), number, data)
        for number, data in enumerate(portion.events, portion.first)
    ]
    await response.write(b"".join(lines))
    feed.acknowledge(portion.first - 1)  # what a client had before that, it need not ask for again


def _said(**fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _short(error: BaseException) -> bytes:
    """A reason, in the 123 bytes that there are for one."""
    return str(error).encode()[:120].decode(errors="ignore").encode()


def _problem(status: int, why: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": why}, status=status, headers=headers)


def _value(text: str) -> Any:
    """A parameter in an address: JSON, or else text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return text


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or not host:
        raise ConfigError([ConfigProblem("WebBridge: listen", "HOST:PORT, such as 127.0.0.1:8080", repr(listen))])
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "key" if key is None else "certificate"
        raise ConfigError([ConfigProblem(f"WebBridge: {missing}", "certificate and key together", "one of them")])
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        made.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            [ConfigProblem("WebBridge: certificate", "PEM files that belong together", str(error))]
        ) from None
    return made


def _check_reach(listen: str, loopback: bool, tls: bool, gate: Gate) -> None:
    """Nothing leaves the machine in the clear, or for everybody, unless that was said."""
    problems: list[ConfigProblem] = []
    if not loopback and not tls and not gate.security.open:
        hint = "give certificate= and key=; or stay on this machine: 127.0.0.1:8080"
        problems.append(ConfigProblem("WebBridge: listen", "TLS beyond this machine", listen, hint))
    if not gate.anonymous and not gate.knows_somebody:
        hint = "give the node Security(users=…), issuers=[…], or let everybody in who reaches it: anonymous=True"
        problems.append(ConfigProblem("WebBridge", "a way to log in", "none", hint))
    if problems:
        raise ConfigError(problems)


def _opening(error: BaseException, host: str, port: int) -> BaseException:
    if isinstance(error, OSError):
        problem = ConfigProblem("WebBridge: listen", "an address where it may listen", f"{host}:{port}: {error}")
        return ConfigError([problem])
    return error


__all__ = ["WebBridge", "WebLimits"]
