"""From the stages of passed rows to the columns of the output type."""

from __future__ import annotations

import ctypes
from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np, pa
from headwater.native.codegen.batch_reader import Buffers
from headwater.native.codegen.stage_writer import Node, Stage, is_pending
from headwater.native.emit import is_text
from headwater.native.kernels.runtime import runtime
from headwater.native.once import once
from headwater.types.arrow import arrow_type
from headwater.types.buffers import numpy_dtype
from headwater.types.layout import stride
from headwater.types.model import BOOL, TEXT, TIMESTAMP, Array, Enum, List, Record, Scalar, Type


@once
def _kernels() -> tuple[Any, Any]:
    code, word, ptr = runtime(), ctypes.c_int64, ctypes.c_void_p
    kind: Any = ctypes.CFUNCTYPE(word, ptr, word, word, ptr)
    return kind(code["hw_text_offsets"]), kind(code["hw_text_gather"])


def output_columns(plan: Stage, stages: Any, buffers: Buffers) -> list[Any]:
    """One Arrow array for each output field; `stages` has a row of bytes for each passed row."""
    it = _Columns(plan, stages, buffers)
    return [it.column(node, None) for node in plan.nodes]


class _Columns:
    def __init__(self, plan: Stage, stages: Any, buffers: Buffers) -> None:
        self.plan, self.stages, self.buffers = plan, stages, buffers
        self.count = len(stages)

    def column(self, node: Node, within: Any) -> Any:
        there = self.stages[:, node.flag] != 0
        there = there if within is None else there & within
        if is_text(node.type):
            return self.texts(node, there)
        if is_pending(node.type):
            return self.copies(node, there)
        type = arrow_type(node.type)
        if isinstance(node.type, Record):
            children = [self.column(child, there) for child in node.children]
            return pa.Array.from_buffers(type, self.count, [_bitmap(there)], children=children)
        cells = self.stages[:, node.offset : node.offset + node.size].copy()  # the stages are used again
        if isinstance(node.type, Array):
            values = _values(node.type.element, cells.reshape(-1), None)
            return _nested(node.type, type, values, self.count, _bitmap(there))
        return _values(node.type, cells.reshape(-1), there)

    def words(self, node: Node, word: int) -> Any:
        at = node.ref + 8 * word
        return self.stages[:, at : at + 8].view(np.int64)[:, 0]

    def texts(self, node: Node, there: Any) -> Any:
        """Texts are still where they came from; they are copied once, here."""
        offsets_of, gather = _kernels()
        self.words(node, 1)[~there] = -1
        base, step = self.stages.ctypes.data + node.ref, self.stages.strides[0]
        offsets = np.empty(self.count + 1, np.int32)
        total = offsets_of(base, step, self.count, offsets.ctypes.data)
        if total < 0:
            raise ExecutionError(
                f"output field {node.name!r}: expected at most 2 GiB of text in a batch; split the batch"
            )
        data = np.empty(max(1, total), np.uint8)
        gather(base, step, self.count, data.ctypes.data)
        parts = [_bitmap(there), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(arrow_type(node.type), self.count, parts)

    def copies(self, node: Node, there: Any) -> Any:
        """Lists, and arrays with texts or records, taken whole from the input."""
        index, source = self.words(node, 0), self.words(node, 1)
        used = np.unique(source[there])
        if len(used) == 0:
            return pa.nulls(self.count, arrow_type(node.type))
        parts, start = [], 0
        at = np.zeros(self.count, np.int64)
        for number in used:
            array = self.buffers.array(self.buffers.plan.sources[number])[0]
            chosen = there & (source == number)
            at[chosen] = index[chosen] + start
            start += len(array)
            parts.append(array)
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        taken = whole.take(pa.array(at, mask=~there))
        return taken if taken.type == arrow_type(node.type) else taken.cast(arrow_type(node.type))


def _bitmap(there: Any) -> Any:
    return None if there is None or there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))


