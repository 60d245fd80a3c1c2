"""Python functions as interests: what they mean, how they are found, and what is refused."""

from __future__ import annotations

import enum
import functools
import linecache
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InterestError, InterestRefused, ParameterError
from headwater.ir.interp import Fault, Outcome, Status, initial_state, run
from headwater.ir.nodes import Program
from headwater.ir.notes import MAX_TEXT
from headwater.ir.params import MapOf, SetOf, bind
from headwater.lang import pyfunc
from headwater.lang.pyfunc import State
from headwater.types.model import F64, I8, I64, TEXT, Array, Field, Record
from tests.effort import examples
from tests.lang.test_predicate import EVENT, META, TYPE

POINT = Record("app.Point", (Field("x", F64), Field("y", F64)))
OUTPUT = Record(
    "app.Average",
    (
        Field("mean", F64),
        Field("n", I64, True),
        Field("small", I8, True),
        Field("name", TEXT, True),
        Field("grid", Array(F64, (2, 3))),
        Field("at", POINT, True),
    ),
)

LIMIT = 0.5
NETWORKS = ("x", "ORL-Net#1")
BADGES = frozenset({7, 9, 11})
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
THINGS: list[object] = [object()]
EMPTY = SetOf(int)
START = State(n=0, last=0.0, on=True, at=WHEN, window=[0.0, 0.0, 0.0], m=((1, 2), (3, 4)))


class Kind(enum.Enum):
    USER = 1
    EQUIPMENT = 5


class Level(enum.IntEnum):
    LOW = 7


def outcome(function: Callable[..., Any] | str, *, output: Record | None = None, **params: object) -> Outcome:
    parsed = pyfunc.parse(function, TYPE, output=output, params=params)
    program = parsed.program
    values = bind(program.params, parsed.params)
    return run(program, EVENT, meta=META, params=values, state=initial_state(program))


TRUE = r"""
e.level > 0.5
e.badge == 7 and e.network == 'ORL-Net#1'
e.badge + 1 == 8 and e.badge - 1 == 6 and e.badge * 2 == 14
e.badge / 2 == 3.5 and e.badge // 2 == 3 and -e.badge // 2 == -4
e.badge % 4 == 3 and -e.badge % 4 == 1
e.badge ** 2 == 49
e.badge & 3 == 3 and e.badge | 8 == 15 and e.badge ^ 1 == 6 and ~e.badge == -8
e.badge << 2 == 28 and e.badge >> 1 == 3
+e.badge == 7
5 < e.badge < 10
5 < e.badge <= 7 != 8
1 < 2 < 3 > 2
not (10 < e.badge < 20)
not e.ok or e.ok
(1 if e.ok else 2) == 1
(e.badge if e.ok else 2.5) == 7
(None if e.ok else 2) is None
e.badge in (1, 7) and e.badge in [7] and e.badge in {7, 8}
e.badge not in (1, 2)
e.network in ('x', 'ORL-Net#1')
'Net' in e.network and 'x' not in e.network
e.opt is None and e.seen is not None and e.position is not None and e.values is not None
e.position.x == 1.5 and e.position.end == 2.5
e.values[0] == 1 and e.values[e.badge - 6] == 2 and e.wind[3][2] == 32
e.points[0].x == 9
len(e.values) == 3 and len(e.wind) == 4 and len(e.network) == 9 and len(e.raw) == 2
sum(e.values) == 7 and min(e.values) == 1 and max(e.values) == 4 and mean(e.values) > 2
min(e.badge, 3) == 3 and max(e.badge, 9, 8) == 9 and abs(-e.badge) == 7
math.sqrt(4) == 2 and math.floor(1.5) == 1 and math.ceil(1.5) == 2 and math.pow(2, 3) == 8
math.fmod(5.5, 2) == 1.5 and math.exp(0) == 1 and math.log(1) == 0 and math.isnan(e.level) == False
math.fabs(-1.5) == 1.5 and math.trunc(1.5) == 1 and math.dist((0, 0), (3, 4)) == 5
math.pi > 3.14 and math.inf > 1e308
hw.mean(e.values) > 2 and hw.ir.sqrt(4) == 2
e.network.startswith('ORL') and e.network.endswith('#1')
e.network.lower() == 'orl-net#1' and e.network.upper().startswith('ORL-NET')
int(e.level) == 0 and float(e.badge) == 7.0 and bool(e.badge)
int(True) == 1 and int(7.9) == 7
meta.seq == 42 and meta.source == 'hall' and hw.meta.node == 'n1' and meta.time == e.seen
e.kind == 'EQUIPMENT' and e.kind == Kind.EQUIPMENT and e.kind != app.Kind.USER and e.kind in (Kind.EQUIPMENT, 'USER')
code(e.kind) == 5
e.seen == datetime(2026, 1, 1, tzinfo=UTC) and e.seen < datetime.datetime(2026, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
e.seen >= '2026-01-01'
e.seen + seconds(1) > e.seen and e.seen - e.seen == 0
coalesce(e.opt, 3) == 3
e.raw == b'\x00\xff'
e.big == 18446744073709551615
-9223372036854775808 < e.badge
year(e.seen) == 2026
like(e.network, 'ORL%')
e.maybe is None and (e.maybe or e.ok) and not (e.maybe and False)
""".strip().splitlines()


