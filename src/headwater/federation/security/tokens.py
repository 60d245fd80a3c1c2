"""Tokens of an outside issuer (OIDC, JWT), as what a user is known by.

    Issuer(issuer="https://login.example.org", audience="building", keys="issuer.json")

    issuer, audience    both must stand in a token exactly so
    keys                a file with the issuer's public keys: a JWK set, or one key as PEM. It is looked at again while
                        the node runs; nothing is ever fetched
    algorithms          those that are taken, whatever a token says of itself; none that goes without a public key
    user, groups, …     which claims say who the user is; claims are never read before the signature is good
    bound               only tokens made for the node that shows them count (`cnf`, its key's fingerprint), so that one
                        that was stolen is of no use elsewhere

A token counts until it expires, and is looked at anew each time.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic, time
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from headwater.channel.options.settings import show
from headwater.errors import ConfigError, ConfigProblem, SecurityError
from headwater.federation.security.trust import RECHECK_SECONDS, stamp
from headwater.services.policy.identity import MOST_GROUPS, Identity
from headwater.spelling import did_you_mean

log = logging.getLogger("headwater.federation")
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
USUAL = ("RS256", "PS256", "ES256", "EdDSA")
MAX_TOKEN = 8192  # bytes
MAX_FILE = 1 << 20
MAX_KEYS = 64
RSA_BITS = 2048
LEEWAY_SECONDS = 30.0  # that the clocks of the issuer and of this node may be apart
PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Key:
    """One of an issuer's, with what it is for, as far as the file says."""

    key: Any
    name: str = ""  # kid
    algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Whose tokens a node takes as proof of a user. `attributes` are claims that policies may read as the user's."""

    issuer: str
    audience: str
    keys: PathLike
    algorithms: tuple[str, ...] = USUAL
    user: str = "sub"
    groups: str = "groups"
    device: str = ""
    device_kind: str = ""
    attributes: tuple[str, ...] = ()
    bound: bool = False
    leeway: float = LEEWAY_SECONDS
    _file: KeyFile = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check all of it at once, the keys too."""
        place = f"issuer {self.issuer!r}"
        problems = [
            ConfigProblem(f"{place}: {name}", "a text", show(getattr(self, name)))
            for name in ("issuer", "audience", "user", "groups", "device", "device_kind")
            if not isinstance(getattr(self, name), str)
            or (not getattr(self, name) and name in ("issuer", "audience", "user"))
        ]
        for name in ("algorithms", "attributes"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(each, str) and each for each in given):
                problems.append(ConfigProblem(f"{place}: {name}", "a list of texts", show(given)))
            else:
                object.__setattr__(self, name, tuple(given))
        for each in () if isinstance(self.algorithms, str) else self.algorithms:
            if each not in ALGORITHMS:
                hint = did_you_mean(each, ALGORITHMS) or "those with a secret, and none, would let anybody make tokens"
                expected = f"some of {', '.join(ALGORITHMS)}"
                problems.append(ConfigProblem(f"{place}: algorithms", expected, show(each), hint))
        if not self.algorithms:
            problems.append(ConfigProblem(f"{place}: algorithms", "one at least", "none"))
        if not isinstance(self.leeway, int | float) or not 0 <= self.leeway <= 3600:
            problems.append(ConfigProblem(f"{place}: leeway", "0 to 3600 seconds", show(self.leeway)))
        object.__setattr__(self, "_file", KeyFile(Path(self.keys)))
        if not problems:
            try:
                self._file.load()
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems, "an issuer of tokens cannot be like this")

    @classmethod
    def read(cls, table: Mapping[str, Any], place: str, folder: PathLike = "") -> Issuer:
        """From a table of a file, in which paths are relative to it."""
        known = [each.name for each in fields(cls) if each.init]
        if problems := [
            ConfigProblem(f"{place}: {key}", "an option of an issuer", show(key), did_you_mean(key, known))
            for key in table
            if key not in known
        ]:
            raise ConfigError(problems)
        if missing := [name for name in ("issuer", "audience", "keys") if name not in table]:
            raise ConfigError([ConfigProblem(f"{place}: {name}", "a value", "nothing") for name in missing])
        values = dict(table)
        if isinstance(values["keys"], str):
            values["keys"] = Path(folder) / values["keys"]
        return cls(**values)

    # ── tokens ──

    def identity(self, token: bytes, *, node: str, fingerprint: str, now: float | None = None) -> Identity:
        """Who a token says that it is about, shown by the node whose key has this fingerprint; SecurityError if it is
        not good. `now` is in seconds since 1970."""
        claims = self._verified(token)
        self._check_times(claims, time() if now is None else now)
        if self.bound:
            confirmed = claims.get("cnf")
            if not isinstance(confirmed, dict) or confirmed.get("kid") != fingerprint:
                raise _bad("it was not made for the node that shows it (cnf: kid, its key's fingerprint)")
        try:
            return Identity(
                user=_text(claims, self.user) or _missing(self.user),
                groups=_texts(claims, self.groups),
                attributes={name: claims[name] for name in self.attributes if name in claims},
                device=_text(claims, self.device),
                device_kind=_text(claims, self.device_kind),
                node=node,
                how="token",
            )
        except ConfigError as error:
            raise _bad(f"its claims say nobody: {error}") from None

    def until(self, token: bytes) -> float:
        """When a token that was good expires, in seconds since 1970."""
        return float(self._verified(token)["exp"]) + self.leeway

    def _verified(self, token: bytes) -> dict[str, Any]:
        """The claims of a token that this issuer has signed for this audience; times are looked at by others."""
        import jwt

        try:
            text = token.decode("ascii")
            header = jwt.get_unverified_header(text)
        except (UnicodeDecodeError, jwt.PyJWTError) as error:
            raise _bad(f"it cannot be read: {error}") from None
        if len(token) > MAX_TOKEN:
            raise _bad(f"it has {len(token):,} bytes, of which {MAX_TOKEN:,} are taken")
        if header.get("alg") not in self.algorithms:
            raise _bad(f"it is signed by {header.get('alg')!r}, and taken are {', '.join(self.algorithms)}")
        key = self._file.find(header.get("kid"), str(header["alg"]))
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["exp", "iss", "aud"]}
        try:
            found = jwt.decode(
                text, key, algorithms=list(self.algorithms), audience=self.audience, issuer=self.issuer, options=options
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _bad(f"{error}"[:200]) from None
        return dict(found)

    def _check_times(self, claims: Mapping[str, Any], now: float) -> None:
        times = {name: claims[name] for name in ("exp", "nbf") if name in claims}
        for name, at in times.items():
            if not isinstance(at, int | float) or isinstance(at, bool) or not abs(at) < 1 << 53:
                raise _bad(f"its {name} is no time")
        if now > times["exp"] + self.leeway:
            raise _bad("it has expired")
        if now < times.get("nbf", now) - self.leeway:
            raise _bad("it is not good yet; set the clocks")


class KeyFile:
    """The public keys of an issuer, in a file that may be replaced while the node runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._keys: tuple[Key, ...] = ()
        self._stamp: object = None
        self._looked = 0.0

    def load(self) -> None:
        """Read it; ConfigError if it is no such file."""
        self._stamp, self._keys = stamp(self.path), _read_keys(self.path)
        self._looked = monotonic()

    def find(self, name: Any, algorithm: str) -> Any:
        """The key that a token names, or the only one there is; SecurityError if it is none of the issuer's."""
        self._look()
        fit = [each for each in self._keys if not each.algorithm or each.algorithm == algorithm]
        if isinstance(name, str) and name:
            fit = [each for each in fit if each.name == name or (not each.name and len(self._keys) == 1)]
        if len(fit) != 1:
            raise _bad("the issuer has no such key" if isinstance(name, str) else "it does not say which key it is of")
        return fit[0].key

    def _look(self) -> None:
        """What cannot be read leaves what was good last."""
        with self._lock:
            if monotonic() - self._looked < RECHECK_SECONDS:
                return
            self._looked = monotonic()
            if stamp(self.path) == self._stamp:
                return
            try:
                self.load()
            except ConfigError as error:
                log.error("what was good last goes on: %s", error)


