"""Kernels that find the entries an event satisfies, given its ranks."""

from __future__ import annotations

from headwater.match import layout as w
from headwater.match.kernels.emitter import K
from headwater.native.emit import Module

# what one event's search carries along
X_SEGMENT, X_DEAD, X_RANKS, X_VALUES, X_OPAQUES, X_RECORD, X_LENGTH, X_OUT, X_COUNTERS, X_COUNTING = range(10)
X_EXACT, X_FAILED, X_TOTALS, X_WEIGHTS, X_WORDS = range(10, 15)
# positions found: where, how many, room for how many, what to free
O_BUFFER, O_COUNT, O_ROOM, O_HEAP, O_WORDS = range(5)

_WAITING = 64  # entries that are verified together
_VECTOR = f"<{w.CHUNK} x i64>"


def emit(module: Module) -> None:
    """Put all functions that match ranked events against segments into a module."""
    module.declare("ptr %s(i64)", "malloc")
    module.declare("void %s(ptr)", "free")
    module.intrinsic("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    module.intrinsic(f"{_VECTOR} @llvm.ctpop.v{w.CHUNK}i64({_VECTOR})")
    module.intrinsic(f"i64 @llvm.vector.reduce.add.v{w.CHUNK}i64({_VECTOR})")
    module.intrinsic("i64 @llvm.cttz.i64(i64, i1)")
    module.intrinsic("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    module.intrinsic("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    _push(module)
    _evaluate(module)
    _count(module)
    _in_set(module)
    _ponder(module)
    _take(module)
    _verify(module)
    _sweep(module)
    _match_segment(module)
    _malformed(module)
    _wild(module)


def _push(module: Module) -> None:
    """`push`: one more answer, in a buffer on the stack, or, if there are many, in one that grows on the heap."""
    fn = K(module, "internal void @grow(ptr %out) noinline")
    room, count = fn.word("%out", O_ROOM), fn.word("%out", O_COUNT)
    more = fn.v(f"shl i64 {room}, 2")
    buffer = fn.v(f"call ptr @malloc(i64 {fn.v(f'shl i64 {more}, 2')})")
    old = fn.pointer("%out", O_BUFFER)
    size = fn.v(f"shl i64 {count}, 2")
    fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {buffer}, ptr {old}, i64 {size}, i1 false)")
    fn.do(f"call void @free(ptr {fn.pointer('%out', O_HEAP)})")
    address = fn.v(f"ptrtoint ptr {buffer} to i64")
    for at in (O_BUFFER, O_HEAP):
        fn.put(address, "%out", at)
    fn.put(more, "%out", O_ROOM)
    fn.ret("void")
    fn.finish()

    fn = K(module, "internal void @push(ptr %out, i64 %pos) alwaysinline")
    count = fn.word("%out", O_COUNT)
    fn.when(fn.test("eq", count, fn.word("%out", O_ROOM)), lambda: fn.do("call void @grow(ptr %out)"))
    position = fn.v("trunc i64 %pos to i32")
    fn.store("i32", position, fn.at_index("i32", fn.pointer("%out", O_BUFFER), count), 4)
    fn.put(fn.add(count, 1), "%out", O_COUNT)
    fn.ret("void")
    fn.finish()


def _evaluate(module: Module) -> None:
    """What native code says of the event, asked at most once: status | faults << 8. Sets the attribute's rank.

    It may be Python that answers, and raise. Then nobody is asked any more, and nothing is counted."""
    fn = K(module, "internal i32 @evaluate(ptr %x, i64 %a) noinline")
    seg = fn.pointer("%x", X_SEGMENT)
    attr = fn.v(f"getelementptr [{w.A_WORDS} x i64], ptr {fn.pointer(seg, w.S_DESCRIPTORS)}, i64 %a")
    at = fn.at_index("i32", fn.pointer("%x", X_VALUES), fn.word(attr, w.A_OPAQUE))
    packed = fn.variable("i32", fn.load("i32", at, 4))

    def ask() -> None:
        pair = fn.pointer(fn.pointer("%x", X_OPAQUES), fn.word(attr, w.A_OPAQUE))
        code, env = fn.pointer(pair, 0), fn.pointer(pair, 1)
        record, size = fn.pointer("%x", X_RECORD), fn.word("%x", X_LENGTH)
        answer = fn.v(f"call i32 {code}(ptr {record}, i64 {size}, ptr {env})")
        failed = fn.test("slt", answer, 0, "i32")

        def give_up() -> None:
            fn.put("1", "%x", X_FAILED)
            fn.put("0", "%x", X_COUNTING)

        fn.when(failed, give_up)
        answer = fn.v(f"select i1 {failed}, i32 2, i32 {answer}")
        fn.store("i32", answer, packed, 4)
        fn.store("i32", answer, at, 4)

    unknown = fn.test("eq", fn.load("i32", packed, 4), -1, "i32")
    broken = fn.test("ne", fn.word("%x", X_FAILED), 0)
    fn.when(fn.v(f"and i1 {unknown}, {broken}"), lambda: fn.store("i32", "2", packed, 4))
    fn.when(fn.v(f"and i1 {unknown}, {fn.not_(broken)}"), ask)
    answer = fn.load("i32", packed, 4)
    status = fn.v(f"and i32 {answer}, 255")
    missing = fn.test("eq", status, 2, "i32")
    rank = fn.v(f"select i1 {missing}, i32 {w.MISSING}, i32 {status}")
    fn.store("i32", rank, fn.at_index("i32", fn.pointer("%x", X_RANKS), "%a"), 4)
    fn.ret(f"i32 {answer}")
    fn.finish()


def _count(module: Module) -> None:
    """Count an entry's undecided event, and faults as bits: overflow, division, index, fuel, malformed."""
    fn = K(module, "internal void @count(ptr %x, i64 %pos, i1 %undecided, i32 %faults) noinline")
    silent, loud = fn.label("silent"), fn.label("loud")
    fn.cbr(fn.test("eq", fn.word("%x", X_COUNTING), 0), silent, loud)
    fn.at(silent)
    fn.ret("void")
    fn.at(loud)
    slots = fn.pointer(fn.pointer("%x", X_SEGMENT), w.S_SLOTS)
    slot = fn.wide(fn.u32(slots, "%pos"))
    block, within = fn.v(f"lshr i64 {slot}, {w.SLOT_BITS}"), fn.v(f"and i64 {slot}, {(1 << w.SLOT_BITS) - 1}")
    here = fn.at_index("i64", fn.pointer(fn.pointer("%x", X_COUNTERS), block), within)
    known = fn.at_index("i64", fn.pointer(fn.pointer("%x", X_WEIGHTS), block), within)
    totals, weight = fn.pointer("%x", X_TOTALS), fn.word(known, w.N_WEIGHT)
    undecided = fn.v("zext i1 %undecided to i64")
    fn.bump(here, w.N_UNDECIDED, undecided)
    fn.bump(totals, 0, fn.v(f"mul i64 {undecided}, {weight}"))

    def kinds() -> None:
        for bit in range(5):

            def one(bit: int = bit) -> None:
                fn.bump(here, w.N_MALFORMED if bit == 4 else w.N_FAULTS + bit)
                fn.bump(totals, 1 + bit, weight)

            fn.when(fn.test("ne", fn.v(f"and i32 %faults, {1 << bit}"), 0, "i32"), one)

    fn.when(fn.test("ne", "%faults", 0, "i32"), kinds)
    fn.ret("void")
    fn.finish()


def _in_set(module: Module) -> None:
    """`in_set`: whether a rank is among sorted ones, by bisection."""
    fn = K(module, "internal i1 @in_set(ptr %ranks, i32 %n, i32 %rank)")
    lo, hi = fn.variable("i64", "0"), fn.variable("i64", fn.wide("%n"))
    head, body, end = fn.label("head"), fn.label("body"), fn.label("end")
    fn.at(head)
    a, b = fn.load("i64", lo, 8), fn.load("i64", hi, 8)
    fn.cbr(fn.test("ult", a, b), body, end)
    fn.at(body)
    mid = fn.v(f"lshr i64 {fn.add(a, b)}, 1")
    less = fn.test("ult", fn.u32("%ranks", mid), "%rank", "i32")
    fn.store("i64", fn.select(less, "i64", fn.add(mid, 1), a), lo, 8)
    fn.store("i64", fn.select(less, "i64", b, mid), hi, 8)
    fn.br(head)
    fn.at(end)
    found = fn.variable("i1", "false")

    def look() -> None:
        fn.store("i1", fn.test("eq", fn.u32("%ranks", a), "%rank", "i32"), found, 1)

    fn.when(fn.test("ult", a, fn.wide("%n")), look)
    fn.ret(f"i1 {fn.load('i1', found, 1)}")
    fn.finish()


def _gone(fn: K, dead: str, pos: str) -> str:
    """Whether the entry at a position has been removed."""
    gone = fn.variable("i1", "false")

    def look() -> None:
        byte = fn.load("i8", fn.gep(dead, fn.v(f"lshr i64 {pos}, 3")))
        by = fn.v(f"trunc i64 {fn.v(f'and i64 {pos}, 7')} to i8")
        fn.store("i1", fn.v(f"trunc i8 {fn.v(f'lshr i8 {byte}, {by}')} to i1"), gone, 1)

    fn.when(fn.test("ne", dead, "null", "ptr"), look)
    return fn.load("i1", gone, 1)


def _ponder(module: Module) -> None:
    """Judge one entry in full: predicates of all kinds, what is missing, what faults. Note it or count it."""
    fn = K(module, "internal void @ponder(ptr %x, i64 %pos, i32 %known) noinline")
    seg = fn.pointer("%x", X_SEGMENT)
    starts, preds = fn.pointer(seg, w.S_STARTS), fn.pointer(seg, w.S_PREDICATES)
    ranks, exact = fn.pointer("%x", X_RANKS), fn.test("ne", fn.word("%x", X_EXACT), 0)
    bad, lacking, faults = (fn.variable("i32", start) for start in ("0", "0", "%known"))

    def note(where: str, bit: str) -> None:
        fn.store("i32", fn.v(f"or i32 {fn.load('i32', where, 4)}, {fn.v(f'zext i1 {bit} to i32')}"), where, 4)

    end = fn.wide(fn.u32(starts, fn.add("%pos", 1)))
    at = fn.variable("i64", fn.wide(fn.u32(starts, "%pos")))
    head, body, plain, special, next_, done = map(fn.label, ("head", "body", "plain", "special", "next", "done"))
    fn.at(head)
    j = fn.load("i64", at, 8)
    fn.cbr(fn.test("ult", j, end), body, done)
    fn.at(body)
    pred = fn.v(f"getelementptr [3 x i32], ptr {preds}, i64 {j}")
    flags, lo, span = fn.u32(pred, "0"), fn.u32(pred, "1"), fn.u32(pred, "2")
    index = fn.wide(fn.v(f"and i32 {flags}, {w.INDEX}"))
    fn.cbr(fn.test("ult", flags, w.OPAQUE, "i32"), plain, special)
    fn.at(plain)
    rank = fn.u32(ranks, index)
    outside = fn.test("ugt", fn.v(f"sub i32 {rank}, {lo}"), span, "i32")
    absent = fn.test("uge", rank, w.BROKEN, "i32")
    note(lacking, absent)
    note(bad, fn.v(f"and i1 {outside}, {fn.not_(absent)}"))
    fn.at(next_)
    fn.store("i64", fn.add(j, 1), at, 8)
    fn.br(head)

    fn.at(special)
    unsettled = fn.label("open")
    lost = fn.v(f"and i32 {fn.load('i32', lacking, 4)}, 1")
    short = fn.v(f"or i1 {exact}, {fn.test('eq', lost, 0, 'i32')}")
    go_on = fn.v(f"and i1 {short}, {fn.test('eq', fn.load('i32', bad, 4), 0, 'i32')}")
    fn.cbr(go_on, unsettled, done)
    fn.at(unsettled)
    among, asked = fn.label("among"), fn.label("asked")
    fn.cbr(fn.test("eq", fn.v(f"and i32 {flags}, {w.OPAQUE}"), 0, "i32"), among, asked)
    fn.at(asked)
    waiting = fn.test("ne", fn.pointer("%x", X_RECORD), "null", "ptr")  # a batch's ranks are there already

    def ask() -> None:
        answer = fn.v(f"call i32 @evaluate(ptr %x, i64 {index})")
        more = fn.v(f"lshr i32 {answer}, 8")
        fn.store("i32", fn.v(f"or i32 {fn.load('i32', faults, 4)}, {more}"), faults, 4)

    fn.when(waiting, ask)
    given = fn.u32(ranks, index)
    unknown = fn.test("eq", given, w.MISSING, "i32")
    doubt = fn.v(f"zext i1 {unknown} to i32")
    fn.store("i32", fn.v(f"or i32 {fn.load('i32', lacking, 4)}, {fn.v(f'shl i32 {doubt}, 1')}"), lacking, 4)
    note(bad, fn.test("eq", given, 0, "i32"))
    fn.br(next_)

    fn.at(among)
    member = fn.u32(ranks, index)
    gone = fn.test("uge", member, w.BROKEN, "i32")
    pool = fn.at_index("i32", fn.pointer(seg, w.S_POOL), fn.wide(lo))
    found = fn.v(f"call i1 @in_set(ptr {pool}, i32 {span}, i32 {member})")
    wanted = fn.test("eq", fn.v(f"and i32 {flags}, {w.NOT}"), 0, "i32")
    note(lacking, gone)
    note(bad, fn.v(f"and i1 {fn.v(f'xor i1 {found}, {wanted}')}, {fn.not_(gone)}"))
    fn.br(next_)

    fn.at(done)
    no, lacks = fn.load("i32", bad, 4), fn.load("i32", lacking, 4)
    where, kinds = fn.pointer("%x", X_OUT), fn.load("i32", faults, 4)
    # Undecided: nothing is false, and what lacks is told apart, or is native code's to say.
    told = fn.select(exact, "i1", fn.test("ne", lacks, 0, "i32"), fn.test("eq", lacks, 2, "i32"))
    fine = fn.test("eq", no, 0, "i32")
    undecided = fn.v(f"and i1 {told}, {fine}")
    faulty = fn.test("ne", kinds, 0, "i32")
    passed = fn.v(f"and i1 {fine}, {fn.test('eq', lacks, 0, 'i32')}")
    fn.when(passed, lambda: fn.do(f"call void @push(ptr {where}, i64 %pos)"))
    call = f"call void @count(ptr %x, i64 %pos, i1 {undecided}, i32 {kinds})"
    fn.when(fn.v(f"or i1 {undecided}, {faulty}"), lambda: fn.do(call))
    fn.ret("void")
    fn.finish()


class _Entries:
    """Code that verifies one entry after the other; what they share is loaded once."""

    def __init__(self, fn: K, count: str) -> None:
        self.fn, seg = fn, fn.pointer("%x", X_SEGMENT)
        self.starts, self.preds = fn.pointer(seg, w.S_STARTS), fn.pointer(seg, w.S_PREDICATES)
        self.ranks, self.exact = fn.pointer("%x", X_RANKS), fn.test("ne", fn.word("%x", X_EXACT), 0)
        self.dead, self.where = fn.pointer("%x", X_DEAD), fn.pointer("%x", X_OUT)
        self.bad, self.at = fn.alloca("i32"), fn.alloca("i64")
        tried = fn.v(f"mul i64 {count}, {fn.word('%x', X_COUNTING)}")
        fn.bump(fn.pointer(seg, w.S_STATS), w.T_CANDIDATES, tried)

    def predicate(self, at: str) -> str:
        return self.fn.v(f"getelementptr [3 x i32], ptr {self.preds}, i64 {at}")

    def verify(self, pos: str) -> None:
        """Plain predicates are all looked at, without a branch for each: a guess gone wrong costs more than that."""
        fn, bad, at = self.fn, self.bad, self.at
        alive, head, body, plain, special, done, ponder, pass_, fail, out = map(
            fn.label, ("alive", "head", "body", "plain", "special", "done", "ponder", "pass", "fail", "out")
        )
        fn.cbr(_gone(fn, self.dead, pos), out, alive)
        fn.at(alive)
        end = fn.wide(fn.u32(self.starts, fn.add(pos, 1)))
        fn.store("i64", fn.wide(fn.u32(self.starts, pos)), at, 8)
        fn.store("i32", "0", bad, 4)
        fn.at(head)
        j = fn.load("i64", at, 8)
        fn.cbr(fn.test("ult", j, end), body, done)
        fn.at(body)
        pred = self.predicate(j)
        flags, lo, span = fn.u32(pred, "0"), fn.u32(pred, "1"), fn.u32(pred, "2")
        fn.cbr(fn.test("ult", flags, w.PLAIN, "i32"), plain, special)
        fn.at(plain)
        rank = fn.u32(self.ranks, fn.wide(flags))
        outside = fn.v(f"zext i1 {fn.test('ugt', fn.v(f'sub i32 {rank}, {lo}'), span, 'i32')} to i32")
        fn.store("i32", fn.v(f"or i32 {fn.load('i32', bad, 4)}, {outside}"), bad, 4)
        fn.store("i64", fn.add(j, 1), at, 8)
        fn.br(head)
        fn.at(done)
        fn.cbr(fn.test("eq", fn.load("i32", bad, 4), 0, "i32"), pass_, fail)
        fn.at(pass_)
        fn.do(f"call void @push(ptr {self.where}, i64 {pos})")
        fn.br(out)
        fn.at(special)
        fn.cbr(fn.test("eq", fn.load("i32", bad, 4), 0, "i32"), ponder, fail)
        fn.at(fail)
        fn.cbr(self.exact, ponder, out)
        fn.at(ponder)
        fn.do(f"call void @ponder(ptr %x, i64 {pos}, i32 0)")
        fn.at(out)


def _take(module: Module) -> None:
    """Verify the entries from one position to another, and note those that pass."""
    fn = K(module, "internal void @take(ptr %x, i64 %lo, i64 %hi)")
    it = _Entries(fn, fn.v("sub i64 %hi, %lo"))
    fn.span("%lo", "%hi", it.verify)
    fn.ret("void")
    fn.finish()


def _verify(module: Module) -> None:
    """Verify entries here and there. What they need is fetched first, all of it at once."""
    fn = K(module, "internal void @verify(ptr %x, ptr %found, i64 %n) noinline")
    it = _Entries(fn, "%n")

    def fetch(i: str) -> None:
        pred = it.predicate(fn.wide(fn.u32(it.starts, fn.word("%found", i))))
        for at in (pred, fn.gep(pred, 48)):
            fn.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 3, i32 1)")

    fn.span("0", "%n", fetch)
    fn.span("0", "%n", lambda i: it.verify(fn.word("%found", i)))
    fn.ret("void")
    fn.finish()


