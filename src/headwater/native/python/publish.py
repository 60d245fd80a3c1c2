"""The fast path from a publisher to a function that wants its events, as a builtin function made at run time.

Where nothing has to be done with an event but to call one function in the same thread, a call of `publish` is a few
checks, the encoder, and the function. Machine code does that, and leaves everything else to a function in Python. In
the same way it puts records on a list, from where they go to another node: all of them, or those that a judge wants,
which is machine code as well.

What both know is in Python objects, whose slots machine code reads and writes where they lie: `SourceSlots`,
`FlowSlots` and `BypassSlots` are the parts of those objects that it knows about. It holds the GIL throughout, so that
from its last check until the function is called nobody else can do anything: no lock needs to be taken, only to be
found free.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

from headwater.native import engine
from headwater.native.builtin_functions import FAST_WITH_KEYWORDS, MethodDef, new_function
from headwater.native.once import once
from headwater.native.python.emit import Code, address
from headwater.native.python.interpreter import HEAD, log, memory_of, supported, word_at
from headwater.native.python.kernels import imports

_NOWHERE = -1  # no event has this number
SIZE = HEAD  # where a list and a deque have their length: right after the head


class SourceSlots:
    """Of what publishes. The slots are set before the function is made, and stay."""

    __slots__ = ("_fast", "_fast_path", "_flow", "_full", "_gate", "_slow")

    _fast: Callable[[Any], bytes | None]  # the encoder
    _flow: Any  # a FlowPart
    _full: set[Any]  # the fast path is closed while something is in it
    _gate: list[None]  # the same while nothing is in it
    _slow: Callable[..., int]  # publishes all that cannot take the fast path
    _fast_path: FastPath


class FlowSlots:
    """Of the events of one source."""

    __slots__ = ("bypass", "seen")

    bypass: Any  # the BypassSlots of the function to call; None if there is more to do
    seen: int  # events so far: the last one's sequence number


class BypassSlots:
    """Of what takes the events. Nothing in it is exchanged, but for `last`."""

    __slots__ = (
        "after_bypass",
        "blocks_bypass",
        "cls",
        "decode",
        "failed",
        "gap_count",
        "handler",
        "items",
        "judge",
        "last_queued",
        "pending",
        "send_first",
        "thread",
        "token",
    )

    # Either events go to a function:
    handler: Callable[[Any], object]  # it is called with the event
    cls: type | None  # it is given events of exactly this class as they are; of others, the record decoded
    decode: Callable[[bytes], Any]
    failed: Callable[[Exception, Any], None]  # called with what the function, or decoding, raised, and the event
    token: list[None]  # its one element is taken out while the function runs
    items: deque[Any]  # its queue: the fast path is closed while something is in one of these two,
    blocks_bypass: list[None]
    after_bypass: Callable[[], None]  # and if that is so after the function, this is called
    thread: bytearray  # the eight bytes of the identity of the thread that runs it; it is in `nest` while one does
    # Or, if this is a list, records are put there, to go to another node:
    pending: list[Any] | None
    send_first: Callable[[], None]  # called when the list was empty before
    # Machine code that says which records are wanted, None if all are. Eight bytes are its address, the others its
    # first argument; then come a record's bytes and their number. It answers 0 for no, 1 for yes, and 2 if Python has
    # to see to it. It runs nothing of Python's.
    judge: bytes | None
    last_queued: int  # with a judge: the last event that was put there. What follows after a gap is preceded by the
    gap_count: bytearray  # number before it; and here, as eight bytes, is counted how many such numbers there were


class FastPath:
    """The machine code. `nest` holds an element for each function being called: never more than `depth` on this way.

    Of the sequence numbers those that have no bit in common with `sample` are left to Python.
    """

    def __init__(self, *, nest: list[Any], depth: int, sample: int, doc: str) -> None:
        self.nest = nest
        self._code = engine.compile(_Kernel(nest, depth, sample).source(), ("publish",), imports(), "straight")
        text = f"publish($self, event=None, /, **fields)\n--\n\n{doc}"
        self._method = MethodDef(b"publish", self._code["publish"], FAST_WITH_KEYWORDS, text.encode())

    def publish(self, source: SourceSlots) -> Callable[..., int] | None:
        """The function that publishes at a source; None where the source's encoder is not machine code."""
        if type(source._fast) is not BuiltinFunctionType:
            return None
        source._fast_path = self  # the function keeps the source, and so its code
        made: Callable[..., int] = new_function(self._method, source, type(source).__module__)
        return made


