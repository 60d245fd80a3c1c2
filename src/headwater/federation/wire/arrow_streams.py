"""Arrow streams and schemas of other nodes: the one way in which they are read.

Who reads says how much it can be. That is looked up in the stream before Arrow is given any of it: memory is bounded by
what was asked for, whatever a node sends. What Arrow then makes of it is checked in full.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headwater.errors import FrameError
from headwater.federation.wire.arrow_messages import (
    DICTIONARY,
    ROWS,
    SCHEMA,
    Rows,
    check_schema,
    dictionary_of,
    message,
    rows_of,
    unpacked,
)
from headwater.federation.wire.kinds import Data
from headwater.late import np, pa, pc

MAX_SCHEMA = 4 << 20  # bytes
SPREAD = 8  # times the bytes of a stream: what values of dictionaries may take, written out where they are used


class Bounds(NamedTuple):
    """How much a stream may be: bytes of buffers, unpacked; rows; record batches. Plain, unless compressed ones were
    asked for."""

    bytes: int
    rows: int
    batches: int = 1
    compressed: bool = False


def read_schema(data: Data) -> Any:
    """A schema that another node has sent; FrameError if it is none, or too large."""
    if len(data) > MAX_SCHEMA:
        raise FrameError(f"expected an Arrow schema of at most {MAX_SCHEMA:,} bytes, found {len(data):,}")
    found = message(data)
    if found is None or found.kind != SCHEMA:
        raise FrameError("expected an Arrow schema, found another message")
    check_schema(found.head, found.at)
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FrameError(f"expected an Arrow schema, found: {error}") from None


def read_stream(data: Data, bounds: Bounds) -> list[Any]:
    """The record batches of an Arrow stream that another node has sent, valid and within bounds; FrameError if not."""
    _check(memoryview(data), bounds)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            batches = list(stream)
        for batch in batches:
            batch.validate(full=True)
            spread = sum(_spread(column) for column in batch.columns)
            if spread > SPREAD * bounds.bytes:
                raise FrameError(
                    f"expected values of dictionaries of {SPREAD * bounds.bytes:,} bytes, found {spread:,}"
                )
        return batches
    except FrameError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise FrameError(f"expected events as Arrow, found: {error}") from None


def _check(data: memoryview, bounds: Bounds) -> None:
    """Walk through all messages of a stream: nothing of it is unpacked or copied."""
    at = size = rows = batches = 0
    fields: int | None = None  # dictionaries that may still come
    while at < len(data):
        found = message(data, at)
        if found is None:
            if at + 8 != len(data):
                raise FrameError(f"expected the end of an Arrow stream, found {len(data) - at - 8:,} bytes after it")
            break
        at = found.end + found.body
        if at > len(data):
            raise FrameError(f"expected a body of {found.body:,} bytes, found {len(data) - found.end:,}")
        if (found.kind == SCHEMA) != (fields is None):
            raise FrameError("expected an Arrow stream with one schema, at its beginning")
        if found.kind == SCHEMA:
            if len(found.head) > MAX_SCHEMA:
                raise FrameError(f"expected an Arrow schema of at most {MAX_SCHEMA:,} bytes, found {len(found.head):,}")
            fields = check_schema(found.head, found.at)
            continue
        said = _said(found.kind, found.head, found.at, found.body)
        if said.compressed and not bounds.compressed:
            raise FrameError("expected plain Arrow buffers, found compressed ones")
        size += unpacked(said, data[found.end : at])
        if size > bounds.bytes:
            raise FrameError(f"expected at most {bounds.bytes:,} bytes of events, found {size:,} or more")
        if said.most > max(said.rows, 8 * bounds.bytes) or said.rows < 0:
            raise FrameError(f"expected columns that have bytes for their rows, found {said.most:,} rows")
        if found.kind == DICTIONARY:
            assert fields is not None
            fields -= 1
            if fields < 0 or said.rows > 8 * bounds.bytes:
                raise FrameError("expected a dictionary for a column, once, found more, or a longer one")
            continue
        rows, batches = rows + said.rows, batches + 1
        if rows > bounds.rows or batches > bounds.batches:
            raise FrameError(
                f"expected at most {bounds.rows:,} rows in {bounds.batches:,} record batches, found {rows:,} in "
                f"{batches:,}, or more"
            )


def _said(kind: int, head: memoryview, at: int, body: int) -> Rows:
    if kind == ROWS:
        return rows_of(head, at, body)
    if kind == DICTIONARY:
        return dictionary_of(head, at, body)
    raise FrameError(f"expected rows in an Arrow stream, found a message of kind {kind}")


def _spread(column: Any) -> int:
    """The bytes of a column's values of dictionaries, each counted where it is used."""
    type = column.type
    if pa.types.is_dictionary(type):
        if not (pa.types.is_string(type.value_type) or pa.types.is_binary(type.value_type)):
            raise FrameError(f"expected dictionaries of texts, found {type}")
        lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).to_numpy(zero_copy_only=False)
        used = column.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(lengths.astype(np.int64)[used].sum())
    if pa.types.is_list(type) or pa.types.is_fixed_size_list(type):
        return _spread(column.values)
    if pa.types.is_struct(type):
        return sum(_spread(column.field(index)) for index in range(type.num_fields))
    return 0


__all__ = ["Bounds", "read_schema", "read_stream"]