def _sweep(module: Module) -> None:
    """Combine the rows of bits that the event's ranks choose; verify the entries that are left."""
    fn = K(module, "internal void @sweep(ptr %x)")
    seg = fn.pointer("%x", X_SEGMENT)
    ranks, exact = fn.pointer("%x", X_RANKS), fn.test("ne", fn.word("%x", X_EXACT), 0)
    rowed, specs = fn.word(seg, w.S_ROWED), fn.pointer(seg, w.S_ROWS)
    width, firsts = fn.word(seg, w.S_WIDTH), fn.pointer(seg, w.S_FIRSTS)
    first = fn.word(seg, w.S_SWEPT)
    rows = fn.v(f"alloca ptr, i64 {fn.add(rowed, 1)}, align 8")
    skips = fn.v(f"alloca i64, i64 {fn.add(rowed, 1)}, align 8")
    front, back = fn.variable("i64", "0"), fn.variable("i64", rowed)
    # Rows of attributes that are missing come first, as they leave the least, and in the order by which entries are
    # sorted: a chunk of entries starts with the first that it minds.

    def choose(a: str) -> None:
        """The row of bits that an attribute's rank selects, put in front where it rules most entries out."""
        spec = fn.v(f"getelementptr [{w.B_WORDS} x i64], ptr {specs}, i64 {a}")
        rank = fn.u32(ranks, fn.word(spec, w.B_ATTR))
        base, spans = fn.pointer(spec, w.B_ROWS), fn.word(spec, w.B_COUNT)
        fn.put(fn.load("i64", front, 8), skips, a)

        def row(number: str) -> str:
            return fn.at_index("i64", base, fn.v(f"mul i64 {number}, {width}"))

        def missing() -> None:
            def rule_out() -> None:
                at = fn.load("i64", front, 8)
                fn.store("ptr", row(spans), fn.at_index("ptr", rows, at), 8)
                fn.store("i64", fn.add(at, 1), front, 8)

            fn.when(exact, lambda: None, rule_out)

        def present() -> None:
            ordered = fn.v(f"lshr i64 {fn.wide(rank)}, {fn.word(spec, w.B_SHIFT)}")
            nan = fn.test("eq", rank, w.NAN, "i32")
            number = fn.v(f"select i1 {nan}, i64 {fn.add(spans, 1)}, i64 {ordered}")
            at = fn.add(fn.load("i64", back, 8), -1)
            fn.store("ptr", row(number), fn.at_index("ptr", rows, at), 8)
            fn.store("i64", at, back, 8)

        fn.when(fn.test("eq", rank, w.MISSING, "i32"), missing, present)

    fn.span("0", rowed, choose)
    ends = (fn.load("i64", front, 8), fn.load("i64", back, 8))
    fn.put(ends[0], skips, rowed)
    bits = fn.alloca(f"[{w.CHUNK} x i64]", 64)
    valid = fn.pointer(seg, w.S_VALID)
    state = fn.alloca(_VECTOR, 64)
    # Where few entries are left, to verify them is quicker than to look at more rows.
    few = fn.v(f"lshr i64 {fn.v(f'sub i64 {rowed}, {ends[1]}')}, 2")
    chunks = fn.v(f"lshr i64 {width}, {w.CHUNK.bit_length() - 1}")

    found, waiting = fn.alloca(f"[{_WAITING} x i64]", 64), fn.variable("i64", "0")

    def verify() -> None:
        fn.do(f"call void @verify(ptr %x, ptr {found}, i64 {fn.load('i64', waiting, 8)})")
        fn.store("i64", "0", waiting, 8)

    def chunk(c: str) -> None:
        """Intersect the chosen rows for some hundred entries at once; as soon as none is left, go on with the next
        ones."""
        base = fn.v(f"mul i64 {c}, {w.CHUNK}")
        start = fn.load(_VECTOR, fn.at_index("i64", valid, base), 64)
        fn.store(_VECTOR, start, state, 64)
        over = fn.label("over")

        def narrow(i: str) -> None:
            row = fn.load("ptr", fn.at_index("ptr", rows, i), 8)
            both = fn.v(f"and {_VECTOR} {fn.load(_VECTOR, state, 64)}, "
                        f"{fn.load(_VECTOR, fn.at_index('i64', row, base), 64)}")  # fmt: skip
            fn.store(_VECTOR, both, state, 64)
            some = fn.v(f"bitcast <{w.CHUNK} x i1> {fn.v(f'icmp ne {_VECTOR} {both}, zeroinitializer')} to i{w.CHUNK}")
            go = fn.label("go")
            fn.cbr(fn.test("eq", some, 0, f"i{w.CHUNK}"), over, go)
            fn.at(go)

        fn.span(fn.word(skips, fn.wide(fn.u32(firsts, c))), ends[0], narrow)
        ones = fn.v(f"call {_VECTOR} @llvm.ctpop.v{w.CHUNK}i64({_VECTOR} {fn.load(_VECTOR, state, 64)})")
        left = fn.v(f"call i64 @llvm.vector.reduce.add.v{w.CHUNK}i64({_VECTOR} {ones})")
        fn.when(fn.test("ugt", left, few), lambda: fn.span(ends[1], rowed, narrow))
        fn.store(_VECTOR, fn.load(_VECTOR, state, 64), bits, 64)

        def word(i: str) -> None:
            left = fn.variable("i64", fn.word(bits, i))
            head, body, end = fn.label("head"), fn.label("body"), fn.label("end")
            number = fn.v(f"shl i64 {fn.add(base, i)}, 6")
            fn.at(head)
            now = fn.load("i64", left, 8)
            fn.cbr(fn.test("eq", now, 0), end, body)
            fn.at(body)
            fn.store("i64", fn.v(f"and i64 {now}, {fn.add(now, -1)}"), left, 8)
            lo = fn.add(fn.add(first, number), fn.v(f"call i64 @llvm.cttz.i64(i64 {now}, i1 true)"))
            held = fn.load("i64", waiting, 8)
            fn.put(lo, found, held)
            more = fn.add(held, 1)
            fn.store("i64", more, waiting, 8)
            fn.when(fn.test("eq", more, _WAITING), verify)
            fn.br(head)
            fn.at(end)

        fn.span("0", str(w.CHUNK), word)
        fn.at(over)

    fn.span("0", chunks, chunk)
    verify()
    fn.ret("void")
    fn.finish()