@once
def offered() -> bool:
    """Whether the objects of this Python are laid out as the fast path needs them."""
    if not supported():
        return False
    fit = _sized() and all(_places(cls) for cls in (SourceSlots, FlowSlots, BypassSlots))
    if not fit:
        log.warning("events are published in Python, not by machine code: this build has other lists, deques or slots")
    return fit


def _sized() -> bool:
    """Whether lists and deques have their length where we think, and a list is empty if that says so."""
    for count in (0, 1, 9):
        if any(word_at(id(some) + SIZE) != count for some in ([None] * count, deque([None] * count))):
            return False
    token = [None]
    size = ctypes.c_uint64.from_address(id(token) + SIZE)
    size.value = 0
    empty = not token and token == []
    size.value = 1
    return empty and token == [None]


def _places(cls: type) -> dict[str, int]:
    """Where instances of the class, and of classes derived from it, have each slot; empty if that is not clear."""
    names: tuple[str, ...] = cls.__slots__  # type: ignore[attr-defined]
    probe, values = cls(), {name: object() for name in names}
    for name, value in values.items():
        setattr(probe, name, value)
    words = memory_of(probe)
    if sorted(words) != sorted(id(value) for value in values.values()):
        return {}
    return {name: HEAD + 8 * words.index(id(value)) for name, value in values.items()}