@pytest.mark.parametrize("text", TRUE)
def test_expressions(text: str) -> None:
    found = outcome(f"lambda e: {text}")
    assert found == Outcome(Status.PASSED)
    assert outcome(f"def f(e):\n    return ({text})\n") == found


@pytest.mark.parametrize(
    ("text", "status", "faults"),
    [
        ("e.opt > 1", Status.UNDECIDED, Fault.NONE),
        ("e.opt in (1, 2)", Status.UNDECIDED, Fault.NONE),
        ("1 < e.opt < 2", Status.UNDECIDED, Fault.NONE),
        ("e.maybe and False", Status.REJECTED, Fault.NONE),
        ("(e.ok if e.maybe else e.ok)", Status.UNDECIDED, Fault.NONE),
        ("e.values[3] > 1", Status.UNDECIDED, Fault.INDEX),
        ("e.badge // 0 > 1", Status.UNDECIDED, Fault.DIVISION),
        ("9223372036854775807 + e.badge > 1", Status.UNDECIDED, Fault.OVERFLOW),
        ("None", Status.REJECTED, Fault.NONE),
    ],
)
def test_missing(text: str, status: Status, faults: Fault) -> None:
    found = outcome(f"lambda e: {text}")
    assert (found.status, found.faults) == (status, faults)


BODIES = [
    ("return e.ok", True),
    ("'''docs'''\nreturn e.ok", True),
    ("pass", False),
    ("return", False),
    ("return None", False),
    ("return False", False),
    ("if e.ok:\n    return True", True),
    ("if e.maybe:\n    return False\nelse:\n    return False\nreturn True", True),
    ("if e.badge == 1:\n    return False\nelif e.badge == 7:\n    return True\nelse:\n    return False", True),
    ("x = 1\nx = x + 1\nreturn x == 2", True),
    ("x = 1\nx += 2\nx -= 1\nx *= 5\nx //= 2\nx %= 3\nx <<= 3\nx |= 1\nreturn x == 17", True),
    ("x: float = 1\nx = x / 2\nreturn x == 0.5", True),
    ("x: float\nx = 3\nreturn x / 2 == 1.5", True),
    ("x = 0.0\nx = 3\nreturn x == 3", True),
    ("t = e.network\nt = t.lower()\nreturn t == 'orl-net#1'", True),
    ("v = e.values\np = e.position\nreturn v[1] == 2 and sum(v) == 7 and p.x == 1.5", True),
    ("s = 0\nfor i in range(5):\n    s += i\nreturn s == 10", True),
    ("s = 0\nfor i in range(2, 5):\n    s += i\nreturn s == 9", True),
    ("s = 0\nfor i in range(5, 0, -2):\n    s += i\nreturn s == 9", True),
    ("s = 0\nfor i in range(0, 10, 4):\n    s += i\nreturn s == 12", True),
    ("s = 0\nfor i in range(e.badge):\n    s += i\nreturn s == 21", True),
    ("s = 0\nfor i in range(len(e.values)):\n    s += i\nreturn s == 3", True),
    ("for i in range(5):\n    pass\nreturn i == 4", True),
    ("for i in range(5):\n    if i == 2:\n        break\nreturn i == 2", True),
    ("for i in range(0):\n    pass\nreturn i is None", True),
    ("s = 0\nfor i in range(5):\n    i = 10\n    s += i\nreturn s == 50", True),
    ("n = 3\ns = 0\nfor i in range(n):\n    n = 100\n    s += 1\nreturn s == 3", True),
    ("s = 0\nfor i in range(2):\n    for i in range(3):\n        pass\n    s += i\nreturn s == 4", True),
    ("s = 0\nfor i in range(2):\n    s += i\nfor i in range(3):\n    s += i\nreturn s == 4", True),
    ("s = 0\nfor i in range(3):\n    for j in range(i):\n        s += 1\nreturn s == 3", True),
    ("s = 0\nfor i in range(10):\n    if i % 2 == 0:\n        continue\n    s += i\nreturn s == 25", True),
    ("s = 0.0\nfor x in e.values:\n    s += x\nreturn s == 7", True),
    ("for x in e.values:\n    pass\nreturn x == 4", True),
    ("s = 0.0\nfor x in e.values:\n    x = x * 2\n    s += x\nreturn s == 14", True),
    ("s = 0.0\nfor row in e.wind:\n    for x in row:\n        s += x\nreturn s == sum(e.wind)", True),
    ("s = 0.0\nfor row in e.wind:\n    s += row[0]\nreturn s == 60", True),
    ("s = 0.0\nfor p in e.points:\n    s += p.x + p.end\nreturn s == 17", True),
    ("n = 0\nwhile n < 5:\n    n += 1\n    if n == 3:\n        break\nreturn n == 3", True),
    ("n = 0\nm = 0\nwhile n < 5:\n    n += 1\n    if n % 2 == 0:\n        continue\n    m += n\nreturn m == 9", True),
    ("if e.badge > 100:\n    x = 1\nreturn x is None", True),
    ("n = 0\nwhile e.maybe:\n    n = 1\nreturn n == 0", True),
]


