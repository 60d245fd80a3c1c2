"""A kernel as CPython runs it: the same source, with the numbers of the language and every index looked at.

Python's integers do not wrap, its division by zero raises, and an index below 0 counts from the end. So the tree is
rewritten where that shows: `a + b` becomes `(t if -2**63 <= (t := a + b) <= 2**63 - 1 else wrap(t))`. Lines stay those
of the source, so that a debugger and a traceback show it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from headwater.native.subset import numbers
from headwater.native.subset.checking import F64, FUNCTIONS, I64, Checked
from headwater.native.subset.numbers import LEAST, MOST

_EXACT = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.RShift, ast.FloorDiv, ast.Mod)  # never out of range
_HELPERS = {
    "_wrap": numbers.wrap,
    "_wrap32": numbers.wrap32,
    "_divide": numbers.divide,
    "_truncated": numbers.truncated,
    "_negative": numbers.negative_index,
}


def interpreted(checked: Checked, callees: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """A function of memoryviews and numbers."""
    functions = {name: getattr(numbers, name) for name in FUNCTIONS}
    names: dict[str, Any] = {**_HELPERS, **functions, "range": range, "float": float, **callees}
    tree = _Writer(checked).function()
    module = ast.fix_missing_locations(ast.Module([tree], []))
    exec(compile(module, checked.file, "exec"), names)
    made: Callable[..., Any] = names[checked.name]
    return made


class _Writer(ast.NodeTransformer):
    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.count = 0

    def function(self) -> ast.FunctionDef:
        tree = self.checked.tree
        body = [self.visit(statement) for statement in tree.body]
        args = copy.deepcopy(tree.args)
        for arg in args.args:
            arg.annotation = None
        made = copy.copy(tree)
        made.args, made.body, made.decorator_list, made.returns = args, body, [], None
        return made

    def visit(self, node: ast.AST) -> Any:
        """Nodes are made anew: the tree belongs to the other execution too."""
        method = getattr(self, f"visit_{type(node).__name__}", None)
        made = method(node) if method is not None else self.again(node)
        return ast.copy_location(made, node) if isinstance(made, ast.AST) and hasattr(node, "lineno") else made

    def again(self, node: ast.AST) -> ast.AST:
        fields: dict[str, Any] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                fields[name] = [self.visit(each) if isinstance(each, ast.AST) else each for each in value]
            else:
                fields[name] = self.visit(value) if isinstance(value, ast.AST) else value
        return type(node)(**fields)

    def temporary(self) -> str:
        self.count += 1
        return f"_t{self.count}"

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.checked.values.get(id(node))
        return ast.Name(node.id, node.ctx) if value is None else _number(value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        assert node.value is not None
        return ast.Assign([self.visit(node.target)], self.visit(node.value))

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        return ast.Assign([self.visit(target)], self.stored(target, self.visit(node.value)))

    def stored(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """Cut to the width of the element."""
        if isinstance(target, ast.Subscript):
            array = self.checked.type(target.value)
            if array == "u8s":
                return ast.BinOp(value, ast.BitAnd(), ast.Constant(255))
            if array == "i32s":
                return _call("_wrap32", value)
        return value

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """Written out; the index is evaluated twice, which nothing can see: calls in it have no place in one."""
        target = node.target
        read = copy.copy(target)
        if isinstance(read, ast.Name):
            now: ast.expr = ast.Name(read.id, ast.Load())
        else:
            assert isinstance(read, ast.Subscript)
            now = ast.Subscript(ast.Name(_name(read.value), ast.Load()), self.index(read.slice), ast.Load())
        kind = self.checked.type(target)
        value = self.operation(node.op, kind, now, self.visit(node.value))
        return ast.Assign([self.visit(target)], self.stored(target, value))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return ast.Subscript(ast.Name(_name(node.value), ast.Load()), self.index(node.slice), node.ctx)

    def index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return ast.Constant(node.value)
        name = self.temporary()
        inside = ast.NamedExpr(ast.Name(name, ast.Store()), self.visit(node))
        again = ast.Name(name, ast.Load())
        return ast.IfExp(ast.Compare(inside, [ast.GtE()], [ast.Constant(0)]), again, _call("_negative", again))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self.operation(node.op, self.checked.type(node), self.visit(node.left), self.visit(node.right))

    def operation(self, op: ast.operator, kind: str, left: ast.expr, right: ast.expr) -> ast.expr:
        if kind == F64:
            return _call("_divide", left, right) if isinstance(op, ast.Div) else ast.BinOp(left, op, right)
        if isinstance(op, (ast.LShift, ast.RShift)):
            right = ast.BinOp(right, ast.BitAnd(), ast.Constant(63))
        made = ast.BinOp(left, op, right)
        return made if isinstance(op, _EXACT) else self.wrapped(made)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        made = ast.UnaryOp(node.op, self.visit(node.operand))
        if isinstance(node.op, ast.USub) and self.checked.type(node) == I64:
            return self.wrapped(made)
        return made

    def wrapped(self, value: ast.expr) -> ast.expr:
        name = self.temporary()
        inside = ast.NamedExpr(ast.Name(name, ast.Store()), value)
        test = ast.Compare(ast.Constant(LEAST), [ast.LtE(), ast.LtE()], [inside, ast.Constant(MOST)])
        return ast.IfExp(test, ast.Name(name, ast.Load()), _call("_wrap", ast.Name(name, ast.Load())))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        args = [self.visit(arg) for arg in node.args]
        name = node.func.id
        if name == "int":
            return args[0] if self.checked.type(node.args[0]) == I64 else _call("_truncated", *args)
        return ast.Call(ast.Name(name, ast.Load()), args, [])


def _name(node: ast.expr) -> str:
    assert isinstance(node, ast.Name)
    return node.id


def _number(value: int | float) -> ast.expr:
    return ast.Constant(value)


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])
