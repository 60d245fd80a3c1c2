"""The kernel language: the same results in CPython and as machine code, and a reason for everything else."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ExecutionError, KernelError
from headwater.native import subset
from headwater.native.subset import (
    Arrays,
    Kernel,
    bits,
    f64,
    f64s,
    i32s,
    i64,
    i64s,
    kernel,
    mul_overflows,
    trailing_zeros,
    u8s,
)
from tests.effort import examples

LEAST, MOST = -(1 << 63), (1 << 63) - 1
SIZE = 8  # elements of each array; a power of two, so that any index can be cut to fit
STRIDE = 3
HALF = 0.5


def made(text: str, **names: Any) -> Kernel:
    """The kernel of a source text, which tracebacks and the checker find as they find a file's."""
    file = f"<kernel {made.count}>"  # type: ignore[attr-defined]
    made.count += 1  # type: ignore[attr-defined]
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    scope = {**vars(subset), "STRIDE": STRIDE, "HALF": HALF, **names, "__name__": file}
    exec(compile(text, file, "exec"), scope)
    return kernel(scope["f"])


made.count = 0  # type: ignore[attr-defined]


def run(it: Kernel, mode: Any, arrays: list[Any], *numbers: Any) -> tuple[Any, list[bytes]]:
    copies = [array.copy() for array in arrays]
    result = it.bind(mode, *copies)(*numbers)
    return (bits(result) if isinstance(result, float) else result), [copy.tobytes() for copy in copies]


# ── random programs ──

integers = st.one_of(st.integers(-4, 70), st.sampled_from([LEAST, LEAST + 1, MOST, MOST - 1]), st.integers(LEAST, MOST))
floats = st.floats(allow_nan=True, allow_infinity=True, width=64)


@st.composite
def whole(draw: Any, depth: int) -> str:
    if depth == 0:
        return draw(
            st.one_of(st.sampled_from(["x", "y", "n", "STRIDE"]), integers.filter(lambda v: v > LEAST).map(_literal))
        )
    inner = whole(depth - 1)
    kind = draw(st.integers(0, 9))
    if kind <= 3:
        return f"({draw(inner)} {draw(st.sampled_from(['+', '-', '*', '&', '|', '^', '<<', '>>']))} {draw(inner)})"
    if kind == 4:
        return f"({draw(inner)} {draw(st.sampled_from(['//', '%']))} {draw(st.integers(1, 1 << 40))})"
    if kind == 5:
        return f"({draw(st.sampled_from(['-', '~']))}{draw(inner)})"
    if kind == 6:
        array = draw(st.sampled_from(["a", "c", "d"]))
        return f"{array}[{draw(inner)} & {SIZE - 1}]"
    if kind == 7:
        return f"({draw(inner)} if {draw(truth(depth - 1))} else {draw(inner)})"
    if kind == 8:
        name, count = draw(st.sampled_from([("logical_shift", 2), ("trailing_zeros", 1), ("mul_overflows", 2)]))
        return f"{name}({', '.join(draw(inner) for _ in range(count))})"
    return f"{draw(st.sampled_from(['int', 'bits']))}({draw(real(depth - 1))})"


@st.composite
def real(draw: Any, depth: int) -> str:
    if depth == 0:
        return draw(st.one_of(st.sampled_from(["u", "v", "HALF"]), st.floats(0, 1e300).map(repr)))
    inner = real(depth - 1)
    kind = draw(st.integers(0, 5))
    if kind <= 2:
        return f"({draw(inner)} {draw(st.sampled_from('+-*/'))} {draw(inner)})"
    if kind == 3:
        return f"(-{draw(inner)})"
    if kind == 4:
        return f"b[{draw(whole(depth - 1))} & {SIZE - 1}]"
    return f"float({draw(whole(depth - 1))})"


@st.composite
def truth(draw: Any, depth: int) -> str:
    if depth == 0 or draw(st.booleans()):
        of = draw(st.sampled_from([whole, real]))
        sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        return f"{draw(of(max(0, depth - 1)))} {sign} {draw(of(max(0, depth - 1)))}"
    if draw(st.booleans()):
        return f"not ({draw(truth(depth - 1))})"
    return f"({draw(truth(depth - 1))}) {draw(st.sampled_from(['and', 'or']))} ({draw(truth(depth - 1))})"


