"""Bringing an Arrow batch to an event type's schema: by name, without loss, and without a copy where it fits.

First the types are compared, and every column that cannot fit is listed in one `EvolutionError`; then the values
are cast, and the first that would be lost, or is missing where it must not be, is an `EncodeError` with its row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from headwater.errors import EncodeError, EvolutionError
from headwater.late import np, pa, pc
from headwater.types.arrow import arrow_schema, arrow_type, compact, is_binary, is_list, is_text
from headwater.types.model import Array, Enum, List, Record, Scalar, Type

Rows = Callable[[], Any]  # the batch's row number of each value, computed only for a message


def conform(record: Record, data: Any, *, check: bool = False) -> Any:
    """A RecordBatch with exactly the record's schema, from a RecordBatch, a Table, or anything with Arrow's C stream
    or C array interface (a polars frame, a reader). Further columns are left out.

    Sizes of buffers are always checked, and all of what has to be cast; `check` looks at every offset, index and
    text of the rest too.
    """
    data = _one_batch(data)
    _validate(data, "", full=check)
    schema = arrow_schema(record)
    present = _present(record)
    if present is not None and data.schema.equals(schema, check_metadata=True):
        column = data.column
        if not any(column(at).null_count for at in present):
            return data
    problems: list[str] = []
    names = data.schema.names
    _compare_fields(record, {n: data.schema.field(i).type for i, n in enumerate(names)}, "", problems)
    problems.extend(f"{n}: the column appears twice" for n in record.by_name if names.count(n) > 1)
    if problems:
        raise EvolutionError(f"these columns do not fit the event type {record.name}", problems)
    given = [data.column(f.name) if f.name in names else None for f in record.fields]
    columns = [
        _column(column, data.num_rows, f.type, f.optional, f.name)
        for column, f in zip(given, record.fields, strict=True)
    ]
    same = all(made is column for made, column in zip(columns, given, strict=True))
    if same and data.schema.equals(schema, check_metadata=True):
        return data
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@lru_cache(maxsize=1024)
def _present(record: Record) -> tuple[int, ...] | None:
    """Columns that must not have nulls, if nothing else is to be checked once their types are right; else None."""
    if not all(isinstance(field.type, Scalar) for field in record.fields):
        return None
    return tuple(at for at, field in enumerate(record.fields) if not field.optional)


def _validate(data: Any, path: str, *, full: bool) -> None:
    try:
        data.validate(full=full)
    except pa.ArrowInvalid as error:
        raise EncodeError(path, f"expected valid Arrow data, found: {error}") from None


def _one_batch(data: Any) -> Any:
    if isinstance(data, pa.RecordBatch):
        return data
    if not isinstance(data, pa.Table):
        if hasattr(data, "__arrow_c_stream__"):
            data = pa.RecordBatchReader.from_stream(data).read_all()
        elif hasattr(data, "__arrow_c_array__"):
            return pa.record_batch(data)
    if not isinstance(data, pa.Table):
        raise TypeError(f"expected a pyarrow RecordBatch or Table, found {type(data).__name__}; a frame would do too")
    batches = data.combine_chunks().to_batches()
    if len(batches) > 1:  # 32-bit offsets reach no further
        raise EncodeError("", "expected at most 2 GiB of text or bytes in a column, found more; split the table")
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in data.schema], schema=data.schema)


def _compare_fields(record: Record, found: dict[str, Any], path: str, problems: list[str]) -> None:
    for field in record.fields:
        where = f"{path}.{field.name}" if path else field.name
        if field.name in found:
            _compare(field.type, found[field.name], where, problems)
        elif not field.optional:
            problems.append(f"{where}: expected {arrow_type(field.type)}, found no such column")


def _compare(type: Type, found: Any, path: str, problems: list[str]) -> None:
    """A line in `problems` for each part of an Arrow type that this type cannot be filled from."""
    kinds = pa.types
    found = _storage(found)
    if kinds.is_null(found):
        return
    match type:
        case Array(element=element, shape=shape) if kinds.is_fixed_size_list(found) or is_list(found):
            if kinds.is_fixed_size_list(found) and found.list_size != shape[0]:
                problems.append(f"{path}: expected {shape[0]} elements for {type}, found {found.list_size}")
                return
            inner = Array(element, shape[1:]) if len(shape) > 1 else element
            _compare(inner, found.value_type, f"{path}[]", problems)
        case List(element=element) if kinds.is_fixed_size_list(found) or is_list(found):
            _compare(element, found.value_type, f"{path}[]", problems)
        case Record() if kinds.is_struct(found):
            children = {found.field(i).name: found.field(i).type for i in range(found.num_fields)}
            _compare_fields(type, children, path, problems)
        case Enum() if is_text(found):
            pass
        case Scalar() if _scalar_fits(type, found):
            pass
        case _:
            problems.append(f"{path}: expected {arrow_type(type)} for {type}, found {found}")


def _storage(found: Any) -> Any:
    if isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    return found.value_type if pa.types.is_dictionary(found) else found


def _scalar_fits(type: Scalar, found: Any) -> bool:
    kinds = pa.types
    match type.name:
        case "bool":
            return bool(kinds.is_boolean(found))
        case "text":
            return is_text(found)
        case "bytes":
            return is_binary(found)
        case "timestamp":
            return bool(kinds.is_timestamp(found))
        case _:
            return bool(kinds.is_integer(found) or kinds.is_floating(found))


def _column(column: Any, count: int, type: Type, optional: bool, path: str) -> Any:
    if column is None:
        return _nulls(count, type)
    return _values(column, type, optional, path, lambda: np.arange(count))


def _nulls(count: int, type: Type) -> Any:
    if isinstance(type, Enum):
        return _dictionary(pa.nulls(count, pa.int32()), type)
    if isinstance(type, Record | Array):
        return _masked(_blanks(count, type), np.ones(count, bool))
    return pa.nulls(count, arrow_type(type))


def _masked(array: Any, missing: Any) -> Any:
    """Records or fixed arrays, those that are missing null. Nothing within them becomes null, because Parquet's writer
    looks there too, and finds a null that the type does not have."""
    if pa.types.is_struct(array.type):
        children = [array.field(i) for i in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=pa.array(missing))
    return pa.FixedSizeListArray.from_arrays(array.values, type=array.type, mask=pa.array(missing))


def _blanks(count: int, type: Type) -> Any:
    """Values that nobody looks at, without nulls where the type has none."""
    target = arrow_type(type)
    match type:
        case Enum():
            return _dictionary(pa.array(np.zeros(count, np.int32)), type)
        case Record(fields=fields):
            made = [_nulls(count, f.type) if f.optional else _blanks(count, f.type) for f in fields]
            return pa.StructArray.from_arrays(made, fields=list(target))
        case Array(element=element, shape=shape):
            inner = Array(element, shape[1:]) if len(shape) > 1 else element
            return pa.FixedSizeListArray.from_arrays(_blanks(count * shape[0], inner), type=target)
        case List():
            return pa.array([[]], target).take(pa.array(np.zeros(count, np.int64)))
        case Scalar(name="text" | "bytes" as name):
            return pa.repeat(pa.scalar("" if name == "text" else b"", target), count)
    return pa.array(np.zeros(count, np.int64)).cast(target)


def _values(array: Any, type: Type, optional: bool, path: str, rows: Rows) -> Any:
    """The array as this type; the same object if it is so already."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count or array.type != arrow_type(type):
        _validate(array, path, full=True)  # Arrow's functions trust what they are given
    if pa.types.is_dictionary(array.type) and not _is_enum_array(array, type):
        array = _no_views(array.dictionary).take(array.indices)
    array = _no_views(array)
    if pa.types.is_null(array.type):
        if len(array) and not optional:
            raise _missing(array, path, rows)
        return _nulls(len(array), type)
    if not array.null_count:
        return _dense(array, type, path, rows)
    if not optional:
        raise _missing(array, path, rows)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    dense = compact(array).drop_null()
    made = _dense(dense, type, path, lambda: rows()[valid])
    if made is dense or (not len(dense) and array.type == arrow_type(type)):
        return array
    positions = np.cumsum(valid) - 1
    if isinstance(type, Record | Array):
        if not len(dense):
            return _nulls(len(array), type)
        return _masked(compact(made).take(pa.array(np.maximum(positions, 0))), ~valid)
    return compact(made).take(pa.array(positions, mask=~valid))