def _values(type: Type, cells: Any, there: Any) -> Any:
    """An array of fixed-size values from their bytes as a record has them."""
    bitmap = _bitmap(there)
    if isinstance(type, Enum):
        codes = cells.view(np.int32)
        ordered = sorted((code, i) for i, (_, code) in enumerate(type.members))
        positions = np.array([i for _, i in ordered], np.int32)
        found = np.minimum(np.searchsorted([code for code, _ in ordered], codes), len(ordered) - 1)
        indices = pa.Array.from_buffers(pa.int32(), len(codes), [bitmap, pa.py_buffer(positions[found])])
        return pa.DictionaryArray.from_arrays(indices, pa.array([name for name, _ in type.members], pa.utf8()))
    assert isinstance(type, Scalar) and len(cells) % stride(type) == 0
    count = len(cells) // stride(type)
    if type == BOOL:
        data = np.packbits(cells, bitorder="little")
    else:
        data = cells.view(numpy_dtype(type))
    return pa.Array.from_buffers(arrow_type(type), count, [bitmap, pa.py_buffer(data)])


def _nested(array: Array, type: Any, values: Any, count: int, bitmap: Any) -> Any:
    """Fixed-size lists, one within the other for each dimension."""
    if len(array.shape) > 1:
        inner = Array(array.element, array.shape[1:])
        values = _nested(inner, type.value_type, values, count * array.shape[0], None)
    return pa.Array.from_buffers(type, count, [bitmap], children=[values])


# ── what came from malformed input ──


def malformed_rows(record: Record, batch: Any) -> Any:
    """Which rows hold times in no year or texts that are no UTF-8, as a mask; None if none does."""
    found = None
    for field in record.fields:
        bad = _malformed(field.type, batch.column(batch.schema.get_field_index(field.name)))
        if bad is not None:
            found = bad if found is None else found | bad
    return found


def _malformed(type: Type, array: Any) -> Any:
    match type:
        case Scalar() if type == TIMESTAMP:
            return _some(_untimely(array))
        case Scalar() if type == TEXT:
            return _some(_not_utf8(array))
        case Record(fields=fields):
            parts = [_malformed(field.type, array.field(field.name)) for field in fields]
            parts = [part for part in parts if part is not None]
            return _some(np.logical_or.reduce(parts) & _there(array)) if parts else None
        case Array(element=element, shape=shape):
            inner = _malformed(Array(element, shape[1:]) if len(shape) > 1 else element, _items(array, shape[0]))
            return None if inner is None else _some(inner.reshape(-1, shape[0]).any(axis=1) & _there(array))
        case List(element=element):
            return _malformed_lists(element, array)
    return None


def _malformed_lists(element: Type, array: Any) -> Any:
    inner = _malformed(element, array.values)
    if inner is None:
        return None
    before = np.concatenate(([0], np.cumsum(inner)))
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    return _some((before[offsets[1:]] > before[offsets[:-1]]) & _there(array))


def _items(array: Any, size: int) -> Any:
    return array.values.slice(array.offset * size, len(array) * size)


def _there(array: Any) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _some(mask: Any) -> Any:
    return mask if mask is not None and mask.any() else None


def _untimely(array: Any) -> Any:
    if not len(array):
        return None
    micros = np.frombuffer(array.buffers()[1], np.int64, len(array), 8 * array.offset)
    least, greatest = TIMESTAMP.range
    outside = (micros < least) | (micros > greatest)
    return outside & _there(array) if outside.any() else None


def _not_utf8(array: Any) -> Any:
    """One look at all texts; only where that fails, one at each."""
    try:
        array.validate(full=True)
        return None
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(item) for item in array.view(pa.binary())])


def _is_utf8(item: Any) -> bool:
    if not item.is_valid:
        return True
    try:
        item.as_buffer().to_pybytes().decode()
    except UnicodeDecodeError:
        return False
    return True
