"""A program with its parameters and fuel as bytes: how it travels to a process that is to run it.

Never a pickled program: who receives it verifies the serial form, and binds the values to what the program declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.ir import serial
from headwater.ir.nodes import Program
from headwater.ir.params import bind, plain


class Package(msgspec.Struct, array_like=True, frozen=True):
    """A program in its serial form, its parameters as `ir.params.plain` gives them, and its fuel."""

    program: bytes
    params: dict[str, Any]
    fuel: int

    @classmethod
    def of(cls, program: Program, params: Mapping[str, Any], fuel: int, *, with_text: bool = False) -> Package:
        """Of raw parameters, of which those count that the program has; `with_text` keeps what it was written in."""
        read = {decl.name: params[decl.name] for decl in program.params}
        return cls(serial.dumps(program, with_text=with_text), plain(read), fuel)

    @classmethod
    def loads(cls, data: bytes) -> Package:
        """What `dumps` gave; msgspec.DecodeError if it is something else. The program is not looked at yet."""
        return _DECODER.decode(data)

    def dumps(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def open(self) -> tuple[Program, dict[str, Any]]:
        """The program, verified, and its raw parameters."""
        program = serial.loads(self.program)
        return program, bind(program.params, self.params)


_DECODER = msgpack_decoder(Package)
