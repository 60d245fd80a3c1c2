"""Builtin functions of Python made from machine code, through two things of its stable interface."""

from __future__ import annotations

import ctypes
from typing import Any

ONE_ARGUMENT = 0x0008  # METH_O
FAST = 0x0080  # METH_FASTCALL
FAST_WITH_KEYWORDS = 0x0080 | 0x0002  # METH_FASTCALL | METH_KEYWORDS


class MethodDef(ctypes.Structure):
    """What Python knows of a builtin function: its name, address, kind of arguments and docstring. To be kept as long
    as the function is there."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# A function object of our own: the attributes of `ctypes.pythonapi` are shared with other libraries.
_prototype: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
_new = _prototype(("PyCFunction_NewEx", ctypes.pythonapi))


def new_function(method: MethodDef, self: Any, module: Any) -> Any:
    """The function of a method, whose first argument is `self`. It keeps `self` and what is said to be its module."""
    return _new(ctypes.addressof(method), self, module)
