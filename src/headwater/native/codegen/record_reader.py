"""Reading fields in place from a record's bytes. Never outside them: the fixed part was checked at entry, every
reference is checked before it is followed, and what is not there is read from a block of zeros instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ExecutionError
from headwater.ir.interp import Fault
from headwater.ir.nodes import META_TYPES
from headwater.native.emit import Val, is_text
from headwater.native.env import read_meta
from headwater.native.kernels.runtime import ZEROS
from headwater.types.layout import HEADER_SIZE, Layout, record_layout, stride
from headwater.types.model import Array, Enum, List, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.native.codegen.expr import Exprs
    from headwater.native.emit import Fn


class RecordReader:
    """A cursor is the address of a slot."""

    wild = True

    def __init__(self, fn: Fn, record: Record) -> None:
        self.fn, self.layout = fn, Layout.of(record)

    def root(self) -> str:
        return self.fn.gep("%rec", HEADER_SIZE)

    def field(self, g: Exprs, cursor: str, record: Record, name: str) -> tuple[str, str | None]:
        fn, slot = self.fn, record_layout(record).slots[name]
        present = None
        if slot.bit is not None:
            byte = fn.load("i8", fn.gep(cursor, slot.bit // 8))
            present = fn.v(f"icmp ne i8 {fn.v(f'and i8 {byte}, {1 << slot.bit % 8}')}, 0")
        return fn.gep(cursor, slot.offset), present

    def item(self, g: Exprs, cursor: str, array: Array, at: str) -> str:
        inner = stride(array.element)
        for n in array.shape[1:]:
            inner *= n
        return self._element(cursor, at, inner)

    def flat_item(self, g: Exprs, cursor: str, array: Array, at: str) -> str:
        return self._element(cursor, at, stride(array.element))

    def _element(self, cursor: str, at: str, size: int) -> str:
        if at.isdecimal():
            return self.fn.gep(cursor, int(at) * size)
        return self.fn.v(f"getelementptr [{size} x i8], ptr {cursor}, i64 {at}")

    def reference(self, g: Exprs, cursor: str, size: int, ok: str | None) -> tuple[str, str, str | None]:
        """Follow a reference: address, length and whether it stays inside; an empty one points at the record."""
        fn = self.fn
        offset = fn.v(f"zext i32 {fn.load('i32', cursor)} to i64")
        length = fn.v(f"zext i32 {fn.load('i32', fn.gep(cursor, 4))} to i64")
        span = length if size == 1 else fn.v(f"mul i64 {length}, {size}")
        low = fn.v(f"icmp ult i64 {offset}, {self.layout.size}")
        high = fn.v(f"icmp ugt i64 {fn.v(f'add i64 {offset}, {span}')}, %len")
        some = fn.v(f"icmp ne i64 {length}, 0")
        bad = fn.and_(some, fn.or_(low, high)) or "true"
        g.fault(Fault.MALFORMED, bad, ok)
        good = fn.not_(bad)
        ok = fn.and_(ok, good)
        address = fn.select(fn.and_(ok, some) or "true", "ptr", fn.gep("%rec", offset), "%rec")
        return address, fn.select(ok or "true", "i64", length, "0"), ok

    def list(self, g: Exprs, cursor: str, type: List, ok: str | None) -> tuple[str, str, str | None]:
        return self.reference(g, cursor, stride(type.element), ok)

    def list_item(self, g: Exprs, start: str, type: List, at: str, ok: str | None) -> str:
        """An element; where it is not ok, zeros that belong to nobody."""
        size = stride(type.element)
        address = self._element(start, at, size)
        if ok is None:
            return address
        nothing = self._zeros(size)
        return self.fn.select(ok, "ptr", address, nothing)

    def _zeros(self, size: int) -> str:
        if size <= 4096:
            return self.fn.module.constant(f"[{size} x i8] zeroinitializer")
        if size > ZEROS:
            raise ExecutionError(
                f"{self.layout.record.name}: expected list elements of at most {ZEROS} bytes, found {size}"
            )
        self.fn.module.declared["hw_zeros"] = "@hw_zeros = external global i8"
        return "@hw_zeros"

    def scalar(self, g: Exprs, cursor: str, stored: Type, ok: str | None) -> Val:
        if is_text(stored):
            address, length, ok = self.reference(g, cursor, 1, ok)
            return Val(address, ok, length)
        return Val(load_slot(self.fn, cursor, stored), ok)

    def handle(self, g: Exprs, cursor: str, type: Type, ok: str | None) -> tuple[str, str, str | None]:
        """What a whole copy needs later: a list's or array's address and a list's count."""
        if isinstance(type, List):
            address, count, ok = self.list(g, cursor, type, ok)
            return self.fn.v(f"ptrtoint ptr {address} to i64"), count, ok
        return self.fn.v(f"ptrtoint ptr {cursor} to i64"), "0", ok

    def meta(self, name: str) -> Val:
        return read_meta(self.fn, "%env", name, META_TYPES[name])


