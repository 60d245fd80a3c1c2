"""Who may do what on which channel."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.names import Pattern
from headwater.errors import ConfigError
from headwater.federation.security.policy import ACTIONS, Allow, Deny
from headwater.federation.security.rules import RIGHTS, Principal, Rule, Rules
from tests.effort import examples

PRINT = "1f2e3d4c" * 4 + "0" * 32
DUBLIN = Principal("dublin", "certificate", PRINT, ("staff",))
ANN = Principal("ann", "password", "ab" * 32, ("ops",))
BARE = Principal(f"key:{PRINT[:32]}", "key", PRINT)


def problems(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Rule(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("who", "fits"),
    [
        ("*", (True, True, True)),
        ("dublin", (True, False, False)),
        ("dub*", (True, False, False)),
        ("*n", (True, True, False)),
        ("certificate:dublin", (True, False, False)),
        ("certificate:*", (True, False, False)),
        ("user:dublin", (False, False, False)),
        ("ann", (False, True, False)),
        ("user:a*", (False, True, False)),
        ("certificate:ann", (False, False, False)),
        ("group:staff", (True, False, False)),
        ("group:*", (True, True, False)),
        ("*staff", (False, False, False)),
        ("*:staff", None),
        ("staff", (False, False, False)),
        (f"key:{PRINT[:32]}", (True, False, True)),
        (f"key:{PRINT}", (True, False, True)),
        (f"key:{PRINT[:32]}1", (False, False, False)),
        ("1f2e3d4c", (False, False, False)),
        ("**", (True, True, False)),
        (["ann", "dublin"], (True, True, False)),
        ("Dublin", (False, False, False)),
        ("dublin.example", (False, False, False)),
    ],
)
def test_who_a_rule_is_about(who: Any, fits: tuple[bool, bool, bool] | None) -> None:
    if fits is None:
        assert "did you mean" in problems("**", who) or "expected one of" in problems("**", who)
        return
    rule = Rule("**", who)
    assert tuple(rule.fits(principal, "a.b") for principal in (DUBLIN, ANN, BARE)) == fits


TABLE = Rules(
    [
        Rule("ie.tcd.secret.**", "group:staff", may=("subscribe",)),
        Rule("ie.tcd.secret.**", "*", may=()),
        Rule("ie.**", ["dublin"], may=("advertise", "subscribe")),
        Rule("ie.*", "user:ann"),
        Rule("ie.**", "*", may="subscribe"),  # type: ignore[arg-type]
    ]
)


@pytest.mark.parametrize(
    ("principal", "channel", "allowed", "rule"),
    [
        (DUBLIN, "ie.tcd.secret.plan", "subscribe", 1),
        (ANN, "ie.tcd.secret.plan", "", 2),
        (BARE, "ie.tcd.secret", "", 2),
        (DUBLIN, "ie.tcd.open", "advertise subscribe", 3),
        (ANN, "ie.tcd", "advertise subscribe install transact publish inspect", 4),
        (ANN, "ie.tcd.open", "subscribe", 5),
        (BARE, "ie", "subscribe", 5),
        (DUBLIN, "uk.cam", "", None),
    ],
)
def test_the_first_rule_that_fits_decides(principal: Principal, channel: str, allowed: str, rule: int | None) -> None:
    for action in ACTIONS:
        found = TABLE.decide(principal, action, channel)
        assert isinstance(found, Allow) is bool(found) is (action in allowed.split()), found
        assert channel in found.why and action in found.why and principal.name in found.why
        if rule is None:
            assert "none of the 5 rules is about it" in found.why and "hint" in found.why
        else:
            assert f"rule {rule} ({TABLE.rules[rule - 1]}) decides" in found.why


def test_the_hint_of_a_refusal_is_a_rule_that_allows_it() -> None:
    for principal in (DUBLIN, ANN, BARE):
        for action in ACTIONS:
            refused = Rules().decide(principal, action, "a.b")
            assert not refused and "there are no rules" in refused.why
            rule = eval(refused.why.partition("add ")[2], {"Rule": Rule})
            assert Rules([rule]).decide(principal, action, "a.b")
            assert [other for other in ACTIONS if Rules([rule]).decide(principal, other, "a.b")] == [action]


def test_the_default_may_be_to_allow() -> None:
    assert Rules(default=True, why="all is well").decide(BARE, "install", "a").why.endswith(": all is well")
    assert not Rules([Rule("a", "*", may=())], default=True).decide(BARE, "install", "a")


def test_an_unknown_action_is_refused_even_where_all_is_allowed() -> None:
    found = Rules([Rule("**", "*")], default=True).decide(DUBLIN, "delete", "a")  # type: ignore[arg-type]
    assert found == Deny(found.why) and "no such action" in found.why


def test_whether_something_may_be_hidden_and_whether_some_of_a_pattern_is_allowed() -> None:
    """What is said of patterns, beside what is so of each name."""
    tables = [
        Rules(),
        Rules(default=True),
        TABLE,
        Rules([Rule("**", "*", may=("subscribe",))]),
        Rules([Rule("a.secret.**", "*", may=()), Rule("**", "*")]),
        Rules([Rule("**", "ann"), Rule("a.**", "*", may=())], default=True),
        Rules([Rule("a.*", "group:staff", may=("advertise",)), Rule("a.**", "*", may=("subscribe",))]),
        Rules([Rule("*.**", "*", may=("subscribe",))]),
    ]
    segments = ("a", "ie", "tcd", "secret")
    names = [".".join(each) for length in (1, 2, 3) for each in product(segments, repeat=length)]
    patterns = [Pattern(text) for text in ("**", "a.**", "a.*", "a.secret.**", "ie.tcd.secret.*", "**.secret", "x.*")]
    for rules in tables:
        for principal in (DUBLIN, ANN, BARE):
            sees = rules.seen_by(principal)
            assert rules.hides_from(principal) or all(map(sees, names))
            assert not all(map(sees, names)) or not rules.hides_from(principal)
            for pattern, action in product(patterns, ACTIONS):
                found = rules.decide_some(principal, action, pattern)
                allowed = any(rules.decide(principal, action, name) for name in names if pattern.matches(name))
                assert found or not allowed, (rules, pattern)
                assert str(pattern) in found.why
    assert not TABLE.decide_some(ANN, "subscribe", Pattern("ie.tcd.secret.*"))
    assert "rule 2" in TABLE.decide_some(ANN, "subscribe", Pattern("ie.tcd.secret.*")).why
    assert not TABLE.decide_some(DUBLIN, "subscribe", Pattern("uk.**"))
    hint = TABLE.decide_some(DUBLIN, "subscribe", Pattern("uk.**")).why.partition("add ")[2]
    assert Rules([eval(hint, {"Rule": Rule})]).decide_some(DUBLIN, "subscribe", Pattern("uk.**"))


def test_wrong_rules() -> None:
    assert "pattern of channel names" in problems("a..b", "x")
    assert "pattern of channel names" in problems(5, "x")
    assert 'did you mean "subscribe"?' in problems("a", "x", may=("subscrib",))
    assert "some of" in problems("a", "x", may=(5,)) and "a list of" in problems("a", "x", may=7)
    for who in ("", [], None, 5, [""], [5], " x", "x" * 256):
        assert "Rule: who: expected" in problems("a", who)
    assert "did you mean" in problems("a", "usr:ann") and "expected one of" in problems("a", "user:")
    for key in ("key:1f2e", "key:XYZ", "key:*", "key:" + "0" * 65):
        assert "32 to 64 digits" in problems("a", key)
    everything = problems("a..b", "", may=("x",))
    assert everything.count("\n") == 3


def test_rules_are_values() -> None:
    assert Rule("a.**", "x") == Rule("a.**", ["x"], list(RIGHTS)) != Rule("a.**", "y")
    assert len({Rule("a", "x"), Rule("a", ("x",))}) == 1
    assert str(Rule("a.**", ["x", "user:y"], may=())) == "a.**: x, user:y may nothing"
    assert len(TABLE) == 5 and next(iter(TABLE)).channel == "ie.tcd.secret.**"


names = st.text("abc.-", min_size=1, max_size=6)
patterns = st.text("bc.-*", min_size=1, max_size=6)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(st.tuples(names.map(lambda n: n.replace("a", "*")), st.sets(st.sampled_from(ACTIONS))), max_size=6), names
)
def test_agrees_with_the_obvious(rows: list[tuple[str, set[Any]]], name: str) -> None:
    """A star is any text: the meaning, written the slow way."""

    def like(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(like(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return bool(text) and text[0] == pattern[0] and like(pattern[1:], text[1:])

    rules = Rules(Rule("**", who, may=tuple(may)) for who, may in rows)
    principal = Principal(name, "certificate", PRINT)
    deciding = next((may for who, may in rows if like(who, name)), set())
    for action in ACTIONS:
        assert bool(rules.decide(principal, action, "a")) is (action in deciding)
