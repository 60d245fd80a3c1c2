"""Kernels that turn an event's values into ranks, from a record or from a block of rows of a batch."""

from __future__ import annotations

from headwater.match import layout as w
from headwater.match.kernels.emitter import K
from headwater.native.emit import Module

_TOP_BIT = -(1 << 63)
_FACTOR = 0x9E37_79B9_7F4A_7C15


def emit(module: Module, seed: int) -> None:
    """Put all functions that turn values into ranks among an attribute's constants into a module."""
    _search(module)
    _number(module)
    _hash(module, seed)
    _hash_build(module)
    _text_equal(module)
    _text_order(module)
    _record(module)
    _rows(module)


def _search(module: Module) -> None:
    """The rank of a key among sorted keys."""
    fn = K(module, "internal i32 @search(ptr %keys, i64 %n, i64 %x)")
    none, some = fn.label("none"), fn.label("some")
    fn.cbr(fn.test("eq", "%n", 0), none, some)
    fn.at(none)
    fn.ret("i32 0")
    fn.at(some)
    base, left = fn.variable("i64", "0"), fn.variable("i64", "%n")
    head, body, end = fn.label("head"), fn.label("body"), fn.label("end")
    fn.at(head)
    n = fn.load("i64", left, 8)
    fn.cbr(fn.test("ugt", n, 1), body, end)
    fn.at(body)
    half = fn.v(f"lshr i64 {n}, 1")
    b = fn.load("i64", base, 8)
    mid = fn.add(b, half)
    le = fn.test("sle", fn.word("%keys", mid), "%x")
    fn.store("i64", fn.v(f"select i1 {le}, i64 {mid}, i64 {b}, !unpredictable !9"), base, 8)
    fn.store("i64", fn.v(f"sub i64 {n}, {half}"), left, 8)
    fn.br(head)
    fn.at(end)
    i = fn.load("i64", base, 8)
    key = fn.word("%keys", i)
    more = fn.v(f"zext i1 {fn.test('sge', '%x', key)} to i64")
    over = fn.v(f"zext i1 {fn.test('sgt', '%x', key)} to i64")
    rank = fn.add(fn.add(fn.v(f"shl i64 {i}, 1"), more), over)
    fn.ret(f"i32 {fn.v(f'trunc i64 {rank} to i32')}")
    fn.finish()


def _number(module: Module) -> None:
    """The rank of the number at a slot: loaded, made sortable, searched for."""
    fn = K(module, "internal i32 @number(ptr %attr, ptr %slot)")
    raw = fn.alloca("i64")

    def of(type: str, extend: str) -> None:
        value = fn.load(type, "%slot")
        if type == "float":
            value = fn.v(f"bitcast double {fn.v(f'fpext float {value} to double')} to i64")
        elif type != "i64":
            value = fn.v(f"{extend} {type} {value} to i64")
        fn.store("i64", value, raw, 8)

    def truth() -> None:
        fn.store("i64", fn.v(f"zext i1 {fn.test('ne', fn.load('i8', '%slot'), 0, 'i8')} to i64"), raw, 8)

    ways = {0: ("i8", "sext"), 1: ("i16", "sext"), 2: ("i32", "sext"), 4: ("i8", "zext"), 5: ("i16", "zext"),
            6: ("i32", "zext"), 7: ("float", "")}  # fmt: skip
    cases = {number: (lambda way=way: of(*way)) for number, way in ways.items()}
    fn.choose(fn.word("%attr", w.A_LOAD), cases | {8: truth}, lambda: of("i64", ""))
    value = fn.load("i64", raw, 8)
    fn.ret(f"i32 {fn.v(f'call i32 @ranked(ptr %attr, i64 {value})')}")
    fn.finish()

    fn = K(module, "internal i32 @ranked(ptr %attr, i64 %raw) alwaysinline")
    key, nan = fn.variable("i64", "%raw"), fn.label("nan")

    def as_float(value: str) -> None:
        """Bits that sort as the numbers do; -0.0 is 0.0."""
        ordered, end = fn.label("ordered"), fn.label("end")
        fn.cbr(fn.v(f"fcmp uno double {value}, 0.0"), nan, ordered)
        fn.at(ordered)
        bits = fn.v(f"bitcast double {fn.v(f'fadd double {value}, 0.0')} to i64")
        flip = fn.v(f"lshr i64 {fn.v(f'ashr i64 {bits}, 63')}, 1")
        fn.store("i64", fn.v(f"xor i64 {bits}, {flip}"), key, 8)
        fn.at(end)

    fn.choose(
        fn.word("%attr", w.A_CONVERT),
        {
            w.UNSIGNED: lambda: fn.store("i64", fn.v(f"xor i64 %raw, {_TOP_BIT}"), key, 8),
            w.FLOAT: lambda: as_float(fn.v("bitcast i64 %raw to double")),
            w.SIGNED_AS_FLOAT: lambda: as_float(fn.v("sitofp i64 %raw to double")),
            w.UNSIGNED_AS_FLOAT: lambda: as_float(fn.v("uitofp i64 %raw to double")),
        },
        lambda: None,
    )
    found = fn.v(
        f"call i32 @search(ptr {fn.pointer('%attr', w.A_KEYS)}, i64 {fn.word('%attr', w.A_COUNT)}, "
        f"i64 {fn.load('i64', key, 8)})"
    )
    fn.ret(f"i32 {found}")
    fn.at(nan)
    fn.ret(f"i32 {w.NAN}")
    fn.finish()


