"""What everything that serves web clients shares: limits, counts, sessions, and who waits for what."""

from __future__ import annotations

import asyncio
import functools
import json
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, monotonic_ns
from typing import Any

from aiohttp import web

from headwater.bridges.web.feeds import Feeds, NotNow
from headwater.bridges.web.gate import Gate, network_of
from headwater.bridges.web.messages import Subscribe
from headwater.bridges.web.session import Feed, Portion, Session, Sessions
from headwater.bridges.web.settings import WebLimits
from headwater.channel.options.rate import Rate
from headwater.channel.time.token_bucket import TokenBucket
from headwater.errors import ClosedError
from headwater.services.policy.identity import NOBODY, Identity

REMEMBERED = 4096  # clients, of which is known how much they have asked for
COUNTS = ("connected", "refused", "published", "sent", "dropped", "resumed", "bad")


class Serving:
    """Of one bridge. `ending` and `loop` are there from `open` on."""

    ending: asyncio.Event
    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, gate: Gate, feeds: Feeds, limits: WebLimits, keep: float, name: str) -> None:
        self.gate, self.feeds, self.limits = gate, feeds, limits
        self.sessions = Sessions(keep, client_bytes=limits.client_bytes, all_bytes=limits.all_bytes)
        self.counts = dict.fromkeys(COUNTS, 0)
        self._threads = ThreadPoolExecutor(4, name)  # for what computes long
        self._publishing = ThreadPoolExecutor(4, f"{name}-in")  # and for what may wait until there is room in a queue
        self._rate = Rate(limits.rate, burst=limits.burst).packed()
        self._rates: OrderedDict[str, TokenBucket] = OrderedDict()  # by client

    def open(self) -> None:
        """In the thread of the loop."""
        self.loop, self.ending = asyncio.get_running_loop(), asyncio.Event()

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._publishing.shutdown(wait=False, cancel_futures=True)

    def charge(self, owner: str, messages: int = 1) -> None:
        """A request of somebody counts as so many messages; HTTPTooManyRequests if they are too many."""
        bucket = self._rates.get(owner)
        if bucket is None:
            bucket = self._rates[owner] = TokenBucket(self._rate)
            while len(self._rates) > REMEMBERED:
                self._rates.popitem(last=False)
        self._rates.move_to_end(owner)
        if nanoseconds := bucket.wait(monotonic_ns()):
            self.counts["refused"] += 1
            seconds = str(-(-nanoseconds // 10**9))
            raise web.HTTPTooManyRequests(reason="too many requests", headers={"Retry-After": seconds})
        bucket.spend(messages)

    async def identified(self, request: web.Request, user: str, password: str, token: str) -> Identity:
        """Who has come; SecurityError if that is not shown."""
        if not (user or password or token) and self.gate.anonymous:
            return NOBODY
        address = network_of(request.remote or "")
        found: Identity = await self.work(self.gate.identify, address, user, password, token)
        return found

    async def work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Whatever takes long, in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(function, *arguments))

    async def publish(self, identity: Identity, channel: str, lines: Sequence[bytes], *, binary: bool = False) -> int:
        """Events of a client, where waiting for a full queue keeps nobody but others who publish."""
        call = functools.partial(self.feeds.publish, identity, channel, lines, binary=binary)
        try:
            count: int = await asyncio.get_running_loop().run_in_executor(self._publishing, call)
        except NotNow as error:
            self.counts["published"] += error.published
            raise
        self.counts["published"] += count
        return count

    def begin(self, identity: Identity, owner: str = "") -> Session:
        """A new session; HTTPServiceUnavailable if there are too many."""
        if self.sessions.is_full and (left := self.sessions.dispensable()) is not None:
            self.end(left)
        session = self.sessions.begin(identity, owner)
        if session is None:
            raise web.HTTPServiceUnavailable(reason="there are too many clients")
        self.counts["connected"] += 1
        return session

    async def resume(
        self, key: str, identity: Identity, after: dict[str, int], *, follows: Subscribe | None = None
    ) -> Session | None:
        """The session that a client has lost; None if there is none, it is another's, or of another kind: `follows` is
        what one by server-sent events asks for. Who is known by other groups now gets what they may have."""
        found = self.sessions.find(key, identity)
        if found is None or found.follower != (follows is not None):
            return None
        if follows is not None:
            channel, *interest = found.feeds[0].asked if 0 in found.feeds else ("", "", {})
            said = [follows.where, follows.params]
            if channel != follows.channel or (any(said) and said != interest):  # who says nothing has what it had
                return None
        other = found.identity != identity
        self.sessions.resume(found, identity, after)  # an earlier connection adds nothing more from here on
        if other:
            turn = found.turn
            try:
                await self.work(self.feeds.reidentify, list(found.feeds.values()), identity)
            except BaseException:
                self.sessions.leave(found, turn, monotonic())
                raise
            if found.turn != turn:
                return None  # it has come by yet another connection meanwhile
        self.counts["resumed"] += 1
        return found

    async def subscribe(self, session: Session, asked: Subscribe) -> Feed:
        """One more subscription of a session. If its client is gone by the time it is made, it is ended again; also if
        it has come by another connection, on which it may have asked for the same."""
        self._check_room(session.owner)
        turn = session.turn
        stir = functools.partial(self.stir, session)
        work = functools.partial(self.feeds.open, session.identity, asked, stir, session.room)
        opening = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            feed: Feed = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._unwanted)
            raise
        if session.turn != turn:
            self.feeds.cancel(feed)
            raise ClosedError(f"subscription {asked.id}: expected this connection to be the last, found a later one")
        session.feeds[asked.id] = feed
        return feed

    def _check_room(self, owner: str) -> None:
        """Whether somebody may have one more subscription, of all that there may be."""
        held = Counter({owner: 0})
        for each in self.sessions:
            held[each.owner] += len(each.feeds)
        most = self.limits.all_subscriptions
        if held.total() >= most and held[owner] >= most // len(held):
            raise NotNow(f"expected at most {most:,} subscriptions of all clients, found more; try again later", 0)

    def _unwanted(self, opened: asyncio.Future[Feed]) -> None:
        if not opened.cancelled() and opened.exception() is None:
            self.feeds.cancel(opened.result())

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
    idle: Callable[[], Awaitable[Any]],
) -> None:
    """Send what there is whenever there is something, until all subscriptions of a follower have ended, or the client
    has come by another connection: then it has another turn, and nothing more is taken for this one. `idle` says that
    there is nothing to say."""
    stirred = asyncio.Event()
    if session.turn != turn:
        return
    session.wake = stirred.set
    stirred.set()
    while not serving.ending.is_set() and session.turn == turn and not session.is_logged_out:
        try:
            async with asyncio.timeout(serving.limits.ping):  # and not wait_for, which may swallow that it is cancelled
                await stirred.wait()
        except TimeoutError:
            async with asyncio.timeout(serving.limits.write):
                await idle()
            continue
        stirred.clear()
        for id, feed in session.pending():
            while session.turn == turn and not session.is_logged_out and (portion := feed.take()) is not None:
                serving.counts["sent"] += len(portion.events)
                serving.counts["dropped"] += portion.dropped
                async with asyncio.timeout(serving.limits.write):
                    await send(id, feed, portion)
            if session.turn != turn or (feed.why and session.follower):
                return
            if feed.why and id in session.feeds:  # nothing was left to send with it
                await asyncio.wait_for(send(id, feed, Portion(feed.number + 1, [], 0)), serving.limits.write)


def owner_of(request: web.Request, identity: Identity) -> str:
    """Whom a request is counted for: a user, or the address that somebody unknown has come from."""
    return f"user {identity.user}" if identity.user else network_of(request.remote or "")


def said_as(**fields: Any) -> str:
    """A message of the bridge."""
    return json.dumps(fields, ensure_ascii=False)


def short(error: BaseException) -> bytes:
    """A reason, in the 123 bytes that there are for one."""
    return str(error).encode()[:120].decode(errors="ignore").encode()


__all__ = ["Serving", "owner_of", "said_as", "send_until_gone", "short"]