def load_slot(fn: Fn, ptr: str, stored: Type) -> str:
    """A fixed-size slot, promoted."""
    if isinstance(stored, Enum):
        return fn.v(f"sext i32 {fn.load('i32', ptr)} to i64")
    assert isinstance(stored, Scalar)
    match stored.name:
        case "bool":
            return fn.v(f"icmp ne i8 {fn.load('i8', ptr)}, 0")
        case "f32":
            return fn.v(f"fpext float {fn.load('float', ptr)} to double")
        case "f64":
            return fn.load("double", ptr)
        case "i64" | "u64" | "timestamp":
            return fn.load("i64", ptr)
    kind = "sext" if stored.is_signed else "zext"
    return fn.v(f"{kind} i{stored.bits} {fn.load(f'i{stored.bits}', ptr)} to i64")


def store_slot(fn: Fn, ptr: str, stored: Type, x: str) -> None:
    """The other way; the value is known to fit."""
    if isinstance(stored, Enum):
        fn.store("i32", fn.v(f"trunc i64 {x} to i32"), ptr)
        return
    assert isinstance(stored, Scalar)
    match stored.name:
        case "bool":
            fn.store("i8", fn.v(f"zext i1 {x} to i8"), ptr)
        case "f32":
            fn.store("float", fn.v(f"fptrunc double {x} to float"), ptr)
        case "f64":
            fn.store("double", x, ptr)
        case "i64" | "u64" | "timestamp":
            fn.store("i64", x, ptr)
        case _:
            fn.store(f"i{stored.bits}", fn.v(f"trunc i64 {x} to i{stored.bits}"), ptr)


def check_header(fn: Fn, layout: Layout, bad: str) -> None:
    """Go on only with a record of this very type whose size is the buffer's.

    Two branches: one on the length, one on the header's two words, size with magic and fingerprint. Where nothing
    varies in size both are constants; else the length must hold the fixed part and fit the header's 32 bits.
    """
    marks, fingerprint = (int.from_bytes(layout.header[at:end], "little") for at, end in ((0, 4), (4, 12)))
    look, go = fn.label("look"), fn.label("go")
    if layout.fixed:
        fn.cbr(fn.v(f"icmp eq i64 %len, {layout.size}"), look, bad)
        fn.at(look)
        header = fingerprint << 64 | marks << 32 | layout.size
        same = fn.v(f"icmp eq i128 {fn.load('i128', '%rec')}, {header}")
    else:
        room = fn.v(f"sub i64 %len, {layout.size}")
        fn.cbr(fn.v(f"icmp ult i64 {room}, {(1 << 32) - layout.size}"), look, bad)
        fn.at(look)
        expected = fn.v(f"or i64 %len, {_signed(marks << 32)}")
        first = fn.v(f"xor i64 {fn.load('i64', '%rec')}, {expected}")
        second = fn.v(f"xor i64 {fn.load('i64', fn.gep('%rec', 8))}, {_signed(fingerprint)}")
        same = fn.v(f"icmp eq i64 {fn.v(f'or i64 {first}, {second}')}, 0")
    fn.cbr(same, go, bad)
    fn.at(go)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
