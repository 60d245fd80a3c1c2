"""A kernel for batches and few entries: whole columns are ranked, and each entry goes over them, many rows at a time.

The search that a single event goes through is made for thousands of entries. A handful that only compare numbers is
judged in a tenth of the time by comparing, for sixteen rows at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.match import layout as w
from headwater.match.kernels.emitter import K
from headwater.native import engine
from headwater.native.emit import Module
from headwater.native.once import once

# what the kernel is told: numbers, then addresses
F_CHILDREN, F_ATTRS, F_ENTRIES, F_COLUMNS, F_STARTS, F_PREDICATES, F_STATS, F_WORDS = range(8)
# a column: which child of the batch, its attribute's descriptor, bytes of a value
Q_CHILD, Q_ATTR, Q_WIDTH, Q_WORDS = range(4)
# an ArrowArray
_NULLS, _OFFSET, _CHILDREN, _BUFFERS, _CHILD, _RELEASE = 1, 2, 4, 5, 6, 8

RANKED, LANES = 8, 16  # rows that are ranked at a time, and judged
_TOP_BIT = -(1 << 63)
_KEYS, _RANKS, _FLOATS = f"<{RANKED} x i64>", f"<{LANES} x i32>", f"<{RANKED} x double>"


def source() -> str:
    """The kernel as LLVM assembly."""
    module = Module()
    module.intrinsic("i64 @llvm.cttz.i64(i64, i1)")
    _rank(module)
    _match(module)
    return module.text()


def _splat(fn: K, value: str, type: str, lanes: int) -> str:
    one = fn.v(f"insertelement <{lanes} x {type}> poison, {type} {value}, i64 0")
    return fn.v(f"shufflevector <{lanes} x {type}> {one}, <{lanes} x {type}> poison, <{lanes} x i32> zeroinitializer")


def _same(value: int, type: str) -> str:
    return "<" + ", ".join(f"{type} {value}" for _ in range(RANKED)) + ">"


def _rank(module: Module) -> None:
    """The ranks of a column of numbers, none missing: at least RANKED of them."""
    fn = K(module, "internal void @rank_column(ptr %attr, ptr %data, i64 %m, ptr %ranks)")
    load, convert = fn.word("%attr", w.A_LOAD), fn.word("%attr", w.A_CONVERT)
    keys, count = fn.pointer("%attr", w.A_KEYS), fn.word("%attr", w.A_COUNT)
    key, rank = fn.alloca(_KEYS, 64), fn.alloca(_KEYS, 64)
    nan = fn.alloca(f"<{RANKED} x i1>", 8)
    last = fn.add("%m", -RANKED)

    def block(number: str) -> None:
        """Ranks of so many rows at once, with vector instructions."""
        whole = fn.v(f"mul i64 {number}, {RANKED}")
        # The last ones are ranked together with some before them once more: there is nothing to read after them.
        at = fn.select(fn.test("ult", whole, last), "i64", whole, last)

        def of(type: str, extend: str) -> None:
            value = fn.load(f"<{RANKED} x {type}>", fn.at_index(type, "%data", at), 1)
            if type == "float":
                double = fn.v(f"fpext <{RANKED} x float> {value} to {_FLOATS}")
                value = fn.v(f"bitcast {_FLOATS} {double} to {_KEYS}")
            elif type != "i64":
                value = fn.v(f"{extend} <{RANKED} x {type}> {value} to {_KEYS}")
            fn.store(_KEYS, value, key, 64)

        ways = {0: ("i8", "sext"), 1: ("i16", "sext"), 2: ("i32", "sext"), 4: ("i8", "zext"), 5: ("i16", "zext"),
                6: ("i32", "zext"), 7: ("float", "")}  # fmt: skip
        cases: dict[int, Callable[[], None]] = {number: partial(of, *way) for number, way in ways.items()}
        fn.choose(load, cases, lambda: of("i64", ""))
        fn.store(f"<{RANKED} x i1>", "zeroinitializer", nan, 8)
        raw = fn.load(_KEYS, key, 64)

        def as_float(value: str) -> None:
            """As in the ranking of one value."""
            fn.store(f"<{RANKED} x i1>", fn.v(f"fcmp uno {_FLOATS} {value}, zeroinitializer"), nan, 8)
            plus = fn.v(f"fadd {_FLOATS} {value}, zeroinitializer")
            bits = fn.v(f"bitcast {_FLOATS} {plus} to {_KEYS}")
            sign = fn.v(f"ashr {_KEYS} {bits}, {_same(63, 'i64')}")
            flip = fn.v(f"lshr {_KEYS} {sign}, {_same(1, 'i64')}")
            fn.store(_KEYS, fn.v(f"xor {_KEYS} {bits}, {flip}"), key, 64)

        unsigned = f"xor {_KEYS} {raw}, {_same(_TOP_BIT, 'i64')}"
        fn.choose(
            convert,
            {
                w.UNSIGNED: lambda: fn.store(_KEYS, fn.v(unsigned), key, 64),
                w.FLOAT: lambda: as_float(fn.v(f"bitcast {_KEYS} {raw} to {_FLOATS}")),
                w.SIGNED_AS_FLOAT: lambda: as_float(fn.v(f"sitofp {_KEYS} {raw} to {_FLOATS}")),
                w.UNSIGNED_AS_FLOAT: lambda: as_float(fn.v(f"uitofp {_KEYS} {raw} to {_FLOATS}")),
            },
            lambda: None,
        )
        value = fn.load(_KEYS, key, 64)
        fn.store(_KEYS, "zeroinitializer", rank, 64)

        def constant(k: str) -> None:
            it = _splat(fn, fn.word(keys, k), "i64", RANKED)
            least, more = (fn.v(f"icmp {op} {_KEYS} {value}, {it}") for op in ("sge", "sgt"))
            # True is -1 here.
            both = fn.v(f"add {_KEYS} {fn.v(f'sext <{RANKED} x i1> {least} to {_KEYS}')}, "
                        f"{fn.v(f'sext <{RANKED} x i1> {more} to {_KEYS}')}")  # fmt: skip
            fn.store(_KEYS, fn.v(f"sub {_KEYS} {fn.load(_KEYS, rank, 64)}, {both}"), rank, 64)

        fn.span("0", count, constant)
        found = fn.v(f"trunc {_KEYS} {fn.load(_KEYS, rank, 64)} to <{RANKED} x i32>")
        is_nan = fn.load(f"<{RANKED} x i1>", nan, 8)
        made = fn.v(f"select <{RANKED} x i1> {is_nan}, <{RANKED} x i32> {_same(w.NAN, 'i32')}, "
                    f"<{RANKED} x i32> {found}")  # fmt: skip
        fn.store(f"<{RANKED} x i32>", made, fn.at_index("i32", "%ranks", at), 4)

    blocks = fn.v(f"lshr i64 {fn.add('%m', RANKED - 1)}, {RANKED.bit_length() - 1}")
    fn.span("0", blocks, block)
    fn.ret("void")
    fn.finish()


def _match(module: Module) -> None:
    """For each entry the rows that it wants, one entry after the other, and where each one's end; how many in all. -1,
    and nothing is done, if the batch has nulls where they matter. In any case the array is released."""
    fn = K(
        module,
        "i64 @hw_match_few(ptr %array, ptr %few, i64 %m, ptr %ranks, ptr %found, ptr %ends)",
    )
    attrs, entries = fn.word("%few", F_ATTRS), fn.word("%few", F_ENTRIES)
    columns, starts = fn.pointer("%few", F_COLUMNS), fn.pointer("%few", F_STARTS)
    preds, children = fn.pointer("%few", F_PREDICATES), fn.pointer("%array", _CHILD)
    room = fn.v(f"and i64 {fn.add('%m', LANES - 1)}, {-LANES}")
    leave, answer, total = fn.label("leave"), fn.variable("i64", "-1"), fn.variable("i64", "0")
    right = fn.label("right")
    fn.cbr(fn.test("eq", fn.word("%array", _CHILDREN), fn.word("%few", F_CHILDREN)), right, leave)
    fn.at(right)

    def child_of(a: str) -> tuple[str, str]:
        column = fn.v(f"getelementptr [{Q_WORDS} x i64], ptr {columns}, i64 {a}")
        return column, fn.pointer(children, fn.word(column, Q_CHILD))

    def check(a: str) -> None:
        _, child = child_of(a)
        there, go = fn.test("eq", fn.word(child, _NULLS), 0), fn.label("go")
        none = fn.test("eq", fn.pointer(fn.pointer(child, _BUFFERS), 0), "null", "ptr")
        fn.cbr(fn.v(f"or i1 {there}, {none}"), go, leave)
        fn.at(go)

    def rank(a: str) -> None:
        column, child = child_of(a)
        first = fn.add(fn.word(child, _OFFSET), fn.word("%array", _OFFSET))
        values = fn.pointer(fn.pointer(child, _BUFFERS), 1)
        data = fn.gep(values, fn.v(f"mul i64 {first}, {fn.word(column, Q_WIDTH)}"))
        ranks = fn.at_index("i32", "%ranks", fn.v(f"mul i64 {a}, {room}"))
        attr = fn.pointer(column, Q_ATTR)
        fn.do(f"call void @rank_column(ptr {attr}, ptr {data}, i64 %m, ptr {ranks})")

    fn.span("0", attrs, check)
    fn.span("0", attrs, rank)
    bits = fn.alloca(f"<{LANES} x i1>", 8)

    def entry(e: str) -> None:
        """One interest against all rows: its predicates narrow a mask, block by block, and what is left is written
        down."""
        start, end = fn.wide(fn.u32(starts, e)), fn.wide(fn.u32(starts, fn.add(e, 1)))

        def block(number: str) -> None:
            """The rows of one block that satisfy all predicates."""
            row = fn.v(f"mul i64 {number}, {LANES}")
            fn.store(f"<{LANES} x i1>", f"<{', '.join(['i1 true'] * LANES)}>", bits, 8)

            def narrow(j: str) -> None:
                pred = fn.v(f"getelementptr [3 x i32], ptr {preds}, i64 {j}")
                at, lo, span = fn.wide(fn.u32(pred, "0")), fn.u32(pred, "1"), fn.u32(pred, "2")
                here = fn.add(fn.v(f"mul i64 {at}, {room}"), row)
                ranks = fn.load(_RANKS, fn.at_index("i32", "%ranks", here), 4)
                far = fn.v(f"sub {_RANKS} {ranks}, {_splat(fn, lo, 'i32', LANES)}")
                inside = fn.v(f"icmp ule {_RANKS} {far}, {_splat(fn, span, 'i32', LANES)}")
                both = fn.v(f"and <{LANES} x i1> {fn.load(f'<{LANES} x i1>', bits, 8)}, {inside}")
                fn.store(f"<{LANES} x i1>", both, bits, 8)

            fn.span(start, end, narrow)
            mask = fn.v(f"bitcast <{LANES} x i1> {fn.load(f'<{LANES} x i1>', bits, 8)} to i{LANES}")
            left = fn.variable("i64", fn.wide(mask, f"i{LANES}"))
            head, body, over = fn.label("head"), fn.label("body"), fn.label("over")
            fn.at(head)
            now = fn.load("i64", left, 8)
            fn.cbr(fn.test("eq", now, 0), over, body)
            fn.at(body)
            fn.store("i64", fn.v(f"and i64 {now}, {fn.add(now, -1)}"), left, 8)
            at = fn.add(row, fn.v(f"call i64 @llvm.cttz.i64(i64 {now}, i1 true)"))
            held = fn.load("i64", total, 8)
            fn.put(at, "%found", held)
            # What lies after the last row is found after all others, and not counted.
            fn.store("i64", fn.add(held, fn.v(f"zext i1 {fn.test('ult', at, '%m')} to i64")), total, 8)
            fn.br(head)
            fn.at(over)

        fn.span("0", fn.v(f"lshr i64 {room}, {LANES.bit_length() - 1}"), block)
        fn.put(fn.load("i64", total, 8), "%ends", e)

    fn.span("0", entries, entry)
    fn.store("i64", fn.load("i64", total, 8), answer, 8)
    stats = fn.pointer("%few", F_STATS)
    fn.bump(stats, w.T_EVENTS, "%m")
    for at in (w.T_CANDIDATES, w.T_HITS):
        fn.bump(stats, at, fn.load("i64", total, 8))
    fn.at(leave)
    release = fn.pointer("%array", _RELEASE)
    fn.do(f"call void {release}(ptr %array)")
    fn.ret(f"i64 {fn.load('i64', answer, 8)}")
    fn.finish()


@once
def code() -> engine.Code:
    """The machine code; stays for the life of the process."""
    return engine.compile(source(), ("hw_match_few",), engine.libc(("memset", "memcpy")), "straight")


@once
def match_few() -> Any:
    """A ctypes function, holding the GIL: a batch may be let go of."""
    word, ptr = ctypes.c_int64, ctypes.c_void_p
    kind: Any = ctypes.PYFUNCTYPE(word, ptr, ptr, word, ptr, ptr, ptr)
    return kind(code()["hw_match_few"])
