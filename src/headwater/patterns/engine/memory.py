"""The arrays of an engine, by name, and kernels bound to them by the names of their parameters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np
from headwater.native import in_background
from headwater.native.subset import ARRAYS, Kernel, Mode, prepare

# Compiling takes some tenths of a second: who has few rows meanwhile does not wait.
_compiling: dict[tuple[str, ...], Future[Any]] = {}
_lock = threading.Lock()
WORTH_WAITING = 64  # rows


def _compiled(modules: tuple[str, ...]) -> Future[Any]:
    """The machine code of kernels, asked for once per process."""
    with _lock:
        if modules not in _compiling:
            _compiling[modules] = in_background(lambda: prepare(*modules))
        return _compiling[modules]


def _forked() -> None:
    """What was asked for is made by nobody any more."""
    global _lock
    _lock = threading.Lock()
    _compiling.clear()


os.register_at_fork(after_in_child=_forked)


class Memory:
    """Arrays that grow; a kernel is bound anew when one of its arrays has. Where kernels are to be compiled, they run
    in CPython until they are, unless there is too much to do (`hurry`)."""

    def __init__(self, mode: Mode, *modules: str) -> None:
        self.mode: Mode = mode
        self.modules = modules
        self.arrays: dict[str, Any] = {}
        self._bound: dict[int, tuple[Kernel, Callable[..., int]]] = {}
        self._short: dict[int, tuple[Kernel, Callable[..., int]]] = {}
        self.quick: Callable[..., int] | None = None  # what an engine runs most often; forgotten when an array grows
        self._now: Mode = "interpreted"
        if mode == "compiled" and modules:
            _compiled(modules)

    def hurry(self, rows: int) -> None:
        """So many rows are to come: have machine code if it is there, or is worth waiting for."""
        if self._now != self.mode and self.modules:
            code = _compiled(self.modules)
            if code.done() or rows >= WORTH_WAITING:
                code.result()
                self._now = self.mode
                self._unbind()

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __setitem__(self, name: str, array: Any) -> None:
        self.arrays[name] = array
        self._unbind()

    def _unbind(self) -> None:
        self._bound.clear()
        self._short.clear()
        self.quick = None

    def grow(self, name: str, size: int, keep: bool = True) -> None:
        """At least so many words; what is new is zero."""
        old = self.arrays[name]
        if size > len(old):
            new = np.zeros(size, np.int64)
            if keep:
                new[: len(old)] = old
            self[name] = new

    @property
    def settled(self) -> bool:
        """Whether kernels run as they are to."""
        return self._now == self.mode or not self.modules

    def call(self, kernel: Kernel, *numbers: int) -> int:
        """Run a kernel that may take its time: other threads run meanwhile."""
        found = self._bound.get(id(kernel))
        if found is None:
            found = self._bound[id(kernel)] = kernel, kernel.bind(self._now, *self._arrays_of(kernel))
        return int(found[1](*numbers))

    def short(self, kernel: Kernel) -> Callable[..., int]:
        """A kernel that takes less than changing threads does, as a function of its numbers; until an array grows."""
        found = self._short.get(id(kernel))
        if found is None:
            bound = kernel.bind(self._now, *self._arrays_of(kernel), short=True)
            found = self._short[id(kernel)] = kernel, bound
        return found[1]

    def _arrays_of(self, kernel: Kernel) -> list[Any]:
        return [self.arrays[name] for name, kind in kernel.checked.parameters.items() if kind in ARRAYS]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(array.nbytes for array in self.arrays.values())

    # ── what is kept of it ──

    def dump(self, names: Mapping[str, int | None]) -> dict[str, bytes]:
        """So many words of each of these arrays, None for all."""
        return {name: self.arrays[name][:size].tobytes() for name, size in names.items()}

    def load(self, name: str, data: bytes, most: int) -> int:
        """Fill the beginning of an array; how many words. The bytes may come from anyone."""
        if len(data) % 8 or len(data) // 8 > most:
            raise ExecutionError(f"snapshot: {name}: expected at most {most:,} words, found {len(data):,} bytes")
        words = np.frombuffer(data, np.int64)
        self.grow(name, len(words), keep=False)
        self.arrays[name][: len(words)] = words
        self.arrays[name][len(words) :] = 0
        return len(words)
