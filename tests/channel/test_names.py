"""Names of channels, and patterns of names."""

from __future__ import annotations

import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.names import Pattern, check_name, is_pattern
from headwater.errors import ChannelError
from tests.effort import examples

SEGMENTS = st.sampled_from(("a", "b", "c", "größe", "x-1", "_", "日本"))
NAMES = st.lists(SEGMENTS, min_size=1, max_size=7).map(".".join)
PATTERNS = st.lists(st.one_of(SEGMENTS, st.sampled_from(("*", "**"))), min_size=1, max_size=7).map(".".join)


def naive(pattern: list[str], name: list[str]) -> bool:
    """The definition, word for word."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(naive(pattern[1:], name[taken:]) for taken in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and naive(pattern[1:], name[1:])


# ── names ──


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "ie.tcd.cs.sighting",
        "A.b_c.d-e.9",
        "größe.日本",
        "-",
        ".".join("a" * 32),
        "x" * 64,
        ".".join(["x" * 50] * 5),
    ],
)
def test_legal_names(name: str) -> None:
    assert check_name(name) is name
    assert not is_pattern(name)
    pattern = Pattern(name)
    assert pattern.literal == name and pattern.matches(name) and not pattern.matches(f"{name}.z")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "found nothing"),
        (7, "found int"),
        (None, "found NoneType"),
        (".a", "segment 1 empty; hint: it starts with a dot"),
        ("a.", "segment 2 empty; hint: it ends with a dot"),
        ("a..b", "segment 2 empty; hint: there are two dots"),
        ("ie.tcd.**", "the wildcard '**'; hint: did you mean a pattern? node.subscribe takes patterns"),
        ("ie.*.x", "the wildcard '*'"),
        ("ie.t*d", "node.subscribe takes patterns"),
        ("ie/tcd", "character '/' in segment 'ie/tcd'; hint: segments are joined by dots"),
        ("ie.tcd cs", "character ' ' in segment 'tcd cs'; hint: use _ or -"),
        ("ie.tcd.>", "wildcards of a pattern are * "),
        ("ie.➔", "'➔' (heavy wide-headed rightwards arrow)"),
        ("ie.\n", r"character '\n'"),
        ("ie.\ud800", r"character '\ud800'"),
        ("ie.x²", "character '²' (superscript two)"),
        ("ie.e\u0301", "expected the composed form 'é'"),
        ("a" * 65, "at most 64 characters in a segment, found 65 in segment 1"),
        (".".join("a" * 33), "at most 32 segments, found 33"),
        (".".join(["x" * 50] * 6), "at most 255 bytes of UTF-8, found 305"),
        ("日" * 60 + "." + "本" * 30, "at most 255 bytes of UTF-8, found 271"),
    ],
)
def test_illegal_names(name: str, says: str) -> None:
    with pytest.raises(ChannelError) as raised:
        check_name(name)
    assert says in str(raised.value)
    assert str(raised.value).startswith("channel name")


@given(st.text(max_size=12))
@settings(deadline=None, max_examples=examples(200))
def test_any_text_is_a_name_or_a_clear_error(text: str) -> None:
    try:
        assert Pattern(check_name(text)).matches(text)
    except ChannelError as error:
        assert "expected" in str(error) and "found" in str(error)


# ── patterns ──


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("ie.tcd.*", ["ie.tcd.x"], ["ie.tcd", "ie.tcd.x.y", "ie.tcdx"]),
        ("ie.tcd.**", ["ie.tcd", "ie.tcd.x", "ie.tcd.x.y"], ["ie", "ie.tcdx", "ie.tc"]),
        ("**", ["a", "a.b.c"], []),
        ("*", ["a"], ["a.b"]),
        ("**.x", ["x", "a.x", "a.b.x"], ["a.x.b", "ax"]),
        ("a.**.x", ["a.x", "a.b.x", "a.x.x"], ["a", "x", "a.x.b"]),
        ("*.**", ["a", "a.b"], []),
        ("**.a.**.a.**", ["a.a", "b.a.c.a.d"], ["a", "a.b"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    made = Pattern(pattern)
    assert made.literal is None and is_pattern(pattern) and str(made) == pattern
    assert repr(made) == f"Pattern({pattern!r})"
    assert [name for name in yes + no if made.matches(name)] == yes


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("ie.t*", "expected * or ** as a whole segment, found 't*'"),
        ("ie.***", "as a whole segment"),
        ("ie..*", "segment 2 empty"),
        ("ie.#", "character '#'"),
        ("", "found nothing"),
        (3, "found int"),
        (".".join("*" * 33), "at most 32 segments"),
    ],
)
def test_illegal_patterns(pattern: str, says: str) -> None:
    with pytest.raises(ChannelError) as raised:
        Pattern(pattern)
    assert says in str(raised.value)
    assert str(raised.value).startswith("pattern")


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=8))
@settings(deadline=None, max_examples=examples(400))
def test_matching_is_what_the_definition_says(pattern: str, names: list[str]) -> None:
    made = Pattern(pattern)
    for name in names:
        assert made.matches(name) == naive(pattern.split("."), name.split("."))


@given(PATTERNS, PATTERNS, st.lists(NAMES, min_size=1, max_size=8))
@settings(deadline=None, max_examples=examples(300))
def test_equal_patterns_match_the_same_names(one: str, other: str, names: list[str]) -> None:
    a, b = Pattern(one), Pattern(other)
    assert a == Pattern(one) and hash(a) == hash(Pattern(one))
    if a == b:
        assert hash(a) == hash(b)
        assert all(a.matches(name) == b.matches(name) for name in names)


def test_equality_is_by_meaning() -> None:
    assert Pattern("a.*.**") == Pattern("a.**.*") == Pattern("a.**.*.**")
    assert len({Pattern("**"), Pattern("**.**"), Pattern("a"), Pattern("a")}) == 2
    assert Pattern("a.**") != Pattern("a.*") and Pattern("a") != "a"


def test_which_patterns_meet_and_cover_each_other() -> None:
    """Against all names that can tell: every pattern of up to 3 segments with every other."""
    names = [".".join(each) for length in range(1, 7) for each in product("abc", repeat=length)]
    texts = [".".join(each) for length in range(1, 4) for each in product(("a", "b", "*", "**"), repeat=length)]
    patterns = [Pattern(text) for text in texts]
    matched = {each: frozenset(name for name in names if each.matches(name)) for each in patterns}
    for one in patterns:
        for other in patterns:
            assert one.meets(other) is not matched[one].isdisjoint(matched[other]), (one, other)
            if one.covers(other):
                assert matched[other] <= matched[one], (one, other)
    for one, other in (("**", "a.*.**"), ("a.**", "a.b.*"), ("a.*", "a.b"), ("**.b", "a.**.b"), ("*.**", "**.*")):
        assert Pattern(one).covers(Pattern(other))


def test_no_pattern_takes_exponential_time() -> None:
    pattern = Pattern(".".join(["**", "a"] * 15 + ["**", "b"]))
    name = ".".join("a" * 32)
    start = time.perf_counter()
    assert not pattern.matches(name)
    assert time.perf_counter() - start < 60.0  # a backtracking matcher would take years


# ── suggestions ──
