"""Records of a CSV file each on one line: line ends within quotes become characters that the file does not have."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from headwater.errors import ExecutionError
from headwater.late import np

CHUNK = 4 << 20
_CANDIDATES = bytes([*range(1, 9), 11, 12, *range(14, 32)])


def unfold(source: IO[bytes], target: Path, quote: str) -> tuple[Any, tuple[str, str] | None]:
    """Write the file anew. Returns the line (from 1) on which each record begins, and the two characters that stand for
    carriage return and line feed within quotes; without a quote nothing is unfolded, and both are None."""
    if not quote:
        with target.open("wb") as out:
            while chunk := source.read(CHUNK):
                out.write(chunk)
        return None, None
    data = bytearray()
    while chunk := source.read(CHUNK):
        data += chunk
    free = [sign for sign in _CANDIDATES if sign not in data]
    if len(free) < 2:
        raise ExecutionError(
            "options.multiline: expected two control characters that the file does not use, found none"
        )
    array = np.frombuffer(data, np.uint8).copy()
    inside = np.cumsum(array == ord(quote)) % 2 == 1
    array[inside & (array == 13)] = free[0]
    array[inside & (array == 10)] = free[1]
    # A line ends at a line feed, or at a carriage return that none follows.
    original = np.frombuffer(bytes(data), np.uint8)
    follows = np.append(original[1:] == 10, False)
    line_end = (original == 10) | ((original == 13) & ~follows)
    record_end = line_end & ~inside
    places = np.flatnonzero(record_end)
    lines = np.cumsum(line_end)
    starts = np.concatenate([[1], lines[places] + 1]) if len(array) else np.zeros(0, np.int64)
    with target.open("wb") as out:
        out.write(array.tobytes())
    return starts, (chr(free[0]), chr(free[1]))
