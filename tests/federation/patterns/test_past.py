"""What was published before, asked of the node that has it: whole, in pages, and only by those who may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater import Config, Interest, Node
from headwater.channel.backlog.contract import Backlog
from headwater.errors import FederationError
from headwater.federation.patterns.past import FIRST_LOOK, Room, beginning, read_part
from headwater.federation.security.policy import Allow, Deny, Restrict, Verdict
from headwater.federation.wire.past_requests import (
    PAGE_BYTES,
    PAGE_EVENTS,
    READ_EVENTS,
    Past,
    PastOf,
    PastPage,
    PastPart,
)
from headwater.federation.wire.requests import pack_params
from headwater.network import Network
from headwater.security import Security
from headwater.testing import ManualClock
from tests.federation.nodes import Nodes, nodes

CHANNEL, HIDDEN = "ie.tcd.seen", "ie.tcd.secret"
TYPE = "who: text, room: i64"
SOME = Interest("who in :who", TYPE, params={"who": {"ann"}})


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Rights:
    """Some may subscribe and not install, some get room 7 only, and nobody knows of the hidden channel."""

    def __init__(self, install: bool = True, rooms: bool = False) -> None:
        self.install, self.rooms = install, rooms

    def decide(self, principal: Any, action: str, channel: str, on_behalf_of: str = "") -> Verdict:
        if channel == HIDDEN:
            return Deny("it is nobody's business")
        if action == "install":
            return Allow("yes") if self.install else Deny("no code")
        if action == "subscribe" and self.rooms:
            return Restrict(Interest("room = 7", TYPE), "only room 7 is public")
        return Allow("yes")

    def decide_some(self, principal: Any, action: str, pattern: Any) -> Verdict:
        return Allow("some")

    def open_to_all(self, action: str, channel: str) -> bool:
        return False

    def seen_by(self, principal: Any) -> Any:
        return lambda name: name != HIDDEN

    def hides_from(self, principal: Any) -> bool:
        return True

    def deals_with(self, principal: Any, action: Any = None) -> bool:
        return True


def pair(make: Nodes, policy: Rights | None = None, history: int = 1000) -> tuple[Node, Any, Any, Any]:
    """A node with sightings, and how another asks it."""
    network = Network(security=Security(policy=policy)) if policy is not None else None
    lab = make("lab", listen="tcp/127.0.0.1:0", network=network, config=Config(history=history))
    lab.channel(HIDDEN, TYPE).source("door").publish(who="ann", room=1)
    source = lab.channel(CHANNEL, TYPE).source("door")
    desk = make("desk")
    make.together()
    assert desk._engine is not None
    peer = desk._engine.peers[lab.id]
    return lab, source, desk, lambda request: desk._engine.dialogue.ask(peer, request)  # type: ignore[union-attr]


def asked(source: Any, interest: Interest = SOME, **more: Any) -> Past:
    wanted = PastOf("door", source.number, more.get("upto", source.seq), more.get("after", 0))
    return Past(CHANNEL, [wanted], more.get("since", 0), interest.dumps(), pack_params(interest.params))


def only(page: PastPage) -> PastPart:
    assert page.remembers and len(page.parts) == 1
    return page.parts[0]


def test_what_passes_comes_with_its_number_and_time(make: Nodes) -> None:
    _, source, _, ask = pair(make)
    for n in range(6):
        source.publish(who=("ann", "bob")[n % 2], room=n)
    page = only(ask(asked(source, upto=4)))
    assert (page.reached, page.seqs, page.missing) == (4, [1, 3], 0)
    type = Interest("true", TYPE).type
    assert [type.decode_raw(record)["room"] for record in page.records] == [0, 2]
    assert only(ask(asked(source, since=page.stamps[1], after=None))).seqs == [3, 5]
    assert ask(Past(CHANNEL)) == PastPage(True)


def test_who_may_not_gets_nothing(make: Nodes) -> None:
    _, source, _, ask = pair(make, Rights(install=False))
    source.publish(who="ann", room=7)
    with pytest.raises(FederationError, match="not allowed to install code: no code"):
        ask(asked(source))
    hidden, none = Past(HIDDEN), Past("ie.tcd.none")
    for request in (hidden, none):
        with pytest.raises(FederationError, match=f"not allowed, or no channel: '{request.channel}'"):
            ask(request)


def test_what_a_policy_restricts_stays_restricted(make: Nodes) -> None:
    _, source, _, ask = pair(make, Rights(rooms=True))
    for room in (6, 7, 8):
        source.publish(who="ann", room=room)
    assert only(ask(asked(source))).seqs == [2]


def test_what_is_made_of_events_is_told_in_their_place(make: Nodes) -> None:
    _, source, _, ask = pair(make)
    for room in (6, 7):
        source.publish(who="ann", room=room)
    rooms = Interest("{ output.room = input.room; return input.room > 6; }", TYPE, output="room: i64")
    assert rooms.output is not None
    part = only(ask(asked(source, rooms)))
    assert part.seqs == [2] and [rooms.output.decode_raw(record) for record in part.records] == [{"room": 7}]


def test_only_what_has_no_state_is_asked(make: Nodes) -> None:
    _, source, _, ask = pair(make)
    source.publish(who="ann", room=7)
    with pytest.raises(FederationError, match="without state"):
        ask(asked(source, Interest("{ static int n = 0; n = n + 1; return n > 1; }", TYPE)))
    with pytest.raises(FederationError):
        ask(Past(CHANNEL, [PastOf("door", source.number, 1)], program=b"\xc1nonsense"))
    other = Past(CHANNEL, [PastOf("door", 99, 7)], 0, SOME.dumps(), pack_params(SOME.params))
    assert "no source 'door' with the number 99" in only(ask(other)).error


def test_what_is_gone_is_counted(make: Nodes) -> None:
    lab, source, _, ask = pair(make, history=4)
    for n in range(10):
        source.publish(who="ann", room=n)
    page = only(ask(asked(source)))
    assert (page.seqs, page.missing, page.reached) == ([7, 8, 9, 10], 6, 10)
    later = next(iter(lab.channel(CHANNEL).backlog.read("door", 8))).stamps[0]
    assert only(ask(asked(source, since=int(later), after=None))).missing == 0


def test_a_node_that_keeps_nothing_says_so(make: Nodes) -> None:
    _, source, _, ask = pair(make, history=0)
    source.publish(who="ann", room=1)
    assert ask(Past(CHANNEL)) == PastPage(False)
    assert ask(asked(source)) == PastPage(False, [PastPart(source.number, 1, missing=1)])


# ── pages ──


def backlog(events: int, text: str = "x") -> tuple[Node, Backlog]:
    node = Node("lab", config=Config(history=1 << 20), clock=ManualClock())
    source = node.channel(CHANNEL, TYPE).source("door")
    source.publish_many([{"who": text, "room": n} for n in range(events)])
    return node, node.channel(CHANNEL).backlog


def pages(found: Backlog, upto: int, interest: Interest | None = None) -> Iterator[PastPart]:
    after = 0
    while after < upto:
        part = read_part(found, PastOf("door", 1, upto, after), 0, interest, Room())
        assert part.reached > after
        after = part.reached
        yield part


def test_pages_are_bounded_in_events_bytes_and_work() -> None:
    node, found = backlog(READ_EVENTS + 10)
    with node:
        sizes = [len(page.seqs) for page in pages(found, READ_EVENTS + 10)]
        assert max(sizes) == PAGE_EVENTS and sum(sizes) == READ_EVENTS + 10
        few = list(pages(found, READ_EVENTS + 10, Interest("room < 0", TYPE)))
        assert [page.reached for page in few] == [READ_EVENTS, READ_EVENTS + 10]
    node, found = backlog(9, "y" * (PAGE_BYTES // 4))
    with node:
        assert [page.seqs for page in pages(found, 9)] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_a_page_has_what_fits_of_several_sources(make: Nodes) -> None:
    lab, first, _, ask = pair(make)
    second = lab.channel(CHANNEL, TYPE).source("window")
    for n in range(3):
        first.publish(who="ann" * (PAGE_BYTES // 8), room=n)
        second.publish(who="ann", room=n)
    every = Interest("room >= 0", TYPE)
    wanted = [PastOf("door", first.number, 3), PastOf("window", second.number, 3)]
    page = ask(Past(CHANNEL, wanted, 0, every.dumps()))
    assert [(part.sid, part.reached, part.seqs) for part in page.parts] == [(first.number, 2, [1, 2])]
    page = ask(Past(CHANNEL, [PastOf("door", first.number, 3, 2), wanted[1]], 0, every.dumps()))
    assert [(part.reached, part.seqs) for part in page.parts] == [(3, [3]), (3, [1, 2, 3])]


def test_the_beginning_is_looked_for_from_the_end() -> None:
    clock = ManualClock()
    with Node("lab", config=Config(history=10_000), clock=clock) as node:
        source = node.channel(CHANNEL, TYPE).source("door")
        for n in range(3_000):
            clock.advance(1.0)
            source.publish(who="ann", room=n)
        found = node.channel(CHANNEL).backlog
        stamps = [stamp for stretch in found.read("door") for _, stamp, _ in stretch.events()]
        for at in (0, 1, 1_000, 2_500, 2_999):
            after = beginning(found, "door", stamps[at], 3_000)
            assert after <= at and (after == 0 or stamps[after - 1] < stamps[at])
            assert at < 2_900 or after == 3_000 - FIRST_LOOK