@st.composite
def block(draw: Any, depth: int, indent: str, loops: int = 0) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 8 if depth else 4))
        match kind:
            case 0:
                lines.append(f"{indent}{draw(st.sampled_from('xy'))} = {draw(whole(2))}")
            case 1:
                lines.append(f"{indent}{draw(st.sampled_from('uv'))} = {draw(real(2))}")
            case 2:
                array, op = draw(st.sampled_from("acd")), draw(st.sampled_from(["=", "+=", "^=", "<<="]))
                lines.append(f"{indent}{array}[{draw(whole(1))} & {SIZE - 1}] {op} {draw(whole(2))}")
            case 3:
                lines.append(
                    f"{indent}b[{draw(whole(1))} & {SIZE - 1}] {draw(st.sampled_from(['=', '*=']))} {draw(real(2))}"
                )
            case 4:
                name, op = draw(st.sampled_from("xy")), draw(st.sampled_from(["+=", "-=", "*="]))
                lines.append(f"{indent}{name} {op} {draw(whole(1))}")
            case 5 | 6:
                lines += [f"{indent}if {draw(truth(2))}:", *draw(block(depth - 1, indent + "    ", loops))]
                if draw(st.booleans()):
                    lines += [f"{indent}else:", *draw(block(depth - 1, indent + "    ", loops))]
            case 7:
                span = draw(st.sampled_from(["3", "n & 3", "1, 4", "3, -1, -1", "2, 2"]))
                lines += [
                    f"{indent}for i{loops} in range({span}):",
                    *draw(block(depth - 1, indent + "    ", loops + 1)),
                ]
                if draw(st.booleans()):
                    leave = draw(st.sampled_from(["break", "continue", "return x"]))
                    lines += [f"{indent}    if {draw(truth(1))}:", f"{indent}        {leave}"]
            case 8:
                name = f"w{loops}_{len(lines)}"
                lines += [f"{indent}{name} = 0", f"{indent}while {name} < 3 and ({draw(truth(1))}):"]
                lines += [f"{indent}    {name} += 1", *draw(block(depth - 1, indent + "    ", loops + 1))]
    return lines


def _literal(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


HEAD = "def f(a: i64s, b: f64s, c: i32s, d: u8s, n: i64, u: f64) -> i64:\n    x = n\n    y = 1\n    v = u\n"
TAIL = "\n    a[0] = y\n    b[0] = v\n    return x\n"


@settings(max_examples=examples(25))
@given(st.data())
def test_random_programs_do_the_same_in_both_executions(data: st.DataObject) -> None:
    text = HEAD + "\n".join(data.draw(block(2, "    "))) + TAIL
    it = made(text)
    for _ in range(3):
        arrays = [
            np.array(data.draw(st.lists(integers, min_size=SIZE, max_size=SIZE)), np.int64),
            np.array(data.draw(st.lists(floats, min_size=SIZE, max_size=SIZE)), np.float64),
            np.array(
                data.draw(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=SIZE, max_size=SIZE)), np.int32
            ),
            np.array(data.draw(st.lists(st.integers(0, 255), min_size=SIZE, max_size=SIZE)), np.uint8),
        ]
        n, u = data.draw(integers), data.draw(floats)
        one, other = run(it, "interpreted", arrays, n, u), run(it, "compiled", arrays, n, u)
        assert one[0] == other[0], text
        for k, (left, right) in enumerate(zip(one[1], other[1], strict=True)):
            if k == 1:  # which NaN it is does not matter
                np.testing.assert_array_equal(np.frombuffer(left), np.frombuffer(right), text)
            else:
                assert left == right, text


# ── what it is for ──


@kernel
def doubled(values: i64s, at: i64) -> i64:
    """A kernel that another one calls."""
    values[at] *= 2
    return values[at]


@kernel
def total(values: i64s, count: i64) -> i64:
    sum = 0
    for i in range(count):
        sum += doubled(values, i)
    return sum


@pytest.mark.parametrize("mode", ["interpreted", "compiled"])
@pytest.mark.parametrize("short", [False, True])
def test_kernels_call_kernels_and_write_into_arrays(mode: Any, short: bool) -> None:
    values = np.arange(5)
    assert total.bind(mode, values, short=short)(5) == 20
    assert values.tolist() == [0, 2, 4, 6, 8]


def test_a_kernel_that_is_called_runs_in_cpython_with_bounds() -> None:
    assert total(np.arange(3), 3) == 6
    with pytest.raises(IndexError):
        total(np.arange(3), 4)
    with pytest.raises(IndexError, match="expected 0 or more"):
        doubled(np.arange(3), -1)


def test_numbers_at_their_ends() -> None:
    lines = ("a[0] = n * n", "a[1] = -n", "a[2] = n // 7", "a[3] = n % 7", "return n - 1")
    text = "def f(a: i64s, n: i64) -> i64:\n" + "".join(f"    {line}\n" for line in lines)
    it, arrays = made(text), [np.zeros(4, np.int64)]
    for n in (LEAST, -1, 0, MOST):
        assert run(it, "interpreted", arrays, n) == run(it, "compiled", arrays, n)


def test_division_by_zero_is_that_of_the_machine() -> None:
    it = made("def f(b: f64s, x: f64) -> f64:\n    return x / b[0]\n")
    for x in (1.0, -1.0, 0.0, math.nan):
        for y in (0.0, -0.0):
            arrays = [np.array([y])]
            assert run(it, "interpreted", arrays, x) == run(it, "compiled", arrays, x)


def test_functions_of_the_language() -> None:
    assert trailing_zeros(0) == 64 and trailing_zeros(LEAST) == 63 and mul_overflows(LEAST, -1) == 1
    assert bits(math.nan) == bits(-math.nan) == 0x7FF8 << 48


