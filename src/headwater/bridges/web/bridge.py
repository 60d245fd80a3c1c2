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
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from aiohttp import web

from headwater.bridges.web import messages
from headwater.bridges.web.doorway import Complaints, Doorway, Watched
from headwater.bridges.web.feeds import Feeds, NotNow, Refused
from headwater.bridges.web.gate import WHILE_SECONDS, Gate, TooOften
from headwater.bridges.web.responses import GUARDED, bearer, client_of, problem, send_lines, told, value_of
from headwater.bridges.web.serving import Serving, owner_of, send_until_gone
from headwater.bridges.web.session import Session
from headwater.bridges.web.settings import (
    WebLimits,
    address,
    check_channels,
    check_reach,
    is_address,
    is_loopback,
    networks,
    opening,
    tls,
)
from headwater.bridges.web.websocket import SocketServer
from headwater.channel.names import Pattern
from headwater.channel.services import Service
from headwater.errors import (
    EncodeError,
    FrameError,
    HeadwaterError,
    SecurityError,
)
from headwater.services.policy.identity import Identity
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.federation.node import Node
    from headwater.federation.security.tokens import Issuer

log = logging.getLogger("headwater.bridges")
SCRIPT = Path(__file__).with_name("headwater.js")
FOREIGN = ("cross-site", "same-site")  # what browsers say of requests of pages that are not ours
PUBLIC = ("/", "/headwater.js")  # what anybody may have
HEADER = 16  # bytes before the records of a binary message: subscription, 0, and the number of the first


