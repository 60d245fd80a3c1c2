"""A library at one node: names and versions, what they stand for, who owns them, and what is kept of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Node
from headwater.errors import HeadwaterWarning, LibraryError, ParameterError, StoreError, SubscriptionError
from headwater.patterns.pattern import Pattern
from headwater.services.library import entry as entries
from headwater.services.library.catalogue import Catalogue, Shelf
from headwater.services.library.entry import LibraryEntry
from headwater.services.library.reference import Reference, parse
from headwater.services.library.trigger_form import TriggerForm
from tests.disk import full

DOOR = "who: text, level: f64"
LOUD = "level > :limit"


def made(node: Any, name: str, version: int, text: str = "level > 0.5") -> LibraryEntry:
    return entries.make(node.library._signature, name, version, Interest(text, DOOR))


@pytest.mark.parametrize(
    "text",
    ["@", "@/1", "@a/0", "@a/-1", "@a/1.5", "@a/99999999999", "@a b", "@ü", "@a/2/3", "@a..b", "@" + "a" * 65, "@a/",
     "@" + ".".join("a" * 9), "@\x00", "@@a"],
)  # fmt: skip
def test_what_is_no_reference_is_refused_with_what_is_wrong(text: str) -> None:
    with pytest.raises(LibraryError, match="expected"):
        parse(text)
    with Node() as node, pytest.raises(LibraryError, match="expected"):
        node.channel("t.door", DOOR).subscribe(print, text)


def test_references_are_names_with_or_without_a_version() -> None:
    assert parse("@doors.tail-gating_2/17") == Reference("doors.tail-gating_2", 17)
    assert parse(" @loud ") == Reference("loud") and str(Reference("loud", 2)) == "@loud/2"


def test_a_subscription_by_name_is_one_with_the_interest_and_its_own_parameters() -> None:
    with Node() as node:
        door = node.channel("t.door", DOOR)
        node.library.publish("loud", LOUD, on=door, params={"limit": 0.5})
        plain, more = door.subscribe(where="@loud"), door.subscribe("@loud/1", params={"limit": 0.7})
        source = door.source()
        for level in (0.4, 0.6, 0.8):
            source.publish(who="ann", level=level)
        assert [event.level for event in (plain.get(), plain.get())] == [0.6, 0.8]
        assert more.get().level == 0.8 and more.poll() is None
        assert {row.what for row in node.library.running()} == {"@loud/1"}
        assert plain.report().interest == more.report().interest == "@loud/1: level > :limit"
        with pytest.raises(ParameterError, match="limti"):
            door.subscribe(where="@loud/1", params={"limti": 0.7})


def test_a_version_stands_for_one_program_for_ever() -> None:
    with Node() as node:
        library = node.library
        first = library.publish("loud", LOUD, on=DOOR, params={"limit": 0.5})
        again = library.publish("loud", "not (not (level > :limit))", 1, on=DOOR, params={"limit": 0.5})
        assert first.version == again.version == 1 and first.fingerprint == again.fingerprint
        with pytest.raises(LibraryError, match=r"a version never changes: publish it as version 2"):
            library.publish("loud", "level > 0.9", 1, on=DOOR)
        assert library.publish("loud", "level > 0.9", on=DOOR).version == 2
        assert library.find("@loud").version == 2 and library.find("@loud/1").fingerprint == first.fingerprint
        assert "never changes" in node.report().services["library"]["conflicts"][0]


def test_what_was_withdrawn_is_not_given_out_nor_its_number_again() -> None:
    with Node() as node:
        library = node.library
        for limit in (0.5, 0.6):
            library.publish("loud", f"level > {limit}", on=DOOR)
        library.withdraw("@loud/2", "it lets cats in")
        assert library.find("@loud").version == 1
        with pytest.raises(LibraryError, match=r"@loud/2 was withdrawn by key:.*: it lets cats in; use @loud/1"):
            library.find("@loud/2")
        with pytest.raises(LibraryError, match="withdrawn"):
            node.channel("t.door", DOOR).subscribe(print, "@loud/2")
        assert library.publish("loud", "level > 0.7", on=DOOR).version == 3
        with pytest.raises(LibraryError, match="never changes"):
            library.publish("loud", "level > 0.8", 2, on=DOOR)
        with pytest.raises(LibraryError, match="expected a version"):
            library.withdraw("@loud", "all of them")


def test_everything_wrong_with_publishing_is_said() -> None:
    with Node() as node:
        for wrong, why in (
            ({"definition": "level > 0.5"}, "expected on="),
            ({"definition": Interest("level > 0.5", DOOR), "on": DOOR}, "found on="),
            ({"definition": 7, "on": DOOR}, "expected"),
            ({"definition": "level >", "on": DOOR}, "expected"),
            ({"definition": "level > 0.5", "on": DOOR, "version": 0}, "whole number from 1"),
            ({"definition": "level > 0.5", "on": DOOR, "version": True}, "whole number from 1"),
            ({"definition": "level > 0.5", "on": DOOR, "note": "x" * 2000}, "characters"),
            ({"definition": "level > 0.5 or who == '" + "x" * 300_000 + "'", "on": DOOR}, "expected|large"),
        ):
            with pytest.raises((LibraryError, TypeError, ValueError), match=why):
                node.library.publish("loud", **wrong)  # type: ignore[arg-type]
        node.channel("raw", bytes)
        with pytest.raises(LibraryError, match="carries bytes"):
            node.library.publish("loud", "level > 0.5", on="raw")
        assert node.library.entries() == []


def test_a_name_belongs_to_who_has_published_it_first() -> None:
    with Node("a") as a, Node("b") as b:
        catalogue = Catalogue()
        catalogue.add(made(a, "loud", 1), published=True)
        with pytest.raises(LibraryError, match=r"expected it signed by key:\w+, whose name that is here"):
            catalogue.add(made(b, "loud", 2), published=True)
        with pytest.raises(LibraryError, match="withdrawal"):
            catalogue.withdraw("loud", 1, made(a, "loud", 1).fingerprint, "key:other", "mine", b"")
        assert [str(each) for each in catalogue.entries()] == ["@loud/1"] and len(catalogue.conflicts) == 2
        assert catalogue.forget("loud") == 1
        assert catalogue.add(made(b, "loud", 2), published=True).version == 2


def test_catalogue_and_shelf_are_bounded() -> None:
    with Node("a") as a:
        all_of_them = [made(a, "loud", version, f"level > {version}") for version in range(1, 7)]
        size = all_of_them[0].size
        catalogue = Catalogue(published=(2, 1 << 20), fetched=(3, 1 << 20), owners=2)
        for each in all_of_them[:2]:
            catalogue.add(each, published=True)
        with pytest.raises(LibraryError, match="this library is full"):
            catalogue.add(all_of_them[2], published=True)
        for each in all_of_them[2:]:
            catalogue.add(each, published=False)
        assert catalogue.get("loud", 3) is None and catalogue.get("loud", 6) is not None and catalogue.evicted == 1
        catalogue.add(made(a, "other", 1), published=False)
        with pytest.raises(LibraryError, match="2 names are known here"):
            catalogue.add(made(a, "third", 1), published=False)
        shelf = Shelf(most=100, most_bytes=3 * size)
        for each in all_of_them:
            shelf.put(each)
        assert len(shelf) == 3 and shelf.evicted == 3
        assert shelf.get("loud", 1, all_of_them[0].fingerprint) is None
        assert shelf.get("loud", 6, all_of_them[0].fingerprint) is None  # another program of that version is not it
        assert shelf.get("loud", 6, all_of_them[5].fingerprint) is all_of_them[5]


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Node("lab", state=state) as node:
        for limit in (0.5, 0.6, 0.7):
            node.library.publish("loud", f"level > {limit}", on=DOOR, note=f"at {limit}")
        node.library.withdraw("@loud/3", "too loud")
        node.library.publish("quiet", "level < 0.1", on=DOOR)
        owner = node.library.find("@loud").owner
    with sqlite3.connect(state) as file:
        file.execute("UPDATE library_entries SET code = x'00' WHERE name = 'loud' AND version = 1")
    file.close()
    with Node("lab", state=state) as node:
        library = node.library
        assert [str(each) for each in library.entries()] == ["@loud/2", "@loud/3", "@quiet/1"]
        assert library.catalogue.damaged == 1 and library.find("@loud").version == 2
        with pytest.raises(LibraryError, match="too loud"):
            library.find("@loud/3")
        assert library.publish("loud", "level > 0.8", on=DOOR).version == 4  # with the same key
        assert {each.owner for each in library.entries()} == {owner}
        assert library.find("@loud/2").manifest.note == "at 0.6" and library.find("@loud/2").interest().test(
            {"who": "ann", "level": 0.65}
        )


def test_what_cannot_be_kept_was_not_published(tmp_path: Path) -> None:
    with Node("lab", state=tmp_path / "state") as node:
        node.library.publish("loud", "level > 0.5", on=DOOR)
        with full(), pytest.raises(StoreError):
            node.library.publish("loud", "level > 0.6", on=DOOR)
        assert [str(each) for each in node.library.entries()] == ["@loud/1"]
    with Node("lab", state=tmp_path / "state") as node:
        assert [str(each) for each in node.library.entries()] == ["@loud/1"]
        assert node.library.publish("loud", "level > 0.7", on=DOOR).version == 2


def test_patterns_and_triggers_have_names_too(tmp_path: Path) -> None:
    with Node("lab", state=tmp_path / "state") as node:
        door = node.channel("hall.door", "who: text")
        text = "a: hall.door; b: hall.door{who != a.who} within :most"
        node.library.publish("tailgating", Pattern(text, {"hall.door": door.type}, params={"most": 2.0}))
        node.library.publish(
            "low", TriggerForm(on="stock/acme", when="becomes", where="new.price < :limit", params={"limit": 90.0},
                               notify={"price": "new.price"}),
        )  # fmt: skip
        watch = node.match("@tailgating/1", params={"most": 60.0})
        assert watch.pattern.params["most"] == 60.0 and str(watch.origin) == "@tailgating/1"
        with pytest.warns(HeadwaterWarning, match="restart"):
            named = node.pattern("tails", "@tailgating")
        objects = node.objects
        objects.type("Stock", "price: f64")
        with objects.transaction() as t:
            t.create("stock/acme", "Stock", price=100.0)
        alert = objects.trigger("alert", "@low/1", params={"limit": 80.0})
        told = alert.subscribe()
        for price in (85.0, 75.0):
            with objects.transaction() as t:
                t.update("stock/acme", {"price": price}, event=True)
        assert told.get(timeout=30).price == 75.0
        rows = {(row.kind, row.what) for row in node.library.running() if row.what.startswith("@")}
        assert rows == {("pattern", "@tailgating/1"), ("trigger", "@low/1")}
        for wrong in (lambda: node.match("@low"), lambda: door.subscribe(print, "@tailgating"),
                      lambda: objects.trigger("x", "@tailgating")):  # fmt: skip
            with pytest.raises(LibraryError, match=r"expected an? \w+, found @\w+/1, which is a"):
                wrong()
        with pytest.raises(Exception, match="which says the rest, found where="):
            objects.trigger("x", "@low/1", where="new.price < 1")
        node.library.publish(
            "tailgating", Pattern(text.replace("!=", "="), {"hall.door": door.type}, params={"most": 2.0})
        )
        with pytest.raises(LibraryError, match="a pattern is not exchanged while it runs"):
            node.library.upgrade("@tailgating/2")
        named.close()


def test_an_upgrade_takes_effect_at_one_point_and_can_be_taken_back() -> None:
    with Node("lab") as node:
        door = node.channel("t.door", DOOR)
        node.library.publish("loud", LOUD, on=door, params={"limit": 0.5})
        node.library.publish("loud", "level > :limit and who != 'cat'", on=door, params={"limit": 0.5})
        heard = door.subscribe(where="@loud/1", params={"limit": 0.7}, name="heard")
        other = door.subscribe(where="level > 0.1", name="other")
        east = door.source("east")
        for _ in range(3):
            east.publish(who="cat", level=0.9)
        [told] = node.library.upgrade("@loud")
        assert (told.subscription, told.before, told.points, told.acknowledged) == (
            "heard",
            1,
            {"t.door/east": 3},
            True,
        )
        east.publish(who="cat", level=0.9)
        east.publish(who="ann", level=0.6)
        east.publish(who="ann", level=0.8)
        [back] = node.library.upgrade("@loud/1")
        assert back.points == {"t.door/east": 6}
        east.publish(who="cat", level=0.8)
        assert [heard.get().who for _ in range(5)] == ["cat", "cat", "cat", "ann", "cat"] and heard.poll() is None
        assert node.library.upgrade("@loud/1") == [] and other.epoch == 1
        assert heard.change(where="@loud/2") == {"t.door/east": 7}
        with pytest.raises(LibraryError, match="expected a subscription"):
            node.library.upgrade("@loud/1", subscription="nobody")


def test_what_does_not_fit_is_told_all_at_once_and_changes_nothing() -> None:
    with Node("lab") as node:
        door = node.channel("t.door", DOOR)
        node.library.publish("loud", LOUD, on=door, params={"limit": 0.5})
        node.library.publish("loud", "level > :most", on=door, params={"most": 0.5})
        node.library.publish("loud", "level > 0.5", on=door)
        node.library.publish("loud", "{ return input.level > 0.5 ? 1 : 0; }", on=door)
        one = door.subscribe(where="@loud/1", params={"limit": 0.7}, name="one")
        two = door.subscribe(where="@loud/1", params={"limit": 0.8}, name="two")
        fine = door.subscribe(where="@loud/1", name="fine")
        with pytest.raises(LibraryError, match=r"(?s)nothing was changed.*one: .*two: ") as raised:
            node.library.upgrade("@loud/2")
        assert "fine:" not in str(raised.value)
        assert [each.epoch for each in (one, two, fine)] == [1, 1, 1]
        node.library.publish("loud", "{ output.level = input.level; return 1; }", on=DOOR, output="level: f64")
        one.cancel()
        two.cancel()
        with pytest.raises(LibraryError, match="of another type: expected none, found"):
            node.library.upgrade("@loud/5")
        node.library.withdraw("@loud/3", "not that loud")
        with pytest.raises(LibraryError, match="withdrawn"):
            node.library.upgrade("@loud/3")
        with pytest.raises(LibraryError, match="found none"):
            node.library.upgrade("@loud/9")
        assert fine.epoch == 1 and fine._asked[0].where.origin.version == 1


def test_two_versions_side_by_side_on_a_log(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path / "log") as node:
        door = node.channel("t.door", DOOR)
        sources = [door.source(name) for name in ("east", "west")]
        for n in range(40):
            sources[n % 2].publish(who="cat" if n % 5 == 0 else "ann", level=n / 40)
    with Node("lab") as again:
        library = again.library
        first = library.publish("loud", "level > 0.5", on=DOOR)
        library.publish("loud", "level > 0.25 and who != 'cat'", on=DOOR)
        library.publish("loud", "{ static int n = 0; n = n + 1; return n % 3 == 0; }", on=DOOR)
        library.publish("half", "{ output.level = input.level / 2; return 1; }", on=DOOR, output="level: f64")
        less = "{ output.level = input.level * 0.5; if (input.level > 0.9) output.level = 0.0; return 1; }"
        library.publish("half", less, on=DOOR, output="level: f64")
        found = library.compare("@loud/1", "@loud/2", tmp_path / "log", "t.door", examples=2)
        events = [("cat" if n % 5 == 0 else "ann", n / 40) for n in range(40)]
        old = {n for n, (who, level) in enumerate(events) if level > 0.5}
        new = {n for n, (who, level) in enumerate(events) if level > 0.25 and who != "cat"}
        assert (found.events, found.old_passed, found.new_passed) == (40, len(old), len(new))
        assert (found.both, found.only_old, found.only_new) == (len(old & new), len(old - new), len(new - old))
        assert {row["who"] for row in found.examples_old} == {"cat"} and len(found.examples_new) == 2
        assert "only by @loud/1" in str(found) and not found.same
        assert library.compare("@loud/1", "@loud/1", tmp_path / "log", "t.door").same
        assert library.compare("@loud/1", "@loud/3", tmp_path / "log", "t.door").new_passed == 2 * (20 // 3)
        halves = library.compare("@half/1", "@half/2", tmp_path / "log", "t.door")
        assert (halves.both, halves.differing) == (40, sum(level > 0.9 for _, level in events))
        assert first.interest().origin is not None
        with pytest.raises(LibraryError, match=r"found 't\.window'; it has t\.door"):
            library.compare("@loud/1", "@loud/2", tmp_path / "log", "t.window")


def test_names_are_taken_wherever_an_interest_is() -> None:
    from headwater.correlation import all_of, on

    with Node() as node:
        door = node.channel("t.door", DOOR)
        node.library.publish("loud", LOUD, on=door, params={"limit": 0.5})
        derived = door.derive("t.loud", "@loud/1")
        heard, both = derived.subscribe(), node.correlate(all_of(on("t.door", "@loud", name="a")), None)
        by_pattern = node.subscribe("t.*", where="@loud/1")
        door.source().publish(who="ann", level=0.6)
        assert heard.get().who == "ann" and both.get() is not None and by_pattern.get().level == 0.6
        with pytest.raises((LibraryError, SubscriptionError)):
            door.subscribe(print, where="@quiet/1")
