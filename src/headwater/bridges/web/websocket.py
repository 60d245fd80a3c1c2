"""WebSockets of web clients: a hello, then whatever a client asks, and events as they come."""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from time import monotonic
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from headwater.bridges.web import messages
from headwater.bridges.web.gate import TooOften, network_of
from headwater.bridges.web.serving import Serving, owner_of, said_as, send_until_gone, short
from headwater.bridges.web.session import Portion, Session
from headwater.errors import ClosedError, FrameError, HeadwaterError, SecurityError

GOODBYE_SECONDS = 1.0  # that one who is too slow has for reading that it is
LOGGED_OUT = 3000  # what a client is told whose token has expired: it may come back with another
ELSEWHERE = 4001  # and one that has come by another connection, on the earlier one
ALIVE = '{"op":"alive"}'


class SocketServer:
    """Of one bridge."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """A client, from its hello until it leaves."""
        self._serving.charge(network_of(request.remote or ""))
        socket = web.WebSocketResponse(
            max_msg_size=self._serving.limits.message,
            heartbeat=self._serving.limits.ping,
            autoping=False,  # pings count as messages do
            compress=False,
        )
        try:
            await socket.prepare(request)
        except (web.HTTPBadRequest, ValueError):  # the latter of headers that are no ASCII
            raise web.HTTPBadRequest(reason="expected the headers of a WebSocket, found others") from None
        try:
            async with asyncio.timeout(self._serving.limits.hello):
                welcome = await self._greeted(request, socket)
        except TimeoutError:
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"expected a hello in time")
            return socket
        if welcome is None:
            return socket
        session, text = welcome
        turn, sending, parted = session.turn, None, asyncio.Event()
        try:
            await socket.send_str(text)
            sending = asyncio.create_task(self._send_all(session, turn, request, socket, parted))
            await self._hear(session, turn, socket)
        except TimeoutError:  # it does not take what is said to it
            self._serving.counts["refused"] += 1
            if request.transport is not None:
                request.transport.abort()
        finally:
            if sending is not None:
                if not parted.is_set():  # else it waits for the client's answer to that
                    sending.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await sending
            goodbye = socket.close_code == WSCloseCode.OK and not parted.is_set()  # and no answer to ours
            if self._serving.sessions.leave(session, turn, monotonic()) and (goodbye or self._serving.ending.is_set()):
                self._serving.end(session)  # it has said goodbye
        return socket

    async def _greeted(self, request: web.Request, socket: web.WebSocketResponse) -> tuple[Session, str] | None:
        """The session of who has said who it is, and what it is told; None if it was parted with."""
        first = await socket.receive()
        while first.type in (WSMsgType.PING, WSMsgType.PONG):
            first = await socket.receive()
        if first.type != WSMsgType.TEXT:
            await socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"expected text")
            return None
        try:
            hello = messages.read(first.data)
            if not isinstance(hello, messages.Hello):
                raise FrameError("expected a hello first, found another message")
            identity = await self._serving.identified(request, hello.user, hello.password, hello.token)
        except (SecurityError, FrameError) as error:
            self._serving.counts["refused"] += 1
            passes = isinstance(error, TooOften)  # others at its address may have failed
            code = WSCloseCode.TRY_AGAIN_LATER if passes else WSCloseCode.POLICY_VIOLATION
            await socket.close(code=code, message=short(error))
            return None
        session = await self._serving.resume(hello.session, identity, hello.after)
        resumed = session is not None
        if session is None:
            try:
                session = self._serving.begin(identity, owner_of(request, identity))
            except web.HTTPServiceUnavailable as error:
                await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=error.reason.encode())
                return None
        session.until = self._serving.gate.until(hello.token)
        return session, said_as(
            op="welcome",
            session=session.key,
            resumed=resumed,
            user=identity.user,
            subscriptions=sorted(session.feeds),
            alive=self._serving.limits.ping,
        )

    async def _hear(self, session: Session, turn: int, socket: web.WebSocketResponse) -> None:
        """What a client says, one message after the other, no faster than it may."""
        tokens, last = float(self._serving.limits.burst), monotonic()
        async for message in socket:
            now = monotonic()
            tokens = min(self._serving.limits.burst, tokens + (now - last) * self._serving.limits.rate) - 1
            last = now
            if tokens < 0:
                self._serving.counts["refused"] += 1
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many messages")
                return
            if message.type == WSMsgType.PONG:
                continue
            if message.type == WSMsgType.PING:
                async with asyncio.timeout(self._serving.limits.write):
                    await socket.pong(message.data)
                continue
            if message.type == WSMsgType.ERROR:  # it has been closed
                self._serving.counts["bad"] += 1
                return
            try:
                if message.type == WSMsgType.BINARY:
                    said: messages.Message | messages.PublishRecord = messages.read_record(message.data)
                else:
                    said = messages.read(message.data)
            except FrameError as error:
                self._serving.counts["bad"] += 1
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=short(error))
                return
            tokens -= messages.COSTS.get(said.__class__, 1) - 1
            if session.turn != turn or session.is_logged_out:
                session.wake()  # it is being parted with
                continue
            answer = await self._answer(session, said)
            if answer is not None:
                async with asyncio.timeout(self._serving.limits.write):
                    await socket.send_str(answer)
            session.wake()

    async def _answer(self, session: Session, said: messages.Message | messages.PublishRecord) -> str | None:
        """What a message leads to; errors are answers."""
        id = getattr(said, "id", None)
        try:
            match said:
                case messages.Subscribe():
                    self._serving.feeds.check_room(session, said)
                    made = await self._serving.subscribe(session, said)
                    type = self._serving.feeds.described(said.channel)
                    return said_as(op="subscribed", id=id, type=type, remarks=made.remarks)
                case messages.Change():
                    changed = session.feeds.get(said.id)
                    points = await self._serving.work(self._serving.feeds.change, session.identity, changed, said)
                    return said_as(op="changed", id=id, points=points, remarks=changed.remarks if changed else [])
                case messages.Cancel():
                    if (ended := session.feeds.pop(said.id, None)) is not None:
                        await self._serving.work(self._serving.feeds.cancel, ended)
                case messages.Publish():
                    await self._serving.publish(session.identity, said.channel, [bytes(said.event)])
                    return said_as(op="published", id=id)
                case messages.PublishRecord():
                    await self._serving.publish(session.identity, said.channel, [said.record], binary=True)
                    return said_as(op="published", id=id)
                case messages.Ack():
                    for name, upto in said.upto.items():
                        feed = session.feeds.get(int(name)) if name.isdecimal() and len(name) < 11 else None
                        if feed is not None:
                            feed.acknowledge(upto)
                case messages.Hello():
                    return said_as(op="refused", why="expected one hello, found another")
        except ClosedError as error:
            return said_as(op="refused", id=id, why=str(error))
        except HeadwaterError as error:
            self._serving.counts["bad"] += 1
            return said_as(op="refused", id=id, why=str(error))
        return None

    async def _send_all(
        self,
        session: Session,
        turn: int,
        request: web.Request,
        socket: web.WebSocketResponse,
        parted: asyncio.Event,
    ) -> None:
        """Events to one client; one that does not take them is parted with, and may come back."""

        async def send(id: int, feed: Any, portion: Portion) -> None:
            if portion.dropped:
                await socket.send_str(said_as(op="dropped", id=id, count=portion.dropped))
            if portion.events and feed.binary:
                parts = [id.to_bytes(4, "little"), bytes(4), portion.first.to_bytes(8, "little")]
                for data in portion.events:
                    parts += (len(data).to_bytes(4, "little"), data)
                await socket.send_bytes(b"".join(parts))
            elif portion.events:
                head = f'{{"op":"events","id":{id},"first":{portion.first},"events":['.encode()
                await socket.send_str((head + b",".join(portion.events) + b"]}").decode())
            if feed.why:
                await socket.send_str(said_as(op="ended", id=id, why=feed.why))
                session.feeds.pop(id, None)

        try:
            await send_until_gone(self._serving, session, turn, send, functools.partial(socket.send_str, ALIVE))
            if session.turn != turn:
                parted.set()
                await socket.close(code=ELSEWHERE, message=b"it goes on by another connection")
            elif self._serving.ending.is_set():
                parted.set()
                await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the node ends")
            elif session.is_logged_out:
                parted.set()
                await socket.close(code=LOGGED_OUT, message=b"expected a login that has not expired")
        except (ConnectionError, TimeoutError):
            self._serving.counts["refused"] += 1
            parted.set()
            transport = request.transport
            try:
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"too slow")
            finally:
                if transport is not None:
                    transport.abort()  # what it was sent, and the goodbye, would wait for who does not read


__all__ = ["SocketServer"]
