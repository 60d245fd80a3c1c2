"""What other nodes may ask of this node's library, and get: by the rights "subscribe" and "publish" on `library.NAME`.

What one may not have is not there for it. Only what was published here is given out, not what was fetched for use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import LibraryError
from headwater.federation.library.signing import RIGHTS
from headwater.federation.wire.library_requests import (
    MAX_SAID,
    MOST_ENTRIES,
    EntryPage,
    EntryRow,
    FetchedEntry,
    FetchEntry,
    ListEntries,
    PublishEntry,
    WithdrawEntry,
)
from headwater.federation.wire.requests import Accepted
from headwater.services.documents import SignedDocument
from headwater.services.library import entry as entries

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.services.library.catalogue import Catalogue
    from headwater.services.library.entry import LibraryEntry, Signature


class LibraryServer:
    """Answers for one node. What it raises is told to who asks."""

    def __init__(self, context: Context, catalogue: Catalogue, signature: Signature) -> None:
        self._context, self._catalogue, self._signature = context, catalogue, signature
        self.served = self.taken = 0

    def _may(self, caller: Caller, name: str) -> bool:
        return bool(self._context.decisions.decide(caller.principal, "subscribe", RIGHTS + name))

    def _must(self, caller: Caller, name: str) -> None:
        verdict = self._context.decisions.decide(caller.principal, "publish", RIGHTS + name)
        if not verdict:
            raise LibraryError(f"not allowed: {verdict.why}")

    def fetch(self, caller: Caller, request: FetchEntry) -> FetchedEntry:
        """An entry, if there is one that this caller may have. One that was withdrawn comes with the withdrawal."""
        catalogue = self._catalogue
        if request.version:
            found = catalogue.get(request.name, request.version)
        else:
            here = [each for each in catalogue.versions(request.name) if each.withdrawn is None]
            found = next((each for each in reversed(here) if catalogue.is_published(each)), None)
        if found is None or not catalogue.is_published(found) or not self._may(caller, request.name):
            return FetchedEntry()
        self.served += 1
        code = b"" if found.fingerprint == request.known else found.code
        return FetchedEntry(found.document, code, found.withdrawal)

    def publish(self, caller: Caller, request: PublishEntry) -> Accepted:
        """Keep an entry that somebody has signed whom the rules here let publish that name. Who brings it must be let
        too: it is their word that it is to be kept."""
        self._must(caller, SignedDocument.from_bytes(request.document).document.name)  # before anything costs much
        entry = entries.take(self._signature, request.document, request.code)
        self._catalogue.add(entry, published=True)
        self.taken += 1
        return Accepted()

    def withdraw(self, caller: Caller, request: WithdrawEntry) -> Accepted:
        """Give out an entry no more, as its signer says."""
        self._must(caller, SignedDocument.from_bytes(request.document).document.name)
        signed, owner, said = entries.take_withdrawal(self._signature, request.document)
        self._catalogue.withdraw(signed.name, signed.version, said.fingerprint, owner, said.why, request.document)
        return Accepted()

    def list(self, caller: Caller, request: ListEntries) -> EntryPage:
        """Entries that this caller may have."""
        names: dict[str, bool] = {}
        rows: list[EntryRow] = []
        for each in self._catalogue.published():
            if (each.name, each.version) <= request.after:
                continue
            if each.name not in names:
                names[each.name] = self._may(caller, each.name)
            if names[each.name]:
                if len(rows) == MOST_ENTRIES:
                    return EntryPage(rows, more=True)
                rows.append(row_of(each))
        return EntryPage(rows)


def row_of(entry: LibraryEntry, *, published: bool = True) -> EntryRow:
    """What is said of an entry in a list."""
    return EntryRow(
        entry.name,
        entry.version,
        entry.kind,
        entry.fingerprint,
        entry.owner,
        entry.size,
        entry.manifest.note[:MAX_SAID],
        (entry.withdrawn or "")[:MAX_SAID],
        published,
    )


__all__ = ["LibraryServer", "row_of"]