class WebBridge(Service):
    """Lets web clients attach to a node.

    `listen` is HOST:PORT, port 0 for any free one: `endpoint` says which. `channels` are patterns of those that it
    shows. `sources` are names of channels in which it has a source from the start, and not with the first event of a
    client: other nodes hear of a source, and then ask for its events. `origins` are sites whose pages may use it
    besides its own; `hosts`, names by which it may be addressed. `proxies` are addresses, or networks, of proxies that
    say in X-Forwarded-For whom they speak for: clients are counted by that. `anonymous`: whether one may come in
    without saying who one is; unless said, where the node knows no users and only this machine reaches it. `issuers`
    are whose tokens count. `certificate` and `key` are PEM files, for TLS, without which it listens on this machine
    only. `keep` is for how many seconds a client that is gone may come back.
    """

    def __init__(
        self,
        node: Node,
        listen: str = "127.0.0.1:8080",
        *,
        channels: Sequence[str] = ("**",),
        sources: Sequence[str] = (),
        origins: Sequence[str] = (),
        hosts: Sequence[str] = (),
        proxies: Sequence[str] = (),
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
        self._host, self._port = address(listen)
        self._tls = tls(certificate, key)
        loopback = is_loopback(self._host)
        self._gate.anonymous = (loopback and not self._gate.knows_somebody) if anonymous is None else anonymous
        check_reach(listen, loopback, self._tls is not None, self._gate)
        self._patterns = tuple(Pattern(each) for each in channels)
        self._origins = frozenset(each.rstrip("/").lower() for each in origins)
        self._hosts = frozenset(each.lower() for each in hosts) | (
            {"localhost", "127.0.0.1", "[::1]"} if loopback else set()
        )
        self._proxies = networks("proxies", proxies)
        self._by_address = not (self._hosts or self._tls)  # a certificate says which names are ours; else no name is
        self._feeds = Feeds(node, self._gate, self._shows)
        self._sources = tuple(sources)
        check_channels(self._sources, self._shows, node)
        self._serving = Serving(self._gate, self._feeds, self.limits, keep, f"headwater-{node.name}-{name}-work")
        self._sockets = SocketServer(self._serving)
        self._opened: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self._thread = Supervised(self._run, f"headwater-{node.name}-{name}", node._crashes)
        self._doorway = Doorway(self.limits.connections, self.limits.hello, self.limits.write)
        self.endpoint = ""

    # ── as a service ──

    def start(self) -> None:
        """Listen; what keeps it from that is raised here."""
        self._feeds.prepare(self._sources)
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise self._failure
        if self._node._policies is not None:
            self._node._policies.watch(self._feeds.rejudge)

    def stop(self) -> None:
        """Part with everybody."""
        loop = self._serving.loop
        if loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._serving.ending.set)
            if threading.current_thread() is not self._thread:
                self._thread.join(10.0)
        self._serving.close()

    def report(self) -> Mapping[str, Any]:
        """Counts, and who is there."""
        connected = sum(each.left is None for each in self._serving.sessions)
        return {
            "endpoint": self.endpoint,
            "clients": connected,
            "away": len(self._serving.sessions) - connected,
            "subscriptions": sum(len(each.feeds) for each in self._serving.sessions),
            **self._serving.counts,
            "refused": self._serving.counts["refused"] + self._doorway.refused,
        }

    def _bad(self) -> None:
        self._serving.counts["bad"] += 1

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        """Listen until it is to end."""
        self._serving.open()
        application = web.Application(middlewares=[self._guard], client_max_size=self.limits.body)
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/headwater.js", self._script),
                web.get("/ws", self._sockets.serve, allow_head=False),
                web.get("/channels", self._channels),
                web.post("/channels/{channel}", self._publish),
                web.get("/channels/{channel}/events", self._follow, allow_head=False),
                web.options("/{path:.*}", self._preflight),
            ]
        )
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=Complaints(log, self._bad),
            auto_decompress=False,  # a few bytes may be as many as one likes
            keepalive_timeout=30.0,
            shutdown_timeout=2.0,
            handler_cancellation=True,
        )
        try:
            await runner.setup()
            server = await asyncio.get_running_loop().create_server(
                lambda: Watched(self._doorway, runner.server()),  # type: ignore[misc]
                self._host,
                self._port,
                ssl=self._tls,
                ssl_handshake_timeout=self.limits.hello if self._tls else None,  # before that nobody counts it
            )
        except BaseException as error:
            self._failure = opening(error, self._host, self._port)
            self._opened.set()
            return
        host, port = server.sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.endpoint = f"{'https' if self._tls else 'http'}://{shown}:{port}"
        self._opened.set()
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._serving.ending.wait()
        finally:
            sweeping.cancel()
            server.close()
            for session in self._serving.sessions:
                session.wake()
            await runner.cleanup()
            for session in self._serving.sessions:
                self._serving.end(session)

    async def _sweep(self) -> None:
        """Part with who has said nothing, and forget who does not come back."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.hello))
            self._doorway.sweep()
            for session in self._serving.sessions.expired(monotonic()):
                self._serving.end(session)
            for session in self._serving.sessions.logged_out():
                session.wake()  # its connection parts with it

    # ── at the door ──

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        """Nothing for pages of other sites, nor for names that lead here by chance; errors as JSON."""
        self._doorway.heard(request.transport)
        if self._proxies:
            request = request.clone(remote=client_of(request, self._proxies))
        if not self._is_here(request):
            self._serving.counts["refused"] += 1
            known = ", ".join(sorted(self._hosts)) or "an address"
            return problem(403, f"expected a Host of {known}; name others: hosts=[…]")
        origin = request.headers.get("Origin", "")
        if origin and not self._is_welcome(request, origin):
            self._serving.counts["refused"] += 1
            return problem(403, "pages of this site may do nothing here; name it: WebBridge(…, origins=[…])")
        if not origin and request.headers.get("Sec-Fetch-Site") in FOREIGN and request.path not in PUBLIC:
            self._serving.counts["refused"] += 1  # by a page, as an image or the like, which says not whose
            return problem(403, "pages of other sites may do nothing here but by fetch, EventSource or WebSocket")
        try:
            answer = await handler(request)
        except web.HTTPRequestEntityTooLarge:
            limit = f"expected at most {self.limits.body:,} bytes in a request, found more"
            answer = problem(413, f"{limit}; send several, or allow more: WebLimits(body=…)")
        except web.HTTPException as error:
            if isinstance(error, web.HTTPMethodNotAllowed) and error.allowed_methods <= {"OPTIONS"}:
                error = web.HTTPNotFound()  # which every path has an answer to
            later = error.headers.get("Retry-After")
            answer = problem(error.status, told(request, error), {"Retry-After": later} if later else None)
        except TooOften as error:
            answer = problem(429, str(error), {"Retry-After": f"{WHILE_SECONDS:.0f}"})
        except SecurityError as error:
            answer = problem(401, str(error), {"WWW-Authenticate": 'Basic realm="headwater", charset="UTF-8"'})
        except (EncodeError, FrameError) as error:
            self._serving.counts["bad"] += 1
            answer = problem(400, str(error))
        except NotNow as error:
            beside = {"published": error.published} if request.method == "POST" else {}
            answer = problem(503, str(error), {"Retry-After": "1"}, **beside)
        except HeadwaterError as error:
            answer = problem(403 if isinstance(error, Refused) else 400, str(error))
        if not answer.prepared:
            answer.headers.update(GUARDED)
            if origin:
                answer.headers["Access-Control-Allow-Origin"] = origin
                answer.headers["Vary"] = "Origin"
        return answer

    def _is_here(self, request: web.Request) -> bool:
        """A page of anybody may have a name that leads to this address: who asks for that name is not meant."""
        host = request.headers.get("Host", "").lower()
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._by_address:
            return is_address(name) or name in ("localhost", socket.gethostname().lower())
        return name in self._hosts or not self._hosts

    def _is_welcome(self, request: web.Request, origin: str) -> bool:
        own = f"{'https' if self._tls else 'http'}://{request.headers.get('Host', '')}".lower()
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
                except (binascii.Error, ValueError):  # also what is no ASCII, or no UTF-8
                    raise SecurityError("Authorization: expected Basic with user:password in base64", "login") from None
            case "bearer":
                token = bearer(request)
            case "":
                pass
            case _:
                raise SecurityError("Authorization: expected Basic or Bearer, found another", "login")
        return await self._serving.identified(request, user, password, token)

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
        self._serving.charge(owner_of(request, identity))
        return web.json_response({"channels": await self._serving.work(self._feeds.listed, identity)})

    # ── HTTP ──

    async def _publish(self, request: web.Request) -> web.Response:
        """One event, or several; all are checked before the first is published."""
        identity = await self._identity(request)
        owner = owner_of(request, identity)
        self._serving.charge(owner)
        channel = request.match_info["channel"]
        kind = request.content_type
        if kind not in ("application/json", "application/x-ndjson"):
            wanted = "expected application/json or application/x-ndjson (curl: -H 'Content-Type: application/json')"
            raise FrameError(f"Content-Type: {wanted}, found {kind}")
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise web.HTTPUnsupportedMediaType(reason="Content-Encoding: expected none, found one")
        try:
            async with asyncio.timeout(self.limits.read):
                body = await request.read()
        except TimeoutError:
            self._serving.counts["refused"] += 1
            raise web.HTTPRequestTimeout(reason="the body has not come in time") from None
        except web.RequestPayloadError as error:
            raise FrameError(f"expected a body as HTTP has them, found another: {error}") from None
        self._serving.charge(owner, len(body) // 1024)
        lines = [body] if kind == "application/json" else [line for line in body.splitlines() if line.strip()]
        count = await self._serving.publish(identity, channel, lines)
        return web.json_response({"published": count})

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, until the client leaves; with Last-Event-ID it goes on where it was."""
        identity = await self._identity(request)
        self._serving.charge(owner_of(request, identity), messages.COSTS[messages.Subscribe])
        session, anew = await self._followed(request, identity)
        session.until = self._gate.until(bearer(request))
        feed, turn = session.feeds[0], session.turn
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        if origin := request.headers.get("Origin"):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"
        try:
            await response.prepare(request)
            if anew:  # and it had something before: nobody knows how much it has missed
                await response.write(b"event: dropped\ndata: null\n\n")
            await send_until_gone(
                self._serving,
                session,
                turn,
                functools.partial(send_lines, response, session.key),
                functools.partial(response.write, b": \n\n"),
            )
            if feed.why:
                async with asyncio.timeout(self.limits.write):
                    await response.write(b"event: ended\ndata: " + json.dumps(feed.why).encode() + b"\n\n")
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # the end of the answer would wait for who does not read
        finally:
            self._serving.sessions.leave(session, turn, monotonic())
        return response

    async def _followed(self, request: web.Request, identity: Identity) -> tuple[Session, bool]:
        """The session of a client that follows a channel: one that it had, or a new one, and whether it begins anew
        although it had one. What has ended is refused: a browser would ask for it again and again."""
        last = request.headers.get("Last-Event-ID", "")
        key, _, number = last.rpartition(":")
        for name in request.query:
            if name != "where" and not name.startswith("param."):
                raise FrameError(f"query: expected where= and param.NAME=, found {name[:60]}=")
        asked = messages.Subscribe(
            0,
            request.match_info["channel"],
            request.query.get("where", ""),
            {name[6:]: value_of(text) for name, text in request.query.items() if name.startswith("param.")},
        )
        if key and number.isdecimal() and len(number) < 17:
            found = await self._serving.resume(key, identity, {"0": int(number)}, follows=asked)
            if found is not None and (why := found.feeds[0].why):
                self._serving.end(found)
                raise Refused(why)
            if found is not None:
                return found, False
        session = self._serving.begin(identity, owner_of(request, identity))
        session.follower = True
        try:
            await self._serving.subscribe(session, asked)
        except BaseException:
            self._serving.end(session)
            raise
        return session, bool(last)


__all__ = ["WebBridge", "WebLimits"]
