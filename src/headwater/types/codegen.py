"""Writes, for one event type, the Python functions that encode and decode its records.

The source text contains numbers and our own identifiers only; field names, classes and everything else that comes
from a declaration are passed in as constants. The functions accept the exact types of the ordinary case and raise
*some* exception for anything else: the careful passes (`values.py`, `check.py`) then say what is wrong or take the
unusual value. Layout: see `layout.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Any

from headwater.types.binding import Binding
from headwater.types.buffers import CODES, Misfit, flatten, is_plain, nest, packer, unpacker
from headwater.types.layout import MAX_SIZE, Layout, align_up, record_layout, size_align, stride
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN, Array, Enum, List, Record, Scalar, Type

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_COMMON: dict[str, Any] = {
    "Misfit": Misfit,
    "DATETIME": datetime,
    "EPOCH": EPOCH,
    "US": MICROSECOND,
    "FLATTEN": flatten,
    "NEST": nest,
    "PAD": tuple(bytes(n) for n in range(8)),
}


class _Format:
    """A struct format that grows slot by slot, with the variables that fill it."""

    def __init__(self, start: int = 0) -> None:
        self.text = "<"
        self.position = start
        self.args: list[str] = []

    def put(self, offset: int, code: str, size: int, arg: str) -> None:
        self.pad_to(offset)
        self.text += code
        self.position = offset + size
        self.args.append(arg)

    def pad_to(self, offset: int) -> None:
        if offset > self.position:
            self.text += f"{offset - self.position}x"
            self.position = offset


class _Source:
    """Lines of Python and the constants they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = dict(_COMMON)
        self.counter = 0

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def constant(self, value: Any) -> str:
        name = self.fresh("K")
        self.constants[name] = value
        return name

    def line(self, indent: int, text: str) -> None:
        self.lines.append(" " * indent + text)

    def compile(self, head: str) -> Callable[[Any], Any]:
        source = "\n".join([head, *self.lines])
        namespace = dict(self.constants)
        exec(compile(source, "<headwater record codec>", "exec"), namespace)
        return namespace["run"]  # type: ignore[no-any-return]


def has_heap(type: Type) -> bool:
    """Whether values of this type may put anything in the heap."""
    match type:
        case Scalar(name=name):
            return name in ("text", "bytes")
        case List():
            return True
        case Array(element=element):
            return has_heap(element)
        case Record(fields=fields):
            return any(has_heap(f.type) for f in fields)
        case _:
            return False


# ── encode ──────────────────────────────────────────────────────────────────────────────────────────────


def encoder(binding: Binding) -> Callable[[Any], bytes]:
    """A function from an instance or a dict with all fields to record bytes; any exception means "look closer"."""
    layout = Layout.of(binding.record)
    out, form = _Source(), _Format()
    form.put(0, "I", 4, "total")
    form.put(4, "12s", 12, out.constant(layout.header))
    heap = has_heap(binding.type)
    if heap:
        out.line(1, f"pos = {layout.size}; tail = []")
    _write_record(out, form, binding, "value", 16, 1)
    form.pad_to(layout.size)
    if heap:
        out.line(1, "total = (pos + 7) & -8")
        out.line(1, f"if total > {MAX_SIZE}: raise Misfit")
        out.line(1, "if total != pos: tail.append(PAD[total - pos])")
    else:
        out.line(1, f"total = {layout.size}")
    pack = out.constant(struct.Struct(form.text).pack)
    fixed = f"{pack}({', '.join(form.args)})"
    out.line(1, f"return b''.join(({fixed}, *tail))" if heap else f"return {fixed}")
    return out.compile("def run(value):")


