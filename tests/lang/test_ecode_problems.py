"""What E-Code refuses, and where it points; hostile and arbitrary texts."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InterestError, InterestRefused
from headwater.ir.interp import initial_state, run
from headwater.types.model import Record
from tests.effort import examples
from tests.lang.ecode_event import ECHO_AVERAGE, ECHO_FILTER, META, OUT, PARAM_VALUES, VALUES, judge, parse
from tests.lang.test_ecode import PASSING, TRUE


def problems(text: str, *, output: Record | None = None) -> list[tuple[int, int, str]]:
    with pytest.raises(InterestError) as caught:
        parse(text, output=output)
    return [(p.line, p.column, p.message) for p in caught.value.problems]


# ── problems ──

PROBLEMS = [
    ("return input.levle > 1;", [(1, 14, "Reading has no field 'levle'")]),
    ("return level > 1;", [(1, 8, "no variable or parameter 'level'")]),
    ("return input.kind == USR;", [(1, 22, "enumeration Kind has no member 'USR'")]),
    ("return USER;", [(1, 8, "no variable or parameter 'USER'")]),
    ("return input.position.z;", [(1, 23, "Position has no field 'z'")]),
    ("return input.n.x;", [(1, 16, "no field 'x' here")]),
    ("return input.n[0];", [(1, 8, "this cannot be indexed")]),
    ("return input;", [(1, 8, "'input' as a whole is not a value")]),
    ("return input[0];", [(1, 8, "'input' is a record, not an array")]),
    ("return meta.colour;", [(1, 13, "no meta.colour")]),
    ("return badges;", [(1, 8, "parameter 'badges'")]),
    ("return owner.x;", [(1, 14, "parameter 'owner' has no fields")]),
    ("limit = 3; return 1;", [(1, 1, "parameter 'limit' cannot be changed here")]),
    ("input.n = 3; return 1;", [(1, 1, "the event cannot be changed")]),
    ("return f(1);", [(1, 8, "no function 'f'")]),
    ('return strcmp(input.name, "a");', [(1, 8, "strcmp() is not E-Code here")]),
    ("return sizeof(int);", [(1, 8, "sizeof is not E-Code")]),
    ("return sizeof input.n;", [(1, 8, "sizeof is not E-Code")]),
    ("return &input.n;", [(1, 8, "taking an address is not E-Code")]),
    ("return *input.name;", [(1, 8, "following a pointer is not E-Code")]),
    ("return input->n;", [(1, 15, "-> needs a pointer, and E-Code has none")]),
    ("int *p; return 1;", [(1, 5, "pointers are not E-Code")]),
    ("char **p; return 1;", [(1, 7, "pointers are not E-Code")]),
    ("int (*p)[3]; return 1;", [(1, 6, "pointers are not E-Code")]),
    ("struct P p; return 1;", [(1, 8, "a struct is not E-Code")]),
    ("struct P { int x; }; return 1;", [(1, 8, "a struct is not E-Code")]),
    ("union U u; return 1;", [(1, 7, "a union is not E-Code")]),
    ("enum { A, B } e; return 1;", [(1, 1, "an enum definition is not E-Code")]),
    ("enum Colour c; return 1;", [(1, 13, "no enumeration 'Colour' in the event types")]),
    ("typedef int whole; return 1;", [(1, 13, "a typedef is not E-Code")]),
    ("goto end; end: return 1;", [(1, 1, "goto is not E-Code"), (1, 11, "a label is not E-Code")]),
    ("switch (input.n) { case 1: return 1; }", [(1, 1, "switch is not E-Code")]),
    ("int g(int x); return 1;", [(1, 5, "functions cannot be declared")]),
    ("int g(int x) { return x; }", [(1, 14, "this is not C here")]),
    ("int v[input.n]; return 1;", [(1, 13, "the size of an array")]),
    ("int v[0]; return 1;", [(1, 7, "the size of an array")]),
    ("int v[]; return 1;", [(1, 5, "an array needs a size or values")]),
    ("int v[2] = {1, 2, 3}; return 1;", [(1, 19, "more initial values than elements")]),
    ("int v[2] = {[1] = 2}; return 1;", [(1, 19, "designated initial values are not E-Code")]),
    ('char s[] = "abc"; return 1;', [(1, 6, "an array needs a size or values")]),
    ('char s[4] = "abc"; return 1;', [(1, 6, "initial values of an array")]),
    ("int a = {1, 2}; return 1;", [(1, 5, "initial values")]),
    ("int a; int a; return 1;", [(1, 12, "'a' is declared twice")]),
    ("int input = 1; return 1;", [(1, 5, "'input' is the event's own name")]),
    ("extern int a; return 1;", [(1, 12, "extern is not E-Code")]),
    ("const int k = 1; k = 2; return 1;", [(1, 18, "'k' is const and cannot be changed")]),
    ("void v; return 1;", [(1, 1, "this is not a type of E-Code")]),
    ("long double v; return 1;", [(1, 1, "this is not a type of E-Code")]),
    ("unsigned bool v; return 1;", [(1, 1, "this is not a type of E-Code")]),
    ("static int n = input.n; return 1;", [(1, 16, "the initial value of 'n'")]),
    ("static int8_t n = 300; return 1;", [(1, 19, "the initial value of 'n'")]),
    ("static int n = 1 / 0; return 1;", [(1, 16, "the initial value of 'n'")]),
    ("static text s; return 1;", [(1, 13, "'s' cannot hold this")]),
    ("return input.n = 3;", [(1, 8, "an assignment inside an expression")]),
    ("return input.n++ + 1;", [(1, 8, "++ inside an expression")]),
    ("return (1, 2);", [(1, 9, "the comma operator inside an expression")]),
    ("input.n == 3; return 1;", [(1, 1, "this statement has no effect")]),
    ("3 = 4; return 1;", [(1, 1, "this cannot be assigned to")]),
    ("x = 1; y = 2; return 1;", [(1, 1, "no variable 'x'"), (1, 8, "no variable 'y'")]),
    ("break;", [(1, 1, "break outside a loop")]),
    ("if (1) continue; return 1;", [(1, 8, "continue outside a loop")]),
    ("return input.name;", [(1, 14, "this is used as a condition")]),
    ("return input.name + 1;", [(1, 14, "an operand of +")]),
    ("return input.level % 2;", [(1, 8, "% takes integers")]),
    ("return NULL;", [(1, 8, "NULL is only for == and !=")]),
    (
        "return 'ab' == 1;",
        [(1, 8, "a character literal holds one ASCII character; a text is written in double quotes")],
    ),
    ("return '\\xff' == 1;", [(1, 8, "characters above 127 differ between machines; write the number")]),
    ('return "\\q" == "a";', [(1, 8, "there is no escape \\q")]),
    ('return "\\xff" == "a";', [(1, 8, "these bytes are not UTF-8")]),
    ('return L"a" == "a";', [(1, 8, "only plain and u8 texts")]),
    ("return 99999999999999999999;", [(1, 8, "this integer does not fit 64 bits")]),
    ("output.x = 1; return 1;", [(1, 1, "a filter has no output")]),
    ("", [(1, 1, "this interest does nothing")]),
    ("{ /* nothing */ }", [(1, 1, "this interest does nothing")]),
    # the text itself
    ("#include <math.h>\nreturn 1;", [(1, 1, "preprocessor lines are not E-Code")]),
    (
        "return 1;\n  #define X 1\nreturn y;",
        [(2, 3, "preprocessor lines are not E-Code"), (3, 8, "no variable or parameter 'y'")],
    ),
    ("return 1; }", [(1, 11, "this '}' closes nothing")]),
    ("if (1) {\n  return 1;", [(1, 8, "this bracket is never closed: expected '}'")]),
    ("return (1;\n}", [(2, 1, "expected ')' for the '(' of line 1, column 8, found '}'")]),
    ("return 1; /* x", [(1, 11, "this comment is never closed")]),
    ('return "x;\n', [(1, 8, "this text is not closed on its line")]),
    ("return 'x;\n", [(1, 8, "this character is not closed on its line")]),
    ("/* two\nlines */ int x = 5\n  return x;", [(3, 3, "this is not C here")]),
    ("return 1", [(1, 9, "this is not C here")]),
    ("x = = 3;", [(1, 5, "this is not C here")]),
    ("foo bar;", [(1, 5, "this is not C here")]),
    ("return input.n === 5;", [(1, 18, "this is not C here")]),
    ("else return 1;", [(1, 1, "this is not C here")]),
    ("int x = @;", [(1, 9, "illegal character '@'")]),
    ("[[nodiscard]] int x;", [(1, 1, "attributes are not E-Code")]),
]


@pytest.mark.parametrize(("text", "expected"), PROBLEMS)
def test_problems(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output.z = 1; return 1;", [(1, 1, "Out has no field 'z'")]),
        (
            "output = input; return 1;",
            [(1, 1, "the output cannot be assigned as a whole"), (1, 10, "'input' as a whole is not a value")],
        ),
        ("return output.x;", [(1, 15, "the output can only be assigned, not read")]),
        ("output.x += 1; return 1;", [(1, 1, "the output can only be assigned, not read")]),
        ("output.x++; return 1;", [(1, 1, "the output can only be assigned, not read")]),
        ("output.x = input.name; return 1;", [(1, 1, "the types do not fit")]),
        ("output.position = input.grid; return 1;", [(1, 1, "the types do not fit")]),
        ("output.kind = OTHER; return 1;", [(1, 15, "enumeration Kind has no member 'OTHER'")]),
    ],
)
def test_problems_of_output(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert problems(text, output=OUT) == expected


def test_all_problems_at_once_in_order_of_the_text() -> None:
    found = problems("int *p;\nif (input.levle > 1) {\n  goto out;\n  y = input.posn.x;\n}\nreturn f(z++);\n")
    assert [place[:2] for place in found] == [(1, 5), (2, 11), (3, 3), (4, 3), (4, 13), (6, 10)]


def test_a_problem_shows_its_place_and_a_way_out() -> None:
    with pytest.raises(InterestError) as caught:
        parse("int x = 1;\nreturn input.levle > x;")
    assert str(caught.value) == (
        "1 problem in this interest\n"
        "line 2, column 14: Reading has no field 'levle'\n"
        "    | return input.levle > x;\n"
        "    |              ^^^^^\n"
        "    hint: did you mean 'level'?"
    )


# ── hostile texts ──

HOSTILE = {
    "10 MB": "x" * 10_000_000,
    "10 MB of lines": "\n" * 10_000_000,
    "tokens": "x=1;" * 60_000,
    "brackets": "return " + "(" * 5_000 + "1" + ")" * 5_000 + ";",
    "braces": "{" * 5_000 + "}" * 5_000,
    "calls": "return " + "abs(" * 100 + "1" + ")" * 100 + ";",
    "unary": "return " + "!" * 5_000 + "1;",
    "casts": "return " + "(int)" * 2_000 + "1;",
    "sum": "return input.n" + " + input.n" * 5_000 + ";",
    "comparisons": "return 1" + " < 1" * 5_000 + ";",
    "conditionals": "return " + "1 ? 1 : " * 2_000 + "1;",
    "inner conditionals": "return " + "1 ? " * 2_000 + "1" + ": 1" * 2_000 + ";",
    "else if": "if (1) return 1; " + "else if (1) return 1; " * 2_000,
    "nested if": "if (1) " * 300 + "return 1;",
    "very nested if": "if (1) " * 5_000 + "return 1;",
    "nested do": "do " * 200 + ";" + "while (0);" * 200,
    "locals": "".join(f"int x{i};" for i in range(1_001)) + "return 1;",
    "array": "double x[100000][100000] = {0}; return 1;",
    "values": "static int x[20000] = {" + "1," * 19_000 + "}; return 1;",
    "statements": "int x; " + "x = x * x + x;" * 4_000 + "return 1;",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(60)  # it must end by itself, long before this
def test_hostile_texts_are_refused_quickly(name: str) -> None:
    with pytest.raises(InterestRefused) as caught:
        parse(HOSTILE[name])
    assert caught.value.problems[0].message


def test_many_problems_are_cut_short() -> None:
    assert 50 < len(problems("x=1;" * 9_000)) < 200


def test_threads_do_not_share_a_parser() -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(20):
            try:
                if not judge(f"int x = {number}; return x == {number};").passed:
                    wrong.append(number)
                if problems(f"{'  ' * number}x = = 1;")[0][1] != 5 + 2 * number:
                    wrong.append(number)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ── anything at all ──

_WORDS = """
{ } ( ) [ ] ; , . -> ++ -- + - * / % & | ^ ~ ! = == != += <<= ? : int double static const char text timestamp void
unsigned long struct enum typedef if else for while do return break continue goto switch case sizeof input output meta
level n kind USER 1 0 2.5 1u 'a' "s" /* */ // # \\ x a sum( contains( limit badges owner _Alignof _Static_assert
_Generic inline extern _Atomic ... offsetof _Pragma [[ ]] ' " @ $ é NULL strcmp( is_missing( .values .grid[
.position 0x 1e 08
"""
_TOKENS = _WORDS.split()
_TEXTS = [ECHO_FILTER, ECHO_AVERAGE, *PASSING, *(f"return {e};" for e in TRUE), *(text for text, _ in PROBLEMS)]


def only_program_or_problems(text: str) -> None:
    for output in (None, OUT):
        try:
            program = parse(text, output=output)
        except InterestError as error:
            assert error.problems
            for problem in error.problems:
                assert 1 <= problem.line <= text.count("\n") + 1 and problem.column >= 1
                assert problem.found != "bad" or "bad" in text  # what is bad already is not reported again
                assert "the parser failed" not in problem.message
        else:
            run(program, VALUES, meta=META, params=PARAM_VALUES, state=initial_state(program), fuel=50)


@settings(deadline=None, max_examples=examples(150))
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    only_program_or_problems(text)


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(st.sampled_from(_TOKENS), max_size=25))
def test_any_tokens(tokens: list[str]) -> None:
    only_program_or_problems(" ".join(tokens))


@settings(deadline=None, max_examples=examples(400))
@given(st.data())
def test_damaged_programs(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(_TEXTS))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 8)))
        text = text[:start] + data.draw(st.sampled_from(["", *_TOKENS]) | st.text(max_size=3)) + text[end:]
    only_program_or_problems(text)
