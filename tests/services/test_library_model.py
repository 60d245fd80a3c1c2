"""A catalogue beside a model of it: whatever is published, withdrawn, forgotten and loaded again, by whomever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Interest, Node
from headwater.errors import FrameError, LibraryError
from headwater.federation.wire.library_requests import unpack_named
from headwater.patterns import Pattern
from headwater.services.library import entry as entries
from headwater.services.library import programs
from headwater.services.library.catalogue import Catalogue
from headwater.services.library.tables import LibraryTables
from headwater.services.library.trigger_form import TriggerForm
from headwater.store import NodeState
from tests.effort import examples

OWNERS, NAMES, VERSIONS, LIMITS = ("ann", "bob"), ("loud", "quiet"), (1, 2, 3), (1, 2, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(OWNERS), st.sampled_from(NAMES), st.sampled_from(VERSIONS),
                  st.sampled_from(LIMITS), st.booleans()),
        st.tuples(st.just("withdraw"), st.sampled_from(OWNERS), st.sampled_from(NAMES), st.sampled_from(VERSIONS),
                  st.sampled_from(LIMITS)),
        st.tuples(st.just("forget"), st.sampled_from(NAMES)),
        st.tuples(st.just("load")),
    ),
    max_size=25,
)  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Iterator[dict[tuple[str, str, int, int], Any]]:
    """Every entry that may be published, signed: by owner, name, version and what it says."""
    with Node("ann") as ann, Node("bob") as bob:
        yield {
            (owner.name, name, version, limit): entries.make(
                owner.library._signature, name, version, Interest(f"level > {limit}", "level: f64")
            )
            for owner in (ann, bob)
            for name in NAMES
            for version in VERSIONS
            for limit in LIMITS
        }


class Model:
    """What must be so: owners by name, and by name and version what it stands for, by whom it was kept, and why not."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.entries: dict[tuple[str, int], tuple[int, bool, str | None]] = {}

    def add(self, owner: str, name: str, version: int, limit: int, published: bool) -> bool:
        known = self.entries.get((name, version))
        if self.owners.get(name, owner) != owner or (known is not None and known[0] != limit):
            return False
        self.owners[name] = owner
        before = known or (limit, False, None)
        self.entries[name, version] = limit, published or before[1], before[2]
        return True

    def withdraw(self, owner: str, name: str, version: int, limit: int) -> bool:
        known = self.entries.get((name, version))
        if known is None or self.owners[name] != owner or known[0] != limit:
            return False
        self.entries[name, version] = (*known[:2], "why")
        return True

    def forget(self, name: str) -> bool:
        self.owners.pop(name, None)
        self.entries = {key: value for key, value in self.entries.items() if key[0] != name}
        return True


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS)
def test_a_catalogue_does_what_its_rules_say(made: dict[Any, Any], steps: list[Any]) -> None:
    state = NodeState(":memory:")
    model, catalogue = Model(), Catalogue(LibraryTables(state))
    for what, *more in steps:
        try:
            if what == "add":
                done = model.add(*more)
                catalogue.add(made[tuple(more[:4])], published=more[4])
            elif what == "withdraw":
                entry, done = made[tuple(more)], model.withdraw(*more)
                catalogue.withdraw(entry.name, entry.version, entry.fingerprint, entry.owner, "why", b"document")
            elif what == "forget":
                done = model.forget(*more)
                catalogue.forget(*more)
            else:
                done = True
                catalogue = Catalogue(LibraryTables(state))
                catalogue.load(lambda row: entries.from_kept(row.owner, row.document, row.code))
        except LibraryError:
            assert not done, (what, more)
        else:
            assert done, (what, more)
        check(model, catalogue)
    state.close()


def check(model: Model, catalogue: Catalogue) -> None:
    assert {(each.name, each.version) for each in catalogue.entries()} == set(model.entries)
    for (name, version), (limit, published, withdrawn) in model.entries.items():
        entry = catalogue.get(name, version)
        assert entry is not None and entry.withdrawn == withdrawn and catalogue.is_published(entry) is published
        assert entry.interest().text == f"level > {limit}"
    for name in NAMES:
        numbers = sorted(version for other, version in model.entries if other == name)
        good = [version for version in numbers if model.entries[name, version][2] is None]
        newest = catalogue.newest(name)
        assert (None if newest is None else newest.version) == (good[-1] if good else None)
        assert catalogue.next_version(name) == (numbers[-1] if numbers else 0) + 1
        assert (catalogue.owner(name) is None) == (name not in model.owners)


# ── whatever bytes come ──

PROGRAMS = [
    Interest("level > :limit and who != 'cat'", "who: text, level: f64", params={"limit": 0.5}),
    Interest("{ static int n = 0; n = n + 1; output.level = input.level / n; return n % 3; }", "level: f64",
             output="level: f64"),
    Pattern("a: t.door; b: t.door{who != a.who} within :most", {"t.door": "who: text"}, params={"most": 2.0}),
    TriggerForm(on=["stock/*", "every 10 s"], when="becomes", where="new.price < :limit", params={"limit": 90.0},
                inputs={"desk": "desk"}, notify={"price": "new.price"}, type="Stock"),
]  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(which=st.sampled_from(range(len(PROGRAMS))), data=st.data())
def test_what_somebody_has_signed_is_still_only_bytes(which: int, data: st.DataObject) -> None:
    packed = programs.pack(PROGRAMS[which])
    code = bytearray(packed.code)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(code) - 1))
        code[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not code:
            break
    kind = data.draw(st.sampled_from((packed.kind, "interest", "pattern", "trigger", "other")))
    try:
        found = programs.read(kind, bytes(code), packed.fingerprint)
    except LibraryError:
        return
    assert kind == packed.kind and found.fingerprint == packed.fingerprint  # another value of a parameter, or text


@settings(max_examples=examples(100), deadline=None)
@given(data=st.binary(max_size=200))
def test_names_of_wishes_are_named_or_refused(data: bytes) -> None:
    try:
        found = unpack_named(data)
    except FrameError:
        return
    assert found.name and len(found.fingerprint) == 16
