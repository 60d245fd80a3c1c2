"""What the native codec must know about the Python that runs it, found out by looking rather than assumed.

Almost everything goes through functions of CPython's C API, by their addresses in this process. Four things have no
function: where an object's type is, where a Struct keeps its fields, what is in a datetime, and how one is made. They
are read from memory, and only of a Python on which this was verified (`python_versions`), and after a probe has shown
that they are where we think. On any other Python, and where a probe fails, there is no native codec, and the codec of
`types` does the work: the plain path.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from types import MemberDescriptorType
from typing import Any

import msgspec

from headwater.native import engine
from headwater.native.builtin_functions import ONE_ARGUMENT, MethodDef, new_function
from headwater.native.once import once
from headwater.python_versions import Interpreter, chosen, unknown
from headwater.types.binding import Binding
from headwater.types.event import EventMeta

log = logging.getLogger("headwater")

HEAD = 16  # bytes of reference count and type at the start of every object
TYPE = 8  # where the type is

# In a datetime: whether it has a zone, then ten bytes (year, month, day, hour, minute, second, microseconds), then
# fold, then the zone.
ZONED, STAMP, FOLD, ZONE, DATETIME_SIZE = 24, 25, 35, 40, 48

SIGNATURES = {
    "PyByteArray_AsString": "ptr %s(ptr)",
    "PyBytes_AsString": "ptr %s(ptr)",
    "PyBytes_FromStringAndSize": "ptr %s(ptr, i64)",
    "PyBytes_Size": "i64 %s(ptr)",
    "PyErr_Clear": "void %s()",
    "PyErr_ExceptionMatches": "i32 %s(ptr)",
    "PyErr_Fetch": "void %s(ptr, ptr, ptr)",
    "PyErr_NormalizeException": "void %s(ptr, ptr, ptr)",
    "PyErr_Occurred": "ptr %s()",
    "PyErr_Restore": "void %s(ptr, ptr, ptr)",
    "PyException_SetTraceback": "i32 %s(ptr, ptr)",
    "PyFloat_AsDouble": "double %s(ptr)",
    "PyFloat_FromDouble": "ptr %s(double)",
    "PyFloat_Pack4": "i32 %s(double, ptr, i32)",
    "PyFloat_Unpack4": "double %s(ptr, i32)",
    "PyList_Append": "i32 %s(ptr, ptr)",
    "PyList_AsTuple": "ptr %s(ptr)",
    "PyList_GetItem": "ptr %s(ptr, i64)",
    "PyList_Insert": "i32 %s(ptr, i64, ptr)",
    "PyList_New": "ptr %s(i64)",
    "PyList_SetItem": "i32 %s(ptr, i64, ptr)",
    "PyList_SetSlice": "i32 %s(ptr, i64, i64, ptr)",
    "PyList_Size": "i64 %s(ptr)",
    "PyLong_AsLongLong": "i64 %s(ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 %s(ptr, ptr)",
    "PyLong_AsUnsignedLongLong": "i64 %s(ptr)",
    "PyLong_FromLongLong": "ptr %s(i64)",
    "PyLong_FromUnsignedLongLong": "ptr %s(i64)",
    "PyMem_Free": "void %s(ptr)",
    "PyMem_Malloc": "ptr %s(i64)",
    "PyMem_Realloc": "ptr %s(ptr, i64)",
    "PyObject_CallNoArgs": "ptr %s(ptr)",
    "PyObject_CallOneArg": "ptr %s(ptr, ptr)",
    "PyObject_GC_UnTrack": "void %s(ptr)",
    "PyObject_Vectorcall": "ptr %s(ptr, ptr, i64, ptr)",
    "PySet_Size": "i64 %s(ptr)",
    "PyThread_get_thread_ident": "i64 %s()",
    "PyTuple_GetItem": "ptr %s(ptr, i64)",
    "PyTuple_New": "ptr %s(i64)",
    "PyTuple_SetItem": "i32 %s(ptr, i64, ptr)",
    "PyTuple_Size": "i64 %s(ptr)",
    "PyType_GenericAlloc": "ptr %s(ptr, i64)",
    "PyUnicode_AsUTF8AndSize": "ptr %s(ptr, ptr)",
    "PyUnicode_DecodeUTF8": "ptr %s(ptr, i64, ptr)",
    "Py_DecRef": "void %s(ptr)",
    "Py_IncRef": "void %s(ptr)",
}
MAKE_DATETIME = "hw_make_datetime"  # DateTime_FromDateAndTime of the datetime module's C API
_LIBC = ("memcpy", "memset", "bcmp", "memcmp")


@once
def why_plain() -> str | None:
    """Why machine code does not look at this Python's objects; None if it does."""
    return chosen() or unknown(Interpreter.here()) or _other_layout()


@once
def supported() -> bool:
    """Whether this Python's objects are laid out as native code needs them; if not, the log is told why, once."""
    why = why_plain()
    if why is not None:
        say = log.info if chosen() else log.warning
        say("events are encoded, decoded and published in Python, not by machine code: %s", why)
    return why is None


def _other_layout() -> str | None:
    samples: tuple[Any, ...] = (None, True, 1, 1.5, "a", b"a", [], (), datetime(2000, 1, 1, tzinfo=UTC))
    if object.__basicsize__ != HEAD or any(word_at(id(x) + TYPE) != id(type(x)) for x in samples):
        return "objects of this build have their type in another place"
    missing = [name for name in SIGNATURES if not hasattr(ctypes.pythonapi, name)]
    return f"this build lacks {', '.join(missing)}" if missing else None


