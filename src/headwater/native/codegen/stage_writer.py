"""The output event under construction, the same for one record and for a batch.

It is built in a *stage*: the fixed part exactly as a record has it, then one byte for each field that says it is set,
then three words for each text (pointer, length or -1, fold) and for each list or array with references (what the
reader gave as its handle, and which source it came from). A record's stage is assembled into a record
(`assembly.py`); a batch keeps one stage for each passed row and turns them into columns (`output_columns.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from headwater.ir.nodes import CopyOut, Path, SetOut
from headwater.native.codegen.record_reader import store_slot
from headwater.native.emit import Fn, Val, is_text
from headwater.types.layout import record_layout, stride
from headwater.types.model import Array, List, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.native.codegen.expr import Exprs


@dataclass(frozen=True)
class Node:
    """A field of the output. `offset` is in the stage; `bit` is the presence bit's byte and mask there."""

    name: str
    type: Type
    optional: bool
    offset: int
    size: int
    bit: tuple[int, int] | None
    flag: int
    ref: int  # offset of its three words, or -1
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Stage:
    """Where an output is put together: fields at fixed places, a flag for each that is there, and references to text
    and lists."""

    record: Record
    nodes: tuple[Node, ...]
    fixed: int  # bytes of the fixed part
    flags: int  # bytes of it and the flags
    size: int


def has_references(type: Type) -> bool:
    """Whether values of this type refer to the heap."""
    match type:
        case List():
            return True
        case Scalar():
            return is_text(type)
        case Array(element=element):
            return has_references(element)
        case Record(fields=fields):
            return any(has_references(f.type) for f in fields)
        case _:
            return False


def is_pending(type: Type) -> bool:
    """Whether a copy is only noted and made at the end."""
    return isinstance(type, List) or (
        isinstance(type, Array) and (has_references(type.element) or isinstance(type.element, Record))
    )


