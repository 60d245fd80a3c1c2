"""The matching kernels as machine code, compiled once per process, and the builtin functions made from them.

record_function(control, keep)      a builtin: one record -> the payloads of the entries it satisfies
judge_of(control)                   for other machine code: whether it satisfies any
match_rows(...)                     the same for a block of rows of a batch
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from headwater.match import layout as w
from headwater.match.kernels import match as kernel_match
from headwater.match.kernels import rank as kernel_rank
from headwater.match.kernels.emitter import K
from headwater.match.kernels.match import (
    O_BUFFER,
    O_COUNT,
    O_HEAP,
    O_ROOM,
    O_WORDS,
    X_COUNTERS,
    X_COUNTING,
    X_DEAD,
    X_EXACT,
    X_FAILED,
    X_LENGTH,
    X_OPAQUES,
    X_OUT,
    X_RANKS,
    X_RECORD,
    X_SEGMENT,
    X_TOTALS,
    X_VALUES,
    X_WEIGHTS,
    X_WORDS,
)
from headwater.native import engine
from headwater.native.builtin_functions import ONE_ARGUMENT, MethodDef, new_function
from headwater.native.emit import Module
from headwater.native.once import once

ASK = "hw_match_ask"  # the code of a predicate that Python answers; its environment is the function
ANY = "hw_match_any"  # called by other machine code: see `judge_of`
_ROOM = 512  # positions that need no memory of their own
_AHEAD = 16  # payloads whose counts of references are fetched beforehand
_LIBC = ("bcmp", "memcpy", "memset", "malloc", "free", "memcmp", "memmove")
_PYTHON = {
    "PyBytes_AsString": "ptr %s(ptr)",
    "PyBytes_Size": "i64 %s(ptr)",
    "PyBytes_FromObject": "ptr %s(ptr)",
    "PyBytes_FromStringAndSize": "ptr %s(ptr, i64)",
    "PyErr_Clear": "void %s()",
    "PyList_New": "ptr %s(i64)",
    "PyList_SetItem": "i32 %s(ptr, i64, ptr)",
    "PyLong_AsLong": "i64 %s(ptr)",
    "PyObject_CallOneArg": "ptr %s(ptr, ptr)",
    "Py_IncRef": "void %s(ptr)",
    "Py_DecRef": "void %s(ptr)",
}


def source() -> str:
    """All matching kernels as LLVM assembly."""
    module = Module()
    kernel_rank.emit(module, int.from_bytes(os.urandom(7), "little"))
    kernel_match.emit(module)
    for name, signature in _PYTHON.items():
        module.declare(signature, name)
    _ask(module)
    _judge(module)
    _any(module)
    _builtin(module)
    _rows(module)
    return module.text()


def _context(fn: K, control: str, out: str) -> str:
    x = fn.alloca(f"[{X_WORDS} x i64]")
    words = (
        (X_OPAQUES, w.C_OPAQUES),
        (X_COUNTERS, w.C_COUNTERS),
        (X_COUNTING, w.C_COUNTING),
        (X_EXACT, w.C_EXACT),
        (X_TOTALS, w.C_TOTALS),
        (X_WEIGHTS, w.C_WEIGHTS),
    )
    for at, word in words:
        fn.put(fn.word(control, word), x, at)
    fn.put(fn.v(f"ptrtoint ptr {out} to i64"), x, X_OUT)
    fn.put("0", x, X_FAILED)
    return x


def _segment(fn: K, x: str, ref: str) -> str:
    fn.put(fn.word(ref, w.R_SEGMENT), x, X_SEGMENT)
    fn.put(fn.word(ref, w.R_DEAD), x, X_DEAD)
    return fn.pointer(ref, w.R_SEGMENT)


def _ask(module: Module) -> None:
    """What a function in Python says of a record; less than 0 if it raised, which is left for the caller to see."""
    fn = K(module, f"i32 @{ASK}(ptr %rec, i64 %len, ptr %function)")
    no, made, called = fn.label("no"), fn.label("made"), fn.label("called")
    record = fn.v("call ptr @PyBytes_FromStringAndSize(ptr %rec, i64 %len)")
    fn.cbr(fn.test("eq", record, "null", "ptr"), no, made)
    fn.at(made)
    answer = fn.v(f"call ptr @PyObject_CallOneArg(ptr %function, ptr {record})")
    fn.do(f"call void @Py_DecRef(ptr {record})")
    fn.cbr(fn.test("eq", answer, "null", "ptr"), no, called)
    fn.at(called)
    number = fn.v(f"call i64 @PyLong_AsLong(ptr {answer})")
    fn.do(f"call void @Py_DecRef(ptr {answer})")
    fn.ret(f"i32 {fn.v(f'trunc i64 {number} to i32')}")
    fn.at(no)
    fn.ret("i32 -2")
    fn.finish()


def _search(fn: K) -> tuple[str, str, str]:
    """Find the entries that one record's bytes satisfy (%ctl, %rec, %len): what the search carries along, the positions
    found, and how many there were after each segment."""
    fixed, segments = fn.word("%ctl", w.C_FIXED), fn.word("%ctl", w.C_SEGMENTS)
    refs = fn.pointer("%ctl", w.C_SEGREFS)
    good = fn.variable("i1", "false")

    def header() -> None:
        checks = [fn.test("eq", fn.wide(fn.load("i32", "%rec")), "%len")]
        checks.append(fn.test("eq", fn.wide(fn.load("i32", fn.gep("%rec", 4))), fn.word("%ctl", w.C_MAGIC)))
        checks.append(fn.test("eq", fn.load("i64", fn.gep("%rec", 8)), fn.word("%ctl", w.C_FINGERPRINT)))
        both = fn.v(f"and i1 {checks[0]}, {checks[1]}")
        fn.store("i1", fn.v(f"and i1 {both}, {checks[2]}"), good, 1)

    fn.when(fn.test("uge", "%len", fixed), header)
    well = fn.load("i1", good, 1)
    out, buffer = fn.alloca(f"[{O_WORDS} x i64]"), fn.alloca(f"[{_ROOM} x i32]", 64)
    fn.put(fn.v(f"ptrtoint ptr {buffer} to i64"), out, O_BUFFER)
    fn.put("0", out, O_COUNT)
    fn.put(str(_ROOM), out, O_ROOM)
    fn.put("0", out, O_HEAP)
    x = _context(fn, "%ctl", out)
    opaques = fn.word("%ctl", w.C_OPAQUE_COUNT)
    ranks = fn.v(f"alloca i32, i64 {fn.word('%ctl', w.C_ATTRS)}, align 64")
    values = fn.v(f"alloca i32, i64 {opaques}, align 16")
    size = fn.v(f"shl i64 {opaques}, 2")
    fn.do(f"call void @llvm.memset.p0.i64(ptr {values}, i8 -1, i64 {size}, i1 false)")
    marks = fn.v(f"alloca i64, i64 {segments}, align 8")
    for value, at in ((ranks, X_RANKS), (values, X_VALUES), ("%rec", X_RECORD)):
        fn.put(fn.v(f"ptrtoint ptr {value} to i64"), x, at)
    fn.put("%len", x, X_LENGTH)
    fn.bump(fn.pointer("%ctl", w.C_UNSPLIT), 0, fn.word("%ctl", w.C_COUNTING))

    def segment(s: str) -> None:
        ref = fn.v(f"getelementptr [{w.R_WORDS} x i64], ptr {refs}, i64 {s}")
        seg = _segment(fn, x, ref)

        def judged() -> None:
            bad = fn.v(f"call i1 @rank_record(ptr {seg}, ptr %rec, i64 %len, i64 {fixed}, ptr {ranks})")
            fn.when(
                bad,
                lambda: fn.do(f"call void @wild(ptr {x})"),
                lambda: fn.do(f"call void @match_segment(ptr {x}, i64 {fn.word(ref, w.R_SCAN)})"),
            )

        fn.when(well, judged, lambda: fn.do(f"call void @malformed(ptr {x})"))
        fn.put(fn.word(out, O_COUNT), marks, s)

    fn.span("0", segments, segment)
    return x, out, marks


def _judge(module: Module) -> None:
    """Payloads for one record's bytes: a new list, or the empty tuple."""
    fn = K(module, "internal ptr @judge(ptr %ctl, ptr %rec, i64 %len)")
    x, out, marks = _search(fn)
    segments, refs = fn.word("%ctl", w.C_SEGMENTS), fn.pointer("%ctl", w.C_SEGREFS)
    total = fn.word(out, O_COUNT)
    none, some, broken, whole = (fn.label(name) for name in ("none", "some", "broken", "whole"))
    fn.cbr(fn.test("ne", fn.word(x, X_FAILED), 0), broken, whole)
    fn.at(broken)  # with what Python raised
    fn.do(f"call void @free(ptr {fn.pointer(out, O_HEAP)})")
    fn.ret("ptr null")
    fn.at(whole)
    fn.cbr(fn.test("eq", total, 0), none, some)
    fn.at(none)
    empty = fn.pointer("%ctl", w.C_EMPTY)
    fn.do(f"call void @Py_IncRef(ptr {empty})")
    fn.ret(f"ptr {empty}")
    fn.at(some)
    made = fn.v(f"call ptr @PyList_New(i64 {total})")
    failed, fill = fn.label("failed"), fn.label("fill")
    fn.cbr(fn.test("eq", made, "null", "ptr"), failed, fill)
    fn.at(fill)
    found, start = fn.pointer(out, O_BUFFER), fn.variable("i64", "0")

    def gather(s: str) -> None:
        ref = fn.v(f"getelementptr [{w.R_WORDS} x i64], ptr {refs}, i64 {s}")
        payloads = fn.pointer(fn.pointer(ref, w.R_SEGMENT), w.S_PAYLOADS)
        end = fn.word(marks, s)

        def one(i: str) -> None:
            ahead = fn.add(i, _AHEAD)
            ahead = fn.select(fn.test("ult", ahead, end), "i64", ahead, i)
            next_ = fn.pointer(payloads, fn.wide(fn.u32(found, ahead)))
            fn.do(f"call void @llvm.prefetch.p0(ptr {next_}, i32 1, i32 3, i32 1)")
            payload = fn.pointer(payloads, fn.wide(fn.u32(found, i)))
            fn.do(f"call void @Py_IncRef(ptr {payload})")
            fn.do(f"call i32 @PyList_SetItem(ptr {made}, i64 {i}, ptr {payload})")

        fn.span(fn.load("i64", start, 8), end, one)
        fn.store("i64", end, start, 8)

    fn.span("0", segments, gather)
    fn.at(failed)
    fn.do(f"call void @free(ptr {fn.pointer(out, O_HEAP)})")
    fn.ret(f"ptr {made}")
    fn.finish()


