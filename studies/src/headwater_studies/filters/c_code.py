"""The two programs of ECho in C, made by the system's compiler, and a C loop that calls its code and ours alike; and
how many instructions there are in an assembly listing."""

from __future__ import annotations

import ctypes
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater_studies.fleet.tcp_c import PATIENCE, NoCompiler, compiler

FLAGS = ("-O2", "-fPIC", "-fno-asynchronous-unwind-tables")

# Fields begin after the 16 bytes of a record's header, which `checked` compares, as our machine code does. LEVEL is the
# type of the first field, LENGTH that of a record.
FILTER = """
int simple(const char *record, long length, void *env) {
    LEVEL level;
    __builtin_memcpy(&level, record + 16, sizeof level);
    if (level > 0.5) {
        return 1;
    }
    return 0;
}
"""
CHECKED = """
int checked(const char *record, long length, void *env) {
    if (length != LENGTH || __builtin_memcmp(record, env, 16) != 0) {
        return 4098;
    }
    LEVEL level;
    __builtin_memcpy(&level, record + 16, sizeof level);
    if (level > 0.5) {
        return 1;
    }
    return 0;
}
"""
MEAN = """
int average(const char *record, long length, void *env) {
    const double (*wind)[37] = (const double (*)[37])(record + 16);
    double total = 0;
    for (int column = 0; column < 37; column++)
        for (int row = 0; row < 253; row++)
            total += wind[row][column];
    *(double *)env = total / (37 * 253);
    return 1;
}
"""
ROWS = """
long rows(const double *level, long n, unsigned char *bits) {
    long passed = 0;
    for (long k = 0; k < n; k += 8) {
        unsigned byte = 0;
        for (int bit = 0; bit < 8; bit++) {
            unsigned pass = level[k + bit] > 0.5;
            byte |= pass << bit;
            passed += pass;
        }
        bits[k / 8] = byte;
    }
    return passed;
}
"""
LOOP = """
typedef int (*function)(const char *, long, void *);
long loop(function f, const char *record, long length, void *env, long calls) {
    long total = 0;
    for (long k = 0; k < calls; k++) {
        total += f(record, length, env);
        __asm__ volatile("" ::: "memory");
    }
    return total;
}
"""


@dataclass(frozen=True, slots=True)
class Record:
    """What the filters in C read: the type of the field `level`, and the bytes of a record."""

    level: str = "double"
    length: int = 80

    @property
    def flags(self) -> tuple[str, str]:
        return f"-DLEVEL={self.level}", f"-DLENGTH={self.length}"


READING = Record()  # eight f64


def _run(source: Path, target: Path, *flags: str) -> None:
    path = compiler()
    if path is None:
        raise NoCompiler("no C compiler (cc, gcc or clang) installed")
    command = [path, *FLAGS, *flags, "-o", str(target), str(source)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompiler(f"{path} could not be run: {error}") from None
    if ended.returncode:
        raise NoCompiler(f"{path} ended with code {ended.returncode}: {ended.stderr.strip()[:200]}")


class Compiled:
    """Machine code of the system's C compiler, in a folder; `number` tells several apart. Raises NoCompiler."""

    def __init__(self, folder: Path, number: int = 0, record: Record = READING) -> None:
        source, target = folder / f"programs-{number}.c", folder / f"programs-{number}.so"
        source.write_text(FILTER + CHECKED + MEAN + ROWS + LOOP, encoding="utf-8")
        _run(source, target, "-shared", *record.flags)
        self._library = ctypes.CDLL(str(target))
        self._loop = self._library.loop
        self._loop.restype = ctypes.c_long
        self._loop.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_long]
        self._rows = self._library.rows
        self._rows.restype = ctypes.c_long
        self._rows.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p]
        self._memory = ctypes.create_string_buffer(64)

    def call(self, address: int, record: bytes, env: int, calls: int) -> int:
        """Call a function again and again: what its answers add up to."""
        return int(self._loop(address, record, len(record), env, calls))

    def call_c(self, name: str, record: bytes, calls: int) -> int:
        """The same with a function in C: "simple", "checked" or "average"."""
        ctypes.memmove(self._memory, record, 16)  # what `checked` compares the header with
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert address is not None
        return self.call(address, record, ctypes.addressof(self._memory), calls)

    def result(self) -> float:
        """What "average" has left."""
        return ctypes.c_double.from_buffer(self._memory).value

    def rows(self, levels: int, n: int, bits: int) -> int:
        """The filter over a column at an address, as bits to another: how many passed. `n` is a multiple of 8."""
        return int(self._rows(levels, n, bits))


def compile_seconds(folder: Path, program: str, record: Record = READING) -> float:
    """What the compiler takes for one of them, as a process that writes a library."""
    source, target = folder / "one.c", folder / "one.so"
    source.write_text(program, encoding="utf-8")
    start = time.perf_counter()
    _run(source, target, "-shared", *record.flags)
    return time.perf_counter() - start


def listing(folder: Path) -> str:
    """The compiler's assembly of the programs."""
    source, target = folder / "listing.c", folder / "listing.s"
    source.write_text(FILTER + CHECKED + MEAN, encoding="utf-8")
    _run(source, target, "-S", *READING.flags)
    return target.read_text(encoding="utf-8")


# ── instructions ──

_LABEL = re.compile(r"^([\w.$]+):")


def function(assembly: str, name: str) -> list[str]:
    """The lines of one function in an assembly listing: labels and instructions, no directives, nothing behind it."""
    found: list[str] = []
    inside = False
    for line in assembly.splitlines():
        text = line.split("#")[0].strip()
        label = _LABEL.match(text)
        if label is not None and label[1] == name:
            inside = True
        elif inside and (text.startswith(".size") or (label is not None and label[1].startswith(".Lfunc_end"))):
            break
        elif inside and label is not None:
            found.append(f"{label[1]}:")
        elif inside and text and not text.startswith("."):
            found.append(" ".join(text.split()))
    return found


def instructions(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.endswith(":")]


def longest(lines: list[str]) -> int | None:
    """The most instructions that any event can take through a function without loops, on an x86 processor; None for
    one with loops or of another processor."""
    if not any(line.split()[0] in ("ret", "retq") for line in instructions(lines)):
        return None
    labels, code = {}, list[str]()
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
        else:
            code.append(line)
    most = [0] * (len(code) + 1)
    for at in range(len(code) - 1, -1, -1):
        after = 0
        for to in _next(code[at], at, labels):
            if to <= at:
                return None
            after = max(after, most[to])
        most[at] = 1 + after
    return most[0]


def _next(instruction: str, at: int, labels: dict[str, int]) -> Iterator[int]:
    name, _, target = instruction.partition(" ")
    if name in ("ret", "retq"):
        return
    if name.startswith("j"):
        yield labels.get(target.strip(), -1)
        if name in ("jmp", "jmpq"):
            return
    yield at + 1
