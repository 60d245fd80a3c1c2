"""How a node proves who it is, how it knows others, and what they may do: one frozen value.

    Security(certificate="dublin.pem", key="dublin.key", authority="authority.pem", rules=[Rule("ie.**", "*")])
    Security(user="ann", password="...", users={"ann": "...", "bob": "..."}, rules=[...])
    Security.load("security.toml")

The same in a file; paths in it are relative to it:

    certificate = "dublin.pem"
    key = "dublin.key"
    authority = "authority.pem"

    [[rules]]
    channel = "ie.tcd.**"
    who = ["dublin", "group:staff"]
    may = ["advertise", "subscribe"]

With nothing set, nodes of one machine hear each other and everything is allowed; anything that leaves the machine is a
ConfigError. With an authority or users set, only who proves to be known is heard, and only what a rule allows is done.
Certificates prove who a node is, and so do user and password to those who know the same users; in both cases what nodes
say to each other is encrypted. See docs/security.md for what passwords do not protect.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from cryptography import x509
from cryptography.x509 import verification

from headwater.channel.names import Pattern, is_pattern
from headwater.channel.options.settings import Count, Name, Seconds, Settings, read_toml, show, unknown
from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.endpoints import (
    ENCRYPTED,
    Locator,
    is_local_scouting,
    is_loopback,
    loopback_only,
    protocol,
)
from headwater.federation.security.identity import Identity, read_certificates
from headwater.federation.security.policies import Policies
from headwater.federation.security.policy import ACTIONS, Action, Closed, Policy, Verdict
from headwater.federation.security.proof import Credential, VouchError, vouched
from headwater.federation.security.rules import Principal, Rule, Rules
from headwater.federation.security.tls import tls_contexts, zenoh_settings
from headwater.federation.security.tokens import Issuer
from headwater.federation.security.user_keys import MARK, UserKeys

log = logging.getLogger("headwater.federation")

ENVELOPE_BYTES = 1024 * 1024  # bytes of an envelope
SKEW_SECONDS = 60.0  # seconds
PathLike = str | os.PathLike[str]
_PATHS = ("certificate", "key", "authority")
_FILES = (*_PATHS, "revoked")


@dataclass(frozen=True, slots=True)
class Text:
    """A password: printable, and no white space around it."""

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        if isinstance(value, str) and 0 < len(value) <= 1024 and value.isprintable() and value == value.strip():
            return None
        found = f"{len(value)} characters" if isinstance(value, str) else f"a value of type {type(value).__name__}"
        return ConfigProblem(place, "1 to 1024 printable characters, no space around them", found)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        return None if isinstance(value, bool) else ConfigProblem(place, "true or false", show(value))


@dataclass(frozen=True, slots=True)
class File:
    """The path of a file that can be read."""

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        if not isinstance(value, str | os.PathLike) or not os.fspath(value):
            return ConfigProblem(place, "the path of a file", show(value))
        if not os.access(value, os.R_OK) or not Path(value).is_file():
            return ConfigProblem(place, "the path of a file that can be read", show(os.fspath(value)))
        return None


@dataclass(frozen=True, slots=True)
class User:
    """A user that this node knows: by keys, or by a password, of which keys are made when they are first needed."""

    password: str | None = field(default=None, repr=False)
    groups: tuple[str, ...] = ()
    keys: UserKeys | None = None

    def keys_of(self, name: str) -> UserKeys:
        """What checks who says to be this user; `name` is that of the user."""
        return UserKeys.of(name, self.password or "") if self.keys is None else self.keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How a node proves who it is, how it knows others, and what they may do.

    `certificate`, `key`, `authority`: PEM files. The certificate's common name is the node's name, its key is of the
    curve P-256. Who shows a certificate of the authority is heard, over mutual TLS.
    `revoked`: a file with the authority's list of revoked certificates (CRL). All of these files are looked at again
    while the node runs: what is put in their place takes effect, and what is wrong with it is said.
    `user`, `password`: what this node proves itself with. `users`: those it hears, as a mapping from names to
    passwords (or to tables with `password` or `keys`, and `groups`), or the path of a file with keys, which
    `headwater users` writes: a user's password is known to nobody but the user.
    `rules`: see `headwater.federation.security.rules`. `policy`: what decides in their place, and may restrict what is
    subscribed to: see `headwater.federation.security.policy`.
    `policies`: whose policies hold here, which decide which part of a channel somebody gets: `Policies`.
    `issuers`: whose tokens prove to this node who a user is: `Issuer`, or tables as in a file.
    `open=True`: hear everybody, also from beyond this machine.
    `skew`: seconds that clocks of different machines may be apart. `limit`: bytes of a signed message.
    `verify_hosts`: that a node's certificate must also name the host it was reached at.
    """

    certificate: PathLike | None = None
    key: PathLike | None = None
    authority: PathLike | None = None
    revoked: PathLike | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    users: Mapping[str, Any] | PathLike | None = field(default=None, repr=False)
    rules: Sequence[Rule] | Rules | None = None
    policy: Policy | None = None
    policies: Policies | Mapping[str, Any] | None = None
    issuers: Sequence[Issuer | Mapping[str, Any]] = ()
    open: bool = False
    skew: float = SKEW_SECONDS
    limit: int = ENVELOPE_BYTES
    verify_hosts: bool = False
    _known: Mapping[str, User] = field(init=False, repr=False, compare=False)

    settings: ClassVar[Settings] = Settings(
        certificate=File(),
        key=File(),
        authority=File(),
        revoked=File(),
        user=Name(),
        password=Text(),
        open=Flag(),
        skew=Seconds(above=True),
        limit=Count(4096, 64 * 1024 * 1024),
        verify_hosts=Flag(),
    )

    def __post_init__(self) -> None:
        """Check all settings at once, also against each other, so that one error names everything that is wrong."""
        given = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        plain = {name: value for name, value in given.items() if name in self.settings and value is not None}
        problems = self.settings.problems(plain, "Security:")
        users = _read_users(self.users, problems)
        if self.rules is not None:
            rules = _read_rules(
                list(self.rules) if isinstance(self.rules, Rules) else self.rules, "Security:", problems
            )
            object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "issuers", _read_issuers(self.issuers, problems))
        if self.policies is not None:
            try:
                object.__setattr__(self, "policies", Policies.of(self.policies))
            except ConfigError as error:
                problems += error.problems
        if not problems:
            problems += _contradictions(self, users)
        if problems:
            raise ConfigError(problems, "security cannot be like this")
        object.__setattr__(self, "_known", users)
        if self.users is not None and not isinstance(self.users, str | os.PathLike):
            object.__setattr__(self, "users", tuple(sorted(users.items())))  # as what it is compared
        for name in _FILES:
            if given[name] is not None:
                object.__setattr__(self, name, Path(given[name]).absolute())
        object.__setattr__(self, "skew", float(self.skew))

    # ── where it comes from ──

    @classmethod
    def of(cls, what: Security | PathLike | Mapping[str, Any] | None) -> Security:
        """The security that is meant: itself, a TOML file's, a dict's as in such a file, or none."""
        match what:
            case None:
                return cls()
            case Security():
                return what
            case str() | os.PathLike():
                return cls.load(what)
            case Mapping():
                return cls.read(what)
            case _:
                wanted = "a Security, the path of a TOML file, a dict or None"
                raise ConfigError([ConfigProblem("security", wanted, show(what))])

    @classmethod
    def load(cls, path: PathLike) -> Security:
        """The security in a TOML file: at its top, or in its table `security`."""
        file = Path(path)
        tables = read_toml(file)
        return cls.read(tables.get("security", tables), place=str(file), folder=file.parent)

    @classmethod
    def read(cls, table: Mapping[str, Any], *, place: str = "security", folder: PathLike = "") -> Security:
        """The security in a table of a TOML file; paths are relative to the folder."""
        if not isinstance(table, Mapping):
            raise ConfigError([ConfigProblem(place, "a table", show(table))])
        values = dict(table)
        for name in (*_FILES, "users"):
            if isinstance(values.get(name), str):
                values[name] = Path(folder) / values[name]
        if isinstance(each := values.get("issuers"), list):
            values["issuers"] = [
                {**one, "keys": Path(folder) / one["keys"]} if isinstance(one, Mapping) and "keys" in one else one
                for one in each
            ]
        known = [item.name for item in fields(cls) if item.init]
        problems = [
            unknown(f"{place}: {key}", key, known)
            for key in values  # and not their values, which may be secrets
            if key not in known
        ]
        problems += [
            ConfigProblem(f"{place}: {key}", "a value", "nothing") for key, value in values.items() if value is None
        ]
        if problems:
            raise ConfigError(problems, f"the security in {place} cannot be like this")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(
                [
                    ConfigProblem(each.place.replace("Security:", f"{place}:"), each.expected, each.found, each.hint)
                    for each in error.problems
                ],
                f"the security in {place} cannot be like this",
            ) from None

    # ── what it means ──

    @property
    def token_issuers(self) -> tuple[Issuer, ...]:
        """Whose tokens prove a user here."""
        return tuple(each for each in self.issuers if isinstance(each, Issuer))

    @property
    def proves(self) -> bool:
        """Whether others must prove who they are: by a certificate, or by user and password."""
        return self.authority is not None or self.users is not None

    @property
    def decides(self) -> bool:
        """Whether rules, or a policy, say who may do what."""
        return self.rules is not None or self.policy is not None

    def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
        """Whether a principal may advertise, subscribe to or install code on a channel, and why; and, if it
        says that it does so on behalf of somebody, whether that one may."""
        return self._policy().decide(principal, action, channel, on_behalf_of)

    def decide_named(self, principal: Principal, action: Action, name: str) -> Verdict:
        """As `decide`; of a pattern of names, whether that may be so of some channel that it fits."""
        if is_pattern(name):
            return self._policy().decide_some(principal, action, Pattern(name))
        return self.decide(principal, action, name)

    def open_to_all(self, action: Action, channel: str) -> bool:
        """Whether everybody who is heard at all may do this on a channel, with no restriction."""
        return self._policy().open_to_all(action, channel)

    def hides_from(self, principal: Principal) -> bool:
        """Whether there may be channels that a principal may not know of; that does not depend on which there are."""
        return self._policy().hides_from(principal)

    def seen_by(self, principal: Principal) -> Callable[[str], bool]:
        """Of channels, whether a principal may know that they are there: that is who may do something on them."""
        return self._policy().seen_by(principal)

    def deals_with(self, principal: Principal, action: Action | None = None) -> bool:
        """Whether there is anything at all that a principal may do; or any channel on which it may do this."""
        return self._policy().deals_with(principal, action)

    def _policy(self) -> Closed:
        """The one way to ask: what the policy leaves open is closed."""
        return Closed(self._chosen())

    def _chosen(self) -> Policy:
        if self.policy is not None:
            return self.policy
        if self.rules is not None:
            return Rules(self.rules)
        if self.proves:
            return Rules(why="where others must prove who they are, what no rule allows is refused")
        if self.open:
            return Rules(default=True, why="Security(open=True) allows everything to everybody")
        # A bare key is heard on loopback only: the verifier sees to that.
        return Rules(default=True, why="without any security everything is allowed between nodes of one machine")

    def check_endpoints(self, endpoints: Iterable[str | Locator], *, scout: object = None, place: str = "node") -> bool:
        """Whether these endpoints (listened on, or connected to) all stay on this machine; ConfigError if they do not
        and nothing says who may come in, or if they would carry in the clear what certificates are there to protect."""
        endpoints = [endpoints] if isinstance(endpoints, str) else list(endpoints)
        beyond = [each for each in endpoints if not is_loopback(each)]
        shown = [_shown(each) for each in beyond]
        places = [_place(each) for each in beyond]
        ports = [_port(each) for each in beyond]
        if not is_local_scouting(scout):
            shown.append("scouting on the network")
            places.append("scout")
            ports.append(0)
        if shown and not self.proves and not self.open:
            hint = (
                "give Security(certificate=, key=, authority=) (headwater.federation.security.certificates makes them) "
                "or Security(user=, password=, users=), with rules=[...]; or stay on this machine: tcp/127.0.0.1:{}; "
                "or, if really everybody may come in and do everything, Security(open=True)"
            )
            expected = "only endpoints of this machine, for there is no security"
            if self.decides:
                expected += " (rules alone prove nothing)"
            raise ConfigError(
                [
                    ConfigProblem(f"{place}: {at}", expected, each, hint.format(port))
                    for at, each, port in zip(places, shown, ports, strict=True)
                ]
            )
        if shown and self.open:
            log.warning(
                "%s: OPEN to everybody at %s: anyone who can reach it can read, publish and run interests here, "
                "because of Security(open=True)", place, ", ".join(shown),
            )  # fmt: skip
        if self.authority is not None and (clear := [each for each in beyond if protocol(str(each)) not in ENCRYPTED]):
            raise ConfigError(
                [
                    ConfigProblem(f"{place}: {_place(each)}", "tls or quic beyond this machine, for there are "
                                  "certificates", _shown(each), f"write {show('tls/' + str(each).partition('/')[2])}")
                    for each in clear
                ]
            )  # fmt: skip
        return loopback_only(endpoints, scout=scout)

    # ── what it is made of ──

    def identity(self, name: str | None = None, stored: bytes | None = None) -> Identity:
        """This node's identity: the certificate's, or one with a key stored before, or one with a new key."""
        if self.certificate is not None and self.key is not None:
            found = Identity.load(certificate=self.certificate, key=self.key, name=name)
            self._check_own(found)
            return found
        if name is None:
            raise ConfigError([ConfigProblem("node: name", "a name, for there is no certificate with one", "none")])
        return Identity.ephemeral(name) if stored is None else Identity.from_bytes(name, stored)

    def _check_own(self, identity: Identity) -> None:
        """What this node would not believe of others, others would not believe of it: better to hear that now."""
        certificates = [x509.load_der_x509_certificate(each) for each in identity.chain]
        try:
            vouched(certificates, verification.Store(list(self.authorities())), time.time_ns())
        except VouchError as error:
            expected = f"a certificate that {self.authority} vouches for"
            hint = "headwater.federation.security.certificates makes an authority and certificates that are right"
            raise ConfigError([ConfigProblem(str(self.certificate), expected, f"one that is {error}", hint)]) from None

    def credential(self) -> Credential | None:
        """What proves this node by user and password, if it has them."""
        return None if self.user is None or self.password is None else Credential(self.user, self.password)

    def authorities(self) -> Sequence[x509.Certificate]:
        """The certificates of the authorities that this node trusts."""
        return () if self.authority is None else read_certificates(self.authority)

    def whose_policies(self) -> Policies | None:
        """Whose policies hold here, if anybody's but this node's own."""
        return None if self.policies is None else Policies.of(self.policies)

    def users_by_name(self) -> Mapping[str, User]:
        """The users that this node knows."""
        return self._known


