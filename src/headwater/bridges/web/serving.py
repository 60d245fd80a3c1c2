"""What everything that serves web clients shares: limits, counts, sessions, and who waits for what."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from aiohttp import web

from headwater.bridges.web.feeds import Feeds
from headwater.bridges.web.gate import Gate
from headwater.bridges.web.session import Portion, Session, Sessions
from headwater.bridges.web.settings import WebLimits
from headwater.services.policy.identity import NOBODY, Identity

COUNTS = ("connected", "refused", "published", "sent", "dropped", "resumed", "bad")


class Serving:
    """Of one bridge. `ending` and `loop` are there from `open` on."""

    ending: asyncio.Event
    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, gate: Gate, feeds: Feeds, limits: WebLimits, keep: float, name: str) -> None:
        self.gate, self.feeds, self.limits = gate, feeds, limits
        self.sessions = Sessions(keep)
        self.counts = dict.fromkeys(COUNTS, 0)
        self._threads = ThreadPoolExecutor(4, name)  # for what waits, or computes long

    def open(self) -> None:
        """In the thread of the loop."""
        self.loop, self.ending = asyncio.get_running_loop(), asyncio.Event()

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def identified(self, request: web.Request, user: str, password: str, token: str) -> Identity:
        """Who has come; SecurityError if that is not shown."""
        if not (user or password or token) and self.gate.anonymous:
            return NOBODY
        found: Identity = await self.work(self.gate.identify, request.remote or "", user, password, token)
        return found

    async def work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Whatever may wait, or takes long, in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(function, *arguments))

    def begin(self, identity: Identity) -> Session:
        """A new session; HTTPServiceUnavailable if there are too many."""
        session = self.sessions.begin(identity)
        if session is None:
            raise web.HTTPServiceUnavailable(reason="there are too many clients")
        self.counts["connected"] += 1
        return session

    def end(self, session: Session) -> None:
        """A session is no more, with its subscriptions."""
        for feed in self.sessions.end(session):
            self.feeds.cancel(feed)

    def stir(self, session: Session) -> None:
        """There is something to send; by any thread."""
        if self.loop is not None:
            with suppress(RuntimeError):  # it is closed
                self.loop.call_soon_threadsafe(session.wake)


async def send_until_gone(
    serving: Serving,
    session: Session,
    turn: int,
    send: Callable[[int, Any, Portion], Awaitable[None]],
    idle: Callable[[], Awaitable[Any]] | None = None,
) -> None:
    """Send what there is whenever there is something, until all subscriptions of a follower have ended, or the client
    has come by another connection: then it has another turn, and nothing more is taken for this one."""
    stirred = asyncio.Event()
    if session.turn != turn:
        return
    session.wake = stirred.set
    stirred.set()
    while not serving.ending.is_set() and session.turn == turn:
        try:
            async with asyncio.timeout(serving.limits.ping):  # and not wait_for, which may swallow that it is cancelled
                await stirred.wait()
        except TimeoutError:
            if idle is not None:
                await idle()
            continue
        stirred.clear()
        for id, feed in session.pending():
            while session.turn == turn and (portion := feed.take()) is not None:
                serving.counts["sent"] += len(portion.events)
                serving.counts["dropped"] += portion.dropped
                async with asyncio.timeout(serving.limits.write):
                    await send(id, feed, portion)
            if session.turn != turn or (feed.why and idle is not None):
                return
            if feed.why and id in session.feeds:  # nothing was left to send with it
                await asyncio.wait_for(send(id, feed, Portion(feed.number + 1, [], 0)), serving.limits.write)


def said_as(**fields: Any) -> str:
    """A message of the bridge."""
    return json.dumps(fields, ensure_ascii=False)


def short(error: BaseException) -> bytes:
    """A reason, in the 123 bytes that there are for one."""
    return str(error).encode()[:120].decode(errors="ignore").encode()


__all__ = ["Serving", "said_as", "send_until_gone", "short"]
