"""Reading fields from the Arrow buffers of a batch.

Generated code asks for *words* (addresses and bit offsets) by node and kind; `Buffers` fills them in for each batch. A
node is a path of field names with "[]" for the elements of an array or list. Bitmaps of nodes that have one value per
row are expanded to bytes for each block of rows beforehand, so that the loop over rows needs no bit operations.

What is not there may be read all the same: its index is 0 then, and an empty child array is replaced by zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import ExecutionError
from headwater.ir.nodes import META_TYPES
from headwater.late import np, pa
from headwater.native.codegen.record_reader import load_slot
from headwater.native.emit import Val, is_text
from headwater.native.kernels.batch import BLOCK
from headwater.types.model import BOOL, I32, Array, Enum, List, Record, Type

if TYPE_CHECKING:
    from headwater.native.codegen.expr import Exprs
    from headwater.native.emit import Fn

Node = tuple[str, ...]
ELEMENTS = "[]"
META = "\0meta"  # no field has this name


@dataclass(frozen=True, slots=True)
class Cursor:
    """A value of a node: its index, and whether that is the row's."""

    node: Node
    at: str
    row: bool


@dataclass(frozen=True)
class Plan:
    """What generated code expects: words by node and kind, bitmaps to expand, sources of whole copies."""

    words: tuple[tuple[Node, str], ...]
    expand: tuple[tuple[Node, str], ...]
    sources: tuple[Node, ...]
    types: dict[Node, Type]


