"""A small writer of LLVM assembly text: values are their names, types are spelled out by the caller.

Text is both the fastest and the most readable way into LLVM here: a simple filter is forty lines, and
`headwater explain` shows what was written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from headwater.types.model import BOOL, BYTES, F64, TEXT, Scalar, Type


@dataclass(frozen=True, slots=True)
class Val:
    """A value in generated code. `ok` is an i1 that says it is not missing; None: it never is.

    Text and bytes are a pointer `x`, a length `n` (i64) and a `fold` (i8: 0 as it is, 1 lower, 2 upper) that every
    text kernel applies while it reads, so that lower() and upper() cost nothing.
    """

    x: str
    ok: str | None = None
    n: str = ""
    fold: str = "0"


def is_text(type: Type) -> bool:
    """Whether values are a pointer and a length."""
    return type in (TEXT, BYTES)


def llvm(type: Type) -> str:
    """The LLVM type a promoted scalar is computed in."""
    if type == BOOL:
        return "i1"
    if isinstance(type, Scalar) and type.is_float:
        return "double"
    return "ptr" if is_text(type) else "i64"


def double(value: float) -> str:
    """A double constant, bit for bit."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def zero(type: Type) -> str:
    """What stands for a value that is missing: nobody looks at it."""
    return {"i1": "false", "double": "0.0", "ptr": "null"}.get(llvm(type), "0")


def escape(data: bytes) -> str:
    """The inside of an LLVM string constant."""
    return "".join(f"\\{b:02X}" for b in data)


class Module:
    """Functions, constants and declarations of one compilation."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.globals: dict[str, str] = {}  # definition -> name
        self.declared: dict[str, str] = {}
        self.intrinsics: set[str] = set()
        self.texts: dict[str, bytes] = {}  # by name, those that are text

    def constant(self, definition: str, align: int = 8) -> str:
        """The name of a private constant such as `[2 x i64] [i64 1, i64 2]`; equal ones are shared."""
        name = self.globals.get(definition)
        if name is None:
            name = self.globals[definition] = f"@c{len(self.globals)}"
        return name

    def data(self, data: bytes) -> str:
        name = self.constant(f'[{max(1, len(data))} x i8] c"{escape(data or bytes(1))}"')
        self.texts[name] = data
        return name

    def words(self, values: list[int], type: str = "i64") -> str:
        inside = ", ".join(f"{type} {v}" for v in values) or f"{type} 0"
        return self.constant(f"[{max(1, len(values))} x {type}] [{inside}]")

    def declare(self, signature: str, name: str) -> str:
        """A runtime function by name; `signature` has a %s for it."""
        self.declared[name] = f"declare {signature % ('@' + name)}"
        return "@" + name

    def intrinsic(self, declaration: str) -> None:
        self.intrinsics.add(f"declare {declaration}")

    def text(self) -> str:
        lines = [f"{name} = private unnamed_addr constant {d}, align 8" for d, name in self.globals.items()]
        lines += [*self.declared.values(), *sorted(self.intrinsics), *self.functions]
        return "\n".join(lines) + "\n"


class Fn:
    """One function under construction. `v` adds an instruction and returns its name."""

    def __init__(self, module: Module, head: str) -> None:
        self.module, self.head = module, head
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.prologue: list[str] = []
        self.count = 0
        self.ended = False  # the current block has its terminator
        self.block = "entry"

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self, hint: str = "b") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def v(self, instruction: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def first(self, instruction: str) -> str:
        """An instruction of the entry block, before everything else."""
        self.count += 1
        name = f"%v{self.count}"
        self.prologue.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def at(self, label: str) -> None:
        """Start a block; falls into it where the one before has not ended."""
        if not self.ended:
            self.lines.append(f"  br label %{label}")
        self.lines.append(f"{label}:")
        self.block, self.ended = label, False

    def br(self, label: str) -> None:
        if not self.ended:
            self.lines.append(f"  br label %{label}")
            self.ended = True

    def cbr(self, test: str, yes: str, no: str, likely: bool | None = None) -> None:
        if not self.ended:
            self.lines.append(f"  br i1 {test}, label %{yes}, label %{no}")
            self.ended = True

    def ret(self, value: str) -> None:
        if not self.ended:
            self.lines.append(f"  ret {value}")
            self.ended = True

    def alloca(self, type: str, align: int = 8) -> str:
        name = self.name()
        self.allocas.append(f"  {name} = alloca {type}, align {align}")
        return name

    def load(self, type: str, ptr: str, align: int = 1) -> str:
        return self.v(f"load {type}, ptr {ptr}, align {align}")

    def store(self, type: str, value: str, ptr: str, align: int = 1) -> None:
        self.do(f"store {type} {value}, ptr {ptr}, align {align}")

    def gep(self, ptr: str, offset: int | str) -> str:
        return ptr if offset in (0, "0") else self.v(f"getelementptr i8, ptr {ptr}, i64 {offset}")

    def at_index(self, type: str, ptr: str, index: str) -> str:
        return self.v(f"getelementptr {type}, ptr {ptr}, i64 {index}")

    # ── truth values, with the constants folded so that never-missing costs nothing ──

    def and_(self, a: str | None, b: str | None) -> str | None:
        """Both; None counts as true."""
        if a is None or a == "true" or a == b:
            return b
        if b is None or b == "true":
            return a
        if "false" in (a, b):
            return "false"
        return self.v(f"and i1 {a}, {b}")

    def or_(self, a: str, b: str) -> str:
        if "true" in (a, b):
            return "true"
        if a == "false" or a == b:
            return b
        return a if b == "false" else self.v(f"or i1 {a}, {b}")

    def not_(self, a: str) -> str:
        if a in ("true", "false"):
            return "false" if a == "true" else "true"
        return self.v(f"xor i1 {a}, true")

    def select(self, test: str, type: str, a: str, b: str) -> str:
        if test == "true" or a == b:
            return a
        return b if test == "false" else self.v(f"select i1 {test}, {type} {a}, {type} {b}")

    def branch(self, test: str, then: Callable[[], None], other: Callable[[], None] | None = None) -> None:
        yes, no, end = self.label("yes"), self.label("no"), self.label("end")
        self.cbr(test, yes, no if other else end)
        self.at(yes)
        then()
        self.br(end)
        if other:
            self.at(no)
            other()
        self.at(end)

    def loop(self, count: str, body: Callable[[str], None]) -> None:
        """`body(i)` for i from 0 below count (i64)."""
        at = self.alloca("i64")
        self.store("i64", "0", at, 8)
        head, inside, end = self.label("head"), self.label("body"), self.label("end")
        self.at(head)
        i = self.load("i64", at, 8)
        self.cbr(self.v(f"icmp ult i64 {i}, {count}"), inside, end)
        self.at(inside)
        body(i)
        self.store("i64", self.v(f"add nuw i64 {i}, 1"), at, 8)
        self.br(head)
        self.at(end)

    def finish(self) -> None:
        body = "\n".join([f"define {self.head} {{", "entry:", *self.allocas, *self.prologue, *self.lines, "}"])
        self.module.functions.append(body)


__all__ = ["F64", "Fn", "Module", "Val", "double", "escape", "is_text", "llvm", "zero"]
