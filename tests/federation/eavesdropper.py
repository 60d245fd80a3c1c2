"""Someone with a bare Zenoh session, who hears all that passes on the keys of a federation and can answer to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import zenoh

from headwater.federation.fabric import settings as fabric_settings
from headwater.federation.security.tls import zenoh_settings
from headwater.security import Security


class Eavesdropper:
    """Everything that came, as (kind of key, bytes): publications, questions, and signs of life.

    `answer`, if there is one, is called with the key and the payload of every question, and what it returns is answered
    (an exception: as an error), before the node that was asked can."""

    def __init__(self, session: zenoh.Session, federation: str) -> None:
        self._session, self._root = session, f"headwater/{federation}"
        self._lock = threading.Lock()
        self.captured: list[tuple[str, bytes]] = []
        self.posts: list[bytes] = []  # events
        self.questions: list[tuple[str, bytes]] = []  # their keys and payloads
        self.answer: Callable[[str, bytes], bytes | None] | None = None
        self._declared = [
            session.declare_subscriber("headwater/**", self._took),
            session.declare_queryable("headwater/**", zenoh.handlers.Callback(self._asked, indirect=False)),
            session.liveliness().declare_subscriber("headwater/**", self._took, history=True),
        ]

    def _keep(self, key: str, *parts: Any) -> None:
        kind = key.split("/")[2]
        with self._lock:
            self.captured.append((kind, key.encode() + b" " + b" ".join(bytes(p) for p in parts if p is not None)))

    def _took(self, sample: zenoh.Sample) -> None:
        if str(sample.key_expr).startswith(f"{self._root}/post/"):
            self.posts.append(bytes(sample.payload))
        self._keep(str(sample.key_expr), sample.payload, sample.attachment)

    def _asked(self, query: zenoh.Query) -> None:
        key, payload = str(query.key_expr), b"" if query.payload is None else bytes(query.payload)
        self._keep(key, payload, query.attachment, str(query.parameters).encode())
        place = key.removeprefix(f"{self._root}/")
        self.questions.append((place, payload))
        try:
            if self.answer is not None:
                made = self.answer(place, payload)
                if made is not None:
                    query.reply(key.replace("*", "lab"), made)
        except ValueError as error:
            query.reply_err(str(error).encode())
        finally:
            query.drop()

    def kinds(self) -> set[str]:
        with self._lock:
            return {kind for kind, _ in self.captured}

    def of(self, kind: str) -> list[bytes]:
        with self._lock:
            return [data for each, data in self.captured if each == kind]

    def heard(self, *texts: str) -> dict[str, list[str]]:
        """Which of these texts were read, and in what."""
        with self._lock:
            captured = list(self.captured)
        found: dict[str, list[str]] = {}
        for text in texts:
            for encoded in (text.encode(), text.encode("utf-16-le")):
                for kind, data in captured:
                    if encoded in data:
                        found.setdefault(text, []).append(kind)
        return found

    def ask(self, key: str, payload: bytes) -> list[bytes]:
        """What is answered to a question, errors included."""
        found: list[bytes] = []
        done = threading.Event()

        def took(reply: zenoh.Reply) -> None:
            part = reply.ok if reply.ok is not None else reply.err
            assert part is not None
            found.append(bytes(part.payload))

        self._session.get(
            f"{self._root}/{key}",
            zenoh.handlers.Callback(took, done.set, indirect=False),
            payload=payload,
            timeout=10.0,
            target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        assert done.wait(20.0)
        return found

    def alive(self, node: str, incarnation: int) -> Any:
        """A sign of life, as long as this is kept."""
        return self._session.liveliness().declare_token(f"{self._root}/alive/{node}/{incarnation}")

    def to(self, node: str) -> Callable[[], list[bytes]]:
        """What is posted to a node from here on."""
        found: list[bytes] = []
        key = f"{self._root}/post/{node}"
        self._declared.append(self._session.declare_subscriber(key, lambda sample: found.append(bytes(sample.payload))))
        return lambda: list(found)

    def put(self, key: str, payload: bytes) -> None:
        self._session.put(f"{self._root}/{key}", payload)


@contextmanager
def eavesdropper(
    endpoint: str, security: Security | None = None, federation: str = "headwater"
) -> Iterator[Eavesdropper]:
    wiring = fabric_settings.check(
        federation,
        "eve.00000000",
        listen=(),
        connect=(endpoint,),
        scout=False,
        mode="client",
        lease=5.0,
        settings=zenoh_settings(security or Security()),
    )
    config = zenoh.Config.from_json5(json.dumps(fabric_settings.session_config(wiring, ())))
    session = zenoh.open(config)
    try:
        yield Eavesdropper(session, federation)
    finally:
        with suppress(zenoh.ZError):
            session.close()