def _shown(endpoint: str | Locator) -> str:
    """An endpoint as the user wrote it."""
    return endpoint.shown if isinstance(endpoint, Locator) else show(endpoint)


def _port(endpoint: str | Locator) -> int:
    """The port of this machine that may be meant: to connect to it is the same, to listen at any free one will do."""
    return endpoint.port if isinstance(endpoint, Locator) and endpoint.place == "connect" else 0


def _place(endpoint: str | Locator) -> str:
    """The setting in which an endpoint stands."""
    return (endpoint.place if isinstance(endpoint, Locator) else "") or "endpoints"


def _contradictions(security: Security, users: Mapping[str, User]) -> list[ConfigProblem]:
    """What cannot be meant: settings that are right by themselves and not together."""
    found = []
    three = {name: getattr(security, name) for name in _PATHS}
    if any(three.values()) and not all(three.values()):
        there = ", ".join(name for name, value in three.items() if value)
        missing = ", ".join(name for name, value in three.items() if not value)
        expected = f"certificate, key and authority together: this node's own, and who vouches for others ({missing})"
        found.append(ConfigProblem(f"Security: {missing}", expected, f"only {there}"))
    if (security.user is None) != (security.password is None):
        there, missing = ("user", "password") if security.password is None else ("password", "user")
        found.append(ConfigProblem(f"Security: {missing}", "user and password together", f"only {there}"))
    if security.user is not None and not security.proves:
        hint = "give users, so that this node knows the others"
        found.append(ConfigProblem("Security: users", "users or an authority besides user and password", "none", hint))
    if security.users is not None and security.user is None:
        hint = "give user and password, so that others let this node in as well"
        found.append(ConfigProblem("Security: user", "user and password besides users", "none", hint))
    if security.user in users and not _is_right(str(security.user), security.password or "", users):
        found.append(
            ConfigProblem("Security: password", f"the one that users has for {show(security.user)}", "another")
        )
    if security.user is not None and ":" in security.user:
        found.append(ConfigProblem("Security: user", "a name without a colon", show(security.user)))
    if security.open and (security.proves or security.user is not None):
        hint = "leave out open, or the certificates and users"
        found.append(ConfigProblem("Security: open", "false where others must prove who they are", "true", hint))
    if security.revoked is not None and security.authority is None:
        found.append(ConfigProblem("Security: revoked", "an authority, whose list it is", "none"))
    if security.policy is not None:
        if not isinstance(security.policy, Policy):
            methods = "decide, decide_some, open_to_all, seen_by, hides_from and deals_with"
            found.append(ConfigProblem("Security: policy", f"an object with {methods}", show(security.policy)))
        if security.rules is not None:
            found.append(ConfigProblem("Security: rules", "rules or a policy", "both"))
    if isinstance(security.policies, Policies):
        found += _unsigned(security.policies, security.authority is not None)
    if security.verify_hosts and security.authority is None:
        found.append(ConfigProblem("Security: verify_hosts", "certificates, whose hosts can be verified", "none"))
    return found


