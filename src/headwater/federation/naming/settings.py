"""The settings of naming at a node: whom it asks, which domains it serves, and by which keys it believes what.

anchors = { "." = "1f2e…" }                        the key of the root's owner, or of another domain's
servers = ["gate.5a…@tcd=tls/gate.tcd.ie:7447"]    whom to ask; none where this node serves a domain itself
entry = ["tls/gate.tcd.ie:7447"]                   by which others get into this federation
gateway = "edge.77…"                               a node here that passes on what is in other federations

[[serve]]
domain = "ie.tcd"
key = "tcd.key"                                    the owner's; or document = "tcd.domain", signed elsewhere
parent = ["ie.0c…@core=tls/ie.example:7447"]
[serve.delegations."ie.tcd.cs"]
owner = "9a8b…"
servers = ["cs.31…@cs=tls/cs.tcd.ie:7447"]
[[serve.advertise]]
names = "ie.tcd.**"
who = ["group:staff"]

[[links]]                                          a short cut
domain = "ie.ucc"
owner = "77c0…"
servers = ["ucc.0d…@ucc=tls/names.ucc.ie:7447"]
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.channel.options.settings import Seconds, read_toml, show, unknown
from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.naming.signatures import ZONE_SECONDS, read_document, read_owner
from headwater.federation.security.identity import Identity, is_id
from headwater.federation.security.rules import Rule, Rules
from headwater.services.documents import SignedDocument
from headwater.services.naming.address import NodeAddress, read_address
from headwater.services.naming.domains import check_domain, domain_problem, is_in
from headwater.services.naming.zone import (
    LEASE_SECONDS,
    NEGATIVE_TTL_SECONDS,
    TTL_SECONDS,
    Delegation,
    read_zone,
)

_OWNER = re.compile(r"[0-9a-f]{64}\Z")
_TIMES = {"ttl": TTL_SECONDS, "negative_ttl": NEGATIVE_TTL_SECONDS, "lease": LEASE_SECONDS, "lasts": ZONE_SECONDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A domain that a node serves. With `owner` the node signs the zone when it starts; `document` is one that was
    signed elsewhere. `servers` are the others of the domain, `parent` who serves the one above. `advertise` are rules
    that say who may have sources of which names; without any, nobody but the domain's own servers."""

    domain: str
    owner: Identity | None = None
    document: SignedDocument | None = None
    servers: tuple[NodeAddress, ...] = ()
    parent: tuple[NodeAddress, ...] = ()
    delegations: Mapping[str, Delegation] = field(default_factory=dict)
    advertise: Rules = field(default_factory=lambda: Rules(why="its domain has not consented"))
    version: int = 0  # of the zone; 0: by the clock
    ttl: float = TTL_SECONDS
    negative_ttl: float = NEGATIVE_TTL_SECONDS
    lease: float = LEASE_SECONDS
    lasts: float = ZONE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSettings:
    """How a node looks names up, and which domains it serves. `anchors` have the owner's key of some domains, the
    root's as a rule, and servers of them where those are known; `carries`: it passes on for others (`gateway`)."""

    anchors: Mapping[str, Delegation] = field(default_factory=dict)
    servers: tuple[NodeAddress, ...] = ()
    entry: tuple[str, ...] = ()
    gateway: str = ""
    carries: bool = False
    serve: tuple[Served, ...] = ()

    @classmethod
    def of(cls, given: NameSettings | Mapping[str, Any] | str | os.PathLike[str]) -> NameSettings:
        """From a value, a table, or a TOML file, whose paths are relative to it; ConfigError with all problems."""
        if isinstance(given, NameSettings):
            return given
        if isinstance(given, Mapping):
            return _Reading("names", Path()).settings(given)
        path = os.fspath(given)
        return _Reading(path, Path(path).parent).settings(read_toml(path))