@lru_cache(maxsize=256)
def stage_of(record: Record) -> Stage:
    """The stage of an output's type."""
    fixed = (record_layout(record).size + 7) // 8 * 8
    count = 0
    refs = 0

    def visit(level: Record, base: int) -> tuple[Node, ...]:
        nonlocal count, refs
        made = []
        for field in level.fields:
            slot = record_layout(level).slots[field.name]
            flag, count = count, count + 1
            ref = -1
            if is_text(field.type) or is_pending(field.type):
                ref, refs = refs, refs + 1
            children = visit(field.type, base + slot.offset) if isinstance(field.type, Record) else ()
            bit = None if slot.bit is None else (base + slot.bit // 8, 1 << slot.bit % 8)
            made.append(
                Node(field.name, field.type, field.optional, base + slot.offset, slot.size, bit, flag, ref, children)
            )
        return tuple(made)

    raw = visit(record, 0)
    flags = (fixed + count + 7) // 8 * 8

    def place(node: Node) -> Node:
        ref = -1 if node.ref < 0 else flags + 24 * node.ref
        children = tuple(place(child) for child in node.children)
        return Node(
            node.name, node.type, node.optional, node.offset, node.size, node.bit, fixed + node.flag, ref, children
        )

    return Stage(record, tuple(place(node) for node in raw), fixed, flags, flags + 24 * refs)


Store = Callable[[Node, str], None]  # writes at a node, at an offset (i64) inside it


class StageWriter:
    """Generated code that fills a stage; `stage` is the pointer to it."""

    def __init__(self, fn: Fn, record: Record, stage: str) -> None:
        self.fn, self.plan, self.stage = fn, stage_of(record), stage
        self.spoiled = fn.alloca("i1")
        fn.module.intrinsic("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")

    def at(self, offset: int) -> str:
        return self.fn.gep(self.stage, offset)

    def clear(self, offset: int, size: int) -> None:
        self.fn.do(f"call void @llvm.memset.p0.i64(ptr {self.at(offset)}, i8 0, i64 {size}, i1 false)")

    def begin(self) -> None:
        """Nothing is set but what starts at zero."""
        self.fn.store("i1", "false", self.spoiled)
        self.clear(0, self.plan.flags)
        self.blank(self.plan.nodes)

    def blank(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            starts = not node.optional and (isinstance(node.type, Record) or _zeroable(node.type))
            self.mark(node, "1" if starts else "0")
            if starts:
                self.blank(node.children)

    def mark(self, node: Node, flag: str) -> None:
        self.fn.store("i8", flag, self.at(node.flag))

    def is_set(self, node: Node) -> str:
        return self.fn.v(f"icmp ne i8 {self.fn.load('i8', self.at(node.flag))}, 0")

    def unset(self, node: Node) -> None:
        self.clear(node.offset, node.size)
        self.mark(node, "0")

    def materialise(self, node: Node) -> None:
        """A part is set below this, so it must be there."""

        def make() -> None:
            self.clear(node.offset, node.size)
            self.mark(node, "1")
            self.blank(node.children)

        self.fn.branch(self.is_set(node), lambda: None, make)

    # ── setting ──

    def set(self, g: Exprs, stmt: SetOut | CopyOut, safe: bool) -> None:
        """The value is evaluated before the indices; an index out of range changes nothing."""
        if isinstance(stmt, SetOut):
            value = g.eval(stmt.value)

            def store(node: Node, offset: str) -> None:
                self.put_scalar(node, offset, stmt.stored, value)

            there = value.ok
        else:
            cursor, there = g.walk(stmt.source, safe)
            if is_pending(stmt.stored):
                first, second, there = g.reader.handle(g, cursor, stmt.stored, there)

            def store(node: Node, offset: str) -> None:
                if is_pending(stmt.stored):
                    self.put_pending(g, node, first, second)
                else:
                    self.copy(g, node, offset, stmt.stored, cursor)

        self._reach(g, stmt.path, there, store, safe)

    def _reach(self, g: Exprs, path: Path, there: str | None, store: Store, safe: bool) -> None:
        """Store something at a path of the output, and note that everything on the way to it is there; nothing if an
        index is out of range."""
        fn = self.fn
        nodes, here, ok = self.plan.nodes, None, None
        trail: list[Node] = []
        offset = "0"
        size = 1
        array: Array | None = None
        for step in path.steps:
            if isinstance(step, str):
                here = next(node for node in nodes if node.name == step)
                nodes, array = here.children, here.type if isinstance(here.type, Array) else None
                size = here.size
                trail.append(here)
            else:
                assert array is not None
                at, ok = g.index(step, str(array.shape[0]), ok, safe)
                size //= array.shape[0]
                offset = fn.v(f"add i64 {offset}, {fn.v(f'mul i64 {at}, {size}')}")
                if len(array.shape) > 1:
                    array = Array(array.element, array.shape[1:])
        assert here is not None
        indexed = not isinstance(path.steps[-1], str)

        def write() -> None:
            for node in trail if indexed else trail[:-1]:
                self.materialise(node)
            if there is None:
                store(here, offset)
            elif indexed:
                fn.branch(there, lambda: store(here, offset), lambda: fn.store("i1", "true", self.spoiled))
            else:
                fn.branch(there, lambda: store(here, offset), lambda: self.unset(here))

        if ok is None:
            write()
        else:
            fn.branch(ok, write)

    def put_scalar(self, node: Node, offset: str, stored: Type, value: Val) -> None:
        fn = self.fn
        if is_text(stored):
            ref = self.at(node.ref)
            fn.store("ptr", value.x, ref, 8)
            fn.store("i64", value.n, fn.gep(ref, 8), 8)
            fn.store("i64", fn.v(f"zext i8 {value.fold} to i64"), fn.gep(ref, 16), 8)
        else:
            store_slot(fn, fn.gep(self.at(node.offset), offset), stored, value.x)
        if not isinstance(node.type, Array):
            self.mark(node, "1")

    def put_pending(self, g: Exprs, node: Node, first: str, second: str) -> None:
        fn, ref = self.fn, self.at(node.ref)
        fn.store("i64", first, ref, 8)
        fn.store("i64", second, fn.gep(ref, 8), 8)
        self.mark(node, "1")

    def copy(self, g: Exprs, node: Node, offset: str, type: Type, cursor: object) -> None:
        """A whole array of fixed-size elements, or a record field by field."""
        fn = self.fn
        if isinstance(type, Array):
            base, size = fn.gep(self.at(node.offset), offset), stride(type.element)

            def element(i: str) -> None:
                source = g.reader.flat_item(g, cursor, type, i)
                value = g.reader.scalar(g, source, type.element, None)
                store_slot(fn, fn.v(f"getelementptr [{size} x i8], ptr {base}, i64 {i}"), type.element, value.x)

            fn.loop(str(type.count), element)
            self.mark(node, "1")
            return
        assert isinstance(type, Record)
        self.mark(node, "1")
        for child in node.children:
            source, present = g.reader.field(g, cursor, type, child.name)
            if present is None:
                self._copy_field(g, child, source)
            else:
                fn.branch(present, partial(self._copy_field, g, child, source), partial(self.unset, child))

    def _copy_field(self, g: Exprs, node: Node, source: object) -> None:
        type = node.type
        if is_pending(type):
            first, second, ok = g.reader.handle(g, source, type, None)
            self.put_pending(g, node, first, second)
        elif isinstance(type, Array | Record):
            self.copy(g, node, "0", type, source)
            return
        else:
            value = g.reader.scalar(g, source, type, None)
            self.put_scalar(node, "0", type, value)
            ok = value.ok
        if ok is not None:  # a reference outside the record
            self.fn.branch(ok, lambda: None, lambda: self.unset(node))

    # ── the end ──

    def complete(self) -> str:
        """Every required field has a value, and no element was set to missing."""
        spoiled = self.fn.load("i1", self.spoiled)
        return self.fn.and_(self.fn.not_(spoiled), self._complete(self.plan.nodes)) or "true"

    def _complete(self, nodes: tuple[Node, ...]) -> str | None:
        fn, whole = self.fn, None
        for node in nodes:
            there = self.is_set(node)
            if not node.optional:
                whole = fn.and_(whole, there)
            inner = self._complete(node.children) if node.children else None
            if inner is not None:
                whole = fn.and_(whole, fn.or_(fn.not_(there), inner))
        return whole


def _zeroable(type: Type) -> bool:
    return isinstance(type, Array) and isinstance(type.element, Scalar) and not is_text(type.element)
