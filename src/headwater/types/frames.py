"""Event types and pandas.

Optional numbers and bools become pandas' nullable dtypes, so that nothing is lost on the way there and back: a
missing value is `<NA>`, and a NaN stays a NaN.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import EncodeError, EvolutionError
from headwater.extras import require
from headwater.late import pa
from headwater.types.arrow import arrow_type
from headwater.types.buffers import is_plain
from headwater.types.conform import conform
from headwater.types.model import Array, Enum, List, Record, Scalar, Type, describe

_NULLABLE = {
    "bool": "BooleanDtype",
    **{f"i{bits}": f"Int{bits}Dtype" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"UInt{bits}Dtype" for bits in (8, 16, 32, 64)},
    "f32": "Float32Dtype",
    "f64": "Float64Dtype",
}


def batch_to_frame(record: Record, batch: Any) -> Any:
    """A pandas DataFrame of a batch that conforms to the record's schema."""
    require("pandas", "a DataFrame of events")
    import pandas as pd

    columns = {}
    for field, column in zip(record.fields, batch.columns, strict=True):
        kind = _NULLABLE.get(str(field.type)) if isinstance(field.type, Scalar) else None
        if field.optional and kind is not None:
            series = pd.Series(getattr(pd, kind)().__from_arrow__(column))
        elif isinstance(field.type, Scalar | Enum) or _is_numbers(field.type):
            series = column.to_pandas()
        else:
            # What is nested stays Python's own: numpy would merge missing with NaN and round large integers.
            series = pd.Series(column.to_pylist(), dtype=object)
        columns[field.name] = series
    return pd.DataFrame(columns, columns=list(columns), index=range(batch.num_rows))


def _is_numbers(type: Type) -> bool:
    """Whether a cell is a numpy array of numbers."""
    return isinstance(type, Array | List) and is_plain(type.element)


def is_pandas(data: Any) -> bool:
    """Whether this is a DataFrame of pandas; asks without importing it."""
    return any(cls.__module__.partition(".")[0] == "pandas" for cls in type(data).__mro__) and hasattr(data, "columns")


def is_columns(data: Any) -> bool:
    """Whether these are columns (`conform` takes them) rather than events one by one."""
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__") or is_pandas(data)


def frame_to_batch(record: Record, frame: Any) -> Any:
    """A RecordBatch of the record's schema from a DataFrame with its columns."""
    twice = [f"{name}: the column appears twice" for name in record.by_name if list(frame.columns).count(name) > 1]
    if twice:
        raise EvolutionError(f"these columns do not fit the event type {record.name}", twice)
    arrays, names = [], []
    for field in record.fields:
        if field.name in frame.columns:
            names.append(field.name)
            try:
                arrays.append(_array(field.type, field.optional, frame[field.name]))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise EncodeError(field.name, f"expected a column for {describe(field.type)}: {error}") from None
    return conform(record, pa.RecordBatch.from_arrays(arrays, names=names))


def _array(type: Type, optional: bool, series: Any) -> Any:
    if isinstance(type, Scalar | Enum):
        if not len(series):  # pandas calls the values of an empty column what it likes
            return pa.nulls(0)
        # A plain numpy float column cannot tell NaN from missing: it is missing only where the field may be.
        missing = optional or series.dtype.kind != "f" or not hasattr(series.dtype, "byteorder")
        array = pa.array(series, from_pandas=missing)
    else:
        cells = [None if _is_missing(cell) else cell for cell in series]
        array = pa.array(cells, type=_plain(type))
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _is_missing(cell: Any) -> bool:
    return cell is None or type(cell).__name__ == "NAType" or (isinstance(cell, float) and cell != cell)


def _plain(type: Type) -> Any:
    """The Arrow type with enumerations as text and arrays as lists, which is what pandas cells hold."""
    match type:
        case Enum():
            return pa.utf8()
        case Array(element=element, shape=shape):
            made = _plain(element)
            for _ in shape:
                made = pa.list_(made)
            return made
        case List(element=element):
            return pa.list_(_plain(element))
        case Record(fields=fields):
            return pa.struct([pa.field(f.name, _plain(f.type)) for f in fields])
        case _:
            return arrow_type(type)
