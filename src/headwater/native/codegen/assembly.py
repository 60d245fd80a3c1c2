"""From a stage to a record: presence bits, heap, header. Generated for each output type.

The function may be called again with a larger buffer: it reads the stage and the input and changes neither, and it
says how many bytes the record takes whether or not they fit.

The input may be malformed: whatever comes from it as it is (texts, times, codes, and lists with all that is in them) is
checked on the way (`validity.py`), so that the record is a valid event or none.
"""

from __future__ import annotations

from headwater.native.codegen.stage_writer import Node, has_references, stage_of
from headwater.native.codegen.validity import Validity, is_checked
from headwater.native.emit import Fn, Module, is_text
from headwater.native.kernels.runtime import SIGNATURES
from headwater.types.layout import HEADER_SIZE, MAX_SIZE, Layout, record_layout, size_align, stride
from headwater.types.model import Array, List, Record, Type

# words of the output block that env points to; the stage follows at byte 64
BUFFER, CAPACITY, SIZE = 0, 8, 16
STAGE = 64
ALIGNMENT = 64


def assemble(module: Module, record: Record, limit: int) -> None:
    """Define `i64 @assemble(ptr %rec, i64 %len, ptr %out)`; `limit` is where the input's heap begins.

    Returns the size of the record, or -1 where a reference of the input points outside it, or a value of the input is
    none of its type.
    """
    _Assembler(module, record, limit).write()


