"""What nodes say to each other, signed, so that it holds through any number of routers.

    sealer = Sealer(identity, "tcd", incarnation=time.time_ns())
    verifier = Verifier(security, "tcd", loopback=True)
    opened = verifier.open(sealer.seal("news", b"..."), expected_kind="news")
    opened.principal, opened.sender, opened.body

On the wire: `HWE2`, a byte with the length of the signature, the signature, the content (msgpack). The signature is
over all of the content, and the content says for which federation, of which kind, for whom and which run of it, by
which run of the sender (its incarnation), with which counter and when it was sealed; an answer says to which question.
So a signed message cannot be used again, elsewhere, later, after a restart or as something else.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Annotated

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import FederationError, SecurityError
from headwater.federation.security.identity import ID_DIGITS, MAX_CHAIN, Identity, legal_name, refuse, verify
from headwater.federation.security.proof import Proven, Prover
from headwater.federation.security.replay_window import WINDOW_COUNTERS, Window
from headwater.federation.security.rules import Principal
from headwater.federation.security.user_keys import SIGNATURE
from headwater.formats import ENVELOPE

if TYPE_CHECKING:
    from headwater.federation.security.settings import Security
    from headwater.federation.security.trust import Trust

MAGIC = b"HWE%d" % ENVELOPE
MOST_SENDERS = 8192  # how many are remembered, so that what they said is not taken twice
ENDED_RUNS = 16  # of one sender that are remembered, whose clock was set back
MAX_KIND = 64
ENVELOPE_BYTES = 64 * 1024 * 1024  # bytes of an envelope, whatever is allowed
MAX_CERTIFICATE = 16 * 1024
# Before the content under the signature: a key signs nothing else in this form.
_SIGNED = b"headwater envelope %d\0" % ENVELOPE

_Short = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Certificate = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_CERTIFICATE)]


class Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is signed."""

    federation: _Short
    sender: _Short
    to: Annotated[str, msgspec.Meta(max_length=255)]  # the id of a node, or nothing: everybody
    incarnation: _Number
    counter: _Number
    time: _Number  # ns since 1970
    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KIND)]
    body: bytes
    key: Annotated[bytes, msgspec.Meta(max_length=1024)]  # the public key, if there is no certificate
    chain: Annotated[list[_Certificate], msgspec.Meta(max_length=MAX_CHAIN)]
    user: Annotated[str, msgspec.Meta(max_length=255)]
    proof: Annotated[bytes, msgspec.Meta(max_length=SIGNATURE)]
    run: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0  # the incarnation of `to` that it is for; 0: any
    answers: Annotated[bytes, msgspec.Meta(max_length=32)] = b""  # the name of the question that this answers


def question_name(question: bytes | memoryview) -> bytes:
    """What an answer calls the question that it answers."""
    return hashlib.sha256(question).digest()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Content).decode


@dataclass(frozen=True, slots=True)
class Opened:
    """An envelope whose seal is genuine."""

    principal: Principal
    sender: str
    incarnation: int
    kind: str
    body: bytes
    to: str
    counter: int
    time: int  # ns since 1970, by the sender's clock
    key: bytes  # the sender's public key, DER: for `same_key`


