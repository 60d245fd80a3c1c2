"""`node.library`: named, versioned, signed interests, patterns and triggers, kept at this node and found at others.

    node.library.publish("loud", "level > :limit", on="ie.tcd.sighting", params={"limit": 0.5})     # version 1
    sightings.subscribe(handler, "@loud/1", params={"limit": 0.7})
    node.library.upgrade("@loud/2")

`@loud` alone is the newest version that this node knows and that was not withdrawn; if it knows none, the newest that
other nodes have. A subscription stays with the version that it has begun with.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.channel import Channel
from headwater.channel.options.subscribe import interest_for
from headwater.errors import FederationError, HeadwaterError, LibraryError
from headwater.federation.library.asking import FETCH_SECONDS, Network
from headwater.federation.library.finding import Finder
from headwater.federation.library.running import Running
from headwater.federation.library.serving import LibraryServer, row_of
from headwater.federation.library.signing import NodeSignature
from headwater.federation.library.upgrading import Upgraded, Upgrader
from headwater.federation.wire.library_requests import (
    EntryRow,
    ListEntries,
    ListRunning,
    Named,
    PublishEntry,
    RunningPage,
    RunningRow,
    UpgradedAll,
    UpgradeEntry,
    WithdrawEntry,
)
from headwater.interest import Interest, Notation
from headwater.patterns.pattern import Pattern
from headwater.services.library import entry as entries
from headwater.services.library.catalogue import Catalogue, Shelf
from headwater.services.library.comparison import Comparison, compare
from headwater.services.library.entry import LibraryEntry
from headwater.services.library.reference import Reference, parse
from headwater.services.library.tables import KeptEntry, LibraryTables
from headwater.services.library.trigger_form import TriggerForm

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.subscription import Subscription

UPGRADE_SECONDS = 60.0  # for which other nodes may take to change all their subscriptions
POLL_SECONDS = 0.1
MOST_PAGES = 1_000  # of a list


class Library:
    """Of one node; threads may share it. Made by `node.library`."""

    def __init__(self, node: Node, network: Network | None, taken_up: Callable[[Subscription], bool]) -> None:
        context = None if network is None else network.context
        self._node, self._network = node, network
        kept = None if node.state is None else LibraryTables(node.state)
        self.catalogue, self.shelf = Catalogue(kept), Shelf(kept)
        self.catalogue.load(_from_kept)
        self.shelf.load(_from_kept)
        self._signature = NodeSignature(node, context)
        self._genuine = NodeSignature(node, context, lenient=True)
        self.finder = Finder(network, self.catalogue, self._signature)
        self.server = None if context is None else LibraryServer(context, self.catalogue, self._signature)
        self.listing = Running(node, context, None if network is None else network.peers)
        self.upgrader = Upgrader(node, context, taken_up)

    # ── publishing ──

    def publish(
        self,
        name: str,
        definition: Any,
        version: int | None = None,
        *,
        on: Any = None,
        output: Any = None,
        params: Mapping[str, object] | None = None,
        notation: Notation | None = None,
        note: str = "",
        at: str | None = None,
    ) -> LibraryEntry:
        """Sign an entry and keep it here, or `at` another node, for whoever may have it.

        `definition` is an Interest, a Pattern or a TriggerForm; or an interest in any notation, and `on` the channel,
        its name, or the event type that it is over. Without a `version` it is the next one. A version stands for one
        program for ever, and a name belongs to who has published it first: else a LibraryError says so."""
        program = self._program(definition, on, output, params, notation)
        if version is None:
            self._look_around(name, at)
            version = self.catalogue.next_version(name)
        entry = entries.make(self._signature, name, version, program, note)
        if at is None or at == self._node.name:
            return self.catalogue.add(entry, published=True)
        self._ask(at, PublishEntry(entry.document, entry.code))
        return self.catalogue.add(entry, published=False)

    def _look_around(self, name: str, at: str | None) -> None:
        """Versions that others have count when the next one is to be found."""
        if self._network is None or (at is None and self.catalogue.versions(name)):
            return
        try:
            self.finder.find(Reference(name), fresh=True)
        except LibraryError:
            return  # there is none

    def _program(self, definition: Any, on: Any, output: Any, params: Any, notation: Notation | None) -> Any:
        if isinstance(definition, Interest | Pattern | TriggerForm):
            more = {"on": on, "output": output, "params": params, "notation": notation}
            if given := [each for each in more if more[each] is not None]:
                raise LibraryError(f"publish: expected {definition.kind} alone, which says itself, found {given[0]}=")
            return definition
        if on is None:
            raise LibraryError(
                "publish: expected on=, the channel or the event type that the interest is over, found none"
            )
        if isinstance(on, str) and ":" not in on:
            on = self._node.channel(on)
        if isinstance(on, Channel):
            if on.type is None:
                raise LibraryError(f"publish: channel {on.name!r} carries bytes, which no interest can look into")
            if notation is None:
                return interest_for(on, definition, params, output=output)  # which may read the context of its sources
            on = on.type
        return Interest(definition, on, output=output, params=params, notation=notation)

    def withdraw(self, reference: str, why: str, *, at: str | None = None) -> None:
        """Say that a version is not to be used any more, here or `at` another node. Only its publisher can. What runs
        goes on; whoever asks for it from now on is told why it gets it not."""
        wanted = parse(reference)
        if wanted.version is None:
            raise LibraryError(f"withdraw: expected a version, as in {wanted}/1, found {reference!r}")
        entry = self.catalogue.get(wanted.name, wanted.version) or self.finder.find(wanted)
        document = entries.withdraw(self._signature, entry, why)
        signed, owner, said = entries.take_withdrawal(self._signature, document)
        if owner != entry.owner:
            raise LibraryError(f"{entry}: expected to be withdrawn by {entry.owner}, found {owner}")
        if at is not None and at != self._node.name:
            self._ask(at, WithdrawEntry(document))
        self.catalogue.withdraw(signed.name, signed.version, said.fingerprint, owner, said.why, document)

    def forget(self, name: str) -> int:
        """Have nothing of a name at this node any more, nor know whose it is; how many versions there were."""
        return self.catalogue.forget(parse(name).name)

    # ── finding ──

    def use(self, *nodes: str) -> None:
        """Ask these nodes, by name, for entries that are not here; none: every node that is there."""
        self.finder.libraries = nodes

    def find(self, reference: str, *, fresh: bool = False) -> LibraryEntry:
        """What a reference such as `@tailgating/2` stands for, here or at other nodes. With `fresh` those are asked in
        any case: for a newer version, or whether this one was withdrawn."""
        return self.finder.find(parse(reference), fresh=fresh)

    def entries(self) -> list[LibraryEntry]:
        """All that are here, by name and version: published, or fetched to be used."""
        return self.catalogue.entries()

    def versions(self, name: str) -> list[LibraryEntry]:
        """All versions of a name that are here, the oldest first."""
        return self.catalogue.versions(parse(name).name)

    def rows(self) -> list[EntryRow]:
        """The same, as they are listed."""
        return [row_of(each, published=self.catalogue.is_published(each)) for each in self.entries()]

    def entries_at(self, node: str) -> list[EntryRow]:
        """What the library of another node has that this one may have."""
        rows: list[EntryRow] = []
        for _ in range(MOST_PAGES):
            page = self._ask(node, ListEntries((rows[-1].name, rows[-1].version) if rows else ("", 0)))
            rows += page.rows
            if not page.more or not page.rows:
                break
        return rows

    # ── what runs ──

    def running(self, channels: str = "**") -> list[RunningRow]:
        """What runs at this node: on channels whose names fit."""
        return self.listing.rows(channels)

    def running_everywhere(
        self, channels: str = "**", timeout: float = FETCH_SECONDS
    ) -> dict[str, RunningPage | HeadwaterError]:
        """What runs at this node and at each that can be reached, as far as this one may know; or why it is not known.
        Of each node at most one page."""
        found: dict[str, RunningPage | HeadwaterError] = {self._node.name: RunningPage(self.running(channels))}
        if self._network is not None:
            answers = self._network.ask_all(self._network.present(), ListRunning(channels), timeout)
            for peer, answer in answers.items():
                known = peer.name if peer.name not in found else peer.id
                found[known] = answer if isinstance(answer, RunningPage | HeadwaterError) else _wrong(answer)
        return found

    # ── upgrading ──

    def compare(
        self, old: str, new: str, log: str | os.PathLike[str] | Any, channel: str, *, examples: int = 10
    ) -> Comparison:
        """Two versions side by side on what was logged: how many events each passes, and which only one of them does.
        `log` is the folder of a log, or what reads one. On Spark: `headwater.spark.backtest.compare`."""
        return compare(self.find(old).interest(), self.find(new).interest(), log, channel, examples=examples)

    def upgrade(self, reference: str, *, subscription: str | None = None) -> list[Upgraded]:
        """Have all subscriptions of this node that run another version of a name, or only one of them, go on with this
        one, at an exact point of each source. LibraryError with all that does not fit: then nothing was changed."""
        return self.upgrader.upgrade(self.find(reference, fresh=True), subscription)

    def upgrade_at(self, node: str, reference: str, timeout: float = UPGRADE_SECONDS) -> list[Upgraded]:
        """The same at another node, which must let this one publish that name."""
        entry = self.find(reference, fresh=True)
        request = UpgradeEntry(entry.name, entry.version, entry.fingerprint, secrets.token_bytes(16))
        end = monotonic() + timeout
        while True:
            said = self._ask(node, request)
            if not isinstance(said, UpgradedAll):
                raise _wrong(said)
            if said.done:
                break
            if monotonic() >= end:
                raise FederationError(f"node {node}: it has not changed all its subscriptions within {timeout:g} s")
            assert self._network is not None
            self._network.context.scheduler.until(lambda: self._node.closed, POLL_SECONDS)
        if said.error:
            raise LibraryError(f"node {node}: {said.error}")
        return [Upgraded(row.subscription, row.before, row.points, row.acknowledged, row.error) for row in said.rows]

    def _ask(self, node: str, request: Any) -> Any:
        if self._network is None:
            raise FederationError(f"node {node!r} cannot be asked: this one has no network")
        return self._network.ask(self._network.named(node), request)

    # ── wishes by name ──

    def held(self, named: Named) -> LibraryEntry | None:
        """An entry that is here, published, fetched or sent by somebody, with just this name, version and program."""
        found = self.catalogue.get(named.name, named.version)
        if found is not None and found.fingerprint == named.fingerprint:
            return found
        return self.shelf.get(named.name, named.version, named.fingerprint)

    def taken(self, named: Named) -> LibraryEntry:
        """An entry that a wish names: as it is here, or as it came with the wish, if that is what was signed."""
        found = self.held(named)
        if found is None:
            found = entries.take(self._genuine, named.document, named.code)
            if found.origin != (named.name, named.version, named.fingerprint):
                raise LibraryError(f"expected @{named.name}/{named.version}, found {found} or another program of it")
            self.shelf.put(found)
        if found.withdrawn is not None:
            raise LibraryError(f"{found} was withdrawn by {found.owner}: {found.withdrawn}")
        return found

    def report(self) -> dict[str, Any]:
        """In numbers, and what was refused since another one is here."""
        published = len(self.catalogue.published())
        served = {} if self.server is None else {"served": self.server.served, "taken": self.server.taken}
        return {
            "published": published,
            "fetched": len(self.catalogue.entries()) - published,
            "held": len(self.shelf),
            "evicted": self.catalogue.evicted + self.shelf.evicted,
            "fetches": self.finder.fetches,
            "refused": self.finder.refused,
            "conflicts": list(self.catalogue.conflicts),
            **served,
        }


def _wrong(answer: Any) -> FederationError:
    return FederationError(f"expected another answer, found {type(answer).__name__}")


def _from_kept(row: KeptEntry) -> LibraryEntry:
    return entries.from_kept(row.owner, row.document, row.code)


__all__ = ["Library"]