class _Kernel:
    """`publish` in LLVM assembly."""

    def __init__(self, nest: list[Any], depth: int, sample: int) -> None:
        self.nest, self.depth, self.sample = address(nest), depth, sample
        self.places = _places(SourceSlots) | _places(FlowSlots) | _places(BypassSlots)
        self.fn = Code("ptr @publish(ptr %self, ptr %args, i64 %nargs, ptr %names) nounwind")
        self.result = self.fn.alloca("ptr")
        self.error = [self.fn.alloca("ptr") for _ in range(3)]  # type, value, traceback
        self.pair = self.fn.alloca("[2 x ptr]")

    def get(self, thing: str, slot: str) -> str:
        return self.fn.load("ptr", self.at(thing, slot), 8)

    def at(self, thing: str, slot: str) -> str:
        return self.fn.gep(thing, self.places[slot])

    def size(self, thing: str) -> str:
        return self.fn.load("i64", self.fn.gep(thing, SIZE), 8)

    def filled(self, thing: str) -> str:
        return self.fn.v(f"icmp ne i64 {self.size(thing)}, 0")

    def source(self) -> str:
        fn = self.fn
        fn.need(fn.v("icmp eq i64 %nargs, 1"), "slow")
        fn.need(fn.is_null("%names"), "slow")
        event = fn.load("ptr", "%args", 8)
        self.open("slow")
        record = self.encode(event)
        # Making the record may have had the garbage collected, with whatever Python code that means: look again.
        flow, bypass, number = self.open("closed")
        self.put_out(flow, bypass, number, record)
        seq = self.take(flow, bypass, number, record)
        self.call(bypass, event, record)
        self.rescue(bypass, event)
        self.leave(bypass, seq)
        self.exits(record, seq)
        return fn.source()

    def open(self, otherwise: str) -> tuple[str, str, str]:
        """Go on only if the fast path is open now: the flow, where it leads, and the event's sequence number."""
        fn = self.fn
        flow = self.get("%self", "_flow")
        bypass = self.get(flow, "bypass")
        fn.need(fn.not_(fn.is_(bypass, None)), otherwise)
        fn.need(self.filled(self.get("%self", "_gate")), otherwise)
        fn.need(fn.not_(self.filled(self.get(bypass, "blocks_bypass"))), otherwise)
        fn.need(fn.not_(self.filled(self.get(bypass, "items"))), otherwise)
        fn.need(self.filled(self.get(bypass, "token")), otherwise)
        fn.need(fn.v(f"icmp ult i64 {self.size(self.nest)}, {self.depth}"), otherwise)
        full = fn.call("PySet_Size", self.get("%self", "_full"))
        fn.need(fn.v(f"icmp eq i64 {full}, 0"), otherwise)
        number = fn.v(f"add i64 {fn.call('PyLong_AsLongLong', self.get(flow, 'seen'))}, 1")
        fn.need(fn.v(f"icmp ne i64 {fn.v(f'and i64 {number}, {self.sample}')}, 0"), otherwise)
        return flow, bypass, number

    def put_out(self, flow: str, bypass: str, number: str, record: str) -> None:
        """Where records are only to be put on a list: do so if they are wanted, and say so if it was empty. Else go on.

        What may fail, or have Python take over, comes before an event is judged: that counts it."""
        fn = self.fn
        out = self.get(bypass, "pending")
        fn.cbr(fn.or_(fn.is_null(out), fn.is_(out, None)), "inside", "outside")
        fn.at("outside")
        seq = fn.call("PyLong_FromLongLong", number)
        fn.present(seq, "unnumbered")
        empty = fn.not_(self.filled(out))
        self.judge(flow, bypass, number, record, seq)
        added = fn.call("PyList_Append", out, record)
        fn.need(fn.v(f"icmp eq i32 {added}, 0"), "unput")
        fn.run("Py_DecRef", record)
        self.exchange(flow, "seen", seq)
        fn.cbr(empty, "first", "put")
        fn.at("first")
        fn.run("Py_IncRef", bypass)
        told = fn.call("PyObject_CallNoArgs", self.get(bypass, "send_first"))
        fn.run("Py_DecRef", bypass)
        fn.present(told, "untold")
        fn.run("Py_DecRef", told)
        fn.at("put")
        fn.ret(f"ptr {seq}")
        fn.at("unwanted")
        fn.run("Py_DecRef", record)
        self.exchange(flow, "seen", seq)
        fn.ret(f"ptr {seq}")
        fn.at("unjudged")
        fn.run("Py_DecRef", seq)
        fn.br("closed")
        fn.at("unput")
        self.exchange(bypass, "last_queued", address(_NOWHERE))
        fn.run("Py_DecRef", record)
        fn.at("untold")
        fn.run("Py_DecRef", seq)
        fn.br("fail")
        fn.at("inside")

    def judge(self, flow: str, bypass: str, number: str, record: str, seq: str) -> None:
        """Go on if the record is wanted, with the number before it on the list if it does not follow on the last."""
        fn = self.fn
        block, out = self.get(bypass, "judge"), self.get(bypass, "pending")
        fn.cbr(fn.or_(fn.is_null(block), fn.is_(block, None)), "wanted", "asked")
        fn.at("asked")
        words = fn.call("PyBytes_AsString", block)
        code, given = fn.load("ptr", words, 8), fn.gep(words, 8)
        data, size = fn.call("PyBytes_AsString", record), fn.call("PyBytes_Size", record)
        verdict = fn.v(f"call i32 {code}(ptr {given}, ptr {data}, i64 {size})")
        fn.cbr(fn.v(f"icmp eq i32 {verdict}, 0"), "unwanted", "decided")
        fn.at("decided")
        fn.need(fn.v(f"icmp eq i32 {verdict}, 1"), "unjudged")
        last, before = fn.call("PyLong_AsLongLong", self.get(bypass, "last_queued")), fn.v(f"sub i64 {number}, 1")
        fn.cbr(fn.v(f"icmp eq i64 {last}, {before}"), "follows", "gap")
        fn.at("gap")
        added = fn.call("PyList_Append", out, self.get(flow, "seen"))
        fn.need(fn.v(f"icmp eq i32 {added}, 0"), "unput")
        gaps = fn.call("PyByteArray_AsString", self.get(bypass, "gap_count"))
        fn.store("i64", fn.v(f"add i64 {fn.load('i64', gaps)}, 1"), gaps)
        fn.at("follows")
        self.exchange(bypass, "last_queued", seq)
        fn.at("wanted")

    def exchange(self, thing: str, slot: str, value: str) -> None:
        """Another number in a slot."""
        fn = self.fn
        before = self.get(thing, slot)
        fn.run("Py_IncRef", value)
        fn.store("ptr", value, self.at(thing, slot), 8)
        fn.run("Py_DecRef", before)

    def encode(self, event: str) -> str:
        fn = self.fn
        record = fn.call("PyObject_CallOneArg", self.get("%self", "_fast"), event)
        fn.present(record, "fail")
        refused = fn.label("refused")
        encoded = fn.label("encoded")
        fn.cbr(fn.is_(record, None), refused, encoded)
        fn.at(refused)
        fn.run("Py_DecRef", record)
        fn.br("slow")
        fn.at(encoded)
        return record

    def take(self, flow: str, bypass: str, number: str, record: str) -> str:
        """Count the event and take the token. What may fail comes first."""
        fn = self.fn
        seq = fn.call("PyLong_FromLongLong", number)
        fn.present(seq, "unnumbered")
        noted = fn.call("PyList_Insert", self.nest, "0", bypass)  # in front: at the end Python adds and removes its own
        fn.need(fn.v(f"icmp eq i32 {noted}, 0"), "unnoted")
        fn.run("Py_IncRef", bypass)
        self.exchange(flow, "seen", seq)
        fn.store("i64", "0", fn.gep(self.get(bypass, "token"), SIZE), 8)  # what list.pop() does
        fn.run("Py_DecRef", address(None))
        thread = fn.call("PyByteArray_AsString", self.get(bypass, "thread"))
        fn.store("i64", fn.call("PyThread_get_thread_ident"), thread)
        return seq

    def call(self, bypass: str, event: str, record: str) -> None:
        """The function, with the event or with what is in the record; afterwards at `done` or at `raised`."""
        fn = self.fn
        fn.cbr(fn.v(f"icmp eq ptr {fn.type_of(event)}, {self.get(bypass, 'cls')}"), "given", "decoded")
        fn.at("given")
        fn.run("Py_DecRef", record)
        fn.store("ptr", fn.call("PyObject_CallOneArg", self.get(bypass, "handler"), event), self.result, 8)
        fn.br("called")
        fn.at("decoded")
        made = fn.call("PyObject_CallOneArg", self.get(bypass, "decode"), record)
        fn.run("Py_DecRef", record)
        fn.present(made, "raised")
        fn.store("ptr", fn.call("PyObject_CallOneArg", self.get(bypass, "handler"), made), self.result, 8)
        fn.run("Py_DecRef", made)
        fn.br("called")
        fn.at("called")
        result = fn.load("ptr", self.result, 8)
        fn.present(result, "raised")
        fn.run("Py_DecRef", result)
        fn.br("done")

    def rescue(self, bypass: str, event: str) -> None:
        """An exception goes to `failed`; what is no Exception, and what that raises itself, goes on to the caller."""
        fn = self.fn
        kind, value, trace = self.error
        fn.at("raised")
        ours = fn.call("PyErr_ExceptionMatches", address(Exception))
        fn.need(fn.v(f"icmp ne i32 {ours}, 0"), "escapes")
        fn.run("PyErr_Fetch", *self.error)
        fn.run("PyErr_NormalizeException", *self.error)
        error, traceback = fn.load("ptr", value, 8), fn.load("ptr", trace, 8)
        fn.cbr(fn.is_null(traceback), "untraced", "traced")
        fn.at("traced")
        fn.run("PyException_SetTraceback", error, traceback)
        fn.run("Py_DecRef", traceback)
        fn.at("untraced")
        fn.store("ptr", error, self.pair, 8)
        fn.store("ptr", event, fn.gep(self.pair, 8), 8)
        outcome = fn.call("PyObject_Vectorcall", self.get(bypass, "failed"), self.pair, "2", "null")
        fn.run("Py_DecRef", error)
        fn.run("Py_DecRef", fn.load("ptr", kind, 8))
        fn.present(outcome, "escapes")
        fn.run("Py_DecRef", outcome)
        fn.br("done")

    def leave(self, bypass: str, seq: str) -> None:
        """The token goes back whatever happened."""
        fn = self.fn
        kind, value, trace = self.error
        fn.at("done")
        fn.store("ptr", "null", kind, 8)
        fn.br("back")
        fn.at("escapes")
        fn.run("PyErr_Fetch", *self.error)
        fn.at("back")
        self.forget(bypass)
        fn.run("PyList_Append", self.get(bypass, "token"), address(None))  # has had room for it before
        escaping = fn.load("ptr", kind, 8)
        fn.need(fn.is_null(escaping), "escaped")
        waiting = fn.or_(self.filled(self.get(bypass, "blocks_bypass")), self.filled(self.get(bypass, "items")))
        fn.cbr(waiting, "more", "end")
        fn.at("more")
        outcome = fn.call("PyObject_CallNoArgs", self.get(bypass, "after_bypass"))
        fn.present(outcome, "not_run")
        fn.run("Py_DecRef", outcome)
        fn.at("end")
        fn.run("Py_DecRef", bypass)
        fn.ret(f"ptr {seq}")
        fn.at("escaped")
        fn.run("Py_DecRef", bypass)
        fn.run("Py_DecRef", seq)
        fn.run("PyErr_Restore", escaping, fn.load("ptr", value, 8), fn.load("ptr", trace, 8))
        fn.ret("ptr null")
        fn.at("not_run")
        fn.run("Py_DecRef", bypass)
        fn.br("uncalled")

    def forget(self, bypass: str) -> None:
        """Take it out of `nest`: the first one in it, unless another thread has taken another fast path since."""
        fn = self.fn
        index = fn.alloca("i64")
        fn.store("i64", "0", index, 8)
        fn.at("look")
        at = fn.load("i64", index, 8)
        fn.need(fn.v(f"icmp slt i64 {at}, {self.size(self.nest)}"), "forgotten")
        after = fn.v(f"add i64 {at}, 1")
        fn.store("i64", after, index, 8)
        found = fn.v(f"icmp eq ptr {fn.call('PyList_GetItem', self.nest, at)}, {bypass}")
        fn.need(found, "look")
        fn.run("PyList_SetSlice", self.nest, at, after, "null")
        fn.at("forgotten")

    def exits(self, record: str, seq: str) -> None:
        fn = self.fn
        fn.at("unnoted")
        fn.run("Py_DecRef", seq)
        fn.at("unnumbered")
        fn.run("Py_DecRef", record)
        fn.br("fail")
        fn.at("closed")
        fn.run("Py_DecRef", record)
        fn.at("slow")
        slow = fn.call("PyObject_Vectorcall", self.get("%self", "_slow"), "%args", "%nargs", "%names")
        fn.ret(f"ptr {slow}")
        fn.at("uncalled")
        fn.run("Py_DecRef", seq)
        fn.at("fail")
        fn.ret("ptr null")
