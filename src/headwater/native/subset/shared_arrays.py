"""Arrays that kernels have in common, as one parameter: before a kernel is checked, it is written out as several.

    class Sums(Arrays):
        values: i64s
        totals: i64s

    @kernel
    def add(it: Sums, at: i64) -> i64:          def add(values: i64s, totals: i64s, at: i64) -> i64:
        it.totals[0] += it.values[at]      =        totals[0] += values[at]
        return more(it, at)                         return more(values, at)

A kernel takes those that it uses itself and those that kernels it hands them on to use, in the order of the class: so
what it is bound with, and its machine code, are as if they had been written out by hand.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, get_type_hints

from headwater.native.subset.numbers import Arrays

Refuse = Callable[[ast.AST, str], None]


def written_out(tree: ast.FunctionDef, names: dict[str, Any], refuse: Refuse) -> dict[str, type] | None:
    """Change a function whose first parameter is of such a class; the arrays that it takes with their
    types, None where it is not."""
    kind = _class_of(tree, names)
    if kind is None:
        return None
    name = tree.args.args[0].arg
    fields = get_type_hints(kind)
    writer = _Writer(name, kind.__name__, fields, names, refuse)
    tree.body = [writer.visit(statement) for statement in tree.body]
    used = {field: fields[field] for field in fields if field in writer.used}
    others = {arg.arg for arg in tree.args.args[1:]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            others.add(node.id)
    for field in sorted(others & {*used, name}):
        refuse(tree, f"{field}: expected another name than that of an array, found a parameter or local")
    first = tree.args.args[0]
    tree.args.args[:1] = [ast.copy_location(ast.arg(field), first) for field in used]
    return used


def _class_of(tree: ast.FunctionDef, names: dict[str, Any]) -> type[Arrays] | None:
    annotation = tree.args.args[0].annotation if tree.args.args else None
    found = names.get(annotation.id) if isinstance(annotation, ast.Name) else None
    return found if isinstance(found, type) and issubclass(found, Arrays) else None


class _Writer(ast.NodeTransformer):
    def __init__(self, name: str, kind: str, fields: dict[str, Any], names: dict[str, Any], refuse: Refuse) -> None:
        self.name, self.kind, self.fields, self.names, self.refuse = name, kind, fields, names, refuse
        self.used: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        match node.value:
            case ast.Name(id=self.name):
                return self.array(node, node.attr)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Handed on to a kernel, they are those that it takes."""
        match node:
            case ast.Call(func=ast.Name(id=callee), args=[ast.Name(id=self.name) as first, *others]):
                taken = getattr(getattr(self.names.get(callee), "checked", None), "shared", None)
                if taken is None:
                    self.refuse(node, f"{callee}: expected a kernel whose first parameter is {self.kind}")
                    taken = ()
                node.args = [*(self.array(first, field) for field in taken), *map(self.visit, others)]
                return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self.name:
            self.refuse(node, f"{self.name}: expected one of its arrays, or a call that it is handed on to")
        return node

    def array(self, where: ast.expr, field: str) -> ast.expr:
        if field not in self.fields:
            self.refuse(where, f"{self.name}.{field}: expected one of {', '.join(self.fields)}")
        self.used.add(field)
        return ast.copy_location(ast.Name(field, ast.Load()), where)


__all__ = ["written_out"]
