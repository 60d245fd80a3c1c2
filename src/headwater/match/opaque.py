"""Predicates that only native code can answer: each is one program, shared by all entries that have it.

The kernel calls it through two words, a function and its environment. At first that is the way back into Python, where
the present tier of the program answers; it makes room for machine code as soon as there is some.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headwater.ir import walk
from headwater.ir.analyse import Analysis, analyse
from headwater.ir.interp import FUEL
from headwater.ir.nodes import Expr, InSet, Lookup, Param, Program, Return
from headwater.ir.serial import fingerprint_of_normal
from headwater.late import np
from headwater.match import layout as w
from headwater.match.attributes import Attribute
from headwater.match.kernels.library import ASK, code
from headwater.native.program import Native

Name = tuple[Any, ...]


class Opaque:
    """One program whose verdict is an attribute of the event."""

    number = 0  # its place among the answers about one event

    def __init__(self, name: Name, analysis: Analysis, params: Mapping[str, Any], fuel: int, faulty: bool) -> None:
        self.name, self.faulty, self.uses = name, faulty, 0
        self.native = Native(analysis, raw_params=params, fuel=fuel)
        self.pair = np.zeros(2, np.uint64)
        self._answer = _answer(self.native, self.pair)  # kept: a kernel may be about to call it
        self.pair[:] = (code()[ASK], id(self._answer))

    @property
    def attribute(self) -> Attribute:
        """Not kept: it would keep this alive in turn."""
        return Attribute(w.OPAQUE_KIND, (), True, opaque=self)

    @property
    def address(self) -> int:
        return int(self.pair.ctypes.data)

    def settle(self) -> bool:
        """Let machine code answer, if there is some by now."""
        return _settle(self.native, self.pair)

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return self is other


def _settle(native: Native, pair: Any) -> bool:
    compiled = native.compiled
    if compiled is not None:
        # In one step: kernels read both words while they hold the GIL.
        pair[:] = np.array((compiled.code.address, compiled.bound.address), np.uint64)
    return compiled is not None


def _answer(native: Native, pair: Any) -> Callable[[bytes], int]:
    def answer(record: bytes) -> int:
        _settle(native, pair)
        result = native.run(record)
        return int(result.status) | int(result.faults) << 8

    return answer


class Opaques:
    """The native code that a matcher's entries share, by what it computes."""

    def __init__(self) -> None:
        self._found: dict[Name, Opaque] = {}
        self._free: list[int] = []
        self.room = 0  # numbers given out so far

    def take(self, analysis: Analysis, params: Mapping[str, Any], fuel: int) -> Opaque:
        """A whole program, with faults and all."""
        name = (fingerprint_of_normal(analysis.program), _frozen(params), fuel)
        return self._take(name, lambda: Opaque(name, analysis, params, fuel, not analysis.faultless))

    def take_term(self, program: Program, term: Expr, params: Mapping[str, Any]) -> Opaque:
        """One term of a conjunction, which cannot fault."""
        alone = _alone(program, term)
        used = {decl.name: params[decl.name] for decl in alone.params}
        name = (fingerprint_of_normal(alone), _frozen(used))
        return self._take(name, lambda: Opaque(name, analyse(alone), used, FUEL, False))

    def _take(self, name: Name, make: Callable[[], Opaque]) -> Opaque:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = make()
            if not self._free:
                self._free.append(self.room)
                self.room += 1
            found.number = self._free.pop()
            weakref.finalize(found, self._free.append, found.number)  # no segment leads to it any more
        found.uses += 1
        return found

    def release(self, opaque: Opaque) -> None:
        """One entry fewer uses it; what nobody uses is forgotten."""
        opaque.uses -= 1
        if not opaque.uses:
            self._found.pop(opaque.name, None)


def _alone(program: Program, term: Expr) -> Program:
    """One term of a conjunction as a program of its own."""
    used = {e.name for e in walk.expressions(term) if isinstance(e, Param)}
    used |= {e.param for e in walk.expressions(term) if isinstance(e, InSet | Lookup) and e.param is not None}
    params = tuple(p for p in program.params if p.name in used)
    return replace(program, params=params, variables=(), body=(Return(term),), notation="", text="")


def _frozen(value: Any) -> Any:
    """A parameter's value as part of a name: equal only for the same bits."""
    if isinstance(value, Mapping):
        return tuple(sorted((_frozen(k), _frozen(v)) for k, v in value.items()))
    if isinstance(value, frozenset | set):
        return tuple(sorted(map(_frozen, value)))
    return type(value).__name__, value.hex() if isinstance(value, float) else repr(value)
