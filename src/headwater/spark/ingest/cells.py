"""The cells of a line of a CSV file, as the parser of Spark takes them: for headers and samples, of any length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache


@lru_cache(maxsize=16)
def _cell(delimiter: str, quote: str) -> re.Pattern[str]:
    d, q = re.escape(delimiter), re.escape(quote)
    return re.compile(
        rf"\s*{q}(?P<quoted>(?:[^{q}]++|{q}{q})*+){q}(?P<rest>[^{d}]*+)(?:{d}|\Z)|(?P<plain>[^{d}]*+)(?:{d}|\Z)"
    )


def split_cells(line: str, delimiter: str = ",", quote: str = '"') -> list[str]:
    """A quote is one at the beginning of a cell only; two within quotes are one."""
    if quote not in line:
        return line.split(delimiter)
    pattern = _cell(delimiter, quote)
    cells, at = [], 0
    while True:
        found = pattern.match(line, at)
        assert found is not None  # the last choice takes everything
        quoted = found["quoted"]
        cells.append(found["plain"] if quoted is None else quoted.replace(quote * 2, quote) + found["rest"].rstrip())
        at = found.end()
        if at >= len(line) and not (at and found[0].endswith(delimiter)):
            return cells
        if at >= len(line):
            return [*cells, ""]


def joined_lines(lines: Iterable[str], quote: str = '"') -> Iterator[str]:
    """Lines, those put together whose line ends are within quotes."""
    begun: list[str] = []
    is_open = False
    for line in lines:
        is_open ^= line.count(quote) % 2 == 1
        begun.append(line)
        if not is_open:
            yield "\n".join(begun)
            begun.clear()
    if begun:
        yield from begun
