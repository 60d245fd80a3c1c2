"""Entries that this node does not have: asked for once, at the nodes that have a library, and taken if genuine.

What several nodes say is compared: where a name and version stands for two programs, neither is taken. That is so after
two parts of a federation have published under one name, without knowing of each other.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from headwater.errors import FederationError, HeadwaterError, LibraryError, SecurityError
from headwater.federation.wire.library_requests import FetchedEntry, FetchEntry
from headwater.services.library import entry as entries
from headwater.services.library.reference import Reference

if TYPE_CHECKING:
    from headwater.federation.library.asking import Network
    from headwater.federation.peers.peer import Peer
    from headwater.services.library.catalogue import Catalogue
    from headwater.services.library.entry import LibraryEntry, Signature

SHOWN = 5  # nodes in an error
MOST_NEWS = 1_000  # entries of which is remembered that they have only just come


class Finder:
    """Of one node. Whoever wants what is being asked for already waits for the same answer."""

    def __init__(self, network: Network | None, catalogue: Catalogue, signature: Signature) -> None:
        self._network, self._catalogue, self._signature = network, catalogue, signature
        self._lock = threading.Lock()
        self._under_way: dict[Reference, Future[LibraryEntry]] = {}
        self.libraries: tuple[str, ...] = ()  # nodes to be asked, by name; none: all that are there
        self.fetches = self.refused = 0
        self.news: set[tuple[str, int]] = set()  # that no other node was told of yet

    def find(self, reference: Reference, *, fresh: bool = False) -> LibraryEntry:
        """What a reference stands for, here or elsewhere; LibraryError if there is none, or it was withdrawn. With
        `fresh` others are asked in any case: whether there is a newer version, or this one was withdrawn."""
        here = self._here(reference)
        if here is None or (fresh and not self._catalogue.is_published(here)):
            try:
                here = self._once(reference)
            except LibraryError:
                if here is None:
                    raise
        if here.withdrawn is not None:
            raise self._withdrawn(here)
        return here

    def _here(self, reference: Reference) -> LibraryEntry | None:
        if reference.version is None:
            return self._catalogue.newest(reference.name)
        return self._catalogue.get(reference.name, reference.version)

    def _withdrawn(self, entry: LibraryEntry) -> LibraryError:
        others = [str(each) for each in self._catalogue.versions(entry.name) if each.withdrawn is None]
        hint = f"use {' or '.join(others[-2:])}" if others else "publish another version"
        return LibraryError(f"{entry} was withdrawn by {entry.owner}: {entry.withdrawn}; {hint}")

    def _once(self, reference: Reference) -> LibraryEntry:
        """Ask others, unless that is being done: then wait for the answer."""
        with self._lock:
            found = self._under_way.get(reference)
            if found is None:
                mine: Future[LibraryEntry] = Future()
                self._under_way[reference] = mine
        if found is not None:
            return found.result()
        try:
            made = self._fetch(reference)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(made)
            return made
        finally:
            with self._lock:
                del self._under_way[reference]

    def _fetch(self, reference: Reference) -> LibraryEntry:
        """Ask all libraries at once, and take what they agree on; what is wrong with an answer is told if none is
        good."""
        network = self._network
        if network is None:
            raise self._none(reference, [], "this node has no network, and so no other library to ask")
        peers = self._asked(network)
        here = self._here(reference)
        known = b"" if here is None else here.fingerprint
        request = FetchEntry(reference.name, reference.version or 0, known)
        self.fetches += 1
        problems: list[str] = []
        found: dict[Peer, LibraryEntry] = {}
        for peer, answer in network.ask_all(peers, request).items():
            try:
                if isinstance(answer, HeadwaterError):
                    raise answer
                made = self._taken(reference, answer, here)
            except HeadwaterError as error:
                self.refused += isinstance(error, SecurityError | LibraryError)
                problems.append(f"{peer.name}: {error}")
                continue
            if made is not None:
                found[peer] = made
        if not found:
            raise self._none(reference, problems, f"none of {len(peers)} other nodes has it for this one")
        return self._chosen(reference, found, problems)

    def _asked(self, network: Network) -> list[Peer]:
        if not self.libraries:
            return network.present()
        found = []
        for name in self.libraries:
            try:
                found.append(network.named(name))
            except FederationError:
                continue
        return found

    def _taken(self, reference: Reference, answer: Any, here: LibraryEntry | None) -> LibraryEntry | None:
        """What a node has answered, verified; None if it has none."""
        if not isinstance(answer, FetchedEntry):
            raise FederationError(f"expected an entry, found {type(answer).__name__}")
        if not answer.document:
            return None
        code = answer.code or (b"" if here is None else here.code)
        made = entries.take(self._signature, answer.document, code)
        if made.name != reference.name or reference.version not in (None, made.version):
            raise LibraryError(f"expected {reference}, found {made}")
        if answer.withdrawal:
            signed, owner, said = entries.take_withdrawal(self._signature, answer.withdrawal)
            if (signed.name, signed.version, owner, said.fingerprint) != (
                made.name, made.version, made.owner, made.fingerprint,
            ):  # fmt: skip
                raise LibraryError(f"expected a withdrawal of {made} by {made.owner}, found another document")
            made = entries.withdrawn(made, said.why, answer.withdrawal)
        return made

    def _chosen(self, reference: Reference, found: dict[Peer, LibraryEntry], problems: list[str]) -> LibraryEntry:
        """The newest of what was found, if all agree on what it is. Where it is known whose the name is, what others
        have published does not count."""
        owner = self._catalogue.owner(reference.name)
        found = {peer: each for peer, each in found.items() if owner in (None, each.owner)} or found
        newest = max(each.version for each in found.values())
        alike = {peer: each for peer, each in found.items() if each.version == newest}
        kinds = {(each.fingerprint, each.owner) for each in alike.values()}
        if len(kinds) > 1:
            told = "; ".join(
                f"{each.fingerprint.hex()} of {each.owner} at {peer.name}" for peer, each in list(alike.items())[:SHOWN]
            )
            raise LibraryError(
                f"{reference}: expected one program, found several of version {newest}: {told}; say which library to "
                "ask, library.use(NODE), or have one of them withdrawn"
            )
        gone = next((each for each in alike.values() if each.withdrawn is not None), None)
        made = gone or next(iter(alike.values()))
        with self._lock:
            if self._catalogue.get(made.name, made.version) is None:
                if len(self.news) >= MOST_NEWS:
                    self.news.clear()
                self.news.add((made.name, made.version))
            kept = self._catalogue.add(made, published=False)
        if gone is not None and kept.withdrawn is None:
            self._catalogue.withdraw(gone.name, gone.version, gone.fingerprint, gone.owner, gone.withdrawn or "",
                                     gone.withdrawal)  # fmt: skip
        return self._catalogue.get(made.name, made.version) or made

    def _none(self, reference: Reference, problems: list[str], why: str) -> LibraryError:
        near = self._catalogue.near(reference.name)
        told = "".join(f"; {each}" for each in problems[:SHOWN])
        versions = [str(each.version) for each in self._catalogue.versions(reference.name)]
        known = f"; versions known here: {', '.join(versions)}" if versions else ""
        hint = near or "publish it first: node.library.publish(...)"
        return LibraryError(f"{reference}: expected an entry of a library, found none: {why}{told}{known}; {hint}")


__all__ = ["Finder"]
