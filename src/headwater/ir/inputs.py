"""What a program reads of its events: fields, and the type with no others."""

from __future__ import annotations

from collections.abc import Collection

from headwater.ir.nodes import CopyOut, Load, Program, Reduce
from headwater.ir.walk import all_expressions, statements
from headwater.types.model import I32, Field, Record


def fields_read(program: Program) -> tuple[str, ...]:
    """The top fields of its input that a program reads, in the type's order."""
    used = {e.path.steps[0] for e in all_expressions(program.body) if isinstance(e, Load | Reduce)}
    used |= {s.source.steps[0] for s in statements(program.body) if isinstance(s, CopyOut)}
    return tuple(field.name for field in program.input.fields if field.name in used)


def narrowed(record: Record, read: Collection[str], relaxed: Collection[str] = ()) -> Record:
    """The type with only the fields that are read, the relaxed ones optional; if none is read, with one that is always
    missing."""
    fields = tuple(
        Field(field.name, field.type, field.optional or field.name in relaxed)
        for field in record.fields
        if field.name in read
    )
    return Record(record.name, fields or (Field("nothing", I32, True),))
