"""The source of a Python function: its syntax tree, its text, and what its free names stand for. Nothing is executed.

A function's place in its file comes from its code object, so that the right one of several lambdas on a line is found
by its columns. The text is cut out and its indentation removed; `Source.span` maps nodes of the tree to it.
"""

from __future__ import annotations

import ast
import dis
import linecache
import textwrap
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from headwater.errors import InterestError
from headwater.ir.nodes import NOWHERE, Span
from headwater.lang.source import check_text, refusal, syntax_error, too_deep

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_HOW = "define the function in a file, or give its source as text"


class Source:
    """A function's tree and text; `defaults` are its keyword-only defaults where a live function was given."""

    def __init__(
        self,
        node: Function,
        text: str,
        lines: list[str],
        first: int,
        cut: list[int],
        function: FunctionType | None,
    ) -> None:
        self.node, self.text = node, text
        self.function = function
        self.defaults: Mapping[str, Any] | None = None
        self._names: Mapping[str, Any] = {}
        if function is not None:
            self.defaults = dict(function.__kwdefaults__ or {})
            self._names = function.__globals__ | _cells(function)
        self._lines, self._first, self._cut = lines, first, cut
        self._starts = [0]
        for line, gone in zip(lines, cut, strict=True):
            self._starts.append(self._starts[-1] + len(line) - gone + 1)

    def span(self, node: Any) -> Span:
        """Where a node stands in the text."""
        if getattr(node, "lineno", None) is None:
            return NOWHERE
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return Span(start, max(start, end))

    def _offset(self, lineno: int, column: int) -> int:
        """The tree counts bytes of UTF-8, the text characters."""
        at = min(max(lineno - self._first, 0), len(self._lines) - 1)
        line = self._lines[at]
        if not line.isascii():
            column = len(line.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))
        return self._starts[at] + max(0, min(column, len(line)) - self._cut[at])

    def resolve(self, name: str) -> tuple[bool, Any]:
        """Whether a free name has a value here, and which. Text has no surroundings to look in."""
        if name in self._names:
            return True, self._names[name]
        return False, None


