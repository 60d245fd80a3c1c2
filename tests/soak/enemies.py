"""Hostile peers, and bad luck, at the same time as the faults: what they do is counted, and what they must not achieve
is looked for in the end.

The insider has a certificate of the authority, and no rule that allows it anything. It hears all that passes on the
keys of the federation, and answers, asks and says there what it likes. Strangers reach the ports of the nodes, and no
more.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import zenoh

from headwater.federation.security.certificates import issue, make_authority
from headwater.security import Rule, Security
from tests.federation.eavesdropper import Eavesdropper, eavesdropper
from tests.federation.hostile import mutated
from tests.federation.processes import World

FEDERATION = "headwater"
INSIDER = "eve"
TOKENS = 40  # signs of life that are forged at a time, and at most in all
MOST_TOKENS = 400
CONNECTIONS = 60  # to the port of one node at a time
REPLAYED = 30  # questions and posts at a time
HELD_QUESTIONS = 2000  # that are never answered
BULK = 80  # subscriptions at once
BACK = 30  # seconds by which a clock is set back: envelopes may be a minute old
HALF_FRAME = (16 << 20).to_bytes(4, "little") + bytes(65_000)


class Authority:
    """Certificates of all nodes, and of one that no rule is for."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self._names = folder, names
        folder.mkdir()
        make_authority(folder)
        for name in (*names, INSIDER):
            issue(folder, name)

    def options(self, name: str) -> dict[str, Any]:
        """Of a node's network."""
        files = {"certificate": f"{name}.pem", "key": f"{name}.key", "authority": "authority.pem"}
        paths: dict[str, Any] = {kind: str(self.folder / file) for kind, file in files.items()}
        return {"security": {**paths, "rules": [{"channel": "**", "who": self._names}]}}

    def insider(self) -> Security:
        pem, key = self.folder / f"{INSIDER}.pem", self.folder / f"{INSIDER}.key"
        return Security(certificate=pem, key=key, authority=self.folder / "authority.pem", rules=[Rule("**", "*")])


class Ghosts:
    """Signs of life of nodes that are not there, and questions that nobody ever answers."""

    def __init__(self, session: zenoh.Session, federation: str) -> None:
        self._session, self._root = session, f"headwater/{federation}"
        self._tokens: list[Any] = []
        self._held: deque[zenoh.Query] = deque(maxlen=HELD_QUESTIONS)
        self._queryable = session.declare_queryable("headwater/**", self._held.append)

    def forge(self, count: int) -> int:
        live = self._session.liveliness()
        first = len(self._tokens)
        for number in range(first, min(first + count, MOST_TOKENS)):
            self._tokens.append(live.declare_token(f"{self._root}/alive/ghost-{number}.{number:032x}/{number + 1}"))
        return len(self._tokens) - first


