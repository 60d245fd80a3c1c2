"""The zones that a node believes: from the keys that it has pinned down to the domain of a name, each by the signature
of who owns it.

An anchor is a domain whose owner's key is known beforehand: the root's, as a rule; and those of static links, which so
are a short cut and need nobody above them. Everything below is believed by delegation only: a zone counts while the one
above it gives the domain to the key that has signed it, and all of them are good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headwater.errors import SecurityError
from headwater.services.documents import SignedDocument
from headwater.services.naming.domains import ROOT, depth, enclosing
from headwater.services.naming.registration import SKEW_NS, Verify
from headwater.services.naming.zone import Delegation, Zone, read_zone

MOST_ZONES = 4_096  # that are kept
MOST_DOCUMENTS = 64  # of one answer that are looked at


@dataclass(frozen=True, slots=True)
class KnownZone:
    """A zone, and by which key it is signed."""

    zone: Zone
    signed: SignedDocument
    owner: str

    @property
    def order(self) -> tuple[int, str]:
        """Of two of one owner, the greater one holds."""
        return self.signed.document.version, self.signed.fingerprint


@dataclass(frozen=True, slots=True)
class Path:
    """From an anchor to the domain of a name, as far as is known: `zones` are believed, from above. `missing` is the
    domain that comes next, of which the zone is not known, by whom it must be signed and where it is served; None: the
    last zone is the one that has the name."""

    zones: tuple[KnownZone, ...] = ()
    missing: tuple[str, Delegation] | None = None

    @property
    def last(self) -> KnownZone | None:
        return self.zones[-1] if self.zones else None

    @property
    def reached(self) -> str | None:
        """The domain that it has come to, or is to come to next."""
        if self.missing is not None:
            return self.missing[0]
        return None if self.last is None else self.last.zone.domain


@dataclass
class ZoneBook:
    """Of one node. Thread-safe. `now` is in ns since 1970."""

    anchors: Mapping[str, Delegation]
    verify: Verify
    now: Callable[[], int]
    refused: int = 0
    _zones: dict[str, dict[str, KnownZone]] = field(default_factory=dict)  # by domain, by owner's key
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def path(self, name: str) -> Path:
        """The way to a name: from the nearest anchor of which something is known, else from the nearest one."""
        paths = [self._from(anchor, name) for anchor in enclosing(name) if anchor in self.anchors]
        return next((path for path in paths if path.zones), paths[0] if paths else Path())

    def paths(self, name: str) -> list[Path]:
        """The ways to a name, from each anchor that it is below: the nearest first."""
        return [self._from(anchor, name) for anchor in enclosing(name) if anchor in self.anchors]

    def _from(self, domain: str, name: str) -> Path:
        """Down from an anchor, as far as it goes: each step is to a domain further below."""
        found: list[KnownZone] = []
        granted = self.anchors[domain]
        while True:
            known = self._good(domain, granted.owner)
            if known is None:
                return Path(tuple(found), (domain, granted))
            found.append(known)
            part = known.zone.delegated(name)
            if part is None:
                return Path(tuple(found))
            domain, granted = part, known.zone.delegations[part]

    def _good(self, domain: str, owner: str) -> KnownZone | None:
        known = self._zones.get(domain, {}).get(owner)
        return None if known is None or known.signed.document.expires <= self.now() else known

    def accept(self, signed: SignedDocument) -> KnownZone:
        """Take a zone, if it is the owner's, as far as is known, and not older than the one that is known;
        SecurityError if it is not."""
        zone = read_zone(signed)
        document, now = signed.document, self.now()
        if document.expires <= now:
            past = (now - document.expires) / 1e9
            raise self._refuse(signed, "expired", f"it was good until {past:,.0f} s ago; have it signed anew")
        if document.issued > now + SKEW_NS:
            raise self._refuse(signed, "early", "it is from the future; set the clocks right")
        owner = self.verify(signed)
        if owner not in self.owners(zone.domain):
            raise self._refuse(
                signed, "owner", f"its key {owner[:16]}… is not the one that {zone.domain!r} is given to"
            )
        made = KnownZone(zone, signed, owner)
        with self._lock:
            by_owner = self._zones.setdefault(zone.domain, {})
            before = by_owner.get(owner)
            if before is not None and before.order >= made.order:
                if before.order == made.order:
                    return before
                raise self._refuse(
                    signed, "rollback", f"version {before.signed.document.version:,} is known; sign a greater one"
                )
            if before is None:
                self._make_room()
                self._count += 1
            by_owner[owner] = made
        return made

    def _make_room(self) -> None:
        """One more fits: those that have ended go first, then those furthest below; they can be asked for again. Those
        of pinned keys stay: they are this node's own, or where every way begins, and no owner of a domain further below
        drives them out."""
        if self._count < MOST_ZONES:
            return
        now = self.now()
        every = [(known.signed.document.expires > now, -depth(domain), domain, owner)
                 for domain, by in self._zones.items() for owner, known in by.items()
                 if domain not in self.anchors or owner != self.anchors[domain].owner]  # fmt: skip
        for _, _, domain, owner in sorted(every)[: max(1, MOST_ZONES // 8)]:
            self._zones[domain].pop(owner)
            self._count -= 1
            if not self._zones[domain]:
                del self._zones[domain]

    def accept_all(self, items: Iterable[bytes]) -> list[str]:
        """Those of an answer, from above to below; what was wrong with the others."""
        problems: list[str] = []
        read: list[SignedDocument] = []
        for count, item in enumerate(items):
            if count >= MOST_DOCUMENTS:
                problems.append(f"expected at most {MOST_DOCUMENTS} documents in one answer, found more")
                break
            try:
                read.append(SignedDocument.from_bytes(item))
            except SecurityError as error:
                problems.append(str(error))
        for signed in sorted(read, key=lambda each: depth(each.document.name)):
            try:
                self.accept(signed)
            except SecurityError as error:
                if error.reason != "rollback":  # a server that has not heard of the newest one does no harm
                    problems.append(str(error))
        self.refused += len(problems)
        return problems

    def owners(self, domain: str) -> frozenset[str]:
        """The keys that may sign for a domain: an anchor's, and those that zones above give it to."""
        found = {self.anchors[domain].owner} if domain in self.anchors else set()
        for anchor in enclosing(domain):
            if anchor not in self.anchors:
                continue
            path = self._from(anchor, domain)
            if path.missing is None and path.last is not None and domain in path.last.zone.delegations:
                found.add(path.last.zone.delegations[domain].owner)
        return frozenset(found)

    def known(self, domain: str) -> KnownZone | None:
        """The zone of a domain, if one is believed."""
        good = [known for owner in self.owners(domain) if (known := self._good(domain, owner)) is not None]
        return max(good, key=lambda each: each.order, default=None)

    def is_shown(self, domain: str) -> bool:
        """Whether others can be shown, from an anchor above, how a domain is believed; or there is no anchor above."""
        above = [anchor for anchor in enclosing(domain) if anchor in self.anchors] if domain != ROOT else []
        for anchor in above:
            last = self._from(anchor, domain).last
            if last is not None and domain in last.zone.delegations:
                return True
        return not above

    def chain(self, domain: str) -> list[SignedDocument]:
        """The documents from which a zone is believed, its own last, for others to verify: from each anchor."""
        found: dict[str, SignedDocument] = {}
        for anchor in enclosing(domain):
            if anchor in self.anchors:
                for known in self._from(anchor, domain).zones:
                    found[known.signed.fingerprint] = known.signed
        own = self.known(domain)
        if own is not None:
            found[own.signed.fingerprint] = own.signed
        return sorted(found.values(), key=lambda each: depth(each.document.name))

    def _refuse(self, signed: SignedDocument, reason: str, message: str) -> SecurityError:
        document = signed.document
        return SecurityError(f"refused {document} of {document.signer}: {message}", reason, document.signer)

    def __len__(self) -> int:
        return self._count


__all__ = ["KnownZone", "Path", "ZoneBook"]