def _cells(function: FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return found


def read(function_or_source: Callable[..., Any] | str) -> Source:
    """The source of a function, of a lambda, or of text that holds exactly one of them."""
    if isinstance(function_or_source, str):
        return _from_text(function_or_source)
    return _from_function(function_or_source)


# ── from text ──


def parse_text(text: str) -> ast.Module:
    """Python's own parser, its complaints as problems with a place."""
    at = next((i for i, c in enumerate(text) if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if at is not None:
        message = "this character cannot stand in Python source"
        raise syntax_error(text, Span(at, at + 1), message, found=ascii(text[at]))
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise _syntax_error(text, error) from None
    except (RecursionError, MemoryError):
        raise too_deep(text, Span(0, len(text))) from None
    except ValueError as error:
        raise syntax_error(text, Span(0, 1), "this is not Python", found=str(error)[:80]) from None


def _syntax_error(text: str, error: SyntaxError) -> InterestError:
    lines = text.split("\n")
    line = min(max(error.lineno or 1, 1), len(lines))
    start = sum(len(before) + 1 for before in lines[: line - 1]) + min(
        max((error.offset or 1) - 1, 0), len(lines[line - 1])
    )
    if "too many nested" in (error.msg or "") or "too many levels" in (error.msg or ""):
        return refusal(text, Span(start, start), error.msg)
    width = (error.end_offset or 0) - (error.offset or 0) if error.end_lineno == error.lineno else 1
    return syntax_error(text, Span(start, start + max(1, width)), f"this is not Python: {error.msg}")


def _from_text(text: str) -> Source:
    text = plain_text(text)
    found = from_tree(parse_text(text), text)
    if found is None:
        place = Span(0, min(len(text), 1))
        raise syntax_error(text, place, "this is not one function", expected="one def or one lambda, and nothing else")
    return found


def plain_text(text: str) -> str:
    """Without common indentation. Python ends a line at other characters too; one kind keeps the count of lines and of
    characters simple."""
    text = textwrap.dedent(check_text(text, "the Python source"))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")


def from_tree(module: ast.Module, text: str) -> Source | None:
    """The source of the only function of a tree whose places are those of a text."""
    lines = text.split("\n")
    node = _only_function(module)
    return None if node is None else Source(node, text, lines, 1, [0] * len(lines), None)


def _only_function(module: ast.Module) -> Function | None:
    match module.body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as node]:
            return node
        case [ast.Expr(value=ast.Lambda() as node)] | [ast.Assign(value=ast.Lambda() as node)]:
            return node
    return None


# ── from a live function ──


def _from_function(function: Any) -> Source:
    """The text of a function and where it is in its file, found by its code object: a line may have several lambdas."""
    if not isinstance(function, FunctionType):
        found = type(function).__name__
        raise syntax_error("", NOWHERE, "this is not a function", expected="a function, a lambda, or source text",
                           found=found, hint="wrap it: lambda e: …" if callable(function) else None)  # fmt: skip
    code = function.__code__
    lines = _file_lines(function)
    candidates = _functions(_tree("".join(lines), code.co_filename))
    node = _pick(candidates, code)
    lines = [line.rstrip("\r\n").replace("\f", " ") for line in lines]
    last = node.end_lineno or node.lineno
    mine = lines[node.lineno - 1 : last]
    if isinstance(node, ast.Lambda):
        indent = len(mine[0].encode()[: node.col_offset].decode())
        end = len(mine[-1].encode()[: node.end_col_offset].decode())
        cut = [indent] + [0] * (len(mine) - 1)
        mine[-1] = mine[-1][:end]
    else:
        indent = len(mine[0]) - len(mine[0].lstrip())
        cut = [min(indent, len(line) - len(line.lstrip())) for line in mine]
    text = "\n".join(line[gone:] for line, gone in zip(mine, cut, strict=True))
    check_text(text, "the function's source")
    return Source(node, text, mine, node.lineno, cut, function)


def _unavailable(code: CodeType, why: str) -> InterestError:
    what = "lambda" if code.co_name == "<lambda>" else f"function {code.co_name!r}"
    return syntax_error("", NOWHERE, f"the source of this {what} is not available: {why}", hint=_HOW)


def _file_lines(function: FunctionType) -> list[str]:
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise _unavailable(code, f"{code.co_filename} cannot be read")
    return lines


@lru_cache(maxsize=4)
def _tree(text: str, filename: str) -> ast.Module | None:
    try:
        return ast.parse(text, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _functions(tree: ast.Module | None) -> list[Function]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)] if tree is not None else []


def _pick(candidates: list[Function], code: CodeType) -> Function:
    """The one whose first line, name, parameters and columns are the code's."""
    found = [node for node in candidates if _first_line(node) == code.co_firstlineno and _fits(node, code)]
    if len(found) > 1:
        found = [node for node in found if isinstance(node, ast.Lambda) and _holds(node, code)] or found
    if len(found) == 1:
        if not _same(found[0], code):
            raise _unavailable(code, f"{code.co_filename} has changed since it was loaded")
        return found[0]
    if found:
        raise _unavailable(code, "there are several on its line; put each on a line of its own")
    raise _unavailable(code, f"line {code.co_firstlineno} of {code.co_filename} does not hold it")


def _first_line(node: Function) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _fits(node: Function, code: CodeType) -> bool:
    args = node.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    return name == code.co_name and tuple(names) == code.co_varnames[: len(names)]


def _holds(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the code's instructions stand within the lambda's body and one covers all of it."""
    body = node.body
    whole = (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset)
    return whole in set(code.co_positions())


def _same(node: Function, code: CodeType) -> bool:
    """Whether the tree still says what was loaded: the same steps. It is compiled, never run."""
    if any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
        return True  # test tools rewrite these; they are a problem anyhow
    try:
        if isinstance(node, ast.Lambda):
            outer = compile(ast.Expression(node), code.co_filename, "eval")
        else:
            outer = compile(ast.Module([node], []), code.co_filename, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    again = next((c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == code.co_name), None)
    return again is not None and _content(again) == _content(code)


def _content(code: CodeType) -> list[tuple[str, str]]:
    """What the code does. Where a name lives may differ, as the tree is compiled out of its surroundings."""
    found = []
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLOSURE"):
            found.append(("LOAD", str(step.argval)))
        elif step.opname == "LOAD_METHOD":  # the same step where the compiler knows no module of that name
            found.append(("LOAD_ATTR", repr(step.argval)))
        elif step.opname not in ("PUSH_NULL", "COPY_FREE_VARS", "RESUME", "MAKE_CELL"):
            jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
            found.append((step.opname, "" if jumps or isinstance(step.argval, CodeType) else repr(step.argval)))
    return found
