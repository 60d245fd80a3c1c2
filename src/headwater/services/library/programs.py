"""What a library has: interests, patterns and triggers, as bytes that may come from anyone, and read from them.

An entry's code is a program in the serial form of its kind, with the values that its parameters have where whoever uses
it gives none. It is checked as one's own is whenever it is read; nothing is executed that was not.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, NamedTuple

import msgspec

from headwater import contextual, runnable
from headwater.decoders import msgpack_decoder
from headwater.errors import HeadwaterError, LibraryError
from headwater.interest import Interest
from headwater.ir.params import plain
from headwater.patterns.pattern import Pattern
from headwater.services.library.reference import MAX_CODE
from headwater.services.library.trigger_form import TriggerForm
from headwater.types import EventType

MAX_TYPE = 4096  # characters of a type, as it is shown
KINDS = (Interest.kind, contextual.KIND, Pattern.kind, TriggerForm.kind)
Program = Interest[Any] | Pattern | TriggerForm


class _Code(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    program: Annotated[bytes, msgspec.Meta(max_length=MAX_CODE)]
    params: dict[str, Any] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(_Code).decode


class Packed(NamedTuple):
    """A program as it is published: its code, and what its manifest says of it."""

    kind: str
    code: bytes
    fingerprint: bytes
    input: str
    output: str


def pack(program: Program) -> Packed:
    """What is published of a program; LibraryError if that is too much, or nothing that a library can have."""
    if isinstance(program, Interest):
        params, takes = plain(program.params), _shown(program.type)
        makes = "" if program.output is None else _shown(program.output)
    elif isinstance(program, Pattern):
        params = plain(program.params)
        takes = "; ".join(f"{each.name}: {_shown(each.type)}" for each in program.model.channels)[:MAX_TYPE]
        makes = _shown(program.output)
    elif isinstance(program, TriggerForm):
        params, takes, makes = {}, "", ""  # they are in its form
    else:
        raise LibraryError(
            f"publish: expected an Interest, a Pattern or a TriggerForm, or text with on=, found {program!r:.80}"
        )
    code = _encode(_Code(program.dumps(), params))
    if len(code) > MAX_CODE:
        raise LibraryError(
            f"publish: expected at most {MAX_CODE:,} bytes of code, found {len(code):,}; make it smaller"
        )
    return Packed(program.kind, code, program.fingerprint, takes, makes)


def read(kind: str, code: bytes, fingerprint: bytes) -> Program:
    """The program of these bytes, checked; LibraryError if it is none, or another one than its fingerprint says."""
    if len(code) > MAX_CODE:
        raise LibraryError(f"expected at most {MAX_CODE:,} bytes of code, found {len(code):,}")
    made: Program
    try:
        found = _decode(code)
        if kind in (Interest.kind, contextual.KIND):
            made = runnable.loads(kind, found.program, found.params)
        elif kind == Pattern.kind:
            made = Pattern.loads(found.program, found.params)
        elif kind == TriggerForm.kind:
            made = TriggerForm.loads(found.program)
        else:
            raise LibraryError(f"expected one of {', '.join(KINDS)}, found {kind[:40]!r}; it needs a newer version")
        same = made.fingerprint == fingerprint
    except LibraryError:
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, HeadwaterError) as error:
        raise LibraryError(f"expected the code of an entry, found something else: {error}") from None
    if not same:
        raise LibraryError(
            f"expected code with the fingerprint {fingerprint.hex()}, found {made.fingerprint.hex()}: it is another "
            f"{kind} than was signed"
        )
    return made


def digest(code: bytes) -> bytes:
    """The SHA-256 of an entry's code, which is signed."""
    return hashlib.sha256(code).digest()


def _shown(type: EventType) -> str:
    return f"{type.name}({', '.join(map(str, type.record.fields))})"[:MAX_TYPE]


__all__ = ["KINDS", "Packed", "Program", "digest", "pack", "read"]
