"""Predicate text: what it means, what it refuses, and that nothing is passed over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InterestError, InterestRefused
from headwater.ir.interp import EventContext, Fault, Outcome, Status, run
from headwater.ir.nodes import Program
from headwater.ir.notes import MAX_TEXT
from headwater.ir.params import bind, declare
from headwater.lang import predicate, pyfunc
from headwater.types.model import (
    BOOL,
    BYTES,
    F32,
    F64,
    I32,
    I64,
    TEXT,
    TIMESTAMP,
    U64,
    Array,
    Enum,
    Field,
    List,
    Record,
)
from tests.effort import EFFORT, examples

KIND = Enum("Kind", (("USER", 1), ("EQUIPMENT", 5)))
POINT = Record("Point", (Field("x", F64), Field("end", F64), Field("label", TEXT, True)))
TYPE = Record(
    "Sighting",
    (
        Field("level", F64),
        Field("gain", F32),
        Field("network", TEXT),
        Field("badge", I32),
        Field("big", U64),
        Field("seen", TIMESTAMP, True),
        Field("kind", KIND),
        Field("ok", BOOL),
        Field("maybe", BOOL, True),
        Field("opt", I64, True),
        Field("raw", BYTES),
        Field("position", POINT),
        Field("values", List(F64)),
        Field("wind", Array(F64, (4, 3))),
        Field("points", List(POINT)),
        Field("with space", I64),
        Field("meta", POINT),
        Field("Größe", I64),
    ),
)
EVENT: dict[str, Any] = {
    "level": 0.7,
    "gain": 0.5,
    "network": "ORL-Net#1",
    "badge": 7,
    "big": 2**64 - 1,
    "seen": 1_767_225_600_000_000,  # 2026-01-01T00:00:00Z
    "kind": 5,
    "ok": True,
    "maybe": None,
    "opt": None,
    "raw": b"\x00\xff",
    "position": {"x": 1.5, "end": 2.5, "label": None},
    "values": (1.0, 2.0, 4.0),
    "wind": tuple(tuple(float(10 * i + j) for j in range(3)) for i in range(4)),
    "points": ({"x": 9.0, "end": 8.0, "label": "hall"},),
    "with space": 31,
    "meta": {"x": 3.0, "end": 4.0, "label": None},
    "Größe": 5,
}
PARAMS: dict[str, object] = {"limit": 0.5, "badges": {7, 9}, "owner": {7: "ann", 9: "bob"}, "in": 7}
META = EventContext("hall", "n1", 42, 1_767_225_600_000_000)


def outcome(text: str) -> Outcome:
    program = predicate.parse(text, TYPE, params=declare(PARAMS))
    return run(program, EVENT, meta=META, params=bind(program.params, PARAMS))


TRUE = r"""
level > 0.5
level>0.5 and network=='ORL-Net#1' and badge<100
ok and not false
ok AND NOT False
ok && !false || false
false || ok
!!ok
not not ok
!ok = false
!ok || ok
false and ok or ok
ok or ok and false
badge = 7
badge == 7
badge != 8
badge <> 8
badge >= 7 and badge <= 7
badge + 1 = 8
badge - 1 = 6
badge - -1 = 8
badge * 2 = 14
badge / 2 = 3.5
badge div 2 = 3
-badge div 2 = -3
badge % 4 = 3
-badge % 4 = -3
mod(badge, 4) = 3
badge > +5
-badge = -7
- - badge = 7
-(badge + 1) = -8
2 + 3 * 4 = 14
(2 + 3) * 4 = 20
10 - 3 - 2 = 5
badge & 3 = 3
badge | 8 = 15
badge ^ 1 = 6
~badge = -8
badge << 2 = 28
badge >> 1 = 3
(badge << 2) | 1 = 29
1 << 1 + 1 = 4
badge & 1 + 2 = 3
badge in (1, 7)
badge in (7)
badge in [1, 7]
badge not in (1, 2)
not badge in (1, 2)
badge in :badges
badge not in (badge + 1, 2)
network in ('x', 'ORL-Net#1')
level in (0.7, -1.5)
kind in ('USER', 'EQUIPMENT')
badge in :owner
badge between 5 and 9
badge not between 8 and 9
badge between 5 and 9 and ok
not badge between 8 and 9
level between :limit and 1
network like 'ORL%'
network like '%\_%' or ok
network not like 'x%'
network like '_RL%#1'
seen is not null
opt is null
not opt is not null
position.label is null
values is not null and position is not null
case when badge > 5 then 'big' else 'small' end = 'big'
case badge when 1 then 'a' when 7 then 'b' else 'c' end = 'b'
case when badge = 1 then 1 end is null
case when ok then null else 1 end is null
case when badge > 100 then 1 when badge > 5 then 2.5 else 3 end = 2.5
if(ok, 1, 2) = 1
IF(badge > 100, 1, null) is null
cast(level as int) = 0
cast(7.9 as bigint) = 7
cast(badge as boolean)
CAST(badge AS double) / 2 = 3.5
cast(seen as bigint) = 1767225600000000
cast(1767225600000000 as timestamp) = seen
cast('2026-01-01' as timestamp) = seen
cast(300 as uint8) is null
0x1F = 31
0xff = 255
0XFF = 255 or ok
1e-3 = 0.001
1.5E2 = 150
1. = 1
network = 'it''s' or ok
'it''s' = 'it''s'
'a--b' = 'a--b' and '/* x */' = '/* x */'
length('a"`b') = 4
ok = true
ok != FALSE
seen = timestamp '2026-01-01T00:00:00Z'
seen = TIMESTAMP '2026-01-01T01:00:00+01:00'
seen >= '2026-01-01'
seen + seconds(1) > seen
seen - days(1) < seen and seen - seen = 0
"with space" = 31
`with space` = 31
"level" > 0.5
input."with space" = 31
Größe = 5
position.x = 1.5
position.end = 2.5
position . x = 1.5
input.position.x = 1.5
input.level = level
"position".x = 1.5
values[0] = 1 and values[2] = 4
values[badge - 6] = 2
wind[3][2] = 32
wind[0][1] = 1
points[0].x = 9
points[0].label = 'hall'
input.values[0] = 1
meta.source = 'hall' and meta.node = 'n1' and meta.seq = 42 and meta.time = seen
input.meta.x = 3
"meta".x = 3
level > :limit
:in = badge
:owner[badge] = 'ann'
:owner[badge + 2] = 'bob'
:owner[8] is null
raw = x'00ff' and raw = X'00FF'
big = 18446744073709551615
big > 9223372036854775807
-9223372036854775808 < badge
abs(-badge) = 7 and ABS(-1.5) = 1.5
length(network) = 9 and char_length(network) = 9 and octet_length(network) = 9
len(network) = 9 and length(values) = 3
lower(network) = 'orl-net#1' and upper('a') = 'A'
lcase(network) = 'orl-net#1' and ucase('a') = 'A'
least(badge, 3) = 3 and greatest(badge, 3, 9) = 9 and min(badge, 3) = 3 and max(1, 2) = 2
power(2, 3) = 8 and pow(2, 3) = 8 and ceiling(0.5) = 1 and ceil(0.5) = 1 and floor(0.5) = 0
coalesce(opt, 3) = 3 and ifnull(opt, badge) = 7 and nvl(opt, 1) = 1 and coalesce(opt, opt, 2) = 2
startswith(network, 'ORL') and endswith(network, '#1') and contains(network, 'Net')
starts_with(network, 'ORL') and ends_with(network, '#1')
len(values) = 3 and array_length(values) = 3 and cardinality(values) = 3 and size(wind) = 4
sum(values) = 7 and min(values) = 1 and max(values) = 4 and mean(values) > 2 and avg(values) > 2
sqrt(4) = 2 and ln(1) = 0 and exp(0) = 1 and fmod(5.5, 2) = 1.5 and isnan(0.5) = false
distance(0, 0, 3, 4) = 5
year(seen) = 2026 and month(seen) = 1 and weekday(seen) = 3
code(kind) = 5 and kind = 'EQUIPMENT' and kind != 'USER'
(ok)
((ok)) and (((badge)) = (7))
(badge = 7) = ok
ok = (not false)
not (ok and false)
maybe is null and (maybe or ok)
not (maybe and false)
""".strip().splitlines()


@pytest.mark.parametrize("text", TRUE)
def test_means(text: str) -> None:
    assert outcome(text).status is Status.PASSED


@pytest.mark.parametrize(
    ("text", "status", "faults"),
    [
        ("maybe", Status.UNDECIDED, Fault.NONE),
        ("maybe and false", Status.REJECTED, Fault.NONE),
        ("not maybe", Status.UNDECIDED, Fault.NONE),
        ("opt > 1", Status.UNDECIDED, Fault.NONE),
        ("opt in (1, 2)", Status.UNDECIDED, Fault.NONE),
        ("opt not between 1 and 2", Status.UNDECIDED, Fault.NONE),
        ("if(maybe, ok, ok)", Status.UNDECIDED, Fault.NONE),
        ("case when maybe then ok else ok end", Status.UNDECIDED, Fault.NONE),
        ("badge / 0 = 1", Status.UNDECIDED, Fault.DIVISION),
        ("badge div 0 = 1", Status.UNDECIDED, Fault.DIVISION),
        ("values[3] = 1", Status.UNDECIDED, Fault.INDEX),
        ("values[-1] = 1", Status.UNDECIDED, Fault.INDEX),
        ("9223372036854775807 + badge > 0", Status.UNDECIDED, Fault.OVERFLOW),
        (":owner[8] = 'x'", Status.UNDECIDED, Fault.NONE),
        ("ok and badge > 100", Status.REJECTED, Fault.NONE),
        ("\n level >\n 0.5 ", Status.PASSED, Fault.NONE),
        ("level > 0.5\tand\u00a0ok\r\nand\fok", Status.PASSED, Fault.NONE),
    ],
)
def test_missing(text: str, status: Status, faults: Fault) -> None:
    found = outcome(text)
    assert (found.status, found.faults) == (status, faults)


def problems(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(InterestError) as caught:
        predicate.parse(text, TYPE, params=declare(PARAMS))
    assert "\x1b" not in str(caught.value)
    return [(problem.line, problem.column, str(problem)) for problem in caught.value.problems]


# text, column, what the message says
WRONG = [
    ("", 1, "empty"),
    ("  \n ", 1, "empty"),
    ("levl > 1", 1, "did you mean 'level'"),
    ("LEVEL > 1", 1, "did you mean 'level'"),
    ("ok and Level > 1", 8, "did you mean 'level'"),
    ("position.y > 1", 1, "Point has no field 'y'"),
    ("position > 1", 1, "record Point"),
    ("level.x > 1", 1, "no field 'x'"),
    ("input > 1", 1, "whole event"),
    ("meta = 1", 1, "input.meta"),
    ("meta.who = 'x'", 1, "no meta.who"),
    ("kind = 'USR'", 8, "did you mean 'USER'"),
    ("kind > 'USER'", 1, "code("),
    ("seen > 'soon'", 8, "not a timestamp"),
    ("timestamp 'soon' < seen", 1, "not a timestamp"),
    ("level > 'x'", 1, "without quotes"),
    ("ok = 1", 1, "condition by itself"),
    ("badge", 1, "used as a condition"),
    ("network + 'x' = 'y'", 1, "expected: a number"),
    ("badge % 1.5 = 0", 1, "fmod"),
    ("level = null", 9, "is null"),
    ("badge in (1, null)", 14, "is null"),
    ("badge in (1, 'x')", 14, "one kind"),
    ("badge in ()", 1, "empty list"),
    ("badge in level", 10, "set parameter"),
    ("badge in 5", 10, "set parameter"),
    ("badge in :limit", 1, "set or map"),
    (":badges = 1", 1, "expected: scalar"),
    (":nope = 1", 1, "no parameter 'nope'"),
    (":badges[1] = 1", 1, "expected: map"),
    ("network like level", 14, "text"),
    ("network like lower('A')", 14, "constant"),
    ("values[1.5] = 1", 8, "integer"),
    ("level[0] = 1", 1, "cannot be indexed"),
    ("foo(1) = 1", 1, "no function 'foo'"),
    ("sqr(1) = 1", 1, "did you mean 'sqrt'"),
    ("abs() = 1", 1, "arguments of abs()"),
    ("if(ok, 1) = 1", 1, "if(condition, then, otherwise)"),
    ("cast(level) = 1", 1, "cast(x as int)"),
    ("cast(level as strin) = 1", 15, "no type 'strin'"),
    ("cast(level as varchar) = 'x'", 1, "no cast to text"),
    ("case when ok then null end = 1", 1, "every result is null"),
    ("99999999999999999999 > badge", 1, "64 bits"),
    ("1e999 > level", 1, "64 bits"),
    ("1e > level", 1, "not a number"),
    ("x'f' = raw", 1, "two digits"),
    ("raw = x'fg'", 7, "hexadecimal"),
    ("0xZZ = 1", 1, "hexadecimal"),
    # what two readers could read differently
    ("1 < badge < 9", 11, "chained"),
    ("1 < badge = ok", 11, "chained"),
    ("badge = 7 is null", 11, "chained"),
    ("badge between 1 and 2 = ok", 23, "chained"),
    ("ok = not ok", 6, "parentheses"),
    ("1 + not ok = 2", 5, "parentheses"),
    ("badge | 1 & 2 = 1", 11, "parentheses"),
    ("badge << 1 | 2 = 1", 12, "parentheses"),
    # what sqlglot would accept
    ("select 1", 1, "not part of predicate text"),
    ("(select 1) = 1", 2, "not part of predicate text"),
    ("badge in (select 1)", 11, "not part of predicate text"),
    ("exists (ok)", 1, "not part of predicate text"),
    ("ok; ok", 3, "one condition only"),
    ("ok;", 3, "one condition only"),
    ("ok -- and false", 4, "no comments"),
    ("ok /* and false */", 4, "no comments"),
    ("/* x */ ok", 1, "no comments"),
    ("ok {# and false #}", 4, "no comments"),
    ("ok and\n-- x\nok", 1, "no comments"),
    ("badge --1 = 8", 7, "no comments"),
    ("ok as x", 4, "cast(x as int)"),
    ("ok x", 4, "expected: an operator"),
    ("(ok x)", 5, "expected: an operator"),
    ("'a' 'b' = 'ab'", 5, "written twice"),
    ("network = n'x'", 11, "not part of predicate text"),
    ("network ilike 'x'", 9, "lower(x) like"),
    ("network like 'x' escape '!'", 18, "escape"),
    ("network like any ('x')", 14, "not part of predicate text"),
    ("network rlike 'x'", 9, "regular expressions"),
    ("network collate de = 'x'", 9, "code points"),
    ("level > interval '1' day", 9, "seconds(n)"),
    ("seen > date '2026-01-01'", 8, "timestamp '"),
    ("sum(level) over (partition by badge) > 1", 12, "not part of predicate text"),
    ("count(distinct level) > 1", 7, "not part of predicate text"),
    ("count(*) > 1", 7, "expected: a value"),
    ("level -> 'x' = 1", 8, "expected: a value"),
    ("level::int = 1", 6, "parameter"),
    ("filter(values, x -> x > 1)", 19, "expected: a value"),
    ("(badge, level) = (1, 2)", 7, "only follow in"),
    ("[1] = 1", 1, "only follow in"),
    ("badge ** 2 = 4", 8, "expected: a value"),
    ("badge // 2 = 4", 8, "expected: a value"),
    ("badge <=> 1", 9, "expected: a value"),
    ("badge := 1", 7, "parameter"),
    ("ok xor ok", 4, "use !="),
    ("ok is true", 7, "null after is"),
    ("ok is not false", 11, "null after is"),
    ("ok not null", 4, "in, like or between"),
    ("opt is null + 1", 8, "null after is"),
    ("opt is null & badge", 8, "null after is"),
    ("opt is null.x", 8, "null after is"),
    ("? = 1", 1, "not part of predicate text"),
    ("@x = 1", 1, "not part of predicate text"),
    ("{'a': 1} = 1", 1, "not part of predicate text"),
    ("badge between 1 2", 17, "expected: an operator"),
    ("badge between 1 or 2", 7, "between … and …"),
    ("badge between 1", 7, "between … and …"),
    ("wind[1, 2] = 1", 7, "one value"),
    ("values[0:1] = 1", 9, "parameter"),
    ("values[] = 1", 8, "expected: a value"),
    ("network.startswith('x')", 9, "no methods"),
    ("position.(x) = 1", 10, "field name"),
    ("level > .5", 9, "0.5"),
    ("level > + level", 9, "number after +"),
    # brackets and ends
    ("level >", 8, "the end"),
    ("(ok", 1, "never closed"),
    ("ok)", 3, "an operator or the end"),
    ("values[0", 7, "never closed"),
    ("(values[0)", 10, "expected: ]"),
    ("'abc", 1, "never closed"),
    ('"abc', 1, "never closed"),
    ("ok and 'abc", 8, "never closed"),
    ("case when ok then 1", 1, "expected: end"),
    ("end", 1, "expected: a value"),
    ("ok end", 4, "an operator or the end"),
    ("ok then ok", 4, "case"),
    ("case ok end", 9, "cannot be read"),
    ("and ok", 1, "expected: a value"),
    ("ok and and ok", 8, "expected: a value"),
    ("abs(1,) = 1", 7, "expected: a value"),
    ("ok, ok", 3, "one value"),
    ("()", 2, "expected: a value"),
    (": limit < level", 1, "parameter"),
    (":1 = 1", 1, "parameter"),
    ("true(1)", 1, "no function 'true'"),
    ('"abs"(1) = 1', 6, "an operator"),
]


@pytest.mark.parametrize(("text", "column", "message"), WRONG, ids=[text for text, _, _ in WRONG])
def test_wrong(text: str, column: int, message: str) -> None:
    found = problems(text)
    assert (found[0][1], message in found[0][2]) == (column, True), found[0][2]


def test_all_problems_at_once_with_line_and_column() -> None:
    found = problems("levl > 1\n  and netwrk = 'x'\n  and badge = 'x'\n  and foo(1) and :nope")
    assert [(line, column) for line, column, _ in found] == [(1, 1), (2, 7), (3, 7), (4, 7), (4, 18)]


def test_a_problem_underlines_its_place() -> None:
    text = "ok and (network = 5)"
    with pytest.raises(InterestError) as caught:
        predicate.parse(text, TYPE)
    (problem,) = caught.value.problems
    assert (problem.excerpt, problem.column, problem.width) == (text, 9, len("network = 5"))


def test_negations_and_conditionals_are_placed_from_their_operator() -> None:
    def width(text: str) -> tuple[int, int]:
        with pytest.raises(InterestError) as caught:
            predicate.parse(text, TYPE)
        return caught.value.problems[0].column, caught.value.problems[0].width

    assert width("ok and -(badge)") == (8, len("-(badge"))
    assert width("ok and case when ok then 1 else 2 end") == (8, len("case when ok then 1 else 2 end"))
    assert width("ok and values[ 0 ]") == (8, len("values[ 0 ]"))
    assert width("ok and abs( badge )") == (8, len("abs( badge )"))


@pytest.mark.parametrize(
    "text",
    [
        "ok and " * 60_000 + "ok",
        "(" * 5_000 + "ok" + ")" * 5_000,
        "not " * 60_000 + "ok",
        "!" * 100_000 + "ok",
        "- " * 100_000 + "badge = 1",
        "not (" * 2_000 + "ok" + ")" * 2_000,
        "badge" + " + 1" * 50_000 + " = 1",
        "abs(" * 3_000 + "1" + ")" * 3_000 + " = 1",
        "values[" * 3_000 + "0" + "]" * 3_000 + " = 1",
        "case when " * 3_000 + "ok" + " then ok end" * 3_000,
        "badge in (" + "1, " * 60_000 + "1)",
        "x" * (MAX_TEXT + 1),
        "ok or " * 2_000_000,
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.timeout(60)  # it must end by itself, long before this
def test_hostile_texts_are_refused_quickly(text: str) -> None:
    with pytest.raises(InterestRefused):
        predicate.parse(text, TYPE)


LONG = 40_000 if EFFORT == 1 else 200_000  # characters: what takes their square would take minutes


@pytest.mark.parametrize(
    "text",
    [
        "(" * LONG,
        ")" * LONG,
        "'" * (LONG // 2 - 1),
        '"' * (LONG // 2 - 1),
        "." * LONG,
        ":" * LONG,
        "0x" * (LONG // 2),
        "1e" * (LONG // 2),
        "x'" * (LONG // 2),
        "a." * (LONG // 2),
        "/*" * (LONG // 2),
        "{#" * (LONG // 2),
        "case " * (LONG // 4),
        "9" * LONG + " > badge",
        "0x" + "f" * LONG + " > badge",
        "\x00" * 1000,
        "\ud800 = 1",
        "network = '\ud800'",
    ],
    ids=lambda text: repr(text[:8]),
)
@pytest.mark.timeout(60)  # it must end by itself, long before this
def test_nonsense_is_an_error_quickly(text: str) -> None:
    with pytest.raises(InterestError):
        predicate.parse(text, TYPE)


def test_long_conjunctions_and_lists_are_fine() -> None:
    assert predicate.parse(" and ".join(f"badge != {i}" for i in range(3_000)), TYPE).body
    assert predicate.parse(f"badge in ({', '.join(map(str, range(10_000)))})", TYPE).body
    assert predicate.parse("(" * 90 + "ok" + ")" * 90, TYPE).body


def test_only_text_is_text() -> None:
    with pytest.raises(InterestError, match="expected: a str"):
        predicate.parse(b"ok", TYPE)  # type: ignore[arg-type]


def test_every_field_name_can_be_quoted() -> None:
    names = ["a b", 'say "hi"', "`", "and", "meta", "input", "x.y", "'", "-- x", "日本", "(abs"]
    record = Record("R", tuple(Field(name, I64) for name in names))
    for name in names:
        text = '"' + name.replace('"', '""') + '" = 1'
        assert predicate.parse(text, record) == predicate.parse(f"input.{text}", record)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("level > 0.5 and network == 'ORL'", "lambda e: e.level > 0.5 and e.network == 'ORL'"),
        ("not (badge in (1, 2) or ok)", "lambda e: not (e.badge in (1, 2) or e.ok)"),
        ("if(ok, level, -level) < 1", "lambda e: (e.level if e.ok else -e.level) < 1"),
        ("badge / 2 > 1 and opt is null", "lambda e: e.badge / 2 > 1 and e.opt is None"),
        ("sum(values) > wind[3][2]", "lambda e: sum(e.values) > e.wind[3][2]"),
        ("badge in :badges and :owner[badge] = 'ann'",
         "lambda e, *, badges={7, 9}, owner={7: 'ann'}: e.badge in badges and owner[e.badge] == 'ann'"),
        ("kind = 'USER' and meta.seq > 2", "lambda e: e.kind == Kind.USER and meta.seq > 2"),
    ],
)  # fmt: skip
def test_notations_give_equal_programs(text: str, function: str) -> None:
    theirs = pyfunc.parse(function, TYPE).program
    assert predicate.parse(text, TYPE, params=theirs.params) == theirs


def test_the_page_of_the_notation_tells_the_truth() -> None:
    """Every example line of the page is true of the example event, or wrong where it says so."""
    page = (Path(__file__).parents[2] / "docs/notations/predicate.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```predicate\n(.*?)^```", page, re.M | re.S)
    refused = re.findall(r"^```refused\n(.*?)^```", page, re.M | re.S)
    lines = [line for block in examples for line in block.splitlines() if line.strip()]
    assert len(lines) > 20
    for line in lines:
        assert outcome(line).status is Status.PASSED, line
    for line in (line for block in refused for line in block.splitlines() if line.strip()):
        assert problems(line)


ATOMS = st.sampled_from(
    ["e.badge", "e.opt", "e.big", "1", "2.5", "e.level", "(e.badge + 1)", "-e.badge", "~e.badge", "abs(e.badge)"]
)
SIGNS = st.sampled_from([" + ", " - ", " * ", " / ", " & ", " | ", " ^ ", " << ", " >> "])
RELATIONS = st.sampled_from([" == ", " != ", " < ", " <= ", " > ", " >= "])


@st.composite
def sums(draw: st.DrawFn) -> str:
    text = draw(ATOMS)
    for _ in range(draw(st.integers(0, 3))):
        text += draw(SIGNS) + draw(ATOMS)
    return text


@st.composite
def conditions(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        term = draw(st.one_of(st.just("e.ok"), st.builds("".join, st.tuples(sums(), RELATIONS, sums()))))
        parts.append(draw(st.sampled_from(["", "", "not ", "not not "])) + term)
        parts.append(draw(st.sampled_from([" and ", " or "])))
    return "".join(parts[:-1])


@settings(deadline=None, max_examples=examples(300))
@given(conditions())
def test_operators_bind_as_in_python_where_parentheses_are_not_required(text: str) -> None:
    try:
        mine = predicate.parse(text.replace("e.", ""), TYPE)
    except InterestError:
        return  # different bit operators side by side, or bit operators on floats
    assert mine == pyfunc.parse(f"lambda e: {text}", TYPE).program


# ── fuzzing: a program or an InterestError, never anything else ──

WORDS = st.sampled_from(
    [
        "and",
        "or",
        "not",
        "in",
        "between",
        "like",
        "is",
        "null",
        "case",
        "when",
        "then",
        "else",
        "end",
        "div",
        "as",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        ":",
        ";",
        "=",
        "==",
        "!=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "&",
        "|",
        "^",
        "~",
        "<<",
        ">>",
        "&&",
        "||",
        "!",
        "level",
        "badge",
        "network",
        "ok",
        "opt",
        "values",
        "wind",
        "position",
        "x",
        "points",
        "kind",
        "seen",
        "meta",
        "input",
        "source",
        ":limit",
        ":badges",
        ":owner",
        "1",
        "0",
        "2.5",
        "1e3",
        "0xff",
        "'a'",
        "'a%'",
        '"level"',
        "`ok`",
        "abs",
        "min",
        "max",
        "length",
        "cast",
        "if",
        "coalesce",
        "true",
        "false",
        "timestamp",
        "'2026-01-01'",
        "select",
        "distinct",
        "over",
        "interval",
        "int",
        "--",
        "/*",
        "*/",
        "{#",
        "#}",
        "'",
        '"',
        "`",
        "\\",
        "?",
        "@",
        "#",
        "$",
        "x'00'",
        "\x00",
        "é",
    ]
)


def only_program_or_error(text: str) -> None:
    try:
        program = predicate.parse(text, TYPE, params=declare(PARAMS))
    except InterestError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.line >= 1 and problem.column >= 1 and str(problem)
    else:
        assert isinstance(program, Program)
        run(program, EVENT, meta=META, params=bind(program.params, PARAMS))


@settings(deadline=None, max_examples=examples(150))
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    only_program_or_error(text)


@settings(deadline=None, max_examples=examples(400))
@given(st.lists(WORDS, max_size=16), st.sampled_from((" ", " ", "")))
def test_any_words(words: list[str], between: str) -> None:
    only_program_or_error(between.join(words))


@settings(deadline=None, max_examples=examples(400))
@given(st.data())
def test_mutated_predicates(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TRUE))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        to = data.draw(st.integers(at, min(len(text), at + 4)))
        text = text[:at] + data.draw(st.one_of(WORDS, st.text(max_size=2))) + text[to:]
    only_program_or_error(text)
