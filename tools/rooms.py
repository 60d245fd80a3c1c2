"""The rooms of the package as a newcomer sees them: each with the first line that it says of itself.

README has the rooms, CONTRIBUTING the modules beside them and the rooms within them as well. `make rooms` writes both;
a test compares them with this.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from check_imports import INNER, ROOMS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headwater"
PAGES = {"README.md": True, "CONTRIBUTING.md": False}  # and whether it has the short form
BEGIN = "src/headwater/\n"
WIDTH, COLUMN = 120, 22


def first_line(path: Path) -> str:
    """What a module says of itself, in its first sentence or line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def rooms(*, short: bool) -> str:
    """The tree, lowest room first; beside each other: rooms that do not know each other."""
    lines = ["src/headwater/"]
    for names in ROOMS:
        for name in names:
            folder = SOURCE / name
            package = folder.is_dir()
            if short and not package:
                continue
            label, said = (f"{name}/", folder / "__init__.py") if package else (f"{name}.py", SOURCE / f"{name}.py")
            lines += _line(1, label, said)
            if package and not short:
                for inner in _inner(name):
                    lines += _line(2, f"{inner}/", folder / inner / "__init__.py")
    return "\n".join(lines)


def _inner(room: str) -> list[str]:
    """The rooms of a room, in their order where one is checked."""
    there = {path.parent.name for path in (SOURCE / room).glob("*/__init__.py")}
    ordered = [name for names in INNER.get(room, ()) for name in names if name in there]
    return ordered + sorted(there - set(ordered))


def _line(depth: int, label: str, said_in: Path) -> list[str]:
    start = f"{'  ' * depth}{label}".ljust(COLUMN) + " "
    return textwrap.wrap(first_line(said_in), WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def with_rooms(page: str, *, short: bool) -> str:
    """The text of a page with its block of rooms as they are now: the line `src/headwater/` and all indented ones."""
    before, begin, rest = page.partition(f"\n{BEGIN}")
    if not begin:
        raise SystemExit("expected a block that begins with the line src/headwater/, found none")
    lines = rest.split("\n")
    while lines and lines[0].startswith(" "):
        lines.pop(0)
    return "\n".join([f"{before}\n{rooms(short=short)}", *lines])


def main() -> int:
    for name, short in PAGES.items():
        path = ROOT / name
        path.write_text(with_rooms(path.read_text(encoding="utf-8"), short=short), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