def _any(module: Module) -> None:
    """Whether any entry wants a record, for machine code that holds the GIL and will not have anything else run
    meanwhile: 2, and nothing is counted, where Python would have to answer."""
    fn = K(module, f"i32 @{ANY}(ptr %ctl, ptr %rec, i64 %len)")
    table, ask = fn.pointer("%ctl", w.C_OPAQUES), fn.label("ask")

    def ready(i: str) -> None:
        pair, there, on = fn.pointer(table, i), fn.label("there"), fn.label("on")
        fn.cbr(fn.test("eq", pair, "null", "ptr"), on, there)
        fn.at(there)
        fn.cbr(fn.test("eq", fn.pointer(pair, 0), f"@{ASK}", "ptr"), ask, on)
        fn.at(on)

    fn.span("0", fn.word("%ctl", w.C_OPAQUE_COUNT), ready)
    _, out, _ = _search(fn)
    fn.do(f"call void @free(ptr {fn.pointer(out, O_HEAP)})")
    wanted = fn.test("ne", fn.word(out, O_COUNT), 0)
    fn.ret(f"i32 {fn.v(f'zext i1 {wanted} to i32')}")
    fn.at(ask)
    fn.ret("i32 2")
    fn.finish()


def _builtin(module: Module) -> None:
    """`hw_match`, the function that Python calls for one record: of bytes as they are, of anything else that has a
    buffer by a copy."""
    fn = K(module, "ptr @hw_match(ptr %self, ptr %arg)")
    control = fn.v("call ptr @PyBytes_AsString(ptr %self)")
    data = fn.v("call ptr @PyBytes_AsString(ptr %arg)")
    other, direct = fn.label("other"), fn.label("direct")
    fn.cbr(fn.test("eq", data, "null", "ptr"), other, direct)
    fn.at(direct)
    size = fn.v("call i64 @PyBytes_Size(ptr %arg)")
    fn.ret(f"ptr {fn.v(f'call ptr @judge(ptr {control}, ptr {data}, i64 {size})')}")
    fn.at(other)
    fn.do("call void @PyErr_Clear()")
    made = fn.v("call ptr @PyBytes_FromObject(ptr %arg)")
    fail, good = fn.label("fail"), fn.label("good")
    fn.cbr(fn.test("eq", made, "null", "ptr"), fail, good)
    fn.at(fail)
    fn.ret("ptr null")
    fn.at(good)
    data, size = fn.v(f"call ptr @PyBytes_AsString(ptr {made})"), fn.v(f"call i64 @PyBytes_Size(ptr {made})")
    answer = fn.v(f"call ptr @judge(ptr {control}, ptr {data}, i64 {size})")
    fn.do(f"call void @Py_DecRef(ptr {made})")
    fn.ret(f"ptr {answer}")
    fn.finish()