def _read_issuers(given: Any, problems: list[ConfigProblem]) -> tuple[Issuer, ...]:
    """Those that are meant, with what is wrong added to the problems."""
    found = []
    for number, each in enumerate([given] if isinstance(given, Issuer | Mapping | str) else given, 1):
        try:
            if not isinstance(each, Issuer | Mapping):
                raise ConfigError([ConfigProblem("Security: issuers", "an Issuer, or a table", show(each))])
            found.append(each if isinstance(each, Issuer) else Issuer.read(each, f"Security: issuers {number}"))
        except ConfigError as error:
            problems += error.problems
    return tuple(found)


def _unsigned(policies: Policies, certified: bool) -> list[ConfigProblem]:
    """Those of whom no document could ever be verified: users prove who they are to a node that they talk to, and what
    is signed is known by its signer's certificate, or key."""
    bad = [each for each in policies.by if (each.startswith("user:") if certified else not each.startswith("key:"))]
    if not bad:
        return []
    expected = "who has a certificate" if certified else "keys, as there is no authority: key: and a fingerprint"
    hint = "`headwater policy key` says which one a node's state has"
    return [ConfigProblem("policies: by", expected, show(bad[0]), "" if certified else hint)]


def _is_right(user: str, password: str, users: Mapping[str, User]) -> bool:
    """Whether a node's own password is what it knows of that user."""
    known = users[user]
    return known.password == password if known.keys is None else known.keys == UserKeys.of(user, password)