def _hash(module: Module, seed: int) -> None:
    """`hash` of a text: with a seed of the process, so that nobody can choose texts that collide."""
    fn = K(module, "internal i64 @hash(ptr %p, i64 %n)")
    state = fn.variable("i64", fn.v(f"xor i64 %n, {seed}"))

    def mix(value: str) -> None:
        mixed = fn.v(f"xor i64 {fn.load('i64', state, 8)}, {value}")
        product = fn.v(f"mul i128 {fn.v(f'zext i64 {mixed} to i128')}, {_FACTOR}")
        low = fn.v(f"trunc i128 {product} to i64")
        high = fn.v(f"trunc i128 {fn.v(f'lshr i128 {product}, 64')} to i64")
        fn.store("i64", fn.v(f"xor i64 {low}, {high}"), state, 8)

    whole = fn.v("lshr i64 %n, 3")
    fn.span("0", whole, lambda i: mix(fn.load("i64", fn.at_index("i64", "%p", i), 1)))
    start = fn.v(f"shl i64 {whole}, 3")
    rest = fn.variable("i64", "1")

    def byte(i: str) -> None:
        value = fn.wide(fn.load("i8", fn.gep("%p", i)), "i8")
        shifted = fn.v(f"shl i64 {fn.load('i64', rest, 8)}, 8")
        fn.store("i64", fn.v(f"or i64 {shifted}, {value}"), rest, 8)

    fn.span(start, "%n", byte)
    mix(fn.load("i64", rest, 8))
    fn.ret(f"i64 {fn.load('i64', state, 8)}")
    fn.finish()


def _ret_rank(fn: K, at: str, equal: int) -> None:
    rank = fn.add(fn.v(f"shl i64 {at}, 1"), equal)
    fn.ret(f"i32 {fn.v(f'trunc i64 {rank} to i32')}")


def _hash_build(module: Module) -> None:
    """Fill a table of 2^k words: the hash's upper half, then the constant's number and 1; 0 is free."""
    fn = K(module, "void @hw_match_hash(ptr %blob, ptr %ends, i64 %n, ptr %table, i64 %mask)")

    def one(i: str) -> None:
        start, end = fn.word("%ends", i), fn.word("%ends", fn.add(i, 1))
        h = fn.v(f"call i64 @hash(ptr {fn.gep('%blob', start)}, i64 {fn.v(f'sub i64 {end}, {start}')})")
        tag = fn.v(f"and i64 {h}, {-(1 << 32)}")
        word = fn.v(f"or i64 {tag}, {fn.add(i, 1)}")
        at = fn.variable("i64", fn.v(f"and i64 {h}, %mask"))
        head, taken, free = fn.label("head"), fn.label("taken"), fn.label("free")
        fn.at(head)
        here = fn.load("i64", at, 8)
        fn.cbr(fn.test("eq", fn.word("%table", here), 0), free, taken)
        fn.at(taken)
        fn.store("i64", fn.v(f"and i64 {fn.add(here, 1)}, %mask"), at, 8)
        fn.br(head)
        fn.at(free)
        fn.put(word, "%table", here)

    fn.span("0", "%n", one)
    fn.ret("void")
    fn.finish()