@pytest.mark.parametrize(("body", "passes"), BODIES, ids=[body for body, _ in BODIES])
def test_statements(body: str, passes: bool) -> None:
    indented = body.replace("\n", "\n    ")
    found = outcome(f"def f(e):\n    {indented}\n")
    assert found == Outcome(Status.PASSED if passes else Status.REJECTED)


def test_the_statements_mean_what_python_means() -> None:
    """Those that Python itself can run, with the event as an object."""

    class Dotted:
        def __init__(self, values: dict[str, Any]) -> None:
            self.__dict__ = {k: Dotted(v) if isinstance(v, dict) else v for k, v in values.items()}

    event = Dotted(EVENT | {"points": [Dotted(point) for point in EVENT["points"]]})
    for body, passes in BODIES:
        if "wind)" in body or "i is None" in body or "x is None" in body or "e.maybe:\n    return" in body:
            continue
        scope: dict[str, Any] = {}
        indented = body.replace("\n", "\n    ")
        exec(f"def f(e):\n    {indented}\n", scope)
        assert bool(scope["f"](event)) is passes, body


# ── transformations ──


def average(e: Any, out: Any) -> bool:
    out.mean = sum(e.values) / len(e.values)
    out.n = len(e.values)
    for i in range(2):
        for j in range(3):
            out.grid[i][j] = e.wind[i][j]
    return True


class Average:
    def __init__(self, **fields: Any) -> None: ...


Point = Average


def built(e: Any) -> Any:
    if e.badge > 100:
        return None
    return Average(mean=e.level * 2, n=e.badge, name=e.network.lower(), small=None, at=Point(x=1, y=e.position.x))


