"""Servers of one domain come to agree: each takes over what the others have, and tells them at once what it hears.

Telling may fail: a server may be away, or cut off. So each also compares its table with those of the others now and
then, page by page, and takes what it lacks. After a split has healed all have the same, whatever was registered on
either side.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.federation.wire.name_requests import CompareNames, NamesBeyond, OfferNames

if TYPE_CHECKING:
    from headwater.federation.naming.domain_server import DomainServer
    from headwater.federation.naming.reach import Reach
    from headwater.services.documents import SignedDocument
    from headwater.services.naming.address import NodeAddress
    from headwater.services.naming.zone import Zone
    from headwater.services.naming.zone_book import ZoneBook
    from headwater.threads import Worker

log = logging.getLogger("headwater.federation")
MOST_PAGES = 1_000  # of one comparison
COMPARE_SECONDS = 2.0  # in which another server answers


class Replication:
    """Of one server. `compare_all` waits for others; telling does not."""

    def __init__(self, server: DomainServer, reach: Reach, book: ZoneBook, worker: Worker) -> None:
        self._server, self._reach, self._book, self._worker = server, reach, book, worker
        self.compared = self.unreached = 0
        server.on_registered = self._tell

    def others(self, zone: Zone) -> list[NodeAddress]:
        """The other servers of a domain."""
        return [each for each in zone.servers if each.node != self._server.address.node]

    def _tell(self, zone: Zone, consent: SignedDocument) -> None:
        for other in self._reach.order(self.others(zone)):
            self._worker.put(partial(self._offer, other, OfferNames(zone.domain, [consent.to_bytes()])))

    def _offer(self, other: NodeAddress, request: OfferNames) -> None:
        try:
            self._reach.ask(other, request, COMPARE_SECONDS)
        except HeadwaterError as error:  # it is compared with later
            log.debug("names: %s was not told: %s", other.node, error)

    def compare_all(self) -> bool:
        """Take over what the other servers have; whether all of them were reached."""
        reached = True
        for domain in self._server.domains:
            zone = self._server.zone(domain)
            for other in () if zone is None else self._reach.order(self.others(zone)):
                try:
                    self._compare(domain, other)
                    self.compared += 1
                except HeadwaterError as error:
                    reached = False
                    self.unreached += 1
                    log.debug("names: %s is not compared with %s: %s", domain, other.node, error)
        return reached

    def _compare(self, domain: str, other: NodeAddress) -> None:
        """Page by page, with the sums as they were at first: so every page is one of the same differences."""
        sums = self._server.table(domain).sums
        known = self._book.known(domain)
        version = 0 if known is None else known.signed.document.version
        after: tuple[str, str] | None = None
        for _ in range(MOST_PAGES):
            answer = self._reach.ask(other, CompareNames(domain, sums, version, after), COMPARE_SECONDS)
            if not isinstance(answer, NamesBeyond):
                return
            if answer.zone:
                self._server.accept_zone(answer.zone)
            last = self._server.take(domain, answer.sources)
            if not answer.more or last is None or (after is not None and last == after):
                return
            after = last


__all__ = ["Replication"]