def _no_views(array: Any) -> Any:
    """Most of Arrow's functions do not know the view types."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.utf8())
    return array.cast(pa.binary()) if pa.types.is_binary_view(array.type) else array


def _missing(array: Any, path: str, rows: Rows) -> EncodeError:
    first = pc.index(array.is_null(), True).as_py()
    return EncodeError(path, f"row {rows()[first]} is null, but the field is not optional")


def _dense(array: Any, type: Type, path: str, rows: Rows) -> Any:
    """As `_values`, for an array without nulls at this level."""
    match type:
        case Scalar():
            return _scalars(array, type, path, rows)
        case Enum():
            return _enums(array, type, path, rows)
        case Record():
            return _structs(array, type, path, rows)
        case Array(element=element, shape=shape):
            inner: Type = Array(element, shape[1:]) if len(shape) > 1 else element
            return _lists(array, type, inner, shape[0], path, rows)
        case List(element=element):
            return _lists(array, type, element, None, path, rows)


def _scalars(array: Any, type: Scalar, path: str, rows: Rows) -> Any:
    """A column of scalars as its type stores it; EncodeError, with the row, where that would lose something."""
    target = arrow_type(type)
    made = array
    if array.type != target:
        try:
            made = array.cast(target)
        except pa.ArrowInvalid as error:
            raise EncodeError(path, f"cannot become {target} without loss: {error}") from None
        if type.name == "f32" and array.type == pa.float64():
            before, after = array.to_numpy(), made.to_numpy()
            lost = (after.astype(np.float64) != before) & ~np.isnan(before)
            if lost.any():
                at = int(np.argmax(lost))
                raise EncodeError(
                    path, f"row {rows()[at]}: {before[at]!r} is no exact float of 32 bits; cast the column first"
                )
    if type.name == "timestamp" and len(made):
        micros = made.cast(pa.int64()).to_numpy()
        low, high = type.range
        outside = (micros < low) | (micros > high)
        if outside.any():
            at = int(np.argmax(outside))
            raise EncodeError(path, f"row {rows()[at]}: expected a time in the years 1 to 9999, found {micros[at]} µs")
    return made


def _is_enum_array(array: Any, type: Type) -> bool:
    if not isinstance(type, Enum) or array.type != arrow_type(type):
        return False
    return bool(array.dictionary.equals(_names(type)))


def _names(type: Enum) -> Any:
    return pa.array([name for name, _ in type.members], pa.utf8())


def _dictionary(indices: Any, type: Enum) -> Any:
    return pa.DictionaryArray.from_arrays(indices, _names(type))


def _enums(array: Any, type: Enum, path: str, rows: Rows) -> Any:
    if pa.types.is_dictionary(array.type):
        return array
    names = array.cast(pa.utf8())
    indices = pc.index_in(names, value_set=_names(type))
    if indices.null_count:
        at = pc.index(indices.is_null(), True).as_py()
        members = ", ".join(name for name, _ in type.members)
        found = names[at].as_py()
        raise EncodeError(path, f"row {rows()[at]}: expected a member of {type.name} ({members}), found {found!r}")
    return _dictionary(indices, type)


def _structs(array: Any, type: Record, path: str, rows: Rows) -> Any:
    count = len(array)
    children = array.flatten()
    by_name = {array.type.field(i).name: children[i] for i in range(array.type.num_fields)}
    made, same = [], array.type == arrow_type(type)
    for field in type.fields:
        where = f"{path}.{field.name}"
        child = by_name.get(field.name)
        if child is None:
            made.append(_nulls(count, field.type))
        else:
            made.append(_values(child, field.type, field.optional, where, rows))
        same = same and made[-1] is child
    if same:
        return array
    fields = [arrow_type(type).field(i) for i in range(len(type.fields))]
    return pa.StructArray.from_arrays(made, fields=fields)


def _lists(array: Any, type: Type, inner: Type, size: int | None, path: str, rows: Rows) -> Any:
    target = arrow_type(type)
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    if size is not None and not pa.types.is_fixed_size_list(array.type) and (lengths != size).any():
        at = int(np.argmax(lengths != size))
        raise EncodeError(path, f"row {rows()[at]}: expected {size} elements for {type}, found {lengths[at]}")
    items = array.flatten()
    made = _values(items, inner, False, f"{path}[]", lambda: np.repeat(rows(), lengths))
    if made is items and array.type == target:
        return array
    if size is not None:
        return pa.FixedSizeListArray.from_arrays(made, type=target)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise EncodeError(path, "the batch has more than 2³¹ elements in this list; split it")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), made, type=target)