def test_transformations() -> None:
    found = outcome(average, output=OUTPUT)
    assert found.status is Status.PASSED and found.output is not None
    assert (found.output["mean"], found.output["n"]) == (7 / 3, 3)
    assert found.output["grid"] == [[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]
    found = outcome(built, output=OUTPUT)
    assert found.output == {
        "mean": 1.4, "n": 7, "small": None, "name": "orl-net#1", "grid": [[0.0] * 3] * 2, "at": {"x": 1.0, "y": 1.5}
    }  # fmt: skip


def test_a_lambda_may_build_the_output_or_reject() -> None:
    made = "lambda e: Average(mean=e.level) if {} else None"
    assert outcome(made.format("e.ok"), output=OUTPUT).status is Status.PASSED
    assert outcome(made.format("not e.ok"), output=OUTPUT).status is Status.REJECTED
    assert outcome(made.format("e.maybe"), output=OUTPUT).status is Status.UNDECIDED


# ── parameters and state ──


def test_parameters() -> None:
    def f(e: Any, *, limit: float = 0.5, badges: Any = frozenset({7}), owner: Any = {7: "ann"}) -> Any:  # noqa: B006
        return e.level > limit and e.badge in badges and owner[e.badge] == "ann" and owner.get(8, "x") == "x"

    parsed = pyfunc.parse(f, TYPE)
    assert parsed.params == {"limit": 0.5, "badges": frozenset({7}), "owner": {7: "ann"}}
    assert [(p.name, p.kind) for p in parsed.program.params] == [
        ("limit", "scalar"),
        ("badges", "set"),
        ("owner", "map"),
    ]
    assert outcome(f).passed
    assert not outcome(f, limit=1).passed
    assert not outcome(f, badges={1}).passed
    assert pyfunc.parse(f, TYPE, params={"limit": 1}).params["limit"] == 1
    text = "lambda e, *, limit, badges=SetOf(int), owner=MapOf(int, str): e.level > limit or e.badge in badges"
    assert outcome(text, limit=0.1).passed
    assert pyfunc.parse(text, TYPE, params={"limit": 1.0}).params["owner"] == MapOf(int, str)
    assert outcome("lambda e, *, b=set(): e.badge in b", b={7}).passed
    assert outcome(lambda e, *, b=EMPTY: e.badge in b).status is Status.REJECTED


@pytest.mark.parametrize(
    ("params", "message"),
    [({"limt": 1}, "did you mean 'limit'"), ({"limit": "x"}, "expected f64"), ({"state": 1}, "is state")],
)
def test_parameters_given_must_fit(params: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        pyfunc.parse("lambda e, *, limit=0.5, state=State(n=0): e.level > limit", TYPE, params=params)


def test_state_lives_on() -> None:
    def f(e: Any, *, state: Any = START) -> Any:
        state.n += 1
        state.window[state.n % 3] = e.level
        state.m[1][0] += 1
        state.on = not state.on
        return state.on and state.window[2] == e.level and state.m[1][0] == 5 and state.last == 0 and state.at == WHEN

    program = pyfunc.parse(f, TYPE).program
    assert program.stateful
    assert [(v.name, v.shape) for v in program.variables if v.state][-2:] == [("window", (3,)), ("m", (2, 2))]
    state = initial_state(program)
    assert [run(program, EVENT, state=state).passed for _ in range(3)] == [False, True, False]
    assert repr(State(n=0)) == "State(n=0)"


# ── finding the source ──

one, two = lambda e: e.badge == 1, lambda e: e.badge == 7
nested = [(lambda e: e.ok), (lambda e: not e.ok)]
spread = functools.partial(
    max,
    key=lambda e: (
        e.badge == 7 and
        e.level > 0.5
    ),
)  # fmt: skip


def decorate(function: Any) -> Any:
    return function


@decorate
@decorate
def decorated(e: Any) -> Any:
    """With a docstring."""
    return e.network == "größe" or e.badge == 7


def test_the_right_lambda_is_found() -> None:
    assert not outcome(one).passed
    assert outcome(two).passed
    assert outcome(nested[0]).passed and not outcome(nested[1]).passed
    assert outcome(spread.keywords["key"]).passed
    assert outcome(decorated).passed
    assert outcome((lambda x: lambda e: e.badge == x)(7)).passed
    assert pyfunc.parse(two, TYPE).program.text == "lambda e: e.badge == 7"
    assert pyfunc.parse(decorated, TYPE).program.text.startswith('def decorated(e: Any) -> Any:\n    """')


def test_methods_in_classes_are_dedented() -> None:
    class Filters:
        @staticmethod
        def loud(e: Any) -> Any:
            return e.level > LIMIT

    assert pyfunc.parse(Filters.loud, TYPE).program.text.startswith("def loud(e: Any) -> Any:\n    return")
    assert outcome(Filters.loud).passed


def test_constants_around_the_function_are_captured() -> None:
    near = 7
    assert outcome(lambda e: e.level > LIMIT and e.badge == near).passed
    assert outcome(lambda e: e.network in NETWORKS and e.badge in BADGES).passed
    assert outcome(lambda e: abs(e.badge - near) < (near if e.ok else LIMIT) and 1 < e.badge <= near).passed
    assert outcome(lambda e: e.seen == WHEN and e.kind == Kind.EQUIPMENT and e.badge == Level.LOW).passed
    assert outcome(lambda e: e.level < math.pi and math.sqrt(e.level) < 1).passed
    first = pyfunc.parse(lambda e: e.badge in BADGES, TYPE).program
    assert [const.value for const in first.body[0].value.values] == [11, 7, 9]  # type: ignore[union-attr]


def helper(e: Any) -> bool:
    raise AssertionError("never run")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda e: e.badge in THINGS, "is no constant"),
        (lambda e: helper(e), "of your own"),
        (lambda e: e.badge > THINGS, "make it a parameter"),
        (len, "not a function"),
        (functools.partial(helper), "not a function"),
        (Average, "not a function"),
        (eval("lambda e: e.ok"), "not available"),
        (7, "expected: a function, a lambda, or source text"),
    ],
)  # fmt: skip
def test_functions_that_cannot_be_read(function: Any, message: str) -> None:
    with pytest.raises(InterestError) as caught:
        pyfunc.parse(function, TYPE)
    assert message in str(caught.value)