def _write_record(out: _Source, form: _Format, binding: Binding, var: str, base: int, ind: int) -> list[str]:
    """Lines that take a record apart and fill its slots. Returns the variables of all slots, bitmap first."""
    record, level = binding.record, record_layout(binding.record)
    first = len(form.args)
    values = [out.fresh("v") for _ in record.fields]
    instance = out.constant(attrgetter(*binding.attrs))
    mapping = out.constant(itemgetter(*[f.name for f in record.fields]))
    targets = ", ".join(values)
    out.line(ind, f"if type({var}) is {out.constant(binding.cls)}: {targets} = {instance}({var})")
    out.line(ind, f"elif type({var}) is dict and len({var}) == {len(values)}: {targets} = {mapping}({var})")
    out.line(ind, "else: raise Misfit")
    bitmaps = [out.fresh("m") for _ in range(level.bitmap_bytes)]
    for k, bitmap in enumerate(bitmaps):
        out.line(ind, f"{bitmap} = 0")
        form.put(base + k, "B", 1, bitmap)
    for part, value, slot in zip(binding.parts, values, level.slots.values(), strict=True):
        if slot.bit is None:
            _write(out, form, part, value, base + slot.offset, ind)
            continue
        # The slot's variables are known only after its lines are written, so the branch for None comes second.
        out.line(ind, f"if {value} is not None:")
        out.line(ind + 1, f"{bitmaps[slot.bit // 8]} |= {1 << slot.bit % 8}")
        before, codes = len(form.args), len(form.text)
        _write(out, form, part, value, base + slot.offset, ind + 1)
        zeros = _zeros(form.text[codes:], form.args[before:])
        out.line(ind, "else: " + "; ".join(f"{arg} = {zero}" for arg, zero in zeros))
    form.pad_to(base + level.size)
    return form.args[first:]


def _zeros(codes: str, args: list[str]) -> list[tuple[str, str]]:
    """The zero of each variable: 0, or no bytes for the string slots."""
    kinds = ["b''" if c == "s" else "0" for c in codes if c == "?" or (c.isalpha() and c != "x")]
    return list(zip(args, kinds, strict=True))


def _write(out: _Source, form: _Format, binding: Binding, var: str, at: int, ind: int) -> None:
    """Lines that check one value and compute the variables of its slot."""
    type = binding.type
    size, _ = size_align(type)
    match type:
        case Scalar(name="text" | "bytes" as name):
            out.line(ind, f"if type({var}) is not {'str' if name == 'text' else 'bytes'}: raise Misfit")
            item = var
            if name == "text":
                item = out.fresh("h")
                out.line(ind, f"{item} = {var}.encode()")
            length = out.fresh("n")
            out.line(ind, f"{length} = len({item})")
            _write_reference(out, form, length, item, f"{length}", 1, at, ind)
        case Scalar(name="timestamp"):
            arg = out.fresh("a")
            out.line(ind, f"if type({var}) is DATETIME: {arg} = ({var} - EPOCH) // US")
            out.line(ind, f"elif type({var}) is int: {arg} = {var}")
            out.line(ind, "else: raise Misfit")
            out.line(ind, f"if not {TIMESTAMP_MIN} <= {arg} <= {TIMESTAMP_MAX}: raise Misfit")
            form.put(at, "q", size, arg)
        case Scalar(name=name):
            python = "bool" if name == "bool" else "float" if type.is_float else "int"
            also = f" and type({var}) is not int" if type.is_float else ""
            out.line(ind, f"if type({var}) is not {python}{also}: raise Misfit")
            form.put(at, CODES[name], size, var)
        case Enum(members=members):
            arg = out.fresh("a")
            codes = {member.name: code for member, (_, code) in zip(binding.members, members, strict=True)}
            by_name = out.constant(codes)
            known = out.constant(frozenset(codes.values()))
            out.line(ind, f"if type({var}) is {out.constant(binding.cls)}: {arg} = {by_name}[{var}._name_]")
            out.line(ind, f"elif type({var}) is int and {var} in {known}: {arg} = {var}")
            out.line(ind, "else: raise Misfit")
            form.put(at, "i", size, arg)
        case Record():
            _write_record(out, form, binding, var, at, ind)
        case Array(element=element, shape=shape):
            arg = out.fresh("a")
            if isinstance(element, Scalar) and is_plain(element):
                out.line(ind, f"{arg} = {out.constant(packer(element, shape))}({var})")
            else:
                elements = f"FLATTEN({var}, {shape!r})"
                _write_elements(out, binding.parts[0], elements, arg, ind)
            form.put(at, f"{size}s", size, arg)
        case List(element=element):
            _write_list(out, form, binding.parts[0], element, var, at, ind)


def _write_reference(
    out: _Source, form: _Format, length: str, item: str, size: str, align: int, at: int, ind: int
) -> None:
    """Lines that place `item` in the heap, and the slot that refers to it."""
    offset = out.fresh("o")
    out.line(ind, f"if {length}:")
    if align == 1:
        out.line(ind + 1, f"{offset} = pos")
    else:
        out.line(ind + 1, f"{offset} = (pos + {align - 1}) & -{align}")
        out.line(ind + 1, f"if {offset} != pos: tail.append(PAD[{offset} - pos])")
    out.line(ind + 1, f"pos = {offset} + {size}; tail.append({item})")
    out.line(ind, f"else: {offset} = 0")
    form.put(at, "I", 4, offset)
    form.put(at + 4, "I", 4, length)