def _text_equal(module: Module) -> None:
    """The rank of a text among constants that are only compared for equality: 0 unless it is one of them."""
    module.declare("i32 %s(ptr, ptr, i64)", "bcmp")
    fn = K(module, "internal i32 @text_equal(ptr %attr, ptr %p, i64 %n)")
    h = fn.v("call i64 @hash(ptr %p, i64 %n)")
    table, mask = fn.pointer("%attr", w.A_TABLE), fn.word("%attr", w.A_MASK)
    blob, ends = fn.pointer("%attr", w.A_BLOB), fn.pointer("%attr", w.A_KEYS)
    tag = fn.v(f"lshr i64 {h}, 32")
    at = fn.variable("i64", fn.v(f"and i64 {h}, {mask}"))
    head, look, compare, next_, absent, yes = (fn.label(x) for x in ("head", "look", "cmp", "next", "absent", "yes"))
    same = fn.label("same")
    fn.at(head)
    here = fn.load("i64", at, 8)
    word = fn.word(table, here)
    fn.cbr(fn.test("eq", word, 0), absent, look)
    fn.at(look)
    fn.cbr(fn.test("eq", fn.v(f"lshr i64 {word}, 32"), tag), same, next_)
    fn.at(same)
    i = fn.v(f"sub i64 {fn.v(f'and i64 {word}, {0xFFFFFFFF}')}, 1")
    start = fn.word(ends, i)
    size = fn.v(f"sub i64 {fn.word(ends, fn.add(i, 1))}, {start}")
    fn.cbr(fn.test("eq", size, "%n"), compare, next_)
    fn.at(compare)
    differ = fn.v(f"call i32 @bcmp(ptr %p, ptr {fn.gep(blob, start)}, i64 %n)")
    fn.cbr(fn.test("eq", differ, 0, "i32"), yes, next_)
    fn.at(yes)
    _ret_rank(fn, i, 1)
    fn.at(next_)
    fn.store("i64", fn.v(f"and i64 {fn.add(here, 1)}, {mask}"), at, 8)
    fn.br(head)
    fn.at(absent)
    fn.ret("i32 0")
    fn.finish()


def _text_order(module: Module) -> None:
    """The rank of a text among sorted constants."""
    module.declare("i32 %s(ptr, ptr, i64)", "memcmp")
    fn = K(module, "internal i32 @text_order(ptr %attr, ptr %p, i64 %n)")
    blob, ends = fn.pointer("%attr", w.A_BLOB), fn.pointer("%attr", w.A_KEYS)
    lo, hi = fn.variable("i64", "0"), fn.variable("i64", fn.word("%attr", w.A_COUNT))
    head, body, equal, go, less, more, end = (fn.label(x) for x in ("head", "body", "eq", "go", "lt", "gt", "end"))
    fn.at(head)
    a, b = fn.load("i64", lo, 8), fn.load("i64", hi, 8)
    fn.cbr(fn.test("ult", a, b), body, end)
    fn.at(body)
    mid = fn.v(f"lshr i64 {fn.add(a, b)}, 1")
    start = fn.word(ends, mid)
    size = fn.v(f"sub i64 {fn.word(ends, fn.add(mid, 1))}, {start}")
    shorter = fn.select(fn.test("ult", "%n", size), "i64", "%n", size)
    bytewise = fn.v(f"call i32 @memcmp(ptr %p, ptr {fn.gep(blob, start)}, i64 {shorter})")
    over = fn.v(f"zext i1 {fn.test('ugt', '%n', size)} to i32")
    by_size = fn.select(fn.test("ult", "%n", size), "i32", "-1", over)
    order = fn.select(fn.test("eq", bytewise, 0, "i32"), "i32", by_size, bytewise)
    fn.cbr(fn.test("eq", order, 0, "i32"), equal, go)
    fn.at(equal)
    _ret_rank(fn, mid, 1)
    fn.at(go)
    fn.cbr(fn.test("slt", order, 0, "i32"), less, more)
    fn.at(less)
    fn.store("i64", mid, hi, 8)
    fn.br(head)
    fn.at(more)
    fn.store("i64", fn.add(mid, 1), lo, 8)
    fn.br(head)
    fn.at(end)
    _ret_rank(fn, a, 0)
    fn.finish()