def test_a_file_that_changed_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "filters.py"
    changed = ["f = lambda e: e.badge > 2\n", "f = lambda e: e.badge < 1\n", "f = lambda e: e.badg > 1\n"]
    gone = ["\n\n", "f = (\n"]
    for now in changed + gone:
        scope: dict[str, Any] = {}
        exec(compile("f = lambda e: e.badge > 1\n", str(path), "exec"), scope)
        path.write_text(now)
        linecache.clearcache()
        with pytest.raises(InterestError, match="has changed" if now in changed else "does not hold it"):
            pyfunc.parse(scope["f"], TYPE)


def test_positions_count_characters_in_the_dedented_text() -> None:
    def f(e: Any) -> Any:
        return e.network == "größe" and e.lvel > 1

    with pytest.raises(InterestError) as caught:
        pyfunc.parse(f, TYPE)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.width) == (2, 37, len("e.lvel"))
    assert problem.hint == "did you mean 'level'?"
    with pytest.raises(InterestError) as caught:
        pyfunc.parse(lambda e: e.network == "é" and e.lvel > 1, TYPE)
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (1, 32)


# ── what is refused ──

WRONG = [
    ("lambda e: e.levl > 1", 1, 11, "did you mean 'level'"),
    ("lambda e: level > 1", 1, 11, "write e.level"),
    ("lambda e: unknown > 1", 1, 11, "make it a parameter"),
    ("lambda e: e", 1, 11, "whole event"),
    ("lambda e: e.badge", 1, 11, "used as a condition"),
    ("lambda e: e.ok == 1", 1, 11, "condition by itself"),
    ("lambda e: e.opt == None", 1, 20, "is None"),
    ("lambda e: e.opt is 1", 1, 20, "use =="),
    ("lambda e: e.values[-1] > 1", 1, 20, "does not count from the end"),
    ("lambda e: e.values[0:1] > 1", 1, 20, "a slice"),
    ("lambda e: e.wind[0, 1] > 1", 1, 18, "x[i][j]"),
    ("lambda e: e.level % 2 == 0", 1, 11, "fmod"),
    ("lambda e: e.level // 2 == 0", 1, 11, "floor"),
    ("lambda e: e.network + 'x' == ''", 1, 11, "expected: a number"),
    ("lambda e: e.badge @ 2 == 1", 1, 11, "@"),
    ("lambda e: e.badge in e.values", 1, 22, "for loop"),
    ("lambda e: e.badge in (1, 'x')", 1, 26, "one kind"),
    ("lambda e: e.badge in 5", 1, 22, "collection"),
    ("lambda e: round(e.level) == 1", 1, 11, "floor(x + 0.5)"),
    ("lambda e: sqr(e.level) == 1", 1, 11, "did you mean 'sqrt'"),
    ("lambda e: e.network.strip() == 'x'", 1, 11, "no method 'strip'"),
    ("lambda e: abs(x=1) == 1", 1, 15, "by position"),
    ("lambda e: abs(*e.values) == 1", 1, 15, "by position"),
    ("lambda e: e.network.startswith('a', 1)", 1, 11, "arguments of starts_with()"),
    ("lambda e: any(x > 1 for x in e.values)", 1, 11, "use a for loop"),
    ("lambda e: [x for x in e.values] == 1", 1, 11, "comprehension"),
    ("lambda e: (lambda x: x)(1)", 1, 12, "cannot be called"),
    ("lambda e: (x := 1) == 1", 1, 12, "on a line of its own"),
    ("lambda e: f'{e.badge}' == ''", 1, 11, "f-string"),
    ("lambda e: (1, 2) == 1", 1, 11, "only follow in"),
    ("lambda e: {1: 2} == 1", 1, 11, "make it a parameter"),
    ("lambda e: e.badge == 1j", 1, 22, "cannot be a constant"),
    ("lambda e: e.badge == ...", 1, 22, "cannot be a constant"),
    ("lambda e: e.badge < 99999999999999999999", 1, 21, "64 bits"),
    ("lambda e: e.kind == Kind.USR", 1, 21, "did you mean 'USER'"),
    ("lambda e: meta.who == 'x'", 1, 11, "no meta.who"),
    ("lambda e: e.seen > datetime(2026, 1, 1)", 1, 20, "tzinfo=UTC"),
    ("lambda e: e.seen > datetime(2026, 13, 1, tzinfo=UTC)", 1, 20, "month"),
    ("lambda e: e.seen > datetime(e.badge, 1, 1, tzinfo=UTC)", 1, 29, "not a constant"),
    ("lambda: True", 1, 1, "no parameter for the event"),
    ("lambda e, out: True", 1, 11, "output type"),
    ("lambda e, o, p: True", 1, 11, "a filter has no output"),
    ("lambda e, *f: True", 1, 12, "starred"),
    ("lambda e, **k: True", 1, 13, "starred"),
    ("lambda e=1: True", 1, 10, "no default"),
    ("lambda e, *, x: e.level > x", 1, 14, "has no value"),
    ("lambda e, *, x=object(): e.level > x", 1, 16, "constant for a default"),
    ("lambda e, *, x=None: e.level > x", 1, 16, "constant for a default"),
    ("lambda e, *, x=set(): e.level in x", 1, 16, "is empty"),
    ("lambda e, *, x=[1]: e.level in x", 1, 16, "expected a number"),
    ("lambda e, *, x={1}: e.level > x", 1, 31, "found:    set"),
    ("lambda e, *, s=State(n='x'): s.n > 1", 1, 16, "cannot hold this"),
    ("lambda e, *, s=State(n=[]): s.n > 1", 1, 16, "one or more values"),
    ("lambda e, *, s=State(n=[1, [2]]): s.n > 1", 1, 16, "cannot hold this"),
    ("lambda e, *, s=State(n=0): s.m > 1", 1, 28, "it has: n"),
    ("lambda e, *, s=State(n=0): s > 1", 1, 28, "whole state"),
    ("lambda e, *, s=State(n=[1, 2]): s.n > 1", 1, 33, "array"),
    ("def f(e): return e.levl > 1", 1, 18, "did you mean"),
    ("async def f(e): return e.ok", 1, 1, "use def"),
    ("def f(e):\n    yield e.ok", 2, 5, "use return"),
    ("def f(e):\n    await e", 2, 5, "await"),
    ("def f(e):\n    x = e.opt\n    x = None", 3, 9, "None cannot"),
    ("def f(e):\n    x, y = 1, 2", 2, 5, "one at a time"),
    ("def f(e):\n    x = y = 1", 2, 5, "one at a time"),
    ("def f(e):\n    x = 0\n    x = e.level", 3, 5, "x = 0.0"),
    ("def f(e):\n    x = 0\n    x += 0.5", 3, 5, "x = 0.0"),
    ("def f(e):\n    x = 0\n    x = 'a'", 3, 5, "do not fit"),
    ("def f(e):\n    return x > 1\n    x = 1", 2, 12, "before it has a value"),
    ("def f(e):\n    x += 1", 2, 5, "before it has a value"),
    ("def f(e):\n    e = 1", 2, 5, "is a parameter"),
    ("def f(e):\n    e.level = 1", 2, 5, "cannot be changed"),
    ("def f(e):\n    e.values[0] = 1", 2, 5, "cannot be changed"),
    ("def f(e):\n    x: list = 1", 2, 8, "annotation"),
    ("def f(e):\n    e.ok", 2, 5, "no effect"),
    ("def f(e):\n    print(e.ok)", 2, 5, "no effect"),
    ("def f(e):\n    break", 2, 5, "not inside a loop"),
    ("def f(e):\n    continue", 2, 5, "not inside a loop"),
    ("def f(e):\n    for i in range(3):\n        pass\n    else:\n        return True", 5, 9, "else after for"),
    ("def f(e):\n    while e.ok:\n        pass\n    else:\n        return True", 5, 9, "else after while"),
    ("def f(e):\n    for i in range(0, 3, 0):\n        pass", 2, 26, "not zero"),
    ("def f(e):\n    for i in range(0, 3, e.badge):\n        pass", 2, 26, "not zero"),
    ("def f(e):\n    for i in range():\n        pass", 2, 14, "arguments of range()"),
    ("def f(e):\n    for i in range(e.level):\n        pass", 2, 20, "an integer"),
    ("def f(e):\n    for e in range(3):\n        pass", 2, 9, "is a parameter"),
    ("def f(e):\n    for i, x in enumerate(e.values):\n        pass", 2, 9, "one variable"),
    ("def f(e):\n    for x in e.level:\n        pass", 2, 14, "looped over"),
    ("def f(e):\n    for p in e.points:\n        pass\n    return p.x > 1", 2, 9, "outside its loop"),
    ("def f(e):\n    for row in e.wind:\n        row = e.values", 2, 9, "outside its loop"),
    ("def f(e):\n    k = 0\n    for x in e.wind[k]:\n        k = 1", 3, 14, "changes inside the loop"),
    ("def f(e):\n    try:\n        pass\n    except E:\n        pass", 2, 5, "is missing"),
    ("def f(e):\n    with x:\n        pass", 2, 5, "with"),
    ("def f(e):\n    import os", 2, 5, "import"),
    ("def f(e):\n    global x", 2, 5, "State"),
    ("def f(e):\n    nonlocal x", 2, 5, "State"),
    ("def f(e):\n    del x", 2, 5, "del"),
    ("def f(e):\n    assert e.ok", 2, 5, "return False"),
    ("def f(e):\n    raise E", 2, 5, "return False"),
    ("def f(e):\n    def g(): pass", 2, 5, "in place"),
    ("def f(e):\n    class C: pass", 2, 5, "a class"),
    ("def f(e):\n    match e.badge:\n        case 1: pass", 2, 5, "if and elif"),
    ("@d\ndef f(e): return e.ok", 1, 2, "decorator"),
    ("lambda e: (", 1, 11, "never closed"),
    ("def f(e):\nreturn 1", 2, 1, "not Python"),
    ("x = 1", 1, 1, "one def or one lambda"),
    ("", 1, 1, "one def or one lambda"),
    ("def f(e): pass\ndef g(e): pass", 1, 1, "one def or one lambda"),
    ("lambda e: '\x00'", 1, 12, "cannot stand in Python source"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InterestError) as caught:
        pyfunc.parse(text, TYPE)
    problem = caught.value.problems[0]
    assert (problem.line, problem.column, message in str(problem)) == (line, column, True), str(problem)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("lambda e, out: out", 16, "output event"),
        ("lambda e, o, p: True", 14, "after a bare *"),
        ("lambda e: Average(1)", 19, "by name"),
        ("lambda e: Average(**e)", 19, "by name"),
        ("lambda e: Average(men=1)", 19, "did you mean 'mean'"),
        ("lambda e: Average(mean='x')", 19, "do not fit"),
        ("lambda e: Average(mean=None)", 24, "None is not a value"),
        ("lambda e: Averag(mean=1)", 11, "did you mean 'Average'"),
    ],
)
def test_wrong_transformations(text: str, column: int, message: str) -> None:
    with pytest.raises(InterestError) as caught:
        pyfunc.parse(text, TYPE, output=OUTPUT)
    problem = caught.value.problems[0]
    assert (problem.column, message in str(problem)) == (column, True), str(problem)


