"""A kernel as LLVM assembly. Locals are places in memory, which the passes turn into values; kernels that are called
become part of the same module, so that they can be taken into their callers."""

from __future__ import annotations

import ast
from typing import Any

from headwater.native.emit import Fn, Module, double
from headwater.native.subset.checking import ARRAYS, F64, I64, TRUTH, Checked

_LLVM = {I64: "i64", F64: "double", TRUTH: "i1"}
_ELEMENTS = {"i64s": ("i64", 8), "f64s": ("double", 8), "i32s": ("i32", 4), "u8s": ("i8", 1)}
_INTEGER = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARED = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}
_COMPARED_FLOATS = {ast.Eq: "oeq", ast.NotEq: "une", ast.Lt: "olt", ast.LtE: "ole", ast.Gt: "ogt", ast.GtE: "oge"}
_NAN = "0x7FF8000000000000"
INLINED = 14  # statements; a longer function that is called from several places is not copied to each of them


def assembly(functions: dict[str, Checked], exported: frozenset[str]) -> str:
    """One module of functions, by the names they have there, callees among them."""
    module = Module()
    symbols = {id(checked): symbol for symbol, checked in functions.items()}
    places = _call_sites(functions)
    for symbol, checked in functions.items():
        alone = places.get(id(checked), 0) > 1 and _statements(checked) > INLINED
        _Writer(module, checked, symbol, symbols, symbol in exported, alone).function()
    return module.text()


def _call_sites(functions: dict[str, Checked]) -> dict[int, int]:
    """From how many places each function is called."""
    found: dict[int, int] = {}
    for checked in functions.values():
        for node in ast.walk(checked.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in checked.calls:
                callee = id(checked.calls[node.func.id].checked)
                found[callee] = found.get(callee, 0) + 1
    return found


def _statements(checked: Checked) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(checked.tree))