def test_other_arrays_than_expected_are_refused() -> None:
    with pytest.raises(ExecutionError, match="values: expected one row of int64, found ndarray of float64"):
        total.bind("compiled", np.zeros(3))
    with pytest.raises(ExecutionError, match="expected 1 arrays"):
        total.bind("compiled")


REFUSED = {
    "    x = [1]\n    return 0": r"2: expected an expression of the kernel language, found \[1\]",
    "    x = n / 2\n    return 0": r"2: expected \+ - \* & \| \^ << >> // or % of i64, found Div",
    "    x = n // n\n    return 0": "2: expected division by a positive constant, found n",
    "    x = n + 1.0\n    return 0": "2: expected two numbers of one type, found i64 and f64",
    "    if n:\n        return 1\n    return 0": "2: expected a comparison, found i64",
    "    if n > 0:\n        return 1": "1: expected a `return` on every way",
    "    if n > 0:\n        x = 1\n    return x": "4: x: expected a value on every way to here",
    "    x = 1\n    x = 1.0\n    return 0": "3: x: expected i64 as before, found f64",
    "    x = n > 0\n    return 0": "2: x: expected a number, found a truth value",
    "    x = 1 if 0 < n < 3 else 0\n    return x": "2: expected one comparison of two numbers",
    "    b = a\n    return 0": "2: expected a number, found the array a",
    "    return a[1.0]": "2: expected i64, found f64",
    "    return n[0]": "2: expected an element of a parameter that is an array",
    "    del n\n    return 0": "2: expected a statement of the kernel language, found del n",
    "    for x in a:\n        pass\n    return 0": r"2: expected range\(…\), found a",
    "    for x in range(0, 9, 2):\n        pass\n    return 0": "2: expected steps of 1 or -1, found 2",
    "    return print(n)": "2: print: expected a kernel, int, float or one of bits",
    "    return f(a, n)": "2: f: expected a kernel",
    "    return 9223372036854775808": "2: expected an i64, found 9223372036854775808",
    "    return unknown": "2: unknown: expected a parameter, a local or a number of the module, found None",
    "    return 0\n    return 1": "3: expected no statement after one that leaves the block",
    "    return len(a)": "2: len: expected a kernel",
    "    global x\n    return 0": "2: expected a statement of the kernel language, found global x",
    "    return (lambda: 0)()": "2: expected an expression of the kernel language",
    "    x: f64 = 1\n    return 0": "2: expected f64, found i64",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_in_the_language_is_refused_with_its_place(body: str) -> None:
    with pytest.raises(KernelError, match=REFUSED[body]):
        made(f"def f(a: i64s, n: i64) -> i64:\n{body}\n")


def test_all_problems_come_at_once() -> None:
    with pytest.raises(KernelError) as caught:
        made("def f(a: list, n: i64) -> i64:\n    x = 'a'\n    y = None\n    return n\n")
    assert [line for line, _ in caught.value.problems] == [1, 2, 3]


@pytest.mark.parametrize(
    "head", ["def f(*a: i64) -> i64", "def f(a: i64 = 1) -> i64", "def f(a) -> i64", "def f(a: i64)"]
)
def test_other_heads_are_refused(head: str) -> None:
    with pytest.raises(KernelError):
        made(f"{head}:\n    return 0\n")


# ── arrays in common ──


class Sums(Arrays):
    unused: i64s
    small: u8s
    values: i64s
    totals: f64s


@kernel
def scaled(it: Sums, upto: i64) -> f64:
    for i in range(upto):
        it.totals[0] += float(it.values[i] * STRIDE)
    return it.totals[0]


@kernel
def scaled_more(it: Sums, others: i64s, upto: i64) -> f64:
    return scaled(it, upto + others[0] + it.small[0])


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_a_kernel_takes_those_of_the_arrays_in_common_that_it_and_its_callees_use(mode: Any) -> None:
    assert list(scaled.checked.parameters) == ["values", "totals", "upto"]
    assert list(scaled_more.checked.parameters) == ["small", "values", "totals", "others", "upto"]
    small, values, sums = np.array([1], np.uint8), np.arange(5), np.zeros(2)
    assert scaled_more.bind(mode, small, values, sums, np.array([2]))(1) == sums[0] == 3.0 * (0 + 1 + 2 + 3)


@pytest.mark.parametrize(
    "text, why",
    [
        ("return it.nothing[0]", r"it\.nothing: expected one of unused, small, values, totals"),
        ("return it", "it: expected one of its arrays, or a call"),
        ("return inner(it, n)", "inner: expected a kernel whose first parameter is Sums"),
        ("values = 1\n    return it.values[values]", "values: expected another name than that of an array"),
        ("it = 1\n    return it", "it: expected another name than that of an array"),
        ("return it.totals[0]", "expected i64, found f64"),
    ],
)
def test_arrays_in_common_are_used_by_their_names(text: str, why: str) -> None:
    with pytest.raises(KernelError, match=why):
        made(f"def f(it: Sums, n: i64) -> i64:\n    {text}\n", Sums=Sums, inner=double_it)


@kernel
def double_it(a: i64s, n: i64) -> i64:
    return a[n] * 2


__all__ = ["f64", "f64s", "i32s", "i64", "i64s", "u8s"]
