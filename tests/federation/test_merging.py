"""What a source must know of a node's interests, held against every pair of them and against the interpreter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Interest
from headwater.federation.demand.cover import Changes, Cover, minimal
from headwater.interest import as_event_type
from headwater.ir import interp
from headwater.ir.covers import covers
from tests import programs
from tests import strategies as s
from tests.effort import examples

ON = as_event_type("level: i64, network: text, gain: f64?")


def wants(text: str, **params: object) -> Interest:
    return Interest(text, ON, params=params)


COUNTING = "{ static int n = 0; n = n + 1; return n > 3; }"


def transformation() -> Interest:
    return Interest("{ output.level = input.level; return 1; }", ON, output="level: i64")


# ── all at once ──


def test_wider_ones_cover_narrower_ones() -> None:
    interests = [
        wants("level > 5"),
        wants("level > 3"),
        wants("level > 4 and network == 'ORL'"),
        wants("network == 'ORL'"),
        wants("network like 'ORL%' and gain > 0.5"),
    ]
    assert minimal(interests) == ([1, 3, 4], {0: 1, 2: 1})


def test_of_equal_ones_the_first_counts() -> None:
    interests = [wants("level > 5"), wants("not (level <= 5)"), wants("level >= 6"), wants("level > :n", n=5)]
    assert minimal(interests) == ([0], {1: 0, 2: 0, 3: 0})


def test_everything_covers_every_filter() -> None:
    assert minimal([wants("level > 5"), None, wants("true"), None]) == ([1], {0: 1, 2: 1, 3: 1})
    assert minimal([wants("true"), wants("level > 5")]) == ([0], {1: 0})
    assert minimal([]) == ([], {})
    assert minimal([None]) == ([0], {})


def test_what_never_passes_is_covered_by_anything() -> None:
    assert minimal([wants("level > 5 and level < 3"), wants("network == 'x'")]) == ([1], {0: 1})


def test_state_and_outputs_stand_alone() -> None:
    stateful, output = wants(COUNTING), transformation()
    assert minimal([None, stateful, wants(COUNTING), output])[0] == [0, 1, 2, 3]
    assert minimal([stateful, wants("level > 1"), None]) == ([0, 2], {1: 2})
    assert minimal([output, transformation()]) == ([0], {1: 0})  # which is one computation


def test_parameters_count_by_value() -> None:
    assert minimal([wants("level > :n", n=5), wants("level > :n", n=3)]) == ([1], {0: 1})
    assert minimal([wants("level > :n", n=3), wants("level > :n", n=3)]) == ([0], {1: 0})
    inside = [wants("network in :set", set={"a"}), wants("network in :set", set={"a", "b"})]
    assert minimal(inside) == ([1], {0: 1})


def test_other_event_types_are_apart() -> None:
    other = Interest("level > 5", "level: i64")
    assert minimal([wants("level > 3"), other])[0] == [0, 1]
    assert minimal([None, other])[0] == [0]


# ── one at a time ──


def test_what_is_covered_sends_nothing_and_comes_back() -> None:
    cover = Cover()
    wide = cover.add(wants("level > 3"))
    assert cover.changes() == Changes(frozenset({wide}), frozenset())
    narrow, narrower = cover.add(wants("level > 5")), cover.add(wants("level > 7"))
    assert not cover.changes()
    assert cover.covered == {narrow: wide, narrower: wide}
    assert (cover.by(wide), len(cover)) == (wide, 3)
    cover.remove(wide)
    assert cover.needed == {narrow} and cover.covered == {narrower: narrow}
    assert cover.changes() == Changes(frozenset({narrow}), frozenset({wide}))
    widest = cover.add(None)
    assert cover.changes() == Changes(frozenset({widest}), frozenset({narrow}))
    cover.remove(narrow)  # covered itself: what is below it goes to what is above it
    assert not cover.changes()
    assert cover.covered == {narrower: widest}
    assert cover.interest(widest) is None and cover.interest(narrower) is not None
    cover.remove(widest)
    cover.remove(narrower)
    assert cover.changes() == Changes(frozenset(), frozenset({widest}))
    assert not cover.needed and not cover.covered and not len(cover)
    with pytest.raises(KeyError):
        cover.remove(wide)


def test_an_equal_one_takes_over() -> None:
    cover = Cover()
    one, two, three = (cover.add(wants("level > 3")) for _ in range(3))
    narrow = cover.add(wants("level > 5"))
    cover.changes()
    cover.remove(one)
    assert cover.changes() == Changes(frozenset({two}), frozenset({one}))
    assert cover.covered == {three: two, narrow: two}
    everything = cover.add(None)
    cover.remove(two)
    assert cover.covered == {three: everything, narrow: everything}
    cover.remove(everything)
    assert cover.needed == {three} and cover.covered == {narrow: three}
    cover.remove(narrow)
    again = cover.add(wants("level > 3"))
    cover.remove(again)
    assert cover.needed == {three}


def test_changes_that_cancel_out_are_none() -> None:
    cover = Cover()
    narrow = cover.add(wants("level > 5"))
    cover.changes()
    wide = cover.add(wants("level > 3"))
    cover.remove(wide)
    assert not cover.changes()
    assert cover.needed == {narrow}


# ── random ones ──

BOUNDS = st.integers(-3, 3)
TERMS = st.one_of(
    st.builds("level {} {}".format, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), BOUNDS),
    st.builds("gain {} {}".format, st.sampled_from(["<", ">="]), BOUNDS.map(float)),
    st.builds("network == '{}'".format, st.sampled_from("ab")),
    st.sampled_from(["network like 'a%'", "gain is null", "true", "level in (1, 2)"]),
)
TEXTS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)
MADE: dict[str, Interest] = {}  # parsing is slow, and draws repeat


def made(text: str) -> Interest:
    if text not in MADE:
        MADE[text] = wants(text)
    return MADE[text]


INTERESTS = st.none() | st.just(COUNTING).map(wants) | TEXTS.map(made) | TEXTS.map(made) | TEXTS.map(made)
EVENTS = st.builds(
    lambda level, network, gain: {"level": level, "network": network, "gain": gain},
    st.integers(-4, 4), st.sampled_from(["", "a", "ab", "b"]), st.none() | st.integers(-4, 4).map(float),
)  # fmt: skip


def stateless(interest: Interest | None) -> bool:
    return interest is None or not interest.program.stateful


def larger(a: Interest | None, b: Interest | None) -> bool:
    """Each pair for itself."""
    if a is None or b is None:
        return a is None and stateless(b)
    return covers(a.normal, b.normal, a_params=a.params, b_params=b.params)


def passes(interest: Interest | None, event: dict[str, object]) -> bool:
    return interest is None or interest.interpret(event).passed


def check(interests: dict[int, Interest | None], needed: set[int], covered: dict[int, int]) -> None:
    assert needed | covered.keys() == interests.keys() and not needed & covered.keys()
    assert set(covered.values()) <= needed
    for a in needed:  # nothing needed is known to be covered by another
        assert not any(larger(interests[b], interests[a]) for b in needed - {a})
    for key, interest in interests.items():
        if not stateless(interest):
            assert key in needed
        elif key in needed:  # a needed one is larger than all, or none is known to be larger
            above = {other for other in interests if other != key and larger(interests[other], interest)}
            assert all(covered.get(other) == key for other in above)


@given(st.lists(INTERESTS, max_size=8), st.lists(EVENTS, min_size=1, max_size=10))
@settings(max_examples=examples(150), deadline=None)
def test_the_needed_pass_what_all_pass(interests: list[Interest | None], events: list[dict[str, object]]) -> None:
    needed, covered = minimal(interests)
    assert needed == sorted(needed)
    check(dict(enumerate(interests)), set(needed), covered)
    for event in events:
        verdicts = [stateless(interest) and passes(interest, event) for interest in interests]
        assert any(verdicts) == any(verdicts[at] for at in needed)
        assert all(verdicts[by] for at, by in covered.items() if verdicts[at])


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_one_at_a_time(data: st.DataObject) -> None:
    cover = Cover()
    interests: dict[int, Interest | None] = {}
    installed: set[int] = set()
    for _ in range(data.draw(st.integers(1, 14))):
        if interests and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(interests)))
            cover.remove(key)
            del interests[key]
        else:
            interest = data.draw(INTERESTS)
            key = cover.add(interest)
            assert key not in interests
            interests[key] = interest
        if data.draw(st.booleans()):
            install, withdraw = cover.changes()
            assert not install & installed and withdraw <= installed
            installed = (installed | install) - withdraw
            assert installed == cover.needed
        check(interests, set(cover.needed), cover.covered)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_filters_at_all(data: st.DataObject) -> None:
    record = data.draw(s.records(1, max_fields=3))
    cases = data.draw(
        st.lists(programs.filters(record, loops=False, state=False, params=False), min_size=2, max_size=4)
    )
    interests = [Interest.from_program(case.program) for case in cases]
    needed, covered = minimal(interests)
    assert sorted([*needed, *covered]) == list(range(len(interests)))
    for event in data.draw(st.lists(s.raw_events(record), min_size=1, max_size=6)):
        meta = data.draw(programs.meta())
        verdicts = [interp.run(interest.program, event, meta=meta).passed for interest in interests]
        assert any(verdicts) == any(verdicts[at] for at in needed)