def _match_segment(module: Module) -> None:
    """All ways to the entries of one segment: those always verified, those found by equality, those swept."""
    fn = K(module, "internal void @match_segment(ptr %x, i64 %scan)")
    seg = fn.pointer("%x", X_SEGMENT)
    fn.bump(fn.pointer(seg, w.S_STATS), w.T_EVENTS, fn.word("%x", X_COUNTING))
    count, out = fn.word(seg, w.S_COUNT), fn.pointer("%x", X_OUT)
    before = fn.word(out, O_COUNT)

    def index() -> None:
        """Look only at entries that an index finds: by their key attribute's value, and those that have none."""
        always = fn.word(seg, w.S_ALWAYS)
        fn.when(fn.test("ne", always, 0), lambda: fn.do(f"call void @take(ptr %x, i64 0, i64 {always})"))
        keys, ranks = fn.pointer(seg, w.S_KEYS), fn.pointer("%x", X_RANKS)
        exact = fn.test("ne", fn.word("%x", X_EXACT), 0)

        def key(k: str) -> None:
            """Entries that are filed under one attribute: those of its rank, or, if it is missing and undecided events
            are counted, all of them."""
            spec = fn.v(f"getelementptr [{w.K_WORDS} x i64], ptr {keys}, i64 {k}")
            attr, starts = fn.word(spec, w.K_ATTR), fn.pointer(spec, w.K_STARTS)
            rank = fn.u32(ranks, attr)
            descriptors = fn.pointer(seg, w.S_DESCRIPTORS)
            total = fn.word(fn.v(f"getelementptr [{w.A_WORDS} x i64], ptr {descriptors}, i64 {attr}"), w.A_COUNT)

            def span(lo: str, hi: str) -> None:
                a, b = fn.wide(fn.u32(starts, lo)), fn.wide(fn.u32(starts, hi))
                fn.when(fn.test("ult", a, b), lambda: fn.do(f"call void @take(ptr %x, i64 {a}, i64 {b})"))

            def equal() -> None:
                at = fn.v(f"lshr i64 {fn.wide(rank)}, 1")
                span(at, fn.add(at, 1))

            def other() -> None:
                lost = fn.v(f"and i1 {exact}, {fn.test('eq', rank, w.MISSING, 'i32')}")
                fn.when(lost, lambda: span("0", total))

            odd = fn.test("ne", fn.v(f"and i32 {rank}, 1"), 0, "i32")
            value = fn.test("ult", rank, w.TOP, "i32")
            fn.when(fn.v(f"and i1 {odd}, {value}"), equal, other)

        fn.span("0", fn.word(seg, w.S_KEYED), key)
        fn.when(fn.test("ult", fn.word(seg, w.S_SWEPT), count), lambda: fn.do("call void @sweep(ptr %x)"))

    fn.when(
        fn.test("ne", "%scan", 0), lambda: fn.do(f"call void @take(ptr %x, i64 0, i64 {count})"), index
    )  # fmt: skip
    found = fn.v(f"sub i64 {fn.word(out, O_COUNT)}, {before}")
    hits = fn.v(f"mul i64 {found}, {fn.word('%x', X_COUNTING)}")
    fn.bump(fn.pointer(seg, w.S_STATS), w.T_HITS, hits)
    fn.ret("void")
    fn.finish()