def _rows(module: Module) -> None:
    """Rows of a batch for one segment: positions found go into `out`, and after each row how many there are so far.
    Stops early where `out` might not have room for one more row's; returns how many rows were done."""
    fn = K(
        module,
        "i64 @hw_match_rows(ptr %ctl, ptr %ref, ptr %columns, i64 %row0, i64 %m, ptr %ranks, ptr %out, ptr %marks)",
    )
    x = _context(fn, "%ctl", "%out")
    seg = _segment(fn, x, "%ref")
    fn.put("0", x, X_RECORD)
    fn.do(f"call void @rank_rows(ptr {seg}, ptr %columns, i64 %row0, i64 %m, ptr %ranks)")
    attrs, scan, count = fn.word(seg, w.S_ATTRS), fn.word("%ref", w.R_SCAN), fn.word(seg, w.S_COUNT)

    def row(i: str) -> None:
        full, go = fn.label("full"), fn.label("go")
        least = fn.add(fn.word("%out", O_COUNT), count)
        fn.cbr(fn.test("ugt", least, fn.word("%out", O_ROOM)), full, go)
        fn.at(full)
        fn.ret(f"i64 {i}")
        fn.at(go)
        ranks = fn.at_index("i32", "%ranks", fn.v(f"mul i64 {i}, {attrs}"))
        fn.put(fn.v(f"ptrtoint ptr {ranks} to i64"), x, X_RANKS)
        fn.do(f"call void @match_segment(ptr {x}, i64 {scan})")
        fn.put(fn.word("%out", O_COUNT), "%marks", i)

    fn.span("0", "%m", row)
    fn.ret("i64 %m")
    fn.finish()


