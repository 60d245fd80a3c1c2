"""A written pattern as compact text, whatever notation it came from."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.durations import shown
from headwater.patterns.written import (
    Argument,
    Atom,
    Both,
    Condition,
    Either,
    Node,
    Pattern,
    Repeat,
    Selection,
    Sequence,
    Value,
    Variable,
    Without,
)

_STEPS: dict[Selection, str] = {"any": " ; ", "next": " -> ", "strict": " , "}
_BINDS = {Either: 0, Both: 1, Sequence: 2, Without: 3, Repeat: 4, Atom: 5}  # how tightly


def show(pattern: Pattern) -> str:
    """On one line for each clause."""
    begin = {"each": "whenever ", "first": "once ", None: ""}[pattern.begin]
    return "\n".join([begin + node(pattern.root), *_clauses(pattern)])


def _clauses(pattern: Pattern) -> Iterator[str]:
    """What stands after the expression, leaving out what is as it would be without being said."""
    window = pattern.window
    if window is not None:
        if window.parameter is not None:
            yield f"within :{window.parameter}"
        elif window.rows is not None:
            yield f"within {window.rows} events"
        elif window.microseconds is not None:
            yield f"within {shown(window.microseconds)}"
    if pattern.partition:
        yield f"partition by {', '.join(map(text, pattern.partition))}"
    if pattern.among is not None:
        yield f"among {text(pattern.among)}"
    if pattern.time is not None:
        yield f"time {text(pattern.time)}"
    if pattern.lateness:
        yield f"lateness {shown(pattern.lateness)}"
    if pattern.patience is not None:
        yield f"patience {shown(pattern.patience)}"
    if pattern.after.rule != "no skip":
        yield f"after match {pattern.after.rule}{f' {pattern.after.element}' if pattern.after.element else ''}"
    if not pattern.reuse:
        yield "no reuse"
    if pattern.measures is not None:
        yield f"measures {', '.join(f'{text(m.value)} as {m.name}' for m in pattern.measures)}"


def text(condition: Condition) -> str:
    """A condition; of a function, its name."""
    if isinstance(condition.definition, str):
        return " ".join(condition.definition.split())
    return getattr(condition.definition, "__name__", "function")


def node(it: Node) -> str:
    """An expression, with the parentheses that it needs."""
    match it:
        case Atom():
            return _atom(it)
        case Sequence(parts=parts, selections=selections):
            shown_parts = [_within(part, Sequence) for part in parts]
            return shown_parts[0] + "".join(
                _STEPS[s] + part for s, part in zip(selections, shown_parts[1:], strict=True)
            )
        case Either(parts=parts):
            return " | ".join(_within(part, Either) for part in parts)
        case Both(parts=parts, selection=selection):
            mark = " & " if selection == "next" else f" &{_STEPS[selection].strip()} "
            return mark.join(_within(part, Both) for part in parts)
        case Repeat():
            return _repeat(it)
        case Without(part=part, of=None):
            return f"without {_unit(part)}"
        case Without(part=part, of=of):
            assert of is not None
            return f"{_within(of, Without, equal=isinstance(of, Without) and of.of is not None)} without {_unit(part)}"


def _within(part: Node, outer: type, *, equal: bool = False) -> str:
    bare = isinstance(part, Without) and part.of is None
    if _BINDS[type(part)] > _BINDS[outer] or equal or (bare and outer is Sequence):
        return node(part)
    return f"({node(part)})"


def _unit(part: Node) -> str:
    return node(part) if isinstance(part, Atom) else f"({node(part)})"


def _repeat(it: Repeat) -> str:
    count = {(1, None): "+", (0, None): "*", (0, 1): "?"}.get((it.least, it.most))
    if count is None:
        upper = "" if it.most == it.least else f",{'' if it.most is None else it.most}"
        count = f"{{{it.least}{upper}}}"
    inner = node(it.part) if isinstance(it.part, Atom) else f"({node(it.part)})"
    return f"{inner}{count}{'' if it.greedy else '?'}{'' if it.selection == 'next' else f' {it.selection}'}"


def _atom(it: Atom) -> str:
    name = f"{it.name}: " if it.name else ""
    template = "" if it.arguments is None else f"({', '.join(map(_argument, it.arguments))})"
    condition = f"{{{text(it.condition)}}}" if it.condition is not None else ""
    return f"{name}{it.channel}{template}{condition}"


def _argument(argument: Argument) -> str:
    value = argument.value
    match value:
        case Variable(name=name):
            said = name
        case Value(value=of, parameter=True):
            said = f":{of}"
        case Value(value=of):
            said = _literal(of)
        case _:
            said = "*"
    return f"{argument.field} = {said}" if argument.field is not None else said


def _literal(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