def _read_rules(found: object, place: str, problems: list[ConfigProblem]) -> tuple[Rule, ...]:
    if not isinstance(found, Sequence) or isinstance(found, str):
        problems.append(ConfigProblem(f"{place} rules", f"a list of rules, each may {', '.join(ACTIONS)}", show(found)))
        return ()
    rules = []
    for number, each in enumerate(found, 1):
        if isinstance(each, Rule):
            rules.append(each)
        elif not isinstance(each, Mapping):
            problems.append(ConfigProblem(f"{place} rules, number {number}", "a Rule, or a table", show(each)))
        elif wrong := Rule.problems(dict(each), f"{place} rules, number {number}:"):
            problems += wrong
        else:
            rules.append(Rule(**each))
    return tuple(rules)


def _read_users(found: object, problems: list[ConfigProblem]) -> dict[str, User]:
    """Users with their passwords, from a file or a mapping."""
    place = "Security: users"
    pairs: list[tuple[Any, Any]] = []
    match found:
        case None:
            return {}
        case str() | os.PathLike():
            try:
                lines = Path(found).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(ConfigProblem(place, "a file that headwater users has written", f"{found}: {error}"))
                return {}
            for number, line in enumerate(lines, 1):
                if (pair := _read_line(line.strip(), f"{found}, line {number}", problems)) is not None:
                    pairs.append(pair)
        case Mapping():
            pairs = list(found.items())
        case tuple():  # of another Security
            pairs = list(found)
        case _:
            problems.append(ConfigProblem(place, "names with passwords, or the path of a file", show(found)))
            return {}
    users: dict[str, User] = {}
    for name, value in pairs:
        where = f"{place} {name}"
        if (problem := Name().problem(where, name)) is not None or ":" in name or name.startswith("#"):
            problems.append(problem or ConfigProblem(where, "a name without a colon or # at its start", show(name)))
        elif name in users:
            problems.append(ConfigProblem(where, "each name once", "it again"))
        elif (user := _read_user(value, where, problems)) is not None:
            users[name] = user
    if not pairs and not problems:
        problems.append(ConfigProblem(place, "one user at least", "none"))
    return users