def _read_keys(path: Path) -> tuple[Key, ...]:
    """All of a file; ConfigError names what is wrong."""
    expected = "a JWK set, or a public key as PEM"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([ConfigProblem(str(path), expected, str(error))]) from None
    if len(data) > MAX_FILE:
        raise ConfigError([ConfigProblem(str(path), f"at most {MAX_FILE:,} bytes", f"{len(data):,}")])
    found = _read_pem(data) if data.lstrip().startswith(b"-----") else _read_set(data)
    if isinstance(found, str):
        hint = _LEAKED if found == _PRIVATE else None
        raise ConfigError([ConfigProblem(str(path), expected, found, hint)])
    for each in found:
        if isinstance(each.key, RSAPublicKey) and each.key.key_size < RSA_BITS:
            raise ConfigError([ConfigProblem(str(path), f"RSA keys of {RSA_BITS} bits", f"{each.key.key_size}")])
    return found


_PRIVATE = "a private key"
_LEAKED = "give this node the public half alone, and have the issuer make a new key: this one has been in two places"


def _read_pem(data: bytes) -> tuple[Key, ...] | str:
    """One key, or what else it is."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in data:
        return _PRIVATE
    try:
        return (Key(load_pem_public_key(data)),)
    except Exception as error:  # a parser of a file that may hold anything
        return f"something else: {error}"


def _read_set(data: bytes) -> tuple[Key, ...] | str:
    """All keys for signatures, or what is wrong with them."""
    import jwt

    try:
        table = msgspec.json.decode(data)
        each = table["keys"] if isinstance(table, dict) and "keys" in table else [table]
        if any("d" in one or one.get("kty") == "oct" for one in each):
            return _PRIVATE
        made = [jwt.PyJWK.from_dict(one) for one in each if one.get("use", "sig") == "sig"]
    except (msgspec.DecodeError, jwt.PyJWTError, AttributeError, KeyError, TypeError, ValueError) as error:
        return f"something else: {error}"
    if not 0 < len(made) <= MAX_KEYS:
        return f"{len(made):,} keys for signatures, of 1 to {MAX_KEYS}"
    names = [one.key_id or "" for one in made]
    if len(made) > 1 and (len(set(names)) < len(names) or not all(names)):
        return "keys that their names (kid) do not tell apart"
    declared = [str(one.get("alg", "")) for one in each if one.get("use", "sig") == "sig"]
    return tuple(Key(one.key, name, algorithm) for one, name, algorithm in zip(made, names, declared, strict=True))


def _text(claims: Mapping[str, Any], name: str) -> str:
    found = claims.get(name, "") if name else ""
    if not isinstance(found, str):
        raise _bad(f"its {name} is no text")
    return found


def _texts(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = claims.get(name, ()) if name else ()
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) and each for each in found):
        raise _bad(f"its {name} are no texts")
    if len(found) > MOST_GROUPS:
        raise _bad(f"its {name} are {len(found):,}, of at most {MOST_GROUPS}")
    return tuple(found)


def _missing(name: str) -> str:
    raise _bad(f"it does not say who it is about ({name})")


def _bad(why: str) -> SecurityError:
    return SecurityError(f"a token is not good: {why}", "token")


__all__ = ["ALGORITHMS", "MAX_TOKEN", "Issuer", "KeyFile"]
