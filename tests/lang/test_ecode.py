"""What E-Code means: every construct through the reference interpreter."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.ir import notes
from headwater.ir.interp import Fault, Status, initial_state, run
from headwater.ir.nodes import If, Loop
from headwater.lang import ecode
from headwater.types.model import F64, Array, Field, Record
from tests.lang.ecode_event import ECHO_AVERAGE, ECHO_FILTER, OUT, PARAM_VALUES, VALUES, judge, parse

# ── the two programs of ECho ──


@pytest.mark.parametrize(
    ("level", "status"), [(0.6, Status.PASSED), (0.5, Status.REJECTED), (float("nan"), Status.REJECTED)]
)
def test_the_filter_of_echo(level: float, status: Status) -> None:
    program = ecode.parse(ECHO_FILTER, Record("Level", (Field("level", F64),)))
    assert run(program, {"level": level}).status is status


def test_the_average_of_echo() -> None:
    wind = Record("Wind", (Field("wind_velocity", Array(F64, (253, 37))),))
    average = Record("Average", (Field("average_velocity", F64),))
    program = ecode.parse(ECHO_AVERAGE, wind, output=average)
    field = [[(j * 37 + i) % 11 / 8 for i in range(37)] for j in range(253)]
    total = 0.0
    for i in range(37):
        for j in range(253):
            total += field[j][i]
    outcome = run(program, {"wind_velocity": field})
    assert outcome.passed and outcome.output == {"average_velocity": total / (37 * 253)}


# ── meaning: each of these is true ──

TRUE = [
    # literals
    "1",
    "0x1F == 31 && 0X1f == 31",
    "017 == 15 && 0 == 00",
    "0b101 == 5",
    "10L == 10ll && 10uLL == 10u",
    "1.5f == 1.5 && 0.1f != 0.1 && 1e2 == 100. && .5 == 0x1p-1",
    "0.1f == (float)0.1",
    "'a' == 97 && '\\n' == 10",
    "'\\0' == 0 && '\\x41' == 'A' && '\\101' == 'A' && '\\'' == 39",
    '"a\\tb" == "a\tb" && "\\x62" "c" == "bc"',
    '"\\xc3\\xa9" == "é" && "\\u00e9" == "é" && "\\U0001F600" == "😀" && u8"é" == "é"',
    '"\\"\\\\\\?" == "\\"\\\\?"',
    '"/* no */ // comment" != ""',
    "18446744073709551615 == 0xffffffffffffffff",
    "-9223372036854775808 < 0",
    "true && !false && true + true == 2",
    "INFINITY > 1e308 && NAN != NAN",
    # operators
    "7 / 2 == 3 && -7 / 2 == -3 && 7 / -2 == -3",
    "7 % 3 == 1 && -7 % 3 == -1",
    "7 / 2.0 == 3.5",
    "1 + 2 * 3 == 7",
    "(6 & 3) == 2 && (6 | 3) == 7 && (6 ^ 3) == 5 && ~6 == -7",
    "1 << 4 == 16 && -16 >> 2 == -4",
    "!0 && !!5 && !0.0 && -(-3) == 3 && +3 == 3 && +(1 < 2) == 1",
    "(1 < 2) + (2 > 1) == 2",
    "(1 < 2) > (2 < 1)",
    "1 < 2 == 1",
    "0 || 2",
    "input.n ? 1 : 0",
    "(0 ? 1 : 2.5) == 2.5",
    "0 ? 0 : 1 ? 1 : 0",
    "0.1 + 0.2 != 0.3",
    "input.big == 9223372036854775808u && input.big > -1",
    "input.byte + 100 == 300",
    "input.small - 200 == -203",
    "(int)2.9 == 2 && (int)-2.9 == -2 && (bool)0.5 == 1",
    "(unsigned char)200 == 200",
    "(double)7 / 2 == 3.5",
    # fields
    "input.level > 0.5",
    "input.position.x == 3 && input.position.y == 4.0",
    "input.grid[1][2] == 6",
    "input.ok",
    "input.grid[input.n - 6][0] == 4",
    "input.values[1] == 2.5f",
    'input.name == "badge é"',
    'input.text == "t"',
    "input.kind == USER",
    "USER == input.kind && ADMIN != input.kind",
    'input.kind == "USER"',
    "code(input.kind) == 1",
    "(input.n > 3 ? ADMIN : input.kind) == ADMIN",
    "(input.n > 3 ? input.kind : ADMIN) == USER",
    "coalesce(input.kind, ADMIN) == USER",
    "in(input.kind, ADMIN, USER)",
    'input.at > "2026-01-01" && input.at < timestamp("2027-01-01T00:00:00Z")',
    "input.at - input.at == 0",
    "input.at + seconds(1) > input.at",
    "(timestamp)(5) < input.at",
    "input.raw == input.raw",
    # missing
    "is_missing(input.note) && has(input.name) && !has(input.maybe)",
    "input.note == NULL && NULL != input.name",
    'is_missing(input.note == "x")',
    "is_missing(input.maybe.x)",
    'coalesce(input.note, "none") == "none"',
    "is_missing(1 / (input.n - 7)) && is_missing(input.values[2])",
    # functions
    "abs(-3) == 3 && fabs(-3) == 3.0 && fabs(-2.5) == 2.5 && labs(-3L) == 3",
    "fmin(1, 2.5) == 1 && fmax(1, 2.5) == 2.5",
    "min(3, 1, 2) == 1 && max(3, 1, 2) == 3",
    "sqrt(16) == 4 && floor(-2.5) == -3 && ceil(2.1) == 3",
    "isnan(NAN)",
    "pow(2, 10) == 1024 && fmod(7, 4) == 3",
    "distance(0, 0, input.position.x, input.position.y) == 5",
    'strlen("é") == 2 && length("é") == 1',
    'starts_with(input.name, "bad") && contains(input.name, "dge")',
    'strcmp(input.name, "badge é") == 0 && strcmp("a", "b") < 0 && 0 < strcmp("b", "a") && !strcmp("a", "a")',
    'strstr(input.name, "dge") != NULL && strstr(input.name, "x") == NULL && strstr("hay", "a")',
    "len(input.values) == 2 && sum(input.values) == 4 && mean(input.grid) == 3.5 && max(input.grid) == 6",
    'like(input.name, "b%") && lower("ABC") == "abc"',
    "year(input.at) == 2026 && hour(input.at) >= 0",
    # parameters and what the service knows
    "input.level > limit",
    "contains(badges, input.n) && in(badges, 9) && !in(badges, 8)",
    "in(input.n, 1, 7, 9)",
    'owner[input.n] == "Ann" && lookup(owner, 7) == "Ann" && is_missing(owner[8])',
    "in(owner, 7)",
    "contains(names, input.text)",
    'meta.source == "hall" && meta.node == "node-1" && meta.seq % 2 == 0',
    "meta.time > input.at",
]


@pytest.mark.parametrize("expression", TRUE)
def test_expressions(expression: str) -> None:
    assert judge(f"return {expression};").passed
    assert judge(f"return !({expression});").status is Status.REJECTED


PASSING = [
    # falling off, returning
    "if (input.n == 7) return 1;",
    "{ return 0.5; }",
    "return -1;",
    "{ { ; } } return 1; return 0;",
    "if (input.n != 7) return 0; else return 1;",
    "if (0) return 0; else if (0) return 0; else { return 1; }",
    # a missing test takes neither branch
    'int x = 0; if (input.note == "a") x = 1; else x = 2; return x == 0;',
    # locals
    "int a = 3, b = a * 2; return b == 6;",
    "int a; a = 5; return a == 5;",
    "int a; return is_missing(a);",
    "int a = 2.9; return a == 2;",
    "float f = 0.1; return f != 0.1 && f == 0.1f;",
    "bool b = 7; return b + 1 == 2;",
    "unsigned int u = 4000000000; return u > 0;",
    "signed char c = -128; unsigned short s = 65535; return s + c > 0;",
    "int8_t a = 1; uint8_t b = 255; int64_t c = 1; uint64_t d = 1; size_t e = 1; return a + b + c + d + e == 259;",
    "long long a = 1; long int b = 1; unsigned long long int c = 1; short int d = 1; return a + b + c + d == 4;",
    "_Bool b = 0.5; const double k = 2; register int r = 1; volatile int v = 1; return b && k == 2 && r == v;",
    'text s = input.name; char *t = "x"; const char *u = s; return u == input.name && t != u;',
    "timestamp t = input.at; t = t + hours(1); return t - input.at == 3600000000;",
    'timestamp t = "2026-01-01"; return t < input.at;',
    "bytes b = input.raw; return length(b) == 2;",
    "enum Kind k = ADMIN; k = input.kind; return k == USER;",
    "int text = 4, bytes = 5; return text * bytes == 20;",
    "double sum = 1; return sum + sum(input.values) == 5;",
    "int limit = 3; return limit == 3;",
    "int a = 1; { int a = 2; a = 3; } return a == 1;",
    # assignments
    "int a = 7; a += 3; a -= 1; a *= 2; a /= 4; a %= 3; return a == 1;",
    "int a = 6; a &= 3; a |= 8; a ^= 1; return a == 11;",
    "int a = 1; a <<= 4; a >>= 2; return a == 4;",
    "int a = 1; a++; ++a; a--; --a; a++; return a == 2;",
    "int a, b, c; a = b = c = 7; return a + b + c == 21;",
    "double a; int b; a = b = 2.9; return a == 2;",
    "int a = 1, b; a += b = 3; return a == 4 && b == 3;",
    "int a, b; a = 1, b = 2; return a + b == 3;",
    # loops
    "int s = 0; for (int i = 0; i < 5; i++) s += i; return s == 10;",
    "int s = 0, i, j; for (i = 0, j = 9; i < j; i++, j--) s += j - i; return s == 25;",
    "int s = 0; for (int i = 0; ; i++) { if (i == 2) continue; if (i > 4) break; s += i; } return s == 8;",
    "int s = 0; while (s < 10) s += 3; return s == 12;",
    "int s = 0; do s++; while (s < 0); return s == 1;",
    "int i = 0, s = 0; do { i++; if (i == 3) continue; if (i == 6) break; s += i; } while (i < 9); return s == 12;",
    "int c = 0; for (int i = 0; i < 3; i++) { int j = 0; do { j++; c++; } while (j < 2); } return c == 6;",
    "for (;;) return 1;",
    "int i = 0; while (input.values[i] > 0) i++; return i == 2;",
    # arrays
    "int a[3] = {1, 2, 3}; return a[0] + a[2] == 4;",
    "int a[3] = {1}; return a[0] == 1 && a[2] == 0;",
    "int a[3]; return is_missing(a[0]);",
    "int a[] = {4, 5}; return a[1] == 5;",
    "int a[2 * 2] = {0}; return a[3] == 0;",
    "double m[2][3] = {{1, 2}, {3}}; return m[0][1] == 2 && m[0][2] == 0 && m[1][0] == 3 && m[1][2] == 0;",
    "int m[][2] = {1, 2, 3}; return m[1][0] == 3 && m[1][1] == 0;",
    "int m[][2] = {{1}, {2}, {3}}; return m[2][0] == 3;",
    "long a[10][20] = {{0, 5}}; a[9][19] += 2; return a[0][1] == 5 && a[9][19] == 2 && a[4][4] == 0;",
    "bool seen[40] = {0}; seen[39] = 1; return seen[39] && !seen[0];",
    "int a[2] = {1, 2,}; a[0]++; --a[1]; return a[0] == 2;",
    'text names[2] = {"x"}; names[1] = input.text; return names[0] == "x" && names[1] == "t";',
    'const char *names[2] = {"x", "y"}; return names[1] == "y";',
    "int a[4] = {0}; a[0] = a[1] = 3; return a[0] + a[1] == 6;",
    # state
    "static int n; n++; return n == 1;",
    "static long n = 37 * 253 - -1; return n == 9362;",
    "static double d = -1.5e3; return d < 0;",
    "static float f = 0.1; return f == 0.1f;",
    "static int a[3] = {1, 2}; return a[1] == 2 && a[2] == 0;",
    "static bool first = true; return first;",
    "static timestamp last; return input.at > last;",
    "static enum Kind last = ADMIN; return last != input.kind;",
    "static unsigned char c = 'a' + 1; return c == 98;",
    # text
    "/* a */ return /* b\n */ 1; // c",
    "return 1; // \\\n return 0;",
    "return \\\n 1;",
    "\r\nreturn 1;\r\n",
    "return'a'==97;",
    "int input_n = 1; return input_n;",
]


@pytest.mark.parametrize("text", PASSING)
def test_statements(text: str) -> None:
    assert judge(text).passed


REJECTING = [
    "return 0;",
    "return;",
    "int a = 1;",
    "if (input.n == 8) return 1;",
    "return 0.0;",
    "for (;;) break;",
    "return false;",
]


@pytest.mark.parametrize("text", REJECTING)
def test_rejects(text: str) -> None:
    assert judge(text).status is Status.REJECTED


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('return input.note == "a";', Fault.NONE),
        ("int8_t a = 200; return a;", Fault.OVERFLOW),
        ("return input.n / 0;", Fault.DIVISION),
        ("return input.level / 0 > 1;", Fault.DIVISION),
        ("return input.grid[2][0];", Fault.INDEX),
        ("int a[2] = {0}; return a[2];", Fault.INDEX),
        ("return 5u - 6u;", Fault.OVERFLOW),
        ("return 1 << 63;", Fault.OVERFLOW),
        ("while (1) ;", Fault.FUEL),
    ],
)
def test_undecided(text: str, fault: Fault) -> None:
    outcome = judge(text)
    assert outcome.status is Status.UNDECIDED and outcome.faults is fault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output.x = input.n + 1; return 1;", {"x": 8}),
        ("output.x = 2.9; output.y = 3; return 1;", {"x": 2, "y": 3.0}),
        ("output.x = output.y = 2.5; return 1;", {"x": 2, "y": 2.5}),
        ("int a; a = output.x = 2.5; return a == 2;", {"x": 2}),
        ('output.kind = ADMIN; output.label = "a"; return 1;', {"kind": 2, "label": "a"}),
        (
            "output.position = input.position; output.grid = input.grid; return 1;",
            {"position": {"x": 3.0, "y": 4.0}, "grid": [[1, 2, 3], [4, 5, 6]]},
        ),
        ("output.position.x = 1; output.position.y = input.position.x; return 1;", {"position": {"x": 1.0, "y": 3.0}}),
        ("for (int i = 0; i < 3; i++) output.grid[1][i] = i * i; return 1;", {"grid": [[0, 0, 0], [0, 1, 4]]}),
    ],
)
def test_output(text: str, expected: dict[str, Any]) -> None:
    outcome = judge(text, output=OUT)
    assert outcome.passed and outcome.output is not None
    assert {name: value for name, value in outcome.output.items() if value is not None} == expected


def test_state_lives_on() -> None:
    program = parse("static int n = -1; static double last[2]; n++; last[n % 2] += n; return n % 3 == 0;")
    state = initial_state(program)
    kept = [run(program, VALUES, params=PARAM_VALUES, state=state).passed for _ in range(7)]
    assert kept == [True, False, False, True, False, False, True]
    assert list(state.values()) == [6, [12.0, 9.0]]


def test_a_do_while_stands_once() -> None:
    program = parse("int i = 0; do { if (i) i++; else i = 5; } while (i < 9); return i;")
    [loop] = [stmt for stmt in program.body if isinstance(stmt, Loop)]
    assert sum(isinstance(stmt, If) for stmt in loop.body) == 1


def test_layout_does_not_matter() -> None:
    assert parse("return input.n>1;") == parse("{ /* with braces */\n  return  input . n > 1 ;\n}\n")


def test_long_but_sound_texts_are_taken() -> None:
    chain = " && ".join(f"input.n != {i}" for i in range(100, 600))
    assert judge(f"return {chain};").passed
    ladder = " else ".join(f"if (input.n == {i}) return 0;" for i in range(100, 200))
    assert judge(ladder + " return 1;").passed
    assert judge("/*" + "x" * (notes.MAX_TEXT - 100) + "*/ return 1;").passed
