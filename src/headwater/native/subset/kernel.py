"""Kernels: functions of the language, and the two ways in which they run.

    @kernel
    def total(values: i64s, count: i64) -> i64:
        sum = 0
        for i in range(count):
            sum += values[i]
        return sum

    call = total.bind("compiled", array)       arrays once, numbers with each call
    call(10)

The arrays of a call do not overlap. Python's lock is let go while machine code runs, since a kernel works on a batch or
walks through what is open; who calls owns the arrays meanwhile. For calls that take less than letting go of the lock,
`bind(…, short=True)` keeps it, and is a builtin function: a tenth of what a call through ctypes takes, which looks at
every argument, arrays too.

Machine code is made when it is first wanted, once per process, for all kernels of a module together that no other one
calls (`prepare` does so beforehand). `bind("interpreted", …)` runs the same source in CPython, with every index looked
at.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

from headwater.errors import ExecutionError, KernelError
from headwater.late import np
from headwater.native import engine
from headwater.native.subset import builtin
from headwater.native.subset.assembly import assembly
from headwater.native.subset.checking import ARRAYS, F64, Checked, check
from headwater.native.subset.interpreted import interpreted

Mode = Literal["compiled", "interpreted"]
_DTYPES = {"i64s": "int64", "f64s": "float64", "i32s": "int32", "u8s": "uint8"}
_FORMATS: dict[str, Any] = {"i64s": "q", "f64s": "d", "i32s": "i", "u8s": "B"}

_lock = threading.RLock()
_modules: dict[str, list[Kernel]] = {}  # kernels that are compiled together: those of one module of Python


class Kernel:
    """A function that was checked. Calling it runs it in CPython, on arrays of numpy: for tests and debugging."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.checked: Checked = check(function, lambda found: isinstance(found, Kernel))
        self.name, self.module = function.__name__, function.__module__
        self.__doc__ = function.__doc__
        self._interpreted: Callable[..., Any] | None = None
        self._code: engine.Code | None = None
        self._method: Any = None
        self.entry = False
        with _lock:
            _modules.setdefault(self.module, []).append(self)

    @property
    def symbol(self) -> str:
        return re.sub(r"\W", "_", f"{self.module}.{self.name}")

    def __call__(self, *args: Any) -> int:
        """Of kernels that say so, a float."""
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        result: int = self.bind("interpreted", *arrays)(*args[len(arrays) :])
        return result

    def bind(self, mode: Mode, *arrays: Any, short: bool = False) -> Callable[..., Any]:
        """A function of what follows the arrays. It holds them: growing one means binding anew."""
        self._fit(arrays)
        if mode == "interpreted":
            kinds = list(self.checked.parameters.values())
            views = [_view(array, kind) for array, kind in zip(arrays, kinds, strict=False)]
            return partial(self.interpreted, *views)
        if short and builtin.possible(self.checked):
            return self._builtin(arrays)
        call = self.address(short=short)
        bound = partial(call, *(array.ctypes.data for array in arrays))
        bound.keep = (arrays, self._code)  # type: ignore[attr-defined]
        return bound

    def _fit(self, arrays: tuple[Any, ...]) -> None:
        kinds = list(self.checked.parameters.items())
        wanted = sum(kind in ARRAYS for _, kind in kinds)
        if len(arrays) != wanted or any(kind not in ARRAYS for _, kind in kinds[:wanted]):
            raise ExecutionError(f"{self.name}: expected {wanted} arrays, all before the numbers, found {len(arrays)}")
        for (name, kind), array in zip(kinds, arrays, strict=False):
            found = getattr(array, "dtype", None)
            if found != _DTYPES[kind] or array.ndim != 1 or not array.flags.c_contiguous:
                raise ExecutionError(
                    f"{self.name}: {name}: expected one row of {_DTYPES[kind]}, found {type(array).__name__} of {found}"
                )

    @property
    def interpreted(self) -> Callable[..., Any]:
        if self._interpreted is None:
            callees = {name: callee.interpreted for name, callee in self.checked.calls.items()}
            self._interpreted = interpreted(self.checked, callees)
        return self._interpreted

    def _builtin(self, arrays: tuple[Any, ...]) -> Callable[..., Any]:
        """It keeps the arrays and the code, as long as it is there itself."""
        code = self._compiled()
        if self._method is None:
            self._method = builtin.method(self.name, code[builtin.symbol_of(self.symbol)], self.__doc__)
        addresses = b"".join(array.ctypes.data.to_bytes(8, "little") for array in arrays)
        made: Callable[..., Any] = builtin.function(self._method, addresses, (arrays, code, self))
        return made

    def _compiled(self) -> engine.Code:
        """Its machine code, made with that of the others of its module where it is not there yet."""
        if self._code is None:
            prepare(self.module)
        with _lock:
            if self._code is None:  # it is part of others' code only
                _compile([self])
        assert self._code is not None
        return self._code

    def address(self, *, short: bool = False) -> Any:
        """The function of addresses and numbers."""
        code = self._compiled()
        make = ctypes.PYFUNCTYPE if short else ctypes.CFUNCTYPE
        kinds = [_ctype(kind) for kind in self.checked.parameters.values()]
        prototype: Any = make(_ctype(self.checked.result), *kinds)
        return prototype(code[self.symbol])