class BatchReader:
    """Reads fields of the current row from the buffers of an Arrow batch. What it needs of the batch is a list of words
    (`Plan`), which `Buffers` fills for each batch."""

    wild = False

    def __init__(self, fn: Fn, record: Record) -> None:
        self.fn, self.record = fn, record
        self.words: dict[tuple[Node, str], str] = {}
        self.expand: dict[tuple[Node, str], int] = {}
        self.sources: list[Node] = []
        self.types: dict[Node, Type] = {}
        self.i = self.row = ""  # of the current row: in its block, in the batch

    def plan(self) -> Plan:
        return Plan(tuple(self.words), tuple(self.expand), tuple(self.sources), dict(self.types))

    def word(self, node: Node, kind: str, type: str = "ptr") -> str:
        """A word of the batch, read once before the loop over rows."""
        name = self.words.get((node, kind))
        if name is None:
            at = len(self.words)
            ptr = self.fn.first(f"getelementptr i64, ptr %cols, i64 {at}")
            name = self.words[(node, kind)] = self.fn.first(f"load {type}, ptr {ptr}, align 8")
        return name

    def byte(self, node: Node, kind: str) -> str:
        """A bit of the row's bitmap, expanded beforehand."""
        at = self.expand.setdefault((node, kind), len(self.expand))
        base = self.fn.gep("%scratch", at * BLOCK)
        return self.fn.v(f"icmp ne i8 {self.fn.load('i8', self.fn.gep(base, self.i))}, 0")

    def bit(self, node: Node, kind: str, at: str) -> str:
        """A bit anywhere; a bitmap that is not there is all ones."""
        fn = self.fn
        bitmap, shift = self.word(node, kind), self.word(node, kind + " offset", "i64")
        ones = fn.module.constant("[8 x i8] [i8 -1, i8 -1, i8 -1, i8 -1, i8 -1, i8 -1, i8 -1, i8 -1]")
        none = fn.v(f"icmp eq ptr {bitmap}, null")
        base = fn.select(none, "ptr", ones, bitmap)
        where = fn.select(none, "i64", "0", fn.v(f"add i64 {at}, {shift}"))
        byte = fn.load("i8", fn.gep(base, fn.v(f"lshr i64 {where}, 3")))
        by = fn.v(f"trunc i64 {fn.v(f'and i64 {where}, 7')} to i8")
        return fn.v(f"trunc i8 {fn.v(f'lshr i8 {byte}, {by}')} to i1")

    # ── paths ──

    def root(self) -> Cursor:
        return Cursor((), self.row, True)

    def field(self, g: Exprs, cursor: Cursor, record: Record, name: str) -> tuple[Cursor, str | None]:
        field, node = record.by_name[name], (*cursor.node, name)
        self.types[node] = field.type
        present = None
        if field.optional:
            present = self.byte(node, "valid") if cursor.row else self.bit(node, "valid", cursor.at)
        return Cursor(node, cursor.at, cursor.row), present

    def item(self, g: Exprs, cursor: Cursor, array: Array, at: str) -> Cursor:
        node = (*cursor.node, ELEMENTS)
        self.types[node] = Array(array.element, array.shape[1:]) if len(array.shape) > 1 else array.element
        start = self.fn.v(f"mul i64 {cursor.at}, {array.shape[0]}")
        return Cursor(node, self.fn.v(f"add i64 {start}, {at}"), False)

    def flat_item(self, g: Exprs, cursor: Cursor, array: Array, at: str) -> Cursor:
        node = cursor.node + (ELEMENTS,) * len(array.shape)
        self.types[node] = array.element
        start = self.fn.v(f"mul i64 {cursor.at}, {array.count}")
        return Cursor(node, self.fn.v(f"add i64 {start}, {at}"), False)

    def list(self, g: Exprs, cursor: Cursor, type: List, ok: str | None) -> tuple[Cursor, str, str | None]:
        start, end = self.offsets(cursor)
        node = (*cursor.node, ELEMENTS)
        self.types[node] = type.element
        return Cursor(node, start, False), self.fn.v(f"sub i64 {end}, {start}"), ok

    def list_item(self, g: Exprs, start: Cursor, type: List, at: str, ok: str | None) -> Cursor:
        index = self.fn.v(f"add i64 {start.at}, {at}")
        return Cursor(start.node, index if ok is None else self.fn.select(ok, "i64", index, "0"), False)

    def offsets(self, cursor: Cursor) -> tuple[str, str]:
        fn = self.fn
        start = fn.at_index("i32", self.word(cursor.node, "offsets"), cursor.at)
        ends = (fn.load("i32", start, 4), fn.load("i32", fn.gep(start, 4), 4))
        first, second = (fn.v(f"sext i32 {x} to i64") for x in ends)
        return first, second

    # ── values ──

    def scalar(self, g: Exprs, cursor: Cursor, stored: Type, ok: str | None) -> Val:
        fn, node = self.fn, cursor.node
        if stored == BOOL:
            return Val(self.byte(node, "bits") if cursor.row else self.bit(node, "bits", cursor.at), ok)
        if is_text(stored):
            start, end = self.offsets(cursor)
            text = fn.gep(self.word(node, "data"), start)
            return Val(text, ok, fn.v(f"sub i64 {end}, {start}"))
        data = self.word(node, "data")
        if isinstance(stored, Enum):
            index = load_slot(fn, fn.at_index("i32", data, cursor.at), I32)
            inside = fn.v(f"icmp ult i64 {index}, {self.word(node, 'members', 'i64')}")  # under null it may be anything
            codes = fn.at_index("i64", self.word(node, "codes"), fn.select(inside, "i64", index, "0"))
            return Val(fn.load("i64", codes, 8), ok)
        width = {"f32": "float", "f64": "double"}.get(str(stored), f"i{_bits(stored)}")
        return Val(load_slot(fn, fn.at_index(width, data, cursor.at), stored), ok)

    def handle(self, g: Exprs, cursor: Cursor, type: Type, ok: str | None) -> tuple[str, str, str | None]:
        """What a whole copy needs later: the index and which node it came from."""
        if cursor.node not in self.sources:
            self.sources.append(cursor.node)
        return cursor.at, str(self.sources.index(cursor.node)), ok

    def meta(self, name: str) -> Val:
        type, node = META_TYPES[name], (META, name)
        self.types[node] = type
        there = self.byte(node, "valid")
        value: Val = self.scalar(None, Cursor(node, self.row, True), type, there)  # type: ignore[arg-type]
        return value


def _bits(stored: Type) -> int:
    return 64 if str(stored) == "timestamp" else int(str(stored)[1:])


# ── the Python side ──


def check_buffers(batch: Any) -> None:
    """Cheap: buffers are as long as they must be, and the first and last offsets lie inside."""
    try:
        batch.validate()
    except pa.ArrowInvalid as error:
        raise ExecutionError(f"expected a valid RecordBatch, found: {error}") from None


def _checked(array: Any) -> Any:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ExecutionError(f"expected a valid array, found: {error}") from None
    return array


