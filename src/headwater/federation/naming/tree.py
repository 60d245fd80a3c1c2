"""The tree of domains as one node finds it: who owns and serves each, and how many names have sources there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.federation.naming.lookup import ASK_SECONDS
from headwater.federation.wire.name_requests import DomainsAre, TellDomains

if TYPE_CHECKING:
    from headwater.federation.naming.names import Names
    from headwater.services.naming.address import NodeAddress
    from headwater.services.naming.zone import Delegation

MOST_DOMAINS = 1_000


@dataclass(frozen=True, slots=True)
class Branch:
    """A domain: `names` is how many of its names have sources, of the server that answered; `problem`, why nothing is
    known of it."""

    domain: str
    level: int
    owner: str
    servers: tuple[NodeAddress, ...]
    names: int | None = None
    version: int = 0
    until: int = 0  # ns since 1970
    problem: str = ""

    @property
    def days(self) -> float:
        """For how long its zone is still good."""
        return max(0.0, (self.until - time.time_ns()) / 86_400e9)


def tree(names: Names) -> list[Branch]:
    """All domains below the pinned keys, each asked of its servers; a server that does not answer is bypassed."""
    for address in names.reach.order(names.settings.servers):
        answer = _asked(names, address)
        if answer is not None:
            names.book.accept_all(answer.documents)
    found: list[Branch] = []
    for domain, granted in sorted(names.book.anchors.items()):
        if not any(each.domain == domain for each in found):
            _walk(names, domain, granted, 0, found)
    return found


def _walk(names: Names, domain: str, granted: Delegation, level: int, found: list[Branch]) -> None:
    """A domain, then those below it: every step is further down, and so it ends."""
    if len(found) >= MOST_DOMAINS or any(each.domain == domain for each in found):
        return
    known = names.book.known(domain)
    servers = granted.servers if known is None else known.zone.servers
    count: int | None = None
    tried: list[str] = []
    for server in names.reach.order(servers):
        answer = _asked(names, server)
        if answer is None:
            tried.append(f"{server.brief} does not answer")
            continue
        problems = names.book.accept_all(answer.documents)
        if domain in answer.domains and names.book.known(domain) is not None:
            count = answer.domains[domain]
            break
        tried.append("; ".join(problems) or f"{server.brief} does not serve it")
    known = names.book.known(domain)
    if known is None:
        problem = "; ".join(tried) or "no server is known"
        found.append(Branch(domain, level, granted.owner, tuple(servers), problem=problem))
        return
    document = known.signed.document
    problem = "" if count is not None else "; ".join(tried)
    found.append(
        Branch(domain, level, known.owner, known.zone.servers, count, document.version, document.expires, problem)
    )
    for part, below in sorted(known.zone.delegations.items()):
        _walk(names, part, below, level + 1, found)


def _asked(names: Names, server: NodeAddress) -> DomainsAre | None:
    """What a server says that it serves, with the zones that it has."""
    if names.server is not None and server.node == names.server.address.node:
        return names.server.tell()
    try:
        answer = names.reach.ask(server, TellDomains(), ASK_SECONDS)
    except HeadwaterError:
        return None
    return answer if isinstance(answer, DomainsAre) else None


__all__ = ["Branch", "tree"]
