"""What is not obvious says what it is for. Prints every function or class that should and does not, and exits 1.

A docstring is asked of

    every public class and function of a module
    every public method of what users import (DOCUMENTED), unless it does what a method of a base class says
    every function of more than LONG_LINES lines, whatever its name and wherever it is; but for `__init__`, of which the
    class speaks

Whether it says something that the name does not, no program can tell: that is for who reads it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

LONG_LINES = 20
# The modules of docs/api.md: what their `__all__` names is what users see.
DOCUMENTED = (
    "headwater",
    "headwater.correlation",
    "headwater.dispatch",
    "headwater.errors",
    "headwater.interest",
    "headwater.logs",
    "headwater.network",
    "headwater.reports",
    "headwater.runnable",
    "headwater.security",
    "headwater.spark",
    "headwater.testing",
    "headwater.timers",
    "headwater.types",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def missing_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and reason of each definition in a module's text that lacks a docstring."""
    yield from _missing(ast.parse(source), "", top=True)


def _missing(node: ast.AST, within: str, *, top: bool) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield from _missing(child, within, top=top)
            continue
        name = within + child.name
        if ast.get_docstring(child) is None and not _is_overload(child):
            lines = (child.end_lineno or child.lineno) - child.lineno + 1
            if top and not child.name.startswith("_"):
                yield child.lineno, f"{name} is public"
            elif isinstance(child, Function) and lines > LONG_LINES and child.name != "__init__":
                yield child.lineno, f"{name} has {lines} lines"
        yield from _missing(child, f"{name}.", top=False)


def _is_overload(node: Function | ast.ClassDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def silent_methods(modules: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    """File, line and reason of each public method that users can call and that nothing says anything about."""
    found = set()
    for name in modules:
        module = importlib.import_module(name)
        for each in (getattr(module, one) for one in getattr(module, "__all__", vars(module))):
            if inspect.isclass(each):
                found.update(cls for cls in each.__mro__ if cls.__module__.startswith("headwater"))
    for cls in found:
        for name, member in vars(cls).items():
            function = _function_of(member)
            if function is not None and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
                code = function.__code__
                yield code.co_filename, code.co_firstlineno, f"{cls.__name__}.{name} is seen by users"


def _function_of(member: Any) -> Any:
    """The function behind what a class has: a method of any kind, or a property."""
    match member:
        case property():
            member = member.fget
        case classmethod() | staticmethod():
            member = member.__func__
        case cached_property():
            member = member.func
    return member if inspect.isfunction(member) and member.__module__.startswith("headwater") else None


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(root / "src"))
    problems = set()
    for path in sorted((root / "src" / "headwater").rglob("*.py")):
        problems.update((str(path.relative_to(root)), *each) for each in missing_in(path.read_text()))
    for file, line, why in silent_methods(DOCUMENTED):
        problems.add((str(Path(file).resolve().relative_to(root)), line, why))
    for file, line, why in sorted(problems):
        print(f"{file}:{line}: {why}, and has no docstring: say what it does and why")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
