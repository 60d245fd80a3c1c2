"""The arrays of an engine, by name, and kernels bound to them by the names of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np
from headwater.native.subset import Kernel, Mode


class Memory:
    """Arrays that grow; a kernel is bound anew when one of its arrays has."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.arrays: dict[str, Any] = {}
        self._bound: dict[int, tuple[Kernel, Callable[..., int]]] = {}

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __setitem__(self, name: str, array: Any) -> None:
        self.arrays[name] = array
        self._bound.clear()

    def grow(self, name: str, size: int, keep: bool = True) -> None:
        """At least so many words; what is new is zero."""
        old = self.arrays[name]
        if size > len(old):
            new = np.zeros(size, np.int64)
            if keep:
                new[: len(old)] = old
            self[name] = new

    def call(self, kernel: Kernel, *numbers: int) -> int:
        found = self._bound.get(id(kernel))
        if found is None:
            names = list(kernel.checked.parameters)
            arrays = [self.arrays[name] for name in names[: len(names) - len(numbers)]]
            found = self._bound[id(kernel)] = kernel, kernel.bind(self.mode, *arrays)
        return int(found[1](*numbers))

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