class _Assembler:
    def __init__(self, module: Module, record: Record, limit: int) -> None:
        self.fn = Fn(module, "i64 @assemble(ptr %rec, i64 %len, ptr %out) noinline nounwind")
        self.record, self.limit, self.plan, self.layout = record, limit, stage_of(record), Layout.of(record)
        module.intrinsic("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        module.intrinsic("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.append_text = module.declare(SIGNATURES["hw_append_text"], "hw_append_text")
        self.append_items = module.declare(SIGNATURES["hw_append_items"], "hw_append_items")

    def write(self) -> None:
        fn = self.fn
        self.cursor, self.bad, self.most = fn.alloca("i64"), fn.alloca("i1"), fn.alloca("i64")
        self.buffer = fn.load("ptr", fn.gep("%out", BUFFER), 8)
        self.stage = fn.gep("%out", STAGE)
        self.validity = Validity(fn, self.bad)
        fn.store("i64", str(self.layout.size), self.cursor, 8)
        fn.store("i1", "false", self.bad)
        self.copy(fn.gep(self.buffer, HEADER_SIZE), self.stage, str(self.plan.fixed))
        for node in self.plan.nodes:
            self.node(node)
        padding = self.fn.module.declare(SIGNATURES["hw_pad"], "hw_pad")
        end = fn.v(f"call i64 {padding}(ptr %out, ptr {self.cursor}, i64 8)")
        fn.store("i32", fn.v(f"trunc i64 {end} to i32"), self.buffer)
        head = self.layout.header
        fn.store("i32", str(int.from_bytes(head[:4], "little")), fn.gep(self.buffer, 4))
        fn.store("i64", str(int.from_bytes(head[4:], "little", signed=True)), fn.gep(self.buffer, 8))
        failed = fn.or_(fn.load("i1", self.bad), fn.v(f"icmp ugt i64 {end}, {MAX_SIZE}"))
        fn.ret(f"i64 {fn.select(failed, 'i64', '-1', end)}")
        fn.finish()

    def copy(self, to: str, source: str, size: str) -> None:
        self.fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def node(self, node: Node) -> None:
        """A field of the stage: its presence bit, then what it has on the heap."""
        fn = self.fn
        checked = is_checked(node.type) and not node.children and node.ref < 0
        if node.bit is None and not has_references(node.type) and not node.children and node.ref < 0 and not checked:
            return

        def there() -> None:
            """Put a field that is there into the record: its bit, and its bytes, or a reference to what follows on the
            heap."""
            if node.bit is not None:
                byte = fn.gep(self.buffer, HEADER_SIZE + node.bit[0])
                fn.store("i8", fn.v(f"or i8 {fn.load('i8', byte)}, {node.bit[1]}"), byte)
            self.allow()
            slot = str(HEADER_SIZE + node.offset)
            ref = fn.gep(self.stage, node.ref) if node.ref >= 0 else ""
            if is_text(node.type):
                fold = fn.v(f"trunc i64 {fn.load('i64', fn.gep(ref, 16), 8)} to i8")
                source, length = fn.load("ptr", ref, 8), fn.load("i64", fn.gep(ref, 8), 8)
                self.validity.text(node.type, source, length)
                self.text(slot, source, length, fold)
            elif isinstance(node.type, List):
                self.items(slot, node.type, fn.load("ptr", ref, 8), fn.load("i64", fn.gep(ref, 8), 8))
            elif node.ref >= 0:
                source = fn.load("ptr", ref, 8)
                self.copy(fn.gep(self.buffer, slot), source, str(node.size))
                self.fix(node.type, source, slot)
            elif checked:
                self.validity.value(node.type, fn.gep(self.stage, node.offset))
            if not is_text(node.type):
                self.overdone()
            for child in node.children:
                self.node(child)

        fn.branch(fn.v(f"icmp ne i8 {fn.load('i8', fn.gep(self.stage, node.flag))}, 0"), there)

    def allow(self) -> None:
        """One part of the input is copied now: the record grows by no more than the input is long, and alignment."""
        fn = self.fn
        most = fn.v(f"add i64 {fn.load('i64', self.cursor, 8)}, {fn.v(f'add i64 %len, {ALIGNMENT}')}")
        fn.store("i64", most, self.most, 8)

    def overdone(self) -> str:
        """More is copied than there is: references overlap, and following them all might never end."""
        fn = self.fn
        over = fn.v(f"icmp ugt i64 {fn.load('i64', self.cursor, 8)}, {fn.load('i64', self.most, 8)}")
        fn.store("i1", fn.or_(fn.load("i1", self.bad), over), self.bad)
        return over

    def text(self, slot: str, source: str, length: str, fold: str) -> None:
        """Append a text and refer to it from an offset of the record."""
        arguments = f"ptr %out, ptr {self.cursor}, i64 {slot}, ptr {source}, i64 {length}, i8 {fold}"
        self.fn.do(f"call void {self.append_text}({arguments})")

    def items(self, slot: str, type: List, source: str, count: str) -> None:
        """Append a list's elements, then what they refer to."""
        size, align = stride(type.element), size_align(type.element)[1]
        arguments = f"ptr %out, ptr {self.cursor}, i64 {slot}, ptr {source}, i64 {count}, i64 {size}, i64 {align}"
        start = self.fn.v(f"call i64 {self.append_items}({arguments})")
        self.each(type.element, source, start, count)

    def each(self, element: Type, source: str, slot: str, count: str) -> None:
        if not has_references(element) and not is_checked(element):
            return
        fn, size = self.fn, stride(element)
        count = fn.select(self.overdone(), "i64", "0", count)

        def one(i: str) -> None:
            by = fn.v(f"mul i64 {i}, {size}")
            self.fix(element, fn.gep(source, by), fn.v(f"add i64 {slot}, {by}"))

        fn.loop(count, one)

    def fix(self, type: Type, source: str, slot: str) -> None:
        """Copy what a value, already copied as it was, refers to; `slot` is its offset in the new record. Whatever is
        not followed further is checked."""
        fn = self.fn
        match type:
            case Array(element=element, count=count):
                self.each(element, source, slot, str(count))
            case Record():
                level = record_layout(type)
                self.validity.gaps(type, source)
                for part in level.slots.values():
                    if not has_references(part.type) and not is_checked(part.type):
                        continue
                    inner = fn.v(f"add i64 {slot}, {part.offset}")
                    at = fn.gep(source, part.offset)
                    if part.bit is None:
                        self.fix(part.type, at, inner)
                        continue
                    byte = fn.load("i8", fn.gep(source, part.bit // 8))
                    on = fn.v(f"icmp ne i8 {fn.v(f'and i8 {byte}, {1 << part.bit % 8}')}, 0")
                    fn.branch(on, lambda t=part.type, a=at, s=inner: self.fix(t, a, s))  # type: ignore[misc]
            case List():
                start, count_ = self.follow(source, stride(type.element))
                self.items(slot, type, start, count_)
            case _ if is_text(type):
                start, length = self.follow(source, 1)
                self.validity.text(type, start, length)
                self.text(slot, start, length, "0")
            case _:
                self.validity.value(type, source)

    def follow(self, slot: str, size: int) -> tuple[str, str]:
        """A reference of the input; one that points outside is empty and spoils the record."""
        fn = self.fn
        offset = fn.v(f"zext i32 {fn.load('i32', slot)} to i64")
        length = fn.v(f"zext i32 {fn.load('i32', fn.gep(slot, 4))} to i64")
        end = fn.v(f"add i64 {offset}, {fn.v(f'mul i64 {length}, {size}')}")
        low, high = fn.v(f"icmp ult i64 {offset}, {self.limit}"), fn.v(f"icmp ugt i64 {end}, %len")
        some = fn.v(f"icmp ne i64 {length}, 0")
        bad = fn.and_(some, fn.or_(low, high)) or "true"
        fn.store("i1", fn.or_(fn.load("i1", self.bad), bad), self.bad)
        good = fn.and_(some, fn.not_(bad)) or "true"
        return fn.select(good, "ptr", fn.gep("%rec", offset), "%rec"), fn.select(good, "i64", length, "0")