def test_the_output_is_not_read() -> None:
    with pytest.raises(InterestError, match="cannot be read"):
        pyfunc.parse("def f(e, out):\n    out.mean += 1", TYPE, output=OUTPUT)


def test_all_problems_at_once() -> None:
    lines = [
        "x = e.levl",
        "import os",
        "for i in range(e.level):",
        "    y = e.bdge + i",
        "return x > 1 and y and e.netwrk",
    ]
    text = "\n    ".join(["def f(e):", *lines])
    with pytest.raises(InterestError) as caught:
        pyfunc.parse(text, TYPE)
    assert [(p.line, p.column) for p in caught.value.problems] == [(2, 9), (3, 5), (4, 20), (5, 13), (6, 28)]


@pytest.mark.parametrize(
    "text",
    [
        "lambda e: " + "(" * 5_000 + "e.ok" + ")" * 5_000,
        "lambda e: " + "not " * 50_000 + "e.ok",
        "lambda e: " + "-" * 100_000 + "e.badge > 1",
        "lambda e: e.badge" + " + 1" * 50_000 + " > 1",
        "lambda e: e.badge" + " + 1" * 400 + " > 1",
        "lambda e: " + "abs(" * 180 + "1" + ")" * 180 + " > 1",
        "lambda e: " + "e.ok if e.ok else " * 10_000 + "e.ok",
        "lambda e: " + "e.ok if e.ok else " * 300 + "e.ok",
        "lambda e: e" + ".x" * 100_000,
        "lambda e: e.values" + "[0]" * 50_000 + " > 1",
        "lambda e: e.badge in (" + "1, " * 60_000 + ")",
        "def f(e):\n" + "".join(f"    x{i} = {i}\n" for i in range(1_000)),
        "def f(e):\n" + "    x = 1 + 1\n" * 15_000,
        "def f(e):\n    if e.ok:\n        pass\n" + "    elif e.ok:\n        pass\n" * 5_000,
        "def f(e):\n" + "".join("    " * (i + 1) + "if e.ok:\n" for i in range(90)) + "    " * 91 + "pass",
        "def f(e, *, s=State(w=[" + "0, " * 70_000 + "])):\n    return True",
        "#" * (MAX_TEXT + 1),
    ],
    ids=lambda text: text[:24] + "…",
)
@pytest.mark.timeout(60)  # it must end by itself, long before this
def test_hostile_sources_are_refused_quickly(text: str) -> None:
    with pytest.raises(InterestRefused):
        pyfunc.parse(text, TYPE)