class _Writer:
    def __init__(
        self, module: Module, checked: Checked, symbol: str, symbols: dict[int, str], exported: bool, alone: bool
    ) -> None:
        self.module, self.checked, self.symbols = module, checked, symbols
        params = ", ".join(
            f"{'ptr' if kind in ARRAYS else _LLVM[kind]} %p_{name}" for name, kind in checked.parameters.items()
        )
        linkage = "" if exported else "internal "
        self.fn = Fn(module, f"{linkage}{_LLVM[checked.result]} @{symbol}({params}) nounwind{' noinline' * alone}")
        self.places: dict[str, str] = {}
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` lead

    def function(self) -> None:
        fn = self.fn
        for name, kind in {**self.checked.parameters, **self.checked.locals}.items():
            if kind in ARRAYS:
                continue
            self.places[name] = fn.alloca(_LLVM[kind])
            if name in self.checked.parameters:
                fn.store(_LLVM[kind], f"%p_{name}", self.places[name], 8)
        self.block(self.checked.tree.body)
        if not fn.ended:
            fn.do("unreachable")
        fn.finish()

    # ── statements ──

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Write one statement. A block that has ended (`return`, `break`, a branch of which both sides leave) takes no
        instruction after it, as LLVM demands: `fn.ended` says so."""
        fn = self.fn
        match node:
            case ast.Assign(targets=[target], value=value):
                self.assign(target, self.value(value))
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self.augmented(target, op, value)
            case ast.If(test=test, body=body, orelse=other):
                yes, no, end = fn.label("yes"), fn.label("no"), fn.label("end")
                self.branch(test, yes, no)
                fn.at(yes)
                self.block(body)
                left = fn.ended
                fn.br(end)
                fn.ended = False
                self.begin(no)
                self.block(other)
                also = fn.ended
                fn.br(end)
                if left and also:
                    fn.ended = True
                    return
                self.begin(end)
            case ast.While(test=test, body=body):
                head, inside, end = fn.label("head"), fn.label("body"), fn.label("end")
                fn.at(head)
                if isinstance(test, ast.Constant):
                    fn.br(inside)
                else:
                    self.branch(test, inside, end)
                self.begin(inside)
                self.loop(body, head, end)
                fn.br(head)
                self.begin(end)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=args), body=body):
                self.counted(name, args, body)
            case ast.Break():
                fn.br(self.loops[-1][1])
            case ast.Continue():
                fn.br(self.loops[-1][0])
            case ast.Return(value=value) if value is not None:
                fn.ret(f"{_LLVM[self.checked.result]} {self.value(value)}")
            case ast.Expr(value=ast.Call() as call):
                self.value(call)

    def begin(self, label: str) -> None:
        """A block that is reached by branches only."""
        self.fn.lines.append(f"{label}:")
        self.fn.block, self.fn.ended = label, False

    def loop(self, body: list[ast.stmt], again: str, end: str) -> None:
        self.loops.append((again, end))
        self.block(body)
        self.loops.pop()

    def counted(self, name: str, args: list[ast.expr], body: list[ast.stmt]) -> None:
        """The counter is a place of its own: what the body does to the name does not show in the next round."""
        fn = self.fn
        start = "0" if len(args) == 1 else self.value(args[0])
        stop = self.value(args[0] if len(args) == 1 else args[1])
        down = len(args) == 3 and not isinstance(args[2], ast.Constant)
        counter = fn.alloca("i64")
        fn.store("i64", start, counter, 8)
        head, inside, again, end = fn.label("head"), fn.label("body"), fn.label("next"), fn.label("end")
        fn.at(head)
        now = fn.load("i64", counter, 8)
        fn.cbr(fn.v(f"icmp {'sgt' if down else 'slt'} i64 {now}, {stop}"), inside, end)
        self.begin(inside)
        fn.store("i64", now, self.places[name], 8)
        self.loop(body, again, end)
        fn.br(again)
        self.begin(again)
        count = fn.load("i64", counter, 8)
        fn.store("i64", fn.v(f"add i64 {count}, {-1 if down else 1}"), counter, 8)
        fn.br(head)
        self.begin(end)

    def assign(self, target: ast.expr, value: str) -> None:
        if isinstance(target, ast.Name):
            self.fn.store(_LLVM[self.kind_of(target.id)], value, self.places[target.id], 8)
        else:
            assert isinstance(target, ast.Subscript)
            self.put(target, self.address(target), value)

    def augmented(self, target: ast.expr, op: ast.operator, value: ast.expr) -> None:
        kind = self.checked.type(target)
        if isinstance(target, ast.Name):
            before = self.fn.load(_LLVM[kind], self.places[target.id], 8)
            self.assign(target, self.operation(op, kind, before, value))
        else:
            assert isinstance(target, ast.Subscript)
            address = self.address(target)
            self.put(target, address, self.operation(op, kind, self.get(target, address), value))

    def kind_of(self, name: str) -> str:
        return self.checked.parameters.get(name) or self.checked.locals[name]

    # ── elements ──

    def address(self, node: ast.Subscript) -> str:
        assert isinstance(node.value, ast.Name)
        element = _ELEMENTS[self.checked.type(node.value)][0]
        return self.fn.at_index(element, f"%p_{node.value.id}", self.value(node.slice))

    def get(self, node: ast.Subscript, address: str) -> str:
        element, align = _ELEMENTS[self.checked.type(node.value)]
        found = self.fn.load(element, address, align)
        if element == "i8":
            return self.fn.v(f"zext i8 {found} to i64")
        return self.fn.v(f"sext i32 {found} to i64") if element == "i32" else found

    def put(self, node: ast.Subscript, address: str, value: str) -> None:
        element, align = _ELEMENTS[self.checked.type(node.value)]
        if element in ("i8", "i32"):
            value = self.fn.v(f"trunc i64 {value} to {element}")
        self.fn.store(element, value, address, align)

    # ── expressions ──

    def value(self, node: ast.expr) -> str:
        """Write an expression; the name of the register or the literal that has its value. What the checker could
        compute is a literal."""
        fn = self.fn
        constant = self.checked.values.get(id(node))
        if constant is not None:
            return _literal(constant)
        match node:
            case ast.Constant(value=value):
                assert isinstance(value, (int, float))
                return _literal(value)
            case ast.Name(id=name):
                return fn.load(_LLVM[self.kind_of(name)], self.places[name], 8)
            case ast.Subscript():
                return self.get(node, self.address(node))
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(op, self.checked.type(node), self.value(left), right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                x = self.value(operand)
                return fn.v(f"fneg double {x}" if self.checked.type(node) == F64 else f"sub i64 0, {x}")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return fn.v(f"xor i64 {self.value(operand)}, -1")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return fn.v(f"xor i1 {self.value(operand)}, true")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compared(op, left, right)
            case ast.BoolOp() | ast.IfExp():
                return self.chosen(node)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, args)
        raise AssertionError(ast.dump(node))

    def operation(self, op: ast.operator, kind: str, left: str, right: ast.expr) -> str:
        fn, y = self.fn, self.value(right)
        if kind == F64:
            return fn.v(f"{_FLOAT[type(op)]} double {left}, {y}")
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            rest = fn.v(f"srem i64 {left}, {y}")
            below = fn.v(f"icmp slt i64 {rest}, 0")
            if isinstance(op, ast.Mod):
                return fn.v(f"select i1 {below}, i64 {fn.v(f'add i64 {rest}, {y}')}, i64 {rest}")
            quotient = fn.v(f"sdiv i64 {left}, {y}")
            return fn.v(f"sub i64 {quotient}, {fn.v(f'zext i1 {below} to i64')}")
        if isinstance(op, (ast.LShift, ast.RShift)):
            y = fn.v(f"and i64 {y}, 63")
        return fn.v(f"{_INTEGER[type(op)]} i64 {left}, {y}")

    def compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> str:
        x, y = self.value(left), self.value(right)
        if self.checked.type(left) == F64:
            return self.fn.v(f"fcmp {_COMPARED_FLOATS[type(op)]} double {x}, {y}")
        return self.fn.v(f"icmp {_COMPARED[type(op)]} i64 {x}, {y}")

    def branch(self, node: ast.expr, yes: str, no: str) -> None:
        """To one of two places, without a truth value in between."""
        fn = self.fn
        match node:
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    more = fn.label("more")
                    self.branch(value, *((more, no) if isinstance(op, ast.And) else (yes, more)))
                    self.begin(more)
                self.branch(values[-1], yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.branch(operand, no, yes)
            case _:
                fn.cbr(self.value(node), yes, no)

    def chosen(self, node: ast.expr) -> str:
        """A value that depends on where one came from: `and`, `or`, `x if test else y`."""
        fn = self.fn
        kind = _LLVM[self.checked.type(node)]
        place = fn.alloca(kind)
        yes, no, end = fn.label("yes"), fn.label("no"), fn.label("end")
        self.branch(node.test if isinstance(node, ast.IfExp) else node, yes, no)
        self.begin(yes)
        fn.store(kind, self.value(node.body) if isinstance(node, ast.IfExp) else "true", place, 8)
        fn.br(end)
        self.begin(no)
        fn.store(kind, self.value(node.orelse) if isinstance(node, ast.IfExp) else "false", place, 8)
        fn.br(end)
        self.begin(end)
        return fn.load(kind, place, 8)

    def call(self, name: str, args: list[ast.expr]) -> str:
        fn = self.fn
        callee = self.checked.calls.get(name)
        if callee is not None:
            given = ", ".join(self.argument(arg) for arg in args)
            return fn.v(f"call {_LLVM[callee.checked.result]} @{self.symbols[id(callee.checked)]}({given})")
        values = [self.value(arg) for arg in args]
        kinds = [self.checked.type(arg) for arg in args]
        return self.builtin(name, values, kinds)

    def argument(self, node: ast.expr) -> str:
        kind = self.checked.type(node)
        if kind in ARRAYS:
            assert isinstance(node, ast.Name)
            return f"ptr %p_{node.id}"
        return f"{_LLVM[kind]} {self.value(node)}"

    def builtin(self, name: str, values: list[str], kinds: list[str]) -> str:
        """Write a call of one of the language's own functions, with exactly the meaning that `numbers.py` gives it in
        CPython: NaN has one form, conversions saturate."""
        fn, module, x = self.fn, self.module, values[0]
        match name:
            case "int":
                if kinds[0] == I64:
                    return x
                module.intrinsic("i64 @llvm.fptosi.sat.i64.f64(double)")
                return fn.v(f"call i64 @llvm.fptosi.sat.i64.f64(double {x})")
            case "float":
                return x if kinds[0] == F64 else fn.v(f"sitofp i64 {x} to double")
            case "bits":
                wrong = fn.v(f"fcmp uno double {x}, {x}")
                return fn.v(f"bitcast double {fn.v(f'select i1 {wrong}, double {_NAN}, double {x}')} to i64")
            case "float_of":
                return fn.v(f"bitcast i64 {x} to double")
            case "logical_shift":
                return fn.v(f"lshr i64 {x}, {fn.v(f'and i64 {values[1]}, 63')}")
            case "trailing_zeros":
                module.intrinsic("i64 @llvm.cttz.i64(i64, i1)")
                return fn.v(f"call i64 @llvm.cttz.i64(i64 {x}, i1 false)")
            case "mul_overflows":
                module.intrinsic("{ i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)")
                both = fn.v(f"call {{ i64, i1 }} @llvm.smul.with.overflow.i64(i64 {x}, i64 {values[1]})")
                return fn.v(f"zext i1 {fn.v(f'extractvalue {{ i64, i1 }} {both}, 1')} to i64")
        raise AssertionError(name)


def _literal(value: int | float) -> str:
    return double(value) if isinstance(value, float) else str(value)


__all__: list[Any] = ["assembly"]
