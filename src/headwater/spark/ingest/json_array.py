"""Files that are one JSON array, rewritten with one element on a line: that is what is read in pieces."""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any

from headwater.late import np

CHUNK = 4 << 20
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)
_TEXT = re.compile(rb"\S")
_LINE = re.compile(rb"[^\r\n]*+")
# White space between values, and a fault within a text, as a line end is.
_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"\t\t")
_OPENING, _QUOTE, _COMMA = b"[{", ord('"'), ord(",")


def is_array(start: bytes) -> bool:
    """Whether a file that starts so is an array, and not one object a line."""
    return start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def write_lines(source: IO[bytes], target: Path) -> Any:
    """Write each element on a line of its own. Returns the line (from 1) on which each begins in the source.

    What follows the array is taken as it is, line by line, or as another array; of one that is torn the last element
    is what is left of it. So nothing is lost, and what is no object is told by whoever reads the lines."""
    parts = []
    while chunk := source.read(CHUNK):
        parts.append(chunk)
    data = b"".join(parts).removeprefix(codecs.BOM_UTF8)
    places = []
    with target.open("wb") as out:
        for start, end in elements(data):
            text = _TEXT.search(data, start, end)
            places.append(text.start() if text else start)
            out.write(data[start:end].strip().translate(_ON_ONE_LINE) + b"\n")
    array = np.frombuffer(data, np.uint8)
    lone = (array == 13) & ~np.append(array[1:] == 10, False) if len(array) else np.zeros(0, bool)
    ends = np.flatnonzero((array == 10) | lone)
    return np.searchsorted(ends, np.array(places, np.int64)) + 1


def elements(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the elements of arrays begin and end, and the lines that are outside of them."""
    at = 0
    while found := _TEXT.search(data, at):
        at = found.start()
        if data[at] == _OPENING[0]:
            at = yield from _array(data, at + 1)
        else:
            end = _LINE.match(data, at).end()  # type: ignore[union-attr]
            yield at, end
            at = end


def _array(data: bytes, start: int) -> Generator[tuple[int, int], None, int]:
    """The elements of the array that was opened before `start`; returns where it ends."""
    depth = 1
    for token in _TOKEN.finditer(data, start):
        sign = data[token.start()]
        if sign == _QUOTE:
            continue
        if sign == _COMMA:
            if depth == 1:
                yield start, token.start()
                start = token.end()
        elif sign in _OPENING:
            depth += 1
        else:
            depth -= 1
            if not depth:
                if _TEXT.search(data, start, token.start()):
                    yield start, token.start()
                return token.end()
    if _TEXT.search(data, start):
        yield start, len(data)
    return len(data)
