"""Imports point down only. Prints every import that does not, and exits 1 if there is one.

A room may import rooms below it in ROOMS and nothing above or beside it. Some third-party packages belong to one
room each, so that the rest of the project does not depend on them.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

# Lowest first; rooms on one line stand side by side and do not know each other.
ROOMS: tuple[tuple[str, ...], ...] = (
    ("completion", "errors", "signals", "threads", "version"),
    ("extras",),
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
    ("explain",),
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
            elif node.module == "headwater":
                found += [(node.lineno, f"headwater.{alias.name}") for alias in node.names]
            elif node.module:
                found.append((node.lineno, node.module))
    return found


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
        for line, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            top, _, rest = name.partition(".")
            if name.startswith("."):
                lines.append(f"{path}:{line}: relative import {name!r}: write it from headwater")
            elif top == "headwater":
                other = rest.partition(".")[0]
                if not other or other not in LEVEL:
                    lines.append(f"{path}:{line}: imports {name!r}, which is no room")
                elif other != room and LEVEL[other] >= LEVEL[room]:
                    lines.append(f"{path}:{line}: {room} may not import {other}: imports point down only")
            elif top in OWNERS and room not in OWNERS[top]:
                lines.append(f"{path}:{line}: only {', '.join(OWNERS[top])} may import {top}")
    return lines


def main() -> int:
    root = Path(__file__).resolve().parent.parent / "src" / "headwater"
    found = problems(root)
    print("\n".join(found) if found else "imports point down only: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
