"""The same functions in C, compiled here by the machine's C compiler, and a C loop that calls ours and theirs alike."""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

SIMPLE = """
int simple(const char *record, long length, void *env) {
    float level;
    __builtin_memcpy(&level, record + 16, 4);
    if (level > 0.5) {
        return 1;
    }
    return 0;
}
"""
CHECKED = """
int checked(const char *record, long length, void *env) {
    if (length != 24 || __builtin_memcmp(record, env, 16) != 0) {
        return 4098;
    }
    float level;
    __builtin_memcpy(&level, record + 16, 4);
    if (level > 0.5) {
        return 1;
    }
    return 0;
}
"""
AVERAGE = """
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


def find_compiler() -> str | None:
    """The machine's C compiler, if it has one."""
    return next((name for name in ("gcc", "cc", "clang") if shutil.which(name)), None)


def _compile(source: str, target: Path) -> None:
    file = target.with_suffix(".c")
    file.write_text(source)
    compiler = find_compiler()
    assert compiler is not None
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(target), str(file)], check=True)


class Reference:
    """The loaded library; keep it as long as its functions are called."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        target = Path(self._folder.name) / "reference.so"
        _compile(SIMPLE + CHECKED + AVERAGE + LOOP, target)
        self._library = ctypes.CDLL(str(target))
        self._loop = self._library.loop
        self._loop.restype = ctypes.c_long
        self._loop.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_long]
        self._out = ctypes.create_string_buffer(64)

    def loop(self, address: int, record: bytes, env: int, calls: int) -> int:
        """Call the function at an address again and again."""
        return int(self._loop(address, record, len(record), env, calls))

    def loop_reference(self, name: str, record: bytes, calls: int) -> int:
        ctypes.memmove(self._out, record, 16)  # what `checked` compares the header with
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert address is not None
        return self.loop(address, record, ctypes.addressof(self._out), calls)

    @staticmethod
    def compile_seconds(interest: str) -> float:
        """What the C compiler takes for the same function."""
        source = AVERAGE if "input.wind" in interest else SIMPLE
        samples = []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(3):
                start = time.perf_counter()
                _compile(source, Path(folder) / "one.so")
                samples.append(time.perf_counter() - start)
        return statistics.median(samples)