def test_the_page_of_the_notation_tells_the_truth() -> None:
    """Every example of the page passes the example event, or is wrong where it says so."""
    page = (Path(__file__).parents[2] / "docs/notations/python.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(examples) >= 5
    for text in (each for each in examples if "Interest" not in each):  # those that are functions
        output = OUTPUT if "Average(" in text or "out." in text else None
        assert outcome(text, output=output).status is Status.PASSED, text
    lines = [
        line for block in re.findall(r"^```expressions\n(.*?)^```", page, re.M | re.S) for line in block.splitlines()
    ]
    assert len(lines) > 20
    for line in lines:
        assert outcome(f"lambda e: {line}").status is Status.PASSED, line


# ── fuzzing ──


def only_program_or_error(text: str) -> None:
    try:
        parsed = pyfunc.parse(text, TYPE)
    except InterestError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.line >= 1 and problem.column >= 1 and str(problem)
    else:
        assert isinstance(parsed.program, Program)
        values = bind(parsed.program.params, parsed.params)
        state = initial_state(parsed.program)
        run(parsed.program, EVENT, meta=META, params=values, state=state, fuel=1000)


PIECES = st.sampled_from(
    [
        "e",
        ".",
        "e.level",
        "e.badge",
        "e.network",
        "e.ok",
        "e.opt",
        "e.values",
        "e.wind",
        "e.points",
        "e.kind",
        "e.seen",
        "[0]",
        "[i]",
        "(1,2)",
        "(",
        ")",
        "[",
        "]",
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "&",
        "|",
        "^",
        "~",
        "<<",
        ">>",
        "<",
        "<=",
        "==",
        "!=",
        ">",
        ">=",
        "is",
        "not",
        "None",
        "and",
        "or",
        "in",
        "if",
        "else",
        "lambda",
        "e:",
        "1",
        "0.5",
        "'a'",
        "b'x'",
        "True",
        "len(",
        "sum(",
        "min(",
        "abs(",
        "int(",
        "x",
        "i",
        "state.n",
        "s",
        "=",
        "+=",
        ":",
        ",",
        "*",
        "for",
        "while",
        "def",
        "return",
        "range(3)",
        "State(n=0)",
        "Kind.USER",
        "meta.seq",
        "math.pi",
        "datetime(2026,1,1,tzinfo=UTC)",
        "out.x",
        "é",
        "\x00",
        "await",
        "yield",
        "...",
        "1j",
        "99999999999999999999",
        "f'{e}'",
        ":=",
        "@",
        ";",
        "\\",
        "#",
        "{",
        "}",
    ]
)


@settings(deadline=None, max_examples=examples(150))
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    only_program_or_error(text)
    only_program_or_error(f"lambda e: {text}")


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(PIECES, max_size=12))
def test_any_pieces(pieces: list[str]) -> None:
    only_program_or_error("lambda e: " + " ".join(pieces))
    only_program_or_error("def f(e, *, s=State(n=0), limit=0.5, b={1}, m={'a': 1}):\n    " + " ".join(pieces))


@settings(deadline=None, max_examples=examples(300))
@given(st.data())
def test_mutated_functions(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from([*(body for body, _ in BODIES), *(f"return {text}" for text in TRUE)]))
    text = "def f(e):\n    " + body.replace("\n", "\n    ")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        to = data.draw(st.integers(at, min(len(text), at + 4)))
        text = text[:at] + data.draw(st.one_of(PIECES, st.text(max_size=2))) + text[to:]
    only_program_or_error(text)
