"""The files of an ingest: found, looked at, and made readable for Spark where they are not.

Spark does not take every name (it reads signs in it, or takes the file for hidden), every encoding, nor line ends in
quoted cells of files that it splits. Such files are linked or rewritten in the staging folder first; what is said of
them names the file as it was given.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from headwater.errors import ExecutionError
from headwater.late import pa, pq
from headwater.spark.ingest.cells import split_cells
from headwater.spark.ingest.json_array import is_array, write_lines
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.unfold import unfold

CHUNK = 1 << 20
HEADER_BYTES = 16 << 20  # the longest header that is looked at
COLUMNS = 20_000  # the most that a header may name
NAMED = 5  # files with hidden names that are named in a note; of others the number is told
_PLAIN = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9_.-]*)+")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
_MAGIC = {b"\x1f\x8b": ("gzip", ".gz"), b"BZh": ("bzip2", ".bz2"), b"PK\x03\x04": ("zip", "")}


class Unreadable(Exception):
    """A file cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file: its `path` as given, what Spark reads (`spark`), and for CSV its first line and the columns in it.

    `starts`: where the lines of records are that were unfolded; `schema`: of a Parquet file, as text, to tell such
    files apart."""

    path: str
    spark: str
    size: int
    header: str = ""
    columns: tuple[str, ...] = ()
    starts: Any = None
    signs: tuple[str, str] | None = None
    schema: str = ""
    utf8: bool = False  # rewritten as UTF-8, whatever it was

    @property
    def uri(self) -> str:
        """As Spark has it in `_metadata.file_path`."""
        return f"file:{self.spark}"


@dataclass(frozen=True, slots=True)
class Found:
    """A file, or what is to be said of a path: `fatal` if nothing was read that was asked for."""

    path: str
    problem: str = ""
    fatal: bool = False


def find_files(inputs: Iterable[str | os.PathLike[str]]) -> Iterator[Found]:
    """Every file, in the order given, folders in the order of names; and what is wrong with paths."""
    seen: set[str] = set()
    for each in inputs:
        path = Path(each)
        if path.is_dir():
            try:
                within = sorted(p for p in path.rglob("*") if p.is_file())
            except OSError as error:
                yield Found(str(path), _said(error), fatal=True)
                continue
            names = [str(p) for p in within if not _hidden(p.relative_to(path))]
            if len(names) < len(within):
                yield Found(str(path), _passed_over([p.relative_to(path) for p in within]))
            if not names:
                yield Found(str(path), "a folder without files", fatal=True)
        elif path.exists():
            names = [str(path)]
        else:
            yield Found(str(path), "no such file or folder", fatal=True)
            continue
        for name in names:
            real = os.path.realpath(name)
            if real in seen:
                yield Found(name, "given twice; it is read once")
            else:
                seen.add(real)
                yield Found(name)


def _hidden(path: Path) -> bool:
    return any(part[0] in "._" for part in path.parts)


def _passed_over(within: list[Path]) -> str:
    hidden = [str(path) for path in within if _hidden(path)]
    shown = ", ".join(hidden[:NAMED]) + (", …" if len(hidden) > NAMED else "")
    many = f"{len(hidden):,} files whose names, or whose folders' names, begin with . or _ are not read"
    return f"{many}: {shown}; give one by its own name to read it"


def _said(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]


def look(path: str, mapping: IngestMapping, scratch: Path, number: int) -> Input:
    """The file made ready; Unreadable if it cannot be."""
    try:
        made = _ready(path, mapping, scratch, number)
        return _with_columns(made, mapping) if mapping.format == "csv" else made
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeError, MemoryError, ExecutionError) as error:
        raise Unreadable(_said(error)) from None


def _with_columns(made: Input, mapping: IngestMapping) -> Input:
    options = mapping.options
    if not options.header:
        return replace(made, columns=options.columns)
    line = _first_line(made, mapping)
    if line is None:
        return replace(made, size=0)
    names = split_cells(line, options.delimiter, options.quote)
    if len(names) > COLUMNS:
        raise Unreadable(f"its header names {len(names):,} columns; expected at most {COLUMNS:,}")
    return replace(made, header=line, columns=tuple(name.strip() for name in names))


def _ready(path: str, mapping: IngestMapping, scratch: Path, number: int) -> Input:
    """A file as Spark can read it: itself, by a link if its name has signs that Spark would read something into, or
    written anew where it has no lines of its own. Unreadable if it is of another format, or packed otherwise."""
    real = os.path.realpath(path)
    size = Path(real).stat().st_size
    with Path(real).open("rb") as file:
        start = file.read(4)
    if mapping.format == "parquet":
        if not size:
            return Input(path, real, 0)
        schema = pq.read_schema(real).remove_metadata()
        return Input(path, _linked(real, scratch, number), size, schema=str(schema), columns=tuple(schema.names))
    for magic, (name, suffix) in _MAGIC.items():
        if start.startswith(magic) and not (suffix and real.endswith(suffix)):
            raise Unreadable(
                f"it is a {name} file; " + (f"give it a name that ends in {suffix}" if suffix else "unpack it")
            )
    suffix = Path(real).suffix
    if suffix in (".zst", ".lz4", ".snappy", ".deflate", ".xz", ".Z"):
        raise Unreadable(f"expected a plain file, .gz or .bz2, found {suffix}; unpack it")
    array = mapping.format == "json" and _begins_array(real, mapping)
    rewrite = not single_byte(mapping.options.encoding) and not _is_utf8(mapping.options.encoding)
    if rewrite or array or mapping.options.multiline:
        target = scratch / f"{number:06d}.txt"
        with _open(real) as raw:
            source = _transcoded(raw, mapping.options.encoding) if rewrite else raw
            quote = mapping.options.quote if mapping.options.multiline else ""
            starts, signs = (write_lines(source, target), None) if array else unfold(source, target, quote)
        return Input(path, str(target), target.stat().st_size, starts=starts, signs=signs, utf8=rewrite)
    return Input(path, _linked(real, scratch, number), size)


def _begins_array(real: str, mapping: IngestMapping) -> bool:
    with _open(real) as raw:
        start = raw.read(CHUNK)
    if not single_byte(mapping.options.encoding) and not _is_utf8(mapping.options.encoding):
        start = start.decode(mapping.options.encoding, "replace").encode()
    return is_array(start)


def _linked(real: str, scratch: Path, number: int) -> str:
    if _PLAIN.fullmatch(real):
        return real
    link = scratch / f"{number:06d}{''.join(s for s in Path(real).suffixes[-1:] if s in ('.gz', '.bz2', '.parquet'))}"
    link.symlink_to(real)
    return str(link)


def _open(path: str) -> IO[bytes]:
    opener = _OPENERS.get(Path(path).suffix, open)
    return opener(path, "rb")  # type: ignore[no-any-return]


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def single_byte(encoding: str) -> str:
    """The characters of the bytes 128 to 255 in an encoding that has one byte for each and is ASCII below; "" if it
    has not. A byte that stands for nothing is U+FFFE, which no text has."""
    try:
        if bytes(range(128)).decode(encoding) != bytes(range(128)).decode("ascii"):
            return ""
        made = [bytes([byte]).decode(encoding, "replace") for byte in range(128, 256)]
    except (LookupError, UnicodeError):
        return ""
    if (
        any(len(each) != 1 for each in made)
        or _is_utf8(encoding)
        or "é".encode(encoding, "replace") in (b"", b"\xc3\xa9")
    ):
        return ""
    several = codecs.lookup(encoding).name
    if several.startswith(("gb", "big5", "euc", "shift", "cp93", "cp94", "cp95", "iso2022", "johab", "hz", "utf")):
        return ""
    return "".join("\ufffe" if each == "\ufffd" else each for each in made)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error("headwater-damaged", _escape)


def _transcoded(raw: IO[bytes], encoding: str) -> IO[bytes]:
    """As UTF-8; where the bytes are not of the encoding there is a byte 0xFF, which UTF-8 never has."""
    decoder = codecs.getincrementaldecoder(encoding)("headwater-damaged")

    class Reader(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            while True:
                chunk = raw.read(CHUNK)
                text = decoder.decode(chunk, not chunk)
                if text or not chunk:
                    return text.encode("utf-8", "surrogateescape")

    return Reader()  # type: ignore[return-value]


def _first_line(made: Input, mapping: IngestMapping) -> str | None:
    """The first line that is neither blank nor a comment, as Spark will see it; None if there is none."""
    encoding = "utf-8" if made.utf8 or _is_utf8(mapping.options.encoding) else mapping.options.encoding
    comment = mapping.options.comment.encode(encoding)
    with _open(made.spark) as file:
        for line in first_lines(file):
            text = line.strip()
            if text and not (comment and text.startswith(comment)):
                break
        else:
            return None
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(f"its header is not {encoding}: byte 0x{line[error.start]:02X} at {error.start + 1}") from None


def first_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file without their ends and without a byte order mark; Unreadable for one that is too long."""
    parts: list[bytes] = []
    size, first = 0, True
    while chunk := file.read(64 * 1024):
        *whole, rest = re.split(rb"\r\n|\r|\n", chunk)
        for each in whole:
            line = b"".join([*parts, each])
            parts, size = [], 0
            yield line.removeprefix(codecs.BOM_UTF8) if first else line
            first = False
        parts.append(rest)
        size += len(rest)
        if size > HEADER_BYTES:
            raise Unreadable(f"a line before the first record has more than {HEADER_BYTES >> 20} MB")
    line = b"".join(parts)
    if line:
        yield line.removeprefix(codecs.BOM_UTF8) if first else line


def check_whole(each: Input, mapping: IngestMapping) -> str:
    """What is wrong with a file when all of it is read; "" if nothing is."""
    try:
        if mapping.format == "parquet":
            with pq.ParquetFile(each.spark) as file:
                for _ in file.iter_batches():
                    pass
        else:
            with _open(each.spark) as stream:
                while stream.read(CHUNK):
                    pass
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        return _said(error)
    return ""
