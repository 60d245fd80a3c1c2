"""The shared kernels, compiled when first needed, and what programs may import from them."""

from __future__ import annotations

import ctypes
from typing import Any

from headwater.ir.library import libm
from headwater.late import np
from headwater.native import engine
from headwater.native.builtin_functions import ONE_ARGUMENT, MethodDef, new_function
from headwater.native.kernels.module import kernels
from headwater.native.once import once

ZEROS = 64 << 20  # bytes of zeros to read in the place of an element that is not there; pages come when touched
LIBM = ("pow", "exp", "log", "sin", "cos", "fmod")
_LIBC = ("memcmp", "bcmp", "memcpy", "memmove", "memset", "memmem")
_PYTHON = (
    "PyBytes_AsString",
    "PyBytes_Size",
    "PyBytes_FromObject",
    "PyErr_Clear",
    "PyLong_FromLong",
    "PyBool_FromLong",
    "Py_DecRef",
)
_TEXT = "ptr, i64, i8, ptr, i64, i8"

SIGNATURES = {
    "hw_eq": f"i1 %s({_TEXT})",
    "hw_cmp": f"i32 %s({_TEXT})",
    "hw_starts": f"i1 %s({_TEXT})",
    "hw_ends": f"i1 %s({_TEXT})",
    "hw_contains": f"i1 %s({_TEXT})",
    "hw_chars": "i64 %s(ptr, i64)",
    "hw_utf8": "i1 %s(ptr, i64)",
    "hw_zero": "i1 %s(ptr, i64)",
    "hw_like": "i1 %s(ptr, i64, i8, ptr, i64)",
    "hw_civil": "i64 %s(i64)",
    "hw_find_i64": "i64 %s(ptr, i64, i64)",
    "hw_find_u64": "i64 %s(ptr, i64, i64)",
    "hw_find_f64": "i64 %s(ptr, i64, double)",
    "hw_find_text": "i64 %s(ptr, ptr, i64, ptr, i64, i8)",
    "hw_append_text": "void %s(ptr, ptr, i64, ptr, i64, i8)",
    "hw_append_items": "i64 %s(ptr, ptr, i64, ptr, i64, i64, i64)",
    "hw_pad": "i64 %s(ptr, ptr, i64)",
} | {f"hw_{name}": f"double %s({'double, double' if name in ('pow', 'fmod') else 'double'})" for name in LIBM}

_KERNELS = (
    *(name for name in SIGNATURES if name[3:] not in LIBM),
    "hw_text_copy",
    "hw_expand",
    "hw_drive",
    "hw_text_offsets",
    "hw_text_gather",
    "hw_table",
    "hw_py_run",
    "hw_py_test",
)


@once
def runtime() -> engine.Code:
    """The kernels' machine code; stays for the life of the process."""
    imports = engine.libc(_LIBC) | engine.libc(_PYTHON)
    return engine.compile(kernels(), _KERNELS, imports)


@once
def imports() -> dict[str, int]:
    """What a program's code may call: kernels, the C library's floats (the very functions the interpreter calls,
    under names that LLVM knows nothing about) and what LLVM itself calls for copying and comparing."""
    code = runtime()
    found = {name: code[name] for name in SIGNATURES if name in code.addresses}
    for name in LIBM:
        found[f"hw_{name}"] = ctypes.cast(libm(name), ctypes.c_void_p).value or 0
    return found | engine.libc(_LIBC) | {"hw_zeros": _zeros().ctypes.data}


@once
def _zeros() -> Any:
    return np.zeros(ZEROS, np.uint8)


@once
def _methods() -> dict[str, MethodDef]:
    doc = b"Evaluate on one record."
    names = {"hw_py_test": b"test", "hw_py_run": b"run"}
    return {kernel: MethodDef(name, runtime()[kernel], ONE_ARGUMENT, doc) for kernel, name in names.items()}


def python_function(kernel: str, function: int, env: int, counts: int, keep: tuple[Any, ...]) -> Any:
    """A builtin function of one argument, a record. It holds the GIL, so it is for short programs.

    `keep` lives as long as the result: whatever owns the memory that `function`, `env` and `counts` are addresses of.
    """
    words = (function, env, counts)
    control = b"".join(word.to_bytes(8, "little") for word in words)
    return new_function(_methods()[kernel], control, keep)
