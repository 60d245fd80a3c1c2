"""The type of a pattern's matches: what was measured, or each element, and last what is known of the match itself."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.patterns import structure
from headwater.patterns.model import Element, Node
from headwater.types.model import BOOL, BYTES, TIMESTAMP, Field, List, Record, Type

MATCH = "match"  # the field by that name is of every result
ABOUT = Record("MatchInfo", (Field("identity", BYTES), Field("time", TIMESTAMP), Field("uncertain", BOOL)))


def derived(elements: Sequence[Element], root: Node, name: str) -> Record:
    """Without measures: a field for each element that takes events, its event, or the list of them where it may take
    several."""
    fields = []
    for at, element in enumerate(elements):
        if element.negative:
            continue
        record: Type = element.type.record
        sure = structure.times(root, at, least=True) >= 1
        if element.multiple:
            fields.append(Field(element.name, List(record)))
        else:
            fields.append(Field(element.name, record, optional=not sure))
    return Record(name, tuple(fields))


def with_match(fields: Record) -> Record:
    """With what is known of the match: who it is, its time, and whether somebody was not waited for."""
    others = (field for field in fields.fields if field.name != MATCH)  # which is a problem that was told
    return Record(fields.name, (*others, Field(MATCH, ABOUT)))


def is_result(type: Record) -> bool:
    """Whether events of this type are matches of a pattern."""
    return bool(type.fields) and type.fields[-1].name == MATCH and type.fields[-1].type == ABOUT


__all__ = ["ABOUT", "MATCH", "derived", "is_result", "with_match"]
