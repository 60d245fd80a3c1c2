"""Kernels as builtin functions of Python: the arrays' addresses once, numbers with each call, the lock kept.

Only functions of Python's stable interface are called. The function's `self` is a bytes object with the addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.native.builtin_functions import FAST, MethodDef, new_function
from headwater.native.subset.checking import ARRAYS, I64, Checked

IMPORTS = ("PyBytes_AsString", "PyErr_Occurred", "PyLong_AsLongLong", "PyLong_FromLongLong")
_DECLARED = """
declare ptr @PyBytes_AsString(ptr)
declare ptr @PyErr_Occurred()
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
"""
_FUNCTION = """
define ptr @{name}(ptr %self, ptr %args, i64 %count) nounwind {{
entry:
  %right = icmp eq i64 %count, {count}
  br i1 %right, label %read, label %fail
read:
  %block = call ptr @PyBytes_AsString(ptr %self)
{lines}
  %error = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %error, null
  br i1 %good, label %run, label %fail
run:
  %result = call i64 @{symbol}({given})
  %made = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %made
fail:
  ret ptr null
}}
"""


def possible(checked: Checked) -> bool:
    """Whether it takes and gives integers only, beside arrays."""
    return checked.result == I64 and all(kind in ARRAYS or kind == I64 for kind in checked.parameters.values())


def symbol_of(symbol: str) -> str:
    """What the builtin function of a kernel is called in machine code."""
    return f"py_{symbol}"


def source(kernels: Mapping[str, Checked]) -> str:
    """The LLVM assembly of their builtin functions, beside the kernels' own."""
    return "\n".join([_DECLARED, *(_function(symbol, checked) for symbol, checked in kernels.items())])


def _function(symbol: str, checked: Checked) -> str:
    lines, given, number = list[str](), list[str](), 0
    for at, kind in enumerate(checked.parameters.values()):
        if kind in ARRAYS:
            lines += [f"%p{at} = getelementptr ptr, ptr %block, i64 {at}", f"%v{at} = load ptr, ptr %p{at}, align 1"]
            given.append(f"ptr %v{at}")
        else:
            lines += [
                f"%p{at} = getelementptr ptr, ptr %args, i64 {number}",
                f"%o{at} = load ptr, ptr %p{at}, align 8",
                f"%v{at} = call i64 @PyLong_AsLongLong(ptr %o{at})",
            ]
            given.append(f"i64 %v{at}")
            number += 1
    text = "\n".join(f"  {line}" for line in lines)
    return _FUNCTION.format(name=symbol_of(symbol), symbol=symbol, count=number, lines=text, given=", ".join(given))


def method(name: str, address: int, doc: str | None) -> MethodDef:
    """What Python is told of it; to be kept as long as functions are made of it."""
    return MethodDef(name.encode(), address, FAST, (doc or "").encode())


def function(method: MethodDef, addresses: bytes, keep: Any) -> Any:
    """The function with its arrays. It keeps `keep`."""
    return new_function(method, addresses, keep)