def _read_line(line: str, place: str, problems: list[ConfigProblem]) -> tuple[str, Any] | None:
    """A name and what is known of that user; None if there is nothing, or something wrong."""
    name, colon, rest = line.partition(":")
    if not line or line.startswith("#"):
        return None
    expected = f"name:{MARK}:key:key, and groups behind another colon"
    if not colon:
        problems.append(ConfigProblem(place, expected, "no colon"))
        return None
    if not rest.startswith(f"{MARK}:"):
        hint = f"headwater users convert {place.partition(', line')[0]} puts keys in the place of passwords"
        problems.append(ConfigProblem(place, expected, "something else, perhaps a password", hint))
        return None
    *keys, groups = rest.split(":", 3) if rest.count(":") > 2 else (rest, "")
    return name, {"keys": ":".join(keys), "groups": [each for each in groups.split(",") if each]}


def _read_user(value: Any, place: str, problems: list[ConfigProblem]) -> User | None:
    """What is known of a user: a password, or a table with that or keys, and groups; None, with what is wrong told."""
    if isinstance(value, User):
        return value
    table = dict(value) if isinstance(value, Mapping) else {"password": value}
    groups, keys, password = table.pop("groups", ()), table.pop("keys", None), table.pop("password", None)
    wrong = [ConfigProblem(f"{place} {key}", "only password or keys, and groups", show(key)) for key in table]
    made: UserKeys | None = None
    if keys is None:
        problem = Text().problem(f"{place} password", "" if password is None else password)
        wrong += [] if problem is None else [problem]
    elif password is not None:
        wrong.append(ConfigProblem(place, "a password or keys", "both"))
    else:
        try:
            made = UserKeys.read(str(keys))
        except ValueError as error:
            wrong.append(ConfigProblem(f"{place} keys", f"{MARK}:key:key, as headwater users writes them", str(error)))
    if not isinstance(groups, list | tuple) or not all(isinstance(group, str) and group for group in groups):
        wrong.append(ConfigProblem(f"{place} groups", "a list of names", show(groups)))
    problems += wrong
    return None if wrong else User(password, tuple(groups), made)


__all__ = [
    "ENVELOPE_BYTES",
    "SKEW_SECONDS",
    "Rule",
    "Rules",
    "Security",
    "User",
    "is_loopback",
    "loopback_only",
    "tls_contexts",
    "zenoh_settings",
]