def _write_list(out: _Source, form: _Format, part: Binding, element: Type, var: str, at: int, ind: int) -> None:
    step, align = stride(element), size_align(element)[1]
    length = out.fresh("n")
    if isinstance(element, Scalar) and is_plain(element):
        item = out.fresh("h")
        out.line(ind, f"{item} = {out.constant(packer(element, None))}({var})")
        out.line(ind, f"{length} = len({item}) // {step}")
        _write_reference(out, form, length, item, f"len({item})", align, at, ind)
        return
    out.line(ind, f"if type({var}) is not list and type({var}) is not tuple: raise Misfit")
    out.line(ind, f"{length} = len({var})")
    _write_reference(out, form, length, "b''", f"{length} * {step}", align, at, ind)
    # What the elements refer to comes after all of them, so their place in the tail is kept free.
    place, joined = out.fresh("p"), out.fresh("j")
    out.line(ind, f"if {length}:")
    out.line(ind + 1, f"{place} = len(tail) - 1")
    _write_elements(out, part, var, joined, ind + 1)
    out.line(ind + 1, f"tail[{place}] = {joined}")


def _write_elements(out: _Source, part: Binding, elements: str, result: str, ind: int) -> None:
    """A loop that packs each element and joins them all into `result`."""
    inner = _Format()
    each, parts = out.fresh("e"), out.fresh("l")
    out.line(ind, f"{parts} = []")
    out.line(ind, f"for {each} in {elements}:")
    _write(out, inner, part, each, 0, ind + 1)
    inner.pad_to(stride(part.type))
    pack = out.constant(struct.Struct(inner.text).pack)
    out.line(ind + 1, f"{parts}.append({pack}({', '.join(inner.args)}))")
    out.line(ind, f"{result} = b''.join({parts})")


# ── decode ──────────────────────────────────────────────────────────────────────────────────────────────


def decoder(binding: Binding, *, raw: bool) -> Callable[[bytes], Any]:
    """A function from bytes to an instance, or to the raw form; any exception means "look closer".

    It reads nothing outside the bytes and makes nothing larger than they justify: items of the heap must follow
    each other exactly as the encoder lays them, so no byte is read twice.
    """
    layout = Layout.of(binding.record)
    out, form = _Source(), _Format()
    form.put(0, "I", 4, "total")
    form.put(4, "12s", 12, "header")
    body = _Source()
    body.constants, body.counter = out.constants, out.counter
    body.line(1, f"if total != len(data) or header != {body.constant(layout.header)}: raise Misfit")
    body.line(1, f"pos = {layout.size}")
    result = _read(body, form, binding, 16, 1, raw)
    form.pad_to(layout.size)
    body.line(1, "if (pos + 7) & -8 != total: raise Misfit")
    body.line(1, f"return {result}")
    unpack = body.constant(struct.Struct(form.text).unpack_from)
    body.lines.insert(0, f" {', '.join(form.args)} = {unpack}(data)")
    return body.compile("def run(data):")


def _read(out: _Source, form: _Format, binding: Binding, at: int, ind: int, raw: bool) -> str:
    """Lines that check one slot; returns the expression of its value."""
    type = binding.type
    size, _ = size_align(type)
    match type:
        case Scalar(name="text" | "bytes" as name):
            start, end, arg = _read_reference(out, form, "1", 1, at, ind)
            out.line(ind, f"{arg} = data[{start}:{end}]" + (".decode()" if name == "text" else ""))
            return arg
        case Scalar(name="bool"):
            arg = out.fresh("a")
            form.put(at, "B", size, arg)
            out.line(ind, f"if {arg} > 1: raise Misfit")
            return f"{arg} == 1"
        case Scalar(name="timestamp"):
            arg = out.fresh("a")
            form.put(at, "q", size, arg)
            if not raw:
                return f"EPOCH + {arg} * US"
            out.line(ind, f"if not {TIMESTAMP_MIN} <= {arg} <= {TIMESTAMP_MAX}: raise Misfit")
            return arg
        case Scalar(name=name):
            arg = out.fresh("a")
            form.put(at, CODES[name], size, arg)
            return arg
        case Enum(members=members):
            arg = out.fresh("a")
            form.put(at, "i", size, arg)
            meaning = [code for _, code in members] if raw else list(binding.members)
            table = dict(zip((code for _, code in members), meaning, strict=True))
            return f"{out.constant(table)}[{arg}]"
        case Record():
            return _read_record(out, form, binding, at, ind, raw)
        case Array(element=element, shape=shape):
            block = out.fresh("a")
            form.put(at, f"{size}s", size, block)
            if isinstance(element, Scalar) and is_plain(element):
                flat = f"{out.constant(unpacker(element))}({block})"
            else:
                flat = _read_elements(out, binding.parts[0], block, ind, raw)
            return f"NEST({flat}, {shape!r})" if len(shape) > 1 else f"tuple({flat})"
        case List(element=element):
            step, align = stride(element), size_align(element)[1]
            start, end, block = _read_reference(out, form, str(step), align, at, ind)
            out.line(ind, f"{block} = data[{start}:{end}]")
            out.line(ind, f"if len({block}) != {end} - {start}: raise Misfit")
            if isinstance(element, Scalar) and is_plain(element):
                flat = f"{out.constant(unpacker(element))}({block})"
            else:
                flat = _read_elements(out, binding.parts[0], block, ind, raw)
            return flat if binding.cls is list and not raw else f"tuple({flat})"


