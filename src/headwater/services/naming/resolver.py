"""Looking a name up: whom to ask next, and what to believe of what they say; without a network.

`resolve` is a generator: it yields an `Inquiry`, is sent a `Reply`, or None if there was none, and returns an `Answer`.
Who runs it asks the servers. It goes down from what is believed already, each time to a domain further below, and asks
no server twice for the same step: so it ends, whatever it is told, after at most `MOST_STEPS` questions.

- A server that does not answer, or answers with what it has no right to say, is bypassed for the others of its domain.
- A server that has neither the zone that was delegated to it nor the name is lame: it is as if it had not answered.
- What a server says of names beyond its domain, or signed by others, is refused; what it brings that is good counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headwater.errors import FederationError
from headwater.services.naming.address import NodeAddress
from headwater.services.naming.answer_cache import Answer
from headwater.services.naming.domains import ROOT
from headwater.services.naming.registration import Endorsed, read_endorsements
from headwater.services.naming.zone import Zone
from headwater.services.naming.zone_book import KnownZone, Path, ZoneBook

MOST_STEPS = 64  # questions for one name
_MOST_ABOVE = 16  # servers that one reply may name besides
_SHOWN = 20  # steps in an error


class NameUnresolved(FederationError):
    """A name cannot be looked up: nobody serves its domain, or who does cannot be reached or believed. `steps` is what
    was tried."""

    def __init__(self, message: str, steps: Sequence[Step] = ()) -> None:
        super().__init__(message)
        self.steps = tuple(steps)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question for one server: what it knows of a name, in a domain that it is said to serve."""

    server: NodeAddress
    name: str
    domain: str  # that is asked about; the root where it is not known yet


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said. `documents` are zones, `sources` endorsements, as bytes; `domain` is the one that it says has
    the name, and for which its sources are all that there are; nothing if it cannot say so. `above` are servers that
    may know more, of those above its own domain."""

    documents: Sequence[bytes] = ()
    sources: Sequence[bytes] = ()
    domain: str = ""
    above: Sequence[NodeAddress] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a lookup, for people."""

    server: str
    domain: str
    outcome: str


Resolution: TypeAlias = Generator[Inquiry, Reply | None, Answer]


