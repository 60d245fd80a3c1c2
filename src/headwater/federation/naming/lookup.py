"""Lookups at a node: from its cache, from the server that it asks, or by asking the servers of domains itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from headwater.channel.names import check_name
from headwater.errors import FederationError, HeadwaterError
from headwater.federation.peers.request_registry import Postponed
from headwater.federation.wire.name_requests import MOST_DOCUMENTS, LookUpName, NameIs
from headwater.services.naming.answer_cache import Answer, AnswerCache
from headwater.services.naming.registration import read_endorsements
from headwater.services.naming.resolver import Inquiry, NameUnresolved, Reply, Resolver, Step

if TYPE_CHECKING:
    from headwater.federation.naming.domain_server import DomainServer
    from headwater.federation.naming.reach import Reach
    from headwater.federation.peers.request_registry import Caller
    from headwater.services.naming.address import NodeAddress
    from headwater.services.naming.zone_book import ZoneBook
    from headwater.threads import Worker

LOOKUP_SECONDS = 8.0  # for which a server that finds something out for another node is waited for
ASK_SECONDS = 2.0  # for which one server is waited for
MOST_WAITING = 1_024  # lookups of other nodes that are under way at a time


class Lookups:
    """Of one node. Thread-safe. `servers` are those that it asks: where there are none, or it serves domains itself, it
    asks the servers of domains."""

    def __init__(
        self,
        reach: Reach,
        book: ZoneBook,
        server: DomainServer | None,
        servers: Sequence[NodeAddress],
        worker: Worker,
    ) -> None:
        self._reach, self._book, self._server, self.servers, self._worker = reach, book, server, servers, worker
        hints = [*([] if server is None else server.parents), *servers]
        self.resolver = Resolver(book, hints, monotonic, reach.order)
        self.cache = AnswerCache(monotonic, time.time_ns)
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[NameIs], None]]] = {}
        self.asked = self.relayed = 0
        self.climb: Callable[[], object] = lambda: None  # has the zones above the domains that are served here

    # ── of this node ──

    def look_up(self, name: str, *, fresh: bool = False) -> Answer:
        """All sources of a name; NameUnresolved if that cannot be found out."""
        check_name(name)
        if not fresh and (known := self.cache.get(name)) is not None:
            return known
        if self._server is not None or not self.servers:
            return self._kept(self.trace(name)[0])
        problems: list[str] = []
        for server in self._reach.order(self.servers):
            try:
                reply = self._reach.ask(server, LookUpName(name, relayed=True, fresh=fresh), LOOKUP_SECONDS)
                return self._kept(self.believed(name, reply))
            except HeadwaterError as error:
                problems.append(f"{server.brief}: {error}")
        raise NameUnresolved(f"name {name!r}: expected an answer of a server, found none: {'; '.join(problems)}")

    def _kept(self, answer: Answer) -> Answer:
        self.cache.put(answer)
        return answer

    def believed(self, name: str, reply: NameIs) -> Answer:
        """What another node has found out, as far as it can be verified; NameUnresolved if it cannot."""
        if reply.problem:
            raise NameUnresolved(reply.problem)
        problems = self._book.accept_all(reply.documents)
        for path in self._book.paths(name):
            known = None if path.missing is not None else path.last
            if known is None or known.zone.domain != reply.domain:
                continue
            now = self._book.now()
            found, refused = read_endorsements(reply.sources, known.zone, self._book.verify, now, name)
            self.resolver.refused += len(refused)
            if refused and not found:
                problems += refused
                continue
            live = [each for each in found if not each.registration.withdrawn]
            answer = self.resolver.answer(name, known.zone, known.signed.document.version, live)
            until = min(answer.until, monotonic() + reply.lives)
            return Answer(name, answer.domain, answer.sources, until, answer.version, reply.cached)
        why = "; ".join(problems) or f"nothing leads from a pinned key to domain {reply.domain!r}"
        raise NameUnresolved(f"name {name!r}: expected an answer that can be verified, found one that cannot: {why}")

    def trace(self, name: str) -> tuple[Answer, list[Step]]:
        """Look a name up by asking the servers of its domains, from the cache nothing but who they are."""
        steps: list[Step] = []
        resolution = self.resolver.resolve(check_name(name), steps)
        try:
            inquiry = next(resolution)
            while True:
                inquiry = resolution.send(self._put(inquiry))
        except StopIteration as ended:
            return ended.value, steps

    def _put(self, inquiry: Inquiry) -> Reply | None:
        """A question to one server, which may be this node; None if there is no answer."""
        self.asked += 1
        server = self._server
        if server is not None and inquiry.server.node == server.address.node:
            answer = server.consult(inquiry.name)
        else:
            try:
                answer = self._reach.ask(inquiry.server, LookUpName(inquiry.name), ASK_SECONDS)
            except HeadwaterError:
                return None
        return Reply(answer.documents, answer.sources, answer.domain, answer.above)

    # ── for other nodes ──

    def answer(self, caller: Caller, request: LookUpName) -> NameIs | Postponed:
        """What another node asks: at once if it is known here; else, if it wants that, when it is found out."""
        here = NameIs() if self._server is None else self._server.consult(request.name)
        if not request.relayed or (here.domain and self._book.is_shown(here.domain)):
            return here
        known = None if request.fresh else self.cache.get(request.name)
        if known is not None:
            return self._told(known)
        return Postponed(lambda tell: self._find_out(request.name, request.fresh, tell))

    def _find_out(self, name: str, fresh: bool, tell: Callable[[NameIs], None]) -> None:
        """One lookup for all who wait for a name."""
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is not None and len(waiting) < MOST_WAITING:
                waiting.append(tell)
                return
            full = waiting is not None or len(self._waiting) >= MOST_WAITING
            if not full:
                self._waiting[name] = [tell]
        if full or not self._worker.put(lambda: self._look_up_for_all(name, fresh)):
            with self._lock:
                dropped = [tell] if full else self._waiting.pop(name, [])
            for each in dropped:
                each(NameIs(problem=f"name {name!r}: too many lookups are under way here; ask again"))

    def _look_up_for_all(self, name: str, fresh: bool) -> None:
        self.relayed += 1
        try:
            answer = self.look_up(name, fresh=fresh)
            if not self._book.is_shown(answer.domain):
                self.climb()  # else nobody who has pinned a key above could believe it
            told = self._told(answer)
        except HeadwaterError as error:
            told = NameIs(problem=str(error)[:2_000])
        except BaseException:
            told = NameIs(problem=f"name {name!r}: the lookup has failed; the server's log says why")
            raise
        finally:
            with self._lock:
                waiting = self._waiting.pop(name, [])
            for tell in waiting:
                tell(told)

    def _told(self, answer: Answer) -> NameIs:
        documents = [each.to_bytes() for each in self._book.chain(answer.domain)[-MOST_DOCUMENTS + 1 :]]
        sources = [each.signed.to_bytes() for each in answer.sources]
        lives = min(86_400.0, max(0.0, answer.until - monotonic()))
        return NameIs(documents, sources, answer.domain, [], lives, answer.cached)

    def servers_of(self, name: str) -> Sequence[NodeAddress]:
        """The servers of the domain that has a name, which is looked up for that."""
        answer = self.look_up(name)
        known = self._book.known(answer.domain)
        if known is None:
            raise FederationError(f"name {name!r}: domain {answer.domain!r} is not known any more; look it up again")
        return known.zone.servers


__all__ = ["Lookups"]
