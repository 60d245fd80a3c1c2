"""Machine code kept by the fingerprint of its program, for as long as it is among the most recently used."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from headwater.ir.nodes import Loop, Program
from headwater.ir.serial import fingerprint_of_normal
from headwater.ir.walk import statements

LIMIT = 256  # programs; what is in use stays alive beyond it

_lock = threading.Lock()
_entries: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def key_of(program: Program, kind: str, *more: Any) -> tuple[Any, ...]:
    """Programs of one form with equally proven loops share code; the form is taken as it is, so slots are equal too."""
    bounds = tuple(s.bound for s in statements(program.body) if isinstance(s, Loop))
    return (fingerprint_of_normal(program), kind, bounds, *more)


def get(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What is kept under a key, made if it is not there. Two threads may make the same; the first one stays."""
    with _lock:
        if key in _entries:
            _entries.move_to_end(key)
            return _entries[key]
    made = make()
    with _lock:
        made = _entries.setdefault(key, made)
        while len(_entries) > LIMIT:
            _entries.popitem(last=False)
    return made


def clear() -> None:
    """Forget all machine code that is not in use."""
    with _lock:
        _entries.clear()


def size() -> int:
    """How many programs are kept."""
    return len(_entries)


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