@dataclass
class Resolver:
    """Of one node. `hints` are servers to begin with where nothing is known of an anchor: its parent's, or any that it
    asks. `order` puts servers in the order in which to try them, those that did not answer lately last."""

    book: ZoneBook
    hints: Sequence[NodeAddress]
    monotonic: Callable[[], float]
    order: Callable[[Iterable[NodeAddress]], list[NodeAddress]] = list
    refused: int = 0  # what servers said without a right to

    def resolve(self, name: str, steps: list[Step] | None = None) -> Resolution:
        """All sources of a name. NameUnresolved if that cannot be found out: that nobody has any is an answer."""
        told: list[Step] = [] if steps is None else steps
        asked: set[tuple[str, str]] = set()  # a domain, and a server that was asked about it
        above: list[NodeAddress] = list(self.hints)
        if not any(True for _ in self.book.paths(name)):
            raise NameUnresolved(
                f"name {name!r}: expected a pinned key of a domain that it is in, found none; pin the root's (anchors)"
            )
        while len(told) < MOST_STEPS:
            inquiry = self._next(name, asked, above)
            if inquiry is None:
                raise self._unresolved(name, told)
            asked.add((inquiry.domain, inquiry.server.node))
            reply = yield inquiry
            if reply is None:
                told.append(Step(inquiry.server.brief, inquiry.domain, "no answer"))
                continue
            answer, outcome = self._consider(name, inquiry, reply)
            told.append(Step(inquiry.server.brief, inquiry.domain, outcome))
            if answer is not None:
                return answer
            above.extend(each for each in list(reply.above)[:_MOST_ABOVE] if each not in above)
        raise self._unresolved(name, told)

    def _next(self, name: str, asked: set[tuple[str, str]], above: Sequence[NodeAddress]) -> Inquiry | None:
        """Whom to ask: who serves the domain that the name is in, or else comes next on the way to it; and if they do
        not know, or nobody is known, those who may know the way from the top."""
        for path in self.book.paths(name):
            domain = path.reached or ROOT
            for server in self.order(_servers(path)):
                if (domain, server.node) not in asked:
                    return Inquiry(server, name, domain)
        for server in self.order(above):
            if (ROOT, server.node) not in asked and not any(who == server.node for _, who in asked):
                return Inquiry(server, name, ROOT)
        return None

    def _consider(self, name: str, inquiry: Inquiry, reply: Reply) -> tuple[Answer | None, str]:
        """What a reply comes to: an answer, or a way that is further, or nothing."""
        before = [path.reached for path in self.book.paths(name)]
        problems = self.book.accept_all(reply.documents)
        zone = self._speaks_for(inquiry, name, reply.domain)
        if zone is not None:
            sources, wrong = read_endorsements(reply.sources, zone.zone, self.book.verify, self.book.now(), name)
            problems += wrong
            self.refused += len(problems)
            live = [each for each in sources if not each.registration.withdrawn]
            return self.answer(name, zone.zone, zone.signed.document.version, live), _outcome(live, problems)
        self.refused += len(problems)
        after = [path.reached for path in self.book.paths(name)]
        if after != before:
            reached = ", ".join(str(each) for each in after if each not in before)
            return None, _with(f"knows the way to {reached}" if reached else "has a newer zone", problems)
        if reply.above:
            return None, _with("knows who may know", problems)
        return None, _with(f"does not serve {inquiry.domain!r}: lame", problems)

    def _speaks_for(self, inquiry: Inquiry, name: str, domain: str) -> KnownZone | None:
        """The zone that has a name, if it is the one that a server says to speak for, and that one serves it."""
        for path in self.book.paths(name):
            last = None if path.missing is not None else path.last
            if last is not None and last.zone.domain == domain and last.zone.is_server(inquiry.server.node):
                return last
        return None

    def answer(self, name: str, zone: Zone, version: int, sources: Sequence[Endorsed]) -> Answer:
        """An answer of a domain, for as long as it may be cached: the shorter its leases are, the shorter."""
        lives = zone.ttl if sources else zone.negative_ttl
        now = self.book.now()
        for each in sources:
            lives = min(lives, max(0.0, (each.expires - now) / 1e9))
        return Answer(name, zone.domain, tuple(sources), self.monotonic() + lives, version)

    def _unresolved(self, name: str, told: Sequence[Step]) -> NameUnresolved:
        paths = self.book.paths(name)
        where = next((path.reached for path in paths if path.reached is not None), ROOT)
        served = any(_servers(path) for path in paths)
        if not told:
            expected = "servers for it" if served else "a server for it, in a zone, a link or as parent"
            return NameUnresolved(f"name {name!r}: domain {where!r}: expected {expected}, found none")
        tried = "; ".join(f"{step.server} ({step.domain}): {step.outcome}" for step in told[-_SHOWN:])
        return NameUnresolved(
            f"name {name!r}: expected an answer of a server of domain {where!r}, found none: {tried}", told
        )


def _servers(path: Path) -> Sequence[NodeAddress]:
    """Who may know what comes next on a path."""
    if path.missing is not None:
        return path.missing[1].servers
    return () if path.last is None else path.last.zone.servers


def _outcome(sources: Sequence[Endorsed], problems: Sequence[str]) -> str:
    places = ", ".join(each.address.brief for each in sources[:5])
    more = f" and {len(sources) - 5} more" if len(sources) > 5 else ""
    return _with(f"sources at {places}{more}" if sources else "has no sources of it", problems)


def _with(outcome: str, problems: Sequence[str]) -> str:
    return f"{outcome} (refused: {'; '.join(problems[:3])})" if problems else outcome


__all__ = ["Inquiry", "NameUnresolved", "Reply", "Resolution", "Resolver", "Step"]
