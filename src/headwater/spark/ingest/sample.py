"""The beginning of files, for a proposal: so much of each as the wanted records take, and no more."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from headwater.errors import ExecutionError
from headwater.late import pa, pq
from headwater.spark.ingest.inputs import find_files
from headwater.spark.ingest.json_array import elements, is_array

FILES = 20  # of many, spread evenly
SAMPLE_BYTES = 32 << 20  # of one file, whatever the records are
CHUNK = 256 << 10
LINE_END = re.compile(r"\r\n|\r|\n")
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


class Unsampled(Exception):
    """A file has nothing to look at; the message says why."""


@dataclass(slots=True)
class Samples:
    """The files that are looked at, and what is to be said of the others."""

    name: str
    files: list[Path]
    notes: list[str] = field(default_factory=list)


def find_samples(given: Iterable[str | os.PathLike[str]]) -> Samples:
    """Files, and files of folders; of many some are left out. `ExecutionError` if there is none."""
    paths = [Path(each) for each in given]
    if not paths:
        raise ExecutionError("infer: expected a sample, found none")
    found = list(find_files(paths))
    files = [Path(each.path) for each in found if not each.problem]
    notes = [f"{each.path}: {each.problem}" for each in found if each.problem]
    if not files:
        raise ExecutionError(f"infer: expected files to look at, found none: {'; '.join(notes)}")
    if len(files) > FILES:
        notes.append(f"{FILES} of {len(files):,} files were looked at")
        files = [files[i * len(files) // FILES] for i in range(FILES)]
    return Samples(paths[0].name.partition(".")[0], files, notes)


def guess_format(path: Path) -> str:
    """As its name or its first bytes say."""
    if ".parquet" in [suffix.lower() for suffix in path.suffixes]:
        return "parquet"
    data, _ = read_start(path, 1)
    if data.startswith(b"PAR1"):
        return "parquet"
    text, _ = decode(data[:65_536], whole=False)
    return "json" if text.lstrip()[:1] in ("{", "[") else "csv"


def read_start(path: Path, rows: int) -> tuple[bytes, bool]:
    """The bytes of the first lines, and whether that is all there is. Of a torn file what is before the tear."""
    data, ends, whole = bytearray(), 0, False
    try:
        with _open(path) as file:
            while ends <= rows and len(data) < SAMPLE_BYTES:
                try:
                    chunk = file.read(CHUNK)
                except (EOFError, zlib.error, OSError):
                    if not data:
                        raise
                    return bytes(data), False
                if not chunk:
                    whole = True
                    break
                data += chunk
                ends += max(chunk.count(b"\n"), chunk.count(b"\r"))
    except (OSError, EOFError, zlib.error) as error:
        raise Unsampled(f"it cannot be read: {error}") from None
    return bytes(data), whole


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PK\x03\x04":
        raise Unsampled("it is a zip file; unpack it")
    opener = next((each for magic, each in _OPENERS.items() if start.startswith(magic)), open)
    opened: IO[bytes] = opener(path, "rb")
    return opened


def decode(data: bytes, *, whole: bool) -> tuple[str, str]:
    """The text and its encoding; without the last line, where there is more."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        text, encoding = data.decode("utf-16", "replace"), "utf-16"
    elif b"\0" in data[:4096]:
        raise Unsampled("it is no text: there are bytes 0 in it")
    else:
        text, encoding = _eight_bits(data if whole else data[: data.rfind(b"\n") + 1] or data)
    return text if whole else text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text, encoding


def _eight_bits(data: bytes) -> tuple[str, str]:
    text = data.decode("utf-8-sig", "replace")
    broken = text.count("\ufffd")
    if not broken or sum(1 for c in text if c > "\x7f") > 5 * broken:  # some bad bytes among many good characters
        return text, "utf-8"
    try:
        return data.decode("cp1252"), "cp1252"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def lines_of(text: str) -> list[str]:
    """Lines as Spark parts them: at nothing but carriage returns and line feeds."""
    return LINE_END.split(text)


def json_objects(data: bytes, text: str, rows: int) -> Iterator[dict[str, Any]]:
    """The objects of an array, or of lines; what is none is passed over."""
    if is_array(text[:4096].encode()):
        raw = text.encode()
        parts: Iterable[str | bytes] = (raw[a:b] for a, b in elements(raw))
    else:
        parts = lines_of(text)
    count = 0
    for each in parts:
        if count >= rows:
            return
        try:
            found = json.loads(each) if each.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            count += 1
            yield found


def parquet_rows(path: Path, rows: int) -> list[dict[str, Any]]:
    """The first rows; of times microseconds are looked at, and columns that Python has no values for are left out."""
    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(rows), None)
    except (OSError, pa.ArrowException) as error:
        raise Unsampled(f"it cannot be read: {error}") from None
    if batch is None:
        return []
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
            columns[name] = column.to_pylist()
        except (ValueError, pa.ArrowException):
            continue
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