def _there(fn: K, attr: str) -> str:
    checks = []
    for at in (w.A_CHECK, w.A_CHECK + 2):
        byte = fn.wide(fn.load("i8", fn.gep("%rec", fn.word(attr, at))), "i8")
        mask = fn.word(attr, at + 1)
        checks.append(fn.test("eq", fn.v(f"and i64 {byte}, {mask}"), mask))
    return fn.v(f"and i1 {checks[0]}, {checks[1]}")


def _record(module: Module) -> None:
    """The ranks of a record's values for one segment; true if a text lies outside the record."""
    fn = K(module, "internal i1 @rank_record(ptr %seg, ptr %rec, i64 %len, i64 %fixed, ptr %ranks)")
    attrs = fn.pointer("%seg", w.S_DESCRIPTORS)
    bad = fn.variable("i1", "false")
    rank = fn.alloca("i32")

    def one(a: str) -> None:
        """The rank of one attribute of a record; a reference that leads out of the record makes that malformed."""
        attr = fn.v(f"getelementptr [{w.A_WORDS} x i64], ptr {attrs}, i64 {a}")
        kind = fn.word(attr, w.A_KIND)
        slot = fn.gep("%rec", fn.word(attr, w.A_OFFSET))

        def number() -> None:
            fn.store("i32", fn.v(f"call i32 @number(ptr {attr}, ptr {slot})"), rank, 4)

        def text(function: str) -> None:
            offset, size = fn.wide(fn.load("i32", slot)), fn.wide(fn.load("i32", fn.gep(slot, 4)))
            some = fn.test("ne", size, 0)
            low = fn.test("ult", offset, "%fixed")
            out = fn.v(f"or i1 {low}, {fn.test('ugt', fn.add(offset, size), '%len')}")
            wild = fn.v(f"and i1 {out}, {some}")

            def outside() -> None:
                fn.store("i1", "true", bad, 1)
                fn.store("i32", str(w.BROKEN), rank, 4)

            def inside() -> None:
                at = fn.select(some, "ptr", fn.gep("%rec", offset), "%rec")
                fn.store("i32", fn.v(f"call i32 @{function}(ptr {attr}, ptr {at}, i64 {size})"), rank, 4)

            fn.when(wild, outside, inside)

        def present() -> None:
            cases = {w.TEXT_EQUAL: lambda: text("text_equal"), w.TEXT_ORDER: lambda: text("text_order")}
            fn.choose(kind, cases, number)

        def presence() -> None:
            there = fn.v(f"zext i1 {_there(fn, attr)} to i64")
            fn.store("i32", fn.v(f"call i32 @ranked(ptr {attr}, i64 {there})"), rank, 4)

        fn.choose(
            kind,
            {w.PRESENCE: presence, w.OPAQUE_KIND: lambda: fn.store("i32", str(w.UNKNOWN), rank, 4)},
            lambda: fn.when(_there(fn, attr), present, lambda: fn.store("i32", str(w.MISSING), rank, 4)),
        )
        fn.store("i32", fn.load("i32", rank, 4), fn.at_index("i32", "%ranks", a), 4)

    fn.span("0", fn.word("%seg", w.S_ATTRS), one)
    fn.ret(f"i1 {fn.load('i1', bad, 1)}")
    fn.finish()


def _bit(fn: K, bitmap: str, offset: str, row: str) -> str:
    """A bit of a bitmap; one that is not there is all ones."""
    found = fn.variable("i1", "true")

    def look() -> None:
        at = fn.add(row, offset)
        byte = fn.load("i8", fn.gep(bitmap, fn.v(f"lshr i64 {at}, 3")))
        by = fn.v(f"trunc i64 {fn.v(f'and i64 {at}, 7')} to i8")
        fn.store("i1", fn.v(f"trunc i8 {fn.v(f'lshr i8 {byte}, {by}')} to i1"), found, 1)

    fn.when(fn.test("ne", bitmap, "null", "ptr"), look)
    return fn.load("i1", found, 1)


