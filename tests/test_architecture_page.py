"""What docs/architecture.md calls by its name is there: attributes and methods of classes, locks among them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_attributes_of_classes() -> None:
    classes: dict[str, list[tuple[str, list[str]]]] = {}
    for path in (ROOT / "src" / "headwater").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                bases = [name for base in node.bases if (name := _name(base))]
                own = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                classes.setdefault(node.name, []).append((own, bases))

    def has(name: str, attribute: str) -> bool:
        wanted = rf'self\.{attribute}\b|\bdef {attribute}\b|^\s+{attribute}\s*[:=]|"{attribute}"'
        return any(
            re.search(wanted, text, re.MULTILINE) or any(has(base, attribute) for base in bases if base != name)
            for text, bases in classes.get(name, ())
        )

    told = set(re.findall(r"`([A-Z]\w+)\.(\w+)", PAGE))
    assert len(told) > 50
    assert sorted(f"{name}.{attribute}" for name, attribute in told if not has(name, attribute)) == []


def _name(base: ast.expr) -> str:
    match base:
        case ast.Subscript(value=of):
            return _name(of)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