@once
def code() -> engine.Code:
    """The machine code; stays for the life of the process."""
    imports = engine.libc(_LIBC) | engine.libc(tuple(_PYTHON))
    # More passes take three times as long, and gain a tenth at best.
    return engine.compile(source(), ("hw_match", "hw_match_rows", "hw_match_hash", ASK, ANY), imports, "straight")


@once
def _method() -> MethodDef:
    return MethodDef(
        b"match", code()["hw_match"], ONE_ARGUMENT, b"The payloads of the entries that a record satisfies."
    )


def record_function(control: bytes, keep: object) -> Any:
    """A builtin function of one record; `keep` lives as long as it does: the owners of all memory it leads to."""
    return new_function(_method(), control, keep)


def judge_of(control: bytes) -> bytes:
    """Whether any entry wants a record, as other machine code asks it: the address of a function, and right after it
    what to call it with, before the record's bytes and their number. It answers 0 or 1, or 2 where it cannot without
    running Python: ask a `record_function` then."""
    return code()[ANY].to_bytes(8, "little") + control


@once
def match_rows() -> Any:
    """A ctypes function, holding the GIL: counters are nobody else's meanwhile."""
    word, ptr = ctypes.c_int64, ctypes.c_void_p
    kind: Any = ctypes.PYFUNCTYPE(word, ptr, ptr, ptr, word, word, ptr, ptr, ptr)
    return kind(code()["hw_match_rows"])


@once
def build_hash() -> Any:
    """The function that fills the hash table of an attribute's constants."""
    word, ptr = ctypes.c_int64, ctypes.c_void_p
    kind: Any = ctypes.PYFUNCTYPE(None, ptr, ptr, word, ptr, word)
    return kind(code()["hw_match_hash"])
