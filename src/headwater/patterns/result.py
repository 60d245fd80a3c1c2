"""The type of a pattern's matches where no measures were asked for."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.patterns import structure
from headwater.patterns.model import Element, Node
from headwater.types.model import Field, List, Record, Type


def derived(elements: Sequence[Element], root: Node, name: str) -> Record:
    """A field for each element that takes events: its event, or the list of them where it may take several."""
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
