"""The Pythons that Headwater runs on, and those whose objects its machine code knows.

    machine code   a version in VERIFIED, in its usual build, where the probes of `native/python` agree: events are
                   encoded, decoded and published by machine code that reads Python's objects
    plain path     any other version or build: the same results from code in Python, which takes longer. A record in
                   the log says why, once, and so does `headwater --version`
    refused        a Python that runs without its global lock: matching and counting rely on it

Adding a version: run the tests of `native`, `types`, `ir` and `channel` on it, put it into VERIFIED, and say so in
docs/compatibility.md, which a test compares with this.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

VERIFIED = ((3, 11), (3, 12), (3, 13), (3, 14))
PLAIN = "HEADWATER_PLAIN"  # in the environment: anything but "" and "0" has the plain path taken


class Interpreter(NamedTuple):
    """What is to be known of a Python before its objects are looked at."""

    implementation: str
    version: tuple[int, int]
    debug: bool  # reference counts are checked
    free_threaded: bool  # built so that it can run without its global lock; objects have another head then
    locked: bool  # it has its lock now
    bits: int
    byteorder: str

    @classmethod
    def here(cls) -> Interpreter:
        """The one that runs this."""
        return cls(
            sys.implementation.name,
            sys.version_info[:2],
            hasattr(sys, "gettotalrefcount"),
            "t" in getattr(sys, "abiflags", ""),
            getattr(sys, "_is_gil_enabled", lambda: True)(),
            64 if sys.maxsize > 2**32 else 32,
            sys.byteorder,
        )

    def __str__(self) -> str:
        build = ("free-threaded ", "debug ")
        kinds = "".join(kind for kind, so in zip(build, (self.free_threaded, self.debug), strict=True) if so)
        name = {"cpython": "CPython", "pypy": "PyPy"}.get(self.implementation, self.implementation)
        return f"{kinds}{name} {self.version[0]}.{self.version[1]}"


def refusal(python: Interpreter) -> str | None:
    """Why Headwater cannot run on a Python; None if it can."""
    if python.locked:
        return None
    return (
        f"Headwater relies on Python's global lock, and this {python} runs without: start it with PYTHON_GIL=1 in the "
        "environment (or python -X gil=1), or take the usual build"
    )


def unknown(python: Interpreter) -> str | None:
    """Why machine code is not to look at a Python's objects; None if it was verified on it."""
    if python.implementation != "cpython":
        return f"it knows objects of CPython, and not of {python}"
    if python.free_threaded or python.debug:
        return f"it knows objects of the usual build, and not of a {python}"
    if (python.bits, python.byteorder) != (64, "little"):
        return f"it knows objects of 64 bits, little-endian, and not of {python.bits} bits, {python.byteorder}-endian"
    if python.version not in VERIFIED:
        versions = ", ".join(f"{major}.{minor}" for major, minor in VERIFIED)
        return f"it was verified on CPython {versions}, and not on {python.version[0]}.{python.version[1]}"
    return None


def chosen() -> str | None:
    """That the environment has the plain path taken; None if it does not."""
    given = os.environ.get(PLAIN, "")
    return f"{PLAIN}={given} is set" if given not in ("", "0") else None


def check() -> None:
    """Raises ImportError on a Python that Headwater cannot run on."""
    if getattr(sys, "_is_gil_enabled", None) is not None and (why := refusal(Interpreter.here())) is not None:
        raise ImportError(why)
