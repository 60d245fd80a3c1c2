"""A checked pattern in a few lines, for people: what is asked of single events, and what is asked between them.

a: hall.door ; b: hall.door
within 2 seconds, begins at each a, no skip, partitions by door
of one event
    a  input.action = 'in'
    b  input.action = 'in'
between events, at
    b  a.who != b.who
result Match: a, b
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.durations import shown
from headwater.interest import Interest
from headwater.ir.nodes import Return
from headwater.ir.show import show_expr
from headwater.patterns import model, structure, written
from headwater.patterns.notation.show import node as show_node

INDENT = "    "


def describe(pattern: model.Pattern) -> str:
    """A checked pattern in a few lines: its expression, its options, what is asked of events, what comes of it."""
    return "\n".join(_lines(pattern))


def _lines(pattern: model.Pattern) -> Iterator[str]:
    yield expression(pattern)
    yield ", ".join(_options(pattern))
    width = max(len(element.name) for element in pattern.elements)
    yield "of one event"
    for element in pattern.elements:
        said = "every event" if element.condition is None else condition(element.condition)
        yield f"{INDENT}{element.name.ljust(width)}  {said}"
    between = [*_variables(pattern), *_between(pattern)]
    if between:
        yield "between events, at"
        yield from (f"{INDENT}{name.ljust(width)}  {said}" for name, said in between)
    yield f"result {pattern.output.name}: {', '.join(f.name for f in pattern.output.record.fields)}"


def _options(pattern: model.Pattern) -> Iterator[str]:
    window = pattern.window
    if window is None:
        yield "no window"
    elif window.rows is not None:
        yield f"within {window.rows} events"
    else:
        yield f"within {shown(window.microseconds or 0)}" + (f" (:{window.parameter})" if window.parameter else "")
    first = sorted(pattern.elements[at].name for at in structure.firsts(pattern.root))
    yield f"begins at {'each' if pattern.begin == 'each' else 'the first'} {' or '.join(first)}"
    after = pattern.after
    named = " ".join(pattern.elements[at].name for at in after.elements)
    yield after.rule if after.rule == "no skip" else f"goes on {after.rule} {named}".strip()
    if not pattern.reuse:
        yield "no reuse"
    if pattern.key is not None:
        yield f"partitions by {', '.join(f.name for f in pattern.key.record.fields)}"


def _variables(pattern: model.Pattern) -> Iterator[tuple[str, str]]:
    for variable in pattern.variables:
        if not variable.key:
            same = " = ".join(f"{pattern.elements[at].name}.{name}" for at, name in variable.fields)
            yield variable.name, f"{same}, as far as they are taken"


def _between(pattern: model.Pattern) -> Iterator[tuple[str, str]]:
    for each in pattern.conditions:
        names = " & ".join(pattern.elements[at].name for at in each.elements)
        yield names, condition(each.interest).replace("input.", "")


def condition(interest: Interest) -> str:
    """What it asks, on one line where it is one expression."""
    only = interest.normal.body[0] if len(interest.normal.body) == 1 else None
    return show_expr(only.value) if isinstance(only, Return) else str(interest)


# ── the expression ──


def expression(pattern: model.Pattern) -> str:
    """The tree as compact text, with names and channels only."""
    parts = _written(pattern, pattern.root, frozenset())
    if pattern.absent:
        parts = written.Sequence((parts, _without(pattern, pattern.absent)), ("any",))
    return show_node(parts)


def _atom(pattern: model.Pattern, at: int) -> written.Atom:
    element = pattern.elements[at]
    return written.Atom(element.channel, element.name)


def _negative(pattern: model.Pattern, elements: tuple[int, ...]) -> written.Node:
    atoms = tuple(_atom(pattern, at) for at in elements)
    return atoms[0] if len(atoms) == 1 else written.Either(atoms)


def _without(pattern: model.Pattern, elements: tuple[int, ...]) -> written.Without:
    return written.Without(_negative(pattern, elements))


def _written(pattern: model.Pattern, node: model.Node, known: frozenset[int]) -> written.Node:
    """`known` are forbidden by what is around already."""
    match node:
        case model.Leaf(element=element):
            return _atom(pattern, element)
        case model.Either(parts=parts):
            return written.Either(tuple(_written(pattern, part, known) for part in parts))
        case model.Sequence(parts=parts, steps=steps):
            shown_parts = [_written(pattern, parts[0], known)]
            selections: list[written.Selection] = []
            for step, part in zip(steps, parts[1:], strict=True):
                more = tuple(at for at in step.forbidden if at not in known)
                if more and step.selection != "strict":  # there is nothing between adjacent rows
                    shown_parts.append(_without(pattern, more))
                    selections.append(step.selection)
                shown_parts.append(_written(pattern, part, known))
                selections.append(step.selection)
            return written.Sequence(tuple(shown_parts), tuple(selections))
        case model.Both(parts=parts, step=step):
            inner = known | set(step.forbidden)
            both = written.Both(tuple(_written(pattern, part, inner) for part in parts), step.selection)
            return _around(pattern, both, step, known)
        case model.Repeat(part=part, least=least, most=most, step=step, greedy=greedy):
            inner = known | set(step.forbidden)
            repeat = written.Repeat(_written(pattern, part, inner), least, most, step.selection, greedy)
            return _around(pattern, repeat, step, known)


def _around(pattern: model.Pattern, node: written.Node, step: model.Step, known: frozenset[int]) -> written.Node:
    more = tuple(at for at in step.forbidden if at not in known)
    return written.Without(_negative(pattern, more), node) if more else node