class _Reading:
    """One file or table, with all that is wrong in it."""

    def __init__(self, place: str, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._problems: list[ConfigProblem] = []

    def settings(self, table: Mapping[str, Any]) -> NameSettings:
        """All of it."""
        self._known(table, "", ("anchors", "servers", "entry", "gateway", "carries", "serve", "links"))
        anchors = self._anchors(table.get("anchors", {}))
        for number, link in enumerate(self._tables(table.get("links", ()), "links"), 1):
            self._link(link, f"[[links]] {number}", anchors)
        serve = [
            self._served(each, f"[[serve]] {number}")
            for number, each in enumerate(self._tables(table.get("serve", ()), "serve"), 1)
        ]
        made = NameSettings(
            anchors=anchors,
            servers=self._addresses(table.get("servers", ()), "servers"),
            entry=self._texts(table.get("entry", ()), "entry"),
            gateway=self._node(table.get("gateway", ""), "gateway"),
            carries=self._flag(table.get("carries", False), "carries"),
            serve=tuple(each for each in serve if each is not None),
        )
        if not made.anchors and not made.serve:
            expected = "the key of the root's owner, or of another domain's"
            self._wrong("anchors", expected, "none", "anchors = { '.' = '…' }, with what `headwater names key` printed")
        if self._problems:
            raise ConfigError(self._problems)
        return made

    def _anchors(self, given: Any) -> dict[str, Delegation]:
        if not isinstance(given, Mapping):
            self._wrong("anchors", "a table of domains and their owners' keys", show(given))
            return {}
        found: dict[str, Delegation] = {}
        for domain, value in given.items():
            place = f"anchors {domain!r}"
            table = value if isinstance(value, Mapping) else {"owner": value}
            made = self._delegation(table, place)
            if self._domain(domain, place) and made is not None:
                found[check_domain(domain)] = made
        return found

    def _link(self, table: Mapping[str, Any], place: str, anchors: dict[str, Delegation]) -> None:
        self._known(table, place, ("domain", "owner", "servers"))
        made = self._delegation({name: value for name, value in table.items() if name != "domain"}, place)
        domain = table.get("domain")
        if not self._domain(domain, f"{place} domain") or made is None:
            return
        if not made.servers:
            self._wrong(f"{place} servers", "where the domain is served: a link without it leads nowhere", "none")
        anchors[check_domain(domain)] = made

    def _delegation(self, table: Mapping[str, Any], place: str) -> Delegation | None:
        self._known(table, place, ("owner", "servers"))
        owner = table.get("owner")
        servers = self._addresses(table.get("servers", ()), f"{place} servers")
        if not isinstance(owner, str) or _OWNER.match(owner) is None:
            expected = "the fingerprint of the owner's key: 64 hex digits, as `headwater names key` prints it"
            self._wrong(f"{place} owner", expected, show(owner))
            return None
        return Delegation(owner, servers)

    def _served(self, table: Mapping[str, Any], place: str) -> Served | None:
        """One domain that is served."""
        names = ("domain", "key", "document", "servers", "parent", "delegations", "advertise", "version", *_TIMES)
        self._known(table, place, names)
        domain = table.get("domain")
        if not self._domain(domain, f"{place} domain"):
            return None
        before = len(self._problems)
        domain = check_domain(domain)
        owner, document = self._signing(table, place, domain)
        times = {name: self._seconds(table.get(name, default), f"{place} {name}") for name, default in _TIMES.items()}
        version = table.get("version", 0)
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            self._wrong(f"{place} version", "a whole number from 1; 0 for one by the clock", show(version))
        made = Served(
            domain=domain,
            owner=owner,
            document=document,
            servers=self._addresses(table.get("servers", ()), f"{place} servers"),
            parent=self._addresses(table.get("parent", ()), f"{place} parent"),
            delegations=self._delegations(table.get("delegations", {}), place, domain),
            advertise=self._consents(table.get("advertise", ()), place, domain),
            version=version,
            ttl=times["ttl"],
            negative_ttl=times["negative_ttl"],
            lease=times["lease"],
            lasts=times["lasts"],
        )
        return None if len(self._problems) > before else made

    def _signing(
        self, table: Mapping[str, Any], place: str, domain: str
    ) -> tuple[Identity | None, SignedDocument | None]:
        """By whom the zone is signed, or was."""
        key, document = table.get("key"), table.get("document")
        if (key is None) == (document is None):
            hint = "a key is made by `headwater names key`, a document by `headwater names sign`"
            self._wrong(place, "key, or document", "both" if key is not None else "neither", hint)
            return None, None
        try:
            if isinstance(key, Identity):
                return key, None
            if key is not None:
                return read_owner(self._folder / str(key)), None
            signed = read_document(self._folder / str(document))
            zone = read_zone(signed)
        except ConfigError as error:
            self._problems += error.problems
        except Exception as error:
            self._wrong(f"{place} document", f"a zone of {domain!r}", str(error))
        else:
            if zone.domain == domain:
                return None, signed
            self._wrong(f"{place} document", f"a zone of {domain!r}", f"one of {zone.domain!r}")
        return None, None

    def _delegations(self, given: Any, place: str, domain: str) -> dict[str, Delegation]:
        """What a domain gives away: below it, each to one owner, and with servers."""
        found: dict[str, Delegation] = {}
        if not isinstance(given, Mapping):
            self._wrong(f"{place} delegations", "a table of domains", show(given))
            return found
        for part, value in given.items():
            where = f"{place} delegations {part!r}"
            made = self._delegation(value, where) if isinstance(value, Mapping) else None
            if not isinstance(value, Mapping):
                self._wrong(where, "a table with owner and servers", show(value))
            if not self._domain(part, where) or made is None:
                continue
            if not is_in(check_domain(part), domain):
                hint = "a domain gives away what is below it: anything else would lead in a circle, or to nowhere"
                self._wrong(where, f"a domain below {domain!r}", repr(part), hint)
            if not made.servers:
                self._wrong(f"{where} servers", "where it is served", "none")
            found[check_domain(part)] = made
        for outer in found:
            for inner in found:
                if is_in(inner, outer):
                    found_text = f"one in {outer!r}, which is given away as well"
                    self._wrong(f"{place} delegations {inner!r}", "delegations beside each other", found_text)
        return found

    def _consents(self, given: Any, place: str, domain: str) -> Rules:
        """Who may have sources of which names."""
        rules: list[Rule] = []
        for number, table in enumerate(self._tables(given, f"{place} advertise"), 1):
            where = f"{self._place}: {place} advertise {number}:"
            self._known(table, f"{place} advertise {number}:", ("names", "who"))
            values = {"channel": table.get("names"), "who": table.get("who")}
            if problems := Rule.problems(values, where):
                self._problems += problems
                continue
            rules.append(Rule(values["channel"], values["who"], may=("advertise",)))  # type: ignore[arg-type]
        return Rules(rules, why=f"domain {domain!r} has not consented ([[serve.advertise]])")

    # ── values ──

    def _wrong(self, place: str, expected: str, found: str, hint: str | None = None) -> None:
        where = f"{self._place}: {place}" if place else self._place
        self._problems.append(ConfigProblem(where, expected, found, hint))

    def _known(self, table: Mapping[str, Any], place: str, names: Sequence[str]) -> None:
        where = f"{self._place}: {place} " if place else f"{self._place}: "
        self._problems += [unknown(f"{where}{name}", name, names) for name in table if name not in names]

    def _domain(self, text: object, place: str) -> bool:
        problem = domain_problem(f"{self._place}: {place}", text)
        if problem is not None:
            self._problems.append(problem)
        return problem is None

    def _tables(self, given: Any, place: str) -> list[Mapping[str, Any]]:
        if isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(e, Mapping) for e in given):
            return list(given)
        self._wrong(place, f"tables: [[{place}]]", show(given))
        return []

    def _addresses(self, given: Any, place: str) -> tuple[NodeAddress, ...]:
        several: Iterable[Any] = (given,) if isinstance(given, str | NodeAddress) else given
        if not isinstance(several, Sequence):
            self._wrong(place, "a list of addresses of nodes", show(given))
            return ()
        found = []
        for each in several:
            try:
                found.append(each if isinstance(each, NodeAddress) else read_address(str(each)))
            except ValueError as error:
                self._wrong(place, "the address of a node", show(each), str(error))
        return tuple(found)

    def _texts(self, given: Any, place: str) -> tuple[str, ...]:
        several = (given,) if isinstance(given, str) else given
        if isinstance(several, Sequence) and all(isinstance(each, str) for each in several):
            return tuple(several)
        self._wrong(place, "a list of endpoints", show(given))
        return ()

    def _node(self, given: Any, place: str) -> str:
        if isinstance(given, str) and (not given or is_id(given)):
            return given
        self._wrong(place, "the id of a node: its name, a dot and 32 hex digits, as `headwater node` says", show(given))
        return ""

    def _flag(self, given: Any, place: str) -> bool:
        if not isinstance(given, bool):
            self._wrong(place, "true or false", show(given))
        return bool(given)

    def _seconds(self, given: Any, place: str) -> float:
        above = not place.endswith("ttl")  # what may be cached for no time at all is not
        problem = Seconds(above=above).problem(f"{self._place}: {place}", given)
        if problem is not None:
            self._problems.append(problem)
            return 1.0
        return float(given)


__all__ = ["NameSettings", "Served"]