class Enemies:
    """What they do follows from a chance, up to what they hear."""

    def __init__(self, world: World, authority: Authority, chance: random.Random) -> None:
        self.world, self._authority, self._random = world, authority, chance
        self.counts: dict[str, int] = {}
        self.read: dict[str, list[str]] = {}  # secrets that the insider has read, and in what
        self.heard = 0  # messages that it has heard
        self.troubles: list[str] = []
        self._stack = ExitStack()
        self._eve: Eavesdropper | None = None
        self._ghosts: Ghosts | None = None
        self._open: list[socket.socket] = []
        self._questions: deque[tuple[str, bytes]] = deque(maxlen=1000)
        self._posts: deque[bytes] = deque(maxlen=1000)

    def begin(self) -> None:
        """The insider comes, or comes again: the router may have been killed."""
        self._leave()
        at = f"unix/{self.world.folder}/inn.z"
        self._eve = self._stack.enter_context(eavesdropper(at, self._authority.insider(), FEDERATION))
        self._ghosts = Ghosts(self._eve._session, FEDERATION)

    def _leave(self) -> None:
        with suppress(zenoh.ZError):
            self._stack.close()
        self._stack = ExitStack()

    def close(self) -> None:
        self._leave()
        self._hang_up()

    def _hang_up(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()

    def _count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    # ── what they do ──

    def act(self) -> None:
        """Some things, which go on while something else happens to the federation."""
        self._hang_up()
        kinds: list[Callable[[], None]] = [self.ghosts, self.strangers, self.replays, self.lies, self.bulk]
        for kind in self._random.sample(kinds, 2):
            try:
                kind()
            except (OSError, zenoh.ZError):
                self._count("attacks that came to nothing")

    def ghosts(self) -> None:
        assert self._ghosts is not None
        self._count("forged signs of life", self._ghosts.forge(TOKENS))

    def strangers(self) -> None:
        """Connections to a direct port, which say nothing, or half of something."""
        name = self._random.choice(sorted(self.world.running))
        path = self.world.folder / f"{name}.{self.world.life(name)}.d.behind"
        for _ in range(CONNECTIONS):
            says = self._random.choice((b"", HALF_FRAME, self._random.randbytes(200), b"\x16\x03\x01\x02\x00\x01\x00"))
            sock = socket.socket(socket.AF_UNIX)
            self._open.append(sock)
            sock.setblocking(False)
            with suppress(OSError):
                sock.connect(str(path))
                sock.send(says)
                self._count("half-open connections and half frames")

    def replays(self) -> None:
        """What was heard, once more: as it was, or garbled."""
        eve = self._eve
        assert eve is not None
        for place, payload in self._random.sample(list(self._questions), min(REPLAYED, len(self._questions))):
            changed = mutated(payload, self._random) if payload and self._random.random() < 0.5 else payload
            handler = zenoh.handlers.Callback(_ignore, indirect=False)
            eve._session.get(f"headwater/{FEDERATION}/{place}", handler, payload=changed, timeout=1.0)
            self._count("questions asked again, as they were or garbled")
        nodes = [place.rpartition("/")[2] for place, _ in self._questions if place.startswith("ask/")]
        for post in self._random.sample(list(self._posts), min(REPLAYED, len(self._posts))):
            if nodes:
                changed = mutated(post, self._random) if self._random.random() < 0.5 else post
                eve.put(f"post/{self._random.choice(nodes)}", changed)
                self._count("posts sent again, as they were or garbled")

    def lies(self) -> None:
        """Errors and nonsense, in answer to what others are asked; or, for a while, not."""
        assert self._eve is not None
        if self._eve.answer is not None:
            self._eve.answer = None
            return
        chance = random.Random(self._random.random())

        def answer(place: str, payload: bytes) -> bytes | None:
            self._count("false answers to others' questions")
            match chance.randrange(3):
                case 0:
                    raise ValueError("no")
                case 1:
                    return chance.randbytes(80)
            return mutated(payload, chance) if payload else b"\0"

        self._eve.answer = answer

    def bulk(self) -> None:
        """An honest node that asks for very much at once."""
        self._count("subscriptions in bulk", BULK)
        if self.world["hall"]("bulk", channel="test.count", wanted=BULK) is not True:
            self.troubles.append(f"{BULK} subscriptions at once were not in force after a minute")

    # ── what they must not achieve ──

    def look(self, *secrets: str) -> None:
        """What the insider has heard since: whether there is a secret in it."""
        eve = self._eve
        assert eve is not None
        for text, where in eve.heard(*secrets).items():
            if text not in self.read:
                self.troubles.append(f"the insider has read {text!r} in {sorted(set(where))}")
            self.read.setdefault(text, []).extend(where)
        with eve._lock:
            self.heard += len(eve.captured)
            eve.captured.clear()
        self._questions.extend(eve.questions)
        self._posts.extend(eve.posts)
        eve.questions.clear()
        eve.posts.clear()

    def clock(self, name: str) -> dict[str, str]:
        """The environment of a node that is started: its machine's clock may have been set back."""
        if self._random.random() < 0.7:
            return {}
        self._count("nodes started again with their clock set back")
        return {"HEADWATER_TEST_CLOCK_BACK": str(BACK)}


def _ignore(reply: zenoh.Reply) -> None:
    """Whatever it is."""
