"""Imports point down only. Prints every import that does not, and exits 1 if there is one.

A room may import rooms below it in ROOMS and nothing above or beside it. Some third-party packages belong to one
room each, so that the rest of the project does not depend on them. Heavy ones are loaded when they are first used.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

# Lowest first; rooms on one line stand side by side and do not know each other.
ROOMS: tuple[tuple[str, ...], ...] = (
    ("completion", "errors", "signals", "threads", "version"),
    ("extras",),
    ("late",),
    ("types",),
    ("ir",),
    ("lang", "native"),
    ("interest",),
    ("match",),
    ("store",),
    ("channel",),
    ("federation",),
    ("spark",),
    ("study",),
    ("explanation",),
    ("cli",),
)
OWNERS = {
    "llvmlite": ("native",),
    "sqlglot": ("lang",),
    "pycparser": ("lang",),
    "pyspark": ("spark",),
    "sqlite3": ("store",),
    "zenoh": ("federation", "study"),  # a study measures bare Zenoh beside our nodes
    "cryptography": ("federation",),
}
# Heavy packages, by the name under which `headwater.late` has them loaded when they are first used. Elsewhere nobody
# imports them, but rooms that are only entered by those who need them.
LATE = {
    "asyncio": "asyncio",
    "ds": "pyarrow",
    "llvm": "llvmlite",
    "np": "numpy",
    "pa": "pyarrow",
    "pc": "pyarrow",
    "pq": "pyarrow",
}
HEAVY = frozenset(LATE.values())
ENTERED_FOR_THEM = ("late", "study")
# The package's own face re-exports what users need; it is not a room.
FACE = "__init__"

LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append((node.lineno, "." * node.level + (node.module or "")))
            elif node.module in ("headwater", "headwater.late"):
                found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
            elif node.module:
                found.append((node.lineno, node.module))
    return found


class _WhileImported(ast.NodeVisitor):
    """Finds where a module uses some names while it is being imported: outside of functions, and not in annotations."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.lines = names, list[int]()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if part is not None:
                self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in node.args.defaults:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.names:
            self.lines.append(node.lineno)


def used_too_early(tree: ast.Module) -> list[int]:
    """The lines that would load a heavy package as soon as the module is imported."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "headwater.late"]
    visitor = _WhileImported({alias.name for node in found for alias in node.names} & set(LATE))
    visitor.visit(tree)
    return visitor.lines


def problems(root: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        room = parts[0]
        if room == FACE:
            continue
        if room not in LEVEL:
            lines.append(f"{path}:1: room {room!r} is not in ROOMS of tools/check_imports.py")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line in used_too_early(tree):
            lines.append(f"{path}:{line}: this loads a heavy package with the module: put it into a function")
        for line, name in imports(tree):
            top, _, rest = name.partition(".")
            package = LATE.get(rest.removeprefix("late."), "") if rest.startswith("late.") else top
            if top in HEAVY and room not in ENTERED_FOR_THEM:
                lines.append(f"{path}:{line}: {top} is loaded when it is first used: take it from headwater.late")
            if name.startswith("."):
                lines.append(f"{path}:{line}: relative import {name!r}: write it from headwater")
            elif top == "headwater":
                other = rest.partition(".")[0]
                if not other or other not in LEVEL:
                    lines.append(f"{path}:{line}: imports {name!r}, which is no room")
                elif other != room and LEVEL[other] >= LEVEL[room]:
                    lines.append(f"{path}:{line}: {room} may not import {other}: imports point down only")
            if package in OWNERS and room not in (*OWNERS[package], "late"):
                lines.append(f"{path}:{line}: only {', '.join(OWNERS[package])} may import {package}")
    return lines


def main() -> int:
    root = Path(__file__).resolve().parent.parent / "src" / "headwater"
    found = problems(root)
    print("\n".join(found) if found else "imports point down only: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