def _function(name: str, *signature: Any) -> Any:
    """A C API function of our own to call: the attributes of `ctypes.pythonapi` are shared with other libraries."""
    return ctypes.PYFUNCTYPE(*signature)((name, ctypes.pythonapi))


def word_at(address: int) -> int:
    """The eight bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


def addresses() -> dict[str, int]:
    """What the native codec calls of Python and of C."""
    found = {n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0 for n in SIGNATURES}
    return found | engine.libc(_LIBC) | ({MAKE_DATETIME: _datetime_maker()} if reads_datetimes() else {})


# ── datetimes ──


_capsule = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)


def _datetime_maker() -> int:
    """The function that the datetime module offers to C: after five types and UTC, and after the one for dates."""
    offered = import_module("_datetime").datetime_CAPI
    table = _capsule(offered, b"datetime.datetime_CAPI")
    if word_at(table + 8) != id(datetime) or word_at(table + 40) != id(UTC):
        return 0
    return word_at(table + 56)


def _bytes(thing: Any, count: int) -> bytes:
    return ctypes.string_at(id(thing), count)


@once
def reads_datetimes() -> bool:
    """Whether datetimes look in memory as they always have, and can be made the way C code makes them."""
    fit = _datetimes_fit()
    if not fit:
        log.warning(
            "events with times are encoded and decoded in Python, not by machine code: datetimes look otherwise"
        )
    return fit


def _datetimes_fit() -> bool:
    try:
        address = _datetime_maker()
    except (ImportError, AttributeError, ValueError):
        return False
    if not address or datetime.__basicsize__ != DATETIME_SIZE:
        return False
    for fold in (0, 1):
        for fields in ((1, 1, 1, 0, 0, 0, 0), (9999, 12, 31, 23, 59, 58, 999_999), (2026, 3, 4, 5, 6, 7, 8 << 8 | 9)):
            data = _bytes(datetime(*fields, tzinfo=UTC, fold=fold), DATETIME_SIZE)
            year, *rest = fields
            stamp = year.to_bytes(2, "big") + bytes(rest[:-1]) + rest[-1].to_bytes(3, "big")
            zone = int.from_bytes(data[ZONE : ZONE + 8], "little")
            if data[STAMP:FOLD] != stamp or data[FOLD] != fold or not data[ZONED] or zone != id(UTC):
                return False
    make: Any = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_int] * 7, ctypes.py_object, ctypes.py_object)(address)
    naive = _bytes(datetime(1, 1, 1), STAMP)
    return not naive[ZONED] and make(2026, 3, 4, 5, 6, 7, 8, UTC, datetime) == datetime(2026, 3, 4, 5, 6, 7, 8, UTC)


# ── Structs ──


_alloc = _function("PyType_GenericAlloc", ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)


def offsets(binding: Binding) -> tuple[int, ...] | None:
    """Where an instance of a record's class keeps the value of each field; None if that cannot be made sure of."""
    cls = binding.cls
    if cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__del__") or cls.__dictoffset__:
        return None  # may give other values than it stores; would see our probe; may be laid out in many ways
    if not all(type(_attribute(cls, name)) is MemberDescriptorType for name in binding.attrs):
        return None
    probe = _alloc(cls, 0)  # an instance with no field set, made without running anything of the class
    marks = [object() for _ in binding.attrs]
    for name, mark in zip(binding.attrs, marks, strict=True):
        msgspec.structs.force_setattr(probe, name, mark)
    words = memory_of(probe)
    found = [[i for i, word in enumerate(words) if word == id(mark)] for mark in marks]
    if any(len(places) != 1 for places in found):
        return None
    if any(getattr(probe, name) is not mark for name, mark in zip(binding.attrs, marks, strict=True)):
        return None
    return tuple(HEAD + 8 * places[0] for places in found)


def plainly_made(binding: Binding, places: tuple[int, ...]) -> bool:
    """Whether making an instance is nothing but setting its fields, so that native code may do just that."""
    cls = binding.cls
    if type(cls) is not EventMeta or hasattr(cls, "__post_init__") or binding.constructor is not cls:
        return False
    marks = [object() for _ in binding.attrs]
    words = memory_of(cls(*marks))
    expected = {place: id(mark) for place, mark in zip(places, marks, strict=True)}
    return all(word == expected.get(HEAD + 8 * i, 0) for i, word in enumerate(words))


def memory_of(instance: Any) -> list[int]:
    """All of an instance after its head."""
    count = (type(instance).__basicsize__ - HEAD) // 8
    return list((ctypes.c_uint64 * count).from_address(id(instance) + HEAD))


def _attribute(cls: Any, name: str) -> Any:
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)


# ── builtin functions ──


def builtin(name: str, doc: str, source: str, imports: dict[str, int], keep: tuple[Any, ...]) -> Callable[[Any], Any]:
    """A builtin function of one argument from LLVM assembly that defines `@name(ptr self, ptr argument)`.

    `keep` lives as long as it does: the objects whose addresses are in the code.
    """
    code = engine.compile(source, (name,), imports, "straight")
    method = MethodDef(name.encode(), code[name], ONE_ARGUMENT, doc.encode(errors="replace"))
    made: Callable[[Any], Any] = new_function(method, (method, code, *keep), "headwater.native.python.codec")
    return made
