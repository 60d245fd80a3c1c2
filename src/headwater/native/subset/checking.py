"""Reads a kernel's source and gives every expression its type; what is not in the language is refused, all at once.

    type      i64 | f64 | truth (of a comparison: for tests only) | one of the arrays
    names     parameters and locals of one type each; constants of the module; kernels and functions of `numbers.py`

Both executions are written from what is found here, so they cannot disagree on what an expression is.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import KernelError
from headwater.native.subset import numbers
from headwater.native.subset.numbers import LEAST, MOST
from headwater.native.subset.shared_arrays import written_out

I64, F64, TRUTH = "i64", "f64", "truth"
ARRAYS = {"i64s": I64, "i32s": I64, "u8s": I64, "f64s": F64}
FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "bits": ((F64,), I64),
    "float_of": ((I64,), F64),
    "logical_shift": ((I64, I64), I64),
    "trailing_zeros": ((I64,), I64),
    "mul_overflows": ((I64, I64), I64),
}
_TYPES: dict[Any, str] = {
    int: I64,
    float: F64,
    numbers.i64s: "i64s",
    numbers.i32s: "i32s",
    numbers.u8s: "u8s",
    numbers.f64s: "f64s",
}
_INTEGER_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
_DIVISIONS = (ast.FloorDiv, ast.Mod)
_FLOAT_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass
class Checked:
    """A function of the language. `types` and `values` are by the identity of the tree's nodes: the type of each
    expression, and the number that a name of the module stands for."""

    name: str
    file: str
    tree: ast.FunctionDef
    parameters: dict[str, str]
    result: str
    locals: dict[str, str] = field(default_factory=dict)
    types: dict[int, str] = field(default_factory=dict)
    values: dict[int, int | float] = field(default_factory=dict)
    calls: dict[str, Any] = field(default_factory=dict)  # kernels, by the name they go by here
    shared: dict[str, type] | None = None  # arrays that one parameter stood for

    def type(self, node: ast.expr) -> str:
        return self.types[id(node)]


def check(function: Callable[..., Any], is_kernel: Callable[[Any], bool]) -> Checked:
    """Raises KernelError with every place that is not in the language."""
    file = inspect.getsourcefile(function) or "?"
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError as error:
        raise KernelError(file, [(0, f"expected the source of {function.__name__}, found none: {error}")]) from None
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    ast.increment_lineno(tree, first - 1)
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(file, [(first, f"expected a function by `def`, found {type(tree).__name__}")])
    names = {**vars(inspect.builtins), **function.__globals__}  # type: ignore[attr-defined]
    return _Checker(file, tree, names, is_kernel).run()


class _Stop(Exception):
    """An expression is refused; the statement around it goes no further."""


class _Checker:
    def __init__(self, file: str, tree: ast.FunctionDef, names: dict[str, Any], is_kernel: Callable[[Any], bool]):
        self.tree, self.names, self.is_kernel = tree, names, is_kernel
        self.problems: list[tuple[int, str]] = []
        self.out = Checked(tree.name, file, tree, {}, I64)
        self.assigned = _assigned(tree)  # names that are locals somewhere in it
        self.loops = 0

    def run(self) -> Checked:
        self.out.shared = written_out(self.tree, self.names, self.refuse)
        if self.problems:
            raise KernelError(self.out.file, sorted(self.problems))
        self.signature()
        _, returned = self.block(self.tree.body, set(self.out.parameters))
        if not returned and not self.problems:
            self.refuse(self.tree, "expected a `return` on every way through the function, found one without")
        if self.problems:
            raise KernelError(self.out.file, sorted(self.problems))
        return self.out

    def refuse(self, node: ast.AST, why: str) -> None:
        self.problems.append((getattr(node, "lineno", self.tree.lineno), why))

    def stop(self, node: ast.AST, why: str) -> _Stop:
        self.refuse(node, why)
        return _Stop()

    # ── the head ──

    def signature(self) -> None:
        args = self.tree.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
            self.refuse(self.tree, "expected plain parameters, found defaults, * or **")
        shared = self.out.shared or {}
        for arg in args.args:
            kind = _TYPES.get(shared[arg.arg]) if arg.arg in shared else self.annotation(arg.annotation, arg)
            if kind is not None:
                self.out.parameters[arg.arg] = kind
        result = self.annotation(self.tree.returns, self.tree)
        if result is not None and result not in (I64, F64):
            self.refuse(self.tree, f"expected a result of type i64 or f64, found {result}")
        self.out.result = result or I64

    def annotation(self, node: ast.expr | None, where: ast.AST) -> str | None:
        try:
            found = None if node is None else eval(compile(ast.Expression(node), "annotation", "eval"), self.names)
            if isinstance(found, str):
                found = eval(found, self.names)
        except Exception as error:
            self.refuse(where, f"expected a type, found {ast.unparse(node) if node else 'none'}: {error}")
            return None
        kind = _TYPES.get(found) if isinstance(found, type) else None
        if kind is None:
            said = ast.unparse(node) if node is not None else "none"
            self.refuse(where, f"expected one of the types i64, f64, i64s, f64s, i32s, u8s, found {said}")
        return kind

    # ── statements: the names that are surely assigned after them, and whether they surely return ──

    def block(self, body: list[ast.stmt], known: set[str]) -> tuple[set[str], bool]:
        ended = False
        for statement in body:
            if ended:
                self.refuse(statement, "expected no statement after one that leaves the block, found one")
                break
            try:
                known, ended = self.statement(statement, known)
            except _Stop:
                known = known | _assigned(statement)  # said once
        return known, ended

    def statement(self, node: ast.stmt, known: set[str]) -> tuple[set[str], bool]:
        """Check one statement where the names `known` are surely set; those that are so after it, and whether nothing
        can follow it. A name that is set in one branch only is not known after both."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                return known | {self.assign(target, name, self.value(value, known))}, False
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                self.store(target, self.value(value, known), known)
                return known, False
            case ast.AnnAssign(target=ast.Name(id=name) as target, value=value) if value is not None:
                kind = self.annotation(node.annotation, node)
                found = self.value(value, known)
                if kind is not None and kind != found:
                    raise self.stop(node, f"expected {kind}, found {found}")
                return known | {self.assign(target, name, found)}, False
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                kind = self.read(target, name, known)
                self.assign(target, name, self.operation(node, op, kind, value, known))
                return known, False
            case ast.AugAssign(target=ast.Subscript() as target, op=op, value=value):
                kind = self.element(target, known)
                self.same(node, kind, self.operation(node, op, kind, value, known))
                return known, False
            case ast.If(test=test, body=body, orelse=other):
                self.test(test, known)
                yes, left = self.block(body, known)
                no, also = self.block(other, known)
                after = no if left else yes if also else yes & no
                return after, left and also
            case ast.While(test=test, body=body, orelse=[]):
                return self.while_loop(node, test, body, known)
            case ast.For(target=ast.Name(id=name) as target, iter=span, body=body, orelse=[]):
                self.range(span, known)
                self.assign(target, name, I64)
                self.inside(body, known | {name})
                return known, False
            case ast.Break() | ast.Continue():
                return known, True  # what comes after the loop does not rely on the names of its body
            case ast.Return(value=value) if value is not None:
                self.same(node, self.out.result, self.value(value, known))
                return known, True
            case ast.Pass():
                return known, False
            case ast.Expr(value=ast.Constant(value=str())):
                return known, False
            case ast.Expr(value=ast.Call() as call):
                self.expression(call, known)
                return known, False
        raise self.stop(node, f"expected a statement of the kernel language, found {_said(node)}")

    def while_loop(
        self, node: ast.While, test: ast.expr, body: list[ast.stmt], known: set[str]
    ) -> tuple[set[str], bool]:
        forever = isinstance(test, ast.Constant) and test.value is True
        if not forever:
            self.test(test, known)
        self.inside(body, known)
        return known, forever and not _breaks(body)

    def inside(self, body: list[ast.stmt], known: set[str]) -> None:
        self.loops += 1
        self.block(body, known)
        self.loops -= 1

    def range(self, span: ast.expr, known: set[str]) -> None:
        match span:
            case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
                for arg in args[:2]:
                    self.same(arg, I64, self.value(arg, known))
                if len(args) == 3:
                    self.value(args[2], known)
                    if _constant(args[2]) not in (1, -1):
                        self.refuse(args[2], f"expected steps of 1 or -1, found {ast.unparse(args[2])}")
            case _:
                raise self.stop(span, f"expected range(…), found {ast.unparse(span)}")

    def assign(self, target: ast.Name, name: str, kind: str) -> str:
        if self.out.parameters.get(name, kind) in ARRAYS or kind in ARRAYS:
            raise self.stop(target, f"{name}: expected a number, found an array, which has one name only")
        if kind == TRUTH:
            raise self.stop(target, f"{name}: expected a number, found a truth value; say `1 if … else 0`")
        before = self.out.parameters.get(name) or self.out.locals.get(name)
        if before is not None and before != kind:
            raise self.stop(target, f"{name}: expected {before} as before, found {kind}")
        if name not in self.out.parameters:
            self.out.locals[name] = kind
        self.out.types[id(target)] = kind
        return name

    def store(self, target: ast.Subscript, kind: str, known: set[str]) -> None:
        self.same(target, self.element(target, known), kind)

    def same(self, node: ast.AST, expected: str, found: str) -> None:
        if expected != found:
            raise self.stop(node, f"expected {expected}, found {found}")

    # ── expressions ──

    def value(self, node: ast.expr, known: set[str]) -> str:
        """Of a number."""
        kind = self.expression(node, known)
        if kind in ARRAYS:
            raise self.stop(node, f"expected a number, found the array {ast.unparse(node)}")
        return kind

    def test(self, node: ast.expr, known: set[str]) -> None:
        kind = self.value(node, known)
        if kind != TRUTH:
            raise self.stop(node, f"expected a comparison, found {kind}; say `… != 0`")

    def expression(self, node: ast.expr, known: set[str]) -> str:
        kind = self.kind(node, known)
        self.out.types[id(node)] = kind
        return kind

    def kind(self, node: ast.expr, known: set[str]) -> str:
        """The kind of an expression's value, i64, f64 or a truth value; raises at what is not of the language. There
        are no conversions that are not written."""
        match node:
            case ast.Constant(value=bool()):
                raise self.stop(node, f"expected a number, found {node.value!r}")
            case ast.Constant(value=int() as value):
                if not LEAST <= value <= MOST:
                    raise self.stop(node, f"expected an i64, found {value}")
                return I64
            case ast.Constant(value=float()):
                return F64
            case ast.Name(id=name):
                return self.read(node, name, known)
            case ast.Subscript():
                return self.element(node, known)
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(node, op, self.value(left, known), right, known)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.number(operand, known)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                self.same(operand, I64, self.value(operand, known))
                return I64
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.test(operand, known)
                return TRUTH
            case ast.BoolOp(values=values):
                for each in values:
                    self.test(each, known)
                return TRUTH
            case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARISONS):
                self.same(right, self.number(left, known), self.number(right, known))
                return TRUTH
            case ast.Compare():
                raise self.stop(node, f"expected one comparison of two numbers, found {ast.unparse(node)}")
            case ast.IfExp(test=test, body=yes, orelse=no):
                self.test(test, known)
                kind = self.value(yes, known)
                self.same(no, kind, self.value(no, known))
                return kind
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(node, name, args, known)
        raise self.stop(node, f"expected an expression of the kernel language, found {_said(node)}")

    def number(self, node: ast.expr, known: set[str]) -> str:
        kind = self.value(node, known)
        if kind == TRUTH:
            raise self.stop(node, "expected a number, found a truth value")
        return kind

    def read(self, node: ast.expr, name: str, known: set[str]) -> str:
        if name in self.out.parameters:
            return self.out.parameters[name]
        if name in known and name in self.out.locals:
            return self.out.locals[name]
        if name in known:
            raise _Stop  # what it was assigned was refused
        if name in self.assigned:
            raise self.stop(node, f"{name}: expected a value on every way to here, found one without")
        value = self.names.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and LEAST <= value <= MOST:
            self.out.values[id(node)] = value
            return I64
        if isinstance(value, float):
            self.out.values[id(node)] = value
            return F64
        raise self.stop(node, f"{name}: expected a parameter, a local or a number of the module, found {value!r}")

    def element(self, node: ast.Subscript, known: set[str]) -> str:
        if not isinstance(node.value, ast.Name) or self.out.parameters.get(node.value.id) not in ARRAYS:
            raise self.stop(node, f"expected an element of a parameter that is an array, found {ast.unparse(node)}")
        self.same(node.slice, I64, self.value(node.slice, known))
        array = self.out.parameters[node.value.id]
        self.out.types[id(node.value)] = array
        self.out.types[id(node)] = ARRAYS[array]
        return ARRAYS[array]

    def operation(self, node: ast.AST, op: ast.operator, left: str, right: ast.expr, known: set[str]) -> str:
        found = self.value(right, known)
        if left != found or left == TRUTH:
            raise self.stop(node, f"expected two numbers of one type, found {left} and {found}")
        if left == F64:
            if not isinstance(op, _FLOAT_OPERATORS):
                raise self.stop(node, f"expected + - * or / of f64, found {_said(op)}")
            return F64
        if isinstance(op, _DIVISIONS):
            constant = _constant(right)
            by = constant if constant is not None else self.out.values.get(id(right))
            if not isinstance(by, int) or by <= 0:
                raise self.stop(node, f"expected division by a positive constant, found {ast.unparse(right)}")
        elif not isinstance(op, _INTEGER_OPERATORS):
            raise self.stop(node, f"expected + - * & | ^ << >> // or % of i64, found {_said(op)}")
        return I64

    def call(self, node: ast.Call, name: str, args: list[ast.expr], known: set[str]) -> str:
        callee: Any = self.names.get(name)
        wanted: tuple[str, ...]
        result: str
        if name in ("int", "float") and callee is {"int": int, "float": float}[name] and len(args) == 1:
            self.number(args[0], known)
            return I64 if name == "int" else F64
        if self.is_kernel(callee):
            self.out.calls[name] = callee
            wanted, result = tuple(callee.checked.parameters.values()), callee.checked.result
        elif name in FUNCTIONS and callee is getattr(numbers, name):
            wanted, result = FUNCTIONS[name]
        else:
            raise self.stop(node, f"{name}: expected a kernel, int, float or one of {', '.join(FUNCTIONS)}")
        found = tuple(self.expression(arg, known) for arg in args)
        if found != wanted:
            raise self.stop(node, f"{name}: expected ({', '.join(wanted)}), found ({', '.join(found)})")
        return result


def _constant(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
    return None


def _breaks(body: list[ast.stmt]) -> bool:
    """Whether a `break` of this loop is in its body."""
    for statement in body:
        match statement:
            case ast.Break():
                return True
            case ast.If(body=yes, orelse=no):
                if _breaks(yes) or _breaks(no):
                    return True
    return False


def _assigned(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _said(node: ast.AST) -> str:
    if isinstance(node, (ast.expr, ast.stmt)):
        return ast.unparse(node).split("\n")[0][:60]
    return type(node).__name__