def _followable(array: Any) -> None:
    """Every offset within lies inside; texts may be anything, of which the output of its row will tell."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        _checked(array.view(_untexted(array.type)))


def _untexted(type: Any) -> Any:
    """The type with bytes in the place of texts."""
    if pa.types.is_string(type):
        return pa.binary()
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_untexted(field.type)) for field in type])
    if pa.types.is_fixed_size_list(type):
        return pa.list_(type.value_field.with_type(_untexted(type.value_type)), type.list_size)
    return pa.list_(type.value_field.with_type(_untexted(type.value_type))) if pa.types.is_list(type) else type


def check_offsets(buffer: Any, start: int, count: int, node: Node) -> None:
    """With the ends checked, offsets that never go down all lie inside: native code follows them as they are."""
    offsets = np.frombuffer(buffer, np.int32, count + 1, 4 * start)
    down = offsets[1:] < offsets[:-1]
    if down.any():
        at = int(np.argmax(down))
        found = f"{offsets[at]} before {offsets[at + 1]} at value {at}"
        raise ExecutionError(f"{'.'.join(node)}: expected offsets that never go down, found {found}")


def misses_required(plan: Plan, columns: dict[str, Any]) -> bool:
    """Whether a nested value that may not be missing might be: only a closer look can tell."""
    nested = [node for node in plan.types if len(node) > 1 and node[0] != META]
    if not nested:
        return False
    buffers = Buffers(Plan((), (), (), plan.types), columns)
    for node in nested:
        parent = plan.types.get(node[:-1])
        optional = isinstance(parent, Record) and parent.by_name[node[-1]].optional
        if not optional and buffers.array(node)[0].null_count:
            return True
    return False


class Buffers:
    """The words of one batch for one plan, and everything that must live as long as they are used."""

    def __init__(self, plan: Plan, columns: dict[str, Any]) -> None:
        self.plan, self.columns = plan, columns
        self.kept: list[Any] = []
        self._arrays: dict[Node, tuple[Any, int]] = {}
        words = [self._word(node, kind) for node, kind in plan.words]
        self.words = np.array(words or [0], np.uint64)
        expand: list[int] = []
        for node, kind in plan.expand:
            expand += [self._word(node, kind), self._word(node, kind + " offset")]
        self.expand = np.array(expand or [0], np.uint64)
        for node in plan.sources:
            _followable(self.array(node)[0])  # Arrow copies from it, and trusts every offset

    def array(self, node: Node) -> tuple[Any, int]:
        """The values of a node, and how many of them one index of an empty one may reach."""
        found = self._arrays.get(node)
        if found is None:
            found = self._arrays[node] = self._find(node)
        return found

    def _find(self, node: Node) -> tuple[Any, int]:
        if node[:-1] == () or node[0] == META:
            return self.columns[node[-1] if node[0] != META else META + node[1]], 1
        parent, reach = self.array(node[:-1])
        if node[-1] != ELEMENTS:
            return parent.field(node[-1]), reach
        kind = parent.type
        if hasattr(kind, "list_size"):
            size = kind.list_size
            return parent.values.slice(parent.offset * size, len(parent) * size), reach * size
        return parent.values, 1

    def _word(self, node: Node, kind: str) -> int:
        """One word of the plan: an address, offset or count in the buffers of a column. A column of no rows may have no
        buffers."""
        array, reach = self.array(node)
        stored = self.plan.types[node]
        if isinstance(stored, Enum) and kind in ("members", "codes"):
            return self._codes(array.dictionary, stored, kind)
        if hasattr(array, "indices") and kind != "valid" and kind != "valid offset":
            array = array.indices
        empty = len(array) == 0
        buffers = array.buffers()
        match kind:
            case "valid":
                return 0 if empty or buffers[0] is None or array.null_count == 0 else int(buffers[0].address)
            case "valid offset" | "bits offset":
                return 0 if empty else int(array.offset)
            case "bits":
                return self._zeros(reach) if empty else int(buffers[1].address)
            case "offsets":
                if empty:
                    return self._zeros(reach + 1)
                check_offsets(buffers[1], array.offset, len(array), node)
                return int(buffers[1].address + 4 * array.offset)
        if is_text(stored):
            missing = empty or buffers[2] is None
            return self._zeros(1) if missing else int(buffers[2].address)
        if empty or buffers[1] is None:
            return self._zeros(max(reach, len(array)))
        return int(buffers[1].address + array.type.bit_width // 8 * array.offset)

    def _zeros(self, count: int) -> int:
        block = np.zeros(count + 8, np.uint64)
        self.kept.append(block)
        return int(block.ctypes.data)

    def _codes(self, dictionary: Any, type: Enum, kind: str) -> int:
        """From an index to a member's code, whatever order the dictionary has its names in."""
        if kind == "members":
            return max(1, len(dictionary))
        names = _checked(dictionary).to_pylist()
        codes = dict(type.members)
        unknown = [name for name in names if name not in codes]
        if unknown:
            raise ExecutionError(f"enumeration {type.name}: expected one of {', '.join(codes)}, found {unknown[0]!r}")
        block = np.array([codes[name] for name in names] or [0], np.int64)
        self.kept.append(block)
        return int(block.ctypes.data)
