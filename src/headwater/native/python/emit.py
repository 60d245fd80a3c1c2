"""What the native encoder and decoder share: calls of the C API, objects as constants, places in a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.native.emit import Fn, Module
from headwater.native.python.interpreter import SIGNATURES, TYPE
from headwater.native.python.kernels import KERNELS
from headwater.types.model import Array, Enum, List, Record, Scalar, Type

_SIGNATURES = SIGNATURES | KERNELS


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the record: a constant, or one computed at run time and a constant after it."""

    offset: int
    base: str = ""

    def __add__(self, offset: int) -> Place:
        return Place(self.offset + offset, self.base)


class Code(Fn):
    """A builtin function under construction."""

    def __init__(self, head: str) -> None:
        super().__init__(Module(), head)

    def call(self, name: str, *arguments: str) -> str:
        """The result of a C API function, or of a kernel."""
        return self.v(self._call(name, arguments))

    def run(self, name: str, *arguments: str) -> None:
        """A call of a C API function without a result."""
        self.do(self._call(name, arguments))

    def _call(self, name: str, arguments: tuple[str, ...]) -> str:
        signature = _SIGNATURES[name]
        result, _, rest = signature.partition(" ")
        types = [t for t in rest[rest.index("(") + 1 : -1].split(", ") if t]
        given = ", ".join(f"{t} {a}" for t, a in zip(types, arguments, strict=True))
        return f"call {result} {self.module.declare(signature, name)}({given})"

    def function(self, name: str) -> str:
        """A C API function as a value."""
        return self.module.declare(_SIGNATURES[name], name)

    def is_(self, value: str, thing: Any) -> str:
        """Whether a pointer is that of an object known now."""
        return self.v(f"icmp eq ptr {value}, {address(thing)}")

    def type_is(self, value: str, cls: type) -> str:
        return self.is_(self.type_of(value), cls)

    def type_of(self, value: str) -> str:
        return self.load("ptr", self.gep(value, TYPE), 8)

    def need(self, test: str, otherwise: str) -> None:
        """Go on only if `test`; to the block `otherwise` if not."""
        on = self.label("on")
        self.cbr(test, on, otherwise)
        self.at(on)

    def is_null(self, value: str) -> str:
        return self.v(f"icmp eq ptr {value}, null")

    def present(self, value: str, otherwise: str) -> None:
        self.need(self.v(f"icmp ne ptr {value}, null"), otherwise)

    def position(self, place: Place) -> str:
        """A place as an i64."""
        if not place.base:
            return str(place.offset)
        return place.base if not place.offset else self.v(f"add i64 {place.base}, {place.offset}")

    def pointer(self, start: str, place: Place) -> str:
        return self.gep(self.gep(start, place.base) if place.base else start, place.offset)

    def memory(self, what: str) -> None:
        self.module.intrinsic(f"void @llvm.{what}")

    def source(self) -> str:
        self.finish()
        return self.module.text()


def address(thing: Any) -> str:
    """An object as a constant of the code; who makes the code keeps it."""
    return f"inttoptr (i64 {id(thing)} to ptr)"


def parts(type: Type) -> int:
    """How many types there are in a type, which is what code grows with."""
    match type:
        case Array(element=element) | List(element=element):
            return 1 + parts(element)
        case Record(fields=fields):
            return 1 + sum(parts(field.type) for field in fields)
        case Enum(members=members):
            return 1 + len(members) // 8
        case Scalar():
            return 1
