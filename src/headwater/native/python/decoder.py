"""The decoder of an event type in machine code: a record to its instance.

It takes what is plainly right: every length is checked before anything is read or made, and items of the heap must lie
one after the other as the encoder puts them. Anything else leads to the block "misfit", which lets go of what was
made and calls the decoder of `types`, which says what is wrong.

Every value made is owned by one cell of an array on the stack until it is handed on. So letting go is letting go of
all cells, wherever decoding stopped.
"""

from __future__ import annotations

from typing import Any

from headwater.native.python.emit import Code, Place, address
from headwater.native.python.encoder import Unsupported
from headwater.native.python.interpreter import offsets, plainly_made, reads_datetimes
from headwater.types.binding import Binding
from headwater.types.layout import Layout, record_layout, size_align, stride
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN, Array, Enum, List, Record, Scalar


class _Decoder:
    def __init__(self, binding: Binding, fallback: Any) -> None:
        self.binding, self.fallback = binding, fallback
        self.layout = Layout.of(binding.record)
        self.fn = Code("ptr @decode(ptr %self, ptr %given) nounwind")
        self.cells = 0
        self.keep: list[Any] = []

    def source(self) -> str:
        """The text of the function: bytes to an event. What is not quite as it should be is left to Python, which says
        what is wrong."""
        fn, layout = self.fn, self.layout
        self.pos = fn.alloca("i64")
        fn.store("i64", str(layout.size), self.pos, 8)
        fn.need(fn.type_is("%given", bytes), "other")
        self.size = fn.call("PyBytes_Size", "%given")
        fn.need(fn.v(f"icmp uge i64 {self.size}, {layout.size}"), "other")
        self.data = fn.call("PyBytes_AsString", "%given")
        total = fn.v(f"zext i32 {fn.load('i32', self.data)} to i64")
        fn.need(fn.v(f"icmp eq i64 {total}, {self.size}"), "other")
        for type, at, expected in (("i32", 4, layout.header[:4]), ("i64", 8, layout.header[4:])):
            found = fn.load(type, fn.gep(self.data, at))
            fn.need(fn.v(f"icmp eq {type} {found}, {int.from_bytes(expected, 'little')}"), "other")
        result = self.cell()
        self.record(self.binding, Place(16), result)
        fn.ret(f"ptr {self.take(result)}")
        self.ends()
        fn.prologue.append(f"  %cells = alloca [{self.cells} x ptr], align 16")
        fn.prologue.append(f"  call void @llvm.memset.p0.i64(ptr %cells, i8 0, i64 {8 * self.cells}, i1 false)")
        fn.memory("memset.p0.i64(ptr, i8, i64, i1)")
        return fn.source()

    def ends(self) -> None:
        """The blocks where decoding stops: with a Python error, and where this record needs a closer look."""
        fn = self.fn

        def let_go() -> None:
            fn.loop(str(self.cells), lambda i: fn.run("Py_DecRef", fn.load("ptr", fn.at_index("ptr", "%cells", i), 8)))

        fn.at("error")
        ours = fn.call("PyErr_ExceptionMatches", address(Exception))
        fn.need(fn.v(f"icmp ne i32 {ours}, 0"), "fatal")
        fn.run("PyErr_Clear")
        fn.at("misfit")
        let_go()
        fn.at("other")
        fn.ret(f"ptr {fn.call('PyObject_CallOneArg', address(self.fallback), '%given')}")
        fn.at("fatal")
        let_go()
        fn.ret("ptr null")

    # ── cells ──

    def cell(self, count: int = 1) -> int:
        first, self.cells = self.cells, self.cells + count
        return first

    def own(self, cell: int, value: str) -> None:
        """Puts a new value in its cell; there must be one."""
        self.fn.present(value, "error")
        self.fn.store("ptr", value, self.address(cell), 8)

    def share(self, cell: int, value: str) -> None:
        """Puts one more reference to a value in a cell."""
        self.fn.run("Py_IncRef", value)
        self.fn.store("ptr", value, self.address(cell), 8)

    def take(self, cell: int) -> str:
        """The value in a cell, which is empty then."""
        value = self.fn.load("ptr", self.address(cell), 8)
        self.fn.store("ptr", "null", self.address(cell), 8)
        return value

    def address(self, cell: int) -> str:
        return self.fn.gep("%cells", 8 * cell)

    # ── values ──

    def get(self, type: str, place: Place) -> str:
        return self.fn.load(type, self.fn.pointer(self.data, place))

    def record(self, binding: Binding, place: Place, cell: int) -> None:
        """Decode the fields of a record and make its object; bits beyond its optional fields must not be set."""
        fn, level = self.fn, record_layout(binding.record)
        optional = sum(field.optional for field in binding.record.fields)
        bitmaps = [self.get("i8", place + k) for k in range(level.bitmap_bytes)]
        if optional % 8:
            fn.need(fn.v(f"icmp ult i8 {bitmaps[-1]}, {1 << optional % 8}"), "misfit")
        first = self.cell(len(binding.parts))
        for k, (part, slot) in enumerate(zip(binding.parts, level.slots.values(), strict=True), first):
            if slot.bit is None:
                self.value(part, place + slot.offset, k)
                continue
            there, absent, after = fn.label("there"), fn.label("absent"), fn.label("after")
            bit = fn.v(f"and i8 {bitmaps[slot.bit // 8]}, {1 << slot.bit % 8}")
            fn.cbr(fn.v(f"icmp ne i8 {bit}, 0"), there, absent)
            fn.at(absent)
            self.blank(place + slot.offset, slot.size)
            self.share(k, address(None))
            fn.br(after)
            fn.at(there)
            self.value(part, place + slot.offset, k)
            fn.at(after)
        if binding is self.binding:
            rounded = fn.v(f"add i64 {fn.load('i64', self.pos, 8)}, 7")
            end = fn.v(f"and i64 {rounded}, -8")
            fn.need(fn.v(f"icmp eq i64 {end}, {self.size}"), "misfit")
        self.make(binding, first, cell)

    def make(self, binding: Binding, first: int, cell: int) -> None:
        """The instance of the values in the cells from `first`."""
        fn, count = self.fn, len(binding.parts)
        places = offsets(binding)
        if places is not None and plainly_made(binding, places):
            made = fn.call("PyType_GenericAlloc", address(binding.cls), "0")
            fn.present(made, "error")
            for k, at in enumerate(places, first):
                fn.store("ptr", self.take(k), fn.gep(made, at), 8)
            if _collectable(binding.cls) and all(isinstance(part.type, Scalar) for part in binding.parts):
                fn.run("PyObject_GC_UnTrack", made)  # as the class itself does with what cannot be part of a cycle
            fn.store("ptr", made, self.address(cell), 8)
            return
        names: Any = None
        if binding.constructor is not binding.cls:
            names = binding.attrs
            self.keep.append(names)
        given = "0" if names else str(count)
        keywords = address(names) if names else "null"
        made = fn.call("PyObject_Vectorcall", address(binding.cls), self.address(first), given, keywords)
        self.own(cell, made)
        for k in range(first, first + count):
            fn.run("Py_DecRef", self.take(k))

    def blank(self, place: Place, size: int) -> None:
        fn = self.fn
        if size in (1, 2, 4, 8):
            fn.need(fn.v(f"icmp eq i{8 * size} {self.get(f'i{8 * size}', place)}, 0"), "misfit")
            return
        set = fn.call("hw_set", fn.pointer(self.data, place), str(size))
        fn.need(fn.v(f"icmp eq i64 {set}, 0"), "misfit")

    def value(self, binding: Binding, place: Place, cell: int) -> None:
        """Decode one value into a cell, which owns it until the object is made."""
        fn, type = self.fn, binding.type
        match type:
            case Scalar(name="bool"):
                byte = self.get("i8", place)
                fn.need(fn.v(f"icmp ult i8 {byte}, 2"), "misfit")
                self.share(cell, fn.select(fn.v(f"icmp eq i8 {byte}, 0"), "ptr", address(False), address(True)))
            case Scalar(name="text" | "bytes" as name):
                start, count = self.reference(place, 1, 1)
                data = fn.gep(self.data, start)
                if name == "text":
                    self.own(cell, fn.call("PyUnicode_DecodeUTF8", data, count, "null"))
                else:
                    self.own(cell, fn.call("PyBytes_FromStringAndSize", data, count))
            case Scalar(name="timestamp"):
                self.timestamp(place, cell)
            case Scalar(name="f64"):
                self.own(cell, fn.call("PyFloat_FromDouble", self.get("double", place)))
            case Scalar(name="f32"):
                number = fn.call("PyFloat_Unpack4", fn.pointer(self.data, place), "1")
                self.own(cell, fn.call("PyFloat_FromDouble", number))
            case Scalar(name="u64"):
                self.own(cell, fn.call("PyLong_FromUnsignedLongLong", self.get("i64", place)))
            case Scalar():
                number = self.get(f"i{type.bits}", place)
                if type.bits < 64:
                    number = fn.v(f"{'sext' if type.is_signed else 'zext'} i{type.bits} {number} to i64")
                self.own(cell, fn.call("PyLong_FromLongLong", number))
            case Enum(members=members):
                self.member(place, dict(zip((code for _, code in members), binding.members, strict=True)), cell)
            case Record():
                self.record(binding, place, cell)
            case Array(shape=shape):
                self.array(binding.parts[0], place, shape, cell)
            case List(element=element):
                start, count = self.reference(place, stride(element), size_align(element)[1])
                self.elements(binding.parts[0], start, count, (), cell, binding.cls)

    def timestamp(self, place: Place, cell: int) -> None:
        if not reads_datetimes():
            raise Unsupported
        fn = self.fn
        micros = self.get("i64", place)
        above = fn.v(f"sub i64 {micros}, {TIMESTAMP_MIN}")
        fn.need(fn.v(f"icmp ule i64 {above}, {TIMESTAMP_MAX - TIMESTAMP_MIN}"), "misfit")
        self.own(cell, fn.call("hw_datetime", micros))

    def member(self, place: Place, members: dict[int, Any], cell: int) -> None:
        fn = self.fn
        end = fn.label("member")
        cases = [(fn.label("case"), code, member) for code, member in members.items()]
        listed = " ".join(f"i32 {code}, label %{label}" for label, code, _ in cases)
        fn.do(f"switch i32 {self.get('i32', place)}, label %misfit [ {listed} ]")
        fn.ended = True
        for label, _, _ in cases:
            fn.at(label)
            fn.br(end)
        fn.at(end)
        found = fn.v("phi ptr " + ", ".join(f"[ {address(member)}, %{label} ]" for label, _, member in cases))
        self.share(cell, found)

    # ── items of the heap, and elements ──

    def reference(self, place: Place, step: int, align: int) -> tuple[str, str]:
        """Where an item begins and how many elements it has (both i64), after making sure that it lies where it must:
        the position of the heap moves past it."""
        fn = self.fn
        start = fn.v(f"zext i32 {self.get('i32', place)} to i64")
        count = fn.v(f"zext i32 {self.get('i32', place + 4)} to i64")

        def some() -> None:
            expected = fn.load("i64", self.pos, 8)
            if align > 1:
                expected = fn.v(f"and i64 {fn.v(f'add i64 {expected}, {align - 1}')}, {-align}")
            fn.need(fn.v(f"icmp eq i64 {start}, {expected}"), "misfit")
            end = fn.v(f"add i64 {start}, {fn.v(f'mul i64 {count}, {step}')}")
            fn.need(fn.v(f"icmp ule i64 {end}, {self.size}"), "misfit")
            fn.store("i64", end, self.pos, 8)

        def none() -> None:
            fn.need(fn.v(f"icmp eq i64 {start}, 0"), "misfit")

        fn.branch(fn.v(f"icmp ne i64 {count}, 0"), some, none)
        return start, count

    def array(self, part: Binding, place: Place, shape: tuple[int, ...], cell: int) -> None:
        self.elements(part, self.fn.position(place), str(shape[0]), shape[1:], cell, tuple)

    def elements(self, part: Binding, start: str, count: str, inner: tuple[int, ...], cell: int, cls: type) -> None:
        """The list or tuple of elements that lie one after the other; `inner` are the further dimensions.

        Python code may run while a record is made: only lists that are whole must be there then."""
        fn = self.fn
        step = stride(part.type)
        for n in inner:
            step *= n
        simple = not inner and isinstance(part.type, Scalar | Enum)
        kind = "List" if cls is list or not simple else "Tuple"
        made = fn.call(f"Py{kind}_New", count if simple else "0")
        self.own(cell, made)
        item = self.cell()

        def one(i: str) -> None:
            place = Place(0, fn.v(f"add i64 {start}, {fn.v(f'mul i64 {i}, {step}')}"))
            if inner:
                self.array(part, place, inner, item)
            else:
                self.value(part, place, item)
            if simple:
                fn.call(f"Py{kind}_SetItem", made, i, self.take(item))
                return
            done = fn.call("PyList_Append", made, fn.load("ptr", self.address(item), 8))
            fn.need(fn.v(f"icmp eq i32 {done}, 0"), "error")
            fn.run("Py_DecRef", self.take(item))

        fn.loop(count, one)
        if kind == "List" and cls is tuple:
            whole = fn.call("PyList_AsTuple", made)
            fn.present(whole, "error")
            fn.store("ptr", whole, self.address(cell), 8)
            fn.run("Py_DecRef", made)


def _collectable(cls: Any) -> bool:
    return bool(cls.__flags__ & 1 << 14)  # Py_TPFLAGS_HAVE_GC


def decoder_source(binding: Binding, fallback: Any) -> tuple[str, tuple[Any, ...]]:
    """The LLVM assembly of `@decode`, and what must live as long as it; raises `Unsupported` where there can be none.

    `fallback` decodes what native code does not take."""
    it = _Decoder(binding, fallback)
    return it.source(), tuple(it.keep)
