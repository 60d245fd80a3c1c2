"""Conditions that cannot hold together: what is asked of one event, and what is asked between events.

What every match must satisfy is one conjunction over the record of all elements: the same question as whether a filter
passes anything. It is asked of each element by itself, with all that it reads at that moment, and of all elements that
every match takes exactly once, whose events stay what they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwater.interest import Interest
from headwater.ir import walk
from headwater.ir.certainty import passes_nothing
from headwater.ir.functional import as_expression
from headwater.ir.nodes import Compare, Expr, Load, Logic, ParamDecl, Path, Program, Reduce, Return, Span
from headwater.patterns import structure
from headwater.patterns.checker.scope import onto, own_meta, paths_of, record_for, view_of
from headwater.patterns.model import Element, Pattern


@dataclass(frozen=True)
class _Asked:
    """A condition over the record of elements, and where it stands."""

    value: Expr
    span: Span
    params: tuple[ParamDecl, ...] = ()


def dead(pattern: Pattern, elements: Iterable[int]) -> dict[int, Span]:
    """Of these elements, those that can take no event, each with the place of what rules it out."""
    found: dict[int, Span] = {}
    for at in elements:
        element = pattern.elements[at]
        if element.condition is not None and _is_never(element.condition):
            found[at] = element.span
            continue
        conditions = [each for each in pattern.conditions if at in each.elements]
        alone = next((each for each in conditions if _is_never(each.interest)), None)
        if alone is not None:
            found[at] = alone.span
        elif conditions and not element.negative:
            here = [each for each in _asked(pattern, {at}) if at in each[0]]
            if (place := _contradiction(pattern, [each for _, each in here])) is not None:
                found[at] = place
    return found


def between(pattern: Pattern) -> Span | None:
    """The place of a condition that cannot hold together with those of other elements."""
    sure = {
        at
        for at, element in enumerate(pattern.elements)
        if not element.negative and not element.multiple and structure.times(pattern.root, at, least=True) >= 1
    }
    if len(sure) < 2 or not (pattern.conditions or pattern.variables):
        return None
    names = {pattern.elements[at].name for at in sure}
    asked = [each for elements, each in _asked(pattern, sure) if elements <= sure and _is_fixed(each.value, names)]
    return _contradiction(pattern, [*_variables(pattern, sure), *asked])


def _is_fixed(value: Expr, names: Collection[str]) -> bool:
    """Whether it reads only what is the same whenever it is asked."""
    views = [view_of(member) for member in paths_of([value])]
    return all(view.name in names and view.kind in ("latest", "first", "meta") for view in views)


def _is_never(interest: Interest) -> bool:
    return passes_nothing(interest.program, interest.normal)


def _asked(pattern: Pattern, elements: Collection[int]) -> Iterator[tuple[set[int], _Asked]]:
    """What is asked at these elements, with the elements that it is asked at."""
    for at in sorted(elements):
        element = pattern.elements[at]
        if element.condition is not None and (value := as_expression(element.condition.normal)) is not None:
            yield {at}, _Asked(_of_element(value, element), element.span, element.condition.normal.params)
    for each in pattern.conditions:
        if set(each.elements) & set(elements) and (value := as_expression(each.interest.normal)) is not None:
            yield set(each.elements), _Asked(value, each.span, each.interest.normal.params)


def _of_element(value: Expr, element: Element) -> Expr:
    """What is asked of an event, as it is asked of a member of the elements' record."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Load | Reduce):
            return replace(node, path=Path((element.name, *node.path.steps)))
        return node

    return own_meta(walk.rebuild(value, change), element.name)


def _variables(pattern: Pattern, sure: Collection[int]) -> Iterator[_Asked]:
    """Variables: the values are equal."""
    for variable in pattern.variables:
        loads = [
            Load(Path((element.name, name)), element.type.record.by_name[name].type, variable.type)
            for at, name in variable.fields
            if at in sure
            for element in (pattern.elements[at],)
        ]
        for one, other in pairwise(loads):
            yield _Asked(Compare("eq", one, other), pattern.root.span)


def _contradiction(pattern: Pattern, asked: Sequence[_Asked]) -> Span | None:
    """The place of the first that cannot hold together with those before it."""
    if len(asked) < 2 or not _together(pattern, asked):
        return None
    count = next(count for count in range(1, len(asked) + 1) if _together(pattern, asked[:count]))
    return asked[count - 1].span


def _together(pattern: Pattern, asked: Sequence[_Asked]) -> bool:
    """Whether no events satisfy all of these."""
    values = [each.value for each in asked]
    names = {element.name: element.type.record for element in pattern.elements}
    names |= {subset.name: pattern.elements[subset.elements[0]].type.record for subset in pattern.subsets}
    record, _ = record_for(paths_of(values), names)
    params = {param.name: param for each in asked for param in each.params}
    value = onto(values[0] if len(values) == 1 else Logic("and", tuple(values)), record)
    return passes_nothing(Program(record, None, tuple(params.values()), (), (Return(value),)))


__all__ = ["between", "dead"]