def _read_reference(out: _Source, form: _Format, step: str, align: int, at: int, ind: int) -> tuple[str, str, str]:
    """Lines that check a reference and move `pos` past its item; the variables of start, end and item."""
    start, length, end, item = out.fresh("o"), out.fresh("n"), out.fresh("q"), out.fresh("h")
    form.put(at, "I", 4, start)
    form.put(at + 4, "I", 4, length)
    expected = "pos" if align == 1 else f"(pos + {align - 1}) & -{align}"
    out.line(ind, f"if {length}:")
    out.line(ind + 1, f"if {start} != {expected}: raise Misfit")
    out.line(ind + 1, f"pos = {end} = {start} + {length}" + ("" if step == "1" else f" * {step}"))
    out.line(ind, f"elif {start}: raise Misfit")
    out.line(ind, f"else: {end} = 0")
    return start, end, item


def _read_record(out: _Source, form: _Format, binding: Binding, at: int, ind: int, raw: bool) -> str:
    """The lines that read a record's fields, as Python; returned is the expression that makes the object."""
    record, level = binding.record, record_layout(binding.record)
    optional = sum(f.optional for f in record.fields)
    bitmaps = [out.fresh("m") for _ in range(level.bitmap_bytes)]
    for k, bitmap in enumerate(bitmaps):
        form.put(at + k, "B", 1, bitmap)
        if optional < 8 * (k + 1):
            out.line(ind, f"if {bitmap} > {(1 << optional - 8 * k) - 1}: raise Misfit")
    values = []
    for part, slot in zip(binding.parts, level.slots.values(), strict=True):
        if slot.bit is None:
            values.append(_read(out, form, part, at + slot.offset, ind, raw))
            continue
        value = out.fresh("v")
        out.line(ind, f"if {bitmaps[slot.bit // 8]} & {1 << slot.bit % 8}:")
        before, codes = len(form.args), len(form.text)
        expression = _read(out, form, part, at + slot.offset, ind + 1, raw)
        out.line(ind + 1, f"{value} = {expression}")
        zeros = _zeros(form.text[codes:], form.args[before:])
        set_bits = [arg if zero == "0" else f"{arg}.strip(b'\\0')" for arg, zero in zeros]
        out.line(ind, f"elif {' or '.join(set_bits)}: raise Misfit")
        out.line(ind, f"else: {value} = None")
        values.append(value)
    form.pad_to(at + level.size)
    if raw:
        names = [out.constant(f.name) for f in record.fields]
        return "{" + ", ".join(f"{n}: {v}" for n, v in zip(names, values, strict=True)) + "}"
    return f"{out.constant(binding.constructor)}({', '.join(values)})"


def _read_elements(out: _Source, part: Binding, block: str, ind: int, raw: bool) -> str:
    """A loop over the elements in `block`; returns the variable of their list."""
    inner, body = _Format(), _Source()
    body.constants, body.counter = out.constants, out.counter
    items = body.fresh("l")
    value = _read(body, inner, part, 0, ind + 1, raw)
    inner.pad_to(align_up(*size_align(part.type)))
    unpack = body.constant(struct.Struct(inner.text).iter_unpack)
    out.counter = body.counter
    out.line(ind, f"{items} = []")
    out.line(ind, f"for {', '.join(inner.args)}, in {unpack}({block}):")
    out.lines.extend(body.lines)
    out.line(ind + 1, f"{items}.append({value})")
    return items