class Sealer:
    """Seals what one run of a node says. Thread-safe."""

    def __init__(
        self,
        identity: Identity,
        federation: str,
        incarnation: int,
        security: Security | None = None,
        *,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.identity, self.federation, self.incarnation = identity, federation, incarnation
        self._counter = count(1)
        self._now = now
        self.renew(identity)
        self._user, self._proof = "", b""
        self._limit = ENVELOPE_BYTES if security is None else security.limit
        if security is not None and (credential := security.credential()) is not None:
            self._user = credential.user
            self._proof = credential.prove(federation, identity.id, identity.public)

    def renew(self, identity: Identity) -> None:
        """From here on with another certificate for the same key."""
        self._key, self._chain = b"" if identity.chain else identity.public, list(identity.chain)

    def seal(self, kind: str, body: bytes, *, to: str = "", run: int = 0, answers: bytes = b"") -> bytes:
        """An envelope with this body: for the node with the id `to`, in that run of it, or for everybody. `answers`:
        the name of the question, if it is an answer."""
        content = _encode(
            Content(
                self.federation,
                self.identity.id,
                to,
                self.incarnation,
                next(self._counter),
                self._now(),
                kind,
                bytes(body),
                self._key,
                self._chain,
                self._user,
                self._proof,
                run,
                answers,
            )
        )
        signature = self.identity.sign(_SIGNED + content)
        sealed = b"".join((MAGIC, bytes((len(signature),)), signature, content))
        if len(sealed) > self._limit:
            raise FederationError(
                f"a message of {len(sealed):,} bytes is larger than the {self._limit:,} that other nodes take; say "
                "less at a time, or allow for more with Security(limit=bytes) at all nodes"
            )
        return sealed


class _Sender:
    """What is remembered of one sender."""

    __slots__ = ("ended", "fingerprint", "incarnation", "owner", "time", "window")

    def __init__(self, fingerprint: str, owner: str, incarnation: int, width: int, ended: tuple[int, ...] = ()) -> None:
        self.fingerprint = fingerprint
        self.owner = owner  # whose it is: of one certificate or user there may be many
        self.incarnation = incarnation
        self.ended = ended  # runs before this one that have a greater number: its clock was set back
        self.time = 0  # of its newest envelope
        self.window = Window(width)


class Verifier:
    """Opens what other nodes have sealed. Thread-safe.

    `loopback`: whether all endpoints of this node are, so that without any security a bare key is enough to be heard.
    `me`: this node's id, `run` its incarnation; an envelope for another node, or another run of it, is refused. At
    most so many `senders` are remembered, those heard last, and of one owner half as many; what one that was forgotten
    has said before is refused by its time, and so is what others of the same owner have said by then. `runs`: that one
    sender may be several processes at a time, which share a certificate; else a later run puts an end to those before.

    A later run has a greater number as a rule. Where the clock was set back it has a lesser one: it is believed if it
    answers what this node has just asked, and if the run that is known is not there any more (`lives`).
    """

    def __init__(
        self,
        security: Security,
        federation: str,
        *,
        loopback: bool,
        me: str = "",
        run: int = 0,
        senders: int = MOST_SENDERS,
        width: int = WINDOW_COUNTERS,
        runs: bool = False,
        lives: Callable[[str, int], bool] = lambda sender, run: True,
        trust: Trust | None = None,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.federation, self.me, self._run = federation, me, run
        self._runs = runs
        self._lives = lives
        self._prover = Prover(security, federation, loopback=loopback, trust=trust)
        self._limit = security.limit
        self._bound = round(security.skew * 1e9) if security.proves else None
        self._most, self._width = senders, width
        self._now = now
        self._senders: OrderedDict[str, _Sender] = OrderedDict()
        self._floors: dict[str, int] = {}  # by owner: the newest time of a sender that had to be forgotten too early
        self._held: Counter[str] = Counter()  # by owner: how many of its senders are remembered
        self._lock = threading.Lock()

    def open(
        self,
        data: bytes | memoryview,
        *,
        expected_kind: str | None = None,
        answers: bytes | None = None,
        fresh: Callable[[bytes], bool] | None = None,
    ) -> Opened:
        """What is in an envelope, and who has proven to have sealed it; SecurityError for anything else. `answers`: the
        name of the question that it must answer. `fresh`: whether a body was made just now, for it has a number in it
        that this node has just made up; an answer to a question always is."""
        content, signature, signed = self._parse(data)
        sender, now = content.sender, self._now()
        self._check_place(content, expected_kind)
        if answers is not None and content.answers != answers:
            raise refuse("question", sender, "it answers another question than this")
        self._check_time(content, now)
        proven = self._prover.key(content.chain, content.key, sender, now)
        name, _, digits = sender.rpartition(".")
        if digits != proven.fingerprint[:ID_DIGITS] or not legal_name(name):
            raise refuse("key", sender, _another_id(digits, proven.fingerprint))
        new = answers is not None or (fresh is not None and fresh(content.body))
        retired = self._retires(content, new)
        with self._lock:
            self._check_new(content, proven, retired)  # before the signature: what is old costs next to nothing
        if not verify(proven.key, signature, signed):
            raise refuse("signature", sender, "the signature is not right; it is forged or was changed on the way")
        principal = self._prover.principal(proven, name, sender, content.user, content.proof, now)
        with self._lock:
            self._remember(content, proven, now, retired)
        return Opened(
            principal,
            sender,
            content.incarnation,
            content.kind,
            content.body,
            content.to,
            content.counter,
            content.time,
            proven.public,
        )

    def forget(self, sender: str) -> None:
        """A sender is gone: it is the first to make room for others. Until then nothing it has said is taken again."""
        with self._lock:
            if sender in self._senders:
                self._senders.move_to_end(sender, last=False)

    # ── the checks, the cheapest first ──

    def _parse(self, data: bytes | memoryview) -> tuple[Content, bytes, bytes]:
        size = len(data)
        if size > self._limit:
            raise refuse("oversized", "", f"expected an envelope of at most {self._limit} bytes, found {size}")
        whole = bytes(data)
        head = len(MAGIC) + 1
        if size <= head or not whole.startswith(MAGIC):
            raise refuse("malformed", "", f"expected an envelope that begins with {MAGIC!r}, found {whole[:4]!r}")
        end = head + whole[head - 1]
        try:
            content = _decode(memoryview(whole)[end:])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise refuse("malformed", "", f"the content of the envelope cannot be read: {error}") from None
        return content, whole[head:end], _SIGNED + whole[end:]

    def _check_place(self, content: Content, expected_kind: str | None) -> None:
        sender = content.sender
        if content.federation != self.federation:
            found = f"expected one for federation {self.federation!r}, found one for {content.federation!r}"
            raise refuse("federation", sender, found)
        if expected_kind is not None and content.kind != expected_kind:
            raise refuse("kind", sender, f"expected an envelope of kind {expected_kind!r}, found {content.kind!r}")
        if content.to and content.to != self.me:
            raise refuse("recipient", sender, f"it is for {content.to!r}, this node is {self.me!r}")
        if content.run and self._run and content.run != self._run:
            found = f"it is for run {content.run} of this node, this is {self._run}"
            raise refuse("run", sender, f"{found}: one of the two was started again since")

    def _check_time(self, content: Content, now: int) -> None:
        bound = self._bound
        if bound is None:
            return
        if abs(now - content.time) > bound:
            late = (now - content.time) / 1e9
            says = f"sealed {late:.1f} s ago" if late > 0 else f"sealed {-late:.1f} s in the future"
            hint = "set the clocks of both machines, or allow for more with Security(skew=seconds)"
            raise refuse(
                "time", content.sender, f"expected one of the last {bound / 1e9:g} s, found one {says}; {hint}"
            )

    def _key(self, content: Content) -> str:
        return f"{content.sender}/{content.incarnation}" if self._runs else content.sender

    def _retires(self, content: Content, new: bool) -> int:
        """The run of this sender to which an envelope puts an end though its own number is no greater; 0: none.

        Not under the lock: whether a run lives is asked of others, who have locks of their own."""
        with self._lock:
            known = self._senders.get(self._key(content))
            run = 0 if known is None else known.incarnation
            older = known is not None and (content.incarnation < run or content.incarnation in known.ended)
        return run if older and new and not self._lives(content.sender, run) else 0

    def run_of(self, sender: str) -> int:
        """The run of a sender that is believed; 0 if nothing is known of it."""
        with self._lock:
            known = self._senders.get(sender)
            return 0 if known is None else known.incarnation

    def _check_new(self, content: Content, proven: Proven, retired: int) -> None:
        known = self._senders.get(self._key(content))
        if known is None:
            if self._bound is not None and content.time <= self._floors.get(_owner(content, proven), 0):
                raise refuse("replayed", content.sender, "it is older than what this node remembers")
            return
        if known.fingerprint != proven.fingerprint:
            raise refuse("key", content.sender, "another key is in use by the node of this id")
        older = content.incarnation < known.incarnation or content.incarnation in known.ended
        if older and retired != known.incarnation:
            found = f"it is of incarnation {content.incarnation}, and the newest is {known.incarnation}"
            raise refuse("stale", content.sender, found)
        if content.incarnation == known.incarnation and not known.window.fresh(content.counter):
            raise refuse("replayed", content.sender, f"number {content.counter} was there before, or comes too late")

    def _remember(self, content: Content, proven: Proven, now: int, retired: int) -> None:
        self._check_new(content, proven, retired)  # again: another thread may have opened the same envelope meanwhile
        key = self._key(content)
        known = self._senders.get(key)
        if known is None or content.incarnation != known.incarnation:
            ended = () if known is None else _ended(known, content.incarnation)
            owner = _owner(content, proven) if known is None else known.owner
            if known is None:
                self._make_room(owner, now)
            known = _Sender(proven.fingerprint, owner, content.incarnation, self._width, ended)
            self._senders[key] = known
        self._senders.move_to_end(key)
        known.window.mark(content.counter)
        known.time = max(known.time, content.time)

    def _make_room(self, owner: str, now: int) -> None:
        """For one more sender. An owner of very many makes room among its own: whatever it says, and however often it
        starts anew, others are heard."""
        crowded = self._held[owner] >= max(1, self._most // 2)
        if crowded or len(self._senders) >= self._most:
            candidates = (key for key, each in self._senders.items() if not crowded or each.owner == owner)
            oldest = self._senders.pop(next(candidates))
            self._held[oldest.owner] -= 1
            if not self._held[oldest.owner]:
                del self._held[oldest.owner]
            bound = self._bound
            if bound is not None and oldest.time + bound >= now:  # else its time alone refuses it
                if len(self._floors) >= self._most:
                    self._floors = {each: time for each, time in self._floors.items() if time + bound >= now}
                self._floors[oldest.owner] = max(self._floors.get(oldest.owner, 0), oldest.time)
        self._held[owner] += 1


def _owner(content: Content, proven: Proven) -> str:
    """Whose a sender is: that is proven, or nothing is taken of it."""
    if proven.name is not None:
        return f"certificate:{proven.name}"
    return f"user:{content.user}" if content.user else proven.fingerprint


def _ended(known: _Sender, run: int) -> tuple[int, ...]:
    """The runs that have ended, of those whose number is greater than that of the present one."""
    return tuple(each for each in (known.incarnation, *known.ended) if each > run)[:ENDED_RUNS]


def _another_id(digits: str, fingerprint: str) -> str:
    expected = f"expected a name and the first {ID_DIGITS} digits of its key as sender"
    if digits and len(digits) < ID_DIGITS and fingerprint.startswith(digits):
        return (
            f"{expected}, found {len(digits)}, which are too few to tell keys apart; use this Headwater there as well"
        )
    return f"{expected}, signed with the key {fingerprint[:ID_DIGITS]}"


__all__ = ["MAGIC", "Content", "Opened", "Sealer", "SecurityError", "Verifier", "question_name"]
