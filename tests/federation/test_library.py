"""Interests by name between nodes: what travels, who may, and what comes of forgeries, silence and splits."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headwater import Network, Node
from headwater.errors import FederationError, LibraryError, SubscriptionError
from headwater.federation.wire.library_requests import (
    FetchedEntry,
    FetchEntry,
    ListEntries,
    ListRunning,
    Named,
    PublishEntry,
    WithdrawEntry,
    pack_named,
)
from headwater.federation.wire.requests import Install, Installed, Wish
from headwater.network import Budget
from headwater.patterns import Pattern
from headwater.security import Rule
from headwater.services.library.catalogue import Shelf
from tests.effort import rounds
from tests.federation.certified import joined
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

DOOR = "who: text, level: f64"
CHANNEL = "t.door"
LOUD = "level > :limit"


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def opened(make: Nodes, *others: str, **options: Any) -> tuple[Any, ...]:
    """The lab, which has a source, and others that know of it."""
    lab = make("lab", **options)
    lab.channel(CHANNEL, DOOR).source("east")
    made = [make(name) for name in others]
    make.together()
    for node in made:
        assert node.until(lambda node=node: node.has_channel(CHANNEL), GUARD)
    return lab, lab.channel(CHANNEL).sources["east"], *made


def settle(node: Node) -> None:
    engine = node._engine
    assert engine is not None
    assert node.until(lambda: engine.requester.settled(node.channels(), barriers=True), GUARD)


def asked(node: Any) -> int:
    """Questions that a node has put to others."""
    return int(node._engine.fabric.counters["ask"]["messages_out"])


def peer_of(node: Any, other: Any) -> Any:
    return node._engine.peers[other.id]


def ask(node: Any, other: Any, request: Any) -> Any:
    return node._engine.dialogue.ask(peer_of(node, other), request)


def questions(node: Any, other: Any, **what: Any) -> tuple[Any, int]:
    """A subscription, and how many questions of its node to the other it took."""
    kinds: list[str] = []
    dialogue = node._engine.dialogue
    put = dialogue.ask

    def counted(peer: Any, request: Any, *more: Any) -> Any:
        if peer.id == other.id:
            kinds.append(type(request).__name__)
        return put(peer, request, *more)

    dialogue.ask = counted
    try:
        made = node.channel(CHANNEL).subscribe(**what)
        settle(node)
    finally:
        dialogue.ask = put
    return made, len([each for each in kinds if each in ("Install", "FetchEntry")])


def test_the_name_travels_and_the_code_once(make: Nodes) -> None:
    lab, east, desk, hall = opened(make, "desk", "hall")
    _, plain = questions(desk, lab, where="level > 0.9")
    assert plain == 1
    entry = desk.library.publish("loud", LOUD, on=CHANNEL, params={"limit": 0.5})
    first, fetched = questions(desk, lab, where="@loud/1", params={"limit": 0.7})
    assert fetched == 2  # asked by name, and again with what the lab has not
    assert lab.library.shelf.get("loud", 1, entry.fingerprint) is not None
    again, there = questions(desk, lab, where="@loud/1", params={"limit": 0.6})
    assert there == 1
    hall.library.use("desk")
    other, from_hall = questions(hall, lab, where="@loud/1")  # its own fetch is at the desk
    assert from_hall == 1 and hall.library.finder.fetches == 1
    make.ready()
    for level in (0.55, 0.65, 0.75):
        east.publish(who="ann", level=level)
    assert first.get(timeout=GUARD).level == 0.75
    assert [again.get(timeout=GUARD).level for _ in range(2)] == [0.65, 0.75]
    assert [other.get(timeout=GUARD).level for _ in range(3)] == [0.55, 0.65, 0.75]
    assert lab.library.report()["held"] == 1 and lab.library.report()["fetches"] == 0
    told = {(row.what, row.asked_by.partition(":")[0]) for row in lab.library.running(CHANNEL)}
    assert {("@loud/1", "desk"), ("@loud/1", "hall")} <= told


def test_what_nobody_there_has_goes_with_the_first_question(make: Nodes) -> None:
    lab, _, desk, office = opened(make, "desk", "office")
    office.library.publish("loud", LOUD, on=DOOR, params={"limit": 0.5})
    desk.library.use("office")
    desk.channel(CHANNEL)
    _, count = questions(desk, lab, where="@loud")
    assert count == 1 and desk.library.finder.fetches == 1  # one round trip to the office, and one to the lab
    assert lab.library.report()["held"] == 1


def test_state_and_output_by_name(make: Nodes) -> None:
    lab, east, desk = opened(make, "desk")
    desk.library.publish("third", "{ static int n = 0; n = n + 1; return n % 3 == 0; }", on=CHANNEL)
    desk.library.publish("half", "{ output.level = input.level / 2; return 1; }", on=CHANNEL, output="level: f64")
    third = desk.channel(CHANNEL).subscribe(where="@third/1")
    half = desk.channel(CHANNEL).subscribe(where="@half/1")
    make.ready(desk)
    for n in range(6):
        east.publish(who="ann", level=float(n))
    assert [third.get(timeout=GUARD).level for _ in range(2)] == [2.0, 5.0]
    assert [half.get(timeout=GUARD).level for _ in range(6)] == [n / 2 for n in range(6)]
    assert {row.what for row in lab.library.running(CHANNEL)} == {"@third/1", "@half/1"}
    assert not third.refused and not half.refused


def test_what_reads_the_context_of_a_source_by_name(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    source = lab.channel(CHANNEL, DOOR, context="gain: f64").source("east", context={"gain": 0.5})
    assert desk.until(lambda: desk.has_channel(CHANNEL), GUARD)
    door = desk.channel(CHANNEL, DOOR, context="gain: f64")
    entry = desk.library.publish("over", "level > context.gain", on=door)
    heard = door.subscribe(where="@over/1")
    make.ready(desk)
    assert heard.refused == {} and entry.kind == "interest with context"
    for level in (0.4, 0.6):
        source.publish(who="ann", level=level)
    assert heard.get(timeout=GUARD).level == 0.6
    assert lab.library.report()["held"] == 1 and lab.library.running(CHANNEL)[0].what == "@over/1"


def test_patterns_by_name_in_a_federation(make: Nodes) -> None:
    lab, east, desk = opened(make, "desk")
    text = "a: t.door; b: t.door{who != a.who} within :most"
    lab.library.publish("tails", Pattern(text, {CHANNEL: DOOR}, params={"most": 2.0}))
    watch = desk.match("@tails/1", params={"most": 3600.0})
    named = desk.pattern("tails", "@tails", at="desk")
    watch.change(params={"most": 1800.0})
    make.ready(desk)
    rows = [(row.what, row.kind) for row in desk.library.running() if row.kind == "pattern"]
    assert rows == [("@tails/1", "pattern")] * 2 and str(watch.origin) == "@tails/1"
    for who in ("ann", "bob"):
        east.publish(who=who, level=0.5)
    assert watch.get(timeout=GUARD) is not None
    named.close()


def test_a_node_that_takes_no_names_gets_the_program(make: Nodes) -> None:
    lab, east, desk = opened(make, "desk")
    peer_of(desk, lab).names = False  # as one of an earlier version says
    desk.library.publish("loud", LOUD, on=CHANNEL, params={"limit": 0.5})
    heard = desk.channel(CHANNEL).subscribe(where="@loud/1")
    make.ready(desk)
    east.publish(who="ann", level=0.6)
    assert heard.get(timeout=GUARD).level == 0.6
    assert lab.library.report()["held"] == 0 and lab.library.running(CHANNEL)[0].what == LOUD


def test_an_upgrade_is_acknowledged_by_all_sources(make: Nodes) -> None:
    _, east, desk, office = opened(make, "desk", "office")
    west = office.channel(CHANNEL, DOOR).source("west")
    make.together()
    heard = Log()
    desk.library.publish("loud", "level > 0.5", on=CHANNEL)
    desk.library.publish("loud", "level > 0.5 and who != 'cat'", on=CHANNEL)
    subscription = desk.channel(CHANNEL).subscribe(heard, "@loud/1", name="heard")
    make.ready(desk)
    for source in (east, west):
        for _ in range(5):
            source.publish(who="cat", level=0.9)
    heard.wait(10)
    [told] = desk.library.upgrade("@loud/2")
    assert told.acknowledged and told.points == {f"{CHANNEL}/east@lab": 5, f"{CHANNEL}/west@office": 5}
    for source in (east, west):
        source.publish(who="cat", level=0.9)
        source.publish(who="ann", level=0.9)
    heard.wait(12)
    [back] = desk.library.upgrade("@loud/1")
    assert back.acknowledged and back.points == {f"{CHANNEL}/east@lab": 7, f"{CHANNEL}/west@office": 7}
    for source in (east, west):
        source.publish(who="cat", level=0.9)
    heard.wait(14)
    assert heard.field("who") == ["cat"] * 10 + ["ann"] * 2 + ["cat"] * 2
    assert subscription._asked[0].where.origin.version == 1


def test_points_are_exact_while_events_are_published(make: Nodes) -> None:
    _, east, desk = opened(make, "desk")
    desk.library.publish("half", "level < 0.0", on=CHANNEL)
    desk.library.publish("half", "level > 0.0", on=CHANNEL)
    heard: list[tuple[int, float, int]] = []
    desk.channel(CHANNEL).subscribe(
        lambda event, about: heard.append((about.seq, event.level, about.epoch)), "@half/1", name="heard"
    )
    make.ready(desk)
    over = threading.Event()

    def publish() -> None:
        while not over.is_set():
            east.publish(who="ann", level=-1.0)
            east.publish(who="ann", level=1.0)

    thread = threading.Thread(target=publish)
    thread.start()
    points = [0]
    try:
        for round in range(rounds(2, 50)):
            [told] = desk.library.upgrade(f"@half/{2 - round % 2}")
            assert told.acknowledged
            points += told.points.values()
            assert desk.until(lambda last=points[-1]: east.seq > last + 10, GUARD)
    finally:
        over.set()
        thread.join()
    assert desk.until(lambda: bool(heard) and heard[-1][0] >= east.seq - 1, GUARD)
    wanted = []
    for seq in range(1, east.seq + 1):
        epoch = sum(seq > point for point in points)  # the first has no version before it
        passes = -1.0 if epoch % 2 else 1.0
        if (-1.0 if seq % 2 else 1.0) == passes:
            wanted.append((seq, passes, epoch))
    eventually(lambda: len(heard) >= len(wanted))
    assert heard == wanted


def test_who_does_not_answer_or_refuses_is_told_of(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.federation.interests.requester.CHANGE_SECONDS", 0.3)
    lab, east, desk = opened(make, "desk", network=Network(budget=Budget(each=60)))
    slow = "{ double x = 0.0; for (int i = 0; i < 60; i = i + 1) { x = x + input.level; } return x > 30.0; }"
    for text in ("level > 0.5", "level < 0.2", slow):
        desk.library.publish("loud", text, on=CHANNEL)
    heard = Log()
    subscription = desk.channel(CHANNEL).subscribe(heard, "@loud/1", name="heard")
    make.ready(desk)
    released, install = threading.Event(), lab._engine.installer.install

    def held(*question: Any) -> Any:
        assert released.wait(GUARD)
        return install(*question)

    lab._engine.installer.install = held
    [told] = desk.library.upgrade("@loud/2")
    assert not told.acknowledged and told.points == {f"{CHANNEL}/east@lab": 0}
    released.set()
    settle(desk)
    assert {row.what for row in lab.library.running(CHANNEL)} == {"@loud/2"}
    [told] = desk.library.upgrade("@loud/3")
    assert "refused, and so nothing was changed: t.door@lab: too costly" in told.error and not told.points
    assert subscription._asked[0].where.origin.version == 2 and subscription.epoch == 2
    make.ready(desk)
    for level in (0.6, 0.1):
        east.publish(who="ann", level=level)
    assert heard.wait(1)[0].level == 0.1 and not subscription.refused


def test_another_node_is_told_to_upgrade(make: Nodes) -> None:
    _, east, desk, admin = opened(make, "desk", "admin")
    for text in ("level > 0.5", "level > 0.8"):
        admin.library.publish("loud", text, on=DOOR)
    desk.library.use("admin")
    heard = Log()
    desk.channel(CHANNEL).subscribe(heard, "@loud/1", name="heard")
    make.ready(desk)
    east.publish(who="ann", level=0.6)
    heard.wait(1)
    [told] = admin.library.upgrade_at("desk", "@loud/2")
    assert (told.subscription, told.before, told.acknowledged, told.error) == ("heard", 1, True, "")
    assert told.points == {f"{CHANNEL}/east@lab": 1}
    east.publish(who="ann", level=0.6)
    east.publish(who="ann", level=0.9)
    assert [event.level for event in heard.wait(2)] == [0.6, 0.9]
    assert admin.library.upgrade_at("lab", "@loud/2") == []
    admin.library.withdraw("@loud/1", "too loud")
    with pytest.raises(LibraryError, match="too loud"):
        admin.library.upgrade_at("desk", "@loud/1")
    with pytest.raises(LibraryError, match=r"desk: .*too loud"):  # nor by who does not know of it yet
        desk.library.catalogue.forget("loud")
        ask_upgrade(admin, "desk", "@loud/1")
    with pytest.raises(FederationError, match="is not there"):
        admin.library.upgrade_at("nowhere", "@loud/2")


def ask_upgrade(node: Any, other: str, reference: str) -> None:
    """As `upgrade_at`, without looking first whether it was withdrawn."""
    find = node.library.find
    node.library.find = lambda text, fresh=False: node.library.versions("loud")[0]
    try:
        node.library.upgrade_at(other, reference)
    finally:
        node.library.find = find


# ── enemies ──


def install(node: Any, other: Any, named: Named, version: int = 1, tag: int = 7) -> Installed:
    """A wish by name, as a node that was changed may send it."""
    found: Installed = ask(node, other, Install(CHANNEL, version, [Wish(tag, b"", named=pack_named(named))]))
    return found


def test_forged_and_borrowed_signatures_are_refused(make: Nodes) -> None:
    lab, _, eve = opened(make, "eve")
    good = eve.library.publish("loud", "level > 0.5", on=DOOR)
    other = eve.library.publish("quiet", "level < 0.1", on=DOOR)
    whole = Named("loud", 1, good.fingerprint, good.document, good.code)
    forged = bytearray(good.document)
    forged[-1] ^= 1
    swapped = good.document[:8] + other.document[8:]
    for number, (wrong, why) in enumerate(
        [
            (replace(whole, document=bytes(forged)), "refused|expected|not signed"),
            (replace(whole, document=swapped), "refused|expected|not signed"),
            (replace(whole, document=b"HWD1"), "refused a signed document"),
            (replace(whole, code=other.code), "expected the code that key:"),
            (replace(whole, code=good.code[:-1]), "expected the code that key:"),
            (replace(whole, document=other.document, code=other.code), "expected @loud/1, found @quiet/1"),
            (replace(whole, version=2), "expected @loud/2, found @loud/1"),
            (replace(whole, fingerprint=other.fingerprint), "or another program of it"),
        ],
        1,
    ):
        found = install(eve, lab, wrong, number)
        assert list(found.refused) == [7] and re.search(why, found.refused[7]), (why, found)
    assert len(lab.library.shelf) == 0 and not lab.library.running(CHANNEL)
    assert install(eve, lab, replace(whole, document=b"", code=b""), 20).missing == [7]
    assert install(eve, lab, whole, 21).refused == {} and len(lab.library.shelf) == 1
    broken = ask(eve, lab, Install(CHANNEL, 22, [Wish(8, b"", named=b"\xff\x00")]))
    assert "expected the name of an interest" in broken.error


def test_what_others_put_on_the_shelf_is_never_found_by_name(make: Nodes) -> None:
    lab, _, eve = opened(make, "eve")
    evil = eve.library.publish("loud", "true", on=DOOR)
    assert install(eve, lab, Named("loud", 1, evil.fingerprint, evil.document, evil.code)).refused == {}
    lab.library.use("nobody")
    with pytest.raises(LibraryError, match="found none"):
        lab.channel(CHANNEL).subscribe(where="@loud/1")


def test_a_flood_of_names_and_of_code_takes_no_more_room(make: Nodes) -> None:
    lab, _, eve = opened(make, "eve")
    lab.library.shelf = Shelf(most=4)
    for number in range(1, 13):
        made = eve.library.publish("loud", f"level > {number}", on=DOOR)
        found = install(eve, lab, Named("loud", number, made.fingerprint, made.document, made.code), number, number)
        assert not found.refused
        assert ask(eve, lab, FetchEntry(f"no-such-{number}")) == FetchedEntry()
    assert len(lab.library.shelf) == 4 and lab.library.shelf.evicted == 8
    assert lab.library.entries() == [] and lab.library.catalogue.owner("loud") is None
    many = [Wish(tag, b"", named=pack_named(Named("gone", tag, b"x" * 16))) for tag in range(100, 2000)]
    assert ask(eve, lab, Install(CHANNEL, 50, many)).missing == list(range(100, 2000))


def test_a_library_that_answers_half_or_nothing(make: Nodes) -> None:
    _, east, desk, eve = opened(make, "desk", "eve")
    good = eve.library.publish("loud", "level > 0.5", on=DOOR)
    desk.library.use("eve")
    serve = eve.library.server

    def nothing(caller: Any, request: Any) -> Any:
        raise LibraryError("not today")

    for fetch, why in (
        (lambda *_: FetchedEntry(good.document, good.code[:10]), "expected the code that key:"),
        (lambda *_: FetchedEntry(b"", good.code), "none of 1 other nodes has it"),
        (lambda *_: FetchedEntry(good.document[:40], good.code), "refused a signed document"),
        (lambda *_: ListEntries(), "eve"),
        (nothing, "not today"),
    ):
        serve.fetch = fetch
        with pytest.raises(LibraryError, match=why):
            desk.channel(CHANNEL).subscribe(where="@loud/1")
    del serve.fetch
    heard = desk.channel(CHANNEL).subscribe(where="@loud/1")
    make.ready(desk)
    east.publish(who="ann", level=0.6)
    assert heard.get(timeout=GUARD).level == 0.6
    eve.close(drain=False)  # whoever has it does without the library
    assert desk.library.find("@loud/1", fresh=True).fingerprint == good.fingerprint


def test_two_publishers_of_one_name_after_a_split(make: Nodes) -> None:
    lab, _, north, south = opened(make, "north", "south")
    one = north.library.publish("loud", "level > 0.5", on=DOOR)  # neither knows of the other
    two = south.library.publish("loud", "level > 0.8", 1, on=DOOR)
    with pytest.raises(LibraryError, match="expected one program, found several of version 1") as raised:
        lab.library.find("@loud")
    assert one.fingerprint.hex() in str(raised.value) and two.fingerprint.hex() in str(raised.value)
    lab.library.use("north")
    assert lab.library.find("@loud/1").fingerprint == one.fingerprint
    lab.library.use()
    south.library.publish("loud", "level > 0.9", on=DOOR)
    assert lab.library.find("@loud", fresh=True).fingerprint == one.fingerprint  # the name is north's here, by now
    with pytest.raises(LibraryError, match=r"found none|expected it signed by"):
        lab.library.find("@loud/2")
    assert lab.library.forget("@loud") == 1
    lab.library.use("south")
    assert lab.library.find("@loud").version == 2


def test_what_does_not_fit_the_channel_is_refused_where_it_is_asked_for(make: Nodes) -> None:
    lab, _, desk = opened(make, "desk")
    door = desk.channel(CHANNEL)
    for name, text, on in (
        ("badge", "badge == 7", "badge: i64"),
        ("who", "who > 7 and level > 0.5", "who: i64, level: f64"),
    ):
        desk.library.publish(name, text, on=on)
        with pytest.raises(SubscriptionError, match=rf"@{name}/1 does not fit channel 't.door': expected {name}: i64"):
            door.subscribe(where=f"@{name}/1")
    for name, text, on in (
        ("narrow", "level > 0.5", "level: f32"),  # what is wider reads the same
        ("perhaps", "badge is null or badge = 7", "badge: i64?, level: f64"),  # and this may be missing
    ):
        desk.library.publish(name, text, on=on)
        assert door.subscribe(where=f"@{name}/1").refused == {}
    desk.library.publish("narrow", "badge > 7", on="badge: i64")
    with pytest.raises(LibraryError, match="does not fit"):
        desk.library.upgrade("@narrow/2")
    settle(desk)
    assert {row.what for row in lab.library.running()} <= {"@narrow/1", "@perhaps/1"}


def test_many_who_want_it_at_once_ask_once(make: Nodes) -> None:
    lab, _, desk = opened(make, "desk")
    lab.library.publish("loud", LOUD, on=DOOR, params={"limit": 0.5})
    found, together = [], threading.Barrier(8)

    def find() -> None:
        together.wait()
        found.append(desk.library.find("@loud/1"))

    threads = [threading.Thread(target=find) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8 and desk.library.finder.fetches == 1 and lab.library.server.served == 1


def test_code_is_there_after_a_restart(make: Nodes, tmp_path: Path) -> None:
    lab, _, desk = opened(make, "desk", state=tmp_path / "lab")
    entry = desk.library.publish("loud", LOUD, on=CHANNEL, params={"limit": 0.5})
    desk.channel(CHANNEL).subscribe(where="@loud/1")
    settle(desk)
    eventually(lambda: len(lab.library.shelf) == 1)
    lab.close(drain=False)
    with Node("lab", state=tmp_path / "lab") as again:
        assert again.library.shelf.get("loud", 1, entry.fingerprint) is not None
        assert again.library.entries() == []


# ── rights ──


def test_rules_say_who_publishes_and_who_may_know(make: Nodes, authority: Path) -> None:
    rules = (
        Rule("library.ops.**", "desk", may=("publish", "subscribe")),
        Rule("library.ops.**", "*", may=()),
        Rule("library.**", ["desk", "guest"], may=("subscribe",)),
        Rule("library.**", "*", may=()),
        Rule(CHANNEL, "desk", may=("subscribe", "install", "inspect", "advertise")),
        Rule(CHANNEL, ["guest", "eve", "lab"], may=("subscribe", "advertise")),
    )
    lab, desk, guest, eve = (joined(make, authority, name, rules) for name in ("lab", "desk", "guest", "eve"))
    lab.channel(CHANNEL, DOOR).source("east")
    make.together()
    desk.library.publish("ops.loud", "level > 0.5", on=DOOR, at="lab")
    entry = lab.library.find("@ops.loud/1")
    assert entry.owner == "certificate:desk" and lab.library.catalogue.is_published(entry)

    # who may not publish, may not by its own signature nor with that of others
    with pytest.raises(FederationError, match="may not publish"):
        eve.library.publish("ops.loud", "true", 2, on=DOOR, at="lab")
    with pytest.raises(FederationError, match="may not publish"):
        ask(eve, lab, PublishEntry(entry.document, entry.code))
    with pytest.raises(FederationError, match="may not publish"):
        lab.library.publish("mine", "true", on=DOOR, at="desk")
    with pytest.raises(FederationError):
        ask(eve, lab, WithdrawEntry(entry.document))  # it is no withdrawal

    # what one may not have is not there
    assert ask(guest, lab, FetchEntry("ops.loud", 1)) == FetchedEntry()
    assert ask(guest, lab, ListEntries()).rows == [] and len(ask(desk, lab, ListEntries()).rows) == 1
    eve.library.publish("tools.loud", "true", on=DOOR)
    with pytest.raises(LibraryError, match=r"none of|may not publish"):
        desk.library.find("@tools.loud/1")

    # who may know what others ask for
    for node in (desk, guest):
        assert node.until(lambda node=node: node.has_channel(CHANNEL), GUARD)
    desk.channel(CHANNEL).subscribe(where="@ops.loud/1")
    guest.channel(CHANNEL).subscribe(where="level > 0.9")
    settle(desk)
    settle(guest)
    seen = {node.name: ask(node, lab, ListRunning(CHANNEL)) for node in (desk, guest, eve)}
    assert {row.asked_by.partition(":")[0] for row in seen["desk"].rows} == {"desk", "guest"}
    assert {row.asked_by.partition(":")[0] for row in seen["guest"].rows} == {"guest"} and seen["guest"].hidden
    assert seen["eve"].rows == [] and seen["eve"].hidden
    everywhere = desk.library.running_everywhere(CHANNEL)
    assert {row.what for row in everywhere["lab"].rows} == {"@ops.loud/1", "level > 0.9"}
    with pytest.raises(FederationError, match="may not publish"):
        guest.library.catalogue.add(entry, published=False)
        guest.library.upgrade_at("desk", "@ops.loud/1")


def test_who_is_not_there_is_said_in_the_list(make: Nodes) -> None:
    _, _, desk, eve = opened(make, "desk", "eve")
    desk.channel(CHANNEL).subscribe(where="level > 0.5", name="heard")
    settle(desk)

    def nothing(*_: Any) -> Any:
        raise LibraryError("not today")

    eve.library.listing.answer = nothing
    found = desk.library.running_everywhere()
    assert isinstance(found["eve"], FederationError) and "not today" in str(found["eve"])
    [row] = found["lab"].rows
    assert (row.channel, row.what, row.kind) == (CHANNEL, "level > 0.5", "interest") and row.size and row.cost
    [own] = found["desk"].rows
    assert own.asked_by == "desk: subscription heard"
