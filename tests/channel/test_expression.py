"""Numbers computed from events: priorities and lifetimes."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.options.expression import Expression
from headwater.errors import InterestError, InterestRefused, ParameterError
from headwater.interest import as_event_type
from headwater.ir.interp import EventContext
from headwater.types import model as m
from tests import strategies as s
from tests.effort import examples

FLAT = as_event_type(
    "level: f64, badge: i32, big: u64, ok: bool, network: text, opt: i64?, seen: timestamp, values: i64[]"
)
KIND = m.Field("kind", m.Enum("Kind", (("USER", 1), ("OTHER", 2))))
TYPE = as_event_type(m.Record("Sighting", (*FLAT.record.fields, KIND)))
EVENT: dict[str, Any] = {
    "level": 0.75, "badge": 7, "big": 2**63 + 5, "ok": True, "network": "ORL-Net#1", "opt": None, "seen": 5_000_000,
    "kind": 1, "values": (1, 2, 4),
}  # fmt: skip


def weighted(e: Any, *, weight: float = 2.0) -> Any:
    if e.badge > 5:
        return e.level * weight
    return 1


CASES: list[tuple[Any, Any]] = [
    ("level * 10", 7.5),
    ("badge", 7),
    ("-badge * 2 + 1", -13),
    ("badge / 2", 3.5),
    ("big", 2**63 + 5),
    ("big - 9223372036854775808", 5),
    ("if(level > 0.5, 10, 0)", 10),
    ("if(level > 0.5, 10, 0.5)", 10.0),
    ("if(level > 5, 10, null)", None),
    ("case when badge = 1 then 1 when badge = 7 then 5 end", 5),
    ("level > 0.5", 1),
    ("network = 'x'", 0),
    ("ok", 1),
    ("opt", None),
    ("opt > 3", None),
    ("coalesce(opt, 3)", 3),
    ("badge div 0", None),
    ("sqrt(-level)", None),
    ("sum(values)", 7),
    ("micros(seen)", 5_000_000),
    ("code(kind)", 1),
    ("length(network)", 9),
    ("{ return input.level * 2; }", 1.5),
    ("{ if (input.ok) return 3; return 2.5; }", 3.0),
    ("{ if (input.ok) return; return 2; }", None),
    ("{ if (!input.ok) return 2; }", None),
    ("{ return input.badge > 5; }", 1),
    ("{ long n = 0; for (int i = 0; i < 3; i++) n += input.values[i]; return n; }", 7),
    ("{ long n = 0; while (n >= 0) n = n + input.badge; return n; }", None),
    ("lambda e: e.level + 1", 1.75),
    ("lambda e: 5 if e.ok else None", 5),
    ("lambda e: 5 if not e.ok else None", None),
    (lambda e: e.badge // 2, 3),
    (weighted, 1.5),
    ("def f(e):\n    if e.badge > 5:\n        return None\n    return e.big\n", None),
]


@pytest.mark.parametrize(("definition", "value"), CASES)
def test_a_number_of_an_event(definition: Any, value: Any) -> None:
    made, record = Expression(definition, TYPE), TYPE.encode(EVENT)
    early, late = made.value(record), made.wait().value(record)
    assert made.native
    assert early == late == made.interpret(EVENT) == value
    assert type(early) is type(late) is type(value)
    assert made.value(memoryview(record)) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "value"),
    [(3, 3), (2.5, 2.5), (-(10**30), -(10**30)), (math.inf, math.inf), (np.int64(4), 4), ("6 * 7", 42)],
)
def test_a_constant_needs_no_event(given: Any, value: Any) -> None:
    made = Expression(given, TYPE)
    assert made.constant == value and type(made.constant) is type(value) and made.native
    assert made.value(b"") == made.wait().value(b"") == made.interpret(EVENT) == value


def test_parameters() -> None:
    record = TYPE.encode(EVENT)
    assert Expression("badge * :factor", TYPE, params={"factor": 3}).wait().value(record) == 21
    assert Expression("{ return input.badge * factor; }", TYPE, params={"factor": 2.0}).wait().value(record) == 14.0
    assert Expression(weighted, TYPE, params={"weight": 4.0}).wait().value(record) == 3.0
    assert Expression(":owner[network]", TYPE, params={"owner": {"ORL-Net#1": 9}}).wait().value(record) == 9
    with pytest.raises(ParameterError, match="did you mean 'weight'"):
        Expression(weighted, TYPE, params={"wait": 4.0})


def test_what_the_service_knows_of_the_event() -> None:
    made, record = Expression("meta.seq * 2", TYPE), TYPE.encode(EVENT)
    for _ in range(2):
        assert made.value(record) is None and made.value(record, EventContext(seq=21)) == 42
        made.wait()


def test_malformed_records_have_no_number() -> None:
    made = Expression("badge", TYPE)
    for _ in range(2):
        assert made.value(b"") is None and made.value(TYPE.encode(EVENT)[:20]) is None
        made.wait()


def test_it_says_what_it_is() -> None:
    made = Expression("if(level > 0.5,\n 10, 0)", TYPE, what="lifetime")
    assert repr(made) == "<Expression lifetime: if(level > 0.5, 10, 0)>" and made.what == "lifetime"
    assert repr(Expression(5, TYPE)) == "<Expression priority: 5>"


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        (
            "network",
            "column 1: the result is not a number\n    expected: a number or boolean\n    found:    text",
        ),
        ("seen", "hint: micros(t) is a number"),
        ("kind", "hint: use code(…)"),
        ("values", "list of i64"),
        ("lambda e: e.network.lower()", "line 1, column 11: the result is not a number"),
        ("{ return input.network; }", "the result is not a number"),
        ("{ if (input.ok) return 1; return input.network; }", "line 1, column 27"),
        ("leve * 2", "hint: did you mean 'level'?"),
        ("badge +", "line 1, column 8: this is not complete"),
        ("level * network", "line 1"),
        ("", "line 1, column 1"),
        ("{ static int n = 0; n++; return n; }", "'n' is state\n    expected: an expression over one event"),
        ("def f(e, *, state=State(n=0)):\n    return state.n\n", "'n' is state"),
        ("{ int n = 0; n++; }", "this has no result"),
        ("def f(e):\n    pass\n", "this has no result"),
        ("{ output.value = 1; return 1; }", "an expression has no output"),
        ("def f(e, out):\n    return 1\n", "column 10"),
        (True, "found:    a boolean\n    hint: write 1 or 0"),
        (math.nan, "found:    NaN"),
        (None, "expected: a number, text or a function\n    found:    NoneType"),
        ([1], "found:    list"),
    ],
)
def test_wrong_expressions_point_at_the_place(definition: Any, says: str) -> None:
    with pytest.raises(InterestError) as raised:
        Expression(definition, TYPE, what="lifetime")
    assert says in str(raised.value)
    assert str(raised.value).startswith("1 problem in this lifetime\n") and len(raised.value.problems) == 1


def test_several_problems_and_refusals_are_told_as_such() -> None:
    with pytest.raises(InterestError, match=r"^2 problems in this priority"):
        Expression("leve * badg", TYPE)
    with pytest.raises(InterestRefused, match=r"^this priority is refused"):
        Expression("(" * 200 + "1" + ")" * 200, TYPE)
    with pytest.raises(InterestRefused, match=r"^this priority is refused"):
        Expression("{ while (1) { } return 1; }", TYPE)


def test_threads_share_an_expression() -> None:
    made = Expression("badge * 2", TYPE).wait()
    records = [TYPE.encode(EVENT | {"badge": n}) for n in range(50)]

    def work(_: int) -> bool:
        return all(made.value(record) == n * 2 for _ in range(20) for n, record in enumerate(records))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


# ── against the interpreter ──

LEAVES = ("level", "badge", "big", "opt", "3", "0.5", "length(network)", "sum(values)", "ok", "level > 0.5")


def texts() -> st.SearchStrategy[str]:
    numbers = st.sampled_from(LEAVES[:8])
    conditions = st.sampled_from(LEAVES[8:])

    def more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        binary = st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner)
        return binary | st.builds("if({}, {}, {})".format, conditions, inner, inner)

    return st.recursive(numbers, more, max_leaves=5) | conditions


@given(texts(), st.lists(s.raw_events(TYPE.record), min_size=1, max_size=6))
@settings(deadline=None, max_examples=examples(60))
def test_native_code_agrees_with_the_interpreter(text: str, events: list[dict[str, Any]]) -> None:
    try:
        made = Expression(text, TYPE)
    except InterestError as error:
        assert "%" in text or "results of a conditional" in str(error)  # of floats; of u64 and signed values
        return
    made.wait()
    for event in events:
        assert s.same(made.value(TYPE.encode(event)), made.interpret(event))
