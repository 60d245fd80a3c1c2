"""What is refused, and where it is said to be: all problems at once."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ParameterError, PatternError
from headwater.patterns import model
from headwater.patterns.notation.python import atom, seq
from headwater.patterns.pattern import Pattern
from headwater.types import Event

CHANNELS = {
    "x": "v: i64?, f: f64, s: text, at: timestamp, u: u64, small: u8",
    "y": "v: i64?, w: text",
    "hall.north.door": "who: text, action: text",
    "hall.south.door": "who: text, action: text",
    "hall.lamp": "on: bool",
}


def problems(text: str, **more: Any) -> list[str]:
    """What is told, with the text that it points at."""
    with pytest.raises(PatternError) as caught:
        Pattern(text, CHANNELS, **more)
    lines = text.split("\n")
    return [
        f"{p.message} | {lines[p.line - 1][p.column - 1 : p.column - 1 + p.width] if lines[0] else ''}"
        for p in caught.value.problems
    ]


def only(text: str, **more: Any) -> str:
    found = problems(text, **more)
    assert len(found) == 1, found
    return found[0]


# ── channels, templates, names ──


def test_an_unknown_channel_is_told_with_what_may_have_been_meant() -> None:
    with pytest.raises(PatternError) as caught:
        Pattern("a: hall.nort.door; b: yy within 1 s", CHANNELS)
    assert [p.message for p in caught.value.problems] == ["no channel 'hall.nort.door'", "no channel 'yy'"]
    assert [p.hint for p in caught.value.problems] == ["did you mean 'hall.north.door'?", "did you mean 'y'?"]


def test_an_unknown_channel_hides_nothing_else() -> None:
    assert problems("a: nix{foo > 1}; b: x{nothing = a.foo and v > 'q'}; c: y{z = 1} within 1 s") == [
        "no channel 'nix' | a: nix{foo > 1}",
        "Event has no field 'nothing', and no element or variable is called so | nothing",
        "> compares values of one kind | v > 'q'",
        "Event has no field 'z', and no element or variable is called so | z",
    ]


def test_what_is_compared_with_an_element_of_an_unknown_channel_is_no_further_problem() -> None:
    assert problems("a: nix; b: y{w = a.w} within 1 s") == ["no channel 'nix' | a: nix"]
    with pytest.raises(PatternError) as caught:
        Pattern("a: nix; b: y{z > 1 and w = a.w} within 1 s", CHANNELS)
    assert "quotes" not in str(caught.value)  # what is said of z is not about a.w


def test_a_measure_that_is_there_twice_hides_nothing_else() -> None:
    assert problems("a: y measures a.q as w, b.v as k, a.v as w") == [
        "Event has no field 'q' | a.q",
        "no element 'b' | b",
        "the measure 'w' is there twice | a.v as w",
    ]


def test_what_would_steer_a_terminal_is_told_by_its_number() -> None:
    with pytest.raises(PatternError) as caught:
        Pattern("a: y\u202e", CHANNELS)
    assert "\\u202e" in str(caught.value) and "\u202e" not in str(caught.value)


def test_a_pattern_of_names_stands_for_channels_of_one_type() -> None:
    pattern = Pattern("a: hall.*.door(who = P); b: hall.**.door(who = P) within 1 s", CHANNELS).model
    assert [element.channels for element in pattern.elements] == [("hall.north.door", "hall.south.door")] * 2
    assert only("a: hall.** within 1 s") == "the channels have different types | a: hall.**"
    assert only("a: wall.* within 1 s") == "no channel is called so | a: wall.*"


def test_templates() -> None:
    assert only("y(V)") == "arguments of y | y(V)"
    assert only("y(V, W, Z)") == "arguments of y | y(V, W, Z)"
    assert only("y()") == "arguments of y | y()"
    assert only("y(q = 1)") == "Event has no field 'q' | q = 1"
    assert only("y(1, v = 2)") == "the field 'v' is given twice | v = 2"
    assert only("y('a', *)").startswith("== compares values of one kind")
    assert only("y(99999999999999999999, *)") == "this integer does not fit 64 bits | 99999999999999999999"
    assert only("y(:p, *)") == "no parameter 'p' | :p"


def test_variables_have_one_type() -> None:
    assert only("x(v = A); y(w = A) within 1 s") == "the variable 'A' has two types | A"
    assert only("x(v = A); x(u = A) within 1 s") == "the variable 'A' has two types | A"
    assert only("a: x(v = A){B > 1}; x(v = A, s = B) within 1 s") == "the variable 'B' has no value here | B"


def test_a_variable_twice_in_one_event_is_equality() -> None:
    pattern = Pattern("x(v = A, small = A)", {"x": "v: i64?, small: u8"}).model
    condition = pattern.elements[0].condition
    assert condition is not None and condition.test({"v": 3, "small": 3}) and not condition.test({"v": 2, "small": 3})
    assert not condition.test({"v": None, "small": 3})


def test_names() -> None:
    assert only("a: x; a: y within 1 s") == "the name 'a' is there twice | a: y"
    assert only("a: x{v > 1}; a: x{v > 2} within 1 s") == "the name 'a' is there twice | a: x{v > 2}"
    assert only("meta: x") == "an element cannot be called so | meta: x"
    assert only("v: x; b: x{v > 1} within 1 s") == "'v' is a field and an element | v"
    assert Pattern("v: x; b: x{input.v > 1} within 1 s", CHANNELS).model.conditions == ()
    assert Pattern("x; x; x within 1 s", CHANNELS).model.by_name.keys() == {"x", "x_2", "x_3"}
    assert Pattern("x_2: x; x; x within 1 s", CHANNELS).model.by_name.keys() == {"x_2", "x", "x_3"}


# ── conditions ──


def test_what_may_be_named() -> None:
    assert only("a: x{v > b.v}; b: x within 1 s") == "'b' is not taken yet where 'a' is | b"
    assert only("a: x; without n: y; b: x{v > n.v} within 1 s").startswith("'n' stands for what does not come")
    assert only("(a: x? & b: y{v > a.v}) within 1 s") == "'a' may come later than 'b', or never | a"
    assert only("(a: x | b: y{v > a.v}) ; c: x within 1 s") == "'a' is not taken yet where 'b' is | a"
    assert only("a: x{q.v > 1} within 1 s").startswith("Event has no field 'q'")


def test_a_condition_of_an_earlier_round_may_be_named() -> None:
    pattern = Pattern("(a: x{b is null or v > b.v} -> b: x){1,3} within 1 s", CHANNELS).model
    assert [condition.elements for condition in pattern.conditions] == [(0,)]


def test_aggregates_are_of_elements_and_prev_is_of_repetitions() -> None:
    Pattern("a: x? -> b: x{sum(a.v) > 1 or count(a) = 0} within 1 s", CHANNELS)
    assert only("a: x; b: x{a.prev.v > 1} within 1 s") == "prev of 'a' | a.prev"
    assert only("a: x+ ; b: x{sum(a.s) > 1} within 1 s") == "sum() | sum(a.s)"
    assert only("a: x+ ; b: x{sum(a) > 1} within 1 s") == "sum() of whole events | sum(a)"
    assert only("a: x+ ; b: x{sum(a.v * a.v) > 1} within 1 s") == "sum() of an expression | sum(a.v * a.v)"
    assert only("a: x+ ; b: x{count(v + 1) > 1} within 1 s") == "count() takes an element | count(v + 1)"
    assert only("a: x+ ; b: x{median(a.v) > 1} within 1 s") == "no function 'median' | median"


def test_aggregates_under_any_cannot_be_bounded_but_measured() -> None:
    for text in ("a: x+ any ; b: x{sum(a.v) > 1} within 1 s", "a: x ; b: y ; a: x; c: x{count(a) > 1} within 1 s"):
        assert "cannot be bounded" in only(text)
    Pattern("a: x+ any ; b: x within 1 s measures sum(a.v) as total", CHANNELS)
    Pattern("a: x{v > a.prev.v}+ any ; b: x{v > first(a.v)} within 1 s", CHANNELS)


def test_conditions_are_taken_apart() -> None:
    pattern = Pattern(
        "a: x; b: x{v > 1 and (v > a.v or s = 'q') and f > 0.5 and meta.time > a.at} within 1 s", CHANNELS
    )
    alone = pattern.model.elements[1].condition
    assert alone is not None and str(alone).count("and") == 1
    assert [c.interest.type.record.by_name.keys() for c in pattern.model.conditions] == [{"a", "b"}, {"a", "b.meta"}]
    assert [c.elements for c in pattern.model.conditions] == [(1,), (1,)]
    members = pattern.model.conditions[0].interest.type.record.by_name
    assert {f.name for f in members["b"].type.fields} == {"v", "s"}  # only what is read
    assert {f.name for f in members["a"].type.fields} == {"v"}


def test_problems_of_conditions_point_into_the_whole_text() -> None:
    assert problems("a: x{v > 'q'}\n; b: x{lev = 1 and f >> 2 > 1}\n within 1 s") == [
        "> compares values of one kind | v > 'q'",
        "Event has no field 'lev', and no element or variable is called so | lev",
        ">> takes integers | f >> 2",
    ]


def test_python_functions_are_conditions() -> None:
    from headwater.patterns.notation.python import atom, seq

    both = seq(atom("x", name="a"), atom("x", name="b", where=lambda e: e.v > e.a.v and e.f > 0.5)).within(seconds=1)
    pattern = Pattern(both, CHANNELS).model
    assert pattern.elements[1].condition is not None and len(pattern.conditions) == 1


# ── what cannot be, and what has no bound ──


def test_arguments_of_python_functions_are_elements() -> None:
    condition = atom("x", name="b", where=lambda e, c: e.v > c.v)
    with pytest.raises(PatternError) as caught:
        Pattern(seq(atom("x", name="a"), condition).within("1 s"), CHANNELS)
    assert [(p.message, str(p.hint).partition(";")[0]) for p in caught.value.problems] == [
        ("no element 'c'", "there are: a, b")
    ]


def test_what_can_never_match() -> None:
    assert only("x{v > 3 and v < 2}").startswith("no event can be 'x': the pattern can never match")
    assert only("a: x; b: x{small > 300} within 1 s").startswith("no event can be 'b'")
    assert only("a: x; b: x{a.small > 300} within 1 s").startswith("no event can be 'b'")
    assert only("(a: x{v > 3 and v < 2} | b: x{small > 300}); c: y within 1 s").startswith(
        "this pattern can never match"
    )
    assert only("x{3,2} within 1 s") == "this repetition is empty: it can never match | x{3,2}"
    assert only("x{0} within 1 s") == "this repetition is empty: it can never match | x{0}"
    assert only("a: x; b: x; c: x within 2 events").startswith("no match has so few events as the window: 2")
    assert only("x? within 1 s").startswith("this may be an occurrence of no event at all")


CANNOT = "this contradicts what is asked of the events before: the pattern can never match"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: x{f > a.f}", "no event can be 'a': the pattern can never match | a: x{f > a.f}"),
        ("a: x{f > 1/0}", "no event can be 'a': the pattern can never match | a: x{f > 1/0}"),
        ("a: x; b: x{f > a.f / 0} within 1 s", "no event can be 'b': the pattern can never match | f > a.f / 0"),
        (
            "a: x; b: x{f > a.f and f < a.f} within 1 s",
            "no event can be 'b': the pattern can never match | f < a.f",
        ),
        (
            "a: x; b: x{v > a.v + 1 and v < a.v}+ within 1 s",
            "no event can be 'b': the pattern can never match | v < a.v",
        ),
        ("a: x(v = 1); b: x{v > 3 and v < a.v} within 1 s", f"{CANNOT} | v < a.v"),
        ("a: x; b: x{f > a.f}; c: x{f > b.f and f < a.f} within 1 s", f"{CANNOT} | f < a.f"),
        ("a: x{v > 3}; b: y(v = 3); c: x{v = b.v and v = a.v} within 1 s", f"{CANNOT} | v = a.v"),
        ("a: x(v = P){v > 3}; b: y(v = P){v < 2} within 1 s", f"{CANNOT} | b: y(v = P){{v < 2}}"),
        ("a: x{meta.time > b.meta.time} & b: x within 1 s", None),
        ("a: x; b: x{meta.time < a.meta.time and meta.time > a.meta.time} within 1 s", "no event can be 'b'"),
    ],
)
def test_conditions_that_contradict_each_other(text: str, told: str | None) -> None:
    if told is None:
        Pattern(text, CHANNELS)
    else:
        assert only(text).startswith(told)


def test_conditions_that_do_not() -> None:
    for text in (
        "a: x; b: x{f > a.f}; c: x{f < b.f and f < a.f} within 1 s",
        "a: x; b: x{f > b.prev.f}+; c: x{f < first(b.f) and f < b.f} within 1 s",
        "a: x; b: x{v > a.v}?; c: x{v < a.v} within 1 s",
        "a: x; (b: x{v > a.v} | c: x{v < a.v}); d: x within 1 s",
        "b: x{f != b.f}",  # NaN
    ):
        Pattern(text, CHANNELS)


def test_warnings_have_their_places() -> None:
    def warned(text: str) -> list[str]:
        found = Pattern(text, CHANNELS).warnings
        return [f"{p.message.partition(':')[0]} | {text[p.column - 1 : p.column - 1 + p.width]}" for p in found]

    assert warned("a: x -> b: y within 1 s patience 3 s") == []  # live, any match may have to wait for a source
    assert warned("a: x -> b: y lateness 2 s within 1 s") == ["lateness has no meaning without time | lateness 2 s"]
    assert warned("a: x -> b: x within 1 s time at lateness 2 s") == []
    assert warned("a: x -> b: y within 0 s") == ["within no time at all | within 0 s"]
    assert warned("a: x; without n: y{v > 3 and v < 2}; b: x within 1 s") == [
        "no event can be 'n' | n: y{v > 3 and v < 2}"
    ]


def test_what_is_dead_but_does_no_harm_is_warned_of() -> None:
    pattern = Pattern("(a: x{small > 300} | b: y) within 1 s", CHANNELS)
    assert [p.message for p in pattern.warnings] == ["no event can be 'a'"]
    assert Pattern("a: x; without n: y{v > 3 and v < 2}; b: x within 1 s", CHANNELS).warnings
    assert not Pattern("a: x -> b: y within 1 s patience 3 s", CHANNELS).warnings  # it may wait for a source, live
    assert not Pattern("a: x -> b: y within 1 s", CHANNELS).warnings


def test_without_where_it_has_no_meaning() -> None:
    assert only("without n: y; a: x within 1 s") == "without has no meaning before the first element | without n: y"
    assert only("a: x , without n: y , b: x within 1 s").startswith("without has no meaning in a step")
    assert only("a: x without n: y within 1 s").startswith("without has no meaning here")
    assert only("(a: x; without n: y){2} within 1 s").startswith("without has no meaning at the end of a part")
    assert only("(a: x; without n: y; b: x) & c: y within 1 s").startswith("without inside an and")
    assert only("a: x; without (b: x; c: y); d: x within 1 s").startswith("without is of one event")
    assert only("a: x | without n: y within 1 s") == "without has no meaning before the first element | without n: y"


def test_without_in_parentheses_goes_with_its_neighbours() -> None:
    one = Pattern("(a: x; without n: y); b: x within 1 s", CHANNELS)
    assert one.fingerprint == Pattern("a: x; without n: y; b: x within 1 s", CHANNELS).fingerprint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: x; b: x; c: x", "each event that fits here begins another run"),
        ("a: x -> b: x+ -> c: x", "a repetition without end keeps all its events"),
        ("whenever a: x -> b: x", "each beginning would be kept for ever"),
        ("a: x{3} any", "each event that fits here begins another run"),
        ("(a: x &; b: y) -> c: x", "each event that fits here begins another run"),
    ],
)
def test_without_a_window_one_run_must_be_enough(text: str, why: str) -> None:
    with pytest.raises(PatternError, match="one run per partition is not enough") as caught:
        Pattern(text, CHANNELS)
    assert why in str(caught.value)


def test_what_has_no_bound_is_told_with_all_else() -> None:
    assert [each.partition(" | ")[0] for each in problems("a: x{vv > 1}; b: x; c: x")] == [
        "Event has no field 'vv', and no element or variable is called so",
        "this pattern needs a window",
    ]


def test_without_a_window_what_is_allowed() -> None:
    for text in ("a: x -> b: x -> c: x", "a: x; b: x", "a: x{3}", "a: x & b: y", "whenever a: x, b: x", "a: x | b: y"):
        Pattern(text, CHANNELS)
    assert only("a: x; without n: y").startswith("without n at the end never comes true")


def test_what_is_no_length_and_no_limits() -> None:
    assert only("a: x; b: x within :s", params={"s": -2}).startswith("a window is not below zero")
    with pytest.raises(TypeError, match="limits: expected Limits"):
        Pattern("a: x", CHANNELS, limits=5)  # type: ignore[arg-type]
    asked = Pattern("a: x; b: x within :s", CHANNELS, params={"s": 2})
    with pytest.raises(ParameterError, match="found 'two'"):
        Pattern.loads(asked.dumps(), {"s": "two"})


def test_options() -> None:
    assert only("a: x; b: x within 1 s after match first q") == "no element 'q' to go on from | after match first q"
    assert only("a: x; without n: y within 1 s after match last n").startswith("no element 'n' to go on from")
    assert only("a: x; b: x within :t") == "no parameter 't' | within :t"
    assert only("a: x; b: x within :t", params={"t": "soon"}) == "the parameter 't' is no time | within :t"
    assert only("a: x; b: x within 0 events").startswith("no window has so many events")
    assert only("a: x; b: x within 4000000 days").startswith("no window is so long")
    assert only("a: x; b: x within 1 s time s").startswith("this is no time")
    assert only("a: x; b: x within 1 s measures v as v").startswith("no element 'v'")
    assert only("a: x; b: x within 1 s measures a.v as n, b.v as n").startswith("the measure 'n' is there twice")
    assert only("a: x; b: y within 1 s partition by s").startswith("Event has no field 's'")
    assert only("a: x; b: y within 1 s partition by zz") == "Event has no field 'zz' | zz"
    assert only("a: x; b: y within 1 s among zz > 1") == "Event has no field 'zz' | zz"
    assert only("a: x; b: x within 1 s partition by v, v +").startswith("this is not complete")


def test_parts_of_a_key_have_one_type() -> None:
    channels = {"x": "k: i64", "y": "k: text"}
    with pytest.raises(PatternError, match="different types"):
        Pattern("a: x; b: y within 1 s partition by k", channels)


def test_sizes_are_limited() -> None:
    assert only("x{1001} within 1 s").startswith("too many rounds")
    assert only("((x{100}){100}) within 1 s").startswith("this pattern is too large")
    many = "; ".join(f"e{at}: x" for at in range(65)) + " within 1 s"
    assert only(many).startswith("too many elements")
    with pytest.raises(PatternError, match="too long in this pattern"):
        Pattern("x{s like '%a%'}", CHANNELS, limits=model.Limits(worst=10))


def test_parameters_are_of_the_whole_pattern() -> None:
    pattern = Pattern("a: x{f > :limit}; b: x{f > a.f + :limit} within :t", CHANNELS, params={"limit": 1, "t": 2}).model
    assert [
        interest.params for interest in (pattern.elements[0].condition, pattern.conditions[0].interest) if interest
    ] == [{"limit": 1.0}] * 2
    assert pattern.window == model.Window(2_000_000, None, "t")
    with pytest.raises(ParameterError, match="no parameter 'limt'"):
        Pattern("x{v > 1}", CHANNELS, params={"limt": 1})
    assert only("x{v > :limt}", params={}) == "no parameter 'limt' | :limt"


def test_event_classes_are_types_too() -> None:
    class Level(Event):
        level: float

    pattern = Pattern("a: l -> b: l{level > a.level} within 1 s", {"l": Level}).model
    assert pattern.output.record.by_name.keys() == {"a", "b", "match"}


def test_the_result_of_a_pattern() -> None:
    output = Pattern("a: x; b: y? ; c: y+ within 1 s", CHANNELS).output
    assert str(output.record.by_name["c"].type) == "Event[]" and output.record.by_name["b"].optional
    assert not output.record.by_name["a"].optional
    measured = Pattern(
        "a: x; b: y within 1 s measures a.s as s, a.v + b.v as n, a as a", CHANNELS, result="Pair"
    ).output
    assert measured.name == "Pair" and [str(f.type) for f in measured.record.fields] == [
        "text",
        "i64",
        "a",
        "MatchInfo",
    ]


def test_what_is_known_of_a_match_has_its_name_to_itself() -> None:
    for text in ("a: x; match: y within 1 s", "a: x; b: y within 1 s measures a.v as match"):
        with pytest.raises(PatternError, match="a field 'match' of its own") as error:
            Pattern(text, CHANNELS)
        assert error.value.problems[0].column > 1