def _malformed(module: Module) -> None:
    """Every entry of a segment is undecided, by a malformed record."""
    fn = K(module, "internal void @malformed(ptr %x) noinline")
    seg = fn.pointer("%x", X_SEGMENT)
    dead = fn.pointer("%x", X_DEAD)

    def entry(pos: str) -> None:
        fn.when(
            _gone(fn, dead, pos),
            lambda: None,
            lambda: fn.do(f"call void @count(ptr %x, i64 {pos}, i1 true, i32 16)"),
        )

    fn.bump(fn.pointer(seg, w.S_STATS), w.T_EVENTS, fn.word("%x", X_COUNTING))
    fn.span("0", fn.word(seg, w.S_COUNT), entry)
    fn.ret("void")
    fn.finish()


def _wild(module: Module) -> None:
    """The entries of a segment one by one, for a record with a text outside it: a fault of those that ask for it."""
    fn = K(module, "internal void @wild(ptr %x) noinline")
    seg, dead, ranks = fn.pointer("%x", X_SEGMENT), fn.pointer("%x", X_DEAD), fn.pointer("%x", X_RANKS)
    starts, preds, exact = fn.pointer(seg, w.S_STARTS), fn.pointer(seg, w.S_PREDICATES), fn.word("%x", X_EXACT)
    faults = fn.alloca("i32")

    def entry(pos: str) -> None:
        fn.store("i32", "0", faults, 4)

        def look(j: str) -> None:
            flags = fn.u32(fn.v(f"getelementptr [3 x i32], ptr {preds}, i64 {j}"), "0")
            rank = fn.u32(ranks, fn.wide(fn.v(f"and i32 {flags}, {w.INDEX}")))
            fn.when(fn.test("eq", rank, w.BROKEN, "i32"), lambda: fn.store("i32", "16", faults, 4))

        def judge() -> None:
            fn.span(fn.wide(fn.u32(starts, pos)), fn.wide(fn.u32(starts, fn.add(pos, 1))), look)
            fn.do(f"call void @ponder(ptr %x, i64 {pos}, i32 {fn.load('i32', faults, 4)})")

        fn.when(_gone(fn, dead, pos), lambda: None, judge)

    fn.put("1", "%x", X_EXACT)
    fn.bump(fn.pointer(seg, w.S_STATS), w.T_EVENTS, fn.word("%x", X_COUNTING))
    fn.span("0", fn.word(seg, w.S_COUNT), entry)
    fn.put(exact, "%x", X_EXACT)
    fn.ret("void")
    fn.finish()
