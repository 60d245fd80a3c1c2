"""The encoder of an event type in machine code: an instance to its record, or None.

Nothing here runs Python code or lets another thread run, so what was looked at stays as it was; values are borrowed
from the instance. A value that is not plainly right leads to the block "misfit", which gives up what was begun and
returns None.

A record with a heap grows in a buffer, first on the stack; one without is written where it stays.
"""

from __future__ import annotations

from typing import Any

from headwater.native.python.emit import Code, Place, address
from headwater.native.python.interpreter import offsets, reads_datetimes
from headwater.native.python.kernels import NO_TIME
from headwater.types.binding import Binding
from headwater.types.codegen import has_heap
from headwater.types.layout import MAX_SIZE, Layout, record_layout, size_align, stride
from headwater.types.model import Array, Enum, List, Record, Scalar

_STACK = 1024  # bytes for a record before it needs memory of its own


class _Encoder:
    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.layout = Layout.of(binding.record)
        self.heap = has_heap(binding.type)
        self.fn = Code("ptr @encode(ptr %self, ptr %event) nounwind")
        self.fn.memory("memset.p0.i64(ptr, i8, i64, i1)")
        self.fn.memory("memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.number = self.fn.alloca("i64")  # where C functions put what they return besides

    def source(self) -> str:
        """The text of the function: an event to bytes. What it cannot take as it is, it leaves to Python."""
        fn, size = self.fn, self.layout.size
        fn.need(fn.type_is("%event", self.binding.cls), "none")
        self.refuse_buffers()
        if self.heap:
            self.open_heap()
        else:
            out = fn.call("PyBytes_FromStringAndSize", "null", str(size))
            fn.present(out, "fail")
            self.fixed = fn.call("PyBytes_AsString", out)
        self.zero(self.buffer(), str(size))
        start = self.buffer()
        header = self.layout.header
        fn.store("i32", str(int.from_bytes(header[:4], "little")), fn.gep(start, 4), 4)
        fn.store("i64", str(int.from_bytes(header[4:], "little")), fn.gep(start, 8), 8)
        self.record(self.binding, "%event", Place(16))
        if self.heap:
            out = self.close_heap()
        else:
            fn.store("i32", str(size), start, 4)
        fn.ret(f"ptr {out}")
        fn.at("error")
        fn.run("PyErr_Clear")
        fn.at("misfit")
        if self.heap:
            self.free()
        else:
            fn.run("Py_DecRef", out)
        fn.at("none")
        fn.run("Py_IncRef", address(None))
        fn.ret(f"ptr {address(None)}")
        fn.at("fail")
        if self.heap:
            self.free()
        fn.ret("ptr null")
        return fn.source()

    def refuse_buffers(self) -> None:
        """What is likely in the place of a large array is a buffer, for which nothing should be begun."""
        fn = self.fn
        for part, at in zip(self.binding.parts, self.places(self.binding), strict=True):
            if isinstance(part.type, Array) and size_align(part.type)[0] > _STACK:
                value = fn.load("ptr", fn.gep("%event", at), 8)
                fn.present(value, "none")
                cls = fn.type_of(value)
                known = fn.or_(fn.or_(fn.is_(cls, list), fn.is_(cls, tuple)), fn.is_(value, None))
                fn.need(known, "none")

    # ── the buffer ──

    def open_heap(self) -> None:
        fn = self.fn
        self.stack = fn.alloca(f"[{_STACK} x i8]", 16)
        self.buf, self.cap, self.pos = fn.alloca("ptr"), fn.alloca("i64"), fn.alloca("i64")
        fn.store("ptr", self.stack, self.buf, 8)
        fn.store("i64", str(_STACK), self.cap, 8)
        fn.store("i64", "0", self.pos, 8)
        self.advance(str(self.layout.size))

    def close_heap(self) -> str:
        """Pads the record and makes bytes of it."""
        fn = self.fn
        pos = self.align(8)
        fn.store("i32", fn.v(f"trunc i64 {pos} to i32"), self.buffer(), 4)
        out = fn.call("PyBytes_FromStringAndSize", self.buffer(), pos)
        fn.present(out, "fail")
        self.free()
        return out

    def free(self) -> None:
        fn, buffer = self.fn, self.buffer()
        own = fn.v(f"icmp ne ptr {buffer}, {self.stack}")
        fn.branch(own, lambda: fn.run("PyMem_Free", buffer))

    def buffer(self) -> str:
        return self.fn.load("ptr", self.buf, 8) if self.heap else self.fixed

    def zero(self, pointer: str, count: str) -> None:
        self.fn.do(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {count}, i1 false)")

    def advance(self, count: str) -> str:
        """Makes room for so many bytes at the end; where they begin."""
        fn = self.fn
        start, cap = fn.load("i64", self.pos, 8), fn.load("i64", self.cap, 8)
        end = fn.v(f"add i64 {start}, {count}")

        def grow() -> None:
            grown = fn.call("hw_grow", self.buffer(), self.stack, start, cap, end)
            fn.present(grown, "misfit")
            fn.store("ptr", grown, self.buf, 8)
            fn.store("i64", fn.call("hw_room", cap, end), self.cap, 8)

        fn.branch(fn.v(f"icmp ugt i64 {end}, {cap}"), grow)
        fn.store("i64", end, self.pos, 8)
        return start

    def align(self, align: int) -> str:
        """Zeros up to a multiple; where that is."""
        fn = self.fn
        pos = fn.load("i64", self.pos, 8)
        rest = fn.v(f"and i64 {fn.v(f'sub i64 0, {pos}')}, {align - 1}")
        start = self.advance(rest)  # which may move the buffer
        self.zero(fn.gep(self.buffer(), start), rest)
        return fn.load("i64", self.pos, 8)

    def put(self, type: str, value: str, place: Place, align: int = 1) -> None:
        self.fn.store(type, value, self.fn.pointer(self.buffer(), place), align)

    # ── values ──

    def places(self, binding: Binding) -> tuple[int, ...]:
        found = offsets(binding)
        if found is None:
            raise Unsupported
        return found

    def record(self, binding: Binding, value: str, place: Place) -> None:
        """A record's fields; its class has been looked at."""
        fn, level = self.fn, record_layout(binding.record)
        for part, slot, at in zip(binding.parts, level.slots.values(), self.places(binding), strict=True):
            item = fn.load("ptr", fn.gep(value, at), 8)
            fn.present(item, "misfit")
            if slot.bit is None:
                self.value(part, item, place + slot.offset)
                continue
            missing, there, after = fn.is_(item, None), fn.label("there"), fn.label("after")
            fn.cbr(missing, after, there)
            fn.at(there)
            bitmap = fn.pointer(self.buffer(), place + slot.bit // 8)
            fn.store("i8", fn.v(f"or i8 {fn.load('i8', bitmap)}, {1 << slot.bit % 8}"), bitmap)
            self.value(part, item, place + slot.offset)
            fn.at(after)

    def value(self, binding: Binding, value: str, place: Place) -> None:
        """Encode one value at its place, if it is exactly what its type says; subclasses and conversions are left to
        Python."""
        fn, type = self.fn, binding.type
        match type:
            case Scalar(name="bool"):
                true = fn.is_(value, True)
                fn.need(fn.or_(true, fn.is_(value, False)), "misfit")
                self.put("i8", fn.v(f"zext i1 {true} to i8"), place)
            case Scalar(name="text"):
                fn.need(fn.type_is(value, str), "misfit")
                data = fn.call("PyUnicode_AsUTF8AndSize", value, self.number)
                fn.present(data, "error")
                self.item(data, fn.load("i64", self.number, 8), place)
            case Scalar(name="bytes"):
                fn.need(fn.type_is(value, bytes), "misfit")
                self.item(fn.call("PyBytes_AsString", value), fn.call("PyBytes_Size", value), place)
            case Scalar(name="timestamp"):
                self.timestamp(value, place)
            case Scalar(name=name) if type.is_float:
                fn.need(fn.type_is(value, float), "misfit")
                number = fn.call("PyFloat_AsDouble", value)
                if name == "f64":
                    self.put("double", number, place)
                else:
                    done = fn.call("PyFloat_Pack4", number, fn.pointer(self.buffer(), place), "1")
                    fn.need(fn.v(f"icmp eq i32 {done}, 0"), "error")  # beyond the range of 32 bits
            case Scalar():
                fn.need(fn.type_is(value, int), "misfit")
                self.integer(type, value, place)
            case Enum(members=members):
                codes = {id(m): code for m, (_, code) in zip(binding.members, members, strict=True)}
                self.put("i32", self.code(value, codes), place)
            case Record():
                fn.need(fn.type_is(value, binding.cls), "misfit")
                self.record(binding, value, place)
            case Array(element=element, shape=shape):
                self.array(binding.parts[0], value, place, shape, stride(element))
            case List(element=element):
                self.list(binding.parts[0], value, place, stride(element), size_align(element)[1])

    def integer(self, type: Scalar, value: str, place: Place) -> None:
        """Encode an integer, if it is in the range of its type."""
        fn = self.fn
        number = fn.call("PyLong_AsLongLongAndOverflow", value, self.number)
        over = fn.load("i32", self.number, 8)
        low, high = type.range
        if type.name == "u64":
            result = fn.alloca("i64")
            fn.store("i64", number, result, 8)

            def large() -> None:
                fn.need(fn.v(f"icmp sgt i32 {over}, 0"), "misfit")
                found = fn.call("PyLong_AsUnsignedLongLong", value)
                fn.store("i64", found, result, 8)
                fn.need(fn.is_null(fn.call("PyErr_Occurred")), "error")

            def small() -> None:
                fn.need(fn.v(f"icmp sge i64 {number}, 0"), "misfit")

            fn.branch(fn.v(f"icmp ne i32 {over}, 0"), large, small)
            self.put("i64", fn.load("i64", result, 8), place)
            return
        fn.need(fn.v(f"icmp eq i32 {over}, 0"), "misfit")
        if type.bits == 64:
            self.put("i64", number, place)
            return
        above = fn.v(f"sub i64 {number}, {low}")
        fn.need(fn.v(f"icmp ule i64 {above}, {high - low}"), "misfit")
        self.put(f"i{type.bits}", fn.v(f"trunc i64 {number} to i{type.bits}"), place)

    def timestamp(self, value: str, place: Place) -> None:
        """Only in UTC, and without fold: what is decoded is the same then."""
        if not reads_datetimes():
            raise Unsupported
        fn = self.fn
        micros = fn.call("hw_micros", value)
        fn.need(fn.v(f"icmp ne i64 {micros}, {NO_TIME}"), "misfit")
        self.put("i64", micros, place)

    def code(self, value: str, codes: dict[int, int]) -> str:
        """The code of the member that the value is."""
        fn = self.fn
        number, end = fn.v(f"ptrtoint ptr {value} to i64"), fn.label("member")
        cases = [(fn.label("case"), which, code) for which, code in codes.items()]
        listed = " ".join(f"i64 {which}, label %{label}" for label, which, _ in cases)
        fn.do(f"switch i64 {number}, label %misfit [ {listed} ]")
        fn.ended = True
        for label, _, _ in cases:
            fn.at(label)
            fn.br(end)
        fn.at(end)
        return fn.v("phi i32 " + ", ".join(f"[ {code}, %{label} ]" for label, _, code in cases))

    def item(self, data: str, count: str, place: Place) -> None:
        """Text or bytes in the heap, and the reference to them."""
        fn = self.fn

        def some() -> None:
            start = self.advance(count)
            target = fn.gep(self.buffer(), start)
            fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {data}, i64 {count}, i1 false)")
            self.refer(start, count, place)

        fn.branch(fn.v(f"icmp ne i64 {count}, 0"), some)

    def refer(self, start: str, count: str, place: Place) -> None:
        fn = self.fn
        self.put("i32", fn.v(f"trunc i64 {start} to i32"), place)
        self.put("i32", fn.v(f"trunc i64 {count} to i32"), place + 4)

    # ── elements ──

    def sequence(self, value: str) -> tuple[str, str]:
        """The number of elements of a list or tuple, and the function that gets one."""
        fn = self.fn
        cls = fn.type_of(value)
        is_list = fn.is_(cls, list)
        fn.need(fn.or_(is_list, fn.is_(cls, tuple)), "misfit")

        def either(what: str) -> str:
            return fn.select(is_list, "ptr", fn.function(f"PyList_{what}"), fn.function(f"PyTuple_{what}"))

        return fn.v(f"call i64 {either('Size')}(ptr {value})"), either("GetItem")

    def elements(self, part: Binding, value: str, start: str, count: str, get: str, step: int, inner: Any = ()) -> None:
        fn = self.fn

        def one(i: str) -> None:
            item = fn.v(f"call ptr {get}(ptr {value}, i64 {i})")
            fn.present(item, "misfit")
            place = Place(0, fn.v(f"add i64 {start}, {fn.v(f'mul i64 {i}, {step}')}"))
            if inner:
                self.array(part, item, place, inner, stride(part.type))
            else:
                self.value(part, item, place)

        fn.loop(count, one)

    def array(self, part: Binding, value: str, place: Place, shape: tuple[int, ...], step: int) -> None:
        fn = self.fn
        count, get = self.sequence(value)
        fn.need(fn.v(f"icmp eq i64 {count}, {shape[0]}"), "misfit")
        for n in shape[1:]:
            step *= n
        self.elements(part, value, fn.position(place), count, get, step, shape[1:])

    def list(self, part: Binding, value: str, place: Place, step: int, align: int) -> None:
        """All elements, zeros at first, and then what each of them refers to."""
        fn = self.fn
        count, get = self.sequence(value)

        def some() -> None:
            fn.need(fn.v(f"icmp ule i64 {count}, {MAX_SIZE}"), "misfit")
            if align > 1:
                self.align(align)
            size = fn.v(f"mul i64 {count}, {step}")
            start = self.advance(size)
            self.zero(fn.gep(self.buffer(), start), size)
            self.refer(start, count, place)
            self.elements(part, value, start, count, get, step)

        fn.branch(fn.v(f"icmp ne i64 {count}, 0"), some)


class Unsupported(Exception):
    """No native encoder for this event type."""


def encoder_source(binding: Binding) -> str:
    """The LLVM assembly of `@encode`; raises `Unsupported` where there can be none."""
    return _Encoder(binding).source()
