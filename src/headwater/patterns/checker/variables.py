"""Variables: which elements bind them, which mean equality, and which are keys of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.ir.nodes import Compare, Expr, IsMissing, Load, Path, Span, Unary
from headwater.patterns import model, written
from headwater.patterns.checker.expressions import Expressions
from headwater.patterns.checker.tree import Grown
from headwater.types.model import BOOL, F64, List, Record, Type, describe, promote


@dataclass
class Binding:
    """A variable at one place."""

    element: int
    field: str
    type: Type
    span: Span


class Variables:
    """Those of one pattern: `bindings` are the places of each. `shared` are those that mean equality, bound by two
    elements, or by one that may take several events; of these, `keys` are keys, each with its field by channel."""

    def __init__(self, grown: Grown, expressions: Expressions) -> None:
        self.grown, self.expressions = grown, expressions
        self.elements, self.atoms = grown.elements, grown.atoms
        self.bindings = self._bindings()
        self.keys, self.shared = self._keys()

    def _bindings(self) -> dict[str, list[Binding]]:
        """Variables, each with the places that bind it."""
        found: dict[str, list[Binding]] = {}
        for at, atom in enumerate(self.atoms):
            if at in self.grown.unknown:
                continue
            record = self.elements[at].type.record
            for name, argument in self.arguments(at, atom):
                if isinstance(argument.value, written.Variable):
                    type = promote(record.by_name[name].type)
                    if not _is_scalar(type):
                        self.expressions.problem(
                            argument.value.span,
                            f"the variable {argument.value.name!r} cannot be bound here",
                            expected="a field with a single value",
                            found=describe(type),
                        )
                        continue
                    found.setdefault(argument.value.name, []).append(Binding(at, name, type, argument.value.span))
        for name, places in found.items():
            self._check_binding(name, places)
        return found

    def _check_binding(self, name: str, places: list[Binding]) -> None:
        for place in places[1:]:
            if place.type != places[0].type:
                self.expressions.problem(
                    place.span,
                    f"the variable {name!r} has two types",
                    expected=describe(places[0].type),
                    found=describe(place.type),
                    hint="one variable means one value: use another name and compare the two in a condition",
                )

    def arguments(self, at: int, atom: written.Atom) -> list[tuple[str, written.Argument]]:
        """The arguments of a template, each with its field; those that have none are left out (`tree.py` told)."""
        names = [f.name for f in self.elements[at].type.record.fields]
        found = []
        for position, argument in enumerate(atom.arguments or ()):
            name = argument.field if argument.field is not None else names[position] if position < len(names) else None
            if name in self.elements[at].type.record.by_name:
                assert name is not None
                found.append((name, argument))
        return found

    def _keys(self) -> tuple[dict[str, dict[str, str]], dict[str, list[Binding]]]:
        """Keys, and all that mean equality."""
        keys: dict[str, dict[str, str]] = {}
        shared: dict[str, list[Binding]] = {}
        for name, places in self.bindings.items():
            bound = {place.element for place in places}
            if len(places) < 2 and not self.elements[places[0].element].multiple:
                continue
            shared[name] = places
            fields: dict[str, set[str]] = {}
            for place in places:
                for channel in self.elements[place.element].channels:
                    fields.setdefault(channel, set()).add(place.field)
            if bound == set(range(len(self.elements))) and all(len(found) == 1 for found in fields.values()):
                keys[name] = {channel: next(iter(found)) for channel, found in fields.items()}
        return keys, shared

    @property
    def checked(self) -> tuple[model.Variable, ...]:
        """As the checked pattern has them."""
        return tuple(
            model.Variable(name, places[0].type, tuple(_each_once(places)), name in self.keys)
            for name, places in self.shared.items()
        )

    def bound(self, at: int) -> list[Expr]:
        """A variable that means equality is never missing or NaN: such a value equals none."""
        found: list[Expr] = []
        element = self.elements[at]
        for places in self.shared.values():
            for place in places:
                if place.element != at:
                    continue
                field = element.type.record.by_name[place.field]
                load = Load(Path((element.name, field.name)), field.type, place.type, place.span)
                if places[at_first := _first(places, at)] is not place:  # twice in one event
                    other = element.type.record.by_name[places[at_first].field]
                    same = Load(Path((element.name, other.name)), other.type, place.type, place.span)
                    found.append(Compare("eq", same, load, place.span))
                elif place.type == F64:
                    found.append(Compare("eq", load, load, place.span))
                elif field.optional:
                    found.append(Unary("not", IsMissing(load, place.span), BOOL, place.span))
        return found


def _first(places: list[Binding], element: int) -> int:
    return next(at for at, place in enumerate(places) if place.element == element)


def _each_once(places: list[Binding]) -> Iterator[tuple[int, str]]:
    for at, place in enumerate(places):
        if _first(places, place.element) == at:
            yield place.element, place.field


def _is_scalar(type: Type) -> bool:
    return not isinstance(type, List | Record) and not hasattr(type, "shape")