def _rows(module: Module) -> None:
    """The ranks of a block of rows of a batch: `columns` has a column for each attribute of the segment."""
    fn = K(module, "internal void @rank_rows(ptr %seg, ptr %columns, i64 %row0, i64 %m, ptr %ranks)")
    attrs, count = fn.pointer("%seg", w.S_DESCRIPTORS), fn.word("%seg", w.S_ATTRS)

    def one(a: str) -> None:
        """The ranks of one attribute, for all rows of a batch."""
        attr = fn.v(f"getelementptr [{w.A_WORDS} x i64], ptr {attrs}, i64 {a}")
        column = fn.v(f"getelementptr [{w.D_WORDS} x i64], ptr %columns, i64 {a}")
        kind, load = fn.word(attr, w.A_KIND), fn.word(attr, w.A_LOAD)
        data, offsets = fn.pointer(column, w.D_DATA), fn.pointer(column, w.D_OFFSETS)
        bits = [(fn.pointer(column, at), fn.word(column, at + 1)) for at in (w.D_VALID, w.D_WITHIN)]
        codes, members = fn.pointer(column, w.D_CODES), fn.word(column, w.D_MEMBERS)
        coded = fn.test("ne", codes, "null", "ptr")
        width = fn.v(f"getelementptr [9 x i64], ptr @widths, i64 0, i64 {load}")
        width = fn.load("i64", width, 8)
        here = fn.at_index("i32", "%ranks", a)
        rank = fn.alloca("i32")

        def row(i: str) -> None:
            """The rank of one row's value, or that it is missing."""
            at = fn.add(i, "%row0")
            own = _bit(fn, *bits[0], at)
            there = fn.v(f"and i1 {own}, {_bit(fn, *bits[1], at)}")

            def plain() -> None:
                where = fn.gep(data, fn.v(f"mul i64 {at}, {width}"))
                fn.store("i32", fn.v(f"call i32 @number(ptr {attr}, ptr {where})"), rank, 4)

            def enumeration() -> None:
                index = fn.wide(fn.load("i32", fn.at_index("i32", data, at), 4))
                inside = fn.test("ult", index, members)
                code = fn.at_index("i64", codes, fn.select(inside, "i64", index, "0"))
                fn.store("i32", fn.v(f"call i32 @ranked(ptr {attr}, i64 {fn.load('i64', code, 8)})"), rank, 4)

            def truth() -> None:
                bit = fn.v(f"zext i1 {_bit(fn, data, fn.word(column, w.D_OFFSETS), at)} to i64")
                fn.store("i32", fn.v(f"call i32 @ranked(ptr {attr}, i64 {bit})"), rank, 4)

            def number() -> None:
                fn.choose(load, {8: truth}, lambda: fn.when(coded, enumeration, plain))

            def text(function: str) -> None:
                first = fn.at_index("i32", offsets, at)
                start, end = fn.wide(fn.load("i32", first, 4)), fn.wide(fn.load("i32", fn.gep(first, 4), 4))
                size = fn.v(f"sub i64 {end}, {start}")
                found = fn.v(f"call i32 @{function}(ptr {attr}, ptr {fn.gep(data, start)}, i64 {size})")
                fn.store("i32", found, rank, 4)

            def present() -> None:
                cases = {w.TEXT_EQUAL: lambda: text("text_equal"), w.TEXT_ORDER: lambda: text("text_order")}
                fn.choose(kind, cases, number)

            def opaque() -> None:
                status = fn.load("i8", fn.gep(data, at))
                yes = fn.v(f"zext i8 {status} to i32")
                missing = fn.test("eq", status, 2, "i8")
                fn.store("i32", fn.v(f"select i1 {missing}, i32 {w.MISSING}, i32 {yes}"), rank, 4)

            def presence() -> None:
                whether = fn.v(f"zext i1 {there} to i64")
                fn.store("i32", fn.v(f"call i32 @ranked(ptr {attr}, i64 {whether})"), rank, 4)

            fn.choose(
                kind,
                {w.PRESENCE: presence, w.OPAQUE_KIND: opaque},
                lambda: fn.when(there, present, lambda: fn.store("i32", str(w.MISSING), rank, 4)),
            )
            where = fn.at_index("i32", here, fn.v(f"mul i64 {i}, {count}"))
            fn.store("i32", fn.load("i32", rank, 4), where, 4)

        fn.span("0", "%m", row)

    fn.span("0", count, one)
    fn.ret("void")
    fn.finish()
    widths = (1, 2, 4, 8, 1, 2, 4, 4, 1)
    inside = ", ".join(f"i64 {n}" for n in widths)
    module.functions.append(f"@widths = private unnamed_addr constant [9 x i64] [{inside}]\n!9 = !{{}}")