def kernel(function: Callable[..., Any]) -> Kernel:
    """Decorates a function of the kernel language; KernelError says what is not in it."""
    return Kernel(function)


def entry(function: Callable[..., Any]) -> Kernel:
    """Like `kernel`, for one that is called by kernels and by Python as well."""
    made = Kernel(function)
    made.entry = True
    return made


def prepare(*modules: str) -> engine.Timing:
    """Have the machine code of these modules' kernels made, where it is not there yet; the time that it took."""
    parse = optimise = emit = link = 0.0
    for module in modules:
        with _lock:
            here = _modules.get(module, ())
            called = {id(callee) for each in here for callee in each.checked.calls.values()}
            kernels = [each for each in here if each._code is None and (each.entry or id(each) not in called)]
            if kernels:
                spent = _compile(kernels).timing
                parse, optimise = parse + spent.parse, optimise + spent.optimise
                emit, link = emit + spent.emit, link + spent.link
    return engine.Timing(parse, optimise, emit, link)


def source(kernels: Iterable[Kernel]) -> str:
    """The LLVM assembly of kernels and all that they call."""
    wanted = list(kernels)
    functions: dict[str, Checked] = {}

    def reach(each: Kernel) -> None:
        if each.symbol not in functions:
            for callee in each.checked.calls.values():
                reach(callee)
            functions[each.symbol] = each.checked

    for each in wanted:
        reach(each)
    return assembly(functions, frozenset(each.symbol for each in wanted))


def _compile(kernels: list[Kernel]) -> engine.Code:
    imports = engine.libc(("memset", "memcpy", "memmove", *builtin.IMPORTS))  # what loops of stores may become
    called = {each.symbol: each.checked for each in kernels if builtin.possible(each.checked)}
    exports = (*(each.symbol for each in kernels), *map(builtin.symbol_of, called))
    code = engine.compile(f"{source(kernels)}\n{builtin.source(called)}", exports, imports, "loops")
    for each in kernels:
        each._code = code
    return code


def _ctype(kind: str) -> Any:
    return ctypes.c_void_p if kind in ARRAYS else ctypes.c_double if kind == F64 else ctypes.c_int64


def _view(array: Any, kind: str) -> Any:
    return memoryview(array).cast("B").cast(_FORMATS[kind])


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have held it


os.register_at_fork(after_in_child=_forked)

__all__ = ["Kernel", "KernelError", "Mode", "entry", "kernel", "prepare", "source"]
