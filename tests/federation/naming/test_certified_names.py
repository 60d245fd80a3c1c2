"""Names where nodes prove who they are: consent by group, and another federation's nodes by the same authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import FederationError
from headwater.security import Rule
from headwater.testing import Recorder
from tests.federation.certified import authority, certified  # noqa: F401
from tests.federation.naming.campus import GUARD, Campus

DOOR = "ie.ucc.door"


@pytest.fixture
def made(authority: Path) -> Iterator[Campus]:  # noqa: F811
    found = Campus.__new__(Campus)
    found.nodes, found.names, found._network = [], {}, {}
    found.security = lambda name: certified(authority, name, (Rule("**", "*"),))  # type: ignore[attr-defined]
    yield found
    found.close()


def test_a_domain_consents_to_a_group_and_a_stranger_is_refused(made: Campus) -> None:
    secure = made.security  # type: ignore[attr-defined]
    tls = {"listen": "tls/127.0.0.1:0"}
    made.root = made._open("lab", router=True, federation="ucc", security=secure("lab"), **tls)
    made.serve(".", made.root, parent=[], advertise=[{"names": "ie.ucc.**", "who": "group:staff"}])
    home = made._open("other", router=True, federation="tcd", security=secure("other"), **tls)
    inside = {"client": True, "direct": "tls/127.0.0.1:0", "connect": made.root.endpoints[0], "federation": "ucc"}
    desk = made._open("desk", security=secure("desk"), **inside)  # of the group
    guest = made._open("guest", security=secure("guest"), **inside)
    reader = made._open("reader", client=True, connect=home.endpoints[0], federation="tcd", security=secure("reader"))
    with pytest.raises(FederationError, match=r'"guest" \(by certificate\) may not advertise.*has not consented'):
        made.use(guest, made.root).advertise(DOOR)
    source = desk.channel(DOOR, "n: i64").source("s")
    made.use(desk, made.root).advertise(DOOR)
    names = made.use(reader, made.root)  # a server in another federation: the leg has the reader's own certificate
    heard: Recorder = Recorder()
    with names.subscribe(DOOR, heard, "n > 1") as subscription:
        assert subscription.ready(GUARD), subscription.missing
        for number in range(3):
            source.publish(n=number)
        assert [event.n for event in heard.wait(1)] == [2]
        link = names.reach.legs["ucc"].federation_report().peer("desk")
        assert "tls" in str(link)
